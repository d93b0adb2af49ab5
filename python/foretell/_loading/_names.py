"""Names on a foretell mount that are looked up ahead of a loader, in the process that reads.

The kernel looks a name up when a program opens it, and waits for the store's answer: for small files that is as long as their
data takes. A name that was looked up a moment ago is known to the kernel (for the mount's ``--ttl``). So threads look names up
in the order of the items, at most `NAMES_AHEAD` before the item that is read.
"""

from __future__ import annotations

import contextlib
import os
import threading
from collections import deque
from collections.abc import Iterable

# Lookups at once: Little's law for 1,000 files a second, each 30 ms away.
LOOKUPS = 32
# Names that are looked up and not read yet. Far below what is read within a time to live.
NAMES_AHEAD = 256


class Names:
    """Names to look up, with the number of the item that needs each."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._process = os.getpid()
        self._queue: deque[tuple[int, str]] = deque()
        self._ahead: deque[int] = deque()
        self._threads = 0
        self._idle = 0
        self._is_closed = False
        self.looked_up = 0
        """Names that were looked up so far."""

    def add(self, names: Iterable[tuple[int, str]]) -> None:
        """Look names up after those so far."""
        with self._changed:
            self._queue.extend(names)
            wanted = min(LOOKUPS - self._threads, len(self._queue) - self._idle)
            for _ in range(wanted):
                self._threads += 1
                threading.Thread(target=self._go, name="foretell-names", daemon=True).start()
            self._changed.notify_all()

    def done(self, item: int) -> None:
        """Note that the items up to this one have been read."""
        with self._changed:
            while self._ahead and self._ahead[0] <= item:
                self._ahead.popleft()
            while self._queue and self._queue[0][0] <= item:
                self._queue.popleft()
            if self._queue:
                self._changed.notify_all()

    def close(self) -> None:
        """Look no more up. Does nothing in a forked child."""
        if self._process != os.getpid():
            return
        with self._changed:
            self._is_closed = True
            self._queue.clear()
            self._changed.notify_all()

    def _go(self) -> None:
        """Look names up; the work of a thread."""
        while True:
            with self._changed:
                while not self._is_closed and not (self._queue and len(self._ahead) < NAMES_AHEAD):
                    self._idle += 1
                    self._changed.wait()
                    self._idle -= 1
                if self._is_closed:
                    return
                item, path = self._queue.popleft()
                self._ahead.append(item)
                self.looked_up += 1
            with contextlib.suppress(OSError):  # The data set meets it too.
                os.stat(path)
