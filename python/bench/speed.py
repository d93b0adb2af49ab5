"""What reads cost through the Python package: hits beside copies, lines beside plain files, and a slow store beside obstore.

python bench/speed.py [hits] [lines] [store] [--pairs N]    (all without a word; store needs target/release/foretell)
"""

from __future__ import annotations

import argparse
import asyncio
import csv
import io
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np

import foretell

Array: TypeAlias = np.ndarray[Any, np.dtype[Any]]

ROOT = Path(__file__).parents[2]
READ_BYTES = 128 << 10
LINES_BYTES = 120_000_000
OBJECT_BYTES = 512 << 20
IN_FLIGHT = 100
READS = 2000
KEYS = {"aws_access_key_id": "foretell", "aws_secret_access_key": "foretell-secret"}


def turns_ns(acts: list[Callable[[], None]], count: int, turns: int = 15) -> list[list[float]]:
    """Processor time in nanoseconds per item, for each of `acts`, which do `count` items each and take turns."""
    found: list[list[float]] = [[] for _ in acts]
    for _ in range(turns):
        for act, figures in zip(acts, found, strict=True):
            begun = time.thread_time_ns()
            act()
            figures.append((time.thread_time_ns() - begun) / count)
    return found


def hits(folder: Path) -> None:
    """Reads of what is in memory, and numpy's copies out of an array of the same size in the same order.

    The array is in huge pages, as the cache is (numpy asks for them as well); reads and copies take turns.
    """
    size = 128 << 20
    path = folder / "hits"
    path.write_bytes(random.Random(1).randbytes(1 << 20) * (size >> 20))
    plain = np.fromfile(path, dtype=np.uint8)
    file = foretell.Store(folder, budget="256MiB").open("hits")
    whole = np.zeros(size, dtype=np.uint8)
    file.pread_into(whole, 0)
    file.pread_into(whole, 0)
    assert np.array_equal(whole, plain)
    print("| read of a hit | median ns | copy by numpy, median ns | ratio, median of turns |")
    print("|---|---|---|---|")
    for length, count in ((READ_BYTES, 2000), (4096, 20_000)):
        source = random.Random(2)
        order = [source.randrange(size // length) * length for _ in range(count)]
        buffer = np.zeros(length, dtype=np.uint8)

        def read(order: list[int] = order, buffer: Array = buffer) -> None:
            for at in order:
                file.pread_into(buffer, at)

        def copy(
            order: list[int] = order,
            buffer: Array = buffer,
            length: int = length,
        ) -> None:
            for at in order:
                buffer[:] = plain[at : at + length]

        def seek_and_read(order: list[int] = order, buffer: Array = buffer) -> None:
            for at in order:
                file.seek(at)
                file.readinto(buffer)

        copied, *others = turns_ns([copy, read, seek_and_read], count)
        for name, mine in zip(("pread_into", "seek, readinto"), others, strict=True):
            ratio = statistics.median(one / other for one, other in zip(mine, copied, strict=True))
            print(
                f"| {name} {length >> 10} KiB | {statistics.median(mine):.0f} "
                f"| {statistics.median(copied):.0f} | {ratio:.2f} |"
            )


def lines(folder: Path) -> None:
    """Lines of a file in the page cache, by each way of reading them."""
    line = b"x" * 59 + b"\n"
    count = LINES_BYTES // len(line)
    path = folder / "lines"
    path.write_bytes(line * count)
    store = foretell.Store(folder)
    by: dict[str, Callable[[], Iterable[object]]] = {
        "for line in store.open": lambda: store.open("lines"),
        "io.TextIOWrapper(store.open)": lambda: io.TextIOWrapper(store.open("lines")),
        "csv.reader of that": lambda: csv.reader(io.TextIOWrapper(store.open("lines"))),
        "for line in open": lambda: path.open("rb"),
        "for line in open, as text": lambda: path.open(),
    }
    print(f"\n{count} lines of {len(line)} bytes, the median of 5\n")
    print("| way | MB/s |\n|---|---|")
    for name, opened in by.items():
        rates = []
        for _ in range(5):
            begun = time.perf_counter()
            assert sum(1 for _ in opened()) == count
            rates.append(LINES_BYTES / (time.perf_counter() - begun) / 1e6)
        print(f"| {name} | {statistics.median(rates):.0f} |")


def by_foretell(endpoint: str, ranges: Array) -> tuple[float, float]:
    """Reads per second, and bytes fetched per byte requested."""
    settings = {"aws_endpoint": endpoint, **KEYS}
    store = foretell.Store("s3://data", depth=IN_FLIGHT, settings=settings)
    file = store.open("object")
    buffer = bytearray(READ_BYTES)
    begun = time.perf_counter()
    with file.hint(ranges):
        for offset, _ in ranges.tolist():
            file.pread_into(buffer, offset)
    elapsed = time.perf_counter() - begun
    return len(ranges) / elapsed, store.stats()["fetched_bytes"] / (len(ranges) * READ_BYTES)


def by_read_ranges(endpoint: str, ranges: Array) -> tuple[float, float]:
    """The same reads through the iterator."""
    settings = {"aws_endpoint": endpoint, **KEYS}
    store = foretell.Store("s3://data", depth=IN_FLIGHT, settings=settings)
    begun = time.perf_counter()
    for _ in store.read_ranges("object", ranges):
        pass
    elapsed = time.perf_counter() - begun
    return len(ranges) / elapsed, store.stats()["fetched_bytes"] / (len(ranges) * READ_BYTES)


def by_obstore(endpoint: str, ranges: Array) -> tuple[float, float]:
    """The same reads by obstore, asynchronously."""
    import obstore
    from obstore.store import S3Store

    store = S3Store(
        "data",
        endpoint=endpoint,
        client_options={"allow_http": True},
        access_key_id="foretell",
        secret_access_key="foretell-secret",
        region="us-east-1",
    )

    async def read() -> None:
        gate = asyncio.Semaphore(IN_FLIGHT)

        async def one(offset: int, length: int) -> None:
            async with gate:
                found = await obstore.get_range_async(store, "object", start=offset, length=length)
                assert len(found) == length

        await asyncio.gather(*(one(offset, length) for offset, length in ranges.tolist()))

    begun = time.perf_counter()
    asyncio.run(read())
    return len(ranges) / (time.perf_counter() - begun), 1.0


def store(folder: Path, pairs: int) -> None:
    """Disclosed random reads of an object, none twice; clients take turns."""
    (folder / "data").mkdir()
    piece = random.Random(1).randbytes(1 << 20)
    with (folder / "data" / "object").open("wb") as out:
        for _ in range(OBJECT_BYTES >> 20):
            out.write(piece)
    command = os.environ.get("FORETELL", str(ROOT / "target/release/foretell"))
    words = [command, "store", "serve", str(folder), "--first-byte", "30ms"]
    words += ["--per-response", "90MB/s"]
    server = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=sys.stderr, text=True)
    try:
        assert server.stdout is not None
        endpoint = server.stdout.readline().split()[0]
        starts = np.arange(OBJECT_BYTES // READ_BYTES, dtype=np.int64) * READ_BYTES
        clients = [("foretell, hint and pread_into", by_foretell)]
        clients.append(("foretell, read_ranges", by_read_ranges))
        try:
            import obstore  # noqa: F401

            clients.append((f"obstore, {IN_FLIGHT} at once", by_obstore))
        except ImportError:
            print("skipped: obstore is not installed", file=sys.stderr)
        found: dict[str, list[tuple[float, float]]] = {name: [] for name, _ in clients}
        for turn in range(pairs):
            order = np.random.default_rng(turn).permutation(starts)[:READS]
            ranges = np.column_stack([order, np.full(len(order), READ_BYTES, dtype=np.int64)])
            for name, client in clients if turn % 2 == 0 else reversed(clients):
                found[name].append(client(endpoint, ranges))
        print(f"\n{READS} reads of 128 KiB of an object of 512 MiB; reads a second, each turn\n")
        print("| client | median | all | fetched by asked |\n|---|---|---|---|")
        for name, figures in found.items():
            rates = [rate for rate, _ in figures]
            ratio = max(ratio for _, ratio in figures)
            every = " ".join(f"{rate:.0f}" for rate in rates)
            print(f"| {name} | {statistics.median(rates):.0f} | {every} | {ratio:.3f} |")
    finally:
        server.terminate()
        server.wait()


def main() -> None:
    """Measure, and print tables."""
    words = argparse.ArgumentParser(description=__doc__)
    words.add_argument(
        "what", nargs="*", choices=["hits", "lines", "store", []], help="all without"
    )
    words.add_argument("--pairs", type=int, default=5, help="turns of each client")
    given = words.parse_args()
    what = given.what or ["hits", "lines", "store"]
    with tempfile.TemporaryDirectory() as folder:
        if "hits" in what:
            hits(Path(folder))
        if "lines" in what:
            lines(Path(folder))
        if "store" in what:
            store(Path(folder), given.pairs)


if __name__ == "__main__":
    main()
