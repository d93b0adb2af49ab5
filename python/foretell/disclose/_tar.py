"""Members of a tar file."""

from __future__ import annotations

import io
import tarfile
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING

from foretell.disclose._plan import (
    Place,
    Plan,
    Source,
    check_place,
    missing,
    no_string,
    plan_of,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer


def tar(
    file: Place,
    members: Iterable[str] | None = None,
    *,
    index: Mapping[str, tuple[int, int]] | None = None,
) -> Plan:
    """Plan to read members of an uncompressed tar file.

    Args:
        file: Its path, or an open file of a store.
        members: Names, in the order of reading, taken lazily. By default the file is read from beginning to end, as WebDataset
            reads a shard; it may be compressed then.
        index: What `tar_index` has returned. Without it, a plan of members reads all headers first.

    The plan's iteration raises `KeyError` for a name that the file does not have, and `tarfile.ReadError` for another kind of
    file.

    Raises:
        TypeError: `members` is a single name, or `file` something else than a file.

    """
    no_string(members, "member")

    def ranges(source: Source) -> Iterator[tuple[int, int | None]]:
        if members is None:
            yield 0, None
            return
        known = _index(source) if index is None else index
        for name in members:
            if name not in known:
                raise missing(source.path, "member", name)
            yield known[name]

    return plan_of(file, ranges)


def tar_index(file: Place) -> dict[str, tuple[int, int]]:
    """Read the headers of an uncompressed tar file: offset and length in bytes of the data of each member.

    A tar file has no table of contents: each header says where the next is. So this takes a read for each member. Keep the
    result with the file, if its storage is slow. Of members with the same name, the last counts, as for `tarfile`.

    Raises:
        tarfile.ReadError: It is not a tar file, or a compressed one.
        OSError: It cannot be read.

    """
    check_place(file)
    with Source(file) as source:
        return _index(source)


def _index(source: Source) -> dict[str, tuple[int, int]]:
    try:
        with tarfile.open(fileobj=_Raw(source), mode="r:") as archive:
            return {one.name: (one.offset_data, one.size) for one in archive if one.isreg()}
    except tarfile.ReadError as error:
        raise tarfile.ReadError(f"{source.path}: not an uncompressed tar file: {error}") from None


class _Raw(io.RawIOBase):
    """A source as a file, for `tarfile`."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = 0) -> int:
        base = (0, self._at, self._source.size)[whence]
        self._at = base + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Buffer) -> int:
        view = memoryview(buffer).cast("B")
        found = self._source.read(self._at, len(view))
        view[: len(found)] = found
        self._at += len(found)
        return len(found)
