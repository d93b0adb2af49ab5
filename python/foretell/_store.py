"""Stores, files and streams."""

from __future__ import annotations

import errno
import io
import os
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Literal, NoReturn, Self, SupportsIndex, overload
from urllib.parse import unquote, urlsplit

from foretell import _any_order, _foretell, _listing, _ranges
from foretell._asyncio import Waiting
from foretell._errors import Changed
from foretell._listing import Entry
from foretell._types import as_hint, pairs, size_bytes

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer

    from foretell._types import Ranges


class Store(_foretell.Store):
    """Files of a folder or an object store, read through a cache in memory.

    Reads that were disclosed (`hint`, `read_ranges`) are fetched ahead, many at once. A file that is read in order is
    fetched ahead without.

    A store may be used by many threads. It can be pickled: what is pickled is how it was made, `settings` included. In a
    child of this process (fork) it is made anew when it is first used; files that were open are opened again, and
    streams that were open do nothing there.
    """

    url: str
    """The address it was made with."""

    _reduced: tuple[str, int, int, int | None, float, dict[str, str]]
    _folder: _listing.Folder | None

    def __new__(
        cls,
        url: str | os.PathLike[str],
        budget: SupportsIndex | str = "256MiB",
        block: SupportsIndex | str = 16384,
        depth: int | None = None,
        *,
        timeout: float = 60.0,
        settings: Mapping[str, str] | None = None,
    ) -> Self:
        """Make a store of what `url` stands for.

        Args:
            url: ``s3://bucket/prefix``, ``gs://…``, ``az://container/prefix``, ``http(s)://host/path``,
                ``file:///folder``, or the path of a folder. Credentials, region and endpoint come from the usual
                variables of the environment (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, …). Names in a folder do not
                lead out of it by ``..``. Links in it are followed wherever they lead, as by `open`, with the rights of
                this process: do not open names that others choose in a folder that others may write.
            budget: Memory for data: bytes, or a text such as ``"256MiB"``.
            block: Bytes of a block, the unit that is kept, or such a text: a power of two from 4096 to 16777216.
            depth: Requests ahead of the program at once; 128 for object stores, 32 for folders.
            timeout: Seconds that a read waits for an object store, which is asked again meanwhile.
            settings: Of the object store, before those of the environment: ``{"aws_endpoint": …,
                "aws_access_key_id": …}``; ``{"skip_signature": "true"}`` for what anybody may read.

        Raises:
            ValueError: If an argument makes no sense.
            MemoryError: If there is no memory for the budget.
            NotFound, Error: If there is no such folder.

        """
        place = given = os.fsdecode(url)
        scheme, separator, rest = place.partition("://")
        is_folder = not separator or scheme == "file"
        if scheme == "file" and separator:
            split = urlsplit(place)
            if split.netloc not in ("", "localhost"):
                raise ValueError(f"{place}: a folder of another machine; write file:///folder")
            rest = unquote(split.path)
        if is_folder:
            place = os.path.abspath(rest if separator else place)
        if is_folder and settings:
            raise ValueError("a folder has no settings")
        if depth is not None and depth < 1:
            raise ValueError(f"a depth of {depth}: it must be 1 or more")
        if not 0 < timeout < 1e9:
            raise ValueError(f"a timeout of {timeout} s")
        budget_bytes, block_bytes = size_bytes(budget), size_bytes(block)
        if budget_bytes < 0 or block_bytes < 0:
            raise ValueError("a budget or block below zero")
        for name, setting in (settings or {}).items():
            if not isinstance(setting, str):
                raise TypeError(f"the setting {name} is {setting!r}: settings are texts")
        items = list((settings or {}).items())
        self = super().__new__(
            cls, place, is_folder, budget_bytes, block_bytes, depth, float(timeout), items
        )
        self.url = given
        # The path of a folder is absolute here: it is the same wherever it is made again.
        self._folder = _listing.Folder(place) if is_folder else None
        self._reduced = (place, budget_bytes, block_bytes, depth, timeout, dict(items))
        return self

    def __repr__(self) -> str:
        return f"foretell.Store({self.url!r})"

    def __reduce__(self) -> tuple[Any, ...]:
        return _unpickled, (type(self), *self._reduced)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """Give up the memory, as soon as no file or stream of it is open. No more can be opened."""
        self._close()

    def open(self, path: str | os.PathLike[str]) -> File:
        """Open the file at `path`, as it is now, for reading; waits for the store's answer.

        Raises:
            NotFound, PermissionDenied, Busy, Timeout, Error: What the store says.

        """
        return File(self, os.fsdecode(path))

    def info(self, path: str | os.PathLike[str]) -> Entry:
        """What there is at `path`, without opening it; waits for the store's answer.

        A name that is a file and a folder is a file.

        Raises:
            NotFound, PermissionDenied, Busy, Timeout, Error: What the store says.

        """
        name = os.fsdecode(path)
        return _listing.info(self, name) if self._folder is None else self._folder.info(name)

    def list(
        self, path: str | os.PathLike[str] = "", *, recursive: bool = False
    ) -> Iterator[Entry]:
        """What the folder at `path` has, in no particular order; waits for the store's answers, of many names each.

        Args:
            path: A folder; "" is the store itself.
            recursive: All files below it, in place of its own files and folders. Folders that hold nothing, and links to
                folders, are told too where a store has such.

        Names that no path can stand for (``a//b`` in a bucket) are left out, with a warning.

        Raises:
            NotFound, PermissionDenied, Busy, Timeout, Error: What the store says. Web servers do not tell what they have.

        """
        name = os.fsdecode(path).rstrip("/")
        if self._folder is None:
            return _listing.entries(self, name, recursive)
        return self._folder.entries(name, recursive)

    def hint(
        self,
        path: str | os.PathLike[str] | File,
        ranges: Ranges | None = None,
        stream: Stream | None = None,
        ordered: bool = True,
    ) -> Stream:
        """Disclose what will be read; returns the stream that it was disclosed by.

        It is advice: wrong hints cost bandwidth and nothing else. As long as the stream is kept, its hints are; when it is
        closed, or no longer referred to, what was fetched for it and not read is given up.

        Args:
            path: A file; if it is a path, it is opened, which waits for the store's answer.
            ranges: Offsets and lengths in bytes: pairs, or an array of integers of shape (n, 2), which is fastest
                if they are of 64 bits. All of the file if it is left out.
            stream: Append to that one. Otherwise a new one is made.
            ordered: Whether they will be read in this order.

        Raises:
            ValueError, TypeError: If the ranges are none.
            OSError: As `open`.

        """
        file = path if isinstance(path, File) else self.open(path)
        if stream is None:
            stream = Stream(self)
        stream._hint(file, None if ranges is None else as_hint(ranges), ordered)
        return stream

    @overload
    def read_ranges(
        self,
        source: str | os.PathLike[str] | Iterable[tuple[str, int, int]],
        ranges: Ranges | None = None,
        *,
        into: None = None,
        window: int = 1024,
        ordered: Literal[True] = True,
    ) -> Generator[bytes, None, None]: ...
    @overload
    def read_ranges(
        self,
        source: str | os.PathLike[str] | Iterable[tuple[str, int, int]],
        ranges: Ranges | None = None,
        *,
        into: Iterable[Buffer],
        window: int = 1024,
        ordered: Literal[True] = True,
    ) -> Generator[memoryview, None, None]: ...
    @overload
    def read_ranges(
        self,
        source: str | os.PathLike[str] | Iterable[tuple[str, int, int]],
        ranges: Ranges | None = None,
        *,
        into: None = None,
        window: int = 1024,
        ordered: Literal[False],
    ) -> Generator[tuple[int, bytes], None, None]: ...
    @overload
    def read_ranges(
        self,
        source: str | os.PathLike[str] | Iterable[tuple[str, int, int]],
        ranges: Ranges | None = None,
        *,
        into: Iterable[Buffer],
        window: int = 1024,
        ordered: Literal[False],
    ) -> Generator[tuple[int, memoryview], None, None]: ...
    @overload
    def read_ranges(
        self,
        source: str | os.PathLike[str] | Iterable[tuple[str, int, int]],
        ranges: Ranges | None = None,
        *,
        into: Iterable[Buffer] | None = None,
        window: int = 1024,
        ordered: bool,
    ) -> Generator[Any, None, None]: ...
    def read_ranges(
        self,
        source: str | os.PathLike[str] | Iterable[tuple[str, int, int]],
        ranges: Ranges | None = None,
        *,
        into: Iterable[Buffer] | None = None,
        window: int = 1024,
        ordered: bool = True,
    ) -> Generator[Any, None, None]:
        """Read many ranges, each disclosed a while before its turn.

        Args:
            source: ``(path, offset, length)`` each, offset and length in bytes; it may be endless. Or one path.
            ranges: With one path: pairs, or an array of integers of shape (n, 2).
            into: A buffer for each range, at least as long. Otherwise `bytes` are made.
            window: Ranges that are taken from the source ahead of the one that is read, at most. Memory is for these, for
                what is read, and for the store's budget, however many there are.
            ordered: In the order of the source; or, if false, as they come: 64 are read at once, and no range waits for one
                that is slow, nor for a file that is slow to open.

        Yields:
            The bytes of each range: fewer only at the end of a file. With `into`, the part of its buffer that was filled. Not
            ordered, ``(index, bytes)``: the how-manieth range of the source it is, from 0.

        Its `close` gives up what is disclosed and not read, and so does the end of the last reference to it.

        A file is opened once for its ranges that lie near each other; paths further on are opened meanwhile, up to 64 at
        once.

        Not ordered and with `into`, buffers are taken up to `window` ahead, and giving the iteration up waits for what is on
        its way into them, unless it is Ctrl-C that ends it.

        Raises:
            ValueError, TypeError: If a range is none, or the buffers do not suffice; and what the source raises: after what
                came before it.
            OSError: As `open` and `File.read`, when the turn comes; there is nothing after it.

        """
        if window < 1:
            raise ValueError(f"a window of {window}: it must be 1 or more")
        if isinstance(source, (str, os.PathLike)):
            if ranges is None:
                raise TypeError("one path needs ranges")
            path = os.fsdecode(source)
            triples: Iterator[Sequence[object]] = ((path, *pair) for pair in pairs(ranges))
        else:
            if ranges is not None:
                raise TypeError("ranges go with one path")
            triples = iter(source)
        if ordered:
            return _ranges.read_ranges(self, triples, into, window)
        return _any_order.read_any(self, triples, into, window)

    async def open_async(self, path: str | os.PathLike[str]) -> File:
        """As `open`, without holding up the event loop. 32 files are opened at once, with a thread each."""
        return await Waiting.here().open(self, os.fsdecode(path))

    async def read_async(self, path: str | os.PathLike[str], offset: int, length: int) -> bytes:
        """Read up to `length` bytes at `offset` of the file at `path`, without holding up the event loop.

        It opens the file, waits for the bytes, and closes it: use `open_async` and `File.read_at_async` for many reads of a
        file.

        Raises:
            OSError: As `open` and `File.read`.

        """
        with await self.open_async(path) as file:
            return await file.read_at_async(offset, length)

    def stats(self) -> dict[str, int]:
        """What was done so far, in this process.

        ``hit_blocks``, ``joined_blocks`` and ``demanded_blocks`` are blocks that a read found in memory, on their way, and
        nowhere; of these, ``passed_by_blocks`` went past the cache. ``prefetched_blocks`` were fetched ahead:
        ``useful_blocks`` were read after they had come, ``late_blocks`` while on their way, ``wasted_blocks`` never.
        ``requests``, ``requests_ahead`` and ``requests_failed`` were sent to the store; ``fetched_bytes`` came.
        """
        return self._stats()


def _unpickled(
    kind: type[Store],
    url: str,
    budget: int,
    block: int,
    depth: int | None,
    timeout: float,
    settings: dict[str, str],
) -> Store:
    return kind(url, budget, block, depth, timeout=timeout, settings=settings or None)


class Stream(_foretell.Stream):
    """Discloses what will be read. See `Store.hint`.

    `cancel` gives up what was disclosed and not read; more may be disclosed. `close` does so for good, and so does the end
    of a ``with`` block.
    """

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class File(_foretell.File):
    """One version of a file, open for reading: what `io.RawIOBase` has, and reads at an offset.

    ``read(size=-1)``, ``readinto(buffer)``, ``seek``, ``tell`` and ``close`` are as those of Python's raw files, except that a
    read gives fewer bytes than asked for only at the end of the file. ``read_at(offset, length)`` and
    ``pread_into(buffer, offset)`` do not touch the position, and may be called by many threads at once. Bytes go straight
    into the buffer, which is any that is writable and contiguous, and other threads of Python run meanwhile.

    ``name`` is the path, ``size`` the bytes that it had when it was opened. Lines are read out of a buffer, so
    ``for line in file`` needs no `io.BufferedReader`.

    It can be pickled: it is opened again where it is unpickled, with the same position, and is `Changed` if it is another
    version by then.

    Ctrl-C ends a read that waits. Its buffer must not be used for other things afterwards, since what is still on its
    way may be written there; a `bytearray` cannot be resized until then.

    Raises, all reads: `Changed` if the file is another than was opened, `Timeout`, `Busy`, `PermissionDenied`, `Error`: what
    the store says; `ValueError` if the file is closed.
    """

    mode = "rb"

    def __repr__(self) -> str:
        return f"<foretell.File {self.name!r}>"

    def __enter__(self) -> Self:
        self._check_open()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self._store, self.name, self.tell(), self._version)

    def _check_open(self) -> None:
        if self.closed:
            raise ValueError("I/O operation on closed file")

    def hint(
        self, ranges: Ranges | None = None, stream: Stream | None = None, ordered: bool = True
    ) -> Stream:
        """As `Store.hint`, of this file."""
        stream = stream if stream is not None else Stream(self._store)
        stream._hint(self, None if ranges is None else as_hint(ranges), ordered)
        return stream

    async def read_at_async(self, offset: int, length: int) -> bytes:
        """As `read_at`, without holding up the event loop: at once if all is in memory, else when it has come.

        No thread waits. 128 reads of an event loop are under way at once, and others wait for their turn. If the task is
        cancelled, what comes is thrown away.
        """
        return await Waiting.here().read(self, offset, length)

    def readall(self) -> bytes:
        """Read all that is left."""
        return self.read()

    def read1(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes, or a block."""
        return self.read(self._store.block_bytes if size is None or size < 0 else size)

    def readinto1(self, buffer: Buffer, /) -> int:
        """As `readinto`."""
        return self.readinto(buffer)

    def readuntil(self, char: bytes = b"\n", blocks: int | None = None) -> bytes:
        """Read up to and with the next `char`, which may be several bytes, or all that is left; `blocks` bytes at a time."""
        if char == b"\n":
            return self.readline()
        start, found = self.tell(), bytearray()
        while some := self.read(blocks or self._store.block_bytes):
            searched = max(len(found) - len(char) + 1, 0)
            found += some
            at = found.find(char, searched)
            if at >= 0:
                del found[at + len(char) :]
                break
        self.seek(start + len(found))
        return bytes(found)

    def readlines(self, hint: int | None = -1, /) -> list[bytes]:
        """Read lines, until they are `hint` bytes or more."""
        lines, count = [], 0
        for line in self:
            lines.append(line)
            count += len(line)
            if hint is not None and 0 < hint <= count:
                break
        return lines

    @property
    def loc(self) -> int:
        """Where the next read begins, as `tell`."""
        return self.tell()

    @loc.setter
    def loc(self, offset: int) -> None:
        self.seek(offset)

    def readable(self) -> bool:
        """Whether it can be read: yes."""
        self._check_open()
        return True

    def seekable(self) -> bool:
        """Whether it can be read from any place: yes."""
        self._check_open()
        return True

    def writable(self) -> bool:
        """Whether it can be written: no."""
        self._check_open()
        return False

    def isatty(self) -> bool:
        """Whether it is a terminal: no."""
        self._check_open()
        return False

    def flush(self) -> None:
        """Do nothing."""
        self._check_open()

    def fileno(self) -> NoReturn:
        """Raise: it has no number that the system knows."""
        raise io.UnsupportedOperation("fileno")

    def write(self, data: Buffer, /) -> NoReturn:
        """Raise: it is open for reading."""
        raise io.UnsupportedOperation("not writable")

    def truncate(self, size: int | None = None, /) -> NoReturn:
        """Raise: it is open for reading."""
        raise io.UnsupportedOperation("truncate")


def check_version(file: File, version: bytes) -> None:
    """Close the file and raise unless it is of that version."""
    if file._version != version:
        file.close()
        raise Changed(errno.ESTALE, "changed since it was pickled", file.name)


def _reopened(store: Store, name: str, position: int, version: bytes) -> File:
    file = store.open(name)
    check_version(file, version)
    file.seek(position)
    return file


io.RawIOBase.register(File)
