"""The secret from which the salts of users that do not exist are derived."""

import logging

from kwire.access.secrets.node_keys import KeyUnavailable, NodeKeys
from kwire.access.users.scram_credential import ScramMechanism
from kwire.config.sasl import SaslConfig

log = logging.getLogger("kwire.secrets")

PURPOSE = "salts of unknown users"
_SCRAM = frozenset(one.mechanism for one in ScramMechanism)


async def salt_secret(config: SaslConfig, keys: NodeKeys) -> bytes | None:
    """Return the secret of this node; None if no listener has SCRAM, so that no key is created only for this.

    It is also None if the key is not available. Then the salts change with the next start, which is logged.
    """
    if not any(_SCRAM & {*one.mechanisms} for one in config.listeners.values()):
        return None
    try:
        return await keys.stable_secret(PURPOSE)
    except KeyUnavailable as error:
        log.warning("SCRAM shows other salts for unknown users than at other starts, which reveals them: %s", error)
        return None
