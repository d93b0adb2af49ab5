//! The commands run, print the tables of docs/results/performance.md, and name arguments that they cannot use.
//! Times are not checked.

use std::path::PathBuf;
use std::process::{Command, Output};

const SCALE: &str = env!("CARGO_BIN_EXE_policy-scale");
const MEMORY: &str = env!("CARGO_BIN_EXE_policy-memory");
const SPEED: &str = env!("CARGO_BIN_EXE_policy-speed");
const SIMULATOR: &str = env!("CARGO_BIN_EXE_sim-speed");

fn run(command: &str, arguments: &[&str]) -> Output {
    Command::new(command).args(arguments).output().expect("it was built")
}

fn printed(command: &str, arguments: &[&str]) -> String {
    let output = run(command, arguments);
    assert!(output.status.success(), "{command} {arguments:?}: {output:?}");
    assert!(output.stderr.is_empty(), "no terminal, no progress: {output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The cells of a Markdown table's rows below the heading that contains `heading`.
fn rows<'a>(text: &'a str, heading: &str) -> Vec<Vec<&'a str>> {
    let below = text.lines().skip_while(|line| !line.contains(heading)).skip(2);
    let table = below.take_while(|line| line.starts_with('|'));
    table.map(|line| line.trim_matches('|').split('|').map(str::trim).collect()).collect()
}

#[test]
fn scale_prints_draws_and_writes_a_row_for_each_size() {
    let folder = PathBuf::from(env!("CARGO_TARGET_TMPDIR"));
    let (json, svg) = (folder.join("scale.json"), folder.join("scale.svg"));
    // Longer than the new content, to check that nothing of it is left.
    std::fs::write(&json, vec![b'x'; 1 << 20]).unwrap();
    let files = [json.to_str().unwrap(), svg.to_str().unwrap()];
    let text = printed(SCALE, &["--json", files[0], "--svg", files[1], "2000"]);
    assert!(text.contains("dependent additions a ns"), "{text}");
    let rows = rows(&text, "ns a load");
    assert_eq!(rows.len(), 6, "{text}");
    assert!(rows.iter().all(|row| row[1] == "1000" && row[3] == "1.00"), "{text}");
    let json = std::fs::read_to_string(json).unwrap();
    assert!(json.starts_with('{') && json.ends_with("]}\n"), "{json}");
    assert_eq!(json.matches("\"read_ns\"").count(), 6);
    let svg = std::fs::read_to_string(svg).unwrap();
    assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
    for text in ["foretell, shuffled", "lru, Zipf hits", "c · log n", "blocks in memory"] {
        assert!(svg.contains(text), "{text}");
    }
}

#[test]
fn memory_counts_what_a_policy_takes() {
    let text = printed(MEMORY, &["2000", "10000"]);
    let blocks = rows(&text, "each block");
    assert_eq!(blocks.len(), 8, "{text}");
    for row in &blocks {
        let bytes = |column: usize| row[column].parse::<f64>().expect("a number");
        assert_eq!(row[1], "2000", "{text}");
        assert!(bytes(3) >= bytes(2) && bytes(5) > 0.0, "{text}");
    }
    let segments = rows(&text, "each disclosed");
    assert_eq!(segments.len(), 4, "{text}");
    // The segment itself takes at least its offset and its length.
    assert!(segments[0][2].parse::<f64>().unwrap() >= 16.0, "{text}");
}

#[test]
fn speed_prints_the_workloads_that_are_asked_for() {
    let text = printed(SPEED, &["1000", "lru, loop"]);
    assert_eq!(rows(&text, "median").len(), 1, "{text}");
}

#[test]
fn a_long_simulation_is_printed_beside_a_hundredth_of_it() {
    let text = printed(SIMULATOR, &["--long", "20000", "scans"]);
    let rows = rows(&text, "most memory");
    assert_eq!(rows.len(), 2, "{text}");
    for (row, least) in rows.iter().zip([200, 20_000]) {
        let reads: u64 = row[1].parse().expect("a number");
        assert!(row[0] == "four hinted scans" && reads >= least, "{text}");
        assert!(row[3].parse::<f64>().expect("a number") > 0.0, "{text}");
    }
}

#[test]
fn what_cannot_be_used_is_named_in_one_line() {
    let cases: [(&str, &[&str], &str, i32); 9] = [
        (SCALE, &["many"], "many", 2),
        (SCALE, &["--svg"], "--svg", 2),
        (SCALE, &["--svg", "/nowhere/at/all.svg"], "/nowhere/at/all.svg", 1),
        (SCALE, &["1000000000000"], "give fewer", 1),
        (MEMORY, &["1000", "0"], "policy-memory: 0", 2),
        (SPEED, &["many"], "policy-speed: ", 2),
        (SIMULATOR, &["--long", "many"], "sim-speed: many", 2),
        (SIMULATOR, &["--long", "1000", "nothing"], "sim-speed: nothing", 2),
        (SIMULATOR, &["--short"], "sim-speed: --short", 2),
    ];
    for (command, arguments, name, code) in cases {
        let output = run(command, arguments);
        let text = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {text}");
        assert!(text.contains(name) && text.lines().count() == 1, "{arguments:?}: {text}");
        assert!(output.stdout.is_empty(), "{arguments:?}");
    }
}
