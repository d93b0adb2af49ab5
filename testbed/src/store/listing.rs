//! Lists keys in order, page by page, for buckets with very many.
//!
//! S3 lists keys in the order of their bytes. A folder's entries are in that order if each sub-folder is sorted with
//! its slash (`a-b` comes before `a/c`). So the first key at or after any string is found by going down one path, with
//! a binary search in each folder. A page repeats that search: after a key, from the next string on; after a common
//! prefix, from the first string that does not begin with it.
//!
//! Cost: each folder that a page touches is read and sorted once, and kept while its modification time is the same.
//! Beyond that, a page costs the same wherever it begins.

use std::collections::HashMap;
use std::fs::{File, Metadata};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use foretell_cache::backend::beneath::{Beneath, Links};
use rustix::fs::{Dir, FileType, OFlags};

use super::folder::{Found, UPLOAD_PREFIX};

/// Entries kept of all folders together; some hundred bytes each. At this number, all are dropped.
const KEPT_MAX: usize = 2_000_000;

/// A folder that was changed more recently than this is not kept, as another change might leave its modification time
/// the same.
const RESTLESS: Duration = Duration::from_secs(1);

/// What a listing asks for.
pub(super) struct Query<'a> {
    pub(super) prefix: &'a str,
    pub(super) delimiter: Option<&'a str>,
    pub(super) from: From<'a>,
    /// Keys and common prefixes together, at most.
    pub(super) most: usize,
}

/// Where a page begins.
pub(super) enum From<'a> {
    Start,
    /// After this key or common prefix.
    After(&'a str),
    /// At the place that the previous page returned.
    Next(Vec<u8>),
}

/// A page of keys.
#[derive(Default)]
pub(super) struct Page {
    pub(super) objects: Vec<Found<String>>,
    pub(super) prefixes: Vec<String>,
    /// Where the next page begins, if there is one.
    pub(super) next: Option<Vec<u8>>,
}

impl Page {
    /// The last key or common prefix on the page.
    pub(super) fn last(&self) -> Option<&str> {
        let object = self.objects.last().map(|object| object.file.as_str());
        object.max(self.prefixes.last().map(String::as_str))
    }
}

/// The entries of a folder as they were read: names, sorted, those of sub-folders with a slash.
struct Entries {
    names: Vec<Box<str>>,
    /// Device and inode.
    identity: (u64, u64),
    modified: (i64, i64),
}

/// Folders that are kept.
#[derive(Default)]
pub(super) struct Kept {
    folders: HashMap<PathBuf, Arc<Entries>>,
    entries: usize,
}

/// Lists the folders of buckets.
#[derive(Default)]
pub(super) struct Catalogue {
    kept: Mutex<Kept>,
}

impl Catalogue {
    /// The page that `query` asks for, of the bucket at `folder` below `tree`.
    ///
    /// # Errors
    /// The bucket's folder cannot be read. Folders below it that cannot be read count as empty.
    pub(super) fn page(
        &self,
        (tree, folder): (&Beneath, &Path),
        query: &Query<'_>,
    ) -> io::Result<Page> {
        let mut walk = Walk { catalogue: self, tree, folders: HashMap::new() };
        walk.entries(folder)?;
        let mut page = Page::default();
        let mut bound = query.first_bound();
        let mut count = 0;
        while let Some(key) = walk.first_from(folder, "", &bound, &mut Vec::new()) {
            if !key.starts_with(query.prefix) {
                break;
            }
            if count == query.most {
                page.next = (count > 0).then_some(bound);
                break;
            }
            if let Some(common) = query.common_prefix(&key) {
                bound = end_of_prefix(common);
                page.prefixes.push(common.to_owned());
                count += 1;
                continue;
            }
            bound = just_after(&key);
            // The file may have gone since its folder was read.
            let metadata = metadata(tree, &folder.join(&key)).ok();
            if let Some(metadata) = metadata.filter(Metadata::is_file) {
                page.objects.push(Found::new(key, &metadata));
                count += 1;
            }
        }
        Ok(page)
    }

    /// The entries of a folder, as they are now.
    fn read(&self, tree: &Beneath, folder: &Path) -> io::Result<Arc<Entries>> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let opened = File::from(tree.open(folder, flags, Links::Followed)?);
        let metadata = opened.metadata()?;
        let identity = (metadata.dev(), metadata.ino());
        let modified = (metadata.mtime(), metadata.mtime_nsec());
        let kept = self.lock().folders.get(folder).cloned();
        if let Some(kept) =
            kept.filter(|kept| (kept.identity, kept.modified) == (identity, modified))
        {
            return Ok(kept);
        }
        let entries =
            Arc::new(Entries { names: names(tree, (&opened, folder))?, identity, modified });
        let age = SystemTime::now().duration_since(metadata.modified()?).unwrap_or_default();
        if age > RESTLESS {
            self.lock().keep(folder, &entries);
        }
        Ok(entries)
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Kept> {
        self.kept.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Kept {
    fn keep(&mut self, folder: &Path, entries: &Arc<Entries>) {
        if self.entries + entries.names.len() + 1 > KEPT_MAX {
            *self = Kept::default();
        }
        self.entries += entries.names.len() + 1;
        if let Some(old) = self.folders.insert(folder.to_owned(), Arc::clone(entries)) {
            self.entries -= old.names.len() + 1;
        }
    }
}

/// The metadata of a path. A link is followed.
fn metadata(tree: &Beneath, path: &Path) -> io::Result<Metadata> {
    File::from(tree.open(path, OFlags::PATH, Links::Followed)?).metadata()
}

/// The names of objects and folders in an open folder, sorted. Links count as what they lead to.
fn names(tree: &Beneath, (opened, folder): (&File, &Path)) -> io::Result<Vec<Box<str>>> {
    let mut names = Vec::new();
    for entry in Dir::read_from(opened)? {
        let entry = entry?;
        let Ok(name) = entry.file_name().to_str() else { continue };
        if name == "." || name == ".." {
            continue;
        }
        let mut kind = entry.file_type();
        if matches!(kind, FileType::Symlink | FileType::Unknown) {
            let Ok(metadata) = metadata(tree, &folder.join(name)) else { continue };
            kind = FileType::from_raw_mode(metadata.mode());
        }
        match kind {
            FileType::Directory => names.push(format!("{name}/").into_boxed_str()),
            FileType::RegularFile if !name.starts_with(UPLOAD_PREFIX) => names.push(name.into()),
            _ => {}
        }
    }
    names.sort_unstable();
    Ok(names)
}

/// The making of one page. It sees each folder as it was when first read for this page.
struct Walk<'a> {
    catalogue: &'a Catalogue,
    tree: &'a Beneath,
    folders: HashMap<PathBuf, Arc<Entries>>,
}

impl Walk<'_> {
    fn entries(&mut self, folder: &Path) -> io::Result<Arc<Entries>> {
        if let Some(entries) = self.folders.get(folder) {
            return Ok(Arc::clone(entries));
        }
        let entries = self.catalogue.read(self.tree, folder)?;
        self.folders.insert(folder.to_owned(), Arc::clone(&entries));
        Ok(entries)
    }

    /// The first key at or after `bound` in `folder`, whose keys begin with `prefix`. `above` has the folders above it;
    /// a link to one of them would lead in a circle, and is skipped.
    fn first_from(
        &mut self,
        folder: &Path,
        prefix: &str,
        bound: &[u8],
        above: &mut Vec<(u64, u64)>,
    ) -> Option<String> {
        let rest = match bound.strip_prefix(prefix.as_bytes()) {
            Some(rest) => rest,
            None if bound < prefix.as_bytes() => &[],
            None => return None,
        };
        let entries = self.entries(folder).ok()?;
        if above.contains(&entries.identity) {
            return None;
        }
        let names = &entries.names;
        let mut first = names.partition_point(|name| name.as_bytes() < rest);
        // The folder that contains `rest` sorts before it, with nothing between the two.
        if first > 0
            && names[first - 1].ends_with('/')
            && rest.starts_with(names[first - 1].as_bytes())
        {
            first -= 1;
        }
        above.push(entries.identity);
        let found = names[first..].iter().find_map(|name| {
            let key = format!("{prefix}{name}");
            match name.strip_suffix('/') {
                Some(folder_name) => self.first_from(&folder.join(folder_name), &key, bound, above),
                None => Some(key),
            }
        });
        above.pop();
        found
    }
}

impl Query<'_> {
    fn first_bound(&self) -> Vec<u8> {
        let from = match &self.from {
            From::Start => Vec::new(),
            From::After(key) => match self.common_prefix(key) {
                Some(common) if common == *key => end_of_prefix(common),
                _ => just_after(key),
            },
            From::Next(bound) => bound.clone(),
        };
        from.max(self.prefix.as_bytes().to_vec())
    }

    /// The common prefix that stands for `key`, if it has the delimiter.
    fn common_prefix<'k>(&self, key: &'k str) -> Option<&'k str> {
        let delimiter = self.delimiter.filter(|delimiter| !delimiter.is_empty())?;
        let rest = key.strip_prefix(self.prefix)?;
        let end = self.prefix.len() + rest.find(delimiter)? + delimiter.len();
        Some(&key[..end])
    }
}

/// The first string after `key`.
fn just_after(key: &str) -> Vec<u8> {
    [key.as_bytes(), &[0]].concat()
}

/// The first string after all that begin with `prefix`, which is not empty.
fn end_of_prefix(prefix: &str) -> Vec<u8> {
    let mut end = prefix.as_bytes().to_vec();
    if let Some(last) = end.last_mut() {
        // This cannot overflow: no byte of UTF-8 is 255.
        *last += 1;
    }
    end
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::fs;

    use foretell_sim::random::SplitMix64;

    use super::*;

    fn folder_of(keys: &[&str]) -> tempfile::TempDir {
        let folder = tempfile::tempdir().expect("a folder");
        for key in keys {
            let path = folder.path().join(key);
            fs::create_dir_all(path.parent().expect("one")).expect("made");
            fs::write(path, key).expect("written");
        }
        folder
    }

    fn page(catalogue: &Catalogue, folder: &Path, query: &Query<'_>) -> io::Result<Page> {
        catalogue.page((&Beneath::new(folder)?, Path::new("")), query)
    }

    /// All items of all pages, in their order within each: keys and common prefixes.
    fn all(folder: &Path, prefix: &str, delimiter: Option<&str>, most: usize) -> Vec<String> {
        let catalogue = Catalogue::default();
        let mut items = Vec::new();
        let mut from = From::Start;
        loop {
            let page = page(&catalogue, folder, &Query { prefix, delimiter, from, most });
            let page = page.expect("lists");
            let count = page.objects.len() + page.prefixes.len();
            assert!(count <= most && (count == most || page.next.is_none()));
            let mut of_page: Vec<String> =
                page.objects.into_iter().map(|object| object.file).chain(page.prefixes).collect();
            of_page.sort();
            items.extend(of_page);
            match page.next {
                Some(next) => from = From::Next(next),
                None => return items,
            }
        }
    }

    /// The items that S3 would list for these keys, by its documentation.
    fn wanted(keys: &[&str], prefix: &str, delimiter: Option<&str>) -> Vec<String> {
        let item = |key: &&&str| {
            let rest = key.strip_prefix(prefix)?;
            let cut = delimiter.and_then(|delimiter| Some(rest.find(delimiter)? + delimiter.len()));
            Some(format!("{prefix}{}", &rest[..cut.unwrap_or(rest.len())]))
        };
        let items: BTreeSet<String> = keys.iter().filter_map(|key| item(&key)).collect();
        items.into_iter().collect()
    }

    const KEYS: [&str; 14] = [
        "a",
        "a-b",
        "a.txt",
        "a0/x",
        "b/c",
        "b/c-d/e",
        "b/c0/e",
        "b/d/e/f",
        "b/d/e/g",
        "b-/x",
        "b0",
        "ä/ö",
        "z/z/z/z/z",
        "zz",
    ];

    #[test]
    fn keys_come_in_the_order_of_their_bytes_whatever_the_page() {
        let folder = folder_of(&KEYS);
        for prefix in ["", "a", "b", "b/", "b/c", "b/d/e/", "ä/", "nothing", "zzz"] {
            for delimiter in [None, Some("/"), Some("-"), Some("/e/"), Some("")] {
                let wanted = wanted(&KEYS, prefix, delimiter.filter(|d| !d.is_empty()));
                for most in [1, 2, 3, 1000] {
                    let found = all(folder.path(), prefix, delimiter, most);
                    assert_eq!(found, wanted, "{prefix:?} {delimiter:?} {most}");
                }
            }
        }
    }

    #[test]
    fn random_trees_list_as_their_keys_do() {
        let mut random = SplitMix64::new(11);
        for _ in 0..8 {
            let names: Vec<String> = (0..40)
                .map(|_| {
                    let depth = 1 + random.below(3);
                    let part = |random: &mut SplitMix64| {
                        let letters = ["a", "b", "-", "0", "~", "é"];
                        (0..1 + random.below(2))
                            .map(|_| letters[random.below(6) as usize])
                            .collect::<String>()
                    };
                    let parts: Vec<String> = (0..depth).map(|_| part(&mut random)).collect();
                    // A file and a folder cannot have the same name.
                    parts.join("/") + "/file"
                })
                .collect();
            let keys: Vec<&str> = names.iter().map(String::as_str).collect();
            let keys: Vec<&str> =
                keys.iter().copied().filter(|key| !key.contains("/file/")).collect();
            let folder = folder_of(&keys);
            for (prefix, delimiter, most) in
                [("", None, 7), ("", Some("/"), 3), ("a", Some("/"), 2), ("b/", None, 1)]
            {
                let found = all(folder.path(), prefix, delimiter, most);
                assert_eq!(found, wanted(&keys, prefix, delimiter));
            }
        }
    }

    #[test]
    fn a_page_may_begin_after_a_key_or_a_common_prefix() {
        let folder = folder_of(&KEYS);
        let after = |key, delimiter| {
            let query = Query { prefix: "", delimiter, from: From::After(key), most: 1 };
            let page = page(&Catalogue::default(), folder.path(), &query).expect("lists");
            page.last().map(str::to_owned)
        };
        assert_eq!(after("a", None).as_deref(), Some("a-b"));
        assert_eq!(after("a-", None).as_deref(), Some("a-b"));
        assert_eq!(after("b/", Some("/")).as_deref(), Some("b0"));
        assert_eq!(after("b/c", Some("/")).as_deref(), Some("b/"));
        assert_eq!(after("ä/ö", None), None);
    }

    #[test]
    fn what_is_no_object_is_not_listed() {
        let folder = folder_of(&["sub/file", "here"]);
        let path = folder.path();
        fs::create_dir(path.join("empty")).expect("made");
        fs::write(path.join(format!("{UPLOAD_PREFIX}1")), "half").expect("written");
        std::os::unix::fs::symlink(path.join("nowhere"), path.join("dangling")).expect("linked");
        std::os::unix::fs::symlink("here", path.join("link")).expect("linked");
        std::os::unix::fs::symlink("..", path.join("sub/loop")).expect("linked");
        std::os::unix::fs::symlink("/etc/passwd", path.join("outside")).expect("linked");
        std::os::unix::fs::symlink("/etc", path.join("away")).expect("linked");
        assert_eq!(all(path, "", None, 2), ["here", "link", "sub/file"]);
        assert_eq!(all(path, "", Some("/"), 2), ["here", "link", "sub/"]);
    }

    #[test]
    fn a_folder_that_is_kept_is_read_again_once_it_has_changed() {
        let folder = folder_of(&["a", "b"]);
        let catalogue = Catalogue::default();
        let old = SystemTime::now() - Duration::from_secs(100);
        let date = |time| fs::File::open(folder.path()).expect("opens").set_modified(time);
        let keys = || {
            let query = Query { prefix: "", delimiter: None, from: From::Start, most: 10 };
            let page = page(&catalogue, folder.path(), &query).expect("lists");
            page.objects.into_iter().map(|object| object.file).collect::<Vec<_>>()
        };
        date(old).expect("dated");
        assert_eq!(keys(), ["a", "b"]);
        assert_eq!(catalogue.lock().entries, 3);
        fs::write(folder.path().join("c"), "").expect("written");
        assert_eq!(keys(), ["a", "b", "c"]);
        // A folder read shortly after a change was not kept.
        assert_eq!(catalogue.lock().entries, 3);
        date(old).expect("dated");
        fs::remove_file(folder.path().join("a")).expect("removed");
        date(old + Duration::from_secs(1)).expect("dated");
        assert_eq!(keys(), ["b", "c"]);
    }
}
