"""Files, and the slow store that serves them."""

import os
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

import foretell

SIZES = {"one": 1, "small": 5000, "even": 1 << 20, "odd": (3 << 20) + 12345, "empty": 0}
KEYS = {"aws_access_key_id": "foretell", "aws_secret_access_key": "foretell-secret"}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of random bytes, in a bucket "data"."""
    folder = tmp_path_factory.mktemp("served")
    bucket = folder / "data"
    (bucket / "sub").mkdir(parents=True)
    source = random.Random(1)
    for name, size in SIZES.items():
        (bucket / name).write_bytes(source.randbytes(size))
    for number in range(100):
        (bucket / "sub" / f"{number}.bin").write_bytes(source.randbytes(1000 + number))
    return folder


@pytest.fixture(scope="session")
def data(folder: Path) -> Path:
    return folder / "data"


@pytest.fixture
def store(data: Path) -> foretell.Store:
    return foretell.Store(data, budget="4MiB")


class Served:
    """A slow store that runs."""

    def __init__(self, command: Path, folder: Path, *options: str) -> None:
        words = [str(command), "store", "serve", str(folder), *options]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.endpoint = self.process.stdout.readline().split()[0]

    @property
    def settings(self) -> dict[str, str]:
        return {"aws_endpoint": self.endpoint, **KEYS}

    @property
    def s3fs_options(self) -> dict[str, str]:
        """The same, as s3fs takes them."""
        return {
            "key": KEYS["aws_access_key_id"],
            "secret": KEYS["aws_secret_access_key"],
            "endpoint_url": self.endpoint,
        }

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


@pytest.fixture(scope="session")
def command() -> Path:
    """The command `foretell`: $FORETELL, or what was built last."""
    root = Path(__file__).parents[2]
    named = os.environ.get("FORETELL")
    if named:
        assert Path(named).is_file(), f"{named} ($FORETELL) is not there: cargo build -p foretell"
        return Path(named)
    target = root / os.environ.get("CARGO_TARGET_DIR", "target")
    built = [target / "release/foretell", target / "debug/foretell"]
    built = [path for path in built if path.exists()]
    if not built:
        pytest.skip(f"no foretell in {target}/debug or release: run `make build`, or set FORETELL")
    return max(built, key=lambda path: path.stat().st_mtime)


@pytest.fixture(scope="session")
def served(command: Path, folder: Path) -> Iterator[Served]:
    """Slow, and with faults of every kind."""
    served = Served(
        command,
        folder,
        *["--first-byte", "2ms", "--fail-503", "2%", "--reset", "2%", "--truncate", "2%"],
    )
    yield served
    served.stop()


@pytest.fixture(scope="session")
def slow(command: Path, folder: Path) -> Iterator[Served]:
    """Slow, and without faults, for clients that do not bear them; with a bucket "made" to write to."""
    (folder / "made").mkdir(exist_ok=True)
    served = Served(command, folder, "--first-byte", "2ms")
    yield served
    served.stop()


@pytest.fixture(scope="session")
def silent(command: Path, folder: Path) -> Iterator[Served]:
    """So slow that nothing comes."""
    served = Served(command, folder, "--first-byte", "600s")
    yield served
    served.stop()
