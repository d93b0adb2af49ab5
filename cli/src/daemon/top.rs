//! `foretell top`: the daemon's status, again and again.

use std::io::{self, IsTerminal, Write};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use clap::Args;

use super::status::{self, Status};
use crate::duration;
use crate::failure::{Failure, written};

pub(crate) const HELP: &str = "\
WAITED is the share of the time for which the run's programs have waited for reads and opens since the last look, added up over \
the programs. Ctrl-C ends it.

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
        let mut text = status.text(since);
        if is_terminal {
            text = fitted(&text);
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

/// The text, cut to the terminal's size.
fn fitted(text: &str) -> String {
    let Ok(size) = rustix::termios::tcgetwinsize(io::stdout()) else { return text.to_owned() };
    let (rows, columns) = (usize::from(size.ws_row), usize::from(size.ws_col));
    if rows == 0 || columns == 0 {
        return text.to_owned();
    }
    let rows = text.lines().take(rows.saturating_sub(1).max(1));
    rows.map(|line| line.chars().take(columns).collect::<String>() + "\n").collect()
}
