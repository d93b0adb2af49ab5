//! How far a process is believed to go through folders in an order, and how far ahead to go.
//!
//! A step from one entry to the next one of the same folder is compared with each order. Entries that the step goes over count
//! for nothing if the program has passed over their class before, or has never taken it: they are explained by a filter. Two
//! steps that fit make an order believed. One that does not halves its belief and the window.
//!
//! Threads that share a folder, or a pool of them, take entries not quite in order. So a step that is only a few entries off
//! speaks neither for nor against an order that is believed.

use super::Action;
use super::classes::{Classes, Expectation};
use super::folders::{FolderId, Listed};
use super::listing::{EntryIndex, Kind, ORDERS, Order};

/// Belief for a step that fits, and its bound.
const FIT: u8 = 2;
const BELIEF_MAX: u8 = 8;

/// In a folder of fewer entries, a step that fits may do so by chance, and counts half.
const SMALL_ENTRIES: u32 = 16;

/// From here on an order is believed: two steps, or three where data follows from it.
const BELIEVED: u8 = 2 * FIT;
const BELIEVED_OPEN: u8 = 3 * FIT;

/// Entries that a step may be off.
const NEAR: u32 = 8;

/// Entries of unmet classes that a step may go over and fit: more say less.
const UNMET_MAX: u32 = 16;

/// Entries that a step may go over at all, which bounds the time to judge it.
const GAP_MAX: u32 = 1024;

/// The first window, in entries. It doubles with each step that fits.
const WINDOW_MIN: u32 = 8;

/// Where threads of a process are at a time.
const PLACES_MAX: usize = 8;

/// A place that was not left for so many touches is given up.
const PLACE_TOUCHES: u64 = 64;

/// How a step goes with an order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Step {
    Fits,
    /// It is a few entries off.
    Near,
    Astray,
}

/// A place of the process.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place {
    pub(super) folder: FolderId,
    pub(super) entry: EntryIndex,
    at: u64,
}

/// What is believed of one action of a process.
#[derive(Debug)]
pub(super) struct Track {
    action: Action,
    beliefs: [u8; ORDERS.len()],
    /// The order that is believed most. Of several, the one that was before: in small folders several orders fit.
    best: usize,
    window: u32,
    window_max: u32,
    places: Vec<Place>,
    touches: u64,
}

impl Track {
    /// Goes at most `window_max` entries ahead.
    pub(super) fn new(action: Action, window_max: u32) -> Self {
        let window = WINDOW_MIN.min(window_max);
        Track {
            action,
            beliefs: [0; _],
            best: 0,
            window,
            window_max,
            places: Vec::new(),
            touches: 0,
        }
    }

    /// The order that is believed most.
    pub(super) fn best(&self) -> Order {
        ORDERS[self.best]
    }

    pub(super) fn is_believed(&self) -> bool {
        let least = if self.action == Action::Open { BELIEVED_OPEN } else { BELIEVED };
        self.beliefs[self.best] >= least
    }

    /// Whether an order is believed as much as can be: a new folder needs no proof.
    pub(super) fn is_certain(&self) -> bool {
        self.beliefs[self.best] == BELIEF_MAX
    }

    /// How many entries to go ahead, 0 while no order is believed.
    pub(super) fn window(&self) -> u32 {
        if self.is_believed() { self.window } else { 0 }
    }

    /// Number of touches so far.
    pub(super) fn touches(&self) -> u64 {
        self.touches
    }

    /// Where the process is, the latest place first.
    pub(super) fn places(&self) -> &[Place] {
        &self.places
    }

    /// Forgets where the process is: it was not watched for a while.
    pub(super) fn forget_places(&mut self) {
        self.places.clear();
    }

    /// The process begins again with this folder.
    pub(super) fn leave(&mut self, folder: FolderId) {
        self.places.retain(|place| place.folder != folder);
    }

    /// Takes in that the process has come to `entry`. Returns the recent entry that it came from, by its number.
    pub(super) fn step(
        &mut self,
        listed: &Listed,
        classes: &mut Classes,
        entry: EntryIndex,
    ) -> Option<usize> {
        let recent = listed.recent(self.action);
        let (mut found, best) = (None, self.best);
        for (number, &from) in recent.iter().enumerate() {
            let steps = self.judge(listed, classes, Some(from), entry);
            let fits = match self.is_believed() {
                true => steps[best] != Step::Astray,
                false => steps.contains(&Step::Fits),
            };
            if fits || number == 0 {
                found = Some((number, steps));
            }
            if fits {
                break;
            }
        }
        let Some((number, steps)) = found else {
            // The first entry of this folder: a program may begin anywhere.
            let steps = self.judge(listed, classes, None, entry);
            if steps.contains(&Step::Fits) && steps.iter().any(|&step| step != Step::Fits) {
                self.learn(listed, steps);
            }
            return None;
        };
        self.learn(listed, steps);
        let best = self.best;
        if steps[best] == Step::Fits {
            self.learn_filter(listed, classes, recent[number], entry);
        }
        // A step astray is no step: the process has another place here.
        (steps[best] != Step::Astray).then_some(number)
    }

    /// Whether an entry can be one of this action's at all.
    fn concerns(&self, kind: Kind) -> bool {
        match self.action {
            Action::Look => true,
            Action::Open => kind != Kind::Folder,
            Action::List => matches!(kind, Kind::Folder | Kind::Unknown),
        }
    }

    /// Compares the step from one entry (`None`: from the beginning) to another with each order.
    fn judge(
        &self,
        listed: &Listed,
        classes: &Classes,
        from: Option<EntryIndex>,
        to: EntryIndex,
    ) -> [Step; ORDERS.len()] {
        ORDERS.map(|order| self.judge_order(listed, classes, order, (from, to)))
    }

    fn judge_order(
        &self,
        listed: &Listed,
        classes: &Classes,
        order: Order,
        (from, to): (Option<EntryIndex>, EntryIndex),
    ) -> Step {
        let place = |entry| listed.listing.place(order, entry);
        let (first, end) = (from.map_or(0, |from| place(from) + 1), place(to));
        if end < first {
            return if first - end <= NEAR { Step::Near } else { Step::Astray };
        }
        if end - first > GAP_MAX {
            return Step::Astray;
        }
        let (mut unmet, mut taken) = (0, 0);
        for entry in (first..end).map(|place| listed.listing.at(order, place)) {
            if !self.concerns(listed.listing.kind(entry)) || listed.is_done(entry, self.action) {
                continue;
            }
            match classes.met(self.action, listed.class(entry)) {
                Expectation::Taken => taken += 1,
                Expectation::Unmet => unmet += 1,
                Expectation::Passed => {}
            }
            if taken > NEAR {
                return Step::Astray;
            }
        }
        if taken == 0 && unmet <= UNMET_MAX { Step::Fits } else { Step::Near }
    }

    fn learn(&mut self, listed: &Listed, steps: [Step; ORDERS.len()]) {
        let fit = if listed.listing.len() < SMALL_ENTRIES { FIT / 2 } else { FIT };
        let best = self.best;
        match steps[best] {
            Step::Fits if self.is_believed() => {
                self.window = (self.window * 2).min(self.window_max);
            }
            Step::Astray => self.window = (self.window / 2).max(WINDOW_MIN.min(self.window_max)),
            _ => {}
        }
        for (belief, step) in self.beliefs.iter_mut().zip(steps) {
            match step {
                Step::Fits => *belief = (*belief + fit).min(BELIEF_MAX),
                Step::Near if *belief < BELIEVED => *belief /= 2,
                Step::Near => {}
                Step::Astray => *belief /= 2,
            }
        }
        for (order, &belief) in self.beliefs.iter().enumerate() {
            if belief > self.beliefs[self.best] {
                self.best = order;
            }
        }
    }

    /// The classes that the step goes over are passed over.
    fn learn_filter(
        &self,
        listed: &Listed,
        classes: &mut Classes,
        from: EntryIndex,
        to: EntryIndex,
    ) {
        let order = self.best();
        let (from, to) = (listed.listing.place(order, from), listed.listing.place(order, to));
        for entry in (from + 1..to).map(|place| listed.listing.at(order, place)) {
            if self.concerns(listed.listing.kind(entry)) && !listed.is_done(entry, self.action) {
                classes.pass(self.action, listed.class(entry));
            }
        }
    }

    /// Notes the place of the process. `leaves` tells which of the other places it has left with that.
    pub(super) fn come(
        &mut self,
        folder: FolderId,
        entry: EntryIndex,
        leaves: impl Fn(&Place) -> bool,
    ) {
        self.touches += 1;
        let at = self.touches;
        self.places.retain(|place| at - place.at < PLACE_TOUCHES && !leaves(place));
        self.places.insert(0, Place { folder, entry, at });
        self.places.truncate(PLACES_MAX);
    }
}
