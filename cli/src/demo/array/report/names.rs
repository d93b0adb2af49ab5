//! The names of the program and of the order of service in the report.

use crate::demo::array::results::{Conditions, Run};
use crate::demo::page::markup::escape;

/// The program's name: the first word of its `--version`, without a folder.
pub(super) fn program_name(conditions: &Conditions) -> String {
    let word = conditions.program.split_whitespace().next().unwrap_or("the program");
    escape(word.rsplit('/').next().unwrap_or(word))
}

/// The order of service as the literature writes it.
pub(super) fn order_name(run: &Run) -> String {
    run.order.to_uppercase()
}
