"""foretell as a file system of fsspec: ``foretell::s3://bucket/key``.

It reads through `foretell.Store`. What stores cannot say (folders, patterns) is asked of fsspec's own file system for the same
address, `fs`, which must be installed for that (`s3fs`, `gcsfs`, `adlfs`, `aiohttp`). fsspec itself wants it for addresses of
the chained form; where the protocol is told by an option, reading, `info`, `exists` and `size` of files do without it.

>>> import fsspec
>>> with fsspec.open("foretell::s3://bucket/key") as file: ...
>>> with fsspec.open("foretell://bucket/key", target_protocol="s3") as file: ...
>>> fs = fsspec.filesystem("foretell", target_protocol="s3", budget="1GiB")
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, SupportsIndex
from urllib.parse import urlsplit

import fsspec
from fsspec.implementations.chained import ChainedFileSystem

from foretell import _ranges
from foretell._errors import NotFound
from foretell._store import File, Store, Stream

_SCHEMES = {
    "file": "file",
    "local": "file",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "abfs": "az",
    "http": "http",
    "https": "http",
}

# Names of s3fs, and of foretell's settings.
_S3_NAMES = {
    "key": "aws_access_key_id",
    "secret": "aws_secret_access_key",
    "token": "aws_session_token",
    "endpoint_url": "aws_endpoint",
}


def _s3_settings(options: Mapping[str, Any]) -> dict[str, str]:
    options = {**(options.get("client_kwargs") or {}), **options}
    settings = {to: str(options[name]) for name, to in _S3_NAMES.items() if options.get(name)}
    if options.get("region_name"):
        settings["aws_region"] = str(options["region_name"])
    if options.get("anon"):
        settings["aws_skip_signature"] = "true"
    return settings


class ForetellFileSystem(ChainedFileSystem):  # type: ignore[misc]
    """Reads files of another file system through foretell.

    Args:
        target_protocol: ``s3``, ``gs``, ``az``, ``http``, ``https`` or ``file`` (the default).
        target_options: For fsspec's file system of that protocol. Of those of s3fs, ``key``, ``secret``, ``token``,
            ``endpoint_url``, ``anon`` and the region are for foretell too.
        fs: That file system, instead of the two above.
        budget, block, depth, timeout, settings: As those of `foretell.Store`. There is one store for each bucket or host
            that is used, each with such a budget; for ``file`` there is one.

    """

    protocol = "foretell"
    root_marker = ""

    def __init__(
        self,
        target_protocol: str | None = None,
        target_options: Mapping[str, Any] | None = None,
        fs: fsspec.AbstractFileSystem | None = None,
        budget: SupportsIndex | str = "256MiB",
        block: SupportsIndex | str = 16384,
        depth: int | None = None,
        timeout: float = 60.0,
        settings: Mapping[str, str] | None = None,
        **kwargs: Any,
    ) -> None:
        super().__init__(**kwargs)
        if fs is not None:
            protocols = [fs.protocol] if isinstance(fs.protocol, str) else list(fs.protocol)
        else:
            protocols = [target_protocol or "file"]
        known = [_SCHEMES[name] for name in protocols if name in _SCHEMES]
        if not known:
            raise ValueError(f"foretell reads {', '.join(_SCHEMES)}; not {protocols[0]}")
        self._scheme = known[0]
        self._target_protocol = protocols[0]
        self._target_options = dict(target_options or (fs.storage_options if fs else {}))
        self._target = fs
        self._options: dict[str, Any] = {
            "budget": budget,
            "block": block,
            "depth": depth,
            "timeout": timeout,
        }
        found = _s3_settings(self._target_options) if self._scheme == "s3" else {}
        self._settings = {**found, **(settings or {})} or None
        self._stores: dict[str, Store] = {}

    @property
    def fs(self) -> fsspec.AbstractFileSystem:
        """Fsspec's own file system for the same addresses."""
        if self._target is None:
            self._target = fsspec.filesystem(self._target_protocol, **self._target_options)
        return self._target

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        for prefix in ("foretell::", "foretell://"):
            path = path.removeprefix(prefix)
        scheme, separator, rest = path.partition("://")
        if separator and _SCHEMES.get(scheme, "http") != "http":
            path = rest
        return path.rstrip("/") or ("/" if path.startswith("/") else "")

    def unstrip_protocol(self, name: str) -> str:
        """Give the path with its protocols."""
        name = self._strip_protocol(name)
        inner = name if self._scheme == "http" else f"{self._target_protocol}://{name}"
        return f"foretell::{inner}"

    def store(self, path: str) -> tuple[Store, str]:
        """Give the store of `path`, and the path within it."""
        path = self._strip_protocol(path)
        if self._scheme == "file":
            url, key = "/", os.path.abspath(path).lstrip("/")
        elif self._scheme == "http":
            split = urlsplit(path)
            url, key = f"{split.scheme}://{split.netloc}", split.path.lstrip("/")
        else:
            bucket, _, key = path.partition("/")
            url = f"{self._scheme}://{bucket}"
        store = self._stores.get(url)
        if store is None:
            store = Store(url, settings=self._settings, **self._options)
            store = self._stores.setdefault(url, store)  # Other threads use the same.
        return store, key

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> File:
        if mode != "rb":
            raise NotImplementedError(f"foretell reads; it cannot open with mode {mode}")
        store, key = self.store(path)
        return store.open(key)

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Name, size in bytes, and type of a file; of a folder, what `fs` says."""
        path = self._strip_protocol(path)
        if self._scheme == "file":
            return dict(self.fs.info(path, **kwargs))
        store, key = self.store(path)
        try:
            if key:
                with store.open(key) as file:
                    return {"name": path, "size": file.size, "type": "file"}
            raise NotFound(2, "no file", path)
        except NotFound as error:
            try:
                target = self.fs
            except ImportError:
                raise error from None
            return dict(target.info(path, **kwargs))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """List a folder: what `fs` says."""
        return list(self.fs.ls(self._strip_protocol(path), detail=detail, **kwargs))

    def find(self, path: str, *args: Any, **kwargs: Any) -> Any:
        """List all files below a folder: what `fs` says, which may do so in one request."""
        return self.fs.find(self._strip_protocol(path), *args, **kwargs)

    def modified(self, path: str) -> Any:
        """When a file was changed last: what `fs` says."""
        return self.fs.modified(self._strip_protocol(path))

    def created(self, path: str) -> Any:
        """When a file was made: what `fs` says."""
        return self.fs.created(self._strip_protocol(path))

    def cat(
        self, path: str | list[str], recursive: bool = False, on_error: str = "raise", **kwargs: Any
    ) -> Any:
        """Read whole files, the next ones meanwhile: the bytes of one path, or a dictionary if it stands for several.

        What cannot be read raises; or is an exception in the dictionary (``on_error="return"``), or left out (``"omit"``).
        """
        paths = self.expand_path(path, recursive=recursive)
        if isinstance(path, str) and paths == [self._strip_protocol(path)]:
            return self.cat_file(paths[0], **kwargs)
        how = "raise" if on_error == "raise" else "return"
        found = dict(zip(paths, self.cat_ranges(paths, None, None, on_error=how), strict=True))
        if on_error == "omit":
            found = {path: one for path, one in found.items() if isinstance(one, bytes)}
        return found

    def invalidate_cache(self, path: str | None = None) -> None:
        """Have `fs` forget its listings. There are no others: each file is opened as it is then."""
        if self._target is not None:
            self._target.invalidate_cache(None if path is None else self._strip_protocol(path))

    def cat_ranges(
        self,
        paths: Sequence[str],
        starts: int | Sequence[int | None] | None,
        ends: int | Sequence[int | None] | None,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[bytes | Exception]:
        """Read a range of each path: all are disclosed, then read in order. Bytes, or exceptions with ``on_error="return"``."""
        if max_gap is not None:
            raise NotImplementedError("max_gap")
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        count = len(paths)
        first = [starts] * count if starts is None or isinstance(starts, int) else list(starts)
        last = [ends] * count if ends is None or isinstance(ends, int) else list(ends)
        if len(first) != count or len(last) != count:
            raise ValueError("there must be as many starts and ends as paths")

        comings: dict[str, _ranges.Coming] = {}
        for path in paths:
            if path not in comings:
                comings[path] = _ranges.Coming(*self.store(path))
        files: dict[str, File | Exception] = {}
        waiting = list(comings.items())
        for index, (path, coming) in enumerate(waiting):
            for _, other in waiting[index : index + _ranges.OPENINGS]:
                other.begin()
            try:
                files[path] = coming.file()
            except OSError as error:
                files[path] = error

        streams: dict[int, Stream] = {}
        reads: list[tuple[File, int, int] | Exception] = []
        for path, start, end in zip(paths, first, last, strict=True):
            file = files[path]
            if isinstance(file, Exception):
                reads.append(file)
                continue
            begin, stop, _ = slice(start, end).indices(file.size)
            reads.append((file, begin, max(stop - begin, 0)))
        index = 0
        while index < len(reads):  # Neighbours of one file together.
            read, ranges = reads[index], []
            index += 1
            if isinstance(read, Exception):
                continue
            file = read[0]
            ranges.append(read[1:])
            while index < len(reads):
                after = reads[index]
                if isinstance(after, Exception) or after[0] is not file:
                    break
                ranges.append(after[1:])
                index += 1
            key = id(file._store)
            streams[key] = file.hint(ranges, stream=streams.get(key))
        results: list[bytes | Exception] = []
        try:
            for read in reads:
                try:
                    if isinstance(read, Exception):
                        raise read
                    results.append(read[0].read_at(read[1], read[2]))
                except OSError as error:
                    if on_error != "return":
                        raise
                    results.append(error)
        finally:
            for stream in streams.values():
                stream.close()
            for opened in files.values():
                if isinstance(opened, File):
                    opened.close()
        return results
