"""What libraries read of files, beside the plans of files, .npy, safetensors and tar."""

import io
import random
import tarfile
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disclosing import Recorded, check, ranges_of

import foretell
from foretell import disclose

SEED = 3
SELECTIONS = 200


def test_tarfile_reads_what_is_planned(tmp_path: Path) -> None:
    source = random.Random(SEED)
    with tarfile.open(tmp_path / "a.tar", "w") as archive:
        for number in range(50):
            member = tarfile.TarInfo(f"{number}.bin")
            member.size = source.choice([0, 1, 512, source.randrange(20_000)])
            archive.addfile(member, io.BytesIO(source.randbytes(member.size)))
    file = Recorded.at(foretell.Store(tmp_path), "a.tar")
    index = disclose.tar_index(file)
    with tarfile.open(fileobj=file, mode="r:") as archive:
        members = archive.getmembers()
        for _ in range(SELECTIONS):
            chosen = source.sample(members, source.randint(1, 5))
            plan = disclose.tar(file, [one.name for one in chosen], index=index)
            file.reads.clear()
            for one in chosen:
                opened = archive.extractfile(one)
                assert opened is not None
                opened.read()
            check(ranges_of(plan, "a.tar", file.size), file.reads, 0)
    # As WebDataset reads a shard.
    file = Recorded.at(foretell.Store(tmp_path), "a.tar")
    with tarfile.open(fileobj=file, mode="r|") as archive:
        assert len(archive.getnames()) == 50
    check(ranges_of(disclose.tar(file), "a.tar", file.size), file.reads, 0)


@pytest.mark.parametrize("order", ["C", "F"])
def test_numpy_reads_what_is_planned(tmp_path: Path, order: Any) -> None:
    np.save(tmp_path / "a.npy", np.zeros((300, 40, 30), "f4", order=order))
    file = Recorded.at(foretell.Store(tmp_path), "a.npy")
    planned = ranges_of(disclose.npy(file), "a.npy", file.size)
    ((begin, _),) = planned
    file.reads.clear()
    np.load(file)
    check([(0, begin), *planned], file.reads, 0)


def test_files_are_read_as_planned(tmp_path: Path) -> None:
    source, store = random.Random(SEED), foretell.Store(tmp_path)
    for number in range(20):
        (tmp_path / str(number)).write_bytes(source.randbytes(source.randrange(50_000)))
    for _ in range(SELECTIONS):
        order = [str(one) for one in source.sample(range(20), 5)]
        files = {name: Recorded.at(store, name) for name in order}
        for name, (path, offset, length) in zip(
            order, disclose.files(order, store=store), strict=True
        ):
            assert (path, offset, length) == (name, 0, None)
            files[name].read()
            check([(0, files[name].size)], files[name].reads, 0)


def random_slices(shape: tuple[int, ...], source: random.Random) -> tuple[Any, ...]:
    """What `get_slice` of safetensors takes: it has neither negative limits nor negative steps, nor empty slices."""

    def one(size: int) -> Any:
        if source.random() < 0.4:
            return source.randrange(-size, size)
        start, stop = sorted(source.sample(range(size + 1), 2))
        return slice(start, stop, source.choice([None, 1, 2, 3]))

    index = [one(size) for size in shape]
    cut = source.randint(0, len(shape))
    if source.random() < 0.3:
        tail = source.randint(cut, len(shape))
        return (*index[:cut], Ellipsis, *index[tail:])
    return tuple(index[:cut])


def test_safetensors_slices_are_those_of_its_library(tmp_path: Path) -> None:
    library = pytest.importorskip("safetensors")
    save = pytest.importorskip("safetensors.numpy").save_file
    source, numbers = random.Random(SEED), np.random.default_rng(SEED)
    tensors = {
        kind: numbers.integers(0, 2, (13, 7, 5)).astype(kind)
        for kind in ["?", "u1", "i2", "f2", "f4", "i8", "c8"]
    }
    save(tensors, tmp_path / "a.safetensors")
    content = (tmp_path / "a.safetensors").read_bytes()
    with library.safe_open(tmp_path / "a.safetensors", "np") as opened:
        for _ in range(SELECTIONS):
            name = source.choice(list(tensors))
            index = random_slices((13, 7, 5), source)
            plan = disclose.safetensors(tmp_path / "a.safetensors", {name: index})
            found = b"".join(content[at : at + (length or 0)] for _, at, length in plan)
            assert found == opened.get_slice(name)[index].tobytes(), (name, index)
