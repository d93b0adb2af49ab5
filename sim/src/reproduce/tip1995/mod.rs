//! The figures of TIP 1995: five programs, and the contention for buffers, on an Alpha with up to 15 disks.
//!
//! Our copy of the paper has lost the numbers of its figures, so cells are compared with the numbers in its
//! text.
//!
//! [`testbed`] has what the paper states of the machine. In addition:
//!
//! * `T_hit` = 243 µs, `T_driver` = 580 µs and `T_disk` = 15 ms come from memory of the authors' other reports.
//! * Each further block of a request adds 154 µs to `T_driver`. That follows from section 3.1: `cat` of a large
//!   file reads 18.2 MB/s, 450 µs a block, of which `T_hit` leaves 207 µs. Eight of these less `T_driver` are 7
//!   × 154 µs.
//! * FFS waits for a file's indirect blocks, for a program and for a prefetch alike ([`Metadata::Ffs`]). That
//!   is assumed: caches were cold, and TIP of 1994 leaves names to FFS's routines, which wait. The reason for
//!   the assumption is that slices otherwise lose more of their stall than in the paper; figure 3 b has rows
//!   without it. Directories and the program's own pages are read by searches only: see [`search`].
//! * Hints cost the processor "a little" more than read-ahead (section 3.6): 20 µs for each read. It was chosen
//!   so that Davidson gains less than half a per cent on all arrays.
//! * Processor times of programs are not stated. Each program's file says how they were chosen.
//! * Sections 3.x use `tip1`. Section 6 uses `tip2`, with fixed costs ([`caching`]).

pub mod caching;
pub mod join;
pub mod search;
pub mod slices;
pub mod speech;

use foretell_policy::queue::Order;
use foretell_policy::{Nanos, Rules};

use super::testbed::Testbed;
use super::{Basis, Cell, Figure, Outcome, panel, seconds, spread};
use crate::device::DiskParameters;
use crate::machine::read_ahead::ReadAheadSpec;
use crate::machine::report::Report;
use crate::machine::server::{PREFETCHES_PER_DISK, Priority};
use crate::machine::{Metadata, Processors};
use crate::programs::Workload;

/// Sizes of arrays, in disks; the paper has 1 to 15.
pub const DISKS: [usize; 8] = [1, 2, 3, 4, 6, 8, 10, 15];
/// Blocks lie side by side ("inter-block rotational delay = 0", section 3.1).
pub const PITCH_SECTORS: u64 = 16;
/// Limit of prefetched and unread blocks (section 3.1).
pub const UNREAD_BLOCKS: u64 = 512;

/// The paper's SCAN, taken for a one-way scan as in BSD's `disksort`: from the last request back to the first.
pub const SCAN: Order = Order::CLook;

/// The DEC 3000/500 of section 3.1 with `disks` disks.
pub fn testbed(disks: usize) -> Testbed {
    Testbed {
        disk: DiskParameters::by_name("hpc2247").expect("invariant: it is built in"),
        disks,
        pitch_sectors: PITCH_SECTORS,
        order: SCAN,
        prefetches_per_disk: PREFETCHES_PER_DISK,
        priority: Priority::Arrival,
        page_bytes: 8192,
        cache_blocks: 1536,
        cluster_blocks: 8,
        hit: Nanos(243_000),
        driver: (Nanos(580_000), Nanos(154_000)),
        striper: Nanos::ZERO,
        open: Nanos(250_000),
        metadata: Metadata::Ffs,
        disclosed_read: Nanos(20_000),
        processors: Processors::Own,
        read_ahead: ReadAheadSpec::OSF1,
        fixed_costs: false,
    }
}

/// Elapsed time and stall, seconds, and requests to disks.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
struct Run {
    elapsed_s: f64,
    stall_s: f64,
    requests: f64,
}

impl Run {
    fn of(report: &Report) -> Self {
        let device = report.devices[0];
        Run {
            elapsed_s: seconds(report.end_ns),
            stall_s: seconds(report.programs.iter().map(|program| program.tally.stall_ns).sum()),
            requests: (device.demand_requests + device.prefetch_requests) as f64,
        }
    }

    fn sum(runs: impl IntoIterator<Item = Run>) -> Run {
        runs.into_iter().fold(Run::default(), |sum, run| Run {
            elapsed_s: sum.elapsed_s + run.elapsed_s,
            stall_s: sum.stall_s + run.stall_s,
            requests: sum.requests + run.requests,
        })
    }
}

/// A run on each of [`DISKS`].
type Sweep = [Run; DISKS.len()];

/// Runs a workload on each machine, under `tip1`.
fn sweep(workload: impl Fn(&Testbed) -> Workload) -> Sweep {
    DISKS.map(testbed).map(|bed| Run::of(&bed.run(workload(&bed), Rules::TIP1)))
}

/// Seeds over which a number is averaged if it depends on layouts, planes or keys.
const SEEDS: std::ops::RangeInclusive<u64> = 1..=5;

/// The mean of sweeps.
fn mean(of: impl IntoIterator<Item = Sweep>) -> Sweep {
    let sweeps: Vec<Sweep> = of.into_iter().collect();
    std::array::from_fn(|at| {
        let sum = Run::sum(sweeps.iter().map(|sweep| sweep[at]));
        let part = |figure: f64| figure / sweeps.len() as f64;
        Run {
            elapsed_s: part(sum.elapsed_s),
            stall_s: part(sum.stall_s),
            requests: part(sum.requests),
        }
    })
}

/// The reduction from `before` to `after`, in per cent.
fn reduction(before: f64, after: f64) -> f64 {
    100.0 * (1.0 - after / before)
}

/// A row of cells, with a column for each array.
struct Row<'a> {
    experiment: &'a str,
    row: String,
    unit: &'a str,
}

impl Row<'_> {
    fn new<'a>(experiment: &'a str, row: impl Into<String>, unit: &'a str) -> Row<'a> {
        Row { experiment, row: row.into(), unit }
    }

    fn cell(&self, column: String, paper: Option<f64>, ours: f64, basis: Basis) -> Cell {
        let (experiment, row, unit) =
            (self.experiment.to_owned(), self.row.clone(), self.unit.to_owned());
        Cell { experiment, row, column, unit, paper, paper_to: None, ours, spread: None, basis }
    }

    fn of_sweep(&self, sweep: &Sweep) -> Vec<Cell> {
        let cell = |(disks, run): (usize, &Run)| {
            self.cell(Cell::disks(disks), None, run.elapsed_s, Basis::Predicted)
        };
        DISKS.into_iter().zip(sweep).map(cell).collect()
    }

    /// The share of `before` that `after` saves, in per cent, where the paper has no number.
    fn reductions(&self, before: &Sweep, after: &Sweep) -> Vec<Cell> {
        let cell = |at: usize| {
            let ours = reduction(before[at].elapsed_s, after[at].elapsed_s);
            self.cell(Cell::disks(DISKS[at]), None, ours, Basis::Predicted)
        };
        (0..DISKS.len()).map(cell).collect()
    }
}

fn line(name: &str, sweep: &Sweep) -> (String, Vec<(f64, f64)>) {
    let points = DISKS.into_iter().zip(sweep).map(|(disks, run)| (disks as f64, run.elapsed_s));
    (name.to_owned(), points.collect())
}

/// A figure with one panel over the number of disks.
fn over_disks(name: &str, title: &str, lines: Vec<(String, Vec<(f64, f64)>)>) -> Figure {
    Figure::new(name, title, "disks", vec![panel("elapsed, s", lines)])
}

/// A program's part of figure 3: elapsed time and stall with hints, as shares of those without hints.
fn figure_3(program: &str, plain: &Sweep, hinted: &Sweep, paper: &Figure3) -> Outcome {
    let basis = |disks: usize| {
        let is_chosen = paper.chosen_disks == Some(disks);
        if is_chosen { Basis::Calibrated } else { Basis::Predicted }
    };
    let mut cells = Vec::new();
    let elapsed = |at: usize| reduction(plain[at].elapsed_s, hinted[at].elapsed_s);
    let row = Row::new("1995 figure 3a", format!("{program}, elapsed time saved"), "%");
    let most = (0..DISKS.len()).map(elapsed).fold(f64::MIN, f64::max);
    let basis_of_most = if paper.is_most_chosen { Basis::Calibrated } else { Basis::Predicted };
    cells.push(row.cell(MOST.into(), paper.elapsed, most, basis_of_most));
    let row = Row::new("1995 figure 3b", format!("{program}, stall removed"), "%");
    let (mut shares, mut stalls) = (Vec::new(), Vec::new());
    for (at, disks) in DISKS.into_iter().enumerate() {
        let removed = reduction(plain[at].stall_s, hinted[at].stall_s);
        // "As few as four disks eliminate most of it" (section 3.7).
        let range = paper.stall.filter(|_| disks >= 4);
        let cell = row.cell(Cell::disks(disks), range.map(|(from, _)| from), removed, basis(disks));
        cells.push(Cell { paper_to: range.map(|(_, to)| to), ..cell });
        shares.push((disks as f64, 100.0 - elapsed(at)));
        stalls.push((disks as f64, 100.0 - removed));
    }
    let of = |title: &str, points| panel(title, [(program.to_owned(), points)]);
    let panels = vec![
        of("elapsed time with hints, % of that without", shares),
        of("stall with hints, % of that without", stalls),
    ];
    let title = "Elapsed and stall times with hints (TIP 1995, figure 3)";
    Outcome { cells, figures: vec![Figure::new("tip1995-figure-3", title, "disks", panels)] }
}

/// The column of a number that the text gives as "up to".
const MOST: &str = "most";

/// The statements of section 3.7 about a program.
struct Figure3 {
    /// The most elapsed time saved, in per cent.
    elapsed: Option<f64>,
    /// Whether that number was used to choose the program's parameters.
    is_most_chosen: bool,
    /// The range of the stall that is removed, in per cent.
    stall: Option<(f64, f64)>,
    /// The array whose removed stall was used to choose parameters.
    chosen_disks: Option<usize>,
}

/// Section 3.7: "informed prefetching eliminates between 75% and 95% of I/O stall time".
const STALL_REMOVED: Option<(f64, f64)> = Some((75.0, 95.0));
