"""Figures about webhooks: the progress of one in a topic, and the totals of all."""

from collections.abc import Mapping
from typing import NamedTuple


class TopicProgress(NamedTuple):
    """The progress of a webhook in one topic.

    `last_event_id` is the id of the event before the webhook's position. `pending` is the number of events from the
    position to the end of the topic. `retrying` is the number of events that wait for a retry.
    """

    last_event_id: str | None
    pending: int
    retrying: int


class WebhookStatistics(NamedTuple):
    """Totals of all webhooks of this process. `states` is the number of webhooks in each state."""

    states: Mapping[str, int]
    pending: int
    retrying: int
    dead_letters: int
    in_flight: int
    delivered: int
    failed: int
    died: int
