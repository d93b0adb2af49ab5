//! The points of one file: when which part of it was read.
//!
//! At most [`POINTS_MAX`] are kept. When there are more, neighbours are joined in pairs, and from then on each point stands for
//! twice as many reads: it has the span of their times and offsets.

use serde::{Serialize, Serializer};

/// Points of a file: one for each pixel of a wide screen, and as many again for zooming.
pub(super) const POINTS_MAX: usize = 2048;

/// Some reads, one after another.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Point {
    pub(super) began_ns: u64,
    pub(super) ended_ns: u64,
    pub(super) start: u64,
    pub(super) end: u64,
    pub(super) reads: u64,
    pub(super) stall_ns: u64,
}

impl Point {
    fn join(&mut self, other: &Point) {
        self.began_ns = self.began_ns.min(other.began_ns);
        self.ended_ns = self.ended_ns.max(other.ended_ns);
        self.start = self.start.min(other.start);
        self.end = self.end.max(other.end);
        self.reads = self.reads.saturating_add(other.reads);
        self.stall_ns = self.stall_ns.saturating_add(other.stall_ns);
    }
}

/// In short: began, ended (µs), start, end (bytes), reads, stall (µs).
impl Serialize for Point {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let [began, ended, stall] =
            [self.began_ns, self.ended_ns, self.stall_ns].map(|ns| ns / 1000);
        (began, ended, self.start, self.end, self.reads, stall).serialize(serializer)
    }
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(super) struct Points {
    points: Vec<Point>,
    /// Reads of a point, a power of two; 0 stands for 1.
    each: u64,
}

impl Points {
    pub(super) fn push(&mut self, point: Point) {
        let each = self.each.max(1);
        match self.points.last_mut().filter(|last| last.reads < each) {
            Some(last) => last.join(&point),
            None => self.points.push(point),
        }
        if self.points.len() > POINTS_MAX {
            self.halve();
        }
    }

    fn halve(&mut self) {
        self.each = self.each.max(1) * 2;
        let joined = self.points.chunks(2).map(|pair| {
            let mut first = pair[0];
            pair[1..].iter().for_each(|other| first.join(other));
            first
        });
        self.points = joined.collect();
    }

    /// At most so many points.
    pub(super) fn finish(mut self, most: usize) -> Vec<Point> {
        while self.points.len() > most.max(1) {
            self.halve();
        }
        self.points
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn many_points_are_joined_and_none_is_lost() {
        let mut points = Points::default();
        for at in 0..100_000_u64 {
            let (start, end) = (at * 10, at * 10 + 5);
            points.push(Point {
                began_ns: at,
                ended_ns: at + 1,
                start,
                end,
                reads: 1,
                stall_ns: 2,
            });
        }
        let kept = points.clone().finish(usize::MAX);
        assert!((POINTS_MAX / 2..=POINTS_MAX).contains(&kept.len()), "{}", kept.len());
        let few = points.finish(100);
        assert!(few.len() <= 100);
        for kept in [kept, few] {
            assert_eq!(kept.iter().map(|point| point.reads).sum::<u64>(), 100_000);
            assert_eq!(kept.iter().map(|point| point.stall_ns).sum::<u64>(), 200_000);
            let ends = (kept[0].start, kept[kept.len() - 1].end, kept[kept.len() - 1].ended_ns);
            assert_eq!(ends, (0, 999_995, 100_000));
        }
    }
}
