//! Computes when each piece of a body is due, from bandwidth limits. Reads no clock: callers pass the time in
//! nanoseconds since the store started.
//!
//! A piece is due when its last byte would have arrived. So a body of `n` bytes is complete `n` divided by the rate
//! after its first byte. Two limits hold at once: that of the response, and that of the link shared by all responses.
//! Pieces queue at the link in the order in which they are asked for, so responses in flight share it evenly.
//!
//! The schedule does not depend on when the server gets round to it. A response that is late by less than
//! [`CATCH_UP_NS`] catches up, so delays of a busy machine do not add up. One that is later starts afresh, without
//! saved-up bandwidth; its client did not read, say.

/// A response that is later than this does not catch up. 5 ms.
pub(crate) const CATCH_UP_NS: u64 = 5_000_000;

/// Duration of a piece at the rate in force: long enough to cost little, short enough for an even pace.
const PIECE_SECONDS: f64 = 0.002;

/// Limits of a piece's size, in bytes. The upper one also applies without a rate.
const PIECE_MIN: u64 = 1 << 10;
const PIECE_MAX: u64 = 256 << 10;

/// Pieces larger than a page are whole pages.
const PAGE: u64 = 4096;

/// The size of pieces, in bytes, at these rates in bytes a second.
pub(crate) fn piece_bytes(per_response: Option<u64>, total: Option<u64>) -> usize {
    let rate = per_response.into_iter().chain(total).min();
    let bytes = rate.map_or(PIECE_MAX, |rate| (rate as f64 * PIECE_SECONDS) as u64);
    let bytes = bytes.clamp(PIECE_MIN, PIECE_MAX);
    (if bytes < PAGE { bytes } else { bytes / PAGE * PAGE }) as usize
}

fn transfer_ns(bytes: usize, rate: Option<u64>) -> u64 {
    let nanos = |rate| (bytes as u128 * 1_000_000_000).div_ceil(u128::from(rate));
    rate.map_or(0, |rate| u64::try_from(nanos(rate)).unwrap_or(u64::MAX))
}

/// The link that all responses share.
#[derive(Debug)]
pub(crate) struct Link {
    rate: Option<u64>,
    free_at_ns: u64,
}

impl Link {
    /// A link of `rate` bytes a second; `None` for no limit.
    pub(crate) fn new(rate: Option<u64>) -> Self {
        Link { rate, free_at_ns: 0 }
    }

    /// Queues `bytes` that are available from `from_ns` on. Returns when the last of them has passed.
    fn pass(&mut self, from_ns: u64, bytes: usize) -> u64 {
        if self.rate.is_none() {
            return from_ns;
        }
        let start = self.free_at_ns.max(from_ns);
        self.free_at_ns = start.saturating_add(transfer_ns(bytes, self.rate));
        self.free_at_ns
    }
}

/// The schedule of one response's body.
#[derive(Debug)]
pub(crate) struct Pace {
    rate: Option<u64>,
    /// The time at which the last byte so far was due.
    cursor_ns: u64,
}

impl Pace {
    /// A body of `rate` bytes a second whose first byte is due at `first_byte_ns`.
    pub(crate) fn new(rate: Option<u64>, first_byte_ns: u64) -> Self {
        Pace { rate, cursor_ns: first_byte_ns }
    }

    /// Returns when the next `bytes` of the body are due, as of `now_ns`. They count as sent.
    pub(crate) fn next(&mut self, link: &mut Link, now_ns: u64, bytes: usize) -> u64 {
        let from = self.cursor_ns.max(now_ns.saturating_sub(CATCH_UP_NS));
        let own = from.saturating_add(transfer_ns(bytes, self.rate));
        self.cursor_ns = own.max(link.pass(from, bytes));
        self.cursor_ns
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MB: u64 = 1_000_000;
    const MS: u64 = 1_000_000;

    /// Sends `bytes` in pieces, each asked for `late_ns` after the previous one was due. Returns when the last was due.
    fn send(pace: &mut Pace, link: &mut Link, start: u64, bytes: usize, late_ns: u64) -> u64 {
        let piece = piece_bytes(pace.rate, link.rate);
        let (mut now, mut left) = (start, bytes);
        let mut due = start;
        while left > 0 {
            let next = left.min(piece);
            due = pace.next(link, now, next);
            now = now.max(due) + late_ns;
            left -= next;
        }
        due
    }

    #[test]
    fn a_body_takes_its_length_divided_by_the_rate() {
        for (rate, bytes) in [(90 * MB, 128 << 10), (90 * MB, 512 << 20), (MB, 100), (1, 3)] {
            let mut pace = Pace::new(Some(rate), 7 * MS);
            let due = send(&mut pace, &mut Link::new(None), 7 * MS, bytes, 0);
            let seconds = (due - 7 * MS) as f64 / 1e9;
            let wanted = bytes as f64 / rate as f64;
            assert!((seconds - wanted).abs() < wanted * 1e-4 + 1e-6, "{seconds} {wanted}");
        }
    }

    #[test]
    fn small_delays_do_not_add_up_and_long_ones_are_not_made_good() {
        let (bytes, rate) = (90 << 20, 90 * MB);
        let end =
            |late_ns| send(&mut Pace::new(Some(rate), 0), &mut Link::new(None), 0, bytes, late_ns);
        assert_eq!(end(0), end(MS));
        assert!(end(0) < end(20 * MS));
        // A client that did not read for a second gets a burst of the catch-up's length, not more.
        let mut pace = Pace::new(Some(rate), 0);
        let mut link = Link::new(None);
        let due = pace.next(&mut link, 1000 * MS, rate as usize / 1000);
        assert_eq!(due, 1000 * MS - CATCH_UP_NS + MS);
    }

    #[test]
    fn without_limits_everything_is_due_at_once() {
        let mut pace = Pace::new(None, 3 * MS);
        assert_eq!(send(&mut pace, &mut Link::new(None), 3 * MS, 1 << 30, 0), 3 * MS);
    }

    #[test]
    fn the_shared_link_is_shared_evenly_and_never_exceeded() {
        let mut link = Link::new(Some(100 * MB));
        let mut paces: Vec<Pace> = (0..10).map(|_| Pace::new(Some(90 * MB), 0)).collect();
        let piece = piece_bytes(Some(90 * MB), Some(100 * MB));
        // Each asks for its next piece when the last was due.
        let mut due = vec![0u64; paces.len()];
        let mut sent = vec![0usize; paces.len()];
        let second = 1000 * MS;
        loop {
            let first = (0..due.len()).min_by_key(|&at| due[at]).expect("some");
            let now = due[first];
            due[first] = paces[first].next(&mut link, now, piece);
            if due[first] > second {
                break;
            }
            sent[first] += piece;
        }
        let total: usize = sent.iter().sum();
        assert!((0.97..=1.0).contains(&(total as f64 / 100e6)), "{total}");
        let (least, most) = (sent.iter().min().expect("some"), sent.iter().max().expect("some"));
        assert!(most - least <= piece, "{least} {most}");
    }

    #[test]
    fn one_response_alone_is_held_by_its_own_limit() {
        let mut link = Link::new(Some(1000 * MB));
        let due = send(&mut Pace::new(Some(10 * MB), 0), &mut link, 0, 10_000_000, 0);
        assert_eq!(due, 1000 * MS);
    }

    #[test]
    fn pieces_are_whole_pages_where_they_can_be() {
        assert_eq!(piece_bytes(None, None), 256 << 10);
        assert_eq!(piece_bytes(Some(1), None), 1 << 10);
        assert_eq!(piece_bytes(Some(90 * MB), None), 43 * 4096);
        assert_eq!(piece_bytes(Some(90 * MB), Some(10 * MB)), 4 * 4096);
    }
}
