"""Read object stores and slow folders, with data fetched before the program asks for it.

>>> import foretell
>>> store = foretell.Store("s3://bucket")
>>> for sample in store.read_ranges("samples.bin", [(600_000, 1000), (0, 1000)]): ...
"""

from foretell._errors import Busy, Changed, Error, NotFound, PermissionDenied, Timeout
from foretell._listing import Entry
from foretell._store import File, Store, Stream
from foretell._types import Sharing
from foretell.disclose import Disclosed, Plan, disclosed

__all__ = [
    "Busy",
    "Changed",
    "Disclosed",
    "Entry",
    "Error",
    "File",
    "NotFound",
    "PermissionDenied",
    "Plan",
    "Sharing",
    "Store",
    "Stream",
    "Timeout",
    "disclosed",
]
__version__ = "0.1.0"
