//! Whether a mapping is touched in order.
//!
//! Each look at a mapping tells the ranges that became present since the look before. A *run* is a place from which the program
//! goes on: its *front* is the end of what is present there. A range that begins near the front of a run, in front of or behind
//! it, advances the run. Any other range begins a run. A mapping has a few runs at a time, since several threads may each go
//! through a part of it, and a program may touch an index in between.
//!
//! A run that has advanced [`ADVANCES`] times, each time by [`ADVANCE_BYTES`] or more, and has gone through [`LEAST_BYTES`] in
//! all, counts as *in order* if the process waited for pages meanwhile: a program that never waits needs no help. It counts so
//! until other runs grow and it does not, several looks in a row. Each time that this happens, the mapping has to advance twice
//! as often before it counts again.
//!
//! The program may say itself what it will do (`madvise`). A part that it says it touches in order has a run that counts at
//! once, and that loses its order like others. What is touched in a part that it says it touches at random shows no order.
//!
//! The kernel maps 64 KiB around a touched page, and reads 128 KiB around one that is missing. So what is nearer than that is
//! the kernel's doing as likely as the program's, and shows no order.

use std::ops::Range;

/// Advances of a run before it counts as in order.
const ADVANCES: u32 = 3;

/// What a run has gone through in all before it counts: a smaller file is read by the kernel in few steps.
const LEAST_BYTES: u64 = 1 << 20;

/// What an advance is at least: the range that the kernel maps around a page.
pub(crate) const ADVANCE_BYTES: u64 = 64 << 10;

/// A run that begins with a range of this length has advanced once: the program went through it since the last look.
const LONG_BYTES: u64 = 4 * ADVANCE_BYTES;

/// How far from the front a range may begin to advance it: half of what the kernel reads around a missing page.
const NEAR_BYTES: u64 = 64 << 10;

/// Runs of a mapping at a time.
const RUNS_MAX: usize = 8;

/// Looks in a row at which other parts grow and the run does not, after which it is not in order any more.
const STRAYS: u32 = 3;

/// How often a mapping may lose its order and be believed again.
const LOSSES_MAX: u32 = 5;

/// Parts of a mapping that are known to be touched at random. Programs advise about a whole mapping, or about a few parts of
/// it.
const RANDOM_MAX: usize = 8;

/// What a look says about a mapping's order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// The mapping is touched in order from this offset on.
    Begins(u64),
    /// It is no more.
    Ends,
}

#[derive(Clone, Copy, Debug)]
struct Run {
    start: u64,
    front: u64,
    /// The front at the last look. `None` if it began since.
    before: Option<u64>,
    advances: u32,
    /// Looks since it began or advanced.
    idle: u32,
    is_in_order: bool,
}

/// The order of a mapping; see the [module](self). Offsets are those of the file.
#[derive(Clone, Debug)]
pub(crate) struct Order {
    /// Where the mapping ends.
    end: u64,
    runs: Vec<Run>,
    losses: u32,
    /// Looks in a row at which other parts grew than the run in order.
    strays: u32,
    /// What the program has said that it touches at random.
    random: Vec<Range<u64>>,
}

impl Order {
    /// Of a mapping that ends at the offset `end`.
    pub(crate) fn new(end: u64) -> Self {
        Order { end, runs: Vec::new(), losses: 0, strays: 0, random: Vec::new() }
    }

    /// Where the mapping ends.
    pub(crate) fn end(&self) -> u64 {
        self.end
    }

    /// The mapping has become longer or shorter.
    pub(crate) fn ends_at(&mut self, end: u64) {
        self.end = end;
    }

    /// Forgets what was seen, and not what the program has said about parts that it touches at random.
    pub(crate) fn forget(&mut self) {
        let random = std::mem::take(&mut self.random);
        *self = Order { random, ..Order::new(self.end) };
    }

    /// The program says that it will touch `part` in order. Returns whether that begins an order.
    pub(crate) fn said_sequential(&mut self, part: &Range<u64>) -> bool {
        self.said_normal(part);
        let is_in_order = self.runs.iter().any(|run| run.is_in_order);
        if is_in_order || self.losses > LOSSES_MAX || part.start >= self.end {
            return false;
        }
        self.runs.truncate(RUNS_MAX - 1);
        let (start, front) = (part.start, part.start);
        let advances = ADVANCES;
        self.runs.push(Run { start, front, before: None, advances, idle: 0, is_in_order: true });
        self.strays = 0;
        true
    }

    /// The program says that it will touch `part` at random. Returns whether that ends an order.
    pub(crate) fn said_random(&mut self, part: &Range<u64>) -> bool {
        self.said_normal(part);
        if self.random.len() < RANDOM_MAX {
            self.random.push(part.clone());
        }
        let end = self.end;
        let ends = |run: &Run| run.is_in_order && overlap(&(run.front..end), part);
        let before = self.runs.len();
        self.runs.retain(|run| !ends(run));
        self.runs.len() < before
    }

    /// The program takes back what it has said about `part`, and about parts that overlap it.
    pub(crate) fn said_normal(&mut self, part: &Range<u64>) {
        self.random.retain(|random| !overlap(random, part));
    }

    /// Takes in the ranges that became present since the last look, in order and without overlap. `waited` says whether the
    /// process waited for pages since then.
    pub(crate) fn note(&mut self, new: &[Range<u64>], waited: bool) -> Option<Verdict> {
        let random = std::mem::take(&mut self.random);
        let is_random = |touched: &&Range<u64>| random.iter().any(|part| overlap(part, touched));
        let ordered: Vec<&Range<u64>> = new.iter().filter(|touched| !is_random(touched)).collect();
        self.random = random;
        if ordered.is_empty() {
            return None;
        }
        for run in &mut self.runs {
            run.idle += 1;
            run.before = Some(run.front);
        }
        ordered.into_iter().for_each(|range| self.grow(range));
        let (mut has_advanced, mut has_strayed) = (false, false);
        for run in self.runs.iter_mut().filter(|run| run.idle == 0) {
            let (grown, least) = match run.before {
                Some(before) => (run.front - before, ADVANCE_BYTES),
                None => (run.front - run.start, LONG_BYTES),
            };
            if grown >= least && (waited || run.advances > 0) {
                run.advances += 1;
            }
            has_advanced |= run.is_in_order;
            has_strayed |= !run.is_in_order;
        }
        self.judge(has_advanced, has_strayed, waited)
    }

    /// Advances the run that `range` continues, or begins one.
    fn grow(&mut self, range: &Range<u64>) {
        let continues = |run: &Run| {
            range.start <= run.front.saturating_add(NEAR_BYTES)
                && range.start >= run.front.saturating_sub(NEAR_BYTES)
        };
        if let Some(run) = self.runs.iter_mut().find(|run| continues(run)) {
            run.front = run.front.max(range.end);
            run.idle = 0;
            return self.join();
        }
        let (start, front) = (range.start, range.end);
        let run = Run { start, front, before: None, advances: 0, idle: 0, is_in_order: false };
        if self.runs.len() < RUNS_MAX {
            self.runs.push(run);
            return;
        }
        // The one in order stays, and of the others those that grew last.
        let oldest = self.runs.iter_mut().filter(|run| !run.is_in_order).max_by_key(|run| run.idle);
        if let Some(oldest) = oldest {
            *oldest = run;
        }
    }

    /// Joins a run whose front has come to the start of another with that one. A look takes some time, so it may see a later
    /// part of what the program touches meanwhile and not the earlier one.
    fn join(&mut self) {
        let mut at = 0;
        while at < self.runs.len() {
            let Run { start, front, .. } = self.runs[at];
            let is_met = |other: &Run| {
                other.start > start
                    && other.start <= front.saturating_add(NEAR_BYTES)
                    && other.front >= front
            };
            let Some(met) = self.runs.iter().position(is_met) else {
                at += 1;
                continue;
            };
            let met = self.runs[met];
            let run = &mut self.runs[at];
            run.front = met.front;
            run.advances = run.advances.max(met.advances);
            run.idle = run.idle.min(met.idle);
            run.is_in_order |= met.is_in_order;
            self.runs.retain(|run| {
                (run.start, run.front) != (met.start, met.front) || run.start == start
            });
        }
    }

    fn judge(&mut self, has_advanced: bool, has_strayed: bool, waited: bool) -> Option<Verdict> {
        if let Some(run) = self.runs.iter().position(|run| run.is_in_order) {
            if self.runs[run].front >= self.end {
                self.runs.swap_remove(run); // It has come to its end.
                return None;
            }
            self.strays = if has_strayed && !has_advanced { self.strays + 1 } else { 0 };
            if self.strays < STRAYS {
                return None;
            }
            self.strays = 0;
            self.losses += 1;
            self.runs.clear();
            return Some(Verdict::Ends);
        }
        if self.losses > LOSSES_MAX || !waited {
            return None;
        }
        let (wanted, end) = (ADVANCES << self.losses, self.end);
        let is_one = |run: &&mut Run| {
            let is_long = run.front - run.start >= LEAST_BYTES;
            run.idle == 0 && run.advances >= wanted && is_long && run.front < end
        };
        let run = self.runs.iter_mut().find(is_one)?;
        run.is_in_order = true;
        Some(Verdict::Begins(run.front))
    }
}

fn overlap(one: &Range<u64>, other: &Range<u64>) -> bool {
    one.start < other.end && other.start < one.end
}

#[cfg(test)]
#[allow(clippy::single_range_in_vec_init, reason = "a look may find one range")]
mod tests {
    use super::*;

    /// Shorter than a long range. Six of them are more than the least that shows an order.
    const STEP: u64 = 3 * ADVANCE_BYTES;
    const LEAST_STEPS: u64 = 6;
    const END: u64 = 1 << 30;

    fn order() -> Order {
        Order::new(END)
    }

    /// Tells of steps one after the other from `from` on, until there is a verdict. Returns the steps that it took.
    fn walk(order: &mut Order, from: u64, waited: bool) -> Option<(u64, Verdict)> {
        (0..1000).find_map(|step| {
            let start = from + step * STEP;
            let verdict = order.note(&[start..start + STEP], waited)?;
            Some((step + 1, verdict))
        })
    }

    #[test]
    fn advances_with_waits_are_an_order() {
        let begins = |steps: u64| Some((steps, Verdict::Begins(steps * STEP)));
        assert_eq!(walk(&mut order(), 0, true), begins(LEAST_STEPS));
        assert_eq!(
            walk(&mut order(), 0, false),
            None,
            "a program that does not wait needs no help"
        );
        let mut ordered = order();
        walk(&mut ordered, 0, true);
        assert_eq!(walk(&mut ordered, LEAST_STEPS * STEP, true), None, "it goes on");
    }

    #[test]
    fn a_long_range_at_the_start_counts_once() {
        let mut long = order();
        assert_eq!(long.note(&[0..100 * STEP], true), None);
        assert_eq!(walk(&mut long, 100 * STEP, true), Some((2, Verdict::Begins(102 * STEP))));
    }

    #[test]
    fn small_steps_and_jumps_are_none() {
        let mut slow = order();
        for page in 0..10u64 {
            assert_eq!(slow.note(&[page * 4096..(page + 1) * 4096], true), None);
        }
        for stride in [3 * ADVANCE_BYTES, 1 << 20, 10 << 20] {
            let mut strided = order();
            for step in 0..200 {
                let start = step * stride;
                assert_eq!(strided.note(&[start..start + ADVANCE_BYTES], true), None, "{stride}");
            }
        }
        let mut backwards = order();
        for step in (0..200).rev() {
            assert_eq!(backwards.note(&[step * STEP..(step + 1) * STEP], true), None);
        }
        let (mut random, mut state) = (order(), 1u64);
        for _ in 0..500 {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let start = (state >> 33) % (END / STEP) * STEP;
            assert_eq!(random.note(&[start..start + STEP], true), None);
        }
    }

    #[test]
    fn an_index_touched_in_between_does_no_harm() {
        let mut order = order();
        let mut steps = (0..20u64).filter_map(|step| {
            let (start, index) = (step * STEP, END / 2 + (step * 7) % 20 * (1 << 20));
            order.note(&[start..start + STEP, index..index + 4096], true)
        });
        assert_eq!(steps.next(), Some(Verdict::Begins(LEAST_STEPS * STEP)));
        assert_eq!(steps.next(), None);
    }

    #[test]
    fn a_part_that_is_seen_late_does_not_break_the_order() {
        let mut order = order();
        walk(&mut order, 0, true);
        for step in 3..50 {
            let start = step * 2 * STEP;
            // The second half of a step is seen before the first.
            assert_eq!(order.note(&[start + STEP..start + 2 * STEP], true), None);
            assert_eq!(order.note(&[start..start + STEP], true), None);
        }
        assert_eq!((order.losses, order.runs.len()), (0, 1));
    }

    #[test]
    fn an_order_that_is_lost_has_to_be_shown_again_for_longer() {
        let mut order = order();
        let mut from = 0;
        for loss in 0..=LOSSES_MAX {
            let steps = LEAST_STEPS.max(u64::from(ADVANCES << loss) + 1);
            let front = from + steps * STEP;
            assert_eq!(walk(&mut order, from, true), Some((steps, Verdict::Begins(front))));
            let mut verdict = None;
            for stray in 1..=u64::from(STRAYS) {
                assert_eq!(verdict, None);
                let start = front + stray * (10 << 20);
                verdict = order.note(&[start..start + STEP], true);
            }
            assert_eq!(verdict, Some(Verdict::Ends));
            from = front + (100 << 20);
        }
        assert_eq!(walk(&mut order, 0, true), None, "it is not believed any more");
    }

    #[test]
    fn an_order_that_the_program_tells_counts_at_once_and_may_be_lost() {
        let mut order = order();
        assert!(order.said_sequential(&(STEP..END)));
        assert!(!order.said_sequential(&(0..END)), "it is in order already");
        assert_eq!(walk(&mut order, STEP, false), None, "it goes on");
        assert_eq!((order.losses, order.runs.len()), (0, 1));
        let mut wrong = self::order();
        assert!(wrong.said_sequential(&(0..END)));
        let looks = (1..=u64::from(STRAYS)).map(|look| {
            let start = look * (10 << 20);
            wrong.note(&[start..start + STEP], true)
        });
        assert_eq!(looks.last(), Some(Some(Verdict::Ends)));
        assert!(!Order::new(STEP).said_sequential(&(STEP..END)), "beyond the end of the file");
    }

    #[test]
    fn a_part_that_the_program_says_is_random_shows_no_order() {
        let mut random = order();
        assert!(!random.said_random(&(0..100 * STEP)));
        let steps = 100 + LEAST_STEPS;
        assert_eq!(walk(&mut random, 0, true), Some((steps, Verdict::Begins(steps * STEP))));
        let mut order = order();
        assert!(order.said_sequential(&(0..END)));
        assert!(order.said_random(&(0..END)), "it ends the order");
        assert_eq!(walk(&mut order, 0, true), None);
        order.said_normal(&(0..END));
        assert!(walk(&mut order, 0, true).is_some());
        (0..100).for_each(|part| {
            order.said_random(&(part * STEP..(part + 1) * STEP));
        });
        assert_eq!(order.random.len(), RANDOM_MAX);
    }

    #[test]
    fn an_order_that_comes_to_its_end_is_not_lost() {
        let mut order = Order::new(10 * STEP);
        assert!(walk(&mut order, 0, true).is_some());
        assert_eq!(order.note(&[LEAST_STEPS * STEP..10 * STEP], true), None);
        for page in 0..10 {
            let start = page * 2 * STEP;
            assert_eq!(order.note(&[start..start + 4096], true), None);
        }
        assert_eq!(order.losses, 0);
    }
}
