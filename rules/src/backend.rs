//! The back ends of advice, by name.

use std::fmt;

use serde::{Serialize, Serializer};

/// How ranges of files are fetched.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum BackendKind {
    /// The one that suits the file system, as far as its type and a measurement tell.
    #[default]
    Auto,
    /// `posix_fadvise(WILLNEED)`.
    Posix,
    /// `readahead(2)`.
    Readahead,
    /// Reading the data.
    ReadThrough,
    /// Advice to the servers of Lustre, by its library.
    Lustre,
    /// Hints to GPFS (IBM Storage Scale), by its library.
    Gpfs,
    /// Hints to a mount of `foretell mount`.
    Mount,
}

impl BackendKind {
    /// All of them, with their names, as users write them.
    pub const ALL: [(&'static str, BackendKind); 7] = [
        ("auto", BackendKind::Auto),
        ("posix", BackendKind::Posix),
        ("readahead", BackendKind::Readahead),
        ("read-through", BackendKind::ReadThrough),
        ("lustre", BackendKind::Lustre),
        ("gpfs", BackendKind::Gpfs),
        ("mount", BackendKind::Mount),
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        Self::ALL.iter().find(|(_, other)| *other == self).map_or("auto", |(name, _)| name)
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl Serialize for BackendKind {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}
