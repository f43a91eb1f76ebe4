"""The key file: its lines, its permissions, and its creation."""

import base64
import os
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from kwire.access.secrets.key_file import (
    FILE_BYTES_MAX,
    KEY_BYTES,
    KEYS_MAX,
    InvalidKeyFile,
    SecretKey,
    create_key_file,
    parse_keys,
    read_key_file,
)
from storage.disk.files import Files

FIRST, SECOND = SecretKey(b"1" * KEY_BYTES), SecretKey(b"2" * KEY_BYTES)


def line(key: SecretKey) -> bytes:
    return base64.b64encode(key.raw) + b"\n"


def test_each_line_is_a_key_and_comments_are_ignored() -> None:
    assert parse_keys(b"# new\n" + line(FIRST) + b"\n  \n# old\r\n" + line(SECOND)) == (FIRST, SECOND)


@pytest.mark.parametrize(
    ("data", "problem"),
    [
        (b"", "no key"),
        (b"# only a comment\n", "no key"),
        (b"\0" * 45, "line 1 is not base64"),
        (line(FIRST) + b"planted-not-base64!\n", "line 2 is not base64"),
        (base64.b64encode(b"planted-short"), "has 13 bytes"),
        (line(FIRST) * (KEYS_MAX + 1), "at most 100"),
        (b"#" * (FILE_BYTES_MAX + 1), "more than"),
    ],
)
def test_an_invalid_file_is_refused_without_quoting_it(data: bytes, problem: str) -> None:
    with pytest.raises(InvalidKeyFile, match=problem) as raised:
        parse_keys(data)
    assert "planted" not in str(raised.value)


def test_a_key_is_not_in_its_text_nor_in_its_id() -> None:
    key = SecretKey(bytes(range(KEY_BYTES)))
    for form in (key.raw.hex(), repr(key.raw), base64.b64encode(key.raw).decode()):
        assert form not in f"{key!r} {key} {key.key_id}"
    assert len(key.key_id) == 16
    assert len({key.key_id, key.derived("a").hex(), key.derived("b").hex(), key.raw.hex()}) == 4


def test_derived_keys_follow_rfc_5869() -> None:
    """HKDF-Expand of `cryptography`, as a second implementation."""
    from cryptography.hazmat.primitives.hashes import SHA256
    from cryptography.hazmat.primitives.kdf.hkdf import HKDFExpand

    expected = HKDFExpand(SHA256(), 32, b"kwire salts").derive(FIRST.raw)
    assert FIRST.derived("salts") == expected


def test_a_new_file_is_private_and_has_one_random_key(tmp_path: Path) -> None:
    path = tmp_path / "secrets.key"
    mask = os.umask(0)
    try:
        keys = create_key_file(str(path), Files())
    finally:
        os.umask(mask)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert read_key_file(str(path)) == keys
    assert create_key_file(str(tmp_path / "other.key"), Files()) != keys
    assert sorted(one.name for one in tmp_path.iterdir()) == ["other.key", "secrets.key"]


def test_an_existing_file_is_never_replaced(tmp_path: Path) -> None:
    path = tmp_path / "secrets.key"
    path.write_bytes(line(FIRST))
    with pytest.raises(FileExistsError):
        create_key_file(str(path), Files())
    assert path.read_bytes() == line(FIRST)
    assert [one.name for one in tmp_path.iterdir()] == ["secrets.key"]


class FailingFiles(Files):
    """Files whose operations end with an error after the first `left` ones, as if the process had been killed."""

    def __init__(self, left: int) -> None:
        self.left = left
        self.order: list[str] = []

    def __getattribute__(self, name: str) -> Any:
        found = super().__getattribute__(name)
        if name in ("create_private", "write_all", "fsync", "link", "unlink", "fsync_dir", "open_dir"):
            return lambda *args: self._count(name, found, *args)
        return found

    def _count(self, name: str, operation: Callable[..., Any], *args: Any) -> Any:
        if self.left <= 0:
            raise OSError(5, "the test ends here")
        self.left -= 1
        self.order.append(name)
        return operation(*args)


def test_a_crash_at_any_point_leaves_no_file_or_a_complete_one(tmp_path: Path) -> None:
    path = tmp_path / "secrets.key"
    states = set()
    for left in range(20):
        files = FailingFiles(left)
        try:
            create_key_file(str(path), files)
        except OSError:
            states.add(path.exists())
            if path.exists():
                assert len(read_key_file(str(path))) == 1
                path.unlink()
            # The next start succeeds.
            create_key_file(str(path), Files())
        else:
            break
        finally:
            path.unlink(missing_ok=True)
            (tmp_path / "secrets.key.new").unlink(missing_ok=True)
    assert states == {False, True}
    # The content is durable before the file has its name, and the name before the key is used.
    assert files.order[-7:] == ["create_private", "write_all", "fsync", "link", "unlink", "fsync_dir", "fsync"]
