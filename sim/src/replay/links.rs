//! The links between the readers of a recording: which created which, and which waited for which.
//!
//! * A reader that another one created begins at the creator's [fork](Deed::Fork).
//! * A [wait](Deed::Wait) for the end of a known child ends with the child's last act.
//! * A read from a pipe waits for the write that contributed its last byte. If that write was not recorded, it
//!   waits for the last write that began before the read's end. If the write began before the read, the read's
//!   time is the program's own. A write waits for the last read of its pipe that began during the write, if the
//!   write took [long enough](FULL_PIPE_MIN).
//! * Any other wait ends with the act of another reader that was the last to begin before the wait's end. If
//!   that act had ended by then, the wait ends at its end, otherwise at its beginning. If no other reader began
//!   an act during the wait, it was for a timer or for a process outside the recording, and is the program's
//!   own time. The same holds for a wait for a child that is not known.
//!
//! **No reader waits for ever.** Each act has two events: it begins, after all earlier acts of its program, and
//! it ends. Let *n* be the number of an act in the recording. Let *E* be the number of the first act that began
//! after act *n* had ended, but at most the number of the reader's next act. All events are ordered by a
//! number: the beginning of act *n* has the number *n*, and its end has *E*. Within one number, ends come
//! before the beginning, ordered by their recorded times, and at equal times the later act first. Every event
//! depends only on events before it in this order:
//! * a beginning depends on the end of the reader's previous act, whose *E* is at most *n*, or on a fork with a
//!   lower number;
//! * an end depends on its own beginning (*n* < *E*), and on the event that is waited for: a beginning with a
//!   number below *E*, or an end that comes before it in this order ([`Done`]). Nothing else is waited for.
//!
//! So there is no circular wait, whatever the recorded times.

use std::cmp::Reverse;
use std::collections::{HashMap, HashSet};

use foretell_policy::{Nanos, ReaderId};

use super::activity::{Act, Deed};
use crate::machine::program::MarkId;
use crate::trace::recording::Whom;

/// Least duration of a write that found its pipe full. Shorter ones had room, even if the pipe was read
/// meanwhile.
const FULL_PIPE_MIN: Nanos = Nanos(1_000_000);

/// A reader of a recording.
#[derive(Debug)]
pub(super) struct Reader {
    pub(super) id: ReaderId,
    /// The numbers of its acts, in order; not empty.
    pub(super) own: Vec<usize>,
    /// The acts whose reads it discloses, if these are not just its own. The first reader of a family discloses
    /// for all its descendants, and those disclose nothing.
    told: Option<Vec<usize>>,
    /// Recorded time of its first act. A reader that another one created has the time of the reader from which all of them
    /// descend.
    pub(super) start: Nanos,
}

impl Reader {
    /// The acts whose reads it discloses.
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

/// The links between readers. Acts are identified by their numbers.
#[derive(Debug, Default)]
pub(super) struct Links {
    /// For the first act of each created reader, the fork that created it.
    forks: HashMap<usize, usize>,
    /// For each waiting act, the event that it waits for.
    awaits: HashMap<usize, MarkId>,
    /// Waiting acts whose time is nevertheless the program's own.
    short: HashSet<usize>,
    /// All events that are waited for.
    awaited: HashSet<MarkId>,
}

/// The end of an act, ordered as in the [module](self).
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Done {
    before: usize,
    at: Nanos,
    act: Reverse<usize>,
}

impl Links {
    /// The links between `readers`, which did `acts`. Sets the starts of created readers to those of their
    /// families.
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
            // No wait is circular: see the module.
            let either = |other: usize| {
                if done(other) < end { end_of(other) } else { beginning(other) }
            };
            // The last act before the end. Between two acts of a reader, there are only others' acts.
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
        // Creators come before their children, so the first reader of each family is known.
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

    /// Whether any reader was created by another.
    pub(super) fn has_forks(&self) -> bool {
        !self.forks.is_empty()
    }

    /// The event that a reader waits for before this act, the first of its life.
    pub(super) fn fork_of(&self, act: usize) -> Option<MarkId> {
        self.forks.get(&act).map(|&fork| beginning(fork))
    }

    /// The event that this act waits for.
    pub(super) fn awaited_by(&self, act: usize) -> Option<MarkId> {
        self.awaits.get(&act).copied()
    }

    /// Whether the act's time is only waiting.
    pub(super) fn is_wait(&self, act: usize) -> bool {
        self.awaits.contains_key(&act) && !self.short.contains(&act)
    }

    /// The mark of this act's beginning, if another act waits for it.
    pub(super) fn begun(&self, act: usize) -> Option<MarkId> {
        Some(beginning(act)).filter(|mark| self.awaited.contains(mark))
    }

    /// The mark of this act's end, if another act waits for it.
    pub(super) fn done(&self, act: usize) -> Option<MarkId> {
        Some(end_of(act)).filter(|mark| self.awaited.contains(mark))
    }
}

/// The acts at one end of a pipe.
#[derive(Debug, Default)]
struct End {
    acts: Vec<usize>,
    /// For each of `acts`, the total of bytes up to and including it.
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

    /// The first act at which the total reaches `bytes`.
    fn first_to(&self, bytes: u64) -> Option<usize> {
        self.acts.get(self.bytes.partition_point(|&all| all < bytes)).copied()
    }
}

/// Ends of pipes, by the pipes' numbers.
type Pipes = HashMap<u64, End>;

/// The end of a pipe without acts.
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
