"""Why live figures are off by more than 15 %: the causes that were found, and the rows that they hold for."""

TEXTS = {
    "A": "Between a block's arrival and the next request pass some 0.2 to 0.4 ms of real time: the kernel, FUSE, and processes that "
    "share processors. Simulated, no time passes. Where a disk streams, that is a tenth of a block and more",
    "B": "Linux's read-ahead: a miss fetches up to 128 KiB of the file, which are other processes' blocks too and lie on all disks. "
    "Simulated is demand without it",
    "C": "The MPI reads through the kernel, which asks for 128 KiB at a time: a disk knows a block or two of each reader. The "
    "simulated call asks for all blocks at once, and its disks sort them",
    "D": "Linux's read-ahead goes on behind the portion, so the next one begins while this one is computed on. The simulated call "
    "does not overlap",
    "E": "Until the next request comes, the disk has turned to another process's part of the file, and returns for it. A reader that "
    "advises the kernel itself is nearer to the simulation (`--method advice`: 8 to 9.5 MiB/s for 1-D blocks 16 ahead); "
    "through the manager a request takes two more threads, and in the burst behind a barrier up to 14 ms. The simulator has "
    "the same edge: 1-D blocks fall from 9.6 MiB/s at a depth of 8 to 4.2 at 7, and from 9.7 at 16 to 7.5 at 15",
    "G": "The library counts the depth beyond the block that a process waits for, as the paper says it; the simulator counts that "
    "block in. So it is one block deeper, which matters while the depth is 1 or 2",
}


def of(layout, pattern, method, ratio):
    """The letter of the cause of a row, or None."""
    if method.name == "read-ahead":
        return "B"
    if method.name in ("read-all", "two-phase"):
        return "C" if ratio < 1 else "D"
    if method.name == "demand" and ratio < 1 and pattern == "interleaved":
        return "A"
    if method.name == "informed" and ratio < 1:
        return "E"
    if method.name == "informed" and method.depth in (1, 2):
        return "G"
    return None
