//! Decides whose names are of interest: of programs that wait for them, or may do so soon.
//!
//! A program writes a record for each name only while its names are of interest: from its start, and then for as
//! long as its calls wait or something is looked up ahead of it. Opens and reads that wait are counted in the program's ring
//! always. So a look at the counters, every [`LOOK_MIN`] to [`LOOK_MAX`], tells when a program waits again. A program that
//! gives up the processor may wait for names, which are not counted, so it is watched for a moment.
//!
//! Cost: a program that never waits is watched for [`FIRST_WATCH`], or for [`QUICK_MAX`] touches.

use std::time::Duration;

use foretell_policy::{Nanos, ReaderId};

use super::Walker;
use crate::process_files::ProcessFiles;
use crate::programs::Program;
use crate::session::Session;

/// A program whose calls have not waited for so long is not watched any more.
pub(super) const QUIET: Nanos = Nanos(50_000_000);

/// A program that has touched more names in a row without waiting, and ahead of which nothing is under way, has its names in
/// memory.
const QUICK_MAX: u32 = 256;

/// So long it is watched from its start: most programs begin their work by then.
const FIRST_WATCH: Nanos = Nanos(100_000_000);

/// Bounds of the time for which a program is not watched since its slow calls are noise.
const NOISE_MIN: Nanos = Nanos(50_000_000);
const NOISE_MAX: Nanos = Nanos(1_000_000_000);

/// Bounds of the interval between two looks at the counters.
pub(super) const LOOK_MIN: Duration = Duration::from_millis(5);
const LOOK_MAX: Duration = Duration::from_millis(50);

/// As long as a program is young, its counters are looked at this often: much of what it does may lie ahead.
const LOOK_YOUNG: Duration = Duration::from_millis(10);
const YOUNG: Nanos = Nanos(1_000_000_000);

/// Programs in one turn of which `/proc` tells whether they have given up the processor, 20 µs each.
const GLIMPSES_MAX: usize = 16;

/// Programs whose counters are looked at in one turn, some 10 µs.
const LOOKS_MAX: usize = 128;

impl Walker {
    /// Whether its slow calls have nothing to do with devices, as of the last time that it was watched.
    fn is_noise(&mut self, now: Nanos) -> bool {
        if now < self.noise_until {
            return true;
        }
        let has_begun = self.noise_until == Nanos::ZERO;
        let is_noise = self.path.as_ref().is_some_and(|path| path.1.is_noise());
        if !is_noise {
            (self.noise_until, self.noise) = (Nanos::ZERO, Nanos::ZERO);
        } else if has_begun {
            self.noise = Nanos((self.noise.0 * 2).clamp(NOISE_MIN.0, NOISE_MAX.0));
            self.noise_until = Nanos(now.0 + self.noise.0);
        } else {
            self.noise_until = Nanos::ZERO; // It is watched until the next look.
        }
        is_noise && has_begun
    }

    /// Whether it need not be watched. `is_read`: files are read ahead of it.
    fn is_quiet(&mut self, now: Nanos, is_read: bool) -> bool {
        let since = |at| now.saturating_sub(at);
        if self.quick_touches > QUICK_MAX && !is_read && self.under_way == 0 {
            return true;
        }
        if since(self.begun_at) < FIRST_WATCH {
            return false;
        }
        // A call may be in the queue of a slow device, behind lookups ahead of it.
        let may_go_on = self.is_under_way() && since(self.touched_at) < QUIET;
        let is_walking = self.under_way > 0 || may_go_on;
        self.is_noise(now) || since(self.stalled_at) >= QUIET && !is_read && !is_walking
    }
}

/// Notes whether calls of a program have waited since the last look. Returns whether they have.
///
/// Calls about names count only while the program is watched. One that is not, and has given up the processor, gets a short
/// watch, and again after a while: it may have waited for a pipe.
fn note_waits(program: &mut Program, now: Nanos, glimpses: &mut usize) -> bool {
    let counters = program.counters();
    let (stalls, ReaderId(process)) = (counters.stalls(), program.reader());
    let (is_watched, walker) = (program.wants_names(), &mut program.walker);
    let has_stalled = stalls != walker.stalls;
    let may_glimpse = !is_watched && now >= walker.glimpse_at && *glimpses > 0;
    if !has_stalled && !may_glimpse {
        return false;
    }
    *glimpses = glimpses.saturating_sub(1);
    walker.stalls = stalls;
    // A process that has given up the processor nowhere has lost it, where its calls took long.
    let switches = ProcessFiles::switches(process).map(|switches| switches.voluntary);
    if switches.is_some() && std::mem::replace(&mut walker.switches, switches) == switches {
        return false;
    }
    walker.stalled_at = now;
    walker.quick_touches = 0;
    if has_stalled {
        walker.glimpse = Nanos::ZERO;
    } else {
        walker.glimpse = Nanos((walker.glimpse.0 * 2).clamp(NOISE_MIN.0, NOISE_MAX.0));
    }
    walker.glimpse_at = Nanos(now.0 + QUIET.0 + walker.glimpse.0);
    if std::mem::replace(&mut walker.read_stalls, counters.read_stalls) != counters.read_stalls {
        walker.path_made().1.has_waited();
    }
    has_stalled
}

impl Session {
    /// Looks at the counters of some programs, if it is time. Decides whose names are of interest.
    pub(in crate::session) fn watch_names(&mut self) {
        let now = self.now();
        if now < self.walking.looks_at || self.programs.is_empty() {
            return;
        }
        let count = self.programs.len();
        let first = self.walking.next_look % count;
        let is_followed = self.accesses.watches(now);
        let (mut has_changed, mut is_young, mut glimpses) = (false, false, GLIMPSES_MAX);
        let (mut waits, learns_at_all) = (0, self.accesses.learning.is_some());
        for at in (first..first + count.min(LOOKS_MAX)).map(|at| at % count) {
            let is_read = self.reads_ahead(at);
            let program = &mut self.programs[at];
            if note_waits(program, now, &mut glimpses) {
                has_changed = true;
                waits += if learns_at_all { program.count_new_waits() } else { 0 };
            }
            is_young |= now.saturating_sub(program.walker.begun_at) < YOUNG;
            let is_quiet = program.walker.is_quiet(now, is_read) && !is_followed;
            if !is_quiet && !program.wants_names() && self.walking.can_watch(program) {
                let (names, walk) = program.walker.path_made();
                names.forget();
                walk.lose_sight();
                program.want_names(true);
            } else if is_quiet && program.wants_names() {
                program.want_names(false);
            }
        }
        let learning = self.accesses.learning.iter_mut();
        learning.for_each(|learning| learning.have_waited(waits, now));
        self.note_memory_of_walks();
        self.walking.next_look = first + LOOKS_MAX.min(count);
        let interval = if has_changed { LOOK_MIN } else { self.walking.interval * 2 };
        let most = if is_young { LOOK_YOUNG } else { LOOK_MAX };
        self.walking.interval = interval.clamp(LOOK_MIN, most);
        self.walking.looks_at = Nanos(now.0 + self.walking.interval.as_nanos() as u64);
    }
}
