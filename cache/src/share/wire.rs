//! Messages between a client and the server of a shared cache.
//!
//! A message has its length in bytes (32 bits), which does not count itself, and a body: a kind (8 bits) and fields in the
//! machine's order of bytes. Strings have their length before them. Everything that arrives is checked.

use std::time::Duration;

use foretell_policy::Segment;

use crate::error::BackendError;

/// The version of the messages and of the memory's layout. Both sides must have the same.
pub(crate) const VERSION: u32 = 2;

/// Most bytes of a body that a client sends. Longer lists of ranges are several messages.
pub(crate) const REQUEST_MAX_BYTES: usize = 256 << 10;

/// Most bytes that one request reads.
pub(crate) const READ_MAX_BYTES: u32 = 1 << 20;

/// Most ranges of one message.
pub(crate) const SEGMENTS_MAX: usize = 8192;

/// What a client sends. Answers bear the request's `id`.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToServer {
    /// The first message: the protocol's version, and what the cache is to read from.
    Hello {
        version: u32,
        recipe: Vec<u8>,
    },
    Open {
        id: u64,
        path: Vec<u8>,
    },
    Read {
        id: u64,
        handle: u32,
        offset_bytes: u64,
        length_bytes: u32,
    },
    Close {
        handle: u32,
    },
    Hint {
        stream: u32,
        handle: u32,
        is_ordered: bool,
        segments: Vec<Segment>,
    },
    HintFile {
        stream: u32,
        handle: u32,
    },
    Cancel {
        stream: u32,
    },
    EndStream {
        stream: u32,
    },
    Stats {
        id: u64,
    },
    /// There are records in the ring.
    Look,
}

/// What the server sends.
#[derive(Clone, Debug, PartialEq)]
pub(crate) enum ToClient {
    /// The answer to `Hello`, with the descriptors of table and headers, of the data, and of the ring.
    Welcome {
        frames: u32,
        block_bytes: u32,
    },
    Opened {
        id: u64,
        handle: u32,
        file: u64,
        size_bytes: u64,
        version: Vec<u8>,
    },
    /// An open or a read has failed; a read at this offset.
    Failed {
        id: u64,
        offset_bytes: u64,
        cause: BackendError,
    },
    Stats {
        id: u64,
        json: Vec<u8>,
    },
    /// The answer to `Hello` of a client that the server does not take. An older server closes the socket without a word.
    Refused {
        can_mend: bool,
        why: Vec<u8>,
    },
}

/// Takes fields out of a body, until something is missing.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (bytes, rest) = self.0.split_at_checked(count)?;
        self.0 = rest;
        Some(bytes)
    }

    fn u8(&mut self) -> Option<u8> {
        Some(self.bytes(1)?[0])
    }

    fn u32(&mut self) -> Option<u32> {
        Some(u32::from_ne_bytes(self.bytes(4)?.try_into().ok()?))
    }

    fn u64(&mut self) -> Option<u64> {
        Some(u64::from_ne_bytes(self.bytes(8)?.try_into().ok()?))
    }

    fn string(&mut self) -> Option<Vec<u8>> {
        let length = self.u32()? as usize;
        Some(self.bytes(length)?.to_vec())
    }

    /// The message, if nothing is left over.
    fn end<T>(self, message: T) -> Option<T> {
        self.0.is_empty().then_some(message)
    }
}

/// A message that is being written.
struct Body(Vec<u8>);

impl Body {
    fn new(kind: u8) -> Self {
        Body(vec![0, 0, 0, 0, kind])
    }

    fn u8(mut self, value: u8) -> Self {
        self.0.push(value);
        self
    }

    fn u32(mut self, value: u32) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn u64(mut self, value: u64) -> Self {
        self.0.extend(value.to_ne_bytes());
        self
    }

    fn string(self, bytes: &[u8]) -> Self {
        let mut body = self.u32(bytes.len() as u32);
        body.0.extend(bytes);
        body
    }

    fn end(mut self) -> Vec<u8> {
        let length = (self.0.len() - 4) as u32;
        self.0[..4].copy_from_slice(&length.to_ne_bytes());
        self.0
    }
}

impl ToServer {
    /// The message, with its length.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            ToServer::Hello { version, recipe } => Body::new(0).u32(*version).string(recipe),
            ToServer::Open { id, path } => Body::new(1).u64(*id).string(path),
            &ToServer::Read { id, handle, offset_bytes, length_bytes } => {
                Body::new(2).u64(id).u32(handle).u64(offset_bytes).u32(length_bytes)
            }
            &ToServer::Close { handle } => Body::new(3).u32(handle),
            ToServer::Hint { stream, handle, is_ordered, segments } => {
                let body = Body::new(4).u32(*stream).u32(*handle).u8(u8::from(*is_ordered));
                segments.iter().fold(body.u32(segments.len() as u32), |body, segment| {
                    body.u64(segment.offset_bytes).u64(segment.length_bytes)
                })
            }
            &ToServer::HintFile { stream, handle } => Body::new(5).u32(stream).u32(handle),
            &ToServer::Cancel { stream } => Body::new(6).u32(stream),
            &ToServer::EndStream { stream } => Body::new(7).u32(stream),
            &ToServer::Stats { id } => Body::new(8).u64(id),
            ToServer::Look => Body::new(9),
        }
        .end()
    }

    /// A body that has arrived; `None` if it is malformed.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut from = Fields(body);
        let message = match from.u8()? {
            0 => ToServer::Hello { version: from.u32()?, recipe: from.string()? },
            1 => ToServer::Open { id: from.u64()?, path: from.string()? },
            2 => ToServer::Read {
                id: from.u64()?,
                handle: from.u32()?,
                offset_bytes: from.u64()?,
                length_bytes: from
                    .u32()
                    .filter(|&length| (1..=READ_MAX_BYTES).contains(&length))?,
            },
            3 => ToServer::Close { handle: from.u32()? },
            4 => {
                let (stream, handle, is_ordered) = (from.u32()?, from.u32()?, from.u8()? != 0);
                let count = from.u32().filter(|&count| count as usize <= SEGMENTS_MAX)?;
                let segment = |from: &mut Fields<'_>| {
                    let segment = Segment { offset_bytes: from.u64()?, length_bytes: from.u64()? };
                    segment.offset_bytes.checked_add(segment.length_bytes)?;
                    (segment.length_bytes > 0).then_some(segment)
                };
                let segments = (0..count).map(|_| segment(&mut from)).collect::<Option<_>>()?;
                ToServer::Hint { stream, handle, is_ordered, segments }
            }
            5 => ToServer::HintFile { stream: from.u32()?, handle: from.u32()? },
            6 => ToServer::Cancel { stream: from.u32()? },
            7 => ToServer::EndStream { stream: from.u32()? },
            8 => ToServer::Stats { id: from.u64()? },
            9 => ToServer::Look,
            _ => return None,
        };
        from.end(message)
    }
}

impl ToClient {
    /// The head of a message that has the data of a read; the bytes follow. Neither side copies them for the message.
    pub(crate) fn data_head(id: u64, length: usize) -> Vec<u8> {
        let mut head = Body::new(2).u64(id).u32(length as u32).end();
        let body_bytes = (head.len() - 4 + length) as u32;
        head[..4].copy_from_slice(&body_bytes.to_ne_bytes());
        head
    }

    /// The request and the bytes of a body that has the data of a read; `None` for other ones.
    pub(crate) fn data(body: &[u8]) -> Option<(u64, &[u8])> {
        let mut from = Fields(body);
        let kind = from.u8()?;
        let (id, length) = (from.u64()?, from.u32()? as usize);
        (kind == 2 && from.0.len() == length).then_some((id, from.0))
    }

    /// The message, with its length.
    pub(crate) fn encode(&self) -> Vec<u8> {
        match self {
            &ToClient::Welcome { frames, block_bytes } => Body::new(0).u32(frames).u32(block_bytes),
            ToClient::Opened { id, handle, file, size_bytes, version } => {
                Body::new(1).u64(*id).u32(*handle).u64(*file).u64(*size_bytes).string(version)
            }
            ToClient::Failed { id, offset_bytes, cause } => {
                let (kind, number, text): (u8, u64, &str) = match cause {
                    BackendError::NotFound => (0, 0, ""),
                    BackendError::Denied(text) => (1, 0, text),
                    BackendError::Busy(text) => (2, 0, text),
                    BackendError::Changed => (3, 0, ""),
                    BackendError::Timeout(after) => (4, after.as_nanos() as u64, ""),
                    BackendError::Lost => (5, 0, ""),
                    BackendError::Other { errno, message } => {
                        (6, errno.map_or(u64::MAX, |errno| errno as u32 as u64), message)
                    }
                };
                let body = Body::new(3).u64(*id).u64(*offset_bytes).u8(kind).u64(number);
                body.string(text.as_bytes())
            }
            ToClient::Stats { id, json } => Body::new(4).u64(*id).string(json),
            ToClient::Refused { can_mend, why } => Body::new(5).u8(u8::from(*can_mend)).string(why),
        }
        .end()
    }

    /// A body that has arrived; `None` if it is malformed.
    pub(crate) fn decode(body: &[u8]) -> Option<Self> {
        let mut from = Fields(body);
        let message = match from.u8()? {
            0 => ToClient::Welcome { frames: from.u32()?, block_bytes: from.u32()? },
            1 => ToClient::Opened {
                id: from.u64()?,
                handle: from.u32()?,
                file: from.u64()?,
                size_bytes: from.u64()?,
                version: from.string()?,
            },
            3 => {
                let (id, offset_bytes, kind, number) =
                    (from.u64()?, from.u64()?, from.u8()?, from.u64()?);
                let text = String::from_utf8_lossy(&from.string()?).into_owned();
                let cause = match kind {
                    0 => BackendError::NotFound,
                    1 => BackendError::Denied(text.into()),
                    2 => BackendError::Busy(text.into()),
                    3 => BackendError::Changed,
                    4 => BackendError::Timeout(Duration::from_nanos(number)),
                    5 => BackendError::Lost,
                    6 => {
                        let errno = (number != u64::MAX).then_some(number as i32);
                        BackendError::Other { errno, message: text.into() }
                    }
                    _ => return None,
                };
                ToClient::Failed { id, offset_bytes, cause }
            }
            4 => ToClient::Stats { id: from.u64()?, json: from.string()? },
            5 => ToClient::Refused { can_mend: from.u8()? != 0, why: from.string()? },
            _ => return None,
        };
        from.end(message)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn to_server() -> Vec<ToServer> {
        let segment = |offset_bytes| Segment { offset_bytes, length_bytes: 7 };
        vec![
            ToServer::Hello { version: VERSION, recipe: b"{}".to_vec() },
            ToServer::Open { id: 1, path: b"a/b\xff".to_vec() },
            ToServer::Read {
                id: 2,
                handle: 3,
                offset_bytes: 1 << 40,
                length_bytes: READ_MAX_BYTES,
            },
            ToServer::Close { handle: u32::MAX },
            ToServer::Hint {
                stream: 4,
                handle: 3,
                is_ordered: true,
                segments: vec![segment(0), segment(9)],
            },
            ToServer::HintFile { stream: 4, handle: 3 },
            ToServer::Cancel { stream: 4 },
            ToServer::EndStream { stream: 4 },
            ToServer::Stats { id: 5 },
            ToServer::Look,
        ]
    }

    fn to_client() -> Vec<ToClient> {
        let failed = |cause| ToClient::Failed { id: 9, offset_bytes: 8, cause };
        vec![
            ToClient::Welcome { frames: 1, block_bytes: 4096 },
            ToClient::Opened {
                id: 1,
                handle: 2,
                file: 3,
                size_bytes: 4,
                version: b"etag".to_vec(),
            },
            failed(BackendError::NotFound),
            failed(BackendError::Denied("no".into())),
            failed(BackendError::Busy("503".into())),
            failed(BackendError::Changed),
            failed(BackendError::Timeout(Duration::from_millis(1500))),
            failed(BackendError::Lost),
            failed(BackendError::Other { errno: Some(5), message: "I/O".into() }),
            failed(BackendError::Other { errno: None, message: "odd".into() }),
            ToClient::Stats { id: 3, json: b"{}".to_vec() },
            ToClient::Refused { can_mend: true, why: b"full".to_vec() },
        ]
    }

    #[test]
    fn messages_arrive_as_they_were_sent() {
        for message in to_server() {
            assert_eq!(ToServer::decode(&message.encode()[4..]), Some(message));
        }
        let data = [ToClient::data_head(7, 300), vec![1; 300]].concat();
        assert_eq!(data.len() - 4, u32::from_ne_bytes(data[..4].try_into().unwrap()) as usize);
        assert_eq!(ToClient::data(&data[4..]), Some((7, &[1; 300][..])));
        assert_eq!(ToClient::data(&data[4..303]), None);
        assert_eq!(ToClient::decode(&data[4..]), None);
        for message in to_client() {
            assert_eq!(ToClient::data(&message.encode()[4..]), None);
            assert_eq!(ToClient::decode(&message.encode()[4..]), Some(message));
        }
    }

    #[test]
    fn what_is_cut_or_too_long_is_malformed() {
        for bytes in to_server().iter().map(ToServer::encode) {
            assert_eq!(
                bytes.len() - 4,
                u32::from_ne_bytes(bytes[..4].try_into().unwrap()) as usize
            );
            for end in 4..bytes.len() {
                assert_eq!(ToServer::decode(&bytes[4..end]), None);
            }
            assert_eq!(ToServer::decode(&[&bytes[4..], &[0]].concat()), None);
        }
        for bytes in to_client().iter().map(ToClient::encode) {
            for end in 4..bytes.len() {
                assert_eq!(ToClient::decode(&bytes[4..end]), None);
            }
        }
        let read = ToServer::Read { id: 1, handle: 1, offset_bytes: 0, length_bytes: 0 };
        assert_eq!(ToServer::decode(&read.encode()[4..]), None);
        let long =
            ToServer::Read { id: 1, handle: 1, offset_bytes: 0, length_bytes: READ_MAX_BYTES + 1 };
        assert_eq!(ToServer::decode(&long.encode()[4..]), None);
    }
}
