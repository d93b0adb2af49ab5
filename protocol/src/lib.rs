//! Messages and shared-memory layout between programs and the manager.
//!
//! Decides how the two sides find each other, which messages they exchange, and what each trusts of
//! the other. It is a crate of its own so that the interposing library (C), the manager and the
//! command line agree on bytes without depending on each other.
//!
//! How:
//! * A. **Control socket** ([`Listener`], [`Connection`]): AF_UNIX, SOCK_SEQPACKET, an *abstract*
//!   name, so that a killed manager leaves no file behind. The name travels in the environment
//!   variable `FORETELL_SOCKET`. Both sides check the other's user.
//! * B. **Ring** ([`RingReader`]): made by the program in a sealed memfd, handed over with its HELLO.
//!   The program writes one record per call that read a regular file, and counters.
//! * C. **Hints** ([`Client`]): over a short connection, or one that stays open for a stream.
//! * D. **Ioctls** ([`Ioctl`]): hints to a mount, which need no socket.
//!
//! Invariants: a program never waits for the manager; the manager trusts no index, length or
//! identity from a program; nothing here outlives the two processes.
//!
//! What may fail: everything, at any time, on either side. Errors are narrow enums; a connection
//! that broke the protocol is dropped by its owner.
//!
//! Not here: what a hint means (`policy`), when the ring is read (`manager`), the program's side of
//! the ring (`preload/`, in C).

mod client;
mod ioctl;
pub mod layout;
mod message;
mod ring;
mod socket;

pub use client::{Client, ClientError};
pub use ioctl::{IOCTL_MAX_BYTES, Ioctl, IoctlError, IoctlHint};
pub use layout::{
    PRELOAD_VARIABLE, RING_HEADER_BYTES, SOCKET_VARIABLE, STALL_THRESHOLD_NS, STREAM_EXTERNAL,
    stall_threshold_ns,
};
pub use message::{Extent, Hello, Hint, Message, ProtocolError, Segment};
pub use ring::{
    Advice, AdviceKind, Advised, Base, Counters, Event, FileVersion, Record, RecordFlags,
    RecordKind, RingError, RingReader, Touch, TouchFlags,
};
pub use socket::{Connection, Listener, peer_of, process_of_peer};
