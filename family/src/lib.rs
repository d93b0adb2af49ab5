//! Which stores share a cache, and in which process it is.
//!
//! A store that is [shared](Recipe::is_shared) reads through one of these caches, the first that there is:
//!
//! 1. that of `foretell daemon --cache`, which has the stores of all programs of a user in one memory (`host`);
//! 2. that of the process that has made the first store of the same *family*: stores of one user that read the same with the
//!    same rights (`way`);
//! 3. its own, which from then on serves the family.
//!
//! If the process that has the cache ends, each client opens its files in a cache of its own, and the next store or file that
//! is made seeks a cache anew.
//!
//! By module: `recipe` says what a store is made of, `source` opens what it names, `secret` has the key of the names of families,
//! `way` finds the cache, `sharing` says which one it is, `host` is the daemon's side, and `process` keeps what belongs to one
//! process from forked children.

mod host;
mod process;
mod recipe;
mod secret;
mod sharing;
mod source;
mod way;

pub use host::{Admission, HOST_SOCKET, Host, HostError, HostOptions, HostStatus};
pub use process::{OfProcess, forks};
pub use recipe::{Place, Recipe};
pub use sharing::{CacheOf, Sharing};
pub use source::{Behind, Source, SourceError};
pub use way::{Open, Way};
