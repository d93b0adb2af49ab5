//! Requests that wait to be begun; those that programs wait for go first.

use std::collections::VecDeque;
use std::sync::Arc;

use super::Request;
use super::local::LocalFile;

/// See the [module](self).
#[derive(Default)]
pub(super) struct Waiting {
    demand: VecDeque<(Arc<LocalFile>, Request)>,
    ahead: VecDeque<(Arc<LocalFile>, Request)>,
}

impl Waiting {
    pub(super) fn put(&mut self, file: Arc<LocalFile>, request: Request) {
        match request.is_demand() {
            true => self.demand.push_back((file, request)),
            false => self.ahead.push_back((file, request)),
        }
    }

    pub(super) fn take(&mut self) -> Option<(Arc<LocalFile>, Request)> {
        self.demand.pop_front().or_else(|| self.ahead.pop_front())
    }

    pub(super) fn len(&self) -> usize {
        self.demand.len() + self.ahead.len()
    }
}
