//! A mechanical disk: arm, platter and the drive's read-ahead cache.
//!
//! A request costs the controller's overhead, and then one of three ways:
//!
//! * A, *hit*: all of it has been read ahead; it crosses the bus.
//! * B, *streaming*: it lies in, or just ahead of, what the drive is reading ahead. It waits for the media,
//!   without new positioning. The drive takes B unless C is faster.
//! * C, *mechanical*: the arm seeks, the sector rotates to the head, and the data passes under it, with a
//!   switch of head or cylinder wherever a track ends.
//!
//! After each request, the drive reads on by itself until `read_ahead` sectors beyond the request's end: the
//! *fence*. It does so through idle time too, until a request of way C takes the arm away. At the fence it
//! stops, and reading on later costs a new rotation. The cache is one segment: way C discards what was read
//! before. This is the read-ahead of the HP 97560 as modelled by Kotz, Toh and Radhakrishnan (Dartmouth
//! PCS-TR94-220) and described by Ruemmler and Wilkes. The division of the cache at the fence is this project's
//! interpretation.
//!
//! The above is [`Reading::Streamed`]. [`Reading::Stored`] is a drive as simpler simulators model it. All data goes through the
//! cache, and crosses the bus when the whole request is there, so C ends with the transfer over the bus. The first request of
//! way B after one of way C takes the media's time and the bus's. After that, the drive has read ahead to the fence: B costs
//! what A costs, plus the seek to another cylinder.
//!
//! A write goes to the medium before it is acknowledged: way C, whatever the cache holds. It takes the arm away from the
//! read-ahead and empties the cache, so that no later read finds sectors as they were before.
//!
//! Invariants: a request never ends before `start + overhead`; the state is a function of the requests served.
//! Nothing is computed between requests: the progress of the read-ahead is derived from the time of the next
//! call, and its end is computed once, on first use.

use std::cell::{Cell, OnceCell};
use std::ops::Range;

use foretell_policy::Nanos;
use serde::Deserialize;

use super::geometry::{Geometry, Platter, Track};
use super::seek::SeekCurve;
use super::{Device, Request, Service, Start};

/// How the cache affects times; see the [module](self).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reading {
    /// Reading ahead takes the media's time, and data crosses the bus while it is read.
    #[default]
    Streamed,
    /// Reading ahead takes no time within a stream, and data crosses the bus after it has been read.
    Stored,
}

/// Parameters of a [`Disk`]; [`super::parameters`] reads them from a file.
#[derive(Clone, Debug, PartialEq)]
pub struct DiskSpec {
    /// Shape and rotation.
    pub geometry: Geometry,
    /// Sectors that can hold data.
    pub capacity_sectors: u64,
    /// Times of arm movements.
    pub seek: SeekCurve,
    /// Switch from one head to another in the same cylinder.
    pub head_switch: Nanos,
    /// The controller's time, once for each request.
    pub overhead: Nanos,
    /// Size of the cache; 0 for none.
    pub cache_sectors: u64,
    /// The fence: how far beyond a request's end the drive reads on.
    pub read_ahead_sectors: u64,
    /// Time of one sector on the bus.
    pub bus_sector: Nanos,
    /// How the cache affects times.
    pub reading: Reading,
}

impl DiskSpec {
    /// Milliseconds that an uncached request of so many sectors takes beside arm and platter.
    pub fn overhead_ms(&self, sectors: u64) -> f64 {
        let bus = match self.reading {
            Reading::Streamed => Nanos::ZERO,
            Reading::Stored => Nanos(self.bus_sector.0 * sectors),
        };
        (self.overhead + bus).as_millis()
    }
}

/// A mechanical disk; see the [module](self).
#[derive(Clone, Debug)]
pub struct Disk {
    spec: DiskSpec,
    platter: Platter,
    ahead: ReadAhead,
    /// The motion of a streaming drive from `since` to the fence, if it has been computed. Depends on `ahead`,
    /// so changes to that go through [`set_ahead`](Self::set_ahead).
    to_fence: OnceCell<Motion>,
    /// The last time for which the track under the head was computed, and that track. Depends on `ahead` too.
    last_track: Cell<Option<(Nanos, Track)>>,
}

/// The head, and the drive's read-ahead since the last request.
#[derive(Clone, Copy, Debug)]
struct ReadAhead {
    /// Oldest sector in the cache.
    from: u64,
    /// From `since` on, the drive reads this sector and the following ones...
    next: u64,
    /// ...up to here, exclusively.
    limit: u64,
    since: Nanos,
    /// The head's track at `since`.
    track: Track,
    /// Whether a request has been served by way A or B since the last one by way C.
    streams: bool,
}

/// The time that reading a run of sectors took, and the head's track after it.
#[derive(Clone, Copy, Debug)]
struct Motion {
    end: Nanos,
    track: Track,
    seek: Nanos,
    rotation: Nanos,
    transfer: Nanos,
}

/// How the drive serves a request, as in the [module](self).
enum Way {
    /// A or B, which end at this time.
    ReadOn(Nanos),
    /// C.
    Moved(Motion),
}

impl Disk {
    /// A disk whose head rests on the outermost track, with nothing in its cache.
    pub fn new(spec: DiskSpec) -> Self {
        let (since, track) = (Nanos::ZERO, Track::default());
        let ahead = ReadAhead { from: 0, next: 0, limit: 0, since, track, streams: false };
        let platter = Platter::new(spec.geometry);
        Disk { platter, spec, ahead, to_fence: OnceCell::new(), last_track: Cell::new(None) }
    }

    fn set_ahead(&mut self, ahead: ReadAhead) {
        self.ahead = ahead;
        self.to_fence.take();
        self.last_track.take();
    }

    fn to_fence(&self) -> Motion {
        *self.to_fence.get_or_init(|| self.read_on_to(self.ahead.limit))
    }

    /// The time to move the head from one track to another.
    fn switch_time(&self, from: Track, to: Track) -> Nanos {
        let arm = self.spec.seek.time(from.cylinder.abs_diff(to.cylinder));
        if from.head != to.head { arm.max(self.spec.head_switch) } else { arm }
    }

    /// Reads `sectors` sectors from `sector` on, with the head on `track` at time `at`.
    fn read_media(&self, track: Track, at: Nanos, sector: u64, sectors: u64) -> Motion {
        self.read_media_while(track, at, (sector, sectors), |_| true)
    }

    /// As [`read_media`](Self::read_media), as long as `goes_on` is true. It is asked before each change of track.
    #[inline]
    fn read_media_while(
        &self,
        track: Track,
        at: Nanos,
        (sector, sectors): (u64, u64),
        goes_on: impl Fn(&Motion) -> bool,
    ) -> Motion {
        let (platter, zero) = (&self.platter, Nanos::ZERO);
        let mut motion = Motion { end: at, track, seek: zero, rotation: zero, transfer: zero };
        for (place, piece) in platter.pieces(sector, sectors) {
            if !goes_on(&motion) {
                break;
            }
            let seek = self.switch_time(motion.track, place.track);
            let begins = platter.angle(place.slot);
            let rotation = platter.wait_for(motion.end + seek, begins);
            let transfer = platter.angle(place.slot + piece) - begins;
            motion.seek += seek;
            motion.rotation += rotation;
            motion.transfer += transfer;
            motion.end += seek + rotation + transfer;
            motion.track = place.track;
        }
        motion
    }

    /// Lets the drive read on from its position up to `sector`, exclusively.
    fn read_on_to(&self, sector: u64) -> Motion {
        let ahead = &self.ahead;
        let sectors = sector.saturating_sub(ahead.next);
        self.read_media(ahead.track, ahead.since, ahead.next, sectors)
    }

    /// The time at which the drive stops, or stopped, at the fence.
    fn pauses_at(&self) -> Nanos {
        match self.spec.reading {
            Reading::Streamed => self.to_fence().end,
            Reading::Stored => self.ahead.since,
        }
    }

    /// The track under the head at `now`, which read-ahead may have moved. Cached, since it is needed at the
    /// same time for every command that a drive holds.
    fn track_at(&self, now: Nanos) -> Track {
        match self.last_track.get() {
            Some((at, track)) if at == now => track,
            _ => {
                let track = self.find_track_at(now);
                self.last_track.set(Some((now, track)));
                track
            }
        }
    }

    fn find_track_at(&self, now: Nanos) -> Track {
        let ahead = &self.ahead;
        if ahead.next >= ahead.limit {
            return ahead.track;
        }
        if let Some(all) = self.to_fence.get().filter(|all| all.end <= now) {
            return all.track;
        }
        let run = (ahead.next, ahead.limit - ahead.next);
        // The head moves only after the piece before is done.
        self.read_media_while(ahead.track, ahead.since, run, |motion| motion.end <= now).track
    }

    /// When the last byte of `request` arrives if the drive keeps reading on (A or B). `None` if the request's
    /// start is neither cached nor directly ahead of the head.
    fn streaming_end(&self, start: Nanos, request: Request) -> Option<Nanos> {
        let ahead = &self.ahead;
        if request.sector < ahead.from || request.sector > ahead.limit {
            return None;
        }
        let over_bus = start + self.spec.overhead + self.bus_time(request);
        if request.end() <= ahead.next {
            return Some(over_bus);
        }
        if request.end() > ahead.limit && self.pauses_at() <= start {
            return None; // The head rests at the fence; sectors beyond it are case C.
        }
        Some(match self.spec.reading {
            Reading::Streamed => over_bus.max(self.read_on_to(request.end()).end),
            Reading::Stored => self.stored_end(request, over_bus),
        })
    }

    /// Case B of [`Reading::Stored`].
    fn stored_end(&self, request: Request, over_bus: Nanos) -> Nanos {
        let ahead = &self.ahead;
        if ahead.streams {
            let cylinder = |sector| self.platter.place_of(sector).track.cylinder;
            let from = cylinder(ahead.next.saturating_sub(1));
            return over_bus + self.spec.seek.time(cylinder(request.end() - 1).abs_diff(from));
        }
        over_bus.max(self.read_on_to(request.end()).end + self.bus_time(request))
    }

    fn bus_time(&self, request: Request) -> Nanos {
        Nanos(self.spec.bus_sector.0 * request.sectors)
    }

    /// Whether the request begins in the cache and extends beyond the fence, where the head rests.
    fn straddles_fence(&self, start: Nanos, request: Request) -> bool {
        let ahead = &self.ahead;
        (ahead.from..ahead.limit).contains(&request.sector)
            && request.end() > ahead.limit
            && self.pauses_at() <= start
    }

    /// Case C. Sectors that are already in the cache are not read again.
    fn mechanical(&self, start: Nanos, request: Request) -> Motion {
        let first =
            if self.straddles_fence(start, request) { self.ahead.limit } else { request.sector };
        let begin = start + self.spec.overhead;
        let motion = self.read_media(self.track_at(start), begin, first, request.end() - first);
        match self.spec.reading {
            Reading::Streamed => motion,
            Reading::Stored => {
                let bus = self.bus_time(request);
                Motion { end: motion.end + bus, transfer: motion.transfer + bus, ..motion }
            }
        }
    }

    /// The faster of reading on and moving.
    fn way(&self, start: Nanos, request: Request) -> Way {
        let reading_on = self.streaming_end(start, request);
        // Lower bound: wherever the head and the platter are, the data takes this time to pass.
        let least = start + self.spec.overhead + self.platter.least_pass_time(request.sectors);
        if let Some(end) = reading_on.filter(|&end| end <= least) {
            return Way::ReadOn(end);
        }
        let mechanical = self.mechanical(start, request);
        match reading_on {
            Some(end) if end <= mechanical.end => Way::ReadOn(end),
            _ => Way::Moved(mechanical),
        }
    }

    /// Moves the fence after a request that was served by reading on until `end`.
    fn move_fence(&mut self, start: Nanos, request: Request, end: Nanos) {
        let mut ahead = self.ahead;
        if self.spec.reading == Reading::Stored {
            let next = request.end();
            if next > ahead.next {
                let track = self.platter.place_of(next - 1).track;
                ahead = ReadAhead { next, since: end, track, streams: true, ..ahead };
            }
        } else if request.end() <= ahead.limit && self.pauses_at() <= start {
            if self.fence_after(request) > ahead.limit {
                let (since, track) = (start + self.spec.overhead, self.to_fence().track);
                ahead = ReadAhead { next: ahead.limit, since, track, ..ahead };
            }
        } else if request.end() > ahead.next {
            let Motion { end: since, track, .. } = self.read_on_to(request.end());
            ahead = ReadAhead { next: request.end(), since, track, ..ahead };
        }
        let limit = self.fence_after(request).max(ahead.limit);
        let from = ahead.from.max(limit.saturating_sub(self.spec.cache_sectors));
        self.set_ahead(ReadAhead { from, limit, ..ahead });
    }

    fn fence_after(&self, request: Request) -> u64 {
        (request.end() + self.spec.read_ahead_sectors).min(self.spec.capacity_sectors)
    }
}

impl Device for Disk {
    fn service(&mut self, start: Nanos, request: Request) -> Service {
        let overhead = self.spec.overhead;
        let mechanical = match self.way(start, request) {
            Way::ReadOn(end) => {
                self.move_fence(start, request, end);
                let transfer = end - start - overhead;
                return Service { overhead, transfer, cache_hit: true, ..Service::default() };
            }
            Way::Moved(mechanical) => mechanical,
        };
        let from = self.track_at(start).cylinder;
        let limit = self.fence_after(request);
        let cache_hit = self.straddles_fence(start, request);
        let read = match self.spec.reading {
            Reading::Streamed => mechanical.end,
            Reading::Stored => mechanical.end - self.bus_time(request),
        };
        self.set_ahead(ReadAhead {
            from: request.sector.max(limit.saturating_sub(self.spec.cache_sectors)),
            next: request.end(),
            limit,
            since: read,
            track: mechanical.track,
            streams: false,
        });
        Service {
            overhead,
            seek: mechanical.seek,
            rotation: mechanical.rotation,
            transfer: mechanical.transfer,
            cylinders_travelled: from.abs_diff(mechanical.track.cylinder),
            cache_hit,
        }
    }

    fn write(&mut self, start: Nanos, request: Request) -> Service {
        let overhead = self.spec.overhead;
        let from = self.track_at(start);
        let bus = match self.spec.reading {
            Reading::Streamed => Nanos::ZERO,
            Reading::Stored => self.bus_time(request), // All of it comes before the first sector is written.
        };
        let begin = start + overhead + bus;
        let motion = self.read_media(from, begin, request.sector, request.sectors);
        let end = request.end();
        let track = motion.track;
        let since = motion.end;
        self.set_ahead(ReadAhead {
            from: end,
            next: end,
            limit: end,
            since,
            track,
            streams: false,
        });
        Service {
            overhead,
            seek: motion.seek,
            rotation: motion.rotation,
            transfer: motion.transfer + bus,
            cylinders_travelled: from.cylinder.abs_diff(track.cylinder),
            cache_hit: false,
        }
    }

    fn capacity_sectors(&self) -> u64 {
        self.spec.capacity_sectors
    }

    /// Without the sectors read ahead since the last request.
    fn cached(&self) -> Range<u64> {
        self.ahead.from..self.ahead.next
    }

    fn start_at(&self, sector: u64) -> Start {
        let place = self.platter.place_of(sector);
        let angle = self.platter.angle(place.slot);
        let pass = self.platter.angle(place.slot + 1) - angle;
        Start { sector, track: place.track, angle, pass }
    }

    /// The time of a request for the first sector only.
    fn positioning_time(&self, now: Nanos, start: &Start) -> Nanos {
        let first = Request { sector: start.sector, sectors: 1 };
        let (begin, reading_on) = (now + self.spec.overhead, self.streaming_end(now, first));
        if let Some(end) = reading_on.filter(|&end| end <= begin + self.platter.least_pass_time(1))
        {
            return end - begin;
        }
        let seek = self.switch_time(self.track_at(now), start.track);
        let mut moved = seek + self.platter.wait_for(begin + seek, start.angle) + start.pass;
        if self.spec.reading == Reading::Stored {
            moved += self.bus_time(first);
        }
        reading_on.map_or(moved, |end| moved.min(end - begin))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn any_disk() -> impl Strategy<Value = Disk> {
        let shape = (1u64..5, 1u64..100, 1u64..200, any::<bool>());
        let times = (1_000_000u64..60_000_000, 0u64..3_000_000, 0u64..3_000_000, 1u64..100_000);
        (shape, times, 0u64..300, 0.0..1.0).prop_map(|(shape, times, cache, part)| {
            let (heads, sectors_per_track, cylinders, stored) = shape;
            let (revolution, head_switch, overhead, bus_sector) = times;
            let skew = sectors_per_track / 3;
            Disk::new(DiskSpec {
                geometry: Geometry {
                    heads,
                    sectors_per_track,
                    track_skew_sectors: skew,
                    cylinder_skew_sectors: 2 * skew,
                    revolution: Nanos(revolution),
                },
                capacity_sectors: heads * sectors_per_track * cylinders,
                seek: SeekCurve::LeeKatz { base_ms: 2.5, sqrt_ms: 0.2, slope_ms: 0.005 },
                head_switch: Nanos(head_switch),
                overhead: Nanos(overhead),
                cache_sectors: cache,
                read_ahead_sectors: (cache as f64 * part) as u64,
                bus_sector: Nanos(bus_sector),
                reading: if stored { Reading::Stored } else { Reading::Streamed },
            })
        })
    }

    /// The head's track at `now`, computed piece by piece.
    fn track_by_pieces(disk: &Disk, now: Nanos) -> Track {
        let ahead = disk.ahead;
        let (mut track, mut at, mut sector) = (ahead.track, ahead.since, ahead.next);
        while sector < ahead.limit && at <= now {
            let piece = disk.platter.place_of(sector).left_on_track.min(ahead.limit - sector);
            let motion = disk.read_media(track, at, sector, piece);
            (track, at) = (motion.track, motion.end);
            sector += piece;
        }
        track
    }

    /// The beginning of a request: after the one before, a little beyond it, or anywhere.
    type Step = (u8, u64, u64, u64);

    proptest! {
        #[test]
        fn the_sooner_way_is_taken(
            mut disk in any_disk(),
            steps in prop::collection::vec((0u8..4, any::<u64>(), 1u64..40, 0u64..40_000_000), 1..40),
        ) {
            let (mut now, mut last) = (Nanos::ZERO, 0);
            let steps: Vec<Step> = steps;
            for (kind, drawn, sectors, idle) in steps {
                let capacity = disk.spec.capacity_sectors;
                let sectors = sectors.min(capacity);
                let sector = match kind {
                    0 | 1 => last,
                    2 => last + drawn % 50,
                    _ => drawn % capacity,
                };
                let request = Request { sector: sector.min(capacity - sectors), sectors };
                // Before and after the end of the read-ahead has been computed.
                for _ in 0..2 {
                    prop_assert_eq!(disk.find_track_at(now), track_by_pieces(&disk, now));
                    disk.to_fence();
                }
                let first_sector = Request { sectors: 1, ..request };
                let positioned = match disk.way(now, first_sector) {
                    Way::ReadOn(end) => end,
                    Way::Moved(motion) => motion.end,
                };
                let begin = now + disk.spec.overhead;
                let positioning = disk.positioning_time(now, &disk.start_at(request.sector));
                prop_assert_eq!(begin + positioning, positioned);
                let mechanical = disk.mechanical(now, request).end;
                let sooner = disk.streaming_end(now, request).filter(|&end| end <= mechanical);
                match disk.way(now, request) {
                    Way::ReadOn(end) => prop_assert_eq!(Some(end), sooner),
                    Way::Moved(motion) => {
                        prop_assert_eq!(motion.end, mechanical);
                        prop_assert_eq!(sooner, None);
                    }
                }
                let service = disk.service(now, request);
                prop_assert_eq!(now + service.total(), sooner.unwrap_or(mechanical));
                now = now + service.total() + Nanos(idle);
                last = request.end();
            }
        }
    }
}
