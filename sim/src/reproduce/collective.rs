//! Madhyastha, Gibson and Faloutsos, "Informed Prefetching of Collective Input/Output Requests", 1999: tables 4 to 6 and
//! figures 7 to 9.
//!
//! The model takes what the paper states: 8 HP 97560, 8 processors, blocks of 8 KB, SSTF and the network of
//! table 3. Computing takes as long as reading the file at the throughput of *our* disk-directed read of 4 MB
//! in the same layout. The paper leaves open:
//!
//! * *The timing of the drive's cache*: [`Reading::Stored`](crate::device::disk::Reading), chosen by the
//!   throughputs of the collective call (`docs/internals/collective.md` has the arithmetic). These throughputs,
//!   and all that follows from them alone, are calibrated.
//! * *The place of the next sequential file*: random, as the same throughputs suggest.
//! * *The order of SSTF within a cylinder*: by sectors (`docs/internals/collective.md`).
//! * *Whether SSTF knows what the drive's cache holds*, which needs no seek: it does. This was chosen by the
//!   crossovers of drawn owners, which are therefore calibrated.
//! * *The angles between disks*: none. Separate rows have other angles.
//! * *The cut of a cube into boxes*: as nearly cubes as possible. Separate tables have all other cuts.
//! * *The number of files*: enough for 64 MB, but 2 to 16. The start is not counted.
//! * *Drawn owners and places*: the median, the least and the most of several seeds.
//!
//! *Least* is the least throughput at depths from 0 to the crossover; *most* is the throughput at depth B/P.
//! The crossover is the first depth with more throughput than the synchronous disk-directed read. The search
//! tries every depth up to 16, each eighth depth up to 64, and then doubles and bisects.

use std::sync::Arc;

use foretell_policy::Nanos;

use super::{Basis, Cell, Figure, Outcome, panel, spread};
use crate::collective::crossover::least_depth;
use crate::collective::model::{paper_throughput_mb_s, random_throughput_with_overhead_mb_s};
use crate::collective::pattern::cut_cube;
use crate::collective::{CollectiveReport, CollectiveSpec, Method, Pattern, Placement};

/// A row of table 4: pattern, MB; minimum, maximum, collective throughput, MB/s; crossover depth.
type Row4 = (Pattern, u64, [f64; 3], f64);

const TABLE_4: [Row4; 15] = [
    (Pattern::Interleaved, 4, [9.018, 17.988, 9.066], 1.0),
    (Pattern::Interleaved, 8, [9.286, 18.132, 9.314], 1.0),
    (Pattern::Interleaved, 32, [9.505, 18.132, 9.509], 1.0),
    (Pattern::Interleaved, 64, [9.534, 18.132, 9.541], 2.0),
    (Pattern::Interleaved, 128, [9.555, 18.132, 9.558], 2.0),
    (Pattern::Interleaved, 256, [9.564, 18.132, 9.566], 2.0),
    (Pattern::Block1d, 4, [3.091, 16.894, 9.066], 16.0),
    (Pattern::Block1d, 32, [2.411, 18.132, 9.509], 16.0),
    (Pattern::Block1d, 256, [2.344, 18.132, 9.566], 16.0),
    (Pattern::Block3d, 4, [2.584, 17.198, 9.066], 8.0),
    (Pattern::Block3d, 32, [2.708, 18.132, 9.509], 16.0),
    (Pattern::Block3d, 256, [2.473, 18.132, 9.566], 16.0),
    (Pattern::Global, 4, [3.123, 16.145, 9.066], 7.0),
    (Pattern::Global, 32, [2.623, 18.132, 9.509], 10.0),
    (Pattern::Global, 256, [2.408, 18.132, 9.566], 14.0),
];

/// Table 5: MB; minimum, maximum, collective throughput, MB/s; crossover depth of random places, and of the same sorted.
const TABLE_5: [(u64, [f64; 3], f64, f64); 6] = [
    (4, [1.264, 2.926, 1.551], 16.0, 2.0),
    (8, [1.314, 3.033, 1.593], 32.0, 2.0),
    (32, [1.336, 3.036, 1.642], 56.0, 2.0),
    (64, [1.303, 3.036, 1.643], 88.0, 2.0),
    (128, [1.323, 3.036, 1.660], 136.0, 6.0),
    (256, [1.332, 3.069, 1.697], 296.0, 1.0),
];

/// Table 6, of 256 MB: crossover depths of sorted random places.
const TABLE_6: [(Pattern, f64); 3] =
    [(Pattern::Interleaved, 1.0), (Pattern::Block1d, 96.0), (Pattern::Block3d, 32.0)];

/// Every depth up to this one is tried.
const EACH: u64 = 16;

/// Steps of a revolution in which the angle between neighbouring disks is varied; the paper does not give the
/// angle.
const TURNS: u64 = 16;

/// Seeds for a file of `mb` MB. Large files vary little and get fewer.
fn seeds(mb: u64) -> std::ops::RangeInclusive<u64> {
    1..=if mb < 128 { 8 } else { 4 }
}

/// The paper's machine with files of one layout.
#[derive(Clone, Copy, Debug)]
struct Bench {
    placement: Placement,
    seed: u64,
    /// Computing time for a MB.
    compute_mb: Nanos,
}

impl Bench {
    fn new(placement: Placement, seed: u64) -> Self {
        let mut bench = Bench { placement, seed, compute_mb: Nanos::ZERO };
        // The computing is long enough for each disk to become idle.
        bench.compute_mb = Nanos::from_millis(500.0);
        let spec = bench.spec(4, &Pattern::Interleaved);
        let reading = spec.run().reading;
        bench.compute_mb = Nanos(reading.0 / u64::from(spec.files) / 4);
        bench
    }

    fn spec(&self, mb: u64, pattern: &Pattern) -> CollectiveSpec {
        let Bench { placement, seed, compute_mb } = *self;
        let files = (64 / mb).clamp(2, 16) as u32;
        let (pattern, compute) = (pattern.clone(), Nanos(compute_mb.0 * mb));
        CollectiveSpec {
            placement,
            apart: true,
            pattern,
            compute,
            files,
            seed,
            ..CollectiveSpec::paper(mb)
        }
    }
}

/// A row of tables 4 to 6, for several seeds.
#[derive(Default)]
struct Draws {
    /// Least, most, and collective throughput, in MB/s.
    throughputs: [Vec<f64>; 3],
    /// Crossover depths, blocks.
    crossover: Vec<f64>,
}

impl Draws {
    /// Runs each spec. With `ends`, depth 0 and the depth of a whole portion are run too.
    fn of(specs: impl IntoIterator<Item = CollectiveSpec>, ends: bool) -> Self {
        let mut draws = Draws::default();
        for spec in specs {
            let collective = spec.run().throughput_mb_s();
            let (mut least, mut most) = (f64::INFINITY, 0.0f64);
            let mut beats = |depth: u64| {
                let throughput = spec.run_prefetching(depth).throughput_mb_s();
                (least, most) = (least.min(throughput), most.max(throughput));
                throughput > collective
            };
            let share = spec.share_blocks();
            let crossover = least_depth(EACH, share, &mut beats).unwrap_or(share);
            if ends {
                beats(0);
                beats(share);
            }
            for (all, one) in draws.throughputs.iter_mut().zip([least, most, collective]) {
                all.push(one);
            }
            draws.crossover.push(crossover as f64);
        }
        draws
    }

    /// Files of `mb` MB, with one draw for each seed.
    fn of_seeds(placement: Placement, bench: Placement, mb: u64, pattern: &Pattern) -> Self {
        let spec = |seed| Bench { placement, ..Bench::new(bench, seed) }.spec(mb, pattern);
        Draws::of(seeds(mb).map(spec), placement == bench)
    }
}

fn cell(experiment: &str, row: String, column: &str, unit: &str, numbers: (f64, f64)) -> Cell {
    Cell {
        experiment: experiment.into(),
        row,
        column: column.into(),
        unit: unit.into(),
        paper: Some(numbers.0),
        paper_to: None,
        spread: None,
        ours: numbers.1,
        basis: Basis::Predicted,
    }
}

/// The median; of two in the middle, the larger.
fn median(mut all: Vec<f64>) -> f64 {
    all.sort_by(f64::total_cmp);
    all.get(all.len() / 2).copied().unwrap_or(f64::NAN)
}

/// A cell with the median of draws and their range.
fn drawn(
    experiment: &str,
    row: String,
    column: &str,
    unit: &str,
    (paper, ours): (f64, &[f64]),
) -> Cell {
    let range = spread(ours.iter().copied()).filter(|(least, most)| least < most);
    let numbers = (paper, median(ours.to_vec()));
    Cell { spread: range, ..cell(experiment, row, column, unit, numbers) }
}

const THROUGHPUTS: [&str; 3] = ["least", "most", "collective"];

/// Cells of least, most and collective throughput. The last one was used to choose the drive's model. The most
/// is the throughput of the computing, which takes as long as the collective call.
fn throughputs(experiment: &str, row: &str, mb: u64, paper: [f64; 3], draws: &Draws) -> Vec<Cell> {
    let columns = THROUGHPUTS.into_iter().zip(paper.into_iter().zip(&draws.throughputs));
    let cell = |(column, (paper, ours)): (&str, (f64, &Vec<f64>))| {
        let is_calibrated = column == "collective" || column == "most" && mb > 4;
        let basis = if is_calibrated { Basis::Calibrated } else { Basis::Predicted };
        Cell { basis, ..drawn(experiment, row.to_owned(), column, "MB/s", (paper, ours)) }
    };
    columns.map(cell).collect()
}

/// The rows of table 4 whose size `is_asked` accepts.
fn of_table_4(is_asked: fn(u64) -> bool) -> Outcome {
    const EXPERIMENT: &str = "1999 table 4";
    let layout = Placement::Sequential;
    let mut cells = Vec::new();
    for (pattern, size, paper, crossover) in TABLE_4.iter().filter(|row| is_asked(row.1)) {
        let draws = Draws::of_seeds(layout, layout, *size, pattern);
        let row = format!("{pattern}, {size} MB");
        let mut columns = throughputs(EXPERIMENT, &row, *size, *paper, &draws);
        if *pattern == Pattern::Interleaved {
            columns[0].basis = Basis::Calibrated; // By it, disks were chosen to wait until a block has been sent.
        }
        cells.extend(columns);
        // By drawn owners, the queue was chosen to know what the drive's cache holds.
        let basis = if *pattern == Pattern::Global { Basis::Calibrated } else { Basis::Predicted };
        let name = format!("crossover, {row}");
        let depth = drawn(EXPERIMENT, name, "depth", "blocks", (*crossover, &draws.crossover));
        cells.push(Cell { basis, ..depth });
        let twice = 2.0 * CollectiveSpec::paper(4).disks as f64;
        let (all, within) = (
            draws.crossover.len(),
            draws.crossover.iter().filter(|&&depth| depth <= twice).count(),
        );
        let (name, unit) = (format!("crossover at most 2D, {row}"), format!("of {all}"));
        let draws = cell(EXPERIMENT, name, "draws", &unit, (all as f64, within as f64));
        cells.push(Cell { basis, ..draws });
        if matches!(pattern, Pattern::Block1d | Pattern::Block3d) {
            cells.extend(turned(EXPERIMENT, &row, *size, pattern, (paper[0], *crossover)));
        }
    }
    Outcome { cells, figures: Vec::new() }
}

/// The least throughput with disks rotated against one another, and for files below 256 MB the crossover.
fn turned(
    experiment: &str,
    row: &str,
    mb: u64,
    pattern: &Pattern,
    (least, crossover): (f64, f64),
) -> Vec<Cell> {
    let spec = |turn: u64| CollectiveSpec {
        turn: turn as f64 / TURNS as f64,
        ..Bench::new(Placement::Sequential, 1).spec(mb, pattern)
    };
    let ours: Vec<f64> =
        (1..TURNS).map(|turn| spec(turn).run_prefetching(0).throughput_mb_s()).collect();
    let name = format!("{row}, disks turned");
    let mut cells = vec![drawn(experiment, name.clone(), "least", "MB/s", (least, &ours))];
    if mb < 256 {
        let draws = Draws::of((1..TURNS).step_by(2).map(spec), false);
        let name = format!("crossover, {name}");
        cells.push(drawn(experiment, name, "depth", "blocks", (crossover, &draws.crossover)));
    }
    // Only the rows without rotation are compared with the paper.
    cells.into_iter().map(|cell| Cell { paper: None, ..cell }).collect()
}

/// Table 4 without the files of 256 MB.
pub fn table_4() -> Outcome {
    of_table_4(|mb| mb < 256)
}

/// The files of 256 MB of table 4.
pub fn table_4_largest() -> Outcome {
    of_table_4(|mb| mb == 256)
}

/// Table 5.
pub fn table_5() -> Outcome {
    const EXPERIMENT: &str = "1999 table 5";
    let layout = Placement::Random;
    let mut cells = Vec::new();
    for (mb, paper, unsorted, in_order) in TABLE_5 {
        let random = Draws::of_seeds(layout, layout, mb, &Pattern::Interleaved);
        let sorted = Draws::of_seeds(Placement::Increasing, layout, mb, &Pattern::Interleaved);
        let row = format!("interleaved, {mb} MB");
        cells.extend(throughputs(EXPERIMENT, &row, mb, paper, &random));
        for (column, paper, ours) in
            [("unsorted", unsorted, &random.crossover), ("sorted", in_order, &sorted.crossover)]
        {
            let row = format!("crossover, {row}");
            cells.push(drawn(EXPERIMENT, row, column, "blocks", (paper, ours)));
        }
    }
    Outcome { cells, figures: Vec::new() }
}

/// Table 6.
pub fn table_6() -> Outcome {
    let crossover = |(pattern, paper): (Pattern, f64)| {
        let ours = Draws::of_seeds(Placement::Increasing, Placement::Random, 256, &pattern);
        let row = format!("crossover, {pattern}, 256 MB");
        drawn("1999 table 6", row, "sorted", "blocks", (paper, &ours.crossover))
    };
    Outcome { cells: TABLE_6.into_iter().map(crossover).collect(), figures: Vec::new() }
}

/// The three-dimensional blocks of tables 4 and 6, with the cube cut into eight boxes in every possible way.
/// The paper does not say which cut it uses, and much depends on it. One draw each.
pub fn cuts() -> Outcome {
    const EXPERIMENT: &str = "1999 tables 4 and 6, cuts of a cube";
    let (mut crossovers, mut throughputs) = (Vec::new(), Vec::new());
    for cut @ [x, y, z] in cuts_of(CollectiveSpec::paper(4).processors as u64) {
        let name = format!("{x} x {y} x {z}");
        let cell = |row: String, column: String, unit: &str, ours: f64| Cell {
            paper: None,
            ..cell(EXPERIMENT, row, &column, unit, (0.0, ours))
        };
        for mb in [4, 32, 256] {
            let blocks = CollectiveSpec::paper(mb).file_blocks;
            let pattern = Pattern::Owners(Arc::new(cut_cube(blocks, cut)));
            let draw = |placement, bench| {
                let spec = Bench { placement, ..Bench::new(bench, 1) }.spec(mb, &pattern);
                Draws::of([spec], placement == bench)
            };
            let in_order = draw(Placement::Sequential, Placement::Sequential);
            let least = in_order.throughputs[0][0];
            throughputs.push(cell(name.clone(), format!("least, {mb} MB"), "MB/s", least));
            let mut crossover = |column: String, draws: &Draws| {
                let row = format!("crossover, {name}");
                crossovers.push(cell(row, column, "blocks", draws.crossover[0]));
            };
            crossover(format!("{mb} MB"), &in_order);
            if mb == 256 {
                let sorted = draw(Placement::Increasing, Placement::Random);
                crossover("256 MB, sorted".into(), &sorted);
            }
        }
    }
    crossovers.append(&mut throughputs);
    Outcome { cells: crossovers, figures: Vec::new() }
}

/// All ways to cut a cube into `boxes` boxes, as the parts of each edge. The file runs along the first edge.
fn cuts_of(boxes: u64) -> impl Iterator<Item = [u64; 3]> {
    let divisors = |n: u64| (1..=n).filter(move |d| n.is_multiple_of(*d));
    divisors(boxes).flat_map(move |x| divisors(boxes / x).map(move |y| [x, y, boxes / x / y]))
}

/// The depths of the points in figures 7 to 9.
const DEPTHS: [u64; 13] = [0, 1, 2, 4, 6, 8, 12, 16, 20, 24, 32, 48, 64];

fn figure(name: &str, title: &str, x_title: &str, panel: crate::plot::Panel) -> Figure {
    Figure::new(&format!("collective1999-{name}"), title, x_title, vec![panel])
}

/// Figure 7: files of 4 MB, interleaved and 3-D blocks. Its caption says response time and the text says
/// service time, so both are here.
fn figure_7() -> Outcome {
    let bench = Bench::new(Placement::Sequential, 1);
    let mut outcome = Outcome::default();
    let mut panels = Vec::new();
    type Measure = fn(&CollectiveReport) -> f64;
    let kinds: [(&str, Measure); 2] =
        [("service", CollectiveReport::service_ms), ("response", CollectiveReport::response_ms)];
    for (kind, of) in kinds {
        let line = |pattern: Pattern| {
            let spec = bench.spec(4, &pattern);
            let point = |&depth: &u64| (depth as f64, of(&spec.run_prefetching(depth)));
            (pattern.name().to_owned(), DEPTHS.iter().map(point).collect::<Vec<_>>())
        };
        let lines = [Pattern::Interleaved, Pattern::Block3d].map(line);
        for (name, points) in &lines {
            for depth in [0.0, 4.0, 8.0, 16.0, 64.0] {
                let ours = points.iter().find(|point| point.0 == depth).map_or(f64::NAN, |at| at.1);
                let row = format!("{name}, 4 MB, a request's {kind}");
                let of = cell("1999 figure 7", row, &format!("depth {depth}"), "ms", (0.0, ours));
                outcome.cells.push(Cell { paper: None, ..of });
            }
        }
        panels.push(panel(&format!("a request's {kind}, ms"), lines));
    }
    let title = "Disk service and response, and prefetch depth (collective 1999, figure 7)";
    let x_title = "prefetch depth, blocks a processor";
    outcome.figures.push(Figure::new("collective1999-figure-7", title, x_title, panels));
    outcome
}

/// Figure 8: throughput over memory, with files of 4 MB.
fn figure_8() -> Outcome {
    let mut outcome = Outcome::default();
    for (name, placement) in [("a", Placement::Sequential), ("b", Placement::Random)] {
        let bench = Bench::new(placement, 1);
        let memory = |spec: &CollectiveSpec| spec.memory_blocks() as f64 / 128.0;
        let line = |pattern: Pattern| {
            let spec = bench.spec(4, &pattern);
            let point = |&depth: &u64| {
                let spec = CollectiveSpec {
                    method: Method::Prefetch,
                    depth,
                    overlapped: true,
                    ..spec.clone()
                };
                (memory(&spec), spec.run().throughput_mb_s())
            };
            (pattern.name().to_owned(), DEPTHS.iter().map(point).collect::<Vec<_>>())
        };
        let mut lines: Vec<_> = [Pattern::Interleaved, Pattern::Block3d].map(line).into();
        let points = [false, true].map(|overlapped| {
            let spec = CollectiveSpec { overlapped, ..bench.spec(4, &Pattern::Block3d) };
            (memory(&spec), spec.run().throughput_mb_s())
        });
        lines.push(("disk-directed, B and 2B".into(), points.into()));
        for (line, points) in &lines {
            for &(mb, ours) in points.iter().filter(|(mb, _)| [4.0, 5.0, 6.0, 8.0].contains(mb)) {
                let row = format!("4 MB, {line}");
                let of = cell(
                    &format!("1999 figure 8{name}"),
                    row,
                    &format!("{mb} MB"),
                    "MB/s",
                    (0.0, ours),
                );
                outcome.cells.push(Cell { paper: None, ..of });
            }
        }
        let title = format!("Throughput and memory, {placement} (collective 1999, figure 8{name})");
        let panel = panel("throughput, MB/s", lines);
        let file = format!("figure-8{name}");
        outcome.figures.push(figure(&file, &title, "memory, MB", panel));
    }
    outcome
}

/// Figure 9: the paper's models beside our simulation. The sequential model holds for depths above two. The
/// random model appears as printed, and with the drive's overhead.
fn figure_9() -> Outcome {
    type Model = fn(&CollectiveSpec, u64) -> Option<f64>;
    let as_printed: (&str, Model) = ("model", paper_throughput_mb_s);
    let with_overhead: (&str, Model) =
        ("model with overhead", random_throughput_with_overhead_mb_s);
    let mut outcome = Outcome::default();
    for (name, placement, pattern, from, within, models) in [
        ("a", Placement::Random, Pattern::Interleaved, 1, 5.0, &[as_printed, with_overhead][..]),
        ("b", Placement::Sequential, Pattern::Global, 3, 20.0, &[as_printed][..]),
    ] {
        let bench = Bench::new(placement, 1);
        let mut lines = Vec::new();
        for mb in [4, 32] {
            let spec = bench.spec(mb, &pattern);
            let depths = || DEPTHS.into_iter().filter(|&depth| depth > 0);
            let specs: Vec<_> =
                seeds(mb).map(|seed| Bench::new(placement, seed).spec(mb, &pattern)).collect();
            let of_seeds = |x| {
                let throughput = |spec: &CollectiveSpec| spec.run_prefetching(x).throughput_mb_s();
                median(specs.iter().map(throughput).collect())
            };
            let simulated: Vec<(f64, f64)> = depths().map(|x| (x as f64, of_seeds(x))).collect();
            for (title, model) in models {
                let modelled = |x| Some((x as f64, model(&spec, x)?));
                let modelled: Vec<(f64, f64)> = depths().filter_map(modelled).collect();
                let errors =
                    simulated.iter().zip(&modelled).filter(|(at, _)| at.0 >= f64::from(from));
                let worst = errors
                    .map(|(at, model)| 100.0 * (model.1 / at.1 - 1.0).abs())
                    .fold(0.0, f64::max);
                let row = format!("{pattern}, {mb} MB, {title}'s largest error");
                let numbers =
                    cell(&format!("1999 figure 9{name}"), row, "error", "%", (0.0, worst));
                outcome.cells.push(Cell { paper_to: Some(within), ..numbers });
                lines.push((format!("{title}, {mb} MB"), modelled));
            }
            lines.push((format!("simulated, {mb} MB"), simulated));
        }
        let title = format!("Model and simulation, {placement} (collective 1999, figure 9{name})");
        let file = format!("figure-9{name}");
        let panel = panel("throughput, MB/s", lines);
        outcome.figures.push(figure(&file, &title, "prefetch depth, blocks a processor", panel));
    }
    outcome
}

/// Figures 7 to 9.
pub fn figures() -> Outcome {
    let mut outcome = figure_7();
    outcome.merge(figure_8());
    outcome.merge(figure_9());
    outcome
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The paper's depths result if a block ahead saves only its own time, and no positioning
    /// (`docs/internals/collective.md`).
    #[test]
    fn the_papers_interleaved_crossovers_are_blocks_that_make_up_for_reading_on_demand() {
        const BLOCK_MS: f64 = 3.08;
        let rows = TABLE_4.iter().filter(|row| row.0 == Pattern::Interleaved);
        for (_, mb, [least, _, collective], crossover) in rows {
            let more_ms = (*mb as f64 / least - *mb as f64 / collective) * 1e3;
            assert_eq!((more_ms / BLOCK_MS).ceil(), *crossover, "{mb} MB: {more_ms}");
        }
    }
}
