"""Lets one client read, and prints its times as a line of JSON. peers.py runs it in a separate process.

client.py NAME SPEC    SPEC is JSON: endpoint, ranges [[offset, length], ...] or null for the whole object in order, depth, path

Time counts from an open client to the arrival of the last byte. Every byte is compared.
"""

import asyncio
import fcntl
import json
import os
import resource
import struct
import sys
import time

KEYS = {"access_key_id": "foretell", "secret_access_key": "foretell-secret"}
WHOLE_PIECE = 1 << 20


class Check:
    """Compares the bytes that were read with the file that the store serves."""

    def __init__(self, spec):
        self.fd = os.open(spec["truth"], os.O_RDONLY)
        self.count = 0

    def __call__(self, offset, data):
        data = bytes(data)
        if os.pread(self.fd, len(data), offset) != data:
            sys.exit(f"wrong bytes at {offset}")
        self.count += len(data)


def processor_seconds():
    """Processor time that this process has used."""
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def timed(spec, act):
    """Runs `act`, which yields (offset, bytes). Returns its seconds, its processor seconds, and the number of bytes.
    The bytes are compared after the clock has stopped."""
    found = []
    before, begun = processor_seconds(), time.perf_counter()
    for offset, data in act:
        found.append((offset, data))
    seconds, processor = time.perf_counter() - begun, processor_seconds() - before
    check = Check(spec)
    for offset, data in found:
        check(offset, data)
    return seconds, processor, check.count


# foretell


def foretell_store(spec):
    import foretell

    settings = {"aws_endpoint": spec["endpoint"], **{f"aws_{k}": v for k, v in KEYS.items()}}
    return foretell.Store("s3://data", depth=spec.get("depth") or 128, settings=settings)


def foretell_disclosed(spec):
    store = foretell_store(spec)
    store.open("object").close()
    ranges = spec["ranges"]
    read = store.read_ranges("object", ranges)
    return timed(spec, ((at, data) for (at, _), data in zip(ranges, read)))


def foretell_plain(spec):
    with foretell_store(spec).open("object") as file:
        return timed(spec, read_file(spec, file))


def fsspec_foretell(spec):
    import fsspec

    fs = fsspec.filesystem(
        "foretell",
        target_protocol="s3",
        settings={"aws_endpoint": spec["endpoint"], **{f"aws_{k}": v for k, v in KEYS.items()}},
    )
    with fs.open("data/object") as file:
        return timed(spec, read_file(spec, file))


# obstore


def obstore_store(spec):
    from obstore.store import S3Store

    options = {"allow_http": True}
    return S3Store(
        "data", endpoint=spec["endpoint"], region="us-east-1", client_options=options, **KEYS
    )


def obstore_serial(spec):
    import obstore

    store = obstore_store(spec)
    ranges = spec["ranges"] or pieces(spec)
    one = ((at, obstore.get_range(store, "object", start=at, length=n)) for at, n in ranges)
    return timed(spec, one)


def obstore_ranges(spec):
    import obstore

    store = obstore_store(spec)
    starts = [at for at, _ in spec["ranges"]]
    lengths = [length for _, length in spec["ranges"]]

    def read():
        yield from zip(starts, obstore.get_ranges(store, "object", starts=starts, lengths=lengths))

    return timed(spec, read())


def obstore_async(spec):
    import obstore

    store = obstore_store(spec)
    found = []

    async def read():
        gate = asyncio.Semaphore(spec["depth"])

        async def one(at, length):
            async with gate:
                data = await obstore.get_range_async(store, "object", start=at, length=length)
                found.append((at, data))

        await asyncio.gather(*(one(at, length) for at, length in spec["ranges"] or pieces(spec)))

    def run():
        asyncio.run(read())
        yield from found

    return timed(spec, run())


# s3fs (the Python package)


def s3fs_file_system(spec):
    import s3fs

    return s3fs.S3FileSystem(
        key=KEYS["access_key_id"],
        secret=KEYS["secret_access_key"],
        endpoint_url=spec["endpoint"],
        client_kwargs={"region_name": "us-east-1"},
        config_kwargs={"max_pool_connections": 128},
    )


def s3fs_cat_ranges(spec):
    fs = s3fs_file_system(spec)
    ranges = spec["ranges"]

    def read():
        starts = [at for at, _ in ranges]
        ends = [at + length for at, length in ranges]
        yield from zip(starts, fs.cat_ranges(["data/object"] * len(ranges), starts, ends))

    return timed(spec, read())


def s3fs_file(spec):
    fs = s3fs_file_system(spec)
    cache = {"cache_type": spec["cache_type"]} if spec.get("cache_type") else {}
    with fs.open("data/object", "rb", **cache) as file:
        return timed(spec, read_file(spec, file))


# mounts


def path_plain(spec):
    return at_path(spec, lambda fd, ranges: None)


def path_willneed(spec):
    def advise(fd, ranges):
        for at, length in ranges:
            os.posix_fadvise(fd, at, length, os.POSIX_FADV_WILLNEED)

    return at_path(spec, advise)


def path_ioctl(spec):
    def hint(fd, ranges):
        for first in range(0, len(ranges), 1000):
            some = ranges[first : first + 1000]
            message = bytearray(struct.pack("=IIII", len(some), 0, 0, 0))
            for at, length in some:
                message += struct.pack("=QQ", at, length)
            fcntl.ioctl(fd, 1 << 30 | len(message) << 16 | 0xF7 << 8 | 1, message)

    return at_path(spec, hint)


def at_path(spec, disclose):
    fd = os.open(spec["path"], os.O_RDONLY)

    def read():
        if spec["ranges"]:
            disclose(fd, spec["ranges"])
        for at, length in spec["ranges"] or pieces(spec):
            yield at, os.pread(fd, length, at)

    return timed(spec, read())


# shared by all


def pieces(spec):
    return [[at, WHOLE_PIECE] for at in range(0, spec["size"], WHOLE_PIECE)]


def read_file(spec, file):
    for at, length in spec["ranges"] or pieces(spec):
        file.seek(at)
        yield at, file.read(length)


def main():
    name, spec = sys.argv[1], json.loads(sys.argv[2])
    seconds, processor, count = globals()[name](spec)
    wanted = sum(length for _, length in spec["ranges"]) if spec["ranges"] else spec["size"]
    if count != wanted:
        sys.exit(f"{count} bytes read of {wanted}")
    print(json.dumps({"seconds": seconds, "processor": processor, "bytes": count}))


if __name__ == "__main__":
    main()
