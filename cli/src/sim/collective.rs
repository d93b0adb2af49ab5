//! `foretell sim collective`: processors that read striped files together, in simulated time.

use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use foretell_policy::Nanos;
use foretell_policy::queue::Order;
use foretell_sim::SECTOR_BYTES;
use foretell_sim::collective::crossover::Answers;
use foretell_sim::collective::recommend::recommended_depth;
use foretell_sim::collective::{
    CollectiveReport, CollectiveSpec, Method, Network, Pattern, Placement, SpecError,
};
use serde::Serialize;

use super::figures::{Figures, as_json, check_outputs};
use super::recording::block_bytes;
use super::runs::{on_all_processors, progress, unique};
use crate::failure::Failure;
use crate::standard_output::say;
use crate::{array, input_file, size};

pub(super) const HELP: &str = "\
Examples:
  foretell sim collective --procs 8 --disks 8 --pattern block-1d --sweep depth=1..64
  foretell sim collective --procs 16 --disks 4 --pattern block-1d,global --crossover
  foretell sim collective --procs 64 --disks 16 --disk object-store --method prefetch --depth 32

All processors read their parts of a file, compute on it, and wait for each other before the next \
file. How deep must each processor prefetch, and is a collective call better? All figures are \
simulated. Files are striped over the disks block by block.

Methods:
  demand              a block at a time, when it is needed
  prefetch            each processor's next blocks, as many as --depth says
  disk-directed       a collective call: each disk sorts all requests, and sends blocks to owners
  two-phase           a collective call: each processor reads a contiguous part, then all exchange
  two-phase-extended  as two-phase, in parts of one block per disk; a free processor takes the next

Patterns: interleaved (every P-th block), block-1d (contiguous parts), block-3d (boxes of a cube), \
global (any processor, equal shares), or a file that lists the owner of each block in order, as \
numbers from 0 separated by white space.

Options with several values, separated by commas, give one row per combination. --sweep gives \
--depth several values: depth=1,2,4, or depth=1..64, which doubles from the first to the last, or \
depth=all, which doubles up to a processor's whole portion.

Above the rows of a machine stand its parameters and the recommended depth: the least depth found \
with nearly the best throughput (recommended_depth in --json). For files of more than 131,072 blocks \
it is computed with the models of docs/internals/collective.md. One more file is read before the \
first and one after the last; time is counted between them.

--crossover adds the throughput of a collective call, also overlapped; the least depth at which \
prefetching reaches the call; whether it falls behind again at a greater depth, of a few that are \
tried; and the least depth with 95 % of the throughput of prefetching a whole portion. This takes \
some twenty-five more runs per machine.

For a cloud volume, which has a bandwidth limit and serves many requests at once, use --disk network, \
or a copy of its parameter file with that limit. ssd and nvme are local devices.

Columns:
  overlap  whether the next file is fetched while this one is computed on
  depth    blocks ahead at each processor; depths above a processor's portion share one row
  MiB/s    bytes of the files per second of reading and computing
  all s    elapsed seconds
  read s   elapsed seconds from barriers until the last processor had all its data
  resp ms  response time of a request on average, in the queue and at the disk
  disk ms  service time of a request on average, at the disk alone
  order    share of requests that began where the one before had ended
  busy     the busiest disk's share of the time
  memory   memory for data, of all processors together";

#[derive(Args)]
pub(crate) struct CollectiveArgs {
    /// Number of processors, 1 to 65,536
    #[arg(long, default_value = "8", value_name = "P,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=65_536), allow_negative_numbers = true)]
    procs: Vec<u32>,

    /// Number of disks, 1 to 4,096
    #[arg(long, default_value = "8", value_name = "D,...", value_delimiter = ',', value_parser = clap::value_parser!(u32).range(1..=4096), allow_negative_numbers = true)]
    disks: Vec<u32>,

    #[arg(long, default_value = "hp97560", value_name = "NAME|FILE,...", value_delimiter = ',',
        help = format!("A built-in device ({}) or a parameter file; the machine of the 1999 paper is \
            --disk hp97560-stored --apart", array::disk_names()))]
    disk: Vec<String>,

    /// Size of each file, rounded up to whole blocks
    #[arg(long, default_value = "32MiB", value_name = "SIZE,...", value_delimiter = ',', value_parser = file_bytes, allow_negative_numbers = true)]
    file_size: Vec<u64>,

    /// Number of files to read, 1 to 1,000,000
    #[arg(long, default_value_t = 4, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=1_000_000), allow_negative_numbers = true)]
    files: u32,

    /// Block size, a multiple of 512 bytes
    #[arg(long, default_value = "8KiB", value_name = "SIZE", value_parser = block_bytes, allow_negative_numbers = true)]
    block: u64,

    /// Which processor reads which blocks: interleaved, block-1d, block-3d, global, or a file
    #[arg(
        long,
        default_value = "interleaved",
        value_name = "NAME|FILE,...",
        value_delimiter = ','
    )]
    pattern: Vec<String>,

    /// How a file lies on each disk: sequential, random, increasing (random places in the file's order), aged
    #[arg(long, default_value = "sequential", value_name = "NAME,...", value_delimiter = ',')]
    layout: Vec<Placement>,

    /// With --layout sequential: place each file at random instead of after the one before
    #[arg(long)]
    apart: bool,

    /// How files are read: demand, prefetch, disk-directed, two-phase, two-phase-extended
    #[arg(
        long,
        default_value = "prefetch,disk-directed",
        value_name = "NAME,...",
        value_delimiter = ','
    )]
    method: Vec<Method>,

    /// Whether a file is read while the one before is computed on [default: on for prefetch, off for others]
    #[arg(long, value_enum)]
    overlap: Option<array::Switch>,

    /// Method prefetch: blocks ahead at each processor; 0 is demand fetching [default: the recommended depth]
    #[arg(
        long,
        value_name = "N,...",
        value_delimiter = ',',
        conflicts_with = "sweep",
        allow_negative_numbers = true
    )]
    depth: Vec<u64>,

    /// Method prefetch: several depths, in blocks at each processor, as depth=1..64
    #[arg(long, value_name = "depth=...", value_parser = sweep)]
    sweep: Option<Sweep>,

    /// Search for the least depth at which prefetching is as fast as a collective call
    #[arg(long)]
    crossover: bool,

    /// Order in which a disk serves waiting requests: fifo, scan, c-look, sstf
    #[arg(long, default_value_t = Order::Sstf)]
    order: Order,

    /// Computing time per file, as a multiple of the time of its disk-directed read, 0 to 1000
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", conflicts_with = "compute_ms", value_parser = |text: &str| up_to(text, 1e3), allow_negative_numbers = true)]
    compute: f64,

    /// Computing time per file for an equal share of its blocks, in milliseconds, at most an hour (3600000); a processor with
    /// more blocks computes proportionally longer
    #[arg(long, value_name = "MILLISECONDS", value_parser = |text: &str| up_to(text, 3.6e6), allow_negative_numbers = true)]
    compute_ms: Option<f64>,

    /// Start-up time of a network message, in nanoseconds, at most a second
    #[arg(long, default_value_t = 25, value_name = "NANOSECONDS", value_parser = clap::value_parser!(u64).range(..=1_000_000_000), allow_negative_numbers = true)]
    net_startup_ns: u64,

    /// Network bandwidth into each processor, in bytes per second, at least 1KiB
    #[arg(long, default_value = "400MiB", value_name = "SIZE", value_parser = bandwidth, allow_negative_numbers = true)]
    net_bandwidth: u64,

    /// Seed of random owners, places and latencies
    #[arg(long, default_value_t = 1, allow_negative_numbers = true)]
    seed: u64,

    /// Write the figures to FILE as JSON (- for standard output, in place of the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// The depths of `--sweep`.
#[derive(Clone, Debug, PartialEq)]
enum Sweep {
    Given(Vec<u64>),
    /// Depths from the first to the last, each twice the one before. If the last is `None`, it is a processor's whole share.
    Doubled(u64, Option<u64>),
}

impl Sweep {
    /// The depths in blocks, each at most `share`.
    fn depths(&self, share: u64) -> Vec<u64> {
        match self {
            Sweep::Given(depths) => capped(depths, share),
            Sweep::Doubled(first, last) => {
                let first = (*first).min(share);
                let last = last.unwrap_or(share).min(share);
                let doubled =
                    std::iter::successors(Some(first.max(1)), |depth| depth.checked_mul(2));
                let mut depths = if first == 0 && last > 0 { vec![0] } else { Vec::new() };
                depths.extend(doubled.take_while(|&depth| depth < last));
                depths.push(last);
                depths
            }
        }
    }
}

/// Depths above `share` as `share`, and each depth once.
fn capped(depths: &[u64], share: u64) -> Vec<u64> {
    let mut capped: Vec<u64> = Vec::new();
    for depth in depths.iter().map(|&depth| depth.min(share)) {
        if !capped.contains(&depth) {
            capped.push(depth);
        }
    }
    capped
}

fn sweep(text: &str) -> Result<Sweep, String> {
    let error = || "not depth=N,N,... or depth=FIRST..LAST or depth=all".to_owned();
    let depths = text.strip_prefix("depth=").ok_or_else(error)?;
    let number = |text: &str| text.parse::<u64>().map_err(|_| error());
    if depths == "all" {
        return Ok(Sweep::Doubled(1, None));
    }
    if let Some((first, last)) = depths.split_once("..") {
        let (first, last) = (number(first)?, number(last)?);
        return if first <= last { Ok(Sweep::Doubled(first, Some(last))) } else { Err(error()) };
    }
    depths.split(',').map(number).collect::<Result<_, _>>().map(Sweep::Given)
}

fn up_to(text: &str, most: f64) -> Result<f64, String> {
    let number: f64 = text.parse().map_err(|_| "not a number".to_owned())?;
    (0.0..=most).contains(&number).then_some(number).ok_or_else(|| format!("not from 0 to {most}"))
}

fn file_bytes(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        0 => Err("a file has at least 1 byte".into()),
        bytes => Ok(bytes),
    }
}

fn bandwidth(text: &str) -> Result<u64, String> {
    let bytes_per_s = size::parse(text)?;
    (bytes_per_s >= 1024).then_some(bytes_per_s).ok_or_else(|| "less than 1KiB a second".into())
}

/// A pattern by name, or the owners in a file.
fn pattern(text: &str) -> Result<Pattern, Failure> {
    let unknown = match text.parse() {
        Ok(pattern) => return Ok(pattern),
        Err(unknown) => unknown,
    };
    if !Path::new(text).exists() {
        let message =
            format!("--pattern: {unknown}, or a file of owners, but no file has this name");
        return Err(Failure::usage(message));
    }
    let failed = |error: &dyn std::fmt::Display| {
        let wanted =
            "it must list the owner of each block, numbers from 0 with white space between";
        Failure::failed(format!("--pattern {text}: {error}; {wanted}"))
    };
    let content = input_file::read_text(text, OWNERS_MAX_BYTES).map_err(|error| failed(&error))?;
    let owner = |word: &str| {
        word.parse::<u32>().map_err(|_| failed(&format!("{word:?} is no processor's number")))
    };
    let owners = content.split_whitespace().map(owner).collect::<Result<Vec<u32>, _>>()?;
    Ok(Pattern::Owners(Arc::new(owners)))
}

/// The largest file of owners, in bytes: some 20 million blocks.
const OWNERS_MAX_BYTES: u64 = 64 << 20;

/// One run: a combination of option values.
struct Run {
    disk: String,
    pattern: String,
    spec: CollectiveSpec,
    recommended: u64,
    answers: Option<Answers>,
}

/// What `--crossover` adds to a machine's figures.
#[derive(Serialize)]
struct Crossover {
    collective_mib_s: f64,
    overlapped_mib_s: f64,
    depth: Option<u64>,
    less_again_depth: Option<u64>,
    ahead_bytes: Option<u64>,
    near_best_depth: u64,
    near_best_ahead_bytes: u64,
}

impl Crossover {
    fn new(spec: &CollectiveSpec, answers: &Answers) -> Self {
        let ahead_bytes = |depth| spec.ahead_blocks(depth) * spec.block_bytes();
        Crossover {
            collective_mib_s: answers.collective_mb_s,
            overlapped_mib_s: answers.overlapped_mb_s,
            depth: answers.crossover,
            less_again_depth: answers.less_again_at,
            ahead_bytes: answers.crossover.map(ahead_bytes),
            near_best_depth: answers.near_best,
            near_best_ahead_bytes: ahead_bytes(answers.near_best),
        }
    }

    fn lines(&self) -> String {
        let equals = match (self.depth, self.ahead_bytes) {
            (Some(depth), Some(bytes)) => {
                let less = self.less_again_depth;
                let less = less.map_or(String::new(), |less| format!(", but not at {less}"));
                format!("from depth {depth} on ({} in all){less}", size::display(bytes))
            }
            _ => "at no depth".into(),
        };
        format!(
            "a collective call: {:.2} MiB/s; overlapped, with twice the memory: {:.2}\n\
             prefetching reaches the call {equals}, and 95 % of its own best from depth {} on ({})",
            self.collective_mib_s,
            self.overlapped_mib_s,
            self.near_best_depth,
            size::display(self.near_best_ahead_bytes),
        )
    }
}

/// A run as `--json` writes it.
#[derive(Serialize)]
struct Row {
    procs: usize,
    disks: usize,
    disk: String,
    file_bytes: u64,
    files: u32,
    block_bytes: u64,
    pattern: String,
    layout: Placement,
    apart: bool,
    order: &'static str,
    seed: u64,
    net_startup_ns: u64,
    net_bandwidth: f64,
    method: Method,
    overlapped: bool,
    depth: Option<u64>,
    recommended_depth: u64,
    largest_portion_blocks: u64,
    #[serde(skip_serializing_if = "Option::is_none")]
    crossover: Option<Crossover>,
    throughput_mib_s: f64,
    elapsed_s: f64,
    reading_s: f64,
    compute_ms: f64,
    response_ms: f64,
    service_ms: f64,
    sequential_share: f64,
    busiest_share: f64,
    memory_bytes: u64,
}

impl Row {
    fn new(run: &Run, report: &CollectiveReport) -> Self {
        let spec = &run.spec;
        Row {
            procs: spec.processors,
            disks: spec.disks,
            disk: run.disk.clone(),
            file_bytes: spec.file_blocks * spec.block_bytes(),
            files: spec.files,
            block_bytes: spec.block_bytes(),
            pattern: run.pattern.clone(),
            layout: spec.placement,
            apart: spec.apart,
            order: spec.order.name(),
            seed: spec.seed,
            net_startup_ns: spec.network.startup.0,
            net_bandwidth: spec.network.bytes_per_s,
            method: spec.method,
            overlapped: spec.overlapped,
            depth: (spec.method == Method::Prefetch).then_some(spec.depth),
            recommended_depth: run.recommended,
            largest_portion_blocks: spec.largest_portion_blocks(),
            crossover: run.answers.as_ref().map(|answers| Crossover::new(spec, answers)),
            throughput_mib_s: report.throughput_mb_s(),
            elapsed_s: report.elapsed.as_secs(),
            reading_s: report.reading.as_secs(),
            compute_ms: spec.compute.as_millis(),
            response_ms: report.response_ms(),
            service_ms: report.service_ms(),
            sequential_share: report.sequential as f64 / report.requests.max(1) as f64,
            busiest_share: report.busiest.as_secs() / report.elapsed.as_secs(),
            memory_bytes: spec.memory_blocks() * spec.block_bytes(),
        }
    }

    /// The lines above a machine's rows: what these have in common.
    fn machine(&self) -> String {
        let plural =
            |count: usize, one: &str| format!("{count} {one}{}", if count == 1 { "" } else { "s" });
        let all = self.recommended_depth == self.largest_portion_blocks;
        let all = if all { " (all of a portion)" } else { "" };
        let crossover = self.crossover.as_ref();
        let crossover = crossover.map_or(String::new(), |found| format!("\n{}", found.lines()));
        format!(
            "{}, {} ({}), files of {}, {}, {}\n{:.1} ms of computing an equal share of a file; recommended depth {}{all}{crossover}",
            plural(self.procs, "processor"),
            plural(self.disks, "disk"),
            self.disk,
            size::display(self.file_bytes),
            self.pattern,
            self.layout,
            self.compute_ms,
            self.recommended_depth,
        )
    }

    fn line(&self) -> String {
        let depth = self.depth.map_or("-".into(), |depth| depth.to_string());
        let overlap = if self.overlapped { "on" } else { "off" };
        format!(
            "{:<18} {overlap:>7} {depth:>6} {:>8.2} {:>8.3} {:>8.3} {:>8.2} {:>7.2} {:>4.0}% {:>4.0}% {:>9}",
            self.method,
            self.throughput_mib_s,
            self.elapsed_s,
            self.reading_s,
            self.response_ms,
            self.service_ms,
            100.0 * self.sequential_share,
            100.0 * self.busiest_share,
            size::display(self.memory_bytes),
        )
    }
}

fn header() -> String {
    format!(
        "{:<18} {:>7} {:>6} {:>8} {:>8} {:>8} {:>8} {:>7} {:>5} {:>5} {:>9}",
        "method",
        "overlap",
        "depth",
        "MiB/s",
        "all s",
        "read s",
        "resp ms",
        "disk ms",
        "order",
        "busy",
        "memory",
    )
}

pub(super) fn collective(args: &CollectiveArgs) -> Result<ExitCode, Failure> {
    let read = args.disk.iter().map(|disk| ("a --disk", Path::new(disk)));
    let read = read.chain(args.pattern.iter().map(|file| ("a --pattern", Path::new(file))));
    check_outputs(&read.collect::<Vec<_>>(), &[("--json", args.json.as_deref())])?;
    let json = Figures::open(args.json.as_deref())?;
    check_options(args)?;
    let machines = machines(args)?;
    let progress = progress();
    progress.set_message("how long computing is");
    let runs = on_all_processors(&machines, |machine| runs_on(args, machine));
    let runs = runs.into_iter().collect::<Result<Vec<_>, _>>().map_err(Failure::usage)?;
    let runs: Vec<Run> = runs.into_iter().flatten().collect();
    progress.set_length(runs.len() as u64);
    progress.set_message(format!("{} runs", runs.len()));
    let rows = on_all_processors(&runs, |run| {
        let row = Row::new(run, &run.spec.run());
        progress.inc(1);
        row
    });
    progress.finish_and_clear();
    json.deliver(Ok(()), || as_json(&rows, rows.len() > 1), || show(&rows))
}

/// Prints the table: each machine's lines, then its rows.
fn show(rows: &[Row]) -> Result<(), Failure> {
    let mut machine = String::new();
    for row in rows {
        let of = row.machine();
        if of != machine {
            let gap = if machine.is_empty() { "" } else { "\n" };
            say(&format!("{gap}{of}\n{}", header()))?;
            machine = of;
        }
        say(&row.line())?;
    }
    Ok(())
}

/// Refuses options that would change nothing.
fn check_options(args: &CollectiveArgs) -> Result<(), Failure> {
    let prefetches = args.method.contains(&Method::Prefetch);
    let unused = if !prefetches && !args.depth.is_empty() {
        Some("--depth needs --method prefetch")
    } else if !prefetches && args.sweep.is_some() {
        Some("--sweep needs --method prefetch")
    } else if args.overlap.is_some_and(|switch| switch == array::Switch::On)
        && args.method.iter().all(|&method| method == Method::Demand)
    {
        Some(
            "--overlap on has no use with --method demand, which reads nothing ahead; leave it out",
        )
    } else if args.apart && !args.layout.contains(&Placement::Sequential) {
        Some("--apart needs --layout sequential")
    } else {
        None
    };
    unused.map_or(Ok(()), |why| Err(Failure::usage(why)))
}

/// Every machine with its files. [`runs_on`] sets the method, the depth and the computing time.
fn machines(args: &CollectiveArgs) -> Result<Vec<Run>, Failure> {
    let network =
        Network { startup: Nanos(args.net_startup_ns), bytes_per_s: args.net_bandwidth as f64 };
    let mut machines = Vec::new();
    for name in unique(&args.disk) {
        let disk = array::disk(name)?;
        for pattern_name in unique(&args.pattern) {
            let pattern = pattern(pattern_name)?;
            for (&placement, &file_bytes) in unique(&args.layout)
                .flat_map(|layout| unique(&args.file_size).map(move |b| (layout, b)))
            {
                for (&processors, &disks) in
                    unique(&args.procs).flat_map(|p| unique(&args.disks).map(move |d| (p, d)))
                {
                    let spec = CollectiveSpec {
                        processors: processors as usize,
                        disks: disks as usize,
                        disk: disk.clone(),
                        order: args.order,
                        network,
                        file_blocks: file_bytes.div_ceil(args.block),
                        block_sectors: args.block / SECTOR_BYTES,
                        files: args.files,
                        steady: true,
                        pattern: pattern.clone(),
                        placement,
                        apart: args.apart,
                        turn: 0.0,
                        method: Method::DiskDirected,
                        overlapped: false,
                        depth: 0,
                        compute: Nanos::from_millis(args.compute_ms.unwrap_or(0.0)),
                        seed: args.seed,
                    };
                    spec.check().map_err(|error| match error {
                        SpecError::Owners { .. } => {
                            Failure::usage(format!("--pattern {pattern_name}: {error}"))
                        }
                        _ => Failure::usage(error),
                    })?;
                    let (disk, pattern) = (name.clone(), pattern_name.clone());
                    machines.push(Run { disk, pattern, spec, recommended: 0, answers: None });
                }
            }
        }
    }
    Ok(machines)
}

/// The requested runs on one machine.
fn runs_on(args: &CollectiveArgs, machine: &Run) -> Result<Vec<Run>, SpecError> {
    let mut spec = machine.spec.clone();
    if args.compute_ms.is_none() {
        let reading = spec.run().reading.as_millis() / f64::from(spec.files);
        spec.compute = Nanos::from_millis(args.compute * reading);
        spec.check()?;
    }
    let recommended = recommended_depth(&spec);
    let answers = args.crossover.then(|| spec.answers());
    let mut runs = Vec::new();
    for &method in unique(&args.method) {
        let is_prefetch = method == Method::Prefetch;
        let overlapped = args.overlap.map_or(is_prefetch, |switch| switch == array::Switch::On)
            && method != Method::Demand;
        let depths = match (&args.sweep, args.depth.as_slice()) {
            _ if !is_prefetch => vec![0],
            (Some(sweep), _) => sweep.depths(spec.largest_portion_blocks()),
            (None, []) => vec![recommended],
            (None, depths) => capped(depths, spec.largest_portion_blocks()),
        };
        runs.extend(depths.into_iter().map(|depth| Run {
            disk: machine.disk.clone(),
            pattern: machine.pattern.clone(),
            spec: CollectiveSpec { method, overlapped, depth, ..spec.clone() },
            recommended,
            answers,
        }));
    }
    Ok(runs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sweeps_are_read() {
        assert_eq!(sweep("depth=1,5,3").map(|sweep| sweep.depths(9)), Ok(vec![1, 5, 3]));
        assert_eq!(sweep("depth=7,1,8").map(|sweep| sweep.depths(4)), Ok(vec![4, 1]));
        assert_eq!(sweep("depth=7..80").map(|sweep| sweep.depths(4)), Ok(vec![4]));
        assert_eq!(sweep("depth=2..9").map(|sweep| sweep.depths(99)), Ok(vec![2, 4, 8, 9]));
        assert_eq!(sweep("depth=0..4").map(|sweep| sweep.depths(9)), Ok(vec![0, 1, 2, 4]));
        assert_eq!(sweep("depth=0..0").map(|sweep| sweep.depths(9)), Ok(vec![0]));
        assert_eq!(sweep("depth=all").map(|sweep| sweep.depths(5)), Ok(vec![1, 2, 4, 5]));
        for wrong in ["1,2", "depth=", "depth=9..2", "depth=x", "disks=1"] {
            assert!(sweep(wrong).is_err(), "{wrong}");
        }
    }
}
