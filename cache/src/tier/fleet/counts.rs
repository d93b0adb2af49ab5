//! What a shared tier counts.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! counts {
    ($($(#[$about:meta])* $name:ident from $counter:ident,)*) => {
        /// Counts since the tier was opened, in blocks unless said otherwise.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Serialize, serde::Deserialize)]
        #[serde(default)]
        pub struct FleetStats {
            $($(#[$about])* pub $name: u64,)*
        }

        impl FleetStats {
            /// Each count, with its name.
            pub fn named(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl std::ops::AddAssign for FleetStats {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }

        #[derive(Debug, Default)]
        pub(super) struct Counts {
            $(pub(super) $counter: AtomicU64,)*
        }

        impl Counts {
            pub(super) fn now(&self) -> FleetStats {
                FleetStats { $($name: self.$counter.load(Ordering::Relaxed),)* }
            }
        }
    };
}

counts! {
    /// Blocks that came from the server and passed the check.
    hit_blocks from hit,
    /// Blocks that came from the store.
    missed_blocks from missed,
    /// Blocks put on the server.
    put_blocks from put,
    /// Blocks not put, since the server has no room for them.
    declined_blocks from declined,
    /// Blocks not put, since the server was away or too slow.
    dropped_blocks from dropped,
    /// Leases that this node got: blocks that it fetched for all.
    leases from leases,
    /// Blocks that another node was fetching when they were wanted.
    waited_blocks from waited,
    /// Of these, blocks that did not come in time, and were fetched here as well.
    overdue_blocks from overdue,
    /// Values that failed the check.
    refused_values from refused,
    /// Failures of the server.
    server_errors from server_errors,
}
