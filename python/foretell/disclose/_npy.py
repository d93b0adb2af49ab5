"""Parts of an array in a .npy file."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any

from foretell.disclose._plan import Place, Plan, Source, plan_of
from foretell.disclose._runs import runs

# Headers have 64 KiB at most in the first version of the format, and are rarely longer than 128 bytes.
HEAD_BYTES = 4096


def npy(file: Place, index: Any = ...) -> Plan:
    """Plan to read a part of an array in a .npy file, such as a memory map of it reads.

    Needs numpy.

    Args:
        file: Its path, or an open file of a store.
        index: Integers, slices, or a tuple of these, one for each axis. Instead of one of them, a list of integers names
            positions in the order of reading: ``disclose.npy("samples.npy", order)`` for shuffled rows.

    The plan's iteration raises `IndexError` if the selection does not fit, and `ValueError` if the file is not a .npy file, or
    has Python objects.

    Raises:
        TypeError: `file` is something else, such as the array.

    """
    return plan_of(file, lambda source: _ranges(source, index))


def _ranges(source: Source, index: Any) -> Iterator[tuple[int, int]]:
    from numpy.lib import format as npy_format

    head = source.read(0, HEAD_BYTES)
    try:
        major = head[6]
        size_bytes = 2 if major == 1 else 4
        data_at = 8 + size_bytes + int.from_bytes(head[8 : 8 + size_bytes], "little")
        if data_at > len(head):
            head += source.read(len(head), data_at - len(head))
        text = io.BytesIO(head)
        version = npy_format.read_magic(text)
        read = (
            npy_format.read_array_header_1_0
            if version == (1, 0)
            else npy_format.read_array_header_2_0
        )
        shape, is_fortran, dtype = read(text)
    except (IndexError, ValueError) as error:
        raise ValueError(f"{source.path}: not a .npy file: {error}") from None
    if dtype.hasobject:
        raise ValueError(f"{source.path}: an array of Python objects is read as a whole")
    if is_fortran:
        # Offsets are those of the transposed array; the order of reading is that of the file.
        given = index if isinstance(index, tuple) else (index,)
        if Ellipsis not in given:
            given = (*given, Ellipsis)
        shape, index = shape[::-1], given[::-1]
    for offset, length in runs(shape, dtype.itemsize * 8, index):
        yield data_at + offset, length
