"""Average planes of an HDF5 dataset along its first axis: foretell run python disclose_hdf5.py FILE DATASET."""

import sys

import h5py
import numpy

import foretell
from foretell import disclose

if len(sys.argv) != 3:
    print("usage: foretell run python disclose_hdf5.py FILE DATASET", file=sys.stderr)
    sys.exit(2)
path, name = sys.argv[1:]
total = 0.0
with h5py.File(path) as file:
    cube = file[name]
    planes = [numpy.s_[at] for at in range(0, len(cube), 10)]  # In the order of reading.
    with foretell.disclosed(disclose.hdf5(cube, *planes)):
        for plane in planes:
            total += float(cube[plane].mean())
print(total / len(planes))
