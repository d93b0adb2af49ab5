//! What sightings of processes mean to the policy.
//!
//! A position that has moved is a read of what it has passed. Bytes whose place is not known (`pread`, and files that were
//! opened and closed between two samples) are spread over the hints, by these rules:
//!
//! A. A process reads in the order of its hints, each hint wholly. Its bytes are the next ones that its stream expects. Its
//!    stream is the one that names a file that it has open, or otherwise the stream of its last hinted read.
//! B. A process has not passed a hinted file that it has open and whose position does not move: bytes are spread no further
//!    than the end of the last such file. So bytes from elsewhere (configuration, files without hints) do not carry it too far.
//! C. A hinted file that is open, and lies further ahead than the bytes reach, is being read now: what lies before it in the
//!    list was skipped, read in part, or read from elsewhere. Its first block counts as read. Of several such files it is the
//!    nearest.
//! D. The same of a process that has read no bytes at all meanwhile: it maps its files. What lies before counts as read.
//!
//! The policy also has to know how long a process waited for its reads. Between two samples that is the time in which it
//! neither ran nor waited for a processor, if a block that it read was not in memory: a process that sleeps or waits for
//! something else at the same time seems to wait for longer. The reads of one sighting are told at even times of the rest.
//!
//! Where hints have free order, only positions that move count.
//!
//! What may fail: a process that reads in another order than its hints is followed wrongly. Its blocks are then given up too
//! early, or too late, which costs speed. Positions that move correct it.
//!
//! Cost: O(1) for each block that was read; at most [`BLOCKS_MAX`] at a time.

use std::collections::HashMap;
use std::time::Duration;

use foretell_policy::{Block, FileId, Nanos, Policy, ReaderId, StreamId};

use super::Sighting;
use super::positions::{Part, Progress};

/// A shorter wait is none: the threshold of records for reads of a page, 50 µs.
const WAITED_MIN: Duration = Duration::from_micros(50);

/// Blocks that one sighting may report, so that a turn of the session stays short: 512 MiB of 8 KiB.
const BLOCKS_MAX: u64 = 65_536;

/// What is known of one process.
#[derive(Debug, Default)]
struct Follower {
    /// Bytes that it has read of its next block.
    begun_bytes: u64,
    /// Hinted files that it has open. Their hints may be past by now.
    hinted: Vec<FileId>,
    has_read: bool,
}

/// The processes and their counts; see the [module](self).
#[derive(Debug, Default)]
pub(crate) struct Followers {
    followers: HashMap<u64, Follower>,
    /// Processes of which a read was seen.
    processes: u64,
    read_bytes: u64,
    waits: u64,
}

impl Followers {
    /// Processes of which reads were seen, and the bytes that these reads returned.
    pub(crate) fn counts(&self) -> (u64, u64) {
        (self.processes, self.read_bytes)
    }

    /// Whether this process is known, and has not ended.
    pub(crate) fn has(&self, process: u64) -> bool {
        self.followers.contains_key(&process)
    }

    /// Sightings of processes that had waited for their reads.
    pub(crate) fn waits(&self) -> u64 {
        self.waits
    }

    /// Takes in a sighting. Returns the number of blocks reported.
    pub(crate) fn take(&mut self, policy: &mut Policy, now: Nanos, sighting: Sighting) -> u64 {
        let Sighting { process, progress, time, has_ended, .. } = sighting;
        if has_ended {
            self.followers.remove(&process);
            return 0;
        }
        let Progress { reads, unmoved, unplaced_bytes } = progress;
        let follower = self.followers.entry(process).or_default();
        let reader = ReaderId(process);
        let moved: Vec<FileId> = reads.iter().map(|part| part.file).collect();
        follower.hinted.retain(|file| unmoved.contains(file) || moved.contains(file));
        let block_bytes = policy.config().block_bytes;
        let sum = |all: u64, part: &Part| all.saturating_add(part.length_bytes);
        let all_bytes = reads.iter().fold(unplaced_bytes, sum);
        let runs = time.span.saturating_sub(time.waited);
        let mut tell = Tell {
            policy,
            reader,
            at: now.saturating_sub(nanos(runs)),
            step: Nanos(nanos(runs).0 / (all_bytes / block_bytes + 1)),
            waited: (time.waited >= WAITED_MIN).then(|| nanos(time.waited)),
            left_blocks: BLOCKS_MAX,
        };
        let mut spread = Spread {
            tell: &mut tell,
            moved,
            unmoved,
            left_bytes: follower.begun_bytes.saturating_add(unplaced_bytes),
            has_read_none: all_bytes == 0,
        };
        let spread_bytes = spread.run(&mut follower.hinted);
        follower.begun_bytes = spread.left_bytes;
        let bytes = spread_bytes.saturating_add(tell.parts(&reads));
        let told_blocks = BLOCKS_MAX - tell.left_blocks;
        if bytes > 0 && !follower.has_read {
            follower.has_read = true;
            self.processes += 1;
        }
        self.waits += u64::from(time.waited >= WAITED_MIN);
        self.read_bytes = self.read_bytes.saturating_add(bytes);
        told_blocks
    }
}

/// Tells the policy of the reads of one sighting.
struct Tell<'a> {
    policy: &'a mut Policy,
    reader: ReaderId,
    /// The time of the next read, and from one read to the next.
    at: Nanos,
    step: Nanos,
    /// The time that the process waited, until a read is found that may have.
    waited: Option<Nanos>,
    left_blocks: u64,
}

impl Tell<'_> {
    fn read(&mut self, block: Block) {
        let waited = match self.policy.reason(block) {
            None => self.waited.take(),
            Some(_) => None,
        };
        self.policy.read(self.at, self.reader, block, waited.is_some());
        if let Some(waited) = waited {
            self.policy.waited(self.reader, waited);
        }
        self.at += self.step;
        self.left_blocks = self.left_blocks.saturating_sub(1);
    }

    /// Reports the reads whose places are known. Returns their bytes.
    fn parts(&mut self, reads: &[Part]) -> u64 {
        let block_bytes = self.policy.config().block_bytes;
        for &Part { file, offset_bytes, length_bytes } in reads {
            let first = offset_bytes / block_bytes;
            let last = offset_bytes.saturating_add(length_bytes).saturating_sub(1) / block_bytes;
            let most = usize::try_from(self.left_blocks).unwrap_or(usize::MAX);
            (first..=last).take(most).for_each(|index| self.read(Block { file, index }));
        }
        reads.iter().fold(0, |all, part| all.saturating_add(part.length_bytes))
    }
}

fn nanos(time: Duration) -> Nanos {
    Nanos(u64::try_from(time.as_nanos()).unwrap_or(u64::MAX))
}

/// One spreading of bytes over a stream's hints.
struct Spread<'a, 'b> {
    tell: &'a mut Tell<'b>,
    /// Open files with positions that have moved.
    moved: Vec<FileId>,
    /// Open files with positions that have not.
    unmoved: Vec<FileId>,
    left_bytes: u64,
    has_read_none: bool,
}

impl Spread<'_, '_> {
    /// Reports what the bytes are taken for. Returns how many of them; those of a block that is begun stay in `left_bytes`.
    /// `hinted` are the open files that are known to be hinted; new ones are added.
    fn run(&mut self, hinted: &mut Vec<FileId>) -> u64 {
        let mut ahead = self.files_ahead(hinted);
        let named = ahead.first().map(|&(_, stream, _)| stream);
        let followed = || self.tell.policy.followed(self.tell.reader);
        let Some(mut stream) = named.or_else(followed) else {
            return 0; // They are spread as soon as a hinted file is seen to be open.
        };
        ahead.retain(|&(_, of, _)| of == stream);
        let has_open = self.unmoved.iter().any(|file| hinted.contains(file));
        let mut spread_bytes = 0;
        while self.tell.left_blocks > 0 {
            let Some((block, bytes)) = self.tell.policy.expected(stream) else {
                self.left_bytes = 0;
                break;
            };
            ahead.retain(|(.., first)| first.file != block.file);
            // B
            let is_passed = has_open && ahead.is_empty() && !self.unmoved.contains(&block.file);
            if is_passed || self.moved.contains(&block.file) {
                self.left_bytes = 0;
                break;
            }
            if bytes > self.left_bytes {
                break;
            }
            self.left_bytes -= bytes;
            spread_bytes += bytes;
            self.tell.read(block); // A
            stream = self.advanced(stream, block);
        }
        if self.has_read_none {
            self.pass_mapped(stream, &ahead);
        } else if let Some(&(.., first)) = ahead.first() {
            // C
            self.tell.read(first);
            self.left_bytes = 0;
        }
        spread_bytes
    }

    /// The stream that a read of `block` has advanced. Where two streams name a file (a list, and the arguments), `stream` may
    /// not be the one that the policy has taken the read for. Without this, that block would be told for ever.
    fn advanced(&self, stream: StreamId, block: Block) -> StreamId {
        let policy = &*self.tell.policy;
        let stays = policy.expected(stream).is_some_and(|(next, _)| next == block);
        let other = policy.followed(self.tell.reader).filter(|_| stays);
        other.unwrap_or(stream)
    }

    /// D: reports what lies before the nearest of the files `ahead`.
    fn pass_mapped(&mut self, stream: StreamId, ahead: &[(u64, StreamId, Block)]) {
        let Some(&(accesses, .., first)) = ahead.first() else { return };
        for _ in 0..accesses {
            match self.tell.policy.expected(stream) {
                Some((block, _)) if block.file != first.file && self.tell.left_blocks > 0 => {
                    self.tell.read(block);
                }
                _ => return,
            }
        }
    }

    /// The open files with positions that have not moved and that a stream expects, nearest first, each with the accesses
    /// before it.
    fn files_ahead(&mut self, hinted: &mut Vec<FileId>) -> Vec<(u64, StreamId, Block)> {
        let mut ahead = Vec::new();
        for &file in self.unmoved.iter().chain(&self.moved) {
            let expecting = self.tell.policy.expecting(self.tell.reader, file);
            if let Some((stream, accesses, block)) = expecting {
                ahead.push((accesses, stream, block));
                if !hinted.contains(&file) {
                    hinted.push(file);
                }
            }
        }
        ahead.retain(|(.., first)| !self.moved.contains(&first.file));
        ahead.sort_unstable_by_key(|&(accesses, ..)| accesses);
        ahead
    }
}

#[cfg(test)]
mod tests {
    use super::super::Times;
    use super::*;
    use foretell_policy::{Config, DeviceId, Hint, HinterId, Memory, Order, Outcome, Target, Work};

    const NOW: Nanos = Nanos(1);
    const BLOCK: u64 = 8192;
    const FILE: u64 = 2 * BLOCK + 100;
    const PROCESS: u64 = 7;

    /// A policy with hints of this many files of three blocks, the last one short, all fetched as far as it goes.
    fn hinted(files: u64, order: Order) -> Policy {
        let memory = Memory::Kernel { keeps: false };
        let mut policy = Policy::new(Config::new(memory, BLOCK, 1 << 30));
        let stream = policy.open_stream(NOW, HinterId(1), None);
        for file in 0..files {
            let target = Target::File { file: FileId(file), size_bytes: FILE };
            let hint = Hint::whole_file(target, DeviceId(0));
            policy.hint(NOW, stream, Hint { order, ..hint });
        }
        fetch(&mut policy);
        policy
    }

    fn fetch(policy: &mut Policy) {
        while let Some(fetch) = policy.next_fetch(NOW, DeviceId(0)) {
            assert!(matches!(fetch.work, Work::Read { .. }));
            policy.completed(NOW, fetch.id, Outcome::Fetched);
        }
    }

    fn saw(reads: &[(u64, u64, u64)], open: &[u64], unplaced_bytes: u64) -> Sighting {
        let part = |&(file, offset_bytes, length_bytes): &(u64, u64, u64)| Part {
            file: FileId(file),
            offset_bytes,
            length_bytes,
        };
        let progress = Progress {
            reads: reads.iter().map(part).collect(),
            unmoved: open.iter().copied().map(FileId).collect(),
            unplaced_bytes,
        };
        let (time, opened) = (Times::default(), Vec::new());
        Sighting { process: PROCESS, progress, time, opened, has_ended: false }
    }

    fn useful(policy: &Policy) -> u64 {
        policy.counts().useful
    }

    #[test]
    fn positions_that_move_are_reads() {
        let mut policy = hinted(10, Order::Given);
        let mut followers = Followers::default();
        followers.take(&mut policy, NOW, saw(&[(0, 0, FILE)], &[], 0));
        assert_eq!((useful(&policy), followers.counts()), (3, (1, FILE)));
        followers.take(&mut policy, NOW, saw(&[(1, 0, 100), (9, 0, 100)], &[], 0));
        assert_eq!((useful(&policy), followers.counts()), (5, (1, FILE + 200)));
    }

    #[test]
    fn files_between_two_sightings_were_read_wholly() {
        let mut policy = hinted(10, Order::Given);
        let mut followers = Followers::default();
        followers.take(&mut policy, NOW, saw(&[(0, 0, 100)], &[], 0));
        // The rest of file 0, files 1 to 3, and the beginning of file 4.
        followers.take(&mut policy, NOW, saw(&[(4, 0, BLOCK)], &[], 4 * FILE - 100));
        assert_eq!(useful(&policy), 4 * 3 + 1);
        // Without a file that is open.
        followers.take(&mut policy, NOW, saw(&[], &[], BLOCK + 100 + FILE));
        assert_eq!(useful(&policy), 6 * 3);
    }

    #[test]
    fn bytes_add_up_to_blocks() {
        let mut policy = hinted(2, Order::Given);
        let mut followers = Followers::default();
        followers.take(&mut policy, NOW, saw(&[], &[0], 0));
        let begun = useful(&policy);
        for _ in 0..4 {
            followers.take(&mut policy, NOW, saw(&[], &[0], BLOCK / 4 + 1));
        }
        assert_eq!(useful(&policy), begun + 1);
    }

    #[test]
    fn a_file_that_is_open_is_not_passed() {
        let mut policy = hinted(10, Order::Given);
        let mut followers = Followers::default();
        followers.take(&mut policy, NOW, saw(&[], &[1], 100 * FILE));
        assert_eq!(useful(&policy), 6, "files 0 and 1");
        followers.take(&mut policy, NOW, saw(&[], &[1], 100 * FILE));
        assert_eq!(useful(&policy), 6);
        // It was closed.
        followers.take(&mut policy, NOW, saw(&[], &[2], 100 * FILE));
        assert_eq!(useful(&policy), 9);
        // Two at once.
        followers.take(&mut policy, NOW, saw(&[], &[3, 5], 100 * FILE));
        assert_eq!(useful(&policy), 18);
    }

    #[test]
    fn a_process_that_maps_its_files_has_passed_those_before() {
        let mut policy = hinted(40, Order::Given);
        let mut followers = Followers::default();
        followers.take(&mut policy, NOW, saw(&[], &[5], 0));
        assert_eq!(useful(&policy), 15);
        followers.take(&mut policy, NOW, saw(&[], &[5], 0));
        assert_eq!(useful(&policy), 15);
        followers.take(&mut policy, NOW, saw(&[], &[9, 7], 0));
        assert_eq!((useful(&policy), followers.counts()), (21, (0, 0)));
    }

    #[test]
    fn a_file_further_ahead_than_the_bytes_reach_is_being_read() {
        let mut policy = hinted(40, Order::Given);
        let mut followers = Followers::default();
        followers.take(&mut policy, NOW, saw(&[], &[20, 30], 1));
        assert_eq!(useful(&policy), 1);
        let next = policy.followed(ReaderId(PROCESS)).and_then(|stream| policy.expected(stream));
        assert_eq!(next.map(|(block, _)| block), Some(Block { file: FileId(20), index: 1 }));
    }

    #[test]
    fn of_two_streams_that_name_a_file_one_is_followed_to_its_end() {
        let mut policy = Policy::new(Config::new(Memory::Kernel { keeps: false }, BLOCK, 1 << 30));
        let target = Target::File { file: FileId(0), size_bytes: 1000 * BLOCK };
        for hinter in [1, 2] {
            let stream = policy.open_stream(NOW, HinterId(hinter), None);
            policy.hint(NOW, stream, Hint::whole_file(target, DeviceId(0)));
        }
        fetch(&mut policy);
        let mut followers = Followers::default();
        for seen in 1..=5 {
            followers.take(&mut policy, NOW, saw(&[], &[0], 100 * BLOCK));
            assert_eq!(useful(&policy), seen * 100);
        }
    }

    #[test]
    fn a_process_that_reads_something_else_is_not_followed() {
        let mut policy = hinted(10, Order::Given);
        let mut followers = Followers::default();
        followers.take(&mut policy, NOW, saw(&[], &[99], 100 * FILE));
        assert_eq!((useful(&policy), followers.counts()), (0, (0, 0)));
        followers.take(&mut policy, NOW, saw(&[(99, 0, 100)], &[], 0));
        assert_eq!((useful(&policy), followers.counts()), (0, (1, 100)));
    }

    #[test]
    fn in_free_order_only_positions_count() {
        let mut policy = hinted(10, Order::Any);
        let mut followers = Followers::default();
        followers.take(&mut policy, NOW, saw(&[(3, 0, 100)], &[], 100 * FILE));
        assert_eq!(useful(&policy), 1);
    }

    #[test]
    fn a_sighting_is_bounded_and_the_last_one_forgets_the_process() {
        let mut policy = hinted(1, Order::Given);
        let mut followers = Followers::default();
        followers.take(&mut policy, NOW, saw(&[(0, 0, u64::MAX)], &[], u64::MAX));
        assert!(!followers.followers.is_empty());
        let progress = Progress::default();
        let time = Times::default();
        followers.take(
            &mut policy,
            NOW,
            Sighting { process: PROCESS, progress, time, opened: Vec::new(), has_ended: true },
        );
        assert!(followers.followers.is_empty());
    }
}
