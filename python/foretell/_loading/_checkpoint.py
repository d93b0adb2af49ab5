"""Distributed checkpoints of torch, read from a `foretell.Store`. Needs torch."""

from __future__ import annotations

import io
import os
import pickle
from typing import TYPE_CHECKING, Any

import torch
from torch.distributed._shard._utils import narrow_tensor_by_index
from torch.distributed.checkpoint import FileSystemReader
from torch.distributed.checkpoint.metadata import StorageMeta
from torch.distributed.checkpoint.planner import LoadItemType
from torch.futures import Future

if TYPE_CHECKING:
    from foretell._store import Store


class CheckpointReader(FileSystemReader):  # type: ignore[misc]
    """Reads a checkpoint that `torch.distributed.checkpoint.save` has written.

    >>> torch.distributed.checkpoint.load(state, storage_reader=CheckpointReader(store, "run/step-1000"))

    All parts that this rank needs are disclosed as one batch. Each is loaded when it arrives, in any order. torch's own reader
    reads one after the other.

    Args:
        store: The store of the checkpoint.
        folder: The checkpoint's folder in the store; "" is the store itself.

    Raises as `foretell.Store.open` when it is used.

    """

    def __init__(self, store: Store, folder: str | os.PathLike[str] = "") -> None:
        super().__init__(folder)
        self._store = store
        self._folder = os.fsdecode(folder).rstrip("/")

    def _at(self, name: str) -> str:
        return f"{self._folder}/{name}" if self._folder else name

    @property
    def checkpoint_id(self) -> str:
        """The checkpoint's folder in the store."""
        return self._folder

    def reset(self, checkpoint_id: str | os.PathLike[str] | None = None) -> None:
        """Make ready for a load, of another folder if one is given."""
        super().reset()
        if checkpoint_id:
            self._folder = os.fsdecode(checkpoint_id).rstrip("/")

    def read_metadata(self, *args: Any, **named: Any) -> Any:
        """Read the description of the checkpoint."""
        rank = named.get("rank")
        name = ".metadata" if rank is None else f"__{rank}.metadata"
        with self._store.open(self._at(name)) as file:
            described = pickle.loads(file.read())
        if getattr(described, "storage_meta", None) is None:
            described.storage_meta = StorageMeta()
        described.storage_meta.load_id = self.load_id
        return described

    def read_data(self, plan: Any, planner: Any) -> Any:
        """Read all items of a plan, as they arrive."""
        places = [self.storage_data[item.storage_index] for item in plan.items]
        ranges = [(self._at(one.relative_path), one.offset, one.length) for one in places]
        # The window is all of it, so that no file is opened late.
        window = max(len(ranges), 1)
        for index, found in self._store.read_ranges(ranges, window=window, ordered=False):
            self._load(plan.items[index], places[index], found, planner)
        done: Any = Future()
        done.set_result(None)
        return done

    def _load(self, item: Any, place: Any, found: bytes, planner: Any) -> None:
        stream: Any = io.BytesIO(found)
        described = getattr(place, "transform_descriptors", None)
        if described:
            transformed = self.transforms.transform_load_stream(item, described, stream)
            stream = io.BytesIO(transformed.read(-1))
        if item.type == LoadItemType.BYTE_IO:
            planner.load_bytes(item, stream)
            return
        tensor = torch.load(stream, map_location="cpu", weights_only=True)
        tensor = narrow_tensor_by_index(tensor, item.storage_offsets, item.lengths)
        target = planner.resolve_tensor(item).detach()
        if target.size() != tensor.size():
            raise ValueError(
                f"{item.storage_index}: of size {tuple(tensor.size())} in the checkpoint, not {tuple(target.size())}"
            )
        target.copy_(tensor)
        planner.commit_tensor(item, target)
