//! One call of the engine does a bounded piece of work, and says whether it is to be called again.

use foretell_policy::Segment;

use super::*;
use crate::backend::Request;

const BLOCK: usize = 4096;

struct Stub;

impl Object for Stub {
    fn start(self: Arc<Self>, request: Request) {
        drop(request);
    }
}

#[test]
fn a_large_hint_is_looked_at_in_many_calls_and_to_its_end() {
    const SEGMENTS: u64 = 100_000;
    let slab = Arc::new(Slab::new(16, BLOCK).unwrap());
    let mut engine = Engine::new(slab, BLOCK);
    let device = engine.add_device(4, None);
    let file = engine.add_file(device, u64::MAX / 2, Arc::new(Stub));
    let stream = engine.open_stream(Nanos(0), ReaderId(1));
    // Nothing but the last one is to be fetched.
    let empty = |index| Segment { offset_bytes: index * BLOCK as u64, length_bytes: 0 };
    let last = Segment { offset_bytes: 0, length_bytes: 1 };
    let extent = Extent::Segments((0..SEGMENTS).map(empty).chain([last]).collect());
    let mut todo = Todo::default();
    engine.hint(Nanos(0), stream, (file, extent, Order::Given), &mut todo);
    let mut calls = 1;
    while engine.has_more() {
        assert!(todo.is_empty(), "what is left was to be looked at before");
        engine.pump(Nanos(0), &mut todo);
        calls += 1;
        assert!(calls < SEGMENTS, "no end");
    }
    assert!(calls > 10, "{calls}");
    assert_eq!(todo.start.len(), 1, "the last segment");
    engine.pump(Nanos(0), &mut Todo::default());
    assert!(!engine.has_more());
}
