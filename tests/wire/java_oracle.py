"""What Kafka's own classes must agree to, for one message in one version.

    our bytes       they read them wholly, write them again alike, and tell the same value for each field
    our JSON        they write the bytes that we write, and we read them as the message we began with
    their messages  we read them, say the same of each field, write them again alike, and step over tags nobody knows

All of it is asked in one batch. A declaration that is wrong fails in one of these ways, or cannot be encoded at all.
"""

import struct
from collections.abc import Sequence
from typing import Any

from kwire.wire.codec import decode_message, encode_message
from kwire.wire.schema import Versions, message_of
from tests.support.message_oracle import (
    BUILD,
    HEADERS,
    INVENT,
    PARSE,
    VERSIONS,
    Answer,
    MessageOracle,
    Question,
    Refused,
)
from tests.wire.kafka_json import as_printed, printed, to_kafka_json

# Kafka 4 advertises these versions of Produce (KAFKA-18659) but no longer has their layout.
LACKING = {"ProduceRequest": Versions(0, 2), "ProduceResponse": Versions(0, 2)}
# By its remainder a seed also decides what is null: each way is tried once.
SEEDS = range(8)


def java_knows(cls: type[Any], version: int) -> bool:
    return cls.__name__ not in LACKING or version not in LACKING[cls.__name__]


def check_with_java(
    oracle: MessageOracle, cls: type[Any], version: int, examples: Sequence[Any], kafkas_name: str | None = None
) -> None:
    """Both sides agree on these messages and on some that Kafka's side makes up."""
    name = kafkas_name or message_of(cls).name
    encoded = [encode_message(example, version) for example in examples]
    answers = iter(
        oracle.ask(
            [
                *(Question(PARSE, name, version, data) for data in encoded),
                *(Question(BUILD, name, version, to_kafka_json(example, version)) for example in examples),
                *(Question(INVENT, name, version, struct.pack(">i", seed)) for seed in SEEDS),
            ]
        )
    )
    for example, data in zip(examples, encoded, strict=True):
        written, told = _accepted(next(answers))
        assert written == data
        assert printed(told) == as_printed(example, version)
    for example, data in zip(examples, encoded, strict=True):
        written, _ = _accepted(next(answers))
        assert written == data
        assert decode_message(cls, version, written) == example
    for _ in SEEDS:
        written, told, strange = _accepted(next(answers))
        read = decode_message(cls, version, written)
        assert encode_message(read, version) == written
        assert as_printed(read, version) == printed(told)
        assert decode_message(cls, version, strange) == read


def versions_in_java(oracle: MessageOracle, cls: type[Any]) -> Versions:
    """The versions that Kafka's class knows."""
    (answer,) = oracle.ask([Question(VERSIONS, message_of(cls).name, 0, b"")])
    (versions,) = _accepted(answer)
    return Versions(*struct.unpack(">hh", versions))


def headers_in_java(oracle: MessageOracle, key: int, version: int) -> tuple[bytes, ...]:
    """The header of a request as Kafka's client writes it, and that of its response as Kafka's broker does."""
    (answer,) = oracle.ask([Question(HEADERS, "", version, struct.pack(">h", key))])
    return _accepted(answer)


def _accepted(answer: Answer) -> tuple[bytes, ...]:
    assert not isinstance(answer, Refused), answer.why
    return answer
