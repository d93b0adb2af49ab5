//! Case L: lookups of hinted names. Takes the name whose turn it is, and passes the outcome of its lookup to its stream.

use super::{DOZE_AFTER, DOZE_STRIDE, Policy};
use crate::blocks::{DeviceIndex, StreamIndex};
use crate::contract::{Fetch, Outcome, Work};
use crate::devices::device::Lookup as UnderWay;
use crate::devices::flights::FlightWork;
use crate::hint::{HinterId, StreamId};
use crate::streams::stream::Lookup;
use crate::time::Nanos;

impl Policy {
    /// L: the next lookup for `device`.
    pub(super) fn next_lookup(&mut self, now: Nanos, device: DeviceIndex) -> Option<Fetch> {
        let at_device = &self.devices[usize::from(device.0)];
        if at_device.unresolved.len() == 0 {
            return None;
        }
        let taken = at_device.names_under_way() + self.arbiter.streams().files().wanted_at(device);
        let left = self.arbiter.streams().lookups_left(taken, self.stream_ids.len() > 1)?;
        if self.config.tries_depths && at_device.working_on() >= at_device.depth.lookup_depth() {
            return None;
        }
        self.tell_resolved();
        let at_device = &self.devices[usize::from(device.0)];
        let first = at_device.unresolved.first(left);
        #[cfg(any(test, debug_assertions))]
        {
            let of_all = self.arbiter.streams().first_of_all(at_device.unresolved.firsts(), left);
            assert_eq!(first, of_all, "{left:?}");
        }
        let index = first?;
        if at_device.cached_run >= DOZE_AFTER {
            self.pass_over(device, index);
        }
        let number = self.device_mut(device).unresolved.pop(index)?;
        let stream = self.arbiter.stream(index);
        let (id, name) = (stream.id, stream.begin_lookup(number));
        self.arbiter.streams_mut().touch_resolved(index);
        let fetch = self.start(now, device, FlightWork::Resolve { stream: id, index, number });
        let at_device = self.device_mut(device);
        at_device.lookup_begun(fetch, UnderWay { began: now, stream: id, index, number });
        Some(Fetch { id: fetch, device: at_device.id, work: Work::Resolve { name } })
    }

    /// Tells devices the current standings of streams and hinters.
    fn tell_resolved(&mut self) {
        while let Some((index, of)) = self.arbiter.streams_mut().renew_resolved() {
            for device in &mut self.devices {
                device.unresolved.set_standing(index, of.standing);
                device.unresolved.set_few(of.hinter, of.hinter_has_few);
            }
        }
    }

    /// Tells devices whether a hinter has few files looked up.
    pub(super) fn tell_few(&mut self, hinter: HinterId) {
        let has_few = self.arbiter.streams().hinter_has_few(hinter);
        self.devices.iter_mut().for_each(|device| device.unresolved.set_few(hinter, has_few));
    }

    /// G: drops the next hints of a stream, but never its last one.
    fn pass_over(&mut self, device: DeviceIndex, index: StreamIndex) {
        for _ in 1..DOZE_STRIDE {
            let at_device = &self.devices[usize::from(device.0)];
            if at_device.unresolved.len_of(index) < 2 {
                return;
            }
            let Some(number) = self.device_mut(device).unresolved.pop(index) else { return };
            self.counts.hints_passed_over += 1;
            let stream = self.arbiter.stream(index);
            self.dropped_names.extend(stream.pass_over(number));
        }
    }

    /// L: hints behind a slow lookup are placed before it, whatever their devices. Returns whether there was a slow lookup.
    pub(super) fn pass_slow_lookups(&mut self, now: Nanos) -> bool {
        let mut passed = false;
        for device in 0..self.devices.len() {
            self.devices[device].find_overdue(now);
            for UnderWay { stream: id, index, number, .. } in self.devices[device].take_overdue() {
                let is_open = self.stream_ids.get(&id) == Some(&index);
                if is_open && self.arbiter.stream(index).lookup_is_overdue(number) {
                    self.advance(index);
                    passed = true;
                }
            }
        }
        passed
    }

    pub(super) fn looked_up(
        &mut self,
        device: DeviceIndex,
        (id, index, number): (StreamId, StreamIndex, u64),
        outcome: Outcome,
    ) {
        let lookup = match outcome {
            Outcome::Resolved { file, size_bytes } => {
                self.counts.hints_resolved += 1;
                Lookup::Known { file, size_bytes }
            }
            Outcome::Void => {
                self.counts.hints_void += 1;
                Lookup::Void
            }
            Outcome::Refused => {
                self.counts.hints_refused += 1;
                Lookup::Void
            }
            _ => panic!("{outcome:?} is no outcome of a lookup"),
        };
        if self.stream_ids.get(&id) != Some(&index) {
            return; // Closed in the meantime.
        }
        let stream = self.arbiter.stream(index);
        let still_waits = stream.lookup_ended(number, lookup);
        self.arbiter.streams_mut().touch_resolved(index);
        if !still_waits {
            return; // Cancelled in the meantime.
        }
        if let Lookup::Known { file, .. } = lookup {
            self.arbiter.streams_mut().files_mut().hold(file, device);
        }
        self.advance(index);
    }
}
