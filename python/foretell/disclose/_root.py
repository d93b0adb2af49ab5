"""Baskets of branches of a ROOT file."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any, TypeAlias

from foretell._store import File
from foretell.disclose._baskets import Steps, baskets, branches_of, pages
from foretell.disclose._fsspec import located
from foretell.disclose._plan import Plan, Range, no_string

if TYPE_CHECKING:
    from foretell._store import Store

Pair: TypeAlias = tuple[int | None, int | None]
Entries: TypeAlias = slice | Pair | Iterable[Pair] | None


def root(
    tree: Any,
    branches: Iterable[str] | None = None,
    entries: Entries = None,
    *,
    filter_name: Any = None,
    cut: str | None = None,
    aliases: Mapping[str, str] | None = None,
) -> Plan:
    """Plan to read branches of a tree that was opened with uproot, as its ``arrays`` and ``iterate`` read them.

    Nothing is read first: a `TTree` in memory has the places of its baskets. For an `RNTuple`, uproot reads its list of
    pages, and keeps it.

    Args:
        tree: A `TTree`, an `RNTuple`, a branch or a field, of a file of this machine, an open file of a store, or an address
            of foretell's fsspec file system.
        branches: Names or expressions, in the order of reading. By default all. Patterns are given in `filter_name`.
        entries: Which entries: a pair ``(start, stop)``; or several of them, one for each call of ``arrays``; or a slice
            with the step of ``iterate``. A step is a number of entries; for a size in bytes, use ``tree.num_entries_for``.
        filter_name: As for uproot: a pattern ``"muon_*"``, a regular expression ``"/muon_.*/i"``, a function, or several.
        cut: As for uproot: an expression. The branches that it needs are planned too.
        aliases: As for uproot: expressions by names that may be used in others.

    The plan's iteration raises `KeyError` for a branch that the tree does not have, and `ValueError` for a file whose source
    takes no hints, such as XRootD.

    Raises:
        TypeError: `branches` is a single name, `entries` is none of these, or `tree` something else, such as a file.

    """
    no_string(branches, "branch")
    if not hasattr(tree, "tree") and not hasattr(tree, "ntuple"):
        raise TypeError(
            f"{type(tree).__name__}: a tree of uproot is needed, as file['name'] is one"
        )
    _check_entries(entries)
    names = None if branches is None else list(branches)
    path, store, files = "", None, {}
    failed: Exception | None = None
    try:
        path, store = _place(tree)
    except ValueError as error:
        failed = error
    opened = _owner(tree).file.file_path
    if isinstance(opened, File):
        files[path] = opened

    def ranges() -> Iterator[Range]:
        steps, is_iteration = _steps(entries, int(_owner(tree).num_entries))
        if hasattr(tree, "ntuple"):
            # Names of fields and patterns are the same to uproot.
            chosen = filter_name if names is None else names
            found = pages(tree, chosen, steps, is_iteration, path)
        else:
            known = {**tree.aliases, **(aliases or {})}
            needed = _named(tree, names, filter_name, known, path)
            if cut is not None:
                needed += _named(tree, [cut], None, known, path)
            found = baskets(tree, needed, steps, is_iteration)
        for offset, length in found:
            yield path, offset, length

    is_buffered = store is None and _is_buffered(_owner(tree).file.source)
    return Plan(ranges, store, files=files, is_buffered=is_buffered, mistake=failed)


def _place(tree: Any) -> tuple[str, Store | None]:
    """Return the name of a tree's file, and its store; `None` on this machine."""
    file = _owner(tree).file
    opened, source = file.file_path, file.source
    if isinstance(opened, File):
        return opened.name, opened._store
    if not isinstance(opened, str):
        path = getattr(opened, "name", None)
        if not isinstance(path, (str, bytes)):
            raise ValueError(f"{opened!r} is no file of this machine or of foretell")
        return os.path.abspath(os.fsdecode(path)), None
    fs = getattr(source, "_fs", None)
    if fs is not None:
        store, path = located(fs, source.file_path)
        return path, store
    if not os.path.exists(source.file_path):
        raise ValueError(f"{opened} is read by {type(source).__name__}, which takes no hints")
    return os.path.abspath(source.file_path), None


def _is_buffered(source: Any) -> bool:
    """Whether a source reads a buffered file of this machine."""
    from uproot.source.file import MultithreadedFileSource

    fs = getattr(source, "_fs", None)
    return isinstance(source, MultithreadedFileSource) or "file" in getattr(fs, "protocol", ())


def _owner(tree: Any) -> Any:
    """Return the tree that a branch or a field is of."""
    return tree.ntuple if hasattr(tree, "ntuple") else tree.tree


def _named(
    tree: Any, names: list[str] | None, filter_name: Any, known: Mapping[str, str], path: str
) -> list[Any]:
    """As `branches_of`, with errors that name the file and the tree."""
    try:
        return branches_of(tree, names, filter_name, known)
    except (KeyError, SyntaxError) as error:
        said = error.args[0] if isinstance(error, KeyError) else f"{names} is no expression"
        place = f"{path}: {tree.object_path}: "
        patterns = any("*" in name for name in names or ())
        way_out = "; patterns are given as `filter_name`" if patterns else ""
        raise KeyError(f"{place}no branch: {' '.join(str(said).split())}{way_out}") from None


def _check_entries(entries: Any) -> None:
    """Refuse entries that are no pairs of numbers, and steps in bytes."""
    step = entries.step if isinstance(entries, slice) else None
    if isinstance(entries, (str, bytes)) or isinstance(step, (str, bytes)):
        raise TypeError(
            f"entries={entries!r}: for a step in bytes, give slice(None, None, tree.num_entries_for('100 MB'))"
        )
    if entries is not None and not isinstance(entries, (slice, Iterable)):
        raise TypeError(
            f"entries={entries!r}: give (start, stop), a list of these, or a slice with a step"
        )


def _steps(entries: Entries, count: int) -> tuple[Steps, bool]:
    """Return the ranges of entries, and whether they are steps of one iteration."""

    def limits(pair: Any) -> tuple[int, int]:
        start, stop, _ = slice(*pair).indices(count)
        return start, max(start, stop)

    if isinstance(entries, slice):
        start, stop = limits((entries.start, entries.stop))
        step = max(stop - start, 1) if entries.step is None else entries.step
        if step < 1:
            raise ValueError(f"a step of {step} entries")
        return ((at, min(at + step, stop)) for at in range(start, stop, step)), True
    if entries is None:
        return [(0, count)], False
    pairs: list[Any] = list(entries)
    if len(pairs) == 2 and not any(isinstance(one, tuple) for one in pairs):
        pairs = [(pairs[0], pairs[1])]
    return [limits(pair) for pair in pairs], False
