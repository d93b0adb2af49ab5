"""Data sets that disclose the items which this process will read next.

The notes of its batches (`_notes`) tell a process which batches come later, and it takes those that are its own: a
loader gives batch i to worker i modulo the number of workers. It discloses their ranges, and reads. Each process discloses
what it reads itself, so all three receivers match the reads: the manager of ``foretell run``, a mount, and a `foretell.Store`,
whose cache belongs to the process.

If a batch comes that was not expected (the loader gave up an epoch, or gives batches to workers out of turn), the rest is given
up, and disclosing begins anew with this batch.
"""

from __future__ import annotations

import mmap
import os
import sys
import warnings
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any

from foretell._errors import Changed
from foretell._loading._feed import Feed
from foretell._loading._names import Names
from foretell._loading._notes import Batch, Key, Note, plain
from foretell.disclose import Disclosed
from foretell.disclose._plan import Plan, Range, checked, text_of

if TYPE_CHECKING:
    from foretell._store import Store

PlanOf = Callable[[Any], "Plan | Iterable[Range]"]


class Warned:
    """Whether a loader has warned of failing hints; forked workers share it with their parent."""

    def __init__(self) -> None:
        self._flag = mmap.mmap(-1, 1)

    def __reduce__(self) -> tuple[type[Warned], tuple[()]]:
        return Warned, ()

    def __call__(self, what: str, why: str) -> None:
        """Warn of the first failure."""
        if not self._flag[0]:
            self._flag[0] = 1
            text = f"{what} is not disclosed, so reading it may be slow: {why} (later failures give no warning)"
            warnings.warn(text, RuntimeWarning, stacklevel=3)


class Ahead:
    """What this process has disclosed and not read; made anew in each process."""

    def __init__(
        self,
        plan_of: PlanOf,
        store: Store | None,
        is_kept: bool = False,
        warn: Warned | None = None,
    ) -> None:
        self._plan_of = plan_of
        self._warn = Warned() if warn is None else warn
        self._is_kept = is_kept
        self._store = store
        self._hints = Disclosed()
        self._feeds: dict[int, tuple[Store, Feed]] = {}
        self.names: Names | None = None
        self._last_name = ""
        # Batches that were disclosed: their keys, and the number of their last item.
        self._batches: deque[tuple[Key, int]] = deque()
        self._items = 0
        self.read = 0
        self.problem: str | None = None

    def follow(self, note: Note, indices: Sequence[Any], share: tuple[int, int]) -> None:
        """Disclose a batch that is to be read now, and those after it. `share` is the number of this process and of all."""
        worker, workers = share
        while self._batches and self._batches[0][0] != note.key:
            self._batches.popleft()
        if self._batches:
            # What was left out before it has been read or never will be.
            self.read = self._batches.popleft()[1] - len(indices)
        else:
            self.cancel()
            self.read = self._items
            self.disclose([(note.key, indices)])
            self._batches.clear()
        self._done()
        if note.key[1] % workers != worker:
            return  # It is not known which batches this worker gets.
        latest = self._batches[-1][0] if self._batches else note.key
        later = note.batches(latest, worker, workers)
        self.disclose([one for one in later if self._lives_until(one[0], note.key)])

    def _lives_until(self, later: Key, now: Key) -> bool:
        """Whether this process will read a later batch: a worker may end with its epoch."""
        return later[0] == now[0] or self._is_kept or not is_worker()

    def disclose(self, batches: list[tuple[Key, Sequence[Any]]]) -> None:
        """Disclose batches, after those so far."""
        of_stores: dict[int, list[tuple[int, Range]]] = {}
        paths: list[Range] = []
        names: list[tuple[int, str]] = []
        for key, indices in batches:
            for index in indices:
                self._items += 1
                try:
                    plan = self._plan_of(plain(index))
                    ranges = [checked(one) for one in plan]
                except Exception as error:  # Costs the hints of this item.
                    self.problem = text_of(error)
                    self._warn(f"item {plain(index)!r}", self.problem)
                    continue
                store = plan.store if isinstance(plan, Plan) else self._store
                if store is None:
                    paths += ranges
                    names += [(self._items, path) for path, _, _ in ranges]
                    continue
                if id(store) not in self._feeds:
                    self._feeds[id(store)] = store, Feed(store)
                some = of_stores.setdefault(id(store), [])
                some += [(self._items, one) for one in ranges]
            self._batches.append((key, self._items))
        for number, items in of_stores.items():
            self._feeds[number][1].add(items)
        if paths:
            self._hints.add(paths)
            if self._hints.problem is not None:
                self.problem = self._hints.problem
                self._warn(f"a batch with {paths[0][0]}", self.problem)
            self._look_up(names)

    def _look_up(self, names: list[tuple[int, str]]) -> None:
        """Look up those that are on a mount, each once if it comes several times in succession."""
        wanted = []
        for item, path in names:
            if path != self._last_name and self._hints.is_on_mount(path):
                wanted.append((item, path))
            self._last_name = path
        if wanted:
            self.names = self.names or Names()
            self.names.add(wanted)

    def has_read(self, items: int) -> None:
        """Note that further items have been read."""
        self.read += items
        self._done()

    def _done(self) -> None:
        for _, feed in self._feeds.values():
            feed.done(self.read)
        if self.names is not None:
            self.names.done(self.read)

    def __del__(self) -> None:
        try:
            self.cancel()
        except Exception:  # The interpreter ends.
            return

    @property
    def taken(self) -> int:
        """Files that the data set got as they were opened for hints."""
        return sum(feed.user.lent for _, feed in self._feeds.values())

    def begin_item(self) -> None:
        """Note that an item is read now."""
        for _, feed in self._feeds.values():
            feed.begin_item()

    def forget_changed(self) -> bool:
        """Forget files that have changed since they were opened; returns whether the item has read any."""
        # All of them, so no generator.
        return any([feed.forget_changed() for _, feed in self._feeds.values()])

    def cancel(self) -> None:
        """Give up what was disclosed and not read."""
        self._batches.clear()
        self._hints.cancel()
        if self.names is not None:
            self.names.close()
            self.names = None
        for _, feed in self._feeds.values():
            feed.close()
        self._feeds.clear()


class DisclosedDataset:
    """A map-style data set that discloses what it will read; see `foretell.torch.disclose_dataset`."""

    def __init__(
        self,
        dataset: Any,
        plan_of: PlanOf | None,
        store: Store | None,
        persistent_workers: bool = False,
    ) -> None:
        if plan_of is None and not hasattr(dataset, "foretell_plan"):
            raise TypeError(
                f"{type(dataset).__name__} has no method foretell_plan(index): add it, or give plan_of"
            )
        self.dataset = dataset
        self._plan_of = plan_of
        self._store = store
        self._is_kept = persistent_workers
        self._ahead: tuple[int, Ahead] | None = None
        self._warn = Warned()

    def __len__(self) -> int:
        return len(self.dataset)

    def __getattr__(self, name: str) -> Any:
        if name == "dataset" or (name.startswith("__") and name.endswith("__")):
            raise AttributeError(name)
        return getattr(self.dataset, name)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_ahead": None}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)

    @property
    def problem(self) -> str | None:
        """Why the last item that was not disclosed in this process was not, in one line."""
        return None if self._ahead is None else self._ahead[1].problem

    def _here(self) -> Ahead:
        """What this process has disclosed."""
        if self._ahead is None or self._ahead[0] != os.getpid():
            plan_of = self.dataset.foretell_plan if self._plan_of is None else self._plan_of
            self._ahead = os.getpid(), Ahead(plan_of, self._store, self._is_kept, self._warn)
        return self._ahead[1]

    def __getitem__(self, index: Any) -> Any:
        note = getattr(index, "note", None)
        index = plain(index)
        if note is None:
            return self.dataset[index]
        ahead = self._here()
        ahead.follow(note, [index], share())
        return self._read(ahead, self.dataset.__getitem__, index, 1)

    def __getitems__(self, indices: Sequence[Any]) -> Any:
        note = indices.note if isinstance(indices, Batch) else None
        if note is None and indices:
            note = getattr(indices[0], "note", None)
        indices = [plain(index) for index in indices]
        together = getattr(self.dataset, "__getitems__", None)
        if note is None:
            return (
                [self.dataset[index] for index in indices]
                if together is None
                else together(indices)
            )
        ahead = self._here()
        ahead.follow(note, indices, share())
        if together is not None:
            return self._read(ahead, together, indices, len(indices))
        return [self._read(ahead, self.dataset.__getitem__, index, 1) for index in indices]

    def _read(self, ahead: Ahead, read: Callable[[Any], Any], given: Any, items: int) -> Any:
        try:
            while True:
                ahead.begin_item()
                try:
                    return read(given)
                except Changed:
                    # Of a file that was opened for a hint, and replaced since, the current version is read now. Each turn
                    # forgets one such file at least.
                    if not ahead.forget_changed():
                        raise
        finally:
            ahead.has_read(items)


def worker_info() -> Any:
    """Return what torch tells a worker of a loader about itself; `None` in the main process."""
    data = sys.modules.get("torch.utils.data")
    return None if data is None else data.get_worker_info()


def is_worker() -> bool:
    """Whether this process is a worker of a loader."""
    return worker_info() is not None


def share() -> tuple[int, int]:
    """Return the number of this worker of a loader, and how many workers there are; ``(0, 1)`` in the main process."""
    told = worker_info()
    return (0, 1) if told is None else (told.id, told.num_workers)
