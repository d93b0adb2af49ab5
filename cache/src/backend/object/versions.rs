//! The version of an object, from what answers and listings tell.

use std::time::{Duration, SystemTime};

use object_store::ObjectMeta;

use crate::backend::FileInfo;

/// What a listing or an answer tells of a file. Listings have the time in milliseconds and answers in seconds, so the time is
/// cut to seconds and is the same in both.
pub(super) fn info(meta: ObjectMeta) -> FileInfo {
    let seconds = meta.last_modified.timestamp();
    let since = Duration::from_secs(seconds.unsigned_abs());
    let modified = match seconds < 0 {
        true => SystemTime::UNIX_EPOCH - since,
        false => SystemTime::UNIX_EPOCH + since,
    };
    FileInfo {
        size_bytes: meta.size,
        modified: Some(modified),
        tag: meta.e_tag.as_deref().map(|tag| bare(tag).into()),
    }
}

/// Names the version of an object.
pub(super) fn version_of(meta: &ObjectMeta) -> String {
    match &meta.e_tag {
        Some(tag) if is_weak(tag) => {
            format!("{tag} {} {}", meta.last_modified.timestamp(), meta.size)
        }
        Some(tag) => format!("{} {}", bare(tag), meta.size),
        None => format!("{} {}", meta.last_modified.timestamp(), meta.size),
    }
}

/// Whether [`version_of`] an object tells any two contents of it apart. Only a strong ETag does (RFC 9110, section 8.8.1): an
/// object that is rewritten within a second, with as many bytes, keeps its time and size.
pub(super) fn is_exact(meta: &ObjectMeta) -> bool {
    meta.e_tag.as_deref().is_some_and(|tag| !is_weak(tag))
}

/// An ETag without its quotes, which some listings leave out. A weak ETag is kept as it is, since it differs from the
/// strong one.
fn bare(tag: &str) -> &str {
    tag.strip_prefix('"').and_then(|tag| tag.strip_suffix('"')).unwrap_or(tag)
}

fn is_weak(tag: &str) -> bool {
    tag.starts_with("W/\"")
}

/// The ETag for `If-Match`; `None` for a weak one, which never matches (RFC 9110, section 13.1.1).
pub(super) fn condition(tag: &str) -> Option<String> {
    (!is_weak(tag)).then(|| format!("\"{}\"", bare(tag)))
}

#[cfg(test)]
mod tests {
    use object_store::path::Path;

    use super::*;

    #[test]
    fn a_version_is_exact_only_with_a_strong_etag() {
        for (tag, wanted) in [
            (Some("\"abc\""), true),
            (Some("abc"), true), // Some listings leave the quotes out.
            (Some("W/\"abc\""), false),
            (None, false),
        ] {
            let meta = ObjectMeta {
                location: Path::from("x"),
                last_modified: SystemTime::UNIX_EPOCH.into(),
                size: 7,
                e_tag: tag.map(str::to_owned),
                version: None,
            };
            assert_eq!(is_exact(&meta), wanted, "{tag:?}");
        }
    }
}
