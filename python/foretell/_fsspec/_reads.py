"""Which reads `cat_file` and `cat_ranges` of fsspec ask for."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

from foretell._store import File, Stream


def for_each(limits: Any, count: int) -> list[Any]:
    """Return a list of limits, one per path, from a single limit or a list."""
    if limits is None or hasattr(limits, "__index__") or not isinstance(limits, Iterable):
        try:  # A numpy array has `__index__` too, but is a number only if it has no dimension.
            return [None if limits is None else operator.index(limits)] * count
        except TypeError:
            if not isinstance(limits, Iterable):
                raise
    return list(limits)


Read = tuple[File, int, int]


def read_of(file: File | Exception, start: Any, end: Any) -> Read | Exception:
    """Return file, offset and length of what `cat_file` reads for these limits."""
    if isinstance(file, Exception):
        return file
    try:
        begin = 0 if start is None else operator.index(start)
        stop = file.size if end is None else operator.index(end)
    except TypeError as error:
        return error
    begin = begin if begin >= 0 else max(0, file.size + begin)
    stop = stop if stop >= 0 else file.size + stop
    # An end before the start stands for the rest of the file, as with fsspec's files.
    length = stop - begin if stop >= begin else max(file.size - begin, 0)
    return file, begin, length


def disclose(reads: Sequence[Read | Exception], streams: dict[int, Stream]) -> None:
    """Disclose the reads, adjacent ones of a file together, with one stream per store."""
    index = 0
    while index < len(reads):
        read = reads[index]
        index += 1
        if isinstance(read, Exception):
            continue
        file, ranges = read[0], [read[1:]]
        while index < len(reads):
            after = reads[index]
            if isinstance(after, Exception) or after[0] is not file:
                break
            ranges.append(after[1:])
            index += 1
        key = id(file._store)
        streams[key] = file.hint(ranges, stream=streams.get(key))
