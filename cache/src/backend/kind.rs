//! What the list of back ends ([`KINDS`](super::KINDS)) has of each.

use std::fmt;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use super::addressed::Addressed;
use super::conformance::World;
use super::environment::Environment;

/// One kind of back end.
#[derive(Clone, Copy, Debug)]
pub struct Kind {
    /// Its name, for people.
    pub name: &'static str,
    /// How addresses are opened; `None` if an address cannot name a store of this kind.
    pub by_address: Option<ByAddress>,
    /// Stores for the [conformance](super::conformance) suite to run on, in turn. They may keep files in the folder that is
    /// given.
    pub worlds: fn(&Path) -> Vec<Box<dyn World>>,
}

/// How a kind of back end opens addresses (`SCHEME://…`).
#[derive(Clone, Copy, Debug)]
pub struct ByAddress {
    /// Schemes, as messages name them.
    pub schemes: &'static [&'static str],
    /// Further names of these schemes.
    pub aliases: &'static [&'static str],
    /// Opens the store at an address of one of these schemes.
    pub open: fn(&str, &AddressOptions<'_>) -> Result<Named, AddressError>,
}

impl ByAddress {
    pub(super) fn has(&self, scheme: &str) -> bool {
        self.schemes.contains(&scheme) || self.aliases.contains(&scheme)
    }
}

/// How a store is opened by its address.
#[derive(Clone, Copy, Debug)]
pub struct AddressOptions<'a> {
    /// Requests ahead of programs at once; `None` stands for the default of the kind.
    pub depth: Option<usize>,
    /// How long a program waits for an answer before its read or open fails.
    pub deadline: Duration,
    /// How long the store may be silent before a request is given up and retried, unless the kind's default is shorter;
    /// `None` stands for the deadline.
    pub silence: Option<Duration>,
    /// Settings by name. They override the environment.
    pub settings: &'a [(&'a str, &'a str)],
    /// Variables of another process, for which the store is opened; `None` stands for those of this one.
    pub environment: Option<&'a Environment>,
}

/// A store that was opened by its address.
pub struct Named {
    /// The store.
    pub backend: Arc<dyn Addressed>,
    /// What tells this store from others, for [`Tier::over`](crate::tier::Tier::over).
    pub identity: String,
}

impl fmt::Debug for Named {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Named").field("identity", &self.identity).finish_non_exhaustive()
    }
}

/// An address that could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum AddressError {
    /// The address has an unknown scheme. The message names the known ones.
    #[error("{0}")]
    Scheme(String),
    /// The address or a setting is wrong, or settings are missing.
    #[error("{address}: {message}")]
    Store {
        /// The address, without secrets.
        address: String,
        /// What is wrong with the address, or with the settings in the environment.
        message: String,
    },
    /// No threads could be started.
    #[error("cannot start the threads that talk to a store: {0}")]
    Threads(io::Error),
}

impl AddressError {
    /// `address` begins with none of `schemes`.
    pub(super) fn of_scheme(
        address: &str,
        schemes: impl IntoIterator<Item = &'static str>,
    ) -> Self {
        let known: Vec<String> = schemes.into_iter().map(|scheme| format!("{scheme}://")).collect();
        let known = match known.split_last() {
            Some((last, [])) => last.clone(),
            Some((last, others)) => format!("{} or {last}", others.join(", ")),
            None => return AddressError::Scheme(format!("{address}: no addresses can be opened")),
        };
        AddressError::Scheme(format!("{address}: an address begins with {known}"))
    }
}

/// Splits an address without its scheme into the user (`NAME:PASSWORD`), if there is one, and the rest.
pub(crate) fn user_of(rest: &str) -> (Option<&str>, &str) {
    let host = rest.find(['/', '?', '#']).unwrap_or(rest.len());
    match rest[..host].rfind('@') {
        Some(at) => (Some(&rest[..at]), &rest[at + 1..]),
        None => (None, rest),
    }
}

/// An address that may be shown: without the user, and without a query, which may be a signature.
pub fn without_secrets(address: &str) -> String {
    match address.split_once("://") {
        Some((scheme, rest)) => {
            let (_, rest) = user_of(rest);
            // In a key of a bucket a question mark is a character as any other.
            let has_keys = ["s3", "s3a", "gs", "az", "abfs", "abfss"].contains(&scheme);
            let path = rest.split(['?', '#']).next().unwrap_or_default();
            match has_keys {
                true => format!("{scheme}://{rest}"),
                false if rest.contains('?') => format!("{scheme}://{path}?..."),
                false => format!("{scheme}://{path}"),
            }
        }
        None => address.to_owned(),
    }
}
