//! What a store is made of: all that says what is read, and with which rights.

use std::collections::BTreeMap;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::time::Duration;

use foretell_cache::CacheOptions;
use foretell_cache::backend::Environment;
use serde::{Deserialize, Serialize};

/// Where a store is.
#[derive(Clone, PartialEq, Eq)]
pub enum Place {
    /// An absolute path.
    Folder(PathBuf),
    /// An address, which may have a password in it.
    Address(String),
}

impl Place {
    /// The path or the address.
    pub fn as_os_str(&self) -> &OsStr {
        match self {
            Place::Folder(folder) => folder.as_os_str(),
            Place::Address(address) => OsStr::new(address),
        }
    }
}

/// The arguments from which a store is made.
#[derive(Clone, PartialEq, Eq)]
pub struct Recipe {
    /// Where it is.
    pub place: Place,
    /// The size of a cache of its own.
    pub options: CacheOptions,
    /// Requests ahead of programs at once.
    pub depth: Option<usize>,
    /// How long a program waits for an answer.
    pub deadline: Duration,
    /// Settings by name, which override the environment.
    pub settings: Vec<(String, String)>,
    /// Whether stores of other processes use the same cache.
    pub is_shared: bool,
    /// The address of a tier that many machines share (`redis://…`), which may have a password in it.
    pub tier: Option<String>,
}

impl std::fmt::Debug for Recipe {
    /// Without place and settings, which may have secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Recipe").field("options", &self.options).finish_non_exhaustive()
    }
}

/// What a client sends to a daemon: the recipe, and the environment in which it counts. It is told over a socket of the user's,
/// and never written anywhere.
#[derive(PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Told {
    /// Its path is absolute.
    pub(crate) is_folder: bool,
    pub(crate) place: OsString,
    pub(crate) depth: Option<usize>,
    pub(crate) deadline: Duration,
    pub(crate) settings: Vec<(String, String)>,
    #[serde(default)]
    pub(crate) tier: Option<String>,
    /// Which folder it is: another may be mounted there since.
    pub(crate) folder: Option<(u64, u64)>,
    /// The environment's settings. None for a folder.
    pub(crate) environment: BTreeMap<String, String>,
    /// The surroundings, which the daemon must have too. None for a folder.
    pub(crate) surroundings: Vec<(OsString, OsString)>,
}

/// The surroundings of this process.
pub(crate) fn surroundings() -> Vec<(OsString, OsString)> {
    Environment::surroundings().into_iter().collect()
}

/// Device and inode.
pub(crate) fn identity(path: &Path) -> Option<(u64, u64)> {
    std::fs::metadata(path).ok().map(|about| (about.dev(), about.ino()))
}

impl Recipe {
    fn is_folder(&self) -> bool {
        matches!(self.place, Place::Folder(_))
    }

    fn sorted_settings(&self) -> Vec<(String, String)> {
        let mut settings = self.settings.clone();
        settings.sort();
        settings
    }

    /// What two stores must have in common to share a cache that one of them has.
    pub(crate) fn family(&self) -> Vec<u8> {
        let mut family = Vec::new();
        let mut add = |bytes: &[u8]| {
            family.extend((bytes.len() as u64).to_ne_bytes());
            family.extend(bytes);
        };
        add(&[u8::from(self.is_folder())]);
        add(self.place.as_os_str().as_bytes());
        add(&self.options.block_bytes.to_ne_bytes());
        add(&self.depth.unwrap_or(0).to_ne_bytes());
        add(&self.deadline.as_nanos().to_ne_bytes());
        add(self.tier.as_deref().unwrap_or_default().as_bytes());
        for (name, setting) in self.sorted_settings() {
            add(name.as_bytes());
            add(setting.as_bytes());
        }
        // In another container, the same path may be another folder, and the same address another machine.
        for name in ["mnt", "net", "pid", "user"] {
            let space = std::fs::read_link(format!("/proc/self/ns/{name}"));
            add(space.unwrap_or_default().as_os_str().as_bytes());
        }
        let root = match &self.place {
            Place::Folder(folder) => folder.as_path(),
            Place::Address(_) => Path::new("/"),
        };
        for (device, inode) in [Path::new("/"), root].into_iter().filter_map(identity) {
            add(&device.to_ne_bytes());
            add(&inode.to_ne_bytes());
        }
        if !self.is_folder() {
            for (name, value) in Environment::settings() {
                add(name.as_bytes());
                add(value.as_bytes());
            }
            for (name, value) in Environment::surroundings() {
                add(name.as_bytes());
                add(value.as_bytes());
            }
        }
        family
    }

    /// A setting that names a file of credentials or certificates by a relative path. The daemon has another working folder.
    pub(crate) fn relative(&self) -> Option<String> {
        let is_path = |name: &str| {
            let name = name.to_ascii_uppercase();
            ["_FILE", "_DIR", "_PATH", "_BUNDLE", "_CREDENTIALS", "SERVICE_ACCOUNT", "HOME"]
                .iter()
                .any(|end| name.ends_with(end))
        };
        let is_relative = |value: &str| !value.is_empty() && !value.starts_with(['/', '{']);
        let text = |(name, value): (OsString, OsString)| {
            (name.to_string_lossy().into_owned(), value.to_string_lossy().into_owned())
        };
        let mut all = self.settings.clone();
        all.extend(Environment::settings());
        all.extend(Environment::surroundings().into_iter().map(text));
        let mut all = all.into_iter().filter(|_| !self.is_folder());
        all.find(|(name, value)| is_path(name) && is_relative(value)).map(|(name, _)| name)
    }

    /// What a daemon is told.
    pub(crate) fn told(&self) -> Vec<u8> {
        let (environment, surroundings) = match self.is_folder() {
            true => Default::default(),
            false => (Environment::settings(), surroundings()),
        };
        let folder = match &self.place {
            Place::Folder(folder) => identity(folder),
            Place::Address(_) => None,
        };
        let told = Told {
            is_folder: self.is_folder(),
            place: self.place.as_os_str().to_owned(),
            depth: self.depth,
            deadline: self.deadline,
            settings: self.sorted_settings(),
            tier: self.tier.clone(),
            folder,
            environment,
            surroundings,
        };
        serde_json::to_vec(&told).expect("texts and numbers")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_daemon_hears_what_was_told_and_nothing_shows_secrets() {
        let recipe = Recipe {
            place: Place::Address("https://me:secret@host/a".into()),
            options: CacheOptions::default(),
            depth: Some(3),
            deadline: Duration::from_millis(1500),
            settings: vec![("b".into(), "secret".into()), ("a".into(), "1".into())],
            is_shared: true,
            tier: None,
        };
        let heard: Told = serde_json::from_slice(&recipe.told()).expect("it is JSON");
        assert_eq!((heard.place.as_os_str(), heard.depth), (recipe.place.as_os_str(), Some(3)));
        assert!(!heard.is_folder);
        assert_eq!(heard.deadline, recipe.deadline);
        assert_eq!(heard.settings[0].0, "a", "their order does not matter");
        assert_eq!(heard.surroundings, surroundings());
        assert!(!format!("{recipe:?}").contains("secret"));
        let other = Recipe { depth: None, ..recipe.clone() };
        assert_ne!(recipe.family(), other.family());
        assert_ne!(recipe.told(), other.told());
        let other = Recipe { tier: Some("redis://:secret@host".into()), ..recipe.clone() };
        assert!(recipe.family() != other.family() && recipe.told() != other.told());
        assert!(!format!("{other:?}").contains("secret"));
        let swapped = vec![recipe.settings[1].clone(), recipe.settings[0].clone()];
        let same = Recipe { settings: swapped, ..recipe.clone() };
        assert_eq!((recipe.family(), recipe.told()), (same.family(), same.told()));
    }
    #[test]
    fn a_daemon_takes_no_paths_of_another_working_folder() {
        let with = |name: &str, value: &str| Recipe {
            place: Place::Address("s3://bucket".into()),
            options: CacheOptions::default(),
            depth: None,
            deadline: Duration::from_secs(1),
            settings: vec![(name.into(), value.into())],
            is_shared: true,
            tier: None,
        };
        assert!(with("aws_web_identity_token_file", "token").relative().is_some());
        assert!(with("aws_web_identity_token_file", "/run/token").relative().is_none());
        assert!(with("google_service_account", "{\"type\": 1}").relative().is_none());
        assert!(with("aws_region", "eu").relative().is_none());
    }
}
