"""Average blocks of an HDF5 dataset, by dask: foretell run python disclose_dask.py FILE DATASET ROWS."""

import sys

import dask
import dask.array
import dask.order
import h5py
import numpy

import foretell
from foretell import disclose

if len(sys.argv) != 4:
    print("usage: foretell run python disclose_dask.py FILE DATASET ROWS", file=sys.stderr)
    sys.exit(2)
path, name, rows = sys.argv[1], sys.argv[2], int(sys.argv[3])
with h5py.File(path) as file:
    cube = file[name]
    blocks = dask.array.from_array(cube, chunks=(rows, *cube.shape[1:]))
    means = blocks.map_blocks(lambda block: block.mean(keepdims=True))
    # dask's threads begin with the tasks of the lowest rank, often those of the last blocks.
    (graph,) = dask.optimize(means)
    ranks = dask.order.order(dict(graph.__dask_graph__()))
    keys = sorted(dask.core.flatten(graph.__dask_keys__()), key=ranks.__getitem__)
    parts = [numpy.s_[number * rows : (number + 1) * rows] for _, number, *_ in keys]
    with foretell.disclosed(disclose.hdf5(cube, *parts)):
        print(means.compute(scheduler="threads").ravel().tolist())
