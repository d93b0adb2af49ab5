//! Parsing of durations: `30ms`, `1.5s`.

use std::time::Duration;

/// Parses `30ms`, `1.5s`, `250us`, `2min`.
///
/// # Errors
/// Says what is wrong with the text.
pub(crate) fn parse(text: &str) -> Result<Duration, String> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    if number.is_empty() {
        return Err("not a duration such as 30s or 5min".into());
    }
    let factor = match unit.trim() {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "min" => 60.0,
        "" if number.parse() == Ok(0.0) => 0.0,
        "" => return Err("the unit is missing, as in 30ms".into()),
        other => {
            return Err(format!("unknown unit {other:?} (known: us ms s min), as in 30s or 5min"));
        }
    };
    let number: f64 = number.parse().map_err(|_| "not a duration such as 30ms".to_owned())?;
    Duration::try_from_secs_f64(number * factor).map_err(|_| "too long".into())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn durations_are_read() {
        for (text, micros) in [("30ms", 30_000), ("1.5s", 1_500_000), ("250us", 250), ("0", 0)] {
            assert_eq!(parse(text), Ok(Duration::from_micros(micros)), "{text}");
        }
        for text in ["", "30", "ms", "-1ms", "1h", "1e3ms", "99999999999999999999999min"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
