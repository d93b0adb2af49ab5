//! Threads that open files for clients: an open waits for the store.

use std::collections::hash_map::Entry;
use std::collections::{HashMap, VecDeque};
use std::io;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

/// Most threads.
const THREADS_MAX: usize = 256;
/// Most of them for one store, so that one that hangs leaves the others their turn.
const OF_STORE_MAX: usize = 64;
/// How long a thread waits for the next open before it ends.
const IDLE_MAX: Duration = Duration::from_secs(2);

type Work = Box<dyn FnOnce() + Send>;
/// Tells stores apart.
type Which = usize;

/// The threads. They end once this has been dropped and their open has ended; nobody waits for them. Work must not panic.
#[derive(Default)]
pub(super) struct Opening {
    queue: Arc<Queue>,
}

#[derive(Default)]
struct Queue {
    state: Mutex<State>,
    more: Condvar,
}

#[derive(Default)]
struct State {
    waiting: VecDeque<(Which, Work)>,
    /// Opens that are under way, by store.
    under_way: HashMap<Which, usize>,
    threads: usize,
    /// Threads that wait for work.
    idle: usize,
    is_over: bool,
}

impl Opening {
    /// Has `work` done by a thread, in turn. `which` is the store that it may wait for.
    ///
    /// # Errors
    /// There is no thread, and none can be started: the work is dropped undone.
    pub(super) fn begin(&self, which: Which, work: Work) -> io::Result<()> {
        foretell_fault::failing("cache-open", libc::EAGAIN)?;
        let mut state = self.queue.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.waiting.push_back((which, work));
        if state.under_way.get(&which).is_some_and(|&count| count >= OF_STORE_MAX) {
            return Ok(()); // The next of its store that ends takes it.
        }
        if state.idle >= state.waiting.len() {
            self.queue.more.notify_one();
            return Ok(());
        }
        if state.threads == THREADS_MAX {
            return Ok(());
        }
        let queue = Arc::clone(&self.queue);
        let thread = std::thread::Builder::new().name("foretell-open".to_owned());
        match thread.spawn(move || queue.work()) {
            Ok(_) => state.threads += 1,
            Err(_) if state.threads > 0 => {}
            Err(error) => {
                state.waiting.pop_back();
                return Err(error);
            }
        }
        Ok(())
    }
}

impl Drop for Opening {
    fn drop(&mut self) {
        let mut state = self.queue.state.lock().unwrap_or_else(PoisonError::into_inner);
        state.is_over = true;
        state.waiting.clear();
        self.queue.more.notify_all();
    }
}

impl State {
    /// The first open of a store that has not too many under way.
    fn first(&self) -> Option<usize> {
        let is_free = |which| self.under_way.get(which).is_none_or(|&count| count < OF_STORE_MAX);
        self.waiting.iter().position(|(which, _)| is_free(which))
    }

    fn next(&mut self) -> Option<(Which, Work)> {
        let at = self.first()?;
        self.waiting.remove(at)
    }
}

impl Queue {
    fn work(&self) {
        let mut state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
        while !state.is_over {
            if let Some((which, work)) = state.next() {
                *state.under_way.entry(which).or_default() += 1;
                drop(state);
                work();
                state = self.state.lock().unwrap_or_else(PoisonError::into_inner);
                if let Entry::Occupied(mut count) = state.under_way.entry(which) {
                    *count.get_mut() -= 1;
                    if *count.get() == 0 {
                        count.remove();
                    }
                }
                continue;
            }
            state.idle += 1;
            let waited = self.more.wait_timeout(state, IDLE_MAX);
            let (again, timeout) = waited.unwrap_or_else(PoisonError::into_inner);
            state = again;
            state.idle -= 1;
            if timeout.timed_out() && state.first().is_none() {
                break;
            }
        }
        state.threads -= 1;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    #[test]
    fn more_opens_than_threads_are_all_done() {
        let opening = Opening::default();
        let (sender, done) = channel();
        for number in 0..2000_usize {
            let sender = sender.clone();
            let work = Box::new(move || {
                std::thread::sleep(Duration::from_millis((number % 3) as u64));
                sender.send(number).unwrap();
            });
            assert!(opening.begin(number % 5, work).is_ok());
        }
        drop(sender);
        assert!(opening.queue.state.lock().unwrap().threads <= THREADS_MAX);
        assert_eq!(done.into_iter().count(), 2000);
    }

    #[test]
    fn opens_that_hang_leave_other_stores_their_turn_and_dropping_waits_for_none() {
        let opening = Opening::default();
        let (hang, hung) = channel::<()>();
        let hung = Arc::new(Mutex::new(hung));
        for _ in 0..OF_STORE_MAX + 50 {
            let hung = Arc::clone(&hung);
            let work = Box::new(move || {
                let _ = hung.lock().unwrap().recv();
            });
            assert!(opening.begin(1, work).is_ok());
        }
        for _ in 0..10 {
            let (sender, done) = channel();
            assert!(opening.begin(2, Box::new(move || sender.send(()).unwrap())).is_ok());
            done.recv().unwrap();
        }
        let queue = Arc::clone(&opening.queue);
        assert_eq!(queue.state.lock().unwrap().waiting.len(), 50);
        drop(opening);
        assert!(queue.state.lock().unwrap().waiting.is_empty());
        drop(hang);
        while queue.state.lock().unwrap().threads > 0 {
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}
