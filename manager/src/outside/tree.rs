//! The processes of a run, and which of them are outside.
//!
//! A walk asks each known process for its children (`/proc/PID/task/TID/children`; without such files, the parents of all
//! processes are read). A process stays known when its parent ends. Each process that executes another program is judged again:
//!
//! A. A program without a dynamic linker, or one that Go's linker has made, is outside at once.
//! B. Any other program has [`GRACE`] to load the interposing library. Then its mappings say whether it has.
//!
//! So a process that a fork has just made, and that has not introduced itself yet, is not taken for one outside.
//!
//! Cost: some 10 µs for each process and walk, and up to 0.1 ms once for each program that runs longer than [`GRACE`].

use std::collections::HashMap;
use std::os::fd::OwnedFd;
use std::time::Duration;

use super::Root;
use super::files::{Folder, children, has_library, numbers, parent, started};
use super::head::{HEAD_BYTES, Head};
use super::samples::{DESCRIPTORS_EACH, Watched};

/// Processes that are known at a time. Further ones are not seen. Each takes a descriptor.
pub(super) const KNOWN_MAX: usize = 256;

/// Processes that are watched at a time, each with [`DESCRIPTORS_EACH`] descriptors.
const WATCHED_MAX: usize = 64;

/// Threads of a process that are asked for children.
const THREADS_MAX: usize = 1024;

/// How long a program may take to load the interposing library. 20 ms: ten times what a large program takes on a busy machine.
const GRACE: Duration = Duration::from_millis(20);

/// See the [module](self).
pub(super) struct Tree {
    root: u64,
    /// The manager, which is a child of the root and not of the run.
    own: u64,
    own_started: u64,
    known: HashMap<u64, Known>,
    known_max: usize,
    watched_max: usize,
    found: Vec<Watched>,
    /// Whether the first program has been seen.
    has_found: bool,
    has_children_files: bool,
    buffer: Vec<u8>,
    threads: Vec<u32>,
}

struct Known {
    folder: Folder,
    /// The program that it executes, and since when that is known.
    program: Option<(u64, u64)>,
    since: Duration,
    place: Place,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    /// The process of foretell itself.
    Foretell,
    Undecided,
    Inside,
    Outside,
    /// It would be outside, but may not be looked at.
    Hidden,
}

impl Tree {
    /// `None` if `/proc` is not there, or is that of another namespace of process numbers.
    pub(super) fn new(root: Root, descriptors_max: usize) -> Option<Self> {
        let own = u64::from(std::process::id());
        let named = std::fs::read_link("/proc/self").ok()?;
        if named.to_str() != Some(&own.to_string()) {
            return None;
        }
        let mut buffer = Vec::new();
        let own_started = started(Folder::of(own)?.read("stat", &mut buffer)?)?;
        let (root, place) = match root {
            Root::ChildrenOf(process) => (u64::from(process), Place::Foretell),
            Root::Process(process) => (u64::from(process), Place::Undecided),
        };
        let first =
            Known { folder: Folder::of(root)?, program: None, since: Duration::ZERO, place };
        let children_file = format!("/proc/self/task/{own}/children");
        Some(Tree {
            root,
            own,
            own_started,
            known: HashMap::from([(root, first)]),
            known_max: KNOWN_MAX.min(descriptors_max / 2),
            watched_max: WATCHED_MAX.min(descriptors_max / 2 / DESCRIPTORS_EACH),
            found: Vec::new(),
            has_found: false,
            has_children_files: std::fs::exists(children_file).unwrap_or(false),
            buffer,
            threads: Vec::new(),
        })
    }

    /// Finds new processes, and judges those that have executed another program. Returns whether anything has changed, or is
    /// yet to begin. `now` is the time since some beginning; `watched` processes are being watched.
    pub(super) fn walk(&mut self, now: Duration, watched: usize) -> bool {
        let before = self.known.len();
        let mut has_changed = self.find(now);
        self.has_found |= has_changed || self.known.get(&self.root).is_some_and(Known::is_program);
        let room = self.watched_max.saturating_sub(watched);
        let (buffer, found) = (&mut self.buffer, &mut self.found);
        self.known.retain(|&process, known| {
            if !known.is_program() {
                return true;
            }
            let place = known.place;
            if !known.judge(now, buffer) {
                return false;
            }
            if known.place == Place::Outside && place != Place::Outside {
                match Watched::new(process, &known.folder) {
                    Some(watched) if found.len() < room => found.push(watched),
                    Some(_) => known.place = Place::Undecided, // It is tried again.
                    None => known.place = Place::Hidden,
                }
            }
            has_changed |= known.place != place;
            true
        });
        let is_to_begin = !self.has_found && self.known.contains_key(&self.root);
        has_changed || is_to_begin || self.known.len() != before
    }

    /// Takes the processes that the last walk found to be outside.
    pub(super) fn take_found(&mut self) -> Vec<Watched> {
        std::mem::take(&mut self.found)
    }

    /// Whether a process that was outside has executed a program in which the library works.
    pub(super) fn is_inside(&self, process: u64) -> bool {
        self.known.get(&process).is_some_and(|known| known.place == Place::Inside)
    }

    /// Adds the children of known processes, their children and so on. Returns whether there are any.
    fn find(&mut self, now: Duration) -> bool {
        let parents =
            if self.has_children_files { None } else { Some(all_parents(&mut self.buffer)) };
        let mut left: Vec<u64> = self.known.keys().copied().collect();
        let mut has_found = false;
        while let Some(process) = left.pop() {
            let children = match &parents {
                Some(parents) => {
                    let of_process = parents.iter().filter(|&&(_, parent)| parent == process);
                    of_process.map(|&(child, _)| child).collect()
                }
                None => self.children_of(process),
            };
            for child in children {
                if self.known.len() >= self.known_max {
                    return has_found;
                }
                if child != self.own
                    && !self.known.contains_key(&child)
                    && self.add(child, process, now)
                {
                    has_found = true;
                    left.push(child);
                }
            }
        }
        has_found
    }

    fn children_of(&mut self, process: u64) -> Vec<u64> {
        let Some(known) = self.known.get(&process) else { return Vec::new() };
        let Some(tasks) = known.folder.open("task") else { return Vec::new() };
        numbers(&tasks, THREADS_MAX, &mut self.threads);
        let mut found = Vec::new();
        for thread in &self.threads {
            if let Some(text) =
                known.folder.read(format!("task/{thread}/children"), &mut self.buffer)
            {
                found.extend(children(text));
            }
        }
        found
    }

    /// Adds a child of `process`, unless the number is another process's by now. Returns whether it was added.
    fn add(&mut self, child: u64, process: u64, now: Duration) -> bool {
        let Some(folder) = Folder::of(child) else { return false };
        let Some(stat) = folder.read("stat", &mut self.buffer) else { return false };
        let is_of_run =
            process != self.root || started(stat).is_some_and(|at| at >= self.own_started);
        if parent(stat) != Some(process) || !is_of_run {
            return false;
        }
        let known = Known { folder, program: None, since: now, place: Place::Undecided };
        self.known.insert(child, known);
        true
    }
}

impl Known {
    fn is_program(&self) -> bool {
        self.place != Place::Foretell
    }

    /// A, B: decides where the process is. Returns false if it has ended.
    fn judge(&mut self, now: Duration, buffer: &mut Vec<u8>) -> bool {
        let program = self.folder.program();
        if program.is_none() {
            // It has ended, or may not be looked at.
            return self.folder.read("stat", buffer).is_some_and(|stat| !stat.is_empty());
        }
        if program != self.program {
            (self.program, self.since, self.place) = (program, now, Place::Undecided);
        }
        if self.place != Place::Undecided {
            return true;
        }
        let head = self.folder.open("exe").map(|file| first_bytes(&file, buffer));
        if head == Some(Head::Outside) {
            self.place = Place::Outside;
        } else if now >= self.since + GRACE
            && let Some(maps) = self.folder.read("maps", buffer)
        {
            self.place = match has_library(maps) {
                true => Place::Inside,
                false => Place::Outside,
            };
        }
        true
    }
}

fn first_bytes(file: &OwnedFd, buffer: &mut Vec<u8>) -> Head {
    buffer.resize(buffer.len().max(HEAD_BYTES), 0);
    let read = rustix::io::pread(file, &mut buffer[..HEAD_BYTES], 0).unwrap_or(0);
    Head::of(&buffer[..read])
}

/// All processes with their parents.
fn all_parents(buffer: &mut Vec<u8>) -> Vec<(u64, u64)> {
    let entries = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    let processes = entries.filter_map(|entry| entry.file_name().to_str()?.parse::<u64>().ok());
    let with_parent = processes.filter_map(|process| {
        let stat = Folder::of(process)?.read("stat", buffer).and_then(parent)?;
        Some((process, stat))
    });
    with_parent.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::{Child, Command, Stdio};
    use std::time::Instant;

    fn sleeper(script: &str) -> Child {
        let command = Command::new("sh").args(["-c", script]).stdin(Stdio::piped()).spawn();
        command.expect("it runs")
    }

    fn end(mut child: Child) {
        drop(child.stdin.take());
        child.wait().expect("it ends");
    }

    /// Walks until `done`, up to a limit.
    fn walk_until(tree: &mut Tree, done: impl Fn(&Tree) -> bool) {
        let began = Instant::now();
        while !done(tree) {
            assert!(began.elapsed() < Duration::from_secs(20), "not found");
            tree.walk(began.elapsed(), 0);
            std::thread::sleep(Duration::from_millis(1));
        }
    }

    fn tree_of(child: &Child) -> Tree {
        let mut tree = Tree::new(Root::Process(child.id()), 1000).expect("/proc is there");
        tree.own_started = 0;
        tree
    }

    #[test]
    fn children_and_their_children_are_found_and_the_library_is_missed_in_them() {
        for has_children_files in [true, false] {
            // Two levels: neither shell executes its last command in place.
            let child = sleeper("(cat; :); :");
            let mut tree = tree_of(&child);
            tree.has_children_files &= has_children_files;
            walk_until(&mut tree, |tree| tree.known.len() >= 3);
            walk_until(&mut tree, |tree| tree.found.len() >= 3);
            assert!(tree.known.values().all(|known| known.place == Place::Outside));
            end(child);
            walk_until(&mut tree, |tree| tree.known.is_empty());
        }
    }

    #[test]
    fn a_bound_holds() {
        let child = sleeper("(cat; :); :");
        let mut tree = tree_of(&child);
        (tree.known_max, tree.watched_max) = (2, 1);
        let began = Instant::now();
        while began.elapsed() < Duration::from_millis(100) {
            tree.walk(began.elapsed(), tree.found.len());
        }
        assert!(tree.known.len() <= 2 && tree.found.len() <= 1);
        end(child);
    }
}
