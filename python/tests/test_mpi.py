"""MPI programs: `foretell.mpi`, and what `foretell run` does for mpi4py."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy
import pytest

from foretell import mpi

MPIEXEC = Path(sys.executable).parent / "mpiexec"
SAMPLES = 512
SAMPLE_BYTES = 3000

pytestmark = pytest.mark.skipif(
    not MPIEXEC.exists(), reason="skipped: no mpiexec in the virtual environment"
)


def test_hints_of_an_info() -> None:
    # In a process of its own: MPI cannot be initialized twice.
    program = """
from mpi4py import MPI
from foretell import mpi
base = MPI.Info.Create()
base.Set("romio_ds_read", "disable")
made = mpi.info(method="auto", depth=0, base=base)
print(sorted((key, made.Get(key)) for key in made), base.Get_nkeys(), mpi.info(budget=1 << 20).Get("foretell_budget"))
for wrong in ({"method": "both"}, {"depth": -1}, {"budget": -1}):
    try:
        mpi.info(**wrong)
    except ValueError as error:
        print(error)
"""
    run = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert run.stdout.splitlines() == [
        "[('foretell_depth', '0'), ('foretell_method', 'auto'), ('romio_ds_read', 'disable')] 1 1048576",
        "method 'both': it is collective, informed or auto",
        "depth -1: it must not be negative",
        "budget -1: it must not be negative",
    ]


def test_no_process_is_active_by_itself() -> None:
    assert not mpi.is_active()


READER = """
import hashlib, sys
import numpy
from mpi4py import MPI
from foretell import mpi
comm = MPI.COMM_WORLD
path, method = sys.argv[1:]
hints = mpi.info(method=method, depth=16)
file = MPI.File.Open(comm, path, MPI.MODE_RDONLY, hints)
samples, size = {samples} // 4, {size}
part = MPI.BYTE.Create_vector(samples, size, size * comm.size).Create_resized(0, samples * size * comm.size)
part.Commit()
file.Set_view(comm.rank * size, MPI.BYTE, part, "native", hints)
digest = hashlib.sha256()
buffer = numpy.empty(samples * size, numpy.uint8)
for _ in range(4 // comm.size if comm.size < 4 else 1):
    status = MPI.Status()
    file.Read_all(buffer, status)
    digest.update(buffer.tobytes())
    digest.update(b"%d" % status.Get_count(MPI.BYTE))
line = f"{{comm.rank}} {{digest.hexdigest()}} {{mpi.is_active()}}"
for line in comm.gather(line) or []:  # Lines of several processes would mix.
    print(line)
file.Close()
"""


@pytest.fixture
def data(tmp_path: Path) -> Path:
    path = tmp_path / "data"
    random = numpy.random.default_rng(1)
    path.write_bytes(random.bytes(SAMPLES * SAMPLE_BYTES))
    return path


def ranks(words: list[str], count: int, foretell: list[str], **more: str) -> list[str]:
    run = subprocess.run(
        [*foretell, str(MPIEXEC), "-n", str(count), sys.executable, *words],
        capture_output=True,
        text=True,
        env={**os.environ, **more},
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    return sorted(run.stdout.splitlines())


@pytest.mark.parametrize("count", [1, 4])
@pytest.mark.parametrize("method", ["informed", "auto", "collective"])
def test_mpi4py_reads_the_same(
    data: Path, tmp_path: Path, command: Path, count: int, method: str
) -> None:
    program = tmp_path / "reader.py"
    program.write_text(READER.format(samples=SAMPLES, size=SAMPLE_BYTES))
    words = [str(program), str(data), method]
    report = tmp_path / "report"
    plain = ranks(words, count, [])
    run = ranks(words, count, [str(command), "run", "-q", "--"], FORETELL_MPI_REPORT=str(report))
    assert [line.replace("True", "False") for line in run] == plain
    assert all(line.endswith("True") for line in run)
    lines = [json.loads(line) for line in report.read_text().splitlines()]
    assert len(lines) == count
    informed = sum(line["informed_calls"] for line in lines)
    assert (informed > 0) == (method == "informed" or method == "auto")


def test_the_guides_program_ends_where_the_file_does(
    data: Path, tmp_path: Path, command: Path
) -> None:
    guide = (Path(__file__).parents[2] / "docs/guide/mpi.md").read_text()
    example = guide.split("```python\n")[1].split("```")[0]
    program = tmp_path / "example.py"
    # Lines of several processes would mix.
    last = (
        "open(f'count{comm.rank}', 'w').write(f'{status.Get_count(MPI.BYTE)} {mpi.is_active()}')\n"
    )
    program.write_text(f"import os\nos.chdir({str(data.parent)!r})\n{example}{last}")

    def counts(foretell: list[str]) -> list[str]:
        ranks([str(program)], 2, foretell)
        return [(data.parent / f"count{rank}").read_text() for rank in range(2)]

    plain = counts([])
    run = counts([str(command), "run", "-q", "--"])
    assert [line.replace("True", "False") for line in run] == plain
    assert all(line.endswith("True") for line in run)


def test_a_rank_without_the_library_is_not_waited_for(
    data: Path, tmp_path: Path, command: Path
) -> None:
    program = tmp_path / "reader.py"
    program.write_text(READER.format(samples=SAMPLES, size=SAMPLE_BYTES))
    reader = [sys.executable, str(program), str(data), "informed"]
    report = tmp_path / "report"
    words = ["-n", "1", "env", "FORETELL_SOCKET=", *reader, ":", "-n", "1", *reader]
    run = subprocess.run(
        [command, "run", "-q", "--", MPIEXEC, *words],
        capture_output=True,
        text=True,
        env={**os.environ, "FORETELL_MPI_REPORT": str(report)},
        timeout=120,
    )
    assert run.returncode == 0, run.stderr
    lines = sorted(run.stdout.splitlines())
    assert [line.split()[2] for line in lines] == ["False", "True"]
    plain = ranks([str(program), str(data), "informed"], 2, [])
    assert [line.split()[:2] for line in lines] == [line.split()[:2] for line in plain]
    (line,) = [json.loads(line) for line in report.read_text().splitlines()]
    assert line["informed_calls"] == 0
    assert line["disclosed_bytes"] > 0


DISCLOSER = """
import sys
import foretell
from mpi4py import MPI
from foretell import mpi
comm = MPI.COMM_WORLD
path, what = sys.argv[1:]
asked = []
def plan(rank):
    asked.append(rank)
    if what == "fails":
        raise LookupError("no plan")
    if what == "breaks":
        return ((path, 0, 10) if index == 0 else 1 / 0 for index in range(2))
    return [(path, rank * 8192, 8192), (path, (rank + comm.size) * 8192, 8192)]
try:
    with mpi.disclosed(comm, plan) as hints:
        with open(path, "rb", buffering=0) as file:
            for turn in range(2):
                file.seek((comm.rank + turn * comm.size) * 8192)
                assert len(file.read(8192)) == 8192
        line = f"{comm.rank} {asked} {hints.told} {hints.problem}"
except LookupError as error:
    line = f"{comm.rank} {error}"
for line in comm.gather(line) or []:
    print(line)
"""


@pytest.mark.parametrize(
    ("what", "expected"),
    [
        ("works", ["0 [0, 1, 2] ['run'] None", "1 [] ['run'] None", "2 [] ['run'] None"]),
        ("fails", ["0 no plan", "1 [] [] None", "2 [] [] None"]),
    ],
)
def test_one_rank_plans_for_all(
    data: Path, tmp_path: Path, command: Path, what: str, expected: list[str]
) -> None:
    program = tmp_path / "discloser.py"
    program.write_text(DISCLOSER)
    assert ranks([str(program), str(data), what], 3, [str(command), "run", "-q", "--"]) == expected


def test_a_plan_that_breaks_is_a_problem_of_its_rank(
    data: Path, tmp_path: Path, command: Path
) -> None:
    program = tmp_path / "discloser.py"
    program.write_text(DISCLOSER)
    lines = ranks([str(program), str(data), "breaks"], 2, [str(command), "run", "-q", "--"])
    assert all("division by zero" in line for line in lines)
