"""Parts of a zarr array.

zarr reads each chunk that a selection touches as a whole, in the order of its indexers, ten at once by default. With the
sharding codec, chunks lie in shards: a shard all of whose chunks are touched is read as a whole; of others, its index, then
the chunks that are touched, one by one. Here the indices of up to `SHARDS` shards are read at once.

zarr's own indexers say which chunks there are, so a selection has the same meaning, and the same errors.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

from foretell._ranges import Coming
from foretell._store import File, Stream
from foretell.disclose._plan import Plan, Range, Source, of_selection

if TYPE_CHECKING:
    from foretell._store import Store

# Shards whose indices are read at once.
SHARDS = 64
# Threads that do so for paths of this machine.
THREADS = 16


def zarr(array: Any, *selections: Any, ordered: bool = True) -> Plan:
    """Plan to read parts of a zarr array, one after another.

    >>> disclose.zarr(array, numpy.s_[:, 40, :])  # as array[:, 40, :] reads it
    >>> disclose.zarr(array.oindex, ([3, 1, 7], slice(None)))

    Needs zarr 3. Arrays of the formats 2 and 3, in a folder, in foretell's file system (``foretell://s3://…``, or a chain of
    fsspec), or in a zip file of this machine.

    Args:
        array: A `zarr.Array`, for selections as between the brackets of ``array[...]``; or its ``oindex``, ``vindex`` or
            ``blocks``, for selections as they take them.
        selections: In the order of reading. By default, all of the array.
        ordered: Whether the selections will be read in this order. Hints help most if they will: ``examples/disclose_dask.py``
            shows how to find out the order of dask's threads.

    The plan's iteration raises what zarr raises for a selection that does not fit, `OSError` if an index of a shard cannot be
    read, and `ValueError` for an array in another kind of store. Chunks that are not there are no error: zarr fills them.

    Raises:
        TypeError: `array` is something else, such as an array of numpy.

    """
    try:
        import zarr as library
        from zarr.core import indexing
    except ImportError:
        raise ImportError("disclose.zarr needs zarr 3: pip install 'foretell[zarr]'") from None

    indexers: Mapping[Any, Callable[..., Any]] = {
        indexing.OIndex: indexing.OrthogonalIndexer,
        indexing.VIndex: _vectorized,
        indexing.BlockIndex: indexing.BlockIndexer,
    }
    how: Callable[..., Any] = indexers.get(type(array), _of_brackets)
    opened = array if isinstance(array, library.Array) else getattr(array, "array", None)
    if not isinstance(opened, library.Array):
        raise TypeError(f"{type(array).__name__}: a zarr.Array of zarr 3 is needed")
    files: dict[str, File] = {}
    try:
        place = _Place(opened.store_path, files)
    except (OSError, ValueError) as error:  # In the memory of a test, say.
        return Plan(lambda: (), ordered=ordered, mistake=error)

    def ranges() -> Iterator[Range]:
        for selection in selections or (...,):
            try:
                indexer = how(_pure(selection), opened.shape, opened.metadata.chunk_grid)
            except (IndexError, TypeError, ValueError) as error:
                raise of_selection(error, opened.store_path) from None
            yield from _of_chunks(opened, place, indexer)

    is_buffered = place.store is None and not place.is_archive
    return Plan(
        ranges,
        place.store,
        ordered=ordered,
        files=files,
        is_sparse=True,
        is_buffered=is_buffered,
    )


def _pure(selection: Any) -> Any:
    """Return a selection without names of fields."""
    from zarr.core.indexing import pop_fields

    return pop_fields(selection)[1]


def _of_brackets(selection: Any, shape: tuple[int, ...], grid: Any) -> Iterable[Any]:
    from zarr.core import indexing

    if indexing.is_pure_fancy_indexing(selection, len(shape)):
        return _vectorized(selection, shape, grid)
    if indexing.is_pure_orthogonal_indexing(selection, len(shape)):
        return indexing.OrthogonalIndexer(selection, shape, grid)
    return indexing.BasicIndexer(selection, shape, grid)


def _vectorized(selection: Any, shape: tuple[int, ...], grid: Any) -> Iterable[Any]:
    from zarr.core import indexing

    parts = indexing.replace_lists(indexing.ensure_tuple(selection))
    if indexing.is_mask_selection(parts, shape):
        return indexing.MaskIndexer(selection, shape, grid)
    return indexing.CoordinateIndexer(selection, shape, grid)


class _Place:
    """Where the chunks of an array are: names in a `foretell.Store`, paths of this machine, or members of a zip file."""

    def __init__(self, at: Any, files: dict[str, File]) -> None:
        from zarr.storage import FsspecStore, LocalStore, ZipStore

        self.store: Store | None = None
        self.files = files
        self._archive: Any = None
        inner, prefix = at.store, at.path
        while hasattr(inner, "_store"):  # zarr.storage.WrapperStore, and stores that note or cache.
            inner = inner._store
        if isinstance(inner, LocalStore):
            self._root = os.path.abspath(inner.root)
        elif isinstance(inner, ZipStore):
            self._root, self._archive = os.path.abspath(inner.path), inner
        elif isinstance(inner, FsspecStore):
            self._root = self._of_file_system(inner)
        else:
            raise ValueError(
                f"{inner}: only folders, zip files and foretell's file system are planned"
            )
        if prefix and self._archive is None:
            self._root = f"{self._root}/{prefix}" if self._root else prefix
        self._prefix = f"{prefix}/" if prefix else ""

    def _of_file_system(self, inner: Any) -> str:
        from foretell.fsspec import ForetellFileSystem

        system = inner.fs
        system = getattr(system, "sync_fs", system)
        path = str(inner.path).rstrip("/")
        if not isinstance(system, ForetellFileSystem):
            if "file" in getattr(system, "protocol", ()):
                return os.path.abspath(path)
            raise ValueError(f"{inner}: its file system is not foretell's, which takes hints")
        self.store, root = system.store(system._strip_protocol(path))
        return str(root)

    def name(self, key: str) -> str:
        """Return the path of a chunk's file in plans."""
        return f"{self._root}/{key}" if self._root else key

    def member(self, key: str) -> Range | None:
        """Return where a member of the zip file is, with its header before it; `None` if it is not there."""
        if not self._archive._is_open:
            self._archive._sync_open()
        try:
            known = self._archive._zf.getinfo(self._prefix + key)
        except KeyError:
            return None
        header = 30 + len(known.orig_filename.encode()) + len(known.extra)
        return self._root, known.header_offset, header + known.compress_size

    @property
    def is_archive(self) -> bool:
        """Whether it is a zip file."""
        return self._archive is not None

    def tails(self, keys: Sequence[str], size: int, is_at_end: bool) -> list[bytes | None]:
        """Read `size` bytes at the end or the beginning of each file, all at once; `None` for files that are not there."""
        names = [self.name(key) for key in keys]
        if self.store is None:
            with ThreadPoolExecutor(THREADS) as pool:
                return list(pool.map(lambda name: _tail_of_path(name, size, is_at_end), names))
        new = {name: Coming(self.store, name) for name in names if name not in self.files}
        for coming in new.values():
            coming.begin()
        for name, coming in new.items():
            try:
                self.files[name] = coming.file()
            except FileNotFoundError:
                continue
        found: list[bytes | None] = []
        with Stream(self.store) as stream:
            places = {}
            for name in names:
                file = self.files.get(name)
                if file is not None:
                    places[name] = (max(file.size - size, 0) if is_at_end else 0, size)
                    file.hint([places[name]], stream=stream)
            for name in names:
                file = self.files.get(name)
                found.append(None if file is None else file.read_at(*places[name]))
        return found


def _tail_of_path(name: str, size: int, is_at_end: bool) -> bytes | None:
    try:
        with Source(name) as source:
            return source.read(max(source.size - size, 0) if is_at_end else 0, size)
    except FileNotFoundError:
        return None


def _of_chunks(array: Any, place: _Place, indexer: Iterable[Any]) -> Iterator[Range]:
    """Yield what is read of the chunks of an indexer."""
    pipeline = array._async_array.codec_pipeline
    is_sharded = pipeline.supports_partial_decode and not place.is_archive
    key_of = array.metadata.encode_chunk_key
    if is_sharded and hasattr(pipeline.array_bytes_codec, "index_codecs"):
        shards = _Shards(array.metadata.chunk_grid.chunk_shape, pipeline.array_bytes_codec)
        steps = iter(indexer)
        while some := list(itertools.islice(steps, SHARDS)):
            yield from shards.ranges(place, [(key_of(one[0]), one[1]) for one in some])
        return
    for coords, *_ in indexer:
        if place.is_archive:
            member = place.member(key_of(coords))
            if member is not None:
                yield member
        else:
            yield place.name(key_of(coords)), 0, None


class _Shards:
    """The sharding codec of an array."""

    def __init__(self, shape: tuple[int, ...], codec: Any) -> None:
        from zarr.core.chunk_grids import RegularChunkGrid

        self._shape, self._codec = shape, codec
        self._grid = RegularChunkGrid(chunk_shape=codec.chunk_shape)
        self._counts = tuple(
            size // part for size, part in zip(shape, codec.chunk_shape, strict=True)
        )
        self._total = 1
        for count in self._counts:
            self._total *= count

    def ranges(self, place: _Place, shards: Sequence[tuple[str, Any]]) -> Iterator[Range]:
        """Yield what is read of shards, each given by its key and the selection in it."""
        from zarr.core.indexing import get_indexer

        wanted = []
        for key, selection in shards:
            indexer = get_indexer(selection, shape=self._shape, chunk_grid=self._grid)
            # A set, as in zarr, whose order is that of the reads.
            wanted.append((key, {one[0] for one in indexer}))
        partial = [key for key, chunks in wanted if len(chunks) != self._total]
        codec = self._codec
        size = codec._shard_index_size(self._counts)
        is_at_end = codec.index_location.value == "end"
        tails = dict(zip(partial, place.tails(partial, size, is_at_end), strict=True))
        for key, chunks in wanted:
            name = place.name(key)
            if len(chunks) == self._total:
                yield name, 0, None
                continue
            tail = tails[key]
            if tail is None or len(tail) < size:
                continue
            index = self._index(tail)
            for coords in chunks:
                offset, length = index[coords].tolist()
                # Chunks that are not there have the largest of all offsets.
                if offset + length < 1 << 63:
                    yield name, offset, length

    def _index(self, data: bytes) -> Any:
        """Decode the index of a shard: offset and length of each chunk."""
        import numpy as np
        from zarr.codecs import BytesCodec, Crc32cCodec
        from zarr.core.buffer import default_buffer_prototype
        from zarr.core.sync import sync

        first, *rest = self._codec.index_codecs
        is_plain = (
            isinstance(first, BytesCodec) and str(getattr(first.endian, "value", "")) == "little"
        )
        if is_plain and all(isinstance(one, Crc32cCodec) for one in rest):
            return np.frombuffer(data, "<u8", self._total * 2).reshape(*self._counts, 2)
        buffer = default_buffer_prototype().buffer.from_bytes(data)
        return sync(self._codec._decode_shard_index(buffer, self._counts)).offsets_and_lengths
