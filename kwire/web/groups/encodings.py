"""Events and marks as the readers of a group's stream get them: lines of JSON, or Server-Sent Events, in whole chunks.

An event has the shape of POST /topics/{topic}/partitions/{partition}/consume; a mark is `{"control", …}`. Each
partition has an encoding of its own, made once, so that everybody who reads it gets the same bytes.
"""

from collections.abc import Sequence
from functools import lru_cache

from msgspec.json import Encoder

from kwire.broker.events.event import Event
from kwire.broker.subscriptions.portions import Encoding
from kwire.web.streaming import chunk
from kwire.web.topics.events import shown_event

# As many partitions as one topic may have.
ENCODINGS_KEPT = 10_000

_encode = Encoder().encode
_encode_lines = Encoder().encode_lines


@lru_cache(ENCODINGS_KEPT)
def ndjson_events(partition_id: int) -> Encoding:
    def encode(topic: str, events: Sequence[Event]) -> bytes:
        return chunk(_encode_lines([shown_event(topic, partition_id, one) for one in events]))

    return encode


@lru_cache(ENCODINGS_KEPT)
def sse_events(partition_id: int) -> Encoding:
    def encode(topic: str, events: Sequence[Event]) -> bytes:
        return chunk(
            b"".join(
                [
                    # The id is for people: where a group goes on is what it has committed.
                    b"id: %d:%d\ndata: %b\n\n"
                    % (partition_id, one.offset, _encode(shown_event(topic, partition_id, one)))
                    for one in events
                ]
            )
        )

    return encode


def ndjson_control(control: str, facts: dict[str, object]) -> bytes:
    return chunk(_encode({"control": control, **facts}) + b"\n")


def sse_control(control: str, facts: dict[str, object]) -> bytes:
    return chunk(b"event: %b\ndata: %b\n\n" % (control.encode(), _encode({"control": control, **facts})))
