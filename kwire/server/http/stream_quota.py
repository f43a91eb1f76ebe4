"""The quotas of a stream: an open WebSocket, or a stream of events. A stream that exceeds a quota waits."""

from typing import TYPE_CHECKING

from kwire.access.quotas.client_quota import MS, ClientQuota
from kwire.access.quotas.kinds import QuotaKind

if TYPE_CHECKING:
    from kwire.access.quotas.quotas import Quotas

# A stream that waits is checked again after this time, so that one that was closed is not kept in memory for longer.
WAIT_SECONDS_MAX = 10.0


class StreamQuota:
    """Charges the bytes of one stream. The quotas are looked up again when they have changed."""

    __slots__ = ("_client", "_quotas", "_revision", "_user")

    def __init__(self, quotas: "Quotas", user: str) -> None:
        self._quotas = quotas
        self._user = user
        self._revision = -1
        self._client: ClientQuota | None = None

    def charge(self, kind: QuotaKind, size_bytes: int) -> float:
        """Charge bytes that were sent or received. Returns the seconds for which the stream has to wait now."""
        if self._revision != self._quotas.revision:
            self._client = self._quotas.client(self._user, None)
            self._revision = self._quotas.revision
        if self._client is None:
            return 0.0
        self._client.add(kind, size_bytes)
        exceeded = self._client.exceeded(kind)
        return 0.0 if exceeded is None else exceeded.retry_after_ms / MS
