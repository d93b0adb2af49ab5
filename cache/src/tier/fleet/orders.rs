//! What is disclosed on all machines, and so which blocks are worth their room on a full server.
//!
//! A *reader* is a stream of hints of a node. Its order, a list of blocks, is published in batches, and so is how far it has
//! come: the blocks before the last one that has arrived are behind it. Each node reads the orders of the others.
//!
//! A block that a reader has before it at a distance of d blocks is worth 1/d: the time that a fetch from the store would
//! take, spread over the accesses for which the block takes room, as the policy's arbiter values a hinted block. The worths of
//! all readers are added up. On a server that is nearly full,
//!
//! * a block that has just been read here and is worth nothing any more is deleted: the last reader of a block does so;
//! * a block that has come from the store is put in exchange for one of less worth that this node has put before, the least of
//!   a sample. If there is none, it is not put.
//!
//! **What is not known is not worthless.** A block is worth nothing only if it was disclosed, all readers are past it, and all
//! orders are known to their ends. They are not if a reader discloses more while it reads (it may go on), if an order does not
//! fit in the table or has not been read yet, or if there are more readers than a node follows. Then, without any orders, or
//! with room enough, blocks are put, and the server's own policy decides what leaves.
//!
//! ```text
//! foretell:1:readers           set of READER (node and stream)
//! foretell:1:at:READER         position u64 of the first block that is before it | blocks u64 of its whole order, 2^64-1 if it
//!                              may go on
//! foretell:1:order:READER      chunks, one after the other: position u64 | file u64 | blocks u32 | index u32 ...
//!                              all little endian; all three expire if they are not published anew
//! ```

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use foretell_policy::Segment;
use foretell_policy::hash::Mix;

use super::format::{FileId, Token};

/// The key of the set of readers.
pub(super) const READERS: &str = "foretell:1:readers";
/// How long what a node has published lasts without it.
pub(super) const LASTS: Duration = Duration::from_secs(30);
/// Pause between two batches, at least.
const EVERY: Duration = Duration::from_millis(500);
/// Pause between two batches for each reader that is followed, at least: a server is asked about 50 readers a second by a node.
const EVERY_READER: Duration = Duration::from_millis(20);
/// How many readers of other nodes a node follows, at most.
pub(super) const READERS_MAX: usize = 256;
/// Positions of all orders that a node knows, its own among them: 100 MB at most.
const POSITIONS_MAX: usize = 1 << 20;
/// Positions of a node's own orders.
const OWN_POSITIONS_MAX: usize = POSITIONS_MAX / 2;
/// An order is published anew, without what is behind the reader, when that is so many blocks, and half of it.
const BEHIND_MAX: u64 = 64 << 10;
/// Blocks of a chunk, at most.
const CHUNK_BLOCKS: usize = 8 << 10;
/// Bytes of a chunk before its indices.
const CHUNK_HEAD_BYTES: usize = 20;
/// Bytes of a chunk, at most.
pub(super) const CHUNK_MAX_BYTES: usize = CHUNK_HEAD_BYTES + 4 * CHUNK_BLOCKS;
/// Stands for the number of blocks of an order that may go on.
const MAY_GO_ON: u64 = u64::MAX;
/// Blocks that this node has put, and may take away again: 42 MB at most.
const PUT_MAX: usize = 1 << 20;
/// Of so many of them the least one goes.
const SAMPLE: usize = 16;
/// The part of its memory that a server may fill before it counts as full. Leases need some room.
const FULL_PART: f64 = 0.9;

/// A block of a file, in short.
type Place = (u64, u32);

fn place(file: &FileId, index: u64) -> Option<Place> {
    Some((file.short(), u32::try_from(index).ok()?))
}

/// How far a reader has come, and how far its order goes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Progress {
    /// Position of the first block that is before it.
    at: u64,
    /// Blocks of its order, or [`MAY_GO_ON`].
    blocks: u64,
}

impl Progress {
    pub(super) const BYTES: usize = 16;
    /// Of a reader of which nothing is known.
    pub(super) const UNKNOWN: Progress = Progress { at: 0, blocks: MAY_GO_ON };

    pub(super) fn encode(self) -> [u8; Self::BYTES] {
        let mut bytes = [0; Self::BYTES];
        bytes[..8].copy_from_slice(&self.at.to_le_bytes());
        bytes[8..].copy_from_slice(&self.blocks.to_le_bytes());
        bytes
    }

    pub(super) fn decode(bytes: &[u8]) -> Option<Self> {
        let (words, []) = bytes.as_chunks::<8>() else { return None };
        let [at, blocks] = words else { return None };
        Some(Progress { at: u64::from_le_bytes(*at), blocks: u64::from_le_bytes(*blocks) })
    }
}

/// The order of a reader of this node.
#[derive(Default)]
struct Own {
    order: Vec<Place>,
    positions: HashMap<Place, Vec<u64>, Mix>,
    at: u64,
    /// More was disclosed while it read, or than there is room for.
    may_go_on: bool,
    /// How often it was published anew.
    generation: u32,
    /// So much of the order is published.
    told_blocks: usize,
    told_progress: Option<Progress>,
    told: Option<Instant>,
}

impl Own {
    /// Its name.
    fn reader(&self, node: &str, stream: u64) -> String {
        format!("{node}-{stream}-{}", self.generation)
    }

    fn progress(&self) -> Progress {
        let blocks = if self.may_go_on { MAY_GO_ON } else { self.order.len() as u64 };
        Progress { at: self.at, blocks }
    }

    /// All of it is to be published under another name.
    fn begin_anew(&mut self) {
        self.generation += 1;
        (self.told_blocks, self.told_progress, self.told) = (0, None, None);
    }

    /// Forgets what is behind the reader. Returns the number of blocks.
    fn leave_behind(&mut self) -> usize {
        let behind = self.at as usize;
        self.order.drain(..behind);
        self.at = 0;
        self.positions.clear();
        for (at, place) in self.order.iter().enumerate() {
            self.positions.entry(*place).or_default().push(at as u64);
        }
        self.begin_anew();
        behind
    }
}

/// What is known of another node's reader.
#[derive(Default)]
struct Other {
    progress: Progress,
    /// Bytes of its order that have been read.
    bytes: u64,
    /// Positions of it in the table.
    positions: usize,
    /// No more of its order is read: the table is full, or it is no order.
    is_cut: bool,
    number: u32,
}

impl Other {
    /// Whether its order is known to the end.
    fn is_complete(&self) -> bool {
        self.progress.blocks == self.positions as u64
    }
}

/// What is to be published of a reader.
#[derive(Debug)]
pub(super) struct News {
    pub(super) reader: String,
    pub(super) progress: Progress,
    /// To be added to its order.
    pub(super) chunks: Vec<u8>,
    /// Nothing of its order is published yet.
    pub(super) is_first: bool,
}

/// Whether a block is to be put on the server.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    Put,
    /// In exchange for this block.
    For(FileId, u64),
    No,
}

/// See the [module](self).
#[derive(Default)]
pub(super) struct Orders {
    node: String,
    own: HashMap<u64, Own>,
    own_positions: usize,
    others: HashMap<String, Other>,
    by_number: HashMap<u32, String>,
    next_number: u32,
    /// Positions of other nodes' readers.
    wanted: HashMap<Place, Vec<(u32, u64)>, Mix>,
    other_positions: usize,
    /// There are readers that this node does not follow.
    has_more_readers: bool,
    /// When this node last heard of the others.
    learnt: Option<Instant>,
    /// Readers that have given up.
    ended: Vec<String>,
    put: Vec<(FileId, u64)>,
    is_full: bool,
    /// The server's memory has no bound, so that nothing need be known.
    is_unbounded: bool,
    random: u64,
    turn: Arc<Mutex<()>>,
}

impl Orders {
    pub(super) fn new(token: &Token) -> Self {
        let node = token.iter().map(|byte| format!("{byte:02x}")).collect();
        Orders { node, random: 1, ..Orders::default() }
    }

    /// A stream of this node will read these parts of a file; all of it without any. Returns whether that is to be published.
    pub(super) fn note_disclosed(
        &mut self,
        stream: u64,
        (file, size_bytes): (&FileId, u64),
        block_bytes: u64,
        segments: Option<&[Segment]>,
    ) -> bool {
        if self.is_unbounded {
            return false;
        }
        let whole = [Segment { offset_bytes: 0, length_bytes: size_bytes }];
        let own = self.own.entry(stream).or_default();
        own.may_go_on |= own.at > 0;
        let mut last = None;
        for segment in segments.unwrap_or(&whole) {
            let end = size_bytes.min(segment.offset_bytes.saturating_add(segment.length_bytes));
            for index in segment.offset_bytes / block_bytes..end.div_ceil(block_bytes) {
                let has_room = self.own_positions < OWN_POSITIONS_MAX
                    && self.own_positions + self.other_positions < POSITIONS_MAX;
                let Some(place) = place(file, index).filter(|_| has_room) else {
                    own.may_go_on = true;
                    return true;
                };
                // Small parts of one block, one after the other, are one need.
                if last == Some(place) {
                    continue;
                }
                last = Some(place);
                own.positions.entry(place).or_default().push(own.order.len() as u64);
                own.order.push(place);
                self.own_positions += 1;
            }
        }
        true
    }

    /// A stream of this node has given up the rest.
    pub(super) fn note_end(&mut self, stream: u64) {
        if let Some(own) = self.own.remove(&stream) {
            self.own_positions -= own.order.len();
            if own.told.is_some() {
                self.ended.push(own.reader(&self.node, stream));
            }
        }
    }

    /// All streams of this node end. Returns the readers that others may know.
    pub(super) fn end(&mut self) -> Vec<String> {
        for stream in self.own.keys().copied().collect::<Vec<u64>>() {
            self.note_end(stream);
        }
        std::mem::take(&mut self.ended)
    }

    /// A block has arrived at this node: the reader that is nearest to it has come so far.
    pub(super) fn note_arrival(&mut self, file: &FileId, index: u64) {
        let Some(place) = place(file, index) else { return };
        let nearest = self.own.iter_mut().filter_map(|(_, own)| {
            let next = own.positions.get(&place)?.iter().copied().find(|&at| at >= own.at)?;
            Some((next - own.at, next, own))
        });
        if let Some((_, next, own)) = nearest.min_by_key(|(distance, ..)| *distance) {
            own.at = next + 1;
        }
    }

    /// What was published is lost: the server is another one, or was started again.
    pub(super) fn publish_anew(&mut self) {
        self.is_unbounded = false;
        self.forget_others();
        self.put.clear();
        self.own.values_mut().for_each(Own::begin_anew);
    }

    /// Forgets what other nodes will read, and how full the server is.
    pub(super) fn forget_others(&mut self) {
        self.others.clear();
        self.by_number.clear();
        self.wanted.clear();
        self.other_positions = 0;
        (self.is_full, self.has_more_readers, self.learnt) = (false, false, None);
    }

    /// Held by the thread that exchanges orders.
    pub(super) fn turn(&self) -> Arc<Mutex<()>> {
        Arc::clone(&self.turn)
    }

    /// Whether there is anything to publish.
    pub(super) fn is_active(&self) -> bool {
        !self.own.is_empty() || !self.ended.is_empty()
    }

    /// Pause between two batches: the longer, the more readers there are.
    pub(super) fn pause(&self) -> Duration {
        EVERY.max(EVERY_READER * self.others.len() as u32)
    }

    /// What is to be published now, and the readers that have given up.
    pub(super) fn news(&mut self) -> (Vec<News>, Vec<String>) {
        let mut news = Vec::new();
        for (stream, own) in &mut self.own {
            if own.at >= BEHIND_MAX && 2 * own.at >= own.order.len() as u64 {
                self.ended.push(own.reader(&self.node, *stream));
                self.own_positions -= own.leave_behind();
            }
            let is_old = own.told.is_none_or(|told| told.elapsed() > LASTS / 4);
            let (pending, progress) = (&own.order[own.told_blocks..], own.progress());
            if pending.is_empty() && own.told_progress == Some(progress) && !is_old {
                continue;
            }
            let is_first = own.told.is_none();
            let chunks = chunks(own.told_blocks as u64, pending);
            own.told_blocks = own.order.len();
            (own.told_progress, own.told) = (Some(progress), Some(Instant::now()));
            let reader = own.reader(&self.node, *stream);
            news.push(News { reader, progress, chunks, is_first });
        }
        (news, std::mem::take(&mut self.ended))
    }

    /// The server has refused something about a reader of this node: its progress is to be published again. What its order lacks
    /// there, others notice by its length.
    pub(super) fn note_refused(&mut self, reader: &str) {
        for (stream, own) in &mut self.own {
            if own.reader(&self.node, *stream) == reader {
                own.told_progress = None;
            }
        }
    }

    /// Whether it is a reader of this node.
    fn is_own(&self, reader: &str) -> bool {
        reader.starts_with(&self.node)
    }

    /// The readers to follow: those that are followed already, and of these members as many more as may be. `readers`: how many
    /// there are, of which the members may be a sample.
    pub(super) fn follow(&mut self, members: Vec<String>, readers: usize) -> Vec<String> {
        self.has_more_readers = readers > members.len();
        let mut followed: Vec<String> = self.others.keys().cloned().collect();
        for member in members {
            if self.is_own(&member) || self.others.contains_key(&member) {
                continue;
            }
            match followed.len() < READERS_MAX {
                true => followed.push(member),
                false => self.has_more_readers = true,
            }
        }
        followed
    }

    /// From which byte on a reader's order is to be read; `None` if no more of it is.
    pub(super) fn unread(&self, reader: &str) -> Option<u64> {
        let Some(other) = self.others.get(reader) else { return Some(0) };
        (!other.is_cut).then_some(other.bytes)
    }

    /// Another node's reader has come so far, and these bytes of its order follow those that were read.
    pub(super) fn learn(&mut self, reader: &str, progress: Progress, bytes: &[u8]) {
        self.learnt = Some(Instant::now());
        let (wanted, by_number) = (&mut self.wanted, &mut self.by_number);
        let other = self.others.entry(reader.to_owned()).or_insert_with(|| {
            let number = self.next_number;
            self.next_number += 1;
            by_number.insert(number, reader.to_owned());
            Other { number, ..Other::default() }
        });
        other.progress = progress;
        let mut rest = bytes;
        while let Some((head, more)) = rest.split_first_chunk::<CHUNK_HEAD_BYTES>() {
            let word = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| head[at + byte]));
            let (first, file) = (word(0), word(8));
            let blocks = u32::from_le_bytes(std::array::from_fn(|byte| head[16 + byte])) as usize;
            other.is_cut |= blocks > CHUNK_BLOCKS;
            if other.is_cut {
                return;
            }
            let Some((indices, after)) = more.split_at_checked(4 * blocks) else { break };
            for (turn, index) in indices.as_chunks::<4>().0.iter().enumerate() {
                if self.own_positions + self.other_positions >= POSITIONS_MAX {
                    other.is_cut = true;
                    return;
                }
                let place = (file, u32::from_le_bytes(*index));
                let at = first.saturating_add(turn as u64);
                wanted.entry(place).or_default().push((other.number, at));
                self.other_positions += 1;
                other.positions += 1;
            }
            rest = after;
        }
        other.bytes += (bytes.len() - rest.len()) as u64;
    }

    /// No more of a reader's order can be read.
    pub(super) fn cut(&mut self, reader: &str) {
        if let Some(other) = self.others.get_mut(reader) {
            other.is_cut = true;
        }
    }

    /// Forgets readers that have ended: those that are not among these.
    pub(super) fn keep_only(&mut self, readers: &HashSet<String>) {
        self.learnt = Some(Instant::now());
        let gone: Vec<String> =
            self.others.keys().filter(|reader| !readers.contains(*reader)).cloned().collect();
        let mut numbers = HashSet::new();
        for reader in gone {
            if let Some(other) = self.others.remove(&reader) {
                self.by_number.remove(&other.number);
                self.other_positions -= other.positions;
                numbers.insert(other.number);
            }
        }
        if !numbers.is_empty() {
            self.wanted.retain(|_, wanted| {
                wanted.retain(|(number, _)| !numbers.contains(number));
                !wanted.is_empty()
            });
        }
    }

    /// The server has used this part of its memory; `None` if that has no bound.
    pub(super) fn set_filled(&mut self, part: Option<f64>) {
        self.is_full = part.is_some_and(|part| part > FULL_PART);
        if part.is_none() && !self.is_unbounded {
            self.publish_anew();
            self.own.clear();
            (self.is_unbounded, self.own_positions) = (true, 0);
        }
    }

    /// Whether the server is nearly full, so that orders matter.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// Whether orders of others are known, and decide.
    fn is_informed(&self) -> bool {
        self.is_full
            && !self.others.is_empty()
            && self.learnt.is_some_and(|learnt| learnt.elapsed() <= LASTS)
    }

    /// Whether all orders are known to their ends.
    fn is_complete(&self) -> bool {
        !self.has_more_readers
            && self.others.values().all(Other::is_complete)
            && !self.own.values().any(|own| own.may_go_on)
    }

    /// Whether a block is in one of the orders.
    fn is_disclosed(&self, file: &FileId, index: u64) -> bool {
        place(file, index).is_some_and(|place| {
            self.wanted.contains_key(&place)
                || self.own.values().any(|own| own.positions.contains_key(&place))
        })
    }

    /// What a block is worth to all readers, as far as their orders are known.
    fn worth(&self, file: &FileId, index: u64) -> f64 {
        let Some(place) = place(file, index) else { return 0.0 };
        let worth_at = |at: u64, now: u64| match at.checked_sub(now) {
            Some(distance) => 1.0 / (distance + 1) as f64,
            None => 0.0,
        };
        let of_others = self.wanted.get(&place).into_iter().flatten().filter_map(|(number, at)| {
            let reader = self.by_number.get(number)?;
            Some(worth_at(*at, self.others.get(reader)?.progress.at))
        });
        let of_own = self.own.values().flat_map(|own| {
            let positions = own.positions.get(&place).into_iter().flatten();
            positions.map(|&at| worth_at(at, own.at))
        });
        of_others.sum::<f64>() + of_own.sum::<f64>()
    }

    /// Whether a block is certainly worth nothing: it was disclosed, and no reader has it before it.
    fn is_worthless(&self, file: &FileId, index: u64) -> bool {
        self.worth(file, index) == 0.0 && self.is_disclosed(file, index) && self.is_complete()
    }

    /// Whether a block on a full server may go, since no reader has it before it.
    pub(super) fn may_go(&self, file: &FileId, index: u64) -> bool {
        self.is_informed() && self.is_worthless(file, index)
    }

    /// Whether a block that has come from the store is to be put.
    pub(super) fn admit(&mut self, file: &FileId, index: u64) -> Admission {
        if !self.is_informed() {
            return Admission::Put;
        }
        let worth = self.worth(file, index);
        if worth == 0.0 {
            return match self.is_worthless(file, index) {
                true => Admission::No,
                false => Admission::Put,
            };
        }
        let mut least: Option<(f64, usize)> = None;
        for _ in 0..SAMPLE.min(self.put.len()) {
            let at = self.random_put();
            let (file, index) = self.put[at];
            let worth = self.worth(&file, index);
            if least.is_none_or(|(known, _)| worth < known) {
                least = Some((worth, at));
            }
        }
        match least {
            Some((other, at)) if other < worth => {
                let (file, index) = self.put.swap_remove(at);
                Admission::For(file, index)
            }
            _ => Admission::No,
        }
    }

    /// A place in `put`, which is not empty, by xorshift.
    fn random_put(&mut self) -> usize {
        self.random ^= self.random << 13;
        self.random ^= self.random >> 7;
        self.random ^= self.random << 17;
        (self.random % self.put.len() as u64) as usize
    }

    /// A block has been put. When too many are known, it takes the place of any of them.
    pub(super) fn note_put(&mut self, file: FileId, index: u64) {
        if self.is_unbounded {
            return;
        }
        if self.put.len() < PUT_MAX {
            return self.put.push((file, index));
        }
        let at = self.random_put();
        self.put[at] = (file, index);
    }
}

/// Blocks in chunks of one file each.
fn chunks(first: u64, places: &[Place]) -> Vec<u8> {
    let (mut at, mut bytes) = (first, Vec::new());
    let runs = places.chunk_by(|one, next| one.0 == next.0);
    for run in runs.flat_map(|run| run.chunks(CHUNK_BLOCKS)) {
        bytes.extend(at.to_le_bytes());
        bytes.extend(run[0].0.to_le_bytes());
        bytes.extend((run.len() as u32).to_le_bytes());
        run.iter().for_each(|(_, index)| bytes.extend(index.to_le_bytes()));
        at += run.len() as u64;
    }
    bytes
}

#[cfg(test)]
mod tests;
