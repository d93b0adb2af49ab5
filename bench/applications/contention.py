"""Davidson with hints beside a program without (TIP 1995, section 6.2, figure 11): who gets the cache?

Both read through one `foretell mount`, and its budget is the size of the cache. They read with direct I/O, and a control group
leaves the mount no page cache for the array's files. The other program reads a file of the paper's 10 MB again and again. When
it has ended, Davidson's miss ratio is the bytes of the matrix that the array has read, divided by those that Davidson has read.
Each file lies on a disk of its own, since the array counts by disk.
"""

import subprocess
import time
from pathlib import Path
from typing import Any, ClassVar

from applications import memory
from applications.davidson import MATRIX_MB, PIECE_BYTES, SOLVER, Davidson, make_matrix
from applications.driver import Column, Failed, Outcome, World, last_line

OTHER_MB = 10
PASSES = 12
STRIPE_BYTES = 128 << 20
# Of the mount's process, beside its budget: for frames, threads, and reads of the array under way.
OVERHEAD_BYTES = 12 << 20
READ_AGAIN = 'for pass in $(seq "$1"); do dd if="$2" bs=128k iflag=direct status=none; done | sha256sum'


class Contention(Davidson):
    """Sizes of the cache. The arms are Davidson without hints, and with."""

    name = "contention"
    title = "Davidson's miss ratio beside a program without hints (1995, figure 11)"
    arms: ClassVar = ["without hints", "with hints"]
    array_options: ClassVar = ["--disk", "hp97560", "--layout", "sequential", "--stripe", str(STRIPE_BYTES)]
    compared = ""
    unit = "ratio"
    figure = "miss_ratio"

    def columns(self, disks: list[int]) -> list[Column]:
        """The figure's sizes. Two disks, one for each file."""
        sizes = [9, 19] if self.is_small else [8, 9, 10, 11, 12, 13, 15, 17, 19]
        return [Column(f"{size} MB", 2, size) for size in sizes]

    def make(self, folder: Path) -> None:
        """The matrix, and the other file on the next disk: the layout takes them in the order of their names."""
        make_matrix(folder / "matrix", int(MATRIX_MB * self.scale_mb) // PIECE_BYTES)
        with open(folder / "padding", "wb") as padding:
            padding.truncate(STRIPE_BYTES)
        content = (folder / "matrix").read_bytes()[::-1]
        (folder / "repeated").write_bytes(content[: int(OTHER_MB * self.scale_mb)])

    def run(self, arm: str, world: World) -> Outcome:
        """Both programs, until the other one has ended."""
        budget = int(world.column.setting * self.scale_mb)
        mount, errors = world.work / "mount", world.work / "errors"
        mount.mkdir()
        serve = [world.foretell, "mount", "--foreground", "--block", "16KiB", "--budget", budget, world.array.path, mount]
        with memory.Group() as group, open(errors, "wb") as told:
            with world.running(serve, preexec_fn=group.enter, stdout=told, stderr=told) as server:
                deadline = time.monotonic() + 20
                while not (mount / ".foretell").exists():
                    if server.poll() is not None or time.monotonic() > deadline:
                        raise Failed(f"the mount has not begun: {last_line(errors.read_text())}")
                    time.sleep(0.02)
                group.bound(budget + OVERHEAD_BYTES)
                try:
                    return self.beside(world, mount, arm)
                finally:
                    subprocess.run([world.foretell, "unmount", str(mount)], capture_output=True)

    def beside(self, world: World, mount: Path, arm: str) -> Outcome:
        """Runs the other program beside Davidson."""
        hints = ["--hints", "mount"] if arm == self.arms[1] else []
        words = [world.python, SOLVER, mount / "matrix", 1000, "--direct", "--wait", *hints]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stderr": subprocess.PIPE, "stdout": subprocess.DEVNULL}
        with world.running(words, **pipes) as solver:
            line = solver.stderr.readline()
            if line != b"ready\n":
                raise Failed(f"the solver has not begun: {last_line((line + solver.stderr.read()).decode())}")
            before = read_bytes(solver.pid)
            solver.stdin.write(b"\n")
            solver.stdin.flush()
            passes = 3 if self.is_small else PASSES
            outcome = world.measure(["sh", "-c", READ_AGAIN, "-", passes, mount / "repeated"])
            if solver.poll() is not None:
                raise Failed(f"the solver has ended with {solver.returncode}: {last_line(solver.stderr.read().decode())}")
            outcome.notes["davidson_bytes"] = read_bytes(solver.pid) - before
        return outcome

    def finish(self, outcome: Outcome, report: dict[str, Any]) -> None:
        """The miss ratio, from what the disk of the matrix has read."""
        outcome.notes["matrix_bytes"] = report["disks"][0]["bytes"]
        outcome.notes["miss_ratio"] = outcome.notes["matrix_bytes"] / max(outcome.notes["davidson_bytes"], 1)

    def paper_at(self, column: Column) -> dict[str, str]:
        """The plot is lost in our copy; the text has one size."""
        return {self.arms[1]: "~1.00"} if column.setting == 12 else {}


def read_bytes(pid: int) -> int:
    """What a process has read."""
    return int(Path(f"/proc/{pid}/io").read_text().split("rchar:")[1].split()[0])


APPLICATIONS = [Contention]
