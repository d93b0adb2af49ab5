//! A queue of requests in two classes: demand requests go before prefetches, first in first out within each.

use std::collections::VecDeque;

use super::Request;

/// See the [module](self). `F` is the file of a request.
pub(super) struct Waiting<F> {
    demand: VecDeque<(F, Request)>,
    ahead: VecDeque<(F, Request)>,
}

impl<F> Default for Waiting<F> {
    fn default() -> Self {
        Waiting { demand: VecDeque::new(), ahead: VecDeque::new() }
    }
}

impl<F> Waiting<F> {
    pub(super) fn put(&mut self, file: F, request: Request) {
        match request.is_demand() {
            true => self.demand.push_back((file, request)),
            false => self.ahead.push_back((file, request)),
        }
    }

    pub(super) fn take(&mut self) -> Option<(F, Request)> {
        self.demand.pop_front().or_else(|| self.ahead.pop_front())
    }

    pub(super) fn len(&self) -> usize {
        self.demand.len() + self.ahead.len()
    }
}
