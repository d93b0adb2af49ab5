//! The position of a sector on a mechanical disk: cylinder, track and angle.
//!
//! Sectors are numbered along a track, then over the heads of a cylinder, then inwards. The skew turns each
//! track's first sector against that of the track before, so that a long read finds the next sector under the
//! head just after a switch. `track_skew` applies between the tracks of a cylinder, `cylinder_skew` between the
//! last track of a cylinder and the first of the next.
//!
//! There is one zone: every track has the same number of sectors.
//!
//! Angles are nanoseconds of rotation since the index mark. The platter is at angle 0 at virtual time 0. All
//! arithmetic is in integers: a sector begins at exactly the nanosecond where its predecessor on the track
//! ends.

use foretell_policy::Nanos;

/// A track.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Track {
    /// Its cylinder; 0 is the outermost.
    pub cylinder: u64,
    /// Its surface.
    pub head: u64,
}

/// The position of a sector.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Place {
    /// Its track.
    pub track: Track,
    /// Its slot on the track, counted from the index mark.
    pub slot: u64,
    /// Sectors from this one to the end of its track, including itself.
    pub left_on_track: u64,
}

/// A disk's shape and its speed of rotation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Geometry {
    /// Sectors of a track.
    pub heads: u64,
    /// Sectors on a track.
    pub sectors_per_track: u64,
    /// Offset of a track's first sector against the track before in its cylinder, in sectors.
    pub track_skew_sectors: u64,
    /// Offset of a cylinder's first track against the last track of the cylinder before, in sectors.
    pub cylinder_skew_sectors: u64,
    /// Time of one revolution.
    pub revolution: Nanos,
}

/// A fixed divisor: one multiplication replaces each division, which would take several times as long.
///
/// `inverse` is `(2^64 - c) / by` with a `c` from 1 to `by`. So `(dividend + 1) * inverse / 2^64` is less than
/// `(dividend + 1) / by`, by `(dividend + 1) * c / (by * 2^64)`. For dividends up to `inverse` that error is at
/// most `1 / by`, since `(inverse + 1) * c` is at most `by * inverse + c`, or 2^64. So rounding down gives the
/// exact quotient.
#[derive(Clone, Copy, Debug)]
struct Divisor {
    by: u64,
    inverse: u64,
}

impl Divisor {
    fn new(by: u64) -> Self {
        Divisor { by, inverse: u64::MAX / by }
    }

    /// The quotient of a dividend that is at most `inverse` and below 2^64 - 1.
    fn quotient(self, dividend: u64) -> u64 {
        let quotient = self.estimate(dividend + 1);
        debug_assert_eq!(quotient, dividend / self.by, "{dividend} is too large for {}", self.by);
        quotient
    }

    /// Quotient and remainder of a dividend with the same bounds.
    fn divide(self, dividend: u64) -> (u64, u64) {
        let quotient = self.quotient(dividend);
        (quotient, dividend - quotient * self.by)
    }

    /// The remainder of a dividend with the same bounds.
    fn rest(self, dividend: u64) -> u64 {
        self.divide(dividend).1
    }

    /// The remainder of any dividend.
    fn rest_of_any(self, dividend: u64) -> u64 {
        // The estimate may be too small by 1.
        let rest = dividend - self.estimate(dividend) * self.by;
        if rest < self.by { rest } else { rest - self.by }
    }

    fn estimate(self, dividend: u64) -> u64 {
        let product = u128::from(dividend) * u128::from(self.inverse);
        (product >> u64::BITS) as u64
    }
}

/// A [`Geometry`] prepared for fast computation.
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
    /// Prepares `geometry`, whose heads, sectors and times are all at least 1.
    ///
    /// # Panics
    /// If two revolutions take longer than 2^64 ns divided by the square of the sectors of a track: nineteen
    /// minutes with 4,000 sectors.
    pub fn new(geometry: Geometry) -> Self {
        let Geometry { sectors_per_track, heads, revolution, .. } = geometry;
        let sectors = u128::from(sectors_per_track);
        let longest = 2 * u128::from(revolution.0) * sectors * sectors;
        assert!(
            longest < 1 << u64::BITS,
            "a revolution that cannot be reckoned with: {geometry:?}"
        );
        let sector = Nanos(revolution.0 / sectors_per_track);
        let [sectors_per_track, heads, revolution] =
            [sectors_per_track, heads, revolution.0].map(Divisor::new);
        Platter { geometry, sectors_per_track, heads, revolution, sector }
    }

    /// The position of `sector`, which is less than 2^64 divided by the sectors of a track.
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

    /// Divides `sectors` sectors from `sector` on by tracks; gives the position and length of each piece.
    pub fn pieces(&self, sector: u64, sectors: u64) -> impl Iterator<Item = (Place, u64)> {
        let (mut last, mut left) = (None, sectors);
        std::iter::from_fn(move || {
            if left == 0 {
                return None;
            }
            let place = match last {
                None => self.place_of(sector),
                Some(last) => self.next_track(last),
            };
            let piece = left.min(place.left_on_track);
            (last, left) = (Some(place), left - piece);
            Some((place, piece))
        })
    }

    /// The position of the first sector of the track after `place`; long reads go from track to track.
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

    /// The time from `at` until `angle`, which is less than a revolution, passes under a head.
    pub fn wait_for(&self, at: Nanos, angle: Nanos) -> Nanos {
        let now = Nanos(self.revolution.rest_of_any(at.0));
        debug_assert!(angle.0 < self.revolution.by, "{angle} is more than a revolution");
        if angle >= now { angle - now } else { angle + Nanos(self.revolution.by) - now }
    }

    /// A lower bound of the time that so many sectors take to pass under the head, whichever their tracks.
    pub fn least_pass_time(&self, sectors: u64) -> Nanos {
        Nanos(self.sector.0 * sectors)
    }

    /// The time from the index mark to the beginning of `slot`. A slot beyond the track continues into the next
    /// revolution, up to its end.
    pub fn angle(&self, slot: u64) -> Nanos {
        Nanos(self.sectors_per_track.quotient(slot * self.revolution.by))
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
            let divisor = Divisor::new(by);
            let most = divisor.inverse;
            let multiples = [1, 2, 3, 1000, most / by, u64::MAX / by];
            let multiples = multiples.map(|times| by.saturating_mul(times));
            let near = |at: u64| (at.saturating_sub(2)..at).chain(at..=at.saturating_add(2));
            let ends = [0, most, u64::MAX];
            for dividend in multiples.into_iter().chain(ends).flat_map(near) {
                let (quotient, rest) = (dividend / by, dividend % by);
                assert_eq!(divisor.rest_of_any(dividend), rest, "{dividend} by {by}");
                if dividend <= most && dividend < u64::MAX {
                    assert_eq!(divisor.divide(dividend), (quotient, rest), "{dividend} by {by}");
                }
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
            let [begins, ends] = [place.slot, place.slot + 1].map(|slot| platter.angle(slot));
            assert_eq!(platter.wait_for(Nanos::ZERO, begins), begins);
            assert!(platter.least_pass_time(1) <= ends - begins);
            if place.left_on_track > 1 {
                let wait = platter.wait_for(ends, platter.angle(next.slot));
                assert_eq!(wait, Nanos::ZERO, "after {sector}");
            }
        }
    }
}
