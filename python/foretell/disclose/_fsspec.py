"""Where a file of an fsspec file system is: on this machine, or in a store of foretell."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from foretell._store import Store


def located(fs: Any, path: str) -> tuple[Store | None, str]:
    """Return the store of a path and its name there; for files of this machine, `None` and the absolute path.

    Raises:
        ValueError: Neither this machine nor foretell reads these files, so hints have no effect.

    """
    from fsspec.implementations.local import LocalFileSystem

    from foretell.fsspec import ForetellFileSystem

    if isinstance(fs, ForetellFileSystem):
        return fs.store(path)
    if isinstance(fs, LocalFileSystem):
        return None, os.path.abspath(fs._strip_protocol(path))
    raise ValueError(
        f"{path} is read by {type(fs).__name__}, which takes no hints: open it with foretell's file system"
    )
