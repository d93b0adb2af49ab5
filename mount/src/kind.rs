//! What is mounted, as messages and the table of mounts call it.

/// What is mounted, in the table of mounts and in messages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Kind {
    /// What its sources begin with in the table of mounts; nothing else does.
    pub name: &'static str,
    /// What it is called in messages.
    pub noun: &'static str,
    /// The command that unmounts it.
    pub unmount: &'static str,
}
