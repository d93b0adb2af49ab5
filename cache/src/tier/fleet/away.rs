//! E. When a server that has failed is left alone, and for how long.

use std::time::Instant;

use super::super::shared::{PATIENCE, Pause};

/// E. Trouble with a node, or with all of them.
///
/// A server that answers a probe may still be too slow for blocks, or refuse them. So coming back does not end its trouble: the
/// next pause is twice as long. It ends when exchanges go well, and have done so for as long as the longest pause.
pub(super) struct Trouble {
    pub(super) pause: Pause,
    pub(super) is_away: bool,
    pub(super) is_probing: bool,
    /// Since when it has been back.
    back_at: Option<Instant>,
}

impl Trouble {
    pub(super) fn new() -> Self {
        Trouble { pause: Pause::new(PATIENCE), is_away: false, is_probing: false, back_at: None }
    }

    /// It has failed, and is left alone for a while.
    pub(super) fn begin(&mut self) {
        (self.is_away, self.is_probing, self.back_at) = (true, false, None);
        self.pause.begin();
    }

    /// A probe was answered.
    pub(super) fn note_back(&mut self) {
        (self.is_away, self.is_probing, self.back_at) = (false, false, Some(Instant::now()));
    }

    /// An exchange at this time went well.
    pub(super) fn note_success(&mut self, now: Instant) {
        let is_over = |at: Instant| now.saturating_duration_since(at) >= PATIENCE.most;
        if !self.is_away && self.back_at.is_some_and(is_over) {
            self.pause.went_well();
            self.back_at = None;
        }
    }

    /// Whether it is to be probed.
    pub(super) fn is_due(&self) -> bool {
        self.is_away && !self.is_probing && self.pause.is_over()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn a_server_that_answers_probes_alone_is_left_alone_longer_and_longer() {
        let mut trouble = Trouble::new();
        for turn in 0..8 {
            trouble.begin();
            assert!(trouble.is_away && !trouble.is_due());
            // The next pause; begun again during this one, it stays as it is.
            let next = Duration::from_secs(2 << turn).min(PATIENCE.most);
            trouble.begin();
            assert_eq!(trouble.pause.next, next);
            trouble.pause.until = Some(Instant::now());
            assert!(trouble.is_due());
            trouble.note_back();
            assert!(!trouble.is_away);
            trouble.note_success(Instant::now());
            assert_eq!(trouble.pause.next, next, "it has not gone well for long enough");
        }
        trouble.note_success(Instant::now() + PATIENCE.most);
        assert_eq!(trouble.pause.next, PATIENCE.first);
    }
}
