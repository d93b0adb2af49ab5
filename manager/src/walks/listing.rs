//! The entries of a folder, in the orders in which programs go through them.
//!
//! A. [`Order::Listed`]: as the folder lists them (`du`, `find`, `tar`, `os.walk`).
//! B. [`Order::Sorted`]: by the bytes of their names (`sorted(os.listdir())`, a shell's `*`, `git`).
//! C. [`Order::Inode`]: by inode number (`cp -r`, and GNU `fts` in folders of more than 10,000 entries).
//!
//! A listing is made on a device's thread, sorting included, and does not change.

use std::ops::Range;

/// What an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    File,
    Folder,
    /// A symbolic link, a pipe, a device.
    Other,
    /// The file system's listings do not say.
    Unknown,
}

/// An order of entries; see the [module](self).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    Listed,
    Sorted,
    Inode,
}

/// All orders. Where several hold, the first of them is taken.
pub(crate) const ORDERS: [Order; 3] = [Order::Listed, Order::Sorted, Order::Inode];

/// An entry's place in the folder's own order.
pub(crate) type EntryIndex = u32;

/// See the [module](self).
#[derive(Debug)]
pub(crate) struct Listing {
    /// `st_dev` of the folder.
    device: u64,
    names: Box<[u8]>,
    entries: Box<[Entry]>,
    sorted: Permutation,
    by_inode: Permutation,
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    name_at: u32,
    name_bytes: u16,
    kind: Kind,
}

/// An order other than the folder's own.
#[derive(Debug)]
struct Permutation {
    /// Entries in this order.
    entries: Box<[EntryIndex]>,
    /// For each entry its place.
    places: Box<[u32]>,
}

impl Permutation {
    fn new(mut entries: Vec<EntryIndex>) -> Self {
        let mut places = vec![0; entries.len()];
        for (place, &entry) in (0..).zip(&entries) {
            places[entry as usize] = place;
        }
        entries.shrink_to_fit();
        Permutation { entries: entries.into(), places: places.into() }
    }
}

/// Collects the entries of a [`Listing`].
#[derive(Debug, Default)]
pub(crate) struct Collector {
    names: Vec<u8>,
    entries: Vec<Entry>,
    inodes: Vec<u64>,
}

impl Collector {
    pub(crate) fn add(&mut self, name: &[u8], kind: Kind, inode: u64) {
        let (Ok(name_at), Ok(name_bytes)) = (self.names.len().try_into(), name.len().try_into())
        else {
            return; // No file system has such names.
        };
        self.names.extend_from_slice(name);
        self.entries.push(Entry { name_at, name_bytes, kind });
        self.inodes.push(inode);
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// The listing of a folder on `device`.
    pub(crate) fn finish(self, device: u64) -> Listing {
        let Collector { names, entries, inodes } = self;
        let name = |index: &EntryIndex| &names[entries[*index as usize].range()];
        let count = entries.len() as u32;
        let mut sorted: Vec<EntryIndex> = (0..count).collect();
        sorted.sort_by(|one, other| name(one).cmp(name(other)));
        let mut by_inode: Vec<EntryIndex> = (0..count).collect();
        by_inode.sort_by_key(|&index| inodes[index as usize]);
        Listing {
            device,
            sorted: Permutation::new(sorted),
            by_inode: Permutation::new(by_inode),
            names: names.into(),
            entries: entries.into(),
        }
    }
}

impl Entry {
    fn range(&self) -> Range<usize> {
        let at = self.name_at as usize;
        at..at + usize::from(self.name_bytes)
    }
}

impl Listing {
    pub(crate) fn device(&self) -> u64 {
        self.device
    }

    pub(crate) fn len(&self) -> u32 {
        self.entries.len() as u32
    }

    pub(crate) fn name(&self, entry: EntryIndex) -> &[u8] {
        &self.names[self.entries[entry as usize].range()]
    }

    pub(crate) fn kind(&self, entry: EntryIndex) -> Kind {
        self.entries[entry as usize].kind
    }

    /// The entry of this name.
    pub(crate) fn find(&self, name: &[u8]) -> Option<EntryIndex> {
        let sorted = &self.sorted.entries;
        let at = sorted.binary_search_by(|&entry| self.name(entry).cmp(name)).ok()?;
        Some(sorted[at])
    }

    /// The place of `entry` in `order`.
    pub(crate) fn place(&self, order: Order, entry: EntryIndex) -> u32 {
        match order {
            Order::Listed => entry,
            Order::Sorted => self.sorted.places[entry as usize],
            Order::Inode => self.by_inode.places[entry as usize],
        }
    }

    /// The entry at `place` in `order`.
    pub(crate) fn at(&self, order: Order, place: u32) -> EntryIndex {
        match order {
            Order::Listed => place,
            Order::Sorted => self.sorted.entries[place as usize],
            Order::Inode => self.by_inode.entries[place as usize],
        }
    }

    /// Bytes that it takes.
    pub(crate) fn memory_bytes(&self) -> usize {
        let orders = 4 * size_of::<u32>() * self.entries.len();
        size_of::<Self>() + self.names.len() + size_of_val(&self.entries[..]) + orders
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_are_found_by_name_and_have_a_place_in_each_order() {
        let mut collector = Collector::default();
        for (name, inode) in [("b", 30), ("c", 10), ("a", 20)] {
            collector.add(name.as_bytes(), Kind::File, inode);
        }
        let listing = collector.finish(5);
        let names = |order| -> Vec<&[u8]> {
            (0..listing.len()).map(|place| listing.name(listing.at(order, place))).collect()
        };
        assert_eq!(names(Order::Listed), [b"b", b"c", b"a"]);
        assert_eq!(names(Order::Sorted), [b"a", b"b", b"c"]);
        assert_eq!(names(Order::Inode), [b"c", b"a", b"b"]);
        for order in ORDERS {
            for place in 0..listing.len() {
                assert_eq!(listing.place(order, listing.at(order, place)), place);
            }
        }
        assert_eq!(listing.find(b"c"), Some(1));
        assert_eq!(listing.find(b"d"), None);
        assert_eq!(Collector::default().finish(5).find(b""), None);
    }
}
