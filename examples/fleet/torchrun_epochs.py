"""Read shuffled epochs of samples on all ranks; nodes share what they fetch by a server, and ranks of a node by a cache.

torchrun --nnodes 8 --nproc-per-node 8 … torchrun_epochs.py s3://BUCKET OBJECT redis://HOST[:PORT]
"""

import os
import sys

import torch

import foretell

SAMPLE_BYTES = 1 << 20

if __name__ == "__main__":
    if len(sys.argv) != 4:
        print(
            "usage: torchrun … torchrun_epochs.py s3://BUCKET OBJECT redis://HOST[:PORT]",
            file=sys.stderr,
        )
        sys.exit(2)
    url, name, tier = sys.argv[1:]
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    # shared: one cache for the ranks of this node. tier: each block is fetched by one node.
    store = foretell.Store(url, budget="4GiB", shared=True, tier=tier)
    samples = store.info(name).size // SAMPLE_BYTES
    for epoch in range(3):
        order = torch.randperm(samples, generator=torch.Generator().manual_seed(epoch))
        own = order[rank::world].tolist()
        ranges = [(name, sample * SAMPLE_BYTES, SAMPLE_BYTES) for sample in own]
        for bytes_ in store.read_ranges(ranges):
            sample = torch.frombuffer(bytearray(bytes_), dtype=torch.uint8)
            sample.sum()  # The training step.
    # The counts are in the process that has the cache: one rank of each node, or the daemon (`foretell status`).
    stats = store.stats()
    if "tier_hit_blocks" in stats:
        print(
            f"rank {rank}:",
            stats["tier_hit_blocks"],
            "blocks shared,",
            stats["tier_missed_blocks"],
            "fetched",
        )
