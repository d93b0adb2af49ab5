//! Repeatable random numbers: SplitMix64 (Steele, Lea and Flood, 2014), and Zipf's law by rejection-inversion
//! (Hörmann and Derflinger, 1996).

/// A generator of uniform numbers.
#[derive(Clone, Debug)]
pub struct Random(u64);

impl Random {
    /// The generator with the seed `seed`.
    pub fn new(seed: u64) -> Self {
        Random(seed)
    }

    /// A uniform 64-bit number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let value = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        let value = (value ^ (value >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        value ^ (value >> 31)
    }

    /// A number below `bound`.
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// A number in `[0, 1)`.
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1u64 << 53) as f64
    }

    /// The numbers below `length`, in random order.
    pub fn permutation(&mut self, length: u64) -> Vec<u64> {
        let mut order: Vec<u64> = (0..length).collect();
        for last in (1..order.len()).rev() {
            order.swap(last, self.below(last as u64 + 1) as usize);
        }
        order
    }
}

/// Draws ranks from `0..ranks`, the i-th with a probability proportional to `(i + 1)^-exponent`.
#[derive(Clone, Copy, Debug)]
pub struct Zipf {
    exponent: f64,
    ranks: f64,
    first: f64,
    last: f64,
    shortcut: f64,
}

impl Zipf {
    /// `exponent` must not be 1.
    pub fn new(ranks: u64, exponent: f64) -> Self {
        let ranks = ranks as f64;
        let mut zipf = Zipf { exponent, ranks, first: 0.0, last: 0.0, shortcut: 0.0 };
        zipf.first = zipf.integral(1.5) - 1.0;
        zipf.last = zipf.integral(ranks + 0.5);
        zipf.shortcut = 2.0 - zipf.inverse(zipf.integral(2.5) - 2f64.powf(-exponent));
        zipf
    }

    fn integral(&self, x: f64) -> f64 {
        x.powf(1.0 - self.exponent) / (1.0 - self.exponent)
    }

    fn inverse(&self, y: f64) -> f64 {
        (y * (1.0 - self.exponent)).powf(1.0 / (1.0 - self.exponent))
    }

    /// Draws a rank.
    pub fn draw(&self, random: &mut Random) -> u64 {
        loop {
            let u = self.last + random.unit() * (self.first - self.last);
            let x = self.inverse(u);
            let rank = (x + 0.5).floor().clamp(1.0, self.ranks);
            let accepted = rank - x <= self.shortcut
                || u >= self.integral(rank + 0.5) - rank.powf(-self.exponent);
            if accepted {
                return rank as u64 - 1;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranks_are_drawn_by_their_weights() {
        let (zipf, mut random) = (Zipf::new(1000, 0.99), Random::new(1));
        let mut drawn = [0u32; 1000];
        let draws = 1_000_000;
        (0..draws).for_each(|_| drawn[zipf.draw(&mut random) as usize] += 1);
        let weights: f64 = (1..=1000).map(|rank| f64::from(rank).powf(-0.99)).sum();
        for rank in [1usize, 2, 3, 10, 100] {
            let share = (rank as f64).powf(-0.99) / weights;
            let seen = f64::from(drawn[rank - 1]) / f64::from(draws);
            assert!((seen / share - 1.0).abs() < 0.1, "{rank}: {seen} {share}");
        }
    }
}
