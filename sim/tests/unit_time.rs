//! The off-line algorithms in the unit-time model: valid schedules, cases worked out by hand, and comparison
//! with the least elapsed time of all schedules, on cases small enough to try them all.

use std::collections::HashSet;

use foretell_sim::offline::belady::Belady;
use foretell_sim::offline::forward::{aggressive, fixed_horizon};
use foretell_sim::offline::reverse_aggressive::reverse_aggressive;
use foretell_sim::offline::unit_time::{Fetch, Problem, Schedule};
use proptest::prelude::*;

/// Plays `schedule` in the model, unit by unit; returns the end of the last read.
///
/// # Panics
/// If the schedule breaks a rule of the model.
fn play(problem: &Problem, schedule: &Schedule) -> u64 {
    let mut cached: HashSet<usize> = HashSet::new();
    let mut on_their_way: Vec<Option<Fetch>> = vec![None; problem.disks()];
    let mut fetches = schedule.fetches.iter().peekable();
    let (mut now, mut cursor) = (0, 0);
    while cursor < problem.reads().len() {
        for disk in &mut on_their_way {
            if disk.is_some_and(|fetch| fetch.start + problem.fetch_units() == now) {
                cached.insert(disk.take().expect("it is some").block);
            }
        }
        while let Some(&fetch) = fetches.next_if(|fetch| fetch.start == now) {
            let disk = &mut on_their_way[problem.disk_of(fetch.block)];
            assert!(disk.is_none(), "{fetch:?}, and its disk is busy");
            assert!(!cached.contains(&fetch.block), "{fetch:?} of what is there");
            *disk = Some(fetch);
            if let Some(victim) = fetch.evicts {
                assert!(cached.remove(&victim), "{fetch:?}: nothing to evict");
            }
            let buffers = cached.len() + on_their_way.iter().flatten().count();
            assert!(buffers <= problem.capacity_blocks(), "{fetch:?}: no buffer");
        }
        assert!(fetches.peek().is_none_or(|fetch| fetch.start > now), "not in order");
        if cached.contains(&problem.reads()[cursor]) {
            cursor += 1;
        } else {
            assert!(on_their_way.iter().any(Option::is_some), "it waits for ever");
        }
        now += 1;
    }
    assert!(fetches.next().is_none(), "a fetch after the end");
    now
}

/// Checks the properties of every valid schedule; returns its elapsed time.
fn valid(name: &str, problem: &Problem, schedule: &Schedule) -> u64 {
    let reads = problem.reads().len() as u64;
    assert_eq!(play(problem, schedule), schedule.elapsed, "{name}");
    assert_eq!(schedule.elapsed, reads + schedule.stall, "{name}");
    // No schedule has fewer fetches than MIN's misses. Each disk fetches each of its blocks at least once,
    // before the last of them is read.
    let min = Belady::run(problem.reads(), problem.capacity_blocks() as u64).misses;
    assert!(schedule.fetches.len() as u64 >= min, "{name}: {schedule:?}");
    for disk in 0..problem.disks() {
        let blocks = (0..problem.blocks()).filter(|&block| problem.disk_of(block) == disk).count();
        assert!(reads == 0 || schedule.elapsed > blocks as u64 * problem.fetch_units(), "{name}");
    }
    schedule.elapsed
}

fn all(problem: &Problem) -> [(&'static str, Schedule); 4] {
    let horizon = problem.fetch_units() as usize;
    [
        ("aggressive", aggressive(problem)),
        ("fixed horizon", fixed_horizon(problem, horizon)),
        ("on demand", fixed_horizon(problem, 0)),
        ("reverse aggressive", reverse_aggressive(problem)),
    ]
}

/// The state of a schedule: reads made, the set of blocks in buffers, and for each disk the block that it
/// fetches and the units until it arrives.
#[derive(Clone, PartialEq, Eq, Hash)]
struct State {
    cursor: usize,
    cached: u32,
    disks: Vec<Option<(usize, u64)>>,
}

/// The least elapsed time of all schedules, found by trying them all.
fn least_elapsed(problem: &Problem) -> u64 {
    let disks = vec![None; problem.disks()];
    let mut states = HashSet::from([State { cursor: 0, cached: 0, disks }]);
    for now in 0.. {
        if states.iter().any(|state| state.cursor == problem.reads().len()) {
            return now;
        }
        let mut next = HashSet::new();
        for state in states {
            try_starts(problem, state, 0, &mut next);
        }
        states = next;
    }
    unreachable!("everything is read some day")
}

/// Tries each choice of fetches on disks `disk..`, and then advances by one unit.
fn try_starts(problem: &Problem, mut state: State, disk: usize, next: &mut HashSet<State>) {
    if disk == problem.disks() {
        let block = problem.reads()[state.cursor];
        state.cursor += usize::from(state.cached & 1 << block != 0);
        for disk in &mut state.disks {
            if let Some((block, units)) = disk {
                *units -= 1;
                if *units == 0 {
                    state.cached |= 1 << *block;
                    *disk = None;
                }
            }
        }
        next.insert(state);
        return;
    }
    try_starts(problem, state.clone(), disk + 1, next);
    if state.disks[disk].is_some() {
        return;
    }
    let wanted: HashSet<usize> = problem.reads()[state.cursor..].iter().copied().collect();
    let comes = |&block: &usize| problem.disk_of(block) == disk && state.cached & 1 << block == 0;
    for block in wanted.into_iter().filter(comes) {
        let mut started = state.clone();
        started.disks[disk] = Some((block, problem.fetch_units()));
        let buffers = state.cached.count_ones() as usize + state.disks.iter().flatten().count();
        if buffers < problem.capacity_blocks() {
            try_starts(problem, started, disk + 1, next);
            continue;
        }
        for victim in (0..problem.blocks()).filter(|victim| state.cached & 1 << victim != 0) {
            let cached = state.cached & !(1 << victim);
            try_starts(problem, State { cached, ..started.clone() }, disk + 1, next);
        }
    }
}

#[test]
fn nothing_to_read() {
    let problem = Problem::new::<u8>(&[], |_| 0, 3, 4);
    for (name, schedule) in all(&problem) {
        assert_eq!((valid(name, &problem, &schedule), schedule.fetches.len()), (0, 0));
    }
}

#[test]
fn a_sequence_read_once_is_as_fast_as_its_disks() {
    // Twelve blocks, F = 4. On one disk a block arrives every 4 units, the first at 4.
    let reads: Vec<usize> = (0..12).collect();
    for (disks, elapsed) in [(1, 12 * 4 + 1), (2, 6 * 4 + 2), (4, 3 * 4 + 4)] {
        let problem = Problem::new(&reads, |block| block % disks, 8, 4);
        for (name, schedule) in [all(&problem)[0].clone(), all(&problem)[3].clone()] {
            assert_eq!(valid(name, &problem, &schedule), elapsed, "{name} on {disks} disks");
            assert_eq!(schedule.fetches.len(), 12);
        }
    }
    // On demand, each block costs F and its read.
    let problem = Problem::new(&reads, |_| 0, 8, 4);
    assert_eq!(fixed_horizon(&problem, 0).elapsed, 12 * 5);
}

#[test]
fn a_fetch_worked_by_hand() {
    // F = 2, two buffers, one disk: a a b a c. a arrives at 2 and b (requested at 2) at 4; a is read at 2 and
    // 3, b at 4, a at 5. c can take b's buffer from 5 on, arrives at 7, and is read until 8.
    let problem = Problem::new(&["a", "a", "b", "a", "c"], |_| 0, 2, 2);
    let fetch = |start, block, evicts| Fetch { start, block, evicts };
    let expected = vec![fetch(0, 0, None), fetch(2, 1, None), fetch(5, 2, Some(1))];
    for (name, schedule) in [all(&problem)[0].clone(), all(&problem)[3].clone()] {
        assert_eq!(schedule.fetches, expected, "{name}");
        assert_eq!((schedule.elapsed, schedule.stall), (8, 3), "{name}");
    }
    assert_eq!(least_elapsed(&problem), 8);
}

#[test]
fn the_horizon_begins_later_and_loses_nothing() {
    // F = 2, two buffers, one disk. a arrives at 2 and b at 4, which is read until 5. Then aggressive fetches c
    // in b's place, although its read is three reads away; the horizon waits for one more read. Either way c is
    // there when it is read, at 8. Then a makes room for b, which arrives at 10.
    let problem = Problem::new(&["a", "b", "a", "a", "a", "c", "b"], |_| 0, 2, 2);
    let (early, late) = (aggressive(&problem), fixed_horizon(&problem, 2));
    let starts = |schedule: &Schedule| -> Vec<u64> {
        schedule.fetches.iter().map(|fetch| fetch.start).collect()
    };
    assert_eq!((starts(&early), starts(&late)), (vec![0, 2, 5, 8], vec![0, 2, 6, 8]));
    assert_eq!((valid("early", &problem, &early), valid("late", &problem, &late)), (11, 11));
    assert_eq!(least_elapsed(&problem), 11);
}

#[test]
fn where_aggressive_loads_one_disk_the_reverse_spreads() {
    // A loop over blocks of two disks that does not fit. Aggressive evicts by the order of reads alone, so the
    // blocks that it evicts are not spread evenly over the disks.
    let reads: Vec<usize> = (0..400).map(|i| i % 10).collect();
    let problem = Problem::new(&reads, |block| usize::from(block >= 5), 7, 3);
    let forward = valid("aggressive", &problem, &aggressive(&problem));
    let reverse = valid("reverse", &problem, &reverse_aggressive(&problem));
    assert_eq!((reverse, forward), (411, 528));
}

fn small() -> impl Strategy<Value = Problem> {
    let reads = prop::collection::vec(0usize..5, 1..10);
    (reads, 1usize..4, 1u64..4, prop::collection::vec(0usize..2, 5)).prop_map(
        |(reads, capacity, fetch_units, disk_of)| {
            Problem::new(&reads, |block| disk_of[block], capacity, fetch_units)
        },
    )
}

fn large() -> impl Strategy<Value = Problem> {
    let reads = prop::collection::vec(0usize..30, 0..300);
    (reads, 1usize..33, 1u64..20, prop::collection::vec(0usize..4, 30)).prop_map(
        |(reads, capacity, fetch_units, disk_of)| {
            Problem::new(&reads, |block| disk_of[block], capacity, fetch_units)
        },
    )
}

proptest! {
    #[test]
    fn schedules_are_valid(problem in large()) {
        for (name, schedule) in all(&problem) {
            valid(name, &problem, &schedule);
        }
    }

    /// Fetching on demand, with the victim whose next read is last, is MIN.
    #[test]
    fn without_a_horizon_it_is_min(problem in large()) {
        let schedule = fixed_horizon(&problem, 0);
        let min = Belady::run(problem.reads(), problem.capacity_blocks() as u64).misses;
        prop_assert_eq!(schedule.fetches.len() as u64, min);
        prop_assert_eq!(schedule.stall, min * problem.fetch_units());
    }

    /// The published bounds, with F added for each disk, since buffers are empty at first.
    #[test]
    fn nothing_beats_the_optimum_and_the_bounds_hold(problem in small()) {
        let least = least_elapsed(&problem);
        for (name, schedule) in all(&problem) {
            let elapsed = valid(name, &problem, &schedule);
            prop_assert!(elapsed >= least, "{}: {} and {}", name, elapsed, least);
        }
        let (units, buffers) = (problem.fetch_units() as f64, problem.capacity_blocks() as f64);
        let (disks, least) = (problem.disks() as f64, least as f64);
        let reverse = reverse_aggressive(&problem).elapsed as f64;
        prop_assert!(reverse <= (1.0 + disks * units / buffers) * least + disks * units);
        if problem.disks() == 1 {
            let forward = aggressive(&problem).elapsed as f64;
            prop_assert!(forward <= (1.0 + units / buffers).min(2.0) * least + units);
        }
    }
}
