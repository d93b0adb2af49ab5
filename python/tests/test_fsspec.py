"""The fsspec file system: listings, lookups, changed files, and options that are used or refused."""

import asyncio
import multiprocessing
import os
import pickle
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from servers import Bucket, Web, bucket, web

import foretell

fsspec = pytest.importorskip("fsspec")

OBJECTS = {
    "a": b"file",
    "a/b": b"file and folder",
    "data/one.csv": b"x\n1\n",
    "data/two.csv": b"x\n2\n",
    "data/deep/three.csv": b"x\n3\n",
    "data/deep/marked/": b"",
    "data/empty": b"",
    "made/": b"",
    "with space/ä+%20?#.csv": b"x\n4\n",
}


@pytest.fixture
def served() -> Iterator[Bucket]:
    with bucket(dict(OBJECTS)) as served:
        yield served


def over(served: Bucket, **options: Any) -> Any:
    return fsspec.filesystem(
        "foretell",
        target_protocol="s3",
        target_options={**served.options, **options},
        skip_instance_cache=True,
    )


@pytest.mark.usefixtures("alone")
def test_lists_by_itself(served: Bucket) -> None:
    fs = over(served)
    assert fs.ls("b", detail=False) == ["b/a", "b/a", "b/data", "b/made", "b/with space"]
    assert [one["type"] for one in fs.ls("b")] == ["file", *["directory"] * 4]
    assert fs.ls("s3://b/data/", detail=False) == [
        "b/data/deep",
        "b/data/empty",
        "b/data/one.csv",
        "b/data/two.csv",
    ]
    assert fs.ls("b/data/one.csv") == [fs.info("b/data/one.csv")]
    told = {one["name"]: one for one in fs.ls("b/data")}
    assert told["b/data/one.csv"] == fs.info("b/data/one.csv")
    assert told["b/data/deep"] == fs.info("b/data/deep")
    assert fs.glob("b/data/*.csv") == ["b/data/one.csv", "b/data/two.csv"]
    assert fs.glob("b/**/*.csv") == [
        "b/data/deep/three.csv",
        "b/data/one.csv",
        "b/data/two.csv",
        "b/with space/ä+%20?#.csv",
    ]
    assert fs.glob("b/*/deep/*.csv") == ["b/data/deep/three.csv"]
    assert fs.glob("b/*", detail=True)["b/a"]["type"] == "file"
    assert fs.find("b/data", maxdepth=1) == ["b/data/empty", "b/data/one.csv", "b/data/two.csv"]
    assert fs.find("b/a", maxdepth=1, detail=True) == {"b/a/b": fs.info("b/a/b")}
    assert fs.find("b/data/one.csv", maxdepth=1) == ["b/data/one.csv"]
    assert fs.find("b") == sorted(f"b/{key}" for key in OBJECTS if not key.endswith("/"))
    assert fs.find("b/data", prefix="o") == ["b/data/one.csv"]
    assert fs.find("b/data", withdirs=True) == [
        "b/data",
        "b/data/deep",
        "b/data/deep/marked",
        "b/data/deep/three.csv",
        "b/data/empty",
        "b/data/one.csv",
        "b/data/two.csv",
    ]
    assert fs.find("b/data/one.csv") == ["b/data/one.csv"]
    assert fs.find("b/absent") == []
    walked = {root: (sorted(folders), sorted(files)) for root, folders, files in fs.walk("b/data")}
    assert walked["b/data"] == (["deep"], ["empty", "one.csv", "two.csv"])
    assert walked["b/data/deep"] == (["marked"], ["three.csv"])
    assert fs.du("b/data") == 12
    assert fs.isdir("b/data")
    assert fs.isdir("b")
    assert fs.isdir("b/made")
    assert not fs.isdir("b/data/one.csv")
    assert fs.isfile("b/a")  # And a folder; its bytes are those of the file.
    assert fs.cat_file("b/a") == b"file"
    assert fs.exists("b/data/deep")
    assert not fs.exists("b/data/dee")
    assert not fs.exists("nobucket/x")
    assert not fs.exists("nobucket")
    assert fs.cat("b/data/*.csv") == {"b/data/one.csv": b"x\n1\n", "b/data/two.csv": b"x\n2\n"}
    assert fs.cat("b/data/deep", recursive=True) == {"b/data/deep/three.csv": b"x\n3\n"}
    assert fs.sizes(["b/data/one.csv", "b/a"]) == [4, 4]
    for absent in ("b/absent", "nobucket", "nobucket/x"):
        with pytest.raises(FileNotFoundError):
            fs.ls(absent)
        with pytest.raises(FileNotFoundError):
            fs.info(absent)
    with pytest.raises(FileNotFoundError, match="name one"):
        fs.ls("")


@pytest.mark.usefixtures("alone")
def test_gets_folders(served: Bucket, tmp_path: Path) -> None:
    over(served).get("b/data", str(tmp_path / "got"), recursive=True)
    assert (tmp_path / "got/deep/three.csv").read_bytes() == b"x\n3\n"
    assert (tmp_path / "got/one.csv").read_bytes() == b"x\n1\n"


@pytest.mark.usefixtures("alone")
def test_an_address_says_all() -> None:
    """The server's address is the only necessary option."""
    with bucket(dict(OBJECTS)) as served:
        options = {"target_options": served.options}
        with fsspec.open("foretell://s3://b/data/one.csv", **options) as file:
            assert file.read() == b"x\n1\n"
        files = fsspec.open_files("foretell://s3://b/data/*.csv", **options)
        assert [file.path for file in files] == ["b/data/one.csv", "b/data/two.csv"]
        fs, path = fsspec.url_to_fs("foretell://s3://b/data", **options)
        name = fs.unstrip_protocol(path)
        again, there = fsspec.url_to_fs(name, **options)
        assert (again, there) == (fs, path)


def test_pages_of_many_keys(tmp_path: Path) -> None:
    keys = [f"many/{number:05}/{part}.bin" for number in range(700) for part in "ab"]
    with bucket({key: b"x" for key in keys}, page=300) as served:
        store = foretell.Store("s3://b", settings=served.settings)
        assert [entry.name for entry in store.list("many", recursive=True)] == keys
        assert len(list(store.list("many"))) == 700
        asked = len(served.requests)
        assert len(over(served).find("b/many")) == 1400
        assert len(served.requests) - asked == 5


def test_keys_that_no_path_can_name_are_told() -> None:
    with bucket({"d/a": b"1", "d//b": b"2", "d/c": b"3"}) as served:
        store = foretell.Store("s3://b", settings=served.settings)
        for recursive in (False, True):
            with pytest.warns(UserWarning, match="1 keys such as 'd//"):
                found = sorted(entry.name for entry in store.list("d", recursive=recursive))
            assert found == ["d/a", "d/c"]


def test_keys_that_begin_with_a_slash_are_left_out_of_all() -> None:
    with bucket({"/lost": b"1", "a/b/c": b"2", "d": b"3", "lost/x": b"4"}) as served:
        store = foretell.Store("s3://b", settings=served.settings)
        with pytest.warns(UserWarning, match="1 keys such as '/'"):
            assert sorted(entry.name for entry in store.list(recursive=True)) == [
                "a/b/c",
                "d",
                "lost/x",
            ]
        with pytest.warns(UserWarning, match="1 keys such as '/'"):
            assert over(served).find("b") == ["b/a/b/c", "b/d", "b/lost/x"]


def test_list_and_info_of_a_folder(tmp_path: Path) -> None:
    (tmp_path / "sub/deep").mkdir(parents=True)
    (tmp_path / "file").write_bytes(b"12345")
    (tmp_path / "sub/deep/other").write_bytes(b"1")
    (tmp_path / "nowhere").symlink_to("absent")
    (tmp_path / "sub/round").symlink_to(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    store = foretell.Store(tmp_path)
    entries = sorted(store.list(), key=lambda entry: entry.name)
    assert [(entry.name, entry.kind) for entry in entries] == [("file", "file"), ("sub", "folder")]
    assert {entry.name for entry in store.list("sub")} == {"sub/deep", "sub/round"}
    assert {entry.name for entry in store.list(recursive=True)} == {"file", "sub/deep/other"}
    info = store.info("file")
    assert info == entries[0]
    assert (info.size, info.modified) == (5, (tmp_path / "file").stat().st_mtime)
    assert store.info("sub").kind == "folder"
    for path in ("absent", "../etc", "/etc"):
        with pytest.raises(foretell.NotFound):
            store.info(path)
        with pytest.raises(foretell.NotFound):
            list(store.list(path))
    with pytest.raises(foretell.Error, match="neither"):
        store.info("pipe")


def test_what_changes_is_noticed_in_a_bucket(served: Bucket, tmp_path: Path) -> None:
    fs = over(served)
    path = "b/data/one.csv"
    before = fs.ukey(path), fs.checksum(path), fs.info(path)["ETag"]
    assert fs.ukey(path) == before[0]
    cached = fsspec.filesystem(
        "filecache", fs=fs, check_files=True, cache_storage=str(tmp_path / "kept")
    )
    assert cached.cat_file(path) == b"x\n1\n"
    served.objects["data/one.csv"] = b"x\n9\n"  # The same length, within the same second.
    after = fs.ukey(path), fs.checksum(path), fs.info(path)["ETag"]
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert cached.cat_file(path) == b"x\n9\n"
    assert fs.modified(path).isoformat() == "2026-11-02T10:00:00+00:00"


@pytest.mark.parametrize("kind", ["simplecache", "filecache", "blockcache"])
def test_caches_of_fsspec(served: Bucket, tmp_path: Path, kind: str) -> None:
    served.objects["big"] = bytes(range(256)) * 1000
    for _ in range(2):
        fs = fsspec.filesystem(
            kind, fs=over(served), cache_storage=str(tmp_path / "kept"), skip_instance_cache=True
        )
        with fs.open("b/big") as file:
            file.seek(1000)
            assert file.read(10) == served.objects["big"][1000:1010]
            assert file.read() == served.objects["big"][1010:]
        assert file.closed
        assert fs.cat("b/big") == served.objects["big"]


def test_what_changes_is_noticed_in_a_folder(tmp_path: Path) -> None:
    place = tmp_path / "file"
    place.write_bytes(b"before")
    found = place.stat()
    fs = fsspec.filesystem("foretell", target_protocol="file", skip_instance_cache=True)
    before = fs.ukey(str(place)), fs.checksum(str(place))
    cached = fsspec.filesystem(
        "filecache", fs=fs, check_files=True, cache_storage=str(tmp_path / "kept")
    )
    assert cached.cat_file(str(place)) == b"before"
    # A nanosecond later, which seconds as a float cannot express, and the same length.
    (tmp_path / "other").write_bytes(b"after!")
    os.utime(tmp_path / "other", ns=(found.st_atime_ns, found.st_mtime_ns + 1))
    os.replace(tmp_path / "other", place)
    after = fs.ukey(str(place)), fs.checksum(str(place))
    assert all(one != other for one, other in zip(before, after, strict=True))
    assert cached.cat_file(str(place)) == b"after!"


def test_an_open_file_that_changes_is_an_error_and_not_other_bytes(served: Bucket) -> None:
    served.objects["big"] = bytes(range(256)) * 4096
    fs = over(served)
    with fs.open("b/big") as file:
        assert file.read(1000) == served.objects["big"][:1000]
        served.objects["big"] = bytes(reversed(range(256))) * 4096
        with pytest.raises(foretell.Changed):
            file.seek(900_000)
            file.read(1000)
    assert fs.cat_file("b/big", 0, 3) == b"\xff\xfe\xfd"


@pytest.mark.parametrize("position", [0, 3])
def test_open_files_are_pickled(served: Bucket, tmp_path: Path, position: int) -> None:
    (tmp_path / "one.csv").write_bytes(b"x\n1\n")
    store = foretell.Store("s3://b", settings=served.settings)
    local = fsspec.filesystem("foretell", target_protocol="file")
    for file in (
        over(served).open("b/data/one.csv"),
        store.open("data/one.csv"),
        foretell.Store(tmp_path).open("one.csv"),
        local.open(str(tmp_path / "one.csv")),
    ):
        file.seek(position)
        again = pickle.loads(pickle.dumps(file))
        assert type(again) is type(file)
        assert again.tell() == position
        assert again.read() == b"x\n1\n"[position:]
        assert file.tell() == position
        file.close()
        with pytest.raises(ValueError, match="closed"):
            pickle.dumps(file)


def test_a_pickled_file_that_has_changed_is_an_error(served: Bucket, tmp_path: Path) -> None:
    (tmp_path / "one.csv").write_bytes(b"x\n1\n")
    store = foretell.Store("s3://b", settings=served.settings)
    pickled = [
        pickle.dumps(over(served).open("b/data/one.csv")),
        pickle.dumps(store.open("data/one.csv")),
        pickle.dumps(foretell.Store(tmp_path).open("one.csv")),
    ]
    served.objects["data/one.csv"] = b"x\n2\n"
    (tmp_path / "other").write_bytes(b"x\n2\n")
    os.replace(tmp_path / "other", tmp_path / "one.csv")
    for one in pickled:
        with pytest.raises(foretell.Changed, match="pickled"):
            pickle.loads(one)


LIMITS: list[tuple[Any, Any]] = [
    (np.int64(0), np.int64(3)),
    (np.int32(2), None),
    ([0, 5], [3, 9]),
    (np.array([0, 5]), np.array([3, 9])),
    ([None, 2], [4, None]),
    ([np.uint8(1), None], None),
    (None, None),
    (100, 200),
    (100, 5),
    (7, 3),
    (-3, None),
    (-100, 4),
    (0, -2),
    (0, -100),
    (2, 2),
    (-4, -1),
    (0, 2**40),
]


@pytest.mark.parametrize(("starts", "ends"), LIMITS, ids=[f"{one}-{end}" for one, end in LIMITS])
def test_ranges_are_those_of_fsspec(tmp_path: Path, starts: Any, ends: Any) -> None:
    """The same results as the base class's, for lists and single numbers."""
    files = {str(tmp_path / name): b"0123456789" + name.encode() for name in ("a", "b")}
    for path, data in files.items():
        Path(path).write_bytes(data)

    class Buffered(fsspec.spec.AbstractBufferedFile):  # type: ignore[misc, name-defined]
        def _fetch_range(self, start: int, end: int) -> bytes:
            return files[self.path][start:end]

    class Plain(fsspec.AbstractFileSystem):  # type: ignore[misc, name-defined]
        def info(self, path: str, **_: object) -> dict[str, object]:
            return {"name": path, "size": len(files[path]), "type": "file"}

        def _open(self, path: str, mode: str = "rb", **_: object) -> Buffered:
            return Buffered(self, path, mode)

        @classmethod
        def _strip_protocol(cls, path: str) -> str:
            return path

    fs = fsspec.filesystem("foretell", target_protocol="file")
    as_lists = [one.tolist() if isinstance(one, np.ndarray) else one for one in (starts, ends)]
    expected = Plain().cat_ranges(list(files), *as_lists, on_error="raise")
    assert fs.cat_ranges(list(files), starts, ends) == expected


def test_ranges_that_make_no_sense(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"0123456789")
    path = str(tmp_path / "a")
    fs = fsspec.filesystem("foretell", target_protocol="file")
    with pytest.raises(NotImplementedError):
        fs.cat_ranges([path], 0, 1, max_gap=0)
    with pytest.raises(TypeError):
        fs.cat_ranges(path, 0, 1)
    with pytest.raises(ValueError, match="as many"):
        fs.cat_ranges([path], [0, 1], 1)
    with pytest.raises(TypeError):
        fs.cat_ranges([path], 0.5, 1)
    good, bad = fs.cat_ranges([path, path], [0, "1"], 2)
    assert good == b"01"
    assert isinstance(bad, TypeError)
    absent = str(tmp_path / "absent")
    assert isinstance(fs.cat_ranges([absent], 0, 1)[0], FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        fs.cat_ranges([absent], 0, 1, on_error="raise")


ADDRESSES = {
    "/f.bin?sig=ok": "/f.bin?sig=ok",
    "/f.bin?sig=a%2Fb%2Bc%3D&x=1": "/f.bin?sig=a%2Fb%2Bc%3D&x=1",
    "/my%20file.nc": "/my%20file.nc",
    "/my file.nc": "/my%20file.nc",
    "/%C3%A9.nc": "/%C3%A9.nc",
    "/é.nc": "/%C3%A9.nc",
    "/a%2Bb": "/a%2Bb",
    "/a+b": "/a+b",
    "/f.bin#frag": "/f.bin",
    "/f.bin?v=1#frag": "/f.bin?v=1",
    "/f.bin": "/f.bin",
}


@pytest.fixture
def site() -> Iterator[Web]:
    with web({target: f"bytes of {target}".encode() for target in ADDRESSES.values()}) as served:
        yield served


@pytest.mark.parametrize("address", sorted(ADDRESSES))
def test_addresses_go_out_as_they_are_written(site: Web, address: str) -> None:
    url = site.url + address
    # Without `encoded`, aiohttp's client changes the query of a signed address.
    with fsspec.open(url, encoded="%" in address) as file:
        plain = file.read()
    assert plain == site.pages[ADDRESSES[address]]
    with fsspec.open(f"foretell::{url}") as file:
        assert file.read() == plain
    with fsspec.open(f"foretell://{url}") as file:
        assert file.read() == plain
    fs = fsspec.filesystem("foretell", target_protocol="http")
    assert fs.info(url)["size"] == len(plain)
    assert fs.exists(url)
    assert fs.cat(url) == plain
    assert fs.cat([url]) == {url: plain}
    assert fs.cat_file(url, 3, 5) == plain[3:5]
    with fs.open(url) as file:
        assert pickle.loads(pickle.dumps(file)).read() == plain


def test_a_query_that_is_not_there_is_not_made_up(site: Web) -> None:
    fs = fsspec.filesystem("foretell", target_protocol="http")
    assert not fs.exists(f"{site.url}/f.bin?sig=bad")
    with pytest.raises(FileNotFoundError):
        fs.cat_file(f"{site.url}/a%20b")


def test_a_store_of_a_web_server_tells_of_files(site: Web) -> None:
    store = foretell.Store(site.url)
    told = store.info("f.bin")
    assert (told.kind, told.size) == ("file", len(site.pages["/f.bin"]))
    assert told.tag
    with pytest.raises(foretell.NotFound):
        store.info("absent")
    with pytest.raises(foretell.Error, match="cannot tell what it has"):
        list(store.list())


def test_web_servers_are_listed_as_fsspec_does(site: Web) -> None:
    site.pages["/d/"] = b'<a href="one.csv">one</a> <a href="two.csv">two</a>'
    site.pages["/d/one.csv"] = b"1"
    fs = fsspec.filesystem("foretell", target_protocol="http")
    plain = fsspec.filesystem("http")
    for listed in ("ls", "glob"):
        url = f"{site.url}/d/" + ("" if listed == "ls" else "*.csv")
        assert sorted(getattr(fs, listed)(url, detail=False)) == sorted(
            getattr(plain, listed)(url, detail=False)
        )


@pytest.mark.usefixtures("alone")
def test_web_servers_are_read_without_aiohttp(site: Web) -> None:
    fs = fsspec.filesystem("foretell", target_protocol="http", skip_instance_cache=True)
    assert fs.cat_file(f"{site.url}/f.bin") == b"bytes of /f.bin"
    with pytest.raises(NotImplementedError, match="cannot list web servers"):
        fs.ls(site.url)


def test_names_that_are_not_utf8(tmp_path: Path) -> None:
    names = [os.fsdecode(name) for name in (b"\xff.bin", b"\xfe.bin", b"a\xe9")]
    for number, name in enumerate(names):
        (tmp_path / name).write_bytes(b"%d" % number)
    store = foretell.Store(tmp_path)
    assert sorted(entry.name for entry in store.list()) == sorted(names)
    fs = fsspec.filesystem("foretell", target_protocol="file")
    for number, name in enumerate(names):
        with store.open(name) as file:
            assert file.name == name
            assert file.read() == b"%d" % number
        assert store.info(name).size == 1
        assert list(store.read_ranges(name, [(0, 1)])) == [b"%d" % number]
        assert fs.cat_file(f"{tmp_path}/{name}") == b"%d" % number
    absent = os.fsdecode(b"absent\xff")
    with pytest.raises(foretell.NotFound):
        store.open(absent)
    under = tmp_path / os.fsdecode(b"folder\xff")
    under.mkdir()
    (under / "file").write_bytes(b"in it")
    assert pickle.loads(pickle.dumps(foretell.Store(under))).open("file").read() == b"in it"


def test_names_that_no_object_has(served: Bucket) -> None:
    store = foretell.Store("s3://b", settings=served.settings)
    for ask in (store.open, store.info, store.hint, lambda name: list(store.list(name))):
        with pytest.raises(foretell.NotFound, match="not UTF-8") as raised:
            ask("a\udcff")
        assert raised.value.filename == "a\udcff"
    with pytest.raises(FileNotFoundError):
        over(served).cat_file("b/a\udcff")


def test_it_reads_only(served: Bucket) -> None:
    fs = over(served)
    writes: list[Callable[[], object]] = [
        lambda: fs.open("b/new", "wb"),
        lambda: fs.pipe("b/new", b""),
        lambda: fs.rm("b/a"),
        lambda: fs.mkdir("b/new"),
        lambda: fs.makedirs("b/new"),
        lambda: fs.touch("b/new"),
        lambda: fs.mv("b/a", "b/c"),
        lambda: fs.cp("b/a", "b/c"),
    ]
    for write in writes:
        with pytest.raises(NotImplementedError):
            write()
    assert fs.cat_file("b/a") == b"file"


def test_what_somebody_else_writes_is_seen_at_once(served: Bucket) -> None:
    """Listings are not cached: fsspec/s3fs#851, #657."""
    fs = over(served)
    assert not fs.exists("b/data/new.csv")
    assert "b/data/new.csv" not in fs.find("b/data") + fs.ls("b/data", detail=False)
    served.objects["data/new.csv"] = b"x\n5\n"
    assert fs.exists("b/data/new.csv")
    for found in (fs.find("b/data"), fs.ls("b/data", detail=False), fs.glob("b/data/*.csv")):
        assert "b/data/new.csv" in found
    assert fs.cat_file("b/data/new.csv") == b"x\n5\n"
    served.objects["data/new.csv"] = b"x\n5\n6\n"  # Longer.
    assert fs.size("b/data/new.csv") == 6
    assert fs.cat_file("b/data/new.csv") == b"x\n5\n6\n"
    del served.objects["data/new.csv"]
    assert not fs.exists("b/data/new.csv")
    assert "b/data/new.csv" not in fs.ls("b/data", detail=False)


@pytest.mark.parametrize(
    "name", ["a[1].csv", "a?.csv", "a*.csv", "{a}.csv", "a#b%20.csv", " a ", "a+&=;:,@$"]
)
def test_names_that_look_like_something_else(served: Bucket, tmp_path: Path, name: str) -> None:
    """Names with wildcard characters (fsspec/s3fs#565, danielfrg/s3contents#165); a single name is taken literally."""
    served.objects = {f"d/{name}": b"it", "d/a1.csv": b"other"}
    fs = over(served)
    assert f"b/d/{name}" in fs.find("b/d")
    assert f"b/d/{name}" in fs.ls("b/d", detail=False)
    assert fs.info(f"b/d/{name}")["size"] == 2
    assert fs.cat_file(f"b/d/{name}") == b"it"
    with fs.open(f"b/d/{name}") as file:
        assert file.read() == b"it"
    fs.get_file(f"b/d/{name}", str(tmp_path / "got"))
    assert (tmp_path / "got").read_bytes() == b"it"
    assert fs.cat_ranges([f"b/d/{name}"], 0, 1) == [b"i"]
    fs.get("b/d", str(tmp_path / "all"), recursive=True)
    assert (tmp_path / "all" / name).read_bytes() == b"it"
    assert fs.cat("b/d", recursive=True) == {f"b/d/{name}": b"it", "b/d/a1.csv": b"other"}


def test_calls_inside_an_event_loop(served: Bucket) -> None:
    """As in a notebook: fsspec/filesystem_spec#424."""

    async def call() -> bytes:
        fs = over(served)
        assert fs.glob("b/data/*.csv")
        return fs.cat_file("b/data/one.csv")  # type: ignore[no-any-return]

    assert asyncio.run(call()) == b"x\n1\n"


def read_in_child(path: str) -> tuple[bytes, int]:
    fs = fsspec.filesystem("foretell", **INHERITED)
    return fs.cat_file(path), len(fs.find("b"))


INHERITED: dict[str, Any] = {}


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_children_read_after_their_parent_has(served: Bucket) -> None:
    """fsspec/gcsfs#379, fsspec/s3fs#369, fsspec/filesystem_spec#517."""
    INHERITED.update(target_protocol="s3", target_options=served.options)
    fs = fsspec.filesystem("foretell", **INHERITED)
    with pytest.raises(FileNotFoundError):
        fs.cat_file("b/absent")
    files = len(fs.find("b"))
    assert files
    with multiprocessing.get_context("fork").Pool(2) as pool:
        found = pool.map_async(read_in_child, ["b/data/one.csv"] * 4).get(60)
    assert found == [(b"x\n1\n", files)] * 4
    assert fs.cat_file("b/data/one.csv") == b"x\n1\n"
