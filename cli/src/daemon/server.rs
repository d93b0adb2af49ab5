//! `foretell daemon`: its options, its start and its end. The loop is in `hear.rs`.

use std::os::fd::{BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;
use std::time::{Duration, Instant};

use clap::Args;
use foretell_cache::CacheOptions;
use foretell_family::{Admission, Host, HostOptions};
use foretell_manager::shares::Shares;
use rustix::event::{EventfdFlags, eventfd};

use super::about::About;
use super::folder::{self, Refused, Taken};
use super::hear::{Hall, Until};
use super::log::{Format, Log};
use super::managed::House;
use super::peer::Peer;
use super::{activation, metrics, status};
use crate::failure::Failure;
use crate::{duration, rules, signals, size};

pub(crate) const HELP: &str = "\
While it runs, `foretell run` has its programs managed by it, within one budget. When it ends, or does not answer, runs \
have managers of their own. It is one process for each user, and does not go into the background: start it from a \
terminal, or by the systemd units that `make install` puts into lib/systemd/user.

With --cache, shared stores of Python and C join one cache of the daemon's instead of having their own. When it ends, programs \
read on, each through a cache of its own.

FORETELL_DAEMON names the folder of its sockets; set and empty, runs look for no daemon. Otherwise that is `foretell` in \
XDG_RUNTIME_DIR, or /tmp/foretell-UID.

SIGTERM and SIGINT end it, and SIGHUP does without --rules: no run comes in any more, and those under way may end; a second signal ends it within 3 s. \
Programs go on in any case.

Exit codes: 0 ended by a signal or --idle-exit; 1 failed, or another daemon runs; 2 wrong usage.";

/// The least budget; a smaller one is refused as a mistake.
const BUDGET_MIN_BYTES: u64 = 1 << 20;

/// How long the daemon waits at its end for runs to write what they have learned.
const LAST_WORDS: Duration = Duration::from_secs(3);

#[derive(Args)]
pub(crate) struct DaemonArgs {
    /// Memory for prefetched data that is not yet read, for all runs together, e.g. 64MiB or 2GiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "256MiB")]
    budget: u64,

    /// Have one cache of SIZE for the shared stores of all programs of yours, e.g. 8GiB: `foretell.Store(url, shared=True)` in
    /// Python, and stores in C (foretell_store.h). Programs read it without a copy of their own
    #[arg(long, value_name = "SIZE", value_parser = size::parse)]
    cache: Option<u64>,

    /// Give memory of --cache back while the machine is short of it. The price: programs that join the cache could write to its
    /// data if they set out to do so, and others would read that
    #[arg(long, requires = "cache")]
    cache_gives_back: bool,

    /// Unit of fetching of --cache: a power of two from 4KiB to 16MiB
    #[arg(long, value_name = "SIZE", value_parser = size::parse, default_value = "16KiB", requires = "cache")]
    cache_block: u64,

    /// Rules about files for all runs that have none of their own (see `foretell rules check`). SIGHUP reads FILE again; if it has
    /// mistakes, the rules before stay in force
    #[arg(long, value_name = "FILE")]
    rules: Option<PathBuf>,

    /// How long runs may go on after the signal that ends the daemon
    #[arg(long, value_name = "TIME", value_parser = duration::parse, default_value = "10s")]
    drain: Duration,

    /// End once no run was under way for TIME, e.g. 10min: for a daemon that a socket unit of systemd starts again
    #[arg(long, value_name = "TIME", value_parser = duration::parse)]
    idle_exit: Option<Duration>,

    /// How lines of the log look, on standard error
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    log: Format,

    /// Write no log
    #[arg(short, long)]
    quiet: bool,

    /// Serve metrics for Prometheus at this port of the loopback address, too. They are always served on `metrics.sock` in the
    /// daemon's folder
    #[arg(long, value_name = "PORT", value_parser = clap::value_parser!(u16).range(1..))]
    metrics_port: Option<u16>,
}

pub(crate) fn daemon(args: &DaemonArgs) -> Result<ExitCode, Failure> {
    let budget_bytes = args.budget;
    if budget_bytes < BUDGET_MIN_BYTES {
        let line = format!("--budget: {} is too small; at least 1MiB", size::display(budget_bytes));
        return Err(Failure::usage(line));
    }
    let full_bytes = foretell_manager::within_limits(budget_bytes);
    let cache = args.cache.map(|bytes| cache_options(bytes, args.cache_block)).transpose()?;
    let folder = folder::path().ok_or_else(|| {
        Failure::failed("FORETELL_DAEMON is set and empty: unset it, or name a folder in it")
    })?;
    signals::block(&signals::OF_A_SERVER);
    let given = activation::sockets(&folder).map_err(Failure::failed)?;
    if given.stores.is_some() && cache.is_none() {
        return Err(Failure::failed(
            "systemd has passed the socket of the cache, and --cache is missing: add it to ExecStart, \
             or disable foretell-cache.socket",
        ));
    }
    let is_given = given.runs.is_some();
    let are_given = (is_given, given.stores.is_some());
    let name = folder.display().to_string();
    let taken = Taken::take(folder.clone(), are_given).map_err(|refused| match refused {
        Refused::By(Some(pid)) if status::is_silent(&folder) => status::silent(Some(pid)),
        Refused::By(Some(pid)) => Failure::failed(format!(
            "a daemon already runs, or has not ended yet (process {pid}); end it with: kill {pid}"
        )),
        Refused::By(None) => Failure::failed(format!("{name}: a daemon already runs")),
        Refused::Heard(socket) => Failure::failed(format!(
            "{}: another process listens there; if it is systemd, systemctl --user stop foretell.socket foretell-cache.socket foretell.service",
            socket.display()
        )),
        Refused::Error(error) => Failure::failed(format!("{name}: {error}")),
    })?;
    let failed = |what: &'static str| {
        move |error: std::io::Error| Failure::failed(format!("{what}: {error}"))
    };
    let listener = given.runs.map_or_else(|| taken.listen(), Ok);
    let listener = listener.map_err(failed("cannot open the daemon's socket"))?;
    let flags = EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK;
    let new_event =
        || eventfd(0, flags).map_err(|error| Failure::failed(format!("cannot start: {error}")));
    let stop = Arc::new(new_event()?);
    let log = Log { format: args.log, is_quiet: args.quiet };
    let house = House::new(Shares::new(full_bytes), log, (new_event()?, new_event()?));
    let house = Arc::new(house);
    let (gives_back, socket) = (args.cache_gives_back, given.stores);
    let begin = |cache| begin_cache(HostOptions { cache, gives_back, socket }, &folder, &house);
    let cache = cache.map(begin).transpose()?;
    let about = Arc::new(About::new(Arc::clone(&house), full_bytes, cache));
    let mut reloaded = None;
    let socket = taken.metrics().map_err(failed("cannot open the socket for metrics"))?;
    metrics::serve(Arc::clone(&about), &socket, args.metrics_port)
        .map_err(failed("cannot serve metrics"))?;
    if let Some(path) = &args.rules {
        // The working folder changes below.
        let path = std::path::absolute(path).map_err(failed("--rules"))?;
        house.set_rules(rules::load(&path).map_err(|failure| Failure::failed(failure.line))?);
        reloaded = Some(path);
    }
    take_signals(&house, &stop, reloaded).map_err(failed("cannot start"))?;
    // SAFETY: only a parameter of the allocator is set. Memory freed in one arena is not used by others.
    unsafe { libc::mallopt(libc::M_ARENA_MAX, 2) };
    // Nothing may keep a file system from being unmounted.
    let _ = rustix::process::chdir("/");
    log.tell(
        "daemon_begins",
        &[
            ("pid", std::process::id().into()),
            ("folder", name.into()),
            ("budget_bytes", full_bytes.into()),
            ("cache_bytes", args.cache.into()),
            ("socket_given", (is_given || are_given.1).into()),
        ],
    );
    let mut hall = Hall::new(Arc::clone(&about), (listener, stop, new_event()?));
    hall.hear(Until::Stopped { idle: args.idle_exit });
    house.drain();
    about.hide_cache();
    log.tell("daemon_drains", &[("seconds", args.drain.as_secs_f64().into())]);
    let later = |patience| Instant::now().checked_add(patience).unwrap_or_else(far_away);
    hall.hear(Until::Drained { deadline: later(args.drain), hears_stop: true });
    let _ = rustix::io::write(&house.over, &1u64.to_ne_bytes());
    hall.hear(Until::Drained { deadline: later(LAST_WORDS), hears_stop: false });
    taken.hide();
    about.end_cache();
    drop(hall);
    log.tell("daemon_ends", &[]);
    drop(taken);
    Ok(ExitCode::SUCCESS)
}

/// The size of the cache, if it can be that.
fn cache_options(budget_bytes: u64, block_bytes: u64) -> Result<CacheOptions, Failure> {
    let shown = size::display(budget_bytes);
    if budget_bytes < BUDGET_MIN_BYTES {
        return Err(Failure::usage(format!("--cache: {shown} is too small; at least 1MiB")));
    }
    let machine_bytes = foretell_manager::machine_memory_bytes().unwrap_or(u64::MAX);
    let most_bytes = foretell_manager::within_limits(machine_bytes);
    if budget_bytes > most_bytes {
        let most = size::display(most_bytes);
        return Err(Failure::usage(format!(
            "--cache: {shown} is too large; at most {most}, which the machine or the control group has for it"
        )));
    }
    let options = CacheOptions { budget_bytes, block_bytes: block_bytes as usize };
    let wrong = |error| Failure::usage(format!("--cache-block: {error}"));
    options.check().map_err(wrong)?;
    Ok(options)
}

/// Begins to serve the cache at a socket in the daemon's folder.
fn begin_cache(options: HostOptions, folder: &Path, house: &Arc<House>) -> Result<Host, Failure> {
    // Programs tell their credentials: no core may have them, and no other process may look.
    // SAFETY: a plain system call without memory.
    unsafe { libc::prctl(libc::PR_SET_DUMPABLE, 0, 0, 0, 0) };
    // Files of all programs' stores are open here.
    foretell_manager::raise_descriptor_limit();
    Host::start(options, folder, Box::new(OfDaemon(Arc::clone(house))))
        .map_err(|error| Failure::failed(format!("--cache: {error}")))
}

/// Who may join the cache.
struct OfDaemon(Arc<House>);

impl Admission for OfDaemon {
    fn may_join(&self, client: BorrowedFd<'_>) -> Result<(), String> {
        let peer = Peer::of(client).map_err(|error| error.to_string())?;
        // The process itself hears this one.
        let why = peer.refusal_to_share().map(|why| why.replacen("it ", "this process ", 1));
        why.map_or(Ok(()), Err)
    }

    fn tier_trouble(&self, line: &str) {
        self.0.log.tell("tier_trouble", &[("reason", line.into())]);
    }

    fn refused(&self, client: BorrowedFd<'_>, why: &str) {
        self.0.store_refused(Peer::of(client).map_or(0, |peer| peer.pid), why);
    }
}

fn far_away() -> Instant {
    Instant::now() + Duration::from_secs(86_400 * 365)
}

/// Starts the thread that takes signals: SIGHUP has the rules at `reloaded` read again, all others ring `stop`.
fn take_signals(
    house: &Arc<House>,
    stop: &Arc<OwnedFd>,
    reloaded: Option<PathBuf>,
) -> std::io::Result<()> {
    let (house, stop) = (Arc::clone(house), Arc::clone(stop));
    let thread = std::thread::Builder::new().name("foretell-signal".into());
    thread.spawn(move || {
        loop {
            let signal = signals::take(&signals::OF_A_SERVER);
            if let Some(path) = reloaded.clone().filter(|_| signal == libc::SIGHUP) {
                let house = Arc::clone(&house);
                // The file may be slow, and the next signal is to be heard.
                let thread = std::thread::Builder::new().name("foretell-rules".into());
                let _ = thread.spawn(move || reload(&house, &path));
                continue;
            }
            let _ = rustix::io::write(&*stop, &1u64.to_ne_bytes());
        }
    })?;
    Ok(())
}

/// Reads the rules again. If they have mistakes, the last ones stay.
fn reload(house: &House, path: &Path) {
    let name = path.display().to_string();
    match rules::load_quietly(path) {
        Ok(rules) => {
            house.set_rules(rules);
            house.log.tell("rules_read", &[("file", name.into())]);
        }
        Err(problems) => {
            for problem in problems {
                house.log.tell("rules_kept", &[("problem", problem.into())]);
            }
        }
    }
}
