//! A program behaves the same with and without the interposing library, and the records name exactly
//! the ranges that it read.

mod support;

use std::io::{Seek as _, SeekFrom};
use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;

use foretell_protocol::{FileVersion, Listener, Record, RecordKind};
use support::{Observed, Session};

/// A program and a file of lines for it.
struct Setting {
    program: PathBuf,
    file: PathBuf,
    size: u64,
    _folder: tempfile::TempDir,
}

impl Setting {
    fn new() -> Self {
        let program = support::c_program("access", &["-Wno-unused-result"]);
        let folder = tempfile::tempdir().expect("folder");
        let file = folder.path().join("lines");
        let text: String = (0..2500).map(|i| format!("{i} {}\n", "word ".repeat(i % 37))).collect();
        std::fs::write(&file, &text).expect("file");
        Self { program, file, size: text.len() as u64, _folder: folder }
    }

    fn command(&self, way: &str) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(way).arg(&self.file);
        command
    }

    /// Runs with and without the library and demands the same output.
    fn observe(&self, way: &str) -> Observed {
        self.observe_with(way, true)
    }

    fn observe_with(&self, way: &str, interest: bool) -> Observed {
        let plain = self.command(way).output().expect("program");
        let observed = support::observe(&mut self.command(way), interest);
        assert_eq!(
            String::from_utf8_lossy(&observed.output.stdout),
            String::from_utf8_lossy(&plain.stdout)
        );
        assert_eq!(observed.output.stderr, plain.stderr);
        assert_eq!(observed.output.status, plain.status);
        assert!(plain.status.success(), "{way}: {}", String::from_utf8_lossy(&plain.stdout));
        observed
    }

    /// The ranges of the file that a session read. The other fields of each record are checked.
    fn ranges(&self, session: &Session) -> Vec<(u64, u64)> {
        let metadata = std::fs::metadata(&self.file).expect("file");
        let reads = session.records.iter().filter(|record| record.kind == RecordKind::Read);
        reads
            .filter(|record| record.inode == metadata.ino() && record.device == metadata.dev())
            .map(|record| (record.offset_bytes, record.length_bytes))
            .collect()
    }

    fn ranges_of_only(&self, observed: &Observed) -> Vec<(u64, u64)> {
        assert_eq!(observed.sessions.len(), 1, "{observed:?}");
        self.ranges(&observed.sessions[0])
    }

    /// A whole file read front to back through a buffer.
    fn assert_whole_file(&self, way: &str) {
        let observed = self.observe(way);
        let mut expected_offset = 0;
        for (offset, length) in self.ranges_of_only(&observed) {
            assert_eq!(offset, expected_offset, "{way}");
            expected_offset += length;
        }
        assert_eq!(expected_offset, self.size, "{way}");
        let counters = observed.sessions[0].counters;
        assert!(counters.read_bytes >= self.size, "{way}: {counters:?}");
        let reads = observed.sessions[0].records.iter();
        let mut reads = reads.filter(|record: &&Record| record.kind == RecordKind::Read);
        assert!(reads.all(|record| record.flags.is_stdio()), "{way}");
        let quiet = self.observe_with(way, false);
        assert!(quiet.sessions[0].records.is_empty());
        let bytes = quiet.sessions[0].counters.read_bytes;
        assert!(bytes >= self.size && bytes <= self.size + 4096, "{way}: {bytes}");
    }
}

#[test]
fn reads_and_seeks() {
    let setting = Setting::new();
    let observed = setting.observe("read");
    assert_eq!(setting.ranges_of_only(&observed), [(0, 100), (100, 200), (5000, 50)]);
    let counters = observed.sessions[0].counters;
    assert_eq!((counters.read_calls, counters.read_bytes), (3, 350));
    assert_eq!(counters.open_calls, 1);
    assert_eq!(
        observed.sessions[0].comm,
        setting.program.file_name().unwrap().to_string_lossy()[..15]
    );
    let opens = observed.sessions[0].records.iter().filter(|r| r.kind == RecordKind::Open);
    let metadata = std::fs::metadata(&setting.file).expect("file");
    let modified_ns = metadata.mtime() * 1_000_000_000 + metadata.mtime_nsec();
    let version = FileVersion { size_bytes: setting.size, modified_ns };
    assert_eq!(opens.map(Record::opened_version).collect::<Vec<_>>(), [Some(version)]);
    let reads = observed.sessions[0].records.iter().filter(|r| r.kind == RecordKind::Read);
    assert!(reads.map(Record::opened_version).all(|version| version.is_none()));
}

#[test]
fn counters_only_without_interest() {
    let setting = Setting::new();
    let observed = setting.observe_with("read", false);
    assert_eq!(observed.sessions[0].records, []);
    assert_eq!(observed.sessions[0].counters.read_bytes, 350);
}

#[test]
fn positioned_and_vectored_reads() {
    let setting = Setting::new();
    let observed = setting.observe("positioned");
    let expected = [(1000, 10), (2000, 30), (3000, 30), (0, 30), (30, 30), (60, 5)];
    assert_eq!(setting.ranges_of_only(&observed), expected);
}

#[test]
fn asynchronous_reads() {
    let setting = Setting::new();
    let observed = setting.observe("asynchronous");
    assert_eq!(setting.ranges_of_only(&observed), [(1000, 10), (3000, 20), (0, 5)]);
    for interest in [false, true] {
        let counters = setting.observe_with("asynchronous", interest).sessions[0].counters;
        assert_eq!((counters.read_calls, counters.read_bytes), (3, 35));
    }
}

#[test]
fn copies_within_the_kernel() {
    let setting = Setting::new();
    let observed = setting.observe("copy");
    let moving = [(0, 100), (100, 200), (300, 10), (310, 20), (330, 1000), (1330, 5)];
    let (at_offset, moved): (Vec<_>, Vec<_>) =
        setting.ranges_of_only(&observed).into_iter().partition(|range| range.0 >= 5000);
    assert_eq!(at_offset, [(5000, 50), (5050, 30)]);
    assert_eq!(moved, moving);
    let quiet = setting.observe_with("copy", false);
    let of_file = moving.iter().map(|range| range.1).sum::<u64>() + 80;
    let of_copy = 200 + 100 + 1000;
    assert_eq!(quiet.sessions[0].counters.read_bytes, of_file + of_copy);
}

#[test]
fn stdio_reads_whole_files() {
    let setting = Setting::new();
    for way in ["fread", "lines", "getline", "getc", "unlocked", "scan", "wide", "wide-lines"] {
        setting.assert_whole_file(way);
    }
}

#[test]
fn stdio_seeks() {
    let setting = Setting::new();
    let observed = setting.observe("seek");
    let ranges = setting.ranges_of_only(&observed);
    assert_eq!(ranges.first(), Some(&(0, 4096)));
    assert!(ranges.contains(&(40960, 4096)), "{ranges:?}");
    assert_eq!(ranges.last(), Some(&(0, 4096)));
}

#[test]
fn streams_without_a_descriptor_are_left_alone() {
    let setting = Setting::new();
    assert_eq!(setting.observe("no-descriptor").sessions.len(), 0, "nothing is to be announced");
}

#[test]
fn an_inherited_descriptor_is_adopted_where_it_stands() {
    let setting = Setting::new();
    let run = |watched: bool| {
        let mut command = setting.command("stdin");
        let mut file = std::fs::File::open(&setting.file).expect("file");
        file.seek(SeekFrom::Start(1000)).expect("seek");
        command.stdin(file);
        watched.then(|| support::observe(&mut command, true)).ok_or_else(|| command.output())
    };
    let plain = run(false).expect_err("plain").expect("program");
    let observed = run(true).expect("watched");
    assert_eq!(observed.output.stdout, plain.stdout);
    let ranges = setting.ranges_of_only(&observed);
    assert_eq!(ranges.first().map(|range| range.0), Some(1000));
    assert_eq!(ranges.last().map(|range| range.0 + range.1), Some(setting.size));
}

#[test]
fn a_descriptor_that_is_written_too_asks_the_kernel() {
    let setting = Setting::new();
    let observed = setting.observe("read-write");
    let reads = observed.sessions[0].records.iter().filter(|r| r.kind == RecordKind::Read);
    let ranges: Vec<_> = reads.map(|r| (r.offset_bytes, r.length_bytes)).collect();
    assert_eq!(ranges, [(2, 3), (6, 2)]);
}

#[test]
fn duplicated_descriptors_share_their_position() {
    let setting = Setting::new();
    let observed = setting.observe("duplicate");
    let expected = [(0, 100), (100, 50), (150, 25), (175, 10), (185, 5)];
    assert_eq!(setting.ranges_of_only(&observed), expected);
}

#[test]
fn forked_children_have_a_ring_of_their_own() {
    let setting = Setting::new();
    let observed = setting.observe("fork");
    assert_eq!(observed.sessions.len(), 2);
    assert_ne!(observed.sessions[0].pid, observed.sessions[1].pid);
    assert_eq!(setting.ranges(&observed.sessions[0]), [(0, 100), (150, 25)]);
    assert_eq!(setting.ranges(&observed.sessions[1]), [(100, 50)]);
}

#[test]
fn a_forked_child_that_only_reads_is_counted_with_its_parent() {
    let setting = Setting::new();
    let observed = setting.observe_with("fork", false);
    let [session] = &observed.sessions[..] else { panic!("{observed:?}") };
    assert_eq!((session.counters.read_calls, session.counters.read_bytes), (3, 175));
}

/// A wait for a regular file counts as a stall, and a wait for anything else does not. This holds also
/// if the descriptor's kind was not looked up before it was closed or the process ended.
#[test]
fn stalls_are_those_of_regular_files() {
    let setting = Setting::new();
    let program = support::c_program("one_read", &[]);
    let slow = support::crate_folder().join("tests/c/slow.c");
    let slow = support::compile(&slow, &["-shared", "-fPIC"]);
    let preload = format!("LD_PRELOAD={}:{}", support::preload_library().display(), slow.display());
    for interest in [false, true] {
        for end in ["close", "exit", "_exit", "fork", "duplicate"] {
            let file = setting.file.to_str().expect("plain path");
            for (path, stalls) in [(file, 1), ("/dev/zero", 0), ("-", 1)] {
                let mut command = Command::new("env");
                command.arg(&preload).arg(&program).args([path, end]);
                command.stdin(std::fs::File::open(&setting.file).expect("file"));
                let observed = support::observe(&mut command, interest);
                assert!(observed.output.status.success(), "{path} {end}: {observed:?}");
                let name = program.file_name().unwrap().to_string_lossy();
                let of_program = |session: &&Session| name.starts_with(&session.comm);
                let counters = observed.sessions.iter().filter(of_program);
                let (count, ns) = counters.fold((0, 0), |(count, ns), session| {
                    let counters = session.counters;
                    (count + counters.read_stalls, ns + counters.read_stall_ns)
                });
                assert_eq!(count, stalls, "{path} {end}, interest {interest}");
                assert_eq!(ns >= 1_000_000, stalls > 0, "{path} {end}: {ns} ns");
            }
        }
    }
}

#[test]
fn raw_forks_do_not_disturb_the_parent() {
    let setting = Setting::new();
    let observed = setting.observe("raw-fork");
    let ranges = setting.ranges_of_only(&observed);
    assert_eq!(ranges[0], (0, 100));
    assert_eq!(ranges.len(), 2); // the child's reads are not recorded
}

#[test]
fn a_process_in_its_parents_memory_claims_no_descriptor() {
    let setting = Setting::new();
    // It is told apart from its first open on. Both move one position.
    let ranges = setting.ranges_of_only(&setting.observe("beside"));
    assert_eq!(ranges, [(0, 100), (100, 50), (157, 25)]);
}

#[test]
fn vfork_and_exec() {
    let setting = Setting::new();
    let observed = setting.observe("vfork");
    assert_eq!(observed.sessions.len(), 2);
    assert_eq!(setting.ranges(&observed.sessions[0]), [(0, 100), (100, 25)]);
    assert_eq!(setting.ranges(&observed.sessions[1]), [(0, 100), (100, 200), (5000, 50)]);
}

#[test]
fn spawned_children_are_seen_even_with_an_emptied_environment() {
    let setting = Setting::new();
    let observed = setting.observe("spawn");
    // The parent, which reads nothing, does not announce itself.
    assert_eq!(observed.sessions.len(), 2);
    for child in &observed.sessions {
        assert_eq!(setting.ranges(child), [(0, 100), (100, 200), (5000, 50)]);
    }
}

#[test]
fn every_exec_function_hands_the_environment_on() {
    let setting = Setting::new();
    let observed = setting.observe("exec");
    let readers = observed.sessions.iter().filter(|session| !session.records.is_empty());
    assert_eq!(readers.filter(|reader| setting.ranges(reader).len() == 3).count(), 8);
}

#[test]
fn environments_by_the_table_in_environment_c() {
    let setting = Setting::new();
    let ours = support::preload_library().to_str().expect("plain path").to_owned();
    let other = "/lib/x86_64-linux-gnu/libm.so.6";
    let listener = Listener::bind().expect("a name to hand on");
    let dead = format!("FORETELL_SOCKET={}", listener.address());
    // `observe` gives the first program its address; "SOCKET" stands for it below.
    let cases: [(&str, &[&str], bool); 8] = [
        ("emptied", &[], true),
        ("other libraries", &["LD_PRELOAD=OTHER"], true),
        ("other libraries, another manager", &["SOCKET", "LD_PRELOAD=OTHER"], true),
        ("no library, another manager", &["SOCKET", "LD_PRELOAD="], true),
        ("this library", &["LD_PRELOAD=OURS"], true),
        ("other variables", &["A=1", "LD_PRELOAD_NOT=1", "FORETELL_SOCKET_NOT=1"], true),
        ("to be left alone", &["A=1", "FORETELL_SOCKET=", "B=1"], false),
        ("decided by another run", &["FORETELL_PRELOAD=1"], false),
    ];
    for (case, variables, seen) in cases {
        let mut command = setting.command("env");
        for variable in variables {
            let variable = if *variable == "SOCKET" { &dead } else { *variable };
            command.arg(variable.replace("OTHER", other).replace("OURS", &ours));
        }
        // The first program reads nothing, and announces itself if it leaves the second one alone. The second one announces
        // itself to the same manager, or to the address that its environment names.
        let observed = support::observe(&mut command, true);
        assert!(observed.output.status.success(), "{case}");
        let has_read = |session: &&support::Session| !session.records.is_empty();
        let mut sessions = observed.sessions.iter().filter(has_read).count();
        while let Some(mut connection) = listener.accept().expect("accept") {
            sessions += usize::from(connection.receive().expect("message").is_some());
        }
        assert_eq!(sessions == 1, seen, "{case}");
    }
    let observed = support::observe(&mut setting.command("large-env"), true);
    assert_eq!(observed.sessions.len(), 1, "an environment too large for the stack");
}

#[test]
fn a_failed_exec_leaves_everything_working() {
    let setting = Setting::new();
    let observed = setting.observe("exec-fails");
    assert_eq!(setting.ranges_of_only(&observed), [(0, 100), (100, 200), (5000, 50)]);
}

#[test]
fn closing_all_descriptors() {
    let setting = Setting::new();
    let observed = setting.observe("closefrom");
    assert_eq!(setting.ranges_of_only(&observed), [(0, 10), (0, 20), (0, 30)]);
}

#[test]
fn more_descriptors_than_a_table_page() {
    let setting = Setting::new();
    assert_eq!(setting.ranges_of_only(&setting.observe("many")), [(0, 10)]);
}

#[test]
fn threads_lose_nothing() {
    let setting = Setting::new();
    let observed = setting.observe("threads");
    let session = &observed.sessions[0];
    assert_eq!(session.counters.read_bytes, 8 * setting.size);
    let recorded: u64 = setting.ranges(session).iter().map(|range| range.1).sum();
    if session.counters.dropped_records == 0 {
        assert_eq!(recorded, 8 * setting.size);
    }
}

#[test]
fn errno_interruption_cancellation_and_descriptors_are_the_programs_own() {
    let setting = Setting::new();
    for way in ["errno", "interrupt", "descriptors"] {
        setting.observe(way);
        setting.observe_with(way, false);
    }
}

#[test]
fn a_full_ring_drops_and_counts() {
    let setting = Setting::new();
    let plain = setting.command("flood").output().expect("program");
    // The manager accepts nothing until the program has ended.
    let listener = Listener::bind().expect("listener");
    let mut command = setting.command("flood");
    support::watch(&mut command, listener.address(), true);
    let output = command.output().expect("program");
    assert_eq!((output.status, output.stdout), (plain.status, plain.stdout));
    let mut connection = listener.accept().expect("accept").expect("announced");
    let Ok(Some(foretell_protocol::Message::Hello(hello))) = connection.receive() else {
        panic!("no hello")
    };
    let mut reader = foretell_protocol::RingReader::map(hello.ring).expect("ring");
    let mut offsets = Vec::new();
    assert_eq!(reader.drain_to_end(|record| offsets.push(record.offset_bytes)), 2048);
    // The first record is the open.
    assert!(offsets[1..].iter().copied().eq(0..2047));
    let counters = reader.counters();
    assert_eq!(counters.dropped_records, 100_001 - 2048);
    assert_eq!(counters.read_calls, 100_000);
}

#[test]
fn a_dead_or_absent_manager_changes_nothing() {
    let setting = Setting::new();
    let plain = setting.command("read").output().expect("program").stdout;
    let address = Listener::bind().expect("listener").address().to_owned(); // dropped at once
    for address in [address.as_str(), "", "no/such/manager", &"x".repeat(500)] {
        let mut command = setting.command("read");
        support::watch(&mut command, address, true);
        let output = command.output().expect("program");
        assert_eq!(output.stdout, plain);
        assert!(output.stderr.is_empty());
    }
    let mut command = setting.command("read");
    command.env("LD_PRELOAD", support::preload_library()).env_remove("FORETELL_SOCKET");
    assert_eq!(command.output().expect("program").stdout, plain);
}
