//! How long a process has waited, and whether it has touched pages, from `/proc/PID/stat` and `/proc/PID/schedstat`.
//!
//! The kernel counts a fault as *major* if it begins to read the page, and not if another read has begun. So a program that
//! follows the kernel's read-ahead waits for most of its time without a major fault. Time without a processor tells of that:
//!
//! * **A.** A process with one thread: the time that has passed, less the time on a processor and the time in its queue. These
//!   are known to the nanosecond.
//! * **B.** Of several threads only processor time is known, all together and in ticks of 10 ms. Where it is less than the time
//!   that has passed, the process has waited. Where one thread waits and others compute, that is not seen.
//!
//! A process that sleeps or waits for something else counts as waiting too. That does no harm where it touches no new pages of
//! mapped files meanwhile. [`Since::is_for_pages`] tells the two apart where it can.

use std::time::{Duration, Instant};

use rustix::param::clock_ticks_per_second;

/// A: the process has waited if that took more than this part, as a divisor, of the time that has passed.
const SHARE_DIVISOR: i64 = 8;

/// B: waiting shorter than two ticks cannot be told from none.
const UNSURE_NS: i64 = 20_000_000;

/// Ticks of processor time that are believed at once.
const TICKS_MAX: u64 = 1_000_000;

/// What `/proc/PID/stat` tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stat {
    /// Its first thread waits without taking signals, as in a page fault.
    waits_now: bool,
    minor_faults: u64,
    major_faults: u64,
    /// Processor time of all threads.
    ticks: u64,
    threads: u64,
    /// When the process began: with its number, this names it.
    pub(crate) started: u64,
    /// The size of its memory, mapped files included.
    pub(crate) memory_bytes: u64,
}

impl Stat {
    pub(crate) fn of(line: &[u8]) -> Option<Self> {
        // The second field, the command's name in parentheses, may have any bytes.
        let behind_name = line.iter().rposition(|&byte| byte == b')')? + 1;
        let text = std::str::from_utf8(&line[behind_name..]).ok()?;
        let mut fields = text.split_ascii_whitespace();
        let waits_now = fields.next()? == "D";
        let mut number = |skipped: usize| fields.nth(skipped)?.parse::<u64>().ok();
        Some(Stat {
            waits_now,
            minor_faults: number(6)?,
            major_faults: number(1)?,
            ticks: number(1)?.saturating_add(number(0)?),
            threads: number(4)?,
            started: number(1)?,
            memory_bytes: number(0)?,
        })
    }

    fn faults(&self) -> u64 {
        self.minor_faults.saturating_add(self.major_faults)
    }

    /// Whether [`Scheduled`] says something of it (A).
    pub(crate) fn has_one_thread(&self) -> bool {
        self.threads == 1
    }
}

/// What `/proc/PID/schedstat` tells of the first thread: its time on a processor and in the queue for one, in ns.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Scheduled(u64);

impl Scheduled {
    pub(crate) fn of(line: &[u8]) -> Option<Self> {
        let mut fields = std::str::from_utf8(line).ok()?.split_ascii_whitespace();
        let mut number = || fields.next()?.parse::<u64>().ok();
        Some(Scheduled(number()?.saturating_add(number()?)))
    }
}

/// What has happened since the last look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Since {
    /// Whether there were page faults.
    pub(crate) has_touched: bool,
    /// How long the process has waited, if it has, as far as is known.
    pub(crate) waited: Option<Duration>,
    /// It has had a major fault, or waits as if in one.
    pub(crate) is_for_pages: bool,
}

/// See the [module](self).
#[derive(Clone, Debug, Default)]
pub(crate) struct Waits {
    last: Option<(Stat, Option<Scheduled>, Instant)>,
    /// B: time without a processor that is not told. Negative if ticks were counted before their time.
    idle_ns: i64,
}

impl Waits {
    /// When the process began, as the last look told.
    pub(crate) fn started(&self) -> Option<u64> {
        self.last.map(|(stat, ..)| stat.started)
    }

    /// Takes in what a look tells.
    pub(crate) fn note(&mut self, stat: Stat, scheduled: Option<Scheduled>, now: Instant) -> Since {
        let Some((last, scheduled_last, at)) = self.last.replace((stat, scheduled, now)) else {
            let is_for_pages = stat.major_faults > 0;
            let waited = is_for_pages.then_some(Duration::ZERO);
            return Since { has_touched: true, waited, is_for_pages };
        };
        let passed_ns = now.saturating_duration_since(at).as_nanos() as i64;
        let (waited_ns, is_sure) = match (scheduled, scheduled_last) {
            (Some(Scheduled(now_ns)), Some(Scheduled(last_ns))) => {
                let busy_ns = now_ns.saturating_sub(last_ns).min(i64::MAX as u64) as i64;
                let waited_ns = passed_ns.saturating_sub(busy_ns).max(0); // A
                (waited_ns, waited_ns > passed_ns / SHARE_DIVISOR)
            }
            _ => self.by_ticks(stat, last, passed_ns),
        };
        let is_for_pages = stat.waits_now || last.major_faults < stat.major_faults;
        let has_waited = is_sure || is_for_pages;
        if has_waited {
            self.idle_ns = self.idle_ns.min(0);
        }
        Since {
            has_touched: last.faults() < stat.faults(),
            waited: has_waited.then(|| Duration::from_nanos(waited_ns.unsigned_abs())),
            is_for_pages,
        }
    }

    /// B: how long it has probably waited, and whether it has for sure.
    fn by_ticks(&mut self, stat: Stat, last: Stat, passed_ns: i64) -> (i64, bool) {
        let ticks = stat.ticks.saturating_sub(last.ticks).min(TICKS_MAX);
        let ran_ns = ticks * 1_000_000_000 / clock_ticks_per_second();
        let idle_ns = self.idle_ns.saturating_add(passed_ns).saturating_sub(ran_ns as i64);
        self.idle_ns = idle_ns.clamp(-UNSURE_NS, passed_ns.max(2 * UNSURE_NS));
        (self.idle_ns.max(0), self.idle_ns > UNSURE_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const STAT: Stat = Stat {
        waits_now: false,
        minor_faults: 500,
        major_faults: 7,
        ticks: 3,
        threads: 1,
        started: 9000,
        memory_bytes: 8192,
    };

    #[test]
    fn numbers_are_found_behind_any_name() {
        let line = b"77 (a ) 1 2) S 1 77 77 0 -1 4194560 500 0 7 0 1 2 3 4 20 0 1 0 9000 8192 3 9";
        assert_eq!(Stat::of(line), Some(STAT));
        for line in [&b""[..], b"77 (x", b"77 (x) S 1", b"77 (x) S 1 1 1 1 1 1 x 0 1 0"] {
            assert_eq!(Stat::of(line), None);
        }
        if let Ok(own) = std::fs::read("/proc/self/stat") {
            let told = Stat::of(&own).expect("it is read");
            assert!(told.minor_faults > 0 && told.memory_bytes > 1 << 20, "{told:?}");
        }
        assert_eq!(Scheduled::of(b"100 20 3\n"), Some(Scheduled(120)));
        assert_eq!(Scheduled::of(b"100"), None);
    }

    /// What each of `looks` says, 5 ms apart. A look tells the ns on a processor, the ticks and the faults since the one
    /// before.
    fn waited(threads: u64, looks: &[(u64, u64, u64)]) -> Vec<Option<u64>> {
        let (mut waits, mut now) = (Waits::default(), Instant::now());
        let mut stat = Stat { threads, major_faults: 0, ..STAT };
        let mut busy_ns = 0;
        let mut told = Vec::new();
        for &(ran_ns, ticks, major) in [(0, 0, 0)].iter().chain(looks) {
            now += Duration::from_millis(5);
            busy_ns += ran_ns;
            stat.ticks += ticks;
            stat.major_faults += major;
            let scheduled = (threads == 1).then_some(Scheduled(busy_ns));
            let since = waits.note(stat, scheduled, now);
            told.push(since.waited.map(|waited| waited.as_micros() as u64));
        }
        told.remove(0);
        told
    }

    #[test]
    fn one_thread_has_waited_for_what_it_did_not_run() {
        let looks = [(5_000_000, 0, 0), (4_800_000, 1, 0), (1_000_000, 0, 0), (9_000_000, 1, 1)];
        assert_eq!(waited(1, &looks), [None, None, Some(4000), Some(0)]);
    }

    #[test]
    fn several_threads_have_waited_if_they_ran_less_than_has_passed() {
        // They run all the time, a tick each other look.
        let runs: Vec<_> = (0..100).map(|look| (0, look % 2, 0)).collect();
        assert!(waited(4, &runs).iter().all(Option::is_none));
        // They run half of the time: all of the rest is told in the end.
        let half: Vec<_> = (0..400).map(|look| (0, u64::from(look % 4 == 3), 0)).collect();
        let told: u64 = waited(4, &half).into_iter().flatten().sum();
        assert!((950_000..=1_000_000).contains(&told), "{told}");
        assert_eq!(waited(4, &[(0, 0, 1)]), [Some(5000)]);
    }
}
