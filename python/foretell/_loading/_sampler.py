"""Samplers whose order is known some way ahead.

A wrapped sampler yields what it would yield without, in the same order. But it is drawn `ahead` indices early, so that
each batch can say which batches come next (`_notes`). An endless sampler is no problem.

The state of a sampler is that of what was *yielded*, not of what was drawn: a copy of the sampler's own state is taken from
time to time, and the number of items that were yielded since is kept beside it.
"""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Callable, Iterator
from functools import partial
from itertools import count, islice
from typing import Any

from foretell._loading._dataset import Warned
from foretell._loading._notes import Batch, Later, Note, with_note
from foretell.disclose import Disclosed
from foretell.disclose._plan import Plan

# Items between two copies of a sampler's state.
COPY_EVERY = 1024
# The fields of a wrapped sampler's state.
OWN, SINCE = "sampler", "yielded"


def size(item: Any) -> int:
    """Return how many indices an item of a sampler is."""
    return len(item) if isinstance(item, list) else 1


class Epoch:
    """One iteration of a sampler, drawn ahead."""

    def __init__(
        self, sampler: Any, number: int, skipped: int, drew: Callable[[Any], None]
    ) -> None:
        self._sampler = sampler
        self._drew = drew
        self._is_stateful = hasattr(sampler, "state_dict")
        self._copies: deque[tuple[int, Any]] = deque()
        self.number = number
        self._drawn = 0
        self.yielded = 0
        self.window: deque[Any] = deque()
        self.indices = 0
        self.is_drawn = False
        self._copy()
        self._items: Iterator[Any] = iter(sampler)
        for _ in range(skipped):
            next(self._items, None)
            self._drawn += 1
            self.yielded += 1

    def _copy(self) -> None:
        if self._is_stateful and (not self._copies or self._drawn % COPY_EVERY == 0):
            self._copies.append((self._drawn, copy.deepcopy(self._sampler.state_dict())))

    def draw(self) -> None:
        """Draw one item, if there is one."""
        if self._drawn:
            self._copy()
        try:
            item = next(self._items)
        except StopIteration:
            self.is_drawn = True
            return
        self._drawn += 1
        self.window.append(item)
        self.indices += size(item)
        for index in item if isinstance(item, list) else [item]:
            self._drew(index)

    def take(self) -> Any:
        """Take the next item of those that were drawn."""
        item = self.window.popleft()
        self.indices -= size(item)
        self.yielded += 1
        while len(self._copies) > 1 and self._copies[1][0] <= self.yielded:
            self._copies.popleft()
        return item

    def state(self) -> dict[str, Any]:
        """Return the state of what was yielded."""
        drawn, state = self._copies[0]
        return {OWN: copy.deepcopy(state), SINCE: self.yielded - drawn}


class DisclosedSampler:
    """A sampler that says what it will yield next; see `foretell.torch.disclose_sampler`."""

    def __init__(
        self,
        sampler: Any,
        ahead: int,
        batch_size: int,
        next_epoch: bool | None,
        plan_of: Callable[[Any], Any] | None,
    ) -> None:
        if ahead < 0:
            raise ValueError(f"ahead={ahead}: it must be 0 or more")
        if batch_size < 1:
            raise ValueError(f"a batch of {batch_size}: it must be 1 or more")
        self.sampler = sampler
        self._ahead = ahead
        self._batch_size = batch_size
        self._next_epoch = hasattr(sampler, "set_epoch") if next_epoch is None else next_epoch
        self._plan_of = plan_of
        self._hints: Disclosed | None = None
        self._warn = Warned()
        self._count = 0
        self._skipped = 0
        self._told_epoch: int | None = None
        self._current: Epoch | None = None
        # The epoch after the current one, and what `set_epoch` must have been told for it.
        self._coming: tuple[Epoch, int | None] | None = None

    def __len__(self) -> int:
        return len(self.sampler)

    def __getattr__(self, name: str) -> Any:
        if name == "sampler" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        found = getattr(self.sampler, name)
        own: dict[str, Callable[..., Any]] = {
            "set_epoch": self._set_epoch,
            "state_dict": self._state_dict,
            "load_state_dict": self._load_state_dict,
        }
        return partial(own[name], found) if name in own else found

    def _set_epoch(self, found: Callable[..., Any], epoch: int, *rest: Any, **named: Any) -> Any:
        self._told_epoch = epoch
        return found(epoch, *rest, **named)

    def _state_dict(self, found: Callable[..., Any], *rest: Any, **named: Any) -> dict[str, Any]:
        if self._current is not None:
            return self._current.state()
        if self._coming is not None and self._coming[1] is None:
            return self._coming[0].state()
        return {OWN: found(*rest, **named), SINCE: self._skipped}

    def _load_state_dict(self, found: Callable[..., Any], state: Any) -> None:
        is_own = isinstance(state, dict) and set(state) == {OWN, SINCE}
        found(state[OWN] if is_own else state)
        self._skipped = state[SINCE] if is_own else 0
        self._give_up()

    def _give_up(self) -> None:
        """Give up what was drawn."""
        self._current = self._coming = None
        if self._hints is not None:
            self._hints.cancel()

    def _drew(self, index: Any) -> None:
        """Disclose an index, if this process is to."""
        if self._plan_of is None:
            return
        if self._hints is None:
            self._hints = Disclosed()
        try:
            plan = self._plan_of(index)
        except Exception as error:  # The data set will raise its own, if it is one.
            self._hints.note(error)
        else:
            self._hints.add(plan if isinstance(plan, Plan) else list(plan))
        if self._hints.problem is not None:
            self._warn(f"index {index!r}", self._hints.problem)

    def _begin(self) -> Epoch:
        coming, self._coming = self._coming, None
        if coming is not None:
            epoch, told = coming
            if told is None or told == self._told_epoch:
                return epoch
            if self._hints is not None:
                self._hints.cancel()
        skipped, self._skipped = self._skipped, 0
        epoch = Epoch(self.sampler, self._count, skipped, self._drew)
        self._count += 1
        return epoch

    def _begin_next(self) -> None:
        """Begin to draw the epoch after the current one."""
        sampler, told = self.sampler, None
        if hasattr(sampler, "set_epoch"):
            known = self._told_epoch
            told = (getattr(sampler, "epoch", 0) if known is None else known) + 1
            sampler = copy.copy(sampler)  # Of the data set that it may have, there is no copy.
            sampler.set_epoch(told)
        self._coming = Epoch(sampler, self._count, 0, self._drew), told
        self._count += 1

    def _fill(self, epoch: Epoch) -> None:
        while (epoch.indices < self._ahead or not epoch.window) and not epoch.is_drawn:
            epoch.draw()
        if not epoch.is_drawn or not self._next_epoch or self._current is not epoch:
            return
        if self._coming is None:
            self._begin_next()
        if self._coming is not None:
            coming, _ = self._coming
            while epoch.indices + coming.indices < self._ahead and not coming.is_drawn:
                coming.draw()

    def __iter__(self) -> Iterator[Any]:
        epoch = self._current = self._begin()
        for position in count():
            self._fill(epoch)
            if not epoch.window:
                break
            item = epoch.take()
            if isinstance(item, list):
                yield Batch(item, self._note(epoch, position))
            elif position % self._batch_size == 0:
                yield with_note(item, self._note(epoch, position))
            else:
                yield item
        if self._current is epoch:
            self._current = None

    def _note(self, epoch: Epoch, position: int) -> Note:
        """Say which batches come after the one at `position`, whose first item has been taken from the window."""
        size = self._batch_size
        number = position // size
        later = [later_of(epoch, size - 1, size, number + 1)]
        if self._coming is not None and self._current is epoch:
            later.append(later_of(self._coming[0], 0, size, 0))
        return Note((epoch.number, number), later)


def later_of(epoch: Epoch, first: int, size: int, number: int) -> Later:
    """Return the batches of an epoch's window from its item `first` on. One that is not complete yet is left for later."""
    items = list(islice(epoch.window, first, None))
    if items and isinstance(items[0], list):
        return Later(epoch.number, number, 0, items)
    if not epoch.is_drawn:
        del items[len(items) - len(items) % size :]
    return Later(epoch.number, number, size, items)
