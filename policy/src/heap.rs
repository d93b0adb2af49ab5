//! A binary heap that knows where everybody is, so that a key can change.
//!
//! Members are small integers (estimators, streams); each has at most one place. Largest key first;
//! equal keys in the order of the members, so that runs repeat. O(log n) a change, 20 bytes a member.

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

    /// The largest key but for that of the first member.
    pub(crate) fn second_key(&self) -> Option<f64> {
        let keys = self.heap.iter().skip(1).take(2).map(|&(key, _)| key);
        keys.reduce(f64::max)
    }

    /// Gives `member` this key, or takes it out.
    pub(crate) fn set(&mut self, member: u32, key: Option<f64>) {
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
                self.up(self.heap.len() - 1);
            }
            (place, None) => {
                let place = place as usize - 1;
                self.places[index] = 0;
                self.heap.swap_remove(place);
                if place < self.heap.len() {
                    let place = self.up(place);
                    self.down(place);
                }
            }
            (place, Some(key)) => {
                let place = place as usize - 1;
                if self.heap[place].0 != key {
                    self.heap[place].0 = key;
                    let place = self.up(place);
                    self.down(place);
                }
            }
        }
    }

    fn before(&self, one: usize, other: usize) -> bool {
        let (one, other) = (self.heap[one], self.heap[other]);
        one.0 > other.0 || (one.0 == other.0 && one.1 < other.1)
    }

    fn up(&mut self, mut place: usize) -> usize {
        while place > 0 && self.before(place, (place - 1) / 2) {
            self.heap.swap(place, (place - 1) / 2);
            self.note(place);
            place = (place - 1) / 2;
        }
        self.note(place);
        place
    }

    fn down(&mut self, mut place: usize) {
        loop {
            let mut best = place;
            for child in [2 * place + 1, 2 * place + 2] {
                if child < self.heap.len() && self.before(child, best) {
                    best = child;
                }
            }
            self.note(place);
            if best == place {
                return;
            }
            self.heap.swap(place, best);
            self.note(place);
            place = best;
        }
    }

    fn note(&mut self, place: usize) {
        let member = self.heap[place].1;
        self.places[member as usize] = u32::try_from(place + 1).expect("fewer than 2³² members");
    }
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
