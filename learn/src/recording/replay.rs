//! A recording as a [`Profile`], which the next run is looked ahead with.
//!
//! Folders that have moved are renamed: the longest of the given old names that a path begins with is replaced by the new one.

use std::io::{self, Read};

use super::reader::Reader;
use super::{Event, Origin, What, is_named};
use crate::profile::Profile;
use crate::recorder::Recorder;
use crate::starts::Starts;
use crate::steps::Acts;

/// Folders that have moved: old and new names, absolute and without a slash at the end.
#[derive(Clone, Debug, Default)]
pub struct Moves(Vec<(Vec<u8>, Vec<u8>)>);

impl Moves {
    /// Of these folders.
    pub fn new(mut moves: Vec<(Vec<u8>, Vec<u8>)>) -> Self {
        for (old, new) in &mut moves {
            [old, new].into_iter().for_each(|name| {
                while name.ends_with(b"/") {
                    name.pop();
                }
            });
        }
        moves.sort_by_key(|(old, _)| std::cmp::Reverse(old.len()));
        Moves(moves)
    }

    /// Where the file of this path is now. Writes it to `moved`, if it has moved.
    pub fn of<'a>(&self, path: &'a [u8], moved: &'a mut Vec<u8>) -> &'a [u8] {
        let found = self.0.iter().find_map(|(old, new)| {
            let rest = path.strip_prefix(&old[..])?;
            (rest.is_empty() || rest.starts_with(b"/")).then_some((new, rest))
        });
        let Some((new, rest)) = found else { return path };
        moved.clear();
        moved.extend_from_slice(new);
        moved.extend_from_slice(rest);
        if moved.is_empty() {
            moved.push(b'/');
        }
        moved
    }
}

/// What the run of this recording tells the next one. The reader is at its end then.
///
/// # Errors
/// The file cannot be read.
pub fn profile(reader: &mut Reader<impl Read>, moves: &Moves) -> io::Result<Profile> {
    let (mut recorder, mut known, mut moved) = (Recorder::new(), Vec::new(), Vec::new());
    let mut starts = Starts::default();
    while let Some(event) = reader.next_event()? {
        let early_ns = first_use_ns(&mut starts, &event);
        let [at_ms, early_ms] =
            [event.at_ns, early_ns].map(|ns| u32::try_from(ns / 1_000_000).unwrap_or(u32::MAX));
        let Some(id) = path_of(&event) else { continue };
        let path = &reader.paths()[id as usize];
        if !is_named(path) {
            continue;
        }
        let path = moves.of(path, &mut moved);
        let number = u64::from(id);
        match event.what {
            What::Touch { acts, .. } => recorder.touch(path, acts, at_ms),
            What::Read { offset_bytes, length_bytes, origin, .. } => {
                if known.len() <= id as usize {
                    known.resize(id as usize + 1, false);
                }
                if !std::mem::replace(&mut known[id as usize], true) {
                    match early_ns < event.at_ns {
                        true => recorder.identify_early(number, path, early_ms),
                        false => recorder.identify(number, path, at_ms),
                    }
                }
                let range = offset_bytes..offset_bytes.saturating_add(length_bytes);
                match length_bytes {
                    0 => recorder.note(number, Acts::END),
                    _ => drop(recorder.read(number, range, at_ms)),
                }
                if origin == Origin::Pages {
                    recorder.note(number, Acts::MAP);
                }
            }
            What::Begins { .. } | What::Ends | What::Named { .. } | What::Close { .. } => {}
        }
    }
    let mut profile = Profile::new("a recording".into());
    profile.learn(recorder.finish(), |_, _| true, true);
    Ok(profile)
}

/// When the file of this event was used, if nothing before has told of the file: of a mapped one that may be before it was
/// seen.
pub fn first_use_ns(starts: &mut Starts, event: &Event) -> u64 {
    let (process, at_ns) = (event.process.into(), event.at_ns);
    match event.what {
        What::Begins { .. } => starts.begins(process, at_ns),
        What::Ends => starts.ends(process),
        What::Read { origin: Origin::Pages, .. } => {
            return starts.of_mapped(process, at_ns).unwrap_or(at_ns);
        }
        What::Touch { .. } | What::Read { .. } => starts.acts(process, at_ns),
        What::Named { .. } | What::Close { .. } => {}
    }
    at_ns
}

fn path_of(event: &Event) -> Option<u32> {
    match event.what {
        What::Touch { path, .. } => Some(path.0),
        What::Read { file, .. } => Some(file.0),
        What::Begins { .. } | What::Ends | What::Named { .. } | What::Close { .. } => None,
    }
}
