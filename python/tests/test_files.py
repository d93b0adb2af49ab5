"""Files as libraries use them: lines, and methods besides `read`. Also panics, which never reach standard error."""

import csv
import io
import os
import pickle
import random
import subprocess
import sys
import tarfile
import zipfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import foretell

TEXTS = {
    "empty": b"",
    "newline": b"\n",
    "no end": b"a\nb",
    "only": b"abc",
    "crlf": b"a\r\nb\r\n\r\n",
    "long": b"x" * 300_000 + b"\n" + b"y" * 70_000 + b"\n\n" + b"z" * 16_384,
    "window": b"a" * 16_383 + b"\n" + b"b" * 16_384 + b"\n" + b"c" * 32_768 + b"\nd",
    "many": b"".join(b"line %d of many\n" % number for number in range(30_000)),
}


@pytest.fixture
def texts(tmp_path: Path) -> Path:
    for name, text in TEXTS.items():
        (tmp_path / name).write_bytes(text)
    return tmp_path


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_lines(texts: Path, name: str) -> None:
    store = foretell.Store(texts)
    with store.open(name) as file, open(texts / name, "rb") as plain:
        assert list(file) == list(plain)
        assert file.tell() == plain.tell()
        assert file.readline() == b""
    with store.open(name) as file:
        assert file.readlines() == TEXTS[name].splitlines(keepends=True) or b"\r" in TEXTS[name]
    with store.open(name) as file, open(texts / name, newline="") as plain_text:
        assert list(io.TextIOWrapper(file, newline="")) == list(plain_text)


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_lines_and_reads_in_any_order(texts: Path, name: str) -> None:
    """After any reads, a line begins at the position, and the position is at its end afterwards."""
    source = random.Random(name)
    size = len(TEXTS[name])
    with foretell.Store(texts).open(name) as file, io.BytesIO(TEXTS[name]) as plain:
        for _ in range(400):
            act, number = source.randrange(6), source.randrange(1 << source.randrange(1, 18))
            if act == 0:
                at = source.randrange(size + 2)
                assert file.seek(at) == plain.seek(at)
            elif act == 1:
                assert file.read(number) == plain.read(number)
            elif act == 2:
                assert file.readline(number) == plain.readline(number)
            elif act == 3:
                buffers = bytearray(number), bytearray(number)
                assert file.readinto(buffers[0]) == plain.readinto(buffers[1])
                assert buffers[0] == buffers[1]
            else:
                assert file.readline() == plain.readline()
            assert file.tell() == plain.tell()


def test_lines_are_not_read_one_by_one(texts: Path) -> None:
    store = foretell.Store(texts)
    with store.open("many") as file:
        assert sum(1 for _ in file) == 30_000
    counts = store.stats()
    blocks = -(-len(TEXTS["many"]) // store.block_bytes)
    read = counts["hit_blocks"] + counts["joined_blocks"] + counts["demanded_blocks"]
    assert blocks <= read < 10 * blocks


def test_what_libraries_ask_of_a_file(texts: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    fs = fsspec.filesystem("foretell", target_protocol="file")
    path = str(texts / "many")
    with fs.open(path) as file, fsspec.filesystem("file").open(path) as plain:
        assert file.fs is fs
        assert file.path == path
        assert file.mode == "rb"
        assert file.size == len(TEXTS["many"])
        assert file.details == file.info() == fs.info(path)
        assert file.full_name == f"foretell://file://{path}"
        assert file.blocksize == fs.blocksize
        assert file.cache._fetch(3, 9) == TEXTS["many"][3:9]
        assert not hasattr(file, "getvalue")  # Only in-memory files have it.
        assert file.read1(10) == plain.read(10)
        assert file.loc == file.tell() == 10
        buffer = bytearray(20)
        assert file.readinto1(buffer) == 20
        assert buffer == plain.read(20)
        assert file.readuntil() == plain.readline()
        rest = plain.readline() + plain.read(2)
        assert file.readuntil(b"any\nli", blocks=3) == rest
        assert file.loc == file.tell() == plain.tell()
        assert 0 < len(file.read1()) <= file.size
        file.loc = 5
        assert file.readuntil(b"absent") == TEXTS["many"][5:]
        assert file.readable()
        assert file.seekable()
        assert not file.writable()
        assert not file.isatty()


def test_readers_of_the_standard_library(tmp_path: Path) -> None:
    rows = [[str(number), f"value {number}"] for number in range(2000)]
    with open(tmp_path / "rows.csv", "w", newline="") as file:
        csv.writer(file).writerows(rows)
    with zipfile.ZipFile(tmp_path / "files.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.write(tmp_path / "rows.csv", "rows.csv")
    with tarfile.open(tmp_path / "files.tar.gz", "w:gz") as tarred:
        tarred.add(tmp_path / "rows.csv", "rows.csv")
    with open(tmp_path / "pickled", "wb") as out:
        pickle.dump(rows, out)
    np.save(tmp_path / "array.npy", np.arange(10_000))
    np.savez_compressed(tmp_path / "arrays.npz", a=np.arange(100), b=np.ones(3))
    plain = (tmp_path / "rows.csv").read_bytes()
    store = foretell.Store(tmp_path)
    with store.open("rows.csv") as raw:
        assert list(csv.reader(io.TextIOWrapper(raw, newline=""))) == rows
    with store.open("files.zip") as raw, zipfile.ZipFile(raw) as packed:
        assert packed.read("rows.csv") == plain
    for name, mode in (("files.tar.gz", "r|gz"), ("files.tar.gz", "r:gz"), ("files.tar.gz", "r")):
        with store.open(name) as raw, tarfile.open(fileobj=raw, mode=mode) as tarred:  # type: ignore[call-overload]
            member = tarred.next()
            assert tarred.extractfile(member).read() == plain
    with store.open("pickled") as raw:
        assert pickle.load(raw) == rows
    with store.open("array.npy") as raw:
        np.testing.assert_array_equal(np.load(raw), np.arange(10_000))
    with store.open("arrays.npz") as raw, np.load(raw) as arrays:
        np.testing.assert_array_equal(arrays["a"], np.arange(100))


@pytest.mark.parametrize("engine", ["c", "python", "pyarrow"])
def test_pandas_reads_csv(tmp_path: Path, engine: Any) -> None:
    pandas = pytest.importorskip("pandas")
    frame = pandas.DataFrame({"a": range(5000), "b": ["text"] * 5000})
    frame.to_csv(tmp_path / "frame.csv", index=False)
    frame.to_csv(tmp_path / "frame.csv.gz", index=False)
    store = foretell.Store(tmp_path)
    with store.open("frame.csv") as raw:
        found = pandas.read_csv(raw, engine=engine)
    pandas.testing.assert_frame_equal(found, pandas.read_csv(tmp_path / "frame.csv", engine=engine))
    with store.open("frame.csv.gz") as raw:
        found = pandas.read_csv(raw, engine=engine, compression="gzip")
    pandas.testing.assert_frame_equal(found, pandas.read_csv(tmp_path / "frame.csv", engine=engine))


FAULTY = {
    "open": "store.open('file')",
    "open of an object": "bucket.open('file')",
    "info": "list(store.read_ranges([('file', 0, 1)]))",
    "async": "asyncio.run(store.open_async('file'))",
    "any order": "list(store.read_ranges([('file', 0, 1)], ordered=False))",
    "read": "store.open('file').read()",
    "line": "store.open('file').readline()",
    "readinto": "store.open('file').readinto(bytearray(5))",
    "read_at_async": "asyncio.run(store.read_async('file', 0, 5))",
}


@pytest.mark.parametrize("call", sorted(FAULTY))
def test_a_panic_is_an_error_of_one_line(tmp_path: Path, call: str) -> None:
    (tmp_path / "file").write_bytes(b"bytes")
    reads = FAULTY[call].startswith(("store.open('file').", "asyncio.run(store.read"))
    program = f"""
import asyncio, foretell, sys
sys.path.insert(0, {str(Path(__file__).parent)!r})
from servers import bucket
with bucket({{"file": b"bytes"}}) as served:
    store = foretell.Store({str(tmp_path)!r})
    bucket = foretell.Store("s3://b", settings=served.settings)
    try:
        {FAULTY[call]}
    except foretell.Error as error:
        print(type(error).__name__, error.errno, error.strerror)
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        timeout=120,
        env={**os.environ, "FORETELL_TEST_FAULT": "read" if reads else "open"},
        check=False,
    )
    assert done.stderr == ""
    assert done.stdout.startswith("Error 5 foretell itself failed: a test asked for it (faults.rs:")
    assert "please report this line" in done.stdout
    assert done.stdout.count("\n") == 1
