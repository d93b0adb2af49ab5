//! What a demo writes: its report, its figures, its progress, and lines on standard output.

use std::io::{self, IsTerminal};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use crate::failure::{Failure, draws_progress};
use crate::output_file::{self, OutputFile};

/// The files that a demo writes at its end, opened at its beginning so that a wrong path shows at once.
pub(super) struct Outputs {
    page: OutputFile,
    report: PathBuf,
    json: Option<OutputFile>,
}

impl Outputs {
    pub(super) fn open(report: &Path, json: Option<&Path>) -> Result<Self, Failure> {
        if report.as_os_str() == "-" {
            let line = "--report -: the page cannot go to standard output, where the table is; name a file";
            return Err(Failure::usage(line));
        }
        let page = Some(("--report", report));
        let written = page.into_iter().chain(json.map(|path| ("--json", path)));
        output_file::check_apart(&[], &written.collect::<Vec<_>>()).map_err(Failure::usage)?;
        let page = OutputFile::open_as("--report", report).map_err(|error| {
            Failure::failed(format!("{error}; name a file that can be written"))
        })?;
        let json = OutputFile::of_option("--json", json).map_err(Failure::failed)?;
        Ok(Outputs { page, report: report.to_owned(), json })
    }

    /// Writes the page, calls `conclude` with its path to print the result, then writes the figures.
    pub(super) fn write(
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

pub(super) fn progress(steps: u64) -> ProgressBar {
    let target =
        if draws_progress() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(steps), target);
    let style =
        ProgressStyle::with_template("{bar:30} {percent:>3}%  {msg}  {elapsed} (left {eta})");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    // The ticks take a thread.
    if !bar.is_hidden() {
        bar.enable_steady_tick(std::time::Duration::from_millis(250));
    }
    bar
}

/// Prints a line about progress, if standard error is a terminal.
pub(super) fn say_progress(line: &str) {
    if io::stderr().is_terminal() {
        eprintln!("{line}");
    }
}
