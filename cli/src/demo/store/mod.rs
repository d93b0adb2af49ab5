//! The demo on an emulated object store that is mounted.
//!
//! Two tasks: read ranges of a large object one after another in random order, and search many small objects. Each is measured
//! without hints, with hints, and again when the data is in memory. The ways take turns, and the median of several rounds
//! counts. The kernel, its page cache, FUSE, the S3 client, `grep` and foretell are real; the store's latency and bandwidth are
//! modelled.

mod data;
mod measure;
mod report;
mod results;
mod served;

use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use foretell_testbed::store::{FirstByte, StoreOptions};

use super::cancel::Cancel;
use super::machine::{Machine, program, version};
use super::outputs::{Outputs, progress, say_progress};
use super::scratch::{self, Scratch};
use crate::failure::Failure;
use crate::size;
use crate::standard_output::say;
use data::{Data, NEEDLE, NOTES_COUNT, OBJECT_BYTES, RANGE_BYTES, RANGES};
use measure::{Bench, Hints, ranges_case, search_case};
use results::{Conditions, Results, Sample, Way};
use served::BUCKET;

/// Rounds per way: the default, and the most.
pub(super) const ROUNDS: usize = 5;
pub(super) const ROUNDS_MAX: u64 = 1000;

/// The largest latency. A round makes some three hundred requests, most of them one after another.
const FIRST_BYTE_MAX: Duration = Duration::from_secs(2);

/// The measurements of a round: index of the case, and hints. Each round starts with the next one.
const TURNS: [(usize, Hints); 5] =
    [(0, Hints::None), (0, Hints::Advice), (0, Hints::Ioctl), (1, Hints::None), (1, Hints::Run)];

/// Measures, prints the table and writes the report.
pub(super) fn demo(
    options: StoreOptions,
    rounds: usize,
    outputs: Outputs,
    cancel: &Cancel,
) -> Result<ExitCode, Failure> {
    let grep = program("grep")?;
    let scratch = Scratch::new()?;
    let [folder, mountpoint] = [BUCKET, scratch::STORE].map(|name| scratch.path().join(name));
    for folder in [&folder, &mountpoint] {
        std::fs::create_dir(folder)
            .map_err(|error| Failure::failed(format!("{}: {error}", folder.display())))?;
    }
    say_progress("Making an object store ...");
    let data = Data::make(&folder, || cancel.check()).map_err(Failure::failed)?;
    let conditions = conditions(&options, rounds, &data, &grep);
    let bench = Bench { data: &data, mountpoint: &mountpoint, options, grep: &grep, cancel };
    let results = measure(&bench, conditions).map_err(Failure::failed)?;
    outputs.write(&report::html(&results), &results, |report| conclude(&results, report))
}

/// The store's options: the defaults, with this latency.
pub(super) fn options(first_byte: Duration) -> Result<StoreOptions, Failure> {
    let options = StoreOptions {
        bucket: Some(BUCKET.into()),
        first_byte: FirstByte::fixed(first_byte),
        ..StoreOptions::default()
    };
    options.validate().map_err(Failure::usage)?;
    if first_byte > FIRST_BYTE_MAX {
        let (given, most) = (first_byte.as_secs_f64(), FIRST_BYTE_MAX.as_secs_f64());
        return Err(Failure::usage(format!(
            "--first-byte: with {given} s the demo would take an hour or more; give {most} s at most"
        )));
    }
    Ok(options)
}

fn conditions(options: &StoreOptions, rounds: usize, data: &Data, grep: &Path) -> Conditions {
    Conditions {
        machine: Machine::this(),
        first_byte_s: options.first_byte.usual.as_secs_f64(),
        per_response_bytes_per_s: options.per_response.unwrap_or(0),
        first_byte_late_s: 0.0,
        rounds,
        ranges: RANGES,
        range_bytes: RANGE_BYTES as u64,
        object_bytes: OBJECT_BYTES,
        notes: NOTES_COUNT,
        notes_bytes: data.notes_bytes,
        program: version(grep, "grep"),
        needle: NEEDLE.into(),
    }
}

fn measure(bench: &Bench<'_>, mut conditions: Conditions) -> Result<Results, String> {
    let range = size::display(conditions.range_bytes);
    let ranges = format!(
        "{} reads of {range} at random in an object of {}",
        conditions.ranges,
        size::display(conditions.object_bytes),
    );
    let notes_bytes = size::display(conditions.notes_bytes);
    let search = format!("grep over {} objects, {notes_bytes} in all", conditions.notes);
    let mut cases = vec![ranges_case(ranges), search_case(search)];
    let progress = progress((conditions.rounds * TURNS.len()) as u64);
    for round in 0..conditions.rounds {
        for turn in 0..TURNS.len() {
            let (case, hints) = TURNS[(round + turn) % TURNS.len()];
            progress.set_message(if case == 0 { "reads at random" } else { "grep" });
            let measured = if case == 0 { bench.ranges(hints) } else { bench.search(hints) };
            let (samples, late_s): (Vec<(usize, Sample)>, f64) = measured?;
            for (way, sample) in samples {
                cases[case].ways[way].add(sample);
            }
            conditions.first_byte_late_s = conditions.first_byte_late_s.max(late_s);
            progress.inc(1);
        }
    }
    progress.finish_and_clear();
    Ok(Results { conditions, cases })
}

fn header() -> String {
    format!(
        "{:<34} {:>9} {:>17} {:>6}  {:>8} {:>7}  {}",
        "", "seconds", "least, most", "saved", "requests", "at once", "bytes",
    )
}

/// A share in per cent; 100% only if it is complete.
fn percent(share: f64) -> String {
    let percent = 100.0 * share;
    let places = usize::from((99.0..100.0).contains(&percent));
    format!("{percent:.places$}%")
}

fn row(way: &Way, saved: Option<f64>) -> String {
    let median = &way.median;
    format!(
        "  {:<32} {:>9.3} {:>8.3} {:>8.3} {:>6}  {:>8} {:>7}  {}",
        way.name,
        median.elapsed_s,
        way.least_s,
        way.most_s,
        saved.map_or(String::new(), percent),
        median.requests,
        median.in_flight_max,
        if way.is_identical() { "identical" } else { "DIFFER" },
    )
}

fn conclude(results: &Results, report: &Path) -> Result<ExitCode, Failure> {
    say(&header())?;
    for case in &results.cases {
        say(&case.what)?;
        for (way, saved) in case.compared() {
            say(&row(way, saved))?;
        }
    }
    let Conditions { machine, first_byte_s, rounds, .. } = &results.conditions;
    let cores = if machine.cores == 1 { "core" } else { "cores" };
    say(&format!(
        "Medians of {rounds}, in turns, through foretell mount of an emulated store on this machine ({}, {} {cores},\n\
         Linux {}): {:.0} ms to the first byte (on average up to {:.1} ms late), {:.0} MB/s for each answer.\n\
         requests: what the store was asked meanwhile, and how much of it at once.\nReport: {}",
        machine.date,
        machine.cores,
        machine.kernel,
        first_byte_s * 1e3,
        results.conditions.first_byte_late_s * 1e3,
        results.conditions.per_response_bytes_per_s as f64 / 1e6,
        report.display(),
    ))?;
    if results.ways().all(|(_, way)| way.is_identical()) {
        Ok(ExitCode::SUCCESS)
    } else {
        Err(Failure::failed(
            "bytes read through the mount differ from the store's; please report this",
        ))
    }
}
