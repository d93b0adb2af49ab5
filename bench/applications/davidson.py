"""Davidson's algorithm (TIP 1995, sections 3.6 and 6.1): a matrix that does not fit in the cache is read in each iteration.

The matrix is as many times larger than the paper's 17 MB as `SCALE` says, and the cache than its 12 MB. A control group bounds
what all programs of a run have of the page cache, without hints and with: the kernel replaces by its own rules there.
"""

import array
import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import ClassVar

from applications import memory
from applications.driver import HERE, Application, Column, Failed, Outcome, World, last_line

SCALE = 4
MB = 1 << 20
MATRIX_MB, CACHE_MB = 17, 12
ITERATIONS = 10
ENTRIES = 16384
PIECE_BYTES = ENTRIES * 16
SIZE = 4800
SOLVER = HERE / "programs/davidson.py"


def make_matrix(path: Path, pieces: int, size: int = SIZE) -> None:
    """A matrix with small entries at drawn places and a diagonal that rises."""
    drawn = random.Random(17)
    with open(path, "wb") as file:
        for _ in range(pieces):
            rows = array.array("i", (drawn.randrange(size - 1) for _ in range(ENTRIES)))
            columns = array.array("i", (drawn.randrange(row + 1, size) for row in rows))
            values = array.array("d", ((drawn.random() - 0.5) / 64 for _ in rows))
            for part in (rows, columns, values):
                if sys.byteorder == "big":
                    part.byteswap()
                part.tofile(file)
    diagonal = array.array("d", (1.0 + at / 8 + drawn.random() / 64 for at in range(size)))
    if sys.byteorder == "big":
        diagonal.byteswap()
    path.with_name(f"{path.name}.diagonal").write_bytes(diagonal.tobytes())


class Davidson(Application):
    """So many disks, and a cache of 12/17 of the matrix."""

    name = "davidson"
    title = "Davidson: a matrix of 17/12 of the cache, read in ten iterations (1995, figure 10 a)"
    arms: ClassVar = ["plain", "foretell run --release, hints"]
    packages: ClassVar = ["numpy"]
    # Disks as fast as other applications' would leave nothing but waiting: the program computes for a second or two.
    time_factor = 0.125

    def missing(self) -> str | None:
        """It also needs a control group, and the library that is built with foretell."""
        if not self.library().exists():
            return f"there is no {self.library()}; `make build` builds it"
        return super().missing() or memory.missing()

    def library(self) -> Path:
        """The C library of hints."""
        return Path(self.tools.foretell).with_name("libforetell.so")

    @property
    def scale_mb(self) -> float:
        """Bytes for each MB of the paper."""
        return MB / 2 if self.is_small else MB * SCALE

    def make(self, folder: Path) -> None:
        """The matrix and its diagonal."""
        make_matrix(folder / "matrix", int(MATRIX_MB * self.scale_mb) // PIECE_BYTES)

    def cache_mb(self, column: Column) -> float:
        """The paper's size of the cache."""
        return CACHE_MB

    def run(self, arm: str, world: World) -> Outcome:
        """One computation in a control group."""
        cache_bytes = int(self.cache_mb(world.column) * self.scale_mb)
        solver = [world.python, SOLVER, world.array.path / "matrix", 4 if self.is_small else ITERATIONS, "--wait"]
        words = solver
        if arm != self.arms[0]:
            run = [world.foretell, "run", "--quiet", "--no-learn", "--no-hint-args", "--release"]
            words = [*run, "--budget", budget_of(cache_bytes), "--", *solver, "--hints", self.library()]
        with memory.Group() as group:
            return bounded(world, words, group, cache_bytes)

    def paper(self, disks: int) -> dict[str, str]:
        """Section 6.1."""
        return {self.arms[1]: ">30" if disks == 1 else ">15"}


def budget_of(cache_bytes: int) -> int:
    """What foretell has of the cache: three quarters, as `--release` takes of available memory by itself.

    The rest is for pages that the kernel reads ahead, and for those on their way out. If it is too little, the kernel evicts
    what foretell keeps, and all is read twice.
    """
    return cache_bytes * 3 // 4


def bounded(world: World, words: list[object], group: memory.Group, cache_bytes: int) -> Outcome:
    """Runs a solver with --wait in a group, which is bounded when it is about to read; the time begins there."""
    with tempfile.TemporaryFile("w+") as output:
        pipes = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "stdout": output, "text": True}
        with world.running(words, preexec_fn=group.enter, **pipes) as process:
            line = process.stderr.readline()
            if line != "ready\n":
                raise Failed(f"the solver has not begun: {last_line(line + process.stderr.read())}")
            group.bound(cache_bytes)
            began = time.perf_counter()
            _, errors = process.communicate("\n", timeout=600)
            seconds = time.perf_counter() - began
            if process.returncode != 0:
                raise Failed(f"the solver has ended with {process.returncode}: {last_line(errors)}")
        output.seek(0)
        return Outcome(seconds, output.read().strip())


class DavidsonByCache(Davidson):
    """One disk, and caches of several sizes."""

    name = "davidson-by-cache"
    title = "Davidson: by the size of the cache, of a matrix of 17 MB in the paper's scale, one disk (1995, figure 10 b)"

    def columns(self, disks: list[int]) -> list[Column]:
        """The sizes of the figure, as far as they differ."""
        sizes = [12, 18] if self.is_small else [4, 8, 10, 12, 14, 16, 18, 20]
        return [Column(f"{size} MB", 1, size) for size in sizes]

    def cache_mb(self, column: Column) -> float:
        """The column's."""
        return float(column.setting)

    def paper_at(self, column: Column) -> dict[str, str]:
        """The figure is lost in our copy; the text has one cache of it."""
        return {self.arms[1]: ">30"} if column.setting == CACHE_MB else {}


APPLICATIONS = [Davidson, DavidsonByCache]
