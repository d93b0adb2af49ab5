//! The second tier on a real disk: the conformance suite, killed processes, damaged files, a full disk, two processes with one
//! folder.

use std::io::{BufRead, BufReader};
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;

use foretell_cache::backend::Backend;
use foretell_cache::backend::conformance::{World, check, content};
use foretell_cache::backend::memory::MemoryBackend;
use foretell_cache::tier::{Tier, TierError, TierOptions, TierStats};
use foretell_cache::{Cache, CacheOptions, Session};

const BLOCK: usize = 8192;
const DATA: &str = "foretell-tier.data";
const INDEX: &str = "foretell-tier.index";

fn options(folder: &Path, budget_bytes: u64, keep: bool) -> TierOptions {
    TierOptions { folder: folder.to_owned(), budget_bytes, block_bytes: BLOCK, keep }
}

/// A file with known bytes.
fn whole() -> Vec<u8> {
    content(9, 2_000_001)
}

/// A program with memory for a quarter of the data. With almost none, parts of blocks would bypass the cache.
fn session(tier: &Arc<Tier>, whole: &[u8]) -> Session {
    let remote = MemoryBackend::new();
    remote.put("file", whole);
    let cache =
        Cache::new(CacheOptions { budget_bytes: 64 * BLOCK as u64, block_bytes: BLOCK }).unwrap();
    cache.attach(Arc::new(tier.over("memory", Arc::new(remote)))).session()
}

/// Reads all of it with all threads at once. Every byte is compared.
fn read_all(tier: &Arc<Tier>, whole: &[u8]) {
    let session = session(tier, whole);
    let file = session.open("file").unwrap();
    std::thread::scope(|scope| {
        for thread in 0..2 {
            let (file, session) = (&file, &session);
            scope.spawn(move || {
                let stream = session.stream();
                if thread == 1 {
                    stream.hint_file(file);
                }
                let mut buffer = vec![0; 50_000];
                for at in (0..whole.len()).step_by(buffer.len()) {
                    let read = file.read_at(&mut buffer, at as u64).unwrap();
                    assert!(buffer[..read] == whole[at..at + read], "wrong bytes at {at}");
                }
            });
        }
    });
    tier.settle();
}

struct Tiered(MemoryBackend, Box<dyn Backend>);

impl World for Tiered {
    fn backend(&self) -> &dyn Backend {
        self.1.as_ref()
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        self.0.put(path, bytes);
    }
}

#[test]
fn it_does_what_a_back_end_must_empty_and_filled() {
    for block_bytes in [4096, 65_536] {
        let folder = tempfile::tempdir().unwrap();
        let options = TierOptions { block_bytes, ..options(folder.path(), 1 << 20, false) };
        let tier = Tier::open(&options).unwrap();
        for _ in 0..3 {
            let files = MemoryBackend::new();
            // Each time the same versions have the same bytes.
            let remote = Arc::new(files.clone());
            check(&Tiered(files, Box::new(tier.over("memory", remote))));
            tier.settle();
        }
        let stats = tier.stats();
        assert!(stats.hit_blocks > 0 && stats.corrupt_blocks == 0, "{stats:?}");
    }
}

#[test]
fn blocks_are_kept_over_a_restart_and_only_if_they_are_to_be() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("not/there/yet");
    let whole = whole();
    let blocks = whole.len().div_ceil(BLOCK) as u64;
    let open = |keep| Tier::open(&options(&path, 4 << 20, keep)).unwrap();
    let of = |keep| {
        let tier = open(keep);
        read_all(&tier, &whole);
        tier.stats()
    };
    let first = of(true);
    assert_eq!((first.found_blocks, first.held_blocks), (0, blocks), "{first:?}");
    let second = of(true);
    assert_eq!((second.found_blocks, second.missed_blocks), (blocks, 0), "{second:?}");
    assert!(second.hit_blocks >= blocks, "{second:?}");
    // Another file of the same name: nothing of the old one is served.
    let tier = open(true);
    let other = content(10, whole.len() + 1);
    read_all(&tier, &other);
    assert!(tier.stats().missed_blocks >= blocks);
    drop(tier);
    // A smaller budget keeps what fits.
    let less = Tier::open(&options(&path, 1 << 20, true)).unwrap();
    assert!((1..=127).contains(&less.stats().found_blocks), "{less:?}");
    assert!(std::fs::metadata(path.join(DATA)).unwrap().len() <= 1 << 20);
    read_all(&less, &whole);
    drop(less);
    // Blocks of another size cannot be used.
    let of_64k = TierOptions { block_bytes: 65_536, ..options(&path, 4 << 20, true) };
    assert_eq!(Tier::open(&of_64k).unwrap().stats().found_blocks, 0);
    // Wiped: old blocks are not used, and nothing is left.
    let third = of(false);
    assert_eq!(third.found_blocks, 0);
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), 0);
    // Only the owner may read the files: the data may be secret.
    let kept = open(true);
    use std::os::unix::fs::PermissionsExt;
    let mode = |path: &Path| std::fs::metadata(path).unwrap().permissions().mode() & 0o777;
    assert_eq!(
        (mode(&path), mode(&path.join(DATA)), mode(&path.join(INDEX))),
        (0o700, 0o600, 0o600)
    );
    drop(kept);
}

#[test]
fn two_have_not_one_folder_and_errors_say_what_to_do() {
    let folder = tempfile::tempdir().unwrap();
    let open = |options: TierOptions| Tier::open(&options);
    let first = open(options(folder.path(), 1 << 20, true)).unwrap();
    for keep in [false, true] {
        let error = open(options(folder.path(), 1 << 20, keep)).unwrap_err();
        assert!(matches!(error, TierError::InUse { .. }), "{error}");
        assert!(error.to_string().contains("choose another folder"), "{error}");
    }
    drop(first);
    drop(open(options(folder.path(), 1 << 20, true)).unwrap());
    std::fs::write(folder.path().join("file"), b"").unwrap();
    let of = |budget_bytes, block_bytes| TierOptions {
        block_bytes,
        ..options(folder.path(), budget_bytes, false)
    };
    for (error, part) in [
        (
            open(options(&folder.path().join("file"), 1 << 20, true)).unwrap_err(),
            "cannot keep blocks in",
        ),
        (open(of(1 << 20, 5000)).unwrap_err(), "a power of two"),
        (open(of(8192, 8192)).unwrap_err(), "does not hold one block"),
    ] {
        let text = error.to_string();
        assert!(text.contains(part) && !text.contains('\n'), "{text}");
    }
}

#[test]
fn damage_of_any_kind_costs_blocks_and_no_byte() {
    let folder = tempfile::tempdir().unwrap();
    let whole = whole();
    let mut corrupt = 0;
    for seed in 0..12u64 {
        let tier = Tier::open(&options(folder.path(), 4 << 20, true)).unwrap();
        read_all(&tier, &whole);
        // Every other time the damage happens while the files are open.
        let tier = Some(tier).filter(|_| seed % 2 == 0);
        for name in [DATA, INDEX] {
            let path = folder.path().join(name);
            let file = std::fs::File::options().read(true).write(true).open(&path).unwrap();
            let length = file.metadata().unwrap().len();
            let mut random = seed * 2 + u64::from(name == DATA);
            for _ in 0..1 + seed * 5 {
                random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(99);
                let mut byte = [0];
                let at = (random >> 33) % length;
                file.read_exact_at(&mut byte, at).unwrap();
                file.write_all_at(&[byte[0] ^ (1 << (random >> 61))], at).unwrap();
            }
            match seed {
                4 | 5 => file.set_len(length / 2).unwrap(),
                6 | 7 => file.set_len(0).unwrap(),
                8 | 9 => std::fs::remove_file(&path).unwrap(),
                _ => {}
            }
        }
        let tier = match tier {
            Some(tier) => tier,
            None => Tier::open(&options(folder.path(), 4 << 20, true)).unwrap(),
        };
        for _ in 0..2 {
            read_all(&tier, &whole);
        }
        corrupt += tier.stats().corrupt_blocks;
        let before = tier.stats();
        read_all(&tier, &whole);
        let after = tier.stats();
        let missed = after.missed_blocks - before.missed_blocks;
        assert_eq!(missed, 0, "seed {seed}, not all is there again: {before:?} {after:?}");
    }
    assert!(corrupt > 0);
}

/// Set in the process that a test starts and kills.
const VICTIM: &str = "FORETELL_TEST_TIER_VICTIM";

/// Reads and writes until it is killed. Not a test of its own: the one below runs it.
#[test]
#[allow(clippy::print_stdout)]
fn victim() {
    let Some(folder) = std::env::var_os(VICTIM) else { return };
    let whole = whole();
    for turn in 0.. {
        // Smaller than the data, so that blocks are replaced all the time.
        let tier = Tier::open(&options(Path::new(&folder), 1 << 20, true)).unwrap();
        read_all(&tier, &whole);
        read_all(&tier, &content(turn, 3_000_000 + turn as usize)); // Each turn has a version of its own.
        println!("turn"); // Tells the test that a turn is done.
    }
}

#[test]
fn whoever_is_killed_while_writing_leaves_nothing_that_is_wrong() {
    let folder = tempfile::tempdir().unwrap();
    let whole = whole();
    let mut found = 0;
    for round in 0..12u64 {
        let mut victim = Command::new(std::env::current_exe().unwrap())
            .args(["victim", "--exact", "--nocapture"])
            .env(VICTIM, folder.path())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let lines = BufReader::new(victim.stdout.take().unwrap()).lines();
        let mut turns = lines.map_while(Result::ok).filter(|line| line.contains("turn"));
        let wanted = 1 + round as usize % 3;
        assert_eq!(turns.by_ref().take(wanted).count(), wanted, "it ended by itself");
        // Somewhere in the next turn.
        std::thread::sleep(std::time::Duration::from_millis(round * 7 % 40));
        victim.kill().unwrap();
        victim.wait().unwrap();
        drop(turns);
        // The locks are gone with the process.
        let tier = Tier::open(&options(folder.path(), 1 << 20, true)).unwrap();
        found += tier.stats().found_blocks;
        read_all(&tier, &whole);
        read_all(&tier, &whole);
    }
    assert!(found > 0, "something is kept");
}

#[test]
fn what_is_not_kept_goes_with_who_is_killed() {
    let folder = tempfile::tempdir().unwrap();
    let tier = Tier::open(&options(folder.path(), 4 << 20, false)).unwrap();
    read_all(&tier, &whole());
    assert!(tier.stats().held_blocks > 0);
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 0, "it has no name");
}

/// A new file system of 1 MiB; `None` if it cannot be mounted.
struct Small(tempfile::TempDir);

impl Small {
    fn new() -> Option<Self> {
        let folder = tempfile::tempdir().unwrap();
        let mounted = Command::new("mount")
            .args(["-t", "tmpfs", "-o", "size=1m", "tmpfs"])
            .arg(folder.path())
            .stderr(Stdio::null())
            .status();
        mounted.is_ok_and(|status| status.success()).then(|| Small(folder))
    }
}

impl Drop for Small {
    fn drop(&mut self) {
        let _ = Command::new("umount").arg(self.0.path()).status();
    }
}

#[test]
fn a_disk_that_is_full_serves_what_it_has_and_fills_up_when_there_is_room() {
    let Some(small) = Small::new() else {
        eprintln!("skipped: no file system can be mounted here");
        return;
    };
    let whole = whole();
    let blocks = whole.len().div_ceil(BLOCK) as u64;
    let folder = small.0.path().join("tier");
    let ballast = small.0.path().join("ballast");
    std::fs::write(&ballast, vec![0; 400_000]).unwrap();
    let tier = Tier::open(&options(&folder, 4 << 20, true)).unwrap();
    read_all(&tier, &whole);
    let full = tier.stats();
    assert!(full.write_errors > 0 && full.dropped_blocks > 0, "{full:?}");
    assert!(full.held_blocks > 0 && full.held_blocks < blocks, "{full:?}");
    read_all(&tier, &whole);
    assert!(tier.stats().hit_blocks > 0);
    std::fs::remove_file(&ballast).unwrap();
    // Waits for the end of the pause, however fast the machine is.
    let mut stats = TierStats::default();
    for _ in 0..600 {
        read_all(&tier, &whole);
        stats = tier.stats();
        if stats.held_blocks > full.held_blocks {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(100));
    }
    assert!(stats.held_blocks > full.held_blocks, "{full:?} {stats:?}");
    drop(tier);
    // Full from the beginning.
    std::fs::remove_dir_all(&folder).unwrap();
    std::fs::write(&ballast, vec![0; 2 << 20]).unwrap_err();
    let tier = Tier::open(&options(&folder, 4 << 20, true)).unwrap();
    read_all(&tier, &whole);
    drop(tier);
}
