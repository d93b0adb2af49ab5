//! The page of the store's demo. It says, in this order: whether all bytes were right (at the very top if not), the result in
//! one sentence, what foretell did, a bar for each way of each task, every figure, and the conditions.

use super::results::{Case, Conditions, Kind, Results, Sample, Way};
use crate::demo::page::markup::{NONE, count, counted, digits, escape, share, usable};
use crate::demo::page::{self, Page};
use crate::size;

/// The columns after the way's name.
const COLUMNS: [&str; 8] =
    ["median", "least", "most", "saved", "requests", "at once", "from the store", "identical"];

/// The whole page.
pub(super) fn html(results: &Results) -> String {
    let mut body = differences(results);
    body += &header(results);
    body += &key_figures(results);
    for (case, text) in results.cases.iter().zip(texts(&results.conditions)) {
        body += &section(case, &text);
    }
    body += &table(&results.cases);
    body += &conditions(&results.conditions);
    let best = results.cases.first().and_then(Case::best);
    let title = best.and_then(|(_, saved)| share(saved));
    let title = title.map_or_else(
        || "nothing measured".into(),
        |saved| format!("{saved} less time for reads of an object store"),
    );
    page::document(&Page {
        title: &title,
        body: &body,
        footer: "Written by <code>foretell demo --store</code>, version {version}. All figures are of a store that is emulated \
                 on the machine named above.",
    })
}

/// An alarm about wrong bytes, or nothing.
fn differences(results: &Results) -> String {
    let different = results.ways().filter(|(_, way)| !way.is_identical());
    let item = |(case, way): (&Case, &Way)| {
        format!("<li>{}: {}</li>", escape(&case.what), escape(&way.name))
    };
    let items: String = different.map(item).collect();
    if items.is_empty() {
        return String::new();
    }
    let meaning = "What was read through the mount, or printed, is not what the store has. This must never happen: please report it.";
    page::alarm("BYTES DIFFERED", meaning, &items)
}

fn header(results: &Results) -> String {
    let result = headline(results).unwrap_or_else(|| {
        "The demo ended before its first measurement was complete: there is nothing to show.".into()
    });
    let wait = time(results.conditions.first_byte_s);
    let Conditions { machine, .. } = &results.conditions;
    let machine = match machine.date.as_str() {
        "" => String::new(),
        date => format!(" on this machine · {}, {}", escape(date), page::machine(machine)),
    };
    format!(
        "<header>\n<p class=\"eyebrow\"><b>foretell</b> demo · a slow object store, emulated{machine}</p>\n<h1>{result}</h1>\n\
         <p class=\"lead\">Each answer of this store takes {wait} to begin. A program that asks for one thing after another waits \
         that long for each. foretell knows what comes next, from <code>posix_fadvise</code>, a list, or the program’s \
         arguments, and asks for it all, many requests at once, before the program does; the program finds it in memory or on \
         its way.</p>\n</header>\n"
    )
}

/// The results of all cases as a sentence of HTML.
fn headline(results: &Results) -> Option<String> {
    let of = |case: &Case| {
        let (best, saved) = case.best()?;
        let plain = case.ways.first()?;
        let saved_text = share(saved.abs())?;
        let change = if saved < 0.0 {
            format!("<em class=\"worse\">{saved_text} more time</em>")
        } else {
            format!("<em>{saved_text} less time</em>")
        };
        let (with, without) = (time(best.median.elapsed_s), time(plain.median.elapsed_s));
        Some((change, format!("{with} instead of {without}")))
    };
    let (change, times) = of(results.cases.first()?)?;
    let reads = "Reading an object store at random takes";
    let Some((other, other_times)) = results.cases.get(1).and_then(of) else {
        return Some(format!("{reads} {change} with foretell: {times}."));
    };
    let program = program_name(&results.conditions);
    Some(format!(
        "{reads} {change} with foretell, {times}; {program} over many small objects {other}, {other_times}."
    ))
}

fn key_figures(results: &Results) -> String {
    let mut items: Vec<(&str, String, String)> = Vec::new();
    let labels = ["less time for reads at random".to_owned(), {
        format!("less time for <code>{}</code>", program_name(&results.conditions))
    }];
    for (case, label) in results.cases.iter().zip(labels) {
        if let Some(saved) = case.best().and_then(|(_, saved)| share(saved)) {
            items.push(("", saved, label));
        }
    }
    if let Some(case) = results.cases.first()
        && let (Some(plain), Some((best, _))) = (case.ways.first(), case.best())
    {
        let at_once = |sample: &Sample| count(sample.in_flight_max);
        let value = format!("{} → {}", at_once(&plain.median), at_once(&best.median));
        items.push(("", value, "requests at once, without and with hints".into()));
    }
    let all: Vec<bool> =
        results.ways().flat_map(|(_, way)| way.samples.iter().map(|one| one.identical)).collect();
    if all.is_empty() {
        return String::new();
    }
    let identical = all.iter().filter(|&&identical| identical).count();
    let class = if identical == all.len() { "" } else { "worse" };
    let value = format!("{identical} of {}", all.len());
    items.push((class, value, "measurements with every byte right".into()));
    page::keys(&items)
}

/// Heading and text of each case.
fn texts(conditions: &Conditions) -> [(String, String); 2] {
    let range = size::display(conditions.range_bytes).replace(' ', "\u{a0}");
    let object = size::display(conditions.object_bytes).replace(' ', "\u{a0}");
    let program = program_name(conditions);
    let ranges = format!(
        "A program reads {} of {range} of an object of {object}, in an order that only it knows, with one <code>pread</code> after \
         another. The order cannot be guessed, so without hints the program waits for each read’s request. The other ways are: \
         after one <code>posix_fadvise(WILLNEED)</code> for each range, as any program on Linux can call it; after one \
         <code>ioctl</code> with the whole list in order, which is fetched within foretell’s memory budget; and a second time, \
         from the kernel’s page cache, and from foretell’s memory after that cache is dropped.",
        counted(conditions.ranges as u64, "range"),
    );
    let search = format!(
        "<code>{program} -n -F {} notes/*</code>, as from a shell: the folder is listed, then <code>{program}</code> opens and reads \
         {} ({}) one after the other. With foretell it runs under <code>foretell run</code>, which takes the names from the \
         command line.",
        escape(&conditions.needle),
        counted(conditions.notes as u64, "object"),
        size::display(conditions.notes_bytes).replace(' ', "\u{a0}"),
    );
    [
        (format!("Reads of {range} at random"), ranges),
        (format!("{program} over many small objects"), search),
    ]
}

fn section(case: &Case, (heading, text): &(String, String)) -> String {
    let times = case.ways.iter().map(|way| way.median.elapsed_s);
    let max = times.filter_map(usable).fold(0.0, f64::max);
    let row = |(way, saved): (&Way, Option<f64>)| {
        let class = class(way.kind);
        let sign = if saved.is_some_and(|saved| saved < 0.0) { '+' } else { '−' };
        let saved = saved.and_then(|saved| share(saved.abs()));
        let saved = saved.map(|saved| format!("{sign}{saved}, "));
        let asked = match (way.median.requests, way.median.in_flight_max) {
            (0, _) => "no requests".into(),
            (requests, at_once) => {
                format!("{}, {at_once} at once", counted(requests, "request"))
            }
        };
        let remark = format!("{}{asked}", saved.unwrap_or_default());
        let elapsed_s = way.median.elapsed_s;
        let bar = page::bar(class, (elapsed_s, max), &time(elapsed_s), &remark);
        format!("<span class=\"way\">{}</span>{bar}", name(way))
    };
    let rows: String = case.compared().map(row).collect();
    format!(
        "<section>\n<h2>{heading}</h2>\n<p>{text}</p>\n<figure>\n<div class=\"bars ways\">\n{rows}</div>\n</figure>\n</section>\n"
    )
}

/// The way's name, typeset.
fn name(way: &Way) -> String {
    escape(&way.name.replace('\'', "’"))
}

fn class(kind: Kind) -> &'static str {
    match kind {
        Kind::Plain => "plain",
        Kind::Hinted => "hinted",
        Kind::Again => "again",
    }
}

/// A time with its unit, in about three digits.
fn time(seconds: f64) -> String {
    match usable(seconds) {
        None => NONE.into(),
        Some(seconds) if seconds < 0.009_95 => format!("{:.1}\u{a0}ms", seconds * 1e3),
        Some(seconds) if seconds < 0.995 => format!("{:.0}\u{a0}ms", seconds * 1e3),
        Some(seconds) => format!("{}\u{a0}s", digits(seconds)),
    }
}

/// The table of all ways.
fn table(cases: &[Case]) -> String {
    if cases.is_empty() {
        return String::new();
    }
    let heads: String =
        COLUMNS.iter().map(|head| format!("<th scope=\"col\">{head}</th>")).collect();
    let bodies: String = cases.iter().map(body).collect();
    format!(
        "<section>\n<h2>All figures</h2>\n\
         <p>The median, the shortest and the longest time of all rounds. <i>Requests</i>, the most of them in flight <i>at once</i>, \
         and the bytes sent are those of the median round. Each way began on its own mount, with empty caches; reading <i>again</i> \
         is done on the mount without hints.</p>\n\
         <div class=\"scroll\" role=\"region\" aria-label=\"All figures\" tabindex=\"0\"><table>\n\
         <thead><tr><th scope=\"col\"></th>{heads}</tr></thead>\n{bodies}</table></div>\n</section>\n"
    )
}

fn body(case: &Case) -> String {
    let rows: String = case.compared().map(row).collect();
    let span = COLUMNS.len() + 1;
    format!(
        "<tbody><tr><th scope=\"rowgroup\" colspan=\"{span}\">{}</th></tr>\n{rows}</tbody>\n",
        escape(&case.what),
    )
}

fn row((way, saved): (&Way, Option<f64>)) -> String {
    let identical = match way.is_identical() {
        true => "<td>yes</td>",
        false => "<td class=\"worse\"><b>NO</b></td>",
    };
    let slower = if saved.is_some_and(|saved| saved < 0.0) { " class=\"worse\"" } else { "" };
    let saved = saved.and_then(share).unwrap_or_default();
    let cells = [
        format!("<th scope=\"row\">{}</th>", name(way)),
        format!("<td class=\"{}\">{}</td>", class(way.kind), time(way.median.elapsed_s)),
        format!("<td>{}</td><td>{}</td>", time(way.least_s), time(way.most_s)),
        format!("<td{slower}>{saved}</td>"),
        format!("<td>{}</td>", count(way.median.requests)),
        format!("<td>{}</td>", count(way.median.in_flight_max)),
        format!("<td>{}</td>{identical}", size::display(way.median.bytes_sent)),
    ];
    format!("<tr>{}</tr>\n", cells.concat())
}

fn conditions(conditions: &Conditions) -> String {
    let program = program_name(conditions);
    let rate = conditions.per_response_bytes_per_s as f64 / 1e6;
    let store = format!(
        "{} to the first byte, {rate:.0}\u{a0}MB/s for each response",
        time(conditions.first_byte_s)
    );
    let items = [
        ("Date", escape(&conditions.machine.date)),
        ("Machine", page::machine(&conditions.machine)),
        ("Program", escape(&conditions.program)),
        ("Store", format!("emulated: {store}, any number at once")),
        (
            "Lateness",
            format!("{} on average, in the worst measurement", time(conditions.first_byte_late_s)),
        ),
        ("Rounds", format!("{}, with the ways taking turns", conditions.rounds)),
    ];
    let real = format!(
        "The Linux kernel with its page cache and FUSE, <code>foretell mount</code> and its S3 client, HTTP and TCP between the \
         mount and the store, <code>{program}</code>, every byte, and the time that all of these take. Store, mount and \
         program share one machine."
    );
    let modelled = format!(
        "The store’s latency and bandwidth: {store}. Data comes from this machine’s memory over its loopback network, so no network \
         limits the sum of all responses, as one between machines would."
    );
    let compared = "Each way is measured on a new mount with empty caches; second reads use the mount of the first ones. The bytes read are \
                    compared with the store’s folder, and printed output with the output on that folder.";
    page::conditions(
        &[("Real", real), ("Modelled", modelled), ("Compared", compared.into())],
        &items,
        ("foretell demo --store --json FILE", "every figure of each round"),
    )
}

/// The program's name: the first word of its `--version`, or `grep`.
fn program_name(conditions: &Conditions) -> String {
    escape(conditions.program.split_whitespace().next().unwrap_or("grep"))
}

#[cfg(test)]
mod tests {
    use super::super::measure::{ranges_case, search_case};
    use super::*;
    use crate::demo::machine::Machine;
    use crate::demo::page::well_formed::{assert_no_nonsense, assert_well_formed};

    fn sample() -> Results {
        let mut cases = vec![ranges_case("64 reads".into()), search_case("grep".into())];
        for case in &mut cases {
            for (place, way) in case.ways.iter_mut().enumerate() {
                for round in 0..3 {
                    let elapsed_s = 6.4 / (1 + place * place * 10 + round) as f64;
                    let requests = if way.kind == Kind::Again { 0 } else { 12_345 };
                    let in_flight_max = [1, 64, 128][place.min(2)];
                    let bytes_sent = requests << 10;
                    let identical = true;
                    way.add(Sample { elapsed_s, requests, in_flight_max, bytes_sent, identical });
                }
            }
        }
        let conditions = Conditions {
            machine: Machine { date: "2025-01-02".into(), cores: 2, kernel: "6.18".into() },
            first_byte_s: 0.03,
            per_response_bytes_per_s: 90_000_000,
            first_byte_late_s: 0.000_21,
            rounds: 3,
            ranges: 64,
            range_bytes: 128 << 10,
            object_bytes: 256 << 20,
            notes: 200,
            notes_bytes: 3 << 20,
            program: "grep (GNU grep) 3.8".into(),
            needle: "needle".into(),
        };
        Results { conditions, cases }
    }

    #[test]
    fn the_page_is_well_formed_small_and_alone() {
        let page = html(&sample());
        assert_well_formed(&page);
        assert_no_nonsense(&page);
        assert!(page.len() < 100_000, "{} bytes", page.len());
        for outside in ["http:", "https:", "<script", "<link", "url(", "src=", "@import"] {
            assert!(!page.contains(outside), "{outside}");
        }
        assert_eq!(page.matches("<td>yes</td>").count(), 8);
        assert_eq!(page.matches("class=\"way\"").count(), 8);
        assert!(!page.contains("class=\"alarm\"") && page.contains("<b>24 of 24</b>"));
        assert!(
            page.contains("<em>90\u{a0}% less time</em> with foretell")
                || page.contains("% less time</em> with foretell")
        );
    }

    #[test]
    fn wrong_bytes_are_said_before_anything_else() {
        let mut results = sample();
        results.cases[1].ways[1].samples[2].identical = false;
        let page = html(&results);
        assert_well_formed(&page);
        let alarm = page.find("BYTES DIFFERED").expect("an alarm");
        assert!(alarm < page.find("<h1>").expect("a headline"));
        assert!(page.contains("<b>NO</b>") && page.contains("<b>23 of 24</b>"));
    }

    #[test]
    fn what_makes_no_sense_or_is_missing_is_left_out() {
        let page = html(&Results::default());
        assert_well_formed(&page);
        assert!(page.contains("nothing to show"));
        for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
            let mut results = sample();
            for way in results.cases.iter_mut().flat_map(|case| &mut case.ways) {
                way.median.elapsed_s = bad;
            }
            results.conditions.first_byte_s = bad;
            let page = html(&results);
            assert_well_formed(&page);
            assert_no_nonsense(&page);
        }
        let mut slower = sample();
        slower.cases[0].ways[1].median.elapsed_s = 99.0;
        slower.cases[0].ways[2].median.elapsed_s = 99.0;
        assert!(html(&slower).contains("more time</em>"));
    }

    #[test]
    fn text_of_the_machine_is_escaped() {
        let evil = "<b a='x' c=\"y\">&\u{7}";
        let mut results = sample();
        results.conditions.program = evil.into();
        results.conditions.needle = evil.into();
        results.conditions.machine.kernel = evil.into();
        results.cases[0].what = evil.into();
        results.cases[0].ways[0].name = evil.into();
        let page = html(&results);
        assert_well_formed(&page);
        assert!(!page.contains("<b a="));
    }

    #[test]
    fn times_are_short() {
        let times = [0.000_21, 0.0042, 0.087, 0.995, 6.7, f64::NAN].map(time);
        let expected =
            ["0.2\u{a0}ms", "4.2\u{a0}ms", "87\u{a0}ms", "0.99\u{a0}s", "6.70\u{a0}s", "–"];
        assert_eq!(times, expected);
    }
}
