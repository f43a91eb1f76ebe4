"""Subscribe requests: the fields they share, and what they ask of a subscription.

A request is a query string or a command on a WebSocket (JSON). Rooms and the event store name the start differently;
everything else is the same. A shape declares its own fields without `kw_only`, so that they come first in the document
of the HTTP API.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from kwire.broker.subscriptions import OnLag, Start, SubscribeOptions

_TIME = Meta(description="Milliseconds since 1970, or ISO 8601.")

# The start of a subscription to a room.
FromOffset = Annotated[
    int | None, Meta(description="Nothing: new events only. 0: all there are. N: from there on. -N: so many back.")
]
Replay = Annotated[bool | None, Meta(description="Alone: true is all there are. False: new events only.")]


class SubscribeRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of every subscribe request; a shape adds those that say where to start."""

    from_time: Annotated[int | str | None, _TIME] = None
    on_lag: Literal["terminate", "catchup", "drop"] = "terminate"
    types: list[str] | str | None = None
    epoch: Annotated[str | None, Meta(description="Who comes back: the epoch it was told before.")] = None
    queue: Annotated[int | None, Meta(description="Events it may be behind before `on_lag` acts.")] = None
    checkpoint_events: int | None = None
    checkpoint_ms: int | None = None

    def start(self) -> Start:
        """Raises SubscriptionFailed when the fields contradict each other."""
        raise NotImplementedError

    def options(self) -> SubscribeOptions:
        types = self.types.split(",") if isinstance(self.types, str) else self.types
        return SubscribeOptions(
            on_lag=OnLag(self.on_lag),
            queue_events_max=self.queue,
            checkpoint_events=self.checkpoint_events,
            checkpoint_ms=self.checkpoint_ms,
            types=None if types is None else frozenset(types),
            epoch=self.epoch,
        )


class SubscribeCommand(SubscribeRequest, kw_only=True):
    """A subscribe request in JSON."""

    types: Annotated[list[str] | None, Meta(description="Only events of these types.")] = None


class SubscribeQuery(SubscribeRequest, kw_only=True):
    """A subscribe request in a query string, where a list is one text."""

    from_time: Annotated[str | None, _TIME] = None
    types: Annotated[str | None, Meta(description="Only events of these types, with commas between.")] = None
