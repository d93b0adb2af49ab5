"""Plans on their way to whoever fetches the data."""

from __future__ import annotations

import errno
import os
import stat
import threading
import time
from collections import deque
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Self

from foretell.disclose._buffered import whole_buffers
from foretell.disclose._plan import Plan, Range, check_path, checked, mistake_in, text_of
from foretell.disclose._targets import OFFSET_MAX, Target, Targets

if TYPE_CHECKING:
    from types import TracebackType

    from foretell._store import Store

# Most ranges of one hint, and of all that are taken from plans ahead of the one that is sent.
BATCH = 1024
# Most adjacent ranges that become one. After so many, a plan is asked whether there is time for more.
MERGED_MAX = 4096
# Most runs that are taken ahead, so that their files can be opened meanwhile.
RUNS_AHEAD = 64
# A receiver that is behind is asked again after this time.
PAUSE_S = 0.02
# Plans are sent at once for so long, which suffices for a thousand files. A thread sends the rest. Programs that keep the
# interpreter busy slow it down.
AT_ONCE_S = 0.03
# It is looked up whether paths are files, until this took so long. On a slow mount, that is one lookup, of a name which the
# program opens next.
LOOK_UP_S = 0.005

NO_EFFECT = "`store` has no effect here: it is for triples; give it to disclose.files, and open files of it to the others"


class Run:
    """Adjacent ranges of one file in a plan; `parts` is `None` for the whole file. `size` is how many are left."""

    __slots__ = ("parts", "path", "plan", "size", "target")

    def __init__(
        self, target: Target, path: str, parts: list[tuple[int, int]] | None, plan: Plan
    ) -> None:
        self.target = target
        self.path = path
        self.parts = parts
        self.plan = plan
        self.size = 0


def runs_of(plan: Plan, targets: Targets) -> Iterator[Run]:
    """Group the ranges of a plan by file and by receiver; ranges without a receiver are left out."""
    store = None if plan.store is None else targets.of_store(plan.store, plan.files)
    run: Run | None = None
    given: str | None = None
    ranges = whole_buffers(plan) if plan.is_buffered else iter(plan)
    failed: Exception | None = None
    merged = 0
    while True:
        try:
            name, offset, length = checked(next(ranges))
            if offset < 0 or (length is not None and length < 0):
                raise ValueError(f"the range ({offset}, {length}) of {name} is negative")
        except StopIteration:
            break
        except Exception as error:  # The ranges before it are sent.
            failed = error
            break
        if length == 0:
            continue
        is_whole = offset == 0 and length is None
        if length is None or length > OFFSET_MAX - offset:
            length = OFFSET_MAX - offset
        if run is not None and name == given and run.parts is not None and not is_whole:
            last, last_length = run.parts[-1]
            if last + last_length == offset and merged < MERGED_MAX:
                run.parts[-1] = (last, last_length + length)
                merged += 1
                continue
            if len(run.parts) < BATCH:
                run.parts.append((offset, length))
                continue
        if run is not None:
            yield run
        merged = 0
        given = path = name
        target: Target | None = store
        if store is not None and path in plan.files:
            store.know({path: plan.files[path]})
        if target is None:
            check_path(path, takes_store=True)
            path = os.path.abspath(path)
            target = targets.of_path(path)
        parts = None if is_whole else [(offset, length)]
        run = None if target is None else Run(target, path, parts, plan)
    if run is not None:
        yield run
    if failed is not None:
        raise failed


class Feed:
    """Plans that are sent one after another, by one thread at a time.

    It does not refer to its owner, so that hints which a program drops are given up at once, and not by the garbage collector.
    """

    def __init__(self) -> None:
        self._plans: deque[Iterator[Run]] = deque()
        self._ahead: deque[Run] = deque()
        self._ahead_ranges = 0
        self.is_stopped = False
        self.is_driven = False
        self.is_done = threading.Event()

    def add(self, runs: Iterator[Run]) -> None:
        self._plans.append(runs)

    def _fill(self, owner: Disclosed, until: float) -> None:
        """Take runs from the plans, one at least, and no more after that time. May wait for what a plan reads."""
        while self._plans and self._ahead_ranges < BATCH and len(self._ahead) < RUNS_AHEAD:
            if self._ahead and time.monotonic() > until:
                return
            try:
                run = next(self._plans[0], None)
            except Exception as error:  # A plan that fails costs its hints.
                owner.note(error)
                run = None
            if self.is_stopped:
                return
            if run is None:
                self._plans.popleft()
                continue
            try:
                run.target.expect(run.path)
            except Exception as error:  # Its store is closed, say.
                owner.note(error)
                continue
            run.size = len(run.parts or [0])
            self._ahead.append(run)
            self._ahead_ranges += run.size

    def drive(self, owner: Disclosed, may_wait: bool) -> bool:
        """Send what there is; returns whether that was all. Without `may_wait`, it gives up soon."""
        until = time.monotonic() + AT_ONCE_S
        while not self.is_stopped:
            self._fill(owner, until if not may_wait else time.monotonic() + AT_ONCE_S)
            with owner.lock:
                if not self._ahead:
                    if self._plans:
                        continue
                    self.is_driven = False
                    self.is_done.set()
                    return True
                run = self._ahead[0]
            if not may_wait and not run.target.is_ready(run.path):
                return False
            is_sent = owner.send(self, run)
            left = 0 if is_sent else len(run.parts or [0])
            self._ahead_ranges -= run.size - left
            run.size = left
            if is_sent:
                self._ahead.popleft()
                owner.look_up(run)
            elif may_wait:
                time.sleep(PAUSE_S)
            else:
                return False
            if not may_wait and time.monotonic() > until:
                return False
        return True

    def go_on(self, owner: Disclosed) -> None:
        """Send the rest; the work of a thread."""
        try:
            self.drive(owner, may_wait=True)
        except BaseException:
            # Otherwise `drive` has said so itself, and another thread may drive by now.
            self.is_driven = False
            self.is_done.set()
            raise


class Disclosed:
    """Reads that were disclosed; see `foretell.disclosed`. It may be used by many threads.

    In a forked child it does nothing: a child discloses its own reads.
    """

    def __init__(self) -> None:
        self._targets = Targets()
        self.lock = threading.Lock()
        self._feed = Feed()
        self._process = os.getpid()
        self._is_closed = False
        self._problem: str | None = None
        self._look_up_s = LOOK_UP_S
        self.ranges = 0
        """Ranges that were disclosed so far; adjacent ones of a file count as one, and a whole file too."""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()

    @property
    def told(self) -> list[str]:
        """Who was told so far: "run", "mount" and "store". Empty if there is nobody: hints have no effect then.

        That somebody was told does not mean that the hints are right: see `problem`.
        """
        return sorted({target.name for target in self._targets.all()})

    @property
    def problem(self) -> str | None:
        """What is wrong with the hints, in one line: the last problem of all plans so far; `None` if there was none.

        The plans after it are disclosed all the same. It stays after `close`; `cancel` begins anew with `None`. What a thread
        sends may have its problem later, by half a second or more; after `wait` it is there. An offset beyond the end of a file
        is no problem.

        Mistakes that are found only by making a plan, or by looking for a file, are not found while there is no receiver of
        hints (`told` is empty). Of paths, the first is looked up, and more as long as this takes no time. So a path further on
        that is no file may pass unnoticed.
        """
        return self._problem

    def is_on_mount(self, path: str) -> bool:
        """Whether a path of this machine is on a foretell mount."""
        return self._targets.is_on_mount(os.path.abspath(path))

    def add(self, *plans: Plan | Iterable[Range], store: Store | None = None) -> None:
        """Disclose further plans, whose reads come after those so far; as `foretell.disclosed`."""
        if self._is_closed or self._process != os.getpid():
            return
        self._add(plans, store)
        if store is not None and plans and not any(is_of(one, store) for one in plans):
            self.note(ValueError(NO_EFFECT))

    def _add(self, plans: Iterable[Plan | Iterable[Range]], store: Store | None) -> None:
        made = [one if isinstance(one, Plan) else plan_of_triples(one, store) for one in plans]
        with self.lock:
            feed = self._feed
            for plan in made:
                if plan.mistake is not None:
                    self.note(plan.mistake)
                elif plan.store is not None or self._targets.may_listen():
                    feed.add(runs_of(plan, self._targets))
            if feed.is_driven:
                return
            feed.is_driven = True
            feed.is_done.clear()
        if not feed.drive(self, may_wait=False):
            threading.Thread(
                target=feed.go_on, args=(self,), name="foretell-disclosed", daemon=True
            ).start()

    def wait(self, timeout: float | None = None) -> bool:
        """Wait until all that was added has been sent, for at most `timeout` seconds; returns whether it has.

        Programs need not do this: the rest is sent while they read.
        """
        if self._process != os.getpid():
            return True
        return not self._feed.is_driven or self._feed.is_done.wait(timeout)

    def cancel(self) -> None:
        """Give up what was disclosed and not read. More may follow."""
        if not self._is_closed and self._process == os.getpid():
            self._problem = None
            self._stop("cancel")

    def close(self) -> None:
        """Give up what was disclosed and not read, for good."""
        if not self._is_closed and self._process == os.getpid():
            self._is_closed = True
            self._stop("close")

    def _stop(self, how: str) -> None:
        with self.lock:
            self._feed.is_stopped = True
            self._feed.is_done.set()
            self._feed = Feed()
            for target in self._targets.all():
                try:
                    getattr(target, how)()
                except OSError as error:
                    self.note(error)

    def note(self, error: Exception) -> None:
        """Note why something was not disclosed."""
        self._problem = text_of(error)

    def look_up(self, run: Run) -> None:
        """Note whether a path of this machine is no file."""
        if run.plan.store is not None or run.plan.is_sparse or self._look_up_s <= 0:
            return
        began = time.monotonic()
        try:
            if stat.S_ISDIR(os.stat(run.path).st_mode):
                raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), run.path)
        except OSError as error:
            self.note(error)
        self._look_up_s -= time.monotonic() - began

    def send(self, feed: Feed, run: Run) -> bool:
        """Send a run of a feed; returns whether it is done with. If not, the rest of it may be sent later."""
        try:
            if not run.target.is_ready(run.path):
                run.target.wait(run.path)
        except Exception as error:
            self.note(error)
            return True
        with self.lock:
            if feed.is_stopped:
                return True
            try:
                taken = run.target.hint(run.path, run.parts, run.plan.ordered)
            except Exception as error:  # Whatever it is, it costs hints only.
                if not (run.plan.is_sparse and isinstance(error, FileNotFoundError)):
                    self.note(error)
                return True
            self.ranges += taken
            if run.parts is None:
                return taken == 1
            del run.parts[:taken]
            return not run.parts


def is_of(plan: Plan | Iterable[Range], store: Store) -> bool:
    """Whether a plan has files of a store that is given with it."""
    return not isinstance(plan, Plan) or plan.store is store


def plan_of_triples(given: Iterable[Range], store: Store | None) -> Plan:
    """Make a plan of triples.

    Raises:
        TypeError: They are no iterable, or a string.

    """
    if isinstance(given, (str, bytes)) or not isinstance(given, Iterable):
        raise TypeError(f"{given!r}: a plan is needed, or an iterable of (path, offset, length)")
    mistake: Exception | None = None
    if store is None and isinstance(given, (list, tuple)) and given:
        try:
            mistake = mistake_in(checked(given[0])[0], takes_store=True)
        except TypeError as error:
            mistake = error
    return Plan(given.__iter__, store, mistake=mistake)


def disclosed(*plans: Plan | Iterable[Range], store: Store | None = None) -> Disclosed:
    """Disclose what will be read: plans of `foretell.disclose`, or triples ``(path, offset, length)``, in the order of reading.

    >>> with foretell.disclosed(disclose.hdf5(cube, numpy.s_[:, 40, :])):
    ...     plane = cube[:, 40, :]

    Hints go to the part of foretell that reads the data: the `foretell.Store` of open files; the foretell mount that a path is
    on; or else the manager, if the program was started by ``foretell run``. If there is none of these, nothing happens.

    Args:
        plans: What will be read. Offsets and lengths are in bytes; a length of `None` is the rest of the file. A plan is sent
            to its end: most of it at once, and by a thread if it is long, has files to open, or the receiver is behind.
        store: The store that triples name files of; by default, they name files of this machine. Plans have their own.

    Returns:
        A context manager. At its end, what was disclosed and not read is given up. `Disclosed.add` discloses further plans.
        Until then, foretell's file system of fsspec does not open the files of plans again: it reads the versions that were
        opened for the hints.

    Hints are advice. Wrong or outdated ones cost speed and nothing else, and a plan that cannot be made, say because the file
    has no such data set, raises nothing here: `Disclosed.problem` says why.

    Raises:
        TypeError: A plan is neither a `Plan` nor an iterable.

    """
    hints = Disclosed()
    hints.add(*plans, store=store)
    return hints
