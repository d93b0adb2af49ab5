//! The arbiter under the policy `lru-sp`, where buffers have owners: the owner of the least recent block chooses which of its
//! blocks goes (see [`allocation`](crate::buffers::allocation)).

use super::{Arbiter, Named, Need, NoRoom};
use crate::blocks::{SlotId, StreamIndex};
use crate::buffers::estimators::{Scene, hint};
use crate::buffers::rates::share_of;
use crate::hint::HinterId;
use crate::time::Nanos;

impl Arbiter {
    #[cold]
    pub(super) fn accessed_by_owner(&mut self, slot: Option<SlotId>, by: Option<StreamIndex>) {
        let Some(slot) = slot else { return };
        let owner = by.map(|index| self.streams[index].hinter);
        self.allocation.as_mut().expect("it is there").touch(slot, owner);
    }

    /// [`make_room`](Arbiter::make_room) where owners choose.
    ///
    /// A hinter takes a buffer of its own, or one with an unread block, only for a block that is worth more. Otherwise two
    /// hinters could take buffers from each other for ever.
    pub(super) fn make_room_by_owners(&mut self, now: Nanos, need: Need) -> Result<f64, NoRoom> {
        let asking = need.by.map(|index| self.streams[index].hinter);
        let mut paid = 0.0;
        while self.blocks.len() >= self.limit_blocks {
            let (blocks, allocation) = (&self.blocks, &self.allocation);
            let can_go = |slot: SlotId| !blocks[slot].is_in_flight();
            let allocation = allocation.as_ref().expect("blocks have owners");
            let candidate = allocation.candidate(need.block, can_go);
            let candidate = candidate.ok_or(NoRoom::TooDear(f64::INFINITY))?;
            let owner = allocation.owner(candidate);
            let (given_up, picker, cost) = self.choice_of(owner, candidate);
            let is_own = owner.is_some() && owner == asking;
            if (is_own || self.blocks[given_up].is_unread()) && cost >= need.worth {
                return Err(NoRoom::TooDear(cost));
            }
            if given_up != candidate {
                let block = self.blocks[given_up].block();
                let allocation = self.allocation.as_mut().expect("blocks have owners");
                allocation.swap(given_up, block, candidate);
            }
            self.leave(now, given_up, (picker, Named::Unknown), (cost, need.worth));
            paid = cost;
        }
        self.allocation.as_mut().expect("blocks have owners").admitted(need.block);
        Ok(paid)
    }

    /// The block that `owner` gives up when it is asked for `candidate`, the stream that tracks that block, and its value:
    /// first a block without a claim, then the least valuable one that its streams claim.
    fn choice_of(
        &mut self,
        owner: Option<HinterId>,
        candidate: SlotId,
    ) -> (SlotId, Option<StreamIndex>, f64) {
        let useless = (candidate, None, 0.0);
        let (Some(owner), Some(allocation)) = (owner, &self.allocation) else { return useless };
        let claim = self.blocks[candidate].claim();
        let claimed = claim.and_then(|claim| self.streams.get(claim.stream));
        if claimed.is_none_or(|stream| stream.hinter != owner) {
            return useless;
        }
        let is_idle = |slot: SlotId| {
            let known = &self.blocks[slot];
            !known.is_in_flight()
                && known.claim().is_none()
                && allocation.owner(slot) == Some(owner)
        };
        if let Some(slot) = allocation.blocks().find(|&slot| is_idle(slot)) {
            return (slot, None, 0.0);
        }
        let scene = scene!(self);
        let furthest = self.streams.hinters().streams(owner).filter_map(|index| {
            let stream = self.streams.get(index)?;
            let (_, position, value) = hint::least(stream, &scene)?;
            let slot = stream.slot_at(scene.blocks, position)?;
            Some((slot, Some(index), value * self.rates.count(share_of(index))))
        });
        furthest.min_by(|one, other| one.2.total_cmp(&other.2)).unwrap_or(useless)
    }
}
