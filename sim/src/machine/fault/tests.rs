//! Each fault by itself, and random combinations.

use std::collections::HashMap;
use std::ops::RangeInclusive;

use foretell_policy::{CostModel, CostSource, FileId, Hint, NameId, ReaderId, Rules, Target};
use proptest::prelude::*;

use super::*;
use crate::machine::program::{Disclosure, Program, Step, Steps, StoredFile, passes};
use crate::machine::read_ahead::ReadAheadSpec;
use crate::machine::report::{DeviceReport, Report};
use crate::machine::server::{ArraySpec, DeviceSpec, Priority};
use crate::machine::tests::{
    BLOCK_BYTES, CPU, DRIVER, HIT, LATENCY, array, file, flat, machine, program,
};
use crate::machine::{MachineSpec, Metadata, Processors, Readers};

const DEVICE: DeviceId = DeviceId(1);
const EACH: Condition = Condition::Failing { share_ppm: ALL_PPM };
const SECOND: u64 = 1_000_000_000;

fn from(at_ns: u64, condition: Condition) -> Fault {
    Fault { at: Nanos(at_ns), device: DEVICE, disk: None, condition }
}

fn with(mut spec: MachineSpec, schedule: &[Fault]) -> MachineSpec {
    spec.faults.schedule = schedule.to_vec();
    spec
}

/// Reads of the first `blocks` blocks.
fn plain(blocks: u64) -> Steps {
    passes(file(1, blocks), 1, CPU, Disclosure::None)
}

fn hinted(blocks: u64) -> Steps {
    passes(file(1, blocks), 1, CPU, Disclosure::UpFront)
}

#[test]
fn pauses_double_up_to_the_longest() {
    let retries = Retries { tries_max: 100, pause: Nanos(10), pause_max: Nanos(100) };
    let at = |tries| retries.again_at(Nanos(1000), tries).map(|at| at.0);
    assert_eq!([1, 2, 3, 4, 5, 99].map(at), [1010, 1020, 1040, 1080, 1100, 1100].map(Some));
    assert_eq!(at(100), None);
}

#[test]
fn a_disk_has_what_is_due_and_no_other_has_it() {
    let schedule = vec![
        Fault { disk: Some(1), ..from(50, Condition::Slow { times: 3 }) },
        Fault { disk: Some(1), ..from(20, EACH) },
        Fault { disk: Some(1), ..from(70, Condition::Well) },
        Fault { device: DeviceId(2), ..from(0, EACH) },
        from(90, Condition::Slow { times: 2 }),
    ];
    let faults = Faults { schedule, ..Faults::default() };
    let mut disks = [0, 1].map(|disk| Health::new(&faults, DEVICE, disk));
    let mut serve = |at| {
        [0, 1].map(|disk: usize| {
            let (took, arrival) = disks[disk].serve(Nanos(at), Nanos(100), || 4);
            (took.0, arrival)
        })
    };
    let well = (100, Arrival::Whole);
    assert_eq!(serve(19), [well, well]);
    assert_eq!(serve(20), [well, (100, Arrival::Failed)]);
    assert_eq!(serve(60), [well, (300, Arrival::Failed)]);
    assert_eq!(serve(70), [well, well]);
    assert_eq!(serve(95), [(200, Arrival::Whole); 2]);
}

#[test]
fn requests_are_drawn_from_the_seed_in_their_share() {
    let arrivals = |seed, condition| -> Vec<Arrival> {
        let faults = Faults { schedule: vec![from(0, condition)], seed, ..Faults::default() };
        let mut health = Health::new(&faults, DEVICE, 0);
        (0..10_000).map(|at| health.serve(Nanos(at), Nanos(1), || 8).1).collect()
    };
    let failing = Condition::Failing { share_ppm: 250_000 };
    let failed = arrivals(1, failing).iter().filter(|&&one| one == Arrival::Failed).count();
    assert!((2300..2700).contains(&failed), "{failed}");
    assert_eq!(arrivals(1, failing), arrivals(1, failing));
    assert_ne!(arrivals(1, failing), arrivals(2, failing));
    let short = arrivals(1, Condition::Short { share_ppm: ALL_PPM });
    for blocks in 0..8 {
        assert!(short.contains(&Arrival::Short { blocks }), "{blocks}");
    }
    assert!(short.iter().all(|arrival| arrival.of(8) < 8));
}

#[test]
fn a_slow_disk_takes_so_many_times_as_long_until_it_is_well() {
    let spec = machine(Rules::LRU, 1, flat(Some(1)));
    let per_read = |times| DRIVER.0 + times * LATENCY.0 + HIT.0 + CPU.0;
    // The first read begins its service before, the fourth after.
    let slow = from(LATENCY.0, Condition::Slow { times: 4 });
    let well = from(per_read(1) + 2 * per_read(4), Condition::Well);
    let report = with(spec, &[slow, well]).run(vec![program(1, plain(5))]);
    assert_eq!(report.end_ns, 3 * per_read(1) + 2 * per_read(4));
    assert_eq!(report.devices[0].busy_ns, (3 + 2 * 4) * LATENCY.0);
}

#[test]
fn a_failed_read_is_tried_again_and_its_program_waits() {
    let mut spec = with(
        machine(Rules::LRU, 1, flat(Some(1))),
        &[from(0, EACH), from(2 * LATENCY.0, Condition::Well)],
    );
    spec.faults.retries.pause = Nanos(1_000_000);
    let report = spec.run(vec![program(1, plain(1))]);
    let stall_ns = 3 * LATENCY.0 + 1_000_000 + 2_000_000;
    assert_eq!(report.programs[0].tally.stall_ns, stall_ns);
    assert_eq!(report.end_ns, DRIVER.0 + stall_ns + HIT.0 + CPU.0);
    assert_eq!(report.programs[0].tally.errors, 0);
    let device = report.devices[0];
    assert_eq!((device.failed_requests, device.retries), (2, 2));
    assert_eq!(device.bytes, BLOCK_BYTES);
}

#[test]
fn a_disk_is_released_after_a_request_that_failed() {
    let schedule = [from(0, EACH), from(2 * LATENCY.0, Condition::Well)];
    let mut spec = with(machine(Rules::LRU, 1, flat(Some(1))), &schedule);
    (spec.processors, spec.striper) = (Processors::Shared, Nanos(300_000));
    let report = spec.run(vec![program(1, plain(2))]);
    let device = report.devices[0];
    assert_eq!((device.failed_requests, device.retries, device.bytes), (2, 2, 2 * BLOCK_BYTES));
    // After each of four requests, except the last: the program, and so the run, has ended.
    assert_eq!(report.programs[0].tally.errors, 0);
    assert!(report.striper_ns >= 3 * spec.striper.0, "{report:?}");
}

#[test]
fn of_a_disk_that_fails_for_ever_each_read_is_an_error() {
    for rules in Rules::ALL {
        let spec = with(machine(rules, 4, flat(Some(1))), &[from(0, EACH)]);
        let retries = spec.faults.retries;
        let report = spec.run(vec![program(1, plain(3))]);
        let tally = report.programs[0].tally;
        assert_eq!((tally.reads, tally.misses, tally.errors), (3, 3, 3));
        let tries = u64::from(retries.tries_max);
        let pauses: u64 = (1..retries.tries_max).map(|tries| retries.pause_after(tries).0).sum();
        assert_eq!(report.end_ns, 3 * (DRIVER.0 + tries * LATENCY.0 + pauses + CPU.0));
        let device = report.devices[0];
        assert_eq!((device.failed_requests, device.retries), (3 * tries, 3 * (tries - 1)));
        assert_eq!(device.bytes, 0);
    }
}

#[test]
fn all_who_wait_for_a_read_have_its_error() {
    let spec = with(machine(Rules::LRU, 4, flat(Some(1))), &[from(0, EACH)]);
    // One program joins during the service, one during the pause before another try.
    let later = |number: u64, ms: u64| program(number, plain(1)).starting_at(Nanos(ms * 1_000_000));
    let report = spec.run(vec![program(1, plain(1)), later(2, 1), later(3, 20)]);
    let errors: Vec<u64> = report.programs.iter().map(|program| program.tally.errors).collect();
    assert_eq!(errors, [1, 1, 1]);
    assert_eq!(report.devices[0].failed_requests, 6);
}

#[test]
fn a_failed_prefetch_is_refused_and_its_reader_asks_for_itself() {
    let mut spec = machine(Rules::TIP1, 50, flat(None));
    spec.policy.cluster_blocks_max = 1;
    let spec = with(spec, &[from(0, EACH), from(LATENCY.0, Condition::Well)]);
    let report = spec.run(vec![program(1, hinted(10))]);
    let (tally, counts, device) = (report.programs[0].tally, report.counts, report.devices[0]);
    // All are prefetched at once. The first is waited for, and then demanded; so are the others when they are read.
    assert_eq!((counts.prefetched, device.failed_requests), (10, 10));
    assert_eq!((counts.late, counts.refused), (1, 9));
    assert_eq!((tally.late, tally.misses, tally.errors), (1, 9, 0));
    assert_eq!((device.retries, device.demand_requests), (1, 10));
    assert_eq!(device.bytes, 10 * BLOCK_BYTES);
}

#[test]
fn of_a_short_prefetch_the_first_blocks_are_used() {
    let run = |share_ppm| {
        let condition = Condition::Short { share_ppm };
        let mut spec = with(machine(Rules::TIP1, 100, array(1)), &[from(0, condition)]);
        spec.policy.cluster_blocks_max = 8;
        spec.faults.retries.tries_max = 2;
        spec.run(vec![program(1, hinted(64))])
    };
    let (well, short) = (run(0), run(ALL_PPM));
    assert_eq!((well.counts.refused, well.devices[0].short_requests), (0, 0));
    let tally = short.programs[0].tally;
    assert_eq!(tally.reads, 64);
    // Some blocks of a prefetch arrive. A short read of a single block brings nothing.
    assert!(tally.hits > 0 && tally.errors > 0, "{tally:?}");
    assert!(tally.errors >= tally.misses, "{tally:?}");
}

#[test]
fn one_disk_of_an_array_fails_alone() {
    let fault = Fault { disk: Some(1), ..from(0, EACH) };
    let report = with(machine(Rules::LRU, 10, array(4)), &[fault]).run(vec![program(1, plain(64))]);
    // A quarter of the units of 8 blocks, and blocks that lie partly in one.
    let errors = report.programs[0].tally.errors;
    assert!((16..=24).contains(&errors), "{errors}");
    assert_eq!(report.devices[0].failed_requests, errors * 6);
}

#[test]
fn inodes_and_lookups_are_tried_again_and_given_up() {
    let name = Hint::whole_file(Target::Name(NameId(9)), DEVICE);
    let run = |well_at_ns, hinted: bool| {
        let schedule = [from(0, EACH), from(well_at_ns, Condition::Well)];
        let mut spec = with(machine(Rules::FORETELL, 10, flat(None)), &schedule);
        spec.open = CPU;
        spec.metadata = Metadata::Inodes;
        spec.sizes_bytes = HashMap::from([(FileId(1), 4 * BLOCK_BYTES)]);
        spec.names = HashMap::from([(NameId(9), FileId(1))]);
        let hint = hinted.then(|| [Step::Hint(name.clone()), Step::Compute(Nanos(3 * SECOND))]);
        let open = || Step::Open(FileId(1), DEVICE);
        let steps = hint.into_iter().flatten().chain([open(), open()]);
        spec.run(vec![program(1, Box::new(steps))])
    };
    let report = run(SECOND / 50, false);
    let tally = report.programs[0].tally;
    assert_eq!((tally.opens, tally.inode_waits, tally.errors), (2, 1, 0));
    assert_eq!(report.devices[0].retries, 1);
    // The second open reads the inode that the first has given up.
    let report = run(100 * SECOND, false);
    let tally = report.programs[0].tally;
    assert_eq!((tally.opens, tally.inode_waits, tally.errors), (2, 2, 2));
    assert_eq!(report.devices[0].retries, 10);
    let report = run(SECOND / 50, true);
    assert_eq!((report.counts.hints_resolved, report.counts.hints_refused), (1, 0));
    assert_eq!(report.programs[0].tally.inode_waits, 0);
    // The lookup fails before the program opens the file; then the disk has recovered.
    let report = run(2 * SECOND, true);
    assert_eq!((report.counts.hints_resolved, report.counts.hints_refused), (0, 1));
    let tally = report.programs[0].tally;
    assert_eq!((tally.inode_waits, tally.errors), (1, 0));
}

#[test]
fn an_open_whose_way_cannot_be_read_is_given_up() {
    let run = |well_at_ns| {
        let schedule = [from(0, EACH), from(well_at_ns, Condition::Well)];
        let mut spec = with(machine(Rules::TIP1, 10, flat(None)), &schedule);
        spec.metadata = Metadata::Ffs;
        know_files(&mut spec);
        let open = || Step::Open(stored(0).file, DEVICE);
        spec.run(vec![program(1, Box::new([open(), open()].into_iter()))])
    };
    // The root's inode fails; the second open reads it again.
    let report = run(100 * SECOND);
    let tally = report.programs[0].tally;
    assert_eq!((tally.inode_waits, tally.directory_waits, tally.errors), (2, 0, 2));
    assert_eq!(report.devices[0].retries, 10);
    let tally = run(SECOND / 50).programs[0].tally;
    assert_eq!((tally.inode_waits, tally.directory_waits, tally.errors), (2, 1, 0));
}

#[test]
fn addresses_are_tried_again_and_given_up_with_what_needs_them() {
    // One block needs no addresses, two need the same block of addresses, and one needs two, of which one leads to the other.
    let blocks = [11, 12, 13, 2060];
    let whole = file(1, 3000);
    let run = |well_at_ns, hinted: bool| {
        let schedule = [from(0, EACH), from(well_at_ns, Condition::Well)];
        let mut spec = with(machine(Rules::TIP1, 30, flat(None)), &schedule);
        spec.policy.cluster_blocks_max = 1;
        spec.metadata = Metadata::Ffs;
        let hint = hinted.then(|| Step::Hint(whole.hint_blocks(blocks)));
        let reads = blocks.into_iter().flat_map(move |at| [whole.read(at), Step::Compute(CPU)]);
        let steps = hint.into_iter().chain(reads).chain([Step::Compute(Nanos(200 * SECOND))]);
        // Addresses that were given up are read by the next read after recovery.
        let again = blocks.into_iter().map(move |at| whole.read(at));
        let later = program(2, Box::new(again)).starting_at(Nanos(150 * SECOND));
        spec.run(vec![program(1, Box::new(steps)), later])
    };
    for hinted in [false, true] {
        let report = run(100 * SECOND, hinted);
        let [first, second] = [0, 1].map(|at| report.programs[at].tally);
        assert_eq!((first.reads, first.errors), (4, 4), "{hinted}");
        assert_eq!((second.reads, second.errors, second.misses), (4, 0, 4), "{hinted}");
        let report = run(SECOND / 50, hinted);
        assert_eq!(report.programs[0].tally.errors, 0, "{hinted}");
        assert!(report.devices[0].retries > 0);
    }
}

#[test]
fn work_for_what_is_read_ahead_is_no_stall_of_the_read() {
    let mut spec = machine(Rules::TIP1, 1, flat(None));
    spec.sizes_bytes = HashMap::from([(FileId(1), 8 * BLOCK_BYTES)]);
    spec.read_ahead = Some(ReadAheadSpec::OSF1);
    let once = || passes(file(1, 8), 1, CPU, Disclosure::None);
    let report = spec.run(vec![program(1, once()), program(2, once()).starting_at(Nanos(1))]);
    for program in report.programs {
        let tally = program.tally;
        assert!(tally.late > 0, "{tally:?}");
        assert_eq!(program.elapsed_ns, tally.cpu_ns + tally.stall_ns);
    }
}

#[test]
#[should_panic(expected = "has 3 disks")]
fn a_fault_of_a_disk_that_is_not_there_is_noticed() {
    let fault = Fault { disk: Some(3), ..from(0, EACH) };
    with(machine(Rules::LRU, 10, array(3)), &[fault]).run(Vec::new());
}

#[test]
#[should_panic(expected = "that the machine has not")]
fn a_fault_of_a_device_that_is_not_there_is_noticed() {
    let fault = Fault { device: DeviceId(7), ..from(0, EACH) };
    with(machine(Rules::LRU, 10, array(3)), &[fault]).run(Vec::new());
}

/// Files; the last one is on a device of its own.
const FILES: u64 = 3;
const OTHER: DeviceId = DeviceId(2);
const FILE_BLOCKS: u64 = 60;
const DISKS_MAX: usize = 6;
const LONG_STEPS: usize = 5_000;

/// The hints of a program.
#[derive(Clone, Copy, Debug)]
enum Telling {
    Nothing,
    /// Its next reads, so many at a time.
    Batches(usize),
    /// As many blocks as it reads, but wrong ones.
    Wrong,
    /// The names of the files that it opens.
    Names,
    /// All files, whole, so many times, each in a stream of its own.
    Whole(u32),
    /// All its reads, cancelled half-way.
    Cancelled,
}

#[derive(Clone, Debug)]
struct Drawn {
    /// File and block.
    reads: Vec<(u64, u64)>,
    telling: Telling,
    cpu: Nanos,
    start: Nanos,
    /// Whether the program repeats its steps until all other programs have ended. A bound is needed: beside an endless program,
    /// a program that waits for ever would not be noticed.
    is_long: bool,
}

impl Drawn {
    fn steps(&self) -> Steps {
        let hint = |of: &(u64, u64)| Step::Hint(stored(of.0).hint_blocks([of.1]));
        let mut steps = Vec::new();
        match self.telling {
            Telling::Wrong => {
                steps.extend(self.reads.iter().map(|&(file, index)| {
                    hint(&((file + 1) % FILES, (index * 7 + 3) % FILE_BLOCKS))
                }));
            }
            Telling::Names => steps.extend(self.reads.iter().map(|&(file, _)| {
                let name = Target::Name(NameId(file + 100));
                Step::Hint(Hint::whole_file(name, stored(file).device))
            })),
            Telling::Whole(repeats) => steps.extend(
                (0..FILES)
                    .flat_map(|file| [Step::OpenStream, Step::Hint(stored(file).hint(repeats))]),
            ),
            Telling::Cancelled => steps.extend(self.reads.iter().map(hint)),
            Telling::Nothing | Telling::Batches(_) => {}
        }
        let mut last = None;
        for (at, read) in self.reads.iter().enumerate() {
            match self.telling {
                Telling::Batches(size) if at % size == 0 => {
                    let end = (at + size).min(self.reads.len());
                    steps.extend(self.reads[at..end].iter().map(hint));
                }
                Telling::Cancelled if at == self.reads.len() / 2 => steps.push(Step::Cancel),
                _ => {}
            }
            if last != Some(read.0) {
                steps.push(Step::Open(stored(read.0).file, stored(read.0).device));
                last = Some(read.0);
            }
            steps.extend([stored(read.0).read(read.1), Step::Compute(self.cpu)]);
        }
        match self.is_long {
            true => Box::new(steps.into_iter().cycle().take(LONG_STEPS)),
            false => Box::new(steps.into_iter()),
        }
    }
}

fn stored(number: u64) -> StoredFile {
    let device = if number + 1 == FILES { OTHER } else { DEVICE };
    StoredFile { device, ..file(number + 1, FILE_BLOCKS) }
}

/// Runs of blocks, one after another.
fn reads() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let run = (0..FILES, 0..FILE_BLOCKS, 1..20u64).prop_map(|(file, first, blocks)| {
        (first..(first + blocks).min(FILE_BLOCKS)).map(|index| (file, index)).collect::<Vec<_>>()
    });
    prop::collection::vec(run, 1..8).prop_map(|runs| runs.concat())
}

fn drawn() -> impl Strategy<Value = Drawn> {
    let telling = prop_oneof![
        Just(Telling::Nothing),
        (1..40usize).prop_map(Telling::Batches),
        Just(Telling::Wrong),
        Just(Telling::Names),
        (1..4u32).prop_map(Telling::Whole),
        Just(Telling::Cancelled),
    ];
    let times = (0..10_000_000u64, 0..200_000_000u64);
    (reads(), telling, times).prop_map(|(reads, telling, (cpu, start))| Drawn {
        reads,
        telling,
        cpu: Nanos(cpu),
        start: Nanos(start),
        is_long: false,
    })
}

/// Some runs, and perhaps a long one behind them.
fn programs() -> impl Strategy<Value = Vec<Drawn>> {
    let long = prop::option::of(drawn());
    (prop::collection::vec(drawn(), 1..4), long).prop_map(|(mut programs, long)| {
        programs.extend(long.map(|program| Drawn { is_long: true, ..program }));
        programs
    })
}

fn fault(disks: usize) -> impl Strategy<Value = Fault> {
    let share = prop_oneof![Just(ALL_PPM), 0..ALL_PPM];
    let condition = (0..4, share, 1..50u32).prop_map(|(kind, share_ppm, times)| match kind {
        0 => Condition::Slow { times },
        1 => Condition::Failing { share_ppm },
        2 => Condition::Short { share_ppm },
        _ => Condition::Well,
    });
    let disk = prop_oneof![
        Just((OTHER, None)),
        prop::option::of(0..disks).prop_map(|disk| (DEVICE, disk)),
    ];
    (0..2 * SECOND, disk, condition).prop_map(|(at, (device, disk), condition)| Fault {
        device,
        disk,
        ..from(at, condition)
    })
}

fn faults(disks: usize) -> impl Strategy<Value = Faults> {
    let retries = (1..7u32, 1..20_000_000u64, 1..SECOND).prop_map(|(tries_max, pause, longest)| {
        Retries { tries_max, pause: Nanos(pause), pause_max: Nanos(longest) }
    });
    let schedule = prop::collection::vec(fault(disks), 0..12);
    (schedule, any::<u64>(), retries).prop_map(|(schedule, seed, retries)| Faults {
        schedule,
        seed,
        retries,
    })
}

fn priority() -> impl Strategy<Value = Priority> {
    prop::sample::select(vec![Priority::None, Priority::Arrival, Priority::Promotion])
}

fn device() -> impl Strategy<Value = (usize, DeviceSpec)> {
    let slots = prop::option::of(1..4usize);
    prop_oneof![
        slots.prop_map(|slots| (1, flat(slots))),
        (1..=DISKS_MAX, priority()).prop_map(|(disks, priority)| {
            let DeviceSpec::Array(array) = array(disks) else { unreachable!("it is one") };
            (disks, DeviceSpec::Array(Box::new(ArraySpec { priority, ..*array })))
        }),
    ]
}

fn know_files(spec: &mut MachineSpec) {
    let files = || (0..FILES).map(|number| stored(number).file);
    spec.sizes_bytes = files().map(|file| (file, FILE_BLOCKS * BLOCK_BYTES)).collect();
    spec.names = files().map(|file| (NameId(file.0 + 99), file)).collect();
    let (root, block) = (FileId(1000), FileId(1001));
    spec.directories.add_directory(root);
    files().for_each(|file| spec.directories.add(root, file, 3, || block));
}

/// A machine without its rules.
fn machines() -> impl Strategy<Value = MachineSpec> {
    let memory = (1..60u64, 1..17u64, 1..40usize, 1..8usize);
    let metadata = prop::sample::select(vec![Metadata::Known, Metadata::Inodes, Metadata::Ffs]);
    let ways = (any::<bool>(), any::<bool>(), metadata, any::<bool>(), any::<bool>());
    let lookups = (prop_oneof![1..4usize, Just(usize::MAX)], any::<bool>());
    let device = device().prop_flat_map(|(disks, device)| (Just(device), faults(disks)));
    (memory, ways, lookups, device).prop_map(|(memory, ways, lookups, (device, faults))| {
        let (buffers, cluster, outstanding, resolved) = memory;
        let (shared, anybody, metadata, ahead, striper) = ways;
        let mut spec = machine(Rules::LRU, buffers, device);
        spec.devices.push((OTHER, flat(Some(1))));
        spec.policy.cluster_blocks_max = cluster;
        spec.policy.outstanding_max = outstanding;
        spec.policy.resolved_max = resolved;
        (spec.lookups_max, spec.policy.tries_depths) = lookups;
        spec.processors = if shared { Processors::Shared } else { Processors::Own };
        spec.striper = if shared && striper { Nanos(300_000) } else { Nanos::ZERO };
        spec.readers = if anybody { Readers::Anybody } else { Readers::Hinter };
        spec.open = Nanos(100_000);
        spec.metadata = metadata;
        spec.read_ahead = ahead.then_some(ReadAheadSpec::OSF1);
        know_files(&mut spec);
        spec.faults = faults;
        spec
    })
}

fn run(spec: &MachineSpec, drawn: &[Drawn]) -> Report {
    let program = |(index, drawn): (usize, &Drawn)| {
        let program = Program::new(format!("p{index}"), ReaderId(index as u64), drawn.steps())
            .starting_at(drawn.start);
        if drawn.is_long { program.in_background() } else { program }
    };
    spec.run(drawn.iter().enumerate().map(program).collect())
}

fn has_slots(spec: &MachineSpec, device: &DeviceReport, count: usize) -> bool {
    let found = spec.devices.iter().find(|(id, _)| id.0 == device.device);
    match &found.expect("it is the machine's").1 {
        DeviceSpec::Flat { slots, .. } => *slots == Some(count),
        DeviceSpec::Array(_) => count == 1,
    }
}

/// A program that reads runs of blocks of files.
fn reading(runs: &[(u64, RangeInclusive<u64>)], telling: Telling, cpu: u64, start: u64) -> Drawn {
    let run = |(file, blocks): (u64, RangeInclusive<u64>)| blocks.map(move |at| (file, at));
    let reads = runs.iter().cloned().flat_map(run).collect();
    Drawn { reads, telling, cpu: Nanos(cpu), start: Nanos(start), is_long: false }
}

/// Checks of every report.
fn check(spec: &MachineSpec, drawn: &[Drawn], report: &Report) {
    for (program, drawn) in report.programs.iter().zip(drawn) {
        let tally = program.tally;
        if drawn.is_long {
            continue;
        }
        assert!(program.ended);
        assert_eq!(tally.reads, drawn.reads.len() as u64);
        assert_eq!(tally.reads, tally.hits + tally.late + tally.misses);
        assert!(tally.errors <= tally.reads + tally.opens);
        if spec.processors == Processors::Own {
            assert_eq!(program.elapsed_ns, tally.cpu_ns + tally.stall_ns, "{program:?}");
        }
    }
    let counts = report.counts;
    let ends = counts.useful + counts.late + counts.wasted + counts.unfinished + counts.refused;
    // Blocks of a long run may not have arrived yet.
    let has_ended = drawn.iter().all(|drawn| !drawn.is_long);
    assert!(
        if has_ended { counts.prefetched == ends } else { counts.prefetched >= ends },
        "{counts:?}"
    );
    let of_devices =
        |count: fn(&DeviceReport) -> u64| report.devices.iter().map(count).sum::<u64>();
    let errors: u64 = report.programs.iter().map(|program| program.tally.errors).sum();
    let failed = of_devices(|device| device.failed_requests + device.short_requests);
    if failed == 0 {
        assert_eq!((errors, of_devices(|device| device.retries), counts.refused), (0, 0, 0));
    }
    // A run lasts as long as its busiest disk, and a program as long as its work.
    for device in report.devices.iter().filter(|device| has_slots(spec, device, 1)) {
        assert!(device.busiest_disk_ns <= report.end_ns, "{device:?}");
    }
}

fn cases(usual: u32) -> ProptestConfig {
    let given = ProptestConfig::default();
    let cases = if std::env::var_os("PROPTEST_CASES").is_some() { given.cases } else { usual };
    ProptestConfig { cases, ..given }
}

/// Two streams want the same block. A rounding error gave it a higher value for the stream without it, so that it went to and
/// fro for ever.
#[test]
fn equal_values_do_not_go_to_and_fro() {
    let mut spec = machine(Rules::TIPTOE, 26, flat(None));
    spec.devices.push((OTHER, flat(Some(1))));
    spec.policy.cluster_blocks_max = 4;
    spec.processors = Processors::Shared;
    spec.open = Nanos(100_000);
    spec.metadata = Metadata::Known;
    know_files(&mut spec);
    let names =
        [(1, 45..=53), (0, 47..=54), (2, 34..=44), (0, 47..=54), (2, 56..=59), (1, 36..=45)];
    let whole = [(1, 26..=26), (1, 22..=23), (1, 27..=36), (2, 26..=40), (2, 25..=25)];
    let long = reading(&[(0, 27..=31), (2, 14..=27)], Telling::Whole(3), 4_980_740, 95_629_603);
    let all = [
        reading(&[(1, 59..=59)], Telling::Batches(14), 6_994_565, 135_686_887),
        reading(&names, Telling::Names, 5_842_947, 98_708_351),
        reading(&whole, Telling::Whole(1), 9_364_366, 26_001_463),
        Drawn { is_long: true, ..long },
    ];
    check(&spec, &all, &run(&spec, &all));
}

/// Under `lru-sp`, each of two programs evicted the other's prefetches for ever.
#[test]
fn owners_do_not_take_prefetches_from_each_other() {
    let mut spec = machine(Rules::LRU_SP, 43, flat(None));
    spec.devices.push((OTHER, flat(Some(1))));
    spec.policy.cluster_blocks_max = 16;
    spec.policy.outstanding_max = 25;
    spec.policy.resolved_max = 2;
    spec.policy.costs =
        CostSource::Measured(CostModel { hit_ns: 2000.0, driver_ns: 10000.0, disk_ns: 5000000.0 });
    spec.processors = Processors::Shared;
    spec.open = Nanos(100_000);
    spec.metadata = Metadata::Known;
    know_files(&mut spec);
    let cancelled = [
        (0, 50..=59),
        (1, 47..=59),
        (0, 30..=33),
        (1, 49..=53),
        (1, 3..=5),
        (1, 15..=29),
        (0, 50..=59),
    ];
    let names = [(2, 51..=59), (0, 3..=20), (2, 41..=54)];
    let long = [(0, 39..=39), (2, 41..=43), (1, 38..=53), (1, 10..=14), (2, 55..=59)];
    let long = reading(&long, Telling::Whole(2), 8_198_952, 10_844_069);
    let all = [
        reading(&cancelled, Telling::Cancelled, 8_814_170, 150_915_398),
        reading(&names, Telling::Names, 1_279_361, 73_992_773),
        Drawn { is_long: true, ..long },
    ];
    check(&spec, &all, &run(&spec, &all));
}

/// More streams name a file than are told of an eviction. The others notice it when they read.
#[test]
fn more_streams_than_are_told_name_a_file() {
    let mut spec = machine(Rules::LRU, 25, flat(None));
    spec.devices.push((OTHER, flat(Some(1))));
    spec.policy.cluster_blocks_max = 1;
    spec.policy.outstanding_max = 4;
    spec.policy.resolved_max = 1;
    spec.open = Nanos(100_000);
    spec.metadata = Metadata::Inodes;
    know_files(&mut spec);
    let slow = Fault {
        at: Nanos(571968689),
        device: DEVICE,
        disk: None,
        condition: Condition::Slow { times: 3 },
    };
    spec.faults = Faults {
        schedule: vec![slow],
        seed: 0,
        retries: Retries { tries_max: 1, pause: Nanos(1), pause_max: Nanos(1) },
    };
    let all = [
        reading(
            &[(0, 15..=19), (0, 0..=4), (2, 1..=6), (2, 0..=1)],
            Telling::Nothing,
            398181,
            46367103,
        ),
        reading(&[(0, 23..=41), (2, 17..=31)], Telling::Wrong, 5825246, 82293165),
        reading(&[(1, 5..=8), (0, 1..=11)], Telling::Wrong, 442415, 198019341),
        Drawn { is_long: true, ..reading(&[(0, 58..=58)], Telling::Whole(1), 0, 0) },
    ];
    for rules in Rules::ALL {
        spec.policy.rules = rules;
        check(&spec, &all, &run(&spec, &all));
    }
}

/// Many uses in a row of a block lie on other devices: the next use is not found any more.
#[test]
fn many_uses_of_a_block_that_cannot_be_had() {
    let mut spec = machine(Rules::LRU, 50, flat(None));
    spec.devices.push((OTHER, flat(Some(1))));
    spec.policy.cluster_blocks_max = 4;
    spec.policy.outstanding_max = 13;
    spec.policy.resolved_max = 4;
    spec.policy.costs =
        CostSource::Measured(CostModel { hit_ns: 2000.0, driver_ns: 10000.0, disk_ns: 5000000.0 });
    spec.hit = Nanos(243_000);
    spec.driver = Nanos(580_000);
    spec.processors = Processors::Shared;
    spec.open = Nanos(100_000);
    spec.metadata = Metadata::Known;
    know_files(&mut spec);
    let fault = |at, device, condition| Fault { at: Nanos(at), device, disk: None, condition };
    spec.faults = Faults {
        schedule: vec![
            fault(255_417_515, OTHER, Condition::Slow { times: 31 }),
            fault(1_393_753_205, DEVICE, Condition::Short { share_ppm: 1_000_000 }),
            fault(78_827_630, OTHER, Condition::Slow { times: 12 }),
            fault(1_150_718_989, DEVICE, Condition::Well),
        ],
        seed: 6711506360087211760,
        retries: Retries { tries_max: 5, pause: Nanos(8_233_438), pause_max: Nanos(432_033_759) },
    };
    let wrong = [
        (2, 59..=59),
        (2, 48..=54),
        (0, 56..=59),
        (1, 4..=11),
        (0, 23..=26),
        (2, 46..=57),
        (1, 29..=33),
    ];
    let long = [(0, 21..=38), (2, 58..=59)];
    let all = [
        reading(&wrong, Telling::Wrong, 4_174_242, 42_438_360),
        Drawn { is_long: true, ..reading(&long, Telling::Names, 8_577_045, 41_190_297) },
    ];
    for rules in Rules::ALL {
        spec.policy.rules = rules;
        check(&spec, &all, &run(&spec, &all));
    }
}

proptest! {
    #![proptest_config(cases(40))]

    #[test]
    fn whatever_fails_all_finish_and_again_the_same(
        spec in machines(),
        drawn in programs(),
    ) {
        for rules in Rules::ALL {
            let mut spec = spec.clone();
            spec.policy.rules = rules;
            let report = run(&spec, &drawn);
            check(&spec, &drawn, &report);
            prop_assert_eq!(&report, &run(&spec, &drawn));
        }
    }

    #[test]
    fn a_schedule_that_changes_nothing_changes_nothing(
        spec in machines(),
        drawn in programs(),
    ) {
        let idle = [
            Condition::Slow { times: 1 },
            Condition::Failing { share_ppm: 0 },
            Condition::Short { share_ppm: 0 },
            Condition::Well,
        ];
        for rules in Rules::ALL {
            let mut spec = spec.clone();
            spec.policy.rules = rules;
            spec.faults.schedule = idle.map(|condition| from(0, condition)).to_vec();
            let idle = run(&spec, &drawn);
            spec.faults = Faults::default();
            let without = run(&spec, &drawn);
            check(&spec, &drawn, &without);
            prop_assert_eq!(idle, without);
        }
    }
}
