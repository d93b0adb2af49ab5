//! A source on a thread of its own, so that one that waits holds up nobody.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, TryRecvError, sync_channel};
use std::thread;

use crate::driver::done::DoneQueue;
use crate::source::Disclosure;

/// What a source gives: a disclosure, or in words why there is none.
pub type SourceItem = Result<Disclosure, String>;

/// Disclosures that a source's thread may run ahead of the session.
const AHEAD_MAX: usize = 1024;

/// The session's end of a source.
#[derive(Debug)]
pub(crate) struct Feed {
    receiver: Receiver<SourceItem>,
    finished: bool,
}

impl Feed {
    /// Starts `source`; `bell` is rung whenever it has given something.
    pub(crate) fn start(
        source: Box<dyn Iterator<Item = SourceItem> + Send>,
        bell: Arc<DoneQueue>,
    ) -> Self {
        let (sender, receiver) = sync_channel(AHEAD_MAX);
        // Without a thread the channel closes and the source counts as finished.
        let _ = thread::Builder::new().name("foretell-source".into()).spawn(move || {
            // One that panics has ended.
            let _ = catch_unwind(AssertUnwindSafe(|| supply(source, &sender, &bell)));
            drop(sender); // First, so that the session that the bell wakes sees the end.
            bell.ring();
        });
        Feed { receiver, finished: false }
    }

    /// What is there already; `None` if nothing is.
    pub(crate) fn next(&mut self) -> Option<SourceItem> {
        match self.receiver.try_recv() {
            Ok(item) => Some(item),
            Err(TryRecvError::Empty) => None,
            Err(TryRecvError::Disconnected) => {
                self.finished = true;
                None
            }
        }
    }

    /// Whether the source has ended and everything it gave was taken.
    pub(crate) fn is_finished(&self) -> bool {
        self.finished
    }
}

fn supply(
    source: Box<dyn Iterator<Item = SourceItem> + Send>,
    sender: &SyncSender<SourceItem>,
    bell: &DoneQueue,
) {
    for item in source {
        foretell_fault::point("foretell-source");
        if sender.send(item).is_err() {
            return; // The session has ended.
        }
        bell.ring();
    }
}
