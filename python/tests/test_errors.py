"""Which error becomes which exception."""

import errno
import os
from pathlib import Path
from typing import Any

import pytest
from conftest import Served

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


def test_files(tmp_path: Path) -> None:
    store = foretell.Store(tmp_path)
    with pytest.raises(foretell.NotFound) as absent:
        store.open("absent")
    assert str(absent.value) == "[Errno 2] not found: 'absent'"
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
    store = foretell.Store("s3://data", timeout=0.3, settings=silent.settings)
    with pytest.raises(foretell.Error):
        store.open("small")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"url": "ftp://host"}, "an address begins with"),
        ({"url": "file://host/folder"}, "another machine"),
        ({"url": "/", "budget": "much"}, "is no size"),
        ({"url": "/", "budget": 100}, "does not hold one block"),
        ({"url": "/", "block": 5000}, "power of two"),
        ({"url": "/", "depth": 0}, "a depth of 0"),
        ({"url": "/", "timeout": -1}, "a timeout"),
        ({"url": "/", "settings": {"a": "b"}}, "no settings"),
        ({"url": "s3://b", "settings": {"nonsense": "b"}}, "nonsense"),
    ],
)
def test_arguments(arguments: dict[str, object], words: str) -> None:
    with pytest.raises(ValueError, match=words):
        foretell.Store(**arguments)


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
    with pytest.raises(ValueError, match="negative"):
        list(store.read_ranges("small", [(0, -1)]))
    with pytest.raises(ValueError, match="negative"):
        store.open("small").read_at(-1, 1)


def test_a_closed_store(store: foretell.Store) -> None:
    file = store.open("small")
    store.close()
    assert len(file.read()) == 5000
    with pytest.raises(RuntimeError, match="closed"):
        store.open("small")
