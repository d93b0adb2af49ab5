//! Seek curves: the time of a seek over a distance of `d` cylinders.
//!
//! Two published forms. A, two pieces: `near_base + near_sqrt √d` up to a limit, where the arm only accelerates
//! and brakes, and `far_base + far_slope d` beyond, where it also coasts (Ruemmler and Wilkes, "An introduction
//! to disk drive modeling", 1994). B, one piece: `sqrt √(d−1) + slope (d−1) + base` (Lee and Katz, "An analytic
//! performance model of disk arrays", 1993). A seek of distance 0 takes no time in either.

use foretell_policy::Nanos;
use serde::Deserialize;

/// A seek curve; the [module](self) explains the forms.
#[derive(Clone, Copy, Debug, PartialEq, Deserialize)]
#[serde(tag = "form", rename_all = "kebab-case", deny_unknown_fields)]
pub enum SeekCurve {
    /// Form A.
    TwoPiece {
        /// Constant part of a short seek.
        near_base_ms: f64,
        /// Factor of √d of a short seek.
        near_sqrt_ms: f64,
        /// The longest short seek.
        near_limit_cylinders: u64,
        /// Constant part of a long seek.
        far_base_ms: f64,
        /// Factor of d of a long seek.
        far_slope_ms: f64,
    },
    /// Form B.
    LeeKatz {
        /// Time of a seek of one cylinder.
        base_ms: f64,
        /// Factor of √(d−1).
        sqrt_ms: f64,
        /// Factor of d−1.
        slope_ms: f64,
    },
}

impl SeekCurve {
    /// The time of a seek over `distance_cylinders`.
    pub fn time(&self, distance_cylinders: u64) -> Nanos {
        if distance_cylinders == 0 {
            return Nanos::ZERO;
        }
        let distance = distance_cylinders as f64;
        let milliseconds = match *self {
            SeekCurve::TwoPiece { near_base_ms, near_sqrt_ms, near_limit_cylinders, .. }
                if distance_cylinders <= near_limit_cylinders =>
            {
                near_base_ms + near_sqrt_ms * distance.sqrt()
            }
            SeekCurve::TwoPiece { far_base_ms, far_slope_ms, .. } => {
                far_base_ms + far_slope_ms * distance
            }
            SeekCurve::LeeKatz { base_ms, sqrt_ms, slope_ms } => {
                base_ms + sqrt_ms * (distance - 1.0).sqrt() + slope_ms * (distance - 1.0)
            }
        };
        Nanos::from_millis(milliseconds)
    }

    /// The mean seek time over all pairs of `cylinders` cylinders, each equally likely, in milliseconds.
    pub fn mean_ms(&self, cylinders: u64) -> f64 {
        // 2 (C − d) of the C² ordered pairs are d apart.
        let pairs = cylinders as f64 * cylinders as f64;
        let sum: f64 =
            (1..cylinders).map(|d| 2.0 * (cylinders - d) as f64 * self.time(d).as_millis()).sum();
        sum / pairs
    }

    /// The constants with their names in a parameter file, for checks.
    pub(crate) fn constants(&self) -> Vec<(&'static str, f64)> {
        match *self {
            SeekCurve::TwoPiece {
                near_base_ms, near_sqrt_ms, far_base_ms, far_slope_ms, ..
            } => vec![
                ("seek.near_base_ms", near_base_ms),
                ("seek.near_sqrt_ms", near_sqrt_ms),
                ("seek.far_base_ms", far_base_ms),
                ("seek.far_slope_ms", far_slope_ms),
            ],
            SeekCurve::LeeKatz { base_ms, sqrt_ms, slope_ms } => vec![
                ("seek.base_ms", base_ms),
                ("seek.sqrt_ms", sqrt_ms),
                ("seek.slope_ms", slope_ms),
            ],
        }
    }
}
