//! The life of a claim, from the start of a fetch: claimed, arrived, read, given up.
//!
//! A stream may claim a block in flight, and tracks it from its arrival on. A block in memory without a claim and outside
//! the queues is *settled*: other streams and the estimators of the list are offered it. If none keeps it, it joins the
//! consumed blocks, or leaves if the memory is the kernel's.

use super::Arbiter;
use crate::blocks::{Claim, DeviceIndex, Queue, Slot, SlotId, StreamIndex};
use crate::buffers::estimators::hint::HintEstimator;
use crate::buffers::estimators::{Estimator, Scene};
use crate::contract::Memory;
use crate::decisions::{Decision, DecisionKind};
use crate::hint::Block;
use crate::rules::Replacement;
use crate::time::Nanos;

impl Arbiter {
    /// The fetch of a block begins. A prefetch is claimed by the stream that will read the block.
    #[inline(always)] // Every miss passes here.
    pub(crate) fn begin(
        &mut self,
        block: Block,
        device: DeviceIndex,
        prefetched_for: Option<Claim>,
    ) -> SlotId {
        let mut known = Slot::in_flight(block, device, prefetched_for.is_some());
        if let Some(claim) = prefetched_for {
            let stream = &mut self.streams[claim.stream];
            stream.put_claim(&mut known, claim);
            known.set_source(stream.source);
            self.tallies.of(known.source()).prefetched += 1;
            self.streams.touch_shown(claim.stream);
            self.unread += 1;
        }
        let slot = self.blocks.insert(known);
        self.accessed(Some(slot), prefetched_for.map(|claim| claim.stream));
        slot
    }

    /// The block is read or given up, and counts as unread no longer.
    #[inline(always)] // Most often the block was read already; that case is handled here.
    pub(crate) fn mark_read(&mut self, slot: SlotId) {
        if self.blocks[slot].is_unread() {
            self.mark_unread_read(slot);
        }
    }

    #[inline(never)] // The rarer part, with several callers.
    fn mark_unread_read(&mut self, slot: SlotId) {
        self.blocks[slot].read();
        self.unread -= 1;
        if let Some(Claim { stream: index, .. }) = self.blocks[slot].claim() {
            self.streams[index].unread -= 1;
            self.streams.touch_shown(index);
            self.streams.touch_candidate(index);
        }
        self.streams.wake_parked();
    }

    /// Claims a block. The stream tracks it as soon as it is in memory.
    pub(crate) fn claim(&mut self, slot: SlotId, claim: Claim) {
        if self.blocks[slot].is_unread() {
            self.streams.touch_shown(claim.stream);
        }
        let Some(stream) = self.streams.get_mut(claim.stream) else { return };
        let known = &mut self.blocks[slot];
        if known.is_in_flight() {
            return stream.put_claim(known, claim);
        }
        if stream.track(&mut self.blocks, slot, claim) {
            self.streams.touch_value(claim.stream);
        }
        self.streams.touch_candidate(claim.stream);
    }

    /// Removes the claim of a block in memory or in flight.
    pub(crate) fn unclaim(&mut self, slot: SlotId) {
        let Some(claim) = self.blocks[slot].claim() else { return };
        let Some(stream) = self.streams.get_mut(claim.stream) else { return };
        stream.untrack(&mut self.blocks, slot, claim.position);
        if self.blocks[slot].is_unread() {
            self.streams.touch_shown(claim.stream);
        }
        self.streams.touch_candidate(claim.stream);
    }

    /// The stream that claims a block will read it at the position of `claim` instead.
    pub(crate) fn reclaim(&mut self, slot: SlotId, claim: Claim) {
        let Some(stream) = self.streams.get_mut(claim.stream) else { return };
        if stream.retrack(slot, &mut self.blocks[slot], claim) {
            self.streams.touch_value(claim.stream);
        }
        self.streams.touch_candidate(claim.stream);
    }

    /// The block, if it is here, would be fetched from `device` from now on.
    pub(crate) fn moved(&mut self, block: Block, device: DeviceIndex) {
        let Some(slot) = self.blocks.find(block) else { return };
        let before = self.blocks[slot].moves_to(device);
        if before == device {
            return;
        }
        let claim = self.blocks[slot].claim();
        let (scene, estimators) = self.scene();
        estimators.moved(&scene, slot, before);
        if let Some(Claim { stream: index, .. }) = claim
            && let Some(stream) = self.streams.get_mut(index)
        {
            let scene = scene!(self);
            HintEstimator { stream, index }.moved(&scene, slot, before);
            self.streams.touch(index);
        }
    }

    /// A block in flight has lost its claim.
    pub(crate) fn orphan(&mut self, slot: SlotId) {
        self.estimators.orphans.adopt(slot);
    }

    /// The data of a block has arrived.
    pub(crate) fn arrived(&mut self, now: Nanos, slot: SlotId, was_read_unhinted: bool) {
        self.blocks[slot].arrived();
        let (mut scene, estimators) = self.scene();
        estimators.arrived(&mut scene, slot);
        if let Some(claim) = self.blocks[slot].claim() {
            if self.streams[claim.stream].expects(claim.position) {
                let stream = &mut self.streams[claim.stream];
                if stream.track_arrived((slot, &self.blocks[slot]), claim.position) {
                    self.streams.touch_value(claim.stream);
                }
                self.streams.touch_candidate(claim.stream);
            } else {
                if self.blocks[slot].is_unread() {
                    self.waste(now, slot);
                }
                self.mark_read(slot);
                self.unclaim(slot);
            }
        }
        if was_read_unhinted || self.rules.replacement == Replacement::Lru {
            return self.enqueue(slot, Queue::Recent);
        }
        self.settle(slot, None);
    }

    /// Finds a reason to keep a block in memory that may have none, or lets it go. The stream `asked` has already refused it.
    #[inline(always)] // Most often the block has a reason; that case is handled here.
    pub(crate) fn settle(&mut self, slot: SlotId, asked: Option<StreamIndex>) {
        let known = &self.blocks[slot];
        if !known.is_in_flight() && known.claim().is_none() && !known.is_queued() {
            self.settle_idle(slot, asked);
        }
    }

    #[inline(never)] // The rarer part, with several callers.
    fn settle_idle(&mut self, slot: SlotId, asked: Option<StreamIndex>) {
        let keeps = self.memory != Memory::Kernel { keeps: false }
            && self.rules.replacement != Replacement::Lru;
        let is_kept = |arbiter: &mut Self| {
            arbiter.unwanted_by_others(slot, asked, -1.0).is_none()
                || arbiter.list_saves(slot, None, -1.0)
        };
        if keeps && is_kept(self) {
            return;
        }
        match self.memory {
            Memory::Owned => self.enqueue(slot, Queue::Consumed),
            Memory::Kernel { .. } => self.remove(slot), // The kernel decides from here on.
        }
    }

    /// The stream that claims an unread block gives it up.
    pub(crate) fn waste(&mut self, now: Nanos, slot: SlotId) {
        let known = &self.blocks[slot];
        let (block, stream) = (known.block(), known.claim().map(|claim| claim.stream));
        self.note_wasted(known.source(), stream);
        if self.log.is_on() {
            let stream = stream.map(|stream| self.streams[stream].id);
            let (at, kind, value_ns, against_ns) = (now, DecisionKind::Waste, 0.0, 0.0);
            self.log.push(Decision { at, kind, block, stream, value_ns, against_ns });
        }
    }

    /// A stream has stopped tracking a block. If it is unread, its prefetch was wasted.
    pub(crate) fn abandon(&mut self, now: Nanos, slot: SlotId) {
        if self.blocks[slot].is_unread() {
            self.waste(now, slot);
        }
        self.mark_read(slot);
        self.blocks[slot].set_claim(None);
        self.settle(slot, None);
    }
}
