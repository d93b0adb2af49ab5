"""Columns and row groups of a Parquet file."""

from __future__ import annotations

import bisect
import importlib
from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from foretell.disclose._plan import Place, Plan, Source, check_place, missing, no_string, plan_of

# The first read of a file, as long as pyarrow's. Most footers are shorter.
TAIL_BYTES = 64 << 10
# pyarrow reads column chunks together if no more than this lies between them (arrow/io/caching.h, kDefaultHoleSizeLimit).
HOLE_BYTES = 8192
# The length of the footer and the magic number, at the end of a file.
END_BYTES = 8


def library(name: str) -> Any:
    """Import a part of pyarrow.

    Raises:
        ImportError: pyarrow is not installed.

    """
    try:
        return importlib.import_module(name)
    except ImportError as error:
        raise ImportError(f"{error}: pip install 'foretell[parquet]'") from None


def parquet(
    file: Place,
    columns: Iterable[str] | None = None,
    row_groups: Iterable[int] | None = None,
    *,
    pre_buffer: bool = True,
) -> Plan:
    """Plan to read columns of a Parquet file, as ``pyarrow.parquet.ParquetFile.read_row_groups`` reads them.

    Needs pyarrow. The footer is read first: one read of the last 64 KiB, and a second one if it is longer. Row groups follow
    one another, and within each the columns.

    Args:
        file: Its path, or an open file of a store.
        columns: Names, in the order of reading: ``"a"`` for all of a column that is nested, ``"a.b"`` for a part of it. By
            default all columns. pandas reads the columns of its index too; name them if it is not a range.
        row_groups: Their numbers, in the order of reading. By default all row groups.
        pre_buffer: As for pyarrow: with it, up to 8 KiB between two columns are read together with them.

    The plan's iteration raises `KeyError` and `IndexError` for a column and a row group that the file does not have, and
    `ValueError` if it is not a Parquet file, or its footer is encrypted.

    Raises:
        TypeError: `columns` is a single name, `row_groups` a single number, or `file` something else than a file.

    """
    check_place(file)
    read_metadata = library("pyarrow.parquet").read_metadata
    buffer_reader = library("pyarrow").BufferReader
    names = None if columns is None else names_of(columns)
    if row_groups is not None and not isinstance(row_groups, Iterable):
        raise TypeError(f"{row_groups!r} is one row group: put it in a list")
    numbers = None if row_groups is None else list(row_groups)

    def ranges(source: Source) -> Iterator[tuple[int, int]]:
        footer = _footer(source)
        try:
            metadata = read_metadata(buffer_reader(footer))
        except (OSError, ValueError) as error:
            raise ValueError(f"{source.path}: {error}") from None
        paths = leaves(metadata)
        chosen = list(range(len(paths)))
        if names is not None:
            chosen = [leaf for name in names for leaf in below(paths, name, source.path)]
        groups = range(metadata.num_row_groups) if numbers is None else numbers
        yield from chunks(metadata, chosen, groups, HOLE_BYTES if pre_buffer else None)

    # Threads of pyarrow read columns side by side, and may take one through all row groups first.
    return plan_of(file, ranges, ordered=False)


def _footer(source: Source) -> bytes:
    """Read the footer; returns a file that has nothing else."""
    tail_bytes = min(source.size, TAIL_BYTES)
    tail = source.read(source.size - tail_bytes, tail_bytes)
    length = int.from_bytes(tail[-8:-4], "little") + END_BYTES
    if tail[-4:] != b"PAR1" or length > source.size:
        what = "its footer is encrypted" if tail[-4:] == b"PARE" else "not a Parquet file"
        raise ValueError(f"{source.path}: {what}")
    if length > tail_bytes:
        tail = source.read(source.size - length, length - tail_bytes) + tail
    return b"PAR1" + tail[-length:]


def names_of(columns: Iterable[str]) -> list[str]:
    """Return names as a list.

    Raises:
        TypeError: It is a single name.

    """
    no_string(columns, "column")
    return list(columns)


def leaves(metadata: Any) -> list[str]:
    """Return the dotted name of each column that is stored."""
    return [metadata.schema.column(at).path for at in range(metadata.num_columns)]


def below(paths: Sequence[str], name: str, file: str) -> list[int]:
    """Return the numbers of the stored columns of `name` in a file.

    Raises:
        KeyError: There are none.

    """
    found = [at for at, path in enumerate(paths) if path == name or path.startswith(name + ".")]
    if not found:
        raise missing(file, "column", name)
    return found


def chunks(
    metadata: Any, columns: Iterable[int], row_groups: Iterable[int], hole_bytes: int | None
) -> Iterator[tuple[int, int]]:
    """Yield offset and length in bytes of column chunks, row group by row group.

    Chunks with at most `hole_bytes` between them are one range, with what lies between.

    Raises:
        IndexError: There is no such row group.

    """
    chosen, numbers = list(dict.fromkeys(columns)), list(row_groups)
    among = set(numbers)
    known: dict[int, list[tuple[int, int]]] = {}

    def of(number: int) -> list[tuple[int, int]]:
        if number not in known:
            group = metadata.row_group(number)
            known[number] = [_chunk(group.column(column)) for column in chosen]
        return known[number]

    for number in numbers if chosen else ():
        if not 0 <= number < metadata.num_row_groups:
            raise IndexError(f"row group {number} of {metadata.num_row_groups}")
        wanted = of(number)
        if hole_bytes is None:
            yield from wanted
            continue
        spans: list[list[int]] = []
        for offset, length in sorted(wanted):
            if spans and offset - spans[-1][1] <= hole_bytes:
                spans[-1][1] = offset + length
            else:
                spans.append([offset, offset + length])
        begins = [begin for begin, _ in spans]
        if number > 0 and number - 1 in among:
            before = max(offset + length for offset, length in of(number - 1))
            if 0 < begins[0] - before <= hole_bytes:
                spans[0][0] = before
        for at in dict.fromkeys(bisect.bisect(begins, offset) - 1 for offset, _ in wanted):
            begin, end = spans[at]
            yield begin, end - begin
        known = {number: wanted}


def _chunk(column: Any) -> tuple[int, int]:
    begin = column.data_page_offset
    dictionary = column.dictionary_page_offset
    if dictionary is not None and 0 < dictionary < begin:
        begin = dictionary
    return begin, column.total_compressed_size
