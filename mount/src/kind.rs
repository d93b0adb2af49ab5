//! The names of a kind of mount in messages and in the table of mounts.

/// A kind of mount: a store or an array.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// The prefix of its sources in the table of mounts. No other kind of mount has it.
    pub name: &'static str,
    /// The noun for it in messages.
    pub noun: &'static str,
    /// The command that unmounts it.
    pub unmount: &'static str,
}

impl Kind {
    /// A store or a folder.
    pub const STORE: Kind = Kind { name: "foretell", noun: "store", unmount: "foretell unmount" };

    /// An emulated disk array.
    pub const ARRAY: Kind =
        Kind { name: "foretell-array", noun: "array", unmount: "foretell array unmount" };

    /// All kinds.
    pub const ALL: [Kind; 2] = [Kind::STORE, Kind::ARRAY];
}
