//! Orders that look random and follow from a number, so that they are the same in each run.

/// The numbers below `count`, shuffled: Fisher and Yates, with the random numbers of Knuth's MMIX.
pub(crate) fn shuffled(count: u64, mut seed: u64) -> Vec<u64> {
    let mut order: Vec<u64> = (0..count).collect();
    for last in (1..order.len()).rev() {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        order.swap(last, (seed >> 33) as usize % (last + 1));
    }
    order
}
