//! Every figure, and the conditions under which it was measured.

use super::names::{order_name, program_name};
use super::select::Set;
use crate::demo::array::results::{Conditions, Run};
use crate::demo::page;
use crate::demo::page::markup::{NONE, count, digits, escape, share, tick_label, times};

/// The columns after set, files and blocks, which span a set's rows.
const COLUMNS: [&str; 12] = [
    "disks",
    "order",
    "without",
    "with",
    "saved",
    "× bound",
    "warm",
    "busiest disk",
    "useful",
    "late",
    "wasted",
    "identical",
];

/// The table of all runs.
pub(super) fn table(sets: &[Set<'_>]) -> String {
    if sets.is_empty() {
        return String::new();
    }
    let heads: String =
        COLUMNS.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    let bodies: String = sets.iter().map(body).collect();
    format!(
        "<section>\n<h2>All runs</h2>\n\
         <p>Times in seconds; blocks of 8 KiB. <i>Without</i> and <i>with</i> begin \
         cold, on a freshly mounted array; <i>warm</i> repeats the search with everything in \
         memory. <i>× bound</i> is the time with foretell in lower bounds; the bound is the larger \
         of <i>warm</i> and <i>busiest disk</i>. Prefetched blocks were <i>useful</i> (there when \
         asked for), <i>late</i> (asked for while on their way) or <i>wasted</i> (never asked \
         for).</p>\n\
         <div class=\"scroll\" role=\"region\" aria-label=\"All runs\" tabindex=\"0\"><table>\n\
         <thead><tr><th scope=\"col\">set</th><th scope=\"col\">files</th>\
         <th scope=\"col\">blocks</th>{heads}</tr></thead>\n{bodies}</table></div>\n</section>\n"
    )
}

fn body(set: &Set<'_>) -> String {
    let span = set.runs.len();
    let mut rows = format!(
        "<tbody><tr><th scope=\"rowgroup\" rowspan=\"{span}\">{}</th>\
         <td rowspan=\"{span}\">{}</td><td rowspan=\"{span}\">{}</td>",
        escape(set.name),
        count(set.files as u64),
        count(set.blocks),
    );
    let cells: Vec<String> = set.listed().into_iter().map(row).collect();
    rows += &cells.join("</tr>\n<tr>");
    rows += "</tr></tbody>\n";
    rows
}

fn row(run: &Run) -> String {
    let identical = if run.identical {
        "<td>yes</td>".into()
    } else {
        String::from("<td class=\"worse\"><b>NO</b></td>")
    };
    let saved = share(run.saved_share()).unwrap_or(NONE.into());
    let slower = if run.saved_share() < 0.0 { " class=\"worse\"" } else { "" };
    let cells = [
        (format!("<td>{}</td>", run.disks)),
        (format!("<td class=\"word\">{}</td>", escape(&order_name(run)))),
        (format!("<td class=\"plain\">{}</td>", digits(run.plain_s))),
        (format!("<td class=\"hinted\">{}</td>", digits(run.hinted_s))),
        (format!("<td{slower}>{saved}</td>")),
        (format!("<td>{}</td>", bound(run))),
        (format!("<td>{}</td>", digits(run.warm_s))),
        (format!("<td>{}</td>", digits(run.busiest_disk_s))),
        (format!("<td>{}</td>", count(run.useful))),
        (format!("<td>{}</td>", count(run.late))),
        (format!("<td>{}</td>", count(run.wasted))),
        identical,
    ];
    cells.concat()
}

fn bound(run: &Run) -> String {
    let text = times(run.of_lower_bound()).unwrap_or(NONE.into());
    text.trim_end_matches(['×', '\u{a0}']).to_owned()
}

/// What was real, what was modelled, the conditions, and how to measure again.
pub(super) fn conditions(conditions: &Conditions) -> String {
    let program = program_name(conditions);
    let disk = escape(&conditions.disk);
    let items = [
        ("Date", escape(&conditions.machine.date)),
        ("Machine", page::machine(&conditions.machine)),
        ("Program", escape(&conditions.program)),
        ("Searched for", format!("<code>{}</code>, in no file", escape(&conditions.needle))),
        ("Modelled disk", disk.clone()),
        ("Stripe unit", stripe(conditions.stripe_bytes)),
        ("Layout", escape(&conditions.layout)),
        ("Time scale", scale(conditions.time_scale)),
    ];
    let real = format!(
        "The Linux kernel with its system calls, its page cache and its own read-ahead; \
         <code>{program}</code>, unmodified; foretell; the files, copied from this machine; the time that all of \
         these take."
    );
    let modelled = format!(
        "The disks’ service time only. A FUSE file system serves the files and delays each read that is not in \
         memory by what a disk of the model {disk} would take to seek, rotate and transfer, after what else is \
         queued at that disk."
    );
    let clock = format!("All seconds are of the array’s clock. {}", clock(conditions.time_scale));
    page::conditions(
        &[("Real", real), ("Modelled", modelled), ("The clock", clock)],
        &items,
        ("foretell demo --json FILE", "every figure of it, the timelines included,"),
    )
}

fn stripe(bytes: u64) -> String {
    match bytes {
        0 => NONE.into(),
        bytes if bytes.is_multiple_of(1024) => format!("{}\u{a0}KiB", count(bytes / 1024)),
        bytes => format!("{}\u{a0}B", count(bytes)),
    }
}

fn scale(scale: f64) -> String {
    if !scale.is_finite() || scale <= 0.0 {
        return NONE.into();
    }
    format!("1\u{a0}s of the array’s clock takes {}\u{a0}s", tick_label(scale))
}

fn clock(scale: f64) -> String {
    if !scale.is_finite() || scale <= 0.0 {
        return "Its time scale is unknown.".into();
    }
    if (scale - 1.0).abs() < 1e-9 {
        return "It runs as fast as a real one.".into();
    }
    let (pace, weight) = if scale < 1.0 {
        ("faster", format!("{}\u{a0}times as long", tick_label(1.0 / scale)))
    } else {
        ("slower", format!("{}\u{a0}of its length", tick_label(1.0 / scale)))
    };
    format!(
        "It runs {pace} than a real one: one second of it takes {} real seconds. What is real, as \
         computing is, therefore counts {weight} on it, without and with foretell alike.",
        tick_label(scale),
    )
}
