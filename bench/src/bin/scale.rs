//! Prints and plots how the cost of a read grows with the number of blocks in memory.
//!
//! * **A. Turns.** The sizes of a workload are measured in turn, round by round, so that a change of the
//!   machine's speed affects all of them. Sizes that do not fit into [`HELD_BYTES_MAX`] together are measured
//!   in groups.
//! * **B. Lead.** Untimed reads precede the timed ones, since the size before has filled the processor's
//!   caches.
//! * **C. Memory.** Loads are slower in larger memory, whatever the policy does. So each round also times a
//!   chain of dependent loads from an array as large as the policy.

use std::fmt::Write as _;
use std::fs::{File, OpenOptions};
use std::io::{IsTerminal, Write as _};
use std::process::ExitCode;
use std::time::Instant;

use foretell_bench::machine::{LoadChain, available_bytes};
use foretell_bench::{Bench, Machine, Workload};
use foretell_heap::Heap;
use foretell_sim::plot::{Axis, Line, Look, Panel, Plot};

/// The product's allocator.
#[global_allocator]
static HEAP: Heap = Heap;

const USAGE: &str = "\
Usage: policy-scale [--json FILE] [--svg FILE] [MAX_BLOCKS]

Prints what a read costs the policy with 1000, 10,000 ... MAX_BLOCKS (10,000,000) blocks in memory.

  --json FILE  write the figures to FILE
  --svg FILE   draw them
";

const WORKLOADS: [Workload; 6] = [
    Workload::LoopsThatFit,
    Workload::Scans,
    Workload::Shuffled,
    Workload::ScansAndZipf,
    Workload::LruUniform,
    Workload::LruZipf,
];

/// The least and the largest size; the sizes between are powers of ten.
const BLOCKS_MIN: u64 = 1000;
const BLOCKS_MAX: u64 = 10_000_000;

/// A: rounds, and the reads and loads timed in each; reads are rounded up to whole periods
/// (`Workload::period_reads`).
const ROUNDS: usize = 7;
const READS_MIN: u64 = 500_000;
const LOADS: u32 = 1 << 18;
/// B: untimed reads.
const LEAD_READS: u64 = 100_000;

/// A: memory of the policies and chains that are held at the same time, in bytes.
const HELD_BYTES_MAX: u64 = 6 << 30;
/// A rough estimate of the bytes of a block in policy, chain and bench together, to refuse sizes that will not
/// fit.
const BLOCK_BYTES_GUESS: u64 = 500;

fn main() -> ExitCode {
    let arguments = match Arguments::parse(std::env::args().skip(1)) {
        Ok(Some(arguments)) => arguments,
        Ok(None) => {
            print!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("policy-scale: {message}");
            return ExitCode::from(2);
        }
    };
    match run(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(message) => {
            eprintln!("policy-scale: {message}");
            ExitCode::FAILURE
        }
    }
}

#[derive(Debug)]
struct Arguments {
    json: Option<String>,
    svg: Option<String>,
    blocks_max: u64,
}

impl Arguments {
    /// `None` if help is requested.
    fn parse(mut words: impl Iterator<Item = String>) -> Result<Option<Self>, String> {
        let mut arguments = Arguments { json: None, svg: None, blocks_max: BLOCKS_MAX };
        while let Some(word) = words.next() {
            let mut file = || {
                words.next().map(Some).ok_or_else(|| format!("{word} needs a file: {word} FILE"))
            };
            match word.as_str() {
                "--json" => arguments.json = file()?,
                "--svg" => arguments.svg = file()?,
                "-h" | "--help" => return Ok(None),
                _ => {
                    let blocks = word.parse().ok().filter(|&blocks| blocks >= BLOCKS_MIN);
                    arguments.blocks_max = blocks.ok_or_else(|| {
                        format!("{word} is no number of blocks from {BLOCKS_MIN} up: try --help")
                    })?;
                }
            }
        }
        Ok(Some(arguments))
    }
}

fn run(arguments: &Arguments) -> Result<(), String> {
    let Arguments { json, svg, blocks_max } = arguments;
    // Opened now, so that an error shows before the measurement and not after it.
    let json = json.as_deref().map(Output::open).transpose()?;
    let svg = svg.as_deref().map(Output::open).transpose()?;
    let needed_bytes = blocks_max.saturating_mul(BLOCK_BYTES_GUESS);
    if let Some(available_bytes) = available_bytes().filter(|&bytes| bytes < needed_bytes) {
        let (needed, available) = (needed_bytes >> 20, available_bytes >> 20);
        return Err(format!(
            "{blocks_max} blocks take some {needed} MiB, and {available} are free: give fewer"
        ));
    }
    let sizes: Vec<u64> = std::iter::successors(Some(BLOCKS_MIN), |blocks| blocks.checked_mul(10))
        .take_while(|blocks| blocks <= blocks_max)
        .collect();
    let machine = Machine::measure();
    println!("{machine}; medians of {ROUNDS} rounds of {READS_MIN} reads or more\n");
    println!(
        "| workload | blocks | ns a read | growth to that of log n | MiB | ns a load | loads |"
    );
    println!("|---|---|---|---|---|---|---|");
    let mut rows = Vec::new();
    for workload in WORKLOADS {
        let measured = measure(workload, &sizes);
        for row in &measured {
            println!("{}", row.markdown(&measured[0]));
        }
        rows.extend(measured);
    }
    if let Some(output) = json {
        output.write(&as_json(&machine, &rows))?;
    }
    if let Some(output) = svg {
        output.write(&plot(&machine, &rows).svg())?;
    }
    Ok(())
}

/// A file that is opened at the start and written at the end.
struct Output<'a> {
    path: &'a str,
    file: File,
}

impl<'a> Output<'a> {
    fn open(path: &'a str) -> Result<Self, String> {
        let file = OpenOptions::new().write(true).create(true).truncate(false).open(path);
        let file = file.map_err(|error| format!("{path} cannot be written: {error}"))?;
        Ok(Output { path, file })
    }

    fn write(mut self, text: &str) -> Result<(), String> {
        let written = self.file.set_len(0).and_then(|()| self.file.write_all(text.as_bytes()));
        written.map_err(|error| format!("{} cannot be written: {error}", self.path))
    }
}

/// The results of a workload with one size.
#[derive(Clone, Debug)]
struct Row {
    workload: Workload,
    blocks: u64,
    /// Blocks that were in memory.
    resident_blocks: u64,
    read_ns: f64,
    read_least_ns: f64,
    memory_bytes: u64,
    load_ns: f64,
}

impl Row {
    /// How much more a read costs than in `first`, divided by the growth of log n.
    fn growth_by_log(&self, first: &Row) -> f64 {
        let logs = (self.blocks as f64).log2() / (first.blocks as f64).log2();
        self.read_ns / first.read_ns / logs
    }

    fn markdown(&self, first: &Row) -> String {
        let Row { workload, blocks, read_ns, memory_bytes, load_ns, .. } = self;
        let (growth, loads) = (self.growth_by_log(first), read_ns / load_ns);
        let (name, mib) = (workload.name(), *memory_bytes as f64 / f64::from(1 << 20));
        format!(
            "| {name} | {blocks} | {read_ns:.0} | {growth:.2} | {mib:.1} | {load_ns:.1} | {loads:.0} |"
        )
    }
}

/// A workload with one size, and the times of its rounds.
struct Size {
    blocks: u64,
    reads: u64,
    bench: Bench,
    memory_bytes: u64,
    chain: LoadChain,
    read_ns: Vec<f64>,
    load_ns: Vec<f64>,
}

impl Size {
    fn new(workload: Workload, blocks: u64) -> Self {
        let bench = Bench::new(workload, blocks);
        let memory_bytes = bench.policy().memory_bytes();
        let chain = LoadChain::new(memory_bytes);
        let memory_bytes = memory_bytes as u64;
        let reads = workload.whole_reads(blocks, READS_MIN);
        Size { blocks, reads, bench, memory_bytes, chain, read_ns: Vec::new(), load_ns: Vec::new() }
    }

    fn held_bytes(&self) -> u64 {
        self.memory_bytes + self.chain.memory_bytes() as u64
    }

    fn round(&mut self) {
        let mut read = |reads: u64| {
            let began = Instant::now();
            (0..reads).for_each(|_| {
                self.bench.step();
            });
            began.elapsed().as_nanos() as f64 / reads as f64
        };
        read(LEAD_READS); // B.
        self.read_ns.push(read(self.reads));
        self.chain.load_ns(LOADS); // B.
        self.load_ns.push(self.chain.load_ns(LOADS));
    }

    fn row(mut self, workload: Workload) -> Row {
        let read_ns = median(&mut self.read_ns);
        Row {
            workload,
            blocks: self.blocks,
            resident_blocks: self.bench.policy().held_blocks(),
            read_ns,
            read_least_ns: self.read_ns[0],
            memory_bytes: self.memory_bytes,
            load_ns: median(&mut self.load_ns),
        }
    }
}

/// The median; sorts the values.
fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    values[values.len() / 2]
}

fn measure(workload: Workload, sizes: &[u64]) -> Vec<Row> {
    let (mut rows, mut group): (Vec<Row>, Vec<Size>) = (Vec::new(), Vec::new());
    for &blocks in sizes {
        // Memory grows in proportion to the number of blocks.
        let expected = group.last().map_or(0, |last| last.held_bytes() * (blocks / last.blocks));
        let held: u64 = group.iter().map(Size::held_bytes).sum();
        if held + expected > HELD_BYTES_MAX {
            rows.extend(rounds(workload, std::mem::take(&mut group)));
        }
        progress(&format!("{}, {blocks} blocks: filling memory", workload.name()));
        group.push(Size::new(workload, blocks));
    }
    rows.extend(rounds(workload, group));
    progress("");
    rows
}

/// A.
fn rounds(workload: Workload, mut group: Vec<Size>) -> Vec<Row> {
    for round in 0..ROUNDS {
        progress(&format!("{}, round {} of {ROUNDS}", workload.name(), round + 1));
        group.iter_mut().for_each(Size::round);
    }
    group.into_iter().map(|size| size.row(workload)).collect()
}

/// Replaces the line on the terminal, if standard error is one.
fn progress(text: &str) {
    if std::io::stderr().is_terminal() {
        eprint!("\r\x1b[K{text}");
    }
}

fn as_json(machine: &Machine, rows: &[Row]) -> String {
    let Machine { date, cores, kernel, additions_per_ns, huge_pages } = machine;
    let mut json = format!(
        "{{\"date\": {date:?}, \"cores\": {cores}, \"kernel\": {kernel:?}, \"huge_pages\": \"{huge_pages}\", \"additions_per_ns\": {additions_per_ns:.3}, \"rows\": ["
    );
    for (index, row) in rows.iter().enumerate() {
        let Row { blocks, resident_blocks, read_ns, read_least_ns, memory_bytes, load_ns, .. } =
            row;
        let comma = if index > 0 { "," } else { "" };
        let _ = write!(
            json,
            "{comma}\n  {{\"workload\": {:?}, \"blocks\": {blocks}, \"resident_blocks\": {resident_blocks}, \"read_ns\": {read_ns:.2}, \"read_least_ns\": {read_least_ns:.2}, \"memory_bytes\": {memory_bytes}, \"load_ns\": {load_ns:.3}}}",
            row.workload.name()
        );
    }
    json.push_str("\n]}\n");
    json
}

fn plot(machine: &Machine, rows: &[Row]) -> Plot {
    let of = |workload| rows.iter().filter(move |row| row.workload == workload);
    let points = |workload, value: fn(&Row) -> f64| {
        of(workload).map(|row| (row.blocks as f64, value(row))).collect::<Vec<_>>()
    };
    let mut costs: Vec<Line> = WORKLOADS
        .map(|workload| Line {
            name: workload.name().into(),
            points: points(workload, |row| row.read_ns),
            look: Look::Own,
        })
        .into();
    // c: the geometric mean of the costs at the smallest size, so that the curve can be compared with each of
    // them.
    let firsts = costs.iter().map(|line| line.points[0].1.ln());
    let middle = (firsts.sum::<f64>() / costs.len() as f64).exp();
    let sizes: Vec<f64> = costs[0].points.iter().map(|&(size, _)| size).collect();
    let by_log = |size: f64| (size, middle * size.log2() / sizes[0].log2());
    costs.push(Line {
        name: "c · log n".into(),
        points: sizes.iter().map(|&size| by_log(size)).collect(),
        look: Look::Reference,
    });
    // Arrays of one size are alike, so their median represents all.
    let load = |&size: &f64| {
        let rows = rows.iter().filter(|row| row.blocks as f64 == size);
        (size, median(&mut rows.map(|row| row.load_ns).collect::<Vec<_>>()))
    };
    let loads = Line {
        name: "array as large as policy".into(),
        points: sizes.iter().map(load).collect(),
        look: Look::Ink,
    };
    Plot {
        title: "What a read costs the policy, by blocks in memory".into(),
        subtitle: machine.to_string(),
        x_title: "blocks in memory".into(),
        x_axis: Axis::Logarithmic,
        y_axis: Axis::Logarithmic,
        panels: vec![
            Panel {
                title: "ns a read, with all that follows from it".into(),
                height: 400.0,
                lines: costs,
            },
            Panel { title: "ns a dependent random load".into(), height: 130.0, lines: vec![loads] },
        ],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(words: &[&str]) -> Result<Option<Arguments>, String> {
        Arguments::parse(words.iter().map(|&word| word.to_owned()))
    }

    #[test]
    fn arguments_are_understood_or_named() {
        let arguments = parse(&["--svg", "a.svg", "5000"]).unwrap().unwrap();
        assert_eq!((arguments.svg.as_deref(), arguments.blocks_max), (Some("a.svg"), 5000));
        assert!(parse(&["--help"]).unwrap().is_none());
        for (words, name) in [(["--json"], "--json"), (["999"], "999"), (["--jsn"], "--jsn")] {
            assert!(parse(&words).unwrap_err().contains(name));
        }
    }

    #[test]
    fn growth_is_that_of_log_n_or_more() {
        let row = |blocks, read_ns| Row {
            workload: Workload::Scans,
            blocks,
            resident_blocks: blocks,
            read_ns,
            read_least_ns: read_ns,
            memory_bytes: 1 << 20,
            load_ns: 10.0,
        };
        let (first, last) = (row(1000, 300.0), row(1_000_000, 600.0));
        assert!((last.growth_by_log(&first) - 1.0).abs() < 1e-9);
        assert_eq!(
            last.markdown(&first),
            "| foretell, scans | 1000000 | 600 | 1.00 | 1.0 | 10.0 | 60 |"
        );
    }
}
