"""The ids, secrets and tokens of keys."""

import re
import string

import pytest

from kwire.access.keys.key_format import (
    TOKEN_LENGTH,
    Credentials,
    is_key_id,
    is_secret,
    new_key_id,
    new_secret,
    parse_token,
)
from kwire.access.users.users import check_name

COUNT = 2_000


def test_ids_and_secrets_have_a_form_that_scanners_recognise_and_none_is_made_twice() -> None:
    ids, secrets = {new_key_id() for _ in range(COUNT)}, {new_secret() for _ in range(COUNT)}
    assert len(ids) == len(secrets) == COUNT
    assert all(re.fullmatch(r"kwk_[0-9A-Za-z]{22}", one) and is_key_id(one) for one in ids)
    assert all(re.fullmatch(r"kws_[0-9A-Za-z]{49}", one) and is_secret(one) for one in secrets)


def test_a_token_has_the_id_and_the_secret() -> None:
    credentials = Credentials(new_key_id(), new_secret())
    assert len(credentials.token) == TOKEN_LENGTH
    assert parse_token(credentials.token) == credentials
    assert credentials.secret not in repr(credentials)


def test_texts_that_only_resemble_a_secret_are_refused_by_the_checksum() -> None:
    secret = new_secret()
    assert is_secret(secret)
    for at in range(4, len(secret)):
        for other in string.ascii_letters[:3]:
            if secret[at] != other:
                assert not is_secret(secret[:at] + other + secret[at + 1 :])
    for wrong in ("", "kws_", secret[:-1], secret + "0", "kwk_" + secret[4:], secret.replace("_", "-"), "\ud800"):
        assert not is_secret(wrong)


@pytest.mark.parametrize("change", ["", "x", "{}x", " {}", "{}\n", "{}.", "{}é"])
def test_texts_that_are_not_tokens_are_refused(change: str) -> None:
    token = Credentials(new_key_id(), new_secret()).token
    assert parse_token(change.format(token)) is None
    assert parse_token(token[1:] + token[0]) is None
    assert parse_token(token.replace(".", ":")) is None


def test_no_user_can_have_the_name_of_a_key() -> None:
    with pytest.raises(ValueError, match="form of the id of a key"):
        check_name(new_key_id())
    check_name("kwk_")
    check_name(new_key_id() + "x")
