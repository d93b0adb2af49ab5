//! `foretell status`: what the daemon does at this moment.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;
use foretell_family::HostStatus;
use foretell_manager::{BlockReport, Figures, ProgramReport};
use serde::{Deserialize, Serialize};

use super::client::Unanswered;
use super::wire::Request;
use super::{Answer, client, folder, view};
use crate::failure::{Failure, written};

pub(crate) const HELP: &str = "\
HELD are bytes that are in memory or on their way, and not read yet; AHEAD were prefetched so far. IN TIME were in memory \
before they were read, LATE ones were on their way then, UNREAD ones were given up. WAITED is how long the run's programs have \
waited for reads and opens. A narrow terminal shows fewer columns; a pipe or file gets all of them.

With `foretell daemon --cache`, a line tells of the cache: its size, how much of it is filled, blocks that were there when a \
program asked (hits) and that had to be fetched then, and the stores of programs that use it.

Exit codes: 0 done; 1 no daemon runs, or it does not answer; 2 wrong usage.";

/// How long the daemon may take for its answer.
const PATIENCE: Duration = Duration::from_secs(3);

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
    /// The cache of stores; `None` without `--cache`.
    pub(super) cache: Option<HostStatus>,
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
pub(super) fn waited_s(programs: &ProgramReport) -> f64 {
    programs.read_stall_s.unwrap_or(0.0) + programs.open_stall_s.unwrap_or(0.0)
}

pub(crate) fn status(args: &StatusArgs) -> Result<ExitCode, Failure> {
    let status = ask()?;
    let text = match args.json {
        true => serde_json::to_string_pretty(&status).map_err(Failure::failed)? + "\n",
        false => {
            let columns = view::terminal().map(|(_, columns)| columns);
            view::lines(&status, None, columns).join("\n") + "\n"
        }
    };
    written(io::stdout().write_all(text.as_bytes()))?;
    Ok(ExitCode::SUCCESS)
}

/// Asks the daemon of this user.
pub(super) fn ask() -> Result<Status, Failure> {
    let none = || Failure::failed("no daemon of this user runs: start one with `foretell daemon`");
    let folder = folder::path().ok_or_else(none)?;
    match ask_at(&folder) {
        Ok(Answer::Status(status)) => Ok(*status),
        Ok(_) | Err(Mute::Refuses) => {
            Err(Failure::failed("the daemon is of another version of foretell: start it again"))
        }
        Err(Mute::Silent) => Err(silent(folder::holder(&folder))),
        Err(Mute::Absent) => Err(none()),
    }
}

/// Why a daemon tells nothing.
enum Mute {
    /// Nobody listens.
    Absent,
    /// It is there, and does not answer.
    Silent,
    /// It does not understand.
    Refuses,
}

fn ask_at(folder: &Path) -> Result<Answer, Mute> {
    let socket = folder::reach(folder).map_err(|error| match error.kind() {
        // Its queue is full.
        io::ErrorKind::WouldBlock => Mute::Silent,
        _ => Mute::Absent,
    })?;
    // A stopped process need not be waited for.
    if folder::holder(folder).is_some_and(client::is_stopped) {
        return Err(Mute::Silent);
    }
    client::ask(&socket, &Request::Status, &[], PATIENCE).map_err(|why| match why {
        Unanswered::Late => Mute::Silent,
        Unanswered::Refused => Mute::Refuses,
    })
}

/// Whether the daemon of this folder does not answer.
pub(super) fn is_silent(folder: &Path) -> bool {
    matches!(ask_at(folder), Err(Mute::Silent))
}

/// What is said of a daemon that does not answer.
pub(super) fn silent(process: Option<u32>) -> Failure {
    Failure::failed(match process {
        Some(pid) => format!(
            "the daemon, process {pid}, does not answer; it may be stopped: \
             `kill -CONT {pid}` lets it go on, `kill -9 {pid}` ends it"
        ),
        None => {
            "the daemon does not answer; it may be stopped: end it, and start it again".to_owned()
        }
    })
}
