//! What a store reads from.

use std::ffi::OsStr;
use std::path::Path;
use std::sync::Arc;

use foretell_cache::backend::local::LocalBackend;
use foretell_cache::backend::{
    self, AddressError, AddressOptions, Addressed, Backend, BackendError, Environment, Opened,
};

use crate::recipe::{Place, Recipe};

/// The back end of a store.
#[derive(Clone)]
pub enum Source {
    /// A folder.
    Folder(Arc<LocalBackend>),
    /// A store that an address names.
    Objects(Arc<dyn Addressed>),
}

impl std::fmt::Debug for Source {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(match self {
            Source::Folder(_) => "Folder",
            Source::Objects(_) => "Objects",
        })
    }
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
    /// Opens what a recipe names. `environment`: that of another process for which it is read. May wait.
    ///
    /// # Errors
    /// [`SourceError`]
    pub fn of(recipe: &Recipe, environment: Option<&Environment>) -> Result<Self, SourceError> {
        match &recipe.place {
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
                Ok(Source::Objects(named.backend))
            }
        }
    }

    /// The back end.
    pub fn backend(&self) -> Arc<dyn Backend> {
        match self {
            Source::Folder(folder) => Arc::clone(folder) as _,
            Source::Objects(objects) => Arc::<dyn Addressed>::clone(objects),
        }
    }

    /// Opens a file, and waits. The name of an object that is not UTF-8 is not found.
    ///
    /// # Errors
    /// As [`Backend::open`].
    pub fn open(&self, path: &OsStr) -> Result<Opened, BackendError> {
        match self {
            Source::Folder(folder) => folder.open_path(Path::new(path)),
            Source::Objects(objects) => objects.open(path.to_str().ok_or(BackendError::NotFound)?),
        }
    }
}
