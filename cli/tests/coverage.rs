//! What `foretell run` sees of ordinary programs and what it hints for them. The table in `docs/reference/coverage.md` promises
//! what this test finds; `FORETELL_UPDATE_GOLDEN=1` writes it.
//!
//! Each program runs on a cold emulated array in three ways: with everything, with hints from arguments alone, and with hints
//! from what it does alone. Each must do the same as without foretell.

mod common;

use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::time::{Duration, SystemTime};

use common::{foretell, have, have_fuse, skipped};

/// Name, command, and the program that must be installed.
const PROGRAMS: &[(&str, &[&str])] = &[
    ("`md5sum FILES`", &["sh", "-c", "exec md5sum files/*.txt"]),
    ("`sh -c 'cat FILES \\| wc'`", &["sh", "-c", "cat files/*.txt | wc"]),
    ("`find \\| xargs grep`", &["sh", "-c", "find tree -name '*.h' | sort | xargs grep -c word"]),
    ("`grep -r WORD FOLDER`", &["grep", "-r", "-c", "word", "tree"]),
    ("`grep -r --include`", &["grep", "-r", "-c", "--include=*.h", "word", "tree"]),
    ("`tar c FOLDER`", &["sh", "-c", "tar cf - tree | wc -c"]),
    (
        "`cp -r FOLDER`",
        &["sh", "-c", "cp -r tree $OUT/copy && ls -R $OUT/copy | wc -l && rm -r $OUT/copy"],
    ),
    (
        "`rsync -a FOLDER`",
        &["sh", "-c", "rsync -a tree $OUT/copy && ls -R $OUT/copy | wc -l && rm -r $OUT/copy"],
    ),
    ("`du -s FOLDER`", &["du", "-s", "tree"]),
    ("`find FOLDER -size`", &["find", "tree", "-type", "f", "-size", "+3k"]),
    ("`ls -lR FOLDER`", &["ls", "-lR", "tree"]),
    (
        "`git status`",
        &[
            "git",
            "--no-optional-locks",
            "-c",
            "safe.directory=*",
            "-C",
            "repository",
            "status",
            "-s",
        ],
    ),
    ("`sort FILE`", &["sort", "files/000.txt"]),
    ("`gzip -c FILE`", &["sh", "-c", "gzip -c big | wc -c"]),
    ("`awk FILES`", &["sh", "-c", "awk '{ n += NF } END { print n }' files/*.txt"]),
    ("`dd if=FILE`", &["dd", "if=big", "of=/dev/null", "bs=64k", "status=none"]),
    ("`diff -r FOLDER FOLDER`", &["diff", "-r", "tree", "repository/tree"]),
    ("`cpp FILE`", &["sh", "-c", "gcc -E -Itree/part0 -Itree/part1 -x c main.c | wc -l"]),
    (
        "Python, `sorted(os.listdir())`",
        &[
            "/usr/bin/python3",
            "-c",
            "import os; print(sum(len(open('files/'+f,'rb').read()) for f in sorted(os.listdir('files'))))",
        ],
    ),
    (
        "Python, `os.walk`",
        &[
            "/usr/bin/python3",
            "-c",
            "import os; print(sum(os.stat(os.path.join(d,f)).st_size for d,_,fs in os.walk('tree') for f in fs))",
        ],
    ),
    (
        "Python, `mmap` in order",
        &[
            "/usr/bin/python3",
            "-c",
            "import mmap; f=open('big','rb'); m=mmap.mmap(f.fileno(),0,prot=1); print(sum(m[i] for i in range(0,len(m),4096)))",
        ],
    ),
    (
        "Python, `posix_fadvise`",
        &[
            "/usr/bin/python3",
            "-c",
            "import os; f=os.open('big',0); os.posix_fadvise(f,0,0,os.POSIX_FADV_WILLNEED); print(sum(len(os.pread(f,65536,i)) for i in range(0,16<<20,65536)))",
        ],
    ),
    ("a static program that reads", &["./static-read", "big"]),
    ("a static program that maps", &["./static-map", "big"]),
];

/// A program that reads less reads no data to speak of.
const READ_MIN_BYTES: u64 = 256 << 10;

/// How often a row is made before it counts as another one.
const TRIES: usize = 3;

const HEAD: &str = "\
# What is seen of a program

What does `foretell run` see of ordinary programs at their first run, and what does it do ahead of them?

Each program ran on a cold emulated array, and did the same as without foretell.
The table is made by a test (`cli/tests/coverage.rs`).
*None* stands for programs that read names and next to no data; *in part* for those that also read from pipes or by mapping.

| program | reads seen | hints from arguments | names looked up ahead | hints from what it does |
|---|---|---|---|---|
";

/// A static program that reads, or maps, the file that is its last argument.
const STATIC: &str = r#"
#include <fcntl.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
int main(int argc, char **argv) {
    static char buffer[65536];
    unsigned long sum = 0;
    struct stat s;
    int fd = open(argv[argc - 1], O_RDONLY);
    fstat(fd, &s);
#ifdef MAPS
    char *p = mmap(0, s.st_size, PROT_READ, MAP_SHARED, fd, 0);
    for (long i = 0; i < s.st_size; i += 512) sum += p[i];
#else
    for (long n; (n = read(fd, buffer, sizeof buffer)) > 0;)
        for (long i = 0; i < n; i += 512) sum += buffer[i];
#endif
    printf("%lu\n", sum);
    return 0;
}
"#;

fn fill(folder: &Path) {
    let write = |path: PathBuf, text: Vec<u8>| {
        fs::create_dir_all(path.parent().expect("below")).expect("made");
        fs::write(path, text).expect("written");
    };
    for number in 0..200 {
        let name = format!("files/{number:03}.txt");
        write(folder.join(name), format!("{number} word\n").repeat(1000).into());
    }
    for number in 0..400 {
        let kind = ["h", "c", "txt"][number % 3];
        let name = format!("part{}/sub{}/{number}.{kind}", number % 4, number % 12);
        for tree in ["tree", "repository/tree"] {
            write(folder.join(tree).join(&name), b"/* a word */\n".repeat(10 + number % 500));
        }
    }
    write(folder.join("big"), (0..16 << 20).map(|at: u32| (at / 997) as u8).collect());
    let includes = (0..60).map(|n| format!("#include \"sub{}/{}.h\"\n", (n * 12) % 12, n * 12));
    write(folder.join("main.c"), includes.collect::<String>().into());
    write(folder.join("static.c"), STATIC.into());
    for (name, option) in [("static-read", "-O1"), ("static-map", "-DMAPS")] {
        let compiled = Command::new("cc")
            .args(["-static", option, "-o", name, "static.c"])
            .current_dir(folder)
            .status();
        if !compiled.is_ok_and(|status| status.success()) {
            skipped("no static program can be built");
        }
    }
    if have("git") {
        age(&folder.join("repository/tree"));
        let git = |words: &[&str]| {
            let mut git = Command::new("git");
            git.args(["-c", "user.name=a", "-c", "user.email=a@b"]).args(words);
            let output = git.current_dir(folder.join("repository")).output().expect("git runs");
            assert!(output.status.success(), "{output:?}");
        };
        git(&["init", "-q"]);
        git(&["add", "-A"]);
        git(&["commit", "-qm", "all"]);
    }
}

/// Makes all files an hour old. `git status` reads files that are as young as its index, for their size may hide a change.
fn age(folder: &Path) {
    let hour_ago = SystemTime::now() - Duration::from_secs(3600);
    for entry in fs::read_dir(folder).expect("a folder").map(|entry| entry.expect("an entry")) {
        if entry.file_type().expect("a type").is_dir() {
            age(&entry.path());
        } else {
            let file = fs::File::options().append(true).open(entry.path()).expect("opened");
            file.set_modified(hour_ago).expect("its time is set");
        }
    }
}

/// A cold array over the backing folder.
struct Array<'a>(&'a Path);

impl<'a> Array<'a> {
    fn new(backing: &Path, folder: &'a Path) -> Self {
        let mut mount = foretell();
        mount.args([
            "array",
            "mount",
            "--disks",
            "4",
            "--disk",
            "network",
            "--time-scale",
            "1",
            "--layout",
            "aged",
        ]);
        let output = mount.args([backing, folder]).output().expect("foretell runs");
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Array(folder)
    }
}

impl Drop for Array<'_> {
    fn drop(&mut self) {
        common::wait_until("the array is free", || {
            let mut unmount = foretell();
            unmount
                .args(["array", "unmount"])
                .arg(self.0)
                .stdout(Stdio::null())
                .stderr(Stdio::null());
            unmount.status().is_ok_and(|status| status.success())
        });
    }
}

fn run(mut command: Command, folder: &Path, out: &Path) -> Output {
    command.current_dir(folder).env("OUT", out).stdin(Stdio::null()).output().expect("it runs")
}

/// The figures of a cold run with these options. It must do as `plain` did.
fn figures(
    folders: &[tempfile::TempDir; 3],
    words: (&[&str], &[&str]),
    plain: &Output,
) -> serde_json::Value {
    let [backing, mount, out] = folders;
    let array = Array::new(backing.path(), mount.path());
    let file = out.path().join("figures");
    let mut hinted = foretell();
    hinted.args(["run", "--quiet", "--json"]).arg(&file).args(words.0).arg("--").args(words.1);
    let output = run(hinted, mount.path(), out.path());
    drop(array);
    assert!(output.stdout == plain.stdout, "{words:?}: standard output differs");
    assert_eq!(output.stderr, plain.stderr, "{words:?}");
    assert_eq!(output.status, plain.status, "{words:?}");
    serde_json::from_slice(&fs::read(file).expect("written")).expect("JSON")
}

fn row_of(folders: &[tempfile::TempDir; 3], name: &str, command: &[&str]) -> String {
    let [backing, _, out] = folders;
    let mut plain = Command::new(command[0]);
    plain.args(&command[1..]);
    let plain = run(plain, backing.path(), out.path());
    let number =
        |of: &serde_json::Value, group: &str, key: &str| of[group][key].as_u64().expect("a number");
    let yes = |is_so| if is_so { "yes" } else { "" };
    let of_arguments = figures(folders, (&["--observe", "none"], command), &plain);
    let of_actions = figures(folders, (&["--no-hint-args"], command), &plain);
    let all = figures(folders, (&[], command), &plain);
    assert_eq!(all["manager"], "finished", "{all}");
    let runs = [&of_arguments, &of_actions, &all];
    let outside = runs.map(|run| number(run, "programs", "outside")).into_iter().sum::<u64>();
    let seen = match (all["seen_share"].as_f64(), outside) {
        (_, 1..) => "from outside",
        _ if all["kernel_read_bytes"].as_u64().is_none_or(|bytes| bytes < READ_MIN_BYTES) => "none",
        (Some(share), _) if share < 0.25 => "",
        (Some(share), _) if share < 0.75 => "in part",
        _ => "yes",
    };
    let hints = |of| yes(number(of, "hints", "given") > 0);
    let names = yes(number(&of_actions, "names", "used") > 0);
    format!("| {name} | {seen} | {} | {names} | {} |\n", hints(&of_arguments), hints(&of_actions))
}

/// The cells of a row. The names have bars of their own.
fn cells(row: &str) -> Vec<String> {
    row.replace("\\|", "\0").split('|').map(|cell| cell.trim().replace('\0', "\\|")).collect()
}

/// A row with what both have: the page promises what was found each time.
fn in_both(one: &str, other: &str) -> String {
    let both = cells(one).into_iter().zip(cells(other));
    let both: Vec<_> =
        both.map(|(one, other)| if one == other { one } else { String::new() }).collect();
    format!("| {} |\n", both[1..both.len() - 1].join(" | "))
}

/// Whether a row found has what the page's row promises in this cell. The page may promise less.
fn keeps(promised: &str, found: &str, cell: usize) -> bool {
    let text = |row: &str| cells(row).get(cell).cloned().unwrap_or_default();
    text(promised).is_empty() || text(promised) == text(found)
}

/// The cells in which it has not.
fn missing(promised: &str, found: &str) -> Vec<usize> {
    (2..6).filter(|&cell| !keeps(promised, found, cell)).collect()
}

#[test]
fn what_the_table_promises_is_found() {
    if !have_fuse() {
        return;
    }
    let folders = [(); 3].map(|()| tempfile::tempdir().expect("a folder"));
    fill(folders[0].path());
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/coverage.md");
    let known = fs::read_to_string(&path).unwrap_or_default();
    let updates = std::env::var_os("FORETELL_UPDATE_GOLDEN").is_some();
    let mut table = HEAD.to_owned();
    let mut differ = Vec::new();
    for &(name, command) in PROGRAMS {
        let words = command.join(" ");
        let needs = ["git", "rsync", "gcc", "gzip"].into_iter().find(|tool| words.contains(tool));
        let program = if command[0].starts_with("./") { "sh" } else { command[0] };
        let is_there = !command[0].starts_with("./") || folders[0].path().join(command[0]).exists();
        if !is_there || !have(program) || !needs.is_none_or(have) {
            continue;
        }
        // What a program does may be over before it is noticed, on a busy machine.
        let mut row = row_of(&folders, name, command);
        if updates {
            for _ in 1..TRIES {
                row = in_both(&row, &row_of(&folders, name, command));
            }
        }
        let promised = known.lines().find(|line| line.starts_with(&format!("| {name} |")));
        let mut missing = missing(promised.unwrap_or_default(), &row);
        for _ in 1..TRIES {
            if !missing.is_empty() && !updates {
                let again = row_of(&folders, name, command);
                missing.retain(|&cell| !keeps(promised.unwrap_or_default(), &again, cell));
            }
        }
        if !missing.is_empty() || promised.is_none() {
            differ.push(row.clone());
        }
        write!(table, "{row}").expect("a string");
    }
    if updates {
        return fs::write(path, table).expect("written");
    }
    assert!(known.starts_with(HEAD) && differ.is_empty(), "the page says otherwise: {differ:#?}");
}
