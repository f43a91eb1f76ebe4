"""Settings of subscriptions to client metrics."""

import pytest

from kwire.config.resources.client_metrics import describe, validate
from kwire.errors import ErrorCode, KafkaError


@pytest.mark.parametrize(
    "overrides",
    [
        {},
        {"metrics": ""},
        {"metrics": "*"},
        {"metrics": "org.apache.kafka.producer., org.apache.kafka.consumer."},
        {"interval.ms": "100"},
        {"interval.ms": "3600000"},
        {"match": ""},
        {"match": "client_id=a.*,client_source_port = 90[0-9]+"},
        {"match": "client_software_version=[[a]"},
    ],
)
def test_what_kafka_allows_is_allowed(overrides: dict[str, str]) -> None:
    validate(overrides)
    told = {entry.name: entry.value for entry in describe(overrides)}
    assert {name: text.replace(", ", ",") for name, text in overrides.items()}.items() <= told.items()
    validate({name: value for name, value in told.items() if value is not None})


@pytest.mark.parametrize(
    ("name", "value", "code", "words"),
    [
        ("no.such", "1", ErrorCode.INVALID_REQUEST, "Unknown client metrics configuration: no.such"),
        ("interval.ms", "99", ErrorCode.INVALID_REQUEST, "interval must be between 100 and 3600000 (1 hour)"),
        ("interval.ms", "3600001", ErrorCode.INVALID_REQUEST, "interval must be between 100 and 3600000 (1 hour)"),
        ("interval.ms", "x", ErrorCode.INVALID_CONFIG, "Not a number of type INT"),
        ("match", "client_color=red", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_color=red"),
        ("match", "client_id", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern: client_id"),
        ("match", "client_id=", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
        ("match", "client_id=a=b", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
        ("match", "client_id=" + "a" * 1000, ErrorCode.INVALID_CONFIG, "more than 1000 characters"),
        ("match", "client_id=[", ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
        ("match", "client_id=" + "(" * 490 + ")" * 490, ErrorCode.INVALID_CONFIG, "Illegal client matching pattern"),
    ],
)
def test_refusals_have_code_and_words_of_kafka(name: str, value: str, code: ErrorCode, words: str) -> None:
    with pytest.raises(KafkaError) as refusal:
        validate({name: value})
    assert refusal.value.code is code
    assert words in str(refusal.value)
