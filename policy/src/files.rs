//! Which streams name which files, so that a block can be offered to whoever may want it, and a driver
//! knows which files to keep open.

use hashbrown::HashMap;
use hashbrown::hash_map::Entry;

use crate::blocks::{DeviceIndex, StreamIndex};
use crate::hash::Mix;
use crate::hint::FileId;
use crate::stream::index::FileChange;

/// The streams that name a file, and the device at which it counts: two names of one file may be said to
/// be on two.
#[derive(Debug)]
struct Named {
    streams: Streams,
    device: DeviceIndex,
}

/// Mostly it is one, which is found without another step.
#[derive(Debug)]
enum Streams {
    One([StreamIndex; 1]),
    Several(Vec<StreamIndex>),
}

impl Streams {
    fn all(&self) -> &[StreamIndex] {
        match self {
            Streams::One(one) => one,
            Streams::Several(several) => several,
        }
    }

    fn add(&mut self, stream: StreamIndex) {
        match self {
            Streams::One([one]) => *self = Streams::Several(vec![*one, stream]),
            Streams::Several(several) => several.push(stream),
        }
    }

    /// Returns whether any is left.
    fn remove(&mut self, stream: StreamIndex) -> bool {
        match self {
            Streams::One([one]) => *one != stream,
            Streams::Several(several) => {
                several.retain(|&other| other != stream);
                !several.is_empty()
            }
        }
    }
}

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Files {
    named_by: HashMap<FileId, Named, Mix>,
    /// Files that were looked up for hints that have no place yet, by how many hints.
    held: HashMap<FileId, u32, Mix>,
    /// Files named at each device.
    at_device: Vec<usize>,
    released: Vec<FileId>,
}

impl Files {
    /// A stream has begun or ceased to name a file.
    pub(crate) fn note(&mut self, stream: StreamIndex, change: FileChange) {
        match change {
            FileChange::Came(file, device) => match self.named_by.entry(file) {
                Entry::Occupied(named) => named.into_mut().streams.add(stream),
                Entry::Vacant(place) => {
                    let index = usize::from(device.0);
                    if self.at_device.len() <= index {
                        self.at_device.resize(index + 1, 0);
                    }
                    self.at_device[index] += 1;
                    place.insert(Named { streams: Streams::One([stream]), device });
                }
            },
            FileChange::Went(file) => {
                let Some(named) = self.named_by.get_mut(&file) else { return };
                if !named.streams.remove(stream) {
                    self.at_device[usize::from(named.device.0)] -= 1;
                    self.named_by.remove(&file);
                    self.note_released(file);
                }
            }
        }
    }

    /// The streams that name `file`.
    pub(crate) fn named_by(&self, file: FileId) -> &[StreamIndex] {
        self.named_by.get(&file).map_or(&[], |named| named.streams.all())
    }

    /// Files of `device` that are named.
    pub(crate) fn named_at(&self, device: DeviceIndex) -> usize {
        self.at_device.get(usize::from(device.0)).copied().unwrap_or(0)
    }

    /// `file` was looked up for a hint.
    pub(crate) fn hold(&mut self, file: FileId) {
        *self.held.entry(file).or_default() += 1;
    }

    /// The hint has its place, or is no more.
    pub(crate) fn unhold(&mut self, file: FileId) {
        if let Some(hints) = self.held.get_mut(&file) {
            *hints -= 1;
            if *hints == 0 {
                self.held.remove(&file);
                self.note_released(file);
            }
        }
    }

    fn note_released(&mut self, file: FileId) {
        if !self.is_wanted(file) {
            self.released.push(file);
        }
    }

    /// Whether a hint is about `file`.
    pub(crate) fn is_wanted(&self, file: FileId) -> bool {
        self.named_by.contains_key(&file) || self.held.contains_key(&file)
    }

    /// Files that ceased to be wanted since the last call; some may be wanted again.
    pub(crate) fn take_released(&mut self) -> Vec<FileId> {
        std::mem::take(&mut self.released)
    }
}
