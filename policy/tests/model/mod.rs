//! A driver that plays random events to a [`Policy`] and keeps its own record of the answers that are allowed: which blocks are
//! in memory or in flight, which names were asked for, and what live hints cover.
//!
//! The driver knows only the public interface of the policy. If the policy owns the memory, the record is exact and every
//! answer to a read is checked. If the memory is the kernel's, blocks may leave unannounced.

pub(crate) mod events;

use std::collections::{BTreeMap, HashMap, HashSet};

use foretell_policy::{
    Access, Block, Config, DecisionKind, DeviceId, Fetch, FetchId, FileId, Hint, HinterId, Memory,
    NameId, Nanos, Outcome, Policy, ReaderId, Rules, Segment, StreamId, Target, Work,
};

use events::{BLOCK_BYTES, DEVICES, Event, Place, SIZES, device_of};

/// Successful calls of `next_fetch` in a row, beyond those that capacity and lookups permit.
const FETCHES_MAX: u64 = 64;
/// A fetch with this outcome number, or a higher one, brings all its blocks.
const FETCHED: u8 = 3;
/// Rounds of fetching everything wanted, without a read, after which nothing may be wanted.
const ROUNDS_MAX: usize = 1000;
/// Duration of a round: the service time of a disk.
const ROUND: Nanos = Nanos(5_000_000);

/// Blocks of a hint that its reader will follow.
const SCRIPT_BLOCKS: usize = 200;

/// State of a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Name {
    Waits,
    Asked,
    Dropped,
}

/// The driver's record of an open stream.
#[derive(Debug)]
struct Known {
    id: StreamId,
    owner: Option<ReaderId>,
    /// Files and block ranges of its live hints.
    covers: Vec<(FileId, u64, u64)>,
    /// The blocks that a program that keeps to its hints will read.
    script: Vec<Block>,
    next: usize,
}

/// See the [module](self).
pub(crate) struct Driver {
    pub(crate) policy: Policy,
    now: Nanos,
    /// Whether no hint reaches beyond the end of its file. Then all counts add up exactly.
    pub(crate) is_exact: bool,
    streams: Vec<Known>,
    flights: BTreeMap<FetchId, (Fetch, bool)>,
    in_flight: HashSet<Block>,
    /// Blocks that were fetched and not reported as evicted.
    arrived: HashSet<Block>,
    outstanding: HashMap<DeviceId, usize>,
    names: BTreeMap<NameId, (Name, u64)>,
    /// The block of a miss that no demand fetch has followed yet.
    missed: Option<Block>,
    /// Files that the driver has open: from their lookup until the policy releases them.
    open: HashSet<FileId>,
    /// Files that a hint placed on the wrong device.
    elsewhere: HashSet<FileId>,
    scans: HashMap<ReaderId, u64>,
    /// Number of wasted blocks when the decisions were last checked.
    wasted: u64,
    /// All answers of the policy.
    pub(crate) answers: Vec<String>,
    pub(crate) events: u64,
}

impl Driver {
    pub(crate) fn new(config: Config, is_exact: bool) -> Self {
        Driver {
            policy: Policy::new(config),
            now: Nanos::ZERO,
            is_exact,
            streams: Vec::new(),
            flights: BTreeMap::new(),
            in_flight: HashSet::new(),
            arrived: HashSet::new(),
            outstanding: HashMap::new(),
            names: BTreeMap::new(),
            missed: None,
            open: HashSet::new(),
            elsewhere: HashSet::new(),
            scans: HashMap::new(),
            wasted: 0,
            answers: Vec::new(),
            events: 0,
        }
    }

    fn config(&self) -> Config {
        *self.policy.config()
    }

    fn is_owned(&self) -> bool {
        self.config().memory == Memory::Owned
    }

    fn say(&mut self, answer: impl std::fmt::Debug) {
        self.answers.push(format!("{answer:?}"));
    }

    /// Plays one event, and checks all that can be checked after it.
    pub(crate) fn play(&mut self, event: &Event) {
        self.events += 1;
        match *event {
            Event::Open { owner } => self.open(owner),
            Event::Hint { stream, ref hint } => self.hint(stream, hint),
            Event::Next { device } => drop(self.next_fetch(DeviceId(device))),
            Event::Fill => self.fill(),
            Event::Complete { which, how } => self.complete(which, how),
            Event::Read { reader, place, stalled, at_once } => {
                self.read(ReaderId(reader), place, stalled, at_once);
            }
            Event::Demand => self.demand(),
            Event::Cancel { stream } => self.cancel(stream),
            Event::Close { stream } => self.close(stream),
            Event::CloseAll => {
                self.policy.close_all(self.now);
                self.streams.clear();
            }
            Event::Observe { device, cost, sample } => {
                self.policy.observe(DeviceId(device), cost, Nanos(sample));
            }
            Event::Move { file, index, device } => {
                let block = Block { file: FileId(file), index };
                self.policy.moved(block, DeviceId(device));
            }
            Event::Wait { ns } => self.now += Nanos(ns),
        }
        self.check();
    }

    fn open(&mut self, owner: Option<u64>) {
        let (hinter, owner) = (HinterId(owner.unwrap_or(9)), owner.map(ReaderId));
        let id = self.policy.open_stream(self.now, hinter, owner);
        assert!(self.streams.iter().all(|known| known.id != id), "{id:?} twice");
        let (covers, script) = (Vec::new(), Vec::new());
        self.streams.push(Known { id, owner, covers, script, next: 0 });
    }

    fn known(&mut self, which: usize) -> Option<&mut Known> {
        let streams = self.streams.len();
        (streams > 0).then(|| &mut self.streams[which % streams])
    }

    fn hint(&mut self, which: usize, given: &events::Given) {
        let name = NameId(self.names.len() as u64);
        let is_exact = self.is_exact;
        let Some(known) = self.known(which) else { return };
        let size_bytes = SIZES[given.file as usize];
        let file = FileId(given.file);
        let extent = given.extent(is_exact);
        let target = match given.by_name {
            true => Target::Name(name),
            false => Target::File { file, size_bytes },
        };
        for segment in events::ranges(&extent, size_bytes) {
            let (first, end) = blocks_of(segment, size_bytes);
            if first < end {
                known.covers.push((file, first, end));
                let room = SCRIPT_BLOCKS.saturating_sub(known.script.len());
                known.script.extend((first..end).take(room).map(|index| Block { file, index }));
            }
        }
        let device = DeviceId(if given.elsewhere { DEVICES } else { device_of(given.file) });
        let hint = Hint { target, device, extent, order: given.order, repeats: given.repeats };
        let id = known.id;
        if given.elsewhere {
            self.elsewhere.insert(FileId(given.file));
        }
        if given.by_name {
            self.names.insert(name, (Name::Waits, given.file));
        } else {
            self.open.insert(file);
        }
        let before = self.policy.counts().hints;
        self.policy.hint(self.now, id, hint);
        assert_eq!(self.policy.counts().hints, before + 1);
    }

    fn next_fetch(&mut self, device: DeviceId) -> Option<Fetch> {
        let fetch = self.policy.next_fetch(self.now, device);
        self.say(fetch);
        self.drain();
        let fetch = fetch?;
        assert_eq!(fetch.device, device);
        match fetch.work {
            Work::Resolve { name } => {
                let name = self.names.get_mut(&name).expect("a name that was hinted");
                assert_eq!(name.0, Name::Waits, "a name is asked for once");
                name.0 = Name::Asked;
                let is_lookup = |(fetch, _): &&(Fetch, bool)| {
                    fetch.device == device && matches!(fetch.work, Work::Resolve { .. })
                };
                let asked = self.flights.values().filter(is_lookup).count() + 1;
                let is_here = |&file: &u64| {
                    DeviceId(device_of(file)) == device && !self.elsewhere.contains(&FileId(file))
                };
                let files = (0..SIZES.len() as u64).filter(is_here);
                let wanted = files.filter(|&file| self.policy.wants(FileId(file))).count();
                assert!(asked + wanted <= self.config().resolved_max, "{asked} and {wanted}");
            }
            Work::Read { file, first_block, blocks } => {
                let config = self.config();
                assert_ne!(config.rules, Rules::LRU, "it never prefetches");
                assert!((1..=config.cluster_blocks_max).contains(&blocks));
                assert!(self.open.contains(&file), "the driver has {file:?} closed");
                for index in first_block..first_block + blocks {
                    let covers = |&(of, first, end): &(FileId, u64, u64)| {
                        of == file && (first..end).contains(&index)
                    };
                    let hinted = self.streams.iter().any(|known| known.covers.iter().any(covers));
                    assert!(hinted, "nobody will read {index} of {file:?}");
                }
                self.begin(file, first_block, blocks);
            }
        }
        let outstanding = self.outstanding.entry(device).or_default();
        *outstanding += 1;
        assert!(*outstanding <= self.policy.config().outstanding_max);
        self.flights.insert(fetch.id, (fetch, false));
        Some(fetch)
    }

    /// Records that a fetch takes its buffers.
    fn begin(&mut self, file: FileId, first_block: u64, blocks: u64) {
        let size_blocks = SIZES[file.0 as usize].div_ceil(BLOCK_BYTES);
        assert!(first_block + blocks <= size_blocks, "beyond the end of {file:?}");
        for index in first_block..first_block + blocks {
            let block = Block { file, index };
            assert!(self.in_flight.insert(block), "{block:?} is on its way");
            if self.is_owned() {
                assert!(!self.arrived.contains(&block), "{block:?} is in memory");
            }
        }
    }

    /// Starts everything that the policy wants. It must come to an end without another event.
    fn fill(&mut self) {
        let config = self.config();
        let most = config.capacity_blocks + config.resolved_max as u64 + FETCHES_MAX;
        for device in 0..=DEVICES {
            let begun =
                (0..=most).take_while(|_| self.next_fetch(DeviceId(device)).is_some()).count();
            assert!(begun as u64 <= most, "no end of fetches");
        }
    }

    fn complete(&mut self, which: usize, how: u8) {
        if self.flights.is_empty() {
            return;
        }
        let &id = self.flights.keys().nth(which % self.flights.len()).expect("it is less");
        self.complete_fetch(id, how);
    }

    fn complete_fetch(&mut self, id: FetchId, how: u8) {
        let (fetch, demanded) = self.flights.remove(&id).expect("under way");
        if !demanded {
            *self.outstanding.get_mut(&fetch.device).expect("it had one") -= 1;
        }
        let outcome = self.outcome(fetch.work, how);
        if let Work::Read { file, first_block, blocks } = fetch.work {
            let came = match outcome {
                Outcome::Fetched => blocks,
                Outcome::Short { blocks } => blocks,
                _ => 0,
            };
            for offset in 0..blocks {
                let block = Block { file, index: first_block + offset };
                assert!(self.in_flight.remove(&block));
                if offset < came {
                    self.arrived.insert(block);
                } else {
                    self.arrived.remove(&block);
                }
            }
        }
        if let Outcome::Resolved { file, .. } = outcome {
            self.open.insert(file);
        }
        self.policy.completed(self.now, id, outcome);
    }

    fn outcome(&self, work: Work, how: u8) -> Outcome {
        match (work, how) {
            (_, 0) => Outcome::Refused,
            (Work::Resolve { .. }, 1) => Outcome::Void,
            (Work::Resolve { name }, _) => {
                let (_, file) = self.names[&name];
                Outcome::Resolved { file: FileId(file), size_bytes: SIZES[file as usize] }
            }
            (Work::Read { .. }, 1) => Outcome::AlreadyCached,
            (Work::Read { blocks, .. }, 2) => Outcome::Short { blocks: blocks / 2 },
            (Work::Read { .. }, FETCHED..) => Outcome::Fetched,
        }
    }

    /// The block that a place in an event stands for.
    fn block_at(&mut self, reader: ReaderId, place: Place) -> Option<Block> {
        match place {
            Place::At { file, index } => Some(Block { file: FileId(file), index }),
            Place::Scan { file } => {
                let next = self.scans.entry(reader).or_default();
                *next += 1;
                let blocks = SIZES[file as usize].div_ceil(BLOCK_BYTES).max(1);
                Some(Block { file: FileId(file), index: (*next - 1) % blocks })
            }
            Place::Follow { stream, skip } => {
                let known = self.known(stream)?;
                let at = known.next.saturating_add_signed(skip);
                let &block = known.script.get(at)?;
                known.next = at + 1;
                Some(block)
            }
        }
    }

    fn read(&mut self, reader: ReaderId, place: Place, stalled: bool, at_once: bool) {
        let Some(block) = self.block_at(reader, place) else { return };
        let reader = match place {
            // A stream is usually followed by its own reader.
            Place::Follow { stream, skip } if skip < 4 => {
                self.known(stream).and_then(|known| known.owner).unwrap_or(reader)
            }
            _ => reader,
        };
        if at_once {
            // This has no effect on the answers, whether the blocks are present or not.
            let next = Block { index: block.index.wrapping_add(1), ..block };
            self.policy.prepare([block, next]);
        }
        let access = self.policy.read(self.now, reader, block, stalled);
        if stalled {
            self.policy.waited(reader, Nanos(self.events * 1000));
        }
        self.say(access);
        let (in_flight, arrived) = (self.in_flight.contains(&block), self.arrived.contains(&block));
        let expected = match (in_flight, arrived) {
            (true, _) if stalled || self.is_owned() => Access::InFlight,
            (true, _) => Access::Hit,
            (false, true) => Access::Hit,
            (false, false) => Access::Miss,
        };
        // With the kernel's memory, a block that was read may belong to the kernel.
        let gone = !self.is_owned() && access == Access::Miss && !in_flight;
        assert!(access == expected || gone, "{block:?}: {access:?}, not {expected:?}");
        self.missed = (access == Access::Miss && self.is_owned()).then_some(block);
        if at_once {
            self.demand();
        }
    }

    fn demand(&mut self) {
        let Some(block) = self.missed.take() else { return };
        if block.index >= SIZES[block.file.0 as usize].div_ceil(BLOCK_BYTES) {
            return;
        }
        let device = DeviceId(device_of(block.file.0));
        let here = self.in_flight.contains(&block) || self.arrived.contains(&block);
        let all_in_flight = self.in_flight.len() as u64 == self.config().capacity_blocks;
        let fetch = self.policy.demand(self.now, device, block);
        self.say(fetch);
        self.drain();
        match fetch {
            None => assert!(here || all_in_flight, "a demand was refused a buffer"),
            Some(fetch) => {
                assert!(!here && !all_in_flight);
                let work = Work::Read { file: block.file, first_block: block.index, blocks: 1 };
                assert_eq!((fetch.work, fetch.device), (work, device));
                self.begin(block.file, block.index, 1);
                self.flights.insert(fetch.id, (fetch, true));
            }
        }
    }

    fn cancel(&mut self, which: usize) {
        let Some(known) = self.known(which) else { return };
        known.covers.clear();
        known.script.clear();
        known.next = 0;
        let id = known.id;
        self.policy.cancel(self.now, id);
        assert!(self.policy.wants_hints(id), "nothing of it is left");
    }

    fn close(&mut self, which: usize) {
        if self.streams.is_empty() {
            return;
        }
        let known = self.streams.swap_remove(which % self.streams.len());
        self.policy.close(self.now, known.id);
        let hints = self.policy.counts().hints;
        let target = Target::File { file: FileId(3), size_bytes: SIZES[3] };
        self.policy.hint(self.now, known.id, Hint::whole_file(target, DeviceId(0)));
        self.policy.cancel(self.now, known.id);
        assert_eq!(self.policy.counts().hints, hints, "a closed stream takes no hints");
        assert!(!self.policy.wants_hints(known.id));
    }

    /// Records what the policy has released.
    fn drain(&mut self) {
        while let Some(block) = self.policy.next_eviction() {
            self.say(block);
            assert!(!self.in_flight.contains(&block), "{block:?} has not arrived");
            assert!(self.arrived.remove(&block), "{block:?} was not in memory");
        }
        for name in self.policy.take_dropped_names() {
            let known = self.names.get_mut(&name).expect("a name that was hinted");
            assert_eq!(known.0, Name::Waits, "{name:?}");
            known.0 = Name::Dropped;
        }
        let (decisions, dropped) = self.policy.take_decisions();
        let wastes = [DecisionKind::Waste, DecisionKind::EvictUnread];
        let told =
            decisions.iter().filter(|decision| wastes.contains(&decision.kind)).count() as u64;
        let all_wasted = self.policy.counts().wasted;
        let wasted = all_wasted - std::mem::replace(&mut self.wasted, all_wasted);
        assert!(told == wasted || dropped > 0 && told <= wasted, "{told} of {wasted}");
        assert!(decisions.len() <= self.config().decisions_max);
        let values = self.config().rules.prefetch() == foretell_policy::rules::Prefetch::Benefit;
        // Under LRU-SP a program may give up a buffer at any loss.
        let weighs =
            self.config().rules.replacement() != foretell_policy::rules::Replacement::LruSp;
        for decision in &decisions {
            let (value, against) = (decision.value_ns, decision.against_ns);
            assert!(value.is_finite() && value >= 0.0, "{decision:?}");
            // They were compared before both were divided by the number of accesses, and rounding may make them equal.
            match decision.kind {
                DecisionKind::Evict | DecisionKind::EvictUnread if weighs => {
                    assert!(value <= against, "{decision:?}")
                }
                DecisionKind::Refuse => assert!(value <= against, "{decision:?}"),
                DecisionKind::Prefetch if values => assert!(value >= against, "{decision:?}"),
                _ => {}
            }
        }
        for file in self.policy.take_released_files() {
            assert!((file.0 as usize) < SIZES.len());
            if !self.policy.wants(file) {
                self.open.remove(&file);
            }
        }
    }

    fn check(&mut self) {
        self.drain();
        let (held, capacity) = (self.policy.held_blocks(), self.config().capacity_blocks);
        assert!(held <= capacity);
        assert!(self.policy.pending_blocks() <= held);
        if self.is_owned() {
            assert_eq!(held, (self.in_flight.len() + self.arrived.len()) as u64);
        } else {
            assert!(self.in_flight.len() as u64 <= held);
        }
        let counts = self.policy.counts();
        let ended = counts.useful + counts.late + counts.wasted + counts.unfinished;
        assert!(ended <= counts.prefetched, "{counts:?}");
    }

    /// Fetches everything wanted while nothing is read. This must come to an end, even for the other devices while one of them
    /// hangs.
    pub(crate) fn rest(&mut self) {
        self.fill();
        let hangs = self.flights.values().next().map(|(fetch, _)| fetch.device);
        self.rest_but_for(hangs);
        self.rest_but_for(None);
    }

    fn rest_but_for(&mut self, hangs: Option<DeviceId>) {
        for _ in 0..ROUNDS_MAX {
            self.fill();
            let answered =
                self.flights.iter().filter(|(_, (fetch, _))| Some(fetch.device) != hangs);
            let flights: Vec<FetchId> = answered.map(|(&id, _)| id).collect();
            if flights.is_empty() {
                return;
            }
            self.now += ROUND;
            for id in flights {
                self.complete_fetch(id, FETCHED);
            }
            self.check();
        }
        panic!("what is fetched is let go for ever");
    }

    /// Closes all streams, completes all fetches, and checks that nothing is left.
    pub(crate) fn finish(&mut self) {
        while !self.streams.is_empty() {
            self.close(self.streams.len() / 2);
            self.check();
        }
        assert_eq!(self.policy.pending_blocks(), 0);
        assert_eq!(self.policy.waiting_hints(), 0);
        while let Some((&id, _)) = self.flights.iter().nth(self.flights.len() / 2) {
            self.complete_fetch(id, (id.0 % 7) as u8);
            self.check();
        }
        self.fill();
        assert!(self.flights.is_empty(), "there is nothing to fetch");
        assert!(self.policy.is_idle());
        assert_eq!(self.policy.pending_blocks(), 0);
        assert!((0..SIZES.len()).all(|file| !self.policy.wants(FileId(file as u64))));
        let waits: Vec<_> = self.names.iter().filter(|name| name.1.0 == Name::Waits).collect();
        assert!(waits.is_empty(), "neither asked for nor dropped: {waits:?}");
        let counts = self.policy.counts();
        let ended = counts.useful + counts.late + counts.wasted + counts.unfinished;
        if self.is_exact {
            assert_eq!(counts.prefetched, ended + counts.refused, "{counts:?}");
        } else {
            assert!(counts.prefetched <= ended.saturating_add(counts.refused), "{counts:?}");
        }
        assert!(self.policy.memory_bytes() < 1 << 30);
    }
}

/// The blocks of the existing part of a segment: the first one, and the one after the last.
fn blocks_of(segment: Segment, size_bytes: u64) -> (u64, u64) {
    let end = segment.offset_bytes.saturating_add(segment.length_bytes).min(size_bytes);
    match segment.offset_bytes < end {
        true => (segment.offset_bytes / BLOCK_BYTES, end.div_ceil(BLOCK_BYTES)),
        false => (0, 0),
    }
}
