//! What is disclosed on all machines, and so which blocks are worth their room on a full server.
//!
//! A *reader* is a stream of hints of a node. Its order, a list of blocks, is published in batches, and so is how far it has
//! come: the blocks before the last one that has arrived are behind it. Each node reads the orders of the others.
//!
//! A block that a reader has before it at a distance of d blocks is worth 1/d: the time that a fetch from the store would
//! take, spread over the accesses for which the block takes room, as the policy's arbiter values a hinted block. The worths of
//! all readers are added up. On a server that is nearly full,
//!
//! * a block that has just been read here and is worth nothing any more is deleted: whoever reads it last does so;
//! * a block that has come from the store is put in exchange for one of less worth that this node has put before, the least of
//!   a sample. If there is none, it is not put.
//!
//! Without orders, or room enough, blocks are put, and the server's own policy decides what leaves.
//!
//! ```text
//! foretell:1:readers           set of READER (node and stream)
//! foretell:1:at:READER         position u64 of the first block that is before it; expires if it is not told anew
//! foretell:1:order:READER      list of chunks: position u64 | file u64 | index u32 ...       little endian
//! ```

use std::collections::{HashMap, HashSet};
use std::time::{Duration, Instant};

use foretell_policy::Segment;
use foretell_policy::hash::Mix;

use super::format::{FileId, Token};

/// Who is in the set.
pub(super) const READERS: &str = "foretell:1:readers";
/// How long what a node has published lasts without it.
pub(super) const LASTS: Duration = Duration::from_secs(30);
/// Pause between two batches.
pub(super) const EVERY: Duration = Duration::from_millis(500);
/// Readers whose orders a node reads. With more of them, these are a sample.
pub(super) const READERS_MAX: usize = 256;
/// Positions of all orders that a node knows, its own among them: 100 MB at most.
const POSITIONS_MAX: usize = 1 << 20;
/// An order is published anew, without what is behind the reader, when that is so many blocks, and half of it.
const BEHIND_MAX: u64 = 64 << 10;
/// Blocks of a chunk.
const CHUNK_BLOCKS: usize = 16 << 10;
/// Blocks that this node has put, and may take away again.
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

/// The order of a reader of this node.
#[derive(Default)]
struct Own {
    order: Vec<Place>,
    positions: HashMap<Place, Vec<u64>, Mix>,
    at: u64,
    /// How often it was published anew.
    generation: u32,
    /// So much of the order is published.
    told_blocks: usize,
    told_at: Option<u64>,
    told: Option<Instant>,
}

impl Own {
    /// Its name.
    fn reader(&self, node: &str, stream: u64) -> String {
        format!("{node}-{stream}-{}", self.generation)
    }

    /// All of it is to be published under another name.
    fn begins_anew(&mut self) {
        self.generation += 1;
        (self.told_blocks, self.told_at, self.told) = (0, None, None);
    }

    /// Forgets what is behind the reader. Returns the number of blocks.
    fn leaves_behind(&mut self) -> usize {
        let behind = self.at as usize;
        self.order.drain(..behind);
        self.at = 0;
        self.positions.clear();
        for (at, place) in self.order.iter().enumerate() {
            self.positions.entry(*place).or_default().push(at as u64);
        }
        self.begins_anew();
        behind
    }
}

/// What is known of another node's reader.
#[derive(Default)]
struct Other {
    at: u64,
    chunks: usize,
    positions: usize,
    number: u32,
}

/// What is to be published of a reader.
#[derive(Debug)]
pub(super) struct News {
    pub(super) reader: String,
    pub(super) at: u64,
    pub(super) chunks: Vec<Vec<u8>>,
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
    others: HashMap<String, Other>,
    by_number: HashMap<u32, String>,
    next_number: u32,
    /// Positions of other nodes' readers.
    wanted: HashMap<Place, Vec<(u32, u64)>, Mix>,
    positions: usize,
    /// Readers that have given up.
    ended: Vec<String>,
    put: Vec<(FileId, u64)>,
    is_full: bool,
    /// The server's memory has no bound, so that nothing need be known.
    is_unbounded: bool,
    random: u64,
}

impl Orders {
    pub(super) fn new(token: &Token) -> Self {
        let node = token.iter().map(|byte| format!("{byte:02x}")).collect();
        Orders { node, random: 1, ..Orders::default() }
    }

    /// A stream of this node will read these parts of a file; all of it without any.
    pub(super) fn disclosed(
        &mut self,
        stream: u64,
        (file, size_bytes): (&FileId, u64),
        block_bytes: u64,
        segments: Option<&[Segment]>,
    ) {
        if self.is_unbounded {
            return;
        }
        let whole = [Segment { offset_bytes: 0, length_bytes: size_bytes }];
        let own = self.own.entry(stream).or_default();
        let mut last = None;
        for segment in segments.unwrap_or(&whole) {
            let end = size_bytes.min(segment.offset_bytes.saturating_add(segment.length_bytes));
            for index in segment.offset_bytes / block_bytes..end.div_ceil(block_bytes) {
                let Some(place) = place(file, index) else { return };
                // Small parts of one block, one after the other, are one need.
                if last == Some(place) || self.positions >= POSITIONS_MAX {
                    continue;
                }
                last = Some(place);
                own.positions.entry(place).or_default().push(own.order.len() as u64);
                own.order.push(place);
                self.positions += 1;
            }
        }
    }

    /// A stream of this node has given up the rest.
    pub(super) fn gave_up(&mut self, stream: u64) {
        if let Some(own) = self.own.remove(&stream) {
            self.positions -= own.order.len();
            if own.told.is_some() {
                self.ended.push(own.reader(&self.node, stream));
            }
        }
    }

    /// A block has arrived at this node: the reader that is nearest to it has come so far.
    pub(super) fn arrived(&mut self, file: &FileId, index: u64) {
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
        self.others.clear();
        self.by_number.clear();
        self.wanted.clear();
        self.put.clear();
        self.positions = self.own.values().map(|own| own.order.len()).sum();
        self.own.values_mut().for_each(Own::begins_anew);
    }

    /// Whether there is anything to publish.
    pub(super) fn is_active(&self) -> bool {
        !self.own.is_empty() || !self.ended.is_empty()
    }

    /// What is to be published now, and the readers that have given up.
    pub(super) fn news(&mut self) -> (Vec<News>, Vec<String>) {
        let mut news = Vec::new();
        for (stream, own) in &mut self.own {
            if own.at >= BEHIND_MAX && 2 * own.at >= own.order.len() as u64 {
                self.ended.push(own.reader(&self.node, *stream));
                self.positions -= own.leaves_behind();
            }
            let is_old = own.told.is_none_or(|told| told.elapsed() > LASTS / 4);
            let pending = &own.order[own.told_blocks..];
            if pending.is_empty() && own.told_at == Some(own.at) && !is_old {
                continue;
            }
            let chunks = chunks(own.told_blocks as u64, pending);
            own.told_blocks = own.order.len();
            (own.told_at, own.told) = (Some(own.at), Some(Instant::now()));
            let reader = own.reader(&self.node, *stream);
            news.push(News { reader, at: own.at, chunks });
        }
        (news, std::mem::take(&mut self.ended))
    }

    /// Whether it is a reader of this node.
    pub(super) fn is_own(&self, reader: &str) -> bool {
        reader.starts_with(&self.node)
    }

    /// Chunks of a reader's order that are known.
    pub(super) fn known_chunks(&self, reader: &str) -> usize {
        self.others.get(reader).map_or(0, |other| other.chunks)
    }

    /// Another node's reader is at this position, and has disclosed more.
    pub(super) fn heard(&mut self, reader: &str, at: u64, chunks: &[Vec<u8>]) {
        let number = match self.others.get_mut(reader) {
            Some(other) => {
                (other.at, other.chunks) = (at, other.chunks + chunks.len());
                other.number
            }
            None => {
                let number = self.next_number;
                self.next_number += 1;
                let other = Other { at, chunks: chunks.len(), positions: 0, number };
                self.others.insert(reader.to_owned(), other);
                self.by_number.insert(number, reader.to_owned());
                number
            }
        };
        for chunk in chunks {
            let Some((head, places)) = chunk.split_at_checked(16) else { continue };
            let word = |at: usize| {
                let word: [u8; 8] = std::array::from_fn(|byte| head[at + byte]);
                u64::from_le_bytes(word)
            };
            let (first, file) = (word(0), word(8));
            let (indices, _) = places.as_chunks::<4>();
            for (turn, index) in indices.iter().enumerate() {
                if self.positions >= POSITIONS_MAX {
                    return;
                }
                let place = (file, u32::from_le_bytes(*index));
                let at = first.saturating_add(turn as u64);
                self.wanted.entry(place).or_default().push((number, at));
                self.positions += 1;
                if let Some(other) = self.others.get_mut(reader) {
                    other.positions += 1;
                }
            }
        }
    }

    /// These are all readers there are. Others are forgotten.
    pub(super) fn are_all(&mut self, readers: &HashSet<String>) {
        let gone: Vec<String> =
            self.others.keys().filter(|reader| !readers.contains(*reader)).cloned().collect();
        let mut numbers = HashSet::new();
        for reader in gone {
            if let Some(other) = self.others.remove(&reader) {
                self.by_number.remove(&other.number);
                self.positions -= other.positions;
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
    pub(super) fn is_filled(&mut self, part: Option<f64>) {
        self.is_full = part.is_some_and(|part| part > FULL_PART);
        if part.is_none() && !self.is_unbounded {
            self.publish_anew();
            self.own.clear();
            (self.is_unbounded, self.positions) = (true, 0);
        }
    }

    /// Whether the server is nearly full, so that orders matter.
    pub(super) fn is_full(&self) -> bool {
        self.is_full
    }

    /// What a block is worth to all readers.
    fn worth(&self, file: &FileId, index: u64) -> f64 {
        let Some(place) = place(file, index) else { return 0.0 };
        let worth_at = |at: u64, now: u64| match at.checked_sub(now) {
            Some(distance) => 1.0 / (distance + 1) as f64,
            None => 0.0,
        };
        let of_others = self.wanted.get(&place).into_iter().flatten().filter_map(|(number, at)| {
            let reader = self.by_number.get(number)?;
            Some(worth_at(*at, self.others.get(reader)?.at))
        });
        let of_own = self.own.values().flat_map(|own| {
            let positions = own.positions.get(&place).into_iter().flatten();
            positions.map(|&at| worth_at(at, own.at))
        });
        of_others.sum::<f64>() + of_own.sum::<f64>()
    }

    /// Whether a block on a full server may go, since no reader has it before it.
    pub(super) fn may_go(&self, file: &FileId, index: u64) -> bool {
        self.is_full && !self.others.is_empty() && self.worth(file, index) == 0.0
    }

    /// Whether a block that has come from the store is to be put.
    pub(super) fn admit(&mut self, file: &FileId, index: u64) -> Admission {
        if !self.is_full || self.others.is_empty() {
            return Admission::Put;
        }
        let worth = self.worth(file, index);
        if worth == 0.0 {
            return Admission::No;
        }
        let mut least: Option<(f64, usize)> = None;
        for _ in 0..SAMPLE.min(self.put.len()) {
            self.random ^= self.random << 13;
            self.random ^= self.random >> 7;
            self.random ^= self.random << 17;
            let at = (self.random % self.put.len() as u64) as usize;
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

    /// A block has been put.
    pub(super) fn is_put(&mut self, file: FileId, index: u64) {
        if self.put.len() < PUT_MAX {
            self.put.push((file, index));
        }
    }
}

/// Blocks in chunks of one file each.
fn chunks(first: u64, places: &[Place]) -> Vec<Vec<u8>> {
    let mut at = first;
    let runs = places.chunk_by(|one, next| one.0 == next.0);
    runs.flat_map(|run| run.chunks(CHUNK_BLOCKS))
        .map(|run| {
            let mut chunk = Vec::with_capacity(16 + 4 * run.len());
            chunk.extend(at.to_le_bytes());
            chunk.extend(run[0].0.to_le_bytes());
            run.iter().for_each(|(_, index)| chunk.extend(index.to_le_bytes()));
            at += run.len() as u64;
            chunk
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::format::{Checks, Named};
    use super::*;

    const BLOCK: u64 = 4096;

    fn file(path: &str) -> FileId {
        let named = Named { store: "s", path, version: b"1" };
        Checks::new(None).file(named, 100 * BLOCK, BLOCK as usize)
    }

    fn disclose(orders: &mut Orders, stream: u64, file: &FileId, indices: &[u64]) {
        let of = |&index: &u64| Segment { offset_bytes: index * BLOCK, length_bytes: BLOCK };
        let segments: Vec<Segment> = indices.iter().map(of).collect();
        orders.disclosed(stream, (file, 100 * BLOCK), BLOCK, Some(&segments));
    }

    /// Has `other` hear all that `one` says.
    fn tell(one: &mut Orders, other: &mut Orders) {
        for News { reader, at, chunks } in one.news().0 {
            other.heard(&reader, at, &chunks);
        }
    }

    #[test]
    fn a_block_is_worth_what_all_readers_will_save_by_it() {
        let (mut one, mut other) = (Orders::new(&[1; 16]), Orders::new(&[2; 16]));
        let (a, b) = (file("a"), file("b"));
        disclose(&mut one, 7, &a, &[5, 3, 9]);
        disclose(&mut one, 7, &b, &[5]);
        disclose(&mut other, 1, &a, &[9, 4, 9]);
        tell(&mut one, &mut other);
        assert_eq!(other.worth(&a, 5), 1.0);
        assert_eq!(other.worth(&b, 5), 0.25);
        assert_eq!(other.worth(&a, 4), 0.5);
        assert_eq!(other.worth(&a, 9), 1.0 / 3.0 + (1.0 + 1.0 / 3.0));
        assert_eq!(other.worth(&a, 6), 0.0);
        // What has arrived is behind the reader, and so is what was before it.
        one.arrived(&a, 3);
        tell(&mut one, &mut other);
        assert_eq!((other.worth(&a, 5), other.worth(&b, 5)), (0.0, 0.5));
        other.arrived(&a, 9);
        assert_eq!(other.worth(&a, 9), 1.0 + 0.5);
        other.arrived(&a, 9);
        assert_eq!(other.worth(&a, 9), 1.0);
        // A reader that gives up, or is gone, counts no more.
        one.gave_up(7);
        assert_eq!(one.news().1, [format!("{}-7-0", one.node)]);
        other.are_all(&HashSet::new());
        assert_eq!((other.worth(&a, 9), other.positions), (0.0, 3));
        // All of it is published anew when the server has lost it.
        other.publish_anew();
        let news = other.news().0;
        assert_eq!((news[0].chunks.len(), news[0].at), (1, 3));
        assert_eq!(news[0].reader, format!("{}-1-1", other.node));
    }

    #[test]
    fn on_a_full_server_blocks_are_put_for_others_of_less_worth() {
        let (mut one, mut other) = (Orders::new(&[1; 16]), Orders::new(&[2; 16]));
        let a = file("a");
        disclose(&mut one, 0, &a, &[1, 2, 3, 4]);
        tell(&mut one, &mut other);
        assert_eq!(other.admit(&a, 50), Admission::Put, "there is room");
        assert!(!other.may_go(&a, 50));
        other.is_filled(Some(0.95));
        assert!(other.may_go(&a, 50) && !other.may_go(&a, 4));
        assert_eq!(other.admit(&a, 50), Admission::No, "nobody wants it");
        assert_eq!(other.admit(&a, 1), Admission::No, "there is none to go for it");
        other.is_put(a, 4);
        assert_eq!(other.admit(&a, 1), Admission::For(a, 4));
        other.is_put(a, 1);
        assert_eq!(other.admit(&a, 2), Admission::No);
        // Without orders of others the server decides.
        other.are_all(&HashSet::new());
        assert_eq!(other.admit(&a, 50), Admission::Put);
        // Where there is always room, nothing is noted.
        one.is_filled(None);
        disclose(&mut one, 1, &a, &[1]);
        assert!(!one.is_active() && one.positions == 0);
    }

    #[test]
    fn an_endless_order_leaves_behind_what_is_past() {
        let (mut one, mut other) = (Orders::new(&[1; 16]), Orders::new(&[2; 16]));
        let a = file("a");
        let indices: Vec<u64> = (0..100).collect();
        for turn in 0..2000 {
            disclose(&mut one, 0, &a, &indices);
            indices.iter().for_each(|&index| one.arrived(&a, index));
            if turn % 10 == 0 {
                tell(&mut one, &mut other);
            }
        }
        assert!(one.positions <= 2 * BEHIND_MAX as usize, "{}", one.positions);
        disclose(&mut one, 0, &a, &[7, 5]);
        let (news, _) = one.news();
        other.heard(&news[0].reader, news[0].at, &news[0].chunks);
        other.are_all(&HashSet::from([news[0].reader.clone()]));
        assert_eq!((other.worth(&a, 7), other.worth(&a, 5)), (1.0, 0.5));
    }

    #[test]
    fn whatever_somebody_publishes_is_taken_as_it_is() {
        let mut orders = Orders::new(&[1; 16]);
        for length in 0..40 {
            orders.heard("x", u64::MAX, &[vec![0xFF; length]]);
        }
        assert_eq!(orders.worth(&file("a"), 1), 0.0);
        orders.are_all(&HashSet::new());
        assert_eq!((orders.positions, orders.wanted.len()), (0, 0));
    }
}
