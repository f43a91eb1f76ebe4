"""Conversion between room names, which may be any text, and topic names, which follow Kafka's rules.

A room name that Kafka allows is also the topic name. In any other name, each UTF-8 byte of a character that is not
allowed becomes `_xHH_`, with two upper-case hexadecimal digits. An underscore that could be mistaken for the start of
such an escape is escaped too, and so are the dots of `.` and `..`. The mapping is reversible: no two rooms share a
topic, and the topic name determines the room name.

The full name of a room with a scope is the prefix of the scope and the name of the room. The prefix is the same in the
topic name, and only the part after it is escaped. So the tenant's Kafka clients see the topic that the room would have
without a scope.
"""

import re

from kwire.access.scope import MARK, plain_part, prefix_of
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
# The end of a name in which underscores may have to be escaped, in reversed order: so it is found in time proportional
# to its length.
_UNDECIDED = re.compile("(?:(?:[0-9A-F]{0,2}x)?_)+")


def topic_of_room(room: str) -> str:
    """Return the topic name of a room. Raises InvalidName if `room` is not a valid room name."""
    if room.startswith(MARK) and (prefix := prefix_of(room)):
        return prefix + _topic_of_room(room[len(prefix) :], TOPIC_NAME_LENGTH_MAX - len(prefix))
    return _topic_of_room(room, TOPIC_NAME_LENGTH_MAX)


def _topic_of_room(room: str, length_max: int) -> str:
    if "_x" in room or room in ("", ".", "..") or not _LEGAL.fullmatch(room):
        return _encoded(room, length_max)
    if room.startswith(RESERVED_PREFIX):
        raise InvalidName(room, f"names starting with {RESERVED_PREFIX} are reserved")
    if len(room) > length_max:
        raise _too_long(room, length_max)
    return room


def room_of_topic(topic: str) -> str:
    """Return the room name of a topic, or the topic name itself if no room has this topic name."""
    if "_x" not in topic:
        return topic
    prefix, escaped = prefix_of(topic), plain_part(topic)
    try:
        room = prefix + _ESCAPES.sub(_unescape, escaped)
        return room if topic_of_room(room) == topic else topic
    except (UnicodeDecodeError, InvalidName):
        return topic


def topic_prefix_of(prefix: str) -> str:
    """Return a prefix of the topic names of all rooms whose names start with `prefix`.

    The topic names of other rooms may start with the returned prefix, too. The returned prefix may be empty.
    """
    # Whether an underscore near the end of `prefix` is escaped depends on the characters that come after `prefix` in a
    # room name. Therefore only the part before such underscores is used.
    plain = plain_part(prefix)
    undecided = _UNDECIDED.match(plain[::-1])
    whole = plain if undecided is None else plain[: -undecided.end()]
    return prefix_of(prefix) + (_ESCAPED.sub(_escape, whole) if whole not in (".", "..") else "")


def _encoded(room: str, length_max: int) -> str:
    if not room:
        raise InvalidName(room, "it is empty")
    if room.startswith(RESERVED_PREFIX):
        raise InvalidName(room, f"names starting with {RESERVED_PREFIX} are reserved")
    if len(room) > length_max:
        raise _too_long(room, length_max)
    if room in (".", ".."):
        return "_x2E_" * len(room)
    try:
        topic = _ESCAPED.sub(_escape, room)
    except UnicodeEncodeError:
        raise InvalidName(room.encode(errors="replace").decode(), "it is not valid Unicode") from None
    if len(topic) > length_max:
        raise _too_long(room, length_max)
    return topic


def _escape(match: re.Match[str]) -> str:
    return "".join(f"_x{byte:02X}_" for byte in match[0].encode())


def _unescape(match: re.Match[str]) -> str:
    return bytes.fromhex(match[0].replace("_", "").replace("x", "")).decode()


def _too_long(room: str, length_max: int) -> InvalidName:
    return InvalidName(
        room[: length_max + 1],
        f"as a topic name it has more than {length_max} characters (each byte of a character that Kafka "
        "does not allow counts as five)",
    )
