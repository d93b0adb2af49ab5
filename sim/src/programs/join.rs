//! A join by an index: Postgres of TIP 1995, section 3.4.
//!
//! The outer relation of 20,000 tuples (3.2 MB) is read in sequence. For each tuple, the index (5 MB) of the
//! inner relation is searched. One search in five finds a tuple in the inner relation of 200,000 tuples (32
//! MB). In the standard form, that tuple is read at once. With the loop split, the first loop only searches the
//! index and remembers addresses. The second loop reads the outer relation again, and the inner tuples, which
//! can be disclosed.
//!
//! The index is a tree of three levels: a root, an intermediate level, and leaves. Keys of the outer relation
//! are uniform over a range that is five times the number of inner tuples; each inner tuple has its own key
//! (see [`InnerKeys`]). Writes are left out: they go to memory, in the background.

use foretell_policy::{Nanos, ReaderId};

use super::{Volume, Workload};
use crate::machine::program::{Program, Step, StoredFile};
use crate::random::SplitMix64;

/// Tuples of the outer relation.
pub const OUTER_TUPLES: u64 = 20_000;
/// Bytes of the outer relation, of the inner one, and of its index.
pub const RELATIONS_BYTES: [u64; 3] = [3_200_000, 32_000_000, 5_000_000];
/// Tuples of the inner relation.
pub const INNER_TUPLES: u64 = 200_000;
/// One outer tuple in this number finds an inner one.
pub const MATCH: u64 = 5;
/// Entries of an index block above the leaves.
const FANOUT: u64 = 256;

/// The form of the join.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// In one loop.
    Standard,
    /// In two loops.
    Split,
    /// In two loops, and all reads whose order is known are disclosed.
    Disclosed,
}

impl Loop {
    /// All forms, in the paper's order.
    pub const ALL: [Loop; 3] = [Loop::Standard, Loop::Split, Loop::Disclosed];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Loop::Standard => "standard",
            Loop::Split => "split",
            Loop::Disclosed => "split and hints",
        }
    }
}

/// Which of the possible outer keys the inner relation has. The paper says that one in five finds a match, but
/// not why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InnerKeys {
    /// The first fifth. All others lead to the index's last leaf. Each other leaf is read only for its matches,
    /// 6 to 7 times, and an inner block about once. Inner blocks evict leaves from the cache.
    First,
    /// Every fifth key, so that keys without a match lie between the others. Each leaf is read 33 times, and
    /// few are evicted.
    Between,
}

impl InnerKeys {
    /// The leaf, of `leaves`, that leads to a key below [`MATCH`] · [`INNER_TUPLES`], and whether the inner
    /// relation has that key.
    fn find(self, key: u64, leaves: u64) -> (u64, bool) {
        match self {
            InnerKeys::First => ((key * leaves / INNER_TUPLES).min(leaves - 1), key < INNER_TUPLES),
            InnerKeys::Between => {
                (key * leaves / (MATCH * INNER_TUPLES), key.is_multiple_of(MATCH))
            }
        }
    }
}

/// The program.
#[derive(Clone, Copy, Debug)]
pub struct Join {
    /// The form of the join.
    pub form: Loop,
    /// Work on each outer tuple, including its index search.
    pub tuple_cpu: Nanos,
    /// Work on each match.
    pub match_cpu: Nanos,
    /// Which keys match.
    pub inner_keys: InnerKeys,
    /// One match in this number extends into the next block; 0 for none. The paper does not say.
    pub matches_per_chain: u64,
    /// Sectors between the relations, which lie side by side, and the index. The paper does not say.
    pub index_away_sectors: u64,
    /// See [`Volume::new`].
    pub pitch_sectors: u64,
    /// Seed of the keys.
    pub seed: u64,
}

/// A tuple of the outer relation, and the blocks that it leads to.
#[derive(Clone, Copy, Debug)]
struct Tuple {
    outer: u64,
    /// Blocks of the index, from the root down.
    index: [u64; 3],
    /// First block in the inner relation, and number of blocks.
    inner: Option<(u64, u64)>,
}

impl Tuple {
    fn inner_blocks(self) -> impl Iterator<Item = u64> {
        self.inner.into_iter().flat_map(|(first, blocks)| first..first + blocks)
    }
}

impl Join {
    /// The program and its files.
    pub fn workload(&self) -> Workload {
        Workload::of(self.pitch_sectors, &[&|volume, reader| self.program(volume, reader)])
    }

    /// The program, and its files in `volume`.
    pub fn program(&self, volume: &mut Volume, reader: ReaderId) -> Program {
        let [outer_bytes, inner_bytes, index_bytes] = RELATIONS_BYTES;
        let [outer, inner] = [outer_bytes, inner_bytes].map(|bytes| volume.file(bytes));
        volume.leave_room(self.index_away_sectors);
        let index = volume.file(index_bytes);
        let files = [outer, inner, index];
        let tuples = self.tuples(files);
        let mut steps = files.map(|file| Step::Open(file.file, file.device)).to_vec();
        let disclosed = self.form == Loop::Disclosed;
        if disclosed {
            steps.push(Step::Hint(outer.hint(1)));
        }
        steps.extend(self.first_loop(&tuples, files));
        if self.form != Loop::Standard {
            steps.extend(self.second_loop(&tuples, outer, inner, disclosed));
        }
        Program::new("join", reader, Box::new(steps.into_iter()))
    }

    fn tuples(&self, [outer, inner, index]: [StoredFile; 3]) -> Vec<Tuple> {
        let mut random = SplitMix64::new(self.seed);
        let per_block = OUTER_TUPLES.div_ceil(outer.blocks);
        let branches = (index.blocks - 1).div_ceil(FANOUT + 1);
        let leaves = index.blocks - 1 - branches;
        let tuple = |number: u64| {
            let key = random.below(MATCH * INNER_TUPLES);
            let (leaf, found) = self.inner_keys.find(key, leaves);
            let index = [0, 1 + leaf * branches / leaves, 1 + branches + leaf];
            let inner = found.then(|| {
                let first = random.below(inner.blocks - 1);
                let goes_on =
                    self.matches_per_chain > 0 && random.below(self.matches_per_chain) == 0;
                (first, 1 + u64::from(goes_on))
            });
            Tuple { outer: number / per_block, index, inner }
        };
        (0..OUTER_TUPLES).map(tuple).collect()
    }

    /// Searches the index for all tuples, and in the standard form reads the matches.
    fn first_loop(&self, tuples: &[Tuple], [outer, inner, index]: [StoredFile; 3]) -> Vec<Step> {
        let mut steps = Vec::new();
        let mut last = None;
        for &tuple in tuples {
            if last.replace(tuple.outer) != Some(tuple.outer) {
                steps.push(outer.read(tuple.outer));
            }
            steps.extend(tuple.index.map(|block| index.read(block)));
            steps.push(Step::Compute(self.tuple_cpu));
            if self.form == Loop::Standard {
                steps.extend(self.matched(tuple, inner));
            }
        }
        steps
    }

    /// Reads the outer relation again, block by block, with the inner blocks that it leads to.
    fn second_loop(
        &self,
        tuples: &[Tuple],
        outer: StoredFile,
        inner: StoredFile,
        disclosed: bool,
    ) -> Vec<Step> {
        let groups = || tuples.chunk_by(|one, next| one.outer == next.outer);
        let mut steps = Vec::new();
        for group in groups().filter(|_| disclosed) {
            steps.push(Step::Hint(outer.hint_blocks([group[0].outer])));
            let blocks: Vec<u64> = group.iter().flat_map(|tuple| tuple.inner_blocks()).collect();
            if !blocks.is_empty() {
                steps.push(Step::Hint(inner.hint_blocks(blocks)));
            }
        }
        for group in groups() {
            steps.push(outer.read(group[0].outer));
            steps.extend(group.iter().flat_map(|&tuple| self.matched(tuple, inner)));
        }
        steps
    }

    fn matched(&self, tuple: Tuple, inner: StoredFile) -> impl Iterator<Item = Step> {
        let work = tuple.inner.map(|_| Step::Compute(self.match_cpu));
        tuple.inner_blocks().map(move |block| inner.read(block)).chain(work)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Leaves of an index of this size.
    const LEAVES: u64 = 607;

    /// For each leaf, how many of all possible outer keys lead to it: those without a match, and those with
    /// one.
    fn by_leaf(keys: InnerKeys) -> [Vec<u64>; 2] {
        let mut counts = [(); 2].map(|()| vec![0; LEAVES as usize]);
        for key in 0..MATCH * INNER_TUPLES {
            let (leaf, found) = keys.find(key, LEAVES);
            counts[usize::from(found)][leaf as usize] += 1;
        }
        counts
    }

    #[test]
    fn one_key_in_five_finds_a_tuple_and_leaves_have_as_many_of_them() {
        for keys in [InnerKeys::First, InnerKeys::Between] {
            let [_, found] = by_leaf(keys);
            assert_eq!(found.iter().sum::<u64>(), INNER_TUPLES);
            assert!(found.iter().all(|found| (329..=330).contains(found)), "{keys:?}: {found:?}");
        }
    }

    #[test]
    fn keys_without_a_tuple_are_in_the_last_leaf_or_in_all() {
        let [first, _] = by_leaf(InnerKeys::First);
        assert_eq!(first.last(), Some(&(4 * INNER_TUPLES)));
        assert_eq!(first.iter().sum::<u64>(), 4 * INNER_TUPLES);
        let [between, _] = by_leaf(InnerKeys::Between);
        assert!(between.iter().all(|without| (1316..=1319).contains(without)), "{between:?}");
    }

    fn join(inner_keys: InnerKeys) -> Join {
        let [tuple_cpu, match_cpu] = [Nanos(1), Nanos(1)];
        let (form, matches_per_chain, index_away_sectors) = (Loop::Standard, 25, 1 << 20);
        Join {
            form,
            tuple_cpu,
            match_cpu,
            inner_keys,
            matches_per_chain,
            index_away_sectors,
            pitch_sectors: 16,
            seed: 1,
        }
    }

    #[test]
    fn tuples_lead_to_blocks_that_are_there() {
        for join in [InnerKeys::First, InnerKeys::Between].map(join) {
            let mut volume = Volume::new(16);
            let files = RELATIONS_BYTES.map(|bytes| volume.file(bytes));
            let [outer, inner, index] = files;
            let tuples = join.tuples(files);
            let matches: Vec<(u64, u64)> = tuples.iter().filter_map(|tuple| tuple.inner).collect();
            assert!((3_800..4_200).contains(&matches.len()), "{}", matches.len());
            let long = matches.iter().filter(|(_, blocks)| *blocks == 2).count();
            assert!((120..200).contains(&long), "{long}");
            assert!(matches.iter().all(|(first, blocks)| first + blocks <= inner.blocks));
            assert!(tuples.is_sorted_by_key(|tuple| tuple.outer));
            assert!(tuples.iter().all(|tuple| tuple.outer < outer.blocks));
            // Each search reads the root, a block of the intermediate level, and a leaf.
            let leaves = index.blocks - LEAVES..index.blocks;
            for &Tuple { index, .. } in &tuples {
                assert!(index[0] == 0 && (1..leaves.start).contains(&index[1]), "{index:?}");
                assert!(leaves.contains(&index[2]), "{index:?}");
            }
            let read = |leaf| tuples.iter().any(|tuple| tuple.index[2] == leaf);
            assert!(leaves.clone().filter(|&leaf| read(leaf)).count() > 600);
        }
    }

    #[test]
    fn the_index_lies_away_from_the_relations() {
        let places = |index_away_sectors| {
            let join = Join { index_away_sectors, ..join(InnerKeys::First) };
            let places = join.workload().volume.places;
            let mut first: Vec<u64> = places.values().map(|place| place.first_sector).collect();
            first.sort_unstable();
            first
        };
        let [beside, away] = [0, 1 << 20].map(places);
        assert_eq!(away[..2], beside[..2]);
        assert_eq!(away[2], beside[2] + (1 << 20));
    }
}
