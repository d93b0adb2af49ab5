"""Receivers of hints: the manager of `foretell run`, a foretell mount, or a `foretell.Store`."""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Protocol

from foretell import _foretell
from foretell._ahead import here
from foretell._store import File, Stream

if TYPE_CHECKING:
    from typing import TypeAlias

    from foretell._store import Store

    Parts: TypeAlias = Sequence[tuple[int, int]] | None

# The end of the longest file. A range to the end of a file is told up to there.
OFFSET_MAX = (1 << 63) - 1


class Target(Protocol):
    """Takes ranges of files in the order of reading, as one stream."""

    name: str
    """How a user knows it: "run", "mount" or "store"."""

    def expect(self, path: str) -> None:
        """Prepare for a file that will be hinted; never waits."""

    def is_ready(self, path: str) -> bool:
        """Whether `hint` would not wait for the file to be opened."""

    def wait(self, path: str) -> None:
        """Wait until `hint` would not."""

    def hint(self, path: str, parts: Parts, ordered: bool) -> int:
        """Disclose parts of a file (offset and length in bytes), or all of it; return how many were taken, from the first on.

        The whole file counts as one. Fewer than given: the receiver is behind; the rest may be sent later.

        Raises:
            OSError: The receiver has ended, or the file cannot be opened.

        """

    def cancel(self) -> None:
        """Give up what was hinted and not read."""

    def close(self) -> None:
        """Give up what was hinted and not read, for good."""


class RunTarget:
    """The manager of `foretell run`, if the program was started by it."""

    name = "run"

    def __init__(self, manager: _foretell.Manager) -> None:
        self._manager: _foretell.Manager | None = manager

    def expect(self, path: str) -> None: ...

    def is_ready(self, path: str) -> bool:
        return True

    def wait(self, path: str) -> None: ...

    def hint(self, path: str, parts: Parts, ordered: bool) -> int:
        if self._manager is None:
            raise BrokenPipeError("the manager has ended")
        return self._manager.hint(path, parts, ordered, 0.0)

    def cancel(self) -> None:
        if self._manager is not None:
            self._manager.cancel()

    def close(self) -> None:
        self._manager = None


class MountTarget:
    """A foretell mount."""

    name = "mount"

    def __init__(self, point: str) -> None:
        self._point = point
        self._mount: _foretell.Mount | None = _foretell.Mount(point)

    def expect(self, path: str) -> None: ...

    def is_ready(self, path: str) -> bool:
        return True

    def wait(self, path: str) -> None: ...

    def hint(self, path: str, parts: Parts, ordered: bool) -> int:
        if self._mount is None:
            raise BrokenPipeError("the mount has gone")
        if not path.startswith(self._point + "/"):
            path = os.path.join(os.path.realpath(os.path.dirname(path)), os.path.basename(path))
        return self._mount.hint(os.path.relpath(path, self._point), parts, ordered)

    def cancel(self) -> None:
        if self._mount is not None:
            self._mount.cancel()

    def close(self) -> None:
        self._mount = None


class StoreTarget:
    """A `foretell.Store`. Files are opened ahead, and stay open with the hints.

    Meanwhile the file system of fsspec borrows them. Otherwise it would open each one itself: on an object store, that takes as
    long as a read.
    """

    name = "store"

    def __init__(self, store: Store, files: Mapping[str, File]) -> None:
        self._stream = Stream(store)
        # Those that were open already.
        self._files: dict[str, File] = {}
        self._process = os.getpid()
        self._ahead = here(store._ahead, store)
        self._user = self._ahead.user()
        self.know(files)

    def know(self, files: Mapping[str, File]) -> None:
        """Note files that are open already."""
        for path, file in files.items():
            if self._files.get(path) is not file:
                self._files[path] = file
                self._ahead.know(file, self._user)

    def expect(self, path: str) -> None:
        if path not in self._files:
            self._ahead.expect(path, self._user)

    def is_ready(self, path: str) -> bool:
        return path in self._files or self._ahead.is_ready(path)

    def wait(self, path: str) -> None:
        if path not in self._files:
            if not self._ahead.is_ready(path):
                self._ahead.expect(path, self._user)
            self._ahead.wait(path, self._user)

    def hint(self, path: str, parts: Parts, ordered: bool) -> int:
        file = self._files.get(path)
        if file is None:
            file = self._ahead.file(path)
            if file is None or not self._ahead.keep(path, self._user):
                return 0
        file.hint(parts, stream=self._stream, ordered=ordered)
        return 1 if parts is None else len(parts)

    def cancel(self) -> None:
        self._stream.cancel()
        self._files.clear()
        self._ahead.drop(self._user)
        self._user = self._ahead.user()

    def close(self) -> None:
        self._stream.close()
        self._files.clear()
        self._ahead.drop(self._user)

    def __del__(self) -> None:
        with contextlib.suppress(AttributeError):  # It was not made to the end.
            if self._process == os.getpid():
                self._ahead.drop(self._user)


class Targets:
    """The targets of one disclosure, each made when it is first needed."""

    def __init__(self) -> None:
        self._run: RunTarget | None = None
        self._asked_run = False
        self._mounts: dict[str, MountTarget | None] = {}
        self._points = mount_points()
        self._real: dict[str, str | None] = {}
        self._stores: dict[int, StoreTarget] = {}

    def may_listen(self) -> bool:
        """Whether there may be a receiver for paths of this machine. If not, plans need not be made."""
        return bool(os.environ.get("FORETELL_SOCKET")) or bool(self._points)

    def of_store(self, store: Store, files: Mapping[str, File]) -> StoreTarget:
        """Return the target of a store; `files` of it are open already, by path."""
        target = self._stores.get(id(store))
        if target is None:
            target = self._stores[id(store)] = StoreTarget(store, files)
        target.know(files)
        return target

    def of_path(self, path: str) -> Target | None:
        """Return the receiver of hints for a path of this machine: its foretell mount, else the manager of the run."""
        point = self._point(path) if self._points else None
        if point is not None:
            return self._mount(point)
        if not self._asked_run:
            self._asked_run = True
            manager = _foretell.Manager.connect()
            self._run = None if manager is None else RunTarget(manager)
        return self._run

    def is_on_mount(self, path: str) -> bool:
        """Whether a path is on a foretell mount."""
        return bool(self._points) and self._point(path) is not None

    def _point(self, path: str) -> str | None:
        def above(place: str) -> str | None:
            return max(
                (one for one in self._points if place.startswith(one + "/")), default=None, key=len
            )

        point = above(path)
        if point is None:  # A link may lead there.
            folder = os.path.dirname(path)
            if folder not in self._real:
                self._real[folder] = above(os.path.realpath(folder) + "/")
            point = self._real[folder]
        return point

    def _mount(self, point: str) -> MountTarget | None:
        if point not in self._mounts:
            try:
                self._mounts[point] = MountTarget(point)
            except OSError:
                self._mounts[point] = None
        return self._mounts[point]

    def all(self) -> list[Target]:
        """Return all that were made."""
        mounts = [mount for mount in self._mounts.values() if mount is not None]
        run = [] if self._run is None else [self._run]
        return [*run, *mounts, *self._stores.values()]


def mount_points() -> list[str]:
    """Return the points of the foretell mounts in this process's view of the machine."""
    try:
        with open("/proc/self/mountinfo", "rb") as table:
            # Number, parent, device, root, point, options, any number of fields, a dash, type, source, options.
            found = re.findall(
                rb"^\S+ \S+ \S+ \S+ (\S+) .* - fuse\S* foretell[: ]", table.read(), re.MULTILINE
            )
    except OSError:
        return []
    unescape = partial(re.sub, rb"\\([0-7]{3})", lambda octal: bytes([int(octal[1], 8)]))
    return [os.fsdecode(unescape(point)) for point in found]
