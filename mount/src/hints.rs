//! Hints by ioctl. Each descriptor has one stream of hints.
//!
//! * A file's own descriptor gives hints about that file ([`OpenFile`]).
//! * A descriptor of `.foretell/control` gives hints by name ([`OpenControl`]). Their files are looked up in parallel;
//!   the hints reach the stream in the order in which they were given.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};

use foretell_cache::{File, Order, Segment, Stream};

use crate::programs::{Program, Queued};

/// Hints of one descriptor that may wait for their files to be looked up.
const WAITING_MAX: u64 = 1 << 16;

/// Memory for a hint beside its segments and its path: an estimate, in bytes.
const HINT_BYTES: usize = 256;

pub(crate) struct OpenFile {
    pub(crate) file: Arc<File>,
    program: Program,
    /// Opened by the first hint.
    stream: Mutex<Option<Stream>>,
}

impl OpenFile {
    pub(crate) fn new(file: Arc<File>, program: Program) -> Self {
        OpenFile { file, program, stream: Mutex::new(None) }
    }

    /// Discloses segments of the file. Returns whether the process had room for them.
    #[must_use]
    pub(crate) fn hint(&self, segments: &[Segment], order: Order) -> bool {
        let mut stream = self.stream.lock().unwrap_or_else(PoisonError::into_inner);
        let stream = stream.get_or_insert_with(|| self.program.session.stream());
        let has_room = self.program.has_room(stream, HINT_BYTES + size_of_val(segments));
        if has_room {
            hint(stream, &self.file, segments, order);
        }
        has_room
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

/// A descriptor of the control file.
pub(crate) struct OpenControl {
    pub(crate) program: Program,
    stream: Stream,
    waiting: Mutex<Waiting>,
}

#[derive(Default)]
struct Waiting {
    /// Hints given so far.
    given: u64,
    /// Hints that the stream has got so far.
    passed_on: u64,
    /// Hints whose files were found before those of earlier hints.
    found: BTreeMap<u64, Found>,
}

/// A hint whose file has been looked up.
pub(crate) struct Found {
    /// `None` if there is no such file.
    pub(crate) file: Option<Arc<File>>,
    pub(crate) segments: Vec<Segment>,
    pub(crate) order: Order,
    /// Kept until the stream has the hint.
    pub(crate) queued: Queued,
}

impl OpenControl {
    pub(crate) fn new(program: Program) -> Self {
        let stream = program.session.stream();
        OpenControl { program, stream, waiting: Mutex::default() }
    }

    /// Takes in a hint and returns its place in the order; its file is to be looked up. `None` if the process has no
    /// room for it, or too many hints of this descriptor wait already.
    pub(crate) fn place(&self, path: &str, segments: &[Segment]) -> Option<(u64, Queued)> {
        let bytes = HINT_BYTES + path.len() + size_of_val(segments);
        if !self.program.has_room(&self.stream, bytes) {
            return None;
        }
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if waiting.given - waiting.passed_on >= WAITING_MAX {
            return None;
        }
        waiting.given += 1;
        Some((waiting.given - 1, self.program.queued(bytes)))
    }

    /// Whether the hint at `place` has not been cancelled.
    pub(crate) fn is_wanted(&self, place: u64) -> bool {
        place >= self.waiting.lock().unwrap_or_else(PoisonError::into_inner).passed_on
    }

    /// The file of the hint at `place` has been looked up. Passes on all hints whose turn has come.
    pub(crate) fn found(&self, place: u64, found: Found) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        if place < waiting.passed_on {
            return; // It was cancelled.
        }
        let waiting = &mut *waiting;
        waiting.found.insert(place, found);
        while let Some(next) = waiting.found.first_entry()
            && *next.key() == waiting.passed_on
        {
            let Found { file, segments, order, queued } = next.remove();
            if let Some(file) = file {
                hint(&self.stream, &file, &segments, order);
            }
            drop(queued);
            waiting.passed_on += 1;
        }
    }

    /// Cancels the hints that the stream has and those that wait.
    pub(crate) fn cancel(&self) {
        let mut waiting = self.waiting.lock().unwrap_or_else(PoisonError::into_inner);
        waiting.passed_on = waiting.given;
        waiting.found.clear();
        self.stream.cancel();
    }
}

#[cfg(test)]
mod tests {
    use foretell_cache::backend::memory::MemoryBackend;
    use foretell_cache::{Cache, CacheOptions};

    use super::*;
    use crate::programs::Processes;

    fn program(cache: &Cache, files: MemoryBackend) -> Program {
        Processes::new(cache.attach(Arc::new(files))).program(std::process::id())
    }

    #[test]
    fn hints_are_passed_on_in_the_order_in_which_they_were_given() {
        let files = MemoryBackend::new();
        for name in ["a", "b", "c"] {
            files.put(name, vec![0; 8192]);
        }
        let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, block_bytes: 8192 }).unwrap();
        let control = OpenControl::new(program(&cache, files));
        let place = || control.place("", &[]).unwrap();
        let [first, second, third] = [place(), place(), place()];
        let found = |(place, queued): (u64, Queued), name: &str| {
            let file = control.program.session.open(name).ok();
            control.found(place, Found { file, segments: vec![], order: Order::Given, queued });
        };
        found(third, "c");
        found(second, "none");
        assert_eq!(cache.stats().prefetched_blocks, 0, "the first hint has not been found yet");
        found(first, "a");
        assert_eq!(cache.stats().prefetched_blocks, 2);
        let late = place();
        assert!(control.is_wanted(late.0));
        control.cancel();
        assert!(!control.is_wanted(late.0));
        found(late, "b");
        assert_eq!(cache.stats().prefetched_blocks, 2, "it was cancelled");
        found(place(), "b");
        assert_eq!(cache.stats().prefetched_blocks, 3);
    }

    #[test]
    fn what_waits_is_bounded() {
        let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, block_bytes: 8192 }).unwrap();
        let control = OpenControl::new(program(&cache, MemoryBackend::new()));
        let segments = vec![Segment { offset_bytes: 0, length_bytes: 1 }; 1000];
        let mut given = Vec::new();
        while let Some(place) = control.place("a", &segments) {
            given.push(place);
        }
        assert!((1000..10_000).contains(&given.len()), "{}", given.len());
        control.cancel();
        assert!(control.place("a", &segments).is_none(), "they are still being looked up");
        let first = given.len() as u64;
        given.clear();
        let mut given: Vec<(u64, Queued)> =
            (0..WAITING_MAX).map(|_| control.place("a", &[]).unwrap()).collect();
        assert!(control.place("a", &[]).is_none());
        // Each hint that is passed on makes room for another.
        let (place, queued) = given.swap_remove(0);
        assert_eq!(place, first);
        let (file, segments) = (None, vec![]);
        control.found(place, Found { file, segments, order: Order::Given, queued });
        assert!(control.place("a", &[]).is_some());
    }
}
