"""Forks, spawned processes, signals, and unreferenced objects."""

import asyncio
import gc
import itertools
import multiprocessing
import os
import pickle
import signal
import subprocess
import sys
import textwrap
import threading
import time
import weakref
from pathlib import Path

import pytest
from conftest import Gated, Served

import foretell

# Longer than anything here takes, unless it hangs.
HANG_S = 60


def test_pickle(data: Path) -> None:
    store = foretell.Store(data, budget="1MiB", block=4096, depth=3)
    again = pickle.loads(pickle.dumps(store))
    assert repr(again) == repr(store) == f"foretell.Store({str(data)!r})"
    assert again.block_bytes == 4096
    assert again.open("small").read() == store.open("small").read()
    with pytest.raises(TypeError, match="pickle"):
        pickle.dumps(store.hint("small"))


@pytest.mark.parametrize("name", ["data", "s p%20ace", "s3:/b"])
def test_a_folder_is_the_same_one_wherever_it_is_made_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / name).mkdir(parents=True)
    (tmp_path / name / "file").write_bytes(b"bytes")
    monkeypatch.chdir(tmp_path)
    pickled = pickle.dumps(foretell.Store(name))
    monkeypatch.chdir("/")
    assert pickle.loads(pickled).open("file").read() == b"bytes"


def test_stores_and_files_that_know_each_other_are_forgotten(data: Path) -> None:
    store = foretell.Store(data)
    store.file, store.stream = store.open("small"), store.hint("small")  # type: ignore[attr-defined]
    known = weakref.ref(store)
    del store
    gc.collect()
    assert known() is None


@pytest.mark.parametrize("ordered", [True, False])
def test_an_iteration_that_is_given_up_is_forgotten(
    served: Served, data: Path, ordered: bool
) -> None:
    store = foretell.Store("s3://data", budget="1MiB", settings=served.settings)
    for _ in range(20):
        found = store.read_ranges(
            [("odd", at * 10_000, 10_000) for at in range(300)],
            ordered=ordered,
        )
        next(found)
        del found
    known = weakref.ref(store)
    assert store.open("odd").read() == (data / "odd").read_bytes()
    del store
    gc.collect()
    assert known() is None


def in_child(store: foretell.Store, file: foretell.File, stream: foretell.Stream) -> int:
    """Use all objects of the parent."""
    expected = file.size
    stream.cancel()
    stream.close()
    found = len(file.read_at(0, expected)) == expected
    with store.open("odd") as other:
        found = found and len(other.read()) == other.size
    ranges = [(at, 100) for at in range(0, 100_000, 1000)]
    for sample in store.read_ranges("even", ranges):
        found = found and len(sample) == 100
    for _, sample in store.read_ranges("even", ranges, ordered=False):
        found = found and len(sample) == 100
    found = found and len(asyncio.run(file.read_at_async(7, 1000))) == 1000
    return 0 if found else 1


@pytest.mark.parametrize("kind", ["folder", "objects"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_fork(data: Path, served: Served, kind: str) -> None:
    store = (
        foretell.Store(data, budget="2MiB")
        if kind == "folder"
        else foretell.Store("s3://data", budget="2MiB", settings=served.settings)
    )
    file = store.open("even")
    stream = file.hint()
    assert len(file.read_at(500, 1000)) == 1000
    assert len(asyncio.run(file.read_at_async(500, 1000))) == 1000
    many = [(at, 100) for at in range(2000)]
    inherited = [store.read_ranges("even", many, ordered=ordered) for ordered in (True, False)]
    for one in inherited:
        next(one)
    child = os.fork()
    if child == 0:
        code = 2
        try:
            signal.alarm(HANG_S)
            code = in_child(store, file, stream)
            for one in inherited:
                with pytest.raises(RuntimeError, match="begin a new one in the child"):
                    next(one)
            del store, file, stream, inherited, one
        finally:
            os._exit(code)
    _, status = os.waitpid(child, 0)
    assert os.waitstatus_to_exitcode(status) == 0
    assert len(file.read()) == 1 << 20  # The parent's read goes on.
    assert [len(list(one)) for one in inherited] == [1999, 1999]


@pytest.mark.parametrize("kind", ["folder", "objects"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_forks_while_threads_read(data: Path, served: Served, kind: str) -> None:
    """The child never waits for a lock that a thread held when the process forked."""
    store = (
        foretell.Store(data, budget="256KiB")
        if kind == "folder"
        else foretell.Store("s3://data", budget="256KiB", settings=served.settings)
    )
    file, plain, stop = store.open("odd"), (data / "odd").read_bytes(), threading.Event()
    failures: list[BaseException] = []

    def read(seed: int) -> None:
        try:
            for at in itertools.count(seed):
                if stop.is_set():
                    return
                offset = at * 7919 % 3_000_000
                assert file.read_at(offset, 20_000) == plain[offset : offset + 20_000]
                store.hint(file, [(offset, 50_000)]).close()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=read, args=(seed * 1000,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    codes = []
    try:
        for _ in range(20):
            child = os.fork()
            if child == 0:
                code = 2
                try:
                    signal.alarm(HANG_S)
                    code = 0 if file.read_at(1000, 5000) == plain[1000:6000] else 1
                finally:
                    os._exit(code)
            codes.append(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    assert codes == [0] * 20
    assert not failures


def worker(arguments: tuple[foretell.Store, str]) -> bytes:
    store, path = arguments
    with store.open(path) as file:
        return file.read()


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("kind", ["folder", "objects"])
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_workers(data: Path, served: Served, method: str, kind: str) -> None:
    store = (
        foretell.Store(data)
        if kind == "folder"
        else foretell.Store("s3://data", settings=served.settings)
    )
    assert store.open("small").read()  # Its threads are running.
    with multiprocessing.get_context(method).Pool(2) as pool:
        paths = [f"sub/{number}.bin" for number in range(20)]
        found = pool.map_async(worker, [(store, path) for path in paths]).get(HANG_S)
    assert found == [(data / path).read_bytes() for path in paths]


WAITS = {
    "open": "store.open('small')",
    "read": "fast.open('slow').read_at(0, 5000)",
    "readinto": "fast.open('slow').readinto(bytearray(5000))",
    "ranges": "list(store.read_ranges([('small', 0, 10)]))",
    "reads of ranges": "list(fast.read_ranges([('slow', 0, 10)]))",
    "any order": "list(store.read_ranges([('small', 0, 10)], ordered=False))",
    "into, in any order": "list(fast.read_ranges([('slow', 0, 10)], into=[bytearray(10)], ordered=False))",
    "async": "asyncio.run(fast.read_async('slow', 0, 10))",
    "async opening": "asyncio.run(store.open_async('small'))",
}


@pytest.mark.parametrize("wait", sorted(WAITS))
def test_interrupt(silent: Served, tmp_path: Path, wait: str) -> None:
    """SIGINT ends a wait for data that never arrives."""
    program = textwrap.dedent(f"""
        import asyncio, http.server, signal, sys, threading, time, foretell

        signal.signal(signal.SIGINT, signal.default_int_handler)  # A shell's background job ignores it.

        class Silent(http.server.BaseHTTPRequestHandler):  # Sends the object's length and nothing else.
            def do_GET(self):
                if self.headers["Range"] != "bytes=0-0":
                    time.sleep(600)
                self.send_response(206)
                self.send_header("Content-Length", "1")
                self.send_header("Content-Range", "bytes 0-0/5000")
                self.send_header("ETag", '"x"')
                self.send_header("Last-Modified", "Mon, 02 Nov 2026 10:00:00 GMT")
                self.end_headers()
                self.wfile.write(b"x")
            def log_message(self, *words):
                pass

        server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Silent)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        fast = foretell.Store(f"http://127.0.0.1:{{server.server_port}}", timeout=600)
        store = foretell.Store("s3://data", timeout=600, settings={silent.settings!r})
        print("waits", flush=True)
        try:
            {WAITS[wait]}
        except KeyboardInterrupt:
            print("interrupted", flush=True)
    """)
    process = subprocess.Popen([sys.executable, "-c", program], stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout is not None
        assert process.stdout.readline() == "waits\n"
        with pytest.raises(subprocess.TimeoutExpired):
            process.wait(0.3)  # It is waiting.
        process.send_signal(signal.SIGINT)
        out, _ = process.communicate(timeout=HANG_S)
        assert out == "interrupted\n"
        assert process.returncode == 0
    finally:
        process.kill()


def test_a_read_that_was_interrupted_gives_its_buffer_back(gated: Gated) -> None:
    gate = gated.shut("read/slow")
    store = foretell.Store(gated.url)
    file, buffer = store.open("slow"), bytearray(100)

    def interrupt() -> None:
        gated.wait_for("read/slow")
        os.kill(os.getpid(), signal.SIGINT)

    thread = threading.Thread(target=interrupt)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        thread.start()
        with pytest.raises(KeyboardInterrupt):
            file.readinto(buffer)
        thread.join()
    finally:
        signal.signal(signal.SIGINT, before)
    with pytest.raises(BufferError):
        buffer.extend(b"more")
    gate.set()
    assert file.read_at(0, 100) == gated.bytes(0, 100)
    deadline = time.monotonic() + HANG_S
    while True:  # Until the fetching thread has released it.
        file.read_at(0, 1)
        try:
            buffer.extend(b"more")
            break
        except BufferError:
            assert time.monotonic() < deadline
    assert buffer == gated.bytes(0, 100) + b"more"


def test_other_threads_run_while_one_waits(silent: Served) -> None:
    store = foretell.Store("s3://data", timeout=1, settings=silent.settings)
    ended = threading.Event()

    def wait() -> None:
        with pytest.raises(foretell.Error):
            store.open("small")
        ended.set()

    threading.Thread(target=wait).start()
    turns = 0
    while not ended.wait(0.01):
        turns += 1
    assert turns > 5
