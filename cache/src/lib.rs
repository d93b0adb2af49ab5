//! The managed cache: buffers of foretell's own, filled and emptied as the policy says.
//!
//! This cache is for data that the kernel's page cache does not hold well: objects in a remote store and files on slow
//! networks. The policy is `foretell-policy` with [`Memory::Owned`](foretell_policy::Memory::Owned).
//!
//! ```
//! use std::sync::Arc;
//! use foretell_cache::backend::memory::MemoryBackend;
//! use foretell_cache::{Cache, CacheOptions, Segment};
//!
//! let files = MemoryBackend::new();
//! files.put("samples", vec![7u8; 1 << 20]);
//! let cache = Cache::new(CacheOptions { budget_bytes: 1 << 20, ..CacheOptions::default() })?;
//! let store = cache.attach(Arc::new(files));
//! let session = store.session();
//! let samples = session.open("samples")?;
//!
//! // Disclose what will be read, in order: it is fetched ahead, many requests at a time.
//! let stream = session.stream();
//! let order = [Segment { offset_bytes: 600_000, length_bytes: 1000 }, Segment { offset_bytes: 0, length_bytes: 1000 }];
//! stream.hint_segments(&samples, &order);
//! let mut sample = [0; 1000];
//! assert_eq!(samples.read_at(&mut sample, 600_000)?, 1000);
//! assert_eq!(sample, [7; 1000]);
//! # Ok::<(), Box<dyn std::error::Error>>(())
//! ```
//!
//! By module:
//!
//! * `cache` and `file` are the handles; `read` is one read that waits.
//! * `shared` drives the `engine`, which decides what is fetched and kept.
//! * `slab` (with `geometry`, `frame`, `mapping` and `free`) is the memory of the blocks, `buffer` is aligned memory for direct I/O.
//! * `records` tells the policy of hits, `read_ahead` predicts sequential reads.
//! * `limit` bounds the prefetch requests in flight at a device, `speed` estimates how many bytes in flight keep it busy.
//! * [`share`] gives other processes of the user the blocks of a cache.
//! * [`backend`] is where data comes from, [`tier`] keeps blocks of a remote store on a local disk.

pub mod backend;
mod buffer;
mod cache;
mod engine;
mod error;
mod file;
mod frame;
mod free;
mod geometry;
mod limit;
mod mapping;
mod read;
mod read_ahead;
mod records;
pub mod share;
mod shared;
mod slab;
mod speed;
mod stats;
pub mod tier;

pub use cache::{Cache, CacheOptions, HintMemory, Session, Store, Stream};
pub use error::{CacheError, OpenError, ReadError};
pub use file::{CachedFor, File, Lent, Partly};
pub use foretell_policy::{Order, Segment};
pub use stats::Stats;
