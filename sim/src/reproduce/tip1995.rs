//! The figures of TIP 1995.

use foretell_policy::queue::Order;
use foretell_policy::{Nanos, Rules};

use super::testbed::Testbed;
use super::{Basis, Cell, Outcome, Panel, Plot, seconds};
use crate::device::DiskParameters;
use crate::machine::read_ahead::ReadAheadSpec;
use crate::machine::report::Report;
use crate::machine::server::{PREFETCHES_PER_DISK, Priority};
use crate::programs::Scattering;
use crate::programs::davidson::Davidson;
use crate::programs::join::{Join, Loop};
use crate::programs::search::{FileSet, SETS_1995, Search};
use crate::programs::slice::{Plane, Slice};
use crate::programs::speech::Speech;

const PITCH_SECTORS: u64 = 16;

/// The DEC 3000/500 of section 3.1 with so many disks.
pub fn testbed(disks: usize) -> Testbed {
    Testbed {
        disk: DiskParameters::by_name("hpc2247").expect("invariant: it is built in"),
        disks,
        pitch_sectors: PITCH_SECTORS,
        order: Order::Scan,
        prefetches_per_disk: PREFETCHES_PER_DISK,
        priority: Priority::Arrival,
        page_bytes: 8192,
        cache_blocks: 1536,
        cluster_blocks: 8,
        hit: Nanos(243_000),
        driver: (Nanos(580_000), Nanos(154_000)),
        open: Nanos(500_000),
        read_ahead: ReadAheadSpec::OSF1,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    fn env(name: &str, default: f64) -> f64 {
        std::env::var(name).ok().and_then(|v| v.parse().ok()).unwrap_or(default)
    }
    fn ms(name: &str, default: f64) -> Nanos {
        Nanos((env(name, default) * 1e6) as u64)
    }
    fn bed(disks: usize) -> Testbed {
        let mut t = testbed(disks);
        t.open = ms("OPEN", 0.5);
        t
    }
    const D: [usize; 7] = [1, 2, 3, 4, 6, 10, 15];

    #[test]
    fn agrep() {
        for set in SETS_1995 {
            for (mode, order) in [("none", Order::Scan), ("scan", Order::Scan), ("fifo", Order::Fifo)] {
                let mut line = format!("agrep {:6} {mode} ", set.name);
                for disks in D {
                    let s = Search {
                        set,
                        scattering: Scattering { shuffled: env("SHUFFLED", 1.0) > 0.0, spread: env("SPREAD", 1.0) },
                        block_cpu: ms("BLOCK", 0.5),
                        disclosed_blocks: if mode == "none" { 0 } else { 512 },
                        pitch_sectors: 16,
                        seed: 1,
                    };
                    let mut t = bed(disks);
                    t.order = order;
                    let r = t.run(s.workload(), Rules::TIP1);
                    line += &format!(" {:6.2} ({:.2})", seconds(r.end_ns), seconds(r.programs[0].tally.stall_ns));
                }
                println!("{line}");
            }
        }
    }
    #[test]
    fn xds() {
        for plane in Plane::ALL {
            for disclosed in [false, true] {
                let mut line = format!("xds {:6} {disclosed} ", plane.name());
                for disks in D {
                    let s = Slice {
                        side: 512, plane, block_cpu: ms("SLICE", 0.1), picture_cpu: ms("PICTURE", 700.0), disclosed, pitch_sectors: 16, seed: 1 };
                    let r = bed(disks).run(s.workload(), Rules::TIP1);
                    line += &format!(" {:6.2} ({:.2})", seconds(r.end_ns), seconds(r.programs[0].tally.stall_ns));
                }
                println!("{line}");
            }
        }
    }
    #[test]
    fn join() {
            for form in Loop::ALL {
                let mut line = format!("join {:15} ", form.name());
                for disks in D {
                    let s = Join { form, tuple_cpu: ms("TUPLE", 1.0), match_cpu: ms("MATCH", 1.0), matches_per_chain: env("CHAIN", 4.0) as u64, pitch_sectors: 16, seed: 1 };
                    let r = bed(disks).run(s.workload(), Rules::TIP1);
                    let t = r.programs[0].tally;
                    line += &format!(" {:6.2} ({:.2}) {}", seconds(r.end_ns), seconds(t.stall_ns), r.devices[0].demand_requests + r.devices[0].prefetch_requests);
                }
                println!("{line}");
            }
    }
    #[test]
    fn speech() {
            for disclosed in [false, true] {
                let mut line = format!("sphinx {disclosed} ");
                for disks in D {
                    let s = Speech { frame_cpu: ms("FRAME", 30.0), frames_per_burst: env("FPB", 4.0) as u64, burst_reads: env("BURST", 6.0), disclosed, pitch_sectors: 16, seed: 1 };
                    let r = bed(disks).run(s.workload(), Rules::TIP1);
                    let t = r.programs[0].tally;
                    line += &format!(" {:6.2} ({:.2})", seconds(r.end_ns), seconds(t.stall_ns));
                }
                println!("{line}");
            }
    }
    #[test]
    fn david() {
            for (disclosed, rules) in [(false, Rules::TIP1), (true, Rules::TIP1), (true, Rules::TIP2), (true, Rules::FORETELL), (false, Rules::TIP2)] {
                let mut line = format!("davidson {:8} {disclosed} ", rules.name);
                for disks in D {
                    let s = Davidson { passes: 20, block_cpu: ms("DAVID", 0.42), disclosed, pitch_sectors: 16 };
                    let r = bed(disks).run(s.workload(), rules);
                    let t = r.programs[0].tally;
                    line += &format!(" {:6.2} ({:.2})", seconds(r.end_ns), seconds(t.stall_ns));
                }
                println!("{line}");
            }
    }
}
