"""Storage of webhook definitions in the metadata store. `put` and `remove` return when the change is durable."""

from collections.abc import Iterator
from typing import Protocol

from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore
from kwire.streams.webhooks.definition import Definition
from storage.errors import StorageError

KEY_PREFIX = "webhooks/"


class DefinitionStore(Protocol):
    """A store of webhook definitions."""

    def load(self) -> Iterator[Definition]: ...

    async def put(self, definition: Definition) -> None:
        """Add or replace a definition; raises KafkaError."""
        ...

    async def remove(self, webhook_id: str) -> None:
        """Remove a definition; raises KafkaError."""
        ...


class NoDefinitionStore:
    """A `DefinitionStore` that stores nothing, for webhooks that exist in memory only."""

    def load(self) -> Iterator[Definition]:
        return iter(())

    async def put(self, definition: Definition) -> None:
        """Do nothing."""

    async def remove(self, webhook_id: str) -> None:
        """Do nothing."""


class MetastoreDefinitionStore:
    """Stores definitions in the metadata store. The caller, `Webhooks`, makes one change at a time."""

    def __init__(self, metastore: MetaStore) -> None:
        self._metastore = metastore

    def load(self) -> Iterator[Definition]:
        for key, entry in self._metastore.entries(KEY_PREFIX):
            yield Definition.from_stored(key.removeprefix(KEY_PREFIX), entry.value)

    async def put(self, definition: Definition) -> None:
        await self._commit(definition.webhook_id, definition.stored())

    async def remove(self, webhook_id: str) -> None:
        if self._metastore.get(KEY_PREFIX + webhook_id) is not None:
            await self._commit(webhook_id, None)

    async def _commit(self, webhook_id: str, value: dict[str, object] | None) -> None:
        key = KEY_PREFIX + webhook_id
        entry = self._metastore.get(key)
        try:
            await self._metastore.commit([Change(key, value, entry.revision if entry else 0)])
        except Conflict as error:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, str(error)) from error
        except StorageError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
