"""Limits the number of scans that run at the same time."""

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager

from kwire.web.answers.errors import Refusal
from kwire.web.requests.access import RequestAccess

SCANS_MAX = 64
# Scans of one principal from one address.
SCANS_PER_CLIENT_MAX = 16


class ScanSlots:
    """The scans that run now. A scan with `live=true` counts until its client closes the connection."""

    def __init__(self) -> None:
        self._counts: Counter[tuple[str, str]] = Counter()
        self._total = 0

    def __len__(self) -> int:
        return self._total

    @contextmanager
    def hold(self, access: RequestAccess, host: str) -> Iterator[None]:
        """Count a scan. Raises a Refusal with status 429 if the client has too many, 503 if there are too many."""
        client = str(access.principal), host
        if self._counts[client] >= SCANS_PER_CLIENT_MAX:
            raise Refusal(
                f"this client already runs {SCANS_PER_CLIENT_MAX} scans: close some of them",
                code="TooManyScans",
                status=429,
            )
        if self._total >= SCANS_MAX:
            raise Refusal(f"{SCANS_MAX} scans are running: try again later", code="TooManyScans", status=503)
        self._counts[client] += 1
        self._total += 1
        try:
            yield
        finally:
            self._total -= 1
            self._counts[client] -= 1
            if not self._counts[client]:
                del self._counts[client]
