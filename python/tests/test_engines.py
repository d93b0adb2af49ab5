"""Query engines with foretell's file system and no other client. Engines that are not installed are skipped with a message."""

import io
import pickle
import warnings
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any

import numpy as np
import pytest
from servers import Bucket, bucket, web

import foretell

fsspec = pytest.importorskip("fsspec")
pandas = pytest.importorskip("pandas")
pyarrow = pytest.importorskip("pyarrow")

ROWS = 3000
PARTS = 3


def part(number: int) -> Any:
    values = np.random.default_rng(number).random(ROWS)
    return pandas.DataFrame(
        {"id": np.arange(ROWS) + number * ROWS, "value": values, "text": "word"}
    )


@pytest.fixture(scope="module")
def served() -> Iterator[Bucket]:
    """Parquet and CSV in parts, as engines find them: with a success marker and a folder marker."""
    objects = {"set/": b"", "set/_SUCCESS": b"", "csv/": b"", "hive/": b""}
    for number in range(PARTS):
        frame = part(number)
        packed = io.BytesIO()
        frame.to_parquet(packed, row_group_size=500, index=False)
        objects[f"set/part-{number}.parquet"] = packed.getvalue()
        objects[f"hive/n={number}/x.parquet"] = packed.getvalue()
        objects[f"csv/part-{number}.csv"] = frame.to_csv(index=False).encode()
    with bucket(objects) as served:
        yield served


@pytest.fixture
def options(served: Bucket, alone: None) -> dict[str, Any]:
    return {"target_protocol": "s3", "target_options": served.options}


@pytest.fixture
def fs(options: dict[str, Any]) -> Any:
    return fsspec.filesystem("foretell", skip_instance_cache=True, **options)


@pytest.fixture
def whole() -> Any:
    return pandas.concat([part(number) for number in range(PARTS)], ignore_index=True)


def same(found: Any, whole: Any) -> None:
    found = found.sort_values("id").reset_index(drop=True)
    pandas.testing.assert_frame_equal(found[list(whole.columns)], whole, check_dtype=False)


def test_pandas(options: dict[str, Any], whole: Any) -> None:
    same(pandas.read_parquet("foretell://b/set", storage_options=options), whole)
    found = pandas.read_parquet(
        "foretell://b/set/part-1.parquet", storage_options=options, columns=["value"]
    )
    pandas.testing.assert_frame_equal(found, part(1)[["value"]])
    target = {"target_options": options["target_options"]}
    found = pandas.read_csv("foretell://s3://b/csv/part-2.csv", storage_options=target)
    same(found, part(2))


def test_pyarrow(fs: Any, whole: Any) -> None:
    dataset = pytest.importorskip("pyarrow.dataset")
    found = dataset.dataset("b/set", filesystem=fs, format="parquet")
    assert sorted(found.files) == [f"b/set/part-{number}.parquet" for number in range(PARTS)]
    same(found.to_table().to_pandas(), whole)
    hive = dataset.dataset("b/hive", filesystem=fs, format="parquet", partitioning="hive")
    assert hive.to_table(filter=dataset.field("n") == 1).num_rows == ROWS
    parquet = pytest.importorskip("pyarrow.parquet")
    same(parquet.read_table("b/set", filesystem=fs).to_pandas(), whole)
    told = pyarrow.fs.PyFileSystem(pyarrow.fs.FSSpecHandler(fs)).get_file_info("b/csv/part-0.csv")
    assert told.mtime_ns == 1793613600 * 10**9


def test_duckdb(fs: Any, whole: Any) -> None:
    duckdb = pytest.importorskip("duckdb")
    with duckdb.connect() as connection:
        connection.register_filesystem(fs)
        for pattern in ("foretell://b/set/*.parquet", "foretell://s3://b/set/part-?.parquet"):
            found = connection.sql(f"SELECT * FROM read_parquet('{pattern}')").df()
            same(found, whole)
        found = connection.sql("SELECT * FROM read_csv('foretell://b/csv/*.csv')").df()
        same(found, whole)
        counted = connection.sql(
            "SELECT n, count(*), min(filename) FROM read_parquet('foretell://b/hive/**/*.parquet',"
            " hive_partitioning = true, filename = true) GROUP BY n ORDER BY n"
        ).fetchall()
        assert [one[:2] for one in counted] == [(number, ROWS) for number in range(PARTS)]
        assert counted[1][2] == "foretell://s3://b/hive/n=1/x.parquet"
        with pytest.raises(duckdb.IOException):
            connection.sql("SELECT * FROM read_parquet('foretell://b/absent/*.parquet')")


@pytest.mark.filterwarnings("ignore:The inplace keyword")
def test_dask(options: dict[str, Any], whole: Any) -> None:
    dask = pytest.importorskip("dask")
    frames = pytest.importorskip("dask.dataframe")
    bag = pytest.importorskip("dask.bag")
    with dask.config.set(scheduler="threads"):
        found = frames.read_parquet("foretell://b/set", storage_options=options)
        same(found.compute(), whole)
        found = frames.read_parquet("foretell://b/set/*.parquet", storage_options=options)
        assert found["value"].sum().compute() == pytest.approx(whole["value"].sum())
        found = frames.read_csv("foretell://b/csv/*.csv", storage_options=options, blocksize=20_000)
        same(found.compute(), whole)
        lines = bag.read_text("foretell://b/csv/*.csv", storage_options=options)
        assert lines.count().compute() == PARTS * (ROWS + 1)


def test_dask_notices_what_changes(served: Bucket, options: dict[str, Any]) -> None:
    base = pytest.importorskip("dask.base")
    bytes_of = pytest.importorskip("dask.bytes")
    served.objects["changing"] = b"1" * 1000

    def names() -> tuple[str, str]:
        _, (blocks,) = bytes_of.read_bytes("foretell://b/changing", sample=False, **options)
        with fsspec.open("foretell://b/changing", **options) as file:
            return blocks[0].key, base.tokenize(file)

    before = names()
    assert names() == before
    served.objects["changing"] = b"2" * 1000
    after = names()
    assert after[0] != before[0]
    assert after[1] != before[1]


@pytest.mark.parametrize("engine", ["auto", "pyarrow"])
def test_parquet_of_fsspec(fs: Any, engine: str) -> None:
    parquet = pytest.importorskip("fsspec.parquet")
    paths = [f"b/set/part-{number}.parquet" for number in range(PARTS)]
    size = fs.size(paths[0])
    for sample in (1_000_000, size, 10_000):  # Longer than the file, and shorter.
        with parquet.open_parquet_file(
            paths[0], fs=fs, columns=["value"], engine=engine, footer_sample_size=sample
        ) as file:
            found = pandas.read_parquet(file, columns=["value"], engine="pyarrow")
        pandas.testing.assert_frame_equal(found, part(0)[["value"]])
    for columns in (["id"], None):
        files = parquet.open_parquet_files(paths, fs=fs, columns=columns, engine=engine)
        for number, file in enumerate(files):
            found = pandas.read_parquet(file, columns=columns, engine="pyarrow")
            expected = part(number) if columns is None else part(number)[columns]
            pandas.testing.assert_frame_equal(found, expected, check_dtype=False)
    files = parquet.open_parquet_files("b/set/*.parquet", fs=fs, columns=["id"], engine=engine)
    assert len(files) == PARTS


def mean(data: Any) -> float:
    return float(data["values"].mean())


def test_xarray_in_workers(served: Bucket, fs: Any) -> None:
    xarray = pytest.importorskip("xarray")
    pytest.importorskip("h5netcdf")
    values = np.arange(2000.0).reshape(40, 50)
    made = io.BytesIO()
    pytest.importorskip("h5py")
    xarray.Dataset({"values": (("x", "y"), values)}).to_netcdf(made, engine="h5netcdf")
    served.objects["set.nc"] = made.getvalue()
    store = foretell.Store("s3://b", settings=served.settings)
    for file in (fs.open("b/set.nc"), store.open("set.nc")):
        data = xarray.open_dataset(file, engine="h5netcdf", chunks=None)
        again = pickle.loads(pickle.dumps(data))
        np.testing.assert_array_equal(again["values"].values, values)
        with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
            assert pool.submit(mean, data).result(60) == values.mean()


def test_pillow(served: Bucket, fs: Any) -> None:
    images = pytest.importorskip("PIL.Image")
    pixels = np.random.default_rng(1).integers(0, 255, (50, 60, 3), dtype=np.uint8)
    made = io.BytesIO()
    images.fromarray(pixels).save(made, "PNG")
    served.objects["image.png"] = made.getvalue()
    with fs.open("b/image.png") as file, images.open(file) as image:
        np.testing.assert_array_equal(np.asarray(image), pixels)


def test_references(served: Bucket, fs: Any) -> None:
    """References as kerchunk makes them: numpy integers, several ranges of one object, whole objects."""
    served.objects["chunks"] = bytes(range(256)) * 100
    references = {
        "a/0": ["foretell://b/chunks", np.int64(0), np.int64(100)],
        "a/1": ["foretell://b/chunks", np.int64(100), np.int64(50)],
        "b/0": ["foretell://b/chunks"],
        "c": "inline",
    }
    reference = fsspec.filesystem("reference", fo=references, fs=fs, skip_instance_cache=True)
    found = reference.cat(["a/0", "a/1", "b/0", "c"])
    plain = served.objects["chunks"]
    assert found == {"a/0": plain[:100], "a/1": plain[100:150], "b/0": plain, "c": b"inline"}


def test_duckdb_on_a_folder_of_a_bucket(fs: Any, whole: Any) -> None:
    """duckdb/duckdb#8177."""
    duckdb = pytest.importorskip("duckdb")
    folder = fsspec.filesystem("dir", path="b/set", fs=fs, skip_instance_cache=True)
    with duckdb.connect() as connection:
        connection.register_filesystem(folder)
        same(connection.sql("SELECT * FROM read_parquet('dir://part-*.parquet')").df(), whole)


def test_zarr_on_a_web_server() -> None:
    """A file system without listings: fsspec/filesystem_spec#375."""
    zarr = pytest.importorskip("zarr", minversion="3")
    kept: dict[str, Any] = {}
    values = np.arange(600.0).reshape(20, 30)
    group = zarr.open_group(zarr.storage.MemoryStore(kept), mode="w")
    made = group.create_array("values", shape=values.shape, chunks=(5, 10), dtype=values.dtype)
    made[:] = values
    with warnings.catch_warnings(action="ignore"):
        zarr.consolidate_metadata(group.store)
    pages = {f"/set.zarr/{name}": bytes(one.to_bytes()) for name, one in kept.items()}
    with web(pages) as site:
        opened = zarr.open_group(f"foretell::{site.url}/set.zarr", mode="r")
        assert list(opened) == ["values"]
        np.testing.assert_array_equal(opened["values"][3:17, 5:25], values[3:17, 5:25])
