//! `foretell sim reproduce`: the papers' tables and figures again, with ours beside theirs.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use foretell_sim::reproduce::{Cell, EXPERIMENTS, Experiment, Outcome, page};
use serde::Serialize;

use super::{on_all_processors, progress, say};
use crate::failure::Failure;
use crate::output_file::OutputFile;

pub(super) const HELP: &str = "\
Runs the programs of the TIP papers on models of their machines, under this project's own policies. All
figures of ours are simulated, and the same every time; seeds are in the programs.

Each row has the paper's numbers, where it gives any, above ours. Ours are predictions, but those with
*, near which something that the paper does not state was chosen, and those with =, which it states and
which were put in.

--out writes DIR/reproduction.md, with every table and the reason for every figure that is more than 15 % off,
and its plots to DIR/reproduction. What follows the line

  <!-- what follows is not written by foretell sim reproduce -->

in a reproduction.md that is there already is kept.

Examples:
  foretell sim reproduce tip1994
  foretell sim reproduce all --json cells.json --out docs";

/// What ends the part of a page that is written here.
const KEPT_FROM: &str = "<!-- what follows is not written by foretell sim reproduce -->";

#[derive(Args)]
pub(crate) struct ReproduceArgs {
    /// What to run again
    #[arg(value_enum)]
    what: What,

    /// Write the figures to FILE as JSON; to standard output, in place of the tables, if it is -
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a page with tables and plots to DIR
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Patterson and Gibson, "Exposing I/O Concurrency with Informed Prefetching", 1994: tables 1 to 3
    Tip1994,
    /// Patterson et al., "Informed Prefetching and Caching", 1995: figures 1 to 3, 10 and 11
    Tip1995,
    /// Both
    All,
}

impl What {
    fn holds(self, experiment: &Experiment) -> bool {
        match self {
            What::Tip1994 => experiment.paper == "tip1994",
            What::Tip1995 => experiment.paper == "tip1995",
            What::All => true,
        }
    }
}

#[derive(Serialize)]
struct Cells<'a> {
    cells: &'a [Cell],
}

pub(super) fn reproduce(args: &ReproduceArgs) -> Result<ExitCode, Failure> {
    let to_stdout = args.json.as_deref() == Some(Path::new("-"));
    let json = args.json.as_deref().filter(|_| !to_stdout);
    let json = json.map(OutputFile::open).transpose().map_err(Failure::failed)?;
    if let Some(folder) = &args.out {
        let plots = folder.join(PLOTS);
        fs::create_dir_all(&plots)
            .map_err(|error| Failure::failed(format!("{}: {error}", plots.display())))?;
    }
    let outcome = run(args.what);
    if let Some(folder) = &args.out {
        write_page(folder, &outcome).map_err(Failure::failed)?;
    }
    let cells = Cells { cells: &outcome.cells };
    let text = serde_json::to_string(&cells).map_err(Failure::failed)?;
    if to_stdout {
        say(&text)?;
    } else {
        page::lines(&outcome.cells).iter().try_for_each(|line| say(line))?;
        say("")?;
        say(&page::summary(&outcome.cells))?;
    }
    if let Some(file) = json {
        file.write(format!("{text}\n").as_bytes()).map_err(Failure::failed)?;
    }
    Ok(ExitCode::SUCCESS)
}

fn run(what: What) -> Outcome {
    let experiments: Vec<&Experiment> =
        EXPERIMENTS.iter().filter(|experiment| what.holds(experiment)).collect();
    let progress = progress();
    progress.set_length(experiments.len() as u64);
    progress.set_message("tables and figures");
    let outcomes = on_all_processors(&experiments, |experiment| {
        let outcome = (experiment.run)();
        progress.inc(1);
        outcome
    });
    progress.finish_and_clear();
    let mut all = Outcome::default();
    outcomes.into_iter().for_each(|outcome| all.merge(outcome));
    all
}

/// The folder of plots beside the page.
const PLOTS: &str = "reproduction";

/// Writes the page and its plots; the error names the file.
fn write_page(folder: &Path, outcome: &Outcome) -> Result<(), String> {
    let path = folder.join("reproduction.md");
    let before = match fs::read_to_string(&path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    let kept = before.find(KEPT_FROM).map_or(KEPT_FROM, |at| before[at..].trim_end());
    let page = format!("{}{kept}\n", page::markdown(outcome, PLOTS));
    let write = |path: &Path, text: &str| OutputFile::open(path)?.write(text.as_bytes());
    for figure in &outcome.figures {
        let path = folder.join(PLOTS).join(format!("{}.svg", figure.name));
        write(&path, &figure.plot.svg())?;
    }
    write(&path, &page)
}
