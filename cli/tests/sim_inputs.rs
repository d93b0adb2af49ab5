//! `foretell sim` with inputs that are large, foreign or compressed, and with pipes and devices.

mod common;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{foretell, have, recording, text};
use foretell_sim::trace::Format;
use serde_json::Value;

fn sim(words: &[&str], path: &Path) -> Output {
    foretell().arg("sim").args(words).arg(path).stdin(Stdio::null()).output().expect("it runs")
}

/// The one line of a failure.
fn refusal(output: &Output) -> String {
    let said = text(&output.stderr);
    assert_eq!((output.status.code(), output.stdout.len()), (Some(1), 0), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// The only row of a replay, and its notes.
fn replayed(path: &Path, more: &[&str]) -> (Value, String) {
    let words = [&["replay", "--json", "-", "--hints", "none"][..], more].concat();
    let output = sim(&words, path);
    let said = text(&output.stderr);
    assert_eq!(output.status.code(), Some(0), "{said}");
    (serde_json::from_slice(&output.stdout).expect("JSON"), said)
}

#[test]
fn a_few_lines_of_very_many_blocks_are_refused_before_any_work() {
    let lines: String = (0..300).map(|at| format!("{at} 1 1 0 {}\n", 2u64 << 30)).collect();
    let (_folder, path) = recording(format!("# foretell trace 1\n{lines}"));
    let cache = ["cache", "--format", "foretell", "--capacity", "1000", "--hints", "all"];
    for policy in ["lru", "tip2", "foretell", "belady"] {
        let words = [&cache[..], &["--policy", policy, "--block", "512", "--trace"]].concat();
        let said = refusal(&sim(&words, &path));
        assert!(
            said.contains("reads 1258291200 blocks of 512 B") && said.contains(policy),
            "{said}"
        );
        assert!(said.contains("take larger blocks (--block "), "{said}");
    }
    for policy in ["foretell", "belady"] {
        let said = refusal(&sim(&[&cache[..], &["--policy", policy, "--trace"]].concat(), &path));
        assert!(said.contains("reads 78643200 blocks of 8 KiB"), "{said}");
        assert!(said.contains("67108864 at most; take larger blocks (--block 16KiB)"), "{said}");
    }
    let said = refusal(&sim(&["replay", "--format", "foretell"], &path));
    assert!(said.contains("reads 78643200 blocks") && said.contains("(--block 32KiB)"), "{said}");
}

#[test]
fn memory_follows_the_lines_of_a_recording() {
    // 2^26 blocks, which would take 1 GiB if each were stored.
    let lines: String = (0..16).map(|at| format!("{at} 1 {at} 0 {}\n", 2u64 << 30)).collect();
    let (_folder, path) = recording(format!("# foretell trace 1\n{lines}"));
    let mut command = Command::new("sh");
    command.args(["-c", "ulimit -v \"$1\"; shift; exec \"$@\"", "limited", "300000"]);
    command.arg(env!("CARGO_BIN_EXE_foretell"));
    command.args(["sim", "cache", "--format", "foretell", "--capacity", "100", "--block", "512"]);
    command.args(["--policy", "belady", "--hints", "all", "--trace"]).arg(path);
    let output = command.stdout(Stdio::null()).stderr(Stdio::piped()).output().expect("it runs");
    // MIN's state per block exceeds the limit; the reads do not.
    let said = text(&output.stderr);
    assert!(said.contains("no memory left: ") || output.status.success(), "{said}");
    let (_folder, path) = recording("# foretell trace 1\n1 1 1 0 2147483648\n".to_owned() + &lines);
    let words = ["cache", "--format", "foretell", "--capacity", "1", "--block", "512", "--policy"];
    refusal(&sim(&[&words[..], &["belady", "--hints", "all", "--trace"]].concat(), &path));
}

const ZERO: &str = "\
7 100.000000 openat(AT_FDCWD</tmp>, \"/dev/zero\", O_RDONLY) = 3</dev/zero> <0.000010>
7 100.001000 read(3</dev/zero>, \"\"..., 209715200) = 209715200 <0.002000>
7 100.004000 openat(AT_FDCWD</tmp>, \"/proc/kallsyms\", O_RDONLY) = 4</proc/kallsyms> <0.000010>
7 100.005000 read(4</proc/kallsyms>, \"\"..., 4096) = 4096 <0.002000>
7 100.008000 read(5</memfd:x (deleted)>, \"\"..., 8192) = 8192 <0.000020>
7 100.009000 read(0</dev/pts/1>, \"y\\n\", 1024) = 2 <2.000000>
7 102.010000 read(6</dev/shm/x>, \"\"..., 4096) = 4096 <0.000020>
7 102.011000 read(7<pipe:[9]>, \"\"..., 4096) = 4096 <0.000020>
7 102.012000 read(8<socket:[9]>, \"\"..., 4096) = 4096 <0.000020>
7 102.013000 read(9<anon_inode:[eventfd]>, \"\"..., 8) = 8 <0.000020>
";

#[test]
fn what_no_disk_has_is_neither_read_nor_waited_for() {
    let file = "7 102.020000 openat(AT_FDCWD</tmp>, \"/data/f\", O_RDONLY) = 10</data/f> <0.000010>\n\
                7 102.030000 read(10</data/f>, \"\"..., 16384) = 16384 <0.000020>\n";
    let (_folder, path) = recording([ZERO, file].concat());
    let (_folder, alone) = recording(file);
    for more in [&[][..], &["--root", "/data"], &["--root", "/"]] {
        let (row, said) = replayed(&path, more);
        let (expected, _) = replayed(&alone, more);
        for key in ["reads", "bytes", "requests"] {
            assert_eq!(row[key], expected[key], "{key}, {more:?}");
        }
        let noted: Vec<&str> = said.lines().filter(|line| line.contains("from no disk")).collect();
        assert_eq!(noted.len(), 1, "{said}");
        assert!(noted[0].contains("200 MiB were read from no disk, under 5 names"), "{said}");
        assert!(!said.contains("without a recorded open"), "{said}");
    }
    let (_folder, path) = recording(ZERO);
    let said = refusal(&sim(&["replay"], &path));
    assert!(said.contains("there is no read in it") && said.contains("from no disk"), "{said}");
}

#[test]
fn programs_that_read_devices_are_recorded_and_run_again() {
    if !have("strace") || !have("dd") {
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("t");
    let mut command = Command::new("strace");
    command.args(["-f", "-ttt", "-T", "-y", "-o"]).arg(&path);
    command.args(["dd", "if=/dev/zero", "of=/dev/null", "bs=1M", "count=20", "status=none"]);
    if !command.status().is_ok_and(|status| status.success()) {
        return common::skipped("strace may not trace here");
    }
    let (row, said) = replayed(&path, &[]);
    assert!(row["bytes"].as_u64().expect("a number") < 20 << 20, "{row}");
    assert!(said.contains("20 MiB were read from no disk"), "{said}");
}

/// A named pipe is no file on a disk.
#[test]
fn what_is_read_of_a_pipe_with_a_name_is_left_out() {
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("fifo");
    let made = Command::new("mkfifo").arg(&fifo).status().expect("it runs");
    assert!(made.success());
    let fifo = fifo.display();
    let (_folder, path) = recording(format!(
        "7 100.0 openat(AT_FDCWD</tmp>, \"{fifo}\", O_RDONLY) = 3<{fifo}> <0.1>\n\
         7 101.0 read(3<{fifo}>, \"\"..., 65536) = 65536 <0.1>\n"
    ));
    let said = refusal(&sim(&["replay"], &path));
    assert!(said.contains("64 KiB were read from no disk, under 1 name "), "{said}");
}

#[test]
fn what_darshan_says_is_missing_is_noted() {
    let block = "# DXT_POSIX module data\n\n# *WARNING*: The DXT_POSIX module contains incomplete data!\n\
                 #            This happens when a module runs out of\n\
                 #            memory to store new record data.\n\n";
    let data = "# DXT, file_id: 1, file_name: /data/f\n X_POSIX 0 read 0 0 100 0.1 0.2\n\
                # DXT, file_id: 2, file_name: <STDIN>\n X_POSIX 0 read 0 0 100 0.3 0.4\n";
    let (_folder, path) = recording([block, data].concat());
    let (row, said) = replayed(&path, &["--format", "dxt"]);
    assert_eq!(row["reads"], 1);
    let warning = "its recorder says: The DXT_POSIX module contains incomplete data!";
    assert!(said.contains(warning) && said.contains("from no disk"), "{said}");
    let (_folder, path) = recording(data);
    assert!(!replayed(&path, &["--format", "dxt"]).1.contains("incomplete"));
}

#[test]
fn a_darshan_log_is_called_one() {
    let log = b"3.41\0\0\0\0\x37\x35\x64\0\0\0\0\0\0\0\0\0";
    for content in [&log[..], b"3.41\0", b"2.06\0\0\0\0"] {
        let (_folder, path) = recording(content);
        let said = refusal(&sim(&["replay", "--format", "dxt"], &path));
        assert!(said.contains(": a Darshan log: run darshan-dxt-parser"), "{said}");
    }
    let header =
        "# darshan log version: 3.41\n# compression method: ZLIB\n# exe: ./a\n# nprocs: 4\n";
    let (_folder, path) = recording(header);
    let said = refusal(&sim(&["replay", "--format", "dxt"], &path));
    assert!(said.contains("no DXT in it: run the program with DXT_ENABLE_IO_TRACE=1"), "{said}");
}

#[test]
fn traces_of_libcachesim_are_read_plain_and_packed() {
    let ids = [1u64, 2, 3, 4, 1, 2, 5, 1, 2, 3, 4, 5].map(|id| id << 60 | 7);
    let mut records = Vec::new();
    for (at, id) in ids.iter().enumerate() {
        let next = ids[at + 1..].iter().position(|other| other == id);
        let next = next.map_or(-1, |after| (at + 1 + after) as i64);
        records.extend((at as u32).to_le_bytes());
        records.extend(id.to_le_bytes());
        records.extend(100_000u32.to_le_bytes());
        records.extend(next.to_le_bytes());
    }
    let (folder, path) = recording(&records);
    let words =
        ["cache", "--capacity", "3", "--policy", "belady", "--hints", "none", "--json", "-"];
    let words = [&words[..], &["--format", "oracle-general", "--trace"]].concat();
    let misses = |path: &Path| {
        let output = sim(&words, path);
        let row: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        (row["misses"].clone(), row["block_bytes"].clone())
    };
    assert_eq!(misses(&path), (7.into(), Value::Null));
    let (row, _) = replayed(&path, &["--format", "oracle-general"]);
    assert_eq!(row["reads"], 12);
    let as_requests = ["cache", "--capacity", "3", "--policy", "lru", "--hints", "none", "--trace"];
    let as_requests = [&as_requests[..7], &["--format", "vscsi", "--trace"]].concat();
    let said = refusal(&sim(&as_requests, &path));
    assert!(said.contains("--format oracle-general reads it"), "{said}");
    if have("zstd") {
        let packed = folder.path().join("t.zst");
        let mut command = Command::new("zstd");
        let packing = command.arg("-q").arg(&path).arg("-o").arg(&packed).status();
        assert!(packing.expect("it runs").success());
        assert_eq!(misses(&packed), (7.into(), Value::Null));
    }
}

/// All formats of `foretell sim replay`.
fn formats() -> impl Iterator<Item = &'static str> {
    ["strace", "dxt"].into_iter().chain(Format::ALL.iter().map(|format| format.name()))
}

#[test]
fn files_packed_otherwise_say_how_to_unpack_them() {
    for (program, magic) in [
        ("xz -dc", &b"\xfd7zXZ\0\0\x04\xe6"[..]),
        ("bzip2 -dc", b"BZh91AY&SY"),
        ("lz4 -dc", b"\x04\x22\x4d\x18\x64\x40"),
        ("unzip -p", b"PK\x03\x04\x0a\0"),
    ] {
        let (_folder, path) = recording(magic);
        for format in formats() {
            let said = refusal(&sim(&["replay", "--format", format], &path));
            assert!(said.contains(program), "{format}: {said}");
        }
    }
}

#[test]
fn what_is_no_file_or_no_text_is_one_line() {
    let (folder, _) = recording("");
    let long = "9".repeat(5000);
    let contents: [&[u8]; 9] = [
        b"\0\0\0\0",
        b"\r\n\r\n",
        b"\xff\xfe1\0\n\0",
        b"\xef\xbb\xbf",
        b"1e9\n",
        b"0x10\n",
        b"-1\n",
        b"99999999999999999999999999\n",
        long.as_bytes(),
    ];
    for format in formats() {
        for content in contents {
            let (_folder, path) = recording(content);
            let said = refusal(&sim(&["replay", "--format", format], &path));
            assert!(said.starts_with(&format!("foretell: {}: ", path.display())), "{said}");
        }
        let said = refusal(&sim(&["replay", "--format", format], folder.path()));
        assert!(said.contains("Is a directory"), "{said}");
    }
}

/// The pipe has no writer: the command waits, as any program does, and can be ended.
#[test]
fn a_pipe_is_read_as_a_file_is() {
    let folder = tempfile::tempdir().expect("a folder");
    let fifo = folder.path().join("fifo");
    assert!(Command::new("mkfifo").arg(&fifo).status().expect("it runs").success());
    let writing = fifo.clone();
    let writer = std::thread::spawn(move || fs::write(writing, "1\n2\n1\n"));
    let words = ["cache", "--format", "blocks", "--capacity", "3", "--policy", "lru", "--hints"];
    let output = sim(&[&words[..], &["none", "--json", "-", "--trace"]].concat(), &fifo);
    let row: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(row["reads"], 3);
    writer.join().expect("it has ended").expect("written");
}
