//! What the library for MPI-IO has done in a run: the reports of all ranks, added up.

use std::collections::BTreeMap;
use std::ffi::CString;
use std::fs::File;
use std::io::{Read, Seek};
use std::os::fd::AsRawFd;

use rustix::fs::{MemfdFlags, memfd_create};
use serde::{Deserialize, Serialize};

use crate::size;

/// Names the file to which each rank adds a line at its end.
const VARIABLE: &str = "FORETELL_MPI_REPORT";

/// Bytes that are read of all lines: of some 100,000 ranks.
const READ_MAX_BYTES: u64 = 64 << 20;

/// A file without a name. Ranks open it through this process's descriptor, so nothing is left behind.
#[derive(Debug)]
pub(crate) struct Reports(File);

impl Reports {
    /// `None` if the user has the reports written elsewhere, or there is no descriptor.
    pub(crate) fn new() -> Option<Self> {
        if std::env::var_os(VARIABLE).is_some() {
            return None;
        }
        Some(Self(File::from(memfd_create("foretell-mpi", MemfdFlags::CLOEXEC).ok()?)))
    }

    /// The entry of the program's environment.
    pub(crate) fn entry(&self) -> CString {
        let path = format!("/proc/{}/fd/{}", std::process::id(), self.0.as_raw_fd());
        CString::new(format!("{VARIABLE}={path}")).expect("no zero byte")
    }

    /// What the ranks have written so far. `None` if they have written nothing.
    pub(crate) fn sum(mut self) -> Option<MpiReport> {
        let mut text = String::new();
        self.0.rewind().ok()?;
        self.0.take(READ_MAX_BYTES).read_to_string(&mut text).ok()?;
        sum(&text)
    }
}

/// What a rank has done, by its line; or all ranks that have come to `MPI_Finalize`.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct MpiReport {
    #[serde(skip_deserializing)]
    ranks: u64,
    /// Opens of files that were taken.
    files: u64,
    collective_calls: u64,
    informed_calls: u64,
    passed_calls: u64,
    disclosed_bytes: u64,
    read_bytes: u64,
    /// Why collective reads of a file are the MPI's; of all ranks, the reason of most.
    why_collective: Option<String>,
}

fn sum(text: &str) -> Option<MpiReport> {
    let mut all = MpiReport::default();
    let mut reasons: BTreeMap<String, u64> = BTreeMap::new();
    for rank in text.lines().filter_map(|line| serde_json::from_str::<MpiReport>(line).ok()) {
        all.ranks += 1;
        all.files += rank.files;
        all.collective_calls += rank.collective_calls;
        all.informed_calls += rank.informed_calls;
        all.passed_calls += rank.passed_calls;
        all.disclosed_bytes += rank.disclosed_bytes;
        all.read_bytes += rank.read_bytes;
        if let Some(why) = rank.why_collective {
            *reasons.entry(why).or_default() += 1;
        }
    }
    all.why_collective = reasons.into_iter().max_by_key(|(_, ranks)| *ranks).map(|(why, _)| why);
    (all.ranks > 0).then_some(all)
}

impl MpiReport {
    /// One line, unless the program has read nothing by MPI-IO.
    pub(crate) fn line(&self) -> Option<String> {
        let calls = self.informed_calls + self.passed_calls + self.collective_calls;
        if calls == 0 {
            return None;
        }
        let ranks = if self.ranks == 1 { "rank" } else { "ranks" };
        let mut line = format!(
            "MPI-IO of {} {ranks}: {} of {calls} reads informed ({})",
            self.ranks,
            self.informed_calls,
            size::display(self.read_bytes)
        );
        if self.collective_calls > 0 {
            line += &format!(", {} by collective calls", self.collective_calls);
            line += &self.why_collective.iter().map(|why| format!(" ({why})")).collect::<String>();
        }
        Some(line)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(informed: u64, collective: u64, why: &str) -> String {
        format!(
            "{{\"pid\": 1, \"rank\": 0, \"files\": 1, \"collective_calls\": {collective}, \"informed_calls\": {informed}, \
             \"passed_calls\": 1, \"disclosed_bytes\": 5, \"read_bytes\": 2048, \"why_collective\": {why}}}\n"
        )
    }

    #[test]
    fn ranks_are_added_up_and_what_is_no_line_is_left_out() {
        let text = [&line(3, 0, "null"), "nonsense\n", &line(4, 2, "\"a\""), &line(0, 0, "\"b\"")];
        let all = sum(&(text.concat() + &line(0, 0, "\"b\""))).expect("ranks");
        let (ranks, informed) = (all.ranks, all.informed_calls);
        assert_eq!((ranks, informed, all.read_bytes), (4, 7, 8192));
        let expected =
            "MPI-IO of 4 ranks: 7 of 13 reads informed (8 KiB), 2 by collective calls (b)";
        assert_eq!(all.line().as_deref(), Some(expected));
        assert_eq!(sum(""), None);
        assert_eq!(MpiReport { ranks: 2, ..MpiReport::default() }.line(), None);
    }
}
