//! Figure 2 b: Sphinx.
//!
//! The paper states neither the time of a frame nor the number of lookups in the file. Both are chosen:
//!
//! * Bursts have 17 lookups on average, so that three quarters of the stall are removed on four disks, the
//!   least of section 3.7.
//! * A burst follows each fourteenth frame, and a frame takes 50 ms, so that at most a fifth of the time is
//!   saved on any array.
//!
//! Rows with half the work and with other bursts show the influence of each. The share of the stall that is
//! removed depends only on the number of lookups in a burst.

use foretell_policy::Nanos;

use super::{
    Basis, Cell, DISKS, Figure3, Outcome, PITCH_SECTORS, Row, STALL_REMOVED, figure_3, line,
    over_disks, reduction, sweep,
};
use crate::programs::speech::Speech;

/// Sphinx, with hints if `disclosed`.
pub fn speech(disclosed: bool) -> Speech {
    Speech {
        frame_cpu: Nanos(50_000_000),
        frames_per_burst: 14,
        burst_reads: 17.0,
        disclosed,
        pitch_sectors: PITCH_SECTORS,
        seed: 1,
    }
}

type Other = (&'static str, fn(Speech) -> Speech);

/// Other values, by the names of their rows.
const OTHERS: [Other; 3] = [
    ("half the work", |speech| Speech { frame_cpu: Nanos(25_000_000), ..speech }),
    ("bursts of 4", |speech| Speech { burst_reads: 4.0, ..speech }),
    ("bursts of 4 in every third frame", |speech| Speech {
        burst_reads: 4.0,
        frames_per_burst: 3,
        ..speech
    }),
];

/// Figure 2 b, and Sphinx's part of figure 3.
pub fn figures() -> Outcome {
    let [plain, hinted] = [false, true].map(|disclosed| sweep(|_| speech(disclosed).workload()));
    let mut outcome = Outcome::default();
    let lines = [(&plain, "without hints"), (&hinted, "with hints")].map(|(sweep, how)| {
        let row = Row::new("1995 figure 2b", format!("sphinx, {how}"), "s");
        outcome.cells.extend(row.of_sweep(sweep));
        line(how, sweep)
    });
    let row = Row::new("1995 figure 2b", "sphinx, time saved", "%");
    for (at, disks) in DISKS.into_iter().enumerate() {
        let ours = reduction(plain[at].elapsed_s, hinted[at].elapsed_s);
        let paper = (disks >= 4).then_some(20.0);
        let basis = if disks == 15 { Basis::Calibrated } else { Basis::Predicted };
        outcome.cells.push(row.cell(Cell::disks(disks), paper, ours, basis));
    }
    for (name, other) in OTHERS {
        let [plain, hinted] =
            [false, true].map(|disclosed| sweep(|_| other(speech(disclosed)).workload()));
        let row = Row::new("1995 figure 2b", format!("sphinx, {name}, time saved"), "%");
        outcome.cells.extend(row.reductions(&plain, &hinted));
        let row = Row::new("1995 figure 2b", format!("sphinx, {name}, stall removed"), "%");
        outcome.cells.extend(DISKS.into_iter().enumerate().map(|(at, disks)| {
            let ours = reduction(plain[at].stall_s, hinted[at].stall_s);
            row.cell(Cell::disks(disks), None, ours, Basis::Predicted)
        }));
    }
    let title = "Speech recognition (TIP 1995, figure 2 b)";
    outcome.figures.push(over_disks("tip1995-figure-2b", title, lines.to_vec()));
    let paper = Figure3 {
        elapsed: Some(20.0),
        is_most_chosen: true,
        stall: STALL_REMOVED,
        chosen_disks: Some(4),
    };
    outcome.merge(figure_3("sphinx", &plain, &hinted, &paper));
    outcome
}
