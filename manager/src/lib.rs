//! The Advice Manager: hints in, page-cache prefetches out.
//!
//! ```text
//!  sources ──▶ feeds ──┐                       ┌──▶ device threads ──▶ open, fadvise
//!  control socket ─────┼──▶ session ──▶ policy ┤
//!  rings of programs ──┘    (one thread)       └◀── arrivals (mincore)
//! ```
//!
//! [`Manager::start`] opens the control socket and starts the session's thread. A program introduces
//! itself when the interposing library is preloaded into it and knows the socket's name.
//! Nothing here can reach into a program: if the manager fails, programs run on without it.

mod budget;
mod connections;
mod control_groups;
mod descriptors;
mod driver;
mod explain;
mod fault;
mod feed;
mod following;
mod lesson;
mod lineage;
mod mounts;
mod observer;
pub mod opens;
mod outside;
pub mod probe;
mod process_files;
mod programs;
mod reads;
pub mod recorded;
mod report;
mod session;
pub mod shares;
pub mod source;
mod sources;
mod threads;
mod walks;

use std::io;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, channel};
use std::thread;
use std::time::Duration;

use foretell_policy::{Config, Memory};
use foretell_protocol::Listener;

pub use budget::{available_memory_bytes, machine_memory_bytes};
pub use descriptors::raise_limit as raise_descriptor_limit;
pub use driver::backend::BackendKind;
pub use fault::Fault;
pub use feed::SourceItem;
pub use foretell_learn as learn;
pub use outside::Root;
pub use reads::BLOCK_BYTES;
pub use report::{
    BlockReport, HintReport, LearnReport, ManagerState, NameReport, OracleReport, ProgramReport,
    RecordReport, Report, RuleReport, SourceReport,
};
pub use sources::Origin;

use connections::Connections;
use driver::done::DoneQueue;
pub use lesson::Lesson;
use outside::Outside;
pub use session::learning::{Learn, Replayed};
pub use session::shared::Figures;

use session::shared::Asked;
use session::{Parts, Session};
use threads::Threads;

/// Shares of the process's descriptors, as divisors: for lookups and open files, for connections, and for pidfds that report
/// the end of a program. The rest serves descriptors received with messages and folders being listed.
const FILES_DIVISOR: u64 = 2;
const CONNECTIONS_DIVISOR: u64 = 4;
const WATCHED_DIVISOR: u64 = 8;
/// As above, for looking at processes from outside.
const OUTSIDE_DIVISOR: u64 = 16;

/// Stack of the session's thread. 1 MiB: it makes no deep calls.
const STACK_BYTES: usize = 1 << 20;

/// How long [`Manager::stop`] waits for the report.
const REPORT_PATIENCE: Duration = Duration::from_secs(2);

/// A source of disclosures, as [`Manager::start`] takes it.
pub type Source = Box<dyn Iterator<Item = SourceItem> + Send>;

/// What a manager is started with.
#[derive(Default)]
pub struct Options {
    /// Most bytes of prefetched and unread data. With `release`, data kept for another read counts too. A control group may
    /// allow less.
    pub budget_bytes: u64,
    /// Whether foretell releases data from the page cache when the budget is used up. It releases data that it brought in and
    /// that was read, and of this the data whose next read is furthest away.
    pub release: bool,
    /// What carries out fetches. Where it cannot be had, the file system's own does.
    pub backend: BackendKind,
    /// Number of the policy's last decisions in the report; 0 for none.
    pub decisions_max: usize,
    /// Where hints come from, besides the control socket.
    pub sources: Vec<Source>,
    /// The same, of those that guess: nobody has said what they say.
    pub guesses: Vec<Source>,
    /// The command line of the run, if arguments of all processes that it starts are hints. A source discloses those of the
    /// command line itself.
    pub lineage: Option<source::Setting>,
    /// Whether what programs do is followed too: their own advice.
    pub observes: bool,
    /// Whether the time is counted for which calls about names wait. It is where `observes` is on, too.
    pub counts_names: bool,
    /// Where the processes of the run are, so that those without the library are seen from outside.
    pub root: Option<Root>,
    /// What tells of opens of programs without the library, if anything does.
    pub opens: Option<opens::Opens>,
    /// What is to be learned, and where from; `None` for nothing.
    pub learn: Option<Learn>,
    /// The user's rules about files.
    pub rules: Option<foretell_rules::Rules>,
    /// What the run is to be recorded to.
    pub record: Option<recorded::Record>,
    /// A budget that managers of other runs in this process share, within which [`budget_bytes`](Self::budget_bytes) are the
    /// most that this one may have.
    pub shares: Option<shares::Shares>,
    /// A deliberate fault, for tests.
    pub fault: Option<Fault>,
}

/// What is left to be done after the report.
#[derive(Debug, Default)]
pub struct Ends {
    /// What is to be learned from the run.
    pub lesson: Option<Lesson>,
    /// The recording, which is being written.
    pub recording: Option<recorded::Written>,
}

/// Asks a manager for its figures. Clones ask the same one.
#[derive(Clone, Debug)]
pub struct Asker {
    asked: Arc<Asked>,
    bell: Arc<DoneQueue>,
}

impl Asker {
    /// Asks what the manager does at this moment. One that has ended closes the channel.
    pub fn ask(&self) -> Receiver<Figures> {
        let answer = self.asked.ask();
        self.bell.ring();
        answer
    }
}

/// Why a manager cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum ManagerError {
    /// The control socket cannot be opened.
    #[error("cannot open a control socket: {0}")]
    Socket(io::Error),
    /// The eventfd or the session's thread cannot be had.
    #[error("cannot start the manager: {0}")]
    Start(io::Error),
    /// Threads count as processes against the limits, and the few that are left belong to the program.
    #[error("the limit of processes leaves {0}, and the program needs them")]
    Processes(u64),
}

/// A running manager. Dropping it leaves its thread to end with the process; [`stop`](Self::stop)
/// ends it in order.
#[derive(Debug)]
pub struct Manager {
    address: String,
    budget_bytes: u64,
    stop: Arc<AtomicBool>,
    is_abandoned: Arc<AtomicBool>,
    bell: Arc<DoneQueue>,
    asked: Arc<Asked>,
    report: Receiver<(Report, Ends)>,
}

impl Manager {
    /// Starts a manager in this process.
    ///
    /// # Errors
    /// [`ManagerError`], when the system is out of descriptors or threads, or limits leave too few of them.
    pub fn start(options: Options) -> Result<Self, ManagerError> {
        Self::start_at(Listener::bind().map_err(ManagerError::Socket)?, options)
    }

    /// Starts a manager in this process, which hears programs at `listener`. They may have connected before.
    ///
    /// # Errors
    /// As [`start`](Self::start).
    pub fn start_at(listener: Listener, options: Options) -> Result<Self, ManagerError> {
        let threads = match &options.shares {
            Some(shares) => shares.threads(),
            None => Threads::new(),
        };
        let threads = threads.map_err(ManagerError::Processes)?;
        let address = listener.address().to_owned();
        let bell = Arc::new(DoneQueue::new().map_err(ManagerError::Start)?);
        let stop = Arc::new(AtomicBool::new(false));
        let is_abandoned = Arc::new(AtomicBool::new(false));
        let limited_bytes = budget::within_limits(options.budget_bytes, options.release);
        let shared_bytes = options.shares.as_ref().map_or(u64::MAX, shares::Shares::full_bytes);
        let budget_bytes = limited_bytes.min(shared_bytes).max(BLOCK_BYTES);
        let memory = Memory::Kernel { keeps: options.release };
        let mut config = Config::new(memory, BLOCK_BYTES, budget_bytes);
        config.decisions_max = options.decisions_max;
        let managers = if options.shares.is_some() { shares::MANAGERS_MAX as u64 } else { 1 };
        let descriptors = descriptors::raise_limit() / managers;
        let share = |divisor| usize::try_from(descriptors / divisor).unwrap_or(usize::MAX).max(1);
        config.resolved_max = config.resolved_max.min(share(FILES_DIVISOR));
        let start_outside =
            |root| Outside::start(root, share(OUTSIDE_DIVISOR), Arc::clone(&bell), &threads);
        let outside = options.root.and_then(start_outside);
        let most_blocks = config.capacity_blocks;
        let lease = options.shares.map(|shares| shares.join(most_blocks, Arc::clone(&bell)));
        let asked = Arc::<Asked>::default();
        let parts = Parts {
            backend: options.backend,
            outside,
            connections: Connections::new(listener, share(CONNECTIONS_DIVISOR)),
            watched_max: share(WATCHED_DIVISOR),
            threads,
            done: Arc::clone(&bell),
            stop: Arc::clone(&stop),
            is_abandoned: Arc::clone(&is_abandoned),
            lineage: options.lineage,
            observes: options.observes,
            counts_names: options.counts_names,
            opens: options.opens,
            learn: options.learn,
            record: options.record,
            lease,
            asked: Arc::clone(&asked),
            rules: options.rules,
            fault: options.fault,
        };
        let mut session = Session::new(config, parts);
        let given = options.sources.into_iter().map(|source| (source, Origin::Given));
        let guesses = options.guesses.into_iter().map(|source| (source, Origin::Arguments));
        given.chain(guesses).for_each(|(source, origin)| session.add_source(source, origin));
        let (sender, report) = channel();
        let of_session = Arc::clone(&asked);
        thread::Builder::new()
            .name("foretell-session".into())
            .stack_size(STACK_BYTES)
            .spawn(move || {
                let report = catch_unwind(AssertUnwindSafe(|| session.run()));
                of_session.close();
                let _ = sender.send(report.unwrap_or_else(|panic| {
                    let reason = panic_message(panic.as_ref());
                    (Report::empty(ManagerState::Failed(reason), budget_bytes), Ends::default())
                }));
            })
            .map_err(ManagerError::Start)?;
        Ok(Manager { address, budget_bytes, stop, is_abandoned, bell, asked, report })
    }

    /// The value for a program's environment variable `FORETELL_SOCKET`.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// Where its figures can be had while it runs.
    pub fn asker(&self) -> Asker {
        Asker { asked: Arc::clone(&self.asked), bell: Arc::clone(&self.bell) }
    }

    /// The run goes on without its manager, so a recording has no end.
    pub fn abandon(&self) {
        self.is_abandoned.store(true, Ordering::Release);
    }

    /// Ends the manager and returns its report. Waits 2 s at most.
    pub fn stop(self) -> Report {
        self.finish().0
    }

    /// As [`stop`](Self::stop), also returns what is left to be done.
    pub fn finish(self) -> (Report, Ends) {
        self.stop.store(true, Ordering::Release);
        self.bell.ring();
        match self.report.recv_timeout(REPORT_PATIENCE) {
            Ok(report) => report,
            Err(RecvTimeoutError::Timeout) => {
                (Report::empty(ManagerState::Unresponsive, self.budget_bytes), Ends::default())
            }
            Err(RecvTimeoutError::Disconnected) => {
                let state = ManagerState::Failed("its thread ended".into());
                (Report::empty(state, self.budget_bytes), Ends::default())
            }
        }
    }
}

/// What of a budget this process's control groups allow, in bytes.
pub fn within_limits(budget_bytes: u64) -> u64 {
    budget::within_limits(budget_bytes, false)
}

fn panic_message(panic: &(dyn std::any::Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned())
        .unwrap_or_else(|| "no reason given".into())
}
