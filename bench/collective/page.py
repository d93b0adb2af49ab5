"""Tables, charts and the page of the live experiment, from its figures."""

import statistics

from collective import causes, chart, paper
from collective.machine import LAYOUTS, PATTERNS, Method

# A row is off if live and simulation differ by more.
OFF = 0.15
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
    heads = ["layout", "pattern", f"informed {double} / disk-directed", f"informed {double} / two-phase"]
    heads += ["auto / better of informed and read-all", "bytes, informed"]
    rows = []
    for layout in figures.layouts():
        for pattern in figures.patterns(layout):
            informed, both = Method("informed", double), (figures.sim, figures.live)
            against = [
                " / ".join(ratio(of(layout, pattern, informed), of(layout, pattern, Method(other))) for of in both)
                for other in ("disk-directed", "read-all")
            ]
            better = max(filter(None, (figures.live(layout, pattern, Method(one)) for one in ("informed", "read-all"))), default=None)
            auto = ratio(figures.live(layout, pattern, Method("auto")), better)
            rows.append([layout, pattern, *against, auto, number(figures.live(layout, pattern, informed, "bytes_share"))])
    return table(heads, rows)


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


def text(found, folder):
    """The page. Its charts are written to `folder`, if there is one."""
    figures = Figures(found)
    drawn = charts(figures, folder, "collective-live") if folder else []
    lines = [goals(figures)]
    for layout in figures.layouts():
        lines.append(f"## {layout}\n")
        lines.append(paper_table(figures, layout))
        for pattern in figures.patterns(layout):
            rows, _ = every_row(figures, layout, pattern)
            lines += [f"### {layout}, {pattern}\n", rows]
    lines += [f"![{title}]({name})\n" for name, title in drawn]
    written = "\n".join(lines)
    if folder:
        (folder / NAME).write_text(written)
    return written
