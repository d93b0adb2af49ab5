"""The mapping of errors to exceptions."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from conftest import Gated, Served

import foretell
from foretell import _foretell

TABLE = [
    ("not-found", foretell.NotFound, FileNotFoundError, errno.ENOENT, "not found"),
    ("denied", foretell.PermissionDenied, PermissionError, errno.EACCES, "permission denied: "),
    ("busy", foretell.Busy, foretell.Error, errno.EBUSY, "the device is busy: "),
    ("changed", foretell.Changed, foretell.Error, errno.ESTALE, "changed since it was opened"),
    ("timeout", foretell.Timeout, TimeoutError, errno.ETIMEDOUT, "no answer within 60 s"),
    ("lost", foretell.Error, OSError, errno.EIO, "the request was given up"),
    ("other", foretell.Error, OSError, errno.EIO, "in its own words"),
    ("errno", foretell.Error, OSError, errno.ENOSPC, "in its own words"),
]


@pytest.mark.parametrize(("cause", "kind", "base", "number", "words"), TABLE)
def test_the_table(
    cause: str, kind: type[OSError], base: type[OSError], number: int, words: str
) -> None:
    error = _foretell._error_of(cause)
    assert type(error) is kind
    assert isinstance(error, base)
    assert isinstance(error, foretell.Error)
    assert (error.errno, error.filename) == (number, "a/path")
    assert error.strerror is not None
    assert words in error.strerror
    assert "\n" not in str(error)


@pytest.mark.parametrize(
    ("cause", "place", "kind", "words"),
    [
        ("not-found", "/folder", foretell.NotFound, "not found in /folder"),
        (
            "not-found",
            "s3://b",
            foretell.NotFound,
            "not found in s3://b, or there is no such bucket",
        ),
        ("not-found", "http://h", foretell.NotFound, "not found in http://h"),
        ("denied", "s3://b", foretell.PermissionDenied, "credentials for s3://b are those of `set"),
        (
            "gone",
            "s3://b",
            foretell.Error,
            "no connection: refused; is the endpoint of s3://b right, and up?",
        ),
        ("timeout", "s3://b", foretell.Timeout, "no answer within 60 s"),
    ],
)
def test_what_is_told_of_an_opening(cause: str, place: str, kind: type, words: str) -> None:
    error = _foretell._error_of(cause, place)
    assert type(error) is kind
    assert error.filename == "a/path"
    assert words in str(error.strerror)
    assert "\n" not in str(error)


def test_files(tmp_path: Path) -> None:
    store = foretell.Store(tmp_path)
    with pytest.raises(foretell.NotFound) as absent:
        store.open("absent")
    assert str(absent.value) == f"[Errno 2] not found in {tmp_path}: 'absent'"
    with pytest.raises(foretell.NotFound):
        store.open("../etc/passwd")
    (tmp_path / "file").write_bytes(b"1" * 20_000)
    file = store.open("file")
    (tmp_path / "file").write_bytes(b"2" * 10_000)
    with pytest.raises(foretell.Changed):
        file.read()
    assert store.open("file").read() == b"2" * 10_000
    if os.getuid() != 0:
        (tmp_path / "file").chmod(0)
        with pytest.raises(foretell.PermissionDenied):
            store.open("file")


def test_objects(served: Served, silent: Served) -> None:
    store = foretell.Store("s3://data", settings=served.settings)
    with pytest.raises(foretell.NotFound):
        store.open("absent")
    wrong = {**served.settings, "aws_secret_access_key": "wrong"}
    with pytest.raises(foretell.PermissionDenied):
        foretell.Store("s3://data", settings=wrong).open("small")
    with pytest.raises(foretell.NotFound, match="s3://other, or there is no such bucket"):
        foretell.Store("s3://other", settings=served.settings).open("small")
    with pytest.raises(foretell.Error, match="it is s3://data itself, not a file in it"):
        store.open("")
    store = foretell.Store("s3://data", timeout=0.3, settings=silent.settings)
    with pytest.raises(foretell.Error):
        store.open("small")


def test_a_server_that_is_gone(gated: Gated) -> None:
    store = foretell.Store(gated.url, timeout=0.5)
    file = store.open("file")
    gated.stop()
    for use in (file.read, lambda: store.open("other")):
        with pytest.raises(foretell.Error, match="no connection: ") as gone:
            use()
        assert "\n" not in str(gone.value)


def test_what_anybody_may_read_needs_no_credentials(served: Served, data: Path) -> None:
    settings = {"aws_endpoint": served.endpoint, "skip_signature": "true"}
    with foretell.Store("s3://data", settings=settings).open("small") as file:
        assert file.read() == (data / "small").read_bytes()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"url": "/", "budget": 1.5}, "1.5 is not a size"),
        ({"url": "/", "block": "much"}, "'much' is not a size"),
        ({"url": "s3://b", "settings": {"aws_allow_http": True}}, "aws_allow_http is True"),
        ({"url": "ftp://host"}, "an address begins with"),
        ({"url": "file://host/folder"}, "another machine"),
        ({"url": "/", "budget": "much"}, "is not a size"),
        ({"url": "/", "budget": 100}, "does not hold one block"),
        ({"url": "/", "block": 5000}, "power of two"),
        ({"url": "/", "depth": 0}, "a depth of 0"),
        ({"url": "/", "timeout": -1}, "a timeout"),
        ({"url": "/", "settings": {"a": "b"}}, "no settings"),
        ({"url": "s3://b", "settings": {"nonsense": "b"}}, "nonsense"),
    ],
)
def test_arguments(arguments: dict[str, Any], words: str) -> None:
    with pytest.raises((ValueError, TypeError), match=words):
        foretell.Store(**arguments)


def test_arguments_of_several_types(data: Path) -> None:
    import numpy as np

    store = foretell.Store(os.fsencode(data), budget=np.int64(1 << 20), block="16KiB")  # type: ignore[arg-type]
    assert store.block_bytes == 16384
    assert store.open(Path("sub/7.bin")).size == 1007


def test_ranges(store: foretell.Store) -> None:
    import numpy as np

    wrongs: list[Any] = [
        [(1, 2, 3)],
        [(-1, 2)],
        [(0, -2)],
        [7],
        np.zeros((3, 3), int),
        np.zeros(4, int),
    ]
    for wrong in wrongs:
        with pytest.raises((ValueError, TypeError)):
            store.hint("small", wrong)
    with pytest.raises(TypeError):
        store.hint("small", np.zeros((3, 2)))
    with pytest.raises(TypeError, match="of format '>q': make it one of int64"):
        store.hint("small", np.zeros((3, 2), ">i8"))
    for item in [(0, 1), ("small", 0), ("small", "0", 1), ("small", 0.0, 1), (7, 0, 1), 7]:
        for ordered in (True, False):
            with pytest.raises(TypeError, match=r"is not \(path, offset, length\)"):
                list(store.read_ranges([item], ordered=ordered))  # type: ignore
    with pytest.raises(ValueError, match="negative"):
        list(store.read_ranges("small", [(0, -1)]))
    with pytest.raises(ValueError, match="negative"):
        store.open("small").read_at(-1, 1)


def test_a_stream_of_another_store(store: foretell.Store, data: Path) -> None:
    other = foretell.Store(data)
    with pytest.raises(ValueError, match="of another store than the file"):
        other.hint("small", stream=store.hint("small"))


def test_a_closed_store(store: foretell.Store) -> None:
    file = store.open("small")
    store.close()
    assert len(file.read()) == 5000
    with pytest.raises(RuntimeError, match="closed"):
        store.open("small")
