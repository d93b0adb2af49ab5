//! When fetches have to begin, so that no block of those that are missing comes too late (Forestall; Kimbrel et al.
//! 1996).
//!
//! With d_i the distance of the i-th missing block and F the time of a fetch in accesses, a reader is bound to wait if
//! i F > d_i for some i. With p_i its position that is so from the front p_i − i F on, wherever the front is now. The least
//! of these, the *latest start*, stays as it is until something is fetched or lost.
//!
//! Only blocks that follow one another closely can make it earlier than the first one does: a fetch of less than an
//! access keeps up with any of them.

/// p_i − i F of positions in order, of which each takes so many accesses to fetch.
fn starts(missing: impl Iterator<Item = u64>, fetch_accesses: f64) -> impl Iterator<Item = f64> {
    missing.zip(1u64..).map(move |(at, number)| at as f64 - number as f64 * fetch_accesses)
}

/// The least of them.
fn latest_start(missing: impl Iterator<Item = u64>, fetch_accesses: f64) -> f64 {
    starts(missing, fetch_accesses).fold(f64::INFINITY, f64::min)
}

/// Whether a reader whose front is `front` is bound to wait if it misses these positions, in order. Looks no further than to the
/// first of them that shows it, which is soon found where many are missing.
pub(crate) fn is_certain(
    front: u64,
    missing: impl Iterator<Item = u64>,
    fetch_accesses: f64,
) -> bool {
    let decide = if fetch_accesses <= 1.0 { 1 } else { usize::MAX };
    starts(missing.take(decide), fetch_accesses).any(|start| start < front as f64)
}

/// The latest start of what one stream misses at one device, as it was found last.
///
/// It is found anew when a quarter of the time until then has passed, in which blocks may have been lost, and when a
/// sixteenth of the blocks has been fetched; so that looking at all of them costs each of them a constant.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LatestStart {
    /// As a front.
    at: f64,
    fetch_accesses: f64,
    /// Front and fetches until it is found anew.
    known_until: u64,
    fetches_left: u64,
}

/// What is counted of the time until a latest start, and of blocks, before it is found anew: a part, and at least.
const SLACK_DIVISOR: f64 = 4.0;
const FETCHES_DIVISOR: u64 = 16;
const LEAST: u64 = 16;

impl LatestStart {
    /// Finds it, for positions in order, with the front at `front`.
    pub(crate) fn find(
        front: u64,
        missing: impl Iterator<Item = u64>,
        fetch_accesses: f64,
    ) -> Self {
        let mut blocks = 0;
        let at = latest_start(missing.inspect(|_| blocks += 1), fetch_accesses);
        let slack = ((at - front as f64) / SLACK_DIVISOR).clamp(0.0, 1e15) as u64;
        let known_until = front.saturating_add(slack.max(LEAST));
        LatestStart {
            at,
            fetch_accesses,
            known_until,
            fetches_left: LEAST + blocks / FETCHES_DIVISOR,
        }
    }

    /// Whether it has to be found anew.
    pub(crate) fn is_old(&self, front: u64) -> bool {
        front >= self.known_until || self.fetches_left == 0
    }

    /// The first of the missing blocks is fetched: all others are one fetch nearer.
    pub(crate) fn taken(&mut self) {
        self.at += self.fetch_accesses;
        self.fetches_left = self.fetches_left.saturating_sub(1);
    }

    /// Whether a fetch that begins with the front at `front` is too late for one of the blocks, if it was not begun before.
    pub(crate) fn is_past(&self, front: u64) -> bool {
        front as f64 > self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The definition: i F > d_i for some i.
    fn is_bound_to_wait(front: u64, missing: &[u64], fetch_accesses: f64) -> bool {
        let mut numbered = missing.iter().zip(1u64..);
        numbered.any(|(&at, number)| number as f64 * fetch_accesses > (at - front) as f64)
    }

    #[test]
    fn a_stall_is_certain_from_the_latest_start_on() {
        for (missing, fetch_accesses) in [
            (vec![100], 30.0),
            ((100..200).collect(), 1.5),
            ((100..200).collect(), 1.0),
            ((100..200).collect(), 0.5),
            ((0..50).map(|n| 400 + 3 * n).chain(600..700).collect(), 2.25),
        ] {
            for front in 0..100 {
                let start = LatestStart::find(front, missing.iter().copied(), fetch_accesses);
                let certain = is_bound_to_wait(front, &missing, fetch_accesses);
                assert_eq!(start.is_past(front), certain, "{front} {fetch_accesses}");
                let at_once = is_certain(front, missing.iter().copied(), fetch_accesses);
                assert_eq!(at_once, certain, "{front} {fetch_accesses}");
            }
        }
    }

    #[test]
    fn a_run_that_a_device_is_too_slow_for_is_begun_by_what_it_lacks() {
        // 100 blocks, of which each takes half an access more than its reader: 50 accesses before them.
        let start = LatestStart::find(0, 1000..1100, 1.5);
        assert!(!start.is_past(1099 - 150) && start.is_past(1099 - 149));
    }

    #[test]
    fn it_moves_on_with_each_fetch_and_is_found_anew_after_some() {
        let mut start = LatestStart::find(960, 1000..1100, 1.5);
        assert!(start.is_past(960));
        let mut fetched = 0;
        while !start.is_old(960) {
            start.taken();
            fetched += 1;
            let anew = LatestStart::find(960, 1000 + fetched..1100, 1.5);
            assert_eq!(start.is_past(960), anew.is_past(960), "{fetched}");
        }
        assert_eq!(fetched, LEAST + 100 / FETCHES_DIVISOR);
        assert!(LatestStart::default().is_old(0), "it is not known at first");
    }
}
