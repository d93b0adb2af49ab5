//! The conformance suite: tests that every back end must pass.

use std::sync::Arc;
use std::sync::mpsc::Receiver;
use std::time::Duration;

use super::names::{Entry, Found};
use super::request::{Ended, Request};
use super::traits::{Backend, Object};
use crate::error::BackendError;

/// A request that has not ended after this time is taken to be lost.
const PATIENCE: Duration = Duration::from_secs(60);

/// A back end under test, and a way to create its files.
pub trait World {
    /// The back end under test.
    fn backend(&self) -> &dyn Backend;
    /// Creates the file at `path`, or replaces it by another version.
    fn put(&self, path: &str, bytes: &[u8]);
    /// Whether `a` and `a/b` may both be files.
    fn has_files_below_files(&self) -> bool {
        false
    }
}

/// Begins a read into pieces of `piece` bytes.
pub(super) fn begin(
    object: &Arc<dyn Object>,
    (offset, length): (u64, usize),
    piece: usize,
) -> Receiver<Ended> {
    let memory = vec![0xA5; length];
    let (request, receiver) = Request::into_memory(memory, offset, offset % 2 == 0, piece);
    Arc::clone(object).start(request);
    receiver
}

pub(super) fn end(receiver: &Receiver<Ended>) -> Ended {
    let ended = receiver.recv_timeout(PATIENCE).expect("each request ends");
    assert!(receiver.recv().is_err(), "a request ends once");
    ended
}

/// Bytes that differ by position and seed.
pub fn content(seed: u64, length: usize) -> Vec<u8> {
    (0..length as u64)
        .map(|at| {
            (at.wrapping_mul(0x9e37_79b9).wrapping_add(seed.wrapping_mul(at / 251 + 1)) >> 7) as u8
        })
        .collect()
}

/// Runs all tests of the suite.
///
/// # Panics
/// If one fails.
pub fn check(world: &dyn World) {
    any_range_can_be_read(world);
    many_at_once_all_end(world);
    what_is_not_there_is_not_found(world);
    another_version_is_not_served(world);
    what_there_is_can_be_found_and_listed(world);
    if world.has_files_below_files() {
        what_is_a_file_and_a_folder_is_a_folder(world);
    }
}

fn listed(backend: &dyn Backend, path: &str) -> Vec<Entry> {
    let mut listing = backend.list(path).expect("it is there");
    let mut entries = Vec::new();
    loop {
        let some = listing.next_entries().expect("it can be listed");
        if some.is_empty() {
            break;
        }
        entries.extend(some);
    }
    entries.sort_by(|one, other| one.name.cmp(&other.name));
    entries
}

fn what_there_is_can_be_found_and_listed(world: &dyn World) {
    let backend = world.backend();
    world.put("names/a file", &content(4, 5000));
    world.put("names/deep/er/file", b"x");
    world.put("names/empty", b"");
    let entries = listed(backend, "names");
    let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["a file", "deep", "empty"]);
    for entry in entries {
        let path = format!("names/{}", entry.name);
        let found = backend.find(&path).expect("it is there");
        let listed = match (&entry.found, &found) {
            (Found::Unasked, found) if !backend.lists_all_of_files() => found,
            (listed, _) => listed,
        };
        match (listed, &found) {
            (Found::Folder, Found::Folder) => assert_eq!(entry.name, "deep"),
            (Found::File(listed), Found::File(file)) => {
                assert_eq!(listed.size_bytes, file.size_bytes);
                let asked = backend.open(&path).expect("it is there");
                for file in [listed, file] {
                    let opened = backend.open_found(&path, file).expect("it is there");
                    assert_eq!(opened.size_bytes, file.size_bytes);
                    assert_eq!(opened.version, asked.version, "{file:?}");
                    if file.size_bytes > 0 {
                        let (bytes, result) = end(&begin(&opened.object, (0, 5000), 4096));
                        assert_eq!(result, Ok(()));
                        assert!(bytes == content(4, 5000));
                    }
                }
            }
            _ => panic!("{path}: {:?} and {found:?}", entry.found),
        }
    }
    assert!(listed(backend, "").iter().any(|entry| entry.name == "names"));
    assert_eq!(listed(backend, "names/deep").len(), 1);
    assert_eq!(backend.find(""), Ok(Found::Folder));
    for absent in ["absent", "names/absent", "nam", "names/a file/below"] {
        assert!(backend.find(absent).is_err(), "{absent}");
        assert!(backend.list(absent).is_err(), "{absent}");
    }
    assert_eq!(backend.find("absent"), Err(BackendError::NotFound));
}

fn what_is_a_file_and_a_folder_is_a_folder(world: &dyn World) {
    let backend = world.backend();
    for name in ["both", "both-not", "both.txt", "both/below", "both0"] {
        world.put(&format!("one name/{name}"), b"x");
    }
    let entries = listed(backend, "one name");
    let names: Vec<_> = entries.iter().map(|entry| entry.name.as_str()).collect();
    assert_eq!(names, ["both", "both-not", "both.txt", "both0"]);
    for entry in entries {
        let found = backend.find(&format!("one name/{}", entry.name)).expect("it is there");
        assert_eq!(entry.found == Found::Folder, entry.name == "both");
        assert_eq!(found == Found::Folder, entry.name == "both");
    }
}

fn any_range_can_be_read(world: &dyn World) {
    for length in [1, 4095, 4096, 100_001] {
        let whole = content(length as u64, length);
        world.put("dir/any", &whole);
        let opened = world.backend().open("dir/any").expect("it is there");
        assert_eq!(opened.size_bytes, length as u64);
        for (offset, count) in [(0, length), (length - 1, 1), (length / 2, length - length / 2)] {
            for piece in [1 << 20, 4096, 77] {
                let receiver = begin(&opened.object, (offset as u64, count), piece);
                let (bytes, result) = end(&receiver);
                assert_eq!(result, Ok(()), "{offset} {count}");
                assert!(bytes == whole[offset..offset + count], "{offset} {count} {piece}");
            }
        }
    }
}

fn many_at_once_all_end(world: &dyn World) {
    let whole = content(1, 300_000);
    world.put("many", &whole);
    let opened = world.backend().open("many").expect("it is there");
    let ranges: Vec<(u64, usize)> =
        (0..200u64).map(|turn| (turn * 7919 % 290_000, 1 + (turn * 31 % 9000) as usize)).collect();
    let begun: Vec<_> = ranges.iter().map(|&range| begin(&opened.object, range, 4096)).collect();
    for (receiver, (offset, count)) in begun.iter().zip(ranges) {
        let (bytes, result) = end(receiver);
        assert_eq!(result, Ok(()));
        assert!(bytes == whole[offset as usize..offset as usize + count]);
    }
}

fn what_is_not_there_is_not_found(world: &dyn World) {
    world.put("dir/there", b"x");
    for path in ["absent", "dir/absent", "dir", "../dir/there", "dir/there/below"] {
        let found = world.backend().open(path).map(|opened| opened.size_bytes);
        assert!(found.is_err(), "{path}: {found:?}");
    }
    assert_eq!(world.backend().open("absent").map(|_| ()), Err(BackendError::NotFound));
}

fn another_version_is_not_served(world: &dyn World) {
    let (old, new) = (content(2, 50_000), content(3, 50_000));
    world.put("replaced", &old);
    let before = world.backend().open("replaced").expect("it is there");
    world.put("replaced", &new);
    let after = world.backend().open("replaced").expect("it is there");
    assert_ne!(before.version, after.version);
    let (bytes, result) = end(&begin(&before.object, (0, 50_000), 4096));
    // An open descriptor may still read the old version.
    match result {
        Ok(()) => assert!(bytes == old, "bytes of another version"),
        Err(error) => assert_eq!(error, BackendError::Changed),
    }
    let (bytes, result) = end(&begin(&after.object, (0, 50_000), 4096));
    assert_eq!(result, Ok(()));
    assert!(bytes == new);
    assert_eq!(world.backend().open("replaced").map(|opened| opened.version), Ok(after.version));
}
