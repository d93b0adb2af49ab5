//! The processes that have files open, and how much memory their hints may take.
//!
//! Hints are matched to the reads of the process that gave them. A hint takes memory until its ranges have been read or
//! cancelled: 16 to 24 bytes for each range in the cache, and a queue entry while its file is looked up. Users of a
//! mount need not trust each other, so two limits hold:
//!
//! * Each process may take half of what the other processes leave of 256 MiB.
//! * Each process may take 64 KiB in any case. Otherwise many processes of one user could leave nothing to the others.
//!
//! A process is identified by its number and its start time, because the system uses numbers again. The kernel gives
//! the number 0 to every process in another PID namespace than the mount's, so all of these count as one process.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use foretell_cache::{HintMemory, Session, Store, Stream};

/// Processes that are remembered. At this number, those that have ended are forgotten; if that frees none, all are.
const PROCESSES_MAX: usize = 4096;

/// Memory for the hints of all processes together, in bytes.
const HINTS_MAX_BYTES: usize = 256 << 20;

/// The divisor that gives a process's share of what the others leave.
const SHARE_DIVISOR: usize = 2;

/// Memory that each process may take for hints however little the others leave, in bytes.
const OWN_LEAST_BYTES: usize = 64 << 10;

/// A process: its number, and its start time in clock ticks since the machine started (0 if unknown).
type ProcessId = (u32, u64);

/// One process. A clone stands for the same process.
#[derive(Clone)]
pub(crate) struct Program {
    pub(crate) session: Session,
    queue: Arc<Queue>,
}

/// Bytes of hints whose files have not been looked up yet.
struct Queue {
    own_bytes: AtomicUsize,
    /// Such bytes of all processes together.
    all_bytes: Arc<AtomicUsize>,
}

/// Bytes of hints in the queue. Dropping it takes them out.
pub(crate) struct Queued {
    queue: Arc<Queue>,
    bytes: usize,
}

impl Program {
    fn new(session: Session, all_bytes: &Arc<AtomicUsize>) -> Self {
        let (own_bytes, all_bytes) = (AtomicUsize::new(0), Arc::clone(all_bytes));
        Program { session, queue: Arc::new(Queue { own_bytes, all_bytes }) }
    }

    /// Whether the process may give `bytes` more of hints. `stream` is one of its streams.
    pub(crate) fn has_room(&self, stream: &Stream, bytes: usize) -> bool {
        let HintMemory { own_bytes, all_bytes } = stream.hint_memory();
        let queued_bytes = self.queue.own_bytes.load(Ordering::Relaxed);
        let of_others = (all_bytes - own_bytes)
            + self.queue.all_bytes.load(Ordering::Relaxed).saturating_sub(queued_bytes);
        let share = HINTS_MAX_BYTES.saturating_sub(of_others) / SHARE_DIVISOR;
        own_bytes + queued_bytes + bytes <= share.max(OWN_LEAST_BYTES)
    }

    /// Counts hints of `bytes` as queued.
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

/// The processes that have opened something on this mount.
pub(crate) struct Processes {
    store: Store,
    known: Mutex<HashMap<ProcessId, Program>>,
    queued_bytes: Arc<AtomicUsize>,
}

impl Processes {
    pub(crate) fn new(store: Store) -> Self {
        Processes { store, known: Mutex::default(), queued_bytes: Arc::default() }
    }

    /// The process of a thread.
    pub(crate) fn program(&self, thread: u32) -> Program {
        let number = process_of(thread).unwrap_or(thread);
        let process = (number, started(number).unwrap_or(0));
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        if known.len() >= PROCESSES_MAX && !known.contains_key(&process) {
            known.retain(|&(number, start), _| started(number).unwrap_or(0) == start);
            if known.len() >= PROCESSES_MAX {
                known.clear();
            }
        }
        let new = || Program::new(self.store.session().through_kernel(), &self.queued_bytes);
        known.entry(process).or_insert_with(new).clone()
    }
}

/// The process (thread group) of a thread, from /proc.
fn process_of(thread: u32) -> Option<u32> {
    let status = std::fs::read_to_string(format!("/proc/{thread}/status")).ok()?;
    let line = status.lines().find_map(|line| line.strip_prefix("Tgid:"))?;
    line.trim().parse().ok()
}

/// The start time of a process, in clock ticks since the machine started.
fn started(process: u32) -> Option<u64> {
    start_in(&std::fs::read_to_string(format!("/proc/{process}/stat")).ok()?)
}

/// The 22nd field of a line of `/proc/PID/stat`. The second field is the program's name in brackets and may hold any
/// characters.
fn start_in(stat: &str) -> Option<u64> {
    let (_, from_third) = stat.rsplit_once(')')?;
    from_third.split_ascii_whitespace().nth(22 - 3)?.parse().ok()
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
        // Queued hints and hints in the cache both count.
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
    fn a_program_has_a_little_however_many_others_have_much() {
        let files = MemoryBackend::new();
        files.put("a", vec![0; 8192]);
        let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, block_bytes: 8192 }).unwrap();
        let processes = Processes::new(cache.attach(Arc::new(files)));
        let new = || Program::new(processes.store.session(), &processes.queued_bytes);
        let hogs: Vec<(Program, Queued)> = (0..64)
            .map(|_| {
                let (hog, mut most) = (new(), HINTS_MAX_BYTES);
                let stream = hog.session.stream();
                while most > 0 && !hog.has_room(&stream, most) {
                    most = most * 15 / 16;
                }
                let queued = hog.queued(most);
                (hog, queued)
            })
            .collect();
        let taken: usize = hogs.iter().map(|(_, queued)| queued.bytes).sum();
        assert!(taken > HINTS_MAX_BYTES - (1 << 20), "{taken}");
        assert!(taken < HINTS_MAX_BYTES + 64 * OWN_LEAST_BYTES, "{taken}");
        let other = new();
        let stream = other.session.stream();
        assert!(other.has_room(&stream, OWN_LEAST_BYTES));
        let queued = other.queued(OWN_LEAST_BYTES);
        assert!(!other.has_room(&stream, 1));
        drop(queued);
    }

    #[test]
    fn the_start_of_a_process_is_read_behind_whatever_it_is_called() {
        let rest = "S 1 7 7 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 987654 1000 22 1";
        for name in ["cat", "a b", ") 1 2 (", "))) R 1", ""] {
            assert_eq!(start_in(&format!("42 ({name}) {rest}\n")), Some(987_654), "{name}");
        }
        assert_eq!(start_in("42 (cat) S 1"), None);
        assert_eq!(start_in(""), None);
        assert!(started(std::process::id()).is_some_and(|start| start > 0));
    }

    #[test]
    fn a_process_that_has_the_number_of_another_is_another() {
        let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, block_bytes: 8192 }).unwrap();
        let processes = Processes::new(cache.attach(Arc::new(MemoryBackend::new())));
        let own = std::process::id();
        let program = processes.program(own);
        let same = |one: &Program, other: &Program| Arc::ptr_eq(&one.queue, &other.queue);
        assert!(same(&program, &processes.program(own)));
        // As if this process had the number of an earlier one.
        let mut known = processes.known.lock().unwrap();
        let (process, before) = known.drain().next().unwrap();
        assert_eq!(process.0, own);
        known.insert((own, process.1 - 1), before);
        drop(known);
        assert!(!same(&program, &processes.program(own)));
        // Processes that the mount cannot see count as one.
        assert!(same(&processes.program(0), &processes.program(0)));
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
