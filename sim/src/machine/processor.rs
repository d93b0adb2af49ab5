//! Processors: the order of programs' work.
//!
//! Work is done in order of arrival, without interruption. `T_driver` of a prefetch is work of the program that disclosed its
//! file. If that program waits for a device meanwhile, only the rest of the wait counts as stall.

use foretell_policy::Nanos;

/// One processor.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Processor {
    free_at: Nanos,
}

impl Processor {
    /// When all work so far will be done.
    pub(super) fn free_at(&self) -> Nanos {
        self.free_at
    }

    /// Adds `work` at `now`. Returns its start and its end.
    pub(super) fn run(&mut self, now: Nanos, work: Nanos) -> Work {
        let start = now.max(self.free_at);
        self.free_at = start + work;
        Work { start, end: self.free_at }
    }
}

/// A piece of work on a processor.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Work {
    pub(super) start: Nanos,
    pub(super) end: Nanos,
}

/// A program's wait for a device, and its work meanwhile.
#[derive(Clone, Debug)]
pub(super) struct Wait {
    since: Nanos,
    work: Vec<Work>,
}

impl Wait {
    pub(super) fn new(since: Nanos) -> Self {
        Wait { since, work: Vec::new() }
    }

    pub(super) fn worked(&mut self, work: Work) {
        self.work.push(work);
    }

    /// The stall of this wait if it ends at `now`.
    pub(super) fn stall(&self, now: Nanos) -> Nanos {
        let within = |work: &Work| work.end.min(now).saturating_sub(work.start.max(self.since));
        now.saturating_sub(self.since) - self.work.iter().map(within).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn work_hides_in_a_wait_as_far_as_it_fits() {
        let mut processor = Processor::default();
        assert_eq!(processor.run(Nanos(10), Nanos(5)), Work { start: Nanos(10), end: Nanos(15) });
        let mut wait = Wait::new(processor.free_at());
        wait.worked(processor.run(Nanos(12), Nanos(5)));
        wait.worked(processor.run(Nanos(30), Nanos(5)));
        assert_eq!(wait.stall(Nanos(32)), Nanos(17 - 5 - 2));
        assert_eq!(wait.stall(Nanos(40)), Nanos(25 - 10));
        assert_eq!(processor.free_at(), Nanos(35));
        // It ends before earlier work does.
        assert_eq!(Wait::new(Nanos(35)).stall(Nanos(33)), Nanos::ZERO);
    }
}
