//! Errors of servers and of the crate, translated to a back end's errors: one line that says what to do.
//!
//! The crate gives most answers as text. Tests against a real server pin the phrases that are searched for.

use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use object_store::CredentialProvider;
use object_store::aws::AwsCredential;
use object_store::client::{HttpError, HttpErrorKind};

use super::wire::Odd;
use crate::backend::BackendError;

/// Hosts of the clouds' metadata services, which give machines their credentials.
const METADATA_SERVICES: &[&str] = &["169.254.169.254", "metadata.google.internal"];

/// The client's message after too many redirects.
const IN_A_CIRCLE: &str = "too many redirects";

/// Why an operation failed, and whether a retry may help.
pub(super) struct Failure {
    pub(super) cause: BackendError,
    pub(super) may_pass: bool,
    /// How long the server asks to wait (`Retry-After`).
    pub(super) after: Option<Duration>,
}

impl Failure {
    /// A failure that a retry would not change.
    pub(super) fn lasting(cause: BackendError) -> Self {
        Failure { cause, may_pass: false, after: None }
    }

    /// A failure that may have passed at the next try.
    pub(super) fn passing(cause: BackendError) -> Self {
        Failure { cause, may_pass: true, after: None }
    }

    pub(super) fn of(error: &object_store::Error) -> Self {
        let Said { status, is_http, after, .. } = Said::by(error);
        let may_pass = match status.unwrap_or_default() {
            408 | 429 => true,
            status @ 500..=599 => status != 501,
            // No answer, an incomplete one, or an error of the crate itself.
            0 => {
                is_http
                    && !is_of_metadata(&error.to_string())
                    && !innermost(error).is::<Odd>()
                    && !innermost(error).to_string().contains(IN_A_CIRCLE)
            }
            _ => false,
        };
        Failure { cause: cause_of(error), may_pass, after }
    }
}

/// What is known of a server's answer.
struct Said {
    status: Option<u16>,
    /// The connection failed, or the answer broke off.
    is_http: bool,
    /// Nothing came for too long.
    is_silent: bool,
    after: Option<Duration>,
}

impl Said {
    fn by(error: &object_store::Error) -> Self {
        // Errors of other kinds are the crate's own, and a retry does not help.
        let object_store::Error::Generic { source, .. } = error else {
            return Said { status: None, is_http: false, is_silent: false, after: None };
        };
        let mut source: Option<&(dyn Error + 'static)> = Some(source.as_ref());
        let (mut is_http, mut is_silent) = (false, false);
        while let Some(cause) = source {
            if let Some(Odd::Busy(status, after)) = cause.downcast_ref() {
                return Said { status: Some(*status), is_http, is_silent, after: *after };
            }
            if let Some(http) = cause.downcast_ref::<HttpError>() {
                is_http = true;
                is_silent |= http.kind() == HttpErrorKind::Timeout;
            }
            source = cause.source();
        }
        Said { status: status_in(&one_line(&error.to_string())), is_http, is_silent, after: None }
    }
}

fn status_in(text: &str) -> Option<u16> {
    after(text, "status code: ")?.split(' ').next()?.parse().ok()
}

fn cause_of(error: &object_store::Error) -> BackendError {
    match error {
        object_store::Error::NotFound { .. } => return BackendError::NotFound,
        object_store::Error::Precondition { .. } | object_store::Error::NotModified { .. } => {
            return BackendError::Changed;
        }
        _ => {}
    }
    let last = innermost(error);
    let text = one_line(&error.to_string());
    let status = status_in(&text);
    let code = between(&text, "<Code>", "</Code>");
    let other = |message: String| BackendError::Other { errno: None, message: message.into() };
    match last.downcast_ref() {
        Some(Odd::Busy(status, _)) => {
            return BackendError::Busy(format!("it answered {status}").into());
        }
        Some(odd) => return other(odd.to_string()),
        None => {}
    }
    if let Some(NoCredentials(why)) = last.downcast_ref() {
        return other(format!("no credentials: {why}"));
    }
    if is_of_metadata(&text) {
        return other(format!("no credentials: {}", looked_at(error)));
    }
    let is_denied = matches!(
        error,
        object_store::Error::PermissionDenied { .. } | object_store::Error::Unauthenticated { .. }
    );
    if text.contains("Range request not supported") {
        return other("the server does not send parts of files (it ignores ranges)".into());
    }
    if text.contains("Content-Length Header missing") {
        return other("the server does not say how long the file is".into());
    }
    match (status, code) {
        (Some(404), _) => BackendError::NotFound,
        // The range was inside the file when it was opened, so the file has become shorter.
        (Some(416), _) => BackendError::Changed,
        (Some(401 | 403), code) => {
            BackendError::Denied(code.unwrap_or("the server does not say why").into())
        }
        _ if is_denied => BackendError::Denied(code.unwrap_or(&text).into()),
        (Some(status), Some(code)) => {
            let said = between(&text, "<Message>", "</Message>").unwrap_or("no message");
            other(format!("the server answered {status}, {code}: {said}"))
        }
        (Some(_), None) => {
            let said = after(&text, "status code: ").unwrap_or(&text);
            let said = said.split_once(':').map_or(said, |(status, _)| status);
            other(format!("the server answered {said}"))
        }
        (None, _) => {
            let last = one_line(&last.to_string());
            if last.contains(IN_A_CIRCLE) {
                return other("the server redirects in a circle".into());
            }
            let said = Said::by(error);
            if said.is_silent {
                return BackendError::Lost; // The last try makes a timeout of it.
            }
            match (text.contains("HTTP error"), said.is_http) {
                (true, true) => other(format!("no connection: {last}")),
                (true, false) => other(format!("the answer makes no sense: {last}")),
                (false, _) => other(text),
            }
        }
    }
}

/// No credentials were found, or they cannot be used.
#[derive(Debug)]
pub(super) struct NoCredentials(pub(super) String);

impl fmt::Display for NoCredentials {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl Error for NoCredentials {}

impl From<NoCredentials> for object_store::Error {
    fn from(error: NoCredentials) -> Self {
        object_store::Error::Generic { store: "S3", source: Box::new(error) }
    }
}

/// Stands in for the machine's metadata service when it must not be asked; always fails.
#[derive(Debug)]
pub(super) struct Nobody;

#[async_trait]
impl CredentialProvider for Nobody {
    type Credential = AwsCredential;

    async fn get_credential(&self) -> object_store::Result<Arc<AwsCredential>> {
        let not_asked = LOOKED_AT_S3.replace(
            "no answer from the machine's metadata service",
            "the machine's metadata service is not asked (AWS_EC2_METADATA_DISABLED)",
        );
        Err(NoCredentials(not_asked).into())
    }
}

/// Whether the error is that of the metadata service, the last place that is asked for credentials.
fn is_of_metadata(text: &str) -> bool {
    METADATA_SERVICES.iter().any(|service| text.contains(service))
}

/// Says where credentials were looked for in vain, and how to give them.
fn looked_at(error: &object_store::Error) -> &'static str {
    let object_store::Error::Generic { store, .. } = error else { return LOOKED_AT_S3 };
    match *store {
        "GCS" => LOOKED_AT_GS,
        "MicrosoftAzure" => LOOKED_AT_AZ,
        _ => LOOKED_AT_S3,
    }
}

const LOOKED_AT_S3: &str = "none in AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, in the profile \
    (AWS_PROFILE) of ~/.aws/credentials and ~/.aws/config, in AWS_WEB_IDENTITY_TOKEN_FILE, in \
    AWS_CONTAINER_CREDENTIALS_*_URI, and no answer from the machine's metadata service; set one, or \
    AWS_SKIP_SIGNATURE=true for a public bucket";
const LOOKED_AT_GS: &str = "none in GOOGLE_SERVICE_ACCOUNT, in GOOGLE_APPLICATION_CREDENTIALS or \
    ~/.config/gcloud/application_default_credentials.json, in GOOGLE_BEARER_TOKEN, and no answer from \
    the machine's metadata service; set one, or GOOGLE_SKIP_SIGNATURE=true for a public bucket";
const LOOKED_AT_AZ: &str = "none in AZURE_STORAGE_ACCOUNT_KEY, AZURE_STORAGE_SAS_TOKEN, \
    AZURE_STORAGE_CONNECTION_STRING, AZURE_CLIENT_ID and AZURE_CLIENT_SECRET, \
    AZURE_FEDERATED_TOKEN_FILE, and no answer from the machine's metadata service; set one, or \
    AZURE_SKIP_SIGNATURE=true for a public container";

/// The innermost cause.
fn innermost(error: &object_store::Error) -> &(dyn Error + 'static) {
    let mut last: &(dyn Error + 'static) = error;
    while let Some(source) = last.source() {
        last = source;
    }
    last
}

fn after<'a>(text: &'a str, mark: &str) -> Option<&'a str> {
    text.split_once(mark).map(|(_, rest)| rest)
}

fn between<'a>(text: &'a str, start: &str, end: &str) -> Option<&'a str> {
    Some(after(text, start)?.split_once(end)?.0)
}

/// A text without its line breaks.
fn one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}
