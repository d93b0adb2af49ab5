//! A fleet: nodes that read one data set of an object store, with or without a shared tier of cache servers.
//!
//! How many bytes leave the store, when has each node read all, and which component limits that? Two models answer:
//!
//! * [`events`]: each request of each node, for some millions of reads in all;
//! * [`fluid`]: rates instead of requests, for any number of nodes. Tests compare it with the events.
//!
//! The machine:
//!
//! * **Nodes** read the data in chunks, in the order that [`Reads`] says, with some requests in flight. A chunk is read when it
//!   has arrived; computing takes no time. A node's own cache keeps the first chunks that it has read, for later epochs. No
//!   cache can have more hits in shuffled epochs, since each chunk is used once in each.
//! * **The origin** takes so many requests a second, waits for a latency, and sends with a total bandwidth and a bandwidth of
//!   each response.
//! * **The tier** has servers, among which chunks are spread by hash. A node asks the chunk's server. If the chunk is missing,
//!   the first that asks gets a *lease* and fetches it from the origin; others ask again until it has put the chunk. If a
//!   lease ends before that, the next that waits gets one. From a holder that takes too long, one that waits takes it over.
//!   Requests of nodes that wait count as load, and do not queue. A full server keeps the chunks that will be read soonest, by
//!   the positions that nodes publish in batches.
//!
//! Links are served in order of arrival, and a chunk crosses two links at once (cut-through).
//!
//! Not here: writes, tails of latency, servers that fail, and fetching from other nodes. `docs/internals/fleet-model.md` has the
//! design.

pub mod events;
pub mod fluid;
mod plan;
mod servers;

use std::fmt;
use std::str::FromStr;

use foretell_policy::Nanos;
use serde::Serialize;
use thiserror::Error;

pub use plan::Plan;

/// Which node reads what, and in which order.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Reads {
    /// Every node reads all of the data, in one order that differs between epochs.
    Same,
    /// Every node reads all of the data, each in an order of its own.
    Shuffled,
    /// The nodes share one shuffled order: each epoch, a node reads another Nth part of the data.
    Partition,
    /// Each node has an Nth part of the data, which it shuffles in each epoch.
    Shards,
}

impl Reads {
    /// All orders, as help texts list them.
    pub const ALL: [Reads; 4] = [Reads::Same, Reads::Shuffled, Reads::Partition, Reads::Shards];

    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Reads::Same => "same",
            Reads::Shuffled => "shuffled",
            Reads::Partition => "partition",
            Reads::Shards => "shards",
        }
    }

    /// Whether each node reads all of the data in each epoch.
    pub fn is_whole(self) -> bool {
        matches!(self, Reads::Same | Reads::Shuffled)
    }
}

impl fmt::Display for Reads {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Reads {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Reads::ALL.into_iter().find(|reads| reads.name() == text).ok_or_else(|| {
            let known = Reads::ALL.map(Reads::name).join(", ");
            format!("unknown order {text:?}; known are {known}")
        })
    }
}

/// What each node can do.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Node {
    /// Bandwidth of its network link, in each direction.
    pub bytes_per_s: f64,
    /// Requests that it has in flight, at most.
    pub in_flight: u32,
    /// Its own cache.
    pub cache_bytes: u64,
}

/// The object store.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Origin {
    /// Bandwidth of all responses together.
    pub bytes_per_s: f64,
    /// Bandwidth of one response.
    pub stream_bytes_per_s: f64,
    /// Time to the first byte.
    pub latency: Nanos,
    /// Requests that it begins in a second.
    pub requests_per_s: f64,
}

/// The shared tier.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Tier {
    /// Number of servers.
    pub servers: u32,
    /// Bandwidth of each, in each direction.
    pub bytes_per_s: f64,
    /// Time of a request to a server and its answer, without queues and data.
    pub latency: Nanos,
    /// Requests that each answers in a second.
    pub requests_per_s: f64,
    /// Memory of each for chunks.
    pub memory_bytes: u64,
    /// How long a node may take to fetch a chunk, before another one is let try.
    pub lease: Nanos,
    /// Whether a node that still fetches has its lease renewed; then it ends only with the node.
    pub renews: bool,
    /// A node that waits asks again after a quarter of the time that it has waited, and at least [`AGAIN_MIN`] and at most
    /// this. With 0, it is told at once.
    pub again: Nanos,
    /// A node that has waited for one holder for so many leases takes the lease over. After four holders it fetches the chunk for
    /// itself, without a lease. 0 if it waits on.
    pub patience_leases: u32,
    /// Chunks that a node reads between two publications of its position.
    pub publish_chunks: u32,
}

/// The first pause of a node that waits.
pub const AGAIN_MIN: Nanos = Nanos(2_000_000);

/// A fleet and what it reads.
#[derive(Clone, Debug, PartialEq)]
pub struct FleetSpec {
    /// Number of nodes (N).
    pub nodes: u32,
    /// What each of them can do.
    pub node: Node,
    /// Chunks of the data; each is read by one request.
    pub chunks: u32,
    /// Bytes of a chunk.
    pub chunk_bytes: u64,
    /// The orders.
    pub reads: Reads,
    /// How often the data is read.
    pub epochs: u32,
    /// The object store.
    pub origin: Origin,
    /// The shared tier, if there is one.
    pub tier: Option<Tier>,
    /// Nodes that die with their leases when as many chunks have come from the origin as half of the data has; fewer, if fewer
    /// have leases.
    pub deaths: u32,
    /// Seed of the orders, and of the places of chunks on servers.
    pub seed: u64,
}

/// Why a fleet is impossible.
#[derive(Clone, Copy, Debug, PartialEq, Error)]
pub enum SpecError {
    /// A number is 0.
    #[error("there must be at least one {0}")]
    None(&'static str),
    /// A rate is no positive number.
    #[error("the {0} must be more than 0")]
    Rate(&'static str),
    /// All nodes would die.
    #[error("{deaths} of {nodes} nodes cannot die; at least one must read to the end")]
    Deaths {
        /// Nodes that die.
        deaths: u32,
        /// All nodes.
        nodes: u32,
    },
    /// The run is too large for events, and the fluid model cannot tell.
    #[error(
        "{reads} reads are more than the {reads_max} that are simulated one by one, and the fluid model does not know {what}; \
         take fewer nodes, less data or larger chunks"
    )]
    Fluid {
        /// What the fluid model does not know.
        what: &'static str,
        /// Reads of all nodes.
        reads: u64,
        /// The most that are simulated one by one.
        reads_max: u64,
    },
    /// Without a tier, there are no leases to die with.
    #[error("nodes die with a lease, which only servers give; take at least one server")]
    NoLease,
}

impl FleetSpec {
    /// Checks that the fleet is possible.
    ///
    /// # Errors
    /// [`SpecError`] says what is wrong.
    pub fn check(&self) -> Result<(), SpecError> {
        let counts = [
            (u64::from(self.nodes), "node"),
            (u64::from(self.node.in_flight), "request in flight"),
            (u64::from(self.chunks), "chunk"),
            (self.chunk_bytes, "byte in a chunk"),
            (u64::from(self.epochs), "epoch"),
        ];
        if let Some((_, what)) = counts.iter().find(|(count, _)| *count == 0) {
            return Err(SpecError::None(what));
        }
        let mut rates = vec![
            (self.node.bytes_per_s, "bandwidth of a node"),
            (self.origin.bytes_per_s, "bandwidth of the origin"),
            (self.origin.stream_bytes_per_s, "bandwidth of a response"),
            (self.origin.requests_per_s, "rate of the origin's requests"),
        ];
        if let Some(tier) = &self.tier {
            if tier.servers == 0 {
                return Err(SpecError::None("server"));
            }
            if tier.publish_chunks == 0 {
                return Err(SpecError::None("chunk between publications"));
            }
            rates.push((tier.bytes_per_s, "bandwidth of a server"));
            rates.push((tier.requests_per_s, "rate of a server's requests"));
            rates.push((tier.lease.as_secs(), "time of a lease"));
        }
        let wrong = |rate: f64| !rate.is_finite() || rate <= 0.0;
        if let Some((_, what)) = rates.iter().find(|(rate, _)| wrong(*rate)) {
            return Err(SpecError::Rate(what));
        }
        if self.deaths >= self.nodes {
            return Err(SpecError::Deaths { deaths: self.deaths, nodes: self.nodes });
        }
        if self.deaths > 0 && self.tier.is_none() {
            return Err(SpecError::NoLease);
        }
        Ok(())
    }

    /// Bytes of the data.
    pub fn data_bytes(&self) -> u64 {
        u64::from(self.chunks) * self.chunk_bytes
    }

    /// Reads of all nodes in all epochs.
    pub fn all_reads(&self) -> u64 {
        let readers = if self.reads.is_whole() { u64::from(self.nodes) } else { 1 };
        u64::from(self.chunks) * readers * u64::from(self.epochs)
    }

    /// Chunks that the tier has room for.
    pub fn tier_chunks(&self) -> u64 {
        let of = |tier: &Tier| u64::from(tier.servers) * (tier.memory_bytes / self.chunk_bytes);
        self.tier.as_ref().map_or(0, of)
    }

    /// Reads of the node that has most in an epoch.
    pub fn node_reads(&self) -> u32 {
        if self.reads.is_whole() { self.chunks } else { self.chunks.div_ceil(self.nodes) }
    }

    /// Chunks that a node must receive at least in all epochs: all but those that its own cache may have.
    fn received_chunks(&self) -> u64 {
        let each = u64::from(self.node_reads());
        let cached = (self.node.cache_bytes / self.chunk_bytes).min(each);
        each + u64::from(self.epochs - 1) * (each - cached)
    }

    /// Time of a fetch from the origin, with nothing else in flight.
    fn fetch_s(&self) -> f64 {
        self.origin.latency.as_secs() + self.chunk_bytes as f64 / self.origin.stream_bytes_per_s
    }

    /// The least time in which all nodes can have read all: the data leaves the origin once, each node receives what it lacks,
    /// and the bytes that the origin does not send come from the tier.
    pub fn bound(&self) -> Nanos {
        let bytes = self.chunk_bytes as f64;
        let received = self.received_chunks() as f64;
        let (data, origin) = (f64::from(self.chunks), &self.origin);
        let nodes = if self.reads.is_whole() { f64::from(self.nodes - self.deaths) } else { 1.0 };
        // What nodes receive that their own caches may not have.
        let all = if self.reads.is_whole() { received * nodes } else { data };
        let tier = self.tier.as_ref().map_or(0.0, |t| f64::from(t.servers) * t.bytes_per_s);
        let tier_requests =
            self.tier.as_ref().map_or(0.0, |t| f64::from(t.servers) * t.requests_per_s);
        let fastest = self.tier.as_ref().map_or(self.fetch_s(), |t| {
            (t.latency.as_secs() + bytes / t.bytes_per_s).min(self.fetch_s())
        });
        let received =
            if self.reads == Reads::Partition { f64::from(self.node_reads()) } else { received };
        let bounds = [
            if self.deaths == 0 { data * bytes / origin.bytes_per_s } else { 0.0 },
            if self.deaths == 0 { data / origin.requests_per_s } else { 0.0 },
            all * bytes / (origin.bytes_per_s + tier),
            all / (origin.requests_per_s + tier_requests),
            received * bytes / self.node.bytes_per_s,
            received * fastest / f64::from(self.node.in_flight),
        ];
        Nanos::from_secs(bounds.into_iter().fold(0.0, f64::max))
    }

    /// The model to use: events for no more than `reads_max` reads, and otherwise the fluid model.
    ///
    /// # Errors
    /// [`SpecError::Fluid`] if the fluid model cannot tell.
    pub fn model(&self, reads_max: u64) -> Result<Model, SpecError> {
        if self.all_reads() <= reads_max {
            return Ok(Model::Events);
        }
        let is_small = self.tier.is_some() && self.tier_chunks() < u64::from(self.chunks);
        let unknown = if self.deaths > 0 {
            Some("deaths")
        } else if self.tier.is_some_and(|tier| !tier.renews) {
            Some("leases that end")
        } else if self.may_lose_patience() {
            Some("nodes that lose patience, as the store's queue here may make them do")
        } else if self.reads == Reads::Same && is_small {
            Some("a tier that is smaller than the data that all nodes read in one order")
        } else {
            None
        };
        unknown.map_or(Ok(Model::Fluid), |what| {
            Err(SpecError::Fluid { what, reads: self.all_reads(), reads_max })
        })
    }

    /// Whether the origin's queue can be longer than the patience of nodes.
    fn may_lose_patience(&self) -> bool {
        let rate =
            self.origin.requests_per_s.min(self.origin.bytes_per_s / self.chunk_bytes as f64);
        let asked = f64::from(self.nodes) * f64::from(self.node.in_flight);
        let queue_s = asked.min(f64::from(self.chunks)) / rate + self.fetch_s();
        let patience_s = |tier: Tier| match tier.patience_leases {
            0 => f64::INFINITY,
            leases => f64::from(leases) * tier.lease.as_secs(),
        };
        self.tier.is_some_and(|tier| queue_s > patience_s(tier))
    }

    /// Runs a model. [`check`](Self::check) and [`model`](Self::model) must have succeeded.
    pub fn run(&self, model: Model) -> FleetReport {
        match model {
            Model::Events => events::run(self),
            Model::Fluid => fluid::run(self),
        }
    }
}

/// Which model a report is from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Model {
    /// Each request.
    Events,
    /// Rates.
    Fluid,
}

/// How busy the components were, as shares of the time until all was ready; for servers, until all was put.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub struct Shares {
    /// The origin's bandwidth.
    pub origin: f64,
    /// The origin's requests a second.
    pub origin_requests: f64,
    /// The link into the node that received most.
    pub node: f64,
    /// Bandwidth of the busiest server, in the busier direction.
    pub server: f64,
    /// Requests a second of the busiest server.
    pub server_requests: f64,
}

/// From this share on, a component is said to limit the fleet; or the origin and then the others, if their shares together are
/// as large.
const LIMITS: f64 = 0.8;

/// From this share on, a component has a part in that.
const LIMITS_IN_PART: f64 = 0.25;

impl Shares {
    /// The components that limit the fleet, the most important first.
    pub fn limits(&self) -> String {
        let mut all = [
            (self.origin, "origin's bandwidth"),
            (self.origin_requests, "origin's requests"),
            (self.node, "nodes' links"),
            (self.server, "servers' bandwidth"),
            (self.server_requests, "servers' requests"),
        ];
        all.sort_by(|a, b| b.0.total_cmp(&a.0));
        if all[0].0 >= LIMITS {
            return all[0].1.to_owned();
        }
        let origin = self.origin.max(self.origin_requests);
        let others = self.node.max(self.server).max(self.server_requests);
        if origin + others < LIMITS {
            return "requests in flight".to_owned();
        }
        let some = all.iter().filter(|(share, _)| *share >= LIMITS_IN_PART);
        let some: Vec<&str> = some.map(|(_, name)| *name).collect();
        some.join(", ")
    }
}

/// The outcome for a fleet.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct FleetReport {
    /// The model.
    pub model: Model,
    /// When the last node has read all.
    pub ready: Nanos,
    /// When a node has read all, on average.
    pub ready_mean: Nanos,
    /// Chunks that all nodes read.
    pub reads: u64,
    /// Of these, chunks from their own caches.
    pub from_cache: u64,
    /// Chunks from the tier.
    pub from_tier: u64,
    /// Chunks that left the origin: the other reads, and what was on its way to nodes that died.
    pub from_origin: u64,
    /// Leases that ended, or were taken over, before the chunk was there.
    pub leases_ended: u64,
    /// Fetches without a lease, by nodes that had waited for too many holders.
    pub without_lease: u64,
    /// How busy the components were.
    pub shares: Shares,
    /// Bytes that a server sent and received a second, on average over servers and time, and those of the busiest server.
    pub server_bytes_per_s: [f64; 2],
    /// Requests that a server got a second, likewise.
    pub server_requests_per_s: [f64; 2],
}

#[cfg(test)]
mod tests;
