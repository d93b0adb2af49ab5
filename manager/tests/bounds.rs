//! The memory that the manager takes for hints is bounded, whichever way they come.

use std::fs;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use foretell_manager::source::{Certainty, Disclosure};
use foretell_manager::{Manager, Options, Source};
use foretell_policy::{Extent, Segment};
use foretell_protocol::{Client, Extent as ToldExtent, Hint, STREAM_EXTERNAL, Segment as Told};

/// Most memory for the hints of one source or process: half of the manager's bound.
const ONE_MAX_BYTES: usize = 64 << 20;

const SEGMENT_BYTES: usize = size_of::<Segment>();

/// A sparse file, far larger than the part that is read.
fn large_file(folder: &Path) -> std::path::PathBuf {
    let path = folder.join("large");
    fs::File::create(&path).and_then(|file| file.set_len(1 << 40)).expect("a sparse file");
    path
}

/// Waits until the count has not changed for a while.
fn settled(count: impl Fn() -> usize) -> usize {
    let began = Instant::now();
    let mut last = count();
    loop {
        thread::sleep(Duration::from_secs(2));
        let now = count();
        if now == last && now > 0 || began.elapsed() > Duration::from_secs(120) {
            return now;
        }
        last = now;
    }
}

#[test]
fn a_list_of_very_many_segments_waits_for_room() {
    const LINES: usize = 200;
    const SEGMENTS: usize = 50_000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = large_file(folder.path());
    let given = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&given);
    let lines = (0..LINES).map(move |line| {
        counted.fetch_add(1, Ordering::Relaxed);
        let first = (line * SEGMENTS) as u64;
        let segment = |at: u64| Segment { offset_bytes: (first + at) << 16, length_bytes: 1 };
        let segments: Vec<Segment> = (0..SEGMENTS as u64).map(segment).collect();
        let whole = Disclosure::whole_file(path.clone(), Certainty::File);
        Ok(Disclosure { extent: Extent::Segments(segments.into()), ..whole })
    });
    let sources: Vec<Source> = vec![Box::new(lines)];
    let options = Options { budget_bytes: 1 << 20, sources, ..Options::default() };
    let manager = Manager::start(options).expect("it starts");
    let taken = settled(|| given.load(Ordering::Relaxed));
    // The hints that are kept, and those that the source is ahead by.
    let most = (ONE_MAX_BYTES + (16 << 20)) / (SEGMENTS * SEGMENT_BYTES);
    assert!((10..=most).contains(&taken), "{taken} of {LINES} lines, at most {most}");
    drop(manager.stop());
}

#[test]
fn a_connection_for_each_hint_waits_for_room_too() {
    const HINTS: usize = 1500;
    const SEGMENTS: usize = 4000;
    let folder = tempfile::tempdir().expect("a folder");
    let path = large_file(folder.path());
    let options = Options { budget_bytes: 1 << 20, ..Options::default() };
    let manager = Manager::start(options).expect("it starts");
    let hint = |number: usize| {
        let first = (number * SEGMENTS) as u64;
        let segment = |at: u64| Told { offset_bytes: (first + at) << 16, length_bytes: 1 };
        let segments = (0..SEGMENTS as u64).map(segment).collect();
        Hint {
            stream: STREAM_EXTERNAL,
            path: path.clone(),
            extent: ToldExtent::Segments(segments),
            repeat: 1,
            any_order: false,
        }
    };
    let mut sent = 0;
    for number in 0..HINTS {
        // Without room for one more connection this fails.
        let client = Client::connect(manager.address());
        sent += usize::from(client.is_ok_and(|client| client.hint(&hint(number)).is_ok()));
    }
    assert!(sent > 900, "{sent} were sent");
    thread::sleep(Duration::from_secs(3));
    let report = manager.stop();
    let given = usize::try_from(report.hints.given).expect("a count");
    let most = ONE_MAX_BYTES / (SEGMENTS * SEGMENT_BYTES) + 1;
    assert!((10..=most).contains(&given), "{given} of {sent} hints, at most {most}");
}
