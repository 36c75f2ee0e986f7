"""How cloud addresses are read, and how wrong or unsafe ones are refused."""

from __future__ import annotations

import json
from urllib.parse import urlsplit

import pytest

from bucketq.errors import InvalidRequestError
from bucketq.store.cloud_options import CloudAddress, check_key, read_address


def read(url: str, **environ: str) -> CloudAddress:
    return read_address(urlsplit(url), environ)


@pytest.mark.parametrize(
    ("url", "folder", "name", "plain"),
    [
        ("s3://jobs/queue.json", "", "queue.json", "s3://jobs/queue.json"),
        ("gs://jobs/a/b/q.json", "a/b/", "q.json", "gs://jobs/a/b/q.json"),
        ("az://jobs/a%20b/q%3F.json", "a b/", "q?.json", "az://jobs/a%20b/q%3F.json"),
        ("s3://my.bucket_1/Größe", "", "Größe", "s3://my.bucket_1/Gr%C3%B6%C3%9Fe"),
        ("s3://usw2--x-s3/queue.json", "", "queue.json", "s3://usw2--x-s3/queue.json"),
        ("s3://jobs/q?path_style=TRUE", "", "q", "s3://jobs/q?path_style=true"),
        (
            "s3://jobs/q?region=eu-west-1&endpoint=https://minio.example:9000/",
            "",
            "q",
            "s3://jobs/q?endpoint=https://minio.example:9000&region=eu-west-1",
        ),
    ],
)
def test_an_address_is_a_bucket_a_folder_and_a_name(
    url: str, folder: str, name: str, plain: str
) -> None:
    address = read(url)
    assert (address.folder, address.name, address.url) == (folder, name, plain)
    assert read(address.url) == address


@pytest.mark.parametrize(
    ("url", "hint"),
    [
        ("s3://", "s3://bucket/jobs/queue.json"),
        ("gs:///queue.json", "gs://bucket/jobs/queue.json"),
        ("az://a b/queue.json", "az://container/jobs/queue.json"),
        ("s3://bucket:9000/queue.json", "endpoint=https://host:port"),
        ("s3://bucket", "s3://bucket/queue.json"),
        ("s3://bucket/", "s3://bucket/queue.json"),
        ("s3://bucket/jobs/", "s3://bucket/jobs/queue.json"),
        ("s3://bucket//queue.json", "no empty parts"),
        ("s3://bucket/a//queue.json", "no empty parts"),
        ("s3://bucket/a/../queue.json", "'..'"),
        ("s3://bucket/a/%2E%2E/queue.json", "'..'"),
        ("s3://bucket/./queue.json", "'.'"),
        ("s3://bucket/a%5Cb.json", "no backslashes"),
        ("s3://bucket/a%0Ab.json", "no control characters"),
        ("s3://bucket/a%7Fb.json", "no control characters"),
        ("s3://bucket/%FF.json", "UTF-8"),
        (f"s3://bucket/{'a' * 1025}", "1024 bytes"),
        ("s3://bucket/queue.json#top", "%23"),
        ("s3://bucket/queue.json?regoin=us-east-1", "'regoin' is not an option"),
        ("s3://bucket/queue.json?regoin=us-east-1", "allow_http, anonymous, endpoint, path_style"),
        ("gs://bucket/queue.json?region=us-east-1", "'region' is not an option of a gs://"),
        ("s3://bucket/queue.json?region=", "region is a name"),
        ("s3://bucket/queue.json?region=a&region=b", "given twice"),
        ("s3://bucket/queue.json?path_style=maybe", "true or false"),
        ("s3://bucket/queue.json?timeout_s=soon", "number of seconds"),
        ("s3://bucket/queue.json?timeout_s=0", "more than 0"),
        ("s3://bucket/queue.json?timeout_s=-1", "number of seconds"),
        ("s3://bucket/queue.json?timeout_s=nan", "number of seconds"),
        ("s3://bucket/queue.json?write_interval_s=1e9", "number of seconds"),
        ("s3://bucket/queue.json?endpoint=minio:9000", "https://storage.example.com:9000"),
        ("s3://bucket/queue.json?endpoint=ftp://minio", "https://storage.example.com:9000"),
        ("s3://bucket/queue.json?endpoint=http://x:99999", "https://storage.example.com:9000"),
        ("s3://bucket/queue.json?endpoint=https://x%3Fa=b", "https://storage.example.com:9000"),
        ("s3://bucket/queue.json?endpoint=http://minio:9000", "allow_http=true"),
        ("s3://bucket/queue.json?endpoint=http://10.0.0.1:9000", "allow_http=true"),
        ("s3://bucket/queue.json?header.=1", "header.NAME"),
        ("s3://bucket/queue.json?header.a%20b=1", "header.NAME"),
        ("s3://bucket/queue.json?header.A=1%0d%0aB:2", "header.NAME"),
    ],
)
def test_a_wrong_address_is_refused_with_a_hint(url: str, hint: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read(url)
    assert hint in str(caught.value)


@pytest.mark.parametrize(
    "query",
    [
        "access_key_id=hunter2",
        "AWS_SECRET_ACCESS_KEY=hunter2",
        "secret=hunter2",
        "session_token=hunter2",
        "token=hunter2",
        "sas=hunter2",
        "sas_token=hunter2",
        "sig=hunter2",
        "sv=2023&sp=rw&sig=hunter2",
        "X-Amz-Signature=hunter2",
        "account_key=hunter2",
        "password=hunter2",
        "credentials=hunter2",
        "header.Authorization=hunter2",
        "header.Cookie=hunter2",
        "header.X-Amz-Security-Token=hunter2",
        "endpoint=https://alice:hunter2@minio.example",
        "hunter2",
        "Hunter2%2Fhunter2=1",
    ],
)
@pytest.mark.parametrize("scheme", ["s3", "gs", "az"])
def test_a_secret_in_an_address_is_refused_and_never_repeated(scheme: str, query: str) -> None:
    with pytest.raises(InvalidRequestError) as caught:
        read(f"{scheme}://bucket/queue.json?{query}")
    error: BaseException | None = caught.value
    while error is not None:
        assert "hunter2" not in str(error).lower()
        error = error.__cause__ or error.__context__


@pytest.mark.parametrize("key", ["", "/a", "a/", "a//b", ".", "a/..", "a\\b", "a\0b", "a\x85b"])
def test_a_key_that_could_be_taken_for_another_is_refused(key: str) -> None:
    with pytest.raises(InvalidRequestError, match="cannot name an object"):
        check_key(key)


@pytest.mark.parametrize("key", ["a", "a b", "..a", "a/.b", "キュー", "100%", "a+b=c", "a\u00a0b"])
def test_a_key_may_hold_any_other_text(key: str) -> None:
    check_key(key)


@pytest.mark.parametrize(
    ("environ", "endpoint"),
    [
        ({}, None),
        ({"AWS_ENDPOINT_URL": "https://one"}, "https://one"),
        ({"AWS_ENDPOINT_URL": "https://one", "AWS_ENDPOINT_URL_S3": "https://two"}, "https://two"),
        ({"AWS_ENDPOINT_URL": ""}, None),
        ({"STORAGE_EMULATOR_HOST": "https://one"}, None),
    ],
)
def test_the_environment_names_the_endpoint_of_s3(
    environ: dict[str, str], endpoint: str | None
) -> None:
    assert read("s3://jobs/q", **environ).endpoint == endpoint


def test_the_address_goes_before_the_environment() -> None:
    address = read("s3://jobs/q?endpoint=https://mine", AWS_ENDPOINT_URL_S3="https://other")
    assert address.endpoint == "https://mine"
    assert address.config["endpoint"] == address.config["aws_endpoint_url_s3"] == "https://mine"


def test_an_endpoint_in_the_environment_is_checked_and_not_repeated() -> None:
    with pytest.raises(InvalidRequestError, match="AWS_ENDPOINT_URL is not the address") as caught:
        read("s3://jobs/q", AWS_ENDPOINT_URL="https://alice:hunter2@minio")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("url", "allowed"),
    [
        ("s3://jobs/q?endpoint=http://127.0.0.1:9000", True),
        ("s3://jobs/q?endpoint=http://localhost:9000", True),
        ("s3://jobs/q?endpoint=http://[::1]:9000", True),
        ("s3://jobs/q?endpoint=http://minio:9000&allow_http=true", True),
        ("s3://jobs/q?endpoint=https://minio:9000", None),
        ("s3://jobs/q", None),
    ],
)
def test_plain_http_is_for_this_machine_or_by_permission(url: str, allowed: bool | None) -> None:
    assert read(url).client.get("allow_http") is allowed


def test_a_google_emulator_in_the_environment_needs_no_credentials() -> None:
    address = read("gs://jobs/q", STORAGE_EMULATOR_HOST="localhost:9023")
    assert address.endpoint == "http://localhost:9023"
    key = json.loads(address.config["service_account_key"])
    assert (key["gcs_base_url"], key["disable_oauth"]) == ("http://localhost:9023", True)


def test_an_azure_connection_string_is_parsed_and_not_shown() -> None:
    text = (
        "DefaultEndpointsProtocol=https;AccountName=shop;AccountKey=aHVudGVyMg==;"
        "BlobEndpoint=https://shop.example"
    )
    address = read("az://jobs/q", AZURE_STORAGE_CONNECTION_STRING=text)
    assert address.config == {
        "account_name": "shop",
        "account_key": "aHVudGVyMg==",
        "endpoint": "https://shop.example",
    }
    assert "aHVudGVyMg" not in repr(address)
    assert "aHVudGVyMg" not in address.url


def test_the_account_of_azure_can_be_in_the_address() -> None:
    assert read("az://jobs/q?account=shop").config == {"account_name": "shop"}


def test_the_bucket_can_be_part_of_the_host() -> None:
    address = read("s3://jobs/q?endpoint=https://oss.example:8443&path_style=false")
    assert address.config["endpoint"] == "https://jobs.oss.example:8443"
    assert address.config["virtual_hosted_style_request"] is True
    assert read("s3://jobs/q?path_style=false").config["virtual_hosted_style_request"] is True


def test_headers_are_passed_on() -> None:
    address = read("s3://jobs/q?header.X-Tigris-Consistent=true")
    assert address.client["default_headers"] == {"X-Tigris-Consistent": "true"}
    assert read(address.url) == address


@pytest.mark.parametrize(
    ("url", "interval_s"),
    [
        ("s3://jobs/q", 0.0),
        ("az://jobs/q", 0.0),
        ("gs://jobs/q", 1.0),
        ("gs://jobs/q?write_interval_s=0", 0.0),
        ("s3://jobs/q?write_interval_s=2.5", 2.5),
        ("s3://jobs/q?endpoint=https://abc.r2.cloudflarestorage.com", 1.0),
        ("s3://jobs/q?endpoint=https://abc.eu.r2.cloudflarestorage.com", 1.0),
        ("s3://jobs/q?endpoint=https://r2.cloudflarestorage.com.example", 0.0),
    ],
)
def test_providers_that_take_one_write_a_second_get_no_more(url: str, interval_s: float) -> None:
    assert read(url).write_interval_s == interval_s
