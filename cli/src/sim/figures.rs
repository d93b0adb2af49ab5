//! Where a simulation's figures go: the table, the file of `--json`, or standard output.

use std::io::{self, Write};
use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::failure::{Failure, written};
use crate::output_file::{self, Named, OutputFile};

/// Refuses outputs that would be lost: `read` is the recording and what else is read.
pub(super) fn check_outputs(
    read: &[Named],
    written: &[(&str, Option<&Path>)],
) -> Result<(), Failure> {
    let given = written.iter().filter_map(|&(name, path)| Some((name, path?)));
    output_file::check_apart(read, &given.collect::<Vec<_>>()).map_err(Failure::usage)
}

/// The file that `option` names, if it does.
pub(super) fn output(option: &str, path: Option<&Path>) -> Result<Option<OutputFile>, Failure> {
    OutputFile::of_option(option, path).map_err(Failure::failed)
}

pub(super) fn write(file: OutputFile, content: &str) -> Result<(), Failure> {
    file.write(content.as_bytes()).map_err(Failure::failed)
}

/// Where `--json` puts the figures.
pub(super) struct Figures {
    file: Option<OutputFile>,
    /// In place of the table.
    to_stdout: bool,
}

impl Figures {
    /// Sees that they can be written.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let to_stdout = path == Some(Path::new("-"));
        let file = output("--json", path.filter(|_| !to_stdout))?;
        Ok(Figures { file, to_stdout })
    }

    /// Whether nothing but the table is wanted.
    pub(super) fn are_unwanted(&self) -> bool {
        self.file.is_none() && !self.to_stdout
    }

    /// Writes them, and shows the table: that is what is left where the file's disk is full. The file comes first, and what it
    /// and `others` have failed by: whoever reads the first line of the table only ends this process by that.
    pub(super) fn deliver(
        self,
        others: Result<(), Failure>,
        text: impl FnOnce() -> Result<String, Failure>,
        table: impl FnOnce() -> Result<(), Failure>,
    ) -> Result<ExitCode, Failure> {
        let (text, written) = match self.file {
            Some(file) => (None, write(file, &format!("{}\n", text()?))),
            None => (self.to_stdout.then(text).transpose()?, Ok(())),
        };
        let failures = [others, written].into_iter().filter_map(Result::err);
        let code = failures.fold(ExitCode::SUCCESS, |_, failure| failure.report());
        match text {
            Some(text) => say(&text)?,
            None => table()?,
        }
        Ok(code)
    }
}

/// One line on standard output.
pub(super) fn say(line: &str) -> Result<(), Failure> {
    written(writeln!(io::stdout(), "{line}"))
}

/// One run as an object, or several, of which some may have come to nothing, as an array.
pub(super) fn as_json(runs: &[impl Serialize], are_several: bool) -> Result<String, Failure> {
    match runs {
        [run] if !are_several => serde_json::to_string(run),
        runs => serde_json::to_string(runs),
    }
    .map_err(Failure::failed)
}
