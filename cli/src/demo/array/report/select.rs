//! Which runs are compared with which. Nothing is drawn here.

use crate::demo::array::results::Run;

/// The order of service that is shown where there is a choice.
const MAIN_ORDER: &str = "scan";

/// All runs of one set of files.
pub(super) struct Set<'a> {
    pub(super) name: &'a str,
    pub(super) files: usize,
    pub(super) blocks: u64,
    /// In the order in which they were measured; never empty.
    pub(super) runs: Vec<&'a Run>,
}

/// The sets, in the order in which they first appear.
pub(super) fn sets(runs: &[Run]) -> Vec<Set<'_>> {
    let mut sets: Vec<Set<'_>> = Vec::new();
    for run in runs {
        match sets.iter_mut().find(|set| set.name == run.set) {
            Some(set) => set.runs.push(run),
            None => sets.push(Set {
                name: &run.set,
                files: run.files,
                blocks: run.blocks,
                runs: vec![run],
            }),
        }
    }
    sets
}

/// The set of the most blocks.
pub(super) fn largest<'s, 'a>(sets: &'s [Set<'a>]) -> Option<&'s Set<'a>> {
    sets.iter().max_by_key(|set| (set.blocks, set.files))
}

impl<'a> Set<'a> {
    /// One run for each number of disks, fewest first; in the main order, if there is such a run.
    pub(super) fn by_disks(&self) -> Vec<&'a Run> {
        let mut runs = self.runs.clone();
        runs.sort_by_key(|run| (run.disks, !run.order.eq_ignore_ascii_case(MAIN_ORDER)));
        runs.dedup_by_key(|run| run.disks);
        runs
    }

    /// The run on the most disks.
    pub(super) fn on_most_disks(&self) -> Option<&'a Run> {
        self.by_disks().last().copied()
    }

    /// The runs on one disk, the main order last, if there are at least two orders of them.
    pub(super) fn orders_on_one_disk(&self) -> Option<Vec<&'a Run>> {
        let mut runs: Vec<&Run> = self.runs.iter().copied().filter(|run| run.disks == 1).collect();
        runs.sort_by_key(|run| (run.order.eq_ignore_ascii_case(MAIN_ORDER), run.order.as_str()));
        runs.dedup_by_key(|run| run.order.as_str());
        (runs.len() > 1).then_some(runs)
    }

    /// All runs as the table lists them: by disks, then by order.
    pub(super) fn listed(&self) -> Vec<&'a Run> {
        let mut runs = self.runs.clone();
        runs.sort_by_key(|run| (run.disks, run.order.as_str()));
        runs
    }
}
