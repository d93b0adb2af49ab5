"""Loaders of torch that know what they will read next.

>>> from foretell.torch import DataLoader
>>> store = foretell.Store("s3://bucket")
>>> class Photos(torch.utils.data.Dataset):
...     def __getitem__(self, index):
...         with store.open(names[index]) as file:
...             return decode(file.read())
...     def foretell_plan(self, index):
...         return [(names[index], 0, None)]
>>> for batch in DataLoader(Photos(), batch_size=64, shuffle=True, num_workers=4, store=store): ...

`disclose_sampler` draws the order some way ahead, and `disclose_dataset` discloses in each worker what that worker will read.
`DataLoader` is both in one. `disclose_ahead` is for iterable data sets, and `CheckpointReader` for distributed checkpoints.

Nothing but `DataLoader` and `CheckpointReader` needs torch: the others work with any samplers and data sets of the same form.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import TYPE_CHECKING, Any, TypeVar

from foretell._loading._dataset import DisclosedDataset, PlanOf
from foretell._loading._iterable import ahead_of
from foretell._loading._sampler import DisclosedSampler
from foretell.disclose._plan import Plan, Range

if TYPE_CHECKING:
    from foretell._loading._checkpoint import CheckpointReader
    from foretell._loading._loader import DataLoader
    from foretell._store import Store

__all__ = [
    "CheckpointReader",
    "DataLoader",
    "disclose_ahead",
    "disclose_dataset",
    "disclose_sampler",
]

Item = TypeVar("Item")

AHEAD = 2048
"""Indices that are drawn ahead by default."""


def disclose_sampler(
    sampler: Any,
    *,
    ahead: int = AHEAD,
    batch_size: int = 1,
    next_epoch: bool | None = None,
    plan_of: Callable[[Any], Plan | Iterable[Range]] | None = None,
) -> DisclosedSampler:
    """Wrap a sampler or batch sampler, so that the items after the one it yields are known.

    >>> sampler = disclose_sampler(DistributedSampler(photos), batch_size=64)
    >>> DataLoader(disclose_dataset(photos), sampler=sampler, batch_size=64, num_workers=4)

    It yields the same items in the same order, and has the length, methods and attributes of the sampler that it wraps. With
    `state_dict` and `load_state_dict`, the state is that of what was yielded, and includes the state of the wrapped sampler.

    Args:
        sampler: Yields indices, or lists of them (a batch sampler).
        ahead: Indices that are drawn ahead of the item that is yielded, of all workers together.
        batch_size: Indices of a batch, if `sampler` yields single indices and the loader makes batches of them.
        next_epoch: Whether the next epoch is begun as soon as this one has been drawn, so that its first reads are known
            early. By default this is so for samplers with `set_epoch`: a copy of the sampler is told the next number, and if
            another number is set, what was drawn is given up. Others are drawn early, which may change what they draw if
            they share a random generator with others.
        plan_of: If given, this process discloses the ranges of each index as it is drawn, as `disclose_dataset` would. Use
            it without workers; or under ``foretell run``, where it does not matter which process reads.

    Raises:
        ValueError: A number is out of range.

    """
    return DisclosedSampler(sampler, ahead, batch_size, next_epoch, plan_of)


def disclose_dataset(
    dataset: Any,
    plan_of: PlanOf | None = None,
    *,
    store: Store | None = None,
    persistent_workers: bool = False,
) -> DisclosedDataset:
    """Wrap a map-style data set, so that each worker discloses what it will read. Its indices come from `disclose_sampler`.

    Args:
        dataset: The data set. Its items and attributes are as without the wrapper.
        plan_of: Maps an index to what the data set reads for it: a plan of `foretell.disclose`, or triples ``(path, offset,
            length)`` in bytes; a length of `None` is the rest of the file. By default the data set's method
            `foretell_plan`. It is called once for each index, in the process that reads. It should not read itself.
        store: The store that triples name files of; by default, they name files of this machine.
        persistent_workers: Whether the loader keeps its workers from epoch to epoch, so that they may begin the next one.

    While an item is read, `Store.open` may return the file that was opened for its hint, so that no request is made twice.
    This is the version of the file when its batch became known. If it has been replaced since and its reads raise
    `foretell.Changed`, the item is read again without hints.

    A plan that fails costs the hints of its item, and raises nothing. The first one gives a `RuntimeWarning`, once for a loader
    and its workers (for each worker, if they are not forked); `DisclosedDataset.problem` says why the last one failed.

    Raises:
        TypeError: There is neither `plan_of` nor a method `foretell_plan`.

    """
    return DisclosedDataset(dataset, plan_of, store, persistent_workers)


def disclose_ahead(
    items: Iterable[Item],
    plan_of: Callable[[Item], Plan | Iterable[Range]],
    *,
    ahead: int = 4,
    store: Store | None = None,
) -> Iterator[Item]:
    """Yield items, with what is read for the next ones disclosed. For iterable data sets, whose items are shards or files.

    >>> class Lines(torch.utils.data.IterableDataset):
    ...     def __iter__(self):
    ...         for path in disclose_ahead(mine(paths), lambda path: [(path, 0, None)]): ...

    Args:
        items: What this process reads, in order: paths, or the dictionaries of WebDataset's shards.
        plan_of: Maps an item to what is read for it; as for `disclose_dataset`.
        ahead: Items that are disclosed beside the one that is yielded.
        store: As for `disclose_dataset`. Its `open` may return files that were opened for hints, as there.

    Raises:
        ValueError: `ahead` is below 0.

    """
    if ahead < 0:
        raise ValueError(f"ahead={ahead}: it must be 0 or more")
    return ahead_of(items, plan_of, ahead, store)


def __getattr__(name: str) -> Any:
    if name not in ("DataLoader", "CheckpointReader"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        if name == "DataLoader":
            from foretell._loading._loader import DataLoader

            return DataLoader
        from foretell._loading._checkpoint import CheckpointReader
    except ModuleNotFoundError as error:
        if not (error.name or "").startswith("torch"):
            raise
        raise ImportError(f"foretell.torch.{name} needs torch: pip install torch") from None
    return CheckpointReader
