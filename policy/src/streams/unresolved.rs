//! The names that wait for their lookup at one device, and the stream that may have one looked up next.
//!
//! The earliest hint goes first, among the streams that may have another one looked up. Which streams may depends on how many
//! lookups the device has [left](Left): the last ones are for streams and hinters that have few. So the first hints are kept in
//! three orders:
//!
//! * of streams that may have another one by their own [share](super::shares::Shares);
//! * of streams that have none looked up;
//! * of hinters that have few looked up.
//!
//! Changes of the streams' standings are reported ([`Streams::renew_resolved`](super::Streams::renew_resolved)).
//!
//! Programs usually disclose many names in a row. A run of names, not interrupted by other programs' names, takes 24 bytes.
//!
//! Cost: O(log n) per call, with n streams that have names here.

use std::collections::{BTreeMap, VecDeque};

use hashbrown::HashMap;

use crate::blocks::StreamIndex;
use crate::hint::HinterId;
use crate::streams::shares::{HinterStanding, Left, Standing};
use crate::tables::hash::Mix;
use crate::tables::shrinking::{shrink_map, shrink_queue};

/// A hint's place in the order of arrival over all streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

/// Hints with consecutive tickets and consecutive numbers in their stream.
#[derive(Clone, Copy, Debug)]
struct Run {
    ticket: u64,
    number: u64,
    hints: u64,
}

/// The waiting names of one stream, in order.
#[derive(Debug)]
struct OfStream {
    runs: VecDeque<Run>,
    len: usize,
    hinter: HinterId,
    standing: Standing,
}

impl OfStream {
    fn new(hinter: HinterId, standing: Standing) -> Self {
        OfStream { runs: VecDeque::new(), len: 0, hinter, standing }
    }

    /// Adds a hint, later than all before it.
    fn push(&mut self, Ticket(ticket): Ticket, number: u64) {
        self.len += 1;
        match self.runs.back_mut() {
            Some(run) if (run.ticket + run.hints, run.number + run.hints) == (ticket, number) => {
                run.hints += 1;
            }
            _ => self.runs.push_back(Run { ticket, number, hints: 1 }),
        }
    }

    /// The ticket of the first hint.
    fn first_ticket(&self) -> Option<Ticket> {
        self.runs.front().map(|run| Ticket(run.ticket))
    }

    /// Removes the first hint and returns its number.
    fn pop(&mut self) -> Option<u64> {
        let run = self.runs.front_mut()?;
        let number = run.number;
        (run.ticket, run.number, run.hints) = (run.ticket + 1, number + 1, run.hints - 1);
        if run.hints == 0 {
            self.runs.pop_front();
            shrink_queue(&mut self.runs);
        }
        self.len -= 1;
        Some(number)
    }
}

/// The streams of one hinter, ordered by the first hint of each.
#[derive(Debug, Default)]
struct OfHinter {
    firsts: BTreeMap<Ticket, StreamIndex>,
    has_few: bool,
}

impl OfHinter {
    /// The earliest of its first hints, if the hinter has few.
    fn first(&self) -> Option<(Ticket, StreamIndex)> {
        let first = self.firsts.first_key_value().filter(|_| self.has_few)?;
        Some((*first.0, *first.1))
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Unresolved {
    of_streams: BTreeMap<StreamIndex, OfStream>,
    of_hinters: HashMap<HinterId, OfHinter, Mix>,
    len: usize,
    /// First hints in three orders: of the streams that may have another one by their share, of the streams that have none, and
    /// of the hinters that have few (one hint per hinter).
    may: BTreeMap<Ticket, StreamIndex>,
    have_none: BTreeMap<Ticket, StreamIndex>,
    of_few: BTreeMap<Ticket, StreamIndex>,
}

impl Unresolved {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// Number of waiting names of `stream`.
    pub(crate) fn len_of(&self, stream: StreamIndex) -> usize {
        self.of_streams.get(&stream).map_or(0, |hints| hints.len)
    }

    /// Adds the hint of this number of `stream`, later than all before it.
    pub(crate) fn push(
        &mut self,
        stream: StreamIndex,
        ticket: Ticket,
        number: u64,
        of: HinterStanding,
    ) {
        let new = || OfStream::new(of.hinter, of.standing);
        let hints = self.of_streams.entry(stream).or_insert_with(new);
        hints.push(ticket, number);
        self.len += 1;
        if hints.len == 1 {
            self.change_hinter(of.hinter, |hinter| hinter.has_few = of.hinter_has_few);
            self.add_first(stream);
        }
    }

    /// Removes the first hint of `stream` and returns its number.
    pub(crate) fn pop(&mut self, stream: StreamIndex) -> Option<u64> {
        self.remove_first(stream);
        let hints = self.of_streams.get_mut(&stream)?;
        let number = hints.pop()?;
        self.len -= 1;
        match hints.len {
            0 => self.forget(stream),
            _ => self.add_first(stream),
        }
        Some(number)
    }

    /// Removes all hints of `stream`.
    pub(crate) fn forget(&mut self, stream: StreamIndex) {
        self.remove_first(stream);
        let Some(OfStream { len, hinter, .. }) = self.of_streams.remove(&stream) else { return };
        self.len -= len;
        if self.of_hinters.get(&hinter).is_some_and(|of_hinter| of_hinter.firsts.is_empty()) {
            self.of_hinters.remove(&hinter);
            shrink_map(&mut self.of_hinters);
        }
    }

    /// The stream whose first hint is to be looked up next.
    pub(crate) fn first(&self, left: Left) -> Option<StreamIndex> {
        let of_few = self.of_few.first_key_value();
        let first = match left {
            Left::Enough => self.may.first_key_value(),
            Left::HalfOfTheLast => {
                let none = self.have_none.first_key_value();
                none.into_iter().chain(of_few).min_by_key(|(ticket, _)| **ticket)
            }
            Left::LessOfTheLast => of_few,
        };
        first.map(|(_, &stream)| stream)
    }

    /// Changes the standing of `stream`.
    pub(crate) fn set_standing(&mut self, stream: StreamIndex, standing: Standing) {
        if self.of_streams.get(&stream).is_some_and(|hints| hints.standing != standing) {
            self.remove_first(stream);
            self.of_streams.entry(stream).and_modify(|hints| hints.standing = standing);
            self.add_first(stream);
        }
    }

    /// Notes whether `hinter` has few.
    pub(crate) fn set_few(&mut self, hinter: HinterId, has_few: bool) {
        if self.of_hinters.get(&hinter).is_some_and(|of_hinter| of_hinter.has_few != has_few) {
            self.change_hinter(hinter, |of_hinter| of_hinter.has_few = has_few);
        }
    }

    /// Enters the first hint of `stream` into the orders.
    fn add_first(&mut self, stream: StreamIndex) {
        let Some((ticket, hinter, standing)) = self.first_of(stream) else { return };
        if standing.may {
            self.may.insert(ticket, stream);
        }
        if standing.has_none {
            self.have_none.insert(ticket, stream);
        }
        self.change_hinter(hinter, |of_hinter| {
            of_hinter.firsts.insert(ticket, stream);
        });
    }

    /// Removes the first hint of `stream` from the orders.
    fn remove_first(&mut self, stream: StreamIndex) {
        let Some((ticket, hinter, _)) = self.first_of(stream) else { return };
        self.may.remove(&ticket);
        self.have_none.remove(&ticket);
        self.change_hinter(hinter, |of_hinter| {
            of_hinter.firsts.remove(&ticket);
        });
    }

    fn first_of(&self, stream: StreamIndex) -> Option<(Ticket, HinterId, Standing)> {
        let hints = self.of_streams.get(&stream)?;
        Some((hints.first_ticket()?, hints.hinter, hints.standing))
    }

    /// Changes `hinter` and updates its entry among the hinters that have few.
    fn change_hinter(&mut self, hinter: HinterId, change: impl FnOnce(&mut OfHinter)) {
        let of_hinter = self.of_hinters.entry(hinter).or_default();
        if let Some((before, _)) = of_hinter.first() {
            self.of_few.remove(&before);
        }
        change(of_hinter);
        if let Some((ticket, stream)) = of_hinter.first() {
            self.of_few.insert(ticket, stream);
        }
    }

    /// The first hint of each stream that has some.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn firsts(&self) -> impl Iterator<Item = (Ticket, StreamIndex)> {
        self.of_streams.iter().filter_map(|(&at, hints)| Some((hints.first_ticket()?, at)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::streams::shares::Shares;

    proptest! {
        /// Between hints, some tickets and numbers are skipped.
        #[test]
        fn they_are_those_of_a_queue(events in prop::collection::vec(
            prop::option::weighted(0.7, (0u64..2, 0u64..2)), 1..400
        )) {
            let (mut unresolved, mut model) = (OfStream::new(HinterId(0), Shares::new(1).standing(0, 0)), VecDeque::new());
            let (mut ticket, mut number) = (0, 0);
            for event in events {
                match event {
                    Some((tickets, numbers)) => {
                        (ticket, number) = (ticket + 1 + tickets, number + 1 + numbers);
                        unresolved.push(Ticket(ticket), number);
                        model.push_back((Ticket(ticket), number));
                    }
                    None => {
                        let first = model.pop_front().map(|(_, number)| number);
                        prop_assert_eq!(unresolved.pop(), first);
                    }
                }
                prop_assert_eq!(unresolved.len, model.len());
                let first = model.front().map(|&(ticket, _)| ticket);
                prop_assert_eq!(unresolved.first_ticket(), first);
            }
        }
    }

    const STREAMS: usize = 6;

    /// Events of the test. Streams with odd numbers belong to one hinter, the others to another.
    #[derive(Clone, Debug)]
    enum Event {
        Push(usize),
        Pop(usize),
        /// A stream has this many looked-up hints and this balance.
        Has(usize, u64, i64),
        Forget(usize),
        /// Asks for the next stream when this many lookups are taken.
        Ask(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        let stream = || 0..STREAMS;
        let has = (stream(), 0u64..50, -40i64..10);
        prop_oneof![
            4 => stream().prop_map(Event::Push),
            2 => stream().prop_map(Event::Pop),
            3 => has.prop_map(|(at, has, balance)| Event::Has(at, has, balance)),
            1 => stream().prop_map(Event::Forget),
            6 => (0usize..128).prop_map(Event::Ask),
        ]
    }

    proptest! {
        #[test]
        fn the_earliest_hint_is_found_of_those_who_may(
            events in prop::collection::vec(event(), 1..300)
        ) {
            let shares = Shares::new(128);
            let mut unresolved = Unresolved::default();
            let mut model: [VecDeque<(Ticket, u64)>; STREAMS] = Default::default();
            let mut own = [(0, 0); STREAMS];
            let whose = |own: &[(u64, i64); STREAMS], at: usize| {
                let of_hinter = own.iter().skip(at % 2).step_by(2).map(|&(has, _)| has).sum();
                HinterStanding {
                    hinter: HinterId(at as u64 % 2),
                    standing: shares.standing(own[at].0, own[at].1),
                    hinter_has_few: shares.is_few(of_hinter),
                }
            };
            for (number, event) in (0..).zip(events) {
                match event {
                    Event::Push(at) => {
                        let (stream, ticket) = (StreamIndex(at as u32), Ticket(number));
                        unresolved.push(stream, ticket, number, whose(&own, at));
                        model[at].push_back((ticket, number));
                    }
                    Event::Pop(at) => {
                        let first = model[at].pop_front().map(|(_, number)| number);
                        prop_assert_eq!(unresolved.pop(StreamIndex(at as u32)), first);
                    }
                    Event::Has(at, has, balance) => {
                        own[at] = (has, balance);
                        let now = whose(&own, at);
                        unresolved.set_standing(StreamIndex(at as u32), now.standing);
                        unresolved.set_few(now.hinter, now.hinter_has_few);
                    }
                    Event::Forget(at) => {
                        unresolved.forget(StreamIndex(at as u32));
                        model[at].clear();
                    }
                    Event::Ask(taken) => {
                        let left = shares.left(taken, true).expect("some are left");
                        let may = |at: &usize| {
                            let now = whose(&own, *at);
                            left.allows(now.standing, now.hinter_has_few)
                        };
                        let firsts = (0..STREAMS).filter(may).filter_map(|at| {
                            model[at].front().map(|&(ticket, _)| (ticket, StreamIndex(at as u32)))
                        });
                        let first = firsts.min().map(|(_, stream)| stream);
                        prop_assert_eq!(unresolved.first(left), first);
                    }
                }
                prop_assert_eq!(unresolved.len(), model.iter().map(VecDeque::len).sum::<usize>());
                for (at, hints) in (0..).zip(&model) {
                    prop_assert_eq!(unresolved.len_of(StreamIndex(at)), hints.len());
                }
            }
            (0..STREAMS as u32).for_each(|at| unresolved.forget(StreamIndex(at)));
            prop_assert!(unresolved.of_hinters.is_empty() && unresolved.of_few.is_empty());
            prop_assert!(unresolved.may.is_empty() && unresolved.have_none.is_empty());
        }
    }

    #[test]
    fn who_has_few_still_has_when_its_first_is_taken() {
        let (mut unresolved, stream) = (Unresolved::default(), StreamIndex(3));
        let of = HinterStanding {
            hinter: HinterId(1),
            standing: Standing::OF_NONE,
            hinter_has_few: true,
        };
        (0..2).for_each(|number| unresolved.push(stream, Ticket(number), number, of));
        assert_eq!(unresolved.pop(stream), Some(0));
        assert_eq!(unresolved.first(Left::LessOfTheLast), Some(stream));
    }

    #[test]
    fn many_in_a_row_are_one_run() {
        let mut unresolved = OfStream::new(HinterId(0), Shares::new(1).standing(0, 0));
        (0..1000).for_each(|hint| unresolved.push(Ticket(7 + hint), hint));
        assert_eq!((unresolved.runs.len(), unresolved.len), (1, 1000));
    }
}
