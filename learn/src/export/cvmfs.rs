//! The specification of a file bundle: a JSON object with paths from the root of the repository.
//!
//! It is published as `.cvmfsbundle-NAME` beside the file NAME. Opening that has clients with `CVMFS_PREFETCH_FILEBUNDLES=yes`
//! fetch the others. So NAME should be what the workload opens first. (CernVM-FS 2.14, its documentation's page on file
//! bundles, experimental there.)

use serde_json::json;

use super::{Listed, text_of};

pub(super) fn text(files: &[Listed]) -> Vec<u8> {
    let paths: Vec<String> = files.iter().map(|file| format!("/{}", text_of(file))).collect();
    let bundle = json!({
        "dependencies": paths,
        "encoding": "UTF-8",
        "name": "CVMFS_BUNDLE",
        "version": "1.0.0",
    });
    format!("{bundle}\n").into_bytes()
}
