"""Hints of a loader for files of a `foretell.Store`, in the process that reads them.

The files are opened ahead (`foretell._ahead`), in the order of the items. A thread hints their ranges as soon as they are open.
While a data set reads an item, `Store.open` borrows the files that were opened for hints: the versions of that time. If one has
been replaced since, and its reads raise `Changed`, it is forgotten, and the item is read again (`_dataset`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterable
from typing import TYPE_CHECKING

from foretell._ahead import here
from foretell._store import Stream
from foretell.disclose._plan import Range
from foretell.disclose._targets import OFFSET_MAX

if TYPE_CHECKING:
    from foretell._store import File, Store

# Runs of one stream, which keeps their files open until all its items were read.
RUNS_PER_STREAM = 64
# Ranges of one file that are hinted at once.
RANGES_AT_ONCE = 256


class Run:
    """Adjacent ranges of one file; `parts` is `None` for the whole file, and `item` the number of the last item among them."""

    __slots__ = ("item", "parts", "path")

    def __init__(self, item: int, path: str, parts: list[tuple[int, int]] | None) -> None:
        self.item = item
        self.path = path
        self.parts = parts


def runs_of(items: Iterable[tuple[int, Range]]) -> list[Run]:
    """Group ranges by file."""
    runs: list[Run] = []
    for item, (path, offset, length) in items:
        if length is None and offset == 0:
            runs.append(Run(item, path, None))
            continue
        part = (offset, OFFSET_MAX - offset if length is None else length)
        last = runs[-1] if runs else None
        if last and last.path == path and last.parts and len(last.parts) < RANGES_AT_ONCE:
            last.parts.append(part)
            last.item = item
        else:
            runs.append(Run(item, path, [part]))
    return runs


class Feed:
    """Hints of one store, fed by a thread. Items are numbered in the order of reading."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._process = os.getpid()
        self._ahead = here(store._ahead, store)
        self.user = self._ahead.user(lends_to_open=True)
        self._changed = threading.Condition()
        self._queue: deque[Run] = deque()
        # Runs that have left the queue, by their last item and path, until they were read.
        self._unread: deque[tuple[int, str]] = deque()
        self._streams: deque[tuple[Stream, int]] = deque()
        self._runs = 0
        self._is_closed = False
        self._thread: threading.Thread | None = None

    def add(self, items: Iterable[tuple[int, Range]]) -> None:
        """Disclose ranges of items, after those so far."""
        runs = runs_of(items)
        with self._changed:
            if self._is_closed or not runs:
                return
            self._ahead.expect_all((run.path for run in runs), self.user)
            self._queue.extend(runs)
            if self._thread is None:
                self._thread = threading.Thread(target=self._go, name="foretell-feed", daemon=True)
                self._thread.start()
            self._changed.notify_all()

    def begin_item(self) -> None:
        """Note that an item is read now."""
        self._ahead.begin_item(self.user)

    def forget_changed(self) -> bool:
        """Forget files that have changed since they were opened; returns whether the item has borrowed any."""
        return self._ahead.forget_changed(self.user)

    def done(self, item: int) -> None:
        """Note that the items up to this one have been read."""
        with self._changed:
            while self._unread and self._unread[0][0] <= item:
                self._ahead.release(self._unread.popleft()[1], self.user)
            while self._queue and self._queue[0].item <= item:
                self._ahead.release(self._queue.popleft().path, self.user)
            while self._streams and self._streams[0][1] <= item:
                self._streams.popleft()[0].close()
                self._runs = self._runs if self._streams else 0

    def close(self) -> None:
        """Give up what was disclosed and not read. Does nothing in a forked child."""
        if self._process != os.getpid():
            return
        with self._changed:
            self._is_closed = True
            self._queue.clear()
            self._unread.clear()
            self._ahead.drop(self.user)
            while self._streams:
                self._streams.popleft()[0].close()
            self._changed.notify_all()

    def _next(self) -> Run | None:
        """Wait for the next run."""
        with self._changed:
            while not self._is_closed and not self._queue:
                self._changed.wait()
            return None if self._is_closed else self._queue[0]

    def _go(self) -> None:
        """Hint files that are open; the work of the thread."""
        while (run := self._next()) is not None:
            self._ahead.wait(run.path, self.user)
            file: File | None = None
            with contextlib.suppress(OSError, RuntimeError):  # The data set meets it too.
                file = self._ahead.file(run.path)
            with self._changed:
                if not self._queue or self._queue[0] is not run:
                    continue  # Its items were read meanwhile.
                self._queue.popleft()
                self._unread.append((run.item, run.path))
                if file is not None:
                    self._hint(run, file)

    def _hint(self, run: Run, file: File) -> None:
        if not self._streams or self._runs >= RUNS_PER_STREAM:
            self._streams.append((Stream(self._store), run.item))
            self._runs = 0
        stream = self._streams[-1][0]
        self._streams[-1] = (stream, run.item)
        self._runs += 1
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            file.hint(run.parts, stream=stream)
