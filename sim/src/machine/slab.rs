//! Tables of items in flight, found by key without a hash. Places are reused.
//!
//! * [`Slab`] gives its items keys. A key names one item for ever: a later item in the same place has another key, and the
//!   old key finds nothing.
//! * [`Beside`] keeps more data about the items of a slab, by the same keys.
//!
//! Both keep as many places as there were items at once.

/// The name of an item: its place, and the number of items in that place before it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Key {
    place: u32,
    generation: u32,
}

#[cfg(test)]
impl Key {
    /// The key of the first item in `place`.
    pub(super) fn first_at(place: u32) -> Self {
        Key { place, generation: 0 }
    }
}

/// Items and their keys; see the [module](self).
#[derive(Debug)]
pub(super) struct Slab<T> {
    /// Each with the generation of its present or next item.
    places: Vec<(u32, Option<T>)>,
    free: Vec<u32>,
}

impl<T> Slab<T> {
    pub(super) fn new() -> Self {
        Slab { places: Vec::new(), free: Vec::new() }
    }

    /// Adds an item.
    pub(super) fn insert(&mut self, item: T) -> Key {
        if let Some(place) = self.free.pop() {
            let (generation, vacant) = &mut self.places[place as usize];
            *vacant = Some(item);
            return Key { place, generation: *generation };
        }
        let place = u32::try_from(self.places.len()).expect("less is under way than 2^32");
        self.places.push((0, Some(item)));
        Key { place, generation: 0 }
    }

    /// Whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.free.len() == self.places.len()
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let (generation, item) = self.places.get_mut(key.place as usize)?;
        item.as_mut().filter(|_| *generation == key.generation)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let (generation, item) = self.places.get_mut(key.place as usize)?;
        if *generation != key.generation {
            return None;
        }
        let item = item.take()?;
        *generation = generation.wrapping_add(1);
        self.free.push(key.place);
        Some(item)
    }
}

/// More data about the items of a slab; see the [module](self).
#[derive(Debug)]
pub(super) struct Beside<T> {
    places: Vec<Option<(Key, T)>>,
}

impl<T> Beside<T> {
    pub(super) fn new() -> Self {
        Beside { places: Vec::new() }
    }

    /// Adds data. Returns the old data of this place, if it was not removed.
    pub(super) fn insert(&mut self, key: Key, item: T) -> Option<T> {
        let place = key.place as usize;
        if place >= self.places.len() {
            self.places.resize_with(place + 1, || None);
        }
        self.places[place].replace((key, item)).map(|(_, before)| before)
    }

    /// Whether it is empty.
    pub(super) fn is_empty(&self) -> bool {
        self.places.iter().all(Option::is_none)
    }

    pub(super) fn get(&self, key: Key) -> Option<&T> {
        let kept = self.places.get(key.place as usize)?.as_ref();
        kept.filter(|(of, _)| *of == key).map(|(_, item)| item)
    }

    pub(super) fn get_mut(&mut self, key: Key) -> Option<&mut T> {
        let kept = self.places.get_mut(key.place as usize)?.as_mut();
        kept.filter(|(of, _)| *of == key).map(|(_, item)| item)
    }

    pub(super) fn remove(&mut self, key: Key) -> Option<T> {
        let kept = self.places.get_mut(key.place as usize)?;
        kept.take_if(|(of, _)| *of == key).map(|(_, item)| item)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_key_names_one_item_for_ever() {
        let mut slab = Slab::new();
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(slab.remove(a), Some('a'));
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.get_mut(a), None);
        let c = slab.insert('c');
        assert_ne!(a, c);
        assert_eq!(slab.get_mut(a), None);
        assert_eq!(slab.remove(a), None);
        assert_eq!(slab.remove(c), Some('c'));
        assert!(!slab.is_empty());
        assert_eq!(slab.remove(b), Some('b'));
        assert!(slab.is_empty());
        assert_eq!(slab.places.len(), 2);
    }

    #[test]
    fn what_is_beside_goes_by_the_same_keys() {
        let (mut slab, mut beside) = (Slab::new(), Beside::new());
        let (a, b) = (slab.insert('a'), slab.insert('b'));
        assert_eq!(beside.insert(b, 2), None);
        assert_eq!(beside.get_mut(a), None);
        assert_eq!((beside.insert(a, 1), beside.remove(a)), (None, Some(1)));
        slab.remove(a);
        let c = slab.insert('c');
        assert_eq!((beside.insert(c, 3), beside.remove(a)), (None, None));
        assert_eq!((beside.get(c), beside.get(a)), (Some(&3), None));
        assert_eq!(beside.get_mut(c), Some(&mut 3));
        assert_eq!(beside.insert(c, 4), Some(3));
        assert_eq!(beside.remove(b), Some(2));
        assert!(!beside.is_empty());
        assert_eq!(beside.remove(c), Some(4));
        assert!(beside.is_empty());
    }
}
