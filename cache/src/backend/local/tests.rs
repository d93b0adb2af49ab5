//! The ring: which reads are direct and which are not, and what happens to requests when something ends.

use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::mpsc::{Receiver, channel};

use rustix::io::Errno;

use super::super::conformance::{begin, content, end};
use super::super::direct::{Direct, is_cached};
use super::super::files::{OpenFile, Way};
use super::super::uring::Uring;
use super::super::{Object, Part, Request};
use super::*;

/// A folder on a disk, and its back end; `None` if there is no io_uring, or it does not suit the file system.
fn by_ring() -> Option<(tempfile::TempDir, LocalBackend)> {
    let folder = tempfile::tempdir().expect("a folder");
    let backend = LocalBackend::new(folder.path(), None).expect("a back end");
    if let Some(why) = backend.without_ring() {
        eprintln!("skipped: no io_uring ({why})");
        return None;
    }
    std::fs::write(folder.path().join("probe"), b"x").expect("room");
    if matches!(open(&file(&backend, "probe")).way(), Way::Threads) {
        eprintln!("skipped: {} is on a file system whose reads wait", folder.path().display());
        return None;
    }
    Some((folder, backend))
}

fn file(backend: &LocalBackend, name: &str) -> Arc<LocalFile> {
    let place = LocalBackend::place(name).expect("a name");
    let (file, metadata) = backend.readers.open(place).expect("it is there");
    LocalFile::opened(place.to_owned(), file, &metadata, &backend.readers).expect("a file")
}

fn open(file: &LocalFile) -> Arc<OpenFile> {
    file.if_open().expect("it has just been opened")
}

/// Writes a file that is on the disk and not in the page cache.
fn put_cold(path: &Path, bytes: &[u8]) {
    std::fs::write(path, bytes).expect("room");
    let file = File::open(path).expect("it is there");
    file.sync_all().expect("room");
    rustix::fs::fadvise(&file, 0, None, rustix::fs::Advice::DontNeed).expect("advice");
}

fn object(file: &Arc<LocalFile>) -> Arc<dyn Object> {
    Arc::clone(file) as Arc<dyn Object>
}

/// A request into page-aligned memory, which `done` gets.
fn aligned(
    offset: u64,
    length: usize,
    done: impl FnOnce(&[u8], Result<(), BackendError>) + Send + 'static,
) -> Request {
    let mut memory = crate::buffer::Buffer::new(length);
    let parts = vec![Part { start: memory.bytes_mut().as_mut_ptr(), length }];
    let done = Box::new(move |result| done(&memory.bytes()[..length], result));
    // SAFETY: `done` owns the memory, and nothing else uses it until `done` is called.
    unsafe { Request::new(offset, true, parts, done) }
}

#[test]
fn what_is_not_in_the_page_cache_does_not_come_there() {
    let Some((folder, backend)) = by_ring() else { return };
    for length in [1, 511, 4096, 4097, 100_001, 1 << 20] {
        let bytes = content(7, length);
        put_cold(&folder.path().join("file"), &bytes);
        let file = file(&backend, "file");
        let open = open(&file);
        if open.direct().is_none() {
            return eprintln!("skipped: {} has no direct I/O", folder.path().display());
        }
        let was_cached = is_cached(&open.file, 0, length as u64);
        let (sender, receiver) = channel();
        let expected = bytes.clone();
        object(&file).start(aligned(0, length, move |bytes, result| {
            let _ = sender.send((bytes == expected, result));
        }));
        assert_eq!(receiver.recv(), Ok((true, Ok(()))), "{length}");
        if !was_cached {
            assert!(!is_cached(&open.file, 0, length as u64), "{length}");
        }
        // C: unaligned memory and unaligned offsets.
        let (found, result) = end(&begin(&object(&file), (0, length), 77));
        assert_eq!((found == bytes, result), (true, Ok(())));
    }
}

#[test]
fn any_range_into_any_pieces_is_what_is_in_the_file() {
    let Some((folder, backend)) = by_ring() else { return };
    let mut seed = 1u64;
    let mut below = |bound: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % bound
    };
    for length in [513, 4096 * 3 + 1, 8_400_000] {
        let bytes = content(8, length);
        put_cold(&folder.path().join("file"), &bytes);
        let file = file(&backend, "file");
        for _ in 0..50 {
            let unit = [1, 512, 4096][below(3)];
            let from = below(length) / unit * unit;
            let count = 1 + below(length - from);
            // Every other page of memory: more pieces than one call takes.
            let mut memory = crate::buffer::Buffer::new(2 * count + 2 * 4096);
            let base = memory.bytes_mut().as_mut_ptr();
            let parts = (0..count).step_by(4096).map(|at| Part {
                start: base.wrapping_add(2 * at),
                length: (count - at).min(4096),
            });
            let parts = parts.collect();
            let (sender, receiver) = channel();
            let done = Box::new(move |result| {
                let found: Vec<u8> = (0..count)
                    .step_by(4096)
                    .flat_map(|at| memory.bytes()[2 * at..][..(count - at).min(4096)].to_vec())
                    .collect();
                let _ = sender.send((found, result));
            });
            // SAFETY: `done` owns the memory, and nothing else uses it until `done` is called.
            let request = unsafe { Request::new(from as u64, false, parts, done) };
            object(&file).start(request);
            let (found, result) = receiver.recv().expect("it ends");
            assert_eq!(result, Ok(()));
            assert!(found == bytes[from..from + count], "{length} {from} {count}");
        }
    }
}

#[test]
fn a_file_that_becomes_another_one_meanwhile_has_changed() {
    let Some((folder, backend)) = by_ring() else { return };
    let path = folder.path().join("file");
    let writer = || File::options().write(true).open(&path).expect("it is there");
    let cut = || writer().set_len(5000).expect("it can be");
    let grow = || writer().set_len(200_000).expect("it can be");
    let change = || writer().write_all_at(b"other", 4096).expect("it can be");
    let changes: [&dyn Fn(); 3] = [&cut, &grow, &change];
    for becomes in changes {
        put_cold(&path, &content(9, 100_000));
        let file = file(&backend, "file");
        let (_, result) = end(&begin(&object(&file), (0, 100_000), 4096));
        assert_eq!(result, Ok(()));
        becomes();
        for range in [(0, 8192), (4096, 90_000), (8192, 91_808)] {
            let (_, result) = end(&begin(&object(&file), range, 4096));
            assert_eq!(result, Err(BackendError::Changed), "{range:?}");
            let (sender, receiver) = channel();
            object(&file).start(aligned(range.0, range.1, move |_, result| {
                let _ = sender.send(result);
            }));
            assert_eq!(receiver.recv(), Ok(Err(BackendError::Changed)), "{range:?}");
        }
    }
}

#[test]
fn what_direct_reads_refuse_is_read_otherwise() {
    let Some((folder, backend)) = by_ring() else { return };
    let bytes = content(10, 50_000);
    put_cold(&folder.path().join("file"), &bytes);
    let file = file(&backend, "file");
    let Some(direct) = Direct::with_units(&open(&file).file, (1, 1)) else {
        return eprintln!("skipped: {} has no direct I/O", folder.path().display());
    };
    assert!(open(&file).way.set(Way::Ring(Some(direct))).is_ok());
    for range in [(1, 10), (77, 40_000), (0, 50_000)] {
        let (found, result) = end(&begin(&object(&file), range, 1 << 20));
        assert_eq!(result, Ok(()));
        assert!(found == bytes[range.0 as usize..][..range.1]);
    }
}

#[test]
fn without_a_ring_threads_read() {
    let folder = tempfile::tempdir().expect("a folder");
    std::fs::write(folder.path().join("file"), content(11, 5000)).expect("room");
    let none = || Some(Err(Errno::PERM.into()));
    let backend =
        LocalBackend::with(Reach::Anywhere(folder.path().into()), 2, none).expect("a back end");
    assert!(format!("{backend:?}").contains("threads (Operation not permitted"), "{backend:?}");
    let opened = backend.open("file").expect("it is there");
    let (found, result) = end(&begin(&opened.object, (0, 5000), 4096));
    assert_eq!((found == content(11, 5000), result), (true, Ok(())));
}

/// Many requests in flight, and their ends.
fn begin_many(file: &Arc<LocalFile>) -> Vec<Receiver<Result<(), BackendError>>> {
    let whole = content(12, 1 << 20);
    let begun = (0..3000u64).map(|turn| {
        let (sender, receiver) = channel();
        let at = turn * 31 % 256 * 4096;
        let expected = whole[at as usize..][..4096].to_vec();
        object(file).start(aligned(at, 4096, move |bytes, result| {
            assert!(result.is_err() || bytes == expected, "wrong bytes");
            let _ = sender.send(result);
        }));
        receiver
    });
    begun.collect()
}

#[test]
fn requests_under_way_end_when_their_back_end_does() {
    let Some((folder, backend)) = by_ring() else { return };
    put_cold(&folder.path().join("file"), &content(12, 1 << 20));
    let file = file(&backend, "file");
    let begun = begin_many(&file);
    drop(backend);
    for receiver in begun {
        let result = receiver.recv().expect("each ends");
        assert!(matches!(result, Ok(()) | Err(BackendError::Lost)), "{result:?}");
    }
    let (_, result) = end(&begin(&object(&file), (0, 10), 10));
    assert_eq!(result, Err(BackendError::Lost));
}

#[test]
fn who_begins_reads_may_end_before_them() {
    let Some((folder, backend)) = by_ring() else { return };
    put_cold(&folder.path().join("file"), &content(12, 1 << 20));
    let file = file(&backend, "file");
    let begun = std::thread::spawn(move || begin_many(&file)).join().expect("it ends");
    for receiver in begun {
        assert_eq!(receiver.recv(), Ok(Ok(())));
    }
}

#[test]
fn a_back_end_may_be_dropped_by_the_end_of_its_own_request() {
    let Some((folder, backend)) = by_ring() else { return };
    put_cold(&folder.path().join("file"), &content(12, 1 << 20));
    let file = file(&backend, "file");
    let (sender, receiver) = channel();
    object(&file).start(aligned(0, 4096, move |_, result| {
        drop(backend);
        let _ = sender.send(result);
    }));
    assert_eq!(receiver.recv(), Ok(Ok(())));
}

#[test]
fn an_end_that_panics_leaves_no_request_without_one() {
    let Some((folder, backend)) = by_ring() else { return };
    put_cold(&folder.path().join("file"), &content(12, 1 << 20));
    let file = file(&backend, "file");
    object(&file).start(aligned(0, 4096, |_, _| panic!("on purpose")));
    for receiver in begin_many(&file) {
        let result = receiver.recv().expect("each ends");
        assert!(matches!(result, Ok(()) | Err(BackendError::Lost)), "{result:?}");
    }
}
