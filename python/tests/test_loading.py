"""Samplers that are drawn ahead, and data sets that disclose what they will read. None of it needs torch."""

import errno
import gc
import itertools
import os
import pickle
import random
import subprocess
import time
import warnings
import weakref
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Gated, Served

import foretell
from foretell._loading import _dataset
from foretell._loading._notes import Batch, Index, plain
from foretell.torch import disclose_ahead, disclose_dataset, disclose_sampler

SEED = 7


def batched(items: Iterable[Any], size: int) -> Iterator[list[Any]]:
    source = iter(items)
    while some := list(itertools.islice(source, size)):
        yield some


class Shuffled:
    """A sampler as torch's `DistributedSampler`, with a state."""

    def __init__(self, size: int) -> None:
        self.size = size
        self.epoch = 0
        self.at = 0
        self.drawn = 0

    def __len__(self) -> int:
        return self.size

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def order(self, epoch: int) -> list[int]:
        return random.Random(epoch).sample(range(self.size), self.size)

    def __iter__(self) -> Iterator[int]:
        order = self.order(self.epoch)
        while self.at < self.size:
            self.at += 1
            self.drawn += 1
            yield order[self.at - 1]
        self.at = 0

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "at": self.at}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.at = state["epoch"], state["at"]


class Batches:
    """A batch sampler."""

    def __init__(self, sampler: Any, size: int) -> None:
        self.sampler = sampler
        self.size = size

    def __iter__(self) -> Iterator[list[int]]:
        yield from batched(self.sampler, self.size)


class Endless:
    def __iter__(self) -> Iterator[int]:
        self.drawn = 0
        for number in itertools.count():
            self.drawn += 1
            yield number


def notes(items: Any, count: int | None = None) -> list[Any]:
    found = [item.note for item in itertools.islice(items, count) if getattr(item, "note", None)]
    return [(note.key, dict(note.batches(note.key, 0, 1))) for note in found]


@pytest.mark.parametrize("ahead", [0, 1, 10, 1000])
def test_the_order_is_that_of_the_sampler(ahead: int) -> None:
    sampler = disclose_sampler(Shuffled(100), ahead=ahead, batch_size=7)
    assert len(sampler) == 100
    assert (sampler.epoch, sampler.size) == (0, 100)
    for epoch in [0, 1, 2, 5, 5]:
        sampler.set_epoch(epoch)
        assert list(sampler) == Shuffled(100).order(epoch)
    batches = disclose_sampler(Batches(Shuffled(100), 7), ahead=ahead)
    assert list(batches) == list(Batches(Shuffled(100), 7))
    with pytest.raises(TypeError):
        len(batches)
    assert not hasattr(batches, "set_epoch")
    assert not hasattr(batches, "state_dict")


@pytest.mark.parametrize("ahead", [0, 10, 1000])
def test_a_note_says_which_batches_come_later(ahead: int) -> None:
    order = Shuffled(100).order(0)
    wanted = {(0, number): order[number * 7 : number * 7 + 7] for number in range(15)}
    by_index = disclose_sampler(Shuffled(100), ahead=ahead, batch_size=7, next_epoch=False)
    by_batch = disclose_sampler(Batches(Shuffled(100), 7), ahead=ahead)
    for sampler in [by_index, by_batch]:
        found = notes(pickle.loads(pickle.dumps(item)) for item in sampler)
        assert [key for key, _ in found] == list(wanted)
        for key, later in found:
            assert all(wanted[one] == indices for one, indices in later.items())
            assert list(later) == list(wanted)[key[1] + 1 :][: len(later)]
            least = min((ahead - 7) // 7, 14 - key[1])
            assert least <= len(later) <= ahead // 7 + 1


def test_an_endless_sampler_is_drawn_so_far_ahead() -> None:
    endless = Endless()
    sampler = iter(disclose_sampler(endless, ahead=50))
    assert list(itertools.islice(sampler, 1000)) == list(range(1000))
    assert endless.drawn <= 1050


def test_the_next_epoch_is_known_early() -> None:
    sampler = disclose_sampler(Shuffled(20), ahead=40, batch_size=5)
    _, later = notes(sampler)[0]
    assert later[1, 0] == Shuffled(20).order(1)[:5]
    sampler.set_epoch(1)
    assert list(sampler) == Shuffled(20).order(1)
    sampler.set_epoch(9)  # Not the one that was drawn.
    assert list(sampler) == Shuffled(20).order(9)
    assert list(sampler) == Shuffled(20).order(9)
    batches = disclose_sampler(Batches(range(20), 5), ahead=40, next_epoch=True)
    key, later = notes(batches)[0]
    assert key == (0, 0)
    assert list(later) == [(0, 1), (0, 2), (0, 3), *((1, number) for number in range(4))]
    assert notes(batches)[0][0] == (1, 0)


@pytest.mark.parametrize("size", [100, 5000])
def test_the_state_is_that_of_what_was_yielded(size: int) -> None:
    source = random.Random(SEED)
    for _ in range(10):
        sampler = disclose_sampler(Shuffled(size), ahead=30)
        sampler.set_epoch(3)
        count = source.randrange(size)
        iteration = iter(sampler)
        found = list(itertools.islice(iteration, count))
        state = pickle.loads(pickle.dumps(sampler.state_dict()))
        assert found + list(iteration) == Shuffled(size).order(3)
        again = disclose_sampler(Shuffled(size), ahead=7)
        again.load_state_dict(state)
        assert again.state_dict() == state
        assert found + list(again) == Shuffled(size).order(3)
    own = disclose_sampler(Shuffled(size))
    own.load_state_dict({"epoch": 3, "at": 10})  # Of the sampler without the wrapper.
    assert list(own) == Shuffled(size).order(3)[10:]


def test_the_process_that_draws_may_disclose(monkeypatch: pytest.MonkeyPatch, data: Path) -> None:
    store = foretell.Store(data)

    def plan_of(index: int) -> foretell.Plan:
        if index == 3:
            raise RuntimeError("no plan")
        return foretell.Plan(lambda: [("even", index * 100, 100)], store)

    sampler = disclose_sampler(range(50), ahead=20, plan_of=plan_of)
    iteration = iter(sampler)
    with pytest.warns(RuntimeWarning, match="index 3 is not disclosed.*RuntimeError: no plan"):
        assert next(iteration) == 0
    hints = sampler._hints
    assert hints is not None
    assert hints.wait(60)
    assert hints.ranges == 19
    assert hints.problem == "RuntimeError: no plan"
    assert list(iteration) == list(range(1, 50))


def test_wrong_arguments() -> None:
    with pytest.raises(ValueError, match="ahead"):
        disclose_sampler([], ahead=-1)
    with pytest.raises(ValueError, match="batch"):
        disclose_sampler([], batch_size=0)
    with pytest.raises(ValueError, match="ahead"):
        disclose_ahead([], lambda item: [], ahead=-1)
    with pytest.raises(TypeError, match="foretell_plan"):
        disclose_dataset([])


@pytest.mark.parametrize("index", [3, "name", (1, "two"), 2.5, None])
def test_an_index_of_any_type_is_the_same_with_a_note(index: Any) -> None:
    for item in [*disclose_sampler([index] * 3), *disclose_sampler([[index]] * 3)]:
        same = pickle.loads(pickle.dumps(item))
        assert same == item == (index if not isinstance(item, Batch) else [index])
        assert type(plain(same)) is type(index) or isinstance(item, Batch)


class Files:
    """A data set of files of a store."""

    def __init__(self, store: foretell.Store, names: list[str]) -> None:
        self.store = store
        self.names = names

    def __len__(self) -> int:
        return len(self.names)

    def __getitem__(self, index: int) -> bytes:
        assert type(index) is int
        with self.store.open(self.names[index]) as file:
            return file.read()

    def foretell_plan(self, index: int) -> list[tuple[str, int, int | None]]:
        return [(self.names[index], 0, None)]


@pytest.fixture
def files(slow: Served) -> Files:
    store = foretell.Store("s3://data", settings=slow.settings)
    return Files(store, [f"sub/{number}.bin" for number in range(100)])


def contents(data: Path, files: Files, order: Any) -> list[bytes]:
    return [(data / files.names[index]).read_bytes() for index in order]


def test_files_are_read_as_they_were_opened_for_hints(files: Files, data: Path) -> None:
    order = random.Random(SEED).sample(range(100), 100)
    dataset = disclose_dataset(files, store=files.store)
    found: list[bytes] = []
    for batch in disclose_sampler(Batches(order, 9), ahead=40):
        found += dataset.__getitems__(batch)
    assert found == contents(data, files, order)
    assert dataset.problem is None
    counts = files.store.stats()
    assert counts["wasted_blocks"] == 0
    assert counts["prefetched_blocks"] >= 90
    assert dataset._here().taken >= 90
    by_index = [dataset[index] for index in disclose_sampler(order, ahead=40)]
    assert by_index == found


@pytest.mark.parametrize("workers", [1, 2, 3, 8])
def test_each_worker_discloses_its_own_share(
    files: Files, data: Path, monkeypatch: pytest.MonkeyPatch, workers: int
) -> None:
    order = random.Random(SEED).sample(range(100), 100)
    planned: list[list[int]] = [[] for _ in range(workers)]
    worker = 0

    def plan_of(index: int) -> Any:
        planned[worker].append(index)
        return files.foretell_plan(index)

    sets = [disclose_dataset(files, plan_of, store=files.store) for _ in range(workers)]
    monkeypatch.setattr(_dataset, "share", lambda: (worker, workers))
    given: list[list[int]] = [[] for _ in range(workers)]
    found: list[bytes] = []
    for number, batch in enumerate(disclose_sampler(Batches(order, 9), ahead=40)):
        worker = number % workers
        given[worker] += batch
        found += sets[worker].__getitems__(pickle.loads(pickle.dumps(batch)))
    assert found == contents(data, files, order)
    assert planned == given


def test_an_epoch_that_is_given_up_costs_nothing_of_the_next(files: Files, data: Path) -> None:
    order = list(range(100))
    dataset = disclose_dataset(files, store=files.store)
    sampler = disclose_sampler(order, ahead=50, batch_size=10)
    for _ in range(3):
        batches = list(batched(itertools.islice(sampler, 40), 10))
        found = [item for batch in batches for item in dataset.__getitems__(batch)]
        assert found == contents(data, files, order[:40])
    # Batches out of turn.
    batches = list(batched(sampler, 10))
    for number in [5, 2, 9, 3, 4]:
        found = [dataset.__getitems__(batches[number])]
        assert found == [contents(data, files, batches[number])]


def test_a_file_that_is_replaced_is_read_as_it_is_now(tmp_path: Path) -> None:
    for number in range(20):
        (tmp_path / str(number)).write_bytes(b"old" * 30_000)
    store = foretell.Store(tmp_path, budget="1MiB", block=4096)
    dataset = disclose_dataset(Files(store, [str(number) for number in range(20)]), store=store)
    for batch in disclose_sampler(Batches(range(20), 2), ahead=20):
        found = dataset.__getitems__(batch)
        assert set(found) <= {b"old" * 30_000, b"new" * 30_000}
        if batch[0] == 4:
            for number in range(20):
                (tmp_path / "new").write_bytes(b"new" * 30_000)
                os.replace(tmp_path / "new", tmp_path / str(number))
    assert found[-1] in (b"old" * 30_000, b"new" * 30_000)


def read_all(dataset: Any, indices: Iterable[int]) -> list[bytes]:
    batches = disclose_sampler(Batches(indices, 5), ahead=30)
    return [item for batch in batches for item in dataset.__getitems__(batch)]


def test_a_plan_that_fails_costs_its_hints_only(files: Files, data: Path) -> None:
    def plan_of(index: int) -> Any:
        if index % 3 == 0:
            raise KeyError(index)
        if index % 5 == 0:
            return "no triples"
        if index % 7 == 0:
            return [(files.names[index], 0)]
        return [("absent" if index % 3 == 1 else files.names[index], 0, None)]

    dataset = disclose_dataset(files, plan_of, store=files.store)
    with pytest.warns(RuntimeWarning) as warned:
        found = read_all(dataset, range(50))
    assert found == contents(data, files, range(50))
    (told,) = warned  # Of many failures, the first.
    assert "item 0 is not disclosed, so reading it may be slow: KeyError: 0" in str(told.message)
    assert dataset.problem == "TypeError: ('sub/49.bin', 0) is not (path, offset, length)"
    files.names[7] = "absent"
    with pytest.raises(FileNotFoundError) as raised:
        list(map(dataset.__getitem__, disclose_sampler(range(50), ahead=30)))
    assert raised.value.errno == errno.ENOENT


def test_paths_that_are_no_paths_are_told_once(files: Files) -> None:
    dataset = disclose_dataset(files, lambda index: [(f"s3://bucket/{index}", 0, None)])
    with pytest.warns(RuntimeWarning, match="s3://bucket/0 is an address, not a path"):
        read_all(dataset, range(50))
    assert "is an address" in (dataset.problem or "")


def test_forked_workers_warn_once_together(files: Files) -> None:
    def plan_of(index: int) -> Any:
        raise RuntimeError("no plan")

    dataset = disclose_dataset(files, plan_of, store=files.store)
    batch = next(iter(disclose_sampler(Batches(range(50), 5), ahead=30)))
    child = os.fork()
    if child == 0:
        with warnings.catch_warnings(record=True) as told:
            warnings.simplefilter("always")
            dataset.__getitems__(batch)
        os._exit(len(told))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        dataset.__getitems__(batch)
    wrong: Any = range  # It yields no triples.
    copied = pickle.loads(pickle.dumps(disclose_dataset(list(range(5)), wrong)))
    with pytest.warns(RuntimeWarning):
        copied.__getitems__(next(iter(disclose_sampler(Batches(range(5), 5)))))


def test_records_of_one_file(data: Path) -> None:
    store = foretell.Store(data, budget="8MiB")
    content = (data / "odd").read_bytes()

    class Records:
        def __init__(self) -> None:
            self.file = store.open("odd")

        def __len__(self) -> int:
            return 300

        def __getitem__(self, index: int) -> bytes:
            return self.file.read_at(index * 10_000, 10_000)

        def foretell_plan(self, index: int) -> Any:
            return [("odd", index * 10_000, 10_000)]

    dataset = disclose_dataset(Records(), store=store)
    order = random.Random(SEED).sample(range(300), 300)
    found: list[bytes] = []
    for batch in disclose_sampler(Batches(order, 16), ahead=100):
        found += dataset.__getitems__(batch)
        with store.open("odd") as other:  # Not one that another part of the program has.
            assert other.read(10) == content[:10]
    assert found == [content[index * 10_000 : (index + 1) * 10_000] for index in order]
    assert store.stats()["prefetched_blocks"] > 0


def test_iterables_are_disclosed_ahead(files: Files, data: Path) -> None:
    names = files.names[:30]
    ahead = disclose_ahead(names, lambda name: [(name, 0, None)], store=files.store, ahead=5)
    found = []
    for name in ahead:
        with files.store.open(name) as file:
            found.append(file.read())
    assert found == contents(data, files, range(30))
    counts = files.store.stats()
    assert counts["prefetched_blocks"] >= 25
    assert counts["wasted_blocks"] == 0
    left = iter(disclose_ahead(names, lambda name: [(name, 0, None)], store=files.store))
    next(left)
    del left
    assert not any(ahead._entries for ahead in files.store._ahead.values())


def test_what_is_not_used_any_more_is_forgotten(data: Path) -> None:
    store = foretell.Store(data)
    dataset = disclose_dataset(
        Files(store, [f"sub/{number}.bin" for number in range(50)]), store=store
    )
    for batch in disclose_sampler(Batches(range(50), 5), ahead=30):
        dataset.__getitems__(batch)
        if batch[0] == 20:
            break
    known = weakref.ref(store)
    del dataset, store
    deadline = time.monotonic() + 60
    while known() is not None:  # The thread of the hints ends.
        assert time.monotonic() < deadline
        gc.collect()


def test_a_forked_child_discloses_its_own_reads(files: Files, data: Path) -> None:
    dataset = disclose_dataset(files, store=files.store)
    batches = list(disclose_sampler(Batches(range(100), 10), ahead=50))
    dataset.__getitems__(batches[0])
    child = os.fork()
    if child == 0:
        found = dataset.__getitems__(batches[1])
        os._exit(0 if found == contents(data, files, range(10, 20)) else 1)
    assert os.waitpid(child, 0)[1] == 0
    assert dataset.__getitems__(batches[1]) == contents(data, files, range(10, 20))


def test_a_file_that_is_slow_to_open_is_waited_for_once(gated: Gated) -> None:
    store = foretell.Store(gated.url)
    dataset = disclose_dataset(Files(store, [f"/{number}" for number in range(20)]), store=store)
    for batch in disclose_sampler(Batches(range(20), 4), ahead=20):
        found = dataset.__getitems__(batch)
        assert found == [gated.bytes(0, gated.size)] * 4
    asked = [what for what in gated.asked if what.startswith("open")]
    assert len(asked) == len(set(asked)) == 20


def test_an_index_is_an_integer() -> None:
    index = next(iter(disclose_sampler([5])))
    assert isinstance(index, Index)
    assert [10, 11, 12, 13, 14, 15][index] == 15


def test_files_of_fsspec_are_those_that_were_opened_for_hints(slow: Served, data: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    fs = fsspec.filesystem("foretell", target_protocol="s3", settings=slow.settings)
    store, _ = fs.store("data/sub")

    class OfFsspec(Files):
        def __getitem__(self, index: int) -> bytes:
            with fs.open(f"data/{self.names[index]}") as file:
                assert file.path == f"data/{self.names[index]}"
                return bytes(file.read())

    files = OfFsspec(store, [f"sub/{number}.bin" for number in range(100)])
    dataset = disclose_dataset(files, store=store)
    found = [dataset[index] for index in disclose_sampler(range(100), ahead=40)]
    assert found == contents(data, files, range(100))
    assert dataset._here().taken >= 90


@pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="no FUSE")
def test_names_on_a_mount_are_looked_up_ahead(data: Path, command: Path, tmp_path: Path) -> None:
    class OfMount:
        def __getitem__(self, index: int) -> bytes:
            return (tmp_path / f"sub/{index}.bin").read_bytes()

        def foretell_plan(self, index: int) -> Any:
            return [
                (str(tmp_path / f"sub/{index}.bin"), 0, 100),
                (str(tmp_path / f"sub/{index}.bin"), 500, None),
            ]

    subprocess.run([str(command), "mount", str(data), str(tmp_path)], check=True, timeout=300)
    try:
        dataset = disclose_dataset(OfMount())
        found = [dataset[index] for index in disclose_sampler(range(100), ahead=40)]
        assert found == [(data / f"sub/{index}.bin").read_bytes() for index in range(100)]
        names = dataset._here().names
        assert names is not None
        assert 80 <= names.looked_up <= 100
        del dataset, names
        gc.collect()
    finally:
        subprocess.run([str(command), "unmount", str(tmp_path)], check=True, timeout=300)
