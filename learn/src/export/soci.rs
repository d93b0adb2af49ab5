//! A JSON array of paths of the image, from its root, for `soci create --prefetch-files-json FILE` and `soci convert`.
//!
//! soci finds the layer and the spans of each file by itself. (soci-snapshotter, `docs/prefetch.md`, experimental there.)

use serde_json::json;

use super::{Listed, text_of};

pub(super) fn text(files: &[Listed]) -> Vec<u8> {
    let paths: Vec<String> =
        files.iter().map(|file| json!(format!("/{}", text_of(file))).to_string()).collect();
    match paths.is_empty() {
        true => b"[]\n".to_vec(),
        false => format!("[\n{}\n]\n", paths.join(",\n")).into_bytes(),
    }
}
