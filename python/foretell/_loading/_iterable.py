"""Iterables whose next items are disclosed."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, TypeVar

from foretell._loading._dataset import Ahead

if TYPE_CHECKING:
    from foretell._store import Store
    from foretell.disclose._plan import Plan, Range

Item = TypeVar("Item")


def ahead_of(
    items: Iterable[Item],
    plan_of: Callable[[Item], Plan | Iterable[Range]],
    ahead: int,
    store: Store | None,
) -> Iterator[Item]:
    """See `foretell.torch.disclose_ahead`."""
    told = Ahead(plan_of, store)
    source = iter(items)
    window: deque[Item] = deque()
    number = 0
    try:
        while True:
            for item in islice(source, ahead + 1 - len(window)):
                window.append(item)
                told.disclose([((0, number), [item])])
                number += 1
            if not window:
                return
            yield window.popleft()
            told.has_read(1)
    finally:
        told.cancel()
