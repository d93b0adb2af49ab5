//! Walks of folders: which names and files a process will come to, told from those that it has come to.
//!
//! Decides what to look up, list and read ahead for one process. It is pure: it does no I/O and reads no clock.
//!
//! How:
//! * A. A process's calls arrive as [`Touch`]es of an entry of a folder. Each is one [`Action`]: look at attributes, open,
//!   list. The actions are followed apart, since a program may ask for the attributes of all files and open the headers.
//! * B. A folder that a waiting process has opened is listed, and so is one of which it has touched [`SIBLINGS`] entries
//!   (`git status` lists no folder before it has looked at all files). Touches that came before the listing are made up for.
//! * C. Each touch is a step from an entry to the next. [`belief`] tells which order of the folder's entries the steps follow,
//!   and [`classes`] which entries they leave out. Both belong to the process, so that a new folder begins with what was learnt
//!   in others.
//! * D. From the places where the process is, [`ahead`] goes on in that order, down into folders whose listings are known and
//!   up again. What it meets within the action's window is requested, in the order in which the process will want it.
//!   A file's data is requested in folders that the process has opened, for others it may not know the entries of. A process
//!   that was not watched for a while may have opened any folder, so one through which it goes in order counts too.
//! * E. Nothing is requested while the process does not wait ([`waiting`]).
//!
//! Invariants: a name is requested at most once for each action in one pass through its folder. Memory and time of a call are
//! bounded whatever the process touches. Paths come in an absolute and plain form.
//!
//! A wrong guess costs a lookup, and lowers the belief in the order that led to it.
//!
//! Statahead of Lustre's client (`llite/statahead.c`) follows one process through one folder, in listed order or sorted.

mod ahead;
mod belief;
mod classes;
mod folders;
pub(crate) mod listing;
#[cfg(test)]
mod tests;
mod waiting;

use std::sync::Arc;

use ahead::{Ahead, Coming, Manner};
use belief::{Place, Track};
use classes::Classes;
use folders::{Contents, FolderId, Folders, Listed, join, split};
use listing::{EntryIndex, Listing, Order};
use waiting::Waits;

/// Most names that are looked up ahead of a process. Its window seldom needs to be larger than what devices work on at a time.
const LOOKS_MAX: u32 = 1024;

/// Most folders that are listed ahead of a process.
const LISTS_MAX: u32 = 64;

/// Most files that are disclosed ahead of a process. The policy bounds their bytes.
const FILES_MAX: u32 = 256;

/// Touches of different entries of a folder that the process has not opened, after which it is listed.
const SIBLINGS: usize = 3;

/// Folders that are listed for their siblings without one step that fits. Programs that search a path touch many folders.
const GUESSES_MAX: u32 = 16;

/// Folders that wait to be listed because the process goes through them.
const WANTED_MAX: usize = 64;

/// Files directly ahead that are not requested: the process opens them before they could be fetched. The policy would find them
/// in memory, and take the files behind them for cached too.
const HEAD_START: u32 = 2;

/// After a search has found all there is, the next one comes when this part of the entries ahead may be used.
const SCAN_DIVISOR: u64 = 8;

/// Nor before one touch for so many entries that it looked at, 2 µs: most of them may have been used already.
const SCAN_STEPS: u64 = 256;

/// Steps in a folder that the process may have opened unseen, from which on files there are read ahead. Fewer may be chance.
const UNSEEN_STEPS: u32 = 3;

/// Bound of the evidence for inline and deferred walks.
const MANNER_MAX: i8 = 4;

/// Entries behind a folder that are looked at for such evidence.
const MANNER_ENTRIES: u32 = 64;

/// What a process does with an entry of a folder.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    /// It asks for attributes or a link's target.
    Look,
    /// It opens it, and it is no folder.
    Open,
    /// It opens it, and it is a folder.
    List,
}

impl Action {
    const COUNT: usize = 3;
}

/// A call of a process that names an entry.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Touch<'a> {
    /// Absolute path of the folder.
    pub(crate) folder: &'a [u8],
    /// Name of the entry; empty for the folder itself.
    pub(crate) name: &'a [u8],
    pub(crate) action: Action,
    /// Whether the call took so long that it has waited for a device.
    pub(crate) waited: bool,
}

/// What to do ahead of a process. Paths are absolute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    /// List this folder. With a `device`, only if it is on this one.
    List { folder: Arc<[u8]>, device: Option<u64> },
    /// Look this name up, on the device of this number (`st_dev`).
    Look { path: Box<[u8]>, device: u64 },
    /// Read this file. Files are read in this order of their folders, with those below a folder after all of its files if
    /// `is_deferred`, else in the folder's place.
    Data { path: Box<[u8]>, order: Order, is_deferred: bool },
    /// The files requested before and not read yet are not expected any more.
    Cancel,
}

/// How much may be requested.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Room {
    /// Lookups and listings.
    pub(crate) names: usize,
    pub(crate) files: usize,
}

/// Names looked up ahead, listed folders included.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Counts {
    pub(crate) names_ahead: u64,
    /// Those that the process has come to.
    pub(crate) names_used: u64,
}

/// The walks of one process; see the [module](self).
#[derive(Debug)]
pub(crate) struct Walk {
    folders: Folders,
    classes: Classes,
    tracks: [Track; Action::COUNT],
    waits: Waits,
    /// The process was not watched for a while, so it may have opened folders unseen.
    has_been_unseen: bool,
    /// Folders to be listed because the process goes through them.
    wanted: Vec<FolderId>,
    guesses: u32,
    /// Evidence for deferred walks; below 0 for inline ones.
    deferred: i8,
    /// Files were requested since the last cancel.
    has_files: bool,
    counts: Counts,
    /// For each action: the last search for names to look up, and the last one for what the action itself does.
    scans: [[Scan; 2]; Action::COUNT],
}

/// A search that has found all there is.
#[derive(Clone, Copy, Debug, Default)]
struct Scan {
    window: u32,
    /// It holds until so many touches.
    touches: u64,
}

impl Scan {
    fn is_recent(&self, window: u32, touches: u64) -> bool {
        window <= self.window && touches < self.touches
    }
}

impl Walk {
    pub(crate) fn new() -> Self {
        Walk {
            folders: Folders::default(),
            classes: Classes::default(),
            tracks: [
                Track::new(Action::Look, LOOKS_MAX),
                Track::new(Action::Open, FILES_MAX),
                Track::new(Action::List, LISTS_MAX),
            ],
            waits: Waits::default(),
            has_been_unseen: false,
            wanted: Vec::new(),
            guesses: 0,
            deferred: 0,
            has_files: false,
            counts: Counts::default(),
            scans: Default::default(),
        }
    }

    pub(crate) fn counts(&self) -> Counts {
        self.counts
    }

    /// Whether something may be requested: the process waits and its order is known, or a listing may tell it.
    pub(crate) fn is_under_way(&self) -> bool {
        self.waits.any() && (!self.wanted.is_empty() || self.tracks.iter().any(Track::is_believed))
    }

    /// Bytes that it takes, about.
    pub(crate) fn memory_bytes(&self) -> usize {
        size_of::<Self>() + self.folders.memory_bytes()
    }

    /// The process was not watched for a while: it may be anywhere.
    pub(crate) fn lose_sight(&mut self) {
        self.tracks.iter_mut().for_each(Track::forget_places);
        self.has_been_unseen = true;
    }

    /// Reads of the process have waited.
    pub(crate) fn has_waited(&mut self) {
        self.waits.read_waited();
    }

    /// Whether the process's slow calls have nothing to do with devices.
    pub(crate) fn is_noise(&self) -> bool {
        self.waits.is_noise()
    }

    /// Takes in a call of the process.
    pub(crate) fn touch(&mut self, touch: Touch) {
        if touch.action == Action::Open {
            self.waits.opens();
        }
        let is_idle = !self.has_files && (self.counts.names_ahead == 0 || self.waits.is_noise());
        if !touch.waited && is_idle && !self.waits.any() {
            // E: all that matters is which folders it knows.
            if touch.action == Action::List {
                let path = join(touch.folder, touch.name);
                let folder =
                    self.folders.of(if touch.name.is_empty() { touch.folder } else { &path });
                self.opened(folder);
            }
            return;
        }
        let folder = self.folders.of(touch.folder);
        self.folders.note_use(folder);
        self.enter(folder);
        if touch.name.is_empty() {
            self.waits.call(None, touch.waited, false);
            if touch.action == Action::List {
                self.opened(folder);
            }
            return;
        }
        let listed = self.folders.listed(folder);
        let is_listed = listed.is_some();
        let entry = listed.and_then(|listed| listed.listing.find(touch.name));
        let is_ahead = |entry| {
            let asked = |action| listed.is_some_and(|listed| listed.is_asked(entry, action));
            asked(Action::Look) || asked(Action::Open) || asked(Action::List)
        };
        let device = listed.map(|listed| listed.listing.device());
        self.waits.call(device, touch.waited, entry.is_some_and(is_ahead));
        if let Some(entry) = entry {
            self.come(folder, entry, touch.action);
        } else if !is_listed && let Some(of) = self.folders.get_mut(folder) {
            of.keep(touch.name, touch.action, touch.waited);
            self.want(folder);
        }
        if touch.action == Action::List {
            let child = entry.and_then(|entry| self.folders.child_made(folder, entry));
            let child = child.unwrap_or_else(|| self.folders.of(&join(touch.folder, touch.name)));
            self.opened(child);
        }
    }

    /// The process comes to a folder that it has not opened: as far as walks go, it does now. So do the folders above.
    fn enter(&mut self, folder: FolderId) {
        let mut at = Some(folder);
        while let Some(of) = at.and_then(|at| self.folders.get_mut(at))
            && !std::mem::replace(&mut of.is_entered, true)
            && !of.is_opened
        {
            let path = Arc::clone(&of.path);
            let Some((above, name)) = split(&path) else { return };
            let above = self.folders.of(above);
            match self.folders.listed(above).map(|listed| listed.listing.find(name)) {
                Some(Some(entry)) => {
                    let deferred = self.deferred;
                    self.come(above, entry, Action::List);
                    self.deferred = deferred; // Threads enter folders in another order.
                    let _ = self.folders.child_made(above, entry);
                }
                Some(None) => return,
                None => {
                    if let Some(of) = self.folders.get_mut(above) {
                        of.keep(name, Action::List, false);
                    }
                    self.want(above);
                }
            }
            at = Some(above);
        }
    }

    /// The process has opened a folder.
    fn opened(&mut self, folder: FolderId) {
        self.folders.note_use(folder);
        let Some(of) = self.folders.get_mut(folder) else { return };
        let is_done = |listed: &Listed| {
            [Action::Look, Action::Open, Action::List]
                .iter()
                .any(|&action| !listed.recent(action).is_empty())
        };
        let begins_again = of.listed().is_some_and(is_done);
        (of.is_opened, of.is_own) = (true, true);
        if begins_again {
            self.tracks.iter_mut().for_each(|track| track.leave(folder));
            self.folders.unlist(folder);
        }
        self.want(folder);
    }

    /// B: has a folder listed if the process goes through it.
    fn want(&mut self, folder: FolderId) {
        let Some(of) = self.folders.get(folder) else { return };
        let is_guess = !of.is_opened;
        if !matches!(of.contents, Contents::Unknown)
            || !self.waits.any()
            || self.wanted.len() >= WANTED_MAX
            || self.wanted.contains(&folder)
            || is_guess && (of.early.len() < SIBLINGS || self.guesses >= GUESSES_MAX)
        {
            return;
        }
        self.guesses += u32::from(is_guess);
        self.wanted.push(folder);
    }

    /// C: the process comes to an entry.
    fn come(&mut self, folder: FolderId, entry: EntryIndex, action: Action) {
        let track = &mut self.tracks[action as usize];
        let Some(listed) = self.folders.listed_mut(folder) else { return };
        self.counts.names_used += u64::from(listed.do_to(entry, action));
        if listed.recent(action).first() == Some(&entry) {
            return;
        }
        let from = track.step(listed, &mut self.classes, entry);
        let came_from = from.map(|from| listed.recent(action)[from]);
        self.classes.take(action, listed.class(entry));
        if from.is_some() {
            self.guesses = 0;
        }
        let is_first = listed.recent(action).is_empty();
        listed.come(action, from, entry);
        let folders = &self.folders;
        let path = |of| folders.get(of).map(|of| &*of.path);
        let here = path(folder).unwrap_or_default();
        // A thread that begins another folder is through with the one before.
        let latest = self.tracks[action as usize].places().first().copied();
        self.tracks[action as usize].come(folder, entry, |place: &Place| {
            if is_first && latest.as_ref() == Some(place) {
                return true;
            }
            let there = path(place.folder).unwrap_or_default();
            match place.folder == folder {
                true => Some(place.entry) == came_from,
                false => is_below(here, there) || is_below(there, here),
            }
        });
        if action == Action::List {
            self.learn_manner(folder, entry);
        }
    }

    /// Whether the process went into the folder at `entry` when it came to it, or when it was through with all entries.
    fn learn_manner(&mut self, folder: FolderId, entry: EntryIndex) {
        let Some(listed) = self.folders.listed(folder) else { return };
        for action in [Action::Look, Action::Open] {
            let order = self.tracks[action as usize].best();
            let place = |entry| listed.listing.place(order, entry);
            // It looks at the folder itself just before.
            let last = listed.recent(action).iter().find(|&&last| last != entry);
            let Some(&last) = last else { continue };
            if place(last) > place(entry) {
                self.deferred = (self.deferred + 1).min(MANNER_MAX);
            } else if self.leaves_some(listed, action, entry) {
                self.deferred = (self.deferred - 1).max(-MANNER_MAX);
            }
        }
    }

    /// Whether `action` is expected of entries behind `entry`.
    fn leaves_some(&self, listed: &Listed, action: Action, entry: EntryIndex) -> bool {
        let order = self.tracks[action as usize].best();
        let next = listed.listing.place(order, entry) + 1;
        let end = listed.listing.len().min(next + MANNER_ENTRIES);
        (next..end).map(|place| listed.listing.at(order, place)).any(|entry| {
            !listed.is_folder(entry)
                && !listed.is_done(entry, action)
                && self.classes.expects(action, listed.class(entry))
        })
    }

    /// A folder was listed, or cannot be. `waited` says whether that took as long as a device takes.
    pub(crate) fn listed(&mut self, folder: &[u8], listing: Option<Arc<Listing>>, waited: bool) {
        if let Some(listing) = &listing {
            self.waits.lookup(listing.device(), waited);
        }
        self.scans = Default::default();
        let Some(folder) = self.folders.known(folder) else { return };
        let Some(of) = self.folders.get_mut(folder) else { return };
        let early = std::mem::take(&mut of.early);
        let listed = listing.map(|listing| Listed::new(listing, &mut self.classes));
        self.folders.list(folder, listed);
        for (name, action, waited) in early {
            let Some(listed) = self.folders.listed(folder) else { return };
            if waited {
                self.waits.call(Some(listed.listing.device()), true, false);
            }
            let Some(entry) = listed.listing.find(&name) else { continue };
            self.come(folder, entry, action);
            if action == Action::List {
                let _ = self.folders.child_made(folder, entry);
            }
        }
    }

    /// A name on `device` was looked up.
    pub(crate) fn looked_up(&mut self, device: u64, waited: bool) {
        self.waits.lookup(device, waited);
    }

    /// D: what to do ahead, in this order.
    pub(crate) fn requests(&mut self, mut room: Room) -> Vec<Request> {
        let mut requests = Vec::new();
        let opens = &self.tracks[Action::Open as usize];
        let (order, is_deferred) = (opens.best(), self.deferred > 0);
        if self.has_files && !opens.is_believed() && !opens.places().is_empty() {
            self.has_files = false;
            requests.push(Request::Cancel);
        }
        if !self.waits.any() {
            return requests;
        }
        while room.names > 0
            && let Some(folder) = self.wanted.pop()
        {
            if let Some(of) = self.folders.get_mut(folder)
                && matches!(of.contents, Contents::Unknown)
            {
                of.contents = Contents::Asked;
                requests.push(Request::List { folder: Arc::clone(&of.path), device: None });
                room.names -= 1;
            }
        }
        for (folder, entry) in self.coming(Action::List, Action::List, room.names) {
            room.names -= 1;
            requests.extend(self.list_ahead(folder, entry));
        }
        for (folder, entry) in self.coming(Action::Open, Action::Open, room.files) {
            self.has_files = true;
            let path = self.path_of(folder, entry, Action::Open);
            requests.extend(path.map(|(path, _)| Request::Data { path, order, is_deferred }));
        }
        for action in [Action::Open, Action::Look] {
            for (folder, entry) in self.coming(action, Action::Look, room.names) {
                room.names -= 1;
                self.counts.names_ahead += 1;
                let path = self.path_of(folder, entry, Action::Look);
                requests.extend(path.map(|(path, device)| Request::Look { path, device }));
            }
        }
        requests
    }

    /// The next entries to which the process will do `action` and for which `asked` has not been requested, at most `most`.
    fn coming(
        &mut self,
        action: Action,
        asked: Action,
        most: usize,
    ) -> Vec<(FolderId, EntryIndex)> {
        let track = &self.tracks[action as usize];
        let scan = self.scans[action as usize][usize::from(action == asked)];
        let (window, touches) = (track.window(), track.touches());
        if most == 0 || window == 0 || scan.is_recent(window, touches) {
            return Vec::new();
        }
        let lists = self.tracks[Action::List as usize].best();
        let deferred = (action != Action::List && self.deferred > 0).then_some(lists);
        let manner = Manner { action, order: track.best(), deferred };
        let (mut coming, mut seen, mut steps) = (Vec::new(), 0, 0_u64);
        let places = track.places();
        for place in places {
            if coming.len() >= most {
                break;
            }
            let recent = self.folders.listed(place.folder).map_or(0, |of| of.recent(action).len());
            if asked == Action::Open && recent < 2 && !track.is_certain() {
                continue;
            }
            let (mut left, mut near) = (window.div_ceil(places.len() as u32), 0);
            let mut ahead = Ahead::new(&self.folders, manner, (place.folder, place.entry));
            for next in ahead.by_ref() {
                let (entry, of, listed) = match next {
                    Coming::Entry(entry, of, listed) => (entry, of, listed),
                    // Files are disclosed in the order of reading.
                    Coming::Unlisted if asked == Action::Open => break,
                    Coming::Unlisted => continue,
                };
                if !self.is_expected(listed, entry.1, action)
                    || asked == Action::Open && !of.is_own && !self.is_proven(listed, action)
                    || !(self.waits.is_waiting(listed.listing.device())
                        || asked != Action::Look && self.waits.reads_wait())
                {
                    continue;
                }
                // Listing begins with a lookup.
                let is_asked = listed.is_asked(entry.1, asked)
                    || asked == Action::Look && listed.is_asked(entry.1, Action::List);
                let is_too_near = asked == Action::Open && near < HEAD_START;
                near += 1;
                if !is_asked && !is_too_near && !coming.contains(&entry) {
                    coming.push(entry);
                }
                (left, seen) = (left - 1, seen + 1);
                if left == 0 || coming.len() >= most {
                    break;
                }
            }
            steps += u64::from(ahead.steps());
        }
        if coming.len() < most {
            let scan = &mut self.scans[action as usize][usize::from(action == asked)];
            *scan =
                Scan { window, touches: touches + (seen / SCAN_DIVISOR).max(steps / SCAN_STEPS) };
        }
        coming
    }

    /// Whether the process may have opened a folder unseen, and goes through it in an order that is certain.
    fn is_proven(&self, listed: &Listed, action: Action) -> bool {
        self.has_been_unseen
            && self.tracks[action as usize].is_certain()
            && listed.steps(action) >= UNSEEN_STEPS
    }

    /// Whether the process is expected to do `action` to an entry, and has not done it.
    fn is_expected(&self, listed: &Listed, entry: EntryIndex, action: Action) -> bool {
        let is_wanted = match action {
            Action::List => listed.is_folder(entry),
            Action::Open => !listed.is_folder(entry),
            Action::Look => true,
        };
        is_wanted
            && !listed.is_done(entry, action)
            && self.classes.expects(action, listed.class(entry))
    }

    fn list_ahead(&mut self, folder: FolderId, entry: EntryIndex) -> Option<Request> {
        let listed = self.folders.listed_mut(folder)?;
        let device = listed.listing.device();
        let is_new = !listed.is_asked(entry, Action::Look);
        listed.ask(entry, Action::List);
        let is_own = self.folders.get(folder)?.is_own;
        let child = self.folders.child_made(folder, entry)?;
        let child = self.folders.get_mut(child)?;
        child.is_own |= is_own;
        if !matches!(child.contents, Contents::Unknown) {
            return None;
        }
        child.contents = Contents::Asked;
        self.counts.names_ahead += u64::from(is_new);
        Some(Request::List { folder: Arc::clone(&child.path), device: Some(device) })
    }

    /// The path of an entry for which `asked` is requested, and its folder's device.
    fn path_of(
        &mut self,
        folder: FolderId,
        entry: EntryIndex,
        asked: Action,
    ) -> Option<(Box<[u8]>, u64)> {
        let of = self.folders.get_mut(folder)?;
        let path = Arc::clone(&of.path);
        let listed = of.listed_mut()?;
        listed.ask(entry, asked);
        let path = join(&path, listed.listing.name(entry));
        Some((path.into(), listed.listing.device()))
    }
}

/// Whether `path` lies below `folder`.
fn is_below(path: &[u8], folder: &[u8]) -> bool {
    path.strip_prefix(folder).is_some_and(|rest| rest.first() == Some(&b'/') || folder == b"/")
}
