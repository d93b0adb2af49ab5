//! The suite that every back end passes, on every kind of file system that this machine has, and tests of what the libraries of
//! Lustre and GPFS are asked, with libraries that stand in for them (`tests/c`).

use std::ffi::{CStr, c_void};
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::ptr::NonNull;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foretell_cache::CacheOptions;
use foretell_cache::backend::local::LocalBackend;
use foretell_mount::{StoreMount, StoreMountOptions};
use foretell_testbed::{Array, ArrayOptions};

use super::library::Library;
use super::*;

/// Length of the files, more than one advice of the kernel brings.
const FILE_BYTES: u64 = 3_000_000;

/// Ranges begin at multiples of the manager's blocks.
const BLOCK_BYTES: u64 = crate::reads::BLOCK_BYTES;

/// Longer than anything takes.
const PATIENCE: Duration = Duration::from_secs(60);

fn skipped(why: &str) {
    let _ = writeln!(std::io::stderr(), "skipped: {why}");
}

fn range(offset_bytes: u64, length_bytes: u64) -> Range {
    Range { offset_bytes, length_bytes }
}

fn target(path: &Path) -> Target {
    let file = File::open(path).expect("opened");
    let metadata = file.metadata().expect("its facts");
    Target::new(file, metadata.len(), metadata.uid())
}

/// Writes a file to the disk, so that its pages can be released.
fn write(path: &Path) {
    let mut file = File::create(path).expect("made");
    file.write_all(&vec![7; FILE_BYTES as usize]).and_then(|()| file.sync_all()).expect("written");
}

/// A place with files, and where they can be changed.
struct Place {
    name: &'static str,
    files: PathBuf,
    behind: PathBuf,
    /// Whether pages leave memory when they are released.
    forgets: bool,
    _mounted: Box<dyn std::any::Any>,
    _folder: tempfile::TempDir,
}

impl Place {
    fn folder(name: &'static str, within: &Path, forgets: bool) -> Option<Self> {
        let folder = tempfile::tempdir_in(within).ok()?;
        let files = folder.path().to_owned();
        Some(Place {
            name,
            behind: files.clone(),
            files,
            forgets,
            _mounted: Box::new(()),
            _folder: folder,
        })
    }

    /// A file system in user space whose files lie in a folder.
    fn mounted<M: 'static>(
        name: &'static str,
        mount: impl FnOnce(&Path, &Path) -> Result<M, String>,
    ) -> Option<Self> {
        let folder = tempfile::tempdir().expect("a folder");
        let root = folder.path().canonicalize().expect("it exists");
        let (behind, files) = (root.join("behind"), root.join("mounted"));
        fs::create_dir(&behind).and_then(|()| fs::create_dir(&files)).expect("made");
        write(&behind.join("file"));
        match mount(&behind, &files) {
            Ok(mounted) => {
                let mounted = Box::new(mounted);
                Some(Place {
                    name,
                    files,
                    behind,
                    forgets: true,
                    _mounted: mounted,
                    _folder: folder,
                })
            }
            Err(why) => {
                skipped(&format!("{name}: {why}"));
                None
            }
        }
    }

    fn all() -> Vec<Place> {
        let array = |behind: &Path, at: &Path| {
            let options = ArrayOptions { time_scale: 0.01, ..ArrayOptions::default() };
            Array::mount(behind, at, &options).map_err(|error| error.to_string())
        };
        let store = |behind: &Path, at: &Path| {
            let options = StoreMountOptions {
                source: "folder".into(),
                cache: CacheOptions { budget_bytes: 8 << 20, block_bytes: 8192 },
                ttl: Duration::from_secs(1),
                is_for_all: false,
                timeout: None,
                are_numbers_small: false,
            };
            let backend = LocalBackend::new(behind, None).map_err(|error| error.to_string())?;
            StoreMount::mount(Arc::new(backend), at, &options, |_| {})
                .map_err(|error| error.to_string())
        };
        let disk = std::env::temp_dir();
        let forgets = rustix::fs::statfs(&disk).is_ok_and(|found| found.f_type != 0x0102_1994);
        let places = [
            Place::folder("the folder for temporary files", &disk, forgets),
            Place::folder("/dev/shm", Path::new("/dev/shm"), false),
            Place::mounted("the array", array),
            Place::mounted("the mount", store),
        ];
        places.into_iter().flatten().collect()
    }

    /// A file that lies in it.
    fn file(&self) -> PathBuf {
        let behind = self.behind.join("file");
        if !behind.exists() {
            write(&behind);
        }
        self.files.join("file")
    }
}

/// The back ends, those with libraries by stand-ins if there is a compiler.
fn all_backends() -> Vec<&'static dyn Backend> {
    let mut all: Vec<&'static dyn Backend> = vec![&POSIX, &READAHEAD, &READ_THROUGH, &MOUNT];
    if let Some((library, _)) = StandIn::build("lustre") {
        all.push(Box::leak(Box::new(Lustre::of(library).expect("it has the functions"))));
    }
    if let Some((library, _)) = StandIn::build("gpfs") {
        all.push(Box::leak(Box::new(Gpfs::of(library).expect("it has the function"))));
    }
    all
}

/// Whether each block of `range` has arrived; its two ends stand for it otherwise.
fn has_arrived(file: &Target, wanted: Range) -> Option<bool> {
    let end = wanted.offset_bytes + wanted.length_bytes;
    let mut offsets = (wanted.offset_bytes..end).step_by(BLOCK_BYTES as usize);
    let block = |at: u64| file.has_arrived(range(at, BLOCK_BYTES.min(end - at)));
    offsets.try_fold(true, |all, at| Some(all && block(at)?))
}

/// Waits until a fetch that ended like this has brought `range`, where that can be seen.
fn assert_arrives(
    what: &str,
    backend: &dyn Backend,
    file: &Target,
    range: Range,
    advised: &Advised,
) {
    let what = format!("{what}: {range:?}: {advised:?}");
    assert!(!matches!(advised, Advised::Failed(_) | Advised::Short { .. }), "{what}");
    if !matches!(advised, Advised::Started) {
        assert_ne!(has_arrived(file, range), Some(false), "{what}: it is not there");
        return;
    }
    assert!(backend.observes_arrival(file), "{what}: nobody will know");
    let began = Instant::now();
    while has_arrived(file, range) != Some(true) {
        assert!(began.elapsed() < PATIENCE, "{what}: it does not arrive");
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// Has the kernel drop the pages of a file, until they are gone where they can go.
fn make_cold(place: &Place, file: &Target) {
    file.release_pages(range(0, FILE_BYTES));
    let began = Instant::now();
    while place.forgets && file.accepted_bytes(range(0, FILE_BYTES)).is_some_and(|left| left > 0) {
        assert!(began.elapsed() < PATIENCE, "{}: pages stay", place.name);
        std::thread::sleep(Duration::from_millis(1));
        file.release_pages(range(0, FILE_BYTES));
    }
}

#[test]
fn every_back_end_brings_and_releases_on_every_file_system() {
    let backends = all_backends();
    for place in Place::all() {
        let path = place.file();
        for backend in &backends {
            let file = target(&path);
            let what = format!("{} on {}", backend.kind(), place.name);
            make_cold(&place, &file);
            // In the middle, all, all once more, and the end that fills no page.
            let ranges = [
                range(BLOCK_BYTES * 120, BLOCK_BYTES * 40),
                range(0, FILE_BYTES),
                range(0, FILE_BYTES),
                range(FILE_BYTES / BLOCK_BYTES * BLOCK_BYTES, FILE_BYTES % BLOCK_BYTES),
            ];
            for (index, wanted) in ranges.into_iter().enumerate() {
                let advised = backend.fetch(&file, wanted);
                assert_arrives(&what, *backend, &file, wanted, &advised);
                let is_seen = backend.observes_arrival(&file) && place.forgets;
                if index == 0 && is_seen {
                    assert!(!matches!(advised, Advised::AlreadyCached), "{what}: it was cold");
                } else if is_seen && index > 1 {
                    assert!(matches!(advised, Advised::AlreadyCached), "{what}: {advised:?}");
                }
            }
            backend.release(&file, range(0, FILE_BYTES));
            let left = file.accepted_bytes(range(0, FILE_BYTES));
            if let Some(left) = left.filter(|_| place.forgets) {
                assert!(left < FILE_BYTES / 2, "{what}: {left} bytes stay");
            }
        }
    }
}

#[test]
fn every_back_end_notices_a_file_that_became_shorter() {
    let backends = all_backends();
    for place in Place::all().into_iter().filter(|place| place.files == place.behind) {
        for backend in &backends {
            let path = place.file();
            let file = target(&path);
            make_cold(&place, &file);
            let writer = OpenOptions::new().write(true).open(&path).expect("opened");
            writer.set_len(100_000).expect("cut");
            let what = format!("{} on {}", backend.kind(), place.name);
            // The caller clips what it asks for; here the file was cut after it did.
            match backend.fetch(&file, range(49_152, 98_304)) {
                // Pages beyond the end are in no cache, so they are read.
                Advised::Short { length_bytes: 50_848 } => {}
                // Whether it arrives is a matter of the caller, who looks at the size first.
                Advised::Started | Advised::AlreadyCached => {
                    assert!(backend.observes_arrival(&file), "{what}");
                }
                other => panic!("{what}: {other:?}"),
            }
            match backend.fetch(&file, range(204_800, 98_304)) {
                Advised::Short { length_bytes: 0 } => {}
                Advised::Started | Advised::AlreadyCached => {
                    assert!(backend.observes_arrival(&file), "{what}");
                }
                other => panic!("{what} past the end: {other:?}"),
            }
            backend.release(&file, range(0, FILE_BYTES));
            fs::remove_file(&path).expect("removed");
        }
    }
}

#[test]
fn a_hint_is_taken_by_a_mount_of_foretells_alone() {
    for place in Place::all() {
        let hinted = mount::hint(target(&place.file()).file(), range(0, 100_000));
        assert_eq!(hinted.is_ok(), place.name == "the mount", "{}: {hinted:?}", place.name);
    }
}

/// Functions of the stand-ins: the text so far, and setting a number.
type TextCall = unsafe extern "C" fn() -> *const libc::c_char;
type NumberCall = unsafe extern "C" fn(libc::c_int);

/// A library that writes down what it is asked.
struct StandIn {
    log: TextCall,
    refuse: NumberCall,
    take: Option<NumberCall>,
}

impl StandIn {
    /// Compiles and loads it; `None` without a C compiler.
    fn build(name: &str) -> Option<(Library, StandIn)> {
        let folder = tempfile::tempdir().expect("a folder");
        let source = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/c/{name}.c"));
        let library = folder.path().join("library.so");
        let mut compiler = Command::new("cc");
        compiler.args(["-shared", "-fPIC", "-Wall", "-Werror", "-o"]).arg(&library).arg(source);
        match compiler.status() {
            Ok(status) => assert!(status.success(), "{name}.c compiles"),
            Err(error) => {
                skipped(&format!("cc: {error}"));
                return None;
            }
        }
        let library = Library::open(&["/no/such/library.so", library.to_str().expect("UTF-8")])
            .expect("the second one loads");
        let function = |name: &CStr| library.function(name).expect("it is there");
        // SAFETY: these functions of the stand-ins have these types (tests/c).
        let stand_in = unsafe {
            let number = |address| std::mem::transmute::<NonNull<c_void>, NumberCall>(address);
            let log = function(c"stand_in_log");
            StandIn {
                log: std::mem::transmute::<NonNull<c_void>, TextCall>(log),
                refuse: number(function(c"stand_in_refuse")),
                take: library.function(c"stand_in_take").ok().map(number),
            }
        };
        Some((library, stand_in))
    }

    /// The lines since the last call of the test.
    fn lines(&self) -> Vec<String> {
        // SAFETY: the text is a C string in the library, which stays loaded; nobody writes to it now.
        let text = unsafe { CStr::from_ptr((self.log)()) };
        text.to_str().expect("UTF-8").lines().map(str::to_owned).collect()
    }

    fn refuse(&self, error: libc::c_int) {
        // SAFETY: it stores a number.
        unsafe { (self.refuse)(error) }
    }

    fn take(&self, most: libc::c_int) {
        // SAFETY: as above.
        unsafe { self.take.expect("it can")(most) }
    }
}

/// A file of `blocks` blocks of its file system, and their length.
fn blocks(count: u64) -> (tempfile::NamedTempFile, Target, u64) {
    let file = tempfile::NamedTempFile::new().expect("a file");
    let block_bytes = file.as_file().metadata().expect("its facts").blksize();
    file.as_file().set_len(count * block_bytes).expect("room");
    let target = target(file.path());
    (file, target, block_bytes)
}

#[test]
fn the_servers_of_lustre_are_asked_as_its_headers_say() {
    let Some((library, stand_in)) = StandIn::build("lustre") else { return };
    let lustre = Lustre::of(library).expect("it has the functions");
    assert_eq!(lustre.kind(), BackendKind::Lustre);
    let (_file, file, block) = blocks(4);
    let wanted = range(block, 2 * block - 5);
    assert!(matches!(lustre.fetch(&file, wanted), Advised::Fetched | Advised::AlreadyCached));
    lustre.release(&file, wanted);
    assert!(lustre.release_waits());
    stand_in.refuse(libc::EOPNOTSUPP);
    let last = range(3 * block, block);
    assert!(matches!(lustre.fetch(&file, last), Advised::Fetched | Advised::AlreadyCached));
    let asked = |advice: u32, start: u64, end: u64| {
        format!("fd 1 flags 1 count 1 advice {advice} values 0 0 0 0 start {start} end {end}")
    };
    let lines = stand_in.lines();
    let expected = [
        "level 0".to_owned(),
        asked(1, block, 3 * block - 5),
        asked(2, block, 3 * block - 5),
        asked(1, 3 * block, 4 * block),
    ];
    assert_eq!(lines, expected);
}

#[test]
fn gpfs_is_asked_as_its_headers_say() {
    let Some((library, stand_in)) = StandIn::build("gpfs") else { return };
    let gpfs = Gpfs::of(library).expect("it has the function");
    let (_file, file, block) = blocks(20);
    assert!(!gpfs.observes_arrival(&file) && gpfs.release_waits());
    // A: few blocks. It takes two of three, and gets these back.
    stand_in.take(2);
    assert!(matches!(gpfs.fetch(&file, range(block + 5, 2 * block)), Advised::Fetched));
    // B: more blocks than a hint has room for.
    assert!(matches!(gpfs.fetch(&file, range(block, 9 * block)), Advised::Fetched));
    // C: a part, and all.
    gpfs.release(&file, range(block, block));
    gpfs.release(&file, range(0, 20 * block));
    // A refused hint is followed by the read, and nothing is given back.
    stand_in.refuse(libc::ENOSYS);
    assert!(matches!(gpfs.fetch(&file, range(0, 8 * block)), Advised::Fetched));
    let head = |bytes: u32, kind: u32| {
        format!("fd 1 total {} version 1 reserved 0 bytes {bytes} kind {kind}", bytes + 16)
    };
    let rest = block - 5;
    let eight: String = (0..8).map(|index| format!(" wants {index}:0+{block}")).collect();
    let expected = [
        format!("{} wants 1:5+{rest} wants 2:0+{block} wants 3:0+5", head(400, 1003)),
        format!("{} releases 1:5+{rest} releases 2:0+{block}", head(400, 1003)),
        format!("{} start {block} length {} write 0", head(32, 1001), 9 * block),
        format!("{} start {block} length {block}", head(24, 1002)),
        head(8, 1004),
        format!("{}{eight}", head(400, 1003)),
    ];
    assert_eq!(stand_in.lines(), expected);
}

#[test]
fn a_library_without_the_functions_is_no_back_end() {
    let Some((library, _)) = StandIn::build("gpfs") else { return };
    let why = Lustre::of(library).expect_err("it is another library");
    assert!(why.contains("llapi_ladvise"), "{why}");
    let why = Library::open(&["no-such-library.so"]).expect_err("there is none");
    assert!(why.contains("no-such-library.so"), "{why}");
}

#[test]
fn back_ends_are_found_by_their_kind() {
    for (_, kind) in BackendKind::ALL {
        match of_kind(kind) {
            Ok(backend) => assert_eq!(backend.kind(), kind),
            Err(why) => assert!(!why.is_empty() && kind != BackendKind::Posix, "{kind}"),
        }
    }
}
