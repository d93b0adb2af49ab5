"""Files, read as a whole, in a given order."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from foretell.disclose._plan import Plan, Range, mistake_in, no_string

if TYPE_CHECKING:
    from foretell._store import Store


def files(
    order: Iterable[str | os.PathLike[str]], *, store: Store | None = None, ordered: bool = True
) -> Plan:
    """Plan to read files as a whole, one after another.

    Args:
        order: Paths, in the order of reading; taken lazily. A generator can be used for one iteration of the plan.
        store: The store that has the files; by default, they are files of this machine.
        ordered: Whether they will be read in this order.

    Raises:
        TypeError: `order` is a single path.

    """
    no_string(order, "path")
    if isinstance(order, os.PathLike):
        raise TypeError(f"{order!r} is one path: put it in a list")
    mistake = None
    if store is None and isinstance(order, (list, tuple)) and order:
        mistake = mistake_in(os.fsdecode(order[0]), takes_store=True)

    def ranges() -> Iterator[Range]:
        for path in order:
            yield os.fsdecode(path), 0, None

    return Plan(ranges, store, ordered=ordered, mistake=mistake)
