//! Faults: disks that become slow, fail, return less than they were asked for, and get well again.
//!
//! When that happens is a schedule given beforehand; which requests it meets is drawn from a seed, by the number of
//! the service at its disk. So a run with faults is a function of its inputs like any other. A condition holds for
//! services that begin while it does. Slowness, failures and shortness are told apart: a disk may have all three.
//!
//! What becomes of it:
//! * **F**: a fetch one of whose requests fails has failed, and nothing of it is kept. Of one that comes short only
//!   the first blocks are there, fewer than were asked for, perhaps none.
//! * **P**: a prefetch ends with that: [`Outcome::Refused`] or [`Outcome::Short`]. Who waits for a block that did
//!   not come with it asks for the block as for any that is not in memory.
//! * **R**: what a program asked for, an inode or a block of addresses, and a name that is looked up, are tried again
//!   after a pause that doubles, as a kernel does ([`Retries`]). The fetch stays under way meanwhile.
//! * **E**: after the last try the read, or the open, ends with an error. Its program counts it and goes on; a lookup
//!   is refused. Who reads the block again begins anew.
//!
//! *Not here*: blocks that arrive with wrong bytes (the machine has no bytes), and requests that never end.
//!
//! [`Outcome::Refused`]: foretell_policy::Outcome::Refused
//! [`Outcome::Short`]: foretell_policy::Outcome::Short

use std::collections::VecDeque;

use foretell_policy::{DeviceId, Nanos};

use crate::random::{hash, scale};

/// All, in parts per million.
pub const ALL_PPM: u32 = 1_000_000;

/// What is the matter with a disk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Condition {
    /// A service takes so many times as long; at least 1.
    Slow {
        /// How many.
        times: u32,
    },
    /// Requests fail, after the time that they take.
    Failing {
        /// Which part of them, per million: [`ALL_PPM`] is each.
        share_ppm: u32,
    },
    /// Of the blocks that a request is for, only the first arrive.
    Short {
        /// Which part of the requests, per million.
        share_ppm: u32,
    },
    /// Nothing any more.
    Well,
}

/// A change in the condition of a disk. What the disk had of other conditions stays, unless it is well.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fault {
    /// From when on.
    pub at: Nanos,
    /// The device.
    pub device: DeviceId,
    /// Which of its disks, from 0; `None`: all. A flat device is one disk.
    pub disk: Option<usize>,
    /// What is the matter.
    pub condition: Condition,
}

/// How often, and when, a read that programs wait for is tried again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Retries {
    /// Tries in all, the first included; at least 1.
    pub tries_max: u32,
    /// From the first failure to the second try; each further pause is twice as long.
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
    /// The pause after `tries` tries, all in vain.
    fn pause_after(&self, tries: u32) -> Nanos {
        let doubled = 1u64.checked_shl(tries.saturating_sub(1)).unwrap_or(u64::MAX);
        Nanos(self.pause.0.saturating_mul(doubled)).min(self.pause_max)
    }

    /// R, E: when to try again what has failed `tries` times by `now`, unless never.
    pub(super) fn again_at(&self, now: Nanos, tries: u32) -> Option<Nanos> {
        (tries < self.tries_max).then(|| now + self.pause_after(tries))
    }
}

/// The faults of a run; none by default.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Faults {
    /// When what is the matter with whom; in any order, and of those at one instant the later ones last.
    pub schedule: Vec<Fault>,
    /// What the requests that fail or come short are drawn from.
    pub seed: u64,
    /// What is done about it.
    pub retries: Retries,
}

/// What has become of a request or a fetch, the worst first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Arrival {
    /// Nothing has arrived.
    Failed,
    /// The first blocks have, fewer than were asked for.
    Short { blocks: u64 },
    /// All have.
    Whole,
}

impl Arrival {
    /// How many of `blocks` have arrived.
    pub(super) fn of(self, blocks: u64) -> u64 {
        match self {
            Arrival::Failed => 0,
            Arrival::Short { blocks: first } => first,
            Arrival::Whole => blocks,
        }
    }
}

/// The condition of a disk as time goes on.
#[derive(Debug, Default)]
pub(super) struct Health {
    /// What is to come, the soonest first.
    due: VecDeque<(Nanos, Condition)>,
    /// Of this disk.
    seed: u64,
    services: u64,
    /// `None`: as ever.
    times: Option<u32>,
    failing_ppm: u32,
    short_ppm: u32,
}

impl Health {
    /// That of a disk of `device`.
    pub(super) fn new(faults: &Faults, device: DeviceId, disk: usize) -> Self {
        let is_meant =
            |fault: &&Fault| fault.device == device && fault.disk.is_none_or(|only| only == disk);
        let of_disk = faults.schedule.iter().filter(is_meant);
        let mut due: Vec<_> = of_disk.map(|fault| (fault.at, fault.condition)).collect();
        due.sort_by_key(|&(at, _)| at);
        let seed = hash(&[faults.seed, device.0, disk as u64]);
        Health { due: due.into(), seed, ..Health::default() }
    }

    /// How long a service takes that begins at `now` and would take `took`, and what arrives by it of the fetch of
    /// so many `blocks` that it is for.
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
