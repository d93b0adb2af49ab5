//! What the runs of a workload have in common.
//!
//! A profile has the steps of its last run in their order, and those of earlier runs behind the steps that they had followed.
//! Each step, and each part of a file, has a *weight*: the chance, as far as runs have shown, that the next run has it. A run
//! that has it halves the distance of the weight to one, and a run that lacks it halves the weight. So what only every second
//! run has is acted on half the time, and what was seen once has faded after three runs without it.
//!
//! A run that was not watched all the time tells nothing about what it lacks: only steps that were acted on lose weight then,
//! since a run is watched while it is looked ahead for.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;

use crate::steps::{Acts, Part, Run, Step};

/// Weights at which steps begin: in the first run of a workload, and in later ones.
pub(crate) const WEIGHT_FIRST: f32 = 0.75;
const WEIGHT_LATER: f32 = 0.5;

/// What has less weight is not acted on: more than half of what was fetched would be for nothing.
pub const WEIGHT_MIN: f32 = 0.4;

/// What has less weight is forgotten: seen once, and lacking three times.
const WEIGHT_KEPT: f32 = 0.09;

/// Steps of a profile. Those of the last run come first.
pub const STEPS_MAX: usize = crate::recorder::STEPS_MAX;

/// Which runs a profile is of.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Kind {
    /// Of one command line in one folder.
    #[default]
    Exact,
    /// Of all command lines of one shape.
    Alike,
    /// Of those that the user has given one name.
    Named,
    /// Of all programs: see [`across`](crate::across).
    Across,
}

/// What became of the steps of a profile in the last run that used it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Last {
    /// Steps that the run was expected to have.
    pub expected: u32,
    /// Those of them that were looked up or read ahead, before the run came to them.
    pub asked: u32,
    /// Those that the run came to, whether they were asked for or not.
    pub found: u32,
    /// The run differed so much that nothing more was asked for.
    pub has_stopped: bool,
    /// Bytes of files that were read ahead for it.
    pub ahead_bytes: u64,
    /// Those of them that were in memory before they were read.
    pub useful_bytes: u64,
    /// Those that were on their way when they were read.
    pub late_bytes: u64,
    /// Those that were not read.
    pub wasted_bytes: u64,
}

/// See the [module](self).
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Profile {
    /// Which workload it is of, for people.
    pub name: String,
    /// Which runs it is of.
    pub kind: Kind,
    /// The folder in which an exact command line is run; else empty.
    pub folder: Vec<u8>,
    /// How good it was last time; `None` if it was not used yet.
    pub last: Option<Last>,
    /// Runs that it was learned from.
    pub runs: u32,
    /// Its steps, in the order in which the next run is expected to have them.
    pub steps: Vec<Weighted>,
}

/// A step, and what several runs say about it.
#[derive(Clone, Debug, PartialEq)]
pub struct Weighted {
    /// Absolute path.
    pub path: Arc<[u8]>,
    /// What was done, in any run.
    pub acts: Acts,
    /// When it was first touched in the last run that had it, in milliseconds since the run's start.
    pub at_ms: u32,
    /// Runs that had it.
    pub seen: u32,
    /// The chance that the next run has it.
    pub weight: f32,
    /// Parts of the file with their weights, in the order of first use.
    pub parts: Vec<(Part, f32)>,
}

impl Weighted {
    fn new(step: Step, weight: f32) -> Self {
        let parts = step.parts.into_iter().map(|part| (part, weight)).collect();
        Weighted { path: step.path, acts: step.acts, at_ms: step.at_ms, seen: 1, weight, parts }
    }

    /// Whether it is acted on at the next run.
    pub fn is_likely(&self) -> bool {
        self.weight >= WEIGHT_MIN
    }

    /// Bytes of the parts that are acted on.
    pub fn likely_bytes(&self) -> u64 {
        self.likely_parts().fold(0, |sum, part| sum.saturating_add(part.bytes()))
    }

    /// Whether the whole file is read, as long as it may be by then.
    pub fn is_whole(&self) -> bool {
        let mut likely = self.likely_parts();
        let is_one = likely.next().is_some_and(|part| part.start == 0) && likely.next().is_none();
        self.acts.has(Acts::END) && is_one
    }

    /// The parts that are acted on.
    pub fn likely_parts(&self) -> impl Iterator<Item = Part> + '_ {
        self.parts.iter().filter(|(_, weight)| *weight >= WEIGHT_MIN).map(|&(part, _)| part)
    }
}

fn gained(weight: f32) -> f32 {
    weight + (1.0 - weight) / 2.0
}

/// A path, and which of its steps: the first one is 1.
pub(crate) type Key = (Arc<[u8]>, u32);

/// The keys of steps with these paths, in their order.
pub(crate) fn keys<'a>(paths: impl Iterator<Item = &'a Arc<[u8]>>) -> Vec<Key> {
    let mut counts: HashMap<Arc<[u8]>, u32> = HashMap::new();
    paths
        .map(|path| {
            let count = counts.entry(Arc::clone(path)).or_default();
            *count += 1;
            (Arc::clone(path), *count)
        })
        .collect()
}

impl Profile {
    /// The profile of a workload of this name, without a run.
    pub fn new(name: String) -> Self {
        Profile { name, ..Profile::default() }
    }

    /// Learns from `run`. `lost`: whether the nth step of a path (from 1), which the run lacks, loses weight. `has_seen_all`:
    /// whether the run was watched all the time, so that parts of a file that it lacks lose weight.
    pub fn learn(&mut self, run: Run, lost: impl Fn(&[u8], u32) -> bool, has_seen_all: bool) {
        let begins = if self.runs == 0 { WEIGHT_FIRST } else { WEIGHT_LATER };
        self.runs = self.runs.saturating_add(1);
        let old = std::mem::take(&mut self.steps);
        let old_keys = keys(old.iter().map(|step| &step.path));
        let new_keys = keys(run.steps.iter().map(|step| &step.path));
        let present: HashSet<&Key> = new_keys.iter().collect();
        let mut behind: HashMap<Option<&Key>, Vec<Weighted>> = HashMap::new();
        let mut known: HashMap<&Key, Weighted> = HashMap::new();
        let mut anchor = None;
        for (key, mut step) in old_keys.iter().zip(old) {
            if present.contains(key) {
                anchor = Some(key);
                known.insert(key, step);
            } else {
                if lost(&step.path, key.1) {
                    fade(&mut step);
                }
                if step.weight >= WEIGHT_KEPT {
                    behind.entry(anchor).or_default().push(step);
                }
            }
        }
        let mut steps = behind.remove(&None).unwrap_or_default();
        for (key, step) in new_keys.iter().zip(run.steps) {
            steps.push(match known.remove(key) {
                Some(before) => merged(before, step, begins, has_seen_all),
                None => Weighted::new(step, begins),
            });
            steps.extend(behind.remove(&Some(key)).unwrap_or_default());
        }
        if steps.len() > STEPS_MAX {
            let mut weights: Vec<f32> = steps.iter().map(|step| step.weight).collect();
            weights.sort_by(|a, b| b.total_cmp(a));
            let least = weights[STEPS_MAX];
            let above = weights.partition_point(|&weight| weight > least);
            // Of those with the least weight, as many as there is room for, the first ones.
            let mut room = STEPS_MAX - above;
            steps.retain(|step| {
                let has_room = step.weight == least && room > 0;
                room -= usize::from(has_room);
                step.weight > least || has_room
            });
        }
        self.steps = steps;
    }
}

fn fade(step: &mut Weighted) {
    step.weight /= 2.0;
    step.parts.iter_mut().for_each(|(_, weight)| *weight /= 2.0);
    step.parts.retain(|(_, weight)| *weight >= WEIGHT_KEPT);
}

/// A step that was known, and that the run has again.
fn merged(before: Weighted, step: Step, begins: f32, has_seen_all: bool) -> Weighted {
    let parts = merged_parts(&before.parts, &step.parts, begins, has_seen_all);
    let mut known = before.acts;
    if step.acts.has(Acts::READ) {
        known = known.without(Acts::END); // Where this run's reads ended counts.
    }
    if !step.acts.has(Acts::FAIL) {
        known = known.without(Acts::FAIL); // It is there now.
    }
    Weighted {
        path: step.path,
        acts: known | step.acts,
        at_ms: step.at_ms,
        seen: before.seen.saturating_add(1),
        weight: gained(before.weight),
        parts,
    }
}

/// The parts of this run, then what it lacks of the known ones, with less weight if it was watched all the time.
fn merged_parts(
    known: &[(Part, f32)],
    parts: &[Part],
    begins: f32,
    has_seen_all: bool,
) -> Vec<(Part, f32)> {
    let kept = if has_seen_all { 0.5 } else { 1.0 };
    let mut sorted: Vec<(Part, f32)> = known.to_vec();
    sorted.sort_by_key(|(part, _)| part.start);
    let mut lacking = Lacking::new(parts);
    let of_run = parts.iter().map(|part| (*part, weight_of(&sorted, part, begins)));
    let merged: Vec<(Part, f32)> = of_run.collect();
    let faded = known.iter().filter(|(_, weight)| weight * kept >= WEIGHT_KEPT);
    let rest = faded.flat_map(|&(part, weight)| {
        lacking.of(part).into_iter().map(move |part| (part, weight * kept)).collect::<Vec<_>>()
    });
    merged.into_iter().chain(rest).collect()
}

/// The weight of a part that the run has: known bytes gain, and others begin.
fn weight_of(sorted: &[(Part, f32)], part: &Part, begins: f32) -> f32 {
    let first = sorted.partition_point(|(known, _)| known.end <= part.start);
    let (mut known_bytes, mut sum) = (0, 0.0);
    for (known, weight) in sorted[first..].iter().take_while(|(known, _)| known.start < part.end) {
        let bytes = known.overlap_bytes(part);
        known_bytes += bytes;
        sum += gained(*weight) * bytes as f32;
    }
    let new_bytes = part.bytes().saturating_sub(known_bytes);
    (sum + begins * new_bytes as f32) / part.bytes().max(1) as f32
}

/// What of a part no part of the run has.
struct Lacking {
    sorted: Vec<Part>,
}

impl Lacking {
    fn new(parts: &[Part]) -> Self {
        let mut sorted = parts.to_vec();
        sorted.sort_by_key(|part| part.start);
        Lacking { sorted }
    }

    fn of(&mut self, part: Part) -> Vec<Part> {
        let first = self.sorted.partition_point(|other| other.end <= part.start);
        let (mut from, mut lacking) = (part.start, Vec::new());
        for other in self.sorted[first..].iter().take_while(|other| other.start < part.end) {
            if from < other.start {
                lacking.push(Part { start: from, end: other.start });
            }
            from = from.max(other.end);
        }
        if from < part.end {
            lacking.push(Part { start: from, end: part.end });
        }
        lacking
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A path, and its parts.
    type Given<'a> = (&'a str, &'a [(u64, u64)]);

    fn run(steps: &[Given<'_>]) -> Run {
        let step = |(at, (path, parts)): (usize, &Given<'_>)| Step {
            path: path.as_bytes().into(),
            acts: Acts::OPEN,
            parts: parts.iter().map(|&(start, end)| Part { start, end }).collect(),
            at_ms: at as u32,
        };
        Run { steps: steps.iter().enumerate().map(step).collect(), is_cut: false }
    }

    fn names(profile: &Profile) -> Vec<&str> {
        profile.steps.iter().map(|step| std::str::from_utf8(&step.path).expect("text")).collect()
    }

    #[test]
    fn the_order_is_that_of_the_last_run_and_what_it_lacks_keeps_its_place() {
        let mut profile = Profile::new("x".into());
        profile.learn(
            run(&[("/a", &[]), ("/b", &[]), ("/c", &[]), ("/d", &[])]),
            |_, _| true,
            true,
        );
        profile.learn(run(&[("/d", &[]), ("/a", &[]), ("/c", &[])]), |_, _| true, true);
        assert_eq!(names(&profile), ["/d", "/a", "/b", "/c"]);
        let weights: Vec<f32> = profile.steps.iter().map(|step| step.weight).collect();
        assert_eq!(weights, [0.875, 0.875, 0.375, 0.875]);
        assert!(!profile.steps[2].is_likely());
        for _ in 0..2 {
            profile.learn(run(&[("/d", &[]), ("/a", &[]), ("/c", &[])]), |_, _| true, true);
        }
        assert_eq!(names(&profile), ["/d", "/a", "/b", "/c"]);
        profile.learn(run(&[("/d", &[]), ("/a", &[]), ("/c", &[])]), |_, _| true, true);
        assert_eq!(names(&profile), ["/d", "/a", "/c"], "faded");
        assert_eq!((profile.runs, profile.steps[0].seen), (5, 5));
    }

    #[test]
    fn what_every_second_run_has_is_acted_on_after_a_run_that_had_it() {
        let mut profile = Profile::new("x".into());
        for at in 0..20 {
            let has = at % 2 == 0;
            let steps: &[Given<'_>] =
                if has { &[("/a", &[]), ("/b", &[])] } else { &[("/a", &[])] };
            profile.learn(run(steps), |_, _| true, true);
            let b = profile.steps.iter().find(|step| &*step.path == b"/b").expect("kept");
            assert_eq!(b.is_likely(), has, "{at}: {}", b.weight);
        }
    }

    #[test]
    fn what_was_not_watched_keeps_its_weight() {
        let mut profile = Profile::new("x".into());
        profile.learn(run(&[("/a", &[]), ("/b", &[])]), |_, _| true, true);
        profile.learn(run(&[("/a", &[])]), |path, _| path != b"/b", true);
        assert_eq!(profile.steps[1].weight, WEIGHT_FIRST);
    }

    #[test]
    fn parts_of_a_file_have_weights_of_their_own() {
        let mut profile = Profile::new("x".into());
        profile.learn(run(&[("/a", &[(0, 100), (500, 600)])]), |_, _| true, true);
        profile.learn(run(&[("/a", &[(500, 550), (0, 200)])]), |_, _| true, true);
        let parts: Vec<(u64, u64, f32)> = profile.steps[0]
            .parts
            .iter()
            .map(|&(part, weight)| (part.start, part.end, weight))
            .collect();
        assert_eq!(parts, [(500, 550, 0.875), (0, 200, 0.6875), (550, 600, 0.375)]);
        assert_eq!(profile.steps[0].likely_bytes(), 250);
    }

    #[test]
    fn a_file_that_a_run_comes_back_to_has_several_steps() {
        let mut profile = Profile::new("x".into());
        let twice = || run(&[("/a", &[(0, 8)]), ("/b", &[]), ("/a", &[(8, 16)])]);
        profile.learn(twice(), |_, _| true, true);
        profile.learn(twice(), |_, _| true, true);
        assert_eq!(names(&profile), ["/a", "/b", "/a"]);
        assert!(profile.steps.iter().all(|step| step.seen == 2));
    }
}
