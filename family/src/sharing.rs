//! Which cache a store reads through, for people and programs that want to know.

use foretell_cache::share::{Refusal, Unjoined};

use crate::secret;

/// Whose cache it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum CacheOf {
    /// This process alone has it.
    Alone,
    /// This process has it, and others with the same store join it.
    Here,
    /// Another process with the same store has it.
    Other,
    /// The daemon has it.
    Daemon,
}

/// How a store shares.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Sharing {
    /// Whose cache it reads through.
    pub cache: CacheOf,
    /// Why it is not the daemon's, if one was asked, or why it is not shared, if it was to be.
    pub refusal: Option<Refusal>,
}

impl Sharing {
    /// The line of a refusal that the user can mend.
    pub fn to_mend(&self) -> Option<&str> {
        self.refusal.as_ref().filter(|refusal| refusal.can_mend).map(|refusal| &*refusal.why)
    }
}

/// Why there is no cache of a daemon to be used; `None` if the environment wants none.
pub(crate) fn of_no_daemon() -> Option<Refusal> {
    let folder = secret::daemon_folder()?;
    let why = format!("no daemon with --cache is at {}", folder.display());
    Some(Refusal::final_one(why))
}

/// Why the daemon's cache is not used.
pub(crate) fn of_daemon(unjoined: Unjoined) -> Option<Refusal> {
    let (why, can_mend) = match unjoined {
        Unjoined::Nobody => return of_no_daemon(),
        Unjoined::Silent => {
            ("it does not answer; it may be stopped: end it, and start it again".into(), true)
        }
        Unjoined::Refused(Some(refusal)) => (refusal.why, refusal.can_mend),
        Unjoined::Refused(None) => (
            "it does not say why; if it is of another version of foretell, start it again".into(),
            true,
        ),
        Unjoined::Failed(error) => (format!("this process cannot map it: {error}"), false),
    };
    Some(Refusal { why: format!("the daemon's cache is not used: {why}"), can_mend })
}
