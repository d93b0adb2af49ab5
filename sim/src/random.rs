//! Repeatable random numbers: a small generator and a hash, both SplitMix64 (Steele, Lea and Flood, 2014).
//!
//! Models need numbers that look random and are the same for the same seed, without a dependency. Neither
//! function is fit for cryptography.

/// The increment of SplitMix64: 2^64 divided by the golden ratio, made odd.
const GOLDEN_GAMMA: u64 = 0x9E37_79B9_7F4A_7C15;

/// Scrambles `value`: a bijection on 64 bits in which every input bit moves every output bit.
pub fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    value ^ (value >> 31)
}

/// A number that depends only on `parts` and their order.
pub fn hash(parts: &[u64]) -> u64 {
    parts.iter().fold(GOLDEN_GAMMA, |sum, &part| mix(sum.wrapping_add(GOLDEN_GAMMA) ^ mix(part)))
}

/// A generator of uniform 64-bit numbers with 64 bits of state.
#[derive(Clone, Debug)]
pub struct SplitMix64(u64);

impl SplitMix64 {
    /// The generator with the seed `seed`.
    pub fn new(seed: u64) -> Self {
        SplitMix64(seed)
    }

    /// The next number of the sequence.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(GOLDEN_GAMMA);
        mix(self.0)
    }

    /// A uniform number in `[0, 1)` with 53 random bits.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// A number below `bound`, or 0 if `bound` is 0; the bias is below `bound` / 2^64.
    pub fn below(&mut self, bound: u64) -> u64 {
        scale(self.next_u64(), bound)
    }

    /// A draw from the normal distribution of mean 0 and deviation 1 (Box and Muller, 1958).
    pub fn normal(&mut self) -> f64 {
        let radius = (-2.0 * (1.0 - self.unit()).ln()).sqrt();
        radius * (std::f64::consts::TAU * self.unit()).cos()
    }
}

/// Maps a uniform 64-bit number to one below `bound` without division.
pub fn scale(uniform: u64, bound: u64) -> u64 {
    ((u128::from(uniform) * u128::from(bound)) >> 64) as u64
}

/// A pseudorandom permutation of the numbers below `count`: a Feistel network of four rounds over the next even
/// power of two, repeated until the result is below `count` (Black and Rogaway, 2002).
pub fn permuted(number: u64, count: u64, seed: u64) -> u64 {
    let bits = u64::BITS - count.saturating_sub(1).leading_zeros();
    let half = bits.div_ceil(2).max(1);
    let mask = (1u64 << half) - 1;
    let mut number = number;
    loop {
        let (mut left, mut right) = (number >> half, number & mask);
        for round in 0..4 {
            let scrambled = mix(seed ^ mix(right << 3 | round)) & mask;
            (left, right) = (right, left ^ scrambled);
        }
        number = left << half | right;
        if number < count {
            return number;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_sequence_is_the_published_one() {
        // First outputs for seed 1234567, as widely published for this generator.
        let mut random = SplitMix64::new(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }

    #[test]
    fn draws_are_where_they_should_be() {
        let mut random = SplitMix64::new(7);
        let draws = 100_000;
        let mean = (0..draws).map(|_| random.unit()).sum::<f64>() / f64::from(draws);
        assert!((mean - 0.5).abs() < 0.01, "{mean}");
        let normal: Vec<f64> = (0..draws).map(|_| random.normal()).collect();
        let mean = normal.iter().sum::<f64>() / f64::from(draws);
        let square = normal.iter().map(|x| x * x).sum::<f64>() / f64::from(draws);
        assert!(mean.abs() < 0.02 && (square - 1.0).abs() < 0.03, "{mean} {square}");
        assert!((0..draws).all(|_| random.below(13) < 13));
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn a_hash_depends_on_each_part_and_their_order() {
        assert_eq!(hash(&[1, 2]), hash(&[1, 2]));
        assert_ne!(hash(&[1, 2]), hash(&[2, 1]));
        assert_ne!(hash(&[1, 2]), hash(&[1, 2, 0]));
    }

    #[test]
    fn a_permutation_has_each_number_once() {
        for count in [1, 2, 3, 100, 1000, 4096] {
            let mut all: Vec<u64> = (0..count).map(|n| permuted(n, count, 9)).collect();
            if count == 1000 {
                let rising = all.windows(2).filter(|pair| pair[0] < pair[1]).count();
                assert!((450..550).contains(&rising), "{rising}");
            }
            all.sort_unstable();
            assert!(all.into_iter().eq(0..count));
        }
    }
}
