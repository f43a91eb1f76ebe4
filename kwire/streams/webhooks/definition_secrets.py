"""The stored form of a webhook's definition, in which the fields that may contain secrets are encrypted.

These are the URL, the headers and the signing secrets. The origin of the URL is stored in plain text, too, so that a
webhook whose key is missing can be recognised.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from kwire.access.secrets.node_keys import ENCRYPTED, WEBHOOKS_PREFIX, KeyUnavailable, NodeKeys
from kwire.access.secrets.secret_cipher import SecretCipher, SecretUnreadable
from kwire.streams.webhooks.definition import Definition, origin_of

log = logging.getLogger("kwire.webhooks")

SECRET_FIELDS = ("url", "secrets", "headers")
ORIGIN = "origin"
# The number of definitions that are decrypted before other work runs, and that one write encrypts anew.
DEFINITIONS_PER_CHUNK = 50

Value = dict[str, Any]


def encrypted(definition: Definition, cipher: SecretCipher) -> Value:
    stored = definition.stored()
    secret = {
        name: cipher.encrypt(msgspec.json.encode(stored.pop(name)).decode(), _context(definition.webhook_id, name))
        for name in SECRET_FIELDS
    }
    return {**stored, ORIGIN: origin_of(definition.url), ENCRYPTED: secret}


def decrypted(webhook_id: str, value: Value, cipher: SecretCipher | None, problem: str) -> Definition:
    """Return a definition. It is locked if it cannot be decrypted; `problem` is why there is no cipher."""
    secret = value.get(ENCRYPTED)
    if secret is None:
        # An older version has stored it in plain text.
        return Definition.from_stored(webhook_id, value)
    rest = {name: one for name, one in value.items() if name not in (ENCRYPTED, ORIGIN)}
    try:
        if cipher is None:
            raise SecretUnreadable(problem)
        plain = {
            name: msgspec.json.decode(cipher.decrypt(secret[name], _context(webhook_id, name)))
            for name in SECRET_FIELDS
        }
    except SecretUnreadable as error:
        reason = f"its secrets cannot be decrypted: {error}"
        hidden = {"url": value[ORIGIN], "secrets": [], "headers": {}, "state": "disabled", "reason": reason}
        return Definition.from_stored(webhook_id, {**rest, **hidden}).changed(locked=reason)
    return Definition.from_stored(webhook_id, {**rest, **plain})


async def decrypted_all(
    values: Sequence[tuple[str, Value]], keys: NodeKeys
) -> tuple[list[Definition], SecretCipher | None]:
    """Return the definitions with these ids and stored values, in their order, and the cipher if there is a key."""
    cipher, problem = None, ""
    if values:
        try:
            cipher = await keys.cipher()
        except KeyUnavailable as error:
            problem = str(error)
            log.error("the secrets of webhooks cannot be decrypted or encrypted: %s", problem)
    definitions: list[Definition] = []
    for number, (webhook_id, value) in enumerate(values, start=1):
        definitions.append(decrypted(webhook_id, value, cipher, problem))
        if number % DEFINITIONS_PER_CHUNK == 0:
            await asyncio.sleep(0)
    return definitions, cipher


def is_current(value: Mapping[str, Any], cipher: SecretCipher) -> bool:
    """Whether a stored definition is encrypted with the current key."""
    return ENCRYPTED in value and all(cipher.is_current(one) for one in value[ENCRYPTED].values())


def _context(webhook_id: str, field: str) -> str:
    """Return what an encrypted text is bound to, so that it cannot be moved to another webhook or field."""
    return f"{WEBHOOKS_PREFIX}{webhook_id}/{field}"
