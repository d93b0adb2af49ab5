//! Learns from a run of a workload what its next run will read (docs/internals/learning.md).
//!
//! | module | what it decides |
//! |---|---|
//! | [`workload`] | which runs are runs of the same workload |
//! | [`recorder`] | what is kept of one run |
//! | [`profile`] | what several runs have in common, with weights |
//! | [`codec`] | how a profile is written |
//! | [`store`] | where profiles are kept, and which of them |
//! | [`replay`] | what to look up and to read ahead, by how far the run has come |
//! | [`graph`] | which files are opened next, across programs |
//! | [`across`] | what a run without a profile reads next, by that |
//! | [`private`] | which paths are never learned |
//! | [`masking`] | which words of a command line are not shown |
//! | [`export`] | lists of a profile's files, as other tools ask for them |
//! | [`import`] | profiles from lists, and from machines with other folders |
//! | [`recording`] | how all that a run does is written, and read again |
//!
//! Only [`store`] touches the system. Nothing here reads a clock.

pub mod across;
pub mod codec;
pub mod export;
pub mod graph;
pub mod import;
pub mod masking;
pub mod private;
pub mod profile;
pub mod recorder;
pub mod recording;
pub mod replay;
pub mod starts;
pub mod steps;
pub mod store;
pub mod workload;
