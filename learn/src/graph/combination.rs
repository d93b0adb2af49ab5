//! The combination: asks all predictors, and follows the one that has brought most bytes in time of late.
//!
//! *Which predictor.* For each member, and for nobody, a [model](super::model) of the cache and the storage runs along: it
//! fetches what that member guesses, and tells for how long the reads would have waited. Waits of late count most. The
//! combination gives the guesses of the member whose reads wait least. If nobody's do, it is silent: so it stops by itself
//! where predictions do harm, and is heard again as soon as they would not.
//!
//! *The blend.* One more member joins the guesses of all. A predictor's own chance says little: a file that was seen once after
//! another has the chance 1 in the probability graph. So the guesses of a member are sorted by their chance into [`CLASSES`]
//! classes. For each class it is counted, by bytes:
//!
//! * *guessed*: a file became expected by a guess of this class;
//! * *right*: the file was opened within the lookahead after the last such guess;
//! * *in time*: it was opened, and had been expected for as long as its fetch takes.
//!
//! The chance of a class is right / guessed, with a prior from the member's own chance. A guess of several members gets the
//! mean of their chances, weighed by what share of each class's bytes would have arrived in time. Counts are halved after
//! [`GUESSES_MAX`] guesses of a class.
//!
//! Members are judged by what they guess, whether or not it is fetched. So one that has been wrong for a while is heard again
//! as soon as it is right.
//!
//! Cost: that of the members, and for each of their guesses two look-ups.

use super::files::Places;
use super::model::{FILE_BYTES_MAX, Trial, cached_bytes};
use super::{Epcm, Guess, LastSuccessor, Mithril, Open, Predictor, ProbabilityGraph, Settings};

/// The members.
const MEMBERS: usize = 4;
/// Classes of chances: below 0.25, 0.5, 0.75, below 1, and 1.
const CLASSES: usize = 5;
/// Guesses of a class at which its counts are halved.
const GUESSES_MAX: u32 = 512;
/// Bytes for which a file counts at least: an open costs a request, however small the file is.
const BYTES_MIN: u64 = 32 << 10;
/// Guesses for which the prior of a class counts, each of [`BYTES_MIN`].
const PRIOR_GUESSES: f32 = 4.0;
/// Those who are compared: the blend, the members, and nobody.
const RIVALS: usize = 1 + MEMBERS + 1;
const BLEND: usize = 0;

fn class_of(chance: f32) -> usize {
    (chance * (CLASSES - 1) as f32) as usize
}

/// The bytes for which a file counts.
fn weight(size_bytes: u64) -> f32 {
    size_bytes.clamp(BYTES_MIN, FILE_BYTES_MAX) as f32
}

/// What the guesses of a class have been worth, in bytes.
#[derive(Clone, Copy, Debug, Default)]
struct Class {
    guesses: u32,
    guessed: f32,
    right: f32,
    in_time: f32,
}

impl Class {
    /// Adds a guess of a file that counts `bytes`.
    fn guess(&mut self, bytes: f32) {
        if self.guesses >= GUESSES_MAX {
            self.guesses /= 2;
            (self.guessed, self.right, self.in_time) =
                (self.guessed / 2.0, self.right / 2.0, self.in_time / 2.0);
        }
        self.guesses += 1;
        self.guessed += bytes;
    }

    /// The chance of a guess to which its member gives the chance `prior`.
    fn chance(&self, prior: f32) -> f32 {
        let weight = PRIOR_GUESSES * BYTES_MIN as f32;
        ((self.right + prior * weight) / (self.guessed + weight)).min(1.0)
    }

    /// The share of the guessed bytes that would have come in time. Never 0, so that a single member is always heard.
    fn in_time_share(&self) -> f32 {
        let weight = PRIOR_GUESSES * BYTES_MIN as f32;
        (self.in_time + 0.1 * weight) / (self.guessed + weight)
    }
}

/// A member's open guess of a file.
#[derive(Clone, Copy, Debug, Default)]
struct Mark {
    /// When the member began to expect the file, in microseconds.
    since_us: u64,
    /// The number of the open that gave the guess last; 0 if there is no guess.
    last: u32,
    class: u8,
}

/// What is expected of a file.
#[derive(Debug, Default)]
struct Marks {
    of: [Mark; MEMBERS],
    size_bytes: u32,
    is_known: bool,
}

/// All predictors, weighed by what their guesses have been worth. Silent while a trial says that its reads wait longer than
/// without.
pub struct Combination {
    settings: Settings,
    members: [Box<dyn Predictor>; MEMBERS],
    classes: [[Class; CLASSES]; MEMBERS],
    marks: Places<Marks>,
    /// A file's place in the answer, by the open that was answered.
    answered: Places<(u32, u32)>,
    /// Weights of the blend's guesses.
    weights: Vec<f32>,
    /// The guesses of the blend and of the members. Nobody has none.
    lists: [Vec<Guess>; 1 + MEMBERS],
    trial: Trial,
    /// Opens so far, from 1.
    now: u32,
}

impl Combination {
    /// All predictors, none of which has guessed yet.
    pub fn new(settings: Settings) -> Self {
        let settings = settings.bounded();
        // Members give all that they have: a class with a low chance of its own may be worth more.
        let members =
            Settings { min_chance: settings.min_chance.min(MEMBERS_MIN_CHANCE), ..settings };
        Combination {
            settings,
            members: [
                Box::new(ProbabilityGraph::new(members)),
                Box::new(LastSuccessor::new(members)),
                Box::new(Epcm::new(members)),
                Box::new(Mithril::new(members)),
            ],
            classes: [[Class::default(); CLASSES]; MEMBERS],
            marks: Places::new(),
            answered: Places::new(),
            weights: Vec::new(),
            lists: Default::default(),
            trial: Trial::new(RIVALS, settings.storage, settings.lookahead),
            now: 0,
        }
    }

    /// Gives every member that expected the opened file what its guess was worth.
    fn settle(&mut self, open: &Open) {
        let marks = self.marks.of(open.file);
        if !std::mem::replace(&mut marks.is_known, true) {
            self.trial.forget(open.file.place() as u32);
        }
        marks.size_bytes = open.size_bytes.min(u64::from(u32::MAX)) as u32;
        let bytes = weight(open.size_bytes);
        let fetch_us = self.settings.storage.fetch_us(cached_bytes(open.size_bytes));
        for (mark, classes) in marks.of.iter_mut().zip(&mut self.classes) {
            let Mark { since_us, last, class } = std::mem::take(mark);
            if last == 0 || self.now.wrapping_sub(last) > self.settings.lookahead as u32 {
                continue;
            }
            let class = &mut classes[usize::from(class)];
            class.right += bytes;
            let lead_us = open.time_us.saturating_sub(since_us);
            class.in_time += if lead_us >= fetch_us { bytes } else { 0.0 };
        }
    }

    /// Takes the guesses of one member into the blend.
    fn blend(&mut self, member: usize, open: &Open) {
        let [answer, lists @ ..] = &mut self.lists;
        for &Guess { file, chance } in &lists[member] {
            let class = class_of(chance);
            // Each file of a guess was opened once. If another has its place now, it is forgotten.
            let Some(marks) = self.marks.known(file) else { continue };
            let mark = &mut marks.of[member];
            let worth = &mut self.classes[member][class];
            if mark.last == 0 || self.now.wrapping_sub(mark.last) > self.settings.lookahead as u32 {
                *mark = Mark { since_us: open.time_us, last: 0, class: class as u8 };
                worth.guess(weight(u64::from(marks.size_bytes)));
            }
            mark.last = self.now;
            let (chance, weight) = (worth.chance(chance), worth.in_time_share());
            let (open_number, place) = self.answered.of(file);
            if *open_number != self.now {
                (*open_number, *place) = (self.now, answer.len() as u32);
                answer.push(Guess { file, chance: chance * weight });
                self.weights.push(weight);
            } else {
                answer[*place as usize].chance += chance * weight;
                self.weights[*place as usize] += weight;
            }
        }
    }

    /// Lets all rivals open the file; returns who is heard.
    fn compare(&mut self, open: &Open) -> usize {
        let (lists, marks, min_chance) = (&self.lists, &self.marks, self.settings.min_chance);
        self.trial.open(open.file.place() as u32, open.size_bytes, open.time_us, |rival| {
            let of_rival = lists.get(rival).map_or(&[][..], Vec::as_slice).iter();
            of_rival.filter(move |guess| guess.chance >= min_chance).filter_map(|guess| {
                let size_bytes = u64::from(marks.get(guess.file)?.size_bytes);
                Some((guess.file.place() as u32, size_bytes, guess.chance))
            })
        })
    }
}

/// Least chance of the members' own guesses.
const MEMBERS_MIN_CHANCE: f32 = 0.1;

impl Predictor for Combination {
    fn name(&self) -> &'static str {
        "combination"
    }

    fn open(&mut self, open: &Open, guesses: &mut Vec<Guess>) {
        self.now = self.now.wrapping_add(1).max(1);
        self.settle(open);
        self.weights.clear();
        self.lists.iter_mut().for_each(Vec::clear);
        for member in 0..MEMBERS {
            self.members[member].open(open, &mut self.lists[1 + member]);
            self.blend(member, open);
        }
        for (guess, weight) in self.lists[BLEND].iter_mut().zip(&self.weights) {
            guess.chance = (guess.chance / weight).min(1.0);
        }
        let heard = self.compare(open);
        let answer = self.lists.get(heard).map_or(&[][..], Vec::as_slice).iter();
        guesses.extend(answer.filter(|guess| guess.chance >= self.settings.min_chance));
    }

    fn bytes(&self) -> usize {
        let members: usize = self.members.iter().map(|member| member.bytes()).sum();
        members + self.trial.bytes() + self.marks.bytes() + self.answered.bytes()
    }
}

#[cfg(test)]
mod tests {
    use super::super::conformance::Opener;
    use super::*;

    #[test]
    fn a_class_is_worth_what_it_brought() {
        let mut class = Class::default();
        assert_eq!(class.chance(0.75), 0.75, "the prior");
        (0..100).for_each(|_| class.guess(weight(0)));
        assert!(class.chance(1.0) < 0.05 && class.in_time_share() < 0.01);
        class.right = class.guessed;
        class.in_time = class.guessed;
        assert!(class.chance(0.1) > 0.95 && class.in_time_share() > 0.95);
        (0..10_000).for_each(|_| class.guess(weight(0)));
        assert!(
            class.guesses <= GUESSES_MAX && class.chance(1.0) < 0.02,
            "old guesses are forgotten"
        );
    }

    #[test]
    fn chance_falls_with_what_goes_wrong() {
        let settings = Settings { lookahead: 2, min_chance: 0.3, ..Settings::default() };
        let mut opener = Opener::new(Box::new(Combination::new(settings)));
        (0..20).for_each(|_| (0..8).for_each(|key| drop(opener.open(key))));
        assert!(opener.open(0).iter().any(|&(key, chance)| key == 1 && chance > 0.9));
        // Files that are opened once teach that a first sight is worth nothing.
        let mut made = 0;
        for round in 0..600u64 {
            made += opener.open(1000 + round * 7919 % 1009).len();
        }
        let mut later = 0;
        for round in 600..1200u64 {
            later += opener.open(1000 + round * round * 31 % 1009).len();
        }
        assert!(later <= 600, "{made} {later}");
    }
}
