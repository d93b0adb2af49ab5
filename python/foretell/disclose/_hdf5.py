"""Parts of a dataset in an HDF5 file.

What the library reads for a selection, by layout:

* Compact: nothing; the data is in the object header, which has been read when the dataset is open.
* Contiguous: the runs of adjacent elements, in row-major order. Drivers with data sieving (all but Python file objects) read
  short runs through the sieve buffer, 64 KiB by default: a run that does not lie in it fills it from there on (H5Dcontig.c).
* Chunked: each chunk as a whole, in row-major order of chunks, whatever the order of the selection. Chunks without filters
  that do not fit into the dataset's chunk cache are read in runs (H5Dchunk.c). Chunks that were never written are not read.
* Virtual datasets and external files are not planned.
"""

from __future__ import annotations

import itertools
import math
import os
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias

from foretell._store import File
from foretell.disclose._hdf5_index import Chunking, Unexpected, find
from foretell.disclose._plan import Place, Plan, Range, Source, missing, mistake_in, of_selection
from foretell.disclose._runs import runs

if TYPE_CHECKING:
    from numpy.typing import NDArray

    from foretell.disclose._hdf5_index import Found

    # Of elements along an axis, rising.
    Positions: TypeAlias = range | list[int]

# Chunks that are looked up in the index at once, if selections have fewer.
GROUP = 4096
# Drivers without data sieving.
UNSIEVED = frozenset({"fileobj"})


def hdf5(
    dataset: Any,
    *selections: Any,
    name: str | None = None,
    file: File | None = None,
    ordered: bool = True,
) -> Plan:
    """Plan to read parts of an HDF5 dataset, one after another.

    >>> disclose.hdf5(cube, numpy.s_[:, 40, :])  # as cube[:, 40, :] reads it
    >>> disclose.hdf5("cube.h5", numpy.s_[:, 40, :], name="model/temperature")

    Needs h5py.

    Args:
        dataset: An open `h5py.Dataset`; or, with `name`, the path of the file or an open file of a store.
        selections: As between the brackets of ``dataset[...]``: integers, slices, lists, masks, and whatever else h5py takes.
            By default, all of the dataset. Chunks of a selection that the chunk cache still has from an earlier one are left
            out.
        name: The path of the dataset in the file.
        file: The `foretell.File` that the dataset's `h5py.File` was made of, if it was made of one.
        ordered: Whether the selections will be read in this order. Hints help most if they will: ``examples/disclose_dask.py``
            shows how to find out the order of dask's threads.

    The plan's iteration raises what h5py raises for a selection that does not fit, `KeyError` for a name that the file does
    not have, `OSError` if it cannot be read, and `ValueError` for a dataset that is not planned: a virtual one, one in
    external files, or one that h5py reads through a Python file without `file`.

    Raises:
        TypeError: `dataset` is something else, such as an `h5py.File`, `name` is missing, or `file` is a path.

    Not planned either: strings of variable length, whose data lies in heaps, and what the library reads before it opens the
    dataset.

    """
    if file is not None and not isinstance(file, File):
        raise TypeError(
            f"{file!r}: `file` is the foretell.File that the dataset's h5py.File was made of; leave it out for a path"
        )
    given = dataset if isinstance(dataset, File) else file
    is_place = isinstance(dataset, (str, bytes, os.PathLike, File))
    mistake: Exception | None = None
    if is_place:
        if name is None:
            raise TypeError("hdf5: the dataset in the file is missing: give its path as `name`")
        if not isinstance(dataset, File):
            mistake = mistake_in(os.fsdecode(dataset))
    else:
        _check_dataset(dataset)
        mistake = _needs_file(dataset) if file is None else None

    def ranges() -> Iterator[Range]:
        h5py = _library()
        if not is_place:
            yield from _ranges(dataset, selections, given)
            return
        path = dataset.name if isinstance(dataset, File) else os.fsdecode(dataset)
        with _opened(dataset if isinstance(dataset, File) else path, path) as opened:
            if not isinstance(opened.get(name), h5py.Dataset):
                raise missing(path, "dataset", name)
            yield from _ranges(opened[name], selections, given)

    if given is None:
        return Plan(ranges, ordered=ordered, mistake=mistake)
    return Plan(ranges, given._store, ordered=ordered, files={given.name: given})


def _library() -> Any:
    try:
        import h5py
    except ImportError:
        raise ImportError("disclose.hdf5 needs h5py: pip install 'foretell[hdf5]'") from None
    return h5py


def _opened(place: str | File, path: str) -> Any:
    """Open a file, with errors that name it."""
    try:
        return _library().File(place, "r")
    except OSError as error:
        if error.errno:
            raise type(error)(error.errno, os.strerror(error.errno), path) from None
        raise OSError(f"{path}: not an HDF5 file: {error}") from None


def _check_dataset(dataset: Any) -> None:
    if isinstance(dataset, _library().Dataset):
        return
    kind = f"{type(dataset).__module__.partition('.')[0]}.{type(dataset).__name__}"
    raise TypeError(
        f"{kind}: an h5py.Dataset is needed, as file['name'] is one; or the path of a file, and `name`"
    )


def _needs_file(dataset: Any) -> Exception | None:
    """Return the error of a dataset that h5py reads through a Python file, which it does not say."""
    if not dataset or dataset.file.driver != "fileobj":  # Or it is closed, which iterating tells.
        return None
    return ValueError(
        f"{_named(dataset, None)}: h5py reads it through a Python file; give the foretell.File that it was made of as `file=`"
    )


@dataclass(frozen=True)
class _Known:
    """What is asked of the library once, so that its lock is not needed afterwards."""

    place: Place
    shape: tuple[int, ...]
    item_bytes: int
    data_at: int | None
    """Where a contiguous dataset begins; `None` if it has no data or another layout."""
    sieve_bytes: int
    chunking: Chunking | None
    cache_slots: int
    cache_bytes: int
    is_filtered: bool


def _ranges(dataset: Any, selections: Sequence[Any], file: File | None) -> Iterator[Range]:
    import h5py

    with h5py._hl.base.phil:
        known = _known(dataset, file)
        try:
            chosen = [_Selection(dataset, one) for one in selections or (...,)]
        except (IndexError, TypeError, ValueError) as error:
            raise of_selection(error, _named(dataset, file)) from None
    with Source(known.place) as source:
        if known.chunking is not None:
            pairs = _chunked(source, dataset, known, known.chunking, chosen)
        elif known.data_at is not None:
            pairs = _contiguous(known, known.data_at, chosen)
        else:
            return
        for offset, length in pairs:
            yield source.path, offset, length


def _named(dataset: Any, file: File | None) -> str:
    return f"{dataset.file.filename if file is None else file.name}: {dataset.name}"


def _known(dataset: Any, file: File | None) -> _Known:
    from h5py import h5d, h5g

    properties, driver = dataset.id.get_create_plist(), dataset.file.driver
    layout = properties.get_layout()
    if layout == h5d.VIRTUAL or properties.get_external_count() > 0:
        raise ValueError(
            f"{_named(dataset, file)}: its data is in other files, which is not planned"
        )
    shape, item_bytes = dataset.shape, dataset.id.get_type().get_size()
    slots, cache_bytes, _ = dataset.id.get_access_plist().get_chunk_cache()
    chunking = None
    is_read_at_open = driver == "core"
    if layout == h5d.CHUNKED and not is_read_at_open:
        chunk, most = dataset.chunks, dataset.maxshape
        created = dataset.file.id.get_create_plist()
        base = created.get_userblock()
        offset_bytes, length_bytes = created.get_sizes()
        chunking = Chunking(
            # Unlike `h5o.get_info`, this does not walk the index, for its size.
            header=base + h5g.get_objinfo(dataset.id, b".").objno[0],
            base=base,
            offset_bytes=offset_bytes,
            length_bytes=length_bytes,
            chunk=chunk,
            chunk_bytes=math.prod(chunk) * item_bytes,
            grid=_grid(shape, chunk),
            grid_max=None if None in most else _grid(most, chunk),
        )
    return _Known(
        place=dataset.file.filename if file is None else file,
        shape=shape,
        item_bytes=item_bytes,
        data_at=dataset.id.get_offset()
        if layout == h5d.CONTIGUOUS and not is_read_at_open
        else None,
        sieve_bytes=0
        if driver in UNSIEVED
        else dataset.file.id.get_access_plist().get_sieve_buf_size(),
        chunking=chunking,
        cache_slots=slots,
        cache_bytes=cache_bytes,
        is_filtered=properties.get_nfilters() > 0,
    )


def _grid(shape: Sequence[int], chunk: Sequence[int]) -> tuple[int, ...]:
    return tuple(-(-size // part) for size, part in zip(shape, chunk, strict=True))


class _Selection:
    """A selection as h5py understands it: positions along each `axes`, or else `blocks` (first and last corners)."""

    axes: list[Positions] | None
    blocks: NDArray[Any]

    def __init__(self, dataset: Any, given: Any) -> None:
        import numpy as np
        from h5py import h5s
        from h5py._hl import selections

        self.axes, self.blocks = None, np.zeros((0, 2, 1), "i8")
        self.are_points = False
        parts = given if isinstance(given, tuple) else (given,)
        parts = tuple(part for part in parts if not isinstance(part, str))  # Names of fields.
        if dataset.shape == ():
            self.axes = []
        if not dataset.shape:  # A single element, or nothing.
            return
        space = selections.select(dataset.shape, parts, dataset).id
        kind = space.get_select_type()
        if space.get_select_npoints() == 0:
            return
        if kind == h5s.SEL_ALL:
            self.axes = [range(size) for size in dataset.shape]
        elif kind == h5s.SEL_POINTS:
            points = space.get_select_elem_pointlist().astype("i8")
            self.blocks, self.are_points = np.stack([points, points], axis=1), True
        elif space.is_regular_hyperslab():
            self.axes = [
                _positions(*one) for one in zip(*space.get_regular_hyperslab(), strict=True)
            ]
        else:
            self.blocks = space.get_select_hyper_blocklist().astype("i8")

    def parts(self, chunk: Sequence[int]) -> Iterator[list[Any]]:
        """Yield products of chunk positions along each axis; together they have all chunks that are touched."""
        if self.axes is not None:
            yield [
                sorted({at // size for at in axis}) if not isinstance(axis, range) or axis.step > size
                else range(axis[0] // size, axis[-1] // size + 1)
                for axis, size in zip(self.axes, chunk, strict=True)
            ]  # fmt: skip
        for first, last in self.blocks.tolist():
            yield [
                range(begin // size, end // size + 1)
                for begin, end, size in zip(first, last, chunk, strict=True)
            ]

    def numbers(self, chunking: Chunking) -> NDArray[Any]:
        """Return the numbers of the chunks that are touched, in rising order."""
        import numpy as np

        if self.are_points:
            places = self.blocks[:, 0] // np.array(chunking.chunk)
            return np.unique(np.ravel_multi_index(places.T, chunking.grid))
        found = [
            np.ravel_multi_index(np.ix_(*part), chunking.grid).ravel()
            for part in self.parts(chunking.chunk)
        ]
        return np.unique(np.concatenate(found)) if found else np.zeros(0, "i8")

    def runs(self, shape: Sequence[int], item_bytes: int) -> Iterator[tuple[int, int]]:
        """Yield offset and length in bytes of the runs of adjacent elements."""
        if self.axes is not None:
            yield from _joined(runs(shape, 8 * item_bytes, tuple(self.axes)))
            return
        if self.are_points:  # They are read in their order.
            import numpy as np

            numbers = np.ravel_multi_index(tuple(self.blocks[:, 0].T), tuple(shape)).tolist()
            yield from _joined((number * item_bytes, item_bytes) for number in numbers)
            return
        found = itertools.chain.from_iterable(
            runs(
                shape,
                8 * item_bytes,
                tuple(slice(begin, end + 1) for begin, end in zip(first, last, strict=True)),
            )
            for first, last in self.blocks.tolist()
        )
        yield from _joined(sorted(found))

    def within(self, first: Sequence[int], chunk: Sequence[int]) -> _Selection:
        """Return the part of it in the chunk whose first element is given, relative to that."""
        import numpy as np

        part = object.__new__(_Selection)
        part.axes, part.blocks, part.are_points = None, self.blocks, self.are_points
        if self.axes is not None:
            part.axes = [
                [at - begin for at in axis if begin <= at < begin + size]
                for axis, begin, size in zip(self.axes, first, chunk, strict=True)
            ]
        if len(self.blocks):
            corner, size = np.array(first), np.array(chunk)
            clipped = np.stack(
                [
                    np.maximum(self.blocks[:, 0] - corner, 0),
                    np.minimum(self.blocks[:, 1] - corner, size - 1),
                ],
                axis=1,
            )
            part.blocks = clipped[np.all(clipped[:, 0] <= clipped[:, 1], axis=1)]
        return part


def _positions(start: int, stride: int, count: int, block: int) -> Positions:
    if block == 1:
        return range(start, start + stride * count, stride)
    if stride == block or count == 1:
        return range(start, start + block * count)
    return [start + stride * at + each for at in range(count) for each in range(block)]


def _joined(found: Iterable[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Join each run with the one before, if it begins at its end."""
    at = length = 0
    for offset, more in found:
        if offset == at + length:
            length += more
            continue
        if length:
            yield at, length
        at, length = offset, more
    if length:
        yield at, length


def _contiguous(
    known: _Known, data_at: int, chosen: Iterable[_Selection]
) -> Iterator[tuple[int, int]]:
    size = math.prod(known.shape) * known.item_bytes
    most = min(known.sieve_bytes, size)
    begin = end = 0  # Of the sieve buffer.
    for selection in chosen:
        for offset, length in selection.runs(known.shape, known.item_bytes):
            if begin <= offset and offset + length <= end:
                continue
            if length > most:
                yield data_at + offset, length
                continue
            begin, end = offset, min(offset + most, size)
            yield data_at + begin, end - begin


def _chunked(
    source: Source,
    dataset: Any,
    known: _Known,
    chunking: Chunking,
    chosen: Sequence[_Selection],
) -> Iterator[tuple[int, int]]:
    import numpy as np

    is_whole = known.is_filtered or chunking.chunk_bytes <= known.cache_bytes
    index = _Index(source, dataset, chunking)
    for selection, (numbers, offsets, lengths) in index.of(_wanted(known, chunking, chosen)):
        if is_whole:
            yield from zip(offsets.tolist(), lengths.tolist(), strict=True)
            continue
        places = np.stack(np.unravel_index(numbers, chunking.grid), axis=-1) * chunking.chunk
        for offset, first in zip(offsets.tolist(), places.tolist(), strict=True):
            part = selection.within(first, chunking.chunk)
            for begin, length in part.runs(chunking.chunk, known.item_bytes):
                yield offset + begin, length


def _wanted(
    known: _Known, chunking: Chunking, chosen: Sequence[_Selection]
) -> Iterator[tuple[_Selection, NDArray[Any]]]:
    """Yield each selection with the numbers of the chunks that are read for it."""
    cache = _Cache(known, chunking) if len(chosen) > 1 else None
    for selection in chosen:
        numbers = selection.numbers(chunking)
        yield selection, numbers if cache is None else cache.missing(numbers)


class _Index:
    """The index of a dataset's chunks."""

    def __init__(self, source: Source, dataset: Any, chunking: Chunking) -> None:
        self._source, self._dataset, self._chunking = source, dataset, chunking
        self._all: Found | None = None

    def of(
        self, wanted: Iterable[tuple[_Selection, NDArray[Any]]]
    ) -> Iterator[tuple[_Selection, Found]]:
        """Look up the chunks that there are; small selections together, a large one in batches."""
        group: list[tuple[_Selection, NDArray[Any]]] = []
        total = 0
        for selection, numbers in wanted:
            group.append((selection, numbers))
            total += len(numbers)
            if total >= GROUP:
                yield from self._of_group(group)
                group, total = [], 0
        yield from self._of_group(group)

    def _of_group(
        self, group: Sequence[tuple[_Selection, NDArray[Any]]]
    ) -> Iterator[tuple[_Selection, Found]]:
        import numpy as np

        if len(group) == 1:
            selection, numbers = group[0]
            for found in self._found(numbers):
                yield selection, found
            return
        if group:
            union = np.unique(np.concatenate([numbers for _, numbers in group]))
            batches = list(self._found(union))
            table = [np.concatenate(columns) for columns in zip(*batches, strict=True)]
            for selection, numbers in group:
                if table:
                    yield selection, _rows(table, numbers)

    def _found(self, wanted: NDArray[Any]) -> Iterator[Found]:
        done = -1
        if self._all is None:
            try:
                for found in find(self._source, self._chunking, wanted):
                    numbers, offsets, lengths = found
                    if not len(numbers):
                        continue
                    end = int((offsets + lengths).max())
                    if end > self._source.size or int(offsets.min()) < 0:
                        raise Unexpected("a chunk behind the end of the file")
                    yield found
                    done = int(numbers[-1])
                return
            except Unexpected:
                self._all = self._of_library()
        yield _rows(self._all, wanted[wanted > done])

    def _of_library(self) -> Found:
        """Ask the library, which has no way to be asked for some of the chunks but by going through all for each."""
        import numpy as np

        rows: list[tuple[int, ...]] = []
        self._dataset.id.chunk_iter(
            lambda one: rows.append((*one.chunk_offset, one.byte_offset, one.size))
        )
        chunk, grid = self._chunking.chunk, self._chunking.grid
        table = np.array(rows, "i8").reshape(len(rows), len(chunk) + 2)
        numbers = np.ravel_multi_index(tuple((table[:, :-2] // np.array(chunk)).T), grid)
        order = numbers.argsort()
        return numbers[order], table[order, -2], table[order, -1]


def _rows(table: Sequence[NDArray[Any]], wanted: NDArray[Any]) -> Found:
    """Return the rows of a table of chunks that have these numbers."""
    numbers, offsets, lengths = table
    at = numbers.searchsorted(wanted)
    at = at[(at < len(numbers))]
    at = at[numbers[at] == wanted[: len(at)]]
    return numbers[at], offsets[at], lengths[at]


class _Cache:
    """The chunk cache of an open dataset: chunks by slot, as many bytes as allowed, the one used longest ago goes first."""

    def __init__(self, known: _Known, chunking: Chunking) -> None:
        self._slots, self._grid = known.cache_slots, chunking.grid
        self._most = known.cache_bytes // max(chunking.chunk_bytes, 1)
        self._bits = [max(size - 1, 0).bit_length() for size in chunking.grid]
        self._chunks: OrderedDict[int, int] = OrderedDict()

    def missing(self, numbers: NDArray[Any]) -> NDArray[Any]:
        """Use these chunks, and return those that it did not have."""
        import numpy as np

        if not self._slots or not self._most or not len(numbers):
            return numbers
        slots, *rest = np.unravel_index(numbers, self._grid)
        for bits, place in zip(self._bits[1:], rest, strict=True):
            slots = slots << bits ^ place
        missing = []
        for slot, number in zip((slots % self._slots).tolist(), numbers.tolist(), strict=True):
            if self._chunks.get(slot) != number:
                missing.append(number)
                self._chunks[slot] = number
            self._chunks.move_to_end(slot)
            if len(self._chunks) > self._most:
                self._chunks.popitem(last=False)
        return np.array(missing, "i8")
