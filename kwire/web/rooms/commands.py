"""Commands of rooms: `{"command": "stream.publish", "payload": {…}, "request_id": …}`, on a WebSocket or by POST.

Each of the four commands is a Struct, and the field `command` is its tag. `socket_session.py` runs the commands of a
WebSocket. `result_of` and `history_parts` run the commands of POST requests; there stream.subscribe fails. `request_id`
may be any JSON value. The answer on the WebSocket contains the same `request_id`.

No command fails with EventNotFound. A `stream.history` without events in its range has an empty result. GET
/rooms/{room}/events/{offset} reads one event.
"""

from collections.abc import Callable

import msgspec
from msgspec import Raw, Struct, field

from kwire.access.acl import Operation
from kwire.errors import SubscriptionFailed
from kwire.streams.events.traceparent import traced
from kwire.streams.subscriptions import Start
from kwire.web.answers.errors import BadRequest
from kwire.web.answers.event_json import PublishedEvent, new_event, source_of
from kwire.web.answers.large_answers import Parts
from kwire.web.requests.access import RequestAccess
from kwire.web.requests.body_limits import check_command
from kwire.web.requests.integral_floats import decode_integral_floats, failed_on_float
from kwire.web.requests.key_limits import CountedEvents
from kwire.web.rooms.events import HistoryQuery, history_of
from kwire.web.rooms.rooms import ROOM, room_to_use
from kwire.web.services import RoomServices
from kwire.web.streaming.subscribe_requests import FromOffset, Replay, SubscribeCommand
from kwire.web.vocabulary.unknown_fields import sentence_of

NO_ID = Raw(b"")


class PublishPayload(PublishedEvent, kw_only=True, forbid_unknown_fields=True):
    """An event to publish, and its room."""

    room: ROOM


class SubscribePayload(SubscribeCommand):
    """The room to subscribe to, the start of the subscription, and its options."""

    room: ROOM
    from_offset: FromOffset = None
    replay: Replay = None

    def start(self) -> Start:
        return Start.parse(self.from_offset, self.replay, self.from_time)


class UnsubscribePayload(Struct, kw_only=True, forbid_unknown_fields=True):
    room: ROOM


class HistoryPayload(HistoryQuery, kw_only=True, forbid_unknown_fields=True):
    """A range of events to read, and their room."""

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
    """Decode a command; raises BadRequest with the code InvalidJson, InvalidCommand or UnknownCommand."""
    try:
        check_command(message)
        try:
            return _decode(message)
        except msgspec.ValidationError as error:
            if not failed_on_float(message, error):
                raise
            command: Command = decode_integral_floats(message, Command)
            return command
    except msgspec.ValidationError as error:
        _check_is_known(message)
        raise BadRequest(sentence_of(error, Command), code="InvalidCommand") from None
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise BadRequest(f"the message is not JSON: {error}", code="InvalidJson") from None
    except RecursionError:
        raise BadRequest("the message is nested too deeply", code="InvalidJson") from None


def _check_is_known(message: bytes | bytearray) -> None:
    try:
        name = _decode_name(message).command
    except (msgspec.DecodeError, RecursionError):
        return
    if name not in COMMANDS:
        raise BadRequest(
            f"unknown command {name[:100]!r}; the commands are {', '.join(COMMANDS)}", code="UnknownCommand"
        ) from None


def request_id_of(message: bytes | bytearray) -> Raw:
    """Return the `request_id` of an invalid command, so that the client can match the error to the command. Return
    NO_ID if the message has none or is not JSON."""
    try:
        return _decode_id(message).request_id
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return NO_ID


async def history_parts(services: RoomServices, access: RequestAccess, payload: HistoryPayload) -> Parts:
    """Run stream.history; return the result as JSON, in parts."""
    name = access.full_name(payload.room)
    access.authorize_room(Operation.READ, name)
    found = await history_of(
        services.port,
        await services.rooms.find(name),
        payload.room,
        payload.from_offset,
        payload.to_offset,
        payload.limit,
    )
    return found.json()


def publish_result(event_id: str, offset: int, subscribers_notified: int) -> bytes:
    return b'{"event_id":%b,"offset":%d,"subscribers_notified":%d}' % (
        msgspec.json.encode(event_id),
        offset,
        subscribers_notified,
    )


async def result_of(
    services: RoomServices,
    access: RequestAccess,
    command: Publish | Subscribe | Unsubscribe,
    traceparent: str | None = None,
) -> bytes:
    """Run a command of a POST request, except stream.history. Return its result as JSON. Raises StreamError, KafkaError
    or Refusal."""
    match command:
        case Publish(payload=payload):
            name = access.full_name(payload.room)
            access.authorize_room(Operation.WRITE, name)
            event = traced(new_event(payload), traceparent)
            room = await room_to_use(services, access, name)
            async with CountedEvents(access, 1):
                published = await services.publisher.publish_and_wait(room.log, source_of(room.name), (event,))
            offset, (event_id,) = published
            return publish_result(event_id, offset, services.subscriptions.count_of(room.log))
        case Unsubscribe(payload=payload):
            # A POST request has no subscription that it could end, but the room must exist.
            name = access.full_name(payload.room)
            access.authorize_room(Operation.DESCRIBE, name)
            await services.rooms.find(name)
            return b'{"success":false}'
    raise SubscriptionFailed("stream.subscribe needs a WebSocket: use GET /ws or GET /rooms/{room}/subscribe")
