//! The options of `foretell sim replay`, its help text, and the defaults.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use foretell_policy::Rules;
use foretell_policy::queue::Order;
use foretell_sim::replay::Disclosed;
use foretell_sim::trace::{Format, recorded};
use foretell_testbed::LayoutKind;

use super::recording::{recorded_block_bytes, whole_sectors};
use crate::array::{self, Switch};
use crate::failure::Failure;
use crate::size;

pub(super) const HELP: &str = "\
Examples:
  strace -f -ttt -T -y -o run.strace PROGRAM ARGUMENTS...       records a run
  foretell sim replay run.strace --root /data --disks 1,2,4,8 --hints none,all
  foretell record -o run.ftr -- PROGRAM ARGUMENTS...             records a run, too
  foretell sim replay run.ftr --disk network --hints none,all
  foretell sim replay run.strace --root /data --disk object-store --cache 64MiB,1GiB --json -

A recording says which bytes were read, in which order, and how much work lay between the reads. \
The rest is a model: all figures are predictions. If strace slows the program down, record with -e \
trace=%desc,%file,%process; the time of other calls then counts as work. Put only the files below \
--root on the modelled disks. Sizes and inode numbers come from the files, if they still exist. \
Recordings without call durations (strace without -T, and formats other than strace, dxt and record) have \
no work between reads; --think-us sets it. Each process begins when another one creates it, and \
waits for the others where it did in the recording.

MPI programs can be recorded with Darshan's DXT: export the log with `darshan-dxt-parser LOG`, or \
with scripts/dxt-text LOG of the repository, which keeps more digits of times, and use --format dxt.

Hints are per program; files and all include those of the programs that it starts:
  none       no hints, not even those that the program gave the kernel; only the kernel's read-ahead
  recorded   what the program asked the kernel for by posix_fadvise(WILLNEED) or readahead, at the
             time it did (strace only)
  files      the names of all files that it reads, before the first read, as `foretell run` gives
             them
  all        exactly what it reads, before the first read
  N-ahead    each read, N reads before it

Options with several values, separated by commas, give one row per combination; --disks 1,2,4,8 and \
--sweep disks=1,2,4,8 are the same.

Values that are the same in all rows stand above the table. Columns:
  elapsed s  seconds from the first process's beginning to the last one's end
  saved      with several hints: the share of time saved against hints none, with the same policy and
             machine
  work s     seconds of work, summed over all processes
  waiting s  seconds of waiting for devices, summed over all processes
  reads      blocks read; each is one of the next four
  hits       blocks that were in memory from an earlier read
  ahead      blocks that were prefetched, and in memory in time
  late       blocks that were in flight. A call for several blocks requests all of them at once, and
             so does the kernel's read-ahead: all of these, or all but the first, are late too
  misses     blocks that their own read requested, one by one; few where the kernel reads ahead
  unread     blocks fetched by hints or read-ahead that were never read, or evicted unread. A block
             that is read after it was given up, while still in memory, counts here and as read
  requests   requests to the disks, including those for inodes
  bytes      bytes read from the disks
  busiest    the busiest disk's share of the time; for devices that serve several requests at once,
             the used share of their slots, or of their link's bandwidth
  bound s    lower bound of this run: a program's work, or the busiest disk's service time for the
             requests of this run. (Fewer requests, or another order, may need less.)

Read-ahead takes memory: with room for few blocks it can do harm, as in a kernel; compare with \
--read-ahead none.

--json has one object, or an array of several runs: the options by their names, sizes as \
stripe_bytes, cache_bytes and block_bytes, and the results. docs/reference/json.md explains the keys.";

#[derive(Args, Clone)]
pub(crate) struct ReplayArgs {
    /// The recording (- for standard input)
    pub(super) trace: PathBuf,

    #[arg(long, default_value = "strace",
        help = format!("Its format: {}; each also compressed with gzip or zstd", Source::names()))]
    pub(super) format: Source,

    /// Formats strace, dxt and record: only files below this folder are on the modelled disks; other reads take the time they
    /// took [default: all files, with their folders already known]
    #[arg(long, value_name = "FOLDER")]
    pub(super) root: Option<PathBuf>,

    /// Number of disks, 1 to 256 [default: 4]
    #[arg(long, value_name = "N,...", value_delimiter = ',', value_parser = disks, allow_negative_numbers = true)]
    pub(super) disks: Vec<u16>,

    #[arg(long, value_name = "NAME|FILE,...", value_delimiter = ',',
        help = format!("A built-in device ({}) or a parameter file; hp97560 is a drive of the early 1990s: \
            for today's devices choose ssd, nvme, network or object-store [default: hp97560]", array::disk_names()))]
    pub(super) disk: Vec<String>,

    /// Stripe unit: bytes of a file on one disk before the next disk's turn
    #[arg(long, default_value = "64KiB", value_name = "SIZE", value_parser = stripe, allow_negative_numbers = true)]
    pub(super) stripe: u64,

    /// Order in which a disk serves waiting requests: fifo, scan, c-look, sstf
    #[arg(long, default_value_t = Order::Scan)]
    pub(super) order: Order,

    /// Queue length of a disk: the requests that it chooses among, at least as many as it serves at once [default: 5, or as
    /// many as it serves]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), allow_negative_numbers = true)]
    pub(super) outstanding: Option<u16>,

    /// How files lie on the disks: sequential (as copied to a new file system) or aged (in short
    /// runs, as on an old one)
    #[arg(long, default_value_t = LayoutKind::Sequential)]
    pub(super) layout: LayoutKind,

    /// Seed of the aged layout and of random latencies
    #[arg(long, default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    pub(super) seed: u64,

    /// Whether the first open of each file reads its inode from disk
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub(super) metadata: Switch,

    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = rules,
        help = format!("Policy: {}; lru prefetches nothing, and has no read-ahead either \
            [default: foretell]", policy_names()))]
    pub(super) policy: Vec<Rules>,

    /// What is disclosed: none, recorded, files, all, N-ahead [default: none,files; for formats blocks, vscsi and
    /// oracle-general, which have no files, none,all]
    #[arg(long, value_name = "HINTS,...", value_delimiter = ',')]
    pub(super) hints: Vec<Disclosed>,

    /// Memory for cached blocks [default: 256MiB]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = size::parse, allow_negative_numbers = true)]
    pub(super) cache: Vec<u64>,

    /// Block size: a multiple of 512 bytes, up to 64 MiB; 4KiB, Linux's page size, predicts short random reads better
    #[arg(long, default_value = "8KiB", value_name = "SIZE", value_parser = recorded_block_bytes, allow_negative_numbers = true)]
    pub(super) block: u64,

    /// Kernel read-ahead for undisclosed reads: Linux's 128 KiB, that of OSF/1, or none
    #[arg(long, value_enum, default_value_t = ReadAheadChoice::Linux)]
    pub(super) read_ahead: ReadAheadChoice,

    /// Factor by which all processor work, recorded and modelled, is multiplied
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", value_parser = factor, allow_negative_numbers = true)]
    pub(super) cpu_factor: f64,

    /// Time of the recorder itself between two calls, in microseconds; docs/internals/simulator.md says how to measure it
    #[arg(long, default_value_t = 0.0, value_name = "MICROSECONDS", value_parser = micros, allow_negative_numbers = true)]
    pub(super) overhead_us: f64,

    /// Work before each read if the recording has no durations, in microseconds
    #[arg(long, default_value_t = 0.0, value_name = "MICROSECONDS", value_parser = micros, allow_negative_numbers = true)]
    pub(super) think_us: f64,

    /// Another way to write an option that takes several values: disks=1,2,4,8 is --disks 1,2,4,8; may be given several times,
    /// for different options
    #[arg(long, value_name = "NAME=VALUE,...", value_parser = sweep)]
    pub(super) sweep: Vec<Sweep>,

    /// Write the figures to FILE as JSON (- for standard output, in place of the table)
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,

    /// Write a plot to FILE as SVG: elapsed seconds over --disks, or over --cache if only that has several values (- for
    /// standard output, in place of the table)
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
}

/// A format that can be replayed.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Strace,
    Dxt,
    Record,
    Reads(Format),
}

impl Source {
    pub(super) fn name(self) -> &'static str {
        match self {
            Source::Strace => "strace",
            Source::Dxt => "dxt",
            Source::Record => "record",
            Source::Reads(format) => format.name(),
        }
    }

    pub(super) fn names() -> String {
        format!("strace, dxt, record, {}", Format::names())
    }
}

impl std::str::FromStr for Source {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        match text {
            "strace" => Ok(Source::Strace),
            "dxt" => Ok(Source::Dxt),
            "record" => Ok(Source::Record),
            _ => text.parse().map(Source::Reads).map_err(|_: String| {
                format!("unknown format {text:?}; known are {}", Source::names())
            }),
        }
    }
}

#[derive(Clone, Copy, ValueEnum)]
pub(super) enum ReadAheadChoice {
    Linux,
    Osf1,
    None,
}

impl ReadAheadChoice {
    pub(super) fn name(self) -> &'static str {
        match self {
            ReadAheadChoice::Linux => "linux",
            ReadAheadChoice::Osf1 => "osf1",
            ReadAheadChoice::None => "none",
        }
    }
}

/// An option and its several values, as `--sweep` gives them.
#[derive(Clone)]
pub(super) enum Sweep {
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

/// Sets the values of `--sweep` for the option `name`, unless that is given itself.
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
    /// The options with the values of `--sweep` in their places, with defaults where none is given, and with the format of a
    /// recording of `foretell record`.
    pub(super) fn completed(&self) -> Result<ReplayArgs, Failure> {
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
        // Its format is plain, so it need not be given.
        if matches!(args.format, Source::Strace) && recorded::is_one(&args.trace) {
            args.format = Source::Record;
        }
        Ok(args)
    }

    /// The kinds of hints to replay with: as given, or the format's default.
    pub(super) fn hints(&self) -> &[Disclosed] {
        match self.format {
            _ if !self.hints.is_empty() => &self.hints,
            Source::Reads(format) if !format.has_files() => &[Disclosed::None, Disclosed::All],
            _ => &[Disclosed::None, Disclosed::Files],
        }
    }
}
