"""Encodings of the stream of a consumer group's member: events and control messages as NDJSON or Server-Sent Events, in
complete HTTP chunks.

An event has the format of POST /topics/{topic}/partitions/{partition}/consume. A control message is `{"control", …}`.
The encoding function of each partition index is cached. Event batches cache the bytes per encoding function, so all
readers of a partition share the encoded bytes.
"""

from collections.abc import Sequence
from functools import lru_cache

from msgspec.json import Encoder

from kwire.streams.events.event import Event
from kwire.streams.subscriptions.event_batches import Encoding
from kwire.web.streaming.streaming import chunk
from kwire.web.topics.events import shown_event

# The size of each cache: the maximum number of partitions of a topic.
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
                    # The `id` is for information only: a new stream starts at the committed offsets.
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
