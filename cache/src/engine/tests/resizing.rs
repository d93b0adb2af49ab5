//! Frames go out of use and come back, whatever else happens (G).

use super::*;

impl World {
    pub(super) fn resize(&mut self) {
        let frames = self.draw() % (2 * u64::from(self.slab.frames()));
        let (most, now) = (1 + self.draw() % 64, self.now());
        let mut todo = Todo::default();
        match self.draw() % 4 {
            0 => self.engine.grow(now, frames, &mut todo),
            1 => self.engine.stop_growth(now, frames, &mut todo),
            _ => {
                for frame in self.engine.shrink(now, frames, most, &mut todo).into_iter().flatten()
                {
                    assert!(self.slab.is_free(frame), "somebody reads it");
                    // SAFETY: no block is in this frame any more.
                    unsafe { self.slab.data(frame).write_bytes(0, BLOCK) };
                }
            }
        }
        let (held, in_use) = (self.engine.policy.held_blocks(), self.engine.frames_in_use());
        assert!(held.max(1) <= in_use, "{held} blocks for {in_use} frames");
        self.take_in(todo);
    }
}

#[test]
fn a_request_that_waits_for_frames_gets_them_though_the_cache_shrinks() {
    let mut world = World::new(4, 1, NONE);
    let (small, large) = (world.files[2], world.files[4]);
    for index in 0..4 {
        world.read(0, small, index * BLOCK as u64, 1);
    }
    world.answer_all();
    // All frames are copied from.
    assert_eq!(world.copies.len(), 4);
    world.read(1, large, 0, 3 * BLOCK as u64);
    let rest = world.copies.split_off(2);
    world.copy(0);
    world.copies.extend(rest);
    assert!(world.held.is_empty(), "two free frames are too few");
    let mut todo = Todo::default();
    let runs = world.engine.shrink(world.now(), 1, 100, &mut todo);
    assert_eq!((runs.len(), world.engine.frames_in_use()), (1, 3), "{runs:?}");
    world.take_in(todo);
    world.end();
    assert_eq!((world.errors, world.done), (0, 5));
}
