"""MPI programs: hints for MPI-IO, and disclosures of all ranks that one rank plans.

The reads of mpi4py and of parallel HDF5 are taken as those of a C program are, when the ranks are started by
`foretell run mpiexec …` (docs/guide/mpi.md). Nothing here is needed for that.

>>> from mpi4py import MPI
>>> from foretell import mpi
>>> file = MPI.File.Open(MPI.COMM_WORLD, "data", MPI.MODE_RDONLY, mpi.info(method="informed", depth=16))

It follows "Informed Prefetching of Collective Input/Output Requests" (Madhyastha, Gibson and Faloutsos, 1999).
"""

from __future__ import annotations

import operator
import os
from collections.abc import Callable, Iterable
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from foretell.disclose import Disclosed, Plan
from foretell.disclose import disclosed as disclosed_by_one
from foretell.disclose._plan import checked

if TYPE_CHECKING:
    from mpi4py import MPI

    from foretell.disclose._plan import Range

    Planned: TypeAlias = tuple[list[Range], dict[str, Any]]

__all__ = ["disclosed", "info", "is_active"]

Method: TypeAlias = Literal["collective", "informed", "auto"]

LIBRARY = "libforetell_mpi.so"


def is_active() -> bool:
    """Say whether foretell takes the MPI-IO reads of this process, since `foretell run` started its ranks."""
    if not os.environ.get("FORETELL_SOCKET"):
        return False
    try:
        with open("/proc/self/maps") as maps:
            return any(LIBRARY in line for line in maps)
    except OSError:
        return False


def info(
    method: Method | None = None,
    depth: int | None = None,
    budget: int | str | None = None,
    base: MPI.Info | None = None,
) -> MPI.Info:
    """Make an `MPI.Info` with hints for `MPI.File.Open`, `Set_view` and `Set_info`, and for h5py's `info=`.

    Args:
        method: How collective reads are done: `collective` (by the MPI), `informed` (prefetched, then read independently) or
            `auto`, which measures both. It counts when a file is opened, and must be the same on all ranks.
        depth: Blocks of 8 KiB that each rank has disclosed beyond its read, at most; 0 discloses nothing. Without it,
            foretell decides.
        budget: The same in bytes, or a text such as "16MiB"; 64 MiB without it.
        base: Its hints are taken, too; it stays as it is.

    Returns:
        An info that the caller frees, as every `MPI.Info`. An MPI without foretell ignores its keys.

    Raises:
        ValueError: The method is not known, or a number is negative.

    """
    from mpi4py import MPI

    if method not in (None, "collective", "informed", "auto"):
        raise ValueError(f"method {method!r}: it is collective, informed or auto")
    numbers = {
        "depth": None if depth is None else operator.index(depth),
        "budget": budget if budget is None or isinstance(budget, str) else operator.index(budget),
    }
    for name, number in numbers.items():
        if isinstance(number, int) and number < 0:
            raise ValueError(f"{name} {number}: it must not be negative")
    hints = MPI.Info.Create() if base is None else base.Dup()
    for name, value in {"method": method, **numbers}.items():
        if value is not None:
            hints.Set(f"foretell_{name}", str(value))
    return hints


def disclosed(
    comm: MPI.Intracomm,
    plan: Callable[[int], Plan | Iterable[Range]],
    *,
    root: int = 0,
) -> Disclosed:
    """Disclose what each rank will read, as `foretell.disclosed` does, with the plans of all ranks made by one.

    Only that rank reads the index of the file. Collective in `comm`.

    >>> with mpi.disclosed(comm, lambda rank: disclose.hdf5(dataset, numpy.s_[rank::size])): ...

    Args:
        comm: The ranks.
        plan: What the rank of this number will read: a `Plan`, or triples (path, offset, length). Called by the rank `root`
            alone, for each rank. The paths must name the same files on all nodes.
        root: The rank that plans.

    Returns:
        This rank's disclosure.

    Raises:
        Exception: What `plan` raises, on the rank `root`; the other ranks have no hints. What the iteration of a plan raises is
            no error but the `problem` of that rank's disclosure.
        ValueError: A plan reads files of a `foretell.Store`, which is open in one process only: each rank must plan its own.

    """
    plans: list[Planned] | None = None
    failure: Exception | None = None
    if comm.rank == root:
        try:
            plans = [planned(plan(rank)) for rank in range(comm.size)]
        except Exception as error:  # The other ranks wait for their plans.
            failure = error
            plans = [([], {})] * comm.size
    ranges, kind = comm.scatter(plans, root=root)
    if failure is not None:
        raise failure
    return disclosed_by_one(Plan(lambda: ranges, **kind))


def planned(plan: Plan | Iterable[Range]) -> Planned:
    """Take all ranges of a plan, and what else another process must know of it."""
    if isinstance(plan, Plan) and (plan.store is not None or plan.files):
        raise ValueError(
            "the plan reads files of a foretell.Store, which other processes do not have: "
            "use foretell.disclosed in each rank"
        )
    ranges: list[Range] = []
    kind: dict[str, Any] = {}
    if isinstance(plan, Plan):
        kind = {name: getattr(plan, name) for name in ("ordered", "is_sparse", "is_buffered")}
    try:
        for item in plan:
            path, offset, length = checked(item)
            ranges.append((os.path.abspath(path), offset, length))
    except Exception as error:
        kind["mistake"] = ValueError(
            str(error)
        )  # Any other class may not survive the way to another process.
    return ranges, kind
