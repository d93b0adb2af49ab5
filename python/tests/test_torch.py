"""Loaders of torch itself. Skipped without torch; `requirements-loaders.txt` has it."""

import json
import multiprocessing
import os
import random
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from conftest import Served

import foretell
from foretell import disclose
from foretell.torch import disclose_ahead, disclose_dataset, disclose_sampler

torch = pytest.importorskip("torch")
data_of = pytest.importorskip("torch.utils.data")

SEED = 7
# Longer than anything here takes, unless it hangs.
HANG_S = 120


class Files(data_of.Dataset):  # type: ignore[misc, name-defined]
    """Files of a store; an item is the file's bytes, the worker, and the blocks that were fetched ahead there so far."""

    def __init__(self, store: foretell.Store) -> None:
        self.store = store

    def __len__(self) -> int:
        return 100

    def __getitem__(self, index: int) -> tuple[bytes, int, int]:
        with self.store.open(f"sub/{index}.bin") as file:
            found = file.read()
        told = data_of.get_worker_info()
        return found, -1 if told is None else told.id, self.store.stats()["prefetched_blocks"]

    def foretell_plan(self, index: int) -> list[tuple[str, int, int | None]]:
        return [(f"sub/{index}.bin", 0, None)]


def as_list(items: list[Any]) -> list[Any]:
    return items


@pytest.fixture
def store(slow: Served) -> foretell.Store:
    return foretell.Store("s3://data", settings=slow.settings)


def loader(store: foretell.Store, workers: int, how: str | None = None, **named: Any) -> Any:
    from foretell.torch import DataLoader

    if workers:
        named["multiprocessing_context"] = how
    named.setdefault("collate_fn", as_list)
    generator = torch.Generator().manual_seed(SEED)
    return DataLoader(Files(store), num_workers=workers, store=store, generator=generator, **named)


def plain_orders(epochs: int) -> list[list[int]]:
    """The orders of torch's own loader with that generator."""
    generator = torch.Generator().manual_seed(SEED)
    plain = data_of.DataLoader(range(100), batch_size=None, shuffle=True, generator=generator)
    return [[int(index) for index in plain] for _ in range(epochs)]


@pytest.mark.parametrize(
    ("workers", "how"),
    [(0, None), (1, "fork"), (2, "fork"), (2, "spawn"), (2, "forkserver"), (8, "fork")],
)
def test_a_shuffled_epoch(store: foretell.Store, data: Path, workers: int, how: str | None) -> None:
    loaded = loader(store, workers, how, batch_size=6, shuffle=True)
    assert (len(loaded), loaded.batch_size) == (17, 6)
    for order in plain_orders(2):
        items = [item for batch in loaded for item in batch]
        assert [one[0] for one in items] == [
            (data / f"sub/{index}.bin").read_bytes() for index in order
        ]
        most: dict[int, int] = {}
        for _, worker, ahead in items:
            most[worker] = max(most.get(worker, 0), ahead)
        assert sorted(most) == (list(range(workers)) or [-1])
        assert all(most.values())


@pytest.mark.parametrize("workers", [0, 2])
def test_workers_that_stay_begin_the_next_epoch(store: foretell.Store, workers: int) -> None:
    sampler = data_of.DistributedSampler(range(100), num_replicas=2, rank=1)
    named: dict[str, Any] = {"persistent_workers": True} if workers else {}
    loaded = loader(store, workers, sampler=sampler, batch_size=6, ahead=500, **named)
    found = []
    for epoch in range(3):
        loaded.sampler.set_epoch(epoch)
        found.append([item for batch in loaded for item in batch])
    orders = []
    for epoch in range(3):
        sampler.set_epoch(epoch)
        orders.append(list(sampler))
    assert [[len(one[0]) - 1000 for one in items] for items in found] == orders
    # Some of the second epoch were fetched before it began.
    assert sum({worker: ahead for _, worker, ahead in found[0]}.values()) > 50


@pytest.mark.parametrize("workers", [0, 2])
def test_batch_samplers_and_single_items(store: foretell.Store, workers: int) -> None:
    sampler = data_of.BatchSampler(data_of.SequentialSampler(range(100)), 7, drop_last=True)
    found = [item for batch in loader(store, workers, batch_sampler=sampler) for item in batch]
    assert [len(one[0]) - 1000 for one in found] == list(range(98))
    single = list(loader(store, workers, batch_size=None))
    assert [len(one[0]) - 1000 for one in single] == list(range(100))


def test_an_iterable_data_set_is_refused(store: foretell.Store) -> None:
    from foretell.torch import DataLoader

    class Endless(data_of.IterableDataset):  # type: ignore[misc, name-defined]
        def __iter__(self) -> Iterator[int]:
            return iter(())

    with pytest.raises(TypeError, match="disclose_ahead"):
        DataLoader(Endless(), plan_of=lambda index: [])


class Shards(data_of.IterableDataset):  # type: ignore[misc, name-defined]
    def __init__(self, store: foretell.Store) -> None:
        self.store = store

    def __iter__(self) -> Iterator[tuple[int, int]]:
        told = data_of.get_worker_info()
        mine = range(told.id, 100, told.num_workers)
        for number in disclose_ahead(
            mine, lambda number: [(f"sub/{number}.bin", 0, None)], store=self.store, ahead=10
        ):
            with self.store.open(f"sub/{number}.bin") as file:
                yield len(file.read()) - 1000, self.store.stats()["prefetched_blocks"]


def test_iterable_data_sets(store: foretell.Store) -> None:
    loaded = data_of.DataLoader(Shards(store), batch_size=None, num_workers=2)
    found = list(loaded)
    assert sorted(number for number, _ in found) == list(range(100))
    assert found[-1][1] > 40


def test_a_loader_that_keeps_its_state(store: foretell.Store) -> None:
    stateful = pytest.importorskip("torchdata.stateful_dataloader")

    class Kept(data_of.Sampler):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            self.at = 0

        def __len__(self) -> int:
            return 100

        def __iter__(self) -> Iterator[int]:
            while self.at < 100:
                self.at += 1
                yield (self.at - 1) * 37 % 100
            self.at = 0

        def state_dict(self) -> dict[str, Any]:
            return {"at": self.at}

        def load_state_dict(self, state: dict[str, Any]) -> None:
            self.at = state["at"]

    def make() -> Any:
        return stateful.StatefulDataLoader(
            disclose_dataset(Files(store), store=store),
            sampler=disclose_sampler(Kept(), batch_size=5, ahead=40),
            batch_size=5,
            collate_fn=as_list,
            num_workers=2,
        )

    loaded = make()
    iteration = iter(loaded)
    found = [item for _ in range(7) for item in next(iteration)]
    state = loaded.state_dict()
    again = make()
    again.load_state_dict(state)
    found += [item for batch in again for item in batch]
    assert [len(one[0]) - 1000 for one in found] == [number * 37 % 100 for number in range(100)]


PROGRAM = """
import os, sys
import torch, foretell
from foretell.torch import DataLoader

class Files(torch.utils.data.Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, index):
        with open(f"{sys.argv[1]}/sub/{index}.bin", "rb") as file:
            return len(file.read()) - 1000
    def foretell_plan(self, index):
        return [(f"{sys.argv[1]}/sub/{index}.bin", 0, None)]

torch.manual_seed(1)
for workers in [0, 2]:
    loader = DataLoader(Files(), batch_size=6, shuffle=True, num_workers=workers)
    print(sorted(int(number) for batch in loader for number in batch) == list(range(100)))
"""


def test_the_manager_of_a_run_is_told(data: Path, command: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    program = [sys.executable, "-c", PROGRAM, str(data)]
    run = [str(command), "run", "--no-learn", "--json", str(report), "--", *program]
    done = subprocess.run(run, stdout=subprocess.PIPE, text=True, check=True, timeout=HANG_S)
    assert done.stdout.split() == ["True", "True"]
    assert json.loads(report.read_text())["hints"]


@pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="no FUSE")
def test_a_mount_is_told(data: Path, command: Path, tmp_path: Path) -> None:
    subprocess.run([str(command), "mount", str(data), str(tmp_path)], check=True, timeout=HANG_S)
    try:
        program = [sys.executable, "-c", PROGRAM, str(tmp_path)]
        done = subprocess.run(program, stdout=subprocess.PIPE, text=True, timeout=HANG_S)
        assert done.stdout.split() == ["True", "True"]
    finally:
        subprocess.run([str(command), "unmount", str(tmp_path)], check=True, timeout=HANG_S)


INTERRUPTED = """
import sys, signal
import torch, foretell
from foretell.torch import DataLoader

store = foretell.Store("s3://data", settings={{"aws_endpoint": sys.argv[1], "skip_signature": "true"}})

class Files(torch.utils.data.Dataset):
    def __len__(self):
        return 100
    def __getitem__(self, index):
        if index == 50:
            print("waits", flush=True)
        with store.open("odd") as file:
            return file.read_at(index * 100, 100)
    def foretell_plan(self, index):
        return [("odd", index * 100, 100)]

if __name__ == "__main__":
    print("began", flush=True)
    for batch in DataLoader(Files(), batch_size=2, num_workers={workers}, store=store):
        pass
"""


@pytest.mark.parametrize("workers", [0, 2])
def test_an_interrupt_ends_the_loader_and_its_workers(
    silent: Served, tmp_path: Path, workers: int
) -> None:
    program = textwrap.dedent(INTERRUPTED).format(workers=workers)
    process = subprocess.Popen(
        [sys.executable, "-c", program, silent.endpoint],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "began\n"
    time.sleep(1)
    os.killpg(process.pid, signal.SIGINT)
    began = time.monotonic()
    _, errors = process.communicate(timeout=HANG_S)
    print(f"ended after {time.monotonic() - began:.2f} s")
    assert process.returncode != 0
    assert "KeyboardInterrupt" in errors
    with pytest.raises(ProcessLookupError):  # No worker is left.
        os.killpg(process.pid, 0)


@pytest.mark.parametrize("folder", ["", "step/7"])
def test_a_distributed_checkpoint(tmp_path: Path, folder: str) -> None:
    checkpoint = pytest.importorskip("torch.distributed.checkpoint")
    from foretell.torch import CheckpointReader

    source = torch.Generator().manual_seed(SEED)
    state = {f"layer.{n}": torch.randn(40, 3 * n + 1, generator=source) for n in range(30)}
    state["step"] = 7
    checkpoint.save(state, checkpoint_id=tmp_path / folder)
    for url in [str(tmp_path), f"file://{tmp_path}"]:
        store = foretell.Store(url)
        found = {name: torch.zeros_like(one) for name, one in state.items() if name != "step"}
        found["step"] = 0
        checkpoint.load(found, storage_reader=CheckpointReader(store, folder))
        assert found.keys() == state.keys()
        assert all(torch.equal(found[name], state[name]) for name in state if name != "step")
        assert found["step"] == 7
    reader = CheckpointReader(store)
    reader.reset("absent")
    with pytest.raises(FileNotFoundError):
        reader.read_metadata()


def test_shards_of_webdataset(tmp_path: Path, data: Path) -> None:
    webdataset = pytest.importorskip("webdataset")
    for shard in range(4):
        with webdataset.TarWriter(str(tmp_path / f"{shard}.tar")) as writer:
            for number in range(10):
                key = f"{shard}{number}"
                writer.write({"__key__": key, "bin": key.encode() * 1000})
    store = foretell.Store(tmp_path)

    def opened(shards: Any) -> Iterator[dict[str, Any]]:
        def plan_of(shard: dict[str, str]) -> foretell.Plan:
            return disclose.files([shard["url"]], store=store)

        for shard in disclose_ahead(shards, plan_of, ahead=2):
            with store.open(shard["url"]) as stream:
                yield {**shard, "stream": stream}

    pipeline = webdataset.DataPipeline(
        webdataset.SimpleShardList([f"{shard}.tar" for shard in range(4)]),
        webdataset.split_by_worker,
        opened,
        webdataset.tariterators.tar_file_expander,
        webdataset.tariterators.group_by_keys,
    )
    found = [sample["__key__"] for sample in pipeline]
    assert found == [f"{shard}{number}" for shard in range(4) for number in range(10)]
    assert store.stats()["prefetched_blocks"] > 0
    assert multiprocessing.active_children() == []


def test_an_order_of_a_random_sampler() -> None:
    order = plain_orders(1)[0]
    assert sorted(order) == list(range(100))
    assert order != random.sample(range(100), 100)


@pytest.mark.parametrize("workers", ["0", "2"])
def test_the_example(data: Path, workers: str) -> None:
    example = Path(__file__).parents[2] / "examples/disclose_loader.py"
    words = [sys.executable, str(example), str(data / "sub"), workers]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=HANG_S)
    assert done.stdout == f"100 files, {sum(range(1000, 1100))} bytes\n"
