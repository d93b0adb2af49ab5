//! What goes to a server and what comes back: made into what `object_store` understands, and into errors where it would be
//! misunderstood.
//!
//! **A. The size of a web server's file** comes from the answer to a GET of its first byte, not from HEAD. Servers refuse HEAD
//! (a signed address is for one method), and tell zero or a compressed size; a range's total belongs to the bytes. It costs
//! as many requests. HEAD is asked where that answer has no total.
//!
//! **B. `Content-Range: bytes 0-99/*`** is a part of a file whose size the server does not say (RFC 9110, section 14.4). The
//! size stands that the file was opened with.
//!
//! **C. A whole file in place of a range** (status 200) is what was asked for if the range was all of the file.
//!
//! An answer without `Content-Length` (sent in chunks) is as long as its range; that of a whole file is not looked at.
//!
//! **D. Encodings.** No server is asked to compress. One that does it all the same would have compressed bytes read as data,
//! unless the file's own name says so (`x.gz`). A bucket's object with an encoding is what is stored, and is read as it
//! is stored: of GCS that has to be asked for, since it decompresses otherwise, and then knows no ranges.
//!
//! **E. Conditions that never hold.** Some web servers answer 412 to the very ETag that they tell. They are asked once more
//! without: whoever reads compares the ETag of the answer in any case (bitfireAT/davx5-ose#1365).
//!
//! **F. Times in no known form** are no error; where there is no ETag, their text is one, so that a change is noticed
//! (CenterForOpenScience/waterbutler#228).
//!
//! **G. Servers that are busy** (429, 503) are told from others, with the time that they ask to be left alone for; and so are
//! buckets that are in another region than the one that was asked.

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

/// What a request is about, beside what the crate knows of it. It travels as an extension.
#[derive(Clone, Debug, Default)]
pub(super) struct About {
    /// The address, as it was given, in place of what the crate makes of a path.
    pub(super) address: Option<Uri>,
    /// The size of the file when it was opened.
    pub(super) size_bytes: Option<u64>,
}

/// An answer that the crate would not understand, or misunderstand.
#[derive(Debug)]
pub(super) enum Odd {
    /// It has too much to do, and says when it may be asked again, if it does.
    Busy(u16, Option<Duration>),
    /// The file is sent in an encoding that nobody asked for.
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

    /// What HEAD should tell, by a GET of the first byte (A).
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
            // Nothing has no first byte.
            StatusCode::RANGE_NOT_SATISFIABLE => {
                (total(answer.headers()) == Some(0)).then(|| told(answer, 0))
            }
            _ => return Ok(answer),
        };
        if let Some(size) = size {
            return Ok(size);
        }
        let answer = plain(self.ask(head).await?, &name)?;
        // One byte has been seen, if that.
        let least = if status == StatusCode::PARTIAL_CONTENT { 1 } else { 0 };
        match length(answer.headers()) {
            Some(size) if answer.status().is_success() && size >= least => Ok(answer),
            _ => Err(HttpError::new(HttpErrorKind::Unknown, Odd::NoSize)),
        }
    }
}

/// The same request; what a HEAD has for a body is nothing.
fn again(request: &HttpRequest) -> HttpRequest {
    let mut same = HttpRequest::new(HttpRequestBody::empty());
    *same.method_mut() = request.method().clone();
    *same.uri_mut() = request.uri().clone();
    *same.headers_mut() = request.headers().clone();
    same
}

/// An answer to HEAD with this size, and what else `answer` says.
fn told(answer: HttpResponse, size_bytes: u64) -> HttpResponse {
    let (mut parts, _) = answer.into_parts();
    parts.status = StatusCode::OK;
    parts.headers.remove(CONTENT_RANGE);
    parts.headers.insert(CONTENT_LENGTH, HeaderValue::from(size_bytes));
    HttpResponse::from_parts(parts, HttpResponseBody::from(Vec::new()))
}

/// The answer, unless it has another encoding than the file (D).
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

/// Whether a file of this name has this encoding wherever it is.
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

/// An answer to a range as the crate takes it (B, C).
fn corrected(
    mut answer: HttpResponse,
    range: Option<(u64, u64)>,
    size_bytes: Option<u64>,
) -> HttpResponse {
    let length_said = length(answer.headers());
    // Of HEAD, which has neither, the length is the size of the file.
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

/// Where S3 says that the bucket is.
fn region_of(answer: &HttpResponse) -> Option<String> {
    answer.headers().get("x-amz-bucket-region")?.to_str().ok().map(str::to_owned)
}

/// An answer with a time that the crate can read, or none (F).
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

/// The bytes that are asked for: from, and to.
fn range_of(value: &HeaderValue) -> Option<(u64, u64)> {
    let (from, last) = value.to_str().ok()?.strip_prefix("bytes=")?.split_once('-')?;
    let (from, last) = (from.parse().ok()?, last.parse::<u64>().ok()?);
    (last >= from).then_some((from, last + 1))
}

/// What a part says of the whole.
fn total(headers: &HeaderMap) -> Option<u64> {
    let said = headers.get(CONTENT_RANGE)?.to_str().ok()?.trim();
    said.strip_prefix("bytes ")?.split_once('/')?.1.parse().ok()
}

fn length(headers: &HeaderMap) -> Option<u64> {
    headers.get(CONTENT_LENGTH)?.to_str().ok()?.trim().parse().ok()
}

/// A time to wait; a date is left to the pauses that are made anyway.
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
