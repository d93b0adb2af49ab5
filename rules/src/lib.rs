//! Rules of a user: which files are read ahead, which parts of them, and how far; or that a file is left alone.
//!
//! They come from a file, in one of two forms (docs/guide/rules.md has the keys):
//!
//! A. TOML, foretell's own form.
//! B. JSON, as Mercury reads it, the public program of the 2014 advice paper's authors. The paper itself publishes no syntax.
//!
//! | module | what it decides |
//! |---|---|
//! | `lib.rs` | what a rule says, and which one applies to a path |
//! | `glob` | which paths a pattern matches |
//! | [`size`] | what a size is |
//! | `own` | A, with the place of each mistake |
//! | `mercury` | B |
//! | `writing` | how rules are written as A |
//! | [`profile`] | which regions the recorded reads of a file are |
//!
//! The *last* rule that matches a path applies, and no other adds to it. So a file begins with what holds in general,
//! exceptions follow, and rules that are appended to a file hold.
//!
//! Pure: no file is touched here, and no clock read. A file is bounded ([`FILE_MAX_BYTES`]), and so is all that it may ask for.

mod backend;
mod glob;
mod mercury;
mod own;
mod problem;
pub mod profile;
pub mod size;
mod writing;

use std::collections::HashMap;

pub use backend::BackendKind;
pub use glob::Pattern;
pub use problem::Problem;
pub use writing::text;

/// Most bytes of a file of rules: [`REGIONS_ALL_MAX`] regions fit.
pub const FILE_MAX_BYTES: usize = 4 << 20;

/// Most rules of a file.
pub const RULES_MAX: usize = 4096;

/// Most patterns of a rule.
pub const PATTERNS_MAX: usize = 1024;

/// Most patterns of a file, without those that are a path in full: each path is compared with all of them.
pub const GLOBS_MAX: usize = 4096;

/// Most regions of a rule, and of all rules of a file.
pub const REGIONS_MAX: usize = 4096;
/// See [`REGIONS_MAX`].
pub const REGIONS_ALL_MAX: usize = 1 << 16;

/// How the reads of a region follow each other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// From its beginning to its end.
    Sequential,
    /// Parts of `length` bytes, each beginning `stride` bytes after the one before.
    Strided {
        /// Bytes of a part.
        length_bytes: u64,
        /// From the beginning of a part to that of the next.
        stride_bytes: u64,
        /// Number of parts; `None` for as many as the file has.
        count: Option<u64>,
    },
    /// All of it, in any order.
    Whole,
    /// Small parts in an order that nobody knows: nothing is read ahead.
    Random,
}

/// A part of a file.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Region {
    /// The first byte.
    pub offset_bytes: u64,
    /// The number of bytes, at least 1; `None` to the end of the file. `None` of a strided region too: its parts have lengths.
    pub length_bytes: Option<u64>,
    /// How it is read.
    pub access: Access,
}

impl Region {
    /// The whole file, from its beginning to its end.
    pub const FILE: Region =
        Region { offset_bytes: 0, length_bytes: None, access: Access::Sequential };
}

/// What becomes of data that was read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum After {
    /// The kernel decides.
    #[default]
    Keep,
    /// It leaves memory.
    Release,
}

impl After {
    /// All of them, with their names in a file.
    pub const ALL: [(&'static str, After); 2] =
        [("keep", After::Keep), ("release", After::Release)];
}

/// The largest request that a plan can have: 4 MiB, the largest of network file systems.
pub const REQUEST_MAX_BYTES: u64 = 4 << 20;

/// The smallest one: 8 KiB, a block of the policy.
pub const REQUEST_MIN_BYTES: u64 = 8 << 10;

/// How a file is read ahead.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Plan {
    /// Its regions, in the order in which they are read. None: the whole file, as [`Region::FILE`].
    pub regions: Vec<Region>,
    /// Most bytes that are read ahead of the program; `None`: foretell decides.
    pub ahead_bytes: Option<u64>,
    /// Most bytes that are asked for at once; `None`: foretell decides. Of Mercury's files, more than [`REQUEST_MAX_BYTES`] and
    /// less than [`REQUEST_MIN_BYTES`] count as these.
    pub request_bytes: Option<u64>,
    /// What becomes of data that was read.
    pub after: After,
    /// How it is asked for.
    pub backend: BackendKind,
}

/// What is done with a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Action {
    /// It is read ahead so.
    Read(Plan),
    /// Nothing of it is read ahead, whoever asks.
    Never,
}

/// See the [module](self).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Rule {
    /// The line of its file where it begins, from 1; 0 in Mercury's form, which does not tell.
    pub line: usize,
    /// The files that it is about: those that any of these matches.
    pub patterns: Vec<Pattern>,
    /// What is done with them.
    pub action: Action,
}

/// The rules of a file.
#[derive(Clone, Debug, Default)]
pub struct Rules {
    rules: Vec<Rule>,
    ignored: Vec<String>,
    /// The last rule of each path that is given in full.
    plain: HashMap<Vec<u8>, usize>,
    /// The other patterns, with their rules, in the order of these.
    patterns: Vec<(usize, Pattern)>,
}

impl Rules {
    /// These rules.
    pub fn new(rules: Vec<Rule>, ignored: Vec<String>) -> Self {
        let (mut plain, mut patterns) = (HashMap::new(), Vec::new());
        for (at, rule) in rules.iter().enumerate() {
            for pattern in &rule.patterns {
                match pattern.plain() {
                    Some(path) => drop(plain.insert(path, at)),
                    None => patterns.push((at, pattern.clone())),
                }
            }
        }
        Rules { rules, ignored, plain, patterns }
    }

    /// Reads a file's content. `home`: what `~` stands for.
    ///
    /// # Errors
    /// All mistakes, as far as they can be told apart.
    pub fn parse(content: &[u8], home: Option<&str>) -> Result<Self, Vec<Problem>> {
        let one = |problem| vec![problem];
        if content.len() > FILE_MAX_BYTES {
            let text = format!(
                "has more than {}: give patterns (`*`, `**`) in place of many paths",
                size::display(FILE_MAX_BYTES as u64)
            );
            return Err(one(Problem::of_file(text)));
        }
        let text = std::str::from_utf8(content).map_err(|error| {
            let before = String::from_utf8_lossy(&content[..error.valid_up_to()]);
            one(Problem::at(&before, before.len(), "is not text (UTF-8)"))
        })?;
        let is_json = text.trim_start().starts_with('{');
        if is_json { mercury::parse(text).map_err(one) } else { own::parse(text, home) }
    }

    /// The rules, in the order of the file.
    pub fn rules(&self) -> &[Rule] {
        &self.rules
    }

    /// What of the file has no effect, in words.
    pub fn ignored(&self) -> &[String] {
        &self.ignored
    }

    /// The rule for the file at this absolute path without `.`, `..` and doubled slashes: the last one that matches.
    pub fn find(&self, path: &[u8]) -> Option<&Rule> {
        let plain = self.plain.get(path).copied();
        let is_later = |&&(at, _): &&(usize, Pattern)| plain.is_none_or(|plain| at > plain);
        let mut later = self.patterns.iter().rev().take_while(is_later);
        let matched = later.find(|(_, pattern)| pattern.matches(path)).map(|&(at, _)| at);
        matched.or(plain).map(|at| &self.rules[at])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn rules(text: &str) -> Rules {
        Rules::parse(text.as_bytes(), Some("/home/a")).expect("good rules")
    }

    #[test]
    fn the_last_rule_that_matches_applies() {
        let rules = rules(
            "[[rule]]\npath = '/d/**'\n[[rule]]\npath = '/d/x'\nnever = true\n\
             [[rule]]\npath = '/d/*.h5'\nahead = 8192\n[[rule]]\npath = '/d/y.h5'\n",
        );
        let line = |path: &str| rules.find(path.as_bytes()).map(|rule| rule.line);
        assert_eq!(line("/d/a/b"), Some(1));
        assert_eq!(line("/d/x"), Some(3));
        assert_eq!(line("/d/z.h5"), Some(6));
        assert_eq!(line("/d/y.h5"), Some(9));
        assert_eq!(line("/e"), None);
        assert_eq!(Rules::default().find(b"/d"), None);
    }

    #[test]
    fn a_later_pattern_comes_before_an_earlier_path() {
        let rules = rules("[[rule]]\npath = '/d/x'\nnever = true\n[[rule]]\npath = '/d/*'\n");
        assert_eq!(rules.find(b"/d/x").map(|rule| rule.line), Some(4));
    }

    #[test]
    fn every_value_has_a_name_of_its_own() {
        for (at, (name, backend)) in BackendKind::ALL.into_iter().enumerate() {
            assert_eq!(backend.name(), name);
            assert!(BackendKind::ALL[..at].iter().all(|(other, _)| *other != name));
        }
    }
}
