"""StoredState: the newest value of each key of the topic with the state of webhooks."""

from typing import Any, Final, NamedTuple

import msgspec

from kwire.errors import ErrorCode, KafkaError
from kwire.streams.events.replay import KeyValue, replay_records
from kwire.streams.remote.log import RemoteLog
from kwire.streams.webhooks.definition_secrets import Value

# The keys and values of all records that are kept while a bridge starts.
STATE_BYTES_MAX: Final = 512 * 1024 * 1024
DEFINITION: Final = "definition"
OWNER: Final = "owner"

_decode = msgspec.json.Decoder().decode
encode = msgspec.json.Encoder().encode


class Owner(NamedTuple):
    """The bridge that delivers. `token` is another one after each start; `host` is for people."""

    token: str
    host: str


class StoredState:
    """`state` has the records of `TopicStateLog`, as they are stored."""

    def __init__(self) -> None:
        self.state: dict[bytes, bytes] = {}
        self.definitions: dict[str, Value] = {}
        self.owner: Owner | None = None
        self._next_offset = 0
        self._sizes: dict[bytes, int] = {}
        self._size_bytes = 0

    async def read(self, log: RemoteLog) -> None:
        """Read the records that were committed since the last call. Raises KafkaError if one cannot be read."""
        await log.ready()
        end = log.committed_end
        async for record in replay_records(log, self._next_offset):
            self._add(log.topic, record)
        # The replay may have ended later. What it has read beyond `end` is read again, in its order.
        self._next_offset = end

    def _add(self, topic: str, record: KeyValue) -> None:
        try:
            key, value = self._parsed(record)
        except (msgspec.DecodeError, ValueError) as error:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"topic {topic!r} has a record that is not of webhooks ({error}): is it used by something else?",
            ) from None
        raw_key, raw_value = record
        assert raw_key is not None
        self._count(topic, raw_key, raw_value)
        if key == [OWNER]:
            self.owner = None if value is None else Owner(*value)
        elif key[0] == DEFINITION:
            if value is None:
                self.definitions.pop(key[1], None)
            else:
                self.definitions[key[1]] = value
        elif raw_value is None:
            self.state.pop(raw_key, None)
        else:
            self.state[raw_key] = raw_value

    def _parsed(self, record: KeyValue) -> tuple[list[Any], Any]:
        raw_key, raw_value = record
        key = _decode(raw_key or b"null")
        if not isinstance(key, list) or not key or not isinstance(key[0], str):
            raise ValueError("its key is not an array that begins with a name")
        value = None if raw_value is None else _decode(raw_value)
        kind, count = key[0], len(key)
        if kind == OWNER:
            is_valid = count == 1 and (value is None or (isinstance(value, list) and len(value) == len(Owner._fields)))
        elif kind == DEFINITION:
            is_valid = count == 2 and isinstance(key[1], str) and (value is None or isinstance(value, dict))
        else:
            is_valid = count > 1
        if not is_valid:
            raise ValueError(f"its key is {key}")
        return key, value

    def _count(self, topic: str, raw_key: bytes, raw_value: bytes | None) -> None:
        size = 0 if raw_value is None else len(raw_key) + len(raw_value)
        self._size_bytes += size - self._sizes.pop(raw_key, 0)
        if size:
            self._sizes[raw_key] = size
        if self._size_bytes > STATE_BYTES_MAX:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE,
                f"the state of webhooks in topic {topic!r} has more than {STATE_BYTES_MAX} bytes",
            )
