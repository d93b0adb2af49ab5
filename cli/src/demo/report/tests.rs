//! The page as a whole: well-formed, complete, and robust against what a demo may hand over.

use super::super::results::{Conditions, Results, Run, Timeline};
use super::markup::{count, digits, escape, share, tick_label, ticks, times};
use super::{headline, html};

/// Elements without an end tag.
const VOID: [&str; 1] = ["meta"];

fn timeline(disks: usize, elapsed_s: f64, bins: usize) -> Timeline {
    let share = |disk: usize, bin: usize| ((disk * 7919 + bin * 104_729) % 101) as f64 / 100.0;
    let busy_share = |disk| (0..bins).map(|bin| share(disk, bin)).collect();
    Timeline { bin_s: elapsed_s / bins as f64, busy_share: (0..disks).map(busy_share).collect() }
}

fn run(set: &str, files: usize, disks: usize, order: &str) -> Run {
    let (plain_s, hinted_s) = (files as f64 / 40.0, 0.1 + files as f64 / (60 * disks) as f64);
    let bound_s = hinted_s / 1.05;
    Run {
        set: set.into(),
        files,
        blocks: files as u64 * 2,
        disks,
        order: order.into(),
        plain_s,
        hinted_s,
        warm_s: 0.1,
        busiest_disk_s: bound_s,
        lower_bound_s: bound_s,
        identical: true,
        useful: 10,
        late: 2,
        wasted: 0,
        plain_timeline: timeline(disks, plain_s, 256),
        hinted_timeline: timeline(disks, hinted_s, 256),
    }
}

fn sample() -> Results {
    let mut runs = Vec::new();
    for (set, files) in [("headers", 139), ("mail", 158), ("source", 57), ("man pages", 834)] {
        runs.push(run(set, files, 1, "fifo"));
        runs.extend([1, 2, 4, 8, 15].map(|disks| run(set, files, disks, "scan")));
    }
    let conditions = Conditions {
        date: "2025-01-02".into(),
        cores: 2,
        kernel: "6.18.0".into(),
        disk: "hp97560".into(),
        stripe_bytes: 65_536,
        layout: "aged".into(),
        time_scale: 0.125,
        program: "grep (GNU grep) 3.8".into(),
        needle: "needle".into(),
    };
    Results { conditions, runs }
}

/// Checks that every tag that is opened is closed, in order, and that text and attributes contain
/// nothing that ought to have been escaped.
fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a doctype");
    while let Some(at) = rest.find('<') {
        assert!(open.last() == Some(&"style") || !rest[..at].contains('>'), "{}", &rest[..at]);
        let end = at + rest[at..].find('>').expect("the tag ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closes what is open");
            continue;
        }
        assert!(!tag.contains('<'), "{tag}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

fn assert_no_nonsense(page: &str) {
    for nonsense in ["NaN", "inf\u{a0}", "inf<", "\"inf", "-0.00"] {
        assert!(!page.contains(nonsense), "{nonsense}");
    }
}

#[test]
fn the_page_is_well_formed_small_and_alone() {
    let page = html(&sample());
    assert_well_formed(&page);
    assert_no_nonsense(&page);
    assert!(page.len() < 500_000, "{} bytes", page.len());
    for outside in ["http:", "https:", "<script", "<link", "url(", "src=", "@import"] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn restless_fine_timelines_stay_small() {
    let mut results = sample();
    for run in &mut results.runs {
        run.plain_timeline = timeline(run.disks, run.plain_s, 2048);
        run.hinted_timeline = timeline(run.disks, run.hinted_s, 2048);
    }
    let page = html(&results);
    assert_well_formed(&page);
    assert!(page.contains("the first 1.03"), "a closer look");
    assert!(page.len() < 500_000, "{} bytes", page.len());
}

#[test]
fn each_set_has_three_lines_and_each_run_a_row() {
    let page = html(&sample());
    assert_eq!(page.matches("<polyline").count(), 4 * 3);
    assert_eq!(page.matches("<td>yes</td>").count(), 4 * 6);
    assert_eq!(page.matches("class=\"strips ").count(), 2 * 2, "4 and 15 disks");
    assert_eq!(page.matches("class=\"order\"").count(), 4 * 2, "FIFO and SCAN");
    assert!(!page.contains("class=\"alarm\""));
}

#[test]
fn the_headline_is_of_the_largest_set_on_most_disks() {
    let page = html(&sample());
    let expected = "Searching 834 files on 15\u{a0}disks takes <em>95\u{a0}% less time</em> with \
                    foretell: 1.03\u{a0}s instead of 20.9\u{a0}s, 1.05\u{a0}× the lower bound.";
    assert!(page.contains(&format!("<h1>{expected}</h1>")), "{expected}");
    let slower = Run { plain_s: 1.0, hinted_s: 1.04, ..run("mail", 1, 1, "scan") };
    assert!(headline(&slower).contains("1 file on 1\u{a0}disk"));
    assert!(headline(&slower).contains("4\u{a0}% more time"));
}

#[test]
fn different_output_is_said_before_anything_else() {
    let mut results = sample();
    results.runs[7].identical = false;
    let page = html(&results);
    assert_well_formed(&page);
    let alarm = page.find("OUTPUT DIFFERED in 1 of 24 runs").expect("an alarm");
    assert!(alarm < page.find("<h1>").expect("a headline"));
    assert!(page.contains("<b>NO</b>") && page.contains("<b>23 of 24</b>"));
}

#[test]
fn nothing_measured_is_a_page_too() {
    let page = html(&Results::default());
    assert_well_formed(&page);
    assert_no_nonsense(&page);
    assert!(page.contains("nothing to show"));
    assert!(!page.contains("<svg"));
}

#[test]
fn figures_that_make_no_sense_are_left_out() {
    for bad in [f64::NAN, f64::INFINITY, -1.0, 0.0] {
        let mut results = sample();
        results.conditions.time_scale = bad;
        for run in &mut results.runs {
            (run.plain_s, run.hinted_s, run.warm_s) = (bad, bad, bad);
            (run.busiest_disk_s, run.lower_bound_s) = (bad, bad);
            run.plain_timeline.bin_s = bad;
            run.hinted_timeline.busy_share[0][0] = bad;
        }
        let page = html(&results);
        assert_well_formed(&page);
        assert_no_nonsense(&page);
    }
}

#[test]
fn timelines_may_be_missing_uneven_or_of_unknown_length() {
    let mut results = sample();
    for (index, run) in results.runs.iter_mut().enumerate() {
        match index % 3 {
            0 => run.plain_timeline = Timeline::default(),
            1 => run.hinted_timeline.busy_share[0].truncate(3),
            _ => (run.plain_s, run.hinted_s) = (f64::NAN, f64::NAN),
        }
    }
    let page = html(&results);
    assert_well_formed(&page);
    assert_no_nonsense(&page);
    results.runs.iter_mut().for_each(|run| run.hinted_timeline = Timeline::default());
    assert!(!html(&results).contains("class=\"busy\""));
}

#[test]
fn one_run_is_enough() {
    let results = Results { runs: vec![run("mail", 5, 3, "sstf")], ..Results::default() };
    let page = html(&results);
    assert_well_formed(&page);
    assert!(!page.contains("class=\"bars\""), "one order is no comparison");
}

#[test]
fn text_of_the_machine_is_escaped() {
    let evil = "<b a='x' c=\"y\">&\u{7}";
    let mut results = sample();
    let conditions = &mut results.conditions;
    for text in [
        &mut conditions.date,
        &mut conditions.kernel,
        &mut conditions.disk,
        &mut conditions.layout,
        &mut conditions.program,
        &mut conditions.needle,
    ] {
        *text = evil.into();
    }
    for run in &mut results.runs {
        (run.set, run.order, run.identical) = (evil.into(), evil.into(), false);
    }
    let page = html(&results);
    assert_well_formed(&page);
    assert!(!page.contains("<b a=") && !page.contains("<B A="));
    assert_eq!(escape(evil), "&lt;b a=&#39;x&#39; c=&quot;y&quot;&gt;&amp;\u{fffd}");
}

#[test]
fn figures_are_short() {
    assert_eq!(
        [0.456, 9.996, 15.94, 123.4, f64::NAN].map(digits),
        ["0.46", "10.0", "15.9", "123", "–"]
    );
    assert_eq!(share(0.926).as_deref(), Some("93\u{a0}%"));
    assert_eq!(share(-0.04).as_deref(), Some("−4\u{a0}%"));
    assert_eq!(share(-0.001).as_deref(), Some("0\u{a0}%"));
    assert_eq!(share(0.996).as_deref(), Some("99.6\u{a0}%"));
    assert_eq!(share(f64::NEG_INFINITY), None);
    assert_eq!(times(1.0 / 0.0), None);
    assert_eq!(
        [0, 9_999, 10_000, 1_234_567].map(count),
        ["0", "9999", "10\u{202f}000", "1\u{202f}234\u{202f}567"]
    );
}

#[test]
fn ticks_are_round_and_cover_the_data() {
    assert_eq!(ticks(20.9, 4), [0.0, 10.0, 20.0, 30.0]);
    assert_eq!(ticks(0.46, 4), [0.0, 0.2, 0.4, 0.6000000000000001]);
    assert_eq!(ticks(f64::NAN, 4).last(), Some(&1.0));
    for max in [1e-9, 0.07, 1.0, 3.3, 99.0, 1e12] {
        let ticks = ticks(max, 4);
        assert!(
            ticks.len() <= 6 && ticks.last().is_some_and(|&last| last >= max * 0.99),
            "{ticks:?}"
        );
    }
    assert_eq!([0.0, 2.5, 0.6000000000000001, 20.0].map(tick_label), ["0", "2.5", "0.6", "20"]);
}
