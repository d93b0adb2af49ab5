//! Parsing and display of sizes: `256MiB`, `64k`, `4096`.

/// Parses a number of bytes with an optional unit. `K`, `M`, `G`, `T` and their `iB` forms are powers of 1,024; `kB`, `MB`,
/// `GB`, `TB` powers of 1,000.
///
/// # Errors
/// In words: no number, an unknown unit, or more than 2⁶⁴ bytes.
pub fn parse(text: &str) -> Result<u64, String> {
    let digits_end = text.find(|c: char| !c.is_ascii_digit() && c != '.').unwrap_or(text.len());
    let (number, unit) = text.split_at(digits_end);
    let not_a_size = || "not a size such as 256MiB".to_owned();
    if number.is_empty() {
        return Err(not_a_size());
    }
    let factor: u64 = match unit.trim() {
        "" | "B" => 1,
        "k" | "K" | "KiB" => 1 << 10,
        "M" | "MiB" => 1 << 20,
        "G" | "GiB" => 1 << 30,
        "T" | "TiB" => 1 << 40,
        "kB" | "KB" => 1_000,
        "MB" => 1_000_000,
        "GB" => 1_000_000_000,
        "TB" => 1_000_000_000_000,
        other => {
            return Err(format!("unknown unit {other:?} (known: KiB MiB GiB TiB kB MB GB TB)"));
        }
    };
    if let Ok(whole) = number.parse::<u64>() {
        return whole.checked_mul(factor).ok_or_else(|| "too large".into());
    }
    let number: f64 = number.parse().map_err(|_| not_a_size())?;
    let bytes = number * factor as f64;
    if bytes < u64::MAX as f64 { Ok(bytes as u64) } else { Err("too large".into()) }
}

/// `bytes` with a binary unit and at most three digits before the point.
pub fn display(bytes: u64) -> String {
    const UNITS: [&str; 5] = ["B", "KiB", "MiB", "GiB", "TiB"];
    let mut value = bytes as f64;
    let mut unit = 0;
    while value >= 1000.0 && unit + 1 < UNITS.len() {
        value /= 1024.0;
        unit += 1;
    }
    if unit == 0 || value >= 100.0 || value.fract() == 0.0 {
        format!("{value:.0} {}", UNITS[unit])
    } else {
        format!("{value:.1} {}", UNITS[unit])
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read() {
        let table = [
            ("4096", 4096),
            ("64KiB", 65536),
            ("64k", 65536),
            ("1.5M", 1_572_864),
            ("256MiB", 268_435_456),
            ("1GB", 1_000_000_000),
            ("0", 0),
            ("12 B", 12),
        ];
        for (text, bytes) in table {
            assert_eq!(parse(text), Ok(bytes), "{text}");
        }
        for text in ["", "MiB", "-1", "1XiB", "99999999999TiB", "1e30"] {
            assert!(parse(text).is_err(), "{text}");
        }
    }

    #[test]
    fn sizes_are_shown() {
        let table = [
            (0, "0 B"),
            (999, "999 B"),
            (1024, "1 KiB"),
            (1536, "1.5 KiB"),
            (268_435_456, "256 MiB"),
            (1 << 50, "1024 TiB"),
        ];
        for (bytes, text) in table {
            assert_eq!(display(bytes), text);
        }
    }
}
