//! Replays of small recordings.

use std::collections::HashMap;
use std::io::Cursor;
use std::path::Path;

use foretell_policy::{Nanos, ReaderId};
use proptest::prelude::*;

use super::activity::{Act, Deed, Known};
use super::*;
use crate::trace::{Format, Trace, strace};

const MS: u64 = 1_000_000;

fn spec() -> ReplaySpec {
    ReplaySpec {
        rules: Rules::FORETELL,
        disclosed: Disclosed::None,
        cache_bytes: 64 << 20,
        block_bytes: 8192,
        disk: DiskParameters::hp97560(),
        disks: 4,
        stripe_bytes: 64 << 10,
        order: Order::Scan,
        outstanding: 5,
        placing: Placing::Aged,
        seed: 1,
        inodes: true,
        read_ahead: Some(ReadAheadSpec::linux(8192)),
        work: Work::default(),
    }
}

/// Files of these sizes opened and read whole by calls of 96 KiB, with `cpu` of work before each call.
fn searched(sizes_bytes: &[u64], cpu: Nanos, waited: Nanos) -> Activity {
    let (mut acts, mut now) = (Vec::new(), Nanos::ZERO);
    let mut push = |deed| {
        now += cpu;
        acts.push(Act { reader: ReaderId(9), began: now, took: waited, deed });
        now += waited;
    };
    for (file, &size) in (100..).map(FileId).zip(sizes_bytes) {
        push(Deed::Open(file));
        for offset_bytes in (0..size).step_by(96 << 10) {
            let length_bytes = (size - offset_bytes).min(96 << 10);
            push(Deed::Read { file, offset_bytes, length_bytes });
        }
    }
    let files = (100..).map(FileId).zip(sizes_bytes.iter().copied()).collect();
    Activity { acts, files, has_durations: true }
}

#[test]
fn waits_that_were_recorded_are_not_waited_again() {
    let run = |waited| spec().run(&Recorded::new(&searched(&[5000; 40], Nanos(MS), waited)));
    assert_eq!(run(Nanos::ZERO), run(Nanos(70 * MS)));
}

#[test]
fn work_is_that_of_the_recording_times_the_factor_less_the_recorder() {
    let activity = searched(&[5000; 40], Nanos(2 * MS), Nanos(MS));
    let idle = Work { hit: Nanos::ZERO, driver: Nanos::ZERO, open: Nanos::ZERO, ..Work::default() };
    let work_s = |work: Work| ReplaySpec { work, ..spec() }.run(&Recorded::new(&activity)).cpu_s;
    // The first gap is the start of the program.
    assert!((work_s(idle) - 79.0 * 0.002).abs() < 1e-9);
    assert!((work_s(Work { factor: 3.0, ..idle }) - 79.0 * 0.006).abs() < 1e-9);
    assert!((work_s(Work { overhead: Nanos(MS), ..idle }) - 79.0 * 0.001).abs() < 1e-9);
    let untimed = Activity { has_durations: false, ..activity.clone() };
    let run =
        |think| ReplaySpec { work: Work { think, ..idle }, ..spec() }.run(&Recorded::new(&untimed));
    assert!((run(Nanos(5 * MS)).cpu_s - 40.0 * 0.005).abs() < 1e-9);
}

#[test]
fn more_work_than_a_clock_counts_is_refused() {
    let activity = searched(&[5000; 40], Nanos(2 * MS), Nanos(MS));
    let untimed = Activity { has_durations: false, ..activity };
    let check = |factor, think_s: u64| {
        let work = Work { factor, think: Nanos(think_s * 1000 * MS), ..Work::default() };
        ReplaySpec { work, ..spec() }
            .check(&Recorded::new(&untimed))
            .map_err(|error| error.to_string())
    };
    assert_eq!((check(1.0, 1000), check(1e6, 10)), (Ok(()), Ok(())));
    let error = check(1e6, 1000).expect_err("40 times 31 years");
    assert!(error.starts_with("1268 years of work, and a run is of 100 at most;"), "{error}");
    // One program after another has started is not one after another.
    let many = |reader| Act {
        reader: ReaderId(reader),
        began: Nanos(MS * 1000 * 3600 * 24 * 365),
        took: Nanos::ZERO,
        deed: Deed::Open(FileId(1)),
    };
    let acts = (0..200).map(many).collect();
    let late = Activity { acts, has_durations: true, ..Activity::default() };
    assert_eq!(spec().check(&Recorded::new(&late)), Ok(()));
}

#[test]
fn a_block_may_be_in_thousands_of_pieces() {
    let activity = searched(&[100 << 20], Nanos(MS), Nanos::ZERO);
    let coarse = ReplaySpec { block_bytes: 64 << 20, cache_bytes: 1 << 30, ..spec() };
    let result = ReplaySpec { stripe_bytes: 512, ..coarse }.run(&Recorded::new(&activity));
    assert!(result.requests > 10_000, "{result:?}");
}

#[test]
fn more_reads_ahead_than_there_are_is_all() {
    let activity = searched(&[5000; 40], Nanos(MS), Nanos::ZERO);
    let of = |ahead| {
        ReplaySpec { disclosed: Disclosed::Ahead(ahead), ..spec() }.run(&Recorded::new(&activity))
    };
    assert_eq!(of(u64::MAX), of(40));
}

#[test]
fn hints_and_disks_help_as_they_should() {
    let activity = searched(&[20_000; 200], Nanos(MS / 2), Nanos::ZERO);
    let run =
        |disks, disclosed| ReplaySpec { disks, disclosed, ..spec() }.run(&Recorded::new(&activity));
    let (plain, hinted) = (run(8, Disclosed::None), run(8, Disclosed::All));
    assert_eq!((plain.reads, plain.opens, plain.inode_waits), (600, 200, 200));
    assert_eq!(plain.bytes, hinted.bytes);
    assert!(hinted.elapsed_s * 4.0 < plain.elapsed_s, "{hinted:?} {plain:?}");
    assert!(hinted.elapsed_s < 1.3 * hinted.bound_disk_s.max(hinted.bound_cpu_s), "{hinted:?}");
    // One program that waits for each read has nothing of more disks.
    let alone = run(1, Disclosed::None);
    assert!((alone.elapsed_s / plain.elapsed_s - 1.0).abs() < 0.1);
    // The next inode is not disclosed by a number, but data is.
    let ahead = run(8, Disclosed::Ahead(10));
    assert!(ahead.elapsed_s < plain.elapsed_s && ahead.elapsed_s > hinted.elapsed_s, "{ahead:?}");
}

#[test]
fn a_whole_file_is_one_request_of_what_it_has() {
    let activity = searched(&[100_000], Nanos(MS), Nanos::ZERO);
    let flat = ReplaySpec { placing: Placing::Sequential, disks: 1, ..spec() };
    let result = flat.run(&Recorded::new(&activity));
    // Its inode, and 25 pages.
    assert_eq!((result.requests, result.bytes), (2, 26 * 4096));
    let without =
        ReplaySpec { read_ahead: None, inodes: false, ..flat }.run(&Recorded::new(&activity));
    assert_eq!((without.requests, without.bytes), (13, 25 * 4096));
}

#[test]
fn memory_that_holds_the_data_saves_the_second_pass() {
    let mut activity = searched(&[1 << 20; 4], Nanos(MS), Nanos::ZERO);
    let again = searched(&[1 << 20; 4], Nanos(MS), Nanos::ZERO);
    let end = activity.acts.last().map_or(Nanos::ZERO, |act| act.began);
    activity.acts.extend(again.acts.into_iter().map(|act| Act { began: act.began + end, ..act }));
    let bytes =
        |cache_bytes| ReplaySpec { cache_bytes, ..spec() }.run(&Recorded::new(&activity)).bytes;
    let once = (4 << 20) + 4 * 4096;
    assert_eq!(bytes(8 << 20), once);
    assert!(bytes(1 << 20) > once);
    let bound = |mib: u64| {
        let result = ReplaySpec { cache_bytes: mib << 20, ..spec() }.run(&Recorded::new(&activity));
        (result.bound_fetches, result.prefetched + result.misses)
    };
    assert_eq!(bound(8), (Some(512), 512));
    // One of four files fits: MIN keeps a quarter, and so does no LRU.
    let (least, fetched) = bound(1);
    assert!(least.is_some_and(|least| (890..=fetched).contains(&least)), "{least:?} {fetched}");
}

#[test]
fn what_strace_recorded_below_the_root_counts() {
    let text = concat!(
        "7 100.000000 openat(AT_FDCWD, \"/lib/x.so\", O_RDONLY) = 3 <0.000010>\n",
        "7 100.001000 read(3, \"\"..., 832) = 832 <0.002000>\n",
        "7 100.004000 openat(AT_FDCWD, \"/data/a/f\", O_RDONLY) = 4 <0.500000>\n",
        "7 100.505000 read(4, \"\"..., 4096) = 1000 <0.250000>\n",
        "7 100.756000 read(4, \"\", 4096) = 0 <0.000010>\n",
        "7 100.757000 openat(AT_FDCWD, \"/data/a/g\", O_RDONLY) = 5 <0.500000>\n",
        "7 101.258000 read(5, \"\"..., 4096) = 4096 <0.100000>\n",
    );
    let read = |root: Option<&str>| {
        let recording = strace::of(text.as_bytes(), Path::new("t"), Path::new("/"));
        let f = Known { device: 7, inode: 42, size_bytes: 50_000 };
        let known = |path: &Path| (path == Path::new("/data/a/f")).then_some(f);
        Activity::of_recording(&recording.expect("it is strace"), root.map(Path::new), known)
    };
    let activity = read(Some("/data"));
    let sizes = activity.files.get(&FileId(42));
    assert_eq!(sizes, Some(&50_000), "what is there says how large it is");
    let opened: Vec<FileId> = activity
        .acts
        .iter()
        .filter_map(|act| match act.deed {
            Deed::Open(file) => Some(file),
            _ => None,
        })
        .collect();
    // The folder and the file, twice.
    assert_eq!((opened.len(), opened[0] == opened[2], opened[1]), (4, true, FileId(42)));
    let work = Work { hit: Nanos::ZERO, driver: Nanos::ZERO, open: Nanos::ZERO, ..Work::default() };
    let result = ReplaySpec { work, ..spec() }.run(&Recorded::new(&activity));
    assert_eq!((result.reads, result.opens, result.inode_waits), (2, 4, 3));
    // All but the waits below the root: 4 ms before the first, and 1 ms between them.
    assert!((result.cpu_s - 0.008).abs() < 1e-4, "{}", result.cpu_s);
    assert_eq!(read(None).acts.iter().filter(|act| act.deed != Deed::Other).count(), 6);
}

#[test]
fn equal_inodes_of_two_devices_are_two_files() {
    let read = |device: fn(&str) -> u64| {
        let line = |(at, name): (usize, &str)| {
            let open = format!("7 {at}.0 openat(AT_FDCWD, \"/d/{name}\", O_RDONLY) = 3 <0.1>\n");
            format!("{open}7 {at}.5 read(3, \"\"..., 4096) = 4096 <0.1>\n")
        };
        let text: String = ["1", "2", "also1", "1b"].into_iter().enumerate().map(line).collect();
        let recording = strace::of(Cursor::new(text), Path::new("t"), Path::new("/"));
        let known = |path: &Path| {
            let name = path.file_name()?.to_str()?;
            let inode = if name == "2" { 2 } else { 1 };
            Some(Known { device: device(name), inode, size_bytes: 4096 })
        };
        let activity = Activity::of_recording(&recording.expect("strace"), None, known);
        let file = |act: &Act| match act.deed {
            Deed::Read { file, .. } => Some(file.0),
            _ => None,
        };
        activity.acts.iter().filter_map(file).collect::<Vec<u64>>()
    };
    assert_eq!(read(|_| 7), [1, 2, 1, 1], "the names of one file, by its inode");
    let files = read(|name| if name == "also1" { 6 } else { 7 });
    assert_eq!((&files[..2], files[3]), (&[1, 2][..], 1), "most are on device 7");
    assert!(files[2] > 2, "{files:?}");
}

#[test]
fn what_the_program_disclosed_is_disclosed_if_asked_for() {
    let mut activity = searched(&[200_000; 20], Nanos(MS), Nanos::ZERO);
    let disclose = |at: usize| {
        let Act { reader, began, .. } = activity.acts[0];
        // Half of them to the end of the file, half of them by their lengths.
        let length_bytes = if at.is_multiple_of(2) { 0 } else { 200_000 };
        let deed = Deed::Disclose { file: FileId(100 + at as u64), offset_bytes: 0, length_bytes };
        Act { reader, began, took: Nanos::ZERO, deed }
    };
    let disclosed: Vec<Act> = (0..20).map(disclose).collect();
    activity.acts.splice(0..0, disclosed);
    assert!(activity.has_disclosures());
    let run = |disclosed| {
        let spec = ReplaySpec { disclosed, inodes: false, read_ahead: None, ..spec() };
        spec.run(&Recorded::new(&activity))
    };
    let (none, recorded, all) =
        (run(Disclosed::None), run(Disclosed::Recorded), run(Disclosed::All));
    assert_eq!((none.prefetched, recorded.prefetched), (0, 20 * 25));
    assert!(recorded.elapsed_s < 0.5 * none.elapsed_s, "{recorded:?} {none:?}");
    assert_eq!(recorded.elapsed_s, all.elapsed_s);
}

#[test]
fn what_runs_have_in_common_is_counted_once() {
    let mut activity = searched(&[100_000; 3], Nanos(MS), Nanos::ZERO);
    let recorded = Recorded::new(&activity);
    let bound = |disks, cache_bytes| {
        ReplaySpec { disks, cache_bytes, ..spec() }.run(&recorded).bound_fetches
    };
    assert_eq!(
        (bound(1, 1 << 20), bound(2, 1 << 20), bound(1, 2 << 20)),
        (Some(39), Some(39), Some(39))
    );
    assert_eq!(recorded.fewest.lock().expect("no panic").len(), 2);
    // Readers take turns, and their acts stay in order.
    for (at, act) in activity.acts.iter_mut().enumerate() {
        act.reader = ReaderId([5, 3, 5, 4][at % 4]);
    }
    let recorded = Recorded::new(&activity);
    assert_eq!(recorded.readers.iter().map(|(reader, _)| reader.0).collect::<Vec<_>>(), [5, 3, 4]);
    assert!(recorded.readers.iter().all(|(_, acts)| acts.is_sorted_by_key(|act| act.began)));
    assert_eq!(
        recorded.readers.iter().map(|(_, acts)| acts.len()).sum::<usize>(),
        activity.acts.len()
    );
    assert_eq!(spec().run(&recorded).bound_fetches, None);
}

#[test]
fn hints_are_known_by_name() {
    for text in ["none", "recorded", "files", "all", "20-ahead"] {
        assert_eq!(text.parse::<Disclosed>().map(|hints| hints.to_string()), Ok(text.to_owned()));
    }
    for text in ["", "some", "0-ahead", "-ahead", "x-ahead"] {
        assert!(text.parse::<Disclosed>().is_err(), "{text}");
    }
}

fn acts() -> impl Strategy<Value = Activity> {
    let act = (0u64..3, 0u64..6, 0u64..300_000, 1u64..200_000, 0u64..20 * MS, 0u64..30 * MS, 0..5);
    prop::collection::vec(act, 1..60).prop_map(|acts| {
        let mut activity = Activity { has_durations: true, ..Activity::default() };
        let mut now = Nanos::ZERO;
        for (reader, file, offset_bytes, length_bytes, gap, took, kind) in acts {
            now += Nanos(gap);
            let (reader, began, took, file) = (ReaderId(reader), now, Nanos(took), FileId(file));
            let deed = match kind {
                0 => Deed::Open(file),
                1 => Deed::Other,
                2 => Deed::Disclose { file, offset_bytes, length_bytes: length_bytes % 100_000 },
                _ => Deed::Read { file, offset_bytes, length_bytes },
            };
            activity.acts.push(Act { reader, began, took, deed });
            if let Deed::Read { .. } = deed {
                let size = activity.files.entry(file).or_insert(0);
                *size = (*size).max(offset_bytes + length_bytes);
            }
        }
        activity
    })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 60, ..ProptestConfig::default() })]

    /// Whatever is recorded and asked for, all programs finish, no bound is beaten (the run would
    /// panic), and a run is the same twice.
    #[test]
    fn every_recording_runs_to_its_end_on_every_machine(
        activity in acts(),
        rules in prop::sample::select(Rules::ALL.to_vec()),
        disclosed in prop::sample::select(vec![
            Disclosed::None, Disclosed::Recorded, Disclosed::Files, Disclosed::All, Disclosed::Ahead(3),
        ]),
        disks in 1usize..6,
        cache_blocks in 1u64..80,
        device in prop::sample::select(vec!["hp97560", "network", "object-store"]),
        aged in any::<bool>(),
        inodes in any::<bool>(),
    ) {
        let spec = ReplaySpec {
            rules,
            disclosed,
            disks,
            cache_bytes: cache_blocks * 8192,
            disk: DiskParameters::by_name(device).expect("built in"),
            placing: if aged { Placing::Aged } else { Placing::Sequential },
            inodes,
            ..spec()
        };
        let result = spec.run(&Recorded::new(&activity));
        let blocks: u64 = activity.acts.iter().map(|act| match act.deed {
            Deed::Read { offset_bytes, length_bytes, .. } => {
                (offset_bytes + length_bytes - 1) / 8192 - offset_bytes / 8192 + 1
            }
            _ => 0,
        }).sum();
        prop_assert_eq!(result.reads, blocks);
        prop_assert_eq!(result.reads, result.hits + result.late + result.misses);
        prop_assert_eq!(&result, &spec.run(&Recorded::new(&activity)));
    }
}

#[test]
fn a_block_that_no_file_has_is_refused_and_any_other_is_read() {
    let of = |text: &'static str| {
        let path = Path::new("t");
        let trace = Trace::of(text.as_bytes(), path, Format::Blocks, 8192).expect("memory");
        Activity::of_trace(trace, 8192).map(|activity| spec().run(&Recorded::new(&activity)).reads)
    };
    // The last block that ends at byte 2^63.
    assert_eq!(of("1125899906842623\n5\n0\n").ok(), Some(3));
    for beyond in ["5\n1125899906842624\n", "5\n9223372036854775807\n5\n"] {
        let error = of(beyond).expect_err("no file is so long").to_string();
        assert!(error.starts_with("t: line 2: a read that ends beyond byte 2^63;"), "{error}");
    }
}

#[test]
fn sizes_of_files_nobody_read_are_not_needed() {
    let acts = vec![Act {
        reader: ReaderId(1),
        began: Nanos::ZERO,
        took: Nanos::ZERO,
        deed: Deed::Open(FileId(3)),
    }];
    let activity = Activity { acts, files: HashMap::new(), has_durations: true };
    let result = ReplaySpec { disclosed: Disclosed::All, ..spec() }.run(&Recorded::new(&activity));
    assert_eq!((result.opens, result.reads), (1, 0));
}
