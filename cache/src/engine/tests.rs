//! The engine with a simulated store. The store is slow, fails, answers late, and moves blocks into and out of the near tier.
//! Readers keep frames pinned. Hints are right, wrong and cancelled. The seed determines the whole sequence of events.
//!
//! Files change: each block has a count of writes, and a request may bring the bytes from when it began.
//!
//! Safety, after each step: the bytes of a block are all from one moment during the read, and the invariants hold.
//! Liveness: then faults stop, and everything must end, with no request, no waiting read and no frame missing.

mod accuracy;
mod resizing;

use std::collections::HashMap;
use std::ops::Range;

use foretell_policy::Segment;
use proptest::prelude::*;

use super::*;
use crate::backend::Request;

const BLOCK: usize = 4096;

/// The word at `at` of a block that was written so often. No byte is zero.
fn word(file: FileId, index: u64, writes: u64, at: u64) -> u64 {
    (0xa5 << 56) ^ (file.0 << 48) ^ (index << 40) ^ (writes << 16) ^ at
}

fn byte(file: FileId, at: u64, writes: u64) -> u8 {
    let (index, within) = (at / BLOCK as u64, at % BLOCK as u64);
    word(file, index, writes, within / 8).to_le_bytes()[(within % 8) as usize]
}

fn blocks(range: Range<u64>) -> Range<u64> {
    range.start / BLOCK as u64..range.end.div_ceil(BLOCK as u64)
}

/// Blocks become near and far all the time.
#[derive(Default)]
struct Stub(std::sync::atomic::AtomicU64);

impl Object for Stub {
    fn start(self: Arc<Self>, request: Request) {
        drop(request); // The world answers.
    }

    fn is_near(&self, offset_bytes: u64) -> bool {
        let asked = self.0.fetch_add(1, std::sync::atomic::Ordering::Relaxed);
        (offset_bytes / 3 + asked / 64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 63 == 1
    }
}

/// A request that the store has not answered yet.
struct Held {
    id: RequestId,
    file: FileId,
    offset_bytes: u64,
    parts: Vec<Part>,
    answers_at: u64,
    /// The counts of writes of its blocks when it began, and the size of the file.
    writes: Vec<u64>,
    size: u64,
}

struct Waiting {
    read: Arc<Read>,
    bytes: Box<[u64]>,
    first: u64,
    file: FileId,
    /// The counts of writes of its blocks when it began.
    writes: Vec<u64>,
}

#[derive(Clone, Debug)]
struct Faults {
    /// Of 256 requests, the number that fail, and the number that find the device busy.
    fails: u8,
    busy: u8,
    /// Steps until an answer, at most.
    slow: u64,
    /// Of 256 copies, the number that are delayed.
    lingers: u8,
    /// Of 256 steps, the numbers in which a file changes, and in which the cache gets another size.
    changes: u8,
    resizes: u8,
}

const NONE: Faults = Faults { fails: 0, busy: 0, slow: 1, lingers: 0, changes: 0, resizes: 0 };

struct World {
    engine: Engine,
    slab: Arc<Slab>,
    files: Vec<(FileId, u64)>,
    writes: HashMap<Block, u64>,
    streams: Vec<StreamId>,
    held: Vec<Held>,
    waiting: Vec<Waiting>,
    copies: Vec<Delivery>,
    step: u64,
    seed: u64,
    faults: Faults,
    errors: usize,
    done: usize,
}

impl World {
    fn new(frames: u32, seed: u64, faults: Faults) -> Self {
        let slab = Arc::new(Slab::new(frames, BLOCK).unwrap());
        let mut engine = Engine::new(Arc::clone(&slab), BLOCK);
        let devices = [engine.add_device(4, None), engine.add_device(32, Some(8))];
        let mut files = Vec::new();
        for number in 0..6u64 {
            let size = 1 + number * 37_000 + number % 2 * 4095;
            let id = engine.add_file(devices[number as usize % 2], size, Arc::<Stub>::default());
            files.push((id, size));
        }
        let streams = (0..3).map(|reader| engine.open_stream(Nanos(0), ReaderId(reader))).collect();
        World {
            engine,
            slab,
            files,
            writes: HashMap::new(),
            streams,
            held: Vec::new(),
            waiting: Vec::new(),
            copies: Vec::new(),
            step: 0,
            seed,
            faults,
            errors: 0,
            done: 0,
        }
    }

    fn draw(&mut self) -> u64 {
        self.seed = self
            .seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        self.seed >> 33
    }

    fn now(&self) -> Nanos {
        Nanos(self.step * 100_000)
    }

    fn writes(&self, file: FileId, range: Range<u64>) -> Vec<u64> {
        let writes = |index| self.writes.get(&Block { file, index }).copied().unwrap_or(0);
        blocks(range).map(writes).collect()
    }

    fn size(&self, file: FileId) -> u64 {
        self.files.iter().find(|known| known.0 == file).expect("it is one of them").1
    }

    /// Overwrites a part of a file, which may grow, or cuts the file.
    fn change(&mut self, number: usize, at: u64, length: u64, is_cut: bool) {
        let (file, before) = self.files[number];
        let (range, size) = match is_cut {
            true => (at..at, at),
            false => (at..at + length, before.max(at + length)),
        };
        // All changed bytes, including holes and the part cut off.
        let touched = range.start.min(before)..range.end.max(before.max(size));
        let touched = if size == before { range.clone() } else { touched };
        for index in blocks(touched) {
            *self.writes.entry(Block { file, index }).or_default() += 1;
        }
        self.files[number].1 = size;
        let mut todo = Todo::default();
        self.engine.changed(self.now(), file, (range, size), &mut todo);
        self.take_in(todo);
    }

    fn take_in(&mut self, mut todo: Todo) {
        for start in todo.start.drain(..) {
            let pending = &self.engine.requests[&start.id];
            let file = pending.first.file;
            let answers_at = self.step + 1 + self.draw() % self.faults.slow.max(1);
            let (id, offset_bytes, parts) = (start.id, start.offset_bytes, start.parts);
            let length: usize = parts.iter().map(|part| part.length).sum();
            assert!(length > 0);
            let writes = self.writes(file, offset_bytes..offset_bytes + length as u64);
            let size = self.size(file);
            self.held.push(Held { id, file, offset_bytes, parts, answers_at, writes, size });
        }
        self.copies.append(&mut todo.copy);
        for read in todo.settled.drain(..) {
            read.settled(1);
        }
    }

    fn read(&mut self, reader: u64, (file, size): (FileId, u64), at: u64, length: u64) {
        let first = at / BLOCK as u64 * BLOCK as u64;
        let length = length.min(size.saturating_sub(at));
        if length == 0 {
            return;
        }
        let mut bytes = vec![u64::MAX; (length as usize).div_ceil(8) + 2].into_boxed_slice();
        // Aligned like the words of the file, so that they can be compared.
        let place = bytes.as_mut_ptr().cast::<u8>().wrapping_add((at % 8) as usize);
        // SAFETY: the words live in `waiting` until the read has ended, and are not looked at before.
        let read = Arc::new(unsafe {
            Read::new(
                (place, None),
                (at, length as usize),
                (file, ReaderId(reader)),
                self.now(),
                None,
            )
        });
        let mut todo = Todo::default();
        self.engine.read(self.now(), &read, first / BLOCK as u64, &mut todo);
        let writes = self.writes(file, at..at + length);
        let (waits, first) = (Arc::clone(&read), at);
        self.waiting.push(Waiting { read: waits, bytes, first, file, writes });
        self.take_in(todo);
        read.settled(1);
    }

    fn answer(&mut self) {
        let due = self.held.iter().position(|held| held.answers_at <= self.step);
        let Some(held) = due.map(|at| self.held.swap_remove(at)) else { return };
        let draw = self.draw() as u8;
        let result = if draw < self.faults.fails {
            Err(BackendError::Lost)
        } else if draw < self.faults.fails.saturating_add(self.faults.busy) {
            Err(BackendError::Busy("".into()))
        } else {
            let length: usize = held.parts.iter().map(|part| part.length).sum();
            let end = held.offset_bytes + length as u64;
            // The bytes from when it began, or the bytes of now.
            let is_old = draw & 1 == 0;
            let now = self.writes(held.file, held.offset_bytes..end);
            let writes = if is_old { &held.writes } else { &now };
            let size = if is_old { held.size } else { self.size(held.file) };
            let mut at = held.offset_bytes;
            for part in &held.parts {
                for within in 0..part.length {
                    let here = at + within as u64;
                    let written = writes
                        [(here / BLOCK as u64 - blocks(held.offset_bytes..end).start) as usize];
                    // SAFETY: the part belongs to this request.
                    unsafe { part.start.add(within).write(byte(held.file, here, written)) }
                }
                at += part.length as u64;
            }
            if end > size { Err(BackendError::Changed) } else { Ok(()) }
        };
        let mut todo = Todo::default();
        self.engine.completed(self.now(), held.id, result, &mut todo);
        self.take_in(todo);
    }

    /// Lets time pass until the store has answered all requests.
    fn answer_all(&mut self) {
        while !self.held.is_empty() {
            self.step += 1;
            self.answer();
        }
    }

    fn copy(&mut self, lingers: u8) {
        let copies = std::mem::take(&mut self.copies);
        let mut called = false;
        for delivery in copies {
            if (self.draw() as u8) < lingers {
                self.copies.push(delivery);
                continue;
            }
            let start = delivery.block.index * BLOCK as u64;
            let (from, to) = delivery.read.within(start, start + BLOCK as u64);
            let part = delivery.read.part(from, to);
            // SAFETY: the destination is in `waiting`.
            unsafe {
                let (frame, from) = (delivery.pinned.frame, (from - start) as usize);
                self.slab.copy_out(frame..frame + 1, from, part.start, part.length);
            }
            called |= self.slab.unpin(delivery.pinned.frame);
            delivery.read.settled(1);
        }
        if called {
            let mut todo = Todo::default();
            self.engine.pump(self.now(), &mut todo);
            self.take_in(todo);
        }
        let (done, waiting) = std::mem::take(&mut self.waiting)
            .into_iter()
            .partition(|waiting| waiting.read.is_over());
        self.waiting = waiting;
        for waiting in done {
            self.done += 1;
            self.look_at(&waiting);
        }
    }

    fn look_at(&mut self, waiting: &Waiting) {
        let Waiting { read, bytes, first, file, writes } = waiting;
        if let Some((_, cause)) = read.take_error() {
            assert!(cause != BackendError::Changed || self.faults.changes > 0);
            self.errors += 1;
            return;
        }
        let bytes: Vec<u8> = bytes.iter().flat_map(|word| word.to_le_bytes()).collect();
        let range = *first..first + read.length as u64;
        let now = self.writes(*file, range.clone());
        for (number, index) in blocks(range.clone()).enumerate() {
            let (from, to) = read.within(index * BLOCK as u64, (index + 1) * BLOCK as u64);
            let found = |at: u64| bytes[(at - first + first % 8) as usize];
            let is_of = |writes: u64| (from..to).all(|at| found(at) == byte(*file, at, writes));
            let allowed = writes[number]..=now[number];
            assert!(allowed.clone().any(is_of), "block {index} of {file:?}: not of {allowed:?}");
        }
    }

    fn run(&mut self, steps: u64) {
        for _ in 0..steps {
            self.step += 1;
            let draw = self.draw();
            let (one, other) = (self.draw() as usize % 6, self.draw() as usize % 3);
            let (file, stream) = (self.files[one], self.streams[other]);
            if (self.draw() as u8) < self.faults.changes {
                let (at, length) = (self.draw() % 250_000, self.draw() % 20_000);
                let is_cut = self.draw().is_multiple_of(4);
                // Mostly within the file.
                let at = if draw & 64 == 0 { at } else { at % (file.1 + 1) };
                self.change(one, at, length, is_cut);
            }
            if (self.draw() as u8) < self.faults.resizes {
                self.resize();
            }
            let file = (file.0, self.files[one].1.max(1));
            let mut todo = Todo::default();
            match draw % 16 {
                0..4 => {
                    let file = self.files[one];
                    let at = self.draw() % file.1.max(1);
                    let length = 1 + self.draw() % 60_000;
                    self.read(draw % 3, file, at, length);
                }
                4 => {
                    let segments: Vec<Segment> = (0..8)
                        .map(|_| Segment {
                            offset_bytes: self.draw() % file.1,
                            length_bytes: 1 + self.draw() % 9000,
                        })
                        .collect();
                    let extent = Extent::Segments(segments.into());
                    let order = if draw & 16 == 0 { Order::Given } else { Order::Any };
                    self.engine.hint(self.now(), stream, (file.0, extent, order), &mut todo);
                }
                5 => {
                    let hint = (file.0, Extent::WholeFile, Order::Given);
                    self.engine.hint(self.now(), stream, hint, &mut todo);
                }
                6 if draw & 64 == 0 => self.engine.cancel(self.now(), stream, &mut todo),
                7..11 => self.answer(),
                _ => self.copy(self.faults.lingers),
            }
            self.take_in(todo);
            self.engine.check();
        }
    }

    fn end(&mut self) {
        self.faults = Faults { changes: self.faults.changes, ..NONE };
        for stream in std::mem::take(&mut self.streams) {
            let mut todo = Todo::default();
            self.engine.close_stream(self.now(), stream, &mut todo);
            self.take_in(todo);
        }
        for _ in 0..20_000 {
            self.step += 100_000;
            self.answer();
            self.copy(0);
            if self.held.is_empty() && self.copies.is_empty() && self.waiting.is_empty() {
                break;
            }
        }
        assert!(self.engine.is_idle(), "{} requests are left", self.engine.requests.len());
        assert!(self.waiting.is_empty(), "{} reads still wait", self.waiting.len());
        self.engine.check();
        let mut todo = Todo::default();
        self.engine.pump(self.now(), &mut todo);
        let free = self.engine.free.count() + self.engine.limbo.len() + self.engine.free.away();
        // Absent blocks have a buffer of the policy and no frame.
        let framed = self.engine.policy.held_blocks() - self.engine.absent.len() as u64;
        assert_eq!(free as u64 + framed, u64::from(self.slab.frames()));
        assert!(self.engine.limbo.iter().all(|&frame| self.slab.is_free(frame)));
    }
}

fn faults() -> impl Strategy<Value = Faults> {
    let seldom = prop_oneof![Just(0u8), 1..100u8];
    (0..100u8, 0..60u8, 1..60u64, 0..=200u8, (seldom.clone(), seldom)).prop_map(
        |(fails, busy, slow, lingers, (changes, resizes))| Faults {
            fails,
            busy,
            slow,
            lingers,
            changes,
            resizes,
        },
    )
}

proptest! {
    #[test]
    fn whatever_the_store_does_bytes_are_right_and_everything_ends(
        frames in prop_oneof![1..4u32, 4..40u32, 40..400u32],
        seed: u64,
        faults in faults(),
    ) {
        let mut world = World::new(frames, seed, faults);
        world.run(600);
        world.end();
    }
}

#[test]
fn a_failed_fetch_ahead_is_no_error_of_who_joined_it() {
    let mut world = World::new(64, 1, Faults { fails: 255, ..NONE });
    let (file, stream) = (world.files[5], world.streams[0]);
    let mut todo = Todo::default();
    let hint = (file.0, Extent::WholeFile, Order::Given);
    world.engine.hint(Nanos(0), stream, hint, &mut todo);
    world.take_in(todo);
    assert!(!world.held.is_empty());
    world.read(0, file, 0, 100);
    assert_eq!(world.engine.counts.joined, 1);
    let ahead = world.held.len();
    world.step += 2;
    for _ in 0..ahead {
        world.answer(); // All fail; the read demands its block.
    }
    world.faults.fails = 0;
    world.end();
    assert_eq!((world.errors, world.done), (0, 1));
    assert!(world.engine.counts.failed > 0);
}

#[test]
fn a_failed_demand_is_told_to_all_that_wait_for_it() {
    let mut world = World::new(64, 1, Faults { fails: 255, ..NONE });
    let file = world.files[5];
    world.read(0, file, 0, 100);
    world.read(1, file, 50, 100);
    world.step += 2;
    world.answer();
    world.copy(0);
    assert_eq!((world.errors, world.done), (2, 2));
    assert!(!world.slab.holds(Block { file: file.0, index: 0 }));
}

#[test]
fn neighbours_go_in_one_request_and_what_has_no_buffer_past_the_cache() {
    let mut world = World::new(4, 1, NONE);
    let file = world.files[4]; // None of it is near.
    world.read(0, file, 100, 10 * BLOCK as u64);
    assert_eq!(world.held.len(), 2);
    assert_eq!((world.engine.counts.demanded, world.engine.counts.passed_by), (4, 7));
    world.end();
    assert_eq!((world.errors, world.done), (0, 1));
}

#[test]
fn a_request_whose_frame_is_copied_from_goes_on_when_that_is_over() {
    let mut world = World::new(1, 1, NONE);
    let file = world.files[5];
    world.read(0, file, 0, 100);
    world.step += 2;
    world.answer();
    assert_eq!(world.copies.len(), 1);
    world.read(0, file, BLOCK as u64, 100);
    assert!(world.held.is_empty(), "the only frame is pinned");
    world.copy(0);
    assert_eq!((world.held.len(), world.done), (1, 1));
    world.end();
    assert_eq!((world.errors, world.done), (0, 2));
}

#[test]
fn what_is_on_its_way_when_it_changes_goes_to_who_waits_and_to_nobody_else() {
    let mut world = World::new(8, 1, Faults { changes: 1, ..NONE });
    let file = world.files[5];
    world.read(0, file, 0, 100);
    world.change(5, 50, 10, false);
    world.read(1, file, 0, 100);
    assert_eq!(world.held.len(), 2, "it is asked for again, past the cache");
    assert_eq!((world.engine.counts.joined, world.engine.counts.passed_by), (0, 1));
    world.step += 2;
    world.answer();
    world.answer();
    world.copy(0);
    assert_eq!((world.errors, world.done), (0, 2));
    let block = Block { file: file.0, index: 0 };
    assert!(!world.slab.holds(block) && world.engine.absent.contains(&block));
    // The next one has a frame for it.
    world.read(0, file, 0, 100);
    world.step += 2;
    world.answer();
    assert!(world.slab.holds(block) && world.engine.absent.is_empty());
    world.end();
}

#[test]
fn what_was_in_a_frame_when_it_changed_is_fetched_again() {
    let mut world = World::new(8, 1, Faults { changes: 1, ..NONE });
    let file = world.files[4]; // None of it is near.
    let fetch = |world: &mut World| {
        world.read(0, file, 0, 3 * BLOCK as u64);
        world.step += 2;
        world.answer();
        world.copy(0);
    };
    fetch(&mut world);
    world.change(4, BLOCK as u64, 1, false);
    let held = |world: &World| {
        (0..3).filter(|&index| world.slab.holds(Block { file: file.0, index })).collect::<Vec<_>>()
    };
    assert_eq!(held(&world), [0, 2]);
    fetch(&mut world);
    assert_eq!(held(&world), [0, 1, 2]);
    assert_eq!(world.engine.counts.demanded, 4);
    // Cut within the second block, then longer again: the second and the third have changed.
    world.change(4, BLOCK as u64 + 5, 0, true);
    assert_eq!(held(&world), [0]);
    world.change(4, 3 * BLOCK as u64, 1, false);
    fetch(&mut world);
    world.end();
    assert_eq!((world.errors, world.done), (0, 3));
}

#[test]
fn a_read_beyond_a_new_end_fails() {
    let mut world = World::new(1, 1, Faults { changes: 1, ..NONE });
    let file = world.files[5];
    // The frame is copied from, so the next request waits for it.
    world.read(0, file, 0, 100);
    world.step += 2;
    world.answer();
    world.read(0, file, 5 * BLOCK as u64, 100);
    assert!(world.held.is_empty());
    world.change(5, 4 * BLOCK as u64, 0, true);
    world.read(0, file, 5 * BLOCK as u64, 100);
    world.end();
    assert_eq!((world.errors, world.done), (2, 3));
}

#[test]
fn a_read_across_a_new_end_fails() {
    let mut world = World::new(1, 1, Faults { changes: 1, ..NONE });
    let file = world.files[5];
    world.read(0, file, 0, 100);
    world.step += 2;
    world.answer();
    world.read(0, file, 5 * BLOCK as u64, 100);
    world.read(0, file, 5 * BLOCK as u64, 10);
    assert!(world.held.is_empty());
    world.change(5, 5 * BLOCK as u64 + 10, 0, true);
    world.end();
    assert_eq!((world.errors, world.done), (1, 3));
}
