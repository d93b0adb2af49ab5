"""Asynchronous reads."""

import asyncio
import gc
import threading
import weakref
from pathlib import Path

import pytest
from conftest import Gated, Served

import foretell
from foretell._asyncio import READS


def threads() -> int:
    """Threads of this process, those of Rust too."""
    return len(list(Path("/proc/self/task").iterdir()))


def test_what_is_read(served: Served, data: Path) -> None:
    store = foretell.Store("s3://data", settings=served.settings)
    plain = (data / "odd").read_bytes()

    async def main() -> list[bytes]:
        with await store.open_async("odd") as file:
            reads = [file.read_at_async(at * 1000, 500) for at in range(50)]
            whole = file.read_at_async(5, len(plain))
            return await asyncio.gather(store.read_async("odd", 7, 9), whole, *reads)

    first, whole, *rest = asyncio.run(main())
    assert first == plain[7:16]
    assert whole == plain[5:]
    assert rest == [plain[at * 1000 : at * 1000 + 500] for at in range(50)]


@pytest.mark.parametrize("kind", ["folder", "objects"])
def test_many_files(data: Path, served: Served, kind: str) -> None:
    store = (
        foretell.Store(data)
        if kind == "folder"
        else foretell.Store("s3://data", settings=served.settings)
    )
    paths = [f"sub/{number % 100}.bin" for number in range(300)]

    async def main() -> list[bytes]:
        return await asyncio.gather(*(store.read_async(path, 3, 2000) for path in paths))

    assert asyncio.run(main()) == [(data / path).read_bytes()[3:] for path in paths]


def test_no_thread_waits(gated: Gated) -> None:
    """200 reads without an answer: exactly the allowed number is in flight."""
    gate = gated.shut("read/slow")
    gated.size = 4096 * 200
    store = foretell.Store(gated.url, depth=4, block=4096, budget="4MiB")

    async def main() -> None:
        file = await store.open_async("slow")
        before = threads()
        names = {thread.ident for thread in threading.enumerate()}
        reads = [asyncio.ensure_future(file.read_at_async(at * 4096, 200)) for at in range(200)]
        await asyncio.to_thread(gated.wait_for, "read/slow")
        more = threads() - before
        # The server's threads, one per connection, are not counted.
        serving = {thread.ident for thread in threading.enumerate()} - names
        assert more <= len(serving) + 4
        assert not any(read.done() for read in reads)
        counts = store.stats()
        assert counts["hit_blocks"] + counts["joined_blocks"] + counts["demanded_blocks"] == READS
        gate.set()
        assert await asyncio.gather(*reads) == [gated.bytes(at * 4096, 200) for at in range(200)]

    asyncio.run(main())


def test_a_hit_comes_at_once(store: foretell.Store, data: Path) -> None:
    file = store.open("small")
    plain = file.read()

    async def main() -> None:
        read = file.read_at_async(1000, 2000)
        with pytest.raises(StopIteration) as ended:
            read.send(None)  # It returns without waiting.
        assert ended.value.value == plain[1000:3000]

    asyncio.run(main())


def test_errors(store: foretell.Store, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"1" * 20_000)
    changing = foretell.Store(tmp_path)

    async def main() -> None:
        with pytest.raises(foretell.NotFound, match="absent"):
            await store.read_async("absent", 0, 1)
        file = await store.open_async("small")
        with pytest.raises(ValueError, match="negative offset"):
            await file.read_at_async(-1, 1)
        file.close()
        with pytest.raises(ValueError, match="closed file"):
            await file.read_at_async(0, 1)
        file = await changing.open_async("file")
        (tmp_path / "file").write_bytes(b"2" * 10_000)
        with pytest.raises(foretell.Changed):
            await file.read_at_async(0, 100)

    asyncio.run(main())


def test_a_task_is_cancelled(gated: Gated) -> None:
    gate = gated.shut("read/slow")
    shut = gated.shut("open/shut")
    store = foretell.Store(gated.url)

    async def main() -> None:
        file = await store.open_async("slow")
        for slow in (file.read_at_async(0, 100), store.open_async("shut")):
            task = asyncio.ensure_future(slow)
            await asyncio.sleep(0)
            task.cancel()
            with pytest.raises(asyncio.CancelledError):
                await task
        gate.set()
        shut.set()
        assert await file.read_at_async(0, 100) == gated.bytes(0, 100)
        assert await store.read_async("shut", 5, 5) == gated.bytes(5, 5)

    asyncio.run(main())


def test_loops_that_end_with_reads_under_way_are_forgotten(gated: Gated) -> None:
    gate = gated.shut("read/slow")
    store = foretell.Store(gated.url)
    file = store.open("slow")

    async def begin() -> "weakref.ref[asyncio.AbstractEventLoop]":
        task = asyncio.ensure_future(file.read_at_async(0, 100))
        await asyncio.sleep(0)
        assert not task.done()
        return weakref.ref(asyncio.get_running_loop())

    async def end() -> bytes:
        gate.set()
        return await file.read_at_async(0, 100)

    loop = asyncio.run(begin())
    assert asyncio.run(end()) == gated.bytes(0, 100)
    gc.collect()
    assert loop() is None


def test_loops_of_several_threads(store: foretell.Store, data: Path) -> None:
    plain = (data / "odd").read_bytes()
    failures: list[BaseException] = []

    async def main(seed: int) -> None:
        file = await store.open_async("odd")
        reads = [
            file.read_at_async((at * 7919 + seed) * 100 % 3_000_000, 3000) for at in range(500)
        ]
        for at, found in enumerate(await asyncio.gather(*reads)):
            offset = (at * 7919 + seed) * 100 % 3_000_000
            assert found == plain[offset : offset + 3000]

    def run(seed: int) -> None:
        try:
            asyncio.run(main(seed))
        except BaseException as error:
            failures.append(error)

    workers = [threading.Thread(target=run, args=(seed,)) for seed in range(4)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    assert not failures
