//! Rules in foretell's own form, TOML.
//!
//! The document is read as a tree that knows its places, so that each mistake is told with its line and column, and reading
//! goes on behind it. What a rule says is checked here once, so that nothing later has to.

use std::ops::Range;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use crate::problem::{Problem, nearest, unknown, unknown_of_few};
use crate::{
    Access, Action, After, BackendKind, GLOBS_MAX, PATTERNS_MAX, Pattern, Plan, REGIONS_ALL_MAX,
    REGIONS_MAX, REQUEST_MAX_BYTES, REQUEST_MIN_BYTES, RULES_MAX, Region, Rule, Rules, size,
};

/// Mistakes that are told of one file. What follows is often a consequence.
const PROBLEMS_MAX: usize = 20;

const KEYS: [&str; 7] = ["path", "never", "ahead", "request", "after", "backend", "region"];
const REGION_KEYS: [&str; 5] = ["offset", "length", "pattern", "stride", "count"];
const PATTERNS: [&str; 4] = ["sequential", "strided", "whole", "random"];

struct Reading<'t> {
    text: &'t str,
    home: Option<&'t str>,
    problems: Vec<Problem>,
    regions: usize,
    globs: usize,
}

type Value<'t> = Spanned<DeValue<'t>>;

/// Reads the file; see the [module](self).
pub(crate) fn parse(text: &str, home: Option<&str>) -> Result<Rules, Vec<Problem>> {
    let table = DeTable::parse(text).map_err(|error| {
        let at = error.span().map_or(0, |span| span.start);
        let message = error.message().replace('\n', " ");
        vec![Problem::at(text, at, format!("{message} (this is no TOML)"))]
    })?;
    let mut reading = Reading { text, home, problems: Vec::new(), regions: 0, globs: 0 };
    let rules = reading.rules(table.get_ref());
    match reading.problems.is_empty() {
        true => Ok(Rules::new(rules, Vec::new())),
        false => {
            reading.problems.sort_by_key(|problem| (problem.line, problem.column));
            reading.problems.truncate(PROBLEMS_MAX);
            Err(reading.problems)
        }
    }
}

impl<'t> Reading<'t> {
    fn wrong(&mut self, at: &Range<usize>, text: impl Into<String>) {
        if self.problems.len() <= PROBLEMS_MAX {
            self.problems.push(Problem::at(self.text, at.start, text));
        }
    }

    /// The value's text, number or other content is not what `key` needs.
    fn wrong_kind(&mut self, key: &str, value: &Value<'_>, wanted: &str) {
        let is = match value.get_ref() {
            DeValue::String(_) => "a text",
            DeValue::Integer(_) => "a number",
            DeValue::Float(_) => "a number with a point",
            DeValue::Boolean(_) => "true or false",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.wrong(&value.span(), format!("`{key}` is {is}; give {wanted}"));
    }

    fn rules(&mut self, table: &DeTable<'_>) -> Vec<Rule> {
        let mut rules = Vec::new();
        for (key, value) in table {
            let (name, at) = (key.get_ref(), key.span());
            let entries = match (name.as_ref(), value.get_ref()) {
                ("rule", DeValue::Array(entries)) => entries,
                ("rule", _) => {
                    self.wrong(&at, "`rule` is a list; begin each rule with [[rule]]");
                    continue;
                }
                _ if KEYS.contains(&name.as_ref()) => {
                    self.wrong(&at, format!("`{name}` is in no rule; write [[rule]] above it"));
                    continue;
                }
                _ => {
                    self.wrong(&at, unknown("key", name, &["rule"]));
                    continue;
                }
            };
            if entries.len() > RULES_MAX {
                let text = format!(
                    "more than {RULES_MAX} rules; give patterns (`*`, `**`) or several paths in a rule"
                );
                self.wrong(&at, text);
                continue;
            }
            for entry in entries.iter() {
                let DeValue::Table(table) = entry.get_ref() else {
                    self.wrong_kind("rule", entry, "a table: [[rule]]");
                    continue;
                };
                rules.extend(self.rule(table, &entry.span()));
            }
        }
        rules
    }

    fn rule(&mut self, table: &DeTable<'_>, at: &Range<usize>) -> Option<Rule> {
        let mut patterns = None;
        let (mut never, mut plan) = (false, Plan::default());
        let (mut beside_never, mut has_misspelt_path) = (Vec::new(), false);
        let mut never_at = at.clone();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match name {
                "path" => {
                    let all = self.patterns(value);
                    self.globs += all.iter().filter(|pattern| pattern.plain().is_none()).count();
                    if self.globs > GLOBS_MAX {
                        let text = format!(
                            "more than {GLOBS_MAX} patterns in the file; join some, or give paths in full"
                        );
                        self.wrong(&value.span(), text);
                    }
                    patterns = Some(all);
                }
                "never" => match value.get_ref() {
                    DeValue::Boolean(is) => (never, never_at) = (*is, key.span()),
                    _ => self.wrong_kind(name, value, "true or false"),
                },
                "ahead" => plan.ahead_bytes = self.size(name, value, 1),
                "request" => plan.request_bytes = self.request(name, value),
                "after" => {
                    plan.after = self.one_of(name, value, &After::ALL).unwrap_or_default();
                }
                "backend" => {
                    plan.backend = self.one_of(name, value, &BackendKind::ALL).unwrap_or_default();
                }
                "region" => plan.regions = self.regions(value),
                _ => {
                    // A key of a region is there because the header of the region is missing.
                    let text = match REGION_KEYS.contains(&name) {
                        true => format!("`{name}` is of a region; write [[rule.region]] above it"),
                        false => unknown("key", name, &KEYS),
                    };
                    has_misspelt_path |= nearest(name, &KEYS) == Some("path");
                    self.wrong(&key.span(), text);
                }
            }
            if KEYS.contains(&name) && !matches!(name, "path" | "never") {
                beside_never.push((key.span().start, format!("`{name}`")));
            }
        }
        if never && !beside_never.is_empty() {
            beside_never.sort();
            let mut names: Vec<String> = beside_never.into_iter().map(|(_, name)| name).collect();
            let last = names.pop().unwrap_or_default();
            let text = match names.is_empty() {
                true => format!("{last} has no effect; leave out `never` or {last}"),
                false => {
                    format!(
                        "{} and {last} have no effect; leave out `never`, or these",
                        names.join(", ")
                    )
                }
            };
            let text = format!("`never` reads nothing ahead, so {text}");
            self.wrong(&never_at, text);
        }
        let Some(patterns) = patterns else {
            // One mistake is told once.
            if !has_misspelt_path {
                self.wrong(at, "the rule has no `path`; give a pattern, or a list of them");
            }
            return None;
        };
        let line = Problem::at(self.text, at.start, "").line;
        let action = if never { Action::Never } else { Action::Read(plan) };
        Some(Rule { line, patterns, action })
    }

    fn patterns(&mut self, value: &Value<'_>) -> Vec<Pattern> {
        let one = |reading: &mut Self, value: &Value<'_>| match value.get_ref() {
            DeValue::String(text) => match Pattern::parse(text, reading.home) {
                Ok(pattern) => Some(pattern),
                Err(error) => {
                    reading.wrong(&value.span(), error);
                    None
                }
            },
            _ => {
                reading.wrong_kind("path", value, "a pattern in quotes, or a list of them");
                None
            }
        };
        match value.get_ref() {
            DeValue::Array(all) if all.is_empty() => {
                self.wrong(&value.span(), "`path` is an empty list; give a pattern");
                Vec::new()
            }
            DeValue::Array(all) if all.len() > PATTERNS_MAX => {
                let text = format!("more than {PATTERNS_MAX} patterns; give them in several rules");
                self.wrong(&value.span(), text);
                Vec::new()
            }
            DeValue::Array(all) => all.iter().filter_map(|value| one(self, value)).collect(),
            _ => one(self, value).into_iter().collect(),
        }
    }

    fn regions(&mut self, value: &Value<'_>) -> Vec<Region> {
        let DeValue::Array(entries) = value.get_ref() else {
            self.wrong_kind("region", value, "a list: begin each region with [[rule.region]]");
            return Vec::new();
        };
        self.regions = self.regions.saturating_add(entries.len());
        if entries.len() > REGIONS_MAX || self.regions > REGIONS_ALL_MAX {
            let text = format!(
                "more than {REGIONS_MAX} regions of a rule, or {REGIONS_ALL_MAX} of all; join neighbours, or give a stride"
            );
            self.wrong(&value.span(), text);
            return Vec::new();
        }
        let mut regions = Vec::with_capacity(entries.len());
        for entry in entries.iter() {
            match entry.get_ref() {
                DeValue::Table(table) => regions.extend(self.region(table, &entry.span())),
                _ => self.wrong_kind("region", entry, "a table: [[rule.region]]"),
            }
        }
        regions
    }

    fn region(&mut self, table: &DeTable<'_>, at: &Range<usize>) -> Option<Region> {
        let (mut offset, mut length, mut stride, mut count) = (None, None, None, None);
        let mut pattern = "sequential";
        let before = self.problems.len();
        for (key, value) in table {
            let name = key.get_ref().as_ref();
            match name {
                "offset" => offset = self.size(name, value, 0),
                "length" => length = self.size(name, value, 1),
                "stride" => stride = self.size(name, value, 1),
                "count" => count = self.number(name, value),
                "pattern" => {
                    let all = PATTERNS.map(|pattern| (pattern, pattern));
                    pattern = self.one_of(name, value, &all).unwrap_or(pattern);
                }
                _ => self.wrong(&key.span(), unknown("key", name, &REGION_KEYS)),
            }
        }
        if self.problems.len() > before {
            return None;
        }
        let offset_bytes = offset.unwrap_or(0);
        let region = |access, length_bytes| Some(Region { offset_bytes, length_bytes, access });
        let text = match (pattern, length, stride) {
            ("strided", Some(length_bytes), Some(stride_bytes)) => {
                match last_end(offset_bytes, length_bytes, stride_bytes, count) {
                    _ if stride_bytes < length_bytes => {
                        "`stride` is shorter than `length`, so parts overlap; give a longer one, or leave out `pattern`"
                    }
                    None => "the region ends beyond the largest file (2⁶³ bytes); give less",
                    Some(_) => {
                        return region(Access::Strided { length_bytes, stride_bytes, count }, None);
                    }
                }
            }
            ("strided", ..) => {
                "a strided region needs `length` (of each part) and `stride` (from one part's beginning to the next)"
            }
            (_, _, Some(_)) => "`stride` is of a strided region; write pattern = \"strided\"",
            _ if count.is_some() => "`count` is of a strided region; write pattern = \"strided\"",
            _ if last_end(offset_bytes, length.unwrap_or(0), 0, None).is_none() => {
                "the region ends beyond the largest file (2⁶³ bytes); give less"
            }
            ("whole", ..) => return region(Access::Whole, length),
            ("random", ..) => return region(Access::Random, length),
            _ => return region(Access::Sequential, length),
        };
        self.wrong(at, text);
        None
    }

    fn one_of<T: Copy>(
        &mut self,
        key: &str,
        value: &Value<'_>,
        known: &[(&'static str, T)],
    ) -> Option<T> {
        let names: Vec<&str> = known.iter().map(|(name, _)| *name).collect();
        let DeValue::String(text) = value.get_ref() else {
            self.wrong_kind(key, value, &format!("one of {}, in quotes", names.join(", ")));
            return None;
        };
        let found = known.iter().find(|(name, _)| name == text).map(|&(_, value)| value);
        if found.is_none() {
            // A value that is near, with all of them: there are few.
            self.wrong(&value.span(), unknown_of_few(&format!("`{key}`"), text, &names));
        }
        found
    }

    /// A size of at least `least` bytes.
    fn size(&mut self, key: &str, value: &Value<'_>, least: u64) -> Option<u64> {
        let bytes = match value.get_ref() {
            DeValue::String(text) => match size::parse(text) {
                Ok(bytes) => bytes,
                Err(error) => {
                    self.wrong(&value.span(), format!("`{key}`: {error}"));
                    return None;
                }
            },
            DeValue::Integer(_) => self.whole_number(key, value)?,
            _ => {
                self.wrong_kind(key, value, "a number of bytes, or a size such as \"64KiB\"");
                return None;
            }
        };
        if bytes < least {
            let text = format!("`{key}` is 0; leave it out, or give at least one byte");
            self.wrong(&value.span(), text);
        }
        (bytes >= least).then_some(bytes)
    }

    /// The size of a request.
    fn request(&mut self, key: &str, value: &Value<'_>) -> Option<u64> {
        let bytes = self.size(key, value, 0)?;
        if !(REQUEST_MIN_BYTES..=REQUEST_MAX_BYTES).contains(&bytes) {
            let (least, most) =
                (size::display(REQUEST_MIN_BYTES), size::display(REQUEST_MAX_BYTES));
            let given = size::display(bytes);
            let text = format!("`{key}` is {given}; give a size from {least} to {most}");
            self.wrong(&value.span(), text);
            return None;
        }
        Some(bytes)
    }

    /// A number of at least 1.
    fn number(&mut self, key: &str, value: &Value<'_>) -> Option<u64> {
        if !matches!(value.get_ref(), DeValue::Integer(_)) {
            self.wrong_kind(key, value, "a number");
            return None;
        }
        let number = self.whole_number(key, value)?;
        if number == 0 {
            self.wrong(
                &value.span(),
                format!("`{key}` is 0; leave out the region, or give at least 1"),
            );
        }
        (number > 0).then_some(number)
    }

    fn whole_number(&mut self, key: &str, value: &Value<'_>) -> Option<u64> {
        let DeValue::Integer(number) = value.get_ref() else { return None };
        let parsed = u64::from_str_radix(number.as_str(), number.radix()).ok();
        if parsed.is_none() {
            let text = match number.as_str().starts_with('-') {
                true => format!("`{key}` is negative; give a positive number"),
                false => format!("`{key}` is too large; give a smaller number"),
            };
            self.wrong(&value.span(), text);
        }
        parsed
    }
}

/// The end of the last part of a region, if it lies within the largest file.
pub(crate) fn last_end(offset: u64, length: u64, stride: u64, count: Option<u64>) -> Option<u64> {
    let last = stride.checked_mul(count.unwrap_or(1) - 1)?;
    let end = offset.checked_add(last)?.checked_add(length)?;
    (end <= i64::MAX as u64).then_some(end)
}

#[cfg(test)]
mod tests;
