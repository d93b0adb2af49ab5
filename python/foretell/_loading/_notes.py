"""Notes: which batches come next, told to the process that reads them.

A note travels with a batch through the loader's own queue: as an attribute of the list that is the batch, or of its first
index. So it works for any number of workers and any way of starting them, and needs no channel of its own.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any, NamedTuple

Key = tuple[int, int]
"""Number of an epoch, and number of a batch in it; both from 0."""


class Later(NamedTuple):
    """Batches of an epoch, from `number` on: `items` are the batches; or indices, `size` of which are a batch."""

    epoch: int
    number: int
    size: int
    items: list[Any]

    def batches(self, after: Key, worker: int, workers: int) -> Iterator[tuple[Key, list[Any]]]:
        """Yield keys and indices of the batches after the one named that belong to a worker."""
        size = max(self.size, 1)
        end = self.number + -(-len(self.items) // size)
        first = self.number
        if self.epoch <= after[0]:
            first = end if self.epoch < after[0] else max(first, after[1] + 1)
        first += (worker - first) % workers
        for number in range(first, end, workers):
            at = (number - self.number) * size
            some = self.items[at : at + size] if self.size else self.items[at]
            yield (self.epoch, number), some


class Note(NamedTuple):
    """What is known when a batch is drawn: its own key, and later batches, in the order of drawing."""

    key: Key
    later: list[Later]

    def batches(self, after: Key, worker: int, workers: int) -> Iterator[tuple[Key, list[Any]]]:
        """As `Later.batches`, of all later batches."""
        for later in self.later:
            yield from later.batches(after, worker, workers)


class Batch(list[Any]):
    """A list of indices with a note."""

    note: Note | None = None

    def __init__(self, indices: Iterable[Any] = (), note: Note | None = None) -> None:
        super().__init__(indices)
        self.note = note

    def __reduce__(self) -> tuple[Any, ...]:
        return Batch, (list(self), self.note)


class Index(int):
    """An integer with a note."""

    note: Note | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return with_note, (int(self), self.note)


class Name(str):
    """A string with a note."""

    note: Note | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return with_note, (str(self), self.note)


class Several(tuple[Any, ...]):
    """A tuple with a note."""

    note: Note | None = None

    def __reduce__(self) -> tuple[Any, ...]:
        return with_note, (tuple(self), self.note)


def with_note(index: Any, note: Note | None) -> Any:
    """Return an equal index that has a note, or the index itself if its type cannot have one."""
    carrier: Index | Name | Several
    if type(index) is str:
        carrier = Name(index)
    elif type(index) is tuple:
        carrier = Several(index)
    elif hasattr(index, "__index__") and type(index) is not bool:
        carrier = Index(index)
    else:
        return index
    carrier.note = note
    return carrier


def plain(index: Any) -> Any:
    """Return an index without its note."""
    if isinstance(index, Index):
        return int(index)
    if isinstance(index, Name):
        return str(index)
    return tuple(index) if isinstance(index, Several) else index
