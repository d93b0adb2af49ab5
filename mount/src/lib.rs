//! The managed cache as a file system.

mod error;
pub mod point;
mod table;

pub use error::MountError;
pub use point::Ending;
