"""Average a branch of a tree: foretell run python disclose_root.py FILE TREE BRANCH."""

import sys

import awkward
import uproot

import foretell
from foretell import disclose

if len(sys.argv) != 4:
    print("usage: foretell run python disclose_root.py FILE TREE BRANCH", file=sys.stderr)
    sys.exit(2)
path, name, branch = sys.argv[1:]
step = 100_000  # Entries that are in memory at once.
total, count = 0.0, 0
with uproot.open(path) as file:
    tree = file[name]
    with foretell.disclosed(disclose.root(tree, [branch], slice(None, None, step))):
        for arrays in tree.iterate([branch], step_size=step):
            values = awkward.flatten(arrays[branch], axis=None)
            total += float(awkward.sum(values))
            count += len(values)
print(total / count)
