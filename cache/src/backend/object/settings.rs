//! Settings of an object store: those that are given, and those of the environment for the rest.
//!
//! All settings are checked here before `object_store` gets them: the crate panics at the first request if an endpoint has no
//! scheme or a credential has a line break.

use std::collections::BTreeMap;

use super::names::{HEADER, Kind, Known, OWN};

/// Settings whose values are addresses.
const ADDRESSES: &[&str] = &[
    "authority_host",
    "base_url",
    "container_credentials_full_uri",
    "endpoint",
    "endpoint_url",
    "endpoint_url_s3",
    "endpoint_url_sts",
    "fabric_token_service_url",
    "metadata_endpoint",
    "msi_endpoint",
];
/// Of [`ADDRESSES`], those that may be the store's own address. The first that is set holds.
const ENDPOINTS: &[&str] = &["endpoint_url_s3", "endpoint_url", "endpoint", "base_url"];
/// Settings that may have several lines.
const TEXTS: &[&str] = &["proxy_ca_certificate", "service_account_key"];
/// Settings that become headers or parts of headers.
const IN_HEADERS: &[&str] =
    &["access_key_id", "bearer_token", "region", "session_token", "token", "user_project"];
/// Least similarity (Jaro-Winkler) of a known name that is suggested for an unknown one.
const ALIKE_MIN: f64 = 0.6;
/// Number of names that are suggested for an unknown one.
const ALIKE_SHOWN: usize = 3;

/// Settings by the names of [`names`](super::names), each with its value.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Settings {
    values: BTreeMap<&'static str, String>,
    /// Headers of requests to a web server, by name.
    pub(super) headers: Vec<(String, String)>,
    /// The profile was given as a setting, not by the environment.
    pub(super) is_profile_given: bool,
}

impl Settings {
    /// The settings that are `given`, and those of the environment (`variable`) for the rest.
    ///
    /// # Errors
    /// A line that names a setting that is unknown or has a wrong value.
    pub(super) fn of(
        kind: Kind,
        given: &[(&str, &str)],
        variable: &dyn Fn(&str) -> Option<String>,
    ) -> Result<Self, String> {
        let mut settings = Settings::default();
        for (name, value) in given {
            if let Some(header) = name.strip_prefix(HEADER).filter(|_| kind == Kind::Web) {
                settings.headers.push((header.to_owned(), (*value).to_owned()));
                continue;
            }
            let known = find(kind, name).ok_or_else(|| unknown(kind, name))?;
            check(known.name, value)?;
            settings.values.insert(known.name, (*value).to_owned());
        }
        settings.take_apart_connection()?;
        settings.is_profile_given = settings.get("profile").is_some();
        let environment = of_environment(kind, variable)?;
        settings.add(kind, environment);
        Ok(settings)
    }

    /// Adds the environment's settings that do not conflict with the given ones.
    fn add(&mut self, kind: Kind, environment: Settings) {
        let has = |settings: &Settings, names: &[&str]| {
            names.iter().any(|name| settings.values.contains_key(name))
        };
        let knows_who = has(self, kind.identities());
        let knows_region = has(self, &["region", "default_region"]);
        let knows_where = has(self, ENDPOINTS);
        for (name, value) in environment.values {
            let is_settled = (knows_who && name != "profile" && kind.identities().contains(&name))
                || (knows_region && name.ends_with("region"))
                || (knows_where && ENDPOINTS.contains(&name));
            if !is_settled {
                self.values.entry(name).or_insert(value);
            }
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&str> {
        self.values.get(name).map(String::as_str)
    }

    pub(super) fn is_true(&self, name: &str) -> bool {
        let value = self.get(name).unwrap_or_default().to_ascii_lowercase();
        matches!(value.as_str(), "1" | "true" | "on" | "yes" | "y")
    }

    /// Sets a value unless there is one.
    pub(super) fn add_default(&mut self, name: &'static str, value: &str) -> Result<(), String> {
        if self.values.contains_key(name) {
            return Ok(());
        }
        check(name, value)?;
        self.values.insert(name, value.to_owned());
        Ok(())
    }

    /// The address of the store, if one is set. Of several settings for it, the first in [`ENDPOINTS`] counts.
    pub(super) fn endpoint(&self) -> Option<&str> {
        ENDPOINTS.iter().find_map(|name| self.get(name))
    }

    /// The settings under the names that `object_store` has for them, and their values.
    pub(super) fn of_crate(&self, kind: Kind) -> impl Iterator<Item = (String, &str)> {
        let prefix = kind.prefixes().last().copied().unwrap_or_default();
        let of_crate = move |name: &str| match name {
            // The crate has only one name for each of these.
            "endpoint_url" => "endpoint".to_owned(),
            "endpoint_url_s3" => format!("{prefix}{name}"),
            name => name.to_owned(),
        };
        self.values
            .iter()
            .filter(|(name, _)| !OWN.contains(name))
            .map(move |(name, value)| (of_crate(name), value.as_str()))
    }

    /// Splits Azure's connection string into settings.
    fn take_apart_connection(&mut self) -> Result<(), String> {
        let Some(text) = self.values.remove("connection_string") else { return Ok(()) };
        let fields: BTreeMap<&str, &str> = text
            .split(';')
            .map(str::trim)
            .filter(|field| !field.is_empty())
            .map(|field| field.split_once('=').ok_or("a part of it has no '='"))
            .collect::<Result<_, _>>()
            .map_err(|why| format!("the setting connection_string is wrong: {why}"))?;
        let field = |name: &str| fields.get(name).copied();
        let endpoint = field("BlobEndpoint").map(str::to_owned).or_else(|| {
            let (account, suffix) = (field("AccountName")?, field("EndpointSuffix")?);
            let protocol = field("DefaultEndpointsProtocol").unwrap_or("https");
            Some(format!("{protocol}://{account}.blob.{suffix}"))
        });
        for (name, value) in [
            ("account_name", field("AccountName")),
            ("account_key", field("AccountKey")),
            ("sas_token", field("SharedAccessSignature")),
            ("endpoint", endpoint.as_deref()),
            ("use_emulator", field("UseDevelopmentStorage")),
        ] {
            if let Some(value) = value {
                self.add_default(name, value)?;
            }
        }
        Ok(())
    }
}

/// Settings of the environment. An empty variable counts as not set.
fn of_environment(
    kind: Kind,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Settings, String> {
    let said = |name: &str| variable(name).filter(|value| !value.is_empty());
    let mut settings = Settings::default();
    // https://docs.aws.amazon.com/sdkref/latest/guide/feature-ss-endpoints.html
    let is_ignored = said("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS").is_some_and(|it| it == "true");
    for known in kind.settings() {
        let of_prefix = kind.prefixes().iter().map(|prefix| format!("{prefix}{}", known.name));
        let names: Vec<String> = match known.variables {
            [] => of_prefix.map(|name| name.to_uppercase()).collect(),
            _ if known.name == "ca_bundle" && kind != Kind::S3 => Vec::new(),
            variables => variables.iter().map(|&name| name.to_owned()).collect(),
        };
        let found = names.iter().find_map(|name| {
            let is_left_out = is_ignored && name.starts_with("AWS_ENDPOINT_URL");
            said(name).filter(|_| !is_left_out)
        });
        if let Some(value) = found {
            check(known.name, &value)?;
            settings.values.insert(known.name, value);
        }
    }
    settings.take_apart_connection()?;
    Ok(settings)
}

fn find(kind: Kind, name: &str) -> Option<&'static Known> {
    let bare = kind.prefixes().iter().find_map(|prefix| name.strip_prefix(prefix));
    let is = |known: &Known, name: &str| known.name == name || known.other_names.contains(&name);
    let mut settings = kind.settings();
    settings.find(|known| is(known, name) || bare.is_some_and(|bare| is(known, bare)))
}

fn unknown(kind: Kind, name: &str) -> String {
    let bare = kind.prefixes().iter().find_map(|prefix| name.strip_prefix(prefix)).unwrap_or(name);
    let mut alike: Vec<(f64, &str)> = kind
        .settings()
        .flat_map(|known| std::iter::once(&known.name).chain(known.other_names))
        .map(|known| (strsim::jaro_winkler(bare, known), *known))
        .filter(|(share, _)| *share >= ALIKE_MIN)
        .collect();
    alike.sort_by(|one, other| other.0.total_cmp(&one.0));
    let alike: Vec<&str> = alike.into_iter().take(ALIKE_SHOWN).map(|(_, name)| name).collect();
    let shown = match alike.as_slice() {
        [] => String::new(),
        alike => format!(" (near it: {})", alike.join(", ")),
    };
    format!("there is no setting {name} for it{shown}; docs/reference/stores.md lists them")
}

/// Checks the value of a setting.
fn check(name: &str, value: &str) -> Result<(), String> {
    if !TEXTS.contains(&name) && value.contains(|letter: char| letter.is_ascii_control()) {
        return Err(format!(
            "the setting {name} has a line break or another control character in it; leave it out"
        ));
    }
    if IN_HEADERS.contains(&name) && !value.is_ascii() {
        return Err(format!("the setting {name} has a character that is not ASCII"));
    }
    match ADDRESSES.contains(&name) {
        true => check_address(name, value),
        false => Ok(()),
    }
}

fn check_address(name: &str, value: &str) -> Result<(), String> {
    let what = match ENDPOINTS.contains(&name) {
        true => "endpoint".to_owned(),
        false => format!("setting {name},"),
    };
    let Some(rest) = value.strip_prefix("http://").or_else(|| value.strip_prefix("https://"))
    else {
        return Err(format!("the {what} {value:?} does not begin with http:// or https://"));
    };
    let is_host = |host: &str| {
        !host.is_empty()
            && host.parse::<http::uri::Authority>().is_ok_and(|it| !it.host().is_empty())
    };
    match is_host(rest.split(['/', '?', '#']).next().unwrap_or_default())
        && value.parse::<http::Uri>().is_ok()
    {
        true => Ok(()),
        false => Err(format!("the {what} {value:?} is no address")),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KINDS: [Kind; 4] = [Kind::S3, Kind::Gs, Kind::Az, Kind::Web];

    fn settled(
        kind: Kind,
        given: &[(&str, &str)],
        environment: &[(&str, &str)],
    ) -> Result<Settings, String> {
        let variable = |name: &str| {
            let found = environment.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        Settings::of(kind, given, &variable)
    }

    #[test]
    fn each_name_is_known_to_the_crate_that_carries_it_out() {
        use object_store::ClientConfigKey;
        use object_store::aws::AmazonS3ConfigKey;
        use object_store::azure::AzureConfigKey;
        use object_store::gcp::GoogleConfigKey;
        for kind in KINDS {
            for known in kind.settings().filter(|known| !OWN.contains(&known.name)) {
                let value = if ADDRESSES.contains(&known.name) { "http://a" } else { "a" };
                let settings = settled(kind, &[(known.name, value)], &[]).unwrap();
                for (name, _) in settings.of_crate(kind) {
                    let is_known = match kind {
                        Kind::S3 => name.parse::<AmazonS3ConfigKey>().is_ok(),
                        Kind::Gs => name.parse::<GoogleConfigKey>().is_ok(),
                        Kind::Az => name.parse::<AzureConfigKey>().is_ok(),
                        Kind::Web => name.parse::<ClientConfigKey>().is_ok(),
                    };
                    assert!(is_known, "{kind:?}: {name}");
                }
            }
        }
    }

    #[test]
    fn each_name_is_in_the_guide() {
        let page = include_str!("../../../../docs/reference/stores.md");
        for kind in KINDS {
            for known in kind.settings() {
                let names = std::iter::once(&known.name).chain(known.other_names);
                for name in names.chain(known.variables) {
                    assert!(
                        page.contains(&format!("`{name}`")),
                        "docs/reference/stores.md: {name}"
                    );
                }
            }
        }
    }

    #[test]
    fn the_endpoint_is_the_one_that_is_named_most_closely() {
        let variables = [
            ("AWS_ENDPOINT_URL_S3", "http://s3"),
            ("AWS_ENDPOINT_URL", "http://all"),
            ("AWS_ENDPOINT", "http://old"),
        ];
        let endpoint = |given: &[(&str, &str)], environment: &[(&str, &str)]| {
            settled(Kind::S3, given, environment).unwrap().endpoint().map(str::to_owned)
        };
        for from in 0..3 {
            assert_eq!(endpoint(&[], &variables[from..]).as_deref(), Some(variables[from].1));
        }
        assert_eq!(
            endpoint(&[], &[("AWS_ENDPOINT_URL_S3", ""), variables[1]]).as_deref(),
            Some("http://all")
        );
        // What is given comes before the environment, whatever it is called.
        for name in ["endpoint", "endpoint_url", "aws_endpoint", "aws_endpoint_url_s3"] {
            let found = endpoint(&[(name, "http://given")], &variables);
            assert_eq!(found.as_deref(), Some("http://given"), "{name}");
        }
        let ignored = ("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS", "true");
        assert_eq!(endpoint(&[], &[ignored, variables[0], variables[1]]), None);
    }

    #[test]
    fn what_no_request_can_be_made_with_is_told_in_a_line_that_names_it() {
        for (kind, name) in [
            (Kind::S3, "AWS_ENDPOINT"),
            (Kind::S3, "AWS_ENDPOINT_URL"),
            (Kind::S3, "AWS_ENDPOINT_URL_S3"),
            (Kind::S3, "AWS_ENDPOINT_URL_STS"),
            (Kind::S3, "AWS_METADATA_ENDPOINT"),
            (Kind::S3, "AWS_CONTAINER_CREDENTIALS_FULL_URI"),
            (Kind::Gs, "GOOGLE_BASE_URL"),
            (Kind::Gs, "STORAGE_EMULATOR_HOST"),
            (Kind::Az, "AZURE_STORAGE_ENDPOINT"),
            (Kind::Az, "AZURE_ENDPOINT"),
            (Kind::Az, "AZURE_AUTHORITY_HOST"),
            (Kind::Az, "IDENTITY_ENDPOINT"),
        ] {
            for value in ["127.0.0.1:9000", "localhost", "s3://b", "http:/x"] {
                let error = settled(kind, &[], &[(name, value)]).unwrap_err();
                assert!(error.contains("does not begin with http:// or https://"), "{error}");
            }
            for value in ["http://", "https:///x", "http://:9000", "http://a b/"] {
                let error = settled(kind, &[], &[(name, value)]).unwrap_err();
                assert!(error.ends_with("is no address"), "{value}: {error}");
            }
            for value in ["http://127.0.0.1:9000", "https://[::1]:9000/x", "http://a.b"] {
                assert!(settled(kind, &[], &[(name, value)]).is_ok(), "{value}");
            }
        }
        for (name, value) in
            [("session_token", "abc\n"), ("access_key_id", "ä"), ("region", "a\u{7f}")]
        {
            let error = settled(Kind::S3, &[(name, value)], &[]).unwrap_err();
            assert!(error.contains(name) && !error.contains('\n'), "{error}");
        }
        assert!(settled(Kind::Gs, &[("service_account_key", "{\n}")], &[]).is_ok());
    }

    #[test]
    fn who_asks_is_taken_from_one_place() {
        let key = [
            ("AWS_ACCESS_KEY_ID", "env"),
            ("AWS_SECRET_ACCESS_KEY", "env"),
            ("AWS_SESSION_TOKEN", "env"),
        ];
        let given = [("access_key_id", "given"), ("secret_access_key", "given")];
        let settings = settled(Kind::S3, &given, &key).unwrap();
        assert_eq!(
            (settings.get("access_key_id"), settings.get("session_token")),
            (Some("given"), None)
        );
        let settings = settled(Kind::S3, &[("profile", "x")], &key).unwrap();
        assert_eq!((settings.get("access_key_id"), settings.is_profile_given), (None, true));
        let settings = settled(Kind::S3, &[], &[key[0], ("AWS_PROFILE", "x")]).unwrap();
        assert_eq!(
            (settings.get("access_key_id"), settings.is_profile_given),
            (Some("env"), false)
        );
        let key = [("AZURE_STORAGE_ACCOUNT_KEY", "a2V5"), ("AZURE_STORAGE_ACCOUNT", "acc")];
        let settings = settled(Kind::Az, &[("sas_token", "sv=1&sig=x")], &key).unwrap();
        assert_eq!(
            (settings.get("account_key"), settings.get("account_name")),
            (None, Some("acc"))
        );
        let region = settled(Kind::S3, &[("default_region", "here")], &[("AWS_REGION", "there")]);
        assert_eq!(region.unwrap().get("region"), None);
    }

    #[test]
    fn a_connection_string_is_what_it_says() {
        let text = "DefaultEndpointsProtocol=https;AccountName=acc;AccountKey=a2V5==;EndpointSuffix=core.windows.net";
        for (given, environment) in [
            (vec![("connection_string", text)], vec![]),
            (vec![], vec![("AZURE_STORAGE_CONNECTION_STRING", text)]),
        ] {
            let settings = settled(Kind::Az, &given, &environment).unwrap();
            assert_eq!(settings.get("account_key"), Some("a2V5=="));
            assert_eq!(settings.endpoint(), Some("https://acc.blob.core.windows.net"));
        }
        let text = "BlobEndpoint=http://127.0.0.1:10000/acc;SharedAccessSignature=sv=1&sig=x%3D;AccountName=acc";
        let settings = settled(Kind::Az, &[("connection_string", text)], &[]).unwrap();
        assert_eq!(settings.endpoint(), Some("http://127.0.0.1:10000/acc"));
        assert_eq!(settings.get("sas_token"), Some("sv=1&sig=x%3D"));
        assert!(settled(Kind::Az, &[("connection_string", "acc")], &[]).is_err());
    }

    #[test]
    fn a_name_that_is_not_known_is_refused_and_those_near_it_are_told() {
        for (kind, name, near) in [
            (Kind::S3, "acess_key", "access_key_id"),
            (Kind::S3, "aws_profil", "profile"),
            (Kind::Az, "account", ""),
            (Kind::Gs, "endpoint_uri", "endpoint_url"),
            (Kind::Web, "verify", ""),
            (Kind::Web, "access_key_id", ""),
            (Kind::S3, "header.x", ""),
            (Kind::S3, "bucket", ""),
        ] {
            if name == "account" {
                assert!(settled(kind, &[(name, "a")], &[]).is_ok());
                continue;
            }
            let error = settled(kind, &[(name, "a")], &[]).unwrap_err();
            assert!(error.starts_with(&format!("there is no setting {name} for it")), "{error}");
            assert!(error.contains(near), "{error}");
        }
        let headers = settled(Kind::Web, &[("header.x-key", "secret")], &[]).unwrap().headers;
        assert_eq!(headers, [("x-key".to_owned(), "secret".to_owned())]);
    }
}
