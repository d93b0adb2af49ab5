"""Plans: what a selection will read, as ranges of files; and files whose index an adapter reads to make one."""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Self, TypeAlias, cast

from foretell._store import File

if TYPE_CHECKING:
    from types import TracebackType

    from foretell._store import Store

Range: TypeAlias = tuple[str, int, int | None]
"""Path, offset and length in bytes. A length of `None` is the rest of the file."""

Place: TypeAlias = str | os.PathLike[str] | File
"""A path of this machine, or an open file of a `foretell.Store` (fsspec's files of foretell are such files)."""


def checked(item: object) -> Range:
    """Check an item of a plan: path, offset and length, in bytes.

    Raises:
        TypeError: It is something else.

    """
    try:
        path, offset, length = cast("tuple[Any, Any, Any]", item)
        end = None if length is None else operator.index(length)
        return os.fsdecode(path), operator.index(offset), end
    except (TypeError, ValueError):
        raise TypeError(f"{item!r} is not (path, offset, length)") from None


def no_string(names: object, what: str) -> None:
    """Refuse a string where a list of names is meant: its letters would be taken as names.

    Raises:
        TypeError: It is one.

    """
    if isinstance(names, (str, bytes)):
        raise TypeError(f"{names!r} is one {what}: put it in a list")


class Plan:
    """What a selection will read: ``(path, offset, length)`` in the order of reading, in bytes.

    A plan is an iterable. Each iteration reads the index of the file anew, as far as it is needed, and makes the ranges one
    by one. A length of `None` stands for the rest of the file.

    `store` is the `foretell.Store` whose names the paths are; `None` for paths of this machine. `ordered` says whether the
    ranges will be read in their order.
    """

    def __init__(
        self,
        ranges: Callable[[], Iterable[Range]],
        store: Store | None = None,
        *,
        ordered: bool = True,
        files: Mapping[str, File] | None = None,
        is_sparse: bool = False,
    ) -> None:
        """Make a plan whose iterations call `ranges`.

        `files` are open files of the store that it names, by path; an iteration may add some. `is_sparse` says that files which
        are not there are no problem.
        """
        self._ranges = ranges
        self.store = store
        self.ordered = ordered
        self.files = {} if files is None else files
        self.is_sparse = is_sparse

    def __iter__(self) -> Iterator[Range]:
        return iter(self._ranges())

    def __repr__(self) -> str:
        return f"<foretell.disclose.Plan of {self.store or 'paths of this machine'}>"


class Source:
    """A file whose index an adapter reads. `path` is its name in plans, and `store` its store; `None` on this machine."""

    def __init__(self, place: Place) -> None:
        """Open the file at a path, or use an open one.

        Raises:
            OSError: It cannot be opened.

        """
        self.store: Store | None
        if isinstance(place, File):
            self.path, self.store = place.name, place._store
            self._file: File | None = place
            self._descriptor = -1
            self.size = place.size
        else:
            self.path, self.store = os.path.abspath(os.fsdecode(place)), None
            self._file = None
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            self.size = os.fstat(self._descriptor).st_size

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self._descriptor >= 0:
            os.close(self._descriptor)
            self._descriptor = -1

    def read(self, offset: int, length: int) -> bytes:
        """Read up to `length` bytes at `offset`, fewer only at the end of the file."""
        return self.read_batch([(offset, length)])[0]

    def read_batch(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Read all the ranges, all of them in flight at once. Each has fewer bytes only at the end of the file."""
        if self._file is not None:
            if len(ranges) == 1:
                return [self._file.read_at(*ranges[0])]
            with self._file.hint(ranges):
                return [self._file.read_at(offset, length) for offset, length in ranges]
        if len(ranges) > 1:
            for offset, length in ranges:
                os.posix_fadvise(self._descriptor, offset, length, os.POSIX_FADV_WILLNEED)
        return [self._read(offset, length) for offset, length in ranges]

    def _read(self, offset: int, length: int) -> bytes:
        found = os.pread(self._descriptor, length, offset)
        while 0 < len(found) < length:
            more = os.pread(self._descriptor, length - len(found), offset + len(found))
            if not more:
                break
            found += more
        return found


def plan_of(
    place: Place,
    ranges: Callable[[Source], Iterable[tuple[int, int | None]]],
    *,
    ordered: bool = True,
) -> Plan:
    """Make the plan of one file, from a function that reads its index and yields offsets and lengths."""
    if isinstance(place, File):
        path, store, files = place.name, place._store, {place.name: place}
    else:
        path, store, files = os.path.abspath(os.fsdecode(place)), None, {}

    def triples() -> Iterator[Range]:
        with Source(place) as source:
            for offset, length in ranges(source):
                yield path, offset, length

    return Plan(triples, store, ordered=ordered, files=files)
