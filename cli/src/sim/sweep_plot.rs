//! The plot of a sweep: elapsed seconds over the number of disks or the cache size, one line for each combination of the
//! other options.

use std::collections::BTreeSet;
use std::path::Path;

use foretell_sim::plot::{Axis, Line, Look, Panel, Plot};

/// The error for a plot whose axis would have a single value.
pub(super) const NOTHING_TO_PLOT: &str =
    "--plot: give --disks or --cache several values, with commas between";

/// One run of the sweep.
pub(super) struct Point {
    pub(super) disks: usize,
    pub(super) cache_bytes: u64,
    /// Policy, hints, disk. Those that differ between runs name the line.
    pub(super) names: [String; 3],
    pub(super) elapsed_s: f64,
}

/// Most lines in a plot; more cannot be told apart.
const LINES_MAX: usize = 12;
/// An axis is logarithmic if its largest value is more than so many times its smallest.
const CACHE_RANGE_MAX: f64 = 4.0;
const DISKS_RANGE_MAX: f64 = 16.0;

/// The runs of a sweep, and the distinct values on the two possible axes.
struct Sweep<'a> {
    points: &'a [Point],
    disks: BTreeSet<usize>,
    caches: BTreeSet<u64>,
}

impl<'a> Sweep<'a> {
    fn new(points: &'a [Point]) -> Self {
        let disks = points.iter().map(|point| point.disks).collect();
        let caches = points.iter().map(|point| point.cache_bytes).collect();
        Sweep { points, disks, caches }
    }

    fn is_over_disks(&self) -> bool {
        self.disks.len() > 1
    }

    /// Whether the lines differ in policy, hints, disk, and cache.
    fn differ(&self) -> [bool; 4] {
        let differs =
            |at: usize| self.points.iter().any(|one| one.names[at] != self.points[0].names[at]);
        let has_caches = self.is_over_disks() && self.caches.len() > 1;
        [differs(0), differs(1), differs(2), has_caches]
    }

    /// A disk's name in the plot: its file name, unless another disk has the same.
    fn disk(&self, name: &str) -> String {
        let base = |name: &str| {
            let base = Path::new(name).file_name();
            base.map_or(name.to_owned(), |base| base.to_string_lossy().into_owned())
        };
        let short = base(name);
        let other = |point: &Point| point.names[2] != name && base(&point.names[2]) == short;
        if self.points.iter().any(other) { name.to_owned() } else { short }
    }

    fn line(&self, point: &Point) -> String {
        let [policy, hints, disk] = &point.names;
        let cache = crate::size::display(point.cache_bytes);
        let parts = [policy.clone(), hints.clone(), self.disk(disk), cache];
        let parts = parts.into_iter().zip(self.differ());
        let parts: Vec<String> = parts.filter_map(|(name, is)| is.then_some(name)).collect();
        if parts.is_empty() { policy.clone() } else { parts.join(", ") }
    }

    /// The values that all lines share.
    fn conditions(&self, layout: &str) -> String {
        let first = &self.points[0];
        let [policy, hints, disk] = &first.names;
        let disk = self.disk(disk);
        let disk = if self.is_over_disks() { disk } else { format!("{} x {disk}", first.disks) };
        let cache = (self.caches.len() == 1).then(|| crate::size::display(first.cache_bytes));
        let [policies, hintings, disks, _] = self.differ();
        let parts = [
            (!policies).then(|| policy.clone()),
            (!hintings).then(|| hints.clone()),
            (!disks).then_some(disk),
            (disks && !self.is_over_disks()).then(|| format!("{} disks", first.disks)),
            cache.map(|cache| format!("cache of {cache}")),
            Some(format!("{layout} layout")),
        ];
        parts.into_iter().flatten().collect::<Vec<_>>().join(", ")
    }
}

/// Refuses a plot of `points` with more than [`LINES_MAX`] lines.
///
/// # Errors
/// Says which options to give fewer values.
pub(super) fn check(points: &[Point]) -> Result<(), String> {
    let sweep = Sweep::new(points);
    let lines: BTreeSet<String> = points.iter().map(|point| sweep.line(point)).collect();
    if lines.len() <= LINES_MAX {
        return Ok(());
    }
    let options = ["--policy", "--hints", "--disk", "--cache"].into_iter().zip(sweep.differ());
    let several: Vec<&str> = options.filter_map(|(option, is)| is.then_some(option)).collect();
    Err(format!(
        "--plot: {} lines are more than the {LINES_MAX} that can be told apart; give fewer values of {}",
        lines.len(),
        several.join(" or "),
    ))
}

/// The plot of `points` as SVG; `title` names the recording.
pub(super) fn svg(points: &[Point], title: &str, layout: &str) -> String {
    let sweep = Sweep::new(points);
    let over_disks = sweep.is_over_disks();
    let mib = |bytes: u64| bytes as f64 / f64::from(1 << 20);
    let mut lines: Vec<Line> = Vec::new();
    for point in points {
        let name = sweep.line(point);
        let x = if over_disks { point.disks as f64 } else { mib(point.cache_bytes) };
        match lines.iter_mut().find(|line| line.name == name) {
            Some(line) => line.points.push((x, point.elapsed_s)),
            None => {
                lines.push(Line { name, points: vec![(x, point.elapsed_s)], look: Look::Own });
            }
        }
    }
    lines.iter_mut().for_each(|line| line.points.sort_by(|one, other| one.0.total_cmp(&other.0)));
    let values = lines.iter().flat_map(|line| &line.points).map(|&(x, _)| x);
    let (least, most) =
        values.fold((f64::MAX, f64::MIN), |(least, most), x| (least.min(x), most.max(x)));
    let is_wide = most / least > if over_disks { DISKS_RANGE_MAX } else { CACHE_RANGE_MAX };
    let plot = Plot {
        title: format!("{title}, run again"),
        subtitle: format!("Predicted by simulation: {}.", sweep.conditions(layout)),
        x_title: if over_disks { "disks" } else { "cache, MiB" }.into(),
        x_axis: if is_wide { Axis::Logarithmic } else { Axis::Linear },
        y_axis: Axis::Linear,
        panels: vec![Panel { title: "elapsed, s".into(), height: 320.0, lines }],
    };
    plot.svg()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn point(disks: usize, mib: u64, policy: &str, elapsed_s: f64) -> Point {
        let names = [policy, "hints none", "hp97560"].map(str::to_owned);
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
        let svg = svg(&points, "t", "aged");
        assert!(svg.contains(">1 MiB<") && svg.contains(">8 MiB<"), "{svg}");
        assert!(svg.contains("simulation: lru, hints none, hp97560, aged layout."), "{svg}");
        assert!(svg.contains("disks"));
        let caches = [point(1, 1, "lru", 3.0), point(1, 8, "tip2", 2.0)];
        let svg = super::svg(&caches, "t", "aged");
        assert!(svg.contains("cache, MiB") && svg.contains("tip2"), "{svg}");
    }

    #[test]
    fn caches_far_apart_are_shown_by_their_ratios() {
        let middle = |mib: [u64; 3]| {
            let svg = svg(&mib.map(|mib| point(1, mib, "lru", 1.0)), "t", "aged");
            let text = format!(">{}</text>", mib[1]);
            let line = svg.lines().find(|line| line.contains(&text)).expect("a label").to_owned();
            line["<path d=\"M".len()..].split(' ').next().and_then(|x| x.parse::<f64>().ok())
        };
        assert_eq!(middle([10, 100, 1000]), Some((98.0 + 686.0) / 2.0));
        assert_eq!(middle([10, 20, 30]), Some((98.0 + 686.0) / 2.0));
        let labels = |disks: [usize; 4]| {
            let svg = svg(&disks.map(|disks| point(disks, 1, "lru", 1.0)), "t", "aged");
            disks.map(|disks| svg.contains(&format!(">{disks}</text>")))
        };
        assert_eq!(labels([1, 2, 4, 256]), [true; 4]);
    }

    #[test]
    fn disks_have_short_names_and_lines_an_end() {
        let named = |disk: &str, policy: &str, disks: usize| {
            let names = [policy, "hints none", disk].map(str::to_owned);
            Point { disks, cache_bytes: 1 << 20, names, elapsed_s: 1.0 }
        };
        let points = [named("/a/b.toml", "lru", 1), named("/a/c.toml", "lru", 2)];
        let text = svg(&points, "t", "aged");
        assert!(text.contains(">b.toml<") && text.contains(">c.toml<"), "{text}");
        let points = [named("/a/b", "lru", 1), named("/c/b", "lru", 2)];
        let text = svg(&points, "t", "aged");
        assert!(text.contains(">/a/b<") && text.contains(">/c/b<"), "{text}");
        let points: Vec<Point> = (0..13).map(|i| named("a", &i.to_string(), 1)).collect();
        assert_eq!(check(&points[..12]), Ok(()));
        let error = check(&points).expect_err("too many");
        assert!(error.ends_with("give fewer values of --policy"), "{error}");
    }
}
