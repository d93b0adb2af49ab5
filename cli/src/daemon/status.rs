//! `foretell status`: what the daemon does at this moment.

use std::fmt::Write;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use foretell_manager::{BlockReport, Figures, ProgramReport};
use serde::{Deserialize, Serialize};

use super::wire::Request;
use super::{Answer, client, folder};
use crate::failure::{Failure, without_controls, written};
use crate::size;

pub(crate) const HELP: &str = "\
HELD are bytes that are in memory or on their way, and not read yet; AHEAD were prefetched so far. IN TIME were in memory \
before they were read, LATE ones were on their way then, UNREAD ones were given up.

Exit codes: 0 done; 1 no daemon runs, or it does not answer; 2 wrong usage.";

/// How long the daemon may take for its answer.
const PATIENCE: Duration = Duration::from_secs(3);

/// Columns of a command that are shown: with all but the last column of figures, a line has 80.
const COMMAND_COLUMNS: usize = 16;

#[derive(Args)]
pub(crate) struct StatusArgs {
    /// Print the figures as JSON
    #[arg(long)]
    json: bool,
}

/// What a daemon does.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct Status {
    pub(super) version: String,
    pub(super) pid: u32,
    pub(super) uptime_s: f64,
    /// Bytes that are prefetched and unread at most, at this moment, and without memory pressure.
    pub(super) budget_bytes: u64,
    pub(super) full_budget_bytes: u64,
    /// Bytes that are prefetched and unread, or in flight.
    pub(super) held_bytes: u64,
    /// Times that memory was short.
    pub(super) pressures: u64,
    /// Whether it is about to end: no run comes in any more.
    pub(super) is_draining: bool,
    /// Runs that asked and were left to managers of their own.
    pub(super) refused_runs: u64,
    pub(super) ended: Totals,
    pub(super) runs: Vec<RunStatus>,
}

/// A run under way.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(super) struct RunStatus {
    pub(super) run: u64,
    pub(super) pid: i32,
    pub(super) command: String,
    pub(super) seconds: f64,
    pub(super) figures: Figures,
}

/// Sums over runs.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub(super) struct Totals {
    pub(super) runs: u64,
    pub(super) processes: u64,
    pub(super) read_bytes: u64,
    pub(super) prefetched_bytes: u64,
    pub(super) useful_bytes: u64,
    pub(super) late_bytes: u64,
    pub(super) wasted_bytes: u64,
    pub(super) stall_s: f64,
}

impl Totals {
    pub(super) fn add(&mut self, blocks: &BlockReport, programs: &ProgramReport) {
        let bytes = |count: u64| count * blocks.block_bytes;
        self.runs += 1;
        self.processes += programs.processes;
        // What programs have counted may be any number.
        self.read_bytes = self.read_bytes.saturating_add(programs.read_bytes);
        self.prefetched_bytes += bytes(blocks.prefetched);
        self.useful_bytes += bytes(blocks.useful);
        self.late_bytes += bytes(blocks.late);
        self.wasted_bytes += bytes(blocks.wasted);
        self.stall_s += waited_s(programs);
    }
}

/// Seconds for which programs have waited for reads and opens.
fn waited_s(programs: &ProgramReport) -> f64 {
    programs.read_stall_s.unwrap_or(0.0) + programs.open_stall_s.unwrap_or(0.0)
}

pub(crate) fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let status = ask()?;
    let text = match args.json {
        true => serde_json::to_string_pretty(&status).map_err(Failure::failed)? + "\n",
        false => status.text(None),
    };
    let result = std::io::Write::write_all(&mut std::io::stdout(), text.as_bytes());
    written(result)?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the daemon of this user.
pub(super) fn ask() -> Result<Status, Failure> {
    let none = || Failure::failed("no daemon of yours runs: start one with `foretell daemon`");
    let folder = folder::path().ok_or_else(none)?;
    let socket = folder::reach(&folder).map_err(|_| none())?;
    match client::ask(&socket, &Request::Status, &[], PATIENCE) {
        Some(Answer::Status(status)) => Ok(*status),
        Some(_) => {
            Err(Failure::failed("the daemon is of another version of foretell: start it again"))
        }
        None => Err(Failure::failed(
            "the daemon does not answer: it is stopped, or of another version; start it again",
        )),
    }
}

impl Status {
    /// For people. `before`: an earlier status and the seconds since, for rates.
    pub(super) fn text(&self, before: Option<(&Status, f64)>) -> String {
        let mut text = String::new();
        let mebibytes = |bytes: u64| size::display(bytes);
        let _ = writeln!(
            text,
            "foretell {}, process {}, for {}: {} of {} in use",
            self.version,
            self.pid,
            time(self.uptime_s),
            mebibytes(self.held_bytes),
            mebibytes(self.budget_bytes),
        );
        if self.budget_bytes < self.full_budget_bytes {
            let full = mebibytes(self.full_budget_bytes);
            let _ = writeln!(text, "memory is short: without that, the budget is {full}");
        }
        if self.is_draining {
            let _ = writeln!(
                text,
                "it is about to end: runs that begin now have managers of their own"
            );
        }
        let Totals {
            runs, prefetched_bytes, useful_bytes, late_bytes, wasted_bytes, stall_s, ..
        } = self.ended;
        let _ = writeln!(
            text,
            "{runs} runs have ended, {} had managers of their own\n{} prefetched, {} in time, {} late, {} not read; {stall_s:.1} s of waiting",
            self.refused_runs,
            mebibytes(prefetched_bytes),
            mebibytes(useful_bytes),
            mebibytes(late_bytes),
            mebibytes(wasted_bytes),
        );
        if self.runs.is_empty() {
            let _ = writeln!(text, "no run is under way");
            return text;
        }
        let _ = writeln!(
            text,
            "\n{:>4} {:>7} {:>6} {:>6}  {:COMMAND_COLUMNS$} {:>8} {:>8} {:>8} {:>8} {:>8}",
            "RUN", "PID", "TIME", "WAITED", "COMMAND", "HELD", "AHEAD", "IN TIME", "LATE", "UNREAD",
        );
        for run in &self.runs {
            let blocks = &run.figures.blocks;
            let bytes = |count: u64| size::display(count * blocks.block_bytes);
            let was = before.and_then(|(status, seconds)| {
                let was = status.runs.iter().find(|was| was.run == run.run)?;
                Some(
                    (waited_s(&run.figures.programs) - waited_s(&was.figures.programs))
                        / seconds.max(1e-3),
                )
            });
            let waited = match was {
                Some(share) => format!("{:.0} %", share * 100.0),
                None => format!("{:.1} s", waited_s(&run.figures.programs)),
            };
            let command = without_controls(&run.command).to_string();
            let command: String = command.chars().take(COMMAND_COLUMNS).collect();
            let _ = writeln!(
                text,
                "{:>4} {:>7} {:>6} {waited:>6}  {command:COMMAND_COLUMNS$} {:>8} {:>8} {:>8} {:>8} {:>8}",
                run.run,
                run.pid,
                time(run.seconds),
                size::display(run.figures.held_bytes),
                bytes(blocks.prefetched),
                bytes(blocks.useful),
                bytes(blocks.late),
                bytes(blocks.wasted),
            );
        }
        text
    }
}

/// `12 s`, `3 min`, `5 h`, `2 d`.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 5940.0 => format!("{:.0} min", s / 60.0),
        s if s < 360_000.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_status_is_a_table_without_control_characters() {
        let mut figures = Figures::default();
        figures.blocks.block_bytes = 8192;
        figures.blocks.useful = 128;
        figures.programs.read_stall_s = Some(2.0);
        let command = "sh -c \x1b[2Jx\ny".to_owned();
        let run = RunStatus { run: 3, pid: 77, command, seconds: 130.0, figures: figures.clone() };
        let mut ended = Totals::default();
        ended.add(&figures.blocks, &figures.programs);
        let status = Status {
            version: "1".into(),
            pid: 5,
            uptime_s: 7200.0,
            budget_bytes: 128 << 20,
            full_budget_bytes: 256 << 20,
            held_bytes: 1 << 20,
            pressures: 1,
            is_draining: true,
            refused_runs: 2,
            ended,
            runs: vec![run],
        };
        let text = status.text(None);
        assert!(text.contains("1 MiB of 128 MiB") && text.contains("memory is short"), "{text}");
        assert!(text.contains("it is about to end"), "{text}");
        assert!(text.contains(" 2.2 min") || text.contains(" 2 min"), "{text}");
        assert!(!text.contains('\x1b') && text.lines().count() == 8, "{text}");
        let mut before = status.clone();
        before.runs[0].figures.programs.read_stall_s = Some(1.5);
        assert!(status.text(Some((&before, 1.0))).contains(" 50 %"));
        let json = serde_json::to_string(&status).expect("JSON");
        let again: Status = serde_json::from_str(&json).expect("a status");
        assert_eq!(again.ended, status.ended);
    }
}
