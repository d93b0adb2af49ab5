//! `foretell mount` of object stores and web servers: sources of settings, and answers of servers.

mod common;
#[path = "../../cache/tests/server/mod.rs"]
mod server;

use std::fs;
use std::net::TcpStream;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use common::{foretell, have_fuse, text};
use foretell_testbed::store::{Store, StoreOptions};
use server::{Asked, Server, say};

const DATE: &str = "Tue, 14 Nov 2023 22:13:20 GMT";

/// A mount with only these settings, for a user with this home folder.
fn mount(source: &str, mountpoint: &Path, home: &Path, variables: &[(&str, &str)]) -> Command {
    let mut command = foretell();
    for (name, _) in std::env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        let is_of_a_store = ["AWS_", "GOOGLE_", "AZURE_"].iter().any(|it| name.starts_with(it));
        if is_of_a_store || name == "STORAGE_EMULATOR_HOST" || name == "IDENTITY_ENDPOINT" {
            command.env_remove(name);
        }
    }
    command.arg("mount").arg(source).arg(mountpoint).stdin(Stdio::null());
    command.env("HOME", home).env("AWS_EC2_METADATA_DISABLED", "true");
    command.envs(variables.iter().copied());
    command
}

/// The message of a mount that must fail, without the program's name.
fn refused(source: &str, home: &Path, variables: &[(&str, &str)]) -> String {
    let mnt = tempfile::tempdir().expect("a folder");
    let output = mount(source, mnt.path(), home, variables).output().expect("foretell runs");
    assert_eq!(output.status.code(), Some(1), "{source} {variables:?}: {}", text(&output.stderr));
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    said
}

/// The content of `f` in a mount with these settings.
fn read(source: &str, home: &Path, variables: &[(&str, &str)], options: &[&str]) -> Vec<u8> {
    let mnt = tempfile::tempdir().expect("a folder");
    let mut command = mount(source, mnt.path(), home, variables);
    let mounted = command.args(options).output().expect("foretell runs");
    assert!(mounted.status.success(), "{variables:?}: {}", text(&mounted.stderr));
    let cat: Output = Command::new("cat").arg(mnt.path().join("f")).output().expect("cat runs");
    let unmounted = foretell().arg("unmount").arg(mnt.path()).output().expect("foretell runs");
    assert!(unmounted.status.success(), "{}", text(&unmounted.stderr));
    assert!(cat.status.success(), "{variables:?}: {}", text(&cat.stderr));
    cat.stdout
}

#[test]
fn an_endpoint_without_a_scheme_is_one_line_whatever_names_it() {
    let home = tempfile::tempdir().expect("a folder");
    let keys = [("AWS_ACCESS_KEY_ID", "a"), ("AWS_SECRET_ACCESS_KEY", "b"), ("AWS_REGION", "c")];
    let account = [("AZURE_STORAGE_ACCOUNT_NAME", "a"), ("AZURE_STORAGE_ACCOUNT_KEY", "YQ==")];
    for (source, name, others) in [
        ("s3://b", "AWS_ENDPOINT_URL", &keys[..]),
        ("s3://b", "AWS_ENDPOINT", &keys),
        ("s3://b", "AWS_ENDPOINT_URL_S3", &keys),
        ("gs://b", "GOOGLE_BASE_URL", &[]),
        ("gs://b", "STORAGE_EMULATOR_HOST", &[]),
        ("az://b", "AZURE_STORAGE_ENDPOINT", &account),
        ("az://b", "AZURE_ENDPOINT", &account),
    ] {
        let mut variables = others.to_vec();
        variables.push((name, "127.0.0.1:9"));
        let said = refused(source, home.path(), &variables);
        let wanted = "the endpoint \"127.0.0.1:9\" does not begin with http:// or https://\n";
        assert!(said.ends_with(&format!("{source}: {wanted}")), "{name}: {said}");
    }
    fs::create_dir(home.path().join(".aws")).expect("made");
    for config in [
        "[default]\nendpoint_url = 127.0.0.1:9\n",
        "[default]\nservices = here\n[services here]\ns3 =\n  endpoint_url = 127.0.0.1:9\n",
    ] {
        fs::write(home.path().join(".aws/config"), config).expect("written");
        let said = refused("s3://b", home.path(), &keys);
        assert!(said.contains("does not begin with http:// or https://"), "{config}: {said}");
    }
}

/// A store with one object in a bucket, and the home folder of a user who may read it.
struct Known {
    _folder: tempfile::TempDir,
    home: tempfile::TempDir,
    store: Store,
}

impl Known {
    fn new(config: &str, credentials: &str) -> Self {
        let folder = tempfile::tempdir().expect("a folder");
        fs::create_dir(folder.path().join("bucket")).expect("made");
        fs::write(folder.path().join("bucket/f"), "from the store").expect("written");
        let store = Store::start(folder.path(), &StoreOptions::fast()).expect("it starts");
        let home = tempfile::tempdir().expect("a folder");
        fs::create_dir(home.path().join(".aws")).expect("made");
        let config = config.replace("ENDPOINT", &store.endpoint());
        fs::write(home.path().join(".aws/config"), config).expect("written");
        fs::write(home.path().join(".aws/credentials"), credentials).expect("written");
        Known { _folder: folder, home, store }
    }
}

const RIGHT: &str = "aws_access_key_id = foretell\naws_secret_access_key = foretell-secret\n";
const WRONG: &str = "aws_access_key_id = foretell\naws_secret_access_key = wrong\n";

#[test]
fn profiles_say_who_asks_and_where() {
    if !have_fuse() {
        return;
    }
    let config = "[default]\nregion = us-east-1\nendpoint_url = ENDPOINT\n\
        [profile x]\nregion = us-east-1\nendpoint_url = ENDPOINT\n\
        [profile process]\nregion = us-east-1\nservices = here\n\
        credential_process = printf '{\"Version\":1,\"AccessKeyId\":\"foretell\",\
        \"SecretAccessKey\":\"foretell-secret\"}'\n\
        [profile wrong]\nregion = us-east-1\nendpoint_url = ENDPOINT\n\
        [services here]\ns3 =\n  endpoint_url = ENDPOINT\n";
    let credentials = format!("[default]\n{RIGHT}[x]\n{RIGHT}[wrong]\n{WRONG}");
    let known = Known::new(config, &credentials);
    let home = known.home.path();
    for variables in [
        &[][..],
        &[("AWS_PROFILE", "x")],
        &[("AWS_PROFILE", "process")],
        // The environment comes before the profile.
        &[
            ("AWS_PROFILE", "wrong"),
            ("AWS_ACCESS_KEY_ID", "foretell"),
            ("AWS_SECRET_ACCESS_KEY", "foretell-secret"),
        ],
    ] {
        assert_eq!(
            text(&read("s3://bucket", home, variables, &[])),
            "from the store",
            "{variables:?}"
        );
    }
    let elsewhere = tempfile::tempdir().expect("a folder");
    let (config, credentials) = (home.join(".aws/config"), home.join(".aws/credentials"));
    let variables = [
        ("AWS_CONFIG_FILE", config.to_str().expect("UTF-8")),
        ("AWS_SHARED_CREDENTIALS_FILE", credentials.to_str().expect("UTF-8")),
    ];
    assert_eq!(text(&read("s3://bucket", elsewhere.path(), &variables, &[])), "from the store");
    let said = refused("s3://bucket", home, &[("AWS_PROFILE", "wrong")]);
    assert!(said.contains("permission denied: SignatureDoesNotMatch"), "{said}");
    let said = refused("s3://bucket", home, &[("AWS_PROFILE", "absent")]);
    assert!(said.contains("there is no profile \"absent\" in ~/.aws/config"), "{said}");
}

#[test]
fn a_role_is_taken_on_by_way_of_another_profile() {
    if !have_fuse() {
        return;
    }
    // An AWS STS server for AssumeRole; it returns the key that the store accepts.
    let roles = Server::start(|_, stream| {
        let answer = "<AssumeRoleResponse xmlns=\"https://sts.amazonaws.com/doc/2011-06-15/\">\
            <AssumeRoleResult><AssumedRoleUser><Arn>arn:aws:sts::1:assumed-role/r/s</Arn>\
            <AssumedRoleId>A:s</AssumedRoleId></AssumedRoleUser><Credentials>\
            <AccessKeyId>foretell</AccessKeyId><SecretAccessKey>foretell-secret</SecretAccessKey>\
            <SessionToken>token</SessionToken><Expiration>2099-01-01T00:00:00Z</Expiration>\
            </Credentials></AssumeRoleResult></AssumeRoleResponse>";
        say(stream, "200 OK", &[("content-type", "text/xml")], answer.as_bytes());
    });
    let config = "[profile base]\nregion = us-east-1\n\
        [profile role]\nregion = us-east-1\nendpoint_url = ENDPOINT\nservices = roles\n\
        role_arn = arn:aws:iam::123456789012:role/r\nsource_profile = base\n\
        [services roles]\nsts =\n  endpoint_url = ROLES\n"
        .replace("ROLES", &roles.endpoint);
    let known = Known::new(&config, &format!("[base]\n{WRONG}"));
    let found = read("s3://bucket", known.home.path(), &[("AWS_PROFILE", "role")], &[]);
    assert_eq!(text(&found), "from the store");
    assert!(roles.times() >= 1, "the role was asked for");
}

#[test]
fn who_has_no_credentials_is_told_where_they_were_looked_for() {
    let known = Known::new("", "");
    let endpoint = known.store.endpoint();
    let said = refused("s3://bucket", known.home.path(), &[("AWS_ENDPOINT_URL_S3", &endpoint)]);
    for place in [
        "no credentials",
        "AWS_ACCESS_KEY_ID",
        "AWS_PROFILE",
        "~/.aws/credentials",
        "~/.aws/config",
        "AWS_WEB_IDENTITY_TOKEN_FILE",
        "AWS_CONTAINER_CREDENTIALS_",
        "metadata service",
        "AWS_SKIP_SIGNATURE=true",
    ] {
        assert!(said.contains(place), "{place}: {said}");
    }
}

#[test]
fn a_container_of_no_account_is_told_so() {
    let home = tempfile::tempdir().expect("a folder");
    let said = refused("az://b", home.path(), &[]);
    assert!(said.contains("set AZURE_STORAGE_ACCOUNT_NAME"), "{said}");
}

#[test]
fn half_a_key_and_an_address_of_nothing_are_told_so() {
    let home = tempfile::tempdir().expect("a folder");
    let (key, secret) = ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY");
    for (there, missing) in [(key, secret), (secret, key)] {
        let said = refused("s3://b", home.path(), &[(there, "x")]);
        assert!(said.contains(&format!("{there} (")), "{said}");
        assert!(said.contains(&format!("is set without {missing} (")), "{said}");
    }
    for (source, wanted) in [
        ("s3://", "s3://BUCKET/PREFIX"),
        ("s3:///prefix", "s3://BUCKET/PREFIX"),
        ("gs://", "gs://BUCKET/PREFIX"),
        ("az://", "az://CONTAINER/PREFIX"),
        ("https://", "https://HOST/PATH"),
    ] {
        let said = refused(source, home.path(), &[]);
        assert!(said.ends_with(&format!("; write {wanted}\n")), "{said}");
    }
}

#[test]
fn the_address_of_an_object_is_refused_and_one_of_nothing_is_an_empty_folder() {
    if !have_fuse() {
        return;
    }
    let known = Known::new("[default]\nregion = us-east-1\nendpoint_url = ENDPOINT\n", "");
    let home = known.home.path();
    let keys = [("AWS_ACCESS_KEY_ID", "foretell"), ("AWS_SECRET_ACCESS_KEY", "foretell-secret")];
    let said = refused("s3://bucket/f", home, &keys);
    assert!(said.contains("mount s3://bucket, where it is the file f"), "{said}");
    let mnt = tempfile::tempdir().expect("a folder");
    let mounted = mount("s3://bucket/none", mnt.path(), home, &keys).output().expect("it runs");
    assert!(mounted.status.success(), "{}", text(&mounted.stderr));
    assert!(text(&mounted.stderr).contains("there is nothing at s3://bucket/none now"));
    assert_eq!(fs::read_dir(mnt.path()).expect("a folder").count(), 0);
    let unmounted = foretell().arg("unmount").arg(mnt.path()).output().expect("foretell runs");
    assert!(unmounted.status.success(), "{}", text(&unmounted.stderr));
}

#[test]
fn a_web_servers_password_may_be_in_the_environment() {
    if !have_fuse() {
        return;
    }
    let server = Server::start(|asked, stream| {
        match asked.field("authorization") == Some("Basic bWU6c2VjcmV0") {
            true => part(asked, stream, b"bytes", "5"),
            false => say(stream, "401 Unauthorized", &[], b""),
        }
    });
    let home = tempfile::tempdir().expect("a folder");
    let list = home.path().join("list");
    fs::write(&list, "f\t5").expect("written");
    let options = ["--index", list.to_str().expect("UTF-8")];
    let user = format!("me:secret@{}", server.endpoint.trim_start_matches("http://"));
    let variables = [("FORETELL_HTTP_USER", user.as_str())];
    assert_eq!(text(&read(&server.endpoint, home.path(), &variables, &options)), "bytes");
}

/// A bucket with the object `f`, which has these bytes and the ETag that all have.
fn bucket(bytes: &'static [u8]) -> Server {
    Server::start(move |asked, stream| {
        let length = bytes.len();
        if asked.line.contains("prefix=f") {
            return say(stream, "200 OK", &[], b"<ListBucketResult></ListBucketResult>");
        }
        if asked.is_list() {
            let page = format!(
                "<ListBucketResult><IsTruncated>false</IsTruncated><Contents><Key>f</Key>\
                 <Size>{length}</Size><LastModified>2023-11-14T22:13:20.000Z</LastModified>\
                 <ETag>\"same\"</ETag></Contents></ListBucketResult>"
            );
            return say(stream, "200 OK", &[], page.as_bytes());
        }
        if !asked.path().ends_with("/f") {
            return say(stream, "404 Not Found", &[], b"");
        }
        part(asked, stream, bytes, &length.to_string());
    })
}

/// Sends the requested part of `whole`, or the answer to HEAD.
fn part(asked: &Asked, stream: &mut TcpStream, whole: &[u8], head: &str) {
    let mut fields = vec![("last-modified", DATE), ("etag", "\"same\"")];
    if asked.is_head() {
        fields.push(("content-length", head));
        return say(stream, "200 OK", &fields, b"");
    }
    let (from, to) = asked.range();
    let to = to.min(whole.len());
    let range = format!("bytes {from}-{}/{}", to - 1, whole.len());
    fields.push(("content-range", &range));
    say(stream, "206 Partial Content", &fields, &whole[from..to]);
}

#[test]
fn two_endpoints_share_nothing_of_a_local_disk() {
    if !have_fuse() {
        return;
    }
    let (one, other) = (bucket(b"one"), bucket(b"two"));
    let home = tempfile::tempdir().expect("a folder");
    let tier = home.path().join("tier");
    let options = ["--tier", tier.to_str().expect("UTF-8"), "--tier-budget", "16MiB"];
    for name in ["AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL"] {
        for (server, bytes) in [(&one, "one"), (&other, "two"), (&one, "one")] {
            let variables = [
                (name, server.endpoint.as_str()),
                ("AWS_SKIP_SIGNATURE", "true"),
                ("AWS_REGION", "us-east-1"),
            ];
            let found = read("s3://bucket", home.path(), &variables, &options);
            assert_eq!(text(&found), bytes, "{name}");
        }
    }
}

#[test]
fn a_file_has_its_bytes_whatever_head_and_the_list_say() {
    if !have_fuse() {
        return;
    }
    let whole: Vec<u8> = (0..81).map(|number| b'a' + number % 26).collect();
    let home = tempfile::tempdir().expect("a folder");
    let list = home.path().join("list");
    for head in ["403", "0", "95", "81"] {
        let answered = whole.clone();
        let server = Server::start(move |asked, stream| match asked.is_head() && head == "403" {
            true => say(stream, "403 Forbidden", &[], b""),
            false => part(asked, stream, &answered, head),
        });
        for listed in ["f", "f\t81", "f\t0", "f\t7", "f\t95"] {
            fs::write(&list, listed).expect("written");
            let options = ["--index", list.to_str().expect("UTF-8")];
            let found = read(&server.endpoint, home.path(), &[], &options);
            assert_eq!(text(&found), text(&whole), "HEAD {head}, listed {listed:?}");
        }
    }
}
