//! The plot of a sweep: elapsed seconds over the disks or the cache, a line for each combination of the rest.

use std::collections::BTreeSet;

use foretell_sim::plot::{Axis, Line, Look, Panel, Plot};

/// What a plot of one value on its axis is refused with.
pub(super) const NOTHING_TO_PLOT: &str =
    "--plot: give --disks or --cache several values, with commas between";

/// One run of the sweep.
pub(super) struct Point {
    pub(super) disks: usize,
    pub(super) cache_bytes: u64,
    /// Policy, hints, disk: what of it differs between runs names the line.
    pub(super) names: [String; 3],
    pub(super) elapsed_s: f64,
}

/// The plot of `points`, about the recording `title`.
pub(super) fn svg(points: &[Point], title: &str) -> String {
    let disks: BTreeSet<usize> = points.iter().map(|point| point.disks).collect();
    let caches: BTreeSet<u64> = points.iter().map(|point| point.cache_bytes).collect();
    let over_disks = disks.len() > 1;
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut lines: Vec<Line> = Vec::new();
    for point in points {
        let differs =
            |at: &usize| points.iter().any(|other| other.names[*at] != points[0].names[*at]);
        let mut name: Vec<String> =
            (0..3).filter(differs).map(|at| point.names[at].clone()).collect();
        if over_disks && caches.len() > 1 {
            name.push(crate::size::display(point.cache_bytes));
        }
        let name = if name.is_empty() { point.names[0].clone() } else { name.join(", ") };
        let x = if over_disks { point.disks as f64 } else { mib(point.cache_bytes) };
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push((x, point.elapsed_s)),
            None => {
                lines.push(Line { name, points: vec![(x, point.elapsed_s)], look: Look::Own });
            }
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|one, other| one.0.total_cmp(&other.0)));
    let plot = Plot {
        title: format!("{title}, run again"),
        subtitle: "Predicted by simulation.".into(),
        x_title: if over_disks { "disks" } else { "cache, MiB" }.into(),
        axis: Axis::Linear,
        panels: vec![Panel { title: "elapsed, s".into(), height: 320.0, lines }],
    };
    plot.svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(disks: usize, mib: u64, policy: &str, elapsed_s: f64) -> Point {
        let names = [policy, "none", "hp97560"].map(str::to_owned);
        Point { disks, cache_bytes: mib << 20, names, elapsed_s }
    }

    #[test]
    fn what_differs_names_the_lines() {
        let points = [
            point(2, 1, "lru", 3.0),
            point(1, 1, "lru", 5.0),
            point(2, 8, "lru", 2.0),
            point(1, 8, "lru", 4.0),
        ];
        let svg = svg(&points, "t");
        assert!(svg.contains(">1 MiB<") && svg.contains(">8 MiB<"), "{svg}");
        assert!(!svg.contains("lru"), "{svg}");
        assert!(svg.contains("disks"));
        let caches = [point(1, 1, "lru", 3.0), point(1, 8, "tip2", 2.0)];
        let svg = super::svg(&caches, "t");
        assert!(svg.contains("cache, MiB") && svg.contains("tip2"), "{svg}");
    }
}
