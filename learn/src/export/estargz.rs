//! The record file of `ctr-remote optimize --record-out`: JSON objects with the path in the image, without a slash at its
//! beginning.
//!
//! `nerdctl image convert --estargz --estargz-record-in FILE` puts these files first in their layers, before the landmark up to
//! which a layer is prefetched. It needs `path` alone: the other fields, of the recorded image, do not apply to a list that was
//! not recorded in one. (stargz-snapshotter, `docs/ctr-remote.md` and `docs/estargz.md`; nerdctl, `docs/command-reference.md`.)

use serde_json::json;

use super::{Listed, text_of};

pub(super) fn text(files: &[Listed]) -> Vec<u8> {
    let lines = files.iter().map(|file| format!("{}\n", json!({ "path": text_of(file) })));
    lines.collect::<String>().into_bytes()
}
