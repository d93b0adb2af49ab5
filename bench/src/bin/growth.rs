//! Nanoseconds a read against the number of blocks in memory: a table, what it grows like, and a picture.
//!
//! Usage: policy-growth [LARGEST_DECADE] [PICTURE.svg]
//!
//! All sizes of a workload are measured in turn, round after round, so that the machine's moods hit all; what
//! counts is the median of the rounds. Processor time is counted where the system tells it. The last column is
//! the machine's own growth: one dependent access to as many cache lines as there are blocks.

use std::fmt::Write as _;
use std::time::Instant;

use foretell_bench::random::Random;
use foretell_bench::{Bench, Workload};

const FIRST_DECADE: u32 = 3;
const LARGEST_DECADE: u32 = 7;
const ROUNDS: usize = 9;
const READS: u32 = 200_000;

const WORKLOADS: [Workload; 4] =
    [Workload::LoopsThatFit, Workload::Scans, Workload::LruZipf, Workload::LruMisses];
const MACHINE: &str = "one memory access";

/// Processor time of this process so far; if it is not told, the time of day.
fn now_ns() -> f64 {
    let told = std::fs::read_to_string("/proc/self/schedstat").ok();
    let told = told.and_then(|text| text.split_whitespace().next()?.parse().ok());
    told.unwrap_or_else(|| {
        let day = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
        day.map_or(0.0, |since| since.as_nanos() as f64)
    })
}

fn median(mut values: Vec<f64>) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

/// The median over the rounds of what a call of each costs, ns.
fn in_turn(each: &mut [Box<dyn FnMut()>]) -> Vec<f64> {
    let mut costs = vec![Vec::new(); each.len()];
    for _ in 0..ROUNDS {
        for (call, costs) in each.iter_mut().zip(&mut costs) {
            let begin = now_ns();
            (0..READS).for_each(|_| call());
            costs.push((now_ns() - begin) / f64::from(READS));
        }
    }
    costs.into_iter().map(median).collect()
}

/// Goes from line to line of `lines`, all of them, in random order.
fn chase(lines: u64) -> Box<dyn FnMut()> {
    const WORDS: usize = 16; // Of 4 bytes, in a line.
    let order = Random::new(1).permutation(lines);
    let mut memory = vec![0u32; lines as usize * WORDS];
    for (index, &line) in order.iter().enumerate() {
        let next = order[(index + 1) % order.len()];
        memory[line as usize * WORDS] = next as u32;
    }
    let mut at = 0;
    Box::new(move || at = std::hint::black_box(memory[at as usize * WORDS]))
}

/// The straight line through the costs of the decades: at 1 block, and more for each decade.
fn fit(costs: &[f64]) -> (f64, f64) {
    let count = costs.len() as f64;
    let decades = (0..costs.len()).map(|at| f64::from(FIRST_DECADE) + at as f64);
    let (mean_x, mean_y) =
        (decades.clone().sum::<f64>() / count, costs.iter().sum::<f64>() / count);
    let covariance: f64 =
        decades.clone().zip(costs).map(|(x, y)| (x - mean_x) * (y - mean_y)).sum();
    let variance: f64 = decades.map(|x| (x - mean_x).powi(2)).sum();
    let slope = covariance / variance;
    (mean_y - slope * mean_x, slope)
}

fn print(rows: &[(&str, Vec<f64>)]) {
    let decades = FIRST_DECADE..FIRST_DECADE + rows[0].1.len() as u32;
    let heads: Vec<String> = decades.map(|decade| format!("10^{decade}")).collect();
    println!("| ns a read, by blocks | {} | ratios of neighbours | fit |", heads.join(" | "));
    println!("|---|{}---|---|", "---|".repeat(heads.len()));
    for (name, costs) in rows {
        let shown: Vec<String> = costs.iter().map(|cost| format!("{cost:.0}")).collect();
        let ratios: Vec<String> =
            costs.windows(2).map(|pair| format!("{:.2}", pair[1] / pair[0])).collect();
        let (first, slope) = fit(costs);
        println!(
            "| {name} | {} | {} | {first:.0} + {slope:.0} log₁₀ n |",
            shown.join(" | "),
            ratios.join(" ")
        );
    }
}

const WIDTH: f64 = 640.0;
const HEIGHT: f64 = 400.0;
const LEFT: f64 = 60.0;
const RIGHT: f64 = 190.0;
const EDGE: f64 = 40.0;
const COLOURS: [&str; 5] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#999999"];

/// The rows as curves: blocks to the right and nanoseconds upwards, both by powers of ten.
fn picture(rows: &[(&str, Vec<f64>)]) -> String {
    let last = FIRST_DECADE as f64 + rows[0].1.len() as f64 - 1.0;
    let all = rows.iter().flat_map(|(_, costs)| costs);
    let top = all.clone().fold(1.0f64, |top, &cost| top.max(cost)).log10().ceil();
    let bottom = all.fold(f64::INFINITY, |low, &cost| low.min(cost)).log10().floor();
    let x = |decade: f64| {
        LEFT + (WIDTH - LEFT - RIGHT) * (decade - f64::from(FIRST_DECADE))
            / (last - f64::from(FIRST_DECADE)).max(1.0)
    };
    let y = |cost: f64| {
        HEIGHT - EDGE - (HEIGHT - 2.0 * EDGE) * (cost.log10() - bottom) / (top - bottom)
    };
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" \
         font-family=\"sans-serif\" font-size=\"12\">\n\
         <title>Cost of a read against the number of blocks</title>\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"white\"/>\n"
    );
    let mut line = |text: std::fmt::Arguments<'_>| {
        svg.write_fmt(text).expect("a string takes all");
        svg.push('\n');
    };
    for decade in FIRST_DECADE..=last as u32 {
        let at = x(f64::from(decade));
        line(format_args!(
            "<text x=\"{at}\" y=\"{}\" text-anchor=\"middle\">10<tspan dy=\"-5\" \
             font-size=\"9\">{decade}</tspan></text>",
            HEIGHT - EDGE + 18.0
        ));
    }
    for power in bottom as i32..=top as i32 {
        let at = y(10f64.powi(power));
        line(format_args!(
            "<path d=\"M{LEFT} {at}H{}\" stroke=\"#dddddd\"/><text x=\"{}\" y=\"{}\" \
             text-anchor=\"end\">{} ns</text>",
            WIDTH - RIGHT,
            LEFT - 6.0,
            at + 4.0,
            10f64.powi(power)
        ));
    }
    line(format_args!(
        "<text x=\"{}\" y=\"{}\" text-anchor=\"middle\">blocks in memory</text>",
        x((f64::from(FIRST_DECADE) + last) / 2.0),
        HEIGHT - 6.0
    ));
    for ((name, costs), colour) in rows.iter().zip(COLOURS) {
        let points: Vec<String> = costs
            .iter()
            .enumerate()
            .map(|(at, &cost)| {
                format!("{:.1},{:.1}", x(f64::from(FIRST_DECADE) + at as f64), y(cost))
            })
            .collect();
        line(format_args!(
            "<polyline points=\"{}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"2\"/>\
             <text x=\"{}\" y=\"{:.1}\" fill=\"{colour}\">{name}</text>",
            points.join(" "),
            WIDTH - RIGHT + 8.0,
            y(costs[costs.len() - 1]) + 4.0
        ));
    }
    svg.push_str("</svg>\n");
    svg
}

fn main() {
    let mut arguments = std::env::args().skip(1);
    let largest = arguments.next().map_or(LARGEST_DECADE, |text| text.parse().expect("a number"));
    let decades = FIRST_DECADE..=largest.max(FIRST_DECADE + 1);
    let begin = Instant::now();
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        let benches = decades.clone().map(|decade| Bench::new(workload, 10u64.pow(decade)));
        let steps = benches.map(|mut bench| -> Box<dyn FnMut()> {
            Box::new(move || {
                bench.step();
            })
        });
        rows.push((workload.name(), in_turn(&mut steps.collect::<Vec<_>>())));
        eprintln!("{} after {:.0} s", workload.name(), begin.elapsed().as_secs_f64());
    }
    let mut chases: Vec<_> = decades.map(|decade| chase(10u64.pow(decade))).collect();
    rows.push((MACHINE, in_turn(&mut chases)));
    print(&rows);
    if let Some(path) = arguments.next() {
        std::fs::write(&path, picture(&rows)).unwrap_or_else(|error| panic!("{path}: {error}"));
    }
}
