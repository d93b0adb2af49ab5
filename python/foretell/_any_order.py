"""Reads of many ranges, each returned when it completes.

Ranges are taken from their source and disclosed as in `_ranges`. But a run of ranges is *ready* as soon as its file is open,
even if an earlier file is not, and reads of ready runs are begun several at a time. At most `UNDER_WAY` reads are in flight or
completed and not yet returned, so memory is bounded.
"""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import count
from typing import TYPE_CHECKING, cast

from foretell import _foretell
from foretell._ranges import (
    CHANGES_PER_STREAM,
    OPENINGS,
    Coming,
    Run,
    Source,
    buffer_for,
    check_process,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from foretell._store import Store, Stream

# Reads that are in flight, or completed and not yet returned.
UNDER_WAY = 64


class Reader:
    """The state of one iteration."""

    def __init__(
        self,
        store: Store,
        source: Iterator[Sequence[object]],
        into: Iterable[Buffer] | None,
        window: int,
    ) -> None:
        self._store = store
        self._process = os.getpid()
        self._completions = _foretell.Completions()
        self._tokens = count()
        self._indices = count()
        self._source = Source(store, source, window)
        self._buffers = None if into is None else iter(into)
        # Ranges that were taken from the source and are not begun.
        self._pending = 0
        self._to_open: deque[Coming] = deque()
        self._opening: dict[int, Coming] = {}
        self._waiting: dict[Coming, list[Run]] = {}
        self._ready: deque[Run] = deque()
        self._begun: dict[int, tuple[int, memoryview | None]] = {}
        self._come: deque[tuple[int, memoryview | None, object]] = deque()
        self._changes = 0
        self._streams: deque[Stream] = deque()

    def _fill(self) -> None:
        for run in self._source.take():
            if self._buffers is not None:
                self._find_room(run, self._buffers)
                if not run.ranges:
                    continue
            run.indices = [next(self._indices) for _ in run.ranges]
            self._pending += len(run.ranges)
            coming = run.coming
            if coming.is_ready():
                self._disclose(run)
            elif coming in self._waiting:
                self._waiting[coming].append(run)
            else:
                self._waiting[coming] = [run]
                self._to_open.append(coming)

    def _find_room(self, run: Run, buffers: Iterator[Buffer]) -> None:
        run.views = []
        try:
            for _, length in run.ranges:
                run.views.append(buffer_for(length, buffers))
        except Exception as error:
            self._source.end(error)
            del run.ranges[len(run.views) :]

    def _disclose(self, run: Run) -> None:
        from foretell._store import Stream

        self._ready.append(run)
        try:
            file = run.coming.file()
        except OSError:
            return  # The error is raised when the range's turn comes.
        if not self._streams or self._changes >= CHANGES_PER_STREAM:
            self._streams.append(Stream(self._store))
            self._changes = 0
        self._changes += 1
        run.stream = self._streams[-1]
        file.hint(run.ranges, stream=run.stream)

    def _begin(self) -> None:
        """Begin openings and reads, up to the limits."""
        while len(self._begun) + len(self._come) < UNDER_WAY:
            if not self._source.is_exhausted and self._pending <= self._source.window // 2:
                self._fill()
            while self._to_open and len(self._opening) < OPENINGS:
                coming, token = self._to_open.popleft(), next(self._tokens)
                coming.begin((self._completions, token))
                if coming.has_failed:
                    self._ready.extend(self._waiting.pop(coming))
                else:
                    self._opening[token] = coming
            if not self._ready:
                return
            run = self._ready[0]
            while run.stream is not None and self._streams[0] is not run.stream:
                self._streams.popleft().close()
            self._begin_one(run)
            if run.begun == len(run.ranges):
                self._ready.popleft()

    def _begin_one(self, run: Run) -> None:
        at = run.begun
        run.begun += 1
        self._pending -= 1
        offset, length = run.ranges[at]
        view = run.views[at] if run.views else None
        token = next(self._tokens)
        found: object
        try:
            file = run.coming.file()
            found = file._begin_read(self._completions, token, offset, length, view)
        except OSError as error:
            found = error
        if found is None:
            self._begun[token] = (run.indices[at], view)
        else:
            self._come.append((run.indices[at], view, found))

    def _take(self) -> None:
        self._completions.wait()
        for token, result in self._completions.take():
            coming = self._opening.pop(token, None)
            if coming is None:
                self._come.append((*self._begun.pop(token), result))
                continue
            for run in self._waiting.pop(coming):
                self._disclose(run)

    def next(self) -> tuple[int, bytes | memoryview] | None:
        """Return the next completed range: its index and bytes; `None` at the end."""
        check_process(self._process)
        while True:
            self._begin()
            if self._come:
                break
            if not self._begun and not self._opening:
                self._source.check()
                return None
            self._take()
        index, view, found = self._come.popleft()
        if isinstance(found, BaseException):
            raise found
        return index, cast("bytes", found) if view is None else view[: cast("int", found)]

    def settle(self) -> None:
        """Wait until no read in flight can write to the caller's buffers."""
        while self._begun and self._buffers is not None and self._process == os.getpid():
            self._take()

    def close(self) -> None:
        """Give up hints that were not read."""
        while self._streams:
            self._streams.popleft().close()


def read_any(
    store: Store,
    source: Iterator[Sequence[object]],
    into: Iterable[Buffer] | None,
    window: int,
) -> Generator[tuple[int, bytes | memoryview], None, None]:
    """See `Store.read_ranges`."""
    reader = Reader(store, source, into, window)
    try:
        while (found := reader.next()) is not None:
            yield found
    except (GeneratorExit, Exception):
        reader.settle()
        raise
    finally:
        reader.close()
