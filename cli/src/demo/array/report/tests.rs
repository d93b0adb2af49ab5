//! The page as a whole: well-formed, complete, and robust against what a demo may hand over.

use super::{headline, html};
use crate::demo::array::results::{Conditions, Results, Run, Timeline};
use crate::demo::machine::Machine;
use crate::demo::page::markup::escape;
use crate::demo::page::well_formed::{assert_no_nonsense, assert_well_formed};

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
        plain_busy_s: plain_s,
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
        machine: Machine { date: "2025-01-02".into(), cores: 2, kernel: "6.18.0".into() },
        disk: "hp97560".into(),
        stripe_bytes: 65_536,
        layout: "aged".into(),
        time_scale: 0.125,
        program: "grep (GNU grep) 3.8".into(),
        needle: "needle".into(),
    };
    Results { conditions, runs }
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
        &mut conditions.machine.date,
        &mut conditions.machine.kernel,
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
fn runs_of_which_much_was_the_machines_are_delayed() {
    let mut run = run("set", 100, 4, "scan");
    (run.plain_s, run.warm_s, run.plain_busy_s) = (10.0, 1.0, 8.5);
    assert!((run.delayed_share() - 0.05).abs() < 1e-9 && !run.is_delayed());
    run.plain_busy_s = 7.4;
    assert!(run.is_delayed());
    let mut results = sample();
    assert!(!html(&results).contains("DELAYED"));
    results.runs.push(run.clone());
    let page = html(&results);
    assert_well_formed(&page);
    assert!(
        page.contains("DELAYED: 1 of 25 runs")
            && page.contains("<li>set on 4\u{a0}disks, SCAN</li>")
    );
    // What the kernel reads ahead is read meanwhile.
    run.plain_busy_s = 12.0;
    assert_eq!(run.delayed_share(), 0.0);
}
