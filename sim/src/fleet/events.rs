//! The model of events: each request of each node.
//!
//! The way of a chunk without a tier is A, B, C, D:
//!
//! * A: the node asks the origin;
//! * B: the origin begins the request, waits, and sends;
//! * C: the last byte has left the origin or a server, and passes the node's link;
//! * D: the node has read the chunk, and asks for the next of its order.
//!
//! With a tier, the node asks a server first (E), which sends the chunk (C), gives a lease (then A to D follow), or lets it
//! wait. After D, the node puts the chunk into the server (F), which sends it to all that wait.
//!
//! Invariants: each read ends once, by the node's cache, the tier or the origin; nothing waits at the end.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use foretell_policy::Nanos;

use super::servers::{Answer, Server, Servers, Station, asked_again};
use super::{FleetReport, FleetSpec, Model, Plan, Shares, Tier};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Event {
    /// A: the request is at the origin.
    AtOrigin(u32, u32, Source),
    /// C: the last byte is at the node's link.
    AtNode(u32, u32, Source),
    /// D: the node has it.
    Read(u32, u32, Source),
    /// E: the request is at the server.
    AtServer(u32, u32),
    /// The answer that the node shall fetch the chunk is at the node.
    Leased(u32, u32),
    /// F: the last byte of a put chunk is at the server's link, and behind it.
    Putting(u32),
    Put(u32),
    /// The lease of this number ends.
    LeaseEnds(u32, u64),
    /// The node has waited since then, perhaps too long.
    Overdue(u32, u32, Nanos),
}

/// Where a chunk comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Source {
    Server,
    /// The origin, by a node that puts it into the server.
    Leased,
    /// The origin, by a node without a lease.
    Alone,
}

#[derive(Clone, Debug, Default)]
struct NodeState {
    next: u64,
    steps: u64,
    done: u64,
    in_flight: u32,
    input: Station,
    output: Station,
    is_dead: bool,
    ready: Nanos,
    /// Which chunks its own cache has, and how many more it has room for.
    cache: Vec<u64>,
    room: u32,
}

struct Fleet<'a> {
    spec: &'a FleetSpec,
    plan: Plan,
    now: Nanos,
    number: u64,
    events: BinaryHeap<Reverse<(Nanos, u64, Event)>>,
    nodes: Vec<NodeState>,
    origin_requests: Station,
    origin: Station,
    servers: Option<(Tier, Servers)>,
    times: Times,
    reads: u64,
    from_cache: u64,
    from_tier: u64,
    from_origin: u64,
    /// Chunks that have come from the origin.
    arrived: u64,
    leases_ended: u64,
    without_lease: u64,
    /// When the last chunk was put.
    put: Nanos,
}

/// Times of a chunk, or of a request, at each station.
#[derive(Clone, Copy, Debug)]
struct Times {
    origin_request: Nanos,
    origin: Nanos,
    stream: Nanos,
    node: Nanos,
    server_request: Nanos,
    server: Nanos,
}

/// Runs a fleet. [`FleetSpec::check`] must have succeeded.
pub fn run(spec: &FleetSpec) -> FleetReport {
    let mut fleet = Fleet::new(spec);
    for node in 0..spec.nodes {
        fleet.ask_on(node);
    }
    while let Some(Reverse((at, _, event))) = fleet.events.pop() {
        fleet.now = at;
        fleet.handle(event);
    }
    fleet.end()
}

impl<'a> Fleet<'a> {
    fn new(spec: &'a FleetSpec) -> Self {
        let plan = Plan::new(spec);
        let room = if spec.epochs > 1 { spec.node.cache_bytes / spec.chunk_bytes } else { 0 };
        let node = |node| NodeState {
            steps: plan.steps(node),
            cache: vec![0; if room > 0 { spec.chunks.div_ceil(64) as usize } else { 0 }],
            room: room.min(u64::from(spec.chunks)) as u32,
            ..NodeState::default()
        };
        let of = |bytes_per_s: f64| Nanos::from_secs(spec.chunk_bytes as f64 / bytes_per_s);
        let each = |requests_per_s: f64| Nanos::from_secs(1.0 / requests_per_s);
        let tier = spec.tier;
        Fleet {
            spec,
            plan,
            now: Nanos::ZERO,
            number: 0,
            events: BinaryHeap::new(),
            nodes: (0..spec.nodes).map(node).collect(),
            origin_requests: Station::default(),
            origin: Station::default(),
            servers: tier.map(|tier| (tier, Servers::new(spec, &tier, &plan))),
            times: Times {
                origin_request: each(spec.origin.requests_per_s),
                origin: of(spec.origin.bytes_per_s),
                stream: of(spec.origin.stream_bytes_per_s),
                node: of(spec.node.bytes_per_s),
                server_request: tier.map_or(Nanos::ZERO, |tier| each(tier.requests_per_s)),
                server: tier.map_or(Nanos::ZERO, |tier| of(tier.bytes_per_s)),
            },
            reads: 0,
            from_cache: 0,
            from_tier: 0,
            from_origin: 0,
            arrived: 0,
            leases_ended: 0,
            without_lease: 0,
            put: Nanos::ZERO,
        }
    }

    fn push(&mut self, at: Nanos, event: Event) {
        self.events.push(Reverse((at, self.number, event)));
        self.number += 1;
    }

    /// Half of the time to a server and back.
    fn way(&self) -> Nanos {
        self.servers.as_ref().map_or(Nanos::ZERO, |(tier, _)| Nanos(tier.latency.0 / 2))
    }

    /// The node asks for as much as it may have in flight.
    fn ask_on(&mut self, node: u32) {
        let state = &mut self.nodes[node as usize];
        if state.is_dead {
            return;
        }
        while state.in_flight < self.spec.node.in_flight && state.next < state.steps {
            let chunk = self.plan.chunk(node, state.next);
            state.next += 1;
            let (word, bit) = (chunk as usize / 64, chunk % 64);
            if state.cache.get(word).is_some_and(|word| word >> bit & 1 == 1) {
                state.done += 1;
                self.reads += 1;
                self.from_cache += 1;
                continue;
            }
            state.in_flight += 1;
            let (at, event) = match &self.servers {
                Some((tier, _)) => (Nanos(tier.latency.0 / 2), Event::AtServer(node, chunk)),
                None => {
                    let at = Nanos(self.spec.origin.latency.0 / 2);
                    (at, Event::AtOrigin(node, chunk, Source::Alone))
                }
            };
            self.events.push(Reverse((self.now + at, self.number, event)));
            self.number += 1;
        }
        if state.done == state.steps {
            state.ready = state.ready.max(self.now);
        }
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::AtOrigin(node, chunk, source) => {
                let times = self.times;
                self.from_origin += 1;
                let begun = self.origin_requests.serve(self.now, times.origin_request);
                let sent = self.origin.serve(begun, times.origin).max(begun + times.stream);
                let rest = Nanos(self.spec.origin.latency.0 - self.spec.origin.latency.0 / 2);
                self.push(sent + rest, Event::AtNode(node, chunk, source));
            }
            Event::AtNode(node, chunk, source) => {
                let times = self.times;
                let sent = if source == Source::Server { times.server } else { times.stream };
                let at = self.nodes[node as usize].input.pass(self.now, sent, times.node);
                self.push(at, Event::Read(node, chunk, source));
            }
            Event::Read(node, chunk, source) => self.read(node, chunk, source),
            Event::AtServer(node, chunk) => self.at_server(node, chunk),
            Event::Leased(node, chunk) => {
                if self.nodes[node as usize].is_dead {
                    return;
                }
                self.fetch(node, chunk, Source::Leased, self.now);
            }
            Event::Putting(chunk) => {
                let times = self.times;
                if let Some((_, servers)) = &mut self.servers {
                    let server = servers.of(chunk);
                    server.request(self.now, times.server_request);
                    let at = server.input.pass(self.now, times.node, times.server);
                    self.push(at, Event::Put(chunk));
                }
            }
            Event::Put(chunk) => {
                self.put = self.now;
                if let Some((_, servers)) = &mut self.servers {
                    let waiting = servers.put(chunk);
                    waiting.into_iter().for_each(|one| self.ask_again(one.node, chunk, one.since));
                }
            }
            Event::LeaseEnds(chunk, number) => self.lease_ends(chunk, number),
            Event::Overdue(node, chunk, since) => self.overdue(node, chunk, since),
        }
    }

    fn fetch(&mut self, node: u32, chunk: u32, source: Source, from: Nanos) {
        let at = from + Nanos(self.spec.origin.latency.0 / 2);
        self.push(at, Event::AtOrigin(node, chunk, source));
    }

    /// Counts the requests of a node that has waited since then, and returns when it asks next.
    fn count_again(&mut self, chunk: u32, since: Nanos) -> Nanos {
        let Some((tier, servers)) = &mut self.servers else { return self.now };
        let (count, next) = asked_again(since, self.now, tier.again);
        servers.of(chunk).count(count, self.times.server_request);
        next
    }

    /// A chunk is there that the node waits for.
    fn ask_again(&mut self, node: u32, chunk: u32, since: Nanos) {
        let at = self.count_again(chunk, since);
        if self.servers.as_ref().is_some_and(|(tier, _)| tier.again == Nanos::ZERO) {
            self.send(node, chunk, at);
        } else {
            self.push(at, Event::AtServer(node, chunk));
        }
    }

    /// D, and the beginning of F.
    fn read(&mut self, node: u32, chunk: u32, source: Source) {
        let state = &mut self.nodes[node as usize];
        if state.is_dead {
            return;
        }
        state.in_flight -= 1;
        state.done += 1;
        if state.room > 0 {
            state.room -= 1;
            state.cache[chunk as usize / 64] |= 1 << (chunk % 64);
        }
        self.reads += 1;
        self.from_tier += u64::from(source == Source::Server);
        if let Some((tier, servers)) = &mut self.servers {
            if state.done.is_multiple_of(u64::from(tier.publish_chunks)) {
                // What is in flight counts as read.
                servers.published[node as usize] = state.next as u32;
                servers.of(chunk).request(self.now, self.times.server_request);
            }
            if source == Source::Leased {
                let at = state.output.serve(self.now, self.times.node) + self.way();
                self.push(at, Event::Putting(chunk));
            }
        }
        let has_come = source != Source::Server;
        self.arrived += u64::from(has_come);
        if has_come && self.arrived == u64::from(self.spec.chunks).div_ceil(2) {
            self.die();
        }
        self.ask_on(node);
    }

    /// Nodes die that have leases.
    fn die(&mut self) {
        let Some((_, servers)) = &self.servers else { return };
        let mut left = self.spec.deaths;
        for lease in servers.leases.values() {
            let holder = &mut self.nodes[lease.holder as usize];
            if left > 0 && !holder.is_dead {
                holder.is_dead = true;
                left -= 1;
            }
        }
    }

    /// E.
    fn at_server(&mut self, node: u32, chunk: u32) {
        let Some((tier, servers)) = &mut self.servers else { return };
        if self.nodes[node as usize].is_dead {
            return;
        }
        let answered = servers.of(chunk).request(self.now, self.times.server_request);
        match servers.ask(node, chunk, self.now) {
            Answer::Held => self.send(node, chunk, answered),
            Answer::Leased(number) => self.give_lease(node, chunk, number, answered),
            Answer::Waits if tier.patience_leases > 0 => {
                let overdue = self.now + Nanos(tier.lease.0 * u64::from(tier.patience_leases));
                self.push(overdue, Event::Overdue(node, chunk, self.now));
            }
            Answer::Waits => (),
        }
    }

    fn give_lease(&mut self, node: u32, chunk: u32, number: u64, at: Nanos) {
        let Some((tier, _)) = &self.servers else { return };
        let ends = at + tier.lease;
        self.push(ends, Event::LeaseEnds(chunk, number));
        self.push(at + self.way(), Event::Leased(node, chunk));
    }

    fn lease_ends(&mut self, chunk: u32, number: u64) {
        let Some((tier, servers)) = &mut self.servers else { return };
        let Some(lease) = servers.leases.get_mut(&chunk).filter(|lease| lease.number == number)
        else {
            return;
        };
        if tier.renews && !self.nodes[lease.holder as usize].is_dead {
            let ends = self.now + tier.lease;
            self.push(ends, Event::LeaseEnds(chunk, number));
            return;
        }
        self.leases_ended += 1;
        // A dead node's connections are closed, so it does not wait.
        lease.waiting.retain(|one| !self.nodes[one.node as usize].is_dead);
        if let Some((node, since, number)) = servers.lease_again(chunk, self.now) {
            let at = self.count_again(chunk, since);
            self.give_lease(node, chunk, number, at);
            self.give_up(chunk);
        }
    }

    /// A node has waited for a chunk since then: if that is too long for the present holder, it takes the lease over.
    fn overdue(&mut self, node: u32, chunk: u32, since: Nanos) {
        let Some((tier, servers)) = &mut self.servers else { return };
        let Some(begun) = servers.holder_since(node, chunk, since) else { return };
        if self.nodes[node as usize].is_dead {
            return;
        }
        let due = begun.max(since) + Nanos(tier.lease.0 * u64::from(tier.patience_leases));
        if self.now < due {
            self.push(due, Event::Overdue(node, chunk, since));
            return;
        }
        let number = servers.take_over((node, since), chunk, self.now);
        self.leases_ended += 1;
        self.count_again(chunk, since);
        self.give_lease(node, chunk, number, self.now);
        self.give_up(chunk);
    }

    /// Nodes that have waited for too many holders fetch the chunk without a lease.
    fn give_up(&mut self, chunk: u32) {
        let Some((tier, servers)) = &mut self.servers else { return };
        let lost = if tier.patience_leases > 0 { servers.give_up(chunk) } else { Vec::new() };
        for one in lost {
            if !self.nodes[one.node as usize].is_dead {
                self.count_again(chunk, one.since);
                self.without_lease += 1;
                self.fetch(one.node, chunk, Source::Alone, self.now);
            }
        }
    }

    /// The chunk's server sends it to a node.
    fn send(&mut self, node: u32, chunk: u32, from: Nanos) {
        let way = self.way();
        let Some((_, servers)) = &mut self.servers else { return };
        if !self.nodes[node as usize].is_dead {
            let at = servers.of(chunk).output.serve(from, self.times.server);
            self.push(at + way, Event::AtNode(node, chunk, Source::Server));
        }
    }

    fn end(self) -> FleetReport {
        let alive = || self.nodes.iter().filter(|node| !node.is_dead);
        assert!(alive().all(|node| node.done == node.steps), "a node never finishes");
        let ready = alive().map(|node| node.ready).max().unwrap_or(Nanos::ZERO);
        let sum: f64 = alive().map(|node| node.ready.as_secs()).sum();
        // Puts may go on after the last read.
        let settled = ready.max(self.put);
        let seconds = settled.as_secs().max(1e-9);
        let busy =
            |station: &Station, time: Nanos| station.busy.as_secs() / time.as_secs().max(1e-9);
        let checked = |share: f64| {
            // What is on its way to a dead node may come later.
            assert!(share < 1.0 + 1e-9 || self.spec.deaths > 0, "a component did more than it can");
            share.min(1.0)
        };
        let share = |station: &Station| checked(busy(station, ready));
        let of_server = |station: &Station| checked(busy(station, settled));
        let none = Vec::new();
        let servers = self.servers.as_ref().map_or(&none, |(_, servers)| &servers.all);
        let most = |of: &dyn Fn(&Server) -> f64| servers.iter().map(of).fold(0.0, f64::max);
        let count = (servers.len() as f64).max(1.0);
        let mean = |of: &dyn Fn(&Server) -> f64| servers.iter().map(of).sum::<f64>() / count;
        let rate = self.servers.as_ref().map_or(0.0, |(tier, _)| tier.bytes_per_s);
        let bytes = |server: &Server| rate * (of_server(&server.output) + of_server(&server.input));
        let asked = |server: &Server| server.asked as f64 / seconds;
        FleetReport {
            model: Model::Events,
            ready,
            ready_mean: Nanos::from_secs(sum / alive().count() as f64),
            reads: self.reads,
            from_cache: self.from_cache,
            from_tier: self.from_tier,
            from_origin: self.from_origin,
            leases_ended: self.leases_ended,
            without_lease: self.without_lease,
            shares: Shares {
                origin: share(&self.origin),
                origin_requests: share(&self.origin_requests),
                node: alive().map(|node| share(&node.input)).fold(0.0, f64::max),
                server: most(&|server| of_server(&server.output).max(of_server(&server.input))),
                // Requests of nodes that wait do not queue, so there may be more than are answered.
                server_requests: most(&|server| busy(&server.requests, settled)).min(1.0),
            },
            server_bytes_per_s: [mean(&bytes), most(&bytes)],
            server_requests_per_s: [mean(&asked), most(&asked)],
        }
    }
}
