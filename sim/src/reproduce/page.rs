//! An outcome as text: a page in Markdown with its figures, and lines for a terminal.

use std::fmt::Write as _;

use super::deviations::{EXPLAINED_FROM, REASONS, reason_for};
use super::{AT_MOST, Basis, Cell, Figure, Outcome};

/// Cells of one experiment, with the same columns, as rows.
struct Table<'a> {
    experiment: &'a str,
    columns: Vec<&'a str>,
    rows: Vec<(&'a str, &'a str, Vec<&'a Cell>)>,
}

/// The tables that the cells make, in their order.
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

/// A number with three digits, or as many as it has before the point.
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

/// What there are several of.
fn ranges_of(experiment: &str) -> &'static str {
    if experiment.starts_with("1999") { "draws" } else { "disks" }
}

/// The least and the most of the disks that ours is the mean of, or of the draws that it is the median of.
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

/// What a terminal shows: each row with the paper's numbers and ours below one another.
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

/// The lines that follow both: by unit, since what is off by so many per cent of a time is not like what is off by so
/// many points, or like a ratio of two cells that are there too.
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
            "Within {EXPLAINED_FROM:.0} % of the paper's number (percentages: {EXPLAINED_FROM:.0} points), of the figures that are predicted: {}.",
            parts.join("; ")
        ),
        "In brackets: how far off the median is. Ranges are not counted; of a mean over disks that fit, the mean is."
            .into(),
    ]
}

/// Of the cells that are chosen, if any are predicted and compared with a number. Ranges are left out: whoever gives one of
/// twenty points is hardly missed.
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

/// What a terminal shows below the summary: the marks that there are.
pub fn legend(cells: &[Cell]) -> Vec<&'static str> {
    let spread = |of| {
        let is_of = |cell: &Cell| cell.spread.is_some() && ranges_of(&cell.experiment) == of;
        cells.iter().any(is_of)
    };
    let lines = [
        (
            true,
            "No mark: predicted. *: what the paper does not state was chosen so that it comes out near. =: stated, and put in.",
        ),
        (cells.iter().any(is_open), ">: the paper says only that it is more."),
        (
            spread("disks"),
            "disks: ours is a mean over disks that fit what is known; the least and the most of them.",
        ),
        (
            spread("draws"),
            "draws: ours is the median of several seeds, or of turns of the disks; the least and the most of them.",
        ),
    ];
    lines.into_iter().filter(|(is_there, _)| *is_there).map(|(_, line)| line).collect()
}

/// The page of `what` was reproduced. `folder` is where its figures are.
pub fn markdown(outcome: &Outcome, what: &str, folder: &str) -> String {
    let mut page = HEAD.replace("WHAT", what);
    let _ = writeln!(page, "{}\n", summary(&outcome.cells).join(" "));
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

/// Whether a figure's file is named after the experiment: `tip1995-figure-3` is of `1995 figure 3a`.
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

fn reasons(page: &mut String, cells: &[Cell]) {
    let _ = writeln!(page, "## Why figures are off\n");
    let _ = writeln!(
        page,
        "Every figure more than {EXPLAINED_FROM:.0} % from the paper's, of percentages also as many points, throughputs of 1999's table 4 from 10 % on, and errors of its figure 9a from a point on, in bold \
         above:\n"
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
            let _ = writeln!(page, "* **{experiment}, {row}…**: {found}. {}", reason.why);
        }
    }
    page.push('\n');
}

const HEAD: &str = "\
# The papers' results again

Written by `foretell sim reproduce WHAT --out docs/results`: the programs of the TIP papers on the simulator, under this
project's own policies: `tip1` unless a row says another. All figures of ours are **simulated**, and the same every time.
A cell is \"the paper's / ours\", or ours alone where the paper gives no number.

* without a mark: predicted;
* `=`: the paper states it, and it was put in;
* `*`: something that the paper does not state was chosen so that it comes out near. What that was is said at the top of
  the experiment's source in `sim/src/reproduce`, and was chosen by times *without* hints on *one* disk where the paper
  gives any, but for what is said below a paper's tables.

Tables of 1994 and figure 1 c of 1995 are means over all disks *of a grid* that fit the paper's times without hints on
one. The limits of the grids hold some of those that fit, so that a wider one has more: docs/internals/simulator.md says what it
changes. Single disks, each with places of files and a plane of its own, are far apart: a row of least and most, which is of
what was run, follows each such row of times.

";

/// Of each paper, by the year that its experiments begin with: its title, and what is said below its tables.
const PAPERS: [(&str, &str, &str); 3] = [
    ("1994", "TIP 1994", OF_1994),
    ("1995", "TIP 1995", OF_1995),
    ("1999", "Collective 1999", OF_1999),
];

const OF_1994: &str = "\
Three things were chosen by other times. The time of an open is the difference that hints make to the
processor in table 2, bboard and mail on two disks, so that this set's times with hints on several disks are marked, and its speed-ups
there; those of the other sets rest on it too. The drive's read-ahead (16 KiB): times on one disk do not tell 8, 16, 24
and 32 apart, and Y-Z planes without hints on two to four disks decided; so these, and man pages without hints, are marked on
all arrays. And the form of the striper: that disks wait for the processor, and that whoever has waited for a block goes
first, are both assumed; other forms were compared by times *with* hints, and the one that is nearest was kept. Those times
are not marked, as no number was fitted to them, but that X-Y planes come so near is owed to it in part.

Of the speed-ups of 1994 that of X-Y planes on two disks depends on how well a disk must fit: over the disks that are within
3.5 % instead of 5, it is 20 % off (its own row below).

Some predicted times are little but processor time that the paper states, such as slices with hints on four disks.

";

const OF_1995: &str = "\
The paper has lost its plots in our copy: levels of processor time are chosen by what the text says, and so is the first reduction
that rests on them. Those of Davidson, the join and Sphinx decide what hints save there: rows of other levels, or of other
bursts, follow, and say how far the figures can be relied on.

Six forms were looked for by times *with* hints and assumed, as that of the striper of 1994. One is that prefetches wait for a file's blocks of addresses, in cold caches: assumed, since
slices lost up to 99 % of their stall on many disks where the paper has at most 95. With it X-Y planes with hints come to two
seconds like the others; of the three together less is saved than in the paper (75 % and a factor of 6). The machine of 1994 is left without,
for X-Y planes with hints would take 2.8 s there on four disks instead of 2.2. Figure 3 b has rows without. Two are that the striper's SCAN goes one way, as BSD's does, and that a directory of more files than a
group of cylinders has inodes goes on in others. These two were looked for because sorting saved 50 % of the searches on one disk where the
paper has 63 %; figure 1 b has rows without either. What is left of the difference is not explained. The fourth is that the program
and the directories of the searches are cold, the fifth that `tip2` goes by costs that are fixed, and the sixth that the join's index
is far away; they are said below.

Davidson without hints should be slightly better than with them, since read-ahead \"incurs a little less overhead\" (section
3.6). What a read costs more that was disclosed is chosen by that, within half a per cent: 20 us of the processor. Without it `tip1` would save up
to 3 % of Davidson on three disks and more, because read-ahead begins anew with each pass, and hints go on from one to the
next. On three disks its disks and its processor are nearly as fast as each other, and what is saved there jumps by two
per cent from one level of processor time to the next.

Searches begin on \"a system with a cold cache\" (section 3.1): each reads the way to `/usr/local/bin/agrep` (assumed; the root and three
directories of a file system beside that of the sets, on the same disks here), the program's inode and nine of its pages, those that a search by agrep 2.04 touches if gcc compiles it
for this processor, one at a time (a course on OSF/1's successor says so). Libraries are taken to be in memory. Then come the root's inode and
block and those of the set's directory, of which `man3` has five blocks (names of 12 to 15 characters are assumed). All of this waits, with hints and
without, and was looked for because more stall went than the paper's 95 %. It rests on what is assumed: if the way to the program is in memory, 95.5 to 96.3 % go on
six disks and more; if the program is, too, 97 % (a cold cache may have been that of the file system with the sets only); and if the set's directory
is, since whoever made the list of arguments may have read it, 97.5 to 98.1 (with 110 us of work a block). They have rows of their own. Of the time 80 to 82 % is saved from four disks on, where the paper has up to 84: the processor's time
of a block was chosen by that while programs were taken to be in memory, and with none at all it would be 82.4. The other programs are left without, since what they are made of is
not known, and they open a few files only. That a prefetch may follow a demand to a drive that has fewer than five requests, as the paper has
it and ours does not, would take 0.2 points of the searches' at most, on four disks, and of the slices' up to 4, on four and eight, most likely since the drive
then passes over addresses that are waited for.

Of the join the paper does not say which keys find nothing, whether a match is longer than a block, and where the relations
lie. Two figures depend on them, both without hints: splitting the loop saves about 900 requests and about 20 % of the time. They
leave more than one choice. By the requests, on one disk, keys that find nothing are beyond those that do, and one match in 25 goes on in
the next block; with these keys between the others, and one match in six, they are as many. The former was preferred, since the paper
names inner blocks as what pollutes the cache, and these do most of it then without long matches, too. By the time, the index lies a
tenth of the volume away from the relations; requests do not depend on that. It was looked for because the paper's figures suggest that what
splitting saves takes longer than what hints hide: 900 requests are a fifth of the time, and 45 % of the other 80 are as long as
1,620 of them, where 4,000 matches anywhere in 3,907 blocks are some 2,800 misses of 1,536 buffers. If the index is far away, a request
for it amid those for the inner relation takes the arm there and back. That it is, is not to be expected of a file system that was just made and
filled with the run's data (section 3.1); but something must make these requests longer. That the distance grows
with the volume is chosen by the 20 %, too, taken to be of all arrays. Rows go without each of these. The processor's time is chosen by the 45 %
on four disks; the 55 % in all follow from both. All are means of five draws of keys.

In figure 10 `tip2` knows its costs: they are fixed, with a `T_disk` of 15 ms. The paper measures hit rates, \"the only missing piece\"
(section 5.2), and puts the average time of its disks into equations 6 and 9. With costs measured as by `foretell` 14.5 % of
Davidson would be saved on three disks instead of more than 15 (a row of its own, which is why this was looked for): times of requests have their wait in the drive's queue in them,
so that a farther horizon makes itself longer, and with three disks that are just as fast as the processor it goes between 20 and 327
blocks. With a fixed one of 10, 20, 25 or 30 ms more than 16 % would be saved there, too. It also makes of figure 10 b what the paper
says of it: each buffer more saves as much as the last.

Figure 11 is not of the machine of figures 2 and 10, but of the simplest on which what it shows can be seen: a
device that takes 15 ms for any request and any number of them at once, 1 ms of work a block, and no read-ahead.

There are two numbers for the sum of three slices: \"up to a factor of 6\" (section 3.3) and \"up to 75 %\" saved (section
3.7). They cannot both be of one array, with hints and without: there a factor of 6 is 83 % saved. It would also need, with
about 2 s for each plane with hints and 15 s for X-Y without, 21 s for the other two planes without hints, which read-ahead
serves, though OSF/1 \"is only able to take advantage of two disks in the array\". The 75 % belong to figure 3, which shows
shares on the same array. The 6 is taken to be the whole range of figure 1 c, from one disk without hints to the best array
with them; that is our reading, the paper does not say it. Most of its terms are calibrated.

";

const OF_1999: &str = "\
The order of blocks in one cylinder and what the drive's cache has to do with time are chosen by its
collective calls' throughputs, which are marked, as is what follows from them alone; collective.md says how. That SSTF knows what the drive's
cache holds is chosen by the crossovers of drawn owners, which are marked too. Other crossovers are predicted. Ours is the median of eight seeds, of four for the largest files; a row of least and most follows where they differ.

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
