"""Read the files of a folder in a random order: foretell run python disclose_files.py FOLDER."""

import random
import sys
from pathlib import Path

import foretell
from foretell import disclose

if len(sys.argv) != 2:
    print("usage: foretell run python disclose_files.py FOLDER", file=sys.stderr)
    sys.exit(2)
paths = sorted(path for path in Path(sys.argv[1]).rglob("*") if path.is_file())
random.Random(1).shuffle(paths)
size = 0
with foretell.disclosed(disclose.files(paths)):
    for path in paths:
        size += len(path.read_bytes())
print(size)
