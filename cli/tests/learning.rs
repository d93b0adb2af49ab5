//! Second runs of programs: what the first one has shown is looked up and read ahead.

mod common;

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use common::mounted::Mounted;
use foretell_manager::learn::store::Store;
use serde_json::Value;

/// Not the first of PATH, which may be a script that runs many programs.
const PYTHON: &str = "/usr/bin/python3";

/// Files of the samples.
const FILES: usize = 200;

/// Reads half of the files in a shuffled order, which no rule predicts.
const SHUFFLED: &str =
    "import os,random; all=sorted(os.listdir('a')); random.Random(7).shuffle(all)
print(sum(len(open('a/'+name,'rb').read()) for name in all[:100]))";

/// Touches pages of a mapped file here and there.
const MAPPED: &str = "import mmap,random; file=open('big','rb'); all=mmap.mmap(file.fileno(),0,prot=1)
places=random.Random(7).sample(range(len(all)//65536),64); print(sum(all[place*65536] for place in places))";

/// Opens a file long after the run was last seen to wait, and reads parts of it here and there.
const LATE: &str = "import os,random,time; time.sleep(0.3); file=os.open('big',os.O_RDONLY)
places=random.Random(7).sample(range(512),512); print(sum(len(os.pread(file,4096,place*32768)) for place in places))";

/// Looks for names that are not there.
const ABSENT: &str = "import os; print(sum(os.path.exists('a/none%d' % n) for n in range(150)))";

fn fill(folder: &Path) {
    fs::create_dir(folder.join("a")).expect("made");
    for at in 0..FILES {
        let path = folder.join(format!("a/{at:03}.bin"));
        fs::write(path, vec![b'x'; 3_000 + at * 100]).expect("written");
    }
    fs::write(folder.join("big"), vec![b'y'; 16 << 20]).expect("written");
}

/// Runs of one workload, with a store of their own.
struct Runs {
    mounted: Mounted,
    store: tempfile::TempDir,
}

impl Runs {
    fn new() -> Option<Self> {
        let mounted = Mounted::new(fill)?;
        Some(Runs { mounted, store: tempfile::tempdir().expect("a folder") })
    }

    fn with(&self, command: &[&str], options: &[&str]) -> Value {
        let options = [&["--no-hint-args"], options].concat();
        self.mounted.run_with(command, &options, |run| {
            run.env("FORETELL_STATE", self.store.path());
        })
    }

    /// Runs a program that does not end before the manager has seen what it did, on however busy a machine.
    fn python(&self, program: &str) -> Value {
        let program = format!("{program}\nimport time; time.sleep(0.3)");
        self.with(&[PYTHON, "-c", &program], &[])
    }

    fn profiles(&self) -> Vec<PathBuf> {
        let entries = fs::read_dir(self.store.path()).expect("listed");
        let paths = entries.map(|entry| entry.expect("an entry").path());
        paths.filter(|path| path.extension().is_some_and(|kind| kind == "profile")).collect()
    }
}

fn number(figures: &Value, group: &str, key: &str) -> u64 {
    assert_eq!(figures["manager"], "finished", "{figures}");
    figures[group][key].as_u64().expect("a number")
}

#[test]
fn files_that_the_first_run_has_read_are_read_ahead_of_the_second() {
    let Some(runs) = Runs::new() else { return };
    let first = runs.python(SHUFFLED);
    assert_eq!(first["learned"]["is_known"], false, "{first}");
    assert!(number(&first, "learned", "kept") >= 100, "{first}");
    let second = runs.python(SHUFFLED);
    assert_eq!(second["learned"]["is_known"], true, "{second}");
    assert!(number(&second, "learned", "found") >= 100, "{second}");
    let of = |key| number(&second, "blocks", key);
    assert!(of("useful") + of("late") >= 100, "{second}");
    assert!(of("wasted") < of("useful"), "{second}");
}

#[test]
fn mapped_pages_and_absent_names_are_learned() {
    let Some(runs) = Runs::new() else { return };
    let _ = runs.python(MAPPED);
    let second = runs.python(MAPPED);
    // It may be over before its touches are seen.
    assert!(number(&second, "blocks", "prefetched") >= 32, "{second}");
    // On a busy machine, the names of a run may be over before the manager has started.
    let mut found = (0..5).map(|_| number(&runs.python(ABSENT), "learned", "found"));
    assert!(found.any(|found| found >= 150));
}

/// Nobody has heard of its open: the run was no longer watched.
#[test]
fn a_file_that_is_opened_late_is_learned() {
    let Some(runs) = Runs::new() else { return };
    // On a busy machine its reads may be over before the manager hears of them, in one run or another.
    let mut ahead = (0..6).map(|_| {
        let figures = runs.python(LATE);
        number(&figures, "blocks", "useful") + number(&figures, "blocks", "late")
    });
    assert!(ahead.any(|blocks| blocks >= 128));
}

#[test]
fn another_command_is_helped_by_what_the_first_one_has_read() {
    let Some(runs) = Runs::new() else { return };
    let slow = SHUFFLED.replace("len(open", "time.sleep(0.002) or len(open");
    let slow = format!("import time; {slow}");
    let _ = runs.python(&slow);
    // On a busy machine the history may be read too late.
    let mut others = (0..5).map(|at| {
        let script = format!("{PYTHON} -c \"$1\"; exit {at}");
        runs.with(&["sh", "-c", &script, "sh", &slow], &["--workload", &at.to_string()])
    });
    assert!(others.any(|figures| {
        assert_eq!(figures["learned"]["is_known"], false, "{figures}");
        number(&figures, "learned", "predicted_found") >= 30
    }));
}

#[test]
fn another_command_line_learns_by_itself_or_from_one_like_it() {
    let Some(runs) = Runs::new() else { return };
    let cat = |files: &str, options: &[&str]| {
        runs.with(&["sh", "-c", &format!("cat {files} | wc -c; sleep 0.3")], options)
    };
    let is_known = |figures: &Value| figures["learned"]["is_known"] == true;
    assert!(!is_known(&cat("a/0*", &[])));
    assert!(is_known(&cat("a/0*", &[])));
    assert!(!is_known(&cat("a/0*", &["--workload", "mine"])));
    assert!(is_known(&cat("a/1*", &["--workload", "mine"])));
    let sum = |from: usize| {
        let files: Vec<_> = (from..from + 40).map(|at| format!("a/{at:03}.bin")).collect();
        let words: Vec<_> =
            ["md5sum"].into_iter().chain(files.iter().map(String::as_str)).collect();
        runs.with(&words, &[])
    };
    assert!(!is_known(&sum(0)));
    assert!(is_known(&sum(100)), "the shape is the same");
}

#[test]
fn a_run_without_learning_leaves_nothing() {
    let Some(runs) = Runs::new() else { return };
    let figures = runs.with(&[PYTHON, "-c", SHUFFLED], &["--no-learn"]);
    assert_eq!(number(&figures, "learned", "kept"), 0);
    let figures = runs.with(&[PYTHON, "-c", SHUFFLED], &["--no-hints"]);
    assert_eq!(number(&figures, "learned", "kept"), 0);
    let figures = runs.with(&[PYTHON, "-c", SHUFFLED], &["--observe", "none"]);
    assert_eq!(number(&figures, "learned", "kept"), 0);
    assert!(runs.profiles().is_empty());
}

#[test]
fn a_damaged_profile_is_said_and_learned_anew() {
    let Some(runs) = Runs::new() else { return };
    let _ = runs.python(SHUFFLED);
    let profiles = runs.profiles();
    assert!(!profiles.is_empty());
    for path in &profiles {
        let mode = fs::metadata(path).expect("there").permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let mut bytes = fs::read(path).expect("read");
        let middle = bytes.len() / 2;
        bytes[middle] ^= 1;
        fs::write(path, bytes).expect("written");
    }
    let second = runs.python(SHUFFLED);
    let problem = second["learned"]["problem"].as_str().expect("a problem");
    assert!(problem.contains("damaged"), "{problem}");
    assert_eq!(runs.python(SHUFFLED)["learned"]["is_known"], true);
}

#[test]
fn a_store_that_cannot_be_written_costs_nothing_but_the_learning() {
    let Some(runs) = Runs::new() else { return };
    let store = runs.store.path().join("file");
    fs::write(&store, "").expect("written");
    let figures = runs.mounted.run_with(&[PYTHON, "-c", SHUFFLED], &["--no-hint-args"], |run| {
        run.env("FORETELL_STATE", &store);
    });
    let problem = figures["learned"]["problem"].as_str().expect("a problem");
    assert!(problem.contains("file"), "{problem}");
}

#[test]
fn secrets_and_temporary_files_are_not_learned() {
    let Some(runs) = Runs::new() else { return };
    let own = tempfile::tempdir().expect("a folder");
    fs::write(own.path().join("draft"), "x").expect("written");
    fs::write(runs.store.path().join("private"), "00?.bin\n").expect("written");
    let read = format!("cat a/*.bin {}/draft | wc -c; sleep 0.3", own.path().display());
    let _ = runs.with(&["sh", "-c", &read], &[]);
    let store = Store::at(runs.store.path().to_owned());
    let steps = store.list().into_iter().flat_map(|kept| kept.profile.steps);
    let kept: Vec<_> = steps.map(|step| common::text(&step.path)).collect();
    let has = |name: &str| kept.iter().any(|path| path.ends_with(name));
    assert!(has("/010.bin") && !has("/005.bin") && !has("/draft"), "{kept:?}");
}
