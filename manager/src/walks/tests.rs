//! Programs as they go through trees, and what is requested ahead of them.

use std::collections::{BTreeMap, HashSet};

use super::listing::{Collector, Kind};
use super::*;

/// A tree, and a process with its walk. A name waits if it was not looked up ahead.
struct Run {
    tree: BTreeMap<String, Vec<(String, Kind)>>,
    walk: Walk,
    known: HashSet<String>,
    looked: HashSet<String>,
    files: Vec<String>,
    waits: usize,
    cancels: usize,
    lists: HashSet<String>,
    /// All is in memory: nothing waits.
    is_warm: bool,
}

const ROOM: Room = Room { names: 64, files: 64 };

impl Run {
    /// Entries as `path/`, for folders, and `path`; in listed order.
    fn new(paths: &[String]) -> Self {
        let mut tree: BTreeMap<String, Vec<(String, Kind)>> = BTreeMap::new();
        for path in paths {
            let kind = if path.ends_with('/') { Kind::Folder } else { Kind::File };
            let (folder, name) = path.trim_end_matches('/').rsplit_once('/').expect("absolute");
            tree.entry(folder.to_owned()).or_default().push((name.to_owned(), kind));
            if kind == Kind::Folder {
                tree.entry(path.trim_end_matches('/').to_owned()).or_default();
            }
        }
        Run {
            tree,
            walk: Walk::new(),
            known: HashSet::new(),
            looked: HashSet::new(),
            files: Vec::new(),
            waits: 0,
            cancels: 0,
            lists: HashSet::new(),
            is_warm: false,
        }
    }

    /// A folder `/d` of `count` files in a shuffled order.
    fn flat(count: usize, name: impl Fn(usize) -> String) -> Self {
        let mut names: Vec<String> = (0..count).map(|at| format!("/d/{}", name(at))).collect();
        shuffle(&mut names);
        Run::new(&names)
    }

    fn names(&self, folder: &str) -> Vec<String> {
        self.tree[folder].iter().map(|(name, _)| name.clone()).collect()
    }

    fn touch(&mut self, action: Action, path: &str) {
        let key = if action == Action::List { format!("{path}/") } else { path.to_owned() };
        let waited = !self.is_warm && self.known.insert(key);
        self.waits += usize::from(waited);
        let (folder, name) = path.rsplit_once('/').expect("absolute");
        let (folder, name) = (folder.as_bytes(), name.as_bytes());
        self.walk.touch(Touch { folder, name, action, waited });
        self.answer();
    }

    fn answer(&mut self) {
        loop {
            let requests = self.walk.requests(ROOM);
            if requests.is_empty() {
                return;
            }
            for request in requests {
                self.carry_out(request);
            }
        }
    }

    fn carry_out(&mut self, request: Request) {
        let text = |path: &[u8]| String::from_utf8(path.to_vec()).expect("text");
        match request {
            Request::List { folder, .. } => {
                let path = text(&folder);
                let mut collector = Collector::default();
                let entries = self.tree.get(&path);
                for (at, (name, kind)) in (0..).zip(entries.into_iter().flatten()) {
                    collector.add(name.as_bytes(), *kind, 1_000_000 - at);
                }
                let listing = entries.map(|_| Arc::new(collector.finish(1)));
                self.known.insert(path.clone());
                self.known.insert(path.clone() + "/");
                self.lists.insert(path);
                self.walk.listed(&folder, listing, !self.is_warm);
            }
            Request::Look { path, device } => {
                assert!(self.looked.insert(text(&path)), "{} again", text(&path));
                self.known.insert(text(&path));
                self.walk.looked_up(device, !self.is_warm);
            }
            Request::Data { path, .. } => {
                self.files.push(text(&path));
                self.known.insert(text(&path));
            }
            Request::Cancel => self.cancels += 1,
        }
    }

    fn unused(&self) -> u64 {
        let counts = self.walk.counts();
        counts.names_ahead - counts.names_used
    }

    /// As `du` and `tar` do: into each folder where it comes.
    fn inline(&mut self, folder: &str, actions: &[Action], takes: fn(&str) -> bool) {
        self.touch(Action::List, folder);
        for (name, kind) in self.tree[folder].clone() {
            let path = format!("{folder}/{name}");
            if takes(&name) && kind != Kind::Folder {
                actions.iter().for_each(|&action| self.touch(action, &path));
            }
            if kind == Kind::Folder {
                self.inline(&path, actions, takes);
            }
        }
    }

    /// As `ls -lR` does: all entries first.
    fn deferred(&mut self, folder: &str) {
        self.touch(Action::List, folder);
        for name in self.names(folder) {
            self.touch(Action::Look, &format!("{folder}/{name}"));
        }
        let mut entries = self.tree[folder].clone();
        entries.sort_by(|one, other| one.0.cmp(&other.0));
        for (name, _) in entries.iter().filter(|entry| entry.1 == Kind::Folder) {
            self.deferred(&format!("{folder}/{name}"));
        }
    }
}

/// A fixed shuffle.
fn shuffle<T>(items: &mut [T]) {
    let mut state = 12345u64;
    for at in (1..items.len()).rev() {
        state = state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        items.swap(at, (state >> 33) as usize % (at + 1));
    }
}

/// A tree of `3 + 9 + 27` folders with eight headers and four sources in each.
fn tree() -> Vec<String> {
    fn add(paths: &mut Vec<String>, folder: &str, depth: usize) {
        let mut names: Vec<String> = (0..8).map(|at| format!("h{at}.h")).collect();
        names.extend((0..4).map(|at| format!("c{at}.c")));
        names.extend((0..3).filter(|_| depth > 0).map(|at| format!("sub{at}/")));
        shuffle(&mut names);
        for name in names {
            paths.push(format!("{folder}/{name}"));
            if let Some(name) = name.strip_suffix('/') {
                add(paths, &format!("{folder}/{name}"), depth - 1);
            }
        }
    }
    let mut paths = vec!["/r/".to_owned()];
    add(&mut paths, "/r", 3);
    paths
}

#[test]
fn a_folder_in_listed_order() {
    let mut run = Run::flat(2000, |at| format!("{at:05}.bin"));
    run.inline("/d", &[Action::Look], |_| true);
    assert!(run.waits < 10, "{} waits", run.waits);
    assert_eq!(run.unused(), 0);
    assert!(run.files.is_empty(), "no file was opened");
}

#[test]
fn a_folder_in_sorted_order_and_its_files() {
    let mut run = Run::flat(2000, |at| format!("{at:05}.bin"));
    run.touch(Action::List, "/d");
    let mut names = run.names("/d");
    names.sort();
    for name in &names[..600] {
        run.touch(Action::Open, &format!("/d/{name}"));
    }
    assert!(run.waits < 10, "{} waits", run.waits);
    assert!(run.files.len() >= 590 && run.files.len() <= 600 + FILES_MAX as usize);
    assert!(run.files.is_sorted(), "in the order of reading");
}

#[test]
fn a_folder_in_the_order_of_inode_numbers() {
    let mut run = Run::flat(500, |at| format!("{at}.bin"));
    run.touch(Action::List, "/d");
    for name in run.names("/d").iter().rev() {
        run.touch(Action::Look, &format!("/d/{name}"));
        run.touch(Action::Open, &format!("/d/{name}"));
    }
    assert!(run.waits < 10, "{} waits", run.waits);
}

#[test]
fn a_random_order_predicts_nothing() {
    for kind in ["bin", ""] {
        let mut run = Run::flat(2000, |at| format!("{at:05}.{kind}"));
        run.touch(Action::List, "/d");
        let mut names = run.names("/d");
        names.sort();
        shuffle(&mut names);
        shuffle(&mut names);
        for name in &names {
            run.touch(Action::Look, &format!("/d/{name}"));
            run.touch(Action::Open, &format!("/d/{name}"));
        }
        let ahead = run.walk.counts().names_ahead;
        assert!(ahead < 60 && run.files.len() < 60, "{ahead} names, {} files", run.files.len());
    }
}

#[test]
fn a_wrong_guess_stops() {
    let mut run = Run::flat(3000, |at| format!("{at:05}.bin"));
    run.touch(Action::List, "/d");
    let mut names = run.names("/d");
    for name in &names[..100] {
        run.touch(Action::Open, &format!("/d/{name}"));
    }
    let before = run.files.len();
    assert!(before > 100, "{before}");
    names.drain(..100);
    shuffle(&mut names);
    for name in &names {
        run.touch(Action::Open, &format!("/d/{name}"));
    }
    assert!(run.cancels >= 1);
    assert!(run.files.len() < before + 100, "{} more", run.files.len() - before);
}

#[test]
fn a_filter_by_extension() {
    let mut run = Run::new(&tree());
    run.inline("/r", &[Action::Look], |name| name.ends_with(".h"));
    let headers = 8 * 40;
    assert!(run.waits < 20, "{} waits", run.waits);
    assert!(run.walk.counts().names_used > headers + 39 - 20);
    assert!(run.unused() < 20, "{} unused", run.unused());
}

#[test]
fn folders_alone() {
    let mut run = Run::new(&tree());
    run.inline("/r", &[Action::Look], |_| false);
    assert!(run.waits < 12, "{} waits", run.waits);
    assert_eq!(run.lists.len(), 40);
    assert!(run.unused() < 5, "{} unused", run.unused());
}

#[test]
fn a_tree_depth_first() {
    for actions in [&[Action::Look][..], &[Action::Look, Action::Open]] {
        let mut run = Run::new(&tree());
        run.inline("/r", actions, |_| true);
        assert!(run.waits < 20, "{} waits", run.waits);
        assert!(run.unused() < 20, "{} unused", run.unused());
        let opened: Vec<&String> = run.files.iter().collect();
        assert_eq!(opened.is_empty(), actions.len() == 1);
    }
}

#[test]
fn a_tree_whose_folders_come_after_its_files() {
    let mut run = Run::new(&tree());
    run.deferred("/r");
    assert!(run.waits < 30, "{} waits", run.waits);
    assert!(run.unused() < 20, "{} unused", run.unused());
    assert!(run.walk.deferred > 0);
}

/// `git status` looks at all files in the order of their paths, and lists no folder before.
#[test]
fn files_of_folders_that_the_process_has_not_opened() {
    let mut run = Run::flat(400, |at| format!("{at:04}.c"));
    let mut names = run.names("/d");
    names.sort();
    // Two threads, each with its half.
    for at in 0..200 {
        run.touch(Action::Look, &format!("/d/{}", names[at]));
        run.touch(Action::Look, &format!("/d/{}", names[at + 200]));
    }
    assert!(run.waits < 20, "{} waits", run.waits);
}

/// As `git status`, which opens a folder only after it has looked at all files.
#[test]
fn a_tree_that_the_process_has_not_opened() {
    let mut paths = tree();
    let mut run = Run::new(&paths);
    paths.sort();
    for path in paths.iter().filter(|path| !path.ends_with('/')) {
        run.touch(Action::Look, path);
    }
    assert!(run.waits < 40, "{} waits", run.waits);
    for path in paths.iter().filter(|path| !path.ends_with('/')) {
        run.touch(Action::Open, path);
    }
    assert!(run.files.is_empty(), "files of a folder that it does not know");
}

/// A program that computed for a while was not watched when it opened the folder.
#[test]
fn files_of_a_folder_that_the_process_may_have_opened_unseen() {
    for is_unseen in [false, true] {
        let mut run = Run::flat(400, |at| format!("{at:04}.bin"));
        let mut names = run.names("/d");
        names.sort();
        if is_unseen {
            run.walk.lose_sight();
        }
        for name in &names {
            run.touch(Action::Open, &format!("/d/{name}"));
        }
        let read = run.files.len();
        assert!(if is_unseen { read > 380 } else { read == 0 }, "{read} of 400");
    }
}

/// A program that goes through its own folder loads a module now and then.
#[test]
fn a_few_files_of_another_folder_are_no_walk_through_it() {
    let mut paths: Vec<String> = (0..400).map(|at| format!("/d/{at:04}.bin")).collect();
    paths.extend((0..400).map(|at| format!("/lib/{at:04}.py")));
    let mut run = Run::new(&paths);
    run.walk.lose_sight();
    run.touch(Action::List, "/d");
    for at in 0..400 {
        run.touch(Action::Open, &format!("/d/{at:04}.bin"));
        if at % 100 == 99 {
            run.touch(Action::Open, &format!("/lib/{:04}.py", at * 7 % 400));
        }
    }
    assert!(run.files.len() > 380 && run.files.iter().all(|file| file.starts_with("/d/")));
}

/// Threads that take the next entry each, and end in another order than they have begun.
#[test]
fn a_pool_of_threads_takes_entries_not_quite_in_order() {
    let mut run = Run::flat(1000, |at| format!("{at:05}.bin"));
    run.touch(Action::List, "/d");
    let mut names = run.names("/d");
    names.sort();
    names.chunks_mut(4).for_each(shuffle);
    for name in &names {
        run.touch(Action::Open, &format!("/d/{name}"));
    }
    assert!(run.waits < 40, "{} waits", run.waits);
}

#[test]
fn two_folders_in_turn() {
    let mut paths: Vec<String> = (0..500).map(|at| format!("/images/{at:05}.jpg")).collect();
    paths.extend((0..500).map(|at| format!("/labels/{at:05}.txt")));
    shuffle(&mut paths);
    let mut run = Run::new(&paths);
    run.touch(Action::List, "/images");
    for at in 0..500 {
        run.touch(Action::Open, &format!("/images/{at:05}.jpg"));
        run.touch(Action::Open, &format!("/labels/{at:05}.txt"));
    }
    assert!(run.waits < 30, "{} waits", run.waits);
}

#[test]
fn nothing_is_requested_where_nothing_waits() {
    let mut run = Run::new(&tree());
    run.is_warm = true;
    run.inline("/r", &[Action::Look, Action::Open], |_| true);
    assert_eq!((run.walk.counts(), run.lists.len(), run.files.len()), (Counts::default(), 0, 0));
    // One slow call does not change that for long.
    run.walk.has_waited();
    run.inline("/r", &[Action::Look, Action::Open], |_| true);
    assert!(run.walk.counts().names_ahead < 40, "{:?}", run.walk.counts());
}

#[test]
fn a_second_pass_through_a_folder_is_predicted_too() {
    let mut run = Run::flat(300, |at| format!("{at:05}.bin"));
    run.inline("/d", &[Action::Open], |_| true);
    let first = run.files.len();
    run.known.clear();
    run.looked.clear();
    run.inline("/d", &[Action::Open], |_| true);
    assert!(run.files.len() - first > 290, "{first}, then {}", run.files.len() - first);
}

#[test]
fn windows_bound_what_is_looked_up_and_not_used() {
    let mut run = Run::flat(50_000, |at| format!("{at:05}.bin"));
    run.touch(Action::List, "/d");
    for name in run.names("/d").iter().take(40) {
        run.touch(Action::Look, &format!("/d/{name}"));
    }
    assert!(run.unused() <= u64::from(LOOKS_MAX), "{} unused", run.unused());
}

#[test]
fn names_that_are_not_there_and_hostile_paths_do_no_harm() {
    let mut run = Run::new(&tree());
    for at in 0..10_000 {
        let path = format!("/none{}/{}/x{at}", at % 1000, at % 7);
        let (folder, name) = path.rsplit_once('/').expect("absolute");
        let (folder, name) = (folder.as_bytes(), name.as_bytes());
        let action = [Action::Look, Action::Open, Action::List][at % 3];
        run.walk.touch(Touch { folder, name, action, waited: at % 2 == 0 });
        run.walk.touch(Touch { folder, name: b"", action, waited: true });
        run.answer();
    }
    assert!(run.walk.memory_bytes() < 1 << 20, "{}", run.walk.memory_bytes());
}
