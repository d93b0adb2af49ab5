//! Every policy on every program, with arrays and caches of several sizes.
//!
//! The machine is that of TIP 1995. Programs disclose as there, but searches all names before the first read. The
//! numbers are elapsed seconds; what they are for is the ratio of the default policy's to the best of the others'.

use std::fmt::Write as _;

use foretell_policy::{Nanos, ReaderId, Rules};
use serde::Serialize;

use super::testbed::Testbed;
use super::tip1995::{caching, join, search, slices, speech, testbed};
use super::{Cell, seconds};
use crate::machine::program::{Disclosure, Program, passes};
use crate::programs::join::Loop;
use crate::programs::search::{SETS_1995, Search};
use crate::programs::slice::Plane;
use crate::programs::{BLOCK_BYTES, Workload};

/// Arrays.
pub const DISKS: [usize; 8] = [1, 2, 3, 4, 6, 8, 10, 15];
/// Caches, MB.
pub const CACHES_MB: [u64; 3] = [4, 12, 64];

/// A program by its name.
#[derive(Clone, Copy, Debug)]
pub struct Subject {
    /// Its name.
    pub name: &'static str,
    workload: fn() -> Workload,
}

/// All programs.
pub const SUBJECTS: [Subject; 10] = {
    const fn subject(name: &'static str, workload: fn() -> Workload) -> Subject {
        Subject { name, workload }
    }
    [
        subject("agrep wood", || searching(0).workload()),
        subject("agrep man3", || searching(1).workload()),
        subject("agrep kern", || searching(3).workload()),
        subject("slice Y-Z", || slices::slice(Plane::Yz, true, 1).workload()),
        subject("slice X-Z", || slices::slice(Plane::Xz, true, 1).workload()),
        subject("slice X-Y", || slices::slice(Plane::Xy, true, 1).workload()),
        subject("join", || join::join(Loop::Disclosed).workload()),
        subject("sphinx", || speech::speech(true).workload()),
        subject("davidson", || caching::davidson(true).workload()),
        subject("davidson and cat", davidson_and_cat),
    ]
};

/// A search that discloses all names before the first read.
pub(super) fn searching(set: usize) -> Search {
    let search = search::search(SETS_1995[set], true, 1);
    Search { disclosed_blocks: u64::MAX, ..search }
}

/// Section 6.2: `cat` of a file of 10 MB, ten times, beside Davidson.
pub(super) fn davidson_and_cat() -> Workload {
    let mut workload = caching::davidson(true).workload();
    let cat = workload.volume.file(10 << 20);
    let steps = passes(cat, 10, Nanos(100_000), Disclosure::None);
    workload.programs.push(Program::new("cat", ReaderId(2), steps));
    workload
}

/// The policy whose results are compared with the others'.
const OURS: Rules = Rules::FORETELL;
/// Per cent by which it may be behind the best of the others without a reason.
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
    /// Of each policy, by its name.
    pub elapsed_s: Vec<(&'static str, f64)>,
}

impl Compared {
    /// By how many per cent the default policy is behind the best of the others; below 0 if it is before it.
    pub fn behind(&self) -> f64 {
        let of = |ours: bool| {
            let times = self.elapsed_s.iter().filter(|(name, _)| (*name == OURS.name) == ours);
            times.map(|(_, elapsed_s)| *elapsed_s).fold(f64::INFINITY, f64::min)
        };
        100.0 * (of(true) / of(false) - 1.0)
    }

    /// Why it is behind, if it is by more than [`BEHIND_MAX`].
    pub fn reason(&self) -> Option<&'static str> {
        let reason = REASONS.iter().find(|(program, _)| self.program.starts_with(program));
        reason.map(|(_, why)| *why).filter(|_| self.behind() > BEHIND_MAX)
    }
}

/// What every policy takes for `subject` with this cache and array.
pub fn compare(subject: Subject, cache_mb: u64, disks: usize) -> Compared {
    let cache_blocks = (cache_mb << 20) / BLOCK_BYTES;
    let bed = Testbed { cache_blocks, ..testbed(disks) };
    let elapsed_s = Rules::ALL
        .map(|rules| (rules.name, seconds(bed.run((subject.workload)(), rules).end_ns)))
        .to_vec();
    Compared { program: subject.name, cache_mb, disks, elapsed_s }
}

/// Programs by the beginning of their names, and why the default policy may be behind there.
const REASONS: [(&str, &str); 4] = [
    (
        "agrep",
        "What wins has the most requests queued at the disks, which sort them. The default trusts a program with half of the \
         cache, or 1,024 blocks, until it has read something, leaves a quarter of the buffers to others, and waits with \
         what is not urgent until disclosures pause. (A tenth of a second decides in the set kern: there it is also \
         chance which file a drive serves first.)",
    ),
    (
        "slice",
        "A plane that lies in sequence is served best in its order. The default queues all that it has buffers for, and a \
         drive that holds five of them begins with another than the one that is waited for, of which this array is \
         not told. It shows where the disks are just fast enough.",
    ),
    (
        "join",
        "On few disks, what is queued early because buffers are free delays what is needed next in the second loop: the \
         array sorts them alike.",
    ),
    (
        "davidson",
        "The horizon that follows the program's own pace leaves more buffers to caching, and is lengthened only when \
         reads come late: on few disks, which are just fast enough, some do.",
    ),
];

/// All cells: the programs, with each cache, on each array.
pub fn places() -> Vec<(Subject, u64, usize)> {
    let with_caches = SUBJECTS.into_iter().flat_map(|subject| CACHES_MB.map(|mb| (subject, mb)));
    with_caches.flat_map(|(subject, mb)| DISKS.map(|disks| (subject, mb, disks))).collect()
}

/// A line for each program and cache: by how much the default policy is behind, or before, the best of the others.
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

/// How many cells are within the bound, and how many before all others.
pub fn summary(table: &[Compared]) -> String {
    let count = |most: f64| table.iter().filter(|cell| cell.behind() <= most).count();
    format!(
        "{} is within {BEHIND_MAX:.0} % of the best of the others in {} of {} cells, and before all of them in {}.",
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
            let off = if cell.reason().is_some() { "**" } else { "" };
            let (mb, disks, behind) = (cell.cache_mb, cell.disks, cell.behind());
            let times = times.join(" | ");
            let _ = writeln!(page, "| {mb} MB | {disks} | {times} | {off}{behind:+.1} %{off} |");
        }
    }
    let _ = writeln!(page, "\n## Where it is behind, and why\n");
    for (program, why) in REASONS {
        let of = |cell: &&Compared| cell.program.starts_with(program) && cell.reason().is_some();
        let found = table.iter().filter(of).map(|cell| {
            let (mb, disks) = (cell.cache_mb, Cell::disks(cell.disks));
            format!("{}, {mb} MB, {disks} ({:+.1} %)", cell.program, cell.behind())
        });
        let found: Vec<String> = found.collect();
        if !found.is_empty() {
            let _ = writeln!(page, "* {why}\n  {}.", found.join("; "));
        }
    }
    page
}

const HEAD: &str = "\
# Every policy on every program

Written by `foretell sim reproduce comparators --out docs`: elapsed seconds, **simulated**, of the programs of TIP 1995
on its machine, with arrays of 1 to 15 disks and caches of 4, 12 and 64 MB. `lru` prefetches nothing; the others are told
the same. What they are is in the table of `policy/src/rules.rs`.

";
