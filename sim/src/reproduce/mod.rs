//! The TIP papers' tables and figures again, with ours beside theirs.
//!
//! An experiment is a function to [`Cell`]s and [`Plot`]s. Each cell says what its figure rests on ([`Basis`]): only
//! what is *predicted* says anything about the simulator.

pub mod testbed;
pub mod tip1994;
pub mod tip1995;

use serde::Serialize;

/// What our figure rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Basis {
    /// The paper states it, and it is put in.
    Given,
    /// Something that the paper does not state was chosen so that this figure comes out near the paper's.
    Calibrated,
    /// It comes out.
    Predicted,
}

/// A number of a paper's table or figure, and ours.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Cell {
    /// Paper, and table or figure.
    pub experiment: String,
    /// Program, and how it was run.
    pub row: String,
    /// On what.
    pub column: String,
    /// Of both numbers: `s`; `%`, of time unless the row says otherwise; `x`, a ratio.
    pub unit: String,
    /// The paper's; none where it gives no number.
    pub paper: Option<f64>,
    /// Ours.
    pub ours: f64,
    /// What ours rests on.
    pub basis: Basis,
}

impl Cell {
    /// The column of an array of so many disks.
    fn disks(disks: usize) -> String {
        if disks == 1 { "1 disk".into() } else { format!("{disks} disks") }
    }

    /// How far ours is from the paper's: as a share of the paper's, or in points if both are percentages.
    pub fn deviation(&self) -> Option<f64> {
        let paper = self.paper?;
        Some(if self.unit == "%" { self.ours - paper } else { 100.0 * (self.ours / paper - 1.0) })
    }
}

/// Lines over a common axis.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// What is on the vertical axis, and its unit.
    pub title: String,
    /// Name and points of each line.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// A page of panels.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Of its file, without an ending.
    pub name: String,
    /// Above everything.
    pub title: String,
    /// What is on the horizontal axis.
    pub x_title: String,
    /// From top to bottom.
    pub panels: Vec<Panel>,
}

/// What an experiment has come to.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Outcome {
    /// Its numbers.
    pub cells: Vec<Cell>,
    /// Its figures.
    pub plots: Vec<Plot>,
}

fn seconds(ns: u64) -> f64 {
    ns as f64 / 1e9
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn show() {
        for cell in tip1994::tables_1_and_2().cells.into_iter().chain(tip1994::table_3().cells) {
            println!(
                "{:14} {:40} {:8} {:3} {:8.2} {:8.2} {:6.1} {:?}",
                cell.experiment,
                cell.row,
                cell.column,
                cell.unit,
                cell.paper.unwrap_or(0.0),
                cell.ours,
                cell.deviation().unwrap_or(0.0),
                cell.basis
            );
        }
    }
}
