"""How ``s3://``, ``gs://`` and ``az://`` addresses are read, and what the environment adds.

Guarantees: no I/O, and no obstore. What may be a secret is refused in an address and never
repeated, because addresses end up in logs, shells and process lists; the ``url`` of an address can
be printed and opened again by another process.

The options of an address, beside those that the providers' own variables give:

=====================  ==========  =====================================================
option                 for         meaning
=====================  ==========  =====================================================
``endpoint``           all         address of a compatible server, an emulator or a gateway
``allow_http``         all         allow plain HTTP; a loopback endpoint needs no permission
``anonymous``          all         send no credentials
``timeout_s``          all         how long one answer may take, before its size is counted
``write_interval_s``   all         pause between two writes of one object
``header.NAME``        all         one more header in each request (Tigris:
                                   ``header.X-Tigris-Consistent=true``)
``region``             s3          region of the bucket
``path_style``         s3          ``false`` puts the bucket into the host name
``unquoted_etag``      s3          send ETags without their quotes (Ceph, DigitalOcean)
``account``            az          storage account
=====================  ==========  =====================================================
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any
from urllib.parse import SplitResult, parse_qsl, quote, unquote, urlencode, urlsplit

from bucketq.errors import InvalidRequestError

EXAMPLES = {
    "s3": "s3://bucket/jobs/queue.json",
    "gs": "gs://bucket/jobs/queue.json",
    "az": "az://container/jobs/queue.json",
}

TIMEOUT_S = 10.0
"""How long a store may take to answer by default, before the size of the object is counted."""
_KEY_BYTES_MAX = 1024
"""The limit of all three providers."""
_ONE_WRITE_A_SECOND = re.compile(r"(?i)(^|\.)r2\.cloudflarestorage\.com$")
_BUCKET = re.compile(r"[A-Za-z0-9$][A-Za-z0-9$._-]{0,221}")
_STRAY = re.compile(r"[\x00-\x1f\x7f-\x9f\\\ud800-\udfff]")
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]{1,100}")
_HEADER_VALUE = re.compile(r"[\x20-\x7e]{0,500}")
_HARMLESS_NAME = re.compile(r"[a-z_.]{1,30}")
# What names a secret in some provider's or SDK's spelling, in an option or in a header.
_SECRET = re.compile(
    r"(?i)key|secret|token|passw|credential|authori[sz]ation|cookie|signature|(^|[._-])(sas|sig)"
)


@dataclass(frozen=True, slots=True)
class CloudAddress:
    """The parts of an address, and what the environment adds."""

    scheme: str
    bucket: str
    folder: str
    """Where the queue's object is: empty, or a prefix that ends in a slash."""
    name: str
    endpoint: str | None
    url: str
    timeout_s: float
    write_interval_s: float
    unquoted_etag: bool
    config: dict[str, Any] = field(repr=False)
    """For the constructor of the client; it may hold secrets from the environment."""
    client: dict[str, Any] = field(repr=False)


def read_address(parts: SplitResult, environ: Mapping[str, str]) -> CloudAddress:
    """Parse an address. Raises ``InvalidRequestError`` with an example of a valid one."""
    scheme = parts.scheme
    folder, name = _read_key(parts)
    options = _read_options(parts)
    endpoint = _read_endpoint(scheme, options, environ)
    _demand_safe(endpoint, options, environ)
    timeout_s = options.get("timeout_s", TIMEOUT_S)
    make_config = {"s3": _s3_config, "gs": _gs_config, "az": _az_config}[scheme]
    client: dict[str, Any] = {"connect_timeout": f"{int(1000 * min(timeout_s, 5))}ms"}
    if endpoint is not None and endpoint.startswith("http:"):
        client["allow_http"] = True
    if headers := {name[7:]: value for name, value in options.items() if name[:7] == "header."}:
        client["default_headers"] = headers
    return CloudAddress(
        scheme=scheme,
        bucket=parts.netloc,
        folder=folder,
        name=name,
        endpoint=endpoint,
        url=_plain(parts, folder + name, options),
        timeout_s=timeout_s,
        write_interval_s=options.get("write_interval_s", _usual_interval_s(scheme, endpoint)),
        unquoted_etag=options.get("unquoted_etag", False),
        config=make_config(parts.netloc, endpoint, options, environ),
        client=client,
    )


def check_key(key: str) -> None:
    """Refuse a key that a store, or a proxy in front of it, could mistake for another one."""
    for part in key.split("/"):
        if part in {"", ".", ".."} or _STRAY.search(part):
            raise InvalidRequestError(
                f"{key!r} cannot name an object: a key has no empty parts, no '.' or '..' "
                "between slashes, no backslashes and no control characters"
            )
    if len(key.encode()) > _KEY_BYTES_MAX:
        raise InvalidRequestError(f"a key has at most {_KEY_BYTES_MAX} bytes; use a shorter one")


def _read_key(parts: SplitResult) -> tuple[str, str]:
    """Split the path into the folder and the name of the queue's object."""
    scheme, example = parts.scheme, EXAMPLES[parts.scheme]
    if not _BUCKET.fullmatch(parts.netloc):
        raise InvalidRequestError(
            f"what follows {scheme}:// is not a name of a bucket or container; write the address "
            f"like {example}, and the address of another server as ?endpoint=https://host:port"
        )
    try:
        key = unquote(parts.path, errors="strict").removeprefix("/")
    except UnicodeDecodeError:
        raise InvalidRequestError(
            f"the key in the address is not UTF-8 once its %-escapes are read; "
            f"write it like {example}"
        ) from None
    if not key or key.endswith("/"):
        raise InvalidRequestError(
            f"{scheme}://{parts.netloc}/{quote(key)} names no object; name one in it, like "
            f"{scheme}://{parts.netloc}/{quote(key)}queue.json"
        )
    check_key(key)
    folder, slash, name = key.rpartition("/")
    return folder + slash, name


def _read_options(parts: SplitResult) -> dict[str, Any]:
    """Parse the options."""
    if parts.fragment:
        raise InvalidRequestError(
            "the address of the queue has a '#' in it; in a key it is written %23"
        )
    known = _OPTIONS["all"] | _OPTIONS[parts.scheme]
    options: dict[str, Any] = {}
    for name, text in parse_qsl(parts.query, keep_blank_values=True):
        if _SECRET.search(name) or "@" in text:
            raise InvalidRequestError(
                "the address of the queue holds a secret among its options; take it out, and "
                "give credentials through the environment or `credential_provider`"
            )
        read = _read_header if name.startswith("header.") else known.get(name)
        if read is None:
            what = f"{name!r}" if _HARMLESS_NAME.fullmatch(name) else "one of its options"
            raise InvalidRequestError(
                f"{what} is not an option of a {parts.scheme}:// address; there are "
                f"{', '.join(sorted(known))} and header.NAME"
            )
        if name in options:
            raise InvalidRequestError(f"the option {name} is given twice; give it once")
        options[name] = read(name, text)
    return options


def _read_bool(name: str, text: str) -> bool:
    if text.lower() not in {"true", "false", "1", "0"}:
        raise InvalidRequestError(f"the option {name} is true or false")
    return text.lower() in {"true", "1"}


def _read_seconds(name: str, text: str) -> float:
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,6})?", text):
        raise InvalidRequestError(f"the option {name} is a number of seconds, like 2.5")
    return float(text)


def _read_timeout(name: str, text: str) -> float:
    seconds = _read_seconds(name, text)
    if not seconds:
        raise InvalidRequestError(f"the option {name} must be more than 0 seconds")
    return seconds


def _read_word(name: str, text: str) -> str:
    if not re.fullmatch(r"[A-Za-z0-9._-]{1,100}", text):
        raise InvalidRequestError(f"the option {name} is a name, like us-east-1")
    return text


def _read_header(name: str, text: str) -> str:
    if not _HEADER_NAME.fullmatch(name[7:]) or not _HEADER_VALUE.fullmatch(text):
        raise InvalidRequestError("an option header.NAME is the name and the value of a header")
    return text


_OPTIONS: dict[str, dict[str, Callable[[str, str], Any]]] = {
    "all": {
        "endpoint": lambda name, text: _check_endpoint(text, f"the option {name}"),
        "allow_http": _read_bool,
        "anonymous": _read_bool,
        "timeout_s": _read_timeout,
        "write_interval_s": _read_seconds,
    },
    "s3": {"region": _read_word, "path_style": _read_bool, "unquoted_etag": _read_bool},
    "gs": {},
    "az": {"account": _read_word},
}


def _check_endpoint(text: str, what: str) -> str:
    """Refuse an endpoint that is not the plain address of a server."""
    problem = (
        f"{what} is not the address of a server; write it like https://storage.example.com:9000"
    )
    try:
        parts = urlsplit(text)
        has_port = parts.port is None or parts.port > 0
    except ValueError:
        raise InvalidRequestError(problem) from None
    is_plain = not (parts.query or parts.fragment or "@" in parts.netloc)
    if parts.scheme not in {"http", "https"} or not (parts.hostname and has_port and is_plain):
        raise InvalidRequestError(problem)
    return text.rstrip("/")


_ENDPOINT_VARIABLES = {
    "s3": ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT"),
    "gs": ("STORAGE_EMULATOR_HOST",),
    "az": ("AZURE_STORAGE_ENDPOINT", "AZURE_ENDPOINT"),
}


def _read_endpoint(
    scheme: str, options: Mapping[str, Any], environ: Mapping[str, str]
) -> str | None:
    """Find the server, in the address or else in the environment; None: the provider's own."""
    if "endpoint" in options:
        return str(options["endpoint"])
    for variable in _ENDPOINT_VARIABLES[scheme]:
        if text := environ.get(variable):
            if variable == "STORAGE_EMULATOR_HOST" and "://" not in text:
                text = f"http://{text}"
            return _check_endpoint(text, variable)
    return None


def _demand_safe(
    endpoint: str | None, options: Mapping[str, Any], environ: Mapping[str, str]
) -> None:
    """Reject plain HTTP to another machine, unless it is allowed explicitly."""
    if endpoint is None or not endpoint.startswith("http:"):
        return
    host = urlsplit(endpoint).hostname or ""
    allowed = options.get("allow_http", environ.get("AWS_ALLOW_HTTP", "").lower() == "true")
    if not allowed and not _is_loopback(host):
        raise InvalidRequestError(
            f"the endpoint on {host} is plain HTTP, which shows jobs and credentials to the "
            "network; use https://, or add allow_http=true if that network is yours alone"
        )


def _is_loopback(host: str) -> bool:
    if host == "localhost" or host.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def _usual_interval_s(scheme: str, endpoint: str | None) -> float:
    """Google and R2 accept one write a second to one object, and throttle any further ones."""
    host = urlsplit(endpoint).hostname if endpoint else None
    return 1.0 if scheme == "gs" or (host and _ONE_WRITE_A_SECOND.search(host)) else 0.0


def _s3_config(
    bucket: str, endpoint: str | None, options: Mapping[str, Any], _: Mapping[str, str]
) -> dict[str, Any]:
    # Deleting one object at a time works with every compatible server; in bulk it does not.
    config: dict[str, Any] = {"disable_bulk_delete": True}
    if not options.get("path_style", True):
        config["virtual_hosted_style_request"] = True
        if endpoint is not None:
            parts = urlsplit(endpoint)
            endpoint = parts._replace(netloc=f"{bucket}.{parts.netloc}").geturl()
    if endpoint is not None:
        # Both, because the second would otherwise come from the environment and win.
        config |= {"endpoint": endpoint, "aws_endpoint_url_s3": endpoint}
    if "region" in options:
        config["region"] = options["region"]
    return config | _anonymous(options)


def _gs_config(
    _: str, endpoint: str | None, options: Mapping[str, Any], environ: Mapping[str, str]
) -> dict[str, Any]:
    is_emulator = "endpoint" not in options and bool(environ.get("STORAGE_EMULATOR_HOST"))
    if options.get("anonymous", is_emulator):
        # The client's option to skip signatures covers only reads; for a write it would
        # ask the metadata server of the cloud for a token.
        key = {"disable_oauth": True, "client_email": "", "private_key": "", "private_key_id": ""}
        key |= {} if endpoint is None else {"gcs_base_url": endpoint}
        return {"service_account_key": json.dumps(key)}
    return {} if endpoint is None else {"base_url": endpoint}


def _az_config(
    _: str, endpoint: str | None, options: Mapping[str, Any], environ: Mapping[str, str]
) -> dict[str, Any]:
    words = dict(
        word.split("=", 1)
        for word in environ.get("AZURE_STORAGE_CONNECTION_STRING", "").split(";")
        if "=" in word
    )
    named = {
        "account_name": words.get("AccountName"),
        "account_key": words.get("AccountKey"),
        "sas_key": words.get("SharedAccessSignature"),
        "endpoint": endpoint or words.get("BlobEndpoint"),
    }
    if "account" in options:
        named["account_name"] = options["account"]
    return {name: value for name, value in named.items() if value} | _anonymous(options)


def _anonymous(options: Mapping[str, Any]) -> dict[str, Any]:
    return {"skip_signature": True} if options.get("anonymous") else {}


def _plain(parts: SplitResult, key: str, options: Mapping[str, Any]) -> str:
    """Return the canonical spelling of an address."""
    words = {
        name: str(value).lower() if isinstance(value, bool) else value
        for name, value in sorted(options.items())
    }
    query = f"?{urlencode(words, safe=':/')}" if words else ""
    return f"{parts.scheme}://{parts.netloc}/{quote(key)}{query}"
