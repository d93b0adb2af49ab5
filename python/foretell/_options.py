"""Converts options of s3fs, gcsfs, adlfs and fsspec's own HTTP file system into settings of a store.

Each option is used, refused by its name, or ignored (`PASSED_OVER`). An option is ignored only if no read depends on it.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Mapping
from typing import Any

# Options about the other client's caches, block sizes and concurrency, and about writing.
PASSED_OVER = {
    "access",
    "assume_container_exists",
    "asynchronous",
    "auto_mkdir",
    "batch_size",
    "block_size",
    "blocksize",
    "cache_options",
    "cache_timeout",
    "cache_type",
    "check_connection",
    "default_block_size",
    "default_cache_type",
    "default_fill_cache",
    "default_location",
    "fixed_upload_size",
    "listings_expiry_time",
    "local_expiry_check",
    "loop",
    "max_concurrency",
    "max_paths",
    "same_scheme",
    "secure_serialize",
    "simple_links",
    "size_policy",
    "skip_instance_cache",
    "use_listings_cache",
}

# Of botocore's `Config`: tuning of its client's requests.
_TUNING = {"max_pool_connections", "retries", "tcp_keepalive"}

# Of s3fs' `s3_additional_kwargs`: arguments of writes.
_OF_WRITES = {
    "ACL",
    "ServerSideEncryption",
    "SSEKMSKeyId",
    "StorageClass",
    "ContentType",
    "Metadata",
}

_INSTEAD = {
    "read_timeout": "give `timeout`, in seconds, to foretell",
    "requests_timeout": "give `timeout`, in seconds, to foretell",
    "socket_timeout": "give `timeout`, in seconds, to foretell",
    "timeout": "give `timeout`, in seconds, to foretell",
    "connection_timeout": "give `timeout`, in seconds, to foretell",
    "version_aware": "the current version of an object is read",
    "cache_regions": "give `client_kwargs={'region_name': …}`",
    "session": "give `profile`, or `key` and `secret`",
    "credential": "give `account_key`, `sas_token`, or `tenant_id`, `client_id` and `client_secret`",
}


class _Options:
    """The options that are not used yet, and the settings made so far."""

    def __init__(self, client: str, options: Mapping[str, Any], inside: str = "") -> None:
        self.client = client
        self.inside = inside
        self.left = {name: value for name, value in options.items() if value is not None}
        self.settings: dict[str, str] = {}
        # Names of supported options.
        self.known: set[str] = set()

    def take(self, name: str) -> Any:
        self.known.add(name)
        return self.left.pop(name, None)

    def within(self, name: str) -> _Options:
        """Return the options inside one option's value, a dictionary."""
        given = self.take(name) or {}
        if not isinstance(given, Mapping):
            raise ValueError(f"the option {name}={given!r} of {self.client} is not a dictionary")
        return _Options(self.client, given, f"{self.inside}{name}.")

    def set(self, setting: str, value: Any) -> None:
        if value is not None and value != "":
            self.settings.setdefault(setting, _text(value))

    def use(self, names: Mapping[str, str]) -> None:
        for name, setting in names.items():
            self.set(setting, self.take(name))

    def pass_over(self, name: str, *harmless: object) -> None:
        """Ignore an option if it has one of these values, which change nothing."""
        if self.left.get(name) in harmless:
            del self.left[name]

    def refuse(self, name: str, why: str | None = None) -> None:
        known = ", ".join(sorted(self.known)) or "none there"
        why = why or _INSTEAD.get(name) or f"supported are {known}, and `settings` of foretell"
        raise ValueError(f"the option {self.inside}{name} of {self.client} is not supported: {why}")

    def finish(self) -> dict[str, str]:
        """Return the settings. Refuses options that were not used."""
        for name, value in self.left.items():
            if name not in PASSED_OVER and (value or self.inside):
                self.refuse(name)
        return self.settings


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)


def _verify(options: _Options, value: object) -> None:
    if value is False:
        options.set("allow_invalid_certificates", True)
    elif value is not None and value is not True:
        options.set("ca_bundle", value)


def _s3(options: _Options) -> dict[str, str]:
    if options.take("anon"):
        options.set("aws_skip_signature", True)
    options.use(
        {
            "key": "aws_access_key_id",
            "username": "aws_access_key_id",
            "secret": "aws_secret_access_key",
            "password": "aws_secret_access_key",
            "token": "aws_session_token",
            "endpoint_url": "aws_endpoint",
            "profile": "profile",
        }
    )
    if options.take("requester_pays"):
        options.set("requester_pays", True)
    client = options.within("client_kwargs")
    _verify(options, client.take("verify"))
    uses_tls = client.take("use_ssl")
    client.use(
        {
            "aws_access_key_id": "aws_access_key_id",
            "aws_secret_access_key": "aws_secret_access_key",
            "aws_session_token": "aws_session_token",
            "endpoint_url": "aws_endpoint",
            "region_name": "aws_region",
        }
    )
    config = options.within("config_kwargs")
    config.use({"region_name": "aws_region"})
    for name in _TUNING:
        config.take(name)
    for name in ("connect_timeout", "read_timeout"):
        if (seconds := config.take(name)) is not None:
            config.set(name, f"{seconds}s")
    signature = config.take("signature_version")
    if signature is not None and not isinstance(signature, str):  # botocore's UNSIGNED.
        config.set("aws_skip_signature", True)
    elif signature not in (None, "s3v4", "v4"):
        config.refuse("signature_version", f"{signature!r}; requests are signed as of s3v4")
    s3 = config.within("s3")
    style = s3.take("addressing_style")
    if style in ("path", "virtual"):
        config.set("aws_virtual_hosted_style_request", style == "virtual")
    more = options.within("s3_additional_kwargs")
    if more.take("RequestPayer") == "requester":
        options.set("requester_pays", True)
    for name in _OF_WRITES:
        more.take(name)
    for inner in (client, s3, config, more):
        for setting, value in inner.finish().items():
            options.set(setting, value)
    if uses_tls is None:
        uses_tls = options.take("use_ssl")
    options.take("use_ssl")
    if uses_tls is False and "aws_endpoint" not in options.settings:
        options.refuse("use_ssl", "give an `endpoint_url` that begins with http://")
    return options.finish()


def _gs(options: _Options) -> dict[str, str]:
    token, project = options.take("token"), options.take("project")
    if token == "anon":
        options.set("google_skip_signature", True)
    elif isinstance(token, Mapping) or (isinstance(token, str) and os.path.exists(token)):
        _gs_token(options, token)
    elif token not in (None, "google_default"):
        options.refuse(
            "token", "give anon, google_default, a file, or the dictionary of a service account"
        )
    payer = options.take("requester_pays")
    if payer:
        if payer is True and not project:
            options.refuse("requester_pays", "name the project that pays: `project`")
        options.set("user_project", project if payer is True else payer)
    options.use({"endpoint_url": "google_base_url"})
    options.pass_over("consistency", "none")
    return options.finish()


def _gs_token(options: _Options, token: Mapping[str, Any] | str) -> None:
    if isinstance(token, str):
        try:
            with open(token, encoding="utf-8") as file:
                known = json.load(file)
        except ValueError:
            known = {}
    else:
        known = dict(token)
    kind = known.get("type") if isinstance(known, dict) else None
    if kind == "service_account":
        options.set("google_service_account_key", json.dumps(known))
    elif kind == "authorized_user" and isinstance(token, str):
        options.set("google_application_credentials", token)
    else:
        options.refuse("token", f"credentials of the type {kind!r}")


def _az(options: _Options) -> dict[str, str]:
    options.use(
        {
            "account_name": "account_name",
            "account_key": "account_key",
            "sas_token": "sas_token",
            "connection_string": "connection_string",
            "tenant_id": "tenant_id",
            "client_id": "client_id",
            "client_secret": "client_secret",
        }
    )
    if (host := options.take("account_host")) is not None:
        options.set("endpoint", f"https://{host}")
    has_credentials = {"account_key", "sas_token", "connection_string", "client_id"}
    if options.take("anon") and not has_credentials & set(options.settings):
        options.set("skip_signature", True)
    options.pass_over("location_mode", "primary")
    return options.finish()


def _http(options: _Options) -> dict[str, str]:
    for given in (options, client := options.within("client_kwargs")):
        for name, value in dict(given.take("headers") or {}).items():
            options.set(f"header.{str(name).lower()}", value)
        auth = given.take("auth")
        if auth is not None:
            if not hasattr(auth, "encode") or isinstance(auth, str):
                given.refuse("auth", "give an `aiohttp.BasicAuth`, or a header")
            options.set("header.authorization", auth.encode())
        if "ssl" in given.left:
            if given.left["ssl"] not in (True, False):
                given.refuse("ssl")
            _verify(options, given.take("ssl"))
    client.take("trust_env")  # The environment's proxies are used in any case.
    client.finish()
    options.take("encoded")  # Addresses are sent as they are written.
    return options.finish()


def _file(options: _Options) -> dict[str, str]:
    return options.finish()


_BY_SCHEME: dict[str, tuple[str, Callable[[_Options], dict[str, str]]]] = {
    "s3": ("s3fs", _s3),
    "gs": ("gcsfs", _gs),
    "az": ("adlfs", _az),
    "http": ("fsspec's HTTP file system", _http),
    "file": ("fsspec's local file system", _file),
}


def settings(scheme: str, options: Mapping[str, Any]) -> dict[str, str]:
    """Return the settings of a store of this scheme for these options.

    Raises:
        ValueError: An option is not supported; the message names it.

    """
    client, convert = _BY_SCHEME[scheme]
    return convert(_Options(client, options))
