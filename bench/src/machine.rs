//! The machine, and its speed at the moment, without which measured costs mean little.
//!
//! There are two measures, for the two extremes of a policy that only computes or only misses the processor's
//! caches: additions of which each needs the result of the one before, and loads of which each gets its address
//! from the one before ([`LoadChain`]).

use std::fmt;
use std::fs;
use std::hint::black_box;
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use crate::random::Random;

/// Bytes of a line of the processor's caches.
const LINE_BYTES: usize = 64;

/// Additions that are timed at once, and how often; the fastest round counts.
const ADDITIONS: u64 = 20_000_000;
const ADDITION_ROUNDS: usize = 5;

/// The machine, as the heading of a table states it.
#[derive(Clone, Debug)]
pub struct Machine {
    /// Today, in UTC: `2026-11-22`.
    pub date: String,
    /// Processors that this process may use.
    pub cores: usize,
    /// Release of the kernel.
    pub kernel: String,
    /// Dependent additions in a nanosecond.
    pub additions_per_ns: f64,
    /// Which memory comes in huge pages.
    pub huge_pages: HugePages,
}

/// Which allocations of a process with foretell's heap come in huge pages, for which the processor needs fewer
/// address translations.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HugePages {
    /// Large blocks, for which foretell's heap requests them.
    Large,
    /// All, by the kernel's setting `always`.
    Always,
    /// All, since `GLIBC_TUNABLES=glibc.malloc.hugetlb=1` makes the C library request them too.
    Asked,
    /// All, from the pages reserved for the purpose while there are some: `glibc.malloc.hugetlb=2`.
    Reserved,
    /// None, by the kernel's setting `never` or since the kernel has none.
    Never,
}

impl HugePages {
    /// The state here, by the kernel's setting and the environment.
    fn find() -> Self {
        let setting = fs::read_to_string("/sys/kernel/mm/transparent_hugepage/enabled");
        let tunables = std::env::var("GLIBC_TUNABLES").unwrap_or_default();
        HugePages::of(&setting.unwrap_or_default(), &tunables)
    }

    fn of(setting: &str, tunables: &str) -> Self {
        let tunables = tunables.split(':');
        let mut asked =
            tunables.filter_map(|tunable| tunable.strip_prefix("glibc.malloc.hugetlb="));
        let asked = asked.next_back().unwrap_or("0");
        match asked == "1" {
            _ if !matches!(asked, "0" | "1") => HugePages::Reserved,
            _ if setting.contains("[always]") => HugePages::Always,
            _ if !setting.contains("[madvise]") => HugePages::Never,
            true => HugePages::Asked,
            false => HugePages::Large,
        }
    }
}

impl fmt::Display for HugePages {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str(match self {
            HugePages::Large => "huge pages for large blocks",
            HugePages::Always => "huge pages always",
            HugePages::Asked => "huge pages for all, which are asked for",
            HugePages::Reserved => "huge pages, while there are reserved ones",
            HugePages::Never => "no huge pages",
        })
    }
}

impl Machine {
    /// Measures this machine; takes about 50 ms.
    pub fn measure() -> Self {
        let now = SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs());
        let kernel = fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
        Machine {
            date: date(now / 86_400),
            cores: std::thread::available_parallelism().map_or(1, usize::from),
            kernel: if kernel.is_empty() { "unknown".into() } else { kernel.trim().into() },
            additions_per_ns: additions_per_ns(),
            huge_pages: HugePages::find(),
        }
    }
}

impl fmt::Display for Machine {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Machine { date, cores, kernel, additions_per_ns, huge_pages } = self;
        write!(
            to,
            "{date}, {cores} cores, Linux {kernel}, {huge_pages}, {additions_per_ns:.2} dependent additions a ns"
        )
    }
}

/// Bytes of memory that are still available, if the kernel reports it.
pub fn available_bytes() -> Option<u64> {
    let facts = fs::read_to_string("/proc/meminfo").ok()?;
    let line = facts.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix(" kB")?.parse().ok()?;
    Some(kib * 1024)
}

/// The date of a day counted from 1970-01-01, in the Gregorian calendar (Hinnant, "chrono-compatible low-level
/// date algorithms", 2013: years begin in March, so that the leap day comes last).
fn date(days: u64) -> String {
    let days = days + 719_468;
    let (era, day) = (days / 146_097, days % 146_097);
    let year = (day - day / 1460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5 + 1;
    let (month, next) = if month < 10 { (month + 3, 0) } else { (month - 9, 1) };
    format!("{:04}-{month:02}-{day:02}", era * 400 + year + next)
}

/// Fibonacci numbers modulo 2⁶⁴: no addition can begin before the one before has ended, and no compiler knows a
/// shorter way.
fn additions_per_ns() -> f64 {
    let round = |_| {
        let (mut last, mut sum) = (black_box(0u64), black_box(1u64));
        let began = Instant::now();
        for _ in 0..ADDITIONS {
            (last, sum) = (sum, last.wrapping_add(sum));
        }
        black_box(sum);
        ADDITIONS as f64 / began.elapsed().as_nanos().max(1) as f64
    };
    (0..ADDITION_ROUNDS).map(round).fold(0.0, f64::max)
}

/// One line of the processor's caches.
#[derive(Clone, Copy, Debug)]
#[repr(align(64))]
struct Line {
    next: u32,
}

/// An array in which each load leads to a random other place: the cost of a cache miss in memory of this size.
#[derive(Debug)]
pub struct LoadChain {
    lines: Vec<Line>,
    at: u32,
}

impl LoadChain {
    /// A chain of `bytes`, clamped to 128 bytes to 256 GiB.
    pub fn new(bytes: usize) -> Self {
        let lines = u32::try_from(bytes / LINE_BYTES).unwrap_or(u32::MAX).max(2);
        let mut lines: Vec<Line> = (0..lines).map(|next| Line { next }).collect();
        // A permutation that is a single cycle (Sattolo, 1986).
        let mut random = Random::new(11);
        for last in (1..lines.len()).rev() {
            lines.swap(last, random.below(last as u64) as usize);
        }
        LoadChain { lines, at: 0 }
    }

    /// Bytes of the array.
    pub fn memory_bytes(&self) -> usize {
        self.lines.capacity() * LINE_BYTES
    }

    /// Makes `loads` further loads, and returns the time of one, in ns.
    pub fn load_ns(&mut self, loads: u32) -> f64 {
        let began = Instant::now();
        let mut at = self.at;
        for _ in 0..loads {
            at = self.lines[at as usize].next;
        }
        self.at = black_box(at);
        began.elapsed().as_nanos() as f64 / f64::from(loads)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_are_dates() {
        assert_eq!(date(0), "1970-01-01");
        assert_eq!(date(59), "1970-03-01");
        assert_eq!(date(11_016), "2000-02-29");
        assert_eq!(date(20_818), "2026-12-31");
    }

    #[test]
    fn huge_pages_are_by_the_kernels_setting_and_the_environment() {
        let madvise = "always [madvise] never\n";
        let asked = "glibc.malloc.check=0:glibc.malloc.hugetlb=1";
        assert_eq!(HugePages::of("[always] madvise never\n", ""), HugePages::Always);
        assert_eq!(HugePages::of(madvise, asked), HugePages::Asked);
        assert_eq!(HugePages::of(madvise, "glibc.malloc.hugetlb=0"), HugePages::Large);
        assert_eq!(HugePages::of("always madvise [never]\n", asked), HugePages::Never);
        assert_eq!(HugePages::of("", ""), HugePages::Never);
        assert_eq!(HugePages::of("", "glibc.malloc.hugetlb=2"), HugePages::Reserved);
    }

    #[test]
    fn a_chain_leads_through_all_of_its_lines() {
        let mut chain = LoadChain::new(1000 * LINE_BYTES);
        for step in 1..=1000 {
            chain.load_ns(1);
            assert_eq!(chain.at == 0, step == 1000, "{step}");
        }
    }
}
