//! Where a simulation's figures go: the table, the file of `--json`, or standard output.

use std::path::Path;
use std::process::ExitCode;

use serde::Serialize;

use crate::failure::Failure;
use crate::output_file::{self, Named, OutputFile};
use crate::standard_output::say;

/// Refuses outputs that would overwrite each other or an input. `read` lists the inputs.
pub(super) fn check_outputs(
    read: &[Named],
    written: &[(&str, Option<&Path>)],
) -> Result<(), Failure> {
    let given = written.iter().filter_map(|&(name, path)| Some((name, path?)));
    output_file::check_apart(read, &given.collect::<Vec<_>>()).map_err(Failure::usage)
}

/// The output file of `option`, if that is given.
pub(super) fn output(option: &str, path: Option<&Path>) -> Result<Option<OutputFile>, Failure> {
    OutputFile::of_option(option, path).map_err(Failure::failed)
}

pub(super) fn write(file: OutputFile, content: &str) -> Result<(), Failure> {
    file.write(content.as_bytes()).map_err(Failure::failed)
}

/// The destination of `--json`.
pub(super) struct Figures {
    file: Option<OutputFile>,
    /// The figures are printed in place of the table.
    to_stdout: bool,
}

impl Figures {
    /// Opens the destination, so that a wrong path shows before the work.
    pub(super) fn open(path: Option<&Path>) -> Result<Self, Failure> {
        let to_stdout = path == Some(Path::new("-"));
        let file = output("--json", path.filter(|_| !to_stdout))?;
        Ok(Figures { file, to_stdout })
    }

    /// Whether only the table is wanted.
    pub(super) fn are_unwanted(&self) -> bool {
        self.file.is_none() && !self.to_stdout
    }

    /// Writes the figures, then reports failures of this and of `others`, then prints the table. The table comes last and
    /// always: it remains if the file's disk is full, and a reader that closes the pipe after its first line ends this process.
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

/// JSON: an object for one run, or an array if several were asked for, even if only one is left.
pub(super) fn as_json(runs: &[impl Serialize], are_several: bool) -> Result<String, Failure> {
    match runs {
        [run] if !are_several => serde_json::to_string(run),
        runs => serde_json::to_string(runs),
    }
    .map_err(Failure::failed)
}
