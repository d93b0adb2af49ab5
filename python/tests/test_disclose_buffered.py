"""What Python's buffered files read of the files of this machine, beside what is disclosed of them."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.disclose import _buffered
from foretell.disclose._buffered import buffer_bytes, whole_buffers
from foretell.disclose._plan import Range


def bytes_read(work: Callable[[], Any]) -> int:
    """How many bytes this process reads by system calls for it, in all threads."""

    def so_far() -> int:
        text = Path("/proc/self/io").read_text()
        return int(text.split()[1])

    def once() -> int:
        before = so_far()
        own = so_far() - before
        work()
        return so_far() - before - 2 * own

    # The first time it may import, and threads of other tests may read meanwhile.
    return min(once() for _ in range(5))


def disclosed_bytes(ranges: list[Range]) -> int:
    return sum(length or 0 for _, _, length in whole_buffers(ranges))


def test_buffers_are_those_of_open(tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(bytes(1 << 20))
    for length in [1, 4095, 4096, 50_000, 131_073]:

        def work(length: int = length) -> None:
            with path.open("rb") as file:
                file.seek(1234)
                file.read(length)

        assert bytes_read(work) == disclosed_bytes([(str(path), 1234, length)])


def test_adjacent_ranges_stay_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_buffered, "buffer_bytes", lambda path: 100)

    def ranges() -> Any:
        yield from [("a", 0, 10), ("a", 10, 130), ("a", 190, 100), ("b", 290, 1), ("b", 0, None)]
        yield "b", 50, 10
        raise KeyError("absent")

    found = []
    with pytest.raises(KeyError, match="absent"):
        for one in whole_buffers(ranges()):
            found.append(one)
    expected = [("a", 0, 10), ("a", 10, 180), ("a", 190, 100), ("b", 290, 100), ("b", 0, None)]
    assert found == [*expected, ("b", 50, 100)]
    assert buffer_bytes("/absent") == 1
    assert list(whole_buffers([("/absent", 0, 7)])) == [("/absent", 0, 100)]
    assert list(whole_buffers([])) == []


def test_uproot_reads_what_is_disclosed(tmp_path: Path) -> None:
    uproot = pytest.importorskip("uproot")
    from foretell import disclose

    path, rows = tmp_path / "a.root", 12_345
    with uproot.recreate(path, compression=None) as file:
        file.mktree("t", dict.fromkeys("abcdef", "f4"))
        for _ in range(4):
            file["t"].extend({name: np.zeros(rows, "f4") for name in "abcdef"})
    for handler in [None, uproot.MultithreadedFileSource]:
        with uproot.open(path, handler=handler) as opened:
            tree = opened["t"]
            plan = disclose.root(tree, ["a", "d"])
            assert plan.is_buffered

            def work(tree: Any = tree) -> Any:
                return tree.arrays(["a", "d"], library="np", array_cache=None)

            read = bytes_read(work)
            planned = sum(length or 0 for _, _, length in plan)
            assert read > planned * 1.02
            assert read == disclosed_bytes(list(plan))
    with uproot.open(path, handler=uproot.MemmapSource) as opened:
        assert not disclose.root(opened["t"]).is_buffered


def test_zarr_reads_what_is_disclosed(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr", minversion="3")
    from foretell import disclose

    options: dict[str, Any] = {"shape": (40, 100, 100), "chunks": (10, 30, 31), "dtype": "f4"}
    array = zarr.create_array(
        str(tmp_path / "a.zarr"), **options, shards=(20, 120, 124), compressors=None
    )
    array[:] = 1.0
    plan = disclose.zarr(array, np.s_[:, 35, :40])
    ranges = list(plan)
    assert len(ranges) == 8
    index = 16 * 32 + 4
    read = bytes_read(lambda: array[:, 35, :40]) - 2 * index
    assert read > 1.02 * sum(length or 0 for _, _, length in ranges)
    assert read == disclosed_bytes(ranges)
    assert plan.is_buffered
