//! The last opens: of all processes, and the last one of each process.

use super::files::{File, scramble};

/// The last opens of all processes, as many as the lookahead.
#[derive(Debug)]
pub(super) struct Window {
    /// A ring: `next` is overwritten next.
    last: Vec<File>,
    next: usize,
}

impl Window {
    pub(super) fn new(opens: usize) -> Self {
        Window { last: vec![File::NONE; opens], next: 0 }
    }

    pub(super) fn push(&mut self, file: File) {
        self.last[self.next] = file;
        self.next = if self.next + 1 == self.last.len() { 0 } else { self.next + 1 };
    }

    /// The opens since the last one of `file` within the window, the latest first. `file` counts as opened soon after each of
    /// these, and after none before: there it was counted when it was opened the time before.
    pub(super) fn before(&self, file: File) -> impl Iterator<Item = File> {
        let (new, old) = self.last.split_at(self.next);
        let backwards = new.iter().rev().chain(old.iter().rev()).copied();
        backwards.take_while(move |&one| one != file && one != File::NONE)
    }
}

/// Processes whose last opens are kept. A power of two; programs that run at the same time are fewer.
const PROCESSES: usize = 256;

/// The last opens of each process, the latest first.
#[derive(Debug)]
pub(super) struct Processes {
    /// By a hash of the process, which is kept beside. Another process takes the place.
    of: Vec<(u32, [File; 3])>,
    all: [File; 3],
}

impl Processes {
    pub(super) fn new() -> Self {
        Processes { of: vec![(0, [File::NONE; 3]); PROCESSES], all: [File::NONE; 3] }
    }

    /// Takes the open of `file`. Returns the three files that the process opened before it; for a process that is new, those
    /// that any opened: the program that started it has just opened or read something.
    pub(super) fn open(&mut self, process: u32, file: File) -> [File; 3] {
        let place = scramble(u64::from(process)) as usize % PROCESSES;
        let (of, last) = &mut self.of[place];
        let before = if *of == process && last[0] != File::NONE { *last } else { self.all };
        let after = [file, before[0], before[1]];
        (*of, *last, self.all) = (process, after, after);
        before
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_ends_at_the_last_open_of_the_same_file() {
        let mut window = Window::new(4);
        let before = |window: &Window, file| {
            window.before(File(file)).map(|file| file.0).collect::<Vec<_>>()
        };
        assert_eq!(before(&window, 9), [0; 0]);
        [1, 2, 3, 4, 5].into_iter().for_each(|file| window.push(File(file)));
        assert_eq!(before(&window, 9), [5, 4, 3, 2], "the latest first");
        assert_eq!(before(&window, 3), [5, 4]);
    }

    #[test]
    fn a_process_follows_itself_and_a_new_one_follows_all() {
        let mut processes = Processes::new();
        let mut open = |process, file| processes.open(process, File(file)).map(|file| file.0);
        let none = File::NONE.0;
        assert_eq!(open(1, 10), [none; 3]);
        assert_eq!(open(1, 11), [10, none, none]);
        assert_eq!(open(2, 20), [11, 10, none], "started by the first");
        assert_eq!(open(1, 12), [11, 10, none], "the other's open is not in between");
        assert_eq!(open(2, 21), [20, 11, 10]);
    }
}
