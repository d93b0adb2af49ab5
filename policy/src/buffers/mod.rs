//! Room `buffers`: what a block in memory is worth, and which block makes room for another.
//!
//! * [`arbiter`]: compares the estimators' least valuable blocks and evicts the least valuable of all;
//! * [`estimators`]: the reasons to keep a block, one a file, and their list;
//! * [`values`]: the formulas of cost and benefit;
//! * [`recency`], [`hit_curve`]: the LRU stacks with ghosts, and the value of a buffer by their hits;
//! * [`rates`]: the shares of accesses by which values are multiplied;
//! * [`allocation`]: the owners of buffers, for the policy `lru-sp`.
//!
//! It uses [`devices`](crate::devices) for costs, [`streams`](crate::streams) and [`blocks`](crate::blocks).

pub(crate) mod allocation;
pub(crate) mod arbiter;
pub(crate) mod estimators;
pub(crate) mod hit_curve;
pub(crate) mod rates;
pub(crate) mod recency;
pub(crate) mod values;
