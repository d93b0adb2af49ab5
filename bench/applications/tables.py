"""Tables of what was measured, in Markdown: rows are arms, columns are numbers of disks or other settings."""

from applications.driver import Column, Measured, Outcome, median


def shown(value: float) -> str:
    """Three significant digits."""
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 10 else f"{value:.2f}"


def row(cells: list[str]) -> str:
    """A row of a table."""
    return "| " + " | ".join(cells) + " |"


class Table:
    """The table of an application."""

    def __init__(self, measured: Measured) -> None:
        self.measured, self.application = measured, measured.application

    def value(self, outcome: Outcome, part: str) -> float:
        """A part's seconds, or the figure of the whole run."""
        return outcome.parts[part] if part else self.application.figure_of(outcome)

    def values(self, column: Column, arm: str, part: str) -> list[float]:
        """Of all rounds."""
        return [self.value(outcome, part) for outcome in self.measured.of(column, arm)]

    def cell(self, column: Column, arm: str, part: str) -> str:
        """How an arm compares to the reference, after the paper's figure, if it has one."""
        wanted = self.application.paper_at(column).get(f"{part}, {arm}" if part else arm)
        plain, own = (median(self.values(column, one, part)) for one in (self.application.arms[0], arm))
        if self.application.compared == "saved":
            found = f"{100 * (1 - own / plain):.1f}"
        elif self.application.compared == "speed-up":
            found = f"{plain / own:.2f}"
        else:
            found = shown(own)
        return f"{wanted} / {found}" if wanted else found

    def rows_of(self, part: str) -> list[list[str]]:
        """Rows of a part, or of the whole."""
        measured, application, prefix = self.measured, self.application, f"{part}, " if part else ""
        rows = []
        for arm in application.arms:
            all_values = [self.values(column, arm, part) for column in measured.columns]
            if application.compared:
                cells = [shown(median(values)) for values in all_values]
            else:
                cells = [self.cell(column, arm, part) for column in measured.columns]
            rows.append([prefix + arm, application.unit, *cells])
            if not part and len(all_values[0]) > 1:
                cells = [f"{shown(min(values))}–{shown(max(values))}" for values in all_values]
                rows.append(["…, least–most", application.unit, *cells])
        for arm in application.arms[1:] if application.compared else []:
            name, unit = ("time saved", "%") if application.compared == "saved" else ("speed-up", "x")
            rows.append([f"{prefix}{arm}, {name}", unit, *(self.cell(column, arm, part) for column in measured.columns)])
        return rows

    def requests(self) -> list[list[str]]:
        """Rows with the requests that the array has served."""
        rows = []
        for arm in self.application.arms:
            counts = [[one.requests for one in self.measured.of(column, arm)] for column in self.measured.columns]
            known = [[count for count in of_column if count is not None] for of_column in counts]
            if all(known):
                rows.append([f"{arm}, requests", "", *(f"{median(of_column):.0f}" for of_column in known)])
        return rows

    def text(self) -> str:
        """The whole table, with its title."""
        some = self.measured.of(self.measured.columns[0], self.application.arms[0])[0]
        rows = [one for part in [*some.parts, ""] for one in self.rows_of(part)] + self.requests()
        labels = ["", "unit", *(column.label for column in self.measured.columns)]
        lines = [row(labels), "|---" * len(labels) + "|", *map(row, rows)]
        scale = f"Time scale {self.application.tools.time_scale:g}."
        return f"### {self.application.title}\n\n{scale}\n\n" + "\n".join(lines) + "\n"
