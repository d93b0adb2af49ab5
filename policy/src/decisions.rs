//! The decision log: what was decided of late, and on which values.
//!
//! A bounded ring of the last decisions. Each has the two values that were compared, in the common
//! currency: ns of execution time for each buffer and access, normalised by shares of accesses (TIP
//! 1995, section 4.5).

use std::collections::VecDeque;

use crate::hint::{Block, StreamId};
use crate::time::Nanos;

/// What was decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionKind {
    /// The block is prefetched: its benefit is above the cost of its buffer.
    Prefetch,
    /// The block joins the prefetch of its neighbour: keeping it would be worth its buffer.
    Cluster,
    /// The block left memory: it was the globally least valuable, and something else worth more.
    Evict,
    /// The same of a block that was prefetched, and that nobody has read.
    EvictUnread,
    /// The block is not prefetched: its buffer would cost as much as it benefits, or more.
    Refuse,
    /// The block is not prefetched: its stream has as many unread as its accuracy earns.
    Unearned,
    /// The block was prefetched and given up unread.
    Waste,
}

impl DecisionKind {
    /// Its name in a log.
    pub fn name(self) -> &'static str {
        match self {
            DecisionKind::Prefetch => "prefetch",
            DecisionKind::Cluster => "cluster",
            DecisionKind::Evict => "evict",
            DecisionKind::EvictUnread => "evict-unread",
            DecisionKind::Refuse => "refuse",
            DecisionKind::Unearned => "unearned",
            DecisionKind::Waste => "waste",
        }
    }
}

/// One decision.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Decision {
    /// When, by the driver's clock.
    pub at: Nanos,
    /// What.
    pub kind: DecisionKind,
    /// About which block.
    pub block: Block,
    /// For which stream; of an eviction, the one that the block was tracked for.
    pub stream: Option<StreamId>,
    /// The value of the block: the benefit of a prefetch, the cost of an eviction.
    pub value_ns: f64,
    /// What it was compared with: the cost of the buffer, or the benefit of what replaced it.
    pub against_ns: f64,
}

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct DecisionLog {
    ring: VecDeque<Decision>,
    capacity: usize,
    dropped: u64,
}

impl DecisionLog {
    pub(crate) fn new(capacity: usize) -> Self {
        DecisionLog { ring: VecDeque::new(), capacity, dropped: 0 }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.capacity > 0
    }

    pub(crate) fn push(&mut self, decision: Decision) {
        if self.capacity == 0 {
            return;
        }
        if self.ring.len() == self.capacity {
            self.ring.pop_front();
            self.dropped += 1;
        }
        self.ring.push_back(decision);
    }

    /// Takes the decisions out; with how many were dropped since the last time.
    pub(crate) fn take(&mut self) -> (Vec<Decision>, u64) {
        (std::mem::take(&mut self.ring).into(), std::mem::take(&mut self.dropped))
    }
}
