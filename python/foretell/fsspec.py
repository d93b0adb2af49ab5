"""foretell as a file system of fsspec: ``foretell://s3://bucket/key``.

It reads, lists and looks up files through `foretell.Store`, with one client and one identity, and needs only fsspec. The
chained form of addresses works too (``foretell::s3://bucket/key``): for it fsspec requires the other client (`s3fs`, `gcsfs`,
`adlfs`) to be installed, although foretell does not use it. Web servers are listed by fsspec's own HTTP file system, which
needs `aiohttp`.

>>> import fsspec
>>> with fsspec.open("foretell://s3://bucket/key") as file: ...
>>> with fsspec.open("foretell://bucket/key", target_protocol="s3") as file: ...
>>> fs = fsspec.filesystem("foretell", target_protocol="s3", budget="1GiB")
>>> fs.glob("bucket/2026/*.parquet")
>>> array = zarr.open_array("foretell://s3://bucket/cube.zarr", storage_options={"shared": True})

Options of the other client (``target_options``) are used, refused by their name, or ignored (its caches, block sizes and
concurrency). The current version of an object is read. Nothing can be written.
"""

from __future__ import annotations

import contextlib
import datetime
import os
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NoReturn, SupportsIndex
from urllib.parse import urlsplit

import fsspec
from fsspec.implementations.chained import ChainedFileSystem

from foretell import _options, _ranges
from foretell._errors import Changed, NotFound
from foretell._fsspec._file import ForetellFile
from foretell._fsspec._reads import disclose, for_each, read_of
from foretell._listing import Entry
from foretell._store import File, Store, Stream

__all__ = ["ForetellFile", "ForetellFileSystem"]

_SCHEMES = {
    "file": "file",
    "local": "file",
    "s3": "s3",
    "s3a": "s3",
    "gs": "gs",
    "gcs": "gs",
    "az": "az",
    "abfs": "az",
    "abfss": "az",
    "http": "http",
    "https": "http",
}

# Arguments that fsspec passes to every file system, and to every `open`.
_OF_FSSPEC = {
    "use_listings_cache",
    "listings_expiry_time",
    "max_paths",
    "asynchronous",
    "loop",
    "fo",
}
_OF_OPEN = {
    "block_size",
    "autocommit",
    "cache_type",
    "cache_options",
    "fill_cache",
    "size",
    "refresh",
}


class ForetellFileSystem(ChainedFileSystem):  # type: ignore[misc]
    """Reads files of a bucket, a web server or this machine through foretell.

    Args:
        target_protocol: ``s3``, ``gs``, ``az``, ``http``, ``https`` or ``file``; or it is part of the address.
        target_options: Options as for fsspec's own file system of that protocol; see the module.
        fs: Such a file system, in place of the two above: its protocol and options are taken.
        budget, block, depth, timeout, settings, shared, tier: As for `foretell.Store`. There is one store per bucket or host,
            each with this budget; ``file`` has a single one. Settings take precedence over options. With `shared`, all
            processes of this user with the same settings use one cache, or that of ``foretell daemon --cache``.

    Raises:
        ValueError: An option is not supported; the message names it.

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
        shared: bool = False,
        tier: str | None = None,
        **kwargs: Any,
    ) -> None:
        # Hugging Face's `datasets` passes these to any file system below its own one for compressed files.
        if set(kwargs.get("client_kwargs") or {}) <= {"requote_redirect_url", "trust_env"}:
            kwargs.pop("client_kwargs", None)
        unknown = sorted(set(kwargs) - _OF_FSSPEC)
        if unknown:
            raise ValueError(
                f"foretell has no option {unknown[0]}; give options of the other client in target_options"
            )
        super().__init__(**kwargs)
        if fs is not None:
            protocols = [fs.protocol] if isinstance(fs.protocol, str) else list(fs.protocol)
            if fs.storage_args:
                raise ValueError(f"{type(fs).__name__}: give its options by their names")
        else:
            protocols = [target_protocol or "file"]
        known = [_SCHEMES[name] for name in protocols if name in _SCHEMES]
        if not known:
            raise ValueError(f"foretell cannot read {protocols[0]}; it reads {', '.join(_SCHEMES)}")
        self._scheme = known[0]
        self._target_protocol = protocols[0]
        configured = fsspec.config.conf.get(self._target_protocol, {})
        given = fs.storage_options if fs is not None else {**configured, **(target_options or {})}
        self._target_options = dict(given)
        self._target = fs
        self._options: dict[str, Any] = {
            "budget": budget,
            "block": block,
            "depth": depth,
            "timeout": timeout,
            "shared": shared,
            "tier": tier,
        }
        found = _options.settings(self._scheme, self._target_options)
        self._settings = {**found, **(settings or {})} or None
        self._stores: dict[str, Store] = {}

    @property
    def fs(self) -> fsspec.AbstractFileSystem:
        """Fsspec's own file system for the same addresses. It lists local folders and web servers.

        Raises:
            AttributeError: The client for it is not installed, so there is no such attribute.

        """
        if self._target is None:
            try:
                self._target = fsspec.filesystem(self._target_protocol, **self._target_options)
            except ImportError as error:
                raise AttributeError(f"{self._target_protocol}: {error}") from error
        return self._target

    @classmethod
    def _strip_protocol(cls, path: Any) -> Any:
        if isinstance(path, list):
            return [cls._strip_protocol(one) for one in path]
        path = os.fspath(path)
        for prefix in ("foretell::", "foretell://"):
            path = path.removeprefix(prefix)
        scheme, separator, rest = path.partition("://")
        if separator and _SCHEMES.get(scheme) == "http":
            return path  # The whole address is the path.
        if separator and scheme in _SCHEMES:
            path = rest
        return path.rstrip("/") or ("/" if path.startswith("/") else "")

    @staticmethod
    def _get_kwargs_from_urls(path: str) -> dict[str, Any]:
        scheme, separator, _ = path.removeprefix("foretell://").partition("://")
        return {"target_protocol": scheme} if separator and scheme in _SCHEMES else {}

    def unstrip_protocol(self, name: str) -> str:
        """Return the path with its protocols."""
        name = self._strip_protocol(name)
        inner = name if self._scheme == "http" else f"{self._target_protocol}://{name}"
        return f"foretell://{inner}"

    def store(self, path: str) -> tuple[Store, str]:
        """Return the store of `path`, and the path within it."""
        path = self._strip_protocol(path)
        if self._scheme == "file":
            url, key = "/", os.path.abspath(path).lstrip("/")
        elif self._scheme == "http":
            split = urlsplit(path)
            # A store takes a name that is an address as that address, as written.
            url, key = f"{split.scheme}://{split.netloc}", path.partition("#")[0]
        else:
            bucket, _, key = path.partition("/")
            if not bucket:
                raise NotFound(2, "foretell cannot list buckets: name one", path)
            # With an account, in Hadoop's form.
            url = f"{'abfss' if '@' in bucket else self._scheme}://{bucket}"
        store = self._stores.get(url)
        if store is None:
            store = Store(url, settings=self._settings, **self._options)
            store = self._stores.setdefault(url, store)  # Another thread's, if it was faster.
        return store, key

    def _open(self, path: str, mode: str = "rb", **kwargs: Any) -> ForetellFile:
        if mode != "rb":
            raise NotImplementedError(f"foretell reads; it cannot open with mode {mode}")
        unknown = sorted(name for name in set(kwargs) - _OF_OPEN if kwargs[name] is not None)
        if unknown:
            raise ValueError(f"foretell has no option {unknown[0]} for files")
        return ForetellFile.at(self, self._strip_protocol(path))

    def _told(self, entry: Entry, name: str) -> dict[str, Any]:
        """Return an entry in fsspec's form."""
        if entry.kind == "folder":
            return {"name": name, "size": 0, "type": "directory"}
        told: dict[str, Any] = {"name": name, "size": entry.size, "type": "file"}
        if entry.tag is not None:
            told["ETag"] = entry.tag if entry.tag.startswith("W/") else f'"{entry.tag}"'
        if entry.modified is not None:
            told["mtime"] = entry.modified
            told["LastModified"] = datetime.datetime.fromtimestamp(entry.modified, datetime.UTC)
        return told

    def info(self, path: str, **kwargs: Any) -> dict[str, Any]:
        """Return the name, size in bytes, and type of a file or folder.

        Objects also have ``ETag``, ``LastModified`` and ``mtime`` (seconds since 1970), if the store tells them.
        """
        path = self._strip_protocol(path)
        if self._scheme == "file":
            told = dict(self.fs.info(path, **kwargs))
            found = os.stat(told["name"]) if told["type"] == "file" else None
            if found is not None:  # In whole nanoseconds, so that no change is missed.
                told.update(mtime_ns=found.st_mtime_ns, ctime_ns=found.st_ctime_ns)
            return told
        if self._scheme != "http" and path.strip("/") == "":
            return {"name": path, "size": 0, "type": "directory"}
        store, key = self.store(path)
        if self._scheme == "http":
            return self._told(Entry(path, "file", *store._file(key)), path)
        return self._told(store.info(key), path)

    def exists(self, path: str, **kwargs: Any) -> bool:
        """Whether there is such a file or folder. Errors other than "not found" are raised."""
        try:
            self.info(path, **kwargs)
        except FileNotFoundError:
            return False
        return True

    def isfile(self, path: str) -> bool:
        """Whether there is such a file; one that an open disclosure has opened is not looked up again."""
        with contextlib.suppress(OSError):
            store, key = self.store(path)
            if store._is_ahead(key):
                return True
        return bool(super().isfile(path))

    def ls(self, path: str, detail: bool = True, **kwargs: Any) -> list[Any]:
        """List a folder."""
        path = self._strip_protocol(path)
        if self._scheme in ("file", "http"):
            return list(self._lister().ls(path, detail=detail, **kwargs))
        store, key = self.store(path)
        try:
            entries = list(store.list(key))
        except NotFound:
            if not key:
                raise
            entries = [store.info(key)]
        bucket = path.partition("/")[0]
        told = [self._told(entry, f"{bucket}/{entry.name}") for entry in entries]
        told.sort(key=lambda one: (one["name"], one["type"] != "file"))
        return told if detail else [one["name"] for one in told]

    def _lister(self) -> fsspec.AbstractFileSystem:
        try:
            return self.fs
        except AttributeError as error:
            raise NotImplementedError(
                f"foretell cannot list web servers; install fsspec's client for that: {error}"
            ) from None

    def find(
        self,
        path: str,
        maxdepth: int | None = None,
        withdirs: bool = False,
        detail: bool = False,
        prefix: str = "",
        **kwargs: Any,
    ) -> Any:
        """List all files below a folder, a thousand objects per request; only names that begin with `prefix`, if given."""
        path = self._strip_protocol(path)
        if self._scheme in ("file", "http"):
            lister = self._lister()
            found = lister.find(path, maxdepth, withdirs=withdirs, detail=True, **kwargs)
        elif maxdepth is not None:
            found = self._find_down_to(path, maxdepth, withdirs)
        else:
            found = self._find_objects(path, withdirs)
        begin = f"{path}/{prefix}" if prefix else ""
        found = {name: told for name, told in found.items() if name.startswith(begin)}
        return found if detail else list(found)

    def _find_down_to(self, path: str, maxdepth: int, withdirs: bool) -> dict[str, dict[str, Any]]:
        found: dict[str, dict[str, Any]] = {}
        if withdirs and path and self.isdir(path):
            found[path] = self.info(path)
        for _, folders, files in self.walk(path, maxdepth, detail=True):
            # A name that is both a file and a folder is reported as a file.
            for told in [*(folders.values() if withdirs else ()), *files.values()]:
                found[told["name"]] = told
        if not found and self.isfile(path):
            found[path] = self.info(path)
        return dict(sorted(found.items()))

    def _find_objects(self, path: str, withdirs: bool) -> dict[str, dict[str, Any]]:
        store, key = self.store(path)
        bucket = path.partition("/")[0]
        files: dict[str, dict[str, Any]] = {}
        folders: set[str] = set()
        try:
            for entry in store.list(key, recursive=True):
                name = f"{bucket}/{entry.name}"
                if entry.kind == "folder":
                    folders.add(name)
                else:
                    files[name] = self._told(entry, name)
                above = name.rpartition("/")[0]
                while len(above) >= len(path) and above not in folders:
                    folders.add(above)
                    above = above.rpartition("/")[0]
        except NotFound:
            if not key:
                raise
        if not files and not folders and key:
            try:
                files[path] = self._told(store.info(key), path)
            except NotFound:
                return {}
        if withdirs:
            # A name that is both a file and a folder is reported as a file.
            told = {name: {"name": name, "size": 0, "type": "directory"} for name in folders}
            files = {**told, **files}
        return dict(sorted(files.items()))

    def glob(self, path: str, maxdepth: int | None = None, **kwargs: Any) -> Any:
        """Find files by a pattern. In addresses of web servers, a question mark is no wildcard."""
        if self._scheme == "http":
            return self._lister().glob(self._strip_protocol(path), maxdepth=maxdepth, **kwargs)
        return super().glob(path, maxdepth=maxdepth, **kwargs)

    def expand_path(
        self, path: Any, recursive: bool = False, maxdepth: int | None = None, **kwargs: Any
    ) -> list[str]:
        """Return the paths that match patterns, or that folders contain."""
        if self._scheme == "http" and not recursive:
            given = [path] if isinstance(path, (str, os.PathLike)) else list(path)
            if not any(letter in os.fspath(one) for one in given for letter in "*["):
                return sorted({self._strip_protocol(one) for one in given})
        return list(super().expand_path(path, recursive, maxdepth, **kwargs))

    def modified(self, path: str) -> datetime.datetime:
        """Return when a file was created or last changed."""
        told = self.info(path)
        if told.get("mtime") is None:
            raise NotImplementedError(f"the store does not tell when {path} was changed")
        return datetime.datetime.fromtimestamp(told["mtime"], datetime.UTC)

    def created(self, path: str) -> Any:
        """Return when a local file was created. Object stores tell only `modified`."""
        if self._scheme != "file":
            raise NotImplementedError(
                "the store does not tell when an object was created; use modified"
            )
        return self.fs.created(self._strip_protocol(path))

    def cat(
        self, path: str | list[str], recursive: bool = False, on_error: str = "raise", **kwargs: Any
    ) -> Any:
        """Read whole files, with the next ones fetched meanwhile: the bytes of one path, or a dictionary for several paths.

        A file that cannot be read raises, is an exception in the dictionary (``on_error="return"``), or is left out
        (``"omit"``).
        """
        paths = self.expand_path(path, recursive=recursive)
        if isinstance(path, (str, os.PathLike)) and paths == [self._strip_protocol(path)]:
            return self.cat_file(paths[0], **kwargs)
        if recursive:
            paths = [one for one in paths if not self.isdir(one)]
        how = "raise" if on_error == "raise" else "return"
        found = dict(zip(paths, self.cat_ranges(paths, None, None, on_error=how), strict=True))
        if on_error == "omit":
            found = {path: one for path, one in found.items() if isinstance(one, bytes)}
        return found

    def invalidate_cache(self, path: str | None = None) -> None:
        """Drop the listings of `fs`. foretell itself caches none, and always opens the current version of a file."""
        if self._target is not None:
            self._target.invalidate_cache(None if path is None else self._strip_protocol(path))

    def cat_file(
        self, path: str, start: int | None = None, end: int | None = None, **kwargs: Any
    ) -> bytes:
        """Read a file, or a part of it: limits in bytes, from the end of the file if negative.

        A file that an open disclosure (`foretell.disclosed`) has opened is not opened again: it is read in that version, or in
        the current one if that has been replaced.
        """
        store, key = self.store(path)
        is_ahead = store._is_ahead(key)
        try:
            found: bytes = super().cat_file(path, start, end, **kwargs)
        except Changed:
            if not is_ahead:
                raise
            # The version that was opened ahead has been replaced, and was forgotten at this.
            found = super().cat_file(path, start, end, **kwargs)
        return found

    def cat_ranges(
        self,
        paths: Sequence[str],
        starts: Any,
        ends: Any,
        max_gap: int | None = None,
        on_error: str = "return",
        **kwargs: Any,
    ) -> list[bytes | Exception]:
        """Read a range of each path: all are disclosed, then read in order.

        Returns a list of bytes, or of exceptions too with ``on_error="return"``. Starts and ends are integers (also numpy's)
        in bytes, or `None`; one for all paths, or one for each. They have the same meaning as for `cat_file`.
        """
        if max_gap is not None:
            raise NotImplementedError("max_gap")
        if not isinstance(paths, list):
            raise TypeError("paths must be a list")
        paths = [self._strip_protocol(path) for path in paths]
        first, last = for_each(starts, len(paths)), for_each(ends, len(paths))
        if len(first) != len(paths) or len(last) != len(paths):
            raise ValueError("there must be as many starts and ends as paths")
        borrowed = self._borrowed(paths)
        files = {**self._opened(path for path in paths if path not in borrowed), **borrowed}
        streams: dict[int, Stream] = {}
        results: list[bytes | Exception] = []
        try:
            reads = [
                read_of(files[path], start, end)
                for path, start, end in zip(paths, first, last, strict=True)
            ]
            disclose(reads, streams)
            for at, read in enumerate(reads):
                try:
                    if isinstance(read, Exception):
                        raise read
                    try:
                        results.append(read[0].read_at(read[1], read[2]))
                    except Changed:
                        if paths[at] not in borrowed:
                            raise
                        results.append(self.cat_file(paths[at], first[at], last[at]))
                except Exception as error:
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

    def _borrowed(self, paths: Iterable[str]) -> dict[str, File | Exception]:
        """Return handles of the files that were opened ahead."""
        found: dict[str, File | Exception] = {}
        for path in dict.fromkeys(paths):
            with contextlib.suppress(OSError):
                store, key = self.store(path)
                opening = store._borrow(key)
                if opening is not None:
                    found[path] = File(store, key, opening)
        return found

    def _opened(self, paths: Iterable[str]) -> dict[str, File | Exception]:
        """Open all files, many at once. Returns each open file, or the exception of its opening."""
        comings: dict[str, _ranges.Coming] = {}
        files: dict[str, File | Exception] = {}
        for path in dict.fromkeys(paths):
            try:
                comings[path] = _ranges.Coming(*self.store(path))
            except OSError as error:
                files[path] = error
        waiting = list(comings.items())
        for index, (path, coming) in enumerate(waiting):
            for _, other in waiting[index : index + _ranges.OPENINGS]:
                other.begin()
            try:
                files[path] = coming.file()
            except OSError as error:
                files[path] = error
        return files


def _reads_only(self: ForetellFileSystem, *args: Any, **kwargs: Any) -> NoReturn:
    """Raise: nothing can be written."""
    raise NotImplementedError("foretell reads; it cannot write, make or remove anything")


for _name in (
    "mkdir",
    "makedirs",
    "rmdir",
    "rm",
    "rm_file",
    "touch",
    "pipe_file",
    "put_file",
    "cp_file",
):
    setattr(ForetellFileSystem, _name, _reads_only)
