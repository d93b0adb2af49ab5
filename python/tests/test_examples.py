"""The examples of disclosure, on data that is made here."""

import io
import json
import os
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"
NUMBERS = np.random.default_rng(1).integers(0, 1000, (300, 50))

Made = tuple[list[str], float]
"""The arguments of an example, and the figure that it prints."""


def files(folder: Path) -> Made:
    for number in range(30):
        (folder / str(number)).write_bytes(bytes(1000 * number))
    return [str(folder)], 1000 * sum(range(30))


def npy(folder: Path) -> Made:
    np.save(folder / "a.npy", NUMBERS)
    return [str(folder / "a.npy")], float(NUMBERS.sum())


def parquet(folder: Path) -> Made:
    pa = pytest.importorskip("pyarrow")
    table = pa.table({"a": NUMBERS.ravel(), "b": -NUMBERS.ravel()})
    pytest.importorskip("pyarrow.parquet").write_table(
        table, folder / "a.parquet", row_group_size=999
    )
    return [str(folder / "a.parquet"), "b"], -float(NUMBERS.sum())


def root(folder: Path) -> Made:
    uproot = pytest.importorskip("uproot")
    with uproot.recreate(folder / "a.root") as file:
        file.mktree("events", {"x": "f8", "y": "f8"})
        for part in NUMBERS:
            file["events"].extend({"x": part * 0.5, "y": part * 2.0})
    return [str(folder / "a.root"), "events", "y"], float(NUMBERS.mean() * 2)


def safetensors(folder: Path) -> Made:
    save = pytest.importorskip("safetensors.numpy").save_file
    save({f"{at}.weight": NUMBERS + at for at in range(12)}, folder / "a.safetensors")
    squares = [float(((NUMBERS + at) ** 2).sum()) for at in [1, 10, 11]]
    return [str(folder / "a.safetensors"), "1"], sum(squares)


def tar(folder: Path) -> Made:
    with tarfile.open(folder / "a.tar", "w") as archive:
        for number in range(30):
            member = tarfile.TarInfo(f"{number}.bin")
            member.size = 1000
            archive.addfile(member, io.BytesIO(bytes(number) + b"1" * (1000 - number)))
    return [str(folder / "a.tar")], sum(range(30))


MAKERS: dict[str, Callable[[Path], Made]] = {
    "files": files,
    "npy": npy,
    "parquet": parquet,
    "root": root,
    "safetensors": safetensors,
    "tar": tar,
}


ELSEWHERE = {"dask", "hdf5", "loader", "zarr"}
"""Examples that `test_examples_arrays` and `test_torch` run."""


def test_every_example_is_tested() -> None:
    named = {path.stem.removeprefix("disclose_") for path in EXAMPLES.glob("disclose_*.py")}
    assert named == set(MAKERS) | ELSEWHERE


NEEDS = {
    "dask": ["dask", "h5py"],
    "hdf5": ["h5py"],
    "loader": ["torch"],
    "parquet": ["pyarrow"],
    "root": ["uproot", "awkward"],
    "safetensors": ["safetensors"],
    "zarr": ["xarray", "zarr"],
}
"""What examples import."""


@pytest.mark.parametrize("example", sorted({*MAKERS, *ELSEWHERE}))
def test_examples_without_arguments_say_their_usage(example: str) -> None:
    for library in NEEDS.get(example, []):
        pytest.importorskip(library)
    paths = [str(Path(__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(":")]
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / f"disclose_{example}.py")],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONPATH": ":".join(filter(None, paths))},
    )
    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("example", sorted(MAKERS))
def test_examples_of_disclosure(example: str, tmp_path: Path, command: Path) -> None:
    made = tmp_path / "made"
    made.mkdir()
    arguments, figure = MAKERS[example](made)
    program = [sys.executable, str(EXAMPLES / f"disclose_{example}.py"), *arguments]
    report = tmp_path / "report.json"
    run = [str(command), "run", "--no-learn", "--json", str(report), "--", *program]
    paths = [str(Path(__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(":")]
    for words in [program, run]:
        done = subprocess.run(
            words,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
            timeout=300,
            env={**os.environ, "PYTHONPATH": ":".join(filter(None, paths))},
        )
        assert float(done.stdout) == pytest.approx(figure)
    assert json.loads(report.read_text())["hints"]
