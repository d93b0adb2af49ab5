"""`foretell.safetensors` returns what `safetensors` returns, and discloses it first."""

import json
import random
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foretell.disclose import Disclosed, Plan

safetensors = pytest.importorskip("safetensors")
safetensors_numpy = pytest.importorskip("safetensors.numpy")

from foretell.safetensors import load_file, safe_open  # noqa: E402

SEED = 7


@pytest.fixture
def model(tmp_path: Path) -> tuple[Path, dict[str, Any]]:
    source = np.random.default_rng(SEED)
    tensors = {f"layer.{n}": source.random((16, 8 * n + 1), dtype="f4") for n in range(12)}
    path = tmp_path / "model.safetensors"
    safetensors_numpy.save_file(tensors, path)
    return path, tensors


@pytest.fixture
def told(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int | None]]:
    """What was disclosed, as offsets and lengths."""
    found: list[tuple[int, int | None]] = []

    def add(self: Disclosed, *plans: Plan) -> None:
        for plan in plans:
            found.extend((offset, length) for _, offset, length in plan)

    monkeypatch.setattr(Disclosed, "add", add)
    return found


def content(path: Path, told: list[Any]) -> bytes:
    data = path.read_bytes()
    return b"".join(data[offset : offset + length] for offset, length in told)


def test_a_file_is_loaded(model: Any, told: list[Any]) -> None:
    path, tensors = model
    found = load_file(path, framework="np")
    assert found.keys() == tensors.keys()
    assert all(np.array_equal(found[name], tensors[name]) for name in tensors)
    assert sum(length for _, length in told) == sum(one.nbytes for one in tensors.values())


def test_tensors_and_slices_are_disclosed_before_their_turn(model: Any, told: list[Any]) -> None:
    path, tensors = model
    with safe_open(str(path), framework="np") as file:
        assert sorted(file.keys()) == sorted(tensors)
        for name, tensor in tensors.items():
            told.clear()
            part = file.get_slice(name)
            assert part.get_shape() == list(tensor.shape)
            assert np.array_equal(part[2:7, :1], tensor[2:7, :1])
            assert content(path, told) == tensor[2:7, :1].tobytes()
            told.clear()
            assert np.array_equal(file.get_tensor(name), tensor)
            assert content(path, told) == tensor.tobytes()
    path.write_bytes(b"broken")
    with pytest.raises(safetensors.SafetensorError):
        safe_open(path, framework="np")


def test_a_plan_is_disclosed_once(model: Any, told: list[Any]) -> None:
    path, tensors = model
    source = random.Random(SEED)
    for _ in range(20):
        names = source.sample(list(tensors), 5)
        plan = {name: np.s_[source.randrange(16) :] for name in names[:3]}
        told.clear()
        with safe_open(path, framework="np") as file:
            file.prefetch(plan)
            file.prefetch(names[3:])
            wanted = [tensors[name][plan[name]].tobytes() for name in plan]
            wanted += [tensors[name].tobytes() for name in names[3:]]
            assert content(path, told) == b"".join(wanted)
            for name in plan:
                assert np.array_equal(file.get_slice(name)[plan[name]], tensors[name][plan[name]])
            for name in names[3:]:
                assert np.array_equal(file.get_tensor(name), tensors[name])
            assert content(path, told) == b"".join(wanted)


def test_a_newer_library_gets_the_plan_too(model: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    path, _ = model
    plans: list[Any] = []

    class Newer:
        def __init__(self, *args: Any, **named: Any) -> None:
            pass

        def prefetch(self, plan: Any) -> None:
            plans.append(plan)

    monkeypatch.setattr(safetensors, "safe_open", Newer)
    file = safe_open(path, framework="np")
    file.prefetch({"layer.3": np.s_[:4]})
    file.prefetch()
    assert plans == [{"layer.3": np.s_[:4]}, None]


def test_a_wrong_plan_raises_nothing_itself(model: Any) -> None:
    path, tensors = model
    with safe_open(path, framework="np") as file:
        file.prefetch(["absent"])
        assert np.array_equal(file.get_tensor("layer.3"), tensors["layer.3"])
        with pytest.raises(safetensors.SafetensorError):
            file.get_tensor("absent")


PROGRAM = """
import sys
from foretell.safetensors import load_file, safe_open
found = load_file(sys.argv[1], framework=sys.argv[2])
with safe_open(sys.argv[1], framework=sys.argv[2]) as file:
    file.prefetch({name: slice(3) for name in found})
    parts = {name: file.get_slice(name)[:3] for name in found}
    told = file._hints.told
print(sum(float(one.sum()) for one in [*found.values(), *parts.values()]), *told)
"""


@pytest.mark.parametrize("framework", ["np", "pt"])
def test_the_manager_of_a_run_is_told(
    model: Any, command: Path, tmp_path: Path, framework: str
) -> None:
    if framework == "pt":
        pytest.importorskip("torch")
    report = tmp_path / "report.json"
    program = [sys.executable, "-c", PROGRAM, str(model[0]), framework]
    plain = subprocess.run(program, stdout=subprocess.PIPE, check=True, timeout=300).stdout
    words = [str(command), "run", "--no-learn", "--json", str(report), "--", *program]
    run = subprocess.run(words, stdout=subprocess.PIPE, check=True, timeout=300).stdout
    assert run.split() == [*plain.split(), b"run"]
    assert json.loads(report.read_text())["hints"]["given"] > 0
