"""Files that are opened before they are read, and who borrows them."""

import os
import threading
import time
import weakref
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import Gated
from servers import Bucket, bucket

import foretell
from foretell import _ahead, disclose
from foretell._ahead import OpenAhead, User, here
from foretell._ranges import OPENINGS

HANG_S = 30


def table_of(store: foretell.Store) -> OpenAhead:
    return here(store._ahead, store)


def until(is_so: Any) -> None:
    deadline = time.monotonic() + HANG_S
    while not is_so():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def opened(gated: Gated) -> int:
    """How many files the server was asked to open."""
    with gated.came:
        return len({what for what in gated.asked if what.startswith("open")})


def borrowed(store: foretell.Store, path: str, for_open: bool = False) -> foretell.File | None:
    opening = store._borrow(path, for_open)
    return None if opening is None else foretell.File(store, path, opening)


@pytest.fixture
def objects() -> Iterator[Bucket]:
    with bucket({f"{number}": b"%d" % (number % 10) * 1000 for number in range(100)}) as served:
        yield served


def of(served: Bucket) -> foretell.Store:
    return foretell.Store("s3://b", settings=served.settings)


def heads(served: Bucket, path: str) -> int:
    """How often a file was opened."""
    return sum(asked.partition("?")[0].endswith(f"/{path}") for _, asked, _ in served.requests)


def test_bounds_of_openings_and_of_files_ahead(gated: Gated) -> None:
    shut = [gated.shut(f"open/{number}") for number in range(80)]
    table = table_of(foretell.Store(gated.url))
    user = table.user()
    for number in range(1000):
        table.expect(f"/{number}", user)
    until(lambda: opened(gated) == OPENINGS)
    assert len(user.ahead) == OPENINGS
    for gate in shut:
        gate.set()
    for number in range(_ahead.OPEN_AHEAD):
        table.wait(f"/{number}", user)
        assert table.is_ready(f"/{number}")
    assert len(user.ahead) == _ahead.OPEN_AHEAD
    assert not table.is_ready(f"/{_ahead.OPEN_AHEAD}")
    # Those that were read make room, and so do those that are kept.
    for number in range(10):
        table.release(f"/{number}", user)
    assert table.keep("/10", user)
    for number in range(_ahead.OPEN_AHEAD, _ahead.OPEN_AHEAD + 11):
        table.wait(f"/{number}", user)
    assert opened(gated) == _ahead.OPEN_AHEAD + 11
    table.drop(user)
    assert not table._entries
    assert opened(gated) == _ahead.OPEN_AHEAD + 11


def test_no_user_waits_for_another_one_that_does_not_read(data: Path) -> None:
    table = table_of(foretell.Store(data))
    first, second = table.user(), table.user()
    for number in range(_ahead.OPEN_AHEAD + 100):
        table.expect(f"absent {number}", first)
    for number in range(_ahead.OPEN_AHEAD):
        table.wait(f"absent {number}", first)
    assert len(first.ahead) == _ahead.OPEN_AHEAD
    for number in range(100):
        table.expect(f"sub/{number}.bin", second)
    for number in range(100):
        path = f"sub/{number}.bin"
        table.wait(path, second)
        assert table.file(path) is not None
        assert table.keep(path, second)
    assert len(second.kept) == 100


def test_a_wait_for_room_ends_with_the_user(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ahead, "OPEN_AHEAD", 2)
    monkeypatch.setattr(_ahead, "LEAST_AHEAD", 0)
    table = table_of(foretell.Store(data))
    user = table.user()
    for number in range(9):
        table.expect(f"sub/{number}.bin", user)
    with ThreadPoolExecutor() as pool:
        waits = pool.submit(table.wait, "sub/7.bin", user)
        for number in range(6):
            table.release(f"sub/{number}.bin", user)
        waits.result(HANG_S)
        waits = pool.submit(table.wait, "sub/8.bin", user)
        table.drop(user)
        waits.result(HANG_S)


def test_a_limit_of_kept_files(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ahead, "KEPT_MAX", 10)
    store = foretell.Store(data)
    names = [f"sub/{number}.bin" for number in range(30)]
    hints = foretell.disclosed(disclose.files(names, store=store))
    until(lambda: hints.ranges == 10)
    assert not hints.wait(0.1)
    hints.cancel()
    with foretell.disclosed(disclose.files(names[:10], store=store)) as others:
        assert others.wait(HANG_S)
    assert hints.ranges + others.ranges == 20


def test_a_borrower_closes_its_own_handle(objects: Bucket) -> None:
    store = of(objects)
    table = table_of(store)
    user = table.user(lends_to_open=True)
    table.expect("7", user)
    for _ in range(3):
        with store.open("7") as file:
            assert file.read() == b"7" * 1000
    found = [borrowed(store, "7"), borrowed(store, "7", for_open=True)]
    assert heads(objects, "7") == 2, "one opening and one read"
    assert user.lent == 5
    table.release("7", user)
    assert borrowed(store, "7") is None
    assert [file.read() for file in found if file is not None] == [b"7" * 1000] * 2


def test_a_store_opens_the_current_version_outside_a_loader(objects: Bucket) -> None:
    store = of(objects)
    with foretell.disclosed(disclose.files(["3"], store=store)) as hints:
        assert hints.wait(HANG_S)
        objects.objects["3"] = b"new" * 10
        assert store.open("3").read() == b"new" * 10


def test_a_borrower_waits_for_its_own_file_only(gated: Gated) -> None:
    shut = gated.shut("open/0")
    store = foretell.Store(gated.url)
    table = table_of(store)
    user = table.user()
    for number in range(200):
        table.expect(f"/{number}", user)
    gated.wait_for("open/0")
    file = borrowed(store, "/199")  # Before its turn.
    assert file is not None
    assert file.read_at(0, 10) == gated.bytes(0, 10)
    shut.set()
    assert borrowed(store, "/0") is not None


def test_many_threads_borrow_a_file_that_is_being_opened(gated: Gated) -> None:
    shut = gated.shut("open/0")
    store = foretell.Store(gated.url)
    table = table_of(store)
    user = table.user()
    table.expect("/0", user)
    with ThreadPoolExecutor(16) as pool:
        found = [pool.submit(borrowed, store, "/0") for _ in range(16)]
        gated.wait_for("open/0")
        assert not table.is_ready("/0")
        shut.set()
        files = [one.result(HANG_S) for one in found]
    assert [file.read_at(5, 10) for file in files if file] == [gated.bytes(5, 10)] * 16
    assert gated.asked.count("open/0") == 1


def test_a_file_that_cannot_be_opened_is_opened_by_its_borrower(data: Path) -> None:
    store = foretell.Store(data)
    table = table_of(store)
    user = table.user(lends_to_open=True)
    for _ in range(2):
        table.expect("absent", user)
        assert borrowed(store, "absent") is None
        assert "absent" not in table._entries
    table.expect("absent", user)
    table.wait("absent", user)
    with pytest.raises(foretell.NotFound):
        table.file("absent")
    assert table.file("absent") is None
    with pytest.raises(foretell.NotFound):
        store.open("absent")


@pytest.mark.parametrize("new", [b"x" * 1000, b"x" * 1200])
def test_a_file_that_has_changed_is_forgotten(objects: Bucket, new: bytes) -> None:
    store = of(objects)
    table = table_of(store)
    user = table.user(lends_to_open=True)
    for path in ["1", "2"]:
        table.expect(path, user)
        table.wait(path, user)
    early = store.open("1")
    objects.objects["1"] = new
    late = store.open("1")
    if len(new) == 1000:  # Nothing but the size is known of it.
        assert late.read() == new
    else:
        with pytest.raises(foretell.Changed):
            late.read()
        assert table.forget_changed(user)
    with store.open("1") as now:
        assert now.read() == new
    assert table.file("1") is None
    table.begin_item(user)
    assert not table.forget_changed(user)
    # Of a handle that has been read, no other version is read.
    two = store.open("2")
    assert two.read(1) == b"2"
    objects.objects["2"] = b"y" * 1000
    assert two.read() == b"2" * 999, "it is in memory"
    assert early._is_stale


def test_a_handle_that_has_been_read_stays_at_its_version(objects: Bucket) -> None:
    objects.objects["big"] = bytes(1 << 20)
    store = of(objects)
    table = table_of(store)
    table.expect("big", table.user(lends_to_open=True))
    file = store.open("big")
    assert file.read_at(0, 10) == bytes(10)
    objects.objects["big"] = b"x" * (1 << 20)
    with pytest.raises(foretell.Changed):
        file.read_at(1 << 19, 10)
    assert store.open("big").read_at(0, 10) == b"x" * 10


def test_threads_read_one_version_of_a_borrowed_file(objects: Bucket) -> None:
    for turn in range(20):
        objects.objects["big"] = b"a" * (1 << 18)
        store = of(objects)
        table = table_of(store)
        user = table.user(lends_to_open=True)
        table.expect("big", user)
        table.wait("big", user)
        if turn % 2:
            store.open("big").read_at(0, 10)  # A part is in memory.
        file = store.open("big")
        objects.objects["big"] = b"b" * (1 << 18)

        def read(number: int, file: foretell.File = file) -> bytes:
            try:
                return file.read_at(number << 15, 10)
            except foretell.Changed:
                return b""

        with ThreadPoolExecutor(8) as pool:
            found = set(pool.map(read, range(8)))
        assert found - {b""} in ({b"a" * 10}, {b"b" * 10}, set())


def test_fsspec_borrows_from_a_disclosure(objects: Bucket) -> None:
    pytest.importorskip("fsspec")
    from foretell.fsspec import ForetellFileSystem

    fs = ForetellFileSystem(
        target_protocol="s3", target_options=objects.options, skip_instance_cache=True
    )
    store, _ = fs.store("b/0")
    names = [str(number) for number in range(8)]
    with foretell.disclosed(disclose.files(names, store=store)) as hints:
        assert hints.wait(HANG_S)
        for name in names:
            content = name.encode() * 1000
            assert fs.isfile(f"b/{name}")
            with fs.open(f"b/{name}") as file:
                assert file.read() == content
            assert fs.cat_file(f"b/{name}", -30, -10) == content[:20]
        found = fs.cat_ranges([f"b/{number}" for number in range(9)], 5, 8)
        assert found == [b"%d" % number * 3 for number in range(9)]
        assert [heads(objects, name) for name in names] == [2] * 8, "one opening and one read"
        # Replaced: the old version from memory, or the new one.
        objects.objects["3"] = b"new" * 2000
        assert fs.cat_file("b/3") in (b"3" * 1000, b"new" * 2000)
    assert fs.cat_file("b/3") == b"new" * 2000
    names = [str(number) for number in range(20, 30)]
    plan = [(name, 0, 0) for name in names] + [(name, 999, 1) for name in names]
    with foretell.disclosed(plan, store=of(objects)):
        pass
    with foretell.disclosed(disclose.files(names, store=store)) as hints:
        assert hints.wait(HANG_S)
        for number, name in enumerate(names):
            objects.objects[name] = b"z" * (1000 + number % 2)
        for number, name in enumerate(names):
            old = (b"%d" % (int(name) % 10)) * 1000
            new = b"z" * (1000 + number % 2)
            assert fs.cat_file(f"b/{name}") in (old, new)
            assert fs.cat_ranges([f"b/{name}"], 0, None)[0] in (old, new)


def test_a_disclosure_that_is_forgotten_lends_no_more(objects: Bucket) -> None:
    store = of(objects)
    hints = foretell.disclosed(disclose.files(["5"], store=store))
    assert hints.wait(HANG_S)
    assert borrowed(store, "5") is not None
    is_forgotten = weakref.ref(hints)
    del hints
    until(lambda: is_forgotten() is None)  # The thread that sent them may not have ended yet.
    until(lambda: borrowed(store, "5") is None)


def test_a_closed_store_has_no_files_ahead(data: Path) -> None:
    store = foretell.Store(data)
    table = table_of(store)
    user = table.user(lends_to_open=True)
    table.expect("small", user)
    table.wait("small", user)
    store.close()
    assert not table._entries
    table.expect("small", user)
    table.wait("small", user)
    assert store._borrow("small") is None
    with pytest.raises(RuntimeError):
        store.open("small")
    later = table.user()
    table.expect("even", later)
    assert not table._entries


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_forked_child_begins_with_an_empty_table(gated: Gated, data: Path) -> None:
    shut = gated.shut("open/0")
    store = foretell.Store(gated.url)
    table = table_of(store)
    user = table.user(lends_to_open=True)
    table.expect("/0", user)
    table.expect("/1", user)
    table.wait("/1", user)
    waits = threading.Thread(target=table.wait, args=("/0", user))
    waits.start()
    gated.wait_for("open/0")
    with table._lock:  # As if another thread had it.
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert store._borrow("/1") is None
                with store.open("/1") as file:
                    assert file.read_at(0, 10) == gated.bytes(0, 10)
                mine = table_of(store)
                assert mine is not table
                assert not mine._entries
                own = mine.user()
                mine.expect("/2", own)
                mine.wait("/2", own)
                code = 0 if mine.file("/2") is not None else 2
            finally:
                os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    shut.set()
    waits.join(HANG_S)
    assert not waits.is_alive()
    assert borrowed(store, "/0") is not None


def test_many_threads_use_one_table(data: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(_ahead, "OPENINGS", 5)
    monkeypatch.setattr(_ahead, "OPEN_AHEAD", 9)
    monkeypatch.setattr(_ahead, "LEAST_AHEAD", 2)
    store = foretell.Store(data)
    table = table_of(store)

    def use(number: int) -> int:
        user: User = table.user(lends_to_open=number % 2 == 0)
        names = [f"sub/{(number * 7 + at) % 100}.bin" for at in range(40)]
        for name in [*names, "absent"]:
            table.expect(name, user)
        for at, name in enumerate(names):
            table.wait(name, user)
            file = table.file(name)
            assert file is None or file.size >= 1000
            with store.open(name) as own:
                assert own.read() == (data / name).read_bytes()
            if at % 3:
                table.release(name, user)
            else:
                table.keep(name, user)
            if at == 30 and number % 4 == 0:
                break
        lent = user.lent
        table.drop(user)
        return lent

    with ThreadPoolExecutor(12) as pool:
        assert sum(pool.map(use, range(48))) > 0
    assert not table._entries
    until(lambda: not table._users)
