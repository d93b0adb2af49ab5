//! `foretell sim cache`: a cache over recorded reads, counted without a clock.

use std::num::{IntErrorKind, ParseIntError};
use std::path::PathBuf;
use std::process::ExitCode;

use clap::Args;
use foretell_policy::Rules;
use foretell_sim::cache::{CacheOptions, CachePolicy, CacheResult, Hints, run};
use foretell_sim::trace::{Format, Reads, Trace, TraceError};
use serde::Serialize;

use super::figures::{Figures, as_json, check_outputs};
use super::recording::{
    BLOCK_BYTES_MAX, larger_blocks, not_a_recording, recorded_at, recorded_block_bytes, shown,
};
use super::runs::{progress, unique};
use crate::failure::{Failure, note};
use crate::size;
use crate::standard_output::say;

const HELP: &str = "\
Examples:
  foretell sim cache --trace t.gz --format blocks --capacity 100,1000 --policy lru,belady \\
      --hints none
  foretell sim cache --trace t.gz --format vscsi --capacity 1000 --policy tip2 --hints all \\
      --depth 0 --json - | jq .misses

Each capacity is run with each policy, from an empty cache. Fetching takes no time: with hints and \
without --depth 0, a prefetching policy misses little or nothing, and its cost is in the column \
prefetches. In a cache of one block, the block being read leaves no room for a prefetch. Only tip1 \
prefetches there, because it replaces by recency alone: it may fetch a block several times before \
the block is read. belady is the off-line optimum of demand fetching. Hints change nothing for \
belady and lru.

Formats, all of them also compressed with gzip or zstd:
{FORMATS}

Columns: reads counts block reads, each a hit or a miss; prefetches counts fetches ahead of a read; \
seconds is the time that the run took here. --json has one object with them, or an array of several \
runs.";

/// The text below the options.
pub(super) fn help() -> String {
    let format = |format: &Format| {
        let (name, about) = (format.name(), format.about().replace('\n', "\n             "));
        let gap = if name.len() < 10 {
            " ".repeat(11 - name.len())
        } else {
            format!("\n{}", " ".repeat(13))
        };
        format!("  {name}{gap}{about}\n")
    };
    HELP.replace("{FORMATS}\n", &Format::ALL.iter().map(format).collect::<String>())
}

const LRU: CachePolicy = CachePolicy::Rules(Rules::LRU);
/// The default block size, in bytes.
const BLOCK_BYTES: u64 = 8 << 10;

#[derive(Args)]
pub(crate) struct CacheArgs {
    /// The recording (- for standard input)
    #[arg(long, value_name = "FILE")]
    trace: PathBuf,

    #[arg(long, help = format!("Its format: {}", Format::names()))]
    format: Format,

    /// Capacity of the cache, in blocks; several values with commas between them
    #[arg(long, required = true, value_name = "N,...", value_delimiter = ',', value_parser = capacity, allow_negative_numbers = true)]
    capacity: Vec<u64>,

    #[arg(long, required = true, value_name = "NAME,...", value_delimiter = ',',
        help = format!("Replacement policy: {}; several with commas between them", CachePolicy::names()))]
    policy: Vec<CachePolicy>,

    /// Which reads are disclosed before the first one: none, all
    #[arg(long)]
    hints: Hints,

    /// Most blocks prefetched and unread at any time; 0 fetches on demand only [default: no limit]
    #[arg(long, value_name = "N", value_parser = blocks, allow_negative_numbers = true)]
    depth: Option<u64>,

    /// Block size for formats vscsi and foretell: a multiple of 512 bytes, up to 64 MiB; a read reads every block that it
    /// touches [default: 8KiB]
    #[arg(long, value_name = "SIZE", value_parser = recorded_block_bytes, allow_negative_numbers = true)]
    block: Option<u64>,

    /// Write the figures to FILE as JSON (- for standard output, in place of the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

fn blocks(text: &str) -> Result<u64, String> {
    text.trim().parse().map_err(|error: ParseIntError| match error.kind() {
        IntErrorKind::PosOverflow => "more blocks than can be counted".to_owned(),
        _ => "not a number of blocks".to_owned(),
    })
}

fn capacity(text: &str) -> Result<u64, String> {
    match blocks(text)? {
        0 => Err("a cache has room for at least 1 block".into()),
        blocks => Ok(blocks),
    }
}

pub(super) fn cache(args: &CacheArgs) -> Result<ExitCode, Failure> {
    check_outputs(&[("the recording", &args.trace)], &[("--json", args.json.as_deref())])?;
    let json = Figures::open(args.json.as_deref())?;
    let block_bytes = match (args.format, args.block) {
        (format, Some(_)) if format.has_own_blocks() => {
            return Err(Failure::usage(format!(
                "--block: a recording of format {format} has its own blocks; leave it out"
            )));
        }
        (_, given) => given.unwrap_or(BLOCK_BYTES),
    };
    let trace = Trace::open(recorded_at(&args.trace)?, args.format, block_bytes);
    let unusable = |error: TraceError| not_a_recording(&error, &Format::names());
    let trace = trace.map_err(unusable)?;
    let progress = progress();
    progress.set_message(format!("reading {}", shown(&args.trace)));
    let reads = trace.into_reads().map_err(unusable)?;
    if reads.is_empty() {
        return Err(Failure::failed(format!("{}: there is no read in it", shown(&args.trace))));
    }
    let (runs, width) = (runs(args), capacity_width(args));
    runs.iter().try_for_each(|options| check_length(args, block_bytes, &reads, options))?;
    progress.set_length((runs.len() as u64).saturating_mul(reads.len()));
    progress.reset();
    let no_use = |policy: &&CachePolicy| {
        args.hints == Hints::All && [LRU, CachePolicy::Belady].contains(policy)
    };
    for policy in args.policy.iter().filter(no_use) {
        progress.suspend(|| note(format!("note: hints change nothing for {policy}")));
    }
    let says_at_once = json.are_unwanted();
    if says_at_once {
        progress.suspend(|| say(&header(args, block_bytes, width)))?;
    }
    let mut results = Vec::new();
    for options in &runs {
        progress.set_message(format!("{}, {} blocks", options.policy, options.capacity_blocks));
        let result = run(&reads, options, &mut |reads| progress.inc(reads));
        if says_at_once {
            progress.suspend(|| say(&row(&result, width)))?;
        }
        results.push(Run::new(args, block_bytes, result));
    }
    progress.finish_and_clear();
    if says_at_once {
        return Ok(ExitCode::SUCCESS);
    }
    let table = || {
        say(&header(args, block_bytes, width))?;
        results.iter().try_for_each(|run| say(&row(&run.result, width)))
    };
    json.deliver(Ok(()), || as_json(&results, results.len() > 1), table)
}

/// Refuses a run that would take too long, before any work is done.
fn check_length(
    args: &CacheArgs,
    block_bytes: u64,
    reads: &Reads,
    options: &CacheOptions,
) -> Result<(), Failure> {
    let most = options.reads_max();
    if reads.len() <= most {
        return Ok(());
    }
    let (policy, hints) = (options.policy, options.hints);
    let (blocks, way_out) = match args.format {
        format if format.has_own_blocks() => ("blocks".to_owned(), "take a part of it".to_owned()),
        _ => {
            let larger = reads.factor_for(most, BLOCK_BYTES_MAX / block_bytes);
            let blocks = format!("blocks of {}", size::display(block_bytes));
            (blocks, larger_blocks(block_bytes, larger))
        }
    };
    Err(Failure::failed(format!(
        "{}: reads {} {blocks}, each counted as often as it is read, and {policy} with --hints {hints} runs through {most} \
         at most; {way_out}",
        shown(&args.trace),
        reads.len(),
    )))
}

/// Each capacity with each policy.
fn runs(args: &CacheArgs) -> Vec<CacheOptions> {
    let with = |capacity_blocks, policy| CacheOptions {
        policy,
        capacity_blocks,
        hints: args.hints,
        depth_blocks: args.depth,
    };
    let capacities = unique(&args.capacity);
    capacities.flat_map(|&n| unique(&args.policy).map(move |&policy| with(n, policy))).collect()
}

/// A run as `--json` writes it: its options, then its results.
#[derive(Serialize)]
struct Run {
    trace: String,
    format: &'static str,
    /// `None` for a format with its own blocks.
    block_bytes: Option<u64>,
    depth: Option<u64>,
    #[serde(flatten)]
    result: CacheResult,
}

impl Run {
    fn new(args: &CacheArgs, block_bytes: u64, result: CacheResult) -> Self {
        Run {
            trace: args.trace.to_string_lossy().into_owned(),
            format: args.format.name(),
            block_bytes: (!args.format.has_own_blocks()).then_some(block_bytes),
            depth: args.depth,
            result,
        }
    }
}

/// Width of the column of capacities, in characters.
fn capacity_width(args: &CacheArgs) -> usize {
    let digits = args.capacity.iter().map(|capacity| capacity.to_string().len());
    digits.max().unwrap_or(0).max("capacity".len() + 1)
}

/// The values that are the same in all rows, and the names of the columns.
fn header(args: &CacheArgs, block_bytes: u64, width: usize) -> String {
    let mut above = format!("trace: {}  format: {}", shown(&args.trace), args.format);
    if !args.format.has_own_blocks() {
        above += &format!("  block: {}", size::display(block_bytes));
    }
    above += &format!("  hints: {}", args.hints);
    if let Some(depth) = args.depth {
        above += &format!("  depth: {depth}");
    }
    format!(
        "{above}\n{:<13} {:>width$} {:>10} {:>10} {:>10} {:>9} {:>10} {:>8}",
        "policy", "capacity", "reads", "hits", "misses", "hit ratio", "prefetches", "seconds",
    )
}

fn row(result: &CacheResult, width: usize) -> String {
    let hit_ratio = result.hit_ratio().map_or("-".to_owned(), |ratio| format!("{ratio:.4}"));
    format!(
        "{:<13} {:>width$} {:>10} {:>10} {:>10} {:>9} {:>10} {:>8.3}",
        result.policy,
        result.capacity,
        result.reads,
        result.hits,
        result.misses,
        hit_ratio,
        result.prefetches,
        result.seconds,
    )
}
