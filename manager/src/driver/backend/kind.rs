//! The names of back ends.

use std::fmt;
use std::str::FromStr;

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
    /// All of them.
    pub const ALL: [BackendKind; 7] = [
        BackendKind::Auto,
        BackendKind::Posix,
        BackendKind::Readahead,
        BackendKind::ReadThrough,
        BackendKind::Lustre,
        BackendKind::Gpfs,
        BackendKind::Mount,
    ];

    /// Its name, as users write it.
    pub fn name(self) -> &'static str {
        match self {
            BackendKind::Auto => "auto",
            BackendKind::Posix => "posix",
            BackendKind::Readahead => "readahead",
            BackendKind::ReadThrough => "read-through",
            BackendKind::Lustre => "lustre",
            BackendKind::Gpfs => "gpfs",
            BackendKind::Mount => "mount",
        }
    }
}

impl fmt::Display for BackendKind {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.pad(self.name())
    }
}

impl serde::Serialize for BackendKind {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str(self.name())
    }
}

/// No back end has this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("no back end is called {0:?} (known: {known})", known = known())]
pub struct UnknownBackend(pub String);

fn known() -> String {
    BackendKind::ALL.map(BackendKind::name).join(", ")
}

impl FromStr for BackendKind {
    type Err = UnknownBackend;

    fn from_str(name: &str) -> Result<Self, UnknownBackend> {
        let found = BackendKind::ALL.into_iter().find(|kind| kind.name() == name);
        found.ok_or_else(|| UnknownBackend(name.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_name_is_read_and_another_is_told_the_known_ones() {
        for kind in BackendKind::ALL {
            assert_eq!(kind.to_string().parse(), Ok(kind));
        }
        let error = "Posix".parse::<BackendKind>().expect_err("names are in lower case");
        let text = "no back end is called \"Posix\" \
            (known: auto, posix, readahead, read-through, lustre, gpfs, mount)";
        assert_eq!(error.to_string(), text);
    }
}
