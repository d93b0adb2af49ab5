//! `foretell sim fleet` from the outside.

mod common;

use std::fs;
use std::process::Output;

use common::{foretell, text};
use serde_json::Value;

fn sim_fleet(options: &[&str]) -> Output {
    let mut command = foretell();
    command.args(["sim", "fleet"]).args(options);
    command.output().expect("foretell runs")
}

fn rows(options: &[&str]) -> Vec<Value> {
    let output = sim_fleet(&[&["--data", "512MiB", "--json", "-"], options].concat());
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    match serde_json::from_slice(&output.stdout).expect("JSON") {
        Value::Array(rows) => rows,
        row => vec![row],
    }
}

fn figure(row: &Value, key: &str) -> f64 {
    row[key].as_f64().unwrap_or_else(|| panic!("{key} is no number: {row}"))
}

#[test]
fn there_is_a_row_for_each_combination() {
    let rows = rows(&["--nodes", "1,4", "--order", "same,shuffled", "--servers", "0,16"]);
    let of = |key: &str| rows.iter().map(|row| row[key].to_string()).collect::<Vec<_>>();
    assert_eq!(of("nodes"), ["1", "1", "4", "4"].repeat(2));
    assert_eq!(of("servers"), ["0", "16"].repeat(4));
    assert_eq!(rows[3]["order"], "same");
    for row in &rows {
        let direct = row["servers"] == 0;
        let wanted = if direct { figure(row, "nodes") } else { 1.0 };
        assert_eq!(figure(row, "egress"), wanted, "{row}");
        assert!(figure(row, "ready_s") >= figure(row, "bound_s"), "{row}");
        assert_eq!(row["model"], "events");
        let sources = ["cache_reads", "tier_reads", "origin_reads"].map(|key| figure(row, key));
        assert_eq!(sources.iter().sum::<f64>(), figure(row, "reads"));
    }
}

#[test]
fn large_fleets_are_computed_from_rates() {
    let options = ["--nodes", "100000", "--servers", "1000", "--order"];
    let large = &rows(&[&options[..], &["shuffled"]].concat())[0];
    assert_eq!((&large["model"], figure(large, "egress")), (&"fluid".into(), 1.0));
    assert_eq!(large["limit"], "servers' bandwidth");
    // Both models on one fleet.
    let small = ["--nodes", "6", "--servers", "4"];
    let (events, fluid) =
        (&rows(&small)[0], &rows(&[&small[..], &["--reads-max", "0"]].concat())[0]);
    assert_eq!((&events["model"], &fluid["model"]), (&"events".into(), &"fluid".into()));
    let times = figure(fluid, "ready_s") / figure(events, "ready_s");
    assert!((0.85..1.15).contains(&times), "{times}");
}

#[test]
fn the_table_has_its_columns() {
    let output = sim_fleet(&["--data", "64MiB", "--nodes", "2,4"]);
    let table = text(&output.stdout);
    let first = table.lines().next().expect("a line");
    assert!(first.contains("order: shuffled") && first.contains("data: 64 MiB"), "{table}");
    for column in ["nodes", "servers", "egress", "ready s", "bound s", "limit"] {
        assert!(table.contains(column), "{column}: {table}");
    }
    assert_eq!(text(&output.stderr), "", "no progress bar where there is no terminal");
}

#[test]
fn what_cannot_be_is_refused() {
    let large = ["--nodes", "100000", "--servers", "8"];
    for (options, why) in [
        (vec!["--data", "1TiB", "--chunk", "1KiB"], "take larger chunks"),
        (vec!["--deaths", "8", "--servers", "2"], "at least one must read to the end"),
        (vec!["--deaths", "1", "--servers", "0"], "take at least one server"),
        (vec!["--node-bandwidth", "0"], "at least 1 byte"),
        (vec!["--origin-ms", "-1"], "not from 0 to 60000"),
        (vec!["--order", "sorted"], "known are same, shuffled, partition, shards"),
        ([&large[..], &["--renew", "off"]].concat(), "leases that end"),
        ([&large[..], &["--deaths", "1"]].concat(), "take fewer nodes"),
        ([&large[..], &["--order", "same", "--server-memory", "1GiB"]].concat(), "in one order"),
    ] {
        let output = sim_fleet(&options);
        assert_eq!(output.status.code(), Some(2), "{options:?}");
        let error = text(&output.stderr);
        assert!(error.starts_with("foretell: ") && error.contains(why), "{options:?}: {error}");
        assert_eq!(error.lines().count(), 1, "{error}");
    }
}

#[test]
fn every_key_that_is_written_has_its_words() {
    let words =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/json.md"));
    let words = words.expect("the page");
    let part = words.split_once("\n### sim fleet\n").expect("its keys").1;
    let part = part.split("\n### ").next().expect("a part");
    let row = &rows(&["--servers", "2"])[0];
    for key in row.as_object().expect("an object").keys() {
        assert!(part.contains(&format!("`{key}`")), "{key}");
    }
}

#[test]
fn the_table_is_there_though_the_disk_of_its_file_is_full() {
    let output = sim_fleet(&["--data", "64MiB", "--json", "/dev/full"]);
    assert_eq!(output.status.code(), Some(1));
    assert!(text(&output.stdout).contains("egress"), "{}", text(&output.stdout));
    let error = text(&output.stderr);
    assert!(error.starts_with("foretell: --json: /dev/full: "), "{error}");
}
