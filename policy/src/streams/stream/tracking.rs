//! The blocks that a stream claims. Each one that is in memory is *tracked* by the position of its next use.
//!
//! A block in flight may be claimed but is not tracked before it arrives. The claim is stored in the block's [`Slot`]. The
//! stream has a set of tracked positions per device, because the cost of fetching a block again depends on the device.

use super::Stream;
use crate::blocks::{BlockTable, Claim, Slot, SlotId};

impl Stream {
    /// Stops tracking the blocks of positions before `base`, except the current block. Their slots go to `untracked`.
    pub(super) fn untrack_before(
        &mut self,
        base: u64,
        blocks: &BlockTable,
        untracked: &mut Vec<SlotId>,
    ) {
        self.ranked_at = None;
        for part in 0..self.devices.len() {
            let mut current = None;
            while let Some(position) = self.devices[part].tracked.pop_before(base) {
                if self.current.is_some_and(|current| current.position == position) {
                    current = Some(position);
                    continue;
                }
                untracked.extend(self.slot_at(blocks, position));
            }
            current.into_iter().for_each(|position| self.devices[part].tracked.insert(position));
        }
    }

    pub(super) fn untrack_all(&mut self, blocks: &BlockTable, untracked: &mut Vec<SlotId>) {
        self.ranked_at = None;
        for part in 0..self.devices.len() {
            let all = self.devices[part].tracked.take_all();
            untracked.extend(all.filter_map(|position| self.slot_at(blocks, position)));
        }
    }

    /// The slot of the block at `position`.
    pub(crate) fn slot_at(&self, blocks: &BlockTable, position: u64) -> Option<SlotId> {
        match self.current {
            Some(current) if current.position == position => Some(current.slot),
            _ => blocks.find(self.block_at(position)?.0),
        }
    }

    /// Claims a block, in memory or in flight.
    pub(crate) fn put_claim(&mut self, known: &mut Slot, claim: Claim) {
        debug_assert!(known.claim().is_none(), "claimed twice: {known:?}");
        known.set_claim(Some(claim));
        self.unread += u64::from(known.is_unread());
    }

    /// Gives up the claim to a block.
    pub(crate) fn take_claim(&mut self, known: &mut Slot) {
        self.current.take_if(|at| known.claim().is_some_and(|claim| claim.position == at.position));
        known.set_claim(None);
        self.unread -= u64::from(known.is_unread());
    }

    /// Claims and tracks the block in `slot`. Returns whether it may be the least valuable.
    pub(crate) fn track(&mut self, blocks: &mut BlockTable, slot: SlotId, claim: Claim) -> bool {
        let known = &mut blocks[slot];
        self.put_claim(known, claim);
        self.track_arrived((slot, known), claim.position)
    }

    /// Tracks a claimed block that has arrived. Returns whether it may be the least valuable.
    #[inline]
    pub(crate) fn track_arrived(&mut self, (slot, known): (SlotId, &Slot), position: u64) -> bool {
        let in_set = self.cursor.in_set();
        self.ranked_at = None;
        let tracked = &mut self.of_device(known.device()).tracked;
        let is_last = tracked.last().is_none_or(|last| last < position);
        tracked.insert(position);
        if is_last {
            self.last_tracked = Some(slot);
        }
        is_last || in_set
    }

    /// Moves the claim to a block to another position, and its tracking if it is in memory. Returns whether it may be the least
    /// valuable of the tracked blocks.
    pub(crate) fn retrack(&mut self, slot: SlotId, known: &mut Slot, claim: Claim) -> bool {
        let before = known.claim().expect("it is claimed").position;
        known.set_claim(Some(claim));
        if known.is_in_flight() {
            return false;
        }
        self.of_device(known.device()).tracked.remove(before);
        self.track_arrived((slot, known), claim.position)
    }

    /// Gives up the claim at `position` to the block in `slot`, and stops tracking it.
    pub(crate) fn untrack(&mut self, blocks: &mut BlockTable, slot: SlotId, position: u64) {
        let known = &mut blocks[slot];
        self.take_claim(known);
        self.ranked_at = None;
        self.of_device(known.device()).tracked.remove(position);
    }
}
