//! The paths that a program names: what the interposing library records of them.

mod support;

use std::io::{BufRead as _, BufReader, Write as _};
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};

use foretell_protocol::layout::{
    INTEREST_NAMES, INTEREST_READS, TOUCH_FAILED, TOUCH_FOLDER, TOUCH_LINK, TOUCH_MOVED,
    TOUCH_OPEN, TOUCH_STAT,
};
use foretell_protocol::{Base, Event, Listener, Message, RingReader, Touch, TouchFlags};
use support::{Observed, Session};

/// `tests/c/names.c`, and a function that makes its folder.
struct Setting {
    program: std::path::PathBuf,
    fixed: tempfile::TempDir,
}

impl Setting {
    fn new() -> Self {
        let more = ["-Wno-unused-result", "-Wno-nonnull"];
        Self { program: support::c_program("names", &more), fixed: fresh_folder() }
    }

    fn command(&self, way: &str, folder: &Path) -> Command {
        let mut command = Command::new(&self.program);
        command.arg(way).arg(folder);
        command
    }

    /// The output must be the same with and without the library, and with and without interest.
    fn observe(&self, way: &str) -> Observed {
        let plain = self.command(way, fresh_folder().path()).output().expect("program");
        assert!(plain.status.success(), "{way}: {plain:?}");
        let same = |output: &Output| {
            assert_eq!(text(&output.stdout), text(&plain.stdout), "{way}");
            assert_eq!((&output.stderr, output.status), (&plain.stderr, plain.status), "{way}");
        };
        for interest in [0, INTEREST_READS] {
            let folder = fresh_folder();
            let mut command = self.command(way, folder.path());
            let quiet = support::observe_for(&mut command, interest);
            same(&quiet.output);
            for session in &quiet.sessions {
                assert_eq!(session.touches, [], "{way}");
                assert_eq!(session.counters.name_calls, 0, "{way}");
            }
        }
        let both = support::observe_for(
            &mut self.command(way, fresh_folder().path()),
            INTEREST_READS | INTEREST_NAMES,
        );
        same(&both.output);
        let observed =
            support::observe_for(&mut self.command(way, self.fixed.path()), INTEREST_NAMES);
        same(&observed.output);
        for session in &observed.sessions {
            assert_eq!(session.records, [], "{way}: no interest in reads");
            assert_eq!(session.counters.dropped_records, 0);
            assert_eq!(session.counters.abandoned_records, 0);
            assert!(session.touches.iter().all(|touch| touch.end_ns > 0));
        }
        observed
    }

    /// The touches of the only process, without the program's first one: the folder that it moves to.
    fn touches(&self, way: &str) -> Vec<(u32, Base, String)> {
        let observed = self.observe(way);
        assert_eq!(observed.sessions.len(), 1, "{observed:?}");
        of_session(&observed.sessions[0])
    }
}

/// What `names.c` expects.
fn fresh_folder() -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("folder");
    let at = |name: &str| folder.path().join(name);
    std::fs::create_dir_all(at("folder/deep")).expect("folders");
    for name in ["file", "folder/inner", "folder/deep/bottom"] {
        std::fs::write(at(name), "some text\n").expect("file");
    }
    std::os::unix::fs::symlink("file", at("link")).expect("link");
    folder
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn seen(touch: &Touch) -> (u32, Base, String) {
    let all = [TOUCH_STAT, TOUCH_LINK, TOUCH_OPEN, TOUCH_FOLDER, TOUCH_MOVED, TOUCH_FAILED];
    let bits = all.into_iter().filter(|&bit| has(touch.flags, bit)).sum();
    (bits, touch.base, text(&touch.path))
}

fn has(flags: TouchFlags, bit: u32) -> bool {
    match bit {
        TOUCH_STAT => flags.is_stat(),
        TOUCH_LINK => flags.is_link(),
        TOUCH_OPEN => flags.is_open(),
        TOUCH_FOLDER => flags.is_folder(),
        TOUCH_MOVED => flags.is_moved(),
        _ => flags.is_failed(),
    }
}

/// A process's touches from where its program has begun.
fn of_session(session: &Session) -> Vec<(u32, Base, String)> {
    let mut touches: Vec<_> = session.touches.iter().map(seen).collect();
    if touches.first().is_some_and(|(bits, _, path)| *bits == TOUCH_MOVED && path.starts_with('/'))
    {
        touches.remove(0);
    }
    touches
}

/// Paths relative to the working folder.
fn here(expected: &[(u32, &str)]) -> Vec<(u32, Base, String)> {
    expected.iter().map(|&(bits, path)| (bits, Base::WorkingFolder, path.to_owned())).collect()
}

#[test]
fn calls_that_ask_for_attributes() {
    let setting = Setting::new();
    let mut touches = setting.touches("stat");
    let (bits, _, path) = touches.remove(0);
    assert_eq!((bits, Path::new(&path)), (TOUCH_STAT, &*setting.fixed.path().join("file")));
    let failed = TOUCH_STAT | TOUCH_FAILED;
    let expected = here(&[
        (TOUCH_STAT, "link"),
        (TOUCH_STAT, "folder/inner"),
        (TOUCH_STAT, "file"),
        (TOUCH_STAT, "file"),
        (TOUCH_STAT, "file"),
        (TOUCH_STAT, "file"),
        (failed, "missing"),
        (failed, "file/below"),
        (failed, "file"),
    ]);
    assert_eq!(touches, expected);
}

#[test]
fn calls_that_read_links() {
    let setting = Setting::new();
    let expected = here(&[
        (TOUCH_LINK, "link"),
        (TOUCH_LINK, "link"),
        (TOUCH_LINK | TOUCH_FAILED, "file"),
        (TOUCH_LINK | TOUCH_FAILED, "missing"),
        (TOUCH_STAT, "link"),
    ]);
    assert_eq!(setting.touches("link"), expected);
}

#[test]
fn opens_for_reading() {
    let setting = Setting::new();
    let expected = here(&[
        (TOUCH_OPEN, "file"),
        (TOUCH_OPEN, "file"),
        (TOUCH_OPEN | TOUCH_FAILED, "missing"),
        (TOUCH_STAT, "folder/inner"),
        (TOUCH_OPEN, "folder/inner"),
        (TOUCH_OPEN | TOUCH_FAILED, "missing"),
    ]);
    assert_eq!(setting.touches("open"), expected);
}

#[test]
fn bases_are_named_by_number_or_descriptor() {
    let setting = Setting::new();
    let touches = setting.touches("bases");
    let base_of = |index: usize| touches[index].1;
    let paths: Vec<&str> = touches.iter().map(|(_, _, path)| path.as_str()).collect();
    let root = setting.fixed.path().to_str().expect("plain path");
    let numbered = ["folder", "inner", "deep", "bottom", "inner", "bottom", "inner", "bottom"];
    assert_eq!(paths[..8], numbered);
    assert_eq!(paths[8..], ["folder", "inner", ".", "inner", "inner", root, "inner"]);
    let Base::Folder(folder) = base_of(1) else { panic!("{touches:?}") };
    let Base::Folder(deep) = base_of(3) else { panic!("{touches:?}") };
    assert_ne!(folder, deep);
    assert_eq!(base_of(2), Base::Folder(folder));
    let bases: Vec<_> = [4, 5, 6, 7].map(base_of).to_vec();
    assert_eq!(bases, [folder, deep, folder, deep].map(Base::Folder));
    // Opened without O_DIRECTORY, it is not known until it is listed.
    assert!(matches!(base_of(9), Base::Descriptor(_)));
    assert_eq!((base_of(10), touches[10].0), (base_of(9), TOUCH_FOLDER));
    assert!(matches!(base_of(11), Base::Folder(number) if number != folder && number != deep));
    // Opened past the hooks, or replaced.
    assert!(matches!(base_of(12), Base::Descriptor(_)));
    assert_eq!(base_of(13), Base::WorkingFolder, "the path is absolute");
    assert!(matches!(base_of(14), Base::Descriptor(_)));
}

#[test]
fn folders_that_are_listed() {
    let setting = Setting::new();
    let observed = setting.observe("list");
    let touches = of_session(&observed.sessions[0]);
    let flags_and_paths: Vec<_> =
        touches.iter().map(|(bits, _, path)| (*bits, path.as_str())).collect();
    assert_eq!(
        flags_and_paths,
        [
            (TOUCH_FOLDER, "folder"),
            (TOUCH_STAT, "inner"),
            (TOUCH_FOLDER | TOUCH_FAILED, "missing"),
            (TOUCH_FOLDER | TOUCH_FAILED, "file"),
            (TOUCH_FOLDER, "folder"),
            (TOUCH_FOLDER, "folder/deep"),
        ]
    );
    assert!(matches!(touches[1].1, Base::Folder(_)));
    // chdir, six calls as above, and five readdirs of four entries.
    assert_eq!(observed.sessions[0].counters.name_calls, 1 + 6 + 5);
}

#[test]
fn walks_by_libc() {
    let setting = Setting::new();
    let expected = here(&[
        (TOUCH_FOLDER, "./folder/deep"),
        (TOUCH_STAT, "./folder/deep"),
        (TOUCH_STAT | TOUCH_FOLDER, "./folder/deep"),
        (TOUCH_STAT, "./folder/deep/bottom"),
    ]);
    assert_eq!(setting.touches("walk"), expected);
}

#[test]
fn a_working_folder_that_changes() {
    let setting = Setting::new();
    let touches = setting.touches("move");
    let flags_and_paths: Vec<_> =
        touches.iter().map(|(bits, _, path)| (*bits, path.as_str())).collect();
    assert_eq!(
        flags_and_paths,
        [
            (TOUCH_FOLDER, "."),
            (TOUCH_MOVED, "folder"),
            (TOUCH_STAT, "inner"),
            (TOUCH_MOVED, "."),
            (TOUCH_MOVED | TOUCH_FAILED, "missing"),
            (TOUCH_STAT, "file"),
        ]
    );
    assert!(matches!(touches[3].1, Base::Folder(_)));
}

#[test]
fn a_forked_child_does_not_use_its_parents_numbers() {
    let setting = Setting::new();
    let observed = setting.observe("fork");
    let [parent, child] = &observed.sessions[..] else { panic!("{observed:?}") };
    let (parent, child) = (of_session(parent), of_session(child));
    assert!(parent[1..].iter().all(|touch| matches!(touch.1, Base::Folder(_))), "{parent:?}");
    assert!(matches!(child[0].1, Base::Descriptor(_)), "{child:?}");
    assert!(matches!(child[1].1, Base::Descriptor(_)), "{child:?}");
    assert!(matches!(child[2].1, Base::Folder(_)), "{child:?}");
    let numbers = |observed: &Session| -> Vec<u32> {
        observed.touches.iter().filter_map(|touch| touch.opened).collect()
    };
    assert_eq!(numbers(&observed.sessions[0]).len(), 1);
    assert_eq!(numbers(&observed.sessions[1]).len(), 1);
}

#[test]
fn a_vfork_child_touches_nothing() {
    let setting = Setting::new();
    let touches = setting.touches("vfork");
    assert_eq!(touches.len(), 2, "{touches:?}");
    // The child has closed its own descriptor, in its parent's table.
    assert_eq!(touches[1].2, "inner");
    assert!(matches!(touches[1].1, Base::Descriptor(_)), "{touches:?}");
}

#[test]
fn a_vfork_child_moves_nobody_else() {
    let setting = Setting::new();
    let here = |name: &str| (TOUCH_STAT, Base::WorkingFolder, name.to_owned());
    // Until it moves, its names mean what they mean to its parent.
    assert_eq!(setting.touches("vfork-moves"), [here("file"), here("link")]);
}

#[test]
fn paths_of_all_lengths() {
    let setting = Setting::new();
    let lengths: Vec<_> = setting.touches("long").iter().map(|touch| touch.2.len()).collect();
    assert_eq!(lengths, [1, 19, 20, 21, 68, 69, 1023, 1024]);
    let observed = setting.observe("long");
    for touch in &observed.sessions[0].touches[1..] {
        let (last, slashes) = touch.path.split_last().expect("not empty");
        assert!(*last == b'.' && slashes.iter().all(|&byte| byte == b'/'), "{touch:?}");
    }
}

#[test]
fn what_the_kernel_has_not_looked_up_is_not_recorded() {
    assert_eq!(Setting::new().touches("bad"), []);
}

#[test]
fn programs_built_with_an_older_c_library() {
    let failed = TOUCH_STAT | TOUCH_FAILED;
    let expected = here(&[(TOUCH_STAT, "file"), (TOUCH_STAT, "link"), (failed, "missing")]);
    assert_eq!(Setting::new().touches("old"), expected);
}

/// Runs a way of `names.c` that waits, with the interest from its beginning. Returns its ring at that moment, its
/// process, and the setting, which has to live as long.
fn waiting(way: &str, interest: u32) -> (RingReader, Child, Setting) {
    let setting = Setting::new();
    let listener = Listener::bind().expect("listener");
    let mut command = setting.command(way, setting.fixed.path());
    support::watch_for(&mut command, listener.address(), interest);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().expect("program");
    let mut line = String::new();
    let said = child.stdout.as_mut().expect("a pipe");
    BufReader::new(said).read_line(&mut line).expect("a line");
    assert_eq!(line, "opened 1 errno 0\n");
    let mut connection = listener.accept().expect("accept").expect("announced");
    let Ok(Some(Message::Hello(hello))) = connection.receive() else { panic!("no hello") };
    (RingReader::map(hello.ring).expect("ring"), child, setting)
}

/// Lets the program use its folder, and returns the touches since then.
fn touches_after(reader: &mut RingReader, mut child: Child) -> Vec<(u32, Base, String)> {
    child.stdin.take().expect("a pipe").write_all(b"\n").expect("an answer");
    assert!(child.wait().expect("program").success());
    touches_in(reader)
}

fn touches_in(reader: &mut RingReader) -> Vec<(u32, Base, String)> {
    let mut touches = Vec::new();
    reader.drain_while(true, |event| {
        if let Event::Touch(touch) = event {
            touches.push(seen(&touch));
        }
        true
    });
    touches
}

#[test]
fn a_folder_opened_before_there_was_interest_is_named_by_its_descriptor() {
    let (mut reader, child, _setting) = waiting("wait", 0);
    reader.set_interest(INTEREST_NAMES);
    let touches = touches_after(&mut reader, child);
    assert!(
        matches!(&touches[..], [(TOUCH_STAT, Base::Descriptor(_), path)] if path == "inner"),
        "{touches:?}"
    );
}

#[test]
fn a_folder_whose_record_was_dropped_is_named_by_its_descriptor() {
    let (mut reader, child, _setting) = waiting("flood", INTEREST_NAMES);
    assert_eq!(reader.counters().name_calls, 3001);
    let dropped = reader.counters().dropped_records;
    assert!(dropped > 3000 - 2048, "{dropped}");
    assert!(touches_in(&mut reader).iter().all(|(bits, ..)| *bits != TOUCH_FOLDER));
    let touches = touches_after(&mut reader, child);
    assert!(
        matches!(&touches[..], [(TOUCH_STAT, Base::Descriptor(_), path)] if path == "inner"),
        "{touches:?}"
    );
}

#[test]
fn interest_that_ends_ends_the_records() {
    let (mut reader, child, _setting) = waiting("wait", INTEREST_NAMES);
    assert_eq!(touches_in(&mut reader).len(), 2);
    reader.set_interest(0);
    assert_eq!(touches_after(&mut reader, child), []);
    assert_eq!(reader.counters().name_calls, 1, "the change of the working folder");
}

#[test]
fn errno_is_the_calls_own() {
    Setting::new().observe("errno");
}
