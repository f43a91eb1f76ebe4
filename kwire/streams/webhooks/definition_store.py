"""Storage of webhook definitions in the metadata store. `put` and `remove` return when the change is durable.

The fields that may contain secrets are encrypted with a key of the node. The first start after an upgrade encrypts what
older versions stored in plain text, and removes the plain text from the journal. A start with a new key encrypts
everything with it.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from kwire.access.secrets.node_keys import WEBHOOKS_PREFIX, KeyUnavailable, NodeKeys
from kwire.access.secrets.secret_cipher import SecretCipher
from kwire.errors import ErrorCode, KafkaError
from kwire.metastore import Change, Conflict, Entry, MetaStore
from kwire.streams.webhooks.definition import Definition
from kwire.streams.webhooks.definition_secrets import (
    DEFINITIONS_PER_CHUNK,
    Value,
    decrypted_all,
    encrypted,
    is_current,
)
from storage.errors import StorageError

log = logging.getLogger("kwire.webhooks")

# An entry that exists while the journal has no secrets in plain text, also not in values that were replaced.
HISTORY_KEY = "webhook-history-erased"


class DefinitionStore(Protocol):
    """A store of webhook definitions."""

    async def load(self, *, had_webhooks: bool) -> Sequence[Definition]:
        """Return all definitions. A definition whose secrets cannot be decrypted is locked.

        `had_webhooks` is True if this server, or an older version, has ever stored a webhook.
        """
        ...

    async def put(self, definition: Definition) -> None:
        """Add or replace a definition; raises KafkaError."""
        ...

    async def remove(self, webhook_id: str) -> None:
        """Remove a definition; raises KafkaError."""
        ...


class NoDefinitionStore:
    """A `DefinitionStore` that stores nothing, for webhooks that exist in memory only."""

    async def load(self, *, had_webhooks: bool) -> Sequence[Definition]:
        return ()

    async def put(self, definition: Definition) -> None:
        """Do nothing."""

    async def remove(self, webhook_id: str) -> None:
        """Do nothing."""


class MetastoreDefinitionStore:
    """Stores definitions in the metadata store. The caller, `Webhooks`, makes one change at a time."""

    def __init__(self, metastore: MetaStore, keys: NodeKeys) -> None:
        self._metastore = metastore
        self._keys = keys
        # Whether the journal has never had a secret in plain text, and no entry says so yet.
        self._is_history_new = False

    async def load(self, *, had_webhooks: bool) -> Sequence[Definition]:
        entries = [
            (key.removeprefix(WEBHOOKS_PREFIX), entry) for key, entry in self._metastore.entries(WEBHOOKS_PREFIX)
        ]
        is_erased = self._metastore.get(HISTORY_KEY) is not None
        self._is_history_new = not (entries or had_webhooks or is_erased)
        definitions, cipher = await decrypted_all(
            [(webhook_id, entry.value) for webhook_id, entry in entries], self._keys
        )
        outdated = [
            (webhook_id, entry, definition)
            for (webhook_id, entry), definition in zip(entries, definitions, strict=True)
            if cipher is not None and not definition.locked and not is_current(entry.value, cipher)
        ]
        if cipher is not None or not entries:
            try:
                await self._encrypt_anew(outdated, cipher)
                if outdated or not (is_erased or self._is_history_new):
                    await self._erase_history()
            except (StorageError, Conflict) as error:
                log.warning("secrets of webhooks are still in plain text, the next start encrypts them: %s", error)
        return definitions

    async def put(self, definition: Definition) -> None:
        if definition.locked:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, definition.locked)
        try:
            value = encrypted(definition, await self._keys.cipher())
        except KeyUnavailable as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"the webhook cannot be stored: {error}") from None
        first = [self._change(HISTORY_KEY, {})] if self._is_history_new else []
        await self._commit([*first, self._change(WEBHOOKS_PREFIX + definition.webhook_id, value)])
        self._is_history_new = False

    async def remove(self, webhook_id: str) -> None:
        key = WEBHOOKS_PREFIX + webhook_id
        if self._metastore.get(key) is not None:
            await self._commit([self._change(key, None)])

    async def _encrypt_anew(
        self, outdated: Sequence[tuple[str, Entry, Definition]], cipher: SecretCipher | None
    ) -> None:
        """Store definitions encrypted that are stored in plain text or with an older key."""
        for start in range(0, len(outdated), DEFINITIONS_PER_CHUNK):
            changes = [
                Change(WEBHOOKS_PREFIX + webhook_id, encrypted(definition, cipher), entry.revision)
                for webhook_id, entry, definition in outdated[start : start + DEFINITIONS_PER_CHUNK]
                if cipher is not None
            ]
            if self._metastore.get(HISTORY_KEY) is not None:
                # The values that are replaced now stay in the journal until its history is erased.
                changes.append(self._change(HISTORY_KEY, None))
            await self._metastore.commit(changes)

    async def _erase_history(self) -> None:
        await self._metastore.erase_history()
        await self._metastore.commit([self._change(HISTORY_KEY, {})])
        log.info("the secrets of all webhooks are encrypted, and older values were removed from the metadata journal")

    def _change(self, key: str, value: Value | None) -> Change:
        entry = self._metastore.get(key)
        return Change(key, value, entry.revision if entry else 0)

    async def _commit(self, changes: list[Change]) -> None:
        try:
            await self._metastore.commit(changes)
        except Conflict as error:
            raise KafkaError(ErrorCode.CONCURRENT_TRANSACTIONS, str(error)) from error
        except StorageError as error:
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, str(error)) from error
