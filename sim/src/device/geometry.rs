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

impl Geometry {
    /// Where `sector` lies.
    pub fn place_of(&self, sector: u64) -> Place {
        let (track, on_track) = (sector / self.sectors_per_track, sector % self.sectors_per_track);
        let (cylinder, head) = (track / self.heads, track % self.heads);
        let head_switches = cylinder * (self.heads - 1) + head;
        let skew = self.track_skew_sectors * head_switches + self.cylinder_skew_sectors * cylinder;
        Place {
            track: Track { cylinder, head },
            slot: (on_track + skew) % self.sectors_per_track,
            left_on_track: self.sectors_per_track - on_track,
        }
    }

    /// Where the first sector of the track after a sector's lies; one division instead of [`place_of`](Self::place_of)'s five, since long reads
    /// go from one track to the next.
    pub fn next_track(&self, place: Place) -> Place {
        let Track { cylinder, head } = place.track;
        let (track, skew) = match head + 1 < self.heads {
            true => (Track { cylinder, head: head + 1 }, self.track_skew_sectors),
            false => (Track { cylinder: cylinder + 1, head: 0 }, self.cylinder_skew_sectors),
        };
        let slot = (place.slot + place.left_on_track + skew) % self.sectors_per_track;
        Place { track, slot, left_on_track: self.sectors_per_track }
    }

    /// From `at` until `slot`, one of a track, begins to pass under a head.
    pub fn wait_for(&self, at: Nanos, slot: u64) -> Nanos {
        let (now, wanted) = (at.0 % self.revolution.0, self.angle(slot));
        Nanos(if wanted >= now { wanted - now } else { wanted + self.revolution.0 - now })
    }

    /// The time in which `sectors` sectors of one track, from `slot` on, pass under the head.
    pub fn pass_time(&self, slot: u64, sectors: u64) -> Nanos {
        Nanos(self.angle(slot + sectors) - self.angle(slot))
    }

    /// When slot `slot` begins after the index mark; slots beyond a track go on into the next turn.
    fn angle(&self, slot: u64) -> u64 {
        slot * self.revolution.0 / self.sectors_per_track
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

    #[test]
    fn the_skew_adds_up_over_tracks_and_cylinders() {
        let slot_of = |sector| HP97560.place_of(sector).slot;
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
            let [place, next] = [sector, sector + 1].map(|sector| HP97560.place_of(sector));
            let begins = HP97560.wait_for(Nanos::ZERO, place.slot);
            let ends = begins + HP97560.pass_time(place.slot, 1);
            if place.left_on_track > 1 {
                assert_eq!(HP97560.wait_for(ends, next.slot), Nanos::ZERO, "after {sector}");
            }
        }
    }
}
