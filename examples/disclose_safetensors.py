"""Add up the squares of the tensors of a layer: foretell run python disclose_safetensors.py FILE PREFIX."""

import sys

from safetensors import safe_open

import foretell
from foretell import disclose

if len(sys.argv) != 3:
    print("usage: foretell run python disclose_safetensors.py FILE PREFIX", file=sys.stderr)
    sys.exit(2)
path, prefix = sys.argv[1:]
total = 0.0
with safe_open(path, "np") as file:
    names = [name for name in file.offset_keys() if name.startswith(prefix)]
    with foretell.disclosed(disclose.safetensors(path, names)):
        for name in names:
            total += float((file.get_tensor(name).astype("f8") ** 2).sum())
print(total)
