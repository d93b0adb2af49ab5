//! When fetches have to begin so that none of the missing blocks comes too late (Forestall; Kimbrel et al. 1996).
//!
//! Let d_i be the distance of the i-th missing block and F the time of a fetch, in accesses. A reader is bound to wait if i F >
//! d_i for some i. If p_i is the block's position, this holds from the front p_i − i F on. The least of these fronts is the
//! *latest start*. It stays the same until a block is fetched or lost.
//!
//! A later block can only lower the latest start if fetches take longer than an access. If F ≤ 1, the first missing block
//! decides.

/// p_i − i F for positions in order, if each takes `fetch_accesses` accesses to fetch.
fn starts(missing: impl Iterator<Item = u64>, fetch_accesses: f64) -> impl Iterator<Item = f64> {
    missing.zip(1u64..).map(move |(at, number)| at as f64 - number as f64 * fetch_accesses)
}

/// The least of [`starts`].
fn latest_start(missing: impl Iterator<Item = u64>, fetch_accesses: f64) -> f64 {
    starts(missing, fetch_accesses).fold(f64::INFINITY, f64::min)
}

/// Whether a reader at `front` is bound to wait for one of the missing positions, given in order. The search stops at the first
/// position that proves it, which comes early where many blocks are missing.
pub(crate) fn is_certain(
    front: u64,
    missing: impl Iterator<Item = u64>,
    fetch_accesses: f64,
) -> bool {
    let decide = if fetch_accesses <= 1.0 { 1 } else { usize::MAX };
    starts(missing.take(decide), fetch_accesses).any(|start| start < front as f64)
}

/// The last computed latest start of one stream at one device.
///
/// The latest start is recomputed when the front has come a quarter of the way to it, since blocks may have been lost. It is
/// also recomputed when a sixteenth of the missing blocks has been fetched. So the searches cost O(1) for each block in total.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct LatestStart {
    /// The latest start, as a position of the front.
    at: f64,
    fetch_accesses: f64,
    /// The front at which it is recomputed, and the fetches left until then.
    known_until: u64,
    fetches_left: u64,
}

/// The latest start is recomputed after this part, as a divisor, of the accesses that are left until it.
/// Unit: ratio. Reason: judgement.
const SLACK_DIVISOR: f64 = 4.0;
/// The latest start is recomputed after as many fetches as there were missing blocks, divided by this.
/// Unit: ratio. Reason: judgement.
const FETCHES_DIVISOR: u64 = 16;
/// The latest start is not recomputed before this many accesses or fetches.
/// Unit: accesses. Reason: bound.
const LEAST: u64 = 16;

impl LatestStart {
    /// Computes it for missing positions in order.
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

    /// Whether the latest start has to be recomputed.
    pub(crate) fn is_old(&self, front: u64) -> bool {
        front >= self.known_until || self.fetches_left == 0
    }

    /// The first missing block is fetched. All others need one fetch less before theirs.
    pub(crate) fn taken(&mut self) {
        self.at += self.fetch_accesses;
        self.fetches_left = self.fetches_left.saturating_sub(1);
    }

    /// Whether fetches that begin only now, with the reader at `front`, are too late for one of the blocks.
    pub(crate) fn is_past(&self, front: u64) -> bool {
        front as f64 > self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// By the definition: i F > d_i for some i.
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
        // 100 blocks, each of which takes half an access longer to fetch than to read: they need a lead of 50 accesses.
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
