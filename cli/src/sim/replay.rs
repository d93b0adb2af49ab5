//! `foretell sim replay`: a recorded run again, on another machine.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use foretell_policy::queue::Order;
use foretell_policy::{Nanos, Rules};
use foretell_sim::SECTOR_BYTES;
use foretell_sim::device::DiskParameters;
use foretell_sim::machine::read_ahead::ReadAheadSpec;
use foretell_sim::machine::server::PREFETCHES_PER_DISK;
use foretell_sim::replay::{Disclosed, Placing, Recorded, ReplayResult, ReplaySpec, TooLong, Work};
use foretell_sim::trace::Format;
use foretell_testbed::LayoutKind;
use serde::Serialize;

use super::recorded::activity;
use super::sweep_plot::{self, Point};
use super::table::{self, Column, Kind};
use super::{
    Figures, as_json, check_outputs, larger_blocks, on_all_processors, output, progress,
    recorded_block_bytes, say, shown, unique, whole_sectors, write,
};
use crate::array::Switch;
use crate::failure::{Failure, note};
use crate::{array, size};

pub(super) const HELP: &str = "\
A recording says which bytes were read, in which order, and how much work lay between; the rest is \
a model: figures are predictions. Record a run with
  strace -f -ttt -T -y -o FILE PROGRAM ARGUMENTS...
or, where that slows it down, with -e trace=%desc,%file,%process before PROGRAM: what other calls \
took counts as work then. Have only what lies below --root on the modelled disks. Sizes and inode \
numbers come from the files, as far as they are still there. Of strace without -T, and of the other formats, times are \
not used: --think-us is the work before each read. Of several processes, each begins when another \
makes it, and waits for the others where it did when it was recorded.

Of MPI programs, Darshan's DXT tells as much: export it with `darshan-dxt-parser LOG`, or with \
scripts/dxt-text LOG of the repository, which keeps more digits of times, and use --format dxt.

Hints are each program's own; files and all are those of the programs that it starts, too:
  none       nothing is disclosed, nor what it told the kernel; there is the kernel's read-ahead
  recorded   what it asked the kernel for by posix_fadvise(WILLNEED) or readahead, when it did
             (strace tells)
  files      the names of all files it reads, before the first read, as `foretell run` discloses
             them
  all        exactly what it reads, before the first read
  N-ahead    each read N reads before it

Several values with commas between them make a row each, in every combination; --disks 1,2,4,8 and \
--sweep disks=1,2,4,8 are the same.

What is the same in all rows stands above the table. Columns:
  elapsed s  seconds from the first process's beginning to the last one's end
  saved      of several hints: how much of the time of the same policy on the same machine without
  work s     seconds of work, of all processes together
  waiting s  seconds of waiting for devices, likewise
  reads      blocks read; each of them is one of the next four
  hits       those that were in memory from an earlier read
  ahead      those that were fetched before they were read, and there in time
  late       those that were on their way. A call for several blocks asks for all of them at once, and
             so does the kernel where it reads ahead: of these, too, all, or all but the first, are late
  misses     those that were asked for by their read, one by one; few where the kernel reads ahead
  unread     blocks fetched ahead, by hints or read-ahead, that went unread, or were given up so: who comes
             back for one that is in memory still finds it there, and it is counted for both
  requests   to the disks, those for inodes among them
  bytes      read of them
  busiest    the busiest disk's share of the time; of devices that serve several requests at once
             the share of these that they did, or of what their link can carry
  bound s    this run cannot be shorter than a program's work, or than the busiest disk's service of
             what it was asked for. (In another order, or asked for less, it may need less.)

Read-ahead takes room, too: in a memory of few blocks it can do harm, as in a kernel; compare with \
--read-ahead none.

--json has an object of each run, of several runs an array of them: what was asked for, by the \
options' names, sizes as stripe_bytes, cache_bytes and block_bytes; and what came out. \
docs/internals/simulator.md has the keys.

Examples:
  foretell sim replay run.strace --root /data --disks 1,2,4,8 --hints none,all
  foretell sim replay run.strace --root /data --disk object-store --cache 64MiB,1GiB --json -";

#[derive(Args, Clone)]
pub(crate) struct ReplayArgs {
    /// The recording; - for standard input
    pub(super) trace: PathBuf,

    #[arg(long, default_value = "strace",
        help = format!("Its format: {}; each also compressed with gzip or zstd", Source::names()))]
    pub(super) format: Source,

    /// Of strace and dxt: the folder whose files are on the modelled disks; the rest takes the time it took
    /// [default: all files are, and their folders are known]
    #[arg(long, value_name = "FOLDER")]
    pub(super) root: Option<PathBuf>,

    /// Number of disks, 1 to 256 [default: 4]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = disks, allow_negative_numbers = true)]
    disks: Vec<u16>,

    #[arg(long, value_name = "NAME|FILE,...", value_delimiter = ',',
        help = format!("A built-in device ({}) or a parameter file; hp97560 is a drive of the early 1990s: of what is \
            in use today, choose ssd, nvme, network or object-store [default: hp97560]", array::disk_names()))]
    disk: Vec<String>,

    /// Bytes of a file on one disk before the next disk's turn
    #[arg(long, default_value = "64KiB", value_name = "SIZE", value_parser = stripe, allow_negative_numbers = true)]
    stripe: u64,

    /// Order in which waiting requests are handed to a disk: fifo, scan, c-look, sstf
    #[arg(long, default_value_t = Order::Scan)]
    order: Order,

    /// Requests that a disk holds at once and chooses among, no fewer than it serves at once [default: 5, or as many
    /// as that]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), allow_negative_numbers = true)]
    outstanding: Option<u16>,

    /// How files lie on the disks: sequential (as copied to a new file system) or aged (in short
    /// runs, as on an old one)
    #[arg(long, default_value_t = LayoutKind::Sequential)]
    layout: LayoutKind,

    /// Seed of the aged layout and of drawn latencies
    #[arg(long, default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    seed: u64,

    /// Whether the first open of each file costs a read of its inode
    #[arg(long, value_enum, default_value_t = Switch::On)]
    metadata: Switch,

    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = rules,
        help = format!("What decides: {}; lru fetches no blocks ahead, not even those that a kernel reads ahead \
            [default: foretell]", policy_names()))]
    policy: Vec<Rules>,

    /// What is disclosed: none, recorded, files, all, N-ahead [default: none,files; of blocks, vscsi and oracle-general, which
    /// have no files, none,all]
    #[arg(long, value_name = "HINTS,...", value_delimiter = ',')]
    hints: Vec<Disclosed>,

    /// Memory for blocks [default: 256MiB]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = size::parse, allow_negative_numbers = true)]
    cache: Vec<u64>,

    /// Bytes of a block, a multiple of 512, up to 64 MiB; Linux reads pages of 4KiB, which predict short reads out of
    /// sequence better
    #[arg(long, default_value = "8KiB", value_name = "SIZE", value_parser = recorded_block_bytes, allow_negative_numbers = true)]
    pub(super) block: u64,

    /// Read-ahead of what is not disclosed: Linux's 128 KiB, that of OSF/1, none
    #[arg(long, value_enum, default_value_t = ReadAheadChoice::Linux)]
    read_ahead: ReadAheadChoice,

    /// The processor's work, recorded and modelled, is so many times as long
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", value_parser = factor, allow_negative_numbers = true)]
    cpu_factor: f64,

    /// What the recorder itself took between two calls, microseconds; docs/internals/simulator.md says how to find it
    #[arg(long, default_value_t = 0.0, value_name = "MICROSECONDS", value_parser = micros, allow_negative_numbers = true)]
    overhead_us: f64,

    /// Work before each read where the recording does not tell it, microseconds
    #[arg(long, default_value_t = 0.0, value_name = "MICROSECONDS", value_parser = micros, allow_negative_numbers = true)]
    pub(super) think_us: f64,

    /// The same as one of the options above that take several values, in the place of it: disks=1,2,4,8 is --disks
    /// 1,2,4,8; may be given for each of them
    #[arg(long, value_name = "NAME=VALUE,...", value_parser = sweep)]
    sweep: Vec<Sweep>,

    /// Write the figures to FILE as JSON; to standard output, in place of the table, if it is -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a plot to FILE, as SVG: elapsed seconds over the disks, or over the caches if only those are several;
    /// to standard output, in place of the table, if it is -
    #[arg(long, value_name = "FILE")]
    plot: Option<PathBuf>,
}

/// A format that can be run again.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Strace,
    Dxt,
    Reads(Format),
}

impl Source {
    fn name(self) -> &'static str {
        match self {
            Source::Strace => "strace",
            Source::Dxt => "dxt",
            Source::Reads(format) => format.name(),
        }
    }

    fn names() -> String {
        format!("strace, dxt, {}", Format::names())
    }
}

impl std::str::FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "strace" => Ok(Source::Strace),
            "dxt" => Ok(Source::Dxt),
            _ => text.parse().map(Source::Reads).map_err(|_: String| {
                format!("unknown format {text:?}; known are {}", Source::names())
            }),
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
enum ReadAheadChoice {
    Linux,
    Osf1,
    None,
}

impl ReadAheadChoice {
    fn name(self) -> &'static str {
        match self {
            ReadAheadChoice::Linux => "linux",
            ReadAheadChoice::Osf1 => "osf1",
            ReadAheadChoice::None => "none",
        }
    }
}

/// What is gone through, and in which values.
#[derive(Clone)]
enum Sweep {
    Disks(Vec<u16>),
    Disk(Vec<String>),
    Policy(Vec<Rules>),
    Hints(Vec<Disclosed>),
    Cache(Vec<u64>),
}

fn sweep(text: &str) -> Result<Sweep, String> {
    fn all<T, E: ToString>(
        values: &str,
        one: impl Fn(&str) -> Result<T, E>,
    ) -> Result<Vec<T>, String> {
        values.split(',').map(|value| one(value).map_err(|error| error.to_string())).collect()
    }
    let known = "give disks=, disk=, policy=, hints= or cache= and values, as disks=1,2,4,8";
    match text.split_once('=') {
        None | Some((_, "")) => Err(known.into()),
        Some(("disks", values)) => all(values, disks).map(Sweep::Disks),
        Some(("disk", values)) => all(values, str::parse::<String>).map(Sweep::Disk),
        Some(("policy", values)) => all(values, rules).map(Sweep::Policy),
        Some(("hints", values)) => all(values, str::parse).map(Sweep::Hints),
        Some(("cache", values)) => all(values, size::parse).map(Sweep::Cache),
        Some(_) => Err(known.into()),
    }
}

/// Adds what is gone through to what the option `name` has brought, which is one or the other.
fn add<T>(name: &str, option: &mut Vec<T>, given: &[T], values: Vec<T>) -> Result<(), Failure> {
    if !given.is_empty() {
        let message =
            format!("--{name} cannot be used with --sweep {name}=; leave one of them out");
        return Err(Failure::usage(message));
    }
    option.extend(values);
    Ok(())
}

fn stripe(text: &str) -> Result<u64, String> {
    whole_sectors(text, "a stripe")
}

/// The names of all policies, separated by commas.
fn policy_names() -> String {
    Rules::ALL.map(|rules| rules.name).join(", ")
}

fn rules(name: &str) -> Result<Rules, String> {
    Rules::named(name).ok_or_else(|| {
        let known = policy_names();
        format!("unknown policy {name:?}; known are {known}")
    })
}

fn disks(text: &str) -> Result<u16, String> {
    if text.contains("..") || text.trim().trim_start_matches('-').contains('-') {
        return Err("not a range: give numbers with commas between, as 1,2,4".into());
    }
    let disks = text.trim().parse().ok().filter(|disks| (1..=256).contains(disks));
    disks.ok_or_else(|| "not a whole number from 1 to 256".into())
}

fn seed(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|_| format!("not a whole number from 0 to {}", u64::MAX))
}

fn factor(text: &str) -> Result<f64, String> {
    let factor: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    let good = factor.is_finite() && (0.0..=1e6).contains(&factor);
    good.then_some(factor).ok_or_else(|| "not from 0 to 1000000".into())
}

fn micros(text: &str) -> Result<f64, String> {
    let micros: f64 = text.parse().map_err(|_| "not a number of microseconds".to_owned())?;
    let good = micros.is_finite() && (0.0..=1e9).contains(&micros);
    good.then_some(micros).ok_or_else(|| "not from 0 to 1000000000".into())
}

impl ReplayArgs {
    /// With the values of --sweep in their places, and what is usual where none is given.
    fn completed(&self) -> Result<ReplayArgs, Failure> {
        let mut args = self.clone();
        for sweep in std::mem::take(&mut args.sweep) {
            match sweep {
                Sweep::Disks(values) => add("disks", &mut args.disks, &self.disks, values)?,
                Sweep::Disk(values) => add("disk", &mut args.disk, &self.disk, values)?,
                Sweep::Policy(values) => add("policy", &mut args.policy, &self.policy, values)?,
                Sweep::Hints(values) => add("hints", &mut args.hints, &self.hints, values)?,
                Sweep::Cache(values) => add("cache", &mut args.cache, &self.cache, values)?,
            }
        }
        fn or_else<T>(values: &mut Vec<T>, usual: T) {
            if values.is_empty() {
                values.push(usual);
            }
        }
        or_else(&mut args.disks, 4);
        or_else(&mut args.disk, "hp97560".to_owned());
        or_else(&mut args.policy, Rules::FORETELL);
        or_else(&mut args.cache, 256 << 20);
        Ok(args)
    }

    /// What is disclosed.
    pub(super) fn hints(&self) -> &[Disclosed] {
        match self.format {
            _ if !self.hints.is_empty() => &self.hints,
            Source::Reads(format) if !format.has_files() => &[Disclosed::None, Disclosed::All],
            _ => &[Disclosed::None, Disclosed::Files],
        }
    }
}

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
        note("note: lru does with hints what it does without".to_owned());
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

/// Whether all runs come to an end.
fn check_time(args: &ReplayArgs, runs: &[Run], recorded: &Recorded) -> Result<(), Failure> {
    // Their work is the same.
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
                Failure::failed(format!("{trace}: {too_long}: its clock must have leapt"))
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

/// Says once of each array that it is smaller than what was recorded.
fn note_small_disks(runs: &[Run], recorded: &Recorded) {
    let mut noted: Vec<(&str, usize)> = Vec::new();
    for run in runs {
        let array = (run.disk.as_str(), run.spec.disks);
        if let Some(bytes) = run.spec.too_small(recorded).filter(|_| !noted.contains(&array)) {
            let [files, bytes] = [recorded.size_bytes(), bytes].map(size::display);
            let (disk, disks) = array;
            note(format!(
                "note: the recording's files take {files}, and an array of {disks} x {disk} has {bytes}: some lie in the same \
                 places, and seeks are shorter than they would be"
            ));
            noted.push(array);
        }
    }
}

fn differ<T: PartialEq>(values: &[T]) -> bool {
    values.iter().any(|value| *value != values[0])
}

/// Refuses what can be given and makes no machine.
fn check(args: &ReplayArgs, name: &str, disk: &DiskParameters) -> Result<(), Failure> {
    let (stripe, capacity) = (args.stripe / SECTOR_BYTES, disk.capacity_sectors());
    if stripe > capacity {
        let [stripe, capacity] = [stripe, capacity].map(|n| size::display(n * SECTOR_BYTES));
        return Err(Failure::usage(format!(
            "--stripe: {stripe} are more than {name} has; give at most its {capacity}"
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
        // In bytes, where it would read as if it had room.
        let cache = match cache.is_multiple_of(1024) {
            true => size::display(cache),
            false => format!("{cache} B"),
        };
        Err(Failure::usage(format!(
            "--cache: {cache} have no room for a block of {block}; give more, or less for --block"
        )))
    })
}

/// One combination of what was asked for.
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

/// A run as it is written: what was asked for, and what came of it.
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

    /// Whether the two differ in nothing but hints.
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

/// How much of its policy's time without hints `row` saves, in per cent; nothing if that is not among `rows`.
fn saved(rows: &[Row], row: &Row) -> String {
    let none = Disclosed::None.to_string();
    let without = rows.iter().find(|other| other.hints == none && other.is_comparable_with(row));
    let without_s = without.map(|other| other.result.elapsed_s).filter(|&seconds| seconds > 0.0);
    without_s.map_or(String::new(), |without_s| {
        let percent = (100.0 * (1.0 - row.result.elapsed_s / without_s)).round();
        // Not -0.
        format!("{}%", percent as i64)
    })
}
