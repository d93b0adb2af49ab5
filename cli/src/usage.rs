//! Reports wrong usage like every other failure: in one line that names the thing and the way out.

use std::ffi::OsString;
use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{Command, Error};

use crate::failure::{Failure, written};

/// The command that the parser adds to commands with commands.
const HELP: &str = "help";

/// Reports `error` from parsing `words` by `command`. Prints the help or the version if that was asked for, or the help if no
/// command was given.
pub(crate) fn report(error: &Error, command: &Command, words: &[OsString]) -> ExitCode {
    if error.kind() == ErrorKind::InvalidSubcommand
        && let Some(fewer) = without_help_of_help(command, words)
        && let Err(error) = command.clone().try_get_matches_from(&fewer)
    {
        return report(&error, command, &fewer);
    }
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            written(error.print()).map_or_else(|failure| failure.report(), |()| ExitCode::SUCCESS)
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print(); // There is no reader.
            ExitCode::from(error.exit_code() as u8)
        }
        _ => Failure::usage(wrong_usage(error, command, words)).report(),
    }
}

/// The words without `--help` behind the command `help`, which takes names of commands only. `None` if there is nothing to
/// leave out.
fn without_help_of_help(command: &Command, words: &[OsString]) -> Option<Vec<OsString>> {
    let is_option = |word: &OsString| word == "--help" || word == "-h";
    let mut command = command.clone();
    command.build(); // It has no command `help` without it.
    let (mut asked, mut at) = (&command, 1);
    while let Some(below) = asked.find_subcommand(words.get(at)?) {
        (asked, at) = (below, at + 1);
        if below.get_name() == HELP {
            let (before, behind) = words.split_at(at);
            let kept = behind.iter().filter(|word| !is_option(word));
            let fewer: Vec<_> = before.iter().chain(kept).cloned().collect();
            return (fewer.len() < words.len()).then_some(fewer);
        }
    }
    None
}

/// What is wrong with `words`, and the way out.
fn wrong_usage(error: &Error, command: &Command, words: &[OsString]) -> String {
    let mut command = command.clone();
    command.build(); // Options without it have no name to print.
    let (asked, name) = asked(&command, words);
    if let Some(tip) = tip_of_name(error, asked) {
        let (_, rest) = words.split_at(name.split(' ').count().min(words.len()));
        let rest: Vec<_> = rest.iter().map(|word| word.to_string_lossy()).collect();
        let wrong = line(error, words);
        let wrong = wrong.split("; to pass ").next().unwrap_or_default();
        return format!("{wrong}; {tip}: '{name} -- {}'", rest.join(" ").replace('\n', "\\n"));
    }
    let tip = tip(error, asked).map_or(String::new(), |tip| format!("; {tip}"));
    format!("{}{tip}; see '{name} --help'", line(error, words))
}

/// The way out if the words are a NAME of several words, one of which looks like an option.
fn tip_of_name(error: &Error, asked: &Command) -> Option<&'static str> {
    let is_name = |argument: &clap::Arg| {
        argument.get_value_names().is_some_and(|names| names.iter().any(|name| *name == "NAME"))
    };
    let is_meant = error.kind() == ErrorKind::UnknownArgument
        && error.get(ContextKind::SuggestedArg).is_none()
        && asked.get_positionals().any(is_name);
    is_meant.then_some("a name with dashes goes behind --")
}

/// A way out that the parser does not know, of an error in the words of `asked`.
fn tip(error: &Error, asked: &Command) -> Option<String> {
    let context = |kind| match error.get(kind) {
        Some(ContextValue::String(text)) => Some(text.as_str()),
        _ => None,
    };
    match error.kind() {
        ErrorKind::InvalidSubcommand if error.get(ContextKind::SuggestedSubcommand).is_none() => {
            let wrong = context(ContextKind::InvalidSubcommand)?;
            let mut known = asked.get_subcommands().map(Command::get_name);
            let near = known.find(|name| is_slip(wrong.as_bytes(), name.as_bytes()))?;
            Some(format!("a similar subcommand exists: '{near}'"))
        }
        ErrorKind::UnknownArgument if asked.get_positionals().next().is_none() => {
            context(ContextKind::InvalidArg).filter(|wrong| !wrong.starts_with('-'))?;
            let required = asked.get_arguments().filter(|argument| argument.is_required_set());
            let required: Vec<_> = required.map(ToString::to_string).collect();
            (!required.is_empty()).then(|| format!("required are {}", required.join(", ")))
        }
        _ => None,
    }
}

/// Whether one letter too many, too few or another, or two swapped ones, make `right` into `wrong`.
fn is_slip(wrong: &[u8], right: &[u8]) -> bool {
    let same = |(a, b): &(&u8, &u8)| a == b;
    let before = wrong.iter().zip(right).take_while(same).count();
    let (wrong, right) = (&wrong[before..], &right[before..]);
    let behind = wrong.iter().rev().zip(right.iter().rev()).take_while(same).count();
    match (&wrong[..wrong.len() - behind], &right[..right.len() - behind]) {
        ([] | [_], [] | [_]) => true,
        ([a, b], [c, d]) => (a, b) == (d, c),
        _ => false,
    }
}

/// The parser's message of several lines as one line, without its usual ending.
fn line(error: &Error, words: &[OsString]) -> String {
    if error.kind() == ErrorKind::InvalidUtf8
        && let Some(word) = words.iter().find(|word| word.to_str().is_none())
    {
        return format!("'{}' is not UTF-8", word.to_string_lossy());
    }
    let text = with_visible_words(error.to_string(), words);
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    // An option with a slip is rarely meant as a value.
    let has_similar = error.get(ContextKind::SuggestedArg).is_some();
    let said = lines
        .take_while(|line| !line.starts_with("Usage:") && !line.starts_with("For more"))
        .filter(|line| !has_similar || !line.starts_with("tip: to pass "));
    let mut line = String::new();
    for part in said {
        let (joint, part) = match (part.strip_prefix("error: "), part.strip_prefix("tip: ")) {
            (Some(first), _) => ("", first),
            (_, Some(tip)) => ("; ", tip),
            _ if line.ends_with(':') || part.starts_with('[') => (" ", part),
            _ => (", ", part),
        };
        line += joint;
        line += part;
    }
    match line.rsplit_once("': ") {
        Some((value, why)) => format!("{value}': {}", in_words(why)),
        None => line,
    }
}

/// Escapes line ends in the user's words, so that the remaining ones are the parser's.
fn with_visible_words(mut text: String, words: &[OsString]) -> String {
    for word in words.iter().filter_map(|word| word.to_str()).filter(|word| word.contains('\n')) {
        let value = word.split_once('=').map_or(word, |(_, value)| value);
        for torn in [word, value] {
            text = text.replace(torn, &torn.replace('\n', "\\n"));
        }
    }
    text
}

/// The parser's complaint about a number in plain words. All numbers that it parses are whole and not negative.
fn in_words(why: &str) -> String {
    let range = why.split_once(" is not in ");
    if let Some((number, range)) = range
        && let Some((least, most)) = range.split_once("..=")
    {
        return format!("{number} is not a number from {least} to {most}");
    }
    match why {
        "invalid digit found in string" | "number too small to fit in target type" => {
            "not a whole number from 0 on".into()
        }
        "cannot parse integer from empty string" => "a number is missing".into(),
        "number too large to fit in target type" => "too large".into(),
        _ => why.into(),
    }
}

/// The command that `words` call, and its name with those of the commands above it.
fn asked<'a>(command: &'a Command, words: &[OsString]) -> (&'a Command, String) {
    let (mut asked, mut name) = (command, command.get_name().to_owned());
    for word in &words[1.min(words.len())..] {
        let Some(below) = word.to_str().and_then(|word| asked.find_subcommand(word)) else { break };
        if below.get_name() == HELP {
            break; // It has no help of its own.
        }
        name = format!("{name} {}", below.get_name());
        asked = below;
    }
    (asked, name)
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Arg;
    use std::os::unix::ffi::OsStringExt;

    fn command() -> Command {
        let count = Arg::new("count")
            .long("count")
            .required(true)
            .allow_hyphen_values(true)
            .value_parser(clap::value_parser!(u32).range(1..=9));
        let how = Arg::new("how").long("how").value_parser(["this", "that"]);
        let that = Arg::new("that").long("that").num_args(0).conflicts_with("how");
        let size = Arg::new("size").long("size").required(true);
        let name = Arg::new("name").value_name("NAME").num_args(1..);
        let old = Arg::new("old").long("old").num_args(0);
        Command::new("tool")
            .subcommand(Command::new("part").args([count, size, how, that]))
            .subcommand(Command::new("forget").args([name, old]))
    }

    fn said(words: &[&str]) -> String {
        let words: Vec<OsString> = words.iter().map(OsString::from).collect();
        let error = command().try_get_matches_from(&words).expect_err("it is wrong");
        wrong_usage(&error, &command(), &words)
    }

    #[test]
    fn a_word_that_is_no_text_is_named() {
        let words = ["tool", "part", "--count"].map(OsString::from).into_iter();
        let words: Vec<OsString> = words.chain([OsString::from_vec(vec![b'a', 0xff])]).collect();
        let error = command().try_get_matches_from(&words).expect_err("it is wrong");
        assert_eq!(line(&error, &words), "'a\u{fffd}' is not UTF-8");
    }

    #[test]
    fn help_of_help_is_help() {
        let of = |words: &[&str]| {
            let words: Vec<OsString> = words.iter().map(OsString::from).collect();
            without_help_of_help(&command(), &words)
        };
        let help = |words: &[&str]| Some(words.iter().map(OsString::from).collect::<Vec<_>>());
        assert_eq!(of(&["tool", "help", "--help"]), help(&["tool", "help"]));
        assert_eq!(of(&["tool", "help", "part", "-h"]), help(&["tool", "help", "part"]));
        for other in [&["tool", "help", "part"][..], &["tool", "part", "--help"], &["tool"]] {
            assert_eq!(of(other), None, "{other:?}");
        }
    }

    #[test]
    fn a_slip_is_a_letter_too_many_too_few_another_or_two_swapped() {
        for slip in ["run", "rnu", "urn", "rn", "runn", "rum"] {
            assert!(is_slip(slip.as_bytes(), b"run"), "{slip}");
        }
        for other in ["", "r", "nur", "sim", "reruns", "rnux"] {
            assert!(!is_slip(other.as_bytes(), b"run"), "{other}");
        }
    }

    #[test]
    fn what_is_wrong_is_told_in_one_line_with_the_way_out() {
        for (words, expected) in [
            (
                &["tool", "part"][..],
                "the following required arguments were not provided: --count <count>, --size <size>; see 'tool part --help'",
            ),
            (
                &["tool", "part", "--count", "0"],
                "invalid value '0' for '--count <count>': 0 is not a number from 1 to 9; see 'tool part --help'",
            ),
            (
                &["tool", "parts"],
                "unrecognized subcommand 'parts'; a similar subcommand exists: 'part'; see 'tool --help'",
            ),
            (
                &["tool", "part", "--count", "-x"],
                "invalid value '-x' for '--count <count>': not a whole number from 0 on; see 'tool part --help'",
            ),
            (
                &["tool", "part", "--count", ""],
                "invalid value '' for '--count <count>': a number is missing; see 'tool part --help'",
            ),
            (
                &["tool", "part", "--how", "so"],
                "invalid value 'so' for '--how <how>' [possible values: this, that]; see 'tool part --help'",
            ),
            (
                &["tool", "part", "--count=5\nUsage: x"],
                "invalid value '5\\nUsage: x' for '--count <count>': not a whole number from 0 on; see 'tool part --help'",
            ),
            (
                &["tool", "part", "--how", "this", "--that"],
                "the argument '--how <how>' cannot be used with '--that'; see 'tool part --help'",
            ),
            (
                &["tool", "part", "x"],
                "unexpected argument 'x' found; required are --count <count>, --size <size>; see 'tool part --help'",
            ),
            (&["tool", "help", "this"], "unrecognized subcommand 'this'; see 'tool --help'"),
            (
                &["tool", "art"],
                "unrecognized subcommand 'art'; a similar subcommand exists: 'part'; see 'tool --help'",
            ),
            (
                &["tool", "forget", "grep", "-rn", "x"],
                "unexpected argument '-r' found; a name with dashes goes behind --: 'tool forget -- grep -rn x'",
            ),
            (
                &["tool", "forget", "--olds"],
                "unexpected argument '--olds' found; a similar argument exists: '--old'; see 'tool forget --help'",
            ),
            (
                &["tool", "part", "--siz", "1"],
                "unexpected argument '--siz' found; a similar argument exists: '--size'; see 'tool part --help'",
            ),
        ] {
            assert_eq!(said(words), expected);
        }
    }
}
