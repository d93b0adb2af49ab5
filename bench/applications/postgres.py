"""Joins in PostgreSQL (TIP 1995, section 3.4): an outer table is joined with an inner one by the inner one's index.

The server is the machine's, with its cluster on the array. Its tables have the paper's numbers of rows and bytes. Each run
starts a server, which is not measured, and sends it one query. A small extension (`postgres/`) splits the loop and gives the
hints. A control group bounds what the server and foretell together have of the page cache, to the size of the paper's cache.
"""

import hashlib
import os
import pwd
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

from applications import memory
from applications.driver import HERE, QUIET, Application, Failed, Outcome, World, last_line

SOURCE = HERE / "postgres"
EXTENSION = "foretell_disclose"
# Plans that are switched off, so that each arm joins by the index, as the paper does.
PLAN = ["hashjoin", "mergejoin", "memoize", "material", "bitmapscan"]
SETTINGS = {
    **{f"enable_{plan}": "off" for plan in PLAN},
    "max_parallel_workers_per_gather": 0,
    "jit": "off",
    "autovacuum": "off",
    "listen_addresses": "",
    # Of the server itself; the kernel's cache is behind it.
    "shared_buffers": "1MB",
}
# TIP 1995, section 5: 1,536 buffers of 8 KiB. foretell fills a part of them ahead; the kernel evicts pages that were read once
# before those that were read again, so of more than that some would be gone before they are read.
CACHE_BYTES = 12 << 20
FORETELL_SHARE = 0.3
# What a query may use for itself beside that: work_mem.
WORK_BYTES = 4 << 20
COLUMNS = "outer_number, inner_number, inner_text"
PLAIN = "SELECT o.number, i.number, i.text FROM outer_table o JOIN inner_table i ON i.key = o.key"
QUERIES = {
    "plain": PLAIN,
    "split loop": f"SELECT {COLUMNS} FROM split_join(false)",
    "split loop, foretell run --release, hints": f"SELECT {COLUMNS} FROM split_join(true)",
}


def owner() -> dict[str, Any]:
    """The user of the server, as arguments of `subprocess`: PostgreSQL refuses to run as root."""
    if os.geteuid() != 0:
        return {}
    for name in ("postgres", "nobody"):
        try:
            found = pwd.getpwnam(name)
            return {"user": found.pw_uid, "group": found.pw_gid, "extra_groups": []}
        except KeyError:
            pass
    raise Failed("there is no user postgres or nobody that could run the server")


def as_owner() -> list[str]:
    """The words before a command that is to run as that user."""
    own = owner()
    return ["setpriv", f"--reuid={own['user']}", f"--regid={own['group']}", "--clear-groups"] if own else []


def give(path: Path) -> None:
    """Gives a folder to the server's user."""
    if own := owner():
        os.chown(path, own["user"], own["group"])


def let_through(path: Path) -> None:
    """Lets the server's user reach a folder. Only temporary folders, which are this run's own, are opened to others."""
    own, temporary = owner(), Path(tempfile.gettempdir()).resolve()
    for folder in [path.parent, *path.parent.parents] if own else []:
        if folder.is_relative_to(temporary) and folder != temporary:
            folder.chmod(folder.stat().st_mode | 0o011)
    if own and subprocess.run(["test", "-x", path], cwd="/", **own, **QUIET).returncode != 0:
        raise Failed(f"the server's user cannot reach {path}; all users must be able to enter the folders above it")


class Server:
    """A running server of the cluster in `data`. `library` is the folder of the extension."""

    def __init__(self, binaries: Path, data: Path, sockets: Path) -> None:
        self.binaries, self.data, self.sockets = binaries, data, sockets

    def words(self, library: Path) -> list[object]:
        """The command that is the server."""
        settings = {**SETTINGS, "unix_socket_directories": self.sockets, "dynamic_library_path": f"{library}:$libdir"}
        options = [word for name, value in settings.items() for word in ("-c", f"{name}={value}")]
        return [self.binaries / "postgres", "-D", self.data, *options]

    def query(self, *words: object) -> list[object]:
        """The command that has the server carry something out."""
        psql = [self.binaries / "psql", "-X", "-q", "-A", "-t", "-v", "ON_ERROR_STOP=1", "-h", self.sockets]
        return [*psql, "-U", "postgres", "-d", "postgres", *words]

    def wait(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        """Waits until it takes queries."""
        for _ in range(1200):
            if subprocess.run(self.query("-c", "SELECT 1"), cwd="/", **owner(), **QUIET).returncode == 0:
                return
            if process.poll() is not None:
                break
            time.sleep(0.05)
        raise Failed(f"the server does not start: {last_line(log.read_text(errors='replace'))}")

    def stop(self) -> None:
        """Ends it in order."""
        words = [self.binaries / "pg_ctl", "-D", self.data, "-m", "fast", "-w", "-t", "60", "stop"]
        subprocess.run(words, cwd="/", **owner(), **QUIET)


class Postgres(Application):
    """One join of 20,000 and 200,000 rows."""

    name = "postgres"
    title = "PostgreSQL: a join of 20,000 and 200,000 rows, one in five matching (1995, figure 2 a)"
    arms: ClassVar = list(QUERIES)
    array_options: ClassVar = ["--disk", "hp97560", "--layout", "sequential", "--writable"]
    commands: ClassVar = {"pg_config": "postgresql-server-dev-15", "make": "make", "cc": "gcc"}

    def missing(self) -> str | None:
        """It also needs a server, a control group, and the library that is built with foretell."""
        if not self.library().exists():
            return f"there is no {self.library()}; `make build` builds it"
        if problem := super().missing():
            return problem
        if not (self.binaries() / "initdb").exists():
            return f"there is no server in {self.binaries()} (Debian: postgresql-15)"
        return memory.missing()

    def library(self) -> Path:
        """The C library of hints."""
        return Path(self.tools.foretell).with_name("libforetell.a")

    def binaries(self) -> Path:
        """Where the server is."""
        return Path(subprocess.run(["pg_config", "--bindir"], capture_output=True, text=True, check=True).stdout.strip())

    def build(self, folder: Path) -> None:
        """Builds the extension into a folder."""
        words = ["make", "-f", SOURCE / "Makefile", f"VPATH={SOURCE}", f"FORETELL={self.library().parent}", f"{EXTENSION}.so"]
        done = subprocess.run([*map(str, words)], cwd=folder, capture_output=True, text=True)
        if done.returncode != 0:
            raise Failed(f"the extension cannot be built: {last_line(done.stderr)}")

    @contextmanager
    def folders(self) -> Iterator[tuple[Path, Path]]:
        """The folder with the extension, and one for sockets, whose paths must be short."""
        with tempfile.TemporaryDirectory(prefix="foretell-") as name:
            folder, sockets = Path(name), Path(name) / "run"
            folder.chmod(0o755)
            sockets.mkdir()
            give(sockets)
            self.build(folder)
            yield folder, sockets

    def make(self, folder: Path) -> None:
        """A cluster with both tables and the extension's functions."""
        give(folder)
        let_through(folder)
        binaries, data = self.binaries(), folder / "data"
        own = {"cwd": "/", "capture_output": True, "text": True, **owner()}
        words = [binaries / "initdb", "-D", data, "-A", "trust", "-U", "postgres", "--no-sync", "--locale=C", "-E", "UTF8"]
        done = subprocess.run(words, **own)
        if done.returncode != 0:
            raise Failed(f"initdb: {last_line(done.stderr)}")
        with self.folders() as (library, sockets), open(library / "log", "w+b") as log:
            server = Server(binaries, data, sockets)
            words = [*server.words(library), "-c", "fsync=off", "-c", "shared_buffers=128MB", "-c", "max_wal_size=64MB"]
            process = subprocess.Popen([*map(str, words)], cwd="/", stdout=log, stderr=log, **owner())
            try:
                server.wait(process, library / "log")
                functions = (SOURCE / f"{EXTENSION}--1.0.sql").read_text().replace("MODULE_PATHNAME", EXTENSION)
                script = functions + (SOURCE / "join.sql").read_text()
                words = server.query("-v", f"scale={0.02 if self.is_small else 1}")
                done = subprocess.run([*map(str, words)], input=script, **own)
                if done.returncode != 0:
                    raise Failed(f"the tables cannot be made: {last_line(done.stderr)}")
            finally:
                server.stop()
                try:
                    process.wait(timeout=60)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()

    def run(self, arm: str, world: World) -> Outcome:
        """Starts a server, measures one query, and stops the server."""
        let_through(world.array.path)
        cache_bytes = CACHE_BYTES // 3 if self.is_small else CACHE_BYTES
        options = ["--quiet", "--no-learn", "--no-hint-args", "--release", "--budget", int(cache_bytes * FORETELL_SHARE)]
        run = [world.foretell, "run", *options, "--"] if arm == self.arms[-1] else []
        with self.folders() as (library, sockets), open(library / "log", "w+b") as log, memory.Group() as group:
            server = Server(self.binaries(), world.array.path / "data", sockets)
            # Root alone can enter the group, so the user is changed after that.
            words = [*as_owner(), *run, *server.words(library)]
            pipes = {"stdout": log, "stderr": log, "preexec_fn": group.enter}
            with world.running(words, env={"HOME": str(sockets)}, cwd="/", **pipes) as process:
                try:
                    server.wait(process, library / "log")
                    return bounded(world, server.query(), QUERIES[arm], (group, cache_bytes))
                finally:
                    server.stop()

    def paper(self, disks: int) -> dict[str, str]:
        """Section 3.4 and figure 2 a; the figure's numbers are lost in our copy."""
        return {"split loop": "20", "split loop, foretell run --release, hints": "55"} if disks >= 4 else {"split loop": "20"}


def bounded(world: World, client: list[object], query: str, bound: tuple[memory.Group, int]) -> Outcome:
    """Measures a query by a client that is connected, from when the group of its server is bounded."""
    group, cache_bytes = bound
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with world.running(client, cwd="/", **pipes, **owner()) as process:
        process.stdin.write("SELECT 'ready';\n")
        process.stdin.flush()
        if process.stdout.readline() != "ready\n":
            raise Failed(f"the client does not answer: {last_line(process.stderr.read())}")
        # The server's own buffers count as page cache there.
        group.bound(cache_bytes + group.shared_bytes() + WORK_BYTES)
        began = time.perf_counter()
        rows, errors = process.communicate(f"{query};\n", timeout=600)
        seconds = time.perf_counter() - began
        if process.returncode != 0:
            raise Failed(f"the query has failed: {last_line(errors)}")
    return Outcome(seconds, hashlib.sha256(rows.encode()).hexdigest(), notes={"rows": rows.count("\n")})


APPLICATIONS = [Postgres]
