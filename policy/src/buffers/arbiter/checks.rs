//! The arbiter's invariants, asserted in debug builds and tests.

use super::Arbiter;
use crate::blocks::StreamIndex;
use crate::buffers::estimators::{Scene, hint};
use crate::buffers::rates::share_of;
use crate::streams::stream::Stream;

impl Arbiter {
    /// Checks that no stream declares less than `first`, whose value is `least`. Skipped where costs are measured; streams
    /// whose pace has changed since they were ranked are left out.
    pub(super) fn check_least(&mut self, first: StreamIndex, least: f64) {
        /// Up to this many streams are checked each time; more streams, one time in eight. Unit: streams. Reason: bound.
        const ALWAYS_CHECKED: usize = 16;
        self.least_checked += 1;
        let indices = self.streams.indices();
        let is_due = indices.len() <= ALWAYS_CHECKED || self.least_checked.is_multiple_of(8);
        if !is_due || !self.costs.are_fixed() {
            return;
        }
        let scene = scene!(self);
        let counts_pace = self.rules.own_pace || self.rules.overload;
        for index in indices {
            let kept_pace = |stream: &&Stream| stream.keeps_ranked_pace();
            let stream = self.streams.get(index).filter(|stream| !counts_pace || kept_pace(stream));
            let declared = stream.and_then(|stream| hint::least(stream, &scene));
            let share = self.rates.count(share_of(index));
            let value = declared.map_or(f64::INFINITY, |(_, _, value)| value * share);
            assert!(first != index || value == least, "{index:?}: {value}, not {least}");
            assert!(value >= least, "{index:?} is worth less than the least: {value} {least}");
        }
    }

    /// Checks that an estimator tracks every block in memory, and that the counts agree.
    pub(crate) fn check_all(&mut self) {
        // One stream at a time.
        self.checked += 1;
        let blocks = (!self.left_untold).then_some(&self.blocks);
        self.streams.check(self.checked, blocks);
        assert!(self.blocks.len() <= self.capacity_blocks, "over capacity");
        let (mut tracked, mut unread) = (0, 0);
        for (slot, known) in self.blocks.iter() {
            unread += u64::from(known.is_unread());
            let claim = known.claim();
            if let Some(claim) = claim {
                let stream = self.streams.get(claim.stream);
                let stream = stream.expect("a claim leads to a stream");
                let part = stream.devices.iter().find(|part| part.device == known.device());
                let is_tracked = part.is_some_and(|part| part.tracked.contains(claim.position));
                assert_eq!(is_tracked, !known.is_in_flight(), "{known:?}");
                let at = stream.slot_at(&self.blocks, claim.position);
                assert!(!is_tracked || at == Some(slot), "{known:?} {at:?}");
                tracked += usize::from(is_tracked);
            }
            let reason = claim.is_some() || self.kept_by(slot).is_some();
            assert!(reason || known.is_in_flight(), "no estimator tracks {known:?}");
        }
        let streams = self.streams.iter();
        let by_streams: usize =
            streams.flat_map(|stream| &stream.devices).map(|part| part.tracked.len()).sum();
        assert_eq!((tracked, unread), (by_streams, self.unread));
    }
}
