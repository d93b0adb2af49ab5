//! Patterns of paths.
//!
//! | in a pattern | matches |
//! |---|---|
//! | `*` | any letters but `/` |
//! | `?` | one letter but `/` |
//! | `[abc]`, `[a-z]`, `[!a-z]` | one letter of these, or none of these |
//! | `**` between slashes, or at the end | any number of folders |
//! | `~/` at the beginning | the user's home folder |
//!
//! A pattern matches the whole path. It begins with `/`, `~/` or `**/`. A star itself is written `[*]`, and so are `?` and `[`.
//! Upper and lower case differ, and a dot at the beginning of a name is a letter like others.
//!
//! Cost of a match: the length of the pattern times that of the path, at most.

use std::iter;

/// Most bytes of a pattern: Linux's `PATH_MAX`.
const PATTERN_MAX_BYTES: usize = 4096;

/// A pattern of paths: `*`, `?`, `[a-z]` within a name, `**` for any number of folders, `~/` for the home folder.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pattern {
    /// As the user wrote it.
    text: String,
    parts: Vec<Part>,
}

/// What is between two slashes.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Part {
    /// Any number of names.
    Folders,
    /// A name that is these letters.
    Plain(Vec<u8>),
    /// A name that these match.
    Name(Vec<Token>),
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum Token {
    Letter(char),
    One,
    Many,
    Class { is_negated: bool, ranges: Vec<(char, char)> },
}

impl Pattern {
    /// Reads a pattern. `home`: what `~` stands for.
    ///
    /// # Errors
    /// In words, with the way out.
    pub fn parse(text: &str, home: Option<&str>) -> Result<Self, String> {
        if text.len() > PATTERN_MAX_BYTES {
            return Err(format!(
                "a pattern of more than {PATTERN_MAX_BYTES} bytes; shorten it with `**`"
            ));
        }
        if text.contains('\0') {
            return Err("a path has no zero byte; leave it out".into());
        }
        let of_home = text.strip_prefix("~/");
        let mut parts = Vec::new();
        let rest = match (of_home, text.strip_prefix('/')) {
            (Some(rest), _) => {
                let home = home.filter(|home| home.starts_with('/'));
                let home = home
                    .ok_or("there is no home folder (HOME is not set); write the path in full")?;
                parts.extend(names(home).map(|name| Part::Plain(name.as_bytes().to_vec())));
                rest
            }
            (None, Some(rest)) => rest,
            (None, None) if text.starts_with("**/") => text,
            (None, None) => {
                return Err(format!(
                    "the pattern {text:?} begins nowhere; begin with / or ~/, or with **/ for any folder"
                ));
            }
        };
        for name in rest.split('/') {
            parts.push(part(name, text)?);
        }
        Ok(Pattern { text: text.to_owned(), parts })
    }

    /// The pattern of exactly this path.
    pub(crate) fn of_path(path: &str) -> Result<Self, String> {
        Self::parse(&escaped(path), None)
    }

    /// The pattern as it was written.
    pub fn text(&self) -> &str {
        &self.text
    }

    /// The only path that it matches, if there is one.
    pub(crate) fn plain(&self) -> Option<Vec<u8>> {
        let mut path = Vec::new();
        for part in &self.parts {
            let Part::Plain(name) = part else { return None };
            path.push(b'/');
            path.extend_from_slice(name);
        }
        Some(path)
    }

    /// Whether it matches this absolute path, which has no `.`, no `..` and no doubled slashes.
    pub fn matches(&self, path: &[u8]) -> bool {
        let Some(path) = path.strip_prefix(b"/") else { return false };
        // Most paths differ early.
        let mut at = path;
        for part in &self.parts {
            let Part::Plain(name) = part else { break };
            match at.strip_prefix(&name[..]) {
                Some(rest) if rest.is_empty() || rest[0] == b'/' => {
                    at = rest.get(1..).unwrap_or_default();
                }
                _ => return false,
            }
        }
        let names: Vec<&[u8]> = path.split(|&byte| byte == b'/').collect();
        let is_many = |part: &Part| *part == Part::Folders;
        fits(&self.parts, &names, is_many, |part, name| match part {
            Part::Folders => true,
            Part::Plain(plain) => plain == name,
            Part::Name(tokens) => {
                let letters: Vec<char> = letters(name).collect();
                fits(tokens, &letters, |token| *token == Token::Many, Token::is)
            }
        })
    }
}

/// `path` as a pattern that matches it alone.
pub(crate) fn escaped(path: &str) -> String {
    let mut text = String::with_capacity(path.len());
    for letter in path.chars() {
        match letter {
            '*' | '?' | '[' => text.extend(['[', letter, ']']),
            letter => text.push(letter),
        }
    }
    text
}

fn names(path: &str) -> impl Iterator<Item = &str> {
    path.split('/').filter(|name| !name.is_empty())
}

/// The letters of a name. A byte that is no text is a letter that no class and no plain letter has.
fn letters(name: &[u8]) -> impl Iterator<Item = char> + '_ {
    name.utf8_chunks().flat_map(|chunk| {
        let invalid = iter::repeat_n(char::REPLACEMENT_CHARACTER, chunk.invalid().len());
        chunk.valid().chars().chain(invalid)
    })
}

fn part(name: &str, pattern: &str) -> Result<Part, String> {
    match name {
        "" if pattern.ends_with('/') => Err(format!(
            "{pattern:?} names a folder; write {pattern:?} with ** behind it for all files below it"
        )),
        "" => Err(format!("{pattern:?} has two slashes in a row; leave one out")),
        "." | ".." => Err(format!("{pattern:?} has a part {name:?}; write the path without it")),
        "**" => Ok(Part::Folders),
        name if name.contains("**") => Err(format!(
            "in {pattern:?}, ** is not alone between slashes; write * for a part of a name"
        )),
        name if name.contains(['*', '?', '[']) => tokens(name, pattern).map(Part::Name),
        name => Ok(Part::Plain(name.as_bytes().to_vec())),
    }
}

fn tokens(name: &str, pattern: &str) -> Result<Vec<Token>, String> {
    let mut tokens = Vec::new();
    let mut letters = name.chars();
    while let Some(letter) = letters.next() {
        tokens.push(match letter {
            '*' => Token::Many,
            '?' => Token::One,
            '[' => {
                let (class, rest) = class(letters.as_str()).ok_or_else(|| {
                    format!("in {pattern:?}, a [ has no ] or nothing in between; write [[] for the letter itself")
                })?;
                letters = rest.chars();
                class
            }
            letter => Token::Letter(letter),
        });
    }
    Ok(tokens)
}

/// The class whose text, without its first bracket, `text` begins with, and the rest.
fn class(text: &str) -> Option<(Token, &str)> {
    let inner = text.strip_prefix(['!', '^']);
    let (is_negated, text) = (inner.is_some(), inner.unwrap_or(text));
    let first = text.chars().next()?; // A bracket at the beginning is a letter.
    let end = first.len_utf8() + text[first.len_utf8()..].find(']')?;
    let letters: Vec<char> = text[..end].chars().collect();
    let (mut ranges, mut at) = (Vec::new(), 0);
    while at < letters.len() {
        match letters[at..] {
            [first, '-', last, ..] => {
                ranges.push((first, last));
                at += 3;
            }
            _ => {
                ranges.push((letters[at], letters[at]));
                at += 1;
            }
        }
    }
    ranges.iter().all(|(first, last)| first <= last).then_some(())?;
    Some((Token::Class { is_negated, ranges }, &text[end + 1..]))
}

impl Token {
    fn is(&self, letter: &char) -> bool {
        match self {
            Token::Letter(other) => other == letter,
            Token::One | Token::Many => true,
            Token::Class { is_negated, ranges } => {
                ranges.iter().any(|(first, last)| (first..=last).contains(&letter)) != *is_negated
            }
        }
    }
}

/// Whether a sequence fits a pattern, some of whose parts stand for any number of items. It goes back to the last of these
/// alone, so it takes no more steps than the product of both lengths.
fn fits<P, T>(
    pattern: &[P],
    items: &[T],
    is_many: impl Fn(&P) -> bool,
    is: impl Fn(&P, &T) -> bool,
) -> bool {
    let (mut part, mut item) = (0, 0);
    let mut back: Option<(usize, usize)> = None;
    while item < items.len() {
        match pattern.get(part) {
            Some(many) if is_many(many) => {
                back = Some((part, item));
                part += 1;
                continue;
            }
            Some(one) if is(one, &items[item]) => {
                part += 1;
                item += 1;
                continue;
            }
            _ => {}
        }
        let Some((many, from)) = back else { return false };
        back = Some((many, from + 1));
        (part, item) = (many + 1, from + 1);
    }
    pattern[part..].iter().all(is_many)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, path: &str) -> bool {
        Pattern::parse(pattern, Some("/home/a/")).expect("a pattern").matches(path.as_bytes())
    }

    #[test]
    fn stars_stay_in_a_name_and_double_stars_cross_folders() {
        let table = [
            ("/d/*.h5", "/d/a.h5", true),
            ("/d/*.h5", "/d/.h5", true),
            ("/d/*.h5", "/d/e/a.h5", false),
            ("/d/**/*.h5", "/d/a.h5", true),
            ("/d/**/*.h5", "/d/e/f/a.h5", true),
            ("/d/**/*.h5", "/e/a.h5", false),
            ("/d/**", "/d/e/f", true),
            ("/d/**", "/dd/e", false),
            ("/d/**/x/**/y", "/d/x/x/z/y", true),
            ("/d/**/x/**/y", "/d/y", false),
            ("**/a*b*c", "/1/2/aXbXbc", true),
            ("**/a*b*c", "/aXbXb", false),
            ("/d/x", "/d/x", true),
            ("/d/x", "/d/xy", false),
            ("/d/x", "/d/x/y", false),
            ("/d/?", "/d/ä", true),
            ("/d/?", "/d/ab", false),
            ("~/x", "/home/a/x", true),
            ("/~/x", "/~/x", true),
        ];
        for (pattern, path, is) in table {
            assert_eq!(matches(pattern, path), is, "{pattern} {path}");
        }
        assert!(!matches("/d", "d"), "no absolute path");
    }

    #[test]
    fn classes_have_letters_and_ranges() {
        let table = [
            ("/[abc]", "/b", true),
            ("/[a-c]", "/b", true),
            ("/[a-c]", "/d", false),
            ("/[!a-c]", "/d", true),
            ("/[^a-c]", "/b", false),
            ("/[]]", "/]", true),
            ("/[a-]", "/-", true),
            ("/[*]", "/*", true),
            ("/[*]", "/a", false),
            ("/[[]x]", "/[x]", true),
            ("/run[0-9][0-9].h5", "/run07.h5", true),
        ];
        for (pattern, path, is) in table {
            assert_eq!(matches(pattern, path), is, "{pattern} {path}");
        }
    }

    #[test]
    fn a_name_that_is_no_text_is_matched_too() {
        let pattern = Pattern::parse("/d/a*[!x]?", None).expect("a pattern");
        assert!(pattern.matches(b"/d/a\xff\xfe"));
        assert!(!pattern.matches(b"/d/\xff\xff\xff"));
    }

    #[test]
    fn what_is_no_pattern_is_told_with_the_way_out() {
        let table = [
            ("x.h5", "begin with /"),
            ("", "begin with /"),
            ("~a/x", "begin with /"),
            ("/d/", "**"),
            ("/d//x", "two slashes"),
            ("/d/../x", "without it"),
            ("/d/a**", "write *"),
            ("/d/[a", "[[]"),
            ("/d/[", "[[]"),
            ("/d/[z-a]", "[[]"),
            ("/d/\0", "zero byte"),
        ];
        for (pattern, way_out) in table {
            let error = Pattern::parse(pattern, None).expect_err(pattern);
            assert!(error.contains(way_out), "{pattern}: {error}");
        }
        assert!(Pattern::parse("~/x", None).is_err_and(|error| error.contains("in full")));
        assert!(Pattern::parse(&"/x".repeat(4096), None).is_err());
    }

    #[test]
    fn an_escaped_path_matches_itself_alone() {
        for path in ["/a", "/a*b?[c]", "/[!x]/~/ä"] {
            let pattern = Pattern::of_path(path).expect("a pattern");
            assert!(pattern.matches(path.as_bytes()), "{path}");
            assert!(!pattern.matches(b"/aXbYc"), "{path}");
        }
    }

    #[test]
    fn many_stars_take_no_longer_than_the_product_of_lengths() {
        let pattern = format!("/{}b", "*a".repeat(1000));
        assert!(!matches(&pattern, &format!("/{}", "a".repeat(4000))));
        let pattern = format!("{}b", "**/a/".repeat(800));
        assert!(!matches(&pattern, &"/a".repeat(2000)));
    }
}
