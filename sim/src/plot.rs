//! Line charts as self-contained SVG.
//!
//! Panels are stacked and share the horizontal axis. Scales are linear or logarithmic; linear vertical scales
//! begin at 0. Each line is named at its end, as near as the neighbouring names allow. Lines also differ in
//! their markers, for readers who cannot distinguish the colours.

use std::fmt::Write as _;

/// Layout of the page in pixels: least width, edges of the panels, and gaps.
const WIDTH_MIN: f64 = 940.0;
const LEFT: f64 = 84.0;
const RIGHT: f64 = 700.0;
const HEAD: f64 = 98.0;
const GAP: f64 = 56.0;
const FOOT: f64 = 58.0;
/// Least distance between two names, in pixels.
const NAME_STEP: f64 = 22.0;
/// Approximate width of a digit, in pixels.
const DIGIT_WIDTH: f64 = 9.0;
/// Approximate widths of a character of text, and of the title, in pixels.
const CHARACTER_WIDTH: f64 = 8.0;
const TITLE_CHARACTER_WIDTH: f64 = 11.0;
/// Pixels left of the title and right of names, and from the panels to the names.
const MARGIN: f64 = 20.0;
const LEAD: f64 = 40.0;

/// The colours of Okabe and Ito (2008) without yellow, which people with any colour vision can distinguish.
const COLOURS: [&str; 6] = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"];
const INK: &str = "#222222";
const GRID: &str = "#dddddd";
const GREY: &str = "#777777";

/// How a line is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Look {
    /// With its own colour and markers.
    Own,
    /// In the colour of the text, with the first markers.
    Ink,
    /// Grey, dashed and without markers, for comparison.
    Reference,
}

/// A line. On logarithmic scales, all its values must be positive.
#[derive(Clone, Debug, PartialEq)]
pub struct Line {
    /// Its name.
    pub name: String,
    /// Positions, ascending, and values.
    pub points: Vec<(f64, f64)>,
    /// How it is drawn.
    pub look: Look,
}

/// How values map to positions on an axis.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Axis {
    /// Equal differences have equal lengths.
    Linear,
    /// Equal ratios have equal lengths.
    Logarithmic,
}

/// One coordinate system.
#[derive(Clone, Debug, PartialEq)]
pub struct Panel {
    /// Title of the vertical axis, with its unit.
    pub title: String,
    /// Height in pixels.
    pub height: f64,
    /// At least one has a point.
    pub lines: Vec<Line>,
}

/// A page.
#[derive(Clone, Debug, PartialEq)]
pub struct Plot {
    /// Title of the page.
    pub title: String,
    /// Text below the title.
    pub subtitle: String,
    /// Title of the horizontal axis.
    pub x_title: String,
    /// Scale of the horizontal axis.
    pub x_axis: Axis,
    /// Scale of the vertical axes.
    pub y_axis: Axis,
    /// Panels from top to bottom.
    pub panels: Vec<Panel>,
}

/// Maps values to pixels.
#[derive(Clone, Copy, Debug)]
struct Scale {
    axis: Axis,
    values: (f64, f64),
    pixels: (f64, f64),
}

impl Scale {
    fn at(&self, value: f64) -> f64 {
        let (from, to) = self.values;
        let part = match self.axis {
            Axis::Linear => (value - from) / (to - from),
            Axis::Logarithmic => (value / from).ln() / (to / from).ln(),
        };
        self.pixels.0 + part * (self.pixels.1 - self.pixels.0)
    }
}

/// Ticks at steps of 1, 2 or 5 times a power of ten, from 0 (or below, for negative values) to at least `most`;
/// at most ten.
fn linear_ticks(least: f64, most: f64) -> Vec<f64> {
    let least = least.min(0.0);
    let range = if most > least { most - least } else { 1.0 };
    let power = 10f64.powf((range / 10.0).log10().floor());
    let steps = [1.0, 2.0, 5.0, 10.0, 20.0].map(|digit| digit * power);
    let step = steps.into_iter().find(|step| range / step <= 8.0).unwrap_or(steps[4]);
    let (first, last) = ((least / step).floor() as i64, ((least + range) / step).ceil() as i64);
    (first..=last).map(|number| number as f64 * step).collect()
}

/// Ticks at 1, 2 and 5 times powers of ten, which enclose `least` and `most`.
fn logarithmic_ticks(least: f64, most: f64) -> Vec<f64> {
    let powers = least.log10().floor() as i32..=most.log10().ceil() as i32;
    let all = powers.flat_map(|power| [1.0, 2.0, 5.0].map(|digit| digit * 10f64.powi(power)));
    let all: Vec<f64> = all.collect();
    let first = all.iter().rposition(|&tick| tick <= least).unwrap_or(0);
    let last = all.iter().position(|&tick| tick >= most).unwrap_or(all.len() - 1);
    all[first..=last.max(first + 1)].to_vec()
}

fn grouped(value: f64) -> String {
    if value.fract() != 0.0 || value < 0.0 {
        let text = format!("{value:.3}");
        return text.trim_end_matches('0').trim_end_matches('.').to_owned();
    }
    let digits = format!("{value:.0}");
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// The marker at each point of line `number`.
fn marker(number: usize, x: f64, y: f64, colour: &str) -> String {
    let paint = format!(r##"fill="{colour}" stroke="#ffffff" stroke-width="1""##);
    match number % 4 {
        0 => format!(r#"<circle cx="{x:.1}" cy="{y:.1}" r="5" {paint}/>"#),
        1 => {
            let (left, top) = (x - 4.5, y - 4.5);
            format!(r#"<rect x="{left:.1}" y="{top:.1}" width="9" height="9" {paint}/>"#)
        }
        2 => format!(r#"<path d="M{x:.1} {y:.1}m0 -6l5.5 10h-11z" {paint}/>"#),
        _ => format!(r#"<path d="M{x:.1} {y:.1}m0 -6.5l6 6.5l-6 6.5l-6 -6.5z" {paint}/>"#),
    }
}

/// Vertical positions of the names of lines that end at `ends`: in the same order, without overlap, and between
/// `top` and `bottom` if all have room.
fn spread(ends: &[f64], top: f64, bottom: f64) -> Vec<f64> {
    let mut order: Vec<usize> = (0..ends.len()).collect();
    order.sort_by(|&a, &b| ends[a].total_cmp(&ends[b]));
    let mut places = ends.to_vec();
    let mut free = top;
    for &line in &order {
        places[line] = places[line].max(free);
        free = places[line] + NAME_STEP;
    }
    let mut free = bottom;
    for &line in order.iter().rev() {
        places[line] = places[line].min(free);
        free = places[line] - NAME_STEP;
    }
    places
}

impl Plot {
    /// The width that the longest text needs.
    fn width(&self) -> f64 {
        let of = |text: &str, each: f64| text.chars().count() as f64 * each + MARGIN;
        let names = self.panels.iter().flat_map(|panel| &panel.lines);
        let names = names.map(|line| RIGHT + LEAD + of(&line.name, CHARACTER_WIDTH));
        let head = [
            MARGIN + of(&self.title, TITLE_CHARACTER_WIDTH),
            MARGIN + of(&self.subtitle, CHARACTER_WIDTH),
        ];
        names.chain(head).fold(WIDTH_MIN, f64::max)
    }

    /// The page as the text of an SVG file.
    pub fn svg(&self) -> String {
        let panels: f64 = self.panels.iter().map(|panel| panel.height + GAP).sum();
        let height = HEAD + panels - GAP + FOOT;
        let width = self.width();
        let mut svg = format!(
            r##"<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" width="{width}" height="{height}" font-family="system-ui, 'DejaVu Sans', Arial, sans-serif" font-size="14" fill="{INK}" role="img">
<title>{title}</title>
<rect width="{width}" height="{height}" fill="#ffffff"/>
<text x="{MARGIN}" y="30" font-size="19" font-weight="600">{title}</text>
<text x="{MARGIN}" y="52" fill="#555555">{subtitle}</text>
"##,
            title = escaped(&self.title),
            subtitle = escaped(&self.subtitle),
        );
        let points = || self.panels.iter().flat_map(|panel| &panel.lines).flat_map(|l| &l.points);
        let sizes = points().fold((f64::MAX, f64::MIN), |(least, most), &(size, _)| {
            (least.min(size), most.max(size))
        });
        let (least, most) = if sizes.0 < sizes.1 { sizes } else { (sizes.1, sizes.1 * 10.0 + 1.0) };
        let x =
            Scale { axis: self.x_axis, values: (least, most), pixels: (LEFT + 14.0, RIGHT - 14.0) };
        let mut top = HEAD;
        for panel in &self.panels {
            panel.draw(&mut svg, (x, self.y_axis), top);
            top += panel.height + GAP;
        }
        let (middle, y) = ((LEFT + RIGHT) / 2.0, height - 14.0);
        let title = escaped(&self.x_title);
        let _ = writeln!(svg, r#"<text x="{middle}" y="{y}" text-anchor="middle">{title}</text>"#);
        svg.push_str("</svg>\n");
        svg
    }
}

impl Panel {
    fn draw(&self, svg: &mut String, (x, axis): (Scale, Axis), top: f64) {
        let costs = self.lines.iter().flat_map(|line| &line.points).map(|&(_, cost)| cost);
        let (least, most) = costs
            .fold((f64::MAX, f64::MIN), |(least, most), cost| (least.min(cost), most.max(cost)));
        let ticks = match axis {
            Axis::Linear => linear_ticks(least, most),
            Axis::Logarithmic => logarithmic_ticks(least, most),
        };
        let bottom = top + self.height;
        let y = Scale { axis, values: (ticks[0], ticks[ticks.len() - 1]), pixels: (bottom, top) };
        self.draw_axes(svg, (x, y), &ticks);
        let end = |line: &Line| line.points.last().map_or(top, |&(_, cost)| y.at(cost));
        let ends: Vec<f64> = self.lines.iter().map(end).collect();
        let names = spread(&ends, top, bottom);
        for (number, line) in self.lines.iter().enumerate() {
            draw_line(svg, (x, y), (number, line), names[number]);
        }
    }

    fn draw_axes(&self, svg: &mut String, (x, y): (Scale, Scale), ticks: &[f64]) {
        let (bottom, top) = y.pixels;
        for &tick in ticks {
            let (at, text) = (y.at(tick), grouped(tick));
            let (label_x, label_y) = (LEFT - 8.0, at + 5.0);
            let _ = writeln!(
                svg,
                r#"<path d="M{LEFT} {at:.1}H{RIGHT}" stroke="{GRID}"/><text x="{label_x}" y="{label_y:.1}" text-anchor="end">{text}</text>"#
            );
        }
        let mut sizes: Vec<f64> =
            self.lines.iter().flat_map(|line| &line.points).map(|&(size, _)| size).collect();
        sizes.sort_by(f64::total_cmp);
        sizes.dedup();
        let mut free = f64::MIN;
        for size in sizes {
            let (at, text, label_y) = (x.at(size), grouped(size), bottom + 20.0);
            let _ = write!(svg, r#"<path d="M{at:.1} {top}V{bottom}" stroke="{GRID}"/>"#);
            let half = text.len() as f64 * DIGIT_WIDTH / 2.0;
            // Labels that would touch the one before are left out.
            if at - half >= free {
                free = at + half + DIGIT_WIDTH / 2.0;
                let _ = write!(
                    svg,
                    r#"<text x="{at:.1}" y="{label_y}" text-anchor="middle">{text}</text>"#
                );
            }
            svg.push('\n');
        }
        let (title, title_y) = (escaped(&self.title), top - 10.0);
        let _ = writeln!(
            svg,
            r#"<path d="M{LEFT} {top}V{bottom}H{RIGHT}" fill="none" stroke="{GREY}"/><text x="20" y="{title_y}">{title}</text>"#
        );
    }
}

fn draw_line(
    svg: &mut String,
    (x, y): (Scale, Scale),
    (number, line): (usize, &Line),
    name_y: f64,
) {
    let Some(&(last_size, last_cost)) = line.points.last() else { return };
    let (colour, dashes) = match line.look {
        Look::Own => (COLOURS[number % COLOURS.len()], ""),
        Look::Ink => (INK, ""),
        Look::Reference => (GREY, r#" stroke-dasharray="7 5""#),
    };
    let place = |&(size, cost): &(f64, f64)| format!("{:.1},{:.1}", x.at(size), y.at(cost));
    let places: Vec<String> = line.points.iter().map(place).collect();
    let places = places.join(" ");
    let (end_x, end_y) = (x.at(last_size), y.at(last_cost));
    // A thin line leads from the line's end to a sample of it beside its name.
    let (lead_x, sample_x, text_x, text_y) =
        (RIGHT + 8.0, RIGHT + 32.0, RIGHT + LEAD, name_y + 5.0);
    let name = escaped(&line.name);
    let _ = writeln!(
        svg,
        r#"<path d="M{end_x:.1} {end_y:.1}L{lead_x} {name_y:.1}" stroke="{colour}" stroke-width="0.8" opacity="0.6"/><path d="M{lead_x} {name_y:.1}H{sample_x}" stroke="{colour}" stroke-width="2.5"{dashes}/><polyline points="{places}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-linejoin="round"{dashes}/><text x="{text_x}" y="{text_y:.1}">{name}</text>"#
    );
    if line.look != Look::Reference {
        for &(size, cost) in &line.points {
            let _ = writeln!(svg, "{}", marker(number, x.at(size), y.at(cost), colour));
        }
        let middle = (lead_x + sample_x) / 2.0;
        let _ = writeln!(svg, "{}", marker(number, middle, name_y, colour));
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_enclose_what_they_are_for() {
        assert_eq!(logarithmic_ticks(130.0, 900.0), [100.0, 200.0, 500.0, 1000.0]);
        assert_eq!(logarithmic_ticks(200.0, 200.0), [200.0, 500.0]);
        assert_eq!(linear_ticks(3.0, 11.0), [0.0, 2.0, 4.0, 6.0, 8.0, 10.0, 12.0]);
        assert_eq!(linear_ticks(0.2, 0.9).len(), 6);
        assert_eq!(linear_ticks(-3.0, 4.0)[0], -3.0);
        assert!(linear_ticks(0.0, 0.0).len() > 1);
    }

    #[test]
    fn names_stay_apart_and_in_order() {
        let places = spread(&[50.0, 48.0, 200.0, 52.0], 10.0, 200.0);
        let order = [1, 0, 3, 2].map(|line: usize| places[line]);
        assert!(order.windows(2).all(|pair| pair[1] - pair[0] >= NAME_STEP), "{places:?}");
        assert!(order[3] <= 200.0);
    }

    #[test]
    fn long_names_and_titles_have_room() {
        let width = |title: &str, name: &str| {
            let mut plot = plot_of(Axis::Linear, vec![(1.0, 1.0), (2.0, 2.0)]);
            plot.title = title.into();
            plot.panels[0].lines[0].name = name.into();
            plot.width()
        };
        assert_eq!(width("t", "n"), WIDTH_MIN);
        assert!(width("t", &"n".repeat(40)) >= RIGHT + LEAD + 40.0 * 7.5);
        assert!(width(&"t".repeat(100), "n") >= 1100.0);
    }

    #[test]
    fn a_line_of_one_point_is_drawn() {
        one_point(Axis::Linear);
        one_point(Axis::Logarithmic);
    }

    #[test]
    fn sizes_close_together_are_not_written_over_one_another() {
        let points = [1.0, 2.0, 4.0, 64.0].map(|size| (size, 7.5)).to_vec();
        let svg = plot_of(Axis::Linear, points).svg();
        let is_labelled = |size: &str| svg.contains(&format!(r#"anchor="middle">{size}</text>"#));
        assert_eq!(["1", "2", "4", "64"].map(is_labelled), [true, false, true, true], "{svg}");
    }

    fn one_point(axis: Axis) {
        let svg = plot_of(axis, vec![(1000.0, 5.0)]).svg();
        assert!(svg.contains("a &lt; b") && !svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        assert_eq!(svg.matches("<text").count(), svg.matches("</text>").count());
    }

    fn plot_of(axis: Axis, points: Vec<(f64, f64)>) -> Plot {
        let line = Line { name: "a < b".into(), points, look: Look::Own };
        let panel = Panel { title: "ns".into(), height: 200.0, lines: vec![line] };
        Plot {
            title: "t".into(),
            subtitle: "s".into(),
            x_title: "x".into(),
            x_axis: axis,
            y_axis: axis,
            panels: vec![panel],
        }
    }
}
