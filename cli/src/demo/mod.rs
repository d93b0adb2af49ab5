//! `foretell demo`: what foretell does, shown on this machine on something slow that is emulated.
//!
//! Each demo has a folder: `array`, disks; what they share is here, and in `page`, how a report looks.

mod array;
mod cancel;
mod machine;
mod page;

use std::io::{self, IsTerminal, Write};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use foretell_testbed::LayoutKind;
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::Failure;
use crate::output_file::OutputFile;
use cancel::Cancel;

#[derive(Args)]
pub(crate) struct DemoArgs {
    /// Real seconds in one second of the array's clock: smaller is quicker, and less exact
    #[arg(long, default_value_t = 0.125, value_name = "FACTOR", allow_negative_numbers = true)]
    time_scale: f64,

    /// How files lie on the disks: aged (in short runs, as on an old file system) or sequential
    #[arg(long, default_value_t = LayoutKind::Aged)]
    layout: LayoutKind,

    /// Write every figure to FILE as JSON (- for standard output, behind the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Where to write the report
    #[arg(long, default_value = "report.html", value_name = "FILE")]
    report: PathBuf,
}

pub(crate) fn demo(args: &DemoArgs) -> Result<ExitCode, Failure> {
    let cancel = Cancel::listen();
    let options = array::options(args.layout, args.time_scale)?;
    array::demo(&options, Outputs::open(args)?, &cancel)
}

/// The files that are written at the end, seen to be writable at the beginning.
struct Outputs {
    page: OutputFile,
    report: PathBuf,
    json: Option<OutputFile>,
}

impl Outputs {
    fn open(args: &DemoArgs) -> Result<Self, Failure> {
        let page = OutputFile::open(&args.report).map_err(Failure::failed)?;
        let json =
            args.json.as_deref().map(OutputFile::open).transpose().map_err(Failure::failed)?;
        Ok(Outputs { page, report: args.report.clone(), json })
    }

    /// Returns where the report is.
    fn write(self, html: &str, figures: &impl Serialize) -> Result<PathBuf, Failure> {
        self.page.write(html.as_bytes()).map_err(Failure::failed)?;
        if let Some(file) = self.json {
            file.write_json(figures).map_err(Failure::failed)?;
        }
        Ok(self.report)
    }
}

/// A folder that goes with the demo.
fn scratch() -> Result<tempfile::TempDir, Failure> {
    tempfile::Builder::new()
        .prefix("foretell-demo-")
        .tempdir()
        .map_err(|error| Failure::failed(format!("no temporary folder: {error}")))
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

fn progress(steps: usize) -> ProgressBar {
    let target = if io::stderr().is_terminal() {
        ProgressDrawTarget::stderr()
    } else {
        ProgressDrawTarget::hidden()
    };
    let bar = ProgressBar::with_draw_target(Some(steps as u64), target);
    let style = ProgressStyle::with_template("{bar:30} {pos}/{len}  {msg}  {elapsed} (left {eta})");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar.enable_steady_tick(std::time::Duration::from_millis(250));
    bar
}

/// One line on standard output. Without a reader there is no point in going on.
fn say(line: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{line}")
        .map_err(|error| Failure::failed(format!("standard output: {error}")))
}
