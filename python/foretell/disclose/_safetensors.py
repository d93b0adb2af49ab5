"""Tensors of a safetensors file."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, TypeAlias

from foretell.disclose._plan import Place, Plan, Source, missing, no_string, plan_of
from foretell.disclose._runs import runs

Names: TypeAlias = Iterable[str] | Mapping[str, Any]

# The first read of a file: most headers are shorter, and one request is enough for them.
HEAD_BYTES = 256 << 10
# As in the format's description: a longer header is an error.
HEADER_MAX_BYTES = 100_000_000
BITS = {
    "F4": 4, "F6_E2M3": 6, "F6_E3M2": 6, "BOOL": 8, "U8": 8, "I8": 8, "F8_E5M2": 8, "F8_E4M3": 8,
    "F8_E8M0": 8, "F8_E4M3FNUZ": 8, "F8_E5M2FNUZ": 8, "I16": 16, "U16": 16, "F16": 16, "BF16": 16,
    "I32": 32, "U32": 32, "F32": 32, "C64": 64, "F64": 64, "I64": 64, "U64": 64,
}  # fmt: skip


def safetensors(file: Place, tensors: Names | None = None) -> Plan:
    """Plan to read tensors of a safetensors file.

    Args:
        file: Its path, or an open file of a store.
        tensors: Names, in the order of reading; or a mapping of names to slices, as `get_slice` takes them: an index, a
            slice, or a tuple of these (`None` for the whole tensor). By default all tensors, as `load_file` reads them:
            by offset.

    The plan's iteration raises `KeyError` for a name that the file does not have, and `ValueError` if it is not a
    safetensors file.

    A slice is disclosed as its runs of adjacent elements.

    Raises:
        TypeError: `tensors` is a single name, or `file` something else than a file.

    """
    no_string(tensors, "tensor")
    return plan_of(file, lambda source: _ranges(source, tensors))


def header(source: Source) -> tuple[int, dict[str, Any]]:
    """Read the header of a file; returns where the data begins, and the description of each tensor."""
    head = source.read(0, HEAD_BYTES)
    length = int.from_bytes(head[:8], "little")
    if len(head) < 8 or length > HEADER_MAX_BYTES or 8 + length > source.size:
        raise ValueError(f"{source.path}: not a safetensors file")
    if len(head) < 8 + length:
        head += source.read(len(head), 8 + length - len(head))
    try:
        found = json.loads(head[8 : 8 + length])
        found = {name: one for name, one in found.items() if name != "__metadata__"}
    except (ValueError, AttributeError):
        raise ValueError(f"{source.path}: not a safetensors file") from None
    return 8 + length, found


def _ranges(source: Source, tensors: Names | None) -> Iterator[tuple[int, int]]:
    data_at, known = header(source)
    if tensors is None:
        tensors = sorted(known, key=lambda name: known[name]["data_offsets"][0])
    for name in tensors:
        if name not in known:
            raise missing(source.path, "tensor", name)
        tensor = known[name]
        begin, end = tensor["data_offsets"]
        index = tensors[name] if isinstance(tensors, Mapping) else None
        if index is None:
            if end > begin:
                yield data_at + begin, end - begin
            continue
        for offset, length in runs(tensor["shape"], BITS[tensor["dtype"]], index):
            yield data_at + begin + offset, length
