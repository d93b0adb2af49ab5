//! `foretell learned show`: the steps of a workload.

use std::fmt::Write;
use std::path::PathBuf;

use clap::Args;
use foretell_manager::learn::profile::{Profile, Weighted};
use foretell_manager::learn::steps::Acts;
use serde::Serialize;

use super::{LastRun, Named, Summary, one, put_both, store};
use crate::failure::{Failure, without_controls};
use crate::size;

pub(super) const HELP: &str = "\
A line a step, in the order in which the next run is expected to have them:

WEIGHT  the chance that the next run has it, as far as earlier ones have shown; from 0.40 on it is \
acted on
SEEN    runs that had it
AT      seconds after the start of the last run that had it
DONE    what the program did: looked at, listed, opened, read, read to its end, mapped; absent: the \
call failed
AHEAD   what the next run will have done ahead of it: `look up` the name, `list` the folder, or the \
bytes that are read; `-` is nothing

Of `all programs`, SEEN is the number of a run, and AHEAD is what is read if a run opens what was opened before it then.";

#[derive(Args)]
pub(super) struct ShowArgs {
    #[command(flatten)]
    named: Named,

    /// Write the steps to FILE as JSON (- for standard output, in place of the lines)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

/// What is written as JSON.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    summary: &'a Summary,
    all_steps: Vec<Step>,
}

#[derive(Serialize)]
struct Step {
    path: String,
    done: Vec<&'static str>,
    weight: f32,
    seen: u32,
    at_ms: u32,
    is_likely: bool,
    /// Start, length and weight of each part, in bytes.
    parts: Vec<(u64, u64, f32)>,
}

pub(super) fn show(args: &ShowArgs) -> Result<(), Failure> {
    let (store, _) = store()?;
    let (summary, profile) = one(&store, &args.named)?;
    let figures = || {
        let all_steps = profile.steps.iter().map(Step::new).collect();
        serde_json::to_vec(&Shown { summary: &summary, all_steps })
    };
    put_both(args.json.as_deref(), figures, || lines(&summary, &profile))
}

impl Step {
    fn new(step: &Weighted) -> Self {
        Step {
            path: String::from_utf8_lossy(&step.path).into_owned(),
            done: done(step.acts),
            weight: step.weight,
            seen: step.seen,
            at_ms: step.at_ms,
            is_likely: step.is_likely(),
            parts: step
                .parts
                .iter()
                .map(|(part, weight)| (part.start, part.bytes(), *weight))
                .collect(),
        }
    }
}

fn lines(summary: &Summary, profile: &Profile) -> String {
    let of = match (summary.kind, &summary.folder) {
        ("alike", _) => "all commands of this shape that have not run before".to_owned(),
        ("all", _) => {
            "commands of which nothing is known (SEEN is the number of the run)".to_owned()
        }
        ("named", _) => "runs with this --workload".to_owned(),
        (_, Some(folder)) => format!("this very command in {folder}"),
        (_, None) => "this very command".to_owned(),
    };
    let mut lines = String::new();
    let mut about = |what: &str, is: String| {
        let _ = writeln!(lines, "{what:9} {}", without_controls(&is));
    };
    about("workload", summary.label());
    about("used by", of);
    about("key", summary.key.clone());
    about("runs", summary.runs.to_string());
    let (likely, steps) = (summary.likely_steps, summary.steps);
    let bytes = size::display(summary.likely_bytes);
    match summary.is_history() {
        true => about("ahead", format!("of {steps} files, those that followed what the run opens")),
        false => {
            about("ahead", format!("{likely} of {steps} steps, {bytes} of files"));
            about("last run", last_run(summary.last));
        }
    }
    summary
        .last
        .filter(|last| last.ahead_bytes > 0)
        .into_iter()
        .for_each(|last| about("", bytes_of(last)));
    let _ = writeln!(lines, "\nWEIGHT  SEEN     AT s  {:24}  {:>16}  PATH", "DONE", "AHEAD");
    for step in &profile.steps {
        let path = without_controls(&String::from_utf8_lossy(&step.path));
        let (seen, at_s) = (step.seen, f64::from(step.at_ms) / 1000.0);
        let (done, ahead) = (done(step.acts).join(", "), ahead(step));
        let weight = step.weight;
        let _ =
            writeln!(lines, "{weight:6.2}  {seen:4}  {at_s:7.3}  {done:24}  {ahead:>16}  {path}");
    }
    lines
}

fn last_run(last: Option<LastRun>) -> String {
    let Some(last) = last else {
        return "was not looked ahead in yet".to_owned();
    };
    let LastRun { expected, asked, found, has_stopped, .. } = last;
    let share = 100.0 * f64::from(found) / f64::from(expected.max(1));
    let stopped = if has_stopped { "; it stopped, as the run differed" } else { "" };
    format!(
        "{expected} steps expected, {asked} asked for ahead, {found} found ({share:.0} %){stopped}"
    )
}

/// What became of the bytes that the last run had read ahead.
fn bytes_of(last: LastRun) -> String {
    let [ahead, useful, late, wasted] =
        [last.ahead_bytes, last.useful_bytes, last.late_bytes, last.wasted_bytes]
            .map(size::display);
    format!("{ahead} of files read ahead: {useful} in time, {late} late, {wasted} not read")
}

/// What was done to a path, in words.
fn done(acts: Acts) -> Vec<&'static str> {
    let words = [
        (Acts::LOOK, "looked at"),
        (Acts::LIST, "listed"),
        (Acts::OPEN, "opened"),
        (Acts::READ, "read"),
        (Acts::END, "to its end"),
        (Acts::MAP, "mapped"),
        (Acts::FAIL, "absent"),
    ];
    words.into_iter().filter(|(act, _)| acts.has(*act)).map(|(_, word)| word).collect()
}

/// What the next run has done ahead of it.
fn ahead(step: &Weighted) -> String {
    let parts = step.likely_parts().count();
    match step.likely_bytes() {
        _ if !step.is_likely() => "-".to_owned(),
        bytes if step.is_whole() => format!("all, {}", size::display(bytes)),
        bytes if parts > 1 => format!("{} in {parts}", size::display(bytes)),
        bytes if parts == 1 => size::display(bytes),
        _ if step.acts.has(Acts::LIST) => "list".to_owned(),
        _ => "look up".to_owned(),
    }
}
