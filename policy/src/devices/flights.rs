//! Fetches in flight, found by number without a hash.
//!
//! A fetch lies at its number modulo the number of places. There are two to four times as many places as fetches were ever in
//! flight at once. Numbers ascend. A number is skipped if a long-running fetch still occupies its place. A fetch holds the
//! slots of its blocks until it ends.

use crate::blocks::{Claim, DeviceIndex, SlotId, StreamIndex};
use crate::hint::{FetchId, StreamId};
use crate::time::Nanos;

#[derive(Clone, Debug)]
pub(crate) struct Flight {
    pub(crate) device: DeviceIndex,
    pub(crate) started: Nanos,
    /// Fetches in flight at the device when it started, itself included.
    pub(crate) outstanding: usize,
    pub(crate) work: FlightWork,
}

#[derive(Clone, Debug)]
pub(crate) enum FlightWork {
    Resolve {
        stream: StreamId,
        index: StreamIndex,
        number: u64,
    },
    Read {
        /// The slots of consecutive blocks.
        slots: Vec<SlotId>,
        demand: Option<Demand>,
    },
}

/// What a demand fetch is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Demand {
    /// A read without a hint.
    Unhinted,
    /// A read that a hint disclosed, at this position.
    Hinted(Claim),
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Flights {
    /// The number of places is a power of two.
    places: Vec<Option<(FetchId, Flight)>>,
    len: usize,
    next: u64,
    /// Empty lists for the slots of later fetches.
    spare: Vec<Vec<SlotId>>,
}

/// The first number of places.
/// Unit: entries. Reason: layout.
const PLACES_MIN: usize = 16;
/// Places per fetch in flight, at least.
/// Unit: ratio. Reason: layout.
const PLACES_FACTOR: usize = 2;
/// If there are more places than this, the places and the empty lists are freed when nothing is in flight. This many take some
/// 100 KiB.
/// Unit: entries. Reason: bound.
const PLACES_KEPT: usize = 1 << 12;

impl Flights {
    pub(crate) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Adds a fetch. Its number is higher than all before it.
    pub(crate) fn insert(&mut self, flight: Flight) -> FetchId {
        self.len += 1;
        if self.len * PLACES_FACTOR > self.places.len() {
            self.grow();
        }
        loop {
            let id = FetchId(self.next);
            self.next += 1;
            let place = self.place_of(id);
            if let vacant @ None = &mut self.places[place] {
                *vacant = Some((id, flight));
                return id;
            }
        }
    }

    /// Removes a fetch, if it is in flight.
    pub(crate) fn remove(&mut self, id: FetchId) -> Option<Flight> {
        let place = self.place_of(id);
        let (_, flight) = self.places.get_mut(place)?.take_if(|(of, _)| *of == id)?;
        self.len -= 1;
        if self.len == 0 && self.places.len() > PLACES_KEPT {
            *self = Flights { next: self.next, ..Flights::default() };
        }
        Some(flight)
    }

    /// All fetches in flight, in the order in which they began.
    pub(crate) fn in_order(&self) -> impl Iterator<Item = &Flight> {
        let mut all: Vec<&(FetchId, Flight)> = self.places.iter().flatten().collect();
        all.sort_unstable_by_key(|(id, _)| *id);
        all.into_iter().map(|(_, flight)| flight)
    }

    /// An empty list of slots.
    #[inline]
    pub(crate) fn room_for_slots(&mut self) -> Vec<SlotId> {
        self.spare.pop().unwrap_or_default()
    }

    /// Takes back a list for later use.
    #[inline]
    pub(crate) fn reuse(&mut self, mut slots: Vec<SlotId>) {
        slots.clear();
        self.spare.push(slots);
    }

    #[inline]
    fn place_of(&self, id: FetchId) -> usize {
        id.0 as usize & self.places.len().wrapping_sub(1)
    }

    #[cold]
    fn grow(&mut self) {
        let places = (self.places.len() * 2).max(PLACES_MIN);
        let old = std::mem::take(&mut self.places);
        self.places.resize_with(places, || None);
        for (id, flight) in old.into_iter().flatten() {
            // Fetches with different places among fewer have different places among more.
            let place = self.place_of(id);
            self.places[place] = Some((id, flight));
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use proptest::prelude::*;

    use super::*;

    fn flight(started: u64) -> Flight {
        let work = FlightWork::Read { slots: Vec::new(), demand: None };
        Flight { device: DeviceIndex(0), started: Nanos(started), outstanding: 1, work }
    }

    proptest! {
        /// Some never end.
        #[test]
        fn they_are_those_of_a_map(ends in prop::collection::vec(any::<Option<u8>>(), 1..600)) {
            let mut flights = Flights::default();
            let mut model: BTreeMap<FetchId, u64> = BTreeMap::new();
            let (mut last, mut most) = (None, 0);
            for (time, end) in (0..).zip(ends) {
                let id = flights.insert(flight(time));
                prop_assert!(last < Some(id), "numbers ascend");
                last = Some(id);
                model.insert(id, time);
                most = most.max(model.len());
                let Some(end) = end else { continue };
                for _ in 0..end % 3 {
                    let Some(id) = model.keys().nth(usize::from(end) % model.len().max(1)).copied()
                    else {
                        break;
                    };
                    let started = flights.remove(id).map(|flight| flight.started.0);
                    prop_assert_eq!(started, model.remove(&id));
                    prop_assert!(flights.remove(id).is_none(), "it ends once");
                }
                prop_assert_eq!(flights.is_empty(), model.is_empty());
            }
            let in_order: Vec<u64> = flights.in_order().map(|flight| flight.started.0).collect();
            prop_assert_eq!(in_order, model.into_values().collect::<Vec<_>>());
            let places = flights.places.len();
            prop_assert!(places <= (4 * most).max(PLACES_MIN), "{} places for {}", places, most);
        }
    }

    #[test]
    fn the_room_of_very_many_is_given_back() {
        let mut flights = Flights::default();
        let ids: Vec<FetchId> = (0..100_000).map(|time| flights.insert(flight(time))).collect();
        for &id in &ids {
            let Flight { work: FlightWork::Read { slots, .. }, .. } =
                flights.remove(id).expect("it is there")
            else {
                unreachable!()
            };
            flights.reuse(slots);
        }
        assert!(flights.places.len() <= PLACES_KEPT && flights.spare.len() <= 1);
        assert!(flights.insert(flight(0)) > ids[ids.len() - 1], "numbers ascend");
    }

    #[test]
    fn nothing_is_found_where_nothing_was() {
        assert!(Flights::default().remove(FetchId(3)).is_none());
    }
}
