//! Device queues: which waiting request a device serves next.
//!
//! A queue holds the requests that wait for one device. When the device has a free slot, the queue says which request goes
//! next. Demand requests always go before prefetches; within a class the queue's discipline decides. At most `outstanding_max`
//! requests are at the device at once (the TIP papers use 5 per disk). So a demand request never waits behind a deep queue that
//! was already handed over.
//!
//! Disciplines ([`Order`]): first come first served, SCAN (the elevator, which turns round at the last request; the literature
//! also calls it LOOK), C-LOOK (one direction, then back to the lowest position) and SSTF (nearest position first).
//!
//! Cost: `push` and `pop` are O(log n) in the number of waiting requests.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;

/// The discipline of a [`DeviceQueue`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Order {
    /// In order of arrival.
    Fifo,
    /// The elevator: keeps its direction while requests lie ahead, then turns.
    Scan,
    /// Upwards only; from the highest waiting position back to the lowest.
    CLook,
    /// The waiting position nearest to the last one served; of two equally near, the lower.
    Sstf,
}

impl Order {
    /// All disciplines, in the order in which help texts list them.
    pub const ALL: [Order; 4] = [Order::Fifo, Order::Scan, Order::CLook, Order::Sstf];

    /// The name used on the command line and in reports.
    pub fn name(self) -> &'static str {
        match self {
            Order::Fifo => "fifo",
            Order::Scan => "scan",
            Order::CLook => "c-look",
            Order::Sstf => "sstf",
        }
    }
}

impl fmt::Display for Order {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

impl FromStr for Order {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let wanted = |order: &&Order| order.name() == text;
        Order::ALL.iter().find(wanted).copied().ok_or_else(|| {
            let known = Order::ALL.map(Order::name).join(", ");
            format!("unknown order {text:?}; known are {known}")
        })
    }
}

/// Whether a program waits for a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Class {
    /// A program waits for it now.
    Demand,
    /// No program waits for it yet.
    Prefetch,
}

/// The requests waiting for one device; see the [module](self) for the rules.
///
/// `T` is whatever the driver needs to carry out the request. Positions are the device's own unit
/// (a sector number, a cylinder): only their order and distance matter.
#[derive(Debug)]
pub struct DeviceQueue<T> {
    order: Order,
    outstanding_max: usize,
    outstanding: usize,
    arrivals: u64,
    head: u64,
    upwards: bool,
    waiting: [BTreeMap<(u64, u64), T>; 2],
}

impl<T> DeviceQueue<T> {
    /// An empty queue that hands out at most `outstanding_max` (at least 1) requests at once.
    pub fn new(order: Order, outstanding_max: usize) -> Self {
        DeviceQueue {
            order,
            outstanding_max: outstanding_max.max(1),
            outstanding: 0,
            arrivals: 0,
            head: 0,
            upwards: true,
            waiting: [BTreeMap::new(), BTreeMap::new()],
        }
    }

    /// Adds a request for `position`.
    pub fn push(&mut self, class: Class, position: u64, request: T) {
        self.push_ranked(class, position, 0, request);
    }

    /// Adds a request that goes before requests of the same position and a higher `rank`, whenever they arrived. `rank` is
    /// ignored in order of arrival.
    pub fn push_ranked(&mut self, class: Class, position: u64, rank: u32, request: T) {
        let arrival = self.arrivals;
        self.arrivals += 1;
        let key = match self.order {
            Order::Fifo => (arrival, position),
            // More than 2^32 arrivals at one position do not wait at once.
            Order::Scan | Order::CLook | Order::Sstf => {
                (position, u64::from(rank) << 32 | arrival & u64::from(u32::MAX))
            }
        };
        self.waiting[class as usize].insert(key, request);
    }

    /// Takes the request that the device should serve next. `None` when nothing waits, or the device has as many as it may
    /// have. The caller owes a [`completed`](Self::completed) for each.
    pub fn pop(&mut self) -> Option<(Class, u64, T)> {
        self.pop_holding((0, 0)..(0, 0))
    }

    /// [`pop`](Self::pop) for a device that already holds the data at these positions and ranks. By SSTF such a request goes
    /// first, the lowest before others, since it needs no seek. Other orders ignore this.
    pub fn pop_holding(&mut self, held: Range<(u64, u32)>) -> Option<(Class, u64, T)> {
        if self.outstanding == self.outstanding_max {
            return None;
        }
        let class = if self.waiting[Class::Demand as usize].is_empty() {
            Class::Prefetch
        } else {
            Class::Demand
        };
        let key = self.first_held(class, held).or_else(|| self.next_key(class))?;
        let request = self.waiting[class as usize].remove(&key)?;
        let position = if self.order == Order::Fifo { key.1 } else { key.0 };
        self.head = position;
        self.outstanding += 1;
        Some((class, position, request))
    }

    /// The device has finished one request that [`pop`](Self::pop) returned.
    pub fn completed(&mut self) {
        assert!(self.outstanding > 0, "completed without a request outstanding");
        self.outstanding -= 1;
    }

    /// Requests that wait.
    pub fn len(&self) -> usize {
        self.waiting.iter().map(BTreeMap::len).sum()
    }

    /// Whether nothing waits.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Requests given out and not yet completed.
    pub fn outstanding(&self) -> usize {
        self.outstanding
    }

    fn first_held(&self, class: Class, held: Range<(u64, u32)>) -> Option<(u64, u64)> {
        if self.order != Order::Sstf || held.is_empty() {
            return None;
        }
        let key = |(position, rank): (u64, u32)| (position, u64::from(rank) << 32);
        let mut first = self.waiting[class as usize].range(key(held.start)..key(held.end));
        first.next().map(|(key, _)| *key)
    }

    fn next_key(&mut self, class: Class) -> Option<(u64, u64)> {
        let waiting = &self.waiting[class as usize];
        let first = waiting.first_key_value().map(|(key, _)| *key)?;
        let above = || waiting.range((self.head, 0)..).next().map(|(key, _)| *key);
        let below = || {
            // The earliest arrival at the nearest lower position.
            let (nearest, _) = waiting.range(..(self.head, 0)).next_back()?;
            waiting.range((nearest.0, 0)..).next().map(|(key, _)| *key)
        };
        match self.order {
            Order::Fifo => Some(first),
            Order::CLook => Some(above().unwrap_or(first)),
            Order::Scan => {
                let ahead = if self.upwards { above() } else { at_or_below(waiting, self.head) };
                if ahead.is_some() {
                    return ahead;
                }
                let turned = if self.upwards { below() } else { above() };
                self.upwards = !self.upwards;
                turned
            }
            Order::Sstf => match (above(), below()) {
                (Some(up), Some(down)) if self.head - down.0 <= up.0 - self.head => Some(down),
                (Some(up), _) => Some(up),
                (None, down) => down,
            },
        }
    }
}

/// The earliest arrival at the highest position that is not above `head`.
fn at_or_below<T>(waiting: &BTreeMap<(u64, u64), T>, head: u64) -> Option<(u64, u64)> {
    let (nearest, _) = waiting.range(..=(head, u64::MAX)).next_back()?;
    waiting.range((nearest.0, 0)..).next().map(|(key, _)| *key)
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn served(order: Order, start: u64, positions: &[u64]) -> Vec<u64> {
        let mut queue = DeviceQueue::new(order, 1);
        queue.head = start;
        for &position in positions {
            queue.push(Class::Prefetch, position, ());
        }
        drain(&mut queue)
    }

    fn drain(queue: &mut DeviceQueue<()>) -> Vec<u64> {
        std::iter::from_fn(|| {
            let (_, position, ()) = queue.pop()?;
            queue.completed();
            Some(position)
        })
        .collect()
    }

    // The textbook example: head at 53, these eight cylinders wait.
    const WAITING: [u64; 8] = [98, 183, 37, 122, 14, 124, 65, 67];

    #[test]
    fn fifo_keeps_the_order_of_arrival() {
        assert_eq!(served(Order::Fifo, 53, &WAITING), WAITING);
    }

    #[test]
    fn scan_goes_up_then_down() {
        assert_eq!(served(Order::Scan, 53, &WAITING), [65, 67, 98, 122, 124, 183, 37, 14]);
    }

    #[test]
    fn c_look_goes_up_then_starts_over() {
        assert_eq!(served(Order::CLook, 53, &WAITING), [65, 67, 98, 122, 124, 183, 14, 37]);
    }

    #[test]
    fn sstf_takes_the_nearest() {
        assert_eq!(served(Order::Sstf, 53, &WAITING), [65, 67, 37, 14, 98, 122, 124, 183]);
    }

    #[test]
    fn demand_goes_first_whatever_the_order() {
        for order in Order::ALL {
            let mut queue = DeviceQueue::new(order, 2);
            queue.push(Class::Prefetch, 0, "ahead");
            queue.push(Class::Demand, 1000, "waited for");
            assert_eq!(queue.pop().map(|(_, _, name)| name), Some("waited for"), "{order}");
        }
    }

    #[test]
    fn rank_decides_among_equal_positions() {
        for order in [Order::Scan, Order::CLook, Order::Sstf] {
            let mut queue = DeviceQueue::new(order, 1);
            for (position, rank) in [(7, 2), (7, 1), (9, 0), (7, 1)] {
                queue.push_ranked(Class::Prefetch, position, rank, (position, rank));
            }
            let served: Vec<(u64, u32)> = std::iter::from_fn(|| {
                let (_, _, what) = queue.pop()?;
                queue.completed();
                Some(what)
            })
            .collect();
            assert_eq!(served, [(7, 1), (7, 1), (7, 2), (9, 0)], "{order}");
        }
    }

    #[test]
    fn what_the_device_holds_goes_first() {
        let served = |order: Order, waiting: &[(u64, u32)]| -> Vec<(u64, u32)> {
            let mut queue = DeviceQueue::new(order, 1);
            queue.head = 7;
            for &(position, rank) in waiting {
                queue.push_ranked(Class::Prefetch, position, rank, (position, rank));
            }
            std::iter::from_fn(|| {
                let (_, _, what) = queue.pop_holding((6, 5)..(7, 3))?;
                queue.completed();
                Some(what)
            })
            .collect()
        };
        // Held: (6, 5), (7, 0), (7, 1) and (7, 2). Not held: (6, 4) and (7, 4).
        let waiting = [(5, 0), (7, 4), (7, 1), (6, 5), (7, 0), (6, 4), (7, 2)];
        let sstf = [(6, 5), (7, 0), (7, 1), (7, 2), (7, 4), (6, 4), (5, 0)];
        assert_eq!(served(Order::Sstf, &waiting), sstf);
        assert_eq!(served(Order::CLook, &waiting)[..2], [(7, 0), (7, 1)]);
        // The next request is the nearest to the last one, whether that was held or not.
        let from_there = [(6, 5), (6, 4), (7, 4)];
        assert_eq!(served(Order::Sstf, &from_there), from_there);
    }

    #[test]
    fn no_more_than_the_limit_is_handed_out() {
        let mut queue = DeviceQueue::new(Order::Scan, 2);
        for position in 0..3 {
            queue.push(Class::Demand, position, ());
        }
        assert!(queue.pop().is_some() && queue.pop().is_some());
        assert!(queue.pop().is_none());
        queue.completed();
        assert!(queue.pop().is_some());
    }

    #[test]
    fn names_read_back() {
        for order in Order::ALL {
            assert_eq!(order.name().parse(), Ok(order));
        }
        assert!("elevator".parse::<Order>().is_err());
    }

    proptest! {
        #[test]
        fn everything_pushed_is_served_once(
            order in 0usize..4,
            positions in prop::collection::vec(0u64..50, 0..200),
            pops_between in 0usize..3,
        ) {
            let mut queue = DeviceQueue::new(Order::ALL[order], 1);
            let mut out = Vec::new();
            for &position in &positions {
                queue.push(Class::Prefetch, position, ());
                for _ in 0..pops_between.min(queue.len() / 2) {
                    out.push(queue.pop().expect("something waits").1);
                    queue.completed();
                }
            }
            out.extend(drain(&mut queue));
            let mut expected = positions.clone();
            expected.sort_unstable();
            out.sort_unstable();
            prop_assert_eq!(out, expected);
        }

        #[test]
        fn a_full_scan_travels_each_way_at_most_once(
            start in 0u64..1000,
            positions in prop::collection::vec(0u64..1000, 1..100),
        ) {
            let path = served(Order::Scan, start, &positions);
            let turns = path.windows(3).filter(|w| (w[0] < w[1]) && (w[1] > w[2])).count();
            prop_assert!(turns <= 1);
            let low = positions.iter().min().copied().unwrap_or(0);
            let high = positions.iter().max().copied().unwrap_or(0);
            let travel: u64 = std::iter::once(start).chain(path).collect::<Vec<_>>()
                .windows(2).map(|w| w[0].abs_diff(w[1])).sum();
            prop_assert!(travel <= 2 * (high.max(start) - low.min(start)));
        }
    }
}
