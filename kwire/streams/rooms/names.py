"""Conversion between room names, which may be any text, and topic names, which follow Kafka's rules.

A room name that Kafka allows is also the topic name. In any other name, each UTF-8 byte of a character that is not
allowed becomes `_xHH_`, with two upper-case hexadecimal digits. An underscore that could be mistaken for the start of
such an escape is escaped too, and so are the dots of `.` and `..`. The mapping is reversible: no two rooms share a
topic, and the topic name determines the room name.
"""

import re

from kwire.errors import InvalidName

TOPIC_NAME_LENGTH_MAX = 249
# The prefix of internal topics, which cannot be used as rooms.
RESERVED_PREFIX = "__"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_ILLEGAL = "[^a-zA-Z0-9._-]"
# An underscore has to be escaped in two cases:
# - The underscore and the characters after it look like an escape. The closing underscore of that escape is in the room
#   name, or it is the first character of the escape for the next character.
# - The underscore is the first character of the name, and the next character is escaped. The topic name would then
#   begin with two underscores, which is the reserved prefix.
_AMBIGUOUS = rf"_(?=x[0-9A-F]{{2}}(?:_|{_ILLEGAL}))|^_(?={_ILLEGAL})"
_ESCAPED = re.compile(f"{_AMBIGUOUS}|{_ILLEGAL}")
_ESCAPES = re.compile("(?:_x[0-9A-F]{2}_)+")


def topic_of_room(room: str) -> str:
    """Return the topic name of a room. Raises InvalidName if `room` is not a valid room name."""
    if "_x" in room or room in ("", ".", "..") or not _LEGAL.fullmatch(room):
        return _encoded(room)
    if room.startswith(RESERVED_PREFIX):
        raise InvalidName(room, f"names starting with {RESERVED_PREFIX} are reserved")
    if len(room) > TOPIC_NAME_LENGTH_MAX:
        raise _too_long(room)
    return room


def room_of_topic(topic: str) -> str:
    """Return the room name of a topic, or the topic name itself if no room has this topic name."""
    if "_x" not in topic:
        return topic
    try:
        room = _ESCAPES.sub(_unescape, topic)
        return room if topic_of_room(room) == topic else topic
    except (UnicodeDecodeError, InvalidName):
        return topic


def topic_prefix_of(prefix: str) -> str:
    """Return a prefix of the topic names of all rooms whose names start with `prefix`.

    The topic names of other rooms may start with the returned prefix, too. The returned prefix may be empty.
    """
    # Whether an underscore near the end of `prefix` is escaped depends on the characters that come after `prefix` in a
    # room name. Therefore only the part before such an underscore is used.
    whole = re.sub(r"_(?:x[0-9A-F]{0,2})?\Z", "", prefix)
    return _ESCAPED.sub(_escape, whole) if whole not in (".", "..") else ""


def _encoded(room: str) -> str:
    if not room:
        raise InvalidName(room, "it is empty")
    if room.startswith(RESERVED_PREFIX):
        raise InvalidName(room, f"names starting with {RESERVED_PREFIX} are reserved")
    if len(room) > TOPIC_NAME_LENGTH_MAX:
        raise _too_long(room)
    if room in (".", ".."):
        return "_x2E_" * len(room)
    try:
        topic = _ESCAPED.sub(_escape, room)
    except UnicodeEncodeError:
        raise InvalidName(room.encode(errors="replace").decode(), "it is not valid Unicode") from None
    if len(topic) > TOPIC_NAME_LENGTH_MAX:
        raise _too_long(room)
    return topic


def _escape(match: re.Match[str]) -> str:
    return "".join(f"_x{byte:02X}_" for byte in match[0].encode())


def _unescape(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("_", "").replace("x", "")).decode()


def _too_long(room: str) -> InvalidName:
    return InvalidName(
        room[: TOPIC_NAME_LENGTH_MAX + 1],
        f"as a topic name it has more than {TOPIC_NAME_LENGTH_MAX} characters (each byte of a character that Kafka "
        "does not allow counts as five)",
    )
