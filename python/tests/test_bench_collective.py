"""scripts/bench-collective, with little data."""

import importlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "scripts/bench-collective"
sys.path.insert(0, str(ROOT / "bench"))
MACHINE: Any = importlib.import_module("collective.machine")
PAGE: Any = importlib.import_module("collective.page")
CAUSES: Any = importlib.import_module("collective.causes")
sys.path.remove(str(ROOT / "bench"))
HAS_FUSE = os.access("/dev/fuse", os.R_OK | os.W_OK)


def run(*options: object) -> subprocess.CompletedProcess[str]:
    words = [sys.executable, BENCH, *options]
    return subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=900)


def figures_of(
    command: Path, tmp_path: Path, mpi: str, *options: object
) -> tuple[dict[str, Any], str]:
    if not HAS_FUSE:
        pytest.skip("no FUSE")
    found = MACHINE.Mpi(mpi)
    if found.compiler is None or found.launcher is None:
        pytest.skip(f"no {mpi}")
    small = ["--blocks", 64, "--portions", 1, "--rounds", 1, "--scale", 0.05, "--mpi", mpi]
    figures = tmp_path / "figures.json"
    done = run(*small, *options, "--json", figures, "--page", tmp_path, command.parent)
    assert done.returncode == 0, done.stdout + done.stderr
    return json.loads(figures.read_text()), (tmp_path / PAGE.NAME).read_text()


@pytest.mark.parametrize("mpi", ["mpich", "openmpi"])
def test_every_method_reads_every_pattern(command: Path, tmp_path: Path, mpi: str) -> None:
    # The reader fails if a byte is wrong.
    options = ["--layout", "sequential", "--depths", "4", "--processes", 4, "--disks", 4]
    figures, page = figures_of(command, tmp_path, mpi, *options)
    patterns, methods = (
        MACHINE.PATTERNS,
        ["demand", "read-all", "disk-directed", "informed", "auto"],
    )
    for pattern in patterns:
        for method in methods:
            depth = "4" if method == "informed" else ""
            (one,) = figures["runs"][f"sequential/{pattern}/{method}/{depth}"]
            assert one["throughput_mib_s"] > 0
            # Each block once.
            assert one["bytes_share"] == pytest.approx(1, abs=0.05)
        assert f"### sequential, {pattern}" in page
    for name in ("7", "8a", "9b"):
        chart = (tmp_path / f"collective-live-{name}.svg").read_text()
        assert "</svg>" in chart
        assert "live" in chart


def test_each_layout_has_its_rows(command: Path, tmp_path: Path) -> None:
    if shutil.which("mpiexec") is None:
        pytest.skip("no MPI")
    mpi = "mpich" if MACHINE.Mpi("mpich").launcher else "openmpi"
    options = ["--method", "disk-directed", "--pattern", "block-3d"]
    figures, page = figures_of(command, tmp_path, mpi, *options)
    assert set(figures["simulated"]) == set(MACHINE.LAYOUTS)
    for layout in MACHINE.LAYOUTS:
        (one,) = figures["runs"][f"{layout}/block-3d/disk-directed/"]
        assert one["requests"] == 64 * 3
        assert f"### {layout}, block-3d" in page


def test_without_an_mpi_it_is_skipped(tmp_path: Path, command: Path) -> None:
    done = run("--mpi-bin", tmp_path, command.parent)
    assert done.returncode == 0, done.stderr
    assert "skipped" in done.stdout


def test_a_method_that_is_not_there_is_named(command: Path) -> None:
    done = run("--method", "telepathy", command.parent)
    assert done.returncode == 2
    assert "there is no telepathy" in done.stderr


def test_causes_are_used_and_told() -> None:
    page = (ROOT / "docs/results" / PAGE.NAME).read_text()
    for letter in CAUSES.TEXTS:
        assert f"| {letter} |" in page, letter
    assert "not known" not in page
