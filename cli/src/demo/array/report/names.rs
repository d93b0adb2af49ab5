//! What the program and the order of service are called in the report.

use crate::demo::array::results::{Conditions, Run};
use crate::demo::page::markup::escape;

/// The program's name: the first word of how it calls itself.
pub(super) fn program_name(conditions: &Conditions) -> String {
    let word = conditions.program.split_whitespace().next().unwrap_or("the program");
    escape(word.rsplit('/').next().unwrap_or(word))
}

/// The order of service as the literature writes it.
pub(super) fn order_name(run: &Run) -> String {
    run.order.to_uppercase()
}
