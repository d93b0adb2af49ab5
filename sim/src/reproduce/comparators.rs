//! Every policy on every program, with arrays and caches of several sizes.
//!
//! The machine is that of TIP 1995. Programs disclose as there, but searches all names before the first read. The
//! numbers are elapsed seconds; what they are for is the ratio of the default policy's to the best of the others'.

use foretell_policy::{DeviceId, FileId, Nanos, ReaderId, Rules};

use super::testbed::Testbed;
use super::tip1995::{caching, join, search, slices, speech, testbed};
use super::{Basis, Cell, seconds};
use crate::machine::program::{Disclosure, Program, StoredFile, passes};
use crate::programs::join::Loop;
use crate::programs::search::{SETS_1995, Search};
use crate::programs::slice::Plane;
use crate::programs::{BLOCK_BYTES, DEVICE, Workload};

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
#[test]
fn explore() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let all = runs();
    let all: Vec<&[Run]> =
        all.chunks(Rules::ALL.len()).filter(|c| c[0].subject.name.contains(&only)).collect();
    let next = std::sync::atomic::AtomicUsize::new(0);
    std::thread::scope(|s| {
        for _ in 0..2 {
            s.spawn(|| {
                loop {
                    let at = next.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
                    let Some(cell) = all.get(at) else { break };
                    let times: Vec<f64> = cell.iter().map(Run::elapsed_s).collect();
                    let best = times[..times.len() - 1].iter().copied().fold(f64::MAX, f64::min);
                    let mut line = format!(
                        "ROW {:17} {:3} MB {:2} disks",
                        cell[0].subject.name, cell[0].cache_mb, cell[0].disks
                    );
                    for t in &times {
                        line += &format!(" {t:7.2}");
                    }
                    println!("{line}  {:+.1} %", 100.0 * (times[times.len() - 1] / best - 1.0));
                }
            });
        }
    });
}
#[test]
fn look() {
    let only = std::env::var("ONLY").unwrap_or_default();
    let n = |v: &str| std::env::var(v).unwrap().parse::<u64>().unwrap();
    for subject in SUBJECTS.iter().filter(|s| s.name.contains(&only)) {
        for rules in Rules::ALL {
            let bed = Testbed { cache_blocks: n("MB") * 128, ..testbed(n("DISKS") as usize) };
            let r = bed.run((subject.workload)(), rules);
            let d = r.devices[0];
            let t = r.programs[0].tally;
            println!(
                "ROW {:10} {:14} {:7.3} cpu {:6.3} stall {:6.3} hits {:5} late {:5} miss {:5} | pf {:5} waste {:5} | busy {:7.3} max {:6.3} req {:5}+{:5} prom {} {:.1} MB",
                subject.name,
                rules.name,
                seconds(r.end_ns),
                seconds(t.cpu_ns),
                seconds(t.stall_ns),
                t.hits,
                t.late,
                t.misses,
                r.counts.prefetched,
                r.counts.wasted,
                seconds(d.busy_ns),
                seconds(d.busiest_disk_ns),
                d.demand_requests,
                d.prefetch_requests,
                d.promoted,
                d.bytes as f64 / 1e6
            );
        }
    }
}
