"""The id of a stored event: the name of its topic and its number in that topic, which is the offset plus 1."""

from typing import NamedTuple, Self

from kwire.errors import InvalidEvent

# The largest offset has 19 digits.
DIGITS_MAX = 19


class EventId(NamedTuple):
    """An event id: `orders-7` is the seventh event of `orders`, at offset 6."""

    topic: str
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.offset + 1}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Parse an event id; raises InvalidEvent. The number follows the last dash: topic names may contain dashes."""
        topic, dash, number = text.rpartition("-")
        if not topic or not dash or not number.isascii() or not number.isdigit() or number.startswith("0"):
            raise InvalidEvent(f"{text[:300]!r} is not an event id: the form is <topic>-<number>, numbered from 1")
        if len(number) > DIGITS_MAX:
            raise InvalidEvent(f"{text[:300]!r} is not an event id: the number is too large")
        return cls(topic, int(number) - 1)
