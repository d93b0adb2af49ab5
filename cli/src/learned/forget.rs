//! `foretell learned forget`: removes what was learned.

use std::ffi::OsString;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use foretell_manager::learn::workload::Workload;

use super::{Summary, age, counted, find, store, summaries};
use crate::failure::{Failure, note, without_controls};
use crate::standard_output::say;

pub(super) const HELP: &str = "\
Prints a line for each workload that is forgotten. A run that is under way now is learned from when it \
ends.

Examples:
  foretell learned forget nightly
  foretell learned forget --older-than 30d      what was not used for 30 days
  foretell learned forget --all                 everything, damaged files too";

#[derive(Args)]
#[group(id = "which", required = true, multiple = true)]
pub(super) struct ForgetArgs {
    /// The workload: its name, the beginning or words of it, or its key
    #[arg(group = "which", value_name = "NAME", conflicts_with = "all")]
    name: Vec<String>,

    /// Everything
    #[arg(long, group = "which")]
    all: bool,

    /// Only what was not used for this long: 30d, 2w, 12h
    #[arg(long, group = "which", value_name = "AGE", value_parser = age::parse)]
    older_than: Option<Duration>,
}

pub(super) fn forget(args: &ForgetArgs) -> Result<(), Failure> {
    let (store, _) = store()?;
    let all = summaries(&store)?;
    let chosen = match args.name.is_empty() {
        true => all.clone(),
        false => vec![find::find(all.clone(), &args.name.join(" "))?],
    };
    let old = chosen.into_iter().filter(|one| is_older(one, args.older_than));
    let mut forgotten = 0;
    for one in old {
        if store.forget(&one.bytes_of_key).map_err(Failure::failed)? {
            forgotten += 1;
            say(&format!("forgot {} {}", one.key, without_controls(&one.short_label())))?;
            tell_of_others(&one, &all, args);
        }
    }
    let cleaned = match (args.all, args.older_than) {
        (true, None) => store.clean().map_err(Failure::failed)?,
        _ => 0,
    };
    match (forgotten, cleaned) {
        (0, 0) => say("nothing to forget"),
        (_, 0) => Ok(()),
        (_, count) => say(&format!("removed {}", counted(count, "damaged file"))),
    }
}

fn is_older(one: &Summary, age: Option<Duration>) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    age.is_none_or(|age| now.saturating_sub(one.used_at_s) >= age.as_secs())
}

/// What all commands of a shape have shown has this one's paths too, and so has what all programs have shown.
fn tell_of_others(one: &Summary, all: &[Summary], args: &ForgetArgs) {
    if args.name.is_empty() {
        return;
    }
    // As far as no word has a space.
    let words: Vec<OsString> = one.name.split(' ').map(OsString::from).collect();
    let alike = Workload::of_command(&words, Path::new("/")).alike;
    let is_alike = |other: &Summary| one.kind == "exact" && other.bytes_of_key == alike;
    let is_across = |other: &Summary| one.kind != "all" && other.kind == "all";
    for other in all.iter().filter(|other| is_alike(other) || is_across(other)) {
        let (label, key) = (other.label(), &other.key[..8.min(other.key.len())]);
        note(format!("its files are known from \"{label}\" too: foretell learned forget {key}"));
    }
}
