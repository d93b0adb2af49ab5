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

pub(super) fn cause_of(error: &object_store::Error) -> BackendError {
    match error {
        object_store::Error::NotFound { .. } => return BackendError::NotFound,
        object_store::Error::Precondition { .. } | object_store::Error::NotModified { .. } => {
            return BackendError::Changed;
        }
        _ => {}
    }
    let mut last: &(dyn Error + 'static) = error;
    loop {
        if let Some(IsBusy(status)) = last.downcast_ref() {
            return BackendError::Busy(format!("it answered {status}").into());
        }
        match last.source() {
            Some(source) => last = source,
            None => break,
        }
    }
    let text = one_line(&error.to_string());
    let status = after(&text, "status code: ").and_then(|rest| rest.split(' ').next());
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
    match (status, code) {
        (Some("404"), _) => BackendError::NotFound,
        (Some("401" | "403"), code) => {
            BackendError::Denied(code.unwrap_or("the server does not say why").into())
        }
        _ if is_denied => BackendError::Denied(code.unwrap_or(&text).into()),
        (Some(status), Some(code)) => {
            let said = between(&text, "<Message>", "</Message>").unwrap_or("no more is said");
            other(format!("the server answered {status}, {code}: {said}"))
        }
        (Some(_), None) => other(text),
        (None, _) => match text.contains("HTTP error") {
            true => other(format!("no connection: {}", one_line(&last.to_string()))),
            false => other(text),
        },
    }
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
