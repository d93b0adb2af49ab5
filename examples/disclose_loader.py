#!/usr/bin/env python3
"""Load a folder or a bucket of files in random order with torch, each file fetched before its turn.

disclose_loader.py ADDRESS [WORKERS]
"""

import sys

import foretell
from foretell.torch import DataLoader
from torch.utils.data import Dataset


class Files(Dataset):
    """The bytes of each file below an address."""

    def __init__(self, store: foretell.Store) -> None:
        self.store = store
        found = store.list(recursive=True)
        self.names = sorted(entry.name for entry in found if entry.kind == "file")

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> int:
        with self.store.open(self.names[index]) as file:
            return len(file.read())

    def foretell_plan(self, index: int) -> list[tuple[str, int, None]]:
        """What `__getitem__` will read: a file, from its first byte to its last."""
        return [(self.names[index], 0, None)]


if __name__ == "__main__":
    if len(sys.argv) not in (2, 3):
        print("usage: disclose_loader.py ADDRESS [WORKERS]", file=sys.stderr)
        sys.exit(2)
    store = foretell.Store(sys.argv[1])
    workers = int(sys.argv[2]) if len(sys.argv) > 2 else 0
    loader = DataLoader(Files(store), batch_size=16, shuffle=True, num_workers=workers, store=store)
    total = sum(int(batch.sum()) for batch in loader)
    print(f"{len(loader.dataset)} files, {total} bytes")
