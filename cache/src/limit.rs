//! Limit of prefetch requests in flight for a device.
//!
//! Additive increase, multiplicative decrease. When a device says that it is busy (429, 503), the limit is halved;
//! further such answers to requests that were in flight at that time do not halve it again. Each round of successful
//! requests raises it by one, up to the initial limit. Demand requests are not limited, since programs wait for them.

/// See the [module](self).
#[derive(Clone, Debug)]
pub(crate) struct Limit {
    most: usize,
    now: usize,
    outstanding: usize,
    /// Successful requests before the limit rises by one.
    until_more: usize,
    /// Requests to end before another *busy* halves the limit.
    until_less: usize,
}

impl Limit {
    pub(crate) fn new(most: usize) -> Self {
        let most = most.max(1);
        Limit { most, now: most, outstanding: 0, until_more: most, until_less: 0 }
    }

    /// The current limit.
    #[cfg(test)]
    pub(crate) fn now(&self) -> usize {
        self.now
    }

    pub(crate) fn is_reached(&self) -> bool {
        self.outstanding >= self.now
    }

    pub(crate) fn began(&mut self) {
        self.outstanding += 1;
    }

    /// Notes that a counted request has ended.
    pub(crate) fn ended(&mut self) {
        self.outstanding -= 1;
    }

    /// Notes the outcome of a request, counted or not: success, or *busy*.
    pub(crate) fn heard(&mut self, is_busy: bool) {
        let was_under_way = self.until_less > 0; // When the device was last busy.
        self.until_less = self.until_less.saturating_sub(1);
        if is_busy {
            if !was_under_way {
                self.until_less = self.outstanding;
                self.now = (self.now / 2).max(1);
            }
            self.until_more = self.now;
        } else {
            self.until_more = self.until_more.saturating_sub(1);
            if self.until_more == 0 {
                self.now = (self.now + 1).min(self.most);
                self.until_more = self.now;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_busy_device_gets_half_once_a_round_and_one_more_for_each_that_goes_well() {
        let mut limit = Limit::new(64);
        (0..64).for_each(|_| limit.began());
        assert!(limit.is_reached());
        for _ in 0..64 {
            limit.ended();
            limit.heard(true);
        }
        assert_eq!(limit.now(), 32);
        limit.began();
        limit.ended();
        limit.heard(true);
        assert_eq!(limit.now(), 16);
        for _ in 0..16 {
            limit.heard(false);
        }
        assert_eq!(limit.now(), 17);
        (0..10_000).for_each(|_| limit.heard(false));
        assert_eq!(limit.now(), 64);
        (0..10).for_each(|_| limit.heard(true));
        assert_eq!(limit.now(), 1);
    }
}
