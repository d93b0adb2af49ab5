"""Options of other clients: used, or refused by name. Listings and reads use the same identity."""

import json
from pathlib import Path
from typing import Any

import pytest
from servers import bucket, web

from foretell import _options

fsspec = pytest.importorskip("fsspec")

USED: list[tuple[str, dict[str, Any], dict[str, str]]] = [
    ("s3", {}, {}),
    ("s3", {"key": "k", "secret": "s"}, {"aws_access_key_id": "k", "aws_secret_access_key": "s"}),
    ("s3", {"username": "k"}, {"aws_access_key_id": "k"}),
    ("s3", {"token": "t"}, {"aws_session_token": "t"}),
    ("s3", {"anon": True}, {"aws_skip_signature": "true"}),
    ("s3", {"anon": False, "requester_pays": False, "version_aware": False, "use_ssl": True}, {}),
    ("s3", {"profile": "x"}, {"profile": "x"}),
    ("s3", {"requester_pays": True}, {"requester_pays": "true"}),
    ("s3", {"s3_additional_kwargs": {"RequestPayer": "requester"}}, {"requester_pays": "true"}),
    ("s3", {"client_kwargs": {"verify": False}}, {"allow_invalid_certificates": "true"}),
    ("s3", {"client_kwargs": {"verify": True, "region_name": "r"}}, {"aws_region": "r"}),
    ("s3", {"client_kwargs": {"verify": "/ca.pem"}}, {"ca_bundle": "/ca.pem"}),
    ("s3", {"client_kwargs": {"endpoint_url": "http://in"}}, {"aws_endpoint": "http://in"}),
    (
        "s3",
        {"endpoint_url": "http://out", "client_kwargs": {"endpoint_url": "http://in"}},
        {"aws_endpoint": "http://out"},
    ),
    (
        "s3",
        {"config_kwargs": {"s3": {"addressing_style": "virtual"}, "retries": {}}},
        {"aws_virtual_hosted_style_request": "true"},
    ),
    ("s3", {"config_kwargs": {"s3": {"addressing_style": "auto"}, "read_timeout": None}}, {}),
    ("s3", {"config_kwargs": {"connect_timeout": 5}}, {"connect_timeout": "5s"}),
    ("s3", {"config_kwargs": {"signature_version": "s3v4"}}, {}),
    ("s3", {"use_ssl": False, "endpoint_url": "http://e"}, {"aws_endpoint": "http://e"}),
    ("s3", {"default_block_size": 5, "default_cache_type": "none", "max_concurrency": 3}, {}),
    ("gs", {"session_kwargs": {}, "version_aware": False}, {}),
    ("gs", {"token": "anon"}, {"google_skip_signature": "true"}),
    ("gs", {"token": "google_default", "project": "p", "access": "read_only"}, {}),
    ("gs", {"project": "p", "requester_pays": True}, {"user_project": "p"}),
    ("gs", {"requester_pays": "q"}, {"user_project": "q"}),
    ("gs", {"endpoint_url": "http://g"}, {"google_base_url": "http://g"}),
    (
        "gs",
        {"token": {"type": "service_account", "client_email": "e"}},
        {
            "google_service_account_key": json.dumps(
                {"type": "service_account", "client_email": "e"}
            )
        },
    ),
    ("az", {"account_name": "n", "account_key": "k"}, {"account_name": "n", "account_key": "k"}),
    ("az", {"account_name": "n", "anon": True}, {"account_name": "n", "skip_signature": "true"}),
    ("az", {"sas_token": "s", "anon": True}, {"sas_token": "s"}),
    ("az", {"connection_string": "c"}, {"connection_string": "c"}),
    (
        "az",
        {"tenant_id": "t", "client_id": "i", "client_secret": "s"},
        {"tenant_id": "t", "client_id": "i", "client_secret": "s"},
    ),
    ("az", {"account_host": "h.net", "location_mode": "primary"}, {"endpoint": "https://h.net"}),
    ("http", {"headers": {"X-Token": "t"}}, {"header.x-token": "t"}),
    ("http", {"client_kwargs": {"headers": {"X-Token": "t"}}}, {"header.x-token": "t"}),
    ("http", {"client_kwargs": {"trust_env": True}}, {}),
    ("http", {"ssl": False, "encoded": True}, {"allow_invalid_certificates": "true"}),
    ("file", {"auto_mkdir": True}, {}),
]


@pytest.mark.parametrize(("scheme", "options", "settings"), USED)
def test_options_that_are_used(
    scheme: str, options: dict[str, Any], settings: dict[str, str]
) -> None:
    assert _options.settings(scheme, options) == settings


REFUSED: list[tuple[str, dict[str, Any], str]] = [
    ("s3", {"version_aware": True}, "version_aware"),
    ("s3", {"session": object()}, "session"),
    ("s3", {"cache_regions": True}, "cache_regions"),
    ("s3", {"use_ssl": False}, "use_ssl"),
    ("s3", {"client_kwargs": {"use_ssl": False}}, "use_ssl"),
    ("s3", {"client_kwargs": {"api_version": "1"}}, "client_kwargs.api_version"),
    ("s3", {"client_kwargs": 1}, "client_kwargs"),
    ("s3", {"config_kwargs": {"proxies": {}}}, "config_kwargs.proxies"),
    ("s3", {"config_kwargs": {"signature_version": "s3"}}, "config_kwargs.signature_version"),
    (
        "s3",
        {"config_kwargs": {"s3": {"use_accelerate_endpoint": True}}},
        "config_kwargs.s3.use_acc",
    ),
    (
        "s3",
        {"s3_additional_kwargs": {"SSECustomerKey": "k"}},
        "s3_additional_kwargs.SSECustomerKey",
    ),
    ("s3", {"nonsense": 1}, "nonsense"),
    ("gs", {"token": "cloud"}, "token"),
    ("gs", {"token": {"type": "external"}}, "token"),
    ("gs", {"requester_pays": True}, "requester_pays"),
    ("gs", {"version_aware": True}, "version_aware"),
    ("gs", {"session_kwargs": {"trust_env": True}}, "session_kwargs"),
    ("az", {"credential": object()}, "credential"),
    ("az", {"location_mode": "secondary"}, "location_mode"),
    ("az", {"version_aware": True}, "version_aware"),
    ("http", {"cookies": {"a": "b"}}, "cookies"),
    ("http", {"client_kwargs": {"cookie_jar": 1}}, "client_kwargs.cookie_jar"),
    ("file", {"key": "k"}, "key"),
]


@pytest.mark.parametrize(("scheme", "options", "name"), REFUSED)
def test_options_that_are_refused(scheme: str, options: dict[str, Any], name: str) -> None:
    with pytest.raises(ValueError, match=f"the option {name}"):
        _options.settings(scheme, options)
    protocol = {"gs": "gcs"}.get(scheme, scheme)
    with pytest.raises(ValueError, match=name):
        fsspec.filesystem("foretell", target_protocol=protocol, target_options=options)


def test_a_refusal_says_what_is_supported() -> None:
    with pytest.raises(
        ValueError, match=r"nonsense of s3fs .* supported are anon, .*, requester_pays"
    ):
        _options.settings("s3", {"nonsense": 1})


def test_tokens_of_files(tmp_path: Path) -> None:
    key = {"type": "service_account", "client_email": "e"}
    (tmp_path / "key.json").write_text(json.dumps(key))
    found = _options.settings("gs", {"token": str(tmp_path / "key.json")})
    assert json.loads(found["google_service_account_key"]) == key
    (tmp_path / "user.json").write_text('{"type": "authorized_user"}')
    found = _options.settings("gs", {"token": str(tmp_path / "user.json")})
    assert found == {"google_application_credentials": str(tmp_path / "user.json")}
    (tmp_path / "other").write_text("no JSON")
    with pytest.raises(ValueError, match="token"):
        _options.settings("gs", {"token": str(tmp_path / "other")})


def test_options_of_the_wrong_place_are_refused() -> None:
    with pytest.raises(ValueError, match=r"no option anon.*target_options"):
        fsspec.filesystem("foretell", target_protocol="s3", anon=True)
    with pytest.raises(ValueError, match="no option client_kwargs"):
        fsspec.filesystem("foretell", target_protocol="s3", client_kwargs={"region_name": "r"})
    s3fs = pytest.importorskip("s3fs")
    with pytest.raises(ValueError, match="by their names"):
        fsspec.filesystem("foretell", fs=s3fs.S3FileSystem(True))


def test_options_of_a_file_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a").write_bytes(b"1")
    fs = fsspec.filesystem("foretell", target_protocol="file")
    with pytest.raises(ValueError, match="version_id"):
        fs.open(str(tmp_path / "a"), version_id="x")
    with fs.open(str(tmp_path / "a"), version_id=None, cache_type="all", block_size=5) as file:
        assert file.read() == b"1"


def test_listing_and_reading_are_of_one_identity() -> None:
    with bucket({"d/a": b"1"}) as served:
        for options, sign in (
            (served.options, "Credential=somebody/"),
            ({**served.options, "anon": True}, None),
            ({"endpoint_url": served.url, "anon": True}, None),
        ):
            served.requests.clear()
            fs = fsspec.filesystem(
                "foretell", target_protocol="s3", target_options=options, skip_instance_cache=True
            )
            fs.ls("b/d")
            fs.find("b")
            fs.info("b/d/a")
            assert fs.cat_file("b/d/a") == b"1"
            signed = [headers.get("authorization", "") for _, _, headers in served.requests]
            assert len(signed) > 3
            for one in signed:
                assert (sign in one) if sign else one == ""


def test_who_asks_pays() -> None:
    with bucket({"d/a": b"1"}) as served:
        options = {**served.options, "requester_pays": True}
        fs = fsspec.filesystem("foretell", target_protocol="s3", target_options=options)
        fs.ls("b/d")
        assert fs.cat_file("b/d/a") == b"1"
        payers = {headers.get("x-amz-request-payer") for _, _, headers in served.requests}
        assert payers == {"requester"}


def test_profiles_are_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with bucket({"d/a": b"1"}) as served:
        (tmp_path / "config").write_text(
            f"[profile x]\nregion = eu-west-1\nendpoint_url = {served.url}\n"
        )
        (tmp_path / "credentials").write_text(
            "[x]\naws_access_key_id = of-the-profile\naws_secret_access_key = secret\n"
        )
        monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
        monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
        fs = fsspec.filesystem(
            "foretell",
            target_protocol="s3",
            target_options={"profile": "x"},
            skip_instance_cache=True,
        )
        assert fs.ls("b/d", detail=False) == ["b/d/a"]
        assert fs.cat_file("b/d/a") == b"1"
        signed = {headers.get("authorization", "") for _, _, headers in served.requests}
        assert all("Credential=of-the-profile/" in one and "eu-west-1" in one for one in signed)


def test_headers_go_with_requests() -> None:
    with web({"/f": b"1"}) as served:
        options = {"headers": {"X-Token": "secret"}}
        fs = fsspec.filesystem("foretell", target_protocol="http", target_options=options)
        assert fs.cat_file(f"{served.url}/f") == b"1"
        assert {headers.get("x-token") for _, _, headers in served.requests} == {"secret"}
