//! Whether a process waits for names, so that looking them up ahead is worth anything.
//!
//! Where all is in memory, a lookup ahead costs more than it saves. So there is an allowance, in lookups: a call that has
//! waited adds to it, and so does a lookup ahead that waited. A call that did not wait and a lookup that did not take from it.
//! Each device has its own: a program may wait for a network while its configuration is in memory.
//!
//! A call that took long may have lost the processor rather than waited for a device. Lookups ahead tell which: while none of
//! them waits, a call adds less and less ([`Waits::is_noise`]).

/// What a wait adds. As many lookups ahead may show that all further names are in memory. Local file systems read the inodes
/// of some 16 or 32 files at once.
const GRANT_MAX: u32 = 32;

/// After so many lookups ahead that did not wait, a call adds half as much.
const QUICK_MAX: u32 = 32;

/// What a read that waited adds, in opens: names may be in memory while data is not.
const READ_WAITED: u32 = 64;

/// Bound of the allowance: so many quick lookups in a row end it.
const ALLOWANCE_MAX: u32 = 512;

/// Devices that are told apart.
const DEVICES_MAX: usize = 16;

/// The allowances of a process, one for each device: see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Waits {
    /// Of names whose device is not known.
    anywhere: Waiting,
    /// Opens for which reads are taken to wait.
    reads: u32,
    /// By `st_dev`.
    devices: Vec<(u64, Waiting)>,
}

#[derive(Debug)]
struct Waiting {
    allowance: u32,
    grant: u32,
    /// Lookups ahead that did not wait, since the last one that did or the last change of `grant`.
    quick: u32,
}

impl Default for Waiting {
    fn default() -> Self {
        Waiting { allowance: 0, grant: GRANT_MAX, quick: 0 }
    }
}

impl Waits {
    /// Whether calls wait anywhere.
    pub(super) fn any(&self) -> bool {
        self.anywhere.is_waiting() || self.reads_wait()
    }

    /// Whether reads wait.
    pub(super) fn reads_wait(&self) -> bool {
        self.reads > 0
    }

    /// Whether no lookup ahead has waited for long, although calls took long: the process has no processor of its own.
    pub(super) fn is_noise(&self) -> bool {
        self.anywhere.grant <= 1 && !self.reads_wait()
    }

    /// Whether calls wait for this device.
    pub(super) fn is_waiting(&self, device: u64) -> bool {
        let of = self.devices.iter().find(|(number, _)| *number == device);
        of.is_some_and(|(_, waiting)| waiting.is_waiting())
    }

    /// A call about a name on `device`, if that is known.
    pub(super) fn call(&mut self, device: Option<u64>, waited: bool, was_ahead: bool) {
        self.anywhere.call(waited, was_ahead);
        if let Some(device) = device {
            self.of(device).call(waited, was_ahead);
        }
    }

    /// Reads have waited, of files on any device.
    pub(super) fn read_waited(&mut self) {
        self.reads = (self.reads + READ_WAITED).min(ALLOWANCE_MAX);
    }

    /// The process opens a file.
    pub(super) fn opens(&mut self) {
        self.reads = self.reads.saturating_sub(1);
    }

    /// A lookup ahead.
    pub(super) fn lookup(&mut self, device: u64, waited: bool) {
        self.anywhere.lookup(waited);
        self.of(device).lookup(waited);
    }

    fn of(&mut self, device: u64) -> &mut Waiting {
        let known = self.devices.iter().position(|(number, _)| *number == device);
        let at = known.unwrap_or_else(|| {
            self.devices.truncate(DEVICES_MAX - 1);
            self.devices.insert(0, (device, Waiting::default()));
            0
        });
        &mut self.devices[at].1
    }
}

impl Waiting {
    fn is_waiting(&self) -> bool {
        self.allowance > 0
    }

    /// A call of the process.
    fn call(&mut self, waited: bool, was_ahead: bool) {
        match (waited, was_ahead) {
            (true, _) => self.add(self.grant),
            (false, true) => {}
            (false, false) => self.allowance = self.allowance.saturating_sub(1),
        }
    }

    /// A lookup ahead.
    fn lookup(&mut self, waited: bool) {
        if waited {
            (self.grant, self.quick) = (GRANT_MAX, 0);
            return self.add(GRANT_MAX);
        }
        self.allowance = self.allowance.saturating_sub(1);
        self.quick += 1;
        if self.quick >= QUICK_MAX {
            (self.grant, self.quick) = ((self.grant / 2).max(1), 0);
        }
    }

    fn add(&mut self, lookups: u32) {
        self.allowance = (self.allowance + lookups).min(ALLOWANCE_MAX);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn slow_calls_count_less_and_less_while_no_lookup_waits() {
        let (mut waits, mut lookups) = (Waits::default(), 0);
        for _ in 0..1000 {
            waits.call(Some(1), true, false);
            while waits.is_waiting(1) {
                waits.lookup(1, false);
                lookups += 1;
            }
        }
        assert!(lookups < 1400 && waits.is_noise(), "{lookups}");
        waits.lookup(1, true);
        assert!(waits.is_waiting(1) && !waits.is_noise() && !waits.is_waiting(2));
    }

    #[test]
    fn reads_may_wait_while_names_are_in_memory() {
        let mut waits = Waits::default();
        waits.read_waited();
        (0..1000).for_each(|_| waits.lookup(1, false));
        assert!(waits.any() && waits.reads_wait() && !waits.is_waiting(1) && !waits.is_noise());
        (0..READ_WAITED).for_each(|_| waits.opens());
        assert!(!waits.any() && waits.is_noise());
    }

    #[test]
    fn one_lookup_in_twenty_that_waits_is_enough() {
        let mut waits = Waits::default();
        waits.call(Some(1), true, false);
        for lookup in 1..1000 {
            assert!(waits.is_waiting(1));
            waits.lookup(1, lookup % 20 == 0);
        }
        (0..ALLOWANCE_MAX).for_each(|_| waits.lookup(1, false));
        assert!(!waits.is_waiting(1));
    }
}
