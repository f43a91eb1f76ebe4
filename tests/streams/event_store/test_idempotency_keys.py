"""Known idempotency keys: bounded in number and size, the newest are kept."""

import pytest

from kwire.streams.event_store import idempotency_keys as idempotency_keys
from kwire.streams.event_store.idempotency_keys import Digest, IdempotencyKeys, KeyedCommit, StoredPart


def commit(number: int = 0, events: int = 0) -> KeyedCommit:
    parts = [StoredPart(bytes([number]) * 16, 2**40 + number, 3), StoredPart(bytes(16), 0, 1)]
    return KeyedCommit(bytes(16), parts, [at % 2 for at in range(events)])


def test_what_is_remembered_is_found_as_it_was() -> None:
    keys = IdempotencyKeys()
    keys.add(b"a", commit(1, 7))
    keys.add(b"b", commit(2))
    found = keys.find(b"a")
    assert found is not None
    assert (found.digest, found.parts, list(found.order)) == (bytes(16), commit(1).parts, [0, 1, 0, 1, 0, 1, 0])
    other = keys.find(b"b")
    assert other is not None
    assert not other.order
    assert keys.find(b"c") is None


def test_the_oldest_go_when_there_are_too_many(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency_keys, "KEYS_MAX", 3)
    keys = IdempotencyKeys()
    for name in (b"a", b"b", b"c", b"a", b"d"):
        keys.add(name, commit())
    assert [name for name in (b"a", b"b", b"c", b"d") if keys.find(name)] == [b"a", b"c", b"d"]


def test_commits_of_thousands_of_events_take_no_more_than_all_may(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(idempotency_keys, "KEYS_BYTES_MAX", 100_000)
    keys = IdempotencyKeys()
    for number in range(50):
        keys.add(b"%d" % number, commit(number, 10_000))
        assert keys.size_bytes <= 100_000
    assert len(keys) == 4
    assert keys.find(b"49") is not None
    keys.add(b"49", commit())
    for number in range(50):
        keys.add(b"small-%d" % number, commit())
    assert keys.find(b"49") is not None


def test_a_digest_tells_pieces_apart_by_where_they_end() -> None:
    values = []
    for pieces in ((b"ab", b"c"), (b"a", b"bc"), (b"abc",), (b"abc", b"")):
        digest = Digest()
        for piece in pieces:
            digest.add(piece)
        values.append(digest.value())
    assert len(set(values)) == 4
