"""An event as JSON tells it, decoded in one go; the payload stays the bytes it is."""

import msgspec


class ToldEvent(msgspec.Struct):
    """What its file says, or a page of events. Fields of other names are passed over."""

    id: str
    timestamp: str
    type: str
    payload: msgspec.Raw
    metadata: dict[str, str] = {}
    key: str | dict[str, str] | None = None


DecodeError = msgspec.MsgspecError
decode = msgspec.json.Decoder(ToldEvent).decode
