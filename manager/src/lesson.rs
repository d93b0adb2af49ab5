//! What is learned from a run: a change of the profiles of its workload.

use std::sync::{Arc, Mutex, PoisonError};

use foretell_learn::profile::{Kind, Last, Profile};
use foretell_learn::recorder::Recorder;
use foretell_learn::replay::Replay;
use foretell_learn::store::{Changing, Stamp, Store, StoreError};
use foretell_learn::workload::Workload;

/// What is to be learned from a run, or from its first part.
#[derive(Debug)]
pub struct Lesson {
    writer: Writer,
    recorder: Recorder,
    /// Whether the run has ended. Otherwise nothing loses weight.
    is_last: bool,
    /// Whether it has, and was watched all the time. Otherwise parts of files do not lose weight.
    has_seen_all: bool,
    /// What was looked ahead in, and whether it is of this very command.
    replay: Option<(Replay, bool)>,
    /// What became of the bytes that were read ahead for it.
    ahead: Ahead,
}

/// Bytes read ahead, and those of them that were in memory in time, on their way, and not read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Ahead {
    pub(crate) all: u64,
    pub(crate) useful: u64,
    pub(crate) late: u64,
    pub(crate) wasted: u64,
}

impl Lesson {
    /// Adds what became of the bytes that were read ahead.
    pub(crate) fn note_ahead(&mut self, ahead: Ahead) {
        self.ahead = ahead;
    }

    /// Changes the profiles of the workload.
    ///
    /// # Errors
    /// [`StoreError`].
    pub fn learn(self) -> Result<(), StoreError> {
        let Lesson { writer, recorder, is_last, has_seen_all, replay, ahead } = self;
        let last = |replay: &Replay| last(replay, ahead);
        let mut state = writer.0.lock().unwrap_or_else(PoisonError::into_inner);
        let State { store, workload, alike: alike_base, exact: exact_base, across: across_base } =
            &mut *state;
        let run = recorder.finish();
        let exact = replay.as_ref().filter(|(_, is_exact)| *is_exact).map(|(replay, _)| replay);
        let alike = replay.as_ref().filter(|(_, is_exact)| !*is_exact).map(|(replay, _)| replay);
        let lost =
            |path: &[u8], nth| is_last && exact.is_some_and(|replay| replay.is_missed(path, nth));
        let about = (workload.name.clone(), workload.kind, workload.folder.clone());
        let change = |profile: &mut Profile| {
            (profile.name, profile.kind, profile.folder) = about; // An older name may have a secret.
            profile.last = exact.map(last).or(profile.last);
            profile.learn(run.clone(), lost, has_seen_all);
            true
        };
        let changing = store.change()?;
        // First what helps most: the next ones may not be written.
        exact_base.update(&changing, (&workload.exact, &workload.name), change)?;
        if workload.alike != workload.exact {
            let (again, shape) = (run.clone(), workload.shape.clone());
            let change = |profile: &mut Profile| {
                (profile.name, profile.kind) = (shape, Kind::Alike);
                profile.last = alike.map(last).or(profile.last);
                profile.learn(again, |_, _| has_seen_all, has_seen_all);
                true
            };
            alike_base.update(&changing, (&workload.alike, &workload.shape), change)?;
        }
        let across = foretell_learn::across::workload();
        let change = |history: &mut Profile| foretell_learn::across::add(history, &run);
        across_base.update(&changing, (&across.exact, &across.name), change)?;
        changing.finish()
    }
}

/// What became of the steps that were looked ahead in.
fn last(replay: &Replay, ahead: Ahead) -> Last {
    let (counts, has_stopped) = (replay.counts(), replay.has_stopped());
    let [expected, asked, found] =
        [counts.expected, counts.asked, counts.found].map(|count| count as u32);
    Last {
        expected,
        asked,
        found,
        has_stopped,
        ahead_bytes: ahead.all,
        useful_bytes: ahead.useful,
        late_bytes: ahead.late,
        wasted_bytes: ahead.wasted,
    }
}

/// Writes a run's lessons, each in the place of the one before.
#[derive(Clone, Debug)]
pub(crate) struct Writer(Arc<Mutex<State>>);

impl Writer {
    pub(crate) fn new(store: Store, workload: Workload) -> Self {
        let [alike, exact, across] = [(); 3].map(|()| Base::default());
        Writer(Arc::new(Mutex::new(State { store, workload, alike, exact, across })))
    }

    /// Of the first part of a run.
    pub(crate) fn lesson(self, recorder: Recorder) -> Lesson {
        Lesson {
            writer: self,
            recorder,
            is_last: false,
            has_seen_all: false,
            replay: None,
            ahead: Ahead::default(),
        }
    }

    /// Of a run that has ended. `replay`: what was looked ahead in, and whether it is of this very command. `has_seen_all`:
    /// whether the run was watched all the time.
    pub(crate) fn last_lesson(
        self,
        recorder: Recorder,
        replay: Option<(Replay, bool)>,
        has_seen_all: bool,
    ) -> Lesson {
        Lesson {
            writer: self,
            recorder,
            is_last: true,
            has_seen_all,
            replay,
            ahead: Ahead::default(),
        }
    }
}

#[derive(Debug)]
struct State {
    store: Store,
    workload: Workload,
    alike: Base,
    exact: Base,
    across: Base,
}

/// A profile without this run, and the stamp of its file with it.
#[derive(Debug, Default)]
struct Base {
    without: Profile,
    with: Option<Stamp>,
}

impl Base {
    /// Has `change` change the profile of a key in the store. If nobody else has changed it since this run did, that starts
    /// from the profile without this run. It is written unless `change` returns that it has changed nothing.
    fn update(
        &mut self,
        changing: &Changing,
        (key, name): (&[u8], &str),
        change: impl FnOnce(&mut Profile) -> bool,
    ) -> Result<(), StoreError> {
        let mut base = std::mem::take(self); // Without the run, if it cannot be written.
        let (known, stamp) = changing.read(key)?.unzip();
        let has_run = stamp.is_some() && stamp == base.with;
        if !has_run {
            base.without = known.unwrap_or_else(|| Profile::new(name.to_owned()));
        }
        let mut profile = base.without.clone();
        let is_changed = change(&mut profile);
        base.with = match is_changed || has_run {
            true => changing.write(key, &profile)?,
            false => None,
        };
        *self = base;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use foretell_learn::steps::Acts;

    use super::*;

    fn recorder(names: &[&str]) -> Recorder {
        let mut recorder = Recorder::new();
        names.iter().for_each(|name| recorder.touch(name.as_bytes(), Acts::LOOK, 0));
        recorder
    }

    #[test]
    fn lessons_of_one_run_count_as_one_run() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().to_owned());
        let writer = Writer::new(store.clone(), Workload::named("w"));
        let key = Workload::named("w").exact;
        let profile = || store.load(&key).expect("no error").expect("learned");
        for names in [&["/a"][..], &["/a", "/b"]] {
            writer.clone().lesson(recorder(names)).learn().expect("written");
        }
        assert_eq!((profile().runs, profile().steps.len(), profile().steps[0].seen), (1, 2, 1));
        // Another run learns meanwhile.
        Writer::new(store.clone(), Workload::named("w"))
            .lesson(recorder(&["/c"]))
            .learn()
            .expect("written");
        assert_eq!(profile().runs, 2);
        writer.last_lesson(recorder(&["/a", "/b", "/d"]), None, true).learn().expect("written");
        assert_eq!((profile().runs, profile().steps.len()), (3, 4));
    }
    #[test]
    fn what_is_forgotten_during_a_run_does_not_come_back() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().to_owned());
        let key = Workload::named("w").exact;
        let lesson = |name| {
            let writer = Writer::new(store.clone(), Workload::named("w"));
            writer.lesson(recorder(&[name])).learn().expect("written");
        };
        lesson("/old");
        let writer = Writer::new(store.clone(), Workload::named("w"));
        writer.clone().lesson(recorder(&["/a"])).learn().expect("written");
        assert!(store.forget(&key).expect("forgotten"));
        // As many runs as before, so that their number tells nothing.
        lesson("/new");
        lesson("/new");
        writer.last_lesson(recorder(&["/a"]), None, false).learn().expect("written");
        let profile = store.load(&key).expect("no error").expect("learned");
        let paths: Vec<&[u8]> = profile.steps.iter().map(|step| &*step.path).collect();
        assert!(paths.contains(&&b"/new"[..]) && !paths.contains(&&b"/old"[..]), "{paths:?}");
        assert_eq!(profile.runs, 3);
    }

    #[test]
    fn the_history_is_written_only_if_the_run_has_read() {
        let folder = tempfile::tempdir().expect("a folder");
        let store = Store::at(folder.path().to_owned());
        let lesson = |read: bool| {
            let mut recorder = recorder(&["/a"]);
            recorder.identify(7, b"/a", 0);
            if read {
                let _ = recorder.read(7, 0..8192, 1);
            }
            let writer = Writer::new(store.clone(), Workload::named("w"));
            writer.lesson(recorder).learn().expect("written");
        };
        let runs = || {
            let history = store.load(&foretell_learn::across::workload().exact);
            history.expect("no error").map(|history| history.runs)
        };
        lesson(false);
        assert_eq!(runs(), None, "there is nothing to be kept");
        (0..5).for_each(|_| lesson(true));
        assert_eq!(runs(), Some(2), "the same again");
        lesson(false);
        assert_eq!(runs(), Some(2));
    }
}
