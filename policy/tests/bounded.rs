//! How long the longest calls take that follow hints of very many segments.

use std::time::{Duration, Instant};

use foretell_policy::{
    Config, DeviceId, Extent, FileId, Hint, HinterId, Memory, Nanos, Next, Order, Outcome, Policy,
    Segment, StreamId, Target,
};

const NOW: Nanos = Nanos::ZERO;
const DISK: DeviceId = DeviceId(0);
const OTHER: DeviceId = DeviceId(1);
const BLOCK_BYTES: u64 = 8192;
const SIZE_BYTES: u64 = 8 << 40;

fn policy(capacity_blocks: u64) -> Policy {
    Policy::new(Config::new(Memory::Owned, BLOCK_BYTES, capacity_blocks * BLOCK_BYTES))
}

fn hint(policy: &mut Policy, stream: StreamId, device: DeviceId, extent: Extent) {
    let target = Target::File { file: FileId(device.0), size_bytes: SIZE_BYTES };
    let order = Order::Given;
    policy.hint(NOW, stream, Hint { target, device, extent, order, repeats: 1 });
}

/// Blocks far from each other, in an order that no disk would choose.
fn scattered(segments: std::ops::Range<u64>) -> Extent {
    let segment = |index: u64| Segment {
        offset_bytes: index * 387_431 % (SIZE_BYTES / BLOCK_BYTES) * BLOCK_BYTES,
        length_bytes: BLOCK_BYTES,
    };
    Extent::Segments(segments.map(segment).collect())
}

fn strided(count: u64) -> Extent {
    let first = Segment { offset_bytes: 0, length_bytes: BLOCK_BYTES };
    Extent::Strided { first, stride_bytes: 9 * BLOCK_BYTES, count }
}

/// Prints the longest calls that follow large hints:
/// `cargo test --release -p foretell-policy --test bounded -- --ignored --nocapture`.
#[test]
#[ignore = "prints times"]
#[allow(clippy::print_stdout)]
fn longest_calls() {
    let one_hint = || vec![scattered(0..10_000_000)];
    let many_hints = || (0..2500).map(|n| scattered(n * 4000..(n + 1) * 4000)).collect();
    let stride = || vec![strided(10_000_000)];
    let hints: [(&str, &dyn Fn() -> Vec<Extent>); 3] = [
        ("10,000,000 segments of one hint", &one_hint),
        ("2,500 hints of 4,000 segments", &many_hints),
        ("stride of 10,000,000 blocks", &stride),
    ];
    for capacity_blocks in [10_000, 1_000_000] {
        for (name, extents) in hints {
            let mut policy = policy(capacity_blocks);
            let stream = policy.open_stream(NOW, HinterId(1), None);
            hint(&mut policy, stream, OTHER, scattered(0..1));
            let mut hinting = Duration::ZERO;
            for extent in extents() {
                let began = Instant::now();
                hint(&mut policy, stream, DISK, extent);
                hinting = hinting.max(began.elapsed());
            }
            // Device 1 is asked first: all has to be placed before there is nothing for it.
            let mut took = Vec::new();
            for device in [OTHER, DISK] {
                loop {
                    let began = Instant::now();
                    let next = policy.next(NOW, device);
                    took.push(began.elapsed());
                    match next {
                        Next::Fetch(fetch) => policy.completed(NOW, fetch.id, Outcome::Fetched),
                        Next::More => {}
                        Next::Nothing => break,
                    }
                }
            }
            took.sort_unstable();
            let (calls, all) = (took.len(), took.iter().sum::<Duration>());
            let [.., third, second, first] = took[..] else { unreachable!("many calls") };
            println!(
                "{capacity_blocks} blocks, {name}: hint {hinting:.1?}; next, {calls} calls, \
                 {all:.1?}, longest {first:.1?}, {second:.1?}, {third:.1?}"
            );
        }
    }
}
