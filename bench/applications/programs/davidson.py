"""Davidson's algorithm for the lowest eigenvalue of a sparse symmetric matrix that it reads from disk in each iteration.

    davidson.py MATRIX ITERATIONS [--hints LIBRARY] [--wait] [--direct] [--stop FILE]

MATRIX has pieces of PIECE_BYTES: rows, columns and values of entries above the diagonal. MATRIX.diagonal has the diagonal.
--hints discloses the whole file, to be read in order, at the start of each iteration for the next: by libforetell.so, whose
path LIBRARY is, or by the ioctl of foretell's mounts, if it is "mount". --wait writes "ready" to standard error and waits for
a line on standard input before it reads. --direct goes round the page cache. --stop has it end when FILE exists.
"""

import argparse
import ctypes
import fcntl
import mmap
import os
import struct
import sys
from pathlib import Path

import numpy

ENTRIES = 16384
PIECE_BYTES = ENTRIES * 16
# FORETELL_IOCTL_HINT of foretell_ioctl.h, for a hint of the whole file.
IOCTL_HINT = (1 << 30) | (16 << 16) | (0xF7 << 8) | 1


def disclosing(given, file):
    """A function that discloses one reading of the file, and keeps what it needs alive."""
    if given.hints is None:
        return lambda: None
    if given.hints == "mount":
        return lambda: fcntl.ioctl(file, IOCTL_HINT, struct.pack("=IIII", 0, 0, 0, 0))
    library = ctypes.CDLL(given.hints)
    library.foretell_stream_open.restype = ctypes.c_void_p
    stream = ctypes.c_void_p(library.foretell_stream_open())
    path = os.fsencode(given.matrix)
    return lambda: library.foretell_stream_sequential(stream, path)


def multiplied(file, pieces, vector, diagonal, buffer):
    """The matrix, which is read, times a vector."""
    size = len(vector)
    product = diagonal * vector
    for piece in range(pieces):
        if os.preadv(file, [buffer], piece * PIECE_BYTES) != PIECE_BYTES:
            sys.exit(f"the matrix ends in piece {piece}")
        rows = numpy.frombuffer(buffer, "<i4", ENTRIES)
        columns = numpy.frombuffer(buffer, "<i4", ENTRIES, ENTRIES * 4)
        values = numpy.frombuffer(buffer, "<f8", ENTRIES, ENTRIES * 8)
        product += numpy.bincount(rows, values * vector[columns], size)
        product += numpy.bincount(columns, values * vector[rows], size)
    return product


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("matrix")
    parser.add_argument("iterations", type=int)
    parser.add_argument("--hints")
    parser.add_argument("--wait", action="store_true")
    parser.add_argument("--direct", action="store_true")
    parser.add_argument("--stop")
    given = parser.parse_args()
    diagonal = numpy.fromfile(f"{given.matrix}.diagonal", "<f8")
    size = len(diagonal)
    numpy.linalg.eigh(numpy.eye(2))
    basis = numpy.zeros((given.iterations, size))
    products = numpy.zeros((given.iterations, size))
    basis[:] = 1e-9  # Its memory is taken now, not while the cache is bounded.
    products[:] = 1e-9
    buffer = mmap.mmap(-1, PIECE_BYTES)
    vector = numpy.zeros(size)
    vector[numpy.argmin(diagonal)] = 1.0
    if given.wait:
        print("ready", file=sys.stderr, flush=True)
        sys.stdin.readline()
    file = os.open(given.matrix, os.O_RDONLY | (os.O_DIRECT if given.direct else 0))
    pieces = os.fstat(file).st_size // PIECE_BYTES
    disclose = disclosing(given, file)
    disclose()
    value = 0.0
    for at in range(given.iterations):
        if given.stop and Path(given.stop).exists():
            break
        if at + 1 < given.iterations:
            disclose()
        basis[at] = vector
        products[at] = multiplied(file, pieces, vector, diagonal, buffer)
        values, vectors = numpy.linalg.eigh(basis[: at + 1] @ products[: at + 1].T)
        value, weights = values[0], vectors[:, 0]
        residual = weights @ products[: at + 1] - value * (weights @ basis[: at + 1])
        gap = diagonal - value
        gap[abs(gap) < 1e-6] = 1e-6
        vector = residual / gap
        for _ in range(2):  # Once more, for rounding.
            vector -= (basis[: at + 1] @ vector) @ basis[: at + 1]
        vector /= numpy.linalg.norm(vector)
    print(f"{value:.9f}")


main()
