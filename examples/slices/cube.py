"""A three-dimensional data set of an HDF5 file: its planes, and the hints about planes to come.

h5py has one lock for all of its calls, and holds it while a read waits for storage: threads that read at once gain nothing. So
one thread at a time reads here, and what makes reads parallel is the disclosure. The hints for a plane are given before it is
read, by the same thread: making them needs h5py's lock too, and would wait behind a read of another thread.
"""

import math
import os
import threading
from collections import OrderedDict
from pathlib import Path
from typing import Any

import h5py
import numpy as np

try:
    import foretell
    from foretell import disclose
except ImportError:  # Then planes are read without hints.
    foretell = None

AXES = "XYZ"
# Chunks that the library keeps decoded: some planes of an 8-KiB-chunked cube of 512 values a side.
CACHE_BYTES = 64 << 20
# Slots of its table: a prime, about ten for each chunk of 8 KiB.
CACHE_SLOTS = 80021
# Hints reach so far beyond the plane that is read, and over one layer of chunks at least. Disks sweep over all that waits for
# them: with more of it, the next plane waits for some after it.
AHEAD_BYTES = 16 << 20
# Pages that have hints of their own. The one that asked longest ago gives up its hints.
VIEWERS_MAX = 8


class Refused(Exception):
    """What was asked for cannot be had; the message is one line."""


class Cube:
    """An open data set, the largest of three dimensions unless it is named."""

    def __init__(self, path: Path, name: str | None = None) -> None:
        self.path = path
        try:
            self.file = h5py.File(path, "r", rdcc_nbytes=CACHE_BYTES, rdcc_nslots=CACHE_SLOTS)
        except OSError as error:
            if error.errno:
                raise Refused(f"{path}: {os.strerror(error.errno)}") from None
            what = "is cut short" if "truncated" in str(error) else "is not an HDF5 file"
            raise Refused(f"{path} {what}") from None
        self.data = self._named(name) if name else self._largest()
        # Asking h5py for it later would wait for a read.
        self.shape: tuple[int, ...] = self.data.shape
        self.chunks: tuple[int, ...] | None = self.data.chunks
        self.item_bytes = self.data.dtype.itemsize
        self.lock = threading.Lock()
        self._hints: OrderedDict[str, Hints] = OrderedDict()
        self._kept: OrderedDict[tuple[int, int], int] = OrderedDict()

    def _named(self, name: str) -> Any:
        found = self.file.get(name)
        if not isinstance(found, h5py.Dataset):
            raise Refused(f"{self.path} has no data set {name}")
        if not is_cube(found):
            raise Refused(f"{name} of {self.path} is not a data set of numbers in three dimensions")
        return found

    def _largest(self) -> Any:
        found: list[Any] = []
        self.file.visititems(lambda _, one: found.append(one) if is_cube(one) else None)
        if not found:
            raise Refused(f"{self.path} has no data set of numbers in three dimensions")
        return max(found, key=lambda one: one.size)

    @property
    def listeners(self) -> list[str]:
        """Who would be told of reads to come: "run", "mount", or nobody."""
        if foretell is None:
            return []
        if foretell.disclosed().is_on_mount(str(self.path)):
            return ["mount"]
        return ["run"] if os.environ.get("FORETELL_SOCKET") else []

    def described(self) -> dict[str, Any]:
        """What a page shows of it. A range of values is known only if the data set has it as its attribute `range`."""
        with self.lock:
            limits = self.data.attrs.get("range")
            return {
                "file": self.path.name,
                "name": self.data.name.lstrip("/"),
                "shape": self.shape,
                "type": str(self.data.dtype),
                "chunks": self.chunks,
                "range": None if limits is None else [float(one) for one in limits],
                "listeners": self.listeners,
                "hasForetell": foretell is not None,
            }

    def plane(self, axis: int, at: int) -> np.ndarray:
        """Read a plane as float32; the caller has the lock."""
        found = np.asarray(self.data[at_axis(axis, at)], "<f4", "C")
        layer = (axis, at // self.thickness(axis))
        self._kept[layer] = self.layer_bytes(axis)
        self._kept.move_to_end(layer)
        while sum(self._kept.values()) > CACHE_BYTES:
            self._kept.popitem(last=False)
        return found

    def thickness(self, axis: int) -> int:
        """Return the number of planes in a layer of chunks."""
        return int(self.chunks[axis]) if self.chunks else 1

    def layer_bytes(self, axis: int) -> int:
        """Return the size of a layer of chunks."""
        values = math.prod(self.shape) // self.shape[axis] * self.thickness(axis)
        return values * self.item_bytes

    def is_kept(self, axis: int, layer: int) -> bool:
        """Whether the library has a layer in its cache, as far as is known. A hint for it would wait for a read in vain."""
        return self.chunks is not None and (axis, layer) in self._kept

    def hints_of(self, viewer: str) -> "Hints | None":
        """Return the hints of a page; the caller has the lock."""
        if foretell is None:
            return None
        if viewer not in self._hints:
            if len(self._hints) >= VIEWERS_MAX:
                self._hints.popitem(last=False)[1].close()
            self._hints[viewer] = Hints(self)
        self._hints.move_to_end(viewer)
        return self._hints[viewer]

    def leave(self, viewer: str) -> None:
        """Give up what was disclosed for a page; the caller has the lock."""
        if viewer in self._hints:
            self._hints.pop(viewer).close()

    def close(self, timeout_s: float) -> None:
        """Give up all hints, and close the file, unless a read takes longer than that."""
        if self.lock.acquire(timeout=timeout_s):
            for viewer in list(self._hints):
                self.leave(viewer)
            self.file.close()


class Hints:
    """What was disclosed for one page: layers of chunks along one axis, in the direction of its drag."""

    def __init__(self, cube: Cube) -> None:
        self._cube, self._disclosed = cube, foretell.disclosed()
        self._course = (0, 0)
        self._layers: set[int] = set()
        self.ahead: list[int] = []
        """Positions of planes beyond the current one that are disclosed, each in a layer of its own."""

    def steer(self, axis: int, at: int, toward: int) -> None:
        """Disclose the plane at a position and those after it; `toward` is 1 or -1, or 0 if there is no direction."""
        cube, thick = self._cube, self._cube.thickness(axis)
        layer = at // thick
        if self._course != (axis, toward) or layer not in self._layers:
            self.cancel()  # What lies in the old direction will not be read.
            self._course = (axis, toward)
        coming = [at]
        if toward:
            count = max(1, AHEAD_BYTES // cube.layer_bytes(axis))
            last = (cube.shape[axis] - 1) // thick
            layers = range(
                layer + toward, max(-1, min(last + 1, layer + toward * (count + 1))), toward
            )
            # The plane of a layer that a drag meets first. It needs all chunks of the layer.
            coming += [one * thick if toward > 0 else one * thick + thick - 1 for one in layers]
        new = [one for one in coming if one // thick not in self._layers]
        new = [one for one in new if not cube.is_kept(axis, one // thick)]
        if new:
            selections = [at_axis(axis, one) for one in new]
            self._disclosed.add(disclose.hdf5(cube.data, *selections))
        self._layers = {one // thick for one in coming}
        self.ahead = coming[1:]

    def cancel(self) -> None:
        """Give up what was disclosed and not read."""
        self._disclosed.cancel()
        self._course, self._layers, self.ahead = (0, 0), set(), []

    def close(self) -> None:
        """Give it up for good."""
        self._disclosed.close()

    @property
    def told(self) -> list[str]:
        """Who was told so far."""
        return list(self._disclosed.told)

    @property
    def problem(self) -> str | None:
        """Why planes were not disclosed."""
        return self._disclosed.problem


def is_cube(found: Any) -> bool:
    """Whether it is a data set of numbers in three dimensions with something in it."""
    return (
        isinstance(found, h5py.Dataset)
        and len(found.shape or ()) == 3
        and found.size > 0
        and found.dtype.kind in "fiu"
    )


def at_axis(axis: int, at: int) -> tuple[Any, ...]:
    """Return the selection of a plane, as between the brackets of a data set."""
    whole: list[Any] = [slice(None)] * 3
    whole[axis] = at
    return tuple(whole)
