//! What a process has read between two samples.
//!
//! A sample has the bytes that all its reads have returned so far, and the position of each open file. A position that moved
//! from a to b means that [a, b) was read, as far as so many bytes were read at all: a process may also seek. The rest of the
//! bytes has no place yet: it was read by `pread`, which moves no position, from files that are closed again, or from anything
//! else (`follow.rs` decides).

use foretell_policy::FileId;

/// A file that is open for reading.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct OpenFile {
    /// Its descriptor.
    pub(crate) number: u32,
    pub(crate) file: FileId,
    pub(crate) position: u64,
}

/// A part of a file that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Part {
    pub(crate) file: FileId,
    pub(crate) offset_bytes: u64,
    pub(crate) length_bytes: u64,
}

/// What has happened between two samples.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Progress {
    pub(crate) reads: Vec<Part>,
    /// Open files whose positions have not moved.
    pub(crate) unmoved: Vec<FileId>,
    /// Bytes that were read from elsewhere.
    pub(crate) unplaced_bytes: u64,
}

/// The last sample; see the [module](self).
#[derive(Debug, Default)]
pub(super) struct Positions {
    open: Vec<OpenFile>,
    read_bytes: u64,
}

impl Positions {
    /// Whether the last sample had all of these files.
    pub(super) fn has_all(&self, open: &[OpenFile]) -> bool {
        let files = |now: &OpenFile| self.open.iter().any(|known| known.file == now.file);
        open.iter().all(files)
    }

    /// Takes in the next sample.
    pub(super) fn advance(&mut self, read_bytes: u64, open: Vec<OpenFile>) -> Progress {
        let mut left = read_bytes.saturating_sub(self.read_bytes);
        let (mut reads, mut unmoved) = (Vec::new(), Vec::new());
        for now in &open {
            let is_same = |known: &&OpenFile| known.number == now.number && known.file == now.file;
            let before = self.open.iter().find(is_same).map_or(0, |known| known.position);
            // A position that went back: the file was opened anew, or the process sought.
            let from = if before <= now.position { before } else { 0 };
            let length_bytes = (now.position - from).min(left);
            if now.position == before {
                unmoved.push(now.file);
            }
            if length_bytes > 0 {
                let offset_bytes = now.position - length_bytes;
                reads.push(Part { file: now.file, offset_bytes, length_bytes });
                left -= length_bytes;
            }
        }
        (self.open, self.read_bytes) = (open, read_bytes);
        Progress { reads, unmoved, unplaced_bytes: left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(number: u32, file: u64, position: u64) -> OpenFile {
        OpenFile { number, file: FileId(file), position }
    }

    fn part(file: u64, offset_bytes: u64, length_bytes: u64) -> Part {
        Part { file: FileId(file), offset_bytes, length_bytes }
    }

    fn progress(reads: &[Part], unmoved: &[u64], unplaced_bytes: u64) -> Progress {
        let unmoved = unmoved.iter().copied().map(FileId).collect();
        Progress { reads: reads.to_vec(), unmoved, unplaced_bytes }
    }

    #[test]
    fn a_position_that_moves_is_a_read() {
        let mut positions = Positions::default();
        assert_eq!(positions.advance(100, vec![at(3, 1, 0)]), progress(&[], &[1], 100));
        assert_eq!(
            positions.advance(400, vec![at(3, 1, 300)]),
            progress(&[part(1, 0, 300)], &[], 0)
        );
        assert_eq!(
            positions.advance(450, vec![at(3, 1, 350)]),
            progress(&[part(1, 300, 50)], &[], 0)
        );
        assert_eq!(positions.advance(460, vec![at(3, 1, 350)]), progress(&[], &[1], 10));
    }

    #[test]
    fn files_opened_and_closed_in_between_have_no_place() {
        let mut positions = Positions::default();
        positions.advance(0, vec![at(3, 1, 0)]);
        // The rest of file 1, all of another one, and a part of file 3.
        assert_eq!(
            positions.advance(1000, vec![at(3, 3, 200)]),
            progress(&[part(3, 0, 200)], &[], 800)
        );
        // The same descriptor and the same file, opened anew.
        assert_eq!(
            positions.advance(1500, vec![at(3, 3, 100)]),
            progress(&[part(3, 0, 100)], &[], 400)
        );
        assert_eq!(positions.advance(1600, vec![]), progress(&[], &[], 100));
        assert!(positions.has_all(&[]) && !positions.has_all(&[at(3, 3, 0)]));
    }

    #[test]
    fn a_seek_is_no_read() {
        let mut positions = Positions::default();
        assert_eq!(
            positions.advance(10, vec![at(3, 1, 1 << 40)]),
            progress(&[part(1, (1 << 40) - 10, 10)], &[], 0)
        );
        assert_eq!(positions.advance(10, vec![at(3, 1, 1 << 41)]), progress(&[], &[], 0));
        assert_eq!(positions.advance(5, vec![at(3, 1, u64::MAX)]), progress(&[], &[], 0));
    }

    #[test]
    fn two_descriptors_of_one_file_are_two_positions() {
        let mut positions = Positions::default();
        let open = vec![at(3, 1, 100), at(4, 1, 500)];
        assert_eq!(
            positions.advance(600, open),
            progress(&[part(1, 0, 100), part(1, 0, 500)], &[], 0)
        );
    }
}
