"""What scripts/bench-disclose reads: a library, its data, and a selection.

A format has three duties. `needs` names the modules, which are imported before the time counts. `make` writes the data into a
folder. `read` opens what it needs of a place, reads inside `with disclosed(plan)`, and returns a checksum, the same each time.
To add one, write such a class and name it in FORMATS. Libraries are imported inside functions: another Python may have them.
"""

import json
import random
import zlib


class Files:
    """small files, in a shuffled order"""

    needs = ("fsspec",)

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

    needs = ("numpy",)
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

    needs = ("numpy",)

    def make(self, folder, scale):
        import numpy

        count, floats = int(1600 * scale), 16 << 10
        size = floats * 4
        told = {}
        for at in range(count):
            told[f"t{at}"] = {"dtype": "F32", "shape": [floats], "data_offsets": [at * size, (at + 1) * size]}
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

    needs = ("numpy",)

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

    needs = ("h5py",)
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

    needs = ("zarr",)
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

    needs = ("xarray", "zarr")

    def read(self, place, disclosed, scale):
        import xarray
        from foretell import disclose

        opened = xarray.open_zarr(place.zarr(self.name), chunks=None, consolidated=False)
        slab = dict(zip("tyx", self.slab(scale), strict=True))
        with disclosed(disclose.zarr(self.array(place), self.slab(scale))):
            return zlib.crc32(opened.cube.isel(slab).values)


class XarrayHdf5(Hdf5):
    """a slab by xarray, over h5netcdf"""

    needs = ("xarray", "h5netcdf", "h5py")

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

    needs = ("dask.array", "zarr")

    def read(self, place, disclosed, scale):
        from foretell import disclose

        cube = self.array(place)
        lazy, parts = self.by_dask(cube, scale)
        with disclosed(disclose.zarr(cube, *parts)):
            return zlib.crc32(lazy.compute(scheduler="threads"))


class DaskHdf5(Hdf5):
    """a slab by dask, over h5py"""

    needs = ("dask.array", "h5py")

    def read(self, place, disclosed, scale):
        import h5py
        from foretell import disclose

        with place.opened(self.name) as raw, h5py.File(place.file(raw)) as opened:
            cube = opened["cube"]
            lazy, parts = self.by_dask(cube, scale)
            with disclosed(disclose.hdf5(cube, *parts, file=place.only_file(raw))):
                return zlib.crc32(lazy.compute(scheduler="threads"))


class Table:
    """Columns of numbers, of which a quarter is read; 48 KiB of each lie together."""

    rows = 12 << 10
    columns = 40

    def names(self, of=columns):
        return [f"c{at:02}" for at in range(of)]

    def chosen(self, of=columns):
        """Each fourth, so that more lies between two than a library reads along."""
        return self.names(of)[::4]

    def parts(self, count, of=columns):
        """Yield the columns of one part after another, by name."""
        import numpy

        source = numpy.random.default_rng(1)
        for _ in range(count):
            yield {name: source.random(self.rows, dtype="f4") for name in self.names(of)}


class Parquet(Table):
    """columns of some row groups, batch by batch"""

    needs = ("pyarrow.dataset", "pyarrow.parquet")

    def groups(self, scale):
        return max(int(80 * scale), 4)

    def write(self, path, groups, of=Table.columns):
        import pyarrow
        from pyarrow import parquet

        schema = pyarrow.schema([(name, pyarrow.float32()) for name in self.names(of)])
        with parquet.ParquetWriter(path, schema, compression="none", use_dictionary=False) as writer:
            for part_of in self.parts(groups, of):
                writer.write_table(pyarrow.table(part_of))

    def make(self, folder, scale):
        self.write(folder / "events.parquet", self.groups(scale))

    def read(self, place, disclosed, scale):
        from foretell import disclose
        from pyarrow import parquet

        total, names = 0, self.chosen()
        groups = sorted(drawn(self.groups(scale), self.groups(scale) * 5 // 8))
        with place.opened("events.parquet") as raw, disclosed(disclose.parquet(place.file(raw), names, groups)):
            for batch in parquet.ParquetFile(place.file(raw)).iter_batches(self.rows, groups, names):
                for column in batch.columns:
                    total = zlib.crc32(column.to_numpy(), total)
        return total


class ParquetDataset(Parquet):
    """columns of the files of an Arrow dataset, as one table"""

    columns_each = 20
    groups_each = 4

    def make(self, folder, scale):
        (folder / "parts").mkdir()
        for at in range(max(int(25 * scale), 2)):
            self.write(folder / f"parts/{at:03}.parquet", self.groups_each, self.columns_each)

    def read(self, place, disclosed, scale):
        from foretell import disclose
        from pyarrow import dataset

        path, system = place.dataset("parts")
        opened, names = dataset.dataset(path, filesystem=system, format="parquet"), self.chosen(self.columns_each)
        with disclosed(disclose.dataset(opened, names)):
            table = opened.to_table(names)
        total = 0
        for column in table.columns:
            total = zlib.crc32(column.to_numpy(), total)
        return total


class Root(Table):
    """branches of a tree of ROOT, in steps of two baskets"""

    needs = ("uproot",)

    def make(self, folder, scale):
        import uproot

        count = max(int(50 * scale), 4)
        with uproot.recreate(folder / "events.root", compression=None) as file:
            file.mktree("events", dict.fromkeys(self.names(), "f4"), initial_basket_capacity=count)
            for part_of in self.parts(count):
                file["events"].extend(part_of)

    def read(self, place, disclosed, scale):
        import uproot
        from foretell import disclose

        total, names, step = 0, self.chosen(), 2 * self.rows
        with place.opened("events.root") as raw, uproot.open(place.file(raw)) as file:
            tree = file["events"]
            with disclosed(disclose.root(tree, names, slice(None, None, step))):
                for batch in tree.iterate(names, step_size=step, library="np"):
                    for name in names:
                        total = zlib.crc32(batch[name].tobytes(), total)
        return total


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
    "parquet": Parquet(),
    "parquet-dataset": ParquetDataset(),
    "root": Root(),
}


def drawn(of, count):
    return random.Random(1).sample(range(of), count)


def part(file, offset, length):
    file.seek(offset)
    return file.read(length)
