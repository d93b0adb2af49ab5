"""What a library reads of a file, beside what a plan says that it reads."""

from collections.abc import Iterable
from typing import Any

import foretell
from foretell.disclose import Plan


class Recorded(foretell.File):
    """A file that notes the offset and length of each read that finds something."""

    reads: list[tuple[int, int]]

    @classmethod
    def at(cls, store: foretell.Store, path: str) -> "Recorded":
        file = cls(store, path)
        file.reads = []
        return file

    def read(self, size: int | None = -1, /) -> bytes:
        at, found = self.tell(), super().read(size)
        self._note(at, len(found))
        return found

    def readinto(self, buffer: Any, /) -> int:
        at, count = self.tell(), super().readinto(buffer)
        self._note(at, count)
        return count

    def read_at(self, offset: int, length: int) -> bytes:
        found = super().read_at(offset, length)
        self._note(offset, len(found))
        return found

    def pread_into(self, buffer: Any, offset: int) -> int:
        count = super().pread_into(buffer, offset)
        self._note(offset, count)
        return count

    def _note(self, offset: int, length: int) -> None:
        if length:
            self.reads.append((offset, length))


def recording(fs: Any) -> dict[str, list[tuple[int, int]]]:
    """Note what is read of each file of a `ForetellFileSystem`, by its path there."""
    from foretell.fsspec import ForetellFile

    reads: dict[str, list[tuple[int, int]]] = {}
    cat_file, cat_ranges = fs.cat_file, fs.cat_ranges

    # A file of fsspec that notes its reads.
    kind: Any = type("Opened", (ForetellFile, Recorded), {})

    def opened(path: str, mode: str = "rb", **kwargs: Any) -> Any:
        file = kind.at(fs, fs._strip_protocol(path))
        file.reads = reads.setdefault(file.path, [])
        return file

    def note(paths: list[str], starts: list[int], ends: list[int], **kwargs: Any) -> Any:
        for path, start, end in zip(paths, starts, ends, strict=True):
            reads.setdefault(fs._strip_protocol(path), []).append((start, end - start))
        return cat_ranges(paths, starts, ends, **kwargs)

    def note_one(path: str, start: int, end: int, **kwargs: Any) -> Any:
        reads.setdefault(fs._strip_protocol(path), []).append((start, end - start))
        return cat_file(path, start=start, end=end, **kwargs)

    fs._open, fs.cat_ranges, fs.cat_file = opened, note, note_one
    return reads


def merged(ranges: Iterable[tuple[int, int]]) -> list[tuple[int, int]]:
    """Ranges as disjoint intervals (begin, end) in order."""
    found: list[tuple[int, int]] = []
    for offset, length in sorted(ranges):
        if found and offset <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], offset + length))
        elif length:
            found.append((offset, offset + length))
    return found


def total(intervals: Iterable[tuple[int, int]]) -> int:
    return sum(end - begin for begin, end in intervals)


def common(one: Iterable[tuple[int, int]], other: Iterable[tuple[int, int]]) -> int:
    """Bytes that are in both."""
    one, other = merged(one), merged(other)
    found = i = j = 0
    while i < len(one) and j < len(other):
        found += max(0, min(one[i][1], other[j][1]) - max(one[i][0], other[j][0]))
        if one[i][1] < other[j][1]:
            i += 1
        else:
            j += 1
    return found


def ranges_of(plan: Plan, path: str, size: int) -> list[tuple[int, int]]:
    """The ranges of a plan of one file."""
    found = []
    for name, offset, length in plan:
        assert name == path
        found.append((offset, size - offset if length is None else length))
    return found


def check(
    planned: list[tuple[int, int]], reads: list[tuple[int, int]], share: float = 0.02
) -> None:
    """What is planned and not read, and what is read and not planned, are at most a share of what is read.

    `reads` are without those of the index, which is read once by both.
    """
    wanted, in_both = total(merged(reads)), common(planned, reads)
    missed, extra = wanted - in_both, total(merged(planned)) - in_both
    assert missed <= share * wanted, f"{missed} of {wanted} bytes read are not planned"
    assert extra <= share * wanted, f"{extra} bytes are planned and not read, beside {wanted}"
