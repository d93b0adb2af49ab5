//! `foretell probe`: the figures of `foretell_manager::probe` as a table or as JSON.

use std::fmt::Write as _;
use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use foretell_manager::probe::{self, Observed, Probed};
use indicatif::{ProgressBar, ProgressDrawTarget};

use crate::failure::{Failure, draws_progress, without_controls, without_numbers, written};
use crate::output_file::{self, OutputFile};
use crate::size;

pub(crate) const HELP: &str = "\
Measures with the file, or with a large file of the folder, for a few seconds at most. It reads some MiB \
that are not in memory, and writes nothing.

Examples:
  foretell probe /data/events.root
  foretell probe --evict ./model.bin
  foretell probe --json - /scratch | jq .backend";

#[derive(Args)]
pub(crate) struct ProbeArgs {
    /// Write the figures to FILE as JSON (- for standard output, in place of the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Drop the file's data from memory first; other programs that use it read it again
    #[arg(long)]
    evict: bool,

    /// A file, or a folder with files
    #[arg(value_name = "PATH")]
    path: PathBuf,
}

pub(crate) fn probe(args: &ProbeArgs) -> Result<ExitCode, Failure> {
    let written_to: Vec<_> = args.json.as_deref().map(|to| ("--json", to)).into_iter().collect();
    output_file::check_apart(&[("the path", &args.path)], &written_to).map_err(Failure::usage)?;
    let json = OutputFile::of_option("--json", args.json.as_deref()).map_err(Failure::failed)?;
    let progress = progress();
    let probed = probe::probe(&args.path, args.evict, |doing| progress.set_message(doing));
    progress.finish_and_clear();
    let probed = probed.map_err(Failure::failed)?;
    if let Some(file) = json {
        file.write_json(&probed).map_err(Failure::failed)?;
    }
    if args.json.as_deref() == Some(Path::new("-")) {
        return Ok(ExitCode::SUCCESS);
    }
    written(io::stdout().write_all(table(&probed).as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

/// A line on a terminal that says what is being done.
fn progress() -> ProgressBar {
    if !draws_progress() {
        return ProgressBar::hidden();
    }
    let progress = ProgressBar::with_draw_target(None, ProgressDrawTarget::stderr());
    progress.enable_steady_tick(Duration::from_millis(100));
    progress
}

/// The figures for people.
fn table(probed: &Probed) -> String {
    let mut lines = String::new();
    let measured = probed.file.as_ref().unwrap_or(&probed.path).display().to_string();
    let size =
        probed.file_bytes.map_or(String::new(), |bytes| format!(", {}", size::display(bytes)));
    let _ = writeln!(lines, "{}{size}", without_controls(&measured));
    let mut row = |name: &str, value: String| {
        let _ = writeln!(lines, "  {name:<16} {}", without_controls(&value));
    };
    if let Some(system) = &probed.file_system {
        let place = system.mount_point.display();
        row("file system", format!("{} ({} at {place})", system.kind, system.source));
    }
    row("back end", format!("{}: {}", probed.backend, probed.why));
    if let Some(reads) = &probed.reads {
        let (count, min, max) = (reads.count, time(reads.min_us), time(reads.max_us));
        let median = time(reads.median_us);
        // Whether it was cold, only who sees what is in memory can tell.
        let is_cold = probed.in_memory_share.is_some();
        let name = if is_cold { "cold 4 KiB read" } else { "4 KiB read" };
        row(name, format!("{median} (median of {count}: {min} to {max})"));
    }
    if let Some(bytes) = probed.read_ahead_bytes {
        row("read-ahead", size::display(bytes));
    }
    if let Some(observed) = probed.observed {
        let text = match observed {
            Observed::Reads => "seen by reads that do not wait",
            Observed::Mincore => "seen by mincore",
            Observed::Nothing => "not seen: data is read in place of advice",
        };
        row("arrival", text.into());
    }
    if let Some(share) = probed.in_memory_share {
        row("in memory", format!("{} before", percent(share)));
    }
    if let Some(keeps) = probed.keeps_pages {
        row("at an open", format!("pages {}", if keeps { "stay" } else { "leave memory" }));
    }
    if let Some(leaves) = probed.leaves_access_time {
        let text = if leaves { "left alone" } else { "may change when foretell reads" };
        row("access time", text.into());
    }
    if !probed.advice.is_empty() {
        lines += &advice(probed);
    }
    for text in &probed.notes {
        let _ = writeln!(lines, "  note: {}", without_controls(&without_numbers(text)));
    }
    lines
}

/// What each back end has brought.
fn advice(probed: &Probed) -> String {
    let mut lines = format!(
        "  {:<16} {:>8}  {:>10}  {:>7}  {:>10}\n",
        "advice", "asked", "call took", "arrived", "after"
    );
    for tried in &probed.advice {
        let share = |bytes: u64| percent(bytes as f64 / tried.asked_bytes.max(1) as f64);
        let _ = writeln!(
            lines,
            "  {:<16} {:>8}  {:>10}  {:>7}  {:>10}{}",
            tried.backend.name(),
            size::display(tried.asked_bytes),
            time(tried.call_us),
            tried.arrived_bytes.map_or("unseen".into(), share),
            tried.arrived_after_us.map_or("-".into(), time),
            if tried.waits_in_call { "  waits" } else { "" },
        );
    }
    lines
}

fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A time with three figures.
fn time(micros: f64) -> String {
    match micros {
        ..10.0 => format!("{micros:.1} µs"),
        ..1_000.0 => format!("{micros:.0} µs"),
        ..10_000.0 => format!("{:.2} ms", micros / 1e3),
        ..100_000.0 => format!("{:.1} ms", micros / 1e3),
        ..1_000_000.0 => format!("{:.0} ms", micros / 1e3),
        _ => format!("{:.2} s", micros / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_three_figures_at_most() {
        let shown = [1.234, 45.6, 999.0, 1_234.0, 45_600.0, 456_000.0, 3_210_000.0].map(time);
        assert_eq!(shown, ["1.2 µs", "46 µs", "999 µs", "1.23 ms", "45.6 ms", "456 ms", "3.21 s"]);
    }
}
