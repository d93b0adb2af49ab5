//! `foretell rules`: files of rules, checked and explained; and what `foretell run --rules` needs of them.

mod meaning;

use std::env;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{Args, Subcommand};
use foretell_rules::{FILE_MAX_BYTES, Problem, Rules};
use serde::{Deserialize, Serialize};

use self::meaning::Meaning;
use crate::failure::{FAILED_BEFORE, Failure, note, written};
use crate::output_file::{self, OutputFile};
use crate::{input_file, signals};

pub(crate) const HELP: &str = "\
A file of rules says which files a program's run reads ahead, which parts of them, and how far; or that a file is left alone. \
`foretell profile` writes one from a recording, and `foretell run --rules FILE` follows it.";

const CHECK_HELP: &str = "\
Exit codes: 0 the rules are good; 1 they have mistakes, each told with its line and column, or cannot be read; 2 wrong usage.

Examples:
  foretell rules check rules.toml
  foretell rules check rules.toml --path data/run7.h5";

#[derive(Args)]
pub(crate) struct RulesArgs {
    #[command(subcommand)]
    command: Command,
}

#[derive(Subcommand)]
enum Command {
    /// Tell what a file of rules means, or its mistakes: foretell rules check rules.toml --path data/run7.h5
    #[command(after_help = CHECK_HELP)]
    Check(CheckArgs),
}

#[derive(Args)]
struct CheckArgs {
    /// The file of rules (- for standard input)
    file: PathBuf,

    /// Tell which rule applies to the file PATH; may be given several times
    #[arg(long = "path", value_name = "PATH")]
    paths: Vec<PathBuf>,

    /// Write what the file means to FILE as JSON (- for standard output, in place of the lines)
    #[arg(long, value_name = "FILE")]
    json: Option<PathBuf>,
}

pub(crate) fn rules(args: &RulesArgs) -> Result<ExitCode, Failure> {
    let Command::Check(args) = &args.command;
    check(args)
}

fn check(args: &CheckArgs) -> Result<ExitCode, Failure> {
    let written_to = args.json.as_deref().map(|to| ("--json", to));
    let outputs: Vec<_> = written_to.into_iter().collect();
    output_file::check_apart(&[("the file of rules", &args.file)], &outputs)
        .map_err(Failure::usage)?;
    let json = OutputFile::of_option("--json", args.json.as_deref()).map_err(Failure::failed)?;
    let name = name_of(&args.file);
    let content =
        content(&args.file).map_err(|error| Failure::failed(format!("{name}: {error}")))?;
    let rules = parsed(&content);
    let meaning = Meaning::new(rules.as_ref().map_err(Vec::as_slice), &args.paths);
    if let Some(file) = json {
        file.write_json(&meaning).map_err(Failure::failed)?;
    }
    if let Err(problems) = rules {
        return Err(told(&name, &problems, Failure::failed));
    }
    if args.json.as_deref() != Some(Path::new("-")) {
        written(io::stdout().write_all(meaning.lines(&name).as_bytes()))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// The rules of a file, for a run.
///
/// # Errors
/// Mistakes, of which all but the last are told already.
pub(crate) fn load(path: &Path) -> Result<RulesPlan, Failure> {
    if path.as_os_str() == "-" {
        return Err(Failure::usage("--rules: standard input is the program's; give a file"));
    }
    let name = name_of(path);
    let failed = |line: String| Failure { code: FAILED_BEFORE, line: format!("--rules: {line}") };
    let content = content(path).map_err(|error| failed(format!("{name}: {error}")))?;
    parsed(&content).map_err(|problems| told(&name, &problems, failed))?;
    Ok(RulesPlan { content, home: env::var("HOME").ok() })
}

/// As [`load`], with all mistakes returned.
pub(crate) fn load_quietly(path: &Path) -> Result<RulesPlan, Vec<String>> {
    let name = name_of(path);
    let content = content(path).map_err(|error| vec![format!("{name}: {error}")])?;
    match parsed(&content) {
        Ok(_) => Ok(RulesPlan { content, home: env::var("HOME").ok() }),
        Err(problems) => Err(problems.iter().map(|problem| format!("{name}: {problem}")).collect()),
    }
}

/// Rules without mistakes, in a form that can be given to another process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub(crate) struct RulesPlan {
    content: Vec<u8>,
    /// What `~` stands for.
    home: Option<String>,
}

impl RulesPlan {
    /// `None` if they have mistakes after all.
    pub(crate) fn rules(&self) -> Option<Rules> {
        Rules::parse(&self.content, self.home.as_deref()).ok()
    }
}

fn parsed(content: &[u8]) -> Result<Rules, Vec<Problem>> {
    let home = env::var("HOME").ok();
    Rules::parse(content, home.as_deref())
}

/// Tells all mistakes but the last one, which is the failure.
fn told(name: &str, problems: &[Problem], failed: impl Fn(String) -> Failure) -> Failure {
    let failure = |problem: &Problem| failed(format!("{name}: {problem}"));
    let Some((last, others)) = problems.split_last() else {
        return failed(format!("{name}: has mistakes"));
    };
    others.iter().for_each(|problem| note(failure(problem).line));
    failure(last)
}

fn name_of(path: &Path) -> String {
    match path.as_os_str() == "-" {
        true => "standard input".to_owned(),
        false => path.display().to_string(),
    }
}

fn content(path: &Path) -> io::Result<Vec<u8>> {
    if path.as_os_str() != "-" {
        return input_file::read(path, FILE_MAX_BYTES as u64);
    }
    signals::was_open(0)?;
    let mut content = Vec::new();
    // One byte more, so that a content that is too long is told.
    io::stdin().take(FILE_MAX_BYTES as u64 + 1).read_to_end(&mut content)?;
    Ok(content)
}
