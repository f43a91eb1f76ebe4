"""A decoder for an event in JSON. The payload is not decoded."""

import msgspec


class EventJson(msgspec.Struct):
    """The JSON form of an event in a file or in a page of events. Unknown fields are ignored."""

    id: str
    timestamp: str
    type: str
    payload: msgspec.Raw
    metadata: dict[str, str] = {}
    key: str | dict[str, str] | None = None


DecodeError = msgspec.MsgspecError
decode = msgspec.json.Decoder(EventJson).decode
