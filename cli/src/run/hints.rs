//! The options of `foretell run` that say where hints come from.
//!
//! They are made from the list of sources ([`KINDS`]), each with its option or options, and `--no-hints`. A source from a file
//! takes `-` for standard input, which the program then does not get.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use clap::{Arg, ArgAction, ArgMatches, Args, Command, FromArgMatches, value_parser};
use foretell_manager::source::{ByDefault, FromFile, KINDS, Kind};

use super::own_failure;
use super::plan::HintFile;
use crate::failure::Failure;
use crate::signals;

/// Its name on the command line.
const NO_HINTS: &str = "no-hints";

/// The sources that are switched on, with the file of those from a file.
pub(super) struct HintArgs {
    from_files: Vec<(&'static FromFile, PathBuf)>,
    by_default: Vec<&'static ByDefault>,
    may_prefetch: bool,
}

impl HintArgs {
    /// No source: nothing is prefetched.
    pub(super) fn none() -> Self {
        HintArgs { from_files: Vec::new(), by_default: Vec::new(), may_prefetch: false }
    }

    /// Whether anything may be prefetched at all.
    pub(super) fn may_prefetch(&self) -> bool {
        self.may_prefetch
    }

    /// Whether there is a source.
    pub(super) fn is_any(&self) -> bool {
        !self.from_files.is_empty() || !self.by_default.is_empty()
    }

    /// The files that sources read, with words for each.
    pub(super) fn inputs(&self) -> impl Iterator<Item = (&'static str, &Path)> {
        self.from_files.iter().map(|(kind, path)| (kind.called, path.as_path()))
    }

    /// Whether a source reads standard input.
    pub(super) fn takes_input(&self) -> bool {
        self.from_files.iter().any(|(_, path)| path.as_os_str() == "-")
    }

    /// Opens the files of sources.
    pub(super) fn open(&self) -> Result<Vec<HintFile>, Failure> {
        let opened = self.from_files.iter().map(|(kind, path)| {
            let name = match path.as_os_str() == "-" {
                true => "standard input".to_owned(),
                false => path.display().to_string(),
            };
            Ok(HintFile { option: kind.on.to_owned(), name, file: Some(open(path)?) })
        });
        opened.collect()
    }

    /// The options of the sources that guess.
    pub(super) fn guesses(&self) -> Vec<String> {
        self.by_default.iter().map(|kind| kind.on.to_owned()).collect()
    }
}

fn open(path: &Path) -> Result<File, Failure> {
    if path.as_os_str() == "-" {
        let closed = |error| own_failure(format!("standard input: {error}"));
        signals::was_open(0).map_err(closed)?;
        let handle = rustix::io::fcntl_dupfd_cloexec(io::stdin(), 3).map_err(own_failure)?;
        return Ok(File::from(handle));
    }
    open_file(path)
        .map_err(|error| own_failure(format!("cannot read hints from {}: {error}", path.display())))
}

fn open_file(path: &Path) -> io::Result<File> {
    let file = File::open(path)?;
    if file.metadata()?.is_dir() {
        return Err(io::ErrorKind::IsADirectory.into());
    }
    Ok(file)
}

fn flag(name: &'static str, help: &'static str) -> Arg {
    Arg::new(name).long(name).action(ArgAction::SetTrue).help(help)
}

impl Args for HintArgs {
    fn augment_args(mut command: Command) -> Command {
        let mut no_hints = flag(NO_HINTS, "Prefetch nothing, only measure");
        for kind in KINDS {
            match kind {
                Kind::ByDefault(kind) => {
                    let on = flag(kind.on, kind.help).overrides_with(kind.off);
                    let off = flag(kind.off, kind.help_off).overrides_with(kind.on);
                    command = command.arg(on).arg(off);
                }
                Kind::FromFile(kind) => {
                    let arg = Arg::new(kind.on).long(kind.on).help(kind.help);
                    let arg = arg.value_name("FILE").value_parser(value_parser!(PathBuf));
                    command = command.arg(arg);
                    no_hints = no_hints.conflicts_with(kind.on);
                }
            }
        }
        command.arg(no_hints)
    }

    fn augment_args_for_update(command: Command) -> Command {
        Self::augment_args(command)
    }
}

impl FromArgMatches for HintArgs {
    fn from_arg_matches(matches: &ArgMatches) -> Result<Self, clap::Error> {
        let may_prefetch = !matches.get_flag(NO_HINTS);
        let mut args = HintArgs { from_files: Vec::new(), by_default: Vec::new(), may_prefetch };
        if !may_prefetch {
            return Ok(args);
        }
        for kind in KINDS {
            match kind {
                Kind::ByDefault(kind) if matches.get_flag(kind.off) => {}
                Kind::ByDefault(kind) => args.by_default.push(kind),
                Kind::FromFile(kind) => {
                    let path = matches.get_one::<PathBuf>(kind.on).cloned();
                    args.from_files.extend(path.map(|path| (kind, path)));
                }
            }
        }
        Ok(args)
    }

    fn update_from_arg_matches(&mut self, matches: &ArgMatches) -> Result<(), clap::Error> {
        *self = Self::from_arg_matches(matches)?;
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_source_has_options_of_its_own() {
        HintArgs::augment_args(Command::new("run")).debug_assert();
        let of = |words: &[&str]| {
            let command = HintArgs::augment_args(Command::new("run"));
            let matches = command.try_get_matches_from([&["run"], words].concat());
            HintArgs::from_arg_matches(&matches.expect("options of the list")).expect("no values")
        };
        assert!(!of(&["--no-hints"]).is_any());
        let all = KINDS.len();
        let mut files = 0;
        for kind in KINDS {
            match kind {
                Kind::ByDefault(kind) => {
                    let (on, off) = (format!("--{}", kind.on), format!("--{}", kind.off));
                    let number = |words: &[&str]| of(words).by_default.len();
                    assert_eq!(number(&[&off]) + 1, number(&[]), "{on}");
                    assert_eq!(number(&[&off, &on]), number(&[]), "{on}");
                }
                Kind::FromFile(kind) => {
                    let args = of(&[&format!("--{}", kind.on), "-"]);
                    assert!(args.takes_input() && args.inputs().count() == 1, "{}", kind.on);
                    files += 1;
                }
            }
        }
        assert_eq!(of(&[]).by_default.len() + files, all);
    }
}
