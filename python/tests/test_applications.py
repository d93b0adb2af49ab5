"""The papers' applications, with little data, as scripts/bench-applications runs them."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

ROOT = Path(__file__).resolve().parents[2]
BENCH = ROOT / "scripts/bench-applications"
NAMES = sorted(
    name
    for path in (ROOT / "bench/applications").glob("*.py")
    for name in [
        line[12:-1] for line in path.read_text().splitlines() if line[:12] == '    name = "'
    ]
)

pytestmark = pytest.mark.skipif(
    not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="skipped: no FUSE"
)


def words(command: Path, *others: object) -> list[str]:
    # Fast disks: nothing here asserts a time.
    options = ["--small", "--time-scale", "0.02", "--python", sys.executable]
    return [sys.executable, *map(str, [BENCH, *options, *others, command.parent])]


def mounts() -> list[str]:
    lines = Path("/proc/self/mounts").read_text().splitlines()
    return [line.split()[1] for line in lines if "foretell-applications-" in line]


@pytest.mark.parametrize("name", NAMES)
def test_an_application_runs_in_all_its_arms(name: str, command: Path, tmp_path: Path) -> None:
    figures = tmp_path / "figures.json"
    others = ["--application", name, "--disks", "1,2", "--json", figures]
    # Not in tmp_path, which the PostgreSQL server's user cannot enter.
    done = subprocess.run(words(command, *others), capture_output=True, text=True, timeout=600)
    assert done.returncode == 0, done.stdout + done.stderr
    if f"skipped: {name}" in done.stdout:
        pytest.skip(next(line for line in done.stdout.splitlines() if "skipped: " in line))
    (found,) = json.loads(figures.read_text())["applications"]
    ran = {(one["column"], one["arm"]) for one in found["runs"]}
    assert ran == {(column["label"], arm) for column in found["columns"] for arm in found["arms"]}
    assert all(one["seconds"] > 0 and one["requests"] > 0 for one in found["runs"])
    for column in found["columns"]:
        outputs = {
            one["output_sha256"] for one in found["runs"] if one["column"] == column["label"]
        }
        assert len(outputs) == 1
        assert outputs != {""}
    # A table with a row for each arm, and nothing left behind.
    for arm in found["arms"]:
        assert f"| {arm} |" in done.stdout
    assert sorted(path.name for path in tmp_path.iterdir()) == ["figures.json"]


def stopped(process: subprocess.Popen[Any], number: signal.Signals) -> int:
    process.send_signal(number)
    return process.wait(timeout=60)


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_leaves_nothing_behind(
    number: signal.Signals, command: Path, tmp_path: Path
) -> None:
    env = {
        **os.environ,
        "TMPDIR": str(tmp_path),
        "PATH": f"{tmp_path / 'bin'}:{os.environ['PATH']}",
    }
    # A search that does not end by itself.
    (tmp_path / "bin").mkdir()
    program = tmp_path / "bin/tre-agrep"
    program.write_text("#!/bin/sh\nsleep 1000\n")
    program.chmod(0o755)
    with subprocess.Popen(
        words(command, "--application", "agrep"), env=env, stdout=subprocess.DEVNULL
    ) as process:
        try:
            deadline = time.monotonic() + 60
            while not any(str(tmp_path) in mount for mount in mounts()):
                assert process.poll() is None
                assert time.monotonic() < deadline
                time.sleep(0.05)
            assert stopped(process, number) == 128 + number
        finally:
            process.kill()
    assert not any(str(tmp_path) in mount for mount in mounts())
    assert [path.name for path in tmp_path.iterdir()] == ["bin"]


def test_a_failure_names_the_application(command: Path, tmp_path: Path) -> None:
    (tmp_path / "tre-agrep").write_text("#!/bin/sh\necho 'no such pattern' >&2\nexit 2\n")
    (tmp_path / "tre-agrep").chmod(0o755)
    env = {**os.environ, "PATH": f"{tmp_path}:{os.environ['PATH']}"}
    done = subprocess.run(
        words(command, "--application", "agrep"),
        env=env,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 1
    assert "failed: agrep: tre-agrep has ended with 2: no such pattern" in done.stdout


def test_wrong_arguments_are_told(command: Path) -> None:
    for others in (["--application", "grep"], ["--disks", "many"], ["--rounds", "0"]):
        done = subprocess.run(words(command, *others), capture_output=True, text=True, timeout=60)
        assert done.returncode == 2, others
        assert "Traceback" not in done.stderr
