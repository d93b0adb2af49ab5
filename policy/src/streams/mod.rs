//! The module `streams`: hints in reading order, and the records of the hinters that gave them.
//!
//! * [`stream`]: one stream, its positions and how far its reader has come;
//! * [`hinters`]: the fate of the blocks fetched for each hinter;
//! * [`shares`]: how many looked-up hints a stream may have;
//! * [`unresolved`]: the names that wait for their lookup at one device, in order of their turns;
//! * [`files`]: which streams name which files;
//! * [`latest_start`]: when the fetches of a run have to begin.
//!
//! [`Streams`] holds all of it. Several answers of a stream change with nearly every read: its value, its candidate, its
//! contribution to its hinter's record. They are not asked for at each change. A stream whose answer may have changed is
//! *stale*: it enters a list once, and is asked when the answer is needed.
//!
//! This module uses [`blocks`](crate::blocks) and [`tables`](crate::tables).

#[cfg(any(test, debug_assertions))]
mod checks;
pub(crate) mod files;
pub(crate) mod hinters;
pub(crate) mod latest_start;
mod matching;
pub(crate) mod shares;
pub(crate) mod stream;
pub(crate) mod unresolved;

use crate::blocks::{STREAMS_MAX, StreamIndex};
use crate::hint::{FileId, HinterId};
use crate::tables::line::load_lines;
use files::Files;
use hinters::{Hinters, Shown};
use shares::{HinterStanding, Left, Shares};
use stream::Stream;
use stream::index::FileChange;

/// Useful blocks that a stream collects before it updates its hinter's record. Each update costs a cache miss.
/// Unit: blocks. Reason: judgement.
const UNRECORDED_MAX: u32 = 64;

/// All streams; see the [module](self).
#[derive(Debug)]
pub(crate) struct Streams {
    /// By index; `None` where a stream was closed.
    all: Vec<Option<Stream>>,
    /// Indices without a stream.
    freed: Vec<StreamIndex>,
    hinters: Hinters,
    shares: Shares,
    files: Files,
    /// Streams whose value may have fallen since the arbiter last asked.
    stale_values: Vec<StreamIndex>,
    /// Streams whose next block to fetch may have changed.
    stale_candidates: Vec<StreamIndex>,
    /// Streams whose number of looked-up hints may differ from what was last noted.
    stale_resolved: Vec<StreamIndex>,
    /// Streams whose contribution to their hinters' records may have changed since a stream was last opened.
    stale_shown: Vec<StreamIndex>,
    /// Streams that may not have more unread blocks before others have fewer.
    parked: Vec<StreamIndex>,
    /// Pieces of segments in the indices of all streams.
    load: usize,
    /// How many streams were asked for their contributions.
    #[cfg(test)]
    pub(crate) asked_shown: usize,
}

impl std::ops::Index<StreamIndex> for Streams {
    type Output = Stream;
    /// # Panics
    /// If the index is not in use.
    #[inline]
    fn index(&self, index: StreamIndex) -> &Stream {
        self.all[index.0 as usize].as_ref().expect("a stream in use")
    }
}

impl std::ops::IndexMut<StreamIndex> for Streams {
    #[inline]
    fn index_mut(&mut self, index: StreamIndex) -> &mut Stream {
        self.all[index.0 as usize].as_mut().expect("a stream in use")
    }
}

impl Streams {
    /// Starts without streams. A device may have `resolved_max` looked-up hints that are not past.
    pub(crate) fn new(resolved_max: usize) -> Self {
        Streams {
            all: Vec::new(),
            freed: Vec::new(),
            hinters: Hinters::default(),
            shares: Shares::new(resolved_max),
            files: Files::default(),
            stale_values: Vec::new(),
            stale_candidates: Vec::new(),
            stale_resolved: Vec::new(),
            stale_shown: Vec::new(),
            parked: Vec::new(),
            load: 0,
            #[cfg(test)]
            asked_shown: 0,
        }
    }

    /// The stream at `index`, unless it was closed.
    #[inline]
    pub(crate) fn get(&self, index: StreamIndex) -> Option<&Stream> {
        self.all[index.0 as usize].as_ref()
    }

    /// As [`get`](Self::get), mutable.
    #[inline]
    pub(crate) fn get_mut(&mut self, index: StreamIndex) -> Option<&mut Stream> {
        self.all[index.0 as usize].as_mut()
    }

    /// All open streams.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &Stream> {
        self.all.iter().flatten()
    }

    /// All indices that were ever used.
    pub(crate) fn indices(&self) -> impl ExactSizeIterator<Item = StreamIndex> + use<> {
        (0..self.all.len() as u32).map(StreamIndex)
    }

    /// Number of open streams, at least 1.
    pub(crate) fn in_use(&self) -> u64 {
        (self.all.len() - self.freed.len()).max(1) as u64
    }

    /// Adds a stream. Returns its index, and how far its hinter's record is trusted, from 0 to 1.
    ///
    /// # Panics
    /// If [`STREAMS_MAX`] streams are open.
    pub(crate) fn add(&mut self, stream: Stream) -> (StreamIndex, f64) {
        let index = self.freed.pop().unwrap_or_else(|| {
            self.all.push(None);
            let index = (self.all.len() - 1) as u64;
            assert!(index < u64::from(STREAMS_MAX), "at most {STREAMS_MAX} streams at once");
            StreamIndex(index as u32)
        });
        self.renew_shown();
        let believed = self.hinters.opened(stream.hinter, stream.id, index);
        self.all[index.0 as usize] = Some(stream);
        self[index].cursor.set_accuracy(believed);
        (index, believed)
    }

    /// Removes a stream that has been cancelled. Its hinter may have few looked-up hints afterwards; the caller has to tell the
    /// devices.
    pub(crate) fn remove(&mut self, index: StreamIndex) {
        self.record_useful(index);
        let stream = &self[index];
        let (hinter, id, shown) = (stream.hinter, stream.id, stream.shown);
        let resolved = stream.resolved_noted;
        if stream.is_parked {
            self.parked.retain(|&parked| parked != index);
        }
        self.hinters.shows(hinter, shown, Shown::default());
        self.hinters.note_resolved(hinter, resolved, 0);
        self.hinters.closed(hinter, id);
        self.all[index.0 as usize] = None;
        self.freed.push(index);
        // If nothing is evicted or prefetched, these lists are not emptied for long.
        for stale in [&mut self.stale_values, &mut self.stale_candidates, &mut self.stale_resolved]
        {
            if stale.len() > 2 * self.all.len() {
                let mut seen = vec![false; self.all.len()];
                stale.retain(|&StreamIndex(index)| {
                    let index = index as usize;
                    self.all[index].is_some() && !std::mem::replace(&mut seen[index], true)
                });
            }
        }
    }

    /// Marks the stream's value and its candidate as stale.
    pub(crate) fn touch(&mut self, index: StreamIndex) {
        self.touch_value(index);
        self.touch_candidate(index);
    }

    /// Marks the stream's value as stale because it may have fallen. A value that has risen is noticed when it is the least.
    pub(crate) fn touch_value(&mut self, index: StreamIndex) {
        let Some(stream) = self.get_mut(index) else { return };
        stream.ranked_at = None;
        if !std::mem::replace(&mut stream.value_is_stale, true) {
            self.stale_values.push(index);
        }
    }

    /// Marks the stream's candidate as stale. A quiet stream has no candidate, and is not marked.
    #[inline]
    pub(crate) fn touch_candidate(&mut self, index: StreamIndex) {
        let Some(stream) = self.get_mut(index) else { return };
        if !stream.candidate_is_stale && !stream.is_quiet() {
            stream.candidate_is_stale = true;
            self.stale_candidates.push(index);
        }
    }

    /// Marks the stream's contribution to its hinter's record as stale.
    #[inline]
    pub(crate) fn touch_shown(&mut self, index: StreamIndex) {
        let Some(stream) = self.get_mut(index) else { return };
        if !std::mem::replace(&mut stream.shown_is_stale, true) {
            self.stale_shown.push(index);
        }
    }

    /// Marks the stream's number of looked-up hints and its standing as stale.
    #[inline]
    pub(crate) fn touch_resolved(&mut self, index: StreamIndex) {
        if !std::mem::replace(&mut self[index].resolved_is_stale, true) {
            self.stale_resolved.push(index);
        }
    }

    /// Takes a stream with a stale value from the list and clears its mark.
    pub(crate) fn next_stale_value(&mut self) -> Option<StreamIndex> {
        loop {
            let index = self.stale_values.pop()?;
            if let Some(stream) = self.get_mut(index) {
                stream.value_is_stale = false;
                return Some(index);
            }
        }
    }

    /// Whether any stream's candidate is stale.
    #[inline]
    pub(crate) fn has_stale_candidates(&self) -> bool {
        !self.stale_candidates.is_empty()
    }

    /// Takes the list of streams with stale candidates and leaves `empty` in its place.
    pub(crate) fn take_stale_candidates(&mut self, empty: Vec<StreamIndex>) -> Vec<StreamIndex> {
        debug_assert!(empty.is_empty());
        std::mem::replace(&mut self.stale_candidates, empty)
    }

    /// Clears the stale mark of a stream from the list taken, as its candidate is asked for now. `None` if the stream was
    /// closed.
    pub(crate) fn ask_for_candidate(&mut self, index: StreamIndex) -> Option<&Stream> {
        let stream = self.get_mut(index)?;
        stream.candidate_is_stale = false;
        Some(stream)
    }

    /// Parks a stream until others have fewer unread blocks.
    pub(crate) fn park(&mut self, index: StreamIndex) {
        if !std::mem::replace(&mut self[index].is_parked, true) {
            self.parked.push(index);
        }
    }

    /// Whether any stream is parked.
    #[inline]
    pub(crate) fn has_parked(&self) -> bool {
        !self.parked.is_empty()
    }

    /// Takes one stream from the parked ones and marks its candidate as stale.
    pub(crate) fn wake_parked(&mut self) {
        if let Some(parked) = self.parked.pop() {
            if let Some(stream) = self.get_mut(parked) {
                stream.is_parked = false;
            }
            self.touch_candidate(parked);
        }
    }

    /// Updates the hinters' records with the contributions of stale streams.
    fn renew_shown(&mut self) {
        for index in self.stale_shown.drain(..) {
            let Some(stream) = self.all[index.0 as usize].as_mut() else { continue };
            stream.shown_is_stale = false;
            let now = stream.shows();
            let before = std::mem::replace(&mut stream.shown, now);
            self.hinters.shows(stream.hinter, before, now);
            #[cfg(test)]
            {
                self.asked_shown += 1;
            }
        }
    }

    /// Updates the hinter's record with the looked-up hints of one stale stream. Returns the stream and its new standing, which
    /// the caller has to tell to the devices. `None` when no stale stream has changed.
    pub(crate) fn renew_resolved(&mut self) -> Option<(StreamIndex, HinterStanding)> {
        loop {
            let index = self.stale_resolved.pop()?;
            let Some(stream) = self.all[index.0 as usize].as_mut() else { continue };
            stream.resolved_is_stale = false;
            let now = (stream.resolved_ahead(), stream.standing(&self.shares));
            let before = (stream.resolved_noted, stream.standing_noted);
            if now != before {
                (stream.resolved_noted, stream.standing_noted) = now;
                self.hinters.note_resolved(stream.hinter, before.0, now.0);
                return Some((index, self.hinter_standing(index)));
            }
        }
    }

    /// The stream's hinter, and the last noted standing of both.
    pub(crate) fn hinter_standing(&self, index: StreamIndex) -> HinterStanding {
        let stream = &self[index];
        let (hinter, standing) = (stream.hinter, stream.standing_noted);
        HinterStanding { hinter, standing, hinter_has_few: self.hinter_has_few(hinter) }
    }

    /// Whether a hinter has few looked-up hints, as last noted.
    pub(crate) fn hinter_has_few(&self, hinter: HinterId) -> bool {
        self.shares.is_few(self.hinters.resolved(hinter))
    }

    /// How much is left of a device's lookups when this many are `taken`.
    pub(crate) fn lookups_left(&self, taken: usize, has_many_streams: bool) -> Option<Left> {
        self.shares.left(taken, has_many_streams)
    }

    /// Counts a useful block: one that was prefetched for the stream, or is in flight for it, is read. The caller marks it as
    /// read.
    #[inline]
    pub(crate) fn note_true(&mut self, index: StreamIndex) {
        let stream = &mut self[index];
        stream.unrecorded += 1;
        if stream.unrecorded == UNRECORDED_MAX {
            self.record_useful(index);
        }
    }

    /// Moves the stream's count of useful blocks to its hinter's record.
    fn record_useful(&mut self, index: StreamIndex) {
        let stream = &mut self[index];
        let (hinter, blocks) = (stream.hinter, std::mem::take(&mut stream.unrecorded));
        self.hinters.note_useful(hinter, blocks);
    }

    /// Counts a wasted block: one that was prefetched for the stream and not read.
    pub(crate) fn note_wasted(&mut self, index: StreamIndex) {
        self.touch_shown(index);
        self.touch_resolved(index);
        let stream = &mut self[index];
        stream.balance -= 1;
        let hinter = stream.hinter;
        self.hinters.note_wasted(hinter);
    }

    /// The records of hinters.
    pub(crate) fn hinters(&self) -> &Hinters {
        &self.hinters
    }

    /// A hint of `hinter` begins to wait for its place.
    pub(crate) fn hint_waits(&mut self, hinter: HinterId) {
        self.hinters.waits(hinter);
    }

    /// A hint of `hinter` was placed or dropped.
    pub(crate) fn hint_waits_no_more(&mut self, hinter: HinterId) {
        self.hinters.waits_no_more(hinter);
    }

    /// Notes the size of the stream's index and the bytes of its hints.
    pub(crate) fn note_load(&mut self, index: StreamIndex) {
        let stream = self.all[index.0 as usize].as_mut().expect("a stream in use");
        let load = stream.load();
        self.load = self.load - stream.load_noted + load;
        stream.load_noted = load;
        let (bytes, hinter) = (stream.hint_bytes(), stream.hinter);
        let before = std::mem::replace(&mut stream.hint_bytes_noted, bytes);
        if bytes != before {
            self.hinters.note_hint_bytes(hinter, before, bytes);
        }
    }

    /// Pieces of segments in the indices of all streams, as last noted.
    #[cfg(test)]
    pub(crate) fn load(&self) -> usize {
        self.load
    }

    /// The load of all indices without that of one stream.
    pub(crate) fn load_of_others(&self, index: StreamIndex) -> usize {
        self.load - self[index].load_noted
    }

    /// The table of which streams name which files.
    pub(crate) fn files(&self) -> &Files {
        &self.files
    }

    /// As [`files`](Self::files), mutable.
    pub(crate) fn files_mut(&mut self) -> &mut Files {
        &mut self.files
    }

    /// The streams that name `file`.
    #[inline]
    pub(crate) fn named_by(&self, file: FileId) -> &[StreamIndex] {
        self.files.named_by(file)
    }

    /// Whether the stream is known to be the only one that names `file`. It does not look for others, which would be a cache
    /// miss where there are many files.
    #[inline]
    pub(crate) fn is_alone(&self, index: StreamIndex, file: FileId) -> bool {
        let stream = self.get(index);
        let alone =
            !self.files.shares(index) && stream.is_some_and(|stream| stream.surely_names(file));
        debug_assert!(!alone || self.named_by(file) == [index], "{index:?} is not alone");
        alone
    }

    /// A stream, and a callback that notes which files it names.
    #[inline]
    pub(crate) fn with_names(
        &mut self,
        index: StreamIndex,
    ) -> (&mut Stream, impl FnMut(FileChange)) {
        let stream = self.all[index.0 as usize].as_mut().expect("a stream in use");
        let files = &mut self.files;
        (stream, move |change| files.note(index, change))
    }

    /// Loads a stream's data into the processor's caches.
    #[inline]
    pub(crate) fn load_lines_of(&self, index: StreamIndex) {
        self.all.get(index.0 as usize).into_iter().for_each(load_lines);
    }

    /// The stream at `index`, which need not ever have been used.
    #[inline]
    pub(crate) fn get_any(&self, index: StreamIndex) -> Option<&Stream> {
        self.all.get(index.0 as usize)?.as_ref()
    }

    /// Bytes that all streams take.
    pub(crate) fn memory_bytes(&self) -> usize {
        self.iter().map(Stream::memory_bytes).sum()
    }
}
