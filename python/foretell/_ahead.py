"""Files of a `foretell.Store` that are opened before they are read; one table for each store and process.

To open a file of an object store costs a request, as long as a read. So those who know what will be read (a loader's feed, a
disclosure: the table's *users*) say which files they expect, in their order. The table opens them, and lends each of them to
whoever opens it in the program: a borrower gets a handle of its own, and may close it.

A file is *ahead* from when it is begun to be opened until its user has read it, or keeps it. Users take turns, so that none
waits for another one that reads slowly.

A borrowed file is the version of when it was opened. If a read finds that it has been replaced, the table forgets it, and the
next one who opens it gets the current version. A handle by which nothing was read yet opens that itself, if the size is the
same.
"""

from __future__ import annotations

import errno
import os
import threading
from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from foretell._ranges import OPENINGS

if TYPE_CHECKING:
    from foretell import _foretell
    from foretell._store import File, Store

# Files that are ahead, of all users.
OPEN_AHEAD = 384
# Files that each user may have ahead, whatever the others have.
LEAST_AHEAD = 8
# Files that disclosures keep after their hints, to lend them, of all users.
KEPT_MAX = 4096
# A user may be dropped just before a wait for room; so long it is not noticed.
LOOK_EVERY_S = 1.0


class User:
    """Expects files of a table."""

    def __init__(self, lends_to_open: bool) -> None:
        self.lends_to_open = lends_to_open
        """Whether `Store.open` borrows its files; fsspec's files and reads always do."""
        self.lent = 0
        """Handles on its files that were lent so far."""
        self.is_gone = False
        # Paths of files that are not begun, in their order; that are ahead; and that are kept.
        self.waiting: dict[str, None] = {}
        self.ahead: set[str] = set()
        self.kept: set[str] = set()
        self.borrowed: dict[str, Entry] = {}


class Entry:
    """A file that is expected, being opened, or open. Any number of threads may wait for it."""

    def __init__(self, store: Store, path: str, file: File | None = None) -> None:
        self._store = store
        self.path = path
        # How often each user expects it.
        self.users: dict[User, int] = {}
        self.is_begun = file is not None
        self._lock = threading.RLock()
        self._file = file
        self._opening: _foretell.Opening | None = None
        self._error: Exception | None = None

    def begin(self) -> None:
        """Begin to open it."""
        self.is_begun = True
        try:
            self._opening = self._store.begin_open(self.path)
        except Exception as error:  # The store is closed, say.
            self._error = error

    def is_ready(self) -> bool:
        """Whether `file` returns or raises without waiting; not while another thread waits in it."""
        if not self._lock.acquire(blocking=False):
            return False
        try:
            if self._opening is not None:
                return self._opening.is_ready()
            return self._file is not None or self._error is not None
        finally:
            self._lock.release()

    def file(self) -> File:
        """Wait until it is open; raises if it cannot be opened."""
        from foretell._store import File

        with self._lock:
            if self._file is None:
                if self._error is not None:
                    raise self._error
                opening, self._opening = self._opening, None
                try:
                    self._file = File(self._store, self.path, opening)
                except Exception as error:
                    self._error = error
                    raise
                except BaseException:  # Ctrl-C: the opening is lost.
                    self._error = InterruptedError(errno.EINTR, "interrupted", self.path)
                    raise
            return self._file


class OpenAhead:
    """The table of one store in one process. Any thread may use it. A forked child has a table of its own."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = threading.Lock()
        self._changed = threading.Condition(self._lock)
        self._entries: dict[str, Entry] = {}
        self._users: list[User] = []
        self._in_flight: list[Entry] = []
        # Users that were dropped, perhaps while another thread has the lock, or this one: by the garbage collector.
        self._gone: deque[User] = deque()
        self._is_closed = False

    @contextmanager
    def _held(self) -> Iterator[None]:
        try:
            with self._lock:
                yield
        finally:
            self._reap()

    def _reap(self) -> None:
        """Give up what users that were dropped expected. Never waits: if the lock is taken, its owner does it."""
        while self._gone and self._lock.acquire(blocking=False):
            try:
                while self._gone:
                    user = self._gone.popleft()
                    if user in self._users:
                        self._users.remove(user)
                    for path in [*user.waiting, *user.ahead, *user.kept]:
                        self._leave(path, user)
                self._begin()
                self._changed.notify_all()
            finally:
                self._lock.release()

    def user(self, lends_to_open: bool = False) -> User:
        """Add a user."""
        user = User(lends_to_open)
        with self._held():
            self._users.append(user)
        return user

    def drop(self, user: User) -> None:
        """Give up all files of a user, for good. Never waits, and may be called by a finalizer."""
        user.is_gone = True
        self._gone.append(user)
        self._reap()

    def expect(self, path: str, user: User) -> None:
        """As `expect_all`, for one file."""
        self.expect_all((path,), user)

    def expect_all(self, paths: Iterable[str], user: User) -> None:
        """Note that a user will read files, after those so far, and open them when there is room; never waits.

        A user that expects a file several times releases it as often.
        """
        with self._held():
            if self._is_closed or user.is_gone:
                return
            for path in paths:
                entry = self._entries.get(path)
                if entry is None:
                    entry = self._entries[path] = Entry(self._store, path)
                if user not in entry.users:
                    entry.users[user] = 0
                    user.waiting[path] = None
                entry.users[user] += 1
            self._begin()

    def know(self, file: File, user: User) -> None:
        """Lend a file that a user has open already, as one that it keeps."""
        with self._held():
            if self._is_closed or user.is_gone or file.name in self._entries:
                return
            entry = self._entries[file.name] = Entry(self._store, file.name, file)
            entry.users[user] = 1
            user.kept.add(file.name)

    def keep(self, path: str, user: User) -> bool:
        """Have a file that is ahead kept until the user is dropped; returns False if too many are kept."""
        with self._held():
            if path in user.kept:
                return True
            if sum(len(one.kept) for one in self._users) >= KEPT_MAX:
                return False
            if path in user.ahead:
                user.ahead.remove(path)
                user.kept.add(path)
                self._begin()
                self._changed.notify_all()
            return True

    def release(self, path: str, user: User) -> None:
        """Note that a user has read a file that it expected, or will not read it."""
        with self._held():
            entry = self._entries.get(path)
            if entry is None or user not in entry.users:
                return
            entry.users[user] -= 1
            if entry.users[user] <= 0:
                self._leave(path, user)
                self._begin()
                self._changed.notify_all()

    def _leave(self, path: str, user: User) -> None:
        user.waiting.pop(path, None)
        user.ahead.discard(path)
        user.kept.discard(path)
        entry = self._entries.get(path)
        if entry is not None and entry.users.pop(user, None) is not None and not entry.users:
            del self._entries[path]

    def _forget(self, entry: Entry) -> None:
        """Drop a file that has failed or changed."""
        with self._held():
            if self._entries.get(entry.path) is entry:
                for user in list(entry.users):
                    self._leave(entry.path, user)
                self._begin()
                self._changed.notify_all()

    def _begin(self) -> None:
        """Begin to open files, one of each user in turn, as far as there is room."""
        self._in_flight = [entry for entry in self._in_flight if not entry.is_ready()]
        ahead = sum(len(user.ahead) for user in self._users)
        turns = deque(user for user in self._users if user.waiting)
        while turns and len(self._in_flight) < OPENINGS:
            user = turns.popleft()
            if ahead >= OPEN_AHEAD and len(user.ahead) >= LEAST_AHEAD:
                continue
            path = next(iter(user.waiting))
            self._begin_one(self._entries[path], user)
            ahead += 1
            if user.waiting:
                turns.append(user)

    def _begin_one(self, entry: Entry, user: User) -> None:
        user.waiting.pop(entry.path, None)
        user.ahead.add(entry.path)
        if not entry.is_begun:
            entry.begin()
            self._in_flight.append(entry)

    def is_ready(self, path: str) -> bool:
        """Whether `file` would not wait for an expected file."""
        entry = self._entries.get(path)
        return entry is not None and entry.is_ready()

    def wait(self, path: str, user: User) -> None:
        """Wait until a file is open, cannot be opened, or is not expected any more."""
        while True:
            with self._held():
                entry = self._entries.get(path)
                if entry is None or user.is_gone or user not in entry.users:
                    return
                self._begin()
                if entry.is_begun:
                    break
                other = self._in_flight[0] if len(self._in_flight) >= OPENINGS else None
                if other is None and not self._gone:  # There is no room.
                    self._changed.wait(LOOK_EVERY_S)
            if other is not None:
                with suppress(Exception):
                    other.file()
        with suppress(Exception):  # `file` raises it.
            entry.file()
        with self._held():
            self._begin()

    def file(self, path: str) -> File | None:
        """Return an expected file, to hint it, after waiting for it. It must not be closed. `None` if it is not expected.

        Raises:
            OSError: It cannot be opened. It is not expected any more.
            RuntimeError: The store is closed.

        """
        entry = self._entries.get(path)
        if entry is None:
            return None
        try:
            return entry.file()
        except Exception:
            self._forget(entry)
            raise

    def _of_borrower(self, path: str, for_open: bool) -> Entry | None:
        """Return the entry of a file that may be lent, after waiting for it."""
        if path not in self._entries:
            return None
        with self._held():
            entry = self._entries.get(path)
            users = [] if entry is None else [one for one in entry.users if not one.is_gone]
            if entry is None or not any(one.lends_to_open or not for_open for one in users):
                return None
            if not entry.is_begun:  # Its reader has come before its turn.
                for user in users:
                    self._begin_one(entry, user)
        try:
            is_stale = entry.file()._is_stale
        except Exception:  # The borrower opens it itself, and sees.
            is_stale = True
        if is_stale:
            self._forget(entry)
            return None
        return entry

    def has(self, path: str) -> bool:
        """Whether a file can be borrowed, as fsspec borrows it. Waits for its opening."""
        return self._of_borrower(path, False) is not None

    def borrow(self, path: str, for_open: bool = False) -> _foretell.Opening | None:
        """Return what makes a handle of a file that is open or being opened here, after waiting for that file.

        It is None if the file is not expected, or cannot be lent; then the borrower opens it. `for_open` says that the borrower
        is `Store.open`, to which only some users lend.
        """
        entry = self._of_borrower(path, for_open)
        if entry is None:
            return None
        try:
            again = entry.file()._again()
        except Exception:  # Its user has closed it.
            return None
        with self._held():
            for user in entry.users:
                user.lent += 1
                if user.lends_to_open:
                    user.borrowed[path] = entry
            self._begin()
        return again

    def begin_item(self, user: User) -> None:
        """Note that what is borrowed from now on is for another item."""
        user.borrowed.clear()

    def forget_changed(self, user: User) -> bool:
        """Forget files of the item that have changed; returns whether there are any, so that the item may be read again."""
        changed = []
        for entry in list(user.borrowed.values()):
            with suppress(Exception):
                if entry.file()._is_stale:
                    changed.append(entry)
        for entry in changed:
            user.borrowed.pop(entry.path, None)
            self._forget(entry)
        return bool(changed)

    def close(self) -> None:
        """Give up everything: the store is closed."""
        with self._held():
            self._is_closed = True
            for user in self._users:
                user.is_gone = True
                for path in [*user.waiting, *user.ahead, *user.kept]:
                    self._leave(path, user)
            self._changed.notify_all()


def here(tables: dict[int, OpenAhead], store: Store) -> OpenAhead:
    """Return the table of this process; `tables` has those of a store by process."""
    process = os.getpid()
    found = tables.get(process)
    if found is None:
        for other in [one for one in tables if one != process]:
            tables.pop(other, None)
        found = tables.setdefault(process, OpenAhead(store))
    return found
