//! The page of a report, as all demos use it. A page is complete in itself: it has no scripts and fetches nothing. It is put
//! together from strings; everything that comes from the machine passes through [`markup::escape`].

pub(in crate::demo) mod markup;
mod style;
#[cfg(test)]
pub(in crate::demo) mod well_formed;

use super::machine::Machine;
use markup::{counted, escape, usable};

/// A page without its frame. All but the title is HTML.
pub(in crate::demo) struct Page<'a> {
    /// As plain text.
    pub(in crate::demo) title: &'a str,
    pub(in crate::demo) body: &'a str,
    /// The last line; `{version}` stands for this program's.
    pub(in crate::demo) footer: &'a str,
}

pub(in crate::demo) fn document(page: &Page<'_>) -> String {
    format!(
        "<!DOCTYPE html>\n<html lang=\"en\">\n<head>\n<meta charset=\"utf-8\">\n\
         <meta name=\"viewport\" content=\"width=device-width, initial-scale=1\">\n\
         <meta http-equiv=\"Content-Security-Policy\" \
         content=\"default-src 'none'; style-src 'unsafe-inline'\">\n\
         <title>foretell demo: {title}</title>\n<style>{style}</style>\n</head>\n\
         <body>\n<main>\n{body}<footer>{footer}</footer>\n</main>\n</body>\n</html>\n",
        title = escape(page.title),
        style = style::STYLE,
        body = page.body,
        footer = page.footer.replace("{version}", env!("CARGO_PKG_VERSION")),
    )
}

/// An alarm at the top of the page, with a list of `<li>`.
pub(in crate::demo) fn alarm(what: &str, meaning: &str, items: &str) -> String {
    format!(
        "<div class=\"alarm\" role=\"alert\"><p><b>{what}.</b> {meaning}</p><ul>{items}</ul></div>\n"
    )
}

/// A few figures in large type: class, figure and label of each.
pub(in crate::demo) fn keys(items: &[(&str, String, String)]) -> String {
    let item = |(class, value, label): &(&str, String, String)| {
        format!("<li class=\"{class}\"><b>{value}</b><span>{label}</span></li>\n")
    };
    let items: String = items.iter().map(item).collect();
    format!("<ul class=\"keys\">\n{items}</ul>\n")
}

/// A bar whose length is the share `value / max`, with the value as text and a remark.
pub(in crate::demo) fn bar(
    class: &str,
    (value, max): (f64, f64),
    text: &str,
    remark: &str,
) -> String {
    // Room is left on the right for the figure of the longest bar.
    let percent = usable(value / max).map_or(0.0, |share| share.min(1.0) * 58.0);
    format!(
        "<span class=\"bar\"><svg class=\"{class}\" style=\"width:{percent:.2}%\" \
         aria-hidden=\"true\" viewBox=\"0 0 1 1\" preserveAspectRatio=\"none\">\
         <rect width=\"1\" height=\"1\"/></svg><b class=\"{class}\">{text}</b> \
         <i>{remark}</i></span>\n",
    )
}

/// The section of conditions: what was real and what was modelled (heading and text of each), the conditions (term and text),
/// and how to measure again (the command, and what it writes as JSON).
pub(in crate::demo) fn conditions(
    grounds: &[(&str, String)],
    items: &[(&str, String)],
    (command, figures): (&str, &str),
) -> String {
    let ground =
        |(head, text): &(&str, String)| format!("<div><h3>{head}</h3><p>{text}</p></div>\n");
    let grounds: String = grounds.iter().map(ground).collect();
    let item = |(term, text): &(&str, String)| format!("<dt>{term}</dt><dd>{text}</dd>\n");
    let list: String = items.iter().map(item).collect();
    format!(
        "<section>\n<h2>Conditions</h2>\n<div class=\"ground\">\n{grounds}</div>\n<dl>\n{list}</dl>\n\
         <h3>Measure again</h3>\n<p><code class=\"command\">{command}</code></p>\n\
         <p>Writes this page anew, and {figures} to FILE as JSON.</p>\n</section>\n"
    )
}

/// "2 cores, Linux 6.18".
pub(in crate::demo) fn machine(machine: &Machine) -> String {
    let cores = match machine.cores {
        0 => "cores unknown".into(),
        cores => counted(cores as u64, "core"),
    };
    format!("{cores}, Linux {}", escape(&machine.kernel))
}
