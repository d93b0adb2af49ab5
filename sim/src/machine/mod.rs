//! The simulated machine: programs, processors and devices in virtual time, under the real policy.
//!
//! The machine is a driver of [`Policy`] like the others, with [`Memory::Owned`]: it reads, fetches
//! and evicts as the policy says, and only time is modelled. The model is that of TIP 1995, section
//! 4.2: a read costs `T_hit`; if its block must come from the device, the program first pays
//! `T_driver` and then stalls until it is there. A prefetch is at its device at once, and its
//! `T_driver` is work for the processor of the program that disclosed the file.
//!
//! One event after another:
//! * a *service* has ended at a device: its blocks arrive, and who waited for them goes on;
//! * a *demand* request's `T_driver` is over: it goes to the device, and the stall begins;
//! * a *program* goes on with its next step, as soon as its processor is free.
//!
//! Events of one instant come in that order, and then in the order in which they were made, so that
//! a run is a function of its inputs. After each event the policy is asked for prefetches, device
//! by device, until it has none. The policy sees a read at its beginning; a block that was read may
//! give up its buffer from then on (a block waited for, from its arrival on).
//!
//! The machine keeps its own books of what is in memory or on its way (`account`) and panics if the
//! policy contradicts them: such a run has no result. *Not here*: names (hints give files) and
//! failures; every fetch arrives.

mod account;
mod processor;
pub mod program;
pub mod report;
pub mod server;
#[cfg(test)]
mod tests;

use std::cmp::Reverse;
use std::collections::{BinaryHeap, HashMap};

use foretell_policy::queue::Class;
use foretell_policy::{
    Access, Block, Config, Cost, DeviceId, Fetch, FetchId, FileId, Hint, HinterId, Memory, Nanos,
    Outcome, Policy, StreamId, Target, Work,
};

use account::Account;
use processor::{Processor, Wait};
use program::{Program, Step};
use report::{ProgramReport, Report, Tally};
use server::{DeviceSpec, Run, Server};

/// Whose processors are whose.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Processors {
    /// Each program has one of its own.
    #[default]
    Own,
    /// All programs share one; work is not interrupted.
    Shared,
}

/// Whose reads are taken for the streams of a program.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Readers {
    /// Its own, only.
    #[default]
    Hinter,
    /// Those of all programs: what one discloses another may read, as in the Advice Manager.
    Anybody,
}

/// What a machine is made of.
#[derive(Clone, Debug)]
pub struct MachineSpec {
    /// The policy and its memory, which must be [`Memory::Owned`].
    pub policy: Config,
    /// `T_hit`: processor time of reading a block that is in memory.
    pub hit: Nanos,
    /// `T_driver`: processor time of a fetch.
    pub driver: Nanos,
    /// Processors.
    pub processors: Processors,
    /// Devices, in the order in which the policy is asked for prefetches.
    pub devices: Vec<(DeviceId, DeviceSpec)>,
    /// Devices whose `T_disk` the policy has seen often before the programs start.
    pub known_costs: Vec<(DeviceId, Nanos)>,
    /// Whose reads are taken for a stream.
    pub readers: Readers,
}

impl MachineSpec {
    /// Processors of their own, and devices of which the policy knows nothing yet.
    pub fn new(
        policy: Config,
        hit: Nanos,
        driver: Nanos,
        devices: Vec<(DeviceId, DeviceSpec)>,
    ) -> Self {
        let (processors, readers) = (Processors::Own, Readers::Hinter);
        MachineSpec { policy, hit, driver, processors, devices, known_costs: Vec::new(), readers }
    }

    /// Runs `programs` until all that are not in the background have ended.
    pub fn run(&self, programs: Vec<Program>) -> Report {
        Machine::new(self, programs).run()
    }
}

/// Times that a known cost is observed: no trace of the policy's initial guess is left.
const KNOWN_SAMPLES: usize = 256;

/// What happens at an instant; earlier kinds first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Served,
    Demanded,
    Program,
}

/// An event. The order is that of the fields; `serial` decides between equals.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct Event {
    at: Nanos,
    kind: Kind,
    serial: u64,
    /// `Served`: device. `Demanded`: device. `Program`: program.
    index: usize,
    /// `Served`: service. `Demanded`: job.
    which: u64,
}

/// A fetch under way, or a read around the cache.
struct Job {
    run: Run,
    device: usize,
    /// `None`: around the cache.
    fetch: Option<FetchId>,
    waiting: Vec<usize>,
    /// Whether the demand request's `T_driver` still runs.
    in_driver: bool,
}

struct Runner {
    program: Program,
    processor: usize,
    streams: Vec<StreamId>,
    tally: Tally,
    wait: Option<Wait>,
    /// A block that was waited for has come and is to be read.
    arrived: bool,
    ended: Option<(Nanos, Vec<Tally>)>,
}

struct Machine {
    policy: Policy,
    account: Account,
    hit: Nanos,
    driver: Nanos,
    readers: Readers,
    devices: Vec<(DeviceId, Server)>,
    processors: Vec<Processor>,
    runners: Vec<Runner>,
    /// Programs not ended and not in the background.
    running: usize,
    jobs: HashMap<u64, Job>,
    /// The program that disclosed a file last.
    disclosers: HashMap<FileId, usize>,
    events: BinaryHeap<Reverse<Event>>,
    serials: u64,
    now: Nanos,
}

impl Machine {
    fn new(spec: &MachineSpec, programs: Vec<Program>) -> Self {
        assert_eq!(spec.policy.memory, Memory::Owned, "the machine's memory is its own");
        let mut policy = Policy::new(spec.policy);
        for &(device, disk) in &spec.known_costs {
            for _ in 0..KNOWN_SAMPLES {
                policy.observe(device, Cost::Hit, spec.hit);
                policy.observe(device, Cost::Driver, spec.driver);
                policy.observe(device, Cost::Disk, disk);
            }
        }
        let block_bytes = spec.policy.block_bytes;
        let server =
            |(id, device): &(DeviceId, DeviceSpec)| (*id, Server::new(device, block_bytes));
        let processors = if spec.processors == Processors::Own { programs.len() } else { 1 };
        let runner = |(index, program): (usize, Program)| Runner {
            program,
            processor: index % processors,
            streams: Vec::new(),
            tally: Tally::default(),
            wait: None,
            arrived: false,
            ended: None,
        };
        Machine {
            policy,
            account: Account::new(spec.policy.capacity_blocks),
            hit: spec.hit,
            driver: spec.driver,
            readers: spec.readers,
            devices: spec.devices.iter().map(server).collect(),
            processors: vec![Processor::default(); processors],
            running: programs.iter().filter(|program| !program.background).count(),
            runners: programs.into_iter().enumerate().map(runner).collect(),
            jobs: HashMap::new(),
            disclosers: HashMap::new(),
            events: BinaryHeap::new(),
            serials: 0,
            now: Nanos::ZERO,
        }
    }

    fn run(mut self) -> Report {
        for index in 0..self.runners.len() {
            self.proceed_at(index, self.runners[index].program.start);
        }
        while self.running > 0 {
            let next = self.events.pop();
            let Reverse(event) = next.expect("whoever waits is waited for by an event");
            assert!(event.at >= self.now, "time goes back");
            self.now = event.at;
            match event.kind {
                Kind::Served => self.served(event.index, event.which),
                Kind::Demanded => self.demanded(event.which),
                Kind::Program => self.proceed(event),
            }
            self.evict();
            self.prefetch();
        }
        self.report()
    }

    fn push(&mut self, at: Nanos, kind: Kind, index: usize, which: u64) {
        let serial = self.next_serial();
        self.events.push(Reverse(Event { at, kind, serial, index, which }));
    }

    fn next_serial(&mut self) -> u64 {
        self.serials += 1;
        self.serials
    }

    fn proceed_at(&mut self, index: usize, at: Nanos) {
        self.push(at, Kind::Program, index, 0);
    }

    /// The program's next step, or the rest of the last one.
    fn proceed(&mut self, event: Event) {
        let index = event.index;
        let free_at = self.processors[self.runners[index].processor].free_at();
        if free_at > self.now {
            // It keeps its serial number, and so its place among those who want the processor.
            self.events.push(Reverse(Event { at: free_at, ..event }));
            return;
        }
        let runner = &mut self.runners[index];
        if std::mem::take(&mut runner.arrived) {
            self.work_then_proceed(index, self.hit);
            return;
        }
        match runner.program.steps.next() {
            Some(Step::Read(block, device)) => self.read(index, block, device),
            Some(Step::Compute(work)) => self.work_then_proceed(index, work),
            Some(step) => {
                self.disclose(index, step);
                self.proceed_at(index, self.now);
            }
            None => self.end(index),
        }
    }

    fn work_then_proceed(&mut self, index: usize, work: Nanos) {
        let runner = &mut self.runners[index];
        runner.tally.cpu_ns += work.0;
        let end = self.processors[runner.processor].run(self.now, work).end;
        self.proceed_at(index, end);
    }

    fn disclose(&mut self, index: usize, step: Step) {
        let (now, runner) = (self.now, &mut self.runners[index]);
        let own = runner.program.reader;
        let hinter = HinterId(own.0);
        let reader = (self.readers == Readers::Hinter).then_some(own);
        match step {
            Step::Hint(hint) => {
                if runner.streams.is_empty() {
                    runner.streams.push(self.policy.open_stream(now, hinter, reader));
                }
                let stream = runner.streams[runner.streams.len() - 1];
                self.disclosers.insert(file_of(&hint), index);
                self.policy.hint(now, stream, hint);
            }
            Step::OpenStream => runner.streams.push(self.policy.open_stream(now, hinter, reader)),
            Step::Cancel => {
                if let Some(&stream) = runner.streams.last() {
                    self.policy.cancel(now, stream);
                }
            }
            Step::Read(..) | Step::Compute(_) => unreachable!("not a disclosure"),
        }
    }

    fn read(&mut self, index: usize, block: Block, device: DeviceId) {
        let at = self.device_index(device);
        let reader = self.runners[index].program.reader;
        let access = self.policy.read(self.now, reader, block, false);
        self.account.check_access(block, access);
        let tally = &mut self.runners[index].tally;
        tally.reads += 1;
        self.policy.observe(device, Cost::Hit, self.hit);
        match access {
            Access::Hit => {
                tally.hits += 1;
                tally.prefetched_hits += u64::from(self.account.take_unread(block));
                self.work_then_proceed(index, self.hit);
            }
            Access::InFlight => {
                tally.late += 1;
                let job_id = self.account.job_of(block);
                let job = self.jobs.get_mut(&job_id).expect("the account's jobs are under way");
                job.waiting.push(index);
                let in_driver = job.in_driver;
                self.runners[index].wait = Some(Wait::new(self.now));
                if !in_driver {
                    self.devices[at].1.promote(job_id);
                    self.begin(at);
                }
            }
            Access::Miss => self.miss(index, block, at),
        }
    }

    /// The block is fetched at demand priority, if it can be given a buffer, or read without.
    fn miss(&mut self, index: usize, block: Block, at: usize) {
        let device = self.devices[at].0;
        let fetch = self.policy.demand(self.now, device, block);
        self.evict();
        let job = self.next_serial();
        let run = Run { first: block, blocks: 1 };
        match fetch {
            Some(fetch) => {
                assert_eq!(fetch.device, device, "a demand fetch for another device");
                assert_eq!(run_of(&fetch), run, "a demand fetch for something else");
                self.account.begin(block, job);
            }
            None => {
                self.account.check_full(block);
                self.runners[index].tally.around += 1;
            }
        }
        let fetch = fetch.map(|fetch| fetch.id);
        let waiting = vec![index];
        self.jobs.insert(job, Job { run, device: at, fetch, waiting, in_driver: true });
        let runner = &mut self.runners[index];
        runner.tally.misses += 1;
        runner.tally.cpu_ns += self.driver.0;
        let end = self.processors[runner.processor].run(self.now, self.driver).end;
        runner.wait = Some(Wait::new(end));
        self.policy.observe(device, Cost::Driver, self.driver);
        self.push(end, Kind::Demanded, at, job);
    }

    fn demanded(&mut self, job_id: u64) {
        let job = self.jobs.get_mut(&job_id).expect("a job lasts until it is done");
        job.in_driver = false;
        let (at, run) = (job.device, job.run);
        self.devices[at].1.submit(job_id, Class::Demand, run);
        self.begin(at);
    }

    /// Lets a device begin what it can.
    fn begin(&mut self, at: usize) {
        for begun in self.devices[at].1.begin(self.now) {
            self.push(begun.end, Kind::Served, at, begun.service);
        }
    }

    fn served(&mut self, at: usize, service: u64) {
        let done = self.devices[at].1.ended(self.now, service);
        self.begin(at);
        let Some(done) = done else { return };
        let job = self.jobs.remove(&done.job).expect("a job is done once");
        if let Some(fetch) = job.fetch {
            for block in job.run.iter() {
                self.account.arrive(block, job.waiting.is_empty());
            }
            self.policy.completed(self.now, fetch, Outcome::Fetched);
        }
        self.policy.observe(self.devices[at].0, Cost::Disk, done.since_dispatch);
        for index in job.waiting {
            let runner = &mut self.runners[index];
            let wait = runner.wait.take().expect("it waits for this job");
            runner.tally.stall_ns += wait.stall(self.now).0;
            runner.arrived = true;
            self.proceed_at(index, self.now);
        }
    }

    /// Starts all that the policy wants to prefetch.
    fn prefetch(&mut self) {
        for at in 0..self.devices.len() {
            let device = self.devices[at].0;
            let mut started = false;
            while let Some(fetch) = self.policy.next_fetch(self.now, device) {
                assert_eq!(fetch.device, device, "a prefetch for another device");
                self.evict();
                self.start_prefetch(at, &fetch);
                started = true;
            }
            if started {
                self.begin(at);
            }
        }
    }

    fn start_prefetch(&mut self, at: usize, fetch: &Fetch) {
        let run = run_of(fetch);
        let job_id = self.next_serial();
        for block in run.iter() {
            self.account.begin(block, job_id);
        }
        let (fetch_id, waiting) = (Some(fetch.id), Vec::new());
        let job = Job { run, device: at, fetch: fetch_id, waiting, in_driver: false };
        self.jobs.insert(job_id, job);
        self.devices[at].1.submit(job_id, Class::Prefetch, run);
        self.policy.observe(fetch.device, Cost::Driver, self.driver);
        let discloser = self.disclosers.get(&run.first.file);
        if let Some(runner) = discloser.map(|&index| &mut self.runners[index])
            && runner.ended.is_none()
        {
            runner.tally.cpu_ns += self.driver.0;
            let work = self.processors[runner.processor].run(self.now, self.driver);
            if let Some(wait) = &mut runner.wait {
                wait.worked(work);
            }
        }
    }

    fn evict(&mut self) {
        while let Some(block) = self.policy.next_eviction() {
            self.account.evict(block);
        }
    }

    fn end(&mut self, index: usize) {
        let runner = &mut self.runners[index];
        for stream in runner.streams.drain(..) {
            self.policy.close(self.now, stream);
        }
        self.running -= usize::from(!runner.program.background);
        let tallies = self.runners.iter().map(|runner| runner.tally).collect();
        self.runners[index].ended = Some((self.now, tallies));
    }

    fn device_index(&self, device: DeviceId) -> usize {
        let found = self.devices.iter().position(|(id, _)| *id == device);
        found.unwrap_or_else(|| panic!("the machine has no {device:?}"))
    }

    fn report(self) -> Report {
        let now = self.now;
        let program = |runner: Runner| {
            let ended = runner.ended.is_some();
            let (end, others_at_end) = runner.ended.unwrap_or((now, Vec::new()));
            ProgramReport {
                name: runner.program.name,
                start_ns: runner.program.start.0,
                elapsed_ns: end.saturating_sub(runner.program.start).0,
                ended,
                tally: runner.tally,
                others_at_end,
            }
        };
        Report {
            end_ns: now.0,
            programs: self.runners.into_iter().map(program).collect(),
            devices: self.devices.iter().map(|(id, server)| server.report(id.0)).collect(),
            counts: self.policy.counts(),
        }
    }
}

impl Run {
    fn iter(self) -> impl Iterator<Item = Block> {
        let file = self.first.file;
        (0..self.blocks).map(move |ahead| Block { file, index: self.first.index + ahead })
    }
}

/// The blocks that `fetch` brings.
fn run_of(fetch: &Fetch) -> Run {
    match fetch.work {
        Work::Read { file, first_block, blocks } => {
            assert!(blocks > 0, "a fetch of nothing");
            Run { first: Block { file, index: first_block }, blocks }
        }
        Work::Resolve { .. } => panic!("hints name files here; there is nothing to look up"),
    }
}

fn file_of(hint: &Hint) -> FileId {
    match hint.target {
        Target::File { file, .. } => file,
        Target::Name(_) => panic!("hints name files here, not names"),
    }
}
