//! Where hints come from, how right each source has been, and which of them stop.
//!
//! Every stream of the policy is of one [`Origin`]. The policy counts what became of the blocks fetched for it
//! ([`foretell_policy::Tally`]). A source that guesses and is mostly wrong stops for the rest of the run: the policy's own
//! trust is by stream and by process, so it believes the guesses about a thousand short processes a thousand times.
//!
//! What a user or a program says is no guess of foretell's, and is never stopped: lists and scripts, rules, hints through the
//! interface, advice, and a recording given with `--replay`. Each of them has its hinter's record in the policy, so a program
//! that discloses what it does not read loses its own trust and nobody else's.
//!
//! A source is not judged while a program runs, or has run, without the library: what such a program reads is seen in part at
//! best, and would count as wasted. What a program reads through a mapping is seen by looks at its page tables, so a short
//! program may read some unseen.
//!
//! Pure. Cost: O(sources) a turn, and O(streams) once for a source that stops.

use foretell_policy::{Policy, SOURCES_MAX, SourceId, Tally};
use serde::{Deserialize, Serialize};

use crate::BLOCK_BYTES;
use crate::report::SourceReport;

/// A source that guesses is judged by at least so many blocks, of which it is known whether a program has read them: 32 MiB.
/// The guesses about one process that reads nothing are 1 MiB at most, so a few such processes stop nothing.
const JUDGED_MIN_BLOCKS: u64 = (32 << 20) / BLOCK_BYTES;

/// A source of which less than this share was read stops. The device has then read more than ten blocks for one, and on one
/// that is busy they cost more than the one can save. Streams that are partly right stay far above it, since the policy fetches
/// less for them.
const PRECISION_MIN: f64 = 0.1;

/// Where hints come from.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Origin {
    /// Lists and scripts that the user gave.
    #[default]
    Given,
    /// Programs, through the interface for hints.
    Program,
    /// Programs' own advice.
    Advice,
    /// Words of command lines.
    Arguments,
    /// Folders that programs go through: what they read there.
    Walks,
    /// Files that are mapped and touched in order.
    Mapped,
    /// Earlier runs of the workload.
    Learned,
    /// A recording (`--replay`).
    Replayed,
    /// What followed before on what programs open, across programs.
    Predicted,
    /// The user's rules about files (`--rules`).
    Rules,
}

impl Origin {
    /// All of them, in the order of their numbers.
    pub const ALL: [Origin; 10] = [
        Origin::Given,
        Origin::Program,
        Origin::Advice,
        Origin::Arguments,
        Origin::Walks,
        Origin::Mapped,
        Origin::Learned,
        Origin::Replayed,
        Origin::Predicted,
        Origin::Rules,
    ];

    /// Its number in the policy.
    pub(crate) fn id(self) -> SourceId {
        const { assert!(Origin::ALL.len() <= SOURCES_MAX) };
        SourceId::new(self as u8)
    }

    /// The source with this number.
    pub(crate) fn of(id: SourceId) -> Self {
        Self::ALL.get(usize::from(id.number())).copied().unwrap_or_default()
    }

    /// Its name for people.
    pub fn name(self) -> &'static str {
        match self {
            Origin::Given => "hints",
            Origin::Program => "programs' hints",
            Origin::Advice => "advice",
            Origin::Arguments => "arguments",
            Origin::Walks => "folders gone through",
            Origin::Mapped => "mapped files",
            Origin::Learned => "earlier runs",
            Origin::Replayed => "the recording",
            Origin::Predicted => "what came next before",
            Origin::Rules => "rules",
        }
    }

    /// Whether it is stopped where it is mostly wrong.
    pub(crate) fn is_guess(self) -> bool {
        match self {
            Origin::Given | Origin::Program | Origin::Advice | Origin::Replayed | Origin::Rules => {
                false
            }
            Origin::Arguments
            | Origin::Walks
            | Origin::Mapped
            | Origin::Learned
            | Origin::Predicted => true,
        }
    }
}

/// Whether a source with this tally is so often wrong that it should stop.
fn is_mostly_wrong(tally: &Tally) -> bool {
    tally.judged() >= JUDGED_MIN_BLOCKS
        && tally.precision().is_some_and(|precision| precision < PRECISION_MIN)
}

/// The sources that have stopped.
#[derive(Debug, Default)]
pub(crate) struct Sources {
    stopped: Vec<Origin>,
    /// Reads were not seen, so no source is judged for the rest of the run.
    is_blind: bool,
}

impl Sources {
    /// A source that is mostly wrong and has not stopped yet. It counts as stopped from now on. `sees_all` tells whether all
    /// reads were seen so far: of what is not seen, nobody knows whether it was guessed rightly. It may look at all programs,
    /// so it is asked once for each source that is wrong, and no more after a `false`: what was missed stays missed.
    pub(crate) fn next_to_stop(
        &mut self,
        policy: &Policy,
        sees_all: impl FnOnce() -> bool,
    ) -> Option<Origin> {
        let is_next = |origin: &Origin| {
            origin.is_guess()
                && !self.stopped.contains(origin)
                && is_mostly_wrong(&policy.tally(origin.id()))
        };
        if self.is_blind {
            return None;
        }
        let next = Origin::ALL.into_iter().find(is_next)?;
        self.is_blind = !sees_all();
        if self.is_blind {
            return None;
        }
        self.stopped.push(next);
        Some(next)
    }

    /// Whether a source has stopped.
    pub(crate) fn is_stopped(&self, origin: Origin) -> bool {
        self.stopped.contains(&origin)
    }

    /// The sources that have acted, with what became of their blocks.
    pub(crate) fn report(&self, policy: &Policy) -> Vec<SourceReport> {
        let of = |origin: Origin| {
            let tally = policy.tally(origin.id());
            let has_acted = tally != Tally::default();
            has_acted.then(|| SourceReport::new(origin, &tally, self.is_stopped(origin)))
        };
        Origin::ALL.into_iter().filter_map(of).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_source_has_a_number_and_a_name_of_its_own() {
        for (at, origin) in Origin::ALL.into_iter().enumerate() {
            assert_eq!((usize::from(origin.id().number()), Origin::of(origin.id())), (at, origin));
            assert!(Origin::ALL[..at].iter().all(|other| other.name() != origin.name()));
        }
    }

    #[test]
    fn a_source_is_judged_by_enough_and_late_blocks_were_right() {
        let tally = |useful, late, wasted| Tally { useful, late, wasted, ..Tally::default() };
        let least = JUDGED_MIN_BLOCKS;
        assert!(is_mostly_wrong(&tally(0, 0, least)));
        assert!(!is_mostly_wrong(&tally(0, 0, least - 1)));
        assert!(is_mostly_wrong(&tally(least / 20, 0, least)));
        assert!(!is_mostly_wrong(&tally(least / 20, least / 10, least)));
        assert!(!is_mostly_wrong(&tally(0, 0, 0)));
    }
}
