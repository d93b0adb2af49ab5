//! What each source of hints was right about, and the end of one that is mostly wrong.

mod common;

use std::fs;

use common::{compile, foretell, sample_folder};

const FILES: usize = 64;

#[test]
fn guesses_that_nobody_reads_stop_and_the_run_says_so() {
    let folder = sample_folder();
    let program = compile("ignores_its_arguments", folder.path());
    for file in 0..FILES {
        let path = folder.path().join(format!("big-{file}"));
        fs::write(&path, vec![1; 1 << 20]).expect("written");
        let file = fs::File::open(path).expect("opened");
        file.sync_all().expect("written to the device");
        rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advised");
    }
    let figures = folder.path().join("figures.json");
    let program = program.to_str().expect("text");
    // The last one comes when the guesses about the others have turned out wrong.
    let script = format!(
        "for i in $(seq 1 {}); do {program} big-$i & done; wait; sleep 0.2; {program} big-0",
        FILES - 1
    );
    let output = foretell()
        .args(["run", "--json"])
        .arg(&figures)
        .args(["--", "sh", "-c", &script])
        .current_dir(folder.path())
        .output()
        .expect("foretell runs");
    assert!(output.status.success() && output.stdout.is_empty(), "{output:?}");
    let figures: serde_json::Value =
        serde_json::from_slice(&fs::read(figures).expect("written")).expect("JSON");
    let sources = figures["sources"].as_array().expect("a list");
    for count in ["prefetched", "useful", "late", "wasted", "unfinished", "already_cached"] {
        let sum: u64 = sources.iter().map(|of| of[count].as_u64().expect("a number")).sum();
        assert_eq!(figures["blocks"][count], sum, "{count}: {figures}");
    }
    let wasted = figures["blocks"]["wasted"].as_u64().expect("a number");
    if wasted < 5000 {
        eprintln!("skipped: the files stay in memory, or the machine is slow: {wasted} blocks");
        return;
    }
    let arguments = sources.iter().find(|of| of["source"] == "arguments").expect("it acted");
    assert_eq!(arguments["has_stopped"], true, "{figures}");
    assert!(arguments["precision"].as_f64().expect("a share") < 0.1, "{figures}");
    let lines = String::from_utf8_lossy(&output.stderr);
    assert!(lines.contains("guesses from arguments stopped: "), "{lines}");
}
