//! `foretell sim predict` from the outside.

mod common;

use std::fmt::Write;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output};

use common::{foretell, recording, text};
use serde_json::Value;

const ROOT: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/..");

fn predict(trace: &Path, more: &[&str]) -> Output {
    let mut command = foretell();
    command.args(["sim", "predict", "--trace"]).arg(trace).args(more);
    command.output().expect("foretell runs")
}

fn rows(output: &Output) -> Vec<Value> {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    match serde_json::from_slice(&output.stdout).expect("JSON") {
        Value::Array(rows) => rows,
        row => vec![row],
    }
}

/// Runs that open the same 40 files of 8 KiB, half a millisecond after one another.
fn runs(count: usize) -> String {
    (0..count).fold(String::new(), |mut text, run| {
        let _ = writeln!(text, "# run {run}\n0 1 exec /bin/program 8192");
        for at in 1..=40 {
            let _ = writeln!(text, "{} 1 open /data/{at} 8192 60", at * 500);
        }
        text
    })
}

#[test]
fn recordings_of_foretell_record_are_runs_in_their_order() {
    let folder = tempfile::tempdir().expect("a folder");
    let names: Vec<String> = (0..60).map(|at| format!("{at:02}.txt")).collect();
    for name in &names {
        fs::write(folder.path().join(name), vec![b'x'; 20_000]).expect("written");
    }
    let mut traces = Vec::new();
    for run in ["1.ftr", "2.ftr", "3.ftr"] {
        let mut record = foretell();
        record.args(["record", "-q", "-o", run, "--", "cat"]).args(&names);
        let output = record.current_dir(folder.path()).output().expect("foretell runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        traces.push(folder.path().join(run).display().to_string());
    }
    let row = |traces: &[String]| {
        let options = ["--cache", "400KiB", "--device", "remote", "--json", "-"];
        rows(&predict(Path::new(&traces.join(",")), &options))[0].clone()
    };
    let (one, three) = (row(&traces[..1]), row(&traces));
    let opens = |row: &Value| row["opens"].as_u64().expect("a number");
    assert!(opens(&one) >= 60 && opens(&three) >= 180, "{one} {three}");
    let of = |key: &str| three[key].as_f64().expect("a number");
    // By how much depends on the times that were recorded, which on a busy machine are any.
    assert!(of("right") > 30.0 && of("read_s") < of("lru_read_s"), "{three}");
}

#[test]
fn what_repeats_is_read_faster() {
    let (_folder, path) = recording(runs(30));
    for device in ["local", "remote", "local-1995", "remote-1995"] {
        for predictor in ["graph", "last-successor", "epcm", "mithril", "combination", "oracle"] {
            let options = ["--predictor", predictor, "--device", device, "--json", "-"];
            let row = &rows(&predict(&path, &options))[0];
            let of = |key: &str| row[key].as_f64().expect("a number");
            assert!(
                of("oracle_read_s") <= of("read_s") && of("read_s") < 0.7 * of("lru_read_s"),
                "{row}"
            );
            assert!(of("in_time") <= of("right") && of("right") <= of("predictions"), "{row}");
            assert!(of("hits") > of("lru_hits"), "{row}");
        }
    }
}

#[test]
fn a_sweep_has_a_row_for_each_value_and_each_key_has_its_words() {
    let (_folder, path) = recording(runs(6));
    let sweep = ["--cache", "64KiB,128KiB", "--lookahead", "4,16", "--min-chance", "0.1,0.5"];
    let devices = ["--device", "local,remote", "--predictor", "graph,epcm", "--json", "-"];
    let all = rows(&predict(&path, &[&sweep[..], &devices].concat()));
    assert_eq!(all.len(), 2 * 2 * 2 * 2 * 2);
    let page = fs::read_to_string(format!("{ROOT}/docs/reference/json.md")).expect("the page");
    let part = page.split_once("\n### sim predict\n").expect("its keys").1;
    let words = part.split("\n### ").next().expect("a part");
    for key in all[0].as_object().expect("an object").keys() {
        assert!(words.contains(&format!("`{key}`")), "{key}");
    }
    let table = predict(&path, &sweep);
    let shown = text(&table.stdout);
    assert!(shown.starts_with("device: local  predictor: combination"), "{shown}");
    assert_eq!(shown.lines().filter(|line| line.contains("KiB")).count(), 8, "{shown}");
}

#[test]
fn days_are_drawn_from_several_recordings() {
    let traces = ["npm", "python"].map(|name| format!("{ROOT}/sim/traces/{name}.opens.gz"));
    let both = PathBuf::from(traces.join(","));
    let options = ["--days", "2", "--json", "-"];
    let [one, again] = [(); 2].map(|()| text(&predict(&both, &options).stdout));
    assert_eq!(one, again);
    let other = text(&predict(&both, &[&options[..], &["--seed", "2"]].concat()).stdout);
    assert_ne!(one, other);
    let output = predict(&both, &[]);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(2), "{error}");
    assert!(error.contains("give --days N, or one recording"), "{error}");
}

#[test]
fn what_is_wrong_is_said_in_one_line() {
    let (_folder, path) = recording("0 1 open /a\n");
    let (_folder, good) = recording(runs(1));
    let missing = Path::new("/nowhere/run.opens");
    for (path, options, said) in [
        (path.as_path(), &[][..], "line 1: 4 fields, not the 5 of `time_us pid op path size`"),
        (missing, &[], "/nowhere/run.opens: No such file"),
        (&good, &["--predictor", "magic"], "unknown; known are graph, last-successor"),
        (&good, &["--device", "tape"], "unknown; known are local, remote"),
        (&good, &["--lookahead", "0"], "not a number of opens from 1 to 256"),
        (&good, &["--min-chance", "2"], "not a chance from 0.01 to 1"),
        (&good, &["--cache", "0"], "a cache has at least 1 byte"),
        (&good, &["--fetch", "all"], "unknown; known are chance, worth"),
    ] {
        let output = predict(path, options);
        let error = text(&output.stderr);
        assert!(matches!(output.status.code(), Some(1 | 2)), "{error}");
        assert!(error.contains(said), "{error}");
    }
}

#[test]
fn a_recording_by_strace_is_read() {
    let has = |program: &str| Command::new(program).arg("-V").output().is_ok();
    if !has("strace") || !has("python3") {
        eprintln!("skipped: needs strace and python3");
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join("a b"), "some text").expect("written");
    let trace = folder.path().join("run.opens.gz");
    let mut record = Command::new(format!("{ROOT}/scripts/record-opens"));
    record.current_dir(folder.path()).arg(&trace).args([
        "--",
        "sh",
        "-c",
        "cat 'a b' >out; wc out",
    ]);
    let output = record.output().expect("the script runs");
    if !output.status.success() {
        eprintln!("skipped: strace cannot trace here: {}", text(&output.stderr));
        return;
    }
    let row = &rows(&predict(&trace, &["--json", "-"]))[0];
    assert!(row["opens"].as_u64().is_some_and(|opens| opens >= 4), "{row}");
    let opens = foretell_sim::trace::opens::open(&trace).expect("a recording");
    assert!(opens.paths.iter().any(|path| path.ends_with("/a%20b")), "{:?}", opens.paths);
    assert!(
        !opens.paths.iter().any(|path| path.ends_with("/out")),
        "what it wrote: {:?}",
        opens.paths
    );
}
