//! Keys that a bucket may have and a file system may not: listings and lookups in buckets with any keys.
#![cfg(feature = "object")]

mod server;

use std::collections::{BTreeMap, BTreeSet};
use std::net::TcpStream;
use std::time::Duration;

use foretell_cache::backend::object::ObjectBackend;
use foretell_cache::backend::{Backend, BackendError, Entry, Found, LeftOut, Listing};
use server::{Asked, Server, decoded, say};

/// The value of a parameter of the request's query, percent-decoded.
fn value(asked: &Asked, name: &str) -> Option<String> {
    let query = asked.line.split(' ').nth(1)?.split_once('?')?.1;
    let pair = query.split('&').find_map(|pair| pair.strip_prefix(name)?.strip_prefix('='))?;
    Some(decoded(pair))
}

fn escaped(key: &str) -> String {
    let escape = |letter: char| match letter {
        'a'..='z' | '/' | '.' | '-' | '0'..='9' => letter.to_string(),
        other => format!("&#{};", u32::from(other)),
    };
    key.chars().map(escape).collect()
}

/// A page of a bucket, as S3 describes it.
fn list(keys: &BTreeSet<String>, asked: &Asked, page_max: usize, stream: &mut TcpStream) {
    let prefix = value(asked, "prefix").unwrap_or_default();
    let delimiter = value(asked, "delimiter");
    assert!(matches!(delimiter.as_deref(), None | Some("/")));
    let most = value(asked, "max-keys").map_or(page_max, |most| most.parse().unwrap());
    let token = value(asked, "continuation-token");
    let after = value(asked, "start-after").filter(|_| token.is_none());
    let mut items: Vec<String> = Vec::new();
    for key in keys.iter().filter(|key| key.starts_with(&prefix)) {
        if after.as_ref().is_some_and(|after| key <= after) {
            continue;
        }
        let end = key[prefix.len()..].find('/').filter(|_| delimiter.is_some());
        let end = end.map(|at| prefix.len() + at + 1);
        let item = key[..end.unwrap_or(key.len())].to_owned();
        if token.as_ref().is_none_or(|token| item > *token) && items.last() != Some(&item) {
            items.push(item);
        }
    }
    let count = items.len().min(most.min(page_max));
    let mut xml = String::from("<ListBucketResult>");
    for item in &items[..count] {
        match delimiter.is_some() && item.ends_with('/') && *item != prefix {
            true => {
                xml +=
                    &format!("<CommonPrefixes><Prefix>{}</Prefix></CommonPrefixes>", escaped(item))
            }
            false => {
                xml += &format!(
                    "<Contents><Key>{}</Key><Size>5</Size><LastModified>2023-11-14T22:13:20.789Z\
                     </LastModified></Contents>",
                    escaped(item)
                );
            }
        }
    }
    if count < items.len() {
        let token = escaped(&items[count - 1]);
        xml += &format!("<NextContinuationToken>{token}</NextContinuationToken>");
    }
    say(stream, "200 OK", &[], (xml + "</ListBucketResult>").as_bytes());
}

/// A bucket with these keys, which lists at most this many at a time.
fn bucket(keys: BTreeSet<String>, page_max: usize) -> Server {
    Server::start(move |asked, stream| {
        if asked.is_list() {
            return list(&keys, asked, page_max, stream);
        }
        let key = decoded(asked.path().trim_start_matches("/bucket/"));
        let fields = [("last-modified", "Tue, 14 Nov 2023 22:13:20 GMT"), ("content-length", "5")];
        match keys.contains(&key) {
            true => say(stream, "200 OK", &fields, b""),
            false => say(stream, "404 Not Found", &[], b""),
        }
    })
}

fn all(backend: &dyn Backend, path: &str) -> Result<(Vec<Entry>, LeftOut), BackendError> {
    entries_of(backend.list(path)?)
}

fn entries_of(mut listing: Box<dyn Listing>) -> Result<(Vec<Entry>, LeftOut), BackendError> {
    let mut entries = Vec::new();
    loop {
        let some = listing.next_entries()?;
        if some.is_empty() {
            return Ok((entries, listing.left_out()));
        }
        entries.extend(some);
    }
}

fn is_name(name: &str) -> bool {
    !matches!(name, "" | "." | "..") && !name.contains(|letter: char| letter.is_ascii_control())
}

/// The folder whose keys begin with `prefix`: its names, whether each is a folder, and the number of keys that cannot be named.
fn wanted(keys: &BTreeSet<String>, prefix: &str) -> (BTreeMap<String, bool>, usize) {
    let mut names = BTreeMap::new();
    let mut left_out = BTreeSet::new();
    for rest in keys.iter().filter_map(|key| key.strip_prefix(prefix)) {
        let name = rest.split('/').next().unwrap();
        match is_name(name) {
            true => *names.entry(name.to_owned()).or_default() |= rest.contains('/'),
            false if rest.is_empty() => {}
            false => drop(left_out.insert(&rest[..rest.find('/').map_or(rest.len(), |at| at + 1)])),
        }
    }
    (names, left_out.len())
}

/// Compares a folder and all folders below it.
fn check(backend: &dyn Backend, keys: &BTreeSet<String>, path: &str) {
    let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
    let (names, count) = wanted(keys, &prefix);
    let (entries, left_out) =
        all(backend, path).unwrap_or_else(|error| panic!("{path:?}: {error}"));
    let mut listed = BTreeMap::new();
    for entry in &entries {
        let is_folder = entry.found == Found::Folder;
        assert_eq!(listed.insert(entry.name.clone(), is_folder), None, "a name comes once");
    }
    assert_eq!(listed, names, "{path:?} of {keys:?}");
    assert_eq!(left_out.count as usize, count, "{path:?} of {keys:?}");
    assert_eq!(left_out.example.is_some(), count > 0);
    for entry in entries {
        let below = format!("{prefix}{}", entry.name);
        assert_eq!(backend.find(&below).as_ref(), Ok(&entry.found), "{below:?} of {keys:?}");
        if entry.found == Found::Folder {
            check(backend, keys, &below);
        }
    }
}

/// Compares the plain keys below a folder.
fn check_keys(backend: &ObjectBackend, keys: &BTreeSet<String>, path: &str) {
    let prefix = if path.is_empty() { String::new() } else { format!("{path}/") };
    let is_path = |key: &str| key.split('/').all(is_name);
    let below: Vec<&str> = keys.iter().filter_map(|key| key.strip_prefix(&prefix)).collect();
    let rootless = keys.iter().any(|key| key.starts_with('/'));
    assert_eq!(backend.has_keys_without_a_root(), Ok(rootless), "{keys:?}");
    let told = |entries: Vec<Entry>| -> BTreeSet<(String, bool)> {
        let told = entries.into_iter().map(|entry| (entry.name, entry.found == Found::Folder));
        told.collect()
    };

    let (entries, left_out) = entries_of(backend.list_keys(path, false).unwrap()).unwrap();
    let is_file = |key: &&&str| is_name(key) && !key.contains('/');
    let files = below.iter().filter(is_file).map(|&key| (key.to_owned(), false));
    let (names, count) = wanted(keys, &prefix);
    let folders: Vec<String> =
        names.into_iter().filter(|(_, folder)| *folder).map(|it| it.0).collect();
    let expected = files.chain(folders.iter().map(|name| (name.clone(), true))).collect();
    assert_eq!(told(entries), expected, "{path:?} of {keys:?}");
    assert_eq!(left_out.count as usize, count, "{path:?} of {keys:?}");

    if !path.is_empty() || !rootless {
        let (entries, left_out) = entries_of(backend.list_keys(path, true).unwrap()).unwrap();
        // An object that stands for a folder is listed under the folder's name.
        let named = below.iter().map(|key| key.strip_suffix('/').unwrap_or(key));
        let expected =
            named.filter(|key| is_path(key)).map(|key| (key.to_owned(), false)).collect();
        assert_eq!(told(entries), expected, "{path:?} of {keys:?}");
        let is_left_out =
            |key: &&&str| !key.is_empty() && !is_path(key.strip_suffix('/').unwrap_or(key));
        assert_eq!(left_out.count > 0, below.iter().any(|key| is_left_out(&key)), "{keys:?}");
    }
    for name in folders {
        let below = format!("{prefix}{name}");
        assert_eq!(backend.is_folder(&below), Ok(true), "{below:?} of {keys:?}");
        assert_eq!(
            backend.find_file(&below).is_ok(),
            keys.contains(&below),
            "{below:?} of {keys:?}"
        );
        check_keys(backend, keys, &below);
    }
}

fn keys(keys: &[&str]) -> BTreeSet<String> {
    keys.iter().map(|&key| key.to_owned()).collect()
}

#[test]
fn what_can_be_named_is_there_whatever_lies_beside_it() {
    let keys = keys(&[
        "/leading",
        "/",
        "//",
        "./x",
        "../x",
        "..",
        "a",
        "a!",
        "a-b",
        "a.txt",
        "a/b",
        "a//c",
        "a//",
        "a/./d",
        "a/..",
        "a/e/",
        "a/line\nfeed",
        "a/\u{7f}",
        "a/zz",
        "a0",
        "only//below",
        "trailing/",
        "b/b",
        "b/b/b",
    ]);
    for page_max in [1, 2, 3, 7, 1000] {
        let server = bucket(keys.clone(), page_max);
        let backend = server.backend(Duration::from_secs(30));
        check(&backend, &keys, "");
        check_keys(&backend, &keys, "");
        assert_eq!(backend.is_folder("absent"), Ok(false));
        assert_eq!(backend.list_keys("absent", true).err(), Some(BackendError::NotFound));
    }
}

#[test]
fn any_keys() {
    let mut seed = 7u64;
    let mut below = |bound: usize| {
        seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) as usize % bound
    };
    for _ in 0..30 {
        let parts =
            ["a", "a", "a-", "a!", "b", "b0", "", ".", "..", "a\u{1}", "b\n", "ä", "\u{10ffff}"];
        let keys: BTreeSet<String> = (0..1 + below(30))
            .map(|_| {
                let parts: Vec<&str> =
                    (0..1 + below(4)).map(|_| parts[below(parts.len())]).collect();
                parts.join("/")
            })
            .filter(|key| !key.is_empty())
            .collect();
        let server = bucket(keys.clone(), [1, 2, 5, 1000][below(4)]);
        let backend = server.backend(Duration::from_secs(30));
        check(&backend, &keys, "");
        check_keys(&backend, &keys, "");
    }
}

#[test]
fn a_key_without_a_name_costs_few_requests() {
    let mut keys: BTreeSet<String> = (0..3000).map(|number| format!("dir/{number:05}")).collect();
    keys.insert("dir/01499\n".into());
    let server = bucket(keys, 1000);
    let (entries, left_out) = all(&server.backend(Duration::from_secs(30)), "dir").unwrap();
    assert_eq!((entries.len(), left_out.count), (3000, 1));
    assert_eq!(left_out.example.as_deref(), Some("dir/01499\n"));
    assert!(server.times() < 25, "{}", server.times());
}
