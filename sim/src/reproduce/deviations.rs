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
pub static REASONS: [Reason; 14] = [
    Reason {
        experiment: "1994 table 1",
        row: "man pages, speed-up",
        why: "The paper's time without hints falls by 12 % from one disk to four, ours by 4 %. With a drive's cache of \
              128 KiB instead of 32 ours falls by 9 %, since a disk reads on while others are waited for; \
              but then Y-Z planes without hints take 4.8 s on several disks instead of 5.2.",
    },
    Reason {
        experiment: "1994 table 3",
        row: "X-Y",
        why: "A plane of constant stride keeps step with the rotation: whether a block is just missed decides over 14 \
              ms of some 20, and depends on what is not known of the disk. Ours are means over all disks that give the \
              times without hints on one; the paper's was unlucky on every array (8.2 to 8.4 s), ours are so only where \
              that was asked for. With hints 7.1, 3.7, 2.6 and 2.2 s come out for 7.9, 3.5, 2.6 and 2.2; if the striper \
              had its turn before whoever waits for a block it would be 6.6, 3.5, 2.6 and 2.2, and if disks went on by \
              themselves 6.1, 3.1, 2.3 and 2.2.",
    },
    Reason {
        experiment: "1995 figure 1c",
        row: "slice X-Y, without",
        why: "As in 1994, the stride of the plane keeps step with the rotation, and ours are means over all disks that give \
              the fifteen seconds on one. The paper says fifteen of all arrays together. On 8 disks a disk's next block \
              lies a tenth of a cylinder from the last one, on 10 half of one, so that many requests need no seek (2.5 ms of \
              13).",
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
        why: "In the paper, reading on demand is 0.02 % slower than the collective call from 64 MB on, and one block ahead does \
              not make up for it. Here the drive's read-ahead hides the turn-around of 20 microseconds altogether, so one does.",
    },
    Reason {
        experiment: "1999 table 4",
        row: "crossover, block",
        why: "A depth of 16 has 1-D and 3-D blocks read in sequence here too, and depths below have not, but with 256 MB only \
              0.4 % of a file is ahead then, which does not pay for changing from one processor's portion to the next \
              (some 15 ms each): 8.78 instead of 8.79 MB/s with files side by side. There the bound of 2D is exceeded by less than 1 % of \
              the throughput. 3-D blocks of smaller files cross over earlier than the paper's.",
    },
    Reason {
        experiment: "1999 table 4",
        row: "crossover, global",
        why: "Not as the paper has it: 2D does not suffice here. A block whose owner has no room for it when the head comes by is \
              left behind, and to go back for it costs a revolution. The paper's disk seems not to pay for that: its rate says that what lies \
              near comes from the drive's cache (see the throughputs).",
    },
    Reason {
        experiment: "1999 table 4",
        row: "block-",
        why: "Most and collective: as the other throughputs. Least: blocks of eight portions in turn, whose distances are constant, so that the \
              rotation decides; the paper says that a whole revolution is lost there, 23 ms a block, and with the skews and \
              the overhead of our disk it is 15 to 18.",
    },
    Reason {
        experiment: "1999 table 4",
        row: "",
        why: "The paper's figures are of disks faster than its own table 3. 1/9.066 - 1/18.132 makes 18.13 MB/s of reading for 4 MB, \
              1/9.566 - 1/18.132 makes 20.25 for 256 MB: 23 ms a file and 20.29 MB/s beyond, 2.54 a disk, or 3.08 ms for each 8 KB. \
              Table 3 has 2.11 MB/s a disk, which is what 72 sectors in a revolution and 8 of skew make (and what ours does: 16.8 MB/s \
              in all), and under the head alone 8 KB take the 3.33 ms of table 1, 18.8 MB/s in all. 3.08 ms is nearly what a block takes that is in \
              the drive's cache, 2.2 + 0.82 ms: as if read-ahead took no time. Ours is 15.3 MB/s of reading for 4 MB, and all \
              else follows from that.",
    },
    Reason {
        experiment: "1999 table 4, files side by side",
        row: "crossover",
        why: "With files side by side the drives read 16 blocks ahead of the collective call while the processors compute, as much as a \
              depth of 16 has ahead: the call then loses nothing at the beginning of a file that prefetching could save.",
    },
    Reason {
        experiment: "1999 table 4, files side by side",
        row: "block-",
        why: "As in table 4: the least throughput is decided by rotation.",
    },
    Reason {
        experiment: "1999 table 6",
        row: "crossover",
        why: "1-D is within a factor of 1.4, 3-D needs three times the paper's depth: a row of 3-D blocks is two runs of 16 blocks, of which a disk has \
              two each, and whoever is left behind stalls, as in table 4.",
    },
    Reason {
        experiment: "1999 table 5",
        row: "crossover",
        why: "Unsorted: throughput rises slowly with depth, so that a few per cent in the collective call's make much of depth; \
              the depth is nearly proportional to the file, as the paper says. Sorted: each disk has one processor's blocks in rising \
              order, and one block ahead is enough, since the seek back to the file's first block is then over before the barrier.",
    },
];

/// The reason for a cell, if one is needed.
pub fn reason_for(cell: &Cell) -> Option<&'static Reason> {
    let off = cell.deviation().is_some_and(|deviation| deviation.abs() > EXPLAINED_FROM);
    let fits =
        |reason: &&Reason| cell.experiment == reason.experiment && cell.row.starts_with(reason.row);
    if off { REASONS.iter().find(fits) } else { None }
}
