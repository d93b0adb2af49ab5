"""Sum the bytes of a bucket's objects on the workers of a dask cluster, which share what they fetch by a server.

python dask_sum.py s3://BUCKET redis://HOST[:PORT] [SCHEDULER]

Each object is read on every worker. With the tier, the bucket is asked for each block once.
"""

import functools
import json
import random
import sys

from distributed import Client, LocalCluster

import foretell


@functools.cache
def store_of(url: str, tier: str) -> foretell.Store:
    """One store for each worker's process: its cache is in memory, and the tier behind it."""
    return foretell.Store(url, tier=tier)


def total(url: str, tier: str, names: list[str], seed: int) -> tuple[int, dict[str, int]]:
    """Sum all objects, in an order of this worker's own, which it discloses."""
    store = store_of(url, tier)
    random.Random(seed).shuffle(names)
    ranges = [
        (name, at, 1 << 20) for name in names for at in range(0, store.info(name).size, 1 << 20)
    ]
    return sum(sum(part) for part in store.read_ranges(ranges)), store.stats()


def main() -> None:
    """Ask each worker for the sum of everything."""
    if len(sys.argv) not in (3, 4):
        print(
            "usage: python dask_sum.py s3://BUCKET redis://HOST[:PORT] [SCHEDULER]", file=sys.stderr
        )
        sys.exit(2)
    url, tier = sys.argv[1:3]
    names = [entry.name for entry in foretell.Store(url).list(recursive=True)]
    # Processes, as on machines of their own. A scheduler's address stands for a cluster that runs.
    cluster = (
        None
        if len(sys.argv) == 4
        else LocalCluster(n_workers=4, threads_per_worker=1, dashboard_address=None)
    )
    with Client(sys.argv[3] if cluster is None else cluster) as client:
        workers = list(client.scheduler_info(n_workers=-1)["workers"])
        futures = [
            client.submit(total, url, tier, names, number, workers=[worker], pure=False)
            for number, worker in enumerate(workers)
        ]
        results = client.gather(futures)
    sums = {found for found, _ in results}
    fetched, shared = (
        sum(stats[name] for _, stats in results)
        for name in ("tier_missed_blocks", "tier_hit_blocks")
    )
    print(
        json.dumps(
            {
                "sums": sorted(sums),
                "workers": len(results),
                "fetched_blocks": fetched,
                "shared_blocks": shared,
            }
        )
    )


if __name__ == "__main__":
    main()
