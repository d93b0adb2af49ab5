//! The policies by name: a rule for prefetching and a rule for replacement.
//!
//! All policies of the literature compared here are pairs of rules over the same streams, buffers and devices. So any two of
//! them differ in their decisions only.
//!
//! | name | prefetches | replaces | source |
//! |---|---|---|---|
//! | `lru` | nothing | the least recently used | |
//! | `tip1` | in hint order, up to a number of unread blocks | the least recently used | Patterson and Gibson, PDIS 1994 |
//! | `tip2` | blocks with a benefit above their victim's cost, up to the horizon | the globally least valuable | Patterson et al., SOSP 1995, sections 4 and 5 |
//! | `fixed-horizon` | a missing block at most H references ahead | the one used furthest ahead | Cao et al. 1995, Kimbrel et al. 1996 |
//! | `aggressive` | the first missing block whenever a device is free, unless all cached blocks are needed sooner | the same | Cao et al. 1995 |
//! | `forestall` | as `fixed-horizon`, and as soon as a stall is certain | the same | Kimbrel et al. 1996 |
//! | `lru-sp` | as `aggressive` | of the program that owns the least recently used block, the one used furthest ahead | Cao et al. 1994 |
//! | `tiptoe` | as `tip2`, with the cost of a device's temporary overload, and (ours) early enough to arrive in time | the globally least valuable | Tomkins et al. 1997 |
//! | `foretell` | as `tiptoe`, with each device's own costs, each stream's own pace and accuracy, and runs begun as by `forestall` | the same | |

/// Which blocks are prefetched, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// Nothing.
    Never,
    /// In hint order, while less than a third of the buffers hold unread prefetched blocks. With a kernel's memory all buffers
    /// may.
    HintOrder,
    /// Blocks with a benefit above their victim's cost (eq. 6 and 8).
    Benefit,
    /// A missing block at most the horizon ahead.
    FixedHorizon,
    /// A device's first missing block, whenever the device is free.
    Aggressive,
    /// As the fixed horizon, and earlier if a device is otherwise certain to stall its readers.
    Forestall,
}

/// The choice of the block to evict.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// The least recently used.
    Lru,
    /// The globally least valuable (TIP 1995, section 4.7).
    MinMax,
    /// The block with the furthest disclosed next use. Blocks without a disclosed use are evicted before it, in LRU order.
    FurthestNextUse,
    /// Of the program that owns the least recently used block, the block with the furthest next use: LRU with swapping and
    /// placeholders.
    LruSp,
}

/// A policy, one of [`ALL`](Rules::ALL); see the [module](self). Other combinations cannot be built outside this crate, because
/// not all of them terminate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// The policy's published name.
    pub name: &'static str,
    /// What the policy prefetches.
    pub(crate) prefetch: Prefetch,
    /// Which block the policy evicts.
    pub(crate) replacement: Replacement,
    /// Whether prefetch benefits and eviction costs include the time of a device that cannot keep up (beyond eq. 6 and 9).
    pub(crate) overload: bool,
    /// Whether each device has its own costs (TIP 1995, section 4.9), or all share their mean.
    pub(crate) own_costs: bool,
    /// Whether prefetches begin earlier than eq. 6 says, by a margin that lets them arrive in time.
    pub(crate) early: bool,
    /// Whether a stream is assumed to keep its own pace. If not, it is assumed to read as fast as memory allows.
    pub(crate) own_pace: bool,
    /// Whether buffers without value are used for blocks needed beyond the horizon.
    pub(crate) spare_buffers: bool,
    /// Whether missing blocks that lie together are fetched while they are still beyond the horizon. This happens if the device
    /// takes longer for each than the stream does, so that the last of them would come too late.
    pub(crate) runs: bool,
    /// Whether a stream's wrong hints discount its values.
    pub(crate) accuracy: bool,
}

const fn plain(name: &'static str, prefetch: Prefetch, replacement: Replacement) -> Rules {
    Rules {
        name,
        prefetch,
        replacement,
        overload: false,
        own_costs: false,
        early: false,
        own_pace: false,
        spare_buffers: false,
        runs: false,
        accuracy: false,
    }
}

impl Rules {
    /// Demand only, least recently used.
    pub const LRU: Rules = plain("lru", Prefetch::Never, Replacement::Lru);
    /// The first TIP prototype.
    pub const TIP1: Rules = plain("tip1", Prefetch::HintOrder, Replacement::Lru);
    /// TIP as published in 1995.
    pub const TIP2: Rules = plain("tip2", Prefetch::Benefit, Replacement::MinMax);
    /// Fixed horizon.
    pub const FIXED_HORIZON: Rules =
        plain("fixed-horizon", Prefetch::FixedHorizon, Replacement::FurthestNextUse);
    /// Aggressive.
    pub const AGGRESSIVE: Rules =
        plain("aggressive", Prefetch::Aggressive, Replacement::FurthestNextUse);
    /// Forestall.
    pub const FORESTALL: Rules =
        plain("forestall", Prefetch::Forestall, Replacement::FurthestNextUse);
    /// Each program is aggressive by itself, and programs share buffers by recency.
    pub const LRU_SP: Rules = plain("lru-sp", Prefetch::Aggressive, Replacement::LruSp);
    /// TIP with estimators of temporary overload.
    pub const TIPTOE: Rules = Rules {
        overload: true,
        early: true,
        ..plain("tiptoe", Prefetch::Benefit, Replacement::MinMax)
    };
    /// The default.
    pub const FORETELL: Rules = Rules {
        overload: true,
        own_costs: true,
        early: true,
        own_pace: true,
        spare_buffers: true,
        runs: true,
        accuracy: true,
        ..plain("foretell", Prefetch::Benefit, Replacement::MinMax)
    };

    /// All policies, in the order of the table.
    pub const ALL: [Rules; 9] = [
        Rules::LRU,
        Rules::TIP1,
        Rules::TIP2,
        Rules::FIXED_HORIZON,
        Rules::AGGRESSIVE,
        Rules::FORESTALL,
        Rules::LRU_SP,
        Rules::TIPTOE,
        Rules::FORETELL,
    ];

    /// The policy's rule for prefetching.
    pub fn prefetch(&self) -> Prefetch {
        self.prefetch
    }

    /// The policy's rule for replacement.
    pub fn replacement(&self) -> Replacement {
        self.replacement
    }

    /// The policy of this name.
    pub fn named(name: &str) -> Option<Rules> {
        Rules::ALL.into_iter().find(|rules| rules.name == name)
    }
}
