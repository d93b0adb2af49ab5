//! Where data comes from: local files, object stores, memory.
//!
//! A back end is two small traits. [`Backend::open`] finds a file and its current version. [`Object::start`] begins a
//! read of that version. The engine decides the size, number and order of requests.
//!
//! The caller
//! * asks for ranges that are not empty and lie within the size that `open` told;
//! * starts further requests before the first has ended, up to a bounded number.
//!
//! The back end
//! * returns from `start` without waiting for the data;
//! * [fills](Request::fill) the request and [completes](Request::complete) it, from any thread. A request that is
//!   dropped instead fails as [`Lost`](BackendError::Lost);
//! * never completes a request successfully with bytes of another version;
//! * fails with [`Busy`](BackendError::Busy) if it is overloaded. The engine then sends fewer requests at once.
//!
//! [`Backend::find`] and [`Backend::list`] tell what a store has, if it knows. [`Addressed`] has what the command line and
//! Python ask beside that.
//!
//! Every back end passes the [`conformance`] suite.

mod addressed;
pub mod beneath;
mod blocking;
pub mod conformance;
mod direct;
mod environment;
mod files;
pub mod index;
mod kind;
pub mod local;
pub mod memory;
mod names;
#[cfg(feature = "object")]
pub mod object;
mod reach;
mod request;
mod traits;
mod uring;
mod waiting;

pub use crate::error::BackendError;
pub use addressed::Addressed;
pub use environment::Environment;
#[cfg(feature = "fleet")]
pub(crate) use kind::user_of;
pub use kind::{AddressError, AddressOptions, ByAddress, Kind, Named, without_secrets};
pub use names::{Entry, FileInfo, Found, LeftOut, Listing, Whole};
pub(crate) use request::Part;
pub use request::Request;
pub use traits::{Backend, Object, Opened};

/// All kinds of back end. A new one is a file of this folder, its `mod` above, and its entry here: then [`at`] opens
/// its addresses and the conformance suite runs on it (`docs/internals/extending.md`).
pub const KINDS: &[Kind] = &[
    local::KIND,
    memory::KIND,
    #[cfg(feature = "object")]
    object::KIND,
];

/// Opens the store at an address, by the kind that has its scheme.
///
/// # Errors
/// [`AddressError::Scheme`] if no kind has this scheme; otherwise the errors of its kind.
pub fn at(address: &str, options: &AddressOptions<'_>) -> Result<Named, AddressError> {
    let by_address = || KINDS.iter().filter_map(|kind| kind.by_address);
    let scheme = address.split_once("://").map(|(scheme, _)| scheme);
    match scheme.and_then(|scheme| by_address().find(|kind| kind.has(scheme))) {
        Some(kind) => (kind.open)(address, options),
        None => {
            let schemes = by_address().flat_map(|kind| kind.schemes).copied();
            Err(AddressError::of_scheme(&without_secrets(address), schemes))
        }
    }
}
