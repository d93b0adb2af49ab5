"""What scripts/bench-disclose reads: a library, its data, and a selection.

A format has three duties. `needs` names the library. `make` writes the data into a folder. `read` opens what it needs of a place,
reads inside `with disclosed(plan)`, and returns a checksum; the same arguments read the same bytes in the same order.
To add one, write a class and name it in FORMATS. Libraries are imported inside functions: another Python may have them.
"""

import json
import random
import zlib


class Files:
    """small files, in a shuffled order"""

    needs = "fsspec"

    def order(self, scale):
        return [f"files/{at % 16}/{at:05}" for at in drawn(int(1000 * scale), int(500 * scale))]

    def make(self, folder, scale):
        for name in {f"files/{at % 16}/{at:05}" for at in range(int(1000 * scale))}:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            (folder / name).write_bytes(random.Random(name).randbytes(48 << 10))

    def read(self, place, disclosed, scale):
        from foretell import disclose

        names = self.order(scale)
        total = 0
        with disclosed(disclose.files([place.name(name) for name in names], store=place.store)):
            for name in names:
                total = zlib.crc32(place.content(name), total)
        return total


class Npy:
    """rows of an array, in a shuffled order"""

    needs = "numpy"
    row = 12 << 10

    def make(self, folder, scale):
        import numpy

        rows = int(2500 * scale)
        numpy.save(folder / "rows.npy", numpy.random.default_rng(1).random((rows, self.row), dtype="f4"))

    def read(self, place, disclosed, scale):
        from foretell import disclose

        total, size, order = 0, self.row * 4, drawn(int(2500 * scale), int(500 * scale))
        with place.opened("rows.npy") as file, disclosed(disclose.npy(place.file(file), order)):
            for row in order:
                total = zlib.crc32(part(file, 128 + row * size, size), total)
        return total


class Safetensors:
    """tensors, in a shuffled order"""

    needs = "numpy"

    def make(self, folder, scale):
        import numpy

        count, floats = int(1600 * scale), 16 << 10
        size = floats * 4
        told = {f"t{at}": {"dtype": "F32", "shape": [floats], "data_offsets": [at * size, (at + 1) * size]} for at in range(count)}
        head = json.dumps(told).encode()
        with open(folder / "model.safetensors", "wb") as file:
            file.write(len(head).to_bytes(8, "little") + head)
            file.write(numpy.random.default_rng(1).random(count * floats, dtype="f4").tobytes())

    def read(self, place, disclosed, scale):
        from foretell import disclose

        total, names = 0, [f"t{at}" for at in drawn(int(1600 * scale), int(400 * scale))]
        with place.opened("model.safetensors") as file:
            length = int.from_bytes(part(file, 0, 8), "little")
            known = json.loads(part(file, 8, length))
            with disclosed(disclose.safetensors(place.file(file), names)):
                for name in names:
                    begin, end = known[name]["data_offsets"]
                    total = zlib.crc32(part(file, 8 + length + begin, end - begin), total)
        return total


class Tar:
    """members of an archive whose index is kept, in a shuffled order"""

    needs = "numpy"

    def make(self, folder, scale):
        import io
        import tarfile

        from foretell import disclose

        with tarfile.open(folder / "shard.tar", "w") as archive:
            for at in range(int(2000 * scale)):
                member = tarfile.TarInfo(f"{at}.jpg")
                member.size = random.Random(at).randrange(20_000, 70_000)
                archive.addfile(member, io.BytesIO(random.Random(at).randbytes(member.size)))
        (folder / "shard.json").write_text(json.dumps(disclose.tar_index(folder / "shard.tar")))

    def read(self, place, disclosed, scale):
        from foretell import disclose

        total, index = 0, json.loads(place.content("shard.json"))
        names = [f"{at}.jpg" for at in drawn(int(2000 * scale), int(500 * scale))]
        with place.opened("shard.tar") as file, disclosed(disclose.tar(place.file(file), names, index=index)):
            for name in names:
                total = zlib.crc32(part(file, *index[name]), total)
        return total


class Cube:
    """A cube in chunks of 40 KiB, of which a slab is read that has three of ten rows of chunks."""

    chunks = (10, 32, 32)

    def shape(self, scale):
        return (max(int(400 * scale), 20), 320, 320)

    def slab(self, scale):
        return (slice(0, self.shape(scale)[0]), slice(60, 100), slice(0, 320))

    def values(self, scale):
        import numpy

        return numpy.random.default_rng(1).random(self.shape(scale), dtype="f4")

    def by_dask(self, cube, scale):
        """The slab as an array of dask, and its parts in the order in which dask's threads begin with them."""
        import dask
        import dask.array
        import dask.order

        lazy = dask.array.from_array(cube, chunks=(40, 320, 320), inline_array=True)[self.slab(scale)]
        (graph,) = dask.optimize(lazy)
        ranks = dask.order.order(dict(graph.__dask_graph__()))
        keys = sorted(dask.core.flatten(graph.__dask_keys__()), key=ranks.get)
        return lazy, [(slice(40 * key[1], 40 * key[1] + 40), *self.slab(scale)[1:]) for key in keys]


class Hdf5(Cube):
    """a slab of a cube in chunks, v1 B-tree"""

    needs = "h5py"
    bounds = "earliest"
    name = "cube.h5"

    def make(self, folder, scale):
        import h5py

        with h5py.File(folder / self.name, "w", libver=self.bounds) as file:
            file.create_dataset("cube", data=self.values(scale), chunks=self.chunks)

    def read(self, place, disclosed, scale):
        import h5py
        from foretell import disclose

        with place.opened(self.name) as raw, h5py.File(place.file(raw)) as opened:
            cube = opened["cube"]
            with disclosed(disclose.hdf5(cube, self.slab(scale), file=place.only_file(raw))):
                return zlib.crc32(cube[self.slab(scale)])


class Hdf5Latest(Hdf5):
    """a slab of a cube in chunks, fixed array"""

    bounds = "latest"
    name = "latest.h5"


class Zarr(Cube):
    """a slab of a cube in chunks"""

    needs = "zarr"
    name = "cube.zarr"
    options = {"compressors": None}

    def make(self, folder, scale):
        import zarr

        values = self.values(scale)
        options = {"shape": values.shape, "dtype": values.dtype, "chunks": self.chunks, "dimension_names": ["t", "y", "x"]}
        group = zarr.open_group(str(folder / self.name), mode="w")
        group.create_array("cube", **options, **self.options)[:] = values

    def array(self, place):
        import zarr

        return zarr.open_array(place.zarr(self.name), path="cube", mode="r")

    def read(self, place, disclosed, scale):
        from foretell import disclose

        cube = self.array(place)
        with disclosed(disclose.zarr(cube, self.slab(scale))):
            return zlib.crc32(cube[self.slab(scale)])


class ZarrShards(Zarr):
    """a slab of a cube in chunks, in shards"""

    name = "shards.zarr"
    options = {"compressors": None, "shards": (20, 320, 320)}


class XarrayZarr(Zarr):
    """a slab by xarray, over zarr"""

    needs = "xarray"

    def read(self, place, disclosed, scale):
        import xarray
        from foretell import disclose

        opened = xarray.open_zarr(place.zarr(self.name), chunks=None, consolidated=False)
        slab = dict(zip("tyx", self.slab(scale), strict=True))
        with disclosed(disclose.zarr(self.array(place), self.slab(scale))):
            return zlib.crc32(opened.cube.isel(slab).values)


class XarrayHdf5(Hdf5):
    """a slab by xarray, over h5netcdf"""

    needs = "xarray"

    def read(self, place, disclosed, scale):
        import h5py
        import xarray
        from foretell import disclose

        with place.opened(self.name) as raw, h5py.File(place.file(raw)) as below:
            opened = xarray.open_dataset(place.file(raw), engine="h5netcdf", phony_dims="sort")
            slab = dict(zip(opened.cube.dims, self.slab(scale), strict=True))
            with disclosed(disclose.hdf5(below["cube"], self.slab(scale), file=place.only_file(raw))):
                return zlib.crc32(opened.cube.isel(slab).values)


class DaskZarr(Zarr):
    """a slab by dask, over zarr"""

    needs = "dask"

    def read(self, place, disclosed, scale):
        from foretell import disclose

        cube = self.array(place)
        lazy, parts = self.by_dask(cube, scale)
        with disclosed(disclose.zarr(cube, *parts)):
            return zlib.crc32(lazy.compute(scheduler="threads"))


class DaskHdf5(Hdf5):
    """a slab by dask, over h5py"""

    needs = "dask"

    def read(self, place, disclosed, scale):
        import h5py
        from foretell import disclose

        with place.opened(self.name) as raw, h5py.File(place.file(raw)) as opened:
            cube = opened["cube"]
            lazy, parts = self.by_dask(cube, scale)
            with disclosed(disclose.hdf5(cube, *parts, file=place.only_file(raw))):
                return zlib.crc32(lazy.compute(scheduler="threads"))


FORMATS = {
    "files": Files(),
    "npy": Npy(),
    "safetensors": Safetensors(),
    "tar": Tar(),
    "hdf5": Hdf5(),
    "hdf5-latest": Hdf5Latest(),
    "zarr": Zarr(),
    "zarr-shards": ZarrShards(),
    "xarray-zarr": XarrayZarr(),
    "xarray-hdf5": XarrayHdf5(),
    "dask-zarr": DaskZarr(),
    "dask-hdf5": DaskHdf5(),
}


def drawn(of, count):
    return random.Random(1).sample(range(of), count)


def part(file, offset, length):
    file.seek(offset)
    return file.read(length)
