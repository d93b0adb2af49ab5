"""Count the bytes of members of a tar file, in a random order: foretell run python disclose_tar.py FILE."""

import random
import sys
import tarfile

import foretell
from foretell import disclose

if len(sys.argv) != 2:
    print("usage: foretell run python disclose_tar.py FILE", file=sys.stderr)
    sys.exit(2)
path = sys.argv[1]
index = disclose.tar_index(path)  # Keep it: it takes a read for each member.
names = sorted(index)
random.Random(1).shuffle(names)
zeros = 0
with tarfile.open(path) as archive:
    members = {member.name: member for member in archive}
    with foretell.disclosed(disclose.tar(path, names, index=index)):
        for name in names:
            file = archive.extractfile(members[name])
            zeros += file.read().count(0) if file else 0
print(zeros)
