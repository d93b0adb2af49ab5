//! The tiers in front of a store: a local disk before a server that many machines share, before the store.

use std::sync::Arc;

#[cfg(feature = "fleet")]
use super::fleet::{Fleet, FleetStats};
use super::{Tier, TierStats};
use crate::backend::Backend;

/// The tiers in front of a store: a local disk before a server that many machines share. Each may be missing.
#[derive(Clone, Debug, Default)]
pub struct Tiers {
    /// The tier on a local disk.
    pub disk: Option<Arc<Tier>>,
    /// The tier that many machines share.
    #[cfg(feature = "fleet")]
    pub fleet: Option<Arc<Fleet>>,
}

/// Counts of the tiers that there are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize)]
pub struct TiersStats {
    /// Of the local disk.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tier: Option<TierStats>,
    /// Of the server.
    #[cfg(feature = "fleet")]
    #[serde(skip_serializing_if = "Option::is_none")]
    pub fleet: Option<FleetStats>,
}

impl Tiers {
    /// A back end that keeps the blocks of `origin` in these tiers; `origin` itself without any. `store` must identify the
    /// store, as [`Tier::over`] and [`Fleet::over`](super::fleet::Fleet::over) say.
    pub fn over(&self, store: &str, origin: Arc<dyn Backend>) -> Arc<dyn Backend> {
        #[cfg(feature = "fleet")]
        let origin: Arc<dyn Backend> = match &self.fleet {
            Some(fleet) => Arc::new(fleet.over(store, origin)),
            None => origin,
        };
        match &self.disk {
            Some(disk) => Arc::new(disk.over(store, origin)),
            None => origin,
        }
    }

    /// Counts since they were opened.
    pub fn stats(&self) -> TiersStats {
        TiersStats {
            tier: self.disk.as_ref().map(|disk| disk.stats()),
            #[cfg(feature = "fleet")]
            fleet: self.fleet.as_ref().map(|fleet| fleet.stats()),
        }
    }

    /// Sets the listener for trouble, which gets a line. It is called from any thread, and must not wait. Only the first
    /// listener of a tier is ever called.
    pub fn on_trouble(&self, tell: impl Fn(&str) + Send + Sync + 'static) {
        let tell = Arc::new(tell);
        if let Some(disk) = &self.disk {
            let tell = Arc::clone(&tell);
            disk.on_trouble(move |trouble| tell(&format!("second tier: {trouble}")));
        }
        #[cfg(feature = "fleet")]
        if let Some(fleet) = &self.fleet {
            fleet.on_trouble(move |trouble| tell(&format!("shared tier: {trouble}")));
        }
    }
}
