"""RemoteDefinitionStore: definitions of webhooks in the topic with their state, encrypted as on a server."""

from collections.abc import Mapping, Sequence

from kwire.access.secrets.node_keys import ENCRYPTED, KeyUnavailable, NodeKeys
from kwire.clock import Clock
from kwire.errors import ErrorCode, KafkaError
from kwire.streams.remote.transactions.writer import UnknownTransaction
from kwire.streams.remote_webhooks.state_topic import RemoteStateTopic
from kwire.streams.remote_webhooks.stored_state import DEFINITION, encode
from kwire.streams.webhooks.definition import Definition
from kwire.streams.webhooks.definition_secrets import (
    DEFINITIONS_PER_CHUNK,
    Value,
    decrypted_all,
    encrypted,
    is_current,
)
from storage.batch.builder import build_batch_from_bodies, encode_record_body


class RemoteDefinitionStore:
    """Implements DefinitionStore. The caller, `Webhooks`, makes one change at a time."""

    def __init__(self, topic: RemoteStateTopic, keys: NodeKeys, clock: Clock) -> None:
        self._topic = topic
        self._keys = keys
        self._clock = clock
        self._values: dict[str, Value] = {}
        # Changes whose outcome is not known. The next one stores these definitions as they are here, too.
        self._unknown: set[str] = set()

    async def check_keys(self) -> None:
        """Raise KafkaError if there are definitions and this bridge can decrypt none: another one should deliver."""
        definitions, _ = await decrypted_all(list(self._topic.definitions.items()), self._keys)
        if definitions and all(one.locked for one in definitions):
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"the {len(definitions)} webhooks in topic {self._topic.name!r} were encrypted with another key: copy "
                f"the key file of the bridge that has stored them to {self._keys.path}, or set "
                f"kwire.bridge.webhooks.topic to another topic ({definitions[0].locked})",
            )

    async def load(self, *, had_webhooks: bool) -> Sequence[Definition]:
        self._values = dict(self._topic.definitions)
        definitions, cipher = await decrypted_all(list(self._values.items()), self._keys)
        if cipher is not None:
            outdated = {
                one.webhook_id: encrypted(one, cipher)
                for one in definitions
                if not one.locked and not is_current(self._values[one.webhook_id], cipher)
            }
            ids = list(outdated)
            for start in range(0, len(ids), DEFINITIONS_PER_CHUNK):
                await self._store({one: outdated[one] for one in ids[start : start + DEFINITIONS_PER_CHUNK]})
        return definitions

    async def put(self, definition: Definition) -> None:
        if definition.locked:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, definition.locked)
        try:
            cipher = await self._keys.cipher()
        except KeyUnavailable as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the webhook cannot be stored: {error}") from None
        await self._store({definition.webhook_id: encrypted(definition, cipher)})

    async def remove(self, webhook_id: str) -> None:
        if webhook_id in self._values or webhook_id in self._unknown:
            await self._store({webhook_id: None})

    async def _store(self, changes: Mapping[str, Value | None]) -> None:
        stored = {**{one: self._values.get(one) for one in self._unknown}, **changes}
        records = [
            encode_record_body(encode([DEFINITION, one]), None if value is None else encode(value), 0, b"")
            for one, value in stored.items()
        ]
        try:
            await self._topic.append(*build_batch_from_bodies(records, self._clock.now_ms()))
        except UnknownTransaction:
            self._unknown.update(stored)
            raise
        self._unknown.clear()
        for webhook_id, value in changes.items():
            if value is None:
                self._values.pop(webhook_id, None)
            else:
                self._values[webhook_id] = value


def has_encrypted(topic: RemoteStateTopic) -> bool:
    """Whether the topic has values that a new key would not be able to decrypt."""
    return any(ENCRYPTED in value for value in topic.definitions.values())
