"""Listings of a store: names, and facts about each without opening it."""

from __future__ import annotations

import errno
import os
import stat
import warnings
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from foretell import _errors

if TYPE_CHECKING:
    from foretell import _foretell

# Objects that are looked up at once during a listing.
ASKED_AT_ONCE = 16


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder of a store.

    Attributes:
        name: Path within the store.
        kind: ``"file"`` or ``"folder"``.
        size: Size of a file in bytes; 0 for a folder.
        modified: Time of the last change, in seconds since 1970; `None` if the store does not tell it.
        tag: Identifies this version of a file: the store's ETag, or a text made of inode and times for a local folder.

    """

    name: str
    kind: Literal["file", "folder"]
    size: int = 0
    modified: float | None = None
    tag: str | None = None


def joined(folder: str, name: str) -> str:
    """Join a folder's path and a name."""
    return f"{folder}/{name}" if folder else name


def info(store: _foretell.Store, path: str) -> Entry:
    """See `Store.info`; for an object store."""
    try:
        if path:
            return Entry(path, "file", *store._file(path))
    except _errors.NotFound as absent:
        try:
            is_folder = store._is_folder(path)
        except _errors.Error as error:
            if error.errno != errno.ENOTSUP:  # A web server cannot be listed.
                raise
            is_folder = False
        if not is_folder:
            raise absent from None
    else:
        if not store._is_folder(path):  # The root: there is no parent folder to lack it.
            raise _errors.NotFound(2, "there is no such bucket", path)
    return Entry(path, "folder")


def entries(store: _foretell.Store, path: str, recursive: bool) -> Iterator[Entry]:
    """See `Store.list`; for an object store."""
    if recursive and not path and store._has_keys_without_a_root():
        for entry in entries(store, path, False):
            if entry.kind == "folder":
                yield from entries(store, entry.name, True)
            else:
                yield entry
        return
    listing = store._list(path, recursive)
    while found := listing.next_entries():
        if not recursive:
            for name, told in found:
                whole = joined(path, name)
                yield Entry(whole, "folder") if told is None else Entry(whole, "file", *told)
            continue
        files = [Entry(joined(path, name), "file", *told) for name, told in found if told]
        folders = _folders(store, [file.name for file in files if file.size == 0])
        for file in files:
            yield Entry(file.name, "folder") if file.name in folders else file
    count, example = listing.left_out()
    if count:
        warnings.warn(
            f"{count} keys such as {example!r} are left out: no path can name them", stacklevel=3
        )


def _folders(store: _foretell.Store, paths: list[str]) -> set[str]:
    """Return which of these empty files are folders: their key ends with a slash, so no object has the name itself."""

    def is_folder(path: str) -> bool:
        try:
            store._file(path)
        except _errors.NotFound:
            return True
        return False

    if not paths:
        return set()
    with ThreadPoolExecutor(min(ASKED_AT_ONCE, len(paths))) as pool:
        return {
            path for path, found in zip(paths, pool.map(is_folder, paths), strict=True) if found
        }


class Folder:
    """Listings of a local folder. Only files and folders are listed."""

    def __init__(self, root: str) -> None:
        self.root = root

    def _place(self, path: str) -> str:
        if path.startswith("/") or ".." in path.split("/"):
            raise _errors.NotFound(2, f"not found in {self.root}", path)
        return os.path.join(self.root, path)

    def info(self, path: str) -> Entry:
        """See `Store.info`."""
        try:
            found = os.stat(self._place(path))
        except OSError as error:
            raise _errors.of_system(error, path) from None
        entry = _entry(path, found)
        if entry is None:
            raise _errors.Error(22, "neither a file nor a folder", path)
        return entry

    def entries(self, path: str, recursive: bool) -> Iterator[Entry]:
        """See `Store.list`. Links to folders are never followed, and are listed only if not `recursive`."""
        try:
            with os.scandir(self._place(path)) as found:
                children = list(found)
        except OSError as error:
            raise _errors.of_system(error, path) from None
        for child in children:
            try:
                entry = _entry(joined(path, child.name), child.stat())
            except OSError:  # A dangling link, or a file that was removed meanwhile.
                continue
            if entry is None:
                continue
            if recursive and entry.kind == "folder" and not child.is_symlink():
                yield from self.entries(entry.name, recursive)
            elif not recursive or entry.kind == "file":
                yield entry


def _entry(path: str, found: os.stat_result) -> Entry | None:
    if stat.S_ISDIR(found.st_mode):
        return Entry(path, "folder", 0, found.st_mtime)
    if not stat.S_ISREG(found.st_mode):
        return None
    tag = f"{found.st_ino:x}.{found.st_mtime_ns:x}.{found.st_ctime_ns:x}"
    return Entry(path, "file", found.st_size, found.st_mtime, tag)
