//! Which workload the user means.
//!
//! What was typed is compared, until something fits: (A) as a whole name (without secrets, as names are, or as it is printed),
//! (B) as the beginning of a key, (C) as the beginning of a name, (D) word by word, each with the name and the folder. If more
//! than one fits there, it is ambiguous. What cannot be undone needs A or B.

use foretell_manager::learn::masking;

use super::{Summary, quoted};
use crate::failure::{Failure, without_controls};

/// Characters of a key before its beginning is tried: a shorter one is as likely a word.
const KEY_MIN: usize = 4;

/// Workloads that a line names.
const NAMED_MAX: usize = 6;

/// Characters of a name that are compared with a misspelt one: the time is that of their square.
const COMPARED_MAX: usize = 80;

/// Characters of a key in a line.
const KEY_SHOWN: usize = 8;

/// The one of `all` that `wanted` names.
///
/// # Errors
/// None is, or several are; the line names them.
pub(super) fn find(all: Vec<Summary>, wanted: &str) -> Result<Summary, Failure> {
    let wanted = wanted.trim();
    let words: Vec<&str> = wanted.split_whitespace().collect();
    if words.is_empty() {
        return Err(Failure::usage("an empty name is no workload"));
    }
    let lower = wanted.to_ascii_lowercase();
    let is_key = wanted.len() >= KEY_MIN;
    let by_word = |one: &Summary| {
        let label = one.long_label();
        words.iter().all(|word| label.contains(word))
    };
    let masked = masking::line(wanted);
    let levels: [&dyn Fn(&Summary) -> bool; 4] = [
        &|one| {
            one.label() == wanted
                || one.label() == masked
                || without_controls(&one.label()) == wanted
        },
        &|one| is_key && one.key.starts_with(&lower),
        &|one| one.label().starts_with(wanted),
        &by_word,
    ];
    for fits in levels {
        let mut found = all.iter().filter(|one| fits(one));
        match (found.next(), found.next()) {
            (None, _) => {}
            (Some(one), None) => return Ok(one.clone()),
            (Some(_), Some(_)) => {
                let found: Vec<&Summary> = all.iter().filter(|one| fits(one)).collect();
                return Err(ambiguous(wanted, &found));
            }
        }
    }
    let way_out = match (all.is_empty(), near(&all, wanted)) {
        (true, _) => "nothing is learned yet".to_owned(),
        (false, Some(near)) => format!("did you mean {}?", named(near)),
        (false, None) => "`foretell learned list` tells what is".to_owned(),
    };
    let wanted = quoted(wanted);
    Err(Failure::failed(format!("{wanted}: no workload of this name or key; {way_out}")))
}

/// As [`find`], by the whole name or the beginning of a key only: what is done cannot be undone.
///
/// # Errors
/// As [`find`]; for a part of a name, the line names the workload that has it.
pub(super) fn find_whole(all: Vec<Summary>, wanted: &str) -> Result<Summary, Failure> {
    let wanted = wanted.trim();
    let one = find(all, wanted)?;
    let (label, folder) = (one.label(), one.long_label());
    // As it is printed, too: a name may have letters that cannot be typed.
    let is_name = [&label, &folder]
        .into_iter()
        .any(|name| *name == wanted || without_controls(name) == wanted)
        || label == masking::line(wanted);
    let is_key = wanted.len() >= KEY_MIN && one.key.starts_with(&wanted.to_ascii_lowercase());
    if is_name || is_key {
        return Ok(one);
    }
    let (wanted, near) = (quoted(wanted), named(&one));
    Err(Failure::failed(format!("{wanted}: no workload has this whole name; did you mean {near}?")))
}

/// The workload whose name, or as many words of its beginning, differs least from what was typed, if that is little.
fn near<'a>(all: &'a [Summary], wanted: &str) -> Option<&'a Summary> {
    let wanted: String = wanted.chars().take(COMPARED_MAX).collect();
    let words = wanted.split(' ').count();
    let edits = |one: &Summary| {
        let label = one.label();
        let name = label.strip_prefix("like ").unwrap_or(&label);
        let beginning = |name: &str| name.split(' ').take(words).collect::<Vec<_>>().join(" ");
        let edits = |name: &str| {
            let name: String = name.chars().take(COMPARED_MAX).collect();
            strsim::damerau_levenshtein(&wanted, &name)
        };
        [edits(&label), edits(name), edits(&beginning(name))].into_iter().min().unwrap_or(0)
    };
    let (edits, one) = all.iter().map(|one| (edits(one), one)).min_by_key(|(edits, _)| *edits)?;
    // A third of the letters: as rules and options are matched.
    (edits <= 1 + wanted.chars().count() / 3 && edits < wanted.chars().count()).then_some(one)
}

/// The workload in a line.
fn named(one: &Summary) -> String {
    format!("{} {}", &one.key[..KEY_SHOWN.min(one.key.len())], one.quoted_label())
}

fn ambiguous(wanted: &str, found: &[&Summary]) -> Failure {
    let named: Vec<String> = found.iter().take(NAMED_MAX).map(|one| named(one)).collect();
    let more = match found.len().saturating_sub(NAMED_MAX) {
        0 => String::new(),
        more => format!(", and {more} more"),
    };
    let (count, wanted) = (found.len(), quoted(wanted));
    Failure::failed(format!(
        "{wanted}: {count} workloads fit, so name one by its key: {}{more}",
        named.join(", ")
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary(key: &str, name: &str, kind: &'static str, folder: Option<&str>) -> Summary {
        Summary {
            key: key.into(),
            name: name.into(),
            kind,
            folder: folder.map(String::from),
            runs: 1,
            steps: 0,
            likely_steps: 0,
            likely_bytes: 0,
            disk_bytes: 0,
            used_at_s: 0,
            last: None,
            bytes_of_key: Vec::new(),
        }
    }

    fn all() -> Vec<Summary> {
        vec![
            summary("00aa11bb22", "git status", "exact", Some("/src/one")),
            summary("00aa33bb44", "git status", "alike", None),
            summary("ff00112233", "git log", "exact", Some("/src/one")),
            summary("ee00112233", "cc -c a.c", "exact", Some("/src/one")),
            summary("dd00112233", "cc -c a.c", "exact", Some("/src/two")),
            summary("cc00112233", "nightly", "named", None),
            summary("ab00112233", "nightly build", "named", None),
            summary("aa00112233", "curl --token … u", "exact", None),
        ]
    }

    fn found(wanted: &str) -> Result<String, String> {
        find(all(), wanted).map(|one| one.key).map_err(|failure| failure.line)
    }

    #[test]
    fn a_part_of_a_name_is_not_enough_for_what_cannot_be_undone() {
        let whole = |wanted| find_whole(all(), wanted).map(|one| one.key);
        for (wanted, key) in [
            ("git log", "ff00112233"),
            ("git log (in /src/one)", "ff00112233"),
            ("FF00", "ff00112233"),
            ("nightly", "cc00112233"),
            ("like git status", "00aa33bb44"),
            ("curl --token abc u", "aa00112233"),
        ] {
            assert_eq!(whole(wanted).ok().as_deref(), Some(key), "{wanted}");
        }
        for wanted in ["git l", "log one", "nightly b", "like"] {
            let line = whole(wanted).expect_err(wanted).line;
            assert!(line.contains("whole name; did you mean ") && line.ends_with('?'), "{line}");
        }
    }

    #[test]
    fn names_keys_beginnings_and_words_fit() {
        for (wanted, key) in [
            ("git status", "00aa11bb22"),
            ("like git status", "00aa33bb44"),
            ("like", "00aa33bb44"),
            ("git l", "ff00112233"),
            ("FF00", "ff00112233"),
            ("00aa3", "00aa33bb44"),
            ("nightly", "cc00112233"),
            ("nightly b", "ab00112233"),
            ("log one", "ff00112233"),
            ("cc two", "dd00112233"),
            ("curl --token abc u", "aa00112233"),
        ] {
            assert_eq!(found(wanted).as_deref(), Ok(key), "{wanted}");
        }
    }

    #[test]
    fn what_is_ambiguous_or_unknown_is_told_with_a_way_out() {
        let line = found("cc -c").expect_err("two");
        for part in ["\"cc -c\": 2 workloads", "ee001122 \"cc -c a.c\" (in /src/one)", "dd001122"] {
            assert!(line.contains(part), "{line}");
        }
        assert!(found("00aa").expect_err("two keys").contains("like git status"));
        assert!(found("git").expect_err("two names").contains("git log"));
        assert!(found("svn").expect_err("none").contains("foretell learned list"));
        for (wanted, near) in [
            ("git stauts", "did you mean 00aa11bb \"git status\" (in /src/one)?"),
            ("nigthly", "did you mean cc001122 nightly?"),
            ("nightlies build", "did you mean ab001122 \"nightly build\"?"),
            ("crul", "did you mean aa001122"),
        ] {
            let line = found(wanted).expect_err("misspelt");
            assert!(line.ends_with('?') && line.contains(near), "{line}");
        }
        assert!(found(" ").is_err());
        assert!(find(Vec::new(), "x").expect_err("none").line.contains("nothing is learned"));
    }
}
