use std::io::{Cursor, Write};
use std::process::{Command, Stdio};

use flate2::Compression;
use flate2::write::GzEncoder;
use proptest::prelude::*;

use super::super::recording::Whom;
use super::*;

fn outcome(bytes: impl Into<Vec<u8>>) -> Result<Recording, TraceError> {
    of(Cursor::new(bytes.into()), Path::new("r.strace"), Path::new("/home/me"))
}

fn recorded(text: &str) -> Recording {
    outcome(text).expect("a recording")
}

/// The calls of a recording except [`What::Other`], one a line.
fn told(text: &str) -> Vec<String> {
    let recording = recorded(text);
    let name = |index: PathIndex| recording.paths[index.0 as usize].display().to_string();
    let tell = |call: &Call| {
        let ReaderId(reader) = call.reader;
        let what = match call.what {
            What::Open(file) => format!("open {}", name(file)),
            What::Look(file) => format!("look {}", name(file)),
            What::Read { file, offset_bytes, length_bytes } => {
                format!("read {} {offset_bytes}+{length_bytes}", name(file))
            }
            What::List(file) => format!("list {}", name(file)),
            What::Advise { file, offset_bytes, length_bytes } => {
                format!("advise {} {offset_bytes}+{length_bytes}", name(file))
            }
            What::Missing(file) => format!("no {}", name(file)),
            What::End(file) => format!("end {}", name(file)),
            What::Fork { .. } | What::Wait(_) | What::Other => return None,
        };
        Some(format!("{reader} {what}"))
    };
    recording.calls.iter().filter_map(tell).collect()
}

/// [`told`] for calls of process 1, whose lines are given without process and time.
fn told_of(calls: &[&str]) -> Vec<String> {
    let line = |(i, call): (usize, &&str)| format!("1 {}.000000 {call}\n", i + 1);
    let told = told(&calls.iter().enumerate().map(line).collect::<String>());
    told.iter().map(|line| line["1 ".len()..].to_owned()).collect()
}

#[test]
fn reads_that_no_file_is_known_of_are_counted() {
    let recording = recorded(
        "1 1.0 pread64(7, \"\"..., 4096, 8192) = 4096 <0.1>\n\
         1 2.0 preadv2(7, [], 1, 0, 0) = -1 EAGAIN (Resource temporarily unavailable) <0.1>\n\
         1 3.0 pread64(8</a>, \"\"..., 4096, 8192) = 4096 <0.1>\n\
         1 4.0 io_uring_enter(4, 1, 1, IORING_ENTER_GETEVENTS, NULL, 8) = 1 <0.5>\n\
         1 5.0 io_getevents(0x7f, 1, 1, [{}], NULL) = 1 <0.2>\n\
         1 6.0 openat(9, \"b\", O_RDONLY) = 3 <0.1>\n\
         1 7.0 openat(9, \"c\", O_RDONLY) = -1 ENOENT (No such file or directory) <0.1>\n\
         1 8.0 openat(9, \"/d\", O_RDONLY) = 5 <0.1>\n\
         1 9.0 openat(9, \"e\", O_WRONLY|O_CREAT, 0666) = 6 <0.1>\n\
         1 9.5 openat(9, \"f\", O_RDONLY|O_DIRECTORY) = 7 <0.1>\n",
    );
    assert_eq!((recording.unnamed_bytes, recording.ring_calls), (4096, 2));
    assert_eq!(recording.unnamed_opens, 1);
}

#[test]
fn what_is_mapped_is_noted_but_for_programs() {
    let recording = recorded(concat!(
        "1 1.0 openat(AT_FDCWD, \"/a\", O_RDONLY) = 3\n",
        "1 2.0 mmap(NULL, 8192, PROT_READ, MAP_PRIVATE, 3, 0) = 0x7f0000000000\n",
        "1 3.0 mmap(NULL, 512, PROT_READ, MAP_SHARED, 4</b>, 0x1000) = 0x7f0000000000\n",
        "1 4.0 mmap(NULL, 9000, PROT_READ, MAP_PRIVATE|MAP_ANONYMOUS, -1, 0) = 0x7f0000000000\n",
        "1 5.0 mmap(NULL, 9001, PROT_READ|PROT_EXEC, MAP_PRIVATE, 3, 0) = 0x7f0000000000\n",
        "1 6.0 mmap(NULL, 9002, PROT_READ, MAP_PRIVATE|MAP_DENYWRITE, 3, 0) = 0x7f0000000000\n",
    ));
    let name = |index: PathIndex| recording.paths[index.0 as usize].display().to_string();
    let mapped = recording.mapped.iter().map(|&(file, bytes)| (name(file), bytes));
    let mapped: Vec<(String, u64)> = mapped.collect();
    assert_eq!(mapped, [("/a".to_owned(), 8192), ("/b".to_owned(), 512)]);
}

#[test]
fn every_form_of_the_process_is_read() {
    for (prefix, reader) in [
        ("1234  ", 1234),
        ("[pid  1234] ", 1234),
        ("1234<sh> ", 1234),
        ("[pid 1234<a b>] ", 1234),
        ("", 0),
    ] {
        let recording = recorded(&format!("{prefix}5.000001 getpid() = 7\n"));
        assert_eq!(recording.calls[0].reader, ReaderId(reader), "{prefix:?}");
    }
}

#[test]
fn times_are_since_the_first_call_whatever_their_digits() {
    let recording = recorded(
        "1 1795349886.414395 brk(NULL)       = 0x55a89c188000 <0.000005>\n\
         1 1795349886.414396789 getpid() = 1 <0.000000012>\n\
         1 1795349887.4 (+     0.000123) [  39] [00007f0f] getpid() = 1\n",
    );
    let times: Vec<_> = recording.calls.iter().map(|call| (call.began.0, call.took.0)).collect();
    assert_eq!(times, [(0, 5_000), (1_789, 12), (985_605_000, 0)]);
    assert!(recording.has_durations);
    assert!(!recorded("1 1.000000 getpid() = 1\n").has_durations);
}

#[test]
fn calls_in_the_order_of_their_ends_are_put_in_that_of_their_beginnings() {
    let recording = recorded("1 7.000000 getpid() = 1\n2 5.000000 getpid() = 2 <1.990001>\n");
    let calls: Vec<_> = recording.calls.iter().map(|call| (call.reader.0, call.began.0)).collect();
    assert_eq!(calls, [(2, 0), (1, 2_000_000_000)]);
}

#[test]
fn an_interrupted_call_keeps_its_beginning() {
    let text = |took: &str| {
        format!(
            "1 1.000000 openat(AT_FDCWD, \"/a\", O_RDONLY <unfinished ...>\n\
             2 1.100000 getpid() = 2\n\
             1 1.200000 <... openat resumed>) = 3{took}\n\
             1 1.300000 read(3,  <unfinished ...>\n\
             2 1.400000 read(5,  <unfinished ...>\n\
             1 1.500000 <... read resumed>\"a) = 9\"..., 100) = 10{took}\n"
        )
    };
    assert_eq!(told(&text("")), ["1 open /a", "1 read /a 0+10"]);
    let times = |text: &str| -> Vec<_> {
        let calls = recorded(text).calls;
        calls.iter().map(|call| (call.reader.0, call.began.0 / 1000, call.took.0 / 1000)).collect()
    };
    let expected =
        |took| [(1, 0, took), (2, 100_000, 0), (1, 300_000, took), (2, 400_000, 0)].to_vec();
    assert_eq!(times(&text("")), expected(200_000));
    assert_eq!(times(&text(" <0.000123>")), expected(123));
}

#[test]
fn interruptions_may_have_numbers() {
    let numbered = "1 1.0 openat(AT_FDCWD, \"/a\", O_RDONLY <unfinished #7 ...>\n\
         2 1.1 getpid() = 2\n\
         1 1.2 <... openat resumed #7>) = 3\n\
         1 1.3 read(3,  <unfinished #89567 ...>\n\
         2 1.4 getpid() = 2\n\
         1 1.5 <... read resumed #89567>\"x\", 10) = 10\n";
    let mut plain = numbered.to_owned();
    for number in [" #7", " #89567"] {
        plain = plain.replace(number, "");
    }
    assert_eq!(recorded(numbered), recorded(&plain));
    assert_eq!(recorded(numbered).state.not_understood, 0);
}

/// Names can contain characters that separate arguments elsewhere.
#[test]
fn annotations_are_of_any_name() {
    for name in ["/d/a,b", "/d/a) = 5", "/d/{x}", "/d/[1", "/d/a b", "/d/f(1)"] {
        let text = format!(
            "1 1.0 openat(AT_FDCWD</d>, \"{name}\", O_RDONLY) = 3<{name}> <0.1>\n\
             1 2.0 read(3<{name}>, \"x\", 10) = 10 <0.1>\n"
        );
        let recording = recorded(&text);
        let reads = recording.calls.iter().filter_map(|call| match call.what {
            What::Read { file, length_bytes: 10, .. } => recording.path(file).to_str(),
            _ => None,
        });
        assert_eq!(reads.collect::<Vec<_>>(), [name], "{text}");
    }
}

#[test]
fn an_annotation_before_an_interruption_ends_there() {
    let recording = recorded(
        "1 1.0 openat(AT_FDCWD</d>, \"a\", O_RDONLY) = 3</d/a> <0.1>\n\
         1 2.0 close(3</d/a> <unfinished ...>\n\
         1 3.0 <... close resumed>) = 0 <0.000017>\n\
         1 4.0 read(3</d/b>,  <unfinished ...>\n\
         1 5.0 <... read resumed>\"x\", 10) = 1 <0.000017>\n",
    );
    assert_eq!(recording.passed_over, 0);
    assert_eq!(recording.calls[1].took, Nanos(17_000));
    let What::Read { file, offset_bytes: 0, length_bytes: 1 } = recording.calls[2].what else {
        panic!("{:?}", recording.calls[2]);
    };
    assert_eq!(recording.paths[file.0 as usize], Path::new("/d/b"));
}

#[test]
fn what_fails_or_never_returns_is_another_call_or_of_what_is_missing() {
    let calls = [
        "openat(AT_FDCWD, \"/a\", O_RDONLY) = -1 ENOENT (No such file or directory) <0.1>",
        "stat(\"/a\", 0x7ffd) = -1 ENOENT (No such file or directory)",
        "read(3, \"\", 10) = 0",
        "read(3, 0x5, 10) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)",
        "read(3, <unfinished ...>) = ?",
        "read(3, 0x5, 10) = ?",
        "pause() = ? <unavailable>",
    ];
    assert_eq!(told_of(&calls), ["no /a", "no /a"]);
    assert_eq!(recorded("1 1.0 pause() = ?\n1 2.0 exit_group(0) = ?\n").calls.len(), 1);
}

#[test]
fn escaped_and_odd_names_are_what_they_were() {
    let calls = [
        r#"open("/caf\303\251", O_RDONLY) = 3"#,
        r#"open("/a\n\t\"\\\x41\x0a", O_RDONLY) = 4"#,
        r#"open("/x, y) = 5 <1.0>", O_RDONLY) = 5"#,
        r#"open("//a/./b/../c/", O_RDONLY) = 6"#,
        r#"open("/../..", O_RDONLY) = 7"#,
        r#"open("\x2f\x61", O_RDONLY) = 8"#,
        r#"open("/cut"..., O_RDONLY) = 9"#,
        r#"stat("", 0x7ff) = 0"#,
        r#"read(9, ""..., 5) = 5"#,
    ];
    let expected = [
        "open /café",
        "open /a\n\t\"\\A\n",
        "open /x, y) = 5 <1.0>",
        "open /a/c",
        "open /",
        "open /a",
    ];
    assert_eq!(told_of(&calls), expected);
}

#[test]
fn annotations_win_and_are_files_or_not() {
    let calls = [
        r#"openat(AT_FDCWD</tmp>, "link", O_RDONLY) = 3</real/a\"b\74c\76d, e) = 5\\x> <0.1>"#,
        r#"read(3</real/a\"b\74c\76d, e) = 5\\x>, "12"..., 2) = 2"#,
        r#"read(4</old>er->b>, "12"..., 2) = 2"#,
        r#"read(5</gone (deleted)>, "12"..., 2) = 2"#,
        r#"read(6</gone>(deleted), "12"..., 2) = 2"#,
        r#"read(7</dev/pts/0<char 136:0>>, "12"..., 2) = 2"#,
        r#"read(8<pipe:[123]>, "12"..., 2) = 2"#,
        r#"read(9<socket:[1]>, "12"..., 2) = 2"#,
        r#"read(10<TCP:[127.0.0.1:1->127.0.0.1:2]>, "12"..., 2) = 2"#,
        r#"read(11<anon_inode:[eventfd]>, "12"..., 2) = 2"#,
        r#"stat("b", {st_mode=S_IFREG|0644, st_size=6, ...}) = 0"#,
        r#"newfstatat(3</dir>, "b", {st_mode=S_IFREG|0644, ...}, 0) = 0"#,
        r#"newfstatat(3</dir>, "", {st_mode=S_IFREG|0644, ...}, AT_EMPTY_PATH) = 0"#,
        r#"getdents64(3</dir>, 0x55fb8d34f150 /* 7 entries, (2) */, 32768) = 216"#,
        r#"getdents64(3</dir>, 0x55fb8d34f150 /* 0 entries */, 32768) = 0"#,
    ];
    let expected = [
        r#"open /real/a"b<c>d, e) = 5\x"#,
        r#"read /real/a"b<c>d, e) = 5\x 0+2"#,
        "read /old>er->b 0+2",
        "read /gone 0+2",
        "read /gone 0+2",
        "read /dev/pts/0 0+2",
        "look /tmp/b",
        "look /dir/b",
        "list /dir",
        "end /dir",
    ];
    assert_eq!(told_of(&calls), expected);
}

#[test]
fn offsets_follow_the_open_file() {
    let calls = [
        r#"openat(AT_FDCWD, "/a", O_RDONLY) = 3"#,
        r#"read(3, "x"..., 10) = 10"#,
        r#"dup(3) = 4"#,
        r#"read(4, "x"..., 10) = 10"#,
        r#"pread64(3, "x"..., 7, 500) = 7"#,
        r#"preadv(3, [{iov_base="x", iov_len=3}], 1, 600) = 3"#,
        r#"preadv2(3, [{iov_base="x", iov_len=3}], 1, -1, 0) = 3"#,
        r#"readv(3, [{iov_base="x, ]", iov_len=3}, {iov_base="", iov_len=1}], 2) = 3"#,
        r#"lseek(4, -6, SEEK_CUR) = 20"#,
        r#"close(3) = 0"#,
        r#"fcntl(4, F_DUPFD_CLOEXEC, 10) = 10"#,
        r#"read(10, "x"..., 5) = 5"#,
        r#"dup2(10, 3) = 3"#,
        r#"dup3(3, 5, O_CLOEXEC) = 5"#,
        r#"dup2(5, 5) = 5"#,
        r#"write(5, "x"..., 5) = 5"#,
        r#"sendfile(1, 3, NULL, 4096) = 100"#,
        r#"sendfile(1, 3, [7] => [11], 4096) = 4"#,
        r#"copy_file_range(3, [9], 1, NULL, 4096, 0) = 1"#,
        r#"read(3, "x"..., 5) = 5"#,
        r#"close_range(3, 4294967295, 0) = 0"#,
        r#"read(3, "x"..., 5) = 5"#,
        r#"open("/a", O_RDONLY) = 3"#,
        r#"read(3, "x"..., 5) = 5"#,
    ];
    let reads = ["0+10", "10+10", "500+7", "600+3", "20+3", "23+3", "20+5", "30+100", "7+4"];
    let later = ["9+1", "130+5"];
    let mut expected = vec!["open /a".to_owned()];
    expected.extend(reads.iter().chain(&later).map(|read| format!("read /a {read}")));
    expected.extend(["open /a".to_owned(), "read /a 0+5".to_owned()]);
    assert_eq!(told_of(&calls), expected);
}

#[test]
fn a_descriptor_of_another_name_is_another_file() {
    let calls = [
        r#"read(0</in>, "x"..., 5) = 5"#,
        r#"openat(AT_FDCWD</home/me>, "a", O_RDONLY) = 3</home/me/a>"#,
        r#"read(3</home/me/a>, "x"..., 10) = 10"#,
        // The close of one file and the open of the next are missing.
        r#"read(3</b>, "x"..., 7) = 7"#,
        r#"read(3</b>, "x"..., 7) = 7"#,
        r#"read(3</b (deleted)>, "", 7) = 0"#,
        // The offsets of these are known.
        r#"pread64(5</c>, "x"..., 3, 7) = 3"#,
        r#"lseek(4</c>, 100, SEEK_SET) = 100"#,
        r#"read(4</c>, "x"..., 3) = 3"#,
    ];
    let expected = [
        "read /in 0+5",
        "open /home/me/a",
        "read /home/me/a 0+10",
        "read /b 0+7",
        "read /b 7+7",
        "end /b",
        "read /c 7+3",
        "read /c 100+3",
    ];
    assert_eq!(told_of(&calls), expected);
    let lines = calls.iter().enumerate().map(|(at, call)| format!("1700000000.{at:06} {call}\n"));
    assert_eq!(recorded(&lines.collect::<String>()).state.unopened, 1);
}

#[test]
fn advice_to_read_ahead_is_told() {
    let calls = [
        r#"openat(AT_FDCWD, "/a", O_RDONLY) = 3"#,
        r#"fadvise64(3, 0, 0, POSIX_FADV_SEQUENTIAL) = 0"#,
        r#"fadvise64(3, 4096, 0, POSIX_FADV_WILLNEED) = 0"#,
        r#"fadvise64(7, 0, 0, POSIX_FADV_WILLNEED) = -1 EBADF (Bad file descriptor)"#,
        r#"readahead(3, 8192, 100) = 0"#,
        r#"readahead(3, 18446744073709551615, 100) = 0"#,
        r#"read(3, "x"..., 5) = 5"#,
    ];
    let expected = ["open /a", "advise /a 4096+0", "advise /a 8192+100", "read /a 0+5"];
    assert_eq!(told_of(&calls), expected);
}

#[test]
fn names_are_relative_to_the_folder_of_the_process() {
    let calls = [
        r#"stat("x", {st_mode=S_IFREG|0644, ...}) = 0"#,
        r#"access("../x", R_OK) = 0"#,
        r#"chdir("sub") = 0"#,
        r#"statx(AT_FDCWD, "x", 0, STATX_ALL, {stx_mask=0}) = 0"#,
        r#"open("/etc", O_RDONLY|O_DIRECTORY) = 3"#,
        r#"openat(3, "passwd", O_RDONLY) = 4"#,
        r#"openat(9, "unknown", O_RDONLY) = 5"#,
        r#"fchdir(3) = 0"#,
        r#"readlink("x", "y", 10) = 1"#,
        r#"execve("./x", ["x"], 0x7ff /* 35 vars */) = 0"#,
        r#"openat2(AT_FDCWD, "y", {flags=O_RDONLY, resolve=0}, 24) = 6"#,
    ];
    let expected = [
        "look /home/me/x",
        "look /home/x",
        "look /home/me/sub",
        "look /home/me/sub/x",
        "open /etc",
        "open /etc/passwd",
        "look /etc/x",
        "look /etc/x",
        "open /etc/y",
    ];
    assert_eq!(told_of(&calls), expected);
}

#[test]
fn execve_closes_what_was_opened_to_be_closed() {
    let mut calls = vec![
        r#"open("/a", O_RDONLY|O_CLOEXEC) = 3"#,
        r#"open("/b", O_RDONLY) = 4"#,
        r#"open("/c", O_RDONLY) = 5"#,
        r#"fcntl(5, F_SETFD, FD_CLOEXEC) = 0"#,
        r#"fcntl(3, F_DUPFD, 6) = 6"#,
        r#"execve("/x", ["x"], 0x7ff) = 0"#,
    ];
    let reads =
        ["read(3, 0, 1) = 1", "read(4, 0, 1) = 1", "read(5, 0, 1) = 1", "read(6, 0, 1) = 1"];
    calls.extend(reads);
    let told = told_of(&calls);
    assert_eq!(told[3..], ["look /x", "read /b 0+1", "read /a 0+1"]);
}

#[test]
fn children_copy_the_descriptors_and_threads_share_them() {
    let text = |flags: &str| {
        format!(
            "1 1.0 open(\"/a\", O_RDONLY) = 3\n\
             1 2.0 clone(child_stack=NULL, flags={flags}) = 2\n\
             2 3.0 read(3, \"x\", 10) = 10\n\
             2 4.0 close(3) = 0\n\
             2 5.0 open(\"/b\", O_RDONLY) = 3\n\
             2 6.0 chdir(\"/tmp\") = 0\n\
             1 7.0 read(3, \"x\", 10) = 10\n\
             1 8.0 stat(\"x\", {{}}) = 0\n"
        )
    };
    let last = |flags| told(&text(flags)).split_off(4);
    assert_eq!(last("SIGCHLD"), ["1 read /a 10+10", "1 look /home/me/x"]);
    assert_eq!(last("CLONE_VM|CLONE_FILES"), ["1 read /b 0+10", "1 look /home/me/x"]);
    assert_eq!(last("CLONE_FS|CLONE_FILES"), ["1 read /b 0+10", "1 look /tmp/x"]);
}

#[test]
fn a_child_may_act_before_it_is_told() {
    let told = told(
        "1 1.0 open(\"/a\", O_RDONLY) = 3\n\
         2 1.1 open(\"/b\", O_RDONLY) = 3\n\
         1 2.0 vfork( <unfinished ...>\n\
         11 2.1 read(3, \"x\", 10) = 10\n\
         2 2.2 clone3({flags=CLONE_VM|CLONE_FILES, exit_signal=0}, 88 <unfinished ...>\n\
         11 2.3 exit_group(0) = ?\n\
         11 2.4 +++ exited with 0 +++\n\
         22 2.5 close(3) = 0\n\
         1 3.0 <... vfork resumed>) = 11\n\
         2 3.1 <... clone3 resumed> => {parent_tid=[0]}, 88) = 22\n\
         1 4.0 read(3, \"x\", 10) = 10\n\
         2 4.1 read(3, \"x\", 10) = 10\n\
         11 5.0 read(3, \"x\", 10) = 10\n",
    );
    let expected = ["1 open /a", "2 open /b", "11 read /a 0+10", "1 read /a 10+10"];
    assert_eq!(told, expected);
}

#[test]
fn a_child_taken_for_anothers_leaves_the_other_its_own() {
    let told = told(
        "1 1.0 open(\"/a\", O_RDONLY) = 3\n\
         2 1.1 open(\"/b\", O_RDONLY) = 3\n\
         1 2.0 vfork( <unfinished ...>\n\
         2 2.1 vfork( <unfinished ...>\n\
         22 2.2 getpid() = 22\n\
         2 2.3 <... vfork resumed>) = 22\n\
         11 2.4 read(3, \"x\", 10) = 10\n\
         1 2.5 <... vfork resumed>) = 11\n\
         11 2.6 read(3, \"x\", 10) = 10\n",
    );
    assert_eq!(told[2..], ["11 read /a 0+10", "11 read /a 10+10"]);
}

/// The calls of a recording that concern other processes, one a line.
fn ties(text: &str) -> Vec<String> {
    let tell = |call: &Call| {
        let what = match call.what {
            What::Fork { child, waits: false } => format!("makes {}", child.0),
            What::Fork { child, waits: true } => format!("makes and awaits {}", child.0),
            What::Wait(Whom::Child(child)) => format!("awaits {}", child.0),
            What::Wait(Whom::Writer { pipe, bytes }) => format!("awaits writer of {pipe}, {bytes}"),
            What::Wait(Whom::Reader { pipe, bytes }) => format!("awaits reader of {pipe}, {bytes}"),
            What::Wait(Whom::Unknown) => "waits".to_owned(),
            _ => return None,
        };
        Some(format!("{} {what}", call.reader.0))
    };
    recorded(text).calls.iter().filter_map(tell).collect()
}

#[test]
fn children_that_act_are_told_with_their_makers() {
    let text = "1 1.0 clone(child_stack=NULL, flags=SIGCHLD) = 2\n\
         1 1.1 fork() = 3\n\
         1 1.2 vfork( <unfinished ...>\n\
         4 1.3 getpid() = 4\n\
         1 1.4 <... vfork resumed>) = 4\n\
         2 1.5 clone3({flags=CLONE_VM|CLONE_VFORK, exit_signal=SIGCHLD}, 88) = 5\n\
         5 1.6 getpid() = 5\n\
         5 1.7 clone(flags=CLONE_VM|CLONE_THREAD) = -1 EAGAIN (Resource temporarily unavailable)\n";
    // Process 3 has no lines.
    assert_eq!(ties(text), ["1 makes 2", "1 makes and awaits 4", "2 makes and awaits 5"]);
}

#[test]
fn waits_for_others_are_told_from_work() {
    let calls = [
        ("wait4(-1, [{WIFEXITED(s) && WEXITSTATUS(s) == 0}], 0, NULL) = 77", "awaits 77"),
        ("wait4(-1, 0x7ffc, WNOHANG, NULL) = 0", ""),
        (
            "wait4(-1, 0x7ffc, 0, NULL) = ? ERESTARTSYS (To be restarted if SA_RESTART is set)",
            "waits",
        ),
        ("wait4(-1, 0x7ffc, 0, NULL) = -1 ECHILD (No child processes)", ""),
        (
            "waitid(P_PID, 78, {si_signo=SIGCHLD, si_pid=78, si_uid=0}, WEXITED, NULL) = 0",
            "awaits 78",
        ),
        (r#"read(3<pipe:[123]>, "12"..., 2) = 2"#, "awaits writer of 123, 2"),
        (r#"read(3<pipe:[123]>, "", 2) = 0"#, "waits"),
        (r#"read(3</a>, "", 2) = 0"#, ""),
        (r#"read(3</dev/tty>, "", 2) = 0"#, ""),
        (r#"readv(4<UNIX:[1->2]>, [{iov_base="x", iov_len=3}], 1) = 3"#, "waits"),
        (r#"read(5<anon_inode:[eventfd]>, "1", 8) = 8"#, "waits"),
        (r#"read(5<anon_inode:[timerfd]>, "1", 8) = 8"#, ""),
        (r#"read(6, "1", 8) = 8"#, "waits"),
        (r#"read(5<pipe:[1]>, 0x7f, 8) = -1 EAGAIN (Resource temporarily unavailable)"#, ""),
        (r#"read(5<pipe:[1]>, 0x7f, 8) = -1 EINTR (Interrupted system call)"#, "waits"),
        (r#"recvfrom(7<socket:[9]>, "1", 8, 0, NULL, NULL) = 1"#, "waits"),
        (r#"write(1<pipe:[1]>, "1", 1) = 1"#, "awaits reader of 1, 1"),
        (r#"write(1</a>, "1", 1) = 1"#, ""),
        (r#"splice(1</a>, NULL, 2<pipe:[1]>, NULL, 10, 0) = 0"#, "awaits reader of 1, 0"),
        ("futex(0x7f, FUTEX_WAIT_PRIVATE, 2, NULL) = 0", "waits"),
        (
            "futex(0x7f, FUTEX_WAIT_PRIVATE, 2, {tv_sec=1}) = -1 ETIMEDOUT (Connection timed out)",
            "",
        ),
        ("futex(0x7f, FUTEX_WAKE_PRIVATE, 1) = 1", ""),
        ("poll([{fd=3<pipe:[1]>, events=POLLIN}], 1, 10) = 1 ([{fd=3, revents=POLLIN}])", "waits"),
        ("poll([{fd=3<pipe:[1]>, events=POLLIN}], 1, 10) = 0 (Timeout)", ""),
        ("pselect6(4, [3], NULL, NULL, NULL, NULL) = 1 (in [3])", "waits"),
        ("epoll_wait(3<anon_inode:[eventpoll]>, [], 10, 1) = 0", ""),
        ("epoll_pwait(3, [{events=EPOLLIN, data=0}], 10, -1, NULL, 8) = 1", "waits"),
        ("msgrcv(1, {1, \"x\"}, 8, 0, 0) = 1", "waits"),
        ("semop(1, [{0, -1, 0}], 1) = 0", "waits"),
        ("flock(3</a>, LOCK_EX) = 0", "waits"),
        ("fcntl(3</a>, F_SETLKW, {l_type=F_WRLCK}) = 0", "waits"),
        ("fcntl(3</a>, F_SETLK, {l_type=F_WRLCK}) = 0", ""),
        ("rt_sigsuspend([], 8) = ? ERESTARTNOHAND (To be restarted if no handler)", "waits"),
        ("clock_nanosleep(CLOCK_REALTIME, 0, {tv_sec=1}, NULL) = 0", ""),
        ("nanosleep({tv_sec=1}, {tv_sec=0}) = ? ERESTART_RESTARTBLOCK (Interrupted by signal)", ""),
    ];
    for (call, tie) in calls {
        let told = ties(&format!("1 1.0 {call}\n"));
        let expected = Some(tie).filter(|tie| !tie.is_empty()).map(|tie| format!("1 {tie}"));
        assert_eq!(told, Vec::from_iter(expected), "{call}");
    }
}

#[test]
fn what_strace_writes_to_the_terminal_is_read_as_well() {
    let text = "1.0 open(\"/a\", O_RDONLY) = 3\n\
         2.0 vfork(strace: Process 8 attached\n <unfinished ...>\n\
         [pid     8] 2.1 read(3, \"x\", 10) = 10\n\
         [pid     7] 2.2 <... vfork resumed>) = 8\n\
         [pid     8] 2.3 +++ exited with 0 +++\n\
         2.4 --- SIGCHLD {si_signo=SIGCHLD, si_pid=8} ---\n\
         2.5 clone(child_stack=NULL, flags=SIGCHLDstrace: Process 9 attached\n\
         , child_tidptr=0x7f) = 9\n\
         [pid     9] 2.6 read(3, \"x\", 10) = 10\n\
         strace: Process 10 attached\n";
    assert_eq!(told(text), ["7 open /a", "8 read /a 0+10", "9 read /a 10+10"]);
    let recording = recorded(text);
    assert_eq!((recording.calls.len(), recording.passed_over), (5, 2));
    assert!(recording.calls.iter().all(|call| call.reader != ReaderId(NAMELESS)));
}

#[test]
fn a_thread_that_executes_takes_the_place_of_its_process() {
    let told = told(
        "1 1.0 open(\"/a\", O_RDONLY) = 3\n\
         1 2.0 clone(flags=CLONE_VM|CLONE_FILES|CLONE_THREAD) = 2\n\
         2 3.0 execve(\"/x\", [\"x\"], 0x7f <pid changed to 1 ...>\n\
         1 3.1 +++ superseded by execve in pid 2 +++\n\
         1 3.2 <... execve resumed>) = 0\n\
         1 4.0 read(3, \"x\", 10) = 10\n",
    );
    assert_eq!(told, ["1 open /a", "2 look /x", "1 read /a 0+10"]);
}

#[test]
fn lines_that_are_not_needed_are_counted() {
    let recording = recorded(
        "1 1.0 getpid() = 1\n\
         1 1.1 --- SIGCHLD {si_signo=SIGCHLD} ---\n\
         what the program says\n\n\
         1 1.2 <... read resumed>\"\", 10) = 0\n\
         1 1.3 +++ exited with 0 +++\n\
         1 1.4 openat(AT_FDCWD, \"/cut",
    );
    assert_eq!((recording.calls.len(), recording.passed_over), (1, 4));
}

#[test]
fn what_is_no_recording_is_refused() {
    let message = |text: &str| outcome(text).expect_err("refused").to_string();
    let not_strace = "no line is a call with a time; is the file of another --format? \
        (record with `strace -f -ttt -T -y -o FILE PROGRAM`)";
    let no_time =
        "a call without its time in seconds since 1970; record with the option -ttt of strace";
    assert_eq!(message(""), "r.strace: is empty");
    assert_eq!(message("\n"), format!("r.strace: line 1: {not_strace}"));
    assert_eq!(message("1\n2\n3 4.5 x\n"), format!("r.strace: line 3: {not_strace}"));
    for call in ["getpid() = 1", "read(3,  <unfinished ...>", "<... read resumed>) = 0"] {
        for prefix in ["", "1234 ", "[pid 12] ", "1234 14:31:26 ", "1234 14:31:26.414395 "] {
            let text = format!("strace: Process 1234 attached\n{prefix}{call}\n");
            assert_eq!(message(&text), format!("r.strace: line 2: {no_time}"), "{text}");
        }
        let relative = format!("1234      0.000000 {call}\n1234      0.000250 {call}\n");
        assert_eq!(message(&relative), format!("r.strace: line 1: {no_time}"), "{relative}");
    }
    let long = format!("1 1.0 write(1, \"{}\", 1) = 1\n", "x".repeat(1 << 20));
    assert!(message(&long).starts_with("r.strace: line 1: longer than 1048576 bytes"));
    let read =
        "1 1.0 openat(AT_FDCWD, \"/a\", O_RDONLY) = 3\n1 2.0 read(3, \"\"..., 9) = 2147483649\n";
    assert_eq!(
        message(read),
        "r.strace: line 2: a read of 2147483649 bytes; one read has at most 2147483648"
    );
    let missing = open(Path::new("/none"), Path::new("/")).expect_err("missing");
    assert!(matches!(missing, TraceError::Open { .. }));
}

#[test]
fn long_lines_and_compressed_recordings_are_read() {
    let text = format!("1 1.0 write(1, \"{}\", 900000) = 900000\n", "x".repeat(900_000));
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("to memory");
    let packed = encoder.finish().expect("to memory");
    assert_eq!(outcome(packed.clone()).expect("a recording"), recorded(&text));
    let cut = outcome(&packed[..packed.len() / 2]).expect_err("cut off");
    assert!(matches!(cut, TraceError::Compression { .. }), "{cut}");
}

#[test]
fn damage_of_compressed_data_is_not_blamed_on_the_recording() {
    let text = "1 1.0 write(1, \"x\", 1) = 1\n".repeat(100);
    let packed = |level| {
        let mut encoder = GzEncoder::new(Vec::new(), level);
        encoder.write_all(text.as_bytes()).expect("to memory");
        encoder.finish().expect("to memory")
    };
    // Stored without compression: any bytes are valid until the checksum at the end.
    let mut damaged = packed(Compression::none());
    let middle = damaged.len() / 2;
    damaged[middle..middle + 40].fill(b'?');
    let error = outcome(damaged).expect_err("damaged");
    assert!(matches!(error, TraceError::Compression { .. }), "{error}");
    // Undamaged, but no recording.
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(b"what is this\n").expect("to memory");
    let error = outcome(encoder.finish().expect("to memory")).expect_err("no recording");
    assert!(matches!(error, TraceError::Malformed { .. }), "{error}");
}

/// A line of each kind, for cuts and damage.
const VALID: &str = r#"8145  1795349886.414395 execve("/usr/bin/sh", ["sh", "-c"...], 0x7f /* 35 vars */) = 0 <0.000199>
8145  1795349886.415031 openat(AT_FDCWD</tmp>, "/etc/\303\251", O_RDONLY|O_CLOEXEC) = 3</etc/x> <0.000013>
8145  1795349886.415314 read(3</etc/x>, "\177ELF\2\1\1"..., 832) = 832 <0.000007>
8145  1795349886.415342 vfork( <unfinished ...>
8146  1795349886.415367 dup2(3</etc/x>, 4) = 4</etc/x>
[pid  8145] 1795349886.415398 <... vfork resumed>) = 8146 <0.000005>
1795349886.415422 sendfile(1, 3, [0] => [4], 4) = 4strace: Process 9 attached
8145  1795349886.415442 +++ superseded by execve in pid 8146 +++
8145  1795349886.415452 close_range(3, ~0U, CLOSE_RANGE_CLOEXEC) = 0
8145  1795349886.415483 --- SIGCHLD {si_signo=SIGCHLD} ---
8145  1795349886.415493 +++ exited with 0 +++
"#;

proptest! {
    #[test]
    fn anything_is_read_or_refused(bytes in proptest::collection::vec(any::<u8>(), 0..500)) {
        let _ = outcome(bytes);
    }

    #[test]
    fn damage_never_panics(
        cuts in proptest::collection::vec((0..VALID.len(), 0..60_usize), 0..6),
        flips in proptest::collection::vec((0..VALID.len(), any::<u8>()), 0..6),
    ) {
        let mut bytes = VALID.as_bytes().to_vec();
        for (at, byte) in flips {
            bytes[at] = byte;
        }
        for (at, length) in cuts {
            let at = at.min(bytes.len());
            bytes.drain(at..(at + length).min(bytes.len()));
        }
        let _ = outcome(bytes);
    }

    #[test]
    fn lines_in_any_order_never_panic(
        order in proptest::collection::vec((0..VALID.lines().count(), 0..3_usize), 0..40)
    ) {
        let pids = ["8145  ", "8146  ", ""];
        let lines: Vec<_> = VALID.lines().collect();
        let text: String = order
            .iter()
            .map(|(line, pid)| format!("{}\n", lines[*line].replacen("8145  ", pids[*pid], 1)))
            .collect();
        let _ = outcome(text);
    }
}

#[test]
fn a_real_recording_is_read() {
    let folder = tempfile::tempdir().expect("a folder");
    for options in [&["-f", "-ttt", "-T", "-y"][..], &["-f", "-ttt", "-T"]] {
        let file = folder.path().join("r.strace");
        let mut strace = Command::new("strace");
        strace.args(options).arg("-o").arg(&file);
        strace.args(["sh", "-c", "cat /etc/hostname; grep -c root /etc/passwd"]);
        let status = strace.stdout(Stdio::null()).stderr(Stdio::null()).status();
        // A sandbox may have strace, but forbid its system calls.
        if !status.is_ok_and(|status| status.success()) {
            let _ = writeln!(std::io::stderr(), "skipped: a_real_recording_is_read: no strace");
            return;
        }
        let recording = open(&file, folder.path()).expect("a recording");
        let size = std::fs::metadata("/etc/passwd").expect("a list of users").len();
        let is_it = |call: &Call| match call.what {
            What::Read { file, offset_bytes: 0, length_bytes } => {
                recording.paths[file.0 as usize] == Path::new("/etc/passwd") && length_bytes == size
            }
            _ => false,
        };
        assert!(recording.calls.iter().any(is_it), "{options:?}");
        assert!(recording.has_durations);
        let readers: std::collections::HashSet<_> =
            recording.calls.iter().map(|call| call.reader).collect();
        assert_eq!(readers.len(), 3, "sh, cat and grep");
    }
}

/// The number of lines, the number not understood, the first of these, and whether the end is missing.
fn state(text: &str) -> (u64, u64, Option<u64>, bool) {
    let State { lines, not_understood, first_not_understood, ends_within_call, .. } =
        recorded(text).state;
    (lines, not_understood, first_not_understood, ends_within_call)
}

#[test]
fn damage_and_a_missing_end_are_told() {
    let whole = "1 1.0 getpid() = 1 <0.1>\n\
         strace: Process 2 attached\n\
         1 2.0 write(1, \"\", 1) = 1 <unavailable>\n\
         1 2.1 pause() = ? <unavailable>\n\
         1 2.2 dup(3</a <b>) = 4</a <b>\n\
         > /lib/libc.so.6(read+0x10) [0x10]\n\
         | 00000  78   x |\n\
         2 2.3 futex(0x7f, FUTEX_WAIT, 1, NULL <unfinished ...>) = ?\n\
         2 2.4 read(3,  <unfinished ...>\n\
         1 2.5 exit_group(0 <unfinished ...>\n\
         2 2.6 <... read resumed> <unfinished ...>) = ?\n\
         2 2.7 +++ killed by SIGKILL +++\n\
         3 2.8 poll([], 0, -1 <detached ...>\n\
         1 3.0 --- SIGCHLD {si_signo=SIGCHLD} ---\n\
         % time     seconds  usecs/call     calls    errors syscall\n\
         ------ ----------- ----------- --------- --------- ----------------\n\
         \x20 0.00    0.000000           0         1           read\n";
    assert_eq!(state(whole), (17, 0, None, false));
    let one = "1 1.0 getpid() = 1 <0.000001>\n";
    for damaged in [
        "what is this\n",
        "1 2.0 read(3, \"x\n",
        "1 2.0 read(3, \"x\", 1) = 1 <fast>\n",
        "1 2.0 read(3, \"x\", 1) = 1 <-0.000001>\n",
        "1 2.0 read(3, \"x\", 1) = 1 <99999999999.000001>\n",
        "1 2.0 <... read resumed>) = 1\n",
        "1 2.0 read(3,  <unfinished ...>\n1 2.1 getpid() = 1\n",
        "1 2.0 read(3,  <unfinished ...>\n1 2.1 <... read resumed>\"x\n",
    ] {
        let after = "1 3.0 getpid() = 1 <0.000001>\n";
        let (_, count, first, is_cut) = state(&format!("{one}{damaged}{after}"));
        let line = if damaged.contains("\"x\n") && damaged.contains("resumed") { 3 } else { 2 };
        assert_eq!((count, first, is_cut), (1, Some(line), false), "{damaged}");
    }
    for (cut, lines) in [
        ("1 2.0 read(3,  <unfinished ...>\n", 2),
        ("1 2.0 read(3, \"x\", 10", 2),
        ("1 2.0 read(3, \"x\", 10) = 1", 2),
        ("1 2.0 vfork(strace: Process 8 attached\n", 2),
        ("17", 2),
    ] {
        assert_eq!(state(&format!("{one}{cut}")), (lines, 0, None, true), "{cut}");
    }
    for end in ["1 2.0 getpid() = 1 <0.000001>", "1 2.0 +++ exited with 0 +++"] {
        assert_eq!(state(&format!("{one}{end}")), (2, 0, None, false), "{end}");
    }
    let seconds = recorded("1 1.0 read(3, \"x\", 1) = 1 <2>\n");
    assert_eq!(seconds.calls[0].took, Nanos(2_000_000_000));
}

#[test]
fn time_that_runs_backwards_is_refused() {
    let message = |text: &str| outcome(text).err().map(|error| error.to_string());
    let refused = |line: u64, back: &str, column: u8| {
        Some(format!(
            "r.strace: line {line}: time runs backwards by {back} s; sort the lines by time: \
             `LC_ALL=C sort -s -n -k {column},{column} FILE` (files of `strace -ff`: `strace-log-merge`)"
        ))
    };
    let calls = |times: [(&str, &str); 3]| {
        times.map(|(pid, time)| format!("{pid}{time} getpid() = 1\n")).concat()
    };
    let of_one = calls([("1 ", "5.0"), ("1 ", "6.0"), ("1 ", "5.999")]);
    assert_eq!(message(&of_one), refused(3, "0.001", 2));
    let nameless = calls([("", "5.0"), ("", "6.0"), ("", "2.5")]);
    assert_eq!(message(&nameless), refused(3, "3.5", 1));
    let bracketed = calls([("[pid  1] ", "5.0"), ("[pid 2] ", "6.0"), ("[pid 1] ", "5.9")]);
    assert_eq!(message(&bracketed), refused(3, "0.1", 3));
    // A little backwards, between two processes.
    assert_eq!(message(&calls([("1 ", "5.0"), ("2 ", "6.0"), ("1 ", "5.995")])), None);
    assert_eq!(
        message(&calls([("1 ", "5.0"), ("2 ", "6.0"), ("1 ", "5.985")])),
        refused(3, "0.015", 2)
    );
}

#[test]
fn a_child_in_no_line_is_told() {
    let unheard = |text: &str| recorded(text).state.unheard_child;
    assert_eq!(unheard("1.0 clone(flags=SIGCHLD) = 12\n"), Some(ReaderId(12)));
    assert_eq!(unheard("1 1.0 fork() = 2\n2 1.1 exit_group(0) = ?\n"), None);
}
