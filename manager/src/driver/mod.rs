//! The page-cache driver: carries out the policy's fetches as advice to the kernel, and verifies them.
//!
//! How a fetch is carried out is a matter of its back end ([`backend`]): mostly `posix_fadvise(WILLNEED)`, in as many calls as
//! the kernel needs to accept all of it. It counts as done only when its pages are seen to be valid. A lookup opens the file,
//! which brings its metadata into the kernel's caches. Both run on the threads of their device ([`pool`]), so this object
//! never waits.
//!
//! A file stays open while a fetch of it is in flight, and a moment longer ([`linger`]). It is closed then because an open file
//! keeps its file system from being unmounted, and on some file systems keeps a removed file's folder from being removed. The
//! next fetch opens it again.
//!
//! The kernel does not announce when read-ahead completes, so arrival is polled. The session polls all fetches in flight at
//! once; the more there are, the longer the interval ([`PageCache::poll_interval`]).
//!
//! Not here: what to fetch, and when (the policy).

pub(crate) mod backend;
pub(crate) mod done;
pub(crate) mod file;
pub(crate) mod keeping;
pub(crate) mod mounted;
mod names;
pub(crate) mod pool;
pub(crate) mod residency;

use std::collections::{HashMap, VecDeque};
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use foretell_policy::{Config, DeviceId, Fetch, FetchId, FileId, Memory, NameId, Nanos, Outcome};

use backend::{Advised, BackendKind};
use done::{Ahead, Done, DoneQueue};
use file::{Found, Handle, OpenFile, State};
use keeping::FileSystems;
use pool::{Job, Pool};
use residency::Range;

use crate::threads::Threads;

/// A fetch that has not arrived after this time fails: the device does not answer.
const ARRIVAL_TIMEOUT: Nanos = Nanos(30_000_000_000);

/// After this time a fetch that has not arrived is checked for pages that the kernel has dropped again.
const LOST_AFTER: Nanos = Nanos(500_000_000);

/// Bounds of the interval between two polls for arrivals.
const POLL_MIN: Duration = Duration::from_micros(300);
const POLL_MAX: Duration = Duration::from_millis(5);

/// Interval for each fetch in flight. Polling one costs about 0.3 µs, and polling may take a twentieth of a processor.
const POLL_PER_FETCH: Duration = Duration::from_micros(6);

/// How long a file stays open without a fetch in flight, as a multiple of the time that opening it took, within bounds. Opening
/// it again may cost that time again.
const LINGER_OPENINGS: u32 = 20;
const LINGER_MIN: Duration = Duration::from_millis(5);
const LINGER_MAX: Duration = Duration::from_millis(100);

fn linger(opened_in: Duration) -> Nanos {
    let time = opened_in.saturating_mul(LINGER_OPENINGS).clamp(LINGER_MIN, LINGER_MAX);
    Nanos(time.as_nanos() as u64)
}

/// A fetch that has ended, for the session to report to the policy.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) fetch: FetchId,
    pub(crate) device: DeviceId,
    pub(crate) subject: Subject,
    pub(crate) end: End,
}

/// What a fetch was about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Subject {
    /// The lookup of a name.
    Name(NameId),
    /// A read of this range, clipped to the file's size when it was opened.
    Read(FileId, Range),
}

/// How it ended.
#[derive(Debug)]
pub(crate) enum End {
    /// The name is this file.
    Found(Box<OpenFile>),
    /// The name is a folder.
    Folder,
    /// The name is neither file nor folder.
    Other,
    /// The lookup or the read failed.
    Failed(io::Error),
    /// A read ended like this.
    Read(Outcome),
}

/// A file that has hints, or that is being fetched.
#[derive(Debug)]
struct Held {
    path: PathBuf,
    device: DeviceId,
    size_bytes: u64,
    /// What carries out its fetches.
    asked: BackendKind,
    /// `None` while it is closed.
    handle: Option<Arc<Handle>>,
    reads: usize,
    /// Since when no fetch has been in flight.
    idle_since: Nanos,
    /// Whether it is in the queue of files to be closed.
    in_idle: bool,
}

impl Held {
    /// The file, to be opened again if it is closed.
    fn handle(&mut self, id: FileId, systems: &Arc<FileSystems>) -> &Arc<Handle> {
        let closed = || Arc::new(Handle::closed(self.path.clone(), id, Arc::clone(systems)));
        self.handle.get_or_insert_with(closed)
    }

    /// When it is to be closed, if it is open and no fetch is in flight.
    fn closes_at(&self) -> Option<Nanos> {
        let handle = self.handle.as_ref().filter(|_| self.reads == 0)?;
        let linger = handle.opened_in().map_or(Nanos::ZERO, linger);
        Some(Nanos(self.idle_since.0 + linger.0))
    }
}

#[derive(Debug)]
struct Started {
    at: Nanos,
    device: DeviceId,
    subject: Subject,
}

/// The driver; see the [module](self).
#[derive(Debug)]
pub(crate) struct PageCache {
    block_bytes: u64,
    /// Whether blocks that the policy evicts are released from the page cache.
    releases: bool,
    /// What carries out fetches.
    asked: BackendKind,
    pools: HashMap<DeviceId, Pool>,
    files: HashMap<FileId, Held>,
    /// Files without a fetch in flight, and since when. They are to be closed, unless a fetch has begun since.
    idle: VecDeque<(Nanos, FileId)>,
    systems: Arc<FileSystems>,
    room: Threads,
    started: HashMap<FetchId, Started>,
    /// Fetches that the kernel has accepted, to be polled.
    on_their_way: Vec<FetchId>,
    /// Lookups ahead of programs that have ended.
    ahead: Vec<Ahead>,
    done: Arc<DoneQueue>,
}

impl PageCache {
    pub(crate) fn new(
        config: &Config,
        asked: BackendKind,
        done: Arc<DoneQueue>,
        room: Threads,
    ) -> Self {
        PageCache {
            block_bytes: config.block_bytes,
            releases: config.memory == Memory::Kernel { keeps: true },
            asked,
            pools: HashMap::new(),
            files: HashMap::new(),
            idle: VecDeque::new(),
            systems: Arc::default(),
            room,
            started: HashMap::new(),
            on_their_way: Vec::new(),
            ahead: Vec::new(),
            done,
        }
    }

    /// Makes `device` known.
    pub(crate) fn add_device(&mut self, device: DeviceId) {
        let new =
            || Pool::new(Arc::clone(&self.done), Arc::clone(&self.systems), self.room.clone());
        self.pools.entry(device).or_insert_with(new);
    }

    /// The devices made known.
    pub(crate) fn devices(&self) -> Vec<DeviceId> {
        self.pools.keys().copied().collect()
    }

    /// Starts the lookup of `name`, which is `path`.
    pub(crate) fn find(&mut self, now: Nanos, fetch: Fetch, name: NameId, path: PathBuf) {
        let job = Job::Find { fetch: fetch.id, path };
        self.start(now, fetch, Subject::Name(name), job);
    }

    /// Starts a fetch of `blocks` blocks of `file`, on behalf of the policy.
    pub(crate) fn read(
        &mut self,
        now: Nanos,
        fetch: Fetch,
        file: FileId,
        first_block: u64,
        blocks: u64,
    ) {
        let held = self.files.get_mut(&file).expect("a file is held while the policy wants it");
        held.reads += 1;
        let offset_bytes = first_block * self.block_bytes;
        let existing_bytes = held.size_bytes.saturating_sub(offset_bytes);
        let length_bytes = (blocks * self.block_bytes).min(existing_bytes);
        let range = Range { offset_bytes, length_bytes };
        held.device = fetch.device;
        let asked = held.asked;
        let handle = Arc::clone(held.handle(file, &self.systems));
        let job = Job::Advise { fetch: fetch.id, file: handle, range, asked };
        self.start(now, fetch, Subject::Read(file, range), job);
    }

    fn start(&mut self, now: Nanos, fetch: Fetch, subject: Subject, job: Job) {
        let device = fetch.device;
        self.started.insert(fetch.id, Started { at: now, device, subject });
        self.pools.get(&device).expect("a device with a hint was made known").submit(job);
    }

    /// Everything that has ended since the last call.
    pub(crate) fn ended(&mut self, now: Nanos) -> Vec<Ended> {
        let mut ended = Vec::new();
        for done in self.done.take() {
            match done {
                Done::Found { fetch, found } => {
                    let end = match found {
                        Ok(Found::File(file)) => End::Found(Box::new(file)),
                        Ok(Found::Folder) => End::Folder,
                        Ok(Found::Other) => End::Other,
                        Err(error) => End::Failed(error),
                    };
                    ended.extend(self.end(now, fetch, end));
                }
                Done::Advised { fetch, advised: Advised::Started } => {
                    self.on_their_way.push(fetch);
                }
                Done::Advised { fetch, advised } => {
                    let end = self.end_of_advice(advised);
                    ended.extend(self.end(now, fetch, end));
                }
                Done::Ahead(ahead) => self.ahead.push(ahead),
                Done::Lost { fetch } => {
                    let end = End::Failed(io::Error::other("no thread could be started for it"));
                    ended.extend(self.end(now, fetch, end));
                }
            }
        }
        self.look_at_arrivals(now, &mut ended);
        ended
    }

    /// Starts a lookup of `path` by the threads of `device` ahead of a program. `walk` and `on` come back with the result.
    pub(crate) fn look(&mut self, device: DeviceId, walk: u64, path: Box<[u8]>, on: u64) {
        self.submit_ahead(device, Job::Look { walk, path, on });
    }

    /// As [`look`](Self::look), the listing of `folder`; with `on`, only if it lies on the device of this number (`st_dev`).
    pub(crate) fn list(&mut self, device: DeviceId, walk: u64, folder: Arc<[u8]>, on: Option<u64>) {
        self.submit_ahead(device, Job::List { walk, folder, on });
    }

    fn submit_ahead(&mut self, device: DeviceId, job: Job) {
        self.add_device(device);
        if let Some(pool) = self.pools.get(&device) {
            pool.submit(job);
        }
    }

    /// The lookups ahead of programs that [`ended`](Self::ended) has met.
    pub(crate) fn take_ahead(&mut self) -> Vec<Ahead> {
        std::mem::take(&mut self.ahead)
    }

    /// Keeps `file`, which was found on `device`, until [`close`](Self::close). Call it before the policy hears of the file: it
    /// may have been found before under another name, and closed since.
    pub(crate) fn hold(&mut self, now: Nanos, device: DeviceId, file: OpenFile) {
        let (id, size_bytes, path) = (file.id(), file.size_bytes(), file.path().to_owned());
        let held = self.files.entry(id).or_insert_with(|| Held {
            path,
            device,
            size_bytes,
            asked: self.asked,
            handle: None,
            reads: 0,
            idle_since: now,
            in_idle: false,
        });
        if held.handle.is_none() || held.size_bytes != size_bytes {
            // It has grown since. Fetches in flight keep the old handle.
            held.handle = Some(Arc::new(Handle::opened(file, Arc::clone(&self.systems))));
            held.size_bytes = size_bytes;
        }
        self.idles(now, id);
    }

    /// Has fetches of `file`, which is held, carried out by this back end, as far as it can be had.
    pub(crate) fn carry_out_by(&mut self, file: FileId, backend: BackendKind) {
        if let Some(held) = self.files.get_mut(&file) {
            held.asked = backend;
        }
    }

    /// Notes that `file` has no fetch in flight, if that is so.
    fn idles(&mut self, now: Nanos, file: FileId) {
        let Some(held) = self.files.get_mut(&file).filter(|held| held.reads == 0) else { return };
        held.idle_since = now;
        if !std::mem::replace(&mut held.in_idle, true) {
            self.idle.push_back((now, file));
        }
    }

    /// Closes files that have had no fetch in flight for long enough. Returns the time until there may be another one.
    pub(crate) fn close_idle(&mut self, now: Nanos) -> Option<Duration> {
        for _ in 0..self.idle.len() {
            let (since, file) = self.idle.pop_front()?;
            let Some(held) = self.files.get_mut(&file) else { continue };
            match held.closes_at() {
                None => held.in_idle = false,
                // A fetch of the file has begun since.
                Some(_) if held.idle_since != since => self.idle.push_back((held.idle_since, file)),
                Some(at) if at > now => {
                    self.idle.push_front((since, file));
                    return Some(Duration::from_nanos(at.0 - now.0));
                }
                Some(_) => {
                    held.handle = None;
                    held.in_idle = false;
                }
            }
        }
        (!self.idle.is_empty()).then_some(LINGER_MIN)
    }

    fn end_of_advice(&self, advised: Advised) -> End {
        match advised {
            Advised::AlreadyCached => End::Read(Outcome::AlreadyCached),
            Advised::Started | Advised::Fetched => End::Read(Outcome::Fetched),
            Advised::Short { length_bytes } => End::Read(self.short(length_bytes)),
            Advised::Failed(error) => End::Failed(error),
        }
    }

    fn short(&self, length_bytes: u64) -> Outcome {
        Outcome::Short { blocks: length_bytes.div_ceil(self.block_bytes) }
    }

    fn look_at_arrivals(&mut self, now: Nanos, ended: &mut Vec<Ended>) {
        let mut waiting = std::mem::take(&mut self.on_their_way);
        waiting.retain(|&fetch| {
            let Some(end) = self.arrival(now, fetch) else { return true };
            ended.extend(self.end(now, fetch, end));
            false
        });
        self.on_their_way = waiting;
    }

    /// How a fetch that the kernel has accepted ended, or `None` if it is in flight.
    fn arrival(&self, now: Nanos, fetch: FetchId) -> Option<End> {
        let started = self.started.get(&fetch)?;
        let Subject::Read(file, range) = started.subject else { return None };
        let handle = self.files.get(&file)?.handle.as_ref()?;
        let waited = now.saturating_sub(started.at);
        match handle.state(range) {
            State::Arrived => Some(End::Read(Outcome::Fetched)),
            State::Short { length_bytes } => Some(End::Read(self.short(length_bytes))),
            State::Waiting if waited > ARRIVAL_TIMEOUT => {
                Some(End::Failed(io::ErrorKind::TimedOut.into()))
            }
            State::Waiting if waited > LOST_AFTER && handle.has_lost(range) => Some(End::Failed(
                io::Error::other("the kernel dropped it from memory as it arrived"),
            )),
            State::Waiting => None,
        }
    }

    fn end(&mut self, now: Nanos, fetch: FetchId, end: End) -> Option<Ended> {
        let started = self.started.remove(&fetch)?;
        if let Subject::Read(file, _) = started.subject
            && let Some(held) = self.files.get_mut(&file)
        {
            held.reads -= 1;
            self.idles(now, file);
        }
        Some(Ended { fetch, device: started.device, subject: started.subject, end })
    }

    /// Has the kernel drop blocks `first..end` of a file. Foretell brought them in.
    pub(crate) fn release(&mut self, run: Option<(FileId, u64, u64)>) {
        let Some((file, first, end)) = run.filter(|_| self.releases) else { return };
        // A file that is not held has no hints left, so releasing it gains nothing.
        let Some(held) = self.files.get_mut(&file) else { return };
        let (offset_bytes, length_bytes) =
            (first * self.block_bytes, (end - first) * self.block_bytes);
        let range = Range { offset_bytes, length_bytes };
        let asked = held.asked;
        let file = match &held.handle {
            Some(handle) if handle.releases_at_once(asked) => {
                return handle.release(range, asked);
            }
            Some(handle) if handle.is_open() => Arc::clone(handle),
            _ => {
                // The file must be opened again, which may wait, and is closed after the release.
                let (path, systems) = (held.path.clone(), Arc::clone(&self.systems));
                Arc::new(Handle::closed(path, file, systems))
            }
        };
        if let Some(pool) = self.pools.get(&held.device) {
            pool.submit(Job::Release { file, range, asked });
        }
    }

    /// Has the kernel drop blocks `first..end` of a file on `device`, whoever has brought them in. The file need not be held.
    pub(crate) fn let_go(
        &mut self,
        device: DeviceId,
        (file, path): (FileId, PathBuf),
        first: u64,
        end: u64,
    ) {
        let range = Range {
            offset_bytes: first * self.block_bytes,
            length_bytes: (end - first) * self.block_bytes,
        };
        let held = self.files.get(&file);
        let asked = held.map_or(self.asked, |held| held.asked);
        let open = held.and_then(|held| held.handle.clone()).filter(|handle| handle.is_open());
        let file =
            open.unwrap_or_else(|| Arc::new(Handle::closed(path, file, Arc::clone(&self.systems))));
        self.add_device(device);
        if let Some(pool) = self.pools.get(&device) {
            pool.submit(Job::Release { file, range, asked });
        }
    }

    /// Forgets `file` unless it is still `wanted` or has a fetch in flight.
    pub(crate) fn close(&mut self, file: FileId, wanted: bool) {
        if !wanted && self.files.get(&file).is_some_and(|held| held.reads == 0) {
            self.files.remove(&file);
        }
    }

    /// Puts more threads to work where devices are slow to answer. Returns the time until the next call; `None` if no call is
    /// needed.
    pub(crate) fn reinforce(&self) -> Option<Duration> {
        self.pools.values().filter_map(Pool::reinforce).min()
    }

    /// Time until the next poll for arrivals; `None` if no fetch is in flight.
    pub(crate) fn poll_interval(&self) -> Option<Duration> {
        let fetches = u32::try_from(self.on_their_way.len()).unwrap_or(u32::MAX);
        (fetches > 0).then(|| POLL_PER_FETCH.saturating_mul(fetches).clamp(POLL_MIN, POLL_MAX))
    }
}
