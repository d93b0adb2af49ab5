"""The exceptions. All are `OSError`: `errno`, `strerror` (one line) and `filename` (the path within the store) are set."""


class Error(OSError):
    """A store could not do what it was asked for. The others are kinds of it."""


class NotFound(Error, FileNotFoundError):
    """There is no such file."""


class PermissionDenied(Error, PermissionError):
    """It may not be read with these credentials."""


class Busy(Error):
    """The store asked for fewer requests (429, 503) until the deadline."""


class Changed(Error):
    """The file is not the version any more that was opened. Open it again."""


class Timeout(Error, TimeoutError):
    """The store gave no answer before the deadline."""


def of_system(error: OSError, path: str) -> Error:
    """The same of an error of the operating system, for a path within a store."""
    kind = Error
    if isinstance(error, FileNotFoundError):
        kind = NotFound
    elif isinstance(error, PermissionError):
        kind = PermissionDenied
    return kind(error.errno, error.strerror, path)
