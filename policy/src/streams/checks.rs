//! Checks, in debug builds and tests, that what is noted of streams agrees with the streams.

use hashbrown::HashMap;

use super::Streams;
use super::shares::Left;
use super::unresolved::Ticket;
use crate::blocks::{BlockTable, StreamIndex};
use crate::hint::HinterId;
use crate::tables::hash::Mix;

impl Streams {
    /// Checks the bytes of all hints, and what is noted of one stream, chosen by `turn`; all streams would take too long. If
    /// `blocks` is given, also checks that stream's search.
    pub(crate) fn check(&mut self, turn: usize, blocks: Option<&BlockTable>) {
        let noted: usize = self.iter().map(|stream| stream.hint_bytes_noted).sum();
        assert_eq!(self.hinters.hint_bytes(HinterId(0)).1, noted, "bytes of all hints");
        let index = StreamIndex((turn % self.all.len().max(1)) as u32);
        self.check_records(index);
        self.files.check_shared(index);
        let Some(Some(stream)) = self.all.get_mut(index.0 as usize) else { return };
        for (is_stale, noted) in [
            (stream.value_is_stale, &self.stale_values),
            (stream.candidate_is_stale, &self.stale_candidates),
            (stream.resolved_is_stale, &self.stale_resolved),
        ] {
            assert!(!is_stale || noted.contains(&index), "{index:?} is never asked");
        }
        if let Some(blocks) = blocks {
            stream.check(blocks);
        }
    }

    /// Checks the hinters' records: the noted contributions and looked-up hints of all streams, and the sums for one stream's
    /// hinter.
    fn check_records(&self, index: StreamIndex) {
        for stream in self.iter().filter(|stream| !stream.shown_is_stale) {
            assert_eq!(stream.shown, stream.shows(), "{:?} has shown something else", stream.id);
        }
        for stream in self.iter().filter(|stream| !stream.resolved_is_stale) {
            let noted = (stream.resolved_noted, stream.standing_noted);
            let now = (stream.resolved_ahead(), stream.standing(&self.shares));
            assert_eq!(noted, now, "{:?} has something else", stream.id);
        }
        let Some(stream) = self.get_any(index) else { return };
        let hinter = stream.hinter;
        let of_hinter = || self.iter().filter(|stream| stream.hinter == hinter);
        let sum = of_hinter().fold((0, 0), |(unproven, unrecorded), stream| {
            let shown = stream.shown;
            (unproven + shown.unproven, unrecorded + u64::from(shown.unrecorded))
        });
        assert_eq!(self.hinters.shown(hinter), sum, "{hinter:?} has shown something else");
        let resolved: u64 = of_hinter().map(|stream| stream.resolved_noted).sum();
        assert_eq!(self.hinters.resolved(hinter), resolved, "{hinter:?} has something else");
    }

    /// The stream of the earliest of these first names that may be looked up next. Asks every stream instead of using what was
    /// noted.
    pub(crate) fn first_of_all(
        &self,
        firsts: impl Iterator<Item = (Ticket, StreamIndex)>,
        left: Left,
    ) -> Option<StreamIndex> {
        let mut of_hinters: HashMap<HinterId, u64, Mix> = HashMap::default();
        for stream in self.iter() {
            *of_hinters.entry(stream.hinter).or_default() += stream.resolved_ahead();
        }
        let may = |&(_, index): &(Ticket, StreamIndex)| {
            let stream = &self[index];
            let has_few = self.shares.is_few(of_hinters[&stream.hinter]);
            left.allows(stream.standing(&self.shares), has_few)
        };
        firsts.filter(may).min().map(|(_, index)| index)
    }

    /// How many entries the lists of stale and parked streams have.
    #[cfg(test)]
    pub(crate) fn noted_as_stale(&self) -> usize {
        let stale = [&self.stale_values, &self.stale_candidates, &self.stale_resolved];
        stale.map(Vec::len).iter().sum::<usize>() + self.parked.len()
    }
}
