//! What a store reads from.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use foretell_cache::backend::local::LocalBackend;
use foretell_cache::backend::{
    self, AddressError, AddressOptions, Addressed, Backend, BackendError, Environment, Opened,
};
use foretell_cache::tier::fleet::Fleet;

use crate::recipe::{Place, Recipe};

/// The back end of a store.
#[derive(Clone)]
pub enum Source {
    /// A folder.
    Folder(Arc<LocalBackend>),
    /// A store that an address names, and the tier in front of it.
    Objects(Arc<dyn Addressed>, Option<Behind>),
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Source::Folder(_) => "Folder",
            Source::Objects(..) => "Objects",
        })
    }
}

/// A store behind a tier that many machines share.
#[derive(Clone)]
pub struct Behind {
    backend: Arc<dyn Backend>,
    fleet: Arc<Fleet>,
}

/// Why a store could not be opened.
#[derive(Debug)]
pub enum SourceError {
    /// The folder is none, or cannot be read.
    Folder(std::io::Error),
    /// The address or a setting is wrong.
    Address(AddressError),
}

impl std::fmt::Display for SourceError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            SourceError::Folder(error) => error.fmt(f),
            SourceError::Address(error) => error.fmt(f),
        }
    }
}

impl Source {
    /// Opens what a recipe names. `environment`: that of another process for which it is read. May wait. A folder has no tier:
    /// its files have no version that other machines know.
    ///
    /// # Errors
    /// [`SourceError`]
    pub fn of(recipe: &Recipe, environment: Option<&Environment>) -> Result<Self, SourceError> {
        match &recipe.place {
            Place::Folder(_) if recipe.tier.is_some() => {
                let why = "a folder has no shared tier: its files have no version that other machines know";
                Err(SourceError::Folder(std::io::Error::new(std::io::ErrorKind::InvalidInput, why)))
            }
            Place::Folder(folder) => LocalBackend::new(folder, recipe.depth)
                .map(|folder| Source::Folder(Arc::new(folder)))
                .map_err(SourceError::Folder),
            Place::Address(address) => {
                let settings = recipe.settings.iter();
                let settings: Vec<(&str, &str)> =
                    settings.map(|(name, value)| (name.as_str(), value.as_str())).collect();
                let options = AddressOptions {
                    depth: recipe.depth,
                    deadline: recipe.deadline,
                    silence: None,
                    settings: &settings,
                    environment,
                };
                let named = backend::at(address, &options).map_err(SourceError::Address)?;
                let behind = recipe.tier.as_deref().map(|tier| {
                    let fleet = Fleet::open(tier, recipe.options.block_bytes, environment)?;
                    let origin = Arc::<dyn Addressed>::clone(&named.backend);
                    let backend = Arc::new(fleet.over(&named.identity, origin));
                    Ok(Behind { backend, fleet })
                });
                let behind = behind.transpose().map_err(SourceError::Address)?;
                Ok(Source::Objects(named.backend, behind))
            }
        }
    }

    /// The back end.
    pub fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Source::Folder(folder) => Arc::clone(folder) as _,
            Source::Objects(_, Some(behind)) => Arc::clone(&behind.backend),
            Source::Objects(objects, None) => Arc::<dyn Addressed>::clone(objects),
        }
    }

    /// The tier that many machines share.
    pub fn fleet(&self) -> Option<&Arc<Fleet>> {
        match self {
            Source::Objects(_, Some(behind)) => Some(&behind.fleet),
            _ => None,
        }
    }

    /// Prints trouble with the tier on standard error, a line at a time and rarely.
    pub fn tell_troubles(&self) {
        if let Some(fleet) = self.fleet() {
            fleet.on_trouble(|trouble| {
                // In one call, and whether it can be written or not.
                let line = format!("foretell: shared tier: {trouble}\n");
                let _ = std::io::Write::write_all(&mut std::io::stderr(), line.as_bytes());
            });
        }
    }

    /// Opens a file, and waits. The name of an object that is not UTF-8 is not found.
    ///
    /// # Errors
    /// As [`Backend::open`].
    pub fn open(&self, path: &OsStr) -> Result<Opened, BackendError> {
        match self {
            Source::Folder(folder) => folder.open_path(Path::new(path)),
            Source::Objects(..) => {
                self.backend().open(path.to_str().ok_or(BackendError::NotFound)?)
            }
        }
    }
}
