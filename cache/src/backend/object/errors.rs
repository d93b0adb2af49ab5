//! What servers say, as a back end's errors: a line that names the way out.
//!
//! The crate gives most answers as text. What is looked for in it is pinned by tests against a real server.

use std::error::Error;
use std::fmt;
use std::future::Future;
use std::pin::Pin;

use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse, HttpService,
    ReqwestConnector,
};

use crate::backend::BackendError;

/// Where clouds tell machines who they are.
const METADATA_SERVICE: &str = "169.254.169.254";

/// What the client says when it has given up following a server.
const IN_A_CIRCLE: &str = "too many redirects";

/// Why something did not work, and whether it may if it is tried again.
pub(super) struct Failure {
    pub(super) cause: BackendError,
    pub(super) may_pass: bool,
}

impl Failure {
    /// It will be the same the next time.
    pub(super) fn lasting(cause: BackendError) -> Self {
        Failure { cause, may_pass: false }
    }

    /// It may be otherwise the next time.
    pub(super) fn passing(cause: BackendError) -> Self {
        Failure { cause, may_pass: true }
    }

    pub(super) fn of(error: &object_store::Error) -> Self {
        let Said { status, is_http } = Said::by(error);
        let may_pass = match status.unwrap_or_default() {
            408 | 429 => true,
            status @ 500..=599 => status != 501,
            // No answer, half of one, or something that the crate does not do.
            0 => {
                is_http
                    && !one_line(&error.to_string()).contains(METADATA_SERVICE)
                    && !innermost(error).to_string().contains(IN_A_CIRCLE)
            }
            _ => false,
        };
        Failure { cause: cause_of(error), may_pass }
    }
}

/// What a server said, as far as it can be known.
struct Said {
    status: Option<u16>,
    /// It was the connection that failed, or the answer broke off.
    is_http: bool,
}

impl Said {
    fn by(error: &object_store::Error) -> Self {
        // The other kinds are decided by the crate, and are none that pass.
        let object_store::Error::Generic { source, .. } = error else {
            return Said { status: None, is_http: false };
        };
        let mut source: Option<&(dyn Error + 'static)> = Some(source.as_ref());
        let mut is_http = false;
        while let Some(cause) = source {
            if let Some(IsBusy(status)) = cause.downcast_ref() {
                return Said { status: Some(*status), is_http };
            }
            is_http |= cause.is::<HttpError>();
            source = cause.source();
        }
        Said { status: status_in(&one_line(&error.to_string())), is_http }
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
    if let Some(IsBusy(status)) = last.downcast_ref() {
        return BackendError::Busy(format!("it answered {status}").into());
    }
    let text = one_line(&error.to_string());
    let status = status_in(&text);
    let code = between(&text, "<Code>", "</Code>");
    let other = |message: String| BackendError::Other { errno: None, message: message.into() };
    if text.contains(METADATA_SERVICE) {
        return other(
            "no credentials: set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY (or those of \
             your cloud), or AWS_SKIP_SIGNATURE=true for a public bucket"
                .into(),
        );
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
        // What was there when it was opened has lost its end.
        (Some(416), _) => BackendError::Changed,
        (Some(401 | 403), code) => {
            BackendError::Denied(code.unwrap_or("the server does not say why").into())
        }
        _ if is_denied => BackendError::Denied(code.unwrap_or(&text).into()),
        (Some(status), Some(code)) => {
            let said = between(&text, "<Message>", "</Message>").unwrap_or("no more is said");
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
            match (text.contains("HTTP error"), Said::by(error).is_http) {
                (true, true) => other(format!("no connection: {last}")),
                (true, false) => other(format!("the answer makes no sense: {last}")),
                (false, _) => other(text),
            }
        }
    }
}

/// What it all began with.
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

/// A server answered that it has too much to do.
#[derive(Debug)]
struct IsBusy(u16);

impl fmt::Display for IsBusy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "the server answered {}", self.0)
    }
}

impl Error for IsBusy {}

/// Makes clients whose errors tell of busy servers.
#[derive(Debug)]
pub(super) struct Telling;

impl HttpConnector for Telling {
    fn connect(&self, options: &object_store::ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(TellingService(ReqwestConnector::default().connect(options)?)))
    }
}

#[derive(Debug)]
struct TellingService(HttpClient);

type Answer<'a> = Pin<Box<dyn Future<Output = Result<HttpResponse, HttpError>> + Send + 'a>>;

impl HttpService for TellingService {
    fn call<'a, 'b>(&'a self, request: HttpRequest) -> Answer<'b>
    where
        'a: 'b,
        Self: 'b,
    {
        Box::pin(async move {
            let response = self.0.execute(request).await?;
            match response.status().as_u16() {
                status @ (429 | 503) => Err(HttpError::new(HttpErrorKind::Unknown, IsBusy(status))),
                _ => Ok(response),
            }
        })
    }
}
