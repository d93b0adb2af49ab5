//! Experiments with the simulated machine: from parameters to results, without side effects.
//!
//! * [`contention`]: hinting and unhinting programs compete for buffers (TIP 1995, figure 11);
//! * [`hostile`]: what wrong hints cost those who gave none of them;
//! * [`nonuniform`]: blocks on devices of very different speed, against the exact optimum.

pub mod contention;
pub mod hostile;
pub mod nonuniform;
