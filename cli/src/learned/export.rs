//! `foretell learned export`: a workload for other tools, or for another machine.

use std::io::{self, IsTerminal};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use clap::{Args, ValueEnum};
use foretell_manager::learn::codec;
use foretell_manager::learn::export::{self, Exported};

use super::{Named, counted, one, output, put, store};
use crate::failure::{Failure, note};

pub(super) const HELP: &str = "\
Formats:
  list      a path a line
  rules     lines for `foretell run --hints`, with the parts of files that are read
  nydus     patterns for the standard input of `nydusify convert --prefetch-patterns`
  estargz   the file of `nerdctl image convert --estargz-record-in`
  soci      the file of `soci create --prefetch-files-json`
  cvmfs     a bundle of CernVM-FS, to be published as .cvmfsbundle-NAME beside the file NAME
  foretell  all that is known, for `foretell learned import` on another machine

With --root DIR, paths begin at DIR, as in the image or the repository that lies there; other files \
are left out. Lists have the files that the next run is expected to read, in the order of first use.

Example:
  foretell learned export serve --format soci --root /mnt/rootfs -o prefetch.json";

#[derive(Args)]
pub(super) struct ExportArgs {
    #[command(flatten)]
    named: Named,

    /// What is written
    #[arg(long, default_value = "list", value_name = "FORMAT")]
    format: Format,

    /// Write paths as they are below DIR, and leave out what does not lie there
    #[arg(long, value_name = "DIR")]
    root: Option<PathBuf>,

    /// The file to write (- for standard output)
    #[arg(short, long, default_value = "-", value_name = "FILE")]
    output: PathBuf,
}

#[derive(Clone, Copy, PartialEq, Eq, ValueEnum)]
enum Format {
    List,
    Rules,
    Nydus,
    Estargz,
    Soci,
    Cvmfs,
    Foretell,
}

impl Format {
    fn list(self) -> Option<export::Format> {
        Some(match self {
            Format::List => export::Format::List,
            Format::Rules => export::Format::Rules,
            Format::Nydus => export::Format::Nydus,
            Format::Estargz => export::Format::Estargz,
            Format::Soci => export::Format::Soci,
            Format::Cvmfs => export::Format::Cvmfs,
            Format::Foretell => return None,
        })
    }
}

pub(super) fn export(args: &ExportArgs) -> Result<(), Failure> {
    let is_stdout = args.output == Path::new("-");
    if args.format == Format::Foretell && args.root.is_some() {
        return Err(Failure::usage(
            "--root: not with --format foretell; `foretell learned import --map OLD=NEW` moves paths",
        ));
    }
    if args.format == Format::Foretell && is_stdout && io::stdout().is_terminal() {
        return Err(Failure::usage("--format foretell is no text for a terminal; give -o FILE"));
    }
    let root = args.root.as_deref().map(folder).transpose()?;
    let file = output("-o", &args.output)?;
    let (store, _) = store()?;
    let (summary, profile) = one(&store, &args.named)?;
    let text = match args.format.list() {
        None => codec::encode(&summary.bytes_of_key, &profile),
        Some(format) => {
            let root = root.as_deref().map(|root| root.as_os_str().as_bytes());
            let exported = export::export(&profile, format, root);
            check(&exported, &summary.quoted_label(), args)?;
            exported.text
        }
    };
    put(file, &text)
}

/// The folder as an absolute path. Links in it stay, for paths are learned as programs name them.
fn folder(root: &Path) -> Result<PathBuf, Failure> {
    let absolute = std::path::absolute(root);
    absolute.map_err(|error| Failure::failed(format!("--root: {}: {error}", root.display())))
}

/// Says what is left out, and what is to be done with the list.
fn check(exported: &Exported, label: &str, args: &ExportArgs) -> Result<(), Failure> {
    let &Exported { entries, outside, unwritable, .. } = exported;
    if entries == 0 && outside > 0 {
        let root = args.root.as_deref().unwrap_or(Path::new("/")).display();
        return Err(Failure::failed(format!("--root: no file of {label} lies below {root}")));
    }
    if entries == 0 {
        return Err(Failure::failed(format!(
            "{label}: the next run is not expected to read a file that could be listed"
        )));
    }
    let parts: Vec<String> = [
        (outside > 0).then(|| format!("{} outside of the root", counted(outside, "file"))),
        (unwritable > 0)
            .then(|| format!("{} with no name for this format", counted(unwritable, "file"))),
    ]
    .into_iter()
    .flatten()
    .collect();
    if !parts.is_empty() {
        note(format!("left out: {}", parts.join(", ")));
    }
    if let Some(trigger) = &exported.trigger {
        let path = Path::new("/").join(trigger);
        let (folder, name) = (path.parent().unwrap_or(Path::new("/")), path.file_name());
        let name = format!(".cvmfsbundle-{}", name.unwrap_or_default().display());
        note(format!(
            "{} is opened first: publish the bundle as {}",
            path.display(),
            folder.join(name).display()
        ));
    }
    Ok(())
}
