//! The table of a sweep. Values that are the same in all rows stand once, above the table.

/// Longest line, in characters, as far as the columns allow.
const LINE_CHARACTERS_MAX: usize = 100;
const BETWEEN: &str = "  ";

/// One column, with a cell for each row.
pub(super) struct Column {
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    pub(super) cells: Vec<String>,
}

/// What a column shows.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// An option that is a word.
    Word,
    /// An option that is a number.
    Size,
    /// A result.
    Figure,
    /// A result that always stays in the table.
    Kept,
}

impl Column {
    /// Whether the column's single value stands above the table. With one row, only options do.
    fn is_above(&self) -> bool {
        let is_same = self.cells.iter().all(|cell| *cell == self.cells[0]);
        let is_asked = matches!(self.kind, Kind::Word | Kind::Size);
        is_same && (is_asked || self.kind == Kind::Figure && self.cells.len() > 1)
    }

    fn width(&self) -> usize {
        let cells = self.cells.iter().map(|cell| cell.chars().count());
        cells.chain([self.name.len()]).max().unwrap_or(0)
    }

    fn padded(&self, text: &str) -> String {
        let width = self.width();
        match self.kind {
            Kind::Word => format!("{text:<width$}"),
            _ => format!("{text:>width$}"),
        }
    }
}

/// The lines of the table. All columns have the same number of cells, at least one.
pub(super) fn lines(columns: &[Column]) -> Vec<String> {
    let (above, columns): (Vec<&Column>, Vec<&Column>) =
        columns.iter().partition(|column| column.is_above());
    let mut lines: Vec<String> = Vec::new();
    for column in above {
        let entry = format!("{}: {}", column.name, column.cells[0]);
        let length = entry.chars().count() + BETWEEN.len();
        match lines.last_mut() {
            Some(line) if line.chars().count() + length <= LINE_CHARACTERS_MAX => {
                line.push_str(BETWEEN);
                line.push_str(&entry);
            }
            _ => lines.push(entry),
        }
    }
    let width: usize = columns.iter().map(|column| column.width() + BETWEEN.len()).sum();
    let has_room = width <= LINE_CHARACTERS_MAX + BETWEEN.len();
    let between = if has_room { BETWEEN } else { " " };
    let line = |text: &dyn Fn(&Column) -> String| {
        let cells = columns.iter().map(|column| column.padded(&text(column)));
        cells.collect::<Vec<_>>().join(between).trim_end().to_owned()
    };
    lines.push(line(&|column| column.name.to_owned()));
    let rows = columns.iter().map(|column| column.cells.len()).max().unwrap_or(0);
    lines.extend((0..rows).map(|row| line(&|column| column.cells[row].clone())));
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    fn column(name: &'static str, kind: Kind, cells: &[&str]) -> Column {
        Column { name, kind, cells: cells.iter().map(|&cell| cell.to_owned()).collect() }
    }

    #[test]
    fn what_is_the_same_stands_above() {
        let table = [
            column("policy", Kind::Word, &["lru", "lru"]),
            column("hints", Kind::Word, &["none", "all"]),
            column("elapsed s", Kind::Kept, &["1.5", "1.5"]),
            column("reads", Kind::Figure, &["7", "7"]),
            column("saved", Kind::Kept, &["0%", ""]),
        ];
        let expected = [
            "policy: lru  reads: 7",
            "hints  elapsed s  saved",
            "none         1.5     0%",
            "all          1.5",
        ];
        assert_eq!(lines(&table), expected);
        let one = [
            column("policy", Kind::Word, &["lru"]),
            column("elapsed s", Kind::Kept, &["1.5"]),
            column("reads", Kind::Figure, &["7"]),
        ];
        assert_eq!(lines(&one), ["policy: lru", "elapsed s  reads", "      1.5      7"]);
    }

    #[test]
    fn lines_are_wrapped_and_columns_move_together() {
        let long = "x".repeat(60);
        let wide = [
            column("disk", Kind::Word, &[&long, &long]),
            column("file", Kind::Word, &[&long, &long]),
            column("disks", Kind::Size, &["1", "2"]),
            column("hits", Kind::Figure, &[&long, "1"]),
            column("late", Kind::Figure, &["1", &long[..35]]),
        ];
        let lines = lines(&wide);
        assert_eq!(lines.len(), 5);
        assert_eq!(lines[0], format!("disk: {long}"));
        assert_eq!(lines[1], format!("file: {long}"));
        assert_eq!(lines[3], format!("    1 {long} {:>35}", 1));
    }
}
