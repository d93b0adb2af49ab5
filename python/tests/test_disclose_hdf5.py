"""Plans of HDF5 datasets, against what the library reads."""

import random
import re
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disclosing import Recorded, check, merged, ranges_of, total

import foretell
from foretell import disclose
from foretell.disclose import _hdf5, _hdf5_index

h5py = pytest.importorskip("h5py")

SEED = 7
SELECTIONS = 200
READ = re.compile(r"(\d+)- *\d+ \( *(\d+) bytes\) \(H5FD_MEM_DRAW\) Read")


class Traced:
    """A file whose reads of data are noted by the library itself."""

    def __init__(self, path: Path) -> None:
        self._log = path.with_suffix(".log")
        self._log.unlink(missing_ok=True)
        access = h5py.h5p.create(h5py.h5p.FILE_ACCESS)
        access.set_fapl_log(bytes(self._log), h5py.h5fd.LOG_LOC_READ, 0)
        self.file = h5py.File(h5py.h5f.open(bytes(path), h5py.h5f.ACC_RDONLY, access))

    def close(self) -> list[tuple[int, int]]:
        """Close it, and return offset and length of each read."""
        self.file.close()
        found = READ.findall(self._log.read_text())
        return [(int(offset), int(length)) for offset, length in found]


def random_selection(shape: tuple[int, ...], source: random.Random) -> Any:
    """Integers, slices, lists, masks of an axis, and masks of all."""
    if source.random() < 0.1:
        return np.random.default_rng(source.randrange(1 << 30)).random(shape) < 0.003
    fancy = source.randrange(len(shape)) if source.random() < 0.4 else -1

    def one(axis: int, size: int) -> Any:
        if axis == fancy:
            if source.random() < 0.3:
                return np.array([source.random() < 0.3 for _ in range(size)])
            return sorted(source.sample(range(size), source.randint(1, min(size, 9))))
        if source.random() < 0.3:
            return source.randrange(size)
        start, stop = sorted(source.randint(0, size) for _ in range(2))
        return slice(start, stop, source.choice([1, 1, 2, 7]))

    head = source.randint(max(fancy + 1, 0), len(shape))
    return tuple(one(axis, size) for axis, size in enumerate(shape[:head]))


def fill(dataset: Any) -> None:
    """Write a part of it, so that chunks are missing, and pieces in a random order, so that chunks lie in disorder."""
    rows = list(range(0, dataset.shape[0], max(dataset.shape[0] // 9, 1)))
    random.Random(SEED).shuffle(rows)
    drawn = np.random.default_rng(SEED)
    for row in rows[1:]:
        part = dataset[row : row + max(dataset.shape[0] // 9, 1)]
        dataset[row : row + len(part)] = drawn.integers(0, 99, part.shape)


MIXED = {"chunks": (7, 16, 5), "maxshape": (None, 50, 22)}
KINDS: dict[str, tuple[str, dict[str, Any]]] = {
    "contiguous": ("earliest", {}),
    "small chunks": ("earliest", {"chunks": (3, 5, 4)}),
    "B-tree": ("earliest", {"chunks": (7, 16, 5), "compression": "gzip", "shuffle": True}),
    "fixed array": ("latest", {"chunks": (7, 16, 5)}),
    "fixed array, filtered": ("latest", {"chunks": (7, 16, 5), "compression": "gzip"}),
    "fixed array, in pages": ("latest", {"chunks": (1, 7, 3)}),
    "fixed array, may grow": ("latest", {"chunks": (7, 16, 5), "maxshape": (99, 51, 80)}),
    "extensible array": ("latest", {**MIXED, "compression": "lzf"}),
    "v2 B-tree": ("latest", {"chunks": (7, 16, 5), "maxshape": (None, None, 22)}),
    "single chunk": ("latest", {"chunks": (41, 50, 22)}),
    "single chunk, filtered": ("latest", {"chunks": (41, 50, 22), "compression": "gzip"}),
}
SHAPE = (41, 50, 22)


def make(path: Path, kind: str, dtype: str = "<i4", **creation: Any) -> None:
    bounds, options = KINDS[kind]
    with h5py.File(path, "w", libver=bounds, **creation) as file:
        for number in range(9):
            file.create_group(f"other {number}").attrs["text"] = "x" * 50
        dataset = file.create_dataset("group/values", SHAPE, dtype, **options)
        dataset.attrs["text"] = "x" * 2000
        fill(dataset)


@pytest.mark.parametrize("dtype", ["<i4", ">f8"])
@pytest.mark.parametrize("kind", KINDS)
def test_ranges_are_what_the_library_reads(tmp_path: Path, kind: str, dtype: str) -> None:
    path, source = tmp_path / "a.h5", random.Random(SEED)
    make(path, kind, dtype)
    size = path.stat().st_size
    for _ in range(SELECTIONS // 2):
        selection = random_selection(SHAPE, source)
        traced = Traced(path)
        dataset = traced.file["group/values"]
        planned = ranges_of(disclose.hdf5(dataset, selection), str(path), size)
        dataset[selection]
        reads = traced.close()
        check(planned, reads)
        if "array" not in kind and "B-tree" not in kind:
            assert planned == reads


@pytest.mark.parametrize("kind", ["contiguous", "B-tree", "fixed array"])
def test_ranges_are_what_is_read_of_a_file_of_a_store(tmp_path: Path, kind: str) -> None:
    make(tmp_path / "a.h5", kind)
    source = random.Random(SEED)
    store = foretell.Store(tmp_path, budget="16MiB")
    file = Recorded.at(store, "a.h5")
    for _ in range(SELECTIONS // 4):
        selection = random_selection(SHAPE, source)
        with h5py.File(file, "r") as opened:
            dataset = opened["group/values"]
            plan = disclose.hdf5(dataset, selection, file=file)
            planned = ranges_of(plan, "a.h5", file.size)
            if kind != "contiguous":
                dataset.id.chunk_iter(lambda _: None)  # It knows its index now.
            file.reads.clear()
            with foretell.disclosed(plan) as hints:
                file.reads.clear()
                dataset[selection]
            assert (hints.problem, hints.told) == (None, ["store"])
            assert planned == file.reads


def test_large_chunks_are_read_in_runs(tmp_path: Path) -> None:
    path, source = tmp_path / "a.h5", random.Random(SEED)
    shape = (30, 40, 20)
    with h5py.File(path, "w") as file:
        file["values"] = np.zeros(1)
        made = file.create_dataset("large", shape, "<i2", chunks=(13, 30, 20))
        made[:] = np.arange(24000).reshape(shape) % 999
    for _ in range(SELECTIONS):
        selection = random_selection(shape, source)
        with h5py.File(path, rdcc_nbytes=1000) as opened:
            plan = list(disclose.hdf5(opened["large"], selection))
        store = foretell.Store(tmp_path)
        file = Recorded.at(store, "a.h5")
        with h5py.File(file, "r", rdcc_nbytes=1000) as opened:
            opened["large"].id.chunk_iter(lambda _: None)
            file.reads.clear()
            opened["large"][selection]
        check([(offset, length or 0) for _, offset, length in plan], file.reads, 0)


@pytest.mark.parametrize("kind", ["B-tree", "v2 B-tree"])
def test_a_chunk_in_the_cache_is_not_read_again(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "a.h5"
    make(path, kind)
    source = random.Random(SEED)
    for cache in [100_000, 20_000, 3000]:  # The last has one chunk.
        traced = Traced(path)
        access = h5py.h5p.create(h5py.h5p.DATASET_ACCESS)
        access.set_chunk_cache(101, cache, 0)
        dataset = h5py.Dataset(h5py.h5d.open(traced.file.id, b"group/values", access))
        selections = [np.s_[source.randrange(41), :, 3] for _ in range(60)]
        planned = list(disclose.hdf5(dataset, *selections))
        for selection in selections:
            dataset[selection]
        reads = traced.close()
        check([(offset, length or 0) for _, offset, length in planned], reads)
        assert abs(len(planned) - len(reads)) <= 0.02 * len(reads)


def test_every_kind_of_selection(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    make(path, "B-tree")
    with h5py.File(path, "a") as file:
        values = file["group/values"]
        region = values.regionref[3:9, 5, :]
        file["scalar"] = 3
        file["empty"] = h5py.Empty("f4")
        pairs = np.zeros(500, [("a", "<i4"), ("b", "<f8")])
        file.create_dataset("pairs", data=pairs, chunks=(50,))
    chosen: list[Callable[[Any], Any]] = [
        lambda _: ("group/values", region),
        lambda _: ("group/values", ()),
        lambda _: ("group/values", ...),
        lambda _: ("group/values", np.s_[h5py.MultiBlockSlice(2, 3, 9, 3), ..., 5]),
        lambda _: ("scalar", ()),
        lambda _: ("empty", ()),
        lambda _: ("pairs", ("a", slice(30, 70))),
        lambda _: ("pairs", ("a",)),
    ]
    for number, choose in enumerate(chosen):
        traced = Traced(path)
        name, selection = choose(traced.file)
        planned = list(disclose.hdf5(traced.file[name], selection))
        traced.file[name][selection]
        reads = traced.close()
        if selection is region:
            reads = reads[1:]  # Without the heap that has the region.
        check([(offset, length or 0) for _, offset, length in planned], reads, 0)
        assert bool(reads) == (name != "empty"), number


def test_a_user_block_and_a_name(tmp_path: Path) -> None:
    for kind in ["B-tree", "contiguous", "fixed array", "v2 B-tree"]:
        path = tmp_path / f"{kind}.h5"
        make(path, kind, userblock_size=1024)
        plan = disclose.hdf5(path, np.s_[:, 3], name="group/values")
        with h5py.File(Recorded.at(foretell.Store(tmp_path), path.name)) as opened:
            dataset = opened["group/values"]
            of_store = disclose.hdf5(
                Recorded.at(foretell.Store(tmp_path), path.name), np.s_[:, 3], name="group/values"
            )
        traced = Traced(path)
        traced.file["group/values"][:, 3]
        reads = traced.close()
        check(ranges_of(plan, str(path), path.stat().st_size), reads, 0)
        assert len(list(of_store)) >= len(reads)
        del dataset


def test_the_library_is_asked_when_the_index_is_not_understood(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "a.h5"
    make(path, "small chunks")
    with h5py.File(path) as file:
        dataset = file["group/values"]
        for selection in [(), np.s_[::9, 4], np.s_[30:, [1, 40], 3]]:
            expected = list(disclose.hdf5(dataset, selection))
            assert expected
            with monkeypatch.context() as broken:
                broken.setattr(_hdf5_index, "LAYOUT", 0x77)
                assert list(disclose.hdf5(dataset, selection)) == expected
            good, batches = _hdf5_index._Tree._found, list[Any]()

            def fails(self: Any, *given: Any, good: Any = good, batches: Any = batches) -> Any:
                for found in good(self, *given):
                    if len(batches) == 2:
                        raise _hdf5_index.Unexpected
                    batches.append(found)
                    yield found

            with monkeypatch.context() as broken:
                broken.setattr(_hdf5_index._Tree, "_found", fails)
                assert list(disclose.hdf5(dataset, selection)) == expected


def test_damaged_and_random_files(tmp_path: Path) -> None:
    """Whatever the bytes of the index are: the plan is that of the library, or the error that it raises."""
    for kind in ["small chunks", "fixed array, in pages"]:
        path = tmp_path / "a.h5"
        make(path, kind)
        content = path.read_bytes()
        with h5py.File(path) as file:
            dataset = file["group/values"]
            expected = list(disclose.hdf5(dataset))
            known = _hdf5._known(dataset, None).chunking
            assert known is not None
            dataset.id.chunk_iter(lambda _: None)
            source = random.Random(SEED)
            for _ in range(30):
                damaged = bytearray(content)
                for _ in range(source.choice([1, 10, 1000])):
                    damaged[source.randrange(len(content))] = source.randrange(256)
                path.write_bytes(damaged)
                planned = list(disclose.hdf5(dataset))
                assert len(planned) <= 2 * len(expected)
            path.write_bytes(content[: known.header + 20])
            list(disclose.hdf5(dataset))


def test_it_says_why_there_is_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "a.h5"
    make(path, "B-tree")
    with h5py.File(path, "a") as file:
        layout = h5py.VirtualLayout((41,), "i4")
        layout[:] = h5py.VirtualSource(file["group/values"])[:, 0, 0]
        file.create_virtual_dataset("virtual", layout)
        file.create_dataset("external", (9,), "i4", external=[(str(tmp_path / "e"), 0, 36)])
    with h5py.File(path) as file:
        values = file["group/values"]
        for wrong in [99, np.s_[:, :, :, 0], [70], np.zeros(3, bool), {}]:
            with pytest.raises((IndexError, TypeError, ValueError)) as raised:
                values[wrong]
            with pytest.raises(raised.type, match=r"a\.h5: /group/values: "):
                list(disclose.hdf5(values, wrong))
        for name in ["virtual", "external"]:
            with pytest.raises(ValueError, match=rf"a\.h5: /{name}: .* other files"):
                list(disclose.hdf5(file[name]))
    for missing in ["group", "absent"]:
        with pytest.raises(KeyError, match=f"a.h5 has no dataset '{missing}'"):
            list(disclose.hdf5(path, 3, name=missing))
    with pytest.raises(TypeError, match="`name`"):
        disclose.hdf5(path, 3)
    with h5py.File(path) as file:
        for wrong in [file, file["group"], np.zeros(3)]:
            with pytest.raises(TypeError, match=r"an h5py\.Dataset is needed"):
                disclose.hdf5(wrong)
        for wrong in ["data/a.h5", path, file]:
            with pytest.raises(TypeError, match=r"`file` is the foretell\.File that"):
                disclose.hdf5(file["group/values"], 3, file=wrong)
    with pytest.raises(FileNotFoundError, match="absent"):
        list(disclose.hdf5(tmp_path / "absent.h5", name="x"))
    (tmp_path / "no.h5").write_bytes(b"something else" * 100)
    with pytest.raises(OSError, match=r"no\.h5: not an HDF5 file"):
        list(disclose.hdf5(tmp_path / "no.h5", name="x"))
    with (
        h5py.File(Recorded.at(foretell.Store(tmp_path), "a.h5")) as file,
        pytest.raises(ValueError, match="`file=`"),
    ):
        list(disclose.hdf5(file["group/values"]))
    with path.open("rb") as opened, h5py.File(opened) as file:
        hints = foretell.disclosed(disclose.hdf5(file["group/values"]))
        assert "a.h5'>: /group/values: " in (hints.problem or "")
        assert "`file=`" in (hints.problem or "")
        hints.close()
    store = foretell.Store(tmp_path)
    with store.open("a.h5") as place:
        hints = foretell.disclosed(disclose.hdf5(place, 99, name="group/values"))
        assert hints.problem is not None
        assert hints.problem.startswith("IndexError: a.h5: /group/values: ")
        hints.close()


def test_data_is_right_when_the_file_changes(tmp_path: Path) -> None:
    """A plan of an outdated index costs nothing but hints."""
    path = tmp_path / "a.h5"
    make(path, "B-tree")
    with h5py.File(path) as file:
        stale = list(disclose.hdf5(file["group/values"]))
    make(path, "small chunks", ">f8")
    store = foretell.Store(tmp_path)
    with (
        foretell.disclosed([("a.h5", at, length) for _, at, length in stale], store=store),
        h5py.File(store.open("a.h5")) as file,
        h5py.File(path) as plain,
    ):
        np.testing.assert_array_equal(file["group/values"][:], plain["group/values"][:])


def test_plans_are_made_while_the_library_is_busy(tmp_path: Path) -> None:
    """Plans of one thread, and reads of another, of the same open file."""
    path = tmp_path / "a.h5"
    make(path, "small chunks")
    store = foretell.Store(tmp_path)
    raw = store.open("a.h5")
    with h5py.File(raw) as file, h5py.File(path) as plain:
        dataset, expected = file["group/values"], plain["group/values"][:]
        hints = foretell.Disclosed()

        def disclose_rows() -> None:
            for row in range(41):
                hints.add(disclose.hdf5(dataset, row, file=raw))

        telling = threading.Thread(target=disclose_rows)
        telling.start()
        for row in range(41):
            np.testing.assert_array_equal(dataset[row], expected[row])
        telling.join()
        assert hints.wait(60)
        assert hints.problem is None
        hints.close()


def test_the_index_is_read_in_few_batches(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.h5"
    with h5py.File(path, "w") as file:
        made = file.create_dataset("values", (400, 400), "u1", chunks=(4, 4))
        made[:] = 1
    batches: list[int] = []
    as_it_is = disclose._plan.Source.read_batch

    def counted(self: Any, ranges: Any) -> Any:
        batches.append(len(ranges))
        return as_it_is(self, ranges)

    monkeypatch.setattr(disclose._plan.Source, "read_batch", counted)
    plan = list(disclose.hdf5(path, name="values"))
    assert len(plan) == 10_000
    assert total(merged((at, length or 0) for _, at, length in plan)) == 160_000
    # The object header, the root, the levels below, and the leaves.
    assert len(batches) <= 6
    batches.clear()
    assert len(list(disclose.hdf5(path, np.s_[200:204, 40:80], name="values"))) == 10
    assert max(batches) <= 2
