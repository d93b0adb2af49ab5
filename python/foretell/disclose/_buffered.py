"""What Python's buffered files read beyond what they are asked for.

After a seek, ``open(path, "rb").read(length)`` reads whole buffers, so nearly a buffer more than `length`. A program waits for
that, too.
"""

from __future__ import annotations

import io
import os
import sys
from collections.abc import Iterable, Iterator

from foretell.disclose._plan import Range


def buffer_bytes(path: str) -> int:
    """Return the size of the buffer of files of the file system there; 1 if it is not known."""
    try:
        block_bytes = os.stat(path).st_blksize
    except OSError:
        return 1
    if sys.version_info >= (3, 14):
        return max(min(block_bytes, 8 << 20), io.DEFAULT_BUFFER_SIZE)
    return block_bytes if block_bytes > 1 else io.DEFAULT_BUFFER_SIZE


def whole_buffers(ranges: Iterable[Range]) -> Iterator[Range]:
    """Yield ranges of files of one file system as buffered files read them, and raise what `ranges` raises.

    If the next range begins within what is read beyond, a range ends there: adjacent ranges stay so.
    """
    source, buffer = iter(ranges), 0
    last: Range | None = None
    failed: Exception | None = None
    while True:
        item: Range | None = None
        try:
            item = next(source, None)
        except Exception as error:
            failed = error
        if last is not None:
            yield _extended(last, item, buffer)
        if item is None:
            break
        buffer = buffer or buffer_bytes(item[0])
        last = item
    if failed is not None:
        raise failed


def _extended(one: Range, following: Range | None, buffer: int) -> Range:
    path, offset, length = one
    if length is None:
        return one
    more = -length % buffer
    if following is not None and following[0] == path:
        gap = following[1] - offset - length
        more = gap if 0 <= gap <= more else more
    return path, offset, length + more
