//! D. What people are told when something is wrong with the disk. No program sees any of it but by the time that it takes.
//!
//! Counts are exact ([`TierStats`](super::TierStats)); lines are few: the first time of a row, and for each kind no more than one in
//! [`TOLD_EVERY`].

use std::io;
use std::sync::{Mutex, OnceLock, PoisonError};
use std::time::{Duration, Instant};

/// At most one line of each kind in so long.
const TOLD_EVERY: Duration = Duration::from_secs(60);

/// Something is wrong with the disk of a tier.
#[derive(Debug, thiserror::Error)]
pub enum TierTrouble {
    /// There is no room, on the disk or by a quota.
    #[error(
        "{0}; what is fetched is kept only as far as there is room, and more is tried again and again"
    )]
    Full(io::Error),
    /// Something could not be written.
    #[error("cannot write to the disk: {0}; nothing is kept there for a while")]
    Write(io::Error),
    /// Reads in a row have failed.
    #[error(
        "cannot read from the disk: {0}; it is left alone for a while, and the store is asked instead"
    )]
    Read(io::Error),
    /// Blocks are not what was written.
    #[error("corrupted blocks on the disk, {so_far} so far; the store is asked for them again")]
    Corrupt {
        /// How many since the tier was opened.
        so_far: u64,
    },
}

impl TierTrouble {
    const KINDS: usize = 4;

    fn kind(&self) -> usize {
        match self {
            TierTrouble::Full(_) => 0,
            TierTrouble::Write(_) => 1,
            TierTrouble::Read(_) => 2,
            TierTrouble::Corrupt { .. } => 3,
        }
    }
}

type Tell = Box<dyn Fn(&TierTrouble) + Send + Sync>;

/// Who is told, and what was told when.
#[derive(Default)]
pub(super) struct Teller {
    tell: OnceLock<Tell>,
    told: Mutex<[Option<Instant>; TierTrouble::KINDS]>,
}

impl Teller {
    /// Only the first one is ever told.
    pub(super) fn is(&self, tell: Tell) {
        self.tell.set(tell).ok();
    }

    /// Not to be called under a lock: what is called in turn is somebody else's.
    pub(super) fn tell(&self, trouble: &TierTrouble) {
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
        teller.is(Box::new(move |trouble| heard.lock().unwrap().push(trouble.to_string())));
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
