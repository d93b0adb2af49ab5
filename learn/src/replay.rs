//! Looks ahead of a run in the profile of its workload.
//!
//! The *cursor* is the furthest step that the run has come to. Ahead of it, a *window* of steps is asked for: names to look up,
//! folders to list, and files to read. A step that the run touches need not be the next one: what it touches within the window
//! counts as found, whatever the order.
//!
//! The window begins at `WINDOW_FIRST` if this very command has run before, and at `WINDOW_ALIKE` if only one like it has. It
//! doubles with each step that is found, up to `WINDOW_MAX`. So a wrong profile costs a few lookups, and one that is right for
//! a while costs a window.
//!
//! The replay stops if fewer than one in `FOUND_MIN` were found of the steps that the run has passed, or of what it touches:
//! the run does something else than the profile says. It has passed what lies before all of the last `LAST_FOUND` steps that
//! were found, so a step that comes early, as with several threads, passes nothing. A path counts at its first touch alone. A
//! run of many short processes touches the same libraries and configuration in each, and is no less like its profile for that.
//! At most `FOUND_MIN` paths a step, and `JUDGED_MIN`, are remembered for this, 8 bytes each: then the replay has stopped.

use std::collections::{HashMap, HashSet, VecDeque};
use std::hash::BuildHasher;
use std::sync::Arc;

use crate::profile::{Profile, Weighted, keys};
use crate::steps::{Acts, Part};

/// Steps asked for ahead of the cursor at the start: a command that has run before, and one like it.
const WINDOW_FIRST: usize = 512;
const WINDOW_ALIKE: usize = 8;

/// Steps asked for ahead of the cursor.
const WINDOW_MAX: usize = 1024;

/// The replay stops if the run has come to fewer than one of so many steps.
const FOUND_MIN: usize = 4;

/// Paths that the run touches before that is judged.
const JUDGED_MIN: usize = 64;

/// Found steps that say how far the run has come: as many threads may come to steps far ahead.
const LAST_FOUND: usize = 16;

/// What is to be done ahead.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Request {
    /// Look the name up, which may not be there.
    Look(Arc<[u8]>),
    /// List the folder.
    List(Arc<[u8]>),
    /// Read the file.
    Read(Arc<[u8]>, Extent),
}

/// What of a file is to be read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Extent {
    /// All of it, from the first byte to the last.
    Whole,
    /// These parts, in this order.
    InOrder(Vec<Part>),
    /// These parts, in some order.
    InAnyOrder(Vec<Part>),
}

/// How much may be asked for now.
#[derive(Clone, Copy, Debug)]
pub struct Room {
    /// Lookups and listings.
    pub names: usize,
    /// Files to read.
    pub files: usize,
}

/// What became of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Steps that the profile expects.
    pub expected: usize,
    /// Those that were asked for. A step that the run came to before is not.
    pub asked: usize,
    /// Those that the run came to, whether they were asked for or not.
    pub found: usize,
}

/// See the [module](self).
#[derive(Debug)]
pub struct Replay {
    steps: Vec<Ahead>,
    /// The steps of a path, in order.
    of_path: HashMap<Arc<[u8]>, Vec<u32>>,
    /// Steps that were asked for before the run came to them.
    asked: usize,
    /// The first step that was not asked for.
    next: usize,
    /// One past the furthest step that the run has come to.
    cursor: usize,
    window: usize,
    /// Steps that were found, the last ones of them, and hashes of the other paths that the run has touched.
    found: usize,
    last_found: VecDeque<usize>,
    others: HashSet<u64>,
    has_stopped: bool,
    /// Steps before this one are found if the run comes to them. From it on the run was not watched at some time.
    seen_until: usize,
}

#[derive(Debug)]
struct Ahead {
    /// Which of the steps that the profile has of the path: the first one is 1.
    nth: u32,
    request: Option<Request>,
    is_found: bool,
}

impl Replay {
    /// Of a profile; `is_exact`: of this very command.
    pub fn new(profile: &Profile, is_exact: bool) -> Self {
        let (mut steps, mut of_path) = (Vec::new(), HashMap::<_, Vec<u32>>::new());
        for ((path, nth), step) in keys(profile.steps.iter().map(|step| &step.path))
            .into_iter()
            .zip(&profile.steps)
            .filter(|(_, step)| step.is_likely())
        {
            of_path.entry(path).or_default().push(steps.len() as u32);
            steps.push(Ahead { nth, request: Some(request_of(step)), is_found: false });
        }
        let window = if is_exact { WINDOW_FIRST } else { WINDOW_ALIKE };
        Replay {
            steps,
            of_path,
            asked: 0,
            next: 0,
            cursor: 0,
            window,
            found: 0,
            last_found: VecDeque::new(),
            others: HashSet::new(),
            has_stopped: false,
            seen_until: usize::MAX,
        }
    }

    /// The run has touched a path. Returns whether the profile expected it.
    pub fn touch(&mut self, path: &[u8]) -> bool {
        let Some(all) = self.of_path.get(path) else {
            let hash = self.of_path.hasher().hash_one(path);
            if !self.has_stopped && self.others.insert(hash) {
                self.judge();
            }
            return false;
        };
        let new = all.iter().map(|&at| at as usize).find(|&at| !self.steps[at].is_found);
        let Some(at) = new else { return true };
        self.steps[at].is_found = true;
        self.found += 1;
        if self.last_found.len() == LAST_FOUND {
            self.last_found.pop_front();
        }
        self.last_found.push_back(at);
        self.judge();
        self.window = (self.window * 2).min(WINDOW_MAX);
        // A step far ahead was met by accident, or the run has another order.
        if at < self.next + self.window {
            self.cursor = self.cursor.max(at + 1);
        }
        true
    }

    /// The run, of which only some files are seen, has this one open. Tells nothing of the steps before it.
    pub fn sighted(&mut self, path: &[u8]) {
        let window = self.cursor..(self.next + self.window).min(self.steps.len());
        let all = self.of_path.get(path).into_iter().flatten();
        if let Some(at) = all.map(|&at| at as usize).find(|at| window.contains(at)) {
            self.found += usize::from(!std::mem::replace(&mut self.steps[at].is_found, true));
            self.window = (self.window * 2).min(WINDOW_MAX);
            self.cursor = at + 1;
        }
    }

    fn judge(&mut self) {
        let touched = self.found + self.others.len();
        let passed = self.last_found.iter().copied().min().unwrap_or(0);
        let due = touched.max(passed.min(self.next));
        if touched >= JUDGED_MIN && self.found * FOUND_MIN < due {
            self.has_stopped = true;
        }
    }

    /// The run, whose touches are not seen, has come to all steps that were asked for but the last `left`.
    pub fn come_to(&mut self, left: usize) {
        self.cursor = self.cursor.max(self.next.saturating_sub(left));
    }

    /// What is to be done next, as far as there is room.
    pub fn requests(&mut self, mut room: Room) -> Vec<Request> {
        let mut requests = Vec::new();
        while !self.has_stopped && self.next < self.steps.len().min(self.cursor + self.window) {
            let step = &mut self.steps[self.next];
            let left = match &step.request {
                Some(Request::Read(..)) => &mut room.files,
                _ => &mut room.names,
            };
            if !step.is_found {
                let Some(rest) = left.checked_sub(1) else { break };
                *left = rest;
                self.asked += 1;
                requests.extend(step.request.take());
            }
            self.next += 1;
        }
        requests
    }

    /// Whether something may be asked for later on.
    pub fn is_under_way(&self) -> bool {
        !self.has_stopped && self.next < self.steps.len()
    }

    /// Whether steps that were asked for may still be found.
    pub fn is_awaited(&self) -> bool {
        !self.has_stopped && self.cursor < self.steps.len()
    }

    /// Whether the run differs too much.
    pub fn has_stopped(&self) -> bool {
        self.has_stopped
    }

    /// Paths that the run has touched and the profile does not have, until the replay stopped.
    pub fn others(&self) -> usize {
        self.others.len()
    }

    /// What has become of it so far.
    pub fn counts(&self) -> Counts {
        Counts { expected: self.steps.len(), asked: self.asked, found: self.found }
    }

    /// The run is not watched from now on, at least for a while.
    pub fn lose_sight(&mut self) {
        self.seen_until = self.seen_until.min(self.cursor);
    }

    /// Whether the `nth` step of this path (from 1) was asked for, and the run has not come to it, as far as it was watched.
    pub fn is_missed(&self, path: &[u8], nth: u32) -> bool {
        let judged = self.next.min(self.seen_until);
        let mut all = self.of_path.get(path).into_iter().flatten().map(|&at| at as usize);
        let step = all.find(|&at| self.steps[at].nth == nth);
        step.is_some_and(|at| at < judged && !self.steps[at].is_found)
    }
}

/// The parts of a file that are acted on.
pub(crate) fn parts_extent(step: &Weighted) -> Extent {
    let parts: Vec<Part> = step.likely_parts().collect();
    match step.acts.has(Acts::MAP) {
        true => Extent::InAnyOrder(parts),
        false => Extent::InOrder(parts),
    }
}

fn request_of(step: &Weighted) -> Request {
    let path = Arc::clone(&step.path);
    match step.acts {
        _ if step.is_whole() => Request::Read(path, Extent::Whole),
        _ if step.likely_parts().next().is_some() => Request::Read(path, parts_extent(step)),
        acts if acts.has(Acts::LIST) => Request::List(path),
        _ => Request::Look(path),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::steps::{Run, Step};

    const MUCH: Room = Room { names: usize::MAX, files: usize::MAX };

    fn profile(names: usize) -> Profile {
        let step = |at: usize| Step {
            path: format!("/{at}").as_bytes().into(),
            acts: Acts::LOOK,
            parts: Vec::new(),
            at_ms: at as u32,
        };
        let mut profile = Profile::new("x".into());
        profile.learn(
            Run { steps: (0..names).map(step).collect(), is_cut: false },
            |_, _| true,
            true,
        );
        profile
    }

    fn touch(replay: &mut Replay, at: usize) -> bool {
        replay.touch(format!("/{at}").as_bytes())
    }

    #[test]
    fn a_window_is_asked_for_and_moves_with_the_run() {
        let mut replay = Replay::new(&profile(5000), true);
        assert_eq!(replay.requests(MUCH).len(), WINDOW_FIRST);
        assert_eq!(replay.requests(MUCH).len(), 0);
        assert!(touch(&mut replay, 0) && !touch(&mut replay, 9999));
        assert_eq!(replay.requests(MUCH).len(), WINDOW_MAX + 1 - WINDOW_FIRST);
        assert!(touch(&mut replay, 100));
        assert_eq!(replay.requests(MUCH).len(), 100);
        assert!(touch(&mut replay, 50), "in another order");
        assert_eq!(replay.requests(MUCH).len(), 0);
        assert_eq!(replay.counts(), Counts { expected: 5000, asked: 1125, found: 3 });
        assert!(
            replay.is_missed(b"/51", 1)
                && !replay.is_missed(b"/50", 1)
                && !replay.is_missed(b"/4000", 1)
        );
    }

    #[test]
    fn a_step_that_was_found_before_it_was_asked_for_does_not_count_as_asked() {
        let mut replay = Replay::new(&profile(20), true);
        (0..5).for_each(|at| assert!(touch(&mut replay, at)));
        assert_eq!(replay.requests(MUCH).len(), 15);
        assert_eq!(replay.counts(), Counts { expected: 20, asked: 15, found: 5 });
    }

    #[test]
    fn later_pieces_of_a_file_are_missed_by_themselves() {
        let step = |at: usize, path: &str| Step {
            path: path.as_bytes().into(),
            acts: Acts::OPEN | Acts::READ,
            parts: vec![Part { start: at as u64 * 8192, end: (at as u64 + 1) * 8192 }],
            at_ms: at as u32,
        };
        let run = |paths: &[&str]| Run {
            steps: paths.iter().enumerate().map(|(at, path)| step(at, path)).collect(),
            is_cut: false,
        };
        let mut profile = Profile::new("x".into());
        profile.learn(run(&["/a", "/b", "/a", "/a"]), |_, _| true, true);
        profile.steps[2].weight = 0.2; // The second piece is not acted on, and keeps its number.
        let mut replay = Replay::new(&profile, true);
        let _ = replay.requests(MUCH);
        assert!(replay.touch(b"/a"));
        assert!(!replay.is_missed(b"/a", 1) && replay.is_missed(b"/a", 3));
        assert!(!replay.is_missed(b"/a", 2) && !replay.is_missed(b"/a", 4));
        let before = profile.steps[3].weight;
        profile.learn(run(&["/a", "/b"]), |path, nth| replay.is_missed(path, nth), true);
        let weights: Vec<f32> = profile.steps.iter().map(|step| step.weight).collect();
        assert_eq!(weights[2..], [0.2, before / 2.0], "the piece that was asked for in vain");
    }

    #[test]
    fn what_a_run_may_have_come_to_unseen_is_not_missed() {
        let mut replay = Replay::new(&profile(100), true);
        let _ = replay.requests(MUCH);
        assert!(touch(&mut replay, 9) && replay.is_missed(b"/50", 1));
        replay.lose_sight();
        assert!(replay.is_missed(b"/8", 1) && !replay.is_missed(b"/50", 1));
        assert!(touch(&mut replay, 60));
        replay.lose_sight();
        assert!(!replay.is_missed(b"/50", 1), "it was not watched before");
    }

    #[test]
    fn a_command_that_is_only_alike_begins_small() {
        let mut replay = Replay::new(&profile(100), false);
        assert_eq!(replay.requests(MUCH).len(), WINDOW_ALIKE);
        for at in 0..3 {
            let _ = touch(&mut replay, at);
        }
        assert_eq!(replay.requests(MUCH).len(), 8 * WINDOW_ALIKE + 3 - WINDOW_ALIKE);
    }

    #[test]
    fn a_wrong_profile_stops() {
        let mut replay = Replay::new(&profile(5000), true);
        for at in (0..5000).step_by(5) {
            let _ = replay.requests(MUCH);
            let _ = touch(&mut replay, at);
        }
        assert!(replay.has_stopped());
        assert!(replay.counts().asked < 2 * WINDOW_MAX);
    }

    #[test]
    fn steps_that_come_early_do_not_stop_it() {
        let mut replay = Replay::new(&profile(1400), true);
        for at in [1390, 1399].into_iter().chain(0..1400) {
            let _ = replay.requests(MUCH);
            let _ = touch(&mut replay, at);
        }
        assert!(!replay.has_stopped());
        assert_eq!(replay.counts().found, 1400);
    }

    #[test]
    fn what_every_process_touches_again_says_nothing() {
        let mut replay = Replay::new(&profile(300), true);
        let _ = replay.requests(MUCH);
        for process in 0..300 {
            assert!(touch(&mut replay, process));
            for library in 0..20 {
                assert!(!touch(&mut replay, 10_000 + library));
                let _ = touch(&mut replay, library);
            }
        }
        assert!(!replay.has_stopped());
        assert_eq!(replay.counts().found, 300);
    }

    #[test]
    fn a_run_of_something_else_stops_it() {
        let mut replay = Replay::new(&profile(300), true);
        let _ = replay.requests(MUCH);
        for at in 10_000..20_000 {
            let _ = touch(&mut replay, at);
        }
        assert!(replay.has_stopped());
        assert!(replay.others.len() <= JUDGED_MIN);
    }

    #[test]
    fn room_bounds_what_is_asked_for() {
        let mut replay = Replay::new(&profile(100), true);
        assert_eq!(replay.requests(Room { names: 7, files: 0 }).len(), 7);
        let _ = touch(&mut replay, 8);
        assert_eq!(replay.requests(Room { names: 1, files: 0 }), [Request::Look(b"/7"[..].into())]);
        assert_eq!(replay.requests(Room { names: 1, files: 0 }), [Request::Look(b"/9"[..].into())]);
    }

    #[test]
    fn a_file_that_is_read_to_its_end_is_wanted_as_long_as_it_is() {
        let step = |acts, start| Step {
            path: b"/a"[..].into(),
            acts,
            parts: vec![Part { start, end: 8192 }],
            at_ms: 0,
        };
        let request = |step| {
            let mut profile = Profile::new("x".into());
            profile.learn(Run { steps: vec![step], is_cut: false }, |_, _| true, true);
            Replay::new(&profile, true).requests(MUCH)
        };
        let path: Arc<[u8]> = b"/a"[..].into();
        let whole = request(step(Acts::OPEN | Acts::READ | Acts::END, 0));
        assert_eq!(whole, [Request::Read(Arc::clone(&path), Extent::Whole)]);
        let part = vec![Part { start: 4096, end: 8192 }];
        let in_order = [Request::Read(Arc::clone(&path), Extent::InOrder(part.clone()))];
        assert_eq!(request(step(Acts::READ | Acts::END, 4096)), in_order);
        let any = [Request::Read(path, Extent::InAnyOrder(part))];
        assert_eq!(request(step(Acts::READ | Acts::MAP, 4096)), any);
    }
}
