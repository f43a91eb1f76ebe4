"""Room names and topic names: a room may be called anything, a topic only what Kafka allows, and each tells the other.

A name that Kafka allows stays as it is. In any other, each byte of a character that is not allowed (in UTF-8) becomes
`_xHH_` with two upper-case hexadecimal digits. An underscore in front of something that would then be taken for such
an escape is escaped itself, and so are the dots of `.` and `..`. So no two rooms share a topic, and the room's name can
be told from the topic's.
"""

import re

from kwire.errors import InvalidName

TOPIC_NAME_LENGTH_MAX = 249
# Names that begin so are the server's own; clients come by no HTTP door to them.
RESERVED_PREFIX = "__"

_LEGAL = re.compile(r"[a-zA-Z0-9._-]+", re.ASCII)
_ILLEGAL = "[^a-zA-Z0-9._-]"
# An underscore that would begin an escape, whether its closing one is in the name or begins the next escape; and one
# that would make a reserved name together with the escape behind it.
_AMBIGUOUS = rf"_(?=x[0-9A-F]{{2}}(?:_|{_ILLEGAL}))|^_(?={_ILLEGAL})"
_ESCAPED = re.compile(f"{_AMBIGUOUS}|{_ILLEGAL}")
_ESCAPES = re.compile("(?:_x[0-9A-F]{2}_)+")


def topic_of_room(room: str) -> str:
    """The topic that a room is; InvalidName if no room can be called so."""
    if "_x" in room or room in ("", ".", "..") or not _LEGAL.fullmatch(room):
        return _encoded(room)
    if room.startswith(RESERVED_PREFIX):
        raise InvalidName(room, f"names starting with {RESERVED_PREFIX} are reserved")
    if len(room) > TOPIC_NAME_LENGTH_MAX:
        raise _too_long(room)
    return room


def room_of_topic(topic: str) -> str:
    """What a topic is called as a room. A topic that no room name leads to is called by its own name."""
    if "_x" not in topic:
        return topic
    try:
        room = _ESCAPES.sub(_unescape, topic)
        return room if topic_of_room(room) == topic else topic
    except (UnicodeDecodeError, InvalidName):
        return topic


def range_of_prefix(prefix: str) -> str:
    """What all topics begin with whose rooms begin with `prefix`; others may begin so too. Empty: with anything."""
    # The end of the prefix may turn into an escape with what follows it, so it is left out of the range.
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
        "does not allow counts five)",
    )
