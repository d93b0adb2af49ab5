//! Experiments with the simulated machine: from parameters to results, without side effects.
//!
//! * [`contention`]: hinting and unhinting programs compete for buffers (TIP 1995, figure 11);
//! * [`hostile`]: what wrong hints cost the programs that did not give them;
//! * [`nonuniform`]: blocks on devices of very different speed, compared with the exact optimum.

pub mod contention;
pub mod hostile;
pub mod nonuniform;
