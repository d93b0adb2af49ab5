use proptest::prelude::*;

use super::*;

/// Four nodes, 64 chunks of 8 MiB, and two servers.
pub(super) fn small() -> FleetSpec {
    FleetSpec {
        nodes: 4,
        node: Node { bytes_per_s: 12.5e9, in_flight: 8, cache_bytes: 0 },
        chunks: 64,
        chunk_bytes: 8 << 20,
        reads: Reads::Shuffled,
        epochs: 1,
        origin: Origin {
            bytes_per_s: 12.5e9,
            stream_bytes_per_s: 90e6,
            latency: Nanos(30_000_000),
            requests_per_s: 5500.0,
        },
        tier: Some(TIER),
        deaths: 0,
        seed: 1,
    }
}

const TIER: Tier = Tier {
    servers: 2,
    bytes_per_s: 1.25e9,
    latency: Nanos(500_000),
    requests_per_s: 100e3,
    memory_bytes: 64 << 30,
    lease: Nanos(10_000_000_000),
    renews: true,
    again: Nanos(0),
    patience_leases: 0,
    publish_chunks: 16,
};

fn with(spec: FleetSpec, change: impl FnOnce(&mut Tier)) -> FleetSpec {
    let mut tier = spec.tier.expect("a tier");
    change(&mut tier);
    FleetSpec { tier: Some(tier), ..spec }
}

/// Memory of each server for this share of the data, on average.
fn room_for(spec: FleetSpec, share: f64) -> FleetSpec {
    let all = spec.data_bytes() as f64;
    with(spec, |tier| tier.memory_bytes = (share * all / f64::from(tier.servers)) as u64)
}

/// One node reads a chunk at a time: the origin's turn, its latency, and the time of the bytes.
#[test]
fn one_node_without_a_tier_is_plain() {
    let mut spec = FleetSpec { nodes: 1, tier: None, ..small() };
    spec.node.in_flight = 1;
    let each = 1.0 / 5500.0 + 0.030 + f64::from(8 << 20) / 90e6;
    for reads in Reads::ALL {
        let report = events::run(&FleetSpec { reads, ..spec.clone() });
        assert!((report.ready.as_secs() / (64.0 * each) - 1.0).abs() < 1e-6, "{report:?}");
        assert_eq!((report.from_origin, report.from_tier, report.reads), (64, 0, 64));
    }
    // A tier adds a question to each chunk, and an idle server answers at once.
    let report = events::run(&with(FleetSpec { tier: Some(TIER), ..spec }, |_| ()));
    let each = each + 500e-6 + 1e-5;
    assert!((report.ready.as_secs() / (64.0 * each) - 1.0).abs() < 1e-6, "{report:?}");
    assert_eq!((report.from_origin, report.from_tier), (64, 0));
}

fn any_spec() -> impl Strategy<Value = FleetSpec> {
    let sizes = (1u32..12, 1u32..80, 1u32..4, 1u32..20, 0u32..5, any::<u64>());
    let rates = (1u32..40, 1u32..40, 1u32..40, 0.0..1.5f64, 0.0..1.5f64, any::<bool>());
    let waits = (1u64..4000, 0u64..80, 0u32..3);
    (sizes, rates, 0usize..4, 0u32..3, waits, 1u32..40).prop_map(
        |(sizes, rates, reads, deaths, waits, publish_chunks)| {
            let (lease_ms, again_ms, patience_leases) = waits;
            let (nodes, chunks, epochs, in_flight, servers, seed) = sizes;
            let (node, origin, server, cached, room, renews) = rates;
            let spec = FleetSpec {
                nodes,
                chunks,
                epochs,
                reads: Reads::ALL[reads],
                deaths: if servers > 0 { deaths.min(nodes - 1) } else { 0 },
                seed,
                ..small()
            };
            let data = spec.data_bytes() as f64;
            let tier = Tier {
                servers,
                bytes_per_s: f64::from(server) * 1e8,
                memory_bytes: (room * data / f64::from(servers.max(1))) as u64,
                lease: Nanos(lease_ms * 1_000_000),
                renews,
                again: Nanos(again_ms * 1_000_000),
                patience_leases,
                publish_chunks,
                ..TIER
            };
            let cache_bytes = (cached * data) as u64;
            FleetSpec {
                node: Node { bytes_per_s: f64::from(node) * 1e8, in_flight, cache_bytes },
                origin: Origin { bytes_per_s: f64::from(origin) * 1e8, ..spec.origin },
                tier: (servers > 0).then_some(tier),
                ..spec
            }
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(500))]

    /// Nothing is read twice or not at all, no bound is beaten, and each run is the same again.
    #[test]
    fn any_fleet_reads_all(spec in any_spec()) {
        spec.check().expect("possible");
        let report = events::run(&spec);
        let sources = report.from_cache + report.from_tier + report.from_origin;
        if spec.deaths == 0 {
            prop_assert_eq!(report.reads, spec.all_reads());
            prop_assert_eq!(sources, report.reads);
            prop_assert!(report.from_origin >= u64::from(spec.chunks));
        } else {
            prop_assert!(report.reads <= spec.all_reads() && sources >= report.reads);
            let on_their_way = u64::from(spec.deaths) * u64::from(spec.node.in_flight);
            prop_assert!(sources <= report.reads + on_their_way);
        }
        // Of what the nodes share, nobody reads a dead node's part.
        if spec.deaths == 0 || spec.reads.is_whole() {
            let bound = spec.bound();
            prop_assert!(report.ready.as_secs() * (1.0 + 1e-9) >= bound.as_secs(), "{report:?}, {bound:?}");
        }
        let rooms = spec.tier.map_or(0, |tier| tier.memory_bytes / spec.chunk_bytes);
        if spec.tier.is_some_and(|tier| tier.renews && tier.patience_leases == 0)
            && rooms >= u64::from(spec.chunks)
            && spec.deaths == 0
        {
            prop_assert_eq!(report.from_origin, u64::from(spec.chunks));
            prop_assert_eq!(report.leases_ended, 0);
        }
        prop_assert_eq!(report, events::run(&spec));
    }
}

/// Times within `time`, and bytes of the origin within `bytes`, of those of the events.
fn agree(spec: &FleetSpec, time: f64, bytes: f64) {
    let (events, fluid) = (events::run(spec), fluid::run(spec));
    let off = |fluid: f64, events: f64| (fluid / events - 1.0).abs();
    let what = format!("{spec:?}\n{events:?}\n{fluid:?}");
    assert!(off(fluid.ready.as_secs(), events.ready.as_secs()) < time, "{what}");
    assert!(off(fluid.from_origin as f64, events.from_origin as f64) < bytes, "{what}");
    assert_eq!(fluid.reads, events.reads, "{what}");
    assert!(fluid.ready.as_secs() >= 0.99 * spec.bound().as_secs(), "{what}");
}

/// The fleets that both models are tried on: without a tier, and with few, many and slow servers; a slow origin; slow links;
/// few requests in flight; own caches.
fn fleets(nodes: u32, chunks: u32) -> Vec<FleetSpec> {
    let mut all = Vec::new();
    for reads in Reads::ALL {
        let spec = FleetSpec { nodes, chunks, reads, ..small() };
        let servers = |spec: &FleetSpec, servers| with(spec.clone(), |tier| tier.servers = servers);
        let mut slow_origin = servers(&spec, 16);
        slow_origin.origin.bytes_per_s = 0.5e9;
        let mut slow_links = servers(&spec, 16);
        slow_links.node.bytes_per_s = 0.3e9;
        let mut deep = servers(&spec, 16);
        deep.node.in_flight = 32;
        let mut again = FleetSpec { epochs: 3, ..servers(&spec, 16) };
        again.node.cache_bytes = spec.data_bytes() / 3;
        let plain = FleetSpec { tier: None, ..spec.clone() };
        all.extend([plain, servers(&spec, 1), servers(&spec, 16), slow_origin, slow_links, deep]);
        if reads != Reads::Shards && reads != Reads::Partition {
            all.push(again);
        }
    }
    all
}

#[test]
fn the_fluid_model_agrees_with_the_events() {
    for spec in fleets(8, 1024) {
        agree(&spec, 0.12, 0.01);
    }
}

#[test]
#[ignore = "takes a minute: cargo test --release -p foretell-sim --lib fleet -- --ignored"]
fn the_fluid_model_agrees_with_the_events_on_large_fleets() {
    for nodes in [32, 250, 1000] {
        for spec in fleets(nodes, 4096) {
            agree(&spec, 0.12, 0.01);
        }
    }
}

/// Shuffled orders through a tier that holds a part of the data.
#[test]
fn the_fluid_model_agrees_about_small_tiers() {
    for (nodes, share) in [(8, 0.25), (8, 0.5), (8, 0.75), (24, 0.5)] {
        let spec = FleetSpec { nodes, chunks: 1024, ..with(small(), |tier| tier.servers = 8) };
        agree(&room_for(spec, share), 0.25, 0.3);
    }
}

#[test]
fn what_the_fluid_model_does_not_know_is_said() {
    let model = |spec: &FleetSpec| spec.model(255);
    assert_eq!(FleetSpec { nodes: 3, ..small() }.model(255), Ok(Model::Events));
    assert_eq!(model(&small()), Ok(Model::Fluid));
    let same = FleetSpec { reads: Reads::Same, ..small() };
    assert_eq!(model(&same), Ok(Model::Fluid));
    let unknown = [
        room_for(same, 0.5),
        with(small(), |tier| tier.renews = false),
        FleetSpec { deaths: 1, ..small() },
        with(small(), |tier| (tier.patience_leases, tier.lease) = (3, Nanos(20_000_000))),
    ];
    for spec in unknown {
        assert!(matches!(model(&spec), Err(SpecError::Fluid { .. })), "{spec:?}");
    }
}

/// In one order, all nodes wait for the same chunks: the fleet has no more in flight than a node.
#[test]
fn different_orders_fetch_in_parallel() {
    let at = |reads, nodes| {
        let spec = FleetSpec { reads, nodes, chunks: 512, ..small() };
        events::run(&with(spec, |tier| tier.servers = 64)).ready.as_secs()
    };
    let one = at(Reads::Same, 1);
    assert!(at(Reads::Same, 8) > 0.95 * one && at(Reads::Shuffled, 8) < 0.6 * one);
}

/// A slow origin has a queue that is longer than a lease.
#[test]
fn leases_that_end_during_fetches_cost_bytes() {
    let mut spec = FleetSpec { nodes: 32, chunks: 512, ..small() };
    spec.origin.bytes_per_s = 0.5e9;
    let spec = with(spec, |tier| (tier.servers, tier.lease) = (16, Nanos(1_000_000_000)));
    let renewed = events::run(&spec);
    assert_eq!((renewed.from_origin, renewed.leases_ended), (512, 0));
    let ending = events::run(&with(spec, |tier| tier.renews = false));
    assert!(2 * ending.from_origin > 3 * 512 && ending.leases_ended > 512, "{ending:?}");
    assert!(ending.ready > renewed.ready);
}

/// Behind a slow origin's queue, one node of those that wait takes each lease over, and none fetches without one.
#[test]
fn lost_patience_costs_a_fetch_for_each_chunk_and_patience() {
    let mut spec = FleetSpec { nodes: 32, chunks: 512, ..small() };
    spec.origin.bytes_per_s = 0.5e9;
    let spec = with(spec, |tier| (tier.servers, tier.lease) = (16, Nanos(500_000_000)));
    let at = |leases| events::run(&with(spec.clone(), |tier| tier.patience_leases = leases));
    assert_eq!((at(0).from_origin, at(0).without_lease), (512, 0));
    assert_eq!((at(100).from_origin, at(100).without_lease), (512, 0));
    let short = at(1);
    assert_eq!(short.from_origin, 512 + short.leases_ended + short.without_lease);
    assert!(short.leases_ended > 256, "{short:?}");
    let patiences = short.ready.as_secs() / 0.5;
    assert!((short.from_origin as f64) < 512.0 * patiences, "{short:?}");
}

#[test]
fn nodes_that_wait_ask_again() {
    let again = |now, most| {
        let (count, next) = servers::asked_again(Nanos(7), Nanos(7 + now), Nanos(most));
        (count, next.0 - 7)
    };
    let ms = 1_000_000;
    assert_eq!(again(5, 0), (0, 5));
    assert_eq!(again(ms, 50 * ms), (0, 2 * ms));
    // After 2, 4, 6, 8, 10, 12.5 ms and so on.
    assert_eq!(again(9 * ms, 50 * ms), (4, 10 * ms));
    assert_eq!(again(11 * ms, 50 * ms), (5, 12 * ms + ms / 2));
    assert_eq!(again(11 * ms, 2 * ms), (5, 12 * ms));
    let (count, next) = again(10_000 * ms, 50 * ms);
    assert!((200..230).contains(&count) && (10_000 * ms..10_050 * ms).contains(&next));
    // The load is counted.
    let spec = FleetSpec { nodes: 16, chunks: 256, ..small() };
    let asked = |again| {
        let spec = with(spec.clone(), |tier| (tier.servers, tier.again) = (16, Nanos(again)));
        let report = events::run(&FleetSpec { reads: Reads::Same, ..spec });
        (report.server_requests_per_s[0] * report.ready.as_secs(), report.ready)
    };
    assert!(asked(ms).0 > 2.0 * asked(0).0 && asked(50 * ms).1 >= asked(0).1);
}

/// Each death costs at most a lease, and what was on its way to the node.
#[test]
fn a_death_costs_a_lease() {
    for reads in [Reads::Same, Reads::Shuffled] {
        let spec = FleetSpec { reads, nodes: 8, chunks: 256, ..small() };
        let spec = with(spec, |tier| tier.servers = 16);
        let alive = events::run(&spec).ready.as_secs();
        for deaths in [1, 3] {
            let report = events::run(&FleetSpec { deaths, ..spec.clone() });
            let most = alive + 10.2 * f64::from(deaths);
            let ready = report.ready.as_secs();
            assert!(ready > alive + 5.0 && ready < most, "{reads} {deaths}: {ready}, {alive}");
            assert!(report.leases_ended > 0);
            assert!(report.from_origin <= 256 + u64::from(deaths * spec.node.in_flight));
        }
    }
}

/// Positions tell which chunks are read soonest.
#[test]
fn published_positions_save_bytes() {
    let spec = FleetSpec { nodes: 8, chunks: 1024, ..with(small(), |tier| tier.servers = 4) };
    let spec = room_for(spec, 0.5);
    let at = |chunks| events::run(&with(spec.clone(), |tier| tier.publish_chunks = chunks));
    let (often, never) = (at(4).from_origin as f64, at(u32::MAX).from_origin as f64);
    assert!(often < 0.75 * never, "{often} {never}");
}

#[test]
fn limits_are_named() {
    let limits = |origin, server| Shares { origin, server, ..Shares::default() }.limits();
    assert_eq!(limits(0.9, 0.5), "origin's bandwidth");
    assert_eq!(limits(0.3, 0.6), "servers' bandwidth, origin's bandwidth");
    assert_eq!(limits(0.1, 0.1), "requests in flight");
}

#[test]
fn what_cannot_be_is_refused() {
    let wrong = |spec: &FleetSpec| spec.check().expect_err("impossible").to_string();
    assert!(wrong(&FleetSpec { chunks: 0, ..small() }).contains("one chunk"));
    assert!(wrong(&FleetSpec { deaths: 4, ..small() }).contains("at least one must read"));
    assert!(wrong(&FleetSpec { deaths: 1, tier: None, ..small() }).contains("servers"));
    assert!(wrong(&with(small(), |tier| tier.servers = 0)).contains("server"));
    let mut slow = small();
    slow.origin.requests_per_s = 0.0;
    assert!(wrong(&slow).contains("requests"));
    for reads in Reads::ALL {
        assert_eq!(reads.name().parse(), Ok(reads));
    }
    assert!("sorted".parse::<Reads>().is_err());
}
