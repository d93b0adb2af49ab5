"""Text search (TIP 1995, section 3.2): tre-agrep searches all files of four folders for a string that is not there.

The folders have as many files and blocks of 8 KiB as the paper's. Sizes within a folder are drawn; the paper has only sums.
"""

import random
from pathlib import Path
from typing import ClassVar

from applications.driver import Application, Outcome, World

BLOCK_BYTES = 8192
# Files and blocks of 8 KiB.
TREES = {"wood": (224, 358), "man3": (1352, 1556), "incl": (193, 260), "kern": (107, 183)}
WORDS = "the of a lathe plane chisel glue oak struct int return include define void char man page see also".split()
NEEDLE = "xylophone quartz"


class Agrep(Application):
    """Four searches, one after another, as the paper adds them up."""

    name = "agrep"
    title = "agrep: four searches (1995, figure 1 a)"
    arms: ClassVar = ["plain", "foretell run"]
    # Files are scattered over the disks: the paper's did not lie in the order of the arguments either.
    array_options: ClassVar = ["--disk", "hp97560", "--layout", "aged"]
    commands: ClassVar = {"tre-agrep": "tre-agrep"}

    def make(self, folder: Path) -> None:
        """Lines of words in files of at least a part of a block each."""
        drawn = random.Random(1995)
        text = "\n".join(" ".join(drawn.choices(WORDS, k=drawn.randrange(3, 12))) for _ in range(20_000)).encode()
        for tree, (files, blocks) in TREES.items():
            if self.is_small:
                files, blocks = max(files // 20, 4), max(blocks // 20, 6)
            (folder / tree).mkdir()
            lengths = [1] * files
            for _ in range(blocks - files):
                lengths[drawn.randrange(files)] += 1
            for number, length in enumerate(lengths):
                size = (length - 1) * BLOCK_BYTES + drawn.randrange(BLOCK_BYTES // 4, BLOCK_BYTES + 1)
                at = drawn.randrange(len(text) - size)
                (folder / tree / f"{tree}{number:04}.txt").write_bytes(text[at : at + size - 1] + b"\n")

    def run(self, arm: str, world: World) -> Outcome:
        """All four searches; each is a process, and its arguments name the files."""
        words = [] if arm == "plain" else [world.foretell, "run", "--quiet", "--no-learn", "--"]
        total = Outcome(0, "")
        for tree in TREES:
            # Its names come from the folder behind the array, as the shell of the paper had listed them before.
            names = sorted(f"{tree}/{path.name}" for path in (world.array.backing / tree).iterdir())
            one = world.measure([*words, "tre-agrep", NEEDLE, *names], codes=(1,))
            total.parts[tree] = one.seconds
            total.seconds += one.seconds
            total.output_sha256 += one.output_sha256
        return total

    def paper(self, disks: int) -> dict[str, str]:
        """Figure 1 a is lost in our copy; the text has the range for four disks and more."""
        return {"foretell run": "80–85"} if disks >= 4 else {"foretell run": "63"} if disks == 1 else {}


APPLICATIONS = [Agrep]
