//! Striping: one volume over several disks of the same size.
//!
//! The volume is cut into stripe units, which go to the disks round robin, as in RAID level 0 and in the
//! striping driver of the TIP papers (unit 64 KB). A read of the volume becomes at most one request for each
//! disk and contiguous piece: units that are neighbours on a disk become one request.

use crate::device::Request;

/// A contiguous piece of the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Extent {
    /// First sector of the volume.
    pub sector: u64,
    /// Length in sectors.
    pub sectors: u64,
}

/// A disk of an array; the first is 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct DiskIndex(pub usize);

/// The mapping between a volume's sectors and the disks' sectors.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Striping {
    disks: u64,
    unit_sectors: u64,
}

impl Striping {
    /// Stripes over `disks` disks in units of `unit_sectors`; both at least 1.
    pub fn new(disks: usize, unit_sectors: u64) -> Self {
        assert!(disks > 0 && unit_sectors > 0, "a volume needs a disk and a stripe unit");
        Striping { disks: disks as u64, unit_sectors }
    }

    /// The number of disks.
    pub fn disks(&self) -> usize {
        self.disks as usize
    }

    /// Sectors of the volume on disks of `disk_sectors` each; the rest of a disk that fills no unit is unused.
    pub fn volume_sectors(&self, disk_sectors: u64) -> u64 {
        disk_sectors / self.unit_sectors * self.unit_sectors * self.disks
    }

    /// The disk, and its sector, of a sector of the volume.
    pub fn to_disk(&self, volume_sector: u64) -> (DiskIndex, u64) {
        let (unit, within) = (volume_sector / self.unit_sectors, volume_sector % self.unit_sectors);
        let disk = DiskIndex((unit % self.disks) as usize);
        (disk, unit / self.disks * self.unit_sectors + within)
    }

    /// The sector of the volume that lies at `sector` of `disk`.
    pub fn to_volume(&self, disk: DiskIndex, sector: u64) -> u64 {
        let (row, within) = (sector / self.unit_sectors, sector % self.unit_sectors);
        (row * self.disks + disk.0 as u64) * self.unit_sectors + within
    }

    /// The requests that read `extents`, in the order of their first sectors in the extents.
    pub fn split(&self, extents: impl IntoIterator<Item = Extent>) -> Vec<(DiskIndex, Request)> {
        let mut requests = Vec::new();
        self.split_into(extents, &mut requests);
        requests
    }

    /// As [`split`](Self::split), with the requests put into `requests`, which must be empty.
    pub fn split_into(
        &self,
        extents: impl IntoIterator<Item = Extent>,
        requests: &mut Vec<(DiskIndex, Request)>,
    ) {
        for extent in extents {
            let (mut sector, end) = (extent.sector, extent.sector + extent.sectors);
            while sector < end {
                let piece = (self.unit_sectors - sector % self.unit_sectors).min(end - sector);
                let (disk, first) = self.to_disk(sector);
                let last = requests.iter_mut().rev().find(|(other, _)| *other == disk);
                match last {
                    Some((_, request)) if request.end() == first => request.sectors += piece,
                    _ => requests.push((disk, Request { sector: first, sectors: piece })),
                }
                sector += piece;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn neighbours_on_a_disk_become_one_request() {
        let striping = Striping::new(2, 8);
        let whole = Extent { sector: 0, sectors: 32 };
        let expected = [
            (DiskIndex(0), Request { sector: 0, sectors: 16 }),
            (DiskIndex(1), Request { sector: 0, sectors: 16 }),
        ];
        assert_eq!(striping.split([whole]), expected);
        let apart = [Extent { sector: 0, sectors: 4 }, Extent { sector: 16, sectors: 4 }];
        assert_eq!(striping.split(apart).len(), 2);
    }

    proptest! {
        #[test]
        fn the_mapping_is_a_bijection(
            disks in 1usize..40, unit in 1u64..300, sector in 0u64..1 << 40,
        ) {
            let striping = Striping::new(disks, unit);
            let (disk, on_disk) = striping.to_disk(sector);
            prop_assert!(disk.0 < disks);
            prop_assert_eq!(striping.to_volume(disk, on_disk), sector);
            // The other direction: every sector of a disk belongs to one sector of the volume.
            let disk = DiskIndex((sector % disks as u64) as usize);
            prop_assert_eq!(striping.to_disk(striping.to_volume(disk, sector)), (disk, sector));
        }

        #[test]
        fn every_sector_of_a_disk_is_within_its_size(
            disks in 1usize..10, unit in 1u64..50, disk_sectors in 50u64..5000,
        ) {
            let striping = Striping::new(disks, unit);
            let last = striping.volume_sectors(disk_sectors) - 1;
            prop_assert!(striping.to_disk(last).1 < disk_sectors);
        }

        #[test]
        fn splitting_covers_each_sector_once(
            disks in 1usize..6, unit in 1u64..20,
            extents in prop::collection::vec((0u64..2000, 1u64..100), 1..6),
        ) {
            let striping = Striping::new(disks, unit);
            let extents: Vec<Extent> =
                extents.into_iter().map(|(sector, sectors)| Extent { sector, sectors }).collect();
            let mut wanted: Vec<u64> =
                extents.iter().flat_map(|e| e.sector..e.sector + e.sectors).collect();
            let mut got: Vec<u64> = striping
                .split(extents)
                .into_iter()
                .flat_map(|(disk, request)| {
                    (request.sector..request.end()).map(move |s| striping.to_volume(disk, s))
                })
                .collect();
            wanted.sort_unstable();
            got.sort_unstable();
            prop_assert_eq!(got, wanted);
        }
    }
}
