//! The results of the demo on the array. They are serialised as they are for `--json`; the report is drawn from them.

use serde::Serialize;

use crate::demo::machine::Machine;

/// All results.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Results {
    /// The conditions.
    pub(crate) conditions: Conditions,
    /// One entry for each set, number of disks and order.
    pub(crate) runs: Vec<Run>,
}

/// The conditions, the same for all runs.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Conditions {
    /// The date and the machine.
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
    /// The program that searched.
    pub(crate) program: String,
    /// The string that it searched for; no file has it.
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
    /// Busy time of all disks together in that run.
    pub(crate) plain_busy_s: f64,
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
    /// Prefetched blocks that were useful.
    pub(crate) useful: u64,
    /// Prefetched blocks that were late.
    pub(crate) late: u64,
    /// Prefetched blocks that were wasted.
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

/// Largest delayed share of a reliable run. Answering each read takes some time on any machine: on an idle one with two cores
/// the share is 5 to 10 %.
const DELAYED_SHARE_MAX: f64 = 0.15;

impl Run {
    /// The share of the plain run's time that neither the disks nor the program took. A program that waits for each read takes
    /// the time of the warm run plus the busy time of all disks. Time above that is the machine's: it had other work, or could
    /// not keep up with the array's clock.
    pub(crate) fn delayed_share(&self) -> f64 {
        (1.0 - (self.warm_s + self.plain_busy_s) / self.plain_s).max(0.0)
    }

    /// Whether the delayed share is so large that foretell seems to save more than it does.
    pub(crate) fn is_delayed(&self) -> bool {
        self.delayed_share() > DELAYED_SHARE_MAX
    }

    /// The share of the plain run's time that the hinted run saved.
    pub(crate) fn saved_share(&self) -> f64 {
        1.0 - self.hinted_s / self.plain_s
    }

    /// The hinted run's time as a multiple of the lower bound.
    pub(crate) fn of_lower_bound(&self) -> f64 {
        self.hinted_s / self.lower_bound_s
    }
}
