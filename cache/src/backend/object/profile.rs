//! AWS profiles: region, endpoint and credentials from `~/.aws/config` and `~/.aws/credentials`, read by AWS' own library.
//!
//! The library reads these files (or those that `AWS_CONFIG_FILE` and `AWS_SHARED_CREDENTIALS_FILE` name) and supports
//! keys, `role_arn` with `source_profile` or `credential_source`, `credential_process`, and SSO.
//!
//! **Precedence.** Settings that are given and the environment come before a profile. Web identity, containers and the
//! machine's metadata service, which are `object_store`'s, come after it.
//!
//! **Renewal.** Keys are renewed before they expire. Keys without an expiry are read again every five minutes, since
//! other programs may renew them in the files.

#[cfg(feature = "aws-profiles")]
pub(super) use known::add_to;
#[cfg(not(feature = "aws-profiles"))]
pub(super) use unknown::add_to;

#[cfg(feature = "aws-profiles")]
mod known {
    use std::borrow::Cow;
    use std::sync::Arc;
    use std::time::{Duration, SystemTime};

    use async_trait::async_trait;
    use aws_config::Region;
    use aws_config::profile::{ProfileFileCredentialsProvider, ProfileSet};
    use aws_config::provider_config::ProviderConfig;
    use aws_credential_types::provider::ProvideCredentials;
    use aws_credential_types::provider::error::CredentialsError;
    use aws_runtime::env_config::EnvConfigValue;
    use aws_types::os_shim_internal::{Env, Fs};
    use object_store::CredentialProvider;
    use object_store::aws::{AwsCredential, AwsCredentialProvider};
    use tokio::runtime::Handle;
    use tokio::sync::Mutex;

    use super::super::errors::NoCredentials;
    use super::super::settings::Settings;
    use crate::backend::Environment;

    /// How long keys without an expiry are used before they are read again.
    const READ_EVERY: Duration = Duration::from_secs(300);
    /// How long before their expiry keys are renewed, as in AWS' own clients.
    const EARLY: Duration = Duration::from_secs(300);

    /// Entries of profiles whose keys depend on the environment of the process that reads them.
    const OF_ENVIRONMENT: [&str; 2] = ["credential_process", "credential_source"];

    /// A profile that may have credentials.
    #[derive(Clone, Debug)]
    pub(in super::super) struct Profile {
        name: String,
        region: Option<String>,
        is_given: bool,
    }

    /// Adds a profile's region and endpoint to the settings. Returns the profile if it is to be asked for credentials.
    pub(in super::super) fn add_to(
        settings: &mut Settings,
        environment: &Environment,
        handle: &Handle,
    ) -> Result<Option<Profile>, String> {
        let (sender, receiver) = std::sync::mpsc::sync_channel(1);
        let named = settings.get("profile").map(str::to_owned);
        // Without a name the library asks this process' environment.
        let standard = (!environment.is_own()).then(|| "default".to_owned());
        let selected = named.clone().or(standard).map(Cow::Owned);
        handle.spawn(async move {
            let files = Default::default();
            let all = aws_config::profile::load(&Fs::real(), &Env::real(), &files, selected).await;
            let _ = sender.send(all); // The receiver may have gone.
        });
        let needs_keys =
            settings.get("access_key_id").is_none() && !settings.is_true("skip_signature");
        let all = match receiver.recv() {
            Ok(Ok(all)) => all,
            // A broken file does not matter if no profile is needed.
            _ if !needs_keys && !settings.is_profile_given => return Ok(None),
            Ok(Err(error)) => return Err(chain(&error)),
            Err(_) => return Err("the profiles could not be read".into()),
        };
        let name = all.selected_profile().to_owned();
        if all.get_profile(&name).is_none() {
            return match named {
                Some(name) if settings.is_profile_given || needs_keys => Err(format!(
                    "there is no profile {name:?} in ~/.aws/config and ~/.aws/credentials (or where \
                     AWS_CONFIG_FILE and AWS_SHARED_CREDENTIALS_FILE say)"
                )),
                _ => Ok(None),
            };
        }
        let asks_others = OF_ENVIRONMENT.into_iter().any(|key| is_in_any(&all, key));
        if needs_keys && !environment.is_own() && asks_others {
            return Err("a profile has its keys from the environment, or from a command".into());
        }
        if let Some(region) = all.get("region")
            && settings.get("default_region").is_none()
        {
            settings.add_default("region", region)?;
        }
        if settings.endpoint().is_none()
            && let Some(endpoint) = endpoint(&all, environment)
        {
            settings.add_default("endpoint_url", &endpoint)?;
        }
        let region = settings.get("region").or(settings.get("default_region")).map(str::to_owned);
        let is_given = settings.is_profile_given;
        Ok(needs_keys.then_some(Profile { name, region, is_given }))
    }

    /// Whether any profile has such an entry: one may lead to another.
    fn is_in_any(all: &ProfileSet, key: &str) -> bool {
        let profiles = all.profiles().filter_map(|name| all.get_profile(name));
        profiles.into_iter().any(|profile| profile.get(key).is_some())
    }

    /// The profile's endpoint of S3, or of all services.
    fn endpoint(all: &ProfileSet, environment: &Environment) -> Option<String> {
        let is_ignored = |said: &str| said.eq_ignore_ascii_case("true");
        let said = environment.get("AWS_IGNORE_CONFIGURED_ENDPOINT_URLS");
        let said = said.or_else(|| all.get("ignore_configured_endpoint_urls").map(str::to_owned));
        if said.as_deref().is_some_and(is_ignored) {
            return None;
        }
        let nothing = Env::from_slice(&[]);
        let wanted = EnvConfigValue::new().profile("endpoint_url").service_id("s3");
        wanted.load(&nothing, Some(all)).map(|(url, _)| url.into_owned())
    }

    impl Profile {
        /// Credentials of the profile, or of `others` if the profile has none.
        pub(in super::super) fn before(
            self,
            others: AwsCredentialProvider,
        ) -> AwsCredentialProvider {
            let chain = Chain { profile: self, others, known: Mutex::default() };
            Arc::new(chain)
        }

        async fn ask(&self) -> Result<Keys, CredentialsError> {
            let region = self.region.clone().map(Region::new);
            let config = ProviderConfig::without_region().with_region(region);
            let provider = ProfileFileCredentialsProvider::builder()
                .configure(&config)
                .profile_name(&self.name)
                .build();
            let found = provider.provide_credentials().await?;
            Ok(Keys {
                credential: Arc::new(AwsCredential {
                    key_id: found.access_key_id().to_owned(),
                    secret_key: found.secret_access_key().to_owned(),
                    token: found.session_token().map(str::to_owned),
                }),
                until: found.expiry().unwrap_or_else(|| SystemTime::now() + READ_EVERY + EARLY),
            })
        }
    }

    #[derive(Clone, Debug)]
    struct Keys {
        credential: Arc<AwsCredential>,
        until: SystemTime,
    }

    /// A profile, and the source of credentials that is asked if it has none.
    #[derive(Debug)]
    struct Chain {
        profile: Profile,
        others: AwsCredentialProvider,
        known: Mutex<Option<Keys>>,
    }

    #[async_trait]
    impl CredentialProvider for Chain {
        type Credential = AwsCredential;

        async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
            let mut known = self.known.lock().await;
            let now = SystemTime::now();
            if let Some(keys) = &*known
                && now + EARLY < keys.until
            {
                return Ok(Arc::clone(&keys.credential));
            }
            match self.profile.ask().await {
                Ok(keys) => {
                    check(&keys.credential)?;
                    let credential = Arc::clone(&keys.credential);
                    *known = Some(keys);
                    Ok(credential)
                }
                // The profile has no credentials.
                Err(CredentialsError::CredentialsNotLoaded(_)) if !self.profile.is_given => {
                    self.others.get_credential().await
                }
                Err(error) => match &*known {
                    Some(keys) if now < keys.until => Ok(Arc::clone(&keys.credential)),
                    _ => {
                        let name = &self.profile.name;
                        Err(NoCredentials(format!("the profile {name:?}: {}", chain(&error)))
                            .into())
                    }
                },
            }
        }
    }

    /// Checks that the keys can be in a header: the crate panics if they cannot.
    fn check(credential: &AwsCredential) -> object_store::Result<()> {
        let is_text = |text: &str| text.bytes().all(|byte| matches!(byte, b' '..=b'~'));
        let token = credential.token.as_deref().unwrap_or_default();
        match is_text(&credential.key_id) && is_text(token) {
            true => Ok(()),
            false => Err(NoCredentials("its keys have a control character in them".into()).into()),
        }
    }

    /// An error and its causes in one line.
    fn chain(error: &dyn std::error::Error) -> String {
        let mut text = error.to_string();
        let mut source = error.source();
        while let Some(cause) = source {
            let cause_text = cause.to_string();
            if !text.contains(&cause_text) {
                text = format!("{text}: {cause_text}");
            }
            source = cause.source();
        }
        text.split_whitespace().collect::<Vec<_>>().join(" ")
    }
}

#[cfg(not(feature = "aws-profiles"))]
mod unknown {
    use object_store::aws::AwsCredentialProvider;
    use tokio::runtime::Handle;

    use super::super::settings::Settings;
    use crate::backend::Environment;

    /// There is none.
    #[derive(Clone)]
    pub(in super::super) enum Profile {}

    /// Refuses profiles.
    pub(in super::super) fn add_to(
        settings: &mut Settings,
        _: &Environment,
        _: &Handle,
    ) -> Result<Option<Profile>, String> {
        match settings.get("profile") {
            Some(name) if settings.is_profile_given || settings.get("access_key_id").is_none() => {
                Err(format!(
                    "the profile {name:?}: this foretell was built without the feature aws-profiles"
                ))
            }
            _ => Ok(None),
        }
    }

    impl Profile {
        pub(in super::super) fn before(self, _: AwsCredentialProvider) -> AwsCredentialProvider {
            match self {}
        }
    }
}
