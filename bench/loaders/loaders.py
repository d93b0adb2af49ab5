#!/usr/bin/env python3
"""Compares loaders of torch over a slow object store: a shuffled epoch, one loader at a time, in rounds.

loaders.py [--rounds N] [--only WORD] [--data files|records] [--workers N,N] [--seconds N] [--json FILE]

The data is 20,000 files of 24 KiB, and one file of 16,384 records of 64 KiB, each read once in a random order, 64 a batch. Each
measurement has its own store (`foretell store serve`: 30 ms to the first byte, 90 MB/s for each response, and a total that the
processor serves with ease) and its own process, with nothing cached. Every item is checked. A loader that is slow is given up
after some seconds; its rate is that so far.

MosaicML Streaming and litData read their own formats (`client.py prepare` writes the same items), and whole shards.

Columns: the share of the store's limit, and the bytes that the store sent for each byte of the items.
The second table is a second epoch of 4,096 records through a cache of half of them, beside Belady's algorithm on the same order.

`scripts/bench-loader` runs this, and makes the virtual environments.
"""

import argparse
import contextlib
import fcntl
import json
import os
import random
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

HERE = Path(__file__).parent
COMMAND = os.environ.get("FORETELL", str(HERE.parents[1] / "target/release/foretell"))
# Rates that a processor of two cores serves with ease, so that only the loader decides how much of it is used.
LIMIT_MB_S = {"files": 16, "records": 100}
KINDS = [
    "foretell",
    "foretell, not disclosed",
    "foretell mount",
    "s3fs",
    "obstore",
    "rclone mount",
    "litdata",
    "MosaicML Streaming",
]
# Whole epochs of these are measured, for at most so many seconds. The others read at one rate throughout.
FULL, FULL_S = {"foretell", "litdata", "MosaicML Streaming"}, 110
# Python environments of packages that cannot be installed beside the other ones.
PYTHONS = {
    "litdata": os.environ.get("LITDATA_PYTHON"),
    "MosaicML Streaming": os.environ.get("MOSAICML_PYTHON"),
}
KEYS = {
    "AWS_ACCESS_KEY_ID": "foretell",
    "AWS_SECRET_ACCESS_KEY": "foretell-secret",
    "AWS_REGION": "us-east-1",
    "AWS_DEFAULT_REGION": "us-east-1",
    "AWS_ALLOW_HTTP": "true",
}


@contextlib.contextmanager
def store(folder, figures, limit_mb_s):
    """A slow store with the one bucket "data"; yields the environment of its clients."""
    words = [COMMAND, "store", "serve", str(folder), "--bucket", "data", "--json", str(figures)]
    words += ["--first-byte", "30ms", "--per-response", "90MB/s", "--total", f"{limit_mb_s}MB/s"]
    served = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True)
    try:
        endpoint = served.stdout.readline().split()[0]
        clean = {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}
        yield {**clean, **KEYS, "AWS_ENDPOINT_URL": endpoint}
    finally:
        served.send_signal(signal.SIGINT)
        served.wait()


@contextlib.contextmanager
def mount(kind, point, scratch, environment):
    """A mount of the bucket, if the kind is one."""
    if not kind.endswith("mount"):
        yield
        return
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL, "env": environment}
    if kind == "foretell mount":
        words = [COMMAND, "mount", "--foreground", "s3://data", str(point)]
    else:
        endpoint = environment["AWS_ENDPOINT_URL"]
        remote = f":s3,provider=Other,env_auth=true,force_path_style=true,endpoint='{endpoint}':data"
        words = ["rclone", "mount", remote, str(point), "--read-only", "--config", "/dev/null"]
        words += ["--cache-dir", str(scratch / "rclone")]
    mounted = subprocess.Popen(words, **quiet)
    while not os.path.ismount(point):
        if mounted.poll() is not None:
            raise RuntimeError(f"{kind}: it does not mount")
        time.sleep(0.01)
    try:
        yield
    finally:
        subprocess.run(["fusermount", "-u", "-z", str(point)], check=False)
        mounted.wait()


def measure(kind, data, workers, given, number):
    """Run one loader once; returns seconds, the share of the limit, and bytes sent for each byte of items."""
    limit = LIMIT_MB_S[data]
    with tempfile.TemporaryDirectory(prefix="foretell-loaders-") as scratch:
        scratch = Path(scratch)
        figures, point = scratch / "figures.json", scratch / "place"
        point.mkdir()
        with store(given.folder, figures, limit) as environment:
            environment["SEED"] = str(number)
            with mount(kind, point, scratch, environment):
                words = [PYTHONS.get(kind) or sys.executable, str(HERE / "client.py")]
                words += [
                    kind,
                    data,
                    str(workers),
                    str(FULL_S if kind in FULL else given.seconds),
                    str(point),
                ]
                done = subprocess.run(
                    words,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    text=True,
                    env=environment,
                    timeout=600,
                )
        if done.returncode or not done.stdout.strip():
            raise RuntimeError(f"{kind}: {done.stderr.strip()[-2000:]}")
        told = json.loads(done.stdout.strip().splitlines()[-1])
        told["sent"] = json.loads(figures.read_text())["bytes_sent"]
    told["share"] = told["bytes"] / told["seconds"] / (limit * 1e6)
    told["ratio"] = told["sent"] / told["bytes"]
    return told


@contextlib.contextmanager
def alone(lock):
    """Hold a lock file during a measurement, if one is given."""
    if lock is None:
        yield
        return
    with open(lock, "w") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def belady(order, room):
    """Misses of Belady's algorithm on an order of items, with room for so many; the item that is read is in the cache."""
    later = {}
    following = [0] * len(order)
    for at in range(len(order) - 1, -1, -1):
        following[at] = later.get(order[at], len(order))
        later[order[at]] = at
    cached, misses = {}, []
    for at, item in enumerate(order):
        if item not in cached:
            misses.append(at)
            if len(cached) >= room:
                del cached[max(cached, key=cached.get)]
        cached[item] = following[at]
    return misses


def second_epoch(folder):
    """Bytes that the second epoch of a loader fetches through a cache of half the data, beside those of Belady's algorithm."""
    code = (
        "import sys, json; sys.path.insert(0, sys.argv[1]); import client, foretell, torch\n"
        "from foretell.torch import DataLoader\n"
        "size, count = client.RECORD_BYTES, 4096\n"
        "client.RECORDS = count\n"
        "store = foretell.Store(sys.argv[2], budget=size * count // 2)\n"
        "order = []\n"
        "class Noted(client.Items):\n"
        "    def __getitem__(self, index): order.append(index); return super().__getitem__(index)\n"
        "items = Noted('records', client.of_foretell(store))\n"
        "loader = DataLoader(items, batch_size=64, shuffle=True, store=store, ahead=3 * count, next_epoch=True)\n"
        "fetched = []\n"
        "for epoch in range(2):\n"
        "    for batch in loader: pass\n"
        "    fetched.append(store.stats()['fetched_bytes'])\n"
        "print(json.dumps([order, fetched, size]))\n"
    )
    words = [sys.executable, "-c", code, str(HERE), str(folder)]
    done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
    order, fetched, size = json.loads(done.stdout)
    count = len(order) // 2
    best = sum(at >= count for at in belady(order, count // 2)) * size
    return {"fetched": fetched[1] - fetched[0], "belady": best, "first": fetched[0], "bytes": count * size}


def main():
    arguments = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    arguments.add_argument("--rounds", type=int, default=3)
    arguments.add_argument("--only", help="loaders whose name has this word")
    arguments.add_argument("--data", choices=["files", "records"])
    arguments.add_argument("--workers", default="0,2,4")
    arguments.add_argument("--seconds", type=float, default=10, help="after which a slow epoch is given up")
    arguments.add_argument("--folder", type=Path, help="where the data is, or is written")
    arguments.add_argument("--lock", help="a file to lock during each measurement")
    arguments.add_argument("--json", type=Path)
    given = arguments.parse_args()
    kept = None
    if given.folder is None:
        kept = tempfile.TemporaryDirectory(prefix="foretell-loaders-")
        given.folder = Path(kept.name)
    for python in [sys.executable, *filter(None, PYTHONS.values())]:
        subprocess.run([python, str(HERE / "client.py"), "prepare", str(given.folder)], check=True)
    kinds = [kind for kind in KINDS if not given.only or given.only in kind]
    kinds = [kind for kind in kinds if kind not in PYTHONS or PYTHONS[kind]]
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        kinds = [kind for kind in kinds if not kind.endswith("mount")]
    if not shutil.which("rclone"):
        kinds = [kind for kind in kinds if kind != "rclone mount"]
    cells = [
        (data, int(workers), kind)
        for data in ([given.data] if given.data else ["files", "records"])
        for workers in given.workers.split(",")
        for kind in kinds
    ]
    found = {cell: [] for cell in cells}
    for number in range(given.rounds):
        random.Random(number).shuffle(cells)
        for cell in cells:
            data, workers, kind = cell
            try:
                with alone(given.lock):
                    told = measure(kind, data, workers, given, number)
            except Exception as error:
                print(f"{kind}, {data}, {workers} workers: {error}", file=sys.stderr)
                continue
            found[cell].append(told)
            print(f"{data}, {workers}, {kind}: {told}", file=sys.stderr)
    print("| data | workers | loader | share of the limit | bytes sent / bytes | items | runs |")
    print("|---|---|---|---|---|---|---|")
    for (data, workers, kind), runs in sorted(found.items(), key=lambda one: one[0][:2]):
        if runs:
            share, ratio = (statistics.median(run[what] for run in runs) for what in ("share", "ratio"))
            items = int(statistics.median(run["items"] for run in runs))
            cut = " (given up)" if any(run["is_cut"] for run in runs) else ""
            print(f"| {data} | {workers} | {kind} | {share:.1%} | {ratio:.3f} | {items}{cut} | {len(runs)} |")
    with alone(given.lock):
        second = second_epoch(given.folder)
    print(
        f"\nSecond epoch, a cache of half the data: {second['fetched'] / second['bytes']:.4f} of the data fetched, "
        f"Belady {second['belady'] / second['bytes']:.4f}"
    )
    if given.json:
        cells = [dict(data=d, workers=w, loader=k, runs=runs) for (d, w, k), runs in found.items()]
        given.json.write_text(json.dumps({"epochs": cells, "second": second}, indent=1))


if __name__ == "__main__":
    main()
