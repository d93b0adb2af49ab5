"""Where the baskets of a `TTree` and the pages of an `RNTuple` are, in the order in which uproot reads them."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple, TypeAlias

Steps: TypeAlias = Iterable[tuple[int, int]]


class Branch(NamedTuple):
    """The baskets of a branch: the first entry of each, and the number of entries; offsets and lengths in bytes."""

    entries: list[int]
    offsets: list[int]
    lengths: list[int]


def baskets(
    tree: Any, chosen: list[Any], steps: Steps, is_iteration: bool
) -> Iterator[tuple[int, int]]:
    """Yield offset and length in bytes of the baskets of branches: for each range of entries, branch by branch.

    In an iteration, uproot keeps baskets that the next range needs.
    """
    branches: list[Branch] = []
    for branch in chosen:
        offsets = branch.member("fBasketSeek")
        # Those that are embedded in the tree come last, and are in memory.
        count = branch.num_baskets - len(branch.embedded_baskets)
        lengths = branch.member("fBasketBytes")[:count].tolist()
        branches.append(Branch(branch.entry_offsets, offsets[:count].tolist(), lengths))
    gap_bytes = _gap_bytes(tree.file.source)
    kept = [0] * len(branches)
    for start, stop in steps:
        found: list[tuple[int, int]] = []
        for number, branch in enumerate(branches):
            first = bisect_right(branch.entries, start, 1) - 1
            end = min(bisect_left(branch.entries, stop, 0), len(branch.offsets))
            if is_iteration:
                first, kept[number] = max(first, kept[number]), max(end, kept[number])
            found += zip(branch.offsets[first:end], branch.lengths[first:end], strict=True)
        yield from found if gap_bytes is None else _joined(found, gap_bytes)


def _gap_bytes(source: Any) -> int | None:
    """Return how far apart ranges are that a source reads together, in the order of the file; `None` if it does not."""
    if not hasattr(source, "_coalesce_config"):
        return None
    from uproot.source.coalesce import DEFAULT_CONFIG

    return int((source._coalesce_config or DEFAULT_CONFIG).max_range_gap)


def _joined(ranges: list[tuple[int, int]], gap_bytes: int) -> Iterator[tuple[int, int]]:
    begin = end = -1
    for offset, length in sorted(ranges):
        if end >= 0 and offset - end <= gap_bytes:
            end = max(end, offset + length)
            continue
        if end >= 0:
            yield begin, end - begin
        begin, end = offset, offset + length
    if end >= 0:
        yield begin, end - begin


def branches_of(
    tree: Any, names: Iterable[str] | None, filter_name: Any, aliases: Mapping[str, str]
) -> list[Any]:
    """Return the branches that ``tree.arrays(names, filter_name=filter_name, aliases=aliases)`` reads, each once, in order.

    Raises:
        KeyError: A name or an expression has a branch that is not there.

    """
    found: list[Any] = []
    if names is not None:
        for name in names:
            found += _of_expression(tree, name, aliases, ())
    elif len(tree) == 0 and hasattr(tree, "interpretation"):
        found.append(tree)
    else:
        found += _of_filter(tree, filter_name)
    return list({branch.cache_key: branch for branch in found}.values())


def _of_filter(tree: Any, filter_name: Any) -> Iterator[Any]:
    """Yield the branches that a filter selects. Groups of which it selects no or some members are read as a whole."""
    from uproot.interpretation.identify import UnknownInterpretation

    selected = list(tree.itervalues(filter_name=filter_name, recursive=True))
    keys = {branch.cache_key for branch in selected}
    groups = [branch for branch in selected if _members(branch) is not None]
    for branch in selected:
        is_known = not isinstance(branch.interpretation, UnknownInterpretation)
        if is_known and _members(branch) is None:
            yield tree.get(branch.name, branch)  # Of several with a name, uproot reads the first.
    for group in groups:
        inner = _leaves(group)
        if not inner or any(branch.cache_key not in keys for branch in inner):
            yield from inner


def _members(branch: Any) -> list[Any] | None:
    """Return the branches of a group; `None` for a branch with data of its own."""
    subbranches = getattr(branch.interpretation, "subbranches", None)
    return None if subbranches is None else [branch[name] for name in subbranches]


def _leaves(branch: Any) -> list[Any]:
    members = _members(branch)
    return [branch] if members is None else [leaf for one in members for leaf in _leaves(one)]


def _of_expression(
    tree: Any, expression: str, aliases: Mapping[str, str], above: tuple[str, ...]
) -> Iterator[Any]:
    """Yield the branches that an expression needs: a name of a branch or an alias, or a formula of them."""
    branch = tree.get(expression)
    if branch is not None:
        yield from _leaves(branch)
        return
    if expression in above:
        raise ValueError(f"the alias {expression} refers to itself")
    from uproot.language.python import python_language

    short, full = tree.keys(full_paths=False), tree.keys()
    keys = {*short, *full, *(f"/{name}" for name in full)}
    text = aliases.get(expression, expression)
    place = tree.file.file_path, tree.object_path
    for symbol in python_language.free_symbols(text, keys, aliases, *place):
        yield from _of_expression(tree, symbol, aliases, (*above, expression))


def pages(
    tree: Any, filter_name: Any, steps: Steps, is_iteration: bool, path: str
) -> Iterator[tuple[int, int]]:
    """Yield offset and length in bytes of the pages of an `RNTuple`: for each range of entries, column by column.

    In an iteration, uproot keeps the last cluster that it has read.

    Raises:
        KeyError: The filter selects no field.

    """
    ntuple = tree.ntuple
    form, _ = tree.to_akform(filter_name=filter_name)
    columns = list(dict.fromkeys(_columns(form)))
    if not columns:
        raise KeyError(f"{path}: {tree.object_path} has no field {filter_name!r}")
    first_entries = [cluster.num_first_entry for cluster in ntuple.cluster_summaries]
    records, links = ntuple.column_records, ntuple.page_link_list
    kept = 0
    for start, stop in steps:
        # As uproot, which reads the next cluster too if the range ends at its beginning.
        first = max(bisect_right(first_entries, start) - 1, kept, 0)
        end = bisect_right(first_entries, stop)
        kept = end if is_iteration else 0
        for column in columns:
            for link in links[first:end]:
                at = column
                if at < len(link) and link[at].suppressed:
                    field = records[at].field_id
                    same = [one.idx for one in records if one.field_id == field]
                    at = next(one for one in same if not link[one].suppressed)
                for page in link[at].pages if at < len(link) else ():
                    yield page.locator.offset, page.locator.num_bytes


def _columns(form: Any) -> Iterator[int]:
    """Yield the columns that a form needs, in the order of reading."""
    kind, _, rest = (getattr(form, "form_key", None) or "").partition("-")
    if kind == "column":
        yield int(rest.partition("-")[0])
    for inner in getattr(form, "contents", ()):
        yield from _columns(inner)
    inner = getattr(form, "content", None)
    if hasattr(inner, "form_key"):
        yield from _columns(inner)
