//! Predictive caching on the project's recordings: what `docs/results/predictive.md` says holds on shorter streams, too.

use std::path::Path;

use foretell_sim::predict::device::{DEVICES, DeviceSpec};
use foretell_sim::predict::graph::{PREDICTORS, Settings, predictor};
use foretell_sim::predict::stream::Stream;
use foretell_sim::predict::{Fetching, Options, Predicting, Report, run};
use foretell_sim::trace::opens::{self, Opens};

const NAMES: [&str; 4] = ["compile", "typeset", "python", "npm"];

fn recording(name: &str) -> Opens {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("traces/{name}.opens.gz"));
    opens::open(&path).expect("a recording")
}

/// The mixed stream of a day.
fn mixed() -> Stream {
    let recordings = NAMES.map(recording);
    Stream::of_days(&recordings.each_ref(), 1, 7)
}

fn simulate(
    stream: &Stream,
    predicting: Predicting,
    device: DeviceSpec,
    cache_32nds: u64,
) -> Report {
    let cache_bytes = stream.bytes() * cache_32nds / 32;
    let settings = Settings::default();
    run(stream, &Options { predicting, fetching: Fetching::ByWorth, settings, cache_bytes, device })
}

fn combination() -> Predicting {
    Predicting::By(predictor("combination").expect("there"))
}

#[test]
fn the_combination_is_never_much_worse_than_lru() {
    let streams = NAMES.map(|name| Stream::in_order(&recording(name)));
    for stream in streams.iter().chain([&mixed()]) {
        for device in DEVICES {
            for cache in [1, 4, 16, 32] {
                let of = |predicting| simulate(stream, predicting, device, cache);
                let (lru, ours) = (of(Predicting::Nothing), of(combination()));
                let case =
                    format!("{}, {cache}/32: {} to {}", device.name, lru.read_us, ours.read_us);
                assert!(ours.read_us as f64 <= 1.02 * lru.read_us as f64, "{case}");
                assert_eq!(ours.opens, stream.steps.len() as u64);
                assert!(ours.in_time <= ours.right && ours.right <= ours.counts.predictions);
                assert!(ours.counts.wasted_bytes <= ours.counts.fetched_bytes);
                assert_eq!((lru.counts.predictions, lru.counts.fetched_bytes), (0, 0));
            }
        }
    }
}

#[test]
fn half_the_cache_suffices_and_the_oracle_is_best() {
    let stream = mixed();
    for device in DEVICES {
        let whole = simulate(&stream, Predicting::Nothing, device, 16);
        let half = simulate(&stream, combination(), device, 8);
        assert!(
            half.read_us < whole.read_us,
            "{}: {} and {}",
            device.name,
            half.read_us,
            whole.read_us
        );
        let oracle = simulate(&stream, Predicting::Oracle, device, 8);
        for entry in PREDICTORS {
            let read_us = simulate(&stream, Predicting::By(entry), device, 8).read_us;
            assert!(oracle.read_us < read_us, "{}, {}", device.name, entry.name);
        }
    }
}

#[test]
fn every_run_gives_the_same() {
    let (one, other) = (mixed(), mixed());
    assert!(one == other);
    let [first, second] =
        [&one, &other].map(|stream| simulate(stream, combination(), DEVICES[1], 4));
    assert!(first == second);
}
