"""Tables, charts and the page of the live experiment, from its figures."""

import statistics

from collective import causes, chart, paper
from collective.machine import LAYOUTS, PATTERNS, Method

# A row is off if live and simulation differ by more.
OFF = 0.15
# A depth reaches a call's throughput if it is at least so much of it.
REACHED = 0.95
PAPER_TABLE = {"sequential": "4", "random": "5", "increasing": "6"}


class Figures:
    """All runs of an experiment, and the simulated rows beside them."""

    def __init__(self, found):
        self.machine, self.runs, self.simulated = found["machine"], found["runs"], found["simulated"]
        self.deepest = self.machine["blocks"] // self.machine["processes"]

    def live(self, layout, pattern, method, name="throughput_mib_s"):
        """The median of the rounds, or None."""
        of_method = self.runs.get(key(layout, pattern, method), [])
        return statistics.median(one[name] for one in of_method) if of_method else None

    def sim(self, layout, pattern, method, name="throughput_mib_s"):
        """What `sim collective` has for it; a depth above a portion is the portion."""
        method_name, depth = method.simulated
        if method_name == "auto" or (method_name == "prefetch" and depth is None):
            rows = [method_key(pattern, "prefetch", self.deepest), method_key(pattern, "two-phase", None)]
            values = [self.simulated[layout][row][name] for row in rows if row in self.simulated[layout]]
            return max(values[: 2 if method_name == "auto" else 1], default=None)
        row = self.simulated[layout].get(method_key(pattern, method_name, depth))
        return row and row[name]

    def depths(self, layout, pattern):
        """The depths that were measured, from 0, which is demand."""
        of = [method for method in self.methods(layout, pattern) if method.name == "informed" and method.depth is not None]
        return sorted(method.depth for method in of)

    def methods(self, layout, pattern):
        """The methods that were measured, in the order of the run."""
        names = [name.split("/") for name in self.runs]
        of = [(name, depth) for one, other, name, depth in names if (one, other) == (layout, pattern)]
        return [Method(name, int(depth) if depth else None) for name, depth in of]

    def layouts(self):
        """The layouts that were measured."""
        return [one for one in LAYOUTS if any(name.split("/")[0] == one for name in self.runs)]

    def patterns(self, layout):
        """The patterns that were measured there."""
        return [one for one in PATTERNS if any(name.startswith(f"{layout}/{one}/") for name in self.runs)]

    def at_depth(self, depth, of, layout, pattern):
        """Throughput at a depth, live or simulated; depth 0 is demand."""
        return of(layout, pattern, Method("informed", depth) if depth else Method("demand"))

    def crossover(self, of, layout, pattern):
        """The least measured depth from which prefetching equals the disk-directed call; 0.5 % is noise."""
        call = of(layout, pattern, Method("disk-directed"))
        values = [(depth, self.at_depth(depth, of, layout, pattern)) for depth in self.depths(layout, pattern)]
        return next((depth for depth, value in values if value and call and value >= 0.995 * call), None)


def key(layout, pattern, method):
    """The name of a cell in the figures."""
    return f"{layout}/{pattern}/{method.name}/{'' if method.depth is None else method.depth}"


def method_key(pattern, name, depth):
    """The name of a simulated row."""
    return f"{pattern}/{name}/{'' if depth is None else depth}"


def number(value):
    """Three digits, or a dash."""
    return "-" if value is None else f"{value:.3g}" if value < 100 else f"{value:.0f}"


def ratio(above, below):
    """A quotient with two decimals, or a dash."""
    return f"{above / below:.2f}" if above and below else "-"


def table(heads, rows):
    """A table in Markdown."""
    lines = ["| " + " | ".join(heads) + " |", "|" + "---|" * len(heads)]
    return "\n".join([*lines, *("| " + " | ".join(row) + " |" for row in rows)]) + "\n"


def three(printed, simulated, live):
    """The paper's figure, the simulated one and the live one."""
    return " / ".join(number(one) for one in (printed, simulated, live))


def goals(figures):
    """The issue's conditions, row by row."""
    double = 2 * figures.machine["disks"]
    heads = ["layout", "pattern", f"informed {double} / disk-directed", f"informed {double} / read-all"]
    heads += ["informed / read-all", f"waits, informed {double} / read-all", "auto / better of informed and read-all", f"bytes, informed {double}"]
    rows = []
    for layout in figures.layouts():
        for pattern in figures.patterns(layout):
            informed, both = Method("informed", double), (figures.sim, figures.live)
            against = [
                " / ".join(ratio(of(layout, pattern, informed), of(layout, pattern, Method(other))) for of in both)
                for other in ("disk-directed", "read-all")
            ]
            own = [ratio(of(layout, pattern, Method("informed")), of(layout, pattern, Method("read-all"))) for of in both]
            against.append(" / ".join(own))
            against.append(" / ".join(ratio(*(of(layout, pattern, one, "reading_s") for one in (informed, Method("read-all")))) for of in both))
            better = max(filter(None, (figures.live(layout, pattern, Method(one)) for one in ("informed", "read-all"))), default=None)
            auto = ratio(figures.live(layout, pattern, Method("auto")), better)
            rows.append([layout, pattern, *against, auto, number(figures.live(layout, pattern, informed, "bytes_share"))])
    return table(heads, rows)


def double_depth(figures):
    """Where a depth of 2D reaches the disk-directed call: live, and by simulation."""
    informed, call = Method("informed", 2 * figures.machine["disks"]), Method("disk-directed")
    rows = [(layout, pattern) for layout in figures.layouts() for pattern in figures.patterns(layout)]

    def share(of, row):
        above, below = of(*row, informed), of(*row, call)
        return above / below if above and below else None

    rows = [row for row in rows if share(figures.live, row)]
    short = [row for row in rows if share(figures.live, row) < REACHED]
    text = f"A prefetch depth of 2D\nreaches {REACHED} of the disk-directed call in {len(rows) - len(short)} of {len(rows)} rows"
    for lead, is_foreseen in (("short as simulated", True), ("short where the simulation is not (E below)", False)):
        named = [row for row in short if ((share(figures.sim, row) or 0) < REACHED) == is_foreseen]
        if named:
            text += f";\n{lead}: " + ", ".join(f"{' '.join(row)} ({share(figures.live, row):.2f})" for row in named)
    return text + "."


def paper_table(figures, layout):
    """A table of the paper beside simulation and live: 4, 5 or 6, or the same for another layout."""
    heads = ["pattern", "least", "most", "collective", "crossover"]
    rows = []
    for pattern in figures.patterns(layout):
        printed = {}
        if layout == "sequential":
            printed = paper.TABLE_4[pattern]
        elif layout == "random" and pattern == "interleaved":
            printed = paper.TABLE_5
        elif layout == "increasing" and pattern in paper.TABLE_6:
            printed = {"crossover": paper.TABLE_5["sorted"]} if pattern == "interleaved" else {}
        methods = {"least": Method("demand"), "most": Method("informed", figures.deepest)}
        methods["collective"] = Method("disk-directed")
        row = [pattern]
        for name, method in methods.items():
            row.append(three(printed.get(name), figures.sim(layout, pattern, method), figures.live(layout, pattern, method)))
        crossings = [figures.crossover(of, layout, pattern) for of in (figures.sim, figures.live)]
        rows.append([*row, three(printed.get("crossover"), *crossings)])
    return table(heads, rows)


def every_row(figures, layout, pattern):
    """Each method beside its simulation, and the cause if it is off."""
    heads = ["method", "simulated", "live", "ratio", "requests", "bytes", "cause"]
    rows, unexplained = [], []
    for method in figures.methods(layout, pattern):
        simulated, live = figures.sim(layout, pattern, method), figures.live(layout, pattern, method)
        requests, share = (figures.live(layout, pattern, method, name) for name in ("requests", "bytes_share"))
        cause = ""
        if simulated and live and abs(live / simulated - 1) > OFF:
            cause = causes.of(layout, pattern, method, live / simulated) or "**not known**"
            if "not known" in cause:
                unexplained.append(f"{layout}, {pattern}, {method}")
        cells = [number(simulated), number(live), ratio(live, simulated), f"{requests:.0f}", f"{share:.2f}", cause]
        rows.append([str(method), *cells])
    return table(heads, rows), unexplained


def charts(figures, folder, stem):
    """Figures 7 to 9, live. The names of those that could be drawn, with their titles."""
    drawn = []

    def by_depth(layout, patterns, name):
        lines = []
        for index, pattern in enumerate(pattern for pattern in patterns if pattern in figures.patterns(layout)):
            depths = [0, *figures.depths(layout, pattern)]
            for of, kind, is_dashed in ((figures.live, "live", False), (figures.sim, "simulated", True)):
                methods = [(depth, Method("informed", depth) if depth else Method("demand")) for depth in depths]
                points = [(depth, of(layout, pattern, method, name)) for depth, method in methods]
                points = [point for point in points if point[1] is not None]
                lines.append(chart.Line(f"{pattern}, {kind}", points, index, is_dashed))
        return lines

    def add(name, title, up, lines):
        if any(len(line.points) > 1 for line in lines):
            chart.draw(folder / f"{stem}-{name}.svg", title, "prefetch depth, blocks (0: demand)", up, lines)
            drawn.append((f"{stem}-{name}.svg", title))

    add("7", "Service of a block and prefetch depth, sequential (figure 7)", "ms a block at its disk",
        by_depth("sequential", ["interleaved", "block-3d"], "service_ms"))
    for layout, name in (("sequential", "8a"), ("random", "8b"), ("aged", "aged")):
        of_paper = "" if layout == "aged" else f" (figure {name})"
        add(name, f"Throughput and prefetch depth, {layout}{of_paper}", "MiB/s", by_depth(layout, PATTERNS, "throughput_mib_s"))
    for layout, pattern, name in (("random", "interleaved", "9a"), ("sequential", "global", "9b")):
        if layout not in figures.layouts() or pattern not in figures.patterns(layout):
            continue
        machine = {**figures.machine, "compute_ms": figures.machine["compute_ms"][layout]}
        points = [(depth, paper.modelled_mib_s(layout, depth, machine)) for depth in figures.depths(layout, pattern)]
        lines = [*by_depth(layout, [pattern], "throughput_mib_s"), chart.Line("the paper's model", points, 1, True)]
        add(name, f"Model and reality, {layout} places, {pattern} (figure {name})", "MiB/s", lines)
    return drawn


def model_errors(figures):
    """The largest error of the paper's model against the live figures, as text."""
    lines = []
    for layout, pattern, least in (("random", "interleaved", 1), ("sequential", "global", 3)):
        if layout not in figures.layouts() or pattern not in figures.patterns(layout):
            continue
        machine = {**figures.machine, "compute_ms": figures.machine["compute_ms"][layout]}
        errors = []
        for depth in figures.depths(layout, pattern):
            live = figures.live(layout, pattern, Method("informed", depth))
            if live and depth >= least:
                errors.append(abs(paper.modelled_mib_s(layout, depth, machine) / live - 1))
        if errors:
            lines.append(f"{layout} places, {pattern}: {100 * max(errors):.0f} %")
    return "; ".join(lines)


NAME = "collective-live.md"
INTRODUCTION = """\
# Collective reads, live

Does bounded informed prefetching give real parallel programs what collective calls give?
The paper of Madhyastha, Gibson and Faloutsos (1999) and [the simulator](../internals/collective.md) say so.
Here {processes} processes of an MPI read a striped file through file views, on an emulated array of {disks} disks,
and foretell's library for MPI-IO makes independent reads of their collective calls.

`scripts/bench-collective --page docs/results` writes this page. {date}, {cores} cores that the array, the processes and foretell
share, at times with other work, Linux {kernel}, {mpi}. {rounds}; {turns};
a second of the array's clock took {scale:g} s; {minutes:.0f} minutes in all.
"""
GOALS = """\
## What comes out

Disk-directed calls and reads on demand take what the simulator says, within some per cent. {double_depth}
foretell's own depth, which is the default, hides all reading: nearly twice the call.

Pairs are simulated / live. *informed N* is `MPI_File_read_all` under foretell with N blocks of each process disclosed ahead.
*Waits* are the seconds from barriers until all processes have their parts. *Bytes* are those that the array served, by the file's.
"""
METHOD = """\
## How it is measured

* The file is {portions_all} portions of {portion_mib:g} MiB in blocks of 8 KiB, one after another under one tiled view. Portions are
  the paper's files: all processes wait for each other, read their part, wait, and compute as long as a disk-directed call
  takes ([figure 6](../internals/collective.md#each-disk-is-the-only-one-of-its-io-node)). Every byte is checked.
* The view of each pattern is what a program would write: `MPI_Type_vector` (interleaved), `MPI_Type_contiguous` (1-D blocks),
  `MPI_Type_create_subarray` (3-D blocks), `MPI_Type_create_indexed_block` (drawn owners, the same in all portions).
* Throughput is in MiB of the file for each second of reading and computing, in the array's time and a steady state:
  {portions} portions count, and at least one is read before and one after. With `auto` and plain `informed`, the first eight are not counted.
* Disks are `{disk}` with the order SSTF. Block b of a portion is on disk b mod {disks}. Portions lie as in `sim collective`:
  `sequential` (each anywhere), `aged` (runs of three blocks on average), `random`, `increasing` (the same places in the file's order).
  `foretell array mount --places` has the same places as the simulator, so both read the same sectors.
* *simulated* is `foretell sim collective` for this machine. The array has no network of its own, so the simulated one takes no time.
* Each run has a new mount, so nothing is in memory. Computing and barriers sleep, and programs have a lower priority than the
  array and the manager, which would have processors of their own.

| method | what it does |
|---|---|
| demand | each block by a call of its own; the kernel's read-ahead is off for the process's descriptor (`POSIX_FADV_RANDOM`) |
| read-ahead | the same with the kernel's read-ahead of 128 KiB |
| read-all | `MPI_File_read_all` as the MPI has it: here one process reads for all on the machine, if the parts interleave |
| two-phase | the same with as many aggregators as processes (hints `cb_nodes`, `cb_config_list`; `num_aggregators`) |
| disk-directed | one more process for each disk asks for all its blocks at once, which the disk serves in one sweep (C-LOOK), and sends each to its owner as soon as it is there |
| informed N | `MPI_File_read_all` under `foretell run` with `foretell_method=informed` and `foretell_depth=N`; plain `informed` is as deep as the manager decides |
| auto | `foretell_method=auto`: informed, unless the first calls show that read-all is faster |
"""
TABLES = """\
## Tables 4 to 6

Cells are the paper's figure / simulated / live, throughputs in MiB/s and crossovers in blocks. *Least* is without prefetching, *most*
has all of a portion ahead. The *crossover* is the least measured depth that equals the disk-directed call; measured are {depths}.
The paper's table 6 is for files of 256 MB, which would take hours here.
"""
OFF_HEAD = """\
## Every row

*Ratio* is live by simulated. Rows that are off by more than 15 % have a cause, by its letter:
"""


def text(found, folder):
    """The page. Its charts are written to `folder`, if there is one."""
    figures = Figures(found)
    machine = figures.machine
    portion_mib = machine["blocks"] * 8192 / 2**20
    about = {**machine, "portion_mib": portion_mib, "portions_all": machine["portions"] + 2}
    depths = sorted({depth for layout in figures.layouts() for one in figures.patterns(layout) for depth in figures.depths(layout, one)})
    rounds = max(len(runs) for runs in figures.runs.values())
    parts = machine.get("parts", 1)
    about["turns"] = "methods took turns" if parts == 1 else f"{parts} measurements put together, in each of which the methods took turns"
    about["rounds"] = "One round" if rounds == 1 else f"Medians of up to {rounds} rounds"
    about["mpi"] = " ".join(machine["mpi"].replace("Version:", "").replace(",", " ").split()[:3])
    about["depths"] = ", ".join(map(str, depths))
    about["double_depth"] = double_depth(figures)
    drawn = charts(figures, folder, "collective-live") if folder else []
    lines = [INTRODUCTION.format(**about), GOALS.format(**about), goals(figures), METHOD.format(**about), TABLES.format(**about)]
    for layout in figures.layouts():
        number = PAPER_TABLE.get(layout)
        lines.append(f"### {layout} places{f' (table {number})' if number else ''}\n\n{paper_table(figures, layout)}")
    lines.append("## Figures 7 to 9\n\nDashed lines are simulated, or the paper's model.\n")
    lines += [f"![{title}]({name})\n" for name, title in drawn]
    errors = model_errors(figures)
    lines += [f"The model's largest error against the live figures: {errors} (the paper: 5 % and 20 %).\n"] if errors else []
    lines.append(OFF_HEAD)
    rows = [every_row(figures, layout, one) for layout in figures.layouts() for one in figures.patterns(layout)]
    heads = [(layout, one) for layout in figures.layouts() for one in figures.patterns(layout)]
    lines.append(table(["cause", "what it is"], list(causes.TEXTS.items())))
    for (layout, pattern), (of, _) in zip(heads, rows, strict=True):
        lines.append(f"### {layout}, {pattern}\n\n{of}")
    written = "\n".join(lines)
    if folder:
        (folder / NAME).write_text(written)
    return written
