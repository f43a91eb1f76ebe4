"""Messages of errors that a cluster answers with."""

import pytest

from kwire.errors import ErrorCode
from kwire.kafka_client.errors import refusal


@pytest.mark.parametrize(
    ("message", "shown"),
    [
        (None, "topic 'orders': TOPIC_ALREADY_EXISTS"),
        ("no more topics", "topic 'orders': no more topics"),
        ("Topic 'orders' already exists.", "Topic 'orders' already exists."),
        ("Topic 'orders.eu' collides.", "topic 'orders': Topic 'orders.eu' collides."),
    ],
)
def test_an_error_names_its_subject_once(message: str | None, shown: str) -> None:
    error = refusal("topic 'orders'", ErrorCode.TOPIC_ALREADY_EXISTS, message)
    assert (error.code, str(error)) == (ErrorCode.TOPIC_ALREADY_EXISTS, shown)
