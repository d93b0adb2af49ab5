//! The options of `foretell sim replay`, its help text, and the defaults.

use std::path::PathBuf;

use clap::{Args, ValueEnum};
use foretell_policy::Rules;
use foretell_policy::queue::Order;
use foretell_sim::replay::Disclosed;
use foretell_sim::trace::Format;
use foretell_testbed::LayoutKind;

use super::recording::{recorded_block_bytes, whole_sectors};
use crate::array::{self, Switch};
use crate::failure::Failure;
use crate::size;

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
docs/reference/json.md explains the keys.

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
    pub(super) disks: Vec<u16>,

    #[arg(long, value_name = "NAME|FILE,...", value_delimiter = ',',
        help = format!("A built-in device ({}) or a parameter file; hp97560 is a drive of the early 1990s: of what is \
            in use today, choose ssd, nvme, network or object-store [default: hp97560]", array::disk_names()))]
    pub(super) disk: Vec<String>,

    /// Bytes of a file on one disk before the next disk's turn
    #[arg(long, default_value = "64KiB", value_name = "SIZE", value_parser = stripe, allow_negative_numbers = true)]
    pub(super) stripe: u64,

    /// Order in which waiting requests are handed to a disk: fifo, scan, c-look, sstf
    #[arg(long, default_value_t = Order::Scan)]
    pub(super) order: Order,

    /// Requests that a disk holds at once and chooses among, no fewer than it serves at once [default: 5, or as many
    /// as that]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=1024), allow_negative_numbers = true)]
    pub(super) outstanding: Option<u16>,

    /// How files lie on the disks: sequential (as copied to a new file system) or aged (in short
    /// runs, as on an old one)
    #[arg(long, default_value_t = LayoutKind::Sequential)]
    pub(super) layout: LayoutKind,

    /// Seed of the aged layout and of drawn latencies
    #[arg(long, default_value_t = 1, value_parser = seed, allow_negative_numbers = true)]
    pub(super) seed: u64,

    /// Whether the first open of each file costs a read of its inode
    #[arg(long, value_enum, default_value_t = Switch::On)]
    pub(super) metadata: Switch,

    #[arg(long, value_name = "NAME,...", value_delimiter = ',', value_parser = rules,
        help = format!("What decides: {}; lru fetches no blocks ahead, not even those that a kernel reads ahead \
            [default: foretell]", policy_names()))]
    pub(super) policy: Vec<Rules>,

    /// What is disclosed: none, recorded, files, all, N-ahead [default: none,files; of blocks, vscsi and oracle-general, which
    /// have no files, none,all]
    #[arg(long, value_name = "HINTS,...", value_delimiter = ',')]
    pub(super) hints: Vec<Disclosed>,

    /// Memory for blocks [default: 256MiB]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = size::parse, allow_negative_numbers = true)]
    pub(super) cache: Vec<u64>,

    /// Bytes of a block, a multiple of 512, up to 64 MiB; Linux reads pages of 4KiB, which predict short reads out of
    /// sequence better
    #[arg(long, default_value = "8KiB", value_name = "SIZE", value_parser = recorded_block_bytes, allow_negative_numbers = true)]
    pub(super) block: u64,

    /// Read-ahead of what is not disclosed: Linux's 128 KiB, that of OSF/1, none
    #[arg(long, value_enum, default_value_t = ReadAheadChoice::Linux)]
    pub(super) read_ahead: ReadAheadChoice,

    /// The processor's work, recorded and modelled, is so many times as long
    #[arg(long, default_value_t = 1.0, value_name = "FACTOR", value_parser = factor, allow_negative_numbers = true)]
    pub(super) cpu_factor: f64,

    /// What the recorder itself took between two calls, microseconds; docs/internals/simulator.md says how to find it
    #[arg(long, default_value_t = 0.0, value_name = "MICROSECONDS", value_parser = micros, allow_negative_numbers = true)]
    pub(super) overhead_us: f64,

    /// Work before each read where the recording does not tell it, microseconds
    #[arg(long, default_value_t = 0.0, value_name = "MICROSECONDS", value_parser = micros, allow_negative_numbers = true)]
    pub(super) think_us: f64,

    /// The same as one of the options above that take several values, in the place of it: disks=1,2,4,8 is --disks
    /// 1,2,4,8; may be given for each of them
    #[arg(long, value_name = "NAME=VALUE,...", value_parser = sweep)]
    pub(super) sweep: Vec<Sweep>,

    /// Write the figures to FILE as JSON; to standard output, in place of the table, if it is -
    #[arg(long, value_name = "FILE")]
    pub(super) json: Option<PathBuf>,

    /// Write a plot to FILE, as SVG: elapsed seconds over the disks, or over the caches if only those are several;
    /// to standard output, in place of the table, if it is -
    #[arg(long, value_name = "FILE")]
    pub(super) plot: Option<PathBuf>,
}

/// A format that can be run again.
#[derive(Clone, Copy)]
pub(super) enum Source {
    Strace,
    Dxt,
    Reads(Format),
}

impl Source {
    pub(super) fn name(self) -> &'static str {
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

/// What is gone through, and in which values.
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
