//! The user's rules about files ([`foretell_rules`]), followed.
//!
//! A. *A file with a plan.* When a process opens it, its regions are disclosed on a stream of its own, whose reader is that
//!    process. The policy fetches no further ahead than the plan allows. A process that comes to the file otherwise (without
//!    the library, or by a mapping) counts as one that opens it, once.
//! B. *Guesses* about a file with regions or a bound are dropped: the rule says what they guess. Of a file that is read as a
//!    whole, a guess says the same and comes earlier. What a user or a program has said beside the rule stays.
//! C. *A file that is never read ahead.* Each hint about it is dropped, whoever gives it.
//!
//! D. *Going back.* Programs look at the end of a file before they read it in order (the tables of ROOT files are there).
//!    Where regions rise and a process goes on reading far behind what it has read, its plan begins anew
//!    from there ([`progress`]).
//!
//! Paths are compared as programs and hints name them, without `.`, `..` and doubled slashes. Links are not followed, since
//! that may wait for a device.
//!
//! While there are plans, programs report all names and reads, as for a recording. Rules of kind C alone cost a look for each
//! hint.
//!
//! Where a rule says so, what a program has read of a file is dropped from memory behind it, and the rest when its stream is
//! closed.
//!
//! A stream is closed when all of it is past, and with its process. If a process has very many, those opened first go: it has
//! hardly anything left to read there.

mod progress;
mod rest;

use std::collections::{HashSet, VecDeque};
use std::ffi::OsStr;
use std::mem;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use foretell_learn::recording::without_dots;
use foretell_policy::{Extent, FileId, HinterId, Order, ReaderId, Segment, StreamId};
use foretell_rules::{Access, Action, After, BackendKind, Plan, REQUEST_MAX_BYTES, Region, Rules};

use self::progress::{Past, Progress};
use self::rest::rest;
use super::Session;
use super::waiting::Expected;
use crate::lineage::ProcessId;
use crate::reads::BLOCK_BYTES;
use crate::report::RuleReport;
use crate::source::{Certainty, Disclosure};
use crate::sources::Origin;

/// Hinter numbers of rules begin here, one for each process.
const FIRST_RULED: u64 = 1 << 50;

/// Streams of files at a time.
const STREAMS_MAX: usize = 256;

/// Files that a turn takes in. Opens beyond that make no hints.
const OPENED_MAX: usize = 4096;

/// Data that was read is let go, where a rule says so, in parts of at least so many blocks: 1 MiB.
const LET_GO_MIN_BLOCKS: u64 = (1 << 20) / BLOCK_BYTES;

/// Files of processes that are remembered as come to without an open.
const MET_MAX: usize = 1 << 16;

/// See the [module](self).
pub(super) struct Ruled {
    rules: Rules,
    has_plans: bool,
    /// Files that were opened in this turn.
    opened: Vec<Opened>,
    /// Files that are read ahead, those opened last behind.
    streams: VecDeque<Live>,
    /// D: files whose streams are closed.
    past: Past<Opened>,
    /// D: whether a process has gone back.
    has_gone_back: bool,
    /// Files that processes have come to without an open.
    met: HashSet<(ProcessId, FileId)>,
    counts: RuleReport,
}

struct Opened {
    process: ProcessId,
    path: Box<[u8]>,
    file: FileId,
    size_bytes: Option<u64>,
}

struct Live {
    opened: Opened,
    stream: StreamId,
    lets_go: Option<LetsGo>,
    /// `None` if its regions do not rise.
    progress: Option<Progress>,
}

impl Live {
    fn is_of(&self, process: ProcessId, file: FileId) -> bool {
        self.opened.is_of(process, file)
    }
}

impl Opened {
    fn is_of(&self, process: ProcessId, file: FileId) -> bool {
        (self.process, self.file) == (process, file)
    }
}

/// A file of which data is let go after it was read.
struct LetsGo {
    path: PathBuf,
    /// The first block that is left.
    from: u64,
    /// The blocks of the file, if that is known.
    blocks: Option<u64>,
}

impl Ruled {
    pub(super) fn new(rules: Rules) -> Self {
        let has_plans = rules.rules().iter().any(|rule| rule.action != Action::Never);
        Ruled {
            rules,
            has_plans,
            opened: Vec::new(),
            streams: VecDeque::new(),
            past: Past::default(),
            has_gone_back: false,
            met: HashSet::new(),
            counts: RuleReport::default(),
        }
    }

    /// Whether programs are to report what they open and read.
    pub(super) fn has_plans(&self) -> bool {
        self.has_plans
    }

    /// A process has opened a file. `path` is absolute and plain.
    pub(super) fn opened(
        &mut self,
        ReaderId(process): ReaderId,
        path: &[u8],
        (file, size_bytes): (FileId, Option<u64>),
    ) {
        if self.opened.len() < OPENED_MAX
            && self.plan(path).is_some()
            && !self.streams.iter().any(|live| live.is_of(process, file))
        {
            self.opened.push(Opened { process, path: path.into(), file, size_bytes });
        }
    }

    /// A process was seen to read a file, and perhaps not to open it.
    pub(super) fn met(&mut self, process: ReaderId, path: &[u8], file: FileId) {
        if self.plan(path).is_some()
            && self.met.len() < MET_MAX
            && self.met.insert((process.0, file))
        {
            self.opened(process, path, (file, None));
        }
    }

    /// D: a process has read a part of a file.
    pub(super) fn has_read(&mut self, process: ReaderId, file: FileId, part: (u64, u64)) {
        let live = self.streams.iter_mut().find(|live| live.is_of(process.0, file));
        let progress = match live {
            Some(live) => live.progress.as_mut(),
            None => self.past.find(|opened| opened.is_of(process.0, file)),
        };
        if let Some(progress) = progress {
            self.has_gone_back |= progress.read(part.0, part.1);
        }
    }

    fn plan(&self, path: &[u8]) -> Option<&Plan> {
        match &self.rules.find(path)?.action {
            Action::Read(plan) => Some(plan),
            Action::Never => None,
        }
    }

    /// B, C: whether a hint about the file at `path` is dropped.
    fn drops(&mut self, path: &Path, origin: Origin) -> bool {
        let plain = without_dots(path.as_os_str().as_bytes());
        let drops = match self.rules.find(&plain).map(|rule| &rule.action) {
            Some(Action::Never) => true,
            Some(Action::Read(plan)) => origin.is_guess() && !is_plain(plan),
            None => false,
        };
        self.counts.dropped += u64::from(drops);
        drops
    }

    /// What became of the rules.
    pub(super) fn report(&self) -> RuleReport {
        self.counts
    }
}

/// Whether a plan says no more than a guess: the whole file, in order.
fn is_plain(plan: &Plan) -> bool {
    plan.ahead_bytes.is_none()
        && plan.request_bytes.is_none()
        && (plan.regions.is_empty() || plan.regions == [Region::FILE])
}

/// Whether each region of a plan begins behind the one before it.
fn rises(plan: &Plan) -> bool {
    plan.regions.is_sorted_by_key(|region| region.offset_bytes)
}

/// The hints of a plan from a byte on, in the order of its regions. Neighbours in order share one, so that the file is looked
/// up once for them.
fn hints(plan: &Plan, size_bytes: Option<u64>, from: u64) -> Vec<(Extent, Order)> {
    let whole = [Region::FILE];
    let regions = if plan.regions.is_empty() { &whole[..] } else { &plan.regions };
    let (mut hints, mut in_order) = (Vec::new(), Vec::new());
    let end = size_bytes.unwrap_or(u64::MAX);
    for region in regions.iter().filter_map(|region| rest(region, from)) {
        let length_bytes = region.length_bytes.unwrap_or(end.saturating_sub(region.offset_bytes));
        let segment = Segment { offset_bytes: region.offset_bytes, length_bytes };
        let other = match region.access {
            _ if region.offset_bytes >= end => continue,
            Access::Sequential => {
                in_order.push(segment);
                continue;
            }
            Access::Random => continue,
            Access::Whole => (Extent::Segments([segment].into()), Order::Any),
            Access::Strided { length_bytes, stride_bytes, count } => {
                let first = Segment { length_bytes, ..segment };
                let parts = (end - region.offset_bytes).div_ceil(stride_bytes);
                let count = count.unwrap_or(u64::MAX).min(parts);
                (Extent::Strided { first, stride_bytes, count }, Order::Given)
            }
        };
        hints.extend(segments(&mut in_order));
        hints.push(other);
    }
    hints.extend(segments(&mut in_order));
    hints
}

/// What is let go of a file, if its plan says so. Regions that do not rise are all kept: nobody knows what was read.
fn lets_go(plan: &Plan, path: &[u8], size_bytes: Option<u64>) -> Option<LetsGo> {
    (plan.after == After::Release && rises(plan)).then(|| LetsGo {
        path: PathBuf::from(OsStr::from_bytes(path)),
        from: 0,
        blocks: size_bytes.map(|bytes| bytes.div_ceil(BLOCK_BYTES)),
    })
}

fn segments(in_order: &mut Vec<Segment>) -> Option<(Extent, Order)> {
    let segments = mem::take(in_order);
    (!segments.is_empty()).then(|| (Extent::Segments(segments.into()), Order::Given))
}

impl Session {
    /// A: discloses the files that were opened, and closes the streams of those that were read.
    pub(super) fn take_ruled(&mut self) {
        let Some(ruled) = &mut self.accesses.rules else { return };
        if ruled.opened.is_empty() && ruled.streams.is_empty() && !ruled.has_gone_back {
            return;
        }
        let opened = mem::take(&mut ruled.opened);
        let has_gone_back = mem::take(&mut ruled.has_gone_back);
        self.let_go_of_what_was_read();
        let past = self.close_ruled(|session, live| session.policy.is_past(live.stream));
        if let Some(ruled) = &mut self.accesses.rules {
            let files = past.into_iter().filter_map(|(opened, progress)| Some((opened, progress?)));
            files.for_each(|(opened, progress)| ruled.past.keep(opened, progress));
        }
        if has_gone_back {
            self.begin_anew();
        }
        for opened in opened {
            let Some(ruled) = &mut self.accesses.rules else { return };
            let Opened { process, file, .. } = opened;
            ruled.past.forget(|past| past.is_of(process, file));
            let is_ours = ruled.streams.iter().any(|live| live.opened.file == file);
            // What the user or the program itself has said of the file is more precise.
            if ruled.streams.iter().any(|live| live.is_of(process, file))
                || (self.policy.wants(file) && !is_ours)
            {
                continue;
            }
            let is_disclosed = self.disclose_ruled(opened, 0, Progress::default());
            if let Some(ruled) = &mut self.accesses.rules {
                ruled.counts.files += u64::from(is_disclosed);
            }
        }
    }

    /// D: begins the plans of processes that have gone back anew.
    fn begin_anew(&mut self) {
        let Some(ruled) = &mut self.accesses.rules else { return };
        let anew = |live: &Live| live.progress.and_then(Progress::anew);
        let (gone, kept) =
            mem::take(&mut ruled.streams).into_iter().partition(|live| anew(live).is_some());
        ruled.streams = kept;
        let (gone, past): (VecDeque<Live>, _) = (gone, ruled.past.take_anew());
        for (opened, (from, progress)) in past {
            self.disclose_ruled(opened, from, progress);
        }
        for live in gone {
            let Some((from, progress)) = anew(&live) else { continue };
            let opened = self.close_stream_of_rule(Live { lets_go: None, ..live });
            self.disclose_ruled(opened, from, progress);
        }
    }

    /// Discloses a file from a byte on. Whether there was anything to disclose.
    fn disclose_ruled(&mut self, opened: Opened, from: u64, progress: Progress) -> bool {
        let Opened { process, ref path, file, size_bytes } = opened;
        let Some(ruled) = &self.accesses.rules else { return false };
        let Some(plan) = ruled.plan(path) else { return false };
        let hints = hints(plan, size_bytes, from);
        let (ahead_bytes, request_bytes) = (plan.ahead_bytes, plan.request_bytes);
        let lets_go = lets_go(plan, path, size_bytes);
        let progress = rises(plan).then_some(progress);
        let (hinter, now) = (HinterId(FIRST_RULED + process), self.now());
        if hints.is_empty() || !self.hears(hinter) {
            return false;
        }
        let stream = self.policy.open_stream(now, hinter, Some(ReaderId(process)));
        self.policy.set_source(stream, Origin::Rules.id());
        self.policy.expect_gaps(stream);
        ahead_bytes.into_iter().for_each(|bytes| self.policy.limit_ahead(stream, bytes));
        let request_bytes = request_bytes.map(|bytes| bytes.min(REQUEST_MAX_BYTES));
        request_bytes.into_iter().for_each(|bytes| self.policy.set_cluster(stream, bytes));
        self.streams += 1;
        let path = Path::new(OsStr::from_bytes(path));
        for (extent, order) in hints {
            let certainty = Certainty::File;
            let path = path.to_owned();
            let disclosure = Disclosure { path, extent, repeats: 1, order, certainty };
            self.disclose_file(stream, disclosure, Expected::of(file, 0));
        }
        let Some(ruled) = &mut self.accesses.rules else { return false };
        ruled.streams.push_back(Live { opened, stream, lets_go, progress });
        if ruled.streams.len() > STREAMS_MAX {
            let oldest = ruled.streams.pop_front();
            oldest.into_iter().for_each(|live| drop(self.close_stream_of_rule(live)));
        }
        true
    }

    /// Closes the streams of files for which `closes` holds, and returns these.
    fn close_ruled(
        &mut self,
        closes: impl Fn(&Session, &Live) -> bool,
    ) -> Vec<(Opened, Option<Progress>)> {
        let Some(ruled) = &mut self.accesses.rules else { return Vec::new() };
        let (gone, kept) = mem::take(&mut ruled.streams)
            .into_iter()
            .partition::<VecDeque<Live>, _>(|live| closes(self, live));
        if let Some(ruled) = &mut self.accesses.rules {
            ruled.streams = kept;
        }
        let close = |live: Live| (live.progress, self.close_stream_of_rule(live));
        gone.into_iter().map(close).map(|(progress, opened)| (opened, progress)).collect()
    }

    fn close_stream_of_rule(&mut self, mut live: Live) -> Opened {
        self.let_go(&mut live, 1);
        self.streams -= 1;
        self.policy.close(self.now(), live.stream);
        live.opened
    }

    /// Has the kernel drop what programs have read of files whose rules say so.
    fn let_go_of_what_was_read(&mut self) {
        let Some(ruled) = &mut self.accesses.rules else { return };
        if ruled.streams.iter().all(|live| live.lets_go.is_none()) {
            return;
        }
        let mut streams = mem::take(&mut ruled.streams);
        streams.iter_mut().for_each(|live| self.let_go(live, LET_GO_MIN_BLOCKS));
        if let Some(ruled) = &mut self.accesses.rules {
            ruled.streams = streams;
        }
    }

    /// Lets go of what was read of one file, if these are at least so many blocks.
    fn let_go(&mut self, live: &mut Live, least: u64) {
        let Some(lets_go) = &mut live.lets_go else { return };
        let end = match self.policy.expected(live.stream) {
            Some((next, _)) if next.file == live.opened.file => Some(next.index),
            Some(_) => None,
            None => lets_go.blocks.filter(|_| self.policy.is_past(live.stream)),
        };
        // The process may follow another stream: a guess about the file that says the same.
        let in_order = live.progress.map(|progress| progress.in_order_bytes() / BLOCK_BYTES);
        let end = end.max(in_order);
        let Some(end) = end.filter(|&end| end >= lets_go.from + least) else { return };
        let (first, path) = (mem::replace(&mut lets_go.from, end), lets_go.path.clone());
        let device = self.mounts.device_of(&path);
        self.driver.let_go(device, (live.opened.file, path), first, end);
    }

    /// Forgets a process that has ended.
    pub(super) fn end_ruled(&mut self, ReaderId(process): ReaderId) {
        let Some(ruled) = &mut self.accesses.rules else { return };
        ruled.opened.retain(|opened| opened.process != process);
        ruled.met.retain(|&(other, _)| other != process);
        ruled.past.forget(|opened| opened.process == process);
        self.close_ruled(|_, live| live.opened.process == process);
    }

    /// Whether a rule keeps a hint from the policy. A folder that may be gone through has no data itself: its files are asked
    /// about one by one.
    pub(super) fn rules_drop(&mut self, path: &Path, certainty: Certainty, origin: Origin) -> bool {
        let is_tree = matches!(certainty, Certainty::MaybeTree(_) | Certainty::MaybeFolder(_));
        !is_tree && self.rules_drop_file(path, origin)
    }

    /// The back end that a rule names for a file.
    pub(super) fn backend_of_rule(&self, path: &Path) -> Option<BackendKind> {
        let ruled = self.accesses.rules.as_ref().filter(|ruled| ruled.has_plans)?;
        let plan = ruled.plan(&without_dots(path.as_os_str().as_bytes()))?;
        Some(plan.backend).filter(|&backend| backend != BackendKind::Auto)
    }

    /// As [`rules_drop`](Self::rules_drop), of what is known to be a file.
    pub(super) fn rules_drop_file(&mut self, path: &Path, origin: Origin) -> bool {
        self.accesses.rules.as_mut().is_some_and(|ruled| ruled.drops(path, origin))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::session::tests::session;

    const PROCESS: ReaderId = ReaderId(7);
    const FILE: FileId = FileId(1);

    fn ruled(text: &str) -> Ruled {
        Ruled::new(Rules::parse(text.as_bytes(), None).expect("good rules"))
    }

    fn plan_hints(regions: &str, size_bytes: Option<u64>) -> Vec<(Extent, Order)> {
        let ruled = ruled(&format!("[[rule]]\npath = '/d'\nregion = [{regions}]\n"));
        hints(ruled.plan(b"/d").expect("a plan"), size_bytes, 0)
    }

    fn segments(ranges: &[(u64, u64)]) -> Extent {
        let segment = |&(offset_bytes, length_bytes)| Segment { offset_bytes, length_bytes };
        Extent::Segments(ranges.iter().map(segment).collect())
    }

    #[test]
    fn regions_are_hints_in_their_order_and_end_with_the_file() {
        let text = "{length = 5}, {offset = 9, length = 5}, {offset = 20, length = 9, pattern = 'whole'}, \
                    {offset = 40, pattern = 'random'}, {offset = 30}, {offset = 100}";
        let all = [
            (segments(&[(0, 5), (9, 5)]), Order::Given),
            (segments(&[(20, 9)]), Order::Any),
            (segments(&[(30, 20)]), Order::Given),
        ];
        assert_eq!(plan_hints(text, Some(50)), all);
        assert_eq!(plan_hints("", Some(50)), [(segments(&[(0, 50)]), Order::Given)]);
        assert_eq!(plan_hints("", None), [(segments(&[(0, u64::MAX)]), Order::Given)]);
        assert_eq!(plan_hints("{pattern = 'random'}", Some(50)), []);
        assert_eq!(plan_hints("", Some(0)), []);
    }

    #[test]
    fn a_stride_has_as_many_parts_as_the_file() {
        let count = |size_bytes, count: &str| {
            let text =
                format!("{{offset = 10, length = 1, stride = 20, pattern = 'strided'{count}}}");
            match plan_hints(&text, size_bytes)[..] {
                [(Extent::Strided { first, stride_bytes: 20, count }, Order::Given)] => {
                    assert_eq!((first.offset_bytes, first.length_bytes), (10, 1));
                    count
                }
                ref other => panic!("{other:?}"),
            }
        };
        assert_eq!(
            [count(Some(30), ""), count(Some(31), ""), count(Some(91), ", count = 2")],
            [1, 2, 2]
        );
        assert_eq!(count(None, ", count = 9"), 9);
    }

    #[test]
    fn guesses_about_a_file_with_regions_are_dropped_and_all_hints_about_one_that_is_left_alone() {
        let mut ruled = ruled(
            "[[rule]]\npath = '/plain'\n[[rule]]\npath = '/parts'\nregion = [{length = 1}]\n\
             [[rule]]\npath = '/far'\nahead = 1\n[[rule]]\npath = '/never'\nnever = true\n",
        );
        let mut drops = |path: &str| {
            Origin::ALL.map(|origin| ruled.drops(Path::new(path), origin)).map(u8::from)
        };
        let guesses = Origin::ALL.map(|origin| u8::from(origin.is_guess()));
        assert_eq!([drops("/other"), drops("/plain")], [[0; Origin::ALL.len()]; 2]);
        assert_eq!([drops("/parts"), drops("/far"), drops("//x/.././far")], [guesses; 3]);
        assert_eq!(drops("/never"), [1; Origin::ALL.len()]);
        assert!(ruled.report().dropped > 0 && ruled.report().files == 0);
    }

    #[test]
    fn what_is_left_of_regions_is_hinted() {
        let rest = |regions: &str, from| {
            let ruled = ruled(&format!("[[rule]]\npath = '/d'\nregion = [{regions}]\n"));
            hints(ruled.plan(b"/d").expect("a plan"), Some(100), from)
        };
        let in_order = |ranges: &[(u64, u64)]| [(segments(ranges), Order::Given)];
        assert_eq!(rest("{length = 5}, {offset = 9, length = 5}", 11), in_order(&[(11, 3)]));
        assert_eq!(rest("{length = 5}, {offset = 9}", 0), in_order(&[(0, 5), (9, 91)]));
        assert_eq!(rest("{length = 5}", 5), []);
        let strided = |offset_bytes, count| {
            let first = Segment { offset_bytes, length_bytes: 2 };
            [(Extent::Strided { first, stride_bytes: 10, count }, Order::Given)]
        };
        let parts = "{offset = 10, length = 2, stride = 10, pattern = 'strided', count = 4}";
        assert_eq!(rest(parts, 10), strided(10, 4));
        assert_eq!(rest(parts, 11), strided(20, 3));
        assert_eq!(rest(parts, 41), []);
    }

    #[test]
    fn a_plan_begins_anew_where_its_process_has_gone_back() {
        let mut session = session();
        session.accesses.rules = Some(ruled("[[rule]]\npath = '/no/**'\nrequest = '1MiB'\n"));
        let rules = session.accesses.rules.as_mut().expect("rules");
        rules.opened(PROCESS, b"/no/such/file", (FILE, Some(1 << 30)));
        session.take_ruled();
        let stream = |session: &Session| {
            let rules = session.accesses.rules.as_ref().expect("rules");
            assert_eq!((rules.streams.len(), session.streams, rules.counts.files), (1, 1, 1));
            rules.streams[0].stream
        };
        let first = stream(&session);
        for mib in [0, 1000, 2, 3, 4, 5, 6, 7, 8, 9] {
            assert_eq!(stream(&session), first);
            let rules = session.accesses.rules.as_mut().expect("rules");
            rules.has_read(PROCESS, FILE, (mib << 20, 4096));
            rules.has_read(ReaderId(8), FILE, (0, 4096));
            session.take_ruled();
        }
        assert_ne!(stream(&session), first);
    }

    fn opened(session: &mut Session, process: ReaderId, file: FileId) {
        let rules = session.accesses.rules.as_mut().expect("rules");
        rules.opened(process, b"/no/such/file", (file, Some(1 << 20)));
        session.take_ruled();
    }

    #[test]
    fn a_file_has_one_stream_for_each_process_until_that_ends() {
        let mut session = session();
        session.accesses.rules = Some(ruled("[[rule]]\npath = '/no/**'\n"));
        opened(&mut session, PROCESS, FILE);
        opened(&mut session, PROCESS, FILE);
        assert_eq!((session.streams, session.waiting.names()), (1, 1));
        opened(&mut session, ReaderId(8), FILE);
        opened(&mut session, PROCESS, FileId(2));
        assert_eq!((session.streams, session.report_of_rules().files), (3, 3));
        session.end_ruled(PROCESS);
        session.take_dropped_names();
        assert_eq!((session.streams, session.waiting.names()), (1, 1));
        session.end_ruled(ReaderId(8));
        assert_eq!(session.streams, 0);
    }

    #[test]
    fn streams_are_bounded_and_the_oldest_goes() {
        let mut session = session();
        session.accesses.rules = Some(ruled("[[rule]]\npath = '/no/**'\n"));
        for file in 0..STREAMS_MAX as u64 + 5 {
            opened(&mut session, PROCESS, FileId(file));
        }
        let rules = session.accesses.rules.as_ref().expect("rules");
        assert_eq!((session.streams, rules.streams.len()), (STREAMS_MAX, STREAMS_MAX));
        assert_eq!(rules.streams[0].opened.file, FileId(5));
    }

    #[test]
    fn what_is_met_counts_once_and_rules_of_never_follow_nothing() {
        let mut plans = ruled("[[rule]]\npath = '/d'\n");
        for _ in 0..2 {
            plans.met(PROCESS, b"/d", FILE);
            plans.met(PROCESS, b"/other", FILE);
        }
        assert_eq!((plans.opened.len(), plans.has_plans()), (1, true));
        assert!(!ruled("[[rule]]\npath = '/d'\nnever = true\n").has_plans());
    }

    impl Session {
        fn report_of_rules(&self) -> RuleReport {
            self.accesses.rules.as_ref().map(Ruled::report).unwrap_or_default()
        }
    }
}
