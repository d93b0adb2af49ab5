"""scripts/bench-disclose, with little data."""

import importlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "scripts/bench-disclose"
sys.path.insert(0, str(ROOT / "bench"))
FORMATS: dict[str, Any] = importlib.import_module("disclose.formats").FORMATS
sys.path.remove(str(ROOT / "bench"))
HAS_FUSE = os.access("/dev/fuse", os.R_OK | os.W_OK)
ALL_ARMS = ["alone", "run", "disclosed", "bound", "memory"]


def run(command: Path, *options: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, BENCH, "--python", sys.executable, *options, command.parent]
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=600)


@pytest.mark.parametrize("name", FORMATS)
def test_a_format_is_read_in_all_arms(name: str, command: Path, tmp_path: Path) -> None:
    for module in ["numpy", "fsspec", *FORMATS[name].needs]:
        pytest.importorskip(module, minversion="3" if module == "zarr" else None)
    figures, places = tmp_path / "figures.json", ["store", *(["network"] if HAS_FUSE else [])]
    options = ["--rounds", 1, "--scale", 0.02, "--first-byte", "1ms", "--json", figures]
    arms = ALL_ARMS if name == "npy" else ["alone", "disclosed", "bound"]
    options += ["--arm", ",".join(arms)]
    done = run(command, "--format", name, "--place", ",".join(places), *options)
    assert done.returncode == 0, done.stdout + done.stderr
    cases = json.loads(figures.read_text())["cases"]
    assert [(case["format"], case["place"]) for case in cases] == [(name, one) for one in places]
    for case in cases:
        assert case["identical"]
        assert case["ranges"] > 0
        left_out = {"run"} if case["place"] == "store" else set()
        assert set(case["runs"]) == set(arms) - left_out
        (disclosed,) = case["runs"]["disclosed"]
        assert disclosed["told"] == ["store" if case["place"] == "store" else "run"]
        assert disclosed["problem"] is None
        assert disclosed["ranges"] > 0
        # What is fetched is what is planned, and the index or the rest of blocks.
        assert disclosed["bytes"] >= case["bytes"]
        assert f"| {name} | {case['place']} |" in done.stdout


def test_every_format_has_a_row_in_the_results() -> None:
    page = (ROOT / "docs/results/adapters.md").read_text()
    rows = {tuple(line.split(" | ")[:2]) for line in page.splitlines() if line.startswith("| ")}
    for name in FORMATS:
        assert {(f"| {name}", "store"), (f"| {name}", "network")} <= rows


def test_a_format_that_is_not_there_is_named(command: Path) -> None:
    wrong = run(command, "--format", "absent")
    assert wrong.returncode == 2
    assert "there is no absent" in wrong.stderr
