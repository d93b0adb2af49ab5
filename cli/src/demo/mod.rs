//! `foretell demo`: what foretell does, shown on an emulated disk array.
//!
//! Four sets of small text files, five sizes of array; each set is searched with the machine's own
//! `grep` for a string that is not there, cold without foretell, cold with it, and warm. The kernel,
//! its page cache, `grep` and foretell are real; the disks' service times are modelled, in real time
//! shortened by a scale.

mod cancel;
mod measure;
mod report;
mod results;
mod sets;

use std::io::{self, IsTerminal, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use clap::Args;
use foretell_policy::queue::Order;
use foretell_sim::device::DiskParameters;
use foretell_testbed::{ArrayOptions, LayoutKind};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};

use crate::failure::Failure;
use crate::output_file::OutputFile;
use cancel::Cancel;
use measure::{Bench, NEEDLE};
use results::{Conditions, Results, Run};
use sets::FileSet;

/// The disk of all arrays.
const DISK: &str = "hp97560";

/// Numbers of disks, as in the papers' figures.
const DISKS: [usize; 5] = [1, 2, 4, 8, 15];

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
    let grep = find_grep()?;
    let options = ArrayOptions {
        disk: DiskParameters::by_name(DISK).map_err(Failure::failed)?,
        layout: args.layout,
        time_scale: args.time_scale,
        ..ArrayOptions::default()
    };
    options.validate().map_err(Failure::usage)?;
    let page = OutputFile::open(&args.report).map_err(Failure::failed)?;
    let json = args.json.as_deref().map(OutputFile::open).transpose().map_err(Failure::failed)?;
    let scratch = tempfile::Builder::new()
        .prefix("foretell-demo-")
        .tempdir()
        .map_err(|error| Failure::failed(format!("no temporary folder: {error}")))?;
    let (backing, mountpoint) = (scratch.path().join("files"), scratch.path().join("array"));
    for folder in [&backing, &mountpoint] {
        std::fs::create_dir(folder)
            .map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
    }
    say("Gathering text files of this machine ...")?;
    let sets = sets::gather(&backing).map_err(Failure::failed)?;
    let conditions = conditions(&options, &grep);
    let bench = Bench {
        backing: &backing,
        mountpoint: &mountpoint,
        grep: &grep,
        scratch: scratch.path(),
        cancel: &cancel,
    };
    let runs = measure_all(&bench, &sets, &options).map_err(Failure::failed)?;
    let results = Results { conditions, runs };
    page.write(report::html(&results).as_bytes()).map_err(Failure::failed)?;
    if let Some(file) = json {
        file.write_json(&results).map_err(Failure::failed)?;
    }
    conclude(&results, &args.report)
}

fn find_grep() -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join("grep"))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| Failure::failed("there is no grep in PATH; it comes with the package grep"))
}

fn conditions(options: &ArrayOptions, grep: &Path) -> Conditions {
    let version = Command::new(grep).arg("--version").output().ok();
    let version = version.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let program = version.and_then(|text| text.lines().next().map(str::to_owned));
    Conditions {
        date: today(),
        cores: std::thread::available_parallelism().map_or(1, usize::from),
        kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        disk: DISK.into(),
        stripe_bytes: options.stripe_bytes,
        layout: options.layout.to_string(),
        time_scale: options.time_scale,
        program: program.unwrap_or_else(|| "grep".into()),
        needle: NEEDLE.into(),
    }
}

/// Today's date (UTC) as YYYY-MM-DD.
fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let days = now.unwrap_or_default().as_secs() / 86_400;
    // Howard Hinnant's civil_from_days, for days since 1970.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

/// The arrays to measure: each number of disks with SCAN, and one disk with FIFO.
fn arrays(options: &ArrayOptions) -> Vec<ArrayOptions> {
    let with = |disks, order| ArrayOptions { disks, order, ..options.clone() };
    let mut arrays = vec![with(1, Order::Fifo)];
    arrays.extend(DISKS.map(|disks| with(disks, Order::Scan)));
    arrays
}

fn measure_all(
    bench: &Bench<'_>,
    sets: &[FileSet],
    options: &ArrayOptions,
) -> Result<Vec<Run>, String> {
    let arrays = arrays(options);
    let progress = progress(arrays.len() * sets.len());
    progress.suspend(|| say(&header())).map_err(|failure| failure.line)?;
    let mut runs = Vec::new();
    for array in &arrays {
        for set in sets {
            let disks = if array.disks == 1 { "disk" } else { "disks" };
            progress.set_message(format!("{} on {} {disks}", set.name, array.disks));
            bench.cancel.check()?;
            let run = bench.measure(set, array)?;
            progress.suspend(|| say(&row(&run))).map_err(|failure| failure.line)?;
            progress.inc(1);
            runs.push(run);
        }
    }
    progress.finish_and_clear();
    Ok(runs)
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

fn header() -> String {
    format!(
        "{:<11} {:>5} {:>6} {:>5} {:>5}  {:>9} {:>9} {:>6}  {:>8} {:>7}  {}",
        "set",
        "files",
        "blocks",
        "disks",
        "order",
        "plain s",
        "hinted s",
        "saved",
        "bound s",
        "x bound",
        "output",
    )
}

fn row(run: &Run) -> String {
    format!(
        "{:<11} {:>5} {:>6} {:>5} {:>5}  {:>9.2} {:>9.2} {:>5.0}%  {:>8.2} {:>7.2}  {}",
        run.set,
        run.files,
        run.blocks,
        run.disks,
        run.order,
        run.plain_s,
        run.hinted_s,
        100.0 * run.saved_share(),
        run.lower_bound_s,
        run.of_lower_bound(),
        if run.identical { "identical" } else { "DIFFERS" },
    )
}

fn conclude(results: &Results, report: &Path) -> Result<ExitCode, Failure> {
    let scale = results.conditions.time_scale;
    say(&format!(
        "Seconds of the array's clock: one takes {scale} s here. plain: without foretell; hinted: with it; \
         bound:\nthe longer of the warm run and the busiest disk. fifo, scan: how each disk sorts what \
         waits for it.\nReport: {}",
        report.display(),
    ))?;
    if results.runs.iter().all(|run| run.identical) {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure::failed("output with foretell differs from output without; please report this"))
    }
}

/// One line on standard output. Without a reader there is no point in going on.
fn say(line: &str) -> Result<(), Failure> {
    writeln!(io::stdout(), "{line}")
        .map_err(|error| Failure::failed(format!("standard output: {error}")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_of_this_era() {
        let today = today();
        assert_eq!(today.len(), 10);
        assert!(today.as_str() > "2024-01-01" && today.as_str() < "2200-01-01", "{today}");
    }
}
