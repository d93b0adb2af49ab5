//! What a file of rules means, in words and as JSON.

use std::ffi::OsStr;
use std::fmt::Write;
use std::os::unix::ffi::OsStrExt;
use std::path::{self, PathBuf};

use foretell_manager::learn::recording::without_dots;
use foretell_rules::{
    Access, Action, After, BackendKind, Plan, Problem, REQUEST_MAX_BYTES, Region, Rule, Rules,
};
use serde::Serialize;

use crate::failure::without_controls;
use crate::size;

/// See the [module](self).
#[derive(Serialize)]
pub(super) struct Meaning {
    rules: Vec<RuleMeaning>,
    /// What of the file has no effect.
    ignored: Vec<String>,
    paths: Vec<PathMeaning>,
    problems: Vec<ProblemMeaning>,
}

#[derive(Serialize)]
struct RuleMeaning {
    /// From 1.
    number: usize,
    line: Option<usize>,
    path: Vec<String>,
    never: bool,
    ahead_bytes: Option<u64>,
    request_bytes: Option<u64>,
    after: &'static str,
    backend: &'static str,
    regions: Vec<RegionMeaning>,
}

#[derive(Serialize)]
struct RegionMeaning {
    pattern: &'static str,
    offset_bytes: u64,
    length_bytes: Option<u64>,
    stride_bytes: Option<u64>,
    count: Option<u64>,
}

#[derive(Serialize)]
struct PathMeaning {
    path: String,
    /// The number of the rule that applies.
    rule: Option<usize>,
}

#[derive(Serialize)]
struct ProblemMeaning {
    line: usize,
    column: usize,
    text: String,
}

impl Meaning {
    pub(super) fn new(rules: Result<&Rules, &[Problem]>, paths: &[PathBuf]) -> Self {
        let mut meaning = Meaning {
            rules: Vec::new(),
            ignored: Vec::new(),
            paths: Vec::new(),
            problems: Vec::new(),
        };
        match rules {
            Ok(rules) => {
                meaning.rules = (1..).zip(rules.rules()).map(of_rule).collect();
                meaning.ignored = rules.ignored().to_vec();
                meaning.paths = paths.iter().map(|path| of_path(rules, path)).collect();
            }
            Err(problems) => meaning.problems = problems.iter().map(of_problem).collect(),
        }
        meaning
    }

    /// A line for the file, for each rule, for each path, and for what has no effect.
    pub(super) fn lines(&self, name: &str) -> String {
        let mut lines = String::new();
        let mut line = |text: String| {
            let _ = writeln!(lines, "{}", without_controls(&text));
        };
        match self.rules.len() {
            0 => line(format!("{name}: no rules")),
            1 => line(format!("{name}: 1 rule")),
            rules => {
                line(format!("{name}: {rules} rules; the last one that matches a path applies"))
            }
        }
        for rule in &self.rules {
            line(format!("  {}: {}: {}", rule.place(), rule.path.join(", "), rule.words()));
        }
        for ignored in &self.ignored {
            line(format!("  no effect: {ignored}"));
        }
        for PathMeaning { path, rule } in &self.paths {
            let applied = rule.and_then(|number| self.rules.get(number - 1));
            line(match applied {
                Some(rule) => format!("{path}: {}: {}", rule.place(), rule.words()),
                None => format!("{path}: no rule"),
            });
        }
        lines
    }
}

impl RuleMeaning {
    fn place(&self) -> String {
        match self.line {
            Some(line) => format!("rule {} (line {line})", self.number),
            None => format!("rule {}", self.number),
        }
    }

    fn words(&self) -> String {
        if self.never {
            return "nothing is read ahead".into();
        }
        let mut words = match &self.regions[..] {
            [] => "the whole file in order".to_owned(),
            regions => regions.iter().map(RegionMeaning::words).collect::<Vec<_>>().join(", then "),
        };
        if let Some(bytes) = self.ahead_bytes {
            let _ = write!(words, "; at most {} ahead", size::display(bytes));
        }
        if let Some(bytes) = self.request_bytes {
            let _ = write!(words, "; in requests of up to {}", size::display(bytes));
        }
        if self.after == "release" {
            words.push_str("; dropped from memory once read");
        }
        if self.backend != BackendKind::Auto.name() {
            let _ = write!(words, "; fetched by {}", self.backend);
        }
        words
    }
}

impl RegionMeaning {
    fn words(&self) -> String {
        let from = size::display(self.offset_bytes);
        if let Some(stride) = self.stride_bytes {
            let (length, stride) =
                (size::display(self.length_bytes.unwrap_or(0)), size::display(stride));
            return match self.count {
                Some(count) => format!("{count} parts of {length}, {stride} apart, from {from} on"),
                None => format!("parts of {length}, {stride} apart, from {from} to the end"),
            };
        }
        let part = match (self.offset_bytes, self.length_bytes) {
            (0, None) => "the whole file".to_owned(),
            (_, None) => format!("from {from} to the end"),
            (_, Some(length)) => format!("{} from {from} on", size::display(length)),
        };
        match self.pattern {
            "whole" => format!("{part}, in any order"),
            "random" => format!("{part}: not ahead"),
            _ => format!("{part} in order"),
        }
    }
}

fn of_rule((number, rule): (usize, &Rule)) -> RuleMeaning {
    let none = Plan::default();
    let plan = match &rule.action {
        Action::Read(plan) => plan,
        Action::Never => &none,
    };
    let after = After::ALL.iter().find(|(_, after)| *after == plan.after);
    RuleMeaning {
        number,
        line: (rule.line > 0).then_some(rule.line),
        path: rule.patterns.iter().map(|pattern| pattern.text().to_owned()).collect(),
        never: rule.action == Action::Never,
        ahead_bytes: plan.ahead_bytes,
        request_bytes: plan.request_bytes.map(|bytes| bytes.min(REQUEST_MAX_BYTES)),
        after: after.map_or("keep", |(name, _)| name),
        backend: plan.backend.name(),
        regions: plan.regions.iter().map(of_region).collect(),
    }
}

fn of_region(region: &Region) -> RegionMeaning {
    let (pattern, length_bytes, stride_bytes, count) = match region.access {
        Access::Sequential => ("sequential", region.length_bytes, None, None),
        Access::Whole => ("whole", region.length_bytes, None, None),
        Access::Random => ("random", region.length_bytes, None, None),
        Access::Strided { length_bytes, stride_bytes, count } => {
            ("strided", Some(length_bytes), Some(stride_bytes), count)
        }
    };
    RegionMeaning { pattern, offset_bytes: region.offset_bytes, length_bytes, stride_bytes, count }
}

fn of_path(rules: &Rules, path: &PathBuf) -> PathMeaning {
    // As programs' names are taken: without a look at the file system.
    let absolute = path::absolute(path).unwrap_or_else(|_| path.clone());
    let plain = without_dots(OsStr::as_bytes(absolute.as_os_str()));
    let found = rules.find(&plain);
    let rule =
        found.and_then(|found| rules.rules().iter().position(|rule| std::ptr::eq(rule, found)));
    PathMeaning { path: path.display().to_string(), rule: rule.map(|at| at + 1) }
}

fn of_problem(problem: &Problem) -> ProblemMeaning {
    let Problem { line, column, text } = problem;
    ProblemMeaning { line: *line, column: *column, text: text.clone() }
}
