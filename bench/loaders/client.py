"""One loader over one kind of data, read once. Prints a JSON line: items, bytes and seconds of each epoch.

client.py KIND DATA WORKERS SECONDS FOLDER

KIND names the client. DATA is "files" or "records". FOLDER has the mount or the local cache. AWS_ENDPOINT_URL names the store. An epoch is given up after SECONDS. Each item begins with its number, which is checked.
"""

import importlib.util
import json
import os
import sys
import time
from pathlib import Path

import torch
from torch.utils.data import DataLoader, Dataset

FILES, FILE_BYTES = 20_000, 24 << 10
RECORDS, RECORD_BYTES = 16_384, 64 << 10
BATCH = 64
KINDS = {
    "litdata": importlib.util.find_spec("litdata") is not None,
    "MosaicML Streaming": importlib.util.find_spec("streaming") is not None,
}
ENDPOINT = os.environ.get("AWS_ENDPOINT_URL", "")
KEY, SECRET = "foretell", "foretell-secret"


def place(data, index):
    """File, offset and length of an item."""
    if data == "files":
        return f"files/{index:05}.bin", 0, FILE_BYTES
    return "records.bin", index * RECORD_BYTES, RECORD_BYTES


class Items(Dataset):
    """Items that `read(path, offset, length)` reads. What it needs is made in the process that reads."""

    def __init__(self, data, make):
        self.data, self.make, self.read = data, make, None

    def __len__(self):
        return FILES if self.data == "files" else RECORDS

    def __getitem__(self, index):
        if self.read is None:
            self.read = self.make()
        found = self.read(*place(self.data, index))
        assert len(found) == place(self.data, index)[2]
        assert int.from_bytes(found[:8], "little") == index
        return len(found)

    def __getstate__(self):
        return {**self.__dict__, "read": None}

    def foretell_plan(self, index):
        return [place(self.data, index)]


def of_foretell(store):
    opened = {}

    def read(path, offset, length):
        if path == "records.bin":
            if path not in opened:
                opened[path] = store.open(path)
            return opened[path].read_at(offset, length)
        with store.open(path) as file:
            return file.read()

    return lambda: read


def of_s3fs():
    import s3fs

    client = {"region_name": "us-east-1"}
    fs = s3fs.S3FileSystem(
        key=KEY, secret=SECRET, endpoint_url=ENDPOINT, client_kwargs=client, skip_instance_cache=True
    )
    return lambda path, offset, length: fs.cat_file(f"data/{path}", start=offset, end=offset + length)


def of_obstore():
    from obstore.fsspec import FsspecStore

    fs = FsspecStore(
        "s3",
        endpoint=ENDPOINT,
        access_key_id=KEY,
        secret_access_key=SECRET,
        region="us-east-1",
        client_options={"allow_http": True},
    )
    return lambda path, offset, length: bytes(fs.cat_file(f"data/{path}", start=offset, end=offset + length))


def of_path(folder):
    opened = {}

    def read(path, offset, length):
        if path == "records.bin":
            if path not in opened:
                opened[path] = os.open(f"{folder}/{path}", os.O_RDONLY)
            return os.pread(opened[path], length, offset)
        with open(f"{folder}/{path}", "rb") as file:
            return file.read()

    return lambda: read


def loader(kind, data, workers, folder):
    torch.manual_seed(int(os.environ.get("SEED", "1")))
    given = {"batch_size": BATCH, "shuffle": True, "num_workers": workers}
    if kind.startswith("foretell"):
        import foretell
        import foretell.torch

        if kind == "foretell mount":
            items = Items(data, of_path(folder))

            def plan_of(index):
                path, offset, length = place(data, index)
                return [(f"{folder}/{path}", offset, length)]

            return foretell.torch.DataLoader(items, plan_of=plan_of, **given)
        settings = {"aws_endpoint": ENDPOINT, "aws_access_key_id": KEY, "aws_secret_access_key": SECRET}
        store = foretell.Store("s3://data", settings=settings)
        items = Items(data, of_foretell(store))
        if kind == "foretell, not disclosed":
            return DataLoader(items, **given)
        return foretell.torch.DataLoader(items, store=store, **given)
    if kind == "litdata":
        import litdata
        from litdata.streaming import downloader

        downloader._OBSTORE_CLIENT_OPTIONS["allow_http"] = True  # The store here has no certificate.
        options = {
            "endpoint_url": ENDPOINT,
            "aws_access_key_id": KEY,
            "aws_secret_access_key": SECRET,
            "region_name": "us-east-1",
        }
        items = litdata.StreamingDataset(
            f"s3://data/litdata-{data}", cache_dir=folder, storage_options=options, shuffle=True
        )
        return litdata.StreamingDataLoader(items, batch_size=BATCH, num_workers=workers, collate_fn=lengths)
    if kind == "MosaicML Streaming":
        import streaming

        streaming.base.util.clean_stale_shared_memory()
        os.environ["S3_ENDPOINT_URL"] = ENDPOINT
        items = streaming.StreamingDataset(
            remote=f"s3://data/mds-{data}", local=folder, shuffle=True, batch_size=BATCH
        )
        return DataLoader(items, batch_size=BATCH, num_workers=workers, collate_fn=lengths)
    make = {"s3fs": of_s3fs, "obstore": of_obstore}.get(kind) or of_path(folder)
    return DataLoader(Items(data, make), **given)


def lengths(items):
    """Lengths of items of MosaicML Streaming or litData."""
    items = [item["x"] if isinstance(item, dict) else item for item in items]
    return torch.tensor(
        [memoryview(item).nbytes if isinstance(item, bytes) else item.nbytes for item in items]
    )


def main():
    kind, data, workers, seconds, folder = sys.argv[1:]
    if kind == "s3fs" or kind == "obstore":
        import fsspec  # noqa: F401
    began = time.monotonic()
    batches = loader(kind, data, int(workers), folder)
    items = size = 0
    is_cut = False
    for batch in batches:
        items += len(batch)
        size += int(batch.sum())
        if time.monotonic() - began > float(seconds):
            is_cut = True
            break
    told = {"items": items, "bytes": size, "seconds": time.monotonic() - began, "is_cut": is_cut}
    print(json.dumps(told), flush=True)
    os._exit(0)  # Not after the clean-up of workers that are given up.


def prepare(folder):
    """Write the items below a folder, also in the formats of the packages that are installed."""
    import random

    block = random.Random(1).randbytes(1 << 20)
    source = random.Random(2)

    def item(index, length):
        at = source.randrange(len(block) - length)
        return index.to_bytes(8, "little") + block[at : at + length - 8]

    if not (folder / "records.bin").exists():
        (folder / "files").mkdir(parents=True, exist_ok=True)
        for index in range(FILES):
            (folder / place("files", index)[0]).write_bytes(item(index, FILE_BYTES))
        with (folder / "records.bin").open("wb") as file:
            for index in range(RECORDS):
                file.write(item(index, RECORD_BYTES))
    for data, count, length in [("files", FILES, FILE_BYTES), ("records", RECORDS, RECORD_BYTES)]:
        packed = folder / f"mds-{data}"
        if KINDS["MosaicML Streaming"] and not packed.exists():
            import streaming

            with streaming.MDSWriter(out=str(packed), columns={"x": "bytes"}) as out:
                for index in range(count):
                    out.write({"x": item(index, length)})
        packed = folder / f"litdata-{data}"
        if KINDS["litdata"] and not packed.exists():
            from litdata.streaming.cache import Cache

            cache = Cache(str(packed), chunk_bytes=64 << 20)
            for index in range(count):
                cache[index] = item(index, length)
            cache.done()
            cache.merge()


if __name__ == "__main__":
    if sys.argv[1] == "prepare":
        prepare(Path(sys.argv[2]))
    else:
        main()
