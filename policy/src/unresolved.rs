//! Hints of one stream whose names are to be looked up at one device, in their order.
//!
//! Programs mostly disclose many names in a row. A run of hints that nobody's name has come between takes 24 bytes, however
//! long it is.

use std::collections::VecDeque;

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

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Unresolved {
    runs: VecDeque<Run>,
    len: usize,
}

impl Unresolved {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    /// One more, later than all before it.
    pub(crate) fn push(&mut self, Ticket(ticket): Ticket, number: u64) {
        self.len += 1;
        match self.runs.back_mut() {
            Some(run) if (run.ticket + run.hints, run.number + run.hints) == (ticket, number) => {
                run.hints += 1;
            }
            _ => self.runs.push_back(Run { ticket, number, hints: 1 }),
        }
    }

    /// The ticket of the first.
    pub(crate) fn first_ticket(&self) -> Option<Ticket> {
        self.runs.front().map(|run| Ticket(run.ticket))
    }

    /// Takes the first, and tells its number.
    pub(crate) fn pop(&mut self) -> Option<u64> {
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
            let (mut unresolved, mut model) = (Unresolved::default(), VecDeque::new());
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
                prop_assert_eq!(unresolved.len(), model.len());
                let first = model.front().map(|&(ticket, _)| ticket);
                prop_assert_eq!(unresolved.first_ticket(), first);
            }
        }
    }

    #[test]
    fn many_in_a_row_are_one_run() {
        let mut unresolved = Unresolved::default();
        (0..1000).for_each(|hint| unresolved.push(Ticket(7 + hint), hint));
        assert_eq!((unresolved.runs.len(), unresolved.len()), (1, 1000));
    }
}
