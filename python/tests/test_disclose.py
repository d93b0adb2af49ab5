"""Plans of files, arrays, tensors and archives, and the receivers of their hints."""

import io
import json
import os
import random
import subprocess
import sys
import tarfile
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from conftest import Served
from disclosing import Recorded, check, ranges_of

import foretell
from foretell import disclose

SEED = 7
SELECTIONS = 200


def random_index(shape: tuple[int, ...], source: random.Random) -> tuple[Any, ...]:
    """Integers and slices, of any number of the axes."""

    def one(size: int) -> Any:
        if source.random() < 0.4:
            return source.randrange(-size, size)
        start, stop = sorted(source.randint(0, size) for _ in range(2))
        return slice(start, stop, source.choice([1, 1, 2, 3]))

    head = source.randint(0, len(shape))
    index = [one(size) for size in shape[:head]]
    if source.random() < 0.2:
        tail = source.randint(head, len(shape))
        index += [Ellipsis, *(one(size) for size in shape[tail:])]
    return tuple(index)


@pytest.mark.parametrize("order", ["C", "F"])
def test_npy_ranges_are_the_elements_of_the_selection(tmp_path: Path, order: Any) -> None:
    shape = (13, 7, 11, 3)
    array = np.arange(13 * 7 * 11 * 3, dtype="<u4").reshape(shape)
    path = tmp_path / "a.npy"
    np.save(path, np.asarray(array, order=order))
    content = path.read_bytes()
    source = random.Random(SEED)
    for number in range(SELECTIONS):
        index: Any = random_index(shape, source)
        if number % 5 == 0:
            index = [source.randrange(13) for _ in range(source.randrange(9))]
        found = b"".join(
            content[offset : offset + length]
            for _, offset, length in disclose.npy(path, index)
            if length is not None
        )
        elements = np.frombuffer(found, dtype="<u4")
        wanted = array[index]
        if order == "C":
            assert elements.tolist() == wanted.ravel().tolist(), index
        else:
            assert sorted(elements.tolist()) == sorted(wanted.ravel().tolist()), index


def test_npy_says_why_there_is_no_plan(tmp_path: Path) -> None:
    np.save(tmp_path / "a.npy", np.zeros((3, 4)))
    np.save(tmp_path / "o.npy", np.array([None, "x"]), allow_pickle=True)
    (tmp_path / "no.npy").write_bytes(b"\x93NUMPY")
    for name, index in [("a", 3), ("a", (0, 0, 0)), ("a", "x"), ("a", (..., ...))]:
        with pytest.raises(IndexError, match=r"a\.npy: "):
            list(disclose.npy(tmp_path / f"{name}.npy", index))
    for name in ["o", "no"]:
        with pytest.raises(ValueError, match=r"\.npy"):
            list(disclose.npy(tmp_path / f"{name}.npy"))
    with pytest.raises(FileNotFoundError):
        list(disclose.npy(tmp_path / "absent.npy"))
    with pytest.raises(IsADirectoryError, match=tmp_path.name):
        list(disclose.npy(tmp_path))
    mapped: Any = np.load(tmp_path / "a.npy", mmap_mode="r")
    with pytest.raises(TypeError, match=r"memmap: a path .* its path is .*a\.npy"):
        disclose.npy(mapped)
    array: Any = np.zeros(3)
    with pytest.raises(TypeError, match="ndarray: a path or an open file"):
        disclose.npy(array)


def save_tensors(path: Path, tensors: dict[str, np.ndarray[Any, Any]]) -> None:
    """Write a safetensors file of 32-bit floats, as the format is described."""
    described: dict[str, Any] = {"__metadata__": {"by": "a test"}}
    at = 0
    for name, tensor in tensors.items():
        offsets = [at, at + tensor.nbytes]
        described[name] = {"dtype": "F32", "shape": tensor.shape, "data_offsets": offsets}
        at += tensor.nbytes
    head = json.dumps(described).encode()
    with path.open("wb") as file:
        file.write(len(head).to_bytes(8, "little") + head)
        for tensor in tensors.values():
            file.write(tensor.tobytes())


def test_safetensors_ranges_are_the_tensors(tmp_path: Path) -> None:
    source, path = random.Random(SEED), tmp_path / "model.safetensors"
    shapes = {f"layer.{n}": (n + 1, 5, 2 * n + 1) for n in range(20)} | {"scalar": ()}
    tensors = {
        name: np.random.default_rng(SEED).random(shape, dtype="f4")
        for name, shape in shapes.items()
    }
    save_tensors(path, tensors)
    content = path.read_bytes()

    def planned(chosen: Any) -> bytes:
        plan = disclose.safetensors(path, chosen)
        return b"".join(content[at : at + (length or 0)] for _, at, length in plan)

    assert planned(None) == b"".join(tensor.tobytes() for tensor in tensors.values())
    for _ in range(SELECTIONS):
        names = source.sample(list(shapes), 3)
        assert planned(names) == b"".join(tensors[name].tobytes() for name in names)
        index = {name: random_index(shapes[name], source) for name in names}
        wanted = [np.ascontiguousarray(tensors[name][index[name]]).tobytes() for name in names]
        assert planned(index) == b"".join(wanted)
    with pytest.raises(KeyError, match=r"model\.safetensors has no tensor 'absent'"):
        list(disclose.safetensors(path, ["absent"]))
    for bad in [b"", b"\xff" * 8, b"\x02" + bytes(7) + b"[]", b"\x02" + bytes(7) + b"{"]:
        path.write_bytes(bad)
        with pytest.raises(ValueError, match="not a safetensors file"):
            list(disclose.safetensors(path))


@pytest.fixture
def archive(tmp_path: Path) -> Path:
    """A tar file with members of many sizes, a folder and a link, and a name that comes twice."""
    path, source = tmp_path / "shard.tar", random.Random(SEED)
    with tarfile.open(path, "w") as archive:
        for name in [*(f"sub/{number}.bin" for number in range(60)), "sub/7.bin"]:
            member = tarfile.TarInfo(name)
            member.size = source.randrange(3000)
            archive.addfile(member, io.BytesIO(source.randbytes(member.size)))
        folder = tarfile.TarInfo("folder")
        folder.type = tarfile.DIRTYPE
        archive.addfile(folder)
    return path


def test_tar_ranges_are_the_members(archive: Path) -> None:
    source, content = random.Random(SEED), archive.read_bytes()
    index = disclose.tar_index(archive)
    with tarfile.open(archive) as opened:
        assert set(index) == {one.name for one in opened if one.isreg()}
        for turn in range(SELECTIONS):
            names = source.sample(list(index), 5)
            plan = disclose.tar(archive, names, index=index if turn % 2 else None)
            found = [content[at : at + (length or 0)] for _, at, length in plan]
            members = [opened.extractfile(name) for name in names]
            assert found == [member.read() for member in members if member is not None]
    assert list(disclose.tar(archive)) == [(str(archive), 0, None)]
    with pytest.raises(KeyError, match=r"shard\.tar has no member 'absent'"):
        list(disclose.tar(archive, ["absent"]))
    wrong: Any = None
    with pytest.raises(TypeError, match="a path or an open file"):
        disclose.tar_index(wrong)
    archive.write_bytes(b"no archive" * 200)
    with pytest.raises(tarfile.ReadError, match=r"shard\.tar: not an uncompressed tar file"):
        disclose.tar_index(archive)


def test_a_store_is_told_and_fetches_what_is_planned(tmp_path: Path) -> None:
    rows = np.random.default_rng(SEED).integers(0, 256, (200, 8192), dtype=np.uint8)
    np.save(tmp_path / "rows.npy", rows)
    store = foretell.Store(tmp_path, budget="64MiB")
    order = random.Random(SEED).sample(range(200), 100)
    file = Recorded.at(store, "rows.npy")
    plan = disclose.npy(file, order)
    planned = ranges_of(plan, "rows.npy", file.size)
    with foretell.disclosed(plan) as hints:
        file.reads.clear()  # Those of the index.
        assert (hints.told, hints.problem) == (["store"], None)
        begin = planned[0][0] - order[0] * 8192
        for row in order:
            assert file.read_at(begin + row * 8192, 8192) == rows[row].tobytes()
    check(planned, file.reads, 0)
    counts = store.stats()
    assert counts["prefetched_blocks"] > 0
    assert counts["wasted_blocks"] == 0


def test_files_of_an_object_store_are_opened_in_the_background(slow: Served, data: Path) -> None:
    store = foretell.Store("s3://data", settings=slow.settings)
    names = [f"sub/{number}.bin" for number in random.Random(SEED).sample(range(100), 80)]
    with foretell.disclosed(disclose.files(["sub/absent", *names], store=store)) as hints:
        for name in names:
            with store.open(name) as file:
                assert file.read() == (data / name).read_bytes()
    assert hints.problem is not None
    assert "NotFound" in hints.problem
    assert hints.ranges == len(names)


def test_a_plan_that_fails_raises_nothing_and_the_next_goes_on(tmp_path: Path, data: Path) -> None:
    def broken() -> Iterator[tuple[str, int, int]]:
        yield "small", 0, 100
        raise RuntimeError("two\nlines")

    store = foretell.Store(data)
    good = [("even", 0, 100), ("even", 100, 100), ("even", 300, 0), ("odd", 5, None)]
    with foretell.disclosed(broken(), good, store=store) as hints:
        assert hints.wait(60)
        assert hints.problem == "RuntimeError: two lines"
        hints.add([("small", -1, 5)], store=store)
        assert hints.wait(60)
    hints.add(good, store=store)  # It is closed.
    hints.close()
    assert hints.ranges == 3
    assert hints.problem == "ValueError: the range (-1, 5) of small is negative"


def test_cancelling_stops_a_plan_that_is_being_sent(data: Path) -> None:
    store, goes_on, began = foretell.Store(data), threading.Event(), threading.Event()

    def waits() -> Iterator[tuple[str, int, int]]:
        for number in range(1 << 20):
            yield "even", number % 2 * 8192, 100
            if number == 5000:
                began.set()
                goes_on.wait(60)

    hints = foretell.Disclosed()
    adding = threading.Thread(target=hints.add, args=(waits(),), kwargs={"store": store})
    adding.start()
    assert began.wait(60)
    hints.cancel()  # Does not wait for the plan.
    sent = hints.ranges
    goes_on.set()
    adding.join()
    assert hints.ranges == sent
    hints.add([("small", 0, 10)], store=store)
    assert hints.wait(60)
    assert hints.ranges == sent + 1
    hints.close()


def test_a_forked_child_does_nothing(data: Path) -> None:
    hints = foretell.disclosed([("even", 0, 100)], store=foretell.Store(data))
    assert hints.wait(60)
    child = os.fork()
    if child == 0:
        hints.add([("even", 200, 100)])
        hints.cancel()
        hints.close()
        os._exit(hints.ranges)
    assert os.waitpid(child, 0)[1] == 1 << 8
    hints.close()


def test_nobody_listens(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORETELL_SOCKET", raising=False)
    monkeypatch.setattr("foretell.disclose._targets.mount_points", list)

    def never() -> Iterator[tuple[str, int, int]]:
        raise AssertionError("the plan is not needed")
        yield

    with foretell.disclosed(never()) as hints:
        assert (hints.told, hints.ranges, hints.problem) == ([], 0, None)


def test_an_address_is_no_path(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("FORETELL_SOCKET", raising=False)
    monkeypatch.setattr("foretell.disclose._targets.mount_points", list)
    for address in ["s3://bucket/a.npy", "foretell://s3://bucket/a", "https://host/a", "file::a"]:
        open_it = "open it with a foretell.Store and give the open file"
        name_it = "give its foretell.Store as `store`, and its name there"
        plans: list[tuple[Any, object, str]] = [
            (disclose.npy(address), address, open_it),
            (disclose.safetensors(Path(address)), Path(address), open_it),
            (disclose.tar(address), address, open_it),
            (disclose.files([address, address]), address, name_it),
            ([(address, 0, None)], address, name_it),
        ]
        for given, name, way_out in plans:
            with foretell.disclosed(given) as hints:
                assert (hints.told, hints.ranges) == ([], 0)
                wanted = f"ValueError: {name} is an address, not a path: {way_out}"
                assert hints.problem == wanted
    monkeypatch.chdir(tmp_path)
    Path("a:").mkdir()
    Path("ab:").mkdir()
    np.save("ab:/a.npy", np.zeros(3))
    assert len(list(disclose.npy("ab:/a.npy"))) == 1


def test_a_store_without_effect_is_told(data: Path) -> None:
    store = foretell.Store(data)
    of_machine, of_store = disclose.files([data / "even"]), disclose.files(["even"], store=store)
    for given in [of_machine, disclose.files(["s3://bucket/a"])]:
        with foretell.disclosed(given, store=store) as hints:
            assert (hints.problem or "").startswith("ValueError: `store` has no effect here: ")
    for plans in [(of_store,), (of_machine, of_store), (of_machine, [("even", 0, 9)]), ()]:
        with foretell.disclosed(*plans, store=store) as hints:
            assert hints.wait(60)
            assert hints.problem is None


def test_the_last_problem_is_kept_until_a_cancel(data: Path) -> None:
    store = foretell.Store(data)
    hints = foretell.disclosed([("small", -1, 5)], [("small", 0, -5)], store=store)
    assert hints.wait(60)
    assert hints.problem == "ValueError: the range (0, -5) of small is negative"
    hints.add([("small", 0, 5)], store=store)
    assert hints.wait(60)
    assert hints.problem is not None
    hints.cancel()
    assert hints.problem is None
    file = store.open("small")
    hints.add(disclose.safetensors(file, ["absent"]))
    assert hints.wait(60)
    hints.close()
    assert hints.problem == "ValueError: small: not a safetensors file"
    assert "the last problem" in (foretell.Disclosed.problem.__doc__ or "")


MISTAKES = """
import sys, foretell
from foretell import disclose
folder = sys.argv[1]
for given in [disclose.files([folder]), disclose.files([folder + "/absent"]), [(folder + "/absent", 0, 9)],
              disclose.npy(folder + "/absent"), disclose.npy(folder), iter([("s3://bucket/a", 0, 9)])]:
    with foretell.disclosed(given) as hints:
        hints.wait(60)
    print(hints.problem)
"""


def test_missing_files_and_folders_are_told(data: Path, command: Path) -> None:
    words = [str(command), "run", "--no-learn", "--", sys.executable, "-c", MISTAKES, str(data)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    told = done.stdout.splitlines()
    kinds = [line.partition(":")[0] for line in told]
    folder, absent, address = "IsADirectoryError", "FileNotFoundError", "ValueError"
    assert kinds == [folder, absent, absent, absent, folder, address]
    assert all(str(data) in line for line in told[:5])


PROGRAM = """
import os, sys, foretell
from foretell import disclose
path = sys.argv[1]
names = [f"{path}/sub/{number}.bin" for number in range(0, 100, 3)]
plan = [(f"{path}/odd", offset, 4096) for offset in range(0, 3 << 20, 16384)]
with foretell.disclosed(disclose.files(names), plan) as hints:
    data = [open(name, "rb").read() for name in names]
    file = os.open(f"{path}/odd", os.O_RDONLY)
    data += [os.pread(file, length, offset) for _, offset, length in plan]
    import hashlib
    hints.wait(60)
    print(hashlib.sha256(b"".join(data)).hexdigest(), *hints.told, hints.ranges, hints.problem)
"""


def said(*command: str | Path) -> list[str]:
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True, timeout=300)
    return done.stdout.split()


def test_the_manager_of_a_run_is_told(data: Path, command: Path, tmp_path: Path) -> None:
    report = tmp_path / "report.json"
    program = [sys.executable, "-c", PROGRAM, str(data)]
    plain = said(*program)
    run = said(command, "run", "--no-learn", "--json", report, "--", *program)
    assert plain[1:] == ["0", "None"]
    assert run == [plain[0], "run", "226", "None"]
    assert json.loads(report.read_text())["hints"]


@pytest.mark.skipif(not os.access("/dev/fuse", os.R_OK | os.W_OK), reason="no FUSE")
def test_a_mount_is_told(data: Path, command: Path, tmp_path: Path) -> None:
    point = tmp_path / "a point"
    point.mkdir()
    subprocess.run([command, "mount", data, point], check=True, timeout=300)
    try:
        plain = said(sys.executable, "-c", PROGRAM, str(data))
        mounted = said(sys.executable, "-c", PROGRAM, str(point))
        assert mounted == [plain[0], "mount", "226", "None"]
        (tmp_path / "link").symlink_to(point)
        linked = said(sys.executable, "-c", PROGRAM, str(tmp_path / "link"))
        assert linked == mounted
    finally:
        subprocess.run([command, "unmount", point], check=True, timeout=300)


def test_a_store_that_is_closed_ends_no_disclosure(data: Path) -> None:
    closed, store = foretell.Store(data), foretell.Store(data)
    closed.close()
    names = [f"sub/{number}.bin" for number in range(100)]
    with foretell.disclosed(disclose.files(names, store=closed)) as hints:
        assert hints.wait(60)
        assert hints.problem is not None
        hints.add(disclose.files(names, store=store))
        assert hints.wait(60)
        assert hints.ranges == 100


def test_an_endless_plan_of_adjacent_ranges_holds_nobody_up(data: Path) -> None:
    def endless() -> Iterator[tuple[str, int, int]]:
        offset = 0
        while True:
            yield "even", offset % (1 << 20), 16
            offset += 16

    hints = foretell.disclosed(endless(), store=foretell.Store(data))
    assert not hints.wait(0)
    hints.close()


def test_a_string_is_no_list_of_names(data: Path) -> None:
    with pytest.raises(TypeError, match="put it in a list"):
        disclose.files(str(data / "small"))
    with pytest.raises(TypeError, match="put it in a list"):
        one_path: Any = data / "small"
        disclose.files(one_path)
    with pytest.raises(TypeError, match="put it in a list"):
        disclose.safetensors(data / "small", "wte")
    with pytest.raises(TypeError, match="put it in a list"):
        disclose.tar(data / "small", "1.bin")
    no_plan: Any
    for no_plan in [5, "small"]:
        with pytest.raises(TypeError, match="a plan is needed"):
            foretell.disclosed(no_plan)
    wrong: Any = ["small", ("small", 0), ("small", "0", 1)]
    for one in wrong:
        with foretell.disclosed([one], store=foretell.Store(data)) as hints:
            assert hints.wait(60)
            assert hints.problem is not None
            assert "is not (path, offset, length)" in hints.problem
