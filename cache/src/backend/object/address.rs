//! From an address and its settings to a client of the store.

use std::str::FromStr;
use std::sync::Arc;

use base64::Engine;
use base64::prelude::BASE64_STANDARD;
use http::{HeaderName, HeaderValue, Uri};
use object_store::aws::{AmazonS3Builder, AwsCredentialProvider};
use object_store::azure::MicrosoftAzureBuilder;
use object_store::gcp::GoogleCloudStorageBuilder;
use object_store::http::HttpBuilder;
use object_store::list::PaginatedListStore;
use object_store::path::Path;
use object_store::{Certificate, ClientOptions, ObjectStore, RetryConfig};
use tokio::runtime::Handle;

use super::errors::Nobody;
use super::names::Kind;
use super::options::ObjectOptions;
use super::profile;
use super::settings::Settings;
use super::wire::Wire;
use crate::backend::kind::{user_of, without_secrets};
use crate::backend::{AddressError, Environment};

/// A store that an address names.
pub(super) struct Place {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) pages: Option<Arc<dyn PaginatedListStore>>,
    /// All names are below it.
    pub(super) prefix: Path,
    /// Identifies the store, without secrets.
    pub(super) identity: String,
    /// Only for a web server.
    pub(super) folder: Option<Folder>,
}

impl Place {
    /// The store at `address`.
    pub(super) fn find(
        address: &str,
        (given, environment): (&[(&str, &str)], &Environment),
        options: ObjectOptions,
        handle: &Handle,
    ) -> Result<Self, AddressError> {
        let unknown =
            || AddressError::of_scheme(&without_secrets(address), Kind::SCHEMES.iter().copied());
        let (scheme, rest) = address.split_once("://").ok_or_else(unknown)?;
        let kind = Kind::of(scheme).ok_or_else(unknown)?;
        let wrong = |message: String| AddressError::Store {
            address: without_secrets(address),
            message: one_line(&message),
        };
        if user_of(rest).1.starts_with('/') || user_of(rest).1.is_empty() {
            return Err(wrong(kind.nowhere().to_owned()));
        }
        let variable = |name: &str| environment.get(name);
        let mut settings = Settings::of(kind, given, &variable).map_err(wrong)?;
        let credentials = match kind {
            Kind::S3 => profile::add_to(&mut settings, environment, handle).map_err(wrong)?,
            _ => None,
        };
        check_keys(&settings).map_err(wrong)?;
        // Its command would find this process' variables.
        if kind == Kind::Az && settings.is_true("use_azure_cli") && !environment.is_own() {
            return Err(wrong("the azure command is run by the process that asks".to_owned()));
        }
        let names_account = settings.get("account_name").is_some() || user_of(rest).0.is_some();
        if kind == Kind::Az && !names_account && !settings.is_true("use_emulator") {
            let message =
                "nothing names the account: set AZURE_STORAGE_ACCOUNT_NAME, or account_name";
            return Err(wrong(message.to_owned()));
        }
        let client = client(&settings, options).map_err(wrong)?;
        let folder = (kind == Kind::Web).then(|| Folder::new(scheme, rest));
        let user = match &folder {
            Some(folder) => user_at(folder, user_of(rest).0, &variable).map_err(wrong)?,
            None => None,
        };
        let wire = Wire { kind, headers: headers(&settings, user.as_deref()).map_err(wrong)? };
        let url = folder.as_ref().map_or_else(|| address.to_owned(), |it| it.whole.clone());
        let (store, pages) = match credentials {
            Some(profile) => {
                let chain = move |others| profile.clone().before(others);
                store_of((&settings, environment), (client, wire), &url, Some(&chain))
            }
            None => store_of((&settings, environment), (client, wire), &url, None),
        }
        .map_err(|error| wrong(error.to_string()))?;
        let (_, path) = rest.split_once('/').unwrap_or((rest, ""));
        let prefix = if kind == Kind::Web { "" } else { path.trim_matches('/') };
        Ok(Place {
            store,
            pages,
            prefix: Path::parse(prefix).map_err(|error| wrong(error.to_string()))?,
            identity: identity(kind, &settings, &url),
            folder,
        })
    }
}

/// A store, and the same store if it lists a page at a time.
type Both = (Arc<dyn ObjectStore>, Option<Arc<dyn PaginatedListStore>>);

/// The crate's store. `profile` puts an AWS profile before the crate's other sources of credentials.
fn store_of(
    (settings, environment): (&Settings, &Environment),
    (client, wire): (ClientOptions, Wire),
    url: &str,
    profile: Option<&dyn Fn(AwsCredentialProvider) -> AwsCredentialProvider>,
) -> object_store::Result<Both> {
    let kind = wire.kind;
    // The builders have no common trait.
    macro_rules! set {
        ($builder:expr) => {{
            let builder = $builder.with_client_options(client);
            with(settings.of_crate(kind), builder, |it, key, value| it.with_config(key, value))?
                .with_url(url)
                .with_retry(RetryConfig { max_retries: 0, ..RetryConfig::default() })
                .with_http_connector(wire)
        }};
    }
    let store = match kind {
        Kind::S3 => {
            let mut builder: AmazonS3Builder = set!(AmazonS3Builder::new());
            if is_metadata_left_out(settings, environment) {
                builder = builder.with_credentials(Arc::new(Nobody));
            }
            let mut store = builder.clone().build()?;
            if let Some(profile) = profile {
                let chain = profile(Arc::clone(store.credentials()));
                store = builder.with_credentials(chain).build()?;
            }
            paginated(store)
        }
        Kind::Gs => paginated(set!(GoogleCloudStorageBuilder::new()).build()?),
        Kind::Az => paginated(set!(MicrosoftAzureBuilder::new()).build()?),
        Kind::Web => (Arc::new(set!(HttpBuilder::new()).build()?) as _, None),
    };
    Ok(store)
}

fn paginated(store: impl ObjectStore + PaginatedListStore) -> Both {
    let store = Arc::new(store);
    (Arc::clone(&store) as _, Some(store as _))
}

/// Whether the crate would ask the machine's metadata service although `AWS_EC2_METADATA_DISABLED` forbids it.
fn is_metadata_left_out(settings: &Settings, environment: &Environment) -> bool {
    let has = |names: &[&str]| names.iter().all(|name| settings.get(name).is_some());
    let is_asked = !has(&["access_key_id"])
        && !has(&["secret_access_key"])
        && !has(&["web_identity_token_file", "role_arn"])
        && !has(&["container_credentials_relative_uri"])
        && !has(&["container_credentials_full_uri", "container_authorization_token_file"]);
    let said = environment.get("AWS_EC2_METADATA_DISABLED");
    is_asked && said.is_some_and(|it| it.eq_ignore_ascii_case("true"))
}

/// Applies settings to a builder.
fn with<'a, B, K: FromStr<Err = object_store::Error>>(
    settings: impl Iterator<Item = (String, &'a str)>,
    builder: B,
    set: impl Fn(B, K, &'a str) -> B,
) -> object_store::Result<B> {
    let mut builder = builder;
    for (name, value) in settings {
        builder = set(builder, name.parse()?, value);
    }
    Ok(builder)
}

fn client(settings: &Settings, options: ObjectOptions) -> Result<ClientOptions, String> {
    let mut client = ClientOptions::new()
        .with_timeout_disabled()
        .with_read_timeout(options.silence)
        .with_connect_timeout(options.silence)
        .with_pool_max_idle_per_host(options.depth)
        .with_allow_http(true);
    if let Some(file) = settings.get("ca_bundle") {
        let wrong =
            |error: &dyn std::fmt::Display| format!("the setting ca_bundle, {file}: {error}");
        let text = std::fs::read(file).map_err(|error| wrong(&error))?;
        for certificate in Certificate::from_pem_bundle(&text).map_err(|error| wrong(&error))? {
            client = client.with_root_certificate(certificate);
        }
    }
    Ok(client)
}

/// The environment variable with user name and password for a web server. Other users cannot see it, unlike a command line.
const WEB_USER_VARIABLE: &str = "FORETELL_HTTP_USER";

/// `NAME:PASSWORD` for a web server. It comes from the address, percent-decoded. If the address has none, it comes from the
/// environment variable (`NAME:PASSWORD@HOST`), verbatim, and only if HOST is this server.
///
/// # Errors
/// If the variable has another form.
fn user_at(
    folder: &Folder,
    of_address: Option<&str>,
    variable: &dyn Fn(&str) -> Option<String>,
) -> Result<Option<Vec<u8>>, String> {
    if let Some(user) = of_address {
        return Ok(Some(decoded(user)));
    }
    let said = variable(WEB_USER_VARIABLE).filter(|said| !said.is_empty());
    let Some(said) = said else { return Ok(None) };
    let (user, host) = said
        .rsplit_once('@')
        .filter(|(user, host)| user.contains(':') && !host.is_empty() && !host.contains('/'))
        .ok_or_else(|| format!("{WEB_USER_VARIABLE} is not NAME:PASSWORD@HOST"))?;
    let (scheme, _) = folder.origin.split_once("://").unwrap_or_default();
    let is_meant = origin(&format!("{scheme}://{host}")) == folder.origin;
    Ok(is_meant.then(|| user.as_bytes().to_owned()))
}

/// Checks that both halves of an S3 key are set, or neither.
///
/// # Errors
/// Names the half that is missing.
fn check_keys(settings: &Settings) -> Result<(), String> {
    let key = "AWS_ACCESS_KEY_ID (access_key_id)";
    let secret = "AWS_SECRET_ACCESS_KEY (secret_access_key)";
    let has = |setting| settings.get(setting).is_some();
    match (has("access_key_id"), has("secret_access_key")) {
        (true, false) => Err(format!("{key} is set without {secret}; set both or neither")),
        (false, true) => Err(format!("{secret} is set without {key}; set both or neither")),
        _ => Ok(()),
    }
}

/// Headers to add to each request. `user` is `NAME:PASSWORD` for a web server.
fn headers(
    settings: &Settings,
    user: Option<&[u8]>,
) -> Result<Vec<(HeaderName, HeaderValue)>, String> {
    let mut headers = Vec::new();
    if let Some(user) = user {
        let basic = format!("Basic {}", BASE64_STANDARD.encode(user));
        headers.push(("authorization".to_owned(), basic));
    }
    headers.extend(settings.headers.iter().cloned());
    if let Some(project) = settings.get("user_project") {
        headers.push(("x-goog-user-project".to_owned(), project.to_owned()));
    }
    let wrong = |name: &str| format!("{name} is no header, or its value is none");
    headers
        .into_iter()
        .map(|(name, value)| {
            let key = name.parse::<HeaderName>().map_err(|_| wrong(&name))?;
            let mut value = value.parse::<HeaderValue>().map_err(|_| wrong(&name))?;
            value.set_sensitive(true);
            Ok((key, value))
        })
        .collect()
}

/// Decodes percent signs.
fn decoded(text: &str) -> Vec<u8> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let digits = more.get(..2).and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) if *first == b'%' => {
                bytes.push(byte);
                rest = &more[2..];
            }
            _ => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    bytes
}

/// Identifies a store and the part of it that its address names.
fn identity(kind: Kind, settings: &Settings, url: &str) -> String {
    let endpoint = settings.endpoint().map(|endpoint| endpoint.trim_end_matches('/').to_owned());
    let place = match kind {
        Kind::Web => return url.to_owned(),
        // Partitions have buckets of the same names; the region tells them apart.
        Kind::S3 => endpoint.or_else(|| settings.get("region").map(str::to_owned)),
        Kind::Gs => endpoint,
        Kind::Az => Some(format!(
            "{} {}{}",
            settings.get("account_name").unwrap_or_default(),
            endpoint.unwrap_or_default(),
            if settings.is_true("use_emulator") { " emulator" } else { "" }
        )),
    };
    format!("{} {}", place.unwrap_or_default(), url.trim_end_matches('/'))
}

/// A web server's folder: makes addresses from names of files.
#[derive(Clone, Debug)]
pub(super) struct Folder {
    /// The address as it was given, without the user.
    whole: String,
    /// Scheme and host, normalised for comparison.
    origin: String,
}

impl Folder {
    fn new(scheme: &str, rest: &str) -> Self {
        let (_, rest) = user_of(rest.split('#').next().unwrap_or_default());
        let whole = escaped(&format!("{scheme}://{rest}"));
        Folder { origin: origin(&whole), whole }
    }

    /// The address of the file with this name. The empty name is the folder's own address. A name that is a whole
    /// address at this server is kept as written, with its percent signs and query. Any other name is percent-encoded
    /// below the folder.
    ///
    /// # Errors
    /// If the name is an address at another server, or not a valid one.
    pub(super) fn address_of(&self, name: &str) -> Result<Uri, String> {
        let wrong = || format!("{} is no address", without_secrets(name));
        if name.starts_with("http://") || name.starts_with("https://") {
            let (scheme, rest) = name.split_once("://").unwrap_or_default();
            let other = Folder::new(scheme, rest);
            if other.origin != self.origin {
                let (name, here) = (without_secrets(name), &self.origin);
                return Err(format!("{name} is not at {here}, where the files of this store are"));
            }
            return other.whole.parse().map_err(|_| wrong());
        }
        if name.is_empty() {
            return self.whole.parse().map_err(|_| wrong());
        }
        let (path, query) = match self.whole.split_once('?') {
            Some((path, query)) => (path, format!("?{query}")),
            None => (self.whole.as_str(), String::new()),
        };
        let name: Vec<String> = name.split('/').map(part).collect();
        let address = format!("{}/{}{query}", path.trim_end_matches('/'), name.join("/"));
        address.parse().map_err(|_| wrong())
    }
}

/// Percent-encodes a part of a file's name.
fn part(name: &str) -> String {
    let mut text = String::with_capacity(name.len());
    for byte in name.bytes() {
        match byte {
            b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' | b'-' | b'.' | b'_' | b'~' => {
                text.push(char::from(byte));
            }
            b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b',' | b';' | b'=' | b':'
            | b'@' => text.push(char::from(byte)),
            _ => text += &format!("%{byte:02X}"),
        }
    }
    text
}

fn origin(address: &str) -> String {
    let Some((scheme, rest)) = address.split_once("://") else { return String::new() };
    let host = rest.split(['/', '?', '#']).next().unwrap_or_default().to_lowercase();
    let standard = if scheme == "https" { ":443" } else { ":80" };
    format!("{scheme}://{}", host.strip_suffix(standard).unwrap_or(&host))
}

/// Percent-encodes the bytes that an address must not have.
fn escaped(address: &str) -> String {
    let mut text = String::with_capacity(address.len());
    for byte in address.bytes() {
        match byte {
            0..=b' ' | b'"' | b'<' | b'>' | b'\\' | b'^' | b'`' | b'{' | b'|' | b'}' | 0x7f.. => {
                text += &format!("%{byte:02X}");
            }
            _ => text.push(char::from(byte)),
        }
    }
    text
}

fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_stay_out_of_what_others_see() {
        for (address, shown) in [
            ("https://user:pass@host/a@b", "https://host/a@b"),
            ("https://user:p@ss@host", "https://host"),
            ("https://host/a?sig=secret#x", "https://host/a?..."),
            ("https://host?to=a@b", "https://host?..."),
            ("HTTPS://host/a?sig=secret", "HTTPS://host/a?..."),
            ("htps://host/a?sig=secret", "htps://host/a?..."),
            ("s3://bucket/a@b?c", "s3://bucket/a@b?c"),
            ("/a@b", "/a@b"),
        ] {
            assert_eq!(without_secrets(address), shown);
        }
    }

    #[test]
    fn the_environments_user_is_told_to_the_host_that_it_names_alone() {
        let user = |address: &str, value: &str| {
            let (scheme, rest) = address.split_once("://").unwrap();
            let variable = |name: &str| (name == WEB_USER_VARIABLE).then(|| value.to_owned());
            user_at(&Folder::new(scheme, rest), user_of(rest).0, &variable)
        };
        let me = Ok(Some(b"me:p%41@ss".to_vec()));
        for (address, value) in [
            ("https://host/a", "me:p%41@ss@host"),
            ("https://HOST:443/a?b", "me:p%41@ss@Host"),
            ("https://host", "me:p%41@ss@host:443"),
            ("http://host:81/", "me:p%41@ss@host:81"),
            ("https://me:p%2541%40ss@host/", "you:x@host"),
        ] {
            assert_eq!(user(address, value), me, "{address} {value}");
        }
        for (address, value) in [
            ("https://other/a", "me:p@ss@host"),
            ("https://host:81/a", "me:p@ss@host"),
            ("http://host/a", "me:p@ss@host:443"),
            ("https://host/a", ""),
        ] {
            assert_eq!(user(address, value), Ok(None), "{address} {value}");
        }
        for value in ["me:secret", "me@host", "me:secret@", "me:secret@https://host"] {
            let error = user("https://host/", value).unwrap_err();
            assert!(error.contains(WEB_USER_VARIABLE) && !error.contains("secret"), "{error}");
        }
    }

    fn at(address: &str, name: &str) -> Result<String, String> {
        let (scheme, rest) = address.split_once("://").unwrap();
        Folder::new(scheme, rest).address_of(name).map(|address| address.to_string())
    }

    #[test]
    fn a_name_that_is_a_whole_address_is_left_as_it_is_written() {
        for same in [
            "http://host/my%20file.nc",
            "http://host/%C3%A9%2B?sig=a%2Fb&c=+",
            "http://host/a//b",
            "http://host/?q",
        ] {
            assert_eq!(at("http://host:80/base?x", same).as_deref(), Ok(same));
        }
        for (name, written) in [
            ("http://host/my file", "http://host/my%20file"),
            ("http://host/é#part", "http://host/%C3%A9"),
            ("http://me:secret@host:80/a", "http://host:80/a"),
            ("http://HOST/a|b", "http://HOST/a%7Cb"),
        ] {
            assert_eq!(at("http://Host/", name).unwrap().to_lowercase(), written.to_lowercase());
        }
        for other in ["https://host/a", "http://other/a", "http://host:81/a", "http://user:x@o/"] {
            let error = at("http://host/", other).unwrap_err();
            assert!(error.contains("is not at http://host") && !error.contains("user"), "{error}");
        }
    }

    #[test]
    fn other_names_are_what_files_below_the_address_are_called() {
        for (address, name, asked) in [
            ("http://host/data/", "a b", "http://host/data/a%20b"),
            ("http://host/data//", "a%20b", "http://host/data/a%2520b"),
            ("http://host/my%20data", "a/ä?#", "http://host/my%20data/a/%C3%A4%3F%23"),
            ("http://host/data/?sig=x%2F", "a", "http://host/data/a?sig=x%2F"),
            ("http://host?sig=x", "a", "http://host/a?sig=x"),
            ("http://me:secret@host/data#part", "http:/x", "http://host/data/http:/x"),
            ("http://host/data/", "", "http://host/data/"),
            ("http://host/data?sig=x", "", "http://host/data?sig=x"),
        ] {
            assert_eq!(at(address, name).as_deref(), Ok(asked), "{address} {name}");
        }
    }

    #[test]
    fn two_endpoints_are_two_stores() {
        let identity = |kind, given: &[(&str, &str)]| {
            identity(kind, &Settings::of(kind, given, &|_| None).unwrap(), "s3://b")
        };
        let one = identity(Kind::S3, &[("aws_endpoint_url_s3", "http://a")]);
        assert_ne!(one, identity(Kind::S3, &[("endpoint", "http://b")]));
        assert_eq!(one, identity(Kind::S3, &[("endpoint", "http://a/"), ("access_key_id", "x")]));
        assert_ne!(one, identity(Kind::S3, &[]));
        let one = identity(Kind::Az, &[("account_name", "one")]);
        assert_ne!(one, identity(Kind::Az, &[("account_name", "two")]));
        assert_ne!(one, identity(Kind::Az, &[("account_name", "one"), ("use_emulator", "true")]));
    }
}
