//! Answers that a real server seldom gives: what is made of them, and how often it is asked.
#![cfg(feature = "object")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foretell_cache::backend::object::{ObjectBackend, ObjectOptions};
use foretell_cache::backend::{Backend, BackendError, Entry, Found};
use foretell_cache::{Cache, CacheOptions};

const DATE: &str = "Tue, 14 Nov 2023 22:13:20 GMT";
const LISTED_DATE: &str = "2023-11-14T22:13:20.789Z";

/// What was asked: the first line, and the lines after it.
struct Asked {
    line: String,
    fields: Vec<String>,
}

impl Asked {
    fn is_list(&self) -> bool {
        self.line.contains("list-type=2")
    }

    fn is_head(&self) -> bool {
        self.line.starts_with("HEAD")
    }

    fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find_map(|field| {
            let (key, value) = field.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The range of bytes, with its end.
    fn range(&self) -> (usize, usize) {
        let range = self.field("range").expect("a range").trim_start_matches("bytes=");
        let (from, to) = range.split_once('-').expect("from-to");
        (from.parse().expect("a number"), to.parse::<usize>().expect("a number") + 1)
    }
}

struct Server {
    endpoint: String,
    asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Each connection carries one request.
    fn start(answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let endpoint = format!("http://{}", listener.local_addr().unwrap());
        let (asked, answer) = (Arc::new(Mutex::new(Vec::new())), Arc::new(answer));
        let lines = Arc::clone(&asked);
        std::thread::spawn(move || {
            for mut stream in listener.incoming().map_while(Result::ok) {
                let (lines, answer) = (Arc::clone(&lines), Arc::clone(&answer));
                std::thread::spawn(move || {
                    let reader = BufReader::new(stream.try_clone().unwrap());
                    let mut head =
                        reader.lines().map_while(Result::ok).take_while(|line| !line.is_empty());
                    let Some(line) = head.next() else { return };
                    let asked = Asked { line, fields: head.collect() };
                    lines.lock().unwrap().push(asked.line.clone());
                    answer(&asked, &mut stream);
                });
            }
        });
        Server { endpoint, asked }
    }

    fn backend(&self, deadline: Duration) -> ObjectBackend {
        let settings = [
            ("aws_endpoint_url", self.endpoint.as_str()),
            ("aws_skip_signature", "true"),
            ("aws_region", "us-east-1"),
        ];
        let options = ObjectOptions { deadline, ..ObjectOptions::default() };
        ObjectBackend::configured("s3://bucket", &settings, options).unwrap()
    }

    fn times(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

fn say(stream: &mut TcpStream, status: &str, fields: &[(&str, &str)], body: &[u8]) {
    let mut head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n");
    for (name, value) in fields {
        head += &format!("{name}: {value}\r\n");
    }
    if fields.iter().all(|(name, _)| *name != "content-length") {
        head += &format!("content-length: {}\r\n", body.len());
    }
    // Whoever asked may have gone.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(b"\r\n"));
    let _ = stream.write_all(body);
}

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

/// An object of five bytes with this ETag, which is told by listings as `listed`.
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
        // A condition with a weak tag never holds, one without quotes is none.
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

#[test]
fn another_weak_tag_is_another_version() {
    let server = Server::start(|asked, stream| match asked.is_head() {
        true => {
            let fields = [("last-modified", DATE), ("etag", "W/\"a\""), ("content-length", "5")];
            say(stream, "200 OK", &fields, b"");
        }
        false => {
            let fields =
                [("last-modified", DATE), ("etag", "W/\"b\""), ("content-range", "bytes 0-4/5")];
            say(stream, "206 Partial Content", &fields, b"hello");
        }
    });
    let backend = Arc::new(server.backend(Duration::from_secs(5)));
    let session = Cache::new(CacheOptions::default()).unwrap().attach(backend).session();
    let error = session.open("file").unwrap().read_at(&mut [0; 5], 0).unwrap_err();
    assert_eq!(error.cause, BackendError::Changed);
}
