//! Figure 2 a: the join of Postgres.
//!
//! The paper does not state processor times. They are 300 µs for each outer tuple and 3 ms for each match,
//! chosen by the 45 % that hints save on four disks. Rows with a third of them and with twice as much show
//! their influence.
//!
//! The effect of splitting the loop follows from two numbers of the paper, both without hints:
//!
//! * Splitting saves about 900 requests, on one disk. So keys without a match lie beyond those with one ([`InnerKeys::First`]),
//!   and one match in 25 extends into the next block. Values between 20 and 30 give the same within the scatter of draws. Keys
//!   without a match between those with one ([`InnerKeys::Between`]), and one long match in six, come as near. `First` is used,
//!   since the paper names inner blocks as the pollution of the cache: with `First`, inner blocks do most of it even without
//!   long matches.
//! * Splitting saves about 20 % of the time. So the index lies a tenth of the volume away from the relations, the nearest of 5,
//!   10 and 15 %. The distance grows with the volume, since the 20 % are taken to hold on all arrays.
//!
//! Rows without each of these choices show its effect.

use foretell_policy::Nanos;

use super::{
    Basis, Cell, DISKS, Figure3, Outcome, PITCH_SECTORS, Row, SEEDS, STALL_REMOVED, Sweep, Testbed,
    figure_3, line, mean, over_disks, reduction, sweep, testbed,
};
use crate::programs::join::{InnerKeys, Join, Loop};

/// Distance between the relations and the index: a tenth of the volume.
fn index_away_sectors(bed: &Testbed) -> u64 {
    bed.volume_sectors() / 10
}

/// The join on the machine `bed`, with keys drawn by `seed`.
pub fn join(form: Loop, bed: &Testbed, seed: u64) -> Join {
    Join {
        form,
        tuple_cpu: Nanos(300_000),
        match_cpu: Nanos(3_000_000),
        inner_keys: InnerKeys::First,
        matches_per_chain: 25,
        index_away_sectors: index_away_sectors(bed),
        pitch_sectors: PITCH_SECTORS,
        seed,
    }
}

/// The same join with `times / parts` of its processor times.
fn with_processor(join: Join, times: u64, parts: u64) -> Join {
    let scaled = |cpu: Nanos| Nanos(cpu.0 * times / parts);
    Join { tuple_cpu: scaled(join.tuple_cpu), match_cpu: scaled(join.match_cpu), ..join }
}

type Change = fn(Join) -> Join;

/// Joins without one of the choices: the row's name, whether the number of requests depends on it, and the
/// change.
const OTHERS: [(&str, bool, Change); 5] = [
    ("other keys", true, |join| Join { inner_keys: InnerKeys::Between, ..join }),
    ("other keys, one match in six in two blocks", true, |join| Join {
        inner_keys: InnerKeys::Between,
        matches_per_chain: 6,
        ..join
    }),
    ("no match in two blocks", true, |join| Join { matches_per_chain: 0, ..join }),
    ("index beside the relations", false, |join| Join { index_away_sectors: 0, ..join }),
    ("index as far away on all arrays", false, |join| Join {
        index_away_sectors: index_away_sectors(&testbed(1)),
        ..join
    }),
];

/// The mean over draws of keys.
fn mean_of(form: Loop, other: impl Fn(Join) -> Join) -> Sweep {
    mean(SEEDS.map(|seed| sweep(|bed| other(join(form, bed, seed)).workload())))
}

/// Figure 2 a, and the join's part of figure 3.
pub fn figures() -> Outcome {
    let [standard, split, hinted] = Loop::ALL.map(|form| mean_of(form, |join| join));
    let mut outcome = Outcome::default();
    let mut lines = Vec::new();
    for (form, sweep) in Loop::ALL.into_iter().zip([&standard, &split, &hinted]) {
        let row = Row::new("1995 figure 2a", format!("join, {}", form.name()), "s");
        outcome.cells.extend(row.of_sweep(sweep));
        lines.push(line(form.name(), sweep));
    }
    outcome.figures.push(over_disks("tip1995-figure-2a", "Join (TIP 1995, figure 2 a)", lines));
    let requests_saved = |name: &str, [standard, split]: [&Sweep; 2], paper: Option<f64>| {
        let row = format!("join, {name}requests saved by splitting the loop");
        let basis = if paper.is_some() { Basis::Calibrated } else { Basis::Predicted };
        let saved = standard[0].requests - split[0].requests;
        Row::new("1995 figure 2a", row, "requests").cell(Cell::disks(1), paper, saved, basis)
    };
    outcome.cells.push(requests_saved("", [&standard, &split], Some(900.0)));
    // "By about 20 %"; "by an additional 45 %"; "a total reduction of up to 55 %".
    let row = Row::new("1995 figure 2a", "join, time saved by splitting the loop", "%");
    for (at, disks) in DISKS.into_iter().enumerate() {
        let ours = reduction(standard[at].elapsed_s, split[at].elapsed_s);
        outcome.cells.push(row.cell(Cell::disks(disks), Some(20.0), ours, Basis::Calibrated));
    }
    for (name, asks_for_others, other) in OTHERS {
        let [standard, split] = [Loop::Standard, Loop::Split].map(|form| mean_of(form, other));
        let row = format!("join, {name}, time saved by splitting the loop");
        let row = Row::new("1995 figure 2a", row, "%");
        outcome.cells.extend(row.reductions(&standard, &split));
        if asks_for_others {
            outcome.cells.push(requests_saved(&format!("{name}, "), [&standard, &split], None));
        }
    }
    let row = Row::new("1995 figure 2a", "join, time saved further by hints", "%");
    for (at, disks) in DISKS.into_iter().enumerate() {
        let ours = reduction(split[at].elapsed_s, hinted[at].elapsed_s);
        let paper = (disks >= 4).then_some(45.0);
        let basis = if disks == 4 { Basis::Calibrated } else { Basis::Predicted };
        outcome.cells.push(row.cell(Cell::disks(disks), paper, ours, basis));
    }
    for (name, times, parts) in
        [("a third of the processor time", 1, 3), ("twice the processor time", 2, 1)]
    {
        let of = |form| mean_of(form, |join| with_processor(join, times, parts));
        let [split, hinted] = [Loop::Split, Loop::Disclosed].map(of);
        let row = format!("join, {name}, time saved further by hints");
        let row = Row::new("1995 figure 2a", row, "%");
        outcome.cells.extend(row.reductions(&split, &hinted));
    }
    let paper = Figure3 {
        elapsed: Some(55.0),
        is_most_chosen: true,
        stall: STALL_REMOVED,
        chosen_disks: None,
    };
    outcome.merge(figure_3("join", &standard, &hinted, &paper));
    outcome
}
