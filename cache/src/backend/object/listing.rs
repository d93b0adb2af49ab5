//! Listings of object stores, a page at a time where the store tells them so: all of a bucket is never held at once.

use std::collections::HashSet;
use std::sync::Arc;

use object_store::ObjectStore;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::{DELIMITER, Path};
use tokio::runtime::Handle;

use super::{ObjectOptions, info, wait_for};
use crate::backend::{BackendError, Entry, Found, Listing};

/// Where a listing has come to.
#[derive(Clone)]
pub(super) struct ObjectListing {
    pub(super) store: Arc<dyn ObjectStore>,
    pub(super) pages: Option<Arc<dyn PaginatedListStore>>,
    pub(super) location: Path,
    /// What the next page is asked for with; none at the end.
    pub(super) next: Option<Option<String>>,
    /// There is an object that stands for the folder itself.
    pub(super) is_there: bool,
}

impl ObjectListing {
    /// The next page, of at most so many entries; empty at the end.
    pub(super) async fn page(
        &mut self,
        most: Option<usize>,
    ) -> Result<Vec<Entry>, object_store::Error> {
        while let Some(page_token) = self.next.clone() {
            let (found, next) = match &self.pages {
                Some(pages) => {
                    let prefix = match self.location.as_ref() {
                        "" => String::new(),
                        location => format!("{location}{DELIMITER}"),
                    };
                    let options = PaginatedListOptions {
                        delimiter: Some(DELIMITER.into()),
                        max_keys: most,
                        page_token,
                        ..PaginatedListOptions::default()
                    };
                    let page = pages.list_paginated(Some(&prefix), options).await?;
                    (page.result, page.page_token.map(Some))
                }
                None => (self.store.list_with_delimiter(Some(&self.location)).await?, None),
            };
            self.next = next;
            let (folders, mut objects) = (found.common_prefixes, found.objects);
            let count = objects.len();
            // An object whose name ends with a slash stands for the folder itself.
            objects.retain(|meta| meta.location != self.location);
            self.is_there |= objects.len() < count;
            // What is a file and a folder is found as a folder.
            let names: HashSet<Path> = folders.iter().cloned().collect();
            let folders = folders.into_iter().map(|path| (path, Found::Folder));
            let files = objects
                .into_iter()
                .filter(|meta| !names.contains(&meta.location))
                .map(|meta| (meta.location.clone(), Found::File(info(meta))));
            let entries: Vec<Entry> = folders
                .chain(files)
                .filter_map(|(path, found)| {
                    Some(Entry { name: path.filename()?.to_owned(), found })
                })
                .collect();
            if !entries.is_empty() {
                return Ok(entries);
            }
        }
        Ok(Vec::new())
    }
}

/// A listing that waits for its pages.
pub(super) struct Pages {
    pub(super) lister: ObjectListing,
    handle: Handle,
    options: ObjectOptions,
    /// Entries that have been asked for already.
    pub(super) first: Vec<Entry>,
}

impl Pages {
    pub(super) fn new(lister: ObjectListing, handle: Handle, options: ObjectOptions) -> Self {
        Pages { lister, handle, options, first: Vec::new() }
    }
}

impl Listing for Pages {
    fn next_entries(&mut self) -> Result<Vec<Entry>, BackendError> {
        if !self.first.is_empty() {
            return Ok(std::mem::take(&mut self.first));
        }
        let lister = self.lister.clone();
        let (entries, lister) = wait_for((&self.handle, self.options), move || {
            let mut lister = lister.clone();
            async move { Ok((lister.page(None).await?, lister)) }
        })?;
        self.lister = lister;
        Ok(entries)
    }
}
