//! The daemon's status for people: a few lines, and a table of the runs that fits the terminal.
//!
//! The table leaves out columns, the least important first, until the command has some room; what is left belongs to the
//! command. Without a terminal it has all columns, and commands are not cut.

use std::io::{self, IsTerminal};

use foretell_family::HostStatus;

use super::status::{RunStatus, Status, Totals, waited_s};
use crate::failure::without_controls;
use crate::size;

/// Columns that a command has before others are shown: `grep -rn needle` fits.
const COMMAND_MIN: usize = 16;

/// A column: its head, its least width, and its turn when columns are left out; one without a turn stays.
type Column = (&'static str, usize, Option<u32>);

/// All columns but the command, which is the last. AHEAD is the sum of HELD and the three behind it.
const COLUMNS: [Column; 9] = [
    ("RUN", 3, Some(0)),
    ("PID", 7, None),
    ("TIME", 6, Some(6)),
    ("WAITED", 6, None),
    ("HELD", 8, Some(5)),
    ("AHEAD", 8, Some(1)),
    ("IN TIME", 8, Some(4)),
    ("LATE", 8, Some(3)),
    ("UNREAD", 8, Some(2)),
];

/// Rows and columns of the terminal at standard output; `None` if it is no terminal, or does not say.
pub(super) fn terminal() -> Option<(usize, usize)> {
    if !io::stdout().is_terminal() {
        return None;
    }
    let size = rustix::termios::tcgetwinsize(io::stdout()).ok()?;
    let (rows, columns) = (usize::from(size.ws_row), usize::from(size.ws_col));
    (rows > 0 && columns > 0).then_some((rows, columns))
}

/// The status in lines of at most `columns`. `before`: an earlier status and the seconds since, for rates.
pub(super) fn lines(
    status: &Status,
    before: Option<(&Status, f64)>,
    columns: Option<usize>,
) -> Vec<String> {
    let head = head(status);
    let mut lines: Vec<String> = head.iter().flat_map(|line| wrapped(line, columns)).collect();
    if !status.runs.is_empty() {
        lines.push(String::new());
        lines.extend(table(status, before, columns));
    }
    lines
}

fn head(status: &Status) -> Vec<String> {
    let (held, budget) = (size::display(status.held_bytes), size::display(status.budget_bytes));
    let mut lines = vec![format!(
        "foretell {}, process {}, for {}: {held} of {budget} in use",
        status.version,
        status.pid,
        time(status.uptime_s),
    )];
    if status.budget_bytes < status.full_budget_bytes {
        let full = size::display(status.full_budget_bytes);
        lines.push(format!("memory is short: without that, the budget is {full}"));
    }
    if status.is_draining {
        lines.push("it is about to end: runs that begin now have managers of their own".into());
    }
    let Totals { runs, prefetched_bytes, useful_bytes, late_bytes, wasted_bytes, stall_s, .. } =
        status.ended;
    lines.push(match runs {
        0 => "no run has ended yet".into(),
        runs => format!(
            "{} ended: {} prefetched, {} in time, {} late, {} not read; {stall_s:.1} s of waiting",
            if runs == 1 { "1 run has".into() } else { format!("{runs} runs have") },
            size::display(prefetched_bytes),
            size::display(useful_bytes),
            size::display(late_bytes),
            size::display(wasted_bytes),
        ),
    });
    match status.refused_runs {
        0 => {}
        1 => lines.push("1 run was refused, and had a manager of its own; the log says why".into()),
        runs => lines.push(format!(
            "{runs} runs were refused, and had managers of their own; the log says why"
        )),
    }
    lines.extend(status.cache.as_ref().map(cache));
    lines.extend(status.cache.as_ref().and_then(fleet));
    if let Some(cache) = status.cache.as_ref().filter(|cache| cache.limit_bytes < cache.size_bytes)
    {
        let limit = size::display(cache.limit_bytes);
        lines.push(format!("memory is short: until it is not, the cache uses {limit} at most"));
    }
    match status.cache.as_ref().map_or(0, |cache| cache.refused) {
        0 => {}
        1 => lines.push("1 store was refused, and has another cache; the log says why".into()),
        stores => lines
            .push(format!("{stores} stores were refused, and have other caches; the log says why")),
    }
    lines.push(match status.runs.len() {
        0 => "no run is under way".into(),
        1 => "1 run is under way:".into(),
        runs => format!("{runs} runs are under way:"),
    });
    lines
}

fn cache(cache: &HostStatus) -> String {
    let counts = &cache.counts;
    let asked =
        counts.hit_blocks + counts.joined_blocks + counts.demanded_blocks + counts.passed_by_blocks;
    let hits = counts.hit_blocks as f64 / asked.max(1) as f64 * 100.0;
    format!(
        "cache: {} of {} filled; {hits:.0} % of {asked} blocks were hits; {} fetched; {} of {}",
        size::display(cache.filled_bytes),
        size::display(cache.size_bytes),
        size::display(counts.fetched_bytes),
        counted(cache.clients, "client"),
        counted(cache.stores, "store"),
    )
}

fn fleet(cache: &HostStatus) -> Option<String> {
    let fleet = cache.fleet?;
    let bytes = |blocks: u64| size::display(blocks * cache.block_bytes);
    let (hits, missed) = (bytes(fleet.hit_blocks), bytes(fleet.missed_blocks));
    let refused = match fleet.refused_values {
        0 => String::new(),
        values => format!("; {values} values failed the check"),
    };
    Some(format!("shared tier: {hits} came from it, and {missed} from the stores{refused}"))
}

fn counted(count: usize, what: &str) -> String {
    format!("{count} {what}{}", if count == 1 { "" } else { "s" })
}

/// The line, broken between words, but not behind a number: that belongs to its unit. Further lines are indented.
fn wrapped(line: &str, columns: Option<usize>) -> Vec<String> {
    let columns = columns.unwrap_or(usize::MAX);
    let is_number = |word: &str| word.bytes().all(|byte| byte.is_ascii_digit() || byte == b'.');
    let mut words: Vec<String> = Vec::new();
    for word in line.split(' ') {
        match words.last_mut().filter(|last| is_number(last)) {
            Some(last) => *last += &format!(" {word}"),
            None => words.push(word.to_owned()),
        }
    }
    let mut lines: Vec<String> = Vec::new();
    for word in words {
        match lines.last_mut() {
            Some(last) if last.chars().count() + 1 + word.chars().count() <= columns => {
                last.push(' ');
                last.push_str(&word);
            }
            Some(_) => lines.push(format!("  {word}")),
            None => lines.push(word),
        }
    }
    lines.iter().map(|line| cut(line, columns)).collect()
}

fn table(status: &Status, before: Option<(&Status, f64)>, columns: Option<usize>) -> Vec<String> {
    let runs = status.runs.iter();
    let rows = runs.map(|run| (cells(run, before), without_controls(&run.command)));
    let rows: Vec<([String; COLUMNS.len()], String)> = rows.collect();
    let width = |at: usize| {
        let widest = rows.iter().map(|(cells, _)| cells[at].chars().count()).max().unwrap_or(0);
        widest.max(COLUMNS[at].1)
    };
    let widths: Vec<usize> = (0..COLUMNS.len()).map(width).collect();
    let longest = rows.iter().map(|(_, command)| command.chars().count()).max().unwrap_or(0);
    let command_min = longest.max("COMMAND".len()).min(COMMAND_MIN);
    let room = columns.unwrap_or(usize::MAX);
    let mut shown: Vec<usize> = (0..COLUMNS.len()).collect();
    // A space behind each column, and two before the command.
    let used = |shown: &[usize]| shown.iter().map(|&at| widths[at] + 1).sum::<usize>() + 1;
    while used(&shown) + command_min > room {
        let turn = |(place, &at): (usize, &usize)| Some((COLUMNS[at].2?, place));
        let Some((_, place)) = shown.iter().enumerate().filter_map(turn).min() else { break };
        shown.remove(place);
    }
    let row = |cell: &dyn Fn(usize) -> String, command: &str| {
        let cells = shown.iter().map(|&at| format!("{:>1$} ", cell(at), widths[at]));
        let line = cells.collect::<String>() + " ";
        let left = room.saturating_sub(line.len());
        cut(&(line + &cut(command, left)), room)
    };
    let head = row(&|at| COLUMNS[at].0.to_owned(), "COMMAND");
    let rows = rows.iter().map(|(cells, command)| row(&|at| cells[at].clone(), command));
    std::iter::once(head).chain(rows).collect()
}

fn cells(run: &RunStatus, before: Option<(&Status, f64)>) -> [String; COLUMNS.len()] {
    let blocks = &run.figures.blocks;
    let bytes = |count: u64| size::display(count * blocks.block_bytes);
    let waited = waited_s(&run.figures.programs);
    let share = before.and_then(|(status, seconds)| {
        let was = status.runs.iter().find(|was| was.run == run.run)?;
        Some((waited - waited_s(&was.figures.programs)) / seconds.max(1e-3))
    });
    [
        run.run.to_string(),
        run.pid.to_string(),
        time(run.seconds),
        share.map_or_else(|| format!("{waited:.1} s"), |share| format!("{:.0} %", share * 100.0)),
        size::display(run.figures.held_bytes),
        bytes(blocks.prefetched),
        bytes(blocks.useful),
        bytes(blocks.late),
        bytes(blocks.wasted),
    ]
}

/// At most so many characters of a line; the last one says that there are more.
pub(super) fn cut(line: &str, columns: usize) -> String {
    if line.chars().count() <= columns {
        return line.to_owned();
    }
    let kept: String = line.chars().take(columns.saturating_sub(1)).collect();
    if columns == 0 { kept } else { kept + "…" }
}

/// `12 s`, `3 min`, `5 h`, `2 d`.
fn time(seconds: f64) -> String {
    match seconds {
        s if s < 100.0 => format!("{s:.0} s"),
        s if s < 5940.0 => format!("{:.0} min", s / 60.0),
        s if s < 360_000.0 => format!("{:.0} h", s / 3600.0),
        s => format!("{:.0} d", s / 86_400.0),
    }
}

#[cfg(test)]
mod tests {
    use foretell_cache::Stats;
    use foretell_cache::tier::fleet::FleetStats;
    use foretell_manager::Figures;

    use super::*;

    fn status(command: &str) -> Status {
        let mut figures = Figures::default();
        figures.blocks.block_bytes = 8192;
        figures.blocks.useful = 128;
        figures.programs.read_stall_s = Some(2.0);
        let command = command.to_owned();
        let run = RunStatus { run: 3, pid: 77, command, seconds: 130.0, figures: figures.clone() };
        let mut ended = Totals::default();
        ended.add(&figures.blocks, &figures.programs);
        Status {
            version: "1".into(),
            pid: 5,
            uptime_s: 7200.0,
            budget_bytes: 128 << 20,
            full_budget_bytes: 256 << 20,
            held_bytes: 1 << 20,
            pressures: 1,
            is_draining: true,
            refused_runs: 2,
            ended,
            cache: None,
            runs: vec![run],
        }
    }

    fn text(status: &Status) -> String {
        lines(status, None, None).join("\n")
    }

    #[test]
    fn a_status_is_a_table_without_control_characters() {
        let mut status = status("sh -c \x1b[2Jx\ny");
        let said = text(&status);
        for part in [
            "1 MiB of 128 MiB",
            "memory is short",
            "it is about to end",
            "1 run has ended: ",
            "2 runs were refused",
            "1 run is under way:",
            " 2 min",
        ] {
            assert!(said.contains(part), "{part}: {said}");
        }
        assert!(!said.contains('\x1b') && said.lines().count() == 9, "{said}");
        assert!(!said.contains("cache:"), "{said}");
        status.cache = Some(HostStatus {
            size_bytes: 8 << 30,
            block_bytes: 16384,
            limit_bytes: 4 << 30,
            filled_bytes: 1 << 30,
            clients: 1,
            stores: 2,
            refused: 3,
            counts: Stats { hit_blocks: 3, demanded_blocks: 1, ..Stats::default() },
            fleet: Some(FleetStats { hit_blocks: 3, missed_blocks: 1, ..FleetStats::default() }),
        });
        let with_cache = text(&status);
        let of_tier = "shared tier: 48 KiB came from it, and 16 KiB from the stores";
        assert!(with_cache.contains(of_tier), "{with_cache}");
        let line = "cache: 1 GiB of 8 GiB filled; 75 % of 4 blocks were hits; 0 B fetched; 1 client of 2 stores";
        assert!(with_cache.contains(line), "{with_cache}");
        assert!(with_cache.contains("\n3 stores were refused, "), "{with_cache}");
        assert!(with_cache.contains(", the cache uses 4 GiB at most"), "{with_cache}");
        status.cache = None;
        let mut before = status.clone();
        before.runs[0].figures.programs.read_stall_s = Some(1.5);
        let rates = lines(&status, Some((&before, 1.0)), None).join("\n");
        assert!(rates.contains(" 50 %"), "{rates}");
        let json = serde_json::to_string(&status).expect("JSON");
        let again: Status = serde_json::from_str(&json).expect("a status");
        assert_eq!(again.ended, status.ended);
        (status.ended, status.refused_runs, status.runs) = (Totals::default(), 0, Vec::new());
        let said = text(&status);
        assert!(said.contains("no run has ended yet\nno run is under way"), "{said}");
        assert!(!said.contains("refused"), "{said}");
    }

    #[test]
    fn a_narrow_terminal_has_fewer_columns_and_a_wide_one_more_of_the_command() {
        let status = status(&format!("grep -rn needle {}", "long/".repeat(50)));
        for columns in 1..300 {
            for line in lines(&status, None, Some(columns)) {
                assert!(line.chars().count() <= columns, "{columns}: {line:?}");
            }
        }
        for (columns, heads) in [
            (40, "PID TIME WAITED COMMAND"),
            (60, "PID TIME WAITED HELD IN TIME COMMAND"),
            (80, "PID TIME WAITED HELD IN TIME LATE UNREAD COMMAND"),
            (160, "RUN PID TIME WAITED HELD AHEAD IN TIME LATE UNREAD COMMAND"),
        ] {
            let lines = lines(&status, None, Some(columns));
            let at = lines.iter().position(String::is_empty).expect("a table");
            let (head, row) = (&lines[at + 1], &lines[at + 2]);
            assert_eq!(head.split_whitespace().collect::<Vec<_>>().join(" "), heads);
            assert!(row.contains("grep -rn needle") && row.ends_with('…'), "{row}");
            assert_eq!(row.chars().count(), columns, "all of the room is used: {row}");
        }
        let said = text(&status);
        assert!(said.ends_with("long/") && said.contains("AHEAD"), "{said}");
    }

    #[test]
    fn lines_break_between_words() {
        assert_eq!(wrapped("one two three", Some(9)), ["one two", "  three"]);
        assert_eq!(wrapped("one two", None), ["one two"]);
        assert_eq!(wrapped("one 2.5 MiB", Some(9)), ["one", "  2.5 MiB"]);
        assert_eq!(wrapped("longer", Some(4)), ["lon…"]);
    }
}
