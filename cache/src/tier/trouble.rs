//! D. Messages about trouble with the disk. Programs that read notice only that reads take longer.
//!
//! Counts are exact ([`TierStats`](super::TierStats)). Messages are few: one when trouble begins, and for each kind at
//! most one in [`TOLD_EVERY`].

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// Time between two messages of the same kind, at least.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Something is wrong with the disk of a tier.
#[derive(Debug, thiserror::Error)]
pub enum TierTrouble {
    /// The disk is full, or a quota is used up.
    #[error(
        "{0}; blocks are kept only as far as there is room, and more room is tried from time to time"
    )]
    Full(io::Error),
    /// A write failed.
    #[error("cannot write to the disk: {0}; no blocks are kept there for a while")]
    Write(io::Error),
    /// Several reads in a row failed.
    #[error("cannot read from the disk: {0}; blocks are fetched from the store for a while")]
    Read(io::Error),
    /// Blocks failed their check.
    #[error("corrupted blocks on the disk, {so_far} so far; they are fetched from the store again")]
    Corrupt {
        /// Corrupted blocks found since the tier was opened.
        so_far: u64,
    },
}

/// Trouble of several kinds, by number.
pub(super) trait Kinds {
    fn kind(&self) -> usize;
}

/// Most kinds of trouble.
const KINDS_MAX: usize = 4;

impl Kinds for TierTrouble {
    fn kind(&self) -> usize {
        match self {
            TierTrouble::Full(_) => 0,
            TierTrouble::Write(_) => 1,
            TierTrouble::Read(_) => 2,
            TierTrouble::Corrupt { .. } => 3,
        }
    }
}

type Tell<T> = Box<dyn Fn(&T) + Send + Sync>;

/// The listener, and when it was last told of each kind.
pub(super) struct Teller<T> {
    tell: OnceLock<Tell<T>>,
    told: Mutex<[Option<Instant>; KINDS_MAX]>,
}

impl<T> Default for Teller<T> {
    fn default() -> Self {
        Teller { tell: OnceLock::new(), told: Mutex::default() }
    }
}

impl<T: Kinds> Teller<T> {
    /// Sets the listener. Only the first one counts.
    pub(super) fn set_listener(&self, tell: Tell<T>) {
        self.tell.set(tell).ok();
    }

    /// Calls the listener, unless it was told of this kind a short time ago. Not to be called under a lock: the
    /// listener is the user's code.
    pub(super) fn tell(&self, trouble: &T) {
        let Some(tell) = self.tell.get() else { return };
        {
            let mut told = self.told.lock().unwrap_or_else(PoisonError::into_inner);
            let last = &mut told[trouble.kind()];
            if last.is_some_and(|at| at.elapsed() < TOLD_EVERY) {
                return;
            }
            *last = Some(Instant::now());
        }
        tell(trouble);
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;

    #[test]
    fn each_kind_is_told_once_in_a_while() {
        let lines: Arc<Mutex<Vec<String>>> = Arc::default();
        let teller = Teller::default();
        teller.tell(&TierTrouble::Corrupt { so_far: 1 });
        let heard = Arc::clone(&lines);
        teller
            .set_listener(Box::new(move |trouble| heard.lock().unwrap().push(trouble.to_string())));
        for blocks in [1, 2, 3] {
            teller.tell(&TierTrouble::Corrupt { so_far: blocks });
            teller.tell(&TierTrouble::Full(io::Error::from_raw_os_error(28)));
        }
        let lines = lines.lock().unwrap();
        assert_eq!(lines.len(), 2, "{lines:?}");
        assert!(lines[0].starts_with("corrupted blocks on the disk, 1 so far"), "{lines:?}");
        assert!(lines[1].starts_with("No space left on device"), "{lines:?}");
    }
}
