//! A server whose answers a test decides.
#![allow(dead_code, reason = "each test uses some of it")]

use std::collections::HashMap;
use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foretell_cache::backend::object::{ObjectBackend, ObjectOptions};

/// A request: its first line and its headers.
pub(crate) struct Asked {
    pub(crate) line: String,
    pub(crate) fields: Vec<String>,
}

impl Asked {
    pub(crate) fn is_list(&self) -> bool {
        self.line.contains("list-type=2")
    }

    pub(crate) fn is_head(&self) -> bool {
        self.line.starts_with("HEAD")
    }

    /// The path without the query.
    pub(crate) fn path(&self) -> &str {
        let target = self.line.split(' ').nth(1).expect("a path");
        target.split('?').next().expect("one")
    }

    pub(crate) fn field(&self, name: &str) -> Option<&str> {
        self.fields.iter().find_map(|field| {
            let (key, value) = field.split_once(':')?;
            key.eq_ignore_ascii_case(name).then(|| value.trim())
        })
    }

    /// The range of bytes, with its end.
    pub(crate) fn range(&self) -> (usize, usize) {
        let range = self.field("range").expect("a range").trim_start_matches("bytes=");
        let (from, to) = range.split_once('-').expect("from-to");
        (from.parse().expect("a number"), to.parse::<usize>().expect("a number") + 1)
    }
}

pub(crate) struct Server {
    pub(crate) endpoint: String,
    pub(crate) asked: Arc<Mutex<Vec<String>>>,
}

impl Server {
    /// Each connection carries one request.
    pub(crate) fn start(answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static) -> Self {
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

    pub(crate) fn backend(&self, deadline: Duration) -> ObjectBackend {
        let settings = [
            ("aws_endpoint_url", self.endpoint.as_str()),
            ("aws_skip_signature", "true"),
            ("aws_region", "us-east-1"),
        ];
        let options = ObjectOptions { deadline, ..ObjectOptions::default() };
        ObjectBackend::configured("s3://bucket", &settings, options).unwrap()
    }

    /// A back end of the web server's folder at `path`.
    pub(crate) fn folder(&self, path: &str, deadline: Duration) -> ObjectBackend {
        let options = ObjectOptions { deadline, ..ObjectOptions::default() };
        ObjectBackend::at(&format!("{}{path}", self.endpoint), options).unwrap()
    }

    pub(crate) fn times(&self) -> usize {
        self.asked.lock().unwrap().len()
    }
}

pub(crate) fn say(stream: &mut TcpStream, status: &str, fields: &[(&str, &str)], body: &[u8]) {
    let mut head = format!("HTTP/1.1 {status}\r\nconnection: close\r\n");
    for (name, value) in fields {
        head += &format!("{name}: {value}\r\n");
    }
    if fields.iter().all(|(name, _)| *name != "content-length") {
        head += &format!("content-length: {}\r\n", body.len());
    }
    // The client may have gone.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(b"\r\n"));
    let _ = stream.write_all(body);
}

/// Files of a web server by path, each with the number of its version.
pub(crate) type Files = Arc<Mutex<HashMap<String, (u64, Vec<u8>)>>>;

/// How the server tells versions apart.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Tells {
    /// By an ETag; conditions are honoured.
    Tag,
    /// By a time only; conditions are ignored.
    Time,
}

/// Creates a file, or a new version of it.
pub(crate) fn put(files: &Files, path: &str, bytes: &[u8]) {
    let mut files = files.lock().unwrap();
    let version = files.get(path).map_or(0, |(version, _)| version + 1);
    files.insert(path.to_owned(), (version, bytes.to_vec()));
}

/// Percent-decodes a text.
pub(crate) fn decoded(text: &str) -> String {
    let mut bytes = Vec::new();
    let mut rest = text.as_bytes();
    while let [first, more @ ..] = rest {
        rest = more;
        if *first == b'%' {
            let digits = std::str::from_utf8(&more[..2]).expect("digits");
            bytes.push(u8::from_str_radix(digits, 16).expect("hexadecimal"));
            rest = &more[2..];
        } else {
            bytes.push(*first);
        }
    }
    String::from_utf8(bytes).expect("UTF-8")
}

/// Answers like a web server with these files.
pub(crate) fn serve(files: &Files, tells: Tells, asked: &Asked, stream: &mut TcpStream) {
    let found = files.lock().unwrap().get(&decoded(asked.path())).cloned();
    let Some((version, bytes)) = found else {
        return say(stream, "404 Not Found", &[], b"no such file");
    };
    let (tag, date) =
        (format!("\"v{version}\""), format!("Tue, 14 Nov 2023 22:{:02}:20 GMT", version % 60));
    let length = bytes.len().to_string();
    let mut fields = vec![("last-modified", date.as_str())];
    if tells == Tells::Tag {
        fields.push(("etag", tag.as_str()));
        if asked.field("if-match").is_some_and(|wanted| wanted != tag) {
            return say(stream, "412 Precondition Failed", &[], b"");
        }
    }
    if asked.is_head() {
        fields.push(("content-length", &length));
        return say(stream, "200 OK", &fields, b"");
    }
    if asked.field("range").is_none() {
        return say(stream, "200 OK", &fields, &bytes);
    }
    let (from, to) = asked.range();
    if from >= bytes.len() {
        return say(stream, "416 Range Not Satisfiable", &[], b"");
    }
    let to = to.min(bytes.len());
    let range = format!("bytes {from}-{}/{length}", to - 1);
    fields.push(("content-range", &range));
    say(stream, "206 Partial Content", &fields, &bytes[from..to]);
}

/// A web server with these files.
pub(crate) fn web(files: &Files, tells: Tells) -> Server {
    let files = Arc::clone(files);
    Server::start(move |asked, stream| serve(&files, tells, asked, stream))
}
