//! A server that answers as a test says.
#![allow(dead_code, reason = "each test uses some of it")]

use std::io::{BufRead, BufReader, Write};
use std::net::{TcpListener, TcpStream};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use foretell_cache::backend::object::{ObjectBackend, ObjectOptions};

/// What was asked: the first line, and the lines after it.
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
    // Whoever asked may have gone.
    let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(b"\r\n"));
    let _ = stream.write_all(body);
}
