//! The shared tier's state: which chunks are held, who fetches the others, and who waits for them.
//!
//! A full server keeps the chunks whose next reader is nearest, by published positions. It compares the new chunk with
//! [`SAMPLE`] others, as Redis does, since an exact order would change with each publication.

use std::collections::{BTreeMap, VecDeque};

use foretell_policy::Nanos;

use super::{AGAIN_MIN, FleetSpec, Plan, Tier};
use crate::random::{SplitMix64, hash};

/// Chunks that an eviction compares.
const SAMPLE: usize = 16;

/// A node waits for so many holders of a chunk, one after another, if it has any patience to lose.
const HOLDERS_MAX: u32 = 4;

/// The place of a chunk that is not held.
const NOWHERE: u32 = u32::MAX;

/// A link or processor that serves in order of arrival.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Station {
    free: Nanos,
    pub(super) busy: Nanos,
}

impl Station {
    /// The end of a service that arrives now.
    pub(super) fn serve(&mut self, now: Nanos, service: Nanos) -> Nanos {
        self.busy += service;
        self.free = self.free.max(now) + service;
        self.free
    }

    /// The end of a transfer whose last byte arrives now, and which the sender took `sent` for: it crosses both links at once.
    pub(super) fn pass(&mut self, now: Nanos, sent: Nanos, service: Nanos) -> Nanos {
        self.busy += service;
        let begun = self.free.max(now.saturating_sub(sent.min(service)));
        self.free = begun + service;
        self.free
    }
}

/// A server.
#[derive(Debug, Default)]
pub(super) struct Server {
    pub(super) requests: Station,
    pub(super) output: Station,
    pub(super) input: Station,
    /// Requests that it got.
    pub(super) asked: u64,
    held: Vec<u32>,
}

impl Server {
    /// Counts requests that do not queue.
    pub(super) fn count(&mut self, requests: u64, service: Nanos) {
        self.asked += requests;
        self.requests.busy += Nanos(service.0 * requests);
    }

    /// The end of the service of a request that arrives now.
    pub(super) fn request(&mut self, now: Nanos, service: Nanos) -> Nanos {
        self.asked += 1;
        self.requests.serve(now, service)
    }
}

/// A chunk that is being fetched.
#[derive(Debug)]
pub(super) struct Lease {
    /// Tells this lease from earlier ones of the chunk.
    pub(super) number: u64,
    pub(super) holder: u32,
    pub(super) begun: Nanos,
    pub(super) waiting: Waiting,
}

/// A node that waits for a chunk.
#[derive(Clone, Copy, Debug)]
pub(super) struct Waiter {
    pub(super) node: u32,
    pub(super) since: Nanos,
    /// Holders that it has waited for, the present one included.
    holders: u32,
}

pub(super) type Waiting = VecDeque<Waiter>;

/// What a server does with a request.
pub(super) enum Answer {
    /// It sends the chunk.
    Held,
    /// The node gets a lease of this number.
    Leased(u64),
    /// The node waits.
    Waits,
}

pub(super) struct Servers {
    pub(super) all: Vec<Server>,
    /// Of each chunk: its server, and its place there.
    server_of: Vec<u32>,
    place: Vec<u32>,
    pub(super) leases: BTreeMap<u32, Lease>,
    numbers: u64,
    /// Chunks that a server has room for.
    room: usize,
    /// If not all chunks have room: the steps at which nodes read each chunk, in order, and how many of them are over.
    uses: Vec<Vec<(u32, u32)>>,
    over: Vec<u32>,
    /// The steps that nodes have published.
    pub(super) published: Vec<u32>,
    random: SplitMix64,
}

/// How often a node that waits since then has asked again before `now`, and when it does so next.
pub(super) fn asked_again(since: Nanos, now: Nanos, most: Nanos) -> (u64, Nanos) {
    if most == Nanos::ZERO {
        return (0, now);
    }
    let (mut at, mut count) = (since, 0);
    loop {
        let pause = Nanos((at - since).0 / 4).max(AGAIN_MIN.min(most)).min(most);
        if pause == most && at + most < now {
            // From here on, all pauses are the same.
            let more = (now - at).0.div_ceil(most.0);
            return (count + more - 1, at + Nanos(most.0 * more));
        }
        at += pause;
        if at >= now {
            return (count, at);
        }
        count += 1;
    }
}

/// The servers of all chunks, by hash.
pub(super) fn places(spec: &FleetSpec, tier: &Tier) -> Vec<u32> {
    let server = |chunk: u32| hash(&[spec.seed, u64::MAX, u64::from(chunk)]);
    (0..spec.chunks).map(|chunk| (server(chunk) % u64::from(tier.servers)) as u32).collect()
}

impl Servers {
    pub(super) fn new(spec: &FleetSpec, tier: &Tier, plan: &Plan) -> Self {
        let server_of = places(spec, tier);
        let room = (tier.memory_bytes / spec.chunk_bytes) as usize;
        let mut counts = vec![0; tier.servers as usize];
        server_of.iter().for_each(|&server| counts[server as usize] += 1);
        let mut uses = Vec::new();
        if counts.iter().any(|&count: &usize| count > room) {
            uses = vec![Vec::new(); spec.chunks as usize];
            for node in 0..spec.nodes {
                for step in 0..plan.steps(node) {
                    uses[plan.chunk(node, step) as usize].push((step as u32, node));
                }
            }
            uses.iter_mut().for_each(|uses| uses.sort_unstable());
        }
        Servers {
            all: (0..tier.servers).map(|_| Server::default()).collect(),
            server_of,
            place: vec![NOWHERE; spec.chunks as usize],
            leases: BTreeMap::new(),
            numbers: 0,
            room,
            over: vec![0; uses.len()],
            uses,
            published: vec![0; spec.nodes as usize],
            random: SplitMix64::new(hash(&[spec.seed, u64::MAX])),
        }
    }

    pub(super) fn of(&mut self, chunk: u32) -> &mut Server {
        &mut self.all[self.server_of[chunk as usize] as usize]
    }

    pub(super) fn ask(&mut self, node: u32, chunk: u32, now: Nanos) -> Answer {
        if self.place[chunk as usize] != NOWHERE {
            return Answer::Held;
        }
        if let Some(lease) = self.leases.get_mut(&chunk) {
            lease.waiting.push_back(Waiter { node, since: now, holders: 1 });
            return Answer::Waits;
        }
        Answer::Leased(self.lease(node, chunk, Waiting::new(), now))
    }

    fn lease(&mut self, holder: u32, chunk: u32, mut waiting: Waiting, now: Nanos) -> u64 {
        self.numbers += 1;
        waiting.iter_mut().for_each(|waiter| waiter.holders += 1);
        self.leases.insert(chunk, Lease { number: self.numbers, holder, begun: now, waiting });
        self.numbers
    }

    /// A lease has ended: the next node that waits gets one.
    pub(super) fn lease_again(&mut self, chunk: u32, now: Nanos) -> Option<(u32, Nanos, u64)> {
        let mut waiting = self.leases.remove(&chunk)?.waiting;
        let Waiter { node, since, .. } = waiting.pop_front()?;
        Some((node, since, self.lease(node, chunk, waiting, now)))
    }

    /// When the present holder has its lease, if the node has waited for the chunk since then, and still does.
    pub(super) fn holder_since(&self, node: u32, chunk: u32, since: Nanos) -> Option<Nanos> {
        let lease = self.leases.get(&chunk)?;
        let waits = |one: &Waiter| (one.node, one.since) == (node, since);
        lease.waiting.iter().any(waits).then_some(lease.begun)
    }

    /// A node that has waited since then takes a lease over.
    pub(super) fn take_over(&mut self, (node, since): (u32, Nanos), chunk: u32, now: Nanos) -> u64 {
        let lease = self.leases.remove(&chunk);
        let mut waiting = lease.map_or_else(Waiting::new, |lease| lease.waiting);
        // It may wait for the chunk twice, at the end of an epoch.
        let taker = waiting.iter().position(|one| (one.node, one.since) == (node, since));
        taker.and_then(|at| waiting.remove(at));
        self.lease(node, chunk, waiting, now)
    }

    /// The nodes that have waited for too many holders of this chunk. They wait no longer.
    pub(super) fn give_up(&mut self, chunk: u32) -> Vec<Waiter> {
        let Some(lease) = self.leases.get_mut(&chunk) else { return Vec::new() };
        let has_lost = |one: &Waiter| one.holders > HOLDERS_MAX;
        let lost = lease.waiting.iter().copied().filter(has_lost).collect();
        lease.waiting.retain(|one| !has_lost(one));
        lost
    }

    /// A chunk has been put. Returns the nodes that wait for it.
    pub(super) fn put(&mut self, chunk: u32) -> Waiting {
        let waiting = self.leases.remove(&chunk).map(|lease| lease.waiting);
        if self.place[chunk as usize] == NOWHERE {
            self.insert(chunk);
        }
        waiting.unwrap_or_default()
    }

    fn insert(&mut self, chunk: u32) {
        let index = self.server_of[chunk as usize] as usize;
        let held = self.all[index].held.len();
        if held < self.room {
            self.place[chunk as usize] = held as u32;
            self.all[index].held.push(chunk);
            return;
        }
        if self.room == 0 {
            return;
        }
        let (mut latest, mut victim) = (self.distance(chunk), None);
        for _ in 0..SAMPLE.min(held) {
            let place = self.random.below(held as u64) as usize;
            let distance = self.distance(self.all[index].held[place]);
            if distance > latest {
                (latest, victim) = (distance, Some(place));
            }
        }
        if let Some(place) = victim {
            let evicted = std::mem::replace(&mut self.all[index].held[place], chunk);
            self.place[evicted as usize] = NOWHERE;
            self.place[chunk as usize] = place as u32;
        }
    }

    /// Steps until the next read of a chunk, as far as positions are published.
    fn distance(&mut self, chunk: u32) -> u32 {
        let uses = &self.uses[chunk as usize];
        let over = &mut self.over[chunk as usize];
        while let Some(&(step, node)) = uses.get(*over as usize) {
            if step >= self.published[node as usize] {
                return step - self.published[node as usize];
            }
            *over += 1;
        }
        u32::MAX
    }
}
