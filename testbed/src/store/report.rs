//! What a store has done.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use hyper::Method;
use serde::Serialize;

/// What a store has done since it was started.
#[derive(Clone, Debug, Default, PartialEq, Serialize)]
pub struct StoreReport {
    /// Seconds since the start.
    pub elapsed_s: f64,
    /// All requests, including those that met a fault.
    pub requests: u64,
    /// GET of objects.
    pub gets: u64,
    /// HEAD of objects and buckets.
    pub heads: u64,
    /// GET of buckets and of the list of buckets: mostly pages of keys.
    pub lists: u64,
    /// PUT of objects and buckets.
    pub puts: u64,
    /// DELETE, and POST of lists of objects to delete.
    pub deletes: u64,
    /// Other requests.
    pub others: u64,
    /// Connections accepted.
    pub connections: u64,
    /// Bytes sent in bodies.
    pub bytes_sent: u64,
    /// The most requests in flight at once, each from the arrival of its head to the end of its answer.
    pub in_flight_max: u64,
    /// Answers with 503 on purpose.
    pub failed_503: u64,
    /// Connections reset on purpose, without those of an outage.
    pub resets: u64,
    /// Bodies cut short on purpose.
    pub truncated: u64,
    /// How much later than modelled the store handed over first bytes of GET and HEAD of objects, mean, in
    /// microseconds. If this is not small, the machine was too busy to measure clients on it.
    pub first_byte_late_us_mean: f64,
    /// How much later than modelled a first byte was handed over at most, in microseconds.
    pub first_byte_late_us_max: f64,
    /// First bytes that were more than a millisecond late.
    pub first_byte_late_over_1ms: u64,
}

/// The counters behind a [`StoreReport`].
#[derive(Debug)]
pub(super) struct Counters {
    since: Instant,
    gets: AtomicU64,
    heads: AtomicU64,
    lists: AtomicU64,
    puts: AtomicU64,
    deletes: AtomicU64,
    others: AtomicU64,
    in_flight: AtomicU64,
    in_flight_max: AtomicU64,
    pub(super) connections: AtomicU64,
    pub(super) bytes_sent: AtomicU64,
    pub(super) failed_503: AtomicU64,
    pub(super) resets: AtomicU64,
    pub(super) truncated: AtomicU64,
    late_count: AtomicU64,
    late_ns: AtomicU64,
    late_max_ns: AtomicU64,
    late_over_1ms: AtomicU64,
}

/// Adds one to a counter.
pub(super) fn count(counter: &AtomicU64) {
    counter.fetch_add(1, Ordering::Relaxed);
}

fn value(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Counters {
    pub(super) fn new(since: Instant) -> Self {
        let zero = AtomicU64::default;
        Counters {
            since,
            gets: zero(),
            heads: zero(),
            lists: zero(),
            puts: zero(),
            deletes: zero(),
            others: zero(),
            in_flight: zero(),
            in_flight_max: zero(),
            connections: zero(),
            bytes_sent: zero(),
            failed_503: zero(),
            resets: zero(),
            truncated: zero(),
            late_count: zero(),
            late_ns: zero(),
            late_max_ns: zero(),
            late_over_1ms: zero(),
        }
    }

    /// Counts a request that has arrived. Returns whether it reads an object; such requests should take no longer than
    /// modelled.
    pub(super) fn arrived(&self, method: &Method, path: &str) -> bool {
        let is_object = path.trim_start_matches('/').contains('/');
        count(match *method {
            Method::GET if is_object => &self.gets,
            Method::GET => &self.lists,
            Method::HEAD => &self.heads,
            Method::PUT => &self.puts,
            Method::DELETE | Method::POST => &self.deletes,
            _ => &self.others,
        });
        let now = self.in_flight.fetch_add(1, Ordering::Relaxed) + 1;
        self.in_flight_max.fetch_max(now, Ordering::Relaxed);
        is_object && matches!(*method, Method::GET | Method::HEAD)
    }

    /// Counts a request as finished.
    pub(super) fn left(&self) {
        self.in_flight.fetch_sub(1, Ordering::Relaxed);
    }

    /// Restarts `in_flight_max` with the requests in flight now.
    pub(super) fn reset_in_flight_max(&self) {
        self.in_flight_max.store(value(&self.in_flight), Ordering::Relaxed);
    }

    /// Counts a first byte that was handed over `late` after its time.
    pub(super) fn late(&self, late: Duration) {
        let nanos = u64::try_from(late.as_nanos()).unwrap_or(u64::MAX);
        count(&self.late_count);
        self.late_ns.fetch_add(nanos, Ordering::Relaxed);
        self.late_max_ns.fetch_max(nanos, Ordering::Relaxed);
        self.late_over_1ms.fetch_add(u64::from(nanos > 1_000_000), Ordering::Relaxed);
    }

    pub(super) fn report(&self) -> StoreReport {
        let [gets, heads, lists, puts, deletes, others] =
            [&self.gets, &self.heads, &self.lists, &self.puts, &self.deletes, &self.others]
                .map(value);
        StoreReport {
            elapsed_s: self.since.elapsed().as_secs_f64(),
            requests: gets + heads + lists + puts + deletes + others,
            gets,
            heads,
            lists,
            puts,
            deletes,
            others,
            connections: value(&self.connections),
            bytes_sent: value(&self.bytes_sent),
            in_flight_max: value(&self.in_flight_max),
            failed_503: value(&self.failed_503),
            resets: value(&self.resets),
            truncated: value(&self.truncated),
            first_byte_late_us_mean: value(&self.late_ns) as f64
                / 1e3
                / value(&self.late_count).max(1) as f64,
            first_byte_late_us_max: value(&self.late_max_ns) as f64 / 1e3,
            first_byte_late_over_1ms: value(&self.late_over_1ms),
        }
    }
}
