//! What the observer sees of mapped files: reads for the policy, and an order that goes on as a hint.
//!
//! The rest of a mapping that is touched in order is disclosed on a stream of its own, of a hinter of its own for each process:
//! if the guess is wrong, the hints that the process has given itself stay trusted. The policy bounds what is fetched ahead and
//! not read. If others have disclosed the file, it is left to them.

use std::collections::{HashMap, VecDeque};
use std::ops::Range;
use std::path::PathBuf;

use foretell_policy::{Extent, FileId, HinterId, Nanos, Order, ReaderId, Segment, StreamId};

use super::Session;
use super::waiting::Expected;
use crate::lineage::ProcessId;
use crate::observer::{Observation, Observer};
use crate::reads::Reads;
use crate::source::{Certainty, Disclosure};
use crate::sources::Origin;

/// Hinter numbers of mappings begin here, one for each process.
const FIRST_MAPPING: u64 = 1 << 48;

/// Blocks that a turn takes in: 64 MiB, some 3 ms.
const BLOCKS_MAX: u64 = 8192;

/// Streams of mappings at a time.
const STREAMS_MAX: usize = 256;

/// See the [module](self).
pub(super) struct Observed {
    pub(super) observer: Observer,
    /// Streams of mappings that are touched in order, with their files.
    streams: HashMap<(ProcessId, u64), (StreamId, FileId)>,
    /// What is left for the next turn.
    waiting: VecDeque<Observation>,
    /// Times that a process was seen to have waited for a mapped file.
    waits: u64,
}

impl Observed {
    pub(super) fn new(observer: Observer) -> Self {
        Observed { observer, streams: HashMap::new(), waiting: VecDeque::new(), waits: 0 }
    }

    /// Times that a process was seen to have waited for a mapped file.
    pub(super) fn waits(&self) -> u64 {
        self.waits
    }

    /// Whether something is left for the next turn.
    pub(super) fn is_behind(&self) -> bool {
        !self.waiting.is_empty()
    }
}

impl Session {
    /// Takes in what was seen, as much as a turn may.
    pub(super) fn take_observed(&mut self) {
        self.observed.waiting.extend(self.observed.observer.take());
        let mut told = 0;
        while told < BLOCKS_MAX
            && let Some(observation) = self.observed.waiting.pop_front()
        {
            match observation {
                Observation::Touched { process, file, path, ranges, waited } => {
                    let (now, of) = (self.now(), ReaderId(process));
                    let mut reads = Reads::new(&mut self.policy, now, of);
                    self.observed.waits += u64::from(waited.is_some());
                    let mut waited = waited.map(|waited| Nanos(waited.as_nanos() as u64));
                    let seen = (&ranges[..], waited);
                    self.accesses.mapped(of, (file, &path), seen, (&self.mounts, now));
                    for range in ranges {
                        reads.take_pages(file, range, waited.take());
                    }
                    reads.tell();
                    told += reads.told_blocks();
                }
                Observation::Begins { .. } | Observation::Needs { .. } if !self.observes => {}
                Observation::Begins { process, mapping, file, path, range } => {
                    self.begin_order((process, mapping), file, path, range);
                }
                Observation::Ends { process, mapping } => self.end_order((process, mapping)),
                Observation::Needs { process, needed } => {
                    // The advice of a process that has ended is of no use.
                    let of = ReaderId(process);
                    if self.programs.iter().any(|program| program.reader() == of) {
                        self.take_needed(process, needed);
                    }
                }
            }
        }
    }

    fn begin_order(
        &mut self,
        of: (ProcessId, u64),
        file: FileId,
        path: PathBuf,
        range: Range<u64>,
    ) {
        let hinter = HinterId(FIRST_MAPPING + of.0);
        let is_inside = || self.programs.iter().any(|program| program.reader() == ReaderId(of.0));
        let is_there = self.sighted.has(of.0) || is_inside();
        let streams = &self.observed.streams;
        let is_ours = streams.values().any(|&(_, other)| other == file);
        if !is_there
            || range.is_empty()
            || streams.len() >= STREAMS_MAX
            || streams.contains_key(&of)
            || (self.policy.wants(file) && !is_ours)
            || !self.has_room(hinter)
        {
            return;
        }
        let stream = self.policy.open_stream(self.now(), hinter, Some(ReaderId(of.0)));
        self.policy.set_source(stream, Origin::Mapped.id());
        self.streams += 1;
        self.observed.streams.insert(of, (stream, file));
        let length_bytes = range.end - range.start;
        let rest = Segment { offset_bytes: range.start, length_bytes };
        let extent = Extent::Segments([rest].into());
        let (order, certainty) = (Order::Given, Certainty::MaybeFile);
        let disclosure = Disclosure { path, extent, repeats: 1, order, certainty };
        self.disclose_file(stream, disclosure, Expected::of(file, 0));
    }

    fn end_order(&mut self, of: (ProcessId, u64)) {
        if let Some((stream, _)) = self.observed.streams.remove(&of) {
            self.streams -= 1;
            self.policy.close(self.now(), stream);
        }
    }

    /// Forgets a process that has ended.
    pub(super) fn end_observed(&mut self, ReaderId(process): ReaderId) {
        self.observed.observer.forget(process);
        self.observed.waiting.retain(|observation| observation.process() != process);
        let mappings = self.observed.streams.keys().filter(|of| of.0 == process).copied();
        mappings.collect::<Vec<_>>().into_iter().for_each(|of| self.end_order(of));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::session;

    const PROCESS: ProcessId = 7;

    fn begins(mapping: u64) -> Observation {
        let (file, path) = (FileId(1), PathBuf::from("/no/such/file"));
        Observation::Begins { process: PROCESS, mapping, file, path, range: 0..1 << 20 }
    }

    #[test]
    fn the_order_of_a_process_that_is_not_there_is_no_hint() {
        let mut session = session();
        session.observed.waiting.push_back(begins(1));
        session.take_observed();
        assert!(session.observed.streams.is_empty() && session.waiting.names() == 0);
        assert_eq!((session.streams, session.report().hints.given), (0, 0));
    }

    #[test]
    fn streams_end_with_their_order_and_with_their_process() {
        let mut session = session();
        for mapping in 0..3 {
            let hinter = HinterId(FIRST_MAPPING + PROCESS);
            let stream = session.policy.open_stream(session.now(), hinter, None);
            session.streams += 1;
            session.observed.streams.insert((PROCESS, mapping), (stream, FileId(mapping)));
        }
        let end = Observation::Ends { process: PROCESS, mapping: 1 };
        session.observed.waiting.extend([end.clone(), end]);
        session.take_observed();
        assert_eq!((session.streams, session.observed.streams.len()), (2, 2));
        session.observed.waiting.push_back(begins(4));
        session.end_observed(ReaderId(PROCESS));
        assert_eq!((session.streams, session.observed.streams.len()), (0, 0));
        assert!(!session.observed.is_behind(), "what was seen of it is dropped");
    }

    #[test]
    fn a_turn_takes_in_a_bounded_number_of_blocks() {
        let mut session = session();
        let ranges: Vec<_> = (0..4).map(|part| part << 24..(part + 1) << 24).collect();
        let touched = || Observation::Touched {
            process: PROCESS,
            file: FileId(1),
            path: PathBuf::new(),
            ranges: ranges.clone(),
            waited: None,
        };
        session.observed.waiting.extend([touched(), touched(), touched()]);
        session.take_observed();
        assert!(session.observed.is_behind());
        session.take_observed();
        session.take_observed();
        assert!(!session.observed.is_behind());
    }
}
