//! Griffioen and Appleton, "Improving File System Performance via Predictive Caching" (1995): the paper's curves on this
//! project's own recordings, and the predictors compared.
//!
//! The recordings (`sim/traces`, made by `scripts/record-opens --workloads`) are runs of four programs: a C project that is
//! compiled, a manual that is typeset, Python scripts, npm. A seed draws when two people start which of them
//! ([`stream`](crate::predict::stream)). The fifth stream has all four.
//!
//! Our copy of the paper has lost its numbers and plots, so only what its text says is compared: that half the cache with
//! prediction does as well as the whole without, and the direction of each curve.

use std::fmt::Write as _;
use std::io::Cursor;
use std::path::Path;

use serde::Serialize;

use super::{Figure, panel};
use crate::plot::{Axis, Plot};
use crate::predict::device::{DEVICES, DeviceSpec};
use crate::predict::graph::{PREDICTORS, Settings, predictor};
use crate::predict::stream::Stream;
use crate::predict::{Fetching, Options, Predicting, Report, run};
use crate::trace::opens::{self, Opens};

/// A recording: its name and file, and the days for which runs are drawn from it.
type Recording = (&'static str, &'static [u8], u64);

const RECORDINGS: [Recording; 4] = [
    ("compile", include_bytes!("../../traces/compile.opens.gz"), 1),
    ("typeset", include_bytes!("../../traces/typeset.opens.gz"), 1),
    ("python", include_bytes!("../../traces/python.opens.gz"), 3),
    ("npm", include_bytes!("../../traces/npm.opens.gz"), 3),
];
/// The stream of all recordings, and its days.
const MIXED: (&str, u64) = ("mixed", 2);
/// The seed of all draws.
const SEED: u64 = 1;
/// Cache sizes, as shares of what all files of a stream take: so many 32nds.
pub const CACHES: [u64; 6] = [1, 2, 4, 8, 16, 32];
/// Caches of the sweep over lookahead and minimum chance.
const SMALL_AND_LARGE: [u64; 2] = [2, 16];
const LOOKAHEADS: [usize; 6] = [4, 8, 16, 32, 64, 128];
const CHANCES: [f32; 6] = [0.05, 0.1, 0.25, 0.5, 0.75, 0.95];
/// How far the combination may be behind the best single predictor, and behind LRU.
const BEHIND_MAX: f64 = 1.02;

/// The names of the streams.
pub fn streams() -> impl Iterator<Item = &'static str> {
    RECORDINGS.iter().map(|recording| recording.0).chain([MIXED.0])
}

fn recording((name, bytes, _): &Recording) -> Opens {
    let read = opens::of(Cursor::new(*bytes), Path::new(name));
    read.expect("invariant: a test reads the recordings that are compiled in")
}

fn stream(number: usize) -> Stream {
    match RECORDINGS.get(number) {
        Some(one) => Stream::of_days(&[&recording(one)], one.2, SEED),
        None => {
            let all = RECORDINGS.each_ref().map(recording);
            Stream::of_days(&all.each_ref(), MIXED.1, SEED)
        }
    }
}

/// A part that runs on its own.
#[derive(Clone, Copy, Debug)]
pub enum Part {
    /// All predictors over all cache sizes, on a stream and a device.
    Caches(usize, usize),
    /// The probability graph over lookahead and minimum chance on the mixed stream, on a device and with a cache.
    Grid(usize, u64),
}

/// All parts.
pub fn parts() -> Vec<Part> {
    let streams = RECORDINGS.len() + 1;
    let caches = (0..streams)
        .flat_map(|stream| (0..DEVICES.len()).map(move |device| Part::Caches(stream, device)));
    // The devices of 1995, as in the paper's figures.
    let grids = [2, 3]
        .into_iter()
        .flat_map(|device| SMALL_AND_LARGE.map(|cache| Part::Grid(device, cache)));
    caches.chain(grids).collect()
}

/// Figures of one simulation.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Row {
    /// The stream and the device.
    pub stream: &'static str,
    /// See `stream`.
    pub device: &'static str,
    /// The cache, in bytes, and in 32nds of what all files take.
    pub cache_bytes: u64,
    /// See `cache_bytes`.
    pub cache_32nds: u64,
    /// `lru`, `oracle`, a predictor, or `paper`: the probability graph without foretell's rules.
    pub predictor: &'static str,
    /// The lookahead and the minimum chance.
    pub lookahead: usize,
    /// See `lookahead`.
    pub min_chance: f32,
    /// Opens, and those whose file was in memory.
    pub opens: u64,
    /// See `opens`.
    pub hits: u64,
    /// Read complete time, in seconds.
    pub read_s: f64,
    /// Time that the disk worked, in seconds.
    pub busy_s: f64,
    /// Predictions made, right, and right in time.
    pub predictions: u64,
    /// See `predictions`.
    pub right: u64,
    /// See `predictions`.
    pub in_time: u64,
    /// Bytes fetched ahead, and those of them that were not read.
    pub fetched_bytes: u64,
    /// See `fetched_bytes`.
    pub wasted_bytes: u64,
    /// Quartiles of the time from a right prediction to its read, in milliseconds; empty without one.
    pub lead_quartiles_ms: Vec<f64>,
}

fn quartiles_ms(times_us: &[u64]) -> Vec<f64> {
    let mut sorted = times_us.to_vec();
    sorted.sort_unstable();
    let at = |part: usize| sorted.get(sorted.len() * part / 4).map(|&us| us as f64 / 1e3);
    [1, 2, 3].into_iter().filter_map(at).collect()
}

struct Bench {
    number: usize,
    stream: Stream,
    device: DeviceSpec,
}

impl Bench {
    fn new(number: usize, device: usize) -> Self {
        Bench { number, stream: stream(number), device: DEVICES[device] }
    }

    fn row(&self, name: &'static str, cache_32nds: u64, settings: Settings) -> Row {
        let by = |name| predictor(name).map_or(Predicting::Nothing, Predicting::By);
        let (predicting, fetching) = match name {
            "lru" => (Predicting::Nothing, Fetching::ByWorth),
            "oracle" => (Predicting::Oracle, Fetching::ByWorth),
            "paper" => (by("graph"), Fetching::ByChance),
            name => (by(name), Fetching::ByWorth),
        };
        let cache_bytes = (self.stream.bytes() * cache_32nds / 32).max(1);
        let options = Options { predicting, fetching, settings, cache_bytes, device: self.device };
        let report: Report = run(&self.stream, &options);
        let counts = report.counts;
        Row {
            stream: streams().nth(self.number).unwrap_or_default(),
            device: self.device.name,
            cache_bytes,
            cache_32nds,
            predictor: name,
            lookahead: settings.lookahead,
            min_chance: settings.min_chance,
            opens: report.opens,
            hits: report.hits,
            read_s: report.read_us as f64 / 1e6,
            busy_s: counts.busy_us as f64 / 1e6,
            predictions: counts.predictions,
            right: report.right,
            in_time: report.in_time,
            fetched_bytes: counts.fetched_bytes,
            wasted_bytes: counts.wasted_bytes,
            lead_quartiles_ms: quartiles_ms(&report.leads_us),
        }
    }
}

/// Runs a part.
pub fn measure(part: Part) -> Vec<Row> {
    match part {
        Part::Caches(number, device) => {
            let bench = Bench::new(number, device);
            let names =
                ["lru", "oracle", "paper"].into_iter().chain(PREDICTORS.map(|entry| entry.name));
            let names: Vec<&str> = names.collect();
            let rows =
                CACHES.iter().flat_map(|&cache| names.iter().map(move |&name| (cache, name)));
            rows.map(|(cache, name)| bench.row(name, cache, Settings::default())).collect()
        }
        Part::Grid(device, cache) => {
            let bench = Bench::new(RECORDINGS.len(), device);
            let pairs =
                LOOKAHEADS.iter().flat_map(|&lookahead| CHANCES.map(|chance| (lookahead, chance)));
            let settings =
                |(lookahead, min_chance)| Settings { lookahead, min_chance, ..Settings::default() };
            pairs.map(|pair| bench.row("paper", cache, settings(pair))).collect()
        }
    }
}

/// The rows of all parts, with what the pages say about them.
struct Rows<'a>(&'a [Row]);

impl<'a> Rows<'a> {
    fn of(&self, stream: &str, device: &str, cache: u64, predictor: &str) -> Option<&'a Row> {
        let settings = Settings::default();
        self.0.iter().find(|row| {
            (row.stream, row.device, row.cache_32nds, row.predictor)
                == (stream, device, cache, predictor)
                && (row.lookahead, row.min_chance) == (settings.lookahead, settings.min_chance)
        })
    }

    fn read_s(&self, stream: &str, device: &str, cache: u64, predictor: &str) -> f64 {
        self.of(stream, device, cache, predictor).map_or(f64::NAN, |row| row.read_s)
    }

    /// The read time of the best single predictor.
    fn best_s(&self, stream: &str, device: &str, cache: u64) -> f64 {
        let singles = PREDICTORS.iter().filter(|entry| entry.name != "combination");
        singles
            .map(|entry| self.read_s(stream, device, cache, entry.name))
            .fold(f64::INFINITY, f64::min)
    }

    /// Each stream, device and cache.
    fn places(&self) -> impl Iterator<Item = (&'static str, &'static str, u64)> {
        streams().flat_map(|stream| {
            DEVICES
                .into_iter()
                .flat_map(move |device| CACHES.map(move |cache| (stream, device.name, cache)))
        })
    }
}

/// The goals, as lines.
pub fn summary(rows: &[Row]) -> Vec<String> {
    let rows = Rows(rows);
    let (mut near, mut over, mut all) = (0, 0, 0);
    let (mut worst, mut worst_over) = (0.0_f64, 0.0_f64);
    for (stream, device, cache) in rows.places() {
        let ours = rows.read_s(stream, device, cache, "combination");
        let [best, lru] =
            [rows.best_s(stream, device, cache), rows.read_s(stream, device, cache, "lru")]
                .map(|other| ours / other);
        all += 1;
        near += u32::from(best <= BEHIND_MAX);
        over += u32::from(lru > BEHIND_MAX);
        (worst, worst_over) = (worst.max(best), worst_over.max(lru));
    }
    let halves: Vec<bool> = halves(&rows).map(|(_, _, _, half, whole)| half <= whole).collect();
    let claimed = halves.iter().filter(|is_as_good| **is_as_good).count();
    vec![
        format!(
            "Half the cache with the combination reads as fast as the whole under LRU in {claimed} of {} cases in which LRU's cache \
             does not hold all files.",
            halves.len()
        ),
        format!(
            "The combination is within 2 % of the best single predictor in {near} of {all} cases; the worst is {:.0} % behind.",
            100.0 * (worst - 1.0)
        ),
        format!(
            "It is more than 2 % above LRU in {over} of {all} cases; the worst is {:.1} % above.",
            100.0 * (worst_over - 1.0)
        ),
    ]
}

/// Stream, device, the whole cache in 32nds, the combination's read time with half of it, LRU's with the whole.
fn halves<'a>(
    rows: &'a Rows<'_>,
) -> impl Iterator<Item = (&'static str, &'static str, u64, f64, f64)> + 'a {
    let partial = rows.places().filter(|(_, _, cache)| (2..32).contains(cache));
    partial.map(|(stream, device, cache)| {
        let half = rows.read_s(stream, device, cache / 2, "combination");
        (stream, device, cache, half, rows.read_s(stream, device, cache, "lru"))
    })
}

/// The table for a terminal: read time by stream, device and cache.
pub fn lines(rows: &[Row]) -> Vec<String> {
    let rows = Rows(rows);
    let names =
        ["lru", "paper"].into_iter().chain(PREDICTORS.map(|entry| entry.name)).chain(["oracle"]);
    let names: Vec<&str> = names.collect();
    let heads: String = names.iter().map(|name| format!(" {name:>14}")).collect();
    let mut lines =
        vec![format!("{:<8} {:<12} {:>5}{heads}   read s", "stream", "device", "cache")];
    for (stream, device, cache) in rows.places() {
        let of = |name: &&str| format!(" {:>14.2}", rows.read_s(stream, device, cache, name));
        let cells: String = names.iter().map(of).collect();
        lines.push(format!("{stream:<8} {device:<12} {cache:>2}/32{cells}"));
    }
    lines
}

/// The figures: read time by cache size, and accuracy.
pub fn figures(rows: &[Row]) -> Vec<Figure> {
    let all = Rows(rows);
    let names = [
        ("LRU", "lru"),
        ("prediction, as in the paper", "paper"),
        ("combination", "combination"),
        ("oracle", "oracle"),
    ];
    let panels = DEVICES.iter().map(|device| {
        let lines = names.map(|(title, name)| {
            let partial = CACHES.iter().filter(|cache| **cache < 32);
            let point = |cache: &u64| {
                (*cache as f64 / 0.32, all.read_s(MIXED.0, device.name, *cache, name))
            };
            (title.to_owned(), partial.map(point).collect())
        });
        panel(&format!("{}: read time, s", device.name), lines)
    });
    let plot = Plot {
        title: "Read time by cache size (predictive caching 1995)".into(),
        subtitle: "Simulated. Two days of four workloads.".into(),
        x_title: "cache, % of what all files take".into(),
        x_axis: Axis::Logarithmic,
        y_axis: Axis::Linear,
        panels: panels.collect(),
    };
    vec![Figure { name: "predictive1995-read-time".into(), plot }]
}

/// The page. Its figures are in `folder`.
pub fn markdown(rows: &[Row], folder: &str) -> String {
    let all = Rows(rows);
    let mut page = HEAD.to_owned();
    summary(rows).iter().for_each(|line| {
        let _ = writeln!(page, "* {line}");
    });
    let _ = writeln!(page, "\n## Read time by cache size\n");
    for figure in figures(rows) {
        let _ = writeln!(page, "![{}]({folder}/{}.svg)\n", figure.plot.title, figure.name);
    }
    page.push_str(SIZES);
    let names =
        ["lru", "paper"].into_iter().chain(PREDICTORS.map(|entry| entry.name)).chain(["oracle"]);
    let names: Vec<&str> = names.collect();
    let _ = writeln!(page, "| stream | device | cache | {} |", names.join(" | "));
    let _ = writeln!(page, "|---|---|---|{}", "---|".repeat(names.len()));
    for (stream, device, cache) in all.places() {
        let best = all.best_s(stream, device, cache).min(all.read_s(stream, device, cache, "lru"));
        let cell = |name: &&str| {
            let read_s = all.read_s(stream, device, cache, name);
            let is_behind = *name == "combination" && read_s > BEHIND_MAX * best;
            if is_behind { format!("**{read_s:.2}**") } else { format!("{read_s:.2}") }
        };
        let cells: Vec<String> = names.iter().map(cell).collect();
        let _ = writeln!(page, "| {stream} | {device} | {cache}/32 | {} |", cells.join(" | "));
    }
    half_table(&mut page, &all);
    grid_tables(&mut page, rows);
    accuracy_table(&mut page, rows);
    times(&mut page, &all);
    page
}

fn half_table(page: &mut String, rows: &Rows<'_>) {
    page.push_str(HALF);
    let _ = writeln!(
        page,
        "| stream | device | 2/32 | 4/32 | 8/32 | 16/32 |\n|---|---|---|---|---|---|"
    );
    let all: Vec<_> = halves(rows).collect();
    for group in all.chunk_by(|one, next| (one.0, one.1) == (next.0, next.1)) {
        let cells: Vec<String> =
            group.iter().map(|(_, _, _, half, whole)| format!("{:.2}", half / whole)).collect();
        let _ = writeln!(page, "| {} | {} | {} |", group[0].0, group[0].1, cells.join(" | "));
    }
}

fn grid<'a>(
    rows: &'a [Row],
    device: &str,
    cache: u64,
    lookahead: usize,
    chance: f32,
) -> Option<&'a Row> {
    rows.iter().find(|row| {
        (row.stream, row.predictor, row.device) == (MIXED.0, "paper", device)
            && (row.cache_32nds, row.lookahead, row.min_chance) == (cache, lookahead, chance)
    })
}

fn grid_tables(page: &mut String, rows: &[Row]) {
    page.push_str(GRID);
    for device in &DEVICES[2..] {
        for cache in SMALL_AND_LARGE {
            let heads: Vec<String> = CHANCES.iter().map(f32::to_string).collect();
            let _ = writeln!(page, "\n{}, {cache}/32 of what all files take:\n", device.name);
            let _ = writeln!(
                page,
                "| lookahead | {} |\n|---|{}",
                heads.join(" | "),
                "---|".repeat(heads.len())
            );
            for lookahead in LOOKAHEADS {
                let cell = |&chance: &f32| {
                    grid(rows, device.name, cache, lookahead, chance)
                        .map_or_else(String::new, |row| format!("{:.0}", row.read_s))
                };
                let cells: Vec<String> = CHANCES.iter().map(cell).collect();
                let _ = writeln!(page, "| {lookahead} | {} |", cells.join(" | "));
            }
        }
    }
}

fn accuracy_table(page: &mut String, rows: &[Row]) {
    page.push_str(ACCURACY);
    for lookahead in LOOKAHEADS {
        let cell = |&chance: &f32| {
            let row = grid(rows, DEVICES[3].name, SMALL_AND_LARGE[1], lookahead, chance);
            row.map_or_else(String::new, |row| {
                let [made, right, opens] =
                    [row.predictions, row.right, row.opens].map(|count| count as f64);
                format!("{:.0} % of {:.1}", 100.0 * right / made.max(1.0), made / opens)
            })
        };
        let cells: Vec<String> = CHANCES.iter().map(cell).collect();
        let _ = writeln!(page, "| {lookahead} | {} |", cells.join(" | "));
    }
}

fn times(page: &mut String, rows: &Rows<'_>) {
    page.push_str(TIMES);
    let quartiles = |times: &[f64]| match times {
        [low, middle, high] => format!("{low:.2} | {middle:.2} | {high:.2}"),
        _ => "| |".into(),
    };
    for number in 0..=RECORDINGS.len() {
        let Stream { steps, .. } = stream(number);
        let name = streams().nth(number).unwrap_or_default();
        let reads: Vec<u64> = steps.iter().map(|step| step.read_us).collect();
        let gaps: Vec<u64> =
            steps.windows(2).map(|pair| pair[1].time_us - pair[0].time_us).collect();
        let _ = writeln!(
            page,
            "| {name} | an open and its read | {} |",
            quartiles(&quartiles_ms(&reads))
        );
        let _ = writeln!(
            page,
            "| {name} | an open and the next | {} |",
            quartiles(&quartiles_ms(&gaps))
        );
        for device in DEVICES {
            let Some(row) = rows.of(name, device.name, 16, "combination") else { continue };
            let leads = quartiles(&row.lead_quartiles_ms);
            let _ =
                writeln!(page, "| {name} | a prediction and the read, {} | {leads} |", device.name);
        }
    }
}

const HEAD: &str = "\
# What predictive caching brings

Written by `foretell sim reproduce predictive --out docs/results`.
It runs the predictors of `learn/src/graph` over recorded opens, as Griffioen and Appleton did in 1995.
[Prediction](../internals/prediction.md) explains the predictors, and how they are simulated.
All figures are **simulated**, and every run gives the same ones.

The streams are drawn from recordings of this project (`sim/traces`): a C project that is compiled, a manual that is typeset,
Python scripts, npm, and all of these mixed. Two people start them at random in the course of one to three days.
`local` and `remote` are a flash drive of today and one behind a file server.
Those called 1995 are slower, as is the processor: our copy of the paper has lost the numbers, so they are assumed.

";

const SIZES: &str = "\
The paper: prediction is better than LRU at all sizes, in some cases by far.
`paper` is the probability graph with the paper's rule, which fetches every guess of at least the minimum chance.
The others fetch by foretell's rules, which bound what a wrong guess costs. A cache of 32/32 holds all files.
**Bold**: the combination is more than 2 % behind the best single predictor or LRU.

Read time, in seconds:

";

const HALF: &str = "
## Half the cache

The paper finds that prediction needs half of the memory for a similar performance, in simulation and in its prototype.
Below is the read time of the combination with half of a cache, divided by LRU's with the whole of it.
At most 1.00 is as good. The stream `typeset` is the exception: its chapters take 256 KiB each, which is more than a small cache
may hold ahead, and which chapter comes next is chance.

";

const GRID: &str = "
## Lookahead and minimum chance

Read time in seconds of the probability graph with the paper's rule on the mixed stream, by lookahead (rows, opens) and minimum chance.
The paper: small caches want a small lookahead and a higher chance, large caches a large lookahead.
";

const ACCURACY: &str = "
## Accuracy and number

The share of predictions that came true, of the number made at an open, by lookahead (rows, opens) and minimum chance (columns).
The paper: a lower minimum chance gives more predictions, of which fewer are right.

| lookahead | 0.05 | 0.1 | 0.25 | 0.5 | 0.75 | 0.95 |
|---|---|---|---|---|---|---|
";

const TIMES: &str = "
## Times from an open to its read, and from a prediction

Quartiles, in milliseconds. The paper: the time from an open to its read is too short to fetch anything; the time between opens is not,
and predictions come long before the read. Recorded times contain the overhead of strace.
Predictions are those of the combination with a cache of 16/32.

| stream | time between | 25 % | 50 % | 75 % |
|---|---|---|---|---|
";

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_recordings_are_read_and_streams_are_large_enough() {
        for (number, name) in streams().enumerate() {
            let stream = stream(number);
            assert!(stream.steps.len() > 10_000 && stream.files > 100, "{name}");
            assert!(stream.steps.is_sorted_by_key(|step| step.time_us), "{name}");
        }
    }
}
