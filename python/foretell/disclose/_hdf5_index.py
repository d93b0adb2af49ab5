"""Where the chunks of an HDF5 dataset lie, read from the index in the file with few, batched reads.

The library reads an index one node at a time, when it needs a chunk, so a slow storage is waited for once a node. Here:

* A: v1 B-tree, the default of h5py and netCDF4. Its nodes are read breadth-first, a level in one batch, and only those above
  chunks that are wanted. Leaves are read in batches of `LEAVES`.
* B: fixed array, of datasets without unlimited axes in files of the latest format. Its pages are read in one batch.
* C: implicit index and single chunk: no reads.

`Unexpected` is raised for the other kinds (extensible array, v2 B-tree), and for whatever does not look as the format says.
The library has to be asked then.

From the HDF5 File Format Specification, version 3.0: sections III.A.1 (v1 B-tree), IV.A (object headers), IV.A.2.i (data
layout) and VII.D (fixed array).
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretell.disclose._plan import Source

    Found: TypeAlias = tuple[NDArray[Any], NDArray[Any], NDArray[Any]]

# The first read of an object header. The library's own has 512 bytes; longer headers have many attributes.
HEADER_BYTES = 4096
# Most continuations of an object header that are followed.
CONTINUATIONS = 64
# Leaves of a B-tree that are read at once. A leaf has 32 to 64 chunks.
LEAVES = 256
# Entries of a B-tree's node, if the file says nothing else: twice the default "K" of chunk indices.
NODE_ENTRIES = 64

LAYOUT, CONTINUATION = 0x08, 0x10
CHUNKED = 2
SINGLE, IMPLICIT, FIXED_ARRAY = 1, 2, 3


class Unexpected(Exception):
    """The index is of another kind, or not as the format says."""


@dataclass(frozen=True)
class Chunking:
    """What the library knows of a chunked dataset. Addresses in the file are relative to `base`."""

    header: int
    base: int
    offset_bytes: int
    length_bytes: int
    chunk: tuple[int, ...]
    chunk_bytes: int
    grid: tuple[int, ...]
    """Chunks along each axis. A chunk's number counts them in row-major order."""
    grid_max: tuple[int, ...] | None
    """The same for the largest shape; `None` if an axis is unlimited."""


def find(source: Source, known: Chunking, wanted: NDArray[Any]) -> Iterator[Found]:
    """Yield number, offset and length in bytes of each chunk that there is, in batches, from its numbers in rising order.

    Raises:
        Unexpected: As above. Some batches may have been yielded.

    """
    try:
        message = _layout(source, known)
        if message[0] == 3 and message[1] == CHUNKED:
            rank = message[2] - 1
            root = _number(message, 3, known.offset_bytes)
            if rank != len(known.chunk):
                raise Unexpected(f"{rank} axes")
            return _Tree(source, known, wanted).leaves(root)
        if message[0] in (4, 5) and message[1] == CHUNKED:
            return iter([_of_version_4(source, known, wanted, message)])
    except (struct.error, IndexError, ValueError) as error:
        raise Unexpected(str(error)) from None
    raise Unexpected(f"a data layout of version {message[0]}")


def _number(data: bytes, at: int, size: int) -> int:
    if at < 0 or at + size > len(data):
        raise Unexpected("a message is too short")
    return int.from_bytes(data[at : at + size], "little")


def _is_undefined(address: int, size: int) -> bool:
    return address == (1 << 8 * size) - 1


def _layout(source: Source, known: Chunking) -> bytes:
    """Return the data layout message of the object header."""
    head = source.read(known.header, HEADER_BYTES)
    if head[:4] == b"OHDR":
        flags = head[5]
        at = 6 + (16 if flags & 0x20 else 0) + (4 if flags & 0x10 else 0)
        size = _number(head, at, 1 << (flags & 3))
        at += 1 << (flags & 3)
        shape = struct.Struct("<BHB" + ("2x" if flags & 4 else ""))
    elif head[0] == 1:
        at, size = 16, _number(head, 8, 4)
        shape = struct.Struct("<HHB3x")
    else:
        raise Unexpected("no object header")
    if len(head) < at + size:
        head += source.read(known.header + len(head), at + size - len(head))
    block = head[at : at + size]
    blocks = [block]
    for _ in range(CONTINUATIONS):
        if not blocks:
            break
        block, at = blocks.pop(0), 0
        while at + shape.size <= len(block):
            kind, length, _flags = shape.unpack_from(block, at)
            body = block[at + shape.size : at + shape.size + length]
            at += shape.size + length
            if kind == LAYOUT:
                return body
            if kind == CONTINUATION:
                place = known.base + _number(body, 0, known.offset_bytes)
                more = source.read(place, _number(body, known.offset_bytes, known.length_bytes))
                blocks.append(more[4:-4] if more[:4] == b"OCHK" else more)
    raise Unexpected("an object header without a data layout")


def _strides(grid: Sequence[int]) -> list[int]:
    strides = [1] * len(grid)
    for axis in range(len(grid) - 2, -1, -1):
        strides[axis] = strides[axis + 1] * grid[axis + 1]
    return strides


class _Tree:
    """A: a v1 B-tree of chunks."""

    def __init__(self, source: Source, known: Chunking, wanted: NDArray[Any]) -> None:
        import numpy as np

        self._source, self._known, self._wanted = source, known, wanted
        self._head_bytes = 8 + 2 * known.offset_bytes
        axes = len(known.chunk)
        self._entry = np.dtype(
            [
                ("bytes", "<u4"),
                ("mask", "<u4"),
                ("at", "<i8", (axes + 1,)),
                ("child", f"<u{known.offset_bytes}"),
            ]
        )
        self._node_bytes = self._head_bytes + NODE_ENTRIES * self._entry.itemsize + 16 + 8 * axes

    def _read(self, addresses: Sequence[int]) -> list[tuple[int, NDArray[Any], NDArray[Any]]]:
        """Read nodes: level, entries, and the number of the first chunk below each entry."""
        import numpy as np

        found = []
        places = [(self._known.base + address, self._node_bytes) for address in addresses]
        if any(place >= self._source.size for place, _ in places):
            raise Unexpected("a node behind the end of the file")
        for (place, size), node in zip(places, self._source.read_batch(places), strict=True):
            if node[:5] != b"TREE\x01":
                raise Unexpected("no node of a B-tree of chunks")
            level, used = node[5], _number(node, 6, 2)
            end = self._head_bytes + used * self._entry.itemsize
            if end > size:
                node += self._source.read(place + size, end - size)
            if end > len(node):
                raise Unexpected("a node that is too long")
            entries = np.frombuffer(node, self._entry, used, self._head_bytes)
            numbers = (entries["at"][:, :-1] // np.array(self._known.chunk)) @ np.array(
                _strides(self._known.grid)
            )
            if np.any(np.diff(numbers) <= 0):
                raise Unexpected("a node that is not in order")
            found.append((level, entries, numbers))
        return found

    def leaves(self, root: int) -> Iterator[Found]:
        if _is_undefined(root, self._known.offset_bytes) or not len(self._wanted):
            return
        # Nodes of a level, and which of the wanted chunks are below each.
        nodes = [(root, 0, len(self._wanted))]
        read = self._read([root])
        depth = read[0][0]
        for level in range(depth, 0, -1):
            below: list[tuple[int, int, int]] = []
            for (_, begin, end), (of_level, entries, numbers) in zip(nodes, read, strict=True):
                if of_level != level:
                    raise Unexpected("a node of another level")
                firsts = self._wanted[begin:end].searchsorted(numbers) + begin
                bounds = [begin, *firsts[1:].tolist(), end]
                for at, child in enumerate(entries["child"].tolist()):
                    if bounds[at] < bounds[at + 1]:
                        below.append((child, bounds[at], bounds[at + 1]))
            nodes = below
            if level > 1:
                read = self._read([node for node, _, _ in nodes])
        for at in range(0, len(nodes), LEAVES):
            some = nodes[at : at + LEAVES]
            if depth > 0:
                read = self._read([node for node, _, _ in some])
            yield from self._found(some, read)

    def _found(self, nodes: Sequence[tuple[int, int, int]], read: Any) -> Iterator[Found]:
        for (_, begin, end), (level, entries, numbers) in zip(nodes, read, strict=True):
            if level != 0:
                raise Unexpected("a leaf of another level")
            wanted = self._wanted[begin:end]
            at = numbers.searchsorted(wanted)
            at[at == len(numbers)] = 0
            is_there = numbers[at] == wanted if len(numbers) else at < 0
            chosen = entries[at[is_there]]
            yield wanted[is_there], chosen["child"].astype("i8") + self._known.base, chosen["bytes"]


def _of_version_4(source: Source, known: Chunking, wanted: NDArray[Any], message: bytes) -> Found:
    import numpy as np

    flags, axes, size = message[2], message[3], message[4]
    at = 5 + axes * size
    kind = message[at]
    at += 1
    lengths = np.full(len(wanted), known.chunk_bytes, "i8")
    if kind == SINGLE:
        if flags & 2:
            lengths[:] = _number(message, at, known.length_bytes)
            at += known.length_bytes + 4
        address = _number(message, at, known.offset_bytes)
        offsets = np.full(len(wanted), known.base + address, "i8")
    elif kind in (IMPLICIT, FIXED_ARRAY) and known.grid_max is not None:
        # Chunks are numbered in the largest shape there.
        places = np.unravel_index(wanted, known.grid)
        numbers = np.ravel_multi_index(places, known.grid_max)
        if kind == IMPLICIT:
            address = _number(message, at, known.offset_bytes)
            offsets = known.base + address + numbers * known.chunk_bytes
        else:
            address = _number(message, at + 1, known.offset_bytes)
            if not _is_undefined(address, known.offset_bytes):
                return _fixed_array(source, known, address, wanted, numbers)
            offsets = lengths
    else:
        raise Unexpected(f"a chunk index of kind {kind}")
    if _is_undefined(address, known.offset_bytes):
        return wanted[:0], offsets[:0], lengths[:0]
    return wanted, offsets, lengths


def _fixed_array(
    source: Source, known: Chunking, address: int, wanted: NDArray[Any], numbers: NDArray[Any]
) -> Found:
    """B: read the pages that have the chunks of these numbers."""
    import numpy as np

    width = known.offset_bytes
    head = source.read(known.base + address, 8 + known.length_bytes + width)
    if head[:4] != b"FAHD" or head[4] != 0 or head[5] > 1:
        raise Unexpected("no fixed array")
    is_filtered, entry_bytes, page_bits = head[5] == 1, head[6], head[7]
    count = _number(head, 8, known.length_bytes)
    block = _number(head, 8 + known.length_bytes, width)
    if numbers.size and int(numbers.max()) >= count:
        raise Unexpected("a fixed array that is too short")
    if _is_undefined(block, width):
        return wanted[:0], numbers[:0], numbers[:0]
    at, page = known.base + block + 6 + width, 1 << page_bits
    if count > page:
        pages = -(-count // page)
        bitmap = source.read(at, (pages + 7) // 8)
        is_made = np.unpackbits(np.frombuffer(bitmap, "u1"))[:pages].astype(bool)
        is_there = is_made[numbers // page]
        wanted, numbers = wanted[is_there], numbers[is_there]
        needed, within = np.unique(numbers // page, return_inverse=True)
        at += (pages + 7) // 8 + 4
        size = page * entry_bytes
        bodies = source.read_batch([(at + int(one) * (size + 4), size) for one in needed])
        if any(len(body) != size for body in bodies[:-1]):
            raise Unexpected("a fixed array that is cut off")
        entries = np.frombuffer(b"".join(bodies).ljust(size * len(needed), b"\xff"), "u1")
        rows = within * page + numbers % page
    else:
        body = source.read(at, count * entry_bytes)
        if len(body) != count * entry_bytes:
            raise Unexpected("a fixed array that is cut off")
        entries, rows = np.frombuffer(body, "u1"), numbers
    table = entries.reshape(-1, entry_bytes)[rows]
    offsets = _little(table[:, :width])
    is_there = offsets != -1 if width == 8 else offsets != (1 << 8 * width) - 1
    lengths = np.full(len(table), known.chunk_bytes, "i8")
    if is_filtered:
        lengths = _little(table[:, width:-4])
    return wanted[is_there], offsets[is_there] + known.base, lengths[is_there]


def _little(columns: NDArray[Any]) -> NDArray[Any]:
    """Return the integers whose bytes, lowest first, are the rows."""
    import numpy as np

    wide = np.zeros((len(columns), 8), "u1")
    wide[:, : columns.shape[1]] = columns
    return wide.view("<i8")[:, 0]
