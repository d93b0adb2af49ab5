//! Predicts what a run will read that no profile covers, from what the last runs of all workloads have opened.
//!
//! The *history* is a profile of its own ([`workload`]): the files that the last runs have read, run after run, in the order of
//! first use. Its steps have weights of no meaning, and `seen` is the number of their run. A run that has no profile, or one
//! that proved wrong, feeds the history to a [predictor](crate::graph), then its own opens, and asks for what the predictor
//! expects.
//!
//! What is asked for are the parts that the file's last run has read. Each file is asked for once in a run. A file that the
//! history does not have, or that the run has touched already, is not asked for.
//!
//! Cost: [`OPENS_MAX`] steps in the history, some half a megabyte, decoded and fed once a run that uses it; then some
//! microseconds an open.

use std::collections::{HashMap, HashSet};

use crate::graph::{Entry, Foresight, Seen, Settings};
use crate::profile::{Kind, Profile, WEIGHT_FIRST, Weighted};
use crate::replay::{Extent, Request, parts_extent};
use crate::steps::{Acts, Run};
use crate::workload::{Workload, digest};

/// Opens of the history. The oldest runs go first.
pub const OPENS_MAX: usize = 1 << 14;

/// Opens that are kept of one run, the first ones: others keep their places.
const OF_RUN_MAX: usize = OPENS_MAX / 8;

/// Parts of a file that are kept, the first ones. All take less than a profile may have.
const PARTS_MAX: usize = 16;
const _: () = assert!(OPENS_MAX * PARTS_MAX <= crate::recorder::PARTS_MAX);

/// A run that comes again just as it was is kept so often in a row: once to know it, and once to show that it comes again. More
/// would drive other runs out.
const AGAIN_MAX: usize = 2;

/// Bytes of all paths: of longer ones, fewer are kept.
const PATHS_MAX_BYTES: usize = crate::recorder::PATHS_MAX_BYTES / 2;

/// Time between two runs, as the predictor is told.
const BETWEEN_RUNS_US: u64 = 1_000_000;

/// What became of the predictions of a run.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Opens of the run that the predictor was told.
    pub opens: u64,
    /// Files that were asked for.
    pub asked: u64,
    /// Those of them that the run opened.
    pub found: u64,
}

/// The name under which the history is kept.
pub fn workload() -> Workload {
    Workload { kind: Kind::Across, ..Workload::named("\0across") }.called("all programs")
}

/// Adds a run to the history. Returns whether that changes it: not if the run has read no file, or if the last
/// `AGAIN_MAX` runs have read the same files in the same order.
pub fn add(history: &mut Profile, run: &Run) -> bool {
    let number = history.runs.saturating_add(1);
    let mut seen = HashSet::new();
    let steps = run.steps.iter().filter(|step| {
        step.acts.has(Acts::READ | Acts::MAP)
            && !step.parts.is_empty()
            && seen.insert(&step.path[..])
    });
    let added: Vec<Weighted> = steps
        .take(OF_RUN_MAX)
        .map(|step| Weighted {
            path: step.path.clone(),
            acts: step.acts,
            at_ms: step.at_ms,
            seen: number,
            weight: WEIGHT_FIRST,
            parts: step.parts.iter().take(PARTS_MAX).map(|&part| (part, WEIGHT_FIRST)).collect(),
        })
        .collect();
    if added.is_empty() || has_again(history, &added) {
        return false;
    }
    (history.kind, history.runs) = (Kind::Across, number);
    history.steps.extend(added);
    let newest = history.steps.iter().rev().scan(0, |bytes, step| {
        *bytes += step.path.len();
        (*bytes <= PATHS_MAX_BYTES).then_some(())
    });
    let first = history.steps.len() - newest.take(OPENS_MAX).count();
    history.steps.drain(..first);
    true
}

/// Whether each of the last [`AGAIN_MAX`] runs of the history has these steps, at whatever times.
fn has_again(history: &Profile, steps: &[Weighted]) -> bool {
    let mut runs = history.steps.chunk_by(|a, b| a.seen == b.seen).rev();
    let same = |(a, b): (&Weighted, &Weighted)| {
        let parts = a.parts.iter().map(|(part, _)| part);
        (&a.path, a.acts) == (&b.path, b.acts) && parts.eq(b.parts.iter().map(|(part, _)| part))
    };
    let is_same = |run: &[Weighted]| run.len() == steps.len() && run.iter().zip(steps).all(same);
    (0..AGAIN_MAX).all(|_| runs.next().is_some_and(is_same))
}

/// See the [module](self).
pub struct Across {
    foresight: Foresight,
    /// What is asked for of each file, taken when it is.
    requests: HashMap<u64, Request>,
    asked: HashSet<u64>,
    /// The number and the first moment of this run.
    run: u32,
    began_us: u64,
    /// The time of the last open: reports of several programs overlap.
    last_us: u64,
    /// Sizes that files of the history had.
    sizes: HashMap<u64, u64>,
    counts: Counts,
}

impl Across {
    /// Feeds the history to the predictor of `entry`.
    pub fn new(history: &Profile, entry: Entry, settings: Settings) -> Self {
        let mut foresight = Foresight::new(entry, settings, 2 * OPENS_MAX);
        let (mut run, mut began_us, mut last_us) = (0, 0, 0);
        let (mut requests, mut sizes) = (HashMap::new(), HashMap::new());
        for step in &history.steps {
            if step.seen != run {
                (run, began_us) = (step.seen, last_us + BETWEEN_RUNS_US);
            }
            let key = digest(&step.path);
            last_us = last_us.max(began_us + u64::from(step.at_ms) * 1000);
            let size_bytes = step.likely_bytes();
            foresight.open(&Seen { key, size_bytes, process: run, time_us: last_us });
            requests.insert(key, request_of(step));
            sizes.insert(key, size_bytes);
        }
        Across {
            foresight,
            requests,
            asked: HashSet::new(),
            run: history.runs.saturating_add(1),
            began_us: last_us + BETWEEN_RUNS_US,
            last_us,
            sizes,
            counts: Counts::default(),
        }
    }

    /// The run opens this file, `at_us` after its start. Returns what is to be read ahead, the nearest first. `is_known`:
    /// whether the run has touched a path.
    pub fn open(
        &mut self,
        path: &[u8],
        at_us: u64,
        is_known: impl Fn(&[u8]) -> bool,
    ) -> Vec<Request> {
        let key = digest(path);
        self.counts.opens += 1;
        self.counts.found += u64::from(self.asked.remove(&key));
        self.requests.remove(&key);
        self.last_us = self.last_us.max(self.began_us.saturating_add(at_us));
        let size_bytes = self.sizes.get(&key).copied().unwrap_or(0);
        let seen = Seen { key, size_bytes, process: self.run, time_us: self.last_us };
        let mut ahead = Vec::new();
        for expected in self.foresight.open(&seen) {
            let Some(request) = self.requests.remove(&expected.key) else { continue };
            if !matches!(&request, Request::Read(path, _) if is_known(path)) {
                self.asked.insert(expected.key);
                self.counts.asked += 1;
                ahead.push(request);
            }
        }
        ahead
    }

    /// What has become of it so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}

impl std::fmt::Debug for Across {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Across").field("counts", &self.counts).finish_non_exhaustive()
    }
}

fn request_of(step: &Weighted) -> Request {
    let extent = if step.is_whole() { Extent::Whole } else { parts_extent(step) };
    Request::Read(step.path.clone(), extent)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::graph::predictor;
    use crate::steps::{Part, Step};

    fn run(names: &[&str]) -> Run {
        let step = |(at, name): (usize, &&str)| Step {
            path: name.as_bytes().into(),
            acts: Acts::OPEN | Acts::READ | Acts::END,
            parts: vec![Part { start: 0, end: 8192 }],
            at_ms: at as u32,
        };
        Run { steps: names.iter().enumerate().map(step).collect(), is_cut: false }
    }

    fn across(runs: &[&[&str]]) -> Across {
        let mut history = Profile::new(String::new());
        runs.iter().for_each(|names| {
            let _ = add(&mut history, &run(names));
        });
        let entry = predictor("graph").expect("there is one");
        Across::new(&history, entry, Settings::default())
    }

    fn names(requests: &[Request]) -> Vec<String> {
        let name = |request: &Request| match request {
            Request::Read(path, Extent::Whole) => String::from_utf8_lossy(path).into_owned(),
            other => format!("{other:?}"),
        };
        requests.iter().map(name).collect()
    }

    #[test]
    fn what_other_workloads_have_opened_together_is_asked_for_once() {
        let tool: &[&str] = &["/bin/tool", "/lib/a", "/lib/b", "/etc/tool"];
        let one = [&["/x"], tool, &["/one"]].concat();
        let two = [&["/y"], tool, &["/two"]].concat();
        let mut across = across(&[&one, &two]);
        let ahead = across.open(b"/bin/tool", 0, |path| path == b"/lib/b");
        assert_eq!(names(&ahead)[..2], ["/lib/a", "/etc/tool"], "the nearest first");
        assert!(!names(&ahead).contains(&"/lib/b".to_owned()), "the run has it");
        assert!(across.open(b"/lib/a", 10, |_| false).is_empty(), "asked for");
        let counts = across.counts();
        assert_eq!((counts.opens, counts.found), (2, 1));
        assert_eq!(counts.asked, ahead.len() as u64);
    }

    #[test]
    fn an_unknown_file_tells_nothing() {
        let mut across = across(&[&["/a", "/b"]]);
        assert!(across.open(b"/c", 0, |_| false).is_empty());
    }

    #[test]
    fn a_run_that_comes_again_and_again_is_kept_twice() {
        let mut history = Profile::new(String::new());
        assert!(add(&mut history, &run(&["/a", "/b"])) && add(&mut history, &run(&["/a", "/b"])));
        let before = history.clone();
        let mut later = run(&["/a", "/b"]);
        later.steps[1].at_ms = 77;
        assert!(!add(&mut history, &later) && history == before);
        assert!(!add(&mut history, &run(&[])) && history == before, "it has read nothing");
        assert!(add(&mut history, &run(&["/b", "/a"])) && add(&mut history, &run(&["/a", "/b"])));
        assert_eq!((history.runs, history.steps.len()), (4, 8));
    }

    #[test]
    fn the_history_is_bounded_and_forgets_the_oldest() {
        let mut history = Profile::new(String::new());
        let all: Vec<String> = (0..OPENS_MAX).map(|at| format!("/{at}")).collect();
        let all: Vec<&str> = all.iter().map(String::as_str).collect();
        assert!(add(&mut history, &run(&["/old"])) && add(&mut history, &run(&all)));
        assert_eq!(
            history.steps.len(),
            1 + OF_RUN_MAX,
            "a run of many files leaves others their places"
        );
        for at in 0..9 {
            // A run that differs from the one before, so that all are kept.
            assert!(add(&mut history, &run(&all[at..])));
        }
        assert_eq!(history.steps.len(), OPENS_MAX);
        assert!(history.steps.iter().all(|step| &*step.path != b"/old"));
        let long = format!("/{}", "x".repeat(4000));
        let long: Vec<String> = (0..OF_RUN_MAX).map(|at| format!("{long}{at}")).collect();
        let _ = add(&mut history, &run(&long.iter().map(String::as_str).collect::<Vec<_>>()));
        let bytes: usize = history.steps.iter().map(|step| step.path.len()).sum();
        assert!(bytes <= PATHS_MAX_BYTES && history.steps.len() > 1000);
        let kept = crate::codec::decode(&crate::codec::encode(b"key", &history)).expect("whole").1;
        let all = |profile: &Profile| -> Vec<_> {
            profile.steps.iter().map(|step| (step.path.clone(), step.parts.len())).collect()
        };
        assert!(all(&kept) == all(&history), "all of it is written");
        let look =
            Step { acts: Acts::LOOK, parts: Vec::new(), ..run(&["/looked"]).steps[0].clone() };
        assert!(!add(&mut history, &Run { steps: vec![look], is_cut: false }));
        assert!(history.steps.iter().all(|step| &*step.path != b"/looked"));
    }
}
