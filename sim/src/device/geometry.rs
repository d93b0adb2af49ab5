//! Where a sector lies on a mechanical disk: cylinder, track and angle.
//!
//! Sectors are numbered along a track, then over the heads of a cylinder, then inwards. Each track's
//! first sector is turned against that of the track before by the skew, so that a long read finds
//! the next sector under the head just after the switch: `track_skew` between the tracks of a
//! cylinder, `cylinder_skew` between the last track of one and the first of the next.
//!
//! One zone: every track has the same number of sectors.
//!
//! Angles are counted in nanoseconds of rotation since the index mark; the platter is at angle 0
//! at virtual time 0. Integer arithmetic: a sector that follows another on a track begins at
//! exactly the nanosecond where that one ends.

use foretell_policy::Nanos;

/// A track.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// Its cylinder, from the outermost one.
    pub cylinder: u64,
    /// Its surface.
    pub head: u64,
}

/// Where a sector lies.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// On which track.
    pub track: Track,
    /// In which slot, counted from the index mark, it passes under the head.
    pub slot: u64,
    /// Sectors from it to the end of its track, itself included.
    pub left_on_track: u64,
}

/// A disk's shape and its speed of rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Tracks in a cylinder.
    pub heads: u64,
    /// Sectors on a track.
    pub sectors_per_track: u64,
    /// Turn of a track against the one before it in its cylinder, in sectors.
    pub track_skew_sectors: u64,
    /// Turn of a cylinder's first track against the last one of the cylinder before, in sectors.
    pub cylinder_skew_sectors: u64,
    /// Time of one revolution.
    pub revolution: Nanos,
}

/// A divisor of many dividends: two multiplications take the place of a division, which takes several times as long.
#[derive(Clone, Copy, Debug)]
struct Divisor {
    by: u64,
    /// 2^64 / `by`, less 1 at most: so no quotient is found too large, and none is short by more than 1.
    inverse: u64,
}

impl Divisor {
    fn new(by: u64) -> Self {
        Divisor { by, inverse: u64::MAX / by }
    }

    /// Quotient and remainder.
    fn divide(self, dividend: u64) -> (u64, u64) {
        let product = u128::from(dividend) * u128::from(self.inverse);
        let quotient = (product >> 64) as u64;
        let rest = dividend - quotient * self.by;
        if rest < self.by { (quotient, rest) } else { (quotient + 1, rest - self.by) }
    }

    fn quotient(self, dividend: u64) -> u64 {
        self.divide(dividend).0
    }

    fn rest(self, dividend: u64) -> u64 {
        self.divide(dividend).1
    }
}

/// A [`Geometry`] that much is asked of.
#[derive(Clone, Debug)]
pub struct Platter {
    geometry: Geometry,
    sectors_per_track: Divisor,
    heads: Divisor,
    revolution: Divisor,
    /// A sector's part of a revolution, rounded down.
    sector: Nanos,
}

impl Platter {
    /// Of disks of this shape; none of its heads, sectors and times may be 0.
    pub fn new(geometry: Geometry) -> Self {
        let Geometry { sectors_per_track, heads, revolution, .. } = geometry;
        let sector = Nanos(revolution.0 / sectors_per_track);
        let [sectors_per_track, heads, revolution] =
            [sectors_per_track, heads, revolution.0].map(Divisor::new);
        Platter { geometry, sectors_per_track, heads, revolution, sector }
    }

    /// Where `sector` lies.
    pub fn place_of(&self, sector: u64) -> Place {
        let shape = &self.geometry;
        let (track, on_track) = self.sectors_per_track.divide(sector);
        let (cylinder, head) = self.heads.divide(track);
        let head_switches = cylinder * (shape.heads - 1) + head;
        let skew =
            shape.track_skew_sectors * head_switches + shape.cylinder_skew_sectors * cylinder;
        Place {
            track: Track { cylinder, head },
            slot: self.sectors_per_track.rest(on_track + skew),
            left_on_track: shape.sectors_per_track - on_track,
        }
    }

    /// Where the first sector of the track after a sector's lies: for long reads, which go from one to the next.
    pub fn next_track(&self, place: Place) -> Place {
        let Track { cylinder, head } = place.track;
        let shape = &self.geometry;
        let (track, skew) = match head + 1 < shape.heads {
            true => (Track { cylinder, head: head + 1 }, shape.track_skew_sectors),
            false => (Track { cylinder: cylinder + 1, head: 0 }, shape.cylinder_skew_sectors),
        };
        let slot = self.sectors_per_track.rest(place.slot + place.left_on_track + skew);
        Place { track, slot, left_on_track: shape.sectors_per_track }
    }

    /// From `at` until `slot`, one of a track, begins to pass under a head.
    pub fn wait_for(&self, at: Nanos, slot: u64) -> Nanos {
        let (now, wanted) = (self.revolution.rest(at.0), self.angle(slot));
        Nanos(if wanted >= now { wanted - now } else { wanted + self.revolution.by - now })
    }

    /// The time in which `sectors` sectors of one track, from `slot` on, pass under the head.
    pub fn pass_time(&self, slot: u64, sectors: u64) -> Nanos {
        Nanos(self.angle(slot + sectors) - self.angle(slot))
    }

    /// No more than what so many sectors take to pass under the head, on whichever tracks.
    pub fn least_pass_time(&self, sectors: u64) -> Nanos {
        Nanos(self.sector.0 * sectors)
    }

    /// When slot `slot` begins after the index mark; slots beyond a track go on into the next turn.
    fn angle(&self, slot: u64) -> u64 {
        self.sectors_per_track.quotient(slot * self.revolution.by)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HP97560: Geometry = Geometry {
        heads: 19,
        sectors_per_track: 72,
        track_skew_sectors: 8,
        cylinder_skew_sectors: 18,
        revolution: Nanos(14_992_504),
    };

    fn platter() -> Platter {
        Platter::new(HP97560)
    }

    #[test]
    fn quotients_are_exact() {
        let some = [1, 2, 3, 19, 64, 72, 14_992_504, (1 << 32) - 1, 1 << 32, u64::MAX / 2 + 1];
        for by in some.into_iter().chain([u64::MAX - 1, u64::MAX]) {
            let multiples = [1, 2, 3, 1000, u64::MAX / by].map(|times| by.saturating_mul(times));
            let near = |at: u64| (at.saturating_sub(2)..at).chain(at..=at.saturating_add(2));
            for dividend in multiples.into_iter().chain([0, u64::MAX]).flat_map(near) {
                let expected = (dividend / by, dividend % by);
                assert_eq!(Divisor::new(by).divide(dividend), expected, "{dividend} by {by}");
            }
        }
    }

    #[test]
    fn the_skew_adds_up_over_tracks_and_cylinders() {
        let slot_of = |sector| platter().place_of(sector).slot;
        assert_eq!(slot_of(0), 0);
        assert_eq!(slot_of(71), 71);
        assert_eq!(slot_of(72), 8);
        assert_eq!(slot_of(72 * 18), 18 * 8 % 72);
        assert_eq!(slot_of(72 * 19), (18 * 8 + 18) % 72);
    }

    #[test]
    fn the_next_track_is_where_its_first_sector_is() {
        let one_head = Geometry { heads: 1, track_skew_sectors: 100, ..HP97560 };
        let far_skews = Geometry { heads: 2, cylinder_skew_sectors: 7 * 72 + 1, ..one_head };
        let one_sector = Geometry { sectors_per_track: 1, ..HP97560 };
        for geometry in [HP97560, one_head, far_skews, one_sector] {
            let geometry = Platter::new(geometry);
            for sector in 0..72 * 60 {
                let place = geometry.place_of(sector);
                let next = geometry.place_of(sector + place.left_on_track);
                assert_eq!(geometry.next_track(place), next, "after {sector} of {geometry:?}");
            }
        }
    }

    #[test]
    fn the_next_sector_follows_without_a_gap() {
        for sector in 0..72 * 40 - 1 {
            let platter = platter();
            let [place, next] = [sector, sector + 1].map(|sector| platter.place_of(sector));
            let begins = platter.wait_for(Nanos::ZERO, place.slot);
            let ends = begins + platter.pass_time(place.slot, 1);
            assert!(platter.least_pass_time(1) <= ends - begins);
            if place.left_on_track > 1 {
                assert_eq!(platter.wait_for(ends, next.slot), Nanos::ZERO, "after {sector}");
            }
        }
    }
}
