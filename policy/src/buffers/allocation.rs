//! LRU-SP: which program gives up a buffer (Cao, Felten and Li, OSDI 1994).
//!
//! All blocks stand in one list, by the time of their last fetch or read. The owner of the least recent block gives up a buffer
//! and chooses which one. If it chooses another block than the least recent one, these two blocks *swap* places, so that the
//! owner does not pay again at once for the block it kept. A *placeholder* remembers which block was given up for which. If the
//! program then misses the block that it gave up, its choice was bad: it gives up the block that it kept, whatever stands at
//! the end of the list.
//!
//! A block's owner is the hinter of the stream for which it was last fetched or read. A block read without hints has no owner,
//! and no program chooses for it.
//!
//! Cost: O(log n) for a read or fetch, with n blocks in memory or in flight. A choice passes along the list to the first block
//! for which its owner has no more use: O(n). The policy exists for comparison.

use std::collections::{BTreeMap, HashMap};

use crate::blocks::SlotId;
use crate::hint::{Block, HinterId};
use crate::tables::hash::Mix;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Allocation {
    /// By stamp, the least recent first.
    order: BTreeMap<u64, SlotId>,
    places: HashMap<SlotId, Place, Mix>,
    next: u64,
    /// Placeholders: for a block that was given up, the block that was kept.
    placeholders: HashMap<Block, SlotId, Mix>,
}

#[derive(Clone, Copy, Debug)]
struct Place {
    stamp: u64,
    owner: Option<HinterId>,
    /// The block that was last given up so that this one could stay.
    kept_for: Option<Block>,
}

impl Allocation {
    /// The block is fetched or read for `owner`: it becomes the most recent.
    pub(crate) fn touch(&mut self, slot: SlotId, owner: Option<HinterId>) {
        let stamp = self.next;
        self.next += 1;
        let place = self.places.entry(slot).or_insert(Place { stamp, owner, kept_for: None });
        self.order.remove(&place.stamp);
        (place.stamp, place.owner) = (stamp, owner);
        self.order.insert(stamp, slot);
    }

    /// The block leaves memory.
    pub(crate) fn remove(&mut self, slot: SlotId) {
        let Some(place) = self.places.remove(&slot) else { return };
        self.order.remove(&place.stamp);
        self.forget(place.kept_for);
    }

    /// Removes the placeholder of a block that was given up.
    fn forget(&mut self, given_up: Option<Block>) {
        if let Some(block) = given_up {
            self.placeholders.remove(&block);
        }
    }

    /// The owner of the block.
    pub(crate) fn owner(&self, slot: SlotId) -> Option<HinterId> {
        self.places.get(&slot).and_then(|place| place.owner)
    }

    /// The block whose owner makes room for `wanted`, among those that can go. Asking changes nothing, since the request may
    /// be refused.
    pub(crate) fn candidate(
        &self,
        wanted: Block,
        can_go: impl Fn(SlotId) -> bool,
    ) -> Option<SlotId> {
        let kept = self.placeholders.get(&wanted).copied();
        kept.filter(|&slot| can_go(slot))
            .or_else(|| self.order.values().copied().find(|&slot| can_go(slot)))
    }

    /// Room was made for `wanted`: removes its placeholder.
    pub(crate) fn admitted(&mut self, wanted: Block) {
        if let Some(slot) = self.placeholders.remove(&wanted) {
            self.places.get_mut(&slot).expect("placeholders go with their blocks").kept_for = None;
        }
    }

    /// All blocks, the least recent first.
    pub(crate) fn blocks(&self) -> impl Iterator<Item = SlotId> {
        self.order.values().copied()
    }

    /// `given_up`, which holds `block`, goes; `kept` takes its place in the list.
    pub(crate) fn swap(&mut self, given_up: SlotId, block: Block, kept: SlotId) {
        let stamp_of = |slot| self.places.get(&slot).map(|place| place.stamp);
        let (Some(high), Some(low)) = (stamp_of(given_up), stamp_of(kept)) else { return };
        for (slot, stamp) in [(given_up, low), (kept, high)] {
            self.order.insert(stamp, slot);
            self.places.get_mut(&slot).expect("it has a stamp").stamp = stamp;
        }
        self.admitted(block); // The block may have come back without using its placeholder.
        let before = self.places.get_mut(&kept).expect("it has a stamp").kept_for.replace(block);
        self.forget(before);
        self.placeholders.insert(block, kept);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hint::FileId;

    const OWNER: Option<HinterId> = Some(HinterId(1));

    fn block(index: u64) -> Block {
        Block { file: FileId(1), index }
    }

    fn with(slots: u32) -> Allocation {
        let mut allocation = Allocation::default();
        (0..slots).for_each(|slot| allocation.touch(SlotId(slot), OWNER));
        allocation
    }

    #[test]
    fn the_least_recent_that_can_go_is_asked() {
        let mut allocation = with(4);
        allocation.touch(SlotId(0), None);
        assert_eq!(allocation.candidate(block(9), |_| true), Some(SlotId(1)));
        assert_eq!(allocation.candidate(block(9), |slot| slot != SlotId(1)), Some(SlotId(2)));
        assert_eq!(allocation.candidate(block(9), |_| false), None);
        assert_eq!((allocation.owner(SlotId(0)), allocation.owner(SlotId(1))), (None, OWNER));
    }

    #[test]
    fn what_was_kept_is_not_asked_for_again_at_once() {
        let mut allocation = with(4);
        allocation.swap(SlotId(3), block(3), SlotId(0));
        allocation.remove(SlotId(3));
        assert_eq!(allocation.blocks().collect::<Vec<_>>(), [1, 2, 0].map(SlotId));
    }

    #[test]
    fn who_misses_what_it_gave_up_gives_up_what_it_kept() {
        let mut allocation = with(4);
        allocation.swap(SlotId(3), block(3), SlotId(0));
        allocation.remove(SlotId(3));
        for _ in 0..2 {
            assert_eq!(allocation.candidate(block(3), |_| true), Some(SlotId(0)));
        }
        // The placeholder serves once.
        allocation.admitted(block(3));
        assert_eq!(allocation.candidate(block(3), |_| true), Some(SlotId(1)));
    }

    #[test]
    fn a_block_that_is_given_up_again_has_the_last_placeholder() {
        let mut allocation = with(5);
        allocation.swap(SlotId(4), block(4), SlotId(0));
        allocation.remove(SlotId(4));
        allocation.touch(SlotId(4), OWNER);
        allocation.swap(SlotId(4), block(4), SlotId(1));
        allocation.remove(SlotId(4));
        allocation.remove(SlotId(0));
        assert_eq!(allocation.candidate(block(4), |_| true), Some(SlotId(1)));
    }

    #[test]
    fn placeholders_go_with_what_was_kept_and_are_one_for_each() {
        let mut allocation = with(5);
        allocation.swap(SlotId(4), block(4), SlotId(0));
        allocation.remove(SlotId(4));
        allocation.swap(SlotId(3), block(3), SlotId(0));
        allocation.remove(SlotId(3));
        assert_eq!(allocation.placeholders.len(), 1);
        allocation.remove(SlotId(0));
        assert!(allocation.placeholders.is_empty());
        assert_eq!(allocation.candidate(block(3), |_| true), Some(SlotId(1)));
    }
}
