//! The stack against a model: a plain vector.

use proptest::prelude::*;
use std::collections::HashMap;
use std::ops::RangeInclusive;

use super::*;
use crate::buffers::hit_curve::HitCurve;
use crate::hint::FileId;

/// Operations of a random case.
const OPERATIONS: usize = if cfg!(miri) { 500 } else { 10_000 };

fn block(index: u32) -> Block {
    Block { file: FileId(u64::from(index % 3)), index: u64::from(index) }
}

/// A stack and the model it must equal. The block of a slot has the slot's number.
struct Pair {
    stack: Stack,
    /// Where each resident's entry lies.
    stamps: HashMap<u32, Stamp>,
    /// Newest first: a block, and whether it is resident.
    model: Vec<(u32, bool)>,
    ends: Vec<usize>,
    limit: usize,
    keeps_ghosts: bool,
}

impl Pair {
    fn new(limit: usize, boundaries: bool, start: Position) -> Self {
        let stack = Stack::starting_at(limit, boundaries, (start, 1));
        let ends = stack.segment_ends();
        Pair {
            stack,
            stamps: HashMap::new(),
            model: Vec::new(),
            ends,
            limit,
            keeps_ghosts: boundaries,
        }
    }

    fn depth(&self, block: u32) -> Option<usize> {
        self.model.iter().position(|&(other, _)| other == block)
    }

    fn segment(&self, depth: usize) -> usize {
        let segment = self.ends.partition_point(|&end| end <= depth);
        segment.min(self.ends.len() - 1)
    }

    /// Drops the model's oldest ghosts until `room` more entries fit.
    fn drop_ghosts(&mut self, room: usize) {
        while self.model.len() + room > self.limit {
            match self.model.iter().rposition(|&(_, resident)| !resident) {
                Some(depth) => self.model.remove(depth),
                None => return,
            };
        }
    }

    /// Checks the segment that the stack gave for the entry at `depth`, counted from 0. It is exact in a small stack, and
    /// otherwise right to within a quarter.
    fn check_said(&self, segment: usize, depth: usize) {
        if self.limit < 1024 {
            assert_eq!(segment, self.segment(depth), "depth {depth}");
        } else {
            let depths = nearly(&self.ends, segment);
            assert!(depths.contains(&(depth + 1)), "{segment}: {} in {depths:?}", depth + 1);
        }
    }

    /// Uses a block, which ends on top. Returns the segment where it lay.
    fn use_block(&mut self, slot: u32) -> Option<usize> {
        let depth = self.depth(slot).inspect(|&depth| _ = self.model.remove(depth));
        let found = match self.stamps.remove(&slot) {
            Some(stamp) => Some(self.stack.take(stamp)),
            None => self.stack.take_ghost(block(slot)).map(|found| found.segment),
        };
        assert_eq!(found.is_some(), depth.is_some(), "{slot}");
        found.into_iter().zip(depth).for_each(|(found, depth)| self.check_said(found, depth));
        self.push(slot);
        found
    }

    /// Uses a block without asking for its segment, unless it is a ghost.
    fn use_unasked(&mut self, slot: u32) {
        match self.depth(slot) {
            None => self.push(slot),
            Some(_) if self.stamps.contains_key(&slot) => self.renew(slot),
            Some(_) => {
                self.use_block(slot);
            }
        }
    }

    fn renew(&mut self, slot: u32) {
        let depth = self.depth(slot).expect("what has a stamp is in the model");
        self.model.remove(depth);
        self.model.insert(0, (slot, true));
        let stamp = self.stamps.remove(&slot).expect("a resident");
        let (mut moves, stamps) = (0, &mut self.stamps);
        let stamp = self.stack.renew(SlotId(slot), stamp, |other, stamp| {
            moves += 1;
            *stamps.get_mut(&other.0).expect("what moves is resident, and another one") = stamp;
        });
        assert!(moves <= COMPACTED_PER_TURN);
        self.stamps.insert(slot, stamp);
    }

    fn push(&mut self, slot: u32) {
        self.drop_ghosts(1);
        self.model.insert(0, (slot, true));
        let mut moves = 0;
        let stamps = &mut self.stamps;
        let stamp = self.stack.push(SlotId(slot), |other, stamp| {
            moves += 1;
            *stamps.get_mut(&other.0).expect("what moves is resident") = stamp;
        });
        assert!(moves <= COMPACTED_PER_TURN);
        self.stamps.insert(slot, stamp);
    }

    fn remove(&mut self, slot: u32) {
        let Some(stamp) = self.stamps.remove(&slot) else { return };
        let depth = self.depth(slot).expect("what has a stamp is in the model");
        self.model.remove(depth);
        self.stack.remove(stamp);
    }

    fn demote(&mut self, slot: u32) {
        let Some(stamp) = self.stamps.remove(&slot) else { return };
        let depth = self.depth(slot).expect("what has a stamp is in the model");
        self.stack.demote(stamp, block(slot));
        if self.keeps_ghosts {
            self.model[depth].1 = false;
            self.drop_ghosts(0);
        } else {
            self.model.remove(depth);
        }
    }

    fn demote_oldest(&mut self) {
        if let Some(slot) = self.check_oldest() {
            self.demote(slot);
        }
    }

    fn check_oldest(&mut self) -> Option<u32> {
        let oldest = self.model.iter().rev().find(|(_, resident)| *resident);
        let oldest = oldest.map(|&(slot, _)| slot);
        assert_eq!(self.stack.oldest(), oldest.map(SlotId));
        oldest
    }

    fn check_segment(&mut self, slot: u32) {
        if let Some(&stamp) = self.stamps.get(&slot) {
            let depth = self.depth(slot).expect("what has a stamp is in the model");
            let segment = self.stack.segment_of(stamp);
            self.check_said(segment, depth);
        }
    }

    /// Checks everything, in O(n²).
    fn check(&mut self) {
        let mut entries = Vec::new();
        let mut position = self.stack.log.end();
        while entries.len() < self.stack.residents() + self.stack.ghosts() {
            position = self.stack.log.below(position, 1);
            entries.push(match Entry::decode(self.stack.log.get(position)) {
                Entry::Resident(slot) => (slot.0, true),
                Entry::Unnamed => unreachable!("all of them have names"),
                Entry::Ghost(number) => {
                    let ghosts = &self.stack.ghosts;
                    let (slot, stamp) = (0..)
                        .zip((0..1 << 16).map(block))
                        .find_map(|(slot, block)| {
                            Some((slot, ghosts.stamp_of(number, hash_block(block))?))
                        })
                        .expect("it is the ghost of some block");
                    assert_eq!(stamp, Stamp(position as u32));
                    (slot, false)
                }
            });
        }
        assert_eq!(entries, self.model);
        let residents = entries.iter().filter(|(_, resident)| *resident).count();
        assert_eq!(self.stack.residents(), residents);
        assert_eq!(self.stack.ghosts(), entries.len() - residents);
        self.check_oldest();
        self.check_floors();
        for (slot, _) in entries {
            self.check_segment(slot);
        }
    }

    fn check_length(&self, live_max: usize) {
        let length = self.stack.log.len();
        let most = length_max(live_max, self.stack.keeps_ghosts) + 64;
        assert!(length <= most, "{length} for {live_max} live");
    }

    fn apply(&mut self, operation: u32) {
        let slot = (operation >> 8) % (2 * self.limit as u32 + 3);
        match operation % 64 {
            0..=19 => {
                self.use_block(slot);
            }
            20..=39 => self.use_unasked(slot),
            40..=45 => self.remove(slot),
            46..=50 => self.demote(slot),
            51..=60 => self.demote_oldest(),
            61 => self.check_segment(slot),
            62 => {
                self.check_oldest();
            }
            // A burst that empties much of the stack, one time in sixteen.
            _ if operation >> 28 == 0 => (0..slot).for_each(|slot| self.remove(slot)),
            _ => self.check(),
        }
    }

    /// Checks that segments are within their bounds once they are asked for.
    fn check_floors(&mut self) {
        let (stack, live) = (&mut self.stack, self.model.len());
        assert_eq!(stack.live(), live);
        stack.segments.settle(&stack.log, live);
        stack.segments.check(&stack.log, live);
    }

    fn run(&mut self, operations: &[u32]) {
        for &operation in operations {
            self.apply(operation);
        }
        self.check();
    }
}

fn operations() -> impl Strategy<Value = Vec<u32>> {
    prop::collection::vec(any::<u32>(), OPERATIONS)
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: ProptestConfig::default().cases.div_ceil(8),
        ..Default::default()
    })]

    #[test]
    fn a_stack_equals_its_model(
        limit in 1usize..400,
        before_wrap in 0u64..20_000,
        operations in operations(),
    ) {
        Pair::new(limit, true, (1 << 32) - before_wrap).run(&operations);
    }

    #[test]
    fn floors_of_a_large_stack_are_where_they_may_be(
        limit in 1024usize..10_000,
        before_wrap in 0u64..20_000,
        operations in operations(),
        asked_one_in in 1usize..200,
    ) {
        let mut pair = Pair::new(limit, true, (1 << 32) - before_wrap);
        for (number, operation) in operations.into_iter().enumerate() {
            if operation % 64 < 61 || operation >> 28 == 0 {
                pair.apply(operation);
            }
            if number % asked_one_in == 0 && number % 7 == 0 {
                pair.check_floors();
            }
        }
        pair.check_floors();
    }

    #[test]
    fn a_plain_queue_equals_its_model(
        limit in 1usize..150,
        before_wrap in 0u64..20_000,
        operations in operations(),
    ) {
        Pair::new(limit, false, (1 << 32) - before_wrap).run(&operations);
    }

    #[test]
    fn the_log_stays_short(
        limit in 1usize..3000,
        ghosts in any::<bool>(),
        skew in 1i32..4,
        uses in operations(),
    ) {
        let mut pair = Pair::new(limit, ghosts, 0);
        let mut live_max = 0;
        for seed in uses {
            let share = (f64::from(seed) / 2f64.powi(32)).powi(skew);
            let slot = (share * 1.5 * limit as f64) as u32;
            if !pair.stamps.contains_key(&slot) && pair.stack.residents() == limit.div_ceil(2) {
                let oldest = pair.stack.oldest().expect("residents");
                pair.demote(oldest.0);
            }
            pair.use_block(slot);
            live_max = live_max.max(pair.model.len());
            pair.check_length(live_max);
        }
        pair.check();
    }
}

/// Pseudo-random numbers below `below`.
fn random(state: &mut u64, below: usize) -> usize {
    *state = state.wrapping_mul(0x5851_f42d_4c95_7f2d).wrapping_add(0x1405_7b7e_f767_814f);
    ((u128::from(*state) * below as u128) >> 64) as usize
}

/// The longest log with so many live entries; without ghosts it fills its ring.
fn length_max(live: usize, keeps_ghosts: bool) -> usize {
    match keeps_ghosts {
        true => live * 26 / 10 + SLACK,
        false => (live * 33 / 10 + SLACK + 64).next_power_of_two(),
    }
}

/// A stack of residents only, with their stamps by slot.
fn residents(count: usize) -> (Stack, Vec<Stamp>) {
    all_residents(count, true)
}

fn all_residents(count: usize, keeps_ghosts: bool) -> (Stack, Vec<Stamp>) {
    let mut stack = Stack::new(count, keeps_ghosts);
    let mut stamps = vec![Stamp(0); count];
    for slot in 0..count {
        stamps[slot] =
            stack.push(SlotId(slot as u32), |other, stamp| stamps[other.0 as usize] = stamp);
    }
    (stack, stamps)
}

fn touch(stack: &mut Stack, stamps: &mut [Stamp], slot: usize) {
    stack.remove(stamps[slot]);
    let stamp = stack.push(SlotId(slot as u32), |other, stamp| stamps[other.0 as usize] = stamp);
    stamps[slot] = stamp;
}

#[test]
fn compaction_keeps_up_with_uniform_use_and_keeps_the_order() {
    let count = if cfg!(miri) { 300 } else { 20_000 };
    for keeps_ghosts in [true, false] {
        let (mut stack, mut stamps) = all_residents(count, keeps_ghosts);
        let (mut used, mut longest) = (vec![0; count], 0);
        let mut state = 1;
        for time in 1..=10 * count {
            let slot = random(&mut state, count);
            touch(&mut stack, &mut stamps, slot);
            used[slot] = time;
            longest = longest.max(stack.log.len());
        }
        let most = length_max(count, keeps_ghosts);
        let long = count * if keeps_ghosts { LONG_QUARTERS } else { LONG_QUARTERS_PLAIN } / 4;
        assert!((long..=most).contains(&longest), "{longest}, at most {most}");
        let mut order: Vec<usize> = (0..count).collect();
        order.sort_by_key(|&slot| (used[slot], slot));
        for slot in order {
            assert_eq!(stack.oldest(), Some(SlotId(slot as u32)));
            stack.remove(stamps[slot]);
        }
        assert_eq!(stack.oldest(), None);
    }
}

/// The depths, counted from 1, of entries that the stack may say lie in a segment: its ends may be wrong by a quarter of it.
/// The last segment has no end.
fn nearly(ends: &[usize], segment: usize) -> RangeInclusive<usize> {
    let end = |segment: usize| {
        let begin = if segment == 0 { 0 } else { ends[segment - 1] };
        (ends[segment], (ends[segment] - begin) / 4)
    };
    let first = segment.checked_sub(1).map_or(1, |before| end(before).0 + 1 - end(before).1);
    let (last, error) = end(segment);
    first..=if segment + 1 == ends.len() { usize::MAX } else { last + error }
}

#[test]
fn segments_of_a_large_stack_are_right_to_within_a_quarter() {
    for count in if cfg!(miri) { vec![2_000] } else { vec![1_024, 1_536, 8_192, 20_000, 100_000] } {
        let (mut stack, mut stamps) = residents(count);
        let ends = stack.segment_ends();
        let mut used: Vec<usize> = (0..count).collect();
        let mut state = 1;
        for time in 0..if cfg!(miri) { 300 } else { 20_000 } {
            // Most often the same few blocks, as programs use them; at times many without a question between.
            let below = if time % 3 == 0 { count } else { 1 + count / 100 };
            let slot = random(&mut state, below);
            if time % 97 == 0 {
                let depth = used.iter().filter(|&&last| last > used[slot]).count() + 1;
                let found = stack.segment_of(stamps[slot]);
                let depths = nearly(&ends, found);
                assert!(depths.contains(&depth), "of {count}, {found}: {depth} in {depths:?}");
            }
            if time % 5000 < 4000 {
                assert!(stack.segment_of(stamps[slot]) < ends.len());
            }
            touch(&mut stack, &mut stamps, slot);
            used[slot] = count + time;
        }
    }
}

#[test]
fn what_is_handed_down_is_not_forgotten() {
    let mut pair = Pair::new(2048, true, 0);
    (0..128).for_each(|slot| pair.push(slot));
    pair.check_segment(0);
    for slot in (128..928).step_by(2) {
        pair.push(slot);
        pair.push(slot + 1);
        pair.check_segment(0);
        // Above all floors but the first, the counts are as before. The turn must go on, since the last floor is not right.
        pair.renew(slot + 1);
        pair.check_segment(0);
        pair.check_floors();
    }
}

#[test]
fn after_most_entries_have_gone_the_log_shrinks() {
    let (mut stack, mut stamps) = residents(10_000);
    for &stamp in &stamps[..4_999] {
        stack.remove(stamp);
    }
    for &stamp in &stamps[5_001..] {
        stack.remove(stamp);
    }
    for time in 0..200 {
        touch(&mut stack, &mut stamps, 4_999 + time % 2);
    }
    assert!(stack.log.len() <= SLACK + 200, "{}", stack.log.len());
}

#[test]
fn a_loop_over_too_few_buffers_hits_at_its_own_depth() {
    let (loop_blocks, buffers, limit) = (300, 100, 640);
    let mut pair = Pair::new(limit, true, 0);
    let mut curve = HitCurve::new(&pair.ends);
    for time in 0..20 * loop_blocks {
        if pair.stack.residents() == buffers {
            pair.demote_oldest();
        }
        let segment = pair.use_block(time % loop_blocks);
        curve.access();
        assert_eq!(segment.is_some(), time >= loop_blocks);
        if let Some(segment) = segment {
            assert_eq!(segment, pair.segment(loop_blocks as usize - 1));
            curve.hit(segment);
        }
    }
    let end = pair.ends[pair.segment(loop_blocks as usize - 1)];
    assert_eq!(end, 300);
    let expected = curve.slope(1);
    assert!((expected * end as f64 - 1.0).abs() < 0.1, "{expected}");
    assert_eq!([50, 100, 299, 300].map(|n| curve.slope(n)), [expected; 4]);
    assert_eq!(curve.slope(301), 0.0);
}

/// An LRU cache of so many buffers, over a stack that names one ghost in `named_one_in`, and its counts.
struct Cached {
    stack: Stack,
    stamps: HashMap<u32, Stamp>,
    buffers: usize,
    curve: HitCurve,
    ghost_hits: u64,
}

impl Cached {
    fn new(limit: usize, buffers: usize, named_one_in: u64) -> Self {
        let stack = Stack::starting_at(limit, true, (0, named_one_in));
        let curve = HitCurve::with_half_life(&stack.segment_ends(), u64::MAX);
        Cached { stack, stamps: HashMap::new(), buffers, curve, ghost_hits: 0 }
    }

    fn read(&mut self, slot: u32) {
        self.curve.access();
        if let Some(stamp) = self.stamps.remove(&slot) {
            let segment = self.stack.take(stamp);
            self.curve.hit(segment);
        } else {
            if let Some(found) = self.stack.take_ghost(block(slot)) {
                self.ghost_hits += found.ghosts;
                self.curve.hit_ghost(found);
            }
            if self.stack.residents() == self.buffers {
                let oldest = self.stack.oldest().expect("residents").0;
                let stamp = self.stamps.remove(&oldest).expect("a resident has a stamp");
                self.stack.demote(stamp, block(oldest));
            }
        }
        let stamps = &mut self.stamps;
        let stamp = self.stack.push(SlotId(slot), |other, stamp| {
            *stamps.get_mut(&other.0).expect("what moves is resident") = stamp;
        });
        self.stamps.insert(slot, stamp);
    }

    /// A resident other than the oldest leaves, with a ghost or without.
    fn leave(&mut self, slot: u32, with_ghost: bool) {
        match self.stamps.remove(&slot) {
            Some(stamp) if with_ghost => self.stack.demote(stamp, block(slot)),
            Some(stamp) => self.stack.remove(stamp),
            None => {}
        }
    }

    /// Checks that the counts agree with the log and, in a small stack, the segments of all residents.
    fn check(&mut self) {
        let (mut kinds, mut residents) = ([0; 3], Vec::new());
        let mut from = self.stack.log.front();
        while let Some(position) = self.stack.log.next_live(from) {
            kinds[match Entry::decode(self.stack.log.get(position)) {
                Entry::Resident(slot) => {
                    residents.push((kinds.iter().sum::<usize>(), slot.0));
                    0
                }
                Entry::Ghost(_) => 1,
                Entry::Unnamed => 2,
            }] += 1;
            from = position + 1;
        }
        let stack = &mut self.stack;
        assert_eq!(kinds, [stack.residents(), stack.ghosts.len(), stack.unnamed]);
        assert!(stack.live() <= stack.limit);
        if stack.limit > 400 {
            return;
        }
        let (live, ends) = (stack.live(), stack.segment_ends());
        for (deeper, slot) in residents {
            let depth = live - deeper;
            let segment = ends.partition_point(|&end| end < depth);
            assert_eq!(stack.segment_of(self.stamps[&slot]), segment, "depth {depth}");
        }
    }
}

proptest! {
    #[test]
    fn with_few_names_counts_and_segments_are_those_of_the_log(
        limit in 1usize..300,
        buffers in 1usize..300,
        operations in prop::collection::vec(any::<u32>(), 1..2000),
    ) {
        let mut cached = Cached::new(limit, buffers.min(limit), NAMED_ONE_IN);
        for (number, operation) in operations.into_iter().enumerate() {
            let slot = (operation >> 8) % (2 * limit as u32 + 3);
            match operation % 8 {
                0 => cached.leave(slot, true),
                1 => cached.leave(slot, false),
                _ => cached.read(slot),
            }
            if number % 64 == 0 {
                cached.check();
            }
        }
        cached.check();
    }
}

#[test]
fn of_neighbours_no_two_have_names_and_of_few_that_lie_together_one_has() {
    let stack = Stack::starting_at(1000, true, (0, NAMED_ONE_IN));
    let mut state = 1;
    let runs = 1000;
    let unseen = (0..runs).filter(|_| {
        let (file, first) =
            (FileId(random(&mut state, 1 << 40) as u64), random(&mut state, 1 << 20));
        let named = |index: usize| stack.is_named(hash_block(Block { file, index: index as u64 }));
        let group = first / 4 * 4;
        assert!((group..group + 4).filter(|&index| named(index)).count() <= 1);
        !(first..first + 40).any(named)
    });
    assert!(unseen.count() < runs / 100);
}

#[test]
fn one_named_ghost_in_eight_says_what_all_would_say() {
    let (limit, buffers) = if cfg!(miri) { (1000, 400) } else { (16_384, 6_000) };
    // Somewhat more blocks than the stack knows, uniform and by a power law; and a loop that would fit.
    let blocks = limit as f64 * 1.2;
    let draw = |case: usize, state: &mut u64, time: usize| {
        let share = random(state, 1 << 32) as f64 / 2f64.powi(32);
        match case {
            0 => (share * blocks) as u32,
            1 => (share.powi(3) * blocks) as u32,
            _ => (time % (limit * 3 / 4)) as u32,
        }
    };
    for case in 0..3 {
        let mut all = Cached::new(limit, buffers, 1);
        let mut few = Cached::new(limit, buffers, NAMED_ONE_IN);
        let mut state = 1;
        for time in 0..limit * 12 {
            let slot = draw(case, &mut state, time);
            all.read(slot);
            few.read(slot);
            if time % (limit / 2) == 0 {
                all.check();
                few.check();
            }
        }
        let share = few.ghost_hits as f64 / all.ghost_hits as f64;
        assert!((0.9..1.1).contains(&share), "case {case}: {share} of the hits");
        for buffers in [limit / 8, limit / 2, limit * 7 / 10, limit * 15 / 16] {
            let (exact, estimate) = (all.curve.slope(buffers), few.curve.slope(buffers));
            let error = (estimate - exact).abs() / all.curve.slope(1);
            assert!(error < 0.05, "case {case}, {buffers} buffers: {estimate} for {exact}");
        }
    }
}

#[test]
fn large_stacks_name_few_ghosts_and_take_less_memory() {
    for (limit, one_in) in
        [(1, 1), (32_767, 1), (32_768, 2), (100_000, 4), (1 << 17, 8), (1 << 30, 8)]
    {
        assert_eq!(Stack::new(limit, true).named_one_in, one_in);
    }
    let limit = if cfg!(miri) { 2000 } else { 100_000 };
    let mut few = Cached::new(limit, limit / 2, NAMED_ONE_IN);
    let mut all = Cached::new(limit, limit / 2, 1);
    for slot in 0..limit as u32 {
        few.read(slot);
        all.read(slot);
    }
    assert_eq!(few.stack.ghosts(), all.stack.ghosts());
    let share = few.stack.ghosts.len() as f64 / all.stack.ghosts.len() as f64;
    assert!((0.1..0.15).contains(&share), "{share} have names");
    assert!(few.stack.memory_bytes() < all.stack.memory_bytes() / 2);
}

#[test]
fn residents_beyond_the_limit_stay_and_drop_all_ghosts() {
    let mut pair = Pair::new(4, true, 0);
    for slot in 0..4 {
        pair.use_block(slot);
    }
    pair.demote_oldest();
    pair.demote_oldest();
    for slot in 10..20 {
        pair.use_block(slot);
        pair.check();
    }
    assert_eq!((pair.stack.residents(), pair.stack.ghosts()), (12, 0));
    pair.demote_oldest();
    assert_eq!(pair.stack.ghosts(), 0);
    pair.check();
}

#[test]
#[should_panic(expected = "no live entry")]
fn a_stamp_used_twice_panics() {
    let mut stack = Stack::new(4, true);
    let stamp = stack.push(SlotId(1), |_, _| {});
    stack.push(SlotId(2), |_, _| {});
    stack.remove(stamp);
    stack.remove(stamp);
}
