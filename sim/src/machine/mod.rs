//! The simulated machine: programs, processors and devices in virtual time, with the real policy.
//!
//! The machine is a driver of [`Policy`] with [`Memory::Owned`]: it reads, fetches and evicts as the policy says. Only time
//! is modelled, as in TIP 1995, section 4.2. A read costs `T_hit`. If its block must come from the device, the program first
//! pays `T_driver` and then stalls until the block arrives. A prefetch goes to its device at once, unless it needs addresses
//! first. Its `T_driver` is work for the processor of the program that disclosed the file.
//!
//! Events:
//! * a *service* ends at a device: its blocks arrive, and programs that waited for them go on;
//! * `T_driver` of a *demand* request, or of a read of addresses, is over: it goes to the device, and the stall begins;
//! * a *program* takes its next step, as soon as its processor is free.
//!
//! Events of one instant come in that order, and then in the order in which they were made, so a run is a function of its
//! inputs. Adjacent pieces of a program's work are one event, unless other programs want its processor, or it may have to
//! wait for addresses in between. After each event the policy is asked for prefetches, device by device, until it has none:
//! virtual time stands still meanwhile, so [`Policy::next_fetch`] is used. The policy sees a read at its beginning. From then
//! on the block may be evicted; a block that is waited for, from its arrival on.
//!
//! The machine keeps its own books of blocks in memory and in flight (`account`), and panics if the policy contradicts them:
//! then the run has no result.
//!
//! Files have names, inodes and addresses; [`Metadata`] says which of them are read. An open reads the path to the inode if
//! directories are laid out ([`directory`]), and the inode if it was not read before. The policy's lookups of names read the
//! inode too. The read-ahead of a kernel is disclosed to the policy ([`read_ahead`]).
//!
//! Programs may wait for each other's marks ([`Step::Await`]), which is neither work nor stall. If only such waits are left,
//! the run panics.
//!
//! Disks may be slow, fail, and return too few blocks, at given times ([`fault`]). Nevertheless:
//! * no program gets a block that has not arrived;
//! * after each event the policy's buffers are those in the books, and no more than there are;
//! * every program ends, or the run ends with a panic (`watchdog`);
//! * when all fetches have ended too, the policy, the books and the devices are empty.

mod account;
pub mod directory;
pub mod fault;
mod processor;
pub mod program;
pub mod read_ahead;
pub mod report;
pub mod server;
mod slab;
#[cfg(test)]
mod tests;
mod watchdog;

use std::cmp::{Ordering, Reverse};
use std::collections::{BinaryHeap, HashMap, HashSet, VecDeque};
use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;

use foretell_policy::hash::Mix;
use foretell_policy::queue::Class;
use foretell_policy::{
    Block, Config, Cost, DeviceId, Fetch, FetchId, FileId, Hint, HinterId, Memory, NameId, Nanos,
    Outcome, Policy, ReaderId, Segment, StreamId, Target, Work,
};

use crate::layout::address_blocks;
use account::{Account, Held};
use directory::{Directories, Names};
use fault::{Arrival, Faults, Retries};
use processor::{Processor, Wait};
use program::{MarkId, Program, Step, Steps};
use read_ahead::{Advice, Call, Circumstances, ReadAhead, ReadAheadSpec};
use report::{ProgramReport, Report, Tally};
use server::{Begun, DeviceSpec, Done, MetadataBlock, Piece, Run, Server, Sizes};
use slab::{Key, Slab};
use watchdog::Watchdog;

/// The processors of programs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processors {
    /// Each program has its own.
    #[default]
    Own,
    /// All programs share one. Work is not interrupted.
    Shared,
}

/// The readers of a program's streams.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readers {
    /// Only the program itself.
    #[default]
    Hinter,
    /// All programs, as in the Advice Manager.
    Anybody,
}

/// The metadata that is read from the device, each block by the first program or lookup that needs it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Metadata {
    /// None: all is known.
    #[default]
    Known,
    /// Inodes, by opens and by the policy's lookups of names.
    Inodes,
    /// Inodes, the paths to them for opens ([`MachineSpec::directories`]), and blocks of addresses ([`address_blocks`]) for
    /// reads that miss and for prefetches. TIP 1994 says that it prefetches by FFS's own routines for names, which wait; for
    /// addresses that is assumed here. So a prefetch waits for its addresses. All later prefetches for the program that
    /// disclosed the file wait with it, and so does this program, in whose call they are made.
    Ffs,
}

/// The hinters of read-ahead have numbers with this bit.
const READ_AHEAD_HINTER: u64 = 1 << 63;

/// The parts of a machine.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    /// The policy and its memory, which must be [`Memory::Owned`].
    pub policy: Config,
    /// `T_hit`: processor time of reading a block that is in memory.
    pub hit: Nanos,
    /// Additional processor time of a read if its program has disclosed something of the file; none by default.
    pub disclosed_read: Nanos,
    /// `T_driver`: processor time of a fetch of one block.
    pub driver: Nanos,
    /// Additional processor time of each further block of a fetch; none by default.
    pub driver_block: Nanos,
    /// Processor time between a disk's request and its next one, in which the disk is idle (each slot by itself, if it serves
    /// several at once); none by default. All programs must share a processor then.
    pub striper: Nanos,
    /// Processors.
    pub processors: Processors,
    /// Devices, in the order in which the policy is asked for prefetches.
    pub devices: Vec<(DeviceId, DeviceSpec)>,
    /// Devices with a `T_disk` that the policy has measured before the programs start.
    pub known_costs: Vec<(DeviceId, Nanos)>,
    /// The readers of a stream.
    pub readers: Readers,
    /// Processor time of an open; none by default.
    pub open: Nanos,
    /// The metadata that is read; none by default.
    pub metadata: Metadata,
    /// Read-ahead without hints; none by default.
    pub read_ahead: Option<ReadAheadSpec>,
    /// Whether disclosed files are read ahead too, as by a kernel that is given advice. Not by default: TIP's read-ahead
    /// leaves them to their hints.
    pub reads_ahead_of_hints: bool,
    /// Sizes of files, bytes. A last block is read up to the end of the 4 KiB with the last byte, and no read-ahead goes
    /// beyond. Files without a size are read in whole blocks, without read-ahead.
    pub sizes_bytes: HashMap<FileId, u64>,
    /// The files of disclosed names. Lookups of other names are refused.
    pub names: HashMap<NameId, FileId>,
    /// Bound of lookups in service at a device, as where each takes a thread; others wait in turn. Any number by default.
    pub lookups_max: usize,
    /// Directories of files for [`Metadata::Ffs`], each on its file's device. Directories of other files are known. So are all
    /// directories for the policy's lookups.
    pub directories: Directories,
    /// Faults of disks; none by default.
    pub faults: Faults,
    /// The program at whose end the counts of all are noted; none by default.
    pub noted_at_end_of: Option<String>,
}

impl MachineSpec {
    /// A machine with a processor for each program, and devices without known costs.
    pub fn new(
        policy: Config,
        hit: Nanos,
        driver: Nanos,
        devices: Vec<(DeviceId, DeviceSpec)>,
    ) -> Self {
        MachineSpec {
            policy,
            hit,
            disclosed_read: Nanos::ZERO,
            driver,
            driver_block: Nanos::ZERO,
            striper: Nanos::ZERO,
            processors: Processors::Own,
            devices,
            known_costs: Vec::new(),
            readers: Readers::Hinter,
            open: Nanos::ZERO,
            metadata: Metadata::Known,
            read_ahead: None,
            reads_ahead_of_hints: false,
            sizes_bytes: HashMap::new(),
            names: HashMap::new(),
            lookups_max: usize::MAX,
            directories: Directories::default(),
            faults: Faults::default(),
            noted_at_end_of: None,
        }
    }

    /// Runs `programs` until all except those in the background have ended.
    pub fn run(&self, programs: Vec<Program>) -> Report {
        Machine::new(self, programs).run()
    }
}

/// Observations of a known cost, so that no trace of the policy's initial guess is left.
const KNOWN_SAMPLES: usize = 256;

/// The kinds of events.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Served,
    Demanded,
    /// A disk may have its next request.
    Released,
    /// A program wants to take its next step.
    Program,
    /// The striper wants to give the next disk its next request.
    Striper,
}

impl Kind {
    /// The order within an instant. Programs and the striper wait for the processor in one queue.
    fn rank(self) -> u64 {
        match self {
            Kind::Served => 0,
            Kind::Demanded => 1,
            Kind::Released => 2,
            Kind::Program | Kind::Striper => 3,
        }
    }
}

/// The order of events of one instant: by kind, then by serial number, in one number that is quick to compare.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Turn(u64);

impl Turn {
    /// Bits of a serial number. The rank is above.
    const SERIAL_BITS: u32 = 62;

    fn new(kind: Kind, serial: u64) -> Self {
        debug_assert!(serial < 1 << Turn::SERIAL_BITS, "so many events take centuries");
        Turn(kind.rank() << Turn::SERIAL_BITS | serial)
    }
}

/// An event. Events are ordered by instant, then by turn, which is unique.
#[derive(Clone, Copy, Debug)]
struct Event {
    at: Nanos,
    turn: Turn,
    kind: Kind,
    /// `Program`: program. `Striper`: nothing. Others: device.
    index: u32,
    /// `Served`: service. `Demanded`: job. Others: nothing.
    which: Key,
}

impl Event {
    /// `at` above `turn`, for one comparison without a branch.
    fn key(&self) -> u128 {
        u128::from(self.at.0) << u64::BITS | u128::from(self.turn.0)
    }
}

impl PartialEq for Event {
    fn eq(&self, other: &Self) -> bool {
        self.key() == other.key()
    }
}

impl Eq for Event {}

impl Ord for Event {
    fn cmp(&self, other: &Self) -> Ordering {
        self.key().cmp(&other.key())
    }
}

impl PartialOrd for Event {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

/// A fetch, a read of metadata, or a read around the cache.
struct Job {
    piece: Piece,
    device: usize,
    /// The policy's fetch of these blocks; none: a read around the cache.
    fetch: Option<FetchId>,
    /// The policy's lookups that wait for this block of metadata.
    lookups: Vec<(FetchId, FileId)>,
    /// The first and the last program that wait for it. The others are linked by [`Runner::waits_before`].
    waiting: Option<(usize, usize)>,
    /// Whether the job is not at its device: a demand request's `T_driver` or a pause before another try is not over, or
    /// addresses are missing.
    in_driver: bool,
    /// Whether a program's call needs it, and not only the policy.
    is_demanded: bool,
    /// Failed tries.
    tries: u32,
}

impl Job {
    /// A job without a waiting program.
    fn prefetch(piece: Piece, device: usize, fetch: Option<FetchId>) -> Self {
        let (lookups, waiting) = (Vec::new(), None);
        let (in_driver, is_demanded, tries) = (false, false, 0);
        Job { piece, device, fetch, lookups, waiting, in_driver, is_demanded, tries }
    }
}

/// The policy's lookups at a device.
#[derive(Debug, Default)]
struct Lookups {
    under_way: usize,
    /// Lookups that wait for another one to end, oldest first.
    in_turn: VecDeque<(FetchId, FileId)>,
}

/// The state of a block of metadata.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Progress {
    /// In flight, by this job.
    Coming(Key),
    Known,
}

/// Fetches for one program. The first one waits for addresses, and the others wait for the first.
#[derive(Debug)]
struct Postponed {
    /// The program, which waits with them.
    program: Option<usize>,
    addresses: Key,
    fetches: VecDeque<Key>,
}

/// A mark that programs wait for.
enum Mark {
    /// The waiting programs, in order of arrival.
    Awaited(Vec<usize>),
    Done,
}

struct Runner {
    name: String,
    reader: ReaderId,
    start: Nanos,
    background: bool,
    steps: Peekable<Steps>,
    processor: usize,
    streams: Vec<StreamId>,
    /// Files that it has disclosed. They are not read ahead, and their reads cost more.
    disclosed: HashSet<FileId, Mix>,
    /// The blocks of its call that are not read yet, and their device.
    called: Option<(FileId, Range<u64>, DeviceId)>,
    read_ahead: ReadAhead,
    tally: Tally,
    wait: Option<Wait>,
    /// The block that it waits for; none: metadata.
    reading: Option<Block>,
    /// The file that it opens, and its device, if it waits for metadata of that and not for addresses of a prefetch.
    opening: Option<(FileId, usize)>,
    /// A block that its open waited for has arrived, and the open needs more.
    goes_on_opening: bool,
    /// The next program that waits for the same job.
    waits_before: Option<usize>,
    /// Work to do after the wait that has ended.
    owed: Option<Nanos>,
    ended: Option<Nanos>,
}

struct Machine {
    policy: Policy,
    account: Account,
    hit: Nanos,
    disclosed_read: Nanos,
    driver: Nanos,
    driver_block: Nanos,
    striper: Nanos,
    striper_work: Nanos,
    /// Devices that wait for the striper, each with its turn for the processor, oldest first.
    striper_queue: VecDeque<(usize, Turn)>,
    readers: Readers,
    open: Nanos,
    read_ahead: Option<ReadAheadSpec>,
    reads_ahead_of_hints: bool,
    sizes_bytes: Sizes,
    names: HashMap<NameId, FileId>,
    lookups_max: usize,
    /// The lookups of each device.
    lookups: Vec<Lookups>,
    directories: Names,
    retries: Retries,
    watchdog: Watchdog,
    metadata: Metadata,
    /// Metadata that is known or in flight, by device and block.
    progress: HashMap<(usize, MetadataBlock), Progress, Mix>,
    /// At most one for each program.
    postponed: Vec<Postponed>,
    devices: Vec<(DeviceId, Server)>,
    device_indices: HashMap<DeviceId, usize, Mix>,
    processors: Vec<Processor>,
    runners: Vec<Runner>,
    /// Number of programs that have not ended and are not in the background.
    running: usize,
    /// Whether adjacent pieces of a program's work are one event: no other program wants its processor, and it never waits
    /// between them. (`T_driver` of prefetches that begin meanwhile comes after both pieces, and ends at the same time.)
    work_is_joined: bool,
    noted_at_end_of: Option<String>,
    /// The counts of each program at that moment.
    noted: Vec<Tally>,
    jobs: Slab<Job>,
    /// Marks by which programs wait for each other.
    marks: HashMap<MarkId, Mark, Mix>,
    /// The program that disclosed each file last.
    disclosers: HashMap<FileId, usize, Mix>,
    /// Files that programs have disclosed themselves.
    disclosed: HashSet<FileId, Mix>,
    events: Events,
    /// Scratch space of single calls.
    begun: Vec<Begun>,
    advice: Vec<Advice>,
    now: Nanos,
}

impl Machine {
    fn new(spec: &MachineSpec, programs: Vec<Program>) -> Self {
        assert_eq!(spec.policy.memory, Memory::Owned, "the machine's memory is its own");
        let is_ffs = spec.metadata == Metadata::Ffs;
        assert!(!is_ffs || spec.policy.block_bytes == 8192, "an address of FFS is that of 8 KB");
        assert!(spec.lookups_max > 0, "names are looked up");
        let mut policy = Policy::new(spec.policy);
        for &(device, disk) in &spec.known_costs {
            for _ in 0..KNOWN_SAMPLES {
                policy.observe(device, Cost::Hit, spec.hit);
                policy.observe(device, Cost::Driver, spec.driver);
                policy.observe(device, Cost::Disk, disk);
            }
        }
        let block_bytes = spec.policy.block_bytes;
        let sizes = spec.sizes_bytes.iter().map(|(&file, &bytes)| (file, bytes));
        let sizes_bytes: Sizes = Arc::new(sizes.collect());
        let server = |(id, device): &(DeviceId, DeviceSpec)| {
            let mut server = Server::new(device, block_bytes, Arc::clone(&sizes_bytes));
            server.set_holds(spec.striper > Nanos::ZERO);
            server.set_faults(&spec.faults, *id);
            (*id, server)
        };
        for fault in &spec.faults.schedule {
            let is_here = spec.devices.iter().any(|(id, _)| *id == fault.device);
            assert!(is_here, "{fault:?} of a device that the machine has not");
        }
        let processors = if spec.processors == Processors::Own { programs.len() } else { 1 };
        let is_shared = spec.processors == Processors::Shared;
        assert!(spec.striper == Nanos::ZERO || is_shared, "a striper has no processor of its own");
        let running = programs.iter().filter(|program| !program.background).count();
        let runner = |(index, program): (usize, Program)| Runner {
            name: program.name,
            reader: program.reader,
            start: program.start,
            background: program.background,
            steps: program.steps.peekable(),
            processor: index % processors,
            streams: Vec::new(),
            disclosed: HashSet::default(),
            called: None,
            read_ahead: ReadAhead::default(),
            tally: Tally::default(),
            wait: None,
            reading: None,
            opening: None,
            goes_on_opening: false,
            waits_before: None,
            owed: None,
            ended: None,
        };
        Machine {
            policy,
            account: Account::new(spec.policy.capacity_blocks),
            hit: spec.hit,
            disclosed_read: spec.disclosed_read,
            driver: spec.driver,
            driver_block: spec.driver_block,
            striper: spec.striper,
            striper_work: Nanos::ZERO,
            striper_queue: VecDeque::new(),
            readers: spec.readers,
            open: spec.open,
            read_ahead: spec.read_ahead,
            reads_ahead_of_hints: spec.reads_ahead_of_hints,
            names: spec.names.clone(),
            lookups_max: spec.lookups_max,
            lookups: spec.devices.iter().map(|_| Lookups::default()).collect(),
            directories: Names::new(spec.directories.clone()),
            retries: spec.faults.retries,
            watchdog: Watchdog::new(
                programs.len(),
                spec.faults.retries.tries_max,
                block_bytes / crate::SECTOR_BYTES,
            ),
            metadata: spec.metadata,
            progress: HashMap::default(),
            postponed: Vec::new(),
            devices: spec.devices.iter().map(server).collect(),
            device_indices: first_indices(spec),
            sizes_bytes,
            processors: vec![Processor::default(); processors],
            noted_at_end_of: spec.noted_at_end_of.clone(),
            noted: Vec::new(),
            running,
            work_is_joined: spec.processors == Processors::Own && !is_ffs,
            runners: programs.into_iter().enumerate().map(runner).collect(),
            jobs: Slab::new(),
            marks: HashMap::default(),
            disclosers: HashMap::default(),
            disclosed: HashSet::default(),
            events: Events::default(),
            begun: Vec::new(),
            advice: Vec::new(),
            now: Nanos::ZERO,
        }
    }

    fn run(mut self) -> Report {
        for index in 0..self.runners.len() {
            self.proceed_at(index, self.runners[index].start);
        }
        while self.running > 0 {
            let Some(event) = self.next_event() else { panic!("{}", self.stuck()) };
            match event.kind {
                Kind::Served => self.served(event.index as usize, event.which),
                Kind::Demanded => self.demanded(event.which),
                Kind::Released => self.released(event.index as usize),
                Kind::Program => self.proceed(event),
                Kind::Striper => self.stripe(event),
            }
            self.evict();
            self.account.check_buffers(self.policy.held_blocks());
            self.prefetch();
        }
        let report = self.report();
        self.drain();
        report
    }

    /// Takes the next event, and sets the clock to its instant.
    fn next_event(&mut self) -> Option<Event> {
        let event = self.events.pop()?;
        assert!(event.at >= self.now, "time goes back from {} to {}", self.now, event.at);
        self.now = event.at;
        self.watchdog.count(self.now);
        Some(event)
    }

    /// Lets all fetches end after the run; programs in the background take no more steps. Checks that nothing is left.
    fn drain(mut self) {
        self.policy.close_all(self.now);
        while let Some(event) = self.next_event() {
            match event.kind {
                Kind::Served => self.served(event.index as usize, event.which),
                Kind::Demanded => self.demanded(event.which),
                Kind::Released => self.released(event.index as usize),
                Kind::Program => {}
                Kind::Striper => self.stripe(event),
            }
            self.evict();
            self.account.check_buffers(self.policy.held_blocks());
        }
        self.account.check_idle();
        assert!(self.jobs.is_empty(), "a job still under way after the end");
        let no_lookups = |of: &Lookups| of.under_way == 0 && of.in_turn.is_empty();
        assert!(self.lookups.iter().all(no_lookups), "a lookup still to be made after the end");
        for (device, server) in &self.devices {
            assert!(server.is_idle(), "{device:?} has something to do after the end");
        }
        for runner in &self.runners {
            let waits = runner.wait.is_some();
            assert!(!waits, "{:?} waits after the end", runner.name);
        }
        assert!(self.policy.is_idle(), "the policy waits for a fetch that nobody knows of");
    }

    /// The message if there is no event left and programs have not ended.
    fn stuck(&self) -> String {
        let not_ended = self.runners.iter().filter(|runner| runner.ended.is_none());
        let names: Vec<&str> = not_ended.map(|runner| &runner.name[..]).collect();
        format!("nothing will happen any more, and {names:?} have not ended")
    }

    fn proceed_at(&mut self, index: usize, at: Nanos) {
        self.events.push(at, Kind::Program, index, Key::default());
    }

    /// A program's next step, or the rest of the last one.
    fn proceed(&mut self, event: Event) {
        let index = event.index as usize;
        let free_at = self.processors[self.runners[index].processor].free_at();
        if free_at > self.now {
            // The program keeps its turn for the processor.
            self.events.push_again(Event { at: free_at, ..event });
            return;
        }
        if let Some(postponed) = self.postponed.iter().find(|it| it.program == Some(index)) {
            let addresses = postponed.addresses;
            let job = self.jobs.get_mut(addresses).expect("what is on its way is under way");
            let at = job.device;
            return self.wait_for_metadata(index, addresses, at, None);
        }
        let runner = &mut self.runners[index];
        if let Some(work) = runner.owed.take() {
            self.work_then_proceed(index, work);
            return;
        }
        self.watchdog.step();
        if std::mem::take(&mut runner.goes_on_opening)
            && let Some((file, at)) = runner.opening
        {
            return self.go_on_opening(index, file, at);
        }
        if let Some((file, blocks, device)) = &mut runner.called {
            if let Some(index_in_file) = blocks.next() {
                let (block, device) = (Block { file: *file, index: index_in_file }, *device);
                return self.read(index, block, device);
            }
            runner.called = None;
        }
        match runner.steps.next() {
            Some(Step::Open(file, device)) => {
                runner.read_ahead.opened(file);
                self.open(index, file, device);
            }
            Some(Step::Look(file, device)) => self.open(index, file, device),
            Some(Step::Call { first, blocks, bytes, device }) => {
                self.look_ahead(index, first, (blocks, bytes), device);
                let end = first.index.saturating_add(blocks);
                self.runners[index].called = Some((first.file, first.index..end, device));
                self.proceed_at(index, self.now);
            }
            Some(Step::Read(block, device)) => {
                // To the read-ahead, this is a call of one block.
                if self.read_ahead.is_some() {
                    let block_bytes = self.policy.config().block_bytes;
                    let offset_bytes = block.index.saturating_mul(block_bytes);
                    let bytes = offset_bytes..offset_bytes.saturating_add(block_bytes);
                    self.look_ahead(index, block, (1, bytes), device);
                }
                self.read(index, block, device);
            }
            Some(Step::Compute(work)) => self.work_then_proceed(index, work),
            Some(Step::Mark(mark)) => {
                if let Some(Mark::Awaited(waiting)) = self.marks.insert(mark, Mark::Done) {
                    waiting.into_iter().for_each(|index| self.proceed_at(index, self.now));
                }
                self.proceed_at(index, self.now);
            }
            Some(Step::Await(mark)) => {
                match self.marks.entry(mark).or_insert(Mark::Awaited(Vec::new())) {
                    Mark::Done => self.proceed_at(index, self.now),
                    Mark::Awaited(waiting) => waiting.push(index),
                }
            }
            Some(step) => {
                self.disclose(index, step);
                self.proceed_at(index, self.now);
            }
            None => self.end(index),
        }
    }

    fn work_then_proceed(&mut self, index: usize, work: Nanos) {
        let work = work + self.work_that_follows(index);
        let runner = &mut self.runners[index];
        runner.tally.cpu_ns += work.0;
        let end = self.processors[runner.processor].run(self.now, work).end;
        self.proceed_at(index, end);
    }

    /// Takes the program's next step, if it is work that can be joined with the work before. Returns its time.
    fn work_that_follows(&mut self, index: usize) -> Nanos {
        let runner = &mut self.runners[index];
        let is_called = runner.called.as_ref().is_some_and(|(_, blocks, _)| !blocks.is_empty());
        if !self.work_is_joined || is_called || runner.goes_on_opening {
            return Nanos::ZERO;
        }
        match runner.steps.next_if(|step| matches!(step, Step::Compute(_))) {
            Some(Step::Compute(work)) => work,
            _ => Nanos::ZERO,
        }
    }

    fn disclose(&mut self, index: usize, step: Step) {
        let (now, runner) = (self.now, &mut self.runners[index]);
        let own = runner.reader;
        let hinter = HinterId(own.0);
        let reader = (self.readers == Readers::Hinter).then_some(own);
        match step {
            Step::Hint(hint) => {
                if runner.streams.is_empty() {
                    runner.streams.push(self.policy.open_stream(now, hinter, reader));
                }
                let stream = runner.streams[runner.streams.len() - 1];
                let file = match hint.target {
                    Target::File { file, .. } => Some(file),
                    Target::Name(name) => self.names.get(&name).copied(),
                };
                let size_bytes = match hint.target {
                    Target::File { size_bytes, .. } => size_bytes,
                    Target::Name(_) => {
                        file.and_then(|file| self.sizes_bytes.get(&file)).copied().unwrap_or(0)
                    }
                };
                let block_bytes = self.policy.config().block_bytes;
                self.watchdog.disclose(watchdog::accesses(&hint, size_bytes, block_bytes));
                if let Some(file) = file {
                    runner.disclosed.insert(file);
                    self.disclosed.insert(file);
                    self.disclosers.insert(file, index);
                }
                self.policy.hint(now, stream, hint);
            }
            Step::OpenStream => runner.streams.push(self.policy.open_stream(now, hinter, reader)),
            Step::Cancel => {
                if let Some(&stream) = runner.streams.last() {
                    self.policy.cancel(now, stream);
                }
            }
            Step::Open(..)
            | Step::Look(..)
            | Step::Call { .. }
            | Step::Read(..)
            | Step::Compute(_)
            | Step::Mark(_)
            | Step::Await(_) => unreachable!("not a disclosure"),
        }
    }

    /// Discloses the read-ahead of a kernel for a call of these blocks and bytes, and begins it before the call.
    fn look_ahead(
        &mut self,
        index: usize,
        first: Block,
        (blocks, bytes): (u64, Range<u64>),
        device: DeviceId,
    ) {
        let file = first.file;
        let Some(&size) = self.sizes_bytes.get(&file) else { return };
        let by_all = self.readers == Readers::Anybody && self.disclosed.contains(&file);
        let is_hinted = by_all || self.runners[index].disclosed.contains(&file);
        if is_hinted && !self.reads_ahead_of_hints {
            return;
        }
        let (now, runner, policy) = (self.now, &mut self.runners[index], &mut self.policy);
        let block_bytes = policy.config().block_bytes;
        let reader = runner.reader;
        let hinter = HinterId(reader.0 | READ_AHEAD_HINTER);
        let bytes = bytes.start..bytes.end.min(size);
        let call = Call { file, first: first.index, blocks, bytes };
        let circumstances = Circumstances {
            in_file: size.div_ceil(block_bytes),
            open: &mut || policy.open_stream(now, hinter, Some(reader)),
            is_there: &|index| self.account.holds(Block { file, index }),
            capacity_blocks: self.account.capacity_blocks(),
        };
        let mut advice = std::mem::take(&mut self.advice);
        runner.read_ahead.before(self.read_ahead, call, circumstances, &mut advice);
        let is_any = !advice.is_empty();
        for advice in advice.drain(..) {
            match advice {
                Advice::Close(stream) => policy.close(now, stream),
                Advice::TakeBack(stream) => policy.cancel(now, stream),
                Advice::Disclose(stream, range) => {
                    self.disclosers.insert(file, index);
                    self.watchdog.disclose(range.end - range.start);
                    let target = Target::File { file, size_bytes: size };
                    let segment = Segment {
                        offset_bytes: range.start * block_bytes,
                        length_bytes: (range.end - range.start) * block_bytes,
                    };
                    policy.hint(now, stream, Hint::segments(target, device, &[segment]));
                }
            }
        }
        self.advice = advice;
        if is_any {
            self.evict();
            self.prefetch();
        }
    }

    /// Opens a file: reads the unknown blocks on the path to its inode, and the inode, one after another.
    fn open(&mut self, index: usize, file: FileId, device: DeviceId) {
        let at = self.device_index(device);
        self.runners[index].tally.opens += 1;
        self.go_on_opening(index, file, at);
    }

    fn go_on_opening(&mut self, index: usize, file: FileId, at: usize) {
        let Some(block) = self.missing_on_the_way(file, at) else {
            return self.work_then_proceed(index, self.open);
        };
        let runner = &mut self.runners[index];
        let is_inode = matches!(block, MetadataBlock::Inode(_));
        runner.tally.inode_waits += u64::from(is_inode);
        runner.tally.directory_waits += u64::from(!is_inode);
        let key = (at, self.devices[at].1.identity(block));
        if let Some(&Progress::Coming(job)) = self.progress.get(&key) {
            return self.wait_for_metadata(index, job, at, Some((file, at)));
        }
        (runner.reading, runner.opening) = (None, Some((file, at)));
        let job = self.demand(index, at, Piece::Metadata(block), None);
        self.progress.insert(key, Progress::Coming(job));
    }

    /// The first unknown block that an open of the file needs.
    fn missing_on_the_way(&mut self, file: FileId, at: usize) -> Option<MetadataBlock> {
        let (server, progress) = (&self.devices[at].1, &self.progress);
        let mut is_known =
            |block| progress.get(&(at, server.identity(block))).copied() == Some(Progress::Known);
        match self.metadata {
            Metadata::Known => None,
            Metadata::Inodes => {
                let inode = MetadataBlock::Inode(file);
                (!is_known(inode)).then_some(inode)
            }
            Metadata::Ffs => self.directories.missing(file, &mut is_known),
        }
    }

    fn wait_for_metadata(
        &mut self,
        index: usize,
        job: Key,
        at: usize,
        opening: Option<(FileId, usize)>,
    ) {
        let runner = &mut self.runners[index];
        (runner.reading, runner.opening) = (None, opening);
        self.wait_for(index, job, at);
    }

    /// The first unknown block of addresses for a run, which is shorter than the range of such a block.
    fn missing_addresses(&self, at: usize, run: Run) -> Option<MetadataBlock> {
        if self.metadata != Metadata::Ffs {
            return None;
        }
        let (file, first) = (run.first.file, run.first.index);
        let numbers = address_blocks(first).chain(address_blocks(first + run.blocks - 1));
        let mut blocks = numbers.map(|number| MetadataBlock::Addresses(file, number));
        blocks.find(|&block| self.progress.get(&(at, block)) != Some(&Progress::Known))
    }

    fn read(&mut self, index: usize, block: Block, device: DeviceId) {
        let at = self.device_index(device);
        let reader = self.runners[index].reader;
        let access = self.policy.read(self.now, reader, block, false);
        let held = self.account.read(block, access);
        self.runners[index].reading = Some(block);
        let tally = &mut self.runners[index].tally;
        tally.reads += 1;
        self.policy.observe(device, Cost::Hit, self.hit);
        match held {
            Some(Held::Resident { unread }) => {
                tally.hits += 1;
                tally.prefetched_hits += u64::from(unread);
                self.work_then_proceed(index, self.read_work(index, block.file));
            }
            Some(Held::InFlight(job)) => {
                tally.late += 1;
                self.wait_for(index, job, at);
            }
            None => {
                tally.misses += 1;
                self.fetch(index, block, at);
            }
        }
    }

    /// The work of a read of the file after its block has arrived.
    fn read_work(&self, index: usize, file: FileId) -> Nanos {
        let is_disclosed =
            self.disclosed_read > Nanos::ZERO && self.runners[index].disclosed.contains(&file);
        if is_disclosed { self.hit + self.disclosed_read } else { self.hit }
    }

    /// A program waits for a job that is in flight.
    fn wait_for(&mut self, index: usize, job_id: Key, at: usize) {
        let job = self.jobs.get_mut(job_id).expect("what is on its way is under way");
        let in_driver = job.in_driver;
        match &mut job.waiting {
            Some((_, last)) => {
                self.runners[*last].waits_before = Some(index);
                *last = index;
            }
            nobody => *nobody = Some((index, index)),
        }
        let runner = &mut self.runners[index];
        // Read-ahead because of this read is work before the wait.
        let free_at = self.processors[runner.processor].free_at();
        runner.wait = Some(Wait::new(self.now.max(free_at)));
        if !in_driver {
            self.devices[at].1.promote(job_id);
            self.begin(at);
        }
    }

    /// Fetches a block at demand priority. If the policy has no buffer, the read goes around the cache.
    fn fetch(&mut self, index: usize, block: Block, at: usize) {
        let device = self.devices[at].0;
        let fetch = self.policy.demand(self.now, device, block);
        self.evict();
        let run = Run { first: block, blocks: 1 };
        let fetch_id = fetch.as_ref().map(|fetch| fetch.id);
        let job = match self.missing_addresses(at, run) {
            None => self.demand(index, at, Piece::Blocks(run), fetch_id),
            Some(_) => self.demand_behind_addresses(index, at, run, fetch_id),
        };
        match fetch {
            Some(fetch) => {
                assert_eq!(fetch.device, device, "a demand fetch for another device");
                assert_eq!(run_of(&fetch), run, "a demand fetch for something else");
                self.account.begin(run, job);
            }
            None => {
                self.account.check_full(block);
                self.runners[index].tally.around += 1;
            }
        }
    }

    /// A program demands blocks with unknown addresses, and waits.
    fn demand_behind_addresses(
        &mut self,
        index: usize,
        at: usize,
        run: Run,
        fetch: Option<FetchId>,
    ) -> Key {
        let (waiting, in_driver, is_demanded) = (Some((index, index)), true, true);
        let job = Job::prefetch(Piece::Blocks(run), at, fetch);
        let job = self.jobs.insert(Job { waiting, in_driver, is_demanded, ..job });
        let runner = &mut self.runners[index];
        let free_at = self.processors[runner.processor].free_at();
        runner.wait = Some(Wait::new(self.now.max(free_at)));
        self.submit_in_turn(Some(index), job);
        job
    }

    /// A program demands something from a device, and waits.
    fn demand(&mut self, index: usize, at: usize, piece: Piece, fetch: Option<FetchId>) -> Key {
        let device = self.devices[at].0;
        let (waiting, in_driver, is_demanded) = (Some((index, index)), true, true);
        let job = Job { waiting, in_driver, is_demanded, ..Job::prefetch(piece, at, fetch) };
        let job = self.jobs.insert(job);
        let runner = &mut self.runners[index];
        runner.tally.cpu_ns += self.driver.0;
        let end = self.processors[runner.processor].run(self.now, self.driver).end;
        runner.wait = Some(Wait::new(end));
        self.policy.observe(device, Cost::Driver, self.driver);
        self.events.push(end, Kind::Demanded, at, job);
        job
    }

    fn demanded(&mut self, job_id: Key) {
        let at = self.submit(job_id);
        self.begin(at);
    }

    /// Gives the job to its device, which begins it at the next [`begin`](Self::begin). Returns the device.
    fn submit(&mut self, job_id: Key) -> usize {
        let job = self.jobs.get_mut(job_id).expect("a job lasts until it is done");
        job.in_driver = false;
        let (at, piece) = (job.device, job.piece);
        let is_waited_for = job.is_demanded || job.waiting.is_some();
        let class = if is_waited_for { Class::Demand } else { Class::Prefetch };
        self.devices[at].1.submit(job_id, class, piece);
        at
    }

    /// Lets a device begin all services that it can.
    fn begin(&mut self, at: usize) {
        self.devices[at].1.begin(self.now, &mut self.begun);
        for begun in self.begun.drain(..) {
            self.events.push(begun.end, Kind::Served, at, begun.service);
        }
    }

    fn served(&mut self, at: usize, service: Key) {
        let done = self.devices[at].1.ended(self.now, service);
        self.begin(at);
        if let Some(done) = done
            && (done.arrival == Arrival::Whole || !self.try_again(done.job))
        {
            self.job_ended(done);
        }
        if self.striper > Nanos::ZERO {
            // Behind the programs that waited for this service.
            let turn = self.events.turn(Kind::Striper);
            self.striper_queue.push_back((at, turn));
            if self.striper_queue.len() == 1 {
                self.stripe_at(self.now, turn);
            }
        }
    }

    /// Makes the striper's only event, for the first in its queue.
    fn stripe_at(&mut self, at: Nanos, turn: Turn) {
        let (kind, index, which) = (Kind::Striper, 0, Key::default());
        self.events.push_again(Event { at, turn, kind, index, which });
    }

    /// The striper's turn on the processor. At its end a disk of the first device in its queue may begin its next request.
    fn stripe(&mut self, event: Event) {
        let processor = &mut self.processors[0];
        if processor.free_at() > self.now {
            let at = processor.free_at();
            return self.stripe_at(at, event.turn);
        }
        self.striper_work += self.striper;
        let end = processor.run(self.now, self.striper).end;
        let (device, _) = self.striper_queue.pop_front().expect("it has something to do");
        self.events.push(end, Kind::Released, device, Key::default());
        if let Some(&(_, turn)) = self.striper_queue.front() {
            self.stripe_at(end, turn);
        }
    }

    fn released(&mut self, at: usize) {
        self.devices[at].1.release();
        self.begin(at);
    }

    fn job_ended(&mut self, done: Done) {
        let job = self.jobs.remove(done.job).expect("a job is done once");
        match job.piece {
            Piece::Blocks(run) => self.blocks_ended(job, run, done),
            Piece::Metadata(metadata) => self.metadata_ended(done.job, job, metadata, done.arrival),
        }
    }

    /// R: tries a job with missing blocks again after a pause, if it is no prefetch and has tries left. Returns whether it
    /// does.
    fn try_again(&mut self, job_id: Key) -> bool {
        let job = self.jobs.get_mut(job_id).expect("a job lasts until it is done");
        job.tries += 1;
        let again_at = match job.piece {
            Piece::Blocks(_) if !job.is_demanded => None,
            Piece::Blocks(_) | Piece::Metadata(_) => self.retries.again_at(self.now, job.tries),
        };
        let Some(again_at) = again_at else { return false };
        job.in_driver = true;
        let at = job.device;
        self.devices[at].1.count_retry();
        self.events.push(again_at, Kind::Demanded, at, job_id);
        true
    }

    fn blocks_ended(&mut self, job: Job, run: Run, done: Done) {
        let (at, arrived) = (job.device, done.arrival.of(run.blocks));
        if let Some(fetch) = job.fetch {
            let (there, lost) = run.split_at(arrived);
            self.account.arrive(there);
            self.account.lose(lost);
            let outcome = match done.arrival {
                Arrival::Whole => Outcome::Fetched,
                Arrival::Short { blocks } => Outcome::Short { blocks },
                Arrival::Failed => Outcome::Refused,
            };
            self.policy.completed(self.now, fetch, outcome);
        }
        if done.arrival == Arrival::Whole {
            self.policy.observe(self.devices[at].0, Cost::Disk, done.since_dispatch);
        }
        let (mut waiting, mut in_vain) = (job.waiting, Vec::new());
        while let Some(index) = self.next_waiting(&mut waiting) {
            let block = self.runners[index].reading.expect("it waits for a block");
            if block.index - run.first.index >= arrived {
                in_vain.push((index, block));
                continue;
            }
            if job.fetch.is_some() {
                self.account.hand_over(block);
            }
            self.go_on(index, self.read_work(index, run.first.file));
        }
        // After the others, since this may evict blocks that have arrived.
        for (index, block) in in_vain {
            if job.is_demanded {
                self.fail(index);
            } else {
                self.read_again(index, block, at);
            }
        }
    }

    fn metadata_ended(&mut self, job_id: Key, job: Job, block: MetadataBlock, arrival: Arrival) {
        let (at, is_known) = (job.device, arrival == Arrival::Whole);
        let key = (at, self.devices[at].1.identity(block));
        if is_known {
            self.progress.insert(key, Progress::Known);
        } else {
            self.progress.remove(&key);
        }
        self.addresses_ended(job_id, is_known);
        self.lookups[at].under_way -= job.lookups.len();
        for (fetch, file) in job.lookups {
            if is_known {
                self.looked_up(fetch, file);
            } else {
                self.policy.completed(self.now, fetch, Outcome::Refused);
            }
        }
        self.look_up_in_turn(at);
        self.begin(at);
        let mut waiting = job.waiting;
        while let Some(index) = self.next_waiting(&mut waiting) {
            match (self.runners[index].opening, is_known) {
                (Some((file, at)), true) if self.missing_on_the_way(file, at).is_none() => {
                    self.go_on(index, self.open);
                }
                (Some(_), false) => self.fail(index),
                (opening, _) => {
                    self.runners[index].goes_on_opening = opening.is_some();
                    self.stop_waiting(index);
                    self.proceed_at(index, self.now);
                }
            }
        }
    }

    /// Fetches that waited for these addresses go to their devices. If the addresses failed, the fetches that need them fail
    /// too.
    fn addresses_ended(&mut self, addresses: Key, are_known: bool) {
        let ended = self.postponed.extract_if(.., |postponed| postponed.addresses == addresses);
        for Postponed { program, mut fetches, .. } in ended.collect::<Vec<_>>() {
            let mut in_vain = Vec::new();
            if !are_known {
                let first = self.missing(fetches[0]);
                in_vain =
                    fetches.iter().copied().filter(|&job| self.missing(job) == first).collect();
                fetches.retain(|job| !in_vain.contains(job));
            }
            self.submit_or_postpone(program, fetches);
            for job in in_vain {
                let (arrival, since_dispatch) = (Arrival::Failed, Nanos::ZERO);
                self.job_ended(Done { job, arrival, since_dispatch });
            }
        }
        (0..self.devices.len()).for_each(|at| self.begin(at));
    }

    /// The first unknown block of addresses that a fetch needs, and its device.
    fn missing(&mut self, fetch: Key) -> Option<(usize, MetadataBlock)> {
        let job = self.jobs.get_mut(fetch).expect("a job lasts until it is done");
        let (at, Piece::Blocks(run)) = (job.device, job.piece) else {
            unreachable!("what has addresses is data")
        };
        Some((at, self.missing_addresses(at, run)?))
    }

    /// Gives a fetch for a program to its device, behind its fetches that wait for addresses.
    fn submit_in_turn(&mut self, program: Option<usize>, fetch: Key) {
        if let Some(before) = self.postponed.iter_mut().find(|it| it.program == program) {
            before.fetches.push_back(fetch);
        } else if self.missing(fetch).is_none() {
            self.submit_for(program, fetch);
        } else {
            self.submit_or_postpone(program, VecDeque::from([fetch]));
        }
    }

    /// Gives fetches for a program to their devices, up to the first with unknown addresses. That one waits until they are
    /// read, and so do the fetches behind it and the program. The devices do not begin yet.
    fn submit_or_postpone(&mut self, program: Option<usize>, mut fetches: VecDeque<Key>) {
        while let Some(&fetch) = fetches.front() {
            if let Some((at, block)) = self.missing(fetch) {
                let addresses = self.addresses_for(program, at, block);
                self.postponed.push(Postponed { program, addresses, fetches });
                return;
            }
            fetches.pop_front();
            self.submit_for(program, fetch);
        }
    }

    /// Gives a prefetch to its device at once, and a demand request when `T_driver` is over.
    fn submit_for(&mut self, program: Option<usize>, fetch: Key) {
        let job = self.jobs.get_mut(fetch).expect("a job lasts until it is done");
        let (at, blocks, is_demanded) = (job.device, job.piece.blocks(), job.is_demanded);
        let driver = Nanos(self.driver.0 + self.driver_block.0 * (blocks - 1));
        self.policy.observe(self.devices[at].0, Cost::Driver, driver);
        let end = self.drive(program, driver);
        if is_demanded {
            self.events.push(end, Kind::Demanded, at, fetch);
        } else {
            self.submit(fetch);
        }
    }

    /// The job that reads a block of addresses. If there is none, the program begins one.
    fn addresses_for(&mut self, program: Option<usize>, at: usize, block: MetadataBlock) -> Key {
        if let Some(&Progress::Coming(job)) = self.progress.get(&(at, block)) {
            return job;
        }
        let (in_driver, is_demanded) = (true, true);
        let job = Job::prefetch(Piece::Metadata(block), at, None);
        let job = self.jobs.insert(Job { in_driver, is_demanded, ..job });
        self.progress.insert((at, block), Progress::Coming(job));
        self.policy.observe(self.devices[at].0, Cost::Driver, self.driver);
        let end = self.drive(program, self.driver);
        self.events.push(end, Kind::Demanded, at, job);
        job
    }

    /// Adds `T_driver` of a fetch to its program's work. Returns when it is over.
    fn drive(&mut self, program: Option<usize>, driver: Nanos) -> Nanos {
        let runner = program.map(|index| &mut self.runners[index]);
        let Some(runner) = runner.filter(|runner| runner.ended.is_none()) else { return self.now };
        runner.tally.cpu_ns += driver.0;
        let work = self.processors[runner.processor].run(self.now, driver);
        if let Some(wait) = &mut runner.wait {
            wait.worked(work);
        }
        work.end
    }

    /// Takes out the first program that waits for a job.
    fn next_waiting(&mut self, waiting: &mut Option<(usize, usize)>) -> Option<usize> {
        let (first, last) = (*waiting)?;
        let next = self.runners[first].waits_before.take();
        *waiting = next.map(|next| (next, last));
        Some(first)
    }

    fn stop_waiting(&mut self, index: usize) {
        let runner = &mut self.runners[index];
        let wait = runner.wait.take().expect("it waits");
        let stall = wait.stall(self.now);
        runner.tally.stall_ns += stall.0;
        if runner.reading.is_some() {
            self.policy.waited(runner.reader, stall);
        }
    }

    /// A program's wait is over, and the given work follows.
    fn go_on(&mut self, index: usize, work: Nanos) {
        self.stop_waiting(index);
        self.runners[index].owed = Some(work);
        self.proceed_at(index, self.now);
    }

    /// E: the job that the program waited for has failed.
    fn fail(&mut self, index: usize) {
        self.runners[index].tally.errors += 1;
        self.go_on(index, Nanos::ZERO);
    }

    /// P: the prefetch that a program waited for has not brought its block.
    fn read_again(&mut self, index: usize, block: Block, at: usize) {
        self.stop_waiting(index);
        if let Some(job) = self.account.job_of(block) {
            // Another program has demanded it already.
            return self.wait_for(index, job, at);
        }
        self.devices[at].1.count_retry();
        self.fetch(index, block, at);
    }

    fn looked_up(&mut self, fetch: FetchId, file: FileId) {
        let size_bytes = self.sizes_bytes.get(&file).copied().unwrap_or(0);
        self.policy.completed(self.now, fetch, Outcome::Resolved { file, size_bytes });
    }

    /// Starts all fetches that the policy wants.
    fn prefetch(&mut self) {
        for at in 0..self.devices.len() {
            let device = self.devices[at].0;
            let mut started = false;
            while let Some(fetch) = self.policy.next_fetch(self.now, device) {
                assert_eq!(fetch.device, device, "a prefetch for another device");
                self.evict();
                match fetch.work {
                    Work::Read { .. } => self.start_prefetch(at, &fetch),
                    Work::Resolve { name } => self.start_lookup(at, fetch.id, name),
                }
                self.watchdog.count(self.now);
                started = true;
            }
            if started {
                self.begin(at);
            }
        }
    }

    /// Reads the inode of a name's file, unless it is known or in flight.
    fn start_lookup(&mut self, at: usize, fetch: FetchId, name: NameId) {
        let Some(&file) = self.names.get(&name) else {
            return self.policy.completed(self.now, fetch, Outcome::Refused);
        };
        self.lookups[at].in_turn.push_back((fetch, file));
        self.look_up_in_turn(at);
    }

    /// Starts lookups that wait at a device, as many as the bound allows. The device does not begin yet.
    fn look_up_in_turn(&mut self, at: usize) {
        while self.lookups[at].under_way < self.lookups_max {
            let Some((fetch, file)) = self.lookups[at].in_turn.pop_front() else { return };
            let metadata = MetadataBlock::Inode(file);
            let key = (at, self.devices[at].1.identity(metadata));
            match self.progress.get(&key) {
                None if self.metadata != Metadata::Known => {
                    let piece = Piece::Metadata(metadata);
                    let lookups = vec![(fetch, file)];
                    let job = Job { lookups, ..Job::prefetch(piece, at, None) };
                    let job_id = self.jobs.insert(job);
                    self.progress.insert(key, Progress::Coming(job_id));
                    self.devices[at].1.submit(job_id, Class::Prefetch, piece);
                    self.lookups[at].under_way += 1;
                }
                Some(&Progress::Coming(job)) => {
                    let job = self.jobs.get_mut(job).expect("what is on its way is under way");
                    job.lookups.push((fetch, file));
                    self.lookups[at].under_way += 1;
                }
                _ => self.looked_up(fetch, file),
            }
        }
    }

    fn start_prefetch(&mut self, at: usize, fetch: &Fetch) {
        let run = run_of(fetch);
        let piece = Piece::Blocks(run);
        let job = Job { in_driver: true, ..Job::prefetch(piece, at, Some(fetch.id)) };
        let job_id = self.jobs.insert(job);
        self.account.begin(run, job_id);
        let program = self.disclosers.get(&run.first.file).copied();
        self.submit_in_turn(program, job_id);
    }

    fn evict(&mut self) {
        while let Some(block) = self.policy.next_eviction() {
            self.account.evict(block);
        }
    }

    fn end(&mut self, index: usize) {
        let runner = &mut self.runners[index];
        for stream in runner.streams.drain(..).chain(runner.read_ahead.end()) {
            self.policy.close(self.now, stream);
        }
        self.running -= usize::from(!runner.background);
        runner.ended = Some(self.now);
        if self.noted_at_end_of.as_ref() == Some(&runner.name) {
            self.noted = self.runners.iter().map(|runner| runner.tally).collect();
        }
    }

    fn device_index(&self, device: DeviceId) -> usize {
        // Mostly there is only one.
        if let Some((first, _)) = self.devices.first()
            && *first == device
        {
            return 0;
        }
        let found = self.device_indices.get(&device).copied();
        found.unwrap_or_else(|| panic!("the machine has no {device:?}"))
    }

    fn report(&self) -> Report {
        let now = self.now;
        let program = |runner: &Runner| {
            let end = runner.ended.unwrap_or(now);
            ProgramReport {
                name: runner.name.clone(),
                start_ns: runner.start.0,
                elapsed_ns: end.saturating_sub(runner.start).0,
                ended: runner.ended.is_some(),
                tally: runner.tally,
            }
        };
        Report {
            end_ns: now.0,
            striper_ns: self.striper_work.0,
            programs: self.runners.iter().map(program).collect(),
            noted: self.noted.clone(),
            devices: self
                .devices
                .iter()
                .map(|(id, server)| server.report(id.0, self.now))
                .collect(),
            counts: self.policy.counts(),
        }
    }
}

/// The index of each device; of the first if several share a number.
fn first_indices(spec: &MachineSpec) -> HashMap<DeviceId, usize, Mix> {
    spec.devices.iter().enumerate().rev().map(|(index, (id, _))| (*id, index)).collect()
}

/// Future events, soonest first.
///
/// Mostly an event makes another one. So [`pop`](Events::pop) leaves the event on top of the heap. The next
/// [`push`](Events::push) replaces it and moves down from there, or the next `pop` removes it. If the new event is the soonest
/// again, nothing moves.
#[derive(Default)]
struct Events {
    heap: BinaryHeap<Reverse<Event>>,
    /// Whether the event on top has been taken out.
    first_is_over: bool,
    serials: u64,
}

impl Events {
    fn push(&mut self, at: Nanos, kind: Kind, index: usize, which: Key) {
        let turn = self.turn(kind);
        let index = u32::try_from(index).expect("less than 2^32 programs and devices");
        self.push_again(Event { at, turn, kind, index, which });
    }

    /// The next turn of its kind.
    fn turn(&mut self, kind: Kind) -> Turn {
        self.serials += 1;
        Turn::new(kind, self.serials)
    }

    /// Adds an event that has a turn.
    fn push_again(&mut self, event: Event) {
        if std::mem::take(&mut self.first_is_over)
            && let Some(mut first) = self.heap.peek_mut()
        {
            *first = Reverse(event);
        } else {
            self.heap.push(Reverse(event));
        }
    }

    fn pop(&mut self) -> Option<Event> {
        if self.first_is_over {
            self.heap.pop();
        }
        let first = self.heap.peek().map(|Reverse(event)| *event);
        self.first_is_over = first.is_some();
        first
    }
}

impl Run {
    /// Its first `blocks` blocks, and the others.
    fn split_at(self, blocks: u64) -> (Run, Run) {
        let Block { file, index } = self.first;
        // The first block of an empty run does not matter.
        let rest = Block { file, index: index.saturating_add(blocks) };
        (Run { blocks, ..self }, Run { first: rest, blocks: self.blocks - blocks })
    }
}

/// The blocks that `fetch` brings.
fn run_of(fetch: &Fetch) -> Run {
    match fetch.work {
        Work::Read { file, first_block, blocks } => {
            assert!(blocks > 0, "a fetch of nothing");
            Run { first: Block { file, index: first_block }, blocks }
        }
        Work::Resolve { .. } => panic!("a lookup brings no blocks"),
    }
}
