//! A join by an index: Postgres of TIP 1995, section 3.4.
//!
//! The outer relation of 20,000 tuples (3.2 MB) is read in sequence; for each tuple the index of the inner relation
//! (5 MB) is asked, and one in five finds a tuple in the inner relation of 200,000 (32 MB). As it comes, the
//! inner tuple is read at once. With the loop split, the first loop asks the index only and remembers
//! addresses; the second reads the outer relation again, and the inner tuples, which can be disclosed.
//!
//! The index is a tree of three levels: a root, a level below it, and leaves. Keys of the outer relation are uniform in a
//! range five times as wide as the inner relation has tuples, each with a key of its own: see [`InnerKeys`]. What is
//! written is left out: it goes to memory, behind the program's back.

use foretell_policy::{Nanos, ReaderId};

use super::{Volume, Workload};
use crate::machine::program::{Program, Step, StoredFile};
use crate::random::SplitMix64;

/// Tuples of the outer relation.
pub const OUTER_TUPLES: u64 = 20_000;
/// Bytes of the outer relation, the inner one, and its index.
pub const RELATIONS_BYTES: [u64; 3] = [3_200_000, 32_000_000, 5_000_000];
/// Tuples of the inner relation.
pub const INNER_TUPLES: u64 = 200_000;
/// One outer tuple in so many finds an inner one.
pub const MATCH: u64 = 5;
/// Entries in a block of the index above its leaves.
const FANOUT: u64 = 256;

/// How the join is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Loop {
    /// In one loop.
    Standard,
    /// In two loops.
    Split,
    /// In two loops, and what they read in known order is disclosed.
    Disclosed,
}

impl Loop {
    /// All of them, in the paper's order.
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

/// Which keys of those that the outer relation may have are the inner one's. The paper says that one in five finds a
/// match, not why.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum InnerKeys {
    /// The first. All beyond them lead to the index's last leaf, and each other leaf is asked for by its matches alone: 6 to 7
    /// times, where an inner block is once. Inner blocks push leaves out of the cache.
    First,
    /// One in five, so that keys without a match are between the others. A leaf is asked for 33 times, and few are pushed out.
    Between,
}

impl InnerKeys {
    /// The leaf, of so many, that leads to a key below [`MATCH`] · [`INNER_TUPLES`], and whether the inner relation has it.
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
    /// How.
    pub form: Loop,
    /// Work on each outer tuple, its lookup included.
    pub tuple_cpu: Nanos,
    /// Work on each match.
    pub match_cpu: Nanos,
    /// Which keys match.
    pub inner_keys: InnerKeys,
    /// One match in so many goes on in the next block; 0: none does. The paper does not say.
    pub matches_per_chain: u64,
    /// What lies between the relations, which are side by side, and the index: sectors of the volume. The paper does
    /// not say.
    pub index_away_sectors: u64,
    /// See [`Volume::new`].
    pub pitch_sectors: u64,
    /// Decides keys.
    pub seed: u64,
}

/// What a tuple of the outer relation leads to.
#[derive(Clone, Copy, Debug)]
struct Tuple {
    outer: u64,
    /// Blocks of the index, from the root on.
    index: [u64; 3],
    /// First block of the inner relation, and how many.
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

    /// Of all tuples the index, and what it leads to if that is not left to the second loop.
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

    /// The outer relation again, block by block, and the inner blocks it leads to.
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

    /// How many outer keys, of all that there may be, lead to each leaf: without a tuple, and with one.
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
            // The root, a block of the level below, and a leaf: of all of them.
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
