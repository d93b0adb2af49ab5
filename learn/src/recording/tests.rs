use proptest::prelude::*;

use super::encoder::Encoder;
use super::reader::{Ending, Reader, Refusal};
use super::replay::{Moves, profile};
use super::*;

fn meta() -> Meta {
    Meta { command: vec![b"cat"[..].into(), b"a"[..].into()], folder: b"/w"[..].into(), began_s: 7 }
}

fn read(at: u64, file: u32, offset: u64, length: u64) -> Event {
    let (file, origin) = (PathId(file), Origin::Call);
    let what = What::Read { file, offset_bytes: offset, length_bytes: length, origin };
    Event { at_ns: at * TICK_NS, took_ns: 12 * TICK_NS, process: 4711, what }
}

/// The bytes of a recording, with chunks of so many events, and where its beginning and its chunks end.
fn encoded(paths: &[&str], events: &[Event], each: usize) -> (Vec<u8>, Vec<usize>) {
    let (mut encoder, mut bytes) = Encoder::new(&meta());
    let mut ends = vec![bytes.len()];
    for (at, path) in paths.iter().enumerate() {
        assert_eq!(encoder.path(path.as_bytes()), Some(PathId(at as u32)));
    }
    for events in events.chunks(each) {
        events.iter().for_each(|event| encoder.push(event));
        bytes.extend(encoder.take_chunk().expect("events"));
        ends.push(bytes.len());
    }
    (bytes, ends)
}

fn decoded(bytes: &[u8]) -> (Vec<Event>, Ending) {
    let mut reader = Reader::new(bytes).expect("a recording");
    let mut events = Vec::new();
    while let Some(event) = reader.next_event().expect("bytes") {
        events.push(event);
    }
    assert!(reader.next_event().expect("bytes").is_none());
    (events, reader.ending())
}

fn some_events() -> Vec<Event> {
    let event = |at: u64, process, what| Event { at_ns: at * TICK_NS, took_ns: 0, process, what };
    let touch = |path, acts| What::Touch { path: PathId(path), acts };
    let parts =
        |origin| What::Read { file: PathId(1), offset_bytes: 1 << 62, length_bytes: 4096, origin };
    vec![
        event(5, 9, What::Begins { parent: 0, name: b"sh"[..].into() }),
        event(9, 10, What::Begins { parent: 9, name: b"cat"[..].into() }),
        event(10, 10, What::Named { path: PathId(0) }),
        event(10, 10, touch(0, Acts::OPEN)),
        event(7, 9, touch(1, Acts::LOOK | Acts::FAIL)),
        read(40, 0, 0, 4096),
        read(90, 0, 4096, 4096),
        read(140, 0, 8192, 0),
        event(200, 10, parts(Origin::Pages)),
        event(u64::MAX / TICK_NS, 11, parts(Origin::Outside)),
        event(150, 10, What::Ends),
        Event { at_ns: 150 * TICK_NS, took_ns: 0, process: 0, what: What::Close { lost: 3 } },
    ]
}

#[test]
fn what_is_written_is_read() {
    let events = some_events();
    for each in [1, 3, 100] {
        let (bytes, _) = encoded(&["/data/a", "/data/b"], &events, each);
        assert_eq!(decoded(&bytes), (events.clone(), Ending::Whole { lost: 3 }));
        let mut reader = Reader::new(&bytes[..]).expect("a recording");
        assert_eq!(reader.meta(), &meta());
        while reader.next_event().expect("bytes").is_some() {}
        assert_eq!(reader.paths(), [Arc::from(&b"/data/a"[..]), Arc::from(&b"/data/b"[..])]);
    }
}

#[test]
fn a_read_takes_few_bytes() {
    let of = |events: &[Event]| encoded(&["/a", "/b"], events, usize::MAX).0.len();
    let per_read = |each: &dyn Fn(u64) -> Event| {
        let events: Vec<Event> = (0..1000).map(each).collect();
        (of(&events) - of(&events[..1])) as f64 / 999.0
    };
    let sequential = per_read(&|at| read(at * 100, 0, at * 65536, 65536));
    assert!(sequential <= 5.0, "{sequential}");
    let random = per_read(&|at| read(at * 3000, 0, (at * 7919 % 1000) << 30, 4096));
    assert!(random <= 11.0, "{random}");
    let of_two_files = per_read(&|at| read(at * 3000, at as u32 % 2, at * 7_654_321, at * 5));
    assert!(of_two_files <= 13.0, "{of_two_files}");
}

#[test]
fn a_recording_that_is_cut_off_is_read_to_its_last_whole_chunk() {
    let events = some_events();
    let (bytes, ends) = encoded(&["/data/a", "/data/b"], &events, 2);
    for cut in ends[0]..bytes.len() {
        let whole = ends[1..].iter().filter(|&&end| end <= cut).count();
        assert_eq!(decoded(&bytes[..cut]), (events[..2 * whole].to_vec(), Ending::Cut), "{cut}");
    }
    for cut in 0..ends[0] {
        let refusal = Reader::new(&bytes[..cut]).expect_err("no whole chunk");
        let is_right = match refusal {
            Refusal::NotOne => cut < HEADER_BYTES,
            Refusal::Cut => cut >= HEADER_BYTES,
            Refusal::Io(_) | Refusal::Version(_) | Refusal::Damaged => false,
        };
        assert!(is_right, "{cut}: {refusal}");
    }
}

#[test]
fn the_beginning_alone_is_a_recording_and_its_first_chunk_may_have_events() {
    let (bytes, ends) = encoded(&["/data/a", "/data/b"], &some_events(), 100);
    assert_eq!(decoded(&bytes[..ends[0]]), (vec![], Ending::Cut));
    assert!(Ending::Cut.problem().is_some_and(|why| why.starts_with("stopped early: ")));
    // Foretell once wrote both in one chunk.
    let payload = [
        &bytes[HEADER_BYTES + CHUNK_HEADER_BYTES..ends[0]],
        &bytes[ends[0] + CHUNK_HEADER_BYTES..],
    ];
    let payload = payload.concat();
    let mut old = bytes[..HEADER_BYTES].to_vec();
    old.extend_from_slice(CHUNK_MAGIC);
    old.extend_from_slice(&(payload.len() as u32).to_le_bytes());
    old.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
    old.extend_from_slice(&payload);
    assert_eq!(decoded(&old), (some_events(), Ending::Whole { lost: 3 }));
    let mut damaged = bytes;
    damaged[ends[0] - 1] ^= 1;
    assert!(matches!(Reader::new(&damaged[..]), Err(Refusal::Damaged)));
}

#[test]
fn other_files_and_other_versions_are_refused() {
    let (mut bytes, _) = encoded(&["/a", "/b"], &some_events(), 100);
    assert!(matches!(Reader::new(&b"1 execve(\"/bin/cat\", ...)"[..]), Err(Refusal::NotOne)));
    for version in [0, 3, 9] {
        bytes[8] = version;
        let refused = Reader::new(&bytes[..]).expect_err("another version");
        assert!(matches!(refused, Refusal::Version(other) if other == u32::from(version)));
    }
    bytes[8] = 1;
    assert!(!Reader::new(&bytes[..]).expect("an old one is read").tells_names());
}

#[test]
fn damage_in_a_chunk_ends_the_recording_before_it() {
    let events = some_events();
    let (bytes, ends) = encoded(&["/data/a", "/data/b"], &events, 2);
    for at in ends[0]..bytes.len() {
        let mut damaged = bytes.clone();
        damaged[at] ^= 0x41;
        let before = ends[1..].iter().filter(|&&end| end <= at).count();
        let (read, ending) = decoded(&damaged);
        assert_eq!(read, events[..2 * before], "{at}");
        assert!(matches!(ending, Ending::Damaged | Ending::Cut), "{at}");
    }
}

#[test]
fn a_program_and_its_libraries_come_before_its_first_file() {
    let event = |at_ms: u64, what| Event { at_ns: at_ms * 1_000_000, took_ns: 0, process: 7, what };
    let pages = |file| {
        let (file, origin) = (PathId(file), Origin::Pages);
        What::Read { file, offset_bytes: 0, length_bytes: 65536, origin }
    };
    let opens = |path| What::Touch { path: PathId(path), acts: Acts::OPEN };
    let events = [
        event(10, opens(0)),
        event(10, What::Begins { parent: 1, name: b"cat"[..].into() }),
        event(20, opens(1)),
        event(22, pages(2)),
        event(23, pages(3)),
        event(23, pages(1)),
        event(90, pages(4)),
    ];
    let paths = ["/first", "/mapped", "/bin/cat", "/lib/libc.so", "/lib/later.so"];
    let (bytes, _) = encoded(&paths, &events, 100);
    let mut reader = Reader::new(&bytes[..]).expect("a recording");
    let profile = profile(&mut reader, &Moves::default()).expect("bytes");
    let steps: Vec<&[u8]> = profile.steps.iter().map(|step| &*step.path).collect();
    let expected = ["/bin/cat", "/lib/libc.so", "/first", "/mapped", "/lib/later.so"];
    assert_eq!(steps, expected.map(str::as_bytes));
}

#[test]
fn a_recording_becomes_a_profile_with_moved_folders() {
    let (bytes, _) = encoded(&["/data/a", "/database"], &some_events(), 100);
    let moves = Moves::new(vec![
        (b"/".to_vec(), b"/root/".to_vec()),
        (b"/data/".to_vec(), b"/new".to_vec()),
    ]);
    let mut reader = Reader::new(&bytes[..]).expect("a recording");
    let profile = profile(&mut reader, &moves).expect("bytes");
    assert_eq!(reader.ending(), Ending::Whole { lost: 3 });
    let steps: Vec<_> = profile.steps.iter().map(|step| (&*step.path, step.acts)).collect();
    let end = Acts::OPEN | Acts::READ | Acts::END;
    let mapped = Acts::LOOK | Acts::FAIL | Acts::READ | Acts::MAP;
    assert_eq!(steps, [(&b"/new/a"[..], end), (&b"/root/database"[..], mapped)]);
    assert!(profile.steps[0].is_whole() && profile.steps.iter().all(|step| step.is_likely()));
}

fn any_event() -> impl Strategy<Value = Event> {
    let origin = prop_oneof![Just(Origin::Call), Just(Origin::Pages), Just(Origin::Outside)];
    let read =
        (0_u32..2, any::<u64>(), any::<u64>(), origin).prop_map(|(file, at, length, origin)| {
            What::Read { file: PathId(file), offset_bytes: at, length_bytes: length, origin }
        });
    let touch = (0_u32..2, any::<u8>())
        .prop_map(|(path, bits)| What::Touch { path: PathId(path), acts: Acts::from_bits(bits) });
    let name = proptest::collection::vec(any::<u8>(), 0..20);
    let begins =
        (any::<u32>(), name).prop_map(|(parent, name)| What::Begins { parent, name: name.into() });
    let named = (0_u32..2).prop_map(|path| What::Named { path: PathId(path) });
    let what = prop_oneof![read, touch, named, begins, Just(What::Ends)];
    let ticks = 0..u64::MAX / TICK_NS / 4;
    (ticks.clone(), ticks, any::<u32>(), what).prop_map(|(at, took, process, what)| Event {
        at_ns: at * TICK_NS,
        took_ns: took * TICK_NS,
        process,
        what,
    })
}

proptest! {
    #[test]
    fn any_events_are_read_as_they_were_written(
        events in prop::collection::vec(any_event(), 1..40),
        each in 1_usize..10,
    ) {
        let (bytes, _) = encoded(&["/a", "/b"], &events, each);
        prop_assert_eq!(decoded(&bytes), (events, Ending::Cut));
    }

    #[test]
    fn any_bytes_are_read_without_harm(payload in prop::collection::vec(any::<u8>(), 1..300)) {
        let (mut bytes, _) = encoded(&["/a", "/b"], &some_events()[..3], 100);
        bytes.extend_from_slice(CHUNK_MAGIC);
        bytes.extend_from_slice(&(payload.len() as u32).to_le_bytes());
        bytes.extend_from_slice(&crc32fast::hash(&payload).to_le_bytes());
        bytes.extend_from_slice(&payload);
        let (events, _) = decoded(&bytes);
        prop_assert!(events.len() >= 3 && events.len() <= 3 + payload.len());
    }
}

/// A recording that was damaged anywhere, with the sums of its chunks made right again, is read as far as it makes sense.
#[test]
fn damaged_recordings_are_read_or_refused() {
    use foretell_fault::damage::{Damage, cases};
    let whole = encoded(&["/a", "/data/b"], &some_events(), 4).0;
    let other = encoded(&["/c", "/d"], &some_events()[2..], 2).0;
    let mut all = 0;
    for number in 0..cases(2000) {
        let mut damage = Damage::of_case(number);
        let mut bytes = whole.clone();
        damage.apply(&mut bytes, &other);
        if damage.below(4) > 0 {
            mend(&mut bytes);
        }
        let Ok(mut reader) = Reader::new(&bytes[..]) else { continue };
        let mut events = 0;
        while let Ok(Some(_)) = reader.next_event() {
            events += 1;
            assert!(events <= bytes.len(), "case {number}: more events than bytes");
        }
        all += events;
    }
    assert!(all > 0, "no case came past the first check");
}

/// Makes the sums of the chunks right, whose heads are whole.
fn mend(bytes: &mut [u8]) {
    let mut at = 0;
    while let Some(found) =
        bytes[at..].windows(CHUNK_MAGIC.len()).position(|bytes| bytes == CHUNK_MAGIC)
    {
        let head = at + found + CHUNK_MAGIC.len();
        at = head;
        let Some(length) = bytes.get(head..head + 4) else { return };
        let length = u32::from_le_bytes(length.try_into().expect("four bytes")) as usize;
        let Some(payload) = bytes.get(head + 8..head.saturating_add(8).saturating_add(length))
        else {
            continue;
        };
        let sum = crc32fast::hash(payload);
        bytes[head + 4..head + 8].copy_from_slice(&sum.to_le_bytes());
    }
}
