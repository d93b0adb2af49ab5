//! Variables of the environment that say where stores are and with which rights they are read.
//!
//! A process may read for another one, with that one's variables. Two groups of variables are told apart:
//!
//! * **Settings** are read here alone, and can be those of the other process: [`Environment::of`].
//! * **Surroundings** are read by libraries from this process' own environment: proxies, certificates, where files of
//!   credentials are. They cannot be replaced, so both processes must have the same: [`Environment::surroundings`].

use std::collections::BTreeMap;
use std::ffi::OsString;

/// Beginnings of the names of settings.
const PREFIXES: [&str; 3] = ["AWS_", "GOOGLE_", "AZURE_"];

/// Settings that do not begin like that.
const SETTINGS: [&str; 6] = [
    "FORETELL_HTTP_USER",
    "FORETELL_TIER_PASSWORD",
    "FORETELL_TIER_SECRET",
    "IDENTITY_ENDPOINT",
    "SERVICE_ACCOUNT",
    "STORAGE_EMULATOR_HOST",
];

/// Surroundings. Names of proxies are known in lower case too.
const SURROUNDINGS: [&str; 13] = [
    "ALL_PROXY",
    "AWS_CONFIG_FILE",
    "AWS_SHARED_CREDENTIALS_FILE",
    "GCE_METADATA_HOST",
    "GCE_METADATA_IP",
    "GCE_METADATA_ROOT",
    "HOME",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "IDENTITY_HEADER",
    "NO_PROXY",
    "SSL_CERT_DIR",
    "SSL_CERT_FILE",
];

/// Variables of the environment of a process. Its default is that of this process.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Environment(Option<BTreeMap<String, String>>);

impl std::fmt::Debug for Environment {
    /// Without values, which may be secrets.
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_tuple("Environment").field(&self.0.as_ref().map(|it| it.keys())).finish()
    }
}

impl Environment {
    /// That of another process, which has these settings.
    pub fn of(settings: impl IntoIterator<Item = (String, String)>) -> Self {
        Environment(Some(settings.into_iter().collect()))
    }

    /// The settings in the environment of this process. One that is not UTF-8 counts as not set, as everywhere.
    pub fn settings() -> BTreeMap<String, String> {
        let is_one = |name: &str| {
            PREFIXES.iter().any(|prefix| name.starts_with(prefix)) || SETTINGS.contains(&name)
        };
        let of_text = |(name, value): (OsString, OsString)| {
            Some((name.into_string().ok()?, value.into_string().ok()?))
        };
        std::env::vars_os().filter_map(of_text).filter(|(name, _)| is_one(name)).collect()
    }

    /// The surroundings of this process.
    pub fn surroundings() -> BTreeMap<OsString, OsString> {
        let is_one = |name: &str| SURROUNDINGS.contains(&name.to_ascii_uppercase().as_str());
        std::env::vars_os().filter(|(name, _)| name.to_str().is_some_and(is_one)).collect()
    }

    /// Whether it is the environment of this process.
    pub fn is_own(&self) -> bool {
        self.0.is_none()
    }

    /// The value of a variable.
    pub fn get(&self, name: &str) -> Option<String> {
        match &self.0 {
            None => std::env::var(name).ok(),
            Some(settings) => settings.get(name).cloned(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn another_environment_hides_the_own_one_and_shows_no_values() {
        let other = Environment::of([("AWS_REGION".to_owned(), "secret".to_owned())]);
        assert_eq!(other.get("AWS_REGION").as_deref(), Some("secret"));
        assert!(Environment::default().get("PATH").is_some() && other.get("PATH").is_none());
        assert!(Environment::default().is_own() && !other.is_own());
        let shown = format!("{other:?}");
        assert!(shown.contains("AWS_REGION") && !shown.contains("secret"), "{shown}");
    }
}
