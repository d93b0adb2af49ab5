//! `foretell learned import`: learns from a list, or from another machine.

use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs;
use std::io::{self, Read};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;

use clap::{Args, ValueEnum};
use foretell_manager::learn::codec::{self, MAGIC, PROFILE_MAX_BYTES};
use foretell_manager::learn::import::{self, Moves, There};
use foretell_manager::learn::private::Private;
use foretell_manager::learn::profile::{Kind, Profile};
use foretell_manager::learn::steps::Acts;
use foretell_manager::learn::workload::{Workload, cut};

use super::{LABEL_MAX, counted, hex, quoted, store};
use crate::failure::{Failure, note, without_controls};
use crate::standard_output::say;
use crate::{input_file, state};

pub(super) const HELP: &str = "\
A list has a path a line; relative ones lie in --root. It needs a workload: either --workload NAME, for \
runs with the same option, or the command behind --, which is run in this folder. What another machine \
has exported goes to the same command in the same folder, unless one of both is given.

Examples:
  foretell learned import files.txt -- ./serve --port 80
  foretell learned import serve.foretell --map /home/a/data=/data --workload serve";

/// Files looked up at once, to see what there is.
const LOOKUPS: usize = 16;

#[derive(Args)]
pub(super) struct ImportArgs {
    /// What is read (- for standard input)
    file: PathBuf,

    /// What it is; without this, it is seen from its beginning
    #[arg(long, value_name = "FORMAT")]
    format: Option<Format>,

    /// Paths below OLD are below NEW here; may be given several times
    #[arg(long, value_name = "OLD=NEW", value_parser = clap::builder::OsStringValueParser::new())]
    map: Vec<OsString>,

    /// The folder of relative paths in a list, in place of this one
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// The workload of runs with this name
    #[arg(long, value_name = "NAME", conflicts_with = "command")]
    workload: Option<String>,

    /// Take the place of what is learned already
    #[arg(long)]
    replace: bool,

    /// The workload of this command, run in this folder
    #[arg(last = true, value_name = "COMMAND")]
    command: Vec<OsString>,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    List,
    Foretell,
}

pub(super) fn import(args: &ImportArgs) -> Result<(), Failure> {
    let moves = moves(&args.map)?;
    let (store, folder) = store()?;
    let named = args.file.display();
    let bytes = read(&args.file).map_err(|error| Failure::failed(format!("{named}: {error}")))?;
    let private = state::private(&folder).map_err(Failure::failed)?;
    let seen = if bytes.starts_with(MAGIC) { Format::Foretell } else { Format::List };
    let (key, mut profile) = match args.format.unwrap_or(seen) {
        Format::List => of_list(&bytes, &moves, &private, args)?,
        Format::Foretell => of_foretell(&bytes, &moves, &private, args)?,
    };
    let all = profile.steps.len();
    profile.steps.retain(|step| !private.has(&step.path));
    let secret = all - profile.steps.len();
    if profile.steps.is_empty() {
        return Err(Failure::failed(format!("{named}: has no path that may be learned")));
    }
    let mut is_kept = false;
    let (files, steps, label) = (files(&profile), profile.steps.len(), profile.name.clone());
    store
        .update(&key, &label, |known| {
            is_kept = known.runs + known.steps.len() as u32 > 0 && !args.replace;
            if !is_kept {
                *known = profile;
            }
        })
        .map_err(Failure::failed)?;
    let (hex, label) = (hex(&key), quoted(&without_controls(&cut(&label, LABEL_MAX))));
    if is_kept {
        return Err(Failure::failed(format!(
            "{label}: is known already ({hex}); --replace has the file take its place"
        )));
    }
    tell_of_missing(&files);
    if secret > 0 {
        let paths = counted(secret, "path");
        note(format!("left out: {paths} never to be learned (/proc, secrets, private ones)"));
    }
    say(&format!("learned {hex} {label}: {}", counted(steps, "step")))
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    if path != Path::new("-") {
        return input_file::read(path, PROFILE_MAX_BYTES as u64);
    }
    let mut bytes = Vec::new();
    io::stdin().take(PROFILE_MAX_BYTES as u64 + 1).read_to_end(&mut bytes)?;
    match bytes.len() > PROFILE_MAX_BYTES {
        true => Err(io::Error::other("is too large")),
        false => Ok(bytes),
    }
}

fn moves(map: &[OsString]) -> Result<Moves, Failure> {
    let pair = |word: &OsString| {
        let bytes = word.as_bytes();
        let at = bytes.iter().position(|&byte| byte == b'=');
        let pair = at.map(|at| (bytes[..at].to_vec(), bytes[at + 1..].to_vec()));
        pair.filter(|(old, new)| old.starts_with(b"/") && new.starts_with(b"/")).ok_or_else(|| {
            let word = word.display();
            Failure::usage(format!("--map: '{word}' is not OLD=NEW, two absolute folders"))
        })
    };
    Ok(Moves::new(map.iter().map(pair).collect::<Result<Vec<_>, _>>()?.into_iter()))
}

/// The workload that the user gives.
fn given(args: &ImportArgs, private: &Private) -> Result<Option<Workload>, Failure> {
    if let Some(name) = &args.workload {
        return Ok(Some(Workload::named(name)));
    }
    if args.command.is_empty() {
        return Ok(None);
    }
    let folder = std::env::current_dir()
        .map_err(|error| Failure::failed(format!("the working folder: {error}")))?;
    Ok(Some(Workload::of_command(&args.command, &folder, private)))
}

fn of_list(
    bytes: &[u8],
    moves: &Moves,
    private: &Private,
    args: &ImportArgs,
) -> Result<(Vec<u8>, Profile), Failure> {
    let named = args.file.display();
    let Some(workload) = given(args, private)? else {
        return Err(Failure::usage(
            "a list needs a workload: --workload NAME, or the command behind --",
        ));
    };
    let root = std::path::absolute(args.root.as_deref().unwrap_or(Path::new(".")))
        .map_err(|error| Failure::failed(format!("--root: {error}")))?;
    let list = import::paths(bytes, root.as_os_str().as_bytes())
        .map_err(|(line, why)| Failure::failed(format!("{named}: line {line} {why}")))?;
    if list.left_out > 0 {
        let lines = counted(list.left_out, "line");
        note(format!("{named}: {lines} left out, beyond what is learned of a run"));
    }
    let moved = |path: Arc<[u8]>| moves.of(&path).map_or(path, Into::into);
    let paths: Vec<Arc<[u8]>> = list.paths.into_iter().map(moved).collect();
    let there = look(&paths);
    let mut profile = import::profile(workload.name.clone(), paths.into_iter().zip(there));
    (profile.kind, profile.folder) = (workload.kind, workload.folder);
    Ok((workload.exact, profile))
}

fn of_foretell(
    bytes: &[u8],
    moves: &Moves,
    private: &Private,
    args: &ImportArgs,
) -> Result<(Vec<u8>, Profile), Failure> {
    let named = args.file.display();
    if args.root.is_some() {
        return Err(Failure::usage("--root is for lists; --map OLD=NEW moves paths"));
    }
    let decoded = codec::decode(bytes);
    let (key, mut profile) = decoded.map_err(|damage| {
        Failure::failed(format!("{named}: {damage}; export it again with --format foretell"))
    })?;
    let folder = profile.folder.clone();
    moves.apply(&mut profile);
    profile.last = None;
    if let Some(workload) = given(args, private)? {
        (profile.name, profile.kind, profile.folder) =
            (workload.name, workload.kind, workload.folder);
        return Ok((workload.exact, profile));
    }
    if profile.kind == Kind::Exact && profile.folder != folder {
        let folder = String::from_utf8_lossy(&folder).into_owned();
        return Err(Failure::usage(format!(
            "it is of a command in {folder}, which --map moves: give the command behind -- in its new folder, or --workload NAME"
        )));
    }
    Ok((key, profile))
}

/// What is at each path. The lookups of many files may take long each, so several are under way.
fn look(paths: &[Arc<[u8]>]) -> Vec<There> {
    let there = |path: &Arc<[u8]>| match fs::metadata(OsStr::from_bytes(path)) {
        Ok(about) if about.is_dir() => There::Folder,
        Ok(about) => There::File(about.len()),
        Err(_) => There::Unknown,
    };
    let part = paths.len().div_ceil(LOOKUPS).max(1);
    thread::scope(|scope| {
        let parts: Vec<_> = paths
            .chunks(part)
            .map(|part| {
                let look = move || part.iter().map(there).collect::<Vec<_>>();
                (part, thread::Builder::new().spawn_scoped(scope, look).ok())
            })
            .collect();
        let looked = parts.into_iter().flat_map(|(part, thread)| {
            let looked = thread.and_then(|thread| thread.join().ok());
            looked.unwrap_or_else(|| vec![There::Unknown; part.len()])
        });
        looked.collect()
    })
}

/// The paths that are expected to be there, each once.
fn files(profile: &Profile) -> Vec<Arc<[u8]>> {
    let mut seen = HashSet::new();
    let likely = profile.steps.iter().filter(|step| step.is_likely() && !step.acts.has(Acts::FAIL));
    likely.filter(|step| seen.insert(&step.path)).map(|step| Arc::clone(&step.path)).collect()
}

/// Tells how many of the paths are not here: a folder may have to be mapped.
fn tell_of_missing(paths: &[Arc<[u8]>]) {
    let missing = look(paths).iter().filter(|there| **there == There::Unknown).count();
    if missing > 0 {
        let all = paths.len();
        note(format!(
            "{missing} of {all} paths are not on this machine; --map OLD=NEW has folders moved"
        ));
    }
}
