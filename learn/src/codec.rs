//! A profile as bytes.
//!
//! ```text
//! "foretell" version:u32 length:u32 crc:u32 payload
//! payload = key name kind:byte folder last runs count step*
//! last = 0 | (1 | 2) expected asked found    (2: the run had stopped it)
//! step = shared_path_bytes path acts at_ms seen weight count part*
//! part = start-of-last-end (signed) length weight
//! ```
//!
//! The fixed numbers are little-endian, the CRC-32 is of the payload. In the payload, numbers have 7 bits a byte, the least
//! ones first; text has its length before it; a weight is a byte, of which 255 is one. Parts are in blocks.
//!
//! [`decode`] checks everything: damaged bytes are an error, never a wrong profile beyond what a CRC lets through, and no count
//! is believed before its bytes are there. Parts of a step are in the order of first use, and no two of them share a block:
//! merging relies on that. [`encode`] leaves out a part that overlaps an earlier one.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::profile::{Kind, Last, Profile, STEPS_MAX, Weighted};
use crate::recorder::{BLOCK_BYTES, BLOCKS_MAX, PARTS_MAX};
use crate::steps::{Acts, Part};

/// What the bytes of a profile begin with.
pub const MAGIC: &[u8; 8] = b"foretell";

/// Raised with every change that an older version would misread.
pub const VERSION: u32 = 3;

/// Bytes before the payload.
const HEADER_BYTES: usize = 20;

/// Bytes of a path or a name: Linux's `PATH_MAX`, and as much for names with all words of a command line.
pub const TEXT_MAX_BYTES: usize = 4096;

/// Bytes of the paths of all steps. A path counts for each of its steps, so this is some times what one run has.
pub const PATHS_MAX_BYTES: usize = 4 * crate::recorder::PATHS_MAX_BYTES;

/// Bytes of a profile.
pub const PROFILE_MAX_BYTES: usize = 32 << 20;

/// Why bytes are no profile.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Damage {
    /// They do not begin as one, or are cut off, or their sum is another.
    Broken,
    /// They were written by another version.
    Version(u32),
    /// Parts of a step share a block, or are empty.
    Overlap,
    /// The paths take more than [`PATHS_MAX_BYTES`].
    Paths,
}

impl std::fmt::Display for Damage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Damage::Broken => f.write_str("it is damaged"),
            Damage::Version(version) => {
                write!(f, "another version of foretell wrote it (format {version}, not {VERSION})")
            }
            Damage::Overlap => f.write_str("it has parts of a file that overlap or are empty"),
            Damage::Paths => {
                write!(f, "its paths take more than {} MiB", PATHS_MAX_BYTES >> 20)
            }
        }
    }
}

/// The bytes of `profile`, which was learned under `key`. What is beyond the bounds that [`decode`] accepts is left out.
pub fn encode(key: &[u8], profile: &Profile) -> Vec<u8> {
    let mut out = Vec::with_capacity(HEADER_BYTES + profile.steps.len() * 32);
    out.resize(HEADER_BYTES, 0);
    put_bytes(&mut out, key);
    let name_bytes = profile.name.floor_char_boundary(TEXT_MAX_BYTES);
    put_bytes(&mut out, &profile.name.as_bytes()[..name_bytes]);
    out.push(profile.kind as u8);
    put_bytes(&mut out, &profile.folder[..profile.folder.len().min(TEXT_MAX_BYTES)]);
    put_last(&mut out, profile.last);
    put(&mut out, profile.runs.into());
    let mut paths_left = PATHS_MAX_BYTES;
    let mut has_room = |step: &&Weighted| match paths_left.checked_sub(step.path.len()) {
        Some(left) => {
            paths_left = left;
            true
        }
        None => false,
    };
    let steps: Vec<_> = profile
        .steps
        .iter()
        .filter(|step| is_path(&step.path))
        .take(STEPS_MAX)
        .take_while(&mut has_room)
        .collect();
    put(&mut out, steps.len() as u64);
    let (mut before, mut parts_left): (&[u8], _) = (b"", PARTS_MAX);
    for step in steps {
        let shared = before.iter().zip(step.path.iter()).take_while(|(a, b)| a == b).count();
        put(&mut out, shared as u64);
        put_bytes(&mut out, &step.path[shared..]);
        before = &step.path;
        out.push(step.acts.bits());
        put(&mut out, step.at_ms.into());
        put(&mut out, step.seen.into());
        out.push(to_byte(step.weight));
        let mut parts = blocks(&step.parts);
        parts.truncate(parts_left);
        parts_left -= parts.len();
        put(&mut out, parts.len() as u64);
        let mut last_end = 0_u64;
        for (start, end, weight) in parts {
            put(&mut out, zigzag(start.wrapping_sub(last_end) as i64));
            put(&mut out, end - start);
            out.push(to_byte(weight));
            last_end = end;
        }
    }
    let (length, crc) = (out.len() - HEADER_BYTES, crc32fast::hash(&out[HEADER_BYTES..]));
    out[..8].copy_from_slice(MAGIC);
    out[8..12].copy_from_slice(&VERSION.to_le_bytes());
    out[12..16].copy_from_slice(&(length as u32).to_le_bytes());
    out[16..20].copy_from_slice(&crc.to_le_bytes());
    out
}

/// The key and the profile in `bytes`.
///
/// # Errors
/// [`Damage`].
pub fn decode(bytes: &[u8]) -> Result<(Vec<u8>, Profile), Damage> {
    let header = bytes.get(..HEADER_BYTES).ok_or(Damage::Broken)?;
    let number = |at: usize| {
        header[at..at + 4].iter().rev().fold(0, |sum, &byte| sum << 8 | u32::from(byte))
    };
    if &header[..8] != MAGIC {
        return Err(Damage::Broken);
    }
    if number(8) != VERSION {
        return Err(Damage::Version(number(8)));
    }
    let payload = &bytes[HEADER_BYTES..];
    if payload.len() != number(12) as usize || crc32fast::hash(payload) != number(16) {
        return Err(Damage::Broken);
    }
    let mut reader = Reader { rest: payload, damage: Damage::Broken };
    reader.profile().filter(|_| reader.rest.is_empty()).ok_or(reader.damage)
}

/// The parts in blocks, without those that are empty or overlap an earlier one.
fn blocks(parts: &[(Part, f32)]) -> Vec<(u64, u64, f32)> {
    let mut taken = Taken::default();
    let blocks = parts.iter().map(|(part, weight)| {
        (part.start / BLOCK_BYTES, part.end.div_ceil(BLOCK_BYTES).min(BLOCKS_MAX), *weight)
    });
    blocks.filter(|&(start, end, _)| taken.add(start, end)).collect()
}

/// Ranges of which no two overlap: their ends by their starts. O(log n) a range.
#[derive(Default)]
struct Taken(BTreeMap<u64, u64>);

impl Taken {
    /// Adds a range; `false` if it is empty or overlaps one.
    fn add(&mut self, start: u64, end: u64) -> bool {
        let before = self.0.range(..end).next_back();
        let is_free = start < end && before.is_none_or(|(_, &before_end)| before_end <= start);
        if is_free {
            self.0.insert(start, end);
        }
        is_free
    }
}

fn is_path(path: &[u8]) -> bool {
    path.starts_with(b"/") && path.len() <= TEXT_MAX_BYTES && !path.contains(&0)
}

fn to_byte(weight: f32) -> u8 {
    (weight.clamp(0.0, 1.0) * 255.0).round() as u8
}

fn zigzag(number: i64) -> u64 {
    ((number << 1) ^ (number >> 63)) as u64
}

fn put(out: &mut Vec<u8>, mut number: u64) {
    while number >= 128 {
        out.push(number as u8 | 128);
        number >>= 7;
    }
    out.push(number as u8);
}

fn put_bytes(out: &mut Vec<u8>, bytes: &[u8]) {
    put(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

fn put_last(out: &mut Vec<u8>, last: Option<Last>) {
    out.push(last.map_or(0, |last| 1 + u8::from(last.has_stopped)));
    if let Some(last) = last {
        for count in [last.expected, last.asked, last.found] {
            put(out, count.into());
        }
        for bytes in [last.ahead_bytes, last.useful_bytes, last.late_bytes, last.wasted_bytes] {
            put(out, bytes);
        }
    }
}

struct Reader<'a> {
    rest: &'a [u8],
    /// What is wrong, once a value is `None`.
    damage: Damage,
}

impl<'a> Reader<'a> {
    fn byte(&mut self) -> Option<u8> {
        let (&byte, rest) = self.rest.split_first()?;
        self.rest = rest;
        Some(byte)
    }

    fn number(&mut self) -> Option<u64> {
        let mut number = 0;
        for shift in (0..64).step_by(7) {
            let byte = self.byte()?;
            number |= u64::from(byte & 127) << shift;
            if byte < 128 {
                return Some(number);
            }
        }
        None
    }

    fn small(&mut self) -> Option<u32> {
        u32::try_from(self.number()?).ok()
    }

    /// A count of things that take a byte at least.
    fn count(&mut self, most: usize) -> Option<usize> {
        let count = usize::try_from(self.number()?).ok()?;
        (count <= most && count <= self.rest.len()).then_some(count)
    }

    fn bytes(&mut self) -> Option<&'a [u8]> {
        let length = self.count(TEXT_MAX_BYTES)?;
        let (bytes, rest) = self.rest.split_at(length);
        self.rest = rest;
        Some(bytes)
    }

    fn weight(&mut self) -> Option<f32> {
        Some(f32::from(self.byte()?) / 255.0)
    }

    fn profile(&mut self) -> Option<(Vec<u8>, Profile)> {
        let key = self.bytes()?.to_vec();
        let name = String::from_utf8(self.bytes()?.to_vec()).ok()?;
        let kinds = [Kind::Exact, Kind::Alike, Kind::Named, Kind::Across];
        let kind = *kinds.get(usize::from(self.byte()?))?;
        let (folder, last) = (self.bytes()?.to_vec(), self.last()?);
        let (runs, count) = (self.small()?, self.count(STEPS_MAX)?);
        let (mut steps, mut parts_left) = (Vec::with_capacity(count), PARTS_MAX);
        let (mut path, mut paths_bytes) = (Vec::new(), 0);
        for _ in 0..count {
            let step = self.step(&mut path, &mut parts_left)?;
            paths_bytes += step.path.len();
            if paths_bytes > PATHS_MAX_BYTES {
                self.damage = Damage::Paths;
                return None;
            }
            steps.push(step);
        }
        Some((key, Profile { name, kind, folder, last, runs, steps }))
    }

    fn last(&mut self) -> Option<Option<Last>> {
        let has_stopped = match self.byte()? {
            0 => return Some(None),
            1 => false,
            2 => true,
            _ => return None,
        };
        let (expected, asked, found) = (self.small()?, self.small()?, self.small()?);
        let (ahead_bytes, useful_bytes) = (self.number()?, self.number()?);
        let (late_bytes, wasted_bytes) = (self.number()?, self.number()?);
        Some(Some(Last {
            expected,
            asked,
            found,
            has_stopped,
            ahead_bytes,
            useful_bytes,
            late_bytes,
            wasted_bytes,
        }))
    }

    fn step(&mut self, path: &mut Vec<u8>, parts_left: &mut usize) -> Option<Weighted> {
        let shared = usize::try_from(self.number()?).ok().filter(|&shared| shared <= path.len())?;
        path.truncate(shared);
        path.extend_from_slice(self.bytes()?);
        let is_path = is_path(path);
        let acts = Acts::from_bits(self.byte()?);
        let (at_ms, seen, weight) = (self.small()?, self.small()?, self.weight()?);
        let count = self.count(*parts_left)?;
        *parts_left -= count;
        let (mut parts, mut last_end) = (Vec::with_capacity(count), 0_u64);
        let mut taken = Taken::default();
        for _ in 0..count {
            let moved = self.number()?;
            let start = last_end.checked_add_signed((moved >> 1) as i64 ^ -((moved & 1) as i64))?;
            let end = start.checked_add(self.number()?)?;
            let (first, last) = (start.checked_mul(BLOCK_BYTES)?, end.checked_mul(BLOCK_BYTES)?);
            if !taken.add(start, end) {
                self.damage = Damage::Overlap;
                return None;
            }
            parts.push((Part { start: first, end: last }, self.weight()?));
            last_end = end;
        }
        let path: Arc<[u8]> = path.as_slice().into();
        is_path.then_some(Weighted { path, acts, at_ms, seen, weight, parts })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn profile() -> impl Strategy<Value = Profile> {
        // In any order; each in a region of its own, so that none overlap.
        let part = (0_u64..64, 0_u64..1 << 30, 1_u64..1 << 30, any::<u8>()).prop_map(
            |(region, start, blocks, weight)| {
                let start = (region << 32) + start;
                let part = Part { start: start * BLOCK_BYTES, end: (start + blocks) * BLOCK_BYTES };
                (part, f32::from(weight) / 255.0)
            },
        );
        let parts = prop::collection::vec(part, 0..6).prop_map(|mut parts| {
            let mut regions = std::collections::HashSet::new();
            parts.retain(|(part, _)| regions.insert((part.start / BLOCK_BYTES) >> 32));
            parts
        });
        let step =
            ("(/[a-c]{1,3}){1,4}", 0_u8..128, any::<u32>(), any::<u32>(), any::<u8>(), parts);
        let step = step.prop_map(|(path, acts, at_ms, seen, weight, parts)| Weighted {
            path: path.as_bytes().into(),
            acts: Acts::from_bits(acts),
            at_ms,
            seen,
            weight: f32::from(weight) / 255.0,
            parts,
        });
        let kind = prop::sample::select(vec![Kind::Exact, Kind::Alike, Kind::Named, Kind::Across]);
        let last = any::<(u32, u32, u32, bool, [u64; 4])>().prop_map(
            |(expected, asked, found, has_stopped, bytes)| {
                let [ahead_bytes, useful_bytes, late_bytes, wasted_bytes] = bytes;
                Last {
                    expected,
                    asked,
                    found,
                    has_stopped,
                    ahead_bytes,
                    useful_bytes,
                    late_bytes,
                    wasted_bytes,
                }
            },
        );
        let about = (".{0,40}", kind, "(/[a-c]{1,3}){0,2}", prop::option::of(last), any::<u32>());
        (about, prop::collection::vec(step, 0..20)).prop_map(|(about, steps)| {
            let (name, kind, folder, last, runs) = about;
            Profile { name, kind, folder: folder.into_bytes(), last, runs, steps }
        })
    }

    proptest! {
        #[test]
        fn what_is_written_is_read(profile in profile(), key in prop::collection::vec(any::<u8>(), 0..40)) {
            let bytes = encode(&key, &profile);
            prop_assert_eq!(decode(&bytes), Ok((key, profile)));
        }

        #[test]
        fn damage_is_found(profile in profile(), at in any::<prop::sample::Index>(), bit in 0_u8..8, cut in any::<bool>()) {
            let mut bytes = encode(b"key", &profile);
            let at = at.index(bytes.len());
            if cut { bytes.truncate(at) } else { bytes[at] ^= 1_u8 << bit }
            prop_assert!(decode(&bytes).is_err());
        }

        #[test]
        fn bytes_with_a_right_sum_may_be_anything(payload in prop::collection::vec(any::<u8>(), 0..200)) {
            let mut bytes = MAGIC.to_vec();
            bytes.extend(VERSION.to_le_bytes());
            bytes.extend((payload.len() as u32).to_le_bytes());
            bytes.extend(crc32fast::hash(&payload).to_le_bytes());
            bytes.extend(payload);
            let _ = decode(&bytes);
        }
    }

    #[test]
    fn what_is_beyond_the_bounds_is_left_out() {
        let step = |path: String, parts: usize| {
            let part = |at| Part { start: at * BLOCK_BYTES, end: (at + 1) * BLOCK_BYTES };
            let parts = (0..parts as u64).map(|at| (part(at), 1.0)).collect();
            Weighted {
                path: path.as_bytes().into(),
                acts: Acts::OPEN,
                at_ms: 0,
                seen: 1,
                weight: 1.0,
                parts,
            }
        };
        let mut profile = Profile::new("ä".repeat(TEXT_MAX_BYTES));
        profile.folder = vec![b'/'; 2 * TEXT_MAX_BYTES];
        let long = "/".repeat(TEXT_MAX_BYTES + 1);
        profile.steps =
            vec![step(long, 0), step("no path".into(), 0), step("/a".into(), PARTS_MAX - 1)];
        profile.steps.extend((0..STEPS_MAX).map(|at| step(format!("/{at}"), 2)));
        let (_, kept) = decode(&encode(b"key", &profile)).expect("whole");
        assert_eq!(
            (kept.steps.len(), kept.name.len(), kept.folder.len()),
            (STEPS_MAX, TEXT_MAX_BYTES, TEXT_MAX_BYTES)
        );
        assert_eq!(kept.steps.iter().map(|step| step.parts.len()).sum::<usize>(), PARTS_MAX);
    }

    /// An encoded step of `/a` that has these parts. A part is its distance from the end of the part before it (negative:
    /// backwards) and its length, both in blocks.
    fn step_of_parts(parts: &[(i64, u64)]) -> Vec<u8> {
        let mut out = vec![0];
        put_bytes(&mut out, b"/a");
        out.extend([Acts::READ.bits(), 0, 1, 255]);
        put(&mut out, parts.len() as u64);
        for &(moved, length) in parts {
            put(&mut out, zigzag(moved));
            put(&mut out, length);
            out.push(255);
        }
        out
    }

    fn read_by_hand(step: &[u8]) -> Result<Weighted, Damage> {
        let mut reader = Reader { rest: step, damage: Damage::Broken };
        let read = reader.step(&mut Vec::new(), &mut PARTS_MAX.clone());
        read.ok_or(reader.damage)
    }

    #[test]
    fn parts_that_overlap_are_refused_and_those_in_another_order_are_not() {
        let in_any_order = read_by_hand(&step_of_parts(&[(10, 5), (-15, 10), (5, 1)]));
        assert_eq!(in_any_order.expect("disjoint").parts.len(), 3);
        for parts in [&[(0, 10), (-1, 5)][..], &[(5, 2), (-7, 10)], &[(3, 0)], &[(0, 9), (-5, 1)]] {
            assert_eq!(read_by_hand(&step_of_parts(parts)), Err(Damage::Overlap), "{parts:?}");
        }
        let many: Vec<_> = (0..PARTS_MAX).map(|at| (-i64::from(at > 0), 1)).collect();
        assert_eq!(read_by_hand(&step_of_parts(&many)), Err(Damage::Overlap));
    }

    #[test]
    fn parts_that_overlap_are_not_written() {
        let part = |start, end| (Part { start: start * BLOCK_BYTES, end: end * BLOCK_BYTES }, 1.0);
        let parts = vec![part(0, 10), part(5, 6), part(10, 11), part(20, 20), part(8, 30)];
        let mut step = read_by_hand(&step_of_parts(&[])).expect("a step");
        step.parts = parts;
        let profile = Profile { steps: vec![step], ..Profile::default() };
        let (_, kept) = decode(&encode(b"key", &profile)).expect("whole");
        assert_eq!(kept.steps[0].parts, [part(0, 10), part(10, 11)]);
    }

    #[test]
    fn paths_are_bounded_in_all() {
        let step = read_by_hand(&step_of_parts(&[])).expect("a step");
        let long: Arc<[u8]> = vec![b'/'; TEXT_MAX_BYTES].into();
        let most = PATHS_MAX_BYTES / TEXT_MAX_BYTES;
        let steps = vec![Weighted { path: long, ..step }; most + 1];
        let mut bytes = encode(b"key", &Profile { steps, ..Profile::default() });
        assert_eq!(decode(&bytes).expect("whole").1.steps.len(), most);
        // One more step, written by hand. It takes its whole path from the step before.
        let count = bytes.windows(2).position(|two| two == [128, 64]).expect("the count");
        bytes[count] += 1;
        let mut more = Vec::new();
        put(&mut more, TEXT_MAX_BYTES as u64);
        bytes.extend([&more[..], &[0, Acts::READ.bits(), 0, 1, 255, 0]].concat());
        let (length, crc) = (bytes.len() - HEADER_BYTES, crc32fast::hash(&bytes[HEADER_BYTES..]));
        bytes[12..16].copy_from_slice(&(length as u32).to_le_bytes());
        bytes[16..20].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(decode(&bytes), Err(Damage::Paths));
        assert!(Damage::Paths.to_string().contains("32 MiB"));
    }

    #[test]
    fn another_version_is_called_that() {
        let mut bytes = encode(b"key", &Profile::default());
        bytes[8] = 9;
        assert_eq!(decode(&bytes), Err(Damage::Version(9)));
    }
}
