"""The definitions of all webhooks, in the metadata store: small, seldom changed, durable before anybody is answered."""

from collections.abc import Iterator
from typing import Protocol

from kwire.broker.webhooks.definition import Definition
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, MetaStore
from storage.errors import StorageError

KEY_PREFIX = "webhooks/"


class Definitions(Protocol):
    def load(self) -> Iterator[Definition]: ...

    async def put(self, definition: Definition) -> None:
        """Add it or put it in the place of the one before; raises KafkaError."""
        ...

    async def remove(self, webhook_id: str) -> None:
        """Raises KafkaError."""
        ...


class NoDefinitions:
    """For webhooks that live in memory only."""

    def load(self) -> Iterator[Definition]:
        return iter(())

    async def put(self, definition: Definition) -> None:
        """Nothing is written."""

    async def remove(self, webhook_id: str) -> None:
        """Nothing was written."""


class StoredDefinitions:
    """One caller at a time changes a webhook: `Webhooks` sees to that."""

    def __init__(self, metastore: MetaStore) -> None:
        self._metastore = metastore

    def load(self) -> Iterator[Definition]:
        for key, entry in self._metastore.entries(KEY_PREFIX):
            yield Definition.of_stored(key.removeprefix(KEY_PREFIX), entry.value)

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
