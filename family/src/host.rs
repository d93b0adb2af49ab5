//! The cache of a daemon: stores of all kinds and of all programs of a user in one memory.
//!
//! Clients come by a socket in the daemon's folder, which other users cannot reach. Each says what its store is made of
//! ([`Told`]), and the daemon opens that for it:
//!
//! * A. Only for a process that could open the same: the program that starts the host decides that (`may_join`). A folder must be the
//!   same folder to both.
//! * B. With the settings of the client's environment, which stay in memory. Stores with other settings are other stores: no
//!   block of one is found by the other.
//! * C. Libraries read some variables by themselves (proxies, certificates, `HOME`). Where client and daemon differ in one of
//!   these, the client is left to its family.
//!
//! Opening a store may wait, so each client is heard on a thread of its own, a bounded number at a time.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{UnixListener, UnixStream};
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use foretell_cache::backend::Environment;
use foretell_cache::share::{Refusal, Served, Server, hello, refuse};
use foretell_cache::tier::fleet::{Fleet, FleetStats};
use foretell_cache::{Cache, CacheError, CacheOptions, Stats};
use rustix::event::{EventfdFlags, PollFd, PollFlags, Timespec, eventfd, poll};
use serde::{Deserialize, Serialize};

use crate::recipe::{Place, Recipe, Told, identity, surroundings};
use crate::secret::{daemon_folder, is_own_folder};
use crate::source::Source;

/// The name of a host's socket in the daemon's folder.
pub const HOST_SOCKET: &str = "cache.sock";

/// Longest wait for what a client says.
const HELLO_WITHIN: Duration = Duration::from_secs(2);
/// Clients that are heard at a time. Further ones wait in the socket, and give up by themselves.
const HEARD_MAX: usize = 32;
/// Stores that are kept. Those without clients make room for others.
const STORES_MAX: usize = 256;
/// Stores that are ever opened: each leaves a device in the cache's books. Clients of further ones are left to their family.
const OPENED_MAX: usize = 1024;
/// Largest depth of a store.
const DEPTH_MAX: usize = 4096;
/// The least part of its size that a cache keeps while the machine is short of memory: as the budget for runs.
const LEAST_PART: u64 = 16;
/// Why no client joins a host that ends.
const ENDS: &str = "it is about to end";
/// Pause after a failed accept: no descriptor is left.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// The socket of this user's daemon, if there may be one.
pub(crate) fn socket() -> Option<PathBuf> {
    let folder = daemon_folder()?;
    is_own_folder(&folder).then(|| folder.join(HOST_SOCKET)).filter(|socket| socket.exists())
}

/// What a host has.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct HostStatus {
    /// Bytes of memory for data.
    pub size_bytes: u64,
    /// Bytes of a block.
    pub block_bytes: u64,
    /// Bytes that it uses at most at present: fewer while the machine is short of memory.
    pub limit_bytes: u64,
    /// Bytes of blocks that are in memory or on their way.
    pub filled_bytes: u64,
    /// Processes and stores that read from it.
    pub clients: usize,
    /// Stores that are open.
    pub stores: usize,
    /// Stores of programs that were refused.
    pub refused: u64,
    /// Counts since it began.
    pub counts: Stats,
    /// Counts of the tiers that many machines share, of stores that are open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetStats>,
}

/// What a host is.
#[derive(Debug)]
pub struct HostOptions {
    /// The size of its cache.
    pub cache: CacheOptions,
    /// Whether it gives memory [back](Host::press), at the price that [`Cache::new_shared_that_gives_back`] names.
    pub gives_back: bool,
    /// The socket in its folder, if another program (systemd) has opened it, and keeps it.
    pub socket: Option<OwnedFd>,
}

/// Which clients may join: the program that starts a host implements this.
pub trait Admission: Send + Sync {
    /// Whether the process at the other end of a socket may have files and stores opened for it.
    ///
    /// # Errors
    /// Why not: a line about "it".
    fn may_join(&self, client: BorrowedFd<'_>) -> Result<(), String>;

    /// A line about trouble with a tier that many machines share. It must not wait.
    fn tier_trouble(&self, line: &str) {
        let _ = line;
    }

    /// A store of this process was refused for this reason.
    fn refused(&self, client: BorrowedFd<'_>, why: &str);
}

/// A cache of a daemon, which stores of all programs of the user join. Dropping it ends it: clients go on by themselves.
pub struct Host {
    hosting: Arc<Hosting>,
    /// The socket, if it is its own.
    path: Option<PathBuf>,
    accepting: Mutex<Option<JoinHandle<()>>>,
}

impl std::fmt::Debug for Host {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Host").field("path", &self.path).finish_non_exhaustive()
    }
}

/// Why a host cannot begin.
#[derive(Debug)]
pub enum HostError {
    /// The cache cannot be made.
    Cache(CacheError),
    /// There is no socket, or no thread.
    Socket(io::Error),
}

impl std::fmt::Display for HostError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            HostError::Cache(error) => error.fmt(f),
            HostError::Socket(error) => write!(f, "cannot open its socket: {error}"),
        }
    }
}

struct Hosting {
    cache: Cache,
    options: CacheOptions,
    gives_back: bool,
    server: Server,
    stores: Mutex<Stores>,
    admission: Arc<dyn Admission>,
    refused: AtomicU64,
    /// Tiers of stores.
    fleets: Mutex<Vec<Weak<Fleet>>>,
    /// Clients that are being heard.
    heard: AtomicUsize,
    /// Bytes that the cache is to use, which a thread sees to.
    wanted_bytes: AtomicU64,
    /// Held by the thread whose turn it is.
    resizing: Mutex<()>,
    /// Rings when a client has been heard, or all is over.
    bell: OwnedFd,
    is_over: AtomicBool,
    /// Whether no more clients may join.
    is_hidden: AtomicBool,
}

/// A store that is being opened, or is open. It is locked meanwhile, so that it is opened once.
type Kept = Arc<Mutex<Option<Served>>>;

#[derive(Default)]
struct Stores {
    /// By what a client says, and with the number of the client that has come last.
    kept: HashMap<Vec<u8>, (Kept, u64)>,
    joined: u64,
    opened: usize,
}

impl Host {
    /// Begins to serve a cache at the socket in this folder, which must be the user's own. What an earlier host has left there
    /// is taken over.
    ///
    /// # Errors
    /// [`HostError`]
    pub fn start(
        options: HostOptions,
        folder: &Path,
        admission: Box<dyn Admission>,
    ) -> Result<Self, HostError> {
        let cache = match options.gives_back {
            true => Cache::new_shared_that_gives_back(options.cache),
            false => Cache::new_shared(options.cache),
        };
        let cache = cache.map_err(HostError::Cache)?;
        Self::over(cache, options, folder.join(HOST_SOCKET), admission).map_err(HostError::Socket)
    }

    fn over(
        cache: Cache,
        HostOptions { cache: options, gives_back, socket }: HostOptions,
        path: PathBuf,
        admission: Box<dyn Admission>,
    ) -> io::Result<Self> {
        let server = Server::start_unnamed(&cache)?;
        let is_given = socket.is_some();
        let listener = match socket {
            Some(socket) => UnixListener::from(socket),
            None => {
                remove(&path)?;
                let listener = UnixListener::bind(&path)?;
                rustix::fs::chmod(&path, rustix::fs::Mode::from_raw_mode(0o600))?;
                listener
            }
        };
        listener.set_nonblocking(true)?;
        let hosting = Arc::new(Hosting {
            cache,
            options,
            gives_back,
            server,
            stores: Mutex::default(),
            admission: admission.into(),
            refused: AtomicU64::new(0),
            fleets: Mutex::default(),
            heard: AtomicUsize::new(0),
            wanted_bytes: AtomicU64::new(u64::MAX),
            resizing: Mutex::default(),
            bell: eventfd(0, EventfdFlags::CLOEXEC | EventfdFlags::NONBLOCK)?,
            is_hidden: false.into(),
            is_over: false.into(),
        });
        let of_thread = Arc::clone(&hosting);
        let accepting =
            std::thread::Builder::new().name("foretell-joins".to_owned()).spawn(move || {
                of_thread.accept(&listener);
                // A socket that was given stays, and clients that wait there get to the next host.
                if !is_given {
                    of_thread.refuse_waiting(&listener);
                }
            })?;
        let path = (!is_given).then_some(path);
        Ok(Host { hosting, path, accepting: Mutex::new(Some(accepting)) })
    }

    /// What it has.
    pub fn status(&self) -> HostStatus {
        let Hosting { cache, options, server, stores, refused, .. } = &*self.hosting;
        let counts = cache.stats();
        let block_bytes = options.block_bytes as u64;
        HostStatus {
            size_bytes: self.hosting.size_bytes(),
            block_bytes,
            limit_bytes: cache.limit_bytes(),
            filled_bytes: counts.held_blocks * block_bytes,
            clients: server.clients(),
            stores: stores.lock().unwrap_or_else(PoisonError::into_inner).kept.len(),
            refused: refused.load(Ordering::Relaxed),
            counts,
            fleet: self.hosting.fleet_stats(),
        }
    }

    /// Number of clients.
    pub fn clients(&self) -> usize {
        self.hosting.server.clients()
    }

    /// The machine is short of memory: the cache is to use half of what is in it, and one that does not give memory back no
    /// more than what is in it, but a sixteenth of its size at least. Does not wait.
    pub fn press(&self) {
        let hosting = &self.hosting;
        let counts = hosting.cache.stats();
        let filled_bytes = counts.held_blocks * hosting.options.block_bytes as u64;
        let now_bytes = match hosting.gives_back {
            true => hosting.wanted_bytes.load(Ordering::Relaxed).min(filled_bytes) / 2,
            false => filled_bytes,
        };
        hosting.resize(now_bytes.max(hosting.size_bytes() / LEAST_PART));
    }

    /// It is short of memory no more: the cache may use twice as much. Returns whether that is less than all. Does not wait.
    pub fn relax(&self) -> bool {
        let size_bytes = self.hosting.size_bytes();
        let wanted_bytes = self.hosting.wanted_bytes.load(Ordering::Relaxed);
        if wanted_bytes < size_bytes {
            self.hosting.resize(wanted_bytes.saturating_mul(2).min(size_bytes));
        }
        wanted_bytes.saturating_mul(2) < size_bytes
    }

    /// Lets no more clients join; those that have joined go on. Clients that come by a socket that was given are refused, since
    /// they would wait for an answer otherwise.
    pub fn hide(&self) {
        self.hosting.is_hidden.store(true, Ordering::Release);
        if let Some(path) = &self.path {
            let _ = remove(path);
            self.end();
        }
    }

    /// Ends the thread that accepts clients.
    fn end(&self) {
        let thread = self.accepting.lock().unwrap_or_else(PoisonError::into_inner).take();
        let Some(thread) = thread else { return };
        self.hosting.is_over.store(true, Ordering::Release);
        self.hosting.ring();
        let _ = thread.join(); // A panic was reported.
    }
}

impl Drop for Host {
    fn drop(&mut self) {
        self.hide();
        self.end();
    }
}

fn remove(path: &Path) -> io::Result<()> {
    match std::fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => Ok(()),
    }
}

/// A client that is being heard; dropping it makes room for another one.
struct Heard(Arc<Hosting>);

impl Drop for Heard {
    fn drop(&mut self) {
        self.0.heard.fetch_sub(1, Ordering::AcqRel);
        self.0.ring();
    }
}

impl Hosting {
    fn size_bytes(&self) -> u64 {
        let block_bytes = self.options.block_bytes as u64;
        self.options.budget_bytes / block_bytes * block_bytes
    }

    /// Has a thread see to it that the cache uses so much. Without a thread, the next one does.
    fn resize(self: &Arc<Self>, bytes: u64) {
        self.wanted_bytes.store(bytes, Ordering::Relaxed);
        let hosting = Arc::clone(self);
        let thread = std::thread::Builder::new().name("foretell-memory".to_owned());
        drop(thread.spawn(move || {
            // Several of these take turns, and the last wish counts, so it is read when it is a thread's turn.
            let _turn = hosting.resizing.lock().unwrap_or_else(PoisonError::into_inner);
            let wanted = || hosting.wanted_bytes.load(Ordering::Relaxed);
            let bytes = wanted();
            match bytes < hosting.cache.limit_bytes() {
                true => hosting
                    .cache
                    .shrink(bytes, || wanted() != bytes || hosting.is_over.load(Ordering::Relaxed)),
                false => hosting.cache.grow(bytes),
            }
        }));
    }

    fn ring(&self) {
        // It fails only if it has rung very often unheard.
        let _ = rustix::io::write(&self.bell, &1_u64.to_ne_bytes());
    }

    /// The work of a thread.
    fn accept(self: &Arc<Self>, listener: &UnixListener) {
        while !self.is_over.load(Ordering::Acquire) {
            let has_room = self.heard.load(Ordering::Acquire) < HEARD_MAX;
            let mut fds = vec![PollFd::new(&self.bell, PollFlags::IN)];
            fds.extend(has_room.then(|| PollFd::new(listener, PollFlags::IN)));
            if poll(&mut fds, None).is_err() {
                continue; // A signal.
            }
            let _ = rustix::io::read(&self.bell, &mut [0_u8; 8]);
            if !has_room || self.is_over.load(Ordering::Acquire) {
                continue;
            }
            match listener.accept() {
                Ok((socket, _)) => self.begin(socket),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => {}
                Err(_) => self.pause(),
            }
        }
    }

    /// Refuses waiting clients in words: the end of the socket would look like a host of another version. The socket is
    /// nowhere to be found by now, so no more of them come.
    fn refuse_waiting(&self, listener: &UnixListener) {
        while let Ok((socket, _)) = listener.accept() {
            self.refuse(&socket, &Refusal::final_one(ENDS));
        }
    }

    /// Waits until descriptors may be free again, or all is over.
    fn pause(&self) {
        let pause = Timespec::try_from(ACCEPT_PAUSE).ok();
        let _ = poll(&mut [PollFd::new(&self.bell, PollFlags::IN)], pause.as_ref());
    }

    fn begin(self: &Arc<Self>, socket: UnixStream) {
        self.heard.fetch_add(1, Ordering::AcqRel);
        let heard = Heard(Arc::clone(self));
        let thread = std::thread::Builder::new().name("foretell-hello".to_owned());
        // Without a thread the socket is closed, and the client goes on by itself.
        drop(thread.spawn(move || heard.0.hear(socket)));
    }

    fn hear(&self, socket: UnixStream) {
        // A. Before it is heard, so that it cannot keep others out by silence.
        if let Err(why) = self.admission.may_join(socket.as_fd()) {
            return self.refuse(&socket, &Refusal::final_one(why));
        }
        if self.is_hidden.load(Ordering::Acquire) {
            return self.refuse(&socket, &Refusal::final_one(ENDS));
        }
        let said = hello(&socket, HELLO_WITHIN);
        let served = said.and_then(|said| self.served(said).map_err(Some));
        let joined = match served {
            Ok(served) => self.server.join(socket, served),
            Err(Some(refusal)) => Err((socket, refusal)),
            Err(None) => Ok(()),
        };
        if let Err((socket, refusal)) = joined {
            self.refuse(&socket, &refusal);
        }
    }

    /// Tells a client, and the program that has started the host, why the client is not taken.
    fn refuse(&self, socket: &UnixStream, refusal: &Refusal) {
        refuse(socket, refusal);
        self.refused.fetch_add(1, Ordering::Relaxed);
        self.admission.refused(socket.as_fd(), &refusal.why);
    }

    /// The store that a client has asked for.
    fn served(&self, said: Vec<u8>) -> Result<Served, Refusal> {
        let told: Told = serde_json::from_slice(&said).map_err(|_| {
            Refusal::mendable("it is of another version of foretell: start it again")
        })?;
        // Checked for each client: what is at a path may have changed.
        if told.is_folder && identity(Path::new(&told.place)) != told.folder {
            return Err(Refusal::final_one("another folder is at this path there")); // A
        }
        if !told.is_folder
            && let Some(name) = different(&told.surroundings, &surroundings())
        {
            let name = name.to_string_lossy();
            return Err(Refusal::mendable(format!(
                "it has another {name} in its environment: start it with the same"
            ))); // C
        }
        let (kept, left) = self.kept(&said)?;
        drop(left); // It may wait for threads, and nothing is locked here.
        let mut open = kept.lock().unwrap_or_else(PoisonError::into_inner);
        let mut is_new = false;
        let served = match &*open {
            Some(served) => Ok(served.clone()),
            None => {
                is_new = true;
                self.open(&told).map(|served| open.insert(served).clone())
            }
        };
        drop(open);
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        if served.is_ok() {
            stores.opened += usize::from(is_new);
        } else {
            if let Entry::Occupied(entry) = stores.kept.entry(said)
                && Arc::ptr_eq(&entry.get().0, &kept)
            {
                entry.remove();
            }
        }
        served
    }

    /// Counts a tier of a store that was opened, and tells its troubles.
    fn watch_fleet(&self, fleet: &Arc<Fleet>) {
        let mut fleets = self.fleets.lock().unwrap_or_else(PoisonError::into_inner);
        fleets.retain(|known| known.strong_count() > 0);
        if !fleets.iter().any(|known| std::ptr::eq(known.as_ptr(), Arc::as_ptr(fleet))) {
            fleets.push(Arc::downgrade(fleet));
            drop(fleets);
            let admission = Arc::clone(&self.admission);
            fleet.on_trouble(move |trouble| {
                admission.tier_trouble(&format!("shared tier: {trouble}"))
            });
        }
    }

    fn fleet_stats(&self) -> Option<FleetStats> {
        let fleets = self.fleets.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let all = fleets.iter().filter_map(Weak::upgrade).map(|fleet| fleet.stats());
        all.reduce(|mut sum, stats| {
            sum += stats;
            sum
        })
    }

    /// The place of a store, and the store that has made room for it.
    fn kept(&self, said: &[u8]) -> Result<(Kept, Option<Kept>), Refusal> {
        let mut stores = self.stores.lock().unwrap_or_else(PoisonError::into_inner);
        stores.joined += 1;
        let joined = stores.joined;
        if let Some((kept, last)) = stores.kept.get_mut(said) {
            *last = joined;
            return Ok((Arc::clone(kept), None));
        }
        if stores.opened >= OPENED_MAX {
            let why = format!("it has opened {OPENED_MAX} different stores: start it again");
            return Err(Refusal::mendable(why));
        }
        let mut left = None;
        if stores.kept.len() >= STORES_MAX {
            let oldest = stores.kept.iter().filter(|(_, (kept, _))| is_idle(kept));
            let oldest = oldest.min_by_key(|(_, (_, last))| *last).map(|(said, _)| said.clone());
            let in_use = || Refusal::final_one(format!("{STORES_MAX} stores are in use there"));
            let oldest = oldest.ok_or_else(in_use)?;
            left = stores.kept.remove(&oldest).map(|(kept, _)| kept);
        }
        let kept = Kept::default();
        stores.kept.insert(said.to_vec(), (Arc::clone(&kept), joined));
        Ok((kept, left))
    }

    fn open(&self, told: &Told) -> Result<Served, Refusal> {
        let depth = told.depth.filter(|&depth| (1..=DEPTH_MAX).contains(&depth));
        let place = match told.is_folder {
            true => Place::Folder(PathBuf::from(&told.place)),
            false => Place::Address(told.place.to_string_lossy().into_owned()),
        };
        if depth != told.depth || told.deadline > Duration::from_secs(1_000_000_000) {
            let why = format!("it takes depths up to {DEPTH_MAX}, and timeouts below 1e9 s");
            return Err(Refusal::mendable(why));
        }
        let recipe = Recipe {
            place,
            options: self.options,
            depth,
            deadline: told.deadline,
            settings: told.settings.clone(),
            is_shared: true,
            tier: told.tier.clone(),
        };
        // B: the own environment has more sources of credentials, so it is used where nothing differs.
        let is_own = told.is_folder || told.environment == Environment::settings();
        let other = (!is_own).then(|| Environment::of(told.environment.clone()));
        // The client has opened the same before it came. What fails here is about this process, or about credentials that
        // only a process with the same environment can have.
        let source = Source::of(&recipe, other.as_ref())
            .map_err(|error| Refusal::mendable(format!("it cannot open the store: {error}")))?;
        if let Some(fleet) = source.fleet() {
            self.watch_fleet(fleet);
        }
        let store = self.cache.attach(source.backend());
        let open = move |path: &[u8]| source.open(OsStr::from_bytes(path));
        Ok(Served { store, open: Arc::new(open) })
    }
}

/// A variable that is in one of them alone, or differs.
fn different<'a>(
    one: &'a [(OsString, OsString)],
    other: &'a [(OsString, OsString)],
) -> Option<&'a OsStr> {
    let lacks = |all: &[(OsString, OsString)], variable| !all.contains(variable);
    let first = one.iter().find(|variable| lacks(other, variable));
    first.or_else(|| other.iter().find(|variable| lacks(one, variable))).map(|(name, _)| &**name)
}

/// Whether no client reads from a store.
fn is_idle(kept: &Kept) -> bool {
    // One that is being opened or asked for is locked, or another thread has it too.
    Arc::strong_count(kept) == 1
        && kept.try_lock().is_ok_and(|open| {
            open.as_ref().is_none_or(|served| Arc::strong_count(&served.open) == 1)
        })
}

#[cfg(test)]
mod tests;
