"""Subscribe requests: their common fields, and the conversion to the options of a subscription.

A subscribe request is a query string or a command on a WebSocket (JSON). The fields for the start of the subscription
have different names for rooms and for the event store. All other fields are the same. Subclasses declare their own
fields without `kw_only`, so that the OpenAPI document lists these fields first.
"""

from typing import Annotated, Literal

from msgspec import Meta, Struct

from kwire.streams.subscriptions import OnLag, Start, SubscribeOptions

_TIME = Meta(description="Milliseconds since 1970, or ISO 8601.")

# The start of a subscription to a room.
FromOffset = Annotated[
    int | None, Meta(description="Absent: new events only. 0: all events. N: from offset N on. -N: the last N events.")
]
Replay = Annotated[bool | None, Meta(description="Used only without `from_offset`. true: all events; false: new ones.")]


class SubscribeRequest(Struct, kw_only=True, forbid_unknown_fields=True):
    """The fields of every subscribe request; subclasses add the fields for the start."""

    from_time: Annotated[int | str | None, _TIME] = None
    on_lag: Literal["terminate", "catchup", "drop"] = "terminate"
    types: list[str] | str | None = None
    epoch: Annotated[str | None, Meta(description="To resume: the `epoch` of the earlier subscription.")] = None
    queue: Annotated[int | None, Meta(description="The lag in events at which `on_lag` applies.")] = None
    checkpoint_events: int | None = None
    checkpoint_ms: int | None = None

    def start(self) -> Start:
        """Return the start of the subscription. Raises SubscriptionFailed if fields exclude each other."""
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
    """A subscribe request in a query string. A list is one string with commas."""

    from_time: Annotated[str | None, _TIME] = None
    types: Annotated[str | None, Meta(description="Only events of these types, separated by commas.")] = None
