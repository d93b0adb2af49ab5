//! S3's operations on a folder.
//!
//! The crate `s3s` reads requests, checks signatures and writes answers. This module implements the operations. Its
//! sibling `s3s-fs` would be too slow: it computes the MD5 of the whole file for every answer, reads in pieces of 4
//! KiB, and lists a whole bucket for every page.

use std::future::poll_fn;
use std::io::Write;
use std::ops::Range;
use std::pin::Pin;
use std::sync::Arc;
use std::time::{Duration, SystemTime};

use futures_core::Stream;
use s3s::access::{S3Access, S3AccessContext};
use s3s::dto::{
    Bucket, CommonPrefix, CreateBucketInput, CreateBucketOutput, DeleteObjectInput,
    DeleteObjectOutput, DeleteObjectsInput, DeleteObjectsOutput, DeletedObject, ETag,
    ETagCondition, EncodingType, GetBucketLocationInput, GetBucketLocationOutput, GetObjectInput,
    GetObjectOutput, HeadBucketInput, HeadBucketOutput, HeadObjectInput, HeadObjectOutput,
    ListBucketsInput, ListBucketsOutput, ListObjectsInput, ListObjectsOutput, ListObjectsV2Input,
    ListObjectsV2Output, Object, PutObjectInput, PutObjectOutput, StreamingBlob, Timestamp,
};
use s3s::{S3, S3Error, S3Request, S3Response, S3Result, s3_error};

use super::file_body::{Buffers, FileBody};
use super::folder::{Folder, Found, denied};
use super::listing::{Catalogue, From, Page, Query};

/// Keys on a page, at most. 1000, as in S3.
const PAGE_KEYS: i32 = 1000;

/// The content type of all objects: S3's default.
const CONTENT_TYPE: &str = "binary/octet-stream";

/// See the [module](self).
pub(super) struct Objects {
    folder: Arc<Folder>,
    catalogue: Arc<Catalogue>,
    buffers: Arc<Buffers>,
}

impl Objects {
    /// The objects of `folder`. Their bodies come in pieces of the size of `buffers`.
    pub(super) fn new(folder: Arc<Folder>, buffers: Arc<Buffers>) -> Self {
        Objects { folder, catalogue: Arc::default(), buffers }
    }

    async fn page(&self, input: &ListObjectsV2Input) -> S3Result<(Page, i32)> {
        let most = input.max_keys.unwrap_or(PAGE_KEYS).min(PAGE_KEYS);
        let size = usize::try_from(most).map_err(|_| {
            let range = i32::MAX;
            s3_error!(InvalidArgument, "max-keys must be an integer between 0 and {range}")
        })?;
        let bucket = self.folder.bucket(&input.bucket)?;
        let (folder, catalogue) = (Arc::clone(&self.folder), Arc::clone(&self.catalogue));
        let token = input.continuation_token.as_deref().map(bound_of_token).transpose()?;
        let prefix = input.prefix.clone().unwrap_or_default();
        let (delimiter, after) = (input.delimiter.clone(), input.start_after.clone());
        let page = move || {
            let from = match (token, &after) {
                (Some(bound), _) => From::Next(bound),
                (None, Some(key)) => From::After(key),
                (None, None) => From::Start,
            };
            let delimiter = delimiter.as_deref();
            let query = Query { prefix: &prefix, delimiter, from, most: size };
            catalogue.page((folder.tree(), &bucket), &query).map_err(denied)
        };
        Ok((blocking(page).await?, most))
    }
}

/// Runs work that may take a while on a thread for blocking work.
async fn blocking<R: Send + 'static>(
    work: impl FnOnce() -> S3Result<R> + Send + 'static,
) -> S3Result<R> {
    let work = || {
        foretell_fault::point("store-files");
        work()
    };
    tokio::task::spawn_blocking(work).await.map_err(S3Error::internal_error)?
}

/// A continuation token is the first possible key of the next page, in hexadecimal.
fn token_of_bound(bound: &[u8]) -> String {
    bound.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn bound_of_token(token: &str) -> S3Result<Vec<u8>> {
    let wrong = || s3_error!(InvalidArgument, "the continuation token is not from this store");
    let digits = token.as_bytes().chunks(2).map(|pair| {
        let digits = pair.len() == 2 && pair.iter().all(u8::is_ascii_hexdigit);
        let text = std::str::from_utf8(pair).ok().filter(|_| digits)?;
        u8::from_str_radix(text, 16).ok()
    });
    digits.collect::<Option<Vec<u8>>>().ok_or_else(wrong)
}

/// A key, encoded as the client asks.
fn encoded(text: String, encoding: Option<&EncodingType>) -> String {
    if encoding.is_none_or(|encoding| encoding.as_str() != EncodingType::URL) {
        return text;
    }
    let mut written = String::with_capacity(text.len());
    for &byte in text.as_bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' | b'/' => {
                written.push(char::from(byte));
            }
            _ => written.push_str(&format!("%{byte:02X}")),
        }
    }
    written
}

/// The conditions of a request.
struct Conditions<'a> {
    if_match: Option<&'a ETagCondition>,
    if_none_match: Option<&'a ETagCondition>,
    if_modified_since: Option<&'a Timestamp>,
    if_unmodified_since: Option<&'a Timestamp>,
}

impl Conditions<'_> {
    /// Checks them in the order of RFC 9110, section 13.2.2.
    fn check<F>(&self, object: &Found<F>) -> S3Result<()> {
        let matches = |condition: &ETagCondition, weakly: bool| match condition {
            ETagCondition::Any => true,
            ETagCondition::ETag(etag) => {
                etag.value() == object.etag && (weakly || etag.as_strong().is_some())
            }
        };
        let modified = last_modified(object.modified);
        let meant = match (self.if_match, self.if_unmodified_since) {
            (Some(condition), _) => matches(condition, false),
            (None, Some(time)) => modified <= *time,
            (None, None) => true,
        };
        if !meant {
            return Err(s3_error!(PreconditionFailed, "the object has changed"));
        }
        let known = match (self.if_none_match, self.if_modified_since) {
            (Some(condition), _) => matches(condition, true),
            (None, Some(time)) => modified <= *time,
            (None, None) => false,
        };
        if known {
            let mut error = s3_error!(NotModified);
            let etag = format!("\"{}\"", object.etag).parse();
            error.set_headers(etag.map(|etag| (hyper::header::ETAG, etag)).into_iter().collect());
            return Err(error);
        }
        Ok(())
    }
}

/// A time as in HTTP headers, in whole seconds.
fn last_modified(time: SystemTime) -> Timestamp {
    let since = time.duration_since(SystemTime::UNIX_EPOCH).unwrap_or_default();
    Timestamp::from(SystemTime::UNIX_EPOCH + Duration::from_secs(since.as_secs()))
}

/// The range of bytes that is asked for, and its `Content-Range` header.
fn range_of<F>(
    object: &Found<F>,
    range: Option<s3s::dto::Range>,
) -> S3Result<(Range<u64>, Option<String>)> {
    let Some(range) = range else { return Ok((0..object.bytes, None)) };
    match range.check(object.bytes).ok().filter(|range| !range.is_empty()) {
        Some(range) => {
            let name = format!("bytes {}-{}/{}", range.start, range.end - 1, object.bytes);
            Ok((range, Some(name)))
        }
        None => {
            let mut error = s3_error!(InvalidRange, "the object has {} bytes", object.bytes);
            let length = format!("bytes */{}", object.bytes).parse();
            let header = length.map(|length| (hyper::header::CONTENT_RANGE, length));
            error.set_headers(header.into_iter().collect());
            Err(error)
        }
    }
}

fn length(range: &Range<u64>) -> Option<i64> {
    i64::try_from(range.end - range.start).ok()
}

fn object(found: Found<String>, encoding: Option<&EncodingType>) -> Object {
    Object {
        key: Some(encoded(found.file, encoding)),
        size: i64::try_from(found.bytes).ok(),
        last_modified: Some(Timestamp::from(found.modified)),
        e_tag: Some(ETag::Strong(found.etag)),
        ..Object::default()
    }
}

fn common_prefix(prefix: String, encoding: Option<&EncodingType>) -> CommonPrefix {
    CommonPrefix { prefix: Some(encoded(prefix, encoding)) }
}

#[async_trait::async_trait]
impl S3 for Objects {
    async fn get_object(
        &self,
        request: S3Request<GetObjectInput>,
    ) -> S3Result<S3Response<GetObjectOutput>> {
        let input = request.input;
        let object = self.folder.object(&input.bucket, &input.key)?;
        let conditions = Conditions {
            if_match: input.if_match.as_ref(),
            if_none_match: input.if_none_match.as_ref(),
            if_modified_since: input.if_modified_since.as_ref(),
            if_unmodified_since: input.if_unmodified_since.as_ref(),
        };
        conditions.check(&object)?;
        let (range, content_range) = range_of(&object, input.range)?;
        let output = GetObjectOutput {
            accept_ranges: Some("bytes".into()),
            content_length: length(&range),
            content_range,
            content_type: Some(CONTENT_TYPE.into()),
            e_tag: Some(ETag::Strong(object.etag)),
            last_modified: Some(last_modified(object.modified)),
            body: Some(StreamingBlob::new(FileBody::new(
                object.file,
                range,
                Arc::clone(&self.buffers),
            ))),
            ..GetObjectOutput::default()
        };
        Ok(S3Response::new(output))
    }

    async fn head_object(
        &self,
        request: S3Request<HeadObjectInput>,
    ) -> S3Result<S3Response<HeadObjectOutput>> {
        let input = request.input;
        let object = self.folder.object(&input.bucket, &input.key)?;
        let conditions = Conditions {
            if_match: input.if_match.as_ref(),
            if_none_match: input.if_none_match.as_ref(),
            if_modified_since: input.if_modified_since.as_ref(),
            if_unmodified_since: input.if_unmodified_since.as_ref(),
        };
        conditions.check(&object)?;
        let (range, content_range) = range_of(&object, input.range)?;
        let output = HeadObjectOutput {
            accept_ranges: Some("bytes".into()),
            content_length: length(&range),
            content_range,
            content_type: Some(CONTENT_TYPE.into()),
            e_tag: Some(ETag::Strong(object.etag)),
            last_modified: Some(last_modified(object.modified)),
            ..HeadObjectOutput::default()
        };
        Ok(S3Response::new(output))
    }

    async fn list_objects_v2(
        &self,
        request: S3Request<ListObjectsV2Input>,
    ) -> S3Result<S3Response<ListObjectsV2Output>> {
        let input = request.input;
        let (page, most) = self.page(&input).await?;
        let encoding = input.encoding_type.as_ref();
        let count = page.objects.len() + page.prefixes.len();
        let write = |text: String| encoded(text, encoding);
        let output = ListObjectsV2Output {
            is_truncated: Some(page.next.is_some()),
            next_continuation_token: page.next.as_deref().map(token_of_bound),
            key_count: i32::try_from(count).ok(),
            max_keys: Some(most),
            contents: Some(page.objects.into_iter().map(|found| object(found, encoding)).collect()),
            common_prefixes: Some(
                page.prefixes.into_iter().map(|prefix| common_prefix(prefix, encoding)).collect(),
            ),
            name: Some(input.bucket),
            prefix: Some(write(input.prefix.unwrap_or_default())),
            delimiter: input.delimiter.map(write),
            start_after: input.start_after.map(write),
            continuation_token: input.continuation_token,
            encoding_type: input.encoding_type.clone(),
            ..ListObjectsV2Output::default()
        };
        Ok(S3Response::new(output))
    }

    async fn list_objects(
        &self,
        request: S3Request<ListObjectsInput>,
    ) -> S3Result<S3Response<ListObjectsOutput>> {
        let input: ListObjectsV2Input = request.input.into();
        let (page, most) = self.page(&input).await?;
        let encoding = input.encoding_type.as_ref();
        let write = |text: String| encoded(text, encoding);
        let next = page.next.as_ref().and(page.last()).map(str::to_owned).map(write);
        let output = ListObjectsOutput {
            is_truncated: Some(page.next.is_some()),
            next_marker: next,
            max_keys: Some(most),
            contents: Some(page.objects.into_iter().map(|found| object(found, encoding)).collect()),
            common_prefixes: Some(
                page.prefixes.into_iter().map(|prefix| common_prefix(prefix, encoding)).collect(),
            ),
            name: Some(input.bucket),
            prefix: Some(write(input.prefix.unwrap_or_default())),
            delimiter: input.delimiter.map(write),
            marker: Some(write(input.start_after.unwrap_or_default())),
            encoding_type: input.encoding_type.clone(),
            ..ListObjectsOutput::default()
        };
        Ok(S3Response::new(output))
    }

    async fn put_object(
        &self,
        request: S3Request<PutObjectInput>,
    ) -> S3Result<S3Response<PutObjectOutput>> {
        let mut input = request.input;
        let folder = Arc::clone(&self.folder);
        let there = folder.object(&input.bucket, &input.key).ok();
        let as_wanted = match (&input.if_match, &input.if_none_match, &there) {
            (Some(_), _, None) => false,
            (Some(ETagCondition::ETag(etag)), _, Some(there)) => etag.value() == there.etag,
            (_, Some(ETagCondition::Any), Some(_)) => false,
            _ => true,
        };
        if !as_wanted {
            return Err(s3_error!(PreconditionFailed, "the object does not meet the condition"));
        }
        let mut upload = folder.upload(&input.bucket)?;
        if let Some(mut body) = input.body.take() {
            while let Some(piece) = poll_fn(|context| Pin::new(&mut body).poll_next(context)).await
            {
                let wrong = |error| s3_error!(IncompleteBody, "the body did not arrive: {error}");
                // This copies into the page cache, which takes no longer than handing the bytes to another thread.
                upload.write_all(&piece.map_err(wrong)?).map_err(denied)?;
            }
        }
        let etag = blocking(move || folder.finish(upload, &input.key)).await?;
        let output =
            PutObjectOutput { e_tag: Some(ETag::Strong(etag)), ..PutObjectOutput::default() };
        Ok(S3Response::new(output))
    }

    async fn delete_object(
        &self,
        request: S3Request<DeleteObjectInput>,
    ) -> S3Result<S3Response<DeleteObjectOutput>> {
        self.folder.delete(&request.input.bucket, &request.input.key)?;
        Ok(S3Response::new(DeleteObjectOutput::default()))
    }

    async fn delete_objects(
        &self,
        request: S3Request<DeleteObjectsInput>,
    ) -> S3Result<S3Response<DeleteObjectsOutput>> {
        let (bucket, delete) = (request.input.bucket, request.input.delete);
        let folder = Arc::clone(&self.folder);
        folder.bucket(&bucket)?;
        let work = move || {
            let (mut deleted, mut errors) = (Vec::new(), Vec::new());
            for object in delete.objects {
                match folder.delete(&bucket, &object.key) {
                    Ok(()) => deleted
                        .push(DeletedObject { key: Some(object.key), ..DeletedObject::default() }),
                    Err(error) => errors.push(s3s::dto::Error {
                        key: Some(object.key),
                        code: Some(error.code().as_str().to_owned()),
                        message: error.message().map(str::to_owned),
                        ..s3s::dto::Error::default()
                    }),
                }
            }
            let deleted = (delete.quiet != Some(true)).then_some(deleted);
            let errors = Some(errors);
            Ok(DeleteObjectsOutput { deleted, errors, ..DeleteObjectsOutput::default() })
        };
        Ok(S3Response::new(blocking(work).await?))
    }

    async fn list_buckets(
        &self,
        _request: S3Request<ListBucketsInput>,
    ) -> S3Result<S3Response<ListBucketsOutput>> {
        let bucket = |name| Bucket {
            name: Some(name),
            creation_date: Some(Timestamp::from(SystemTime::UNIX_EPOCH)),
            ..Bucket::default()
        };
        let buckets = self.folder.buckets().map_err(denied)?.into_iter().map(bucket).collect();
        let output = ListBucketsOutput { buckets: Some(buckets), ..ListBucketsOutput::default() };
        Ok(S3Response::new(output))
    }

    async fn head_bucket(
        &self,
        request: S3Request<HeadBucketInput>,
    ) -> S3Result<S3Response<HeadBucketOutput>> {
        self.folder.bucket(&request.input.bucket)?;
        Ok(S3Response::new(HeadBucketOutput::default()))
    }

    async fn create_bucket(
        &self,
        request: S3Request<CreateBucketInput>,
    ) -> S3Result<S3Response<CreateBucketOutput>> {
        self.folder.create_bucket(&request.input.bucket)?;
        Ok(S3Response::new(CreateBucketOutput::default()))
    }

    async fn get_bucket_location(
        &self,
        request: S3Request<GetBucketLocationInput>,
    ) -> S3Result<S3Response<GetBucketLocationOutput>> {
        self.folder.bucket(&request.input.bucket)?;
        Ok(S3Response::new(GetBucketLocationOutput::default()))
    }
}

/// Anybody may read. Only clients with the keys may write.
pub(super) struct Readers;

#[async_trait::async_trait]
impl S3Access for Readers {
    async fn check(&self, context: &mut S3AccessContext<'_>) -> S3Result<()> {
        let name = context.s3_op().name();
        let reads = ["Get", "Head", "List"].iter().any(|verb| name.starts_with(verb));
        if reads || context.credentials().is_some() {
            return Ok(());
        }
        Err(s3_error!(AccessDenied, "writing needs a signature with the store's keys"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn tokens_read_back() {
        for bound in [&b"a/b\0"[..], "ä0".as_bytes(), &[0xC3, 0xB0], b""] {
            assert_eq!(bound_of_token(&token_of_bound(bound)).expect("one of ours"), bound);
        }
        for token in ["a", "zz", "+1", "é"] {
            assert!(bound_of_token(token).is_err(), "{token}");
        }
    }

    #[test]
    fn keys_are_encoded_when_asked() {
        let url = EncodingType::from_static(EncodingType::URL);
        let key = "a/b c+%&ä\n".to_owned();
        assert_eq!(encoded(key.clone(), None), key);
        assert_eq!(encoded(key, Some(&url)), "a/b%20c%2B%25%26%C3%A4%0A");
    }
}
