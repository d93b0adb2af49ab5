//! `object_store` over the tests' own connections, so that they need no TLS.

use std::future::poll_fn;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Duration;

use foretell_testbed::store::Store;
use futures_core::Stream;
use futures_core::stream::BoxStream;
use hyper::client::conn::http1::handshake;
use hyper::header::{HOST, HeaderValue};
use hyper_util::rt::TokioIo;
use object_store::aws::{AmazonS3, AmazonS3Builder};
use object_store::client::{
    HttpClient, HttpConnector, HttpError, HttpErrorKind, HttpRequest, HttpResponse,
    HttpResponseBody, HttpService,
};
use object_store::{BackoffConfig, ClientOptions, RetryConfig};
use tokio::net::TcpStream;

/// The runtime of the tests' clients.
pub(crate) fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().expect("a runtime")
}

/// A client of `bucket`, with the default keys and fast retries.
pub(crate) fn client(store: &Store, bucket: &str) -> AmazonS3 {
    let backoff = BackoffConfig {
        init_backoff: Duration::from_millis(1),
        max_backoff: Duration::from_millis(5),
        base: 2.0,
    };
    AmazonS3Builder::new()
        .with_endpoint(store.endpoint())
        .with_bucket_name(bucket)
        .with_region("us-east-1")
        .with_access_key_id("foretell")
        .with_secret_access_key("foretell-secret")
        .with_allow_http(true)
        .with_retry(RetryConfig { backoff, max_retries: 20, ..RetryConfig::default() })
        .with_http_connector(Plain)
        .build()
        .expect("a client")
}

/// HTTP with one connection for each request.
#[derive(Debug)]
struct Plain;

impl HttpConnector for Plain {
    fn connect(&self, _options: &ClientOptions) -> object_store::Result<HttpClient> {
        Ok(HttpClient::new(Plain))
    }
}

#[async_trait::async_trait]
impl HttpService for Plain {
    async fn call(&self, mut request: HttpRequest) -> Result<HttpResponse, HttpError> {
        let uri = request.uri().clone();
        let authority = uri.authority().expect("an address").as_str();
        let stream = TcpStream::connect(authority)
            .await
            .map_err(|error| HttpError::new(HttpErrorKind::Connect, error))?;
        let host = HeaderValue::from_str(authority).expect("visible letters");
        request.headers_mut().entry(HOST).or_insert(host);
        let path = uri.path_and_query().expect("a path").clone();
        *request.uri_mut() = path.into();
        let failed = |error| HttpError::new(HttpErrorKind::Interrupted, error);
        let (mut sender, connection) = handshake(TokioIo::new(stream)).await.map_err(failed)?;
        tokio::spawn(connection);
        let response = sender.send_request(request).await.map_err(failed)?;
        Ok(response.map(|body| HttpResponseBody::new(Failing(body))))
    }
}

/// A body with errors of `object_store`.
struct Failing(hyper::body::Incoming);

impl http_body::Body for Failing {
    type Data = bytes::Bytes;
    type Error = HttpError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<bytes::Bytes>, HttpError>>> {
        let failed = |error| HttpError::new(HttpErrorKind::Interrupted, error);
        Pin::new(&mut self.0).poll_frame(context).map_err(failed)
    }
}

/// Collects all items.
pub(crate) async fn collect<T>(mut stream: BoxStream<'_, T>) -> Vec<T> {
    let mut all = Vec::new();
    while let Some(item) = poll_fn(|context| stream.as_mut().poll_next(context)).await {
        all.push(item);
    }
    all
}

struct Items<I>(I);

impl<I: Iterator + Unpin> Stream for Items<I> {
    type Item = I::Item;

    fn poll_next(mut self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<I::Item>> {
        Poll::Ready(self.0.next())
    }
}

/// A stream of these items.
pub(crate) fn stream<T: Send + Unpin + 'static, const N: usize>(
    items: [T; N],
) -> BoxStream<'static, T> {
    Box::pin(Items(items.into_iter()))
}
