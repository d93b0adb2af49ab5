//! Writes an outcome as text: a Markdown page with its figures, or lines for a terminal.

use std::fmt::Write as _;

use super::deviations::{EXPLAINED_FROM, REASONS, reason_for};
use super::{AT_MOST, Basis, Cell, Figure, Outcome};

/// Cells of one experiment that share the same columns, in rows.
struct Table<'a> {
    experiment: &'a str,
    columns: Vec<&'a str>,
    rows: Vec<(&'a str, &'a str, Vec<&'a Cell>)>,
}

/// Arranges the cells in tables, in their order.
fn tables(cells: &[Cell]) -> Vec<Table<'_>> {
    let mut tables: Vec<Table<'_>> = Vec::new();
    for row in cells.chunk_by(|one, next| {
        (&one.experiment, &one.row, &one.unit) == (&next.experiment, &next.row, &next.unit)
    }) {
        let (experiment, name, unit) = (&row[0].experiment, &row[0].row, &row[0].unit);
        let columns: Vec<&str> = row.iter().map(|cell| cell.column.as_str()).collect();
        let fits =
            |table: &&mut Table<'_>| table.experiment == experiment && table.columns == columns;
        let row = (name.as_str(), unit.as_str(), row.iter().collect());
        match tables.iter_mut().find(fits) {
            Some(table) => table.rows.push(row),
            None => tables.push(Table { experiment, columns, rows: vec![row] }),
        }
    }
    tables
}

/// A number with three digits, or all digits before the point if those are more.
fn number(value: f64) -> String {
    let digits = if value.abs() < 10.0 { 2 } else { usize::from(value.abs() < 100.0) };
    format!("{value:.digits$}")
}

fn paper(cell: &Cell) -> Option<String> {
    let from = number(cell.paper?);
    Some(match cell.paper_to {
        Some(_) if is_open(cell) => format!(">{from}"),
        Some(to) if cell.paper == Some(AT_MOST) => format!("≤{}", number(to)),
        Some(to) => format!("{from}–{}", number(to)),
        None => from,
    })
}

/// What the rows of ranges (least and most) range over.
fn ranges_of(experiment: &str) -> &'static str {
    if experiment.starts_with("1999") { "draws" } else { "disks" }
}

/// The range over the disks whose mean our number is, or over the draws whose median it is.
fn spread(cell: &Cell) -> String {
    let spread = cell.spread.map(|(least, most)| format!("{}–{}", number(least), number(most)));
    spread.unwrap_or_default()
}

fn sign(basis: Basis) -> &'static str {
    match basis {
        Basis::Given => "=",
        Basis::Calibrated => "*",
        Basis::Predicted => "",
    }
}

/// The lines for a terminal: in each row, the paper's numbers above ours.
pub fn lines(cells: &[Cell]) -> Vec<String> {
    let mut lines = Vec::new();
    for table in tables(cells) {
        let mut head = format!("{:<48} {:>5} {:>5}", table.experiment, "", "unit");
        table.columns.iter().for_each(|column| {
            let _ = write!(head, " {column:>9}");
        });
        lines.extend((!lines.is_empty()).then(String::new));
        lines.push(head);
        for (name, unit, cells) in &table.rows {
            if cells.iter().any(|cell| cell.paper.is_some()) {
                let mut line = format!("{name:<48} {:>5} {unit:>5}", "paper");
                for cell in cells {
                    let _ = write!(line, " {:>9}", paper(cell).unwrap_or_default());
                }
                lines.push(line);
            }
            let mut line = format!("{name:<48} {:>5} {unit:>5}", "ours");
            for cell in cells {
                let _ = write!(line, " {:>9}", number(cell.ours) + sign(cell.basis));
            }
            lines.push(line);
            if cells.iter().any(|cell| cell.spread.is_some()) {
                let of = ranges_of(table.experiment);
                let mut line = format!("{name:<48} {of:>5} {unit:>5}");
                for cell in cells {
                    let _ = write!(line, " {:>9}", spread(cell));
                }
                lines.push(line);
            }
        }
    }
    lines
}

/// The share of predicted numbers that are near the paper's, for the page and for a terminal. Units are counted
/// separately, since deviations of times, of percentages in points, and of ratios are not comparable.
pub fn summary(cells: &[Cell]) -> Vec<String> {
    let units = [("s", "times"), ("x", "speed-ups"), ("%", "percentages")];
    let known = |unit: &str| units.iter().any(|(of, _)| *of == unit);
    let mut parts: Vec<String> = units
        .iter()
        .filter_map(|(unit, name)| of_unit(cells, name, |cell| cell.unit == *unit))
        .collect();
    parts.extend(of_unit(cells, "others", |cell| !known(&cell.unit)));
    if parts.is_empty() {
        return vec!["The paper gives no numbers for these.".into()];
    }
    vec![
        format!(
            "Within {EXPLAINED_FROM:.0} % of the paper's number (percentages: {EXPLAINED_FROM:.0} points): {}.",
            parts.join("; ")
        ),
        "The median deviation is in brackets. Only predicted figures count, and of these only those for which the paper gives one number, not a range.".into(),
    ]
}

/// The line of [`summary`] for the cells that `is_chosen` accepts; `None` if no predicted one has a number to compare with.
fn of_unit(cells: &[Cell], name: &str, is_chosen: impl Fn(&Cell) -> bool) -> Option<String> {
    let compared = cells.iter().filter(|cell| {
        cell.basis == Basis::Predicted && is_chosen(cell) && cell.paper_to.is_none()
    });
    let compared: Vec<&Cell> = compared.filter(|cell| cell.paper.is_some()).collect();
    let mut deviations: Vec<f64> =
        compared.iter().filter_map(|cell| cell.deviation()).map(f64::abs).collect();
    deviations.sort_by(f64::total_cmp);
    let median = deviations.get(deviations.len() / 2)?;
    let within = compared.iter().filter(|cell| !cell.is_off_by(EXPLAINED_FROM)).count();
    let unit = if compared.iter().all(|cell| cell.unit == "%") { "points" } else { "%" };
    Some(format!("{name} {within} of {} ({median:.1} {unit})", deviations.len()))
}

/// Whether the paper says "more than".
fn is_open(cell: &Cell) -> bool {
    cell.unit == "%" && cell.paper_to.is_some_and(|to| to >= 100.0)
}

/// The lines below the summary on a terminal, which explain the marks that occur.
pub fn legend(cells: &[Cell]) -> Vec<&'static str> {
    let spread = |of| {
        let is_of = |cell: &Cell| cell.spread.is_some() && ranges_of(&cell.experiment) == of;
        cells.iter().any(is_of)
    };
    let lines = [
        (
            true,
            "No mark: predicted. *: what the paper does not state was chosen so that this figure comes out near. =: the paper states it, and the model takes it as an input.",
        ),
        (cells.iter().any(is_open), ">: the paper says only that it is more than this."),
        (
            spread("disks"),
            "disks: ours is the mean over all disks that fit what is known; the row has the least and the most.",
        ),
        (
            spread("draws"),
            "draws: ours is the median of several seeds, or of several rotations of the disks; the row has the least and the most.",
        ),
    ];
    lines.into_iter().filter(|(is_there, _)| *is_there).map(|(_, line)| line).collect()
}

/// The page of the papers that `what` names on the command line. Its figures are in `folder`.
pub fn markdown(outcome: &Outcome, what: &str, folder: &str) -> String {
    let mut page = HEAD.replace("WHAT", what);
    let _ = writeln!(page, "{}\n", summary(&outcome.cells).join("\n"));
    for (paper, title, chosen) in PAPERS {
        let tables = tables(&outcome.cells);
        let tables: Vec<_> =
            tables.iter().filter(|table| table.experiment.starts_with(paper)).collect();
        if tables.is_empty() {
            continue;
        }
        let _ = writeln!(page, "## {title}\n");
        let mut last = "";
        for table in tables {
            if table.experiment != last {
                let _ = writeln!(page, "### {}\n", table.experiment);
                last = table.experiment;
                for figure in outcome.figures.iter().filter(|figure| is_of(figure, last)) {
                    let (name, title) = (&figure.name, &figure.plot.title);
                    let _ = writeln!(page, "![{title}]({folder}/{name}.svg)\n");
                }
            }
            table_of(&mut page, table);
        }
        let _ = write!(page, "### What was chosen for {title}\n\n{chosen}");
    }
    reasons(&mut page, &outcome.cells);
    page
}

/// Whether a figure belongs to the experiment by its file name: `tip1995-figure-3` belongs to `1995 figure 3a`.
fn is_of(figure: &Figure, experiment: &str) -> bool {
    let paper = if experiment.starts_with("1999") { "collective" } else { "tip" };
    let name = format!("{paper}{}", experiment.replace(' ', "-"));
    figure.name == name || name.strip_suffix('a').is_some_and(|name| figure.name == name)
}

fn table_of(page: &mut String, table: &Table<'_>) {
    let _ = writeln!(page, "| | unit | {} |", table.columns.join(" | "));
    let _ = writeln!(page, "|---|---|{}", "---|".repeat(table.columns.len()));
    for (name, unit, row) in &table.rows {
        let cell = |cell: &&Cell| {
            let ours = number(cell.ours) + sign(cell.basis).replace('*', "\\*").as_str();
            let off = if reason_for(cell).is_some() { "**" } else { "" };
            match paper(cell) {
                Some(paper) => format!("{paper} / {off}{ours}{off}"),
                None => ours,
            }
        };
        let cells: Vec<String> = row.iter().map(cell).collect();
        let _ = writeln!(page, "| {name} | {unit} | {} |", cells.join(" | "));
        if row.iter().any(|cell| cell.spread.is_some()) {
            let spreads: Vec<String> = row.iter().map(|cell| spread(cell)).collect();
            let of = ranges_of(table.experiment);
            let _ =
                writeln!(page, "| …, least–most of the {of} | {unit} | {} |", spreads.join(" | "));
        }
    }
    page.push('\n');
}

/// `text` with one line for each sentence, indented as the continuation of a list item.
pub(super) fn sentence_lines(text: &str) -> String {
    text.replace(". ", ".\n  ")
}

fn reasons(page: &mut String, cells: &[Cell]) {
    let _ = writeln!(page, "## Why figures are off\n");
    let _ = writeln!(
        page,
        "This section has the reason for every figure in bold. The thresholds are {EXPLAINED_FROM:.0} % of the paper's number and, for percentages, \
         also {EXPLAINED_FROM:.0} points.\nThey are 10 % for throughputs of 1999's table 4, and one point for errors of its figure 9a.\n"
    );
    for reason in &REASONS {
        let of = |cell: &&Cell| reason_for(cell).is_some_and(|found| std::ptr::eq(found, reason));
        let found: Vec<String> = cells
            .iter()
            .filter(of)
            .map(|cell| {
                let unit = if cell.unit == "%" { " points" } else { " %" };
                let deviation = cell.deviation().unwrap_or(0.0);
                let share = cell.deviation_of_share();
                let share = share.map_or_else(String::new, |share| format!(", {share:+.0} %"));
                format!("{} ({deviation:+.0}{unit}{share})", cell.column)
            })
            .collect();
        if !found.is_empty() {
            let (experiment, row, found) = (reason.experiment, reason.row, found.join(", "));
            let why = sentence_lines(reason.why);
            let _ = writeln!(page, "* **{experiment}, {row}…**: {found}.\n  {why}");
        }
    }
    page.push('\n');
}

const HEAD: &str = "\
# How near the simulator comes to the papers' results

Written by `foretell sim reproduce WHAT --out docs/results`.
It runs the programs of the TIP and collective papers on models of their machines, under this project's own policies.
The policy is `tip1` unless a row names another.
All figures of ours are **simulated**, and every run gives the same ones.
[The papers' applications, live](applications.md) runs such programs on emulated disks.

How to read a cell:

* \"a / b\" is the paper's number and ours. A single number is ours, where the paper gives none.
* Without a mark, our figure is predicted.
* `=`: the paper states the value, and the model takes it as an input.
* `*`: calibrated. A parameter that the paper does not state was chosen so that this figure comes out near.
* **Bold**: further from the paper's number than a threshold. [Why figures are off](#why-figures-are-off) has the reason.

Parameters were chosen by times *without* hints on *one* disk where the paper gives any.
The exceptions are listed below each paper's tables.
The source of each experiment in `sim/src/reproduce` names its parameters.

Tables of 1994 and figure 1 c of 1995 are means over a grid of disks.
The grid keeps every disk that gives the paper's times without hints on one disk.
Single disks differ widely, so a row with the least and the most of them follows each such row.
`docs/internals/simulator.md` says what a wider grid would change.

";

/// For each paper: the year with which its experiments begin, its title, and the text below its tables.
const PAPERS: [(&str, &str, &str); 3] = [
    ("1994", "TIP 1994", OF_1994),
    ("1995", "TIP 1995", OF_1995),
    ("1999", "Collective 1999", OF_1999),
];

const OF_1994: &str = "\
Three choices rest on other figures than times without hints on one disk:

* **The time of an open** is the processor time that hints add in table 2, bboard and mail on two disks.
  This set's times with hints and its speed-ups on several disks are therefore marked.
  The other sets use the same value.
* **The drive's read-ahead is 16 KiB.** Times on one disk do not tell 8, 16, 24 and 32 KiB apart.
  Y-Z planes without hints on two to four disks do, so they are marked, and so are man pages without hints.
* **The form of the striper** is assumed: disks wait for the processor, and a program that has waited for a block runs first.
  Of several forms this one comes nearest to the times *with* hints.
  No number was fitted to those times, so they are not marked, but X-Y planes owe part of their match to it.

The speed-up of X-Y planes on two disks depends on how closely a disk must fit.
Over the disks within 3.5 % instead of 5 %, it is 20 % off (a row of its own).

Some predicted times are little but processor time that the paper states, such as slices with hints on four disks.

";

const OF_1995: &str = "\
Our copy of the paper has lost its plots, so processor times are chosen by the savings that the text gives.
Those savings are marked.
Rows with other processor times, or other bursts, show how much depends on it.

These assumptions were added because figures were off, most of them figures *with* hints.
Rows without an assumption show what it is worth:

| assumption | reason | rows without it |
|---|---|---|
| A prefetch waits for the file's indirect blocks, which are cold | else slices lose up to 99 % of their stall, and the paper has at most 95 % | figure 3 b, *addresses known* |
| The striper's SCAN goes one way, as BSD's does | else sorting saves 50 % of the searches on one disk, and the paper has 63 % | figure 1 b, *both ways* |
| A directory with more files than a cylinder group has inodes goes on in other groups | the same | figure 1 b, *one group* |
| The program and the directories of the searches are cold | section 3.1 has \"a system with a cold cache\"; else more than the paper's 95 % of the stall goes | figure 3 b, *… known* |
| `tip2` goes by fixed costs, with a `T_disk` of 15 ms | with measured costs, three disks save 14.5 % of Davidson, and the paper has more than 15 % | figure 10 a, *costs measured* |
| The join's index lies a tenth of the volume away from the relations | splitting the loop saves about 20 % of the time | figure 2 a, *index …* |
| A disclosed read takes 20 µs more of the processor | Davidson is slightly faster without hints (section 3.6); else `tip1` saves up to 3 % | none |

**Indirect blocks.** With them, X-Y planes with hints take two seconds, as the other planes do.
The three planes together then save less than in the paper, which has 75 % and a factor of 6.
The machine of 1994 is modelled without them: there they would make X-Y planes with hints on four disks take 2.8 s instead of 2.2 s.

**Searches.** Before its files, each search reads the path to `/usr/local/bin/agrep`, the program's inode and nine of its pages, one at a time.
Then it reads the root directory and the directory of the set.
The path, and names of 12 to 15 characters, are assumed; the pages are those that agrep 2.04 touches when gcc compiles it for this processor.
The processor time of a block was chosen by the paper's 84 % while the program was taken to be in memory; with no processor time at all, 82.4 % would be saved.
The paper lets a prefetch follow a demand request to a drive with fewer than five requests, and the model does not.
That would change the stall removed by at most 0.2 points for searches and 4 points for slices.

**The join.** The paper does not say which keys find nothing, whether a match crosses a block, or where the relations lie.
On one disk, splitting the loop saves about 900 requests.
Two choices give that: keys without a match beyond the others and one match in 25 across two blocks, or keys among the others and one match in six.
The first is used, since the paper names inner blocks as what pollutes the cache.
The distance of the index follows from the 20 % of the time that splitting saves; a volume that was just filled is not expected to look so.
The processor time follows from the 45 % that hints save on four disks. All figures are means of five draws of keys.

**Davidson.** On three disks, the disks and the processor are nearly equally fast, and the saving jumps by two points between levels of processor time.
Measured costs contain the wait in the drive's queue, so a longer horizon makes itself longer still.
With any fixed `T_disk` from 10 to 30 ms, more than 16 % is saved there.

**Figure 11** uses a simpler machine: each request takes 15 ms, any number run at once, a block takes 1 ms of work, and there is no read-ahead.

**The sum of three slices** has two numbers in the paper: \"up to a factor of 6\" (section 3.3) and \"up to 75 %\" saved (section 3.7).
On one array a factor of 6 would be 83 %, so they cannot both compare the same array with and without hints.
Here the 75 % is compared on the same array, as in figure 3.
The factor of 6 is read as the range of figure 1 c, from one disk without hints to the best array with them.

";

const OF_1999: &str = "\
The order of blocks within a cylinder, and how the drive's cache spends time, are chosen by the throughputs of collective calls.
Those are marked, and so is what follows from them alone; `docs/internals/collective.md` has the arithmetic.
That SSTF knows what the drive's cache holds is chosen by the crossovers of drawn owners, which are marked too.
Other crossovers are predicted.
Ours is the median of eight seeds, or of four for the largest files.
A row with the least and the most follows where they differ.

";

#[cfg(test)]
mod tests {
    use super::*;

    fn cell(row: &str, column: &str, paper: Option<f64>, ours: f64) -> Cell {
        Cell {
            experiment: "1994 table 3".into(),
            row: row.into(),
            column: column.into(),
            unit: "s".into(),
            paper,
            paper_to: None,
            ours,
            spread: None,
            basis: Basis::Predicted,
        }
    }

    #[test]
    fn rows_of_the_same_columns_are_one_table() {
        let cells = [
            cell("X-Y", "1 disk", Some(2.0), 2.1),
            cell("X-Y", "2 disks", None, 123.4),
            Cell { spread: Some((3.0, 5.5)), ..cell("Y-Z", "1 disk", Some(4.0), 4.0) },
            cell("Y-Z", "2 disks", Some(4.0), 4.0),
            cell("X-Y, most", "most", Some(1.0), 3.0),
        ];
        let lines = lines(&cells);
        assert_eq!(lines.iter().filter(|line| line.contains("unit")).count(), 2, "{lines:#?}");
        assert!(lines[2].ends_with("2.10       123"), "{:?}", lines[2]);
        assert_eq!(legend(&cells).len(), 2, "no draws, and none is only more");
        let page = markdown(&Outcome { cells: cells.to_vec(), figures: Vec::new() }, "all", "x");
        assert!(page.contains("| X-Y | s | 2.00 / 2.10 | 123 |"), "{page}");
        assert!(page.contains("| …, least–most of the disks | s | 3.00–5.50 |  |"), "{page}");
        assert!(page.contains("1.00 / **3.00**"), "{page}");
        assert!(page.contains("most (+200 %)"), "{page}");
        assert!(page.contains("times 3 of 4 (5.0 %)."), "{page}");
        let [table, notes] =
            ["| X-Y | s |", "### What was chosen for TIP 1994"].map(|part| page.find(part));
        assert!(table < notes && !page.contains("Davidson"), "{page}");
        assert!(page.contains("`foretell sim reproduce all --out docs/results`"), "{page}");
    }
}
