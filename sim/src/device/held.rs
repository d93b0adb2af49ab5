//! The commands that a drive holds, and the choice of the next one.
//!
//! The drive takes the command whose first sector it can have soonest. By this rule alone, a command that is
//! always a little further away would wait for ever. So a command that was passed over [`PASSED_OVER_MAX`]
//! times goes next, whatever it costs; the oldest of several first.

use foretell_policy::Nanos;

use super::{Device, Request, Start};

/// How often a command is passed over at most. Manufacturers do not publish their limits. 20 is four rounds of
/// the five commands that the TIP papers' striper gives a drive.
pub const PASSED_OVER_MAX: u32 = 20;

#[derive(Clone, Debug)]
struct Command<T> {
    request: Request,
    /// Its beginning, computed when there is first another command to compare with.
    start: Option<Start>,
    passed_over: u32,
    what: T,
}

/// Commands, in the order of their arrival.
#[derive(Clone, Debug)]
pub struct Held<T> {
    commands: Vec<Command<T>>,
}

impl<T> Default for Held<T> {
    fn default() -> Self {
        Held { commands: Vec::new() }
    }
}

impl<T> Held<T> {
    /// Adds a command.
    pub fn push(&mut self, request: Request, what: T) {
        self.commands.push(Command { request, start: None, passed_over: 0, what });
    }

    /// The number of commands.
    pub fn len(&self) -> usize {
        self.commands.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.commands.is_empty()
    }

    /// All commands, oldest first.
    pub fn iter(&self) -> impl Iterator<Item = &T> {
        self.commands.iter().map(|command| &command.what)
    }

    /// Removes and returns the next command for `device`.
    pub fn take_next(&mut self, device: &dyn Device, now: Nanos) -> Option<T> {
        let at = match self.commands.len() {
            0 | 1 => 0,
            _ => {
                let wait = |command: &mut Command<T>| match command.passed_over {
                    PASSED_OVER_MAX.. => None, // Sorts before any time.
                    _ => {
                        let sector = command.request.sector;
                        let start = command.start.get_or_insert_with(|| device.start_at(sector));
                        Some(device.positioning_time(now, start))
                    }
                };
                let waits = self.commands.iter_mut().map(wait).enumerate();
                waits.min_by_key(|&(_, wait)| wait).map_or(0, |(at, _)| at)
            }
        };
        if self.commands.is_empty() {
            return None;
        }
        self.commands[..at].iter_mut().for_each(|command| command.passed_over += 1);
        Some(self.commands.remove(at).what)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::device::DiskParameters;

    #[test]
    fn nothing_is_passed_over_for_ever() {
        let mut device = DiskParameters::hp97560().device(0);
        let mut held = Held::default();
        let far = Request { sector: 2_000_000, sectors: 16 };
        held.push(far, "far");
        let (mut now, mut sector) = (Nanos::ZERO, 0);
        let mut turns = 0;
        // There is always one that follows the last one served.
        loop {
            held.push(Request { sector, sectors: 16 }, "next");
            sector += 16;
            let next = held.take_next(device.as_ref(), now);
            let Some("next") = next else { break };
            now = now + device.service(now, Request { sector: sector - 16, sectors: 16 }).total();
            turns += 1;
        }
        assert_eq!(turns, PASSED_OVER_MAX);
        assert_eq!((held.len(), held.is_empty()), (1, false));
    }

    #[test]
    fn the_oldest_goes_first_among_equals() {
        let device = DiskParameters::by_name("network").expect("built in").device(0);
        let mut held = Held::default();
        for number in 0..3 {
            held.push(Request { sector: 99 - number, sectors: 1 }, number);
        }
        assert_eq!(held.iter().count(), 3);
        let order: Vec<u64> =
            std::iter::from_fn(|| held.take_next(device.as_ref(), Nanos::ZERO)).collect();
        assert_eq!(order, [0, 1, 2]);
    }
}
