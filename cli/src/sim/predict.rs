//! `foretell sim predict`: LRU against LRU with prediction, over recorded opens.

use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use foretell_sim::predict::device::{DEVICES, DeviceSpec};
use foretell_sim::predict::graph::{LOOKAHEAD_MAX, PREDICTORS, Settings, predictor};
use foretell_sim::predict::stream::Stream;
use foretell_sim::predict::{Fetching, Options, Predicting, Report, run};
use foretell_sim::trace::opens::{self, Opens};
use foretell_sim::trace::{recorded, recorded_opens};
use serde::Serialize;

use super::figures::{Figures, as_json, check_outputs};
use super::recording::{not_a_recording, recorded_at, shown};
use super::runs::{on_all_processors, progress, unique};
use super::table::{Column, Kind, lines};
use crate::failure::{Failure, note};
use crate::size;
use crate::standard_output::say;

const HELP: &str = "\
Examples:
  foretell record -o first.ftr -- make
  foretell record -o second.ftr -- make
  foretell sim predict --trace first.ftr,second.ftr
  foretell sim predict --trace sim/traces/compile.opens.gz --predictor graph,combination \\
      --cache 1MiB,4MiB --device local,remote --json - | jq .[].read_s

Each open of a file asks the predictor which files will be opened next, and these are fetched ahead, \
or kept in the cache. As the base line, the same opens run under LRU alone; as the bound, under an \
oracle that knows the next opens (as many as the lookahead).

A recording of `foretell record` is a run; give the runs of a command, or of several, in their order. \
They are played a minute after one another; with --days, they are drawn at random as two people would start \
them in so many days. One run alone shows files that it opens again.

A list of opens (scripts/record-opens makes one with strace) has a line for each open of a file: \
`time_us pid op path size [read_us]`, where op is open or exec. A line `# run NAME` begins a run. Several \
lists need --days.

Devices:
{DEVICES}

Predictors: {PREDICTORS}

Columns: read s is what all reads waited for, and lru s and oracle s are that without prediction and \
with the best one; made counts predictions, right those that came true within the lookahead, in time \
those whose file was then in the cache; wasted counts bytes fetched ahead and never read; busy s is \
the time that the disk worked. --json has one object with these and more, or an array of several runs.";

/// The text below the options.
pub(super) fn help() -> String {
    let devices = DEVICES.map(|device| format!("  {:<12} {}\n", device.name, device.about));
    HELP.replace("{DEVICES}\n", &devices.concat()).replace("{PREDICTORS}", &predictors())
}

fn predictors() -> String {
    PREDICTORS.map(|entry| entry.name).join(", ")
}

#[derive(Args)]
pub(crate) struct PredictArgs {
    /// The recordings of `foretell record`, one a run, or lists of opens, with commas between them (- for a list on standard
    /// input)
    #[arg(long, required = true, value_name = "FILE,...", value_delimiter = ',')]
    trace: Vec<PathBuf>,

    #[arg(long, default_value = "combination", value_name = "NAME,...", value_delimiter = ',', value_parser = predicting,
        help = format!("Predictor: {}, oracle; several with commas between them", predictors()))]
    predictor: Vec<Named>,

    /// Size of the cache; several values with commas between them [default: half of what all files take]
    #[arg(long, value_name = "SIZE,...", value_delimiter = ',', value_parser = cache_bytes, allow_negative_numbers = true)]
    cache: Vec<u64>,

    /// Opens within which a file counts as opened soon, 1 to 256; several values with commas between them
    #[arg(long, default_value = "32", value_name = "N,...", value_delimiter = ',', value_parser = lookahead, allow_negative_numbers = true)]
    lookahead: Vec<usize>,

    /// Least chance of a file that is fetched, 0.01 to 1; several values with commas between them
    #[arg(long, default_value = "0.25", value_name = "P,...", value_delimiter = ',', value_parser = chance, allow_negative_numbers = true)]
    min_chance: Vec<f32>,

    #[arg(long, default_value = "local", value_name = "NAME,...", value_delimiter = ',', value_parser = device,
        help = format!("Storage: {}; several with commas between them", DEVICES.map(|device| device.name).join(", ")))]
    device: Vec<DeviceSpec>,

    /// Which guesses are fetched. chance: all with the minimum chance, as in the paper. worth: of these, the ones that are
    /// worth more than what they push out of the cache
    #[arg(long, default_value = "worth", value_name = "RULE", value_parser = fetching)]
    fetch: Fetching,

    /// Draw the runs as two people would start them in N days, 1 to 365
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u16).range(1..=365), allow_negative_numbers = true)]
    days: Option<u16>,

    /// Seed of the draws
    #[arg(long, default_value_t = 1, value_name = "N", allow_negative_numbers = true)]
    seed: u64,

    /// Write the figures to FILE as JSON (- for standard output, in place of the table)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// A predictor by its name.
#[derive(Clone, Copy)]
struct Named {
    name: &'static str,
    predicting: Predicting,
}

impl PartialEq for Named {
    fn eq(&self, other: &Self) -> bool {
        self.name == other.name
    }
}

fn predicting(text: &str) -> Result<Named, String> {
    match predictor(text) {
        Some(entry) => Ok(Named { name: entry.name, predicting: Predicting::By(entry) }),
        None if text == "oracle" => Ok(Named { name: "oracle", predicting: Predicting::Oracle }),
        None => Err(format!("unknown; known are {}, oracle", predictors())),
    }
}

fn device(text: &str) -> Result<DeviceSpec, String> {
    let known = DEVICES.into_iter().find(|device| device.name == text);
    known.ok_or_else(|| {
        format!("unknown; known are {}", DEVICES.map(|device| device.name).join(", "))
    })
}

fn fetching(text: &str) -> Result<Fetching, String> {
    match text {
        "chance" => Ok(Fetching::ByChance),
        "worth" => Ok(Fetching::ByWorth),
        _ => Err("unknown; known are chance, worth".into()),
    }
}

fn cache_bytes(text: &str) -> Result<u64, String> {
    match size::parse(text)? {
        0 => Err("a cache has at least 1 byte".into()),
        bytes => Ok(bytes),
    }
}

fn lookahead(text: &str) -> Result<usize, String> {
    let opens = text.trim().parse().ok().filter(|opens| (1..=LOOKAHEAD_MAX).contains(opens));
    opens.ok_or_else(|| format!("not a number of opens from 1 to {LOOKAHEAD_MAX}"))
}

fn chance(text: &str) -> Result<f32, String> {
    let chance = text.trim().parse().ok().filter(|chance| (0.01..=1.0).contains(chance));
    chance.ok_or_else(|| "not a chance from 0.01 to 1".into())
}

pub(super) fn predict(args: &PredictArgs) -> Result<ExitCode, Failure> {
    let read: Vec<(&str, &Path)> =
        args.trace.iter().map(|trace| ("the recording", trace.as_path())).collect();
    check_outputs(&read, &[("--json", args.json.as_deref())])?;
    let is_recorded = args.trace.iter().all(|trace| recorded::is_one(trace));
    if args.trace.len() > 1 && args.days.is_none() && !is_recorded {
        return Err(Failure::usage(
            "--trace: several lists of opens are interleaved over days; give --days N, or one recording, or only those of foretell record",
        ));
    }
    let json = Figures::open(args.json.as_deref())?;
    let progress = progress();
    progress.set_message(format!("reading {}", shown(&args.trace[0])));
    let stream = stream(args)?;
    let all = runs(args, &stream);
    progress.set_length(all.len() as u64);
    progress.set_message("simulating");
    let reports = on_all_processors(&all, |one| {
        let report = run(&stream, &one.options);
        progress.inc(1);
        report
    });
    progress.finish_and_clear();
    let rows = rows(args, &all, &reports);
    let table = || lines(&columns(&rows)).iter().try_for_each(|line| say(line));
    json.deliver(Ok(()), || as_json(&rows, rows.len() > 1), table)
}

fn stream(args: &PredictArgs) -> Result<Stream, Failure> {
    let recordings = recordings(&args.trace)?;
    let stream = match args.days {
        Some(days) => {
            Stream::of_days(&recordings.iter().collect::<Vec<_>>(), days.into(), args.seed)
        }
        None => Stream::in_order(&recordings[0]),
    };
    match stream.steps.is_empty() {
        true => Err(Failure::failed("--days: no run is drawn in so few days; give more")),
        false => Ok(stream),
    }
}

/// The recordings. Those of `foretell record` become one, of several runs.
fn recordings(traces: &[PathBuf]) -> Result<Vec<Opens>, Failure> {
    let (mut recordings, mut of_record) = (Vec::new(), Opens::default());
    for trace in traces {
        if recorded::is_one(trace) {
            let lacks = recorded_opens::add(&mut of_record, trace);
            let lacks = lacks.map_err(|error| Failure::failed(error.to_string()))?;
            if let Some(lacks) = lacks {
                note(format!("note: {}: {lacks}", shown(trace)));
            }
            continue;
        }
        let opens = opens::open(recorded_at(trace)?).map_err(|error| {
            let Failure { code, line } = not_a_recording(&error, "opens");
            let line = line.replace(
                "; --format takes opens",
                "; --trace takes recordings of foretell record, and lists of opens",
            );
            Failure { code, line }
        })?;
        recordings.push(opens);
    }
    recordings.extend((!of_record.runs.is_empty()).then_some(of_record));
    match recordings.is_empty() {
        true => Err(Failure::failed("--trace: no file is opened in it")),
        false => Ok(recordings),
    }
}

/// One simulation.
struct Run {
    name: &'static str,
    options: Options,
}

/// For each device, cache and lookahead: LRU and the oracle, then each predictor with each chance.
fn runs(args: &PredictArgs, stream: &Stream) -> Vec<Run> {
    let half = [(stream.bytes() / 2).max(1)];
    let caches = if args.cache.is_empty() { &half[..] } else { &args.cache };
    let (fetching, mut runs) = (args.fetch, Vec::new());
    for &device in unique(&args.device) {
        for &cache_bytes in unique(caches) {
            for &lookahead in unique(&args.lookahead) {
                let mut add = |name, predicting, min_chance| {
                    let settings = Settings { lookahead, min_chance, ..Settings::default() };
                    runs.push(Run {
                        name,
                        options: Options { predicting, fetching, settings, cache_bytes, device },
                    });
                };
                add(LRU, Predicting::Nothing, 1.0);
                add(ORACLE, Predicting::Oracle, 1.0);
                for named in unique(&args.predictor) {
                    unique(&args.min_chance)
                        .for_each(|&chance| add(named.name, named.predicting, chance));
                }
            }
        }
    }
    runs
}

/// The names of the runs that all others are compared with. No predictor is called so.
const LRU: &str = "lru alone";
const ORACLE: &str = "oracle bound";

/// A run as `--json` writes it: its options, then its results.
#[derive(Serialize)]
struct Row {
    trace: Vec<String>,
    days: Option<u16>,
    seed: u64,
    device: &'static str,
    predictor: &'static str,
    fetch: &'static str,
    cache_bytes: u64,
    lookahead: usize,
    min_chance: f32,
    opens: u64,
    lru_hits: u64,
    hits: u64,
    oracle_hits: u64,
    lru_read_s: f64,
    read_s: f64,
    oracle_read_s: f64,
    predictions: u64,
    right: u64,
    in_time: u64,
    fetched: u64,
    used: u64,
    fetched_bytes: u64,
    wasted_bytes: u64,
    lru_busy_s: f64,
    busy_s: f64,
    /// `None` if no prediction was right.
    median_lead_ms: Option<f64>,
}

fn seconds(us: u64) -> f64 {
    us as f64 / 1e6
}

fn rows(args: &PredictArgs, runs: &[Run], reports: &[Report]) -> Vec<Row> {
    let (mut lru, mut oracle) = (Report::default(), Report::default());
    let mut rows = Vec::new();
    for (Run { name, options }, report) in runs.iter().zip(reports) {
        match *name {
            LRU => lru = report.clone(),
            ORACLE => oracle = report.clone(),
            name => rows.push(row(args, name, options, [&lru, report, &oracle])),
        }
    }
    rows
}

fn row(
    args: &PredictArgs,
    predictor: &'static str,
    options: &Options,
    [lru, report, oracle]: [&Report; 3],
) -> Row {
    let mut leads_us = report.leads_us.clone();
    leads_us.sort_unstable();
    let median = leads_us.get(leads_us.len() / 2).map(|&lead_us| lead_us as f64 / 1e3);
    Row {
        trace: args.trace.iter().map(|trace| trace.to_string_lossy().into_owned()).collect(),
        days: args.days,
        seed: args.seed,
        device: options.device.name,
        predictor,
        fetch: match options.fetching {
            Fetching::ByChance => "chance",
            Fetching::ByWorth => "worth",
        },
        cache_bytes: options.cache_bytes,
        lookahead: options.settings.lookahead,
        min_chance: options.settings.min_chance,
        opens: report.opens,
        lru_hits: lru.hits,
        hits: report.hits,
        oracle_hits: oracle.hits,
        lru_read_s: seconds(lru.read_us),
        read_s: seconds(report.read_us),
        oracle_read_s: seconds(oracle.read_us),
        predictions: report.counts.predictions,
        right: report.right,
        in_time: report.in_time,
        fetched: report.counts.fetched,
        used: report.counts.used,
        fetched_bytes: report.counts.fetched_bytes,
        wasted_bytes: report.counts.wasted_bytes,
        lru_busy_s: seconds(lru.counts.busy_us),
        busy_s: seconds(report.counts.busy_us),
        median_lead_ms: median,
    }
}

fn columns(rows: &[Row]) -> Vec<Column> {
    let column = |name, kind, cell: &dyn Fn(&Row) -> String| Column {
        name,
        kind,
        cells: rows.iter().map(cell).collect(),
    };
    vec![
        column("device", Kind::Word, &|row| row.device.into()),
        column("predictor", Kind::Word, &|row| row.predictor.into()),
        column("cache", Kind::Size, &|row| size::display(row.cache_bytes)),
        column("lookahead", Kind::Size, &|row| row.lookahead.to_string()),
        column("min chance", Kind::Size, &|row| row.min_chance.to_string()),
        column("opens", Kind::Figure, &|row| row.opens.to_string()),
        column("lru hits", Kind::Figure, &|row| row.lru_hits.to_string()),
        column("hits", Kind::Kept, &|row| row.hits.to_string()),
        column("lru s", Kind::Figure, &|row| format!("{:.2}", row.lru_read_s)),
        column("read s", Kind::Kept, &|row| format!("{:.2}", row.read_s)),
        column("oracle s", Kind::Figure, &|row| format!("{:.2}", row.oracle_read_s)),
        column("made", Kind::Figure, &|row| row.predictions.to_string()),
        column("right", Kind::Figure, &|row| row.right.to_string()),
        column("in time", Kind::Figure, &|row| row.in_time.to_string()),
        column("wasted", Kind::Figure, &|row| size::display(row.wasted_bytes)),
        column("busy s", Kind::Figure, &|row| format!("{:.2}", row.busy_s)),
    ]
}
