//! What the demo measured on the store. Serialised as it is for `--json`; the report is drawn from it.

use serde::Serialize;

use crate::demo::machine::Machine;

/// Everything.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Results {
    /// The conditions.
    pub(crate) conditions: Conditions,
    /// What was done, each in several ways.
    pub(crate) cases: Vec<Case>,
}

/// What was the same for all of it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Conditions {
    /// When, and on what.
    #[serde(flatten)]
    pub(crate) machine: Machine,
    /// How long each answer of the store waits.
    pub(crate) first_byte_s: f64,
    /// Bytes a second of each answer.
    pub(crate) per_response_bytes_per_s: u64,
    /// How late first bytes were against that: the mean of the measurement in which it was most.
    pub(crate) first_byte_late_s: f64,
    /// How often each was measured.
    pub(crate) rounds: usize,
    /// Ranges, their length, and that of their object.
    pub(crate) ranges: usize,
    /// As above.
    pub(crate) range_bytes: u64,
    /// As above.
    pub(crate) object_bytes: u64,
    /// Small objects, and all their bytes.
    pub(crate) notes: usize,
    /// As above.
    pub(crate) notes_bytes: u64,
    /// The program that searched, and what for.
    pub(crate) program: String,
    /// As above.
    pub(crate) needle: String,
}

/// One thing that a program does, in several ways.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Case {
    /// What it is, in words.
    pub(crate) what: String,
    /// The ways; the first is the one without hints, with which others are compared.
    pub(crate) ways: Vec<Way>,
}

/// What a way does about the waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub(crate) enum Kind {
    /// Nothing: each read asks the store.
    #[default]
    Plain,
    /// What will be read is said before.
    Hinted,
    /// It was read before.
    Again,
}

/// One way to do it.
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Way {
    /// What it is called, in words.
    pub(crate) name: String,
    /// Its kind.
    pub(crate) kind: Kind,
    /// One for each round.
    pub(crate) samples: Vec<Sample>,
    /// That of the middle time.
    pub(crate) median: Sample,
    /// The shortest and the longest time.
    pub(crate) least_s: f64,
    /// As above.
    pub(crate) most_s: f64,
}

/// One round.
#[derive(Clone, Copy, Debug, Default, PartialEq, Serialize)]
pub(crate) struct Sample {
    /// Elapsed.
    pub(crate) elapsed_s: f64,
    /// What the store was asked for meanwhile.
    pub(crate) requests: u64,
    /// The most of them under way at once.
    pub(crate) in_flight_max: u64,
    /// Bytes of data that it sent.
    pub(crate) bytes_sent: u64,
    /// Whether what was read, or printed, was right.
    pub(crate) identical: bool,
}

impl Way {
    pub(crate) fn new(name: &str, kind: Kind) -> Self {
        Way { name: name.into(), kind, ..Way::default() }
    }

    /// Adds a round.
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
    /// The ways with how much less time each took than the first, as a share of that; none for the first itself.
    pub(crate) fn compared(&self) -> impl Iterator<Item = (&Way, Option<f64>)> {
        let plain_s = self.ways.first().map_or(f64::NAN, |way| way.median.elapsed_s);
        let saved = move |way: &Way| 1.0 - way.median.elapsed_s / plain_s;
        self.ways.iter().enumerate().map(move |(index, way)| (way, (index > 0).then(|| saved(way))))
    }

    /// The way with hints that was fastest, with what it saved.
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
