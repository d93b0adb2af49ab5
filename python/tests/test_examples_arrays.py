"""The examples of disclosure for HDF5 and zarr, on data that is made here."""

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

EXAMPLES = Path(__file__).parents[2] / "examples"


def said(command: Path, folder: Path, *words: str) -> Any:
    """What an example prints under `foretell run`, which was told of its reads."""
    report = folder / "report.json"
    run: list[str | Path] = [command, "run", "--no-learn", "--json", report, "--", sys.executable]
    done = subprocess.run(
        [*run, *words], stdout=subprocess.PIPE, text=True, check=True, timeout=300
    )
    assert json.loads(report.read_text())["hints"]
    return json.loads(done.stdout)


def test_the_example_of_hdf5(command: Path, tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    values = np.random.default_rng(1).random((50, 20, 30))
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("group/cube", data=values, chunks=(7, 8, 9), compression="gzip")
    example = str(EXAMPLES / "disclose_hdf5.py")
    found = said(command, tmp_path, example, str(tmp_path / "a.h5"), "group/cube")
    assert found == pytest.approx(values[::10].mean())
    pytest.importorskip("dask.array")
    example = str(EXAMPLES / "disclose_dask.py")
    found = said(command, tmp_path, example, str(tmp_path / "a.h5"), "group/cube", "7")
    assert found == pytest.approx([values[at : at + 7].mean() for at in range(0, 50, 7)])


def test_the_example_of_zarr(command: Path, tmp_path: Path) -> None:
    pytest.importorskip("zarr", minversion="3")
    xarray = pytest.importorskip("xarray")
    times = np.arange("2026-01", "2026-03", dtype="datetime64[D]").astype("datetime64[ns]")
    values = np.random.default_rng(1).random((len(times), 20, 30))
    made = xarray.Dataset({"t2m": (("time", "y", "x"), values)}, {"time": times})
    made.to_zarr(tmp_path / "a.zarr", encoding={"t2m": {"chunks": (5, 10, 10)}}, consolidated=False)
    words = [str(tmp_path / "a.zarr"), "t2m", "2026-01-20", "2026-02-02"]
    found = said(command, tmp_path, str(EXAMPLES / "disclose_zarr.py"), *words)
    assert found == pytest.approx(values[19:33].mean())
