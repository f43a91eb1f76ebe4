"""The keys of this node: read from the key file, or created, when they are first needed.

A new key is created only if no stored secret needs another one. If the key file is missing and there are encrypted
values, they stay as they are until the operator restores the file.
"""

import asyncio
import logging
import os
from collections.abc import Callable
from typing import Self

from kwire.access.secrets.key_file import (
    InvalidKeyFile,
    SecretKey,
    create_key_file,
    is_readable_by_others,
    read_key_file,
)
from kwire.access.secrets.secret_cipher import SecretCipher
from kwire.concurrency.disk_lanes import Lane
from kwire.config import Config
from kwire.metastore import MetaStore
from storage.disk.files import Files

log = logging.getLogger("kwire.secrets")

# The key file in the first data directory, unless `kwire.secrets.key.file` names another one.
KEY_FILE_NAME = "secrets.key"
# The entries of webhooks in the metadata store. Other entries have no encrypted values.
WEBHOOKS_PREFIX = "webhooks/"
# The field of an entry that has its encrypted values, by the names of the fields that they replace.
ENCRYPTED = "encrypted"


class KeyUnavailable(Exception):
    """The node has no usable key. The message says why, and what to do."""


class NodeKeys:
    """The keys of a node. Use it only in the event loop's thread. `lane` reads and writes the file.

    `has_encrypted` returns whether there are encrypted values, so that a new key would not be able to decrypt them.
    """

    def __init__(self, path: str, has_encrypted: Callable[[], bool], files: Files, lane: Lane) -> None:
        self.path = os.path.abspath(path)
        self._has_encrypted = has_encrypted
        self._files = files
        self._lane = lane
        self._lock = asyncio.Lock()
        self._keys: tuple[SecretKey, ...] | None = None
        self._cipher: SecretCipher | None = None

    @classmethod
    def of_node(cls, config: Config, metastore: MetaStore, files: Files, lane: Lane) -> Self:
        """The keys of a server, whose encrypted values are in its metadata store."""
        return cls(key_path(config), lambda: has_encrypted(metastore), files, lane)

    async def cipher(self) -> SecretCipher:
        """Return the cipher for stored secrets. Raises KeyUnavailable."""
        if self._cipher is None:
            keys = await self._load()
            # In a thread, because it imports `cryptography`.
            self._cipher = await self._lane.run(SecretCipher, keys)
        return self._cipher

    async def stable_secret(self, purpose: str) -> bytes:
        """Return a secret that stays the same while the oldest key is in the file. Raises KeyUnavailable.

        New keys are inserted above old ones, so the last key is the oldest one.
        """
        return (await self._load())[-1].derived(purpose)

    async def _load(self) -> tuple[SecretKey, ...]:
        async with self._lock:
            if self._keys is None:
                self._keys = await self._read() or await self._create()
            return self._keys

    async def _read(self) -> tuple[SecretKey, ...] | None:
        try:
            keys = await self._lane.run(read_key_file, self.path)
            if await self._lane.run(is_readable_by_others, self.path):
                log.warning("the key file %s can be read by other users of this machine", self.path)
        except FileNotFoundError:
            return None
        except (OSError, InvalidKeyFile) as error:
            raise KeyUnavailable(f"the key file {self.path} cannot be used: {error}") from None
        return keys

    async def _create(self) -> tuple[SecretKey, ...]:
        if self._has_encrypted():
            raise KeyUnavailable(
                f"the key file {self.path} is missing, and stored secrets are encrypted with a key in it: restore the "
                "file, or set kwire.secrets.key.file to its new place, and restart the server"
            )
        try:
            keys = await self._lane.run(create_key_file, self.path, self._files)
        except FileExistsError:
            # Another server has created it since `_read`.
            keys = await self._read() or ()
        except OSError as error:
            raise KeyUnavailable(f"the key file {self.path} cannot be created: {error}") from None
        if not keys:
            raise KeyUnavailable(f"the key file {self.path} was removed while the server read it")
        log.info("created the key file %s: keep a copy of it in a safe place", self.path)
        return keys


def key_path(config: Config) -> str:
    return config.access.key_file or str(config.log.data_dir / KEY_FILE_NAME)


def has_encrypted(metastore: MetaStore) -> bool:
    """Whether the metadata store has encrypted values."""
    return any(ENCRYPTED in entry.value for _, entry in metastore.entries(WEBHOOKS_PREFIX))
