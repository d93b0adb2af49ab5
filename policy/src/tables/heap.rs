//! A heap that knows the place of each member, so that its key can change.
//!
//! Members are small integers (estimators, streams), each with at most one place. The largest key comes first. Equal keys are
//! ordered by member, so that runs repeat. A change takes O(log n), a member 20 bytes.

use std::hint::select_unpredictable;

/// Children of an entry. There are half as many levels as with two, and the children of an entry lie in at most two cache
/// lines.
/// Unit: entries. Reason: layout.
const CHILDREN: usize = 4;

/// See the [module](self).
#[derive(Debug, Default)]
pub(crate) struct IndexedHeap {
    heap: Vec<(f64, u32)>,
    /// Place in `heap` plus one of each member; 0 for none.
    places: Vec<u32>,
}

impl IndexedHeap {
    /// The member with the largest key.
    pub(crate) fn first(&self) -> Option<(u32, f64)> {
        self.heap.first().map(|&(key, member)| (member, key))
    }

    /// The largest key after the first member's.
    pub(crate) fn second_key(&self) -> Option<f64> {
        let keys = self.heap.iter().skip(1).take(CHILDREN).map(|&(key, _)| key);
        keys.reduce(f64::max)
    }

    /// Sets the key of `member`, or removes it.
    pub(crate) fn set(&mut self, member: u32, key: Option<f64>) {
        debug_assert!(!key.is_some_and(f64::is_nan), "no order of {member}");
        let index = member as usize;
        if self.places.len() <= index {
            if key.is_none() {
                return;
            }
            self.places.resize(index + 1, 0);
        }
        match (self.places[index], key) {
            (0, None) => {}
            (0, Some(key)) => {
                self.heap.push((key, member));
                self.up(self.heap.len() - 1, (key, member));
            }
            (place, None) => {
                self.places[index] = 0;
                let last = self.heap.pop().expect("it is in the heap");
                self.put(place as usize - 1, last);
            }
            (place, Some(key)) => {
                let place = place as usize - 1;
                if self.heap[place].0 != key {
                    self.put(place, (key, member));
                }
            }
        }
    }

    /// Puts an entry in the place of another, unless that was the last place, and moves it to where it belongs.
    fn put(&mut self, place: usize, entry: (f64, u32)) {
        if place < self.heap.len() && self.up(place, entry) == place {
            self.down(place, entry);
        }
    }

    /// Moves the entry for `place` up as far as needed. Returns its place.
    fn up(&mut self, mut place: usize, entry: (f64, u32)) -> usize {
        while place > 0 {
            let parent = (place - 1) / CHILDREN;
            let above = self.heap[parent];
            if !comes_before(entry, above) {
                break;
            }
            self.note(place, above);
            place = parent;
        }
        self.note(place, entry);
        place
    }

    /// Moves the entry for `place` down as far as needed.
    fn down(&mut self, mut place: usize, entry: (f64, u32)) {
        while let Some(child) = self.first_child(place) {
            let below = self.heap[child];
            if !comes_before(below, entry) {
                break;
            }
            self.note(place, below);
            place = child;
        }
        self.note(place, entry);
    }

    /// The child of `place` whose key comes first. A processor could not predict which one that is, so no branch depends on it.
    #[inline]
    fn first_child(&self, place: usize) -> Option<usize> {
        let first = CHILDREN * place + 1;
        let children = self.heap.get(first..)?;
        let Some(&[a, b, c, d]) = children.first_chunk::<CHILDREN>() else {
            let rest = (first..).zip(children);
            let best = rest.reduce(|best, child| match comes_before(*child.1, *best.1) {
                true => child,
                false => best,
            });
            return best.map(|(place, _)| place);
        };
        let one = select_unpredictable(comes_before(b, a), 1, 0);
        let other = select_unpredictable(comes_before(d, c), 3, 2);
        let other_is_first = comes_before(children[other], children[one]);
        Some(first + select_unpredictable(other_is_first, other, one))
    }

    fn note(&mut self, place: usize, entry: (f64, u32)) {
        self.heap[place] = entry;
        self.places[entry.1 as usize] = place as u32 + 1;
    }
}

/// Whether one entry comes before another.
#[inline]
fn comes_before(one: (f64, u32), other: (f64, u32)) -> bool {
    (one.0 > other.0) | ((one.0 == other.0) & (one.1 < other.1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    proptest! {
        #[test]
        fn the_first_is_the_largest_whatever_changes(
            changes in prop::collection::vec((0u32..20, prop::option::of(0i32..50)), 1..300)
        ) {
            let mut heap = IndexedHeap::default();
            let mut model = std::collections::BTreeMap::new();
            for (member, key) in changes {
                heap.set(member, key.map(f64::from));
                match key {
                    Some(key) => { model.insert(member, key); }
                    None => { model.remove(&member); }
                }
                let mut keys: Vec<(i32, u32)> = model.iter().map(|(&m, &k)| (-k, m)).collect();
                keys.sort_unstable();
                let first = keys.first().map(|&(key, member)| (member, f64::from(-key)));
                prop_assert_eq!(heap.first(), first);
                prop_assert_eq!(heap.second_key(), keys.get(1).map(|&(key, _)| f64::from(-key)));
            }
        }
    }
}
