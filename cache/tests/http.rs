//! A web server's folder whose names come from a list.
#![cfg(feature = "object")]

mod server;

use std::io::Write;
use std::net::TcpStream;
use std::sync::Arc;
use std::time::Duration;

use foretell_cache::backend::conformance::{World, check};
use foretell_cache::backend::index::{Index, IndexBackend};
use foretell_cache::backend::object::ObjectBackend;
use foretell_cache::backend::{Backend, BackendError, Found};
use foretell_cache::{Cache, CacheOptions};
use server::{Asked, Files, Server, Tells, put, say, serve, web};

const PATIENCE: Duration = Duration::from_secs(30);

struct Web {
    files: Files,
    backend: IndexBackend,
    _server: Server,
}

impl World for Web {
    fn backend(&self) -> &dyn Backend {
        &self.backend
    }

    fn put(&self, path: &str, bytes: &[u8]) {
        put(&self.files, &format!("/data/{path}"), bytes);
    }
}

#[test]
fn a_web_server_conforms() {
    let names = "dir/any\nmany\ndir/there\nreplaced\nnames/a file\nnames/deep/er/file\nnames/empty";
    for tells in [Tells::Tag, Tells::Time] {
        let files = Files::default();
        let server = web(&files, tells);
        let remote = Arc::new(server.folder("/data/", PATIENCE));
        let backend = IndexBackend::new(remote, Index::parse(names.as_bytes()).unwrap());
        check(&Web { files, backend, _server: server });
    }
}

fn read(backend: Arc<dyn Backend>, path: &str) -> Result<Vec<u8>, BackendError> {
    let Found::File(file) = backend.find(path)? else { panic!("a file") };
    let opened = backend.open_found(path, &file)?;
    let session = Cache::new(CacheOptions::default()).unwrap().attach(backend).session();
    let mut bytes = vec![0; opened.size_bytes as usize];
    session.open_found(path, opened).read_at(&mut bytes, 0).map_err(|error| error.cause)?;
    Ok(bytes)
}

#[test]
fn names_are_what_they_are_whatever_is_in_them() {
    let names = ["a b", "ä/ö", "#x", "a?b=c", "100%", "a%20b", "a+b", "a&b;c", "\\", "~a", "\"q\""];
    let files = Files::default();
    names.iter().for_each(|name| put(&files, &format!("/data/{name}"), name.as_bytes()));
    let server = web(&files, Tells::Tag);
    let list = names.map(|name| format!("./{name}")).join("\n");
    for address in ["/data", "/data/", "/data//"] {
        let remote = Arc::new(server.folder(address, PATIENCE));
        let index = Index::parse(list.as_bytes()).unwrap();
        let backend = Arc::new(IndexBackend::new(remote, index));
        for name in names {
            let bytes = read(backend.clone(), name).unwrap_or_else(|e| panic!("{name}: {e}"));
            assert_eq!(bytes, name.as_bytes());
        }
    }
}

#[test]
fn what_the_list_says_is_not_asked_for() {
    let files = Files::default();
    put(&files, "/a/b", b"five.");
    let server = web(&files, Tells::Tag);
    let remote = Arc::new(server.folder("/", PATIENCE));
    let backend = Arc::new(IndexBackend::new(remote, Index::parse(b"a/b\t5\nc").unwrap()));
    assert_eq!(backend.list("").unwrap().next_entries().unwrap().len(), 2);
    assert!(matches!(backend.find("a/b"), Ok(Found::File(file)) if file.size_bytes == 5));
    assert_eq!(server.times(), 0);
    assert_eq!(read(backend.clone(), "a/b").unwrap(), b"five.");
    assert_eq!(server.times(), 2, "the version, and the bytes");
    assert_eq!(backend.find("c"), Err(BackendError::NotFound));
    assert_eq!(server.times(), 3);
    put(&files, "/a/b", b"other");
    assert_eq!(read(backend.clone(), "a/b"), Err(BackendError::Changed));
    assert_eq!(read(backend, "a/b").unwrap(), b"other");
}

/// The folder of a server that gives these answers.
fn folder(
    answer: impl Fn(&Files, &Asked, &mut TcpStream) + Send + Sync + 'static,
) -> (Server, ObjectBackend) {
    let files = Files::default();
    put(&files, "/a", b"hello");
    put(&files, "/b/a", b"hello");
    let server = Server::start(move |asked, stream| answer(&files, asked, stream));
    let backend = server.folder("/", Duration::from_secs(2));
    (server, backend)
}

#[test]
fn what_a_web_server_says_is_told_in_one_line() {
    type Answer = fn(&Files, &Asked, &mut TcpStream);
    let answers: [(Answer, &str); 9] = [
        (|_, _, stream| say(stream, "403 Forbidden", &[], b"no"), "permission denied: "),
        (|_, _, stream| say(stream, "401 Unauthorized", &[], b"no"), "permission denied: "),
        (|_, _, stream| say(stream, "404 Not Found", &[], b"no"), "not found"),
        (|_, _, stream| say(stream, "500 Oops", &[], b"no"), "the server answered 500"),
        (
            |files, asked, stream| match asked.is_head() {
                true => serve(files, Tells::Tag, asked, stream),
                false => say(stream, "200 OK", &[], b"hello"),
            },
            "the server does not send parts of files (it ignores ranges)",
        ),
        (
            |_, _, stream| {
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
            },
            "the server does not say how long the file is",
        ),
        (
            |_, asked, stream| {
                let from = asked.line.split(' ').nth(1).unwrap();
                say(stream, "302 Found", &[("location", &format!("{from}x"))], b"");
            },
            "the server redirects in a circle",
        ),
        (
            |files, asked, stream| match asked.is_head() {
                true => serve(files, Tells::Tag, asked, stream),
                false => {
                    let fields = [("content-range", "bytes 1-1/5"), ("etag", "\"v0\"")];
                    say(stream, "206 Partial Content", &fields, b"e");
                }
            },
            "the answer makes no sense: Requested 0..1, got 1..2",
        ),
        (
            |files, asked, stream| match asked.is_head() {
                true => serve(files, Tells::Tag, asked, stream),
                false => say(stream, "206 Partial Content", &[("etag", "\"v0\"")], b"h"),
            },
            "the answer makes no sense: Content-Range header not present",
        ),
    ];
    for (answer, part) in answers {
        let (_server, backend) = folder(answer);
        let error = backend.probe("a").unwrap_err().to_string();
        assert!(error.contains(part) && !error.contains('\n'), "{part:?}: {error}");
    }
    let options = foretell_cache::backend::object::ObjectOptions {
        deadline: Duration::from_secs(2),
        ..Default::default()
    };
    let nobody = ObjectBackend::at("http://127.0.0.1:9/", options).unwrap();
    let error = nobody.probe("a").unwrap_err().to_string();
    assert!(error.contains("no connection: "), "{error}");
}

#[test]
fn redirects_are_followed() {
    let (_server, backend) = folder(|files, asked, stream| match asked.line.contains(" /a ") {
        true => say(stream, "302 Found", &[("location", "/b/a")], b""),
        false => serve(files, Tells::Tag, asked, stream),
    });
    assert_eq!(backend.probe("a"), Ok(()));
    assert_eq!(read(Arc::new(backend), "a").unwrap(), b"hello");
}

#[test]
fn a_list_may_be_read_from_a_server_that_sends_no_parts() {
    let (server, backend) = folder(|_, _, stream| say(stream, "200 OK", &[], b"a\t5\n"));
    assert_eq!(backend.read_all("list", 100).unwrap(), b"a\t5\n");
    assert!(backend.read_all("list", 3).is_err());
    let whole = server.folder("/list.txt?key=x", PATIENCE);
    assert_eq!(whole.read_all("", 100).unwrap(), b"a\t5\n");
    let last = server.asked.lock().unwrap().pop().unwrap();
    assert!(last.starts_with("GET /list.txt?key=x "), "{last}");
}
