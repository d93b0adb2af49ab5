"""Files of a `foretell.Store` that are opened and hinted ahead of a loader, in the process that reads them.

A thread opens files in the order of the items, up to `OPENINGS` at once, and hints their ranges as soon as they are open. At
most `OPEN_AHEAD` files that were not read yet are open, whatever number of batches is known.

To open a file costs a request. So while a data set reads an item, `Store.open` returns the file that was opened for its hint:
once, because the data set may close it. That file is the version at that time. If it has been replaced since, its reads
may raise `Changed`, and the data set's item is read again without such files (`_dataset`).
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import Counter, OrderedDict, deque
from collections.abc import Iterable
from itertools import islice
from typing import TYPE_CHECKING

from foretell._ranges import OPENINGS, Coming
from foretell._store import File, Stream
from foretell.disclose._plan import Range
from foretell.disclose._targets import OFFSET_MAX

if TYPE_CHECKING:
    from foretell._store import Store

# Runs whose files are open and whose items were not read yet. In a folder each needs a descriptor, of which a process may have
# 1,024 by default.
OPEN_AHEAD = 384
# Runs of one stream, which keeps their files open until all its items were read.
RUNS_PER_STREAM = 64
# Ranges of one file that are hinted at once.
RANGES_AT_ONCE = 256
# Files that are kept open for later ranges of them.
KEPT_OPEN = 64


class Run:
    """Adjacent ranges of one file; `parts` is `None` for the whole file, and `item` the number of the last item among them."""

    __slots__ = ("coming", "is_given", "item", "parts", "path")

    def __init__(self, item: int, path: str, parts: list[tuple[int, int]] | None) -> None:
        self.item = item
        self.path = path
        self.parts = parts
        self.coming: Coming | None = None
        # Whether the data set has its file.
        self.is_given = False


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
        self.process = os.getpid()
        self._changed = threading.Condition()
        self._queue: deque[Run] = deque()
        self._files: OrderedDict[str, Coming] = OrderedDict()
        # Files that are open for a hint, and that the data set has not taken.
        self._open: dict[str, File] = {}
        # Runs whose files are being opened, by path.
        self._opening: Counter[str] = Counter()
        self._streams: deque[tuple[Stream, int]] = deque()
        self._runs = 0
        self._ahead: deque[tuple[int, str]] = deque()
        self._is_closed = False
        self._thread: threading.Thread | None = None
        self.taken = 0
        """Files that the data set has taken so far."""

    def add(self, items: Iterable[tuple[int, Range]]) -> None:
        """Disclose ranges of items, after those so far."""
        runs = runs_of(items)
        with self._changed:
            if self._is_closed or not runs:
                return
            self._queue.extend(runs)
            if self._thread is None:
                self._thread = threading.Thread(target=self._go, name="foretell-feed", daemon=True)
                self._thread.start()
            self._begin()
            self._changed.notify_all()

    def done(self, item: int) -> None:
        """Note that the items up to this one have been read."""
        with self._changed:
            while self._ahead and self._ahead[0][0] <= item:
                _, path = self._ahead.popleft()
                self._open.pop(path, None)
            while self._queue and self._queue[0].item <= item:
                self._leave(self._queue.popleft())
            while self._streams and self._streams[0][1] <= item:
                self._streams.popleft()[0].close()
                self._runs = self._runs if self._streams else 0
            self._changed.notify_all()

    def _leave(self, run: Run) -> None:
        """Note that a run has left the queue."""
        if run.coming is not None:
            self._opening[run.path] -= 1
            if not self._opening[run.path]:
                del self._opening[run.path]

    def take(self, path: str) -> File | None:
        """Return the file that was opened for a hint, perhaps waiting for that; `None` if there is none."""
        with self._changed:
            while path not in self._open and path in self._opening and not self._is_closed:
                self._changed.wait()
            file = self._open.pop(path, None)
            if file is None:
                return None
            coming = self._files.pop(path, None)
            for run in islice(self._queue, OPENINGS):
                run.is_given = run.is_given or (coming is not None and run.coming is coming)
            self.taken += 1
            return file

    def close(self) -> None:
        """Give up what was disclosed and not read. Does nothing in a forked child."""
        if self.process != os.getpid():
            return
        with self._changed:
            self._is_closed = True
            self._queue.clear()
            self._opening.clear()
            self._open.clear()
            self._files.clear()
            while self._streams:
                self._streams.popleft()[0].close()
            self._changed.notify_all()

    def _next(self) -> Run | None:
        """Wait for the next run."""
        with self._changed:
            while not self._is_closed and not (self._queue and len(self._ahead) < OPEN_AHEAD):
                self._changed.wait()
            if self._is_closed:
                return None
            self._begin()
            return self._queue[0]

    def _begin(self) -> None:
        """Begin to open the files of the next runs, as far as there is room."""
        room = min(OPENINGS, OPEN_AHEAD - len(self._ahead))
        for run in islice(self._queue, max(room, 0)):
            if run.coming is None:
                run.coming = self._coming(run.path)
                run.coming.begin()
                self._opening[run.path] += 1

    def _coming(self, path: str) -> Coming:
        coming = self._files.get(path)
        if coming is None:
            coming = self._files[path] = Coming(self._store, path)
            if len(self._files) > KEPT_OPEN + OPENINGS:
                self._files.popitem(last=False)
        else:
            self._files.move_to_end(path)
        return coming

    def _go(self) -> None:
        """Open and hint; the work of the thread."""
        while (run := self._next()) is not None:
            file: File | None = None
            if run.coming is not None:
                with contextlib.suppress(OSError, RuntimeError):  # The data set meets it too.
                    file = run.coming.file()
                if file is not None and file.closed:  # The data set has taken and closed it.
                    run.coming, run.is_given = Coming(self._store, run.path), False
                    with contextlib.suppress(OSError, RuntimeError):
                        file = run.coming.file()
            with self._changed:
                if not self._queue or self._queue[0] is not run:
                    continue  # Its items were read meanwhile.
                self._queue.popleft()
                if file is not None:
                    self._hint(run, file)
                self._leave(run)
                self._changed.notify_all()

    def _hint(self, run: Run, file: File) -> None:
        if not self._streams or self._runs >= RUNS_PER_STREAM:
            self._streams.append((Stream(self._store), run.item))
            self._runs = 0
        stream = self._streams[-1][0]
        self._streams[-1] = (stream, run.item)
        self._runs += 1
        with contextlib.suppress(OSError, ValueError, RuntimeError):
            file.hint(run.parts, stream=stream)
        self._ahead.append((run.item, run.path))
        if not run.is_given:
            self._open[run.path] = file
