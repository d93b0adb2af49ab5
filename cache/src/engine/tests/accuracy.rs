//! A session answers for its hints.

use super::*;

#[test]
fn what_a_reader_leaves_unread_counts_against_its_next_stream_until_it_has_read_more() {
    const RANGES: u64 = 2000;
    let mut world = World::new(16_384, 1, NONE);
    // Each on a device of its own, without known costs.
    let mut new_file = || {
        let device = world.engine.add_device(16, None);
        let size = RANGES * BLOCK as u64;
        let file = (world.engine.add_file(device, size, Arc::<Stub>::default()), size);
        world.files.push(file);
        file
    };
    let files = [new_file(), new_file(), new_file(), new_file()];
    // Prefetches before the first read; then so many blocks are read, and the stream is left.
    let mut ahead = |file: (FileId, u64), reader: u64, reads: u64| {
        let stream = world.engine.open_stream(world.now(), ReaderId(reader));
        let at = |block| block * BLOCK as u64;
        let segment = |block| Segment { offset_bytes: at(block), length_bytes: 1 };
        let extent = Extent::Segments((0..RANGES).map(segment).collect());
        let (before, mut todo) = (world.engine.counts().1.prefetched, Todo::default());
        world.engine.hint(world.now(), stream, (file.0, extent, Order::Given), &mut todo);
        world.take_in(todo);
        world.answer_all();
        let ahead = world.engine.counts().1.prefetched - before;
        for block in 0..reads {
            world.read(reader, file, at(block), 1);
            world.answer_all();
            world.copy(0);
        }
        let mut todo = Todo::default();
        world.engine.close_stream(world.now(), stream, &mut todo);
        world.take_in(todo);
        world.answer_all();
        ahead
    };
    let full = ahead(files[0], 7, 100);
    let less = ahead(files[1], 7, RANGES);
    assert!(less < full / 4, "{less} of {full}");
    assert_eq!(ahead(files[2], 8, 0), full, "another reader");
    let again = ahead(files[3], 7, 0);
    assert!(again > full / 2, "{again} of {full}");
    world.end();
    assert_eq!((world.errors, world.done as u64), (0, 100 + RANGES));
}
