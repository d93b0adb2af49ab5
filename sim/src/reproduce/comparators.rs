//! Compares every policy on every program, with arrays and caches of several sizes.
//!
//! The machine is that of TIP 1995. Programs disclose as in the paper, except that searches disclose all names
//! before the first read. The numbers are elapsed seconds. The result is the ratio of the default policy to the
//! best of the others ([`Compared::behind`]).

use std::fmt::Write as _;

use foretell_policy::{Nanos, ReaderId, Rules};
use serde::Serialize;

use super::page::sentence_lines;
use super::testbed::Testbed;
use super::tip1995::{caching, join, search, slices, speech, testbed};
use super::{Cell, seconds};
use crate::machine::program::{Disclosure, Program, passes};
use crate::programs::join::Loop;
use crate::programs::search::{SETS_1995, Search};
use crate::programs::slice::Plane;
use crate::programs::{BLOCK_BYTES, Workload};
use crate::replay::Work;

/// Sizes of arrays, in disks.
pub const DISKS: [usize; 8] = [1, 2, 3, 4, 6, 8, 10, 15];
/// Sizes of caches, MB.
pub const CACHES_MB: [u64; 3] = [4, 12, 64];

/// A program under test.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Its name.
    pub name: &'static str,
    /// Makes the program for a machine. The seed determines layouts, planes and keys.
    workload: fn(u64, &Testbed) -> Workload,
    /// Number of seeds over which a time is averaged.
    seeds: u64,
    /// Whether a hit, a fetch and an open take today's processor time instead of the paper's.
    is_today: bool,
}

/// All programs.
pub const SUBJECTS: [Subject; 15] = {
    const fn fixed(name: &'static str, workload: fn(u64, &Testbed) -> Workload) -> Subject {
        Subject { name, workload, seeds: 1, is_today: false }
    }
    const fn drawn(name: &'static str, workload: fn(u64, &Testbed) -> Workload) -> Subject {
        Subject { seeds: 3, ..fixed(name, workload) }
    }
    const fn today(name: &'static str, subject: Subject) -> Subject {
        Subject { name, is_today: true, ..subject }
    }
    let kern = drawn("agrep kern", |seed, _| searching(3, seed).workload());
    let across = drawn("slice X-Z", |seed, _| slices::slice(Plane::Xz, true, seed).workload());
    let join = drawn("join", |seed, bed| join::join(Loop::Disclosed, bed, seed).workload());
    let davidson = fixed("davidson", |_, _| caching::davidson(true).workload());
    [
        drawn("agrep wood", |seed, _| searching(0, seed).workload()),
        drawn("agrep man3", |seed, _| searching(1, seed).workload()),
        drawn("agrep incl", |seed, _| searching(2, seed).workload()),
        kern,
        drawn("slice Y-Z", |seed, _| slices::slice(Plane::Yz, true, seed).workload()),
        across,
        drawn("slice X-Y", |seed, _| slices::slice(Plane::Xy, true, seed).workload()),
        join,
        fixed("sphinx", |_, _| speech::speech(true).workload()),
        davidson,
        fixed("davidson and cat", |_, _| davidson_and_cat()),
        today("agrep kern, today", kern),
        today("slice X-Z, today", across),
        today("join, today", join),
        today("davidson, today", davidson),
    ]
};

/// A search that discloses all names before the first read. Its program and its directory are in memory.
pub(super) fn searching(set: usize, seed: u64) -> Search {
    let search = search::warm(search::search(SETS_1995[set], true, seed));
    Search { disclosed_blocks: u64::MAX, ..search }
}

/// Section 6.2: Davidson, beside ten passes of `cat` over a file of 10 MB.
fn davidson_and_cat() -> Workload {
    let mut workload = caching::davidson(true).workload();
    let cat = workload.volume.file(10 << 20);
    let steps = passes(cat, 10, Nanos(100_000), Disclosure::None);
    workload.programs.push(Program::new("cat", ReaderId(2), steps));
    workload
}

/// The policy that is compared with the best of the others.
const OURS: Rules = Rules::FORETELL;
/// How far the default may be behind without a reason, in per cent.
pub const BEHIND_MAX: f64 = 2.0;

/// One cell of the table: elapsed seconds of each policy, in the order of [`Rules::ALL`].
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Compared {
    /// The program.
    pub program: &'static str,
    /// Cache, MB.
    pub cache_mb: u64,
    /// Disks.
    pub disks: usize,
    /// By the names of the policies.
    #[serde(serialize_with = "by_name")]
    pub elapsed_s: Vec<(&'static str, f64)>,
}

impl Compared {
    /// How much longer the default policy takes than the best of the others, in per cent; below 0 if it is faster.
    pub fn behind(&self) -> f64 {
        let of = |ours: bool| {
            let times = self.elapsed_s.iter().filter(|(name, _)| (*name == OURS.name) == ours);
            times.map(|(_, elapsed_s)| *elapsed_s).fold(f64::INFINITY, f64::min)
        };
        100.0 * (of(true) / of(false) - 1.0)
    }

    /// Whether the default is behind by more than [`BEHIND_MAX`].
    pub fn is_behind(&self) -> bool {
        self.behind() > BEHIND_MAX
    }

    /// The reason, if the default is behind by no more than the reason's bound for this program.
    pub fn reason(&self) -> Option<&'static Reason> {
        let explains = |&(name, most): &(&str, f64)| name == self.program && self.behind() <= most;
        let of_it = |reason: &&Reason| reason.programs.iter().any(explains);
        REASONS.iter().find(of_it).filter(|_| self.is_behind())
    }
}

/// Runs `subject` under every policy, with this cache and array.
pub fn compare(subject: Subject, cache_mb: u64, disks: usize) -> Compared {
    let cache_blocks = (cache_mb << 20) / BLOCK_BYTES;
    let mut bed = Testbed { cache_blocks, ..testbed(disks) }.for_policies();
    if subject.is_today {
        let Work { hit, driver, open, .. } = Work::default();
        bed = Testbed { hit, driver: (driver, Nanos::ZERO), open, ..bed };
    }
    let mean_s = |rules: Rules| {
        let run = |seed| seconds(bed.run((subject.workload)(seed, &bed), rules).end_ns);
        (1..=subject.seeds).map(run).sum::<f64>() / subject.seeds as f64
    };
    let elapsed_s = Rules::ALL.map(|rules| (rules.name, mean_s(rules))).to_vec();
    Compared { program: subject.name, cache_mb, disks, elapsed_s }
}

/// Serializes figures as a map from policy to seconds.
pub(super) fn by_name<S: serde::Serializer>(
    figures: &[(&'static str, f64)],
    serializer: S,
) -> Result<S::Ok, S::Error> {
    serializer.collect_map(figures.iter().copied())
}

/// Why the default policy is behind.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Reason {
    /// The programs that it explains. With each, the most per cent by which the default may be [behind](Compared::behind) and
    /// this reason still holds. These bounds lie just above the measured values.
    programs: &'static [(&'static str, f64)],
    why: &'static str,
}

const REASONS: [Reason; 4] = [
    Reason {
        programs: &[("agrep wood", 9.0), ("agrep man3", 37.0)],
        why: "The policies that win keep the most requests queued at the disks, which sort them. Until a program \
         has read something, the default trusts it with half of the cache, or 1,024 blocks. It also leaves \
         a quarter of the buffers to others, and holds back what is not urgent until disclosures pause.",
    },
    Reason {
        programs: &[
            ("slice Y-Z", 9.0),
            ("slice X-Z", 10.0),
            ("slice X-Y", 8.0),
            ("slice X-Z, today", 7.0),
        ],
        why: "A plane that lies in sequence is served best in its order. The default queues as much as it has \
         buffers for, and a drive that holds five requests may begin with another than the one the program \
         waits for. It shows where the disks are just fast enough.",
    },
    Reason {
        programs: &[("join", 5.0), ("join, today", 3.0)],
        why: "On few disks, requests that are queued early because buffers are free delay those that the second \
         loop needs next. The array sorts both alike.",
    },
    Reason {
        programs: &[("davidson", 3.0), ("davidson and cat", 15.0), ("davidson, today", 12.0)],
        why: "The horizon follows the program's own pace and leaves more buffers to caching; it grows only when \
         reads come late, and on few disks some do. Beside cat, cat gets these buffers. With a small cache, \
         a device that cannot keep up is given a queue whose buffers would have been worth more as cache.",
    },
];

/// All cells: each program with each cache on each array.
pub fn places() -> Vec<(Subject, u64, usize)> {
    let with_caches = SUBJECTS.into_iter().flat_map(|subject| CACHES_MB.map(|mb| (subject, mb)));
    with_caches.flat_map(|(subject, mb)| DISKS.map(|disks| (subject, mb, disks))).collect()
}

/// A line for each program and cache: how far the default policy is behind the best of the others.
pub fn lines(table: &[Compared]) -> Vec<String> {
    let mut head = format!("{:<18} {:>6}", "behind the best, %", "cache");
    DISKS.iter().for_each(|&disks| {
        let _ = write!(head, " {:>9}", Cell::disks(disks));
    });
    let mut lines = vec![head];
    for row in
        table.chunk_by(|one, next| (one.program, one.cache_mb) == (next.program, next.cache_mb))
    {
        let mut line = format!("{:<18} {:>3} MB", row[0].program, row[0].cache_mb);
        row.iter().for_each(|cell| {
            let _ = write!(line, " {:>+9.1}", cell.behind());
        });
        lines.push(line);
    }
    lines
}

/// The number of cells within the bound, and of those in which the default is the fastest.
pub fn summary(table: &[Compared]) -> String {
    let count = |most: f64| table.iter().filter(|cell| cell.behind() <= most).count();
    format!(
        "{} is within {BEHIND_MAX:.0} % of the best of the others in {} of {} cells, and faster than all of them in {}.",
        OURS.name,
        count(BEHIND_MAX),
        table.len(),
        count(-0.05),
    )
}

/// The page.
pub fn markdown(table: &[Compared]) -> String {
    let mut page = format!("{HEAD}{}\n", summary(table));
    for cells in table.chunk_by(|one, next| one.program == next.program) {
        let _ = writeln!(page, "\n## {}\n", cells[0].program);
        let names: Vec<&str> = cells[0].elapsed_s.iter().map(|(name, _)| *name).collect();
        let _ = writeln!(page, "| cache | disks | {} | behind |", names.join(" | "));
        let _ = writeln!(page, "|---|---|{}---|", "---|".repeat(names.len()));
        for cell in cells {
            let times = cell.elapsed_s.iter().map(|(_, elapsed_s)| format!("{elapsed_s:.2}"));
            let times: Vec<String> = times.collect();
            let off = if cell.is_behind() { "**" } else { "" };
            let (mb, disks, behind) = (cell.cache_mb, cell.disks, cell.behind());
            let times = times.join(" | ");
            let _ = writeln!(page, "| {mb} MB | {disks} | {times} | {off}{behind:+.1} %{off} |");
        }
    }
    let _ = writeln!(page, "\n## Where foretell is behind, and why\n");
    let behind = |reason: Option<&Reason>| {
        let of = |cell: &&Compared| cell.is_behind() && cell.reason() == reason;
        let found = table.iter().filter(of).map(|cell| {
            let (mb, disks) = (cell.cache_mb, Cell::disks(cell.disks));
            format!("{}, {mb} MB, {disks} ({:+.1} %)", cell.program, cell.behind())
        });
        found.collect::<Vec<String>>().join("; ")
    };
    for reason in &REASONS {
        let found = behind(Some(reason));
        if !found.is_empty() {
            let _ = writeln!(page, "* {}\n  {found}.", sentence_lines(reason.why));
        }
    }
    let found = behind(None);
    if !found.is_empty() {
        let _ = writeln!(page, "* Not explained: {found}.");
    }
    page
}

const HEAD: &str = "\
# How every policy does on every program

Written by `foretell sim reproduce comparators --out docs/results`.
The tables have elapsed seconds, **simulated**, on arrays of 1 to 15 disks with caches of 4, 12 and 64 MB.
*Behind* is how much longer the default policy, `foretell`, takes than the best of the others; it is bold above 2 %.

The machine and the programs are those of TIP 1995, but indirect blocks are not read and hints cost nothing.
`policy/src/rules.rs` describes the policies: `lru` prefetches nothing, and all others get the same hints.
Times of searches and slices are the mean over three layouts or planes.
With two programs, the time runs until both have ended.
In rows with *today*, a hit, a fetch and an open take the processor 2, 10 and 5 µs instead of 243, 580 and 250 µs.
All files of `agrep kern` fit in each cache, so its rows repeat.

The weights by which the default detects a device that cannot keep up were chosen on some of these programs.
The table is therefore no independent test of it.

";
