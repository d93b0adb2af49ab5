//! How much `foretell run` uses of limits that it shares with the program: processes, address space, descriptors, memory, and
//! open files.

mod common;

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use common::{
    assert_same, foretell, have, have_fuse, manager_of, sample_files, sample_folder, skipped,
    under_foretell, wait_until,
};
use foretell_protocol::Client;

/// A control group of its own that limits processes; removed at the end.
struct Group(PathBuf);

impl Group {
    /// `None`, with a message, if no group can be made.
    fn new(processes: u32) -> Option<Self> {
        let hierarchies = ["/sys/fs/cgroup/pids", "/sys/fs/cgroup"];
        for hierarchy in hierarchies {
            let name = format!("foretell-{}-{processes}", std::process::id());
            let folder = Path::new(hierarchy).join(name);
            let made = fs::create_dir(&folder);
            let group = made.is_ok().then_some(Group(folder));
            if let Some(group) = group
                && fs::write(group.0.join("pids.max"), processes.to_string()).is_ok()
            {
                return Some(group);
            }
        }
        skipped("no control group of processes can be made");
        None
    }
}

impl Group {
    /// Waits until the group is empty: the manager may end shortly after the program, and be reaped later still.
    fn is_left(&self) {
        let used = || fs::read_to_string(self.0.join("pids.current")).unwrap_or_default();
        wait_until("the end of what was started", || used().trim() == "0");
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        for _ in 0..200 {
            if fs::remove_dir(&self.0).is_ok() {
                return;
            }
            std::thread::sleep(Duration::from_millis(50));
        }
    }
}

/// A mounted array whose disks are slow; unmounted at the end.
struct Slow(tempfile::TempDir);

impl Slow {
    fn new(backing: &Path) -> Self {
        let mnt = tempfile::tempdir().expect("a folder");
        let mut command = foretell();
        command.args(["array", "mount", "--time-scale", "5", "--layout", "aged"]);
        command.arg(backing).arg(mnt.path()).stdout(Stdio::null());
        assert!(command.status().expect("it runs").success());
        Slow(mnt)
    }
}

impl Drop for Slow {
    fn drop(&mut self) {
        let mut unmount = foretell();
        unmount.args(["array", "unmount"]).arg(self.0.path());
        // A manager that is ending may still wait for a disk.
        wait_until("the array's end", || unmount.output().expect("it runs").status.success());
    }
}

#[test]
fn what_forks_without_foretell_forks_with_it() {
    const LIMIT: u32 = 60;
    if !have_fuse() || !have("bash") {
        return;
    }
    let Some(group) = Group::new(LIMIT) else { return };
    let backing = tempfile::tempdir().expect("a folder");
    for number in 0..300 {
        fs::write(backing.path().join(number.to_string()), "x".repeat(5000)).expect("written");
    }
    let slow = Slow::new(backing.path());
    let list: String =
        (0..300).map(|number| format!("{}/{number}\n", slow.0.path().display())).collect();
    let hints = backing.path().join("list");
    fs::write(&hints, list).expect("written");
    // The number of processes that the limit leaves to a shell, minus those of a run beside the program.
    let forks = LIMIT - 15;
    let script = format!(
        "echo $$ > {}/cgroup.procs; \"$@\" bash -c 'for i in {{1..{forks}}}; do sleep 1 & done; wait'",
        group.0.display()
    );
    for form in [&["--quiet"][..], &["--quiet", "--json", "/dev/null"]] {
        let mut shell = Command::new("bash");
        shell.args(["-c", &script, "-", env!("CARGO_BIN_EXE_foretell"), "run"]).args(form);
        let output = shell.arg("--hints").arg(&hints).arg("--").output().expect("it runs");
        assert!(output.status.success());
        assert_eq!(String::from_utf8_lossy(&output.stderr), "", "{form:?}");
        group.is_left();
    }
}

#[test]
fn a_program_has_the_small_stack_that_it_was_given() {
    for kilobytes in [64, 256] {
        let script = format!("ulimit -s {kilobytes}; exec \"$@\"");
        let run = |options: &[&str]| {
            let mut shell = Command::new("sh");
            shell.args(["-c", &script, "-", env!("CARGO_BIN_EXE_foretell"), "run"]).args(options);
            shell.args(["--", "sh", "-c", "ulimit -s; exit 3"]).output().expect("it runs")
        };
        for options in [&[][..], &["--quiet"]] {
            let output = run(options);
            let said = String::from_utf8_lossy(&output.stderr);
            assert_eq!(output.status.code(), Some(3), "{kilobytes} KiB {options:?}: {said}");
            assert_eq!(output.stdout, format!("{kilobytes}\n").as_bytes(), "{options:?}: {said}");
        }
        assert_eq!(run(&["--unknown"]).status.code(), Some(2), "{kilobytes} KiB");
    }
}

#[test]
fn where_the_manager_has_no_room_the_program_runs_without_it() {
    let Some(group) = Group::new(8) else { return };
    let script = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.0.display());
    let run = |options: &[&str]| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "-", env!("CARGO_BIN_EXE_foretell"), "run"]).args(options);
        let output = shell.args(["sh", "-c", "echo said; exit 3"]).output().expect("it runs");
        group.is_left();
        assert_eq!((output.status.code(), &output.stdout[..]), (Some(3), &b"said\n"[..]));
        String::from_utf8_lossy(&output.stderr).into_owned()
    };
    assert_eq!(run(&["--quiet", "--"]), "");
    let said = run(&["--"]);
    assert!(said.contains("the limit of processes leaves"), "{said}");
    assert!(said.contains("the program ran on without it"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn without_one_process_more_the_program_runs_in_place() {
    let Some(group) = Group::new(1) else { return };
    let script = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.0.display());
    let mut shell = Command::new("sh");
    shell.args(["-c", &script, "-", env!("CARGO_BIN_EXE_foretell"), "run", "--"]);
    let output = shell.args(["sh", "-c", "echo $$; exit 3"]).stdout(Stdio::piped());
    let child = output.stderr(Stdio::piped()).spawn().expect("it runs");
    let id = child.id();
    let output = child.wait_with_output().expect("it ends");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(3), "{said}");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{id}\n"));
    assert!(said.starts_with("foretell: cannot start another process"), "{said}");
}

#[test]
fn a_limited_address_space_is_enough() {
    if !have("bash") {
        return;
    }
    let folder = sample_folder();
    let files: Vec<String> =
        sample_files(folder.path()).iter().map(|path| path.display().to_string()).collect();
    let mut line = vec!["cat".to_owned()];
    line.extend(files);
    let plain = Command::new("cat").args(&line[1..]).output().expect("it runs");
    let mut shell = Command::new("bash");
    shell.args(["-c", "ulimit -v 300000; exec \"$@\"", "-", env!("CARGO_BIN_EXE_foretell")]);
    let output = shell.args(["run", "--"]).args(&line).output().expect("it runs");
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success() && output.stdout == plain.stdout, "{said}");
    assert!(!said.contains("manager"), "{said}");
}

/// A program that waits for a file `go` in its folder, which is also its working folder, and its manager.
fn waiting(options: &[&str], folder: &Path) -> (std::process::Child, u32) {
    let script = "echo $FORETELL_SOCKET > new; mv new address; \
                  while [ ! -e go ]; do sleep 0.05; done";
    let mut run = foretell();
    run.args(["run", "--quiet"]).args(options).args(["--", "sh", "-c", script]);
    let run = run.current_dir(folder).spawn().expect("it runs");
    let address = folder.join("address");
    wait_until("the address", || address.exists());
    (run, manager_of(&fs::read_to_string(address).expect("written")))
}

fn goes(mut run: std::process::Child, folder: &Path) {
    fs::write(folder.join("go"), "").expect("written");
    assert!(run.wait().expect("it ends").success());
}

/// Processor time that a process has used, in the kernel's ticks.
fn ticks(pid: u32) -> u64 {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).expect("it runs");
    let (_, fields) = stat.rsplit_once(") ").expect("a name in brackets");
    let field = |number: usize| fields.split(' ').nth(number).and_then(|field| field.parse().ok());
    // The 14th and 15th of all.
    field(11).unwrap_or(0u64) + field(12).unwrap_or(0)
}

#[test]
fn connections_that_cannot_be_accepted_cost_no_processor() {
    let folder = tempfile::tempdir().expect("a folder");
    let mut shell = Command::new("sh");
    let script = "ulimit -n 40; exec \"$0\" run --quiet --no-hint-args -- sh -c \
                  'echo $FORETELL_SOCKET > new; mv new address; while [ ! -e go ]; do sleep 0.1; done'";
    shell.args(["-c", script, env!("CARGO_BIN_EXE_foretell")]).current_dir(folder.path());
    let run = shell.spawn().expect("it runs");
    let address = folder.path().join("address");
    wait_until("the address", || address.exists());
    let address = fs::read_to_string(address).expect("written");
    let manager = manager_of(&address);
    let connections: Vec<Client> =
        (0..200).filter_map(|_| Client::connect(address.trim()).ok()).collect();
    assert!(connections.len() > 100, "they wait in the socket's queue");
    // Wait until the manager has accepted the connections that it has room for.
    std::thread::sleep(Duration::from_millis(500));
    let before = ticks(manager);
    std::thread::sleep(Duration::from_secs(2));
    let used = ticks(manager) - before;
    assert!(used < 20, "{used} ticks in two seconds of nothing to do");
    // When connections close, the waiting ones are accepted.
    drop(connections);
    let mut hint = foretell();
    hint.args(["hint", "/etc/passwd"]).env("FORETELL_SOCKET", address.trim());
    assert!(hint.status().expect("it runs").success());
    goes(run, folder.path());
}

fn has_open(pid: u32, file: &Path) -> bool {
    let listed = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs").flatten();
    let mut open = listed.filter_map(|entry| fs::read_link(entry.path()).ok());
    let maps = fs::read_to_string(format!("/proc/{pid}/maps")).expect("it runs");
    open.any(|open| open == file) || maps.contains(&file.display().to_string())
}

#[test]
fn a_file_with_more_to_fetch_than_fits_is_not_kept_open() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().canonicalize().expect("there").join("big");
    fs::write(&file, vec![1; 8 << 20]).expect("written");
    let list = folder.path().join("list");
    fs::write(&list, file.display().to_string()).expect("written");
    let figures = folder.path().join("figures");
    let (list, json) = (list.display().to_string(), figures.display().to_string());
    let options = ["--budget", "1MiB", "--hints", &list, "--json", &json];
    let evict = |file: &Path| {
        let file = fs::File::open(file).expect("there");
        file.sync_all().expect("written");
        let all = std::num::NonZeroU64::new(8 << 20);
        rustix::fs::fadvise(&file, 0, all, rustix::fs::Advice::DontNeed).expect("advised");
    };
    evict(&file);
    let (run, manager) = waiting(&options, folder.path());
    // The manager prefetches what fits, and waits for the program to read it.
    std::thread::sleep(Duration::from_secs(1));
    wait_until("the file to be closed", || !has_open(manager, &file));
    goes(run, folder.path());
    let figures: serde_json::Value =
        serde_json::from_slice(&fs::read(figures).expect("written")).expect("JSON");
    let prefetched = figures["blocks"]["prefetched"].as_u64().expect("a number");
    let cached = figures["blocks"]["already_cached"].as_u64().expect("a number");
    assert!(prefetched > 0 || cached > 0, "{figures}");
}

#[test]
fn a_file_and_its_folder_can_be_removed_where_an_open_file_would_stay() {
    if !have_fuse() || !have("bindfs") {
        return;
    }
    let (backing, mnt) =
        (tempfile::tempdir().expect("a folder"), tempfile::tempdir().expect("a folder"));
    let mounted = Command::new("bindfs").arg(backing.path()).arg(mnt.path()).status();
    assert!(mounted.expect("it runs").success());
    let (folder, big) = (mnt.path().join("d"), mnt.path().join("d/big"));
    let list = backing.path().join("list");
    fs::write(&list, big.display().to_string()).expect("written");
    let mut codes = Vec::new();
    for run in [&["--quiet"][..], &["--quiet", "--json", "/dev/null"]] {
        fs::create_dir(&folder).expect("made");
        fs::write(&big, vec![1; 16 << 20]).expect("written");
        let mut command = foretell();
        command.args(["run", "--budget", "1MiB", "--hints"]).arg(&list).args(run);
        let script = "head -c 1 \"$1\" > /dev/null; sleep 1; rm \"$1\" && rmdir \"$0\"";
        command.args(["--", "sh", "-c", script]).arg(&folder).arg(&big);
        codes.push(command.status().expect("it runs").code());
    }
    let helper = if rustix::process::geteuid().is_root() { "umount" } else { "fusermount3" };
    let options: &[&str] = if helper == "umount" { &[] } else { &["-u"] };
    assert!(
        Command::new(helper).args(options).arg(mnt.path()).status().expect("it runs").success()
    );
    assert_eq!(codes, [Some(0), Some(0)]);
}

#[test]
fn a_file_system_can_be_unmounted_when_what_fits_is_fetched() {
    if !rustix::process::geteuid().is_root() || !have("mkfs.ext4") || !have("mount") {
        return skipped("only root mounts an image");
    }
    let folder = tempfile::tempdir().expect("a folder");
    let (image, mnt) = (folder.path().join("image"), folder.path().join("mnt"));
    fs::create_dir(&mnt).expect("made");
    fs::File::create(&image).and_then(|file| file.set_len(64 << 20)).expect("made");
    let made = Command::new("mkfs.ext4").args(["-q", "-F"]).arg(&image).status();
    assert!(made.expect("it runs").success());
    // Unmount in any case, then check the messages.
    let script = "set -e; mount -o loop \"$1\" \"$2\"; trap 'umount -l \"$2\"' EXIT; \
                  [ -e \"$2/big\" ] || head -c 33554432 /dev/zero > \"$2/big\"; \
                  \"$3\" hint \"$2/big\" || :; head -c 4096 \"$2/big\" > /dev/null; sleep 2; \
                  umount \"$2\"; trap - EXIT";
    let run = |mut command: Command| {
        command.args(["-c", script, "-"]).arg(&image).arg(&mnt);
        command
            .arg(env!("CARGO_BIN_EXE_foretell"))
            .stderr(Stdio::piped())
            .output()
            .expect("it runs")
    };
    if !run(Command::new("sh")).status.success() {
        return skipped("no image can be mounted");
    }
    let mut hinted = foretell();
    hinted.args(["run", "--quiet", "--budget", "1MiB", "--no-hint-args", "--", "sh"]);
    let output = run(hinted);
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[test]
fn a_loop_of_wrappers_is_seen_by_none() {
    // Nested wrappers in one process. The program sees the limits as they were set.
    let line =
        ["sh", "-c", "ulimit -n 77; ulimit -c 0; exec sh -c 'ulimit -n; ulimit -c; ulimit -u'"];
    assert_same(&line, |_| {});
    let twice = under_foretell(env!("CARGO_BIN_EXE_foretell"))
        .args(["run", "--quiet", "--", "sh", "-c", "echo $$"])
        .stdout(Stdio::piped())
        .spawn()
        .expect("it runs");
    let id = twice.id();
    let output = twice.wait_with_output().expect("it ends");
    assert_eq!(String::from_utf8_lossy(&output.stdout), format!("{id}\n"));
}

/// At any limit, a mount is served, or refused in one line.
#[test]
fn a_mount_that_has_too_few_threads_is_refused() {
    if !have_fuse() {
        return;
    }
    let (backing, mnt) = (sample_folder(), tempfile::tempdir().expect("a folder"));
    let names = fs::read_dir(backing.path()).expect("a folder").count();
    let (mut refused, mut served) = (0, 0);
    for processes in [2, 4, 6, 8, 9, 10, 12, 14, 16, 20, 40] {
        let Some(group) = Group::new(processes) else { return };
        let script = format!("echo $$ > {}/cgroup.procs; exec \"$@\"", group.0.display());
        let mut shell = Command::new("sh");
        shell.args(["-c", &script, "-", env!("CARGO_BIN_EXE_foretell"), "mount"]);
        let output = shell.arg(backing.path()).arg(mnt.path()).output().expect("it runs");
        let said = String::from_utf8_lossy(&output.stderr).into_owned();
        let found = fs::read_dir(mnt.path()).map(Iterator::count);
        if output.status.success() {
            served += 1;
            assert_eq!(found.ok(), Some(names), "{processes} processes: {said}");
            let unmounted = foretell().arg("unmount").arg(mnt.path()).output().expect("it runs");
            assert!(unmounted.status.success(), "{processes} processes: {unmounted:?}");
        } else {
            refused += 1;
            assert_eq!(output.status.code(), Some(1), "{processes} processes: {said}");
            assert_eq!(said.lines().count(), 1, "{processes} processes: {said}");
            assert_eq!(found.ok(), Some(0), "{processes} processes: something is mounted");
        }
        group.is_left();
    }
    assert!(refused > 0 && served > 0, "{refused} refused, {served} served");
}
