//! Paths with the parts that are read, as the configuration of the 2014 advice paper has them, in the format of
//! `foretell run --hints` (docs/reference/hints.md): a path for a whole file, or a JSON object with segments.
//!
//! The paper publishes no syntax of its file.

use serde_json::{Map, Value, json};

use super::{Listed, list, text_of};

/// A name that is no text cannot be in an object, and a path that begins like one must be.
pub(super) fn can_write(file: &Listed) -> bool {
    let has_data = file.is_whole || !file.parts.is_empty();
    has_data && (is_line(file) || std::str::from_utf8(&file.path).is_ok())
}

fn is_line(file: &Listed) -> bool {
    file.is_whole && list::can_write(&file.path) && !file.path.starts_with(b"{")
}

pub(super) fn text(files: &[Listed], is_absolute: bool) -> Vec<u8> {
    let slash = if is_absolute { "/" } else { "" };
    let mut text = Vec::new();
    for file in files {
        match is_line(file) {
            true => text.extend([slash.as_bytes(), &file.path].concat()),
            false => text.extend(object(file, slash).to_string().bytes()),
        }
        text.push(b'\n');
    }
    text
}

/// Its keys are in the order of the alphabet, with which maps of all features of serde_json agree.
fn object(file: &Listed, slash: &str) -> Value {
    let mut object = Map::new();
    if !file.is_whole && !file.has_order && file.parts.len() > 1 {
        object.insert("order".into(), json!("any"));
    }
    object.insert("path".into(), json!(format!("{slash}{}", text_of(file))));
    if !file.is_whole {
        let segments = file.parts.iter().map(|part| json!([part.start, part.bytes()]));
        object.insert("segments".into(), segments.collect());
    }
    object.into()
}
