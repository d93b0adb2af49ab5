"""Planes of a cube in an HDF5 file (XDataSlice; TIP 1995, section 3.3, and TIP 1994, section 3.2), read with h5py.

`examples/slices/make_cube.py` makes the cubes, with chunks in the order of the papers. With a stripe unit of 64 KiB, all 1,024
chunks of an X-Y plane would lie on the same one of 2, 4 or 8 disks. In the papers' file system, addresses and cylinder groups
lie between the data of a large file; here an overview of 64 KiB after each slab moves the next slab by one disk.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import ClassVar

from applications.driver import Application, Outcome, World

ROOT = Path(__file__).resolve().parents[2]
MAKE = ROOT / "examples/slices/make_cube.py"
PROGRAM = Path(__file__).with_name("programs") / "slices.py"
# The package is used where its compiled part lies, if it is not installed.
PATH = {"PYTHONPATH": ":".join(filter(None, [str(ROOT / "python"), os.environ.get("PYTHONPATH", "")]))}
# The axis that a plane stands on, and where: a random one of those places, the same for all arms.
PLANES = {"X-Y": (2, 0.563), "X-Z": (1, 0.437), "Y-Z": (0, 0.424)}


class Slices(Application):
    """One plane in each direction, each read by a process of its own, whose start does not count."""

    name = "slices"
    title = "slices: 512³ values in chunks of 8 KiB (1995, figure 1 c)"
    arms: ClassVar = ["plain", "disclosed"]
    compared = "speed-up"
    side, chunks = 512, "16x16x8"

    def missing(self) -> str | None:
        """What cannot be imported."""
        for package in ["h5py", "foretell.disclose"]:
            words = [self.tools.python, "-c", f"import {package}"]
            done = subprocess.run(words, env={**os.environ, **PATH}, cwd="/", capture_output=True)
            if done.returncode != 0:
                return f"{self.tools.python} has no package {package} (scripts/python-env makes one: --python .venv/bin/python)"
        return None

    def make(self, folder: Path) -> None:
        """The cube."""
        side = "64" if self.is_small else str(self.side)
        words = [self.tools.python, str(MAKE), str(folder / "cube.h5"), "--side", side, "--chunks", self.chunks]
        subprocess.run(words, check=True, stdout=sys.stderr)

    def run(self, arm: str, world: World) -> Outcome:
        """The three planes, one after another."""
        run = [world.foretell, "run", "--quiet", "--no-learn", "--"] if arm == "disclosed" else []
        total, sums = Outcome(0, ""), []
        for plane, (axis, share) in PLANES.items():
            report = world.work / f"{plane}.json"
            words = [*run, world.python, PROGRAM, world.array.path / "cube.h5", axis, share, report]
            world.measure([*words, "--disclose"] if run else words, env=PATH)
            told = json.loads(report.read_text())
            total.parts[plane] = told["seconds"]
            total.seconds += told["seconds"]
            sums.append(told["sha256"])
        total.output_sha256 = " ".join(sums)
        return total

    def paper(self, disks: int) -> dict[str, str]:
        """Section 3.3 has 15 s without hints for X-Y planes and about 2 s with them; the figure, with its disks, is lost."""
        return {"X-Y, disclosed": "7.5"} if disks == 15 else {}


class Slices300(Slices):
    """The data set of 1994, whose cube is smaller."""

    name = "slices-300"
    title = "slices: 300³ values in chunks of 8 KiB (1994, table 3)"
    side = 300

    def paper(self, disks: int) -> dict[str, str]:
        """Table 3 has one to four disks."""
        known = {1: ("1.04", "1.00", "1.02"), 2: ("2.41", "1.39", "1.23"), 4: ("3.69", "1.43", "1.19")}
        return {f"{plane}, disclosed": value for plane, value in zip(PLANES, known.get(disks, ()))}


class SlicesModern(Slices):
    """Chunks as files have them today."""

    name = "slices-modern"
    title = "slices: 512³ values in chunks of 1 MiB (64³ values)"
    chunks = "64x64x64"

    def paper(self, disks: int) -> dict[str, str]:
        """The papers have no such chunks."""
        return {}


APPLICATIONS = [Slices, Slices300, SlicesModern]
