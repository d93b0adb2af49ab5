//! Looking up the names of hints: whose turn it is, and what becomes of it.

use hashbrown::HashMap;

use super::{DOZE_AFTER, DOZE_STRIDE, Policy};
use crate::blocks::{DeviceIndex, StreamIndex};
use crate::contract::{Fetch, Outcome, Work};
use crate::device::Lookup as UnderWay;
use crate::flights::FlightWork;
use crate::hash::Mix;
use crate::hint::{HinterId, StreamId};
use crate::stream::Lookup;
use crate::time::Nanos;

/// A stream that has shown nothing has this share of a device's lookups, as a divisor.
const LOOKUPS_FIRST_DIVISOR: usize = 4;
const LOOKUPS_FIRST_MIN: usize = 32;
const LOOKUPS_KEPT_DIVISOR: usize = 8;
const LOOKUPS_FEW_DIVISOR: usize = 4;

impl Policy {
    /// L: the next lookup for `device`.
    pub(super) fn next_lookup(&mut self, now: Nanos, device: DeviceIndex) -> Option<Fetch> {
        let most = self.config.resolved_max;
        let at_device = &self.devices[usize::from(device.0)];
        let taken = at_device.names_under_way() + self.cache.files.wanted_at(device);
        if at_device.unresolved.is_empty() || taken >= most {
            return None;
        }
        if self.config.tries_depths && at_device.working_on() >= at_device.depth.lookup_depth() {
            return None;
        }
        // The last ones are for those who have few yet: who shows nothing keeps its own for long. Half of
        // them are for streams that have none, all of them for hinters that have few.
        let kept = if self.stream_ids.len() > 1 { most / LOOKUPS_KEPT_DIVISOR } else { 0 };
        let few = (kept / LOOKUPS_FEW_DIVISOR).max(1) as u64;
        let first = (most / LOOKUPS_FIRST_DIVISOR).max(LOOKUPS_FIRST_MIN).min(most) as u64;
        let mut of_hinters: HashMap<HinterId, u64, Mix> = HashMap::default();
        let index = at_device.first_unresolved(|index| {
            let Some(stream) = self.cache.streams[index.0 as usize].as_ref() else { return false };
            let has = stream.resolved_ahead();
            if taken < most - kept {
                return has < first.saturating_add_signed(stream.balance).max(1);
            }
            if taken < most - kept / 2 && has == 0 {
                return true;
            }
            let of_hinter = of_hinters.entry(stream.hinter);
            *of_hinter.or_insert_with(|| self.cache.resolved_ahead_by(stream.hinter)) < few
        })?;
        if at_device.cached_run >= DOZE_AFTER {
            self.pass_over(device, index);
        }
        let number = self.device_mut(device).take_unresolved(index)?;
        let stream = self.cache.stream(index);
        let (id, first) = (stream.id, stream.first_waiting);
        let waiting = stream.waiting.get_mut((number - first) as usize).expect("it waits");
        let Lookup::Pending(name) = waiting.lookup() else { unreachable!("a name waits") };
        waiting.set_lookup(Lookup::InFlight);
        stream.lookups += 1;
        let fetch = self.start(now, device, FlightWork::Resolve { stream: id, index, number });
        let at_device = self.device_mut(device);
        at_device.lookup_begun(fetch, UnderWay { began: now, stream: id, index, number });
        Some(Fetch { id: fetch, device: at_device.id, work: Work::Resolve { name } })
    }

    /// G: leaves the next hints of a stream out, but for the last of all.
    fn pass_over(&mut self, device: DeviceIndex, index: StreamIndex) {
        for _ in 1..DOZE_STRIDE {
            let at_device = &self.devices[usize::from(device.0)];
            if at_device.unresolved.get(&index).is_none_or(|hints| hints.len() < 2) {
                return;
            }
            let Some(number) = self.device_mut(device).take_unresolved(index) else { return };
            self.cache.counts.hints_passed_over += 1;
            let stream = self.cache.stream(index);
            let first = stream.first_waiting;
            let waiting = stream.waiting.get_mut((number - first) as usize).expect("it waits");
            if let Lookup::Pending(name) = waiting.lookup() {
                self.dropped_names.push(name);
            }
            waiting.set_lookup(Lookup::Void);
        }
    }

    /// L: what was hinted after a lookup that takes its time goes before it, wherever it is to be fetched
    /// from. Returns whether there is something of the kind.
    pub(super) fn pass_slow_lookups(&mut self, now: Nanos) -> bool {
        let mut passed = false;
        for device in 0..self.devices.len() {
            self.devices[device].find_overdue(now);
            for UnderWay { stream: id, index, number, .. } in self.devices[device].take_overdue() {
                let is_open = self.stream_ids.get(&id) == Some(&index);
                if is_open && self.cache.stream(index).lookup_is_overdue(number) {
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
                self.cache.counts.hints_resolved += 1;
                Lookup::Known { file, size_bytes }
            }
            Outcome::Void => {
                self.cache.counts.hints_void += 1;
                Lookup::Void
            }
            Outcome::Refused => {
                self.cache.counts.hints_refused += 1;
                Lookup::Void
            }
            _ => panic!("{outcome:?} is no outcome of a lookup"),
        };
        if self.stream_ids.get(&id) != Some(&index) {
            return; // Closed in the meantime.
        }
        let stream = self.cache.stream(index);
        stream.lookups -= 1;
        if !stream.set_lookup(number, lookup) {
            return; // Cancelled in the meantime.
        }
        if let Lookup::Known { file, .. } = lookup {
            self.cache.files.hold(file, device);
        }
        self.advance(index);
    }
}
