//! Sums up a recording, event by event: by file, by program, and by what sources could have known.
//!
//! A read or a call about a name has *waited* if it took longer than memory would: 50 µs, and the time to copy its bytes. Only
//! such calls count as stall, with their whole time.
//!
//! Pure. Cost: some 100 ns an event. Memory: some 300 bytes a file, and its points.

use std::collections::HashMap;
use std::sync::Arc;

use foretell_manager::learn::recording::reader::Ending;
use foretell_manager::learn::recording::replay::first_use_ns;
use foretell_manager::learn::recording::{Event, Meta, Origin, PathId, What, is_named};
use foretell_manager::learn::starts::Starts;
use foretell_manager::learn::steps::Acts;
use foretell_protocol::stall_threshold_ns;

use super::points::{Point, Points};
use super::sources::{Earlier, FORETELL, KERNEL, KnownBy, MAPPED, NAMES, Sources};

/// A part of a mapped file goes on if it begins so soon after the last one: the kernel maps 64 KiB around a page.
const MAPPED_NEAR_BYTES: u64 = 128 << 10;

/// Bins of sizes and of gaps: powers of two, in bytes.
pub(super) const BINS: usize = 44;

/// Spans of time in which bytes and stall are summed up. When the run is longer, neighbours are joined.
pub(super) const SPANS_MAX: usize = 512;

/// Reads, their bytes, and the time for which they have waited.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Sum {
    pub(super) reads: u64,
    pub(super) bytes: u64,
    pub(super) stall_ns: u64,
}

impl Sum {
    pub(super) fn add(&mut self, reads: u64, bytes: u64, stall_ns: u64) {
        self.reads = self.reads.saturating_add(reads);
        self.bytes = self.bytes.saturating_add(bytes);
        self.stall_ns = self.stall_ns.saturating_add(stall_ns);
    }
}

/// What is known of a file, or of a name that is none.
#[derive(Clone, Debug, Default)]
pub(super) struct FileSum {
    pub(super) sum: Sum,
    /// The parts of the sum that sources could have known: of all together, and of each of [`NAMES`].
    pub(super) known: Sum,
    pub(super) known_ns: [u64; NAMES.len()],
    /// Reads that began where the last one ended, and those that began before that.
    pub(super) in_order: u64,
    pub(super) backwards: u64,
    pub(super) opens: u64,
    pub(super) looks: u64,
    pub(super) is_missing: bool,
    pub(super) is_mapped: bool,
    pub(super) is_seen_outside: bool,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
    pub(super) end_bytes: u64,
    pub(super) points: Points,
    /// Which sources know of it by its name; `None` before it is touched.
    by_name: Option<KnownBy>,
    last_end: u64,
    has_read: bool,
}

/// What is known of a program: all processes of one name.
#[derive(Clone, Debug, Default)]
pub(super) struct ProgramSum {
    pub(super) name: String,
    pub(super) processes: u64,
    pub(super) sum: Sum,
    pub(super) names: u64,
    pub(super) name_stall_ns: u64,
    pub(super) first_ns: u64,
    pub(super) last_ns: u64,
}

/// See the [module](self).
#[derive(Debug)]
pub(super) struct Gathered {
    pub(super) meta: Meta,
    pub(super) ending: Ending,
    pub(super) elapsed_ns: u64,
    pub(super) files: Vec<FileSum>,
    pub(super) paths: Vec<Arc<[u8]>>,
    pub(super) programs: Vec<ProgramSum>,
    pub(super) reads: Sum,
    pub(super) names: Sum,
    /// By origin: calls, page tables, outside.
    pub(super) origins: [Sum; 3],
    /// By source, for reads and names together.
    pub(super) sources: [Sum; NAMES.len()],
    /// What any source of foretell could have known.
    pub(super) known: Sum,
    pub(super) sizes: [Sum; BINS],
    /// Distances from the end of the last read of the file: forwards and backwards.
    pub(super) forwards: [Sum; BINS],
    pub(super) backwards: [Sum; BINS],
    pub(super) spans: Spans,
    pub(super) has_earlier: bool,
    /// Whether the recording tells which files the command lines of started programs name.
    pub(super) tells_names: bool,
    known_by: Sources,
    starts: Starts,
    /// When the file of this event was used, if nothing has told of it before.
    first_use_ns: u64,
    of_process: HashMap<u32, usize>,
    of_name: HashMap<Arc<[u8]>, usize>,
}

/// Bytes and stall over time.
#[derive(Clone, Debug)]
pub(super) struct Spans {
    /// The length of each.
    pub(super) each_ns: u64,
    pub(super) sums: Vec<Sum>,
}

impl Spans {
    fn add(&mut self, at_ns: u64, sum: (u64, u64, u64)) {
        while at_ns / self.each_ns >= SPANS_MAX as u64 {
            self.each_ns = self.each_ns.saturating_mul(2);
            self.sums = self
                .sums
                .chunks(2)
                .map(|pair| {
                    let mut joined = Sum::default();
                    pair.iter().for_each(|one| joined.add(one.reads, one.bytes, one.stall_ns));
                    joined
                })
                .collect();
        }
        let at = (at_ns / self.each_ns) as usize;
        if at >= self.sums.len() {
            self.sums.resize(at + 1, Sum::default());
        }
        self.sums[at].add(sum.0, sum.1, sum.2);
    }
}

/// The bin of a number of bytes: the power of two that it has reached.
fn bin(bytes: u64) -> usize {
    (u64::BITS - bytes.leading_zeros()).min(BINS as u32 - 1) as usize
}

impl Gathered {
    pub(super) fn new(meta: &Meta, earlier: Option<Earlier>) -> Self {
        Gathered {
            meta: meta.clone(),
            ending: Ending::Ahead,
            elapsed_ns: 0,
            files: Vec::new(),
            paths: Vec::new(),
            programs: Vec::new(),
            reads: Sum::default(),
            names: Sum::default(),
            origins: Default::default(),
            sources: Default::default(),
            known: Sum::default(),
            sizes: [Sum::default(); BINS],
            forwards: [Sum::default(); BINS],
            backwards: [Sum::default(); BINS],
            spans: Spans { each_ns: 100_000, sums: Vec::new() },
            has_earlier: earlier.is_some(),
            tells_names: true,
            known_by: Sources::new(meta, earlier),
            starts: Starts::default(),
            first_use_ns: 0,
            of_process: HashMap::new(),
            of_name: HashMap::new(),
        }
    }

    /// Takes in an event; `paths`: those that are known by now.
    pub(super) fn take(&mut self, event: &Event, paths: &[Arc<[u8]>]) {
        if self.paths.len() < paths.len() {
            self.paths.extend_from_slice(&paths[self.paths.len()..]);
            self.files.resize_with(paths.len(), FileSum::default);
        }
        self.first_use_ns = first_use_ns(&mut self.starts, event);
        let ended_ns = event.at_ns.saturating_add(event.took_ns);
        if !matches!(event.what, What::Close { .. }) {
            self.elapsed_ns = self.elapsed_ns.max(ended_ns);
        }
        match &event.what {
            What::Begins { name, .. } => {
                let program = self.program_of_name(name);
                self.programs[program].processes += 1;
                self.of_process.insert(event.process, program);
            }
            What::Ends => {
                self.of_process.remove(&event.process);
            }
            What::Close { .. } => {}
            What::Named { path } => self.known_by.named(&self.paths[path.0 as usize]),
            &What::Touch { path, acts } => self.touch(event, path, acts),
            &What::Read { file, offset_bytes, length_bytes, origin } => {
                let end = offset_bytes.saturating_add(length_bytes);
                self.read(event, file, offset_bytes..end, origin);
            }
        }
    }

    pub(super) fn end(&mut self, ending: Ending) {
        self.ending = ending;
    }

    fn program_of_name(&mut self, name: &Arc<[u8]>) -> usize {
        if let Some(&known) = self.of_name.get(name) {
            return known;
        }
        let name_text = String::from_utf8_lossy(name).into_owned();
        self.programs.push(ProgramSum {
            name: name_text,
            first_ns: u64::MAX,
            ..ProgramSum::default()
        });
        self.of_name.insert(Arc::clone(name), self.programs.len() - 1);
        self.programs.len() - 1
    }

    fn program(&mut self, event: &Event) -> &mut ProgramSum {
        let at = match self.of_process.get(&event.process) {
            Some(&at) => at,
            // It was not seen to begin: a program outside.
            None => {
                let at = self.program_of_name(&Arc::from(&b"(seen from outside)"[..]));
                self.programs[at].processes += 1;
                self.of_process.insert(event.process, at);
                at
            }
        };
        let program = &mut self.programs[at];
        program.first_ns = program.first_ns.min(event.at_ns);
        program.last_ns = program.last_ns.max(event.at_ns.saturating_add(event.took_ns));
        program
    }

    /// Notes that the file was used, and tells which sources know of it by its name.
    fn meet(&mut self, event: &Event, id: PathId) -> KnownBy {
        let at = id.0 as usize;
        let (file, path) = (&mut self.files[at], &self.paths[at]);
        file.last_ns = file.last_ns.max(event.at_ns.saturating_add(event.took_ns));
        if let Some(known) = file.by_name {
            file.first_ns = file.first_ns.min(event.at_ns);
            return known;
        }
        file.first_ns = self.first_use_ns;
        let known = if is_named(path) { self.known_by.of_name(path) } else { 0 };
        file.by_name = Some(known);
        known
    }

    fn touch(&mut self, event: &Event, id: PathId, acts: Acts) {
        let known = self.meet(event, id);
        if acts.has(Acts::LIST) && !acts.has(Acts::FAIL) {
            self.known_by.listed(&self.paths[id.0 as usize]);
        }
        let stall_ns = if event.took_ns > stall_threshold_ns(0) { event.took_ns } else { 0 };
        let program = self.program(event);
        program.names += 1;
        program.name_stall_ns = program.name_stall_ns.saturating_add(stall_ns);
        let file = &mut self.files[id.0 as usize];
        file.opens += u64::from(acts.has(Acts::OPEN));
        file.looks += u64::from(!acts.has(Acts::OPEN));
        file.is_missing = acts.has(Acts::FAIL);
        file.sum.add(0, 0, stall_ns);
        self.names.add(1, 0, stall_ns);
        self.spans.add(event.at_ns, (0, 0, stall_ns));
        self.note_known(id, known, (0, 0, stall_ns));
    }

    fn read(&mut self, event: &Event, id: PathId, range: std::ops::Range<u64>, origin: Origin) {
        let by_name = self.meet(event, id);
        let bytes = range.end - range.start;
        let threshold_ns = if origin == Origin::Call { stall_threshold_ns(bytes) } else { 0 };
        let stall_ns = if event.took_ns > threshold_ns { event.took_ns } else { 0 };
        self.program(event).sum.add(1, bytes, stall_ns);
        let order = self.order(id, &range, origin);
        let at = id.0 as usize;
        let file = &mut self.files[at];
        file.is_mapped |= origin == Origin::Pages;
        file.is_seen_outside |= origin == Origin::Outside;
        file.end_bytes = file.end_bytes.max(range.end);
        file.sum.add(1, bytes, stall_ns);
        if bytes > 0 {
            let (began_ns, ended_ns) = (event.at_ns, event.at_ns.saturating_add(event.took_ns));
            let (start, end) = (range.start, range.end);
            file.points.push(Point { began_ns, ended_ns, start, end, reads: 1, stall_ns });
            self.sizes[bin(bytes)].add(1, bytes, stall_ns);
        }
        self.reads.add(1, bytes, stall_ns);
        self.origins[origin as usize].add(1, bytes, stall_ns);
        self.spans.add(event.at_ns, (1, bytes, stall_ns));
        let known = order | self.known_by.of_read(by_name, &self.paths[at], range.start);
        self.note_known(id, known, (1, bytes, stall_ns));
    }

    /// The sources that expect this read because the last read of the file ended where it begins.
    fn order(&mut self, id: PathId, range: &std::ops::Range<u64>, origin: Origin) -> KnownBy {
        let file = &mut self.files[id.0 as usize];
        let (last_end, bytes) = (file.last_end, range.end - range.start);
        let has_read = std::mem::replace(&mut file.has_read, true);
        file.last_end = range.end;
        if !has_read || bytes == 0 {
            return 0;
        }
        let sum = (1, bytes, 0);
        if range.start >= last_end {
            file.in_order += u64::from(range.start == last_end);
            self.forwards[bin(range.start - last_end)].add(sum.0, sum.1, sum.2);
        } else {
            file.backwards += 1;
            self.backwards[bin(last_end - range.start)].add(sum.0, sum.1, sum.2);
        }
        let near = range.start.checked_sub(last_end);
        match origin {
            Origin::Pages if near.is_some_and(|gap| gap <= MAPPED_NEAR_BYTES) => MAPPED,
            Origin::Call | Origin::Outside if near == Some(0) => KERNEL,
            _ => 0,
        }
    }

    fn note_known(
        &mut self,
        id: PathId,
        known: KnownBy,
        (reads, bytes, stall_ns): (u64, u64, u64),
    ) {
        let file = &mut self.files[id.0 as usize];
        for (at, sum) in self.sources.iter_mut().enumerate() {
            if known & 1 << at != 0 {
                sum.add(reads, bytes, stall_ns);
                file.known_ns[at] = file.known_ns[at].saturating_add(stall_ns);
            }
        }
        if known & FORETELL != 0 {
            file.known.add(reads, bytes, stall_ns);
            self.known.add(reads, bytes, stall_ns);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::sources::{ARGUMENTS, EARLIER};
    use super::*;

    fn gathered(events: &[(u64, u64, What)]) -> Gathered {
        let meta = Meta {
            command: vec![b"cat"[..].into(), b"a"[..].into()],
            folder: b"/w"[..].into(),
            began_s: 0,
        };
        let paths: Vec<Arc<[u8]>> =
            [&b"/w/a"[..], b"/lib/x", b"<file 3>"].into_iter().map(Arc::from).collect();
        let mut gathered = Gathered::new(&meta, None);
        let begins = What::Begins { parent: 0, name: b"cat"[..].into() };
        let first = (0, 0, begins);
        for (at_us, took_us, what) in std::iter::once(&first).chain(events) {
            let (at_ns, took_ns) = (at_us * 1000, took_us * 1000);
            gathered.take(&Event { at_ns, took_ns, process: 3, what: what.clone() }, &paths);
        }
        gathered.end(Ending::Whole { lost: 0 });
        gathered
    }

    fn read(file: u32, offset_bytes: u64, length_bytes: u64, origin: Origin) -> What {
        What::Read { file: PathId(file), offset_bytes, length_bytes, origin }
    }

    #[test]
    fn calls_that_last_longer_than_all_time_are_summed_as_all_time() {
        let touch = || What::Touch { path: PathId(0), acts: Acts::OPEN };
        let ages = |what| (u64::MAX / 1000, u64::MAX / 1000, what);
        let size = u64::MAX;
        let gathered = gathered(&[
            ages(touch()),
            ages(touch()),
            ages(read(0, 0, size, Origin::Call)),
            ages(read(0, size, size, Origin::Pages)),
            ages(read(1, 0, size, Origin::Outside)),
        ]);
        assert!(gathered.programs[0].name_stall_ns > u64::MAX - 1000);
        let figures = super::super::figures::Figures::new(gathered, Default::default());
        assert!(serde_json::to_string(&figures).expect("figures").contains("stall_s"));
    }

    #[test]
    fn reads_are_summed_by_file_program_and_source() {
        let touch = |path| What::Touch { path: PathId(path), acts: Acts::OPEN };
        let gathered = gathered(&[
            (10, 100, touch(0)),
            (200, 1000, read(0, 0, 4096, Origin::Call)),
            (1300, 5, read(0, 4096, 4096, Origin::Call)),
            (1400, 5, read(0, 0, 0, Origin::Call)),
            (2000, 300, read(1, 0, 65536, Origin::Pages)),
            (3000, 0, read(1, 131_072, 65536, Origin::Pages)),
            (4000, 90, read(2, 5, 5, Origin::Call)),
        ]);
        let sum = |reads, bytes, stall_us: u64| Sum { reads, bytes, stall_ns: stall_us * 1000 };
        assert_eq!(gathered.files[0].sum, sum(3, 8192, 1100));
        assert_eq!((gathered.files[0].in_order, gathered.files[0].opens), (1, 1));
        assert_eq!(gathered.reads, sum(6, 8192 + 131_072 + 5, 1390));
        assert_eq!(gathered.names, sum(1, 0, 100));
        let of = |bit: KnownBy| gathered.sources[bit.trailing_zeros() as usize];
        assert_eq!(of(ARGUMENTS), sum(3, 8192, 1100));
        assert_eq!(of(EARLIER), sum(5, 8192 + 131_072, 1400));
        assert_eq!(of(MAPPED), sum(1, 65536, 0));
        assert_eq!(of(KERNEL), sum(1, 4096, 0));
        assert_eq!(gathered.programs[0].sum, gathered.reads);
        assert_eq!(gathered.elapsed_ns, 4_090_000);
        assert_eq!(gathered.sizes[bin(4096)].reads, 2);
        assert_eq!(gathered.forwards[bin(65536)].reads, 1);
    }

    #[test]
    fn spans_stay_few_however_long_the_run() {
        let events: Vec<_> =
            (0..3000).map(|at| (at * 1_000_000, 1, read(0, at * 10, 10, Origin::Call))).collect();
        let gathered = gathered(&events);
        assert!(gathered.spans.sums.len() <= SPANS_MAX);
        assert_eq!(gathered.spans.sums.iter().map(|sum| sum.reads).sum::<u64>(), 3000);
    }
}
