"""The tests that fsspec has for every file system, over a folder and over the slow store.

foretell reads only, and these tests make the files that they read. So the file system here is foretell's, with all that writes
handed to that of the target: what is tested is that foretell finds and reads what somebody else has just made, replaced or
removed: `AbstractGetTests` whole; `AbstractOpenTests` and `AbstractPipeTests`, over the folder.

Not here: `AbstractPutTests` and `AbstractCopyTests`, whose subject is writing alone; and over the store the other two, since
they end with the making of what must not be there yet, which is between s3fs and AWS. What is left of them is in `Replacing`.
"""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from conftest import Served

fsspec = pytest.importorskip("fsspec")

from fsspec.tests import abstract  # noqa: E402

from foretell.fsspec import ForetellFileSystem  # noqa: E402


class Filled(ForetellFileSystem):
    """Writes through the target's file system; `opened` has the paths that foretell opened."""

    cachable = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.opened: list[str] = []

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> Any:
        if mode != "rb":
            return self.fs.open(path, mode, **kwargs)
        self.opened.append(path)
        return super()._open(path, mode, **kwargs)

    def touch(self, path: str, *args: Any, **kwargs: Any) -> None:
        self.fs.touch(path, *args, **kwargs)

    def mkdir(self, path: str, *args: Any, **kwargs: Any) -> None:
        self.fs.mkdir(path, *args, **kwargs)

    def makedirs(self, path: str, *args: Any, **kwargs: Any) -> None:
        self.fs.makedirs(path, *args, **kwargs)

    def pipe_file(self, path: str, *args: Any, **kwargs: Any) -> None:
        self.fs.pipe_file(path, *args, **kwargs)

    def rm(self, path: Any, *args: Any, **kwargs: Any) -> None:
        self.fs.rm(path, *args, **kwargs)


class OverAFolder(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs(self) -> Filled:
        return Filled(fs=fsspec.filesystem("file", auto_mkdir=True, skip_instance_cache=True))

    @pytest.fixture
    def fs_path(self, tmp_path: Path) -> str:
        path = tmp_path / "remote"
        path.mkdir()
        return str(path)


@pytest.fixture(scope="module")
def target(slow: Served) -> Any:
    """One for all tests, because s3fs takes a second to start."""
    pytest.importorskip("s3fs")
    return fsspec.filesystem("s3", skip_instance_cache=True, **slow.s3fs_options)


class OverTheStore(abstract.AbstractFixtures):  # type: ignore[misc]
    @pytest.fixture
    def fs(self, target: Any) -> Filled:
        return Filled(fs=target)

    @pytest.fixture
    def fs_join(self) -> Callable[..., str]:
        return lambda *parts: "/".join(parts)

    @pytest.fixture
    def fs_path(self, tmp_path: Path) -> str:
        return f"made/{tmp_path.name}"

    @pytest.fixture
    def supports_empty_directories(self) -> bool:
        return False


class TestGetFromAFolder(OverAFolder, abstract.AbstractGetTests):  # type: ignore[misc]
    pass


class TestOpenOfAFolder(OverAFolder, abstract.AbstractOpenTests):  # type: ignore[misc]
    pass


class TestPipeToAFolder(OverAFolder, abstract.AbstractPipeTests):  # type: ignore[misc]
    pass


class TestGetFromTheStore(OverTheStore, abstract.AbstractGetTests):  # type: ignore[misc]
    pass


class Replacing:
    """The reading tests of `AbstractOpenTests` and `AbstractPipeTests`."""

    def test_what_was_replaced_is_read_anew(self, fs: Filled, fs_target: str) -> None:
        with fs.open(fs_target, "wb") as file:
            file.write(b"data")
        with fs.open(fs_target, "rb") as file:
            assert file.read() == b"data"
        assert fs.cat_file(fs_target) == b"data"
        fs.pipe_file(fs_target, b"new data")
        assert fs.cat_file(fs_target) == b"new data"
        assert fs.info(fs_target)["size"] == 8
        assert fs.opened
        fs.rm(fs_target)
        assert not fs.exists(fs_target)
        with pytest.raises(FileNotFoundError):
            fs.open(fs_target)


class TestReplacingOfAFolder(OverAFolder, Replacing):
    pass


class TestReplacingOfTheStore(OverTheStore, Replacing):
    pass


@pytest.mark.parametrize("kind", [OverAFolder, OverTheStore])
def test_foretell_does_the_reading(kind: Any, tmp_path: Path, request: Any) -> None:
    """Otherwise the classes above would test the target alone."""
    if kind is OverAFolder:
        fs = Filled(fs=fsspec.filesystem("file", auto_mkdir=True))
        path = str(tmp_path)
    else:
        fs = Filled(fs=request.getfixturevalue("target"))
        path = f"made/{tmp_path.name}"
    fs.pipe_file(f"{path}/file", b"bytes")
    fs.get(f"{path}/file", str(tmp_path / "got"))
    assert (tmp_path / "got").read_bytes() == b"bytes"
    assert fs.opened == [f"{path}/file"]
