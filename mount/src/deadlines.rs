//! Fails requests that a folder does not answer in time. Stores limit their own requests.
//!
//! A program that waits for a mount cannot be killed, so it must not wait for ever: the folder may be on a machine that
//! is gone. After the deadline the program gets EIO. The thread that asked the folder may wait on; its late answer is
//! dropped.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};
use std::time::{Duration, Instant};

use fuser::{
    Errno, ReplyData, ReplyDirectory, ReplyDirectoryPlus, ReplyEntry, ReplyOpen, ReplyStatfs,
    ReplyXattr,
};

use crate::trouble::Troubles;

/// Deadlines are checked at intervals of the deadline divided by this, and of 10 ms at least. An error is late by one interval
/// at most.
const LATE_BY_DIVISOR: u32 = 4;
const LATE_BY_MIN: Duration = Duration::from_millis(10);

/// A reply that can be an error.
pub(crate) trait Reply: Send + 'static {
    /// Answers with an error.
    fn fail(self, error: Errno);
}

macro_rules! replies {
    ($($reply:ty),*) => {
        $(impl Reply for $reply {
            fn fail(self, error: Errno) {
                self.error(error);
            }
        })*
    };
}
replies!(
    ReplyData,
    ReplyDirectory,
    ReplyDirectoryPlus,
    ReplyEntry,
    ReplyOpen,
    ReplyStatfs,
    ReplyXattr
);

/// A reply that may have been given already.
trait Pending: Send + Sync {
    /// Answers with an error now. Returns whether it had not been answered.
    fn fail(&self) -> bool;
}

impl<R: Reply> Pending for Mutex<Option<R>> {
    fn fail(&self) -> bool {
        let reply = lock(self).take();
        reply.map(|reply| reply.fail(Errno::EIO)).is_some()
    }
}

/// The deadline, and a number that tells requests with the same deadline apart.
type Place = (Instant, u64);

#[derive(Default)]
struct Waiting {
    pending: BTreeMap<Place, Arc<dyn Pending>>,
    given: u64,
    has_thread: bool,
}

struct Shared {
    after: Duration,
    waiting: Mutex<Waiting>,
    troubles: Arc<Troubles>,
}

/// See the [module](self).
pub(crate) struct Deadlines(Option<Arc<Shared>>);

/// A reply that is given once: by the thread that has the answer, or at the deadline.
pub(crate) struct Answer<R: Reply> {
    reply: Arc<Mutex<Option<R>>>,
    place: Option<(Arc<Shared>, Place)>,
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl Deadlines {
    /// Requests fail after `after`, or up to a quarter later. With `None` they never do.
    pub(crate) fn new(after: Option<Duration>, troubles: &Arc<Troubles>) -> Self {
        let shared = |after| {
            let (waiting, troubles) = (Mutex::default(), Arc::clone(troubles));
            Arc::new(Shared { after, waiting, troubles })
        };
        Deadlines(after.map(shared))
    }

    pub(crate) fn of<R: Reply>(&self, reply: R) -> Answer<R> {
        let reply = Arc::new(Mutex::new(Some(reply)));
        let place = self.0.as_ref().map(|shared| {
            let mut waiting = lock(&shared.waiting);
            waiting.given += 1;
            let place = (Instant::now() + shared.after, waiting.given);
            waiting.pending.insert(place, Arc::clone(&reply) as Arc<dyn Pending>);
            if !waiting.has_thread {
                let (weak, after) = (Arc::downgrade(shared), shared.after);
                let thread = std::thread::Builder::new().name("mount-deadlines".to_owned());
                // Without a thread there are no deadlines. The next request tries to start it again.
                waiting.has_thread = thread.spawn(move || watch(&weak, after)).is_ok();
            }
            drop(waiting);
            (Arc::clone(shared), place)
        });
        Answer { reply, place }
    }
}

/// The result of `work`, or `None` if it panics.
fn contained<R>(work: impl FnOnce() -> R) -> Option<R> {
    catch_unwind(AssertUnwindSafe(work)).ok()
}

/// Fails late requests until the mount is gone.
fn watch(shared: &Weak<Shared>, after: Duration) {
    loop {
        std::thread::sleep((after / LATE_BY_DIVISOR).max(LATE_BY_MIN));
        let Some(shared) = shared.upgrade() else { return };
        let now = Instant::now();
        let mut waiting = lock(&shared.waiting);
        let not_yet = waiting.pending.split_off(&(now, u64::MAX));
        let late = std::mem::replace(&mut waiting.pending, not_yet);
        drop(waiting);
        // A panic costs only the answer in which it happens. The panic hook has reported it.
        let fail = |reply: &Arc<dyn Pending>| contained(|| reply.fail()).unwrap_or(false);
        if late.values().filter(|reply| fail(reply)).count() > 0 {
            contained(|| shared.troubles.of_silence(after));
        }
        contained(|| drop(late));
    }
}

impl<R: Reply> Answer<R> {
    /// Gives the reply, unless the deadline has passed.
    pub(crate) fn give(self, give: impl FnOnce(R)) {
        self.try_give(give);
    }

    /// Like [`give`](Answer::give). Returns whether it was given.
    pub(crate) fn try_give(self, give: impl FnOnce(R)) -> bool {
        let reply = lock(&self.reply).take();
        reply.map(give).is_some()
    }

    /// Adds to the reply. After the deadline, returns `otherwise`.
    pub(crate) fn add<T>(&self, otherwise: T, add: impl FnOnce(&mut R) -> T) -> T {
        lock(&self.reply).as_mut().map_or(otherwise, add)
    }

    pub(crate) fn error(self, error: Errno) {
        self.give(|reply| reply.fail(error));
    }
}

impl<R: Reply> Drop for Answer<R> {
    fn drop(&mut self) {
        if let Some((shared, place)) = &self.place {
            lock(&shared.waiting).pending.remove(place);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::mpsc::{Sender, channel};

    /// A program that waits for the mount.
    struct Waits(Sender<()>, bool);

    impl Reply for Waits {
        fn fail(self, _: Errno) {
            assert!(!self.1, "on purpose");
            self.0.send(()).expect("the test waits");
        }
    }

    #[test]
    fn answers_come_in_time_also_after_a_panic() {
        let troubles = Arc::new(Troubles::new(Box::new(|_| panic!("on purpose"))));
        let deadlines = Deadlines::new(Some(Duration::from_millis(20)), &troubles);
        for panics in [true, false, false] {
            let (sender, failed) = channel();
            let _answers =
                [deadlines.of(Waits(sender.clone(), panics)), deadlines.of(Waits(sender, false))];
            failed.recv_timeout(Duration::from_secs(30)).expect("an answer");
        }
    }
}
