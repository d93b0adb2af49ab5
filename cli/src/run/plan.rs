//! What the manager of a run is to do, in a form that can be given to another process: plain data, and open files.

use std::ffi::OsString;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

use foretell_manager::source::{ByDefault, FromFile, KINDS, Kind, Setting};
use foretell_manager::{Options, Source};
use serde::{Deserialize, Serialize};

use crate::rules::RulesPlan;
use crate::state::LearnPlan;

/// Most decisions that `--explain` writes.
pub(crate) const DECISIONS_MAX: usize = 1 << 16;

/// A file of hints.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct HintFile {
    /// The option that names it, which tells its kind.
    pub(super) option: String,
    /// What messages call it.
    pub(super) name: String,
    /// `None` where the plan is on its way to another process.
    #[serde(skip)]
    pub(crate) file: Option<File>,
}

/// See the [module](self).
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Plan {
    /// The program and its arguments.
    pub(crate) command: Vec<OsString>,
    /// Where it begins; `None` if that folder was removed.
    pub(crate) working_folder: Option<OsString>,
    pub(crate) budget_bytes: u64,
    pub(crate) release: bool,
    pub(crate) decisions_max: usize,
    /// In the order in which they are asked.
    pub(crate) hints: Vec<HintFile>,
    /// Options of the sources that guess.
    pub(crate) guesses: Vec<String>,
    pub(crate) observes: bool,
    pub(crate) counts_names: bool,
    pub(crate) learn: Option<LearnPlan>,
    pub(crate) rules: Option<RulesPlan>,
}

impl Plan {
    /// What the manager is started with, and a line about what it cannot do. An option of another version of foretell is left
    /// out.
    pub(crate) fn into_options(self) -> (Options, Option<String>) {
        let working_folder = self.working_folder.map(PathBuf::from);
        let setting = Setting { command: self.command, working_folder };
        let (learn, note) = match self.learn.map(|plan| plan.learn(&setting)) {
            None => (None, None),
            Some(Ok(learn)) => (learn, None),
            Some(Err(problem)) => (None, Some(problem)),
        };
        let given = self.hints.into_iter().filter_map(|hints| {
            let (kind, file, name) = (from_file(&hints.option)?, hints.file?, hints.name);
            let items = (kind.open)(setting.clone(), file);
            let items = items.map(move |item| item.map_err(|error| format!("{name}: {error}")));
            Some(Box::new(items) as Source)
        });
        let sources = given.collect();
        let kinds: Vec<&ByDefault> =
            self.guesses.iter().filter_map(|option| by_default(option)).collect();
        let guesses = kinds.iter().map(|kind| (kind.open)(setting.clone())).collect();
        let lineage = kinds.iter().any(|kind| kind.of_processes).then_some(setting);
        let options = Options {
            budget_bytes: self.budget_bytes,
            release: self.release,
            decisions_max: self.decisions_max.min(DECISIONS_MAX),
            sources,
            guesses,
            lineage,
            observes: self.observes,
            counts_names: self.counts_names,
            learn,
            rules: self.rules.and_then(|plan| plan.rules()),
            ..Options::default()
        };
        (options, note)
    }

    /// Whether another process may read the hints: a pipe or a terminal must have no other reader left when the run is over.
    pub(crate) fn can_be_given(&self) -> bool {
        let is_regular =
            |file: &File| file.metadata().is_ok_and(|about| about.file_type().is_file());
        self.hints.iter().all(|hints| hints.file.as_ref().is_some_and(is_regular))
    }

    /// The command, as people would type it.
    pub(crate) fn text(&self) -> String {
        let words: Vec<_> =
            self.command.iter().map(|word| String::from_utf8_lossy(word.as_bytes())).collect();
        words.join(" ")
    }
}

fn from_file(option: &str) -> Option<&'static FromFile> {
    KINDS.iter().find_map(|kind| match kind {
        Kind::FromFile(kind) if kind.on == option => Some(kind),
        _ => None,
    })
}

fn by_default(option: &str) -> Option<&'static ByDefault> {
    KINDS.iter().find_map(|kind| match kind {
        Kind::ByDefault(kind) if kind.on == option => Some(kind),
        _ => None,
    })
}
