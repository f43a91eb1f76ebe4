"""Faults that a test injects into its server: errors, delays and lost connections of Kafka APIs, and a bad disk."""

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import Any, Literal, Self

# Names all Kafka APIs.
ALL_APIS = "*"

When = Literal["before", "after"]
Call = Callable[[str, Mapping[str, Any]], Any]


class Fault:
    """An injected fault. `with fault:` removes it at the end of the block."""

    def __init__(self, call: Call, number: int) -> None:
        self._call = call
        self._number = number

    @property
    def hits(self) -> int:
        """How many requests the fault has affected."""
        hits: int = self._call("fault_hits", {"number": self._number})
        return hits

    def remove(self) -> None:
        """Remove the fault. Requests that it delays at this moment stay delayed."""
        self._call("remove_fault", {"number": self._number})

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.remove()


class Faults:
    """The faults of one server. They end with `clear`, and with the server process: a restart clears them.

    An API is named as in Kafka's protocol: Produce, Fetch, Metadata, OffsetCommit, JoinGroup … `"*"` names all of them.
    `times` is the number of requests that a fault affects; None means every request until it is removed. If several
    faults apply to a request, errors and lost connections are decided by the oldest of them, and delays add up.
    """

    def __init__(self, call: Call) -> None:
        self._call = call

    def error(self, api: str, code: str | int, *, times: int | None = 1) -> Fault:
        """Answer requests with an error, without doing what they ask for.

        `code` is Kafka's name or number of the error, such as `NOT_LEADER_OR_FOLLOWER`.
        """
        return self._add("error", api, times, code=code)

    def delay(self, api: str, seconds: float, *, times: int | None = None) -> Fault:
        """Delay the responses to requests. Later responses of the same connection wait, as Kafka's protocol demands."""
        return self._add("delay", api, times, seconds=seconds)

    def disconnect(self, api: str, *, when: When = "before", times: int | None = 1) -> Fault:
        """Close the connection of a request instead of a response.

        With `when="after"`, the request is carried out first: a producer then does not know that its records are
        stored.
        """
        return self._add("disconnect", api, times, when=when)

    def drop_connections(self) -> int:
        """Close all connections of Kafka clients now. Return their number."""
        count: int = self._call("drop_connections", {})
        return count

    def slow_disk(self, seconds: float) -> None:
        """Make each sync of a file take `seconds` longer, until `clear`. Producers wait for syncs (`acks=all`, `1`)."""
        self._call("slow_disk", {"seconds": seconds})

    def failing_disk(self, error: str = "EIO") -> None:
        """Fail each write and each sync, until `clear`. `error` is EIO (a broken disk) or ENOSPC (a full disk).

        After a failed sync, a partition accepts no records until the server is restarted.
        """
        self._call("failing_disk", {"error": error})

    def clear(self) -> None:
        """Remove all faults."""
        self._call("clear_faults", {})

    def _add(self, kind: str, api: str, times: int | None, **details: Any) -> Fault:
        arguments = {"kind": kind, "api": api, "times": times, **details}
        return Fault(self._call, self._call("add_fault", arguments))
