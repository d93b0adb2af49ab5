//! The documentation matches the command.
//!
//! `docs/reference/commands.md` shows the help of every command, as it is printed;
//! `FORETELL_UPDATE_GOLDEN=1 cargo test -p foretell --test pages` writes it anew. `docs/reference/json.md` names every key.

mod common;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::Stdio;

use serde_json::Value;

const PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/commands.md");
const JSON_PAGE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/reference/json.md");

const HEAD: &str = "\
# Commands and options

Every command of foretell with its options, as `--help` prints them.
The [guide](../README.md) explains how to use them,
and [exit codes](exit-codes.md) lists how they end.

This page is generated.
After a change of an option, write it anew with `FORETELL_UPDATE_GOLDEN=1 cargo test -p foretell --test pages`.
";

/// A command and its help.
struct Shown {
    name: String,
    help: String,
}

/// The help of the command of these words, at the width without a terminal.
fn help(words: &[&str]) -> String {
    let mut command = common::foretell();
    command.args(words).arg("--help").stdin(Stdio::null()).env_remove("COLUMNS");
    let output = command.output().expect("foretell runs");
    assert!(output.status.success(), "{words:?}: {output:?}");
    String::from_utf8(output.stdout).expect("UTF-8")
}

/// The names in a help's list of commands.
fn subcommands(help: &str) -> Vec<&str> {
    let list = help.split_once("\nCommands:\n").map_or("", |(_, list)| list);
    let lines = list.lines().take_while(|line| !line.is_empty());
    let names = lines.filter_map(|line| line.strip_prefix("  ")?.split(' ').next());
    names.filter(|&name| !name.is_empty() && name != "help").collect()
}

/// Adds the command of these words and its subcommands. A command that only has subcommands is left out.
fn collect(words: &[&str], shown: &mut Vec<Shown>) {
    let help = help(words);
    let below = subcommands(&help);
    for name in &below {
        collect(&[words, &[name]].concat(), shown);
    }
    if below.is_empty() {
        shown.push(Shown { name: format!("foretell {}", words.join(" ")), help });
    }
}

fn page() -> String {
    let mut shown = Vec::new();
    collect(&[], &mut shown);
    let mut page = HEAD.to_owned();
    page.push_str("\n| command | what it does |\n|---|---|\n");
    for Shown { name, help } in &shown {
        let about: Vec<&str> = help.lines().take_while(|line| !line.is_empty()).collect();
        let (about, anchor) = (about.join(" ").replace('|', "\\|"), name.replace(' ', "-"));
        // The example behind a colon is in the help below.
        let about = about.split_once(": foretell ").map_or(about.as_str(), |(about, _)| about);
        let _ = writeln!(page, "| [`{name}`](#{anchor}) | {about} |");
    }
    for Shown { name, help } in &shown {
        let _ = write!(page, "\n## {name}\n\n```text\n{}\n```\n", help.trim_end());
    }
    page
}

#[test]
fn the_page_is_what_help_prints() {
    let page = page();
    assert!(
        page.contains("\n## foretell sim replay\n") && page.contains("--outstanding"),
        "{page}"
    );
    if std::env::var_os("FORETELL_UPDATE_GOLDEN").is_some() {
        fs::write(PAGE, &page).expect("the page is written");
        return;
    }
    let written = fs::read_to_string(PAGE).expect("the page is there");
    let differing = written.lines().zip(page.lines()).find(|(was, is)| was != is);
    assert!(written == page, "{PAGE} is out of date, first at {differing:?}: see its first lines");
}

/// The keys of an object and of the objects in it.
fn keys(value: &Value) -> Vec<&str> {
    let inner = value.as_object().into_iter().flatten();
    inner.flat_map(|(key, value)| [vec![key.as_str()], keys(value)].concat()).collect()
}

#[test]
fn every_key_of_a_run_is_explained() {
    let run = ["run", "--quiet", "--json", "-", "--", "true"];
    let output = common::foretell().args(run).output().expect("foretell runs");
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let page = fs::read_to_string(JSON_PAGE).expect("the page is there");
    let part =
        page.split("\n## ").find(|part| part.starts_with("foretell run\n")).expect("its part");
    let keys = keys(&figures);
    assert!(keys.contains(&"seen_share") && keys.contains(&"already_cached"), "{keys:?}");
    for key in keys.into_iter().filter(|&key| key != "exit") {
        assert!(part.contains(&format!("`{key}`")), "{JSON_PAGE}: {key}");
    }
}

#[test]
fn every_event_of_the_daemons_log_is_in_the_guide() {
    let crate_folder = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = fs::read_to_string(crate_folder.join("../docs/guide/daemon.md")).expect("it");
    let table = guide.split_once("| event | fields |").expect("the table").1;
    let rows: Vec<&str> = table.lines().skip(2).take_while(|line| line.starts_with('|')).collect();
    let quoted = |text: &str| text.split('"').nth(1).map(str::to_owned);
    let mut events = Vec::new();
    for entry in fs::read_dir(crate_folder.join("src/daemon")).expect("the sources") {
        let source = fs::read_to_string(entry.expect("an entry").path()).expect("text");
        let code = source.split("#[cfg(test)]").next().unwrap_or_default();
        let told: Vec<&str> = code.split(".tell(").skip(1).collect();
        if told.is_empty() {
            continue;
        }
        events.extend(told.iter().map(|text| quoted(text).expect("an event")));
        // Each field is a pair of its name and a value.
        let texts = code.split("(\"").skip(1).filter_map(|text| text.split_once('"'));
        let is_name =
            |text: &str| text.bytes().all(|byte| byte.is_ascii_lowercase() || byte == b'_');
        for (name, _) in texts.filter(|(name, rest)| is_name(name) && rest.starts_with(", ")) {
            let name = format!("`{name}`");
            assert!(rows.iter().any(|row| row.contains(&name)), "{name} is not in the table");
        }
    }
    assert!(events.len() >= 10, "{events:?}");
    for event in &events {
        let begins = format!("| `{event}` |");
        assert!(rows.iter().any(|row| row.starts_with(&begins)), "{event} is not in the table");
    }
    for row in rows {
        let event = row.split('`').nth(1).expect("an event");
        assert!(events.iter().any(|known| known == event), "{event} is no event");
    }
}

#[test]
fn every_key_of_a_probe_is_explained() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("file");
    let file = fs::File::create(&path).expect("made");
    std::os::unix::fs::FileExt::write_all_at(&file, &[7; 1 << 20], 0).expect("written");
    file.sync_all().expect("on the disk");
    let mut probe = common::foretell();
    let output = probe.args(["probe", "--evict", "--json", "-"]).arg(&path).output();
    let figures: Value =
        serde_json::from_slice(&output.expect("foretell runs").stdout).expect("JSON");
    let page = fs::read_to_string(JSON_PAGE).expect("the page is there");
    let part =
        page.split("\n## ").find(|part| part.starts_with("foretell probe\n")).expect("its part");
    let inner = figures["advice"].as_array().expect("a list").iter().flat_map(keys);
    for key in keys(&figures).into_iter().chain(inner) {
        assert!(part.contains(&format!("`{key}`")), "{JSON_PAGE}: {key}");
    }
}
