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

#[test]
fn files_in_order_on_one_disk_are_read_in_order() {
    for passing in [4, 8, 12, 20, 40] {
        let layout = Layout::InOrder { passing };
        let search = |files| Search { files, disks: 1, layout, sorts: false };
        let (deep, shallow) = (search(900).takes(Some(1000)), search(900).takes(Some(2)));
        assert!(deep > 1.5 * shallow, "{passing}: the arm passes twice");
        for (files, most) in [(60, 1.6), (150, 1.3), (900, 1.15)] {
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
            let most = beside.reduce(f64::max).expect("some");
            assert!(most < 1.35, "{at_hand}, {files}: {most}");
        }
    }
}

/// Completes fetches one after another, each of which took `took`, until the depth changes; at most `most`.
fn complete(
    control: &mut DepthControl,
    now: &mut u64,
    (took, interval): (u64, u64),
    (most, names): (usize, usize),
) -> usize {
    let depth = control.depth();
    for fetch in 0..most {
        *now += interval;
        let purpose = if fetch % 2 == 0 { Purpose::Lookup } else { FETCHED };
        let begun = (*now, Nanos(now.saturating_sub(took)));
        control.completed(Nanos(*now), begun, purpose, names);
        if control.depth() != depth {
            return fetch + 1;
        }
    }
    most
}

#[test]
fn what_is_answered_together_is_known_at_once() {
    let (mut control, mut now) = (DepthControl::default(), SERVICE);
    let fetches = complete(&mut control, &mut now, (SERVICE, 1000), (100, 1000));
    assert_eq!((fetches, control.depth()), (SAMPLE_LEAST, usize::MAX));
}

#[test]
fn what_was_in_memory_after_all_is_no_service() {
    let servers = |times_ms: Vec<f64>, rate| {
        let times = times_ms.into_iter().map(|ms| Nanos((ms * 1e6) as u64)).collect();
        Sample { times, ..Sample::of_idle_device() }.servers(rate)
    };
    // One server serves fetches in turn; with many, each fetch takes its own time.
    let one = servers((1..=32).map(|turn| 10.0 * f64::from(turn)).collect(), 100.0);
    assert!((1.0..=3.0).contains(&one), "{one}");
    let many = servers(vec![0.4, 25.0, 18.0, 31.0], 400.0);
    assert!((many - 10.0).abs() < 1e-9, "{many}");
}

#[test]
fn many_heard_of_at_once_are_not_many_servers() {
    // With twenty in a batch they could not be told apart from long services.
    for batch in [1, 2, 5] {
        let mut control = DepthControl::default();
        for fetch in 0..SAMPLE as u64 {
            let heard = (fetch / batch + 1) * batch * SERVICE + fetch % batch * 10_000;
            let started = heard.saturating_sub(32 * SERVICE);
            control.completed(Nanos(heard), (fetch, Nanos(started)), FETCHED, 1000);
        }
        assert!(matches!(control.phase, Phase::Probe(_)), "{batch}: {control:?}");
    }
}

#[test]
fn lookups_that_are_answered_from_memory_begin_a_probe() {
    let (mut control, mut now) = (DepthControl::default(), 0);
    while !matches!(control.phase, Phase::Probe(_)) {
        complete(&mut control, &mut now, (SERVICE, SERVICE), (1, 1000));
    }
    now += SERVICE;
    control.completed(Nanos(now), (now, Nanos(now - 1000)), Purpose::Lookup, 1000);
    assert_eq!(control.depth(), DEPTH_SHALLOW);
    // If all are answered from memory, it does not last for ever.
    for _ in 1..AT_HAND_MOST {
        control.completed(Nanos(now), (now, Nanos(now - 1000)), Purpose::Lookup, 1000);
    }
    assert!(matches!(control.phase, Phase::Deep), "{control:?}");
}

#[test]
fn a_device_that_stands_still_is_sampled_again() {
    let (mut control, mut now) = (DepthControl::default(), 0);
    complete(&mut control, &mut now, (SERVICE, SERVICE), (SAMPLE - 1, 1000));
    control.begins_after(STILL);
    assert!(matches!(&control.phase, Phase::Sample(sample) if sample.tally.is_some()));
    control.begins_after(Nanos(SERVICE));
    assert!(matches!(&control.phase, Phase::Sample(sample) if sample.tally.is_none()));
    now += 100 * SERVICE;
    complete(&mut control, &mut now, (SERVICE, SERVICE), (SAMPLE, 1000));
    let Phase::Probe(probe) = &control.phase else { panic!("{control:?}") };
    assert!((probe.before.rate(Nanos(now)) * Nanos(SERVICE).as_secs() - 1.0).abs() < 1e-9);
    control.begins_after(Nanos(SERVICE));
    assert!(matches!(control.phase, Phase::Sample(_)));
}

#[test]
fn what_stays_shallow_is_sampled_again_each_time_later() {
    let (mut control, mut now) = (DepthControl::default(), 0);
    let sample = |control: &mut DepthControl, now: &mut u64| {
        while !matches!(control.phase, Phase::Probe(_)) {
            complete(control, now, (SERVICE, SERVICE), (1, 1000));
        }
        // The rest of the sample completes.
        let purpose = Purpose::Lookup;
        let fetch = (*now, Nanos(*now - SERVICE));
        control.completed(Nanos(*now + SERVICE), fetch, purpose, 1000);
        *now += 2 * SERVICE;
    };
    for span in [256, 512, 1024, 2048, 2048] {
        sample(&mut control, &mut now);
        // The probe is twice as fast, and so is what follows.
        let fast = (SERVICE, SERVICE / 2);
        let mut fetches = 0;
        while !matches!(control.phase, Phase::Sample(_)) {
            fetches += complete(&mut control, &mut now, fast, (1, 1000));
        }
        assert_eq!(fetches, PROBE + span + 1);
    }
    // There is no new sample for a few names,
    sample(&mut control, &mut now);
    for _ in 0..9999 {
        complete(&mut control, &mut now, (SERVICE, SERVICE / 2), (1, NAMES_LEAST - 1));
    }
    assert_eq!(control.depth(), DEPTH_SHALLOW);
    // but there is after a pause, and where only data is left.
    let mut paused = control.clone();
    paused.begins_after(LONG_STILL);
    assert_eq!(paused.depth(), DEPTH_SHALLOW);
    paused.begins_after(LONG_STILL + Nanos(1));
    assert_eq!(paused.depth(), DEPTH_SAMPLE);
    complete(&mut control, &mut now, (SERVICE, SERVICE / 2), (1, 0));
    assert_eq!(control.depth(), DEPTH_SAMPLE);
}

#[test]
fn where_nothing_is_fetched_the_queue_stays_short() {
    let mut control = DepthControl::default();
    for index in 1..1000 {
        let cached = Purpose::Data { fetched: false };
        let started = Nanos(index * 1000).saturating_sub(Nanos(SERVICE));
        control.completed(Nanos(index * 1000), (index, started), cached, 1000);
    }
    assert!(control.depth() <= DEPTH_SAMPLE, "{control:?}");
}

#[test]
fn answers_from_memory_say_nothing_of_the_device() {
    let mut control = DepthControl::default();
    for index in 1..1000 {
        let fetch = (index, Nanos(index * 1000 - 500));
        control.completed(Nanos(index * 1000), fetch, FETCHED, 1000);
    }
    assert!(matches!(&control.phase, Phase::Sample(sample) if sample.times.is_empty()));
    assert_eq!(control.depth(), DEPTH_SAMPLE);
}
