"""Runs the papers' applications on cold emulated arrays: arms take turns, and their outputs must be the same.

Each module of this folder that has applications lists their classes, subclasses of `Application`, in `APPLICATIONS`. For each
round, column and arm, the driver mounts a new array over the application's data, so that nothing of it is in memory, calls
`Application.run`, and unmounts. The mount point is always the same, since what foretell learns has paths.
"""

import dataclasses
import hashlib
import importlib
import json
import os
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

HERE = Path(__file__).resolve().parent
# Modules are run in this order; others follow.
ORDER = ["agrep", "slices", "postgres", "speech", "davidson", "contention"]
QUIET: dict[str, Any] = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}


class Failed(Exception):
    """An application cannot be measured further. The message is one line."""


@dataclasses.dataclass
class Outcome:
    """One run of an arm.

    `parts` has the seconds of parts of the run, which get rows of their own. `notes` may have other figures.
    """

    seconds: float
    output_sha256: str
    requests: int | None = None
    parts: dict[str, float] = dataclasses.field(default_factory=dict)
    notes: dict[str, Any] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Column:
    """A column of an application's table: so many disks, and perhaps another setting."""

    label: str
    disks: int
    setting: Any = None


@dataclasses.dataclass
class Tools:
    """What all applications are given."""

    foretell: str
    python: str
    is_small: bool
    time_scale: float


class Array:
    """A cold emulated array over `backing` at `path`. `report` has its statistics after the end."""

    def __init__(self, tools: Tools, backing: Path, path: Path, disks: int, options: Sequence[str] = ()) -> None:
        self.foretell, self.backing, self.path, self.disks = tools.foretell, backing, path, disks
        self.report: dict[str, Any] = {}
        self._statistics = path.with_name(f"{path.name}.json")
        scale = ["--time-scale", str(tools.time_scale), "--json", str(self._statistics)]
        self._mount = [tools.foretell, "array", "mount", "--disks", str(disks), *options, *scale, str(backing), str(path)]

    def __enter__(self) -> "Array":
        self.path.mkdir(exist_ok=True)
        try:
            done = subprocess.run(self._mount, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            if done.returncode != 0:
                raise Failed(f"the array cannot be mounted: {last_line(done.stderr)}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        # A program that has just ended may hold the mount for a moment.
        for _ in range(100):
            subprocess.run([self.foretell, "array", "unmount", str(self.path)], **QUIET)
            if not os.path.ismount(self.path):
                break
            time.sleep(0.1)
        else:
            subprocess.run(["fusermount3", "-uqz", str(self.path)], **QUIET)
        # The array writes its statistics when it has ended.
        for _ in range(50):
            if self._statistics.exists() and (text := self._statistics.read_text()).endswith("}\n"):
                self.report = json.loads(text)
                break
            time.sleep(0.02)
        self._statistics.unlink(missing_ok=True)


class World:
    """What one run of an arm gets: an array, a folder `work` for anything else, and `state` for what foretell learns.

    `work` is new for each run. `state` is new for each round and column, so a later arm of the round finds what an earlier
    one has learned.
    """

    def __init__(self, tools: Tools, array: Array, column: Column, work: Path, state: Path) -> None:
        self.foretell, self.python, self.tools = tools.foretell, tools.python, tools
        self.array, self.column, self.work, self.state = array, column, work, state

    def environment(self, extra: dict[str, str] | None = None) -> dict[str, str]:
        """The environment of programs: nothing of the caller's foretell, and no daemon."""
        own = {name: value for name, value in os.environ.items() if not name.startswith("FORETELL_")}
        return {**own, "FORETELL_STATE": str(self.state), "FORETELL_DAEMON": "", **(extra or {})}

    @contextmanager
    def running(
        self, words: Sequence[object], *, env: dict[str, str] | None = None, **others: Any
    ) -> Iterator[subprocess.Popen[bytes]]:
        """A program in a session of its own, which has ended at the end, with all that it has started in that session."""
        command = [str(word) for word in words]
        others = {"cwd": self.array.path, "stdin": subprocess.DEVNULL, **others}
        process = subprocess.Popen(command, env=self.environment(env), start_new_session=True, **others)
        try:
            yield process
        finally:
            for wanted in (signal.SIGTERM, signal.SIGKILL):
                try:
                    os.killpg(process.pid, wanted)
                    process.wait(timeout=5)
                except (ProcessLookupError, subprocess.TimeoutExpired):
                    pass
            process.wait()

    def measure(
        self,
        words: Sequence[object],
        *,
        env: dict[str, str] | None = None,
        stdin: Path | None = None,
        codes: Sequence[int] = (0,),
        limit_s: float = 600,
        **others: Any,
    ) -> Outcome:
        """Runs a program in the array's folder, with its output in a file. It must end with one of `codes`."""
        name = Path(str(words[0])).name if words[0] != self.foretell else "foretell run"
        with tempfile.TemporaryFile() as output, tempfile.TemporaryFile() as errors, open(stdin or os.devnull, "rb") as given:
            others = {"stdin": given, "stdout": output, "stderr": errors, **others}
            began = time.perf_counter()
            with self.running(words, env=env, **others) as process:
                try:
                    code = process.wait(timeout=limit_s)
                except subprocess.TimeoutExpired:
                    raise Failed(f"{name} has not ended after {limit_s:.0f} s") from None
                seconds = time.perf_counter() - began
            if code not in codes:
                errors.seek(0)
                raise Failed(f"{name} has ended with {code}: {last_line(errors.read().decode(errors='replace'))}")
            output.seek(0)
            return Outcome(seconds, hashlib.file_digest(output, "sha256").hexdigest())


class Application:
    """An application of the papers. Subclasses give `make` and `run`, and override what differs."""

    name: ClassVar[str]
    title: ClassVar[str]
    # The first is the reference, to which the others are compared.
    arms: ClassVar[list[str]] = ["plain", "foretell"]
    array_options: ClassVar[list[str]] = ["--disk", "hp97560", "--layout", "sequential"]
    # Commands and Python packages without which it cannot be run, with the Debian package of each command.
    commands: ClassVar[dict[str, str]] = {}
    packages: ClassVar[list[str]] = []
    # "saved": percent of the reference's time; "speed-up": how many times as fast; "": the figures themselves.
    compared: ClassVar[str] = "saved"
    # The unit of figures, and the note of an outcome that is shown in place of its seconds.
    unit: ClassVar[str] = "s"
    figure: ClassVar[str] = ""

    # Multiplies the time scale. Less than 1 makes disks faster, so that the program's processor time counts beside theirs.
    time_factor: ClassVar[float] = 1.0

    def __init__(self, tools: Tools) -> None:
        self.tools = dataclasses.replace(tools, time_scale=tools.time_scale * self.time_factor)
        self.is_small = tools.is_small

    def missing(self) -> str | None:
        """One line: what cannot be had here, and how to get it."""
        for command, package in self.commands.items():
            if shutil.which(command) is None:
                return f"{command} is not installed (Debian: {package})"
        for package in self.packages:
            found = subprocess.run([self.tools.python, "-c", f"import {package}"], cwd="/", **QUIET)
            if found.returncode != 0:
                return f"{self.tools.python} has no package {package} (--python names another; pip install {package})"
        return None

    def columns(self, disks: list[int]) -> list[Column]:
        """The columns of its table. By default, one for each number of disks."""
        return [Column(f"{count} disk{'s' if count > 1 else ''}", count) for count in disks]

    def make(self, folder: Path) -> None:
        """Makes the data in an empty folder, which arrays then serve. The same data each time."""
        raise NotImplementedError

    def run(self, arm: str, world: World) -> Outcome:
        """One run of an arm on a cold array."""
        raise NotImplementedError

    def finish(self, outcome: Outcome, report: dict[str, Any]) -> None:
        """Adds what only the array's statistics tell, after it was unmounted."""

    def paper(self, disks: int) -> dict[str, str]:
        """The paper's figures for so many disks, by "ARM" or "PART, ARM": what `compared` names."""
        return {}

    def paper_at(self, column: Column) -> dict[str, str]:
        """The paper's figures for a column."""
        return self.paper(column.disks)

    def mean(self, outcomes: list[Outcome]) -> float:
        """The figure of a run's outcomes: the median."""
        return median([self.figure_of(outcome) for outcome in outcomes])

    def figure_of(self, outcome: Outcome) -> float:
        """What is shown of an outcome."""
        return float(outcome.notes[self.figure]) if self.figure else outcome.seconds


def median(values: Sequence[float]) -> float:
    """The median; of an even number, the mean of the middle two."""
    ordered, half = sorted(values), len(values) // 2
    return ordered[half] if len(values) % 2 else (ordered[half - 1] + ordered[half]) / 2


def last_line(text: str) -> str:
    """The last line that says something."""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else "without a message"


def applications() -> dict[str, type[Application]]:
    """All applications by name."""
    names = [path.stem for path in HERE.glob("*.py")]
    names.sort(key=lambda name: (ORDER.index(name) if name in ORDER else len(ORDER), name))
    found = {}
    for name in names:
        module = importlib.import_module(f"applications.{name}")
        found.update({one.name: one for one in getattr(module, "APPLICATIONS", [])})
    return found


class Measured:
    """All outcomes of an application, by column and arm."""

    def __init__(self, application: Application, columns: list[Column]) -> None:
        self.application, self.columns = application, columns
        self.outcomes: dict[tuple[str, str], list[Outcome]] = {}
        self.reports: list[dict[str, Any]] = []

    def of(self, column: Column, arm: str) -> list[Outcome]:
        """Outcomes of an arm in a column, one for each round."""
        return self.outcomes[column.label, arm]

    def add(self, column: Column, arm: str, outcome: Outcome, report: dict[str, Any]) -> None:
        """Takes an outcome, whose output must be that of all others in its column."""
        outcome.requests = report.get("requests")
        first = next((found[0] for (label, _), found in self.outcomes.items() if label == column.label), outcome)
        if first.output_sha256 != outcome.output_sha256:
            raise Failed(f"{column.label}: the output of {arm!r} differs")
        self.outcomes.setdefault((column.label, arm), []).append(outcome)

    def as_json(self) -> dict[str, Any]:
        """All figures."""
        runs = [
            {"column": label, "arm": arm, **dataclasses.asdict(outcome)}
            for (label, arm), outcomes in self.outcomes.items()
            for outcome in outcomes
        ]
        told = [dataclasses.asdict(column) for column in self.columns]
        return {"application": self.application.name, "columns": told, "arms": self.application.arms, "runs": runs}


def made(application: Application, data: Path) -> Path:
    """The folder with the application's data, which is made unless it is there and complete."""
    folder = data / f"{application.name}{'-small' if application.is_small else ''}"
    # Other programs that make the data have other data.
    sources = [*HERE.rglob("*.py"), *HERE.rglob("*.sql"), *(HERE.parents[1] / "examples/slices").glob("*.py")]
    version = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources))).hexdigest()
    marker = folder.with_name(f"{folder.name}.complete")
    if not (marker.exists() and marker.read_text() == version and folder.is_dir()):
        marker.unlink(missing_ok=True)
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        application.make(folder)
        marker.write_text(version)
    return folder


def in_memory(folder: Path) -> None:
    """Reads all files, so that the first arm does not wait for the disk behind the array."""
    for path in folder.rglob("*"):
        if path.is_file() and not path.is_symlink():
            with path.open("rb") as file:
                while file.read(1 << 20):
                    pass


def measured(application: Application, data: Path, own: Path, disks: list[int], rounds: int, tell: Any) -> Measured:
    """Runs all arms of an application; `tell` is called with a line for each run."""
    backing = made(application, data)
    in_memory(backing)
    found = Measured(application, application.columns(disks))
    for number in range(rounds):
        for column in found.columns:
            with tempfile.TemporaryDirectory(dir=own) as state:
                for arm in application.arms:
                    with tempfile.TemporaryDirectory(dir=own) as work:
                        array = Array(application.tools, backing, own / "array", column.disks, application.array_options)
                        with array:
                            world = World(application.tools, array, column, Path(work), Path(state))
                            outcome = application.run(arm, world)
                    application.finish(outcome, array.report)
                    found.add(column, arm, outcome, array.report)
                    figure = f"{application.figure_of(outcome):.2f} {application.unit}"
                    tell(f"{application.name}, {column.label}, round {number + 1}: {arm}: {figure}")
    return found
