"""Whose credentials a request to S3 is signed with, as boto3 and the command line of AWS decide it.

One server plays the store, the token service of AWS, its single sign-on and the metadata of a
machine or container.
"""

from __future__ import annotations

import asyncio
import builtins
import hashlib
import json
import re
import ssl
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import trustme
from botocore.credentials import SSOProvider
from botocore.tokens import SSOTokenProvider

from bucketq.errors import BucketQError, InvalidRequestError, StoreRefusedError
from bucketq.store.aws_profile import find_profile
from bucketq.store.url import open_store
from tests.servers.proxy import ProxyThread
from tests.servers.wire import Message, answer

KEY = "queue.json"
LATER = "2126-01-01T00:00:00Z"
STS = (
    "<{0}Response xmlns='https://sts.amazonaws.com/doc/2011-06-15/'><{0}Result><Credentials>"
    "<AccessKeyId>{1}</AccessKeyId><SecretAccessKey>s</SecretAccessKey><SessionToken>t"
    "</SessionToken><Expiration>" + LATER + "</Expiration></Credentials><AssumedRoleUser>"
    "<Arn>a</Arn><AssumedRoleId>i</AssumedRoleId></AssumedRoleUser></{0}Result></{0}Response>"
)


def keys(access_key: str) -> bytes:
    """Credentials as the metadata of machines and containers show them."""
    found = {"AccessKeyId": access_key, "SecretAccessKey": "s", "Token": "t", "Expiration": LATER}
    dates = {"Code": "Success", "Type": "AWS-HMAC", "LastUpdated": "2026-01-01T00:00:00Z"}
    return json.dumps(found | dates).encode()


SSO = {"accessKeyId": "FROM-SSO", "secretAccessKey": "s", "sessionToken": "t"}
MACHINE = "/latest/meta-data/iam/security-credentials/"
METADATA = {
    "/latest/api/token": b"metadata-token",
    MACHINE: b"role-of-machine",
    f"{MACHINE}role-of-machine": keys("FROM-INSTANCE"),
    "/container": keys("FROM-CONTAINER"),
    "/federation/credentials": json.dumps(
        {"roleCredentials": SSO | {"expiration": 4_900_000_000_000}}
    ).encode(),
}


class Cloud(ProxyThread):
    """All servers of a cloud in one."""

    def __init__(self) -> None:
        super().__init__(0)
        self.signers: list[str] = []
        self.regions: list[str] = []

    async def handle(self, request: Message, writer: asyncio.StreamWriter) -> None:
        writer.write(self._reply(request).encode())
        await writer.drain()

    def _reply(self, request: Message) -> Message:
        path = request.target.partition("?")[0]
        if path.startswith("/jobs/"):
            return self._store(request)
        if b"Action=AssumeRole" in request.body:
            return answer(200, STS.format("AssumeRole", "FROM-ROLE").encode())
        if path == "/container":
            assert request.headers["authorization"] == "container-token"
        known = METADATA.get(path)
        return answer(404, b"no") if known is None else answer(200, known)

    def _store(self, request: Message) -> Message:
        signed = re.search(r"Credential=([^/]+)/[^/]+/([^/]+)", request.headers["authorization"])
        assert signed is not None
        self.signers.append(signed[1])
        self.regions.append(signed[2])
        if signed[1] == "REVOKED":
            return answer(403, b"<Error><Code>InvalidAccessKeyId</Code></Error>")
        return answer(200, etag='"new"')


class TokenService(BaseHTTPRequestHandler):
    """What changes the token of a pod into credentials. The client insists on TLS."""

    def do_POST(self) -> None:
        assert "WebIdentityToken=pod-token" in self.path
        body = STS.format("AssumeRoleWithWebIdentity", "FROM-WEB").encode()
        self.send_response(200)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Print nothing."""


@pytest.fixture(scope="module")
def cloud() -> Iterator[Cloud]:
    with Cloud() as server:
        yield server


@pytest.fixture
def machine(cloud: Cloud, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """A machine without credentials: the files of AWS are those of ``tmp_path``."""
    for name in ("ACCESS_KEY_ID", "SECRET_ACCESS_KEY", "SESSION_TOKEN", "PROFILE", "REGION"):
        monkeypatch.delenv(f"AWS_{name}", raising=False)
    address = f"http://127.0.0.1:{cloud.port}"
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "config"))
    monkeypatch.setenv("AWS_METADATA_ENDPOINT", address)
    for service in ("STS", "SSO", "SSO_OIDC"):
        monkeypatch.setenv(f"AWS_ENDPOINT_URL_{service}", address)
    # botocore finds it once, when it is imported.
    for provider in (SSOProvider, SSOTokenProvider):
        monkeypatch.setattr(provider, "_SSO_TOKEN_CACHE_DIR", str(tmp_path / ".aws/sso/cache"))
    cloud.signers.clear()
    cloud.regions.clear()
    return monkeypatch


async def write(cloud: Cloud) -> None:
    url = f"s3://jobs/{KEY}?endpoint=http://127.0.0.1:{cloud.port}"
    store = open_store(url).store
    await store.put(KEY, b"body")
    await store.close()


async def failure(cloud: Cloud) -> BucketQError:
    with pytest.raises(BucketQError) as caught:
        await write(cloud)
    assert "hunter2" not in f"{caught.value!r} {caught.value.__cause__!r}"
    return caught.value


async def test_an_instance_role_is_used(cloud: Cloud, machine: pytest.MonkeyPatch) -> None:
    await write(cloud)
    assert cloud.signers == ["FROM-INSTANCE"]


async def test_a_container_role_is_used(
    cloud: Cloud, machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("container-token")
    address = f"http://127.0.0.1:{cloud.port}/container"
    machine.setenv("AWS_CONTAINER_CREDENTIALS_FULL_URI", address)
    machine.setenv("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE", str(tmp_path / "token"))
    await write(cloud)
    assert cloud.signers == ["FROM-CONTAINER"]


async def test_a_web_identity_is_used(
    cloud: Cloud, machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "token").write_text("pod-token")
    authority, context = trustme.CA(), ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    authority.issue_cert("localhost").configure_cert(context)
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    with ThreadingHTTPServer(("127.0.0.1", 0), TokenService) as server:
        server.socket = context.wrap_socket(server.socket, server_side=True)
        serving = threading.Thread(target=server.serve_forever)
        serving.start()
        machine.setenv("SSL_CERT_FILE", str(tmp_path / "ca.pem"))
        machine.setenv("AWS_ENDPOINT_URL_STS", f"https://localhost:{server.server_port}")
        machine.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
        machine.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/queue")
        try:
            await write(cloud)
        finally:
            server.shutdown()
            serving.join()
    assert cloud.signers == ["FROM-WEB"]


async def test_a_token_of_a_web_identity_that_is_missing_is_named(
    cloud: Cloud, machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    machine.setenv("AWS_WEB_IDENTITY_TOKEN_FILE", str(tmp_path / "token"))
    machine.setenv("AWS_ROLE_ARN", "arn:aws:iam::123456789012:role/queue")
    error = await failure(cloud)
    assert isinstance(error, InvalidRequestError)
    assert f"{tmp_path}/token, which cannot be read" in str(error)


def profiles(folder: Path) -> None:
    """Write profiles of every sort."""
    found = {"Version": 1, "AccessKeyId": "FROM-PROCESS", "SecretAccessKey": "s"}
    (folder / "process.json").write_text(json.dumps(found))
    command = f"cat {folder}/process.json"
    (folder / "credentials").write_text(
        "[default]\naws_access_key_id = FROM-DEFAULT\naws_secret_access_key = hunter2\n"
        "[static]\naws_access_key_id = FROM-STATIC\naws_secret_access_key = hunter2\n"
        "[revoked]\naws_access_key_id = REVOKED\naws_secret_access_key = hunter2\n"
    )
    (folder / "config").write_text(
        "[profile static]\nregion = eu-central-1\n"
        f"[profile process]\ncredential_process = {command}\n"
        "[profile broken]\ncredential_process = sh -c 'echo hunter2 >&2; exit 1'\n"
        "[profile role]\nrole_arn = arn:aws:iam::123456789012:role/q\nsource_profile = static\n"
        "region = eu-central-1\n"
        "[profile sso]\nsso_session = work\nsso_account_id = 123456789012\nsso_role_name = r\n"
        "[sso-session work]\nsso_region = us-east-1\nsso_start_url = https://sso.example\n"
    )


def sign_in(folder: Path) -> None:
    """Do what ``aws sso login`` does."""
    cache = folder / ".aws" / "sso" / "cache"
    cache.mkdir(parents=True)
    name = hashlib.sha1(b"work").hexdigest()
    token = {"accessToken": "a", "expiresAt": LATER, "startUrl": "https://sso.example"}
    (cache / f"{name}.json").write_text(json.dumps(token | {"region": "us-east-1"}))


@pytest.mark.parametrize(
    ("profile", "signer"),
    [
        (None, "FROM-DEFAULT"),
        ("static", "FROM-STATIC"),
        ("process", "FROM-PROCESS"),
        ("role", "FROM-ROLE"),
        ("sso", "FROM-SSO"),
    ],
)
async def test_a_profile_is_used(
    profile: str | None,
    signer: str,
    cloud: Cloud,
    machine: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    profiles(tmp_path)
    sign_in(tmp_path)
    if profile is not None:
        machine.setenv("AWS_PROFILE", profile)
    await write(cloud)
    assert cloud.signers == [signer]


async def test_the_region_of_a_profile_is_used_unless_another_is_given(
    cloud: Cloud, machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profiles(tmp_path)
    machine.setenv("AWS_PROFILE", "static")
    await write(cloud)
    machine.setenv("AWS_REGION", "ap-south-1")
    await write(cloud)
    assert cloud.regions == ["eu-central-1", "ap-south-1"]


@pytest.mark.parametrize(
    ("profile", "hint"),
    [
        ("sso", "run `aws sso login --profile sso`"),
        ("broken", "`aws sts get-caller-identity --profile broken`"),
        ("revoked", "(the AWS profile is 'revoked')"),
    ],
)
async def test_an_error_names_the_profile(
    profile: str, hint: str, cloud: Cloud, machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profiles(tmp_path)
    machine.setenv("AWS_PROFILE", profile)
    error = await failure(cloud)
    assert isinstance(error, StoreRefusedError)
    assert hint in str(error)


async def test_a_process_continues_once_its_user_has_signed_in(
    cloud: Cloud, machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profiles(tmp_path)
    machine.setenv("AWS_PROFILE", "sso")
    store = open_store(f"s3://jobs/{KEY}?endpoint=http://127.0.0.1:{cloud.port}").store
    with pytest.raises(StoreRefusedError):
        await store.put(KEY, b"body")
    sign_in(tmp_path)
    await store.put(KEY, b"body")
    await store.close()
    assert cloud.signers == ["FROM-SSO"]


async def test_a_profile_that_does_not_exist_is_refused(
    cloud: Cloud, machine: pytest.MonkeyPatch
) -> None:
    machine.setenv("AWS_PROFILE", "nobody")
    error = await failure(cloud)
    assert isinstance(error, InvalidRequestError)
    assert "'nobody' is in none of its files" in str(error)


async def test_without_botocore_an_error_says_what_to_install(
    cloud: Cloud, machine: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    profiles(tmp_path)
    real = builtins.__import__

    def without(name: str, *rest: Any) -> Any:
        if name.startswith("botocore"):
            raise ModuleNotFoundError(name=name)
        return real(name, *rest)

    machine.setattr(builtins, "__import__", without)
    error = await failure(cloud)
    assert "the AWS profile 'default' needs one more package: pip install \"bucketq[aws]\"" in str(
        error
    )


def test_what_the_environment_says_comes_before_a_default_profile(tmp_path: Path) -> None:
    profiles(tmp_path)
    files = {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }
    assert find_profile(files) == "default"
    assert find_profile(files | {"AWS_PROFILE": "static"}) == "static"
    assert find_profile(files | {"AWS_PROFILE": "static", "AWS_ACCESS_KEY_ID": "x"}) is None
    assert find_profile(files | {"AWS_WEB_IDENTITY_TOKEN_FILE": "/token"}) is None
    (tmp_path / "credentials").write_text("[default]\nregion = eu-west-1\n")
    assert find_profile(files) is None
    (tmp_path / "credentials").write_bytes(b"\xff no file of settings")
    assert find_profile(files) is None
