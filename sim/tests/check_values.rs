//! Compares the disk models with published and derived values.
//!
//! Tolerances: a seek time is exact to a microsecond, a rate of a long run to 0.5 %, and a mean over random
//! requests to 1 % (10,000 draws have a standard error of about 0.3 %).

use foretell_policy::Nanos;
use foretell_sim::device::parameters::DiskParameters;
use foretell_sim::device::seek::SeekCurve;
use foretell_sim::device::{Device, Request, Service};
use foretell_sim::random::SplitMix64;
use proptest::prelude::*;

fn spec(name: &str) -> foretell_sim::device::disk::DiskSpec {
    match DiskParameters::by_name(name) {
        Ok(DiskParameters::Mechanical(spec)) => spec,
        other => panic!("{name} is not a mechanical disk: {other:?}"),
    }
}

fn device(name: &str) -> Box<dyn Device> {
    DiskParameters::by_name(name).expect("a built-in disk").device(0)
}

fn near(value: f64, expected: f64, tolerance: f64) {
    let difference = (value - expected).abs() / expected;
    assert!(difference <= tolerance, "{value} is not within {tolerance} of {expected}");
}

/// Serves `requests` back to back; returns their services and the end of the last.
fn run(
    device: &mut dyn Device,
    requests: impl IntoIterator<Item = Request>,
) -> (Vec<Service>, Nanos) {
    let mut now = Nanos::ZERO;
    let mut services = Vec::new();
    for request in requests {
        let service = device.service(now, request);
        now += service.total();
        services.push(service);
    }
    (services, now)
}

fn random_reads(device: &dyn Device, count: usize, sectors: u64, seed: u64) -> Vec<Request> {
    let mut random = SplitMix64::new(seed);
    let places = device.capacity_sectors() / sectors;
    (0..count).map(|_| Request { sector: random.below(places) * sectors, sectors }).collect()
}

fn mean_random_ms(name: &str) -> f64 {
    let mut disk = device(name);
    let reads = random_reads(disk.as_ref(), 10_000, 16, 1);
    run(disk.as_mut(), reads).1.as_millis() / 10_000.0
}

fn sequential_rate(name: &str, sectors: u64) -> f64 {
    let mut disk = device(name);
    let count = (64 << 20) / 512 / sectors;
    let reads = (0..count).map(|i| Request { sector: i * sectors, sectors });
    let (_, end) = run(disk.as_mut(), reads);
    (count * sectors * 512) as f64 / end.as_secs()
}

fn seek_ms(curve: &SeekCurve, distance: u64) -> f64 {
    curve.time(distance).as_millis()
}

#[test]
fn hp97560_seeks_as_published() {
    let seek = spec("hp97560").seek;
    assert_eq!(seek.time(0), Nanos::ZERO);
    assert!((seek_ms(&seek, 1) - 3.64).abs() < 0.001);
    assert!((seek_ms(&seek, 1961) - 23.688).abs() < 0.001);
    near(seek.mean_ms(1962), 12.83, 0.001);
}

#[test]
fn hp97560_reads_at_its_rates() {
    let geometry = spec("hp97560").geometry;
    let track_bytes = (geometry.sectors_per_track * 512) as f64;
    near(track_bytes / geometry.revolution.as_secs(), 2.4588e6, 0.0005);
    let one_request = sequential_rate("hp97560", (64 << 20) / 512);
    near(one_request, 2.198e6, 0.005);
    // Reading ahead in idle time hides the overhead between requests of 8 KB.
    near(sequential_rate("hp97560", 16), 2.198e6, 0.005);
    eprintln!("hp97560 sustained {one_request:.0} B/s");
}

#[test]
fn hp97560_random_read_takes_what_the_arithmetic_says() {
    // 2.2 ms overhead + the mean seek + 7.496 ms half a revolution + 3.332 ms transfer. The cylinders of head
    // and sector are among the 1,935 in use, whose mean seek is a little less than 12.83 ms.
    let mean = mean_random_ms("hp97560");
    near(mean, 25.9, 0.01);
    eprintln!("hp97560 random 8 KB read {mean:.2} ms");
}

#[test]
fn ibm0661_seeks_as_remembered() {
    let spec = spec("ibm0661");
    assert!((seek_ms(&spec.seek, 1) - 2.0).abs() < 0.001);
    assert!((seek_ms(&spec.seek, 948) - 25.0).abs() < 0.1);
    // Lee and Katz weigh distances slightly differently from all pairs of cylinders.
    near(spec.seek.mean_ms(949), 12.5, 0.03);
    near(spec.geometry.revolution.as_millis(), 13.9, 0.0001);
}

#[test]
fn hpc2247_is_as_remembered() {
    let spec = spec("hpc2247");
    near(spec.seek.mean_ms(1834), 10.0, 0.03);
    near(spec.geometry.revolution.as_millis(), 11.1, 0.002);
    near(
        (spec.geometry.sectors_per_track * 512) as f64 / spec.geometry.revolution.as_secs(),
        4e6,
        0.02,
    );
    near((spec.capacity_sectors * 512) as f64, 1.05e9, 0.01);
}

#[test]
fn the_drive_reads_ahead_while_idle() {
    let mut disk = device("hp97560");
    let first = disk.service(Nanos::ZERO, Request { sector: 0, sectors: 16 });
    assert!(!first.cache_hit);
    // After 100 ms all 64 KB up to the fence have been read.
    let later = first.total() + Nanos::from_millis(100.0);
    let hit = disk.service(later, Request { sector: 16, sectors: 128 });
    assert!(hit.cache_hit);
    assert_eq!(hit.seek + hit.rotation, Nanos::ZERO);
    // 2.2 ms and 64 KB at 10 MB/s.
    near(hit.total().as_millis(), 2.2 + 6.5536, 0.001);
    // Nothing beyond the fence has been read.
    let far = disk.service(later + hit.total(), Request { sector: 5000, sectors: 16 });
    assert!(!far.cache_hit);
}

#[test]
fn what_is_about_to_be_read_waits_for_the_media_only() {
    let mut disk = device("hp97560");
    let first = disk.service(Nanos::ZERO, Request { sector: 0, sectors: 16 });
    let next = disk.service(first.total(), Request { sector: 16, sectors: 16 });
    assert!(next.cache_hit);
    near(next.total().as_millis(), 16.0 * 0.20823, 0.001);
}

#[test]
fn a_slow_sequential_reader_never_waits_for_more_than_a_turn() {
    let mut disk = device("hp97560");
    let mut now = Nanos::ZERO;
    for i in 0..500 {
        let service = disk.service(now, Request { sector: i * 16, sectors: 16 });
        assert!(i == 0 || service.total() < Nanos::from_millis(6.0), "{i}: {service:?}");
        now += service.total() + Nanos::from_millis(40.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 64, failure_persistence: None, ..ProptestConfig::default()
    })]

    #[test]
    fn a_disk_keeps_its_bounds_and_repeats_itself(
        which in 0usize..3,
        reads in prop::collection::vec((0u64..1_000_000, 1u64..600, 0u64..60_000_000), 1..120),
        near_by: bool,
    ) {
        let name = ["hp97560", "ibm0661", "hpc2247"][which];
        let spec = spec(name);
        let (mut disk, mut twin) = (device(name), device(name));
        let mut now = Nanos::ZERO;
        for (place, sectors, idle) in reads {
            let sector = if near_by { place % 2000 } else { place % (spec.capacity_sectors - 600) };
            let request = Request { sector, sectors };
            let promised = disk.positioning_time(now, &disk.start_at(sector));
            let service = disk.service(now, request);
            prop_assert_eq!(service, twin.service(now, request));
            prop_assert!(service.total() >= spec.overhead);
            prop_assert!(service.total() >= promised);
            let tracks = sectors / spec.geometry.sectors_per_track + 2;
            prop_assert!(service.rotation.0 < tracks * spec.geometry.revolution.0);
            // Never slower than a full-stroke seek, a revolution for each track, and the transfer.
            let worst = spec.overhead.0 + spec.seek.time(5000).0
                + tracks * (3 * spec.geometry.revolution.0);
            prop_assert!(service.total().0 < worst, "{:?}", service);
            now += service.total() + Nanos(idle);
        }
    }

    #[test]
    fn sequential_is_never_slower_than_random(seed: u64, count in 20u64..100, sectors in 1u64..64) {
        let mut disk = device("hp97560");
        let scattered = random_reads(disk.as_ref(), count as usize, sectors, seed);
        let random = run(disk.as_mut(), scattered).1;
        let ordered = (0..count).map(|i| Request { sector: i * sectors, sectors });
        let sequential = run(device("hp97560").as_mut(), ordered).1;
        prop_assert!(sequential <= random);
    }
}

/// The drive with [`Reading::Stored`](foretell_sim::device::disk::Reading) (`docs/internals/collective.md`):
/// positioning, streaming, and the end of each cylinder.
#[test]
fn a_drive_that_stores_streams_at_the_overhead_the_bus_and_the_arm() {
    let mut disk = device("hp97560-stored");
    let (services, _) =
        run(disk.as_mut(), (0..400).map(|i| Request { sector: 1368 * 5 + i * 16, sectors: 16 }));
    let (each, arm) = (2.2 + 16.0 * 512.0 / 10e6 * 1e3, 3.64);
    assert!(!services[0].cache_hit);
    // The first streamed block arrives when the platter brings it, and then crosses the bus.
    let second = services[1].total().as_millis();
    assert!(second > each && second < each + 16.0 / 72.0 * 14.9925 + 1.6, "{second}");
    let ends: Vec<usize> =
        (2..400).filter(|i| (i * 16 + 15) / 1368 > (i * 16 - 1) / 1368).collect();
    assert_eq!(ends.len(), 4);
    for (i, service) in services.iter().enumerate().skip(2) {
        near(service.total().as_millis(), each + if ends.contains(&i) { arm } else { 0.0 }, 1e-4);
    }
    // Within the fence a stream skips blocks at no cost; after new positioning, at the media's rate.
    let after = |disk: &mut dyn Device, from: u64, skipped: u64| {
        let requests = [0, skipped].map(|skip| Request { sector: from + skip + 16, sectors: 16 });
        let (services, _) = run(disk, requests);
        services.iter().map(|service| service.total().as_millis()).collect::<Vec<_>>()
    };
    let skipping = after(disk.as_mut(), 1_000_000, 64);
    assert!(skipping[1] > 48.0 / 72.0 * 14.9925, "{skipping:?}");
}

#[test]
fn a_drive_tells_what_its_cache_holds() {
    for name in ["hp97560", "hp97560-stored"] {
        let mut disk = device(name);
        let read = |disk: &mut Box<dyn Device>, sectors: std::ops::Range<u64>| {
            run(disk.as_mut(), sectors.step_by(16).map(|sector| Request { sector, sectors: 16 }));
            disk.cached()
        };
        // After new positioning, only the sectors that were read.
        assert_eq!(read(&mut disk, 5_000..5_016), 5_000..5_016, "{name}");
        // 128 KiB, of which 64 are kept for read-ahead.
        assert_eq!(read(&mut disk, 5_016..5_800), 5_800 - 128..5_800, "{name}");
        assert_eq!(read(&mut disk, 900..916), 900..916, "{name}");
    }
    assert!(device("network").cached().is_empty());
}
