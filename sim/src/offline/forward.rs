//! Aggressive and Fixed Horizon, with full knowledge and a fixed time for each fetch, in the model of
//! [`unit_time`](super::unit_time).
//!
//! The policy crate's policies of these names follow the same rules with measured costs, windows and clusters.
//! These are the definitions, for comparison.
//!
//! * [`aggressive`]: whenever a disk is idle, it fetches its first missing block, and evicts the resident block
//!   whose next read is last, if that read comes after the missing block's. Of several idle disks, the one
//!   whose block is read first begins. One disk: at most `min(1 + F/C, 2)` times the least elapsed time (Cao,
//!   Felten, Karlin and Li, SIGMETRICS 1995). D disks: `D (1 + (F+1)/C)` times (Kimbrel and Karlin, FOCS 1996).
//! * [`fixed_horizon`]: the same, but only for blocks that are read within the next H reads (Kimbrel et al.,
//!   OSDI 1996). It fetches no earlier than needed, and so evicts as little as possible.

use super::unit_time::{Fetch, Problem, Progress, Schedule};

/// Runs Aggressive; see the [module](self).
pub fn aggressive(problem: &Problem) -> Schedule {
    run(problem, usize::MAX)
}

/// Runs Fixed Horizon; see the [module](self). With a horizon of `fetch_units` reads, an idle disk still
/// fetches a block in time.
pub fn fixed_horizon(problem: &Problem, horizon_reads: usize) -> Schedule {
    run(problem, horizon_reads)
}

fn run(problem: &Problem, horizon_reads: usize) -> Schedule {
    let mut progress = Progress::new(problem);
    let (mut empty, mut fetches) = (problem.capacity_blocks(), Vec::new());
    while !progress.is_over() {
        progress.take_arrivals();
        while let Some(fetch) = next_fetch(problem, &progress, horizon_reads, empty > 0) {
            match fetch.evicts {
                Some(victim) => progress.evict(victim),
                None => empty -= 1,
            }
            progress.start(problem.disk_of(fetch.block), Some(fetch.block));
            fetches.push(fetch);
        }
        assert!(progress.advance(), "invariant: the next block is resident or in flight");
    }
    progress.finish(fetches)
}

fn next_fetch(
    problem: &Problem,
    progress: &Progress<'_>,
    horizon_reads: usize,
    has_empty: bool,
) -> Option<Fetch> {
    let idle = (0..problem.disks()).filter(|&disk| progress.is_idle(disk));
    let (at, block) = idle.filter_map(|disk| progress.first_missing(disk)).min()?;
    if at - progress.cursor > horizon_reads {
        return None;
    }
    let start = progress.now;
    if has_empty {
        return Some(Fetch { start, block, evicts: None });
    }
    let last = (0..problem.disks()).filter_map(|disk| progress.last_cached(disk)).max();
    let (_, victim) = last.filter(|&(next, _)| next > at)?;
    Some(Fetch { start, block, evicts: Some(victim) })
}
