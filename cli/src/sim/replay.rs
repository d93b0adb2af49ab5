//! `foretell sim replay`: replays a recorded run on modelled machines.

use std::path::Path;
use std::process::ExitCode;

use foretell_policy::{Nanos, Rules};
use foretell_sim::SECTOR_BYTES;
use foretell_sim::device::DiskParameters;
use foretell_sim::machine::read_ahead::ReadAheadSpec;
use foretell_sim::machine::server::PREFETCHES_PER_DISK;
use foretell_sim::replay::{Disclosed, Placing, Recorded, ReplayResult, ReplaySpec, TooLong, Work};
use foretell_testbed::LayoutKind;
use serde::Serialize;

use super::figures::{Figures, as_json, check_outputs, output, write};
use super::recorded::activity;
use super::recording::{larger_blocks, shown};
use super::replay_args::{ReadAheadChoice, ReplayArgs, Source};
use super::runs::{on_all_processors, progress, unique};
use super::sweep_plot::{self, Point};
use super::table::{self, Column, Kind};
use crate::array::Switch;
use crate::failure::{Failure, note};
use crate::standard_output::say;
use crate::{array, size};

pub(super) fn replay(args: &ReplayArgs) -> Result<ExitCode, Failure> {
    let args = &args.completed()?;
    let mut read = vec![("the recording", args.trace.as_path())];
    read.extend(args.disk.iter().map(|disk| ("a --disk", Path::new(disk))));
    check_outputs(&read, &[("--json", args.json.as_deref()), ("--plot", args.plot.as_deref())])?;
    if args.plot.is_some() && !differ(&args.disks) && !differ(&args.cache) {
        return Err(Failure::usage(sweep_plot::NOTHING_TO_PLOT));
    }
    let json = Figures::open(args.json.as_deref())?;
    let plot_to_stdout = args.plot.as_deref() == Some(Path::new("-"));
    let plot = output("--plot", args.plot.as_deref().filter(|_| !plot_to_stdout))?;
    if matches!(args.format, Source::Reads(format) if !format.has_files())
        && args.hints.contains(&Disclosed::Files)
    {
        return Err(Failure::usage(format!(
            "--hints files: a recording of format {} has no files; give all, or N-ahead",
            args.format.name()
        )));
    }
    let mut runs = runs(args)?;
    if args.plot.is_some() {
        let points: Vec<Point> = runs.iter().map(|run| run.point(0.0)).collect();
        sweep_plot::check(&points).map_err(Failure::usage)?;
    }
    let progress = progress();
    progress.set_message(format!("reading {}", shown(&args.trace)));
    let (activity, lacking) = activity(args)?;
    let is_sweep = runs.len() > 1;
    if !activity.has_disclosures() {
        runs.retain(|run| run.spec.disclosed != Disclosed::Recorded);
    }
    let recorded = Recorded::new(&activity);
    check_time(args, &runs, &recorded)?;
    progress.set_length(runs.len() as u64);
    progress.reset();
    progress.set_message(format!("{} runs", runs.len()));
    let results = on_all_processors(&runs, |run| {
        let result = run.spec.run(&recorded);
        progress.inc(1);
        result
    });
    progress.finish_and_clear();
    lacking.iter().for_each(|lacks| note(format!("note: {lacks}")));
    if runs
        .iter()
        .any(|Run { spec, .. }| spec.rules == Rules::LRU && spec.disclosed != Disclosed::None)
    {
        note("note: hints change nothing for lru".to_owned());
    }
    note_small_disks(&runs, &recorded);
    let results: Vec<Row> =
        runs.iter().zip(results).map(|(run, result)| Row::new(args, run, result)).collect();
    let svg = || {
        let results = runs.iter().zip(&results);
        let points = results.map(|(run, row)| run.point(row.result.elapsed_s)).collect::<Vec<_>>();
        let (title, layout) = (shown(&args.trace), args.layout.to_string());
        sweep_plot::svg(&points, &title, &layout)
    };
    let plotted = plot.map_or(Ok(()), |file| write(file, &svg()));
    let to_show = || match plot_to_stdout {
        true => say(svg().trim_end()),
        false => table(&results).iter().try_for_each(|line| say(line)),
    };
    json.deliver(plotted, || as_json(&results, is_sweep), to_show)
}

/// Refuses runs that would not end in reasonable time.
fn check_time(args: &ReplayArgs, runs: &[Run], recorded: &Recorded) -> Result<(), Failure> {
    // Runs on the same disk have the same work: one check each.
    let mut checked: Vec<&str> = Vec::new();
    for Run { spec, disk, .. } in runs {
        if checked.contains(&disk.as_str()) {
            continue;
        }
        checked.push(disk);
        spec.check(recorded).map_err(|too_long| match too_long {
            TooLong::Work(_) if args.cpu_factor > 1.0 || args.think_us > 0.0 => {
                Failure::usage(format!("{too_long}: lower --cpu-factor or --think-us"))
            }
            TooLong::Work(_) => {
                let trace = shown(&args.trace);
                Failure::failed(format!(
                    "{trace}: {too_long}: its clock must have jumped; record again"
                ))
            }
            TooLong::Requests(_) => Failure::usage(format!("--disk {disk}: {too_long}")),
            TooLong::Blocks { enough_bytes, .. } => {
                let factor = enough_bytes.map(|bytes| bytes / args.block);
                let way_out = match args.format {
                    Source::Reads(format) if format.has_own_blocks() => {
                        "take a part of it".to_owned()
                    }
                    _ => larger_blocks(args.block, factor),
                };
                Failure::failed(format!("{}: {too_long}; {way_out}", shown(&args.trace)))
            }
        })?;
    }
    Ok(())
}

/// Notes, once per array, that it is smaller than the recorded files.
fn note_small_disks(runs: &[Run], recorded: &Recorded) {
    let mut noted: Vec<(&str, usize)> = Vec::new();
    for run in runs {
        let array = (run.disk.as_str(), run.spec.disks);
        if let Some(bytes) = run.spec.too_small(recorded).filter(|_| !noted.contains(&array)) {
            let [files, bytes] = [recorded.size_bytes(), bytes].map(size::display);
            let (disk, disks) = array;
            note(format!(
                "note: the recording's files take {files}, and an array of {disks} x {disk} has {bytes}: some files share \
                 places, and seeks are shorter than on larger disks"
            ));
            noted.push(array);
        }
    }
}

fn differ<T: PartialEq>(values: &[T]) -> bool {
    values.iter().any(|value| *value != values[0])
}

/// Refuses options that fit no machine together.
fn check(args: &ReplayArgs, name: &str, disk: &DiskParameters) -> Result<(), Failure> {
    let (stripe, capacity) = (args.stripe / SECTOR_BYTES, disk.capacity_sectors());
    if stripe > capacity {
        let [stripe, capacity] = [stripe, capacity].map(|n| size::display(n * SECTOR_BYTES));
        return Err(Failure::usage(format!(
            "--stripe: {stripe} is larger than a {name}; give at most its capacity of {capacity}"
        )));
    }
    let slots = disk.slots();
    if args.outstanding.is_some_and(|given| usize::from(given) < slots) {
        return Err(Failure::usage(format!(
            "--outstanding: {name} serves {slots} requests at once; give no fewer, or leave it out"
        )));
    }
    let small = args.cache.iter().find(|&&cache| cache < args.block);
    small.map_or(Ok(()), |&cache| {
        let block = size::display(args.block);
        // In bytes if rounding would hide that the cache is too small.
        let cache = match cache.is_multiple_of(1024) {
            true => size::display(cache),
            false => format!("{cache} B"),
        };
        Err(Failure::usage(format!(
            "--cache: {cache} is too small for a block of {block}; give more, or a smaller --block"
        )))
    })
}

/// One run: a combination of option values.
struct Run {
    disk: String,
    spec: ReplaySpec,
}

impl Run {
    fn point(&self, elapsed_s: f64) -> Point {
        let spec = &self.spec;
        Point {
            disks: spec.disks,
            cache_bytes: spec.cache_bytes,
            names: [
                spec.rules.name.to_owned(),
                format!("hints {}", spec.disclosed),
                self.disk.clone(),
            ],
            elapsed_s,
        }
    }
}

fn runs(args: &ReplayArgs) -> Result<Vec<Run>, Failure> {
    let nanos = |micros: f64| Nanos((micros * 1000.0) as u64);
    let work = Work {
        factor: args.cpu_factor,
        overhead: nanos(args.overhead_us),
        think: nanos(args.think_us),
        ..Work::default()
    };
    let mut runs = Vec::new();
    for disk in unique(&args.disk) {
        let parameters: DiskParameters = array::disk(disk)?;
        check(args, disk, &parameters)?;
        let outstanding = args.outstanding.map(usize::from);
        let outstanding =
            outstanding.unwrap_or_else(|| PREFETCHES_PER_DISK.max(parameters.slots()));
        for &disks in unique(&args.disks) {
            for &cache_bytes in unique(&args.cache) {
                for &rules in unique(&args.policy) {
                    for &disclosed in unique(args.hints()) {
                        let spec = ReplaySpec {
                            rules,
                            disclosed,
                            cache_bytes,
                            block_bytes: args.block,
                            disk: parameters.clone(),
                            disks: usize::from(disks),
                            stripe_bytes: args.stripe,
                            order: args.order,
                            outstanding,
                            placing: match args.layout {
                                LayoutKind::Sequential => Placing::Sequential,
                                LayoutKind::Aged => Placing::Aged,
                            },
                            seed: args.seed,
                            inodes: args.metadata == Switch::On,
                            read_ahead: match args.read_ahead {
                                ReadAheadChoice::Linux => Some(ReadAheadSpec::linux(args.block)),
                                ReadAheadChoice::Osf1 => Some(ReadAheadSpec::OSF1),
                                ReadAheadChoice::None => None,
                            },
                            work,
                        };
                        runs.push(Run { disk: disk.clone(), spec });
                    }
                }
            }
        }
    }
    Ok(runs)
}

/// A run as `--json` writes it: its options, then its results.
#[derive(Serialize)]
struct Row {
    trace: String,
    format: &'static str,
    root: Option<String>,
    policy: &'static str,
    hints: String,
    disk: String,
    disks: usize,
    stripe_bytes: u64,
    order: String,
    outstanding: usize,
    layout: String,
    seed: u64,
    cache_bytes: u64,
    block_bytes: u64,
    metadata: bool,
    read_ahead: &'static str,
    cpu_factor: f64,
    overhead_us: f64,
    think_us: f64,
    #[serde(flatten)]
    result: ReplayResult,
}

impl Row {
    fn new(args: &ReplayArgs, run: &Run, result: ReplayResult) -> Self {
        let spec = &run.spec;
        Row {
            trace: args.trace.to_string_lossy().into_owned(),
            format: args.format.name(),
            root: args.root.as_ref().map(|root| root.to_string_lossy().into_owned()),
            policy: spec.rules.name,
            hints: spec.disclosed.to_string(),
            disk: run.disk.clone(),
            disks: spec.disks,
            stripe_bytes: spec.stripe_bytes,
            order: spec.order.to_string(),
            outstanding: spec.outstanding,
            layout: args.layout.to_string(),
            seed: spec.seed,
            cache_bytes: spec.cache_bytes,
            block_bytes: spec.block_bytes,
            metadata: spec.inodes,
            read_ahead: args.read_ahead.name(),
            cpu_factor: args.cpu_factor,
            overhead_us: args.overhead_us,
            think_us: args.think_us,
            result,
        }
    }

    /// Whether the two differ only in hints.
    fn is_comparable_with(&self, other: &Row) -> bool {
        let of = |row: &Row| (row.policy, row.disk.clone(), row.disks, row.cache_bytes);
        of(self) == of(other)
    }
}

fn table(rows: &[Row]) -> Vec<String> {
    let column = |name, kind, cell: &dyn Fn(&Row) -> String| Column {
        name,
        kind,
        cells: rows.iter().map(cell).collect(),
    };
    let seconds = |name, of: fn(&ReplayResult) -> f64| {
        column(name, Kind::Figure, &|row| format!("{:.3}", of(&row.result)))
    };
    let count = |name, of: fn(&ReplayResult) -> u64| {
        column(name, Kind::Figure, &|row| of(&row.result).to_string())
    };
    let is_several = rows.iter().any(|row| row.hints != rows[0].hints);
    let saved = is_several.then(|| column("saved", Kind::Kept, &|row| saved(rows, row)));
    let mut columns = vec![
        column("policy", Kind::Word, &|row| row.policy.to_owned()),
        column("hints", Kind::Word, &|row| row.hints.clone()),
        column("disk", Kind::Word, &|row| row.disk.clone()),
        column("disks", Kind::Size, &|row| row.disks.to_string()),
        column("cache", Kind::Size, &|row| size::display(row.cache_bytes)),
        column("elapsed s", Kind::Kept, &|row| format!("{:.3}", row.result.elapsed_s)),
    ];
    columns.extend(saved);
    columns.extend([
        seconds("work s", |result| result.cpu_s),
        seconds("waiting s", |result| result.stall_s),
        count("reads", |result| result.reads),
        count("hits", |result| result.hits),
        count("ahead", |result| result.ahead),
        count("late", |result| result.late),
        count("misses", |result| result.misses),
        count("unread", |result| result.wasted),
        count("requests", |result| result.requests),
        column("bytes", Kind::Figure, &|row| size::display(row.result.bytes)),
        column("busiest", Kind::Figure, &|row| format!("{:.0}%", 100.0 * row.result.busiest_share)),
        seconds("bound s", |result| result.bound_cpu_s.max(result.bound_disk_s)),
    ]);
    table::lines(&columns)
}

/// The time that `row` saves against the same run without hints, in per cent; empty if that run is not among `rows`.
fn saved(rows: &[Row], row: &Row) -> String {
    let none = Disclosed::None.to_string();
    let without = rows.iter().find(|other| other.hints == none && other.is_comparable_with(row));
    let without_s = without.map(|other| other.result.elapsed_s).filter(|&seconds| seconds > 0.0);
    without_s.map_or(String::new(), |without_s| {
        let percent = (100.0 * (1.0 - row.result.elapsed_s / without_s)).round();
        // As an integer, -0 is shown as 0.
        format!("{}%", percent as i64)
    })
}
