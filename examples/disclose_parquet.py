"""Sum a column of a Parquet file: foretell run python disclose_parquet.py FILE COLUMN."""

import sys

import pyarrow.compute
import pyarrow.parquet

import foretell
from foretell import disclose

if len(sys.argv) != 3:
    print("usage: foretell run python disclose_parquet.py FILE COLUMN", file=sys.stderr)
    sys.exit(2)
path, column = sys.argv[1:]
total = 0.0
with foretell.disclosed(disclose.parquet(path, [column])):
    for batch in pyarrow.parquet.ParquetFile(path).iter_batches(columns=[column]):
        total += pyarrow.compute.sum(batch[column]).as_py() or 0
print(total)
