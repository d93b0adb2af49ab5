//! The rules of the server, one request at a time.

use super::*;

/// The key of job number `number`.
fn key(number: u64) -> Key {
    Key::first_at(number as u32)
}

fn begin(server: &mut Server, now: Nanos) -> Vec<Begun> {
    let mut begun = Vec::new();
    server.begin(now, &mut begun);
    begun
}

const BLOCK_BYTES: u64 = 8192;
/// A time after all services.
const LATER: Nanos = Nanos(1_000_000_000);

fn run(index: u64) -> Run {
    Run { first: Block { file: foretell_policy::FileId(1), index }, blocks: 1 }
}

fn one_at_a_time() -> Server {
    let (latency, transfer) = (Nanos(900), Nanos(100));
    Server::new(
        &DeviceSpec::Flat { latency, transfer, slots: Some(1) },
        BLOCK_BYTES,
        Sizes::default(),
    )
}

/// The order in which jobs end that were all submitted before.
fn ends(server: &mut Server) -> Vec<(Key, u64)> {
    let mut ends = Vec::new();
    let mut begun = begin(server, Nanos::ZERO);
    while !begun.is_empty() {
        begun.sort_by_key(|begun| begun.end);
        let first = begun.remove(0);
        ends.extend(server.ended(first.end, first.service).map(|done| (done.job, first.end.0)));
        begun.extend(begin(server, first.end));
    }
    ends
}

#[test]
fn demand_goes_first() {
    let mut server = one_at_a_time();
    for job in 0..3 {
        server.submit(key(job), Class::Prefetch, Piece::Blocks(run(job)));
    }
    server.submit(key(3), Class::Demand, Piece::Blocks(run(3)));
    assert_eq!(ends(&mut server), [(key(3), 1000), (key(0), 2000), (key(1), 3000), (key(2), 4000)]);
    let report = server.report(0, LATER);
    assert_eq!((report.demand_requests, report.prefetch_requests), (1, 3));
    assert_eq!(report.busy_ns, 4000);
}

#[test]
fn a_prefetch_that_is_waited_for_goes_first_too() {
    let mut server = one_at_a_time();
    for job in 0..4 {
        server.submit(key(job), Class::Prefetch, Piece::Blocks(run(job)));
    }
    server.promote(key(2));
    server.promote(key(2));
    assert_eq!(ends(&mut server), [(key(2), 1000), (key(0), 2000), (key(1), 3000), (key(3), 4000)]);
    assert_eq!(server.report(0, LATER).promoted, 1);
}

#[test]
fn slots_serve_side_by_side_and_transfer_counts_by_block() {
    let (latency, transfer) = (Nanos(900), Nanos(100));
    let spec = DeviceSpec::Flat { latency, transfer, slots: Some(2) };
    let mut server = Server::new(&spec, BLOCK_BYTES, Sizes::default());
    server.submit(key(0), Class::Prefetch, Piece::Blocks(Run { blocks: 3, ..run(0) }));
    server.submit(key(1), Class::Prefetch, Piece::Blocks(run(3)));
    server.submit(key(2), Class::Prefetch, Piece::Blocks(run(4)));
    assert_eq!(ends(&mut server), [(key(1), 1000), (key(0), 1200), (key(2), 2000)]);
}

#[test]
fn a_disk_holds_no_more_prefetches_than_it_may() {
    let file = foretell_policy::FileId(1);
    let spec = DeviceSpec::Array(Box::new(ArraySpec::hp97560(1, [(file, 100 * BLOCK_BYTES)])));
    let mut server = Server::new(&spec, BLOCK_BYTES, Sizes::default());
    for job in 0..20 {
        server.submit(key(job), Class::Prefetch, Piece::Blocks(run(job * 5)));
    }
    let first = begin(&mut server, Nanos::ZERO);
    assert_eq!(first.len(), 1);
    assert_eq!(server.disks[0].prefetches_dispatched, PREFETCHES_PER_DISK);
    // Demand goes to the drive at once, and no further prefetch does until it has begun.
    server.submit(key(20), Class::Demand, Piece::Blocks(run(99)));
    assert!(begin(&mut server, Nanos::ZERO).is_empty());
    assert_eq!(server.disks[0].held.len(), PREFETCHES_PER_DISK);
    assert_eq!(server.report(0, LATER).prefetch_requests, PREFETCHES_PER_DISK as u64);
}

#[test]
fn a_run_over_several_disks_is_done_when_all_are() {
    let file = foretell_policy::FileId(1);
    let spec = DeviceSpec::Array(Box::new(ArraySpec::hp97560(4, [(file, 100 * BLOCK_BYTES)])));
    let mut server = Server::new(&spec, BLOCK_BYTES, Sizes::default());
    // 24 blocks of 8 KiB after the inode's 4 KiB cover units of all four disks.
    server.submit(key(0), Class::Demand, Piece::Blocks(Run { blocks: 24, ..run(0) }));
    assert_eq!(ends(&mut server).len(), 1);
    let report = server.report(0, LATER);
    assert_eq!(report.demand_requests, 4);
    assert!(report.busiest_disk_ns < report.busy_ns);
}

#[test]
fn what_is_still_being_served_is_not_counted() {
    let mut server = one_at_a_time();
    server.submit(key(0), Class::Demand, Piece::Blocks(run(0)));
    let begun = begin(&mut server, Nanos::ZERO);
    assert_eq!(server.report(0, LATER).busy_ns, 0);
    server.ended(begun[0].end, begun[0].service);
    assert_eq!(server.report(0, LATER).busy_ns, 1000);
}

#[test]
fn who_is_not_told_of_demand_keeps_the_order_of_the_queue() {
    let spec = |priority| {
        let array =
            ArraySpec { order: Order::Fifo, prefetches_per_disk: 1, ..ArraySpec::hp97560(1, []) };
        DeviceSpec::Array(Box::new(ArraySpec { priority, ..array }))
    };
    let order = |priority| {
        let mut server = Server::new(&spec(priority), BLOCK_BYTES, Sizes::default());
        (0..3)
            .for_each(|job| server.submit(key(job), Class::Prefetch, Piece::Blocks(run(job * 50))));
        server.submit(
            key(3),
            Class::Demand,
            Piece::Metadata(MetadataBlock::Inode(foretell_policy::FileId(8))),
        );
        server.promote(key(2));
        let order = ends(&mut server).into_iter().map(|(job, _)| job).collect::<Vec<_>>();
        // A request with a waiting program counts as one, whatever the array knows.
        let report = server.report(0, LATER);
        let requests = (report.demand_requests, report.prefetch_requests, report.promoted);
        assert_eq!(requests, (2, 2, 1), "{priority:?}");
        order
    };
    let mut first = order(Priority::Promotion)[..2].to_vec();
    first.sort_unstable(); // The drive chooses among what it holds.
    assert_eq!(first, [2, 3].map(key));
    assert_eq!(order(Priority::Arrival)[0], key(3));
    assert_eq!(order(Priority::Arrival)[1..], [0, 1, 2].map(key));
    assert_eq!(order(Priority::None), [0, 1, 2, 3].map(key));
}
