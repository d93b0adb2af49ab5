//! What a file of rules says, and its mistakes.

use super::*;

fn plan(text: &str) -> Plan {
    let text = format!("[[rule]]\npath = '/x'\n{text}");
    let rules = parse(&text, None).expect("good rules");
    match &rules.rules()[0].action {
        Action::Read(plan) => plan.clone(),
        Action::Never => panic!("it is read"),
    }
}

fn problems(text: &str) -> Vec<String> {
    let problems = parse(text, None).map(|_| ()).expect_err(text);
    problems.iter().map(ToString::to_string).collect()
}

fn region(text: &str) -> Region {
    plan(&format!("[[rule.region]]\n{text}")).regions[0]
}

#[test]
fn a_misspelt_path_is_one_mistake() {
    let told = problems("[[rule]]\npth = '/x'\n");
    assert_eq!(told, ["line 2, column 1: unknown key \"pth\"; did you mean \"path\"?"]);
    assert_eq!(problems("[[rule]]\nnevr = true\n").len(), 2);
}

#[test]
fn path_is_a_pattern_or_a_list_and_tilde_is_the_home_folder() {
    let rules = parse("[[rule]]\npath = ['/a/*', '~/b']\n", Some("/h")).expect("good rules");
    for path in ["/a/x", "/h/b"] {
        assert!(rules.find(path.as_bytes()).is_some(), "{path}");
    }
    assert_eq!(rules.rules()[0].patterns[1].text(), "~/b");
}

#[test]
fn never_is_true_or_false() {
    let never = |is| parse(&format!("[[rule]]\npath = '/x'\nnever = {is}\n"), None);
    let action = |is| never(is).expect("good rules").rules()[0].action.clone();
    assert_eq!(action("true"), Action::Never);
    assert_eq!(action("false"), Action::Read(Plan::default()));
    assert!(never("1").is_err());
}

#[test]
fn ahead_and_request_are_sizes() {
    assert_eq!(plan("ahead = '8MiB'\n").ahead_bytes, Some(8 << 20));
    assert_eq!(plan("ahead = 65_536\n").ahead_bytes, Some(65_536));
    assert_eq!(plan("ahead = 0x1000\n").ahead_bytes, Some(4096));
    assert_eq!(plan("").ahead_bytes, None);
    assert_eq!(plan("request = '1MiB'\n").request_bytes, Some(1 << 20));
    assert_eq!(plan("").request_bytes, None);
}

#[test]
fn after_and_backend_have_their_values() {
    for (name, after) in After::ALL {
        assert_eq!(plan(&format!("after = '{name}'\n")).after, after);
    }
    for (name, backend) in BackendKind::ALL {
        assert_eq!(plan(&format!("backend = '{name}'\n")).backend, backend);
    }
    assert_eq!((plan("").after, plan("").backend), (After::Keep, BackendKind::Auto));
}

#[test]
fn a_region_has_offset_length_and_pattern() {
    assert_eq!(region(""), Region::FILE);
    let part =
        Region { offset_bytes: 4096, length_bytes: Some(1 << 20), access: Access::Sequential };
    assert_eq!(region("offset = 4096\nlength = '1MiB'\n"), part);
    assert_eq!(region("offset = 4096\nlength = '1MiB'\npattern = 'sequential'\n"), part);
    assert_eq!(region("pattern = 'whole'\n"), Region { access: Access::Whole, ..Region::FILE });
    assert_eq!(region("pattern = 'random'\n"), Region { access: Access::Random, ..Region::FILE });
}

#[test]
fn a_strided_region_has_stride_and_count() {
    let strided = |count| Region {
        offset_bytes: 8,
        length_bytes: None,
        access: Access::Strided { length_bytes: 4096, stride_bytes: 1 << 20, count },
    };
    let text = "pattern = 'strided'\noffset = 8\nlength = '4KiB'\nstride = '1MiB'\n";
    assert_eq!(region(text), strided(None));
    assert_eq!(region(&format!("{text}count = 3\n")), strided(Some(3)));
}

#[test]
fn regions_may_be_written_in_a_line() {
    let plan = plan("region = [{ length = 1 }, { offset = 2 }]\n");
    assert_eq!(plan.regions.len(), 2);
}

#[test]
fn mistakes_are_told_with_their_places_and_the_way_out() {
    let table = [
        (
            "[[rules]]\npath = '/x'\n",
            "line 1, column 3: unknown key \"rules\"; did you mean \"rule\"?",
        ),
        ("path = '/x'\n", "line 1, column 1: `path` is in no rule; write [[rule]] above it"),
        (
            "[rule]\npath = '/x'\n",
            "line 1, column 2: `rule` is a list; begin each rule with [[rule]]",
        ),
        ("[[rule]]\nnever = true\n", "line 1, column 1: the rule has no `path`"),
        ("[[rule]]\npath = 'x'\n", "line 2, column 8: the pattern \"x\" begins nowhere"),
        ("[[rule]]\npath = []\n", "line 2, column 8: `path` is an empty list"),
        ("[[rule]]\npath = 7\n", "line 2, column 8: `path` is a number"),
        (
            "[[rule]]\npath = '/x'\npaht = 1\n",
            "line 3, column 1: unknown key \"paht\"; did you mean \"path\"?",
        ),
        ("[[rule]]\npath = '/x'\nahead = 'much'\n", "line 3, column 9: `ahead`: not a size"),
        ("[[rule]]\npath = '/x'\nahead = 0\n", "line 3, column 9: `ahead` is 0"),
        ("[[rule]]\npath = '/x'\nahead = -1\n", "line 3, column 9: `ahead` is negative"),
        (
            "[[rule]]\npath = '/x'\nahead = 1.5\n",
            "line 3, column 9: `ahead` is a number with a point",
        ),
        ("[[rule]]\npath = '/x'\nafter = 'realease'\n", "did you mean \"release\"?"),
        ("[[rule]]\npath = '/x'\nbackend = 'object'\n", "known are auto, posix, readahead"),
        ("[[rule]]\npath = '/x'\noffset = 1\n", "line 3, column 1: `offset` is of a region"),
        (
            "[[rule]]\npath = '/x'\nahead = 1\nnever = true\n",
            "line 4, column 1: `never` reads nothing ahead, so `ahead` has no effect; leave out `never` or `ahead`",
        ),
        (
            "[[rule]]\npath = '/x'\nrequest = '1MiB'\nnever = true\nahead = 1\n",
            "line 4, column 1: `never` reads nothing ahead, so `request` and `ahead` have no effect; leave out `never`, or these",
        ),
        (
            "[[rule]]\npath = '/x'\nrequest = '8MiB'\n",
            "line 3, column 11: `request` is 8 MiB; give a size from 8 KiB to 4 MiB",
        ),
        ("[[rule]]\npath = '/x'\nrequest = 1\n", "`request` is 1 B; give a size from 8 KiB"),
        (
            "[[rule]]\npath = '/x'\nrequest = -5\n",
            "line 3, column 11: `request` is negative; give a positive number",
        ),
        (
            "[[rule]]\npath = '/x'\nahead = 99999999999999999999\n",
            "line 3, column 9: `ahead` is too large",
        ),
        (
            "[[rule]]\npath = '/x'\nbackend = 'nfs'\n",
            "unknown `backend` \"nfs\"; known are auto, posix, readahead, read-through, lustre, gpfs, mount",
        ),
        (
            "[[rule]]\npath = '/x'\nbackend = 'poisx'\n",
            "did you mean \"posix\"? known are auto, posix, readahead",
        ),
        ("[[rule]]\npath = '/x'\nregion = 1\n", "line 3, column 10: `region` is a number"),
        ("[[rule]]\npath = '/x'\n[[rule.region]]\nlenght = 1\n", "did you mean \"length\"?"),
        (
            "[[rule]]\npath = '/x'\n[[rule.region]]\nlength = 0\n",
            "line 4, column 10: `length` is 0",
        ),
        ("[[rule]]\npath = '/x'\n[[rule.region]]\ncount = 0\n", "line 4, column 9: `count` is 0"),
        (
            "[[rule]]\npath = '/x'\n[[rule.region]]\ncount = 1\n",
            "line 3, column 1: `count` is of a strided",
        ),
        (
            "[[rule]]\npath = '/x'\n[[rule.region]]\nstride = 1\n",
            "line 3, column 1: `stride` is of a strided",
        ),
        ("[[rule]]\npath = '/x'\n[[rule.region]]\npattern = 'strided'\n", "needs `length`"),
        (
            "[[rule]]\npath = '/x'\n[[rule.region]]\npattern = 'strided'\nlength = 2\nstride = 1\n",
            "parts overlap",
        ),
        (
            "[[rule]]\npath = '/x'\n[[rule.region]]\npattern = 'strided'\nlength = 1\nstride = '1TiB'\ncount = 99999999\n",
            "beyond the largest file",
        ),
        (
            "[[rule]]\npath = '/x'\n[[rule.region]]\noffset = '16777215TiB'\n",
            "beyond the largest file",
        ),
        ("[[rule]]\npath = '/x\n", "line 2, column "),
    ];
    for (text, told) in table {
        let problems = problems(text);
        assert!(problems[0].contains(told), "{text}: {problems:?}");
        assert!(!problems[0].contains('\n'), "{problems:?}");
    }
}

#[test]
fn all_mistakes_are_told_in_the_order_of_the_file() {
    let problems = problems("[[rule]]\npath = 'x'\nnever = 1\n[[rule]]\nahead = 0\n");
    let lines: Vec<&str> = problems.iter().map(|problem| &problem[..6]).collect();
    assert_eq!(lines, ["line 2", "line 3", "line 4", "line 5"]);
    let many = "[[rule]]\npath = 'x'\n".repeat(1000);
    assert_eq!(self::problems(&many).len(), PROBLEMS_MAX);
}

#[test]
fn rules_and_regions_are_bounded() {
    let many = "[[rule]]\npath='/x'\n".repeat(RULES_MAX + 1);
    assert!(problems(&many)[0].contains("more than"));
    assert!(parse(&"[[rule]]\npath='/x'\n".repeat(RULES_MAX), None).is_ok());
    let regions = format!("[[rule]]\npath='/x'\nregion = [{}]\n", "{},".repeat(REGIONS_MAX + 1));
    assert!(problems(&regions)[0].contains("more than"));
    let regions = format!("[[rule]]\npath='/x'\nregion = [{}]\n", "{},".repeat(REGIONS_MAX));
    assert!(parse(&regions.repeat(REGIONS_ALL_MAX / REGIONS_MAX), None).is_ok());
    assert!(problems(&regions.repeat(REGIONS_ALL_MAX / REGIONS_MAX + 1))[0].contains("more than"));
    let patterns = format!("[[rule]]\npath = [{}]\n", "'/x',".repeat(PATTERNS_MAX + 1));
    assert!(problems(&patterns)[0].contains("several rules"));
    let globs = |count: usize| {
        let list = |from: usize| "'/x*',".repeat((count - from).min(PATTERNS_MAX));
        let rules = (0..count).step_by(PATTERNS_MAX).map(list);
        rules.map(|list| format!("[[rule]]\npath = [{list}]\n")).collect::<String>()
    };
    assert!(parse(&globs(GLOBS_MAX), None).is_ok());
    assert!(problems(&globs(GLOBS_MAX + 1))[0].contains("paths in full"));
}
