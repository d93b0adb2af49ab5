"""fsspec, and libraries that read open files. A library that is not installed is skipped with a message."""

import pickle
import sys
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Served

import foretell


def test_fsspec_local(data: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    with fsspec.open(f"foretell::file://{data}/small") as file:
        assert file.read() == (data / "small").read_bytes()
    fs, path = fsspec.url_to_fs(f"foretell::file://{data}/sub")
    assert type(fs).__name__ == "ForetellFileSystem"
    assert len(fs.ls(path)) == 100
    assert fs.info(f"{path}/7.bin")["size"] == 1007
    assert fs.exists(f"{path}/7.bin")
    assert not fs.exists(f"{path}/absent")
    assert fs.isdir(path)
    assert len(fs.glob(f"{path}/9*.bin")) == 11
    assert fs.cat_file(f"{path}/7.bin", 3, 9) == (data / "sub/7.bin").read_bytes()[3:9]
    again = pickle.loads(pickle.dumps(fs))
    assert again.cat_file(f"{path}/7.bin") == (data / "sub/7.bin").read_bytes()
    several = fs.cat(f"{data}/sub/*.bin")
    assert several == {str(path): path.read_bytes() for path in (data / "sub").iterdir()}
    assert fs.cat(f"{data}/sub/7.bin") == (data / "sub/7.bin").read_bytes()
    with pytest.raises(FileNotFoundError):
        fs.cat([f"{data}/small", f"{data}/absent"])
    found = fs.cat([f"{data}/small", f"{data}/absent"], on_error="omit")
    assert list(found) == [f"{data}/small"]
    found = fs.cat([f"{data}/small", f"{data}/absent"], on_error="return")
    assert isinstance(found[f"{data}/absent"], FileNotFoundError)
    modified = fs.modified(f"{data}/small").timestamp()
    assert modified == pytest.approx((data / "small").stat().st_mtime, abs=1e-3)
    with fs.open(f"{data}/sub/7.bin") as file, pytest.raises(OSError, match="not writable"):
        file.write(b"")
    with pytest.raises(NotImplementedError):
        fs.open(f"{path}/new", "wb")


def test_fsspec_objects(served: Served, data: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    target = {"target_protocol": "s3", "target_options": served.s3fs_options, "depth": 8}
    with fsspec.open("foretell://data/odd", **target) as file:
        assert file.read() == (data / "odd").read_bytes()
    fs = fsspec.filesystem("foretell", target_protocol="s3", target_options=served.s3fs_options)
    told = fs.info("data/small")
    assert (told["name"], told["size"], told["type"]) == ("data/small", 5000, "file")
    assert fs.size("s3://data/small") == 5000
    paths = [f"data/sub/{number % 50}.bin" for number in range(200)]
    starts = [number % 13 for number in range(200)]
    found = fs.cat_ranges([*paths, "data/absent", "data/one"], [*starts, 0, -1], 900)
    plain = [(data.parent / path).read_bytes() for path in paths]
    assert found[:200] == [one[at:900] for one, at in zip(plain, starts, strict=True)]
    assert isinstance(found[200], FileNotFoundError)
    assert found[201] == (data / "one").read_bytes()
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges(["data/absent"], 0, 1, on_error="raise")


def test_threads_use_one_store(data: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    fs = fsspec.filesystem("foretell", target_protocol="file", skip_instance_cache=True)
    begin = threading.Barrier(16)

    def ask() -> foretell.Store:
        begin.wait()
        return fs.store(f"{data}/small")[0]  # type: ignore[no-any-return]

    with ThreadPoolExecutor(16) as pool:
        stores = [asked.result() for asked in [pool.submit(ask) for _ in range(16)]]
    assert len({id(store) for store in stores}) == 1


def test_fsspec_objects_without_s3fs(
    served: Served, data: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fsspec = pytest.importorskip("fsspec")
    monkeypatch.setitem(sys.modules, "s3fs", None)
    monkeypatch.delitem(sys.modules["fsspec.registry"]._registry, "s3", raising=False)
    fs = fsspec.filesystem(
        "foretell",
        target_protocol="s3",
        target_options=served.s3fs_options,
        skip_instance_cache=True,
    )
    assert fs.exists("data/small")
    assert fs.info("data/small")["size"] == 5000
    assert not fs.exists("data/absent")
    assert [one.rpartition("/")[2] for one in fs.ls("data", detail=False)] == sorted(
        path.name for path in data.iterdir()
    )
    files = sorted(str(path.relative_to(data.parent)) for path in data.rglob("*") if path.is_file())
    assert fs.find("data") == files
    assert len(fs.glob("data/sub/9*.bin")) == 11
    assert fs.cat("data/sub/*.bin") == {
        f"data/sub/{path.name}": path.read_bytes() for path in (data / "sub").iterdir()
    }


class Place:
    """A place where libraries write a file themselves, and read it through foretell."""

    def __init__(self, folder: Path, store: foretell.Store, url: str, options: Any) -> None:
        self.folder = folder
        self.store = store
        self.url = url
        self.options = options


@pytest.fixture(params=["folder", "objects"])
def place(
    request: pytest.FixtureRequest, tmp_path: Path, folder: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[Place]:
    """A local folder or one of the slow store; the address is in foretell's form, `options` are for fsspec."""
    fsspec = pytest.importorskip("foretell.fsspec")
    opened: list[str] = []
    as_it_is = fsspec.ForetellFileSystem._open

    def noted(self: Any, path: str, *args: Any, **kwargs: Any) -> Any:
        opened.append(path)
        return as_it_is(self, path, *args, **kwargs)

    monkeypatch.setattr(fsspec.ForetellFileSystem, "_open", noted)
    if request.param == "folder":
        yield Place(tmp_path, foretell.Store(tmp_path), f"foretell::file://{tmp_path}", {})
    else:
        pytest.importorskip("s3fs")
        slow = request.getfixturevalue("slow")
        name = f"made/{tmp_path.name}"
        (folder / name).mkdir()
        options = {"s3": {**slow.s3fs_options, "use_listings_cache": False}}
        store = foretell.Store(f"s3://{name}", settings=slow.settings)
        yield Place(folder / name, store, f"foretell::s3://{name}", options)
    assert opened  # It was read through foretell.


def test_pandas(place: Place) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    values = np.random.default_rng(1).random(100_000)
    frame = pandas.DataFrame({"a": np.arange(100_000), "b": values, "c": "text"})
    frame.to_parquet(place.folder / "frame.parquet", row_group_size=10_000)
    plain = pandas.read_parquet(place.folder / "frame.parquet")
    with place.store.open("frame.parquet") as file:
        pandas.testing.assert_frame_equal(pandas.read_parquet(file), plain)
    url, options = f"{place.url}/frame.parquet", place.options or None
    found = pandas.read_parquet(url, storage_options=options)
    pandas.testing.assert_frame_equal(found, plain)
    found = pandas.read_parquet(url, columns=["b"], storage_options=options)
    pandas.testing.assert_frame_equal(found, plain[["b"]])
    found = pandas.read_parquet(url, filters=[("a", ">=", 95_000)], storage_options=options)
    pandas.testing.assert_frame_equal(found, plain[95_000:].reset_index(drop=True))


def test_pyarrow_datasets(place: Place) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    pyarrow = pytest.importorskip("pyarrow")
    fsspec = pytest.importorskip("fsspec")
    table = pyarrow.table({"part": np.arange(9000) % 3, "value": np.arange(9000) * 0.5})
    dataset.write_dataset(table, place.folder / "set", format="parquet", partitioning=["part"])
    fs, path = fsspec.url_to_fs(f"{place.url}/set", **place.options)
    found = dataset.dataset(path, filesystem=fs, format="parquet", partitioning=["part"])
    plain = dataset.dataset(place.folder / "set", format="parquet", partitioning=["part"])
    assert found.count_rows() == 9000
    assert found.to_table().sort_by("value").equals(plain.to_table().sort_by("value"))


def test_h5py(place: Place) -> None:
    h5py = pytest.importorskip("h5py")
    fsspec = pytest.importorskip("fsspec")
    values = np.random.default_rng(1).random((1000, 300))
    with h5py.File(place.folder / "file.h5", "w") as file:
        file.create_dataset("values", data=values, chunks=(50, 50), compression="gzip")
        file.create_dataset("group/rows", data=np.arange(10_000))
    with (
        place.store.open("file.h5") as raw,
        fsspec.open(f"{place.url}/file.h5", **place.options) as chained,
        h5py.File(place.folder / "file.h5", "r") as plain,
    ):
        for source in (raw, chained):
            with h5py.File(source, "r") as file:
                assert list(file) == list(plain)
                part = np.s_[100:900:7, 5:200]
                np.testing.assert_array_equal(file["values"][part], plain["values"][part])
                np.testing.assert_array_equal(file["group/rows"][:], plain["group/rows"][:])


def test_zarr(place: Place) -> None:
    zarr = pytest.importorskip("zarr", minversion="3")
    values = np.random.default_rng(1).random((500, 300))
    group = zarr.open_group(str(place.folder / "group.zarr"), mode="w")
    made = group.create_array("values", shape=values.shape, chunks=(50, 50), dtype=values.dtype)
    made[:] = values
    plain = zarr.open_array(str(place.folder / "group.zarr/values"), mode="r")
    options = place.options or None
    url = f"{place.url}/group.zarr"
    found = zarr.open_array(f"{url}/values", mode="r", storage_options=options)
    np.testing.assert_array_equal(found[33:444, 5:200], plain[33:444, 5:200])
    store = zarr.storage.FsspecStore.from_url(url, storage_options=options, read_only=True)
    opened = zarr.open_group(store, mode="r")
    assert list(opened) == ["values"]
    np.testing.assert_array_equal(opened["values"][:], plain[:])


def test_uproot(place: Place) -> None:
    uproot = pytest.importorskip("uproot")
    fsspec = pytest.importorskip("fsspec")
    rows = {"x": np.arange(100_000) * 0.5, "n": np.arange(100_000)}
    with uproot.recreate(place.folder / "file.root") as file:
        file.mktree("tree", {"x": np.float64, "n": np.int64})
        for start in range(0, 100_000, 10_000):
            file["tree"].extend({name: row[start : start + 10_000] for name, row in rows.items()})
    url = f"{place.url}/file.root"
    with (
        uproot.open(place.folder / "file.root") as plain,
        place.store.open("file.root") as raw,
        fsspec.open(url, **place.options) as chained,
    ):
        expected = plain["tree"].arrays(library="np")
        for source, options in ((raw, {}), (chained, {}), (url, place.options)):
            with uproot.open(source, **options) as file:
                found = file["tree"].arrays(library="np")
                assert sorted(found) == sorted(expected) == ["n", "x"]
                for name in found:
                    np.testing.assert_array_equal(found[name], expected[name])
                part = file["tree"]["x"].array(entry_start=12_345, entry_stop=54_321, library="np")
                np.testing.assert_array_equal(part, rows["x"][12_345:54_321])
