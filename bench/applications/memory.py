"""A control group that bounds the page cache of programs, in either version. Needs root."""

import os
import time
from pathlib import Path


class Group:
    """A group of memory. Programs enter it with `enter` (as `preexec_fn`), and get a limit with `bound`."""

    def __init__(self, name: str = "") -> None:
        roots = [Path("/sys/fs/cgroup/memory"), Path("/sys/fs/cgroup")]
        root = next((one for one in roots if (one / "cgroup.procs").exists()), roots[-1])
        self.folder = root / f"foretell-applications-{os.getpid()}{name}"
        self.is_unified = root == roots[-1]

    def __enter__(self) -> "Group":
        self.folder.mkdir()
        return self

    def __exit__(self, *_: object) -> None:
        # Its last process may need a moment.
        for _ in range(100):
            try:
                return self.folder.rmdir()
            except OSError:
                time.sleep(0.05)

    def enter(self) -> None:
        """Puts this process into the group."""
        (self.folder / "cgroup.procs").write_text(str(os.getpid()))

    def cached_bytes(self) -> int:
        """Bytes of the page cache that the group is charged for."""
        return self._bytes("file" if self.is_unified else "cache")

    def shared_bytes(self) -> int:
        """Those of them that are shared memory, which no file system can read again."""
        return self._bytes("shmem")

    def _bytes(self, name: str) -> int:
        lines = (self.folder / "memory.stat").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.split()[0] == name)

    def bound(self, cache_bytes: int) -> None:
        """Lets the group have so much of the page cache, beside all that it has now and that is no page cache."""
        usage, limit = (
            ("memory.current", "memory.max") if self.is_unified else ("memory.usage_in_bytes", "memory.limit_in_bytes")
        )
        other = int((self.folder / usage).read_text()) - self.cached_bytes()
        (self.folder / limit).write_text(str(other + cache_bytes))


def missing() -> str | None:
    """Why there can be no group here, or None."""
    try:
        with Group("-test"):
            return None
    except OSError as error:
        return f"no control group of memory: {error} (run as root, with the memory controller)"
