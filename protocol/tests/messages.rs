//! Messages arrive as they were sent, malformed ones are refused, and no bytes make the reader panic.

mod support;

use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use foretell_fault::damage::{Damage, cases};
use foretell_protocol::{
    Client, ClientError, Connection, Extent, Hint, Listener, Message, ProtocolError, Segment,
    layout,
};
use proptest::prelude::*;

fn any_hint() -> impl Strategy<Value = Hint> {
    let segment = (0_u64..1 << 62, 1_u64..1 << 61)
        .prop_map(|(offset_bytes, length_bytes)| Segment { offset_bytes, length_bytes });
    let extent = prop_oneof![
        Just(Extent::WholeFile),
        prop::collection::vec(segment.clone(), 1..50).prop_map(Extent::Segments),
        (segment, 0_u64..1 << 61, 1_u64..1 << 61).prop_map(|(first, stride_bytes, count)| {
            Extent::Strided { first, stride_bytes, count }
        }),
    ];
    let path = prop::collection::vec(1_u8..=255, 0..200).prop_map(|mut bytes| {
        bytes.insert(0, b'/');
        PathBuf::from(OsString::from_vec(bytes))
    });
    (any::<u64>(), path, extent, 1_u32.., any::<bool>()).prop_map(
        |(stream, path, extent, repeat, any_order)| Hint {
            stream,
            path,
            extent,
            repeat,
            any_order,
        },
    )
}

fn decode_hint(packet: &[u8]) -> Hint {
    match Message::decode(packet, None) {
        Ok(Message::Hint(hint)) => hint,
        other => panic!("{other:?}"),
    }
}

proptest! {
    #[test]
    fn random_bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
        let _ = Message::decode(&bytes, None);
    }

    #[test]
    fn random_bodies_never_panic(
        kind in 0_u32..5,
        mut body in prop::collection::vec(prop_oneof![Just(0_u8), Just(1), any::<u8>()], 0..300),
    ) {
        let mut packet = kind.to_ne_bytes().to_vec();
        packet.extend_from_slice(&u32::try_from(body.len() + 8).unwrap().to_ne_bytes());
        packet.append(&mut body);
        let _ = Message::decode(&packet, None);
    }

    #[test]
    fn hints_survive_the_way(hint in any_hint()) {
        let packets = hint.encode().unwrap();
        prop_assert_eq!(packets.len(), 1);
        prop_assert_eq!(decode_hint(&packets[0]), hint);
    }

    #[test]
    fn damaged_hints_never_panic(hint in any_hint(), at in any::<prop::sample::Index>(), byte: u8) {
        let mut packet = hint.encode().unwrap().remove(0);
        let at = at.index(packet.len());
        packet[at] = byte;
        let _ = Message::decode(&packet, None);
        let _ = Message::decode(&packet[..at], None);
    }
}

/// Whatever a packet says, a hint that comes of it is within its bounds, and is the one that its sender would have encoded.
#[test]
fn damaged_packets_are_refused_or_are_hints_within_their_bounds() {
    let hint = |path: &str, extent| Hint {
        stream: 7,
        path: path.into(),
        extent,
        repeat: 3,
        any_order: true,
    };
    let first = Segment { offset_bytes: 4096, length_bytes: 512 };
    let valid = [
        hint("/data/whole", Extent::WholeFile),
        hint("/data/parts", Extent::Segments(vec![first; 9])),
        hint("/data/stride", Extent::Strided { first, stride_bytes: 8192, count: 100 }),
    ];
    let valid = valid.map(|hint| hint.encode().expect("well formed").remove(0));
    let mut hints = 0;
    for number in 0..cases(20_000) {
        let mut damage = Damage::of_case(number);
        let mut packet = damage.one_of(&valid).clone();
        let other = damage.one_of(&valid).clone();
        damage.apply(&mut packet, &other);
        if packet.len() >= 8 && damage.below(3) > 0 {
            let bytes = u32::try_from(packet.len()).expect("short").to_ne_bytes();
            packet[4..8].copy_from_slice(&bytes);
        }
        let Ok(Message::Hint(hint)) = Message::decode(&packet, None) else { continue };
        hints += 1;
        let path = hint.path.as_os_str().as_encoded_bytes();
        assert!(path.starts_with(b"/") && !path.contains(&0), "case {number}: {hint:?}");
        assert!(path.len() <= layout::PATH_MAX_BYTES as usize && hint.repeat > 0, "case {number}");
        let is_in_a_file = |segment: &Segment| {
            let end = segment.offset_bytes.checked_add(segment.length_bytes);
            segment.length_bytes > 0 && end.is_some_and(|end| i64::try_from(end).is_ok())
        };
        match &hint.extent {
            Extent::WholeFile => {}
            Extent::Segments(segments) => assert!(segments.iter().all(is_in_a_file)),
            Extent::Strided { first, count, .. } => assert!(is_in_a_file(first) && *count > 0),
        }
        let again = hint.encode().expect("within its bounds");
        assert_eq!(decode_hint(&again[0]), hint, "case {number}");
    }
    assert!(hints > 0, "no case came past the first check");
}

#[test]
fn malformed_hints_are_refused() {
    let hint = |path: &str, extent, repeat| Hint {
        stream: 1,
        path: path.into(),
        extent,
        repeat,
        any_order: false,
    };
    let segment =
        |offset_bytes, length_bytes| Extent::Segments(vec![Segment { offset_bytes, length_bytes }]);
    for path in ["", "relative", "/nul\0", &format!("/{}", "x".repeat(4096))] {
        let error = hint(path, Extent::WholeFile, 1).encode().unwrap_err();
        assert!(matches!(error, ProtocolError::Path), "{path}: {error}");
    }
    let extents =
        [segment(0, 0), segment(u64::MAX, 1), segment(1 << 63, 1), Extent::Segments(vec![])];
    for extent in extents {
        let error = hint("/a", extent, 1).encode().unwrap_err();
        assert!(matches!(error, ProtocolError::Segments), "{error}");
    }
    assert!(matches!(hint("/a", segment(0, 1), 0).encode(), Err(ProtocolError::Segments)));
}

#[test]
fn long_lists_of_segments_travel_in_several_packets() {
    let segments: Vec<Segment> =
        (0..10_000).map(|i| Segment { offset_bytes: i * 7, length_bytes: 3 }).collect();
    let extent = Extent::Segments(segments.clone());
    let hint = Hint { stream: 5, path: "/long".into(), extent, repeat: 2, any_order: false };
    let packets = hint.encode().unwrap();
    assert!(packets.iter().all(|packet| packet.len() <= layout::MESSAGE_MAX_BYTES as usize));
    let mut received = Vec::new();
    for packet in &packets {
        let part = decode_hint(packet);
        assert_eq!(part.repeat, 1);
        let Extent::Segments(part) = part.extent else { panic!("not segments") };
        received.extend(part);
    }
    assert_eq!(received, [segments.clone(), segments].concat());
}

fn accept(listener: &Listener) -> Connection {
    let begin = Instant::now();
    loop {
        if let Some(connection) = listener.accept().expect("accept") {
            return connection;
        }
        assert!(begin.elapsed() < Duration::from_secs(60), "nobody connects");
    }
}

#[test]
fn a_client_reaches_its_manager() {
    let listener = Listener::bind().expect("listener");
    assert!(listener.accept().expect("accept").is_none());
    assert!(Client::managers().contains(&listener.address().to_owned()));
    let client = Client::connect(listener.address()).expect("client");
    let mut connection = accept(&listener);
    assert_eq!(connection.peer_pid(), std::process::id().cast_signed());
    connection.peer_pidfd().expect("pidfd");
    assert!(connection.receive().expect("nothing yet").is_none());
    let hint = Hint {
        stream: 3,
        path: "/a b".into(),
        extent: Extent::WholeFile,
        repeat: 1,
        any_order: false,
    };
    client.hint(&hint).expect("hint");
    client.cancel(3).expect("cancel");
    assert!(matches!(connection.receive(), Ok(Some(Message::Hint(got))) if got == hint));
    assert!(matches!(connection.receive(), Ok(Some(Message::Cancel { stream: 3 }))));
    drop(client);
    assert!(matches!(connection.receive(), Ok(Some(Message::End))));
}

#[test]
fn an_absent_manager_is_named() {
    let address = Listener::bind().expect("listener").address().to_owned();
    let error = Client::connect(&address).unwrap_err();
    assert!(matches!(&error, ClientError::Connect { address: named, .. } if *named == address));
}

#[test]
fn the_c_interface_sends_hints_and_is_silent_without_a_manager() {
    support::preload_library(); // builds the C interface too
    let archive = support::build_folder().join("libforetell.a");
    let archive = archive.to_str().expect("plain path");
    let program = support::c_program("hints", &["-Wextra", "-Werror", archive]);
    let mut alone = Command::new(&program);
    alone.env_remove("FORETELL_SOCKET");
    assert_eq!(support::succeed(&mut alone).stdout, b"1 1 0 1 1\n3 3 3 3\n");

    let folder = tempfile::tempdir().expect("folder");
    let mut command = Command::new(&program);
    command.current_dir(folder.path());
    let observed = support::observe(&mut command, false);
    let said = String::from_utf8_lossy(&observed.output.stdout).into_owned();
    assert_eq!(said, "0 0 1 0 0\n3 3 3 3\n");
    let folder = folder.path().canonicalize().expect("folder");
    let names: Vec<_> =
        observed.hints.iter().map(|hint| (hint.stream, hint.path.clone())).collect();
    assert!(names.contains(&(0, folder.join("whole"))), "{names:?}");
    assert!(names.contains(&(0, "/parts".into())));
    assert!(names.contains(&(1, folder.join("streamed"))));
    let mut parts = observed.hints.iter().filter(|hint| hint.path.as_path() == Path::new("/many"));
    let total: usize = parts
        .by_ref()
        .map(|hint| match &hint.extent {
            Extent::Segments(segments) => segments.len(),
            _ => panic!("not segments"),
        })
        .sum();
    assert_eq!(total, 9000);
    let formed: Vec<&Hint> =
        observed.hints.iter().filter(|hint| hint.path.as_path() == Path::new("/formed")).collect();
    let first = Segment { offset_bytes: 8, length_bytes: 4 };
    let strided = Extent::Strided { first, stride_bytes: 100, count: 7 };
    let whole = Extent::WholeFile;
    let formed: Vec<_> =
        formed.iter().map(|hint| (&hint.extent, hint.repeat, hint.any_order)).collect();
    assert_eq!(
        formed,
        [(&strided, 3, true), (&whole, 1, false), (&Extent::Segments(vec![first]), 2, false)]
    );
    assert_eq!(observed.cancelled, [1, 1], "one asked for, one at close");
    assert_eq!(observed.bounded, [(1, 16_384)]);
}
