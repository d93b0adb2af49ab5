"""The exceptions. All are `OSError` and set `errno`, `strerror` (one line) and `filename` (the path within the store)."""


class Error(OSError):
    """A request to a store failed. The base class of the other exceptions."""


class NotFound(Error, FileNotFoundError):
    """There is no such file."""


class PermissionDenied(Error, PermissionError):
    """These credentials do not allow reading the file."""


class Busy(Error):
    """The store kept asking for fewer requests (429, 503) until the deadline."""


class Changed(Error):
    """The file has changed since it was opened. Open it again."""


class Timeout(Error, TimeoutError):
    """The store did not answer before the deadline."""


def of_system(error: OSError, path: str) -> Error:
    """Turn an error of the operating system into ours, for a path within a store."""
    kind = Error
    if isinstance(error, FileNotFoundError):
        kind = NotFound
    elif isinstance(error, PermissionError):
        kind = PermissionDenied
    return kind(error.errno, error.strerror, path)
