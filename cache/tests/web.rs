//! Real web servers' behaviour: sizes, ranges and encodings in their answers, and the requests that they get.
#![cfg(feature = "object")]

mod server;

use std::net::TcpStream;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use foretell_cache::backend::index::{Index, IndexBackend};
use foretell_cache::backend::object::{ObjectBackend, ObjectOptions};
use foretell_cache::backend::{Backend, BackendError, Found};
use foretell_cache::{Cache, CacheOptions};
use server::{Asked, Server, say};

const PATIENCE: Duration = Duration::from_secs(30);
const TAG: (&str, &str) = ("etag", "\"a\"");

/// 81 bytes.
fn content() -> Vec<u8> {
    (0..81).map(|number| b'a' + number % 26).collect()
}

fn read(backend: &Arc<ObjectBackend>, name: &str) -> Result<Vec<u8>, BackendError> {
    let opened = backend.open(name)?;
    let session = Cache::new(CacheOptions::default()).unwrap().attach(backend.clone()).session();
    let mut bytes = vec![0; opened.size_bytes as usize];
    session.open_found(name, opened).read_at(&mut bytes, 0).map_err(|error| error.cause)?;
    Ok(bytes)
}

/// Sends the requested part of `whole`, and tells `total` as the size of the whole.
fn part(asked: &Asked, stream: &mut TcpStream, whole: &[u8], total: &str, more: &[(&str, &str)]) {
    let (from, to) = asked.range();
    if from >= whole.len() {
        let range = format!("bytes */{}", whole.len());
        return say(stream, "416 Range Not Satisfiable", &[("content-range", &range)], b"");
    }
    let to = to.min(whole.len());
    let range = format!("bytes {from}-{}/{total}", to - 1);
    let mut fields = vec![TAG, ("content-range", range.as_str())];
    fields.extend(more);
    say(stream, "206 Partial Content", &fields, &whole[from..to]);
}

fn head(stream: &mut TcpStream, length: &str, more: &[(&str, &str)]) {
    let mut fields = vec![TAG, ("content-length", length)];
    fields.extend(more);
    say(stream, "200 OK", &fields, b"");
}

/// The folder of a server that gives these answers.
fn folder(
    answer: impl Fn(&Asked, &mut TcpStream) + Send + Sync + 'static,
) -> (Server, Arc<ObjectBackend>) {
    let server = Server::start(answer);
    let backend = Arc::new(server.folder("/", PATIENCE));
    (server, backend)
}

#[test]
fn a_server_that_refuses_head_is_read() {
    for status in ["403 Forbidden", "405 Method Not Allowed", "501 Not Implemented", "reset"] {
        let (server, backend) = folder(move |asked, stream| match (asked.is_head(), status) {
            (true, "reset") => {}
            (true, status) => say(stream, status, &[], b""),
            (false, _) => part(asked, stream, &content(), "81", &[]),
        });
        assert_eq!(read(&backend, "f"), Ok(content()), "{status}");
        assert_eq!(read(&backend, "g"), Ok(content()), "{status}");
        assert_eq!(server.times(), 4, "{status}: one for the size, one for the bytes");
        assert_eq!(backend.probe("f"), Ok(()));
    }
}

#[test]
fn a_size_is_that_of_the_bytes_whatever_head_says() {
    let gzip = ("content-encoding", "gzip");
    for (length, more) in [("0", vec![]), ("95", vec![gzip]), ("95", vec![]), ("7", vec![])] {
        let (_server, backend) = folder(move |asked, stream| match asked.is_head() {
            true => head(stream, length, &more),
            false => part(asked, stream, &content(), "81", &[]),
        });
        assert_eq!(read(&backend, "f"), Ok(content()), "HEAD says {length}");
    }
}

#[test]
fn an_empty_file_is_one_however_it_is_told() {
    for how in ["416", "416 without a size", "200"] {
        let (_server, backend) = folder(move |asked, stream| match (asked.is_head(), how) {
            (true, _) => head(stream, "0", &[]),
            (false, "416") => part(asked, stream, b"", "0", &[]),
            (false, "200") => say(stream, "200 OK", &[TAG], b""),
            _ => say(stream, "416 Range Not Satisfiable", &[], b""),
        });
        assert_eq!(read(&backend, "f"), Ok(Vec::new()), "{how}");
    }
}

#[test]
fn a_size_in_a_list_that_is_not_the_servers_is_corrected() {
    for listed in [0, 7, 95] {
        let (_server, backend) = folder(|asked, stream| match asked.is_head() {
            true => head(stream, "0", &[]),
            false => part(asked, stream, &content(), "81", &[]),
        });
        let index = Index::parse(format!("f\t{listed}").as_bytes()).unwrap();
        let store = Arc::new(IndexBackend::new(backend, index));
        let Ok(Found::File(file)) = store.find("f") else { panic!("a file") };
        assert_eq!(file.size_bytes, listed);
        assert_eq!(store.open_found("f", &file).unwrap_err(), BackendError::Changed);
        let Ok(Found::File(file)) = store.find("f") else { panic!("a file") };
        assert_eq!(file.size_bytes, 81);
        assert_eq!(store.open_found("f", &file).unwrap().size_bytes, 81);
    }
}

#[test]
fn nothing_is_asked_for_compressed_and_what_is_sent_so_is_no_data() {
    let (server, backend) = folder(|asked, stream| {
        // As servers that compress unless the client refuses.
        let encoding = asked.field("accept-encoding");
        match encoding == Some("identity") {
            true => part(asked, stream, &content(), "81", &[]),
            false => part(asked, stream, b"gzip", "4", &[("content-encoding", "gzip")]),
        }
    });
    assert_eq!(read(&backend, "f"), Ok(content()));
    drop(server);
    for encoding in ["gzip", "br", "zstd", "deflate"] {
        for compresses_first_byte in [true, false] {
            let (server, backend) = folder(move |asked, stream| {
                let is_first = asked.is_head() || asked.range() == (0, 1);
                let more = [("content-encoding", encoding)];
                match is_first && !compresses_first_byte {
                    true => part(asked, stream, &content(), "81", &[]),
                    false => part(asked, stream, &content(), "81", &more),
                }
            });
            let error = read(&backend, "f").unwrap_err().to_string();
            assert!(error.contains(&format!("Content-Encoding: {encoding}")), "{error}");
            assert!(server.times() <= 2, "it is not asked again");
        }
    }
    // A compressed file is read as it is, whatever encoding the server tells.
    let (_server, backend) = folder(|asked, stream| {
        part(asked, stream, &content(), "81", &[("content-encoding", "x-gzip")]);
    });
    assert_eq!(read(&backend, "f.tar.gz"), Ok(content()));
    assert!(read(&backend, "f.tar").is_err());
}

#[test]
fn an_object_of_a_bucket_is_read_as_it_is_stored() {
    let server = Server::start(|asked, stream| {
        let more =
            [("content-encoding", "gzip"), ("last-modified", "Tue, 14 Nov 2023 22:13:20 GMT")];
        match asked.is_head() {
            true => head(stream, "81", &more),
            false => part(asked, stream, &content(), "81", &more),
        }
    });
    assert_eq!(read(&Arc::new(server.backend(PATIENCE)), "f"), Ok(content()));
}

#[test]
fn a_range_of_a_file_whose_size_is_not_told_is_one_of_the_size_that_it_had() {
    let star = |asked: &Asked, stream: &mut TcpStream| match asked.is_head() {
        true => {
            head(stream, "81", &[("last-modified", "Tue, 14 Nov 2023 22:13:20 GMT")]);
        }
        false => {
            let more = [("last-modified", "Tue, 14 Nov 2023 22:13:20 GMT")];
            part(asked, stream, &content(), "*", &more);
        }
    };
    let (_server, backend) = folder(star);
    assert_eq!(read(&backend, "f"), Ok(content()));
    assert_eq!(backend.probe("f"), Ok(()));
    let server = Server::start(star);
    assert_eq!(read(&Arc::new(server.backend(PATIENCE)), "f"), Ok(content()), "S3");
    // One byte was sent, so the file is not empty, and its size is not known.
    for (status, length) in [("200 OK", "0"), ("403 Forbidden", "0"), ("200 OK", "")] {
        let (_server, backend) = folder(move |asked, stream| match (asked.is_head(), length) {
            (true, "") => {
                use std::io::Write;
                let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
            }
            (true, length) => say(stream, status, &[TAG, ("content-length", length)], b""),
            (false, _) => part(asked, stream, &content(), "*", &[]),
        });
        let error = read(&backend, "f").unwrap_err().to_string();
        assert_eq!(error, "the server does not say how long the file is");
    }
}

#[test]
fn a_whole_file_is_taken_where_all_of_it_was_asked_for() {
    let (_server, backend) = folder(|_, stream| say(stream, "200 OK", &[TAG], &content()));
    assert_eq!(read(&backend, "f"), Ok(content()));
    let (_server, backend) = folder(|_, stream| {
        say(stream, "200 OK", &[TAG], &vec![7; 1 << 20]);
    });
    let session = Cache::new(CacheOptions::default()).unwrap().attach(backend).session();
    let error = session.open("f").unwrap().read_at(&mut [0; 100], 0).unwrap_err().to_string();
    assert!(error.contains("does not send parts of files"), "{error}");
}

#[test]
fn a_file_that_has_another_size_than_when_it_was_opened_has_changed() {
    let size = Arc::new(AtomicUsize::new(81));
    let told = Arc::clone(&size);
    let (_server, backend) = folder(move |asked, stream| {
        let whole = vec![b'x'; told.load(Ordering::Relaxed)];
        part(asked, stream, &whole, &whole.len().to_string(), &[]);
    });
    let opened = backend.open("f").unwrap();
    size.store(95, Ordering::Relaxed);
    let session = Cache::new(CacheOptions::default()).unwrap().attach(backend.clone()).session();
    let error = session.open_found("f", opened).read_at(&mut [0; 81], 0).unwrap_err();
    assert_eq!(error.cause, BackendError::Changed);
    assert_eq!(read(&backend, "f").unwrap().len(), 95);
}

#[test]
fn a_query_and_percent_signs_go_out_as_they_were_written() {
    // Without the query the server sends other bytes.
    let server = Server::start(|asked, stream| {
        let target = asked.line.split(' ').nth(1).unwrap();
        part(asked, stream, target.as_bytes(), &target.len().to_string(), &[]);
    });
    let asked = |backend: &Arc<ObjectBackend>, name: &str| {
        String::from_utf8(read(backend, name).unwrap_or_else(|e| panic!("{name}: {e}"))).unwrap()
    };
    let root = Arc::new(server.folder("/", PATIENCE));
    let here = &server.endpoint;
    for target in [
        "/f.bin?sig=ok",
        "/my%20file.nc",
        "/%C3%A9/%2B+?a=%2F%3D&b=c%20d",
        "/data?version=1",
        "/a//b?",
        "/100%25",
    ] {
        assert_eq!(asked(&root, &format!("{here}{target}")), target);
        let alone = Arc::new(server.folder(target, PATIENCE));
        assert_eq!(asked(&alone, ""), target, "the address itself");
    }
    assert_eq!(asked(&root, &format!("{here}/a#part")), "/a");
    let signed = Arc::new(server.folder("/dir%20x/?sig=a%2Fb", PATIENCE));
    assert_eq!(asked(&signed, "b c?"), "/dir%20x/b%20c%3F?sig=a%2Fb");
    let error = root.open("http://127.0.0.1:1/f").unwrap_err().to_string();
    assert!(error.contains("http://127.0.0.1:1/f is not at http://127.0.0.1:"), "{error}");
}

#[test]
fn who_asks_is_told_to_a_web_server() {
    let server = Server::start(|asked, stream| {
        let says = |name: &str, value: &str| asked.field(name) == Some(value);
        match says("authorization", "Basic bWU6cEBzcyE=") && says("x-key", "k") {
            true => part(asked, stream, &content(), "81", &[]),
            false => say(stream, "401 Unauthorized", &[], b""),
        }
    });
    let address = server.endpoint.replace("http://", "http://me:p%40ss!@");
    let settings = [("header.x-key", "k"), ("user_agent", "foretell-test")];
    let backend = ObjectBackend::configured(&address, &settings, ObjectOptions::default()).unwrap();
    assert!(!backend.identity().contains("me:"), "{}", backend.identity());
    assert_eq!(read(&Arc::new(backend), "f"), Ok(content()));
    let denied = server.folder("/", PATIENCE).open("f").unwrap_err();
    assert!(matches!(denied, BackendError::Denied(_)), "{denied}");
    for (name, value) in [("header.a b", "c"), ("header.a", "c\nd")] {
        let error = ObjectBackend::configured(&address, &[(name, value)], ObjectOptions::default());
        let error = error.unwrap_err().to_string();
        assert!(error.contains("is no header") && !error.contains("p%40ss"), "{error}");
    }
}

#[test]
fn a_busy_server_is_asked_again_unless_it_asks_for_too_long() {
    let is_first = AtomicBool::new(true);
    let (_server, backend) =
        folder(move |asked, stream| match is_first.swap(false, Ordering::Relaxed) {
            true => say(stream, "429 Too Many Requests", &[("retry-after", "1")], b""),
            false => part(asked, stream, &content(), "81", &[]),
        });
    assert_eq!(read(&backend, "f"), Ok(content()));
    // The server asks for a longer wait than the deadline: the read fails at once.
    let server = Server::start(|_, stream| {
        say(stream, "503 Slow Down", &[("retry-after", "3600")], b"");
    });
    let error = server.folder("/", PATIENCE).open("f").unwrap_err();
    assert_eq!((error, server.times()), (BackendError::Busy("it answered 503".into()), 1));
}

#[test]
fn what_s3_is_asked_with_goes_out() {
    let server = Server::start(|asked, stream| {
        let date = ("last-modified", "Tue, 14 Nov 2023 22:13:20 GMT");
        match (asked.field("x-amz-request-payer"), asked.field("user-agent"), asked.is_head()) {
            (Some("requester"), Some("me/1"), true) => head(stream, "81", &[date]),
            (Some("requester"), Some("me/1"), false) => {
                part(asked, stream, &content(), "81", &[date])
            }
            _ => say(stream, "403 Forbidden", &[], b""),
        }
    });
    for name in ["requester_pays", "request_payer", "aws_request_payer"] {
        let settings = [
            ("endpoint", server.endpoint.as_str()),
            ("access_key_id", "foretell"),
            ("secret_access_key", "foretell-secret"),
            ("region", "us-east-1"),
            (name, "true"),
            ("user_agent", "me/1"),
        ];
        let backend = ObjectBackend::configured("s3://b", &settings, ObjectOptions::default());
        assert_eq!(read(&Arc::new(backend.unwrap()), "f"), Ok(content()), "{name}");
    }
}

#[test]
fn what_gcs_and_azure_are_asked_with_goes_out() {
    let date = ("last-modified", "Tue, 14 Nov 2023 22:13:20 GMT");
    let answer = move |asked: &Asked, stream: &mut TcpStream| match asked.is_head() {
        true => head(stream, "81", &[date, ("x-ms-version-id", "1"), ("x-goog-generation", "1")]),
        false => part(asked, stream, &content(), "81", &[date]),
    };
    let server = Server::start(move |asked, stream| {
        let says = |name: &str, value: &str| asked.field(name) == Some(value);
        let is_right = says("authorization", "Bearer token")
            && says("x-goog-user-project", "payer")
            && says("accept-encoding", "gzip");
        match is_right {
            true => answer(asked, stream),
            false => say(stream, "403 Forbidden", &[], b""),
        }
    });
    let settings = [
        ("endpoint", server.endpoint.as_str()),
        ("bearer_token", "token"),
        ("requester_pays", "payer"),
    ];
    let backend = ObjectBackend::configured("gs://b", &settings, ObjectOptions::default());
    assert_eq!(read(&Arc::new(backend.unwrap()), "f"), Ok(content()), "GCS");
    let server = Server::start(move |asked, stream| {
        match asked.line.contains("/acc/b/f?") && asked.line.contains("sig=x%2By") {
            true => answer(asked, stream),
            false => say(stream, "403 Forbidden", &[], b""),
        }
    });
    let text = format!(
        "BlobEndpoint={}/acc;AccountName=acc;SharedAccessSignature=sv=1&sig=x%2By",
        server.endpoint
    );
    let settings = [("connection_string", text.as_str())];
    let backend = ObjectBackend::configured("az://b", &settings, ObjectOptions::default());
    assert_eq!(read(&Arc::new(backend.unwrap()), "f"), Ok(content()), "Azure");
}

#[test]
fn nothing_that_is_given_makes_the_crate_panic() {
    let keys = [("access_key_id", "a"), ("secret_access_key", "b"), ("skip_signature", "false")];
    for (address, name, value) in [
        ("s3://b", "region", "us east\t1"),
        ("s3://b", "region", "[x"),
        ("s3://b", "region", ""),
        ("s3://b", "endpoint", "127.0.0.1:9000"),
        ("s3://b", "aws_endpoint_url_s3", "127.0.0.1:9000"),
        ("s3://b", "aws_endpoint_url_s3", "http://[x"),
        ("s3://b", "session_token", "a\nb"),
        ("gs://b", "base_url", "localhost:4443"),
        ("gs://b", "bearer_token", "a\nb"),
        ("az://b", "endpoint", "localhost:10000"),
        ("az://b", "token", "ä"),
    ] {
        let mut settings = vec![(name, value)];
        settings.extend(keys.iter().filter(|_| address.starts_with("s3")));
        settings.extend(address.starts_with("az").then_some(("account_name", "acc")));
        let options =
            ObjectOptions { deadline: Duration::from_millis(300), ..ObjectOptions::default() };
        let opened = ObjectBackend::configured(address, &settings, options)
            .map_err(|error| error.to_string())
            .and_then(|backend| backend.open("k").map_err(|error| error.to_string()));
        let error = opened.unwrap_err();
        assert!(!error.contains('\n') && !error.contains("given up"), "{name}={value}: {error}");
    }
}

#[test]
fn an_empty_file_may_be_told_as_a_first_byte_that_never_comes() {
    // tower-rs/tower-http#556
    let (_server, backend) = folder(|asked, stream| match asked.is_head() {
        true => head(stream, "0", &[]),
        false => {
            let fields = [TAG, ("content-range", "bytes 0-0/0"), ("content-length", "1")];
            say(stream, "206 Partial Content", &fields, b"");
        }
    });
    assert_eq!(read(&backend, "f"), Ok(Vec::new()));
}

#[test]
fn a_head_without_a_length_is_no_matter() {
    // duckdb/duckdb-httpfs#401
    use std::io::Write;
    let (_server, backend) = folder(|asked, stream| match asked.is_head() {
        true => {
            let _ = stream.write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\n\r\n");
        }
        false => part(asked, stream, &content(), "81", &[]),
    });
    assert_eq!(read(&backend, "f"), Ok(content()));
}

#[test]
fn a_condition_that_never_holds_is_left_out() {
    // bitfireAT/davx5-ose#1365, caddyserver/caddy#1531
    let (server, backend) = folder(|asked, stream| match asked.field("if-match") {
        Some(_) => say(stream, "412 Precondition Failed", &[("etag", "\"other\"")], b""),
        None => part(asked, stream, &content(), "81", &[]),
    });
    assert_eq!(read(&backend, "f"), Ok(content()));
    assert_eq!(server.times(), 3);
    // A condition that rightly fails is a change.
    let (_server, backend) = folder(|asked, stream| match asked.field("if-match") {
        Some(_) => say(stream, "412 Precondition Failed", &[], b""),
        None if asked.range() == (0, 1) => part(asked, stream, &content(), "81", &[]),
        None => {
            let fields = [("etag", "\"b\""), ("content-range", "bytes 0-80/81")];
            say(stream, "206 Partial Content", &fields, &content());
        }
    });
    assert_eq!(read(&backend, "f"), Err(BackendError::Changed));
}

#[test]
fn a_time_in_no_known_form_still_tells_a_change() {
    // CenterForOpenScience/waterbutler#228
    let times = Arc::new(AtomicUsize::new(0));
    let told = Arc::clone(&times);
    let (_server, backend) = folder(move |asked, stream| {
        let (from, to) = asked.range();
        let range = format!("bytes {from}-{}/81", to - 1);
        let date = format!("2017-05-25T21:54:0{}", told.load(Ordering::Relaxed));
        let fields = [("last-modified", date.as_str()), ("content-range", &range)];
        say(stream, "206 Partial Content", &fields, &content()[from..to]);
    });
    assert_eq!(read(&backend, "f"), Ok(content()));
    let opened = backend.open("f").unwrap();
    times.store(1, Ordering::Relaxed);
    let session = Cache::new(CacheOptions::default()).unwrap().attach(backend.clone()).session();
    let error = session.open_found("f", opened).read_at(&mut [0; 81], 0).unwrap_err();
    assert_eq!(error.cause, BackendError::Changed);
}

#[test]
fn each_request_follows_a_redirect_anew_and_who_asks_is_not_told_elsewhere() {
    // mem9-ai/drive9#138, aws/aws-sdk-js#1908: a signed address expires, and refuses other credentials.
    let last = AtomicUsize::new(0);
    let signed = Server::start(move |asked, stream| {
        let is_plain = asked.field("authorization").is_none() && asked.field("range").is_some();
        let signature = asked.line.split("sig=").nth(1).and_then(|rest| rest.split(' ').next());
        let number: usize = signature.and_then(|text| text.parse().ok()).expect("a number");
        match is_plain && number > last.swap(number, Ordering::Relaxed) {
            true => part(asked, stream, &content(), "81", &[]),
            false => say(stream, "400 Bad Request", &[], b""),
        }
    });
    let (number, place) = (AtomicUsize::new(1), signed.endpoint.clone());
    let server = Server::start(move |asked, stream| match asked.field("authorization") {
        Some("Bearer x") => {
            let number = number.fetch_add(1, Ordering::Relaxed);
            let location = format!("{place}/f?sig={number}");
            say(stream, "302 Found", &[("location", &location)], b"");
        }
        _ => say(stream, "401 Unauthorized", &[], b""),
    });
    let settings = [("header.authorization", "Bearer x")];
    let backend =
        ObjectBackend::configured(&server.endpoint, &settings, ObjectOptions::default()).unwrap();
    assert_eq!(read(&Arc::new(backend), "f"), Ok(content()));
    assert_eq!(signed.times(), 2);
}

#[test]
fn a_bucket_in_another_region_is_told_with_the_region() {
    // mickael-kerjean/filestash#841
    for status in ["301 Moved Permanently", "400 Bad Request"] {
        let server = Server::start(move |_, stream| {
            say(stream, status, &[("x-amz-bucket-region", "eu-central-1")], b"");
        });
        let backend = server.backend(PATIENCE);
        let wanted = "the bucket is in the region eu-central-1: set AWS_REGION=eu-central-1";
        for error in [backend.open("f").unwrap_err(), backend.list("").map(|_| ()).unwrap_err()] {
            assert_eq!(error.to_string(), wanted, "{status}");
        }
        assert_eq!(server.times(), 2, "it is not asked again");
    }
}

#[test]
fn answers_may_come_in_chunks_and_without_a_length() {
    let chunked = |stream: &mut TcpStream, status: &str, range: &str, bytes: &[u8]| {
        use std::io::Write;
        let head = format!(
            "HTTP/1.1 {status}\r\nconnection: close\r\netag: \"a\"\r\n{range}\
             transfer-encoding: chunked\r\n\r\n{:x}\r\n",
            bytes.len()
        );
        let _ = stream.write_all(head.as_bytes()).and_then(|()| stream.write_all(bytes));
        let _ = stream.write_all(b"\r\n0\r\n\r\n");
    };
    let (_server, backend) = folder(move |asked, stream| match asked.field("range") {
        Some(_) => {
            let (from, to) = asked.range();
            let range = format!("content-range: bytes {from}-{}/81\r\n", to - 1);
            chunked(stream, "206 Partial Content", &range, &content()[from..to]);
        }
        None => chunked(stream, "200 OK", "", b"f\t81\n"),
    });
    assert_eq!(read(&backend, "f"), Ok(content()));
    assert_eq!(backend.read_all("list", 100).unwrap(), b"f\t81\n");
    // A HEAD without a length gives no size.
    let server = Server::start(move |_, stream| {
        let date = "last-modified: Tue, 14 Nov 2023 22:13:20 GMT\r\n";
        chunked(stream, "200 OK", date, b"");
    });
    let error = server.backend(Duration::from_millis(400)).open("f").unwrap_err();
    assert_eq!(error.to_string(), "the server does not say how long the file is");
}
