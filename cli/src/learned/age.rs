//! Ages: `30d`, `12h`, and as people read them.

use std::time::Duration;

use crate::duration;

const MINUTE_S: u64 = 60;
const HOUR_S: u64 = 60 * MINUTE_S;
const DAY_S: u64 = 24 * HOUR_S;

/// Parses `30d`, `2w`, `12h`, or a shorter duration.
pub(super) fn parse(text: &str) -> Result<Duration, String> {
    let units = [("d", DAY_S), ("w", 7 * DAY_S), ("h", HOUR_S)];
    let long = units.iter().find_map(|(unit, seconds)| {
        let number: f64 = text.strip_suffix(unit)?.trim().parse().ok()?;
        Some(number * *seconds as f64)
    });
    match long {
        Some(seconds) => {
            Duration::try_from_secs_f64(seconds).map_err(|_| "not an age such as 30d".to_owned())
        }
        None => duration::parse(text).map_err(|_| "not an age such as 30d, 12h or 5min".to_owned()),
    }
}

/// How long ago `seconds` are, in one unit.
pub(super) fn display(seconds: u64) -> String {
    match seconds {
        0..MINUTE_S => "just now".to_owned(),
        MINUTE_S..HOUR_S => format!("{} min ago", seconds / MINUTE_S),
        HOUR_S..DAY_S => format!("{} h ago", seconds / HOUR_S),
        _ => format!("{} d ago", seconds / DAY_S),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ages_are_read() {
        for (text, seconds) in
            [("30d", 30 * DAY_S), ("2w", 14 * DAY_S), ("12h", 12 * HOUR_S), ("5min", 300), ("0", 0)]
        {
            assert_eq!(parse(text), Ok(Duration::from_secs(seconds)), "{text}");
        }
        for text in ["", "d", "30", "-1d", "NaNd", "infd", "1e300w", "30 days", "1y"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn ages_are_shown() {
        let shown = [0, 59, 60, 3599, 3600, 86_399, 86_400, 864_000].map(display);
        let is = ["just now", "just now", "1 min ago", "59 min ago", "1 h ago", "23 h ago"];
        assert_eq!(
            (&shown[..6], &*shown[6], &*shown[7]),
            (&is.map(String::from)[..], "1 d ago", "10 d ago")
        );
    }
}
