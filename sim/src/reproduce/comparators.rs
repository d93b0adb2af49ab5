//! Every policy on every program, with arrays and caches of several sizes.
//!
//! The machine is that of TIP 1995. Programs disclose as there, but searches all names before the first read. The
//! numbers are elapsed seconds; what they are for is the ratio of the default policy's to the best of the others'.

use foretell_policy::{Nanos, ReaderId, Rules};

use super::seconds;
use super::testbed::Testbed;
use super::tip1995::{caching, join, search, slices, speech, testbed};
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
        subject("agrep wood", || searching(0)),
        subject("agrep man3", || searching(1)),
        subject("agrep kern", || searching(3)),
        subject("slice Y-Z", || slices::slice(Plane::Yz, true, 1).workload()),
        subject("slice X-Z", || slices::slice(Plane::Xz, true, 1).workload()),
        subject("slice X-Y", || slices::slice(Plane::Xy, true, 1).workload()),
        subject("join", || join::join(Loop::Disclosed).workload()),
        subject("sphinx", || speech::speech(true).workload()),
        subject("davidson", || caching::davidson(true).workload()),
        subject("davidson and cat", davidson_and_cat),
    ]
};

fn searching(set: usize) -> Workload {
    let search = search::search(SETS_1995[set], true, 1);
    Search { disclosed_blocks: u64::MAX, ..search }.workload()
}

/// Section 6.2: `cat` of a file of 10 MB, ten times, beside Davidson.
fn davidson_and_cat() -> Workload {
    let mut workload = caching::davidson(true).workload();
    let cat = workload.volume.file(10 << 20);
    let steps = passes(cat, 10, Nanos(100_000), Disclosure::None);
    workload.programs.push(Program::new("cat", ReaderId(2), steps));
    workload
}

/// One run of the table.
#[derive(Clone, Copy, Debug)]
pub struct Run {
    /// The program.
    pub subject: Subject,
    /// Disks.
    pub disks: usize,
    /// Cache, MB.
    pub cache_mb: u64,
    /// The policy.
    pub rules: Rules,
}

/// All runs, those of one cell of the table side by side.
pub fn runs() -> Vec<Run> {
    let mut runs = Vec::new();
    for subject in SUBJECTS {
        for cache_mb in CACHES_MB {
            for disks in DISKS {
                runs.extend(Rules::ALL.map(|rules| Run { subject, disks, cache_mb, rules }));
            }
        }
    }
    runs
}

impl Run {
    /// Elapsed seconds, until the last program has ended.
    pub fn elapsed_s(&self) -> f64 {
        let cache_blocks = (self.cache_mb << 20) / BLOCK_BYTES;
        let bed = Testbed { cache_blocks, ..testbed(self.disks) };
        seconds(bed.run((self.subject.workload)(), self.rules).end_ns)
    }
}
