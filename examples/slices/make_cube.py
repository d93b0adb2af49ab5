"""Make a cube of float32 values to look at: python make_cube.py cube.h5 --side 300 --chunks 16x16x8.

The values are a cloud of gas around a star, made of noise: the same for the same arguments. Chunks are written one after
another with the last axis (Z) first, and each begins at a multiple of 8 KiB. So a Y-Z plane lies in one piece, an X-Z plane in
rows, and each chunk of an X-Y plane is alone, as in the file of TIP (1995, section 3.3), whose chunks are those of 16x16x8.
"""

import argparse
import itertools
import os
import sys
from collections.abc import Iterator
from pathlib import Path

import h5py
import numpy as np

SEED = 1995
# The block of a file system; chunks begin at multiples of it.
BLOCK_BYTES = 8192
# Points of the lattices of random values that noise is interpolated between, for each side of the cube.
COARSE, MIDDLE, FINE = (2, 4), (7, 14), (24, 48, 96)
DATASET, MOST = "density", 1.4


def spline_weights(places: np.ndarray, points: int) -> np.ndarray:
    """Weights of a lattice's points at places between 0 and 1, as a cubic B-spline has them: one row for each place."""
    at = places * (points - 3) + 1
    away = np.abs(at[:, None] - np.arange(points))
    near = 2 / 3 - away**2 + away**3 / 2
    far = np.clip(2 - away, 0, None) ** 3 / 6
    return np.where(away < 1, near, far).astype("f4")


class Noise:
    """Smooth noise in three dimensions, about -1 to 1: a sum of lattices, each of half the size of the one before."""

    def __init__(self, source: np.random.Generator, side: int, sizes: tuple[int, ...]) -> None:
        places = np.linspace(0, 1, side)
        self._layers = []
        for octave, size in enumerate(sizes):
            values = source.uniform(-1, 1, [size + 3] * 3).astype("f4") * (2.0 / 2**octave)
            self._layers.append((values.astype("f4"), spline_weights(places, size + 3)))

    def plane(self, at: int) -> np.ndarray:
        """The values at one x, for all y and z."""
        total = np.zeros((), "f4")
        for values, weights in self._layers:
            total = total + weights @ np.tensordot(weights[at], values, 1) @ weights.T
        return total


def planes(side: int) -> Iterator[np.ndarray]:
    """Yield the values at each x, for all y and z."""
    source = np.random.default_rng(SEED)
    warp, wisps, grain = (Noise(source, side, sizes) for sizes in (COARSE, MIDDLE, FINE))
    line = np.linspace(-1, 1, side, dtype="f4")
    y, z = line[:, None], line[None, :]
    for at, x in enumerate(line):
        bent, rough, fine = warp.plane(at), wisps.plane(at), grain.plane(at)
        across = x * x + y * y
        radius = np.sqrt(across + (z / 1.15) ** 2) * (1 + 0.28 * bent) + 0.05 * rough + 0.015 * fine
        shell = np.exp(-(((radius - 0.68) / 0.035) ** 2)) * (0.75 + 0.5 * rough + 0.25 * fine)
        inside = 1 / (1 + np.exp((radius - 0.67) / 0.02))
        threads = np.clip(1 - np.abs(rough + 0.25 * fine) * 2.2, 0, 1) ** 3 * (0.2 + 0.6 * radius)
        veil = np.clip(0.5 + bent + 0.35 * fine, 0, None) * 0.32 * radius
        star = 1.3 * np.exp(-(across + z * z) / 0.004) + 0.25 * np.exp(-(across + z * z) / 0.05)
        jet = np.exp(-across / (0.0012 + 0.02 * z * z)) * np.exp(-np.abs(z)) * (0.5 + 0.4 * fine)
        haze = 0.07 * np.clip(1 + bent + 0.5 * fine, 0, None) * np.exp(-radius)
        total = shell + (threads + veil) * inside + star + jet + haze
        yield np.clip(total, 0, MOST).astype("f4")


def write(path: Path, side: int, chunks: tuple[int, int, int]) -> None:
    """Write the file anew."""
    block = {"alignment_threshold": BLOCK_BYTES, "alignment_interval": BLOCK_BYTES}
    thick, wide, deep = chunks
    source = planes(side)
    with h5py.File(path, "w", libver="latest", **block) as file:
        cube = file.create_dataset(DATASET, (side,) * 3, "<f4", chunks=chunks)
        cube.attrs["range"] = [0.0, MOST]
        small = (-(-side // 4), -(-side // 4))
        overview = file.create_dataset(
            "overview", (-(-side // thick), *small), "<f4", chunks=(1, *small)
        )
        for x in range(0, side, thick):
            slab = np.zeros(
                (thick, side + wide, side + deep), "<f4"
            )  # Chunks at the edge are filled up.
            for at, plane in enumerate(itertools.islice(source, thick)):
                slab[at, :side, :side] = plane
            for y, z in itertools.product(range(0, side, wide), range(0, side, deep)):
                part = slab[:, y : y + wide, z : z + deep]
                # `cube[...] = part` would leave the order of chunks in the file to the library's cache.
                cube.id.write_direct_chunk((x, y, z), part.tobytes())
            overview[x // thick] = slab[0, :side:4, :side:4]
            file.flush()


def parse(words: list[str]) -> argparse.Namespace:
    """Understand the command line."""

    def triple(text: str) -> tuple[int, ...]:
        values = tuple(int(word) if word.isdecimal() else 0 for word in text.split("x"))
        if len(values) != 3 or min(values) < 1:
            raise argparse.ArgumentTypeError(f"{text}: must be three lengths, such as 16x16x8")
        return values

    parser = argparse.ArgumentParser(description="Make a cube of float32 values.")
    parser.add_argument("file", type=Path, help="the HDF5 file to write")
    parser.add_argument("--side", type=int, default=300, help="values along each axis (300)")
    parser.add_argument(
        "--chunks", type=triple, default=(16, 16, 8), help="values of a chunk (16x16x8, 8 KiB)"
    )
    given = parser.parse_args(words)
    if given.side < max(2, *given.chunks):
        parser.error(f"--side {given.side} is less than a chunk of {given.chunks}")
    return given


def main(words: list[str]) -> int:
    """Write the file; a half-written one is removed."""
    given = parse(words)
    partial = given.file.with_name(given.file.name + ".partial")
    try:
        write(partial, given.side, given.chunks)
        os.replace(partial, given.file)
    except OSError as error:
        # h5py's errors have a number, and many words.
        why = os.strerror(error.errno) if error.errno else error
        print(f"make_cube: {given.file}: {why}", file=sys.stderr)
        return 1
    finally:
        partial.unlink(missing_ok=True)
    print(f"{given.file}: {given.file.stat().st_size / 2**20:.0f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
