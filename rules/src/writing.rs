//! Rules as text that [`Rules::parse`](crate::Rules::parse) reads.

use std::fmt::Write;

use crate::glob::escaped;
use crate::{Access, Action, After, BackendKind, Plan, Region, size};

/// A rule about the file at `path`. The keys that have their defaults are left out.
pub fn text(path: &str, action: &Action) -> String {
    let mut text = String::from("[[rule]]\n");
    let _ = writeln!(text, "path = {}", quoted(&escaped(path)));
    match action {
        Action::Never => text.push_str("never = true\n"),
        Action::Read(plan) => plan_text(&mut text, plan),
    }
    text
}

fn plan_text(text: &mut String, plan: &Plan) {
    if let Some(bytes) = plan.ahead_bytes {
        let _ = writeln!(text, "ahead = {}", size_text(bytes));
    }
    if let Some(bytes) = plan.request_bytes {
        let _ = writeln!(text, "request = {}", size_text(bytes));
    }
    if plan.after == After::Release {
        text.push_str("after = \"release\"\n");
    }
    if plan.backend != BackendKind::Auto {
        let _ = writeln!(text, "backend = {}", quoted(plan.backend.name()));
    }
    for region in &plan.regions {
        text.push_str("[[rule.region]]\n");
        region_text(text, region);
    }
}

fn region_text(text: &mut String, region: &Region) {
    let mut line = |key: &str, value: String| {
        let _ = writeln!(text, "{key} = {value}");
    };
    match region.access {
        Access::Sequential => {}
        Access::Strided { .. } => line("pattern", quoted("strided")),
        Access::Whole => line("pattern", quoted("whole")),
        Access::Random => line("pattern", quoted("random")),
    }
    if region.offset_bytes > 0 {
        line("offset", size_text(region.offset_bytes));
    }
    if let Some(bytes) = region.length_bytes {
        line("length", size_text(bytes));
    }
    if let Access::Strided { length_bytes, stride_bytes, count } = region.access {
        line("length", size_text(length_bytes));
        line("stride", size_text(stride_bytes));
        count.into_iter().for_each(|count| line("count", count.to_string()));
    }
}

/// With a unit where that says the same.
fn size_text(bytes: u64) -> String {
    let shown = size::display(bytes).replace(' ', "");
    match size::parse(&shown) {
        Ok(same) if same == bytes && bytes >= 1 << 10 => quoted(&shown),
        _ => bytes.to_string(),
    }
}

/// A text of TOML.
fn quoted(text: &str) -> String {
    let mut quoted = String::from("\"");
    for letter in text.chars() {
        match letter {
            '"' | '\\' => quoted.extend(['\\', letter]),
            letter if letter.is_control() => {
                let _ = write!(quoted, "\\U{:08X}", u32::from(letter));
            }
            letter => quoted.push(letter),
        }
    }
    quoted.push('"');
    quoted
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Rules;

    #[test]
    fn what_is_written_is_read_as_the_same() {
        let strided = |count| Region {
            offset_bytes: 3,
            length_bytes: None,
            access: Access::Strided { length_bytes: 4097, stride_bytes: 1 << 20, count },
        };
        let part = |access| Region { offset_bytes: 1 << 30, length_bytes: Some(1000), access };
        let plan = Plan {
            regions: vec![
                Region::FILE,
                strided(None),
                strided(Some(7)),
                part(Access::Whole),
                part(Access::Random),
                part(Access::Sequential),
            ],
            ahead_bytes: Some(3 << 19),
            request_bytes: Some(1 << 20),
            after: After::Release,
            backend: BackendKind::ReadThrough,
        };
        for action in [Action::Never, Action::Read(Plan::default()), Action::Read(plan)] {
            for path in ["/a", "/a b\"\\\t\u{1}*?[x]ä"] {
                let rules = text(path, &action);
                let read = Rules::parse(rules.as_bytes(), None).expect("good rules");
                let rule = read.find(path.as_bytes()).expect("its own path");
                assert_eq!(rule.action, action, "{rules}");
            }
        }
    }

    #[test]
    fn sizes_have_units_where_they_are_whole() {
        let all = [0, 1000, 1024, 1025, 1536, 1 << 40, (1 << 40) + 1].map(size_text);
        assert_eq!(
            all,
            ["0", "1000", "\"1KiB\"", "1025", "\"1.5KiB\"", "\"1TiB\"", "1099511627777"]
        );
    }
}
