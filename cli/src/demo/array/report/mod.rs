//! The demo's report: one HTML page that stands by itself, without scripts and without anything
//! fetched.
//!
//! It says, in this order: whether output was the same (at the very top if it was not), the result in one sentence, what
//! foretell did, elapsed time by number of disks, the order of service on one disk, each disk's busy time over time, every
//! figure, and the conditions of the measurement.
//!
//! [`page`] makes the page itself. Only measured figures are shown: a missing set is left out, and a meaningless ratio is a
//! dash. Everything that comes from the machine passes through [`escape`].
//!
//! | module | draws |
//! |---|---|
//! | `select` | which runs are compared with which |
//! | `elapsed` | elapsed time by number of disks |
//! | `orders` | one disk: without and with foretell, by order of service |
//! | `busy` | each disk's busy time over time |
//! | `figures` | the table of all runs, the conditions |
//! | `names` | nothing: it has the names of program and order |

mod busy;
mod elapsed;
mod figures;
mod names;
mod orders;
mod select;
#[cfg(test)]
mod tests;

use crate::demo::array::results::{Conditions, Results, Run};
use crate::demo::page::markup::{count, counted, escape, seconds, share, times};
use crate::demo::page::{self, Page};
use names::{order_name, program_name};
use select::Set;

/// The whole page.
pub(crate) fn html(results: &Results) -> String {
    let sets = select::sets(&results.runs);
    let largest = select::largest(&sets);
    let best = largest.and_then(Set::on_most_disks);
    let mut body = differences(&results.runs);
    body += &delayed(&results.runs);
    body += &header(&results.conditions, best, largest);
    body += &key_figures(results, best);
    body += &elapsed::section(&sets);
    body += &orders::section(&sets);
    body += &largest.map(busy::section).unwrap_or_default();
    body += &figures::table(&sets);
    body += &figures::conditions(&results.conditions);
    page::document(&Page {
        title: &best.map_or_else(|| "nothing measured".into(), short_result),
        body: &body,
        footer: "Written by <code>foretell demo</code>, version {version}. One second on this page is one second of \
                 the array’s clock.",
    })
}

/// An alarm about runs whose output was not the same, or nothing.
fn differences(runs: &[Run]) -> String {
    let different: Vec<&Run> = runs.iter().filter(|run| !run.identical).collect();
    if different.is_empty() {
        return String::new();
    }
    let items: String = different.iter().map(|run| item(run)).collect();
    let what = format!("OUTPUT DIFFERED in {} of {} runs", different.len(), runs.len());
    let meaning = "With foretell the program printed, or ended with, something else than without it. This must \
                   never happen: do not rely on the times of these runs, and please report it.";
    page::alarm(&what, meaning, &items)
}

/// A run as an item of a list.
fn item(run: &Run) -> String {
    let disks = counted(run.disks as u64, "disk");
    format!("<li>{} on {disks}, {}</li>", escape(&run.set), escape(&order_name(run)))
}

/// An alarm about runs for which this machine was too busy or too slow, or nothing.
fn delayed(runs: &[Run]) -> String {
    let delayed: Vec<&Run> = runs.iter().filter(|run| run.is_delayed()).collect();
    if delayed.is_empty() {
        return String::new();
    }
    let items: String = delayed.iter().map(|run| item(run)).collect();
    let what = format!("DELAYED: {} of {} runs", delayed.len(), runs.len());
    let meaning = "Over 15 % of the time without foretell was neither the disks’ nor the program’s: this machine had other \
                   work to do, or could not follow the array’s clock. What was saved looks like more than it is.";
    page::alarm(&what, meaning, &items)
}

fn header(conditions: &Conditions, best: Option<&Run>, largest: Option<&Set<'_>>) -> String {
    let program = program_name(conditions);
    let what = match largest {
        Some(set) => format!(" · largest set: {}", escape(set.name)),
        None => String::new(),
    };
    let result = best.map_or_else(
        || {
            "The demo ended before its first measurement was complete: there is nothing to show."
                .into()
        },
        headline,
    );
    format!(
        "<header>\n<p class=\"eyebrow\"><b>foretell</b> demo{what}</p>\n<h1>{result}</h1>\n\
         <p class=\"lead\">foretell took the names of the files from <code>{program}</code>’s \
         arguments before <code>{program}</code> opened the first of them, and fetched the files \
         ahead of it, many at a time, so that all disks worked at once, each with a queue \
         to serve in the order that suits its arm. <code>{program}</code> itself was not changed \
         and asked for one file after another as ever, but found each already in memory or on its \
         way.</p>\n\
         </header>\n"
    )
}

/// The result of `run` as a sentence of HTML.
fn headline(run: &Run) -> String {
    let files =
        format!("{} {}", count(run.files as u64), if run.files == 1 { "file" } else { "files" });
    let disks = counted(run.disks as u64, "disk");
    let saved = run.saved_share();
    let change = match (share(saved.abs()), saved < 0.0) {
        (Some(text), false) => format!("<em>{text} less time</em>"),
        (Some(text), true) => format!("<em class=\"worse\">{text} more time</em>"),
        (None, _) => return format!("Searching {files} on {disks} gave no usable times."),
    };
    let bound = times(run.of_lower_bound())
        .map(|text| format!(", {text} the lower bound"))
        .unwrap_or_default();
    format!(
        "Searching {files} on {disks} takes {change} with foretell: {} instead of {}{bound}.",
        seconds(run.hinted_s),
        seconds(run.plain_s),
    )
}

/// The result in a few words of plain text.
fn short_result(run: &Run) -> String {
    let disks = counted(run.disks as u64, "disk");
    match share(run.saved_share()) {
        Some(saved) => format!("{saved} less time on {disks}"),
        None => format!("{} on {disks}", run.set),
    }
}

fn key_figures(results: &Results, best: Option<&Run>) -> String {
    let Some(best) = best else { return String::new() };
    let disks = counted(best.disks as u64, "disk");
    let mut items: Vec<(&str, String, String)> = Vec::new();
    let mut add = |class, value, label| items.push((class, value, label));
    if let Some(saved) = share(best.saved_share()) {
        add("", saved, format!("less elapsed time on {disks}"));
    }
    if let Some(bound) = times(best.of_lower_bound()) {
        add("", bound, "the lower bound: busiest disk or warm run, the longer".into());
    }
    let plain = busy::mean_busy(&best.plain_timeline, best.plain_s);
    let hinted = busy::mean_busy(&best.hinted_timeline, best.hinted_s);
    if let (Some(plain), Some(hinted)) = (plain, hinted) {
        let label = format!("of {disks} busy on average, without and with foretell");
        add("", format!("{plain:.1} → {hinted:.1}"), label);
    }
    let identical = results.runs.iter().filter(|run| run.identical).count();
    let all = results.runs.len();
    let class = if identical == all { "" } else { "worse" };
    add(class, format!("{identical} of {all}"), "runs with identical output and exit code".into());
    page::keys(&items)
}
