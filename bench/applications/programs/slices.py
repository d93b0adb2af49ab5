"""Reads a plane of a cube: slices.py FILE AXIS SHARE REPORT [--disclose]. REPORT gets the seconds and the values' SHA-256.

The clock begins when the file is open, as that of a program that shows planes one after another.
"""

import hashlib
import json
import sys
import time

import h5py

import foretell
from foretell import disclose

path, axis, share, report = sys.argv[1:5]
with h5py.File(path) as file:
    cube = file["density"]
    plane = [slice(None)] * 3
    plane[int(axis)] = int(float(share) * cube.shape[int(axis)])
    plane = tuple(plane)
    began = time.perf_counter()
    with foretell.disclosed(*([disclose.hdf5(cube, plane)] if "--disclose" in sys.argv else [])):
        values = cube[plane]
    seconds = time.perf_counter() - began
with open(report, "w") as file:
    json.dump({"seconds": seconds, "sha256": hashlib.sha256(values.tobytes()).hexdigest()}, file)
