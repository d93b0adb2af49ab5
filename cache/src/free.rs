//! The free frames, and which of them a request gets.
//!
//! A request gets adjacent frames where possible. Blocks that are fetched together are mostly read together, and adjacent
//! frames are copied at once. The search begins where the last one ended and takes the first run that is long enough
//! (next fit). If there is none within [`SEARCHED_WORDS`], the request gets single frames.
//!
//! Frames may be [out of use](FreeFrames::withdraw), while the machine is short of memory.
//!
//! Cost: two bits for each frame, and a few words for each request while free frames are adjacent.

use std::ops::Range;

use crate::slab::Frame;

/// Words of 64 frames in which a request searches for a run, beside the words that the run itself takes.
const SEARCHED_WORDS: usize = 16;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct FreeFrames {
    /// A bit for each frame, set if it is free.
    words: Vec<u64>,
    count: usize,
    /// A bit for each frame, set if it is out of use.
    away: Vec<u64>,
    away_count: usize,
    /// The word where the next search begins.
    next: usize,
}

impl FreeFrames {
    /// The frames from 0 up to `frames`, all free.
    pub(crate) fn all(frames: Frame) -> Self {
        let words = vec![0; (frames as usize).div_ceil(64)];
        let mut free = FreeFrames { away: words.clone(), words, count: 0, away_count: 0, next: 0 };
        (0..frames).for_each(|frame| free.put(frame));
        free
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns a frame.
    pub(crate) fn put(&mut self, frame: Frame) {
        let (word, bit) = (frame as usize / 64, 1 << (frame % 64));
        debug_assert_eq!(self.words[word] & bit, 0, "{frame} is free already");
        self.words[word] |= bit;
        self.count += 1;
    }

    /// Number of frames that are out of use.
    pub(crate) fn away(&self) -> usize {
        self.away_count
    }

    /// Takes up to `count` free frames, from `first` on, out of use. Returns them as runs.
    pub(crate) fn withdraw(&mut self, first: Frame, count: usize) -> Vec<Range<Frame>> {
        let mut runs: Vec<Range<Frame>> = Vec::new();
        let (first_word, mut left) = (first as usize / 64, count);
        for word in first_word..self.words.len() {
            let mut bits = self.words[word];
            if word == first_word {
                bits &= u64::MAX << (first % 64);
            }
            while bits != 0 && left > 0 {
                let bit = bits & bits.wrapping_neg();
                bits ^= bit;
                self.words[word] ^= bit;
                self.away[word] ^= bit;
                left -= 1;
                let frame = (word * 64) as Frame + bit.trailing_zeros();
                match runs.last_mut() {
                    Some(run) if run.end == frame => run.end += 1,
                    _ => runs.push(frame..frame + 1),
                }
            }
        }
        self.count -= count - left;
        self.away_count += count - left;
        runs
    }

    /// Puts up to `count` frames back into use.
    pub(crate) fn restore(&mut self, count: usize) {
        let mut left = count.min(self.away_count);
        for word in 0..self.words.len() {
            while self.away[word] != 0 && left > 0 {
                let bit = self.away[word] & self.away[word].wrapping_neg();
                self.away[word] ^= bit;
                self.words[word] ^= bit;
                self.count += 1;
                self.away_count -= 1;
                left -= 1;
            }
        }
    }

    /// Takes `count` frames, in ascending order; `None` if fewer are free.
    pub(crate) fn take(&mut self, count: usize) -> Option<Vec<Frame>> {
        if self.count < count {
            return None;
        }
        let mut taken = Vec::with_capacity(count);
        if let Some(first) = self.find_run(count) {
            taken.extend(first..first + count as Frame);
        } else {
            let mut word = self.next;
            while taken.len() < count {
                let mut bits = self.words[word];
                while bits != 0 && taken.len() < count {
                    taken.push((word * 64) as Frame + bits.trailing_zeros());
                    bits &= bits - 1;
                }
                word = (word + 1) % self.words.len();
            }
            taken.sort_unstable();
        }
        for &frame in &taken {
            self.words[frame as usize / 64] &= !(1 << (frame % 64));
        }
        self.count -= count;
        self.next = taken.last().map_or(0, |&last| last as usize / 64);
        Some(taken)
    }

    /// The first frame of a run of `count` within the words that are searched.
    fn find_run(&self, count: usize) -> Option<Frame> {
        let mut length = 0;
        let words = SEARCHED_WORDS + count.div_ceil(64);
        for word in (self.next..self.words.len()).take(words) {
            let bits = self.words[word];
            if bits == u64::MAX && length + 64 < count {
                length += 64;
                continue;
            }
            for bit in 0..64 {
                length = if bits >> bit & 1 == 1 { length + 1 } else { 0 };
                if length == count {
                    return Some((word * 64 + bit + 1 - count) as Frame);
                }
            }
        }
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_request_gets_neighbours_while_there_are_some_and_each_frame_is_given_once() {
        let mut free = FreeFrames::all(1000);
        let mut given: Vec<Vec<Frame>> = Vec::new();
        let mut seed = 1u64;
        for step in 0..20_000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let count = 1 + (seed >> 40) as usize % 150;
            if seed >> 63 == 0 {
                let before = free.count();
                let Some(frames) = free.take(count) else {
                    assert!(before < count);
                    continue;
                };
                assert_eq!((frames.len(), free.count()), (count, before - count));
                let mut all: Vec<Frame> = given.iter().flatten().chain(&frames).copied().collect();
                all.sort_unstable();
                all.dedup();
                assert_eq!(all.len() + free.count(), 1000, "step {step}");
                given.push(frames);
            } else if !given.is_empty() {
                let which = (seed >> 33) as usize % given.len();
                given.swap_remove(which).into_iter().for_each(|frame| free.put(frame));
            }
        }
        given.into_iter().flatten().for_each(|frame| free.put(frame));
        assert_eq!(free.count(), 1000);
        free.next = 0;
        let run = free.take(150).unwrap();
        assert!(run.windows(2).all(|pair| pair[0] + 1 == pair[1]), "{run:?}");
    }

    #[test]
    fn frames_out_of_use_are_given_to_nobody_until_they_come_back() {
        let mut free = FreeFrames::all(200);
        let taken = free.take(70).unwrap();
        assert_eq!(free.withdraw(10, 40), std::slice::from_ref(&(70..110)));
        free.put(taken[3]);
        free.put(taken[30]);
        assert_eq!(free.withdraw(10, 2), [30..31, 110..111]);
        assert_eq!((free.count(), free.away()), (90, 42));
        let rest = free.take(90).unwrap();
        assert!(rest.iter().all(|frame| *frame == 3 || *frame > 110), "{rest:?}");
        assert_eq!(free.take(1), None);
        free.restore(2);
        assert_eq!(free.take(2), Some(vec![30, 70]));
        free.restore(usize::MAX);
        assert_eq!((free.count(), free.away()), (40, 0));
        assert_eq!(free.withdraw(199, usize::MAX), []);
    }

    #[test]
    fn single_frames_do_where_there_is_no_run() {
        let mut free = FreeFrames::all(200);
        let all = free.take(200).unwrap();
        all.iter().step_by(2).for_each(|&frame| free.put(frame));
        assert_eq!(free.take(3).map(|frames| frames.len()), Some(3));
        assert_eq!((free.take(98), free.count()), (None, 97));
    }
}
