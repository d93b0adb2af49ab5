//! The hit ratio as a function of the number of buffers, `H(n)`, and its slope `H'(n)`.
//!
//! The value of a buffer to unhinted reads is the share of accesses that would miss without it (TIP 1995, section 4.3, eq. 4).
//! LRU is a stack algorithm: an access at depth `d` of the [stack](crate::buffers::recency) hits in every cache of `d` buffers
//! or more. Hits counted by segment of the stack therefore give `H` at the ends of the segments, for caches smaller and larger
//! than the real one. `H` is taken as a straight line between two ends (section 5.2, figure 9).
//!
//! * A. The slope of that line is a point estimate. `H` is flat up to the size at which the working set of a loop fits, and
//!   jumps there. Buffers below the jump would seem worthless and be given away, and the jump would never be reached. The slope
//!   is therefore that of the *least concave majorant* of `H`: the lowest curve at or above `H` whose slope never rises. This
//!   is the long-term average of figure 6, and is the same on both sides of a jump.
//! * B. A change of phase must show: all counts are halved at intervals. An access counts fully at first, and half as much
//!   after each halving.
//! * C. The majorant is computed when a value is asked for, at most once in [`REFRESH_ACCESSES`], in O(segments). A query is
//!   O(log segments).
//! * D. Buffers with prefetched and unread blocks are not available to the queue. A working set that would fit only with them
//!   is out of reach, and buffers given to it would bring nothing. Hits deeper than the *reach* therefore do not count. The
//!   slope with these hits is computed as well ([`slope_beyond_reach`](HitCurve::slope_beyond_reach)): prefetched blocks that
//!   are worth less should leave. The reach also changes while there are no unhinted reads. A majorant that covers too few or
//!   too many segments for the new reach serves for [`OUTGROWN_MAX`] questions more.
//!
//! Invariants: the slope is at least 0 and does not increase with the number of buffers.
//!
//! We differ from the paper in the majorant (it names the problem, and averages "over the region that
//! includes the jump"), in the reach, and in the halving.

use std::ops::Range;

use crate::buffers::recency::Found;

/// Accesses from one halving to the next, as a multiple of the depth of the deepest segment. Meanwhile a loop over so many
/// blocks comes round several times.
/// Unit: accesses. Reason: judgement.
const HALF_LIFE_PER_BUFFER: u64 = 4;
/// Accesses for which a computed majorant serves. In a small cache, which changes faster, it is a quarter of the buffers.
/// Unit: accesses. Reason: judgement.
const REFRESH_ACCESSES: u64 = 64;
/// Questions for which a majorant of another reach serves. The reach may alternate between two segments, and the majorant would
/// be computed at every question.
/// Unit: questions. Reason: bound.
const OUTGROWN_MAX: u64 = 16;

/// A straight piece of the majorant.
#[derive(Clone, Copy, Debug)]
struct Piece {
    /// Where it begins: a number of buffers, and the hits (decayed) in a cache of so many.
    start: (usize, f64),
    /// Where it ends, buffers.
    end: usize,
    /// Hits (decayed) for each buffer.
    slope: f64,
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct HitCurve {
    /// The depth at which each segment ends, buffers; ascending.
    ends: Vec<usize>,
    /// Hits in each segment, decayed.
    hits: Vec<f64>,
    /// Accesses, decayed.
    accesses: f64,
    /// Accesses from one halving to the next.
    half_life: u64,
    /// Accesses since the last halving.
    since_halving: u64,
    /// Accesses for which the majorant serves.
    refresh: u64,
    /// Accesses since the majorant was computed, and more for a change of reach.
    since_refresh: u64,
    /// Buffers that the queue can have at most: deeper hits are out of reach.
    reach: usize,
    /// The reaches for which the majorant covers the right segments.
    reaches: Range<usize>,
    /// The majorant, from 0 buffers up; slopes fall strictly.
    pieces: Vec<Piece>,
    /// The majorant if all buffers were within reach.
    unbounded: Vec<Piece>,
    /// Whether there are segments out of reach.
    is_bounded: bool,
    /// The accesses (decayed) when the majorant was computed.
    accesses_seen: f64,
}

impl HitCurve {
    /// A curve without hits over segments that end at these depths: ascending, the first at least 1
    /// ([`Stack::segment_ends`](crate::buffers::recency::Stack::segment_ends)).
    pub(crate) fn new(segment_ends: &[usize]) -> Self {
        let limit = segment_ends.last().map_or(0, |&end| end as u64);
        let half_life = limit.saturating_mul(HALF_LIFE_PER_BUFFER);
        HitCurve::with_half_life(segment_ends, half_life)
    }

    /// [`HitCurve::new`], with counts halved every `half_life` accesses.
    pub(crate) fn with_half_life(segment_ends: &[usize], half_life: u64) -> Self {
        debug_assert!(segment_ends.is_sorted_by(|a, b| a < b), "{segment_ends:?}");
        let limit = segment_ends.last().map_or(0, |&end| end as u64);
        let refresh = REFRESH_ACCESSES.min(limit / 4).max(1);
        HitCurve {
            ends: segment_ends.to_vec(),
            hits: vec![0.0; segment_ends.len()],
            accesses: 0.0,
            half_life: half_life.max(1),
            since_halving: 0,
            refresh,
            since_refresh: refresh,
            reach: usize::MAX,
            reaches: 0..usize::MAX,
            pieces: Vec::with_capacity(segment_ends.len()),
            unbounded: Vec::new(),
            is_bounded: false,
            accesses_seen: 0.0,
        }
    }

    /// An access, hit or miss.
    #[inline]
    pub(crate) fn access(&mut self) {
        if self.since_halving == self.half_life {
            self.halve();
        }
        self.since_halving += 1;
        self.since_refresh += 1;
        self.accesses += 1.0;
    }

    /// The last access was to an entry, resident or ghost, of this segment.
    #[inline]
    pub(crate) fn hit(&mut self, segment: usize) {
        self.hits[segment] += 1.0;
    }

    /// The last access was to a ghost that stands for several.
    pub(crate) fn hit_ghost(&mut self, found: Found) {
        self.hits[found.segment] += found.ghosts as f64;
    }

    /// Sets how many buffers the queue can have at most.
    #[inline]
    pub(crate) fn set_reach(&mut self, buffers: usize) {
        self.reach = buffers;
        if !self.reaches.contains(&buffers) {
            // Case D.
            self.since_refresh += self.refresh.div_ceil(OUTGROWN_MAX);
        }
    }

    /// `H'(n)`, the slope of the majorant: the hits for each access that the last of `buffers` buffers brings; of no buffers,
    /// those that a first one would bring. 0 beyond the last segment within reach.
    #[inline]
    pub(crate) fn slope(&mut self, buffers: usize) -> f64 {
        // Case C.
        if self.since_refresh >= self.refresh {
            self.recompute();
        }
        self.slope_of(&self.pieces, buffers)
    }

    /// [`slope`](Self::slope), if the queue could also have the buffers beyond the reach.
    pub(crate) fn slope_beyond_reach(&mut self, buffers: usize) -> f64 {
        let slope = self.slope(buffers);
        if self.is_bounded { self.slope_of(&self.unbounded, buffers) } else { slope }
    }

    #[inline]
    fn slope_of(&self, pieces: &[Piece], buffers: usize) -> f64 {
        let piece = pieces.partition_point(|piece| piece.end < buffers);
        pieces.get(piece).map_or(0.0, |piece| piece.slope / self.accesses_seen)
    }

    /// Case B.
    fn halve(&mut self) {
        self.accesses *= 0.5;
        for hits in &mut self.hits {
            *hits *= 0.5;
        }
        self.since_halving = 0;
    }

    #[cold]
    fn recompute(&mut self) {
        self.since_refresh = 0;
        self.accesses_seen = self.accesses;
        let within = self.ends.partition_point(|&end| end <= self.reach);
        let longest = self.ends.get(within).copied().unwrap_or(usize::MAX);
        self.reaches = self.ends[..within].last().copied().unwrap_or(0)..longest;
        self.is_bounded = within < self.ends.len();
        let pieces = std::mem::take(&mut self.pieces);
        self.pieces = self.hull(pieces, within);
        if self.is_bounded {
            let unbounded = std::mem::take(&mut self.unbounded);
            self.unbounded = self.hull(unbounded, self.ends.len());
        }
    }

    /// Case A: the upper hull of (0, 0) and the points at the ends of the first `segments`, left to right. The memory of
    /// `pieces` is used again.
    fn hull(&self, mut pieces: Vec<Piece>, segments: usize) -> Vec<Piece> {
        pieces.clear();
        if self.accesses == 0.0 {
            return pieces;
        }
        let mut last = (0, 0.0);
        for (&end, &hits) in self.ends[..segments].iter().zip(&self.hits) {
            let (mut start, here) = (last, last.1 + hits);
            let slope_from = |(buffers, hits): (usize, f64)| (here - hits) / (end - buffers) as f64;
            // A piece no steeper than what follows it lies below the chord over both.
            while let Some(piece) = pieces.pop_if(|piece| piece.slope <= slope_from(start)) {
                start = piece.start;
            }
            pieces.push(Piece { start, end, slope: slope_from(start) });
            last = (end, here);
        }
        pieces
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// A curve of `accesses` accesses with these hits.
    fn curve(ends: &[usize], hits: &[u32], accesses: u32) -> HitCurve {
        let mut curve = HitCurve::with_half_life(ends, u64::MAX);
        (0..accesses).for_each(|_| curve.access());
        for (segment, &count) in hits.iter().enumerate() {
            (0..count).for_each(|_| curve.hit(segment));
        }
        curve
    }

    /// The least concave majorant at `n`, in hits: the highest chord between two points around it.
    fn majorant(points: &[(f64, f64)], n: f64) -> f64 {
        let mut highest: f64 = 0.0;
        for &(x0, y0) in points.iter().filter(|(x, _)| *x <= n) {
            for &(x1, y1) in points.iter().filter(|(x, _)| *x >= n) {
                let y = if x1 > x0 { y0 + (y1 - y0) * (n - x0) / (x1 - x0) } else { y0 };
                highest = highest.max(y);
            }
        }
        highest
    }

    #[test]
    fn nothing_seen_is_worth_nothing() {
        let mut curve = HitCurve::new(&[1, 2, 4]);
        assert_eq!([0, 1, 4, 5].map(|n| curve.slope(n)), [0.0; 4]);
        curve.access();
        assert_eq!([0, 1, 4, 5].map(|n| curve.slope(n)), [0.0; 4]);
    }

    #[test]
    fn a_concave_curve_has_the_slopes_of_its_segments() {
        let mut curve = curve(&[1, 2, 4, 8], &[40, 20, 20, 4], 100);
        assert_eq!(
            [0, 1, 2, 3, 4, 5, 8, 9].map(|n| curve.slope(n)),
            [0.4, 0.4, 0.2, 0.1, 0.1, 0.01, 0.01, 0.0]
        );
    }

    #[test]
    fn a_jump_is_seen_from_both_sides() {
        // Figure 6: a loop over a working set that comes to fit in the third segment.
        let mut curve = curve(&[10, 20, 30, 40], &[10, 0, 80, 0], 100);
        assert_eq!([1, 10, 20, 21, 30].map(|n| curve.slope(n)), [0.03; 5]);
        assert_eq!([31, 40, 41].map(|n| curve.slope(n)), [0.0; 3]);
    }

    #[test]
    fn a_new_phase_outweighs_the_old_one_after_two_half_lives() {
        let mut curve = HitCurve::with_half_life(&[10, 20], 100);
        let mut phase = |accesses, segment| {
            for _ in 0..accesses {
                curve.access();
                curve.hit(segment);
            }
            (curve.slope(10), curve.slope(20))
        };
        assert_eq!(phase(100_000, 0), (0.1, 0.0));
        let (before, after) = phase(200, 1);
        // The whole jump is at 20 by now, except for the rest of the old phase.
        assert!(after > 0.03 && before < 0.07, "{before} {after}");
        let (before, after) = phase(1000, 1);
        assert!((before - 0.05).abs() < 1e-3 && (after - 0.05).abs() < 1e-3, "{before} {after}");
    }

    #[test]
    fn the_majorant_serves_for_some_accesses() {
        let mut curve = HitCurve::with_half_life(&[1000], u64::MAX);
        let slopes = [1, 63, 1].map(|accesses| {
            for _ in 0..accesses {
                curve.access();
                curve.hit(0);
            }
            if accesses == 1 { curve.slope(1) } else { 0.0 }
        });
        assert_eq!(slopes, [0.001, 0.0, 0.001]);
        (0..63).for_each(|_| curve.access());
        assert_eq!(curve.slope(1), 0.001);
        curve.access();
        assert_eq!(curve.slope(1), 65.0 / 129.0 / 1000.0);
    }

    #[test]
    fn what_comes_within_reach_is_worth_something_soon_though_nobody_reads() {
        // A working set of 30, of which 10 are within reach for a while.
        let mut curve = curve(&[10, 20, 30], &[0, 0, 90], 100);
        let mut ask = |reach| {
            curve.set_reach(reach);
            curve.slope(30)
        };
        assert_eq!(ask(19), 0.0);
        let asked = (1..100).take_while(|_| ask(30) == 0.0).count() as u64;
        assert!(asked < OUTGROWN_MAX, "{asked} times");
        assert_eq!(ask(30), 0.03);
        let asked = (1..100).take_while(|_| ask(29) > 0.0).count() as u64;
        assert!(asked < OUTGROWN_MAX, "{asked} times");
    }

    proptest! {
        #[test]
        fn slopes_are_those_of_the_least_concave_majorant(
            segments in prop::collection::vec((1usize..20, 0u32..50), 1..40),
        ) {
            let (mut end, mut hits) = (0, 0);
            let mut points = vec![(0.0, 0.0)];
            let mut ends = Vec::new();
            for &(width, count) in &segments {
                (end, hits) = (end + width, hits + count);
                ends.push(end);
                points.push((end as f64, f64::from(hits)));
            }
            let counts: Vec<u32> = segments.iter().map(|&(_, count)| count).collect();
            let accesses = hits + 7;
            let mut curve = curve(&ends, &counts, accesses);
            let mut before = f64::INFINITY;
            for n in 1..=end {
                let gain = majorant(&points, n as f64) - majorant(&points, (n - 1) as f64);
                let slope = curve.slope(n);
                prop_assert!((slope - gain / f64::from(accesses)).abs() < 1e-9, "at {}", n);
                prop_assert!(slope <= before, "rises at {}", n);
                before = slope;
            }
            prop_assert_eq!(curve.slope(0), curve.slope(1));
            prop_assert_eq!(curve.slope(end + 1), 0.0);
        }
    }
}
