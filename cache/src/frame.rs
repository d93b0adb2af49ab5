//! The header of a frame: which block it has, and how readers know that they may copy it.
//!
//! The words are generic, so that the orderings can be tried by a model checker.

use std::sync::atomic::{AtomicU64, Ordering, fence};

/// Bit of a frame's state: it has the data of its block.
pub(crate) const VALID: u64 = 1;
/// Bit of a frame's state: it was prefetched and not read since.
pub(crate) const UNREAD: u64 = 2;
/// One pin, in the state's remaining bits.
pub(crate) const PIN: u64 = 4;

/// An atomic number, as the headers use it.
pub(crate) trait Word {
    fn load(&self, order: Ordering) -> u64;
    fn store(&self, value: u64, order: Ordering);
    fn fetch_add(&self, value: u64, order: Ordering) -> u64;
    fn fetch_or(&self, value: u64, order: Ordering) -> u64;
    fn fetch_and(&self, value: u64, order: Ordering) -> u64;
    /// A fence between such words.
    fn fence(order: Ordering);
}

/// A header, in memory that begins as zeros: without a block.
#[derive(Debug)]
#[repr(C)]
pub(crate) struct Header<W = AtomicU64> {
    pub(crate) state: W,
    pub(crate) file: W,
    pub(crate) index: W,
    /// Counts the times that the frame's data has been withdrawn.
    version: W,
}

/// What a reader without a pin has seen of a frame before its copy.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    version: u64,
    /// Whether it was prefetched and has not been read since.
    pub(crate) is_unread: bool,
}

impl<W: Word> Header<W> {
    /// Whether it names this block. Of meaning only while it is valid.
    pub(crate) fn is_of(&self, file: u64, index: u64) -> bool {
        self.file.load(Ordering::Relaxed) == file && self.index.load(Ordering::Relaxed) == index
    }

    /// The owner: the frame has the data of this block.
    pub(crate) fn publish(&self, file: u64, index: u64, is_unread: bool) {
        self.file.store(file, Ordering::Relaxed);
        self.index.store(index, Ordering::Relaxed);
        let state = VALID | if is_unread { UNREAD } else { 0 };
        // Not a store: a reader that looked for another block may have it pinned for a moment.
        self.state.fetch_or(state, Ordering::Release);
    }

    /// The owner: the frame has no data any more. It may be written to once it has no pins.
    pub(crate) fn withdraw(&self) {
        self.state.fetch_and(!(VALID | UNREAD), Ordering::SeqCst);
        // After the state: whoever acquires this version does not find the frame valid because of its old data.
        self.version.fetch_add(1, Ordering::Release);
        // Before any write to the data: whoever sees such a write, and then fences, sees this version.
        W::fence(Ordering::Release);
    }

    /// A reader without a pin, before its copy: `None` if the frame does not have the data of this block.
    pub(crate) fn look(&self, file: u64, index: u64) -> Option<Seen> {
        let version = self.version.load(Ordering::Acquire);
        // Acquires the data, file and index that were written before the frame was published.
        let state = self.state.load(Ordering::Acquire);
        let is_it = state & VALID != 0 && self.is_of(file, index);
        is_it.then_some(Seen { version, is_unread: state & UNREAD != 0 })
    }

    /// The same reader, after its copy: whether what it copied is the data of the block.
    pub(crate) fn is_still(&self, seen: Seen) -> bool {
        W::fence(Ordering::Acquire);
        self.version.load(Ordering::Relaxed) == seen.version
    }
}

macro_rules! word {
    ($atomic:ty, $fence:path) => {
        impl Word for $atomic {
            fn load(&self, order: Ordering) -> u64 {
                self.load(order)
            }
            fn store(&self, value: u64, order: Ordering) {
                self.store(value, order);
            }
            fn fetch_add(&self, value: u64, order: Ordering) -> u64 {
                self.fetch_add(value, order)
            }
            fn fetch_or(&self, value: u64, order: Ordering) -> u64 {
                self.fetch_or(value, order)
            }
            fn fetch_and(&self, value: u64, order: Ordering) -> u64 {
                self.fetch_and(value, order)
            }
            fn fence(order: Ordering) {
                $fence(order);
            }
        }
    };
}
word!(AtomicU64, fence);

#[cfg(test)]
mod model {
    use loom::sync::Arc;
    use loom::sync::atomic::AtomicU64 as Modelled;
    use loom::thread;

    use super::*;

    word!(Modelled, loom::sync::atomic::fence);

    struct Frame {
        header: Header<Modelled>,
        data: [Modelled; 2],
    }

    impl Frame {
        fn new() -> Arc<Self> {
            let word = || Modelled::new(0);
            let header = Header { state: word(), file: word(), index: word(), version: word() };
            Arc::new(Frame { header, data: [word(), word()] })
        }

        /// What the owner does: fills the frame, and publishes it.
        fn fill(&self, index: u64) {
            self.data.iter().for_each(|word| word.store(index, Ordering::Relaxed));
            self.header.publish(7, index, false);
        }

        /// A copy by a reader without a pin.
        fn read(&self, index: u64) -> Option<[u64; 2]> {
            let seen = self.header.look(7, index)?;
            let copy = [0, 1].map(|at: usize| self.data[at].load(Ordering::Relaxed));
            self.header.is_still(seen).then_some(copy)
        }
    }

    /// In every order of events, a copy that is found good is whole and of the block that was asked for.
    #[test]
    fn a_reader_without_a_pin_never_takes_half_of_a_block() {
        // With both readers at once there would be too many orders to try.
        for index in [1, 2] {
            loom::model(move || {
                let frame = Frame::new();
                frame.fill(1);
                let reader = {
                    let frame = Arc::clone(&frame);
                    thread::spawn(move || {
                        if let Some(copy) = frame.read(index) {
                            assert_eq!(copy, [index; 2]);
                        }
                    })
                };
                frame.header.withdraw();
                frame.fill(2);
                reader.join().unwrap();
                assert_eq!(frame.read(2), Some([2; 2]));
            });
        }
    }
}
