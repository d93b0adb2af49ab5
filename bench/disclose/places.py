"""Where the formats of scripts/bench-disclose read: a folder of this machine, or a bucket of the slow store."""

import os
import zlib
from concurrent.futures import ThreadPoolExecutor

# Reads that the bound has in flight on the array; on the store, foretell's depth is 128.
THREADS = 64
BUCKET = "data"
KEYS = {"key": "foretell", "secret": "foretell-secret"}


class Local:
    """A folder of this machine."""

    store = None

    def __init__(self, folder):
        self.folder = folder

    def name(self, name):
        return f"{self.folder}/{name}"

    def content(self, name):
        with open(self.name(name), "rb", buffering=0) as file:
            return file.read()

    def opened(self, name):
        return open(self.name(name), "rb", buffering=0)

    def file(self, opened):
        """What a library or an adapter is given for it."""
        return opened.name

    def only_file(self, opened):
        return None

    def zarr(self, name):
        return self.name(name)

    def dataset(self, name):
        """Path and file system, as pyarrow takes them."""
        return self.name(name), None

    def fetch(self, ranges):
        """The bound: all ranges, at once."""
        files = {}

        def read(one):
            name, offset, length = one
            if name not in files:
                files[name] = os.open(self.name(name), os.O_RDONLY)
            return zlib.crc32(os.pread(files[name], length, offset))

        for name in {name for name, _, _ in ranges} if len({name for name, _, _ in ranges}) < THREADS else ():
            files[name] = os.open(self.name(name), os.O_RDONLY)
        with ThreadPoolExecutor(THREADS) as pool:
            return zlib.crc32(str(list(pool.map(read, ranges))).encode())


class Remote:
    """A bucket of the slow store."""

    def __init__(self, endpoint):
        from foretell.fsspec import ForetellFileSystem

        options = {**KEYS, "endpoint_url": endpoint}
        self.system = ForetellFileSystem(target_protocol="s3", target_options=options, budget="512MiB")
        self.store, _ = self.system.store(f"{BUCKET}/x")

    def name(self, name):
        return name

    def content(self, name):
        return self.system.cat_file(f"{BUCKET}/{name}")

    def opened(self, name):
        return self.store.open(name)

    def file(self, opened):
        return opened

    def only_file(self, opened):
        return opened

    def zarr(self, name):
        import zarr
        from fsspec.implementations.asyn_wrapper import AsyncFileSystemWrapper

        system = AsyncFileSystemWrapper(self.system, asynchronous=True)
        return zarr.storage.FsspecStore(system, read_only=True, path=f"{BUCKET}/{name}")

    def dataset(self, name):
        from pyarrow.fs import FSSpecHandler, PyFileSystem

        return f"{BUCKET}/{name}", PyFileSystem(FSSpecHandler(self.system))

    def fetch(self, ranges):
        found = [zlib.crc32(one) for one in self.store.read_ranges(ranges)]
        return zlib.crc32(str(found).encode())
