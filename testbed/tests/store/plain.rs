//! HTTP without a library, so that nothing is retried, hidden or corrected.

use std::io::{self, ErrorKind, Read, Write};
use std::net::{SocketAddr, TcpStream};

/// An answer; its body may be shorter than its head says.
#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    headers: Vec<(String, String)>,
    pub(crate) body: Vec<u8>,
}

impl Answer {
    pub(crate) fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(key, _)| key == name).map(|(_, value)| &value[..])
    }

    pub(crate) fn text(&self) -> String {
        String::from_utf8_lossy(&self.body).into_owned()
    }
}

/// One request on a connection of its own.
pub(crate) fn request(
    address: SocketAddr,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Answer> {
    ask(&mut TcpStream::connect(address)?, method, path, headers, body)
}

pub(crate) fn get(address: SocketAddr, path: &str, headers: &[(&str, &str)]) -> io::Result<Answer> {
    request(address, "GET", path, headers, b"")
}

pub(crate) fn ask(
    stream: &mut TcpStream,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<Answer> {
    send(stream, method, path, headers, body)?;
    answer(stream, method)
}

pub(crate) fn send(
    stream: &mut TcpStream,
    method: &str,
    path: &str,
    headers: &[(&str, &str)],
    body: &[u8],
) -> io::Result<()> {
    let mut head = format!("{method} {path} HTTP/1.1\r\nHost: 127.0.0.1\r\n");
    for (name, value) in headers {
        head += &format!("{name}: {value}\r\n");
    }
    if !body.is_empty() {
        head += &format!("Content-Length: {}\r\n", body.len());
    }
    stream.write_all(&[head.as_bytes(), b"\r\n", body].concat())
}

pub(crate) fn answer(stream: &mut TcpStream, method: &str) -> io::Result<Answer> {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        let mut byte = [0];
        match stream.read(&mut byte)? {
            0 => return Err(ErrorKind::UnexpectedEof.into()),
            _ => head.push(byte[0]),
        }
    }
    let head = String::from_utf8_lossy(&head).into_owned();
    let mut lines = head.lines();
    let status = lines.next().and_then(|line| line.split(' ').nth(1)).expect("a status");
    let headers: Vec<(String, String)> = lines
        .filter_map(|line| line.split_once(": "))
        .map(|(name, value)| (name.to_lowercase(), value.to_owned()))
        .collect();
    let mut answer =
        Answer { status: status.parse().expect("a number"), headers, body: Vec::new() };
    if method != "HEAD" && !matches!(answer.status, 204 | 304) {
        let length: u64 =
            answer.header("content-length").expect("a length").parse().expect("a number");
        stream.take(length).read_to_end(&mut answer.body)?;
    }
    Ok(answer)
}
