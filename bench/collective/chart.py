"""Line charts as SVG, with a logarithmic horizontal axis."""

import math
from pathlib import Path

COLOURS = ["#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9"]
LEFT, TOP, WIDTH, HEIGHT, NAMES = 62, 46, 520, 300, 230


class Line:
    """A line of a chart: positions and values; dashed if it is simulated or a model's."""

    def __init__(self, name, points, colour, is_dashed=False):
        self.name, self.points, self.colour, self.is_dashed = name, points, COLOURS[colour % len(COLOURS)], is_dashed


def ticks(most):
    """Round values from 0 to at least `most`."""
    step = 10 ** math.floor(math.log10(most))
    step = next(step * part for part in (0.2, 0.5, 1, 2) if most / (step * part) <= 6)
    return [step * index for index in range(math.ceil(most / step) + 1)]


def draw(path, title, across, up, lines):
    """Writes a chart. A depth of 0 stands half an octave left of 1."""
    lines = [line for line in lines if line.points]
    places = sorted({x for line in lines for x, _ in line.points})
    where = {x: math.log2(x) if x > 0 else -0.7 for x in places}
    least, most = min(where.values()), max(where.values())
    marks = ticks(max(y for line in lines for _, y in line.points))

    def at(x, y):
        along = (where[x] - least) / max(most - least, 1e-9)
        return LEFT + along * WIDTH, TOP + HEIGHT * (1 - y / marks[-1])

    out = [
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{LEFT + WIDTH + NAMES}" height="{TOP + HEIGHT + 52}" '
        'font-family="sans-serif" font-size="12" fill="#222">',
        '<rect width="100%" height="100%" fill="white"/>',
        f'<text x="10" y="22" font-weight="bold" font-size="14">{title}</text>',
        f'<text x="10" y="{TOP - 8}">{up}</text>',
        f'<text x="{LEFT + WIDTH / 2:.0f}" y="{TOP + HEIGHT + 40}" text-anchor="middle">{across}</text>',
    ]
    for mark in marks:
        _, y = at(places[0], mark)
        out.append(f'<path d="M{LEFT} {y:.1f}h{WIDTH}" stroke="#ddd"/>')
        out.append(f'<text x="{LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{mark:g}</text>')
    for x in places:
        out.append(f'<text x="{at(x, 0)[0]:.1f}" y="{TOP + HEIGHT + 18}" text-anchor="middle">{x:g}</text>')
    for line in lines:
        way = " ".join(f"{x:.1f},{y:.1f}" for x, y in (at(*point) for point in line.points))
        dash = ' stroke-dasharray="5 4"' if line.is_dashed else ""
        out.append(f'<polyline points="{way}" fill="none" stroke="{line.colour}" stroke-width="2"{dash}/>')
        if not line.is_dashed:
            dots = (at(*point) for point in line.points)
            out += [f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{line.colour}"/>' for x, y in dots]
    for index, line in enumerate(lines):
        x, y = LEFT + WIDTH + 16, TOP + 10 + 20 * index
        dash = ' stroke-dasharray="5 4"' if line.is_dashed else ""
        out.append(f'<path d="M{x} {y}h26" stroke="{line.colour}" stroke-width="2"{dash}/>')
        out.append(f'<text x="{x + 34}" y="{y + 4}">{line.name}</text>')
    Path(path).write_text("\n".join([*out, "</svg>\n"]))
