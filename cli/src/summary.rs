//! The summary and the figures of `foretell run`, after the program has ended.

use std::ffi::OsString;
use std::time::Duration;

use foretell_manager::{ManagerState, ProgramReport, Report};
use serde::{Serialize, Serializer};

use crate::failure::without_numbers;
use crate::size;

/// Below so many bytes read, the summary gives no share seen: the dynamic linker reads a few KiB of libraries before the
/// interposing library works.
const COVERAGE_MIN_BYTES: u64 = 64 << 10;

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
    /// Seconds that the program's reads and opens had to wait.
    stall_s: f64,
    /// Bytes that the program read from anything, by the kernel's count.
    kernel_read_bytes: Option<u64>,
    /// The share of them that passed through the interposing library.
    seen_share: Option<f64>,
    #[serde(flatten)]
    report: Report,
}

impl<'a> Summary<'a> {
    pub(crate) fn new(
        program: &'a [OsString],
        ended: Ended,
        elapsed: Duration,
        mut report: Report,
    ) -> Self {
        report.first_refusal = report.first_refusal.map(|reason| without_numbers(&reason));
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
            stall_s: report.programs.read_stall_s
                + report.programs.open_stall_s
                + report.names.stall_s,
            kernel_read_bytes,
            seen_share: kernel_read_bytes.filter(|&all| all > 0).map(share),
            report,
        }
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
        let mut line = format!("{hints}{names}; {stall}; {}", self.coverage());
        let ProgramReport { left_alone, outside, .. } = self.report.programs;
        let count = |count, what| match count {
            0 => String::new(),
            1 => format!("; 1 program {what}"),
            more => format!("; {more} programs {what}"),
        };
        line += &count(outside, "seen from outside");
        // A process outside may execute several programs.
        line + &count(left_alone.saturating_sub(outside), "not seen")
    }

    fn hints(&self) -> String {
        let (hints, blocks) = (&self.report.hints, &self.report.blocks);
        if hints.given == 0 {
            return "no hints".into();
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

    fn names(&self) -> String {
        let names = &self.report.names;
        match names.looked_up {
            0 => String::new(),
            1 => format!("; 1 name looked up ahead: {} used", names.used),
            many => format!("; {many} names looked up ahead: {} used", names.used),
        }
    }

    fn stall(&self) -> String {
        format!("{:.2} s of {:.2} s spent waiting for reads", self.stall_s, self.elapsed_s)
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
