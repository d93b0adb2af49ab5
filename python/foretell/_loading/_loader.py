"""A loader of torch whose reads are disclosed. Needs torch."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch.utils.data
from torch.utils.data import IterableDataset, RandomSampler, SequentialSampler

from foretell._loading._dataset import DisclosedDataset, PlanOf
from foretell._loading._sampler import DisclosedSampler

if TYPE_CHECKING:
    from foretell._store import Store


class DataLoader(torch.utils.data.DataLoader[Any]):  # type: ignore[misc]
    """torch's `DataLoader`, whose workers disclose what they will read.

    Args:
        dataset: A map-style data set. For iterable ones use `foretell.torch.disclose_ahead`.
        args, named: As for torch's `DataLoader`.
        plan_of, store: As for `foretell.torch.disclose_dataset`.
        ahead, next_epoch: As for `foretell.torch.disclose_sampler`.

    Items, their order, and random numbers are those of torch's `DataLoader` with the same arguments.

    Raises:
        TypeError: The data set is iterable, or it is not known what it reads.

    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        *args: Any,
        plan_of: PlanOf | None = None,
        store: Store | None = None,
        ahead: int = 2048,
        next_epoch: bool | None = None,
        **named: Any,
    ) -> None:
        if isinstance(dataset, IterableDataset):
            raise TypeError(
                "an iterable data set has no sampler: use foretell.torch.disclose_ahead"
            )
        is_kept = bool(named.get("persistent_workers"))
        disclosed = DisclosedDataset(dataset, plan_of, store, is_kept)
        if batch_sampler is not None:
            batch_sampler = DisclosedSampler(batch_sampler, ahead, 1, next_epoch, None)
        else:
            if sampler is None:
                generator = named.get("generator")
                sampler = (
                    RandomSampler(dataset, generator=generator)
                    if shuffle
                    else SequentialSampler(dataset)
                )
                shuffle = None
            sampler = DisclosedSampler(sampler, ahead, batch_size or 1, next_epoch, None)
        super().__init__(disclosed, batch_size, shuffle, sampler, batch_sampler, *args, **named)
