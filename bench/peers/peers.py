#!/usr/bin/env python3
"""Compares foretell with other clients: random and sequential reads of a remote object, one client at a time, in rounds.

peers.py [--rounds N] [--only WORD] [--kind random|sequential|hits] [--plot FILE] [--json FILE]

Each measurement has its own store (`foretell store serve`: 30 ms to the first byte, 90 MB/s for each response, and for
sequential reads 250 MB/s in total) and its own client process, with nothing cached. Clients take turns, and each round has
other random offsets. Every byte is compared.

Before each measurement, free memory is used once, so that a virtual machine keeps it for some seconds. Clients measured
with *free memory cold* begin after the host has had time to take it back.

`make bench-peers` runs this, and makes the virtual environment. rclone and s3fs (FUSE) are used if they are installed
(Debian: rclone, s3fs), and mounts if there is /dev/fuse.
"""

import argparse
import datetime
import json
import os
import platform
import random
import re
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
READ_BYTES = 128 << 10
OBJECT_BYTES = 512 << 20
# More memory than a client uses in a measurement; and longer than a kernel takes to report free memory to its host (2 s).
WARM_BYTES = 1 << 30
COLD_S = 6
COLD = ", free memory cold"
STORE = ["--first-byte", "30ms", "--per-response", "90MB/s"]
# A rate that the processor serves with ease, so that only the reader decides how much of it is used.
LIMIT_MB_S = 250
ENVIRONMENT = {
    "AWS_ACCESS_KEY_ID": "foretell",
    "AWS_SECRET_ACCESS_KEY": "foretell-secret",
    "AWS_REGION": "us-east-1",
}
FEW, SOME, MANY = 20, 100, 1000
OURS = "foretell"


def clean_environment():
    """The environment without this user's settings for other stores."""
    return {key: value for key, value in os.environ.items() if not key.startswith("AWS_")}


def ended(process, how):
    """Sends a process the signal `how`, waits for its end, and returns its processor seconds."""
    os.kill(process.pid, how)  # Popen would reap a process that has ended, and drop its usage.
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.stdout:
        process.stdout.close()
    return usage.ru_utime + usage.ru_stime


def back_free_memory():
    """Lets a child use WARM_BYTES of free memory, or half of it, and give them back. A hypervisor takes back memory that is
    reported as free (free page reporting). The client that gets this memory next would pay for each page."""
    code = (
        "import contextlib, mmap, sys\n"
        "memory = mmap.mmap(-1, int(sys.argv[1]), mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)\n"
        "with contextlib.suppress(OSError): memory.madvise(mmap.MADV_HUGEPAGE)\n"
        "for at in range(0, len(memory), 4096): memory[at] = 1\n"
    )
    available = re.search(r"MemAvailable: +(\d+) kB", Path("/proc/meminfo").read_text())
    some = min(WARM_BYTES, int(available[1]) * 1024 // 2)
    if subprocess.run([sys.executable, "-c", code, str(some)], stderr=-3, check=False).returncode:
        print(f"free memory is not warm: {some >> 20} MiB could not be used", file=sys.stderr)


class Store:
    """A slow store, limited to `limit` MB/s in total if that is given."""

    def __init__(self, folder, figures, limit):
        self.figures = figures
        words = [COMMAND, "store", "serve", str(folder), *STORE, "--json", str(figures)]
        if limit:
            words += ["--total", f"{limit}MB/s"]
        self.process = subprocess.Popen(words, stdout=subprocess.PIPE, text=True)
        self.endpoint = self.process.stdout.readline().split()[0]

    def end(self):
        """Ends the store; returns its counts, and its processor seconds."""
        seconds = ended(self.process, signal.SIGINT)
        return json.loads(Path(self.figures).read_text()), seconds


class Mount:
    """A mount of the store by the program `kind`."""

    def __init__(self, kind, folder, endpoint):
        self.kind, self.path = kind, folder / "mnt"
        self.path.mkdir()
        environment = {**clean_environment(), **ENVIRONMENT, "AWS_ENDPOINT_URL": endpoint}
        quiet = {"stdout": subprocess.DEVNULL, "env": environment}
        if kind == "foretell":
            words = [COMMAND, "mount", "--foreground", "s3://data", self.path]
            self.process = subprocess.Popen(words, **quiet)
        elif kind.startswith("rclone"):
            remote = ":s3,provider=Other,env_auth=true,force_path_style=true"
            remote += f",endpoint='{endpoint}':data"
            words = ["rclone", "mount", remote, str(self.path), "--read-only"]
            words += ["--config", "/dev/null", "--vfs-cache-mode", kind.split()[1]]
            words += ["--cache-dir", str(folder / "rclone")]
            self.process = subprocess.Popen(words, stderr=subprocess.DEVNULL, **quiet)
        else:
            secret = folder / "passwd"
            secret.write_text("foretell:foretell-secret")
            secret.chmod(0o600)
            words = ["s3fs", "data", str(self.path), "-f", "-o", f"passwd_file={secret}"]
            words += ["-o", f"url={endpoint},use_path_request_style,ro"]
            self.process = subprocess.Popen(words, stderr=subprocess.DEVNULL, **quiet)
        until = time.monotonic() + 30
        while not (self.path / "object").exists():
            if time.monotonic() > until:
                self.end()
                sys.exit(f"{kind} does not mount within 30 s")
            time.sleep(0.05)

    def end(self):
        """Unmounts; returns the processor seconds."""
        subprocess.run(["umount", self.path], check=False)
        return ended(self.process, signal.SIGTERM)


# Name, client, its options, number of reads (None: the whole object in order), and the mount that it needs.
DISCLOSED, ASYNC = "foretell (Python), disclosed, 100 deep", "obstore async, 100 deep"
RANDOM = [
    (DISCLOSED, "foretell_disclosed", {"depth": 100}, MANY, None),
    (ASYNC, "obstore_async", {"depth": 100}, MANY, None),
    (DISCLOSED + COLD, "foretell_disclosed", {"depth": 100}, MANY, None),
    (ASYNC + COLD, "obstore_async", {"depth": 100}, MANY, None),
    ("obstore async, 32 deep", "obstore_async", {"depth": 32}, MANY, None),
    ("obstore get_ranges", "obstore_ranges", {}, SOME, None),
    ("s3fs (Python) cat_ranges, pool 128", "s3fs_cat_ranges", {}, MANY, None),
    ("foretell mount, ioctl", "path_ioctl", {}, MANY, "foretell"),
    ("foretell mount, WILLNEED", "path_willneed", {}, MANY, "foretell"),
    ("foretell mount, no hints", "path_plain", {}, SOME, "foretell"),
    ("foretell (Python), no hints", "foretell_plain", {}, SOME, None),
    ("foretell::s3 (fsspec), no hints", "fsspec_foretell", {}, SOME, None),
    ("obstore, serial", "obstore_serial", {}, SOME, None),
    ("s3fs (Python), default cache", "s3fs_file", {}, FEW, None),
    ("s3fs (Python), cache none", "s3fs_file", {"cache_type": "none"}, SOME, None),
    ("s3fs (Python), cache background", "s3fs_file", {"cache_type": "background"}, FEW, None),
    ("s3fs (FUSE), WILLNEED", "path_willneed", {}, SOME, "s3fs"),
    ("rclone mount, cache off, WILLNEED", "path_willneed", {}, SOME, "rclone off"),
    ("rclone mount, cache full, WILLNEED", "path_willneed", {}, SOME, "rclone full"),
]
SEQUENTIAL = [
    ("obstore async, 1 MiB ranges, 100 deep", "obstore_async", {"depth": 100}, None, None),
    ("foretell (Python)", "foretell_plain", {}, None, None),
    ("foretell mount", "path_plain", {}, None, "foretell"),
    ("s3fs (Python), default cache", "s3fs_file", {}, None, None),
    ("s3fs (FUSE)", "path_plain", {}, None, "s3fs"),
    ("rclone mount, cache off", "path_plain", {}, None, "rclone off"),
]


def missing(mount):
    """The reason why `mount` is impossible here, or None."""
    if mount is None:
        return None
    if not os.access("/dev/fuse", os.R_OK | os.W_OK):
        return "no /dev/fuse"
    program = mount.split()[0]
    found = program == "foretell" or shutil.which(program)
    return None if found else f"{program} is not installed"


def measure(data, client, options, reads, mount, seed, limit, is_cold):
    """Makes one measurement; returns the client's times and the store's counts."""
    ranges = None
    if reads is not None:
        starts = random.Random(seed).sample(range(OBJECT_BYTES // READ_BYTES), reads)
        ranges = [[start * READ_BYTES, READ_BYTES] for start in starts]
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        store = Store(data, folder / "figures.json", limit)
        mounted, of_mount = None, 0.0
        try:
            mounted = Mount(mount, folder, store.endpoint) if mount else None
            spec = {"endpoint": store.endpoint, "ranges": ranges, "size": OBJECT_BYTES, **options}
            spec["truth"] = str(data / "data" / "object")
            if mounted:
                spec["path"] = str(mounted.path / "object")
            words = [sys.executable, str(HERE / "client.py"), client, json.dumps(spec)]
            environment = clean_environment()
            if is_cold:
                time.sleep(COLD_S)
            else:
                back_free_memory()
            client = subprocess.run(words, check=True, stdout=-1, text=True, env=environment)
            said = client.stdout
        finally:
            if mounted:
                of_mount = mounted.end()
            report, of_store = store.end()
    found = json.loads(said)
    found["fetched"] = report["bytes_sent"] / found["bytes"]
    found["in_flight"] = report["in_flight_max"]
    found["processor"] += of_mount
    found["of_store"] = of_store
    return found


def interleaved(data, clients, given, limit=None):
    """Measures all clients in turn, forwards and backwards; returns the results by name."""
    found = {}
    wanted = [entry for entry in clients if given.only in entry[0]]
    for entry in list(wanted):
        reason = missing(entry[4])
        if reason:
            print(f"skipped: {entry[0]}: {reason}", file=sys.stderr)
            wanted.remove(entry)
    for turn in range(given.rounds):
        for name, client, options, reads, mount in wanted if turn % 2 == 0 else wanted[::-1]:
            if sys.stderr.isatty():
                print(f"\r\033[Kround {turn + 1} of {given.rounds}: {name}", end="", file=sys.stderr)
            figure = measure(data, client, options, reads, mount, turn, limit, name.endswith(COLD))
            found.setdefault(name, []).append(figure)
    if sys.stderr.isatty():
        print("\r\033[K", end="", file=sys.stderr)
    return {name: found[name] for name, *_ in wanted}


def read_hits(path, length, reads):
    """Microseconds of a random read whose bytes are in the file system's memory, but not in the page cache."""
    fd = os.open(path, os.O_RDONLY)
    size = os.fstat(fd).st_size
    buffer = bytearray(1 << 20)
    for at in range(0, size, len(buffer)):
        os.preadv(fd, [buffer], at)
    os.posix_fadvise(fd, 0, 0, os.POSIX_FADV_DONTNEED)
    starts = random.Random(5).sample(range(size // length), reads)
    buffer = bytearray(length)
    begun = time.perf_counter()
    for start in starts:
        os.preadv(fd, [buffer], start * length)
    seconds = time.perf_counter() - begun
    os.close(fd)
    return seconds / reads * 1e6


def hits(folder, rounds):
    """Compares hits in the mount's memory with a plain pass-through of the same file (bindfs)."""
    if not shutil.which("bindfs") or missing("foretell"):
        print("skipped: hits through a mount: no bindfs (Debian: bindfs) or no /dev/fuse", file=sys.stderr)
        return
    source, ours, plain = (folder / name for name in ("source", "ours", "plain"))
    for path in (source, ours, plain):
        path.mkdir()
    (source / "file").write_bytes(random.Random(2).randbytes(1 << 20) * 128)
    subprocess.run([COMMAND, "mount", source, ours], check=True, stdout=subprocess.DEVNULL)
    subprocess.run(["bindfs", "-r", source, plain], check=True)
    try:
        print("\nReads at random of what is in the mount's memory and not in the page cache, microseconds; rounds take turns\n")
        print("| read | foretell mount, median | bindfs, median | rate by rate, median of rounds |\n|---|---|---|---|")
        for length, reads in ((READ_BYTES, 800), (4096, 8000)):
            pairs = []
            for turn in range(2 * rounds):
                order = (ours, plain) if turn % 2 == 0 else (plain, ours)
                found = {path: read_hits(path / "file", length, reads) for path in order}
                pairs.append((found[ours], found[plain]))
            ratio = statistics.median(plain / ours for ours, plain in pairs)
            mine, theirs = (statistics.median(figures) for figures in zip(*pairs))
            print(f"| {length >> 10} KiB | {mine:.0f} | {theirs:.0f} | {ratio:.2f} |")
    finally:
        subprocess.run([COMMAND, "unmount", ours], check=False, stdout=subprocess.DEVNULL)
        subprocess.run(["umount", plain], check=False)


def median(figures, of):
    return statistics.median(of(figure) for figure in figures)


def by_reads(figure):
    return figure["bytes"] / READ_BYTES / figure["seconds"]


def by_megabytes(figure):
    return figure["bytes"] / 1e6 / figure["seconds"]


def share(figure, key):
    """The share of one processor, in %."""
    return 100 * figure[key] / figure["seconds"]


def table(title, unit, of, found):
    print(f"\n{title}\n\n| client | {unit}, median | least to most | fetched ÷ asked | most in flight ", end="")
    print("| processor, client and store, % |\n|---|---|---|---|---|---|")
    for name, figures in found.items():
        all_of = sorted(of(figure) for figure in figures)
        print(
            f"| {name} | {statistics.median(all_of):,.0f} | {all_of[0]:,.0f} to {all_of[-1]:,.0f} "
            f"| {median(figures, lambda f: f['fetched']):.2f} "
            f"| {median(figures, lambda f: f['in_flight']):.0f} "
            f"| {median(figures, lambda f: share(f, 'processor')):.0f}, "
            f"{median(figures, lambda f: share(f, 'of_store')):.0f} |"
        )


def beside(found):
    """Prints the rate of foretell as a share of obstore's, for the pair with the same requests in flight."""
    for state in ("", COLD):
        pair = [found.get(name + state) for name in (DISCLOSED, ASYNC)]
        if all(pair):
            share = 100 * median(pair[0], by_reads) / median(pair[1], by_reads)
            print(f"\n{DISCLOSED}{state}: {share:.0f} % of the median of {ASYNC}{state}")


def plot(path, found):
    """A bar chart of reads a second, on a logarithmic scale, as SVG."""
    import math

    row, left, width = 22, 270, 430
    rates = [(name, median(figures, by_reads)) for name, figures in found.items()]
    rates.sort(key=lambda pair: -pair[1])
    height = row * len(rates) + 50
    scale = width / math.log10(4000)
    lines = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{left + width + 70}" height="{height}" '
        'font-family="sans-serif" font-size="12">',
        '<rect width="100%" height="100%" fill="white"/>',
        '<text x="10" y="18" font-weight="bold">Random reads of 128 KiB a second, logarithmic scale</text>',
    ]
    for power in range(4):
        at = left + scale * power
        lines.append(f'<path d="M{at:.0f} 30V{height - 18}" stroke="#ddd"/>')
        lines.append(f'<text x="{at:.0f}" y="{height - 5}" text-anchor="middle">{10**power:,}</text>')
    for index, (name, rate) in enumerate(rates):
        y = 32 + row * index
        length = scale * math.log10(max(rate, 1))
        fill = "#1f77b4" if name.startswith(OURS) else "#bbb"
        lines.append(f'<text x="{left - 8}" y="{y + 14}" text-anchor="end">{name}</text>')
        lines.append(f'<rect x="{left}" y="{y + 2}" width="{length:.0f}" height="{row - 6}" fill="{fill}"/>')
        lines.append(f'<text x="{left + length + 5:.0f}" y="{y + 14}">{rate:,.0f}</text>')
    Path(path).write_text("\n".join([*lines, "</svg>\n"]))


def main():
    words = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--only", default="", help="clients with this in their names")
    words.add_argument("--kind", choices=["random", "sequential", "hits"], help="only these reads")
    words.add_argument("--plot", help="write the random reads as SVG")
    words.add_argument("--json", help="write all figures")
    given = words.parse_args()
    # On SIGTERM too, the started processes are ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))
    with tempfile.TemporaryDirectory() as data:
        data = Path(data)
        (data / "data").mkdir()
        source = random.Random(1)
        with (data / "data" / "object").open("wb") as out:
            for _ in range(OBJECT_BYTES >> 20):
                out.write(source.randbytes(1 << 20))
        at_random = in_order = limited = {}
        if given.kind in (None, "random"):
            at_random = interleaved(data, RANDOM, given)
        if given.kind in (None, "sequential"):
            in_order = interleaved(data, SEQUENTIAL, given)
            limited = interleaved(data, SEQUENTIAL, given, LIMIT_MB_S)
    kernel = platform.release().split("-")[0]
    print(f"{datetime.date.today()}, {os.cpu_count()} cores, Linux {kernel}, {given.rounds} rounds")
    if at_random:
        table("Random reads of 128 KiB of an object of 512 MiB", "reads/s", by_reads, at_random)
        beside(at_random)
    if in_order:
        title = "All of the object, in order, 1 MiB a read"
        table(f"{title}; the processor is the limit", "MB/s", by_megabytes, in_order)
        table(f"{title}; {LIMIT_MB_S} MB/s for all answers", "MB/s", by_megabytes, limited)
    if given.kind in (None, "hits") and not given.only:
        with tempfile.TemporaryDirectory() as folder:
            hits(Path(folder), given.rounds)
    if given.plot and at_random:
        plot(given.plot, at_random)
    if given.json:
        figures = {"random": at_random, "sequential": in_order, "limited": limited}
        Path(given.json).write_text(json.dumps(figures, indent=1) + "\n")


if __name__ == "__main__":
    main()
