//! The prefetching and caching policy of foretell: a pure state machine.
//!
//! It knows nothing of file descriptors, threads, clocks or kernels:
//!
//! ```text
//! hints, reads, completions, costs  ──▶  policy  ──▶  look this name up, fetch these blocks
//! ```
//!
//! Drivers run it: the Advice Manager with the kernel's page cache, and a simulator with modelled disks. So what a simulation
//! shows about a policy holds for the code that runs in production. [`Policy`] is the interface; [`queue`] has the queues in
//! front of devices.
//!
//! ```
//! use foretell_policy::{Access, Block, Config, DeviceId, FileId, Hint, HinterId, Memory, NameId, Nanos};
//! use foretell_policy::{Outcome, Policy, ReaderId, Target, Work};
//!
//! let (now, disk) = (Nanos::ZERO, DeviceId(0));
//! let mut policy = Policy::new(Config::new(Memory::Kernel { keeps: false }, 8192, 1 << 20));
//! let stream = policy.open_stream(now, HinterId(1), None);
//! policy.hint(now, stream, Hint::whole_file(Target::Name(NameId(1)), disk));
//!
//! // The driver asks for work: look the name up, then read its three blocks in one request.
//! let lookup = policy.next_fetch(now, disk).unwrap();
//! assert_eq!(lookup.work, Work::Resolve { name: NameId(1) });
//! policy.completed(now, lookup.id, Outcome::Resolved { file: FileId(9), size_bytes: 20_000 });
//! let read = policy.next_fetch(now, disk).unwrap();
//! assert_eq!(read.work, Work::Read { file: FileId(9), first_block: 0, blocks: 3 });
//! policy.completed(now, read.id, Outcome::Fetched);
//!
//! // The program reads the first block, which is in memory.
//! let block = Block { file: FileId(9), index: 0 };
//! assert_eq!(policy.read(now, ReaderId(1), block, false), Access::Hit);
//! assert_eq!(policy.counts().useful, 1);
//! ```

#![deny(unsafe_code)]

mod blocks;
mod buffers;
pub mod contract;
pub mod decisions;
mod devices;
pub mod hint;
pub mod policy;
mod prefetcher;
pub mod rules;
mod streams;
mod tables;
pub mod tally;
pub mod time;

pub use contract::{
    Access, Config, CostModel, CostSource, Counts, Fetch, Memory, Outcome, Reason, Work,
};
pub use decisions::{Decision, DecisionKind};
pub use devices::costs::Cost;
pub use devices::{costs, queue};
pub use hint::{
    Block, DeviceId, Extent, FetchId, FileId, Hint, HinterId, NameId, Order, ReaderId, Segment,
    StreamId, Target,
};
pub use policy::{Next, PREPARED_MAX, Policy};
pub use rules::Rules;
pub use tables::hash;
pub use tally::{SOURCES_MAX, SourceId, Tally};
pub use time::Nanos;
