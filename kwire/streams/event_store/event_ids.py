"""The id of a stored event: its topic and its number there. It comes from the offset, never from what was sent."""

from typing import NamedTuple, Self

from kwire.errors import InvalidEvent

# As many digits as an offset can have.
DIGITS_MAX = 19


class EventId(NamedTuple):
    """`orders-7` is the seventh event of `orders`, at offset 6."""

    topic: str
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.offset + 1}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Topics may have dashes in their names and end in digits, so the last dash counts; raises InvalidEvent."""
        topic, dash, number = text.rpartition("-")
        if not topic or not dash or not number.isascii() or not number.isdigit() or number.startswith("0"):
            raise InvalidEvent(f"{text[:300]!r} is no event id: it is <topic>-<number>, numbered from 1")
        if len(number) > DIGITS_MAX:
            raise InvalidEvent(f"{text[:300]!r} is no event id: the number is too large")
        return cls(topic, int(number) - 1)
