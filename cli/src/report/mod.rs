//! `foretell report`: shows a recording of `foretell record`, as one HTML file or as JSON.
//!
//! | module | what it decides |
//! |---|---|
//! | [`gather`] | what is summed up, file by file and program by program |
//! | [`points`] | which points of a file are drawn |
//! | [`sources`] | what each source of hints could have known beforehand |
//! | [`simulated`] | what hints would gain, by `sim replay` |
//! | [`page`] | the page: the figures with a script that draws them |
//!
//! The recording is read twice: for the sums, and for the simulation. Memory is bounded by the number of files, and the size of
//! the page by [`figures::FILES_MAX`] and [`points`].

mod figures;
mod gather;
mod page;
mod points;
mod simulated;
mod sources;

use std::fs::File;
use std::io::BufReader;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;
use foretell_manager::learn::recording::reader::Reader;
use foretell_manager::learn::recording::replay::{Moves, profile};

use self::figures::Figures;
use self::gather::Gathered;
use self::sources::Earlier;
use crate::failure::{Failure, note};
use crate::output_file::{self, Named, OutputFile};

pub(crate) const HELP: &str = "\
The page has no parts elsewhere: it can be sent, and opened without a network. It shows offsets over time \
for each file, gaps between reads, sizes of reads, and where programs waited. `known beforehand` says what \
each source of hints could have known before the read. `simulated` is predicted by `foretell sim replay`.

Example:
  foretell record -o run.ftr -- ./analyse data/*.h5
  foretell report run.ftr -o report.html";

/// Bytes of the recording that are read at a time.
const READ_BYTES: usize = 128 << 10;

#[derive(Args)]
pub(crate) struct ReportArgs {
    /// The recording
    recording: PathBuf,

    /// Write the page to FILE
    #[arg(short, long, value_name = "FILE", required_unless_present = "json")]
    output: Option<PathBuf>,

    /// Write the figures to FILE as JSON (- for standard output)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// A recording of an earlier run: how much of this one it would have told [default: an earlier run did the same]
    #[arg(long, value_name = "FILE")]
    earlier: Option<PathBuf>,

    /// Simulate nothing, which takes most of the time
    #[arg(long)]
    no_simulation: bool,
}

pub(crate) fn report(args: &ReportArgs) -> Result<ExitCode, Failure> {
    let mut read: Vec<Named> = vec![("the recording", &args.recording)];
    read.extend(args.earlier.as_deref().map(|path| ("--earlier", path)));
    let written = [("--output", args.output.as_deref()), ("--json", args.json.as_deref())];
    let written = written.into_iter().filter_map(|(name, path)| Some((name, path?)));
    output_file::check_apart(&read, &written.collect::<Vec<Named>>()).map_err(Failure::usage)?;
    let page = OutputFile::of_option("--output", args.output.as_deref());
    let page = page.map_err(Failure::failed)?;
    let json = OutputFile::of_option("--json", args.json.as_deref()).map_err(Failure::failed)?;
    let earlier = args.earlier.as_deref().map(earlier).transpose()?;
    let gathered = gathered(&args.recording, earlier)?;
    let simulated = match args.no_simulation {
        true => simulated::Simulated::default(),
        false => simulated::simulate(&args.recording).map_err(Failure::failed)?,
    };
    let figures = Figures::new(gathered, simulated);
    if let Some(json) = json {
        json.write_json(&figures).map_err(Failure::failed)?;
    }
    if let Some(file) = page {
        let page = page::page(&figures).map_err(Failure::failed)?;
        file.write(page.as_bytes()).map_err(Failure::failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn opened(path: &Path) -> Result<Reader<BufReader<File>>, Failure> {
    let failed =
        |why: &dyn std::fmt::Display| Failure::failed(format!("{}: {why}", path.display()));
    let file = File::open(path).map_err(|error| failed(&error))?;
    Reader::new(BufReader::with_capacity(READ_BYTES, file)).map_err(|refusal| failed(&refusal))
}

fn gathered(path: &Path, earlier: Option<Earlier>) -> Result<Gathered, Failure> {
    let mut reader = opened(path)?;
    let mut gathered = Gathered::new(reader.meta(), earlier);
    gathered.tells_names = reader.tells_names();
    let failed = |error| Failure::failed(format!("{}: {error}", path.display()));
    while let Some(event) = reader.next_event().map_err(failed)? {
        gathered.take(&event, reader.paths());
    }
    gathered.end(reader.ending());
    if let Some(problem) = reader.ending().problem() {
        note(format!("{}: {problem}", path.display()));
    }
    Ok(gathered)
}

fn earlier(path: &Path) -> Result<Earlier, Failure> {
    let mut reader = opened(path)?;
    let profile = profile(&mut reader, &Moves::default());
    let failed = |error| Failure::failed(format!("--earlier: {}: {error}", path.display()));
    let earlier = profile.map(|profile| Earlier::new(&profile)).map_err(failed)?;
    if let Some(problem) = reader.ending().problem() {
        note(format!("--earlier: {}: {problem}", path.display()));
    }
    Ok(earlier)
}
