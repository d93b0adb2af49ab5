//! The hint estimator: what a stream's hints say of blocks in memory (TIP 1995, sections 4.6 and 5.1). Each stream is one.
//!
//! Of the blocks that cost the same to fetch again, the least valuable is the one that is used last. The stream therefore keeps
//! an ordered set of its blocks for each device, compares the last blocks of these sets, and gives up the least valuable of
//! them (section 4.9). Next uses are positions, so that no set is sorted again when the cursor moves.
//!
//! Cost: O(log n) to track, pick or forget; O(d) to declare, with d devices of the stream.
//!
//! Not here: the sets of tracked positions, which belong to the stream ([`crate::streams::stream`]).

use super::{Estimator, Scene};
use crate::blocks::{BlockTable, Claim, DeviceIndex, SlotId, StreamIndex};
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

/// What fetching costs a stream from `device`.
pub(crate) fn terms(stream: &Stream, costs: &Costs, rules: &Rules, device: DeviceIndex) -> Terms {
    Terms::new(&costs.at(device), rules, stream.pace.pace_ns(), stream.pace.is_late())
}

/// What it is worth to a stream to keep a block until it reads it at `position`, by the terms of the block's device.
pub(crate) fn value_at(stream: &Stream, rules: &Rules, terms: &Terms, position: u64) -> f64 {
    let distance = stream.distance(position);
    let value = match rules.replacement {
        Replacement::FurthestNextUse | Replacement::LruSp => nearness(distance),
        Replacement::Lru | Replacement::MinMax => terms.flush_cost(distance),
    };
    if rules.accuracy { value * stream.cursor.accuracy() } else { value }
}

/// The least valuable of the blocks that a stream tracks: its device, its next use, its value. Where replacement is by recency
/// alone, there is none.
pub(crate) fn least(stream: &Stream, scene: &Scene<'_>) -> Option<(DeviceIndex, u64, f64)> {
    if scene.rules.replacement == Replacement::Lru {
        return None;
    }
    let mut least: Option<(DeviceIndex, u64, f64)> = None;
    for part in &stream.devices {
        let Some(last) = part.tracked.last() else { continue };
        let terms = terms(stream, scene.costs, scene.rules, part.device);
        let mut consider = |at: u64| {
            let value = value_at(stream, scene.rules, &terms, at);
            let is_less = least
                .is_none_or(|(_, other, least)| value < least || (value == least && at > other));
            if is_less {
                least = Some((part.device, at, value));
            }
        };
        consider(last);
        if stream.cursor.in_set() {
            // Blocks of a set have one value, and may be worth less than those before or after the set.
            let ends = stream.cursor.sets().flat_map(|set| [set.start, set.end]);
            ends.filter_map(|end| part.tracked.last_before(end)).for_each(consider);
        }
    }
    least
}

/// The position and device of the least valuable block that a stream tracks.
fn least_position(stream: &Stream, scene: &Scene<'_>) -> Option<(DeviceIndex, u64)> {
    match &stream.devices[..] {
        [part] if !stream.cursor.in_set() => Some((part.device, part.tracked.last()?)),
        _ => least(stream, scene).map(|(device, position, _)| (device, position)),
    }
}

/// The least valuable of the blocks that a stream tracks.
pub(crate) fn least_slot(stream: &Stream, scene: &Scene<'_>) -> Option<SlotId> {
    let (_, position) = least_position(stream, scene)?;
    stream.slot_at(scene.blocks, position)
}

impl HintEstimator<'_> {
    /// Where the stream reads a block that it claims.
    fn claim(&self, blocks: &BlockTable, slot: SlotId) -> Option<u64> {
        let claim = blocks[slot].claim().filter(|claim| claim.stream == self.index)?;
        Some(claim.position)
    }

    /// What it is worth to keep a block of `device` until it is read at `position`.
    fn value_of(&self, scene: &Scene<'_>, device: DeviceIndex, position: u64) -> f64 {
        let terms = terms(self.stream, scene.costs, scene.rules, device);
        value_at(self.stream, scene.rules, &terms, position)
    }
}

impl Estimator for HintEstimator<'_> {
    fn declare(&mut self, scene: &Scene<'_>) -> Option<f64> {
        least(self.stream, scene).map(|(_, _, value)| value)
    }

    fn pick(&mut self, scene: &mut Scene<'_>) -> Option<SlotId> {
        let (device, position) = least_position(self.stream, scene)?;
        let claim = Claim { stream: self.index, position };
        let last = self.stream.last_tracked;
        let slot = match last.filter(|&slot| scene.blocks.is_claimed(slot, claim)) {
            Some(slot) => {
                self.stream.last_tracked = None;
                // The search that is saved would have loaded the block's home in the table.
                scene.blocks.load_home(hash_block(scene.blocks[slot].block()));
                debug_assert_eq!(self.stream.slot_at(scene.blocks, position), Some(slot));
                Some(slot)
            }
            None => self.stream.slot_at(scene.blocks, position),
        };
        let slot = slot.expect("a tracked block is in memory");
        debug_assert_eq!(scene.blocks[slot].device(), device);
        self.stream.lets_go(scene.blocks[slot].block(), position);
        self.stream.untrack(scene.blocks, slot, position);
        Some(slot)
    }

    fn offer(&mut self, scene: &mut Scene<'_>, slot: SlotId, floor: f64) -> bool {
        let (block, device) = (scene.blocks[slot].block(), scene.blocks[slot].device());
        if let Some(position) = self.claim(scene.blocks, slot) {
            return self.value_of(scene, device, position) > floor;
        }
        if scene.blocks[slot].claim().is_some() {
            return false; // Another stream claims it.
        }
        let Some(position) = self.stream.next_use(block) else { return false };
        let worth_it = self.value_of(scene, device, position) > floor;
        if worth_it {
            self.stream.track(scene.blocks, slot, Claim { stream: self.index, position });
        }
        worth_it
    }

    fn forget(&mut self, scene: &mut Scene<'_>, slot: SlotId) {
        if let Some(position) = self.claim(scene.blocks, slot) {
            self.stream.untrack(scene.blocks, slot, position);
        }
    }

    fn moved(&mut self, scene: &Scene<'_>, slot: SlotId, before: DeviceIndex) {
        let known = &scene.blocks[slot];
        // A block in flight is tracked from its arrival on.
        if let Some(position) = self.claim(scene.blocks, slot).filter(|_| !known.is_in_flight()) {
            self.stream.of_device(before).tracked.remove(position);
            self.stream.of_device(known.device()).tracked.insert(position);
        }
    }

    fn tracks(&self, blocks: &BlockTable, slot: SlotId) -> bool {
        self.claim(blocks, slot).is_some()
    }
}
