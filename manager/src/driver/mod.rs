//! The page-cache driver: carries the policy's fetches out as advice to the kernel, and verifies.
//!
//! A fetch is `posix_fadvise(WILLNEED)`, in as many calls as the kernel needs to accept all of it;
//! it counts as done only when its pages are seen to be valid. A lookup is opening the file, which
//! brings its metadata into the kernel's caches; the file stays open while the policy has blocks of
//! it to fetch. Both are made on the threads of their device ([`pool`]), so this object never waits.
//!
//! Arrival is found out by asking: the kernel tells nobody when read-ahead completes. The session
//! asks for everything on its way at once, the more seldom the more there is
//! ([`PageCache::poll_interval`]).
//!
//! Not here: what to fetch, and when (the policy).

pub(crate) mod done;
pub(crate) mod file;
pub(crate) mod pool;
pub(crate) mod residency;

use std::collections::HashMap;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use foretell_policy::{Config, DeviceId, Fetch, FetchId, FileId, Memory, NameId, Nanos, Outcome};

use done::DoneQueue;
use file::{Advised, Found, OpenFile, State};
use pool::{Done, Job, Pool};
use residency::Range;

/// A fetch that has not arrived after this long is given up: its pages were dropped again, or the
/// device does not answer.
const ARRIVAL_TIMEOUT: Nanos = Nanos(30_000_000_000);

/// Bounds of the interval between two looks at what is on its way.
const POLL_MIN: Duration = Duration::from_micros(300);
const POLL_MAX: Duration = Duration::from_millis(5);

/// Interval for each fetch on its way: a look at one costs about 0.3 µs, and looking may take a
/// twentieth of a processor.
const POLL_PER_FETCH: Duration = Duration::from_micros(6);

/// Something that came to an end, for the session to tell the policy.
#[derive(Debug)]
pub(crate) struct Ended {
    pub(crate) fetch: FetchId,
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
    /// The name, or the data, cannot be had.
    Failed(io::Error),
    /// A read ended like this.
    Read(Outcome),
}

#[derive(Debug)]
struct Held {
    file: Arc<OpenFile>,
    reads: usize,
}

#[derive(Debug)]
struct Started {
    at: Nanos,
    subject: Subject,
}

/// The driver; see the [module](self).
#[derive(Debug)]
pub(crate) struct PageCache {
    block_bytes: u64,
    /// Whether what the policy lets go of is released from the page cache.
    releases: bool,
    pools: HashMap<DeviceId, Pool>,
    files: HashMap<FileId, Held>,
    started: HashMap<FetchId, Started>,
    /// Reads that the kernel has accepted, to be asked about.
    on_their_way: Vec<FetchId>,
    done: Arc<DoneQueue>,
}

impl PageCache {
    pub(crate) fn new(config: &Config, done: Arc<DoneQueue>) -> Self {
        PageCache {
            block_bytes: config.block_bytes,
            releases: config.memory == Memory::Kernel { keeps: true },
            pools: HashMap::new(),
            files: HashMap::new(),
            started: HashMap::new(),
            on_their_way: Vec::new(),
            done,
        }
    }

    /// Makes `device` known.
    pub(crate) fn add_device(&mut self, device: DeviceId) {
        let done = &self.done;
        self.pools.entry(device).or_insert_with(|| Pool::new(Arc::clone(done)));
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

    /// Starts a read of `blocks` blocks of `file`, which the policy wants.
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
        let existing_bytes = held.file.size_bytes().saturating_sub(offset_bytes);
        let length_bytes = (blocks * self.block_bytes).min(existing_bytes);
        let range = Range { offset_bytes, length_bytes };
        let job = Job::Advise { fetch: fetch.id, file: Arc::clone(&held.file), range };
        self.start(now, fetch, Subject::Read(file, range), job);
    }

    fn start(&mut self, now: Nanos, fetch: Fetch, subject: Subject, job: Job) {
        let device = fetch.device;
        self.started.insert(fetch.id, Started { at: now, subject });
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
                    ended.extend(self.end(fetch, end));
                }
                Done::Advised { fetch, advised: Advised::Started } => {
                    self.on_their_way.push(fetch);
                }
                Done::Advised { fetch, advised } => {
                    let end = self.end_of_advice(advised);
                    ended.extend(self.end(fetch, end));
                }
                Done::Lost { fetch } => {
                    let end = End::Failed(io::Error::other("the thread was lost"));
                    ended.extend(self.end(fetch, end));
                }
            }
        }
        self.look_at_arrivals(now, &mut ended);
        ended
    }

    /// Keeps `file` open until it is released. To be called before the policy hears of it: a file that
    /// was found under another name may have been released since that was found.
    pub(crate) fn hold(&mut self, file: OpenFile) {
        let file = Arc::new(file);
        let held = self.files.entry(file.id());
        let held = held.or_insert_with(|| Held { file: Arc::clone(&file), reads: 0 });
        if held.file.size_bytes() != file.size_bytes() {
            held.file = file; // It has grown since; reads under way have the other.
        }
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
            ended.extend(self.end(fetch, end));
            false
        });
        self.on_their_way = waiting;
    }

    /// How a read that the kernel has accepted ended, or `None` if it is on its way.
    fn arrival(&self, now: Nanos, fetch: FetchId) -> Option<End> {
        let started = self.started.get(&fetch)?;
        let Subject::Read(file, range) = started.subject else { return None };
        match self.files.get(&file)?.file.state(range) {
            State::Arrived => Some(End::Read(Outcome::Fetched)),
            State::Short { length_bytes } => Some(End::Read(self.short(length_bytes))),
            State::Waiting if now.saturating_sub(started.at) > ARRIVAL_TIMEOUT => {
                Some(End::Failed(io::ErrorKind::TimedOut.into()))
            }
            State::Waiting => None,
        }
    }

    fn end(&mut self, fetch: FetchId, end: End) -> Option<Ended> {
        let started = self.started.remove(&fetch)?;
        if let Subject::Read(file, _) = started.subject
            && let Some(held) = self.files.get_mut(&file)
        {
            held.reads -= 1;
        }
        Some(Ended { fetch, subject: started.subject, end })
    }

    /// Has the kernel let go of blocks `first..end` of a file that foretell brought in.
    pub(crate) fn release(&mut self, run: Option<(FileId, u64, u64)>) {
        let Some((file, first, end)) = run.filter(|_| self.releases) else { return };
        // A file that is not held has no hints left: then nothing is gained by it.
        let Some(held) = self.files.get(&file) else { return };
        let (offset_bytes, length_bytes) =
            (first * self.block_bytes, (end - first) * self.block_bytes);
        held.file.release(Range { offset_bytes, length_bytes });
    }

    /// Closes `file` unless it is still `wanted` or being read.
    pub(crate) fn close(&mut self, file: FileId, wanted: bool) {
        if !wanted && self.files.get(&file).is_some_and(|held| held.reads == 0) {
            self.files.remove(&file);
        }
    }

    /// Puts more threads to work where devices are slow to answer; returns when to ask again, if it
    /// may have to be asked again.
    pub(crate) fn reinforce(&self) -> Option<Duration> {
        self.pools.values().filter_map(Pool::reinforce).min()
    }

    /// How long until the next look at what is on its way, or `None` if nothing is.
    pub(crate) fn poll_interval(&self) -> Option<Duration> {
        let fetches = u32::try_from(self.on_their_way.len()).unwrap_or(u32::MAX);
        (fetches > 0).then(|| POLL_PER_FETCH.saturating_mul(fetches).clamp(POLL_MIN, POLL_MAX))
    }
}
