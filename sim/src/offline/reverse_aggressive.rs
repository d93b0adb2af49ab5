//! Reverse Aggressive: near-optimal prefetching and caching for several disks, off line (Kimbrel and Karlin,
//! FOCS 1996 and SIAM J. Comput. 29(4), 2000; compared with on-line rules by Kimbrel et al., OSDI 1996). The
//! model is that of [`unit_time`](super::unit_time).
//!
//! Aggressive chooses well *what* to evict, but badly *when* to fetch: it fetches blocks from one disk that it
//! could have fetched later, and then finds that all missing blocks lie on another disk. A schedule read
//! backwards is a schedule of the reversed sequence in which fetches and evictions have changed places: each
//! fetch becomes the eviction of its block, and each eviction a fetch. So a schedule that fetches greedily in
//! reverse evicts greedily when read forwards. It spreads the blocks that will have to be fetched over all
//! disks.
//!
//! * **A. Reverse pass.** It follows the rule of Aggressive over the reversed sequence, except that a disk is
//!   busy with the block that it *loses*: read forwards, that is the block that it fetches. Whenever a disk is
//!   idle, its resident block whose next read is last is evicted for the first block missing on any disk, if
//!   that one is read earlier. Of several idle disks, the one whose block is read last begins. At first the
//!   buffers hold the blocks that are read first (forwards: those left at the end). When all is read, all
//!   buffers are emptied (forwards: empty at first).
//! * **B. Reading backwards.** If the reverse pass ends at T, a fetch that starts there at `t` starts forwards
//!   at `T - t - F`. This is a valid schedule with the same elapsed time.
//! * **C. Forward pass.** The mirrored schedule leaves disks idle that could already start. So each disk makes
//!   its fetches in their order, each as soon as possible: the victim has arrived and has had its last read,
//!   and the fetched block's earlier copy has left. No fetch and no read is later than in the mirrored
//!   schedule, so the elapsed time is at most T.
//!
//! The elapsed time is at most `1 + D F/C` times the least possible, with D disks, C buffers and fetches of F
//! units (Kimbrel and Karlin). `tests/unit_time.rs` compares it with the least on small cases. Buffers are
//! empty at first there, so the bound is checked with up to F units added for each disk.
//!
//! Cost: O(n (D + log n)) time for n reads on D disks, and O(n) memory.

use super::unit_time::{Fetch, NEVER, Problem, Progress, Schedule};

/// Runs Reverse Aggressive; see the [module](self).
pub fn reverse_aggressive(problem: &Problem) -> Schedule {
    let (plan, end) = reverse_pass(problem);
    let schedule = forward_pass(problem, plan);
    debug_assert!(schedule.elapsed <= end, "{} units, and {end} in reverse", schedule.elapsed);
    schedule
}

/// A fetch of the forward schedule, without its time.
#[derive(Clone, Copy, Debug)]
struct Planned {
    block: usize,
    /// The victim, and the position of the last read before which it must not leave.
    evicts: Option<(usize, usize)>,
}

/// A and B: the forward fetches in order, and the end of the reverse pass.
fn reverse_pass(problem: &Problem) -> (Vec<Planned>, u64) {
    let reversed = problem.reversed();
    let reads = reversed.reads().len();
    let mut progress = Progress::new(&reversed);
    let mut in_order: Vec<usize> = (0..reversed.blocks()).collect();
    in_order.sort_unstable_by_key(|&block| progress.next_read(block));
    in_order.truncate(problem.capacity_blocks());
    in_order.iter().for_each(|&block| progress.put(block));
    // Buffers still to be emptied. An empty buffer counts as a block that is read at the end.
    let mut to_empty = in_order.len();
    let mut plan = Vec::new();
    loop {
        progress.take_arrivals();
        loop {
            let disks = 0..reversed.disks();
            let idle = disks.clone().filter(|&disk| progress.is_idle(disk));
            let Some((last_read, leaves)) =
                idle.filter_map(|disk| progress.last_cached(disk)).max()
            else {
                break;
            };
            let first = disks.filter_map(|disk| progress.first_missing(disk)).min();
            let empty = (to_empty > 0).then_some((reads, NEVER));
            let Some((at, comes)) = first.or(empty).filter(|&(at, _)| at < last_read) else {
                break;
            };
            let comes = (comes != NEVER).then_some(comes);
            let evicts = comes.map(|comes| (comes, reads - 1 - at));
            plan.push(Planned { block: leaves, evicts });
            to_empty -= usize::from(comes.is_none());
            progress.evict(leaves);
            progress.start(reversed.disk_of(leaves), comes);
        }
        if !progress.advance() {
            break;
        }
    }
    assert!(
        progress.is_over() && to_empty == 0,
        "the reverse pass must read everything and empty all buffers"
    );
    plan.reverse(); // All fetches take F, so the last start in reverse is the first one forwards.
    (plan, progress.now)
}

/// C.
fn forward_pass(problem: &Problem, plan: Vec<Planned>) -> Schedule {
    let mut queues: Vec<std::collections::VecDeque<Step>> =
        vec![Default::default(); problem.disks()];
    let (mut comings, mut leavings) = (vec![0; problem.blocks()], vec![0; problem.blocks()]);
    for planned in plan {
        let coming = count(&mut comings, planned.block);
        let leaving = planned.evicts.map_or(0, |(victim, _)| count(&mut leavings, victim));
        queues[problem.disk_of(planned.block)].push_back(Step { planned, coming, leaving });
    }
    let mut progress = Progress::new(problem);
    let (mut come, mut left) = (vec![0; problem.blocks()], vec![0; problem.blocks()]);
    let mut fetches = Vec::new();
    while !progress.is_over() {
        for block in progress.take_arrivals().into_iter().flatten() {
            count(&mut come, block);
        }
        let mut started = true;
        while std::mem::take(&mut started) {
            for (disk, queue) in queues.iter_mut().enumerate() {
                let next = queue.front().filter(|_| progress.is_idle(disk));
                let Some(step) = next.filter(|step| step.can_start(progress.cursor, &come, &left))
                else {
                    continue;
                };
                let Planned { block, evicts } = step.planned;
                let evicts = evicts.map(|(victim, _)| victim);
                if let Some(victim) = evicts {
                    progress.evict(victim);
                    count(&mut left, victim);
                }
                progress.start(disk, Some(block));
                fetches.push(Fetch { start: progress.now, block, evicts });
                queue.pop_front();
                started = true;
            }
        }
        assert!(progress.advance(), "invariant: the next block is resident or in flight");
    }
    progress.finish(fetches)
}

/// A planned fetch, and how often its blocks come and leave before it.
#[derive(Clone, Copy, Debug)]
struct Step {
    planned: Planned,
    /// Earlier fetches of `block`; it must have left as often.
    coming: usize,
    /// Earlier evictions of the victim; it must have come once more.
    leaving: usize,
}

impl Step {
    fn can_start(&self, cursor: usize, come: &[usize], left: &[usize]) -> bool {
        let is_free = self.planned.evicts.is_none_or(|(victim, last_read)| {
            come[victim] > self.leaving && left[victim] == self.leaving && cursor > last_read
        });
        is_free && left[self.planned.block] >= self.coming
    }
}

/// Adds one to a count, and returns the count before.
fn count(counts: &mut [usize], of: usize) -> usize {
    let before = counts[of];
    counts[of] += 1;
    before
}
