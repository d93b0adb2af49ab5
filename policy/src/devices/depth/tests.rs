use super::*;
use std::collections::VecDeque;

const SERVICE: u64 = 10_000_000;
const FETCHED: Purpose = Purpose::Data { fetched: true };

/// How the files lie on the disks.
#[derive(Clone, Copy)]
enum Layout {
    /// One after another, each with its data behind its inode. The arm passes `passing` of them in the time of one service.
    InOrder { passing: u64 },
    /// At random.
    Scattered,
    /// Far away: each answers without waiting for others, some after ten times as long. `at_hand`: lookups are answered at
    /// once.
    Far { at_hand: bool, seed: u64 },
}

#[derive(Clone, Copy)]
struct Request {
    file: usize,
    is_lookup: bool,
    place: u64,
    /// Its number in the order in which requests begin, and when it began.
    number: u64,
    started: u64,
    /// Its time, if that does not depend on places.
    takes: Option<u64>,
}

/// One disk of an array. It serves one request after another.
struct Disk {
    queue: VecDeque<Request>,
    under_way: Option<(u64, Request)>,
    at: u64,
    passing: u64,
    /// Whether it serves the nearest request first, or the first to arrive.
    sorts: bool,
}

impl Disk {
    fn serve(&mut self, now: u64) {
        let nearest =
            || (0..self.queue.len()).min_by_key(|&i| self.queue[i].place.abs_diff(self.at));
        let next = if self.sorts { nearest() } else { Some(0) };
        let next = next.filter(|_| self.under_way.is_none());
        let Some(request) = next.and_then(|next| self.queue.remove(next)) else { return };
        let takes = request.takes.unwrap_or_else(|| self.moves_to(request.place));
        self.under_way = Some((now + takes, request));
    }

    /// Time to move to `place`. What the arm has just passed is in the disk's cache; places close ahead pass by; others need a
    /// seek.
    fn moves_to(&mut self, place: u64) -> u64 {
        let (ahead, behind) = (place.saturating_sub(self.at), self.at.saturating_sub(place));
        if (0..16).contains(&behind) && ahead == 0 {
            return SERVICE / 40;
        }
        self.at = place;
        match ahead {
            1..32 => ahead * SERVICE / self.passing,
            _ => SERVICE / 2 + (ahead + behind).min(1000) * SERVICE / 2000,
        }
    }
}

/// A search through files: it looks up each file and reads one block of it.
#[derive(Clone, Copy)]
struct Search {
    files: usize,
    disks: usize,
    layout: Layout,
    sorts: bool,
}

impl Search {
    /// The disk of an access, and its request.
    fn access(&self, file: usize, is_lookup: bool) -> (usize, Request) {
        let number = 2 * file + usize::from(!is_lookup);
        let drawn = |seed: u64| {
            let mixed = (number as u64 + 1 + (seed << 20)).wrapping_mul(0x9E37_79B9_7F4A_7C15);
            (mixed ^ (mixed >> 29)).wrapping_mul(0xBF58_476D_1CE4_E5B9) >> 11
        };
        let (disk, place, takes) = match self.layout {
            Layout::InOrder { .. } => (file / 8, number as u64, None),
            Layout::Scattered => ((drawn(1) % 1009) as usize, drawn(2) % 100_000, None),
            Layout::Far { at_hand: true, .. } if is_lookup => (number, 0, Some(40_000)),
            Layout::Far { seed, .. } => {
                let share = (drawn(seed) % 1_000_000 + 1) as f64 / 1e6;
                (number, 0, Some((SERVICE as f64 * (1.5 - 4.0 * share.ln())) as u64))
            }
        };
        (disk % self.disks, Request { file, is_lookup, place, takes, number: 0, started: 0 })
    }

    /// The time it takes with a `fixed` depth, or with [`DepthControl`].
    fn takes(&self, fixed: Option<usize>) -> f64 {
        let mut control = DepthControl::default();
        control.begins_after(LONG_STILL);
        let (sorts, queue) = (self.sorts, VecDeque::new());
        let passing = if let Layout::InOrder { passing } = self.layout { passing } else { 8 };
        let disk = || Disk { queue: queue.clone(), under_way: None, at: 50_000, passing, sorts };
        let mut array: Vec<Disk> = (0..self.disks).map(|_| disk()).collect();
        let mut ready: VecDeque<usize> = VecDeque::new();
        let (mut now, mut looked_for, mut under_way, mut done, mut begun) = (0, 0, 0, 0, 0);
        while done < self.files {
            loop {
                let depth = fixed.unwrap_or(control.depth());
                let lookups = fixed.unwrap_or(control.lookup_depth());
                // Data go before lookups.
                let (file, is_lookup) = match ready.front() {
                    Some(&file) if under_way < depth => (file, false),
                    None if under_way < lookups && looked_for < self.files => (looked_for, true),
                    _ => break,
                };
                if is_lookup {
                    looked_for += 1;
                } else {
                    ready.pop_front();
                }
                under_way += 1;
                let (disk, request) = self.access(file, is_lookup);
                begun += 1;
                if is_lookup {
                    control.lookup_begins(Nanos(now), begun, self.files - looked_for);
                }
                array[disk].queue.push_back(Request { number: begun, started: now, ..request });
                array[disk].serve(now);
            }
            let disks = array.iter().enumerate();
            let ends = disks.filter_map(|(disk, it)| Some((it.under_way?.0, disk)));
            let (end, disk) = ends.min().expect("something is under way");
            let (_, request) = array[disk].under_way.take().expect("it is under way");
            now = end;
            under_way -= 1;
            let purpose = if request.is_lookup { Purpose::Lookup } else { FETCHED };
            match request.is_lookup {
                true => ready.push_back(request.file),
                false => done += 1,
            }
            let names_left = self.files - looked_for;
            let fetch = (request.number, Nanos(request.started));
            control.completed(Nanos(now), fetch, purpose, names_left);
            array[disk].serve(now);
        }
        now as f64
    }

    /// Its time divided by that of the better of two fixed depths.
    fn beside_the_better(&self) -> f64 {
        self.takes(None) / self.takes(Some(DEPTH_SHALLOW)).min(self.takes(Some(1000)))
    }
}

/// The table of `docs/internals/policy.md`: a search's time in this model, by depth. Print it with
/// `cargo test -p foretell-policy --lib table_of_depths -- --nocapture`.
#[test]
#[expect(clippy::print_stdout, reason = "the table is for people")]
fn table_of_depths() {
    let in_order = Layout::InOrder { passing: 12 };
    let far = Layout::Far { at_hand: false, seed: 1 };
    let rows = [
        ("in order, 1 disk", 1, in_order, false),
        ("in order, 2 disks", 2, in_order, false),
        ("in order, 8 disks", 8, in_order, false),
        ("scattered, 1 disk", 1, Layout::Scattered, true),
        ("scattered, 4 disks", 4, Layout::Scattered, true),
        ("scattered, 15 disks", 15, Layout::Scattered, true),
        ("far away", 2000, far, false),
    ];
    println!(
        "| files lie | files | 2 | 8 | 32 | unbounded | sampled |\n|---|---|---|---|---|---|---|"
    );
    for (name, disks, layout, sorts) in rows {
        for files in [60, 250, 900] {
            let search = Search { files, disks, layout, sorts };
            let fixed = [2, 8, 32, 1000].map(|depth| search.takes(Some(depth)));
            let sampled = search.takes(None);
            let seconds = |ns: f64| format!("{:.2}", ns / 1e9);
            let figures = fixed.map(seconds).join(" | ");
            println!("| {name} | {files} | {figures} | {} |", seconds(sampled));
            // A program without foretell has one fetch in flight, so two are no slower.
            assert!(sampled < 1.1 * fixed[0], "{name}, {files}");
        }
    }
}

#[test]
fn files_in_order_on_one_disk_are_read_in_order() {
    for passing in [4, 8, 12, 20, 40] {
        let layout = Layout::InOrder { passing };
        let search = |files| Search { files, disks: 1, layout, sorts: false };
        let (deep, shallow) = (search(900).takes(Some(1000)), search(900).takes(Some(2)));
        assert!(deep > 1.5 * shallow, "{passing}: the arm passes twice");
        for (files, most) in [(60, 1.1), (150, 1.1), (250, 1.12), (900, 1.1)] {
            let beside = search(files).beside_the_better();
            assert!(beside < most, "{passing}, {files}: {beside}");
        }
    }
}

#[test]
fn files_all_over_one_disk_are_sorted() {
    let search = |files| Search { files, disks: 1, layout: Layout::Scattered, sorts: true };
    let (deep, shallow) = (search(900).takes(Some(1000)), search(900).takes(Some(2)));
    assert!(shallow > 1.2 * deep, "a deep queue helps: {}", shallow / deep);
    for (files, most) in [(150, 1.1), (900, 1.05)] {
        let beside = search(files).beside_the_better();
        assert!(beside < most, "{files}: {beside}");
    }
}

#[test]
fn many_disks_have_something_to_do() {
    for (disks, most) in [(2, 1.3), (4, 1.2), (8, 1.1), (15, 1.1)] {
        for files in [150, 2000] {
            let search = Search { files, disks, layout: Layout::Scattered, sorts: true };
            let beside = search.beside_the_better();
            assert!(beside < most, "{disks}, {files}: {beside}");
        }
    }
}

#[test]
fn what_is_far_away_is_asked_for_together() {
    for at_hand in [false, true] {
        for files in [150, 1000] {
            let beside = (0..21).map(|seed| {
                let layout = Layout::Far { at_hand, seed };
                let disks = 2 * files;
                Search { files, disks, layout, sorts: false }.beside_the_better()
            });
            let mut beside: Vec<f64> = beside.collect();
            beside.sort_by(f64::total_cmp);
            // One sample of 30 is in order by chance. Then a few fetches pass until completions are seen to be rarer.
            assert!(beside[18] < 1.35 && beside[20] < 2.5, "{at_hand}, {files}: {beside:?}");
        }
    }
}

/// Lookups, all begun together, which complete in this order: the first at `first`, and another one each `interval`.
fn look_up(control: &mut DepthControl, first: u64, interval: u64, order: &[u64]) {
    for (end, number) in order.iter().enumerate() {
        let now = Nanos(first + interval * end as u64);
        control.completed(now, (*number, Nanos::ZERO), Purpose::Lookup, 0);
    }
}

/// One that has begun a sample of so many names; how many lookups these are.
fn sampled(names: usize) -> (DepthControl, u64) {
    let mut control = DepthControl::default();
    control.begins_after(Nanos::ZERO);
    let mut begun = 0;
    while begun < names && control.lookup_depth() > begun {
        begun += 1;
        control.lookup_begins(Nanos::ZERO, begun as u64 - 1, names - begun);
    }
    (control, begun as u64)
}

/// One whose sample was in order.
fn shallow() -> DepthControl {
    let (mut control, size) = sampled(1000);
    look_up(&mut control, SERVICE, SERVICE, &(0..size).collect::<Vec<_>>());
    assert_eq!(control.depth(), DEPTH_SHALLOW);
    control
}

/// Fetches that complete one each `interval`, until the depth is another one, `most` at most.
fn complete(
    control: &mut DepthControl,
    now: &mut u64,
    interval: u64,
    (most, names): (usize, usize),
) -> usize {
    let depth = control.depth();
    for fetch in 0..most {
        *now += interval;
        let purpose = if fetch % 2 == 0 { Purpose::Lookup } else { FETCHED };
        let begun = (*now, Nanos(now.saturating_sub(SERVICE)));
        control.completed(Nanos(*now), begun, purpose, names);
        if control.depth() != depth {
            return fetch + 1;
        }
    }
    most
}

#[test]
fn a_sample_is_a_part_of_the_names() {
    for (names, size) in [(1, 1), (8, 8), (9, 8), (60, 8), (240, 10), (384, 16), (5000, 16)] {
        assert_eq!(sampled(names).1, size, "{names}");
    }
}

#[test]
fn completions_in_order_show_a_disk_that_suffers() {
    for names in [60, 150, 1000] {
        let (mut control, size) = sampled(names);
        let in_order: Vec<u64> = (0..size).collect();
        look_up(&mut control, 3 * SERVICE, SERVICE, &in_order[..size as usize - 1]);
        assert_eq!(control.depth(), size as usize, "it is not known before the last");
        let now = Nanos((size + 2) * SERVICE);
        control.completed(now, (size - 1, Nanos::ZERO), Purpose::Lookup, 0);
        assert_eq!(control.depth(), DEPTH_SHALLOW, "{names}");
        // Some neighbours may change places.
        let (mut control, _) = sampled(names);
        let swap = |number: u64| if number < size / 2 { number ^ 1 } else { number };
        let swapped: Vec<u64> = (0..size).map(swap).collect();
        look_up(&mut control, 3 * SERVICE, SERVICE, &swapped);
        assert_eq!(control.depth(), DEPTH_SHALLOW, "{names}");
    }
}

#[test]
fn data_out_of_order_show_that_lookups_in_order_misled() {
    for (step, depth) in [(1, DEPTH_SHALLOW), (5, usize::MAX)] {
        let (mut control, mut now) = (shallow(), 17 * SERVICE);
        for number in (0..16).map(|number| 100 + number * step % 16) {
            control.completed(Nanos(now), (number, Nanos(15 * SERVICE)), FETCHED, 1000);
            now += SERVICE;
        }
        assert_eq!(control.depth(), depth);
    }
}

#[test]
fn completions_out_of_order_or_together_show_a_device_that_does_not() {
    for names in [60, 150, 1000] {
        let (mut deep, size) = sampled(names);
        look_up(&mut deep, SERVICE, SERVICE, &(0..size).map(|n| n * 5 % size).collect::<Vec<_>>());
        let (mut together, _) = sampled(names);
        look_up(&mut together, SERVICE, SERVICE / 50, &(0..size).collect::<Vec<_>>());
        for mut control in [deep, together] {
            // Nothing was fetched so far, and all may be in memory.
            assert_eq!(control.depth(), DEPTH_FIRST, "{names}");
            let begun = (size, Nanos::ZERO);
            control.completed(Nanos(100 * SERVICE), begun, Purpose::Data { fetched: false }, 1000);
            assert_eq!(control.depth(), DEPTH_FIRST, "{names}");
            control.completed(Nanos(100 * SERVICE), begun, FETCHED, 1000);
            assert_eq!(control.depth(), usize::MAX, "{names}");
        }
    }
}

#[test]
fn completions_that_become_rarer_show_that_the_sample_misled() {
    for (slower, is_deep) in [(0.5, false), (1.0, false), (1.1, false), (1.3, true), (4.0, true)] {
        let (mut control, mut now) = (shallow(), 16 * SERVICE);
        let interval = (SERVICE as f64 * slower) as u64;
        let fetches = complete(&mut control, &mut now, interval, (1000, 2000));
        assert_eq!(fetches, if is_deep { SAMPLE_MAX + SAMPLE_MIN } else { 1000 }, "{slower}");
        assert_eq!(control.depth(), if is_deep { usize::MAX } else { DEPTH_SHALLOW }, "{slower}");
    }
}

#[test]
fn a_device_that_stands_still_is_sampled_again() {
    let is_sampled = |control: &DepthControl| matches!(&control.phase, Phase::Sample(sample) if sample.begun == 0);
    let (mut control, _) = sampled(1000);
    look_up(&mut control, SERVICE, SERVICE, &(0..15).collect::<Vec<_>>());
    control.begins_after(STILL);
    assert_eq!(control.depth(), SAMPLE_MAX, "it goes on");
    control.begins_after(STILL + Nanos(1));
    assert!(is_sampled(&control));
    let (mut deep, _) = sampled(1000);
    look_up(&mut deep, SERVICE, 1000, &(0..16).collect::<Vec<_>>());
    deep.completed(Nanos(SERVICE), (99, Nanos::ZERO), FETCHED, 1000);
    for (mut control, depth) in [(shallow(), DEPTH_SHALLOW), (deep, usize::MAX)] {
        control.begins_after(LONG_STILL);
        assert_eq!(control.depth(), depth);
        control.begins_after(LONG_STILL + Nanos(1));
        assert!(is_sampled(&control));
    }
}

#[test]
fn a_sample_is_decided_before_there_are_more_lookups() {
    let (mut control, _) = sampled(1000);
    assert_eq!((control.depth(), control.lookup_depth()), (SAMPLE_MAX, 0));
    let mut hangs = control.clone();
    hangs.lookup_is_overdue();
    assert_eq!(hangs.lookup_depth(), DEPTH_FIRST);
    look_up(&mut control, SERVICE, SERVICE, &(0..16).collect::<Vec<_>>());
    assert_eq!(control.lookup_depth(), DEPTH_SHALLOW);
}

#[test]
fn where_nothing_is_fetched_the_queue_stays_short() {
    let (mut control, _) = sampled(1000);
    for index in 1..1000 {
        let cached = Purpose::Data { fetched: false };
        let started = Nanos(index * 1000).saturating_sub(Nanos(SERVICE));
        control.completed(Nanos(index * 1000), (index, started), cached, 1000);
    }
    assert!(control.depth() <= DEPTH_FIRST, "{control:?}");
}

#[test]
fn lookups_from_memory_do_not_hold_up_the_data() {
    let mut control = DepthControl::default();
    for index in 1..=32 {
        let fetch = (index, Nanos(index * 1000 - 500));
        control.lookup_begins(fetch.1, index, 1000);
        control.completed(Nanos(index * 1000), fetch, Purpose::Lookup, 1000);
    }
    control.completed(Nanos(SERVICE), (99, Nanos::ZERO), FETCHED, 1000);
    assert_eq!(control.depth(), usize::MAX);
}

#[test]
fn data_without_lookups_is_fetched_deep() {
    let mut control = DepthControl::default();
    let fetched: Vec<usize> = (1..100)
        .map(|index| {
            let now = Nanos(index * SERVICE);
            control.completed(now, (index, now.saturating_sub(Nanos(SERVICE))), FETCHED, 0);
            control.depth()
        })
        .collect();
    assert_eq!((fetched[0], fetched[98]), (DEPTH_FIRST, usize::MAX));
}

#[test]
fn names_that_trickle_in_show_nothing() {
    let mut control = DepthControl::default();
    for number in 0..100 {
        let began = Nanos(number * SERVICE);
        control.lookup_begins(began, number, 0);
        control.completed(began + Nanos(SERVICE / 2), (number, began), Purpose::Lookup, 0);
        assert!(matches!(control.phase, Phase::Sample(_)), "{number}");
    }
}

#[test]
fn late_answers_of_another_sample_do_not_count() {
    let (mut control, size) = sampled(1000);
    for number in 100..200 {
        control.completed(Nanos(SERVICE), (number, Nanos::ZERO), Purpose::Lookup, 1000);
    }
    assert_eq!((control.depth(), control.lookup_depth()), (size as usize, 0));
}

#[test]
fn lookups_from_memory_count_for_no_pair() {
    for (order, depth) in
        [([0, 1, 2, 3, 4, 5, 6, 7], DEPTH_SHALLOW), ([7, 2, 5, 0, 3, 6, 1, 4], DEPTH_FIRST)]
    {
        let (mut control, size) = sampled(1000);
        assert_eq!(size, 16);
        // Every other one was in memory.
        for number in 0..8 {
            control.completed(Nanos(1000), (2 * number + 1, Nanos::ZERO), Purpose::Lookup, 0);
        }
        look_up(&mut control, SERVICE, SERVICE, &order.map(|number| 2 * number));
        assert_eq!(control.depth(), depth);
    }
}
