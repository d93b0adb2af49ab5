//! `foretell learned forget`: removes what was learned.

use std::ffi::OsString;
use std::iter::empty;
use std::path::Path;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use clap::Args;
use foretell_manager::learn::private::Private;
use foretell_manager::learn::workload::Workload;

use super::{Summary, age, counted, find, store, summaries};
use crate::failure::{Failure, note, without_controls};
use crate::standard_output::say;

pub(super) const HELP: &str = "\
Prints a line for each workload that is forgotten. Its files are removed from `all programs` too, unless \
another workload has them. A run that is under way now is learned from when it \
ends.

Examples:
  foretell learned forget nightly
  foretell learned forget -- grep -rn x         a name with dashes, behind --
  foretell learned forget --older-than 30d      what was not used for 30 days
  foretell learned forget --all                 everything, damaged files too";

#[derive(Args)]
#[group(id = "which", required = true, multiple = true)]
pub(super) struct ForgetArgs {
    /// The workload: its whole name, or the beginning of its key
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
        false => vec![find::find_whole(all.clone(), &args.name.join(" "))?],
    };
    let old: Vec<Summary> =
        chosen.into_iter().filter(|one| is_older(one, args.older_than)).collect();
    // All is done before a line is printed: its reader may be gone.
    let keys: Vec<&[u8]> = old.iter().map(|one| &one.bytes_of_key[..]).collect();
    let forgotten = store.forget_all(&keys).map_err(Failure::failed)?;
    let cleaned = match (args.all, args.older_than) {
        (true, None) => store.clean().map_err(Failure::failed)?,
        _ => 0,
    };
    if forgotten.profiles > 0 {
        old.iter().for_each(|one| tell_of_others(one, &all, args));
        for one in &old {
            say(&format!("forgot {} {}", one.key, without_controls(&one.quoted_label())))?;
        }
    }
    if forgotten.of_history > 0 {
        let files = counted(forgotten.of_history, "file");
        say(&format!("removed {files} from \"all programs\""))?;
    }
    match (forgotten.profiles, cleaned) {
        (0, 0) => say("nothing to forget"),
        (_, 0) => Ok(()),
        (_, count) => say(&format!("removed {}", counted(count, "damaged file"))),
    }
}

fn is_older(one: &Summary, age: Option<Duration>) -> bool {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |now| now.as_secs());
    age.is_none_or(|age| now.saturating_sub(one.used_at_s) >= age.as_secs())
}

/// All commands of a shape have this one's files too, and so they stay in the history.
fn tell_of_others(one: &Summary, all: &[Summary], args: &ForgetArgs) {
    if args.name.is_empty() || one.kind != "exact" {
        return;
    }
    // As far as no word has a space. Words that are masked have the shape of the mask in both.
    let words: Vec<OsString> = one.name.split(' ').map(OsString::from).collect();
    let of_command = Workload::of_command(&words, Path::new("/"), &Private::new(empty()));
    let is_alike = |other: &&Summary| {
        let is_same = other.bytes_of_key == of_command.alike || other.name == of_command.shape;
        other.kind == "alike" && is_same
    };
    for other in all.iter().filter(is_alike) {
        let (label, key) = (other.label(), &other.key[..8.min(other.key.len())]);
        note(format!(
            "its files are known from \"{label}\" too, and stay in \"all programs\": foretell learned forget {key}"
        ));
    }
}
