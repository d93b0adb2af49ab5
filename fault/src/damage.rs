//! Damaged inputs, for campaigns that read what another process may have written.
//!
//! A campaign is a number of cases ([`cases`]), each of which follows from its number: a case that fails is made again by its
//! number alone. A case damages a valid input, since random bytes seldom come past the first check.

/// Names the number of cases of each campaign.
const VARIABLE: &str = "FORETELL_FUZZ_CASES";

/// Numbers at which programs that compute with them go wrong.
const NUMBERS: [u64; 14] = [
    0,
    1,
    2,
    0x7f,
    0xff,
    0xffff,
    0x7fff_ffff,
    0x8000_0000,
    0xffff_ffff,
    1 << 32,
    (1 << 62) + 1,
    i64::MAX as u64,
    1 << 63,
    u64::MAX,
];

/// The same, and other words, as text.
const WORDS: [&str; 18] = [
    "0",
    "-1",
    "1e308",
    "4294967296",
    "9223372036854775807",
    "18446744073709551615",
    "1.5",
    "null",
    "true",
    "\"\"",
    "\"\\u0000\"",
    "\"/etc/passwd\"",
    "[]",
    "{}",
    "[",
    "{\"",
    "\u{fffd}",
    "\n",
];

/// The number of cases of a campaign: `usual`, or the one that `FORETELL_FUZZ_CASES` names.
#[must_use]
pub fn cases(usual: u64) -> u64 {
    std::env::var(VARIABLE).ok().and_then(|text| text.parse().ok()).unwrap_or(usual)
}

/// The random numbers of a case.
#[derive(Clone, Debug)]
pub struct Damage(u64);

impl Damage {
    /// Those of the case with this number.
    #[must_use]
    pub fn of_case(number: u64) -> Self {
        // SplitMix64, so that neighbouring numbers have nothing in common. Xorshift goes on from there, which 0 would end.
        let mut seed = number.wrapping_add(1).wrapping_mul(0x9e37_79b9_7f4a_7c15);
        seed = (seed ^ (seed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        seed = (seed ^ (seed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        Damage((seed ^ (seed >> 31)) | 1)
    }

    /// Any number.
    pub fn number(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }

    /// A number below `end`, or 0.
    pub fn below(&mut self, end: usize) -> usize {
        (self.number() % end.max(1) as u64) as usize
    }

    /// One of `all`, which are some.
    pub fn one_of<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }

    /// A number that programs go wrong at, or one near it, or any.
    pub fn odd_number(&mut self) -> u64 {
        let number = *self.one_of(&NUMBERS);
        match self.below(4) {
            0 => self.number(),
            1 => number.wrapping_add(self.number() % 5).wrapping_sub(2),
            _ => number,
        }
    }

    /// Damages `bytes` in one to four places. `other` is another valid input, parts of which are put in.
    pub fn apply(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        for _ in 0..=self.below(4) {
            self.once(bytes, other);
        }
    }

    fn once(&mut self, bytes: &mut Vec<u8>, other: &[u8]) {
        let at = self.below(bytes.len());
        let end = (at + 1 + self.below(64)).min(bytes.len());
        match self.below(12) {
            0 if !bytes.is_empty() => bytes[at] ^= 1 << self.below(8),
            1 => bytes.truncate(at),
            2 => bytes[at..end].fill(0),
            3 => bytes[at..end].fill_with(|| self.number() as u8),
            4 => drop(bytes.drain(at..end)),
            5 => {
                let part = bytes[at..end].to_vec();
                let to = self.below(bytes.len());
                bytes.splice(to..to, part);
            }
            6 | 7 if !other.is_empty() => {
                let from = self.below(other.len());
                let to = (from + 1 + self.below(256)).min(other.len());
                bytes.splice(at..end, other[from..to].iter().copied());
            }
            8 | 9 => {
                let width = *self.one_of(&[1, 2, 4, 8]);
                let at = at / width * width; // Most numbers are aligned.
                let number = self.odd_number().to_le_bytes();
                for (byte, new) in bytes.iter_mut().skip(at).zip(&number[..width]) {
                    *byte = *new;
                }
            }
            10 => {
                let word = self.one_of(&WORDS).as_bytes();
                bytes.splice(at..end.min(at + 1), word.iter().copied());
            }
            _ => self.replace_digits(bytes),
        }
    }

    /// Puts another number in the place of one that is written in digits.
    fn replace_digits(&mut self, bytes: &mut Vec<u8>) {
        let from = self.below(bytes.len());
        let Some(start) = bytes.iter().skip(from).position(u8::is_ascii_digit) else { return };
        let start = from + start;
        let count = bytes[start..].iter().take_while(|byte| byte.is_ascii_digit()).count();
        let word = match self.below(3) {
            0 => (*self.one_of(&WORDS)).to_owned(),
            _ => self.odd_number().to_string(),
        };
        bytes.splice(start..start + count, word.bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_case_is_made_again_by_its_number_and_differs_from_others() {
        let made = |number| {
            let mut bytes = b"{\"count\": 12, \"name\": \"value\"}".to_vec();
            Damage::of_case(number).apply(&mut bytes, b"[1, 2, 3]");
            bytes
        };
        let all: std::collections::HashSet<Vec<u8>> = (0..1000).map(made).collect();
        assert!(all.len() > 800, "{}", all.len());
        (0..1000).for_each(|number| assert_eq!(made(number), made(number)));
        let harmless = (0..1000).filter(|&number| made(number) == made(1001)).count();
        assert!(harmless < 100);
    }

    #[test]
    fn nothing_can_be_damaged_too() {
        for number in 0..1000 {
            let mut bytes = Vec::new();
            Damage::of_case(number).apply(&mut bytes, b"");
        }
    }
}
