"""Access tokens: their text, their records, and what must never be seen of them."""

from __future__ import annotations

from datetime import timedelta

import pytest

from bucketq.errors import InvalidRequestError
from bucketq.model.operations import GrantToken
from bucketq.model.tokens import TokenRecord, parse_token, token_digest, token_text
from tests.unit.model.driver import START

TOKEN = token_text("0a1b2c3d", "5e" * 32)
RECORD = TokenRecord(
    id="0a1b2c3d",
    seq=1,
    name="ci",
    digest=token_digest(TOKEN),
    rights=("push",),
    created_at=START,
    expires_at=START + timedelta(seconds=10),
)


def test_the_id_of_a_token_is_parsed_from_its_text() -> None:
    assert TOKEN == "bq_0a1b2c3d_" + "5e" * 32
    assert parse_token(TOKEN) == "0a1b2c3d"


@pytest.mark.parametrize(
    "text",
    [
        "",
        "bq_",
        TOKEN[:-1],
        TOKEN + "5",
        TOKEN + "\n",
        " " + TOKEN,
        TOKEN.upper(),
        TOKEN.replace("bq", "xq"),
        TOKEN.replace("_", "-"),
        TOKEN.replace("5e", "é5"),
        "bq_0a1b2c3_" + "5e" * 32,
        TOKEN.encode(),
        None,
        7,
    ],
    ids=ascii,
)
def test_what_is_not_a_token_is_refused_and_not_shown(text: object) -> None:
    with pytest.raises(InvalidRequestError, match="not a token") as refused:
        parse_token(text)
    assert "5e5e" not in str(refused.value)


def test_a_digest_is_the_sha_256_of_the_whole_text() -> None:
    assert token_digest("abc") == (
        "ba7816bf8f01cfea414140de5dae2223b00361a396177a9cb410ff61f20015ad"
    )
    assert token_digest("\ud800"), "invalid text has a digest too, which no token has"


def test_a_record_knows_its_token_and_no_other() -> None:
    assert RECORD.digest == token_digest(TOKEN)
    assert RECORD.digest != token_digest(TOKEN[:-1] + "f")
    assert RECORD.digest != token_digest("")
    assert RECORD.digest != token_digest("é\ud800")


def test_a_token_is_good_until_the_moment_at_which_it_expires() -> None:
    assert RECORD.is_live(START + timedelta(seconds=9.999))
    assert not RECORD.is_live(START + timedelta(seconds=10))


def test_neither_a_record_nor_a_grant_shows_the_digest() -> None:
    grant = GrantToken(id="0a1b2c3d", name="ci", digest=RECORD.digest, rights=("push",))
    for shown in (repr(RECORD), str(RECORD), repr([RECORD]), repr(grant), f"{grant}"):
        assert RECORD.digest not in shown
        assert "'ci'" in shown
        assert "0a1b2c3d" in shown
