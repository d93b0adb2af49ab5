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
pub static REASONS: [Reason; 13] = [
    Reason {
        experiment: "1994 table 1",
        row: "source code, without",
        why: "The paper's times without hints are 2.02 to 2.24 s in no order of the disks, with deviations of 0.07 to \
              0.09 s between runs; ours are 1.9 s on all. The calibration cannot bring the first to 2.11 s: even with \
              its 57 files far apart, a set that is mostly large files waits less for its first blocks.",
    },
    Reason {
        experiment: "1994 table 1",
        row: "man pages, speed-up",
        why: "The paper's time without hints falls by 12 % from one disk to four, ours by 2 %: its files must lie far \
              apart, so that seeks become shorter as the volume is spread, and yet wait little for the rotation. Our \
              disk, whose cache is assumed to be none, has no layout in which both are so.",
    },
    Reason {
        experiment: "1994 table 3",
        row: "X-Y",
        why: "A plane of constant stride keeps step with the rotation: whether a block is just missed decides over 14 \
              ms of some 20, and depends on skews that are not known. Of the skews that give the three times on one \
              disk, those chosen keep X-Y in step there, as the paper's equal times with and without hints show that it \
              was; on more disks they are luckier than the paper's (17 ms a block instead of 22). Hence also that three \
              disks suffice here, where it took a fourth to gain the last 13 %.",
    },
    Reason {
        experiment: "1995 figure 1c",
        row: "slice X-Y, without",
        why: "As in 1994, the stride of the plane keeps step with the rotation: 8 to 15 s, by the number of disks. The \
              paper says fifteen of all arrays together.",
    },
    Reason {
        experiment: "1995 figure 1c",
        row: "slice X-Y, with",
        why: "X-Y has half as many blocks as the other planes, and the paper's \"about two seconds\" for all of them \
              means that the picture takes most of it; how much is not known.",
    },
    Reason {
        experiment: "1995 figure 1c",
        row: "sum of three slices",
        why: "The paper has \"up to a factor of 6\" in section 3.3 and \"up to 75 %\", a factor of 4, in section 3.7. With \
              2 s for each plane with hints and 15 s for X-Y without, 6 would need 21 s for Y-Z and X-Z without hints, of \
              which read-ahead serves the first well. Ours is the second figure, but for the disks that serve X-Y \
              faster than the paper's.",
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
