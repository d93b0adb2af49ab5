"""Reads a file by mpi4py with each kind of view, and says what each rank has read: `reads.py DATA`.

Rank 0 prints the lines of all ranks, so that the output of two runs can be compared.
"""

import hashlib
import sys

import numpy
from mpi4py import MPI

comm = MPI.COMM_WORLD
rank, ranks = comm.rank, comm.size
lines = []


def tell(what, buffer, file, status=None):
    count = "" if status is None else f" count {status.Get_count(MPI.BYTE)} elements {status.Get_elements(MPI.BYTE)}"
    digest = hashlib.sha256(memoryview(buffer).cast("B")).hexdigest()[:16]
    lines.append(f"rank {rank}: {what}:{count} at {file.Get_position()} {digest}")


def views():
    yield "bytes", MPI.BYTE, 100 * rank
    yield "vector", MPI.BYTE.Create_vector(50, 300, 300 * ranks), 300 * rank
    block = MPI.DOUBLE.Create_contiguous(512)
    yield "resized", block.Create_resized(0, 4096 * ranks), 4096 * rank
    rows = [120 * rank // ranks, 120 * (rank + 1) // ranks]
    yield "subarray", MPI.DOUBLE.Create_subarray([120, 200], [rows[1] - rows[0], 150], [rows[0], 25]), 0
    yield "subarray, columns", MPI.INT.Create_subarray([300, 64 * ranks], [300, 64], [0, 64 * rank], MPI.ORDER_FORTRAN), 8
    places = numpy.cumsum(numpy.random.default_rng(rank).integers(30, 400, 60)).tolist()
    yield "indexed", MPI.INT.Create_indexed([20] * 60, places), 0
    yield "indexed block", MPI.FLOAT.Create_indexed_block(16, places), 4
    yield "struct", MPI.Datatype.Create_struct([100, 1, 7], [0, 1000, 2000], [MPI.BYTE, MPI.DOUBLE, MPI.INT]), rank


for name, filetype, displacement in views():
    if filetype != MPI.BYTE:
        filetype.Commit()
    file = MPI.File.Open(comm, sys.argv[1], MPI.MODE_RDONLY)
    file.Set_view(displacement, MPI.BYTE, filetype)
    for turn in range(3):
        buffer, status = numpy.zeros(20000 + 100 * turn, "u1"), MPI.Status()
        file.Read_all(buffer, status)
        tell(f"{name}, Read_all", buffer, file, status)
    buffer = bytearray(5000)
    file.Read_at_all(1000, buffer)
    tell(f"{name}, Read_at_all", buffer, file)
    file.Read(buffer)
    tell(f"{name}, Read", buffer, file)
    file.Iread_at(77, buffer).Wait()
    tell(f"{name}, Iread_at", buffer, file)
    file.Iread_all(buffer).Wait()
    tell(f"{name}, Iread_all", buffer, file)
    file.Read_all_begin(buffer)
    file.Read_all_end(buffer)
    tell(f"{name}, Read_all_end", buffer, file)
    file.Seek(0)
    file.Read_ordered(buffer) if name == "bytes" and ranks == 1 else file.Read_all(buffer)
    tell(f"{name}, again", buffer, file)
    file.Close()
    comm.Barrier()

try:
    MPI.File.Open(comm, sys.argv[1] + ".none", MPI.MODE_RDONLY)
except MPI.Exception as error:
    lines.append(f"rank {rank}: no such file: {error.Get_error_class() != MPI.SUCCESS}")

gathered = comm.gather(lines)
if rank == 0:
    print("\n".join(line for one in gathered for line in one))
