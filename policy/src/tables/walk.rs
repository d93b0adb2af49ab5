//! Hash tables whose places lie in *lines* as long as a processor's cache line: the home line of each entry, and the lines
//! after it if that is full.
//!
//! An entry is known by its *tag*, 32 bits of a hash. It lies in its *home* line or in the next line of its *walk* that is not
//! full. Lines come in pairs, and a walk visits both lines of a pair before it goes on. A pair usually lies in one page, which
//! saves address translations. From pair to pair a walk has one of eight steps, so that full lines do not cluster. Four
//! neighbouring blocks of a file have the same home (see [`hash_block`](crate::tables::hash::hash_block)), so sequential reads
//! cost one cache miss for all four.

/// Places per line.
/// Unit: entries. Reason: layout.
pub(crate) const LINE: usize = 8;

/// The greatest share of places in use, as a fraction.
/// Unit: ratio. Reason: judgement.
const LOAD: (usize, usize) = (2, 5);

/// Steps from one pair of lines to the next on a walk, counted in pairs. A walk whose step does not divide the number of pairs
/// visits all of them.
/// Unit: lines. Reason: layout.
const PRIMES: [u32; 18] = [3, 5, 7, 11, 13, 17, 19, 23, 29, 31, 37, 41, 43, 47, 53, 59, 61, 67];
/// Steps that one table uses.
/// Unit: steps. Reason: layout.
const STEPS: usize = 8;

/// The part of a hash that is kept. Its upper bits select the home; all of its bits tell entries apart there.
#[inline]
pub(crate) fn tag_of(hash: u64) -> u32 {
    (hash >> 32) as u32
}

/// The places whose word satisfies `is`, as a set of bits, in which place n is bit n + 1: with bit 0 the compiler would treat
/// the first place as a special case and lose the vector instructions.
#[inline]
pub(crate) fn places(words: &[u32; LINE], is: impl Fn(u32) -> bool) -> u32 {
    words.iter().zip(1..).fold(0, |places, (&word, bit)| places | u32::from(is(word)) << bit)
}

/// The first place of the set.
#[inline]
pub(crate) fn first(places: u32) -> Option<usize> {
    (places != 0).then(|| first_or_any(places))
}

/// The first place of the set, or any if it is empty.
#[inline]
pub(crate) fn first_or_any(places: u32) -> usize {
    (places.trailing_zeros() as usize).wrapping_sub(1) % LINE
}

/// The walks through a number of lines; see the [module](self).
#[derive(Clone, Debug, Default)]
pub(crate) struct Walks {
    lines: usize,
    steps: [u32; STEPS],
}

impl Walks {
    fn new(pairs: usize) -> Self {
        // Any number of pairs has fewer than ten of these primes as divisors.
        let mut steps = PRIMES.into_iter().filter(|&prime| !pairs.is_multiple_of(prime as usize));
        let mut step = || 2 * (steps.next().expect("enough of them") % pairs as u32);
        Walks { lines: 2 * pairs, steps: std::array::from_fn(|_| step()) }
    }

    /// The walks through twice as many lines, but at most as many as `most` entries need, or `entries` if there are more.
    pub(crate) fn grown(&self, entries: usize, most: usize) -> Self {
        let at_most = (most.max(entries).saturating_mul(LOAD.1) / LOAD.0).div_ceil(LINE);
        let pairs = self.lines; // Twice the number of pairs.
        Walks::new(pairs.min(at_most / 2 + 1).max(1))
    }

    /// Lines that there are.
    pub(crate) fn lines(&self) -> usize {
        self.lines
    }

    /// Whether there are enough lines for this many entries.
    #[inline]
    pub(crate) fn have_room_for(&self, entries: usize) -> bool {
        entries * LOAD.1 <= self.lines * LINE * LOAD.0
    }

    /// The home line of this tag.
    #[inline]
    pub(crate) fn home(&self, tag: u32) -> usize {
        ((u64::from(tag) * self.lines as u64) >> 32) as usize
    }

    /// The line after `line` on the walk of this tag.
    #[inline]
    pub(crate) fn after(&self, line: usize, tag: u32) -> usize {
        if (line ^ self.home(tag)) & 1 == 0 {
            return line ^ 1;
        }
        // The lowest bits tell neighbouring blocks apart, which take the same walk.
        let next = (line ^ 1) + self.steps[(tag >> 3) as usize % STEPS] as usize;
        if next < self.lines { next } else { next - self.lines }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn walks_come_by_all_lines_and_home_again() {
        for pairs in (1..=700).chain([1155, 15_015, 30_030]) {
            let walks = Walks::new(pairs);
            assert_eq!(walks.lines(), 2 * pairs);
            for (step, half) in (0..STEPS as u32).flat_map(|step| [(step, 0), (step, 1)]) {
                // Any home, and the other line of its pair.
                let wanted = (2 * (pairs / 3) + half) as u64;
                let tag = ((wanted << 32) / walks.lines() as u64) as u32 / 64 * 64 + 64 + step * 8;
                let home = walks.home(tag);
                let mut seen = vec![false; walks.lines()];
                let mut line = home;
                for _ in 0..walks.lines() {
                    assert!(
                        !std::mem::replace(&mut seen[line], true),
                        "{pairs} pairs, step {step}"
                    );
                    line = walks.after(line, tag);
                }
                assert_eq!(line, home, "{pairs} pairs, step {step}");
            }
        }
    }

    #[test]
    fn they_grow_to_have_room_and_no_further() {
        for most in [1, 2, 3, 7, 8, 100, 1000, 65_537, 1_000_000] {
            let mut walks = Walks::default();
            for entries in 1..=most {
                if !walks.have_room_for(entries) {
                    let grown = walks.grown(entries, most);
                    assert!(grown.lines() > walks.lines() && grown.have_room_for(entries));
                    walks = grown;
                }
            }
            assert!(walks.lines() * LINE * 8 <= most * 8 * 5 / 2 + 256, "{most}: {walks:?}");
        }
    }
}
