//! One measurement: a set searched cold without foretell, cold with it, and warm, each time by the
//! machine's own `grep` over a freshly mounted array.
//!
//! Cold means a new mount, of which the kernel has cached nothing. Warm is the same search again on the mount of the plain run,
//! which is then cached. All times are taken on the array's clock.

use std::path::{Path, PathBuf};
use std::process::Command;

use foretell_testbed::{Array, ArrayOptions, DiskReport, Report};

use super::results::{Run, Timeline};
use super::sets::FileSet;
use crate::demo::cancel::{Cancel, Outcome};

/// The string that is searched for. It is in no file except this program's own.
pub(super) const NEEDLE: &str = "zq-foretell-demo-needle-qz";

/// Warm runs, of which the median counts.
const WARM_RUNS: usize = 3;

/// The paths of a measurement, and the switch that cancels it.
pub(super) struct Bench<'a> {
    pub(super) backing: &'a Path,
    pub(super) mountpoint: &'a Path,
    pub(super) grep: &'a Path,
    pub(super) scratch: &'a Path,
    /// Ends the measurement when the user cancels.
    pub(super) cancel: &'a Cancel,
}

/// The figures of `foretell run --json` that the demo shows.
#[derive(serde::Deserialize)]
struct HintedFigures {
    blocks: HintedBlocks,
}

#[derive(serde::Deserialize)]
struct HintedBlocks {
    useful: u64,
    late: u64,
    wasted: u64,
}

impl Bench<'_> {
    /// Measures `set` on the array that `options` describe.
    pub(super) fn measure(&self, set: &FileSet, options: &ArrayOptions) -> Result<Run, String> {
        let files: Vec<PathBuf> = set.files.iter().map(|file| self.mountpoint.join(file)).collect();
        let array = self.mount(options)?;
        let (plain_s, plain) = self.time(&array, self.search(&files))?;
        let plain_report = array.report();
        let mut warm_s = Vec::new();
        for _ in 0..WARM_RUNS {
            warm_s.push(self.time(&array, self.search(&files))?.0);
        }
        warm_s.sort_by(f64::total_cmp);
        self.unmount(array)?;

        let array = self.mount(options)?;
        let figures = self.scratch.join("run.json");
        let (hinted_s, hinted) = self.time(&array, self.hinted_search(&files, &figures)?)?;
        let hinted_report = self.unmount(array)?;
        let blocks = read_figures(&figures)?.blocks;

        let warm_s = warm_s[WARM_RUNS / 2];
        Ok(Run {
            set: set.name.into(),
            files: set.files.len(),
            blocks: set.blocks,
            disks: options.disks,
            order: options.order.to_string(),
            plain_s,
            plain_busy_s: plain_report.disks.iter().map(|disk| disk.busy_s).sum(),
            hinted_s,
            warm_s,
            busiest_disk_s: hinted_report.busiest_disk_s,
            lower_bound_s: warm_s.max(hinted_report.busiest_disk_s),
            identical: plain == hinted,
            useful: blocks.useful,
            late: blocks.late,
            wasted: blocks.wasted,
            plain_timeline: timeline(&plain_report),
            hinted_timeline: timeline(&hinted_report),
        })
    }

    fn mount(&self, options: &ArrayOptions) -> Result<Array, String> {
        Array::mount(self.backing, self.mountpoint, options).map_err(|error| error.to_string())
    }

    fn unmount(&self, array: Array) -> Result<Report, String> {
        array.unmount().map_err(|error| error.to_string())
    }

    fn search(&self, files: &[PathBuf]) -> Command {
        let mut command = Command::new(self.grep);
        command.args(["-n", "-F", NEEDLE]).args(files);
        command
    }

    fn hinted_search(&self, files: &[PathBuf], figures: &Path) -> Result<Command, String> {
        let foretell = std::env::current_exe().map_err(|error| error.to_string())?;
        let mut command = Command::new(foretell);
        command.args(["run", "--no-learn", "--quiet", "--json"]).arg(figures).arg("--");
        let search = self.search(files);
        command.arg(search.get_program()).args(search.get_args());
        Ok(command)
    }

    /// Resets the array's statistics, runs `command`, and returns its elapsed time on the array's clock and its outcome.
    fn time(&self, array: &Array, command: Command) -> Result<(f64, Outcome), String> {
        array.reset_statistics();
        let began = array.now();
        let outcome =
            self.cancel.run(command).map_err(|error| format!("cannot run grep: {error}"))?;
        let elapsed = array.now().saturating_sub(began);
        self.cancel.check()?;
        Ok((elapsed.as_secs(), outcome))
    }
}

fn read_figures(path: &Path) -> Result<HintedFigures, String> {
    let unreadable = |error: &dyn std::fmt::Display| format!("{}: {error}", path.display());
    let text = std::fs::read(path).map_err(|error| unreadable(&error))?;
    serde_json::from_slice(&text).map_err(|error| unreadable(&error))
}

fn timeline(report: &Report) -> Timeline {
    // Three digits are more than a plot can show.
    let round = |share: &f64| (share * 1000.0).round() / 1000.0;
    let of_disk = |disk: &DiskReport| disk.busy_share.iter().map(round).collect();
    let busy_share = report.disks.iter().map(of_disk).collect();
    Timeline { bin_s: report.bin_s, busy_share }
}
