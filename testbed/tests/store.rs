//! The slow object store from the outside: with a real client (`object_store`), and with plain HTTP for what clients
//! hide.

#[path = "store/client.rs"]
mod client;
#[path = "store/plain.rs"]
mod plain;

use std::fs;
use std::io::ErrorKind;
use std::net::TcpStream;
use std::path::Path;
use std::time::Duration;

use client::{client, collect, runtime};
use foretell_testbed::store::{Faults, FirstByte, Outage, Store, StoreError, StoreOptions, Tail};
use object_store::path::Path as Key;
use object_store::{
    Error, GetOptions, GetRange, ObjectStore, ObjectStoreExt, PutMode, PutOptions, PutPayload,
};
use plain::{get, request};

/// Pseudo-random bytes.
fn content(bytes: usize, seed: u64) -> Vec<u8> {
    let mut random = foretell_sim::random::SplitMix64::new(seed);
    (0..bytes.div_ceil(8)).flat_map(|_| random.next_u64().to_le_bytes()).take(bytes).collect()
}

/// A folder with the bucket `data` and these objects.
fn folder_of(objects: &[(&str, &[u8])]) -> tempfile::TempDir {
    let folder = tempfile::tempdir().expect("a folder");
    fs::create_dir(folder.path().join("data")).expect("made");
    for (key, content) in objects {
        let path = folder.path().join("data").join(key);
        fs::create_dir_all(path.parent().expect("one")).expect("made");
        fs::write(path, content).expect("written");
    }
    folder
}

fn start(folder: &Path) -> Store {
    Store::start(folder, &StoreOptions::fast()).expect("starts")
}

#[test]
fn what_is_read_is_what_is_there() {
    let large = content(3_000_001, 1);
    let objects: [(&str, &[u8]); 4] =
        [("large", &large), ("empty", b""), ("a/b c/ö+&%", b"odd"), ("one", b"1")];
    let folder = folder_of(&objects);
    for options in [
        StoreOptions::fast(),
        StoreOptions { per_response: Some(50_000_000), ..StoreOptions::fast() },
        StoreOptions { total: Some(50_000_000), ..StoreOptions::fast() },
    ] {
        let store = Store::start(folder.path(), &options).expect("starts");
        runtime().block_on(async {
            let client = client(&store, "data");
            for (key, content) in &objects {
                let key = Key::parse(key).expect("a key");
                let got = client.get(&key).await.expect("there");
                assert_eq!(got.meta.size, content.len() as u64);
                assert!(got.meta.e_tag.is_some());
                assert_eq!(got.bytes().await.expect("comes"), *content);
            }
            let key = Key::from("large");
            for range in [0..1, 0..3_000_001, 1_000_000..1_131_072, 2_999_999..3_000_001] {
                let got = client.get_range(&key, range.clone()).await.expect("comes");
                assert_eq!(got, large[range.start as usize..range.end as usize]);
            }
            let ranges = [5..10, 4096..8192, 2_000_000..2_500_000];
            let got = client.get_ranges(&key, &ranges).await.expect("come");
            for (range, got) in ranges.iter().zip(got) {
                assert_eq!(got, large[range.start as usize..range.end as usize]);
            }
            for (range, wanted) in [
                (GetRange::Suffix(1000), &large[2_999_001..]),
                (GetRange::Offset(2_500_000), &large[2_500_000..]),
                (GetRange::Bounded(2_900_000..4_000_000), &large[2_900_000..]),
            ] {
                let options = GetOptions { range: Some(range), ..GetOptions::default() };
                let got = client.get_opts(&key, options).await.expect("there");
                assert_eq!(got.bytes().await.expect("comes"), *wanted);
            }
            let missing = client.get(&Key::from("missing")).await;
            assert!(matches!(missing, Err(Error::NotFound { .. })));
            let head = client.head(&key).await.expect("there");
            assert_eq!(head.size, large.len() as u64);
        });
        let report = store.stop();
        assert!(report.gets >= 13 && report.heads == 1, "{report:?}");
        assert!(report.bytes_sent > 2 * large.len() as u64, "{report:?}");
    }
}

#[test]
fn anybody_reads_over_plain_http_and_nobody_writes_unsigned() {
    let folder = folder_of(&[("a/b c", b"0123456789")]);
    let store = start(folder.path());
    let address = store.address();
    let whole = get(address, "/data/a/b%20c", &[]).expect("answers");
    assert_eq!((whole.status, &whole.body[..]), (200, &b"0123456789"[..]));
    assert_eq!(whole.header("content-length"), Some("10"));
    assert_eq!(whole.header("accept-ranges"), Some("bytes"));
    assert!(whole.header("etag").is_some_and(|tag| tag.starts_with('"')));
    assert!(whole.header("last-modified").is_some_and(|time| time.ends_with("GMT")));
    for (range, status, body, named) in [
        ("bytes=2-4", 206, "234", "bytes 2-4/10"),
        ("bytes=7-", 206, "789", "bytes 7-9/10"),
        ("bytes=-3", 206, "789", "bytes 7-9/10"),
        ("bytes=-99", 206, "0123456789", "bytes 0-9/10"),
        ("bytes=8-99", 206, "89", "bytes 8-9/10"),
    ] {
        let part = get(address, "/data/a/b%20c", &[("Range", range)]).expect("answers");
        assert_eq!((part.status, &part.body[..]), (status, body.as_bytes()), "{range}");
        assert_eq!(part.header("content-range"), Some(named));
    }
    let beyond = get(address, "/data/a/b%20c", &[("Range", "bytes=10-")]).expect("answers");
    assert_eq!((beyond.status, beyond.header("content-range")), (416, Some("bytes */10")));
    let head = request(address, "HEAD", "/data/a/b%20c", &[], b"").expect("answers");
    assert_eq!((head.status, head.header("content-length")), (200, Some("10")));
    assert!(head.body.is_empty());
    let list = get(address, "/data?list-type=2", &[]).expect("answers");
    assert!(list.text().contains("<Key>a/b c</Key>"), "{}", list.text());
    let url = get(address, "/data?list-type=2&encoding-type=url", &[]).expect("answers");
    assert!(url.text().contains("<Key>a/b%20c</Key>"), "{}", url.text());
    let buckets = get(address, "/", &[]).expect("answers");
    assert!(buckets.text().contains("<Name>data</Name>"), "{}", buckets.text());
    for path in ["/data/missing", "/nowhere/x", "/data/../data/a/b%20c", "/data/a"] {
        assert_eq!(get(address, path, &[]).expect("answers").status, 404, "{path}");
    }
    for (method, path) in [("PUT", "/data/new"), ("DELETE", "/data/a/b%20c"), ("PUT", "/bucket")] {
        let denied = request(address, method, path, &[], b"x").expect("answers");
        assert_eq!(denied.status, 403, "{method} {path}");
    }
    assert!(folder.path().join("data/a/b c").exists());
    assert!(!folder.path().join("data/new").exists());
}

#[test]
fn wrong_keys_are_refused() {
    let folder = folder_of(&[("a", b"1")]);
    let options = StoreOptions { secret_key: "another".into(), ..StoreOptions::fast() };
    let store = Store::start(folder.path(), &options).expect("starts");
    let client = client(&store, "data");
    let got = runtime().block_on(client.get(&Key::from("a")));
    assert!(matches!(got, Err(Error::PermissionDenied { .. })), "{got:?}");
}

#[test]
fn conditions_hold_while_an_object_is_replaced() {
    let (old, new) = (content(1 << 20, 1), content(1 << 20, 2));
    let folder = folder_of(&[("object", &old)]);
    // Slow enough that the object is replaced while it is read.
    let options = StoreOptions { per_response: Some(4_000_000), ..StoreOptions::fast() };
    let store = Store::start(folder.path(), &options).expect("starts");
    runtime().block_on(async {
        let client = client(&store, "data");
        let key = Key::from("object");
        let first = client.head(&key).await.expect("there").e_tag.expect("always");
        assert_eq!(client.head(&key).await.expect("there").e_tag.as_ref(), Some(&first));
        let reading = client.get(&key).await.expect("there");
        let put = client.put(&key, PutPayload::from(new.clone())).await.expect("written");
        // A read that had begun gets the old object to its end.
        assert!(reading.bytes().await.expect("comes") == old);
        let second = client.head(&key).await.expect("there").e_tag.expect("always");
        assert_ne!(first, second);
        assert_eq!(put.e_tag.as_ref(), Some(&second));
        let when = |if_match: Option<&String>, if_none_match: Option<&String>| {
            let options = GetOptions {
                if_match: if_match.cloned(),
                if_none_match: if_none_match.cloned(),
                range: Some(GetRange::Bounded(0..100)),
                ..GetOptions::default()
            };
            client.get_opts(&key, options)
        };
        let stale = when(Some(&first), None).await;
        assert!(matches!(stale, Err(Error::Precondition { .. })), "{stale:?}");
        let known = when(None, Some(&second)).await;
        assert!(matches!(known, Err(Error::NotModified { .. })), "{known:?}");
        let fresh = when(Some(&second), None).await.expect("there").bytes().await;
        assert_eq!(fresh.expect("comes"), new[..100]);
        let other = when(None, Some(&first)).await.expect("there").bytes().await;
        assert_eq!(other.expect("comes"), new[..100]);
        // The same content again makes another object.
        client.put(&key, PutPayload::from(new.clone())).await.expect("written");
        assert_ne!(client.head(&key).await.expect("there").e_tag, Some(second));
        let create = PutOptions { mode: PutMode::Create, ..PutOptions::default() };
        let again = client.put_opts(&key, PutPayload::from("x"), create).await;
        assert!(matches!(again, Err(Error::AlreadyExists { .. })), "{again:?}");
    });
    let tag = get(store.address(), "/data/object", &[("Range", "bytes=0-1")]).expect("answers");
    let tag = tag.header("etag").expect("always").to_owned();
    let known = get(store.address(), "/data/object", &[("If-None-Match", &tag)]).expect("answers");
    assert_eq!((known.status, known.header("etag")), (304, Some(&tag[..])));
    assert!(known.body.is_empty());
    let stale = get(store.address(), "/data/object", &[("If-Match", "\"x\"")]).expect("answers");
    assert_eq!(stale.status, 412);
}

#[test]
fn objects_are_put_and_deleted_and_nothing_else_is_left() {
    let folder = folder_of(&[("stays", b"1")]);
    let store = start(folder.path());
    runtime().block_on(async {
        let client = client(&store, "data");
        for key in ["new", "deep/down/new", "deep/other"] {
            client.put(&Key::from(key), PutPayload::from(key)).await.expect("written");
            assert_eq!(
                fs::read(folder.path().join("data").join(key)).expect("there"),
                key.as_bytes()
            );
        }
        // A key below an object cannot be a file.
        let below = client.put(&Key::from("new/below"), PutPayload::from("x")).await;
        assert!(below.is_err());
        let keys = ["deep/down/new", "deep/other", "new", "missing"].map(|key| Ok(Key::from(key)));
        let keys = client::stream(keys);
        let deleted = collect(client.delete_stream(keys)).await;
        assert!(deleted.iter().all(Result::is_ok), "{deleted:?}");
        let listed = collect(client.list(None)).await;
        assert_eq!(listed.len(), 1);
    });
    store.stop();
    let left: Vec<_> = fs::read_dir(folder.path().join("data"))
        .expect("listed")
        .map(|entry| entry.expect("an entry").file_name())
        .collect();
    assert_eq!(left, ["stays"]);
}

#[test]
fn many_keys_come_in_pages() {
    let names: Vec<String> =
        (0..2500).map(|n| format!("{}/{:02}/{n}.bin", ["a", "b"][n % 2], n % 25)).collect();
    let objects: Vec<(&str, &[u8])> = names.iter().map(|name| (&name[..], &b"x"[..])).collect();
    let folder = folder_of(&objects);
    let store = start(folder.path());
    let mut sorted = names.clone();
    sorted.sort();
    runtime().block_on(async {
        let client = client(&store, "data");
        let keys = |prefix: Option<&str>| {
            let found = client.list(prefix.map(Key::from).as_ref());
            async {
                let found = collect(found).await;
                found
                    .into_iter()
                    .map(|meta| meta.expect("listed").location.to_string())
                    .collect::<Vec<_>>()
            }
        };
        assert_eq!(keys(None).await, sorted);
        let wanted: Vec<String> =
            sorted.iter().filter(|name| name.starts_with("b/07/")).cloned().collect();
        assert_eq!(keys(Some("b/07")).await, wanted);
        assert_eq!(wanted.len(), 50);
        let after = client.list_with_offset(None, &Key::from(&sorted[1999][..]));
        let after = collect(after).await;
        assert_eq!(after.len(), 500);
        let top = client.list_with_delimiter(None).await.expect("listed");
        assert_eq!(top.common_prefixes, [Key::from("a"), Key::from("b")]);
        assert!(top.objects.is_empty());
        let sub = client.list_with_delimiter(Some(&Key::from("a"))).await.expect("listed");
        assert_eq!(sub.common_prefixes.len(), 25);
    });
    // Version 1 of listing, whose pages begin after a marker.
    let (mut marker, mut found) = (String::new(), 0);
    loop {
        let page = get(store.address(), &format!("/data?marker={marker}"), &[]).expect("answers");
        let text = page.text();
        found += text.matches("<Key>").count();
        let Some((_, rest)) = text.split_once("<NextMarker>") else { break };
        marker = rest.split('<').next().expect("closed").to_owned();
    }
    assert_eq!(found, 2500);
}

/// The fate of a request, as a client without retries sees it.
fn seen(store: &Store, bytes: usize) -> &'static str {
    match get(store.address(), "/data/object", &[]) {
        Ok(answer) if answer.status == 503 => {
            assert!(answer.text().contains("<Code>SlowDown</Code>"), "{}", answer.text());
            "503"
        }
        Ok(answer) if answer.body.len() == bytes => "whole",
        Ok(answer) => {
            assert!(answer.status == 200 && answer.body.len() < bytes);
            "short"
        }
        Err(error) if error.kind() == ErrorKind::ConnectionReset => "reset",
        Err(error) => panic!("{error}"),
    }
}

#[test]
fn faults_are_seen_as_what_they_are() {
    let bytes = 300_000;
    let folder = folder_of(&[("object", &content(bytes, 1))]);
    let store = start(folder.path());
    assert_eq!(seen(&store, bytes), "whole");
    let all = [
        (Faults { fail_503: 1.0, ..Faults::default() }, "503"),
        (Faults { reset: 1.0, ..Faults::default() }, "reset"),
        (Faults { truncate: 1.0, ..Faults::default() }, "short"),
        (Faults::default(), "whole"),
    ];
    for (faults, wanted) in all {
        store.set_faults(faults).expect("shares");
        for _ in 0..20 {
            assert_eq!(seen(&store, bytes), wanted, "{faults:?}");
        }
    }
    let report = store.report();
    assert_eq!((report.failed_503, report.resets, report.truncated), (20, 20, 20));
    assert!(store.set_faults(Faults { reset: 2.0, ..Faults::default() }).is_err());
}

#[test]
fn the_same_seed_gives_the_same_faults() {
    let folder = folder_of(&[("object", &content(1000, 1))]);
    let run = |seed| {
        let faults = Faults { fail_503: 0.3, reset: 0.2, truncate: 0.2 };
        let options = StoreOptions { faults, seed, ..StoreOptions::fast() };
        let store = Store::start(folder.path(), &options).expect("starts");
        (0..60).map(|_| seen(&store, 1000)).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
}

#[test]
fn a_client_with_retries_gets_through_faults() {
    let large = content(500_000, 1);
    let folder = folder_of(&[("object", &large)]);
    let faults = Faults { fail_503: 0.2, reset: 0.1, truncate: 0.1 };
    let options = StoreOptions { faults, ..StoreOptions::fast() };
    let store = Store::start(folder.path(), &options).expect("starts");
    runtime().block_on(async {
        let client = client(&store, "data");
        let mut through = 0;
        for n in 0..40 {
            let range = n * 10_000..(n + 1) * 10_000;
            // If a body breaks off, the caller may have to ask again.
            for _ in 0..20 {
                if let Ok(got) = client.get_range(&Key::from("object"), range.clone()).await {
                    assert_eq!(got, large[range.start as usize..range.end as usize]);
                    through += 1;
                    break;
                }
            }
        }
        assert_eq!(through, 40);
    });
    assert!(store.report().failed_503 > 0);
}

#[test]
fn a_store_goes_down_and_comes_up() {
    let folder = folder_of(&[("object", b"content")]);
    let store = start(folder.path());
    let mut kept = TcpStream::connect(store.address()).expect("connects");
    let ask = |stream: &mut TcpStream| plain::ask(stream, "GET", "/data/object", &[], b"");
    assert_eq!(ask(&mut kept).expect("answers").body, b"content");

    store.go_down(Outage::Refuse);
    assert!(ask(&mut kept).is_err(), "the connection was reset");
    let refused = TcpStream::connect(store.address()).expect_err("is refused");
    assert_eq!(refused.kind(), ErrorKind::ConnectionRefused);
    store.come_up().expect("comes up");
    store.come_up().expect("is up");
    assert_eq!(get(store.address(), "/data/object", &[]).expect("answers").body, b"content");

    let mut kept = TcpStream::connect(store.address()).expect("connects");
    assert_eq!(ask(&mut kept).expect("answers").body, b"content");
    store.go_down(Outage::Silent);
    let mut new = TcpStream::connect(store.address()).expect("connects");
    for stream in [&mut kept, &mut new] {
        stream.set_read_timeout(Some(Duration::from_millis(100))).expect("set");
        let nothing = ask(stream).expect_err("nothing comes");
        assert_eq!(nothing.kind(), ErrorKind::WouldBlock);
        stream.set_read_timeout(None).expect("set");
    }
    store.come_up().expect("comes up");
    for stream in [&mut kept, &mut new] {
        assert_eq!(plain::answer(stream, "GET").expect("answers").body, b"content");
    }
}

#[test]
fn a_store_stops_while_answers_are_under_way() {
    let folder = folder_of(&[("object", &content(1 << 20, 1))]);
    // The body takes an hour; stopping does not wait for it.
    let options = StoreOptions {
        per_response: Some(300),
        first_byte: FirstByte {
            tail: vec![Tail { share: 0.5, wait: Duration::from_secs(1000) }],
            ..FirstByte::fixed(Duration::ZERO)
        },
        ..StoreOptions::fast()
    };
    let store = Store::start(folder.path(), &options).expect("starts");
    let mut streams: Vec<TcpStream> =
        (0..10).map(|_| TcpStream::connect(store.address()).expect("connects")).collect();
    for stream in &mut streams {
        plain::send(stream, "GET", "/data/object", &[], b"").expect("sent");
    }
    while store.report().requests < 10 {
        std::thread::sleep(Duration::from_millis(5));
    }
    let address = store.address();
    let report = store.stop();
    assert_eq!(report.in_flight_max, 10);
    for stream in &mut streams {
        let answer = plain::answer(stream, "GET");
        assert!(answer.map_or(true, |answer| answer.body.len() < 1 << 20));
    }
    assert!(TcpStream::connect(address).is_err());
}

#[test]
fn the_most_at_once_can_begin_anew() {
    let folder = folder_of(&[("object", b"content")]);
    let store = Store::start(folder.path(), &StoreOptions::fast()).expect("starts");
    let mut stream = TcpStream::connect(store.address()).expect("connects");
    for _ in 0..2 {
        plain::send(&mut stream, "GET", "/data/object", &[], b"").expect("sent");
        assert_eq!(plain::answer(&mut stream, "GET").expect("answers").body, b"content");
        assert_eq!(store.report().in_flight_max, 1);
        // A request counts as finished a little later than its answer.
        while store.report().in_flight_max > 0 {
            store.reset_in_flight_max();
        }
    }
}

#[test]
fn a_folder_itself_may_be_the_bucket() {
    let folder = folder_of(&[("object", b"content")]);
    let options = StoreOptions { bucket: Some("whole".into()), ..StoreOptions::fast() };
    let store = Store::start(folder.path(), &options).expect("starts");
    assert_eq!(store.buckets(), ["whole"]);
    assert_eq!(get(store.address(), "/whole/data/object", &[]).expect("answers").body, b"content");
    assert_eq!(get(store.address(), "/data/object", &[]).expect("answers").status, 404);
}

#[test]
fn what_cannot_be_served_is_named() {
    let folder = folder_of(&[("object", b"content")]);
    let fast = StoreOptions::fast();
    let missing = Store::start(&folder.path().join("missing"), &fast).err().expect("fails");
    assert!(matches!(missing, StoreError::Folder { .. }), "{missing}");
    let file = Store::start(&folder.path().join("data/object"), &fast).err().expect("fails");
    assert!(matches!(file, StoreError::Folder { .. }), "{file}");
    let none = Store::start(&folder.path().join("data"), &fast).err().expect("fails");
    assert!(matches!(none, StoreError::NoBucket { .. }), "{none}");
    let store = start(folder.path());
    let taken = StoreOptions { listen: store.address(), ..StoreOptions::fast() };
    let taken = Store::start(folder.path(), &taken).err().expect("fails");
    assert!(matches!(taken, StoreError::Listen { .. }), "{taken}");
    for error in [missing, file, none, taken] {
        assert_eq!(error.to_string().lines().count(), 1, "{error}");
    }
}

#[test]
fn a_file_that_shrinks_while_it_is_read_breaks_the_answer_off() {
    let folder = folder_of(&[("object", &content(1 << 20, 1))]);
    let options = StoreOptions { per_response: Some(200_000), ..StoreOptions::fast() };
    let store = Store::start(folder.path(), &options).expect("starts");
    let mut stream = TcpStream::connect(store.address()).expect("connects");
    plain::send(&mut stream, "GET", "/data/object", &[], b"").expect("sent");
    while store.report().bytes_sent == 0 {
        std::thread::sleep(Duration::from_millis(1));
    }
    let file = fs::File::options().write(true).open(folder.path().join("data/object"));
    file.expect("opens").set_len(1000).expect("cut");
    let answer = plain::answer(&mut stream, "GET").expect("a head");
    assert!(answer.body.len() < 1 << 20);
    assert_eq!(get(store.address(), "/data/object", &[]).expect("answers").body.len(), 1000);
}

#[test]
fn nothing_outside_of_the_folder_is_read_or_written() {
    use std::os::unix::fs::symlink;
    let outside = tempfile::tempdir().expect("a folder");
    fs::write(outside.path().join("secret"), "outside").expect("written");
    let folder = folder_of(&[("here", b"inside"), ("sub/file", b"inside")]);
    let at = |path: &str| folder.path().join(path);
    symlink(outside.path(), at("linked")).expect("linked");
    symlink("data", at("near")).expect("linked");
    symlink(outside.path().join("secret"), at("data/out")).expect("linked");
    symlink(outside.path(), at("data/away")).expect("linked");
    let name = outside.path().file_name().expect("it has one");
    symlink(Path::new("../..").join(name), at("data/up")).expect("linked");
    symlink("sub", at("data/down")).expect("linked");
    symlink("here", at("data/same")).expect("linked");
    let store = start(folder.path());
    assert_eq!(store.buckets(), ["data", "near"]);
    let address = store.address();
    for path in ["/linked/secret", "/data/out", "/data/away/secret", "/data/up/secret"] {
        assert_eq!(get(address, path, &[]).expect("answers").status, 404, "{path}");
    }
    for path in ["/data/same", "/data/down/file", "/near/here", "/near/down/file"] {
        let found = get(address, path, &[]).expect("answers");
        assert_eq!((found.status, &found.body[..]), (200, &b"inside"[..]), "{path}");
    }
    let list = get(address, "/data?list-type=2", &[]).expect("answers").text();
    let keys: Vec<&str> =
        list.split("<Key>").skip(1).filter_map(|rest| rest.split('<').next()).collect();
    assert_eq!(keys, ["down/file", "here", "same", "sub/file"]);
    assert_eq!(get(address, "/linked?list-type=2", &[]).expect("answers").status, 404);
    runtime().block_on(async {
        for (bucket, key) in [
            ("linked", "new"),
            ("linked", "secret"),
            ("near", "new"),
            ("data", "away/new"),
            ("data", "away/secret"),
            ("data", "up/new"),
            ("data", "down/new"),
        ] {
            let client = client(&store, bucket);
            let put = client.put(&Key::from(key), PutPayload::from_static(b"changed")).await;
            assert!(put.is_err(), "{bucket}/{key}");
            // S3 reports no error for deleting a missing object.
            let _ = client.delete(&Key::from(key)).await;
        }
        let client = client(&store, "data");
        // A link itself is replaced, and removed.
        client.put(&Key::from("out"), PutPayload::from_static(b"changed")).await.expect("put");
        client.delete(&Key::from("same")).await.expect("deleted");
    });
    assert_eq!(fs::read_dir(outside.path()).expect("listed").count(), 1);
    assert_eq!(fs::read(outside.path().join("secret")).expect("there"), b"outside");
    assert_eq!(fs::read(at("data/here")).expect("there"), b"inside");
    assert!(fs::symlink_metadata(at("data/out")).expect("there").is_file());
    assert!(fs::symlink_metadata(at("data/same")).is_err());
    let left = fs::read_dir(at("data")).expect("listed").count();
    assert_eq!(left, 6, "nothing of the refused request is there");
}

#[test]
fn a_page_is_as_long_as_s3_would_have_it() {
    let folder = folder_of(&[("a", b""), ("b", b"")]);
    let store = start(folder.path());
    for kind in ["list-type=2&", ""] {
        let page = |most: &str| {
            let path = format!("/data?{kind}max-keys={most}");
            let page = get(store.address(), &path, &[]).expect("answers");
            (page.status, page.text())
        };
        for most in ["-1", "-2147483648", "many", "1.5", "99999999999"] {
            let (status, text) = page(most);
            assert_eq!(status, 400, "{most}: {text}");
            assert!(text.contains("<Code>InvalidArgument</Code>"), "{most}: {text}");
        }
        for (most, said, keys, is_truncated) in [
            ("0", 0, 0, false),
            ("1", 1, 1, true),
            ("1000", 1000, 2, false),
            ("5000", 1000, 2, false),
        ] {
            let (status, text) = page(most);
            assert_eq!(status, 200, "{most}: {text}");
            assert!(text.contains(&format!("<MaxKeys>{said}</MaxKeys>")), "{most}: {text}");
            assert_eq!(text.matches("<Key>").count(), keys, "{most}: {text}");
            let truncated = format!("<IsTruncated>{is_truncated}</IsTruncated>");
            assert!(text.contains(&truncated), "{most}: {text}");
        }
    }
}

#[test]
fn who_says_nothing_is_hung_up_on() {
    use object_store::signer::Signer;
    use std::io::{Read, Write};
    let folder = folder_of(&[("object", b"0123456789")]);
    let options = StoreOptions {
        idle_timeout: Duration::from_millis(300),
        first_byte: FirstByte::fixed(Duration::from_millis(900)),
        ..StoreOptions::fast()
    };
    let store = Store::start(folder.path(), &options).expect("starts");
    let put = runtime().block_on(async {
        let expires = Duration::from_secs(600);
        let client = client(&store, "data");
        client.signed_url(hyper::Method::PUT, &Key::from("new"), expires).await.expect("signed")
    });
    let put = format!(
        "PUT {}?{} HTTP/1.1\r\nHost: {}\r\nContent-Length: 10\r\n\r\n01234",
        put.path(),
        put.query().expect("the signature"),
        store.address()
    );
    let whole = "GET /data/object HTTP/1.1\r\nHost: x\r\n\r\n";
    let said = |text: &str| {
        let mut stream = TcpStream::connect(store.address()).expect("connects");
        stream.write_all(text.as_bytes()).expect("sent");
        stream.set_read_timeout(Some(Duration::from_secs(60))).expect("set");
        let mut answer = Vec::new();
        match stream.read_to_end(&mut answer) {
            Ok(_) => {}
            Err(error) if error.kind() == ErrorKind::ConnectionReset => {}
            Err(error) => panic!("{text:?}: {error}"),
        }
        String::from_utf8_lossy(&answer).into_owned()
    };
    for half in ["", "GET /data/obj", "GET /data/object HTTP/1.1\r\nHost: x\r\n"] {
        assert_eq!(said(half), "", "{half:?}");
    }
    // A whole request is answered, though that takes longer. The connection is closed some time after that.
    let answer = said(whole);
    assert!(answer.starts_with("HTTP/1.1 200 ") && answer.ends_with("0123456789"), "{answer}");
    let answer = said(&put);
    assert!(!answer.starts_with("HTTP/1.1 2"), "{answer}");
    let left: Vec<_> = fs::read_dir(folder.path().join("data")).expect("listed").collect();
    assert_eq!(left.len(), 1, "{left:?}");
}
