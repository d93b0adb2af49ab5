//! A session among others in one process: its part of their budget and of devices, and its figures while it runs.
//!
//! *Waits.* While others fetch, programs write records of their reads even if nothing is fetched for them. So the others learn
//! at which devices they wait ([`Waits`]).

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use foretell_policy::DeviceId;
use foretell_protocol::{Record, RecordKind, stall_threshold_ns};
use serde::{Deserialize, Serialize};

use super::Session;
use crate::reads::BLOCK_BYTES;
use crate::report::{BlockReport, HintReport, NameReport, ProgramReport, SourceReport};
use crate::shares::Measured;

/// What a manager does at a moment.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
pub struct Figures {
    /// Processes with the library that run now.
    pub running: u64,
    /// What programs have done so far.
    pub programs: ProgramReport,
    /// Hints so far.
    pub hints: HintReport,
    /// Hints that wait to be worked off.
    pub waiting_hints: u64,
    /// Blocks so far.
    pub blocks: BlockReport,
    /// The same by their sources, without those that did nothing.
    pub sources: Vec<SourceReport>,
    /// Names looked up ahead.
    pub names: NameReport,
    /// Bytes that are in memory or in flight, and unread or kept for another read.
    pub held_bytes: u64,
    /// Bytes that these may be at most, at this moment.
    pub limit_bytes: u64,
}

/// Questions that wait at a time. A session that does not answer would gather them; further ones are not answered.
const ASKED_MAX: usize = 64;

/// Where others ask a session for its figures.
#[derive(Debug)]
pub(crate) struct Asked {
    is_asked: AtomicBool,
    /// `None` once the session has ended.
    by: Mutex<Option<Vec<Sender<Figures>>>>,
}

impl Default for Asked {
    fn default() -> Self {
        Asked { is_asked: AtomicBool::new(false), by: Mutex::new(Some(Vec::new())) }
    }
}

impl Asked {
    /// Asks. The session must be woken after that.
    pub(crate) fn ask(&self) -> Receiver<Figures> {
        let (sender, receiver) = channel();
        let mut by = self.lock();
        by.iter_mut().filter(|by| by.len() < ASKED_MAX).for_each(|by| by.push(sender.clone()));
        drop(by);
        self.is_asked.store(true, Ordering::Release);
        receiver
    }

    /// Nobody gets an answer from now on.
    pub(crate) fn close(&self) {
        *self.lock() = None;
    }

    fn lock(&self) -> MutexGuard<'_, Option<Vec<Sender<Figures>>>> {
        self.by.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Those who have asked since the last call.
    fn take(&self) -> Vec<Sender<Figures>> {
        match self.is_asked.swap(false, Ordering::Acquire) {
            true => self.lock().as_mut().map(std::mem::take).unwrap_or_default(),
            false => Vec::new(),
        }
    }
}

/// How often it is judged whether programs wait. Longer than most reads take.
const JUDGED: Duration = Duration::from_millis(50);

/// They wait if they do for this part of the time, as a divisor. A call may also be slow because the processor is busy.
const SHARE_DIVISOR: u32 = 4;

/// A judgement that they wait holds for so long: a read of theirs may wait behind many fetches.
const BELIEVED: Duration = Duration::from_millis(200);

/// A device with so many fetches in flight for each that it serves at once is full, as for the policy.
const FULL_PER_SERVER: f64 = 2.0;

/// Devices at a time. A record may name any.
const DEVICES_MAX: usize = 64;

/// How long programs have waited for reads of each device, since a moment.
#[derive(Debug)]
pub(super) struct Waits {
    since: Instant,
    waited: HashMap<DeviceId, Duration>,
}

impl Waits {
    pub(super) fn new() -> Self {
        Waits { since: Instant::now(), waited: HashMap::new() }
    }

    /// Takes in a call.
    pub(super) fn take(&mut self, record: &Record) {
        let Record { device, length_bytes, duration_ns, .. } = *record;
        if record.kind != RecordKind::Read || duration_ns <= stall_threshold_ns(length_bytes) {
            return;
        }
        let device = device_of(device);
        if self.waited.len() < DEVICES_MAX || self.waited.contains_key(&device) {
            let waited = self.waited.entry(device).or_default();
            *waited = waited.saturating_add(Duration::from_nanos(duration_ns));
        }
    }

    /// The devices for whose reads programs wait, if it is time to judge.
    fn judge(&mut self, now: Instant) -> Vec<DeviceId> {
        let passed = now.saturating_duration_since(self.since);
        if passed < JUDGED {
            return Vec::new();
        }
        self.since = now;
        let waited = self.waited.drain().filter(|&(_, waited)| waited >= passed / SHARE_DIVISOR);
        waited.map(|(device, _)| device).collect()
    }
}

/// The device of a file with this `st_dev`. In a btrfs subvolume that is no mount's number, so nobody fetches from it and waits
/// there count for nothing; a record has no path by which the mount could be found.
fn device_of(number: u64) -> DeviceId {
    DeviceId(u64::from(libc::major(number)) << 32 | u64::from(libc::minor(number)))
}

impl Session {
    /// Abides by what the other sessions of the process leave to this one.
    pub(super) fn follow_lease(&mut self) {
        let Some(lease) = &self.lease else { return };
        let terms = lease.tell(Instant::now(), self.is_active(), self.policy.held_blocks());
        let now = Instant::now();
        for device in self.waits.judge(now).into_iter().filter(|_| terms.others_fetch) {
            lease.note_waits(device, now + BELIEVED);
        }
        self.others_fetch = terms.others_fetch && !self.programs.is_empty();
        self.policy.set_limit(terms.limit_blocks);
        if terms.sheds {
            let now = self.now();
            self.policy.shed(now);
        }
    }

    /// The most fetches and lookups that may be in flight at `device`.
    pub(super) fn most_in_flight(&self, device: DeviceId) -> usize {
        let Some(lease) = &self.lease else { return usize::MAX };
        let measured = self.policy.served_at_once(device).map(|serves| {
            let is_full = self.policy.in_flight(device) as f64 >= FULL_PER_SERVER * serves;
            Measured { serves, is_full }
        });
        lease.most_in_flight(device, measured)
    }

    /// Tells the other sessions what is in flight at `device`, and whether there might be more.
    pub(super) fn note_in_flight(&self, device: DeviceId, is_held_back: bool) {
        if let Some(lease) = &self.lease {
            lease.note_in_flight(device, self.policy.in_flight(device), is_held_back);
        }
    }

    pub(super) fn answer(&mut self) {
        for asking in self.asked.take() {
            let _ = asking.send(self.figures()); // One that has given up needs no answer.
        }
    }

    fn figures(&self) -> Figures {
        let counts = self.policy.counts();
        Figures {
            running: self.programs.len() as u64,
            programs: self.programs_so_far(),
            hints: HintReport::new(&counts, self.broken_lines),
            waiting_hints: self.policy.waiting_hints() as u64,
            blocks: BlockReport::new(BLOCK_BYTES, &counts),
            sources: self.sources_of_hints.report(&self.policy),
            names: self.walking.report(),
            held_bytes: self.policy.held_blocks() * BLOCK_BYTES,
            limit_bytes: self.policy.limit_blocks() * BLOCK_BYTES,
        }
    }

    /// What programs have done: those that have ended, and those that run.
    fn programs_so_far(&self) -> ProgramReport {
        let mut programs = self.ended_programs;
        self.programs.iter().for_each(|program| programs.add(&program.counters()));
        (programs.outside, programs.outside_read_bytes) = self.sighted.counts();
        (programs.outside_opens, programs.dropped_opens) = self.openers.counts();
        programs
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use foretell_protocol::RecordFlags;

    #[test]
    fn questions_to_a_session_that_does_not_answer_are_bounded() {
        let asked = Asked::default();
        let answers: Vec<_> = (0..ASKED_MAX + 10).map(|_| asked.ask()).collect();
        let is_closed = |answer: &Receiver<Figures>| {
            answer.try_recv() == Err(std::sync::mpsc::TryRecvError::Disconnected)
        };
        assert_eq!(answers.iter().filter(|answer| is_closed(answer)).count(), 10);
        assert_eq!(asked.take().len(), ASKED_MAX);
        assert_eq!(asked.ask().try_recv(), Err(std::sync::mpsc::TryRecvError::Empty));
    }

    #[test]
    fn programs_wait_for_a_device_if_they_do_for_much_of_the_time() {
        let mut waits = Waits::new();
        let began = waits.since;
        let read = |minor: u32, ms: u64| Record {
            kind: RecordKind::Read,
            flags: RecordFlags::default(),
            device: libc::makedev(8, minor),
            inode: 7,
            offset_bytes: 0,
            length_bytes: 4096,
            end_ns: 0,
            duration_ns: ms * 1_000_000,
        };
        (0..10).for_each(|_| waits.take(&read(1, 4)));
        waits.take(&read(2, 4));
        waits.take(&Record { kind: RecordKind::Open, ..read(3, 40) });
        assert!(waits.judge(began + JUDGED / 2).is_empty(), "too early");
        assert_eq!(waits.judge(began + JUDGED), [DeviceId(8 << 32 | 1)]);
        assert!(waits.judge(began + 2 * JUDGED).is_empty());
    }
}
