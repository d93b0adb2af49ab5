//! A source on a thread of its own, so that a source that waits does not hold up the session.
//!
//! The thread runs ahead of the session by a bounded number of disclosures, which take a bounded number of bytes. Beyond that
//! it waits for the session, and a program that writes into the source's pipe waits for it in turn.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::driver::done::DoneQueue;
use crate::source::Disclosure;
use crate::threads::Threads;

/// One item of a source: a disclosure, or the reason why it could not be read.
pub type SourceItem = Result<Disclosure, String>;

/// Disclosures that a source's thread may run ahead of the session.
const AHEAD_MAX: usize = 1024;

/// Bytes that the disclosures ahead of the session may take in all. The last one may exceed it.
const AHEAD_MAX_BYTES: usize = 4 << 20;

/// Disclosures that are taken before a source that waits for room goes on, so that it is not woken for each.
const ROOM: usize = AHEAD_MAX / 2;

/// Stack of a source's thread, which parses lists and lists folders.
const STACK_BYTES: usize = 256 * 1024;

/// The session's end of a source.
#[derive(Debug)]
pub(crate) struct Feed {
    queue: Arc<Queue>,
    finished: bool,
}

#[derive(Debug, Default)]
struct Queue {
    state: Mutex<State>,
    room: Condvar,
}

#[derive(Debug, Default)]
struct State {
    items: VecDeque<SourceItem>,
    bytes: usize,
    source_has_ended: bool,
    session_has_ended: bool,
}

impl State {
    fn is_full(&self) -> bool {
        self.items.len() >= AHEAD_MAX || self.bytes >= AHEAD_MAX_BYTES
    }

    /// Whether a source that waits for room may go on.
    fn has_room(&self) -> bool {
        self.items.len() <= AHEAD_MAX - ROOM && self.bytes <= AHEAD_MAX_BYTES / 2
    }
}

impl Queue {
    /// The state is valid even if a thread has panicked under the lock: no code that can panic runs there.
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Waits for room and adds `item`. Rings `bell` if the session may be waiting for it. Returns whether the session still
    /// takes items.
    fn push(&self, item: SourceItem, bell: &DoneQueue) -> bool {
        let mut state = self.lock();
        if state.is_full() {
            while !state.has_room() && !state.session_has_ended {
                state = self.room.wait(state).unwrap_or_else(PoisonError::into_inner);
            }
        }
        state.bytes += bytes_of(&item);
        state.items.push_back(item);
        let (is_first, is_taken) = (state.items.len() == 1, !state.session_has_ended);
        drop(state);
        if is_first {
            bell.ring();
        }
        is_taken
    }
}

fn bytes_of(item: &SourceItem) -> usize {
    size_of::<SourceItem>()
        + match item {
            Ok(disclosure) => disclosure.memory_bytes(),
            Err(line) => line.len(),
        }
}

impl Feed {
    /// Starts `source`. `bell` is rung when items come in and none waits. If no thread can be started, the source yields
    /// nothing.
    pub(crate) fn start(
        source: Box<dyn Iterator<Item = SourceItem> + Send>,
        bell: Arc<DoneQueue>,
        threads: &Threads,
    ) -> Self {
        let queue = Arc::new(Queue::default());
        let supplied = Supplied(Arc::clone(&queue), bell);
        let permit = threads.permit();
        if permit.is_some() {
            // Without a thread `supplied` is dropped here.
            let thread = thread::Builder::new().name("foretell-source".into());
            let _ = thread.stack_size(STACK_BYTES).spawn(move || {
                let _permit = permit;
                // A source that panics has ended.
                let _ = catch_unwind(AssertUnwindSafe(|| supplied.supply(source)));
            });
        }
        Feed { queue, finished: false }
    }

    /// The next item; `None` if none has come in yet.
    pub(crate) fn next(&mut self) -> Option<SourceItem> {
        let mut state = self.queue.lock();
        let item = state.items.pop_front();
        match &item {
            Some(item) => state.bytes -= bytes_of(item),
            None => self.finished = state.source_has_ended,
        }
        if state.has_room() {
            self.queue.room.notify_one();
        }
        item
    }

    /// Whether the source has ended and all its items were taken.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.queue.lock().session_has_ended = true;
        self.queue.room.notify_one();
    }
}

/// The source's side of the queue. Dropping it marks the source as ended, also after a panic.
struct Supplied(Arc<Queue>, Arc<DoneQueue>);

impl Supplied {
    fn supply(self, source: Box<dyn Iterator<Item = SourceItem> + Send>) {
        for item in source {
            foretell_fault::point("foretell-source");
            if !self.0.push(item, &self.1) {
                return;
            }
        }
    }
}

impl Drop for Supplied {
    fn drop(&mut self) {
        // Set before the bell rings, so that the woken session sees it.
        self.0.lock().source_has_ended = true;
        self.1.ring();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::source::Certainty;
    use foretell_policy::{Extent, Segment};
    use std::sync::atomic::{AtomicUsize, Ordering};
    use std::time::{Duration, Instant};

    const SEGMENTS: usize = 50_000;

    fn disclosure() -> SourceItem {
        let segments = vec![Segment { offset_bytes: 0, length_bytes: 1 }; SEGMENTS];
        let whole = Disclosure::whole_file("/a".into(), Certainty::File);
        Ok(Disclosure { extent: Extent::Segments(segments.into()), ..whole })
    }

    #[test]
    fn a_source_runs_ahead_by_what_fits_and_gives_all() {
        const ITEMS: usize = 60;
        let given = Arc::new(AtomicUsize::new(0));
        let counted = Arc::clone(&given);
        let source = (0..ITEMS).map(move |_| {
            counted.fetch_add(1, Ordering::Relaxed);
            disclosure()
        });
        let bell = Arc::new(DoneQueue::new().expect("a descriptor"));
        let threads = Threads::new().expect("some processes are left");
        let mut feed = Feed::start(Box::new(source), bell, &threads);
        // Two more: one that is not pushed yet, and one that exceeds the bound.
        let fit = AHEAD_MAX_BYTES / (SEGMENTS * size_of::<Segment>()) + 2;
        let deadline = Instant::now() + Duration::from_secs(60);
        while given.load(Ordering::Relaxed) < fit && Instant::now() < deadline {
            thread::sleep(Duration::from_millis(1));
        }
        thread::sleep(Duration::from_millis(50));
        assert_eq!(given.load(Ordering::Relaxed), fit);
        let mut taken = 0;
        while !feed.is_finished() && Instant::now() < deadline {
            match feed.next() {
                Some(_) => taken += 1,
                None => thread::sleep(Duration::from_millis(1)),
            }
        }
        assert_eq!(taken, ITEMS);
    }
}
