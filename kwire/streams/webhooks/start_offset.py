"""The offset at which a webhook starts to deliver the events of a topic."""

from kwire.errors import InvalidEvent, InvalidWebhook
from kwire.streams.event_store.event_ids import EventId
from kwire.streams.log import Bounds
from kwire.streams.webhooks.definition import LATEST


def offset_after(name: str, last: str | None, bounds: Bounds) -> int:
    """Return the offset after the event `last`, the start of the topic if `last` is None, or its end if LATEST."""
    head = bounds.committed_end
    if last is None:
        return bounds.start
    if last == LATEST:
        return head
    try:
        event_id = EventId.parse(last)
    except InvalidEvent as error:
        raise InvalidWebhook(str(error)) from None
    if event_id.topic != name:
        raise InvalidWebhook(f"{last!r} is not an event of topic {name!r}")
    if event_id.offset >= head:
        raise InvalidWebhook(f"event {last!r} does not exist yet: topic {name!r} has {head} events")
    # If retention has already deleted events after this one, reading reports a gap.
    return event_id.offset + 1
