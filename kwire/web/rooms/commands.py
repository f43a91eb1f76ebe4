"""Commands of rooms: `{"command": "stream.publish", "payload": {…}, "request_id": …}`, on a WebSocket or by POST.

The table of commands is the union of four shapes, told apart by `command`. What each does on a socket is in
`socket_session.py`; over HTTP, where nothing can be subscribed to, it is `result_of`. `request_id` may be any JSON
value and comes back as it is.

No command asks for one event by its offset, so none answers EventNotFound: a range of `stream.history` with nothing in
it is simply empty. GET /rooms/{room}/events/{offset} is for one.
"""

from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct, field

from kwire.broker.subscriptions import Start
from kwire.errors import SubscriptionFailed
from kwire.web.body_bounds import check_command
from kwire.web.errors import BadRequest
from kwire.web.event_json import PublishedEvent, new_event, source_of
from kwire.web.large_answers import Parts
from kwire.web.rooms.events import HistoryQuery, history_of
from kwire.web.rooms.rooms import ROOM, room_to_publish
from kwire.web.services import WebServices
from kwire.web.subscribe_requests import FromOffset, Replay, SubscribeCommand
from kwire.web.whole_numbers import decoded_anyway

NO_ID = Raw(b"")


class PublishPayload(PublishedEvent, kw_only=True, forbid_unknown_fields=True):
    """An event, and the room it is for."""

    room: ROOM


class SubscribePayload(SubscribeCommand):
    """Where to begin, and what becomes of a reader who is too slow."""

    room: ROOM
    from_offset: FromOffset = None
    replay: Replay = None

    def start(self) -> Start:
        return Start.parse(self.from_offset, self.replay, self.from_time)


class UnsubscribePayload(Struct, kw_only=True, forbid_unknown_fields=True):
    room: ROOM


class HistoryPayload(HistoryQuery, kw_only=True, forbid_unknown_fields=True):
    """Which events, and the room they are of."""

    room: ROOM


class Publish(Struct, kw_only=True, tag_field="command", tag="stream.publish", forbid_unknown_fields=True):
    payload: PublishPayload
    request_id: Raw = field(default_factory=lambda: NO_ID)


class Subscribe(Struct, kw_only=True, tag_field="command", tag="stream.subscribe", forbid_unknown_fields=True):
    payload: SubscribePayload
    request_id: Raw = field(default_factory=lambda: NO_ID)


class Unsubscribe(Struct, kw_only=True, tag_field="command", tag="stream.unsubscribe", forbid_unknown_fields=True):
    payload: UnsubscribePayload
    request_id: Raw = field(default_factory=lambda: NO_ID)


class History(Struct, kw_only=True, tag_field="command", tag="stream.history", forbid_unknown_fields=True):
    payload: HistoryPayload
    request_id: Raw = field(default_factory=lambda: NO_ID)


Command = Publish | Subscribe | Unsubscribe | History
COMMANDS = ("stream.publish", "stream.subscribe", "stream.unsubscribe", "stream.history")


class _Named(Struct):
    command: str


class _Numbered(Struct):
    request_id: Raw = field(default_factory=lambda: NO_ID)


_decode: Callable[[bytes | bytearray], Command] = msgspec.json.Decoder(Command).decode
_decode_name = msgspec.json.Decoder(_Named).decode
_decode_id = msgspec.json.Decoder(_Numbered).decode


def decode_command(message: bytes | bytearray) -> Command:
    """A command, checked; raises BadRequest with a code that says what kind of mistake it is."""
    try:
        check_command(message)
        try:
            return _decode(message)
        except msgspec.ValidationError as error:
            command: Command = decoded_anyway(message, Command, error)
            return command
    except msgspec.ValidationError as error:
        _check_is_known(message)
        text = str(error)
        raise BadRequest(text[:1].lower() + text[1:], code="InvalidCommand") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the message is not JSON: {error}", code="InvalidJson") from None
    except RecursionError:
        raise BadRequest("the message is nested too deep", code="InvalidJson") from None


def _check_is_known(message: bytes | bytearray) -> None:
    try:
        name = _decode_name(message).command
    except (msgspec.DecodeError, RecursionError):
        return
    if name not in COMMANDS:
        raise BadRequest(
            f"there is no command {name[:100]!r}; there are {', '.join(COMMANDS)}", code="UnknownCommand"
        ) from None


def request_id_of(message: bytes | bytearray) -> Raw:
    """The id of a command that cannot be understood otherwise, so that its sender knows which one it was."""
    try:
        return _decode_id(message).request_id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NO_ID


async def history_parts(services: WebServices, payload: HistoryPayload) -> Parts:
    """The result of stream.history as JSON, in parts."""
    room = services.rooms.get(payload.room)
    return (await history_of(services, room, payload.from_offset, payload.to_offset, payload.limit)).json()


def publish_result(event_id: str, offset: int, subscribers_notified: int) -> bytes:
    return b'{"event_id":%b,"offset":%d,"subscribers_notified":%d}' % (
        msgspec.json.encode(event_id),
        offset,
        subscribers_notified,
    )


async def result_of(services: WebServices, command: Publish | Subscribe | Unsubscribe) -> bytes:
    """What a command other than stream.history answers over HTTP, as JSON; raises StreamError or KafkaError."""
    match command:
        case Publish(payload=payload):
            event = new_event(payload)
            room = await room_to_publish(services, payload.room)
            offset, (event_id,) = await services.publisher.publish_and_wait(room.log, source_of(room.name), (event,))
            return publish_result(event_id, offset, services.subscriptions.count_of(room.log))
        case Unsubscribe(payload=payload):
            # The room must be there; nobody who asks over HTTP is subscribed to it.
            services.rooms.get(payload.room)
            return b'{"success":false}'
    raise SubscriptionFailed("stream.subscribe needs a WebSocket: GET /ws, or GET /rooms/{room}/subscribe")
