//! Rules in Mercury's form, JSON.
//!
//! ```json
//! {
//!   "File": [{
//!     "Path": "/data/run.root", "BlockSize": 4194304, "CacheSize": 16, "ReadAheadSize": 3,
//!     "WillNeed": [{"Offset": 0, "Length": 1073741824}],
//!     "Random": [{"Offset": 1073741824, "Length": 0}]
//!   }],
//!   "Directory": [{"Path": "/data/small", "Sequential": [{"Offset": 0, "Length": 0}]}]
//! }
//! ```
//!
//! | in the file | here |
//! |---|---|
//! | `Directory` | the files in this folder itself. A `File` comes before it |
//! | `WillNeed`, `Sequential` | a sequential region; a `Length` of 0 reaches to the end of the file |
//! | `Random` | a random region |
//! | `BlockSize` times `ReadAheadSize` | how far ahead `WillNeed` is read; 4 MiB and 3 where they are 0 or missing |
//! | `Normal`, `CacheSize` | no effect: the kernel does as it does, and foretell's budget bounds memory |
//!
//! Regions are taken in the order of their offsets, since the form does not say in which order they are read.

use std::collections::HashSet;
use std::fmt;

use serde::de::{Deserialize, Deserializer, Error, MapAccess, SeqAccess, Visitor};

use crate::own::last_end;
use crate::problem::{Problem, unknown};
use crate::{
    Access, Action, Pattern, Plan, REGIONS_ALL_MAX, REGIONS_MAX, REQUEST_MAX_BYTES,
    REQUEST_MIN_BYTES, RULES_MAX, Region, Rule, Rules,
};

/// Defaults of Mercury.
const BLOCK_BYTES: u64 = 4 << 20;
const AHEAD_BLOCKS: u64 = 3;

/// Reads the file; see the [module](self).
pub(crate) fn parse(text: &str) -> Result<Rules, Problem> {
    let document: Document = serde_json::from_str(text).map_err(|error| {
        let (line, column) = (error.line(), error.column());
        let place = format!(" at line {line} column {column}");
        let told = error.to_string();
        let told = told.strip_suffix(&place).unwrap_or(&told).replace('\n', " ");
        Problem { line, column, text: told }
    })?;
    let Document { files, folders } = document;
    let ranges = |entry: &Entry| entry.regions.len();
    if files.len() + folders.len() > RULES_MAX {
        return Err(Problem::of_file(format!("more than {RULES_MAX} files and folders; split it")));
    }
    if files.iter().chain(&folders).map(ranges).sum::<usize>() > REGIONS_ALL_MAX {
        return Err(Problem::of_file(format!(
            "more than {REGIONS_ALL_MAX} ranges; join neighbours"
        )));
    }
    let mut ignored = Vec::new();
    let all = || folders.iter().chain(&files);
    if all().any(|entry| entry.has_cache) {
        ignored.push(
            "CacheSize: memory is bounded by foretell's budget (foretell run --budget)".into(),
        );
    }
    if all().any(|entry| entry.has_normal) {
        ignored.push("Normal: the kernel does there as it does without a rule".into());
    }
    // The last rule holds, so files come last.
    let rules = all().filter(|entry| {
        let says_something = !entry.regions.is_empty();
        if !says_something {
            ignored.push(format!("{}: nothing is said about it", entry.path));
        }
        says_something
    });
    let rules: Vec<Rule> = rules.map(Entry::rule).collect();
    Ok(Rules::new(rules, ignored))
}

#[derive(Default)]
struct Document {
    files: Vec<Entry>,
    folders: Vec<Entry>,
}

/// A file, or a folder.
#[derive(Default)]
struct Entry {
    path: String,
    pattern: Option<Pattern>,
    block_bytes: u64,
    ahead_blocks: u64,
    has_cache: bool,
    has_normal: bool,
    will_need: bool,
    regions: Vec<Region>,
}

impl Entry {
    fn rule(&self) -> Rule {
        let or = |value, default| if value == 0 { default } else { value };
        let block_bytes = or(self.block_bytes, BLOCK_BYTES);
        let ahead_bytes = block_bytes.saturating_mul(or(self.ahead_blocks, AHEAD_BLOCKS));
        let plan = Plan {
            regions: self.regions.clone(),
            ahead_bytes: self.will_need.then_some(ahead_bytes),
            request_bytes: self
                .will_need
                .then_some(block_bytes.clamp(REQUEST_MIN_BYTES, REQUEST_MAX_BYTES)),
            ..Plan::default()
        };
        let patterns = self.pattern.iter().cloned().collect();
        Rule { line: 0, patterns, action: Action::Read(plan) }
    }
}

/// An object with known keys, each there once.
trait Keyed: Default {
    const KEYS: &'static [&'static str];
    const EXPECTING: &'static str;

    /// Takes the value of this key.
    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error>;

    /// All keys are taken.
    fn check(&self) -> Result<(), String> {
        Ok(())
    }
}

struct Keys<T>(T);

impl<'de, T: Keyed> Visitor<'de> for Keys<T> {
    type Value = T;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(T::EXPECTING)
    }

    fn visit_map<A: MapAccess<'de>>(mut self, mut map: A) -> Result<T, A::Error> {
        let mut seen: Vec<String> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            if !T::KEYS.contains(&key.as_str()) {
                return Err(A::Error::custom(unknown("key", &key, T::KEYS)));
            }
            if seen.contains(&key) {
                return Err(A::Error::custom(format!("{key:?} is there twice; leave one out")));
            }
            self.0.take(&key, &mut map)?;
            seen.push(key);
        }
        self.0.check().map_err(A::Error::custom)?;
        Ok(self.0)
    }
}

/// Lets serde read an object with known keys.
macro_rules! deserialize_keyed {
    ($($of:ty),*) => {$(
        impl<'de> Deserialize<'de> for $of {
            fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
                deserializer.deserialize_map(Keys(<$of>::default()))
            }
        }
    )*};
}

deserialize_keyed!(Document, Entry, Range);

impl Keyed for Document {
    const KEYS: &'static [&'static str] = &["File", "Directory"];
    const EXPECTING: &'static str = "an object with \"File\" and \"Directory\"";

    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let List(mut entries) = map.next_value::<List<Entry, RULES_MAX>>()?;
        let is_folder = key == "Directory";
        let mut seen = HashSet::new();
        for entry in &mut entries {
            let path = entry.path.trim_end_matches('/');
            if !seen.insert(path.to_owned()) {
                let text = format!("{:?} is there twice; leave one out", entry.path);
                return Err(A::Error::custom(text));
            }
            let pattern = Pattern::of_path(path).and_then(|pattern| match is_folder {
                true => Pattern::parse(&format!("{}/*", pattern.text()), None),
                false => Ok(pattern),
            });
            entry.pattern = Some(pattern.map_err(A::Error::custom)?);
        }
        match is_folder {
            true => self.folders = entries,
            false => self.files = entries,
        }
        Ok(())
    }
}

impl Keyed for Entry {
    const KEYS: &'static [&'static str] = &[
        "Path",
        "BlockSize",
        "CacheSize",
        "ReadAheadSize",
        "WillNeed",
        "Sequential",
        "Random",
        "Normal",
    ];
    const EXPECTING: &'static str = "an object with \"Path\"";

    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        let access = match key {
            "Path" => {
                self.path = map.next_value()?;
                return Ok(());
            }
            "BlockSize" => {
                self.block_bytes = map.next_value()?;
                return Ok(());
            }
            "ReadAheadSize" => {
                self.ahead_blocks = map.next_value()?;
                return Ok(());
            }
            "CacheSize" => {
                let _: u64 = map.next_value()?;
                self.has_cache = true;
                return Ok(());
            }
            "Random" => Access::Random,
            _ => Access::Sequential,
        };
        let List(ranges) = map.next_value::<List<Range, REGIONS_MAX>>()?;
        if key == "Normal" {
            self.has_normal = true;
            return Ok(());
        }
        self.will_need |= key == "WillNeed";
        for Range(offset_bytes, length) in ranges {
            let length_bytes = (length > 0).then_some(length);
            self.regions.push(Region { offset_bytes, length_bytes, access });
        }
        self.regions.sort_by_key(|region| region.offset_bytes);
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        match self.path.is_empty() {
            true => Err("an entry has no \"Path\"; give the path in full".into()),
            false => Ok(()),
        }
    }
}

#[derive(Default)]
struct Range(u64, u64);

impl Keyed for Range {
    const KEYS: &'static [&'static str] = &["Offset", "Length"];
    const EXPECTING: &'static str = "an object with \"Offset\" and \"Length\"";

    fn take<'de, A: MapAccess<'de>>(&mut self, key: &str, map: &mut A) -> Result<(), A::Error> {
        match key {
            "Offset" => self.0 = map.next_value()?,
            _ => self.1 = map.next_value()?,
        }
        Ok(())
    }

    fn check(&self) -> Result<(), String> {
        let is_within = last_end(self.0, self.1, 0, None).is_some();
        is_within
            .then_some(())
            .ok_or("the range ends beyond the largest file (2⁶³ bytes); give less".into())
    }
}

/// At most `MAX` items.
struct List<T, const MAX: usize>(Vec<T>);

impl<'de, T: Deserialize<'de>, const MAX: usize> Deserialize<'de> for List<T, MAX> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct Items<T, const MAX: usize>(Vec<T>);
        impl<'de, T: Deserialize<'de>, const MAX: usize> Visitor<'de> for Items<T, MAX> {
            type Value = List<T, MAX>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list")
            }

            fn visit_seq<A: SeqAccess<'de>>(mut self, mut all: A) -> Result<Self::Value, A::Error> {
                while let Some(item) = all.next_element()? {
                    if self.0.len() == MAX {
                        return Err(A::Error::custom(format!(
                            "a list of more than {MAX}; split it"
                        )));
                    }
                    self.0.push(item);
                }
                Ok(List(self.0))
            }
        }
        deserializer.deserialize_seq(Items(Vec::new()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EXAMPLE: &str = r#"{
      "File": [{
        "Path": "/d/f*", "BlockSize": 8192, "CacheSize": 16, "ReadAheadSize": 4,
        "WillNeed": [{"Offset": 4096, "Length": 10240}],
        "Random": [{"Offset": 0, "Length": 4096}],
        "Sequential": [{"Offset": 20480, "Length": 0}]
      }, {"Path": "/d/n", "Normal": [{"Offset": 0, "Length": 0}]}],
      "Directory": [{"Path": "/d/", "Sequential": [{"Offset": 0, "Length": 0}]}]
    }"#;

    #[test]
    fn files_come_before_their_folders() {
        let rules = parse(EXAMPLE).expect("Mercury's form");
        assert_eq!(rules.rules().len(), 2);
        let plan = |path: &str| match &rules.find(path.as_bytes()).expect(path).action {
            Action::Read(plan) => plan.clone(),
            Action::Never => panic!("it has no such thing"),
        };
        let file = plan("/d/f*");
        assert_eq!((file.ahead_bytes, file.request_bytes), (Some(4 * 8192), Some(8192)));
        let region =
            |offset_bytes, length_bytes, access| Region { offset_bytes, length_bytes, access };
        let all = [
            region(0, Some(4096), Access::Random),
            region(4096, Some(10240), Access::Sequential),
            region(20480, None, Access::Sequential),
        ];
        assert_eq!(file.regions, all);
        let other = plan("/d/other");
        assert_eq!((other.ahead_bytes, other.request_bytes), (None, None));
        assert_eq!(other.regions, [Region::FILE]);
        assert!(rules.find(b"/d/below/other").is_none(), "a folder's own files alone");
    }

    #[test]
    fn what_has_no_effect_is_told() {
        let rules = parse(EXAMPLE).expect("Mercury's form");
        let told = rules.ignored().join("\n");
        for word in ["CacheSize", "Normal", "/d/n"] {
            assert!(told.contains(word), "{told}");
        }
    }

    #[test]
    fn sizes_of_zero_are_mercurys_defaults() {
        let text = r#"{"File": [{"Path": "/d", "BlockSize": 0, "WillNeed": [{"Offset": 1}]}]}"#;
        let rules = parse(text).expect("Mercury's form");
        let Action::Read(plan) = &rules.rules()[0].action else { panic!("it is read") };
        assert_eq!((plan.ahead_bytes, plan.request_bytes), (Some(12 << 20), Some(4 << 20)));
    }

    #[test]
    fn mistakes_are_told_with_their_places() {
        let table = [
            ("{\"Files\": []}", "line 1, column 8: unknown key \"Files\"; did you mean \"File\"?"),
            (
                "{\"File\": [{\"Path\": \"/d\",\n \"Willneed\": []}]}",
                "line 2, column 11: unknown key \"Willneed\"; did you mean \"WillNeed\"?",
            ),
            (
                "{\"File\": [{\"Path\": \"/d\", \"Random\": [{\"Ofset\": 1}]}]}",
                "did you mean \"Offset\"?",
            ),
            ("{\"File\": [{}]}", "no \"Path\""),
            ("{\"File\": [{\"Path\": \"d\"}]}", "begins nowhere"),
            ("{\"File\": [{\"Path\": 1}]}", "invalid type: integer `1`, expected a string"),
            ("{\"File\": [{\"Path\": \"/d\", \"Random\": [{\"Offset\": -1}]}]}", "expected u64"),
            ("{\"File\": [{\"Path\": \"/d\"}, {\"Path\": \"/d\"}]}", "is there twice"),
            ("{\"File\": [], \"File\": []}", "is there twice"),
            ("{\"File\": {}}", "expected a list"),
            ("{\"File\": [1]}", "expected an object with \"Path\""),
            (
                "{\"File\": [{\"Path\": \"/d\", \"Random\": [{\"Offset\": 18446744073709551615}]}]}",
                "beyond the largest file",
            ),
            ("{\"File\": [", "EOF while parsing"),
            ("{} x", "trailing characters"),
        ];
        for (text, told) in table {
            let problem = parse(text).map(|_| ()).expect_err(text).to_string();
            assert!(problem.contains(told) && problem.starts_with("line "), "{text}: {problem}");
        }
    }

    #[test]
    fn ranges_are_bounded() {
        let text = |ranges: usize| {
            let ranges = vec!["{}"; ranges].join(",");
            format!("{{\"File\": [{{\"Path\": \"/d\", \"Random\": [{ranges}]}}]}}")
        };
        assert!(parse(&text(REGIONS_MAX)).is_ok());
        let problem = parse(&text(REGIONS_MAX + 1)).map(|_| ()).expect_err("too many");
        assert!(problem.text.contains("split it"), "{problem}");
    }
}
