//! Who has files open, and what of memory its hints may take.
//!
//! Hints are matched to the reads of the process that gave them. They take memory until they are past: some 16 bytes for
//! each range in the cache, and before that, what waits for a file to be looked up. A mount may serve users who do
//! not trust each other, so that there is a bound for all of them, and for each process a part of what the others leave.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use foretell_cache::{HintMemory, Session, Store, Stream};

/// Processes that are told apart; of more, some begin anew.
const PROCESSES_MAX: usize = 4096;

/// What all hints may take.
const HINTS_MAX_BYTES: usize = 256 << 20;

/// A process may have this part of what others leave, as a divisor.
const SHARE_DIVISOR: usize = 2;

/// One process. A clone is the same.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) session: Session,
    queue: Arc<Queue>,
}

/// Bytes of hints whose files are not looked up.
struct Queue {
    own_bytes: AtomicUsize,
    /// Those of all processes.
    all_bytes: Arc<AtomicUsize>,
}

/// Bytes of hints that are in the queue as long as it is there.
pub(crate) struct Queued {
    queue: Arc<Queue>,
    bytes: usize,
}

impl Program {
    fn new(session: Session, all_bytes: &Arc<AtomicUsize>) -> Self {
        let (own_bytes, all_bytes) = (AtomicUsize::new(0), Arc::clone(all_bytes));
        Program { session, queue: Arc::new(Queue { own_bytes, all_bytes }) }
    }

    /// Whether hints of so many bytes may come, through `stream`, which is the program's.
    pub(crate) fn has_room(&self, stream: &Stream, bytes: usize) -> bool {
        let HintMemory { own_bytes, all_bytes } = stream.hint_memory();
        let queued_bytes = self.queue.own_bytes.load(Ordering::Relaxed);
        let of_others = (all_bytes - own_bytes)
            + self.queue.all_bytes.load(Ordering::Relaxed).saturating_sub(queued_bytes);
        own_bytes + queued_bytes + bytes
            <= HINTS_MAX_BYTES.saturating_sub(of_others) / SHARE_DIVISOR
    }

    /// Takes hints of so many bytes into the queue.
    pub(crate) fn queued(&self, bytes: usize) -> Queued {
        let queue = Arc::clone(&self.queue);
        queue.own_bytes.fetch_add(bytes, Ordering::Relaxed);
        queue.all_bytes.fetch_add(bytes, Ordering::Relaxed);
        Queued { queue, bytes }
    }
}

impl Drop for Queued {
    fn drop(&mut self) {
        self.queue.own_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
        self.queue.all_bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

/// The processes that have had something open.
pub(crate) struct Processes {
    store: Store,
    known: Mutex<HashMap<u32, Program>>,
    queued_bytes: Arc<AtomicUsize>,
}

impl Processes {
    pub(crate) fn new(store: Store) -> Self {
        Processes { store, known: Mutex::default(), queued_bytes: Arc::default() }
    }

    /// The process that the thread `thread` is of.
    pub(crate) fn program(&self, thread: u32) -> Program {
        let process = process_of(thread).unwrap_or(thread);
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= PROCESSES_MAX && !known.contains_key(&process) {
            known.retain(|&process, _| std::path::Path::new(&format!("/proc/{process}")).exists());
            if known.len() >= PROCESSES_MAX {
                known.clear();
            }
        }
        let new = || Program::new(self.store.session(), &self.queued_bytes);
        known.entry(process).or_insert_with(new).clone()
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
    use foretell_cache::{Cache, CacheOptions, Segment};

    use super::*;

    #[test]
    fn a_program_has_half_of_what_others_leave_and_gets_it_back() {
        let files = MemoryBackend::new();
        files.put("a", vec![0; 8192]);
        let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, block_bytes: 8192 }).unwrap();
        let processes = Processes::new(cache.attach(Arc::new(files)));
        let all = [1, 2].map(|_| Program::new(processes.store.session(), &processes.queued_bytes));
        let [one, other] = &all;
        let streams = [one.session.stream(), other.session.stream()];
        let half = HINTS_MAX_BYTES / 2;
        assert!(one.has_room(&streams[0], half) && !one.has_room(&streams[0], half + 1));
        // What waits for its file, and what the cache has.
        let queued = one.queued(half / 2);
        assert!(!one.has_room(&streams[0], half / 2 + 1));
        assert!(!other.has_room(&streams[1], HINTS_MAX_BYTES * 3 / 8 + 1));
        assert!(other.has_room(&streams[1], HINTS_MAX_BYTES * 3 / 8));
        let file = one.session.open("a").unwrap();
        let segments = vec![Segment { offset_bytes: 0, length_bytes: 1 }; half / 2 / 16];
        streams[0].hint_segments(&file, &segments);
        assert!(!one.has_room(&streams[0], 0));
        assert!(!other.has_room(&streams[1], HINTS_MAX_BYTES / 4));
        drop(queued);
        assert!(one.has_room(&streams[0], half / 4) && !one.has_room(&streams[0], half / 2));
        streams[0].cancel();
        assert!(one.has_room(&streams[0], half) && other.has_room(&streams[1], half));
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
