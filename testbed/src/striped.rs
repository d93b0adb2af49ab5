//! Where files lie if each is striped by itself, as in parallel file systems: block b of a file is on disk b mod D.
//!
//! The places are those of `foretell sim collective`, whose n-th file here is the n-th *portion*. Portions are numbered through
//! all files, in the order of the sequential layout.

use std::collections::HashMap;
use std::sync::{Mutex, PoisonError};

use foretell_sim::SECTOR_BYTES;
use foretell_sim::array::DiskIndex;
use foretell_sim::collective::{Places, Placing};
use foretell_sim::device::Request;
use foretell_sim::layout::FileId;

use crate::options::{ArrayOptions, Striped};

/// See the [module](self).
pub(crate) struct StripedFiles {
    places: Mutex<Places>,
    /// The number of each file's first portion.
    first: HashMap<FileId, u32>,
    /// A portion that belongs to no file; those of files that are not known follow.
    next: u32,
    unit_sectors: u64,
    portion_blocks: u64,
}

impl StripedFiles {
    /// `files` have their sizes in bytes.
    pub(crate) fn new(
        options: &ArrayOptions,
        striped: &Striped,
        files: &[(FileId, u64)],
    ) -> StripedFiles {
        let unit_sectors = options.stripe_bytes / SECTOR_BYTES;
        let blocks = |bytes: u64| bytes.div_ceil(options.stripe_bytes).max(1);
        let largest = files.iter().map(|(_, bytes)| *bytes).max().unwrap_or(0);
        let portion_blocks = blocks(striped.portion_bytes.unwrap_or(largest));
        let (mut first, mut next) = (HashMap::new(), 0u32);
        for &(file, bytes) in files {
            first.entry(file).or_insert_with(|| {
                let portions = blocks(bytes).div_ceil(portion_blocks);
                let number = next;
                next = next.wrapping_add(portions as u32);
                number
            });
        }
        let (placement, apart) = striped.places.placement();
        let places = Places::new(&Placing {
            placement,
            apart,
            disks: options.disks,
            capacity_sectors: options.disk.capacity_sectors(),
            file_blocks: portion_blocks,
            block_sectors: unit_sectors,
            seed: options.seed,
        });
        StripedFiles { places: Mutex::new(places), first, next, unit_sectors, portion_blocks }
    }

    /// The requests that read or write a piece of a file: one for each disk and contiguous piece.
    pub(crate) fn requests(
        &self,
        file: FileId,
        offset: u64,
        len: u64,
    ) -> Vec<(DiskIndex, Request)> {
        let mut requests: Vec<(DiskIndex, Request)> = Vec::new();
        let (mut next, end) = (offset / SECTOR_BYTES, (offset + len).div_ceil(SECTOR_BYTES));
        let of_others = self.next.wrapping_add((file.0 % 1024) as u32);
        let first = self.first.get(&file).copied().unwrap_or(of_others);
        let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
        while len > 0 && next < end {
            let (block, within) = (next / self.unit_sectors, next % self.unit_sectors);
            let portion = first.wrapping_add((block / self.portion_blocks) as u32);
            let (disk, start) = places.place(portion, (block % self.portion_blocks) as u32);
            let (disk, sector) = (DiskIndex(disk), start + within);
            let sectors = (self.unit_sectors - within).min(end - next);
            match requests.iter_mut().rev().find(|(other, _)| *other == disk) {
                Some((_, request)) if request.end() == sector => request.sectors += sectors,
                _ => requests.push((disk, Request { sector, sectors })),
            }
            next += sectors;
        }
        requests
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::options;
    use foretell_sim::collective::{CollectiveSpec, Placement};

    const BLOCK: u64 = 8192;

    fn files(places: options::Places, portion: u64, sizes: &[u64]) -> StripedFiles {
        let options = ArrayOptions { disks: 8, stripe_bytes: BLOCK, seed: 1, ..Default::default() };
        let sizes =
            sizes.iter().enumerate().map(|(file, blocks)| (FileId(file as u64), blocks * BLOCK));
        let striped = Striped { places, portion_bytes: (portion > 0).then_some(portion * BLOCK) };
        StripedFiles::new(&options, &striped, &sizes.collect::<Vec<_>>())
    }

    #[test]
    fn places_are_those_of_the_simulator() {
        for (places, apart) in Placement::ALL
            .map(|placement| (options::Places::Laid(placement), false))
            .into_iter()
            .chain([(options::Places::Apart, true)])
        {
            let (placement, _) = places.placement();
            let spec = CollectiveSpec { placement, apart, seed: 1, ..CollectiveSpec::paper(1) };
            let mut simulated = Places::new(&spec.placing());
            // One file of three portions, and another one.
            let live = files(places, 128, &[3 * 128, 128]);
            for (file, block, portion) in [(0, 0, 0), (0, 129, 1), (0, 300, 2), (1, 5, 3)] {
                let (disk, sector) = simulated.place(portion, block % 128);
                let expected = (DiskIndex(disk), Request { sector, sectors: 16 });
                let found = live.requests(FileId(file), u64::from(block) * BLOCK, BLOCK);
                assert_eq!(found, [expected], "{places}");
            }
        }
    }

    #[test]
    fn neighbours_on_a_disk_become_one_request() {
        let live = files(options::Places::Laid(Placement::Sequential), 0, &[64, 16]);
        let requests = live.requests(FileId(0), 0, 16 * BLOCK);
        assert_eq!(requests.len(), 8);
        assert!(requests.iter().all(|(_, request)| request.sectors == 32));
        let part = live.requests(FileId(0), 3 * BLOCK + 4096, 4096);
        assert_eq!(part, [(DiskIndex(3), Request { sector: 8, sectors: 8 })]);
        // The second file has as much room as the first.
        let second = live.requests(FileId(1), 0, 1);
        assert_eq!(second, [(DiskIndex(0), Request { sector: 8 * 16, sectors: 1 })]);
        assert!(live.requests(FileId(0), BLOCK, 0).is_empty());
        // A file that came later.
        assert_eq!(live.requests(FileId(77), 0, BLOCK).len(), 1);
    }
}
