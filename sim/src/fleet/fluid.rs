//! The fluid model: rates instead of requests, so that a fleet of any size takes a moment.
//!
//! All nodes are alike, and read at a rate r. Of their reads, a share q misses the tier. Misses of one chunk at a time are one
//! fetch; on average m nodes wait for a fetch. So the origin gets N·r·q/m fetches, and the servers send N·r·(1 − q/m) chunks.
//! The rate is the greatest that no component forbids (`Fluid::rate`).
//!
//! What differs between the orders is q:
//!
//! * A, *shuffled, while the tier fills*: with a part h of the data in the tier, of which each node has read p, the tier lacks
//!   (1 − h)/(1 − p) of what the node has not read. h and p grow as the rates say, in small steps. Nodes that run into
//!   misses wait in all their requests for the origin: filling and spreading come one after the other.
//! * B, *shuffled, a full tier that holds a share f*: each chunk is used N times at random, and the tier keeps those that are
//!   used again soonest. If gaps between uses are exponential, it keeps gaps up to θ with 1 − (1 + θ)·e^−θ = f, and
//!   1 − e^−θ of reads hit. Positions that are published less often than a chunk is used say nothing; then f of reads hit.
//! * C, *same*: one node fetches each chunk, and all wait for it. The fleet has no more in flight at the origin than one node.
//! * D, *partition and shards*: no chunk is read twice in an epoch. Later epochs find a share f in the tier.
//!
//! Not here: leases that end, deaths, lost patience, and what a tier smaller than the data keeps in case C.

use foretell_policy::Nanos;

use super::servers::places;
use super::{FleetReport, FleetSpec, Model, Reads, Shares};

/// Steps in which the tier is filled.
const STEPS: u32 = 2000;

/// Rounds in which the rate and the waiting nodes are brought into agreement.
const ROUNDS: u32 = 60;

/// What the model knows of the fleet; times in seconds.
struct Fluid<'a> {
    spec: &'a FleetSpec,
    nodes: f64,
    chunks: f64,
    slots: f64,
    /// Fetches that the origin serves in a second.
    origin_rate: f64,
    /// Chunks that a node's link takes in a second.
    node_rate: f64,
    /// Chunks that all servers send in a second, if the busiest works all the time; infinite without a tier.
    server_rate: f64,
    server_requests: f64,
    /// Times of a hit in the tier and of a fetch, without queues.
    hit_s: f64,
    miss_s: f64,
    /// Share of the data for which the tier has room.
    room: f64,
    /// Chunks of the busiest server, by those of an average one.
    unevenness: f64,
    at: Standing,
}

/// Sums so far: seconds and chunks.
#[derive(Clone, Copy, Debug, Default)]
struct Standing {
    seconds: f64,
    from_cache: f64,
    from_tier: f64,
    from_origin: f64,
    requests: f64,
}

/// Runs a fleet. [`FleetSpec::check`] and [`FleetSpec::model`] must have succeeded.
pub fn run(spec: &FleetSpec) -> FleetReport {
    let mut fluid = Fluid::new(spec);
    for epoch in 0..spec.epochs {
        fluid.epoch(epoch);
    }
    fluid.report()
}

impl<'a> Fluid<'a> {
    fn new(spec: &'a FleetSpec) -> Self {
        let bytes = spec.chunk_bytes as f64;
        let origin = &spec.origin;
        let mut fluid = Fluid {
            spec,
            nodes: f64::from(spec.nodes),
            chunks: f64::from(spec.chunks),
            slots: f64::from(spec.node.in_flight),
            origin_rate: (origin.bytes_per_s / bytes).min(origin.requests_per_s),
            node_rate: spec.node.bytes_per_s / bytes,
            server_rate: f64::INFINITY,
            server_requests: f64::INFINITY,
            hit_s: 0.0,
            miss_s: spec.fetch_s().max(bytes / spec.node.bytes_per_s),
            room: 0.0,
            unevenness: 1.0,
            at: Standing::default(),
        };
        if let Some(tier) = &spec.tier {
            let servers = f64::from(tier.servers);
            let mut counts = vec![0u32; tier.servers as usize];
            places(spec, tier).iter().for_each(|&server| counts[server as usize] += 1);
            let most = counts.iter().copied().max().unwrap_or(0);
            fluid.unevenness = f64::from(most) * servers / fluid.chunks;
            fluid.server_rate = servers * tier.bytes_per_s / bytes / fluid.unevenness;
            fluid.server_requests = servers * tier.requests_per_s / fluid.unevenness;
            let slower = tier.bytes_per_s.min(spec.node.bytes_per_s);
            fluid.hit_s = tier.latency.as_secs() + bytes / slower;
            fluid.miss_s += tier.latency.as_secs();
            fluid.room = (spec.tier_chunks() as f64 / fluid.chunks).min(1.0);
        }
        fluid
    }

    /// Chunks that a node reads in an epoch, without those in its own cache.
    fn reads(&self, epoch: u32) -> (f64, f64) {
        let each = if self.spec.reads.is_whole() { self.chunks } else { self.chunks / self.nodes };
        let room = (self.spec.node.cache_bytes / self.spec.chunk_bytes) as f64;
        let hits = match self.spec.reads {
            _ if epoch == 0 => 0.0,
            Reads::Partition => {
                let seen = 1.0 - (1.0 - 1.0 / self.nodes).powf(f64::from(epoch));
                each * (room / self.chunks).min(seen)
            }
            _ => room.min(each),
        };
        (each - hits, hits)
    }

    fn epoch(&mut self, epoch: u32) {
        let (reads, cached) = self.reads(epoch);
        self.at.from_cache += cached * self.nodes;
        let reads_of = self.spec.reads;
        if self.spec.tier.is_none() {
            self.read(reads, 1.0, 1.0);
        } else if !reads_of.is_whole() {
            self.read(reads, if epoch == 0 { 1.0 } else { 1.0 - self.room }, 1.0); // D
        } else if epoch > 0 && self.room >= 1.0 {
            self.read(reads, 0.0, 1.0);
        } else if reads_of == Reads::Same {
            self.read(reads, 1.0, self.nodes); // C
        } else {
            self.shuffled(reads, epoch);
        }
        if epoch == 0 {
            self.at.seconds += self.spec.origin.latency.as_secs(); // Before the first chunk.
        }
    }

    /// A and B.
    fn shuffled(&mut self, reads: f64, epoch: u32) {
        let (mut held, mut read) = (if epoch == 0 { 0.0 } else { self.room }, 0.0);
        while held < self.room && read < reads {
            let missing = (self.chunks * (1.0 - held)).max(1.0);
            let misses = ((1.0 - held) / (1.0 - read / self.chunks)).clamp(0.0, 1.0);
            let (rate, together, waiting) = self.rate(misses, 0.0, missing);
            // At most one step of what the tier or the node has ahead of it.
            let fetched = self.nodes * misses / together / self.chunks;
            let step = (1.0 / f64::from(STEPS) / fetched)
                .min(self.chunks / f64::from(STEPS))
                .min((reads - read).max(1e-9))
                .min((self.room - held).max(1e-9) / fetched);
            self.advance(step, rate, misses, together, waiting);
            read += step;
            held += step * fetched;
        }
        let left = reads - read;
        if left > 0.0 && self.room >= 1.0 {
            self.read(left, 0.0, 1.0);
        } else if left > 0.0 {
            let missing = self.chunks * (1.0 - self.room);
            let misses = 1.0 - self.kept_hits();
            let (rate, together, waiting) = self.rate(misses, 0.0, missing);
            self.advance(left, rate, misses, together, waiting);
        }
    }

    /// B: the share of reads that hit a full tier.
    fn kept_hits(&self) -> f64 {
        let share = self.room;
        let (mut below, mut above) = (0.0, 64.0);
        for _ in 0..60 {
            let gap: f64 = (below + above) / 2.0;
            if 1.0 - (1.0 + gap) * (-gap).exp() < share { below = gap } else { above = gap }
        }
        let best = 1.0 - (-below).exp();
        let publish = self.spec.tier.map_or(1.0, |tier| f64::from(tier.publish_chunks));
        let known = 1.0 / (1.0 + publish * self.nodes / self.chunks);
        known * best + (1.0 - known) * share
    }

    /// Each node reads so many chunks, of which a share misses; `together` nodes wait for each fetch.
    fn read(&mut self, reads: f64, misses: f64, together: f64) {
        let (rate, _, waiting) = self.rate(misses, together, self.chunks);
        self.advance(reads, rate, misses, together, waiting);
    }

    /// So many reads of each node, of which `waiting` wait at a time for chunks that others fetch.
    fn advance(&mut self, reads: f64, rate: f64, misses: f64, together: f64, waiting: f64) {
        let all = reads * self.nodes;
        self.at.seconds += reads / rate;
        self.at.from_origin += all * misses / together;
        if let Some(tier) = &self.spec.tier {
            self.at.from_tier += all * (1.0 - misses / together);
            self.at.requests += all * (1.0 + misses / together);
            if tier.again > Nanos::ZERO {
                self.at.requests += self.nodes * waiting * (reads / rate) / tier.again.as_secs();
            }
        }
    }

    /// The rate at which each node reads; how many nodes wait for a fetch: `together`, or if that is 0, as many as follows
    /// from the requests that wait for chunks of `missing`; and requests of each node that wait for what others fetch.
    fn rate(&self, misses: f64, together: f64, missing: f64) -> (f64, f64, f64) {
        let mut m = if together > 0.0 { together } else { 1.0 };
        let (mut rate, mut waits) = (0.0, 0.0);
        for _ in 0..ROUNDS {
            let from_servers = (1.0 - misses / m).max(0.0);
            let origin = self.origin_rate * m / (self.nodes * misses);
            // A fetch that others wait for must also be put and sent.
            let miss_s = self.miss_s + if m > 1.5 { self.hit_s } else { 0.0 };
            let others = [
                self.node_rate,
                self.slots / ((1.0 - misses) * self.hit_s + misses * miss_s),
                self.server_rate / (self.nodes * from_servers),
                self.server_requests / (self.nodes * (1.0 + misses / m)),
            ];
            let other = others.into_iter().fold(f64::INFINITY, f64::min);
            rate = origin.min(other);
            // If the origin is the bound, all requests come to wait for it.
            let all = (self.slots - rate * (1.0 - misses) * self.hit_s).max(0.0);
            let waiting = if origin < other { all } else { (rate * misses * miss_s).min(all) };
            waits = waiting * (1.0 - 1.0 / m);
            if together > 0.0 || misses <= 0.0 {
                break;
            }
            let each = self.nodes * waiting / missing;
            let next = if each < 1e-6 { 1.0 } else { each / -(-each).exp_m1() };
            m = (m + next.min(self.nodes)) / 2.0;
        }
        (rate, m, waits)
    }

    fn report(&self) -> FleetReport {
        let Standing { seconds, from_cache, from_tier, from_origin, requests } = self.at;
        let (spec, bytes) = (self.spec, self.spec.chunk_bytes as f64);
        let servers = spec.tier.map_or(1.0, |tier| f64::from(tier.servers));
        let is_tier = f64::from(u8::from(spec.tier.is_some()));
        // Puts may take longer than all reads.
        let put_s = from_origin / self.server_rate;
        let settled = seconds.max(put_s);
        let sent = from_tier * bytes / servers / settled;
        let put = is_tier * from_origin * bytes / servers / settled;
        let asked = requests / servers / settled;
        let of_server = |rate: f64, most: f64| if rate.is_finite() { most / rate } else { 0.0 };
        let rates = spec
            .tier
            .map_or((f64::INFINITY, f64::INFINITY), |tier| (tier.bytes_per_s, tier.requests_per_s));
        let uneven = self.unevenness;
        FleetReport {
            model: Model::Fluid,
            ready: Nanos::from_secs(seconds),
            ready_mean: Nanos::from_secs(seconds),
            reads: spec.all_reads(),
            from_cache: from_cache.round() as u64,
            from_tier: from_tier.round() as u64,
            from_origin: from_origin.round() as u64,
            leases_ended: 0,
            without_lease: 0,
            shares: Shares {
                origin: from_origin * bytes / spec.origin.bytes_per_s / seconds,
                origin_requests: from_origin / spec.origin.requests_per_s / seconds,
                node: (from_tier + from_origin) / self.nodes / self.node_rate / seconds,
                server: of_server(rates.0, uneven * sent.max(put)),
                server_requests: of_server(rates.1, uneven * asked).min(1.0),
            },
            server_bytes_per_s: [sent + put, uneven * (sent + put)],
            server_requests_per_s: [asked, uneven * asked],
        }
    }
}
