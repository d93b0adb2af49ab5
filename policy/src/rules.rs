//! The policies by name: what decides over prefetching and what over replacement.
//!
//! Every policy of the literature that is compared here is a pair of rules over the same streams,
//! buffers and devices, so that two of them differ in what they decide and in nothing else.
//!
//! | name | prefetches | replaces | source |
//! |---|---|---|---|
//! | `lru` | nothing | the least recently used | |
//! | `tip1` | in hint order, up to a number of unread blocks | the least recently used | Patterson and Gibson, PDIS 1994 |
//! | `tip2` | what benefits more than its victim costs, up to the horizon | the globally least valuable | Patterson et al., SOSP 1995, sections 4 and 5 |
//! | `fixed-horizon` | a missing block at most H references ahead | the one used furthest ahead | Cao et al. 1995, Kimbrel et al. 1996 |
//! | `aggressive` | whatever is missing first, while a device is free, unless all cached is needed sooner | the same | Cao et al. 1995 |
//! | `forestall` | as `fixed-horizon`, and as soon as a stall is certain | the same | Kimbrel et al. 1996 |
//! | `lru-sp` | as `aggressive` | of the program that owns the least recently used block, the one used furthest ahead | Cao et al. 1994 |
//! | `tiptoe` | as `tip2`, with the cost of a device's temporary overload, and (ours) begun in time | the globally least valuable | Tomkins et al. 1997 |
//! | `foretell` | as `tiptoe`, with each device's own costs, each stream's own pace and accuracy, and runs begun as by `forestall` | the same | |

/// Which blocks are prefetched, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Prefetch {
    /// None.
    Never,
    /// In hint order, while fewer than a third of the buffers hold prefetched and unread blocks; of those of a kernel, all.
    HintOrder,
    /// What benefits more than its victim costs (eq. 6 and 8).
    Benefit,
    /// A missing block at most the horizon ahead.
    FixedHorizon,
    /// A device's first missing block as soon as the device is free.
    Aggressive,
    /// As the fixed horizon, and earlier on a device that is bound to stall its readers.
    Forestall,
}

/// Which block makes room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Replacement {
    /// The least recently used.
    Lru,
    /// The globally least valuable (section 4.7).
    MinMax,
    /// The one whose next disclosed use is furthest; before it those without one, in LRU order.
    FurthestNextUse,
    /// Of the blocks of the program that owns the least recently used one, that whose next use is furthest: LRU with
    /// swapping and placeholders.
    LruSp,
}

/// A policy, one of [`ALL`](Rules::ALL); see the [module](self). Others cannot be put together from outside: not all
/// combinations come to an end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Rules {
    /// Its published name.
    pub name: &'static str,
    /// What it prefetches.
    pub(crate) prefetch: Prefetch,
    /// What it replaces.
    pub(crate) replacement: Replacement,
    /// Whether the benefit of a prefetch and the cost of a flush count the time of a device that
    /// cannot keep up (beyond eq. 6 and 9).
    pub(crate) overload: bool,
    /// Whether each device has its own costs (section 4.9), or all have their mean.
    pub(crate) own_costs: bool,
    /// Whether a prefetch begins so early that it is in time, if need be an access before eq. 6 says.
    pub(crate) early: bool,
    /// Whether a stream is taken to keep its own pace; otherwise to be as fast as memory allows.
    pub(crate) own_pace: bool,
    /// Whether buffers that nobody values are used for what is needed later.
    pub(crate) spare_buffers: bool,
    /// Whether a run of missing blocks that a device is too slow for is begun before the horizon.
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
    /// Programs that are each aggressive, and share buffers by recency.
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

    /// All of them, in the order of the table.
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

    /// Which blocks it prefetches, and when.
    pub fn prefetch(&self) -> Prefetch {
        self.prefetch
    }

    /// Which block it has make room.
    pub fn replacement(&self) -> Replacement {
        self.replacement
    }

    /// The policy of this name.
    pub fn named(name: &str) -> Option<Rules> {
        Rules::ALL.into_iter().find(|rules| rules.name == name)
    }
}
