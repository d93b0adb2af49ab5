//! Wrong usage, told as every other failure is: in one line that names the thing and the way out.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Command, Error};

use crate::failure::Failure;

/// Tells of `error`, which came of parsing `words` by `command`; or prints the help or the version, if that
/// was asked for.
pub(crate) fn report(error: &Error, command: &Command, words: &[OsString]) -> ExitCode {
    if !error.to_string().starts_with(PREFIX) {
        let is_printed = error.print().is_ok();
        return ExitCode::from(if is_printed { error.exit_code() as u8 } else { 1 });
    }
    Failure::usage(format!("{}; see '{} --help'", line(error), asked(command, words))).report()
}

const PREFIX: &str = "error: ";

/// What the parser says in several lines, without what every one of its messages ends with.
fn line(error: &Error) -> String {
    let text = error.to_string();
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let said =
        lines.take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"));
    let mut line = String::new();
    for part in said {
        let (joint, part) = match (part.strip_prefix(PREFIX), part.strip_prefix("tip: ")) {
            (Some(first), _) => ("", first),
            (_, Some(tip)) => ("; ", tip),
            _ if line.ends_with(':') => (" ", part),
            _ => (", ", part),
        };
        line += joint;
        line += part;
    }
    in_words(line)
}

/// Says what is wrong with a number as people do.
fn in_words(line: String) -> String {
    let range = line.rsplit_once(" is not in ");
    if let Some((all, range)) = range
        && let Some((least, most)) = range.split_once("..=")
    {
        return format!("{all} is not a number from {least} to {most}");
    }
    line.replace("invalid digit found in string", "not a whole number")
        .replace("number too large to fit in target type", "too large")
}

/// The command, with those below it, that `words` are for.
fn asked(command: &Command, words: &[OsString]) -> String {
    let (mut asked, mut name) = (command, command.get_name().to_owned());
    for word in &words[1.min(words.len())..] {
        let Some(below) = word.to_str().and_then(|word| asked.find_subcommand(word)) else { break };
        name = format!("{name} {}", below.get_name());
        asked = below;
    }
    name
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;

    fn command() -> Command {
        let count = Arg::new("count")
            .long("count")
            .required(true)
            .allow_hyphen_values(true)
            .value_parser(clap::value_parser!(u32).range(1..=9));
        let size = Arg::new("size").long("size").required(true);
        Command::new("tool").subcommand(Command::new("part").args([count, size]))
    }

    fn said(words: &[&str]) -> String {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let error = command().try_get_matches_from(&words).expect_err("it is wrong");
        format!("{}; see {}", line(&error), asked(&command(), &words))
    }

    #[test]
    fn what_is_wrong_is_told_in_one_line_with_the_way_out() {
        for (words, expected) in [
            (
                &["tool", "part"][..],
                "the following required arguments were not provided: --count <count>, --size <size>; see tool part",
            ),
            (
                &["tool", "part", "--count", "0"],
                "invalid value '0' for '--count <count>': 0 is not a number from 1 to 9; see tool part",
            ),
            (
                &["tool", "parts"],
                "unrecognized subcommand 'parts'; a similar subcommand exists: 'part'; see tool",
            ),
            (
                &["tool", "part", "--count", "-x"],
                "invalid value '-x' for '--count <count>': not a whole number; see tool part",
            ),
            (&["tool", "part", "x"], "unexpected argument 'x' found; see tool part"),
        ] {
            assert_eq!(said(words), expected);
        }
    }
}
