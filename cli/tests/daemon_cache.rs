//! `foretell daemon --cache`: programs of a user read one cache, whatever becomes of it.

#![allow(clippy::print_stdout)]

mod common;

use std::ffi::OsStr;
use std::fs;
use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::sync::Arc;
use std::time::Duration;

use common::daemon::{Daemon, hello};
use common::{have, is_root, text, wait_until};
use foretell_cache::{CacheOptions, Lent};
use foretell_family::{Place, Recipe, Sharing, Source, Way};
use rustix::process::Signal;
use serde_json::Value;

/// What a process of this program is to do: read all of FILE of the folder, at each line of its standard input.
const ROLE: &str = "FORETELL_CACHE_READS";
/// Names an operation that fails.
const FAILURE: &str = "FORETELL_TEST_FAILURE";
const FILE: &str = "file";
const BYTES: usize = (5 << 20) + 123;
/// Whole blocks.
const FETCHED_BYTES: usize = BYTES.div_ceil(16384) * 16384;

fn content() -> Vec<u8> {
    let word = |at: u32| at.wrapping_mul(0x9e37_79b9).to_le_bytes();
    (0..).flat_map(word).take(BYTES).collect()
}

fn folder_of_data() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::write(folder.path().join(FILE), content()).expect("written");
    folder
}

/// The work of a process with a [`ROLE`].
#[test]
fn reader() {
    let Some(folder) = std::env::var_os(ROLE) else { return };
    std::env::var(FAILURE).into_iter().for_each(foretell_fault::arm_failure);
    let recipe = Recipe {
        place: Place::Folder(folder.into()),
        options: CacheOptions { budget_bytes: 8 << 20, block_bytes: 4096 },
        depth: None,
        deadline: Duration::from_secs(60),
        settings: Vec::new(),
        is_shared: true,
        tier: None,
    };
    let source = Source::of(&recipe, None).expect("a folder");
    let from = source.clone();
    let open = Arc::new(move |path: &OsStr| from.open(path));
    let way = Way::new(&recipe, source.backend(), open).expect("a cache");
    let file = way.open(OsStr::new(FILE)).expect("it is there");
    let wanted = content();
    loop {
        let mut bytes = vec![0; BYTES];
        // SAFETY: the buffer is not used until the read has ended.
        let partly = unsafe { file.read_now(bytes.as_mut_ptr(), BYTES, 0) };
        if let Err(partly) = partly {
            // SAFETY: as above.
            let lent = unsafe { Lent::new(bytes.as_mut_ptr(), BYTES, Arc::new(())) };
            file.read_rest(lent, partly, &mut || false).expect("read");
        }
        assert!(bytes == wanted, "wrong bytes");
        let block_bytes = way.block_bytes();
        // The test harness may have begun a line.
        let Sharing { cache, refusal } = way.sharing();
        let why = refusal.as_ref().map_or("", |refusal| &refusal.why);
        println!("\nread right, in blocks of {block_bytes}, {cache:?}, {why}");
        if std::io::stdin().read_line(&mut String::new()).expect("a line") == 0 {
            return;
        }
    }
}

/// A process that has read the file, and reads it again when it is asked.
struct Reader {
    process: Child,
    asks: Option<ChildStdin>,
    answers: BufReader<ChildStdout>,
    /// Bytes of a block of the cache that it uses, whose that is, and why it is not the daemon's.
    block: String,
    cache: String,
    why: String,
}

impl Reader {
    /// Begins by `before`, words that run a command.
    fn begin_by(before: &[&str], daemon: &Daemon, folder: &Path) -> Self {
        let program = std::env::current_exe().expect("a path");
        let mut command = match before {
            [] => Command::new(program),
            [first, rest @ ..] => {
                let mut command = Command::new(first);
                command.args(rest).arg(program);
                command
            }
        };
        command.args(["--exact", "reader", "--nocapture"]).env(ROLE, folder);
        command.env("FORETELL_DAEMON", daemon.path());
        let mut process =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
        let asks = process.stdin.take();
        let answers = BufReader::new(process.stdout.take().expect("a pipe"));
        let (block, cache, why) = Default::default();
        let mut reader = Reader { process, asks, answers, block, cache, why };
        let answer = reader.answer();
        let mut words = answer.splitn(3, ", ").map(str::to_owned);
        let mut next = || words.next().expect("three words");
        (reader.block, reader.cache, reader.why) = (next(), next(), next());
        reader
    }

    fn begin(daemon: &Daemon, folder: &Path) -> Self {
        Self::begin_by(&[], daemon, folder)
    }

    /// As `begin`, with an operation that fails in the program.
    fn begin_failing(failure: &str, daemon: &Daemon, folder: &Path) -> Self {
        Self::begin_by(&["env", &format!("{FAILURE}={failure}")], daemon, folder)
    }

    fn answer(&mut self) -> String {
        for line in (&mut self.answers).lines() {
            if let Some(block) = line.expect("text").strip_prefix("read right, in blocks of ") {
                return block.to_owned();
            }
        }
        panic!("it has ended: {:?}", self.process.wait());
    }

    fn read_again(&mut self) {
        self.asks.as_mut().expect("not ended").write_all(b"\n").expect("it waits");
        self.answer();
    }

    fn end(mut self) {
        drop(self.asks.take());
        let status = self.process.wait().expect("it ends");
        assert_eq!(status.code(), Some(0));
    }

    /// Whether it uses the daemon's cache, by the size of blocks: its own cache has others.
    fn has_joined(&self) -> bool {
        match (self.block.as_str(), self.cache.as_str()) {
            ("16384", "Daemon") => true,
            ("4096", "Alone" | "Here" | "Other") => false,
            other => panic!("blocks and cache {other:?}"),
        }
    }
}

fn cache_of(daemon: &Daemon) -> Value {
    daemon.status()["cache"].clone()
}

#[test]
fn programs_join_it_and_each_byte_is_fetched_once() {
    let (daemon, data) = (Daemon::start_with(&["--cache", "64MiB"]), folder_of_data());
    let mut readers = [(); 3].map(|()| Reader::begin(&daemon, data.path()));
    assert!(readers.iter().all(Reader::has_joined));
    readers.iter_mut().for_each(Reader::read_again);
    let cache = cache_of(&daemon);
    assert_eq!(cache["counts"]["fetched_bytes"], FETCHED_BYTES, "{cache}");
    assert_eq!((&cache["clients"], &cache["stores"]), (&3.into(), &1.into()), "{cache}");
    assert_eq!(cache["size_bytes"], 64 << 20);
    assert_eq!(cache["filled_bytes"], FETCHED_BYTES, "{cache}");
    let said = text(&daemon.output(&["status"]).stdout);
    assert!(said.contains("cache: 5.0 MiB of 64 MiB filled; "), "{said}");
    assert!(said.contains("3 clients of 1 store"), "{said}");
    // Another folder is another store. A client that is killed leaves nothing.
    let (other, [first, second, mut third]) = (folder_of_data(), readers);
    let more = Reader::begin(&daemon, other.path());
    assert!(more.has_joined());
    third.process.kill().expect("it runs");
    third.process.wait().expect("it ends");
    [first, second, more].into_iter().for_each(Reader::end);
    wait_until("the clients to be gone", || cache_of(&daemon)["clients"] == 0);
    assert_eq!(cache_of(&daemon)["stores"], 2);
    assert_eq!(cache_of(&daemon)["counts"]["fetched_bytes"], 2 * FETCHED_BYTES);
}

#[test]
fn programs_read_on_when_the_daemon_is_killed_or_stops() {
    for signal in [Signal::KILL, Signal::TERM] {
        let mut daemon = Daemon::start_with(&["--cache", "1MiB"]);
        let data = folder_of_data();
        let mut reader = Reader::begin(&daemon, data.path());
        assert!(reader.has_joined(), "though it does not hold the file");
        daemon.signal(signal);
        daemon.process.wait().expect("it ends");
        reader.read_again();
        let left = daemon.path().exists();
        assert_eq!(left, signal == Signal::KILL, "one that was stopped leaves nothing");
        // What is left is no hindrance, neither to a store nor to another daemon.
        let alone = Reader::begin(&daemon, data.path());
        assert!(!alone.has_joined());
        daemon.process = Daemon::begin(daemon.folder.path(), &[]);
        assert_eq!(cache_of(&daemon), Value::Null);
        daemon.signal(Signal::TERM);
        daemon.process.wait().expect("it ends");
        let socket = daemon.path().join("cache.sock");
        assert!(!socket.exists());
        daemon.process = Daemon::begin(daemon.folder.path(), &["--cache", "1MiB"]);
        let joined = Reader::begin(&daemon, data.path());
        assert!(joined.has_joined());
        [reader, alone, joined].into_iter().for_each(Reader::end);
    }
}

#[test]
fn a_daemon_is_not_idle_while_a_program_uses_its_cache() {
    let mut daemon = Daemon::start_with(&["--cache", "64MiB", "--idle-exit", "10s"]);
    let data = folder_of_data();
    let mut reader = Reader::begin(&daemon, data.path());
    assert!(reader.has_joined());
    std::thread::sleep(Duration::from_secs(4));
    assert!(daemon.process.try_wait().expect("a child").is_none(), "it is in use");
    reader.read_again();
    reader.end();
    wait_until("its end", || daemon.process.try_wait().expect("a child").is_some());
    assert!(!daemon.path().exists());
}

#[test]
fn a_wrong_size_is_a_line() {
    let folder = tempfile::tempdir().expect("a folder");
    for (words, said) in [
        (&["--cache", "much"][..], "not a size such as 256MiB"),
        (&["--cache", "1000"], "too small; at least 1MiB"),
        (&["--cache", "900TiB"], "too large; at most"),
        (&["--cache", "1MiB", "--cache-block", "5000"], "a power of two"),
        (&["--cache", "1MiB", "--cache-block", "16MiB"], "does not hold one block"),
        (&["--cache-block", "4KiB"], "--cache"),
    ] {
        let mut command = common::foretell();
        command.arg("daemon").args(words).env("FORETELL_DAEMON", folder.path().join("run"));
        let output = command.output().expect("it runs");
        let lines = text(&output.stderr);
        assert_eq!((output.status.code(), lines.lines().count()), (Some(2), 1), "{lines}");
        assert!(lines.contains(said), "{words:?}: {lines}");
    }
    assert_eq!(fs::read_dir(folder.path()).expect("it is there").count(), 0);
}

#[test]
fn a_program_with_another_view_or_fewer_rights_has_a_cache_of_its_own() {
    let (daemon, data) = (Daemon::start_with(&["--cache", "64MiB"]), folder_of_data());
    let mut tried = 0;
    for before in [&["setpriv", "--no-new-privs"][..], &["unshare", "--mount"]] {
        let can = Command::new(before[0]).args(&before[1..]).arg("true").output();
        if !have(before[0]) || !can.is_ok_and(|it| it.status.success()) {
            continue;
        }
        let reader = Reader::begin_by(before, &daemon, data.path());
        assert!(!reader.has_joined(), "{before:?}");
        assert!(reader.why.starts_with("the daemon's cache is not used: "), "{}", reader.why);
        assert!(reader.why.contains("rights") || reader.why.contains("mounts"), "{}", reader.why);
        reader.end();
        tried += 1;
        assert_eq!(cache_of(&daemon)["refused"], tried);
        let said = text(&daemon.output(&["status"]).stdout);
        assert!(said.contains("refused, and ha"), "{said}");
    }
    if tried == 0 {
        common::skipped("neither setpriv nor unshare can be used");
    }
    assert_eq!(cache_of(&daemon)["stores"], 0);
    // A lower priority is no reason.
    if have("nice") {
        let reader = Reader::begin_by(&["nice"], &daemon, data.path());
        assert!(reader.has_joined());
        reader.end();
    }
}

/// Says something, and returns what is answered.
fn answer_to(socket: &Path, said: &[u8]) -> Vec<u8> {
    let mut stream = UnixStream::connect(socket).expect("it listens");
    stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
    let _ = stream.write_all(said);
    let mut answer = [0; 500];
    let count = stream.read(&mut answer).unwrap_or(0);
    answer[..count].to_vec()
}

#[test]
fn another_user_and_other_words_are_refused() {
    let (daemon, data) = (Daemon::start_with(&["--cache", "64MiB"]), folder_of_data());
    let (socket, said) = (daemon.path().join("cache.sock"), hello(data.path()));
    assert_eq!(fs::metadata(&socket).expect("a socket").mode() & 0o777, 0o600);
    let (welcome, refused) = (0, 5);
    let kind = |said: &[u8]| answer_to(&socket, said).get(4).copied();
    assert_eq!(kind(&said), Some(welcome), "this user is welcome");
    let mut of_another_version = said.clone();
    of_another_version[5] += 1;
    assert_eq!(kind(&of_another_version), Some(refused), "with a reason");
    wait_until("it is counted", || cache_of(&daemon)["refused"] == 1);
    for wrong in [&b"GET / HTTP/1.0\r\n\r\n"[..], &u32::MAX.to_ne_bytes()] {
        assert_eq!(kind(wrong), None);
    }
    // Silent clients cost themselves.
    let _silent: Vec<UnixStream> =
        (0..20).map(|_| UnixStream::connect(&socket).expect("it listens")).collect();
    assert_eq!(kind(&said), Some(welcome));
    if !is_root() {
        return;
    }
    // Even if the folder and the socket were open to all.
    fs::set_permissions(daemon.path(), fs::Permissions::from_mode(0o755)).expect("set");
    fs::set_permissions(&socket, fs::Permissions::from_mode(0o666)).expect("set");
    let of_other = std::thread::spawn(move || {
        const NOBODY: libc::c_long = 65534;
        // SAFETY: a plain system call, which changes the user of this thread alone.
        let result = unsafe { libc::syscall(libc::SYS_setresuid, NOBODY, NOBODY, NOBODY) };
        assert_eq!(result, 0);
        answer_to(&socket, &said)
    });
    assert!(of_other.join().expect("it ends").is_empty(), "another user hears nothing");
    assert!(cache_of(&daemon)["stores"] == 1);
}

/// A daemon in which an operation fails.
fn failing_daemon(failure: &str) -> Daemon {
    let folder = tempfile::tempdir().expect("a folder");
    let mut daemon = common::foretell();
    daemon.args(["daemon", "--cache", "64MiB"]).env(FAILURE, failure);
    let process = Daemon::begin_by(folder.path(), daemon);
    Daemon { folder, process }
}

#[test]
fn whatever_fails_in_the_daemon_programs_read_right() {
    let data = folder_of_data();
    // Without descriptors for a ring, nobody joins.
    let daemon = failing_daemon("cache-ring");
    let mut reader = Reader::begin(&daemon, data.path());
    assert!(!reader.has_joined());
    assert!(reader.why.contains("cannot take one more client: "), "{}", reader.why);
    reader.read_again();
    reader.end();
    assert_eq!(cache_of(&daemon)["clients"], 0);
    wait_until("it is counted", || cache_of(&daemon)["refused"] == 1);
    // Without threads for opens, programs that have joined open files by themselves.
    let daemon = failing_daemon("cache-open");
    let mut reader = Reader::begin(&daemon, data.path());
    assert!(reader.has_joined());
    reader.read_again();
    reader.end();
    assert_eq!(cache_of(&daemon)["counts"]["fetched_bytes"], 0);
    // Without memory there is no daemon, and a line says so.
    let folder = tempfile::tempdir().expect("a folder");
    let mut command = common::foretell();
    command.args(["daemon", "--cache", "64MiB"]).env(FAILURE, "cache-memory");
    let output = command.env("FORETELL_DAEMON", folder.path()).output().expect("it runs");
    let lines = text(&output.stderr);
    assert_eq!((output.status.code(), lines.lines().count()), (Some(1), 1), "{lines}");
    assert!(lines.contains("--cache: "), "{lines}");
}

#[test]
fn whatever_fails_in_a_program_it_reads_right() {
    let (daemon, data) = (Daemon::start_with(&["--cache", "64MiB"]), folder_of_data());
    let mut reader = Reader::begin_failing("cache-map", &daemon, data.path());
    assert_eq!(reader.cache, "Here");
    assert!(reader.why.contains("cannot map it"), "{}", reader.why);
    reader.read_again();
    reader.end();
    // A full ring loses what the policy would have heard.
    let mut reader = Reader::begin_failing("cache-ring-full", &daemon, data.path());
    assert!(reader.has_joined());
    let before = cache_of(&daemon)["counts"]["hit_blocks"].clone();
    (0..3).for_each(|_| reader.read_again());
    reader.end();
    assert_eq!(cache_of(&daemon)["counts"]["hit_blocks"], before);
    // Without a daemon, and without memory that others can map, it has a cache of its own.
    let folder = tempfile::tempdir().expect("a folder");
    let nowhere = Daemon { folder, process: Command::new("true").spawn().expect("it runs") };
    let mut reader = Reader::begin_failing("cache-memory", &nowhere, data.path());
    assert_eq!(reader.cache, "Alone");
    assert!(reader.why.starts_with("it is not shared: "), "{}", reader.why);
    reader.read_again();
    reader.end();
}

#[test]
fn programs_that_vanish_while_they_join_leave_nothing() {
    let (daemon, data) = (Daemon::start_with(&["--cache", "64MiB"]), folder_of_data());
    let (socket, said) = (daemon.path().join("cache.sock"), hello(data.path()));
    for round in 0..100 {
        let mut stream = UnixStream::connect(&socket).expect("it listens");
        // Before, within and after the hello.
        let said = &said[..said.len() * (round % 5) / 4];
        let _ = stream.write_all(said);
        if round % 10 == 4 {
            // It is welcome, and has the descriptors.
            assert!(stream.read(&mut [0; 100]).expect("an answer") > 0);
        }
    }
    wait_until("nobody is left", || cache_of(&daemon)["clients"] == 0);
    let mut reader = Reader::begin(&daemon, data.path());
    assert!(reader.has_joined());
    reader.read_again();
    reader.end();
    let cache = cache_of(&daemon);
    // One that the others and one that the reader has asked for, in other words.
    assert_eq!((&cache["stores"], &cache["refused"]), (&2.into(), &0.into()));
}
