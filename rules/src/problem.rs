//! Mistakes in a file of rules: where they are, what they are, and the way out.

use std::fmt;

/// A mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Problem {
    /// Its line, from 1; 0 if it is in the file as a whole.
    pub line: usize,
    /// Its column, from 1, in letters; 0 if it is in the file as a whole.
    pub column: usize,
    /// What is wrong, and the way out, in one line.
    pub text: String,
}

impl Problem {
    /// A mistake at a byte of the file.
    pub(crate) fn at(content: &str, byte: usize, text: impl Into<String>) -> Self {
        let mut byte = byte.min(content.len());
        while !content.is_char_boundary(byte) {
            byte -= 1;
        }
        let before = &content[..byte];
        let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
        let line = before.matches('\n').count() + 1;
        let column = before[line_start..].chars().count() + 1;
        Problem { line, column, text: text.into() }
    }

    /// A mistake of the whole file.
    pub(crate) fn of_file(text: impl Into<String>) -> Self {
        Problem { line: 0, column: 0, text: text.into() }
    }
}

impl fmt::Display for Problem {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.line {
            0 => f.write_str(&self.text),
            line => write!(f, "line {line}, column {}: {}", self.column, self.text),
        }
    }
}

/// What is said of a word that is none of the known ones: with the nearest of them, or all.
pub(crate) fn unknown(what: &str, word: &str, known: &[&str]) -> String {
    let shown = shown(word);
    match nearest(word, known) {
        Some(nearest) => format!("unknown {what} {shown:?}; did you mean {nearest:?}?"),
        None => format!("unknown {what} {shown:?}; known are {}", known.join(", ")),
    }
}

/// As [`unknown`], with all the known words, since there are few. A nearest one is named only for a slip of one letter: short
/// words are near to others.
pub(crate) fn unknown_of_few(what: &str, word: &str, known: &[&str]) -> String {
    let (short, all) = (shown(word), known.join(", "));
    let is_slip = |other: &str| strsim::damerau_levenshtein(&short.to_lowercase(), other) <= 1;
    match nearest(word, known).filter(|nearest| is_slip(nearest)) {
        Some(nearest) => {
            format!("unknown {what} {short:?}; did you mean {nearest:?}? known are {all}")
        }
        None => format!("unknown {what} {short:?}; known are {all}"),
    }
}

/// The known word that `word` was probably meant to be.
pub(crate) fn nearest<'k>(word: &str, known: &[&'k str]) -> Option<&'k str> {
    let shown = shown(word).to_lowercase();
    let edits = |other: &&str| strsim::damerau_levenshtein(&shown, &other.to_lowercase());
    let nearest = known.iter().copied().min_by_key(edits)?;
    (edits(&nearest) <= 1 + nearest.len() / 3).then_some(nearest)
}

/// A word from a file may have any length.
fn shown(word: &str) -> String {
    word.chars().take(40).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_lines_and_letters() {
        let place = |byte| {
            let problem = Problem::at("äb\ncd", byte, "x");
            (problem.line, problem.column)
        };
        assert_eq!([place(0), place(1), place(2), place(3)], [(1, 1), (1, 1), (1, 2), (1, 3)]);
        assert_eq!([place(4), place(6), place(99)], [(2, 1), (2, 3), (2, 3)]);
        assert_eq!(Problem::of_file("is bad").to_string(), "is bad");
        assert_eq!(Problem::at("", 0, "is bad").to_string(), "line 1, column 1: is bad");
    }

    #[test]
    fn the_nearest_word_is_named_if_one_is_near() {
        let known = ["offset", "length"];
        assert_eq!(
            unknown("key", "ofset", &known),
            "unknown key \"ofset\"; did you mean \"offset\"?"
        );
        assert_eq!(
            unknown("key", "Length", &known),
            "unknown key \"Length\"; did you mean \"length\"?"
        );
        let far = unknown("key", &"x".repeat(1000), &known);
        assert!(far.ends_with("known are offset, length") && far.len() < 100, "{far}");
    }
}
