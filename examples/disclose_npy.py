"""Read the rows of an array in a random order, as training does: foretell run python disclose_npy.py FILE."""

import sys

import numpy

import foretell
from foretell import disclose

if len(sys.argv) != 2:
    print("usage: foretell run python disclose_npy.py FILE", file=sys.stderr)
    sys.exit(2)
path = sys.argv[1]
rows = numpy.load(path, mmap_mode="r")
order = numpy.random.default_rng(1).permutation(len(rows))
total = 0.0
with foretell.disclosed(disclose.npy(path, order)):
    for row in order:
        total += float(rows[row].sum())
print(total)
