//! Two programs at once: how buffers are divided among them.
//!
//! TIPTOE was published beside LRU-SP, which divides buffers among programs by recency, with each of them aggressive:
//! it took 7 % less time on average over 11 pairs of programs, and 18 % less where both were the same program, on 2 disks
//! (memory; which pairs those were is not known here). These are all pairs of the programs of TIP 1995 that disclose, on
//! its machine with 2 disks, both on its one processor; a pair takes until both have ended.

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

/// What divides.
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

/// A pair, and what it takes.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Pair {
    /// The programs.
    pub programs: [&'static str; 2],
    /// Until both have ended, seconds, by the names of [`RULES`].
    #[serde(serialize_with = "by_name")]
    pub elapsed_s: Vec<(&'static str, f64)>,
}

impl Pair {
    fn of(&self, rules: Rules) -> f64 {
        let found = self.elapsed_s.iter().find(|(name, _)| *name == rules.name);
        found.map_or(f64::NAN, |(_, elapsed_s)| *elapsed_s)
    }

    /// By how many per cent it takes longer than under LRU-SP.
    pub fn beside_lru_sp(&self, rules: Rules) -> f64 {
        100.0 * (self.of(rules) / self.of(Rules::LRU_SP) - 1.0)
    }
}

/// All pairs, as numbers of programs.
pub fn places() -> Vec<[usize; 2]> {
    let all = 0..PROGRAMS.len();
    all.clone().flat_map(|one| all.clone().skip(one).map(move |other| [one, other])).collect()
}

/// What a pair takes under each of the rules.
pub fn run(pair: [usize; 2]) -> Pair {
    let [one, other] = pair.map(|at| PROGRAMS[at]);
    let bed = Testbed { processors: Processors::Shared, ..testbed(DISKS) }.for_policies();
    let of = |rules: Rules| {
        let workload = Workload::of(PITCH_SECTORS, &[&one.1, &other.1]);
        (rules.name, seconds(bed.run(workload, rules).end_ns))
    };
    Pair { programs: [one.0, other.0], elapsed_s: RULES.map(of).to_vec() }
}

/// By how many per cent the mean pair takes longer than under LRU-SP: of all pairs, or of those of a program with
/// itself.
pub fn mean(pairs: &[Pair], rules: Rules, matched: bool) -> f64 {
    let those = pairs.iter().filter(|pair| !matched || pair.programs[0] == pair.programs[1]);
    let ratios: Vec<f64> = those.map(|pair| pair.beside_lru_sp(rules)).collect();
    ratios.iter().sum::<f64>() / ratios.len().max(1) as f64
}

/// What it comes to.
pub fn summary(pairs: &[Pair]) -> String {
    let of = |rules| {
        let [all, matched] = [false, true].map(|matched| mean(pairs, rules, matched));
        format!("{} takes {all:+.0} % of time on average, {matched:+.0} % with itself", rules.name)
    };
    let parts = [Rules::TIPTOE, Rules::TIP2, Rules::FORETELL].map(of);
    let without = pairs.iter().filter(|pair| !pair.programs.contains(&"davidson"));
    let without: Vec<Pair> = without.cloned().collect();
    let part = mean(&without, Rules::TIPTOE, false);
    format!(
        "Of two programs at once, beside lru-sp: {}. Without Davidson, whose pairs gain most, it is {part:+.0} % for tiptoe.",
        parts.join("; ")
    )
}

/// A section of the page.
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

Two disks, a cache of 12 MB, one processor; seconds until both have ended. TIPTOE was published beside `lru-sp`, and took
7 % less time on average over 11 pairs of programs, 18 % less in pairs of a program with itself. These are other pairs;
and `lru-sp` and `aggressive` fetch a block as soon as a buffer can be had for it, so that they seldom fetch several
with one request, which the others do. `lru-sp` is built here from its description. That `tip2` gains nearly as much as
`tiptoe` says that it is by how buffers are valued, and by clusters, and hardly by what tiptoe adds. That pairs of a program
with itself gain less than others is not so where TIPTOE was published.

";
