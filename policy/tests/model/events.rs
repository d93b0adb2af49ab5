//! Random events for a policy.

use foretell_policy::{Config, Cost, CostModel, CostSource, Extent, Memory, Order, Rules, Segment};
use proptest::prelude::*;

/// Bytes of a block.
pub(crate) const BLOCK_BYTES: u64 = 10;

/// Devices with files; hints name one more by mistake.
pub(crate) const DEVICES: u64 = 3;

/// Sizes of the files by number, from nothing to some terabytes.
pub(crate) const SIZES: [u64; 6] = [0, 7, 95, 400, 1503, 10 << 40];

/// The device that a file lies on.
pub(crate) fn device_of(file: u64) -> u64 {
    file % DEVICES
}

/// A disclosure of a program.
#[derive(Clone, Debug)]
pub(crate) struct Given {
    pub(crate) file: u64,
    pub(crate) by_name: bool,
    /// Whether the hint names another device than the file's.
    pub(crate) elsewhere: bool,
    pub(crate) shape: Shape,
    pub(crate) order: Order,
    pub(crate) repeats: u32,
}

/// A part of a file, in bytes.
#[derive(Clone, Debug)]
pub(crate) enum Shape {
    Whole,
    Ranges(Vec<(u64, u64)>),
    Stride { first: (u64, u64), stride_bytes: u64, count: u64 },
}

impl Given {
    /// The extent; `is_exact` keeps it within the file.
    pub(crate) fn extent(&self, is_exact: bool) -> Extent {
        let size_bytes = SIZES[self.file as usize];
        let segment = |&(offset_bytes, length_bytes): &(u64, u64)| {
            let room = size_bytes.saturating_sub(offset_bytes);
            let length_bytes = if is_exact { length_bytes.min(room) } else { length_bytes };
            Segment { offset_bytes, length_bytes }
        };
        match &self.shape {
            Shape::Whole => Extent::WholeFile,
            Shape::Ranges(ranges) => Extent::Segments(ranges.iter().map(segment).collect()),
            Shape::Stride { .. } if is_exact => Extent::WholeFile,
            Shape::Stride { first, stride_bytes, count } => {
                let (first, stride_bytes, count) = (segment(first), *stride_bytes, *count);
                Extent::Strided { first, stride_bytes, count }
            }
        }
    }
}

/// The ranges of an extent, as far as they matter.
pub(crate) fn ranges(extent: &Extent, size_bytes: u64) -> Vec<Segment> {
    match extent {
        Extent::WholeFile => vec![Segment { offset_bytes: 0, length_bytes: size_bytes }],
        Extent::Segments(segments) => segments.to_vec(),
        &Extent::Strided { first, stride_bytes, count } => {
            // A long stride through a huge file counts as covering it.
            if count > 2000 {
                let length_bytes = u64::MAX;
                return vec![Segment { length_bytes, ..first }];
            }
            let at = |index: u64| index.saturating_mul(stride_bytes);
            let offset = |index| first.offset_bytes.saturating_add(at(index));
            (0..count).map(|index| Segment { offset_bytes: offset(index), ..first }).collect()
        }
    }
}

/// The block of a read.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Place {
    At {
        file: u64,
        index: u64,
    },
    /// The next block of a reader's repeated walk through a file.
    Scan {
        file: u64,
    },
    /// The next block that a stream has disclosed, with some skipped or repeated.
    Follow {
        stream: usize,
        skip: isize,
    },
}

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) enum Event {
    Open {
        owner: Option<u64>,
    },
    Hint {
        stream: usize,
        hint: Given,
    },
    Next {
        device: u64,
    },
    Fill,
    Complete {
        which: usize,
        how: u8,
    },
    Read {
        reader: u64,
        place: Place,
        stalled: bool,
        at_once: bool,
    },
    Demand,
    Cancel {
        stream: usize,
    },
    Close {
        stream: usize,
    },
    CloseAll,
    Observe {
        device: u64,
        cost: Cost,
        sample: u64,
    },
    /// A block is now on another device.
    Move {
        file: u64,
        index: u64,
        device: u64,
    },
    Wait {
        ns: u64,
    },
}

fn shape() -> impl Strategy<Value = Shape> {
    let offset = prop_oneof![6 => 0u64..420, 2 => 0u64..1600, 1 => any::<u64>()];
    let length = prop_oneof![6 => 0u64..60, 2 => 0u64..500, 1 => any::<u64>()];
    let range = (offset, length);
    let stride = prop_oneof![1 => Just(0u64), 5 => 1u64..90, 1 => any::<u64>()];
    let count = prop_oneof![6 => 0u64..30, 1 => Just(5000), 1 => any::<u64>()];
    prop_oneof![
        3 => Just(Shape::Whole),
        4 => prop::collection::vec(range.clone(), 0..12).prop_map(Shape::Ranges),
        2 => (range, stride, count).prop_map(|(first, stride_bytes, count)| Shape::Stride {
            first, stride_bytes, count
        }),
    ]
}

fn hint() -> impl Strategy<Value = Given> {
    let file = prop_oneof![1 => Just(0u64), 1 => Just(1), 4 => 2u64..5, 1 => Just(5)];
    let order = prop_oneof![3 => Just(Order::Given), 1 => Just(Order::Any)];
    let repeats = prop_oneof![8 => 0u32..3, 1 => 3u32..9, 1 => Just(u32::MAX)];
    let elsewhere = prop::bool::weighted(0.05);
    (file, any::<bool>(), elsewhere, shape(), order, repeats).prop_map(
        |(file, by_name, elsewhere, shape, order, repeats)| Given {
            file,
            by_name,
            elsewhere,
            shape,
            order,
            repeats,
        },
    )
}

fn place() -> impl Strategy<Value = Place> {
    let skip = prop_oneof![12 => Just(0isize), 2 => -4isize..6, 1 => 6isize..60];
    let index = prop_oneof![6 => 0u64..45, 2 => 0u64..160, 1 => 0u64..(1 << 40)];
    prop_oneof![
        5 => (0usize..4, skip).prop_map(|(stream, skip)| Place::Follow { stream, skip }),
        2 => (0u64..6, index).prop_map(|(file, index)| Place::At { file, index }),
        1 => (2u64..5).prop_map(|file| Place::Scan { file }),
    ]
}

fn event() -> impl Strategy<Value = Event> {
    let cost = prop_oneof![Just(Cost::Hit), Just(Cost::Driver), Just(Cost::Disk)];
    let sample = prop_oneof![1 => Just(0u64), 8 => 1u64..20_000_000, 1 => Just(u64::MAX)];
    let owner = prop::option::of(0u64..3);
    // Some waits are long enough for lookups to become overdue.
    let short = prop_oneof![6 => 0u64..10_000, 2 => 0u64..10_000_000, 1 => 0u64..200_000_000];
    let wait = prop_oneof![2 => short, 1 => 200_000_000u64..3_000_000_000];
    prop_oneof![
        3 => owner.prop_map(|owner| Event::Open { owner }),
        10 => (0usize..4, hint()).prop_map(|(stream, hint)| Event::Hint { stream, hint }),
        10 => (0..=DEVICES).prop_map(|device| Event::Next { device }),
        12 => Just(Event::Fill),
        24 => (0usize..64, 0u8..16).prop_map(|(which, how)| Event::Complete { which, how }),
        40 => (0u64..3, place(), any::<bool>(), prop::bool::weighted(0.9))
            .prop_map(|(reader, place, stalled, at_once)| Event::Read {
                reader, place, stalled, at_once
            }),
        2 => Just(Event::Demand),
        1 => (0usize..4).prop_map(|stream| Event::Cancel { stream }),
        1 => (0usize..4).prop_map(|stream| Event::Close { stream }),
        1 => prop::bool::weighted(0.1).prop_map(|all| match all {
            true => Event::CloseAll,
            false => Event::Fill,
        }),
        2 => (0..=DEVICES, cost, sample)
            .prop_map(|(device, cost, sample)| Event::Observe { device, cost, sample }),
        4 => wait.prop_map(|ns| Event::Wait { ns }),
        4 => (0u64..6, 0u64..45, 0..=DEVICES)
            .prop_map(|(file, index, device)| Event::Move { file, index, device }),
    ]
}

/// A sequence of up to `most` events. Some streams are open at the beginning.
pub(crate) fn events(most: usize) -> impl Strategy<Value = Vec<Event>> {
    run(event(), most)
}

/// Events with slow lookups, for programs that disclose names and mostly read as disclosed.
pub(crate) fn events_of_slow_lookups(most: usize) -> impl Strategy<Value = Vec<Event>> {
    let named = hint().prop_map(|hint| Given { by_name: true, ..hint });
    let skip = prop_oneof![20 => Just(0isize), 1 => -4isize..6, 1 => 6isize..60];
    let followed = (0usize..4, skip).prop_map(|(stream, skip)| Place::Follow { stream, skip });
    let read = (0u64..3, followed, any::<bool>(), prop::bool::weighted(0.9));
    let event = prop_oneof![
        12 => (0usize..4, named).prop_map(|(stream, hint)| Event::Hint { stream, hint }),
        10 => Just(Event::Fill),
        20 => (0usize..64, 0u8..24).prop_map(|(which, how)| Event::Complete { which, how }),
        30 => read.prop_map(|(reader, place, stalled, at_once)| Event::Read {
            reader, place, stalled, at_once
        }),
        5 => (200_000_000u64..3_000_000_000).prop_map(|ns| Event::Wait { ns }),
        3 => event(),
    ];
    run(event, most)
}

fn run(event: impl Strategy<Value = Event>, most: usize) -> impl Strategy<Value = Vec<Event>> {
    let opened = prop::collection::vec(prop::option::weighted(0.3, 0u64..3), 1..4);
    (opened, prop::collection::vec(event, 1..most)).prop_map(|(opened, events)| {
        let open = opened.into_iter().map(|owner| Event::Open { owner });
        open.chain(events).collect()
    })
}

/// Any policy with any kind of memory.
pub(crate) fn configs() -> impl Strategy<Value = Config> {
    let rules = prop::sample::select(Rules::ALL.to_vec());
    let memory = prop_oneof![
        3 => Just(Memory::Owned),
        1 => Just(Memory::Kernel { keeps: true }),
        1 => Just(Memory::Kernel { keeps: false }),
    ];
    let capacity = prop_oneof![1 => 1u64..4, 4 => 4u64..40, 1 => 40u64..200];
    let model = prop_oneof![
        Just(CostModel { hit_ns: 1e3, driver_ns: 5e3, disk_ns: 1e4 }),
        Just(CostModel { hit_ns: 0.0, driver_ns: 0.0, disk_ns: 0.0 }),
        Just(CostModel::default()),
    ];
    let costs = (model, any::<bool>()).prop_map(|(model, fixed)| match fixed {
        true => CostSource::Fixed(model),
        false => CostSource::Measured(model),
    });
    let io = (1u64..8, 1usize..12, 1usize..10, any::<bool>());
    (rules, memory, capacity, costs, io).prop_map(
        |(
            rules,
            memory,
            capacity_blocks,
            costs,
            (cluster, outstanding, resolved, tries_depths),
        )| Config {
            block_bytes: BLOCK_BYTES,
            capacity_blocks,
            cluster_blocks_max: cluster,
            outstanding_max: outstanding,
            resolved_max: resolved,
            rules,
            memory,
            tries_depths,
            costs,
            decisions_max: 16,
        },
    )
}
