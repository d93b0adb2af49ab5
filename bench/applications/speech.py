"""Speech (TIP 1995, section 3.5): pocketsphinx recognises a recording, with its models on the array.

The program is the one that anybody would write with the library, and nothing in it is changed or tells of reads. So the first
run finds out what there is to be read, and the second run has learned it. The recording is spoken by flite.
"""

import shutil
import subprocess
from pathlib import Path
from typing import ClassVar

from applications.driver import HERE, QUIET, Application, Failed, Outcome, World

SAID = (
    "The file system reads what the program needs before the program asks for it. Go forward ten meters, and turn to the left. "
    "A disk that waits for its next request has time that nobody gives back. Many small requests make many disks work at once. "
    "The weather in the north will be cold and dry tomorrow, with some wind from the east in the afternoon."
)


class Speech(Application):
    """Plain, and the first and the second run."""

    name = "speech"
    title = "speech: pocketsphinx, unmodified (1995, figure 2 b)"
    arms: ClassVar = ["plain", "foretell run, first", "foretell run, second"]
    array_options: ClassVar = ["--disk", "hp97560", "--layout", "aged"]
    commands: ClassVar = {"flite": "flite"}
    packages: ClassVar = ["pocketsphinx"]

    def make(self, folder: Path) -> None:
        """The models of the package, and a recording of some 18 s."""
        told = subprocess.run(
            [self.tools.python, "-c", "import pocketsphinx; print(pocketsphinx.get_model_path('en-us'))"],
            capture_output=True,
            text=True,
            cwd="/",
        )
        if told.returncode != 0:
            raise Failed("pocketsphinx does not tell where its models are")
        shutil.copytree(told.stdout.strip(), folder / "model/en-us")
        said = " ".join(SAID.split()[: 8 if self.is_small else None])
        recording = folder / "recording.wav"
        done = subprocess.run(["flite", "-voice", "slt", "-t", said, "-o", str(recording)], **QUIET)
        if done.returncode != 0 or not recording.exists():
            raise Failed("flite has not spoken (it needs the voice slt)")

    def run(self, arm: str, world: World) -> Outcome:
        """One recognition."""
        if arm == self.arms[0]:
            # The interpreter and its modules are not what is measured.
            world.measure([world.python, "-c", "import pocketsphinx, wave"])
        words = [world.python, HERE / "programs/recognise.py", world.array.path / "recording.wav"]
        run = [] if arm == self.arms[0] else [world.foretell, "run", "--quiet", "--"]
        return world.measure([*run, *words], env={"POCKETSPHINX_PATH": str(world.array.path / "model")})

    def paper(self, disks: int) -> dict[str, str]:
        """Section 3.5: up to 20 % by hints of the program."""
        return {self.arms[2]: "≤20"}


APPLICATIONS = [Speech]
