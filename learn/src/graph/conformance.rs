//! What every predictor must keep to: the duties in the [module](super), on streams that are regular, random and hostile.

use super::skeleton::Skeleton;
use super::{
    Entry, File, Files, Guess, LOOKAHEAD_MAX, Open, PREDICTORS, Predictor, Settings, Storage,
};

/// Feeds a predictor with opens by key, and checks each answer.
pub(super) struct Opener {
    files: Files,
    predictor: Box<dyn Predictor>,
    settings: Option<Settings>,
    guesses: Vec<Guess>,
    time_us: u64,
}

impl Opener {
    pub(super) fn new(predictor: Box<dyn Predictor>) -> Self {
        let files = Files::new(4096);
        Opener { files, predictor, settings: None, guesses: Vec::new(), time_us: 0 }
    }

    /// Opens the file `key`, in process 1 and a millisecond after the last, and returns the keys and chances of the guesses.
    pub(super) fn open(&mut self, key: u64) -> Vec<(u64, f32)> {
        self.open_by(key, 1, 1000)
    }

    fn open_by(&mut self, key: u64, process: u32, gap_us: u64) -> Vec<(u64, f32)> {
        self.time_us += gap_us;
        let file = self.files.open(key, 4096 + key % 5 * 100_000);
        let open =
            Open { file, size_bytes: 4096 + key % 5 * 100_000, process, time_us: self.time_us };
        // What is there stays.
        let there = Guess { file: File(7), chance: 0.125 };
        self.guesses.clear();
        self.guesses.push(there);
        self.predictor.open(&open, &mut self.guesses);
        let name = self.predictor.name();
        assert_eq!(self.guesses[0], there, "{name}: an answer is appended");
        let answer = &self.guesses[1..];
        for (at, guess) in answer.iter().enumerate() {
            assert_ne!(guess.file, file, "{name}: the file just opened");
            assert!(guess.chance > 0.0 && guess.chance <= 1.0, "{name}: {guess:?}");
            assert!(
                answer[..at].iter().all(|other| other.file != guess.file),
                "{name}: twice: {guess:?}"
            );
            if let Some(settings) = self.settings {
                assert!(guess.chance >= settings.min_chance, "{name}: {guess:?}");
            }
        }
        answer
            .iter()
            .filter_map(|guess| Some((self.files.get(guess.file)?.0, guess.chance)))
            .collect()
    }
}

/// The predictors and the skeleton.
fn all() -> impl Iterator<Item = Entry> {
    let skeleton = Entry {
        name: "skeleton",
        make: |settings| Box::new(Skeleton::new(settings)),
        file_bytes_max: 16,
        has_trial: false,
    };
    PREDICTORS.into_iter().chain([skeleton])
}

fn opener(entry: &Entry, settings: Settings, files: usize) -> Opener {
    let predictor = (entry.make)(settings);
    assert_eq!(predictor.name(), entry.name);
    Opener { files: Files::new(files), settings: Some(settings), ..Opener::new(predictor) }
}

/// A number that looks random.
fn drawn(at: u64) -> u64 {
    super::files::scramble(at.wrapping_mul(0x9E37_79B9_7F4A_7C15))
}

#[test]
fn a_sequence_that_repeats_is_predicted() {
    for entry in PREDICTORS {
        let mut opener = opener(&entry, Settings { lookahead: 8, ..Settings::default() }, 4096);
        // A run of 600 files, and others that never come again between its rounds.
        let round = |opener: &mut Opener, number: u64| {
            (0..50).for_each(|at| drop(opener.open(1_000_000 * number + at)));
            (0..600).map(|key| opener.open(key)).collect::<Vec<_>>()
        };
        (1..8).for_each(|number| drop(round(&mut opener, number)));
        let answers = round(&mut opener, 8);
        let is_right = |(at, answer): &(usize, &Vec<(u64, f32)>)| {
            answer.iter().any(|&(key, _)| (*at as u64 + 1..=*at as u64 + 8).contains(&key))
        };
        let right = answers[..592].iter().enumerate().filter(is_right).count();
        assert!(right > 560, "{}: {right} of 592", entry.name);
    }
}

#[test]
fn what_never_repeats_is_not_guessed() {
    for entry in all().filter(|entry| entry.name != "skeleton") {
        let mut opener = opener(&entry, Settings::default(), 4096);
        let guesses: usize = (0..20_000).map(|key| opener.open(key).len()).sum();
        assert_eq!(guesses, 0, "{}", entry.name);
    }
}

#[test]
fn random_and_hostile_streams_keep_the_rules_and_the_bounds() {
    let settings = [
        Settings::default(),
        Settings {
            lookahead: 1,
            min_chance: 1.0,
            storage: Storage { cache_bytes: 0, ..Storage::REMOTE },
        },
        Settings {
            lookahead: LOOKAHEAD_MAX,
            min_chance: 0.01,
            storage: Storage { disk_us: u64::MAX / 2, ahead: 1, ..Storage::REMOTE },
        },
    ];
    let streams: [fn(u64) -> (u64, u32); 6] = [
        |at| (drawn(at) % 50, (drawn(at) >> 40) as u32 % 3),
        |at| (drawn(at) % 5000, 1),
        |_| (1, 1),
        |at| (at % 2, at as u32),
        |at| (u64::MAX - at % 700, u32::MAX),
        |at| (drawn(at / 3) % 3000, 1 + at as u32 % 3),
    ];
    for entry in all() {
        for settings in settings {
            for (number, stream) in streams.into_iter().enumerate() {
                let mut opener = opener(&entry, settings, 500);
                for at in 0..6000 {
                    let (key, process) = stream(at);
                    opener.open_by(key, process, drawn(at) % 3 * 700);
                }
                // Vectors grow twofold; the rest does not grow with the files.
                let most = 2 * 500 * entry.file_bytes_max + 256 * 1024;
                let bytes = opener.predictor.bytes();
                assert!(bytes <= most, "{}, stream {number}: {bytes} bytes", entry.name);
            }
        }
    }
}

#[test]
fn the_same_opens_give_the_same_guesses() {
    for entry in all() {
        let run = || {
            let mut opener = opener(&entry, Settings::default(), 300);
            (0..5000)
                .map(|at| opener.open_by(drawn(at) % 400, (at % 5) as u32, 300))
                .collect::<Vec<_>>()
        };
        assert!(run() == run(), "{}", entry.name);
    }
}

#[test]
fn settings_out_of_bounds_are_moved_to_the_bounds() {
    for entry in all() {
        for (lookahead, min_chance) in
            [(0, 0.5), (usize::MAX, 0.5), (4, f32::NAN), (4, -1.0), (4, 7.0)]
        {
            let settings = Settings { lookahead, min_chance, ..Settings::default() };
            let mut opener = Opener::new((entry.make)(settings));
            (0..2000).for_each(|at| drop(opener.open(drawn(at) % 60)));
        }
    }
}
