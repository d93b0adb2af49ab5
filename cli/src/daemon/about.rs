//! What the daemon says about itself, and its budget.

use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Instant;

use foretell_family::Host;

use super::managed::House;
use super::pressure::Squeezed;
use super::status::Status;

/// See the [module](self).
pub(super) struct About {
    pub(super) house: Arc<House>,
    began: Instant,
    /// The budget, and the number of times that memory was short.
    budget: Mutex<(Squeezed, u64)>,
    /// The cache of stores, until it ends.
    cache: Mutex<Option<Host>>,
}

impl About {
    pub(super) fn new(house: Arc<House>, full_bytes: u64, cache: Option<Host>) -> Self {
        let budget = Mutex::new((Squeezed::new(full_bytes), 0));
        About { house, began: Instant::now(), budget, cache: Mutex::new(cache) }
    }

    fn cache(&self) -> MutexGuard<'_, Option<Host>> {
        self.cache.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Number of programs' stores that use the cache.
    pub(super) fn cache_clients(&self) -> usize {
        self.cache().as_ref().map_or(0, Host::clients)
    }

    /// Memory is short.
    pub(super) fn press_cache(&self) {
        if let Some(cache) = &*self.cache() {
            cache.press();
        }
    }

    /// Memory is short no more. Returns whether the cache may still not use all of its own.
    pub(super) fn relax_cache(&self) -> bool {
        self.cache().as_ref().is_some_and(Host::relax)
    }

    /// Lets no store join the cache any more.
    pub(super) fn hide_cache(&self) {
        if let Some(cache) = &*self.cache() {
            cache.hide();
        }
    }

    /// Ends the cache. Programs that use it go on by themselves.
    pub(super) fn end_cache(&self) {
        let cache = self.cache().take();
        drop(cache); // It may wait for threads.
    }

    fn budget(&self) -> (Squeezed, u64) {
        *self.budget.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Changes the budget, and counts `pressures` more. Returns whether it is below what it is without pressure.
    pub(super) fn change_budget(&self, change: impl FnOnce(&mut Squeezed), pressures: u64) -> bool {
        let mut budget = self.budget.lock().unwrap_or_else(PoisonError::into_inner);
        change(&mut budget.0);
        budget.1 += pressures;
        let now_bytes = budget.0.now_bytes;
        self.house.shares.set_budget(now_bytes);
        let is_squeezed = budget.0.is_squeezed();
        drop(budget);
        self.house.log.tell("budget", &[("bytes", now_bytes.into())]);
        is_squeezed
    }

    pub(super) fn status(&self) -> Status {
        let (runs, ended) = self.house.runs();
        let (budget, pressures) = self.budget();
        Status {
            version: env!("CARGO_PKG_VERSION").to_owned(),
            pid: std::process::id(),
            uptime_s: self.began.elapsed().as_secs_f64(),
            budget_bytes: budget.now_bytes,
            full_budget_bytes: budget.full_bytes,
            held_bytes: runs.iter().map(|run| run.figures.held_bytes).sum(),
            pressures,
            is_draining: self.house.is_draining.load(Ordering::Acquire),
            refused_runs: self.house.refused.load(Ordering::Relaxed),
            ended,
            cache: self.cache().as_ref().map(Host::status),
            runs,
        }
    }
}
