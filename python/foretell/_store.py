"""Stores, files and streams."""

from __future__ import annotations

import errno
import io
import os
import sys
import warnings
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from typing import (
    TYPE_CHECKING,
    Any,
    Literal,
    NoReturn,
    Self,
    SupportsIndex,
    overload,
)
from urllib.parse import unquote, urlsplit

from foretell import _any_order, _foretell, _listing, _ranges
from foretell._asyncio import Waiting
from foretell._errors import Changed
from foretell._listing import Entry
from foretell._types import Sharing, as_hint, pairs, size_bytes

if TYPE_CHECKING:
    from types import TracebackType

    from typing_extensions import Buffer

    from foretell._ahead import OpenAhead
    from foretell._types import Ranges


class Store(_foretell.Store):
    """A folder or an object store, whose files are read through a cache in memory.

    Reads that were disclosed (by `hint` or `read_ranges`) are fetched ahead, many at once. A file that is read from
    beginning to end is fetched ahead without hints.

    A store may be used by many threads. It can be pickled: the pickle has the arguments of its constructor, including
    `settings`. In a forked child it is made anew at its first use: open files are opened again, and open streams do
    nothing there.
    """

    url: str
    """The address that the store was made with."""

    _reduced: tuple[str, int, int, int | None, float, dict[str, str], bool, str | None]
    _folder: _listing.Folder | None
    # Files that are opened before they are read, by process.
    _ahead: dict[int, OpenAhead]

    def __new__(
        cls,
        url: str | os.PathLike[str],
        budget: SupportsIndex | str = "256MiB",
        block: SupportsIndex | str = 16384,
        depth: int | None = None,
        *,
        timeout: float = 60.0,
        settings: Mapping[str, str] | None = None,
        shared: bool = False,
        tier: str | None = None,
    ) -> Self:
        """Make a store of the folder or the address `url`.

        Args:
            url: ``s3://bucket/prefix``, ``gs://…``, ``az://container/prefix``, ``http(s)://host/path``,
                ``file:///folder``, or the path of a folder. Credentials, region and endpoint come from the usual
                environment variables (``AWS_ACCESS_KEY_ID``, ``AWS_ENDPOINT_URL``, …). Names in a folder cannot leave it
                by ``..``. Links in it are followed wherever they lead, with the rights of this process: if others may
                write in the folder, do not open names that they choose.
            budget: Memory for cached data: bytes, or a string such as ``"256MiB"``.
            block: Size of a block, the unit of caching: bytes, or such a string; a power of two from 4096 to 16777216.
            depth: Most prefetch requests in flight; 128 by default for object stores, 32 for folders.
            timeout: Seconds that a read waits for an object store, with retries.
            settings: Settings of the object store, which go before those of the environment: ``{"aws_endpoint": …,
                "aws_access_key_id": …}``; ``{"skip_signature": "true"}`` for public data.
            shared: Whether to use one cache with all shared stores of this user that have the same url, block, depth, timeout,
                settings and environment: workers of a loader, ranks, programs. The process that makes the first of them has
                the cache, with its budget; the others read it without copies of their own. With ``foretell daemon --cache``,
                shared stores of all kinds use the daemon's cache, with its size and block. If the process with the cache
                ends, the others go on, each with a cache of its own. `sharing` says which cache it is. If a daemon runs and
                refuses the store for a reason that can be mended, a RuntimeWarning says which.
            tier: A Redis or Valkey server, or a cluster of them, that keeps what is fetched for all machines which name it:
                ``redis://HOST[:PORT][,HOST[:PORT]…]``; ``rediss://`` for TLS. All of them must give the same url and block.
                While it is away, the store is read directly, and a line on standard error says so. Not for folders.

        Raises:
            ValueError: An argument is out of range or contradicts another.
            TypeError: A setting is not a string, or a size is neither an integer nor a string.
            MemoryError: There is no memory for the budget.
            NotFound, Error: The folder does not exist or cannot be used.

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
            raise ValueError("a folder has no settings; leave `settings` out")
        if is_folder and tier is not None:
            raise ValueError("a folder has no shared tier; leave `tier` out")
        if depth is not None and depth < 1:
            raise ValueError(f"a depth of {depth}: it must be 1 or more")
        if not 0 < timeout < 1e9:
            raise ValueError(f"a timeout of {timeout} s: it must be more than 0 and less than 1e9")
        budget_bytes, block_bytes = size_bytes(budget), size_bytes(block)
        if budget_bytes < 0 or block_bytes < 0:
            raise ValueError("a budget or block below zero: give a number of bytes")
        for name, setting in (settings or {}).items():
            if not isinstance(setting, str):
                raise TypeError(f"the setting {name} is {setting!r}: write it as a string")
        items = list((settings or {}).items())
        self = super().__new__(
            cls,
            place,
            is_folder,
            budget_bytes,
            block_bytes,
            depth,
            float(timeout),
            items,
            bool(shared),
            tier,
        )
        self.url = given
        self._ahead = {}
        # A folder's path is absolute here, so that a copy in another process has the same folder.
        self._folder = _listing.Folder(place) if is_folder else None
        more = (budget_bytes, block_bytes, depth, timeout, dict(items), bool(shared), tier)
        self._reduced = (place, *more)
        if shared and not _is_worker():
            _, why, can_mend = self._sharing()
            if can_mend:
                warnings.warn(f"{given}: {why}", RuntimeWarning, stacklevel=2)
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
        """Release the memory once no file or stream of the store is open. No more can be opened."""
        ahead = self._ahead.get(os.getpid())
        if ahead is not None:
            ahead.close()
        self._close()

    def open(self, path: str | os.PathLike[str]) -> File:
        """Open the current version of the file at `path` for reading; waits for the store's answer.

        Raises:
            NotFound, PermissionDenied, Busy, Timeout, Error: The store's answer.
            RuntimeError: The store is closed.

        """
        name = os.fsdecode(path)
        return File(self, name, self._borrow(name, for_open=True))

    def _borrow(self, path: str, for_open: bool = False) -> _foretell.Opening | None:
        """Return what makes a handle of a file that was opened ahead in this process, if there is one to lend."""
        ahead = self._ahead.get(os.getpid()) if self._ahead else None
        return None if ahead is None else ahead.borrow(path, for_open)

    def _is_ahead(self, path: str) -> bool:
        """Whether `_borrow` finds that file."""
        ahead = self._ahead.get(os.getpid()) if self._ahead else None
        return ahead is not None and ahead.has(path)

    def info(self, path: str | os.PathLike[str]) -> Entry:
        """Look up the file or folder at `path` without opening it; waits for the store's answer.

        A name that is both a file and a folder is reported as a file.

        Raises:
            NotFound, PermissionDenied, Busy, Timeout, Error: The store's answer.

        """
        name = os.fsdecode(path)
        return _listing.info(self, name) if self._folder is None else self._folder.info(name)

    def list(
        self, path: str | os.PathLike[str] = "", *, recursive: bool = False
    ) -> Iterator[Entry]:
        """List the folder at `path`, in no particular order; waits for the store's answers, which have many names each.

        Args:
            path: A folder; "" is the store itself.
            recursive: List all files below the folder, instead of its own files and folders. Folders that an object store
                has as keys with a slash at the end are listed too.

        Names that no path can express (``a//b`` in a bucket) are left out, with a warning.

        Raises:
            NotFound, PermissionDenied, Busy, Timeout, Error: The store's answer. Web servers cannot be listed.

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
        """Disclose future reads of a file; returns the stream that holds the hints.

        Hints are advice: wrong ones cost bandwidth and nothing else. They last as long as the stream. When it is closed or
        no longer referenced, data that was fetched for it and not read is given up.

        Args:
            path: A file; a path is opened, which waits for the store's answer.
            ranges: Offsets and lengths in bytes: pairs, or an array of integers of shape (n, 2), which is fastest with
                64-bit integers. The whole file if left out.
            stream: The stream to append to; a new one is made by default.
            ordered: Whether the ranges will be read in this order.

        Raises:
            ValueError, TypeError: The ranges are invalid, or the stream is closed or of another store.
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
        """Read many ranges, each disclosed before its turn.

        Args:
            source: Triples ``(path, offset, length)``, with offset and length in bytes; may be endless. Or a single path.
            ranges: The ranges of a single path: pairs of offset and length in bytes, or an array of integers of shape (n, 2).
            into: A buffer for each range, at least as long as the range. By default `bytes` are made.
            window: Most ranges that are taken from the source ahead of the one being read. Memory is bounded by these, the
                ranges being read, and the store's budget, whatever the length of the source.
            ordered: True returns ranges in the order of the source. False returns them as they complete: 64 are read at
                once, and none waits for a slow range or a file that is slow to open.

        Yields:
            The bytes of each range, fewer than asked for only at the end of a file. With `into`, the filled part of its
            buffer. With ``ordered=False``, ``(index, bytes)``, where `index` counts the ranges of the source from 0.

        Closing the generator, or dropping the last reference to it, gives up hints that were not read.

        A file is opened once for ranges that lie near each other in the source. Later files are opened meanwhile, up to 64
        at once.

        With ``ordered=False`` and `into`, buffers are taken up to `window` ranges ahead. Closing the generator then waits for
        reads in flight, which write into the buffers; Ctrl-C does not wait.

        Raises:
            ValueError, TypeError: A range is invalid, or there are too few or too small buffers. Raised, like errors of the
                source, after the ranges before it.
            OSError: As `open` and `File.read`, when the range's turn comes; the iteration ends with it.
            RuntimeError: The process has forked since the iteration began, and this is the child. Begin a new one there.

        """
        if window < 1:
            raise ValueError(f"a window of {window}: it must be 1 or more")
        if isinstance(source, (str, os.PathLike)):
            if ranges is None:
                raise TypeError("a single path needs `ranges`")
            path = os.fsdecode(source)
            triples: Iterator[Sequence[object]] = ((path, *pair) for pair in pairs(ranges))
        else:
            if ranges is not None:
                raise TypeError("`ranges` need a single path; triples have their own ranges")
            triples = iter(source)
        if ordered:
            return _ranges.read_ranges(self, triples, into, window)
        return _any_order.read_any(self, triples, into, window)

    async def open_async(self, path: str | os.PathLike[str]) -> File:
        """As `open`, without blocking the event loop. Up to 32 files are opened at once, with a thread each."""
        return await Waiting.here().open(self, os.fsdecode(path))

    async def read_async(self, path: str | os.PathLike[str], offset: int, length: int) -> bytes:
        """Read up to `length` bytes at byte `offset` of the file at `path`, without blocking the event loop.

        Opens the file, reads, and closes it. For many reads of a file use `open_async` and `File.read_at_async`.

        Raises:
            OSError: As `open` and `File.read`.

        """
        with await self.open_async(path) as file:
            return await file.read_at_async(offset, length)

    @property
    def sharing(self) -> Sharing:
        """Whose cache the store reads through, and why not another one's.

        That may change when the process ends that has the cache.
        """
        cache, why, _ = self._sharing()
        return Sharing(cache, why)

    def stats(self) -> dict[str, int]:
        """Return counts of this process so far; of a shared store, those of all stores that share its cache.

        Blocks that were read: ``hit_blocks`` were in memory, ``joined_blocks`` in flight, ``demanded_blocks`` neither;
        ``passed_by_blocks`` bypassed the cache. ``prefetched_blocks`` were fetched ahead: ``useful_blocks`` were read after
        they arrived, ``late_blocks`` while in flight, ``wasted_blocks`` never. ``requests`` counts requests for data,
        without those that open, look up or list files; ``requests_ahead`` are those for prefetches, ``requests_failed`` those
        that failed. ``fetched_bytes`` arrived, in whole blocks: more than was read, if reads are shorter than blocks.

        With a `tier` in this process, its counts begin with ``tier_``: ``tier_hit_blocks`` came from the server,
        ``tier_missed_blocks`` from the object store; ``tier_refused_values`` failed the check, and so on.
        """
        return self._stats()


def _is_worker() -> bool:
    """Whether another Python process has started this one to work for it, and so has warned before."""
    process = sys.modules.get("multiprocessing.process")
    return process is not None and process.parent_process() is not None


def _unpickled(
    kind: type[Store],
    url: str,
    budget: int,
    block: int,
    depth: int | None,
    timeout: float,
    settings: dict[str, str],
    shared: bool = False,
    tier: str | None = None,
) -> Store:
    more: dict[str, Any] = {"settings": settings or None, "shared": shared, "tier": tier}
    return kind(url, budget, block, depth, timeout=timeout, **more)


class Stream(_foretell.Stream):
    """A sequence of hints. See `Store.hint`.

    `cancel` gives up hints that were not read; more may follow. `close`, or the end of a ``with`` block, does so for good.
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
    """One version of a file, open for reading, with the methods of `io.RawIOBase` and reads at an offset.

    ``read(size=-1)``, ``readinto(buffer)``, ``seek``, ``tell`` and ``close`` work as those of Python's raw files, except that
    a read returns fewer bytes than asked for only at the end of the file. ``read_at(offset, length)`` and
    ``pread_into(buffer, offset)``, in bytes, do not use the position, and many threads may call them at once. A buffer is any
    object with a writable and contiguous buffer. Other Python threads run while a read waits.

    ``name`` is the path, and ``size`` the size in bytes when the file was opened. Lines are buffered, so
    ``for line in file`` needs no `io.BufferedReader`.

    A file can be pickled. Unpickling opens it again at the same position, and raises `Changed` if it is another version by
    then.

    Ctrl-C ends a waiting read. Its buffer must not be reused afterwards, because data in flight may still be written there;
    a `bytearray` cannot be resized until then.

    All reads raise `Changed` if the file is no longer the opened version, `Timeout`, `Busy`, `PermissionDenied` or `Error`
    as the store answers, and `ValueError` if the file is closed.
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
        """Disclose reads of this file; as `Store.hint`."""
        stream = stream if stream is not None else Stream(self._store)
        stream._hint(self, None if ranges is None else as_hint(ranges), ordered)
        return stream

    async def read_at_async(self, offset: int, length: int) -> bytes:
        """As `read_at`, without blocking the event loop.

        No thread waits. Up to 128 reads of an event loop are in flight at once; further ones wait for their turn. If the task
        is cancelled, the data is discarded.
        """
        return await Waiting.here().read(self, offset, length)

    def readall(self) -> bytes:
        """Read the rest of the file."""
        return self.read()

    def read1(self, size: int | None = -1, /) -> bytes:
        """Read up to `size` bytes, or one block by default."""
        return self.read(self._store.block_bytes if size is None or size < 0 else size)

    def readinto1(self, buffer: Buffer, /) -> int:
        """As `readinto`."""
        return self.readinto(buffer)

    def readuntil(self, char: bytes = b"\n", blocks: int | None = None) -> bytes:
        """Read up to and including the next `char` (one or more bytes), or the rest; reads `blocks` bytes at a time."""
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
        """Read lines, until they have `hint` bytes or more in all."""
        lines, count = [], 0
        for line in self:
            lines.append(line)
            count += len(line)
            if hint is not None and 0 < hint <= count:
                break
        return lines

    @property
    def loc(self) -> int:
        """The position in bytes, as `tell`."""
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
        """Raise: the file has no descriptor."""
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
