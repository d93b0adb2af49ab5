//! Checks of well-formed pages, for the tests of all reports.

/// Elements without an end tag.
const VOID: [&str; 1] = ["meta"];

/// Checks that tags are closed in order, and that text and attributes contain nothing unescaped.
pub(in crate::demo) fn assert_well_formed(page: &str) {
    let mut open: Vec<&str> = Vec::new();
    let mut rest = page.strip_prefix("<!DOCTYPE html>").expect("a doctype");
    while let Some(at) = rest.find('<') {
        assert!(open.last() == Some(&"style") || !rest[..at].contains('>'), "{}", &rest[..at]);
        let end = at + rest[at..].find('>').expect("the tag ends");
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "closes what is open");
            continue;
        }
        assert!(!tag.contains('<'), "{tag}");
        assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
        let name = tag.split([' ', '/']).next().unwrap_or_default();
        if !tag.ends_with('/') && !VOID.contains(&name) {
            open.push(name);
        }
    }
    assert!(open.is_empty(), "{open:?}");
}

pub(in crate::demo) fn assert_no_nonsense(page: &str) {
    for nonsense in ["NaN", "inf\u{a0}", "inf<", "\"inf", "-0.00"] {
        assert!(!page.contains(nonsense), "{nonsense}");
    }
}
