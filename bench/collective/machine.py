"""The machine: an emulated array, an MPI and its reader; and the same machine in `foretell sim collective`."""

import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
BLOCK_BYTES = 8192
PATTERNS = ["interleaved", "block-1d", "block-3d", "global"]
# How files lie on each disk: by the array (`--places`) and by `sim collective`.
LAYOUTS = {
    "sequential": ("apart", ["--layout", "sequential", "--apart"]),
    "aged": ("aged", ["--layout", "aged"]),
    "random": ("random", ["--layout", "random"]),
    "increasing": ("increasing", ["--layout", "increasing"]),
}
# A run that takes longer hangs: the slowest takes some 20 s of the array's clock.
PATIENCE_S = 240
# Calls in which the library tries both ways before `auto` decides, and the one in which it may still change.
TRIAL_CALLS = 7


class Mpi:
    """A compiler and a launcher of one MPI."""

    def __init__(self, name, bin_folder=None):
        self.name = name
        find = (lambda tool: shutil.which(tool, path=bin_folder)) if bin_folder else shutil.which
        self.compiler = find(f"mpicc.{name}") or find("mpicc")
        self.launcher = find(f"mpiexec.{name}") or find("mpiexec")
        if self.launcher and not bin_folder and not self.is_of_this_kind():
            self.compiler = self.launcher = None

    def is_of_this_kind(self):
        """Whether the launcher found is of the MPI asked for."""
        done = subprocess.run([self.launcher, "--version"], capture_output=True, text=True)
        return ("open" in (done.stdout + done.stderr).lower()) == (self.name == "openmpi")

    def start(self, processes):
        """The words before a program's own."""
        words = [self.launcher, "-n", str(processes)]
        if self.name == "openmpi":
            words[1:1] = ["--oversubscribe", *(["--allow-run-as-root"] if os.geteuid() == 0 else [])]
        return words

    def aggregators(self, count):
        """Hints by which as many processes read in a collective call, each a contiguous part."""
        if self.name == "openmpi":
            return ["--hint", f"num_aggregators={count}", "--hint", f"cb_nodes={count}"]
        hints = [f"cb_config_list=*:{count}", f"cb_nodes={count}", "romio_cb_read=enable"]
        return [word for hint in hints for word in ("--hint", hint)]


@contextlib.contextmanager
def locked(path):
    """Holds a lock file, if one is given, for measurements that must not overlap."""
    with open(path, "w") if path else contextlib.nullcontext() as file:
        if file:
            fcntl.flock(file, fcntl.LOCK_EX)
        yield


class Array:
    """A cold array over a folder. `served` has its figures after the end."""

    def __init__(self, machine, layout, order, data):
        self.machine, self.point, self.report = machine, machine.work / "mnt", machine.work / "array.json"
        self.point.mkdir(exist_ok=True)
        options = ["--disks", machine.disks, "--disk", machine.disk, "--stripe", BLOCK_BYTES, "--order", order]
        options += ["--outstanding", 1, "--time-scale", machine.scale, "--places", LAYOUTS[layout][0]]
        options += ["--portion", machine.blocks * BLOCK_BYTES, "--metadata", "off", "--json", self.report]
        self.command = [machine.foretell, "array", "mount", *map(str, options), str(data), str(self.point)]

    def __enter__(self):
        self.report.unlink(missing_ok=True)
        subprocess.run(self.command, check=True, stdout=subprocess.DEVNULL)
        return self

    def __exit__(self, *_):
        for _ in range(100):
            if not self.point.is_mount():
                break
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            subprocess.run([self.machine.foretell, "array", "unmount", self.point], **quiet)
            time.sleep(0 if not self.point.is_mount() else 0.1)
        self.served = json.loads(self.report.read_text()) if self.report.exists() else {}


class Method:
    """A way to read: its name, and for prefetching its depth. `None` is what the library chooses."""

    def __init__(self, name, depth=None):
        self.name, self.depth = name, depth

    def __str__(self):
        return self.name if self.depth is None else f"{self.name} {self.depth}"

    @property
    def simulated(self):
        """The method and depth of `sim collective`."""
        if self.name in ("informed", "advice"):
            return "prefetch", self.depth
        return {"read-ahead": "demand", "read-all": "two-phase", "two-phase": "two-phase"}.get(self.name, self.name), None


class Machine:
    """Everything that stays the same from run to run."""

    def __init__(self, given, mpi, work):
        self.foretell, self.mpi, self.work = given.foretell, mpi, work
        self.disk, self.scale = given.disk, given.scale
        self.processes, self.disks, self.blocks = given.processes, given.disks, given.blocks
        self.counted = given.portions
        self.reader, self.owners = work / "reader", work / "owners"
        self.compute_ms = {}

    def make(self):
        """Compiles the reader, and writes the drawn owners."""
        source = Path(__file__).with_name("reader.c")
        subprocess.run([self.mpi.compiler, "-O2", "-o", self.reader, source], check=True)
        shares = [block % self.processes for block in range(self.blocks)]
        random.Random(1).shuffle(shares)
        self.owners.write_text(" ".join(map(str, shares)) + "\n")

    def data(self, portions):
        """A folder with a file of so many portions."""
        folder = self.work / f"data-{portions}"
        if not folder.exists():
            folder.mkdir()
            subprocess.run([self.reader, "--make", folder / "f", "--blocks", str(self.blocks * portions)], check=True)
        return folder

    def simulate(self, layout, depths):
        """Rows of `sim collective`, by pattern, method and depth."""
        options = ["--procs", self.processes, "--disks", self.disks, "--disk", self.disk, "--files", self.counted]
        options += ["--file-size", self.blocks * BLOCK_BYTES, *LAYOUTS[layout][1]]
        # The array has no network of its own, and its disks need not wait until a block has been sent.
        options += ["--net-startup-ns", 0, "--net-bandwidth", "1TiB"]
        options += ["--pattern", ",".join([str(self.owners) if one == "global" else one for one in PATTERNS])]
        options += ["--method", "demand,two-phase,disk-directed,prefetch"]
        deepest = -(-self.blocks // self.processes)
        options += ["--sweep", "depth=" + ",".join(map(str, [*depths, deepest])), "--json", "-"]
        words = [self.foretell, "sim", "collective", *map(str, options)]
        rows = json.loads(subprocess.run(words, check=True, capture_output=True, text=True).stdout)
        found = {}
        for row in rows:
            pattern = "global" if row["pattern"] == str(self.owners) else row["pattern"]
            key = pattern, row["method"], row["depth"]
            found[key] = {name: row[name] for name in ("throughput_mib_s", "service_ms", "reading_s", "recommended_depth")}
            self.compute_ms[layout] = row["compute_ms"]
        return found

    def words(self, method, point, pattern, portions, layout):
        """The command line of a run, and its environment."""
        is_directed = method.name == "disk-directed"
        reader = {"demand": "demand", "read-ahead": "demand", "advice": "advise", "disk-directed": "disk-directed"}
        options = ["--file", point / "f", "--blocks", self.blocks, "--portions", portions]
        options += ["--pattern", "owners" if pattern == "global" else pattern, "--owners", self.owners]
        options += ["--method", reader.get(method.name, "read-all"), "--disks", self.disks]
        options += ["--compute-ms", self.compute_ms[layout] * self.scale]
        if method.name in ("demand", "advice", "informed"):
            options += ["--read-ahead", "off"]
        if method.name == "advice":
            options += ["--depth", method.depth]
        words = [*self.mpi.start(self.processes + (self.disks if is_directed else 0)), str(self.reader), *map(str, options)]
        words += self.mpi.aggregators(self.processes) if method.name == "two-phase" else []
        # The array and the manager go first: on a real machine they have processors of their own.
        words = ["nice", "-n", "10", *words]
        env = {**os.environ, "FORETELL_STATE": str(self.work / "state"), "FORETELL_DAEMON": ""}
        env |= {"OMPI_ALLOW_RUN_AS_ROOT": "1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1"}
        if method.name in ("informed", "auto"):
            env["FORETELL_MPI_METHOD"] = method.name
            if method.depth is not None:
                env["FORETELL_MPI_DEPTH"] = str(method.depth)
            # What is disclosed is what the MPI library says: the file is an argument too.
            run = ["run", "--mpi", "--no-learn", "--no-hint-args", "--observe", "none"]
            words = [self.foretell, *run, "--", *words]
        return words, env

    def measure(self, layout, pattern, method):
        """One run on a cold array; its figures, in the array's time."""
        # Until the trial is over; a depth of foretell's own choice grows for as many calls.
        uncounted = 1 + (TRIAL_CALLS if method.name == "auto" or str(method) == "informed" else 0)
        portions = uncounted + self.counted + 1
        order = "c-look" if method.name == "disk-directed" else "sstf"
        with Array(self, layout, order, self.data(portions)) as array:
            words, env = self.words(method, array.point, pattern, portions, layout)
            done = run(words, env)
        if done.returncode != 0:
            sys.exit(f"bench-collective: {layout}, {pattern}, {method}: the program fails:\n{done.stderr.strip()}")
        told, served = json.loads(done.stdout), array.served
        opened, had = ([second / self.scale for second in told[key]] for key in ("opened_s", "had_s"))
        elapsed = opened[-1] - opened[uncounted]
        reading = [end - begin for begin, end in zip(opened, had, strict=True)][uncounted:-1]
        file_bytes = self.blocks * BLOCK_BYTES
        iterations = [later - sooner for sooner, later in zip(opened, opened[1:], strict=False)][uncounted:]
        return {
            "throughput_mib_s": file_bytes * self.counted / 2**20 / elapsed,
            "median_mib_s": file_bytes / 2**20 / statistics.median(iterations),
            "reading_s": sum(reading),
            "service_ms": 1e3 * sum(one["busy_s"] for one in served["disks"]) / (self.blocks * portions),
            "requests": served["requests"],
            "bytes_share": served["bytes"] / (file_bytes * portions),
            "mpi": told["mpi"],
        }


def run(words, env):
    """Runs a program and all that it starts, and ends all of it if it takes too long."""
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    process = subprocess.Popen(words, env=env, start_new_session=True, stdin=subprocess.DEVNULL, **pipes)
    try:
        out, err = process.communicate(timeout=PATIENCE_S)
    except BaseException:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        raise
    return subprocess.CompletedProcess(words, process.returncode, out, err)
