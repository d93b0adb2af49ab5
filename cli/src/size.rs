//! Sizes, as in files of rules.

pub(crate) use foretell_rules::size::{display, parse};
