//! Reproduces the tables and figures of the TIP papers and of the collective paper, with this project's numbers
//! (*ours*) beside the papers'.
//!
//! An experiment is a function that returns [`Cell`]s and [`Figure`]s. Each cell has a [`Basis`]: given,
//! calibrated or predicted. Only predicted cells show how good the simulator is.

pub mod collective;
pub mod comparators;
pub mod deviations;
pub mod page;
pub mod pairs;
pub mod predictive;
pub mod testbed;
pub mod tip1994;
pub mod tip1995;

use serde::Serialize;

use crate::plot::{Axis, Line, Look, Panel, Plot};

/// The basis of our number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The paper states it, and the model takes it as an input.
    Given,
    /// A parameter that the paper does not state was chosen so that this number comes out near the paper's.
    Calibrated,
    /// The simulation gives it, and no parameter was chosen by it.
    Predicted,
}

/// A number of a paper's table or figure, with ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Paper, and table or figure.
    pub experiment: String,
    /// Program, and how it ran.
    pub row: String,
    /// Number of disks, size of the cache, or whatever else varies along the row.
    pub column: String,
    /// The unit of both numbers: `s`; `%`, of time unless the row says otherwise; `x`, a ratio.
    pub unit: String,
    /// The paper's number, or the lower end of its range; `None` where it gives none.
    pub paper: Option<f64>,
    /// The upper end of the paper's range, where it gives one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub paper_to: Option<f64>,
    /// Our number.
    pub ours: f64,
    /// The least and the most, where ours is a mean over disks or a median over draws.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub spread: Option<(f64, f64)>,
    /// The basis of our number.
    pub basis: Basis,
}

impl Cell {
    /// The column's name for an array of `disks` disks.
    fn disks(disks: usize) -> String {
        if disks == 1 { "1 disk".into() } else { format!("{disks} disks") }
    }

    /// How far ours is from the paper's number or range: in points if the unit is `%`, else in per cent of the paper's.
    pub fn deviation(&self) -> Option<f64> {
        let least = self.paper?;
        let paper = self.ours.clamp(least, self.paper_to.unwrap_or(least).max(least));
        Some(if self.unit == "%" { self.ours - paper } else { 100.0 * (self.ours / paper - 1.0) })
    }

    /// The deviation of a percentage, in per cent of the paper's number; `None` if that is small
    /// (`SHARE_FROM`).
    pub fn deviation_of_share(&self) -> Option<f64> {
        let least = self.paper.filter(|_| self.unit == "%")?;
        let paper = self.ours.clamp(least, self.paper_to.unwrap_or(least).max(least));
        (paper.abs() >= SHARE_FROM).then(|| 100.0 * (self.ours / paper - 1.0))
    }

    /// Whether either deviation is more than `most`.
    pub fn is_off_by(&self, most: f64) -> bool {
        [self.deviation(), self.deviation_of_share()]
            .into_iter()
            .flatten()
            .any(|off| off.abs() > most || off.is_nan())
    }
}

/// Percentages below this are compared in points only: 3 % instead of 2 % is no deviation by half.
const SHARE_FROM: f64 = 10.0;
/// The lower end of a range for which the paper gives the upper end only.
pub const AT_MOST: f64 = -100.0;

/// A figure, or a table drawn as one.
#[derive(Clone, Debug, PartialEq)]
pub struct Figure {
    /// The name of its file, without an extension.
    pub name: String,
    /// The drawing.
    pub plot: Plot,
}

impl Figure {
    /// Panels over a common axis. Lines are in seconds of the simulated machine.
    fn new(name: &str, title: &str, x_title: &str, panels: Vec<Panel>) -> Self {
        let plot = Plot {
            title: title.into(),
            subtitle: "Simulated.".into(),
            x_title: x_title.into(),
            x_axis: Axis::Linear,
            y_axis: Axis::Linear,
            panels,
        };
        Figure { name: name.into(), plot }
    }
}

/// A panel of lines, each a name and its points.
fn panel(title: &str, lines: impl IntoIterator<Item = (String, Vec<(f64, f64)>)>) -> Panel {
    let line = |(name, points)| Line { name, points, look: Look::Own };
    Panel { title: title.into(), height: 260.0, lines: lines.into_iter().map(line).collect() }
}

/// The results of an experiment.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Its numbers.
    pub cells: Vec<Cell>,
    /// Its figures.
    pub figures: Vec<Figure>,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

/// The least and the most.
fn spread(figures: impl IntoIterator<Item = f64>) -> Option<(f64, f64)> {
    figures.into_iter().fold(None, |spread, figure| {
        let (least, most) = spread.unwrap_or((figure, figure));
        Some((figure.min(least), figure.max(most)))
    })
}

impl Outcome {
    /// Adds the results of `other`. Figures of the same name are merged, and so are their panels of the same title.
    pub fn merge(&mut self, other: Outcome) {
        self.cells.extend(other.cells);
        for figure in other.figures {
            let Some(known) = self.figures.iter_mut().find(|known| known.name == figure.name)
            else {
                self.figures.push(figure);
                continue;
            };
            let known = &mut known.plot.panels;
            for panel in figure.plot.panels {
                match known.iter_mut().find(|known| known.title == panel.title) {
                    Some(known) => known.lines.extend(panel.lines),
                    None => known.push(panel),
                }
            }
        }
    }
}

/// A part of a paper that can be run on its own.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The paper: `tip1994`, `tip1995` or `collective`.
    pub paper: &'static str,
    /// Its tables or figures.
    pub name: &'static str,
    /// Runs it.
    pub run: fn() -> Outcome,
}

/// All of them, in the order of the papers.
pub const EXPERIMENTS: [Experiment; 15] = {
    const fn experiment(
        paper: &'static str,
        name: &'static str,
        run: fn() -> Outcome,
    ) -> Experiment {
        Experiment { paper, name, run }
    }
    use tip1995::{caching, join, search, slices, speech};
    [
        experiment("tip1994", "tables 1 and 2", tip1994::tables_1_and_2),
        experiment("tip1994", "table 3", tip1994::table_3),
        experiment("tip1995", "figures 1 a and 1 b", search::figures),
        experiment("tip1995", "figure 1 c", slices::figures),
        experiment("tip1995", "figure 2 a", join::figures),
        experiment("tip1995", "figure 2 b", speech::figures),
        experiment("tip1995", "figures 2 c and 10 a", caching::figures_over_disks),
        experiment("tip1995", "figure 10 b", caching::figure_10b),
        experiment("tip1995", "figure 11", caching::figure_11),
        experiment("collective", "table 4", collective::table_4),
        experiment("collective", "table 4, 256 MB", collective::table_4_largest),
        experiment("collective", "table 5", collective::table_5),
        experiment("collective", "table 6", collective::table_6),
        experiment("collective", "cuts of a cube", collective::cuts),
        experiment("collective", "figures 7 to 9", collective::figures),
    ]
};
