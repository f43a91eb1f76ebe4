"""The payloads of entries that the leader still has in memory."""


class Payloads:
    """Payloads by index. Those of acknowledged entries are dropped, oldest first, when they exceed `kept_bytes`."""

    __slots__ = ("_bytes", "_kept_bytes", "_payloads")

    def __init__(self, kept_bytes: int) -> None:
        self._payloads: dict[int, bytes] = {}
        self._bytes = 0
        self._kept_bytes = kept_bytes

    def add(self, index: int, payload: bytes) -> None:
        if index not in self._payloads:
            self._payloads[index] = payload
            self._bytes += len(payload)

    def get(self, index: int) -> bytes | None:
        return self._payloads.get(index)

    def trim(self, acked: int, needed: int) -> None:
        """Drop acknowledged payloads: those up to `needed`, which all replicas have, and old ones beyond the bound.

        Others are kept even if a replica has them: it may be the only one and fail.
        """
        while self._payloads:
            index = next(iter(self._payloads))
            if index > acked or (index > needed and self._bytes <= self._kept_bytes):
                return
            self._bytes -= len(self._payloads.pop(index))
