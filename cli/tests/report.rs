//! `foretell report`: one page without parts elsewhere, and the same figures as JSON.

mod common;

use std::fs;
use std::path::Path;
use std::process::Output;

use common::{foretell, have, text};
use serde_json::Value;

fn record(folder: &Path, to: &str, words: &[&str]) {
    let mut record = foretell();
    record.args(["record", "-q", "-o", to, "--"]).args(words).current_dir(folder);
    assert!(record.output().expect("foretell runs").status.success());
}

fn report(folder: &Path, words: &[&str]) -> Output {
    foretell().arg("report").args(words).current_dir(folder).output().expect("foretell runs")
}

#[test]
fn the_page_has_the_figures_and_nothing_from_elsewhere() {
    let folder = tempfile::tempdir().expect("a folder");
    // This path would end the script of the page, if it were not escaped there.
    let name = "<!--<script></script><script>alert(1)/x".to_owned();
    let sub = folder.path().join(&name);
    fs::create_dir_all(sub.parent().expect("a folder")).expect("made");
    fs::write(folder.path().join(&name), vec![b'x'; 200_000]).expect("written");
    record(folder.path(), "run.ftr", &["cat", &name]);
    let output = report(folder.path(), &["run.ftr", "-o", "page.html", "--json", "figures.json"]);
    assert!(output.status.success() && output.stdout.is_empty(), "{}", text(&output.stderr));
    let page = fs::read_to_string(folder.path().join("page.html")).expect("written");
    assert!(!page.contains("http:") && !page.contains("https:") && !page.contains("@@"));
    assert_eq!(page.matches("<script").count(), 2, "that of the figures, and the page's own");
    let figures = fs::read_to_string(folder.path().join("figures.json")).expect("written");
    let begins = "<script id=\"figures\" type=\"application/json\">";
    let (_, rest) = page.split_once(begins).expect("figures");
    let (embedded, _) = rest.split_once("</script>").expect("their end");
    let parse = |text: &str| serde_json::from_str::<Value>(text).expect("JSON");
    assert_eq!(parse(embedded), parse(&figures));
    let figures = parse(&figures);
    let files = figures["files"].as_array().expect("files");
    let read =
        files.iter().find(|file| file["path"].as_str().is_some_and(|path| path.ends_with(&name)));
    let read = read.expect("the file");
    assert_eq!(read["bytes"], 200_000);
    let points = read["points"].as_array().expect("points");
    let last = points.last().expect("a read");
    assert_eq!(last[3], 200_000, "{points:?}");
    let arguments = &figures["known"][0];
    assert_eq!(arguments["source"], "arguments");
    assert!(arguments["bytes"].as_u64().expect("a number") >= 200_000, "{arguments}");
    assert_eq!(figures["simulated"]["by_device"].as_array().map(Vec::len), Some(4));
    assert_eq!(figures["simulated"]["layout"], "aged");
}

#[test]
fn arguments_of_started_programs_are_known_beforehand() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a", "b"] {
        fs::write(folder.path().join(name), vec![b'x'; 300_000]).expect("written");
    }
    // Words that are no names of touched files are not in the recording. The command line of a program is read while it runs.
    let script = "read line < b; sh inner a --secret=hunter2; read line < b; true";
    fs::write(folder.path().join("script"), script).expect("written");
    fs::write(folder.path().join("inner"), "sleep 0.3; exec cat $1 > /dev/null").expect("written");
    record(folder.path(), "run.ftr", &["sh", "script"]);
    let output = report(folder.path(), &["run.ftr", "--json", "-", "--no-simulation"]);
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let files = figures["files"].as_array().expect("files");
    let path = folder.path().canonicalize().expect("there").join("a");
    let read = files.iter().find(|file| file["path"] == path.to_str().expect("text"));
    let bytes = read.expect("it was read")["bytes"].as_u64().expect("a number");
    let known = figures["known"][0]["bytes"].as_u64().expect("a number");
    assert!(known >= bytes && bytes >= 300_000, "{known} of {bytes}");
    assert_eq!(figures["arguments"], "all programs");
    let recorded = fs::read(folder.path().join("run.ftr")).expect("there");
    assert!(!recorded.windows(7).any(|part| part == b"hunter2"));
}

/// The page `name` as a browser shows it at this width, with `script` run at its end. `None` without a browser.
fn shown(folder: &Path, name: &str, width: u32, script: &str) -> Option<String> {
    if !have("chromium") {
        return None;
    }
    let page = fs::read_to_string(folder.join(name)).expect("written");
    let page = page.replace("</body>", &format!("<script>{script}</script></body>"));
    fs::write(folder.join("shown.html"), page).expect("written");
    let mut browser = std::process::Command::new("chromium");
    browser.args(["--headless", "--no-sandbox", "--disable-gpu", "--dump-dom"]);
    browser
        .arg(format!("--window-size={width},2000"))
        .arg(format!("--user-data-dir={}", folder.join("profile").display()));
    let output = browser.arg(folder.join("shown.html")).output().expect("it runs");
    assert!(output.status.success(), "{}", text(&output.stderr));
    Some(text(&output.stdout))
}

#[test]
fn the_page_fits_its_width_and_a_run_without_reads_has_no_plots() {
    let folder = tempfile::tempdir().expect("a folder");
    let long = "a-rather-long-name-of-a-folder/".repeat(4);
    fs::create_dir_all(folder.path().join(&long)).expect("made");
    fs::write(folder.path().join(&long).join("data"), vec![b'x'; 300_000]).expect("written");
    record(folder.path(), "run.ftr", &["cat", &format!("{long}data")]);
    record(folder.path(), "none.ftr", &["true"]);
    for name in ["run", "none"] {
        let [from, to] = [format!("{name}.ftr"), format!("{name}.html")];
        assert!(report(folder.path(), &[&from, "-o", &to]).status.success());
    }
    let script = "document.title = ['files', 'programs', 'known', 'simulated']\
        .map((id) => at(id).scrollWidth <= at(id).clientWidth).join() + ' ' + document.querySelectorAll('.plot.none').length \
        + ' ' + namedRows(100).length";
    for (name, width, plots) in
        [("run.html", 1400, 0), ("run.html", 800, 0), ("none.html", 1400, 3)]
    {
        let Some(page) = shown(folder.path(), name, width, script) else { return };
        let (_, title) = page.split_once("<title>").expect("a title");
        let (title, _) = title.split_once("</title>").expect("its end");
        let (fit, rest) = title.split_once(' ').expect("words");
        let (empty, named) = rest.split_once(' ').expect("words");
        assert_eq!(fit, "true,true,true,true", "{name} at {width}");
        assert_eq!(empty, plots.to_string(), "{name}");
        assert_eq!(named == "0", plots > 0, "{name}: {named}");
    }
}

#[test]
fn an_earlier_recording_says_how_much_it_would_have_told() {
    let folder = tempfile::tempdir().expect("a folder");
    for name in ["a", "b"] {
        fs::write(folder.path().join(name), vec![b'x'; 100_000]).expect("written");
    }
    record(folder.path(), "first.ftr", &["cat", "a"]);
    record(folder.path(), "second.ftr", &["cat", "a", "b"]);
    let output = report(
        folder.path(),
        &["second.ftr", "--earlier", "first.ftr", "--json", "-", "--no-simulation"],
    );
    let figures: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    let earlier = &figures["known"][3];
    assert_eq!(
        (&earlier["source"], &figures["earlier"]),
        (&"earlier run".into(), &"another recording".into())
    );
    let all = figures["reads"]["bytes"].as_u64().expect("a number");
    let known = earlier["bytes"].as_u64().expect("a number");
    assert!(known >= 100_000 && known <= all - 100_000, "{known} of {all}");
}

#[test]
fn wrong_files_are_refused() {
    let folder = tempfile::tempdir().expect("a folder");
    record(folder.path(), "run.ftr", &["true"]);
    let before = fs::read(folder.path().join("run.ftr")).expect("there");
    let table: [(&[&str], i32, &str); 4] = [
        (&["run.ftr"], 2, "--output"),
        (&["run.ftr", "-o", "run.ftr"], 2, "is the recording; give another file"),
        (&["run.ftr", "-o", "none/page.html"], 1, "--output: none/page.html"),
        (&["absent.ftr", "-o", "page.html"], 1, "absent.ftr: No such file"),
    ];
    for (words, code, why) in table {
        let output = report(folder.path(), words);
        let said = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{words:?}: {said}");
        assert!(said.contains(why), "{words:?}: {said}");
    }
    assert_eq!(fs::read(folder.path().join("run.ftr")).expect("there"), before);
    assert!(!folder.path().join("page.html").exists());
}
