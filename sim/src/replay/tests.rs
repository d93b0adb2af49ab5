//! Replays of small recordings.

use std::collections::HashMap;
use std::io::Cursor;
use std::path::Path;

use foretell_policy::{Nanos, ReaderId};
use proptest::prelude::*;

use super::activity::{Act, Deed, Known};
use super::*;
use crate::trace::recording::Whom;
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

/// Opens files of these sizes and reads each whole, by calls of 96 KiB, with `cpu` of work before each call.
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
    // The first gap is the program's start.
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
    assert!(error == "1268 years of work, and a run has 100 at most", "{error}");
    // Many programs that start late do not run one after another, so their starts do not add up.
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

/// A device with `slots` and a constant latency.
fn flat(slots: usize, latency_ms: f64) -> DiskParameters {
    let text = format!(
        "model = \"flat\"\nbandwidth_mb_per_s = 100.0\nslots = {slots}\ncapacity_gib = 1000\n\
         [latency]\ndistribution = \"constant\"\nlatency_ms = {latency_ms}\n"
    );
    DiskParameters::from_toml(&text).expect("a device")
}

#[test]
fn a_device_whose_link_is_full_is_busy() {
    let text = "model = \"flat\"\nbandwidth_mb_per_s = 100.0\nlink_mb_per_s = 100.0\nslots = 64\n\
                capacity_gib = 1000\n[latency]\ndistribution = \"constant\"\nlatency_ms = 0.1\n";
    let disk = DiskParameters::from_toml(text).expect("a device");
    let activity = searched(&[32 << 20], Nanos::ZERO, Nanos::ZERO);
    let work = Work { factor: 0.0, ..Work::default() };
    let spec = ReplaySpec { disks: 1, disk, work, disclosed: Disclosed::All, ..spec() };
    let result = spec.run(&Recorded::new(&activity));
    // 32 MiB at 100 MB/s.
    assert!(result.bound_disk_s > 0.33 && result.bound_disk_s < 0.35, "{result:?}");
    assert!(result.busiest_share > 0.5, "{result:?}");
    let free = ReplaySpec { disk: flat(64, 0.1), ..spec }.run(&Recorded::new(&activity));
    assert!(free.bound_disk_s < 0.05, "{free:?}");
}

#[test]
fn requests_that_a_disk_has_no_time_for_are_refused() {
    let activity = searched(&[1 << 38], Nanos(MS), Nanos::ZERO);
    let recorded = Recorded::new(&activity);
    let check = |latency_ms| ReplaySpec { disk: flat(1, latency_ms), ..spec() }.check(&recorded);
    assert_eq!(check(0.1), Ok(()));
    assert!(matches!(check(60_000.0), Err(TooLong::Requests(years)) if years > 100.0));
}

#[test]
fn more_blocks_than_anybody_waits_for_are_refused_with_a_size_that_is_enough() {
    let activity = searched(&[(1 << 38) + 1], Nanos(MS), Nanos::ZERO);
    let recorded = Recorded::new(&activity);
    let check = |block_bytes| ReplaySpec { block_bytes, ..spec() }.check(&recorded);
    let (blocks, enough_bytes) = (BLOCKS_MAX + 1, Some(16 << 10));
    assert_eq!(check(8 << 10), Err(TooLong::Blocks { blocks, enough_bytes }));
    assert_eq!(check(16 << 10), Ok(()));
}

#[test]
fn shares_of_a_long_run_of_a_wide_device_are_shares() {
    let activity = searched(&[5000; 40], Nanos(MS), Nanos::ZERO);
    let work = Work { think: Nanos(700_000 * 1000 * MS), ..Work::default() };
    let activity = Activity { has_durations: false, ..activity };
    let spec = ReplaySpec { disk: flat(65_536, 1.0), outstanding: 65_536, work, ..spec() };
    let result = spec.run(&Recorded::new(&activity));
    assert!(result.elapsed_s * 65_536.0 > 1e-9 * u64::MAX as f64, "it is no test of that");
    assert!((0.0..1e-3).contains(&result.busiest_share), "{}", result.busiest_share);
}

#[test]
fn a_file_that_is_looked_at_as_it_is_read_is_disclosed_once() {
    let activity = searched(&[2 << 20, 100_000], Nanos(MS), Nanos::ZERO);
    let run = |activity: &Activity| {
        let files = ReplaySpec { disclosed: Disclosed::Files, cache_bytes: 1 << 20, ..spec() };
        files.run(&Recorded::new(activity))
    };
    let plain = run(&activity);
    let mut looked_at = activity.clone();
    for act in &activity.acts {
        let place = looked_at.acts.iter().position(|other| other == act).expect("it is there");
        let look = Act { took: Nanos::ZERO, deed: Deed::Look(FileId(100)), ..*act };
        looked_at.acts.insert(place, look);
    }
    let looked_at = run(&looked_at);
    let of = |result: &ReplayResult| (result.bytes, result.prefetched, result.wasted);
    assert_eq!(of(&looked_at), of(&plain));
    assert!(looked_at.opens > 20 && plain.opens == 2);
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

/// Calls of 16 KiB at random places of a file.
fn at_random(reads: u64) -> Activity {
    let mut activity = searched(&[256 << 20], Nanos(MS), Nanos::ZERO);
    activity.acts.truncate(1);
    let Act { reader, began, .. } = activity.acts[0];
    let pages = (256 << 20) / 16384;
    activity.acts.extend((1..=reads).map(|number| {
        let offset_bytes = crate::random::hash(&[number]) % pages * 16384;
        let deed = Deed::Read { file: FileId(100), offset_bytes, length_bytes: 16384 };
        Act { reader, began: Nanos(began.0 + number * MS), took: Nanos::ZERO, deed }
    }));
    activity
}

#[test]
fn what_is_read_at_random_is_read_by_calls_and_nothing_ahead_of_it() {
    let activity = at_random(300);
    let run = |block_bytes, read_ahead, disks| {
        let stripe_bytes = 64 << 10;
        ReplaySpec { block_bytes, read_ahead, disks, stripe_bytes, inodes: false, ..spec() }
            .run(&Recorded::new(&activity))
    };
    let linux = |block_bytes| Some(ReadAheadSpec::linux(block_bytes));
    let whole = run(16384, linux(16384), 1);
    assert_eq!(whole.bytes, 300 * 16384);
    for (block_bytes, read_ahead) in [(8192, linux(8192)), (4096, linux(4096)), (8192, None)] {
        let parts = run(block_bytes, read_ahead, 1);
        assert_eq!((parts.bytes, parts.requests), (whole.bytes, whole.requests));
        assert!((parts.elapsed_s / whole.elapsed_s - 1.0).abs() < 0.05, "{parts:?} {whole:?}");
        // More disks neither help nor harm.
        let more = run(block_bytes, read_ahead, 4);
        assert!(more.elapsed_s < 1.02 * parts.elapsed_s, "{more:?} {parts:?}");
    }
}

#[test]
fn depths_are_tried_as_by_the_manager() {
    // Data beside inodes on one disk. In order, both come from the drive's buffer. Two fetches in flight are
    // best, and the policy finds that out.
    let activity = searched(&[6000; 2000], Nanos(MS / 10), Nanos::ZERO);
    let run = |disks, rules, disclosed| {
        let spec = ReplaySpec { disks, rules, disclosed, placing: Placing::Sequential, ..spec() };
        spec.run(&Recorded::new(&activity)).elapsed_s
    };
    let plain = run(1, Rules::FORETELL, Disclosed::None);
    let (untried, tried) =
        (run(1, Rules::TIP2, Disclosed::Files), run(1, Rules::FORETELL, Disclosed::Files));
    assert!(untried > 2.0 * plain && tried < 1.15 * plain, "{plain} {untried} {tried}");
    // On many disks the trials cost next to nothing.
    let (untried, tried) =
        (run(8, Rules::TIP2, Disclosed::Files), run(8, Rules::FORETELL, Disclosed::Files));
    assert!(tried < 1.03 * untried, "{untried} {tried}");
}

#[test]
fn a_file_that_is_given_twice_is_disclosed_twice() {
    let mut activity = searched(&[8 << 20], Nanos(MS), Nanos::ZERO);
    let again = activity.acts.clone();
    let end = activity.acts.last().map_or(Nanos::ZERO, |act| act.began);
    activity.acts.extend(again.into_iter().map(|act| Act { began: act.began + end, ..act }));
    let run = |disclosed| {
        ReplaySpec { disclosed, cache_bytes: 4 << 20, ..spec() }.run(&Recorded::new(&activity))
    };
    let (none, files, all) = (run(Disclosed::None), run(Disclosed::Files), run(Disclosed::All));
    assert!(files.elapsed_s < none.elapsed_s, "{files:?} {none:?}");
    assert!((files.elapsed_s / all.elapsed_s - 1.0).abs() < 0.02, "{files:?} {all:?}");
    // A part of the file stays in memory for the second pass.
    assert!(files.bytes < none.bytes, "{files:?} {none:?}");
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
    // One program that waits for each read gains nothing from more disks.
    let alone = run(1, Disclosed::None);
    assert!((alone.elapsed_s / plain.elapsed_s - 1.0).abs() < 0.1);
    // Disclosures by number do not include the next inode, but include data.
    let ahead = run(8, Disclosed::Ahead(10));
    assert!(ahead.elapsed_s < plain.elapsed_s && ahead.elapsed_s > hinted.elapsed_s, "{ahead:?}");
}

#[test]
fn inodes_that_a_busy_disk_leaves_for_last_cost_no_hint_its_use() {
    let mut activity = searched(&[960 << 10; 40], Nanos(MS / 20), Nanos::ZERO);
    // Their inodes lie all over the disk.
    let scattered = |file: FileId| FileId(file.0.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 1);
    for act in &mut activity.acts {
        match &mut act.deed {
            Deed::Open(file) | Deed::Read { file, .. } => *file = scattered(*file),
            deed => panic!("{deed:?}"),
        }
    }
    activity.files =
        activity.files.into_iter().map(|(file, size)| (scattered(file), size)).collect();
    let recorded = Recorded::new(&activity);
    let spec = ReplaySpec { disclosed: Disclosed::All, placing: Placing::Sequential, ..spec() };
    let spec = ReplaySpec { cache_bytes: 256 << 20, ..spec };
    for name in ["hp97560", "ibm0661"] {
        let disk = DiskParameters::by_name(name).expect("it is built in");
        for (disks, rules) in [1, 2].into_iter().flat_map(|disks| Rules::ALL.map(|r| (disks, r))) {
            if rules == Rules::LRU {
                continue;
            }
            let result = ReplaySpec { disk: disk.clone(), disks, rules, ..spec }.run(&recorded);
            let case = format!("{} on {disks} {name}: {result:?}", rules.name);
            // A hint that is given up costs the 120 reads of its file. One read may come just before its inode.
            assert!(result.misses <= 1 && result.wasted == 0, "{case}");
        }
    }
}

#[test]
fn a_whole_file_is_one_request_of_what_it_has() {
    let activity = searched(&[100_000], Nanos(MS), Nanos::ZERO);
    let flat = ReplaySpec { placing: Placing::Sequential, disks: 1, ..spec() };
    let result = flat.run(&Recorded::new(&activity));
    // The inode, and 25 pages.
    assert_eq!((result.requests, result.bytes), (2, 26 * 4096));
    let without =
        ReplaySpec { read_ahead: None, inodes: false, ..flat }.run(&Recorded::new(&activity));
    // One request for each call.
    assert_eq!((without.requests, without.bytes), (2, 25 * 4096));
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
    // One of four files fits: MIN keeps a quarter of the data, and LRU keeps none.
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
            Deed::Open(file) | Deed::Look(file) => Some(file),
            _ => None,
        })
        .collect();
    // The folder and the file, twice.
    assert_eq!((opened.len(), opened[0] == opened[2], opened[1]), (4, true, FileId(42)));
    let work = Work { hit: Nanos::ZERO, driver: Nanos::ZERO, open: Nanos::ZERO, ..Work::default() };
    let result = ReplaySpec { work, ..spec() }.run(&Recorded::new(&activity));
    assert_eq!((result.reads, result.opens, result.inode_waits), (2, 4, 3));
    // Everything but the waits below the root: 4 ms before the first read, and 1 ms between the reads.
    assert!((result.cpu_s - 0.008).abs() < 1e-4, "{}", result.cpu_s);
    assert_eq!(read(None).acts.iter().filter(|act| act.deed != Deed::Other).count(), 7);
}

/// Lookups of missing names, reads at the end of a file and lookups of the root take the recorded disk's time.
#[test]
fn what_brings_nothing_is_no_work() {
    let text = concat!(
        "7 99.900000 openat(AT_FDCWD, \"/data\", O_RDONLY|O_DIRECTORY) = 3 <0.100000>\n",
        "7 100.000000 openat(AT_FDCWD, \"/data/a/f\", O_RDONLY) = 3 <0.020000>\n",
        "7 100.020000 read(3, \"\"..., 4096) = 100 <0.020000>\n",
        "7 100.040000 read(3, \"\", 4096) = 0 <0.020000>\n",
        "7 100.060000 stat(\"/data/b/g\", 0x7f) = -1 ENOENT (No such file or directory) <0.020000>\n",
        "7 100.080000 stat(\"/home/g\", 0x7f) = -1 ENOENT (No such file or directory) <0.020000>\n",
    );
    let recording = strace::of(text.as_bytes(), Path::new("t"), Path::new("/")).expect("strace");
    let activity = Activity::of_recording(&recording, Some(Path::new("/data")), |_| None);
    let work = Work { hit: Nanos::ZERO, driver: Nanos::ZERO, open: Nanos::ZERO, ..Work::default() };
    let result = ReplaySpec { work, ..spec() }.run(&Recorded::new(&activity));
    // Reads elsewhere are the program's own time.
    assert!((result.cpu_s - 0.020).abs() < 1e-9, "{result:?}");
    // The folder of the missing name was looked up.
    assert_eq!((result.opens, result.inode_waits), (3, 3));
}

#[test]
fn equal_inodes_of_two_devices_are_two_files() {
    let read = |device: fn(&str) -> u64| {
        let line = |(at, name): (u64, &str)| {
            let open = format!("7 {at}.0 openat(AT_FDCWD, \"/d/{name}\", O_RDONLY) = 3 <0.1>\n");
            format!("{open}7 {at}.5 read(3, \"\"..., 4096) = 4096 <0.1>\n")
        };
        let text: String = (1..).zip(["1", "2", "also1", "1b"]).map(line).collect();
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
        // Half of them to the end of the file, half with a length.
        let length_bytes = if at.is_multiple_of(2) { 0 } else { 200_000 };
        let deed = Deed::Disclose { file: FileId(100 + at as u64), offset_bytes: 0, length_bytes };
        Act { reader, began, took: Nanos::ZERO, deed }
    };
    let disclosed: Vec<Act> = (0..20).map(disclose).collect();
    activity.acts.splice(0..0, disclosed);
    assert!(activity.has_disclosures());
    // TIP2 tries no depths with hints, as a kernel tries none with advice.
    let untried = ReplaySpec { rules: Rules::TIP2, inodes: false, read_ahead: None, ..spec() };
    let run =
        |disclosed| ReplaySpec { disclosed, ..untried.clone() }.run(&Recorded::new(&activity));
    let (none, recorded, all) =
        (run(Disclosed::None), run(Disclosed::Recorded), run(Disclosed::All));
    // Without disclosures, the last call of each file is for one block.
    assert_eq!((none.misses, recorded.prefetched), (20, 20 * 25));
    assert!(recorded.elapsed_s < 0.5 * none.elapsed_s, "{recorded:?} {none:?}");
    assert_eq!(recorded.elapsed_s, all.elapsed_s);
}

#[test]
fn advice_for_a_part_of_a_file_leaves_the_rest_to_read_ahead() {
    let mut activity = searched(&[8 << 20], Nanos(MS), Nanos::ZERO);
    let Act { reader, began, .. } = activity.acts[0];
    let deed = Deed::Disclose { file: FileId(100), offset_bytes: 0, length_bytes: 128 << 10 };
    activity.acts.insert(1, Act { reader, began, took: Nanos::ZERO, deed });
    let run = |disclosed| ReplaySpec { disclosed, ..spec() }.run(&Recorded::new(&activity));
    let (none, recorded) = (run(Disclosed::None), run(Disclosed::Recorded));
    assert!(recorded.elapsed_s <= 1.05 * none.elapsed_s, "{recorded:?} {none:?}");
}

#[test]
fn looking_at_a_file_does_not_begin_its_read_ahead_anew() {
    let mut activity = searched(&[8 << 20], Nanos(MS), Nanos::ZERO);
    let run = |activity: &Activity| {
        let result =
            ReplaySpec { disclosed: Disclosed::None, ..spec() }.run(&Recorded::new(activity));
        (result.requests, result.bytes)
    };
    let plain = run(&activity);
    let with = |deed: Deed| move |act: Act| [Act { deed, took: Nanos::ZERO, ..act }, act];
    let acts = std::mem::take(&mut activity.acts);
    activity.acts = acts.into_iter().flat_map(with(Deed::Look(FileId(100)))).collect();
    assert_eq!(run(&activity), plain);
}

#[test]
fn where_no_open_was_recorded_inodes_cost_nothing() {
    let mut activity = searched(&[8192; 100], Nanos(MS), Nanos::ZERO);
    let run = |activity: &Activity, disclosed| {
        ReplaySpec { disclosed, disks: 1, ..spec() }.run(&Recorded::new(activity))
    };
    assert!(run(&activity, Disclosed::None).inode_waits > 50);
    activity.acts.retain(|act| !matches!(act.deed, Deed::Open(_)));
    let none = run(&activity, Disclosed::None);
    for disclosed in [Disclosed::Files, Disclosed::All, Disclosed::Ahead(16)] {
        let hinted = run(&activity, disclosed);
        assert_eq!((hinted.inode_waits, hinted.requests), (0, none.requests), "{disclosed}");
        assert!(hinted.elapsed_s <= none.elapsed_s, "{disclosed}: {hinted:?} {none:?}");
    }
}

#[test]
fn reads_told_of_far_ahead_are_as_good_as_all_of_them() {
    let activity = searched(&[20_000; 100], Nanos(MS), Nanos::ZERO);
    let run = |disclosed| ReplaySpec { disclosed, ..spec() }.run(&Recorded::new(&activity));
    let (all, ahead) = (run(Disclosed::All), run(Disclosed::Ahead(100_000)));
    assert!(ahead.elapsed_s < 1.1 * all.elapsed_s, "{ahead:?} {all:?}");
    assert!(ahead.inode_waits <= all.inode_waits + 2, "{ahead:?} {all:?}");
}

#[test]
fn lru_makes_nothing_of_hints() {
    let activity = searched(&[20_000; 100], Nanos(MS), Nanos::ZERO);
    let run = |disclosed| {
        let spec = ReplaySpec { disclosed, rules: Rules::LRU, read_ahead: None, ..spec() };
        spec.run(&Recorded::new(&activity))
    };
    let (none, all) = (run(Disclosed::None), run(Disclosed::All));
    assert_eq!((none.requests, none.inode_waits), (all.requests, all.inode_waits));
    assert_eq!(none.elapsed_s, all.elapsed_s);
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
    // Readers take turns, and all acts stay in order.
    for (at, act) in activity.acts.iter_mut().enumerate() {
        act.reader = ReaderId([5, 3, 5, 4][at % 4]);
    }
    let recorded = Recorded::new(&activity);
    assert_eq!(recorded.readers.iter().map(|reader| reader.id.0).collect::<Vec<_>>(), [5, 3, 4]);
    assert!(recorded.readers.iter().all(|reader| reader.own.is_sorted()));
    let acts: usize = recorded.readers.iter().map(|reader| reader.own.len()).sum();
    assert_eq!(acts, activity.acts.len());
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

/// Acts of `reader`, in sequence from `began` on; each has a time before it, a duration and a deed, in
/// milliseconds.
fn of_reader(reader: u64, mut began: u64, acts: &[(u64, u64, Deed)]) -> Vec<Act> {
    let act = |&(before, took, deed): &(u64, u64, Deed)| {
        let act = Act {
            reader: ReaderId(reader),
            began: Nanos((began + before) * MS),
            took: Nanos(took * MS),
            deed,
        };
        began += before + took;
        act
    };
    acts.iter().map(act).collect()
}

fn together(readers: impl IntoIterator<Item = Vec<Act>>) -> Activity {
    let mut acts: Vec<Act> = readers.into_iter().flatten().collect();
    acts.sort_by_key(|act| act.began);
    Activity { acts, has_durations: true, ..Activity::default() }
}

/// A machine on which all work is recorded work.
fn only_recorded() -> ReplaySpec {
    let work = Work { hit: Nanos::ZERO, driver: Nanos::ZERO, open: Nanos::ZERO, ..Work::default() };
    ReplaySpec { work, ..spec() }
}

fn of_shell(activities: &[Activity]) -> Activity {
    let mut activity = Activity { has_durations: true, ..Activity::default() };
    let mut now = Nanos::ZERO;
    let mut shell = Vec::new();
    for (child, of) in (10..).map(ReaderId).zip(activities) {
        let mut push = |now, took, deed| {
            shell.push(Act { reader: ReaderId(1), began: now, took, deed });
        };
        push(now, Nanos(MS), Deed::Fork { child, waits: false });
        let began = now + Nanos(MS);
        let acts =
            of.acts.iter().map(|act| Act { reader: child, began: began + act.began, ..*act });
        let first = activity.acts.len();
        activity.acts.extend(acts);
        let last = activity.acts[first..].last().expect("it reads");
        now = last.began + last.took + Nanos(MS);
        let took = now.saturating_sub(began);
        push(began, took, Deed::Wait(Whom::Child(child)));
        activity.files.extend(&of.files);
    }
    activity.acts.extend(shell);
    activity.acts.sort_by_key(|act| act.began);
    activity
}

#[test]
fn a_shell_gains_what_its_programs_gain() {
    let waited = Nanos(20 * MS);
    let parts: Vec<Activity> = (0..2)
        .map(|part| {
            let mut activity = searched(&[50_000; 40], Nanos(MS), waited);
            let renumber = |file: &mut FileId| file.0 += 1000 * part;
            for act in &mut activity.acts {
                if let Deed::Open(file) | Deed::Read { file, .. } = &mut act.deed {
                    renumber(file);
                }
            }
            activity.files =
                activity.files.iter().map(|(f, s)| (FileId(f.0 + 1000 * part), *s)).collect();
            activity
        })
        .collect();
    let shell = of_shell(&parts);
    for (disks, disclosed) in [(1, Disclosed::None), (1, Disclosed::All), (4, Disclosed::Files)] {
        let run = |activity: &Activity| {
            ReplaySpec { disks, disclosed, ..spec() }.run(&Recorded::new(activity))
        };
        let alone: Vec<ReplayResult> = parts.iter().map(run).collect();
        let both = run(&shell);
        let sum = |of: fn(&ReplayResult) -> f64| alone.iter().map(of).sum::<f64>();
        // The shell works 1 ms for each child; the first gap of a child is not its own. With disclosures, both
        // children's files are disclosed at once, and their device is sampled once.
        let share = both.elapsed_s / sum(|one| one.elapsed_s);
        let least = if disclosed == Disclosed::None { 0.95 } else { 0.75 };
        assert!((least..1.05).contains(&share), "{both:?} {alone:?}");
        assert!((both.cpu_s / sum(|one| one.cpu_s) - 1.0).abs() < 0.05, "{both:?} {alone:?}");
    }
    let elapsed =
        |disclosed| ReplaySpec { disclosed, ..spec() }.run(&Recorded::new(&shell)).elapsed_s;
    assert!(elapsed(Disclosed::All) * 2.0 < elapsed(Disclosed::None));
}

/// Each program reads one file, so only a reader that knows all of them can disclose ahead.
#[test]
fn the_first_of_a_family_discloses_for_all_of_it() {
    let parts: Vec<Activity> = (0..40)
        .map(|part| {
            let mut activity = searched(&[8000], Nanos(MS), Nanos(20 * MS));
            for act in &mut activity.acts {
                if let Deed::Open(file) | Deed::Read { file, .. } = &mut act.deed {
                    file.0 += 1000 * part;
                }
            }
            activity.files = HashMap::from([(FileId(100 + 1000 * part), 8000)]);
            activity
        })
        .collect();
    let shell = of_shell(&parts);
    let elapsed =
        |disclosed| ReplaySpec { disclosed, ..spec() }.run(&Recorded::new(&shell)).elapsed_s;
    let none = elapsed(Disclosed::None);
    for disclosed in [Disclosed::Files, Disclosed::All] {
        assert!(elapsed(disclosed) * 2.0 < none, "{disclosed} {none}");
    }
}

/// One process's disclosures keep another process from reading ahead, which would compete with them.
#[test]
fn what_a_family_discloses_is_not_read_ahead_too() {
    let parts: Vec<Activity> = (0..10)
        .map(|part| {
            let mut activity = searched(&[400_000; 4], Nanos(MS), Nanos(20 * MS));
            for act in &mut activity.acts {
                if let Deed::Open(file) | Deed::Read { file, .. } = &mut act.deed {
                    file.0 += 1000 * part;
                }
            }
            let files = (0..4).map(|file| (FileId(100 + file + 1000 * part), 400_000));
            activity.files = files.collect();
            activity
        })
        .collect();
    let shell = of_shell(&parts);
    for disclosed in [Disclosed::All, Disclosed::Files] {
        let run = |read_ahead| {
            ReplaySpec { disclosed, cache_bytes: 1 << 20, read_ahead, ..spec() }
                .run(&Recorded::new(&shell))
        };
        assert_eq!(run(Some(ReadAheadSpec::linux(8192))), run(None), "{disclosed}");
    }
}

#[test]
fn a_child_begins_with_the_fork_and_its_parent_waits_for_its_end() {
    let run = |waits, first| {
        let fork = (5, 4, Deed::Fork { child: ReaderId(2), waits });
        let wait = (1, 90, Deed::Wait(Whom::Child(ReaderId(2))));
        let parent = of_reader(1, 0, &[(0, 0, Deed::Other), fork, wait, (3, 0, Deed::Other)]);
        // The child is created at 5 ms; its first call is at `first`.
        let child = of_reader(2, first, &[(0, 2, Deed::Other), (20, 10, Deed::Other)]);
        only_recorded().run(&Recorded::new(&together([parent, child])))
    };
    // 5 ms to the fork, 32 of the child, and 3 after the wait.
    let result = run(false, 7);
    assert!((result.elapsed_s - 0.040).abs() < 1e-9, "{result:?}");
    assert!((result.cpu_s - (0.005 + 0.004 + 0.001 + 0.032 + 0.003)).abs() < 1e-9, "{result:?}");
    assert_eq!((result.stall_s, result.bound_cpu_s), (0.0, 0.032));
    // With vfork, 4 ms of the parent are a wait for the child's first 2 ms.
    let result = run(true, 6);
    assert!((result.elapsed_s - 0.040).abs() < 1e-9, "{result:?}");
    assert!((result.cpu_s - (0.005 + 0.001 + 0.032 + 0.003)).abs() < 1e-9, "{result:?}");
}

#[test]
fn a_consumer_ends_just_after_its_producer() {
    const WAIT: Deed = Deed::Wait(Whom::Writer { pipe: 5, bytes: 100 });
    const WRITE: Deed = Deed::Wait(Whom::Reader { pipe: 5, bytes: 100 });
    let (mut producer, mut consumer) = (Vec::new(), Vec::new());
    for offset_bytes in (0..100).map(|at| at * 200_000) {
        let read = Deed::Read { file: FileId(7), offset_bytes, length_bytes: 200_000 };
        producer.extend([(0, 30, read), (1, 1, WRITE)]);
        // The wait lasts until the producer has written.
        consumer.extend([(0, 31, WAIT), (1, 0, Deed::Other)]);
    }
    let mut activity = together([of_reader(1, 0, &producer), of_reader(2, 0, &consumer)]);
    activity.files.insert(FileId(7), 20_000_000);
    let run = |disclosed, disks| {
        let spec = ReplaySpec { disclosed, disks, ..only_recorded() };
        let alone: Vec<Act> =
            activity.acts.iter().filter(|act| act.reader == ReaderId(1)).copied().collect();
        let alone = Activity { acts: alone, ..activity.clone() };
        let [both, alone] = [&activity, &alone].map(|activity| spec.run(&Recorded::new(activity)));
        assert!((0.0..0.005).contains(&(both.elapsed_s - alone.elapsed_s)), "{both:?} {alone:?}");
        // 100 ms of its own; waits count as no program's work.
        assert!((both.cpu_s - alone.cpu_s - 0.100).abs() < 1e-9, "{both:?} {alone:?}");
        assert_eq!(both.stall_s, alone.stall_s);
        both.elapsed_s
    };
    let plain = run(Disclosed::None, 1);
    assert!(run(Disclosed::All, 4) < 0.5 * plain);
}

/// The producer was far ahead in the recording, and is not on a slow disk: each item is taken as soon as it is
/// there.
#[test]
fn a_read_of_a_pipe_waits_for_the_bytes_that_it_has() {
    const ITEMS: u64 = 16;
    const WRITE: Deed = Deed::Wait(Whom::Reader { pipe: 5, bytes: 100 });
    let (mut producer, mut consumer) = (Vec::new(), Vec::new());
    for offset_bytes in (0..ITEMS).map(|at| at * 200_000) {
        let read = Deed::Read { file: FileId(7), offset_bytes, length_bytes: 200_000 };
        producer.extend([(0, 1, read), (0, 0, WRITE)]);
        // Two reads for one write.
        let half = Deed::Wait(Whom::Writer { pipe: 5, bytes: 50 });
        consumer.extend([(0, 0, half), (5, 0, half), (5, 0, Deed::Other)]);
    }
    consumer[0].0 = 2;
    let mut activity = together([of_reader(1, 0, &producer), of_reader(2, 0, &consumer)]);
    activity.files.insert(FileId(7), 20_000_000);
    let spec = ReplaySpec { disks: 1, ..only_recorded() };
    let result = spec.run(&Recorded::new(&activity));
    let alone = activity.acts.iter().filter(|act| act.reader == ReaderId(1)).copied().collect();
    let alone = spec.run(&Recorded::new(&Activity { acts: alone, ..activity }));
    // The disk takes longer for an item than the consumer, which ends 10 ms after the last item.
    assert!(alone.elapsed_s > 0.010 * ITEMS as f64, "{alone:?}");
    assert!((result.elapsed_s - alone.elapsed_s - 0.010).abs() < 0.002, "{result:?} {alone:?}");
}

#[test]
fn a_wait_in_which_nobody_did_anything_is_the_programs_own() {
    let wait = |whom| (1, 50, Deed::Wait(whom));
    let fork = |waits| (0, 2, Deed::Fork { child: ReaderId(3), waits });
    let one = of_reader(
        1,
        0,
        &[
            wait(Whom::Unknown),
            wait(Whom::Child(ReaderId(3))),
            wait(Whom::Child(ReaderId(1))),
            fork(true),
        ],
    );
    let two = of_reader(2, 200, &[(0, 1, Deed::Other)]);
    let result = only_recorded().run(&Recorded::new(&together([one, two])));
    assert!((result.cpu_s - (0.152 + 0.002 + 0.001)).abs() < 1e-9, "{result:?}");
}

#[test]
fn a_number_that_is_given_again_is_another_child() {
    let fork = (1, 1, Deed::Fork { child: ReaderId(2), waits: false });
    let wait = (0, 20, Deed::Wait(Whom::Child(ReaderId(2))));
    let parent = of_reader(1, 0, &[fork, wait, (30, 0, Deed::Other), fork, wait]);
    let life = [(0, 10, Deed::Other)];
    let children = [of_reader(2, 3, &life), of_reader(2, 55, &life)];
    let result = only_recorded()
        .run(&Recorded::new(&together([vec![], parent].into_iter().chain(children))));
    // The first gap of the parent is its start; the 42 ms between the two lives are not the child's work.
    assert!((result.cpu_s - (0.001 + 0.010 + 0.030 + 0.002 + 0.010)).abs() < 1e-9, "{result:?}");
    assert!(
        (result.elapsed_s - (0.001 + 0.010 + 0.030 + 0.001 + 0.010)).abs() < 1e-9,
        "{result:?}"
    );
}

/// Acts of up to five readers, with times that no recording has: many at once, and calls that overlap the next
/// ones.
fn acts() -> impl Strategy<Value = Activity> {
    let act = (0u64..5, 0u64..6, 0u64..300_000, 1u64..200_000, 0u64..20, 0u64..60, 0..11);
    prop::collection::vec(act, 1..60).prop_map(|acts| {
        let mut activity = Activity { has_durations: true, ..Activity::default() };
        let mut now = Nanos::ZERO;
        for (reader, file, offset_bytes, length_bytes, gap, took, kind) in acts {
            now += Nanos(gap.saturating_sub(8) * MS);
            let other = ReaderId(file);
            let took = Nanos(took.saturating_sub(10) * MS);
            let (reader, began, file) = (ReaderId(reader), now, FileId(file));
            let deed = match kind {
                0 => Deed::Open(file),
                1 => Deed::Other,
                2 => Deed::Disclose { file, offset_bytes, length_bytes: length_bytes % 100_000 },
                3 => Deed::Fork { child: other, waits: offset_bytes.is_multiple_of(2) },
                4 => Deed::Wait(Whom::Unknown),
                5 => Deed::Wait(Whom::Child(other)),
                6 => Deed::Wait(Whom::Writer { pipe: file.0 % 2, bytes: file.0 }),
                7 => Deed::Wait(Whom::Reader { pipe: file.0 % 2, bytes: file.0 % 3 }),
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

/// The cases of a property: those of the environment if set, otherwise `usual`.
fn cases(usual: u32) -> ProptestConfig {
    let given = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { given.cases } else { usual };
    ProptestConfig { cases, ..given }
}

proptest! {
    #![proptest_config(cases(200))]

    /// With any recording and options, all programs finish, no bound is beaten (that would panic), and two runs
    /// are equal.
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
        let found = result.hits + result.ahead + result.late + result.misses;
        prop_assert_eq!(result.reads, found);
        prop_assert_eq!(&result, &spec.run(&Recorded::new(&activity)));
    }
}

#[test]
fn a_block_that_no_file_has_is_refused_and_any_other_is_read() {
    let of = |text: &'static str| {
        let path = Path::new("t");
        let trace = Trace::of(text.as_bytes(), path, Format::BLOCKS, 8192).expect("memory");
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
