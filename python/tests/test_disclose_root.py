"""Plans of ROOT trees, beside what uproot reads."""

import io
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disclosing import Recorded, check, ranges_of, recording

import foretell
from foretell import disclose

uproot = pytest.importorskip("uproot")
ak = pytest.importorskip("awkward")

SEED = 11
FILES = 10
SELECTIONS = 20


def rows_of(count: int, source: random.Random) -> dict[str, Any]:
    """Numbers, lists of numbers, and records of lists."""
    numbers = np.random.default_rng(source.randrange(1 << 30))
    rows: dict[str, Any] = {"x": numbers.random(count), "n": numbers.integers(0, 9, count)}
    for name in ["list", "words_px", "words_py"]:
        counts = numbers.integers(0, 4, count)
        rows[name] = ak.unflatten(numbers.random(int(counts.sum())), counts)
    for at in range(3):
        rows[f"more{at}"] = numbers.random(count).astype("f4")
    return rows


def write(path: Path, kind: str, source: random.Random) -> None:
    """A `TTree` or an `RNTuple` "t" of several parts with several sizes, and a `TTree` "other"."""
    compression = source.choice([None, uproot.ZLIB(1), uproot.LZ4(1), uproot.ZSTD(1)])
    with uproot.recreate(path, compression=compression) as file:
        first = rows_of(source.randint(50, 900), source)
        if kind == "tree":
            inner = {name: ak.type(ak.Array(row)).content for name, row in first.items()}
            file.mktree("t", inner)
        else:
            file.mkrntuple("t", ak.Array(first))
        file.mktree("other", {"y": "f8"})
        for _ in range(source.randint(1, 12)):
            file["t"].extend(rows_of(source.randint(50, 900), source))
            file["other"].extend({"y": np.random.default_rng(SEED).random(source.randint(1, 4000))})


def random_entries(count: int, source: random.Random) -> tuple[int | None, int | None]:
    start, stop = sorted(source.sample(range(count + 1), 2))
    return source.choice([(start, stop), (None, stop), (start - count or None, None), (None, None)])


def random_names(tree: Any, source: random.Random) -> dict[str, Any]:
    """What is read: all, names, formulas or patterns."""
    names = source.sample(tree.keys(), source.randint(1, 3))
    ways: list[dict[str, Any]] = [{}, {"expressions": names}, {"expressions": names}]
    ways += [{"filter_name": ["*px", "m*"]}, {"filter_name": "/[xn].*/"}, {"filter_name": names}]
    if not hasattr(tree, "ntuple"):
        aliases = {"twice": "2 * x", "more": "twice + more0"}
        ways += [{"expressions": ["more", "n"], "aliases": aliases}]
        ways += [{"expressions": ["sqrt(x) + more2"]}]
        ways += [{"expressions": ["n"], "cut": "x > 0.5"}]
    return source.choice(ways)


def plan_of(tree: Any, what: dict[str, Any], entries: Any) -> disclose.Plan:
    what = dict(what)
    return disclose.root(tree, what.pop("expressions", None), entries, **what)


def read(tree: Any, what: dict[str, Any], how: str, source: random.Random) -> Any:
    """Read in one of the ways; returns the entries to plan for it."""
    count = tree.num_entries
    if how == "iterate":
        start, stop = random_entries(count, source)
        step = source.randint(10, count)
        for _ in tree.iterate(**what, entry_start=start, entry_stop=stop, step_size=step):
            pass
        return slice(start, stop, step)
    entries = [random_entries(count, source) for _ in range(source.choice([1, 1, 3]))]
    for start, stop in entries:
        tree.arrays(**what, entry_start=start, entry_stop=stop, array_cache=None)
    if len(entries) > 1:
        return entries
    return None if entries == [(None, None)] else entries[0]


@pytest.mark.parametrize("kind", ["tree", "ntuple"])
def test_root_ranges_are_what_uproot_reads(tmp_path: Path, kind: str) -> None:
    source, store = random.Random(SEED), foretell.Store(tmp_path)
    for number in range(FILES):
        name = f"{number}.root"
        write(tmp_path / name, kind, source)
        for _ in range(SELECTIONS):
            file = Recorded.at(store, name)
            with uproot.open(file) as opened:
                tree = opened["t"]
                list(disclose.root(tree, ["x"]))  # The pages' list is read.
                what, how = random_names(tree, source), source.choice(["arrays", "iterate"])
                file.reads.clear()
                entries = read(tree, what, how, source)
                planned = ranges_of(plan_of(tree, what, entries), name, file.size)
                try:
                    check(planned, file.reads, 0)
                    assert list(dict.fromkeys(planned)) == list(dict.fromkeys(file.reads))
                except AssertionError as error:
                    raise AssertionError(f"{number}: {what} {entries} {how}") from error


def test_root_ranges_are_what_uproot_reads_with_fsspec(tmp_path: Path) -> None:
    fsspec = pytest.importorskip("fsspec")
    # With an option of its own, this file system is nobody else's.
    options = {"target_protocol": "file", "budget": "65MiB"}
    fs = fsspec.filesystem("foretell", **options)
    source, reads = random.Random(SEED), recording(fs)
    for number in range(5):
        name = str(tmp_path / f"{number}.root")
        write(tmp_path / name, "tree", source)
        for _ in range(SELECTIONS):
            with uproot.open(f"foretell://file://{name}", **options) as opened:
                tree = opened["t"]
                reads.clear()
                what, how = random_names(tree, source), source.choice(["arrays", "iterate"])
                entries = read(tree, what, how, source)
                plan = plan_of(tree, what, entries)
                assert plan.store is fs.store(name)[0]
                planned = ranges_of(plan, name[1:], (tmp_path / name).stat().st_size)
                check(planned, reads[name])


def test_a_branch_of_a_tree(tmp_path: Path) -> None:
    source, store = random.Random(SEED), foretell.Store(tmp_path)
    for kind in ["tree", "ntuple"]:
        write(tmp_path / kind, kind, source)
        file = Recorded.at(store, kind)
        with uproot.open(file) as opened:
            branch = opened["t"]["list"]
            planned = ranges_of(disclose.root(branch, None, (100, 300)), kind, file.size)
            file.reads.clear()
            branch.array(entry_start=100, entry_stop=300)
            check(planned, file.reads, 0)


def test_trees_of_files_of_this_machine(tmp_path: Path) -> None:
    path = tmp_path / "a.root"
    write(path, "tree", random.Random(SEED))
    found = []
    with path.open("rb") as raw:
        for place, options in [
            (path, {}),
            (f"file://{path}", {}),
            (path, {"handler": uproot.MemmapSource}),
            (path, {"handler": uproot.MultithreadedFileSource}),
            (raw, {}),
        ]:
            with uproot.open(place, **options) as opened:
                plan = disclose.root(opened["t"], ["x"])
                assert plan.store is None
                found.append(sorted(plan))
    assert {one[0] for plan in found for one in plan} == {str(path)}
    assert found[0] == found[1]
    assert found[2] == found[3] == found[4]


def test_root_says_why_there_is_no_plan(tmp_path: Path) -> None:
    for kind in ["tree", "ntuple"]:
        write(tmp_path / kind, kind, random.Random(SEED))
        with uproot.open(tmp_path / kind) as opened:
            tree = opened["t"]
            with pytest.raises(KeyError, match=f"{kind}.*absent"):
                list(disclose.root(tree, ["absent"]))
            with pytest.raises(TypeError, match="one branch: put it in a list"):
                disclose.root(tree, "x")
            wrong: Any
            for wrong in ["100 MB", slice(None, None, "100 MB")]:
                with pytest.raises(TypeError, match="num_entries_for"):
                    disclose.root(tree, ["x"], wrong)
            wrong = 1000
            with pytest.raises(TypeError, match=r"give \(start, stop\)"):
                disclose.root(tree, ["x"], wrong)
            with pytest.raises(TypeError, match="a tree of uproot is needed"):
                disclose.root(opened)
            with pytest.raises(ValueError, match="step"):
                list(disclose.root(tree, None, slice(0, 10, -1)))
            if kind == "tree":
                with pytest.raises(KeyError, match=r"tree: /?t.*absent"):
                    list(disclose.root(tree, ["x + absent"]))
                for pattern in ["m*", "*px", "*"]:
                    with pytest.raises(KeyError, match="filter_name"):
                        list(disclose.root(tree, [pattern]))
                with pytest.raises(ValueError, match="itself"):
                    list(disclose.root(tree, ["a"], aliases={"a": "b", "b": "a"}))
    content = (tmp_path / "tree").read_bytes()
    with uproot.open(io.BytesIO(content)) as opened, pytest.raises(ValueError, match="no file"):
        list(disclose.root(opened["t"]))
    memory = pytest.importorskip("fsspec").filesystem("memory")
    memory.pipe_file("/tree", content)
    with (
        uproot.open("memory://tree") as opened,
        pytest.raises(ValueError, match="takes no hints"),
    ):
        list(disclose.root(opened["t"]))


def test_a_tree_that_changes_costs_hints_only(tmp_path: Path) -> None:
    store = foretell.Store(tmp_path)
    write(tmp_path / "a.root", "tree", random.Random(1))
    with uproot.open(store.open("a.root")) as opened:
        plan = disclose.root(opened["t"])
        before = list(plan)
    write(tmp_path / "new", "tree", random.Random(2))
    (tmp_path / "new").rename(tmp_path / "a.root")
    with (
        foretell.disclosed(before, plan, store=store) as hints,
        uproot.open(store.open("a.root")) as opened,
        uproot.open(tmp_path / "a.root") as plain,
    ):
        assert hints.wait(60)
        assert ak.array_equal(opened["t"].arrays(), plain["t"].arrays())
