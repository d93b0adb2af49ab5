"""Layered disclosure: what a selection of a data library will read, as ranges of files.

A program knows which rows, chunks, columns or tensors it will read next. The functions here turn that into `Plan`s, which
`foretell.disclosed` gives to whoever can fetch the data before it is read.

>>> from foretell import disclose
>>> with foretell.disclosed(disclose.safetensors("model.safetensors", ["wte", "h.0.attn"])): ...

The idea is that of "layered disclosure" in Informed Prefetching (Patterson and Gibson, 1994, section 4).
"""

from foretell.disclose._dataset import dataset
from foretell.disclose._disclosed import Disclosed, disclosed
from foretell.disclose._files import files
from foretell.disclose._hdf5 import hdf5
from foretell.disclose._npy import npy
from foretell.disclose._parquet import parquet
from foretell.disclose._plan import Plan
from foretell.disclose._root import root
from foretell.disclose._safetensors import safetensors
from foretell.disclose._tar import tar, tar_index
from foretell.disclose._zarr import zarr

__all__ = [
    "Disclosed",
    "Plan",
    "dataset",
    "disclosed",
    "files",
    "hdf5",
    "npy",
    "parquet",
    "root",
    "safetensors",
    "tar",
    "tar_index",
    "zarr",
]
