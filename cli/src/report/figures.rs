//! The figures of a report, as `--json` and the page have them.

use foretell_manager::learn::recording::reader::Ending;
use serde::Serialize;

use super::gather::{FileSum, Gathered, ProgramSum, Sum};
use super::points::Point;
use super::simulated::Simulated;
use super::sources::NAMES;

/// Files that are shown, those with the most stall and the most bytes. The rest is one sum.
pub(super) const FILES_MAX: usize = 400;

/// Points of the first files, and of all others.
const POINTS_FIRST: usize = 2000;
const FIRST: usize = 20;
const POINTS_OTHERS: usize = 100;

/// Programs that are shown.
const PROGRAMS_MAX: usize = 200;

/// See the [module](self).
#[derive(Debug, Serialize)]
pub(super) struct Figures {
    program: Vec<String>,
    folder: String,
    began_s: u64,
    elapsed_s: f64,
    /// How the recording ends: whole, cut or damaged.
    ending: &'static str,
    lost_events: u64,
    reads: Row,
    names: Row,
    /// Share of the time that programs have waited, summed over all of them.
    stall_s: f64,
    by_origin: Vec<Named>,
    known: Vec<Known>,
    /// The programs for which the recording has the arguments: all programs, or the command alone.
    arguments: &'static str,
    earlier: &'static str,
    files: Vec<FileRow>,
    other_files: u64,
    other: Row,
    programs: Vec<ProgramRow>,
    sizes: Vec<Bin>,
    gaps: Vec<Bin>,
    span_s: f64,
    spans: Vec<(u64, u64)>,
    simulated: Simulated,
}

#[derive(Debug, Default, Serialize)]
struct Row {
    reads: u64,
    bytes: u64,
    stall_s: f64,
}

impl From<Sum> for Row {
    fn from(sum: Sum) -> Self {
        Row { reads: sum.reads, bytes: sum.bytes, stall_s: seconds(sum.stall_ns) }
    }
}

#[derive(Debug, Serialize)]
struct Named {
    name: &'static str,
    #[serde(flatten)]
    row: Row,
}

/// What a source could have known: shares of all reads and names.
#[derive(Debug, Serialize)]
struct Known {
    source: &'static str,
    reads_share: f64,
    bytes_share: f64,
    stall_share: f64,
    #[serde(flatten)]
    row: Row,
}

#[derive(Debug, Serialize)]
struct FileRow {
    path: String,
    /// Calls, page tables or outside.
    seen_by: &'static str,
    #[serde(flatten)]
    row: Row,
    opens: u64,
    looks: u64,
    is_missing: bool,
    end_bytes: u64,
    first_s: f64,
    last_s: f64,
    in_order_share: f64,
    backwards: u64,
    /// The part of the stall that sources could have known of: each, and any of foretell's.
    known_s: [f64; NAMES.len()],
    known_any_s: f64,
    /// Began and ended (µs), start and end (bytes), reads, stall (µs).
    points: Vec<Point>,
}

#[derive(Debug, Serialize)]
struct ProgramRow {
    name: String,
    processes: u64,
    #[serde(flatten)]
    row: Row,
    names: u64,
    name_stall_s: f64,
    first_s: f64,
    last_s: f64,
}

/// A bin of a histogram of reads, by their size or by their distance from the last read of the file. The bin begins at `from`
/// bytes and ends where the next one begins.
#[derive(Debug, Serialize)]
struct Bin {
    /// Negative: backwards.
    from: i64,
    reads: u64,
    bytes: u64,
}

fn seconds(ns: u64) -> f64 {
    (ns / 1000) as f64 / 1e6
}

fn share(part: u64, all: u64) -> f64 {
    if all == 0 { 0.0 } else { (part as f64 / all as f64 * 1e4).round() / 1e4 }
}

impl Figures {
    pub(super) fn new(gathered: Gathered, simulated: Simulated) -> Self {
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let (ending, lost_events) = match gathered.ending {
            Ending::Whole { lost } => ("whole", lost),
            Ending::Damaged => ("damaged", 0),
            Ending::Ahead | Ending::Cut => ("cut", 0),
        };
        let origins = ["calls", "page tables", "outside"].into_iter().zip(gathered.origins);
        let by_origin = origins.map(|(name, sum)| Named { name, row: sum.into() });
        let stall_ns = gathered.reads.stall_ns.saturating_add(gathered.names.stall_ns);
        let (sizes, gaps) = (bins(&gathered.sizes, 1), gaps(&gathered));
        let span = |sum: &Sum| (sum.bytes, sum.stall_ns / 1000);
        Figures {
            program: gathered.meta.command.iter().map(|word| text(word)).collect(),
            folder: text(&gathered.meta.folder),
            began_s: gathered.meta.began_s,
            elapsed_s: seconds(gathered.elapsed_ns),
            ending,
            lost_events,
            reads: gathered.reads.into(),
            names: gathered.names.into(),
            stall_s: seconds(stall_ns),
            by_origin: by_origin.collect(),
            known: known(&gathered),
            arguments: if gathered.tells_names { "all programs" } else { "the command alone" },
            earlier: if gathered.has_earlier { "another recording" } else { "the same run" },
            sizes,
            gaps,
            span_s: seconds(gathered.spans.each_ns),
            spans: gathered.spans.sums.iter().map(span).collect(),
            programs: programs(&gathered.programs),
            simulated,
            ..files(gathered)
        }
    }
}

fn known(gathered: &Gathered) -> Vec<Known> {
    let (reads, names) = (gathered.reads, gathered.names);
    let of = |(source, sum): (&'static str, Sum)| Known {
        source,
        reads_share: share(sum.reads, reads.reads),
        bytes_share: share(sum.bytes, reads.bytes),
        stall_share: share(sum.stall_ns, reads.stall_ns.saturating_add(names.stall_ns)),
        row: sum.into(),
    };
    let any = ("any but the kernel", gathered.known);
    NAMES.into_iter().zip(gathered.sources).chain([any]).map(of).collect()
}

fn programs(all: &[ProgramSum]) -> Vec<ProgramRow> {
    let mut all: Vec<&ProgramSum> = all.iter().collect();
    all.sort_by_key(|program| {
        let stall_ns = program.sum.stall_ns.saturating_add(program.name_stall_ns);
        std::cmp::Reverse((stall_ns, program.sum.bytes))
    });
    let row = |program: &ProgramSum| ProgramRow {
        name: program.name.clone(),
        processes: program.processes,
        row: program.sum.into(),
        names: program.names,
        name_stall_s: seconds(program.name_stall_ns),
        first_s: seconds(program.first_ns.min(program.last_ns)),
        last_s: seconds(program.last_ns),
    };
    all.into_iter().take(PROGRAMS_MAX).map(row).collect()
}

/// The files, and nothing else.
fn files(gathered: Gathered) -> Figures {
    let Gathered { files, paths, .. } = gathered;
    let mut all: Vec<(usize, FileSum)> = files.into_iter().enumerate().collect();
    all.sort_by_key(|(at, file)| (std::cmp::Reverse((file.sum.stall_ns, file.sum.bytes)), *at));
    let rest = all.split_off(all.len().min(FILES_MAX));
    let mut other = Sum::default();
    let sums = rest.iter().map(|(_, file)| file.sum);
    sums.for_each(|sum| other.add(sum.reads, sum.bytes, sum.stall_ns));
    let row = |(at, (number, file)): (usize, (usize, FileSum))| FileRow {
        path: String::from_utf8_lossy(&paths[number]).into_owned(),
        seen_by: match (file.is_mapped, file.is_seen_outside) {
            (true, _) => "page tables",
            (_, true) => "outside",
            _ => "calls",
        },
        row: file.sum.into(),
        opens: file.opens,
        looks: file.looks,
        is_missing: file.is_missing,
        end_bytes: file.end_bytes,
        first_s: seconds(file.first_ns),
        last_s: seconds(file.last_ns),
        in_order_share: share(file.in_order, file.sum.reads.saturating_sub(1)),
        backwards: file.backwards,
        known_s: file.known_ns.map(seconds),
        known_any_s: seconds(file.known.stall_ns),
        points: file.points.finish(if at < FIRST { POINTS_FIRST } else { POINTS_OTHERS }),
    };
    Figures {
        files: all.into_iter().enumerate().map(row).collect(),
        other_files: rest.len() as u64,
        other: other.into(),
        ..Figures::empty()
    }
}

impl Figures {
    fn empty() -> Self {
        Figures {
            program: Vec::new(),
            folder: String::new(),
            began_s: 0,
            elapsed_s: 0.0,
            ending: "",
            lost_events: 0,
            reads: Row::default(),
            names: Row::default(),
            stall_s: 0.0,
            by_origin: Vec::new(),
            known: Vec::new(),
            arguments: "",
            earlier: "",
            files: Vec::new(),
            other_files: 0,
            other: Row::default(),
            programs: Vec::new(),
            sizes: Vec::new(),
            gaps: Vec::new(),
            span_s: 0.0,
            spans: Vec::new(),
            simulated: Simulated::default(),
        }
    }
}

/// The bins that have something; `sign`: of their bytes.
fn bins(sums: &[Sum], sign: i64) -> Vec<Bin> {
    let with_bytes = sums.iter().enumerate().filter(|(_, sum)| sum.reads > 0);
    let bin = |(at, sum): (usize, &Sum)| Bin {
        from: sign * at.checked_sub(1).map_or(0, |power| 1 << power),
        reads: sum.reads,
        bytes: sum.bytes,
    };
    with_bytes.map(bin).collect()
}

fn gaps(gathered: &Gathered) -> Vec<Bin> {
    let mut gaps = bins(&gathered.backwards, -1);
    gaps.reverse();
    gaps.extend(bins(&gathered.forwards, 1));
    gaps
}
