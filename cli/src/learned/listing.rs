//! `foretell learned list`: a line a workload.

use std::path::PathBuf;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::Args;
use foretell_manager::learn::store::{Rest, STORE_MAX_BYTES, Store};
use serde::Serialize;

use super::{Summary, age, counted, put_both};
use crate::failure::{Failure, without_controls};
use crate::{size, state};

pub(super) const HELP: &str = "\
RUNS   runs that it was learned from (0: imported)
STEPS  names, folders and files that are looked up or read ahead in the next run; of `all programs`, the \
files that are known
AHEAD  bytes of files that are read ahead; of `all programs`, this depends on what the run opens
DISK   bytes that the profile takes

A name that begins with `like` stands for all commands of this shape: words that name files are known \
by their extension alone, numbers without their digits, options without values. It is used by commands \
that have not run before.";

#[derive(Args, Default)]
pub(super) struct ListArgs {
    /// Write the list to FILE as JSON (- for standard output, in place of the lines)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// All that is learned.
#[derive(Serialize)]
struct Listing {
    /// The folder of the store; `None` if learning is off.
    folder: Option<String>,
    bytes: u64,
    bytes_max: u64,
    damaged: usize,
    workloads: Vec<Summary>,
}

pub(super) fn list(args: &ListArgs) -> Result<(), Failure> {
    let folder = state::folder();
    let (mut workloads, mut rest) = (Vec::new(), Rest::default());
    if let Some(folder) = &folder {
        let survey = Store::at(folder.clone()).survey(|kept| workloads.push(Summary::new(&kept)));
        rest = survey.map_err(Failure::failed)?;
    }
    let listing = Listing {
        folder: folder.map(|folder| folder.display().to_string()),
        bytes: rest.bytes,
        bytes_max: STORE_MAX_BYTES,
        damaged: rest.damaged,
        workloads,
    };
    put_both(args.json.as_deref(), || serde_json::to_vec(&listing), || listing.lines())
}

impl Listing {
    fn lines(&self) -> String {
        let Some(folder) = &self.folder else { return format!("{}\n", state::why_none()) };
        let folder = without_controls(folder);
        let damaged = match self.damaged {
            0 => String::new(),
            count => format!("; {} set aside", counted(count, "damaged file")),
        };
        if self.workloads.is_empty() {
            return format!("nothing is learned yet in {folder}{damaged}\n");
        }
        let key = key_length(&self.workloads);
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
        let mut lines = format!(
            "{:key$}  {:>5}  {:>6}  {:>8}  {:>8}  {:10}  WORKLOAD\n",
            "KEY", "RUNS", "STEPS", "AHEAD", "DISK", "USED"
        );
        for one in &self.workloads {
            lines += &format!(
                "{:key$}  {:>5}  {:>6}  {:>8}  {:>8}  {:10}  {}\n",
                &one.key[..key.min(one.key.len())],
                one.runs,
                if one.is_history() { one.steps } else { one.likely_steps },
                if one.is_history() { "-".to_owned() } else { size::display(one.likely_bytes) },
                size::display(one.disk_bytes),
                age::display(now.saturating_sub(one.used_at_s)),
                without_controls(&one.short_label()),
            );
        }
        let count = counted(self.workloads.len(), "workload");
        let (bytes, most) = (size::display(self.bytes), size::display(self.bytes_max));
        lines + &format!("{count}, {bytes} of {most} in {folder}{damaged}\n")
    }
}

/// Characters with which all keys differ, 8 at least.
fn key_length(all: &[Summary]) -> usize {
    let mut keys: Vec<&str> = all.iter().map(|one| &*one.key).collect();
    keys.sort_unstable();
    let shared =
        |pair: &[&str]| pair[0].bytes().zip(pair[1].bytes()).take_while(|(a, b)| a == b).count();
    keys.windows(2).map(|pair| shared(pair) + 1).max().unwrap_or(0).max(8)
}
