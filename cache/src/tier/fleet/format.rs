//! What the server holds: keys, blocks and leases.
//!
//! ```text
//! key     foretell:1:FILE:INDEX       FILE: 40 hexadecimal digits, INDEX: of the block, hexadecimal
//! block   magic 8 | bytes u32 | kind u32 | check 32 | the block's bytes         little endian
//! lease   magic 8 | token 16          the block is being fetched by the node with this token
//! unkept  magic 8                     the block has been fetched, and is not kept here
//! ```
//!
//! A file's id is the SHA-256 of all that identifies a version of it: address of the store, path, version, size, size of a
//! block. The check of a block covers the file's id, the block's index, and its bytes. So a block is served only under the key
//! that it was put under; a truncated, damaged or swapped value fails the check and is refused.
//!
//! *With a secret*, id and check are HMAC-SHA256: without the secret, an attacker can neither forge a block that is served, nor
//! find out which file a key stands for. *Without one*, the check is XXH3, which detects damage but no forgery: an attacker
//! with write access to the server can serve bytes of their own.

use std::fmt::Write;

use ring::digest::{SHA256, digest};
use ring::hmac::{self, HMAC_SHA256};
use xxhash_rust::xxh3::{xxh3_64, xxh3_128_with_seed};

pub(super) const HEADER_BYTES: usize = 48;
const BLOCK: [u8; 8] = *b"ftl-blk1";
const LEASE: [u8; 8] = *b"ftl-get1";
/// The value that takes the place of a lease for a moment if the block is not put.
pub(super) const UNKEPT: [u8; 8] = *b"ftl-not1";
const CHECK_BYTES: usize = 32;
/// Bytes of a file's id in its keys: 160 bits, so that two files do not collide.
const KEY_BYTES: usize = 20;

/// The holder of a lease.
pub(super) type Token = [u8; 16];

/// The secret, if there is one.
pub(super) struct Checks(Option<hmac::Key>);

/// Identifies a version of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FileId([u8; 32]);

/// What identifies a version of a file, beside its size.
#[derive(Clone, Copy)]
pub(super) struct Named<'a> {
    pub(super) store: &'a str,
    pub(super) path: &'a str,
    pub(super) version: &'a [u8],
}

/// What a value of the server is.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<'a> {
    /// These are the bytes of the block.
    Block(&'a [u8]),
    /// The node with this token fetches it.
    Lease(Token),
    /// A node has fetched it, and could not put it.
    Unkept,
    /// None of these.
    Wrong,
}

/// The value of a lease.
pub(super) fn lease(token: &Token) -> Vec<u8> {
    [&LEASE[..], token].concat()
}

impl Checks {
    pub(super) fn new(secret: Option<&[u8]>) -> Self {
        Checks(secret.map(|secret| hmac::Key::new(HMAC_SHA256, secret)))
    }

    pub(super) fn file(&self, named: Named<'_>, size_bytes: u64, block_bytes: usize) -> FileId {
        let mut bytes = Vec::new();
        for part in [named.store.as_bytes(), named.path.as_bytes(), named.version] {
            bytes.extend((part.len() as u64).to_le_bytes());
            bytes.extend(part);
        }
        bytes.extend(size_bytes.to_le_bytes());
        bytes.extend((block_bytes as u64).to_le_bytes());
        let id = match &self.0 {
            Some(key) => <[u8; 32]>::try_from(hmac::sign(key, &bytes).as_ref()),
            None => <[u8; 32]>::try_from(digest(&SHA256, &bytes).as_ref()),
        };
        FileId(id.expect("SHA-256 has 32 bytes"))
    }

    /// A value without its check, to be [sealed](Self::seal).
    pub(super) fn unsealed(length: usize) -> Vec<u8> {
        let mut value = Vec::with_capacity(HEADER_BYTES + length);
        value.extend(BLOCK);
        value.extend((length as u32).to_le_bytes());
        value.extend([0; 4]);
        value.extend([0; CHECK_BYTES]);
        value
    }

    /// Enters the check into a value that has its bytes.
    pub(super) fn seal(&self, file: &FileId, index: u64, value: &mut [u8]) {
        let (header, bytes) = value.split_at_mut(HEADER_BYTES);
        header[12] = u8::from(self.0.is_some());
        header[HEADER_BYTES - CHECK_BYTES..].copy_from_slice(&self.check(file, index, bytes));
    }

    fn check(&self, file: &FileId, index: u64, bytes: &[u8]) -> [u8; CHECK_BYTES] {
        let mut about = [0; 48];
        about[..32].copy_from_slice(&file.0);
        about[32..40].copy_from_slice(&index.to_le_bytes());
        about[40..].copy_from_slice(&(bytes.len() as u64).to_le_bytes());
        let mut check = [0; CHECK_BYTES];
        match &self.0 {
            Some(key) => {
                let mut context = hmac::Context::with_key(key);
                context.update(&about);
                context.update(bytes);
                check.copy_from_slice(context.sign().as_ref());
            }
            None => {
                let sum = xxh3_128_with_seed(bytes, xxh3_64(&about));
                check[..16].copy_from_slice(&sum.to_le_bytes());
            }
        }
        check
    }

    /// What the value of the block at `index` is, which has `length` bytes.
    pub(super) fn read<'a>(
        &self,
        (file, index): (&FileId, u64),
        length: usize,
        value: &'a [u8],
    ) -> Found<'a> {
        if let Some(token) = value.strip_prefix(&LEASE) {
            return token.try_into().map_or(Found::Wrong, Found::Lease);
        }
        if value == UNKEPT {
            return Found::Unkept;
        }
        let Some((header, bytes)) = value.split_at_checked(HEADER_BYTES) else {
            return Found::Wrong;
        };
        let said = header[8..12].first_chunk().copied().map(u32::from_le_bytes);
        let is_whole = header.starts_with(&BLOCK)
            && said == Some(length as u32)
            && header[12..16] == [u8::from(self.0.is_some()), 0, 0, 0]
            && bytes.len() == length;
        match is_whole && header[HEADER_BYTES - CHECK_BYTES..] == self.check(file, index, bytes) {
            true => Found::Block(bytes),
            false => Found::Wrong,
        }
    }
}

impl FileId {
    /// Its first bytes, which tell files apart where a mistake does no harm.
    pub(super) fn short(&self) -> u64 {
        let word: [u8; 8] = std::array::from_fn(|byte| self.0[byte]);
        u64::from_le_bytes(word)
    }

    /// The key of the block at `index`.
    pub(super) fn key(&self, index: u64) -> String {
        let mut key = String::with_capacity(2 * KEY_BYTES + 28);
        key.push_str("foretell:1:");
        for byte in &self.0[..KEY_BYTES] {
            let _ = write!(key, "{byte:02x}");
        }
        let _ = write!(key, ":{index:x}");
        key
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECRET: &[u8] = b"a secret of enough bytes";

    fn named(version: &[u8]) -> Named<'_> {
        Named { store: "s3://b", path: "path", version }
    }

    fn value(checks: &Checks, file: &FileId, index: u64, bytes: &[u8]) -> Vec<u8> {
        let mut value = Checks::unsealed(bytes.len());
        value.extend(bytes);
        checks.seal(file, index, &mut value);
        value
    }

    #[test]
    fn a_block_is_read_under_its_own_key_alone_and_any_change_of_it_is_seen() {
        for secret in [None, Some(SECRET)] {
            let checks = Checks::new(secret);
            let file = checks.file(named(b"1"), 100, 4096);
            let whole = value(&checks, &file, 3, b"bytes of a block");
            assert_eq!(checks.read((&file, 3), 16, &whole), Found::Block(b"bytes of a block"));
            let other = checks.file(named(b"2"), 100, 4096);
            assert_ne!(file.key(3), other.key(3));
            assert_ne!(file.key(3), file.key(4));
            for (file, index, length) in [(&other, 3, 16), (&file, 4, 16), (&file, 3, 15)] {
                assert_eq!(checks.read((file, index), length, &whole), Found::Wrong);
            }
            for bit in 0..whole.len() * 8 {
                let mut flipped = whole.clone();
                flipped[bit / 8] ^= 1 << (bit % 8);
                assert_eq!(checks.read((&file, 3), 16, &flipped), Found::Wrong, "bit {bit}");
            }
            for length in 0..whole.len() {
                assert_eq!(checks.read((&file, 3), 16, &whole[..length]), Found::Wrong);
            }
            assert_eq!(checks.read((&file, 3), 16, &[&whole[..], b"x"].concat()), Found::Wrong);
        }
    }

    #[test]
    fn all_that_makes_a_file_is_in_its_key() {
        let checks = Checks::new(None);
        let key = |store, path, version: &[u8], size, block| {
            checks.file(Named { store, path, version }, size, block).key(0)
        };
        let one = key("s3://b", "path", b"1", 100, 4096);
        assert!(one.starts_with("foretell:1:") && one.ends_with(":0") && one.len() == 53, "{one}");
        for other in [
            key("s3://c", "path", b"1", 100, 4096),
            key("s3://bp", "ath", b"1", 100, 4096),
            key("s3://b", "path1", b"", 100, 4096),
            key("s3://b", "path", b"2", 100, 4096),
            key("s3://b", "path", b"1", 101, 4096),
            key("s3://b", "path", b"1", 100, 8192),
            Checks::new(Some(SECRET)).file(named(b"1"), 100, 4096).key(0),
        ] {
            assert_ne!(one, other);
        }
    }

    #[test]
    fn without_the_secret_nobody_makes_a_block_of_those_who_have_it() {
        let (with, without) = (Checks::new(Some(SECRET)), Checks::new(None));
        let file = with.file(named(b"1"), 100, 4096);
        let forged = value(&without, &file, 0, b"forged");
        assert_eq!(with.read((&file, 0), 6, &forged), Found::Wrong);
        let other = Checks::new(Some(b"another secret, as long"));
        assert_eq!(with.read((&file, 0), 6, &value(&other, &file, 0, b"forged")), Found::Wrong);
        let token = [7; 16];
        assert_eq!(with.read((&file, 0), 6, &lease(&token)), Found::Lease(token));
        assert_eq!(with.read((&file, 0), 6, &lease(&token)[..23]), Found::Wrong);
        assert_eq!(with.read((&file, 0), 6, &UNKEPT), Found::Unkept);
        assert_eq!(with.read((&file, 0), 6, b"ftl-not1 "), Found::Wrong);
    }
}
