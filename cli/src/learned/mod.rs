//! `foretell learned`: what earlier runs have shown about later ones.
//!
//! | module | what it does |
//! |---|---|
//! | [`listing`] | a line a workload |
//! | [`show`] | the steps of one |
//! | [`find`] | which one the user means |
//! | [`forget`] | removes some |
//! | [`export`] | writes a list of files, or a profile, for others |
//! | [`import`] | reads one |
//!
//! One command line may have two profiles: one of this very command in its folder, and one of all commands of its shape. They
//! are told apart by `like` before the shape, in lists and in names.

mod age;
mod export;
mod find;
mod forget;
mod import;
mod listing;
mod show;

use std::io::{self, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use foretell_manager::learn::masking;
use foretell_manager::learn::profile::{Kind, Last, Profile, Weighted};
use foretell_manager::learn::store::{Kept, Store};
use foretell_manager::learn::workload::cut;
use serde::Serialize;

use crate::failure::{Failure, written};
use crate::output_file::OutputFile;
use crate::state;

pub(crate) const HELP: &str = "\
Without a command, the list is printed. What is learned lies in the folder that FORETELL_STATE names, \
or in foretell in XDG_STATE_HOME (~/.local/state).

NAME is a name in the list, its beginning, words of it, or a key or its beginning; it must fit one \
workload alone. One with dashes goes behind --, as in `foretell learned show -- grep -rn x`.

Examples:
  foretell learned show git status
  foretell learned forget --all --older-than 30d
  foretell learned export 3f2a91c0 --format nydus --root /img/rootfs -o files.txt";

/// Characters of a name in a line; a command line may be long.
const LABEL_MAX: usize = 60;

#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub(crate) struct LearnedArgs {
    #[command(subcommand)]
    command: Option<LearnedCommand>,
}

#[derive(Subcommand)]
enum LearnedCommand {
    /// Print a line for each workload: what is known of it, and when it was used last
    #[command(after_help = listing::HELP)]
    List(listing::ListArgs),
    /// Print the steps of a workload, and how well they fitted its last run
    #[command(after_help = show::HELP)]
    Show(show::ShowArgs),
    /// Forget a workload, or those that were not used for some time
    #[command(after_help = forget::HELP)]
    Forget(forget::ForgetArgs),
    /// Write the files of a workload, in the order of first use, as other tools or other machines read them
    #[command(after_help = export::HELP)]
    Export(export::ExportArgs),
    /// Learn a workload from a list of files, or from what another machine has exported
    #[command(after_help = import::HELP)]
    Import(import::ImportArgs),
}

pub(crate) fn learned(args: LearnedArgs) -> Result<ExitCode, Failure> {
    match args.command.unwrap_or(LearnedCommand::List(listing::ListArgs::default())) {
        LearnedCommand::List(args) => listing::list(&args)?,
        LearnedCommand::Show(args) => show::show(&args)?,
        LearnedCommand::Forget(args) => forget::forget(&args)?,
        LearnedCommand::Export(args) => export::export(&args)?,
        LearnedCommand::Import(args) => import::import(&args)?,
    }
    Ok(ExitCode::SUCCESS)
}

/// A workload that the user names.
#[derive(Args)]
struct Named {
    /// The workload: its name, the beginning or words of it, or its key
    #[arg(required = true, value_name = "NAME")]
    name: Vec<String>,
}

impl Named {
    fn text(&self) -> String {
        self.name.join(" ")
    }
}

/// A profile in the store, without its steps.
#[derive(Debug, Clone, Serialize)]
struct Summary {
    key: String,
    name: String,
    kind: &'static str,
    /// The folder of an exact command.
    folder: Option<String>,
    runs: u32,
    steps: u64,
    /// Steps that are acted on at the next run.
    likely_steps: u64,
    /// Bytes of files that are read ahead then.
    likely_bytes: u64,
    /// Bytes of its file.
    disk_bytes: u64,
    /// Seconds since 1970.
    used_at_s: u64,
    last: Option<LastRun>,
    #[serde(skip)]
    bytes_of_key: Vec<u8>,
}

/// How well the steps fitted the last run.
#[derive(Debug, Clone, Copy, Serialize)]
struct LastRun {
    expected: u32,
    asked: u32,
    found: u32,
    has_stopped: bool,
    ahead_bytes: u64,
    useful_bytes: u64,
    late_bytes: u64,
    wasted_bytes: u64,
}

impl From<Last> for LastRun {
    fn from(last: Last) -> Self {
        LastRun {
            expected: last.expected,
            asked: last.asked,
            found: last.found,
            has_stopped: last.has_stopped,
            ahead_bytes: last.ahead_bytes,
            useful_bytes: last.useful_bytes,
            late_bytes: last.late_bytes,
            wasted_bytes: last.wasted_bytes,
        }
    }
}

impl Summary {
    fn new(kept: &Kept) -> Self {
        let Kept { key, profile, bytes, used_at, .. } = kept;
        let folder = String::from_utf8_lossy(&profile.folder).into_owned();
        let since = used_at.duration_since(std::time::UNIX_EPOCH);
        Summary {
            key: hex(key),
            name: shown_name(profile),
            kind: kind(profile.kind),
            folder: Some(folder).filter(|folder| !folder.is_empty()),
            runs: profile.runs,
            steps: profile.steps.len() as u64,
            likely_steps: likely(profile).count() as u64,
            likely_bytes: likely(profile)
                .fold(0, |sum: u64, step| sum.saturating_add(step.likely_bytes())),
            disk_bytes: *bytes,
            used_at_s: since.map_or(0, |since| since.as_secs()),
            last: profile.last.map(LastRun::from),
            bytes_of_key: key.clone(),
        }
    }

    /// Whether it is of all programs: what it has is known, and read ahead by what a run opens.
    fn is_history(&self) -> bool {
        self.kind == kind(Kind::Across)
    }

    /// The name by which it is listed and found.
    fn label(&self) -> String {
        match self.kind {
            "alike" => format!("like {}", self.name),
            _ => self.name.clone(),
        }
    }

    /// The name, and the folder if there is one.
    fn long_label(&self) -> String {
        self.in_folder(&self.label())
    }

    /// As [`long_label`](Self::long_label), with a long name cut.
    fn short_label(&self) -> String {
        self.in_folder(&cut(&self.label(), LABEL_MAX))
    }

    /// The short label within a sentence.
    fn quoted_label(&self) -> String {
        self.in_folder(&quoted(&cut(&self.label(), LABEL_MAX)))
    }

    fn in_folder(&self, label: &str) -> String {
        match &self.folder {
            Some(folder) => format!("{label} (in {folder})"),
            None => label.to_owned(),
        }
    }
}

/// The steps that the next run has done ahead of it. None of the history: what is read of that depends on what the run opens.
fn likely(profile: &Profile) -> impl Iterator<Item = &Weighted> {
    profile.steps.iter().filter(|step| profile.kind != Kind::Across && step.is_likely())
}

/// The name without secrets. Other versions, and other machines, may have kept some.
fn shown_name(profile: &Profile) -> String {
    match profile.kind {
        Kind::Exact | Kind::Alike => masking::line(&profile.name),
        Kind::Named | Kind::Across => profile.name.clone(),
    }
}

/// A name within a sentence: in quotes if it has spaces.
fn quoted(name: &str) -> String {
    if name.contains(' ') { format!("\"{name}\"") } else { name.to_owned() }
}

fn kind(kind: Kind) -> &'static str {
    match kind {
        Kind::Exact => "exact",
        Kind::Alike => "alike",
        Kind::Named => "named",
        Kind::Across => "all",
    }
}

fn hex(key: &[u8]) -> String {
    key.iter().map(|byte| format!("{byte:02x}")).collect()
}

/// Checks that `option` names a file that can be written; `None` is standard output.
fn output(option: &str, path: &Path) -> Result<Option<OutputFile>, Failure> {
    let is_file = path != Path::new("-");
    let file = is_file.then(|| OutputFile::open_as(option, path)).transpose();
    file.map_err(Failure::failed)
}

/// Writes to what [`output`] has checked.
fn put(file: Option<OutputFile>, text: &[u8]) -> Result<(), Failure> {
    match file {
        Some(file) => file.write(text).map_err(Failure::failed),
        None => {
            let mut out = io::stdout();
            written(out.write_all(text).and_then(|()| out.flush()))
        }
    }
}

/// Writes `figures` as JSON to the file of --json if that is given; else `lines` to standard output, and to that beside a file.
fn put_both(
    json: Option<&Path>,
    figures: impl FnOnce() -> Result<Vec<u8>, serde_json::Error>,
    lines: impl FnOnce() -> String,
) -> Result<(), Failure> {
    if let Some(path) = json {
        let file = output("--json", path)?;
        let mut text = figures().map_err(Failure::failed)?;
        text.push(b'\n');
        put(file, &text)?;
    }
    match json {
        Some(path) if path == Path::new("-") => Ok(()),
        _ => put(None, lines().as_bytes()),
    }
}

/// `count` of a thing, in words.
fn counted(count: usize, thing: &str) -> String {
    match count {
        1 => format!("1 {thing}"),
        _ => format!("{count} {thing}s"),
    }
}

/// The store.
///
/// # Errors
/// Learning is off.
fn store() -> Result<(Store, PathBuf), Failure> {
    let folder = state::folder().ok_or_else(|| Failure::failed(state::why_none()))?;
    Ok((Store::at(folder.clone()), folder))
}

/// All workloads, those that were used last first.
fn summaries(store: &Store) -> Result<Vec<Summary>, Failure> {
    let mut all = Vec::new();
    store.survey(|kept| all.push(Summary::new(&kept))).map_err(Failure::failed)?;
    Ok(all)
}

/// The workload that the user means, and what was learned of it.
fn one(store: &Store, named: &Named) -> Result<(Summary, Profile), Failure> {
    let summary = find::find(summaries(store)?, &named.text())?;
    let profile = store.load(&summary.bytes_of_key).map_err(Failure::failed)?;
    let gone = || Failure::failed(format!("{}: was forgotten meanwhile", summary.quoted_label()));
    let mut profile = profile.ok_or_else(gone)?;
    profile.name = shown_name(&profile);
    Ok((summary.clone(), profile))
}
