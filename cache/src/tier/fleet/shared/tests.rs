//! Which work comes next, and which threads it wakes.

use std::sync::mpsc;

use super::super::super::joint::Joint;
use super::super::super::memory::Pieces;
use super::super::block::{Before, Kept};
use super::super::format::Named;
use super::*;
use crate::backend::memory::MemoryBackend;
use crate::backend::{Backend, Environment, Request};

const BLOCK: usize = 4096;

fn shared() -> Arc<Shared> {
    let none = Environment::of([]);
    let address = Address::parse("redis://host", Some(&none)).unwrap();
    Arc::new(Shared::new(address, BLOCK))
}

fn file(shared: &Shared) -> FileId {
    let named = Named { store: "s", path: "file", version: b"1" };
    shared.checks.file(named, 1 << 30, BLOCK)
}

fn block(shared: &Arc<Shared>, index: u64) -> Block {
    let files = MemoryBackend::new();
    files.put("file", &b"bytes"[..]);
    let (id, origin) = (file(shared), files.open("file").unwrap().object);
    let object = Kept { shared: Arc::clone(shared), id, size_bytes: 1 << 30, origin };
    // SAFETY: there are no parts.
    let request = unsafe { Request::new(0, true, Vec::new(), Box::new(|_| ())) };
    Block {
        joint: Arc::new(Joint::new(request, 1)),
        object: Arc::new(object),
        index,
        from: 0,
        length: BLOCK,
        // SAFETY: there are none.
        pieces: unsafe { Pieces::new(Vec::new()) },
        waits: None,
        refusals: 0,
        before: Before::Nothing,
        blanks: 0,
    }
}

fn put(shared: &Shared, index: u64) {
    let (file, staged) = (file(shared), shared.stage(BLOCK).unwrap());
    shared.put(Put { file, index, key: file.key(index), value: vec![0; BLOCK], _staged: staged });
}

#[test]
fn blocks_that_programs_wait_for_go_without_puts_every_other_time() {
    let shared = shared();
    let mut counts = Vec::new();
    for index in 0..4 {
        shared.ask(vec![block(&shared, index)], true).ok().unwrap();
        put(&shared, index);
        let Some(Next::Exchange(batch)) = shared.next() else { panic!("an exchange") };
        counts.push((batch.claims.len(), batch.puts.len()));
    }
    assert_eq!(counts, [(1, 0), (1, 2), (1, 0), (1, 2)]);
    put(&shared, 9);
    let Some(Next::Exchange(batch)) = shared.next() else { panic!("an exchange") };
    assert_eq!((batch.claims.len(), batch.puts.len()), (0, 1));
    drop(batch);
    shared.settle();
}

#[test]
fn what_comes_at_once_wakes_as_many_threads_as_it_is_work_for() {
    let shared = shared();
    let (sender, taken) = mpsc::channel();
    let threads: Vec<_> = (0..3)
        .map(|_| {
            let (shared, sender) = (Arc::clone(&shared), sender.clone());
            std::thread::spawn(move || {
                let Some(Next::Exchange(batch)) = shared.next() else { panic!("an exchange") };
                sender.send(batch.claims.len()).unwrap();
            })
        })
        .collect();
    // So that they wait. If they do not yet, this tests less.
    std::thread::sleep(Duration::from_millis(100));
    let blocks = (0..3 * BATCH_BLOCKS as u64).map(|index| block(&shared, index)).collect();
    shared.ask(blocks, true).ok().unwrap();
    for _ in 0..3 {
        assert_eq!(taken.recv_timeout(Duration::from_secs(60)), Ok(BATCH_BLOCKS));
    }
    threads.into_iter().for_each(|thread| thread.join().unwrap());
}

#[test]
fn more_leases_than_one_exchange_extends_are_extended_at_once() {
    let shared = shared();
    let long_ago = Instant::now() - 2 * shared.address.lease / EXTENDED_AFTER;
    let held = (0..2 * LEASES_MAX + 1).map(|key| (key.to_string(), long_ago)).collect();
    shared.lock().held = held;
    for left in [LEASES_MAX, LEASES_MAX, 1] {
        let Some(Next::Exchange(batch)) = shared.next() else { panic!("an exchange") };
        assert_eq!(batch.extended.len(), left);
    }
}
