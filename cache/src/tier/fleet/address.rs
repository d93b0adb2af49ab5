//! Addresses of shared tiers: `redis://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]…][/DATABASE][?OPTION=VALUE&…]`.
//!
//! Several hosts are nodes of a cluster to begin with. The password and the secret may be in files or in the environment
//! instead, and none of them is ever shown.

use std::fmt;
use std::time::Duration;

use redis::{ConnectionAddr, ConnectionInfo, IntoConnectionInfo, RedisConnectionInfo};

use crate::backend::Environment;
use crate::backend::{AddressError, user_of};

/// Schemes of addresses, and whether the connection is encrypted.
const SCHEMES: [(&str, bool); 4] =
    [("redis", false), ("rediss", true), ("valkey", false), ("valkeys", true)];
const PORT: u16 = 6379;
/// How long a node may fetch a block that others wait for before it has to say that it is still at it.
const LEASE: Duration = Duration::from_secs(5);
/// How long the server keeps a block.
const TTL: Duration = Duration::from_secs(24 * 3600);
/// Longest of these times: a year.
const TIME_MAX: Duration = Duration::from_secs(366 * 24 * 3600);
/// The least lease: its holder needs some time to extend it.
const LEASE_MIN: Duration = Duration::from_millis(100);
/// Bytes of a secret at least, so that it cannot be guessed.
const SECRET_MIN_BYTES: usize = 16;
const PASSWORD: &str = "FORETELL_TIER_PASSWORD";
const SECRET: &str = "FORETELL_TIER_SECRET";

/// Whether this names a shared tier: it begins with one of the schemes.
pub fn is_fleet(tier: &str) -> bool {
    scheme_of(tier).is_some()
}

fn scheme_of(address: &str) -> Option<((&'static str, bool), &str)> {
    let (scheme, rest) = address.split_once("://")?;
    let known = SCHEMES.iter().find(|(name, _)| *name == scheme)?;
    Some((*known, rest))
}

/// The address without user, password and options.
pub fn shown(address: &str) -> String {
    let Some(((scheme, _), rest)) = scheme_of(address) else { return "the tier".to_owned() };
    let (_, rest) = user_of(rest);
    format!("{scheme}://{}", rest.split(['?', '#']).next().unwrap_or_default())
}

/// What an address says.
#[derive(Clone)]
pub(super) struct Address {
    /// Hosts to begin with.
    pub(super) hosts: Vec<(String, u16)>,
    uses_tls: bool,
    user: Option<String>,
    pub(super) password: Option<String>,
    database: i64,
    pub(super) lease: Duration,
    pub(super) ttl: Duration,
    pub(super) secret: Option<Vec<u8>>,
    pub(super) shown: String,
}

impl fmt::Debug for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Address").field(&self.shown).finish_non_exhaustive()
    }
}

impl Address {
    /// Parses an address. Passwords and secrets that are not in it come from files that it names, or from `environment`.
    pub(super) fn parse(
        address: &str,
        environment: Option<&Environment>,
    ) -> Result<Self, AddressError> {
        let shown = shown(address);
        let wrong = |message: String| AddressError::Store { address: shown.clone(), message };
        let ((_, uses_tls), rest) = scheme_of(address).ok_or_else(|| {
            wrong(
                "a shared tier's address begins with redis://, rediss://, valkey:// or valkeys://"
                    .into(),
            )
        })?;
        let (user, rest) = user_of(rest);
        let (place, query) = rest.split_once('?').unwrap_or((rest, ""));
        let (hosts, database) = place.split_once('/').unwrap_or((place, ""));
        let hosts: Result<Vec<_>, String> = hosts.split(',').map(host_of).collect();
        let database = match database {
            "" => 0,
            number => number
                .parse()
                .ok()
                .filter(|number| (0..=i64::from(i32::MAX)).contains(number))
                .ok_or_else(|| wrong(format!("the database {number} is not a number")))?,
        };
        let (user, password) = user.map_or(("", None), |user| match user.split_once(':') {
            Some((user, password)) => (user, Some(password)),
            None => (user, None),
        });
        let plain = |text: &str| {
            percent(text).ok_or_else(|| wrong("the user or password is not UTF-8".into()))
        };
        let own = Environment::default();
        let variable = |name| environment.unwrap_or(&own).get(name).filter(|it| !it.is_empty());
        let mut parsed = Address {
            hosts: hosts.map_err(&wrong)?,
            uses_tls,
            user: Some(plain(user)?).filter(|user| !user.is_empty()),
            password: password.map(plain).transpose()?.or_else(|| variable(PASSWORD)),
            database,
            lease: LEASE,
            ttl: TTL,
            secret: variable(SECRET).map(String::into_bytes),
            shown: shown.clone(),
        };
        for option in query.split('&').filter(|option| !option.is_empty()) {
            parsed.set(option).map_err(&wrong)?;
        }
        match &parsed.secret {
            Some(secret) if secret.len() < SECRET_MIN_BYTES => Err(wrong(format!(
                "the secret has {} bytes: give {SECRET_MIN_BYTES} or more, such as `openssl rand -hex 32` makes",
                secret.len()
            ))),
            _ => Ok(parsed),
        }
    }

    fn set(&mut self, option: &str) -> Result<(), String> {
        let (name, value) = option.split_once('=').unwrap_or((option, ""));
        match name {
            "lease" => self.lease = time_of(name, value, LEASE_MIN)?,
            "ttl" => self.ttl = time_of(name, value, Duration::from_secs(1))?,
            "password_file" => self.password = Some(text_of(name, value)?),
            "secret_file" => self.secret = Some(text_of(name, value)?.into_bytes()),
            _ => {
                return Err(format!(
                    "the option {name} is unknown: there are lease, ttl, password_file and secret_file"
                ));
            }
        }
        Ok(())
    }

    /// How to connect to a server.
    pub(super) fn to(&self, (host, port): &(String, u16)) -> redis::RedisResult<ConnectionInfo> {
        let (host, port) = (host.clone(), *port);
        let address = match self.uses_tls {
            true => ConnectionAddr::TcpTls { host, port, insecure: false, tls_params: None },
            false => ConnectionAddr::Tcp(host, port),
        };
        let mut settings =
            RedisConnectionInfo::default().set_db(self.database).set_skip_set_lib_name();
        if let Some(password) = &self.password {
            settings = settings.set_password(password);
        }
        if let Some(user) = &self.user {
            settings = settings.set_username(user);
        }
        Ok(address.into_connection_info()?.set_redis_settings(settings))
    }
}

fn host_of(host: &str) -> Result<(String, u16), String> {
    let (name, port) = match host.strip_prefix('[') {
        Some(rest) => {
            let (name, port) = rest.split_once(']').ok_or_else(|| format!("{host} lacks a ]"))?;
            (name, port.strip_prefix(':'))
        }
        None => match host.split_once(':') {
            Some((name, port)) => (name, Some(port)),
            None => (host, None),
        },
    };
    let number = port.map_or(Some(PORT), |port| port.parse().ok().filter(|&port| port > 0));
    match (name, number) {
        ("", _) => Err("a host is missing: write redis://HOST:PORT".to_owned()),
        (_, None) => Err(format!("{host} has no port from 1 to 65535")),
        (name, Some(port)) => Ok((name.to_owned(), port)),
    }
}

/// Without percent signs.
fn percent(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        let digits = more.first_chunk::<2>().filter(|_| *first == b'%');
        let digits = digits.and_then(|digits| std::str::from_utf8(digits).ok());
        match digits.and_then(|digits| u8::from_str_radix(digits, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &more[2..];
            }
            None => {
                bytes.push(*first);
                rest = more;
            }
        }
    }
    String::from_utf8(bytes).ok()
}

/// The first line of a file.
fn text_of(name: &str, path: &str) -> Result<String, String> {
    let path = percent(path).unwrap_or_default();
    if !path.starts_with('/') {
        return Err(format!("{name}={path}: write an absolute path"));
    }
    let text = std::fs::read_to_string(&path).map_err(|error| format!("{name}={path}: {error}"))?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}

fn time_of(name: &str, value: &str, least: Duration) -> Result<Duration, String> {
    let end = value.find(|digit: char| !digit.is_ascii_digit()).unwrap_or(value.len());
    let (number, unit) = value.split_at(end);
    let unit_ms = match unit {
        "ms" => Some(1),
        "s" => Some(1000),
        "min" => Some(60_000),
        "h" => Some(3_600_000),
        "d" => Some(24 * 3_600_000),
        _ => None,
    };
    let time = number.parse::<u64>().ok().zip(unit_ms);
    let time = time.and_then(|(number, unit_ms)| number.checked_mul(unit_ms));
    time.map(Duration::from_millis).filter(|time| (least..=TIME_MAX).contains(time)).ok_or_else(
        || format!("{name}={value}: write a time such as 500ms, 5s or 24h, of {least:?} or more"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(address: &str) -> Result<Address, String> {
        let none = Environment::of([]);
        Address::parse(address, Some(&none)).map_err(|error| error.to_string())
    }

    #[test]
    fn addresses_say_where_servers_are_and_show_no_secrets() {
        let one = parse("redis://me:s%40cret@host/3?lease=250ms&ttl=2h").unwrap();
        assert_eq!(one.hosts, [("host".to_owned(), 6379)]);
        assert_eq!((one.user.as_deref(), one.password.as_deref()), (Some("me"), Some("s@cret")));
        assert_eq!((one.database, one.lease), (3, Duration::from_millis(250)));
        assert_eq!((one.ttl, one.uses_tls), (Duration::from_secs(7200), false));
        assert_eq!(one.shown, "redis://host/3");
        let many = parse("rediss://:pw@a:1,[::1]:2,c").unwrap();
        let hosts = [("a", 1), ("::1", 2), ("c", 6379)].map(|(host, port)| (host.to_owned(), port));
        assert_eq!((many.hosts.as_slice(), many.uses_tls), (&hosts[..], true));
        assert!(!format!("{many:?} {}", many.shown).contains("pw"));
        assert!(is_fleet("valkeys://h") && !is_fleet("/redis://h") && !is_fleet("s3://b"));
    }

    #[test]
    fn what_is_wrong_is_said_without_secrets() {
        for (address, why) in [
            ("redis://:pw@", "a host is missing"),
            ("redis://:pw@a,", "a host is missing"),
            ("redis://:pw@a:0", "a:0 has no port"),
            ("redis://:pw@a/x", "the database x is not a number"),
            ("redis://:pw@a?lese=5s", "the option lese is unknown"),
            ("redis://:pw@a?lease=5", "lease=5: write a time"),
            ("redis://:pw@a?lease=5ms", "of 100ms or more"),
            ("redis://:pw@a?secret_file=x", "write an absolute path"),
            ("redis://:pw@a?password_file=/not/there", "/not/there: No such file"),
        ] {
            let said = parse(address).unwrap_err();
            assert!(said.contains(why) && !said.contains("pw"), "{address}: {said}");
        }
    }

    #[test]
    fn passwords_and_secrets_may_be_elsewhere() {
        let folder = tempfile::tempdir().unwrap();
        let file = folder.path().join("secret");
        std::fs::write(&file, "0123456789abcdef\nmore").unwrap();
        let file = file.to_str().unwrap();
        let from_file = parse(&format!("redis://h?secret_file={file}&password_file={file}"));
        let from_file = from_file.unwrap();
        assert_eq!(from_file.secret.as_deref(), Some(&b"0123456789abcdef"[..]));
        assert_eq!(from_file.password.as_deref(), Some("0123456789abcdef"));
        let of = |secret: &str| {
            let all = [(SECRET, secret), (PASSWORD, "pw")];
            let all = all.map(|(name, value)| (name.to_owned(), value.to_owned()));
            Address::parse("redis://h", Some(&Environment::of(all)))
        };
        assert_eq!(of("fedcba9876543210").unwrap().password.as_deref(), Some("pw"));
        let short = of("short").unwrap_err().to_string();
        assert!(short.contains("the secret has 5 bytes"), "{short}");
    }
}
