//! Requests and answers on their way between `object_store` and a server: answers are changed to a form that the crate
//! understands, or to errors where it would misunderstand them.
//!
//! **A. The size of a web server's file** comes from a GET of its first byte, not from HEAD. Some servers refuse HEAD (a signed
//! address is for one method), or answer it with zero or a compressed size. The total in `Content-Range` is the file's size in
//! bytes. The GET costs no more requests than HEAD would. HEAD is used only if the answer to the GET has no total.
//!
//! **B. `Content-Range: bytes 0-99/*`** does not tell the size of the file (RFC 9110, section 14.4). The size at `open` is
//! filled in.
//!
//! **C. A whole file in place of a range** (status 200) is accepted if the range was the whole file and `Content-Length` is the
//! file's size.
//!
//! A part (status 206) without `Content-Length` (sent in chunks) is taken to be as long as its range. Without a range its
//! length is not used.
//!
//! **D. Encodings.** Requests ask for uncompressed answers. If a web server compresses all the same, its bytes would be
//! read as data: this is an error, unless the file's name says that it is compressed (`x.gz`). An object of a bucket
//! that is stored with an encoding is read as it is stored. GCS has to be asked for that (`gzip`): otherwise it
//! decompresses, and ignores ranges.
//!
//! **E. Conditions that never hold.** Some web servers answer 412 to their own ETag. The request is repeated without the
//! condition, since the reader compares the answer's ETag in any case (bitfireAT/davx5-ose#1365).
//!
//! **F. Times in an unknown format** are not errors. If there is no ETag, the text of the time becomes one, so that a change is
//! noticed (CenterForOpenScience/waterbutler#228).
//!
//! **G. Busy servers** (429, 503) become an error of their own, with the time that they ask to wait. So do buckets that are in
//! another region than the one that was asked.

use std::error::Error;
use std::fmt;
use std::time::Duration;

use async_trait::async_trait;
use http::header::{
    ACCEPT_ENCODING, CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_RANGE, ETAG, HeaderMap, IF_MATCH,
    LAST_MODIFIED, RANGE, RETRY_AFTER,
};
use http::{HeaderName, HeaderValue, Method, StatusCode, Uri};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpRequestBody,
    HttpResponse, HttpResponseBody, HttpService, ReqwestConnector,
};

use super::names::Kind;

/// Facts about a request that the crate does not have. They travel as an extension of the request.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    /// The address to use in place of the one that the crate makes from a path.
    pub(super) address: Option<Uri>,
    /// The size of the file when it was opened.
    pub(super) size_bytes: Option<u64>,
}

/// An answer that the crate would not understand or would misunderstand.
#[derive(Debug)]
pub(super) enum Odd {
    /// The server is busy: status, and the time that it asks to wait, if any.
    Busy(u16, Option<Duration>),
    /// The file was sent in an encoding that was not asked for.
    Encoded(String),
    /// Neither GET nor HEAD tells the size.
    NoSize,
    /// The bucket is in this region.
    Elsewhere(String),
}

impl fmt::Display for Odd {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Odd::Busy(status, _) => write!(f, "the server answered {status}"),
            Odd::Encoded(encoding) => write!(
                f,
                "the server sends the file compressed (Content-Encoding: {encoding}), though it was \
                 asked not to"
            ),
            Odd::NoSize => f.write_str("the server does not say how long the file is"),
            Odd::Elsewhere(region) => {
                write!(f, "the bucket is in the region {region}: set AWS_REGION={region}")
            }
        }
    }
}

impl Error for Odd {}

/// Makes clients of a kind of store.
#[derive(Clone, Debug)]
pub(super) struct Wire {
    pub(super) kind: Kind,
    /// Headers of each request.
    pub(super) headers: Vec<(HeaderName, HeaderValue)>,
}

impl HttpConnector for Wire {
    fn connect(&self, options: &object_store::ClientOptions) -> object_store::Result<HttpClient> {
        let client = ReqwestConnector::default().connect(options)?;
        Ok(HttpClient::new(Service { client, wire: self.clone() }))
    }
}

#[derive(Debug)]
struct Service {
    client: HttpClient,
    wire: Wire,
}

#[async_trait]
impl HttpService for Service {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let about = request.extensions_mut().remove::<About>().unwrap_or_default();
        if let Some(address) = about.address {
            *request.uri_mut() = address;
        }
        for (name, value) in &self.wire.headers {
            request.headers_mut().insert(name, value.clone());
        }
        let range = request.headers().get(RANGE).and_then(range_of);
        let is_head = request.method() == Method::HEAD;
        let is_of_object = is_head || range.is_some();
        let encoding = match self.wire.kind {
            Kind::Gs if is_of_object => "gzip", // D
            _ => "identity",
        };
        request.headers_mut().insert(ACCEPT_ENCODING, HeaderValue::from_static(encoding));
        if self.wire.kind == Kind::Web {
            if is_head {
                return self.size(request).await;
            }
            let name = request.uri().path().to_owned();
            let mut same = again(&request);
            let mut answer = self.ask(request).await?;
            if answer.status() == StatusCode::PRECONDITION_FAILED
                && same.headers_mut().remove(IF_MATCH).is_some()
            {
                answer = self.ask(same).await?; // E
            }
            let mut answer = corrected(plain(answer, &name)?, range, about.size_bytes);
            if range.is_none() && length(answer.headers()).is_none() {
                answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(0));
            }
            return Ok(answer);
        }
        Ok(corrected(self.ask(request).await?, range, about.size_bytes))
    }
}

impl Service {
    async fn ask(&self, request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let answer = self.client.execute(request).await?;
        match answer.status().as_u16() {
            status @ (429 | 503) => {
                let after = answer.headers().get(RETRY_AFTER).and_then(seconds);
                Err(HttpError::new(HttpErrorKind::Unknown, Odd::Busy(status, after)))
            }
            // https://docs.aws.amazon.com/AmazonS3/latest/userguide/UsingRouting.html
            301 | 307 | 400 if let Some(region) = region_of(&answer) => {
                Err(HttpError::new(HttpErrorKind::Unknown, Odd::Elsewhere(region)))
            }
            _ if self.wire.kind == Kind::Web => Ok(dated(answer)),
            _ => Ok(answer),
        }
    }

    /// Answers a HEAD by a GET of the first byte (A).
    async fn size(&self, head: HttpRequest) -> Result<HttpResponse, HttpError> {
        let mut first = again(&head);
        *first.method_mut() = Method::GET;
        first.headers_mut().insert(RANGE, HeaderValue::from_static("bytes=0-0"));
        let name = head.uri().path().to_owned();
        let answer = self.ask(first).await?;
        let status = answer.status();
        let size = match status {
            StatusCode::PARTIAL_CONTENT | StatusCode::OK => {
                let answer = plain(answer, &name)?;
                let size = match status {
                    StatusCode::OK => length(answer.headers()),
                    _ => total(answer.headers()),
                };
                size.map(|size| told(answer, size))
            }
            // An empty file has no first byte.
            StatusCode::RANGE_NOT_SATISFIABLE => {
                (total(answer.headers()) == Some(0)).then(|| told(answer, 0))
            }
            _ => return Ok(answer),
        };
        if let Some(size) = size {
            return Ok(size);
        }
        let answer = plain(self.ask(head).await?, &name)?;
        // The first byte was sent, so the file is not empty.
        let least = if status == StatusCode::PARTIAL_CONTENT { 1 } else { 0 };
        match length(answer.headers()) {
            Some(size) if answer.status().is_success() && size >= least => Ok(answer),
            _ => Err(HttpError::new(HttpErrorKind::Unknown, Odd::NoSize)),
        }
    }
}

/// A copy of a request without a body.
fn again(request: &HttpRequest) -> HttpRequest {
    let mut same = HttpRequest::new(HttpRequestBody::empty());
    *same.method_mut() = request.method().clone();
    *same.uri_mut() = request.uri().clone();
    *same.headers_mut() = request.headers().clone();
    same
}

/// An answer to HEAD with this size and the other headers of `answer`.
fn told(answer: HttpResponse, size_bytes: u64) -> HttpResponse {
    let (mut parts, _) = answer.into_parts();
    parts.status = StatusCode::OK;
    parts.headers.remove(CONTENT_RANGE);
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(size_bytes));
    HttpResponse::from_parts(parts, HttpResponseBody::from(Vec::new()))
}

/// The answer, or an error if it is encoded and the file is not (D).
fn plain(answer: HttpResponse, name: &str) -> Result<HttpResponse, HttpError> {
    let encoding = answer.headers().get(CONTENT_ENCODING).filter(|_| answer.status().is_success());
    let encoding = encoding.map(|value| String::from_utf8_lossy(value.as_bytes()).to_lowercase());
    match encoding.as_deref().map(str::trim) {
        None | Some("" | "identity") => Ok(answer),
        Some(encoding) if is_named_for(name, encoding) => Ok(answer),
        Some(encoding) => {
            Err(HttpError::new(HttpErrorKind::Unknown, Odd::Encoded(encoding.to_owned())))
        }
    }
}

/// Whether the name says that the file itself has this encoding.
fn is_named_for(name: &str, encoding: &str) -> bool {
    let endings: &[&str] = match encoding {
        "gzip" | "x-gzip" => &[".gz", ".tgz", ".svgz", ".bgz"],
        "br" => &[".br"],
        "zstd" => &[".zst", ".zstd"],
        "compress" | "x-compress" => &[".z"],
        "bzip2" | "x-bzip2" => &[".bz2", ".tbz2"],
        "xz" | "x-xz" => &[".xz", ".txz"],
        _ => &[],
    };
    let name = name.to_lowercase();
    endings.iter().any(|ending| name.ends_with(ending))
}

/// The answer to a range in a form that the crate accepts (B, C).
fn corrected(
    mut answer: HttpResponse,
    range: Option<(u64, u64)>,
    size_bytes: Option<u64>,
) -> HttpResponse {
    let length_said = length(answer.headers());
    // Not for an answer to HEAD: its length is the size of the file.
    if let Some((from, to)) = range
        && answer.status() == StatusCode::PARTIAL_CONTENT
        && length_said.is_none()
    {
        answer.headers_mut().insert(CONTENT_LENGTH, HeaderValue::from(to - from));
    }
    let (Some((from, to)), Some(size)) = (range, size_bytes) else { return answer };
    match answer.status() {
        StatusCode::PARTIAL_CONTENT => {
            let said = answer.headers().get(CONTENT_RANGE).and_then(|value| value.to_str().ok());
            let known = said.and_then(|said| said.trim().strip_suffix("/*"));
            if let Some(full) =
                known.and_then(|part| HeaderValue::from_str(&format!("{part}/{size}")).ok())
            {
                answer.headers_mut().insert(CONTENT_RANGE, full);
            }
        }
        StatusCode::OK if from == 0 && to == size && length_said == Some(size) => {
            let full = HeaderValue::from_str(&format!("bytes 0-{}/{size}", size - 1));
            answer.headers_mut().insert(CONTENT_RANGE, full.expect("digits"));
            *answer.status_mut() = StatusCode::PARTIAL_CONTENT;
        }
        _ => {}
    }
    answer
}

/// The region of the bucket, as S3 tells it.
fn region_of(answer: &HttpResponse) -> Option<String> {
    answer.headers().get("x-amz-bucket-region")?.to_str().ok().map(str::to_owned)
}

/// The answer, without its time if the crate cannot read it (F).
fn dated(mut answer: HttpResponse) -> HttpResponse {
    let Some(time) = answer.headers().get(LAST_MODIFIED) else { return answer };
    let text = String::from_utf8_lossy(time.as_bytes()).into_owned();
    if chrono::DateTime::parse_from_rfc2822(&text).is_ok() {
        return answer;
    }
    answer.headers_mut().remove(LAST_MODIFIED);
    if !answer.headers().contains_key(ETAG) {
        let tag = text.replace(|letter: char| letter == '"' || !letter.is_ascii_graphic(), "_");
        if let Ok(tag) = HeaderValue::from_str(&format!("W/\"{tag}\"")) {
            answer.headers_mut().insert(ETAG, tag);
        }
    }
    answer
}

/// The range of bytes that is asked for: start and end.
fn range_of(value: &HeaderValue) -> Option<(u64, u64)> {
    let (from, last) = value.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    let (from, last) = (from.parse().ok()?, last.parse::<u64>().ok()?);
    (last >= from).then_some((from, last + 1))
}

/// The size of the whole file, from `Content-Range`.
fn total(headers: &HeaderMap) -> Option<u64> {
    let said = headers.get(CONTENT_RANGE)?.to_str().ok()?.trim();
    said.strip_prefix("bytes ")?.split_once('/')?.1.parse().ok()
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// A time to wait in seconds. A date is ignored: the usual pauses apply.
fn seconds(value: &HeaderValue) -> Option<Duration> {
    value.to_str().ok()?.trim().parse().ok().map(Duration::from_secs)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_encoding_is_the_files_own_if_its_name_says_so() {
        for (name, encoding, is_own) in [
            ("/a/x.tar.gz", "x-gzip", true),
            ("/a/X.TGZ", "gzip", true),
            ("/a/x.gz/y", "gzip", false),
            ("/a/x.txt", "gzip", false),
            ("/a/x.gz", "br", false),
            ("/a/x.zst", "zstd", true),
            ("/a/x.z", "deflate", false),
        ] {
            assert_eq!(is_named_for(name, encoding), is_own, "{name} {encoding}");
        }
    }

    #[test]
    fn ranges_are_read_as_they_are_written() {
        let range = |text: &'static str| range_of(&HeaderValue::from_static(text));
        assert_eq!(range("bytes=0-0"), Some((0, 1)));
        assert_eq!(range("bytes=5-9"), Some((5, 10)));
        for other in ["bytes=5-", "bytes=-5", "bytes=9-5", "items=0-1", "bytes=0-0, 2-3"] {
            assert_eq!(range(other), None, "{other}");
        }
    }
}
