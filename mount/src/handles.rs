//! What is open, and whose it is.

use std::collections::{BTreeMap, HashMap};
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock};

use foretell_cache::backend::Entry;
use foretell_cache::{File, Order, Segment, Session, Store, Stream};

use crate::folder::{Directory, OpenContent};
use crate::objects::Names;

/// Hints of one descriptor that wait for their files to be looked up, at most, and bytes of their segments.
const WAITING_MAX: u64 = 1 << 16;
const WAITING_MAX_BYTES: usize = 16 << 20;

/// Processes that are told apart; of more, some begin anew.
const PROCESSES_MAX: usize = 4096;

/// What the kernel has open.
pub(crate) enum Handle {
    File(OpenFile),
    Folder(Mutex<OpenFolder>),
    /// A file that is made when it is opened.
    Text(Vec<u8>),
    Control(Arc<OpenControl>),
    /// Of a folder that can be written.
    Content(OpenContent),
    Directory(Directory),
}

impl Handle {
    /// The file, if it is one that hints can be for.
    pub(crate) fn open_file(&self) -> Option<&OpenFile> {
        match self {
            Handle::File(open) => Some(open),
            Handle::Content(content) => content.open.as_ref(),
            _ => None,
        }
    }
}

pub(crate) struct OpenFile {
    pub(crate) file: Arc<File>,
    session: Session,
    /// Made by the first hint.
    stream: Mutex<Option<Stream>>,
}

impl OpenFile {
    pub(crate) fn new(file: Arc<File>, session: Session) -> Self {
        OpenFile { file, session, stream: Mutex::new(None) }
    }

    pub(crate) fn hint(&self, segments: &[Segment], order: Order) {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = stream.get_or_insert_with(|| self.session.stream());
        hint(stream, &self.file, segments, order);
    }

    pub(crate) fn cancel(&self) {
        if let Some(stream) = &*self.stream.lock().unwrap_or_else(PoisonError::into_inner) {
            stream.cancel();
        }
    }
}

fn hint(stream: &Stream, file: &Arc<File>, segments: &[Segment], order: Order) {
    match (segments, order) {
        ([], _) => stream.hint_file(file),
        (_, Order::Given) => stream.hint_segments(file, segments),
        (_, Order::Any) => stream.hint_set(file, segments),
    }
}

/// A folder that is being listed: the entries that the store told last.
///
/// Entry k of the folder is followed by position k + 3; the first two positions are for `.` and `..`.
#[derive(Default)]
pub(crate) struct OpenFolder {
    pub(crate) names: Option<Names>,
    pub(crate) entries: Vec<Entry>,
    /// The index of the first of `entries` in the folder.
    pub(crate) first: u64,
}

/// A descriptor of the control file: hints of many files, in the order in which they were given, although the
/// files are looked up at once.
pub(crate) struct OpenControl {
    pub(crate) session: Session,
    stream: Stream,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// Hints that have been given.
    given: u64,
    /// Of these, those that the stream has.
    passed_on: u64,
    /// Looked up before their turn.
    found: BTreeMap<u64, Found>,
    /// Bytes of segments that have been given and not passed on.
    bytes: usize,
}

struct Found {
    /// None if there is none.
    file: Option<Arc<File>>,
    segments: Vec<Segment>,
    order: Order,
}

impl OpenControl {
    pub(crate) fn new(session: Session) -> Self {
        let stream = session.stream();
        OpenControl { session, stream, waiting: Mutex::default() }
    }

    /// The place of a hint among the others, whose file is to be looked up. None if too much waits already.
    pub(crate) fn place(&self, segments: &[Segment]) -> Option<u64> {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        let bytes = size_of_val(segments);
        if waiting.given - waiting.passed_on >= WAITING_MAX
            || (waiting.bytes > 0 && waiting.bytes + bytes > WAITING_MAX_BYTES)
        {
            return None;
        }
        waiting.bytes += bytes;
        waiting.given += 1;
        Some(waiting.given - 1)
    }

    /// Whether the hint at `place` has not been cancelled.
    pub(crate) fn is_wanted(&self, place: u64) -> bool {
        place >= self.waiting.lock().unwrap_or_else(PoisonError::into_inner).passed_on
    }

    /// The file of the hint at `place` has been looked up.
    pub(crate) fn found(
        &self,
        place: u64,
        file: Option<Arc<File>>,
        segments: Vec<Segment>,
        order: Order,
    ) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if place < waiting.passed_on {
            return; // It was cancelled.
        }
        let waiting = &mut *waiting;
        waiting.found.insert(place, Found { file, segments, order });
        while let Some(next) = waiting.found.first_entry()
            && *next.key() == waiting.passed_on
        {
            let Found { file, segments, order } = next.remove();
            waiting.bytes -= size_of_val(segments.as_slice());
            if let Some(file) = file {
                hint(&self.stream, &file, &segments, order);
            }
            waiting.passed_on += 1;
        }
    }

    /// What was told is given up, and what has not been looked up is not.
    pub(crate) fn cancel(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.passed_on = waiting.given;
        waiting.found.clear();
        waiting.bytes = 0;
        self.stream.cancel();
    }
}

/// What is open, by the number that the kernel has of it.
#[derive(Default)]
pub(crate) struct Handles {
    next: AtomicU64,
    open: RwLock<HashMap<u64, Arc<Handle>>>,
}

impl Handles {
    pub(crate) fn add(&self, handle: Handle) -> u64 {
        let number = self.next.fetch_add(1, Ordering::Relaxed);
        self.open.write().unwrap_or_else(PoisonError::into_inner).insert(number, Arc::new(handle));
        number
    }

    pub(crate) fn get(&self, number: u64) -> Option<Arc<Handle>> {
        self.open.read().unwrap_or_else(PoisonError::into_inner).get(&number).cloned()
    }

    pub(crate) fn remove(&self, number: u64) {
        let handle = self.open.write().unwrap_or_else(PoisonError::into_inner).remove(&number);
        // Lookups of its hints may be under way, and hold it.
        if let Some(Handle::Control(control)) = handle.as_deref() {
            control.cancel();
        }
        drop(handle); // Not under the lock.
    }

    pub(crate) fn count(&self) -> usize {
        self.open.read().unwrap_or_else(PoisonError::into_inner).len()
    }
}

/// Sessions of the cache by process: hints are matched to the reads of who gave them.
pub(crate) struct Processes {
    store: Store,
    known: Mutex<HashMap<u32, Session>>,
}

impl Processes {
    pub(crate) fn new(store: Store) -> Self {
        Processes { store, known: Mutex::default() }
    }

    /// The session of the process that the thread `thread` is of.
    pub(crate) fn session(&self, thread: u32) -> Session {
        let process = process_of(thread).unwrap_or(thread);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= PROCESSES_MAX && !known.contains_key(&process) {
            known.retain(|&process, _| std::path::Path::new(&format!("/proc/{process}")).exists());
            if known.len() >= PROCESSES_MAX {
                known.clear();
            }
        }
        known.entry(process).or_insert_with(|| self.store.session()).clone()
    }
}

/// The thread group of a thread.
fn process_of(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

#[cfg(test)]
mod tests {
    use foretell_cache::backend::memory::MemoryBackend;
    use foretell_cache::{Cache, CacheOptions};

    use super::*;

    #[test]
    fn hints_are_passed_on_in_the_order_in_which_they_were_given() {
        let files = MemoryBackend::new();
        for name in ["a", "b", "c"] {
            files.put(name, vec![0; 8192]);
        }
        let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, block_bytes: 8192 }).unwrap();
        let session = cache.attach(Arc::new(files)).session();
        let control = OpenControl::new(session.clone());
        let place = || control.place(&[]).unwrap();
        let (first, second, third) = (place(), place(), place());
        let file = |name: &str| session.open(name).ok();
        control.found(third, file("c"), Vec::new(), Order::Given);
        control.found(second, None, Vec::new(), Order::Given);
        assert_eq!(cache.stats().prefetched_blocks, 0, "the first is not there yet");
        control.found(first, file("a"), Vec::new(), Order::Given);
        assert_eq!(cache.stats().prefetched_blocks, 2);
        let late = place();
        assert!(control.is_wanted(late));
        control.cancel();
        assert!(!control.is_wanted(late));
        control.found(late, file("b"), Vec::new(), Order::Given);
        assert_eq!(cache.stats().prefetched_blocks, 2, "it was cancelled");
        let next = place();
        control.found(next, file("b"), Vec::new(), Order::Given);
        assert_eq!(cache.stats().prefetched_blocks, 3);
    }

    #[test]
    fn what_waits_is_bounded() {
        let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, block_bytes: 8192 }).unwrap();
        let control = OpenControl::new(cache.attach(Arc::new(MemoryBackend::new())).session());
        let segments = vec![Segment { offset_bytes: 0, length_bytes: 1 }; 1000];
        let mut given = 0;
        while control.place(&segments).is_some() {
            given += 1;
        }
        assert!(given >= WAITING_MAX_BYTES / 16_000, "{given}");
        control.cancel();
        for _ in 0..WAITING_MAX {
            assert!(control.place(&[]).is_some());
        }
        assert!(control.place(&[]).is_none());
        // As one is passed on, another may come.
        control.found(given as u64, None, Vec::new(), Order::Given);
        assert!(control.place(&[]).is_some());
    }

    #[test]
    fn threads_are_of_their_process() {
        let thread = std::thread::spawn(|| rustix::thread::gettid().as_raw_nonzero().get());
        let ended = thread.join().unwrap() as u32;
        let own = std::process::id();
        std::thread::spawn(move || {
            let thread = rustix::thread::gettid().as_raw_nonzero().get() as u32;
            assert_ne!(thread, own);
            assert_eq!(process_of(thread), Some(own));
        })
        .join()
        .unwrap();
        assert_eq!(process_of(ended), None);
    }
}
