"""`safetensors`, with what is read disclosed first.

>>> from foretell.safetensors import load_file, safe_open
>>> weights = load_file("model.safetensors")
>>> with safe_open("model.safetensors", framework="pt") as file:
...     file.prefetch({"wte": numpy.s_[: rows // ranks], "h.0.attn": None})
...     part = file.get_slice("wte")[: rows // ranks]

The functions have the arguments and results of `safetensors`, and call it. Files are paths: of a foretell mount, or of any
storage if the program was started by ``foretell run``. Elsewhere nothing is disclosed.

Tensors of torch on the processor are memory maps: they are read when they are first used. So what was disclosed stays
so until the tensors are gone. Of several ranks on a node, each discloses and reads its own slices; what two of them need is
fetched once.
"""

from __future__ import annotations

import contextlib
import os
import weakref
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Self, TypeAlias

from foretell import disclose
from foretell.disclose import Disclosed

if TYPE_CHECKING:
    from types import TracebackType

PrefetchPlan: TypeAlias = Iterable[str] | Mapping[str, Any]

__all__ = ["load_file", "safe_open"]


def _library() -> Any:
    try:
        import safetensors
    except ModuleNotFoundError:
        raise ImportError(
            "foretell.safetensors needs safetensors: pip install safetensors"
        ) from None
    return safetensors


def _kept(hints: Disclosed, *tensors: Any) -> None:
    """Keep hints at least as long as the tensors."""
    for tensor in tensors:
        with contextlib.suppress(TypeError):  # No weak references.
            weakref.finalize(tensor, id, hints).atexit = False


def load_file(
    filename: str | os.PathLike[str], device: Any = "cpu", *, framework: str = "pt", **named: Any
) -> dict[str, Any]:
    """Load all tensors of a file, disclosed in the order of the file.

    Args:
        filename: The file.
        device: As for `safetensors.torch.load_file`.
        framework: ``"pt"`` for tensors of torch, as `safetensors.torch.load_file`; or another that `safe_open` knows.
        named: Further arguments of `safetensors.safe_open`.

    Raises as `safetensors.safe_open`.

    """
    with safe_open(filename, framework, device, **named) as file:
        file.prefetch()
        if hasattr(file, "get_tensors"):
            return dict(file.get_tensors())
        return {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


class safe_open:
    """`safetensors.safe_open`, whose reads are disclosed: what `prefetch` names at once, and others each before its turn."""

    def __init__(
        self, filename: str | os.PathLike[str], framework: str, device: Any = "cpu", **named: Any
    ) -> None:
        self._hints = Disclosed()
        self._path = os.fsdecode(filename)
        # Tensors that `prefetch` has named, or that were disclosed before their turn.
        self._known: set[str] = set()
        self._knows_all = False
        # The header is read to its end, whatever its length.
        self._file = _library().safe_open(filename, framework, device=device, **named)

    def __enter__(self) -> Self:
        self._file.__enter__()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._file.__exit__(kind, error, trace)
        # Tensors that are not read yet keep the hints.
        self._hints = Disclosed()
        self._known, self._knows_all = set(), False

    def __getattr__(self, name: str) -> Any:
        if name in ("_file", "_hints"):
            raise AttributeError(name)
        return getattr(self._file, name)

    @property
    def problem(self) -> str | None:
        """Why the last plan was not disclosed to its end, in one line."""
        return self._hints.problem

    def prefetch(self, plan: PrefetchPlan | None = None) -> None:
        """Disclose what will be read: all tensors, those named, or slices of them, in this order.

        Args:
            plan: Names; or a mapping of names to what `get_slice` will be asked for, as `foretell.disclose.safetensors`.

        A version of `safetensors` that has this method (0.9) gets the plan too. A wrong plan raises nothing here otherwise.

        """
        self._disclose(plan)
        theirs = getattr(self._file, "prefetch", None)
        if theirs is not None:
            theirs(plan)

    def _disclose(self, plan: PrefetchPlan | None) -> None:
        if plan is None:
            self._knows_all = True
        else:
            plan = dict(plan) if isinstance(plan, Mapping) else list(plan)
            self._known.update(plan)
        self._hints.add(disclose.safetensors(self._path, plan))

    def _is_known(self, name: str) -> bool:
        return self._knows_all or name in self._known

    def get_tensor(self, name: str) -> Any:
        """Return a tensor."""
        if not self._is_known(name):
            self._disclose([name])
        tensor = self._file.get_tensor(name)
        _kept(self._hints, tensor)
        return tensor

    def get_tensors(self) -> dict[str, Any]:
        """Return all tensors by name."""
        if not self._knows_all:
            self._disclose(None)
        tensors: dict[str, Any] = self._file.get_tensors()
        _kept(self._hints, *tensors.values())
        return tensors

    def get_slice(self, name: str) -> Slice:
        """Return what can be indexed to read a part of a tensor."""
        return Slice(self, name, self._file.get_slice(name))


class Slice:
    """A tensor, of which parts are read by indexing, as `safetensors`' own."""

    def __init__(self, file: safe_open, name: str, theirs: Any) -> None:
        self._file = file
        self._name = name
        self._theirs = theirs

    def __getattr__(self, name: str) -> Any:
        if name == "_theirs":
            raise AttributeError(name)
        return getattr(self._theirs, name)

    def __getitem__(self, index: Any) -> Any:
        if not self._file._is_known(self._name):
            self._file._hints.add(disclose.safetensors(self._file._path, {self._name: index}))
        tensor = self._theirs[index]
        _kept(self._file._hints, tensor)
        return tensor
