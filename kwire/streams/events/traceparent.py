"""The trace context of an event: the header `traceparent` of W3C Trace Context.

A publisher sends it as a header of its HTTP request. It is stored as a header of the record, where instrumented Kafka
clients look for it, and webhooks send it on. A value that is not valid is ignored, as the specification requires.
"""

import re
from collections.abc import Mapping

from kwire.streams.events.event import METADATA_MAX, NewEvent

TRACEPARENT = "traceparent"
# Version 00 has exactly 55 characters. Later versions may have more; longer values are ignored.
TRACEPARENT_LENGTH_MAX = 256
_PATTERN = re.compile(r"(?!ff)(?P<version>[0-9a-f]{2})-(?!0{32})[0-9a-f]{32}-(?!0{16})[0-9a-f]{16}-[0-9a-f]{2}")


def is_valid_traceparent(text: str) -> bool:
    """Return whether a text is a traceparent of version 00, or of a later version that begins as version 00 does."""
    if len(text) > TRACEPARENT_LENGTH_MAX:
        return False
    found = _PATTERN.match(text)
    if found is None:
        return False
    rest = text[found.end() :]
    if not rest:
        return True
    return found["version"] != "00" and rest[0] == "-" and rest.isascii() and rest.isprintable()


def traced(event: NewEvent, traceparent: str | None) -> NewEvent:
    """Return the event with a valid traceparent in its metadata."""
    if traceparent is None:
        return event
    return event._replace(metadata=traced_metadata(event.metadata, traceparent))


def traced_metadata(metadata: Mapping[str, str], traceparent: str | None) -> Mapping[str, str]:
    """Return metadata with a valid traceparent. It is not added if the metadata has one, or has no room for one."""
    if traceparent is None or TRACEPARENT in metadata or len(metadata) >= METADATA_MAX:
        return metadata
    return {**metadata, TRACEPARENT: traceparent}
