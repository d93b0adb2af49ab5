//! G: frames out of use, while the machine is short of memory.
//!
//! A frame out of use is not free, and nothing is in it. The policy's limit is the number of all others, so that no request
//! waits for a frame that does not come. Blocks in flight count among those that the policy holds, and so keep frames for
//! themselves.

use std::ops::Range;

use foretell_policy::Nanos;

use super::{Engine, Todo};
use crate::slab::Frame;

impl Engine {
    /// Number of frames in use.
    pub(crate) fn frames_in_use(&self) -> u64 {
        u64::from(self.slab.frames()) - self.free.away() as u64
    }

    /// Gives up the least valuable blocks until at most `frames` are in use, or `most` fewer than before. Returns the frames
    /// that are out of use from now on; none if the others are all needed, as by readers that copy out of them.
    pub(crate) fn shrink(
        &mut self,
        now: Nanos,
        frames: u64,
        most: u64,
        todo: &mut Todo,
    ) -> Vec<Range<Frame>> {
        let in_use = self.frames_in_use();
        self.policy.set_limit(frames.max(in_use.saturating_sub(most)).min(in_use));
        self.policy.shed(now);
        self.let_go();
        self.take_from_limbo();
        let wanted = self.policy.limit_blocks();
        self.withdraw(now, (0, wanted), todo)
    }

    /// Takes all frames out of use that were never used, but for so many frames as `frames`.
    pub(crate) fn stop_growth(&mut self, now: Nanos, frames: u64, todo: &mut Todo) {
        self.withdraw(now, (self.slab.frames_used(), frames), todo);
    }

    /// Has so many frames in use, if they were fewer.
    pub(crate) fn grow(&mut self, now: Nanos, frames: u64, todo: &mut Todo) {
        let more = frames.saturating_sub(self.frames_in_use());
        self.free.restore(usize::try_from(more).unwrap_or(usize::MAX));
        self.policy.set_limit(self.frames_in_use());
        self.pump(now, todo);
    }

    /// Takes free frames from `first` on out of use, until `frames` are left, or those that are needed.
    fn withdraw(
        &mut self,
        now: Nanos,
        (first, frames): (Frame, u64),
        todo: &mut Todo,
    ) -> Vec<Range<Frame>> {
        let left = frames.max(self.policy.held_blocks()).max(1);
        let spare = self.frames_in_use().saturating_sub(left);
        let runs = self.free.withdraw(first, spare as usize);
        self.policy.set_limit(self.frames_in_use());
        self.pump(now, todo);
        runs
    }
}
