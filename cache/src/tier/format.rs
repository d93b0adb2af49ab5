//! The format of the files on disk.
//!
//! `foretell-tier.data` is an array of *slots* of one block each. `foretell-tier.index` has a header and then an
//! *entry* of 16 bytes for each slot: the block's key and its check.
//!
//! ```text
//! header  magic 8 | version u32 | unused u32 | block bytes u64 | seed u64 | check of these u64   (then up to 4096: zeros)
//! entry   key u64 | check u64                          all little endian; a key of 0 is no block
//! ```
//!
//! A [`FileKey`] is a hash of what identifies a version of a file: address of the store, path, version, size. A block's
//! *key* is a 64-bit hash of file key and index. Its *check* is a hash of its bytes, seeded by file key, index and
//! length.
//!
//! So a block is served only if slot, entry and bytes belong together and to the version that was opened. An entry
//! without its data, data without its entry, a half of either, or two blocks with one key fail the check and count as
//! absent. So writes need no order, and nothing is ever synced.
//!
//! The hash is XXH3, which does not resist an attacker who searches for collisions. So each index has a random seed,
//! and users who can write to the folder are trusted.

use std::hash::{BuildHasher, RandomState};

use xxhash_rust::xxh3::{xxh3_64, xxh3_64_with_seed, xxh3_128_with_seed};

/// Bytes before the first entry.
pub(crate) const HEADER_BYTES: usize = 4096;
/// Bytes of an entry.
pub(crate) const ENTRY_BYTES: usize = 16;

const MAGIC: [u8; 8] = *b"ftl-tier";
const VERSION: u32 = 1;
/// Bytes of the header that its check covers.
const CHECKED: usize = 32;

/// The header of an index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) block_bytes: u64,
    pub(crate) seed: u64,
}

impl Header {
    /// A header with a random seed.
    pub(crate) fn new(block_bytes: u64) -> Self {
        // `RandomState` takes its keys from the system's random numbers.
        Header { block_bytes, seed: RandomState::new().hash_one(block_bytes) }
    }

    pub(crate) fn to_bytes(self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(HEADER_BYTES);
        bytes.extend(MAGIC);
        bytes.extend(VERSION.to_le_bytes());
        bytes.extend([0; 4]);
        bytes.extend(self.block_bytes.to_le_bytes());
        bytes.extend(self.seed.to_le_bytes());
        bytes.extend(xxh3_64(&bytes).to_le_bytes());
        bytes.resize(HEADER_BYTES, 0);
        bytes
    }

    /// `None` if the header is of another version or damaged.
    pub(crate) fn from_bytes(bytes: &[u8]) -> Option<Self> {
        let checked = bytes.get(..CHECKED)?;
        let word = |at: usize| Some(u64::from_le_bytes(bytes.get(at..at + 8)?.try_into().ok()?));
        let is_known = checked.starts_with(&MAGIC) && word(8)? == u64::from(VERSION);
        let header = Header { block_bytes: word(16)?, seed: word(24)? };
        (is_known && word(CHECKED)? == xxh3_64(checked)).then_some(header)
    }
}

/// The key of a block; never 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct Key(u64);

impl Key {
    pub(crate) fn bits(self) -> u64 {
        self.0
    }
}

/// The entry of a slot: the key and check of its block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Entry {
    pub(crate) key: Key,
    pub(crate) check: u64,
}

impl Entry {
    pub(crate) fn to_bytes(self) -> [u8; ENTRY_BYTES] {
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..8].copy_from_slice(&self.key.0.to_le_bytes());
        bytes[8..].copy_from_slice(&self.check.to_le_bytes());
        bytes
    }

    /// `None` if the slot has no block.
    pub(crate) fn from_bytes(bytes: [u8; ENTRY_BYTES]) -> Option<Self> {
        let [key, check] = [0, 8].map(|at| {
            let word: [u8; 8] = std::array::from_fn(|byte| bytes[at + byte]);
            u64::from_le_bytes(word)
        });
        (key != 0).then_some(Entry { key: Key(key), check })
    }
}

/// Identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct FileKey([u8; 16]);

impl FileKey {
    pub(crate) fn new(
        seed: u64,
        address: &str,
        path: &str,
        version: &[u8],
        size_bytes: u64,
    ) -> Self {
        let mut bytes = Vec::new();
        for part in [address.as_bytes(), path.as_bytes(), version] {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part);
        }
        bytes.extend(size_bytes.to_le_bytes());
        FileKey(xxh3_128_with_seed(&bytes, seed).to_le_bytes())
    }

    fn with(&self, words: &[u64]) -> Vec<u8> {
        let words = words.iter().flat_map(|word| word.to_le_bytes());
        self.0.into_iter().chain(words).collect()
    }

    /// The key of the block at `index`.
    pub(crate) fn block(&self, index: u64) -> Key {
        let mut bytes = [0; 24];
        bytes[..16].copy_from_slice(&self.0);
        bytes[16..].copy_from_slice(&index.to_le_bytes());
        Key(xxh3_64(&bytes).max(1))
    }

    /// The check of the block at `index` if it has these bytes.
    pub(crate) fn check(&self, index: u64, bytes: &[u8]) -> u64 {
        let seed = xxh3_64(&self.with(&[index, bytes.len() as u64]));
        xxh3_64_with_seed(bytes, seed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_header_is_read_back_and_any_flipped_bit_is_seen() {
        let header = Header::new(8192);
        let bytes = header.to_bytes();
        assert_eq!((bytes.len(), Header::from_bytes(&bytes)), (HEADER_BYTES, Some(header)));
        for bit in 0..(CHECKED + 8) * 8 {
            let mut flipped = bytes.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            assert_eq!(Header::from_bytes(&flipped), None, "bit {bit}");
        }
        assert_eq!(Header::from_bytes(&bytes[..CHECKED]), None);
        assert_ne!(Header::new(8192).seed, header.seed);
    }

    #[test]
    fn keys_tell_all_that_makes_a_version_and_checks_all_that_makes_a_block() {
        let of =
            |address, path, version: &[u8], size| FileKey::new(1, address, path, version, size);
        let file = of("s3://b", "path", b"1", 100);
        for other in [
            of("s3://c", "path", b"1", 100),
            of("s3://b", "pat", b"1", 100),
            of("s3://bp", "ath", b"1", 100),
            of("s3://b", "path1", b"", 100),
            of("s3://b", "path", b"2", 100),
            of("s3://b", "path", b"1", 101),
            FileKey::new(2, "s3://b", "path", b"1", 100),
        ] {
            assert_ne!((file, file.block(0)), (other, other.block(0)));
            assert_ne!(file.check(0, b"bytes"), other.check(0, b"bytes"));
        }
        assert_ne!(file.block(0), file.block(1));
        assert_ne!(file.check(0, b"bytes"), file.check(1, b"bytes"));
        assert_ne!(file.check(0, &[0; 10]), file.check(0, &[0; 11]));
        let entry = Entry { key: file.block(7), check: file.check(7, b"") };
        assert_eq!(Entry::from_bytes(entry.to_bytes()), Some(entry));
        assert_eq!(Entry::from_bytes([0; ENTRY_BYTES]), None);
    }
}
