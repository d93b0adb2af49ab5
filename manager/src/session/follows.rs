//! Tells processes whether programs that they execute again and again are worth following
//! ([`Following`](crate::following::Following)).
//!
//! All are followed in a run that is recorded, and where the user has said what will be read (hints, `--replay`): what is read
//! ahead for a program that is not followed would count as unread.

use super::Session;
use super::learning::Learning;
use crate::programs::Program;
use crate::sources::Origin;

impl Session {
    pub(super) fn update_following(&mut self) {
        let followed = |program: &Program| program.counters().programs_followed;
        // A program may write any numbers.
        let ended = self.ended_programs.followed;
        let all = self.programs.iter().map(followed).fold(ended, u64::saturating_add);
        let now = self.now();
        self.following.executed(all, self.introduced, now);
        let skips = self.following.skips() && !self.must_follow_all();
        if skips != self.skips_repeated {
            self.skips_repeated = skips;
            self.programs.iter().for_each(|program| program.skip_repeated(skips));
        }
        if skips {
            self.accesses.learning.iter_mut().for_each(Learning::lose_sight);
        }
    }

    /// Blocks and names that were read or looked up ahead, and used.
    pub(super) fn used_ahead(&self) -> u64 {
        let learned = self.accesses.learning.as_ref().map_or(0, Learning::used_ahead);
        self.policy.counts().useful + self.walking.names_used() + learned
    }

    fn must_follow_all(&self) -> bool {
        let is_asked = |origin: Origin| {
            let tally = self.policy.tally(origin.id());
            tally.prefetched + tally.already_cached + tally.overtaken > 0
        };
        self.accesses.records() || is_asked(Origin::Given) || is_asked(Origin::Replayed)
    }
}
