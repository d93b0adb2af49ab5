//! How many opens a second each predictor takes, and its memory: `cargo run --release -p foretell-learn --example graph_speed`.
//!
//! The stream has runs of 300 files that repeat with changes, among 20,000 files in all: what a day of builds and shells opens.

#![allow(clippy::print_stdout)]

use std::time::Instant;

use foretell_learn::graph::files::Files;
use foretell_learn::graph::{Open, PREDICTORS, Settings};

const OPENS: u64 = 2_000_000;
const FILES: u64 = 20_000;
/// Opens of a run.
const RUN: u64 = 300;

fn main() {
    let mut files = Files::new(1 << 20);
    let opens: Vec<Open> = (0..OPENS)
        .map(|at| {
            // A run begins at one of 60 places; one open in ten is of any file.
            let run = mixed(at / RUN) % 60;
            let key = if mixed(at).is_multiple_of(10) {
                mixed(at ^ 1) % FILES
            } else {
                run * RUN + at % RUN
            };
            let file = files.open(key, 8192);
            Open { file, size_bytes: 8192, process: 1 + (at / 40) as u32, time_us: at * 200 }
        })
        .collect();
    let begin = Instant::now();
    for at in 0..OPENS {
        files.open(mixed(at) % FILES, 8192);
    }
    let files_s = begin.elapsed().as_secs_f64();
    println!(
        "{:<16} {:>12} {:>10} {:>12} {:>10}",
        "predictor", "opens/s", "ns/open", "guesses/open", "bytes/file"
    );
    let row = |name, elapsed_s: f64, guesses: u64, bytes: usize| {
        let opens = OPENS as f64;
        let (rate, cost, of_open) =
            (opens / elapsed_s, 1e9 * elapsed_s / opens, guesses as f64 / opens);
        println!(
            "{name:<16} {rate:>12.0} {cost:>10.0} {of_open:>12.1} {:>10}",
            bytes / FILES as usize
        );
    };
    row("(file numbers)", files_s, 0, files.bytes());
    for entry in PREDICTORS {
        let mut predictor = (entry.make)(Settings::default());
        let (mut guesses, mut made) = (Vec::new(), 0);
        let begin = Instant::now();
        for open in &opens {
            guesses.clear();
            predictor.open(open, &mut guesses);
            made += guesses.len() as u64;
        }
        row(entry.name, begin.elapsed().as_secs_f64(), made, predictor.bytes());
    }
}

/// A number that looks random (the finaliser of SplitMix64).
fn mixed(at: u64) -> u64 {
    let value = at.wrapping_mul(0x9E37_79B9_7F4A_7C15);
    let value = (value ^ (value >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    value ^ (value >> 31)
}
