"""What Madhyastha, Gibson and Faloutsos (1999) print for files of 4 MB, and their model of a cycle."""

import math

# Table 4, sequential places: throughputs in MB/s (2^20 bytes), and the crossover in blocks.
TABLE_4 = {
    "interleaved": {"least": 9.018, "most": 17.988, "collective": 9.066, "crossover": 1},
    "block-1d": {"least": 3.091, "most": 16.894, "collective": 9.066, "crossover": 16},
    "block-3d": {"least": 2.584, "most": 17.198, "collective": 9.066, "crossover": 8},
    "global": {"least": 3.123, "most": 16.145, "collective": 9.066, "crossover": 7},
}
# Table 5, random places, interleaved; `sorted` is the crossover at increasing places.
TABLE_5 = {"least": 1.264, "most": 2.926, "collective": 1.551, "crossover": 16, "sorted": 2}
# Table 6, increasing places: crossovers. Files of 256 MB, so only the order of patterns compares.
TABLE_6 = {"interleaved": 1, "block-1d": 96, "block-3d": 32}

# Tables 1 and 3: the HP 97560 and blocks of 8 KB, times in milliseconds.
TRANSFER_MS, REVOLUTION_MS, CYLINDERS, BLOCKS_A_TRACK = 3.3316, 14.992, 1935, 4.5
# A block in a sequential run: the overhead and the bus, and the way over a cylinder's share of the blocks.
SEQUENTIAL_MS = 3.081


def seek_ms(cylinders: float) -> float:
    """The seek curve of table 1."""
    return 3.24 + 0.4 * math.sqrt(cylinders) if cylinders < 383 else 8.0 + 0.008 * cylinders


def disk_ms(layout: str, depth: int, processors: int, disks: int) -> float:
    """The time of a block at its disk: equations 4 and 5 at random places, 6 to 8 at sequential ones."""
    at_disk = depth * processors / disks
    positioned = TRANSFER_MS + REVOLUTION_MS / 2
    if layout != "sequential":
        return positioned + seek_ms(CYLINDERS / (at_disk / 2 + 2))
    tracks = max(2 * processors / BLOCKS_A_TRACK, 1)
    random = (1 - 1 / tracks) ** at_disk
    return random * positioned + (1 - random) * SEQUENTIAL_MS


def modelled_mib_s(layout: str, depth: int, machine: dict[str, float]) -> float:
    """Throughput by equation 3; a cycle takes at least the time of the disks."""
    blocks, processors, disks = machine["blocks"], int(machine["processes"]), int(machine["disks"])
    block_ms = disk_ms(layout, depth, processors, disks)
    ahead = min(depth * processors, blocks)
    cycle_ms = max((blocks - ahead) / disks * block_ms + machine["compute_ms"], blocks / disks * block_ms)
    return blocks * 8192 / 2**20 / (cycle_ms / 1e3)
