"""Stores of several processes that share a cache."""

import json
import multiprocessing
import os
import pickle
import random
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from conftest import KEYS, Served

import foretell

SEED = 3


def until(is_so: Any, what: str) -> None:
    deadline = time.monotonic() + 60
    while not is_so():
        assert time.monotonic() < deadline, what
        time.sleep(0.01)


def share_of(number: int, store: foretell.Store, names: list[str], done: Any) -> None:
    """Read every fourth file, disclosed; report what was read."""
    mine = names[number::4]
    with foretell.disclosed([(name, 0, None) for name in mine], store=store):
        done.put((number, [store.open(name).read() for name in mine]))


@pytest.mark.parametrize("how", ["fork", "spawn", "forkserver"])
def test_workers_fetch_each_byte_once(slow: Served, data: Path, how: str) -> None:
    store = foretell.Store("s3://data", settings=slow.settings, shared=True)
    names = [f"sub/{number}.bin" for number in range(100)]
    wanted = [(data / name).read_bytes() for name in names]
    begun = store.stats()["requests"]
    context: Any = multiprocessing.get_context(how)
    for _ in range(2):  # The second epoch is in memory.
        done = context.Queue()
        workers = [
            context.Process(target=share_of, args=(number, store, names, done))
            for number in range(4)
        ]
        for worker in workers:
            worker.start()
        found = dict(done.get(timeout=120) for _ in workers)
        for worker in workers:
            worker.join()
            assert worker.exitcode == 0
        for number in range(4):
            assert found[number] == wanted[number::4]
    assert store.stats()["requests"] - begun == len(names), "each file has one block"


PROGRAM = """
import sys, foretell
store = foretell.Store(sys.argv[1], budget="16MiB", shared=True)
file = store.open("odd")
print(len(file.read_at(0, 1 << 20)), flush=True)
sys.stdin.read()
"""


def start(data: Path) -> subprocess.Popen[str]:
    program = subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(data)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    assert program.stdout.readline() == f"{1 << 20}\n"
    return program


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_the_process_that_has_the_cache_may_end(tmp_path: Path, how: signal.Signals) -> None:
    content = random.Random(SEED).randbytes((3 << 20) + 12345)
    (tmp_path / "odd").write_bytes(content)
    first = start(tmp_path)
    store = foretell.Store(tmp_path, budget="16MiB", shared=True)
    file = store.open("odd")
    before = store.stats()
    assert before["requests"] > 0, "the first process has read"
    assert file.read_at(1000, 100_000) == content[1000:101_000]
    assert store.stats()["requests"] == before["requests"], "it was in memory"
    stream = file.hint()
    first.send_signal(how)
    first.wait()
    assert file.read() == content
    assert file.read_at(5, 10) == content[5:15]
    stream.close()
    with store.open("odd") as again:  # With the family's new cache, which this process has.
        assert again.read() == content
    second = start(tmp_path)
    until(lambda: store.stats()["hit_blocks"] > 0, "the second process reads this one's cache")
    second.communicate("")
    file.close()


def test_a_stream_takes_hints_after_the_process_with_the_cache(tmp_path: Path) -> None:
    content = random.Random(SEED).randbytes((3 << 20) + 12345)
    (tmp_path / "odd").write_bytes(content)
    first = start(tmp_path)
    store = foretell.Store(tmp_path, budget="16MiB", shared=True)
    file = store.open("odd")
    stream = file.hint([(0, 4096)])
    first.kill()
    first.wait()

    def is_fetched_ahead() -> bool:
        file.hint([(2 << 20, 1 << 19)], stream=stream)
        return store.stats()["prefetched_blocks"] > 0

    until(is_fetched_ahead, "a hint has an effect")
    assert file.read() == content
    assert not stream.closed
    stream.close()
    with pytest.raises(ValueError, match="closed"):
        file.hint(stream=stream)


def test_a_file_that_has_changed_meanwhile_is_refused(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(bytes(40 << 20))
    first = start(tmp_path)
    file = foretell.Store(tmp_path, budget="16MiB", shared=True).open("odd")
    first.kill()
    first.wait()
    (tmp_path / "odd").unlink()
    (tmp_path / "odd").write_bytes(b"x" * (40 << 20))
    with pytest.raises(foretell.Changed):
        file.read_at(39 << 20, 10)


def test_a_store_says_which_cache_it_reads(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    monkeypatch.setenv("FORETELL_DAEMON", str(tmp_path / "none"))
    data = tmp_path / "data"
    data.mkdir()
    (data / "odd").write_bytes(bytes(2 << 20))
    assert foretell.Store(data).sharing == ("alone", None)
    first = start(data)
    store = foretell.Store(data, budget="16MiB", shared=True)
    why = f"no daemon with --cache is at {tmp_path / 'none'}"
    assert store.sharing == ("other", why)
    first.kill()
    first.wait()
    until(lambda: store.sharing == ("here", why), "the next family has its cache in this process")
    monkeypatch.setenv("FORETELL_DAEMON", "")
    assert foretell.Store(data, shared=True).sharing.why is None


def test_a_refusal_that_can_be_mended_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "daemon"
    folder.mkdir(mode=0o700)
    monkeypatch.setenv("FORETELL_DAEMON", str(folder))
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind(str(folder / "cache.sock"))
        listener.listen()
        # It closes each connection without a word, as a daemon of another version does.
        closing = threading.Thread(target=lambda: listener.accept()[0].close(), daemon=True)
        closing.start()
        with pytest.warns(
            RuntimeWarning, match="the daemon's cache is not used: .* start it again"
        ):
            store = foretell.Store(tmp_path, shared=True)
        closing.join()
    assert store.sharing.cache == "here"
    assert store.sharing.why is not None
    with warnings.catch_warnings(action="error"):  # Nothing was asked for.
        assert foretell.Store(tmp_path).sharing == ("alone", None)


def test_what_makes_a_family(tmp_path: Path) -> None:
    (tmp_path / "odd").write_bytes(random.Random(SEED).randbytes(2 << 20))
    first = start(tmp_path)

    def is_shared(**options: Any) -> bool:
        return foretell.Store(tmp_path, **options).stats()["requests"] > 0

    assert is_shared(shared=True)
    assert is_shared(shared=True, budget="1MiB")
    assert not is_shared(shared=False)
    assert not is_shared(shared=True, block=4096)
    assert not is_shared(shared=True, depth=3)
    assert not is_shared(shared=True, timeout=3)
    first.communicate("")


def test_a_copy_is_shared_too(data: Path) -> None:
    store = foretell.Store(data, shared=True)
    assert store.open("small").read() == (data / "small").read_bytes()
    copy = pickle.loads(pickle.dumps(store))
    assert copy.stats()["requests"] == store.stats()["requests"] > 0


def test_a_child_that_outlives_the_process_with_the_cache(tmp_path: Path) -> None:
    """It has the sockets of its parent, and answers nobody."""
    content = random.Random(SEED).randbytes(2 << 20)
    (tmp_path / "odd").write_bytes(content)
    program = PROGRAM.replace(
        "sys.stdin.read()",
        "import os, time; os.fork() and print('forked', flush=True); time.sleep(600)",
    )
    first = subprocess.Popen(
        [sys.executable, "-c", program, str(tmp_path)],
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert first.stdout is not None
        assert first.stdout.readline() == f"{1 << 20}\n"
        assert first.stdout.readline() == "forked\n"
        file = foretell.Store(tmp_path, budget="16MiB", shared=True).open("odd")
        first.kill()
        first.wait()
        assert file.read() == content
        with foretell.Store(tmp_path, budget="16MiB", shared=True) as store:
            assert store.open("odd").read() == content
    finally:
        os.killpg(first.pid, signal.SIGKILL)


def test_threads_find_another_way_together(tmp_path: Path) -> None:
    content = random.Random(SEED).randbytes(2 << 20)
    (tmp_path / "odd").write_bytes(content)
    first = start(tmp_path)
    store = foretell.Store(tmp_path, budget="16MiB", shared=True)
    file = store.open("odd")
    first.kill()
    first.wait()

    def read(number: int) -> bytes:
        with store.open("odd") as again:
            return again.read_at(number, 1 << 20) + file.read_at(number, 10)

    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(read, range(64)))
    for number in range(64):
        assert found[number] == content[number : number + (1 << 20)] + content[number : number + 10]


class Daemon:
    """`foretell daemon --cache` in a folder of its own."""

    def __init__(self, command: Path, folder: Path) -> None:
        self.command = command
        self.environment = {
            **os.environ,
            "FORETELL_DAEMON": str(folder / "run"),
            "AWS_CONFIG_FILE": str(folder / "config"),
            "AWS_SHARED_CREDENTIALS_FILE": str(folder / "credentials"),
        }
        self.process = subprocess.Popen(
            [command, "daemon", "--cache", "64MiB"],
            env=self.environment,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert self.process.stderr is not None
        assert "daemon_begins" in self.process.stderr.readline()

    def cache(self) -> dict[str, Any]:
        words = [str(self.command), "status", "--json"]
        answer = subprocess.run(words, env=self.environment, check=True, stdout=subprocess.PIPE)
        cache: dict[str, Any] = json.loads(answer.stdout)["cache"]
        return cache

    def end(self, how: signal.Signals = signal.SIGTERM) -> None:
        self.process.send_signal(how)
        self.process.wait()


@pytest.fixture
def daemon(
    command: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Daemon]:
    daemon = Daemon(command, tmp_path_factory.mktemp("daemon"))
    # Of this process too.
    for name, value in daemon.environment.items():
        monkeypatch.setenv(name, value)
    yield daemon
    daemon.end(signal.SIGKILL)


def c_program(command: Path, into: Path) -> Path | None:
    """A C program that reads a store, if its library was built beside the command."""
    library = command.parent / "libforetell_store.so"
    if not library.exists() or shutil.which("cc") is None:
        return None
    root = Path(__file__).parents[2]
    program = into / "reader"
    words = ["cc", "-std=gnu11", "-D_GNU_SOURCE", "-pthread", f"-I{root}/protocol/include"]
    words += ["-o", str(program), str(root / "store/tests/c/shared.c")]
    # By the name that programs look for, as it is installed.
    (into / "libforetell_store.so.0").symlink_to(library)
    words += [str(library), f"-Wl,-rpath,{into}"]
    subprocess.run(words, check=True)
    return program


def test_python_and_c_read_the_cache_of_a_daemon(
    daemon: Daemon, tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    content = random.Random(SEED).randbytes((3 << 20) + 12345)
    (tmp_path / "odd").write_bytes(content)
    programs = [start(tmp_path), start(tmp_path)]
    reader = c_program(daemon.command, tmp_path)
    if reader is None:
        with capfd.disabled():
            print("skipped: the C program: cargo build -p foretell-store, and cc")
    else:
        weighed = sum(byte * (at % 251 + 1) for at, byte in enumerate(content))
        # Python's depth and time are the defaults in C.
        said = subprocess.run([reader, tmp_path, "odd"], check=True, stdout=subprocess.PIPE)
        assert said.stdout.decode().splitlines() == [f"{len(content)} {weighed}"] * 2
    store = foretell.Store(tmp_path, budget="16MiB", block=4096, shared=True)
    assert store.block_bytes == 16384, "the daemon's"
    assert store.open("odd").read() == content
    cache = daemon.cache()
    assert (cache["stores"], cache["clients"]) == (1, 3)
    blocks = -(-len(content) // 16384)
    assert cache["counts"]["fetched_bytes"] == blocks * 16384
    for program in programs:
        program.communicate("")
    until(lambda: daemon.cache()["clients"] == 1, "the programs have left")


def test_libraries_over_fsspec_read_the_cache_of_a_daemon(
    daemon: Daemon, slow: Served, data: Path
) -> None:
    fsspec = pytest.importorskip("fsspec")
    options = {"target_protocol": "s3", "settings": slow.settings}
    fs = fsspec.filesystem("foretell", shared=True, **options)
    assert fs.cat("data/odd") == (data / "odd").read_bytes()
    assert daemon.cache()["clients"] == 1
    fetched = daemon.cache()["counts"]["fetched_bytes"]
    assert fetched > 0
    # As it is sent to a worker, say.
    script = "import pickle, sys; print(len(pickle.load(sys.stdin.buffer).cat('data/odd')))"
    words = [sys.executable, "-c", script]
    said = subprocess.run(
        words, input=pickle.dumps(fs), check=True, stdout=subprocess.PIPE, env=daemon.environment
    )
    assert int(said.stdout) == (data / "odd").stat().st_size
    assert daemon.cache()["counts"]["fetched_bytes"] == fetched
    # It is another file system than one that is not shared, which is the default.
    assert fs is fsspec.filesystem("foretell", shared=True, **options)
    alone = fsspec.filesystem("foretell", **options)
    assert alone is not fs
    assert fsspec.utils.tokenize(alone) != fsspec.utils.tokenize(fs)
    assert alone.store("data/odd")[0].sharing.cache == "alone"
    assert fs.store("data/odd")[0].sharing == ("daemon", None)


@pytest.mark.parametrize("how", [signal.SIGKILL, signal.SIGTERM])
def test_a_daemon_with_the_cache_may_end(
    daemon: Daemon, tmp_path: Path, how: signal.Signals
) -> None:
    content = random.Random(SEED).randbytes(40 << 20)
    (tmp_path / "odd").write_bytes(content)
    store = foretell.Store(tmp_path, budget="64MiB", shared=True)
    file = store.open("odd")
    assert file.read_at(0, 1 << 20) == content[: 1 << 20]
    assert daemon.cache()["clients"] == 1
    daemon.end(how)
    assert file.read() == content
    with store.open("odd") as again:  # With the family's cache, which this process has.
        assert again.read() == content


READ = """
import sys, foretell
address, endpoint = sys.argv[1:]
store = foretell.Store(address, shared=True, settings={"endpoint": endpoint})
try:
    print(len(store.open("odd").read()), flush=True)
except foretell.PermissionDenied:
    print("denied", flush=True)
sys.stdin.read()
"""


def said(daemon: Daemon, endpoint: str, **environment: str) -> str:
    """Return what a program says that reads with these variables, and how many stores use the daemon's cache then."""
    program = subprocess.Popen(
        [sys.executable, "-c", READ, "s3://data", endpoint],
        env={**daemon.environment, **environment},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert program.stdout is not None
    line = program.stdout.readline().strip()
    joined = daemon.cache()["clients"]
    program.communicate("")
    until(lambda: daemon.cache()["clients"] == 0, "it has left")
    return f"{line}, {joined} joined"


def test_each_program_reads_with_its_own_credentials(
    daemon: Daemon, slow: Served, data: Path
) -> None:
    keys = {name.upper(): value for name, value in KEYS.items()}
    size = (data / "odd").stat().st_size
    # The daemon has none of these variables.
    assert said(daemon, slow.endpoint, **keys) == f"{size}, 1 joined"
    fetched = daemon.cache()["counts"]["fetched_bytes"]
    assert said(daemon, slow.endpoint, **keys) == f"{size}, 1 joined"
    assert daemon.cache()["counts"]["fetched_bytes"] == fetched
    # The bytes are there, but not for others.
    wrong = {**keys, "AWS_SECRET_ACCESS_KEY": "another"}
    assert said(daemon, slow.endpoint, **wrong) == "denied, 1 joined"
    assert daemon.cache()["stores"] == 2
    # With other surroundings, a program is left to its family.
    assert said(daemon, slow.endpoint, **keys, no_proxy="elsewhere") == f"{size}, 0 joined"


PROFILE = """[profile plain]
aws_access_key_id = foretell
aws_secret_access_key = foretell-secret
"""


def test_a_profile_that_runs_a_command_is_read_by_its_own_program(
    daemon: Daemon, slow: Served, data: Path
) -> None:
    config = Path(daemon.environment["AWS_CONFIG_FILE"])
    config.write_text(PROFILE)
    size = (data / "odd").stat().st_size
    assert said(daemon, slow.endpoint, AWS_PROFILE="plain") == f"{size}, 1 joined"
    config.write_text(PROFILE + "[profile other]\ncredential_process = /bin/false\n")
    # Another variable makes another store.
    again = said(daemon, slow.endpoint, AWS_PROFILE="plain", AWS_REQUEST_PAYER="true")
    assert again == f"{size}, 0 joined"
