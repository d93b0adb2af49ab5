//! Whatever is in a file, it is read or refused, and never a panic. What is read keeps what the crate promises about it.

use foretell_fault::damage::{Damage, cases};
use foretell_rules::{Access, Action, Rules, text};
use proptest::prelude::*;

const EXAMPLE: &str = include_str!("../../examples/rules.toml");

const MERCURY: &str = r#"{"File": [{"Path": "/d/f", "BlockSize": 8192, "CacheSize": 16, "ReadAheadSize": 4,
    "WillNeed": [{"Offset": 4096, "Length": 10240}], "Random": [{"Offset": 0, "Length": 4096}]}],
    "Directory": [{"Path": "/d", "Sequential": [{"Offset": 0, "Length": 0}]}]}"#;

/// Words that files of rules are made of, also where they do not belong.
const WORDS: [&str; 28] = [
    "[[rule]]\n",
    "[[rule.region]]\n",
    "path = ",
    "'/d/*'\n",
    "\"**/x\"\n",
    "[",
    "]",
    "{",
    "}",
    ",",
    "\n",
    "\"",
    "never = true\n",
    "ahead = ",
    "'8MiB'\n",
    "18446744073709551615\n",
    "-1\n",
    "0\n",
    "pattern = 'strided'\n",
    "length = 1\n",
    "stride = 2\n",
    "count = ",
    "offset = ",
    "'[a-'\n",
    "\u{fffd}",
    "\0",
    "~/",
    "0x",
];

fn check(content: &[u8]) {
    let rules = match Rules::parse(content, Some("/home/a")) {
        Ok(rules) => rules,
        Err(problems) => {
            assert!(!problems.is_empty());
            for problem in problems {
                let told = problem.to_string();
                assert!(!told.contains('\n'), "{told:?}");
                assert_eq!(
                    problem.line == 0,
                    problem.column == 0 && problem.line == 0,
                    "{problem:?}"
                );
            }
            return;
        }
    };
    for path in [&b"/d/f"[..], b"/", b"", b"/d/\xff", b"/home/a/x"] {
        let _ = rules.find(path);
    }
    for rule in rules.rules() {
        assert!(!rule.patterns.is_empty());
        let Action::Read(plan) = &rule.action else { continue };
        for region in &plan.regions {
            let end = region.offset_bytes.checked_add(region.length_bytes.unwrap_or(0));
            assert!(end.is_some_and(|end| end <= i64::MAX as u64), "{region:?}");
            if let Access::Strided { length_bytes, stride_bytes, count } = region.access {
                assert!(
                    length_bytes > 0 && stride_bytes >= length_bytes && count != Some(0),
                    "{region:?}"
                );
            }
        }
        let written = text("/x", &rule.action);
        let read = Rules::parse(written.as_bytes(), None).expect("what is written is read");
        assert_eq!(read.find(b"/x").map(|rule| &rule.action), Some(&rule.action));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(512))]

    #[test]
    fn any_bytes(content in proptest::collection::vec(any::<u8>(), 0..300)) {
        check(&content);
    }

    #[test]
    fn words_in_any_order(words in proptest::collection::vec(0..WORDS.len(), 0..40)) {
        let content: String = words.into_iter().map(|word| WORDS[word]).collect();
        check(content.as_bytes());
    }

    #[test]
    fn files_with_a_change(
        is_own: bool,
        at in any::<prop::sample::Index>(),
        cut in 0..40_usize,
        new in proptest::collection::vec(any::<u8>(), 0..4),
        word in 0..WORDS.len(),
    ) {
        let file = if is_own { EXAMPLE } else { MERCURY };
        let at = at.index(file.len());
        let rest = &file.as_bytes()[(at + cut).min(file.len())..];
        check(&[&file.as_bytes()[..at], &new, rest].concat());
        check(&[&file.as_bytes()[..at], WORDS[word].as_bytes(), rest].concat());
    }
}

#[test]
fn damaged_files_are_read_or_refused() {
    for number in 0..cases(1000) {
        let mut damage = Damage::of_case(number);
        let (file, other) =
            if damage.below(2) == 0 { (EXAMPLE, MERCURY) } else { (MERCURY, EXAMPLE) };
        let mut content = file.as_bytes().to_vec();
        damage.apply(&mut content, other.as_bytes());
        check(&content);
    }
}

#[test]
fn deep_nesting_is_refused() {
    for open in ["[", "{\"File\":[", "{a="] {
        check(format!("rule = {}", open.repeat(100_000)).as_bytes());
        check(open.repeat(100_000).as_bytes());
    }
}

#[test]
fn a_file_that_is_too_large_is_refused() {
    let problems =
        Rules::parse(&vec![b' '; foretell_rules::FILE_MAX_BYTES + 1], None).expect_err("too large");
    assert!(problems[0].text.contains("4 MiB"), "{problems:?}");
}

#[test]
fn a_file_that_is_no_text_is_refused_with_its_place() {
    let problems = Rules::parse(b"[[rule]]\npath = '\xff'\n", None).expect_err("no text");
    assert_eq!(problems[0].to_string(), "line 2, column 9: is not text (UTF-8)");
}

#[test]
fn an_empty_file_has_no_rules() {
    assert!(Rules::parse(b"# nothing\n", None).expect("no rules").rules().is_empty());
}

#[test]
fn the_example_has_each_key() {
    let rules = Rules::parse(EXAMPLE.as_bytes(), Some("/home/a")).expect("good rules");
    assert!(rules.rules().iter().any(|rule| rule.action == Action::Never));
    for key in [
        "path",
        "never",
        "ahead",
        "region",
        "offset",
        "length",
        "pattern",
        "stride",
        "count",
        "sequential",
        "strided",
        "whole",
        "random",
    ] {
        assert!(EXAMPLE.contains(key), "{key}");
    }
}
