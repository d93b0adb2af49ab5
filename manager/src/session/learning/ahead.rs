//! Asks, ahead of the run, for what earlier runs have touched: of this workload ([`Replay`]), and
//! of others where no profile says what comes next ([`Predicting`](super::Predicting)).
//!
//! Those two say what to ask for. This module bounds how much is asked for at a time, leaves out lookups on a device whose
//! names are in memory, and opens one stream for each device.

use std::os::unix::ffi::OsStrExt;
use std::path::Path;

use foretell_learn::replay::{self, Replay, Request, Room};
use foretell_learn::steps::Part;
use foretell_policy::{DeviceId, Extent, HinterId, Nanos, Order, Segment, StreamId};

use super::{Learning, QUICK_MAX, REPLAY};
use crate::session::Session;
use crate::source::{Certainty, Disclosure};
use crate::sources::Origin;

/// Hinter numbers of replays and of predictions begin here, one for each device: on one device all may be in memory, and
/// nothing on another.
const FIRST_LEARNED: u64 = 1 << 49;
const FIRST_PREDICTED: u64 = FIRST_LEARNED + DEVICES_MAX as u64;

/// Devices with files that are read ahead. Files on further ones are not.
const DEVICES_MAX: usize = 16;

/// Lookups under way at a time. As many as the threads of a device that look ahead.
const UNDER_WAY_MAX: usize = 48;

/// Files disclosed that wait to be looked up by the policy.
const FILES_WAITING_MAX: usize = 256;

/// Beyond [`QUICK_MAX`], one name in so many is looked up, to see whether the others are still in memory.
const QUICK_PROBE: u32 = 16;

/// Where a request comes from: the profile of this workload, or those of others.
#[derive(Clone, Copy, Debug)]
enum Ahead {
    Learned,
    Predicted,
}

impl Learning {
    /// A lookup ahead has ended; `device`: where, if it was of a name.
    pub(in crate::session) fn looked_up(&mut self, device: Option<u64>, waited: bool) {
        self.under_way = self.under_way.saturating_sub(1);
        if let Some(device) = device {
            let quick = self.quick.entry(DeviceId(device)).or_default();
            *quick = if waited { 0 } else { quick.saturating_add(1) };
        }
        self.looked_for(waited);
    }

    /// Whether a name on this device is looked up: not if the names there are in memory, but for some, to see whether that goes
    /// on.
    fn looks_at(&mut self, device: DeviceId) -> bool {
        let quick = self.quick.entry(device).or_default();
        if *quick < QUICK_MAX {
            return true;
        }
        *quick = quick.saturating_add(1);
        quick.is_multiple_of(QUICK_PROBE)
    }

    /// Whether the run has waited, and no profile says what comes next.
    fn is_uncovered(&self) -> bool {
        let covers = |(replay, _): &(Replay, bool)| !replay.has_stopped();
        self.is_cold && self.found.is_none() && !self.replay.as_ref().is_some_and(covers)
    }
}

impl Session {
    /// Asks for what the run will touch, as earlier runs have shown.
    pub(in crate::session) fn replay_ahead(&mut self) {
        let Some(learning) = &mut self.accesses.learning else { return };
        learning.take_found();
        learning.note_sight(Nanos(self.clock.elapsed().as_nanos() as u64));
        learning.save(Nanos(self.clock.elapsed().as_nanos() as u64), &self.threads);
        self.predict_ahead();
        let Some(learning) = &mut self.accesses.learning else { return };
        let Some((replay, _)) = &mut learning.replay else { return };
        if replay.has_stopped() {
            let now = Nanos(self.clock.elapsed().as_nanos() as u64);
            for (_, _, stream) in learning.streams.drain(..) {
                self.streams -= 1;
                self.policy.close(now, stream);
            }
        }
        let waiting_by = |&(_, hinter, _): &_| self.policy.waiting_hints_by(hinter);
        let waiting = learning.streams.iter().map(waiting_by).sum::<usize>();
        if learning.touches == 0 {
            replay.come_to(waiting + learning.under_way);
        }
        let names = UNDER_WAY_MAX.saturating_sub(learning.under_way);
        let files = FILES_WAITING_MAX.saturating_sub(waiting);
        for request in replay.requests(Room { names, files }) {
            self.request_ahead(request, Ahead::Learned);
        }
    }

    /// Asks for what the run will touch, as runs of other workloads have shown.
    fn predict_ahead(&mut self) {
        let Some(learning) = &mut self.accesses.learning else { return };
        if learning.is_uncovered() {
            learning.predicting.begin(&self.done, &self.threads);
        }
        learning.predicting.take_history(&learning.recorder);
        if !learning.predicting.is_on() {
            return;
        }
        let waiting_by = |&(_, hinter, _): &_| self.policy.waiting_hints_by(hinter);
        let waiting = learning.predicted_streams.iter().map(waiting_by).sum::<usize>();
        for request in learning.predicting.requests(FILES_WAITING_MAX.saturating_sub(waiting)) {
            self.request_ahead(request, Ahead::Predicted);
        }
    }

    fn request_ahead(&mut self, request: Request, ahead: Ahead) {
        let path_of = |path: &[u8]| Path::new(std::ffi::OsStr::from_bytes(path)).to_owned();
        match request {
            Request::Look(path) => {
                let device = self.mounts.device_of(&path_of(&path));
                let Some(learning) = &mut self.accesses.learning else { return };
                if learning.looks_at(device) {
                    learning.under_way += 1;
                    self.driver.look(device, REPLAY, (*path).into(), device.0);
                }
            }
            Request::List(folder) => {
                self.accesses.learning.iter_mut().for_each(|learning| learning.under_way += 1);
                self.driver.list(self.mounts.device_of(&path_of(&folder)), REPLAY, folder, None);
            }
            Request::Read(path, extent) => {
                let path = path_of(&path);
                let Some(stream) = self.stream_ahead(&path, ahead) else { return };
                let segments =
                    |parts: Vec<Part>| Extent::Segments(parts.iter().map(segment_of).collect());
                let (extent, order) = match extent {
                    replay::Extent::Whole => (Extent::WholeFile, Order::Given),
                    replay::Extent::InOrder(parts) => (segments(parts), Order::Given),
                    replay::Extent::InAnyOrder(parts) => (segments(parts), Order::Any),
                };
                let certainty = Certainty::MaybeFile;
                self.disclose(stream, Disclosure { path, extent, repeats: 1, order, certainty });
            }
        }
    }

    fn stream_ahead(&mut self, path: &Path, ahead: Ahead) -> Option<StreamId> {
        let (now, device) = (self.now(), self.mounts.device_of(path));
        let learning = self.accesses.learning.as_mut()?;
        let (streams, first, origin) = match ahead {
            Ahead::Learned if learning.is_by_hand => {
                (&mut learning.streams, FIRST_LEARNED, Origin::Replayed)
            }
            Ahead::Learned => (&mut learning.streams, FIRST_LEARNED, Origin::Learned),
            Ahead::Predicted => {
                (&mut learning.predicted_streams, FIRST_PREDICTED, Origin::Predicted)
            }
        };
        let known = streams.iter().find(|(other, ..)| *other == device);
        if let Some(&(_, _, stream)) = known {
            return Some(stream);
        }
        let count = streams.len();
        if count >= DEVICES_MAX {
            return None;
        }
        let hinter = HinterId(first + count as u64);
        let stream = self.policy.open_stream(now, hinter, None);
        self.policy.set_source(stream, origin.id());
        streams.push((device, hinter, stream));
        self.streams += 1;
        Some(stream)
    }
}

fn segment_of(part: &Part) -> Segment {
    Segment { offset_bytes: part.start, length_bytes: part.bytes() }
}
