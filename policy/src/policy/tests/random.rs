//! Random drivers: the invariants hold for any sequence of events.

use super::*;

/// One step of a random driver.
#[derive(Clone, Debug)]
enum Step {
    Hint { stream: usize, name: u64, segments: Vec<(u64, u64)>, repeats: u32 },
    Next,
    Complete { which: usize, how: u8 },
    Read { file: u64, index: u64, stalled: bool },
    Cancel { stream: usize },
    Wait { ms: u64 },
}

fn step() -> impl Strategy<Value = Step> {
    let segments = prop::collection::vec((0u64..200, 0u64..80), 0..4);
    prop_oneof![
        2 => (0usize..3, 0u64..6, segments, 0u32..3)
            .prop_map(|(stream, name, segments, repeats)| Step::Hint {
                stream, name, segments, repeats
            }),
        5 => Just(Step::Next),
        4 => (0usize..64, 0u8..8).prop_map(|(which, how)| Step::Complete { which, how }),
        4 => (0u64..6, 0u64..20, any::<bool>())
            .prop_map(|(file, index, stalled)| Step::Read { file, index, stalled }),
        1 => (0usize..3).prop_map(|stream| Step::Cancel { stream }),
        1 => (1u64..400).prop_map(|ms| Step::Wait { ms }),
    ]
}

proptest! {
    /// For any sequence: the capacity is not exceeded, no block is fetched while in flight, and none beyond the end of its
    /// file. When all is cancelled and completed, the counts add up and nothing is left.
    ///
    /// This also holds with one more estimator in the list (`with_frequency`).
    #[test]
    fn random_drivers_keep_the_invariants(
        steps in prop::collection::vec(step(), 1..300), with_frequency: bool,
    ) {
        let mut policy = Policy::new(Config { outstanding_max: 5, ..config(12) });
        policy.arbiter.set_frequency(with_frequency);
        let streams: Vec<StreamId> = (0..3).map(|_| policy.open_stream(NOW, HINTER, None)).collect();
        let mut under_way: VecDeque<Fetch> = VecDeque::new();
        let (mut hinted, mut asked_for, mut now) = (0, 0, NOW);
        for step in steps {
            match step {
                Step::Hint { stream, name, segments, repeats } => {
                    hinted += 1;
                    let extent = if segments.is_empty() {
                        Extent::WholeFile
                    } else {
                        let segment = |&(offset_bytes, length_bytes): &(u64, u64)| {
                            Segment { offset_bytes, length_bytes }
                        };
                        Extent::Segments(segments.iter().map(segment).collect())
                    };
                    let hint = Hint { extent, repeats, ..Hint::whole_file(named(name), DISK) };
                    policy.hint(now, streams[stream], hint);
                }
                Step::Next => {
                    if let Some(fetch) = policy.next_fetch(now, DISK) {
                        asked_for += u64::from(matches!(fetch.work, Work::Resolve { .. }));
                        if let Work::Read { file, first_block, blocks } = fetch.work {
                            prop_assert!((1..=4).contains(&blocks));
                            prop_assert!((first_block + blocks - 1) * 10 < size_of(file.0));
                        }
                        under_way.push_back(fetch);
                        prop_assert!(under_way.len() <= 5);
                    }
                }
                Step::Complete { which, how } => {
                    if let Some(fetch) = under_way.remove(which % under_way.len().max(1)) {
                        policy.completed(now, fetch.id, outcome_of(fetch.work, how));
                    }
                }
                Step::Read { file, index, stalled } => {
                    policy.read(now, READER, block(file, index), stalled);
                }
                Step::Cancel { stream } => policy.cancel(now, streams[stream]),
                Step::Wait { ms } => now += Nanos(ms * 1_000_000),
            }
            prop_assert!(policy.pending_blocks() <= 12);
        }
        for stream in streams {
            policy.close(now, stream);
        }
        for fetch in under_way {
            policy.completed(now, fetch.id, outcome_of(fetch.work, 7));
        }
        prop_assert!(policy.is_idle());
        prop_assert_eq!(policy.pending_blocks(), 0);
        prop_assert!(policy.devices.iter().all(|device| device.names_under_way() == 0));
        policy.arbiter.check_all();
        prop_assert_eq!(policy.arbiter.streams().load(), 0);
        prop_assert!((0..6).all(|file| !policy.wants(FileId(file))));
        prop_assert_eq!(asked_for + policy.take_dropped_names().len() as u64, hinted);
        let counts = policy.counts();
        let ended = counts.useful + counts.late + counts.wasted + counts.unfinished;
        prop_assert!(ended <= counts.prefetched);
        prop_assert!(counts.prefetched <= ended + counts.refused);
    }
}

/// One step of a test with many lists of names. Each name is another file, of one block.
#[derive(Clone, Debug)]
enum OfList {
    Open {
        hinter: u64,
    },
    Hint {
        stream: usize,
        names: u64,
        device: u64,
    },
    /// Begins this many fetches at a device.
    Next {
        device: u64,
        fetches: u64,
    },
    Complete {
        which: usize,
        void: bool,
    },
    /// Reads the file of its next name, or of a later one.
    Read {
        stream: usize,
        skips: usize,
    },
    Cancel {
        stream: usize,
    },
    Close {
        stream: usize,
    },
}

fn of_list() -> impl Strategy<Value = OfList> {
    let stream = || 0usize..32;
    prop_oneof![
        2 => (1u64..5).prop_map(|hinter| OfList::Open { hinter }),
        6 => (stream(), 1u64..8, 0u64..2)
            .prop_map(|(stream, names, device)| OfList::Hint { stream, names, device }),
        6 => (0u64..2, 1u64..10).prop_map(|(device, fetches)| OfList::Next { device, fetches }),
        6 => (any::<usize>(), prop::bool::weighted(0.1))
            .prop_map(|(which, void)| OfList::Complete { which, void }),
        8 => (stream(), 0usize..3).prop_map(|(stream, skips)| OfList::Read { stream, skips }),
        1 => stream().prop_map(|stream| OfList::Cancel { stream }),
        1 => stream().prop_map(|stream| OfList::Close { stream }),
    ]
}

proptest! {
    /// The next name to look up is the one found by asking all streams; an assertion in the policy compares the two. When the
    /// lists are left alone, every name is looked up or dropped.
    #[test]
    fn of_many_lists_the_next_name_is_looked_up(
        resolved_max in 1usize..100,
        steps in prop::collection::vec(of_list(), 1..300),
    ) {
        let mut policy = Policy::new(Config { resolved_max, tries_depths: false, ..config(1000) });
        let (mut streams, mut under_way) = (Vec::new(), Vec::new());
        let (mut hinted, mut asked_for) = (0, 0);
        for step in steps.iter().cloned().chain((0..32).map(|stream| OfList::Close { stream })) {
            let open = streams.len().max(1);
            match step {
                OfList::Open { hinter } if streams.len() < 32 => {
                    let stream = policy.open_stream(NOW, HinterId(hinter), None);
                    streams.push((stream, VecDeque::new()));
                }
                OfList::Hint { stream, names, device } => {
                    let Some((id, list)) = streams.get_mut(stream % open) else { continue };
                    for name in hinted..hinted + names {
                        let hint = Hint::whole_file(named(name), DeviceId(device));
                        policy.hint(NOW, *id, hint);
                        list.push_back(name);
                    }
                    hinted += names;
                }
                OfList::Next { device, fetches } => {
                    for _ in 0..fetches {
                        let Some(fetch) = policy.next_fetch(NOW, DeviceId(device)) else { break };
                        asked_for += u64::from(matches!(fetch.work, Work::Resolve { .. }));
                        under_way.push(fetch);
                    }
                }
                OfList::Complete { which, void } if !under_way.is_empty() => {
                    let fetch = under_way.swap_remove(which % under_way.len());
                    let outcome = match fetch.work {
                        Work::Resolve { .. } if void => Outcome::Void,
                        Work::Resolve { name } => {
                            Outcome::Resolved { file: FileId(name.0), size_bytes: 10 }
                        }
                        Work::Read { .. } => Outcome::Fetched,
                    };
                    policy.completed(NOW, fetch.id, outcome);
                }
                OfList::Read { stream, skips } => {
                    let Some((_, list)) = streams.get_mut(stream % open) else { continue };
                    if let Some(name) = list.drain(..list.len().min(skips + 1)).next_back() {
                        policy.read(NOW, READER, block(name, 0), false);
                    }
                }
                OfList::Cancel { stream } => {
                    let Some((id, list)) = streams.get_mut(stream % open) else { continue };
                    policy.cancel(NOW, *id);
                    list.clear();
                }
                OfList::Close { stream } if !streams.is_empty() => {
                    policy.close(NOW, streams.swap_remove(stream % open).0);
                }
                _ => {}
            }
        }
        prop_assert!(policy.devices.iter().all(|device| device.unresolved.len() == 0));
        prop_assert_eq!(asked_for + policy.take_dropped_names().len() as u64, hinted);
        policy.arbiter.check_all();
    }
}

proptest! {
    /// In tests, positions restart once 64 are used and all are past. A stream behaves as if they did not, whatever is in
    /// flight, being read, or left out.
    #[test]
    fn streams_whose_positions_begin_anew_go_on(
        is_owned in any::<bool>(),
        hints in prop::collection::vec((0u64..4, 1u64..60, 0u64..4, 0usize..9, 0u8..6), 40..160),
    ) {
        let memory = if is_owned { Memory::Owned } else { Memory::Kernel { keeps: true } };
        let mut policy = Policy::new(Config { memory, ..config(24) });
        let stream = policy.open_stream(NOW, HINTER, Some(READER));
        let index = policy.stream_ids[&stream];
        let (mut under_way, mut now, mut began_anew) = (VecDeque::new(), NOW, 0);
        for (file, blocks, left_out, most_under_way, how) in hints {
            let target = Target::File { file: FileId(file), size_bytes: 10 * blocks };
            let end = policy.arbiter.stream(index).placed_end();
            policy.hint(now, stream, Hint::whole_file(target, DISK));
            began_anew += usize::from(policy.arbiter.stream(index).placed_end() < end);
            for at in 0..=blocks.saturating_sub(left_out) {
                while let Some(fetch) = policy.next_fetch(now, DISK) {
                    under_way.push_back(fetch);
                }
                while under_way.len() > most_under_way {
                    let fetch: Fetch = under_way.pop_front().expect("there are some");
                    policy.completed(now, fetch.id, outcome_of(fetch.work, how));
                }
                if at == blocks {
                    break;
                }
                let access = policy.read(now, READER, block(file, at), false);
                if access == Access::Miss
                    && is_owned
                    && let Some(fetch) = policy.demand(now, DISK, block(file, at))
                {
                    policy.completed(now, fetch.id, Outcome::Fetched);
                }
                while policy.next_eviction().is_some() {}
                now += Nanos(1000);
            }
            policy.arbiter.check_all();
        }
        for fetch in under_way {
            policy.completed(now, fetch.id, Outcome::Fetched);
        }
        policy.arbiter.check_all();
        prop_assert!(began_anew > 0, "positions went on");
        // Blocks disclosed afterwards are fetched and found.
        let target = Target::File { file: FileId(9), size_bytes: 80 };
        policy.hint(now, stream, Hint::whole_file(target, DISK));
        let mut hits = 0;
        for at in 0..8 {
            now += Nanos(1_000_000_000);
            while let Some(fetch) = policy.next_fetch(now, DISK) {
                policy.completed(now, fetch.id, Outcome::Fetched);
            }
            let access = policy.read(now, READER, block(9, at), false);
            hits += usize::from(access == Access::Hit);
        }
        prop_assert!(hits >= 7, "{} of 8", hits);
        policy.close(now, stream);
        policy.arbiter.check_all();
        prop_assert!(policy.is_idle() && policy.pending_blocks() == 0 && policy.arbiter.streams().load() == 0);
    }
}
