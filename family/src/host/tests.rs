//! A host and its clients in one process.

use std::io::{Read, Write};
use std::sync::mpsc::{Receiver, Sender, channel};
use std::time::Instant;

use foretell_cache::share::{At, FarSession};

use super::*;

struct All;

impl Admission for All {
    fn may_join(&self, _: BorrowedFd<'_>) -> Result<(), String> {
        Ok(())
    }

    fn refused(&self, _: BorrowedFd<'_>, _: &str) {}
}

#[test]
fn a_cache_follows_pressure_and_serves_on() {
    [false, true].into_iter().for_each(follows_pressure);
}

fn follows_pressure(gives_back: bool) {
    const BYTES: usize = 6 << 20;
    let folder = tempfile::tempdir().expect("a folder");
    let content: Vec<u8> =
        (0..BYTES as u32).map(|at| (at.wrapping_mul(0x9e37_79b9) >> 24) as u8).collect();
    std::fs::write(folder.path().join("file"), &content).expect("written");
    let options = CacheOptions { budget_bytes: 8 << 20, block_bytes: 16384 };
    let of_host = HostOptions { cache: options, gives_back, socket: None };
    let host = Host::start(of_host, folder.path(), Box::new(All)).expect("it begins");
    let recipe = Recipe {
        place: Place::Folder(folder.path().to_owned()),
        options,
        depth: None,
        deadline: Duration::from_secs(60),
        settings: Vec::new(),
        is_shared: true,
        tier: None,
    };
    let socket = folder.path().join(HOST_SOCKET);
    let patience = Duration::from_secs(60);
    let session = FarSession::connect_to(At::Path(&socket), &recipe.told(), patience);
    let file = session.expect("it joins").open(b"file").expect("it is there");
    let read = || {
        let mut bytes = vec![0; BYTES];
        assert_eq!(file.read_at(&mut bytes, 0).expect("read"), BYTES);
        assert!(bytes == content, "wrong bytes");
    };
    let wait_for = |bytes: u64| {
        let deadline = Instant::now() + PATIENCE;
        while host.status().limit_bytes != bytes {
            assert!(Instant::now() < deadline, "{bytes}, {gives_back}: {:?}", host.status());
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let (all_bytes, least_bytes) = (8 << 20, 512 << 10);
    host.press();
    wait_for(least_bytes); // Nothing is in it yet.
    for bytes in [1 << 20, 2 << 20, 4 << 20] {
        assert!(host.relax(), "it does not have all of it yet");
        wait_for(bytes);
    }
    assert!(!host.relax(), "it has all of its memory");
    wait_for(all_bytes);
    read();
    host.press();
    if gives_back {
        wait_for(3 << 20); // Half of what is in it.
        read();
        (0..10).for_each(|_| host.press());
        wait_for(least_bytes);
        read();
        for bytes in [1 << 20, 2 << 20, 4 << 20] {
            assert!(host.relax(), "it does not have all of it yet");
            wait_for(bytes);
        }
    } else {
        wait_for(BYTES as u64); // What is in it.
        read();
        (0..10).for_each(|_| host.press());
        read();
        assert_eq!(host.status().limit_bytes, BYTES as u64);
    }
    assert!(!host.relax());
    wait_for(all_bytes);
    read();
    for _ in 0..100 {
        host.press();
        while host.relax() {}
    }
    wait_for(all_bytes); // The last wish counts.
}

const OPTIONS: CacheOptions = CacheOptions { budget_bytes: 1 << 20, block_bytes: 16384 };
const PATIENCE: Duration = Duration::from_secs(60);

/// All may join, once the first channel is closed; tells of those who are refused.
struct Telling(Mutex<Receiver<()>>, Sender<String>);

impl Admission for Telling {
    fn may_join(&self, _: BorrowedFd<'_>) -> Result<(), String> {
        let _ = self.0.lock().expect("no panic").recv();
        Ok(())
    }

    fn refused(&self, _: BorrowedFd<'_>, why: &str) {
        let _ = self.1.send(why.to_owned());
    }
}

/// All that a host says to a client that says this.
fn answer(mut client: &UnixStream, said: &[u8]) -> String {
    client.set_read_timeout(Some(PATIENCE)).expect("set");
    let _ = client.write_all(said); // It may be refused before.
    let (mut answer, mut chunk) = (Vec::new(), [0; 512]);
    while let Ok(count @ 1..) = client.read(&mut chunk) {
        answer.extend_from_slice(&chunk[..count]);
    }
    String::from_utf8_lossy(&answer).into_owned()
}

/// A host that lets clients join once the gate is dropped, and where it tells of those who are refused.
fn guarded(folder: &Path) -> (Host, Sender<()>, Receiver<String>) {
    let of_host = HostOptions { cache: OPTIONS, gives_back: false, socket: None };
    let (tell, told) = channel();
    let (gate, passes) = channel();
    let admission = Telling(Mutex::new(passes), tell);
    let host = Host::start(of_host, folder, Box::new(admission)).expect("it begins");
    (host, gate, told)
}

#[test]
fn a_client_of_another_version_is_refused_and_told_of() {
    let folder = tempfile::tempdir().expect("a folder");
    let (host, gate, told) = guarded(folder.path());
    drop(gate);
    let client = UnixStream::connect(folder.path().join(HOST_SOCKET)).expect("it listens");
    // A hello: its length, its kind, the version, and an empty recipe.
    let body = [&[0][..], &u32::MAX.to_ne_bytes(), &[0; 4]].concat();
    let said = [&(body.len() as u32).to_ne_bytes()[..], &body].concat();
    let answered = answer(&client, &said);
    let why = told.recv_timeout(PATIENCE).expect("it is told of");
    assert!(why.contains("another version") && answered.contains(&why), "{why:?} {answered:?}");
    assert_eq!(host.status().refused, 1);
}

#[test]
fn clients_that_wait_when_it_ends_are_refused_in_words() {
    let folder = tempfile::tempdir().expect("a folder");
    let (host, gate, told) = guarded(folder.path());
    let connect = || UnixStream::connect(folder.path().join(HOST_SOCKET)).expect("it listens");
    // It is busy with others, so that the last one waits.
    let _others = [(); HEARD_MAX].map(|()| connect());
    let last = connect();
    drop(host);
    drop(gate);
    assert!(answer(&last, b"whatever").contains(ENDS));
    assert_eq!(told.recv_timeout(PATIENCE).as_deref(), Ok(ENDS));
}
