//! The manager's side of the ring, against the real producer in C and against rings made by hand.

mod support;

use std::fs::File;
use std::io::{self, Write as _};
use std::mem::offset_of;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd};
use std::os::unix::fs::FileExt as _;
use std::process::Command;
use std::time::{Duration, Instant};

use foretell_fault::damage::{Damage, cases};
use foretell_protocol::layout::{self, RawPathPart, RawRecord, RawRingHeader, RawTouch};
use foretell_protocol::{
    Base, Event, Listener, Message, Record, RecordKind, RingError, RingReader,
};

/// A ring's memory, made as a program makes it, or with a fault.
struct Memory(File);

impl Memory {
    fn new(bytes: u64) -> Self {
        // SAFETY: the name is a C string; the flags are valid.
        let fd = unsafe { libc::memfd_create(c"ring".as_ptr(), libc::MFD_ALLOW_SEALING) };
        assert!(fd >= 0, "{}", io::Error::last_os_error());
        // SAFETY: memfd_create returned a new descriptor.
        let file = File::from(unsafe { OwnedFd::from_raw_fd(fd) });
        file.set_len(bytes).expect("size");
        Self(file)
    }

    fn valid() -> Self {
        let memory = Self::new(layout::RING_BYTES.into());
        memory.put_u64(0, layout::RING_MAGIC);
        let words = [
            layout::PROTOCOL_VERSION,
            layout::RING_CAPACITY_RECORDS,
            layout::RECORD_BYTES,
            layout::RING_HEADER_BYTES,
        ];
        for (offset, word) in (8..).step_by(4).zip(words) {
            memory.put(offset, &word.to_ne_bytes());
        }
        memory.seal(libc::F_SEAL_SHRINK | libc::F_SEAL_GROW);
        memory
    }

    fn seal(&self, seals: libc::c_int) {
        // SAFETY: no memory is passed.
        assert_eq!(unsafe { libc::fcntl(self.0.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
    }

    fn put(&self, offset: u64, bytes: &[u8]) {
        self.0.write_all_at(bytes, offset).expect("write");
    }

    fn put_u64(&self, offset: u64, value: u64) {
        self.put(offset, &value.to_ne_bytes());
    }

    fn set_head(&self, head: u64) {
        self.put_u64(offset_of!(RawRingHeader, head) as u64, head);
    }

    /// Completes the slot of a ticket.
    fn publish(&self, ticket: u64, kind: u32) {
        let slot = ticket % u64::from(layout::RING_CAPACITY_RECORDS);
        let at = u64::from(layout::RING_HEADER_BYTES) + slot * u64::from(layout::RECORD_BYTES);
        self.put(at + offset_of!(RawRecord, kind) as u64, &kind.to_ne_bytes());
        self.put_u64(at + offset_of!(RawRecord, offset_bytes) as u64, ticket);
        self.put_u64(at, ticket + 1);
    }

    fn map(&self) -> Result<RingReader, RingError> {
        RingReader::map(self.0.try_clone().expect("clone").into())
    }
}

fn offsets(drain: impl FnOnce(&mut dyn FnMut(Record)) -> usize) -> Vec<u64> {
    let mut offsets = Vec::new();
    drain(&mut |record| offsets.push(record.offset_bytes));
    offsets
}

#[test]
fn memory_that_is_no_ring_is_refused() {
    let unsealed = Memory::new(layout::RING_BYTES.into());
    assert!(matches!(unsealed.map(), Err(RingError::NotSealed)));
    let short = Memory::new(4096);
    short.seal(libc::F_SEAL_SHRINK | libc::F_SEAL_GROW);
    assert!(matches!(short.map(), Err(RingError::Size(4096))));
    let blank = Memory::new(layout::RING_BYTES.into());
    blank.seal(libc::F_SEAL_SHRINK);
    assert!(matches!(blank.map(), Err(RingError::Header)));
    let mut file = tempfile::tempfile().expect("file");
    file.write_all(&[0; layout::RING_BYTES as usize]).expect("write");
    assert!(matches!(RingReader::map(file.into()), Err(RingError::NotSealed)));
    let other = Memory::valid();
    other.put(8, &9_u32.to_ne_bytes());
    assert!(matches!(other.map(), Err(RingError::Header)));
}

#[test]
fn an_empty_ring_yields_nothing() {
    let mut reader = Memory::valid().map().expect("valid");
    assert_eq!(reader.drain(|_| ()), 0);
    assert_eq!(reader.counters(), foretell_protocol::Counters::default());
}

#[test]
fn who_has_had_enough_finds_the_rest_later() {
    let memory = Memory::valid();
    let mut reader = memory.map().expect("valid");
    (0..5).for_each(|ticket| memory.publish(ticket, layout::RECORD_READ));
    memory.set_head(5);
    for expected in [&[0, 1][..], &[2, 3], &[4], &[]] {
        let mut seen = Vec::new();
        reader.drain_while(true, |event| {
            let Event::Call(record) = event else { panic!("{event:?}") };
            seen.push(record.offset_bytes);
            seen.len() < 2
        });
        assert_eq!(seen, expected);
    }
}

#[test]
fn a_hole_is_waited_for_and_then_skipped() {
    let memory = Memory::valid();
    let mut reader = memory.map().expect("valid");
    for ticket in [0, 2, 3] {
        memory.publish(ticket, layout::RECORD_READ);
    }
    memory.set_head(4);
    assert_eq!(offsets(|each| reader.drain(each)), [0]);
    assert_eq!(offsets(|each| reader.drain(each)), [0_u64; 0]);
    memory.publish(1, layout::RECORD_READ); // late, but before it is skipped
    assert_eq!(offsets(|each| reader.drain(each)), [1, 2, 3]);
    assert_eq!(reader.counters().abandoned_records, 0);

    memory.publish(5, layout::RECORD_OPEN);
    memory.set_head(6);
    assert_eq!(offsets(|each| reader.drain(each)), [0_u64; 0]);
    assert_eq!(offsets(|each| reader.drain_to_end(each)), [5]);
    assert_eq!(reader.counters().abandoned_records, 1);

    memory.publish(7, layout::RECORD_OPEN);
    memory.set_head(8);
    let begin = Instant::now();
    let mut found = Vec::new();
    while found.is_empty() {
        found = offsets(|each| reader.drain(each));
        assert!(begin.elapsed() < Duration::from_secs(60), "the hole is never skipped");
        std::thread::sleep(Duration::from_millis(10));
    }
    assert_eq!(found, [7]);
}

#[test]
fn hostile_indices_end_after_one_lap() {
    let memory = Memory::valid();
    let mut reader = memory.map().expect("valid");
    for ticket in 0..u64::from(layout::RING_CAPACITY_RECORDS) {
        memory.publish(ticket, if ticket == 7 { 99 } else { layout::RECORD_READ });
    }
    memory.set_head(u64::MAX);
    let one_lap = layout::RING_CAPACITY_RECORDS as usize;
    assert_eq!(reader.drain(|_| ()), one_lap - 1, "the record of unknown kind is ignored");
    assert_eq!(reader.drain_to_end(|_| ()), 0);
}

/// Writes a touch of this path into the slots that begin at `ticket`. Returns the ticket behind it.
fn touch(memory: &Memory, ticket: u64, path: &[u8], kind_of_parts: u32) -> u64 {
    let at = |ticket: u64| {
        let slot = ticket % u64::from(layout::RING_CAPACITY_RECORDS);
        u64::from(layout::RING_HEADER_BYTES) + slot * u64::from(layout::RECORD_BYTES)
    };
    let (first, rest) = path.split_at(path.len().min(layout::TOUCH_PATH_BYTES as usize));
    memory.put(at(ticket) + offset_of!(RawTouch, path) as u64, first);
    let length = u32::try_from(path.len()).expect("short");
    memory.put(at(ticket) + offset_of!(RawTouch, path_bytes) as u64, &length.to_ne_bytes());
    let mut next = ticket + 1;
    for part in rest.chunks(layout::PART_PATH_BYTES as usize) {
        memory.put(at(next) + offset_of!(RawPathPart, path) as u64, part);
        memory.put(at(next) + offset_of!(RawPathPart, kind) as u64, &kind_of_parts.to_ne_bytes());
        memory.put_u64(at(next), next + 1);
        next += 1;
    }
    memory.put_u64(at(ticket) + offset_of!(RawTouch, base) as u64, 0); // base and opened
    let flags = layout::TOUCH_STAT | layout::TOUCH_FAILED;
    memory.put(at(ticket) + offset_of!(RawTouch, kind) as u64, &layout::RECORD_TOUCH.to_ne_bytes());
    memory.put(at(ticket) + offset_of!(RawTouch, flags) as u64, &flags.to_ne_bytes());
    memory.put_u64(at(ticket), ticket + 1);
    next
}

fn touched(reader: &mut RingReader, ended: bool) -> Vec<Vec<u8>> {
    let mut paths = Vec::new();
    reader.drain_while(ended, |event| {
        let Event::Touch(touch) = event else { panic!("{event:?}") };
        assert!(touch.flags.is_stat() && touch.flags.is_failed() && !touch.flags.is_open());
        assert_eq!((touch.base, touch.opened), (Base::WorkingFolder, None));
        paths.push(touch.path.into());
        true
    });
    paths
}

#[test]
fn a_path_of_any_length_comes_whole_around_the_end_of_the_ring() {
    let memory = Memory::valid();
    let mut reader = memory.map().expect("valid");
    let mut next = 0;
    for length in (0..=layout::TOUCHED_PATH_MAX_BYTES as usize).step_by(3) {
        let path: Vec<u8> = (0..length).map(|at| b'a' + (at % 26) as u8).collect();
        next = touch(&memory, next, &path, layout::RECORD_PATH);
        memory.set_head(next);
        assert_eq!(touched(&mut reader, false), [path], "{length}");
    }
    assert!(next > u64::from(layout::RING_CAPACITY_RECORDS), "{next}");
}

#[test]
fn a_path_whose_parts_are_not_all_there_is_dropped() {
    let memory = Memory::valid();
    let mut reader = memory.map().expect("valid");
    // The last part is missing.
    let next = touch(&memory, 0, &[b'x'; 100], layout::RECORD_PATH);
    memory.set_head(next - 1);
    assert_eq!(touched(&mut reader, false), [[0; 0]; 0]);
    assert_eq!(touched(&mut reader, true), [[0; 0]; 0]);
    // Another record is in its place, and a length is too large.
    let next = touch(&memory, next - 1, &[b'y'; 100], layout::RECORD_TOUCH);
    let next = touch(&memory, next, &[b'z'; 2000], layout::RECORD_PATH);
    let next = touch(&memory, next, b"a\0b", layout::RECORD_PATH);
    let next = touch(&memory, next, b"good", layout::RECORD_PATH);
    memory.set_head(next);
    assert_eq!(touched(&mut reader, true), [b"good"]);
}

/// Whatever is in a ring, a look at it ends, and gives events within their bounds.
#[test]
fn damaged_rings_give_bounded_events() {
    const SLOTS: u64 = 64;
    for number in 0..cases(500) {
        let mut damage = Damage::of_case(number);
        let memory = Memory::valid();
        let first = if damage.below(3) == 0 { damage.odd_number() } else { 0 };
        memory.put_u64(offset_of!(RawRingHeader, tail) as u64, first);
        let mut reader = memory.map().expect("valid");
        for ticket in (0..SLOTS).map(|at| first.wrapping_add(at)) {
            let slot = ticket % u64::from(layout::RING_CAPACITY_RECORDS);
            let at = u64::from(layout::RING_HEADER_BYTES) + slot * u64::from(layout::RECORD_BYTES);
            for word in (8..u64::from(layout::RECORD_BYTES)).step_by(8) {
                memory.put_u64(at + word, damage.odd_number());
            }
            let kind = damage.below(7) as u32;
            memory.put(at + offset_of!(RawRecord, kind) as u64, &kind.to_ne_bytes());
            let bytes = damage.below(2000) as u32;
            if kind == layout::RECORD_TOUCH && damage.below(4) > 0 {
                let place = at + offset_of!(RawTouch, path_bytes) as u64;
                memory.put(place, &bytes.to_ne_bytes());
            }
            let is_right = damage.below(20) > 0;
            let sequence = if is_right { ticket.wrapping_add(1) } else { damage.odd_number() };
            memory.put_u64(at, sequence);
        }
        let is_right = damage.below(4) > 0;
        memory.set_head(if is_right { first.wrapping_add(SLOTS) } else { damage.odd_number() });
        for ended in [false, true, true] {
            let mut events = 0;
            reader.drain_while(ended, |event| {
                events += 1;
                if let Event::Touch(touch) = event {
                    let bytes = touch.path.len();
                    assert!(bytes <= layout::TOUCHED_PATH_MAX_BYTES as usize, "case {number}");
                    assert!(!touch.path.contains(&0), "case {number}");
                }
                true
            });
            assert!(events <= layout::RING_CAPACITY_RECORDS, "case {number}");
        }
        let _ = (reader.counters().stalls(), reader.counters().stall_ns());
    }
}

/// A program that is killed at the end of the test.
struct Running(std::process::Child);

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

/// Starts a program under a manager. Returns it with its ring.
fn start(way: &str, file: &std::path::Path) -> (Running, RingReader) {
    let program = support::c_program("access", &["-Wno-unused-result"]);
    let listener = Listener::bind().expect("listener");
    let mut command = Command::new(program);
    command.arg(way).arg(file);
    let child = support::watch(&mut command, listener.address(), true).spawn();
    let child = Running(child.expect("start"));
    let begin = Instant::now();
    let mut connection = None;
    loop {
        connection = connection.or_else(|| listener.accept().expect("accept"));
        match connection.as_mut().map(|connection| connection.receive()) {
            Some(Ok(Some(Message::Hello(hello)))) => {
                return (child, RingReader::map(hello.ring).expect("ring"));
            }
            None | Some(Ok(None)) => {} // The greeting may come after the connection.
            Some(other) => panic!("{other:?}"),
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "no hello");
    }
}

#[test]
fn many_laps_lose_nothing_that_is_not_counted() {
    let file = tempfile::NamedTempFile::new().expect("file");
    file.as_file().set_len(200_000).expect("size");
    let (mut child, mut reader) = start("flood", file.path());
    let mut reads = Vec::new();
    let mut each = |record: Record| {
        if record.kind == RecordKind::Read {
            assert_eq!(record.length_bytes, 1);
            reads.push(record.offset_bytes);
        }
    };
    while child.0.try_wait().expect("wait").is_none() {
        reader.drain(&mut each);
    }
    reader.drain_to_end(&mut each);
    assert!(reads.is_sorted_by(|a, b| a < b), "one thread's records are in order");
    let counters = reader.counters();
    assert_eq!(counters.abandoned_records, 0);
    // The open is a record too, and the first: it is never dropped.
    assert_eq!(reads.len() as u64 + counters.dropped_records, 100_000);
}

#[test]
fn a_killed_producer_leaves_a_readable_ring() {
    let file = tempfile::NamedTempFile::new().expect("file");
    file.as_file().set_len(1000).expect("size");
    for round in 0..10 {
        let (child, mut reader) = start("flood-threads", file.path());
        let mut last = [None; 8];
        let mut each = |record: Record| {
            if record.kind == RecordKind::Read {
                let thread = (record.offset_bytes >> 40) as usize;
                assert!(last[thread] < Some(record.offset_bytes), "each thread's are in order");
                last[thread] = Some(record.offset_bytes);
                assert_ne!(record.inode, 0);
            }
        };
        let begin = Instant::now();
        while begin.elapsed() < Duration::from_millis(20 + round) {
            reader.drain(&mut each);
        }
        drop(child);
        for _ in 0..3 {
            reader.drain_to_end(&mut each);
        }
        assert_eq!(reader.drain_to_end(|_| ()), 0);
    }
}
