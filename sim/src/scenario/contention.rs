//! Competition for buffers between programs that hint and one that does not (TIP 1995, section 6.2, figure 11).
//!
//! Davidson reads a file of 17 MB in sequence, again and again, and discloses each pass at the start of the one
//! before. Beside it, `cat` reads a file of 10 MB again and again, without hints. If the cache cannot hold
//! `cat`'s file, `cat` gains nothing from buffers, and each further buffer lowers Davidson's miss ratio. Once
//! the file fits, `cat` gains more from those buffers than Davidson does. Beyond that size, the remaining
//! buffers go to Davidson.
//!
//! Differences from the paper:
//!
//! * Times are those of the usual model (`T_hit` 243 µs, `T_driver` 580 µs, `T_disk` 15 ms on any number of
//!   requests at once; from memory of the authors' other reports) instead of a measured machine.
//! * There is no read-ahead for `cat`, so a pass that misses takes 13 times as long as one that hits. The
//!   paper's ratio is not known.
//! * `cat`'s file fits from 11 MB on, since the rest needs little more than the prefetch horizon. In the paper
//!   it was 12 MB.
//! * `cat`'s first pass misses with any cache, and Davidson's ratio at `cat`'s end includes it. With more
//!   passes of `cat` that ratio is higher, up to nearly 1.

use foretell_policy::{Config, DeviceId, FileId, Memory, Nanos, ReaderId, Rules};
use serde::Serialize;

use crate::machine::MachineSpec;
use crate::machine::program::{Disclosure, Program, StoredFile, passes};
use crate::machine::report::Report;
use crate::machine::server::DeviceSpec;

/// Bytes of a block.
const BLOCK_BYTES: u64 = 8192;
/// Blocks in a megabyte.
const BLOCKS_PER_MB: u64 = (1 << 20) / BLOCK_BYTES;
/// The name of the program that does not hint.
const CAT: &str = "cat";
/// The device of all files.
const DEVICE: DeviceId = DeviceId(0);

/// The cache sizes of figure 11, in MB.
pub const CACHES_MB: std::ops::RangeInclusive<u64> = 8..=19;

/// The parameters of an experiment.
#[derive(Clone, Debug)]
pub struct Parameters {
    /// The policy.
    pub rules: Rules,
    /// Number of Davidson programs, each with its own file.
    pub hinters: u64,
    /// Passes of each Davidson program.
    pub hinter_passes: u32,
    /// Size of each Davidson program's file, in MB.
    pub hinter_file_mb: u64,
    /// Passes of `cat`; 0 leaves it out.
    pub cat_passes: u32,
    /// Size of `cat`'s file, in MB.
    pub cat_file_mb: u64,
    /// `T_hit`.
    pub hit: Nanos,
    /// `T_driver`.
    pub driver: Nanos,
    /// Davidson's work after each block.
    pub hinter_cpu: Nanos,
    /// `cat`'s work after each block.
    pub cat_cpu: Nanos,
    /// The device of all files.
    pub device: DeviceSpec,
}

impl Parameters {
    /// Figure 11 with `hinters` Davidson programs. `cat` ends before Davidson at every size of the figure.
    pub fn figure_11(rules: Rules, hinters: u64) -> Self {
        Parameters {
            rules,
            hinters,
            hinter_passes: 180,
            hinter_file_mb: 17,
            cat_passes: 20,
            cat_file_mb: 10,
            hit: Nanos(243_000),
            driver: Nanos(580_000),
            hinter_cpu: Nanos(1_000_000),
            cat_cpu: Nanos(1_000_000),
            device: DeviceSpec::Flat {
                latency: Nanos(15_000_000),
                transfer: Nanos::ZERO,
                slots: None,
            },
        }
    }
}

/// The results of one Davidson program.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct Hinter {
    /// Its miss ratio when `cat` ended, or at its own end if that came first.
    pub miss_ratio_beside_cat: f64,
    /// Its miss ratio at its own end.
    pub miss_ratio: f64,
    /// From start to end.
    pub elapsed_ns: u64,
    /// Time waiting for the device.
    pub stall_ns: u64,
}

/// The results with one cache size.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Point {
    /// Cache size, in MB.
    pub cache_mb: u64,
    /// The Davidson programs, in the order of their numbers.
    pub hinters: Vec<Hinter>,
    /// Time of `cat` from start to end; 0 without it.
    pub cat_elapsed_ns: u64,
    /// Miss ratio of `cat`; 0 without it.
    pub cat_miss_ratio: f64,
}

impl Point {
    /// The hinters' mean miss ratio when `cat` ended.
    pub fn miss_ratio_beside_cat(&self) -> f64 {
        let sum: f64 = self.hinters.iter().map(|hinter| hinter.miss_ratio_beside_cat).sum();
        sum / self.hinters.len() as f64
    }

    /// The largest deviation of a hinter from the mean of `value`, as a share of the mean.
    pub fn spread(&self, value: impl Fn(&Hinter) -> f64) -> f64 {
        let mean = self.hinters.iter().map(&value).sum::<f64>() / self.hinters.len() as f64;
        let off = self.hinters.iter().map(|hinter| (value(hinter) / mean - 1.0).abs());
        if mean == 0.0 { 0.0 } else { off.fold(0.0, f64::max) }
    }
}

/// Runs the experiment with one cache size.
pub fn run(parameters: &Parameters, cache_mb: u64) -> Point {
    let config = Config::new(Memory::Owned, BLOCK_BYTES, cache_mb << 20);
    let policy = Config { rules: parameters.rules, ..config };
    let devices = vec![(DEVICE, parameters.device.clone())];
    let spec = MachineSpec {
        noted_at_end_of: Some(CAT.to_owned()),
        ..MachineSpec::new(policy, parameters.hit, parameters.driver, devices)
    };
    point(cache_mb, parameters.hinters, &spec.run(programs(parameters)))
}

/// The Davidson programs, followed by `cat`.
fn programs(parameters: &Parameters) -> Vec<Program> {
    let file = |number: u64, mb: u64| StoredFile {
        file: FileId(number),
        device: DEVICE,
        blocks: mb * BLOCKS_PER_MB,
        block_bytes: BLOCK_BYTES,
    };
    let hinter = |number: u64| {
        let file = file(number, parameters.hinter_file_mb);
        let (count, cpu) = (parameters.hinter_passes, parameters.hinter_cpu);
        let steps = passes(file, count, cpu, Disclosure::NextPass);
        Program::new(format!("davidson {number}"), ReaderId(number), steps)
    };
    let mut programs: Vec<Program> = (1..=parameters.hinters).map(hinter).collect();
    if parameters.cat_passes > 0 {
        let number = parameters.hinters + 1;
        let file = file(number, parameters.cat_file_mb);
        let steps = passes(file, parameters.cat_passes, parameters.cat_cpu, Disclosure::None);
        programs.push(Program::new(CAT, ReaderId(number), steps));
    }
    programs
}

fn point(cache_mb: u64, hinters: u64, report: &Report) -> Point {
    let (davidsons, cat) = report.programs.split_at(hinters as usize);
    let cat = cat.first();
    let hinter = |(index, program): (usize, &crate::machine::report::ProgramReport)| {
        let beside = report.noted.get(index).unwrap_or(&program.tally);
        Hinter {
            miss_ratio_beside_cat: beside.miss_ratio(),
            miss_ratio: program.tally.miss_ratio(),
            elapsed_ns: program.elapsed_ns,
            stall_ns: program.tally.stall_ns,
        }
    };
    Point {
        cache_mb,
        hinters: davidsons.iter().enumerate().map(hinter).collect(),
        cat_elapsed_ns: cat.map_or(0, |cat| cat.elapsed_ns),
        cat_miss_ratio: cat.map_or(0.0, |cat| cat.tally.miss_ratio()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lru_serves_cat_when_nobody_else_is_there_and_nobody_otherwise() {
        let parameters =
            Parameters { hinter_passes: 4, cat_passes: 6, ..Parameters::figure_11(Rules::LRU, 1) };
        let beside = run(&parameters, 12);
        assert_eq!(beside.hinters.len(), 1);
        assert!(beside.cat_elapsed_ns > 0 && beside.hinters[0].elapsed_ns > 0);
        let alone = Parameters { cat_passes: 0, ..parameters };
        assert_eq!(run(&alone, 12).hinters[0].miss_ratio, 1.0);
        assert!(run(&alone, 17).hinters[0].miss_ratio < 0.26);
    }

    #[test]

    fn figure_11_falls_jumps_and_falls_again() {
        let parameters = Parameters::figure_11(Rules::FORETELL, 1);
        let points: Vec<Point> = CACHES_MB.map(|mb| run(&parameters, mb)).collect();
        let ratio = |mb: u64| points[(mb - 8) as usize].miss_ratio_beside_cat();
        let ratios: Vec<f64> = CACHES_MB.map(ratio).collect();
        assert!(ratio(10) < ratio(8) - 0.05, "{ratios:.2?}");
        // The size at which `cat`'s 10 MB and the prefetch horizon fit.
        let jump = (11..=12).max_by(|&a, &b| ratio(a).total_cmp(&ratio(b))).unwrap_or(11);
        assert!(ratio(jump) > ratio(10) + 0.2, "{ratios:.2?}");
        // The remaining hits are from the time before; their share falls with more passes of `cat`.
        let longer = Parameters { cat_passes: 120, ..parameters.clone() };
        let longer = run(&longer, jump).miss_ratio_beside_cat();
        assert!(longer > 0.8 && longer > ratio(jump) + 0.1, "{longer:.2} {ratios:.2?}");
        assert!(ratio(19) < ratio(jump) - 0.2, "{ratios:.2?}");
        let falls = (jump..19).filter(|&mb| ratio(mb + 1) < ratio(mb) + 0.02).count() as u64;
        assert_eq!(falls, 19 - jump, "{ratios:.2?}");
        let cat = |mb: u64| points[(mb - 8) as usize].cat_elapsed_ns;
        assert!(cat(13) < cat(10) / 2);
    }

    #[test]

    fn eight_hinters_share_fairly() {
        for cache_mb in [9, 13, 18] {
            let parameters = Parameters {
                hinter_passes: 24,
                cat_passes: 6,
                ..Parameters::figure_11(Rules::FORETELL, 8)
            };
            let point = run(&parameters, cache_mb);
            let ratios = point.spread(|hinter| hinter.miss_ratio);
            let times = point.spread(|hinter| hinter.elapsed_ns as f64);
            assert!(ratios <= 0.2 && times <= 0.2, "{cache_mb} MB: {ratios:.2} {times:.2}");
        }
    }
}
