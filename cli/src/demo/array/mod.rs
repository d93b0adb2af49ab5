//! The demo on an emulated disk array.
//!
//! Four sets of small text files, on arrays of five sizes. Each set is searched with the machine's own `grep` for a string that
//! is not there: cold without foretell, cold with it, and warm. The kernel, its page cache, `grep` and foretell are real. The
//! disks' service times are modelled, and scaled down.

mod measure;
mod report;
mod results;
mod sets;

use std::ops::RangeInclusive;
use std::path::Path;
use std::process::ExitCode;

use foretell_policy::queue::Order;
use foretell_sim::device::DiskParameters;
use foretell_testbed::{ArrayOptions, LayoutKind};

use super::cancel::Cancel;
use super::machine::{Machine, program, version};
use super::outputs::{Outputs, progress, say_progress};
use super::scratch::{self, Scratch};
use crate::failure::Failure;
use crate::standard_output::say;
use measure::{Bench, NEEDLE};
use results::{Conditions, Results, Run};
use sets::FileSet;

/// The disk of all arrays.
const DISK: &str = "hp97560";

/// Numbers of disks, as in the papers' figures.
const DISKS: [usize; 5] = [1, 2, 4, 8, 15];

/// Allowed time scales, in real seconds per second of the array's clock. No machine keeps up with a faster clock, and with a
/// slower one the demo takes more than an hour.
const TIME_SCALES: RangeInclusive<f64> = 0.001..=10.0;

/// Measures, prints the table and writes the report.
pub(super) fn demo(
    options: &ArrayOptions,
    outputs: Outputs,
    cancel: &Cancel,
) -> Result<ExitCode, Failure> {
    let grep = program("grep")?;
    crate::library::find().map_err(Failure::failed)?; // The searches with hints need the library.
    let scratch = Scratch::new()?;
    let [backing, mountpoint] = ["files", scratch::ARRAY].map(|name| scratch.path().join(name));
    for folder in [&backing, &mountpoint] {
        std::fs::create_dir(folder)
            .map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
    }
    say_progress("Gathering text files of this machine ...");
    let sets = sets::gather(&backing).map_err(Failure::failed)?;
    let conditions = conditions(options, &grep);
    let bench = Bench {
        backing: &backing,
        mountpoint: &mountpoint,
        grep: &grep,
        scratch: scratch.path(),
        cancel,
    };
    let runs = measure_all(&bench, &sets, options)?;
    let results = Results { conditions, runs };
    outputs.write(&report::html(&results), &results, |report| conclude(&results, report))
}

/// The options of all arrays.
pub(super) fn options(layout: LayoutKind, time_scale: f64) -> Result<ArrayOptions, Failure> {
    if !TIME_SCALES.contains(&time_scale) {
        let (least, most) = (TIME_SCALES.start(), TIME_SCALES.end());
        return Err(Failure::usage(format!(
            "--time-scale {time_scale}: give a factor from {least} to {most}"
        )));
    }
    let options = ArrayOptions {
        disk: DiskParameters::by_name(DISK).map_err(Failure::failed)?,
        layout,
        time_scale,
        ..ArrayOptions::default()
    };
    options.validate().map_err(Failure::usage)?;
    Ok(options)
}

fn conditions(options: &ArrayOptions, grep: &Path) -> Conditions {
    Conditions {
        machine: Machine::this(),
        disk: DISK.into(),
        stripe_bytes: options.stripe_bytes,
        layout: options.layout.to_string(),
        time_scale: options.time_scale,
        program: version(grep, "grep"),
        needle: NEEDLE.into(),
    }
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
) -> Result<Vec<Run>, Failure> {
    let arrays = arrays(options);
    // A search takes time in proportion to its blocks.
    let blocks: u64 = sets.iter().map(|set| set.blocks).sum();
    let progress = progress(arrays.len() as u64 * blocks);
    progress.suspend(|| say(&header()))?;
    let mut runs = Vec::new();
    for array in &arrays {
        for set in sets {
            let disks = if array.disks == 1 { "disk" } else { "disks" };
            progress.set_message(format!("{} on {} {disks}", set.name, array.disks));
            bench.cancel.check().map_err(Failure::failed)?;
            let run = bench.measure(set, array).map_err(Failure::failed)?;
            progress.suspend(|| say(&row(&run)))?;
            progress.inc(set.blocks);
            runs.push(run);
        }
    }
    progress.finish_and_clear();
    Ok(runs)
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
        match (run.identical, run.is_delayed()) {
            (false, _) => "DIFFERS",
            (true, true) => "identical, delayed",
            (true, false) => "identical",
        },
    )
}

fn conclude(results: &Results, report: &Path) -> Result<ExitCode, Failure> {
    let scale = results.conditions.time_scale;
    say(&format!(
        "Seconds of the array's clock: one takes {scale} s here. plain: without foretell; hinted: with it; \
         bound:\nthe longer of the warm run and the busiest disk. fifo, scan: how each disk sorts what \
         waits for it.",
    ))?;
    let delayed = results.runs.iter().filter(|run| run.is_delayed()).count();
    if delayed > 0 {
        say(&format!(
            "delayed: {delayed} of {} rows. Over 15% of plain s is neither the disks' nor grep's: this machine had \
             other\nwork to do, or --time-scale {scale} is too quick for it. saved is too high there.",
            results.runs.len(),
        ))?;
    }
    say(&format!("Report: {}", report.display()))?;
    if results.runs.iter().all(|run| run.identical) {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure::failed("output with foretell differs from output without; please report this"))
    }
}
