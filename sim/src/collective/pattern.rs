//! The blocks of each processor in a file: the patterns of the paper's figure 2 and section 5.4.1.
//!
//! Every block has one owner. Processors read their blocks in file order.

use std::fmt;
use std::str::FromStr;
use std::sync::Arc;

use crate::random::SplitMix64;

/// A way to divide a file.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Pattern {
    /// Block b belongs to processor b mod P.
    Interleaved,
    /// Contiguous portions.
    Block1d,
    /// The file is a cube of blocks, cut into P boxes as close to cubes as P allows.
    Block3d,
    /// Each block goes to a processor drawn uniformly from those that do not have their share yet.
    Global,
    /// The owner of each block.
    Owners(Arc<Vec<u32>>),
}

impl Pattern {
    /// The patterns that have a name.
    pub const NAMED: [Pattern; 4] =
        [Pattern::Interleaved, Pattern::Block1d, Pattern::Block3d, Pattern::Global];

    /// The name used on the command line and in reports.
    pub fn name(&self) -> &'static str {
        match self {
            Pattern::Interleaved => "interleaved",
            Pattern::Block1d => "block-1d",
            Pattern::Block3d => "block-3d",
            Pattern::Global => "global",
            Pattern::Owners(_) => "owners",
        }
    }

    /// The owner of each block. `blocks` is below 2^32.
    fn owners(&self, processors: usize, blocks: u64, seed: u64) -> Vec<u32> {
        let p = processors as u64;
        let owner = |owner_of: &dyn Fn(u64) -> u64| -> Vec<u32> {
            (0..blocks).map(|block| owner_of(block) as u32).collect()
        };
        match self {
            Pattern::Interleaved => owner(&|block| block % p),
            Pattern::Block1d => owner(&|block| block * p / blocks),
            Pattern::Block3d => cut_cube(blocks, boxes(p)),
            Pattern::Global => drawn(processors, blocks, seed),
            Pattern::Owners(owners) => owners.as_ref().clone(),
        }
    }
}

/// The owners of the blocks of a cube. Each edge is divided into the given number of parts; the file runs along
/// the first edge.
pub(crate) fn cut_cube(blocks: u64, [px, py, pz]: [u64; 3]) -> Vec<u32> {
    let edge = cube_edge(blocks);
    let owner = |block: u64| {
        let (x, y, z) = (block % edge, block / edge % edge, block / edge / edge);
        let along = |place: u64, parts: u64| place * parts / edge;
        ((along(z, pz) * py + along(y, py)) * px + along(x, px)) as u32
    };
    (0..blocks).map(owner).collect()
}

/// The edge of the smallest cube that holds so many blocks.
fn cube_edge(blocks: u64) -> u64 {
    let near = (blocks as f64).cbrt() as u64;
    (near.saturating_sub(1)..).find(|edge| edge.pow(3) >= blocks).unwrap_or(near)
}

/// The three most equal factors of `processors`, the largest last.
fn boxes(processors: u64) -> [u64; 3] {
    let divisors = |n: u64| (1..=n).filter(move |d| n.is_multiple_of(*d));
    let triples = divisors(processors).take_while(|a| a.pow(3) <= processors).flat_map(|a| {
        let rest = processors / a;
        divisors(rest).filter(move |&b| b >= a && b * b <= rest).map(move |b| [a, b, rest / b])
    });
    triples.min_by_key(|[a, b, c]| a + b + c).unwrap_or([1, 1, processors])
}

fn drawn(processors: usize, blocks: u64, seed: u64) -> Vec<u32> {
    let (share, more) = (blocks / processors as u64, blocks % processors as u64);
    // Processors that can take more blocks, and how many.
    let room = |p: u64| share + u64::from(p < more);
    let mut free: Vec<(u32, u64)> =
        (0..processors as u64).map(|p| (p as u32, room(p))).filter(|(_, room)| *room > 0).collect();
    let mut random = SplitMix64::new(seed);
    let draw = |_| {
        let at = random.below(free.len() as u64) as usize;
        let (processor, room) = &mut free[at];
        let processor = *processor;
        *room -= 1;
        if *room == 0 {
            free.swap_remove(at);
        }
        processor
    };
    (0..blocks).map(draw).collect()
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

impl FromStr for Pattern {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Pattern::NAMED.into_iter().find(|pattern| pattern.name() == text).ok_or_else(|| {
            let known: Vec<&str> = Pattern::NAMED.iter().map(Pattern::name).collect();
            format!("unknown pattern {text:?}; known are {}", known.join(", "))
        })
    }
}

/// The ownership of a file's blocks.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ownership {
    owners: Vec<u32>,
    /// Blocks sorted by owner, and ascending within an owner.
    blocks: Vec<u32>,
    /// The place of each owner's first block in `blocks`, and the end of the last owner's.
    starts: Vec<u32>,
}

impl Ownership {
    /// Applies `pattern` to a file of `blocks`.
    pub fn new(pattern: &Pattern, processors: usize, blocks: u64, seed: u64) -> Self {
        let owners = pattern.owners(processors, blocks, seed);
        let mut starts = vec![0u32; processors + 1];
        owners.iter().for_each(|&owner| starts[owner as usize + 1] += 1);
        (0..processors).for_each(|p| starts[p + 1] += starts[p]);
        let mut next = starts.clone();
        let mut by_owner = vec![0u32; owners.len()];
        for (block, &owner) in owners.iter().enumerate() {
            let next = &mut next[owner as usize];
            by_owner[*next as usize] = block as u32;
            *next += 1;
        }
        Ownership { owners, blocks: by_owner, starts }
    }

    /// The owner of `block`.
    pub fn owner(&self, block: u32) -> usize {
        self.owners[block as usize] as usize
    }

    /// The number of blocks of `processor`.
    pub fn count(&self, processor: usize) -> u32 {
        self.starts[processor + 1] - self.starts[processor]
    }

    /// The blocks of `processor`, ascending.
    pub fn of(&self, processor: usize) -> &[u32] {
        &self.blocks[self.starts[processor] as usize..self.starts[processor + 1] as usize]
    }

    /// The place of the processor's first block among all blocks, sorted by owner.
    pub(super) fn start(&self, processor: usize) -> u32 {
        self.starts[processor]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn owners(pattern: Pattern, processors: usize, blocks: u64) -> Vec<u32> {
        let ownership = Ownership::new(&pattern, processors, blocks, 5);
        let all: u32 = (0..processors).map(|p| ownership.count(p)).sum();
        assert_eq!(u64::from(all), blocks);
        for p in 0..processors {
            let of = ownership.of(p);
            assert!(of.windows(2).all(|pair| pair[0] < pair[1]));
            assert!(of.iter().all(|&block| ownership.owner(block) == p));
        }
        ownership.owners
    }

    #[test]
    fn patterns_of_figure_2() {
        assert_eq!(owners(Pattern::Interleaved, 3, 7), [0, 1, 2, 0, 1, 2, 0]);
        assert_eq!(owners(Pattern::Block1d, 4, 8), [0, 0, 1, 1, 2, 2, 3, 3]);
        let cube = owners(Pattern::Block3d, 8, 64);
        assert_eq!(cube[..16], [0, 0, 1, 1, 0, 0, 1, 1, 2, 2, 3, 3, 2, 2, 3, 3]);
        assert_eq!((cube[32], cube[63]), (4, 7));
    }

    #[test]
    fn cuts_of_a_cube() {
        assert_eq!(cut_cube(512, [2, 2, 2]), owners(Pattern::Block3d, 8, 512));
        assert_eq!(cut_cube(512, [1, 1, 8]), owners(Pattern::Block1d, 8, 512));
        assert_eq!(cut_cube(512, [8, 1, 1]), owners(Pattern::Interleaved, 8, 512));
    }

    #[test]
    fn boxes_are_nearly_cubes() {
        assert_eq!(boxes(8), [2, 2, 2]);
        assert_eq!(boxes(12), [2, 2, 3]);
        assert_eq!(boxes(7), [1, 1, 7]);
        assert_eq!([1, 8, 9, 512, 513, 32_768].map(cube_edge), [1, 2, 3, 8, 9, 32]);
    }

    #[test]
    fn drawn_shares_are_equal() {
        let owners = owners(Pattern::Global, 8, 4099);
        let share = |p| owners.iter().filter(|&&owner| owner == p).count();
        assert_eq!([0, 1, 2, 3, 7].map(share), [513, 513, 513, 512, 512]);
        assert_ne!(owners[..16], owners[16..32]);
    }
}
