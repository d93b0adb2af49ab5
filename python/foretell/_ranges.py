"""Reads of many ranges in order, each disclosed before its turn.

Ranges are taken from their source in batches, so a source may be endless. There are three queues, in the order of the source:
files being *opened*; *runs* of ranges of one file, which are disclosed once their file is open; and *pending* ranges, which
are still to be read. A file stays open while ranges of it are pending, and the last `KEPT_OPEN` files longer.
"""

from __future__ import annotations

import operator
import os
from collections import OrderedDict, deque
from collections.abc import Generator, Iterable, Iterator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, TypeAlias

from foretell import _foretell

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from foretell._store import File, Store, Stream

    Triple: TypeAlias = tuple[str | os.PathLike[str], int, int] | Sequence[object]

# Files that are opened at once, and files that are kept open for later ranges.
OPENINGS = 64
KEPT_OPEN = 128
# Ranges in the first batch. Each batch is twice as long as the one before, up to half of the window.
FIRST_BATCH = 32
# Runs per stream. A stream keeps the files of all its runs open.
CHANGES_PER_STREAM = 1024


def check_process(process: int) -> None:
    """Refuse to go on with an iteration in a forked child, which would read what its parent reads.

    Raises:
        RuntimeError: This is not the process that began it.

    """
    if os.getpid() != process:
        raise RuntimeError(
            "read_ranges was begun before the process forked: begin a new one in the child"
        )


class Coming:
    """A file that is opened in the background."""

    def __init__(self, store: Store, path: str) -> None:
        self._store = store
        self.path = path
        self._opening: _foretell.Opening | None = None
        self._file: File | None = None
        self._error: OSError | None = None
        self.is_queued = False

    def begin(self, told: tuple[_foretell.Completions, int] | None = None) -> None:
        """Begin to open it; `told` as in `Store.begin_open`. If that fails, nobody is told, and it `is_ready` at once."""
        if self._opening is None and self._file is None and self._error is None:
            try:
                self._opening = self._store.begin_open(self.path, told)
            except OSError as error:
                self._error = error

    def is_ready(self) -> bool:
        """Whether `file` returns or raises without waiting."""
        if self._opening is not None:
            return self._opening.is_ready()
        return self._file is not None or self._error is not None

    @property
    def has_failed(self) -> bool:
        """Whether opening has already failed, so that `file` raises."""
        return self._error is not None

    def file(self) -> File:
        """Wait until the file is open; raises if it cannot be opened."""
        from foretell._store import File

        if self._file is None:
            if self._error is not None:
                raise self._error
            self.begin()
            if self._error is not None:
                raise self._error
            opening, self._opening = self._opening, None
            try:
                self._file = File(self._store, self.path, opening)
            except OSError as error:
                self._error = error
                raise
        return self._file


class Run:
    """Adjacent ranges of one file."""

    __slots__ = ("begun", "coming", "indices", "is_disclosed", "ranges", "stream", "views")

    def __init__(self, coming: Coming) -> None:
        self.coming = coming
        self.ranges: list[tuple[int, int]] = []
        self.stream: Stream | None = None
        self.is_disclosed = False
        # For reads in any order: how many are begun, the index of each range in the source, and its buffer.
        self.begun = 0
        self.indices: list[int] = []
        self.views: list[memoryview] = []


def triple(item: Sequence[object]) -> tuple[str, int, int]:
    """Check and convert an item of a source: path, offset and length."""
    try:
        path, offset, length = item
        return os.fsdecode(path), operator.index(offset), operator.index(length)  # type: ignore[arg-type]
    except (TypeError, ValueError):
        raise TypeError(
            f"{item!r} is not (path, offset, length), with integers for the last two"
        ) from None


class Source:
    """Runs of ranges, taken in batches. An error of the source is raised only after the ranges before it."""

    def __init__(self, store: Store, source: Iterator[Sequence[object]], window: int) -> None:
        self._store = store
        self._source = source
        self.window = window
        self._batch = min(FIRST_BATCH, window)
        self._files: OrderedDict[str, Coming] = OrderedDict()
        self._error: Exception | None = None
        self.is_exhausted = False

    def _coming(self, path: str) -> Coming:
        coming = self._files.get(path)
        if coming is None:
            coming = self._files[path] = Coming(self._store, path)
            if len(self._files) > KEPT_OPEN:
                self._files.popitem(last=False)
        else:
            self._files.move_to_end(path)
        return coming

    def take(self) -> list[Run]:
        """Take a batch of ranges from the source, as runs."""
        runs: list[Run] = []
        run: Run | None = None
        count = 0
        try:
            for item in islice(self._source, self._batch):
                path, offset, length = triple(item)
                if offset < 0 or length < 0:
                    raise ValueError(f"the range ({offset}, {length}) of {path} is negative")
                if run is None or run.coming.path != path:
                    run = Run(self._coming(path))
                    runs.append(run)
                run.ranges.append((offset, length))
                count += 1
        except Exception as error:
            self.end(error)
        if count < self._batch:
            self.is_exhausted = True
        self._batch = min(self._batch * 2, max(self.window // 2, 1))
        return runs

    def end(self, error: Exception) -> None:
        """Take no more from the source, and remember the error."""
        self._error = self._error or error
        self.is_exhausted = True

    def check(self) -> None:
        """Raise the source's error, if there was one."""
        if self._error is not None:
            raise self._error


def buffer_for(length: int, buffers: Iterator[Buffer]) -> memoryview:
    """Take the next buffer, cut to `length` bytes."""
    try:
        buffer = next(buffers)
    except StopIteration:
        raise ValueError("`into` has fewer buffers than there are ranges") from None
    view = memoryview(buffer).cast("B")
    if len(view) < length:
        raise ValueError(f"a buffer of {len(view)} bytes for a range of {length}")
    return view[:length]


class Reader:
    """The state of one iteration."""

    def __init__(self, store: Store, source: Iterator[Sequence[object]], window: int) -> None:
        self._store = store
        self._process = os.getpid()
        self._source = Source(store, source, window)
        self._to_open: deque[Coming] = deque()
        self._opening: deque[Coming] = deque()
        self._undisclosed: deque[Run] = deque()
        self._pending: deque[tuple[Run, int, int]] = deque()
        self._stream: Stream | None = None
        self._changes = 0
        self._streams: deque[Stream] = deque()

    def _fill(self) -> None:
        for run in self._source.take():
            if not run.coming.is_queued:
                run.coming.is_queued = True
                self._to_open.append(run.coming)
            self._undisclosed.append(run)
            self._pending.extend((run, *each) for each in run.ranges)

    def _advance(self) -> None:
        """Do what can be done without waiting."""
        while self._opening and self._opening[0].is_ready():
            self._opening.popleft()
        while self._to_open and len(self._opening) < OPENINGS:
            coming = self._to_open.popleft()
            coming.begin()
            self._opening.append(coming)
        while self._undisclosed and self._undisclosed[0].coming.is_ready():
            run = self._undisclosed[0]
            try:
                run.coming.file()
            except OSError:
                # The error is raised when the range's turn comes.
                self._undisclosed.popleft()
                continue
            self._disclose(run)

    def _disclose(self, run: Run) -> None:
        from foretell._store import Stream

        self._undisclosed.popleft()
        if self._stream is None or self._changes >= CHANGES_PER_STREAM:
            self._stream, self._changes = Stream(self._store), 0
            self._streams.append(self._stream)
        self._changes += 1
        run.stream = self._stream
        run.is_disclosed = True
        run.coming.file().hint(run.ranges, stream=self._stream)

    def next(self) -> tuple[File, int, int] | None:
        """Return file, offset and length of the next read, after disclosing the ranges that follow."""
        check_process(self._process)
        source = self._source
        if not source.is_exhausted and len(self._pending) <= source.window // 2:
            self._fill()
        if self._to_open or self._opening or self._undisclosed:
            self._advance()
        if not self._pending:
            source.check()
            return None
        run, offset, length = self._pending.popleft()
        file = run.coming.file()
        if not run.is_disclosed and self._undisclosed and self._undisclosed[0] is run:
            self._disclose(run)
            self._advance()
        while run.stream is not None and self._streams[0] is not run.stream:
            self._streams.popleft().close()
        return file, offset, length

    def close(self) -> None:
        """Give up hints that were not read."""
        while self._streams:
            self._streams.popleft().close()


def read_ranges(
    store: Store,
    source: Iterator[Sequence[object]],
    into: Iterable[Buffer] | None,
    window: int,
) -> Generator[bytes | memoryview, None, None]:
    """See `Store.read_ranges`."""
    reader = Reader(store, source, window)
    buffers = None if into is None else iter(into)
    try:
        while (found := reader.next()) is not None:
            file, offset, length = found
            if buffers is None:
                yield file.read_at(offset, length)
                continue
            view = buffer_for(length, buffers)
            yield view[: file.pread_into(view, offset)]
    finally:
        reader.close()
