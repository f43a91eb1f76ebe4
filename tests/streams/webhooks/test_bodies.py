"""The bodies of deliveries, in their three forms."""

import json
from urllib.parse import unquote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kwire.streams.events.event import EMPTY, Event
from kwire.streams.webhooks.delivery.bodies import (
    BODY_FORMS,
    CLOUD_EVENT_TYPE,
    METADATA_HEADER_BYTES_MAX,
    BodyForm,
    body_of,
    header_text,
)

AT_MS = 1_750_000_000_250
AT_TEXT = "2025-06-15T15:06:40.250Z"


def event(**changed: object) -> Event:
    made = Event(6, "given", "order.made", b'{"n":1}', AT_MS, EMPTY, None, 100)
    return made._replace(**changed)  # type: ignore[arg-type]


@pytest.mark.proves("S2-28")
def test_the_plain_form_is_the_event_as_it_is_read_elsewhere() -> None:
    body = body_of("event", "orders", event())
    assert body.headers == {"content-type": "application/json"}
    assert json.loads(body.content) == {
        "id": "orders-7",
        "topic": "orders",
        "timestamp": AT_TEXT,
        "type": "order.made",
        "payload": {"n": 1},
    }


def test_metadata_are_told_where_there_are_any() -> None:
    told = event(metadata={"trace": "ä"})
    assert json.loads(body_of("event", "orders", told).content)["metadata"] == {"trace": "ä"}
    assert json.loads(json.loads(body_of("structured", "orders", told).content)["metadata"]) == {"trace": "ä"}
    assert json.loads(unquote(body_of("binary", "orders", told).headers["ce-metadata"])) == {"trace": "ä"}


def test_the_binary_form_is_the_payload_with_attributes_as_headers() -> None:
    body = body_of("binary", "orders", event())
    assert body.content == b'{"n":1}'
    assert body.headers == {
        "content-type": "application/json",
        "ce-specversion": "1.0",
        "ce-id": "orders-7",
        "ce-source": "/topics/orders",
        "ce-type": "order.made",
        "ce-time": AT_TEXT,
        "ce-subject": "orders",
    }


def test_the_structured_form_is_one_object() -> None:
    body = body_of("structured", "orders", event())
    assert body.headers == {"content-type": CLOUD_EVENT_TYPE}
    assert json.loads(body.content) == {
        "specversion": "1.0",
        "id": "orders-7",
        "source": "/topics/orders",
        "type": "order.made",
        "time": AT_TEXT,
        "datacontenttype": "application/json",
        "subject": "orders",
        "data": {"n": 1},
    }


def test_headers_stay_within_what_receivers_take() -> None:
    huge = event(metadata={"trace": "x" * METADATA_HEADER_BYTES_MAX})
    assert "ce-metadata" not in body_of("binary", "orders", huge).headers
    assert "metadata" in json.loads(body_of("structured", "orders", huge).content)


def test_header_values_are_encoded_as_the_binding_says() -> None:
    assert header_text("Euro € 😀") == "Euro%20%E2%82%AC%20%F0%9F%98%80"
    assert header_text('a"b%c') == "a%22b%25c"
    assert header_text("a\r\nX: y") == "a%0D%0AX:%20y"


@given(st.text(), st.sampled_from(BODY_FORMS))
def test_no_type_can_break_out_of_a_header_or_a_body(text: str, form: str) -> None:
    body = body_of(form, "orders", event(type=text.encode(errors="replace").decode()))  # type: ignore[arg-type]
    for value in body.headers.values():
        assert value.isascii()
        assert value.isprintable()
    json.loads(body.content)


TRACE = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"


@pytest.mark.parametrize("form", BODY_FORMS)
def test_the_trace_context_of_the_event_is_a_header_of_the_delivery(form: BodyForm) -> None:
    assert body_of(form, "orders", event(metadata={"traceparent": TRACE})).headers["traceparent"] == TRACE
    for other in ({}, {"traceparent": "nonsense"}, {"traceparent": TRACE + "\r\nx: y"}):
        assert "traceparent" not in body_of(form, "orders", event(metadata=other)).headers
