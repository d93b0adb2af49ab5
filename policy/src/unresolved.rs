//! Hints whose names are to be looked up at one device.
//!
//! * **A. Order.** Of the streams that may have one more looked up (the [`Rule`]), the one with the earliest hint is next.
//!   They are asked in that order, so that the first one who may is found without asking those behind it.
//! * **B. Nobody.** Where none may, that is remembered with the rule: then only those of whom something has changed are
//!   asked, whatever happens, and the others not before one of them may.
//!
//! Programs mostly disclose many names in a row. A run of hints that nobody's name has come between takes 24 bytes, however
//! long it is.
//!
//! Cost: O(log n) for a hint to come or go, with n streams that have some; O(n) at most to find the next one.

use std::collections::{BTreeMap, VecDeque};

use crate::blocks::StreamIndex;
use crate::room::shrink_queue;

/// Place of a hint in the order of arrival, over all streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Ticket(pub(crate) u64);

/// Hints with tickets, and numbers in their stream, that follow one another.
#[derive(Clone, Copy, Debug)]
struct Run {
    ticket: u64,
    number: u64,
    hints: u64,
}

/// Those of one stream, in their order.
#[derive(Debug, Default)]
struct OfStream {
    runs: VecDeque<Run>,
    len: usize,
}

impl OfStream {
    /// One more, later than all before it.
    fn push(&mut self, Ticket(ticket): Ticket, number: u64) {
        self.len += 1;
        match self.runs.back_mut() {
            Some(run) if (run.ticket + run.hints, run.number + run.hints) == (ticket, number) => {
                run.hints += 1;
            }
            _ => self.runs.push_back(Run { ticket, number, hints: 1 }),
        }
    }

    /// The ticket of the first.
    fn first_ticket(&self) -> Option<Ticket> {
        self.runs.front().map(|run| Ticket(run.ticket))
    }

    /// Takes the first, and tells its number.
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

/// A stream that has lookups left has this share of a device's, as a divisor, as long as it has shown nothing; and at least.
const FIRST_DIVISOR: usize = 4;
const FIRST_MIN: usize = 32;

/// The last ones are for those who have few yet, of which hinters may have this part, as a divisor.
const KEPT_DIVISOR: usize = 8;
const FEW_DIVISOR: usize = 4;

/// Who may have one more name looked up. The last lookups of a device are for those who have few yet: who shows nothing keeps
/// its own for long. Half of them are for streams that have none, all of them for hinters that have few.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rule {
    left: Left,
    /// What a stream may have that has shown nothing, and from how many on a hinter has not few.
    first: u64,
    few: u64,
}

/// How much a device has left.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Left {
    Enough,
    HalfOfTheLast,
    LessOfTheLast,
}

/// What a stream has that was looked up, or is being, and is not past.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Has {
    pub(crate) of_stream: u64,
    /// What its reads have earned it, less what was fetched for nothing.
    pub(crate) balance: i64,
    pub(crate) of_hinter: u64,
}

impl Rule {
    /// `taken` of the `most` that a device may have are.
    pub(crate) fn new(taken: usize, most: usize, has_many_streams: bool) -> Self {
        let kept = if has_many_streams { most / KEPT_DIVISOR } else { 0 };
        let left = match taken {
            taken if taken < most - kept => Left::Enough,
            taken if taken < most - kept / 2 => Left::HalfOfTheLast,
            _ => Left::LessOfTheLast,
        };
        let first = (most / FIRST_DIVISOR).max(FIRST_MIN).min(most) as u64;
        Rule { left, first, few: (kept / FEW_DIVISOR).max(1) as u64 }
    }

    /// Whether a stream may have one more.
    pub(crate) fn allows(&self, has: Has) -> bool {
        match self.left {
            Left::Enough => has.of_stream < self.first.saturating_add_signed(has.balance).max(1),
            Left::HalfOfTheLast => has.of_stream == 0 || has.of_hinter < self.few,
            Left::LessOfTheLast => has.of_hinter < self.few,
        }
    }

    /// Whether all streams of a hinter may that has so many now, and might not because of those it had before.
    pub(crate) fn comes_to_allow(&self, before: u64, now: u64) -> bool {
        self.left != Left::Enough && before >= self.few && now < self.few
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Unresolved {
    of_streams: BTreeMap<StreamIndex, OfStream>,
    /// Who has them, by the first of each.
    firsts: BTreeMap<Ticket, StreamIndex>,
    len: usize,
    /// B: by this rule none of them may have one more looked up.
    nobody_by: Option<Rule>,
    /// How many streams were asked.
    #[cfg(test)]
    pub(crate) asked: std::cell::Cell<u64>,
}

impl Unresolved {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// How many of `stream` there are.
    pub(crate) fn len_of(&self, stream: StreamIndex) -> usize {
        self.of_streams.get(&stream).map_or(0, |hints| hints.len)
    }

    /// A hint of `stream`, with this number there, later than all before it. Something of the stream has changed, and is to
    /// be [told](Self::changed).
    pub(crate) fn push(&mut self, stream: StreamIndex, ticket: Ticket, number: u64) {
        let hints = self.of_streams.entry(stream).or_default();
        if hints.len == 0 {
            self.firsts.insert(ticket, stream);
        }
        hints.push(ticket, number);
        self.len += 1;
    }

    /// Takes the first of `stream`, and tells its number.
    pub(crate) fn pop(&mut self, stream: StreamIndex) -> Option<u64> {
        let hints = self.of_streams.get_mut(&stream)?;
        self.firsts.remove(&hints.first_ticket()?);
        let number = hints.pop()?;
        self.len -= 1;
        match hints.first_ticket() {
            Some(next) => drop(self.firsts.insert(next, stream)),
            None => drop(self.of_streams.remove(&stream)),
        }
        Some(number)
    }

    /// Forgets those of `stream`.
    pub(crate) fn forget(&mut self, stream: StreamIndex) {
        if let Some(hints) = self.of_streams.remove(&stream) {
            self.len -= hints.len;
            self.firsts.remove(&hints.first_ticket().expect("it has some"));
        }
    }

    /// A: the stream that has the first one of those who may have it looked up by `rule`. What `has` tells is what was so when it was
    /// [told](Self::changed) last.
    pub(crate) fn first(
        &mut self,
        rule: Rule,
        has: impl Fn(StreamIndex) -> Has,
    ) -> Option<StreamIndex> {
        if self.nobody_by == Some(rule) {
            debug_assert!(
                !self.firsts.values().any(|&stream| rule.allows(has(stream))),
                "{rule:?}"
            );
            return None;
        }
        let first = self.firsts.values().copied().find(|&stream| {
            #[cfg(test)]
            self.asked.set(self.asked.get() + 1);
            rule.allows(has(stream))
        });
        self.nobody_by = first.is_none().then_some(rule);
        first
    }

    /// B: something of `stream` has changed, and its hinter had `before` what `has` tells now.
    pub(crate) fn changed(&mut self, stream: StreamIndex, has: Has, before: u64) {
        let Some(rule) = self.nobody_by else { return };
        let may = || rule.allows(has) && self.of_streams.contains_key(&stream);
        if rule.comes_to_allow(before, has.of_hinter) || may() {
            self.nobody_by = None;
        }
    }

    /// B: a stream of a hinter who had `before`, and has `now`, is no more.
    pub(crate) fn closed(&mut self, before: u64, now: u64) {
        self.nobody_by.take_if(|rule| rule.comes_to_allow(before, now));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        /// Each hint leaves out so many tickets and numbers before it.
        #[test]
        fn they_are_those_of_a_queue(events in prop::collection::vec(
            prop::option::weighted(0.7, (0u64..2, 0u64..2)), 1..400
        )) {
            let (mut unresolved, mut model) = (OfStream::default(), VecDeque::new());
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

    /// What may become of streams: the odd ones are one hinter's, the even ones another's.
    #[derive(Clone, Debug)]
    enum Event {
        Push(usize),
        Pop(usize),
        /// A stream has so many, and so much to its credit, from now on.
        Has(usize, u64, i64),
        Forget(usize),
        /// It is cancelled, and no more.
        Close(usize),
        /// It is asked who may, where so many lookups are taken.
        Ask(usize),
    }

    fn event() -> impl Strategy<Value = Event> {
        let stream = || 0..STREAMS;
        prop_oneof![
            4 => stream().prop_map(Event::Push),
            2 => stream().prop_map(Event::Pop),
            3 => (stream(), 0u64..50, -40i64..10).prop_map(|(at, has, due)| Event::Has(at, has, due)),
            1 => stream().prop_map(Event::Forget),
            1 => stream().prop_map(Event::Close),
            6 => (0usize..128).prop_map(Event::Ask),
        ]
    }

    proptest! {
        #[test]
        fn the_earliest_hint_is_found_of_those_who_may(
            events in prop::collection::vec(event(), 1..300)
        ) {
            let mut unresolved = Unresolved::default();
            let mut model: [VecDeque<(Ticket, u64)>; STREAMS] = Default::default();
            let mut own = [(0, 0); STREAMS];
            let has_of = |own: &[(u64, i64); STREAMS], at: usize| {
                let (of_stream, balance) = own[at];
                let of_hinter = own.iter().skip(at % 2).step_by(2).map(|&(has, _)| has).sum();
                Has { of_stream, balance, of_hinter }
            };
            for (number, event) in (0..).zip(events) {
                match event {
                    Event::Push(at) => {
                        unresolved.push(StreamIndex(at as u32), Ticket(number), number);
                        model[at].push_back((Ticket(number), number));
                        let has = has_of(&own, at);
                        unresolved.changed(StreamIndex(at as u32), has, has.of_hinter);
                    }
                    Event::Pop(at) => {
                        let first = model[at].pop_front().map(|(_, number)| number);
                        prop_assert_eq!(unresolved.pop(StreamIndex(at as u32)), first);
                    }
                    Event::Has(at, has, due) => {
                        let before = has_of(&own, at).of_hinter;
                        own[at] = (has, due);
                        let now = has_of(&own, at);
                        unresolved.changed(StreamIndex(at as u32), now, before);
                    }
                    Event::Forget(at) => {
                        unresolved.forget(StreamIndex(at as u32));
                        model[at].clear();
                    }
                    Event::Close(at) => {
                        unresolved.forget(StreamIndex(at as u32));
                        model[at].clear();
                        let before = has_of(&own, at).of_hinter;
                        own[at] = (0, 0);
                        unresolved.closed(before, has_of(&own, at).of_hinter);
                    }
                    Event::Ask(taken) => {
                        let rule = Rule::new(taken, 128, true);
                        let may = (0..STREAMS).filter(|&at| rule.allows(has_of(&own, at)));
                        let firsts = may.filter_map(|at| Some((model[at].front()?.0, at)));
                        let first = firsts.min().map(|(_, at)| StreamIndex(at as u32));
                        let found = unresolved.first(rule, |StreamIndex(at)| has_of(&own, at as usize));
                        prop_assert_eq!(found, first);
                    }
                }
                prop_assert_eq!(unresolved.len(), model.iter().map(VecDeque::len).sum::<usize>());
                for (at, hints) in (0..).zip(&model) {
                    prop_assert_eq!(unresolved.len_of(StreamIndex(at)), hints.len());
                }
            }
        }
    }

    #[test]
    fn many_in_a_row_are_one_run() {
        let mut unresolved = OfStream::default();
        (0..1000).for_each(|hint| unresolved.push(Ticket(7 + hint), hint));
        assert_eq!((unresolved.runs.len(), unresolved.len), (1, 1000));
    }
}
