//! The summary and the figures of `foretell run`, after the program has ended.

use std::ffi::OsString;
use std::time::Duration;

use foretell_manager::{LearnReport, ManagerState, ProgramReport, Report, SourceReport};
use serde::{Serialize, Serializer};

use crate::failure::without_numbers;
use crate::run::MpiReport;
use crate::{record, size};

/// Below so many bytes read, the summary gives no share seen: the dynamic linker reads a few KiB of libraries before the
/// interposing library works.
const COVERAGE_MIN_BYTES: u64 = 64 << 10;

/// Below so many bytes read ahead, a source does not show in the line about sources.
const SOURCE_MIN_BYTES: u64 = 1 << 20;

/// A recording does not fit if the program came to fewer than one of so many steps that were looked ahead at, as for the replay
/// itself.
const MISFIT: u64 = 4;

/// How the program ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Ending {
    /// With this exit code.
    Exit(i32),
    /// By this signal.
    Signal(i32),
}

impl Default for Ending {
    /// The ending is unknown.
    fn default() -> Self {
        Ending::Exit(0)
    }
}

/// What is known of a program that has ended.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ended {
    pub(crate) ending: Ending,
    /// Whether the kernel wrote a core dump.
    pub(crate) core_dumped: bool,
    /// Bytes read by the program and the descendants that it waited for, by the kernel's count.
    pub(crate) read_bytes: Option<u64>,
}

/// A command line as JSON strings; bytes that are not UTF-8 are replaced.
fn as_text<S: Serializer>(command: &[OsString], serializer: S) -> Result<S::Ok, S::Error> {
    serializer.collect_seq(command.iter().map(|word| word.to_string_lossy()))
}

/// All figures of one run, serialised as they are for `--json`.
#[derive(Debug, Serialize)]
pub(crate) struct Summary<'a> {
    #[serde(serialize_with = "as_text")]
    program: &'a [OsString],
    ending: Ending,
    core_dumped: bool,
    elapsed_s: f64,
    /// Seconds that the program's reads, opens and calls about names had to wait. `None` if no process has told.
    stall_s: Option<f64>,
    /// Bytes that the program read from anything, by the kernel's count.
    kernel_read_bytes: Option<u64>,
    /// The share of them that passed through the interposing library.
    seen_share: Option<f64>,
    mpi: Option<MpiReport>,
    #[serde(flatten)]
    report: Report,
}

/// Programs, or processes, without the library, but for those that were skipped since programs like them hardly wait. A process
/// outside may execute several programs.
fn silent(programs: &ProgramReport) -> u64 {
    programs.left_alone.saturating_sub(programs.skipped).max(programs.outside)
}

/// Sets the times for which calls waited to zero where nothing has waited, and to `None` where that is not known: only the
/// library measures them, and only a manager that has finished has them. Returns their sum.
fn settle_stalls(report: &mut Report) -> Option<f64> {
    let (programs, names) = (&mut report.programs, &mut report.names);
    let is_finished = report.manager == ManagerState::Finished;
    let is_known = is_finished && (programs.processes > 0 || silent(programs) == 0);
    let settled = |time: Option<f64>| is_known.then_some(time.unwrap_or(0.0));
    programs.read_stall_s = settled(programs.read_stall_s);
    programs.open_stall_s = settled(programs.open_stall_s);
    names.stall_s = names.stall_s.filter(|_| is_known);
    Some(programs.read_stall_s? + programs.open_stall_s? + names.stall_s.unwrap_or(0.0))
}

impl<'a> Summary<'a> {
    pub(crate) fn new(
        program: &'a [OsString],
        ended: Ended,
        elapsed: Duration,
        mut report: Report,
    ) -> Self {
        report.first_refusal = report.first_refusal.map(|reason| without_numbers(&reason));
        report.first_broken_line = report.first_broken_line.map(|why| without_numbers(&why));
        let stall_s = settle_stalls(&mut report);
        let programs = &report.programs;
        let seen_bytes =
            programs.read_bytes + programs.other_read_bytes + programs.outside_read_bytes;
        let share = |all: u64| (seen_bytes as f64 / all as f64).min(1.0);
        let Ended { ending, core_dumped, read_bytes: kernel_read_bytes } = ended;
        Summary {
            program,
            ending,
            core_dumped,
            elapsed_s: elapsed.as_secs_f64(),
            stall_s,
            kernel_read_bytes,
            seen_share: kernel_read_bytes.filter(|&all| all > 0).map(share),
            mpi: None,
            report,
        }
    }

    /// With what the program's ranks have told of MPI-IO.
    pub(crate) fn with_mpi(self, mpi: Option<MpiReport>) -> Self {
        Summary { mpi, ..self }
    }

    /// The line about MPI-IO, if the program has read by it.
    pub(crate) fn mpi_line(&self) -> Option<String> {
        self.mpi.as_ref()?.line()
    }

    /// The summary in one line.
    pub(crate) fn line(&self) -> String {
        // The shell cannot tell: this process ends by the same signal, but dumps no core.
        let core = if self.core_dumped { "; core dumped" } else { "" };
        self.of_manager() + core
    }

    fn of_manager(&self) -> String {
        match &self.report.manager {
            ManagerState::Finished => {}
            ManagerState::Failed(reason) => {
                return format!("the manager failed ({reason}); the program ran on without it");
            }
            ManagerState::Unresponsive => {
                return "the manager did not answer; the program ran without it".into();
            }
        }
        let (hints, names, stall) = (self.hints(), self.names(), self.stall());
        let hints = match &self.report.recorded {
            Some(recorded) => record::summary(recorded),
            None => hints,
        };
        let (learned, coverage) = (self.learned(), self.coverage());
        let mut line = format!("{hints}{names}{learned}; {stall}; {coverage}");
        let ProgramReport { outside, .. } = self.report.programs;
        let count = |count, what| match count {
            0 => String::new(),
            1 => format!("; 1 program {what}"),
            more => format!("; {more} programs {what}"),
        };
        line += &count(self.report.programs.skipped, "skipped (programs like them hardly wait)");
        line += &count(outside, "seen from outside");
        line + &count(silent(&self.report.programs) - outside, "not seen")
    }

    /// The line about the hints that could not be read, if there are any.
    pub(crate) fn broken_lines(&self) -> Option<String> {
        let first = self.report.first_broken_line.as_ref()?;
        Some(match self.report.hints.broken_lines {
            0 | 1 => format!("--hints: {first}"),
            lines => format!("--hints: {first}; {lines} broken lines in all"),
        })
    }

    fn hints(&self) -> String {
        let (hints, blocks) = (&self.report.hints, &self.report.blocks);
        if hints.given == 0 {
            return self.no_hints();
        }
        let refused = match &self.report.first_refusal {
            None => String::new(),
            Some(first) => format!(" ({} refused: {first})", hints.refused.max(1)),
        };
        // Reads of a program without the library are not seen, or not to the last one, so its blocks may not be wasted.
        let unread = match self.report.programs.left_alone {
            0 => "wasted",
            _ => "not seen to be read",
        };
        let mut text = format!(
            "{} {}{refused}, {} {} of {} prefetched: {} useful, {} late, {} {unread}",
            hints.given,
            if hints.given == 1 { "hint" } else { "hints" },
            blocks.prefetched,
            if blocks.prefetched == 1 { "block" } else { "blocks" },
            size::display(blocks.block_bytes),
            blocks.useful,
            blocks.late,
            blocks.wasted,
        );
        if blocks.unfinished > 0 {
            text += &format!(", {} unfinished", blocks.unfinished);
        }
        if blocks.already_cached > 0 {
            let were = if blocks.already_cached == 1 { "was" } else { "were" };
            text += &format!(" ({} {were} cached already)", blocks.already_cached);
        }
        text
    }

    fn no_hints(&self) -> String {
        let learned = &self.report.learned;
        let why = match learned {
            _ if !learned.is_by_hand || learned.problem.is_some() => "",
            of if of.is_known && of.expected == 0 => ": the recording has no names of files",
            of if of.is_known && (of.has_stopped || of.asked > 0) => "",
            _ => ": the program ended before the recording could help",
        };
        format!("no hints{why}")
    }

    fn names(&self) -> String {
        let names = &self.report.names;
        match names.looked_up {
            0 => String::new(),
            1 => format!("; 1 name looked up ahead: {} used", names.used),
            many => format!("; {many} names looked up ahead: {} used", names.used),
        }
    }

    /// How much of what was read ahead was read, by source: if several had
    /// something read ahead, or one was often wrong. Those that were stopped have lines of their own.
    pub(crate) fn sources(&self) -> Option<String> {
        let blocks = &self.report.blocks;
        let least = SOURCE_MIN_BYTES / blocks.block_bytes.max(1);
        let acted =
            |of: &&SourceReport| !of.has_stopped && of.useful + of.late + of.wasted >= least.max(1);
        let acted: Vec<_> = self.report.sources.iter().filter(acted).collect();
        let is_often_wrong = |of: &&SourceReport| of.precision.is_some_and(|share| share < 0.5);
        if acted.len() < 2 && !acted.iter().any(is_often_wrong) {
            return None;
        }
        let of = |of: &&SourceReport| {
            let bytes = |count| size::display(count * blocks.block_bytes);
            let right = of.useful + of.late;
            let late =
                if of.late > 0 { format!(", {} late", bytes(of.late)) } else { String::new() };
            let all = bytes(right + of.wasted);
            format!("{}: {} of {all} read{late}", of.source.name(), bytes(right))
        };
        let all: Vec<_> = acted.iter().map(of).collect();
        let missed = self.report.oracle.unforeseen * blocks.block_bytes;
        let missed = match missed {
            0 => String::new(),
            bytes => format!("; foreseen by none, and waited for: {}", size::display(bytes)),
        };
        Some(format!("read ahead by {}{missed}", all.join("; ")))
    }

    /// The sources that were stopped because they were mostly wrong, a line each.
    pub(crate) fn stopped_sources(&self) -> impl Iterator<Item = String> {
        let block_bytes = self.report.blocks.block_bytes;
        self.report.sources.iter().filter(|of| of.has_stopped).map(move |of| {
            let right = of.useful + of.late;
            let [right, all] =
                [right, right + of.wasted].map(|count| size::display(count * block_bytes));
            format!("guesses from {} stopped: {right} of {all} were read", of.source.name())
        })
    }

    /// What earlier runs led to expect, and how much of that has come true.
    fn learned(&self) -> String {
        let learned = &self.report.learned;
        let differs = if learned.has_stopped { ", then it differed" } else { "" };
        let predicted = match learned.predicted {
            0 => String::new(),
            predicted => {
                format!("; {} of {predicted} predicted files opened", learned.predicted_found)
            }
        };
        let source = if learned.is_by_hand { "recorded" } else { "learned" };
        match learned.is_known {
            true => format!(
                "; {} of {} {source} steps found{differs}{predicted}",
                learned.found, learned.expected
            ),
            false => predicted,
        }
    }

    /// Why nothing is learned, if that failed.
    pub(crate) fn learning_problem(&self) -> Option<String> {
        let problem = self.report.learned.problem.as_ref()?;
        Some(format!("learning: {problem}"))
    }

    /// What is wrong with the recording of `--replay`: it has no end, or is of something else than this run.
    pub(crate) fn recording_problems(&self) -> Vec<String> {
        let learned = &self.report.learned;
        // Of a program without the library, only some steps are seen.
        let is_judged = learned.is_by_hand && silent(&self.report.programs) == 0;
        let LearnReport { asked, found, others, .. } = *learned;
        let is_other = learned.has_stopped || found * MISFIT < asked;
        let misfit = (is_judged && is_other && others > 0).then(|| {
            format!(
                "--replay: the recording does not fit: the program came to {found} of {asked} steps, and to {others} names \
                 that are not recorded; for files that have moved, give --map OLD=NEW"
            )
        });
        learned.lacks.clone().into_iter().chain(misfit).collect()
    }

    fn stall(&self) -> String {
        let programs = &self.report.programs;
        let Some(stall_s) = self.stall_s else {
            return format!("{:.2} s, time spent waiting for reads unknown", self.elapsed_s);
        };
        let all = format!("{stall_s:.2} s of {:.2} s spent waiting for reads", self.elapsed_s);
        match (silent(programs), programs.processes) {
            (0, _) => all,
            (_, 1) => all + " by 1 process, unknown of others",
            (_, more) => format!("{all} by {more} processes, unknown of others"),
        }
    }

    fn coverage(&self) -> String {
        match (self.kernel_read_bytes, self.seen_share) {
            (Some(all), _) if (1..COVERAGE_MIN_BYTES).contains(&all) => {
                format!("{} read", size::display(all))
            }
            (Some(all), Some(share)) => {
                format!("saw {:.0} % of {} read", share * 100.0, size::display(all))
            }
            (Some(_), None) => "nothing was read".into(),
            (None, _) => "share seen unknown".into(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretell_manager::Origin;

    fn summary(programs: ProgramReport, names_s: Option<f64>) -> (String, Option<f64>) {
        let mut report = Report { programs, ..Report::empty(ManagerState::Finished, 1 << 20) };
        report.names.stall_s = names_s;
        let elapsed = Duration::from_secs(3);
        let summary = Summary::new(&[], Ended::default(), elapsed, report);
        let line = summary.line();
        let parts: Vec<&str> = line.split("; ").collect();
        (parts[1].to_owned(), summary.stall_s)
    }

    #[test]
    fn the_time_for_which_programs_wait_is_known_of_those_with_the_library() {
        let stalled = |processes| ProgramReport {
            processes,
            read_stall_s: Some(0.5),
            open_stall_s: Some(0.25),
            ..ProgramReport::default()
        };
        let all = "0.75 s of 3.00 s spent waiting for reads";
        let unknown = "3.00 s, time spent waiting for reads unknown";
        let nothing = ProgramReport::default();
        for (programs, expected, stall_s) in [
            (stalled(1), all, Some(0.75)),
            (nothing, "0.00 s of 3.00 s spent waiting for reads", Some(0.0)),
            (ProgramReport { left_alone: 1, ..nothing }, unknown, None),
            (ProgramReport { outside: 2, ..nothing }, unknown, None),
            (
                ProgramReport { left_alone: 1, ..stalled(1) },
                &format!("{all} by 1 process, unknown of others"),
                Some(0.75),
            ),
            (
                ProgramReport { outside: 1, ..stalled(2) },
                &format!("{all} by 2 processes, unknown of others"),
                Some(0.75),
            ),
        ] {
            assert_eq!(summary(programs, None), (expected.to_owned(), stall_s));
        }
        assert_eq!(summary(stalled(1), Some(0.5)).1, Some(1.25));
    }

    #[test]
    fn without_a_report_of_the_manager_no_time_is_known() {
        let report = Report::empty(ManagerState::Unresponsive, 1 << 20);
        let summary = Summary::new(&[], Ended::default(), Duration::ZERO, report);
        assert_eq!((summary.stall_s, summary.report.programs.read_stall_s), (None, None));
    }

    #[test]
    fn sources_are_told_where_that_tells_something() {
        let source = |source, useful, wasted| SourceReport {
            source,
            prefetched: useful + wasted,
            useful,
            late: 0,
            wasted,
            unfinished: 0,
            refused: 0,
            already_cached: 0,
            overtaken: 0,
            precision: Some(useful as f64 / (useful + wasted) as f64),
            late_share: None,
            has_stopped: false,
        };
        let told = |sources: Vec<SourceReport>| {
            let mut report = Report::empty(ManagerState::Finished, 1 << 20);
            (report.blocks.block_bytes, report.sources) = (1 << 20, sources);
            let summary = Summary::new(&[], Ended::default(), Duration::ZERO, report);
            (summary.sources(), summary.stopped_sources().collect::<Vec<_>>())
        };
        let nothing = (None, vec![]);
        assert_eq!(told(vec![]), nothing);
        assert_eq!(told(vec![source(Origin::Given, 9, 1)]), nothing);
        let (line, _) = told(vec![source(Origin::Given, 9, 1), source(Origin::Walks, 2, 0)]);
        let expected =
            "read ahead by hints: 9 MiB of 10 MiB read; folders gone through: 2 MiB of 2 MiB read";
        assert_eq!(line.as_deref(), Some(expected));
        let (line, _) = told(vec![source(Origin::Arguments, 1, 3)]);
        assert_eq!(line.as_deref(), Some("read ahead by arguments: 1 MiB of 4 MiB read"));
        let wrong = SourceReport { has_stopped: true, ..source(Origin::Arguments, 3, 37) };
        let (line, stopped) = told(vec![wrong]);
        assert_eq!(line, None);
        assert_eq!(stopped, ["guesses from arguments stopped: 3 MiB of 40 MiB were read"]);
    }

    #[test]
    fn a_recording_that_is_of_something_else_is_told() {
        let told = |learned: LearnReport| {
            let report = Report { learned, ..Report::empty(ManagerState::Finished, 1 << 20) };
            let summary = Summary::new(&[], Ended::default(), Duration::ZERO, report);
            (
                summary.line().split("; ").take(2).collect::<Vec<_>>().join("; "),
                summary.recording_problems(),
            )
        };
        let by_hand = LearnReport { is_by_hand: true, ..LearnReport::default() };
        let (line, problems) = told(by_hand.clone());
        assert!(line.starts_with("no hints: the program ended before the recording could help"));
        assert!(problems.is_empty());
        let read = LearnReport {
            is_known: true,
            expected: 100,
            asked: 100,
            found: 90,
            others: 9,
            ..by_hand
        };
        let fits = ("no hints; 90 of 100 recorded steps found".to_owned(), vec![]);
        assert_eq!(told(read.clone()), fits);
        let (line, problems) =
            told(LearnReport { found: 5, others: 70, has_stopped: true, ..read.clone() });
        assert_eq!(line, "no hints; 5 of 100 recorded steps found, then it differed");
        assert!(
            problems.len() == 1 && problems[0].contains("5 of 100 steps, and to 70 names"),
            "{problems:?}"
        );
        let lacks = Some("--replay: x: stopped early".to_owned());
        assert_eq!(told(LearnReport { lacks, ..read }).1, ["--replay: x: stopped early"]);
    }

    #[test]
    fn broken_lines_are_told_with_their_number() {
        let told = |broken_lines, first: Option<&str>| {
            let mut report = Report::empty(ManagerState::Finished, 1 << 20);
            report.hints.broken_lines = broken_lines;
            report.first_broken_line = first.map(str::to_owned);
            Summary::new(&[], Ended::default(), Duration::ZERO, report).broken_lines()
        };
        assert_eq!(told(0, None), None);
        let first = "list: line 2: a zero byte";
        assert_eq!(told(1, Some(first)).as_deref(), Some("--hints: list: line 2: a zero byte"));
        let all = "--hints: list: line 2: a zero byte; 3 broken lines in all";
        assert_eq!(told(3, Some(first)).as_deref(), Some(all));
    }
}
