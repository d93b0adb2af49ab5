//! Escaping of text, and formatting of figures. Everything returned here is safe in HTML and SVG, in text and in quoted
//! attributes.

/// Shown for a figure that was not measured or is meaningless.
pub(in crate::demo) const NONE: &str = "–";

/// `text` with the special characters of HTML and SVG escaped, and without control characters, which neither may contain.
pub(in crate::demo) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            '\n' | '\t' => escaped.push(' '),
            other if other.is_control() => escaped.push('\u{fffd}'),
            other => escaped.push(other),
        }
    }
    escaped
}

/// A time as it can be drawn: finite and not negative.
pub(in crate::demo) fn usable(value: f64) -> Option<f64> {
    (value.is_finite() && value >= 0.0).then_some(value)
}

/// Seconds in about three digits, without the unit.
pub(in crate::demo) fn digits(value: f64) -> String {
    match usable(value) {
        None => NONE.into(),
        Some(value) if value < 9.995 => format!("{value:.2}"),
        Some(value) if value < 99.95 => format!("{value:.1}"),
        Some(value) => format!("{value:.0}"),
    }
}

/// Seconds in about three digits, with the unit.
pub(in crate::demo) fn seconds(value: f64) -> String {
    format!("{}\u{a0}s", digits(value))
}

/// A share in per cent, if it is finite, with a minus sign but no plus sign. Only a complete share is 100 %.
pub(in crate::demo) fn share(value: f64) -> Option<String> {
    if !value.is_finite() {
        return None;
    }
    let percent = value * 100.0;
    let places = usize::from((99.0..100.0).contains(&percent));
    let text = format!("{percent:.places$}").replace('-', "−");
    let text = if text == "−0" { "0".into() } else { text };
    Some(format!("{text}\u{a0}%"))
}

/// A ratio, if it is finite and not negative, as "1.06 ×".
pub(in crate::demo) fn times(value: f64) -> Option<String> {
    usable(value).map(|value| format!("{value:.2}\u{a0}×"))
}

/// A count, in groups of three digits from 10 000 on.
pub(in crate::demo) fn count(value: u64) -> String {
    let digits = value.to_string();
    if digits.len() < 5 {
        return digits;
    }
    let mut text = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push('\u{202f}');
        }
        text.push(digit);
    }
    text
}

/// "1 disk", "15 disks".
pub(in crate::demo) fn counted(value: u64, noun: &str) -> String {
    let plural = if value == 1 { "" } else { "s" };
    format!("{}\u{a0}{noun}{plural}", count(value))
}

/// Evenly spaced round values from 0 to at least `max`, about `wanted` of them above 0. If `max` is
/// 0, up to 1.
pub(in crate::demo) fn ticks(max: f64, wanted: usize) -> Vec<f64> {
    let max = usable(max).filter(|&max| max > 0.0).unwrap_or(1.0);
    let raw = max / wanted.max(1) as f64;
    let power = 10_f64.powf(raw.log10().floor());
    let step = [1.0, 2.0, 2.5, 5.0].into_iter().map(|factor| factor * power);
    let step = step.into_iter().find(|&step| step >= raw * 0.999).unwrap_or(10.0 * power);
    let steps = (max / step - 0.001).ceil().max(1.0) as usize;
    (0..=steps).map(|index| index as f64 * step).collect()
}

/// A tick's value without needless zeros.
pub(in crate::demo) fn tick_label(value: f64) -> String {
    let text = format!("{value:.3}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn figures_are_short() {
        assert_eq!(
            [0.456, 9.996, 15.94, 123.4, f64::NAN].map(digits),
            ["0.46", "10.0", "15.9", "123", "–"]
        );
        assert_eq!(share(0.926).as_deref(), Some("93\u{a0}%"));
        assert_eq!(share(-0.04).as_deref(), Some("−4\u{a0}%"));
        assert_eq!(share(-0.001).as_deref(), Some("0\u{a0}%"));
        assert_eq!(share(0.996).as_deref(), Some("99.6\u{a0}%"));
        assert_eq!(share(f64::NEG_INFINITY), None);
        assert_eq!(times(1.0 / 0.0), None);
        assert_eq!(
            [0, 9_999, 10_000, 1_234_567].map(count),
            ["0", "9999", "10\u{202f}000", "1\u{202f}234\u{202f}567"]
        );
    }

    #[test]
    fn ticks_are_round_and_cover_the_data() {
        assert_eq!(ticks(20.9, 4), [0.0, 10.0, 20.0, 30.0]);
        assert_eq!(ticks(0.46, 4), [0.0, 0.2, 0.4, 0.6000000000000001]);
        assert_eq!(ticks(f64::NAN, 4).last(), Some(&1.0));
        for max in [1e-9, 0.07, 1.0, 3.3, 99.0, 1e12] {
            let ticks = ticks(max, 4);
            assert!(
                ticks.len() <= 6 && ticks.last().is_some_and(|&last| last >= max * 0.99),
                "{ticks:?}"
            );
        }
        assert_eq!([0.0, 2.5, 0.6000000000000001, 20.0].map(tick_label), ["0", "2.5", "0.6", "20"]);
    }
}
