//! `foretell sim`: caches, recorded runs and the papers' programs, in numbers and without waiting for anything.

mod cache;
mod collective;
mod recorded;
mod replay;
mod replay_args;
mod reproduce;
mod sweep_plot;
mod table;

use std::fmt::{self, Display};
use std::io::{self, Write};
use std::num::NonZeroUsize;
use std::panic::resume_unwind;
use std::path::Path;
use std::process::ExitCode;
use std::sync::Mutex;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use clap::{Args, Subcommand};
use foretell_sim::SECTOR_BYTES;
use indicatif::{HumanDuration, ProgressBar, ProgressDrawTarget, ProgressState, ProgressStyle};
use serde::Serialize;

use crate::failure::{Failure, draws_progress, without_controls, written};
use crate::output_file::{self, Named, OutputFile};
use crate::{signals, size};

#[derive(Args)]
pub(crate) struct SimArgs {
    #[command(subcommand)]
    command: SimCommand,
}

#[derive(Subcommand)]
enum SimCommand {
    /// Count what a cache hits and misses: foretell sim cache --trace FILE --format blocks
    /// --capacity 100,1000 --policy lru,tip2,belady --hints all
    #[command(after_help = cache::help())]
    Cache(cache::CacheArgs),
    /// Run a recorded run again on other disks, with other memory, with hints: foretell sim replay
    /// run.strace --root /data --disks 1,2,4,8
    #[command(after_help = replay_args::HELP)]
    Replay(replay_args::ReplayArgs),
    /// Read striped files by many processors together, prefetching or collectively: foretell sim collective --procs 8
    /// --disks 8 --pattern block-1d --sweep depth=1..64
    #[command(after_help = collective::HELP)]
    Collective(collective::CollectiveArgs),
    /// Run the tables and figures of the TIP and collective papers again: foretell sim reproduce all --out DIR
    #[command(after_help = reproduce::HELP)]
    Reproduce(reproduce::ReproduceArgs),
}

pub(crate) fn sim(args: &SimArgs) -> Result<ExitCode, Failure> {
    signals::make_file_limits_errors();
    match &args.command {
        SimCommand::Cache(args) => cache::cache(args),
        SimCommand::Replay(args) => replay::replay(args),
        SimCommand::Collective(args) => collective::collective(args),
        SimCommand::Reproduce(args) => reproduce::reproduce(args),
    }
}

fn block_bytes(text: &str) -> Result<u64, String> {
    whole_sectors(text, "a block")
}

/// The longest block of a recording that is run again: larger ones would be in more pieces than is worth anybody's while.
const BLOCK_BYTES_MAX: u64 = 64 << 20;

/// The same of recordings.
fn recorded_block_bytes(text: &str) -> Result<u64, String> {
    let bytes = block_bytes(text)?;
    let most = size::display(BLOCK_BYTES_MAX);
    (bytes <= BLOCK_BYTES_MAX).then_some(bytes).ok_or_else(|| format!("more than {most}"))
}

/// What to do about a recording of too many blocks: take them `factor` times as large, if that is enough.
fn larger_blocks(block_bytes: u64, factor: Option<u64>) -> String {
    match factor.and_then(|factor| block_bytes.checked_mul(factor)) {
        Some(bytes) => format!("take larger blocks (--block {}), or a part of it", exact(bytes)),
        None => "take a part of it".to_owned(),
    }
}

/// A size as an option takes it.
fn exact(bytes: u64) -> String {
    [("MiB", 20), ("KiB", 10)]
        .into_iter()
        .find(|(_, shift)| bytes.is_multiple_of(1 << shift))
        .map_or_else(|| bytes.to_string(), |(unit, shift)| format!("{}{unit}", bytes >> shift))
}

/// Bytes of `what`, which is in whole sectors.
fn whole_sectors(text: &str, what: &str) -> Result<u64, String> {
    match size::parse(text)? {
        bytes if bytes > 0 && bytes % SECTOR_BYTES == 0 => Ok(bytes),
        _ => Err(format!("{what} is a multiple of {SECTOR_BYTES} bytes")),
    }
}

/// Refuses outputs that would be lost: `read` is the recording and what else is read.
fn check_outputs(read: &[Named], written: &[(&str, Option<&Path>)]) -> Result<(), Failure> {
    let given = written.iter().filter_map(|&(name, path)| Some((name, path?)));
    output_file::check_apart(read, &given.collect::<Vec<_>>()).map_err(Failure::usage)
}

/// The file that `option` names, if it does.
fn output(option: &str, path: Option<&Path>) -> Result<Option<OutputFile>, Failure> {
    OutputFile::of_option(option, path).map_err(Failure::failed)
}

fn write(file: OutputFile, content: &str) -> Result<(), Failure> {
    file.write(content.as_bytes()).map_err(Failure::failed)
}

/// Where `--json` puts the figures.
struct Figures {
    file: Option<OutputFile>,
    /// In place of the table.
    to_stdout: bool,
}

impl Figures {
    /// Sees that they can be written.
    fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let to_stdout = path == Some(Path::new("-"));
        let file = output("--json", path.filter(|_| !to_stdout))?;
        Ok(Figures { file, to_stdout })
    }

    /// Whether nothing but the table is wanted.
    fn are_unwanted(&self) -> bool {
        self.file.is_none() && !self.to_stdout
    }

    /// Writes them, and shows the table: that is what is left where the file's disk is full. The file comes first, and what it
    /// and `others` have failed by: whoever reads the first line of the table only ends this process by that.
    fn deliver(
        self,
        others: Result<(), Failure>,
        text: impl FnOnce() -> Result<String, Failure>,
        table: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<ExitCode, Failure> {
        let (text, written) = match self.file {
            Some(file) => (None, write(file, &format!("{}\n", text()?))),
            None => (self.to_stdout.then(text).transpose()?, Ok(())),
        };
        let failures = [others, written].into_iter().filter_map(Result::err);
        let code = failures.fold(ExitCode::SUCCESS, |_, failure| failure.report());
        match text {
            Some(text) => say(&text)?,
            None => table()?,
        }
        Ok(code)
    }
}

const STANDARD_INPUT: &str = "/dev/stdin";

/// Where a recording of this name is: standard input if that is `-`.
fn recorded_at(name: &Path) -> Result<&Path, Failure> {
    if name.as_os_str() != "-" {
        return Ok(name);
    }
    let closed = |error| Failure::failed(format!("standard input: {error}"));
    signals::was_open(0).map_err(closed)?;
    Ok(Path::new(STANDARD_INPUT))
}

/// How it is called.
fn shown(name: &Path) -> String {
    match name.as_os_str() == "-" {
        true => "standard input".into(),
        false => without_controls(&name.to_string_lossy()),
    }
}

/// A recording that cannot be used.
fn not_a_recording(error: impl Display) -> Failure {
    let error = error.to_string();
    match error.strip_prefix(STANDARD_INPUT).filter(|what| what.starts_with(':')) {
        Some(what) => Failure::failed(format!("{}{what}", shown(Path::new("-")))),
        None => Failure::failed(error),
    }
}

/// A bar that waits for its length.
fn progress() -> ProgressBar {
    let target =
        if draws_progress() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(None, target);
    let style = ProgressStyle::with_template("{bar:30} {percent}%  {msg}  {elapsed}{left}");
    let style = style.unwrap_or_else(|_| ProgressStyle::default_bar());
    // Nothing is known of the rest until something is done.
    let left = |state: &ProgressState, text: &mut dyn fmt::Write| {
        let left = HumanDuration(state.eta());
        let _ = if state.pos() > 0 { write!(text, " (left {left:#})") } else { Ok(()) };
    };
    bar.set_style(style.with_key("left", left));
    // That takes a thread.
    if !bar.is_hidden() {
        bar.enable_steady_tick(Duration::from_millis(250));
    }
    bar
}

/// One line on standard output.
fn say(line: &str) -> Result<(), Failure> {
    written(writeln!(io::stdout(), "{line}"))
}

/// One run as an object, or several, of which some may have come to nothing, as an array.
fn as_json(runs: &[impl Serialize], are_several: bool) -> Result<String, Failure> {
    match runs {
        [run] if !are_several => serde_json::to_string(run),
        runs => serde_json::to_string(runs),
    }
    .map_err(Failure::failed)
}

/// Each once, in the order in which they first stand.
fn unique<T: PartialEq>(all: &[T]) -> impl Iterator<Item = &T> {
    all.iter().enumerate().filter(|(at, one)| !all[..*at].contains(one)).map(|(_, one)| one)
}

/// Does `work` for each of `items`, as many at a time as there are processors; results in the order of the items.
fn on_all_processors<T: Sync, R: Send>(items: &[T], work: impl Fn(&T) -> R + Sync) -> Vec<R> {
    let next = AtomicUsize::new(0);
    let results: Vec<Mutex<Option<R>>> = items.iter().map(|_| Mutex::new(None)).collect();
    let worker = || {
        loop {
            let place = next.fetch_add(1, Ordering::Relaxed);
            let Some(item) = items.get(place) else { return };
            foretell_fault::point("sim-run");
            let result = work(item);
            *results[place].lock().expect("nothing fails with the lock held") = Some(result);
        }
    };
    let threads = thread::available_parallelism().map_or(1, NonZeroUsize::get).min(items.len());
    thread::scope(|scope| {
        let name = || thread::Builder::new().name("sim-run".into());
        // Where there are no threads to be had, those that there are do the work.
        let others: Vec<_> =
            (1..threads).filter_map(|_| name().spawn_scoped(scope, worker).ok()).collect();
        worker();
        for other in others {
            // It has been told, and is not to be told again.
            other.join().unwrap_or_else(|panic| resume_unwind(panic));
        }
    });
    let result = |slot: Mutex<Option<R>>| slot.into_inner().ok().flatten();
    results.into_iter().map(|slot| result(slot).expect("every item has had its turn")).collect()
}
