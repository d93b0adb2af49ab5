//! Containers that return memory as they empty.
//!
//! The standard ones keep the room of their largest size. A stream that had a million hints and now has two would keep the
//! memory of a million until it is closed, and programs may keep any number of streams open.
//!
//! A queue that is less than a quarter full moves to one of half the size. At least as many entries have left since it was last
//! moved or grew as are moved now. So the cost is O(1) per entry removed, and no queue is moved to and fro. Small ones
//! ([`SMALL_BYTES`]) keep their room.

use std::collections::VecDeque;
use std::hash::{BuildHasher, Hash};
use std::ops::Deref;

use hashbrown::HashMap;

/// Containers up to this size keep their room.
/// Unit: bytes. Reason: bound.
pub(crate) const SMALL_BYTES: usize = 4 << 10;

/// A container shrinks when its size divided by this exceeds the part in use.
/// Unit: ratio. Reason: bound.
const USED_DIVISOR: usize = 4;

/// Shrinks the queue if little of it is in use. Returns whether it did. It is to be called after each removal.
#[inline]
pub(crate) fn shrink_queue<T>(queue: &mut VecDeque<T>) -> bool {
    let (used, room) = (queue.len(), queue.capacity());
    if used >= room / USED_DIVISOR || room * size_of::<T>() <= SMALL_BYTES {
        return false;
    }
    queue.shrink_to(room / 2);
    true
}

/// Shrinks a map if little of it is in use. A map that has just grown is at most half as full as a queue that has, so the bound
/// is half as high.
#[inline]
pub(crate) fn shrink_map<K: Eq + Hash, V, S: BuildHasher>(map: &mut HashMap<K, V, S>) {
    let used_bytes = map.len() * size_of::<(K, V)>();
    let room_bytes = map.allocation_size();
    if used_bytes < room_bytes / (2 * USED_DIVISOR) && room_bytes > SMALL_BYTES {
        map.shrink_to(2 * map.len());
    }
}

/// A queue of hints that keeps count of its bytes.
#[derive(Debug)]
pub(crate) struct HintQueue<T> {
    hints: VecDeque<T>,
    room_bytes: usize,
}

impl<T> HintQueue<T> {
    pub(crate) fn new() -> Self {
        HintQueue { hints: VecDeque::new(), room_bytes: 0 }
    }

    /// Bytes that it takes. For a small queue only the part in use counts.
    pub(crate) fn room_bytes(&self) -> usize {
        self.room_bytes
    }

    fn note_room(&mut self) {
        let room_bytes = self.hints.capacity() * size_of::<T>();
        self.room_bytes =
            if room_bytes > SMALL_BYTES { room_bytes } else { self.hints.len() * size_of::<T>() };
    }

    pub(crate) fn push_back(&mut self, hint: T) {
        self.hints.push_back(hint);
        self.note_room();
    }

    pub(crate) fn push_front(&mut self, hint: T) {
        self.hints.push_front(hint);
        self.note_room();
    }

    pub(crate) fn pop_front(&mut self) -> Option<T> {
        let first = self.hints.pop_front();
        shrink_queue(&mut self.hints);
        self.note_room();
        first
    }

    pub(crate) fn front_mut(&mut self) -> Option<&mut T> {
        self.hints.front_mut()
    }

    pub(crate) fn get_mut(&mut self, place: usize) -> Option<&mut T> {
        self.hints.get_mut(place)
    }

    /// Removes all hints and frees the room.
    pub(crate) fn take_all(&mut self) -> VecDeque<T> {
        self.room_bytes = 0;
        std::mem::take(&mut self.hints)
    }
}

impl<T> Deref for HintQueue<T> {
    type Target = VecDeque<T>;
    fn deref(&self) -> &VecDeque<T> {
        &self.hints
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tables::hash::Mix;

    #[test]
    fn room_follows_what_is_in_use() {
        let mut queue = HintQueue::new();
        (0..100_000u64).for_each(|hint| queue.push_back(hint));
        assert!(queue.room_bytes() >= 800_000);
        let (mut moved, mut room) = (0, queue.capacity());
        while queue.pop_front().is_some() {
            if queue.capacity() < room {
                (moved, room) = (moved + queue.len(), queue.capacity());
            }
            assert!(queue.capacity() <= 4 * queue.len() + SMALL_BYTES / 8 + 4);
        }
        assert!(moved <= 100_000, "{moved} were moved");
        assert_eq!(queue.room_bytes(), 0, "what is left is small");
    }

    #[test]
    fn what_comes_and_goes_is_not_moved_each_time() {
        let mut queue: VecDeque<u64> = (0..100_000).collect();
        let mut shrunk = 0;
        for used in [24_000, 12_000] {
            queue.truncate(used);
            for _ in 0..1000 {
                queue.extend(0..2000);
                for _ in 0..2000 {
                    queue.pop_front();
                    shrunk += u32::from(shrink_queue(&mut queue));
                }
            }
        }
        assert_eq!(shrunk, 2);
    }

    #[test]
    fn so_does_that_of_a_map() {
        let mut map: HashMap<u64, u64, Mix> = (0..100_000).map(|key| (key, key)).collect();
        for key in 0..100_000 {
            map.remove(&key);
            shrink_map(&mut map);
            assert!(map.allocation_size() <= 17 * 8 * map.len() + 2 * SMALL_BYTES);
        }
    }
}
