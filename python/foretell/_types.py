"""Types of arguments, and their conversion."""

from __future__ import annotations

import operator
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple, SupportsIndex, TypeAlias, cast

if TYPE_CHECKING:
    from typing_extensions import Buffer

    Ranges: TypeAlias = Buffer | Iterable[Sequence[int]]

_UNITS = {"": 1, "B": 1}
for _power, _letter in enumerate("KMGT", start=1):
    _UNITS[f"{_letter}iB"] = 1024**_power
    _UNITS[f"{_letter}B"] = _UNITS[f"{_letter.lower()}B"] = 1000**_power

# Rows of an array of ranges that are turned into Python objects at a time.
_ROWS = 4096


class Sharing(NamedTuple):
    """How a store shares its cache. See `Store.sharing`."""

    cache: Literal["alone", "here", "other", "daemon"]
    """Whose cache the store reads through: that of this process ``alone``; that which this process has (``here``), and
    others with the same store join; that of an ``other`` process with the same store; or that of the ``daemon``."""
    why: str | None
    """Why it is not the daemon's although a daemon was asked, or why it is not shared although it was to be."""


def size_bytes(size: SupportsIndex | str) -> int:
    """Parse a size in bytes: an integer, or a string such as "256MiB" or "1GB"."""
    if not isinstance(size, str):
        try:
            return operator.index(size)
        except TypeError:
            raise TypeError(f"{size!r} is not a size: write 268435456, 256MiB or 1GB") from None
    found = re.fullmatch(r"\s*(\d+(?:\.\d+)?)\s*([A-Za-z]*)\s*", size)
    if found is None or found[2] not in _UNITS:
        raise ValueError(f"{size!r} is not a size: write 268435456, 256MiB or 1GB")
    return int(float(found[1]) * _UNITS[found[2]])


def as_hint(ranges: Ranges) -> Ranges:
    """Convert ranges for the compiled part: an int64 buffer of shape (n, 2) as it is, else pairs."""
    try:
        view = memoryview(cast("Buffer", ranges))
    except TypeError:
        return ranges
    if view.ndim != 2 or view.shape is None or view.shape[1] != 2:
        raise ValueError(f"ranges of shape {view.shape}, not (n, 2)")
    if view.format in ("l", "q"):
        return view
    if view.format is None or len(view.format) != 1:
        raise TypeError(f"ranges as an array of format {view.format!r}: make it one of int64")
    return cast("list[list[int]]", view.tolist())


def pairs(ranges: Ranges) -> Iterator[Sequence[int]]:
    """Iterate over the ranges as pairs of offset and length, in bytes."""
    ranges = as_hint(ranges)
    if isinstance(ranges, memoryview):
        for start in range(0, len(ranges), _ROWS):
            yield from cast("list[list[int]]", ranges[start : start + _ROWS].tolist())
    else:
        yield from cast("Iterable[Sequence[int]]", ranges)
