//! The report of a run, as the manager saw it.

use foretell_policy::{Counts, Tally};
use foretell_protocol::Counters;
use serde::{Deserialize, Serialize};

use crate::lesson::Ahead;
use crate::sources::Origin;

/// Hints, by what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HintReport {
    /// Hints given. Guesses that named no file, or were not looked up by the end, do not count.
    pub given: u64,
    /// Hints whose file was looked up.
    pub resolved: u64,
    /// Hints that could not be read, or whose file could not be opened.
    pub refused: u64,
    /// Those of them that could not be read.
    #[serde(default)]
    pub broken_lines: u64,
    /// Hints and guesses that were not looked at, since the data of the hints before them was in memory.
    pub passed_over: u64,
}

/// Prefetched blocks, by what became of them. Every prefetched block ends as exactly one of useful,
/// late, wasted, unfinished and refused.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BlockReport {
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Fetched, or in flight.
    pub prefetched: u64,
    /// In memory before the program read them.
    pub useful: u64,
    /// Still in flight when the program read them.
    pub late: u64,
    /// Not read by the time the run ended.
    pub wasted: u64,
    /// In flight when the run ended.
    pub unfinished: u64,
    /// Could not be fetched, or lie beyond the end of their file.
    pub refused: u64,
    /// Hinted, and in memory already without foretell.
    pub already_cached: u64,
    /// Hinted, and read by the program before their turn came.
    pub overtaken: u64,
}

/// Blocks of one source of hints, by what became of them. The sums over all sources are those of [`BlockReport`].
#[derive(Clone, Copy, Debug, PartialEq, Serialize, Deserialize)]
pub struct SourceReport {
    /// The source.
    pub source: Origin,
    /// Fetched for it, or in flight.
    pub prefetched: u64,
    /// In memory before the program read them.
    pub useful: u64,
    /// Still in flight when the program read them.
    pub late: u64,
    /// Not read.
    pub wasted: u64,
    /// In flight when the run ended.
    pub unfinished: u64,
    /// Could not be fetched, or lie beyond the end of their file.
    pub refused: u64,
    /// Hinted, and in memory already without foretell.
    pub already_cached: u64,
    /// Hinted, and read by the program before their turn came.
    pub overtaken: u64,
    /// The share of useful and late blocks among those of which it is known whether they were read, from 0 to 1. `None` if none
    /// are.
    pub precision: Option<f64>,
    /// The share of late blocks among the useful and late ones. `None` if there are none.
    pub late_share: Option<f64>,
    /// Whether it asked for nothing more, because so little of it was read.
    pub has_stopped: bool,
}

/// What a perfect guess would have brought, in blocks, as far as reads were seen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OracleReport {
    /// Blocks that a perfect guess would have had in memory in time: useful and late ones, and those that reads waited for.
    pub perfect: u64,
    /// Blocks of reads that waited, and that were neither fetched ahead nor in flight.
    pub waited: u64,
    /// Those of them that no source had named.
    pub unforeseen: u64,
}

/// Names that were looked up ahead of programs that walk through folders.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct NameReport {
    /// Names looked up, and folders listed.
    pub looked_up: u64,
    /// Those that a program has come to.
    pub used: u64,
    /// The others.
    pub unused: u64,
    /// Seconds that programs spent in calls about names that had to wait, as far as they were watched. Opens do not count.
    /// `None` if no calls about names were counted.
    #[serde(default)]
    pub stall_s: Option<f64>,
}

/// What was known of the workload from earlier runs, and what became of it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LearnReport {
    /// Whether there was a profile.
    pub is_known: bool,
    /// Steps that it expected.
    pub expected: u64,
    /// Those of them that were looked up or read ahead, before the run came to them.
    pub asked: u64,
    /// Those that the run came to, whether they were asked for or not.
    pub found: u64,
    /// Whether nothing more was asked for, because the run differed.
    pub has_stopped: bool,
    /// Why the store could not be used.
    pub problem: Option<String>,
    /// Whether a recording given by hand took the place of a profile.
    #[serde(default)]
    pub is_by_hand: bool,
    /// What the recording lacks.
    #[serde(default)]
    pub lacks: Option<String>,
    /// Names that the run touched and the profile or the recording does not have, until nothing more was asked for.
    #[serde(default)]
    pub others: u64,
    /// Steps of this run.
    pub kept: u64,
    /// Files that were read ahead because other workloads have read them after those that this run has opened.
    #[serde(default)]
    pub predicted: u64,
    /// Those of them that the run opened.
    #[serde(default)]
    pub predicted_found: u64,
}

/// What was recorded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RecordReport {
    /// Events of all kinds.
    pub events: u64,
    /// Names that were touched.
    pub touches: u64,
    /// Reads, and touched parts of mapped files.
    pub reads: u64,
    /// Bytes of these reads.
    pub read_bytes: u64,
    /// Files that were opened or read.
    pub files: u64,
    /// Events that could not be recorded: a program or the disk was too fast or too slow.
    pub lost: u64,
    /// Bytes of the file.
    pub file_bytes: u64,
    /// Why the recording ends before the run.
    pub problem: Option<String>,
}

/// What the user's rules did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct RuleReport {
    /// Files that were read ahead by a rule, once for each process that opened them.
    pub files: u64,
    /// Hints that were dropped, because a rule says that the file is never read ahead, or how it is.
    pub dropped: u64,
}

/// What the programs did, summed over all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct ProgramReport {
    /// Processes that reported.
    pub processes: u64,
    /// Reads of regular files.
    pub read_calls: u64,
    /// Bytes they returned.
    pub read_bytes: u64,
    /// Bytes read from anything else through hooked calls.
    pub other_read_bytes: u64,
    /// Seconds spent in reads that had to wait (took longer than 50 µs). `None` if no process reported.
    #[serde(default)]
    pub read_stall_s: Option<f64>,
    /// Seconds spent in opens that had to wait. `None` if no process reported.
    #[serde(default)]
    pub open_stall_s: Option<f64>,
    /// Records lost because a ring was full. Counts of blocks may be off by as many.
    pub dropped_records: u64,
    /// Programs executed without the library, as far as known.
    pub left_alone: u64,
    /// Those of them that were skipped, since programs like them hardly wait.
    #[serde(default)]
    pub skipped: u64,
    /// Programs executed with the library, by processes that have introduced themselves.
    #[serde(default)]
    pub followed: u64,
    /// Processes without the library, of which reads were seen from outside.
    #[serde(default)]
    pub outside: u64,
    /// Bytes of these reads.
    #[serde(default)]
    pub outside_read_bytes: u64,
    /// Opens for reading that were seen of processes without the library (`--observe opens`).
    #[serde(default)]
    pub outside_opens: u64,
    /// Opens of which the record was lost, because the manager was behind.
    #[serde(default)]
    pub dropped_opens: u64,
}

/// How the manager ended.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ManagerState {
    /// It did its work to the end.
    Finished,
    /// It failed, for this reason; the program ran on without it.
    Failed(String),
    /// It did not answer in time when it was asked for the report.
    Unresponsive,
}

/// The report of one run.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Report {
    /// How the manager fared.
    pub manager: ManagerState,
    /// The budget in force, in bytes.
    pub budget_bytes: u64,
    /// Hints.
    pub hints: HintReport,
    /// Blocks.
    pub blocks: BlockReport,
    /// The same by their sources, without those that did nothing.
    #[serde(default)]
    pub sources: Vec<SourceReport>,
    /// What a perfect guess would have brought.
    #[serde(default)]
    pub oracle: OracleReport,
    /// Names looked up ahead.
    #[serde(default)]
    pub names: NameReport,
    /// What earlier runs have shown.
    #[serde(default)]
    pub learned: LearnReport,
    /// What was recorded, if that was asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<RecordReport>,
    /// Rules.
    #[serde(default)]
    pub rules: RuleReport,
    /// Programs.
    pub programs: ProgramReport,
    /// The first refusal, in words.
    pub first_refusal: Option<String>,
    /// The first hint that could not be read: where it is, and why.
    #[serde(default)]
    pub first_broken_line: Option<String>,
    /// The policy's last decisions as text, if they were asked for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub explanation: Option<String>,
}

impl Report {
    /// A report without counts, of a manager in `state`.
    pub fn empty(state: ManagerState, budget_bytes: u64) -> Self {
        Report {
            manager: state,
            budget_bytes,
            hints: HintReport::default(),
            blocks: BlockReport::default(),
            sources: Vec::new(),
            oracle: OracleReport::default(),
            names: NameReport::default(),
            learned: LearnReport::default(),
            recorded: None,
            rules: RuleReport::default(),
            programs: ProgramReport::default(),
            first_refusal: None,
            first_broken_line: None,
            explanation: None,
        }
    }
}

impl Report {
    /// What became of the bytes that were read ahead for one source.
    pub(crate) fn ahead_by(&self, origin: Origin) -> Ahead {
        let of = self.sources.iter().find(|of| of.source == origin);
        let bytes = |blocks| blocks * self.blocks.block_bytes;
        of.map_or(Ahead::default(), |of| Ahead {
            all: bytes(of.prefetched),
            useful: bytes(of.useful),
            late: bytes(of.late),
            wasted: bytes(of.wasted),
        })
    }
}

impl HintReport {
    pub(crate) fn new(counts: &Counts, broken_lines: u64) -> Self {
        HintReport {
            given: counts.hints - counts.hints_void + broken_lines,
            resolved: counts.hints_resolved,
            refused: counts.hints_refused + broken_lines,
            broken_lines,
            passed_over: counts.hints_passed_over,
        }
    }
}

impl BlockReport {
    pub(crate) fn new(block_bytes: u64, counts: &Counts) -> Self {
        BlockReport {
            block_bytes,
            prefetched: counts.prefetched,
            useful: counts.useful,
            late: counts.late,
            wasted: counts.wasted,
            unfinished: counts.unfinished,
            refused: counts.refused,
            already_cached: counts.already_cached,
            overtaken: counts.overtaken,
        }
    }
}

impl SourceReport {
    pub(crate) fn new(source: Origin, tally: &Tally, has_stopped: bool) -> Self {
        let right = tally.useful + tally.late;
        SourceReport {
            source,
            prefetched: tally.prefetched,
            useful: tally.useful,
            late: tally.late,
            wasted: tally.wasted,
            unfinished: tally.unfinished,
            refused: tally.refused,
            already_cached: tally.already_cached,
            overtaken: tally.overtaken,
            precision: tally.precision(),
            late_share: (right > 0).then(|| tally.late as f64 / right as f64),
            has_stopped,
        }
    }
}

impl OracleReport {
    pub(crate) fn new(counts: &Counts) -> Self {
        OracleReport {
            perfect: counts.useful + counts.late + counts.waited,
            waited: counts.waited,
            unforeseen: counts.unforeseen,
        }
    }
}

impl ProgramReport {
    /// Adds one process.
    pub(crate) fn add(&mut self, counters: &Counters) {
        // A program may write any numbers.
        let add = |sum: &mut u64, more: u64| *sum = sum.saturating_add(more);
        self.processes += 1;
        add(&mut self.read_calls, counters.read_calls);
        add(&mut self.read_bytes, counters.read_bytes);
        add(&mut self.other_read_bytes, counters.other_read_bytes);
        *self.read_stall_s.get_or_insert(0.0) += counters.read_stall_ns as f64 / 1e9;
        *self.open_stall_s.get_or_insert(0.0) += counters.open_stall_ns as f64 / 1e9;
        add(&mut self.dropped_records, counters.dropped_records);
        add(&mut self.left_alone, counters.programs_left_alone);
        add(&mut self.skipped, counters.programs_skipped);
        add(&mut self.followed, counters.programs_followed);
    }
}
