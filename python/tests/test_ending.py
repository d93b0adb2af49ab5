"""Threads that read while the interpreter ends."""

import subprocess
import sys
from pathlib import Path

PROGRAM = """
import sys, threading, foretell
store = foretell.Store(sys.argv[1], budget="1MiB", block=4096)
begun = threading.Semaphore(0)
def read(number):
    file = store.open("data")
    while True:
        for at in range(number << 16, 4 << 20, 1 << 17):
            file.read_at(at % (4 << 20), 1 << 16)
        begun.release()
for number in range(8):
    threading.Thread(target=read, args=(number,), daemon=True).start()
for _ in range(8):
    begun.acquire()
"""


def test_the_interpreter_ends_while_other_threads_read(tmp_path: Path) -> None:
    # A thread that takes an interpreter which has ended is ended in the middle of Rust's code, which aborts by that.
    (tmp_path / "data").write_bytes(bytes(4 << 20))
    for _ in range(10):
        words = [sys.executable, "-c", PROGRAM, str(tmp_path)]
        done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
        assert (done.returncode, done.stdout) == (0, ""), done.stderr
        assert "fatal" not in done.stderr, done.stderr


def test_reads_of_the_main_thread_at_exit_go_on(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(b"x" * 100_000)
    program = """
import atexit, sys
def last():
    print(len(store.open("data").read()))
atexit.register(last)
import foretell
store = foretell.Store(sys.argv[1])
"""
    words = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "100000\n", "")


def test_a_forked_child_does_not_wait_for_its_parents_threads(tmp_path: Path) -> None:
    (tmp_path / "data").write_bytes(bytes(4 << 20))
    program = (
        PROGRAM + "import os\nchild = os.fork()\nif child: sys.exit(os.waitpid(child, 0)[1])\n"
    )
    words = [sys.executable, "-c", program, str(tmp_path)]
    done = subprocess.run(words, capture_output=True, text=True, timeout=120, check=False)
    assert done.returncode == 0, done.stderr
