//! The functions behind the hooks are those that the dynamic linker would give: `preload/src/look_up.c`.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;

fn library(source: &str, more: &[&str]) -> PathBuf {
    let mut options = vec!["-shared", "-fPIC"];
    options.extend(more);
    support::c_program(source, &options)
}

/// The library that compares, which hides its names as foretell's does.
fn comparing() -> PathBuf {
    let preload = support::crate_folder().join("../preload");
    let look_up = preload.join("src/look_up.c").display().to_string();
    let include = format!("-I{}", preload.join("include").display());
    library("next", &["-fvisibility=hidden", &look_up, &include])
}

/// What the comparing library writes in a program that has these libraries preloaded, in this order.
fn compared_in(program: &str, libraries: &[&Path]) -> Option<Vec<String>> {
    let result = libraries[0].with_extension("result");
    let paths: Vec<_> = libraries.iter().map(|path| path.display().to_string()).collect();
    let mut command = Command::new(program);
    command.arg("--version").env("NEXT_RESULT", &result).env("LD_PRELOAD", paths.join(":"));
    if let Err(error) = command.output() {
        eprintln!("skipped: {program}: {error}");
        return None;
    }
    let text = std::fs::read_to_string(result).expect("the library was loaded and has written");
    let lines: Vec<String> = text.lines().map(str::to_owned).collect();
    assert_eq!(lines[0], paths[0], "the library finds itself");
    Some(lines[1..].to_vec())
}

fn is_alike(lines: &[String]) -> bool {
    matches!(lines, [only] if only.strip_suffix(" compared").is_some_and(|count| {
        count.parse::<u32>().is_ok_and(|count| count > 150)
    }))
}

#[test]
fn every_name_has_the_linkers_function() {
    let comparing = comparing();
    for program in ["true", "/usr/bin/python3", "git", "perl"] {
        if let Some(lines) = compared_in(program, &[&comparing]) {
            assert!(is_alike(&lines), "{program}: {lines:?}");
        }
    }
}

#[test]
fn a_users_library_behind_this_one_comes_first() {
    let (comparing, between) = (comparing(), library("between", &[]));
    let lines = compared_in("true", &[&comparing, &between]).expect("true is there");
    assert!(is_alike(&lines), "{lines:?}");
}

#[test]
fn a_library_with_another_hash_is_left_to_the_linker() {
    let (comparing, between) = (comparing(), library("between", &["-Wl,--hash-style=sysv"]));
    let lines = compared_in("true", &[&comparing, &between]).expect("true is there");
    assert_eq!(lines, ["does not suffice"]);
}
