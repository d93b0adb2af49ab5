"""Stores with a shared tier: on a real server, in processes of dask's, and the examples."""

import ast
import json
import os
import pickle
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import foretell

EXAMPLES = Path(__file__).parents[2] / "examples" / "fleet"


class Redis:
    """A real server, which ends with the test."""

    def __init__(self, program: str, folder: Path) -> None:
        for _ in range(20):  # Another program may take the port first.
            with socket.socket() as free:
                free.bind(("127.0.0.1", 0))
                self.port = free.getsockname()[1]
            options = [
                "--save",
                "",
                "--appendonly",
                "no",
                "--bind",
                "127.0.0.1",
                "--dir",
                str(folder),
            ]
            self.process = subprocess.Popen(
                [program, "--port", str(self.port), *options], stdout=subprocess.DEVNULL
            )
            if self._answers():
                return
        raise AssertionError("a server starts")

    def _answers(self) -> bool:
        for _ in range(3000):
            if self.process.poll() is not None:
                return False
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                time.sleep(0.01)
            else:
                return True
        return False

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def stop(self) -> None:
        self.process.kill()
        self.process.wait()


@pytest.fixture
def redis(tmp_path: Path) -> Iterator[Redis]:
    program = shutil.which("redis-server") or shutil.which("valkey-server")
    if program is None:
        pytest.skip("there is no redis-server")
    server = Redis(program, tmp_path)
    yield server
    server.stop()


def read_all(store: foretell.Store, data: Path) -> int:
    """Read all files, compare them, and return the number of bytes."""
    count = 0
    for entry in store.list(recursive=True):
        with store.open(entry.name) as file:
            found = file.read()
        assert found == (data / entry.name).read_bytes(), entry.name
        count += len(found)
    return count


def test_a_second_store_fetches_nothing(redis: Redis, slow: Any, data: Path) -> None:
    url = f"{redis.url}?lease=60s"
    with foretell.Store("s3://data", settings=slow.settings, tier=url) as store:
        assert read_all(store, data) > 0
        assert pickle.loads(pickle.dumps(store)).__reduce__()[1][-1] == url
        # Blocks are put in the background.
        for _ in range(3000):
            stats = store.stats()
            if stats["tier_put_blocks"] == stats["tier_leases"]:
                break
            time.sleep(0.01)
        assert stats["tier_missed_blocks"] == stats["tier_leases"] > 0
    # In other words, so that it is not the same tier of this process.
    with foretell.Store("s3://data", settings=slow.settings, tier=f"{redis.url}?ttl=2h") as other:
        read_all(other, data)
        stats = other.stats()
    assert (stats["tier_missed_blocks"], stats["tier_refused_values"]) == (0, 0)
    assert stats["tier_hit_blocks"] > 0


def test_without_its_server_a_store_reads_on(
    redis: Redis, slow: Any, data: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    secret = f"redis://:hidden@127.0.0.1:{redis.port}"
    with foretell.Store("s3://data", settings=slow.settings, tier=secret) as store:
        redis.process.send_signal(signal.SIGKILL)
        redis.process.wait()
        read_all(store, data)
        assert store.stats()["tier_server_errors"] > 0
    said = capfd.readouterr().err
    assert said.count("foretell: shared tier: redis://127.0.0.1:") == 1, said
    assert "hidden" not in said


def test_a_forked_child_has_a_tier_of_its_own(redis: Redis, slow: Any, data: Path) -> None:
    with foretell.Store("s3://data", settings=slow.settings, tier=redis.url) as store:
        read_all(store, data)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                code = 0 if read_all(store, data) > 0 else 1
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        read_all(store, data)


def test_wrong_tiers_are_errors(data: Path) -> None:
    with pytest.raises(ValueError, match="a folder has no shared tier"):
        foretell.Store(data, tier="redis://host")
    for tier, why in [
        ("redis://:hidden@host?lease=5", "lease=5"),
        ("/a/folder", "begins with redis://"),
        ("redis://:hidden@", "a host is missing"),
    ]:
        with pytest.raises(ValueError, match=why) as raised:
            foretell.Store("s3://data", settings={"aws_region": "x"}, tier=tier)
        assert "hidden" not in str(raised.value)


def test_the_example_for_dask_fetches_each_block_once(redis: Redis, slow: Any, data: Path) -> None:
    pytest.importorskip("distributed")
    paths = [str(Path(__file__).parents[1]), *os.environ.get("PYTHONPATH", "").split(":")]
    variables = {
        **os.environ,
        "PYTHONPATH": ":".join(filter(None, paths)),
        **{name.upper(): value for name, value in slow.settings.items()},
    }
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / "dask_sum.py"), "s3://data", f"{redis.url}?lease=60s"],
        stdout=subprocess.PIPE,
        text=True,
        timeout=300,
        env=variables,
        check=True,
    )
    found = json.loads(done.stdout)
    files = [path for path in data.rglob("*") if path.is_file()]
    assert found["sums"] == [sum(sum(path.read_bytes()) for path in files)]
    blocks = sum(-(-path.stat().st_size // 16384) for path in files)
    assert found["workers"] == 4
    assert found["fetched_blocks"] == blocks
    assert found["shared_blocks"] >= 3 * blocks


@pytest.mark.parametrize("name", sorted(path.name for path in EXAMPLES.glob("*.py")))
def test_examples_can_be_compiled(name: str) -> None:
    tree = ast.parse((EXAMPLES / name).read_text())
    compile(tree, name, "exec")
    assert ast.get_docstring(tree)
