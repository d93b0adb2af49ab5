"""Plans: what a selection will read, as ranges of files; and files whose index an adapter reads to make one."""

from __future__ import annotations

import errno
import operator
import os
import re
import stat
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


# A scheme and a slash or a colon: "s3://bucket", what `Path` makes of it ("s3:/bucket"), and chains of fsspec ("a::b").
ADDRESS = re.compile(r"[A-Za-z][A-Za-z0-9+.-]+:[/:]")


def check_path(path: str, takes_store: bool = False) -> None:
    """Refuse an address where a path of this machine is meant; `takes_store` says whether the caller has an argument `store`.

    Raises:
        ValueError: It is one.

    """
    if ADDRESS.match(path) and not os.path.lexists(path):
        way_out = (
            "give its foretell.Store as `store`, and its name there"
            if takes_store
            else "open it with a foretell.Store and give the open file"
        )
        raise ValueError(f"{path} is an address, not a path: {way_out}")


def check_place(place: object) -> None:
    """Refuse what is neither a path nor an open file of a store.

    Raises:
        TypeError: It is something else.

    """
    if isinstance(place, (str, bytes, os.PathLike, File)):
        return
    known = getattr(place, "filename", None) or getattr(place, "name", None)
    way_out = f"; its path is {known!r}" if isinstance(known, (str, os.PathLike)) else ""
    raise TypeError(
        f"{type(place).__name__}: a path or an open file of a foretell.Store is needed{way_out}"
    )


def missing(path: str, what: str, name: object) -> KeyError:
    """Make the error of a file that does not have what was named."""
    return KeyError(f"{path} has no {what} {name!r}")


def of_selection(error: Exception, where: object) -> Exception:
    """Make the error of a selection that does not fit, which says where; of the same built-in kind."""
    kind = next(one for one in (IndexError, TypeError, ValueError) if isinstance(error, one))
    return kind(f"{where}: {error}")


def text_of(error: Exception) -> str:
    """Describe an error in one line."""
    text = str(error)
    if isinstance(error, KeyError) and len(error.args) == 1:
        text = str(error.args[0])  # Its text would be quoted.
    return " ".join(f"{type(error).__name__}: {text}".split())


def no_string(names: object, what: str) -> None:
    """Refuse a string where a list of names is meant, in all adapters: its letters would be taken as names.

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
    ranges will be read in their order. `mistake` is an error that is known already, and that each iteration raises; `None` if
    there is none.
    """

    def __init__(
        self,
        ranges: Callable[[], Iterable[Range]],
        store: Store | None = None,
        *,
        ordered: bool = True,
        files: Mapping[str, File] | None = None,
        is_sparse: bool = False,
        is_buffered: bool = False,
        mistake: Exception | None = None,
    ) -> None:
        """Make a plan whose iterations call `ranges`.

        `files` are open files of the store that it names, by path; an iteration may add some. `is_sparse` says that files which
        are not there are no problem. `is_buffered` says that Python's buffered files read the ranges, one by one.
        """
        self._ranges = ranges
        self.store = store
        self.ordered = ordered
        self.files = {} if files is None else files
        self.is_sparse = is_sparse
        self.is_buffered = is_buffered
        self.mistake = mistake

    def __iter__(self) -> Iterator[Range]:
        if self.mistake is not None:
            raise self.mistake
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
            check_path(os.fsdecode(place))
            self._descriptor = os.open(self.path, os.O_RDONLY | os.O_CLOEXEC)
            found = os.fstat(self._descriptor)
            self.size = found.st_size
            if stat.S_ISDIR(found.st_mode):
                os.close(self._descriptor)
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), self.path)

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
    """Make the plan of one file, from a function that reads its index and yields offsets and lengths.

    Raises:
        TypeError: It is not a file's place.

    """
    check_place(place)
    mistake: Exception | None = None
    if isinstance(place, File):
        path, store, files = place.name, place._store, {place.name: place}
    else:
        path, store, files = os.path.abspath(os.fsdecode(place)), None, {}
        mistake = mistake_in(os.fsdecode(place))

    def triples() -> Iterator[Range]:
        with Source(place) as source:
            try:
                for offset, length in ranges(source):
                    yield path, offset, length
            except IndexError as error:
                raise IndexError(f"{path}: {error}") from None

    return Plan(triples, store, ordered=ordered, files=files, mistake=mistake)


def mistake_in(path: str, takes_store: bool = False) -> Exception | None:
    """Return what is wrong with a path of this machine, as `Plan` takes it; `None` if nothing is known to be."""
    try:
        check_path(path, takes_store)
    except ValueError as error:
        return error
    return None
