//! When files were first used that are seen late: a program, its libraries and other files that the linker maps before the
//! first call of the program is seen.
//!
//! Page tables tell of them some milliseconds later, after the first files that the program has opened. What the first look at
//! the page tables of a process shows, and no open has told of, was used at the process's start. What a later look shows is
//! taken as used when it was seen.
//!
//! Cost: a hash table's entry for each process; `LIVES_MAX` at most, of more all are forgotten.

use std::collections::HashMap;

/// Processes that are known at a time.
const LIVES_MAX: usize = 1 << 16;

/// Parts that are seen within this time of the first ones belong to one look, in nanoseconds.
const FIRST_LOOK_NS: u64 = 10_000_000;

/// See the [module](self). Times are in nanoseconds of any clock.
#[derive(Clone, Debug, Default)]
pub struct Starts {
    lives: HashMap<u64, Life>,
}

#[derive(Clone, Copy, Debug)]
struct Life {
    began_ns: u64,
    looked_ns: Option<u64>,
}

impl Starts {
    /// The process has done something at `at_ns`.
    pub fn acts(&mut self, process: u64, at_ns: u64) {
        let life = self.life(process, at_ns);
        life.began_ns = life.began_ns.min(at_ns);
    }

    /// The process has begun another program: what was seen before says nothing of it.
    pub fn begins(&mut self, process: u64, at_ns: u64) {
        self.acts(process, at_ns);
        if let Some(life) = self.lives.get_mut(&process).filter(|life| life.looked_ns.is_some()) {
            *life = Life { began_ns: at_ns, looked_ns: None };
        }
    }

    /// The process has ended.
    pub fn ends(&mut self, process: u64) {
        self.lives.remove(&process);
    }

    /// When a mapped file of the process, of which nothing else has told, was first used, if it is seen at `at_ns`. `None`: not
    /// before it was seen.
    pub fn of_mapped(&mut self, process: u64, at_ns: u64) -> Option<u64> {
        let life = self.life(process, at_ns);
        let looked_ns = *life.looked_ns.get_or_insert(at_ns);
        (at_ns.saturating_sub(looked_ns) < FIRST_LOOK_NS).then_some(life.began_ns)
    }

    fn life(&mut self, process: u64, at_ns: u64) -> &mut Life {
        if self.lives.len() >= LIVES_MAX && !self.lives.contains_key(&process) {
            self.lives.clear();
        }
        self.lives.entry(process).or_insert(Life { began_ns: at_ns, looked_ns: None })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MS: u64 = 1_000_000;

    #[test]
    fn what_the_first_look_shows_was_used_at_the_start() {
        let mut starts = Starts::default();
        starts.acts(7, 3 * MS);
        starts.begins(7, 4 * MS);
        assert_eq!(starts.of_mapped(7, 20 * MS), Some(3 * MS));
        assert_eq!(starts.of_mapped(7, 22 * MS), Some(3 * MS));
        assert_eq!(starts.of_mapped(7, 500 * MS), None);
        starts.begins(7, 600 * MS);
        assert_eq!(starts.of_mapped(7, 610 * MS), Some(600 * MS), "another program");
        starts.ends(7);
        assert_eq!(starts.of_mapped(7, 700 * MS), Some(700 * MS));
    }

    #[test]
    fn processes_are_bounded() {
        let mut starts = Starts::default();
        (0..3 * LIVES_MAX as u64).for_each(|process| starts.acts(process, 0));
        assert!(starts.lives.len() <= LIVES_MAX);
    }
}
