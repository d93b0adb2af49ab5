"""Average a zarr array over some of its times, by xarray: foretell run python disclose_zarr.py DATASET VARIABLE BEGIN END.

The dataset may be in an object store: disclose_zarr.py foretell://s3://bucket/data.zarr t2m 2026-01-20 2026-02-02
"""

import sys

import xarray
import zarr

import foretell
from foretell import disclose

if len(sys.argv) != 5:
    print("usage: foretell run python disclose_zarr.py DATASET VARIABLE BEGIN END", file=sys.stderr)
    sys.exit(2)
path, name, begin, end = sys.argv[1:]
data = xarray.open_zarr(path, chunks=None, consolidated=False)
array = zarr.open_array(path, path=name, mode="r")  # What xarray reads.
places = xarray.DataArray(range(data.sizes["time"]), coords={"time": data.time})  # By label.
rows = places.sel(time=slice(begin, end)).values
with foretell.disclosed(disclose.zarr(array, slice(rows[0], rows[-1] + 1))):
    print(float(data[name].sel(time=slice(begin, end)).mean()))
