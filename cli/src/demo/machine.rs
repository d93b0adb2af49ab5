//! The date and the machine of a measurement, and the machine's programs.

use std::path::{Path, PathBuf};
use std::process::Command;

use serde::Serialize;

use crate::failure::Failure;

/// See the [module](self).
#[derive(Clone, Debug, Default, Serialize)]
pub(crate) struct Machine {
    /// Day of the run, as YYYY-MM-DD (UTC).
    pub(crate) date: String,
    /// Cores of the machine.
    pub(crate) cores: usize,
    /// Its kernel release.
    pub(crate) kernel: String,
}

impl Machine {
    /// This one, today.
    pub(super) fn this() -> Self {
        Machine {
            date: today(),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: rustix::system::uname().release().to_string_lossy().into_owned(),
        }
    }
}

/// The path of a program of this machine.
pub(super) fn program(name: &str) -> Result<PathBuf, Failure> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .map(|folder| folder.join(name))
        .find(|candidate| candidate.is_file())
        .ok_or_else(|| {
            Failure::failed(format!("{name} is not in PATH; install the package {name}"))
        })
}

/// The first line of what `program --version` prints; `name` if it prints nothing.
pub(super) fn version(program: &Path, name: &str) -> String {
    let output = Command::new(program).arg("--version").output().ok();
    let text = output.map(|output| String::from_utf8_lossy(&output.stdout).into_owned());
    let first = text.and_then(|text| text.lines().next().map(str::to_owned));
    first.unwrap_or_else(|| name.into())
}

/// Today's date (UTC) as YYYY-MM-DD.
fn today() -> String {
    let now = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH);
    let days = now.unwrap_or_default().as_secs() / 86_400;
    // Howard Hinnant's civil_from_days, for days since 1970.
    let shifted = days + 719_468;
    let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
    let year_of_era =
        (day_of_era - day_of_era / 1_460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 { month_from_march + 3 } else { month_from_march - 9 };
    let year = era * 400 + year_of_era + u64::from(month <= 2);
    format!("{year:04}-{month:02}-{day:02}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dates_are_of_this_era() {
        let today = today();
        assert_eq!(today.len(), 10);
        assert!(today.as_str() > "2024-01-01" && today.as_str() < "2200-01-01", "{today}");
    }
}
