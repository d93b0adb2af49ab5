//! `foretell daemon` among clients that lie, are silent, or never stop: they cost themselves only.
//!
//! The valid packets are those of a real `foretell run`, which a socket in the daemon's place takes down. Cases damage them,
//! and send other files with them.

mod attacked;
mod common;

use std::fs::File;
use std::io::{Read, Write};
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::process::Stdio;
use std::time::Duration;

use attacked::{Attacked, FILES_MAX, answer, letter, new_socket, send, taken_down};
use common::{have, skipped, text, wait_until};
use foretell_fault::damage::{Damage, cases};
use rustix::event::{EventfdFlags, eventfd};
use rustix::fs::{CWD, FileType, Mode, OFlags};
use rustix::pipe::{PipeFlags, pipe_with};
use serde_json::Value;

/// Packets that are usually sent; `scripts/check-deep` sends more.
const CASES: u64 = 400;

/// Files of all kinds that a client may have.
fn odd_files(folder: &Path) -> Vec<OwnedFd> {
    let open = |path: &Path| OwnedFd::from(File::open(path).expect("it is there"));
    let path_only = rustix::fs::open("/etc/passwd", OFlags::PATH | OFlags::CLOEXEC, Mode::empty());
    // Its reader is a writer, too.
    let fifo = folder.join("fifo");
    let _ = std::fs::remove_file(&fifo);
    rustix::fs::mknodat(CWD, &fifo, FileType::Fifo, Mode::RWXU, 0).expect("made");
    let fifo = rustix::fs::open(&fifo, OFlags::RDWR | OFlags::CLOEXEC, Mode::empty());
    let (reader, writer) = pipe_with(PipeFlags::CLOEXEC).expect("a pipe");
    let (one, other) = UnixStream::pair().expect("a pair");
    vec![
        open(Path::new("/dev/zero")),
        open(Path::new("/dev/null")),
        open(Path::new("/etc/passwd")),
        open(folder),
        path_only.expect("it is there"),
        reader,
        writer,
        one.into(),
        other.into(),
        eventfd(0, EventfdFlags::CLOEXEC).expect("a descriptor"),
        rustix::event::epoll::create(rustix::event::epoll::CreateFlags::CLOEXEC).expect("one"),
        new_socket(),
        letter(b"{}"),
        fifo.expect("it is there"),
    ]
}

/// Words that no damage makes.
fn odd_words(damage: &mut Damage) -> Vec<u8> {
    match damage.below(6) {
        0 => vec![b'['; 1 << damage.below(22)],
        1 => [b"\"".to_vec(), vec![b'a'; 1 << damage.below(22)]].concat(),
        2 => format!("[{}0]", "0,".repeat(1 << damage.below(18))).into_bytes(),
        3 => (0..damage.below(5000)).map(|_| damage.number() as u8).collect(),
        4 => Vec::new(),
        _ => b"\"Status\"".repeat(damage.below(4)),
    }
}

/// Sends a damaged packet. Every other time the answer is awaited and returned.
fn send_one(
    attacked: &Attacked,
    packets: &[attacked::Packet],
    odd: &[OwnedFd],
    number: u64,
) -> Option<String> {
    let mut damage = Damage::of_case(number);
    let packet = damage.one_of(packets);
    let mut words = match damage.below(8) {
        0 => odd_words(&mut damage),
        1 => b"\"Status\"".to_vec(),
        _ => packet.words.clone(),
    };
    if damage.below(2) > 0 {
        damage.apply(&mut words, &damage.clone().one_of(packets).words);
    }
    let mut head = packet.head.clone();
    if damage.below(20) == 0 {
        damage.apply(&mut head, b"foretell");
    }
    let letter = match damage.below(20) {
        0 => damage.one_of(odd).try_clone().expect("a descriptor"),
        1 => {
            // More than may be: sparse, so that it costs this process nothing.
            let large = letter(b"{");
            rustix::fs::ftruncate(&large, 1 << (20 + damage.below(20))).expect("sparse");
            large
        }
        _ => letter(&words),
    };
    // A run that is taken ends when its pipe is closed.
    let [(ends, told), (_report, reporter)] =
        [(); 2].map(|()| pipe_with(PipeFlags::CLOEXEC).expect("a pipe"));
    let mut files: Vec<BorrowedFd<'_>> = vec![letter.as_fd()];
    // Not both: the report's pipe would keep the other one open, and the run would go on with this process.
    let mut own = [ends.as_fd(), reporter.as_fd()];
    if let at @ ..2 = damage.below(12) {
        own[at] = damage.one_of(odd).as_fd();
    }
    files.extend(own);
    for file in packet.files.iter().skip(own.len()) {
        let file = if damage.below(12) == 0 { damage.one_of(odd) } else { file };
        files.push(file.as_fd());
    }
    match damage.below(10) {
        0 => files.truncate(damage.below(files.len() + 1)),
        1 => files.extend((0..damage.below(20)).map(|_| damage.clone().one_of(odd).as_fd())),
        _ => {}
    }
    files.truncate(FILES_MAX);
    let socket = attacked.connected();
    for _ in 0..=damage.below(3) {
        send(&socket, &head, &files);
    }
    let answer = number.is_multiple_of(2).then(|| answer(&socket)).flatten();
    let _ = rustix::io::write(&told, &[0, 1, 0xff][..damage.below(3)]);
    answer
}

#[test]
fn damaged_requests_cost_their_senders_only() {
    let list = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(list.path(), "/etc/passwd\n/etc/group\n").expect("written");
    let list = list.path().to_str().expect("text");
    let packets = [
        taken_down(&[]),
        taken_down(&["--hints", list]),
        taken_down(&["--observe", "opens", "--json", "/dev/null"]),
    ];
    // One in place would end with this process.
    assert!(packets.iter().all(|packet| text(&packet.words).contains("\"reports\":true")));
    let folder = tempfile::tempdir().expect("a folder");
    let mut odd = odd_files(folder.path());
    let attacked = Attacked::start();
    let (count, mut taken, mut refused) = (cases(CASES), 0, 0);
    for number in 0..count {
        let answer = send_one(&attacked, &packets, &odd, number).unwrap_or_default();
        taken += u64::from(answer.starts_with("{\"Taken\""));
        refused += u64::from(answer.starts_with("{\"Refused\""));
        if number % 100 == 99 {
            // A run that waits for one of these goes on until it is closed.
            odd = odd_files(folder.path());
            attacked.serves(number);
        }
    }
    assert!(
        taken >= count / 100 && refused >= count / 200,
        "{taken} taken, {refused} refused of {count}"
    );
    drop((packets, odd));
    attacked.must_be_as_before();
}

#[test]
fn very_many_questions_and_connections_leave_nothing() {
    let attacked = Attacked::start();
    let head = taken_down(&[]).head;
    let status = letter(b"\"Status\"");
    let count = cases(CASES).clamp(1_000, 100_000);
    for number in 0..count {
        let socket = attacked.connected();
        match number % 4 {
            0 => send(&socket, &head, &[status.as_fd()]),
            1 => send(&socket, &head, &[]),
            2 => send(&socket, &head[..1], &[status.as_fd()]),
            _ => {} // It has nothing to say.
        }
        if number % (count / 4) == count / 8 {
            attacked.serves(number);
        }
    }
    // One connection that asks without an end.
    let socket = attacked.connected();
    (0..count).for_each(|_| send(&socket, &head, &[status.as_fd()]));
    drop(socket);
    attacked.must_be_as_before();
}

/// Each of many processes connects as often as it can, and says nothing.
#[test]
fn silent_clients_keep_no_other_out() {
    if !Path::new("/usr/bin/python3").exists() {
        return skipped("no python3");
    }
    let attacked = Attacked::start();
    let path = attacked.daemon.path().join("daemon.sock");
    let script = "import socket, sys, time
held = []
for _ in range(8):
    one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    one.setblocking(False)
    try: one.connect(sys.argv[1])
    except BlockingIOError: continue
    held.append(one)
print('held', flush=True)
sys.stdin.read()";
    let mut clients: Vec<_> = (0..24)
        .map(|_| {
            let mut client = std::process::Command::new("/usr/bin/python3");
            client.args(["-c", script]).arg(&path).stdin(Stdio::piped()).stdout(Stdio::piped());
            client.spawn().expect("it runs")
        })
        .collect();
    for client in &mut clients {
        let mut said = [0; 5];
        client.stdout.as_mut().expect("a pipe").read_exact(&mut said).expect("it is there");
    }
    // 96 connections would be allowed by the bound of each process.
    attacked.serves(0);
    attacked.is_managed();
    let (descriptors, _) = attacked.counts();
    assert!(descriptors <= attacked.descriptors + 2 * 64 + 8, "{descriptors}");
    drop(clients.iter_mut().map(|client| client.stdin.take()).collect::<Vec<_>>());
    clients.into_iter().for_each(|mut client| assert!(client.wait().expect("it ends").success()));
    attacked.must_be_as_before();
}

/// Half requests for metrics, and clients that do not read the answers.
#[test]
fn slow_readers_of_metrics_leave_nothing() {
    let attacked = Attacked::start();
    let path = attacked.daemon.path().join("metrics.sock");
    let get = "GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n";
    let mut held = Vec::new();
    for number in 0..200usize {
        let Ok(mut stream) = UnixStream::connect(&path) else { break };
        let mut bytes = get.as_bytes().to_vec();
        let mut damage = Damage::of_case(number as u64);
        match number % 4 {
            0 => bytes.truncate(damage.below(bytes.len())),
            1 => damage.apply(&mut bytes, b"POST / HTTP/1.0\r\nContent-Length: 99\r\n\r\n"),
            _ => {}
        }
        let _ = stream.write_all(&bytes);
        // As many as are served at a time.
        if number < 16 {
            held.push(stream);
        }
    }
    attacked.serves(0);
    let mut answer = String::new();
    // Those who hold it up are given up after some seconds.
    wait_until("an answer", || {
        answer.clear();
        let mut stream = UnixStream::connect(&path).expect("it listens");
        let is_written = stream.write_all(get.as_bytes()).is_ok();
        stream.set_read_timeout(Some(Duration::from_secs(30))).expect("set");
        is_written && stream.read_to_string(&mut answer).is_ok() && !answer.is_empty()
    });
    assert!(answer.contains("foretell_runs_total"), "{answer}");
    drop(held);
    attacked.must_be_as_before();
}

/// Runs whose processes end, while others hold both ends of their pipes: they take out what is meant for the daemon, and never
/// read what it says.
#[test]
fn pipes_that_others_hold_leave_no_thread() {
    if !Path::new("/usr/bin/python3").exists() {
        return skipped("no python3");
    }
    let attacked = Attacked::start();
    let path = attacked.daemon.path().join("daemon.sock");
    let packet = taken_down(&[]);
    let words = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(words.path(), &packet.words).expect("written");
    let script = "import os, socket, sys
letter = os.memfd_create('x')
os.write(letter, open(sys.argv[3], 'rb').read())
(told, control), (report, reporter) = os.pipe(), os.pipe()
os.set_blocking(reporter, False)
try:
    while True: os.write(reporter, b'x' * 4096)
except BlockingIOError: pass
os.set_blocking(reporter, True)
daemon = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
daemon.connect(sys.argv[1])
socket.send_fds(daemon, [sys.argv[2].encode()], [letter, told, reporter])
answer = os.fdopen(socket.recv_fds(daemon, 64, 4)[1][0], 'rb')
thief = os.open(f'/proc/self/fd/{told}', os.O_RDONLY | os.O_NONBLOCK)
if os.fork():
    print(answer.seek(0) or answer.read().decode(), flush=True)
    for at in range(2000):
        try: os.write(control, b'\\1') and os.read(thief, 1)
        except BlockingIOError: pass
    os._exit(0)
os.close(1)
sys.stdin.read()";
    let mut clients: Vec<_> = (0..20)
        .map(|_| {
            let mut client = std::process::Command::new("/usr/bin/python3");
            client.args(["-c", script]).arg(&path);
            client.arg(str::from_utf8(&packet.head).expect("text")).arg(words.path());
            let mut client =
                client.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("it runs");
            let mut answer = String::new();
            client.stdout.as_mut().expect("a pipe").read_to_string(&mut answer).expect("text");
            assert!(answer.contains("Taken"), "{answer}");
            client
        })
        .collect();
    attacked.must_be_as_before();
    clients.iter_mut().for_each(|client| assert!(client.wait().expect("it ends").success()));
}

/// A client whose words are those of a run, and whose files are not, gets a refusal.
#[test]
fn files_that_are_not_those_of_a_run_are_refused() {
    let attacked = Attacked::start();
    let refused = || -> u64 {
        let status: Value = attacked.daemon.status();
        status["refused_runs"].as_u64().expect("a number")
    };
    let odd = odd_files(attacked.daemon.folder.path());
    for at in 0..3 {
        let packet = taken_down(&[]);
        let before = refused();
        let words = letter(&packet.words);
        let [(ends, _told), (_report, reporter)] =
            [(); 2].map(|()| pipe_with(PipeFlags::CLOEXEC).expect("a pipe"));
        let mut files = vec![ends.as_fd(), reporter.as_fd()];
        match at {
            0 => files[0] = odd[9].as_fd(), // An eventfd.
            1 => files[1] = odd[0].as_fd(),
            _ => files.push(odd[0].as_fd()),
        }
        files.insert(0, words.as_fd());
        let socket = attacked.connected();
        send(&socket, &packet.head, &files);
        wait_until("a refusal", || refused() == before + 1);
    }
    drop(odd);
    attacked.must_be_as_before();
}

/// A process that may not have runs managed has few words read: what it says at length is refused before it is looked at.
#[test]
fn long_words_of_a_confined_process_are_not_read() {
    if !have("setpriv") || !Path::new("/usr/bin/python3").exists() {
        return skipped("no setpriv or python3");
    }
    let attacked = Attacked::start();
    let path = attacked.daemon.path().join("daemon.sock");
    let script = "import os, socket, sys
letter = os.memfd_create('x')
os.write(letter, b'[' * int(sys.argv[3]))
one = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
one.connect(sys.argv[1])
socket.send_fds(one, [sys.argv[2].encode()], [letter])
sys.stdout.buffer.write(one.recv(64))";
    let head = String::from_utf8(taken_down(&[]).head).expect("text");
    for (bytes, more) in [("100", 0), ("1000", 1), ("15000000", 1)] {
        let before = attacked.daemon.status()["refused_runs"].as_u64().expect("a number");
        let mut client = std::process::Command::new("setpriv");
        client.args(["--no-new-privs", "/usr/bin/python3", "-c", script]).arg(&path);
        let output = client.args([&head, bytes]).output().expect("it runs");
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(output.stdout.is_empty(), more == 0, "{bytes}");
        let after = attacked.daemon.status()["refused_runs"].as_u64().expect("a number");
        assert_eq!(after, before + more, "{bytes}");
    }
    attacked.must_be_as_before();
}
