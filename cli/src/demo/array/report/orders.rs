//! One disk: how much its order of service matters.

use super::names::order_name;
use super::select::Set;
use crate::demo::array::results::Run;
use crate::demo::page::bar;
use crate::demo::page::markup::{NONE, counted, escape, seconds, share, usable};

/// The section: bars, with a text, of each set that was measured on one disk with several orders of service.
pub(super) fn section(sets: &[Set<'_>]) -> String {
    let figures: String = sets.iter().filter_map(figure).collect();
    if figures.is_empty() {
        return String::new();
    }
    format!(
        "<section>\n<h2>One disk: a queue is worth sorting</h2>\n\
         <p>Without foretell a disk rarely has more than one request to choose from, so that the \
         order in which it serves them hardly matters. foretell’s prefetches fill its queue: first \
         come, first served (FIFO) only keeps it busy, while the elevator (SCAN) sweeps its arm \
         over all of them, to and fro.</p>\n\
         <div class=\"plots\">\n{figures}</div>\n\
         <p class=\"note\">For comparison: <i>agrep</i> on one disk of 1995 (TIP) took 31 % less \
         time where only the drive sorted its five requests, and 63 % less with SCAN of all that \
         were queued.</p>\n</section>\n"
    )
}

fn figure(set: &Set<'_>) -> Option<String> {
    let runs = set.orders_on_one_disk()?;
    let times = runs.iter().flat_map(|run| [run.plain_s, run.hinted_s]);
    let max = times.filter_map(usable).fold(0.0, f64::max);
    let groups: String = runs.iter().map(|run| group(run, max)).collect();
    let files = counted(set.files as u64, "file");
    Some(format!(
        "<figure>\n<figcaption><b>{}</b> {files}, 1\u{a0}disk</figcaption>\n\
         <div class=\"bars\">\n{groups}</div>\n</figure>\n",
        escape(set.name),
    ))
}

/// The bars of one order: without and with foretell.
fn group(run: &Run, max: f64) -> String {
    let change = share(-run.saved_share()).unwrap_or(NONE.into());
    let order = escape(&order_name(run));
    format!(
        "<span class=\"order\">{order}</span>{}<span></span>{}",
        bar("plain", (run.plain_s, max), &seconds(run.plain_s), "without"),
        bar("hinted", (run.hinted_s, max), &seconds(run.hinted_s), &format!("with, {change}")),
    )
}
