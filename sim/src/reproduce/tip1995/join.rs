//! Figure 2 a: the join of Postgres.
//!
//! Chosen: 300 µs for each outer tuple and 3 ms for each match, which the paper does not state and which decide what hints
//! save; rows of a third and of twice as much say how far. And that one match in five goes on in the next block: of whole
//! numbers it is the one that leaves both the requests and the time that splitting the loop saves on one disk nearest to
//! the paper's (all without hints).

use foretell_policy::Nanos;

use super::{
    Basis, Cell, DISKS, Figure3, Outcome, PITCH_SECTORS, Row, STALL_REMOVED, figure_3, line,
    over_disks, reduction, sweep,
};
use crate::programs::join::{Join, Loop};

/// The join.
pub fn join(form: Loop) -> Join {
    Join {
        form,
        tuple_cpu: Nanos(300_000),
        match_cpu: Nanos(3_000_000),
        matches_per_chain: 5,
        pitch_sectors: PITCH_SECTORS,
        seed: 1,
    }
}

/// The same with `times / parts` of its processor times.
fn with_processor(join: Join, times: u64, parts: u64) -> Join {
    let scaled = |cpu: Nanos| Nanos(cpu.0 * times / parts);
    Join { tuple_cpu: scaled(join.tuple_cpu), match_cpu: scaled(join.match_cpu), ..join }
}

/// Figure 2 a, and the join's part of figure 3.
pub fn figures() -> Outcome {
    let [standard, split, hinted] = Loop::ALL.map(|form| sweep(|| join(form).workload()));
    let mut outcome = Outcome::default();
    let mut lines = Vec::new();
    for (form, sweep) in Loop::ALL.into_iter().zip([&standard, &split, &hinted]) {
        let row = Row::new("1995 figure 2a", format!("join, {}", form.name()), "s");
        outcome.cells.extend(row.of_sweep(sweep));
        lines.push(line(form.name(), sweep));
    }
    outcome.figures.push(over_disks("tip1995-figure-2a", "Join (TIP 1995, figure 2 a)", lines));
    let row = Row::new("1995 figure 2a", "join, requests saved by splitting the loop", "requests");
    let saved = standard[0].requests - split[0].requests;
    outcome.cells.push(row.cell(Cell::disks(1), Some(900.0), saved, Basis::Calibrated));
    // "By about 20 %"; "by an additional 45 %"; "a total reduction of up to 55 %".
    let row = Row::new("1995 figure 2a", "join, time saved by splitting the loop", "%");
    for (at, disks) in DISKS.into_iter().enumerate() {
        let ours = reduction(standard[at].elapsed_s, split[at].elapsed_s);
        let basis = if disks == 1 { Basis::Calibrated } else { Basis::Predicted };
        outcome.cells.push(row.cell(Cell::disks(disks), Some(20.0), ours, basis));
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
        let of = |form| sweep(|| with_processor(join(form), times, parts).workload());
        let [split, hinted] = [Loop::Split, Loop::Disclosed].map(of);
        let row = format!("join, {name}, time saved further by hints");
        let row = Row::new("1995 figure 2a", row, "%");
        outcome.cells.extend(row.reductions(&split, &hinted));
    }
    let paper = Figure3 {
        elapsed: Some(55.0),
        is_most_chosen: false,
        stall: STALL_REMOVED,
        chosen_disks: None,
    };
    outcome.merge(figure_3("join", &standard, &hinted, &paper));
    outcome
}
