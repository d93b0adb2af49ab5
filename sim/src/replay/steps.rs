//! Turns a recording into the steps of programs.

use std::collections::HashSet;

use foretell_policy::{Block, FileId, Hint, NameId, Nanos, Segment, Target};

use super::activity::{Act, Activity, Deed};
use super::links::Reader;
use super::{DEVICE, Disclosed, Recorded, ReplaySpec};
use crate::machine::program::{Program, Step};

/// Segments of one hint at most.
const SEGMENTS_MAX: usize = 4096;

/// A read of the recording.
#[derive(Clone, Copy, Debug)]
struct Read {
    file: FileId,
    segment: Segment,
}

/// The acts of `reader`, as a program.
pub(super) fn program(spec: &ReplaySpec, recorded: &Recorded, reader: &Reader) -> Program {
    let (activity, links) = (recorded.activity, &recorded.links);
    let read = |&number: &usize| match activity.acts[number].deed {
        Deed::Read { file, offset_bytes, length_bytes } => {
            Some(Read { file, segment: Segment { offset_bytes, length_bytes } })
        }
        _ => None,
    };
    let reads: Vec<Read> = reader.own.iter().filter_map(read).collect();
    let told = || reader.told().iter().filter_map(read);
    let names = spec.reads_inodes(activity);
    let by_name =
        |file: FileId| if names { Target::Name(NameId(file.0)) } else { by_number(activity, file) };
    // The first hint for a file looks up its name; later ones need no name.
    let mut named = HashSet::new();
    let mut by_name_once = |file: FileId| match named.insert(file) {
        true => by_name(file),
        false => by_number(activity, file),
    };
    let first = reader.own[0];
    let mut steps: Vec<Step> = links.fork_of(first).map(Step::Await).into_iter().collect();
    steps.extend(match spec.disclosed {
        Disclosed::None | Disclosed::Recorded => Vec::new(),
        Disclosed::All => hints(&told().collect::<Vec<Read>>(), by_name),
        Disclosed::Files => {
            let hint = |file| Hint::whole_file(by_name(file), DEVICE);
            let told = reader.told().iter().map(|&number| activity.acts[number].deed);
            files_opened(told).map(|file| Step::Hint(hint(file))).collect()
        }
        Disclosed::Ahead(ahead) => {
            let first = &reads[..reads.len().min(ahead as usize)];
            hints(first, &mut by_name_once)
        }
    });
    let mut number = 0usize;
    for Worked { act, before, within } in with_work(spec, recorded, reader) {
        let (at, act) = (act, &activity.acts[act]);
        steps.extend(links.fork_of(at).filter(|_| at > first).map(Step::Await));
        let work = |work: Nanos| {
            let work = spec.scaled(work);
            (work > Nanos::ZERO).then_some(Step::Compute(work))
        };
        match links.begun(at) {
            Some(mark) => {
                steps.extend(work(before));
                steps.push(Step::Mark(mark));
                steps.extend(work(within));
            }
            None => steps.extend(work(Nanos(before.0.saturating_add(within.0)))),
        }
        match act.deed {
            Deed::Open(file) => steps.push(Step::Open(file, DEVICE)),
            Deed::Look(file) => steps.push(Step::Look(file, DEVICE)),
            Deed::Read { offset_bytes, length_bytes, .. } => {
                if let Disclosed::Ahead(ahead) = spec.disclosed
                    && let Some(next) = reads.get(number.saturating_add(ahead as usize))
                {
                    steps.extend(hints(&[*next], &mut by_name_once));
                }
                number += 1;
                if let Some((file, blocks)) = act.deed.range_read(spec.block_bytes) {
                    let first = Block { file, index: blocks.start };
                    let blocks = blocks.end - blocks.start;
                    let bytes = offset_bytes..offset_bytes.saturating_add(length_bytes);
                    steps.push(Step::Call { first, blocks, bytes, device: DEVICE });
                }
            }
            Deed::Disclose { file, offset_bytes, length_bytes } => {
                if spec.disclosed == Disclosed::Recorded {
                    let to_end = activity.size_bytes(file).saturating_sub(offset_bytes);
                    let length_bytes = if length_bytes == 0 { to_end } else { length_bytes };
                    let segment = Segment { offset_bytes, length_bytes };
                    let read = (length_bytes > 0).then_some(Read { file, segment });
                    steps.extend(hints(read.as_slice(), |file| by_number(activity, file)));
                }
            }
            Deed::Fork { .. } | Deed::Wait(_) | Deed::Nothing | Deed::Other => {}
        }
        steps.extend(links.awaited_by(at).map(Step::Await));
        steps.extend(links.done(at).map(Step::Mark));
    }
    let start = start(spec, activity, reader);
    let name = reader.id.0.to_string();
    Program::new(name, reader.id, Box::new(steps.into_iter())).starting_at(start)
}

/// The files that are read, in the order of their first reads. A file that is opened and read again is
/// repeated, like an argument that is given twice.
fn files_opened(deeds: impl Iterator<Item = Deed>) -> impl Iterator<Item = FileId> {
    // Files read since their last open.
    let mut named = HashSet::new();
    deeds.filter_map(move |deed| match deed {
        Deed::Open(file) => {
            named.remove(&file);
            None
        }
        Deed::Read { file, .. } => named.insert(file).then_some(file),
        _ => None,
    })
}

/// The start of `reader`, or, if another one creates it, some moment before it.
fn start(spec: &ReplaySpec, activity: &Activity, reader: &Reader) -> Nanos {
    spec.scaled(if activity.has_durations { reader.start } else { Nanos::ZERO })
}

/// The number of an act, the work before it, and the work within it, on the recording's machine.
struct Worked {
    act: usize,
    before: Nanos,
    within: Nanos,
}

/// The acts of `reader`, each with its work.
fn with_work<'a>(
    spec: &'a ReplaySpec,
    recorded: &'a Recorded,
    reader: &'a Reader,
) -> impl Iterator<Item = Worked> + 'a {
    let (activity, links) = (recorded.activity, &recorded.links);
    let mut free_since = None;
    reader.own.iter().map(move |&number| {
        let act: &Act = &activity.acts[number];
        if links.fork_of(number).is_some() {
            free_since = None;
        }
        let since = free_since.unwrap_or(act.began);
        let before = match activity.has_durations {
            true => act.began.saturating_sub(since).saturating_sub(spec.work.overhead),
            false if matches!(act.deed, Deed::Read { .. }) => spec.work.think,
            false => Nanos::ZERO,
        };
        let is_own = match act.deed {
            Deed::Open(_) | Deed::Look(_) | Deed::Read { .. } | Deed::Nothing => false,
            // Advice takes the recorded time, whether or not it is used here.
            Deed::Disclose { .. } | Deed::Other => true,
            Deed::Fork { .. } | Deed::Wait(_) => !links.is_wait(number),
        };
        let within = if is_own && activity.has_durations { act.took } else { Nanos::ZERO };
        free_since = Some(since.max(Nanos(act.began.0.saturating_add(act.took.0))));
        Worked { act: number, before, within }
    })
}

/// An upper bound of a run's work, in nanoseconds: the last program's start, and then the work of all programs.
pub(super) fn work_ns_max(spec: &ReplaySpec, recorded: &Recorded) -> f64 {
    let [hit, driver, open] = [spec.work.hit, spec.work.driver, spec.work.open];
    let (read, open) = (spec.scaled(hit).0 + spec.scaled(driver).0, spec.scaled(open).0);
    let (mut last_start, mut work_ns) = (Nanos::ZERO, 0.0);
    for reader in &recorded.readers {
        last_start = last_start.max(start(spec, recorded.activity, reader));
        for Worked { act, before, within } in with_work(spec, recorded, reader) {
            let deed = recorded.activity.acts[act].deed;
            let of_model = match deed {
                Deed::Open(_) | Deed::Look(_) => open as f64,
                Deed::Read { .. } => {
                    let blocks = deed.range_read(spec.block_bytes).map(|(_, blocks)| blocks);
                    blocks.map_or(0, |blocks| blocks.end - blocks.start) as f64 * read as f64
                }
                Deed::Disclose { .. }
                | Deed::Fork { .. }
                | Deed::Wait(_)
                | Deed::Nothing
                | Deed::Other => 0.0,
            };
            work_ns += spec.scaled(Nanos(before.0.saturating_add(within.0))).0 as f64 + of_model;
        }
    }
    last_start.0 as f64 + work_ns
}

fn by_number(activity: &Activity, file: FileId) -> Target {
    Target::File { file, size_bytes: activity.size_bytes(file) }
}

/// The disclosures of these reads; consecutive reads of one file share one.
fn hints(reads: &[Read], mut target: impl FnMut(FileId) -> Target) -> Vec<Step> {
    let of_one_file = reads.chunk_by(|one, next| one.file == next.file);
    let parts = of_one_file.flat_map(|reads| reads.chunks(SEGMENTS_MAX));
    let hint = |reads: &[Read]| {
        let mut segments: Vec<Segment> = Vec::new();
        for read in reads {
            match segments.last_mut() {
                Some(last)
                    if last.offset_bytes + last.length_bytes == read.segment.offset_bytes =>
                {
                    last.length_bytes += read.segment.length_bytes;
                }
                _ => segments.push(read.segment),
            }
        }
        Step::Hint(Hint::segments(target(reads[0].file), DEVICE, &segments))
    };
    parts.map(hint).collect()
}
