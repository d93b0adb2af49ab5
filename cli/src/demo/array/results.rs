//! What the demo measured. Serialised as it is for `--json`; the report is drawn from it.

use serde::Serialize;

use crate::demo::machine::Machine;

/// Everything.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Results {
    /// The conditions.
    pub(crate) conditions: Conditions,
    /// One entry for each set, number of disks and order.
    pub(crate) runs: Vec<Run>,
}

/// What was the same for all runs.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Conditions {
    /// When, and on what.
    #[serde(flatten)]
    pub(crate) machine: Machine,
    /// The modelled disk.
    pub(crate) disk: String,
    /// Stripe unit in bytes.
    pub(crate) stripe_bytes: u64,
    /// How files lie on the disks.
    pub(crate) layout: String,
    /// Real seconds in one second of the array's clock; all times are of that clock.
    pub(crate) time_scale: f64,
    /// The program that searched, and the string that is not there.
    pub(crate) program: String,
    /// The string searched for.
    pub(crate) needle: String,
}

/// One set, searched cold without and with foretell, and warm.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Run {
    /// Name of the set.
    pub(crate) set: String,
    /// Its files.
    pub(crate) files: usize,
    /// Its blocks of 8 KiB.
    pub(crate) blocks: u64,
    /// Disks of the array.
    pub(crate) disks: usize,
    /// Order in which each disk's waiting requests are served.
    pub(crate) order: String,
    /// Elapsed, cold, without foretell.
    pub(crate) plain_s: f64,
    /// Elapsed, cold, under `foretell run`.
    pub(crate) hinted_s: f64,
    /// Elapsed, everything in memory, without foretell.
    pub(crate) warm_s: f64,
    /// Busy time of the disk that was busiest in the hinted run.
    pub(crate) busiest_disk_s: f64,
    /// The larger of `warm_s` and `busiest_disk_s`: no run can be shorter.
    pub(crate) lower_bound_s: f64,
    /// Whether output, messages and exit code were the same without and with foretell.
    pub(crate) identical: bool,
    /// Prefetched blocks by what became of them.
    pub(crate) useful: u64,
    /// As above.
    pub(crate) late: u64,
    /// As above.
    pub(crate) wasted: u64,
    /// Busy time over time, without foretell.
    pub(crate) plain_timeline: Timeline,
    /// Busy time over time, with foretell.
    pub(crate) hinted_timeline: Timeline,
}

/// Each disk's busy time over time.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Timeline {
    /// Width of a bin.
    pub(crate) bin_s: f64,
    /// For each disk, for each bin, the share in which it was busy, from 0 to 1.
    pub(crate) busy_share: Vec<Vec<f64>>,
}

impl Run {
    /// How much less time the hinted run took, as a share of the plain one.
    pub(crate) fn saved_share(&self) -> f64 {
        1.0 - self.hinted_s / self.plain_s
    }

    /// The hinted run in lower bounds.
    pub(crate) fn of_lower_bound(&self) -> f64 {
        self.hinted_s / self.lower_bound_s
    }
}
