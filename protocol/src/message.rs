//! Control messages: one packet, one message.
//!
//! Decides what a well-formed message is. Everything is checked before use: the packet's length
//! against the header's, counts against the bytes that are there, paths for being absolute and free
//! of NUL, segments for overflow. Encoding and decoding never panic and never read past the packet.
//!
//! Not here: sending and receiving (`socket`, `client`); whether a path exists or a segment lies
//! inside its file (the manager, when it resolves the hint).

use std::ffi::OsStr;
use std::io;
use std::mem::{offset_of, size_of};
use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use crate::layout::{self, RawCancel, RawHello, RawHint, RawMessageHeader, RawRequest, RawSegment};

/// A part of a file that will be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Segment {
    /// Where it begins.
    pub offset_bytes: u64,
    /// How long it is; at least 1.
    pub length_bytes: u64,
}

/// The part of a file that a hint is about.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// From the first byte to the last. The length is that of the file when it is prefetched.
    WholeFile,
    /// These parts, in this order; at least one.
    Segments(Vec<Segment>),
    /// Parts of the same length at equal distances.
    Strided {
        /// The first.
        first: Segment,
        /// Bytes from the beginning of one part to that of the next.
        stride_bytes: u64,
        /// How many; at least 1.
        count: u64,
    },
}

/// A disclosure: a file, its parts, and how often they are read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Hint {
    /// [`layout::STREAM_EXTERNAL`], or a number of the sender's own choice that ends with its
    /// connection.
    pub stream: u64,
    /// Absolute.
    pub path: PathBuf,
    /// Which part.
    pub extent: Extent,
    /// How often in a row; at least 1.
    pub repeat: u32,
    /// Whether the parts may be read in any order. A hint that needs several packets becomes several such sets, in order.
    pub any_order: bool,
}

/// A program introduces itself and hands its ring over.
#[derive(Debug)]
pub struct Hello {
    /// The ring's memory, to be given to [`crate::RingReader::map`].
    pub ring: OwnedFd,
    /// The process as the program sees it. [`crate::Connection::peer_pid`] is the number that the kernel gives.
    pub pid: u32,
    /// The process's parent, as the program sees it.
    pub ppid: u32,
    /// The command name, at most 15 bytes.
    pub comm: String,
    /// The program's argv\[0\], cut to what fits.
    pub argv0: String,
    /// Whether it was sent at the start of a program. If not, a forked child sent it.
    pub begins_program: bool,
}

/// A message of a connection.
#[derive(Debug)]
pub enum Message {
    /// A program begins.
    Hello(Hello),
    /// A disclosure.
    Hint(Hint),
    /// The hints of this stream that are not read yet are void.
    Cancel {
        /// The stream.
        stream: u64,
    },
    /// Hints of this stream are fetched in requests of at most so many bytes, from now on.
    Request {
        /// The stream.
        stream: u64,
        /// Most bytes of a request.
        bytes: u64,
    },
    /// The peer closed: its own streams end. A program closes right after HELLO, so this does *not*
    /// mean that the program ended.
    End,
}

/// Why a message could not be read. The connection should be dropped.
#[derive(Debug, thiserror::Error)]
pub enum ProtocolError {
    /// The socket failed.
    #[error("control socket: {0}")]
    Io(#[from] io::Error),
    /// The packet's length is not what its header or its counts say.
    #[error("message has {actual_bytes} bytes, but {expected_bytes} were announced")]
    Length {
        /// Bytes in the packet.
        actual_bytes: usize,
        /// Bytes that its header and counts call for.
        expected_bytes: usize,
    },
    /// No such kind of message.
    #[error("unknown message kind {0}")]
    Kind(u32),
    /// The peer was built for another version of the protocol.
    #[error("peer speaks protocol version {0}, this manager speaks {ours}", ours = layout::PROTOCOL_VERSION)]
    Version(u32),
    /// A HELLO without exactly one descriptor.
    #[error("hello without a ring")]
    NoRing,
    /// A hint's path is empty, relative, too long or holds a NUL byte.
    #[error("hint path is not a plain absolute path")]
    Path,
    /// A hint's segments are absent, empty or beyond any file; or its repeat count is 0.
    #[error("hint segments are empty or out of range")]
    Segments,
    /// A hint has flags that are not known.
    #[error("unknown hint flags {0:#x}")]
    Flags(u32),
}

impl Message {
    /// Reads one packet. `ring` is the descriptor that came with it, if any.
    ///
    /// # Errors
    /// Any [`ProtocolError`] except `Io`.
    pub fn decode(packet: &[u8], ring: Option<OwnedFd>) -> Result<Self, ProtocolError> {
        if packet.is_empty() {
            return Ok(Self::End);
        }
        let header = size_of::<RawMessageHeader>();
        if packet.len() < header {
            return Err(length(packet, header));
        }
        let total = u32_at(packet, offset_of!(RawMessageHeader, total_bytes)) as usize;
        if total != packet.len() {
            return Err(length(packet, total));
        }
        match u32_at(packet, offset_of!(RawMessageHeader, kind)) {
            layout::MESSAGE_HELLO => decode_hello(packet, ring),
            layout::MESSAGE_HINT => decode_hint(packet).map(Self::Hint),
            layout::MESSAGE_CANCEL => {
                exactly(packet, size_of::<RawCancel>())?;
                Ok(Self::Cancel { stream: u64_at(packet, offset_of!(RawCancel, stream)) })
            }
            layout::MESSAGE_REQUEST => {
                exactly(packet, size_of::<RawRequest>())?;
                let field = |offset| u64_at(packet, offset);
                let stream = field(offset_of!(RawRequest, stream));
                Ok(Self::Request { stream, bytes: field(offset_of!(RawRequest, bytes)) })
            }
            kind => Err(ProtocolError::Kind(kind)),
        }
    }
}

impl Hint {
    /// The packets that carry this hint: one, or several when the segments do not fit into one.
    ///
    /// A repeat count covers one packet. So a repeated list of segments that needs several packets is written out once for each
    /// repetition.
    ///
    /// # Errors
    /// [`ProtocolError::Path`] and [`ProtocolError::Segments`], by the receiver's rules.
    pub fn encode(&self) -> Result<Vec<Vec<u8>>, ProtocolError> {
        check_path(self.path.as_os_str().as_bytes())?;
        if self.repeat == 0 {
            return Err(ProtocolError::Segments);
        }
        let order = if self.any_order { layout::HINT_ANY_ORDER } else { 0 };
        let segments = match &self.extent {
            Extent::WholeFile => {
                return Ok(vec![self.packet(layout::HINT_WHOLE_FILE | order, &[], self.repeat)]);
            }
            &Extent::Strided { first, stride_bytes, count } => {
                let stride = Segment { offset_bytes: stride_bytes, length_bytes: count };
                if !first.is_valid() || !stride.is_valid() {
                    return Err(ProtocolError::Segments);
                }
                let packet =
                    self.packet(layout::HINT_STRIDED | order, &[first, stride], self.repeat);
                return Ok(vec![packet]);
            }
            Extent::Segments(segments) => segments.as_slice(),
        };
        if segments.is_empty() || !segments.iter().all(|segment| segment.is_valid()) {
            return Err(ProtocolError::Segments);
        }
        let room = layout::MESSAGE_MAX_BYTES as usize
            - size_of::<RawHint>()
            - self.path.as_os_str().as_bytes().len();
        let per_packet = room / size_of::<RawSegment>();
        if segments.len() <= per_packet {
            return Ok(vec![self.packet(order, segments, self.repeat)]);
        }
        let once: Vec<Vec<u8>> =
            segments.chunks(per_packet).map(|part| self.packet(order, part, 1)).collect();
        Ok((0..self.repeat).flat_map(|_| once.iter().cloned()).collect())
    }

    fn packet(&self, flags: u32, segments: &[Segment], repeat: u32) -> Vec<u8> {
        let path = self.path.as_os_str().as_bytes();
        let total = size_of::<RawHint>() + segments.len() * size_of::<RawSegment>() + path.len();
        let mut packet = Vec::with_capacity(total);
        packet.extend_from_slice(&layout::MESSAGE_HINT.to_ne_bytes());
        packet.extend_from_slice(&count(total).to_ne_bytes());
        packet.extend_from_slice(&self.stream.to_ne_bytes());
        packet.extend_from_slice(&flags.to_ne_bytes());
        packet.extend_from_slice(&repeat.to_ne_bytes());
        packet.extend_from_slice(&count(path.len()).to_ne_bytes());
        packet.extend_from_slice(&count(segments.len()).to_ne_bytes());
        for segment in segments {
            packet.extend_from_slice(&segment.offset_bytes.to_ne_bytes());
            packet.extend_from_slice(&segment.length_bytes.to_ne_bytes());
        }
        packet.extend_from_slice(path);
        packet
    }
}

impl Segment {
    /// Not empty, and addressable by a file offset.
    fn is_valid(self) -> bool {
        let end = self.offset_bytes.checked_add(self.length_bytes);
        self.length_bytes > 0 && end.is_some_and(|end| i64::try_from(end).is_ok())
    }
}

/// The packet that cancels a stream.
pub(crate) fn encode_cancel(stream: u64) -> Vec<u8> {
    let mut packet = Vec::with_capacity(size_of::<RawCancel>());
    packet.extend_from_slice(&layout::MESSAGE_CANCEL.to_ne_bytes());
    packet.extend_from_slice(&count(size_of::<RawCancel>()).to_ne_bytes());
    packet.extend_from_slice(&stream.to_ne_bytes());
    packet
}

fn decode_hello(packet: &[u8], ring: Option<OwnedFd>) -> Result<Message, ProtocolError> {
    let fixed = size_of::<RawHello>();
    if packet.len() < fixed {
        return Err(length(packet, fixed));
    }
    let version = u32_at(packet, offset_of!(RawHello, version));
    if version != layout::PROTOCOL_VERSION {
        return Err(ProtocolError::Version(version));
    }
    let argv0_bytes = u32_at(packet, offset_of!(RawHello, argv0_bytes)) as usize;
    exactly(packet, fixed.saturating_add(argv0_bytes))?;
    let comm = &packet[offset_of!(RawHello, comm)..offset_of!(RawHello, flags)];
    let flags = u32_at(packet, offset_of!(RawHello, flags));
    let comm = comm.split(|&byte| byte == 0).next().unwrap_or_default();
    Ok(Message::Hello(Hello {
        ring: ring.ok_or(ProtocolError::NoRing)?,
        pid: u32_at(packet, offset_of!(RawHello, pid)),
        ppid: u32_at(packet, offset_of!(RawHello, ppid)),
        comm: String::from_utf8_lossy(comm).into_owned(),
        argv0: String::from_utf8_lossy(&packet[fixed..]).into_owned(),
        begins_program: flags & layout::HELLO_PROGRAM != 0,
    }))
}

fn decode_hint(packet: &[u8]) -> Result<Hint, ProtocolError> {
    let fixed = size_of::<RawHint>();
    if packet.len() < fixed {
        return Err(length(packet, fixed));
    }
    let path_bytes = u32_at(packet, offset_of!(RawHint, path_bytes)) as usize;
    let segment_count = u32_at(packet, offset_of!(RawHint, segment_count)) as usize;
    let segments_end = segment_count.saturating_mul(size_of::<RawSegment>()).saturating_add(fixed);
    exactly(packet, segments_end.saturating_add(path_bytes))?;
    let path = &packet[segments_end..];
    check_path(path)?;
    let repeat = u32_at(packet, offset_of!(RawHint, repeat));
    let flags = u32_at(packet, offset_of!(RawHint, flags));
    let known = layout::HINT_WHOLE_FILE | layout::HINT_ANY_ORDER | layout::HINT_STRIDED;
    if flags & !known != 0 {
        return Err(ProtocolError::Flags(flags & !known));
    }
    let whole_file = flags & layout::HINT_WHOLE_FILE != 0;
    let strided = flags & layout::HINT_STRIDED != 0;
    if repeat == 0 || whole_file != (segment_count == 0) || (strided && segment_count != 2) {
        return Err(ProtocolError::Segments);
    }
    let segments: Vec<Segment> = packet[fixed..segments_end]
        .chunks_exact(size_of::<RawSegment>())
        .map(|raw| Segment {
            offset_bytes: u64_at(raw, offset_of!(RawSegment, offset_bytes)),
            length_bytes: u64_at(raw, offset_of!(RawSegment, length_bytes)),
        })
        .collect();
    if !segments.iter().all(|segment| segment.is_valid()) {
        return Err(ProtocolError::Segments);
    }
    let extent = match segments[..] {
        [] => Extent::WholeFile,
        [first, stride] if strided => {
            let (stride_bytes, count) = (stride.offset_bytes, stride.length_bytes);
            Extent::Strided { first, stride_bytes, count }
        }
        _ => Extent::Segments(segments),
    };
    Ok(Hint {
        stream: u64_at(packet, offset_of!(RawHint, stream)),
        path: Path::new(OsStr::from_bytes(path)).to_path_buf(),
        extent,
        repeat,
        any_order: flags & layout::HINT_ANY_ORDER != 0,
    })
}

fn check_path(path: &[u8]) -> Result<(), ProtocolError> {
    let plain = path.first() == Some(&b'/')
        && path.len() <= layout::PATH_MAX_BYTES as usize
        && !path.contains(&0);
    plain.then_some(()).ok_or(ProtocolError::Path)
}

fn exactly(packet: &[u8], expected_bytes: usize) -> Result<(), ProtocolError> {
    if packet.len() == expected_bytes { Ok(()) } else { Err(length(packet, expected_bytes)) }
}

fn length(packet: &[u8], expected_bytes: usize) -> ProtocolError {
    ProtocolError::Length { actual_bytes: packet.len(), expected_bytes }
}

/// A count that a packet's size bounds far below 2³².
fn count(value: usize) -> u32 {
    u32::try_from(value).expect("a packet is at most 64 KiB")
}

fn u32_at(bytes: &[u8], offset: usize) -> u32 {
    let mut raw = [0; 4];
    raw.copy_from_slice(&bytes[offset..offset + 4]);
    u32::from_ne_bytes(raw)
}

fn u64_at(bytes: &[u8], offset: usize) -> u64 {
    let mut raw = [0; 8];
    raw.copy_from_slice(&bytes[offset..offset + 8]);
    u64::from_ne_bytes(raw)
}
