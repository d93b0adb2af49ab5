//! Hints by ioctl on a mount: the bytes of `include/foretell_ioctl.h`.
//!
//! A program's bytes are checked as a whole before any of them is used.

use crate::message::Segment;

/// A request by ioctl.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Ioctl {
    /// Reads to come.
    Hint(IoctlHint),
    /// Hints given on this descriptor and not read yet are void.
    Cancel,
}

/// Reads to come of one file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IoctlHint {
    /// The file's path below the mount point; empty on the file's own descriptor.
    pub path: Vec<u8>,
    /// The parts, in the order of reading; empty for the whole file.
    pub segments: Vec<Segment>,
    /// Whether the parts may be read in any order.
    pub any_order: bool,
}

/// Why an ioctl is refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum IoctlError {
    /// The ioctl is not a request of foretell.
    #[error("an unknown request")]
    Unknown,
    /// The request's bytes are inconsistent.
    #[error("a malformed request")]
    Malformed,
}

const TYPE: u32 = 0xF7;
const HINT: u32 = 1;
const CANCEL: u32 = 2;
const ANY_ORDER: u32 = 1;

/// The most bytes of one ioctl.
pub const IOCTL_MAX_BYTES: usize = (1 << 14) - 1;
const HEAD_BYTES: usize = 16;
const SEGMENT_BYTES: usize = 16;

/// Largest end of a segment: no file is longer.
const OFFSET_MAX: u64 = i64::MAX as u64;

impl Ioctl {
    /// The request with number `command` and the bytes that came with it.
    ///
    /// # Errors
    /// [`IoctlError`], if the number is not one of foretell's or the bytes are malformed.
    pub fn decode(command: u32, bytes: &[u8]) -> Result<Self, IoctlError> {
        // As in <asm-generic/ioctl.h>: number 8, type 8, size 14, direction 2.
        let (number, kind) = (command & 0xff, command >> 8 & 0xff);
        let (size, direction) = ((command >> 16 & 0x3fff) as usize, command >> 30);
        match (kind, number, direction) {
            (TYPE, CANCEL, 0) => Ok(Ioctl::Cancel),
            (TYPE, HINT, 1) if size == bytes.len() => Ok(Ioctl::Hint(hint(bytes)?)),
            (TYPE, HINT, _) => Err(IoctlError::Malformed),
            _ => Err(IoctlError::Unknown),
        }
    }

    /// The request number and its bytes; `None` if they do not fit into one ioctl.
    pub fn encode(&self) -> Option<(u32, Vec<u8>)> {
        let Ioctl::Hint(hint) = self else { return Some((TYPE << 8 | CANCEL, Vec::new())) };
        let flags = if hint.any_order { ANY_ORDER } else { 0 };
        let words = [hint.segments.len() as u32, flags, hint.path.len() as u32, 0];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        for segment in &hint.segments {
            bytes.extend(segment.offset_bytes.to_ne_bytes());
            bytes.extend(segment.length_bytes.to_ne_bytes());
        }
        bytes.extend(&hint.path);
        let command = 1 << 30 | (bytes.len() as u32) << 16 | TYPE << 8 | HINT;
        (bytes.len() <= IOCTL_MAX_BYTES).then_some((command, bytes))
    }
}

fn hint(bytes: &[u8]) -> Result<IoctlHint, IoctlError> {
    let (head, rest) = bytes.split_at_checked(HEAD_BYTES).ok_or(IoctlError::Malformed)?;
    let word = |index: usize| {
        let bytes = head[index * 4..index * 4 + 4].try_into().expect("four bytes");
        u32::from_ne_bytes(bytes)
    };
    let (count, flags) = (word(0) as usize, word(1));
    let (path_bytes, reserved) = (word(2) as usize, word(3));
    let in_segments = count.checked_mul(SEGMENT_BYTES).ok_or(IoctlError::Malformed)?;
    let (segments, path) = rest.split_at_checked(in_segments).ok_or(IoctlError::Malformed)?;
    if path.len() != path_bytes || path.contains(&0) || flags & !ANY_ORDER != 0 || reserved != 0 {
        return Err(IoctlError::Malformed);
    }
    let segments = segments.chunks_exact(SEGMENT_BYTES).map(|segment| {
        let number = |bytes: &[u8]| u64::from_ne_bytes(bytes.try_into().expect("eight bytes"));
        let (offset_bytes, length_bytes) = (number(&segment[..8]), number(&segment[8..]));
        let end = offset_bytes.checked_add(length_bytes).filter(|&end| end <= OFFSET_MAX);
        match length_bytes > 0 && end.is_some() {
            true => Ok(Segment { offset_bytes, length_bytes }),
            false => Err(IoctlError::Malformed),
        }
    });
    Ok(IoctlHint {
        path: path.to_vec(),
        segments: segments.collect::<Result<_, _>>()?,
        any_order: flags & ANY_ORDER != 0,
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn encoded(segments: &[(u64, u64)], flags: u32, path: &[u8]) -> (u32, Vec<u8>) {
        let words = [segments.len() as u32, flags, path.len() as u32, 0];
        let mut bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        for (offset, length) in segments {
            bytes.extend(offset.to_ne_bytes());
            bytes.extend(length.to_ne_bytes());
        }
        bytes.extend(path);
        (1 << 30 | (bytes.len() as u32) << 16 | 0xF7 << 8 | 1, bytes)
    }

    #[test]
    fn what_was_encoded_is_decoded() {
        let (command, bytes) = encoded(&[(0, 1), (1 << 40, 77)], 1, b"dir/file");
        let Ok(Ioctl::Hint(hint)) = Ioctl::decode(command, &bytes) else { panic!("a hint") };
        assert_eq!(hint.path, b"dir/file");
        assert_eq!(hint.segments[1], Segment { offset_bytes: 1 << 40, length_bytes: 77 });
        assert!(hint.any_order);
        assert_eq!(Ioctl::decode(0xF702, &[]), Ok(Ioctl::Cancel));
        assert_eq!(Ioctl::decode(0x5401, &[]), Err(IoctlError::Unknown));
    }

    #[test]
    fn both_ways_are_one() {
        let segment = Segment { offset_bytes: 3, length_bytes: 1 << 40 };
        let hint = |segments| IoctlHint { path: b"a/b".to_vec(), segments, any_order: true };
        for ioctl in [Ioctl::Cancel, Ioctl::Hint(hint(vec![])), Ioctl::Hint(hint(vec![segment; 9]))]
        {
            let (command, bytes) = ioctl.encode().expect("it fits");
            assert_eq!(Ioctl::decode(command, &bytes), Ok(ioctl));
        }
        assert!(Ioctl::Hint(hint(vec![segment; 1023])).encode().is_none(), "too many");
    }

    #[test]
    fn malformed_requests_are_refused() {
        let refused = |(command, bytes): (u32, Vec<u8>)| {
            assert_eq!(Ioctl::decode(command, &bytes), Err(IoctlError::Malformed), "{bytes:?}");
        };
        refused(encoded(&[(0, 0)], 0, b""));
        refused(encoded(&[(u64::MAX, 2)], 0, b""));
        refused(encoded(&[(0, 1 << 63)], 0, b""));
        refused(encoded(&[], 2, b""));
        refused(encoded(&[], 0, b"a\0b"));
        let (command, mut bytes) = encoded(&[(0, 1)], 0, b"path");
        bytes.pop();
        refused((command, bytes.clone()));
        bytes.extend([1, 2]);
        refused((command + (1 << 16), bytes));
        // No bytes make it panic.
        let mut word = 1u64;
        for length in (0..200).chain([IOCTL_MAX_BYTES]) {
            let bytes: Vec<u8> = (0..length)
                .map(|_| {
                    word = word.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                    (word >> 40) as u8 & (word >> 50) as u8 & 3
                })
                .collect();
            let _ = Ioctl::decode(1 << 30 | (length as u32) << 16 | 0xF7 << 8 | 1, &bytes);
        }
    }
}
