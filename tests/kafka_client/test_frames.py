"""Frames and versions of a client."""

import random

import pytest

from kwire.kafka_client.backoff import JITTER, Backoff
from kwire.kafka_client.errors import NotSupported, Unreachable
from kwire.kafka_client.frames import RESPONSE_BYTES_MAX, ResponseReader, Versions, decode_response
from kwire.kafka_client.settings import Address, addresses_of
from kwire.wire.errors import WireError
from kwire.wire.messages.api_versions import API_VERSIONS
from kwire.wire.messages.fetch import FETCH

SIZES = (4, 5, 100, 60_000, 65_532, 65_533, 70_000, 300_000)


def read(data: bytes, chunk: random.Random) -> list[bytes]:
    reader, found, position = ResponseReader(), list[bytes](), 0
    while position < len(data):
        buffer = reader.buffer()
        assert len(buffer) > 0
        part = data[position : position + chunk.randrange(1, min(len(buffer), 50_000) + 1)]
        buffer[: len(part)] = part
        position += len(part)
        found += [bytes(frame) for frame in reader.received(len(part))]
    return found


@pytest.mark.parametrize("seed", range(20))
def test_responses_arrive_whole_however_they_are_divided(seed: int) -> None:
    chance = random.Random(seed)
    frames = [chance.randbytes(chance.choice(SIZES)) for _ in range(12)]
    assert read(b"".join(len(one).to_bytes(4) + one for one in frames), chance) == frames


@pytest.mark.parametrize("size", [-1, 0, 3, RESPONSE_BYTES_MAX + 1])
def test_sizes_that_no_response_has_are_refused(size: int) -> None:
    with pytest.raises(Unreachable, match="check the port"):
        read(size.to_bytes(4, signed=True) + bytes(10), random.Random(0))


def test_an_answer_that_is_too_short_is_not_valid() -> None:
    with pytest.raises(WireError):
        decode_response(API_VERSIONS, 3, memoryview(bytes(4)))


def test_the_highest_version_of_both_is_used() -> None:
    versions = Versions("broker", {FETCH.key: (4, 12)})
    assert versions.best(FETCH) == 12
    assert versions.best(FETCH, version_max=11) == 11
    assert versions.has(FETCH, 12)
    assert not versions.has(FETCH, 13)
    with pytest.raises(NotSupported, match="versions 0 to 3"):
        Versions("broker", {FETCH.key: (0, 3)}).best(FETCH)
    with pytest.raises(NotSupported, match="does not have this API"):
        Versions("broker", {}).best(FETCH)


def test_addresses() -> None:
    assert addresses_of("a:1, [::1]:2") == (Address("a", 1), Address("::1", 2))
    assert str(Address("::1", 2)) == "[::1]:2"
    for wrong in ("", "a", "a:", ":1", "a:0", "a:65536", ",".join(["a:1"] * 101)):
        with pytest.raises(ValueError, match=r"HOST:PORT|at most"):
            addresses_of(wrong)


def test_pauses_grow_up_to_their_maximum() -> None:
    numbers = iter([0.5, 0.5, 0.5, 0.5, 0.0, 1.0, 0.5])
    backoff = Backoff(lambda: next(numbers), 1.0, 4.0)
    assert [backoff.next_seconds() for _ in range(6)] == [1, 2, 4, 4, 4 * (1 - JITTER), 4 * (1 + JITTER)]
    backoff.reset()
    assert backoff.next_seconds() == 1
