//! Every exported name behaves as without the interposing library: with invalid pointers, on the
//! smallest stacks, and in a program under a seccomp filter or strict mode.

mod support;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use foretell_protocol::Listener;
use foretell_protocol::layout::{INTEREST_NAMES, INTEREST_READS};

/// How much more stack than libc a hook may take, in bytes. A signal handler on an alternate stack of
/// the usual size, SIGSTKSZ, has some thousand.
const MOST_STACK_BYTES: i64 = 512;

/// `tests/c/every_hook.c`, and the file that it reads.
struct EveryHook {
    program: PathBuf,
    folder: tempfile::TempDir,
}

impl EveryHook {
    fn new() -> Self {
        let program = support::c_program("every_hook", &["-Wl,-z,now"]);
        let folder = tempfile::tempdir().expect("folder");
        let lines: String = (1..3000).map(|i| format!("{i} words\n")).collect();
        std::fs::write(folder.path().join("lines"), lines).expect("file");
        Self { program, folder }
    }

    fn command(&self, what: &str, situations: &[&str]) -> Command {
        let lines = self.folder.path().join("lines");
        let mut command = Command::new(&self.program);
        command.arg(what).arg(&lines).args(situations).stderr(Stdio::null());
        command.stdin(std::fs::File::open(&lines).expect("file"));
        command
    }

    /// Its output without the library.
    fn plain(&self, what: &str, situations: &[&str]) -> String {
        text(&support::succeed(&mut self.command(what, situations)).stdout)
    }

    /// Its output with the library and a manager. The manager reads no rings, since there are thousands.
    fn watched(&self, what: &str, situations: &[&str], interest: bool) -> String {
        // A child that opens announces itself, and so does one whose reads are recorded.
        let processes = if interest || situations.iter().any(|name| name.starts_with("fresh")) {
            500
        } else {
            1
        };
        let listener = Listener::bind().expect("listener");
        let mut command = self.command(what, situations);
        let wanted = if interest { INTEREST_READS | INTEREST_NAMES } else { 0 };
        support::watch_for(&mut command, listener.address(), wanted);
        let done = AtomicBool::new(false);
        thread::scope(|scope| {
            let accepted = scope.spawn(|| {
                let (mut waiting, mut hellos) = (Vec::new(), 0);
                while !done.load(Ordering::Acquire) {
                    while let Some(connection) = listener.accept().expect("accept") {
                        waiting.push(connection);
                    }
                    let before = waiting.len();
                    waiting.retain_mut(|connection| matches!(connection.receive(), Ok(None)));
                    hellos += before - waiting.len();
                    thread::sleep(Duration::from_micros(500));
                }
                hellos
            });
            let output = command.output();
            done.store(true, Ordering::Release);
            let hellos = accepted.join().expect("manager");
            let output = output.expect("program");
            assert!(output.status.success(), "{:?}", output.status);
            assert!(hellos >= processes, "{hellos} processes have announced themselves");
            let printed = text(&output.stdout);
            // A library that traps on undefined behaviour traps on a bad pointer before the processor does.
            let traps = std::env::var("SANITIZE").is_ok_and(|value| value == "1");
            if traps { printed.replace(": signal 4\n", ": signal 11\n") } else { printed }
        })
    }

    fn assert_alike(&self, situations: &[&str], interests: &[bool]) {
        self.assert_alike_if(situations, interests, |_| true);
    }

    /// Compares the lines of the names for which `compared` is true.
    fn assert_alike_if(
        &self,
        situations: &[&str],
        interests: &[bool],
        compared: impl Fn(&str) -> bool,
    ) {
        let lines = |printed: &str| -> Vec<String> {
            let lines = printed.lines();
            let compared = lines.filter(|line| line.split(' ').nth(1).is_some_and(&compared));
            compared.map(str::to_owned).collect()
        };
        let plain = lines(&self.plain("calls", situations));
        assert!(!plain.is_empty());
        for &interest in interests {
            let watched = lines(&self.watched("calls", situations, interest));
            let differs: Vec<_> = plain
                .iter()
                .zip(&watched)
                .filter(|(without, with)| without != with)
                .map(|(without, with)| format!("without: {without}\n   with: {with}"))
                .collect();
            assert!(differs.is_empty(), "interest {interest}:\n{}", differs.join("\n"));
            assert_eq!(plain.len(), watched.len(), "interest {interest}");
        }
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

#[test]
fn every_exported_name_is_tried() {
    let setting = EveryHook::new();
    let names = text(&support::succeed(Command::new(&setting.program).arg("names")).stdout);
    let tried: BTreeSet<&str> = names.lines().collect();
    let listed = support::symbols();
    let listed: BTreeSet<&str> = listed.iter().map(String::as_str).collect();
    assert_eq!(listed.difference(&tried).collect::<Vec<_>>(), Vec::<&&str>::new(), "not tried");
    assert_eq!(tried.difference(&listed).collect::<Vec<_>>(), Vec::<&&str>::new(), "not listed");
}

#[test]
fn results_errors_and_signals_are_the_same() {
    EveryHook::new().assert_alike(&["fresh-plain", "inherited-plain"], &[false, true]);
}

#[test]
fn on_the_smallest_stacks_too() {
    let situations = ["fresh-thread", "inherited-thread", "fresh-signal", "inherited-signal"];
    EveryHook::new().assert_alike(&situations, &[false, true]);
}

#[test]
fn in_strict_seccomp_too() {
    let situations = ["fresh-strict", "inherited-strict", "fresh-prctl", "inherited-prctl"];
    EveryHook::new().assert_alike(&situations, &[false, true]);
}

#[test]
fn without_the_processors_clock_too() {
    EveryHook::new().assert_alike(&["fresh-clock", "inherited-clock"], &[false, true]);
}

/// A process that has only read since its fork, while no records are wanted, makes no system call and reads no clock on behalf
/// of the library. An open is timed, so it ends such a process in any case.
#[test]
fn in_strict_seccomp_behind_libcs_back() {
    let opens = |name: &str| {
        ["open", "creat", "tmp", "temp", "execve"].iter().any(|part| name.contains(part))
    };
    EveryHook::new().assert_alike_if(&["inherited-raw"], &[false], |name| !opens(name));
}

/// Under a filter that ends the process for each call that the library would make by itself. If the
/// library has noticed the filter, no name makes such a call. If not, no reading name makes one while
/// no records are wanted. Advice is recorded all the same, that of `readahead` too.
#[test]
fn under_a_seccomp_filter_too() {
    let setting = EveryHook::new();
    setting.assert_alike(&["fresh-filter", "inherited-filter"], &[false, true]);
    let reads = |name: &str| {
        let parts = ["read", "get", "scan", "flow", "seek", "rewind", "fsetpos"];
        parts.iter().any(|part| name.contains(part)) && name != "readahead"
    };
    setting.assert_alike_if(&["fresh-rawfilter", "inherited-rawfilter"], &[false], reads);
}

#[test]
fn no_hook_takes_much_stack() {
    if std::env::var_os("SANITIZE").is_some() {
        eprintln!("skipped: checks of undefined behaviour have frames of their own");
        return;
    }
    let setting = EveryHook::new();
    let situations = ["fresh-plain", "inherited-plain"];
    let depths = |printed: &str| -> BTreeMap<String, i64> {
        let depth = |line: &str| {
            let (call, depth) = line.split_once(": depth ")?;
            Some((call.to_owned(), depth.parse().ok()?))
        };
        printed.lines().filter_map(depth).collect()
    };
    let plain = depths(&setting.plain("depth", &situations));
    assert!(plain.len() > 500, "{}", plain.len());
    for interest in [false, true] {
        let watched = depths(&setting.watched("depth", &situations, interest));
        let more: Vec<_> = plain
            .iter()
            .filter_map(|(call, depth)| Some((call, watched.get(call)? - depth)))
            .filter(|&(_, more)| more > MOST_STACK_BYTES)
            .collect();
        assert!(more.is_empty(), "interest {interest}: {more:#?}");
    }
}

/// The versions under which a library defines a name; a base version is the empty string.
fn versions(library: &Path) -> BTreeMap<String, BTreeSet<String>> {
    let mut readelf = Command::new("readelf");
    let output = support::succeed(readelf.args(["--wide", "--dyn-syms"]).arg(library));
    let mut versions = BTreeMap::<String, BTreeSet<String>>::new();
    for line in text(&output.stdout).lines() {
        let fields: Vec<_> = line.split_whitespace().collect();
        // Num: Value Size Type Bind Vis Ndx Name
        let [_, _, _, kind, _, _, section, symbol, ..] = fields[..] else { continue };
        if section == "UND" || section == "ABS" || kind != "FUNC" && kind != "IFUNC" {
            continue;
        }
        let (name, version) = symbol.split_at(symbol.find('@').unwrap_or(symbol.len()));
        versions.entry(name.to_owned()).or_default().insert(version.to_owned());
    }
    versions
}

fn libc() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("maps");
    let path = maps.split_whitespace().find(|word| word.contains("/libc.so"));
    PathBuf::from(path.expect("this program is linked to libc"))
}

#[test]
fn names_have_the_versions_of_the_c_library() {
    let ours = versions(support::preload_library());
    let theirs = versions(&libc());
    let known: BTreeSet<&String> = theirs.values().flatten().collect();
    for (name, ours) in &ours {
        match theirs.get(name) {
            // Names without a version serve references to any version.
            Some(theirs) if theirs.len() == 1 && ours.contains("") => assert_eq!(ours.len(), 1),
            Some(theirs) => assert_eq!(ours, theirs, "{name}"),
            // Only for programs that need a newer C library than this one.
            None => assert!(
                ours.iter().all(|version| version.starts_with('@')
                    && !version.starts_with("@@")
                    && !known.contains(version)
                    && !known.contains(&format!("@{version}"))),
                "{name} is {ours:?}, and the C library has none"
            ),
        }
    }
}

/// Nor does the library leave an error behind when it looks for names that are not there.
#[test]
fn dlsym_finds_what_it_finds_without() {
    let source = support::crate_folder().join("tests/c/look_up.c");
    let program = support::compile(&source, &[]);
    let names = support::symbols();
    let command = || {
        let mut command = Command::new(&program);
        command.args(&names);
        command
    };
    let plain = text(&support::succeed(&mut command()).stdout);
    let observed = support::observe(&mut command(), false);
    assert_eq!(text(&observed.output.stdout), plain);
    assert_eq!(plain.lines().count(), 1 + names.len());
}

#[test]
fn shells_get_dashes_since_glibc_2_38() {
    let include = support::crate_folder().join("../preload/include");
    let include = format!("-I{}", include.display());
    let program = support::c_program("shell_dashes", &[&include]);
    let versions = ["2.34", "2.37", "2.37.9000", "2.38", "2.38.9000", "2.100", "3.0", "odd"];
    let output = support::succeed(Command::new(program).args(versions)).stdout;
    let expected = "2.34 0\n2.37 0\n2.37.9000 0\n2.38 1\n2.38.9000 1\n2.100 1\n3.0 1\nodd 0\n";
    assert_eq!(text(&output), expected);
}

#[cfg(target_arch = "x86_64")]
#[test]
fn programs_bound_to_an_old_version_get_it() {
    use std::os::unix::fs::PermissionsExt as _;
    let source = support::crate_folder().join("tests/c/old_spawn.c");
    let program = support::compile(&source, &[]);
    let folder = tempfile::tempdir().expect("folder");
    let script = folder.path().join("script");
    std::fs::write(&script, "echo ran\n").expect("script"); // without a "#!" line
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).expect("mode");
    let command = || {
        let mut command = Command::new(&program);
        command.arg(&script);
        command
    };
    let plain = support::succeed(&mut command()).stdout;
    assert_eq!(text(&plain), "ran\nold 0\nran\nold p 0\nnew 8\nnew p 8\n");
    let observed = support::observe(&mut command(), false);
    assert_eq!(text(&observed.output.stdout), text(&plain));
    assert_eq!(observed.sessions.len(), 3, "the program and two shells");
}
