//! The devices that managers of one process fetch from, and how many fetches each manager may have in flight there.
//!
//! * **A.** A manager that is the only one has as many in flight as its policy finds worthwhile.
//! * **B.** Several divide a *pool*, which is deep enough for the device to be as fast as with any number. Each that fetches
//!   may have an equal share, and what others leave of the pool. The pool is a bound also while only one fetches, because the
//!   first read of another run waits behind all that is in flight.
//! * **C.** While a run that has fetched nothing for a while ([`UNHINTED`]) waits for reads of its own, the pool is only what the device serves at once, since
//!   its reads queue behind all fetches. It has a share like the others, which nobody else uses.
//!
//! How many the device serves at once is what the policies have measured. A measurement counts as it is if the manager had more
//! in flight than that. Otherwise more might be served, and it only raises what was known before. As long as nothing is known,
//! there is no bound in case B: each policy begins with a moderate depth itself.
//!
//! Each manager may have one fetch in flight in any case. So one that must hold back has a fetch of its own in flight, whose
//! end wakes it, and managers need not wake each other.
//!
//! Not here: lookups ahead of programs, which the pools of threads bound; and programs without foretell, which are not seen.

use std::time::{Duration, Instant};

use foretell_policy::DeviceId;

/// B: the pool, for each fetch that the device serves at once. Measured on 8 disks, HP 97560, with one run: a depth of 5 for
/// each costs 17 % of the speed, 10 costs 8 %, and 20 costs 2 %.
const DEPTH_PER_SERVER: f64 = 20.0;

/// C: the pool of a device of which nothing is measured: what the policy begins with.
const POOL_FIRST: f64 = 32.0;

/// C: a manager that has had no fetch in flight for so long has no hints. One with hints reads some blocks by itself, too.
const UNHINTED: Duration = Duration::from_secs(1);

/// Devices that are remembered without a manager.
const REMEMBERED_MAX: usize = 64;

/// What a policy has measured of a device.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Measured {
    /// How many fetches it serves at once.
    pub(crate) serves: f64,
    /// Whether more are in flight.
    pub(crate) is_full: bool,
}

/// All devices.
#[derive(Debug, Default)]
pub(super) struct Devices(Vec<Device>);

#[derive(Debug)]
struct Device {
    id: DeviceId,
    /// How many fetches it serves at once, if that is known.
    serves: Option<f64>,
    users: Vec<User>,
}

/// A manager at a device.
#[derive(Clone, Copy, Debug)]
struct User {
    manager: u64,
    in_flight: usize,
    /// Whether it may want more than it may have.
    is_held_back: bool,
    /// When it last had a fetch in flight.
    fetched_at: Option<Instant>,
    /// Its programs wait for reads of their own until then, as far as is known.
    waits_until: Option<Instant>,
}

impl User {
    fn fetches(&self) -> bool {
        self.in_flight > 0 || self.is_held_back
    }

    fn waits(&self, now: Instant) -> bool {
        let has_hints = self.fetched_at.is_some_and(|at| now < at + UNHINTED);
        !self.fetches() && !has_hints && self.waits_until.is_some_and(|until| until > now)
    }
}

impl Devices {
    fn device(&mut self, id: DeviceId) -> &mut Device {
        if let Some(at) = self.0.iter().position(|device| device.id == id) {
            return &mut self.0[at];
        }
        if self.0.len() >= REMEMBERED_MAX {
            self.0.retain(|device| !device.users.is_empty());
        }
        self.0.push(Device { id, serves: None, users: Vec::new() });
        self.0.last_mut().expect("it was pushed")
    }

    /// The most fetches that `manager` may have in flight at the device, of which it has measured this. `is_only_one`: there is
    /// no other manager.
    pub(super) fn limit(
        &mut self,
        now: Instant,
        (id, manager): (DeviceId, u64),
        measured: Option<Measured>,
        is_only_one: bool,
    ) -> usize {
        let device = self.device(id);
        if let Some(Measured { serves, is_full }) = measured {
            let before = device.serves.filter(|_| !is_full).unwrap_or(0.0);
            device.serves = Some(serves.max(before));
        }
        if is_only_one { usize::MAX } else { device.limit(now, manager) } // A
    }

    /// `manager` has so many fetches in flight, and may want more.
    pub(super) fn note(
        &mut self,
        now: Instant,
        (id, manager): (DeviceId, u64),
        in_flight: usize,
        is_held_back: bool,
    ) {
        let device = self.device(id);
        let fetches = in_flight > 0 || is_held_back;
        if fetches || device.users.iter().any(|user| user.manager == manager) {
            let user = device.user(manager);
            (user.in_flight, user.is_held_back) = (in_flight, is_held_back);
            user.fetched_at = if fetches { Some(now) } else { user.fetched_at };
        }
    }

    /// Programs of `manager` wait for reads of their own. A program may name any device, so only those count from which a
    /// manager has fetched.
    pub(super) fn waits(&mut self, (id, manager): (DeviceId, u64), until: Instant) {
        if let Some(device) = self.0.iter_mut().find(|device| device.id == id) {
            device.user(manager).waits_until = Some(until);
        }
    }

    /// `manager` has ended.
    pub(super) fn leave(&mut self, manager: u64) {
        self.0.iter_mut().for_each(|device| device.users.retain(|user| user.manager != manager));
    }
}

impl Device {
    fn user(&mut self, manager: u64) -> &mut User {
        let at = self.users.iter().position(|user| user.manager == manager);
        let at = at.unwrap_or_else(|| {
            let (in_flight, is_held_back) = (0, false);
            let (fetched_at, waits_until) = (None, None);
            self.users.push(User { manager, in_flight, is_held_back, fetched_at, waits_until });
            self.users.len() - 1
        });
        &mut self.users[at]
    }

    fn limit(&self, now: Instant, manager: u64) -> usize {
        let others = || self.users.iter().filter(|user| user.manager != manager);
        let fetching = others().filter(|user| user.fetches()).count() as f64 + 1.0;
        let waiting = others().filter(|user| user.waits(now)).count() as f64;
        let pool = match (self.serves, waiting > 0.0) {
            (serves, true) => serves.unwrap_or(POOL_FIRST), // C
            (Some(serves), false) => DEPTH_PER_SERVER * serves, // B
            (None, false) => return usize::MAX,
        };
        let share = pool / (fetching + waiting);
        let taken = |user: &User| match (user.in_flight as f64, user.is_held_back) {
            (in_flight, true) => in_flight.max(share),
            (in_flight, false) => in_flight,
        };
        let taken: f64 = others().filter(|user| user.fetches()).map(taken).sum();
        let left = pool - waiting * share - taken;
        left.max(share).max(1.0) as usize
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const DISK: DeviceId = DeviceId(1);

    fn measured(serves: f64, is_full: bool) -> Measured {
        Measured { serves, is_full }
    }

    fn limits(devices: &mut Devices, managers: &[u64]) -> Vec<usize> {
        let now = Instant::now();
        let limit = |&manager: &u64| devices.limit(now, (DISK, manager), None, false);
        managers.iter().map(limit).collect()
    }

    /// Of a device that serves 8 at once.
    fn known() -> Devices {
        let mut devices = Devices::default();
        devices.limit(Instant::now(), (DISK, 0), Some(measured(8.0, true)), true);
        devices
    }

    #[test]
    fn the_only_one_is_not_bounded_and_several_have_equal_shares() {
        let mut devices = known();
        assert_eq!(devices.limit(Instant::now(), (DISK, 1), None, true), usize::MAX);
        devices.note(Instant::now(), (DISK, 1), 1000, false);
        assert_eq!(limits(&mut devices, &[1]), [160], "another may come to read");
        // The second has its share, though the first has more in flight.
        assert_eq!(limits(&mut devices, &[2]), [80]);
        devices.note(Instant::now(), (DISK, 2), 80, true);
        assert_eq!(limits(&mut devices, &[1, 2]), [80, 80]);
        devices.note(Instant::now(), (DISK, 1), 80, true);
        devices.note(Instant::now(), (DISK, 3), 40, true);
        assert_eq!(limits(&mut devices, &[1, 2, 3]), [53, 53, 53]);
        let nothing_known = devices.limit(Instant::now(), (DeviceId(2), 3), None, false);
        assert_eq!(nothing_known, usize::MAX);
        devices.leave(1);
        devices.leave(2);
        assert_eq!(limits(&mut devices, &[3]), [160]);
    }

    #[test]
    fn what_one_does_not_want_the_others_have() {
        let mut devices = known();
        devices.note(Instant::now(), (DISK, 1), 5, false);
        devices.note(Instant::now(), (DISK, 2), 80, true);
        assert_eq!(limits(&mut devices, &[2, 1]), [155, 80]);
        devices.note(Instant::now(), (DISK, 2), 155, true);
        assert_eq!(limits(&mut devices, &[1]), [80], "it may want more at any time");
    }

    #[test]
    fn a_run_that_waits_for_its_own_reads_has_a_share_of_what_is_served_at_once() {
        let mut devices = known();
        let soon = Instant::now() + Duration::from_secs(60);
        devices.note(Instant::now(), (DISK, 1), 500, false);
        devices.waits((DISK, 2), soon);
        assert_eq!(limits(&mut devices, &[1]), [4]);
        devices.note(Instant::now(), (DISK, 3), 1, true);
        assert_eq!(limits(&mut devices, &[1, 3]), [2, 2]);
        for at in 4..100 {
            devices.waits((DISK, at), soon);
        }
        assert_eq!(limits(&mut devices, &[1, 3]), [1, 1], "each may have one");
        // One that fetches has its share of the fetches, and a wait ends.
        let mut devices = known();
        devices.note(Instant::now(), (DISK, 1), 500, false);
        devices.waits((DISK, 2), soon);
        devices.note(Instant::now(), (DISK, 2), 1, false);
        assert_eq!(limits(&mut devices, &[1]), [159]);
        let later = Instant::now() + UNHINTED;
        devices.note(Instant::now(), (DISK, 2), 0, false);
        assert_eq!(limits(&mut devices, &[1]), [160], "it has hints");
        assert_eq!(devices.limit(later, (DISK, 1), None, false), 4);
        devices.waits((DISK, 2), Instant::now());
        assert_eq!(limits(&mut devices, &[1]), [160]);
    }

    #[test]
    fn what_is_measured_with_few_in_flight_lowers_no_pool() {
        let mut devices = known();
        let now = Instant::now();
        devices.waits((DISK, 2), now + Duration::from_secs(60));
        let mut limit = |measured| devices.limit(now, (DISK, 1), measured, false);
        assert_eq!(limit(Some(measured(2.0, false))), 4);
        assert_eq!(limit(Some(measured(10.0, false))), 5);
        assert_eq!(limit(None), 5);
        assert_eq!(limit(Some(measured(6.0, true))), 3);
        devices.device(DeviceId(2));
        devices.waits((DeviceId(2), 2), now + Duration::from_secs(60));
        let unknown = devices.limit(now, (DeviceId(2), 1), None, false);
        assert_eq!(unknown, POOL_FIRST as usize / 2);
    }

    #[test]
    fn few_devices_are_remembered() {
        let mut devices = known();
        devices.note(Instant::now(), (DISK, 1), 80, true);
        for at in 2..1000 {
            devices.limit(Instant::now(), (DeviceId(at), 1), Some(measured(3.0, true)), false);
        }
        assert!(devices.0.len() <= REMEMBERED_MAX);
        assert_eq!(limits(&mut devices, &[2]), [80], "one that is in use is not forgotten");
    }
}
