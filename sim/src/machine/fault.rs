//! Faults: disks that become slow, fail, return too few blocks, and recover.
//!
//! A schedule says when faults begin. The affected requests are drawn from a seed, by the number of the service at its disk.
//! So a run with faults is a function of its inputs. A condition affects services that begin while it lasts. Slowness,
//! failures and short reads are independent: a disk may have all three.
//!
//! Consequences:
//! * **F**: a fetch fails if one of its requests fails, and none of its blocks is kept. A short fetch brings only its first
//!   blocks, perhaps none.
//! * **P**: a prefetch then ends with [`Outcome::Refused`] or [`Outcome::Short`]. A program that waits for a block that did not
//!   arrive asks for it like for any missing block.
//! * **R**: demanded blocks, inodes, blocks of addresses and lookups of names are tried again after a pause that doubles, as
//!   in a kernel ([`Retries`]). The fetch stays in flight meanwhile.
//! * **E**: after the last try the read or the open ends with an error. Its program counts the error and goes on; a lookup is
//!   refused. A later read of the block begins anew.
//!
//! Not here: wrong bytes (the machine has no bytes), and requests that never end.
//!
//! [`Outcome::Refused`]: foretell_policy::Outcome::Refused
//! [`Outcome::Short`]: foretell_policy::Outcome::Short

use std::collections::VecDeque;

use foretell_policy::{DeviceId, Nanos};

use crate::random::{hash, scale};

/// All requests, in parts per million.
pub const ALL_PPM: u32 = 1_000_000;

/// A condition of a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// Services take longer.
    Slow {
        /// The factor; at least 1.
        times: u32,
    },
    /// Some requests fail, after the usual time.
    Failing {
        /// The share of requests, per million: [`ALL_PPM`] is all.
        share_ppm: u32,
    },
    /// Some requests bring only the first of their blocks.
    Short {
        /// The share of requests, per million.
        share_ppm: u32,
    },
    /// The disk has recovered from all conditions.
    Well,
}

/// A change in the conditions of a disk. Its other conditions last, unless it recovers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// When it begins.
    pub at: Nanos,
    /// The device.
    pub device: DeviceId,
    /// The disk of the device, from 0; `None`: all. A flat device is one disk.
    pub disk: Option<usize>,
    /// The condition.
    pub condition: Condition,
}

/// How often, and when, a demanded read is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Tries, including the first; at least 1.
    pub tries_max: u32,
    /// The pause before the second try; each further pause is twice as long.
    pub pause: Nanos,
    /// The longest pause.
    pub pause_max: Nanos,
}

impl Default for Retries {
    /// Six tries, as Linux has for disks (`SD_MAX_RETRIES` is 5), with pauses from 10 ms to 1 s, which are
    /// assumed.
    fn default() -> Self {
        Retries { tries_max: 6, pause: Nanos(10_000_000), pause_max: Nanos(1_000_000_000) }
    }
}

impl Retries {
    /// The pause after `tries` failed tries.
    fn pause_after(&self, tries: u32) -> Nanos {
        let doubled = 1u64.checked_shl(tries.saturating_sub(1)).unwrap_or(u64::MAX);
        Nanos(self.pause.0.saturating_mul(doubled)).min(self.pause_max)
    }

    /// R, E: when to try again after `tries` failures; `None`: never.
    pub(super) fn again_at(&self, now: Nanos, tries: u32) -> Option<Nanos> {
        (tries < self.tries_max).then(|| now + self.pause_after(tries))
    }
}

/// The faults of a run; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// The changes, in any order. Those of one instant apply in their order here.
    pub schedule: Vec<Fault>,
    /// The seed of the draws of affected requests.
    pub seed: u64,
    /// How failed reads are tried again.
    pub retries: Retries,
}

/// The outcome of a request or a fetch, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Arrival {
    /// No block has arrived.
    Failed,
    /// Only the first blocks have arrived.
    Short { blocks: u64 },
    /// All blocks have arrived.
    Whole,
}

impl Arrival {
    /// The number of `blocks` that have arrived.
    pub(super) fn of(self, blocks: u64) -> u64 {
        match self {
            Arrival::Failed => 0,
            Arrival::Short { blocks: first } => first,
            Arrival::Whole => blocks,
        }
    }
}

/// The conditions of a disk over time.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// Future changes, the soonest first.
    due: VecDeque<(Nanos, Condition)>,
    /// The seed of this disk.
    seed: u64,
    services: u64,
    /// The factor of slowness, if it is slow.
    times: Option<u32>,
    failing_ppm: u32,
    short_ppm: u32,
}

impl Health {
    /// The conditions of a disk of `device`.
    pub(super) fn new(faults: &Faults, device: DeviceId, disk: usize) -> Self {
        let is_meant =
            |fault: &&Fault| fault.device == device && fault.disk.is_none_or(|only| only == disk);
        let of_disk = faults.schedule.iter().filter(is_meant);
        let mut due: Vec<_> = of_disk.map(|fault| (fault.at, fault.condition)).collect();
        due.sort_by_key(|&(at, _)| at);
        let seed = hash(&[faults.seed, device.0, disk as u64]);
        Health { due: due.into(), seed, ..Health::default() }
    }

    /// The time of a service that begins at `now` and takes `took` without faults, and the arrival of its fetch of `blocks`
    /// blocks.
    pub(super) fn serve(
        &mut self,
        now: Nanos,
        took: Nanos,
        blocks: impl FnOnce() -> u64,
    ) -> (Nanos, Arrival) {
        while let Some(&(at, condition)) = self.due.front()
            && at <= now
        {
            self.due.pop_front();
            self.apply(condition);
        }
        self.services += 1;
        let slow = |times: u32| took.0.checked_mul(times.into()).map(Nanos);
        let took = self.times.map_or(Some(took), slow).expect("a service ends within 584 years");
        let arrival = if self.draws(self.failing_ppm, 0) {
            Arrival::Failed
        } else if self.draws(self.short_ppm, 1) {
            Arrival::Short { blocks: scale(self.draw(2), blocks()) }
        } else {
            Arrival::Whole
        };
        (took, arrival)
    }

    fn apply(&mut self, condition: Condition) {
        match condition {
            Condition::Slow { times } => {
                assert!(times > 0, "a disk that takes no time");
                self.times = Some(times);
            }
            Condition::Failing { share_ppm } => self.failing_ppm = share_ppm,
            Condition::Short { share_ppm } => self.short_ppm = share_ppm,
            Condition::Well => {
                (self.times, self.failing_ppm, self.short_ppm) = (None, 0, 0);
            }
        }
    }

    fn draws(&self, share_ppm: u32, which: u64) -> bool {
        share_ppm > 0 && scale(self.draw(which), ALL_PPM.into()) < share_ppm.into()
    }

    fn draw(&self, which: u64) -> u64 {
        hash(&[self.seed, self.services, which])
    }
}

#[cfg(test)]
mod tests;
