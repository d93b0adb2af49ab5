"""Files of foretell's file system of fsspec."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from fsspec.caching import BaseCache

from foretell._store import File, check_version

if TYPE_CHECKING:
    from foretell.fsspec import ForetellFileSystem


class ForetellFile(File):
    """A file of `ForetellFileSystem.open`: a `foretell.File` with the attributes that libraries expect of fsspec's files."""

    fs: ForetellFileSystem
    path: str
    blocksize: int
    autocommit = True

    @classmethod
    def at(cls, fs: ForetellFileSystem, path: str) -> ForetellFile:
        """Open the file at `path`."""
        store, key = fs.store(path)
        file = cls(store, key, store._borrow(key))
        file.fs, file.path, file.blocksize = fs, path, fs.blocksize
        return file

    @property
    def details(self) -> dict[str, Any]:
        """The current `info` of its path."""
        return self.fs.info(self.path)

    def info(self) -> dict[str, Any]:
        """Return the current `info` of its path."""
        self._check_open()
        return self.details

    @property
    def full_name(self) -> str:
        """The path with its protocols."""
        return self.fs.unstrip_protocol(self.path)

    @property
    def cache(self) -> Any:
        """An fsspec cache that keeps nothing, because foretell has its own."""
        return self.__dict__.get("cache") or BaseCache(self.blocksize, self._fetch_range, self.size)

    # fsspec's `blockcache` sets the next two. It then keeps nothing, because reads do not go through it.

    @cache.setter
    def cache(self, cache: Any) -> None:
        self.__dict__["cache"] = cache

    @property
    def closed(self) -> bool:
        """Whether it is closed."""
        return super().closed

    @closed.setter
    def closed(self, is_closed: bool) -> None:
        if is_closed:
            super().close()

    def _fetch_range(self, start: int, end: int) -> bytes:
        return self.read_at(start, end - start)

    def __reduce__(self) -> tuple[Any, ...]:
        return _reopened, (self.fs, self.path, self.tell(), self._version)

    def __dask_tokenize__(self) -> tuple[object, ...]:
        return type(self).__name__, self.full_name, self._version


def _reopened(fs: ForetellFileSystem, path: str, position: int, version: bytes) -> ForetellFile:
    file = ForetellFile.at(fs, path)
    check_version(file, version)
    file.seek(position)
    return file
