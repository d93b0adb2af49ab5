"""Fixtures: sample files, and the slow store that serves them."""

import contextlib
import http.server
import os
import random
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

import foretell

# Shared stores would join the cache of a daemon that runs here.
os.environ["FORETELL_DAEMON"] = ""

SIZES = {"one": 1, "small": 5000, "even": 1 << 20, "odd": (3 << 20) + 12345, "empty": 0}
KEYS = {"aws_access_key_id": "foretell", "aws_secret_access_key": "foretell-secret"}


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Files of random bytes, in a bucket "data"."""
    folder = tmp_path_factory.mktemp("served")
    bucket = folder / "data"
    (bucket / "sub").mkdir(parents=True)
    source = random.Random(1)
    for name, size in SIZES.items():
        (bucket / name).write_bytes(source.randbytes(size))
    for number in range(100):
        (bucket / "sub" / f"{number}.bin").write_bytes(source.randbytes(1000 + number))
    return folder


@pytest.fixture(scope="session")
def data(folder: Path) -> Path:
    return folder / "data"


@pytest.fixture
def store(data: Path) -> foretell.Store:
    return foretell.Store(data, budget="4MiB")


class Served:
    """A running slow store."""

    def __init__(self, command: Path, folder: Path, *options: str) -> None:
        words = [str(command), "store", "serve", str(folder), *options]
        self.process = subprocess.Popen(
            words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        assert self.process.stdout is not None
        self.endpoint = self.process.stdout.readline().split()[0]

    @property
    def settings(self) -> dict[str, str]:
        return {"aws_endpoint": self.endpoint, **KEYS}

    @property
    def s3fs_options(self) -> dict[str, str]:
        """The same settings, as s3fs takes them."""
        return {
            "key": KEYS["aws_access_key_id"],
            "secret": KEYS["aws_secret_access_key"],
            "endpoint_url": self.endpoint,
        }

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait()


@pytest.fixture(scope="session")
def command() -> Path:
    """The command `foretell`: $FORETELL, or the last build."""
    root = Path(__file__).parents[2]
    named = os.environ.get("FORETELL")
    if named:
        assert Path(named).is_file(), f"{named} ($FORETELL) is not there: cargo build -p foretell"
        return Path(named)
    target = root / os.environ.get("CARGO_TARGET_DIR", "target")
    built = [target / "release/foretell", target / "debug/foretell"]
    built = [path for path in built if path.exists()]
    if not built:
        pytest.skip(f"no foretell in {target}/debug or release: run `make build`, or set FORETELL")
    return max(built, key=lambda path: path.stat().st_mtime)


@pytest.fixture(scope="session")
def served(command: Path, folder: Path) -> Iterator[Served]:
    """A slow store with faults of every kind."""
    served = Served(
        command,
        folder,
        *["--first-byte", "2ms", "--fail-503", "2%", "--reset", "2%", "--truncate", "2%"],
    )
    yield served
    served.stop()


@pytest.fixture(scope="session")
def slow(command: Path, folder: Path) -> Iterator[Served]:
    """A slow store without faults, for clients that do not tolerate them; with a bucket "made" to write to."""
    (folder / "made").mkdir(exist_ok=True)
    served = Served(command, folder, "--first-byte", "2ms")
    yield served
    served.stop()


@pytest.fixture(scope="session")
def silent(command: Path, folder: Path) -> Iterator[Served]:
    """A store so slow that no answer arrives."""
    served = Served(command, folder, "--first-byte", "600s")
    yield served
    served.stop()


class Gated:
    """A server of objects of `size` bytes. Its answers wait for gates: "open/PATH" before the length, "read/PATH" before
    the bytes.
    """

    def __init__(self) -> None:
        gated = self
        self.size = 100_000
        self.gates: dict[str, threading.Event] = {}
        self.asked: list[str] = []
        self.came = threading.Condition()
        self.connections: list[socket.socket] = []

        class Handler(http.server.BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def setup(self) -> None:
                gated.connections.append(self.request)
                super().setup()

            def answer(self, what: str, first: int, end: int) -> None:
                with gated.came:
                    gated.asked.append(what)
                    gated.came.notify_all()
                if what in gated.gates:
                    gated.gates[what].wait()
                self.send_response(206 if self.command == "GET" else 200)
                self.send_header("Content-Length", str(end - first))
                self.send_header("Content-Range", f"bytes {first}-{end - 1}/{gated.size}")
                self.send_header("ETag", '"x"')
                self.send_header("Last-Modified", "Mon, 02 Nov 2026 10:00:00 GMT")
                self.end_headers()

            def do_HEAD(self) -> None:
                self.answer("open" + self.path, 0, gated.size)

            def do_GET(self) -> None:
                first, last = self.headers["Range"].removeprefix("bytes=").split("-")
                start, end = int(first), min(int(last) + 1, gated.size)
                # The client learns a file's size from the answer to a request for its first byte.
                self.answer(("read" if end > 1 else "open") + self.path, start, end)
                self.wfile.write(gated.bytes(start, end - start))

            def log_message(self, *words: object) -> None:
                pass

        class Server(http.server.ThreadingHTTPServer):
            request_queue_size = 1024

        self.server = Server(("127.0.0.1", 0), Handler)
        self.server.daemon_threads = True
        self.thread = threading.Thread(target=self.server.serve_forever)
        self.thread.start()

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server.server_port}"

    @staticmethod
    def bytes(offset: int, length: int) -> bytes:
        """The bytes that every object has there."""
        return bytes(number * 7 % 251 for number in range(offset, offset + length))

    def shut(self, what: str) -> threading.Event:
        gate = self.gates[what] = threading.Event()
        return gate

    def wait_for(self, what: str) -> None:
        """Wait until it has been requested."""
        with self.came:
            self.came.wait_for(lambda: what in self.asked)

    def stop(self) -> None:
        """Answer no more requests, not even on open connections."""
        for gate in self.gates.values():
            gate.set()
        if self.thread.is_alive():
            self.server.shutdown()
            self.thread.join()
            self.server.server_close()
            for connection in self.connections:
                with contextlib.suppress(OSError):
                    connection.shutdown(socket.SHUT_RDWR)


@pytest.fixture
def gated() -> Iterator[Gated]:
    gated = Gated()
    yield gated
    gated.stop()


@pytest.fixture
def alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide all other clients, as if not installed."""
    pytest.importorskip("fsspec")
    known = sys.modules["fsspec.registry"]._registry
    for name, protocols in {
        "s3fs": ["s3", "s3a"],
        "gcsfs": ["gs", "gcs"],
        "adlfs": ["az", "abfs"],
        "aiohttp": ["http", "https"],
    }.items():
        monkeypatch.setitem(sys.modules, name, None)
        for protocol in protocols:
            monkeypatch.delitem(known, protocol, raising=False)
    monkeypatch.delitem(sys.modules, "fsspec.implementations.http", raising=False)
