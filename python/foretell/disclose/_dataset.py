"""Columns of an Arrow dataset, in row groups that may have what a filter wants."""

from __future__ import annotations

import contextlib
import os
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import islice
from typing import TYPE_CHECKING, Any

from foretell.disclose._fsspec import located
from foretell.disclose._parquet import HOLE_BYTES, below, chunks, leaves, library, names_of
from foretell.disclose._plan import Plan, Range, no_string

if TYPE_CHECKING:
    from foretell._store import Store

# Footers that are read at once.
FOOTERS_AHEAD = 64


def dataset(
    dataset: Any, columns: Iterable[str] | Mapping[str, Any] | None = None, filter: Any = None
) -> Plan:
    """Plan to read columns of a `pyarrow.dataset.Dataset`, as its ``to_table``, ``to_batches`` and ``scanner`` read them.

    Footers are read first, 64 at once, with the data set's own file system; it keeps them. Files follow in the data set's
    order, without those that `filter` rules out by their partition. Row groups follow in their order, without those that it
    rules out by their statistics. Files of text (CSV, JSON) are read as a whole.

    Args:
        dataset: A data set in files of this machine, or of foretell's fsspec file system, in one bucket.
        columns: Names, or expressions by names, as ``to_table`` takes them. By default all columns.
        filter: A `pyarrow.dataset.Expression`, as ``to_table`` takes it. The columns that it needs are planned too.

    The plan's iteration raises `KeyError` for a column that the data set does not have, `ValueError` for a filter or an
    expression that does not fit, for files of other formats and for those that foretell does not read, and `OSError` for
    files that cannot be read.

    Raises:
        TypeError: `dataset` is something else, such as a path, or `columns` a single name.

    """
    arrow = library("pyarrow.dataset")
    no_string(columns, "column")
    if not hasattr(dataset, "get_fragments"):
        raise TypeError(
            f"{type(dataset).__name__}: open it with pyarrow.dataset.dataset(…) and give that; disclose.parquet takes a path"
        )
    store: Store | None = None
    for fragment in dataset.get_fragments():
        with contextlib.suppress(ValueError):  # The iteration raises it.
            store = _place(fragment)[0]
        break
    given = columns if columns is None or isinstance(columns, Mapping) else names_of(columns)

    def ranges() -> Iterator[Range]:
        needed = _needed(arrow, dataset.schema, given, filter)
        fragments = dataset.get_fragments(filter=filter)
        for fragment, place, name in _read_ahead(fragments):
            if place is not store:
                raise ValueError(f"{name} is in another bucket: make a plan for each")
            if not isinstance(fragment, arrow.ParquetFileFragment):
                yield name, 0, None
                continue
            if filter is not None:
                fragment = fragment.subset(filter, schema=dataset.schema)
            metadata = fragment.metadata
            paths = leaves(metadata)
            roots = {path.partition(".")[0] for path in paths} | set(paths)
            chosen = [at for one in needed if one in roots for at in below(paths, one, name)]
            groups = [group.id for group in fragment.row_groups]
            for offset, length in chunks(metadata, chosen, groups, HOLE_BYTES):
                yield name, offset, length

    # Threads of pyarrow read columns and row groups side by side.
    return Plan(ranges, store, ordered=False)


def _place(fragment: Any) -> tuple[Store | None, str]:
    """Return the store of a fragment's file and its name there; or `None` and a path of this machine."""
    fs: Any = getattr(fragment, "filesystem", None)
    path = getattr(fragment, "path", "")
    while hasattr(fs, "base_fs"):
        path = os.path.join(fs.base_path, path)
        fs = fs.base_fs
    handler = getattr(fs, "handler", None)
    if handler is not None and hasattr(handler, "fs"):
        return located(handler.fs, path)
    if fs is None or fs.type_name != "local":
        kind = "memory" if fs is None else fs.type_name
        raise ValueError(f"files of {kind} take no hints: use foretell's fsspec file system")
    return None, os.path.abspath(path)


def _needed(arrow: Any, schema: Any, columns: Any, filter: Any) -> list[str]:
    """Return the names of the columns of the data set that a scan reads."""
    names: dict[str, None] = {}
    if columns is None:
        names.update(dict.fromkeys(schema.names))
    elif isinstance(columns, Mapping):
        for expression in columns.values():
            names.update(dict.fromkeys(_fields_of(arrow, schema, {"it": expression}, None)))
    else:
        for name in columns:
            root = name if name in schema.names else name.partition(".")[0]
            if root not in schema.names:
                raise KeyError(f"the data set has no column {name!r}")
            names[root] = None
    if filter is not None:
        names.update(dict.fromkeys(_fields_of(arrow, schema, None, filter)))
    return list(names)


def _fields_of(arrow: Any, schema: Any, columns: Any, filter: Any) -> list[str]:
    """Return the columns that an expression needs: those without which it fits the schema no more."""

    def fits(fields: Iterable[Any]) -> None:
        empty = library("pyarrow").schema(fields)
        arrow.Scanner.from_batches(iter(()), schema=empty, columns=columns, filter=filter)

    fits(schema)  # Raises what is wrong with it.
    text = str(filter if columns is None else columns)
    found = []
    for name in dict.fromkeys(schema.names):
        if name in text:
            try:
                fits(field for field in schema if field.name != name)
            except (ValueError, NotImplementedError):
                found.append(name)
    return found


def _read_ahead(fragments: Iterator[Any]) -> Iterator[tuple[Any, Store | None, str]]:
    """Yield fragments in their order, each with its place; the footers of the next ones are read meanwhile."""
    waiting: deque[Future[Any]] = deque()
    readers = ThreadPoolExecutor(FOOTERS_AHEAD, "foretell-footers")
    try:
        while True:
            for fragment in islice(fragments, FOOTERS_AHEAD - len(waiting)):
                waiting.append(readers.submit(_with_footer, fragment))
            if not waiting:
                return
            yield waiting.popleft().result()
    finally:
        readers.shutdown(wait=False, cancel_futures=True)


def _with_footer(fragment: Any) -> tuple[Any, Store | None, str]:
    store, name = _place(fragment)
    kind = fragment.format.default_extname
    if kind == "parquet":
        fragment.ensure_complete_metadata()
    elif kind not in ("csv", "json"):
        raise ValueError(f"{fragment.path}: a plan of {kind} files is not made; Parquet is needed")
    return fragment, store, name
