//! Which streams name which files. The arbiter offers a block to the streams that name its file, and a driver keeps wanted
//! files open.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::blocks::{DeviceIndex, StreamIndex};
use crate::hint::FileId;
use crate::streams::stream::index::FileChange;
use crate::tables::hash::Mix;
use crate::tables::shrinking::shrink_map;

/// A file that hints name, and the device at which it counts. Two names of one file may be given with two devices.
#[derive(Debug)]
struct Wanted {
    streams: Streams,
    /// Hints that it was looked up for and that are not placed yet.
    held: u32,
    device: DeviceIndex,
}

/// The streams that name a file. Usually there is one, which is stored in place.
#[derive(Debug)]
enum Streams {
    None,
    One([StreamIndex; 1]),
    /// Several streams name the file; they are in [`Files::several`].
    Several,
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Files {
    wanted: HashMap<FileId, Wanted, Mix>,
    /// For each file that several streams name, those streams.
    several: HashMap<FileId, Vec<StreamIndex>, Mix>,
    /// For each stream, how many of its files other streams name too.
    shared: Vec<u32>,
    /// Number of wanted files at each device.
    at_device: Vec<usize>,
    released: Vec<FileId>,
}

impl Files {
    /// Notes that a stream begins or ceases to name a file.
    pub(crate) fn note(&mut self, stream: StreamIndex, change: FileChange) {
        match change {
            FileChange::Came(file, device) => {
                want(&mut self.wanted, &mut self.at_device, file, device);
                self.count_shared(stream, file, 1);
                self.add(stream, file);
            }
            FileChange::Went(file) => {
                if self.remove(stream, file) {
                    self.count_shared(stream, file, -1);
                    self.release(file);
                }
            }
        }
    }

    /// Adds `stream` to the streams of a wanted file.
    fn add(&mut self, stream: StreamIndex, file: FileId) {
        let Some(Wanted { streams, .. }) = self.wanted.get_mut(&file) else { return };
        match *streams {
            Streams::None => *streams = Streams::One([stream]),
            Streams::One([one]) => {
                *streams = Streams::Several;
                self.several.insert(file, vec![one, stream]);
            }
            Streams::Several => self.several.entry(file).or_default().push(stream),
        }
    }

    /// Removes `stream` from the streams of a file. Returns whether it was one.
    fn remove(&mut self, stream: StreamIndex, file: FileId) -> bool {
        let Some(Wanted { streams, .. }) = self.wanted.get_mut(&file) else { return false };
        match *streams {
            Streams::One([one]) if one == stream => *streams = Streams::None,
            Streams::None | Streams::One(_) => return false,
            Streams::Several => {
                let Some(several) = self.several.get_mut(&file) else { return false };
                let before = several.len();
                several.retain(|&other| other != stream);
                if several.len() == before {
                    return false;
                }
                if let [one] = several[..] {
                    *streams = Streams::One([one]);
                    self.several.remove(&file);
                    shrink_map(&mut self.several);
                }
            }
        }
        true
    }

    /// Forgets a file that is no longer wanted.
    fn release(&mut self, file: FileId) {
        if let Entry::Occupied(wanted) = self.wanted.entry(file)
            && wanted.get().held == 0
            && matches!(wanted.get().streams, Streams::None)
        {
            self.at_device[usize::from(wanted.get().device.0)] -= 1;
            wanted.remove();
            self.released.push(file);
            shrink_map(&mut self.wanted);
        }
    }

    /// The streams that name `file`.
    #[inline]
    pub(crate) fn named_by(&self, file: FileId) -> &[StreamIndex] {
        match self.wanted.get(&file).map(|wanted| &wanted.streams) {
            None | Some(Streams::None) => &[],
            Some(Streams::One(one)) => one,
            Some(Streams::Several) => self.named_by_several(file),
        }
    }

    #[inline(never)] // The rarer part.
    fn named_by_several(&self, file: FileId) -> &[StreamIndex] {
        self.several.get(&file).map_or(&[], |several| several)
    }

    /// Updates the counts of shared files when `stream` begins to name the file, or has ceased to.
    fn count_shared(&mut self, stream: StreamIndex, file: FileId, by: i32) {
        let other = match *self.named_by(file) {
            [] => return,
            [other] => Some(other), // `other` begins to share the file, or ceases to.
            _ => None,
        };
        for StreamIndex(index) in other.into_iter().chain([stream]) {
            let index = index as usize;
            if self.shared.len() <= index {
                self.shared.resize(index + 1, 0);
            }
            let files = &mut self.shared[index];
            *files = files.checked_add_signed(by).expect("as many went as came");
        }
    }

    /// Whether other streams name a file that `stream` names.
    pub(crate) fn shares(&self, stream: StreamIndex) -> bool {
        self.shared.get(stream.0 as usize).is_some_and(|&files| files > 0)
    }

    /// Asserts that the count of files that `stream` shares is right.
    #[cfg(any(test, debug_assertions))]
    pub(crate) fn check_shared(&self, stream: StreamIndex) {
        let shared = self.several.values().filter(|named| named.contains(&stream)).count();
        assert!(self.several.values().all(|named| named.len() > 1));
        let counted = self.shared.get(stream.0 as usize).copied().unwrap_or(0);
        assert_eq!(counted as usize, shared, "files that {stream:?} shares");
    }

    /// Files of `device` that hints name, placed or waiting.
    pub(crate) fn wanted_at(&self, device: DeviceIndex) -> usize {
        self.at_device.get(usize::from(device.0)).copied().unwrap_or(0)
    }

    /// `file` was looked up at `device` for a hint.
    pub(crate) fn hold(&mut self, file: FileId, device: DeviceIndex) {
        want(&mut self.wanted, &mut self.at_device, file, device).held += 1;
    }

    /// The hint was placed or dropped.
    pub(crate) fn unhold(&mut self, file: FileId) {
        if let Some(wanted) = self.wanted.get_mut(&file) {
            wanted.held -= 1;
            self.release(file);
        }
    }

    /// Whether any hint names `file`.
    pub(crate) fn is_wanted(&self, file: FileId) -> bool {
        self.wanted.contains_key(&file)
    }

    /// Files that ceased to be wanted since the last call. Some may be wanted again.
    pub(crate) fn take_released(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.released)
    }
}

/// The entry of a wanted file; a new one is counted at `device`.
fn want<'a>(
    wanted: &'a mut HashMap<FileId, Wanted, Mix>,
    at_device: &mut Vec<usize>,
    file: FileId,
    device: DeviceIndex,
) -> &'a mut Wanted {
    wanted.entry(file).or_insert_with(|| {
        let index = usize::from(device.0);
        if at_device.len() <= index {
            at_device.resize(index + 1, 0);
        }
        at_device[index] += 1;
        Wanted { streams: Streams::None, held: 0, device }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_names_a_file_with_others_shares_it_until_they_have_gone() {
        let mut files = Files::default();
        let streams = [0, 1, 2].map(StreamIndex);
        let came = |file| FileChange::Came(FileId(file), DeviceIndex(0));
        let went = |file| FileChange::Went(FileId(file));
        let mut after = |stream: usize, change| {
            files.note(streams[stream], change);
            streams.iter().for_each(|&stream| files.check_shared(stream));
            streams.map(|stream| files.shares(stream))
        };
        assert_eq!(after(0, came(1)), [false, false, false]);
        assert_eq!(after(1, came(2)), [false, false, false]);
        assert_eq!(after(1, came(1)), [true, true, false]);
        assert_eq!(after(2, came(1)), [true, true, true]);
        assert_eq!(after(2, came(2)), [true, true, true]);
        assert_eq!(after(0, went(1)), [false, true, true]);
        assert_eq!(after(2, went(1)), [false, true, true]);
        assert_eq!(after(1, went(2)), [false, false, false]);
        assert_eq!(after(1, went(1)), [false, false, false]);
    }
}
