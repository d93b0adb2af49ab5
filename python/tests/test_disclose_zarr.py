"""Plans of zarr arrays, against what the library reads."""

import random
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Served
from disclosing import check

import foretell
from foretell import disclose

zarr = pytest.importorskip("zarr", minversion="3")

SEED = 7
SELECTIONS = 200
SHAPE = (41, 50, 22)
KINDS: dict[str, dict[str, Any]] = {
    "format 2": {"zarr_format": 2, "chunks": (7, 16, 5), "dtype": "<i4"},
    "format 2, nested": {
        "zarr_format": 2,
        "chunks": (41, 50, 3),
        "dtype": ">f8",
        "chunk_key_encoding": {"name": "v2", "separator": "/"},
    },
    "format 3": {"chunks": (7, 16, 5), "dtype": "f8"},
    "format 3, as it is": {"chunks": (7, 50, 5), "dtype": "u1", "compressors": None},
    "shards": {"chunks": (9, 10, 8), "shards": (18, 20, 16), "dtype": "i2"},
    "shards, index first": {
        "chunks": (6, 9, 22),
        "dtype": "f4",
        "shards": {"shape": (12, 27, 22), "index_location": "start"},
    },
}


def make(store: Any, kind: str, name: str = "group/values") -> Any:
    """An array of which a part is written."""
    group = zarr.open_group(store, mode="a", zarr_format=KINDS[kind].get("zarr_format", 3))
    creation = {key: given for key, given in KINDS[kind].items() if key != "zarr_format"}
    array = group.create_array(name, shape=SHAPE, fill_value=0, **creation)
    drawn = np.random.default_rng(SEED)
    array[:30, 10:] = drawn.integers(0, 99, (30, 40, 22))
    return array


def random_selection(source: random.Random, array: Any) -> tuple[Any, Any]:
    """Whose brackets, and a selection."""
    way = source.choice(["basic", "basic", "orthogonal", "coordinates", "mask", "blocks"])
    if way == "coordinates":
        count = source.randint(1, 9)
        points = tuple([source.randrange(size) for _ in range(count)] for size in SHAPE)
        return source.choice([array, array.vindex]), points
    if way == "mask":
        return array.vindex, np.random.default_rng(source.randrange(99)).random(SHAPE) < 1e-4
    if way == "blocks":
        sizes = array.metadata.chunk_grid.chunk_shape
        counts = [-(-size // part) for size, part in zip(SHAPE, sizes, strict=True)]
        return array.blocks, (source.randrange(counts[0]), slice(counts[1] // 2, None), 0)
    fancy = source.randrange(3) if way == "orthogonal" else -1

    def one(axis: int, size: int) -> Any:
        if axis == fancy:
            if source.random() < 0.3:
                return np.array([source.random() < 0.3 for _ in range(size)])
            return [source.randrange(size) for _ in range(source.randint(1, 9))]
        if source.random() < 0.3:
            return source.randrange(-size, size)
        start, stop = sorted(source.randint(0, size) for _ in range(2))
        return slice(start, stop, source.choice([1, 1, 2, 7]))

    selection = tuple(one(axis, size) for axis, size in enumerate(SHAPE))
    if fancy < 0:
        selection = selection[: source.randint(0, 3)]
        return array, selection
    return array.oindex, selection


class Noted(zarr.storage.WrapperStore):  # type: ignore[misc, name-defined]
    """A store that notes what is read and found: key, offset and length."""

    def __init__(self, store: Any, reads: list[tuple[str, int, int]] | None = None) -> None:
        super().__init__(store)
        self.reads = [] if reads is None else reads

    def _with_store(self, store: Any) -> "Noted":
        return Noted(store, self.reads)

    async def get(self, key: str, prototype: Any, byte_range: Any = None) -> Any:
        found = await self._store.get(key, prototype, byte_range)
        if found is not None:
            offset = getattr(byte_range, "start", 0)
            if hasattr(byte_range, "suffix"):
                offset = await self._store.getsize(key) - byte_range.suffix
            self.reads.append((key, offset, len(found)))
        return found


def as_offsets(ranges: Any) -> list[tuple[int, int]]:
    """Ranges of several files as those of one, with a place for each file."""
    places: dict[str, int] = {}
    return [
        (places.setdefault(name, hash(name) & 0xFFFF_FFFF_FFFF) * 1_000_000 + at, length)
        for name, at, length in ranges
    ]


@pytest.mark.parametrize("kind", KINDS)
def test_ranges_are_what_is_read(tmp_path: Path, kind: str) -> None:
    folder, source = tmp_path / "a.zarr", random.Random(SEED)
    made = make(str(folder), kind)
    noted = Noted(zarr.storage.LocalStore(folder))
    array = zarr.open_array(noted, path="group/values", mode="r")
    is_sharded = made.shards is not None
    index = made._async_array.codec_pipeline.array_bytes_codec if is_sharded else None
    with zarr.config.set({"async.concurrency": 1}):
        for number in range(SELECTIONS):
            whose, selection = random_selection(source, array)
            planned = []
            for name, offset, length in disclose.zarr(whose, selection):
                path = Path(name)
                if path.exists():
                    size = path.stat().st_size
                    key = str(path.relative_to(folder))
                    planned.append((key, offset, size if length is None else length))
            noted.reads.clear()
            whose[selection]
            reads = noted.reads
            if index is not None:  # Without those of indices.
                size = index._shard_index_size(
                    tuple(s // c for s, c in zip(made.shards, made.chunks, strict=True))
                )
                reads = [one for one in reads if one[2] != size]
            assert planned == reads, (number, selection)
            check(as_offsets(planned), as_offsets(reads))


@pytest.fixture
def served_array(slow: Served, folder: Path, tmp_path: Path) -> tuple[Any, str]:
    """The folder where an array can be made, and its address for fsspec."""
    pytest.importorskip("fsspec")
    name = f"made/{tmp_path.name}"
    (folder / name).mkdir()
    return folder / name, f"foretell://s3://{name}"


@pytest.mark.parametrize("kind", KINDS)
def test_a_store_is_told(served_array: tuple[Any, str], slow: Served, kind: str) -> None:
    folder, url = served_array
    plain = make(str(folder / "a.zarr"), kind)
    options = {"target_options": slow.s3fs_options}
    store = zarr.storage.FsspecStore.from_url(f"{url}/a.zarr", options, read_only=True)
    array = zarr.open_array(store, path="group/values", mode="r")
    source = random.Random(SEED)
    system = store.fs.sync_fs if hasattr(store.fs, "sync_fs") else store.fs
    of_foretell = system.store("made/x")[0]
    for _ in range(10):
        state = source.getstate()
        whose, selection = random_selection(source, array)
        source.setstate(state)
        plainly, _ = random_selection(source, plain)
        before = of_foretell.stats()
        with foretell.disclosed(disclose.zarr(whose, selection)) as hints:
            np.testing.assert_array_equal(whose[selection], plainly[selection])
            assert hints.wait(60)
        assert (hints.problem, hints.told) == (None, ["store"])
        after = of_foretell.stats()
        assert after["wasted_blocks"] == before["wasted_blocks"]


def test_a_zip_file(tmp_path: Path) -> None:
    path, source = tmp_path / "a.zip", random.Random(SEED)
    for kind in ["format 3", "shards"]:
        with zarr.storage.ZipStore(path, mode="w") as store:
            make(store, kind)
        content = path.read_bytes()
        with zarr.storage.ZipStore(path, mode="r") as store:
            array = zarr.open_array(store, path="group/values", mode="r")
            for _ in range(20):
                whose, selection = random_selection(source, array)
                for name, offset, length in disclose.zarr(whose, selection):
                    assert name == str(path)
                    assert content[offset : offset + 4] == b"PK\x03\x04"
                    assert content[offset + (length or 0) :][:2] == b"PK"


def test_it_says_why_there_is_no_plan(tmp_path: Path) -> None:
    array = make(str(tmp_path / "a.zarr"), "shards")
    wrong: list[tuple[Any, Any]] = [
        (array, 99),
        (array, (0, 0, 0, 0)),
        (array.oindex, ([99], 0, 0)),
        (array.vindex, ([1, 2], [1, 2, 3], 0)),
        (array.blocks, 99),
    ]
    for whose, selection in wrong:
        with pytest.raises((IndexError, ValueError), match=r"a\.zarr"):
            list(disclose.zarr(whose, selection))
        with pytest.raises((IndexError, ValueError)):
            whose[selection]
    with pytest.raises(IndexError, match=r"a\.zarr.*: index out of bounds"):
        list(disclose.zarr(array, 99))
    with pytest.raises(TypeError):
        disclose.zarr(np.zeros(3))


def test_arrays_that_take_no_hints_raise_nothing() -> None:
    pytest.importorskip("fsspec")
    of_fsspec = zarr.storage.FsspecStore.from_url("memory://foretell/a.zarr")
    for store in [zarr.storage.MemoryStore(), of_fsspec]:
        array = zarr.create_array(store, shape=(3,), dtype="u1", overwrite=True)
        array[:] = 7
        plan = disclose.zarr(array, slice(2))
        with foretell.disclosed(plan) as hints:
            assert list(array[:2]) == [7, 7]
            assert (hints.told, hints.ranges) == ([], 0)
            assert re.search("^ValueError: .*foretell's", hints.problem or "")
        with pytest.raises(ValueError, match="foretell's"):
            list(plan)


def test_stale_and_damaged_shards(tmp_path: Path) -> None:
    """Whatever an index says, nothing is wrong but hints."""
    folder = tmp_path / "a.zarr"
    array = make(str(folder), "shards")
    source = random.Random(SEED)
    chosen = np.s_[::9, ::5, 3]
    expected = array[chosen]
    plan = disclose.zarr(array, chosen)
    for path in sorted((folder / "group/values/c").rglob("*"))[::3]:
        if path.is_file():
            content = path.read_bytes()
            store = foretell.Store(tmp_path)
            path.write_bytes(source.randbytes(len(content)))
            stale = list(plan)
            with foretell.disclosed(plan, stale) as hints:
                pass
            path.write_bytes(content[:20])
            list(plan)
            path.write_bytes(content)
            relative = [(str(Path(name).relative_to(tmp_path)), *rest) for name, *rest in stale]
            with foretell.disclosed(relative, store=store) as hints:  # type: ignore[arg-type]
                np.testing.assert_array_equal(array[chosen], expected)
                hints.wait(60)


def test_xarray_and_dask(tmp_path: Path) -> None:
    """Their arrays are those of zarr and HDF5 below."""
    xarray = pytest.importorskip("xarray")
    dask = pytest.importorskip("dask.array")
    h5py = pytest.importorskip("h5py")
    times = np.arange("2026-01", "2026-03", dtype="datetime64[D]").astype("datetime64[ns]")
    grid = np.random.default_rng(SEED).random((len(times), 30, 20))
    made = xarray.Dataset({"t2m": (("time", "y", "x"), grid)}, {"time": times})
    made.to_zarr(tmp_path / "a.zarr", encoding={"t2m": {"chunks": (10, 10, 10)}})
    with h5py.File(tmp_path / "a.h5", "w") as file:
        file.create_dataset("t2m", data=grid, chunks=(10, 10, 10))
    store = foretell.Store(tmp_path)
    below = zarr.open_array(str(tmp_path / "a.zarr"), path="t2m", mode="r")
    with xarray.open_zarr(tmp_path / "a.zarr", chunks=None) as opened:
        # Positions, from labels: an array of positions, with the same labels.
        at = xarray.DataArray(range(len(times)), coords={"time": opened.time})
        rows = at.sel(time=slice("2026-01-20", "2026-02-02")).values
        plan = list(disclose.zarr(below, np.s_[rows[0] : rows[-1] + 1, :, 5]))
        assert len(plan) == 9
        with foretell.disclosed(plan):
            found = opened.t2m.sel(time=slice("2026-01-20", "2026-02-02")).isel(x=5).values
        np.testing.assert_array_equal(found, grid[19:33, :, 5])
    lazy = dask.from_zarr(below)
    blocks = [tuple(one) for one in dask.core.slices_from_chunks(lazy.chunks)]
    with foretell.disclosed(disclose.zarr(below, *blocks, ordered=False)) as hints:
        assert float(lazy.sum().compute()) == pytest.approx(grid.sum())
        assert hints.problem is None
    with h5py.File(store.open("a.h5")) as file:
        lazy = dask.from_array(file["t2m"], chunks=(10, 30, 20))
        blocks = [tuple(one) for one in dask.core.slices_from_chunks(lazy.chunks)]
        of_hdf5 = disclose.hdf5(file["t2m"], *blocks, file=store.open("a.h5"), ordered=False)
        with foretell.disclosed(of_hdf5) as hints:
            assert float(lazy.sum().compute()) == pytest.approx(grid.sum())
        assert (hints.problem, hints.told) == (None, ["store"])
