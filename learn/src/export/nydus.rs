//! Prefetch patterns: a path of the image a line, from its root, in the order in which they are fetched.
//!
//! `nydus-image create --prefetch-policy fs` and `nydusify convert --prefetch-patterns` read them from standard input. They cut
//! off spaces at the ends of a line. (nydus, `docs/prefetch.md`; nydus-snapshotter, `docs/optimize_nydus_image.md`.)

use super::{Listed, list};

pub(super) fn can_write(path: &[u8]) -> bool {
    list::can_write(path) && path.trim_ascii_end() == path
}

pub(super) fn text(files: &[Listed]) -> Vec<u8> {
    list::text(files, true)
}
