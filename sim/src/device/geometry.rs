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

/// A track, counted over the whole disk: cylinder × heads + head.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Track(pub u64);

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
    /// The track that holds `sector`.
    pub fn track_of(&self, sector: u64) -> Track {
        Track(sector / self.sectors_per_track)
    }

    /// The cylinder that `track` belongs to.
    pub fn cylinder_of(&self, track: Track) -> u64 {
        track.0 / self.heads
    }

    /// Sectors from `sector` to the end of its track, itself included.
    pub fn left_on_track(&self, sector: u64) -> u64 {
        self.sectors_per_track - sector % self.sectors_per_track
    }

    /// The slot, counted from the index mark, in which `sector` passes under the head.
    pub fn slot_of(&self, sector: u64) -> u64 {
        let track = self.track_of(sector);
        let (cylinder, head) = (self.cylinder_of(track), track.0 % self.heads);
        let head_switches = cylinder * (self.heads - 1) + head;
        let skew = self.track_skew_sectors * head_switches + self.cylinder_skew_sectors * cylinder;
        (sector % self.sectors_per_track + skew) % self.sectors_per_track
    }

    /// From `at` until `sector` begins to pass under a head that is on its track.
    pub fn wait_for(&self, at: Nanos, sector: u64) -> Nanos {
        let now = at.0 % self.revolution.0;
        let wanted = self.angle(self.slot_of(sector));
        Nanos((wanted + self.revolution.0 - now) % self.revolution.0)
    }

    /// The time in which `sectors` sectors of one track, from `sector` on, pass under the head.
    pub fn pass_time(&self, sector: u64, sectors: u64) -> Nanos {
        let slot = self.slot_of(sector);
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
        assert_eq!(HP97560.slot_of(0), 0);
        assert_eq!(HP97560.slot_of(71), 71);
        assert_eq!(HP97560.slot_of(72), 8);
        assert_eq!(HP97560.slot_of(72 * 18), 18 * 8 % 72);
        assert_eq!(HP97560.slot_of(72 * 19), (18 * 8 + 18) % 72);
    }

    #[test]
    fn the_next_sector_follows_without_a_gap() {
        for sector in 0..72 * 40 - 1 {
            let begins = HP97560.wait_for(Nanos::ZERO, sector);
            let ends = begins + HP97560.pass_time(sector, 1);
            if HP97560.left_on_track(sector) > 1 {
                assert_eq!(HP97560.wait_for(ends, sector + 1), Nanos::ZERO, "after {sector}");
            }
        }
    }
}
