//! Figures 1 a and 1 b: agrep through four sets of files.
//!
//! A set's files lie side by side and in any order, in as many groups of cylinders as their inodes need: "bytes per inode =
//! 32K", says section 3.1, so that one has no room for the 1,352 files of `man3`. The processor time of a block, 40 µs beside the
//! 250 µs of an open, was chosen so that the most that hints save of the four searches is what section 3.7 says, 84 %, when
//! programs were taken to be in memory; it is three quarters of a cycle for a byte, and with none at all little more would be saved.
//! What follows is how the reduction is on each array, and what the striper's order is worth.
//!
//! That the striper's scan goes [one way](super::SCAN), and how large a group is, are assumed, and were when the reason was looked for why
//! sorting saved 50 % on one disk where the paper has 63. Figure 1 b has rows of the other assumptions.
//!
//! "Each test was run on a system with a cold cache", says section 3.1. So each search first reads the way to its [program](START)
//! and what it touches of it, and then the root, and the directory of its set as far as names are looked for
//! ([`directory`](crate::machine::directory)), with hints and without. These are two roots, as the sets have a file system of their own, that
//! "was formatted" for each three runs; the other one is laid on the same disks here. That all this is cold was looked for when more
//! stall went than the paper's 95 %: whoever made the list of arguments may have read the directory, and a cold cache may have been
//! that of the file system with the sets only. Figure 3 b has rows without, the last of them at the level of processor time that would
//! be chosen then, 110 µs.

use foretell_policy::queue::Order;
use foretell_policy::{Nanos, Rules};

use super::super::testbed::Testbed;
use super::{
    Basis, Cell, DISKS, Figure, Figure3, Outcome, PITCH_SECTORS, Row, Run, SCAN, SEEDS,
    STALL_REMOVED, Sweep, UNREAD_BLOCKS, figure_3, line, mean, over_disks, panel, reduction,
    testbed,
};
use crate::SECTOR_BYTES;
use crate::plot::Panel;
use crate::programs::search::{ColdStart, FileSet, SETS_1995, Search};
use crate::programs::{Groups, Scattering};

/// Groups of 16 MB (assumed, as [`GAP_BLOCKS`](crate::layout::GAP_BLOCKS) does) with an inode for each 32 KB (section 3.1): `man3` has
/// files for three.
const GROUPS: Groups = Groups { sectors: (16 << 20) / SECTOR_BYTES, inodes: 512 };
/// Of 16 cylinders, as newfs makes them unless it is told otherwise (memory), of this disk; inodes in whole blocks of 64. Five for `man3`.
const SMALL_GROUPS: Groups = Groups { sectors: 16 * 13 * 86, inodes: 320 };

/// Names of 12 to 15 characters (assumed); five blocks of a directory for `man3`, one for each other set.
const NAME_BYTES: u64 = 12;

/// Work on a block, and what it would be chosen to be if directories and the program were in memory.
const BLOCK_CPU: Nanos = Nanos(40_000);
const BLOCK_CPU_OF_WARM: Nanos = Nanos(110_000);

/// `/usr/local/bin/agrep`: where it lies is assumed. Pages are those of 8 KB of agrep 2.04, eight of code and constants and one of
/// data, compiled with `-O`, as its makefile has it, not by DEC's compiler but by gcc 12 for Alpha under Linux. Which are run in a
/// search for a string, and in which order, is what `qemu-alpha -L /usr/alpha-linux-gnu -d in_asm -D LOG agrep STRING FILE...` writes. Before
/// them the first is read by `exec`, and that of data by the loader, which writes addresses there. Libraries are taken to be in
/// memory. That pages come one at a time is said of OSF/1 by a course on Digital Unix 4.0, which has clusters; that section 3.1 has
/// clusters too is of files that are read.
pub const START: ColdStart = ColdStart { directories: 4, pages: &[0, 8, 3, 1, 2, 4, 7, 5, 6] };

/// A search of `set`.
pub fn search(set: FileSet, hinted: bool, seed: u64) -> Search {
    Search {
        set,
        scattering: Scattering {
            groups: Some(GROUPS),
            name_bytes: Some(NAME_BYTES),
            ..Scattering::SHUFFLED
        },
        block_cpu: BLOCK_CPU,
        cold_start: Some(START),
        disclosed_blocks: if hinted { UNREAD_BLOCKS } else { 0 },
        pitch_sectors: PITCH_SECTORS,
        seed,
    }
}

/// The same if its program and its directory are in memory.
pub fn warm(search: Search) -> Search {
    let scattering = Scattering { name_bytes: None, ..search.scattering };
    Search { scattering, cold_start: None, block_cpu: BLOCK_CPU_OF_WARM, ..search }
}

/// The same if its files lie in such groups.
fn in_groups(search: Search, groups: Option<Groups>) -> Search {
    Search { scattering: Scattering { groups, ..search.scattering }, ..search }
}

fn run(set: FileSet, hinted: bool, order: Order, of: impl Fn(Search) -> Search) -> Sweep {
    mean(SEEDS.map(|seed| {
        DISKS.map(|disks| {
            let bed = Testbed { order, ..testbed(disks) };
            Run::of(&bed.run(of(search(set, hinted, seed)).workload(), Rules::TIP1))
        })
    }))
}

/// The four searches one after another.
fn sum(sets: impl Iterator<Item = Sweep> + Clone) -> Sweep {
    std::array::from_fn(|at| Run::sum(sets.clone().map(|sweep| sweep[at])))
}

/// What sorting saves if it, or where files lie, is something else than assumed.
fn otherwise() -> impl Iterator<Item = Cell> {
    let others = [
        ("both ways", Order::Scan, Some(GROUPS)),
        ("one group", SCAN, None),
        ("both ways, one group", Order::Scan, None),
        ("groups of 16 cylinders", SCAN, Some(SMALL_GROUPS)),
    ];
    others.into_iter().flat_map(|(what, order, groups)| {
        let of = |hinted| {
            let set = |set| run(set, hinted, order, |search| in_groups(search, groups));
            sum(SETS_1995.map(set).into_iter())
        };
        let row = format!("agrep, SCAN, {what}, time saved");
        Row::new("1995 figure 1b", row, "%").reductions(&of(false), &of(true))
    })
}

type Other = (&'static str, fn(Search) -> Search);

/// What may have been in memory.
const OTHERS: [Other; 3] = [
    ("way to the program known", |search| Search {
        cold_start: Some(ColdStart { directories: 0, ..START }),
        ..search
    }),
    ("program known", |search| Search { cold_start: None, ..search }),
    ("program and directories known", warm),
];

/// What of the stall goes then.
fn otherwise_known() -> impl Iterator<Item = Cell> {
    OTHERS.into_iter().flat_map(|(what, other)| {
        let of = |hinted| sum(SETS_1995.map(|set| run(set, hinted, SCAN, other)).into_iter());
        let (plain, hinted) = (of(false), of(true));
        let row = Row::new("1995 figure 3b", format!("agrep, {what}, stall removed"), "%");
        let cells: Vec<Cell> = (0..DISKS.len())
            .map(|at| {
                let removed = reduction(plain[at].stall_s, hinted[at].stall_s);
                row.cell(Cell::disks(DISKS[at]), None, removed, Basis::Predicted)
            })
            .collect();
        cells
    })
}

/// A set, searched without hints, and with them in either order of the striper.
struct Searched {
    name: &'static str,
    plain: Sweep,
    scan: Sweep,
    fifo: Sweep,
}

/// Figures 1 a, 1 b, and agrep's part of figure 3.
pub fn figures() -> Outcome {
    let sets = SETS_1995.map(|set| Searched {
        name: set.name,
        plain: run(set, false, SCAN, |search| search),
        scan: run(set, true, SCAN, |search| search),
        fifo: run(set, true, Order::Fifo, |search| search),
    });
    let [plain, scan, fifo] = [
        sum(sets.iter().map(|set| set.plain)),
        sum(sets.iter().map(|set| set.scan)),
        sum(sets.iter().map(|set| set.fifo)),
    ];
    let mut outcome = Outcome::default();
    let mut panels = Vec::new();
    for set in &sets {
        let name = set.name;
        for (sweep, how) in [(&set.plain, "without hints"), (&set.scan, "with hints")] {
            let row = format!("agrep {name}, {how}");
            outcome.cells.extend(Row::new("1995 figure 1a", row, "s").of_sweep(sweep));
        }
        let lines = [line("without hints", &set.plain), line("with hints", &set.scan)];
        panels.push(Panel { height: 170.0, ..panel(&format!("{name}: elapsed, s"), lines) });
    }
    let row = Row::new("1995 figure 1a", "agrep, four sets, time saved", "%");
    for (at, disks) in DISKS.into_iter().enumerate() {
        let ours = reduction(plain[at].elapsed_s, scan[at].elapsed_s);
        let (paper, paper_to) = if disks >= 4 { (Some(80.0), Some(85.0)) } else { (None, None) };
        let cell = row.cell(Cell::disks(disks), paper, ours, Basis::Predicted);
        outcome.cells.push(Cell { paper_to, ..cell });
    }
    let title = "Text search (TIP 1995, figure 1 a)";
    outcome.figures.push(Figure::new("tip1995-figure-1a", title, "disks", panels));
    type Of = fn(&Searched) -> &Sweep;
    let orders: [(&str, Of, f64); 2] =
        [("SCAN", |set| &set.scan, 63.0), ("FIFO", |set| &set.fifo, 31.0)];
    for (name, of, paper) in orders {
        let row = Row::new("1995 figure 1b", format!("agrep, {name}, time saved"), "%");
        let sum = if name == "SCAN" { &scan } else { &fifo };
        for cell in row.reductions(&plain, sum) {
            let paper = (cell.column == Cell::disks(1)).then_some(paper);
            outcome.cells.push(Cell { paper, ..cell });
        }
        let row = format!("agrep, {name}, time saved, mean of sets");
        let row = Row::new("1995 figure 1b", row, "%");
        for (at, disks) in DISKS.into_iter().enumerate() {
            let saved = |set: &Searched| reduction(set.plain[at].elapsed_s, of(set)[at].elapsed_s);
            let ours = sets.iter().map(saved).sum::<f64>() / sets.len() as f64;
            let paper = (disks == 1).then_some(paper);
            outcome.cells.push(row.cell(Cell::disks(disks), paper, ours, Basis::Predicted));
        }
    }
    outcome.cells.extend(otherwise());
    outcome.figures.push(over_disks(
        "tip1995-figure-1b",
        "Four searches, by the order of the striper (TIP 1995, figure 1 b)",
        vec![line("without hints", &plain), line("FIFO", &fifo), line("SCAN", &scan)],
    ));
    let paper = Figure3 {
        elapsed: Some(84.0),
        // While the program was taken to be in memory; with no work at all it would be 82.4 now.
        is_most_chosen: true,
        stall: STALL_REMOVED,
        chosen_disks: None,
    };
    outcome.merge(figure_3("agrep", &plain, &scan, &paper));
    outcome.cells.extend(otherwise_known());
    outcome
}
