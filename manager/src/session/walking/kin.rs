//! What earlier processes of the same program have shown: whether what was looked up ahead of them was used.
//!
//! A build starts hundreds of compilers and assemblers, each over within milliseconds, and each searches names in an order of
//! its own. A walk is learned anew in each process, so its lookups come too late or are wrong, and cost records and turns of
//! the manager. After [`VAIN_MAX`] such processes in a row, only one of so many that follow is watched, as long as it is young.

use std::collections::HashMap;
use std::sync::Arc;

/// So many processes of a program in a row end without a use of half of what was looked up ahead, until the next ones are left
/// alone. One of so many is watched then, to see whether that still holds.
const VAIN_MAX: u32 = 16;

/// Programs known. Of more, all processes are watched.
const PROGRAMS_MAX: usize = 1024;

#[derive(Clone, Copy, Debug, Default)]
struct Shown {
    /// Processes in a row that were watched in vain.
    in_vain: u32,
    /// Processes left alone since one was watched.
    left_alone: u32,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(super) struct Kin {
    programs: HashMap<Arc<str>, Shown>,
}

impl Kin {
    /// A process of this program begins. Returns whether it is left alone.
    pub(super) fn leaves_alone(&mut self, program: &str) -> bool {
        let Some(shown) = self.programs.get_mut(program) else { return false };
        if shown.in_vain < VAIN_MAX {
            return false;
        }
        shown.left_alone = (shown.left_alone + 1) % VAIN_MAX;
        shown.left_alone != 0
    }

    /// A process of this program that was watched has ended: so many names were looked up ahead of it, and so many used.
    pub(super) fn has_ended(&mut self, program: Arc<str>, ahead: u64, used: u64) {
        if self.programs.len() < PROGRAMS_MAX || self.programs.contains_key(&program) {
            let shown = self.programs.entry(program).or_default();
            let is_in_vain = used == 0 || used < ahead / 2;
            shown.in_vain = if is_in_vain { shown.in_vain.saturating_add(1) } else { 0 };
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn after_many_in_vain_one_of_so_many_is_watched() {
        let mut kin = Kin::default();
        let watched_of = |kin: &mut Kin, count: u32, used: u64| {
            (0..count)
                .filter(|_| {
                    let is_watched = !kin.leaves_alone("cc1");
                    if is_watched {
                        kin.has_ended("cc1".into(), 10, used);
                    }
                    is_watched
                })
                .count()
        };
        assert_eq!(watched_of(&mut kin, VAIN_MAX, 1), VAIN_MAX as usize);
        assert_eq!(watched_of(&mut kin, 3 * VAIN_MAX, 1), 3);
        assert!(!kin.leaves_alone("find"), "another program is watched");
        // The next one that is watched uses what was looked up.
        assert_eq!(watched_of(&mut kin, VAIN_MAX, 5), 1);
        assert_eq!(watched_of(&mut kin, VAIN_MAX, 5), VAIN_MAX as usize);
    }
}
