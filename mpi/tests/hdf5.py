"""Reads an HDF5 file in parallel by h5py, and says what each rank has read: `hdf5.py FOLDER`.

The file is made by all ranks where it is missing, with a contiguous and a chunked data set.
Rank 0 prints the lines of all ranks.
"""

import hashlib
import pathlib
import sys

import h5py
import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
path = pathlib.Path(sys.argv[1]) / "cube.h5"
lines = []
SHAPE = (48, 40, 36)


def tell(what, array):
    digest = hashlib.sha256(numpy.ascontiguousarray(array).tobytes()).hexdigest()[:16]
    lines.append(f"rank {rank}: {what}: {array.shape} {array.dtype} {digest}")


is_there = comm.bcast(path.exists() if rank == 0 else None)
if not is_there:
    with h5py.File(path, "w", driver="mpio", comm=comm) as file:
        plain = file.create_dataset("plain", SHAPE, "f8")
        chunked = file.create_dataset("chunked", SHAPE, "f4", chunks=(7, 40, 9))
        numbers = numpy.arange(numpy.prod(SHAPE), dtype="f8").reshape(SHAPE) ** 1.5
        part = slice(SHAPE[0] * rank // ranks, SHAPE[0] * (rank + 1) // ranks)
        with plain.collective, chunked.collective:
            plain[part] = numbers[part]
            chunked[part] = numbers[part]
        file.attrs["unit"] = "K"
    comm.Barrier()

with h5py.File(path, "r", driver="mpio", comm=comm) as file:
    lines.append(f"rank {rank}: {sorted(file)} {file.attrs['unit']}")
    for name in ("plain", "chunked"):
        dataset = file[name]
        part = slice(SHAPE[0] * rank // ranks, SHAPE[0] * (rank + 1) // ranks)
        boxes = {
            "slab": numpy.s_[part],
            "interleaved": numpy.s_[rank::ranks],
            "columns": numpy.s_[:, rank::ranks],
            "box": numpy.s_[part, 3:29, 5:31:2],
            "plane": numpy.s_[:, :, rank % SHAPE[2]],
            "all": numpy.s_[...],
            "nothing": numpy.s_[0:0] if rank % 2 else numpy.s_[0:3],
        }
        for box, selection in boxes.items():
            with dataset.collective:
                for _ in range(2):
                    tell(f"{name}, {box}, collective", dataset[selection])
            tell(f"{name}, {box}", dataset[selection])

gathered = comm.gather(lines)
if rank == 0:
    print("\n".join(line for one in gathered for line in one))
