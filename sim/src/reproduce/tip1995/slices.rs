//! Figure 1 c: three slices through a data set of 512³ values.
//!
//! Processor times were chosen, not stated: 700 ms for a picture of 512 × 512 pixels and 100 µs for each block, from
//! "about two seconds" for every plane with hints. Times without hints follow from the disks alone.

use foretell_policy::Nanos;

use super::{
    Basis, Cell, DISKS, Figure3, MOST, Outcome, PITCH_SECTORS, Row, Run, STALL_REMOVED, Sweep,
    figure_3, line, mean, over_disks, reduction, sweep,
};
use crate::programs::slice::{Plane, Slice};

/// A slice along `plane`.
pub fn slice(plane: Plane, disclosed: bool, seed: u64) -> Slice {
    Slice {
        side: 512,
        plane,
        block_cpu: Nanos(100_000),
        picture_cpu: Nanos(700_000_000),
        disclosed,
        pitch_sectors: PITCH_SECTORS,
        seed,
    }
}

/// Figure 1 c, and the slices' part of figure 3.
pub fn figures() -> Outcome {
    let planes = Plane::ALL.map(|plane| {
        let run = |disclosed| mean(|seed| sweep(|| slice(plane, disclosed, seed).workload()));
        (plane, run(false), run(true))
    });
    let mut outcome = Outcome::default();
    let mut lines = Vec::new();
    let said = |plane, disclosed, disks| match (plane, disclosed) {
        (Plane::Xy, false) => Some((15.0, Basis::Predicted)),
        (_, true) if disks == 15 => Some((2.0, Basis::Calibrated)),
        _ => None,
    };
    for (plane, plain, hinted) in &planes {
        for (disclosed, (sweep, how)) in
            [(plain, "without hints"), (hinted, "with hints")].into_iter().enumerate()
        {
            let name = format!("{}, {how}", plane.name());
            let row = Row::new("1995 figure 1c", format!("slice {name}"), "s");
            outcome.cells.extend(DISKS.into_iter().zip(sweep).map(|(disks, run)| {
                let said = said(*plane, disclosed == 1, disks);
                let basis = said.map_or(Basis::Predicted, |(_, basis)| basis);
                row.cell(Cell::disks(disks), said.map(|(s, _)| s), run.elapsed_s, basis)
            }));
            lines.push(line(&name, sweep));
        }
    }
    let sum = |hinted: bool| -> Sweep {
        std::array::from_fn(|at| {
            Run::sum(
                planes.iter().map(|(_, plain, with)| if hinted { with[at] } else { plain[at] }),
            )
        })
    };
    let (plain, hinted) = (sum(false), sum(true));
    let ratios = (0..DISKS.len()).map(|at| plain[at].elapsed_s / hinted[at].elapsed_s);
    let row = Row::new("1995 figure 1c", "sum of three slices, speed-up (section 3.3)", "x");
    let most = ratios.fold(0.0, f64::max);
    outcome.cells.push(row.cell(MOST.into(), Some(6.0), most, Basis::Predicted));
    let row = Row::new("1995 figure 1c", "slice X-Y, time saved", "%");
    let (_, plain_xy, hinted_xy) = &planes[2];
    let saved = |at: usize| reduction(plain_xy[at].elapsed_s, hinted_xy[at].elapsed_s);
    let most = (0..DISKS.len()).map(saved).fold(f64::MIN, f64::max);
    outcome.cells.push(row.cell(MOST.into(), None, most, Basis::Predicted));
    outcome.figures.push(over_disks(
        "tip1995-figure-1c",
        "Slices of a 512³ data set (TIP 1995, figure 1 c)",
        lines,
    ));
    let paper = Figure3 { elapsed: Some(75.0), stall: STALL_REMOVED };
    outcome.merge(figure_3("slices", &plain, &hinted, &paper));
    outcome
}
