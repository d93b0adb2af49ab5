//! Rare answers of servers: how the back end treats them, and how many requests it sends.
#![cfg(feature = "object")]

mod server;

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::{Duration, Instant};

use foretell_cache::backend::{Backend, BackendError, Entry, Found};
use foretell_cache::{Cache, CacheOptions};
use server::{Server, say};

const DATE: &str = "Tue, 14 Nov 2023 22:13:20 GMT";
const LISTED_DATE: &str = "2023-11-14T22:13:20.789Z";

/// A page of a listing.
fn page(stream: &mut TcpStream, keys: &[(&str, Option<&str>)], prefixes: &[&str]) {
    let mut xml = String::from("<ListBucketResult><IsTruncated>false</IsTruncated>");
    for (key, tag) in keys {
        let tag = tag.map(|tag| format!("<ETag>{tag}</ETag>")).unwrap_or_default();
        xml += &format!(
            "<Contents><Key>{key}</Key><Size>5</Size><LastModified>{LISTED_DATE}</LastModified>\
             {tag}</Contents>"
        );
    }
    for prefix in prefixes {
        xml += &format!("<CommonPrefixes><Prefix>{prefix}</Prefix></CommonPrefixes>");
    }
    say(stream, "200 OK", &[], (xml + "</ListBucketResult>").as_bytes());
}

fn absent(stream: &mut TcpStream) {
    say(stream, "404 Not Found", &[], b"");
}

fn all(backend: &dyn Backend, path: &str) -> Result<Vec<Entry>, BackendError> {
    let mut listing = backend.list(path)?;
    let mut entries = Vec::new();
    loop {
        let some = listing.next_entries()?;
        if some.is_empty() {
            return Ok(entries);
        }
        entries.extend(some);
    }
}

/// An object of five bytes with this ETag; listings tell the ETag `listed`.
fn tagged(tag: Option<&'static str>, listed: Option<&'static str>) -> Server {
    Server::start(move |asked, stream| {
        if asked.is_list() {
            let is_below = asked.line.contains("prefix=file");
            let keys = [("file", listed)];
            return page(stream, if is_below { &[] } else { &keys }, &[]);
        }
        let mut fields = vec![("last-modified", DATE)];
        fields.extend(tag.map(|tag| ("etag", tag)));
        if asked.is_head() {
            fields.push(("content-length", "5"));
            return say(stream, "200 OK", &fields, b"");
        }
        // A condition with a weak tag never holds, and one without quotes is invalid.
        if asked
            .field("if-match")
            .is_some_and(|wanted| wanted.starts_with("W/") || Some(wanted) != tag)
        {
            return say(stream, "412 Precondition Failed", &[], b"");
        }
        let (from, to) = asked.range();
        let range = format!("bytes {from}-{}/5", to - 1);
        fields.push(("content-range", &range));
        say(stream, "206 Partial Content", &fields, &b"hello"[from..to]);
    })
}

#[test]
fn an_object_is_the_same_whatever_tells_of_it() {
    for (tag, listed) in [
        (Some("\"abc\""), Some("abc")),
        (Some("\"abc\""), Some("&quot;abc&quot;")),
        (Some("W/\"abc\""), Some("W/&quot;abc&quot;")),
        (None, None),
    ] {
        let server = tagged(tag, listed);
        let backend = Arc::new(server.backend(Duration::from_secs(5)));
        let entries = all(&*backend, "").unwrap();
        assert_eq!(entries.len(), 1);
        let found = backend.find("file").unwrap();
        assert_eq!(entries[0].found, found, "{tag:?}");
        let Found::File(file) = found else { panic!("a file") };
        let opened = [backend.open("file").unwrap(), backend.open_found("file", &file).unwrap()];
        assert_eq!(opened[0].version, opened[1].version, "{tag:?}");
        for opened in opened {
            let cache = Cache::new(CacheOptions::default()).unwrap();
            let session = cache.attach(backend.clone()).session();
            let mut bytes = [0; 5];
            session.open_found("file", opened).read_at(&mut bytes, 0).unwrap();
            assert_eq!(&bytes, b"hello", "{tag:?}");
        }
    }
}

#[test]
fn a_listing_that_knows_no_tags_tells_of_objects_that_can_be_read() {
    let server = tagged(Some("\"abc\""), None);
    let backend = Arc::new(server.backend(Duration::from_secs(5)));
    let Found::File(file) = all(&*backend, "").unwrap().remove(0).found else { panic!("a file") };
    let opened = backend.open_found("file", &file).unwrap();
    let session = Cache::new(CacheOptions::default()).unwrap().attach(backend).session();
    let mut bytes = [0; 5];
    session.open_found("file", opened).read_at(&mut bytes, 0).unwrap();
    assert_eq!(&bytes, b"hello");
}

/// The result of a read of an object that had the tag `W/"a"` when it was opened, and has these properties when it is read.
fn read_of_weak(
    tag: &'static str,
    date: &'static str,
    range: &'static str,
) -> Result<(), BackendError> {
    let server = Server::start(move |asked, stream| match asked.is_head() {
        true => {
            let fields = [("last-modified", DATE), ("etag", "W/\"a\""), ("content-length", "5")];
            say(stream, "200 OK", &fields, b"");
        }
        false => {
            let fields = [("last-modified", date), ("etag", tag), ("content-range", range)];
            say(stream, "206 Partial Content", &fields, b"hello");
        }
    });
    let backend = Arc::new(server.backend(Duration::from_secs(5)));
    let session = Cache::new(CacheOptions::default()).unwrap().attach(backend).session();
    let read = session.open("file").unwrap().read_at(&mut [0; 5], 0);
    read.map(|_| ()).map_err(|error| error.cause)
}

#[test]
fn a_weak_tag_is_a_version_with_size_and_time() {
    let (same, later) = ("bytes 0-4/5", "Tue, 14 Nov 2023 22:13:21 GMT");
    assert_eq!(read_of_weak("W/\"a\"", DATE, same), Ok(()));
    for (tag, date, range) in [
        ("W/\"b\"", DATE, same),
        ("\"a\"", DATE, same),
        ("W/\"a\"", later, same),
        ("W/\"a\"", DATE, "bytes 0-4/6"),
    ] {
        let read = read_of_weak(tag, date, range);
        assert_eq!(read, Err(BackendError::Changed), "{tag} {date} {range}");
    }
}

/// Number of requests of an open that fails, and its error.
fn asked(status: &'static str) -> (usize, BackendError) {
    let server = Server::start(move |_, stream| say(stream, status, &[], b""));
    let error = server.backend(Duration::from_millis(400)).open("file").unwrap_err();
    (server.times(), error)
}

#[test]
fn only_what_may_pass_is_asked_again() {
    for status in [
        "301 Moved Permanently",
        "400 Bad Request",
        "403 Forbidden",
        "404 Not Found",
        "405 Method Not Allowed",
        "409 Conflict",
        "416 Range Not Satisfiable",
        "501 Not Implemented",
    ] {
        assert_eq!(asked(status).0, 1, "{status}: {:?}", asked(status).1);
    }
    for status in [
        "408 Request Timeout",
        "429 Too Many Requests",
        "500 Internal Server Error",
        "502 Bad Gateway",
        "503 Slow Down",
        "504 Gateway Timeout",
    ] {
        assert!(asked(status).0 > 1, "{status}: {:?}", asked(status).1);
    }
    // An empty answer, or fewer bytes than announced.
    for status in ["", "200 OK\r\ncontent-len"] {
        let server = Server::start(move |_, stream| {
            let _ = stream.write_all(
                match status {
                    "" => b"".to_vec(),
                    some => format!("HTTP/1.1 {some}").into_bytes(),
                }
                .as_slice(),
            );
        });
        assert!(server.backend(Duration::from_millis(400)).open("file").is_err());
        assert!(server.times() > 1, "{status:?}");
    }
    let server = Server::start(|asked, stream| {
        let short = [("content-length", "900")];
        match asked.is_list() {
            true => say(stream, "200 OK", &short, b"<ListBucketResult>"),
            false => absent(stream),
        }
    });
    assert!(server.backend(Duration::from_millis(400)).list("").is_err());
    assert!(server.times() > 1, "a body that ends too early");
}

#[test]
fn what_is_no_read_of_an_object_fails_at_once() {
    let server = Server::start(|_, stream| say(stream, "200 OK", &[], b""));
    let backend = server.backend(Duration::from_secs(5));
    let began = Instant::now();
    let error = backend.open("").unwrap_err();
    assert!(error.to_string().contains("folder"), "{error}");
    assert_eq!(server.times(), 0);
    assert!(backend.open("a//b").is_err() && began.elapsed() < Duration::from_secs(1));
}

#[test]
fn a_server_that_trickles_is_given_up_at_the_deadline() {
    let trickle = |stream: &mut TcpStream| {
        while stream.write_all(b"h").is_ok() {
            std::thread::sleep(Duration::from_millis(50));
        }
    };
    let server = Server::start(move |asked, stream| {
        if asked.is_list() {
            say(stream, "200 OK", &[("content-length", "5000")], b"");
        } else if asked.line.contains("slow") {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nx-filler: ");
        } else if asked.is_head() {
            let fields = [("last-modified", DATE), ("etag", "\"a\""), ("content-length", "5000")];
            return say(stream, "200 OK", &fields, b"");
        } else {
            let fields = [
                ("last-modified", DATE),
                ("etag", "\"a\""),
                ("content-range", "bytes 0-4999/5000"),
                ("content-length", "5000"),
            ];
            say(stream, "206 Partial Content", &fields, b"");
        }
        trickle(stream);
    });
    let deadline = Duration::from_secs(1);
    let backend = Arc::new(server.backend(deadline));
    let session = Cache::new(CacheOptions::default()).unwrap().attach(backend.clone()).session();
    let file = session.open("file").unwrap();
    let (sender, receiver) = std::sync::mpsc::channel();
    std::thread::spawn(move || {
        let _ = sender.send(file.read_at(&mut [0; 5000], 0).map_err(|error| error.cause));
        let _ = sender.send(backend.open("slow").map(|_| 0));
        let _ = sender.send(backend.list("").map(|_| 0));
    });
    for what in ["read", "open", "list"] {
        let said = receiver.recv_timeout(deadline * 3).unwrap_or_else(|_| panic!("{what} hangs"));
        assert_eq!(said, Err(BackendError::Timeout(Duration::from_secs(1))), "{what}");
    }
}

#[test]
fn a_folder_that_only_its_own_object_stands_for_is_there() {
    let server = Server::start(|asked, stream| {
        match asked.is_list() && asked.line.contains("prefix=console") {
            true => page(stream, &[("console/", Some("a"))], &[]),
            false if asked.is_list() => page(stream, &[], &[]),
            false => absent(stream),
        }
    });
    let backend = server.backend(Duration::from_secs(5));
    assert_eq!(backend.find("console"), Ok(Found::Folder));
    assert_eq!(all(&backend, "console"), Ok(Vec::new()));
    assert_eq!(backend.find("other"), Err(BackendError::NotFound));
    assert_eq!(all(&backend, "other"), Err(BackendError::NotFound));
}

#[test]
fn of_a_file_and_a_folder_by_one_name_the_folder_is_listed() {
    let keys = [("both", Some("a")), ("both-not", Some("a"))];
    let server = Server::start(move |asked, stream| match asked.is_list() {
        true => page(stream, &keys, &["both/"]),
        false => absent(stream),
    });
    let entries = all(&server.backend(Duration::from_secs(5)), "").unwrap();
    let mut names: Vec<_> =
        entries.iter().map(|entry| (entry.name.as_str(), &entry.found)).collect();
    names.sort_by_key(|(name, _)| *name);
    assert_eq!(names.len(), 2);
    assert_eq!(names[0], ("both", &Found::Folder));
    assert_eq!(names[1].0, "both-not");
}

#[test]
fn a_store_that_does_not_go_on_behind_a_key_is_told() {
    // A store that begins anew, with a page that can be listed and with one that cannot.
    for behind in ["a", "b\n"] {
        let server = Server::start(move |asked, stream| match asked.is_list() {
            true if asked.line.contains("start-after") => page(stream, &[(behind, None)], &[]),
            true => page(stream, &[("a", None), ("b\n", None)], &[]),
            false => absent(stream),
        });
        let error = all(&server.backend(Duration::from_secs(5)), "").unwrap_err().to_string();
        assert!(error.contains("does not list what comes after it"), "{error}");
    }
}
