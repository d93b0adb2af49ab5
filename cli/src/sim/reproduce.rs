//! `foretell sim reproduce`: reproduces the papers' tables and figures, and compares them with the papers' numbers.

use std::fs;
use std::io::ErrorKind;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, ValueEnum};
use foretell_sim::reproduce::comparators::{self, Compared, Subject};
use foretell_sim::reproduce::pairs::{self, Pair};
use foretell_sim::reproduce::predictive;
use foretell_sim::reproduce::{EXPERIMENTS, Experiment, Figure, Outcome, page};
use serde::Serialize;

use super::figures::{Figures, check_outputs};
use super::runs::{on_all_processors, progress};
use crate::failure::Failure;
use crate::output_file::OutputFile;
use crate::standard_output::say;

pub(super) const HELP: &str = "\
Examples:
  foretell sim reproduce tip1994
  foretell sim reproduce all --json cells.json --out docs

Runs the programs of the TIP papers on models of their machines, under foretell's own policies, and \
the benchmark of the collective paper. All figures are simulated and the same in every run, because \
the seeds are fixed. On two processors, all takes two to five minutes, and each part a minute or two.

Each row has the paper's numbers, if it gives any, above ours. Ours are predictions, with two \
exceptions: figures with * were used to choose a parameter that the paper does not state, and \
figures with = are inputs that the paper states.

--out writes DIR/reproduction.md, with every table and the reason for every figure that is more \
than 15 % off, and plots in DIR/reproduction. A single paper goes to DIR/tip1994.md, DIR/tip1995.md \
or DIR/collective1999.md instead, the comparators go to DIR/comparators.md, and predictive caching to \
DIR/predictive.md. If a page of the \
papers exists already, its part below this line is kept:
  <!-- what follows is not written by foretell sim reproduce -->";

/// The line that ends the generated part of a page.
const KEPT_FROM: &str = "<!-- what follows is not written by foretell sim reproduce -->";

/// The text by which a wholly generated page is recognised.
const OURS: &str = "Written by `foretell sim reproduce ";

#[derive(Args)]
pub(crate) struct ReproduceArgs {
    /// What to reproduce
    #[arg(value_enum)]
    what: What,

    /// Write the figures to FILE as JSON (- for standard output, in place of the tables)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,

    /// Write a page with tables and plots to the folder DIR
    #[arg(long, value_name = "DIR")]
    out: Option<PathBuf>,
}

#[derive(Clone, Copy, ValueEnum)]
enum What {
    /// Patterson and Gibson, "Exposing I/O Concurrency with Informed Prefetching", 1994: tables 1 to 3
    Tip1994,
    /// Patterson et al., "Informed Prefetching and Caching", 1995: figures 1 to 3, 10 and 11
    Tip1995,
    /// Madhyastha et al., "Informed Prefetching of Collective Input/Output Requests", 1999: tables 4 to 6, figures 7 to 9
    Collective,
    /// Every policy on the programs of TIP 1995 and on pairs of them, with 1 to 15 disks and three cache sizes
    Comparators,
    /// Griffioen and Appleton, "Improving File System Performance via Predictive Caching", 1995, on this project's recordings
    Predictive,
    /// All of these
    All,
}

impl What {
    fn holds(self, experiment: &Experiment) -> bool {
        match self {
            What::Tip1994 => experiment.paper == "tip1994",
            What::Tip1995 => experiment.paper == "tip1995",
            What::Collective => experiment.paper == "collective",
            What::Comparators | What::Predictive => false,
            What::All => true,
        }
    }

    /// Its name on the command line.
    fn name(self) -> &'static str {
        match self {
            What::Tip1994 => "tip1994",
            What::Tip1995 => "tip1995",
            What::Collective => "collective",
            What::Comparators => "comparators",
            What::Predictive => "predictive",
            What::All => "all",
        }
    }

    /// The file of the papers' page. Only the whole is `reproduction.md`, so that a part never replaces it.
    fn papers_page(self) -> Option<&'static str> {
        match self {
            What::Tip1994 => Some("tip1994.md"),
            What::Tip1995 => Some("tip1995.md"),
            What::Collective => Some("collective1999.md"),
            What::Comparators | What::Predictive => None,
            What::All => Some("reproduction.md"),
        }
    }

    fn has_comparators(self) -> bool {
        matches!(self, What::Comparators | What::All)
    }

    fn has_predictive(self) -> bool {
        matches!(self, What::Predictive | What::All)
    }
}

/// The pages that `--out` writes at the end. They are opened before anything runs, so that a wrong path shows at once.
struct Pages {
    folder: PathBuf,
    /// The page, and the part of the existing page that is kept.
    papers: Option<(OutputFile, String)>,
    comparators: Option<OutputFile>,
    predictive: Option<OutputFile>,
}

impl Pages {
    /// Opens the pages; an error names the file.
    fn open(folder: &Path, what: What) -> Result<Self, String> {
        let made = missing(folder);
        fs::create_dir_all(folder).map_err(|error| match error.kind() {
            ErrorKind::AlreadyExists => format!("{}: is not a folder", folder.display()),
            _ => format!("{}: {error}", folder.display()),
        })?;
        // The folders are made again when the pages are written: if the run is ended before, no empty folder is left.
        let pages = Pages::open_in(folder, what);
        made.iter().for_each(|folder| drop(fs::remove_dir(folder)));
        pages
    }

    /// As [`open`](Self::open), in an existing folder.
    fn open_in(folder: &Path, what: What) -> Result<Self, String> {
        let papers = what.papers_page().map(|name| {
            let path = folder.join(name);
            let kept = kept(&path)?;
            Ok::<_, String>((OutputFile::open(&path)?, kept))
        });
        let generated = |is_there: bool, name| {
            let open = || {
                let path = folder.join(name);
                before(&path, OURS)?;
                OutputFile::open(&path)
            };
            is_there.then(open).transpose()
        };
        let papers = papers.transpose()?;
        let comparators = generated(what.has_comparators(), COMPARATORS_PAGE)?;
        let predictive = generated(what.has_predictive(), PREDICTIVE_PAGE)?;
        let plots = folder.join(PLOTS);
        if (papers.is_some() || predictive.is_some()) && plots.exists() && !plots.is_dir() {
            return Err(format!(
                "{}: is not a folder, and plots are to be put there",
                plots.display()
            ));
        }
        Ok(Pages { folder: folder.to_owned(), papers, comparators, predictive })
    }

    fn write(self, what: What, results: &Results) -> Result<(), String> {
        let make = |folder: &Path| {
            fs::create_dir_all(folder).map_err(|error| format!("{}: {error}", folder.display()))
        };
        make(&self.folder)?;
        let plots = self.folder.join(PLOTS);
        let draw = |figures: &[Figure]| {
            make(&plots)?;
            figures.iter().try_for_each(|figure| {
                let path = plots.join(format!("{}.svg", figure.name));
                OutputFile::open(&path)?.write(figure.plot.svg().as_bytes())
            })
        };
        if let Some((page, kept)) = self.papers {
            draw(&results.papers.figures)?;
            let text = page::markdown(&results.papers, what.name(), PLOTS);
            page.write(format!("{text}{kept}\n").as_bytes())?;
        }
        if let Some(page) = self.comparators {
            let text = comparators::markdown(&results.comparators);
            let text = text + &pairs::markdown(&results.pairs);
            page.write(text.as_bytes())?;
        }
        if let Some(page) = self.predictive {
            draw(&predictive::figures(&results.predictive))?;
            page.write(predictive::markdown(&results.predictive, PLOTS).as_bytes())?;
        }
        Ok(())
    }
}

/// The missing ones of `folder` and its parents, innermost first.
fn missing(folder: &Path) -> Vec<PathBuf> {
    let names = folder.ancestors().filter(|name| !name.as_os_str().is_empty());
    names.take_while(|name| name.symlink_metadata().is_err()).map(Path::to_owned).collect()
}

/// The part of the page at `path` that is not generated. An error names the file.
fn kept(path: &Path) -> Result<String, String> {
    let before = before(path, KEPT_FROM)?;
    Ok(before.find(KEPT_FROM).map_or(KEPT_FROM, |at| before[at..].trim_end()).to_owned())
}

/// The text of the page at `path`, empty if there is none. A page without `sign` is not ours and is refused. An error names the
/// file.
fn before(path: &Path, sign: &str) -> Result<String, String> {
    let before = match fs::read_to_string(path) {
        Ok(text) => text,
        Err(error) if error.kind() == ErrorKind::NotFound => String::new(),
        Err(error) => return Err(format!("{}: {error}", path.display())),
    };
    if !before.is_empty() && !before.contains(sign) {
        return Err(format!(
            "{}: not written by foretell sim reproduce; give another DIR to --out, or move the file away",
            path.display()
        ));
    }
    Ok(before)
}

/// All results that were asked for.
#[derive(Default, Serialize)]
struct Results {
    /// Cells and figures of the papers.
    #[serde(rename = "cells", serialize_with = "cells")]
    papers: Outcome,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    comparators: Vec<Compared>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    pairs: Vec<Pair>,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    predictive: Vec<predictive::Row>,
}

fn cells<S: serde::Serializer>(outcome: &Outcome, serializer: S) -> Result<S::Ok, S::Error> {
    outcome.cells.serialize(serializer)
}

/// A part that runs on its own.
enum Part {
    Paper(&'static Experiment),
    Comparison(Subject, u64, usize),
    Pair([usize; 2]),
    Predictive(predictive::Part),
}

enum Done {
    Paper(Outcome),
    Comparison(Compared),
    Pair(Pair),
    Predictive(Vec<predictive::Row>),
}

pub(super) fn reproduce(args: &ReproduceArgs) -> Result<ExitCode, Failure> {
    let page = |name: Option<&str>| Some(args.out.as_ref()?.join(name?));
    let papers = page(args.what.papers_page());
    let comparators = page(args.what.has_comparators().then_some(COMPARATORS_PAGE));
    let predictive = page(args.what.has_predictive().then_some(PREDICTIVE_PAGE));
    let written = [
        ("the page", predictive.as_deref()),
        ("the page", papers.as_deref()),
        ("the page", comparators.as_deref()),
        ("--json", args.json.as_deref()),
    ];
    check_outputs(&[], &written)?;
    let json = Figures::open(args.json.as_deref())?;
    let failed = |error| Failure::failed(format!("--out: {error}"));
    let pages = args.out.as_deref().map(|folder| Pages::open(folder, args.what));
    let pages = pages.transpose().map_err(failed)?;
    let results = run(args.what);
    let paged = pages.map_or(Ok(()), |pages| pages.write(args.what, &results));
    let text = || serde_json::to_string(&results).map_err(Failure::failed);
    json.deliver(paged.map_err(failed), text, || show(&results))
}

/// Prints the tables.
fn show(results: &Results) -> Result<(), Failure> {
    let cells = &results.papers.cells;
    if !cells.is_empty() {
        page::lines(cells).iter().try_for_each(|line| say(line))?;
        say("")?;
        page::summary(cells).iter().try_for_each(|line| say(line))?;
        page::legend(cells).iter().try_for_each(|line| say(line))?;
    }
    if !results.comparators.is_empty() {
        say("")?;
        say(COMPARED)?;
        comparators::lines(&results.comparators).iter().try_for_each(|line| say(line))?;
        say("")?;
        say(&comparators::summary(&results.comparators))?;
        say(&pairs::summary(&results.pairs))?;
    }
    if !results.predictive.is_empty() {
        say("")?;
        predictive::lines(&results.predictive).iter().try_for_each(|line| say(line))?;
        say("")?;
        predictive::summary(&results.predictive).iter().try_for_each(|line| say(line))?;
    }
    Ok(())
}

fn run(what: What) -> Results {
    let papers = EXPERIMENTS.iter().filter(|experiment| what.holds(experiment)).map(Part::Paper);
    let mut parts: Vec<Part> = papers.collect();
    if what.has_comparators() {
        // The longest first, so that none of them runs alone at the end.
        parts.extend(pairs::places().into_iter().map(Part::Pair));
        let places = comparators::places().into_iter();
        parts.extend(places.map(|(subject, mb, disks)| Part::Comparison(subject, mb, disks)));
    }
    if what.has_predictive() {
        parts.extend(predictive::parts().into_iter().map(Part::Predictive));
    }
    let progress = progress();
    progress.set_length(parts.len() as u64);
    progress.set_message("tables and figures");
    let done = on_all_processors(&parts, |part| {
        let done = match *part {
            Part::Paper(experiment) => Done::Paper((experiment.run)()),
            Part::Comparison(subject, mb, disks) => {
                Done::Comparison(comparators::compare(subject, mb, disks))
            }
            Part::Pair(programs) => Done::Pair(pairs::run(programs)),
            Part::Predictive(part) => Done::Predictive(predictive::measure(part)),
        };
        progress.inc(1);
        done
    });
    progress.finish_and_clear();
    let mut results = Results::default();
    for done in done {
        match done {
            Done::Paper(outcome) => results.papers.merge(outcome),
            Done::Comparison(compared) => results.comparators.push(compared),
            Done::Pair(pair) => results.pairs.push(pair),
            Done::Predictive(rows) => results.predictive.extend(rows),
        }
    }
    results
}

/// The heading of the comparators' table.
const COMPARED: &str = "How far foretell lags behind the best of the other policies, in per cent of elapsed time; below 0, it is ahead:";
const COMPARATORS_PAGE: &str = "comparators.md";
const PREDICTIVE_PAGE: &str = "predictive.md";
/// The folder of the plots, beside the page.
const PLOTS: &str = "reproduction";
