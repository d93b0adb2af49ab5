//! The results of the demo on the store. They are serialised as they are for `--json`; the report is drawn from them.

use serde::Serialize;

use crate::demo::machine::Machine;

/// All results.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Results {
    /// The conditions.
    pub(crate) conditions: Conditions,
    /// The tasks, each in several ways.
    pub(crate) cases: Vec<Case>,
}

/// The conditions, the same for all results.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Conditions {
    /// The date and the machine.
    #[serde(flatten)]
    pub(crate) machine: Machine,
    /// Latency to the first byte of each response.
    pub(crate) first_byte_s: f64,
    /// Bandwidth of each response, in bytes per second.
    pub(crate) per_response_bytes_per_s: u64,
    /// How late first bytes were against that latency: the largest of the measurements' means.
    pub(crate) first_byte_late_s: f64,
    /// Rounds per way.
    pub(crate) rounds: usize,
    /// Number of ranges.
    pub(crate) ranges: usize,
    /// Length of a range.
    pub(crate) range_bytes: u64,
    /// Length of the object that the ranges lie in.
    pub(crate) object_bytes: u64,
    /// Number of small objects.
    pub(crate) notes: usize,
    /// Bytes of all small objects.
    pub(crate) notes_bytes: u64,
    /// The program that searched.
    pub(crate) program: String,
    /// The string that it searched for.
    pub(crate) needle: String,
}

/// One task, done in several ways.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Case {
    /// The task in words.
    pub(crate) what: String,
    /// The ways. The first has no hints, and the others are compared with it.
    pub(crate) ways: Vec<Way>,
}

/// The kind of a way.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// No hints: each read asks the store.
    #[default]
    Plain,
    /// Hints are given before the reads.
    Hinted,
    /// The data was read before.
    Again,
}

/// One way of doing a task.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Way {
    /// Its name.
    pub(crate) name: String,
    /// Its kind.
    pub(crate) kind: Kind,
    /// One sample per round.
    pub(crate) samples: Vec<Sample>,
    /// The sample with the median time.
    pub(crate) median: Sample,
    /// The shortest time.
    pub(crate) least_s: f64,
    /// The longest time.
    pub(crate) most_s: f64,
}

/// One round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// Elapsed.
    pub(crate) elapsed_s: f64,
    /// Requests to the store meanwhile.
    pub(crate) requests: u64,
    /// The most of them in flight at once.
    pub(crate) in_flight_max: u64,
    /// Bytes of data that it sent.
    pub(crate) bytes_sent: u64,
    /// Whether the bytes read, or printed, were right.
    pub(crate) identical: bool,
}

impl Way {
    pub(crate) fn new(name: &str, kind: Kind) -> Self {
        Way { name: name.into(), kind, ..Way::default() }
    }

    /// Adds a round's sample.
    pub(crate) fn add(&mut self, sample: Sample) {
        self.samples.push(sample);
        let mut sorted = self.samples.clone();
        sorted.sort_by(|one, other| one.elapsed_s.total_cmp(&other.elapsed_s));
        self.median = sorted[(sorted.len() - 1) / 2];
        (self.least_s, self.most_s) = (sorted[0].elapsed_s, sorted[sorted.len() - 1].elapsed_s);
    }

    /// Whether it was right in each round.
    pub(crate) fn is_identical(&self) -> bool {
        self.samples.iter().all(|sample| sample.identical)
    }
}

impl Case {
    /// The ways, each with the share of the first way's time that it saved; `None` for the first.
    pub(crate) fn compared(&self) -> impl Iterator<Item = (&Way, Option<f64>)> {
        let plain_s = self.ways.first().map_or(f64::NAN, |way| way.median.elapsed_s);
        let saved = move |way: &Way| 1.0 - way.median.elapsed_s / plain_s;
        self.ways.iter().enumerate().map(move |(index, way)| (way, (index > 0).then(|| saved(way))))
    }

    /// The fastest way with hints, with the share that it saved.
    pub(crate) fn best(&self) -> Option<(&Way, f64)> {
        let hinted = self.compared().filter(|(way, _)| way.kind == Kind::Hinted);
        let saved = hinted.filter_map(|(way, saved)| Some((way, saved?)));
        saved.max_by(|one, other| one.1.total_cmp(&other.1))
    }
}

impl Results {
    /// All ways of all cases.
    pub(crate) fn ways(&self) -> impl Iterator<Item = (&Case, &Way)> {
        self.cases.iter().flat_map(|case| case.ways.iter().map(move |way| (case, way)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn way(kind: Kind, times: &[f64]) -> Way {
        let mut way = Way::new("way", kind);
        for &elapsed_s in times {
            way.add(Sample { elapsed_s, identical: elapsed_s < 9.0, ..Sample::default() });
        }
        way
    }

    #[test]
    fn the_middle_counts() {
        let three = way(Kind::Plain, &[3.0, 1.0, 2.0]);
        assert_eq!((three.median.elapsed_s, three.least_s, three.most_s), (2.0, 1.0, 3.0));
        assert_eq!(way(Kind::Plain, &[4.0, 1.0]).median.elapsed_s, 1.0);
        assert!(three.is_identical() && !way(Kind::Plain, &[1.0, 9.5]).is_identical());
    }

    #[test]
    fn ways_are_compared_with_the_first() {
        let ways = vec![
            way(Kind::Plain, &[4.0]),
            way(Kind::Hinted, &[1.0]),
            way(Kind::Hinted, &[2.0]),
            way(Kind::Again, &[0.5]),
        ];
        let case = Case { what: "case".into(), ways };
        let saved: Vec<_> = case.compared().map(|(_, saved)| saved).collect();
        assert_eq!(saved, [None, Some(0.75), Some(0.5), Some(0.875)]);
        assert_eq!(case.best().map(|(_, saved)| saved), Some(0.75));
        assert!(Case::default().best().is_none());
    }
}
