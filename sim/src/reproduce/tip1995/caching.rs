//! Figures 2 c, 10 a, 10 b and 11: Davidson, and informed caching.
//!
//! Chosen: 420 µs for each block of Davidson, so that without hints it is bound by the disk on one disk and by the
//! processor on more than two, as section 3.6 has it. Passes are 20; the paper does not say how many there were.

use foretell_policy::{Nanos, Rules};

use super::{
    Basis, Cell, DISKS, Figure, Figure3, Outcome, PITCH_SECTORS, Row, Run, Sweep, figure_3, line,
    over_disks, panel, reduction, testbed,
};
use crate::programs::davidson::Davidson;
use crate::scenario::contention::{self, CACHES_MB, Parameters};

/// Caches of figure 10 b, MB.
pub const DAVIDSON_CACHES_MB: [u64; 10] = [2, 4, 6, 8, 10, 12, 14, 16, 18, 20];

/// The algorithm.
pub fn davidson(disclosed: bool) -> Davidson {
    Davidson { passes: 20, block_cpu: Nanos(420_000), disclosed, pitch_sectors: PITCH_SECTORS }
}

fn run(disks: usize, cache_blocks: u64, disclosed: bool, rules: Rules) -> Run {
    let mut bed = testbed(disks);
    bed.cache_blocks = cache_blocks;
    Run::of(&bed.run(davidson(disclosed).workload(), rules))
}

fn swept(disclosed: bool, rules: Rules) -> Sweep {
    DISKS.map(|disks| run(disks, testbed(disks).cache_blocks, disclosed, rules))
}

/// Figures 2 c and 10 a, and Davidson's part of figure 3.
pub fn figures_over_disks() -> Outcome {
    let plain = swept(false, Rules::TIP1);
    let tip1 = swept(true, Rules::TIP1);
    let tip2 = swept(true, Rules::TIP2);
    let foretell = swept(true, Rules::FORETELL);
    let mut outcome = Outcome::default();
    let rows = [
        ("2c", "without hints", &plain),
        ("2c", "with hints, tip1", &tip1),
        ("10a", "with hints, tip2", &tip2),
        ("10a", "with hints, foretell", &foretell),
    ];
    for (figure, how, sweep) in rows {
        let experiment = format!("1995 figure {figure}");
        let row = Row::new(&experiment, format!("davidson, {how}"), "s");
        outcome.cells.extend(row.of_sweep(sweep));
    }
    let rows = [
        ("2c", "tip1", &tip1, [(0.0, None), (0.0, None)]),
        // "Over 30% on one disk", "more than 15%" on more (section 6.1).
        ("10a", "tip2", &tip2, [(30.0, Some(100.0)), (15.0, Some(100.0))]),
    ];
    for (figure, how, sweep, [one, more]) in rows {
        let experiment = format!("1995 figure {figure}");
        let row = Row::new(&experiment, format!("davidson, time saved by {how}"), "%");
        for (at, disks) in DISKS.into_iter().enumerate() {
            let ours = reduction(plain[at].elapsed_s, sweep[at].elapsed_s);
            let (paper, paper_to) = if disks == 1 { one } else { more };
            let cell = row.cell(Cell::disks(disks), Some(paper), ours, Basis::Predicted);
            outcome.cells.push(Cell { paper_to, ..cell });
        }
    }
    let (plain_line, tip1_line) = (line("without hints", &plain), line("tip1", &tip1));
    outcome.figures.push(over_disks(
        "tip1995-figure-2c",
        "Davidson (TIP 1995, figure 2 c)",
        vec![plain_line.clone(), tip1_line],
    ));
    outcome.figures.push(over_disks(
        "tip1995-figure-10a",
        "Davidson with informed caching (TIP 1995, figure 10 a)",
        vec![plain_line, line("tip2", &tip2), line("foretell", &foretell)],
    ));
    let paper = Figure3 { elapsed: None, stall: None };
    outcome.merge(figure_3("davidson", &plain, &tip1, &paper));
    outcome
}

/// Figure 10 b: by the size of the cache, on one disk.
pub fn figure_10b() -> Outcome {
    const BLOCKS_PER_MB: u64 = 128;
    let series = [
        ("without hints", false, Rules::TIP1),
        ("with hints, tip2", true, Rules::TIP2),
        ("with hints, foretell", true, Rules::FORETELL),
    ];
    let mut outcome = Outcome::default();
    let lines = series.map(|(how, disclosed, rules)| {
        let row = Row::new("1995 figure 10b", format!("davidson, {how}"), "s");
        let points = DAVIDSON_CACHES_MB.map(|mb| {
            let elapsed_s = run(1, mb * BLOCKS_PER_MB, disclosed, rules).elapsed_s;
            let column = format!("{mb} MB");
            outcome.cells.push(row.cell(column, None, elapsed_s, Basis::Predicted));
            (mb as f64, elapsed_s)
        });
        (how.to_owned(), points.to_vec())
    });
    let title = "Davidson by the size of the cache, one disk (TIP 1995, figure 10 b)";
    let panels = vec![panel("elapsed, s", lines)];
    outcome.figures.push(Figure::new("tip1995-figure-10b", title, "cache, MB", panels));
    outcome
}

/// Figure 11: Davidson's miss ratio beside `cat`, by the size of the cache.
pub fn figure_11() -> Outcome {
    let mut outcome = Outcome::default();
    let lines = [Rules::TIP2, Rules::FORETELL].map(|rules| {
        let parameters = Parameters::figure_11(rules, 1);
        let row =
            Row::new("1995 figure 11", format!("davidson's miss ratio, {}", rules.name), "ratio");
        let points: Vec<(f64, f64)> = CACHES_MB
            .map(|mb| {
                let ratio = contention::run(&parameters, mb).miss_ratio_beside_cat();
                let column = format!("{mb} MB");
                outcome.cells.push(row.cell(column, None, ratio, Basis::Predicted));
                (mb as f64, ratio)
            })
            .collect();
        (rules.name.to_owned(), points)
    });
    let title = "Davidson beside cat of a 10 MB file (TIP 1995, figure 11)";
    let panels = vec![panel("Davidson's miss ratio", lines)];
    outcome.figures.push(Figure::new("tip1995-figure-11", title, "cache, MB", panels));
    outcome
}
