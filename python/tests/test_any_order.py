"""Ranges that are returned as they complete."""

import gc
import random
import threading
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from conftest import Gated, Served

import foretell
from foretell._any_order import UNDER_WAY


@pytest.mark.parametrize("kind", ["folder", "objects"])
def test_every_range_comes_once(data: Path, served: Served, kind: str) -> None:
    store = (
        foretell.Store(data, budget="512KiB")
        if kind == "folder"
        else foretell.Store("s3://data", budget="2MiB", settings=served.settings)
    )
    source = random.Random(5)
    paths = ["odd", "small", "one", "empty", *(f"sub/{number}.bin" for number in range(100))]
    triples = [
        (source.choice(paths), source.randrange(6000), source.choice([0, 1, 500, 20_000]))
        for _ in range(2000)
    ]
    triples[7] = ("odd", 100, 3 << 20)  # In many parts.
    found = dict(store.read_ranges(iter(triples), ordered=False))
    plain = {path: (data / path).read_bytes() for path in paths}
    assert sorted(found) == list(range(len(triples)))
    for index, (path, offset, length) in enumerate(triples):
        assert found[index] == plain[path][offset : offset + length]
    assert store.stats()["prefetched_blocks"] > 0


def test_none_waits_for_a_slow_range(gated: Gated) -> None:
    gate = gated.shut("read/slow")
    store = foretell.Store(gated.url, depth=8)
    triples = [("slow", 0, 100), *((f"fast{at % 3}", at * 1000, 100) for at in range(90))]
    found = store.read_ranges(triples, ordered=False)
    first = dict(next(found) for _ in range(90))
    assert sorted(first) == list(range(1, 91))
    assert first[5] == gated.bytes(4000, 100)
    gated.wait_for("read/slow")
    gate.set()
    assert list(found) == [(0, gated.bytes(0, 100))]


def test_none_waits_for_a_file_that_is_slow_to_open(gated: Gated) -> None:
    gate = gated.shut("open/slow")
    store = foretell.Store(gated.url)
    triples = [("slow", 0, 100), ("fast", 0, 100), ("slow", 200, 100), ("fast", 300, 100)]
    found = store.read_ranges(triples, ordered=False)
    assert {next(found)[0], next(found)[0]} == {1, 3}
    gate.set()
    assert dict(found) == {0: gated.bytes(0, 100), 2: gated.bytes(200, 100)}


def test_an_absent_file_is_told_after_what_has_come(store: foretell.Store) -> None:
    found = store.read_ranges([("small", 0, 4), ("absent", 0, 4)], ordered=False)
    given: list[int] = []
    with pytest.raises(foretell.NotFound, match="absent"):
        for index, _ in found:
            given.append(index)
    assert given in ([0], [])
    assert list(found) == []


def test_into_buffers(store: foretell.Store, data: Path) -> None:
    plain = (data / "small").read_bytes()
    array = np.zeros((200, 30), dtype=np.uint8)
    ranges = [(at * 26, 30) for at in range(200)]
    found = dict(store.read_ranges("small", ranges, into=array, ordered=False))
    assert len(found) == 200
    for index, (offset, length) in enumerate(ranges):
        assert bytes(found[index]) == plain[offset : offset + length]
        assert array[index].tobytes()[: len(found[index])] == found[index]
    for buffers in (array[:3], [bytearray(30), bytearray(30), bytearray(30), bytearray(29)]):
        given: list[int] = []
        with pytest.raises(ValueError, match="buffer"):
            for index, _ in store.read_ranges("small", ranges, into=buffers, ordered=False):
                given.append(index)
        assert sorted(given) == [0, 1, 2]


def test_an_iteration_given_up_writes_to_no_buffer_afterwards(gated: Gated) -> None:
    gate = gated.shut("read/slow")
    store = foretell.Store(gated.url)
    buffers = [bytearray(100), bytearray(100)]
    found = store.read_ranges([("slow", 0, 100), ("fast", 0, 100)], into=buffers, ordered=False)
    assert next(found)[0] == 1
    gated.wait_for("read/slow")
    closer = threading.Thread(target=found.close)
    closer.start()
    assert not any(buffers[0])
    gate.set()
    closer.join()
    assert buffers[0] == gated.bytes(0, 100)
    buffers[0].extend(b"more")  # No read exports it any more.


def test_an_iteration_is_forgotten_with_reads_under_way(gated: Gated) -> None:
    gate = gated.shut("read/slow")
    store = foretell.Store(gated.url)
    found = store.read_ranges([("slow", 0, 100), ("fast", 0, 100)], ordered=False)
    assert next(found)[0] == 1
    del found
    gc.collect()
    gate.set()
    assert store.open("slow").read_at(0, 100) == gated.bytes(0, 100)


def test_an_endless_source_is_taken_as_it_is_wanted(store: foretell.Store) -> None:
    taken = 0

    def endless() -> Iterator[tuple[str, int, int]]:
        nonlocal taken
        while True:
            yield ("odd", taken % 3_000_000, 100)
            taken += 1

    found = store.read_ranges(endless(), window=64, ordered=False)
    for _ in range(1000):
        assert len(next(found)[1]) == 100
    assert taken <= 1000 + UNDER_WAY + 64 + 1


def test_buffers_of_reads_that_failed_are_given_back(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1" * (4 << 20))
    store = foretell.Store(tmp_path)
    buffers = [bytearray(5000) for _ in range(2)]

    def source() -> Iterator[tuple[str, int, int]]:
        yield "file", 0, 100
        (tmp_path / "file").write_bytes(b"")  # It is open by now.
        yield "file", 3 << 20, 5000

    def read() -> None:
        with pytest.raises(foretell.Changed):
            list(store.read_ranges(source(), into=buffers, window=1, ordered=False))

    read()
    gc.collect()
    for buffer in buffers:
        buffer.extend(b"more")
