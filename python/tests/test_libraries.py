"""fsspec, and libraries that read files that are given to them. Each is skipped, aloud, where it is not installed."""

import pickle
from pathlib import Path

import numpy as np
import pytest
from conftest import KEYS, Served

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
    with fs.open(f"{data}/sub/7.bin") as file, pytest.raises(OSError, match="not writable"):
        file.write(b"")
    with pytest.raises(NotImplementedError):
        fs.open(f"{path}/new", "wb")


def test_fsspec_objects(served: Served, data: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    options = {
        "key": KEYS["aws_access_key_id"],
        "secret": KEYS["aws_secret_access_key"],
        "endpoint_url": served.endpoint,
    }
    target = {"target_protocol": "s3", "target_options": options, "depth": 8}
    with fsspec.open("foretell://data/odd", **target) as file:
        assert file.read() == (data / "odd").read_bytes()
    fs = fsspec.filesystem("foretell", target_protocol="s3", target_options=options)
    assert fs.info("data/small") == {"name": "data/small", "size": 5000, "type": "file"}
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
    try:
        import s3fs  # noqa: F401
    except ImportError:
        with pytest.raises(ImportError):
            fs.ls("data")
        assert not fs.exists("data/absent")


def test_pandas(tmp_path: Path) -> None:
    pandas = pytest.importorskip("pandas")
    pytest.importorskip("pyarrow")
    frame = pandas.DataFrame(
        {"a": np.arange(100_000), "b": np.random.default_rng(1).random(100_000)}
    )
    frame.to_parquet(tmp_path / "frame.parquet", row_group_size=10_000)
    with foretell.Store(tmp_path).open("frame.parquet") as file:
        pandas.testing.assert_frame_equal(pandas.read_parquet(file), frame)
    found = pandas.read_parquet(f"foretell::file://{tmp_path}/frame.parquet", columns=["b"])
    pandas.testing.assert_frame_equal(found, frame[["b"]])


def test_h5py(tmp_path: Path) -> None:
    h5py = pytest.importorskip("h5py")
    values = np.random.default_rng(1).random((1000, 300))
    with h5py.File(tmp_path / "file.h5", "w") as file:
        file.create_dataset("values", data=values, chunks=(50, 50), compression="gzip")
    with foretell.Store(tmp_path).open("file.h5") as raw, h5py.File(raw, "r") as file:
        np.testing.assert_array_equal(file["values"][100:900:7, 5:200], values[100:900:7, 5:200])


def test_zarr(tmp_path: Path) -> None:
    zarr = pytest.importorskip("zarr")
    pytest.importorskip("fsspec")
    values = np.random.default_rng(1).random((500, 300))
    made = zarr.create_array(
        str(tmp_path / "array.zarr"), shape=values.shape, chunks=(50, 50), dtype=values.dtype
    )
    made[:] = values
    try:
        found = zarr.open_array(f"foretell::file://{tmp_path}/array.zarr", mode="r")
    except (ImportError, TypeError) as error:
        pytest.skip(f"this zarr does not take it: {error}")
    np.testing.assert_array_equal(found[33:444, 5:200], values[33:444, 5:200])


def test_uproot(tmp_path: Path) -> None:
    uproot = pytest.importorskip("uproot")
    values = np.arange(10_000) * 0.5
    with uproot.recreate(tmp_path / "file.root") as file:
        file.mktree("tree", {"x": np.float64})
        file["tree"].extend({"x": values})
    with foretell.Store(tmp_path).open("file.root") as raw, uproot.open(raw) as file:
        np.testing.assert_array_equal(file["tree"]["x"].array(library="np"), values)
