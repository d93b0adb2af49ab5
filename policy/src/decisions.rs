//! The decision log: the last decisions, and the values behind them.
//!
//! The log is a bounded ring. Each decision has the two values that were compared. Their common currency is ns of execution
//! time per buffer and access, normalised by shares of accesses (TIP 1995, section 4.5).

use std::collections::VecDeque;

use crate::hint::{Block, StreamId};
use crate::time::Nanos;

/// The kinds of decision.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DecisionKind {
    /// The block is prefetched: its benefit exceeds the cost of its buffer.
    Prefetch,
    /// The block joins the prefetch of its neighbour: if it were cached, it would be worth its buffer.
    Cluster,
    /// The block is evicted: it was the globally least valuable, and another one is worth more.
    Evict,
    /// An unread prefetched block is evicted, for the same reason.
    EvictUnread,
    /// The block is not prefetched: its buffer would cost at least as much as its benefit.
    Refuse,
    /// The block is not prefetched: its stream has as many unread blocks as its accuracy earns.
    Unearned,
    /// A prefetched block was given up unread.
    Waste,
}

impl DecisionKind {
    /// The decision's name in a log.
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
    /// Time of the decision, by the driver's clock.
    pub at: Nanos,
    /// What was decided.
    pub kind: DecisionKind,
    /// The block.
    pub block: Block,
    /// The stream; for an eviction, the one that tracked the block.
    pub stream: Option<StreamId>,
    /// The value of the block: the benefit of a prefetch, the cost of an eviction.
    pub value_ns: f64,
    /// The value compared with: the cost of the buffer, or the benefit of the block that replaces it.
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

    /// Removes and returns all decisions, and the number dropped since the last call.
    pub(crate) fn take(&mut self) -> (Vec<Decision>, u64) {
        (std::mem::take(&mut self.ring).into(), std::mem::take(&mut self.dropped))
    }
}
