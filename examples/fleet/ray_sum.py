"""Sum the bytes of a bucket's objects by actors of ray, which share what they fetch by a server.

python ray_sum.py s3://BUCKET redis://HOST[:PORT]
"""

import sys

import ray

import foretell


@ray.remote
class Reader:
    """A process of its own, on whichever machine. Its cache is in memory, and the tier behind it."""

    def __init__(self, url: str, tier: str) -> None:
        self.store = foretell.Store(url, tier=tier)

    def total(self, names: list[str]) -> tuple[int, dict[str, int]]:
        """Sum these objects, which are disclosed in this order."""
        ranges = [
            (name, at, 1 << 20)
            for name in names
            for at in range(0, self.store.info(name).size, 1 << 20)
        ]
        return sum(sum(part) for part in self.store.read_ranges(ranges)), self.store.stats()


if __name__ == "__main__":
    if len(sys.argv) != 3:
        print("usage: python ray_sum.py s3://BUCKET redis://HOST[:PORT]", file=sys.stderr)
        sys.exit(2)
    url, tier = sys.argv[1:]
    names = [entry.name for entry in foretell.Store(url).list(recursive=True)]
    ray.init()
    readers = [Reader.remote(url, tier) for _ in range(4)]
    for found, stats in ray.get([reader.total.remote(names) for reader in readers]):
        print(
            found,
            stats["tier_hit_blocks"],
            "blocks shared,",
            stats["tier_missed_blocks"],
            "fetched",
        )
