"""Elements of a response that were encoded before the rest of it."""

from typing import Any


class EncodedElements:
    """Encoded elements of a top-level array of a message, for responses too large to encode without a pause.

    `names` is the translation with which they were encoded. It must be the translation of the message.
    """

    __slots__ = ("_count", "encoded", "names")

    def __init__(self, count: int, encoded: bytes, names: Any = None) -> None:
        self._count = count
        self.encoded = encoded
        self.names = names

    def __len__(self) -> int:
        return self._count
