//! Each disk's busy time over time: a strip for each disk, without foretell above with foretell, on
//! one time axis.
//!
//! Timelines may have any number of bins; they are averaged into at most [`COLUMNS_MAX`] columns
//! and [`LEVELS`] levels. Runs of columns of one level are one stroke, and all strokes of one level
//! are one path, so that fifteen disks take some tens of kilobytes.

use super::select::Set;
use crate::demo::array::results::{Run, Timeline};
use crate::demo::page::markup::{counted, escape, seconds, tick_label, ticks, usable};

/// Columns of a strip; about two pixels each on a wide page.
const COLUMNS_MAX: usize = 480;
/// Columns of all strips of a figure; bounds the size of the page.
const CELLS_MAX: usize = 16_000;
/// Levels of busy; less than half a percent counts as idle.
const LEVELS: usize = 6;
const IDLE_BELOW: f64 = 0.005;
/// Least number of bins for a closer view of the beginning.
const CLOSE_BINS_MIN: f64 = 30.0;
/// The number of disks that is shown beside the largest: both strips are easy to follow.
const FEW_DISKS: usize = 4;

/// The section: the strips of `set` on few and on most disks, with their text.
pub(super) fn section(set: &Set<'_>) -> String {
    let chosen = chosen(set);
    if chosen.is_empty() {
        return String::new();
    }
    let mut figures: String = chosen.iter().copied().map(figure).collect();
    figures += &chosen.last().copied().and_then(beginning).unwrap_or_default();
    let levels: String =
        (1..=LEVELS).map(|level| format!("<i class=\"level{level}\"></i>")).collect();
    format!(
        "<section>\n<h2>Each disk’s busy time over time</h2>\n\
         <p>The set “{}”. Each row is a disk; the fuller its colour, the busier. Without \
         foretell the work wanders from disk to disk, one at a time; with foretell all disks work \
         at once.</p>\n\
         <p class=\"scale\">idle <i class=\"track\"></i>{levels} busy</p>\n{figures}</section>\n",
        escape(set.name),
    )
}

/// The run on most disks, and before it the one nearest to [`FEW_DISKS`] if that is another.
fn chosen<'a>(set: &Set<'a>) -> Vec<&'a Run> {
    let mut runs = set.by_disks();
    runs.retain(|run| drawable(&run.plain_timeline) && drawable(&run.hinted_timeline));
    let few = runs.iter().copied().min_by_key(|run| run.disks.abs_diff(FEW_DISKS));
    let most = runs.last().copied();
    let mut chosen: Vec<&Run> = few.into_iter().chain(most).collect();
    chosen.dedup_by_key(|run| run.disks);
    chosen
}

fn drawable(timeline: &Timeline) -> bool {
    let bins = timeline.busy_share.iter().any(|bins| !bins.is_empty());
    bins && timeline.bin_s.is_finite() && timeline.bin_s > 0.0
}

/// The mean number of busy disks while the program ran, if it is known.
pub(super) fn mean_busy(timeline: &Timeline, elapsed_s: f64) -> Option<f64> {
    if !drawable(timeline) {
        return None;
    }
    let bins: f64 = timeline.busy_share.iter().flatten().map(|&share| clean(share)).sum();
    usable(bins * timeline.bin_s / elapsed_s)
}

fn clean(share: f64) -> f64 {
    if share.is_finite() { share.clamp(0.0, 1.0) } else { 0.0 }
}

/// Both runs from beginning to end.
fn figure(run: &Run) -> String {
    let axis_s = [run.plain_s, run.hinted_s].into_iter().filter_map(usable).fold(0.0, f64::max);
    let axis_s = if axis_s > 0.0 { axis_s } else { extent_s(run) };
    figure_until(run, axis_s, "")
}

/// The beginning of both runs, as long as the hinted one: where reads can be told apart, if bins
/// are narrow enough for that.
fn beginning(run: &Run) -> Option<String> {
    let axis_s =
        usable(run.hinted_s).filter(|&axis_s| axis_s > 0.0 && axis_s < run.plain_s / 2.0)?;
    let widest_s = run.plain_timeline.bin_s.max(run.hinted_timeline.bin_s);
    let caption = format!(", the first {}", seconds(axis_s));
    (axis_s / widest_s >= CLOSE_BINS_MIN).then(|| figure_until(run, axis_s, &caption))
}

/// Both runs on an axis that is `axis_s` long.
fn figure_until(run: &Run, axis_s: f64, caption: &str) -> String {
    format!(
        "<figure class=\"busy\">\n<figcaption><b>{}{caption}</b></figcaption>\n{}{}{}</figure>\n",
        counted(run.disks as u64, "disk"),
        strips("plain", "Without foretell", &run.plain_timeline, run.plain_s, axis_s),
        strips("hinted", "With foretell", &run.hinted_timeline, run.hinted_s, axis_s),
        axis(axis_s),
    )
}

/// The time that the timelines cover; for runs whose elapsed time is unknown.
fn extent_s(run: &Run) -> f64 {
    let timelines = [&run.plain_timeline, &run.hinted_timeline];
    let extent = |timeline: &Timeline| {
        let bins = timeline.busy_share.iter().map(Vec::len).max().unwrap_or(0);
        bins as f64 * timeline.bin_s
    };
    timelines.map(extent).into_iter().filter_map(usable).fold(f64::MIN_POSITIVE, f64::max)
}

/// The strips of one run, on an axis that is `axis_s` long.
fn strips(class: &str, who: &str, timeline: &Timeline, elapsed_s: f64, axis_s: f64) -> String {
    let disks = timeline.busy_share.len();
    let pitch = if disks <= 8 { 18 } else { 13 };
    let height = disks * pitch;
    let columns = COLUMNS_MAX.min(CELLS_MAX / (2 * disks.max(1))).max(16);
    let end = usable(elapsed_s / axis_s).map_or(1.0, |share| share.min(1.0));
    let busy = mean_busy(timeline, elapsed_s)
        .map(|busy| format!(", {busy:.1} of {} busy on average", counted(disks as u64, "disk")))
        .unwrap_or_default();
    let names: String = (1..=disks).map(|disk| format!("<span>{disk}</span>")).collect();
    let done = if end < 0.6 {
        format!(
            "<span class=\"done\" style=\"left:{:.2}%\">done after {}</span>",
            end * 100.0,
            seconds(elapsed_s)
        )
    } else {
        String::new()
    };
    format!(
        "<p class=\"who\"><b class=\"{class}\">{who}</b> {}{busy}</p>\n\
         <div class=\"strips {class}\"><div class=\"disknames\" style=\"line-height:{pitch}px\">\
         {names}</div><div class=\"lanes\"><svg style=\"height:{height}px\" viewBox=\"0 0 \
         {columns} {height}\" preserveAspectRatio=\"none\" role=\"img\" aria-label=\"{who}: busy \
         time of {disks} disks over time\">\n{}{}</svg>{done}</div></div>\n",
        seconds(elapsed_s),
        tracks(disks, pitch, end * columns as f64),
        strokes(timeline, axis_s, columns, pitch),
    )
}

/// The ground under each disk's strip, as long as the run.
fn tracks(disks: usize, pitch: usize, width: f64) -> String {
    let path: String =
        (0..disks).map(|disk| format!("M0 {}h{width:.1}", middle(disk, pitch))).collect();
    format!("<path class=\"track\" stroke-width=\"{}\" d=\"{path}\"/>\n", pitch - 2)
}

/// The middle of a disk's strip.
fn middle(disk: usize, pitch: usize) -> f64 {
    (disk * pitch) as f64 + pitch as f64 / 2.0
}

/// One path for each level.
fn strokes(timeline: &Timeline, axis_s: f64, columns: usize, pitch: usize) -> String {
    let mut paths = vec![String::new(); LEVELS + 1];
    for (disk, bins) in timeline.busy_share.iter().enumerate() {
        let shares = resampled(bins, timeline.bin_s, axis_s, columns);
        let levels: Vec<usize> = shares.into_iter().map(level).collect();
        let mut begin = 0;
        for run in levels.chunk_by(|a, b| a == b) {
            if run[0] > 0 {
                paths[run[0]] += &format!("M{begin} {}h{}", middle(disk, pitch), run.len());
            }
            begin += run.len();
        }
    }
    let path = |(level, path): (usize, &String)| {
        format!("<path class=\"level{level}\" stroke-width=\"{}\" d=\"{path}\"/>\n", pitch - 2)
    };
    paths.iter().enumerate().skip(1).filter(|(_, path)| !path.is_empty()).map(path).collect()
}

/// The level that a share of busy is drawn in; 0 is idle.
fn level(share: f64) -> usize {
    if share < IDLE_BELOW {
        return 0;
    }
    ((share * LEVELS as f64).ceil() as usize).clamp(1, LEVELS)
}

/// The mean of `bins` over each of `columns` equal parts of the axis.
fn resampled(bins: &[f64], bin_s: f64, axis_s: f64, columns: usize) -> Vec<f64> {
    let mut means = vec![0.0; columns];
    // Columns in a bin.
    let width = bin_s / axis_s * columns as f64;
    if usable(width).is_none_or(|width| width <= 0.0) {
        return means;
    }
    for (index, &share) in bins.iter().enumerate().filter(|(_, share)| clean(**share) > 0.0) {
        let (from, to) = (index as f64 * width, (index + 1) as f64 * width);
        if from >= columns as f64 {
            break;
        }
        let last = (to.ceil() as usize).min(columns);
        for (column, mean) in means.iter_mut().enumerate().take(last).skip(from as usize) {
            let overlap = to.min((column + 1) as f64) - from.max(column as f64);
            *mean += clean(share) * overlap.clamp(0.0, 1.0);
        }
    }
    means
}

/// The axis that both runs share.
fn axis(axis_s: f64) -> String {
    let marks: String = ticks(axis_s, 6)
        .into_iter()
        .filter(|&tick| tick <= axis_s * 1.0001)
        .map(|tick| {
            let unit = if tick == 0.0 { "" } else { "\u{a0}s" };
            let left = (tick / axis_s * 100.0).min(100.0);
            format!("<span style=\"left:{left:.2}%\">{}{unit}</span>", tick_label(tick))
        })
        .collect();
    format!("<div class=\"time\">{marks}</div>\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn resampling_keeps_the_busy_time() {
        let bins = [1.0, 0.0, 0.5, 1.0, f64::NAN, 0.25];
        for columns in [3, 6, 7, 100] {
            let means = resampled(&bins, 0.5, 3.0, columns);
            let busy_s: f64 = means.iter().sum::<f64>() * 3.0 / columns as f64;
            assert!((busy_s - 2.75 * 0.5).abs() < 1e-9, "{columns} columns: {busy_s}");
            assert!(means.iter().all(|mean| (0.0..=1.0 + 1e-9).contains(mean)), "{means:?}");
        }
    }

    #[test]
    fn what_is_beyond_the_axis_is_left_out() {
        assert_eq!(resampled(&[1.0, 1.0, 1.0], 1.0, 2.0, 2), [1.0, 1.0]);
        assert_eq!(resampled(&[1.0], f64::NAN, 2.0, 2), [0.0, 0.0]);
        assert_eq!(resampled(&[1.0], 1.0, 0.0, 2), [0.0, 0.0]);
    }

    #[test]
    fn the_beginning_is_shown_closer_where_bins_are_narrow() {
        let timeline = |bin_s| Timeline { bin_s, busy_share: vec![vec![1.0; 100]] };
        let run = |bin_s| Run {
            plain_s: 10.0,
            hinted_s: 1.0,
            plain_timeline: timeline(bin_s),
            hinted_timeline: timeline(bin_s),
            ..Run::default()
        };
        assert!(beginning(&run(0.01)).is_some_and(|figure| figure.contains("the first 1.00")));
        assert!(beginning(&run(0.1)).is_none());
        assert!(beginning(&Run { hinted_s: f64::NAN, ..run(0.01) }).is_none());
    }

    #[test]
    fn equal_neighbours_are_one_stroke() {
        let timeline = Timeline { bin_s: 1.0, busy_share: vec![vec![1.0; 256], vec![0.0; 256]] };
        let svg = strokes(&timeline, 256.0, 256, 18);
        assert_eq!(svg.matches('M').count(), 1, "{svg}");
    }

    #[test]
    fn the_mean_is_over_the_run_not_over_the_bins() {
        let timeline = Timeline { bin_s: 1.0, busy_share: vec![vec![1.0, 0.0], vec![1.0, 0.0]] };
        assert_eq!(mean_busy(&timeline, 1.0), Some(2.0));
        assert_eq!(mean_busy(&timeline, 0.0), None);
        assert_eq!(mean_busy(&Timeline::default(), 1.0), None);
    }
}
