"""Waiting in an event loop: no thread waits; one descriptor of the loop reports completed reads and openings."""

from __future__ import annotations

import asyncio
import os
from itertools import count
from typing import TYPE_CHECKING, cast
from weakref import WeakKeyDictionary

from foretell import _foretell

if TYPE_CHECKING:
    from foretell._store import File, Store

# Files that an event loop opens at once; each takes a thread meanwhile.
OPENINGS = 32
# Reads of an event loop in flight at once; each may take a connection.
READS = 128


class Waiting:
    """The openings and reads that tasks of one event loop wait for."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._process = os.getpid()
        self._completions = _foretell.Completions()
        self._futures: dict[int, asyncio.Future[object]] = {}
        self._tokens = count()
        self._may_open = asyncio.Semaphore(OPENINGS)
        self._may_read = asyncio.Semaphore(READS)
        loop.add_reader(self._completions.fileno(), self._come)

    @classmethod
    def here(cls) -> Waiting:
        """Return the instance of the running loop."""
        loop = asyncio.get_running_loop()
        waiting = _WAITING.get(loop)
        if waiting is None or waiting._process != os.getpid():
            # Drop instances of loops that were closed with reads in flight, whose futures keep the loop alive. Without a
            # lock, because a fork could leave it locked.
            for reference in _WAITING.keyrefs():
                other = reference()
                if other is not None and other.is_closed():
                    _WAITING.pop(other, None)
            waiting = _WAITING[loop] = cls(loop)
        return waiting

    def _come(self) -> None:
        for token, result in self._completions.take():
            future = self._futures.pop(token)
            if future.done():  # Cancelled.
                continue
            if isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

    def _future(self, token: int) -> asyncio.Future[object]:
        future = self._futures[token] = asyncio.get_running_loop().create_future()
        return future

    async def open(self, store: Store, path: str) -> File:
        """Open a file."""
        from foretell._store import File

        async with self._may_open:
            token = next(self._tokens)
            opening = store.begin_open(path, (self._completions, token))
            await self._future(token)
            return File(store, path, opening)

    async def read(self, file: File, offset: int, length: int) -> bytes:
        """Read up to `length` bytes at `offset`; returns at once if all are in memory."""
        async with self._may_read:
            token = next(self._tokens)
            found: object = file._begin_read(self._completions, token, offset, length, None)
            if found is None:
                found = await self._future(token)
            return cast("bytes", found)


_WAITING: WeakKeyDictionary[asyncio.AbstractEventLoop, Waiting] = WeakKeyDictionary()
