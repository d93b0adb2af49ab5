//! The stream of opens that is simulated: recorded runs one after another, or spread over simulated days.

use std::collections::HashMap;

use foretell_learn::graph::model::cached_bytes;

use crate::random::SplitMix64;
use crate::trace::opens::{Opens, Run};

/// The time between two runs that are played in order, in microseconds: a minute.
const BETWEEN_US: u64 = 60_000_000;

/// An open of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Step {
    /// When, in microseconds, if nothing waits.
    pub time_us: u64,
    /// The time from the open to the first read, in microseconds.
    pub read_us: u64,
    /// Its size in bytes.
    pub size_bytes: u64,
    /// The file.
    pub file: u32,
    /// The process. Processes of different runs differ.
    pub process: u32,
}

/// A stream.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Stream {
    /// In the order of time.
    pub steps: Vec<Step>,
    /// The number of files.
    pub files: usize,
}

/// People who work at the same time, so that their runs overlap.
const PEOPLE: u64 = 2;
/// When they work, in hours of the day.
const HOURS: std::ops::Range<u64> = 9..17;
/// Mean time between the runs of a person, in seconds.
const PAUSE_S: f64 = 5400.0;
/// How many runs a person makes at once, with seconds in between: an edit, and the same again.
const AGAIN_MAX: u64 = 3;
/// One run in so many is started by two people at once.
const TOGETHER: u64 = 4;
const SECOND_US: u64 = 1_000_000;

impl Stream {
    /// The runs in their order, a minute after one another.
    pub fn in_order(opens: &Opens) -> Self {
        let mut builder = Builder::default();
        let mut time_us = 0;
        for run in &opens.runs {
            builder.add(0, opens, run, time_us);
            time_us += run.opens.last().map_or(0, |open| open.time_us) + BETWEEN_US;
        }
        builder.finish()
    }

    /// The runs of all recordings as people would start them in the course of some days, drawn from `seed`.
    ///
    /// Each of two people works from nine to five. They start a recording's run at random, and the same or another run of that
    /// recording once or twice more some seconds later; then pause. At times both start something at the same moment, and
    /// their opens interleave.
    pub fn of_days(recordings: &[&Opens], days: u64, seed: u64) -> Self {
        let mut random = SplitMix64::new(seed);
        let mut builder = Builder::default();
        for day in 0..days {
            for _person in 0..PEOPLE {
                let hour_us = 3_600 * SECOND_US;
                let [mut now_us, end_us] =
                    [HOURS.start, HOURS.end].map(|hour| (day * 24 + hour) * hour_us);
                loop {
                    now_us += (-(1.0 - random.unit()).ln() * PAUSE_S * SECOND_US as f64) as u64;
                    if now_us >= end_us {
                        break;
                    }
                    let others = 1 + u64::from(random.below(TOGETHER) == 0);
                    let ends_us: Vec<u64> = (0..others)
                        .map(|_| builder.bout(&mut random, recordings, now_us))
                        .collect();
                    now_us = ends_us.into_iter().fold(now_us, u64::max);
                }
            }
        }
        builder.finish()
    }

    /// Bytes of all files in a cache: one of that size never evicts.
    pub fn bytes(&self) -> u64 {
        let mut sizes = vec![0; self.files];
        for step in &self.steps {
            let size = &mut sizes[step.file as usize];
            *size = cached_bytes(step.size_bytes).max(*size);
        }
        sizes.iter().sum()
    }
}

#[derive(Default)]
struct Builder {
    steps: Vec<Step>,
    /// The files of the recordings, by recording and number.
    files: HashMap<(usize, u32), u32>,
    by_path: HashMap<String, u32>,
    runs: u32,
}

impl Builder {
    /// Some runs of one recording; returns when the last ends.
    fn bout(&mut self, random: &mut SplitMix64, recordings: &[&Opens], mut now_us: u64) -> u64 {
        let number = random.below(recordings.len() as u64) as usize;
        let opens = recordings[number];
        for _ in 0..=random.below(AGAIN_MAX) {
            let run = &opens.runs[random.below(opens.runs.len() as u64) as usize];
            self.add(number, opens, run, now_us);
            let lasts_us = run.opens.last().map_or(0, |open| open.time_us);
            now_us += lasts_us + (5 + random.below(55)) * SECOND_US;
        }
        now_us
    }

    fn add(&mut self, number: usize, opens: &Opens, run: &Run, begin_us: u64) {
        self.runs += 1;
        for open in &run.opens {
            let new = self.by_path.len() as u32;
            let by_path = &mut self.by_path;
            let file = *self.files.entry((number, open.file)).or_insert_with(|| {
                *by_path.entry(opens.paths[open.file as usize].clone()).or_insert(new)
            });
            self.steps.push(Step {
                time_us: begin_us.saturating_add(open.time_us),
                read_us: open.read_us,
                size_bytes: open.size_bytes,
                file,
                process: open.process.wrapping_add(self.runs.wrapping_mul(0x0001_0001)),
            });
        }
    }

    fn finish(mut self) -> Stream {
        self.steps.sort_by_key(|step| step.time_us);
        Stream { steps: self.steps, files: self.by_path.len() }
    }
}
