"""Runs of adjacent bytes that a selection of an array in row-major order consists of."""

from __future__ import annotations

import operator
from collections.abc import Iterator, Sequence
from typing import Any


def cuts(shape: Sequence[int], index: Any) -> list[range | Sequence[int]]:
    """Return the positions along each axis that basic indices select: integers, slices, `Ellipsis`, and sequences of integers.

    Raises:
        IndexError: The selection does not fit the shape, or is of another kind.

    """
    given = list(index) if isinstance(index, tuple) else [index]
    dots = [at for at, one in enumerate(given) if one is Ellipsis]
    if len(dots) > 1:
        raise IndexError("more than one Ellipsis")
    if dots:
        given[dots[0] : dots[0] + 1] = [slice(None)] * (len(shape) - len(given) + 1)
    if len(given) > len(shape):
        raise IndexError(f"{len(given)} indices for {len(shape)} axes")
    given += [slice(None)] * (len(shape) - len(given))
    return [_cut(one, size) for one, size in zip(given, shape, strict=True)]


def _cut(one: Any, size: int) -> range | Sequence[int]:
    if isinstance(one, slice):
        return range(*one.indices(size))
    if hasattr(one, "__len__") and not isinstance(one, (str, bytes)):
        positions = one.tolist() if hasattr(one, "tolist") else list(one)
        if positions and isinstance(positions[0], bool):
            if len(positions) != size:
                raise IndexError(f"a mask of {len(positions)} for an axis of {size}")
            return [at for at, is_chosen in enumerate(positions) if is_chosen]
        return [_position(each, size) for each in positions]
    position = _position(one, size)
    return range(position, position + 1)


def _position(one: Any, size: int) -> int:
    try:
        position = operator.index(one)
    except TypeError:
        raise IndexError(
            f"an index {one!r}: an integer, a slice or a list of integers is needed"
        ) from None
    if not -size <= position < size:
        raise IndexError(f"index {position} of an axis of {size}")
    return position + size if position < 0 else position


def runs(shape: Sequence[int], bits: int, index: Any) -> Iterator[tuple[int, int]]:
    """Yield offset and length in bytes of each run of a selection, in row-major order; an element has `bits`.

    Raises:
        IndexError: As `cuts`.

    """
    chosen = cuts(shape, index)
    if not all(chosen):
        return
    # Axes behind the last one that is cut are whole, so they are part of a run.
    axes = len(shape)
    inner = bits
    while axes and chosen[axes - 1] == range(shape[axes - 1]):
        axes -= 1
        inner *= shape[axes]
    strides = [inner] * axes
    for axis in range(axes - 2, -1, -1):
        strides[axis] = strides[axis + 1] * shape[axis + 1]

    def of_axis(axis: int, base: int) -> Iterator[tuple[int, int]]:
        if axis == axes:
            yield base, inner
            return
        positions = chosen[axis]
        if axis == axes - 1 and isinstance(positions, range) and positions.step == 1:
            yield base + positions.start * inner, len(positions) * inner
            return
        for position in positions:
            yield from of_axis(axis + 1, base + position * strides[axis])

    for begin, length in of_axis(0, 0):
        first, end = begin // 8, (begin + length + 7) // 8
        yield first, end - first
