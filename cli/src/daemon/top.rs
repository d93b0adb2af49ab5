//! `foretell top`: the daemon's status, again and again.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use super::status::{self, Status};
use super::view;
use crate::duration;
use crate::failure::{Failure, written};

pub(crate) const HELP: &str = "\
WAITED is the share of the time for which the run's programs have waited for reads and opens since the last look, added up \
over the programs. The other columns are those of `foretell status`. Ctrl-C ends it.

Exit codes: 0 done; 1 no daemon runs, or it has ended; 2 wrong usage.";

/// Clears the screen, and goes to its upper left corner.
const CLEAR: &str = "\x1b[H\x1b[J";

#[derive(Args)]
pub(crate) struct TopArgs {
    /// Time between two looks
    #[arg(short, long, value_name = "TIME", value_parser = duration::parse, default_value = "1s")]
    interval: Duration,

    /// End after so many looks
    #[arg(short = 'n', long, value_name = "COUNT")]
    looks: Option<u64>,
}

pub(crate) fn top(args: &TopArgs) -> Result<ExitCode, Failure> {
    if args.interval < Duration::from_millis(100) {
        return Err(Failure::usage("--interval: at least 100ms"));
    }
    let is_terminal = io::stdout().is_terminal();
    let mut before: Option<(Status, Instant)> = None;
    let mut looks = 0;
    loop {
        let (status, now) = (status::ask()?, Instant::now());
        let since = before.as_ref().map(|(before, at)| (before, (now - *at).as_secs_f64()));
        let size = view::terminal();
        let mut lines = view::lines(&status, since, size.map(|(_, columns)| columns));
        if let Some(size) = size {
            lines = fitted(lines, size);
        }
        let mut text = lines.join("\n") + "\n";
        if is_terminal {
            text.insert_str(0, CLEAR);
        }
        let mut output = io::stdout().lock();
        written(output.write_all(text.as_bytes()).and_then(|()| output.flush()))?;
        drop(output);
        before = Some((status, now));
        looks += 1;
        if args.looks.is_some_and(|most| looks >= most) {
            return Ok(ExitCode::SUCCESS);
        }
        std::thread::sleep(args.interval);
    }
}

/// The lines, cut to so many rows; the last one says how many are left out.
fn fitted(mut lines: Vec<String>, (rows, columns): (usize, usize)) -> Vec<String> {
    // The cursor takes the last row.
    let rows = rows.saturating_sub(1).max(1);
    if lines.len() > rows {
        let line = match lines.len() + 1 - rows {
            1 => "1 more line".to_owned(),
            left_out => format!("{left_out} more lines"),
        };
        lines.truncate(rows - 1);
        lines.push(view::cut(&line, columns));
    }
    lines
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_low_terminal_has_the_first_lines_and_the_number_of_others() {
        let lines = || (0..9).map(|at| at.to_string()).collect::<Vec<_>>();
        assert_eq!(fitted(lines(), (10, 80)), lines());
        assert_eq!(fitted(lines(), (9, 80))[6..], ["6", "2 more lines"]);
        assert_eq!(fitted(lines(), (1, 80)), ["9 more lines"]);
        assert_eq!(fitted(lines(), (1, 3)), ["9 …"]);
    }
}
