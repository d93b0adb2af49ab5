//! `foretell sim` from the outside.

mod common;

use std::fs;
use std::io::Write;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, Output};

use common::{foretell, recording, text};
use flate2::Compression;
use flate2::write::GzEncoder;
use foretell_sim::trace::Format;
use serde_json::Value;

/// Belady, Nelson and Shedler 1969.
const ANOMALY: &str = "1\n2\n3\n4\n1\n2\n5\n1\n2\n3\n4\n5\n";

fn sim_cache(trace: &Path, more: &[&str]) -> Output {
    let mut command = foretell();
    command.args(["sim", "cache", "--trace"]).arg(trace).args(more);
    command.output().expect("foretell runs")
}

/// The columns except the time.
fn table(output: &Output) -> Vec<Vec<String>> {
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "", "no progress bar where there is no terminal");
    let words = |line: &str| line.split_whitespace().map(str::to_owned).collect::<Vec<_>>();
    let mut rows: Vec<Vec<String>> = text(&output.stdout).lines().skip(2).map(words).collect();
    for row in &mut rows {
        row.pop();
    }
    rows
}

#[test]
fn the_table_is_there_though_the_disk_of_its_file_is_full() {
    let (_folder, path) = recording(ANOMALY);
    let full = ["--json", "/dev/full"];
    let cache = ["--format", "blocks", "--capacity", "3", "--policy", "lru", "--hints", "none"];
    let replay = ["--format", "blocks", "--policy", "lru", "--hints", "none"];
    let plot = ["--plot", "/dev/full", "--disks", "1,2"];
    let small = ["--file-size", "64KiB", "--files", "1"];
    for (output, shown, option) in [
        (sim_cache(&path, &[&cache[..], &full].concat()), "lru", "--json"),
        (sim_replay(&path, &[&replay[..], &full].concat()), "elapsed s", "--json"),
        (sim_replay(&path, &[&replay[..], &plot].concat()), "elapsed s", "--plot"),
        (sim_collective(&[&small[..], &full].concat()), "MiB/s", "--json"),
    ] {
        assert_eq!(output.status.code(), Some(1));
        assert!(text(&output.stdout).contains(shown), "{}", text(&output.stdout));
        let error = text(&output.stderr);
        assert!(error.starts_with(&format!("foretell: {option}: /dev/full: ")), "{error}");
    }
    // Each failure is reported, even if the table has no reader.
    let mut command = foretell();
    command.args(["sim", "replay"]).arg(&path).args(replay).args(plot).args(full);
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = command.stdout(writer).output().expect("foretell runs");
    let error = text(&output.stderr);
    assert!(error.contains("--json: /dev/full") && error.contains("--plot: /dev/full"), "{error}");
}

#[test]
fn every_key_that_is_written_has_its_words() {
    let (_folder, path) = recording(ANOMALY);
    let blocks = ["--format", "blocks", "--json", "-"];
    let cache = ["--capacity", "3", "--policy", "lru", "--hints", "none"];
    let small = ["--file-size", "64KiB", "--files", "1", "--pattern", "interleaved"];
    let collective = [&small[..], &["--crossover", "--json", "-"]].concat();
    let words =
        fs::read_to_string(concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/json.md"));
    let words = words.expect("the page");
    let of = |command: &str| {
        let part = words.split_once(&format!("\n### {command}\n")).expect("its keys").1;
        part.split("\n### ").next().expect("a part").to_owned()
    };
    let (of_cache, of_replay, of_collective) =
        (of("sim cache"), of("sim replay"), of("sim collective"));
    for (output, words) in [
        (sim_cache(&path, &[&blocks[..], &cache].concat()), of_cache),
        (sim_replay(&path, &[&blocks[..], &["--hints", "all"]].concat()), of_replay),
        (sim_collective(&collective), of_collective),
    ] {
        let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        let row = rows.get(0).unwrap_or(&rows).as_object().expect("an object");
        let crossover = row.get("crossover").and_then(Value::as_object);
        for key in row.keys().chain(crossover.into_iter().flat_map(|inner| inner.keys())) {
            assert!(words.contains(&format!("`{key}`")), "{key}");
        }
    }
}

#[test]
fn what_hints_save_is_of_the_same_policy() {
    // Read-ahead helps one of the two policies; that gain must not count as saved by hints.
    let runs: Vec<String> = (0..400).map(|at| format!("{}\n", at % 8 + at / 8 * 800)).collect();
    let (_folder, path) = recording(runs.concat());
    let options = ["--format", "blocks", "--policy", "lru,tip1", "--hints", "none,all"];
    let output = sim_replay(&path, &options);
    let table = text(&output.stdout);
    let is_row = |line: &&str| line.starts_with("lru ") || line.starts_with("tip1 ");
    let rows: Vec<&str> = table.lines().filter(is_row).collect();
    let saved: Vec<bool> = rows.iter().map(|row| row.contains(" 0%")).collect();
    assert_eq!(saved.len(), 4, "{table}");
    assert!(saved[0] && saved[2] && !saved[3], "{table}");
    let elapsed = |row: &str| row.split_whitespace().nth(2).map(str::to_owned);
    assert_ne!(elapsed(rows[0]), elapsed(rows[2]), "{table}");
}

#[test]
fn a_table_of_capacities_and_policies() {
    let (_folder, path) = recording(ANOMALY);
    let options = ["--format", "blocks", "--capacity", "3,4", "--policy", "lru,belady"];
    let output = sim_cache(&path, &[&options[..], &["--hints", "none"]].concat());
    let expected = [
        ["lru", "3", "12", "2", "10", "0.1667", "0"],
        ["belady", "3", "12", "5", "7", "0.4167", "0"],
        ["lru", "4", "12", "4", "8", "0.3333", "0"],
        ["belady", "4", "12", "6", "6", "0.5000", "0"],
    ];
    assert_eq!(table(&output), expected);
    let lines = text(&output.stdout);
    let above = format!("trace: {}  format: blocks  hints: none", path.display());
    assert_eq!(lines.lines().next(), Some(&above[..]));
    let lengths: Vec<usize> = lines.lines().skip(1).map(str::len).collect();
    assert!(lengths.iter().all(|&length| length == lengths[0]), "aligned: {lines}");
}

#[test]
fn who_makes_no_use_of_hints_is_told() {
    let (_folder, path) = recording(ANOMALY);
    let note = |output: &Output| text(&output.stderr).contains("hints change nothing for");
    for (policy, hints, is_told) in [
        ("tip2,lru", "all", true),
        ("belady", "all", true),
        ("lru", "none", false),
        ("tip2", "all", false),
    ] {
        let options = ["--format", "blocks", "--policy", policy, "--hints", hints];
        let cached = sim_cache(&path, &[&options[..], &["--capacity", "3"]].concat());
        assert_eq!(note(&cached), is_told, "{policy}, {hints}");
        if policy != "belady" {
            assert_eq!(note(&sim_replay(&path, &options)), is_told, "{policy}, {hints}");
        }
    }
}

#[test]
fn json_of_one_run_and_of_several() {
    let (folder, path) = recording(ANOMALY);
    let file = folder.path().join("figures.json");
    let file_text = file.to_string_lossy();
    let options = ["--format", "blocks", "--hints", "none", "--policy", "belady", "--capacity"];
    let output = sim_cache(&path, &[&options[..], &["3", "--json", &file_text]].concat());
    assert_eq!(table(&output).len(), 1);
    let one: Value = serde_json::from_slice(&fs::read(&file).expect("written")).expect("JSON");
    let mut fields = one.as_object().expect("an object").clone();
    assert!(fields.remove("seconds").is_some_and(|seconds| seconds.as_f64().is_some()));
    assert_eq!(fields.remove("trace"), Some(path.to_string_lossy().into_owned().into()));
    let expected = serde_json::json!({
        "policy": "belady", "hints": "none", "capacity": 3, "reads": 12, "hits": 5, "misses": 7,
        "prefetches": 0, "format": "blocks", "block_bytes": null, "depth": null,
    });
    assert_eq!(Value::Object(fields), expected);
    let output = sim_cache(&path, &[&options[..], &["3,4", "--json", "-"]].concat());
    let several: Value = serde_json::from_slice(&output.stdout).expect("JSON and nothing else");
    assert_eq!(several[1]["misses"], 6);
    assert_eq!(several.as_array().map(Vec::len), Some(2));
}

#[test]
fn each_format_is_read() {
    let mut vscsi = Vec::new();
    for (command, sector) in [(0x28u16, 0u64), (0x2a, 64), (0x28, 15), (0x28, 0)] {
        vscsi.extend([0u32, 1024, 1].map(u32::to_le_bytes).concat());
        vscsi.extend([command, 0x100].map(u16::to_le_bytes).concat());
        vscsi.extend([sector, 1000].map(u64::to_le_bytes).concat());
    }
    let own = "# foretell trace 1\n1 1 1 0 8192\n2 1 1 8191 2\n3 2 9 0 1\n";
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(own.as_bytes()).expect("memory can be written");
    let gzip = gzip.finish().expect("memory can be written");
    let table_of = [
        ("vscsi", &vscsi[..], "8KiB", 4, 2),
        ("vscsi", &vscsi, "512", 6, 4),
        ("foretell", own.as_bytes(), "8KiB", 4, 3),
        ("foretell", &gzip, "4096", 5, 4),
    ];
    for (format, content, block, reads, misses) in table_of {
        let (_folder, path) = recording(content);
        let options = ["--hints", "none", "--policy", "lru", "--capacity", "100", "--json", "-"];
        let of = ["--format", format, "--block", block];
        let output = sim_cache(&path, &[&options[..], &of].concat());
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!((&json["reads"], &json["misses"]), (&reads.into(), &misses.into()), "{format}");
    }
    for format in Format::ALL {
        for example in format.examples() {
            let (_folder, path) = recording(example);
            let options = ["--hints", "none", "--policy", "lru", "--capacity", "100", "--json"];
            let of = ["-", "--format", format.name()];
            let output = sim_cache(&path, &[&options[..], &of].concat());
            let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
            assert!(json["reads"].as_u64() > Some(0), "{format}: {json}");
        }
    }
}

#[test]
fn a_recording_without_reads_is_no_result() {
    let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
    gzip.write_all(b"").expect("memory can be written");
    let gzip = gzip.finish().expect("memory can be written");
    for (content, said) in
        [(&b""[..], "is empty\n"), (&gzip, "is empty\n"), (b"\n", "there is no read in it\n")]
    {
        let (_folder, path) = recording(content);
        let options = ["--capacity", "3", "--policy", "lru", "--hints", "all"];
        for format in Format::ALL.iter().map(|format| format.name()) {
            if content == b"\n" && format != "blocks" {
                continue;
            }
            let output = sim_cache(&path, &[&options[..], &["--format", format]].concat());
            assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()));
            let error = format!("foretell: {}: {said}", path.display());
            assert_eq!(text(&output.stderr), error);
        }
    }
}

#[test]
fn damage_is_one_line() {
    let whole = {
        let mut gzip = GzEncoder::new(Vec::new(), Compression::default());
        gzip.write_all(ANOMALY.as_bytes()).expect("memory can be written");
        gzip.finish().expect("memory can be written")
    };
    let mut one_and_a_byte = [1; 33];
    one_and_a_byte[13] = 0; // Commands are of one byte.
    let table = [
        ("blocks", &b"1\n-2\n"[..], "line 2: \"-2\" is not a block id"),
        ("blocks", &whole[..whole.len() - 4], "the gzip data is damaged or cut off"),
        ("blocks", &[0xfe; 9000], "line 1: longer than 4096 bytes"),
        ("vscsi", &one_and_a_byte, "record 2: "),
        ("vscsi", b"garbage", "record 1: cut off after 7 of 32 bytes"),
        ("foretell", b"x\n", "is not `# foretell trace 1`"),
    ];
    for (format, content, expected) in table {
        let (folder, path) = recording(content);
        let json = folder.path().join("figures.json");
        let options = ["--capacity", "3", "--policy", "lru", "--hints", "none", "--format", format];
        let json_text = json.to_string_lossy();
        let more = [&options[..], &["--json", &json_text]].concat();
        let output = sim_cache(&path, &more);
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{message}");
        assert_eq!((message.lines().count(), output.stdout.len()), (1, 0), "{message}");
        assert!(message.starts_with(&format!("foretell: {}: ", path.display())), "{message}");
        assert!(message.contains(expected), "{message}");
        let formats = "; --format takes blocks, vscsi, oracle-general, foretell\n";
        assert_eq!(message.ends_with(formats), !message.contains("gzip"), "{message}");
        assert!(!json.exists(), "no empty file is left");
    }
    let missing = sim_cache(
        Path::new("/nowhere"),
        &["--capacity", "3", "--policy", "lru", "--hints", "none", "--format", "blocks"],
    );
    assert_eq!(text(&missing.stderr), "foretell: /nowhere: No such file or directory\n");
    assert_eq!(missing.status.code(), Some(1));
}

#[test]
fn wrong_usage_names_what_is_right() {
    let (_folder, path) = recording(ANOMALY);
    let right = [
        ("--format", "blocks"),
        ("--capacity", "3"),
        ("--policy", "lru"),
        ("--hints", "none"),
        ("--block", "8KiB"),
        ("--depth", "0"),
    ];
    let known_formats = format!("known are {}", Format::names());
    let table = [
        ("--policy", "lru,mru", "known are lru, tip1, tip2,"),
        ("--format", "csv", &known_formats),
        ("--hints", "some", "known are none, all"),
        ("--capacity", "0", "at least 1 block"),
        ("--capacity", "3,x", "not a number of blocks"),
        ("--block", "100", "a multiple of 512 bytes"),
        ("--block", "3000", "a multiple of 512 bytes"),
        ("--capacity", "-1", "not a number of blocks"),
        ("--depth", "-1", "not a number of blocks"),
        ("--depth", "99999999999999999999", "more blocks than can be counted"),
    ];
    let output = sim_cache(&path, &right.map(|(name, value)| [name, value]).concat());
    assert_eq!(output.status.code(), Some(2));
    assert!(text(&output.stderr).contains("has its own blocks"), "{}", text(&output.stderr));
    for (option, wrong, expected) in table {
        let given = |(name, value)| [name, if name == option { wrong } else { value }];
        let output = sim_cache(&path, &right.map(given).concat());
        let message = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{message}");
        assert!(message.contains(expected), "{option} {wrong}: {message}");
    }
}

/// Two files below /data, which do not exist, and a library.
const STRACE: &str = "\
7 100.000000 openat(AT_FDCWD, \"/lib/x.so\", O_RDONLY) = 3 <0.000010>
7 100.001000 read(3, \"\"..., 832) = 832 <0.002000>
7 100.004000 openat(AT_FDCWD, \"/data/f\", O_RDONLY) = 4 <0.500000>
7 100.505000 read(4, \"\"..., 40960) = 40960 <0.250000>
7 100.757000 openat(AT_FDCWD, \"/data/g\", O_RDONLY) = 5 <0.500000>
7 101.258000 read(5, \"\"..., 4096) = 4096 <0.100000>
";

fn sim_replay(trace: &Path, more: &[&str]) -> Output {
    let mut command = foretell();
    command.args(["sim", "replay"]).arg(trace).args(more);
    command.output().expect("foretell runs")
}

#[test]
fn a_recorded_run_is_run_again_in_every_combination() {
    let (folder, path) = recording(STRACE);
    let json = folder.path().join("json");
    let json_text = json.to_string_lossy().into_owned();
    let plot = folder.path().join("plot.svg");
    let plot_text = plot.to_string_lossy().into_owned();
    let options = ["--root", "/data", "--disks", "1,2", "--json", &json_text, "--plot", &plot_text];
    let output = sim_replay(&path, &options);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let gone = "foretell: note: cannot find 2 of 2 files: their sizes are taken from the reads";
    assert_eq!(text(&output.stderr), format!("{gone}\n"));
    let table = text(&output.stdout);
    let mut lines = table.lines();
    let above = lines.next().expect("what is the same");
    assert!(above.starts_with("policy: foretell  disk: hp97560  cache: 256 MiB  "), "{table}");
    assert!(above.contains("  reads: 6  "), "{table}");
    assert!(lines.any(|names| names.starts_with("hints  disks  elapsed s  saved  ")), "{table}");
    let saved = lines.map(|line| line.split_whitespace().nth(3).expect("a word"));
    assert!(saved.clone().step_by(2).all(|saved| saved == "0%"), "{table}");
    assert_eq!(saved.filter(|saved| saved.ends_with('%')).count(), 4, "{table}");
    assert!(table.lines().all(|line| line.len() <= 100 && line == line.trim_end()), "{table}");
    let plot = fs::read_to_string(plot).expect("written");
    assert!(plot.contains(">hints none</text>") && plot.contains(">hints files</text>"), "{plot}");
    let output = sim_replay(&path, &["--root", "/data", "--disks", "1,2", "--plot", "-"]);
    assert_eq!(text(&output.stdout), plot);
    let written = fs::read(json).expect("written");
    let rows: Value = serde_json::from_slice(&written).expect("JSON");
    // The same rows come from `--sweep`.
    let sweeps = ["hints=none,files", "disks=1", "disks=2", "cache=256MiB"];
    let sweeps: Vec<&str> = sweeps.iter().flat_map(|sweep| ["--sweep", sweep]).collect();
    let output = sim_replay(&path, &[&sweeps[..], &["--root", "/data", "--json", "-"]].concat());
    assert_eq!(serde_json::from_slice::<Value>(&output.stdout).expect("JSON"), rows);
    let rows = rows.as_array().expect("several runs");
    let asked = serde_json::json!({
        "trace": path.to_string_lossy(), "format": "strace", "root": "/data", "policy": "foretell",
        "hints": "files", "disk": "hp97560", "disks": 1, "stripe_bytes": 65536, "order": "scan",
        "outstanding": 5, "layout": "sequential", "seed": 1, "cache_bytes": 256 << 20,
        "block_bytes": 8192, "metadata": true, "read_ahead": "linux", "cpu_factor": 1.0,
        "overhead_us": 0.0, "think_us": 0.0,
    });
    for (name, value) in asked.as_object().expect("an object") {
        assert_eq!(&rows[1][name], value, "{name}");
    }
    let column = |name: &str| -> Vec<&Value> { rows.iter().map(|row| &row[name]).collect() };
    assert_eq!(column("hints"), ["none", "files", "none", "files"]);
    assert_eq!(column("disks"), [1, 1, 2, 2]);
    assert_eq!(column("reads"), [6; 4]);
    // Data, and two inodes.
    assert_eq!(column("bytes"), [40960 + 4096 + 2 * 4096; 4]);
    for row in rows {
        let of = |name: &str| row[name].as_f64().expect("a number");
        assert!(of("elapsed_s") >= of("bound_cpu_s").max(of("bound_disk_s")), "{row}");
        assert!(of("elapsed_s") < 0.5, "recorded waits are not waited again: {row}");
    }
}

#[test]
fn a_root_is_the_same_by_any_of_its_names() {
    let (folder, path) = recording("");
    let top = folder.path().canonicalize().expect("there");
    fs::create_dir(top.join("data")).expect("made");
    fs::write(top.join("data/f"), [0; 4096]).expect("written");
    std::os::unix::fs::symlink("data", top.join("link")).expect("linked");
    for recorded in ["data", "link"] {
        let name = top.join(recorded).join("f");
        let lines = STRACE.replace("/data/f", &name.to_string_lossy());
        fs::write(&path, lines).expect("written");
        let mut ways = vec!["link", "data/../link", "data/.././link/."];
        if recorded == "data" {
            ways.extend(["data", "link/../data"]);
        }
        for root in ways {
            let root = top.join(root).to_string_lossy().into_owned();
            let options = ["--root", &root, "--hints", "none", "--json", "-"];
            let output = sim_replay(&path, &options);
            assert_eq!(output.status.code(), Some(0), "{root}: {}", text(&output.stderr));
            let row: Value = serde_json::from_slice(&output.stdout).expect("one object");
            assert_eq!(row["reads"], 5, "{root}");
        }
    }
}

#[test]
fn what_a_recording_lacks_is_told() {
    let (folder, path) = recording("");
    let file = folder.path().canonicalize().expect("there").join("f");
    fs::write(&file, [0; 40960]).expect("written");
    let root = file.parent().expect("a folder").to_string_lossy().into_owned();
    let name = file.to_string_lossy();
    let map = format!("7 102.0 mmap(NULL, 8192, PROT_READ, MAP_SHARED, 4<{name}>, 0) = 0x7f00\n");
    let whole = STRACE.replace("/data/f", &name);
    let mixed = whole.replace("/data/g", &format!("{root}/g"));
    let gone = "foretell: note: cannot find 1 of 2 files: their sizes are taken from the reads\n";
    let mapped = "foretell: note: 8 KiB of files were mapped into memory: reads through mappings are not recorded, and not replayed\n";
    let table = [
        (whole.clone(), String::new()),
        (mixed.clone(), gone.to_owned()),
        (whole + &map, mapped.to_owned()),
        (mixed.clone() + &map, format!("{gone}{mapped}")),
    ];
    for (lines, told) in table {
        fs::write(&path, lines).expect("written");
        let output = sim_replay(&path, &["--root", &root, "--json", "-"]);
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), told));
        assert!(serde_json::from_slice::<Value>(&output.stdout).is_ok());
    }
    // A process's own /proc entry is no file on a disk.
    let left_out = "foretell: note: 4 KiB were read from no disk, under 1 name (devices, terminals, pipes, /proc, /sys, /run, memory): left out\n";
    let recorded = STRACE.replace("/data/f", &name).replace("/data/g", "/proc/4194305/maps");
    for (library, told) in [(&*name, ""), ("/data/x", gone)] {
        fs::write(&path, recorded.replace("/lib/x.so", library)).expect("written");
        let output = sim_replay(&path, &["--json", "-"]);
        let told = format!("{told}{left_out}");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(0), told));
    }
}

#[test]
fn why_nothing_is_read_below_the_root_is_told() {
    let lines = STRACE.replace("/data/", "/data/a/b/");
    let forked = lines.clone() + "7 102.0 fork() = 8\n";
    let mapped =
        forked.clone() + "7 102.1 mmap(NULL, 8192, PROT_READ, MAP_SHARED, 4</usr/x>, 0) = 0x7f00\n";
    let only_mapped =
        "7 102.1 mmap(NULL, 8192, PROT_READ, MAP_SHARED, 4</usr/x>, 0) = 0x7f00\n".to_owned();
    let why = "; of 3 elsewhere, 2 are below /data/a/b; give that for --root";
    let fork = "; process 8 was created but has no line: was strace run with -f?";
    let map = "; 8 KiB of files were mapped into memory: reads through mappings are not recorded, and not replayed";
    let none = "; nor any read of other files";
    let unnamed = "7 102.0 openat(9, \"x\", O_RDONLY) = 5\n".to_owned();
    let of_unnamed = "; 1 file was opened in a folder that the recording does not name: its reads, if any, are not replayed \
                      (record with strace -y, or all calls, without -e trace=)";
    let apart = lines.clone() + "7 102.1 pread64(4</x/y>, \"\"..., 4096, 0) = 4096\n";
    let apart = apart.replace("/data/a/b/g", "/c/g");
    for (lines, why) in [
        (unnamed, format!("{none}{of_unnamed}")),
        (apart, "; 4 are elsewhere, and no folder has most of them; leave --root out".to_owned()),
        (lines, why.to_owned()),
        (forked, format!("{why}{fork}")),
        (mapped, format!("{why}{fork}{map}")),
        (only_mapped, format!("{none}{map}")),
    ] {
        let (_folder, path) = recording(lines);
        let output = sim_replay(&path, &["--root", "/usr"]);
        let error = text(&output.stderr);
        let said = format!("there is no read of a file below /usr in it{why}\n");
        assert!(error.ends_with(&said) && error.lines().count() == 1, "{error}");
    }
}

#[test]
fn whether_times_were_recorded_is_told() {
    let timeless =
        STRACE.lines().map(|line| line.split(" <").next().expect("one").to_owned() + "\n");
    let none = "foretell: note: the recording has no durations of calls (strace without -T): the only work is --think-us\n";
    let unused =
        "foretell: note: --think-us is not used: the recording has the work between reads\n";
    let own = "# foretell trace 1\n1 1 1 0 8192\n".to_owned();
    for (content, options, told) in [
        (timeless.collect::<String>(), ["--format", "strace", "--think-us", "5"], none),
        (STRACE.to_owned(), ["--format", "strace", "--think-us", "5"], unused),
        (STRACE.to_owned(), ["--format", "strace", "--think-us", "0"], ""),
        (own, ["--format", "foretell", "--think-us", "5"], ""),
    ] {
        let (_folder, path) = recording(content);
        let error = text(&sim_replay(&path, &options).stderr);
        let others = ["cannot find", "is disclosed as a whole, too: --root FOLDER"];
        let about = error.lines().filter(|line| !others.iter().any(|other| line.contains(other)));
        assert_eq!(about.map(|line| format!("{line}\n")).collect::<String>(), told);
    }
}

#[test]
fn hints_that_were_not_recorded_are_left_out() {
    let (_folder, path) = recording(STRACE);
    // A value that is given twice is run once.
    let hints = ["--hints", "none,recorded,none,all", "--disks", "1,1", "--json", "-"];
    let output = sim_replay(&path, &hints);
    let told = "t: there is no posix_fadvise(WILLNEED) or readahead in it: the hints recorded are left out\n";
    assert!(text(&output.stderr).ends_with(told), "{}", text(&output.stderr));
    let rows: Value = serde_json::from_slice(&output.stdout).expect("an array");
    assert_eq!((&rows[0]["hints"], &rows[1]["hints"]), (&"none".into(), &"all".into()));
    assert_eq!(rows.as_array().map(Vec::len), Some(2));
    // Several requested runs are an array, even if only one is left.
    let output = sim_replay(&path, &["--hints", "none,recorded", "--json", "-"]);
    let rows: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(rows.as_array().map(Vec::len), Some(1));
}

#[test]
fn files_without_permission_are_not_called_gone() {
    let (folder, path) = recording("");
    let closed = folder.path().canonicalize().expect("there").join("closed");
    fs::create_dir(&closed).expect("made");
    let lines = STRACE.replace("/data/f", &closed.join("f").to_string_lossy());
    fs::write(&path, lines).expect("written");
    let mode = |path: &Path, mode: u32| {
        fs::set_permissions(path, fs::Permissions::from_mode(mode)).expect("set");
    };
    mode(folder.path(), 0o755);
    mode(&closed, 0o000);
    let mut command = foretell();
    command.args(["sim", "replay", "--json", "-"]).arg(&path);
    // SAFETY: a system call without arguments.
    if unsafe { libc::geteuid() } == 0 {
        // Root may look at everything.
        command.uid(65534);
    }
    let Ok(output) = command.output() else {
        let _ = writeln!(std::io::stderr(), "skipped: without permission: foretell cannot be run");
        return;
    };
    mode(&closed, 0o755);
    let told = "foretell: note: no permission to look at 1 of 3 files: ";
    assert!(text(&output.stderr).contains(told), "{}", text(&output.stderr));
}

#[test]
fn damage_of_a_recording_is_told() {
    let note = |line: &str| format!("foretell: note: {line}\n");
    let cut = note("the recording ends in the middle of a call: the rest of the run is missing");
    let lines = note("1 of 7 lines are not understood as calls; the first is line 2");
    let damaged = STRACE.replacen('\n', "\n7 100.0005 read(3, \"\n", 1);
    let table = [
        (STRACE[..STRACE.len() - 15].to_owned(), cut.clone()),
        (damaged.clone(), lines.clone()),
        (format!("{damaged}7 102.0 pau"), lines.replace('7', "8") + &cut),
    ];
    for (content, told) in table {
        let (_folder, path) = recording(content);
        let output = sim_replay(&path, &["--json", "-"]);
        let error = text(&output.stderr);
        assert!(output.status.success() && error.starts_with(&told), "{error}");
    }
    let (_folder, path) = recording(STRACE.replace("100.004", "99.004"));
    let output = sim_replay(&path, &[]);
    let error = text(&output.stderr);
    let said = "t: line 3: time runs backwards by 0.997 s; sort the lines by time: `LC_ALL=C sort";
    assert!(error.contains(said) && error.lines().count() == 1, "{error}");
    assert_eq!(output.status.code(), Some(1));
}

#[test]
fn what_is_wrong_is_told_in_one_line_by_the_name_that_was_given() {
    let cache = ["sim", "cache", "--trace", "-", "--format", "blocks", "--capacity", "1"];
    let cache = [&cache[..], &["--policy", "lru", "--hints", "none"]].concat();
    let no_reads = fs::File::open(recording("# foretell trace 1\n").1).expect("there");
    let mut command = foretell();
    command.args(["sim", "replay", "-", "--format", "foretell", "--hints", "none"]);
    let output = command.stdin(no_reads).output().expect("foretell runs");
    assert_eq!(text(&output.stderr), "foretell: standard input: there is no read in it\n");
    for (arguments, code, line) in [
        (&cache[..], 1, "foretell: standard input: is empty\n"),
        (&["sim", "replay", "-"], 1, "foretell: standard input: is empty\n"),
        (
            &["sim", "collective", "--procs", "0"],
            2,
            "foretell: invalid value '0' for '--procs <P,...>': 0 is not a number from 1 to 65536; see 'foretell sim collective --help'\n",
        ),
    ] {
        let mut command = foretell();
        let output = command.args(arguments).stdin(std::process::Stdio::null()).output();
        let output = output.expect("foretell runs");
        assert_eq!((output.status.code(), text(&output.stderr).as_ref()), (Some(code), line));
    }
    let mut without_input = Command::new("sh");
    without_input.args(["-c", "exec \"$0\" \"$@\" <&-", env!("CARGO_BIN_EXE_foretell")]);
    let output = without_input.args(cache).output().expect("sh runs");
    assert_eq!(text(&output.stderr), "foretell: standard input: Bad file descriptor\n");
}

#[test]
fn replay_reads_standard_input_and_other_formats() {
    let (_folder, path) = recording(ANOMALY);
    let input = fs::File::open(&path).expect("there");
    let mut command = foretell();
    command.args(["sim", "replay", "-", "--format", "blocks", "--hints", "all", "--json", "-"]);
    let output = command.args(["--think-us", "1000"]).stdin(input).output().expect("foretell runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    let row: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!(
        (&row["reads"], &row["hints"], &row["policy"]),
        (&12.into(), &"all".into(), &"foretell".into())
    );
    assert!(row["cpu_s"].as_f64().expect("a number") > 0.012);
    for (content, format, hints) in [
        (ANOMALY, "blocks", ["none", "all"]),
        ("# foretell trace 1\n1 1 1 0 8192\n", "foretell", ["none", "files"]),
    ] {
        let (_folder, path) = recording(content);
        let output = sim_replay(&path, &["--format", format, "--json", "-"]);
        let rows: Value = serde_json::from_slice(&output.stdout).expect("an array");
        assert_eq!([&rows[0]["hints"], &rows[1]["hints"]], hints, "{format}");
    }
    let dxt = concat!(
        "# DXT, file_id: 17, file_name: /data/a\n# DXT, rank: 0, hostname: node\n",
        " X_POSIX 0 read 0 0 8192 1.0000 1.5000\n X_POSIX 0 read 1 16384 100 1.7500 1.7600\n",
    );
    let (_folder, path) = recording(dxt);
    let output = sim_replay(&path, &["--format", "dxt", "--hints", "none", "--json", "-"]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert!(text(&output.stderr).starts_with("foretell: note: cannot find 1 of 1 file:"));
    let row: Value = serde_json::from_slice(&output.stdout).expect("one object");
    assert_eq!((&row["reads"], &row["opens"]), (&2.into(), &1.into()));
    assert!((0.25..0.3).contains(&row["cpu_s"].as_f64().expect("a number")), "{row}");
}

#[test]
fn what_replay_cannot_use_is_said_in_one_line() {
    let (_folder, path) = recording(STRACE);
    let (_other, other) = recording("root:x:0:0\n");
    let none = Path::new("/nowhere/x");
    let long = ["--format", "blocks", "--think-us", "1000000000", "--cpu-factor", "1000000"];
    let (_blocks, blocks) = recording(ANOMALY);
    let (_leaps, leaps) = recording(STRACE.replace("7 101.258000 read", "7 9000000000.0 read"));
    let table: [(&Path, &[&str], &str, i32); 38] = [
        (&path, &["--disks", "1..4"], "not a range: give numbers with commas between, as 1,2,4", 2),
        (
            &path,
            &["--sweep", "disks"],
            "give disks=, disk=, policy=, hints= or cache= and values",
            2,
        ),
        (&path, &["--sweep", "depth=1,2"], "give disks=, disk=, policy=, hints= or cache= and", 2),
        (&path, &["--sweep", "disks=1,x"], "not a whole number from 1 to 256", 2),
        (
            &path,
            &["--disks", "8", "--sweep", "disks=1,2"],
            "--disks cannot be used with --sweep disks=; leave one of them out",
            2,
        ),
        (
            &leaps,
            &[],
            "t: 285 years of work, and a run has 100 at most: its clock must have jumped; record again",
            1,
        ),
        (&path, &["--disk", "/dev/zero"], "--disk: /dev/zero: is larger than 1 MiB", 1),
        (&blocks, &long, "381 years of work, and a run has 100 at most: lower --cpu-factor", 2),
        (&path, &["--block", "65MiB"], "more than 64 MiB", 2),
        (&path, &["--stripe", "2GiB"], "--stripe: 2 GiB is larger than a hp97560; give at most", 2),
        (&path, &["--cache", "1MiB,0"], "--cache: 0 B is too small for a block of 8 KiB", 2),
        (
            &path,
            &["--cache", "8191"],
            "--cache: 8191 B is too small for a block of 8 KiB; give more, or a smaller",
            2,
        ),
        (
            &path,
            &["--disk", "network", "--outstanding", "5"],
            "--outstanding: network serves 32 requests at once; give no fewer, or leave it out",
            2,
        ),
        (&path, &["--plot", "/dev/null", "--disks", "4,4"], "give --disks or --cache several", 2),
        (&path, &["--plot", "/dev/null"], "give --disks or --cache several values", 2),
        (
            &path,
            &["--root", "/proc"],
            "no read of a file below /proc in it; of 3 elsewhere, 2 are below /data; give that for",
            1,
        ),
        (&path, &["--root", "/none/x"], "--root: /none/x: No such file or directory", 1),
        (&blocks, &["--root", "/", "--format", "blocks"], "has no names of files; leave it out", 2),
        (
            &path,
            &["--hints", "recorded"],
            "t: there is no posix_fadvise(WILLNEED) or readahead in it; leave recorded out of --hints",
            1,
        ),
        (&other, &["--format", "dxt"], "make the text with `scripts/dxt-text LOG`", 1),
        (&other, &[], "record with `strace -f -ttt -T -y -o FILE PROGRAM`", 1),
        (none, &[], "/nowhere/x: No such file or directory", 1),
        (&path, &["--disk", "floppy"], "unknown disk \"floppy\"; known are hp97560", 2),
        (
            &path,
            &["--disk", "/none.toml"],
            "foretell: --disk: /none.toml: No such file or directory",
            1,
        ),
        (&path, &["--disk", "/proc"], "foretell: --disk: /proc: Is a directory", 1),
        (&path, &["--json", "/none/x"], "foretell: --json: /none/x: No such file or directory", 1),
        (
            &path,
            &["--plot", "/none/x", "--disks", "1,2"],
            "foretell: --plot: /none/x: No such file or directory",
            1,
        ),
        (&path, &["--stripe", "1000"], "a stripe is a multiple of 512 bytes", 2),
        (&path, &["--disks", "1-8"], "give numbers with commas between", 2),
        (&path, &["--disks", "257"], "not a whole number from 1 to 256", 2),
        (&path, &["--disks", "-1"], "not a whole number from 1 to 256", 2),
        (&path, &["--cpu-factor", "-1"], "not from 0 to 1000000", 2),
        (&path, &["--overhead-us", "-5"], "not from 0 to 1000000000", 2),
        (&path, &["--think-us", "-5"], "not from 0 to 1000000000", 2),
        (&path, &["--seed", "-1"], "not a whole number from 0 to", 2),
        (
            &blocks,
            &["--format", "blocks", "--hints", "files"],
            "--hints files: a recording of format blocks has no files; give all, or N-ahead",
            2,
        ),
        (&path, &["--hints", "most"], "known are none, recorded, files, all, and N-ahead", 2),
        (&path, &["--policy", "best"], "known are lru, tip1", 2),
    ];
    for (trace, options, said, code) in table {
        let output = sim_replay(trace, options);
        let error = text(&output.stderr);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(code), String::new()));
        let first = error.lines().next().expect("a message");
        assert!(!error.contains("tip:"), "{error}");
        assert!(first.contains(said) && (code == 2 || error.lines().count() == 1), "{error}");
    }
}

#[test]
fn disks_that_are_smaller_than_what_was_recorded_are_named_once() {
    let (_folder, path) = recording("1\n100000000\n");
    let options = ["--format", "blocks", "--disks", "2,256", "--disk", "hp97560,object-store"];
    let output = sim_replay(&path, &options);
    let error = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{error}");
    let notes: Vec<&str> = error.lines().filter(|line| line.contains("take 763 GiB")).collect();
    assert!(
        notes.len() >= 2 && notes.iter().all(|note| note.contains(": some files share places"))
    );
    assert!(notes[0].contains("an array of 2 x hp97560 has 2.5 GiB"), "{error}");
    notes.iter().for_each(|note| assert_eq!(error.matches(note).count(), 1, "{error}"));
}

#[test]
fn what_is_read_or_written_already_is_not_written() {
    let (folder, path) = recording(STRACE);
    let at = |name: &str| folder.path().join(name).to_string_lossy().into_owned();
    let (itself, other) = (at("t"), at("other"));
    std::os::unix::fs::symlink("t", &other).expect("linked");
    let several = ["--disks", "1,2"];
    let table: [&[&str]; 6] = [
        &["--json", &itself],
        &["--plot", &itself],
        &["--json", &other],
        &["--json", &at("x"), "--plot", &at("./x")],
        &["--json", "-", "--plot", "-"],
        &["--json", "-", "--plot", "/dev/stdout"],
    ];
    for options in table {
        let output = sim_replay(&path, &[&several[..], options].concat());
        let error = text(&output.stderr);
        assert_eq!((output.status.code(), error.lines().count()), (Some(2), 1), "{error}");
        assert!(error.ends_with("; give another file\n"), "{error}");
        assert!(output.stdout.is_empty());
    }
    assert_eq!(fs::read_to_string(&path).expect("there"), STRACE);
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2);
    let options = ["--format", "blocks", "--capacity", "3", "--policy", "lru", "--hints", "none"];
    let output = sim_cache(&path, &[&options[..], &["--json", &itself]].concat());
    assert_eq!(output.status.code(), Some(2), "{}", text(&output.stderr));
}

/// `foretell` with a standard output that has no reader.
fn unread(command: &mut std::process::Command) -> Option<i32> {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let status = command.stdout(writer).stderr(std::process::Stdio::null()).status();
    status.expect("foretell runs").signal()
}

#[test]
fn files_are_whole_or_not_there() {
    let (folder, path) = recording(STRACE);
    let json = folder.path().join("json");
    let mut command = foretell();
    command.args(["sim", "replay", "--root", "/data", "--json"]).arg(&json).arg(&path);
    assert_eq!(unread(&mut command), Some(libc::SIGPIPE));
    let figures = fs::read(&json).expect("written before the table");
    assert!(serde_json::from_slice::<Value>(&figures).is_ok());
    let (blocks_folder, blocks) = recording(ANOMALY);
    let json = blocks_folder.path().join("json");
    let mut command = foretell();
    command.args(["sim", "cache", "--format", "blocks", "--capacity", "3,4", "--policy", "lru"]);
    command.args(["--hints", "none", "--json"]).arg(&json).arg("--trace").arg(&blocks);
    assert_eq!(unread(&mut command), Some(libc::SIGPIPE));
    assert!(serde_json::from_slice::<Value>(&fs::read(&json).expect("written")).is_ok());
    // A path that leads to standard output is written as a stream.
    let file = folder.path().join("all");
    let mut command = foretell();
    command.args(["sim", "replay", "--json", "/dev/stdout"]).arg(&path);
    let status = command.stdout(fs::File::create(&file).expect("made")).status();
    assert!(status.expect("foretell runs").success());
    let all = fs::read_to_string(&file).expect("written");
    let mut lines = all.lines();
    assert!(lines.next().is_some_and(|line| line.starts_with("[{")), "{all}");
    assert!(lines.next().is_some_and(|line| line.starts_with("policy: ")), "{all}");
    fs::remove_file(&file).expect("removed");
    // Ended while it waits for the recording.
    let json = folder.path().join("other");
    let mut command = foretell();
    command.args(["sim", "replay", "-", "--json"]).arg(&json);
    let mut child = command.stdin(std::process::Stdio::piped()).spawn().expect("foretell runs");
    std::thread::sleep(std::time::Duration::from_millis(300));
    assert!(child.try_wait().expect("a child").is_none());
    // SAFETY: a system call with a process of ours, which has not been waited for.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    assert_eq!(child.wait().expect("a child").signal(), Some(libc::SIGTERM));
    // Files may not be that long.
    let mut command = std::process::Command::new("sh");
    command.args(["-c", "ulimit -f 0; exec \"$0\" \"$@\""]).arg(env!("CARGO_BIN_EXE_foretell"));
    command.args(["sim", "replay", "--json"]).arg(&json).arg(&path);
    let output = command.output().expect("sh runs");
    assert_eq!(output.status.code(), Some(1), "{}", text(&output.stderr));
    assert!(text(&output.stderr).ends_with("File too large\n"), "{}", text(&output.stderr));
    assert_eq!(fs::read_dir(folder.path()).expect("a folder").count(), 2, "nothing is left");
}

fn sim_reproduce(more: &[&str]) -> Output {
    foretell().args(["sim", "reproduce"]).args(more).output().expect("foretell runs")
}

#[test]
fn a_paper_is_reproduced_with_its_page() {
    let folder = tempfile::tempdir().expect("a folder");
    let (pages, json) = (folder.path().join("pages"), folder.path().join("json"));
    fs::create_dir(&pages).expect("made");
    let kept = "<!-- what follows is not written by foretell sim reproduce -->\n\nmine\n";
    for page in ["tip1994.md", "reproduction.md"] {
        fs::write(pages.join(page), format!("xyzzy\n{kept}")).expect("written");
    }
    let [pages_text, json_text] = [&pages, &json].map(|path| path.to_string_lossy().into_owned());
    let output = sim_reproduce(&["tip1994", "--out", &pages_text, "--json", &json_text]);
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
    let table = text(&output.stdout);
    assert!(
        table.starts_with("1994 table 1") && table.contains("Within 15 % of the paper's number"),
        "{table}"
    );
    assert!(table.contains("*: what the paper does not state"), "{table}");
    let cells: Value = serde_json::from_slice(&fs::read(json).expect("written")).expect("JSON");
    let cells = cells["cells"].as_array().expect("cells");
    let found = cells.iter().find(|cell| {
        cell["row"] == "X-Y, with hints" && cell["column"] == "4 disks" && cell["unit"] == "s"
    });
    let cell = found.expect("a cell of table 3");
    assert_eq!((&cell["paper"], &cell["basis"]), (&2.23.into(), &"predicted".into()), "{cell}");
    let whole = fs::read_to_string(pages.join("reproduction.md")).expect("there");
    assert_eq!(whole, format!("xyzzy\n{kept}"), "a part does not take the place of the whole");
    let page = fs::read_to_string(pages.join("tip1994.md")).expect("written");
    assert!(page.contains("`foretell sim reproduce tip1994 --out"), "{page}");
    assert!(!page.contains("xyzzy") && page.ends_with(kept), "{page}");
    let plot = pages.join("reproduction/tip1994-table-3.svg");
    assert!(fs::read_to_string(plot).expect("written").starts_with("<svg"));
    assert!(page.contains("(reproduction/tip1994-table-3.svg)"));
}

#[test]
fn what_reproduce_cannot_do_is_said_before_it_begins() {
    let output = sim_reproduce(&["tip1994", "--out", "/proc/nowhere"]);
    assert_eq!(output.status.code(), Some(1));
    let error = text(&output.stderr);
    assert!(
        error.starts_with("foretell: --out: /proc/nowhere") && error.lines().count() == 1,
        "{error}"
    );
    let folder = tempfile::tempdir().expect("a folder");
    let page = folder.path().join("tip1994.md");
    fs::write(&page, [0xff]).expect("written");
    let output = sim_reproduce(&["tip1994", "--out", &page.to_string_lossy()]);
    let error = format!("foretell: --out: {}: is not a folder\n", page.display());
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), error));
    let output = sim_reproduce(&["tip1994", "--out", &folder.path().to_string_lossy()]);
    let error = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()), "{error}");
    assert!(error.starts_with(&format!("foretell: --out: {}: ", page.display())), "{error}");
    assert_eq!(fs::read(&page).expect("there"), [0xff]);
    fs::remove_file(&page).expect("removed");
    let plots = folder.path().join("reproduction");
    fs::write(&plots, "").expect("written");
    let output = sim_reproduce(&["tip1994", "--out", &folder.path().to_string_lossy()]);
    let error = text(&output.stderr);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(1), String::new()), "{error}");
    assert!(error.starts_with(&format!("foretell: --out: {}: is not a folder", plots.display())));
    fs::remove_file(&plots).expect("removed");
    let pages = [
        ("all", "reproduction.md"),
        ("comparators", "comparators.md"),
        ("predictive", "predictive.md"),
    ];
    for (what, page) in pages {
        let page = folder.path().join(page);
        fs::write(&page, "mine\n").expect("written");
        let output = sim_reproduce(&[what, "--out", &folder.path().to_string_lossy()]);
        let error = text(&output.stderr);
        let said =
            "not written by foretell sim reproduce; give another DIR to --out, or move the file";
        assert!(
            error.starts_with(&format!("foretell: --out: {}: {said}", page.display())),
            "{error}"
        );
        assert_eq!((output.status.code(), error.lines().count()), (Some(1), 1), "{error}");
        assert_eq!(fs::read_to_string(&page).expect("there"), "mine\n");
    }
    assert!(!folder.path().join("reproduction").exists(), "nothing is made in vain");
    let pages = folder.path().join("new/pages");
    let mut reproduce = foretell();
    reproduce.args(["sim", "reproduce", "tip1995", "--out"]).arg(&pages);
    let mut child = reproduce.spawn().expect("foretell runs");
    std::thread::sleep(std::time::Duration::from_millis(300));
    let pid = rustix::process::Pid::from_child(&child);
    rustix::process::kill_process(pid, rustix::process::Signal::TERM).expect("it runs");
    assert!(child.wait().expect("it ends").signal().is_some());
    assert!(!folder.path().join("new").exists(), "no empty folder is left");
    let output = sim_reproduce(&["tip1999"]);
    assert_eq!(output.status.code(), Some(2));
    assert!(
        text(&output.stderr).contains("tip1994, tip1995, collective, comparators, predictive, all")
    );
}

#[test]
fn help_fits_any_width() {
    let all = ["cache", "replay", "collective", "fleet", "predict", "reproduce"];
    for command in std::iter::once(&[][..]).chain(all.iter().map(std::slice::from_ref)) {
        let help = |columns: &str| {
            let mut sim = foretell();
            sim.args(["sim"]).args(command).arg("--help").env("COLUMNS", columns);
            text(&sim.output().expect("foretell runs").stdout)
        };
        let long = help("100");
        let wrapped = long.lines().filter(|line| !line.starts_with("Usage: "));
        let longest = wrapped.map(|line| line.chars().count()).max();
        assert!(longest.is_some_and(|columns| (60..=100).contains(&columns)), "{long}");
        assert!(!long.contains("--think "), "{long}");
        // With enough width nothing is wrapped: the text itself has no line breaks within a paragraph.
        let wide = help("5000");
        let lines: Vec<&str> = wide.lines().collect();
        for pair in lines.windows(2) {
            let is_text = |line: &str| line.chars().next().is_some_and(|first| first != ' ');
            let breaks = is_text(pair[0]) && is_text(pair[1]);
            assert!(!breaks, "{pair:?}");
        }
    }
}

fn sim_collective(options: &[&str]) -> Output {
    let mut command = foretell();
    command.args(["sim", "collective"]).args(options);
    command.output().expect("foretell runs")
}

#[test]
fn collective_reads_have_a_row_for_each_combination() {
    let small = ["--file-size", "1MiB", "--files", "2", "--json", "-"];
    let run = |options: &[&str]| -> Vec<Value> {
        let output = sim_collective(&[&small, options].concat());
        assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
        match serde_json::from_slice(&output.stdout).expect("JSON") {
            Value::Array(rows) => rows,
            row => vec![row],
        }
    };
    let sweep = ["--sweep", "depth=1..16", "--pattern", "block-1d"];
    let rows = run(&[&sweep[..], &["--procs", "8,3"]].concat());
    let depths = |rows: &[Value]| rows.iter().map(|row| row["depth"].as_u64()).collect::<Vec<_>>();
    let each = [Some(1), Some(2), Some(4), Some(8), Some(16), None];
    assert_eq!(depths(&rows), [each, each].concat());
    let rate = |row: &Value| row["throughput_mib_s"].as_f64().expect("a number");
    assert!(rate(&rows[4]) > 2.0 * rate(&rows[0]), "depth pays: {rows:?}");
    assert_eq!(rows[4]["memory_bytes"], 2u64 << 20);
    // A file of owners equal to a pattern, on a device without seeks, and the recommended depth.
    let (_folder, owners) = recording((0..128).map(|b| format!("{} ", b % 8)).collect::<String>());
    let patterns = format!("interleaved,{}", owners.display());
    let rows = run(&["--pattern", &patterns, "--disk", "network", "--method", "prefetch"]);
    assert_eq!((rows.len(), rate(&rows[0])), (2, rate(&rows[1])));
    assert_eq!(rows[0]["depth"], rows[0]["recommended_depth"]);
    // A value given twice is one row; --crossover adds its figures.
    let rows = run(&["--pattern", "block-1d,block-1d", "--procs", "8,8", "--crossover"]);
    assert_eq!(rows.len(), 2);
    let crossover = &rows[0]["crossover"];
    let depth = crossover["depth"].as_u64().expect("there is one");
    assert!((8..=16).contains(&depth) && crossover["near_best_depth"].as_u64() >= Some(1));
    assert!(rate(&rows[1]) == crossover["collective_mib_s"].as_f64().expect("a number"));
    assert!(crossover["overlapped_mib_s"].as_f64() > crossover["collective_mib_s"].as_f64());
    assert_eq!(crossover["ahead_bytes"], depth * 8 * 8192);
    assert_eq!(
        (&rows[0]["largest_portion_blocks"], rows[0]["depth"].as_u64() <= Some(16)),
        (&16.into(), true)
    );
    assert_eq!(rows[0]["net_startup_ns"], 25);
    // One processor has 121 blocks, and seven have one each: at depth 8, 8 + 7 blocks are ahead.
    let shares = (0..128).map(|b| format!("{} ", if b < 8 { b } else { 0 })).collect::<String>();
    let (_folder, owners) = recording(shares);
    let rows =
        run(&["--pattern", &owners.to_string_lossy(), "--method", "prefetch", "--depth", "8"]);
    assert_eq!(rows[0]["memory_bytes"], (128 + 8 + 7) * 8192);
    // All methods are in the table.
    let methods = "demand,prefetch,disk-directed,two-phase,two-phase-extended";
    let output = sim_collective(&["--file-size", "1MiB", "--method", methods, "--layout", "aged"]);
    assert_eq!(text(&output.stdout).lines().count(), 8, "{}", text(&output.stderr));
    assert!(text(&output.stdout).contains("recommended depth "));
    assert!(text(&output.stdout).lines().all(|line| line.len() <= 100), "{}", text(&output.stdout));
}

#[test]
fn collective_reads_that_cannot_be_are_refused() {
    let refused = [
        (&["--pattern", "diagonal"][..], "known are interleaved, block-1d, block-3d, global"),
        (&["--sweep", "depth=9..2"], "depth=FIRST..LAST"),
        (&["--depth", "1", "--sweep", "depth=2"], "cannot be used with"),
        (&["--file-size", "2TiB"], "more than"),
        (&["--file-size", "0"], "a file has at least 1 byte"),
        (&["--layout", "aged", "--block", "4KiB"], "8 KiB"),
        (&["--method", "mpi"], "two-phase-extended"),
        (&["--method", "demand", "--depth", "4"], "--depth needs --method prefetch"),
        (&["--method", "demand", "--sweep", "depth=all"], "--sweep needs --method prefetch"),
        (&["--method", "demand", "--overlap", "on"], "reads nothing ahead"),
        (&["--layout", "random", "--apart"], "--apart needs --layout sequential"),
        (&["--file-size", "1TiB", "--disks", "4096"], "more than 2^26"),
        (&["--seed", "-1"], "not a whole number from 0 on"),
        (&["--procs", "0"], "0 is not a number from 1 to 65536"),
        (&["--compute", "nan"], "not from 0 to 1000"),
        (&["--compute-ms", "1e9"], "not from 0 to 3600000"),
        (
            &[
                "--procs",
                "65536",
                "--file-size",
                "8KiB",
                "--files",
                "80",
                "--compute-ms",
                "3600000",
            ],
            "take less computing, fewer files or more equal shares",
        ),
        (&["--net-startup-ns", "18446744073709551615"], "a number from 0 to 1000000000"),
        (&["--net-bandwidth", "0"], "less than 1KiB"),
    ];
    for (options, why) in refused {
        let output = sim_collective(options);
        let error = text(&output.stderr);
        assert_eq!(output.status.code(), Some(2), "{options:?}: {error}");
        assert!(error.contains(why), "{options:?}: {error}");
    }
    let (_folder, owners) = recording("0 1 x");
    let output = sim_collective(&["--pattern", &owners.to_string_lossy()]);
    let error = text(&output.stderr);
    assert!(error.contains("--pattern") && error.contains("\"x\" is no processor's number"));
    assert!(error.contains("it must list the owner of each block") && error.lines().count() == 1);
    // A depth above a processor's portion counts as the portion.
    let deep =
        ["--file-size", "1MiB", "--method", "prefetch", "--depth", "16,99999999999", "--json", "-"];
    let output = sim_collective(&deep);
    let row: Value = serde_json::from_slice(&output.stdout).expect("one row");
    assert_eq!(row["depth"], 16);
}
