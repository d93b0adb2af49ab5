//! Room `streams`: hints in the order in which they are to be read, and the records of the hinters that gave them.

pub(crate) mod files;
pub(crate) mod hinters;
pub(crate) mod latest_start;
pub(crate) mod shares;
pub(crate) mod stream;
pub(crate) mod unresolved;
