//! A campaign of programs that lie: damaged messages, and rings with anything in them.
//!
//! In each case a connection of its own sends a few packets, some of them introductions with a ring. Whatever they say, the
//! session goes on, its turns end, what it keeps stays within its bounds, and another client's hint is taken.

use std::fs::File;
use std::io::IoSlice;
use std::mem::{MaybeUninit, offset_of};
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use foretell_fault::damage::{Damage, cases};
use foretell_protocol::layout::{self, RawHello, RawRecord, RawRingHeader, RawTouch};
use foretell_protocol::{Client, Extent, Hint, Listener, Segment};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, memfd_create};
use rustix::net::{SendAncillaryBuffer, SendAncillaryMessage, SendFlags, sendmsg};

use super::Session;
use super::messages::PROGRAMS_MAX;
use super::room::KEPT_MAX_BYTES;
use crate::connections::Connections;

/// Cases that are usually run; `scripts/check-deep` runs more.
const CASES: u64 = 300;

/// A turn that takes longer hangs.
const TURN_PATIENCE: Duration = Duration::from_secs(60);

/// Kinds of records: those that there are, and one that there is not.
const KINDS: [u32; 8] = [
    layout::RECORD_READ,
    layout::RECORD_READ,
    layout::RECORD_OPEN,
    layout::RECORD_TOUCH,
    layout::RECORD_TOUCH,
    layout::RECORD_PATH,
    layout::RECORD_ADVICE,
    77,
];

/// A session that listens, and its address.
fn listening() -> (Session, String) {
    let mut session = super::tests::session();
    let listener = Listener::bind().expect("a socket");
    let address = listener.address().to_owned();
    session.connections = Connections::new(listener, 16);
    (session, address)
}

fn turn(session: &mut Session, case: u64) {
    let began = Instant::now();
    session.turn();
    session.wait(Some(Duration::ZERO));
    assert!(began.elapsed() < TURN_PATIENCE, "case {case}: a turn hangs");
}

fn hint(path: &str, damage: &mut Damage) -> Hint {
    let length = |number: u64| (number >> 2).max(1);
    let segment = |damage: &mut Damage| Segment {
        offset_bytes: damage.odd_number() >> 2,
        length_bytes: length(damage.odd_number()),
    };
    let extent = match damage.below(3) {
        0 => Extent::WholeFile,
        1 => Extent::Segments((0..=damage.below(20)).map(|_| segment(damage)).collect()),
        _ => Extent::Strided {
            first: segment(damage),
            stride_bytes: damage.odd_number() >> 2,
            count: length(damage.odd_number()),
        },
    };
    let repeat = (damage.odd_number() as u32).max(1);
    let (stream, any_order) = (damage.odd_number(), damage.below(2) == 0);
    Hint { stream, path: path.into(), extent, repeat, any_order }
}

fn hello(damage: &mut Damage) -> Vec<u8> {
    let mut packet = vec![0; size_of::<RawHello>()];
    let mut put = |at: usize, number: u32| {
        packet[at..at + 4].copy_from_slice(&number.to_ne_bytes());
    };
    put(0, layout::MESSAGE_HELLO);
    put(4, size_of::<RawHello>() as u32 + 3);
    put(offset_of!(RawHello, version), layout::PROTOCOL_VERSION);
    let own = std::process::id();
    put(offset_of!(RawHello, pid), if damage.below(3) == 0 { damage.number() as u32 } else { own });
    put(offset_of!(RawHello, ppid), damage.odd_number() as u32);
    put(offset_of!(RawHello, argv0_bytes), 3);
    put(offset_of!(RawHello, flags), damage.below(2) as u32);
    packet.extend_from_slice(b"cat");
    packet
}

/// A ring of this version, which the session maps.
fn ring() -> File {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let ring = File::from(memfd_create("ring", flags).expect("a file"));
    ring.set_len(layout::RING_BYTES.into()).expect("there is memory");
    put(&ring, 0, &layout::RING_MAGIC.to_ne_bytes());
    let words = [
        layout::PROTOCOL_VERSION,
        layout::RING_CAPACITY_RECORDS,
        layout::RECORD_BYTES,
        layout::RING_HEADER_BYTES,
    ];
    for (at, word) in (8..).step_by(4).zip(words) {
        put(&ring, at, &word.to_ne_bytes());
    }
    fcntl_add_seals(&ring, SealFlags::SHRINK).expect("it may be sealed");
    ring
}

fn put(ring: &File, at: usize, bytes: &[u8]) {
    ring.write_all_at(bytes, at as u64).expect("it is there");
}

/// Writes records with anything in them, and then, at times, anything over them and over the header.
fn scribble(ring: &File, path: &str, damage: &mut Damage) {
    let (header, record) = (layout::RING_HEADER_BYTES as usize, layout::RECORD_BYTES as usize);
    let capacity = u64::from(layout::RING_CAPACITY_RECORDS);
    let first = if damage.below(4) == 0 { damage.odd_number() } else { 0 };
    let count = damage.below(300) as u64;
    put(ring, offset_of!(RawRingHeader, tail), &first.to_ne_bytes());
    for ticket in (0..count).map(|at| first.wrapping_add(at)) {
        let mut slot = vec![0; record];
        for word in slot.chunks_exact_mut(8) {
            word.copy_from_slice(&damage.odd_number().to_ne_bytes());
        }
        if damage.below(100) > 0 {
            // One call counts for very many blocks at most, which takes time when there are many such calls.
            let bytes = damage.number() % 100_000;
            slot[offset_of!(RawRecord, length_bytes)..][..8].copy_from_slice(&bytes.to_ne_bytes());
        }
        let kind = *damage.one_of(&KINDS);
        slot[offset_of!(RawRecord, kind)..][..4].copy_from_slice(&kind.to_ne_bytes());
        slot[offset_of!(RawRecord, flags)..][..4]
            .copy_from_slice(&(damage.number() as u32 & 0x7f).to_ne_bytes());
        if kind == layout::RECORD_TOUCH {
            let bytes = match damage.below(3) {
                0 => damage.odd_number() as u32,
                _ => path.len() as u32,
            };
            slot[offset_of!(RawTouch, path_bytes)..][..4].copy_from_slice(&bytes.to_ne_bytes());
            let part = &path.as_bytes()[..path.len().min(layout::TOUCH_PATH_BYTES as usize)];
            slot[offset_of!(RawTouch, path)..][..part.len()].copy_from_slice(part);
        }
        let sequence = match damage.below(50) {
            0 => damage.odd_number(),
            _ => ticket.wrapping_add(1),
        };
        slot[..8].copy_from_slice(&sequence.to_ne_bytes());
        put(ring, header + (ticket % capacity) as usize * record, &slot);
    }
    let head = match damage.below(8) {
        0 => damage.odd_number(),
        _ => first.wrapping_add(count),
    };
    put(ring, offset_of!(RawRingHeader, head), &head.to_ne_bytes());
    for _ in 0..damage.below(30) {
        // Counters, interests and what else is there.
        let at = 64 + damage.below((header - 64) / 8) * 8;
        if at != offset_of!(RawRingHeader, head) && at != offset_of!(RawRingHeader, tail) {
            put(ring, at, &damage.odd_number().to_ne_bytes());
        }
    }
}

fn send(client: &Client, packet: &[u8], file: Option<&File>) {
    let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
    let mut rights = SendAncillaryBuffer::new(&mut space);
    let file = file.map(|file| [file.as_fd()]);
    if let Some(file) = &file {
        assert!(rights.push(SendAncillaryMessage::ScmRights(file)));
    }
    let flags = SendFlags::NOSIGNAL | SendFlags::DONTWAIT;
    // The session may have closed it.
    let _ = sendmsg(client.as_fd(), &[IoSlice::new(packet)], &mut rights, flags);
}

/// A bound of a stream's requests, of any size.
fn request(damage: &mut Damage) -> Vec<u8> {
    let head = [foretell_protocol::layout::MESSAGE_REQUEST, 24].map(u32::to_ne_bytes).concat();
    let fields = [damage.odd_number(), damage.odd_number()].map(u64::to_ne_bytes).concat();
    [head, fields].concat()
}

fn case(session: &mut Session, address: &str, folder: &str, number: u64) {
    let mut damage = Damage::of_case(number);
    let client = Client::connect(address).expect("it listens");
    let mut rings = Vec::new();
    for _ in 0..=damage.below(6) {
        let path = format!("{folder}/{}", damage.below(4));
        let others = hint(&path, &mut damage).encode().expect("it is well formed").remove(0);
        let is_hello = damage.below(2) == 0;
        let mut packet = match is_hello {
            true => hello(&mut damage),
            false if damage.below(8) == 0 => request(&mut damage),
            false => hint(&path, &mut damage).encode().expect("it is well formed").remove(0),
        };
        if damage.below(2) == 0 {
            damage.apply(&mut packet, &others);
            if packet.len() >= 8 && damage.below(3) > 0 {
                // With the right length, so that the rest is looked at.
                let bytes = (packet.len() as u32).to_ne_bytes();
                packet[4..8].copy_from_slice(&bytes);
            }
        }
        let ring = match damage.below(6) {
            0 => None,
            1 => Some(File::open("/dev/zero").expect("it is there")),
            _ => Some(ring()),
        };
        let ring = ring.filter(|_| is_hello || damage.below(4) == 0);
        if let Some(ring) = ring.as_ref().filter(|_| damage.below(2) == 0) {
            let _ = rustix::fs::fcntl_get_seals(ring).map(|_| scribble(ring, &path, &mut damage));
        }
        send(&client, &packet, ring.as_ref());
        turn(session, number);
        rings.extend(ring.filter(|ring| rustix::fs::fcntl_get_seals(ring).is_ok()));
        for ring in &rings {
            scribble(ring, &path, &mut damage);
        }
        turn(session, number);
    }
    if damage.below(2) == 0 {
        let _ = client.cancel(damage.odd_number());
    }
}

#[test]
fn programs_that_lie_harm_neither_the_session_nor_other_programs() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["0", "1", "2"] {
        std::fs::write(folder.path().join(name), vec![b'x'; 40_000]).expect("written");
    }
    let path = folder.path().to_str().expect("text");
    let (mut session, address) = listening();
    for number in 0..cases(CASES) {
        case(&mut session, &address, path, number);
        let kept = session.waiting.bytes() + session.walking.memory_bytes();
        let counts = (session.programs.len(), session.connections.peers.len());
        assert!(kept <= KEPT_MAX_BYTES && counts.0 <= PROGRAMS_MAX, "case {number}: {counts:?}");
        if number % 50 != 0 {
            continue;
        }
        // Another program is heard.
        let before = session.policy.counts().hints;
        let other = Client::connect(&address).expect("it listens");
        let whole = Hint {
            stream: 1,
            path: folder.path().join("0"),
            extent: Extent::WholeFile,
            repeat: 1,
            any_order: false,
        };
        other.hint(&whole).expect("sent");
        let deadline = Instant::now() + TURN_PATIENCE;
        while session.policy.counts().hints == before {
            turn(&mut session, number);
            assert!(Instant::now() < deadline, "case {number}: another program is not heard");
        }
    }
    let deadline = Instant::now() + TURN_PATIENCE;
    while !session.connections.peers.is_empty() {
        turn(&mut session, u64::MAX);
        assert!(Instant::now() < deadline, "connections are left");
    }
    let (streams, programs) = (session.streams, session.programs.len());
    assert!(streams <= 4 * programs + 64, "{streams} streams of {programs} programs are left");
    let report = session.report();
    assert!(report.hints.given > 0);
}

#[test]
fn so_many_programs_are_taken_at_a_time() {
    let (mut session, address) = listening();
    let client = Client::connect(&address).expect("it listens");
    session.connections.accept(Instant::now());
    for number in 0..PROGRAMS_MAX as u64 + 5 {
        send(&client, &hello(&mut Damage::of_case(number)), Some(&ring()));
        session.connections.note_ready([true]);
        session.take_messages();
    }
    assert_eq!(session.programs.len(), PROGRAMS_MAX);
    let refusal = session.first_refusal.as_deref().unwrap_or_default();
    assert!(refusal.contains("programs at a time"), "{refusal}");
    // All are this process's: the last one has replaced the others.
    session.take_records();
    assert_eq!(session.programs.len(), 1);
}
