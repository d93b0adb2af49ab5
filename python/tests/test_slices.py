"""The slice viewer of `examples/slices`: what it answers, what it discloses, and its page in a browser."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from browser import Browser, missing

h5py = pytest.importorskip("h5py")

SLICES = Path(__file__).parents[2] / "examples/slices"
SIDES = (40, 33, 50)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A cube with sides that differ, in chunks that do not fit evenly; and others that are not read."""
    path = tmp_path_factory.mktemp("cubes") / "cube.h5"
    with h5py.File(path, "w") as file:
        values = np.random.default_rng(1).random(SIDES, "f4")
        file.create_dataset("flow/speed", data=values, chunks=(16, 16, 8))
        file["small"] = np.zeros((2, 3, 4))
        file["flat"] = np.zeros((200, 200, 1, 2))
        file["names"] = np.full((99, 99, 99), b"x")
    return path


def make(path: Path, side: int) -> None:
    words: list[str | Path] = [sys.executable, SLICES / "make_cube.py", path, "--side", str(side)]
    subprocess.run(words, check=True, stdout=subprocess.DEVNULL, timeout=60)


def values_of(path: Path) -> Any:
    with h5py.File(path) as file:
        return file["flow/speed"][()]


class Viewer:
    """A running viewer."""

    def __init__(self, *words: str | Path, before: Sequence[str | Path] = ()) -> None:
        path = ":".join(
            filter(None, [str(Path(__file__).parents[1]), os.environ.get("PYTHONPATH", "")])
        )
        command: list[str | Path] = [
            *before,
            sys.executable,
            SLICES / "viewer.py",
            *words,
            "--port",
            "0",
        ]
        environment = {**os.environ, "PYTHONPATH": path}
        self.process = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.line = self.process.stdout.readline()
        self.url = self.line.split()[0]

    def get(self, path: str, data: bytes | None = None, **headers: str) -> tuple[int, bytes, Any]:
        request = urllib.request.Request(self.url + path, data, headers)
        try:
            with urllib.request.urlopen(request, timeout=60) as answer:
                return answer.status, answer.read(), json.loads(answer.headers.get("Slice", "{}"))
        except urllib.error.HTTPError as error:
            return error.code, error.read(), {}

    def plane(self, query: str) -> Any:
        code, body, told = self.get(f"/api/plane?{query}")
        assert code == 200, body
        assert told["problem"] is None
        return told, np.frombuffer(body, "<f4")

    def stop(self) -> int:
        self.process.send_signal(signal.SIGINT)
        return self.process.wait(timeout=60)


@contextlib.contextmanager
def viewing(*words: str | Path, before: Sequence[str | Path] = ()) -> Iterator[Viewer]:
    viewer = Viewer(*words, before=before)
    try:
        yield viewer
        assert viewer.stop() == 0
    finally:
        if viewer.process.poll() is None:
            viewer.process.kill()
        viewer.process.communicate()


def test_planes_are_those_of_numpy(made: Path) -> None:
    values = values_of(made)
    with viewing(made) as viewer:
        assert "flow/speed (X 40, Y 33, Z 50)" in viewer.line
        described = json.loads(viewer.get("/api/cube")[1])
        assert (described["name"], described["shape"]) == ("flow/speed", list(SIDES))
        assert described["range"] is None
        for axis, side in enumerate(SIDES):
            for at in [0, 17, side - 1]:
                told, found = viewer.plane(f"axis={axis}&at={at}")
                assert np.array_equal(found, values.take(at, axis).ravel())
                assert told["told"] == []
    with viewing(made, "--dataset", "small") as viewer:
        assert len(viewer.plane("axis=0&at=1")[1]) == 12


def test_wrong_requests_are_answered_in_a_line(made: Path) -> None:
    with viewing(made) as viewer:
        for query, wanted in {
            "": "axis must be a whole number from 0 to 2",
            "axis=3&at=0": "axis must be",
            "axis=1&at=33": "at must be a whole number from 0 to 32",
            "axis=1&at=1e1": "at must be",
            "axis=1": "at must be",
            "axis=1&at=0&toward=2": "toward must be",
            "axis=1&at=0&viewer=A": "viewer must have",
        }.items():
            code, body, _ = viewer.get(f"/api/plane?{query}")
            assert code == 400
            assert wanted in body.decode()
            assert body.count(b"\n") == 1
        assert viewer.get("/../cube.py")[0] == 404
        assert viewer.get("/api/plane?axis=0&at=0", b"x")[0] == 404
        # A page of elsewhere whose name leads here.
        assert viewer.get("/api/cube", Host="example.org")[0] == 403
        for name in ["/", "/style.css", "/script.js"]:
            code, body, _ = viewer.get(name)
            assert code == 200
            assert b"https:" not in body  # Nothing of the page comes from elsewhere.


def test_errors_are_told_in_a_line(made: Path, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("text\n" * 1000)
    with h5py.File(tmp_path / "flat.h5", "w") as file:
        file["flat"] = np.zeros((9, 9))
    with viewing(made) as viewer:
        port = viewer.url.rsplit(":")[-1]
        mistakes: list[tuple[list[str | Path], str]] = [
            ([tmp_path / "none"], "No such file"),
            ([tmp_path / "text"], "is not an HDF5 file"),
            ([tmp_path / "flat.h5"], "has no data set of numbers in three dimensions"),
            ([made, "--dataset", "flow"], "has no data set flow"),
            ([made, "--dataset", "flat"], "not a data set of numbers in three dimensions"),
            ([made, "--port", port], "is in use; --port 0 takes a free one"),
        ]
        for words, wanted in mistakes:
            command: list[str | Path] = [sys.executable, SLICES / "viewer.py", *words]
            done = subprocess.run(command, stderr=subprocess.PIPE, text=True, timeout=60)
            assert done.returncode == 1
            assert wanted in done.stderr
            assert done.stderr.count("\n") == 1


def test_planes_ahead_are_told_to_the_run(made: Path, tmp_path: Path, command: Path) -> None:
    report, values = tmp_path / "report.json", values_of(made)
    run: list[str | Path] = [command, "run", "--no-learn", "--no-hint-args", "--json", report, "--"]
    with viewing(made, before=run) as viewer:
        assert json.loads(viewer.get("/api/cube")[1])["listeners"] == ["run"]
        course = "hints=1&viewer=a&axis=2"
        told, found = viewer.plane(f"{course}&at=25")
        assert (told["told"], told["ahead"]) == (["run"], [])
        assert np.array_equal(found, values[:, :, 25].ravel())
        # The first plane of each layer that is ahead, and the last of each on the way back.
        assert viewer.plane(f"{course}&at=26&toward=1")[0]["ahead"] == [32, 40, 48]
        assert viewer.plane(f"{course}&at=33&toward=1")[0]["ahead"] == [40, 48]
        assert viewer.plane(f"{course}&at=32&toward=-1")[0]["ahead"] == [31, 23, 15, 7]
        assert viewer.plane("hints=1&viewer=b&axis=0&at=0&toward=1")[0]["ahead"] == [16, 32]
        told, found = viewer.plane("hints=0&viewer=a&axis=1&at=8&toward=1")
        assert told["ahead"] == []
        assert np.array_equal(found, values[:, 8, :].ravel())
        assert viewer.get("/api/leave?viewer=a", b"")[0] == 200
        for number in range(20):  # More pages than have hints at once.
            viewer.plane(f"hints=1&viewer=c{number}&axis=0&at={number}&toward=1")
    assert json.loads(report.read_text())["hints"]


def test_the_cubes_are_the_same_each_time(tmp_path: Path) -> None:
    made = []
    for name in ["a.h5", "b.h5"]:
        make(tmp_path / name, 50)
        with h5py.File(tmp_path / name) as file:
            made.append(file["density"][()])
            chunks = file["density"].id
            # Z first, and each chunk is where a block begins.
            places = [
                chunks.get_chunk_info(at).byte_offset for at in range(chunks.get_num_chunks())
            ]
            assert len(places) == 4 * 4 * 7
            assert places == sorted(places)
            assert all(place % 8192 == 0 for place in places)
    assert np.array_equal(*made)
    assert made[0].std() > 0.1


def test_the_page_in_a_browser(tmp_path: Path, command: Path) -> None:
    if lacks := missing():
        pytest.skip(lacks)
    make(tmp_path / "cube.h5", 64)
    run: list[str | Path] = [command, "run", "--no-learn", "--quiet", "--"]
    shown = "return document.body.dataset.shown === arguments[0]"
    with viewing(tmp_path / "cube.h5", before=run) as viewer, Browser(tmp_path) as browser:
        browser.open(viewer.url)
        browser.wait_for(shown, "Z 32")
        assert browser.text("#title") == "density"
        with h5py.File(tmp_path / "cube.h5") as file:
            bright = file["density"][:, :, 32] > 0.7
        # The picture is the plane, with X to the right and Y upwards.
        pixels = browser.run(
            "const one = document.querySelector('#picture');"
            "return Array.from(one.getContext('2d').getImageData(0, 0, one.width, one.height).data)"
        )
        red = np.array(pixels).reshape(64, 64, 4)[::-1, :, 0].T
        assert bright.any()
        assert red[bright].min() > red[~bright].mean()
        # Keys, and what is told of the planes ahead.
        browser.press("up")
        browser.wait_for(shown, "Z 33")
        assert browser.run("return document.querySelectorAll('#ahead i').length") == 3
        assert "foretell run" in browser.text("#told")
        browser.press("3", "page up")
        browser.wait_for(shown, "X 42")
        # A drag goes on to where it ends, in one direction and the other.
        browser.drag("#picture", [(0, 250), (0, 200), (0, 100), (0, -250)])
        browser.wait_for(shown, "X 63")
        browser.drag("#picture", [(0, -250), (0, -200), (0, 250)])
        browser.wait_for(
            "const [axis, at] = document.body.dataset.shown.split(' '); return at < 30"
        )
        # Without disclosure.
        browser.click("#hints")
        assert browser.run("return document.querySelector('#hints').ariaChecked") == "false"
        browser.click("[data-axis='1']")
        browser.wait_for(shown, "Y 32")
        browser.press("up")
        browser.wait_for(shown, "Y 33")
        assert browser.run("return document.querySelectorAll('#ahead i').length") == 0
        assert browser.text("#count-without") == "2"
        browser.press("x")
        assert "ms" not in browser.text("#times-with")
        browser.click("#play")
        browser.wait_for(shown, "Y 63")
        # The viewer ends, and the page says so.
        assert browser.text("#problem") == ""
        assert viewer.stop() == 0
        browser.press("1")
        browser.wait_for(
            "return document.querySelector('#problem').textContent.includes('does not answer')"
        )
