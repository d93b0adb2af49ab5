//! Compares how policies divide buffers between two programs that run at once.
//!
//! TIPTOE was published beside LRU-SP, which divides buffers among programs by recency and prefetches
//! aggressively for each. TIPTOE took 7 % less time on average over 11 pairs of programs on 2 disks, and 18 %
//! less for a program paired with itself (from memory; which pairs these were is not known). Here are all pairs
//! of the programs of TIP 1995 that disclose. They run on its machine with 2 disks, both on the one processor,
//! and a pair's time ends when both programs have ended.

use std::fmt::Write as _;

use foretell_policy::{ReaderId, Rules};
use serde::Serialize;

use super::comparators::{by_name, searching};
use super::seconds;
use super::testbed::Testbed;
use super::tip1995::{PITCH_SECTORS, caching, join, slices, speech, testbed};
use crate::machine::Processors;
use crate::machine::program::Program;
use crate::programs::join::Loop;
use crate::programs::slice::Plane;
use crate::programs::{Volume, Workload};

/// The policies that are compared.
pub const RULES: [Rules; 5] =
    [Rules::LRU_SP, Rules::AGGRESSIVE, Rules::TIP2, Rules::TIPTOE, Rules::FORETELL];
/// Disks of the array.
pub const DISKS: usize = 2;

type Maker = fn(&mut Volume, ReaderId) -> Program;

const PROGRAMS: [(&str, Maker); 5] = [
    ("agrep", |volume, reader| searching(3, 1).program(volume, reader)),
    ("slice", |volume, reader| slices::slice(Plane::Xz, true, 1).program(volume, reader)),
    ("join", |volume, reader| {
        join::join(Loop::Disclosed, &testbed(DISKS), 1).program(volume, reader)
    }),
    ("sphinx", |volume, reader| speech::speech(true).program(volume, reader)),
    ("davidson", |volume, reader| caching::davidson(true).program(volume, reader)),
];

/// A pair of programs, and its times.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The programs.
    pub programs: [&'static str; 2],
    /// Seconds until both have ended, by the names of [`RULES`].
    #[serde(serialize_with = "by_name")]
    pub elapsed_s: Vec<(&'static str, f64)>,
}

impl Pair {
    fn of(&self, rules: Rules) -> f64 {
        let found = self.elapsed_s.iter().find(|(name, _)| *name == rules.name);
        found.map_or(f64::NAN, |(_, elapsed_s)| *elapsed_s)
    }

    /// How much longer the pair takes than under LRU-SP, in per cent.
    pub fn beside_lru_sp(&self, rules: Rules) -> f64 {
        100.0 * (self.of(rules) / self.of(Rules::LRU_SP) - 1.0)
    }
}

/// All pairs, as indices of programs.
pub fn places() -> Vec<[usize; 2]> {
    let all = 0..PROGRAMS.len();
    all.clone().flat_map(|one| all.clone().skip(one).map(move |other| [one, other])).collect()
}

/// Runs a pair under each of [`RULES`].
pub fn run(pair: [usize; 2]) -> Pair {
    let [one, other] = pair.map(|at| PROGRAMS[at]);
    let bed = Testbed { processors: Processors::Shared, ..testbed(DISKS) }.for_policies();
    let of = |rules: Rules| {
        let workload = Workload::of(PITCH_SECTORS, &[&one.1, &other.1]);
        (rules.name, seconds(bed.run(workload, rules).end_ns))
    };
    Pair { programs: [one.0, other.0], elapsed_s: RULES.map(of).to_vec() }
}

/// How much longer pairs take than under LRU-SP, in per cent: the mean over all pairs, or with `matched`, over
/// those of a program with itself.
pub fn mean(pairs: &[Pair], rules: Rules, matched: bool) -> f64 {
    let those = pairs.iter().filter(|pair| !matched || pair.programs[0] == pair.programs[1]);
    let ratios: Vec<f64> = those.map(|pair| pair.beside_lru_sp(rules)).collect();
    ratios.iter().sum::<f64>() / ratios.len().max(1) as f64
}

/// The averages, in a sentence.
pub fn summary(pairs: &[Pair]) -> String {
    let of = |rules| {
        let [all, matched] = [false, true].map(|matched| mean(pairs, rules, matched));
        format!(
            "{} changes the time by {all:+.0} % on average, by {matched:+.0} % for a program with itself",
            rules.name
        )
    };
    let parts = [Rules::TIPTOE, Rules::TIP2, Rules::FORETELL].map(of);
    let without = pairs.iter().filter(|pair| !pair.programs.contains(&"davidson"));
    let without: Vec<Pair> = without.cloned().collect();
    let part = mean(&without, Rules::TIPTOE, false);
    format!(
        "Two programs at once, against lru-sp: {}. Without Davidson, whose pairs gain most, it is {part:+.0} % for tiptoe.",
        parts.join("; ")
    )
}

/// The section of the comparators' page.
pub fn markdown(pairs: &[Pair]) -> String {
    let names: Vec<&str> = RULES.iter().map(|rules| rules.name).collect();
    let mut section = format!("{HEAD}{}\n\n", summary(pairs));
    let _ = writeln!(section, "| programs | {} | tiptoe beside lru-sp |", names.join(" | "));
    let _ = writeln!(section, "|---|{}---|", "---|".repeat(names.len()));
    for pair in pairs {
        let [one, other] = pair.programs;
        let times: Vec<String> =
            pair.elapsed_s.iter().map(|(_, elapsed_s)| format!("{elapsed_s:.2}")).collect();
        let (times, beside) = (times.join(" | "), pair.beside_lru_sp(Rules::TIPTOE));
        let _ = writeln!(section, "| {one} and {other} | {times} | {beside:+.1} % |");
    }
    section
}

const HEAD: &str = "
## Two programs at once

Figures are seconds until both programs have ended, on two disks with a cache of 12 MB and one processor.
TIPTOE was published beside `lru-sp`, with other pairs: it took 7 % less time on average over 11 pairs, and 18 % less in pairs of a program with itself.
Here pairs of a program with itself gain less than others, unlike there.
`lru-sp` is built from its description.

`lru-sp` and `aggressive` fetch a block as soon as a buffer is free, so they seldom fetch several blocks with one request, and the others do.
`tip2` gains nearly as much as `tiptoe`, so most of the gain comes from how both value buffers, and from clustering.

";
