//! Whether there is memory for more hints.
//!
//! The bytes that the manager keeps are bounded, for each hinter and for all together. Without room, a source is not asked, and
//! a socket is not read: its program waits at last, and no other does.

use foretell_policy::HinterId;
use foretell_protocol::RING_HEADER_BYTES;

use super::Session;

/// A process's control sockets are read while fewer of its hints wait in the policy. A hint may have some 4,000 segments.
pub(super) const SOCKET_HINTS_MAX: usize = 1024;

/// Bound on the bytes of hints, waiting names, streams and introductions together. Each hinter may take half of the bytes that
/// the others leave. Beyond that, its source or socket is not read.
pub(super) const KEPT_MAX_BYTES: usize = 128 << 20;

/// Bytes of a stream without hints.
const STREAM_BYTES: usize = 2048;

impl Session {
    /// Whether there is memory for more hints of `hinter`.
    pub(super) fn has_room(&self, hinter: HinterId) -> bool {
        let (own, all) = self.policy.hint_bytes(hinter);
        let programs = self.programs.len() * RING_HEADER_BYTES as usize;
        let words = self.arguments.as_ref().map_or(0, |known| known.lineage.bytes());
        let kept = self.waiting.bytes() + programs + words + self.walking.memory_bytes();
        let others = all - own + kept + self.streams * STREAM_BYTES;
        own <= KEPT_MAX_BYTES.saturating_sub(others) / 2 && others < KEPT_MAX_BYTES
    }

    /// Whether to read hints of `hinter`. If not, they stay in their sockets, which blocks their senders in the end: so the
    /// hints waiting here are bounded.
    pub(super) fn hears(&self, hinter: HinterId) -> bool {
        self.policy.waiting_hints_by(hinter) < SOCKET_HINTS_MAX && self.has_room(hinter)
    }
}
