//! More files than the process may have descriptors. In a test binary of its own, as the limit is the process's.

mod common;

use std::fs::{self, File};
use std::sync::Mutex;
use std::time::Duration;

use common::{attribute, content, ioctl_hint, writable};
use rustix::process::{Resource, getrlimit, setrlimit};

const DESCRIPTORS: u64 = 160;
const FILES: u64 = 400;
/// The tests take turns with the process's descriptors.
static ALONE: Mutex<()> = Mutex::new(());

fn limit_descriptors() {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = Some(DESCRIPTORS);
    setrlimit(Resource::Nofile, limit).unwrap();
}

#[test]
fn hints_of_more_files_than_there_are_descriptors_leave_some_to_programs() {
    let _alone = ALONE.lock();
    limit_descriptors();
    let Some(mount) = writable(8 << 20, Duration::from_secs(600)) else { return };
    let name = |which: u64| format!("file {which}");
    for which in 0..FILES {
        fs::write(mount.folder.join(name(which)), content(which, 10_000)).unwrap();
    }
    let last = mount.folder.join(name(FILES - 1)).metadata().unwrap().modified().unwrap();
    common::wait_until("its time to be past", || {
        last.elapsed().unwrap() > Duration::from_millis(100)
    });
    let control = File::open(mount.path().join(".foretell/control")).unwrap();
    for which in 0..FILES {
        ioctl_hint(&control, &[], &name(which)).unwrap();
    }
    let is_cached = |which| {
        attribute(&mount.path().join(name(which)), "user.foretell.cached_bytes").unwrap() != "0"
    };
    common::wait_until("the first of them", || is_cached(0));
    for which in 0..FILES {
        let read = fs::read(mount.path().join(name(which))).unwrap();
        assert!(read == content(which, 10_000), "{which}");
    }
}

#[test]
fn what_cannot_be_opened_for_want_of_descriptors_is_not_made() {
    let _alone = ALONE.lock();
    limit_descriptors();
    let Some(mount) = writable(8 << 20, Duration::from_secs(600)) else { return };
    let mut held = Vec::new();
    while let Ok(one) = File::open("/dev/null") {
        held.push(one);
    }
    let (mut made, mut refused) = (0, 0);
    for free in 0..12 {
        let name = format!("new {free}");
        let wish =
            File::options().read(true).write(true).create_new(true).open(mount.path().join(&name));
        let result = wish.map(drop);
        let is_there = mount.folder.join(&name).exists();
        assert_eq!(is_there, result.is_ok(), "{free}: {result:?}");
        made += u32::from(is_there);
        refused += u32::from(!is_there);
        held.pop();
    }
    assert!(made > 0 && refused > 0, "{made} made, {refused} refused");
}
