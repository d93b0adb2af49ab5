//! The paper's formulas.
