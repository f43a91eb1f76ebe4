"""The part that the handlers of ACLs share: the authorizer that has the ACLs."""

from kwire.access.acl import Operation
from kwire.access.authorizer import AclAuthorizer
from kwire.errors import ErrorCode, KafkaError
from kwire.handlers.shared.access_context import AccessContext


def acls_of(context: AccessContext, operation: Operation) -> AclAuthorizer:
    """Return the authorizer that has the ACLs.

    Raises KafkaError: CLUSTER_AUTHORIZATION_FAILED if the client may not do the operation on the cluster,
    SECURITY_DISABLED if there are no ACLs on this server.
    """
    context.cluster.authorize(operation)
    authorizer = context.services.authorizer
    if not isinstance(authorizer, AclAuthorizer):
        raise KafkaError(ErrorCode.SECURITY_DISABLED, "No Authorizer is configured on the broker.")
    return authorizer
