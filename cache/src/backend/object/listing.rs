//! Listings of object stores. Where the store lists in pages, only a page is held at a time, never all of a bucket.
//!
//! **A name that is a file and a folder** (keys `a` and `a/b`) is listed once, as a folder. Keys are in byte order, so
//! `a/` may be on a later page than `a`: `a-b` and `a.txt` lie between them. So a file is *held back* until the page's
//! last key is at or after `a/`. All keys in between begin with `a`, so the files held back at a time are prefixes of
//! one key, and few.
//!
//! **Keys that cannot be a path** (`a//b`, `.`, `..`, control characters). The crate refuses a page with such a key and
//! names the key. The page is requested again with a quarter of the entries until it lacks the key, or the key is alone
//! on it. In the latter case the listing skips the key (`start-after`), and pages grow again. A store that ignores
//! `start-after` would begin anew: this is noticed, and the listing fails.

use std::collections::HashSet;
use std::sync::Arc;

use futures_util::TryStreamExt;
use object_store::list::{PaginatedListOptions, PaginatedListStore};
use object_store::path::{DELIMITER, Error as PathError, Path};
use object_store::{ListResult, ObjectStore};
use tokio::runtime::Handle;

use super::options::ObjectOptions;
use super::tries::wait_for;
use super::versions::info;
use crate::backend::{BackendError, Entry, Found, LeftOut, Listing};

/// Entries on a page, at most: the limit of the stores.
const PAGE_ENTRIES: usize = 1000;
/// Factor by which pages shrink at a refused key, and grow again after it.
const PAGE_STEP: usize = 4;

/// The longest key: the limit of the stores.
const KEY_MAX_BYTES: usize = 1024;

/// What a listing contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Shape {
    /// Each name in the folder, once.
    Names,
    /// Keys and prefixes up to the next slash, as the store has them.
    Keys,
    /// All keys below the folder, by their paths within it.
    AllKeys,
}

/// A listing, and how far it has come.
#[derive(Clone)]
pub(super) struct ObjectListing {
    store: Arc<dyn ObjectStore>,
    pages: Option<Arc<dyn PaginatedListStore>>,
    location: Path,
    shape: Shape,
    /// Where the next page begins; `None` at the end.
    next: Option<Start>,
    /// Entries on the next page, if fewer than the store's own number.
    most: Option<usize>,
    /// Files that may turn out to be folders as well.
    held_back: Vec<Entry>,
    left_out: LeftOut,
    /// A key that was refused and lies ahead. Pages do not grow until it has been passed.
    ahead: Option<String>,
    /// The key that was skipped last.
    behind: Option<String>,
    /// Something is in the folder: an entry, an object that stands for the folder, or a key that cannot be named.
    is_there: bool,
}

#[derive(Clone)]
enum Start {
    Beginning,
    /// With the token that the page before it gave.
    Token(String),
    /// After this key.
    Behind(String),
}

impl ObjectListing {
    /// A listing of the folder at `location`, in pages of at most `most` entries.
    pub(super) fn new(
        (store, pages): (Arc<dyn ObjectStore>, Option<Arc<dyn PaginatedListStore>>),
        location: Path,
        most: Option<usize>,
    ) -> Self {
        ObjectListing {
            store,
            pages,
            location,
            shape: Shape::Names,
            next: Some(Start::Beginning),
            most,
            held_back: Vec::new(),
            left_out: LeftOut::default(),
            ahead: None,
            behind: None,
            is_there: false,
        }
    }

    /// Sets what the listing contains, before it has begun.
    pub(super) fn shaped(mut self, shape: Shape) -> Self {
        self.shape = shape;
        self
    }

    pub(super) fn is_at_end(&self) -> bool {
        self.next.is_none()
    }

    /// Requests one page. Returns the entries that are known now; there may be none before the end.
    pub(super) async fn step(&mut self) -> Result<Vec<Entry>, object_store::Error> {
        let Some(start) = self.next.clone() else { return Ok(Vec::new()) };
        let Some(pages) = &self.pages else {
            if self.shape == Shape::AllKeys {
                let objects = self.store.list(Some(&self.location)).try_collect().await?;
                let common_prefixes = Vec::new();
                let found = ListResult { common_prefixes, objects, extensions: Default::default() };
                return self.entries_of(found, None);
            }
            let found = self.store.list_with_delimiter(Some(&self.location)).await?;
            return self.entries_of(found, None);
        };
        let prefix = match self.location.as_ref() {
            "" => String::new(),
            location => format!("{location}{DELIMITER}"),
        };
        let (page_token, offset) = match start {
            Start::Beginning => (None, None),
            Start::Token(token) => (Some(token), None),
            Start::Behind(key) => (None, Some(key)),
        };
        let options = PaginatedListOptions {
            delimiter: (self.shape != Shape::AllKeys).then(|| DELIMITER.into()),
            max_keys: self.most,
            page_token,
            offset,
            ..PaginatedListOptions::default()
        };
        match pages.list_paginated(Some(&prefix), options).await {
            Ok(page) => self.entries_of(page.result, page.page_token),
            Err(error) => match refused_key(&error) {
                Some(key) if self.behind.as_ref() == Some(&key) => Err(begins_anew(&key)),
                Some(key) => {
                    self.pass_by(key);
                    Ok(Vec::new())
                }
                None => Err(error),
            },
        }
    }

    /// Handles the refusal of a page because of this key.
    fn pass_by(&mut self, key: String) {
        self.is_there = true;
        let most = self.most.unwrap_or(PAGE_ENTRIES);
        self.most = Some((most / PAGE_STEP).max(1));
        if most > 1 {
            self.ahead = Some(key);
            return;
        }
        // The key is alone on the page: skip it.
        let key = match self.shape {
            Shape::AllKeys => up_to_no_name(&key).to_owned(),
            Shape::Names | Shape::Keys => key,
        };
        let mut from = key.clone();
        if key.ends_with(DELIMITER) {
            // Skips all keys with a prefix: no real key begins with so many of the greatest character.
            let room = KEY_MAX_BYTES.saturating_sub(key.len()) / char::MAX.len_utf8();
            from.extend(std::iter::repeat_n(char::MAX, room.clamp(1, 8)));
        }
        self.next = Some(Start::Behind(from));
        self.left_out.add(key.clone());
        self.ahead = None;
        self.behind = Some(key);
    }

    /// The entries of a page, and files held back that the page has settled.
    fn entries_of(
        &mut self,
        found: ListResult,
        token: Option<String>,
    ) -> Result<Vec<Entry>, object_store::Error> {
        let keys = found.objects.iter().map(|meta| meta.location.to_string());
        let prefixes = found.common_prefixes.iter().map(|path| format!("{path}{DELIMITER}"));
        let (first, last) =
            keys.chain(prefixes).fold((None::<String>, None::<String>), |(first, last), key| {
                let is_first = first.as_ref().is_none_or(|first| key < *first);
                let first = if is_first { Some(key.clone()) } else { first };
                (first, last.max(Some(key)))
            });
        if let (Some(behind), Some(first)) = (&self.behind, &first)
            && first <= behind
        {
            return Err(begins_anew(behind));
        }
        self.next = token.map(Start::Token);
        self.ahead =
            self.ahead.take().filter(|ahead| last.as_ref().is_none_or(|last| last < ahead));
        if self.ahead.is_none() {
            self.most = self.most.map(|most| most * PAGE_STEP).filter(|&most| most < PAGE_ENTRIES);
        }
        let mut entries = Vec::new();
        for path in found.common_prefixes {
            let Some(name) = path.filename() else {
                self.left_out.add(DELIMITER.to_owned()); // Keys that begin with a slash.
                self.is_there = true;
                continue;
            };
            self.held_back.retain(|file| file.name != name);
            entries.push(Entry { name: name.to_owned(), found: Found::Folder });
        }
        if self.shape != Shape::Names {
            let files = found.objects.into_iter().filter(|meta| meta.location != self.location);
            entries.extend(files.map(|meta| {
                let name = meta.location.as_ref()[self.location.as_ref().len()..]
                    .trim_start_matches(DELIMITER)
                    .to_owned();
                Entry { name, found: Found::File(info(meta)) }
            }));
            self.is_there |= last.is_some();
            return Ok(entries);
        }
        let folders: HashSet<&str> = entries.iter().map(|entry| entry.name.as_str()).collect();
        let mut files = std::mem::take(&mut self.held_back);
        for meta in found.objects {
            // An object with a slash at its end stands for the folder itself.
            self.is_there |= meta.location == self.location;
            if meta.location == self.location {
                continue;
            }
            let name = meta.location.filename().unwrap_or_default().to_owned();
            if !folders.contains(name.as_str()) {
                files.push(Entry { name, found: Found::File(info(meta)) });
            }
        }
        let length = self.location.as_ref().len();
        let last = last.map(|key| key[length..].trim_start_matches(DELIMITER).to_owned());
        let is_at_end = self.is_at_end();
        let is_settled = |file: &Entry| {
            let folder = format!("{}{DELIMITER}", file.name);
            is_at_end || last.as_ref().is_some_and(|last| *last >= folder)
        };
        let (settled, held_back) = files.into_iter().partition(is_settled);
        self.held_back = held_back;
        entries.extend::<Vec<Entry>>(settled);
        self.is_there |= !entries.is_empty() || !self.held_back.is_empty();
        Ok(entries)
    }

    /// Whether anything is known to be in the folder.
    pub(super) fn is_there(&self) -> bool {
        self.is_there
    }
}

/// Whether any key begins with `prefix`.
pub(super) async fn has_any(
    pages: &dyn PaginatedListStore,
    prefix: &str,
) -> Result<bool, object_store::Error> {
    let options = PaginatedListOptions { max_keys: Some(1), ..PaginatedListOptions::default() };
    match pages.list_paginated(Some(prefix), options).await {
        Ok(page) => Ok(!page.result.objects.is_empty() || page.page_token.is_some()),
        Err(error) if refused_key(&error).is_some() => Ok(true),
        Err(error) => Err(error),
    }
}

/// The beginning of a key up to and including its first invalid name and the slash after it.
fn up_to_no_name(key: &str) -> &str {
    let mut end = 0;
    for name in key.split_inclusive(DELIMITER) {
        end += name.len();
        let name = name.trim_end_matches(DELIMITER);
        if name.is_empty() || Path::parse(name).is_err() {
            break;
        }
    }
    &key[..end]
}

/// The key because of which a page was refused.
fn refused_key(error: &object_store::Error) -> Option<String> {
    match error {
        object_store::Error::InvalidPath {
            source: PathError::EmptySegment { path } | PathError::BadSegment { path, .. },
        } => Some(path.clone()),
        _ => None,
    }
}

/// The error of a store that ignores `start-after`.
fn begins_anew(behind: &str) -> object_store::Error {
    let source = format!(
        "no path can name the key {behind:?}, and the store does not list what comes after it"
    );
    object_store::Error::NotSupported { source: source.into() }
}

/// A listing that waits for its pages.
pub(super) struct Pages {
    pub(super) lister: ObjectListing,
    handle: Handle,
    options: ObjectOptions,
    /// Entries that have been fetched already.
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
        while !self.lister.is_at_end() {
            let lister = self.lister.clone();
            let (entries, lister) = wait_for((&self.handle, self.options), move || {
                let mut lister = lister.clone();
                async move { Ok((lister.step().await?, lister)) }
            })?;
            self.lister = lister;
            if !entries.is_empty() {
                return Ok(entries);
            }
        }
        Ok(Vec::new())
    }

    fn left_out(&self) -> LeftOut {
        self.lister.left_out.clone()
    }
}
