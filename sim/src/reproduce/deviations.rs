//! Why figures are off: the reason for every cell that is more than 15 % (or points) from the paper's.

use super::Cell;

/// From here on a deviation needs a reason: per cent, or points.
pub const EXPLAINED_FROM: f64 = 15.0;

/// A reason, and the cells that it is for: those of an experiment whose row begins so.
#[derive(Clone, Copy, Debug)]
pub struct Reason {
    /// The experiment.
    pub experiment: &'static str,
    /// How rows begin.
    pub row: &'static str,
    /// The reason.
    pub why: &'static str,
}

/// All reasons.
pub static REASONS: [Reason; 11] = [
    Reason {
        experiment: "1994 table 1",
        row: "man pages, speed-up",
        why: "The paper's time without hints falls by 12 % from one disk to four, ours by 4 %. With a drive's \
              read-ahead of 64 KiB instead of 16 (in a cache of 128) ours falls by 9 %, since a disk reads on while others \
              are waited for; but then Y-Z planes without hints take 4.8 s on several disks instead of the paper's 5.2, by \
              which 16 was chosen.",
    },
    Reason {
        experiment: "1994 table 3",
        row: "X-Y",
        why: "A plane of constant stride keeps step with the rotation: whether a block is just missed decides over 14 \
              ms of some 20, and depends on what is not known of the disk. Ours are means over all disks of a \
              grid that give the times without hints on one; the paper's was unlucky on every array (8.2 to 8.4 s), ours are \
              so only where that was asked for. With hints 7.1, 3.7, 2.6 and 2.2 s come out for 7.9, 3.5, 2.6 and 2.2; if the \
              striper had its turn before whoever waits for a block it would be 6.6, 3.5, 2.6 and 2.2, and if disks went on \
              by themselves, with the striper's time as part of T_driver, 6.1, 3.1, 2.3 and 2.2.",
    },
    Reason {
        experiment: "1995 figure 1c",
        row: "slice X-Y, without",
        why: "As in 1994, the stride of the plane keeps step with the rotation, and ours are means over all disks of \
              a grid that give the fifteen seconds on one. The paper says fifteen of all arrays together. On 8 disks a \
              disk's next block lies a tenth of a cylinder from the last one, so that many requests need no seek (2.5 ms of \
              13). Why 10 are off is not known: there a disk's next block is 512 sectors away, and so it is on 2 and 6, which \
              are not.",
    },
    Reason {
        experiment: "1995 figure 1c",
        row: "slice X-Y, with",
        why: "X-Y has half as many blocks as the other planes, and the paper's \"about two seconds\" for all of them \
              means that the picture takes most of it; how much is not known.",
    },
    Reason {
        experiment: "1995 figure 2a",
        row: "join, requests saved",
        why: "Whatever pushes the index out of the cache is not in the paper: with one inner block for each match, 611 \
              blocks of index survive in 1,536 buffers, and splitting the loop saves 364 requests and 7 %. The 900 requests and \
              the fifth of the time that it reports do not go together at the 10 ms that a request takes here; chains of \
              matches are chosen for the time.",
    },
    Reason {
        experiment: "1999 table 4",
        row: "crossover, interleaved",
        why: "The paper's figures do not fit together here: reading on demand costs it 4 to 6 ms a file more than the collective call \
              (64/9.534 - 64/9.541 s), and one block ahead is not enough, although with it the way to the file's first block, most \
              of the 23 ms a file that are the same for all sizes, is over before the barrier. Here it is enough.",
    },
    Reason {
        experiment: "1999 table 4",
        row: "crossover, block",
        why: "1-D: at 16 blocks, 2D, all is read in sequence, and 256 MB come at 9.66 MB/s instead of 9.67: the 0.4 % of the file that is \
              ahead does not quite pay for the ways from one portion to the next. At 24, the next multiple of D, it does. 3-D: as two runs \
              of the same row lie on the same disk, D is enough for files up to 32 MB. All are within a factor of two.",
    },
    Reason {
        experiment: "1999 table 4",
        row: "crossover, global",
        why: "12, 16 and 21 where the paper has 7, 10 and 14. As in the paper it grows with the file; who is drawn is not the same, and at \
              256 MB 2D brings less than the collective call. Within a factor of two.",
    },
    Reason {
        experiment: "1999 table 4",
        row: "block-",
        why: "Least: blocks of eight portions in turn, whose distances are constant, so that the rotation decides. The paper's blocks take 20 to 23 \
              ms of a disk (32/2.411 - 32/18.132 s for 512), ours 16 to 18. Without the skews of table 3's rate they take 20 to 26 ms \
              (docs/collective.md); what the paper's simulator has is not known.",
    },
    Reason {
        experiment: "1999 table 6",
        row: "crossover",
        why: "A disk reads the collective call's list in one sweep, whose blocks are 40 apart: one in six is within the 64 KB that the drive \
              reads ahead, and costs nothing but the bus here. The call is the faster for it, by 7 %, and prefetching, whose blocks are \
              further apart, needs more depth to equal it. With a drive whose read-ahead takes the media's time: 128 and 99.",
    },
    Reason {
        experiment: "1999 table 5",
        row: "crossover",
        why: "Unsorted: throughput rises slowly with depth, so that a few per cent in the collective call's make much of depth: at 256 MB \
              the call is 7 % faster than the paper's (see table 6), which is more than twice the depth. As the paper says, it is \
              nearly proportional to the file. Sorted: each disk has one processor's blocks in rising order, and one block ahead is \
              enough, since the seek back to the file's first block is then over before the barrier.",
    },
];

/// The reason for a cell, if one is needed.
pub fn reason_for(cell: &Cell) -> Option<&'static Reason> {
    let off = cell.deviation().is_some_and(|deviation| deviation.abs() > EXPLAINED_FROM);
    let fits =
        |reason: &&Reason| cell.experiment == reason.experiment && cell.row.starts_with(reason.row);
    if off { REASONS.iter().find(fits) } else { None }
}
