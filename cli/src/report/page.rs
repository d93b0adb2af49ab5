//! The page: a frame, a style, a script and the figures, in one file.

use super::figures::Figures;

const FRAME: &str = include_str!("page.html");
const STYLE: &str = include_str!("page.css");
const SCRIPT: &str = include_str!("page.js");

/// The page.
///
/// # Errors
/// In words, if the figures cannot be written.
pub(super) fn page(figures: &Figures) -> Result<String, String> {
    // Within a script, `<` could end it, whatever the name of a file says. In JSON it only occurs in text.
    let figures = serde_json::to_string(figures).map_err(|error| error.to_string())?;
    let figures = figures.replace('<', "\\u003c");
    let mut page = String::with_capacity(FRAME.len() + STYLE.len() + SCRIPT.len() + figures.len());
    for (at, part) in FRAME.split("@@").enumerate() {
        // Every second part of the frame is the name of what stands there.
        page += match (at % 2, part) {
            (1, "style") => STYLE,
            (1, "script") => SCRIPT,
            (1, "figures") => &figures,
            _ => part,
        };
    }
    Ok(page)
}
