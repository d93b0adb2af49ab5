//! The options of a store.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::time::Duration;

use super::error::StoreError;
use super::faults::Faults;
use super::first_byte::FirstByte;

/// The longest latency. An hour: more is a typing error.
const LATENCY_MAX: Duration = Duration::from_secs(3600);

/// What a store serves, and how slowly. [`StoreOptions::default`] is the store of the project's measurements: 30 ms to
/// the first byte, 90 MB/s for each response, no faults.
#[derive(Clone, Debug, PartialEq)]
pub struct StoreOptions {
    /// The address to listen at. Port 0 picks a free one.
    pub listen: SocketAddr,
    /// Whether `listen` may be an address that other machines can reach.
    pub allow_remote: bool,
    /// Makes the folder itself the bucket of this name. Without it, each sub-folder is a bucket.
    pub bucket: Option<String>,
    /// How long a response waits before its first byte.
    pub first_byte: FirstByte,
    /// Limit for one response's body, in bytes a second; `None` for no limit.
    pub per_response: Option<u64>,
    /// Limit for all bodies together, in bytes a second; `None` for no limit.
    pub total: Option<u64>,
    /// Faults on purpose.
    pub faults: Faults,
    /// How long a connection may stay silent, or leave the head of a request unfinished, before it is closed.
    pub idle_timeout: Duration,
    /// Seed of all random choices: waits and faults.
    pub seed: u64,
    /// Clients that sign with this key and `secret_key` may write. Anybody may read.
    pub access_key: String,
    /// The secret that belongs to `access_key`.
    pub secret_key: String,
}

impl Default for StoreOptions {
    fn default() -> Self {
        StoreOptions {
            listen: SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), 0),
            allow_remote: false,
            bucket: None,
            first_byte: FirstByte::fixed(Duration::from_millis(30)),
            per_response: Some(90_000_000),
            total: None,
            faults: Faults::default(),
            idle_timeout: Duration::from_secs(30),
            seed: 1,
            access_key: "foretell".into(),
            secret_key: "foretell-secret".into(),
        }
    }
}

impl StoreOptions {
    /// A store without waits, limits and faults, for tests of the content.
    pub fn fast() -> Self {
        StoreOptions {
            first_byte: FirstByte::fixed(Duration::ZERO),
            per_response: None,
            ..StoreOptions::default()
        }
    }

    /// Returns the first option that has a value out of its range.
    ///
    /// # Errors
    /// [`StoreError::Option`] or [`StoreError::NotLoopback`].
    pub fn validate(&self) -> Result<(), StoreError> {
        if !self.allow_remote && !self.listen.ip().is_loopback() {
            return Err(StoreError::NotLoopback { address: self.listen });
        }
        let check = |good: bool, option, value: String, wanted| {
            if good { Ok(()) } else { Err(StoreError::Option { option, value, wanted }) }
        };
        if let Some(name) = &self.bucket {
            let wanted = "3 to 63 of a-z, 0-9, '-' and '.', not an IP address";
            check(s3s::path::check_bucket_name(name), "bucket", name.clone(), wanted)?;
        }
        let waits = &self.first_byte;
        let good = |wait: Duration| wait <= LATENCY_MAX;
        let usual = format!("{:?}", waits.usual);
        check(good(waits.usual), "first-byte", usual, "at most an hour")?;
        // NaN is in no range.
        let sigma = waits.sigma.to_string();
        check((0.0..=3.0).contains(&waits.sigma), "first-byte-sigma", sigma, "from 0 to 3")?;
        let idle = format!("{:?}", self.idle_timeout);
        let good_idle = good(self.idle_timeout) && !self.idle_timeout.is_zero();
        check(good_idle, "idle-timeout", idle, "more than 0 and at most an hour")?;
        let mut shares = 0.0;
        for tail in &waits.tail {
            let value = format!("{}:{:?}", tail.share, tail.wait);
            shares += tail.share;
            let good = (0.0..=1.0).contains(&tail.share) && shares <= 1.0 && good(tail.wait);
            check(
                good,
                "first-byte-tail",
                value,
                "shares that add up to at most 1, and waits of at most an hour",
            )?;
        }
        for (option, rate) in [("per-response", self.per_response), ("total", self.total)] {
            let wanted = "at least 1 byte a second, or unlimited";
            check(rate != Some(0), option, "0".into(), wanted)?;
        }
        for (option, key) in [("access-key", &self.access_key), ("secret-key", &self.secret_key)] {
            let good = !key.is_empty() && key.bytes().all(|byte| byte.is_ascii_graphic());
            let good = good && !(option == "access-key" && key.contains('/'));
            check(
                good,
                option,
                format!("{key:?}"),
                "visible ASCII characters, and '/' only in the secret",
            )?;
        }
        self.faults.validate()
    }
}

#[cfg(test)]
mod tests {
    use super::super::first_byte::Tail;
    use super::*;

    #[test]
    fn absurd_options_are_refused_by_name() {
        type Change = fn(&mut StoreOptions);
        let table: [(&str, Change); 15] = [
            ("0.0.0.0:80", |o| o.listen = ([0, 0, 0, 0], 80).into()),
            ("bucket", |o| o.bucket = Some("No".into())),
            ("first-byte", |o| o.first_byte.usual = Duration::from_secs(3601)),
            ("idle-timeout", |o| o.idle_timeout = Duration::ZERO),
            ("first-byte-sigma", |o| o.first_byte.sigma = f64::NAN),
            ("first-byte-tail", |o| {
                o.first_byte.tail = vec![Tail { share: 0.6, wait: Duration::ZERO }; 2];
            }),
            ("first-byte-tail", |o| {
                o.first_byte.tail = vec![Tail { share: -0.1, wait: Duration::ZERO }];
            }),
            ("per-response", |o| o.per_response = Some(0)),
            ("total", |o| o.total = Some(0)),
            ("access-key", |o| o.access_key = "a/b".into()),
            ("secret-key", |o| o.secret_key = String::new()),
            ("fail-503", |o| o.faults.fail_503 = 1.5),
            ("reset", |o| o.faults.reset = f64::NAN),
            ("truncate", |o| o.faults.truncate = -0.1),
            ("together", |o| o.faults = Faults { fail_503: 0.5, reset: 0.4, truncate: 0.2 }),
        ];
        assert!(StoreOptions::default().validate().is_ok());
        assert!(StoreOptions::fast().validate().is_ok());
        for (name, change) in table {
            let mut options = StoreOptions::default();
            change(&mut options);
            let error = options.validate().expect_err(name).to_string();
            assert!(error.contains(name) && error.lines().count() == 1, "{error}");
        }
    }
}
