"""Plans of Parquet files and Arrow datasets, beside what pyarrow reads."""

import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from disclosing import Recorded, check, ranges_of, recording

import foretell
from foretell import disclose

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")

SEED = 5
FILES = 20
SELECTIONS = 10


def random_column(kind: str, rows: int, source: random.Random) -> Any:
    numbers = np.random.default_rng(source.randrange(1 << 30))
    if kind == "integers":
        return pa.array(np.arange(rows) * source.randint(1, 9))
    if kind == "floats":
        return pa.array(numbers.random(rows), mask=numbers.random(rows) < 0.1)
    if kind == "words":
        return pa.array([f"w{one}" for one in numbers.integers(0, source.choice([9, 9000]), rows)])
    if kind == "lists":
        return pa.array([list(range(one)) for one in numbers.integers(0, 4, rows)])
    inner = pa.array(numbers.random(rows)), pa.array([str(one) for one in range(rows)])
    pair = pa.StructArray.from_arrays(inner, ["x", "y"])
    return pa.StructArray.from_arrays([pa.array(np.arange(rows)), pair], ["number", "pair"])


def random_table(source: random.Random, rows: int) -> Any:
    kinds = [source.choice(["integers", "floats", "words", "lists", "structs"]) for _ in range(6)]
    columns = {
        f"{kind}{at}": random_column(kind, rows, source)
        for at, kind in enumerate(["integers", *kinds])
    }
    return pa.table(columns)


def write(path: Path, table: Any, source: random.Random) -> None:
    pq.write_table(
        table,
        path,
        row_group_size=source.randint(table.num_rows // 6, table.num_rows),
        compression=source.choice(["none", "snappy", "zstd", "gzip"]),
        use_dictionary=source.random() < 0.5,
        write_page_index=source.random() < 0.5,
        data_page_size=source.choice([4096, 1 << 20]),
    )


def names_of(table: Any, source: random.Random) -> list[str] | None:
    """Names of columns in any order, some of them parts of nested ones."""
    names = source.sample(table.column_names, source.randint(1, 4))
    for at, name in enumerate(names):
        if name.startswith("structs") and source.random() < 0.5:
            names[at] = name + source.choice([".number", ".pair", ".pair.y"])
        if name.startswith("lists") and source.random() < 0.5:
            names[at] = name + ".list"
    return source.choice([None, names, names, names])


def read(file: Any, columns: Any, groups: Any, how: str, source: random.Random) -> None:
    if how == "read":
        file.read_row_groups(groups, columns=columns, use_threads=source.random() < 0.5)
    else:
        for _ in file.iter_batches(source.randint(100, 3000), groups, columns=columns):
            pass


def test_parquet_ranges_are_what_pyarrow_reads(tmp_path: Path) -> None:
    source, store = random.Random(SEED), foretell.Store(tmp_path)
    for number in range(FILES):
        name = f"{number}.parquet"
        table = random_table(source, source.randint(1000, 6000))
        write(tmp_path / name, table, source)
        count = pq.read_metadata(tmp_path / name).num_row_groups
        for _ in range(SELECTIONS):
            columns = names_of(table, source)
            groups = source.sample(range(count), source.randint(1, count))
            pre_buffer, how = source.random() < 0.6, source.choice(["read", "batches"])
            file = Recorded.at(store, name)
            plan = disclose.parquet(file, columns, groups, pre_buffer=pre_buffer)
            planned = ranges_of(plan, name, file.size)
            opened = pq.ParquetFile(file, pre_buffer=pre_buffer)
            file.reads.clear()  # Those of the footer.
            read(opened, columns, groups, how, source)
            try:
                check(planned, file.reads)
            except AssertionError as error:
                raise AssertionError(f"{number}: {columns} {groups} {pre_buffer} {how}") from error


def test_parquet_reads_a_long_footer_twice(tmp_path: Path) -> None:
    table = pa.table({f"a column with a long name {at}": [at] for at in range(1000)})
    pq.write_table(table, tmp_path / "wide.parquet")
    file = Recorded.at(foretell.Store(tmp_path), "wide.parquet")
    plan = disclose.parquet(file, ["a column with a long name 7"])
    (planned,) = ranges_of(plan, "wide.parquet", file.size)
    column = pq.read_metadata(tmp_path / "wide.parquet").row_group(0).column(7)
    assert planned[1] == column.total_compressed_size
    assert [at + length for at, length in file.reads] == [file.size, file.size - (64 << 10)]


def test_parquet_says_why_there_is_no_plan(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"a": range(10), "ab": range(10)}), path, row_group_size=5)
    with pytest.raises(KeyError, match=r"a\.parquet has no column 'a\.b'"):
        list(disclose.parquet(path, ["a.b"]))
    with pytest.raises(TypeError, match="one column: put it in a list"):
        disclose.parquet(path, "a")
    opened: Any = 1
    with pytest.raises(TypeError, match="one row group: put it in a list"):
        disclose.parquet(path, None, opened)
    for opened in [pq.ParquetFile(path), path.open("rb")]:
        with pytest.raises(TypeError, match="a path or an open file of a foretell"):
            disclose.parquet(opened)
        opened.close()
    for groups in [[2], [-1], [0, 2]]:
        with pytest.raises(IndexError, match=r"a\.parquet: row group"):
            list(disclose.parquet(path, None, groups))
    assert list(disclose.parquet(path, [])) == list(disclose.parquet(path, None, [])) == []
    good = path.read_bytes()
    too_long, broken = b"\xff\xff\xff\x7fPAR1", bytes(len(good) - 8) + good[-8:]
    for bad in [b"", b"PAR1", good[:-4] + b"PARE", good[:-8] + too_long, broken]:
        path.write_bytes(bad)
        with pytest.raises(ValueError, match=r"a\.parquet"):
            list(disclose.parquet(path))
    with pytest.raises(FileNotFoundError):
        list(disclose.parquet(tmp_path / "absent.parquet"))


def test_a_file_that_changes_costs_hints_only(tmp_path: Path) -> None:
    path, store = tmp_path / "a.parquet", foretell.Store(tmp_path)
    pq.write_table(pa.table({"a": np.random.default_rng(1).random(20_000)}), path)
    with store.open("a.parquet") as file:
        plan = disclose.parquet(file, ["a"])
        before = list(plan)
    table = pa.table({"b": np.random.default_rng(2).random(500)})
    pq.write_table(table, tmp_path / "new")
    (tmp_path / "new").rename(path)
    with foretell.disclosed(before, plan, store=store) as hints:
        assert hints.wait(60)
        assert pq.read_table(store.open("a.parquet")).equals(table)


@pytest.fixture
def fs() -> Any:
    return pytest.importorskip("fsspec").filesystem("foretell", skip_instance_cache=True)


def random_filter(table: Any, source: random.Random) -> Any:
    """An expression about a few columns of a table of `random_table`, and about partitions."""
    ds = pytest.importorskip("pyarrow.dataset")
    limit = source.randrange(9 * table.num_rows)
    parts = [ds.field("integers0") > limit, ds.field("part") == source.randrange(3)]
    for name in table.column_names[1:]:
        if name.startswith("floats"):
            parts.append(ds.field(name) > source.random())
        if name.startswith("structs"):
            parts.append(ds.field(name, "number") < limit)
    chosen = source.sample(parts, source.randint(1, 2))
    return (
        chosen[0]
        if len(chosen) == 1
        else source.choice([chosen[0] & chosen[1], chosen[0] | chosen[1]])
    )


def test_dataset_ranges_are_what_pyarrow_reads(tmp_path: Path, fs: Any) -> None:
    ds = pytest.importorskip("pyarrow.dataset")
    source, reads = random.Random(SEED), recording(fs)
    for number in range(10):
        place = tmp_path / str(number)
        table = random_table(source, source.randint(1000, 3000))
        for part in range(3):
            for at in range(2):
                (place / f"part={part}").mkdir(parents=True, exist_ok=True)
                write(place / f"part={part}/{at}.parquet", table, source)
        for _ in range(20):
            found = ds.dataset(str(place), filesystem=fs, partitioning="hive")
            names = source.sample([*table.column_names, "part"], source.randint(1, 4))
            named = {str(at): ds.field(name) for at, name in enumerate(names)}
            columns = source.choice([None, names, named])
            chosen = random_filter(table, source) if source.random() < 0.7 else None
            planned: dict[str, list[tuple[int, int]]] = {}
            for path, offset, length in disclose.dataset(found, columns, chosen):
                assert length is not None
                planned.setdefault("/" + path, []).append((offset, length))
            reads.clear()  # Those of the footers.
            found.to_table(columns=columns, filter=chosen, use_threads=source.random() < 0.5)
            assert {path for path, ranges in reads.items() if ranges} == set(planned)
            for path, ranges in planned.items():
                check(ranges, reads[path])


def test_files_of_datasets_are_on_this_machine_or_in_a_store(tmp_path: Path, fs: Any) -> None:
    ds = pytest.importorskip("pyarrow.dataset")
    arrow_fs = pytest.importorskip("pyarrow.fs")
    import fsspec

    table = pa.table({"a": range(1000), "b": range(1000)})
    for name in ["0", "1"]:
        pq.write_table(table, tmp_path / f"{name}.parquet", row_group_size=500)
    local = fsspec.filesystem("file")
    tree = arrow_fs.SubTreeFileSystem(str(tmp_path), arrow_fs.LocalFileSystem())
    plans = [
        disclose.dataset(ds.dataset(place, filesystem=each), ["b"])
        for place, each in [(tmp_path, None), (str(tmp_path), local), ("/", tree)]
    ]
    wanted = [
        (str(tmp_path / f"{name}.parquet"), *each)
        for name in "01"
        for each in [one[1:] for one in disclose.parquet(tmp_path / "0.parquet", ["b"])]
    ]
    for plan in plans:
        assert plan.store is None
        assert list(plan) == wanted
    plan = disclose.dataset(ds.dataset(str(tmp_path), filesystem=fs), ["b"])
    assert plan.store is fs.store(str(tmp_path))[0]
    assert [("/" + path, *rest) for path, *rest in plan] == wanted
    union = ds.dataset([ds.dataset(tmp_path / "1.parquet"), ds.dataset(tmp_path / "0.parquet")])
    assert list(disclose.dataset(union, ["b"])) == wanted[2:] + wanted[:2]
    # Row groups that a fragment is left with.
    one = next(ds.dataset(tmp_path / "0.parquet").get_fragments())
    parts = ds.FileSystemDataset(
        [one.subset(row_group_ids=[1])], union.schema, one.format, one.filesystem
    )
    assert list(disclose.dataset(parts, ["b"])) == list(disclose.parquet(one.path, ["b"], [1]))


def test_datasets_say_why_there_is_no_plan(tmp_path: Path) -> None:
    ds = pytest.importorskip("pyarrow.dataset")
    csv, feather = pytest.importorskip("pyarrow.csv"), pytest.importorskip("pyarrow.feather")
    table = pa.table({"a": range(10)})
    pq.write_table(table, tmp_path / "a.parquet")
    found = ds.dataset(tmp_path / "a.parquet")
    with pytest.raises(KeyError, match="the data set has no column 'b'"):
        list(disclose.dataset(found, ["b"]))
    with pytest.raises(TypeError, match="one column: put it in a list"):
        disclose.dataset(found, "a")
    with pytest.raises(TypeError, match=r"disclose\.parquet takes a path"):
        disclose.dataset(str(tmp_path / "a.parquet"))
    for chosen in [ds.field("b") > 1, ds.field("a") > "word"]:
        with pytest.raises((ValueError, NotImplementedError)):
            list(disclose.dataset(found, ["a"], chosen))
    with pytest.raises(ValueError, match="memory"):
        list(disclose.dataset(ds.dataset(table)))
    csv.write_csv(table, tmp_path / "a.csv")
    (plan,) = disclose.dataset(ds.dataset(tmp_path / "a.csv", format="csv"), ["a"])
    assert plan == (str(tmp_path / "a.csv"), 0, None)
    feather.write_feather(table, str(tmp_path / "a.feather"))
    with pytest.raises(ValueError, match="Parquet"):
        list(disclose.dataset(ds.dataset(tmp_path / "a.feather", format="feather"), ["a"]))
    (tmp_path / "a.parquet").write_bytes(b"no such file")
    with pytest.raises((ValueError, OSError)):
        list(disclose.dataset(ds.dataset(tmp_path / "a.parquet", schema=table.schema)))
    (tmp_path / "a.parquet").unlink()
    with pytest.raises(FileNotFoundError):
        list(disclose.dataset(found))
