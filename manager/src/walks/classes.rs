//! Which entries of folders a program takes, by class: a filter such as `*.h` or "only folders".
//!
//! A class is a kind of entry and the extension of its name. A class is *taken* or *passed over* for each action apart: a
//! program may ask for the attributes of all files and open the headers.

use std::collections::HashMap;

use super::Action;
use super::listing::Kind;

/// Classes of a process with an extension of their own. Those beyond are told apart by kind alone.
const CLASSES_MAX: usize = 256;

/// Longer extensions are parts of names. 8 bytes hold `parquet` and `geojson`.
const EXTENSION_MAX_BYTES: usize = 8;

/// Bound of a score, both ways: so soon a changed filter is noticed.
const SCORE_MAX: i8 = 8;

/// A number of a class.
pub(crate) type ClassId = u16;

/// The classes without an extension come first, one of each kind.
const KINDS: usize = 4;

/// What is known of a class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Expectation {
    /// The program takes its entries.
    Taken,
    /// The program passes its entries over.
    Passed,
    /// No entry of it was met.
    Unmet,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Classes {
    numbers: HashMap<(u8, Box<[u8]>), ClassId>,
    kinds: Vec<Kind>,
    /// For each action and class.
    scores: [Vec<i8>; Action::COUNT],
    /// For each action and kind.
    kind_scores: [[i8; KINDS]; Action::COUNT],
}

impl Default for Classes {
    fn default() -> Self {
        Classes {
            numbers: HashMap::new(),
            kinds: vec![Kind::File, Kind::Folder, Kind::Other, Kind::Unknown],
            scores: std::array::from_fn(|_| vec![0; KINDS]),
            kind_scores: [[0; KINDS]; Action::COUNT],
        }
    }
}

/// The extension by which entries are told apart. Numbers are none: `log.17`.
fn extension(name: &[u8]) -> Option<&[u8]> {
    let dot = name.iter().rposition(|&byte| byte == b'.').filter(|&dot| dot > 0)?;
    let extension = &name[dot + 1..];
    let is_word = (1..=EXTENSION_MAX_BYTES).contains(&extension.len())
        && !extension.iter().all(u8::is_ascii_digit);
    is_word.then_some(extension)
}

fn add(score: &mut i8, change: i8) {
    *score = score.saturating_add(change).clamp(-SCORE_MAX, SCORE_MAX);
}

impl Classes {
    /// The class of an entry.
    pub(super) fn of(&mut self, kind: Kind, name: &[u8]) -> ClassId {
        // Folders and links are rarely told apart by extension.
        let of_kind = kind as u8;
        let extension = match kind {
            Kind::File | Kind::Unknown => extension(name),
            Kind::Folder | Kind::Other => None,
        };
        let Some(extension) = extension else { return ClassId::from(of_kind) };
        let key = (of_kind, Box::from(extension));
        if let Some(&class) = self.numbers.get(&key) {
            return class;
        }
        if self.kinds.len() >= CLASSES_MAX {
            return ClassId::from(of_kind);
        }
        let class = self.kinds.len() as ClassId;
        self.kinds.push(kind);
        self.scores.iter_mut().for_each(|scores| scores.push(0));
        self.numbers.insert(key, class);
        class
    }

    /// Notes that `action` was done to an entry of `class`.
    pub(super) fn take(&mut self, action: Action, class: ClassId) {
        let score = &mut self.scores[action as usize][usize::from(class)];
        *score = (*score).max(0);
        add(score, 1);
        let kind = self.kinds[usize::from(class)];
        add(&mut self.kind_scores[action as usize][kind as usize], 1);
    }

    /// Notes that the program went past an entry of `class`.
    pub(super) fn pass(&mut self, action: Action, class: ClassId) {
        add(&mut self.scores[action as usize][usize::from(class)], -1);
        let kind = self.kinds[usize::from(class)];
        add(&mut self.kind_scores[action as usize][kind as usize], -1);
    }

    /// What is known of `class` itself.
    pub(super) fn met(&self, action: Action, class: ClassId) -> Expectation {
        match self.scores[action as usize][usize::from(class)] {
            0 => Expectation::Unmet,
            score if score > 0 => Expectation::Taken,
            _ => Expectation::Passed,
        }
    }

    /// Whether the program is expected to do `action` to entries of `class`. Unmet classes are expected as others of their
    /// kind.
    pub(super) fn expects(&self, action: Action, class: ClassId) -> bool {
        match self.met(action, class) {
            Expectation::Taken => true,
            Expectation::Passed => false,
            Expectation::Unmet => {
                let kind = self.kinds[usize::from(class)];
                self.kind_scores[action as usize][kind as usize] > 0
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_unmet_class_is_expected_like_its_kind() {
        let mut classes = Classes::default();
        let [c, h, txt] =
            ["x.c", "x.h", "x.txt"].map(|name| classes.of(Kind::File, name.as_bytes()));
        let folder = classes.of(Kind::Folder, b"x.c");
        assert!(!classes.expects(Action::Look, txt));
        classes.take(Action::Look, c);
        assert!(classes.expects(Action::Look, txt) && classes.expects(Action::Look, c));
        assert!(!classes.expects(Action::Look, folder) && !classes.expects(Action::Open, c));
        classes.pass(Action::Look, h);
        classes.pass(Action::Look, h);
        assert!(!classes.expects(Action::Look, h) && !classes.expects(Action::Look, txt));
        classes.take(Action::Look, h);
        assert!(classes.expects(Action::Look, h), "a filter that has changed");
    }

    #[test]
    fn numbers_long_words_and_hidden_names_are_no_extensions() {
        assert_eq!(extension(b"a.b.tar"), Some(&b"tar"[..]));
        for name in ["log.17", ".profile", "x.", "x.extremelylong", "plain"] {
            assert_eq!(extension(name.as_bytes()), None, "{name}");
        }
        let mut classes = Classes::default();
        for number in 0..1000 {
            let _ = classes.of(Kind::File, format!("x.a{number}").as_bytes());
        }
        assert!(classes.kinds.len() <= CLASSES_MAX);
    }
}
