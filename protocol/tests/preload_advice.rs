//! A program's own advice about what it will read: the interposing library passes it on and records it.

mod support;

use std::os::unix::fs::MetadataExt as _;
use std::path::PathBuf;
use std::process::Command;

use foretell_protocol::layout::{INTEREST_NAMES, INTEREST_READS};
use foretell_protocol::{Advice, AdviceKind, Advised};
use support::Observed;

/// `tests/c/advice.c`, and a file for it.
struct Setting {
    program: PathBuf,
    file: tempfile::NamedTempFile,
}

impl Setting {
    fn new() -> Self {
        let file = tempfile::NamedTempFile::new().expect("file");
        std::fs::write(file.path(), vec![b'x'; 100_000]).expect("contents");
        Self { program: support::c_program("advice", &["-Wno-nonnull"]), file }
    }

    /// Runs with each interest, and demands the same output as without the library. Without interest, only advice that data is
    /// needed is recorded, and advice about memory. Returns the last run, with interest in all.
    fn observe(&self, way: &str) -> Observed {
        let command = || {
            let mut command = Command::new(&self.program);
            command.arg(way).arg(self.file.path());
            command
        };
        let plain = command().output().expect("program");
        assert!(plain.status.success(), "{way}: {plain:?}");
        let mut observed: Vec<Observed> = Vec::new();
        for interest in [0, INTEREST_READS, INTEREST_READS | INTEREST_NAMES] {
            let now = support::observe_for(&mut command(), interest);
            assert_eq!(
                String::from_utf8_lossy(&now.output.stdout),
                String::from_utf8_lossy(&plain.stdout),
                "{way}"
            );
            assert_eq!(now.output.status, plain.status);
            observed.push(now);
        }
        let last = observed.pop().expect("three runs");
        let mut all = advice(&last);
        assert_eq!(advice(&observed[1]), all, "{way}");
        let is_always =
            |advice: &Advice| advice.kind == AdviceKind::Needed || advice.of == Advised::Memory;
        all.iter_mut().for_each(|of| of.retain(is_always));
        assert_eq!(advice(&observed[0]), all, "{way}");
        last
    }

    /// The advice about the file, of the only process.
    fn of_file(&self, way: &str) -> Vec<(AdviceKind, u64, u64)> {
        let observed = self.observe(way);
        let [all] = &advice(&observed)[..] else { panic!("{observed:?}") };
        all.iter().map(|advice| self.about_file(advice)).collect()
    }

    fn about_file(&self, advice: &Advice) -> (AdviceKind, u64, u64) {
        let metadata = std::fs::metadata(self.file.path()).expect("file");
        let Advised::File { device, inode, descriptor } = advice.of else { panic!("{advice:?}") };
        assert_eq!((device, inode), (metadata.dev(), metadata.ino()));
        assert!((3..100).contains(&descriptor), "{descriptor}");
        (advice.kind, advice.offset_bytes, advice.length_bytes)
    }
}

fn advice(observed: &Observed) -> Vec<Vec<Advice>> {
    observed.sessions.iter().map(|session| session.advice.clone()).collect()
}

#[test]
fn advice_about_a_file() {
    let expected = [
        (AdviceKind::Needed, 100, 200),
        (AdviceKind::Needed, 4096, 0),
        (AdviceKind::Sequential, 0, 0),
        (AdviceKind::Random, 0, 0),
        (AdviceKind::Once, 0, 0),
        (AdviceKind::Normal, 0, 0),
        (AdviceKind::Needed, 8192, 4096),
        (AdviceKind::Needed, 4096, 8192),
    ];
    assert_eq!(Setting::new().of_file("file"), expected);
}

#[test]
fn advice_that_is_refused_or_about_something_else() {
    assert_eq!(Setting::new().of_file("refused"), []);
}

#[test]
fn advice_about_memory() {
    let observed = Setting::new().observe("memory");
    let [all] = &advice(&observed)[..] else { panic!("{observed:?}") };
    let start = 1_u64 << 40;
    let expected = [
        (AdviceKind::Needed, start, 8192),
        (AdviceKind::Needed, start, 4096),
        (AdviceKind::Sequential, start + 4096, 4096),
        (AdviceKind::Random, start, 8192),
        (AdviceKind::Normal, start, 8192),
    ];
    assert!(all.iter().all(|advice| advice.of == Advised::Memory), "{all:?}");
    let all: Vec<_> =
        all.iter().map(|advice| (advice.kind, advice.offset_bytes, advice.length_bytes)).collect();
    assert_eq!(all, expected);
}

#[test]
fn advice_of_forked_children() {
    let setting = Setting::new();
    let observed = setting.observe("fork");
    let ranges: Vec<Vec<_>> = advice(&observed)
        .iter()
        .map(|all| all.iter().map(|advice| setting.about_file(advice)).collect())
        .collect();
    let needed = |offset, length| (AdviceKind::Needed, offset, length);
    // A child of vfork has no ring of its own.
    assert_eq!(ranges, [vec![needed(1, 2), needed(7, 8)], vec![needed(3, 4)]]);
}
