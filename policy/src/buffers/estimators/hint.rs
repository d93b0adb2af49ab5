//! The hint estimator: what a stream's hints say of blocks in memory (TIP 1995, sections 4.6 and 5.1).
//!
//! The least valuable block is the one that is used last, of those that cost the same to fetch again; so
//! each device has an ordered set of its own, and the least of their lasts is taken (section 4.9). Next
//! uses are positions: nothing is sorted again when the cursor moves.
//!
//! Cost: O(log n) to track, pick or forget; O(d) to declare, d being the devices of the stream.

use super::{Estimator, Scene};
use crate::blocks::{Claim, DeviceIndex, SlotId, StreamIndex};
use crate::buffers::values::{Terms, nearness};
use crate::devices::costs::Costs;
use crate::rules::{Replacement, Rules};
use crate::streams::stream::Stream;
use crate::tables::hash::hash_block;

/// A stream as an estimator.
pub(crate) struct HintEstimator<'a> {
    pub(crate) index: StreamIndex,
    pub(crate) stream: &'a mut Stream,
}

impl Stream {
    /// What fetching costs it from `device`.
    pub(crate) fn terms(&self, costs: &Costs, rules: &Rules, device: DeviceIndex) -> Terms {
        Terms::new(&costs.at(device), rules, self.pace.pace_ns(), self.pace.is_late())
    }

    /// What it is worth to keep a block of `device` until it is read at `position`.
    pub(crate) fn value_of(&self, scene: &Scene<'_>, device: DeviceIndex, position: u64) -> f64 {
        let terms = self.terms(scene.costs, scene.rules, device);
        self.value_at(scene.rules, &terms, position)
    }

    /// The same, by the terms of the device.
    pub(crate) fn value_at(&self, rules: &Rules, terms: &Terms, position: u64) -> f64 {
        let distance = self.distance(position);
        let value = match rules.replacement {
            Replacement::FurthestNextUse | Replacement::LruSp => nearness(distance),
            Replacement::Lru | Replacement::MinMax => terms.flush_cost(distance),
        };
        if rules.accuracy { value * self.cursor.accuracy() } else { value }
    }

    /// The least valuable of the blocks tracked: its device, its next use, its value. Where blocks go by
    /// recency alone, hints have no say.
    pub(crate) fn least(&self, scene: &Scene<'_>) -> Option<(DeviceIndex, u64, f64)> {
        if scene.rules.replacement == Replacement::Lru {
            return None;
        }
        let mut least: Option<(DeviceIndex, u64, f64)> = None;
        for part in &self.devices {
            let Some(last) = part.tracked.last() else { continue };
            let terms = self.terms(scene.costs, scene.rules, part.device);
            let mut consider = |at: u64| {
                let value = self.value_at(scene.rules, &terms, at);
                let is_less = least.is_none_or(|(_, other, least)| {
                    value < least || (value == least && at > other)
                });
                if is_less {
                    least = Some((part.device, at, value));
                }
            };
            consider(last);
            if self.cursor.in_set() {
                // Within a set all are alike, and may be worth less than what comes after or before.
                let ends = self.cursor.sets().flat_map(|set| [set.start, set.end]);
                ends.filter_map(|end| part.tracked.last_before(end)).for_each(consider);
            }
        }
        least
    }

    /// Where the least valuable of the blocks tracked is read, and its device.
    fn least_position(&self, scene: &Scene<'_>) -> Option<(DeviceIndex, u64)> {
        match &self.devices[..] {
            [part] if !self.cursor.in_set() => Some((part.device, part.tracked.last()?)),
            _ => self.least(scene).map(|(device, position, _)| (device, position)),
        }
    }

    /// The least valuable of the blocks tracked.
    pub(crate) fn least_slot(&self, scene: &Scene<'_>) -> Option<SlotId> {
        let (_, position) = self.least_position(scene)?;
        self.slot_at(scene.blocks, position)
    }
}

impl HintEstimator<'_> {
    fn claim(&self, scene: &Scene<'_>, slot: SlotId) -> Option<u64> {
        let claim = scene.blocks[slot].claim().filter(|claim| claim.stream == self.index)?;
        Some(claim.position)
    }
}

impl Estimator for HintEstimator<'_> {
    fn declare(&mut self, scene: &Scene<'_>) -> Option<f64> {
        self.stream.least(scene).map(|(_, _, value)| value)
    }

    fn pick(&mut self, scene: &mut Scene<'_>) -> Option<SlotId> {
        let (device, position) = self.stream.least_position(scene)?;
        let claim = Claim { stream: self.index, position };
        let last = self.stream.last_tracked;
        let slot = match last.filter(|&slot| scene.blocks.is_claimed(slot, claim)) {
            Some(slot) => {
                self.stream.last_tracked = None;
                // Where the search would have brought what is needed to take the block out.
                scene.blocks.load_home(hash_block(scene.blocks[slot].block()));
                debug_assert_eq!(self.stream.slot_at(scene.blocks, position), Some(slot));
                Some(slot)
            }
            None => self.stream.slot_at(scene.blocks, position),
        };
        let slot = slot.expect("what is tracked is in memory");
        debug_assert_eq!(scene.blocks[slot].device(), device);
        self.stream.lets_go(scene.blocks[slot].block(), position);
        self.stream.untrack(scene.blocks, slot, position);
        Some(slot)
    }

    fn offer(&mut self, scene: &mut Scene<'_>, slot: SlotId, floor: f64) -> bool {
        let (block, device) = (scene.blocks[slot].block(), scene.blocks[slot].device());
        if let Some(position) = self.claim(scene, slot) {
            return self.stream.value_of(scene, device, position) > floor;
        }
        if scene.blocks[slot].claim().is_some() {
            return false; // Another stream has it.
        }
        let Some(position) = self.stream.next_use(block) else { return false };
        let worth_it = self.stream.value_of(scene, device, position) > floor;
        if worth_it {
            self.stream.track(scene.blocks, slot, Claim { stream: self.index, position });
        }
        worth_it
    }

    fn forget(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        if let Some(position) = self.claim(scene, slot) {
            self.stream.untrack(scene.blocks, slot, position);
        }
    }

    fn moved(&mut self, scene: &Scene<'_>, slot: SlotId, before: DeviceIndex) {
        let known = &scene.blocks[slot];
        // What is in flight is tracked as soon as it arrives.
        if let Some(position) = self.claim(scene, slot).filter(|_| !known.is_in_flight()) {
            self.stream.of_device(before).tracked.remove(position);
            self.stream.of_device(known.device()).tracked.insert(position);
        }
    }

    fn tracks(&self, scene: &Scene<'_>, slot: SlotId) -> bool {
        self.claim(scene, slot).is_some()
    }
}
