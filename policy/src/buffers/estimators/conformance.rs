//! The suite that every estimator passes: the duties in the comment of [`Estimator`], checked after every step of random
//! sequences.
//!
//! An estimator of the list gets its test from its line in the list, and implements [`Tested`] in its own file. The hint
//! estimator has a [`Fixture`] here. The suite does the rest through [`Estimator`] alone. It finds a block's value by offering
//! the block: a tracked block is accepted below its value and refused above it, and either way nothing changes.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::hint::HintEstimator;
use super::*;
use crate::blocks::{Slot, StreamIndex};
use crate::contract::{CostModel, CostSource};
use crate::hint::{DeviceId, FileId, Hint, HinterId, Order, ReaderId, Segment, StreamId, Target};
use crate::rules::Replacement;
use crate::streams::stream::{Fit, Limits, Stream, Waiting};
use crate::time::Nanos;

/// Blocks in memory.
pub(super) const SLOTS: usize = 12;
/// Files, and blocks of each.
pub(super) const FILES: u64 = 4;
pub(super) const FILE_BLOCKS: u64 = 8;
/// Devices of a world with several.
pub(super) const SEVERAL: u16 = 3;

/// What estimators see of the rest, and may not change.
pub(super) struct World {
    pub(super) blocks: BlockTable,
    costs: Costs,
    rates: Rates,
    pub(super) rules: Rules,
    devices: u16,
    pub(super) slots: Vec<SlotId>,
}

impl World {
    /// A full cache: the first blocks of the files.
    pub(super) fn new(rules: Rules, devices: u16) -> Self {
        let model = CostModel { hit_ns: 1e3, driver_ns: 2e3, disk_ns: 2e4 };
        let costs = Costs::new(CostSource::Measured(model), &rules);
        let (blocks, slots) = (BlockTable::default(), Vec::new());
        let mut rates = Rates::new(SLOTS as f64);
        rates.access(UNHINTED);
        let mut world = World { blocks, costs, rates, rules, devices, slots };
        for number in 0..SLOTS as u64 {
            let slot = world.bring(Block { file: FileId(number % FILES), index: number / FILES });
            world.slots.push(slot);
        }
        world
    }

    fn device_of(&self, file: FileId) -> DeviceIndex {
        DeviceIndex((file.0 % u64::from(self.devices)) as u16)
    }

    fn bring(&mut self, block: Block) -> SlotId {
        let mut slot = Slot::in_flight(block, self.device_of(block.file), false);
        slot.arrived();
        self.blocks.insert(slot)
    }

    /// What an estimator of this world is made for.
    pub(super) fn setting(&self) -> Setting {
        Setting { rules: self.rules, memory: Memory::Owned, capacity_blocks: SLOTS }
    }

    pub(super) fn scene(&mut self) -> Scene<'_> {
        let World { blocks, costs, rates, rules, .. } = self;
        Scene { blocks, costs, rates, rules }
    }
}

/// Slots that an estimator starts and stops tracking by an event.
#[derive(Default)]
pub(super) struct Change {
    pub(super) came: Vec<SlotId>,
    pub(super) went: Vec<SlotId>,
}

/// An estimator of the list, with what the suite must know of it.
pub(super) trait Tested: Estimator {
    /// Whether tracked blocks can be picked.
    const PICKABLE: bool = true;

    /// Called once, before the first step.
    fn begin(&mut self) {}

    /// Tells the estimator of an event about `slot`. `kind` is a random number that chooses the event.
    fn event(&mut self, scene: &mut Scene<'_>, slot: SlotId, kind: u8) -> Change;
}

/// An estimator under test.
trait Fixture {
    /// Whether tracked blocks can be picked.
    const PICKABLE: bool = true;

    /// Does something with the estimator.
    fn with<R>(
        &mut self,
        world: &mut World,
        act: impl FnOnce(&mut dyn Estimator, &mut Scene<'_>) -> R,
    ) -> R;

    /// Tells the estimator of an event about `slot`. `kind` is a random number that chooses the event.
    fn event(&mut self, world: &mut World, slot: SlotId, kind: u8) -> Change;
}

impl<E: Tested> Fixture for E {
    const PICKABLE: bool = <E as Tested>::PICKABLE;

    fn with<R>(
        &mut self,
        world: &mut World,
        act: impl FnOnce(&mut dyn Estimator, &mut Scene<'_>) -> R,
    ) -> R {
        act(self, &mut world.scene())
    }

    fn event(&mut self, world: &mut World, slot: SlotId, kind: u8) -> Change {
        Tested::event(self, &mut world.scene(), slot, kind)
    }
}

#[derive(Clone, Debug)]
pub(super) enum Step {
    /// An event about a slot, of this kind.
    Event(usize, u8),
    /// A slot is offered. The floor is this share of the highest value that a block can have.
    Offer(usize, f64),
    /// The least valuable goes, and is offered back.
    Pick,
    /// A slot gets another block.
    Leave(usize, u64),
    /// A cost of a device is measured, ns.
    Cost(u16, u64),
    /// A block moves to this device.
    Move(usize, u16),
}

pub(super) fn steps() -> impl Strategy<Value = Vec<Step>> {
    let slot = || 0..SLOTS;
    let step = prop_oneof![
        8 => (slot(), any::<u8>()).prop_map(|(slot, kind)| Step::Event(slot, kind)),
        6 => (slot(), -1.0..1.0).prop_map(|(slot, floor)| Step::Offer(slot, floor)),
        2 => Just(Step::Pick),
        2 => (slot(), 0..FILES * FILE_BLOCKS).prop_map(|(slot, block)| Step::Leave(slot, block)),
        1 => (0..SEVERAL, 1u64..200_000).prop_map(|(device, ns)| Step::Cost(device, ns)),
        1 => (slot(), 0..SEVERAL).prop_map(|(slot, device)| Step::Move(slot, device)),
    ];
    prop::collection::vec(step, 1..120)
}

/// An estimator, its world, and the slots that it must be tracking.
struct Suite<F> {
    world: World,
    fixture: F,
    tracked: BTreeSet<SlotId>,
}

impl<F: Fixture> Suite<F> {
    fn with<R>(&mut self, act: impl FnOnce(&mut dyn Estimator, &mut Scene<'_>) -> R) -> R {
        self.fixture.with(&mut self.world, act)
    }

    fn offer(&mut self, slot: SlotId, floor: f64) -> bool {
        self.with(|estimator, scene| estimator.offer(scene, slot, floor))
    }

    fn declare(&mut self) -> Option<f64> {
        self.with(|estimator, scene| estimator.declare(scene))
    }

    /// Offers a block, tracked or not. Returns whether it is tracked now.
    fn offer_and_note(&mut self, slot: SlotId, floor: f64) -> bool {
        let kept = self.offer(slot, floor);
        if kept {
            let is_new = self.tracked.insert(slot);
            assert!(!is_new || self.with(|estimator, _| estimator.takes_over()), "{slot:?}");
            assert!(self.offer(slot, floor), "{slot:?} is worth more than {floor} only once");
        }
        kept
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Event(slot, kind) => {
                let slot = self.world.slots[slot];
                let change = self.fixture.event(&mut self.world, slot, kind);
                change.went.iter().for_each(|slot| assert!(self.tracked.remove(slot)));
                self.tracked.extend(change.came);
            }
            Step::Offer(slot, share) => {
                let slot = self.world.slots[slot];
                let prices = self.world.costs.at(self.world.blocks[slot].device());
                let floor = share * (2.0 * prices.driver_ns + prices.disk_ns + 2.0 * prices.hit_ns);
                if !self.tracked.contains(&slot) {
                    assert!(!self.offer(slot, f64::INFINITY), "nothing is worth that");
                    self.check_tracks();
                }
                self.offer_and_note(slot, floor);
            }
            Step::Pick => self.pick(),
            Step::Leave(place, block) => {
                let slot = self.world.slots[place];
                let block = Block { file: FileId(block % FILES), index: block / FILES };
                self.leave(slot);
                if self.world.blocks.find(block).is_none() {
                    self.world.blocks.remove(slot);
                    self.world.slots[place] = self.world.bring(block);
                }
            }
            Step::Move(place, device) => {
                let (slot, device) = (self.world.slots[place], device % self.world.devices);
                let known = &mut self.world.blocks[slot];
                let before = known.moves_to(DeviceIndex(device));
                if before.0 != device {
                    self.with(|estimator, scene| estimator.moved(scene, slot, before));
                }
            }
            Step::Cost(device, ns) => {
                self.world.costs.observe_disk(DeviceIndex(device), Nanos(ns));
                self.world.costs.observe_block(DeviceIndex(device), ns as f64 / 4.0, 1, false);
            }
        }
        self.check();
    }

    /// The block that `pick` returns has the value that `declare` returned just before. It is no longer tracked then. If it is
    /// offered back, it is tracked again if and only if the offer is accepted.
    fn pick(&mut self) {
        let declared = self.declare();
        let at_that_value: BTreeSet<SlotId> = match declared {
            Some(value) => {
                let tracked = self.tracked.clone().into_iter();
                tracked.filter(|&slot| !self.offer(slot, value)).collect()
            }
            None => BTreeSet::new(),
        };
        let Some(slot) = self.with(|estimator, scene| estimator.pick(scene)) else {
            assert_eq!(declared, None);
            return;
        };
        assert!(self.tracked.remove(&slot), "{slot:?} was picked and not tracked");
        assert!(at_that_value.contains(&slot), "{slot:?} is not worth what was declared");
        self.check_tracks();
        self.offer_and_note(slot, -1.0);
    }

    /// `forget` leaves nothing, whether the slot was tracked or not.
    fn leave(&mut self, slot: SlotId) {
        self.with(|estimator, scene| estimator.forget(scene, slot));
        self.tracked.remove(&slot);
        let known = &self.world.blocks[slot];
        assert!(known.claim().is_none() && known.queue().is_none(), "{known:?} is not forgotten");
        self.check_tracks();
    }

    fn check_tracks(&mut self) {
        for slot in self.world.slots.clone() {
            let tracks = self.with(|estimator, scene| estimator.tracks(scene.blocks, slot));
            assert_eq!(tracks, self.tracked.contains(&slot), "{slot:?}");
        }
    }

    fn check(&mut self) {
        self.check_tracks();
        let declared = self.declare();
        assert_eq!(declared, self.declare(), "declared twice");
        assert_eq!(declared.is_some(), F::PICKABLE && !self.tracked.is_empty());
        let Some(value) = declared else {
            assert_eq!(self.with(|estimator, scene| estimator.pick(scene)), None);
            return self.check_tracks();
        };
        assert!(value.is_finite() && value >= 0.0, "{value}");
        for slot in self.tracked.clone() {
            assert!(self.offer(slot, value.next_down()), "{slot:?} is worth less than {value}");
            assert!(!self.offer(slot, f64::INFINITY), "{slot:?} is worth too much");
        }
        self.check_tracks();
        assert_eq!(declared, self.declare(), "offering what is tracked changes nothing");
    }
}

/// The suite: `fixture` goes through `steps`, and is then emptied.
fn check<F: Fixture>(world: World, fixture: F, steps: &[Step]) {
    let mut suite = Suite { world, fixture, tracked: BTreeSet::new() };
    suite.check();
    for step in steps {
        suite.step(step);
    }
    for slot in suite.world.slots.clone() {
        suite.leave(slot);
        suite.check();
    }
    assert_eq!(suite.declare(), None);
}

/// The suite for an estimator of the list.
pub(super) fn check_listed<E: Tested>(
    world: World,
    make: impl FnOnce(&Setting) -> E,
    steps: &[Step],
) {
    let mut estimator = make(&world.setting());
    estimator.begin();
    check(world, estimator, steps);
}

const READER: ReaderId = ReaderId(1);
const STREAM: StreamIndex = StreamIndex(0);
/// Blocks ahead of its front within which a stream takes a read for its own.
const WINDOW: u64 = 12;

struct Hinted {
    stream: Stream,
    now: Nanos,
}

/// File, first block, blocks, whether in any order, and how many times over.
type Disclosed = (u64, u64, u64, bool, u32);

fn disclosures() -> impl Strategy<Value = Vec<Disclosed>> {
    let hint = (0..FILES, 0..FILE_BLOCKS, 1..FILE_BLOCKS, any::<bool>(), 1u32..4);
    prop::collection::vec(hint, 1..8)
}

impl Hinted {
    fn new(world: &World, disclosed: &[Disclosed]) -> Self {
        let limits = Limits { block_bytes: 1, window: WINDOW, placed_max: 1 << 20 };
        let mut stream = Stream::new(StreamId(0), HinterId(0), Some(READER), limits);
        for &(file, offset_bytes, length_bytes, any, repeats) in disclosed {
            let (file, size_bytes) = (FileId(file), FILE_BLOCKS);
            let device = world.device_of(file);
            let segments = [Segment { offset_bytes, length_bytes }];
            let target = Target::File { file, size_bytes };
            let order = if any { Order::Any } else { Order::Given };
            let hint = Hint::segments(target, DeviceId(device.0.into()), &segments);
            let hint = Hint { order, repeats, ..hint };
            stream.wait(Waiting::new(hint, device));
        }
        stream.advance(4096, |_| (), |_| ());
        Hinted { stream, now: Nanos::ZERO }
    }

    /// The access at `position` is made, or given up.
    fn pass(&mut self, world: &mut World, slot: SlotId, position: u64, is_read: bool) -> Change {
        let mut went = Vec::new();
        let known = &world.blocks[slot];
        let block = known.block();
        if known.claim().is_some_and(|claim| claim.position == position) {
            self.stream.untrack(&mut world.blocks, slot, position);
            went.push(slot);
        }
        let first = went.len();
        if is_read {
            self.stream.read((block, position), WINDOW / 2, &world.blocks, |_| (), &mut went);
        } else {
            self.stream.settle(position, &world.blocks, |_| (), &mut went);
        }
        for &slot in &went[first..] {
            world.blocks[slot].set_claim(None);
        }
        Change { went, ..Change::default() }
    }
}

impl Fixture for Hinted {
    fn with<R>(
        &mut self,
        world: &mut World,
        act: impl FnOnce(&mut dyn Estimator, &mut Scene<'_>) -> R,
    ) -> R {
        let mut estimator = HintEstimator { index: STREAM, stream: &mut self.stream };
        act(&mut estimator, &mut world.scene())
    }

    fn event(&mut self, world: &mut World, slot: SlotId, kind: u8) -> Change {
        let block = world.blocks[slot].block();
        match kind % 8 {
            0 => {
                self.now += Nanos(1000);
                for _ in 0..16 {
                    self.stream.note_pace(self.now, READER, kind >= 128, 1.0);
                    self.stream.pace.waited(READER, Nanos(1000));
                }
                Change::default()
            }
            1 => match self.stream.next_use(block) {
                Some(position) => self.pass(world, slot, position, false),
                None => Change::default(),
            },
            _ => match self.stream.fit(READER, block) {
                Some(Fit::At(position)) => self.pass(world, slot, position, true),
                Some(Fit::Again) | None => Change::default(),
            },
        }
    }
}

fn rules(replacements: &[Replacement]) -> impl Strategy<Value = Rules> + use<> {
    let all = Rules::ALL.into_iter();
    let fitting: Vec<Rules> =
        all.filter(|rules| replacements.contains(&rules.replacement)).collect();
    prop::sample::select(fitting)
}

pub(super) fn any_rules() -> impl Strategy<Value = Rules> {
    rules(&[Replacement::Lru, Replacement::MinMax, Replacement::FurthestNextUse])
}

/// Rules under which hints count. Under LRU no stream tracks a block.
fn rules_of_hints() -> impl Strategy<Value = Rules> {
    rules(&[Replacement::MinMax, Replacement::FurthestNextUse])
}

pub(super) fn devices() -> impl Strategy<Value = u16> {
    prop_oneof![Just(1), Just(SEVERAL)]
}

/// The reader is in the middle of a hint of order `Any`, and an ordered hint follows.
#[test]
fn a_set_and_what_is_read_after_it() {
    for rules in [Rules::TIP2, Rules::FORETELL] {
        let world = World::new(rules, 1);
        let fixture = Hinted::new(&world, &[(0, 0, 6, true, 1), (1, 0, 6, false, 1)]);
        let offers = (1..SLOTS).map(|slot| Step::Offer(slot, -1.0));
        let steps: Vec<Step> = [Step::Event(0, 2)].into_iter().chain(offers).collect();
        check(world, fixture, &[&steps[..], &[Step::Pick, Step::Event(4, 2)]].concat());
    }
}

proptest! {
    #[test]
    fn hints_over_one_device(
        rules in rules_of_hints(), disclosed in disclosures(), steps in steps(),
    ) {
        let world = World::new(rules, 1);
        let fixture = Hinted::new(&world, &disclosed);
        check(world, fixture, &steps);
    }

    #[test]
    fn hints_over_several_devices(
        rules in rules_of_hints(), disclosed in disclosures(), steps in steps(),
    ) {
        let world = World::new(rules, SEVERAL);
        let fixture = Hinted::new(&world, &disclosed);
        check(world, fixture, &steps);
    }
}

/// One test for each estimator of the list, by the name of its field.
macro_rules! test_all {
    ($($(#[$cfg:meta])* $name:ident: $kind:ty = $new:expr;)*) => {
        proptest! {
            $(#[test]
            fn $name(rules in any_rules(), devices in devices(), steps in steps()) {
                check_listed::<$kind>(World::new(rules, devices), $new, &steps);
            })*
        }
    };
}

listed_estimators!(test_all);
