//! The machine as a whole.

use super::program::{Disclosure, Steps, StoredFile, list, passes};
use super::server::ArraySpec;
use super::*;
use crate::random::SplitMix64;
use foretell_policy::{ReaderId, Rules};
use proptest::prelude::*;
use std::collections::BTreeMap;

pub(super) const BLOCK_BYTES: u64 = 8192;
pub(super) const HIT: Nanos = Nanos(243_000);
pub(super) const DRIVER: Nanos = Nanos(580_000);
pub(super) const LATENCY: Nanos = Nanos(15_000_000);
pub(super) const CPU: Nanos = Nanos(1_000_000);

pub(super) fn file(number: u64, blocks: u64) -> StoredFile {
    StoredFile { file: FileId(number), device: DeviceId(1), blocks, block_bytes: BLOCK_BYTES }
}

pub(super) fn flat(slots: Option<usize>) -> DeviceSpec {
    DeviceSpec::Flat { latency: LATENCY, transfer: Nanos::ZERO, slots }
}

pub(super) fn array(disks: usize) -> DeviceSpec {
    let files = (1..4).map(|number| (FileId(number), 2000 * BLOCK_BYTES));
    DeviceSpec::Array(Box::new(ArraySpec::hp97560(disks, files)))
}

pub(super) fn machine(rules: Rules, buffers: u64, device: DeviceSpec) -> MachineSpec {
    let config = Config::new(Memory::Owned, BLOCK_BYTES, buffers * BLOCK_BYTES);
    let policy = Config { rules, ..config };
    MachineSpec::new(policy, HIT, DRIVER, vec![(DeviceId(1), device)])
}

pub(super) fn program(number: u64, steps: Steps) -> Program {
    Program::new(format!("p{number}"), ReaderId(number), steps)
}

/// Three programs: hinted passes, hinted draws, unhinted draws.
fn mixture(seed: u64) -> Vec<Program> {
    let mut random = SplitMix64::new(seed);
    let mut draws = |count, blocks| (0..count).map(|_| random.below(blocks)).collect::<Vec<u64>>();
    let (hinted, unhinted) = (draws(300, 200), draws(300, 80));
    vec![
        program(1, passes(file(1, 100), 3, CPU, Disclosure::NextPass)),
        program(2, list(file(2, 200), hinted, CPU, Some(50))).starting_at(Nanos(5_000_000)),
        program(3, list(file(3, 80), unhinted, CPU, None)),
    ]
}

#[test]
fn without_buffers_to_speak_of_each_read_costs_all_its_terms() {
    let pass = passes(file(1, 50), 2, CPU, Disclosure::None);
    let report = machine(Rules::LRU, 1, flat(Some(1))).run(vec![program(1, pass)]);
    let per_read = LATENCY.0 + HIT.0 + DRIVER.0 + CPU.0;
    assert_eq!(report.end_ns, 100 * per_read);
    let one = &report.programs[0];
    assert!(one.ended);
    assert_eq!((one.tally.misses, one.tally.stall_ns), (100, 100 * LATENCY.0));
    assert_eq!(report.devices[0].busy_ns, 100 * LATENCY.0);
    assert_eq!(report.devices[0].demand_requests, 100);
}

#[test]
fn lru_keeps_all_of_a_loop_or_nothing() {
    let run = |buffers| {
        let steps = passes(file(1, 50), 4, CPU, Disclosure::None);
        machine(Rules::LRU, buffers, flat(None)).run(vec![program(1, steps)]).programs[0].tally
    };
    assert_eq!((run(49).hits, run(49).misses), (0, 200));
    assert_eq!((run(50).hits, run(50).misses), (150, 50));
    assert_eq!(run(50).miss_ratio(), 0.25);
}

#[test]
fn with_a_processor_of_its_own_a_program_works_or_stalls() {
    for rules in Rules::ALL {
        for device in [flat(None), flat(Some(2)), array(1), array(4)] {
            let report = machine(rules, 100, device).run(mixture(3));
            for program in &report.programs {
                let tally = program.tally;
                assert_eq!(program.elapsed_ns, tally.cpu_ns + tally.stall_ns, "{program:?}");
                assert_eq!(tally.reads, tally.hits + tally.late + tally.misses);
                assert_eq!(tally.reads, 300);
            }
        }
    }
}

/// Adjacent work is one event on a processor of its own, and two where other programs could come between.
#[test]
fn alone_it_makes_no_difference_whose_the_processor_is() {
    for rules in Rules::ALL {
        for device in [flat(None), flat(Some(2)), array(1), array(4)] {
            for which in 0..3 {
                let run = |processors| {
                    let mut spec = machine(rules, 100, device.clone());
                    spec.processors = processors;
                    spec.run(vec![mixture(5).swap_remove(which)])
                };
                let name = format!("{}, {device:?}, program {which}", rules.name);
                assert_eq!(run(Processors::Own), run(Processors::Shared), "{name}");
            }
        }
    }
}

#[test]
fn the_same_inputs_give_the_same_report() {
    for rules in [Rules::LRU, Rules::FORETELL] {
        let run = |seed| machine(rules, 100, array(3)).run(mixture(seed));
        assert_eq!(run(3), run(3));
        assert_ne!(run(3), run(4));
    }
}

#[test]
fn programs_on_one_processor_take_turns() {
    let compute = |times| -> Steps { Box::new((0..times).map(|_| Step::Compute(CPU))) };
    let mut spec = machine(Rules::LRU, 10, flat(None));
    spec.processors = Processors::Shared;
    let report = spec.run(vec![program(1, compute(10)), program(2, compute(3))]);
    assert_eq!(report.end_ns, 13 * CPU.0);
    // Its third turn, and one more to find that there is nothing left to do.
    assert_eq!(report.programs[1].elapsed_ns, 7 * CPU.0);
    let report = spec.run(mixture(3));
    for program in &report.programs {
        assert!(program.elapsed_ns >= program.tally.cpu_ns + program.tally.stall_ns);
    }
}

#[test]
fn a_disk_gets_its_next_request_when_the_processor_comes_to_it() {
    let run = |striper, disks| {
        let hinted = list(file(1, 64), (0..64).step_by(8).collect(), CPU, Some(64));
        let mut spec = machine(Rules::TIP1, 40, array(disks));
        spec.processors = Processors::Shared;
        spec.striper = striper;
        spec.run(vec![program(1, hinted)])
    };
    let striper = Nanos(2_000_000);
    for disks in [1, 2] {
        let (plain, report) = (run(Nanos::ZERO, disks), run(striper, disks));
        assert_eq!((plain.striper_ns, report.striper_ns), (0, 8 * striper.0));
        assert_eq!(plain.programs[0].tally.cpu_ns, report.programs[0].tally.cpu_ns);
        assert!(plain.end_ns < report.end_ns, "{disks} disks: {plain:?} {report:?}");
    }
    // A disk's eight requests have seven pauses between them. In each, the program that waited for a block has had its turn
    // first, at least to copy it.
    let disk_ns = |report: &Report| report.devices[0].busy_ns;
    let report = run(striper, 1);
    assert!(report.end_ns >= disk_ns(&report) + 7 * (striper.0 + HIT.0), "{report:?}");
}

#[test]
fn a_striper_with_much_to_do_is_one_that_waits_for_the_processor() {
    const BLOCKS: u64 = 1000;
    for slots in [None, Some(3), Some(1)] {
        let hinted = passes(file(1, BLOCKS), 1, CPU, Disclosure::UpFront);
        let mut spec = machine(Rules::TIP1, BLOCKS, flat(slots));
        spec.policy.cluster_blocks_max = 1;
        spec.policy.outstanding_max = BLOCKS as usize;
        spec.processors = Processors::Shared;
        spec.striper = Nanos(300_000);
        let report = spec.run(vec![program(1, hinted)]);
        assert_eq!(report.devices[0].prefetch_requests, BLOCKS);
        // Each slot waits for the processor after each of its requests.
        if let Some(slots) = slots {
            let turns = BLOCKS / slots as u64;
            assert!(report.end_ns >= turns * (LATENCY.0 + spec.striper.0), "{report:?}");
        }
    }
}

#[test]
fn who_comes_later_waits_for_the_same_fetch() {
    let once = || passes(file(1, 1), 1, CPU, Disclosure::None);
    let later = program(2, once()).starting_at(Nanos(1_000_000));
    let report = machine(Rules::LRU, 10, flat(None)).run(vec![program(1, once()), later]);
    let [first, second] = [0, 1].map(|index| report.programs[index].tally);
    assert_eq!((first.misses, second.misses, second.late), (1, 0, 1));
    assert_eq!(second.stall_ns, LATENCY.0 + DRIVER.0 - 1_000_000);
    assert_eq!(report.devices[0].demand_requests, 1);
}

#[test]
fn with_all_buffers_being_filled_a_read_goes_around() {
    let once = |number| passes(file(number, 1), 1, CPU, Disclosure::None);
    let programs = vec![program(1, once(1)), program(2, once(2))];
    let report = machine(Rules::LRU, 1, flat(None)).run(programs);
    let around: u64 = report.programs.iter().map(|program| program.tally.around).sum();
    assert_eq!(around, 1);
    assert_eq!(report.end_ns, LATENCY.0 + DRIVER.0 + HIT.0 + CPU.0);
}

#[test]
fn the_background_ends_with_the_others() {
    let endless: Steps = Box::new(std::iter::repeat_with(|| Step::Compute(CPU)));
    let one = passes(file(1, 5), 1, CPU, Disclosure::None);
    let programs = vec![program(1, endless).in_background(), program(2, one)];
    let report = machine(Rules::LRU, 10, flat(None)).run(programs);
    assert!(!report.programs[0].ended && report.programs[1].ended);
    assert_eq!(report.programs[0].elapsed_ns, report.end_ns);
}

#[test]
fn what_all_had_done_at_the_end_of_one_is_noted() {
    let noted = |name: Option<&str>| {
        let mut spec = machine(Rules::LRU, 100, flat(None));
        spec.noted_at_end_of = name.map(str::to_owned);
        spec.run(mixture(5))
    };
    let report = noted(None);
    assert_eq!(report.noted, []);
    let end = |program: &&ProgramReport| program.start_ns + program.elapsed_ns;
    let first = report.programs.iter().min_by_key(end).expect("there are three");
    let last = report.programs.iter().max_by_key(end).expect("there are three");
    let totals: Vec<Tally> = report.programs.iter().map(|program| program.tally).collect();
    assert_eq!(noted(Some(&last.name)).noted, totals);
    let at_first = noted(Some(&first.name)).noted;
    assert!(at_first != totals && at_first.contains(&first.tally), "{at_first:?}");
}

#[test]
fn demand_does_not_wait_for_a_deep_queue_of_prefetches() {
    // A program that discloses far more than a slow device with one slot can bring, beside a program without hints.
    let hinting = passes(file(1, 400), 1, Nanos::ZERO, Disclosure::UpFront);
    let plain = list(file(2, 20), (0..20).collect(), CPU, None);
    let start = Nanos(100_000_000);
    let programs = vec![program(1, hinting), program(2, plain).starting_at(start)];
    let report = machine(Rules::FORETELL, 300, flat(Some(1))).run(programs);
    // Each of its reads waits at most for one prefetch, one demand read, and its own.
    assert!(report.programs[1].tally.stall_ns <= 20 * 3 * LATENCY.0);
}

#[test]
fn an_inode_is_read_once_whoever_opens_the_file() {
    let open = || -> Steps { Box::new((0..2).map(|_| Step::Open(FileId(7), DeviceId(1)))) };
    let mut spec = machine(Rules::LRU, 10, flat(None));
    let work = Nanos(40_000);
    spec.open = work;
    spec.metadata = Metadata::Inodes;
    let later = program(2, open()).starting_at(Nanos(1_000_000));
    let report = spec.run(vec![program(1, open()), later]);
    let [first, second] = [0, 1].map(|index| report.programs[index].tally);
    assert_eq!((first.opens, first.inode_waits), (2, 1));
    assert_eq!((second.opens, second.inode_waits), (2, 1));
    assert_eq!(report.end_ns, DRIVER.0 + LATENCY.0 + 2 * work.0);
    assert_eq!(report.devices[0].demand_requests, 1);
    spec.metadata = Metadata::Known;
    assert_eq!(spec.run(vec![program(1, open())]).end_ns, 2 * work.0);
}

#[test]
fn an_open_reads_the_way_to_its_file() {
    let (root, set) = (FileId(1), FileId(2));
    let mut directories = Directories::default();
    directories.add_directory(root);
    directories.add_directory(set);
    directories.add(root, set, 4, || FileId(50));
    // 341 entries of 24 bytes need two blocks: 335 entries fit the first.
    let mut blocks = (100..).map(FileId);
    for file in 1000..1341 {
        directories.add(set, FileId(file), 12, || blocks.next().expect("endless"));
    }
    let open = |file| Step::Open(FileId(file), DeviceId(1));
    let run = |metadata, files: &[u64]| {
        let mut spec = machine(Rules::TIP1, 10, flat(None));
        (spec.open, spec.metadata) = (Nanos(40_000), metadata);
        spec.directories = directories.clone();
        let steps: Vec<Step> = files.iter().map(|&file| open(file)).collect();
        spec.run(vec![program(1, Box::new(steps.into_iter()))])
    };
    // Inode and block of the root, inode and block of the directory, and the file's inode; then another file's inode; then
    // the second block; then nothing.
    let all = [1000, 1001, 1340, 1000];
    for (files, inodes, blocks) in [(1, 3, 2), (2, 4, 2), (3, 5, 3), (4, 5, 3)] {
        let report = run(Metadata::Ffs, &all[..files]);
        let tally = report.programs[0].tally;
        assert_eq!((tally.inode_waits, tally.directory_waits), (inodes, blocks), "{files}");
        let waits = inodes + blocks;
        assert_eq!(report.end_ns, waits * (DRIVER.0 + LATENCY.0) + files as u64 * 40_000);
        assert_eq!(report.devices[0].demand_requests, waits);
    }
    let tally = run(Metadata::Inodes, &all).programs[0].tally;
    assert_eq!((tally.inode_waits, tally.directory_waits), (3, 0));
}

#[test]
fn blocks_of_addresses_are_read_once_and_prefetches_wait_for_them() {
    // The first address is in the inode, the next two are in one block, and the last is two levels deep.
    let blocks = [11, 12, 2059, 2060];
    let run = |metadata, steps: Vec<Step>| {
        let mut spec = machine(Rules::TIP1, 30, flat(None));
        spec.policy.cluster_blocks_max = 1;
        spec.open = Nanos::ZERO;
        spec.metadata = metadata;
        spec.run(vec![program(1, Box::new(steps.into_iter()))])
    };
    let whole = file(1, 3000);
    let reads = || blocks.into_iter().flat_map(|index| [whole.read(index), Step::Compute(CPU)]);
    let requests =
        |report: &Report| (report.devices[0].demand_requests, report.devices[0].prefetch_requests);
    // Other blocks evict these before the last is read once more.
    let others = (0..30).map(|index| file(2, 30).read(index));
    let steps: Vec<Step> = reads().chain(others).chain([whole.read(2060)]).collect();
    let [known, ffs] = [Metadata::Known, Metadata::Ffs].map(|how| run(how, steps.clone()));
    // 18 of the file's 30 blocks are beyond the inode's 12 addresses.
    assert_eq!((requests(&known), requests(&ffs)), ((35, 0), (35 + 3 + 1, 0)));
    assert_eq!(ffs.end_ns - known.end_ns, 4 * (DRIVER.0 + LATENCY.0));
    assert_eq!(ffs.programs[0].tally.reads, 35);
    // Three reads, one after another, before the program can go on. The data arrives meanwhile, except the last.
    let steps: Vec<Step> =
        [Step::Hint(whole.hint_blocks(blocks))].into_iter().chain(reads()).collect();
    let [known, ffs] = [Metadata::Known, Metadata::Ffs].map(|how| run(how, steps.clone()));
    assert_eq!((requests(&known), requests(&ffs)), ((0, 4), (3, 4)));
    let tally = ffs.programs[0].tally;
    assert_eq!((tally.misses, tally.hits), (0, 3), "{tally:?}");
    let [known, ffs] = [known, ffs].map(|report| report.programs[0].tally.stall_ns);
    assert!(ffs >= known + 2 * LATENCY.0, "{ffs} {known}");
}

#[test]
fn reads_of_disclosed_files_cost_what_is_said() {
    let run = |disclosed_read, disclosure| {
        let mut spec = machine(Rules::TIP1, 200, flat(None));
        spec.disclosed_read = disclosed_read;
        spec.run(vec![program(1, passes(file(1, 100), 1, CPU, disclosure))]).programs[0]
            .tally
            .cpu_ns
    };
    let more = |disclosure| run(Nanos(700), disclosure) - run(Nanos::ZERO, disclosure);
    assert_eq!([Disclosure::None, Disclosure::UpFront].map(more), [0, 100 * 700]);
}

#[test]
fn disclosed_names_are_looked_up_and_fetched_side_by_side() {
    let files = 1..31;
    let steps = |hinted: bool| -> Steps {
        let hint = |number: u64| {
            Step::Hint(Hint::whole_file(Target::Name(NameId(number + 100)), DeviceId(1)))
        };
        let hints: Vec<Step> = (1..31).filter(|_| hinted).map(hint).collect();
        let reads = (1..31).flat_map(|number| {
            [Step::Open(FileId(number), DeviceId(1)), file(number, 1).read(0), Step::Compute(CPU)]
        });
        Box::new(hints.into_iter().chain(reads))
    };
    let mut spec = machine(Rules::FORETELL, 100, flat(None));
    spec.open = Nanos::ZERO;
    spec.metadata = Metadata::Inodes;
    spec.sizes_bytes = files.clone().map(|number| (FileId(number), BLOCK_BYTES)).collect();
    spec.names = files.map(|number| (NameId(number + 100), FileId(number))).collect();
    let plain = spec.run(vec![program(1, steps(false))]);
    assert_eq!(plain.end_ns, 30 * (2 * (DRIVER.0 + LATENCY.0) + HIT.0 + CPU.0));
    let hinted = spec.run(vec![program(1, steps(true))]);
    assert_eq!(hinted.counts.hints_resolved, 30);
    assert_eq!(hinted.programs[0].tally.misses, 0);
    assert!(hinted.end_ns * 5 < plain.end_ns, "{} {}", hinted.end_ns, plain.end_ns);
    // The bound at a time, in turn; and the data of the last lookups after them.
    for lookups_max in [1, 4, 15] {
        let few = MachineSpec { lookups_max, ..spec.clone() };
        let few_ns = few.run(vec![program(1, steps(true))]).end_ns;
        let least_ns = (30u64.div_ceil(lookups_max as u64) + 1) * LATENCY.0;
        assert!(few_ns > least_ns && few_ns > hinted.end_ns, "{lookups_max}: {few_ns}");
        let most_ns = least_ns + 30 * (HIT.0 + CPU.0 + DRIVER.0);
        assert!(few_ns <= most_ns, "{lookups_max}: {few_ns} {most_ns}");
    }
    // A lookup of an unknown name is refused, without other effects.
    spec.names.remove(&NameId(103));
    let hinted = spec.run(vec![program(1, steps(true))]);
    assert_eq!((hinted.counts.hints_refused, hinted.programs[0].tally.misses), (1, 1));
}

#[test]
fn read_ahead_makes_few_requests_of_many_blocks() {
    let run = |read_ahead| {
        let mut spec = machine(Rules::TIP1, 200, array(1));
        spec.policy.cluster_blocks_max = 8;
        spec.sizes_bytes = HashMap::from([(FileId(1), 100 * BLOCK_BYTES)]);
        spec.read_ahead = read_ahead;
        spec.run(vec![program(1, passes(file(1, 100), 1, CPU, Disclosure::None))])
    };
    let (plain, ahead) = (run(None), run(Some(ReadAheadSpec::OSF1)));
    let requests =
        |report: &Report| report.devices[0].demand_requests + report.devices[0].prefetch_requests;
    assert_eq!(requests(&plain), 100);
    assert!(requests(&ahead) <= 20, "{}", requests(&ahead));
    assert_eq!(ahead.devices[0].bytes, plain.devices[0].bytes);
    assert_eq!(ahead.programs[0].tally.misses, 0);
    // The drive reads ahead too: only its overhead and T_driver are saved.
    assert!(ahead.end_ns * 6 < plain.end_ns * 5, "{} {}", ahead.end_ns, plain.end_ns);
}

#[test]
fn who_waits_for_a_block_has_read_none_of_its_neighbours() {
    let mut spec = machine(Rules::TIP1, 200, flat(Some(1)));
    spec.policy.cluster_blocks_max = 8;
    let steps = passes(file(1, 8), 2, Nanos::ZERO, Disclosure::UpFront);
    let tally = spec.run(vec![program(1, steps)]).programs[0].tally;
    // One fetch of eight blocks: the first is waited for, the others are prefetched when they are read.
    assert_eq!((tally.misses, tally.late, tally.hits, tally.prefetched_hits), (0, 1, 15, 7));
}

#[test]
fn read_ahead_leaves_alone_what_is_disclosed_or_read_at_random() {
    let run = |steps| {
        let mut spec = machine(Rules::TIP1, 200, flat(Some(1)));
        spec.sizes_bytes = HashMap::from([(FileId(1), 100 * BLOCK_BYTES)]);
        spec.read_ahead = Some(ReadAheadSpec::OSF1);
        spec.run(vec![program(1, steps)])
    };
    let scattered: Vec<u64> = (0..30).map(|at| (at * 37 + 5) % 100).collect();
    let random = run(list(file(1, 100), scattered, CPU, None));
    assert_eq!((random.counts.prefetched, random.programs[0].tally.misses), (0, 30));
    let hinted = run(passes(file(1, 100), 1, CPU, Disclosure::UpFront));
    assert_eq!((hinted.counts.hints, hinted.counts.wasted), (1, 0));
}

#[test]
fn the_last_block_is_read_as_far_as_the_file_goes() {
    let run = |size_bytes| {
        let mut spec = machine(Rules::LRU, 10, array(1));
        spec.sizes_bytes = HashMap::from([(FileId(1), size_bytes)]);
        let report = spec.run(vec![program(1, passes(file(1, 2), 1, CPU, Disclosure::None))]);
        report.devices[0].bytes
    };
    assert_eq!(
        [2 * BLOCK_BYTES, BLOCK_BYTES + 4097, BLOCK_BYTES + 1].map(run),
        [16384, 16384, 12288]
    );
}

/// A program with these steps.
fn steps(steps: impl IntoIterator<Item = Step, IntoIter: 'static>) -> Steps {
    Box::new(steps.into_iter())
}

#[test]
fn programs_wait_for_each_other() {
    let work = |ms: u64| Step::Compute(Nanos(ms * 1_000_000));
    let [first, second] = [1, 2].map(MarkId);
    let run = |processors| {
        let one = steps([work(10), Step::Mark(first), work(5), Step::Await(second), work(1)]);
        // A mark that was set long ago needs no wait.
        let two = steps([Step::Await(first), work(3), Step::Mark(second), Step::Await(first)]);
        let three = steps([work(20), Step::Await(second), Step::Await(first), work(1)]);
        let machine = MachineSpec { processors, ..machine(Rules::LRU, 1, flat(Some(1))) };
        machine.run(vec![program(1, one), program(2, two), program(3, three)])
    };
    let report = run(Processors::Own);
    let ends: Vec<u64> =
        report.programs.iter().map(|program| program.elapsed_ns / 1_000_000).collect();
    assert_eq!(ends, [16, 13, 21]);
    let tally = report.programs[1].tally;
    assert_eq!((tally.cpu_ns, tally.stall_ns), (3_000_000, 0));
    assert_eq!(run(Processors::Shared).end_ns, 40_000_000);
}

#[test]
#[should_panic(expected = "nothing will happen any more, and [\"p1\", \"p2\"] have not ended")]
fn who_waits_for_what_nobody_does_is_noticed() {
    let [first, second] = [1, 2].map(MarkId);
    let one = steps([Step::Await(second), Step::Mark(first)]);
    let two = steps([Step::Await(first), Step::Mark(second)]);
    let three = steps([Step::Compute(CPU)]);
    let programs = vec![program(1, one), program(2, two), program(3, three)];
    machine(Rules::LRU, 1, flat(Some(1))).run(programs);
}

proptest! {
    /// Events are added and taken out. The event taken out last may be added again for a later instant; it keeps its turn.
    #[test]
    fn events_come_in_the_order_of_instants_and_turns(
        steps in prop::collection::vec((0u8..5, 0u64..6), 1..200),
    ) {
        let (mut events, mut model) = (Events::default(), BTreeMap::new());
        let (mut now, mut last): (u64, Option<Event>) = (0, None);
        // All events left are taken out in the end, and one more `pop` finds none.
        let rest = std::iter::repeat_n((4, 0), steps.len() + 1);
        for (what, later) in steps.into_iter().chain(rest) {
            let at = Nanos(now + later);
            match (what, last) {
                (0 | 1, _) => {
                    let kind = if what == 0 { Kind::Served } else { Kind::Program };
                    events.push(at, kind, later as usize, Key::default());
                    model.insert((at, Turn::new(kind, events.serials)), later as u32);
                }
                (2, Some(event)) => {
                    events.push_again(Event { at, ..event });
                    model.insert((at, event.turn), event.index);
                    last = None;
                }
                _ => {
                    last = events.pop();
                    let expected = model.pop_first();
                    prop_assert_eq!(last.map(|it| ((it.at, it.turn), it.index)), expected);
                    now = last.map_or(now, |event| event.at.0);
                }
            }
        }
        prop_assert!(model.is_empty());
    }
}
