//! `foretell demo`: what foretell does, shown on this machine on something slow that is emulated.
//!
//! Each demo has a folder: `array`, disks; `store`, an object store that is mounted. What they share is here, and in `page`, how a
//! report looks.

mod array;
mod cancel;
mod machine;
mod page;
mod scratch;
mod store;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use foretell_testbed::LayoutKind;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::duration;
use crate::failure::{Failure, draws_progress, written};
use crate::output_file::{self, OutputFile};
use cancel::Cancel;

/// Real seconds in one of the array's clock, and how long the store waits, if nothing is said.
const TIME_SCALE: f64 = 0.125;
const FIRST_BYTE: Duration = Duration::from_millis(30);

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Show it on a mounted object store instead, 30 ms away, emulated too
    #[arg(long)]
    store: bool,

    /// Of disks: real seconds in one second of the array's clock: smaller is quicker, and less exact [default: 0.125]
    #[arg(long, value_name = "FACTOR", allow_negative_numbers = true)]
    time_scale: Option<f64>,

    /// Of disks: how files lie on them, aged (in short runs, as on an old file system) or sequential [default: aged]
    #[arg(long)]
    layout: Option<LayoutKind>,

    /// Of the store: how long each of its answers waits before its first byte [default: 30ms]
    #[arg(long, value_name = "DURATION", value_parser = duration::parse)]
    first_byte: Option<Duration>,

    /// Of the store: how often each way is measured [default: 5]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u64).range(1..=store::ROUNDS_MAX))]
    rounds: Option<u64>,

    /// Write every figure to FILE as JSON (- for standard output, behind the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Where to write the report
    #[arg(long, default_value = "report.html", value_name = "FILE")]
    report: PathBuf,
}

pub(crate) fn demo(args: &DemoArgs) -> Result<ExitCode, Failure> {
    let cancel = Cancel::listen();
    args.check()?;
    if args.store {
        let options = store::options(args.first_byte.unwrap_or(FIRST_BYTE))?;
        let rounds = args.rounds.map_or(store::ROUNDS, |rounds| rounds as usize);
        return store::demo(options, rounds, Outputs::open(args)?, &cancel);
    }
    let layout = args.layout.unwrap_or(LayoutKind::Aged);
    let options = array::options(layout, args.time_scale.unwrap_or(TIME_SCALE))?;
    array::demo(&options, Outputs::open(args)?, &cancel)
}

impl DemoArgs {
    /// Sees that no option is of the other demo.
    fn check(&self) -> Result<(), Failure> {
        let of_disks =
            [("--time-scale", self.time_scale.is_some()), ("--layout", self.layout.is_some())];
        let of_store =
            [("--first-byte", self.first_byte.is_some()), ("--rounds", self.rounds.is_some())];
        let given = |options: [(&'static str, bool); 2]| {
            options.into_iter().find_map(|(name, is_given)| is_given.then_some(name))
        };
        match self.store {
            true => given(of_disks).map_or(Ok(()), |name| {
                Err(Failure::usage(format!(
                    "{name} is of the disk array; leave it out with --store"
                )))
            }),
            false => given(of_store).map_or(Ok(()), |name| {
                Err(Failure::usage(format!("{name} is of the object store; add --store")))
            }),
        }
    }
}

/// The files that are written at the end, seen to be writable at the beginning.
struct Outputs {
    page: OutputFile,
    report: PathBuf,
    json: Option<OutputFile>,
}

impl Outputs {
    fn open(args: &DemoArgs) -> Result<Self, Failure> {
        if args.report.as_os_str() == "-" {
            let line = "--report -: the page does not go with the table; name a file";
            return Err(Failure::usage(line));
        }
        let report = Some(("--report", args.report.as_path()));
        let written = report.into_iter().chain(args.json.as_deref().map(|path| ("--json", path)));
        output_file::check_apart(&[], &written.collect::<Vec<_>>()).map_err(Failure::usage)?;
        let page = OutputFile::open_as("--report", &args.report).map_err(|error| {
            Failure::failed(format!("{error}; name a file that can be written"))
        })?;
        let json =
            OutputFile::of_option("--json", args.json.as_deref()).map_err(Failure::failed)?;
        Ok(Outputs { page, report: args.report.clone(), json })
    }

    /// Writes the page, tells people with `conclude`, which is given where the page is, and writes the figures behind that.
    fn write(
        self,
        html: &str,
        figures: &impl Serialize,
        conclude: impl FnOnce(&Path) -> Result<ExitCode, Failure>,
    ) -> Result<ExitCode, Failure> {
        self.page.write(html.as_bytes()).map_err(Failure::failed)?;
        let code = conclude(&self.report);
        if let Some(file) = self.json {
            file.write_json(figures).map_err(Failure::failed)?;
        }
        code
    }
}

/// Where a program of the machine is.
fn program(name: &str) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| {
            Failure::failed(format!("there is no {name} in PATH; it comes with the package {name}"))
        })
}

fn progress(steps: u64) -> ProgressBar {
    let target =
        if draws_progress() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(steps), target);
    let style =
        ProgressStyle::with_template("{bar:30} {percent:>3}%  {msg}  {elapsed} (left {eta})");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    // That takes a thread.
    if !bar.is_hidden() {
        bar.enable_steady_tick(std::time::Duration::from_millis(250));
    }
    bar
}

/// What is being done, for who looks on.
fn say_progress(line: &str) {
    if io::stderr().is_terminal() {
        eprintln!("{line}");
    }
}

/// One line on standard output.
fn say(line: &str) -> Result<(), Failure> {
    written(writeln!(io::stdout(), "{line}"))
}
