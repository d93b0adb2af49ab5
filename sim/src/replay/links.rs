//! Who began by whom, and who waited for whom: what ties the programs of a recording together.
//!
//! * A reader that was made by another one begins when that has come to the [fork](Deed::Fork).
//! * A [wait](Deed::Wait) for the end of a child that is known ends when the child has done its last act.
//! * What is read from a pipe must have been written: a read waits for the write to it that has the read's last byte, and
//!   where that is not known (not all that was written is recorded) for the last one that began before the
//!   read's end. Its time is the program's own if the write began before the read. A write waits for a read of its pipe
//!   if one began within it, the last of those, and it took [as long as that](FULL_PIPE_MIN).
//! * Any other wait ends with that act of another reader which was the last to begin before the wait's end: when it has
//!   been done, if it had been by then, and otherwise when it begins. If nobody else began anything in the time, the
//!   wait was for a timer or for somebody outside the recording, and is the program's own time. So is one for a child
//!   of which this cannot be told.
//!
//! **Nobody waits for ever.** Two things happen to each act: it begins, when the program has done all before it, and it
//! is done. Let *n* be the number of an act in the recording, and *E* the number of the first act that began after it
//! had been done, and no later one than the reader's next. What happens is put in an order: all that belongs to a lower
//! number comes first, the beginning of act *n* belonging to *n* and its end to *E*; of what belongs to one number the ends
//! come first, by their recorded times, and of those of one time that of the later act. What anything needs has come
//! before it in this order:
//! * a beginning needs the end of the reader's act before, whose *E* is *n* at most, or a fork of lower number;
//! * an end needs its own beginning (*n* < *E*), and that for which is waited: a beginning of lower number than *E*, or
//!   an end that comes before it in this very order ([`Done`]); nothing else is waited for.
//!
//! So there is no circle, whatever the times of the recording are.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use foretell_policy::{Nanos, ReaderId};

use super::activity::{Act, Deed};
use crate::machine::program::MarkId;
use crate::trace::recording::Whom;

/// How long a write to a full pipe takes at least: shorter ones had room, whoever read meanwhile.
const FULL_PIPE_MIN: Nanos = Nanos(1_000_000);

/// A reader of a recording.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) id: ReaderId,
    /// The numbers of its acts, in their order; not empty.
    pub(super) own: Vec<usize>,
    /// The acts of which it discloses the reads: its own and those of all whom it and they made, unless it was made
    /// itself. `None`: its own.
    told: Option<Vec<usize>>,
    /// When it began, if nobody made it; otherwise when the first of those who did began, before which it cannot be.
    pub(super) start: Nanos,
}

impl Reader {
    /// See [`told`](Self::told).
    pub(super) fn told(&self) -> &[usize] {
        self.told.as_deref().unwrap_or(&self.own)
    }
}

/// All readers, in the order of their first acts.
pub(super) fn readers(acts: &[Act]) -> Vec<Reader> {
    let mut readers: Vec<Reader> = Vec::new();
    let mut places = HashMap::new();
    for (number, act) in acts.iter().enumerate() {
        let place = *places.entry(act.reader).or_insert(readers.len());
        if place == readers.len() {
            readers.push(Reader { id: act.reader, own: Vec::new(), told: None, start: act.began });
        }
        readers[place].own.push(number);
    }
    readers
}

/// What ties readers together; acts are meant by their numbers.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// The forks by which readers came to do these acts, their first ones.
    forks: HashMap<usize, usize>,
    /// What acts wait for.
    awaits: HashMap<usize, MarkId>,
    /// Those of them whose time is the program's own nevertheless.
    short: HashSet<usize>,
    /// All that is waited for.
    awaited: HashSet<MarkId>,
}

/// When an act is done, in the order of the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Done {
    before: usize,
    at: Nanos,
    act: Reverse<usize>,
}

impl Links {
    /// Those of `readers`, who did `acts`; their starts become those of who made them.
    pub(super) fn new(acts: &[Act], readers: &mut [Reader]) -> Self {
        let mut links = Links::default();
        let ties = |act: &Act| matches!(act.deed, Deed::Fork { .. } | Deed::Wait(_));
        if !acts.iter().any(ties) {
            return links;
        }
        let mut next = vec![acts.len(); acts.len()];
        for reader in &*readers {
            reader.own.iter().zip(&reader.own[1..]).for_each(|(&act, &after)| next[act] = after);
        }
        let done = |number: usize| {
            let (act, next) = (&acts[number], next[number]);
            let at = Nanos(act.began.0.saturating_add(act.took.0));
            let at = acts.get(next).map_or(at, |next| at.min(next.began));
            let before = acts.partition_point(|act| act.began <= at).clamp(number + 1, next);
            Done { before, at, act: Reverse(number) }
        };
        let (mut writes, mut reads): (Pipes, Pipes) = Default::default();
        for (number, act) in acts.iter().enumerate() {
            match act.deed {
                Deed::Wait(Whom::Writer { pipe, bytes }) => {
                    reads.entry(pipe).or_default().push(number, bytes);
                }
                Deed::Wait(Whom::Reader { pipe, bytes }) => {
                    writes.entry(pipe).or_default().push(number, bytes);
                }
                _ => {}
            }
        }
        let own: HashMap<ReaderId, &[usize]> =
            readers.iter().map(|reader| (reader.id, &reader.own[..])).collect();
        let own = |reader: ReaderId| own.get(&reader).copied().unwrap_or_default();
        for (number, act) in acts.iter().enumerate() {
            let end = done(number);
            // Nobody is waited for in vain: see the module.
            let either = |other: usize| {
                if done(other) < end { end_of(other) } else { beginning(other) }
            };
            // The last before the end. Between two acts of a reader there are others' only.
            let last_of = |own: &[usize]| {
                own[..own.partition_point(|&other| other < end.before)].last().copied()
            };
            let meanwhile = |other: &usize| *other > number;
            let lasted = act.took > Nanos::ZERO;
            let awaited = match act.deed {
                Deed::Fork { child, waits } => {
                    let own = own(child);
                    if let Some(&first) = own.get(own.partition_point(|&act| act <= number)) {
                        links.forks.insert(first, number);
                        links.awaited.insert(beginning(number));
                    }
                    last_of(own).filter(meanwhile).filter(|_| waits).map(either)
                }
                Deed::Wait(Whom::Writer { pipe, .. }) => {
                    let writes = of_pipe(&writes, pipe);
                    let read_bytes = of_pipe(&reads, pipe).bytes_after(number);
                    let last = last_of(&writes.acts);
                    let write =
                        last.map(|last| writes.first_to(read_bytes).unwrap_or(last).min(last));
                    if write.is_some_and(|write| write < number) {
                        links.short.insert(number);
                    }
                    write.map(either)
                }
                Deed::Wait(Whom::Reader { pipe, .. }) => {
                    let read = last_of(&of_pipe(&reads, pipe).acts).filter(meanwhile);
                    read.filter(|_| act.took >= FULL_PIPE_MIN).map(either)
                }
                Deed::Wait(whom) => {
                    let child = match whom {
                        Whom::Child(child) if child != act.reader => Some(child),
                        _ => None,
                    };
                    let ended = child.and_then(|child| last_of(own(child)));
                    let ended = ended.filter(|&last| done(last) < end).map(end_of);
                    let last = Some(end.before - 1).filter(meanwhile).filter(|_| lasted);
                    ended.or_else(|| last.map(either))
                }
                _ => None,
            };
            if let Some(mark) = awaited {
                links.awaits.insert(number, mark);
                links.awaited.insert(mark);
            }
        }
        // Whoever made others came before them: the first of a family is known to all of it.
        let mut firsts: HashMap<ReaderId, usize> = HashMap::new();
        for place in 0..readers.len() {
            let first = match links.forks.get(&readers[place].own[0]) {
                Some(&fork) => firsts[&acts[fork].reader],
                None => place,
            };
            firsts.insert(readers[place].id, first);
            if first != place {
                readers[place].start = readers[first].start;
                readers[place].told = Some(Vec::new());
                let (before, after) = readers.split_at_mut(place);
                let first = &mut before[first];
                let told = first.told.get_or_insert_with(|| first.own.clone());
                told.extend(&after[0].own);
            }
        }
        for told in readers.iter_mut().filter_map(|reader| reader.told.as_mut()) {
            told.sort_unstable();
        }
        links
    }

    /// Whether any reader was made by another.
    pub(super) fn has_forks(&self) -> bool {
        !self.forks.is_empty()
    }

    /// What the reader must wait for before it does this act, the first of its life.
    pub(super) fn fork_of(&self, act: usize) -> Option<MarkId> {
        self.forks.get(&act).map(|&fork| beginning(fork))
    }

    /// What this act waits for.
    pub(super) fn awaited_by(&self, act: usize) -> Option<MarkId> {
        self.awaits.get(&act).copied()
    }

    /// Whether its time is but that of waiting.
    pub(super) fn is_wait(&self, act: usize) -> bool {
        self.awaits.contains_key(&act) && !self.short.contains(&act)
    }

    /// What others wait for of this act's beginning.
    pub(super) fn begun(&self, act: usize) -> Option<MarkId> {
        Some(beginning(act)).filter(|mark| self.awaited.contains(mark))
    }

    /// What others wait for of this act's end.
    pub(super) fn done(&self, act: usize) -> Option<MarkId> {
        Some(end_of(act)).filter(|mark| self.awaited.contains(mark))
    }
}

/// Acts at one end of a pipe.
#[derive(Debug, Default)]
struct End {
    acts: Vec<usize>,
    /// After each of them, the bytes of all till then.
    bytes: Vec<u64>,
}

impl End {
    fn push(&mut self, act: usize, bytes: u64) {
        let before = self.bytes.last().copied().unwrap_or(0);
        self.acts.push(act);
        self.bytes.push(before.saturating_add(bytes));
    }

    /// The bytes of all acts up to and including this one.
    fn bytes_after(&self, act: usize) -> u64 {
        self.acts.binary_search(&act).map_or(0, |at| self.bytes[at])
    }

    /// The first act with which there were so many bytes.
    fn first_to(&self, bytes: u64) -> Option<usize> {
        self.acts.get(self.bytes.partition_point(|&all| all < bytes)).copied()
    }
}

/// By the numbers of pipes.
type Pipes = HashMap<u64, End>;

/// Nobody's end.
static NO_END: End = End { acts: Vec::new(), bytes: Vec::new() };

fn of_pipe(pipes: &Pipes, pipe: u64) -> &End {
    pipes.get(&pipe).unwrap_or(&NO_END)
}

fn beginning(act: usize) -> MarkId {
    MarkId(2 * act as u64)
}

fn end_of(act: usize) -> MarkId {
    MarkId(2 * act as u64 + 1)
}
