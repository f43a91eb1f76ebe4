"""The handlers of a bridge, one for each API that it serves as JSON.

A request of an API that has no handler here is refused. Every handler checks the rights of the client before anything
is read or changed, because all clients share the bridge's user of the cluster.
"""

from collections.abc import Mapping

from kwire.handlers import (
    HANDLERS,
    alter_client_quotas,
    alter_user_scram_credentials,
    create_acls,
    delete_acls,
    describe_acls,
    describe_client_quotas,
    describe_user_scram_credentials,
)
from kwire.handlers.shared.context import Handler
from kwire.wire.messages.alter_client_quotas import ALTER_CLIENT_QUOTAS
from kwire.wire.messages.alter_user_scram_credentials import ALTER_USER_SCRAM_CREDENTIALS
from kwire.wire.messages.create_acls import CREATE_ACLS
from kwire.wire.messages.delete_acls import DELETE_ACLS
from kwire.wire.messages.describe_acls import DESCRIBE_ACLS
from kwire.wire.messages.describe_client_quotas import DESCRIBE_CLIENT_QUOTAS
from kwire.wire.messages.describe_user_scram_credentials import DESCRIBE_USER_SCRAM_CREDENTIALS

# The handlers of a server, for what the bridge has in its own metadata store.
_OWN = (
    (DESCRIBE_ACLS, describe_acls.handle),
    (CREATE_ACLS, create_acls.handle),
    (DELETE_ACLS, delete_acls.handle),
    (DESCRIBE_USER_SCRAM_CREDENTIALS, describe_user_scram_credentials.handle),
    (ALTER_USER_SCRAM_CREDENTIALS, alter_user_scram_credentials.handle),
    (DESCRIBE_CLIENT_QUOTAS, describe_client_quotas.handle),
    (ALTER_CLIENT_QUOTAS, alter_client_quotas.handle),
)

BRIDGE_HANDLERS: Mapping[int, Handler] = {
    api.key: Handler(api, handle, HANDLERS[api.key].needs) for api, handle in _OWN
}
