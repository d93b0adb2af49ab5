//! Which pages of a mapping were present at the last look, and which are new.
//!
//! Pages are numbered from the start of the mapping, and kept as bits of chunks of 512 (2 MiB, a page of page tables). Each
//! look replaces what is known of the chunks that it looks at: a page that the kernel took away and the process touched again
//! is new again.
//!
//! Memory: some 100 bytes for each chunk with a present page, up to [`CHUNKS_MAX`]. Beyond that, pages are taken for old.

use std::collections::BTreeMap;
use std::ops::Range;

/// Pages of a chunk.
const CHUNK_PAGES: u64 = 512;

/// Chunks of a mapping with known pages: 64 GiB of present pages, 3 MiB of memory.
const CHUNKS_MAX: usize = 1 << 15;

type Bits = [u64; (CHUNK_PAGES / 64) as usize];

const NONE: Bits = [0; (CHUNK_PAGES / 64) as usize];
const ALL: Bits = [u64::MAX; (CHUNK_PAGES / 64) as usize];

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(crate) struct Presence {
    chunks: BTreeMap<u64, Bits>,
}

impl Presence {
    /// The parts of `pages` that are not known to be wholly present, in whole chunks.
    pub(crate) fn incomplete(&self, pages: u64) -> Vec<Range<u64>> {
        let end = pages.div_ceil(CHUNK_PAGES);
        let mut parts = Vec::new();
        let mut from = 0;
        let complete = self.chunks.range(..end).filter(|(_, bits)| **bits == ALL);
        for (&chunk, _) in complete {
            if chunk > from {
                parts.push(from..chunk);
            }
            from = chunk + 1;
        }
        if from < end {
            parts.push(from..end);
        }
        let in_pages =
            |part: Range<u64>| part.start * CHUNK_PAGES..pages.min(part.end * CHUNK_PAGES);
        parts.into_iter().map(in_pages).collect()
    }

    /// Takes over that of the pages `looked_at`, which begin with a chunk, those of `present` are present: ordered, without
    /// overlap, and within. Adds the ranges that are new to `new`.
    pub(crate) fn update(
        &mut self,
        looked_at: Range<u64>,
        present: &[Range<u64>],
        new: &mut Vec<Range<u64>>,
    ) {
        let last = looked_at.end.div_ceil(CHUNK_PAGES);
        let mut next = looked_at.start / CHUNK_PAGES;
        let mut chunk: Option<(u64, Bits)> = None;
        for range in present {
            let mut at = range.start;
            while at < range.end {
                let of = at / CHUNK_PAGES;
                if let Some((number, bits)) = chunk.take_if(|(number, _)| *number != of) {
                    self.replace(next, number, bits, new);
                    next = number + 1;
                }
                let end = range.end.min((of + 1) * CHUNK_PAGES);
                let (_, bits) = chunk.get_or_insert((of, NONE));
                set(bits, at - of * CHUNK_PAGES..end - of * CHUNK_PAGES);
                at = end;
            }
        }
        if let Some((number, bits)) = chunk {
            self.replace(next, number, bits, new);
            next = number + 1;
        }
        self.remove(next..last);
    }

    /// Replaces the chunk `number`, and removes those from `next` up to it, in which no page is present.
    fn replace(&mut self, next: u64, number: u64, bits: Bits, new: &mut Vec<Range<u64>>) {
        self.remove(next..number);
        let is_full = self.chunks.len() >= CHUNKS_MAX;
        let before = match self.chunks.get_mut(&number) {
            Some(known) => std::mem::replace(known, bits),
            None if is_full => bits,
            None => {
                self.chunks.insert(number, bits);
                NONE
            }
        };
        for (index, (now, before)) in bits.into_iter().zip(before).enumerate() {
            let mut added = now & !before;
            while added != 0 {
                let first = added.trailing_zeros();
                let length = (added >> first).trailing_ones();
                let start = number * CHUNK_PAGES + index as u64 * 64 + u64::from(first);
                let end = start + u64::from(length);
                match new.last_mut() {
                    Some(last) if last.end == start => last.end = end,
                    _ => new.push(start..end),
                }
                let mask = u64::MAX.checked_shl(first + length).unwrap_or(0);
                added &= mask;
            }
        }
    }

    fn remove(&mut self, chunks: Range<u64>) {
        if chunks.is_empty() {
            return;
        }
        let gone: Vec<u64> = self.chunks.range(chunks).map(|(&number, _)| number).collect();
        for number in gone {
            self.chunks.remove(&number);
        }
    }
}

/// Sets the bits of `pages`, which is not empty.
fn set(bits: &mut Bits, pages: Range<u64>) {
    for (index, word) in bits.iter_mut().enumerate() {
        let first = index as u64 * 64;
        let (from, to) = (pages.start.max(first), pages.end.min(first + 64));
        if from < to {
            let length = to - from;
            *word |= (u64::MAX >> (64 - length)) << (from - first);
        }
    }
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a look may find one range")]
mod tests {
    use super::*;

    fn update(presence: &mut Presence, of: Range<u64>, present: &[Range<u64>]) -> Vec<Range<u64>> {
        let mut new = Vec::new();
        presence.update(of, present, &mut new);
        new
    }

    #[test]
    fn what_was_not_present_before_is_new() {
        let mut presence = Presence::default();
        let first = [3..5, 60..70, 500..2000];
        assert_eq!(update(&mut presence, 0..5000, &first), first);
        assert_eq!(update(&mut presence, 0..5000, &first), []);
        let more = [0..80, 500..2000, 4999..5000];
        assert_eq!(update(&mut presence, 0..5000, &more), [0..3, 5..60, 70..80, 4999..5000]);
        // A part alone.
        assert_eq!(update(&mut presence, 512..1024, &[512..1024]), []);
        assert_eq!(update(&mut presence, 2048..2560, &[2048..2049]), [2048..2049]);
    }

    #[test]
    fn pages_that_were_away_are_new_again() {
        let mut presence = Presence::default();
        update(&mut presence, 0..5000, &[0..5000]);
        assert_eq!(update(&mut presence, 0..5000, &[0..600, 4000..5000]), []);
        assert_eq!(update(&mut presence, 0..5000, &[0..1, 599..601]), [600..601]);
        assert_eq!(update(&mut presence, 0..5000, &[]), []);
        assert!(presence.chunks.is_empty());
    }

    #[test]
    fn complete_chunks_need_no_look() {
        let mut presence = Presence::default();
        assert_eq!(presence.incomplete(1000), [0..1000]);
        assert!(presence.incomplete(0).is_empty());
        update(&mut presence, 0..3000, &[0..1024, 1536..2047]);
        assert_eq!(presence.incomplete(3000), [1024..3000]);
        update(&mut presence, 1536..2048, &[1536..2048]);
        assert_eq!(presence.incomplete(3000), [1024..1536, 2048..3000]);
        assert_eq!(presence.incomplete(2048), [1024..1536]);
    }

    /// Against a plain set of pages.
    #[test]
    fn any_sequence_of_looks_gives_what_a_set_gives() {
        let mut presence = Presence::default();
        let mut known = std::collections::BTreeSet::new();
        let mut state = 1u64;
        let mut random = |below: u64| {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            (state >> 33) % below
        };
        for _ in 0..300 {
            let chunks = random(6);
            let looked_at = chunks * CHUNK_PAGES..(chunks + 1 + random(3)) * CHUNK_PAGES;
            let mut present: Vec<Range<u64>> = Vec::new();
            let mut at = looked_at.start + random(200);
            while at < looked_at.end {
                let end = (at + 1 + random(300)).min(looked_at.end);
                present.push(at..end);
                at = end + random(200);
            }
            let new = update(&mut presence, looked_at.clone(), &present);
            let pages = present.iter().cloned().flatten();
            let expected: Vec<u64> = pages.filter(|page| !known.contains(page)).collect();
            assert_eq!(new.into_iter().flatten().collect::<Vec<_>>(), expected);
            known.retain(|page| !looked_at.contains(page));
            known.extend(present.into_iter().flatten());
        }
    }
}
